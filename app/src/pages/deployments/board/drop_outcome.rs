//! The impact of dropping nodes on a role, in words. Pure: the preview contains the
//! decision.

use engine::counting::many;
use engine::ids::{NodeId, RoleName};
use engine::plan::drop_preview::{AddedRole, DropPreview, RoleDropPreview};

/// The maximum number of listed names. The rest is a count.
const MAX_NAMED: usize = 6;

/// The impact of a drop on a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DropOutcome {
    /// All nodes can be bound.
    Allowed {
        /// The roles that the drop also adds, and when they run.
        promise: String,
        /// The same, each with its reason.
        reasons: String,
    },
    /// Some nodes can be bound.
    Partial {
        /// How many of how many, and the reasons against the rest.
        message: String,
        /// The roles that the drop also adds for the valid nodes.
        promise: String,
        /// The same, each with its reason.
        reasons: String,
    },
    /// No node can be bound.
    Forbidden { reason: String },
    /// The role is not a target for drops.
    None,
}

impl DropOutcome {
    /// The impact for a role, from the preview.
    pub(super) fn of(options: &DropPreview, role: &RoleName) -> Self {
        let Some(found) = options.roles.iter().find(|found| found.role == *role) else {
            return Self::None;
        };
        match (found.legal.len(), found.illegal.len() + found.unknown.len()) {
            (0, 0) => Self::None,
            (0, _) => Self::Forbidden { reason: refusal_reason(found) },
            (_, 0) => Self::Allowed { promise: promise(found), reasons: reasons(found) },
            (legal, others) => Self::Partial {
                message: format!(
                    "{legal} of {} can be bound. Cannot bind {}",
                    legal + others,
                    refusal_reason(found)
                ),
                promise: promise(found),
                reasons: reasons(found),
            },
        }
    }

    /// The word in CSS.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Allowed { .. } => "legal",
            Self::Partial { .. } => "mixed",
            Self::Forbidden { .. } => "illegal",
            Self::None => "none",
        }
    }

    /// The text in the row. More detailed if the row is under the pointer.
    pub(super) fn text(&self, is_hovered: bool) -> String {
        match (self, is_hovered) {
            (Self::Allowed { .. }, false) => "allowed".into(),
            (Self::Allowed { promise, .. }, true) => promise.clone(),
            (Self::Partial { message, .. }, false) => {
                message.split(". ").next().unwrap_or(message).to_owned()
            }
            (Self::Partial { message, promise, .. }, true) => format!("{message}. {promise}"),
            (Self::Forbidden { reason }, _) => reason.clone(),
            (Self::None, _) => String::new(),
        }
    }

    /// The announcement when the keyboard reaches the row.
    pub(super) fn announcement(&self, role: &RoleName) -> String {
        match self {
            Self::Allowed { promise, .. } => {
                format!("Role {role}: allowed. {promise}. Press Enter to drop.")
            }
            Self::Partial { message: text, promise, .. } => {
                format!("Role {role}: {text}. {promise}. Press Enter to confirm.")
            }
            Self::Forbidden { reason } => format!("Role {role}: not possible. {reason}."),
            Self::None => format!("Role {role}: nodes cannot be dropped here."),
        }
    }

    /// The reasons for the roles that the drop also adds, as a tooltip.
    pub(super) fn reasons(&self) -> Option<String> {
        match self {
            Self::Allowed { reasons, .. } | Self::Partial { reasons, .. } => {
                Some(reasons.clone()).filter(|r| !r.is_empty())
            }
            Self::Forbidden { .. } | Self::None => None,
        }
    }

    /// Whether the drop binds at least one node.
    pub(super) fn takes(&self) -> bool {
        matches!(self, Self::Allowed { .. } | Self::Partial { .. })
    }
}

/// The additions: `+ 6 noderoles: brings dns-client, runtime; web-1 moves from system to web; place
/// 3 of 4 in its order`.
fn promise(role: &RoleDropPreview) -> String {
    let mut text = format!("+ {}", many(role.added, "noderole"));
    if !role.also_added.is_empty() {
        let mut roles: Vec<&str> =
            role.also_added.iter().map(|required_by| required_by.role.as_str()).collect();
        roles.dedup();
        text.push_str(&format!(". Also adds {}", named(&roles)));
    }
    text.extend(first_sentence(&role.moves).map(|moves| format!(". {moves}")));
    text.extend(role.wave.map(|(place, places)| format!(". Wave {place} of {places}")));
    text
}

/// The additions, each with its reason.
fn reasons(role: &RoleDropPreview) -> String {
    let line = |required_by: &AddedRole| {
        let nodes: Vec<&str> = required_by.nodes.iter().map(String::as_str).collect();
        format!(
            "{} on {}: {}",
            required_by.role,
            abbreviated(&nodes, required_by.count),
            required_by.reason
        )
    };
    role.also_added
        .iter()
        .map(line)
        .chain(role.moves.iter().cloned())
        .collect::<Vec<_>>()
        .join("\n")
}

fn first_sentence(sentences: &[String]) -> Option<String> {
    match sentences {
        [] => None,
        [one] => Some(one.clone()),
        [first, rest @ ..] => Some(format!("{first} (and {} more)", rest.len())),
    }
}

