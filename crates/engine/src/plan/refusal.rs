//! Refusals: why an edit can't take effect, in words that say what to do.

use crate::canonical::Hash;
use crate::catalog::CatalogError;
use crate::cluster::{ConnectionError, NoderoleKey};
use crate::data::DataError;
use crate::gate::PolicyError;
use crate::ids::{BarclampName, DeploymentId, Fqdn, JigName, NodeId, RoleName};

use super::bind::MAX_DEPTH;
use super::edit::{MAX_LEVELS, MAX_LISTED, MAX_REASON};

/// Why an edit can't take effect. Each text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// No such deployment.
    #[error(
        "deployment {0} is not there: it was removed, or the proposal is older than that; discard the edit"
    )]
    UnknownDeployment(DeploymentId),
    /// No such node.
    #[error(
        "node {0} is not there: it was removed, or the proposal is older than that; discard the edit"
    )]
    UnknownNode(NodeId),
    /// The node does not carry that.
    #[error(
        "{node} has no noderole {noderole}: it is not bound there, or not any more; bind the role first, or leave this out"
    )]
    UnknownNoderole {
        /// The node.
        node: Fqdn,
        /// What was meant.
        noderole: NoderoleKey,
    },
    /// No barclamp that the deployment sees has the role.
    #[error("no barclamp that {deployment} uses has a role {role:?}{}", suggestion(.nearest))]
    UnknownRole {
        /// Where.
        deployment: String,
        /// What was asked for.
        role: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// A role requires what nobody has.
    #[error("{role} requires {requires}, and no barclamp that {deployment} uses has that{}", suggestion(.nearest))]
    UnresolvedRequire {
        /// Where.
        deployment: String,
        /// The role.
        role: RoleName,
        /// What it requires.
        requires: RoleName,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// A role requires one that is never bound itself, and nobody provides it.
    #[error(
        "{role} requires {requires}, which is abstract, and no barclamp that {deployment} uses has a role that provides it: use one that has"
    )]
    RequiresAbstract {
        /// Where.
        deployment: String,
        /// The role.
        role: RoleName,
        /// What it requires.
        requires: RoleName,
    },
    /// Who would serve is there already, in a version that does not.
    #[error(
        "{role} requires {requires}, which {provider} provides in the version that is used here; {node} has it already, for {deployment} and \
         in a version that does not: use the newer one in {deployment} too"
    )]
    ServedByOtherVersion {
        /// The role.
        role: RoleName,
        /// What it requires.
        requires: RoleName,
        /// The role that would serve.
        provider: RoleName,
        /// The node.
        node: Fqdn,
        /// The deployment that it is bound in there.
        deployment: String,
    },
    /// The role must be added first.
    #[error("{role} is not a role of {deployment}: add it there first")]
    NotARoleHere {
        /// Where.
        deployment: String,
        /// What.
        role: RoleName,
    },
    /// The name is taken.
    #[error("a deployment {0} exists already: choose another name")]
    DeploymentExists(String),
    /// A deployment too far below *system*.
    #[error(
        "{name} would stand below {parent}, which has {MAX_LEVELS} deployments one above the other already, the most there may be: make it \
         further up"
    )]
    TooLow {
        /// The new one.
        name: String,
        /// The one above it.
        parent: String,
    },
    /// The id is another object's, or was.
    #[error(
        "{0} is or was another deployment or node, and an id never comes back: mint another for the new deployment"
    )]
    DeploymentIdUsed(DeploymentId),
    /// The id for the phantom is another object's, or was.
    #[error(
        "{0} is or was another node or deployment, so it can't stand for a new deployment: mint another id for its phantom"
    )]
    PhantomTaken(NodeId),
    /// An id that was never minted.
    #[error(
        "an id that {0} would have is nothing but zeros: mint a random UUID for the deployment, and one for its phantom"
    )]
    NilId(String),
    /// A deployment and its phantom with one id.
    #[error("{0} and its phantom would have one id: mint another for the phantom")]
    OneIdForTwo(String),
    /// There is nothing to review about it.
    #[error(
        "{0} is only a record that no target speaks of, so giving it up takes no review: take it off the list of nodes"
    )]
    OnlyARecord(Fqdn),
    /// A barclamp's content and name differ.
    #[error("object {version} is barclamp {found}, not {asked}")]
    OtherBarclamp {
        /// The content.
        version: Hash,
        /// What it is.
        found: BarclampName,
        /// What the edit says.
        asked: BarclampName,
    },
    /// Nothing to do.
    #[error("{role} is a role of {deployment} already")]
    RoleExists {
        /// Where.
        deployment: String,
        /// What.
        role: RoleName,
    },
    /// Nothing to do.
    #[error("{role} is on {node} already")]
    AlreadyBound {
        /// The role.
        role: RoleName,
        /// The node.
        node: Fqdn,
    },
    /// A role that others provide.
    #[error("{role} is abstract, so it can't be bound: bind a role that provides it{}", listed(.providers))]
    Abstract {
        /// The role.
        role: RoleName,
        /// Who provides it.
        providers: Vec<RoleName>,
    },
    /// Two roles that exclude each other.
    #[error("{role} conflicts with {with} on {node}: use another node")]
    Conflict {
        /// The role to bind.
        role: RoleName,
        /// What is there.
        with: RoleName,
        /// Where.
        node: Fqdn,
    },
    /// Two roles that mean the same thing.
    #[error("{role} and {with} on {node} both provide {name}: a node carries one of them")]
    ProvidedTwice {
        /// The role to bind.
        role: RoleName,
        /// What is there.
        with: RoleName,
        /// The name that both answer to.
        name: RoleName,
        /// Where.
        node: Fqdn,
    },
    /// The node belongs elsewhere.
    #[error(
        "{node} belongs to {owner}, beside {deployment}: move it to {deployment} first, or use a node of {deployment} or above it"
    )]
    Sibling {
        /// The node.
        node: Fqdn,
        /// Its deployment.
        owner: String,
        /// The one that wants it.
        deployment: String,
    },
    /// The connection can't be used.
    #[error("the connection can't be set: {0}")]
    Connection(ConnectionError),
    /// No field is named.
    #[error("the edit names no field of the connection: name at least one, such as host_key")]
    NoConnectionField,
    /// The hints can't be used.
    #[error("the hints can't be set: {0}")]
    Hints(String),
    /// The record is edited without a proposal.
    #[error(
        "{0} is in no blueprint, so its record is edited without a proposal: gantry node edit {0}"
    )]
    BareNode(Fqdn),
    /// A phantom takes no roles by hand.
    #[error("{0} stands for its deployment and is no machine: use a real node")]
    Phantom(Fqdn),
    /// Nobody can run it.
    #[error(
        "{role} runs by jig {jig} of class {class}, which no worker has: the role can't be bound"
    )]
    NoSuchJig {
        /// The role.
        role: RoleName,
        /// Its jig.
        jig: String,
        /// The jig's class.
        class: String,
    },
    /// Roles that require each other.
    #[error("these roles require each other: {}", path(.0))]
    Cycle(Vec<RoleName>),
    /// Too many in a row.
    #[error("binding {0} brings more than {MAX_DEPTH} roles along in a row: check its requires")]
    TooDeep(RoleName),
    /// The node would leave noderoles behind.
    #[error(
        "{node} carries {noderole} of {deployment}: it can only move to a deployment below {deployment}"
    )]
    WouldLeaveBehind {
        /// The node.
        node: Fqdn,
        /// What it carries.
        noderole: NoderoleKey,
        /// Whose that is.
        deployment: String,
    },
    /// Nothing to do.
    #[error("{node} is in {deployment} already")]
    AlreadyThere {
        /// The node.
        node: Fqdn,
        /// Where.
        deployment: String,
    },
    /// A re-run needs a reason.
    #[error("say why {noderole} on {node} should run again: the reviewer reads it")]
    NoReason {
        /// The node.
        node: Fqdn,
        /// The noderole.
        noderole: NoderoleKey,
    },
    /// Data that can't be taken.
    #[error("the data of {subject} can't be taken: {error}")]
    Data {
        /// Whose data.
        subject: String,
        /// What is wrong.
        error: DataError,
    },
    /// The node carries something that others need.
    #[error("{subject} can't go: {} it; bind what they need elsewhere first, unbind them too, or let what needs it go along",
        needed_by(.dependents))]
    Needed {
        /// What was to go.
        subject: String,
        /// What would be left without a parent, as `app on n2`.
        dependents: Vec<String>,
    },
    /// A node is given up, and noderoles of other nodes need what it carries.
    #[error("{node} can't be given up yet: {} what it carries; bind that elsewhere first, or unbind them", needed_by(.dependents))]
    NodeNeeded {
        /// The node.
        node: Fqdn,
        /// What would be left without a parent, as `app on n2`.
        dependents: Vec<String>,
    },
    /// A barrier comes and goes with what it stands for.
    #[error(
        "{barrier} stands for all of {role} in its deployment and goes with the last of them: unbind those"
    )]
    Barrier {
        /// The barrier's own name.
        barrier: RoleName,
        /// What it gathers.
        role: RoleName,
    },
    /// A role that is bound.
    #[error("{role} is bound in {deployment}, on {}: unbind it first", few(.nodes))]
    RoleInUse {
        /// Where.
        deployment: String,
        /// What.
        role: RoleName,
        /// The nodes that carry it.
        nodes: Vec<String>,
    },
    /// A deployment with something in it.
    #[error("{deployment} can't be removed: it has {}; take that away first (nodes may move to another deployment)", few(.contents))]
    NotEmpty {
        /// Which.
        deployment: String,
        /// What is in it, in words.
        contents: Vec<String>,
    },
    /// The root of all.
    #[error("{0} holds what all others share: it can't be removed")]
    RootDeployment(String),
    /// Giving up a node needs a reason.
    #[error("say why {0} is given up: the reviewer reads it, and nothing brings the node back")]
    NoReasonToExpunge(Fqdn),
    /// Re-running a slice needs a reason.
    #[error("say why these roles of {0} should run again: the reviewer reads it")]
    NoReasonForSlice(String),
    /// A reason that is no reason any more.
    #[error(
        "the reason has {length} characters, and may have {MAX_REASON}: say it shorter, and put the rest into the discussion"
    )]
    LongReason {
        /// Its characters.
        length: usize,
    },
    /// A reason with a character that nobody sees.
    #[error(
        "the reason has the character {number}, which can't be seen or makes it read as another: leave it out"
    )]
    DeceptiveReason {
        /// The character's number.
        number: String,
    },
    /// A list that names nothing.
    #[error("it lists no node: name at least one")]
    NoNodes,
    /// A list that nobody could take in.
    #[error("it lists {length} nodes, and an edit may list {MAX_LISTED}: make several edits of it")]
    LongList {
        /// Its nodes.
        length: usize,
    },
    /// A slice of nothing.
    #[error("it lists no role: name at least one")]
    NoRoles,
    /// There is nothing to run.
    #[error("no node carries {} for {deployment}: there is nothing to run again", few(.roles))]
    NothingToRerun {
        /// Where.
        deployment: String,
        /// What was named.
        roles: Vec<String>,
    },
    /// A jig that is switched off.
    #[error("{role} runs by jig {jig}, which is switched off: switch it on first")]
    InactiveJig {
        /// The role.
        role: RoleName,
        /// Its jig.
        jig: JigName,
    },
    /// No such jig.
    #[error("no barclamp in use declares a jig {jig}{}", suggestion(.nearest))]
    UnknownJig {
        /// What was asked for.
        jig: JigName,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// Nothing to do.
    #[error("jig {jig} is {} already", if *.active { "on" } else { "off" })]
    JigIsSo {
        /// Which.
        jig: JigName,
        /// How it is.
        active: bool,
    },
    /// A version that what is bound can't take on.
    #[error(
        "{barclamp} {version} {how} {role}, which {deployment} has: unbind and remove it there first, or use another version"
    )]
    VersionUnfit {
        /// The barclamp.
        barclamp: BarclampName,
        /// Its version, as its file has it.
        version: String,
        /// The role.
        role: RoleName,
        /// A deployment that has it.
        deployment: String,
        /// What is wrong with the version.
        how: &'static str,
    },
    /// Nothing to do.
    #[error("{deployment} has no version of {barclamp} of its own, so there is none to take away")]
    NoOwnVersion {
        /// Where.
        deployment: String,
        /// The barclamp.
        barclamp: BarclampName,
    },
    /// A barclamp that goes out of use, and something of it is there.
    #[error(
        "{at} is the last to have {barclamp}: nothing above it does, and {deployment} has its role {role}; unbind and remove that there \
         first, or use another version"
    )]
    OutOfUse {
        /// The barclamp.
        barclamp: BarclampName,
        /// The deployment whose version goes.
        at: String,
        /// A deployment that has something of it.
        deployment: String,
        /// The role.
        role: RoleName,
    },
    /// Two barclamps that mean different things by one name.
    #[error(
        "barclamps {barclamp} and {other} both have a role {role}, and {deployment} would see both: use one of them elsewhere, give the \
         role another name in a new version of either, or let both have other versions in one step"
    )]
    RoleTwice {
        /// The barclamp whose version in sight has the role anew.
        barclamp: BarclampName,
        /// The one that is in use.
        other: BarclampName,
        /// The role that both have.
        role: RoleName,
        /// A deployment that would see both.
        deployment: String,
    },
    /// The planner alone binds it.
    #[error("{0} is a barrier that the planner makes by itself: bind the role that it gathers")]
    BarrierByHand(RoleName),
    /// A new edge would close a circle.
    #[error("{child} would wait for {parent}, which waits for {child} already")]
    Circle {
        /// What would wait.
        child: String,
        /// For what.
        parent: String,
    },
    /// A policy that can't be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The catalog is incomplete.
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

/// A list that stays readable: the first four and how many more.
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
    /// The same about another node than the one that it names.
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
            // What else binding is refused for is about roles and deployments.
            _ => {}
        }
        self
    }

    /// A word for programs.
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
