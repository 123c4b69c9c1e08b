//! The differences between two versions of a barclamp, for the review of a pin.
//!
//! A pin is a single line in a blueprint, but it determines everything that runs. A reviewer must
//! see the differences to the previous version: role definitions value by value, and scripts line
//! by line. If a deployment gets its first own pin, the pin is shown as a change of the inherited
//! version.
//!
//! Contents are immutable under their hash, so the result never changes. The amount of text per
//! page is bounded, and cuts are marked.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::blueprints::pairs;
use api::catalog::{
    ContentChange, FileChange, FileLine, FileText, LineMark, MAX_FILE_LINES, PinChange, PinnedRole,
    PinnedVersion,
};
use engine::Hash;
use engine::blueprint::Difference;
use engine::blueprint::difference::{BarclampDifference, DeploymentDifference, Mark, Sides};
use engine::catalog::version::contents;
use engine::catalog::{Barclamp, Catalog, Role};
use engine::cluster::Blueprint;
use engine::cluster::document::DeploymentDoc;
use engine::ids::{BarclampName, DeploymentId, RoleName};
use engine::text;
use similar::{ChangeTag, TextDiff};
use store::catalog::ScriptHead;

use crate::Control;
use crate::compute::ComputeLimit;
use crate::people::{Actor, Permission};
use crate::problems::from_store;

/// Maximum number of files whose text is compared.
const MAX_FILES: usize = 64;
/// Bytes read per file.
const BYTES_PER_FILE: i32 = 64 * 1024;
/// Displayed characters per line.
const MAX_LINE_LENGTH: usize = 4_000;
/// Suffix for a last line without a line end.
const NO_LINE_END: &str = " [no line end]";
/// Unchanged lines of context around changes.
const CONTEXT_LINES: usize = 3;

/// One side of a change: the documents that it touches, and the blueprint with all others.
#[derive(Clone, Copy)]
pub(crate) struct Side<'b> {
    pub touched: &'b Blueprint,
    pub others: &'b Blueprint,
}

impl<'b> Side<'b> {
    /// A side that is a complete blueprint.
    pub fn whole(blueprint: &'b Blueprint) -> Self {
        Self { touched: blueprint, others: blueprint }
    }

    fn deployment(self, id: DeploymentId) -> Option<&'b DeploymentDoc> {
        let found = self.touched.deployments.get(&id).or_else(|| self.others.deployments.get(&id));
        found.map(|stored| &*stored.doc)
    }

    /// The effective version of a deployment, its own or inherited, and the deployment that pins
    /// it.
    fn seen(self, id: DeploymentId, barclamp: &BarclampName) -> Option<(Hash, &'b DeploymentDoc)> {
        let mut next = self.deployment(id);
        // Stop at a cycle of parents: the depth cannot exceed the number of deployments.
        for _ in 0..=self.touched.deployments.len() + self.others.deployments.len() {
            let current = next?;
            if let Some(version) = current.barclamps.get(barclamp) {
                return Some((*version, current));
            }
            next = current.parent.and_then(|parent| self.deployment(parent));
        }
        None
    }
}

