//! Text for people: edits, changes, times.

use std::collections::{BTreeMap, BTreeSet};

use api::{At, Problem};
use engine::Hash;
use engine::cluster::{NodeDoc, phantom};
use engine::gate::{COOLING_HOURS, Policy};
use engine::ids::{DeploymentId, Fqdn, NodeId};
use engine::plan::Edit;
use engine::plan::clash::Over;
use engine::plan::effects::RoleData;
pub(crate) use engine::text::sentence;
use engine::text::{deceiving, number};
use time::OffsetDateTime;

use crate::blueprints::current::Present;

/// Maximum number of names in a list.
const NAMED: usize = 3;

/// A timestamp for the API.
pub(crate) fn at(moment: OffsetDateTime) -> At {
    // Milliseconds since 1970 fit until the year 292,000,000.
    At(i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

/// A validated filter text; `None` if it is empty.
pub(crate) fn asked(text: &str) -> Result<Option<&str>, Problem> {
    let text = plain(text)?.trim();
    if text.chars().count() > MAX_FILTER_LENGTH {
        return Err(Problem::invalid(format!(
            "The filter text is too long. Use at most {MAX_FILTER_LENGTH} characters."
        )));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Maximum length of a filter text, in characters.
const MAX_FILTER_LENGTH: usize = 300;

/// Names of deployments and nodes, including those that the edits create.
pub(crate) struct Names<'a> {
    present: &'a Present,
    new: BTreeMap<DeploymentId, String>,
    /// Phantom nodes of new deployments.
    phantoms: BTreeMap<NodeId, Fqdn>,
    home: Option<DeploymentId>,
}

impl<'a> Names<'a> {
    pub fn of(present: &'a Present, edits: impl IntoIterator<Item = &'a Edit>) -> Self {
        let (mut new, mut phantoms) = (BTreeMap::new(), BTreeMap::new());
        for edit in edits {
            let Edit::CreateDeployment { id, phantom: node, name, .. } = edit else { continue };
            new.insert(*id, name.to_string());
            phantoms.insert(*node, phantom::fqdn(*id));
        }
        Self { present, new, phantoms, home: None }
    }

    /// For readers of a proposal on this deployment: only edits in other deployments name theirs.
    pub fn at(self, home: DeploymentId) -> Self {
        Self { home: Some(home), ..self }
    }

    /// ` in web`; empty in the reader's deployment.
    fn place(&self, deployment: DeploymentId) -> String {
        if self.home == Some(deployment) {
            String::new()
        } else {
            format!(" in {}", self.deployment(deployment))
        }
    }

    /// Whether an edit sets other data than the role has now.
    pub fn changes_role_data(&self, set: &RoleData) -> bool {
        let deployment = self.present.blueprint.deployments.get(&set.deployment);
        deployment
            .and_then(|known| known.doc.roles.get(&set.role))
            .is_none_or(|role| role.data != set.data)
    }

    /// Whether an edit changes the node's document.
    pub fn changes_node(&self, node: NodeId, is_there: impl Fn(&NodeDoc) -> bool) -> bool {
        !self.present.blueprint.nodes.get(&node).is_some_and(|known| is_there(&known.doc))
    }

    pub fn deployment(&self, id: DeploymentId) -> String {
        self.new.get(&id).cloned().unwrap_or_else(|| self.present.name_of(id))
    }

    /// A barclamp's version with its short hash, because two contents may have the same version.
    pub fn version(&self, hash: Hash) -> String {
        let known = self
            .present
            .catalog
            .barclamp(hash)
            .map(|barclamp| format!("{} ({})", barclamp.version, hash.short()));
        known.unwrap_or_else(|_| hash.short())
    }

    pub fn node(&self, id: NodeId) -> String {
        let new = || {
            self.phantoms
                .get(&id)
                .map(|fqdn| phantom::called(fqdn, |id| Some(self.deployment(id))).into_owned())
        };
        self.present.called(id).or_else(new).unwrap_or_else(|| id.to_string())
    }

    /// Long lists start with the count, so that a reader of the beginning does not take it for one
    /// node.
    fn some_nodes(&self, nodes: &BTreeSet<NodeId>) -> String {
        let called = in_order(nodes.iter().map(|node| self.node(*node)));
        match called.len() {
            0..=NAMED => some_of(&called),
            all => format!("{} ({})", count(all, "node"), some_of(&called)),
        }
    }

    /// The subject of a conflict between two edits.
    pub fn over(&self, over: &Over) -> String {
        match over {
            Over::Deployment { deployment } => {
                format!("deployment {}", self.deployment(*deployment))
            }
            Over::Barclamp { deployment, barclamp } => {
                format!("the version of {barclamp}{}", self.place(*deployment))
            }
            Over::Role { deployment, role } => format!("role {role}{}", self.place(*deployment)),
            Over::RoleValue { deployment, role, path } => {
                format!("{} of {role}{}", whole(path), self.place(*deployment))
            }
            Over::Node { node } => format!("node {}", self.node(*node)),
            Over::Place { node } => format!("the deployment of {}", self.node(*node)),
            Over::Connection { node, field } => {
                format!("{field} of the connection of {}", self.node(*node))
            }
            Over::Hints { node } => format!("the hints of {}", self.node(*node)),
            Over::Noderole { node, noderole } => format!("{noderole} on {}", self.node(*node)),
            Over::NoderoleValue { node, noderole, path } => {
                format!("{} of {noderole} on {}", whole(path), self.node(*node))
            }
            Over::Rerun { node, noderole } => {
                format!("running {noderole} on {} again", self.node(*node))
            }
            Over::Jig { jig } => format!("jig {jig}"),
            Over::Policy => "the policy".into(),
        }
    }

    /// An edit as text.
    pub fn edit(&self, edit: &Edit) -> String {
        match edit {
            Edit::CreateDeployment { name, parent, .. } => {
                format!("create {name} below {}", self.deployment(*parent))
            }
            Edit::RemoveDeployment { deployment } => {
                format!("remove {}", self.deployment(*deployment))
            }
            Edit::UseBarclamp { deployment, barclamp, version } => {
                format!("use {barclamp} {}{}", self.version(*version), self.place(*deployment))
            }
            Edit::InheritBarclamp { deployment, barclamp } => {
                format!("inherit {barclamp}{} from the parent deployment", self.place(*deployment))
            }
            Edit::AddRole { deployment, role } => {
                format!("add role {role}{}", self.place(*deployment))
            }
            Edit::RemoveRole { deployment, role } => {
                format!("remove role {role}{}", self.place(*deployment))
            }
            Edit::SetRoleData { deployment, role, .. } => {
                format!("set data of {role}{}", self.place(*deployment))
            }
            Edit::Bind { deployment, node, role } => {
                format!("bind {} to {role}{}", self.node(*node), self.place(*deployment))
            }
            Edit::BindNodes { deployment, nodes, role } => {
                format!("bind {} to {role}{}", self.some_nodes(nodes), self.place(*deployment))
            }
            Edit::UnbindNodes { nodes, noderole } => {
                format!("unbind {noderole} from {}", self.some_nodes(nodes))
            }
            Edit::Unbind { node, noderole, with_dependents } => {
                let suffix = if *with_dependents { " and everything that requires it" } else { "" };
                format!("unbind {noderole} from {}{suffix}", self.node(*node))
            }
            Edit::SetNoderoleData { node, noderole, .. } => {
                format!("set data of {noderole} on {}", self.node(*node))
            }
            Edit::MoveNode { node, deployment } => {
                format!("move {} to {}", self.node(*node), self.deployment(*deployment))
            }
            Edit::SetConnection { node, connection } => {
                let fields: Vec<String> =
                    connection.fields().into_iter().map(|(field, _)| field).collect();
                format!("change the connection of {}: {}", self.node(*node), fields.join(", "))
            }
            Edit::SetHints { node, .. } => format!("set the hints of {}", self.node(*node)),
            Edit::ExpungeNode { node, .. } => format!("expunge {}", self.node(*node)),
            Edit::Rerun { node, noderole, .. } => {
                format!("run {noderole} on {} again", self.node(*node))
            }
            Edit::RerunSlice { deployment, roles, .. } => {
                let roles: Vec<String> = roles.iter().map(ToString::to_string).collect();
                format!(
                    "run {} in {} again, with its dependents there",
                    some_of(&roles),
                    self.deployment(*deployment)
                )
            }
            Edit::ActivateJig { jig, active } => {
                format!(
                    "switch jig {jig} {} for every deployment",
                    if *active { "on" } else { "off" }
                )
            }
            Edit::SetPolicy { policy } => {
                let by_risk =
                    policy.by_risk.iter().map(|(risk, n)| format!(", {n} for {}", risk.change()));
                let by_risk: String = by_risk.collect();
                let cooling = match policy.cooling_hours {
                    COOLING_HOURS => String::new(),
                    hours => {
                        format!(", with a cooling period of {}", count(hours as usize, "hour"))
                    }
                };
                let demands: String =
                    self.demands(policy).iter().map(|demand| format!(", {demand}")).collect();
                format!(
                    "require {} for changes in every deployment{by_risk}{cooling}{demands}",
                    count(policy.approvals as usize, "approval")
                )
            }
        }
    }

    /// A policy as text.
    pub fn policy(&self, policy: &Policy) -> String {
        let mut requirements_text =
            vec![format!("{} for every change", count(policy.approvals as usize, "approval"))];
        requirements_text
            .extend(policy.by_risk.iter().map(|(risk, n)| format!("{n} for {}", risk.change())));
        if policy.cooling_hours != COOLING_HOURS {
            requirements_text.push(format!(
                "a cooling period of {}",
                count(policy.cooling_hours as usize, "hour")
            ));
        }
        requirements_text.extend(self.demands(policy));
        format!(
            "Sets the policy for all later changes in every deployment: {}.",
            requirements_text.join(", ")
        )
    }

    /// The policy's requirements for signatures and sign-in.
    fn demands(&self, policy: &Policy) -> Vec<String> {
        let signed: Vec<String> =
            policy.signed.iter().map(|rule| rule.text(|id| self.deployment(id))).collect();
        let signed = (!signed.is_empty())
            .then(|| format!("approvals signed with a passkey for {}", signed.join(", ")));
        let factor =
            policy.second_factor.then(|| "a second factor at sign-in for everyone".to_owned());
        signed.into_iter().chain(factor).collect()
    }
}

fn whole(path: &str) -> &str {
    if path.is_empty() { "all data" } else { path }
}

/// Trims a text and refuses misleading characters: control characters, direction marks and
/// invisible characters. Line breaks and tabs are permitted. The database cannot store some of
/// these.
pub(crate) fn plain(text: &str) -> Result<&str, Problem> {
    match deceiving(text) {
        None => Ok(text.trim()),
        Some(c) => Err(Problem::invalid(format!(
            "The text has the character {}, which is invisible or misleading. Remove it.",
            number(c)
        ))),
    }
}

/// Refuses an edit that is malformed in itself. [`engine::data::check_user_data`] checks its data
/// in context and names the field.
pub(crate) fn check_edit(edit: &Edit) -> Result<(), Problem> {
    edit.check().map_err(|error| {
        Problem::new(
            422,
            "edit_refused",
            "The edit cannot take effect",
            sentence(&capitalize(&error.to_string())),
        )
    })
}

/// A quoted excerpt of the client's input.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("\"{}\"", engine::text::shown(&short))
}

/// The text with its first letter in upper case.
pub(crate) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}", chars.as_str())
}

