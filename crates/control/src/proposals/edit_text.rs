//! Text for edits: their descriptions, their conflicts, and the names in them.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use engine::Hash;
use engine::cluster::{NodeDoc, NoderoleKey, phantom};
use engine::gate::{COOLING_HOURS, Policy};
use engine::ids::{DeploymentId, Fqdn, NodeId, RoleName};
use engine::plan::edit::sign_in_demands;
use engine::plan::effects::RoleData;
use engine::plan::{Edit, EditNames, edit};

use crate::current::CurrentState;
use crate::text::{capitalize, count, in_order, some_of};

pub(crate) use engine::text::sentence;

/// Maximum number of names in a list.
const NAMED: usize = 3;

/// Names of deployments and nodes, including those that the edits create.
pub(crate) struct Names<'a> {
    present: &'a CurrentState,
    new: BTreeMap<DeploymentId, String>,
    /// Phantom nodes of new deployments.
    phantoms: BTreeMap<NodeId, Fqdn>,
    home: Option<DeploymentId>,
}

impl<'a> Names<'a> {
    pub fn of(present: &'a CurrentState, edits: impl IntoIterator<Item = &'a Edit>) -> Self {
        let (mut new, mut phantoms) = (BTreeMap::new(), BTreeMap::new());
        for edit in edits {
            let Edit::CreateDeployment(edit::CreateDeployment { id, phantom: node, name, .. }) =
                edit
            else {
                continue;
            };
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
    fn in_deployment(&self, deployment: DeploymentId) -> String {
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

    /// `, with 12 deployments below it`; empty if there are none.
    pub fn with_descendants(&self, id: DeploymentId) -> String {
        self.present.with_descendants(id)
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
                .map(|fqdn| phantom::short_name(fqdn, |id| Some(self.deployment(id))).into_owned())
        };
        self.present.short_name(id).or_else(new).unwrap_or_else(|| id.to_string())
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

    /// An edit as text.
    pub fn edit(&self, edit: &Edit) -> String {
        edit.text(self)
    }

    /// The edits of one request as text.
    pub fn request_text(&self, edits: &[&Edit]) -> String {
        let [first, rest @ ..] = edits else { return String::new() };
        if rest.is_empty() {
            return self.edit(first);
        }
        let nodes = |role: &RoleName, verb: &str, to: &str| {
            format!("{verb} {} {to} {role}", count(edits.len(), "node"))
        };
        match first {
            Edit::Bind(edit::Bind { role, .. })
                if rest.iter().all(|e| matches!(e, Edit::Bind(other) if other.role == *role)) =>
            {
                nodes(role, "bind", "to")
            }
            Edit::Unbind(edit::Unbind { noderole: NoderoleKey { role, .. }, .. })
                if rest
                    .iter()
                    .all(|e| matches!(e, Edit::Unbind(other) if other.noderole.role == *role)) =>
            {
                nodes(role, "unbind", "from")
            }
            first => format!("{} and {}", self.edit(first), count(rest.len(), "more edit")),
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
        requirements_text.extend(sign_in_demands(policy, |id| self.deployment(id)));
        format!(
            "Sets the policy for all later changes in every deployment: {}.",
            requirements_text.join(", ")
        )
    }
}

impl EditNames for Names<'_> {
    fn deployment(&self, id: DeploymentId) -> String {
        Names::deployment(self, id)
    }

    fn in_deployment(&self, deployment: DeploymentId) -> String {
        Names::in_deployment(self, deployment)
    }

    fn version(&self, hash: Hash) -> String {
        Names::version(self, hash)
    }

    fn node(&self, id: NodeId) -> String {
        Names::node(self, id)
    }

    fn nodes(&self, nodes: &BTreeSet<NodeId>) -> String {
        self.some_nodes(nodes)
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