/// The pins of a difference, each with the effective versions before and after.
pub(crate) fn pins(
    difference: &Difference,
    old: Side<'_>,
    new: Side<'_>,
    catalog: &Catalog,
) -> Vec<PinChange> {
    let of = |deployment: &DeploymentDifference, pin: &BarclampDifference| {
        // A new deployment did not exist before, so compare with the version that its parent had.
        let before = old.seen(deployment.id, &pin.barclamp).or_else(|| match deployment.mark {
            Mark::Added => new
                .deployment(deployment.id)?
                .parent
                .and_then(|above| old.seen(above, &pin.barclamp)),
            Mark::Changed | Mark::Removed => None,
        });
        let after =
            new.seen(deployment.id, &pin.barclamp).filter(|_| deployment.mark != Mark::Removed);
        let both = before.zip(after);
        let roles = both
            .map(|((was, _), (is, _))| other_roles(deployment, was, is, catalog))
            .unwrap_or_default();
        let version = |(hash, pinned_by): (Hash, &DeploymentDoc)| PinnedVersion {
            version: catalog
                .barclamp(hash)
                .map_or_else(|_| hash.short(), |barclamp| barclamp.version.clone()),
            hash: hash.short(),
            from: (pinned_by.id != deployment.id).then(|| pinned_by.name.clone()),
        };
        PinChange {
            deployment: deployment.id,
            barclamp: pin.barclamp.clone(),
            old: before.map(version),
            new: after.map(version),
            roles,
        }
    };
    let all =
        difference.deployments.iter().flat_map(|d| d.barclamps.iter().map(move |pin| (d, pin)));
    all.map(|(deployment, pin)| of(deployment, pin)).collect()
}

/// Roles that differ between two versions and that the deployment does not have, so the difference
/// does not contain them.
fn other_roles(
    deployment: &DeploymentDifference,
    was: Hash,
    is: Hash,
    catalog: &Catalog,
) -> Vec<PinnedRole> {
    let (Ok(was), Ok(is)) = (catalog.barclamp(was), catalog.barclamp(is)) else {
        return Vec::new();
    };
    let listed: BTreeSet<&RoleName> = deployment.roles.iter().map(|role| &role.role).collect();
    let names: BTreeSet<&RoleName> = was.roles.keys().chain(is.roles.keys()).collect();
    let sides = |name: &RoleName| {
        let of = |barclamp: &Barclamp| barclamp.roles.get(name).copied();
        Sides { old: of(was), new: of(is) }
    };
    let other =
        names.into_iter().filter(|name| !listed.contains(name)).map(|name| (name, sides(name)));
    let differing = other.filter(|(_, sides)| sides.old != sides.new);
    differing.map(|(name, contents)| PinnedRole { role: name.clone(), contents }).collect()
}

/// The differences between the replaced and the new contents of roles, noderoles and pins:
/// definitions and script text. A content that is missing in the catalog is skipped.
pub(crate) async fn changes(
    control: &Control,
    compute: &ComputeLimit,
    difference: &Difference,
    pins: &[PinChange],
    catalog: &Catalog,
) -> Result<Vec<ContentChange>, Problem> {
    let pairs = pairs(difference, pins);
    let known = pairs.into_iter().filter_map(|(old, new)| {
        let (was, is) = (catalog.role(old).ok()?, catalog.role(new).ok()?);
        let content =
            ContentChange { old, new, changes: contents(was, is).ok()?, files: Vec::new() };
        Some((content, files(was, is)))
    });
    let known: Vec<_> = known.collect();
    let compared = known.iter().flat_map(|(_, files)| files).take(MAX_FILES);
    let hashes: BTreeSet<Hash> = compared.flat_map(|file| [file.old, file.new]).flatten().collect();
    let hashes: Vec<Hash> = hashes.into_iter().collect();
    let heads = match hashes.is_empty() {
        true => BTreeMap::new(),
        false => {
            let mut connection = control.connection().await?;
            store::catalog::script_heads(&mut connection, &hashes, BYTES_PER_FILE)
                .await
                .map_err(from_store)?
        }
    };
    compute.work(move || with_text(known, &heads)).await
}

/// The contents with the text of their scripts. Beyond the limit, scripts are only named.
fn with_text(
    known: Vec<(ContentChange, Vec<File>)>,
    heads: &BTreeMap<Hash, ScriptHead>,
) -> Vec<ContentChange> {
    let mut seen = 0;
    let contents = known.into_iter().map(|(content, files)| {
        let files = files.into_iter().map(|file| {
            seen += 1;
            let text = match seen > MAX_FILES {
                true => FileText::NotCompared,
                false => difference_of(file.head(file.old, heads), file.head(file.new, heads)),
            };
            FileChange {
                name: file.name,
                mark: mark(file.old, file.new),
                old: file.old,
                new: file.new,
                text,
            }
        });
        ContentChange { files: files.collect(), ..content }
    });
    contents.collect()
}