/// `one node`, `3 nodes`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    match n {
        1 => format!("one {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// `90 s`, `5 min`, `1 h`: the largest unit with a whole number.
pub(crate) fn lasting(seconds: impl Into<i64>) -> String {
    match seconds.into() {
        whole if whole > 0 && whole % 3600 == 0 => format!("{} h", whole / 3600),
        whole if whole > 0 && whole % 60 == 0 => format!("{} min", whole / 60),
        seconds => format!("{seconds} s"),
    }
}

/// `One noderole waits`, `3 noderoles wait`.
pub(crate) fn wait(n: usize) -> String {
    if n == 1 { "One noderole waits".into() } else { format!("{n} noderoles wait") }
}

/// Names in natural order: `n2` before `n10`.
pub(crate) fn in_order(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_by_cached_key(|name| (pieces(name), name.clone()));
    names
}

/// The sort key: each text with the number after it, as the count of digits without leading zeros,
/// and these digits.
fn pieces(name: &str) -> Vec<(String, usize, String)> {
    let (mut pieces, mut rest) = (Vec::new(), name);
    while !rest.is_empty() {
        let (text, behind) =
            rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let (digits, behind) =
            behind.split_at(behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len()));
        let number = digits.trim_start_matches('0');
        pieces.push((text.to_owned(), number.len(), number.to_owned()));
        rest = behind;
    }
    pieces
}

