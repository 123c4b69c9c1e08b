//! Reasons for which an edit cannot take effect. Each message says how to fix it.

use crate::canonical::Hash;
use crate::catalog::CatalogError;
use crate::cluster::{ConnectionError, NoderoleKey};
use crate::data::DataError;
use crate::gate::PolicyError;
use crate::ids::{BarclampName, DeploymentId, Fqdn, JigName, NodeId, RoleName};

use super::bind::MAX_DEPTH;
use super::edit::{MAX_LEVELS, MAX_LISTED, MAX_REASON};

/// Why an edit cannot take effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error(
        "deployment {0} is not there: it was removed, or the proposal is older than that; discard the edit"
    )]
    UnknownDeployment(DeploymentId),
    #[error(
        "node {0} is not there: it was removed, or the proposal is older than that; discard the edit"
    )]
    UnknownNode(NodeId),
    #[error(
        "{node} has no noderole {noderole}: it is not bound there, or not any more; bind the role first, or leave this out"
    )]
    UnknownNoderole { node: Fqdn, noderole: NoderoleKey },
    /// No barclamp that the deployment sees has the role.
    #[error("no barclamp that {deployment} uses has a role {role:?}{}", suggestion(.nearest))]
    UnknownRole {
        deployment: String,
        role: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// No visible role has or provides the required name.
    #[error("{role} requires {requires}, and no barclamp that {deployment} uses has that{}", suggestion(.nearest))]
    UnresolvedRequire {
        deployment: String,
        role: RoleName,
        requires: RoleName,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The required role is abstract, and no visible role provides it.
    #[error(
        "{role} requires {requires}, which is abstract, and no barclamp that {deployment} uses has a role that provides it: use one that has"
    )]
    RequiresAbstract { deployment: String, role: RoleName, requires: RoleName },
    /// The node already has the provider, in a version that does not provide the name.
    #[error(
        "{role} requires {requires}, which {provider} provides in the version that is used here; {node} has it already, for {deployment} and \
         in a version that does not: use the newer one in {deployment} too"
    )]
    ServedByOtherVersion {
        role: RoleName,
        requires: RoleName,
        /// The role that provides it in the visible version.
        provider: RoleName,
        node: Fqdn,
        /// The deployment in which the provider is bound.
        deployment: String,
    },
    /// The role must first be added to the deployment.
    #[error("{role} is not a role of {deployment}: add it there first")]
    NotARoleHere { deployment: String, role: RoleName },
    #[error("a deployment {0} exists already: choose another name")]
    DeploymentExists(String),
    /// The deployment would exceed [`MAX_LEVELS`].
    #[error(
        "{name} would stand below {parent}, which has {MAX_LEVELS} deployments one above the other already, the most there may be: make it \
         further up"
    )]
    TooLow { name: String, parent: String },
    /// The id belongs or belonged to another deployment or node.
    #[error(
        "{0} is or was another deployment or node, and an id never comes back: mint another for the new deployment"
    )]
    DeploymentIdUsed(DeploymentId),
    /// The phantom's id belongs or belonged to another node or deployment.
    #[error(
        "{0} is or was another node or deployment, so it can't stand for a new deployment: mint another id for its phantom"
    )]
    PhantomTaken(NodeId),
    #[error(
        "an id that {0} would have is nothing but zeros: mint a random UUID for the deployment, and one for its phantom"
    )]
    NilId(String),
    /// The deployment and its phantom have the same id.
    #[error("{0} and its phantom would have one id: mint another for the phantom")]
    OneIdForTwo(String),
    /// A node without a document is deleted without a review.
    #[error(
        "{0} is only a record that no target speaks of, so giving it up takes no review: take it off the list of nodes"
    )]
    OnlyARecord(Fqdn),
    /// The content hash is that of another barclamp.
    #[error("object {version} is barclamp {found}, not {asked}")]
    OtherBarclamp {
        version: Hash,
        /// The barclamp of the content.
        found: BarclampName,
        /// The barclamp that the edit names.
        asked: BarclampName,
    },
    #[error("{role} is a role of {deployment} already")]
    RoleExists { deployment: String, role: RoleName },
    #[error("{role} is on {node} already")]
    AlreadyBound { role: RoleName, node: Fqdn },
    #[error("{role} is abstract, so it can't be bound: bind a role that provides it{}", listed(.providers))]
    Abstract { role: RoleName, providers: Vec<RoleName> },
    #[error("{role} conflicts with {with} on {node}: use another node")]
    Conflict {
        /// The role to bind.
        role: RoleName,
        /// The role on the node.
        with: RoleName,
        node: Fqdn,
    },
    /// Both roles answer to the same name.
    #[error("{role} and {with} on {node} both provide {name}: a node carries one of them")]
    ProvidedTwice {
        /// The role to bind.
        role: RoleName,
        /// The role on the node.
        with: RoleName,
        /// The name that both answer to.
        name: RoleName,
        node: Fqdn,
    },
    /// The node belongs to a deployment that is neither an ancestor nor a descendant.
    #[error(
        "{node} belongs to {owner}, beside {deployment}: move it to {deployment} first, or use a node of {deployment} or above it"
    )]
    Sibling {
        node: Fqdn,
        /// The node's deployment.
        owner: String,
        deployment: String,
    },
    #[error("the connection can't be set: {0}")]
    Connection(ConnectionError),
    #[error("the edit names no field of the connection: name at least one, such as host_key")]
    NoConnectionField,
    #[error("the hints can't be set: {0}")]
    Hints(String),
    /// A node without a document is edited without a proposal.
    #[error(
        "{0} is in no blueprint, so its record is edited without a proposal: gantry node edit {0}"
    )]
    BareNode(Fqdn),
    #[error("{0} stands for its deployment and is no machine: use a real node")]
    Phantom(Fqdn),
    #[error(
        "{role} runs by jig {jig} of class {class}, which no worker has: the role can't be bound"
    )]
    NoSuchJig { role: RoleName, jig: String, class: String },
    #[error("these roles require each other: {}", path(.0))]
    Cycle(Vec<RoleName>),
    /// The chain of required roles is too long.
    #[error("binding {0} brings more than {MAX_DEPTH} roles along in a row: check its requires")]
    TooDeep(RoleName),
    /// The node has noderoles of its deployment that the new deployment could not see.
    #[error(
        "{node} carries {noderole} of {deployment}: it can only move to a deployment below {deployment}"
    )]
    WouldLeaveBehind {
        node: Fqdn,
        noderole: NoderoleKey,
        /// The deployment in which the noderole is bound.
        deployment: String,
    },
    #[error("{node} is in {deployment} already")]
    AlreadyThere { node: Fqdn, deployment: String },
    #[error("say why {noderole} on {node} should run again: the reviewer reads it")]
    NoReason { node: Fqdn, noderole: NoderoleKey },
    #[error("the data of {subject} can't be taken: {error}")]
    Data {
        /// The owner of the data, as text.
        subject: String,
        error: DataError,
    },
    /// Other noderoles need the one to remove.
    #[error("{subject} can't go: {} it; bind what they need elsewhere first, unbind them too, or let what needs it go along",
        needed_by(.dependents))]
    Needed {
        subject: String,
        /// The noderoles that would lack a parent, as `app on n2`.
        dependents: Vec<String>,
    },
    /// Noderoles of other nodes need those of the node to expunge.
    #[error("{node} can't be given up yet: {} what it carries; bind that elsewhere first, or unbind them", needed_by(.dependents))]
    NodeNeeded {
        node: Fqdn,
        /// The noderoles that would lack a parent, as `app on n2`.
        dependents: Vec<String>,
    },
    /// Barriers are removed only together with their members.
    #[error(
        "{barrier} stands for all of {role} in its deployment and goes with the last of them: unbind those"
    )]
    Barrier {
        /// The barrier's own name.
        barrier: RoleName,
        /// The role that it gathers.
        role: RoleName,
    },
    #[error("{role} is bound in {deployment}, on {}: unbind it first", few(.nodes))]
    RoleInUse {
        deployment: String,
        role: RoleName,
        /// The nodes that have the role.
        nodes: Vec<String>,
    },
    #[error("{deployment} can't be removed: it has {}; take that away first (nodes may move to another deployment)", few(.contents))]
    NotEmpty {
        deployment: String,
        /// The contents as text.
        contents: Vec<String>,
    },
    /// The root deployment cannot be removed.
    #[error("{0} holds what all others share: it can't be removed")]
    RootDeployment(String),
    #[error("say why {0} is given up: the reviewer reads it, and nothing brings the node back")]
    NoReasonToExpunge(Fqdn),
    #[error("say why these roles of {0} should run again: the reviewer reads it")]
    NoReasonForSlice(String),
    #[error(
        "the reason has {length} characters, and may have {MAX_REASON}: say it shorter, and put the rest into the discussion"
    )]
    LongReason {
        /// In characters.
        length: usize,
    },
    #[error(
        "the reason has the character {number}, which can't be seen or makes it read as another: leave it out"
    )]
    DeceptiveReason {
        /// The code point of the character.
        number: String,
    },
    #[error("it lists no node: name at least one")]
    NoNodes,
    #[error("it lists {length} nodes, and an edit may list {MAX_LISTED}: make several edits of it")]
    LongList {
        /// Number of nodes.
        length: usize,
    },
    #[error("it lists no role: name at least one")]
    NoRoles,
    #[error("no node carries {} for {deployment}: there is nothing to run again", few(.roles))]
    NothingToRerun { deployment: String, roles: Vec<String> },
    #[error("{role} runs by jig {jig}, which is switched off: switch it on first")]
    InactiveJig { role: RoleName, jig: JigName },
    #[error("no barclamp in use declares a jig {jig}{}", suggestion(.nearest))]
    UnknownJig {
        jig: JigName,
        /// The most similar name.
        nearest: Option<String>,
    },
    #[error("jig {jig} is {} already", if *.active { "on" } else { "off" })]
    JigIsSo {
        jig: JigName,
        /// The current state.
        active: bool,
    },
    /// The new version does not fit noderoles that are in use.
    #[error(
        "{barclamp} {version} {how} {role}, which {deployment} has: unbind and remove it there first, or use another version"
    )]
    VersionUnfit {
        barclamp: BarclampName,
        version: String,
        role: RoleName,
        /// A deployment that has the role.
        deployment: String,
        /// The effect of the version on the role, as a phrase with the role as its object.
        how: &'static str,
    },
    #[error("{deployment} has no version of {barclamp} of its own, so there is none to take away")]
    NoOwnVersion { deployment: String, barclamp: BarclampName },
    /// The barclamp would go out of use while one of its roles is in use.
    #[error(
        "{at} is the last to have {barclamp}: nothing above it does, and {deployment} has its role {role}; unbind and remove that there \
         first, or use another version"
    )]
    OutOfUse {
        barclamp: BarclampName,
        /// The deployment whose pin is removed.
        at: String,
        /// A deployment that has the role.
        deployment: String,
        role: RoleName,
    },
    /// Two visible barclamps would have a role of the same name.
    #[error(
        "barclamps {barclamp} and {other} both have a role {role}, and {deployment} would see both: use one of them elsewhere, give the \
         role another name in a new version of either, or let both have other versions in one step"
    )]
    RoleTwice {
        /// The barclamp whose new version adds the role.
        barclamp: BarclampName,
        /// The barclamp that has the role already.
        other: BarclampName,
        role: RoleName,
        /// A deployment that would see both.
        deployment: String,
    },
    /// Only the planner binds barriers.
    #[error("{0} is a barrier that the planner makes by itself: bind the role that it gathers")]
    BarrierByHand(RoleName),
    /// The new edge would create a cycle.
    #[error("{child} would wait for {parent}, which waits for {child} already")]
    Circle { child: String, parent: String },
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

