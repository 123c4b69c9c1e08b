//! Compares two versions of a barclamp and orders version numbers.
//!
//! Importing a version does not change the desired state; using it is an edit. Before that edit, a
//! user must see above all what the newer version no longer has. OpenCrowbar's import updated by
//! name and silently retained everything that a file had dropped. Gantry lists removals, additions
//! and changes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Attrib, Barclamp, Catalog, CatalogError, JigClass, Role, Script};
use crate::Hash;
use crate::data::{self, Change, DataError};
use crate::ids::{AttribName, BarclampName, JigName, RoleName};

/// Differences between an older and a newer version of a barclamp.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionDifference {
    /// Removed roles.
    pub roles_gone: Vec<RoleName>,
    /// Added roles.
    pub roles_new: Vec<RoleName>,
    /// Roles with the same name but different content.
    pub roles_changed: Vec<RoleChange>,
    /// Removed jigs.
    pub jigs_gone: Vec<JigName>,
    /// Removed node attributes.
    pub attribs_gone: Vec<AttribName>,
}

/// The removals in a role that both versions have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleChange {
    /// The role's name.
    pub role: RoleName,
    /// Attributes that the role no longer owns.
    pub attribs_gone: Vec<AttribName>,
    /// Names that the role no longer provides.
    pub provides_gone: Vec<RoleName>,
    /// Scripts that the role no longer has.
    pub scripts_gone: Vec<String>,
}

impl VersionDifference {
    /// The removals as text, one per line.
    pub fn removed_parts(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.roles_gone.iter().map(|role| format!("role {role}")).collect();
        lines.extend(self.jigs_gone.iter().map(|jig| format!("jig {jig}")));
        lines.extend(self.attribs_gone.iter().map(|attrib| format!("attribute {attrib} of nodes")));
        for change in &self.roles_changed {
            let role = &change.role;
            lines.extend(
                change
                    .attribs_gone
                    .iter()
                    .map(|attrib| format!("attribute {attrib} of role {role}")),
            );
            lines.extend(
                change
                    .provides_gone
                    .iter()
                    .map(|name| format!("{name}, which role {role} provided")),
            );
            lines.extend(
                change.scripts_gone.iter().map(|script| format!("script {script} of role {role}")),
            );
        }
        lines
    }
}

/// Orders two versions as their files spell them.
///
/// A version consists of segments: digits form numbers, letters form words, and all other
/// characters separate them. Versions are compared segment by segment. The kinds of segments, from
/// old to new:
///
/// 1. A word after a hyphen, which marks a pre-release: `2.0-rc1` is older than `2.0`.
/// 2. The end of the version: `2` is older than `2.0`, and `2.0` than `2.0.1`.
/// 3. A number of any length, compared numerically: `1.9` is older than `1.10`.
/// 4. Any other word, compared without case: `2.A` is older than `2.E`. OpenCrowbar continued its
///    numbers with letters (`2.0`, later `2.E`), so letters come after numbers.
///
/// A `v` before the first number is ignored. Versions are equal if they differ only in separators
/// (except for rule 1), leading zeros or case. The order is total; [`by_number`] orders equal
/// versions by their text.
pub fn order(a: &str, b: &str) -> Ordering {
    segments(a).cmp(&segments(b))
}

/// Maximum length of a version, in bytes.
pub const LONGEST: usize = 64;

/// The text is not a valid version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Invalid version {0:?}. Use 1 to {LONGEST} of the characters A-Z, a-z, 0-9, '.', '_', '+' and \
     '-'. The first and the last one must be a letter or a digit"
)]
pub struct InvalidVersion(pub String);