impl Control {
    /// A complete script, exactly as it is stored and run.
    ///
    /// # Errors
    /// If there is no script with this hash.
    pub async fn script(&self, actor: &Actor, hash: Hash) -> Result<Vec<u8>, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let mut found = store::catalog::script_heads(&mut connection, &[hash], i32::MAX)
            .await
            .map_err(from_store)?;
        let missing = || {
            Problem::not_found("No script has this hash. See the scripts of the barclamp version.")
        };
        found.remove(&hash).map(|script| script.body).ok_or_else(missing)
    }
}

/// A script that differs between two contents.
struct File {
    name: String,
    old: Option<Hash>,
    new: Option<Hash>,
}

impl File {
    fn head<'h>(
        &self,
        side: Option<Hash>,
        heads: &'h BTreeMap<Hash, ScriptHead>,
    ) -> Option<&'h ScriptHead> {
        side.and_then(|hash| heads.get(&hash))
    }
}

fn mark(old: Option<Hash>, new: Option<Hash>) -> Mark {
    match (old, new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Changed,
    }
}

fn files(was: &Role, is: &Role) -> Vec<File> {
    // A role may run the same file twice; the text is the same.
    let of = |role: &Role| -> BTreeMap<String, Hash> {
        role.scripts.iter().map(|script| (script.name.clone(), script.hash)).collect()
    };
    let (was, is) = (of(was), of(is));
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let file = |name: &String| File {
        name: name.clone(),
        old: was.get(name).copied(),
        new: is.get(name).copied(),
    };
    names.into_iter().map(file).filter(|file| file.old != file.new).collect()
}

/// The difference between two versions of a file.
fn difference_of(old: Option<&ScriptHead>, new: Option<&ScriptHead>) -> FileText {
    let sides = [old, new].map(|side| side.map_or(Some((Vec::new(), false)), lines));
    let [Some((was, was_cut)), Some((is, is_cut))] = sides else {
        return FileText::Binary {
            old: old.map(|head| head.bytes),
            new: new.map(|head| head.bytes),
        };
    };
    let (was, is): (Vec<&str>, Vec<&str>) =
        (was.iter().map(String::as_str).collect(), is.iter().map(String::as_str).collect());
    let difference = TextDiff::from_slices(&was, &is);
    let mut file_lines = Vec::new();
    for (n, group) in difference.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if n > 0 {
            file_lines.push(FileLine { mark: LineMark::Gap, number: None, text: String::new() });
        }
        let changes = group.iter().flat_map(|op| difference.iter_changes(op));
        file_lines.extend(changes.map(|change| {
            let (mark, at) = match change.tag() {
                ChangeTag::Equal => (LineMark::Unchanged, change.new_index()),
                ChangeTag::Insert => (LineMark::Added, change.new_index()),
                ChangeTag::Delete => (LineMark::Removed, change.old_index()),
            };
            let number = at.and_then(|at| u32::try_from(at + 1).ok());
            FileLine { mark, number, text: printable_line(change.value()) }
        }));
    }
    // A cut line hides its effect just as a cut file does.
    let long = |line: &&str| line.chars().nth(MAX_LINE_LENGTH).is_some();
    let cut = was_cut || is_cut || was.iter().any(long) || is.iter().any(long);
    FileText::Lines { lines: file_lines, cut }
}