fn listed(names: &[RoleName]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!(" ({})", names.iter().map(RoleName::as_str).collect::<Vec<_>>().join(", "))
}

/// Joins names for a message: the first four and the number of the others.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0 => "nothing".into(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}

fn needed_by(dependents: &[String]) -> String {
    format!("{} {}", few(dependents), if dependents.len() == 1 { "needs" } else { "need" })
}

fn path(roles: &[RoleName]) -> String {
    roles.iter().map(RoleName::as_str).collect::<Vec<_>>().join(" -> ")
}

impl EditError {
    /// The same error for another node.
    pub(super) fn of_node(mut self, from: &Fqdn, to: &Fqdn) -> Self {
        match &mut self {
            Self::AlreadyBound { node, .. }
            | Self::Conflict { node, .. }
            | Self::ProvidedTwice { node, .. }
            | Self::ServedByOtherVersion { node, .. }
            | Self::Sibling { node, .. }
                if node == from =>
            {
                *node = to.clone();
            }
            Self::Circle { child, parent } => {
                for end in [child, parent] {
                    if let Some(what) = end.strip_suffix(&format!(" on {}", from.short())) {
                        *end = format!("{what} on {}", to.short());
                    }
                }
            }
            // The other errors of binding do not name the node.
            _ => {}
        }
        self
    }

