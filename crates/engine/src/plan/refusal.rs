//! Reasons for which an edit cannot take effect. Each message says how to fix it.

use crate::canonical::Hash;
use crate::catalog::CatalogError;
use crate::cluster::{ConnectionError, NoderoleKey};
use crate::data::DataError;
use crate::gate::PolicyError;
use crate::ids::{BarclampName, DeploymentId, Fqdn, JigName, NodeId, RoleName};

use super::limits::{MAX_DEPTH, MAX_LEVELS, MAX_LISTED, MAX_REASON};

/// Why an edit cannot take effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error(
        "Deployment {0} does not exist. It was removed, or it never existed here. Use another one"
    )]
    UnknownDeployment(DeploymentId),
    #[error("Node {0} does not exist. It was removed, or it never existed here. Use another one")]
    UnknownNode(NodeId),
    #[error("Node {node} has no noderole {noderole}. Bind the role first")]
    UnknownNoderole { node: Fqdn, noderole: NoderoleKey },
    /// No barclamp that the deployment sees has the role.
    #[error(
        "No barclamp that deployment {deployment} uses has a role {role:?}{}",
        suggestion(.nearest)
    )]
    UnknownRole {
        deployment: String,
        role: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// No visible role has or provides the required name.
    #[error("Role {role} requires {requires}, but no barclamp that deployment {deployment} uses \
             has it{}", suggestion(.nearest))]
    UnresolvedRequire {
        deployment: String,
        role: RoleName,
        requires: RoleName,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The required role is abstract, and no visible role provides it.
    #[error(
        "Role {role} requires {requires}, which is abstract, and no barclamp that deployment \
         {deployment} uses provides it. Use a barclamp that does"
    )]
    RequiresAbstract { deployment: String, role: RoleName, requires: RoleName },
    /// The node already has the provider, in a version that does not provide the name.
    #[error(
        "Role {role} requires {requires}, which {provider} provides in the version that is used \
         here. Node {node} already has {provider} for deployment {deployment}, in a version that \
         does not provide it. Use the newer version in {deployment} too"
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
    #[error("Role {role} is not a role of deployment {deployment}. Add it there first")]
    NotARoleHere { deployment: String, role: RoleName },
    #[error("A deployment {0} already exists. Choose another name")]
    DeploymentExists(String),
    /// Paths find a deployment by its name first, so the name would hide the deployment with the
    /// id.
    #[error("The deployment name {0} looks like an id, and paths accept both. Choose another name")]
    NameLikeId(String),
    /// The deployment would exceed [`MAX_LEVELS`].
    #[error(
        "Deployment {name} cannot be below {parent}: deployments can be nested at most \
         {MAX_LEVELS} levels deep. Choose a parent higher up"
    )]
    TreeTooDeep { name: String, parent: String },
    /// The id belongs or belonged to another deployment or node.
    #[error(
        "The id {0} is or was used by another deployment or node, and ids are never reused. \
         Generate another id for the new deployment"
    )]
    DeploymentIdUsed(DeploymentId),
    /// The phantom's id belongs or belonged to another node or deployment.
    #[error(
        "The id {0} is or was used by another node or deployment. Generate another id for the \
         phantom node"
    )]
    PhantomTaken(NodeId),
    #[error(
        "An id for deployment {0} consists only of zeros. Generate a random UUID for the \
         deployment and another one for its phantom node"
    )]
    NilId(String),
    /// The deployment and its phantom have the same id.
    #[error(
        "Deployment {0} and its phantom node have the same id. Generate another id for the phantom \
         node"
    )]
    OneIdForTwo(String),
    /// A node without a document is deleted without a review.
    #[error(
        "Node {0} is not part of any blueprint, so it can be removed without a review. Remove it from \
         the list of nodes"
    )]
    OnlyARecord(Fqdn),
    /// The content hash is that of another barclamp.
    #[error(
        "Object {version} is barclamp {found}, not {requested}. Choose a version of {requested}"
    )]
    OtherBarclamp {
        version: Hash,
        /// The barclamp of the content.
        found: BarclampName,
        /// The barclamp that the edit names.
        requested: BarclampName,
    },
    #[error("Role {role} is already a role of deployment {deployment}")]
    RoleExists { deployment: String, role: RoleName },
    #[error("Role {role} is already bound to node {node}")]
    AlreadyBound { role: RoleName, node: Fqdn },
    #[error(
        "Role {role} is abstract, so it cannot be bound. Bind a role that provides it{}",
        listed(.providers)
    )]
    Abstract { role: RoleName, providers: Vec<RoleName> },
    #[error("Role {role} conflicts with {with} on node {node}. Use another node")]
    Conflict {
        /// The role to bind.
        role: RoleName,
        /// The role on the node.
        with: RoleName,
        node: Fqdn,
    },
    /// Both roles answer to the same name.
    #[error(
        "Roles {role} and {with} on node {node} both provide {name}. A node can have only one of \
         them"
    )]
    NameAlreadyProvided {
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
        "Node {node} belongs to {owner}, which is neither above nor below {deployment}. Move it to \
         {deployment} first, or use a node of {deployment} or of a deployment above it"
    )]
    Sibling {
        node: Fqdn,
        /// The node's deployment.
        owner: String,
        deployment: String,
    },
    #[error("The connection cannot be set: {0}")]
    Connection(ConnectionError),
    #[error("The edit names no field of the connection. Name at least one, such as host_key")]
    NoConnectionField,
    #[error("The hints cannot be set: {0}")]
    Hints(String),
    /// A node without a document is edited without a proposal.
    #[error(
        "Node {0} is not part of a blueprint, so its record is edited without a proposal: gantry \
         node edit {0}"
    )]
    BareNode(Fqdn),
    #[error("{0} is a phantom node without a machine. Use a real node")]
    Phantom(String),
    #[error(
        "Role {role} uses jig {jig} of class {class}, which no worker supports, so it cannot be \
         bound"
    )]
    NoSuchJig { role: RoleName, jig: String, class: String },
    #[error("These roles require each other: {}. Remove one of these requirements from the \
             barclamp", path(.0))]
    RoleCycle(Vec<RoleName>),
    /// The chain of required roles is too long.
    #[error("Role {0} requires a chain of more than {MAX_DEPTH} roles. Check its requires")]
    TooDeep(RoleName),
    /// The node has noderoles of its deployment that the new deployment could not see.
    #[error(
        "Node {node} has {noderole} of deployment {deployment}, so it can only move to a \
         deployment below {deployment}"
    )]
    WouldLeaveBehind {
        node: Fqdn,
        noderole: NoderoleKey,
        /// The deployment in which the noderole is bound.
        deployment: String,
    },
    /// A node of the deployment to move has a noderole of an ancestor that it would lose.
    #[error(
        "Node {node} has {noderole} of deployment {deployment}, so deployment {moved} can only \
         move to a deployment below {deployment}. Unbind {noderole} from {node} first"
    )]
    NodeWouldLeaveBehind {
        /// The deployment to move.
        moved: String,
        node: String,
        noderole: NoderoleKey,
        /// The deployment in which the noderole is bound.
        deployment: String,
    },
    /// A required role is not bound in the deployment to move or above its new parent.
    #[error(
        "Deployment {moved} cannot move below {parent}: {noderole} requires {requires}, which is \
         bound neither in {deployment} nor in {parent} or above it. First bind {requires} in one \
         of these deployments"
    )]
    NotBoundAbove {
        /// The deployment to move.
        moved: String,
        /// Its new parent.
        parent: String,
        /// The noderole, as `app on n2`.
        noderole: String,
        requires: RoleName,
        /// The deployment in which the noderole is bound.
        deployment: String,
    },
    #[error("Deployment {deployment} is already directly below {parent}")]
    AlreadyBelow { deployment: String, parent: String },
    #[error(
        "Deployment {deployment} cannot move below {parent}, because {parent} is part of it. \
         Choose a parent outside of {deployment}"
    )]
    BelowItself { deployment: String, parent: String },
    #[error("Node {node} is already in deployment {deployment}")]
    AlreadyThere { node: Fqdn, deployment: String },
    #[error("The reason is missing. Tell the reviewer why {noderole} on {node} should run again")]
    NoReason { node: Fqdn, noderole: NoderoleKey },
    #[error("Invalid data for {subject}: {error}")]
    Data {
        /// The owner of the data, as text.
        subject: String,
        error: DataError,
    },
    /// Other noderoles need the one to remove.
    #[error("Noderole {subject} cannot be removed: {} it. First bind the role on another node, \
             unbind those noderoles, or remove them together with this one",
        needed_by(.dependents))]
    Needed {
        subject: String,
        /// The noderoles that would lack a parent, as `app on n2`.
        dependents: Vec<String>,
    },
    /// Noderoles of other nodes need those of the node to expunge.
    #[error("Node {node} cannot be expunged: {} its noderoles. First bind these roles on another \
             node, or unbind the noderoles that need them", needed_by(.dependents))]
    NodeNeeded {
        node: Fqdn,
        /// The noderoles that would lack a parent, as `app on n2`.
        dependents: Vec<String>,
    },
    /// Barriers are removed only together with their members.
    #[error(
        "Role {barrier} is the barrier of {role} and is removed with its last noderole. Unbind \
         those noderoles instead"
    )]
    Barrier {
        /// The barrier's own name.
        barrier: RoleName,
        /// The role that it gathers.
        role: RoleName,
    },
    #[error("Role {role} is bound in deployment {deployment}, on {}. Unbind it first", first_names(.nodes))]
    RoleInUse {
        deployment: String,
        role: RoleName,
        /// The nodes that have the role.
        nodes: Vec<String>,
    },
    #[error("Deployment {deployment} cannot be removed: it has {}. Remove these first, or move its \
             nodes to another deployment", first_names(.contents))]
    NotEmpty {
        deployment: String,
        /// The contents as text.
        contents: Vec<String>,
    },
    /// The root deployment cannot be removed or moved.
    #[error("Deployment {0} is the root deployment and cannot be removed or moved")]
    RootDeployment(String),
    #[error(
        "The reason is missing. Tell the reviewer why node {0} is expunged: it can never be added \
         back"
    )]
    NoReasonToExpunge(Fqdn),
    #[error(
        "The reason is missing. Tell the reviewer why these roles of deployment {0} should run \
         again"
    )]
    NoReasonForSlice(String),
    #[error(
        "The reason has {length} characters, and the limit is {MAX_REASON}. Shorten it, and put \
         the rest into the discussion"
    )]
    LongReason {
        /// In characters.
        length: usize,
    },
    #[error(
        "The reason contains the character {number}, which is invisible or misleading. Remove it"
    )]
    DeceptiveReason {
        /// The code point of the character.
        number: String,
    },
    #[error("The edit lists no nodes. Name at least one")]
    NoNodes,
    #[error(
        "The edit lists {length} nodes, and the limit is {MAX_LISTED}. Split it into several edits"
    )]
    LongList {
        /// Number of nodes.
        length: usize,
    },
    #[error("The edit lists no roles. Name at least one")]
    NoRoles,
    #[error("No node has {} for deployment {deployment}, so nothing can run again", first_names(.roles))]
    NothingToRerun { deployment: String, roles: Vec<String> },
    #[error("Role {role} uses jig {jig}, which is turned off. Turn it on first")]
    InactiveJig { role: RoleName, jig: JigName },
    #[error("No barclamp in use declares a jig {jig}{}", suggestion(.nearest))]
    UnknownJig {
        jig: JigName,
        /// The most similar name.
        nearest: Option<String>,
    },
    #[error("Jig {jig} is already {}", if *.active { "on" } else { "off" })]
    JigStateUnchanged {
        jig: JigName,
        /// The current state.
        active: bool,
    },
    /// The new version does not fit noderoles that are in use.
    #[error(
        "Barclamp {barclamp} {version} {how} role {role}, which deployment {deployment} has. \
         Unbind and remove the role there first, or use another version"
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
    #[error(
        "Deployment {deployment} has no version of {barclamp} of its own, so there is nothing to \
         remove"
    )]
    NoOwnVersion { deployment: String, barclamp: BarclampName },
    /// The barclamp would go out of use while one of its roles is in use.
    #[error(
        "No deployment above {at} uses barclamp {barclamp}, and deployment {deployment} has its \
         role {role}. Unbind and remove the role there first, or use another version"
    )]
    BarclampInUse {
        barclamp: BarclampName,
        /// The deployment whose pin is removed.
        at: String,
        /// A deployment that has the role.
        deployment: String,
        role: RoleName,
    },
    /// A move would put the barclamp out of use while one of its roles is in use.
    #[error(
        "No deployment above {moved} after the move ({}) uses barclamp {barclamp}, and deployment \
         {deployment} has its role {role}. First use {barclamp} in {moved} or in {parent}",
        first_names(.above)
    )]
    BarclampInUseBelow {
        barclamp: BarclampName,
        /// The deployment to move.
        moved: String,
        /// Its new parent.
        parent: String,
        /// Its new ancestors, nearest first.
        above: Vec<String>,
        /// A deployment that has the role.
        deployment: String,
        role: RoleName,
    },
    /// Two visible barclamps would have a role of the same name.
    #[error(
        "Barclamps {barclamp} and {other} both have a role {role}, and deployment {deployment} \
         would see both. Use one of them elsewhere, rename the role in a new version, or update \
         both barclamps in one step"
    )]
    DuplicateRole {
        /// The barclamp whose new version adds the role.
        barclamp: BarclampName,
        /// The barclamp that has the role already.
        other: BarclampName,
        role: RoleName,
        /// A deployment that would see both.
        deployment: String,
    },
    /// Only the planner binds barriers.
    #[error(
        "Role {0} is a barrier, which the planner adds by itself. Bind its cluster role instead"
    )]
    BarrierIsAutomatic(RoleName),
    /// The new edge would create a cycle.
    #[error("Noderole {child} would wait for {parent}, which already waits for {child}")]
    NoderoleCycle { child: String, parent: String },
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(". Did you mean {name:?}?")).unwrap_or_default()
}