/// The first lines of a file, and whether there are more. `None` if it is not text.
fn lines(head: &ScriptHead) -> Option<(Vec<String>, bool)> {
    let whole = head.body.len() as u64 == head.bytes;
    let text = match std::str::from_utf8(&head.body) {
        Ok(text) => text,
        // The read part may end within a character.
        Err(error) if error.error_len().is_none() && !whole => {
            std::str::from_utf8(head.body.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    if text.contains('\0') {
        return None;
    }
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    // A partial read ends within a line, so drop that line. A complete file without a final line
    // end gets a mark.
    if !whole || text.ends_with('\n') || text.is_empty() {
        lines.pop();
    } else if let Some(last) = lines.last_mut() {
        last.push_str(NO_LINE_END);
    }
    let cut = !whole || lines.len() > MAX_FILE_LINES;
    lines.truncate(MAX_FILE_LINES);
    Some((lines, cut))
}

/// A line for display: invisible characters and direction marks are spelled out.
fn printable_line(line: &str) -> String {
    let line_start: String = line.chars().take(MAX_LINE_LENGTH).collect();
    let mut shown = text::shown(&line_start).replace('\r', "<U+000D>");
    let more = line.chars().count().saturating_sub(MAX_LINE_LENGTH);
    if more > 0 {
        shown.push_str(&format!(" [{more} more characters are not shown]"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use crate::catalog::version_difference::*;

    fn head(text: &str) -> ScriptHead {
        ScriptHead { body: text.as_bytes().to_vec(), bytes: text.len() as u64 }
    }

    fn with_text(old: Option<&str>, new: Option<&str>) -> String {
        let (old, new) = (old.map(head), new.map(head));
        let FileText::Lines { lines, cut } = difference_of(old.as_ref(), new.as_ref()) else {
            return "no text".into();
        };
        let line = |line: &FileLine| {
            let sign = match line.mark {
                LineMark::Unchanged => ' ',
                LineMark::Added => '+',
                LineMark::Removed => '-',
                LineMark::Gap => '@',
            };
            format!(
                "{sign}{}{}\n",
                line.number.map(|n| n.to_string()).unwrap_or_default(),
                line.text
            )
        };
        lines.iter().map(line).collect::<String>() + if cut { "cut" } else { "" }
    }

    #[test]
    fn files_are_compared_line_by_line() {
        assert_eq!(with_text(Some("a\nb\nc\n"), Some("a\nx\nc\n")), " 1a\n-2b\n+2x\n 3c\n");
        assert_eq!(with_text(None, Some("a\n")), "+1a\n");
        assert_eq!(
            with_text(Some("a\n"), Some("a")),
            "-1a\n+1a [no line end]\n",
            "a missing newline at the end is a difference"
        );
        let long: String = (1..=20).map(|n| format!("l{n}\n")).collect();
        let other = long.replace("l2\n", "x\n").replace("l19\n", "y\n");
        assert!(
            with_text(Some(&long), Some(&other)).contains("\n@\n"),
            "unchanged lines are omitted"
        );
    }

    #[test]
    fn hidden_characters_and_binary_files_are_marked() {
        assert_eq!(with_text(None, Some("rm \u{202e}x\r\n")), "+1rm <U+202E>x<U+000D>\n");
        assert_eq!(with_text(Some("a\0b"), Some("a")), "no text");
        let long = "y".repeat(MAX_LINE_LENGTH + 7) + "\n";
        assert!(with_text(None, Some(&long)).ends_with("y [7 more characters are not shown]\ncut"));
    }

    #[test]
    fn long_files_are_compared_up_to_the_limit() {
        let long: String = (0..MAX_FILE_LINES + 5).map(|n| format!("{n}\n")).collect();
        let found = with_text(None, Some(&long));
        assert!(
            found.ends_with("cut")
                && found.contains(&format!("+{MAX_FILE_LINES}{}\n", MAX_FILE_LINES - 1)),
            "{found}"
        );
        // The read part ends within a character.
        let part = ScriptHead { body: "a\nb\nä".as_bytes()[..5].to_vec(), bytes: 99 };
        assert_eq!(lines(&part), Some((vec!["a".into(), "b".into()], true)));
    }
}