    /// The error code for API clients.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownDeployment(_) => "unknown_deployment",
            Self::UnknownNode(_) => "unknown_node",
            Self::UnknownNoderole { .. } => "unknown_noderole",
            Self::UnknownRole { .. } => "unknown_role",
            Self::RequiresAbstract { .. } => "abstract_require",
            Self::UnresolvedRequire { .. } => "unresolved_require",
            Self::ServedByOtherVersion { .. } => "served_by_other_version",
            Self::NotARoleHere { .. } => "not_a_role_here",
            Self::DeploymentExists(_) => "deployment_exists",
            Self::TooLow { .. } => "too_low",
            Self::DeploymentIdUsed(_) => "deployment_id_used",
            Self::PhantomTaken(_) => "phantom_taken",
            Self::NilId(_) => "nil_id",
            Self::NoRoles => "no_roles",
            Self::OneIdForTwo(_) => "one_id_for_two",
            Self::OnlyARecord(_) => "only_a_record",
            Self::OtherBarclamp { .. } => "other_barclamp",
            Self::RoleExists { .. } => "role_exists",
            Self::AlreadyBound { .. } => "already_bound",
            Self::Abstract { .. } => "abstract",
            Self::Conflict { .. } => "conflict",
            Self::ProvidedTwice { .. } => "provided_twice",
            Self::Sibling { .. } => "sibling",
            Self::Phantom(_) => "phantom",
            Self::Connection(_) | Self::NoConnectionField => "connection",
            Self::Hints(_) => "hints",
            Self::BareNode(_) => "bare_node",
            Self::NoSuchJig { .. } => "no_such_jig",
            Self::Cycle(_) => "cycle",
            Self::TooDeep(_) => "too_deep",
            Self::WouldLeaveBehind { .. } => "would_leave_behind",
            Self::AlreadyThere { .. } => "already_there",
            Self::NoReason { .. } => "no_reason",
            Self::Data { .. } => "data",
            Self::Needed { .. } => "needed",
            Self::NodeNeeded { .. } => "node_needed",
            Self::Barrier { .. } => "barrier",
            Self::RoleInUse { .. } => "role_in_use",
            Self::NotEmpty { .. } => "not_empty",
            Self::RootDeployment(_) => "root_deployment",
            Self::NoReasonToExpunge(_) | Self::NoReasonForSlice(_) => "no_reason",
            Self::LongReason { .. } => "long_reason",
            Self::DeceptiveReason { .. } => "deceptive_reason",
            Self::NoNodes => "no_nodes",
            Self::LongList { .. } => "long_list",
            Self::NothingToRerun { .. } => "nothing_to_rerun",
            Self::InactiveJig { .. } => "inactive_jig",
            Self::UnknownJig { .. } => "unknown_jig",
            Self::JigIsSo { .. } => "jig_is_so",
            Self::VersionUnfit { .. } => "version_unfit",
            Self::NoOwnVersion { .. } => "no_own_version",
            Self::OutOfUse { .. } => "out_of_use",
            Self::RoleTwice { .. } => "role_twice",
            Self::BarrierByHand(_) => "barrier_by_hand",
            Self::Circle { .. } => "circle",
            Self::Policy(_) => "policy",
            Self::Catalog(_) => "catalog",
        }
    }
}