/// Checks that a text can be a version. Only visible ASCII characters are allowed, so two versions
/// that look the same are the same. The database makes the same check (`guard_barclamp_version`).
///
/// # Errors
/// [`InvalidVersion`] for any other character, or if the text is empty or too long.
pub fn check(version: &str) -> Result<(), InvalidVersion> {
    let ends = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    let valid = version.len() <= LONGEST
        && version.chars().all(allowed)
        && ends(version.chars().next())
        && ends(version.chars().next_back());
    if valid { Ok(()) } else { Err(InvalidVersion(version.chars().take(LONGEST).collect())) }
}

/// Whether two texts mean the same version, such as `1` and `01`, `v1` and `1`, or `1.0` and `1-0`.
/// A catalog contains only one of them.
pub fn is_same(a: &str, b: &str) -> bool {
    order(a, b).is_eq()
}

/// A part of a version. The order of the variants implements the order of [`order`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Before(String),
    End,
    /// The number of digits and the digits, without leading zeros.
    Number(usize, String),
    Word(String),
}

fn segments(version: &str) -> Vec<Segment> {
    let mut rest =
        version.strip_prefix(['v', 'V']).filter(|rest| starts_with_digit(rest)).unwrap_or(version);
    let (mut segments, mut hyphen) = (Vec::new(), false);
    while let Some(first) = rest.chars().next() {
        let kind = |c: char| (c.is_ascii_digit(), c.is_alphanumeric());
        let end = rest.find(|c| kind(c) != kind(first)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        match kind(first) {
            (true, _) => {
                let digits = run.trim_start_matches('0');
                segments.push(Segment::Number(digits.len(), digits.to_owned()));
            }
            (_, true) if hyphen => segments.push(Segment::Before(run.to_lowercase())),
            (_, true) => segments.push(Segment::Word(run.to_lowercase())),
            _ => {}
        }
        hyphen = run.ends_with('-');
        rest = behind;
    }
    segments.push(Segment::End);
    segments
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// The newest version of each barclamp, by version number and not by time of import.
pub fn newest(catalog: &Catalog) -> BTreeMap<&BarclampName, (Hash, &Arc<Barclamp>)> {
    let mut newest: BTreeMap<&BarclampName, (Hash, &Arc<Barclamp>)> = BTreeMap::new();
    for (hash, barclamp) in catalog.barclamps() {
        let known = newest.entry(&barclamp.name).or_insert((hash, barclamp));
        if by_number((known.0, &known.1.version), (hash, &barclamp.version)).is_lt() {
            *known = (hash, barclamp);
        }
    }
    newest
}

/// The highest version below this one.
pub fn before<'c>(
    catalog: &'c Catalog,
    barclamp: &BarclampName,
    version: &str,
) -> Option<&'c Arc<Barclamp>> {
    let versions = catalog.barclamps().filter(|(_, other)| other.name == *barclamp);
    let older = versions.filter(|(_, other)| order(&other.version, version).is_lt());
    older
        .max_by(|a, b| by_number((a.0, &a.1.version), (b.0, &b.1.version)))
        .map(|(_, barclamp)| barclamp)
}

/// Orders versions with the same number by their text, so that one is always the newest.
fn by_number(a: (Hash, &str), b: (Hash, &str)) -> Ordering {
    order(a.1, b.1).then_with(|| a.1.cmp(b.1)).then(a.0.cmp(&b.0))
}