/// `a`, `a and b`, `a, b and 3 more`.
pub(crate) fn some_of(names: &[String]) -> String {
    first_of(names, names.len())
}

/// Like [`some_of`], if only the first names of a longer list are known.
pub(crate) fn first_of(names: &[String], count: usize) -> String {
    match names {
        [] => String::new(),
        [a] => a.clone(),
        [a, b] => format!("{a} and {b}"),
        [a, b, c] if count <= 3 => format!("{a}, {b} and {c}"),
        [a, b, ..] => format!("{a}, {b} and {} more", count.saturating_sub(2)),
    }
}

#[cfg(test)]
mod tests {
    use icu_properties::props::{BidiControl, DefaultIgnorableCodePoint};
    use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};

    use crate::text::*;

    #[test]
    fn misleading_texts_are_rejected() {
        for text in ["a\0b", "\u{202e}gnp.exe", "a\u{200b}b", "\u{1b}[31m"] {
            assert!(plain(text).is_err(), "{text:?}");
        }
        // Visible marks, and letters and signs of all scripts, are permitted.
        for text in ["e\u{301}", "नमस्ते", "العربية", "😀", "한국", "a\u{a0}b", "→ ✓ –"]
        {
            assert!(plain(text).is_ok(), "{text:?}");
        }
        assert_eq!(plain(" zwei\nZeilen, é 漢 ").ok(), Some("zwei\nZeilen, é 漢"));
    }

    /// Compares the engine's table with Unicode's properties for every character.
    #[test]
    fn misleading_characters_match_unicode_properties() {
        const UNSEEN: CodePointSetDataBorrowed<'static> =
            CodePointSetData::new::<DefaultIgnorableCodePoint>();
        const TURNS: CodePointSetDataBorrowed<'static> = CodePointSetData::new::<BidiControl>();
        // Most programs do not treat these two line separators as line breaks, and the blank
        // Braille pattern looks like a space.
        let beside =
            |c| matches!(c, '\u{2028}' | '\u{2029}' | '\u{2800}' | '\u{fff9}'..='\u{fffb}');
        for c in ('\0'..=char::MAX).filter(|c| !matches!(c, '\n' | '\r' | '\t')) {
            let wanted = c.is_control() || UNSEEN.contains(c) || TURNS.contains(c) || beside(c);
            assert_eq!(engine::text::is_deceptive(c), wanted, "{}", number(c));
        }
    }

    #[test]
    fn counts_and_lists_are_formatted() {
        assert_eq!(count(1, "node"), "one node");
        assert_eq!(count(0, "node"), "0 nodes");
        let names = |n: usize| (1..=n).map(|i| format!("n{i}")).collect::<Vec<_>>();
        assert_eq!(some_of(&names(2)), "n1 and n2");
        assert_eq!(some_of(&names(3)), "n1, n2 and n3");
        assert_eq!(some_of(&names(5)), "n1, n2 and 3 more");
    }

    #[test]
    fn durations_use_the_largest_whole_unit() {
        let said = [
            (0, "0 s"),
            (45, "45 s"),
            (60, "1 min"),
            (90, "90 s"),
            (300, "5 min"),
            (3600, "1 h"),
            (5400, "90 min"),
        ];
        for (seconds, said) in said {
            assert_eq!(lasting(seconds), said);
        }
    }

    #[test]
    fn names_sort_in_natural_order() {
        let ordered = |names: &[&str]| in_order(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(ordered(&["n10", "n2", "m3", "n1", "n02"]), ["m3", "n1", "n02", "n2", "n10"]);
        assert_eq!(
            ordered(&["r2-n1", "r1-n12", "r1-n3", "r1", ""]),
            ["", "r1", "r1-n3", "r1-n12", "r2-n1"]
        );
        // Longer than any integer type.
        let (nines, more) = ("n99999999999999999999999", "n100000000000000000000000");
        assert_eq!(ordered(&[more, nines]), [nines, more]);
    }
}