/// Why nodes cannot be bound: a shared reason once, or each node with its own reason. Also the
/// number of nodes without a computed reason.
fn refusal_reason(role: &RoleDropPreview) -> String {
    let text = [refused(role), truncation_note(role).unwrap_or_default()];
    text.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

fn refused(role: &RoleDropPreview) -> String {
    let Some(first) = role.illegal.first() else { return String::new() };
    let shared = role.illegal.iter().all(|node| node.reason == first.reason);
    if shared {
        let names: Vec<&str> = role.illegal.iter().map(|node| node.short.as_str()).collect();
        return format!("{}: {}", named(&names), first.reason);
    }
    let mut text: Vec<String> = role
        .illegal
        .iter()
        .take(2)
        .map(|node| format!("{}: {}", node.short, node.reason))
        .collect();
    if role.illegal.len() > 2 {
        text.push(format!("{} more", role.illegal.len() - 2));
    }
    text.join("; ")
}

/// A note that there were too many nodes to compute all reasons.
pub(super) fn truncation_note(role: &RoleDropPreview) -> Option<String> {
    let n = role.unknown.len();
    (n > 0).then(|| format!("{}: not checked, too many nodes at once", many(n, "node")))
}

/// Names, abbreviated to the first few.
pub(super) fn named(names: &[&str]) -> String {
    abbreviated(names, names.len())
}

/// Names, if only the first of `count` are known.
fn abbreviated(names: &[&str], count: usize) -> String {
    let mut text = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = count.saturating_sub(names.len().min(MAX_NAMED));
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The nodes that can be bound to a role.
pub(super) fn legal(options: &DropPreview, role: &RoleName) -> Vec<NodeId> {
    options
        .roles
        .iter()
        .find(|found| found.role == *role)
        .map(|found| found.legal.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::plan::drop_preview::IllegalNode;

    fn role(legal: usize, illegal: &[(&str, &str)]) -> RoleDropPreview {
        let node = NodeId(Default::default());
        RoleDropPreview {
            role: RoleName::parse("app").unwrap(),
            legal: vec![node; legal],
            illegal: illegal
                .iter()
                .map(|(short, reason)| IllegalNode {
                    node,
                    short: (*short).into(),
                    reason: (*reason).into(),
                })
                .collect(),
            unknown: Vec::new(),
            also_added: ["dns-client", "runtime"]
                .map(|name| AddedRole {
                    role: RoleName::parse(name).unwrap(),
                    nodes: vec!["web-1".into(), "web-2".into()],
                    count: 2,
                    reason: "required by app".into(),
                })
                .into(),
            moves: vec![
                "Node web-1 moves from system to web".into(),
                "Node web-2 moves from system to web".into(),
            ],
            added: 12,
            wave: Some((3, 4)),
        }
    }

    fn outcome(role: RoleDropPreview) -> DropOutcome {
        let name = role.role.clone();
        DropOutcome::of(&DropPreview { roles: vec![role] }, &name)
    }

    #[test]
    fn additions_are_listed_before_drop() {
        let legal = outcome(role(2, &[]));
        assert_eq!(legal.text(false), "allowed");
        assert_eq!(
            legal.text(true),
            "+ 12 noderoles. Also adds dns-client, runtime. Node web-1 moves from system to web \
             (and 1 more). Wave 3 of 4"
        );
        let reasons = legal.reasons().unwrap();
        assert!(reasons.starts_with("dns-client on web-1, web-2: required by app\n"), "{reasons}");
    }

    #[test]
    fn partly_valid_drop_names_invalid_nodes() {
        let mixed =
            outcome(role(7, &[("db-1", "is dead"), ("db-2", "is dead"), ("db-3", "is dead")]));
        assert!(mixed.takes());
        assert_eq!(mixed.text(false), "7 of 10 can be bound");
        assert!(
            mixed.text(true).contains("Cannot bind db-1, db-2, db-3: is dead"),
            "{}",
            mixed.text(true)
        );
    }

    #[test]
    fn refused_drop_has_reason() {
        let one = outcome(role(0, &[("db-1", "belongs to storage, a sibling: move it first")]));
        assert!(!one.takes());
        assert_eq!(one.text(false), "db-1: belongs to storage, a sibling: move it first");
        let several = outcome(role(0, &[("a", "x"), ("b", "y"), ("c", "z")]));
        assert_eq!(several.text(true), "a: x; b: y; 1 more");
    }

    #[test]
    fn uncomputed_nodes_are_reported_but_not_refused() {
        let unknown = |n: usize| vec![NodeId(Default::default()); n];
        let some = outcome(RoleDropPreview { unknown: unknown(3), ..role(7, &[]) });
        assert!(some.takes());
        assert_eq!(some.text(false), "7 of 10 can be bound");
        assert!(
            some.text(true).contains("Cannot bind 3 nodes: not checked, too many nodes at once"),
            "{}",
            some.text(true)
        );
        let none =
            outcome(RoleDropPreview { unknown: unknown(1), ..role(0, &[("db-1", "is dead")]) });
        assert_eq!(none.text(false), "db-1: is dead; 1 node: not checked, too many nodes at once");
        let many = AddedRole {
            role: RoleName::parse("runtime").unwrap(),
            nodes: (1..=8).map(|n| format!("web-{n}")).collect(),
            count: 200,
            reason: "required by app".into(),
        };
        let reasons =
            outcome(RoleDropPreview { also_added: vec![many], moves: vec![], ..role(2, &[]) })
                .reasons()
                .unwrap();
        assert_eq!(
            reasons,
            "runtime on web-1, web-2, web-3, web-4, web-5, web-6 and 194 more: required by app"
        );
    }

    #[test]
    fn unknown_role_is_not_a_drop_target() {
        let other = RoleName::parse("other").unwrap();
        assert_eq!(
            DropOutcome::of(&DropPreview { roles: vec![role(1, &[])] }, &other),
            DropOutcome::None
        );
    }
}