/// Whether two contents of a version differ only in jig values that their own files do not declare.
///
/// A set of files takes the class and client role of such a jig from the file of the set that
/// declares it. If one of its files is imported again alone, it still counts as the same version.
///
/// # Errors
/// [`CatalogError`] if the catalog lacks a role of one of them.
pub fn is_equal_except_jigs(
    stored: &Barclamp,
    read: &Barclamp,
    catalog: &Catalog,
) -> Result<bool, CatalogError> {
    let without_roles =
        |barclamp: &Barclamp| Barclamp { roles: BTreeMap::new(), ..barclamp.clone() };
    if without_roles(stored) != without_roles(read) || !stored.roles.keys().eq(read.roles.keys()) {
        return Ok(false);
    }
    for (was, is) in stored.roles.values().zip(read.roles.values()) {
        if was != is && !is_role_equal_except_jig(catalog.role(*was)?, catalog.role(*is)?, catalog)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_role_equal_except_jig(was: &Role, is: &Role, catalog: &Catalog) -> bool {
    let mut was = Role { jig_class: JigClass::named(is.jig.as_str()), ..was.clone() };
    let client = was.requires.last().filter(|_| was.requires.len() > is.requires.len());
    let is_client = |client: &RoleName| {
        let mut jigs = catalog.barclamps().filter_map(|(_, barclamp)| barclamp.jigs.get(&is.jig));
        jigs.any(|jig| jig.client_role.as_ref() == Some(client))
    };
    if client.is_some_and(is_client) {
        was.requires.pop();
    }
    was == *is
}

/// Compares two versions of a barclamp.
///
/// # Errors
/// [`CatalogError`] if the catalog lacks a role of one of them.
pub fn compare(
    old: &Barclamp,
    new: &Barclamp,
    catalog: &Catalog,
) -> Result<VersionDifference, CatalogError> {
    let mut changed = Vec::new();
    for (name, was) in &old.roles {
        let Some(is) = new.roles.get(name).filter(|is| *is != was) else { continue };
        changed.push(change(catalog.role(*was)?, catalog.role(*is)?));
    }
    Ok(VersionDifference {
        roles_gone: old
            .roles
            .keys()
            .filter(|name| !new.roles.contains_key(*name))
            .cloned()
            .collect(),
        roles_new: new
            .roles
            .keys()
            .filter(|name| !old.roles.contains_key(*name))
            .cloned()
            .collect(),
        roles_changed: changed,
        jigs_gone: old.jigs.keys().filter(|name| !new.jigs.contains_key(*name)).cloned().collect(),
        attribs_gone: gone(&old.attribs, &new.attribs),
    })
}

fn change(was: &Role, is: &Role) -> RoleChange {
    let scripts: BTreeSet<&str> = is.scripts.iter().map(|script| script.name.as_str()).collect();
    let dropped = was.scripts.iter().filter(|script| !scripts.contains(script.name.as_str()));
    RoleChange {
        role: is.name.clone(),
        attribs_gone: gone(&was.attribs, &is.attribs),
        provides_gone: was.provides.difference(&is.provides).cloned().collect(),
        scripts_gone: dropped.map(|script| script.name.clone()).collect(),
    }
}

/// Lists the differences between two contents of a role value by value, including the order of its
/// scripts.
///
/// # Errors
/// [`DataError`] if a template or schema exceeds the nesting limit of data.
pub fn contents(was: &Role, is: &Role) -> Result<Vec<Change>, DataError> {
    data::diff(&definition(was), &definition(is))
}

fn definition(role: &Role) -> Value {
    let mut scripts = Map::new();
    for (position, Script { name, hash, .. }) in (1..).zip(&role.scripts) {
        // A role may run the same file twice.
        let name =
            if scripts.contains_key(name) { format!("{name} ({position})") } else { name.clone() };
        scripts.insert(name, json!({"content": hash.short(), "position": position}));
    }
    let attribs: Map<String, Value> =
        role.attribs.iter().map(|attrib| (attrib.name.to_string(), json!(attrib))).collect();
    let mut definition = json!(role);
    // Keyed by name, so that a new first entry does not make all others look changed.
    definition["scripts"] = scripts.into();
    definition["attribs"] = attribs.into();
    definition
}

fn gone(was: &[Attrib], is: &[Attrib]) -> Vec<AttribName> {
    let current: BTreeSet<&AttribName> = is.iter().map(|attrib| &attrib.name).collect();
    was.iter().map(|attrib| &attrib.name).filter(|name| !current.contains(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::read::{Source, import};
    use crate::ids::ActionName;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn version(catalog: &mut Catalog, text: &str) -> Barclamp {
        let files = BTreeMap::new();
        let source = Source { path: "b.yml", bytes: text.as_bytes(), folder: "", files: &files };
        let import = import(&[source], &Catalog::default()).unwrap();
        import.objects.iter().for_each(|object| catalog.add(object).unwrap());
        import.barclamps[0].barclamp.clone()
    }

    #[test]
    fn removals_in_newer_version_are_listed() {
        let mut catalog = Catalog::default();
        let role = |name: &str, more: &str| format!("  - name: {name}\n    jig: noop\n{more}");
        let attribs = |names: &[&str]| {
            let one = |name: &&str| format!("      - name: {name}\n        map: {name}\n");
            format!("    attribs:\n{}", names.iter().map(one).collect::<String>())
        };
        let head =
            |version: u32| format!("barclamp:\n  name: b\n  version: \"{version}\"\nroles:\n");
        let old = head(1)
            + &role("app", &(attribs(&["port", "host"]) + "    provides: [web]\n"))
            + &role("old", "")
            + &role("same", "");
        let new =
            head(2) + &role("app", &attribs(&["port"])) + &role("fresh", "") + &role("same", "");
        let (old, new) = (version(&mut catalog, &old), version(&mut catalog, &new));
        let found = compare(&old, &new, &catalog).unwrap();
        assert_eq!(
            found.removed_parts(),
            ["role old", "attribute host of role app", "web, which role app provided"]
        );
        assert_eq!((found.roles_new.len(), found.roles_changed.len()), (1, 1));
        assert_eq!(compare(&old, &old, &catalog).unwrap(), VersionDifference::default());
    }

    #[test]
    fn content_differences_list_values_and_scripts() {
        let mut catalog = Catalog::default();
        let text = |more: &str| {
            format!(
                "barclamp:\n  name: b\n  version: \"1\"\nroles:\n  - name: app\n    jig: noop\n{more}"
            )
        };
        let role = |catalog: &mut Catalog, more: &str| {
            let barclamp = version(catalog, &text(more));
            (**catalog.role(barclamp.roles[&RoleName::parse("app").unwrap()]).unwrap()).clone()
        };
        let script = |name: &str, body: &[u8]| Script {
            name: name.into(),
            hash: Hash::of_bytes(body),
            action: ActionName::run(),
        };
        let mut old = role(&mut catalog, "    provides: [web]\n");
        let mut new = role(&mut catalog, "    provides: [web, front]\n");
        old.scripts = vec![script("10-a.sh", b"a"), script("20-b.sh", b"b")];
        new.scripts =
            vec![script("05-new.sh", b"n"), script("10-a.sh", b"a"), script("20-b.sh", b"other")];
        let changed_paths = |old: &Role, new: &Role| {
            contents(old, new).unwrap().into_iter().map(|change| change.path).collect::<Vec<_>>()
        };
        let paths = changed_paths(&old, &new);
        for path in [
            "/provides",
            "/scripts/05-new.sh",
            "/scripts/10-a.sh/position",
            "/scripts/20-b.sh/content",
        ] {
            assert!(paths.iter().any(|found| found == path), "{path} is missing in {paths:?}");
        }
        assert!(!paths.contains(&"/scripts/10-a.sh/content".to_owned()), "{paths:?}");
        assert!(changed_paths(&old, &old).is_empty());
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let sorted = [
            "",
            "1",
            "1.9",
            "1.9.1",
            "1.10",
            "1.10a",
            "2.0-alpha",
            "2.0-rc9",
            "2.0-rc10",
            "2.0",
            "2.0.1",
            "2.0.rc1",
            "v2.1",
            "2.20000000000000000000000",
            "2.a",
            "2.B",
            "2.E",
            "2.E.1",
            "2024-12-01",
            "2025-01-01",
            "crowbar",
        ];
        for (n, older) in sorted.iter().enumerate() {
            for newer in &sorted[n + 1..] {
                assert_eq!(
                    (order(older, newer), order(newer, older)),
                    (Ordering::Less, Ordering::Greater),
                    "{older} {newer}"
                );
            }
        }
        for (one, other) in [("1.0", "1-0"), ("v1", "1"), ("1.07", "1.7"), ("2.e", "2.E")] {
            assert_eq!(order(one, other), Ordering::Equal, "{one} {other}");
        }
    }

    #[test]
    fn deceptive_version_is_invalid() {
        for good in ["1", "2.E", "v1", "2024-12-01", "1.0+git_4", "0", &"9".repeat(LONGEST)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let alike = [
            "1 ",
            " 1",
            "1\t",
            "\u{ff11}",
            "1\u{200b}",
            "\u{a0}1",
            "\u{661}",
            "1\u{301}",
            "\u{b9}",
            "\u{2460}",
            "1\u{2024}0",
        ];
        for bad in alike.into_iter().chain(["", ".1", "1.", "-1", "1 0", "1/2", "1\n", "\u{430}"]) {
            let error = check(bad).unwrap_err();
            assert!(error.to_string().starts_with("Invalid version \""), "{error}");
        }
        assert!(check(&"9".repeat(LONGEST + 1)).is_err());
        for (one, other, same) in [
            ("1", "01", true),
            ("v1", "1", true),
            ("1.0", "1-0", true),
            ("1", "1.0", false),
            ("1", "10", false),
        ] {
            assert_eq!(is_same(one, other), same, "{one} {other}");
        }
    }

    fn any_version() -> impl Strategy<Value = String> {
        prop_oneof![
            "[v]?[0-9]{1,3}([.+_-]([0-9]{1,2}|[A-Ea-e]|rc[0-9])){0,3}",
            "[ -~]{0,6}",
            "[2][.]([0-9]|[A-E])"
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn version_order_is_transitive(a in any_version(), b in any_version(), c in any_version()) {
            prop_assert_eq!(order(&a, &a), Ordering::Equal);
            prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            if order(&a, &b).is_le() && order(&b, &c).is_le() {
                prop_assert!(order(&a, &c).is_le());
                prop_assert!(order(&a, &c).is_lt() || order(&a, &b).is_eq() && order(&b, &c).is_eq());
            }
            let hash = Hash::of_bytes(b"");
            prop_assert_eq!(by_number((hash, &a), (hash, &b)).is_eq(), a == b);
        }

        #[test]
        fn version_numbers_compare_numerically(head in "[0-9]{1,2}([.][0-9]{1,2}){0,2}", a in any::<u64>(), b in any::<u64>(), word in "[A-Za-z]{1,4}") {
            let with = |n: u64| format!("{head}.{n}");
            prop_assert_eq!(order(&with(a), &with(b)), a.cmp(&b));
            prop_assert_eq!(order(&with(a), &format!("{head}.{word}")), Ordering::Less, "letters come behind numbers");
            prop_assert_eq!(order(&format!("{head}-{word}"), &head), Ordering::Less, "and a word behind a hyphen before");
        }
    }

    #[test]
    fn newest_version_has_highest_number() {
        let mut catalog = Catalog::default();
        let name = BarclampName::parse("b").unwrap();
        assert!(newest(&catalog).is_empty() && before(&catalog, &name, "9").is_none());
        for number in ["2.0", "1.9", "1.10"] {
            let text = format!(
                "barclamp:\n  name: b\n  version: \"{number}\"\nroles:\n  - name: app\n    jig: noop\n"
            );
            version(&mut catalog, &text);
        }
        assert_eq!(newest(&catalog)[&name].1.version, "2.0");
        let number = |of: &str| before(&catalog, &name, of).map(|found| found.version.as_str());
        assert_eq!(
            ["3", "2.0", "1.10", "1.9"].map(number),
            [Some("2.0"), Some("1.10"), Some("1.9"), None]
        );
    }
}