fn listed(names: &[RoleName]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!(" ({})", names.iter().map(RoleName::as_str).collect::<Vec<_>>().join(", "))
}

/// Joins names for a message: the first four and the number of the others.
fn first_names(names: &[String]) -> String {
    const MAX_NAMES: usize = 4;
    match names.len() {
        0 => "nothing".into(),
        n if n <= MAX_NAMES => names.join(", "),
        n => format!("{} and {} more", names[..MAX_NAMES].join(", "), n - MAX_NAMES),
    }
}

fn needed_by(dependents: &[String]) -> String {
    format!("{} {}", first_names(dependents), if dependents.len() == 1 { "needs" } else { "need" })
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
            | Self::NameAlreadyProvided { node, .. }
            | Self::ServedByOtherVersion { node, .. }
            | Self::Sibling { node, .. }
                if node == from =>
            {
                *node = to.clone();
            }
            Self::NoderoleCycle { child, parent } => {
                for end in [child, parent] {
                    if let Some(noderole) = end.strip_suffix(&format!(" on {}", from.short())) {
                        *end = format!("{noderole} on {}", to.short());
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
            Self::NameLikeId(_) => "name_like_id",
            Self::TreeTooDeep { .. } => "tree_too_deep",
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
            Self::NameAlreadyProvided { .. } => "name_already_provided",
            Self::Sibling { .. } => "sibling",
            Self::Phantom(_) => "phantom",
            Self::Connection(_) | Self::NoConnectionField => "connection",
            Self::Hints(_) => "hints",
            Self::BareNode(_) => "bare_node",
            Self::NoSuchJig { .. } => "no_such_jig",
            Self::RoleCycle(_) => "role_cycle",
            Self::TooDeep(_) => "too_deep",
            Self::WouldLeaveBehind { .. } => "would_leave_behind",
            Self::NodeWouldLeaveBehind { .. } => "would_leave_behind",
            Self::NotBoundAbove { .. } => "not_bound_above",
            Self::AlreadyThere { .. } | Self::AlreadyBelow { .. } => "already_there",
            Self::BelowItself { .. } => "below_itself",
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
            Self::JigStateUnchanged { .. } => "jig_state_unchanged",
            Self::VersionUnfit { .. } => "version_unfit",
            Self::NoOwnVersion { .. } => "no_own_version",
            Self::BarclampInUse { .. } | Self::BarclampInUseBelow { .. } => "barclamp_in_use",
            Self::DuplicateRole { .. } => "duplicate_role",
            Self::BarrierIsAutomatic(_) => "barrier_is_automatic",
            Self::NoderoleCycle { .. } => "noderole_cycle",
            Self::Policy(_) => "policy",
            Self::Catalog(_) => "catalog",
        }
    }
}
