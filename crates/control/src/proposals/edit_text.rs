//! Text for edits: their descriptions, their conflicts, and the names in them.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use engine::Hash;
use engine::cluster::{NodeDoc, phantom};
use engine::gate::{COOLING_HOURS, Policy};
use engine::ids::{DeploymentId, Fqdn, NodeId};
use engine::plan::Edit;
use engine::plan::clash::Over;
use engine::plan::effects::RoleData;

use crate::current::Present;
use crate::text::{capitalize, count, in_order, some_of};

pub(crate) use engine::text::sentence;

/// Maximum number of names in a list.
const NAMED: usize = 3;

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
