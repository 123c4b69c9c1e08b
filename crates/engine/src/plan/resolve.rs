//! Resolving: what a proposal's edits come to.
//!
//! The heart is binding, after OpenCrowbar's rules. Binding a role to a node makes a noderole whose parents are the noderoles of
//! the roles that it requires (and of its jig's client role). For each of those, in this order:
//!
//! 1. one on the same node that has the name or provides it;
//! 2. unless the role is implicit: one in the same deployment, then in each ancestor, the first by node name;
//! 3. else the role is bound to the same node in the same deployment, by these same rules.
//!
//! An edit is worked out on the side first (`Sprout`) and joined to the draft only when all of it holds, so a refused edit leaves
//! nothing behind. The draft is an overlay on the skeleton: an edit costs what it touches, never the cluster.
//!
//! Ranks: a new noderole stands one above its highest parent, and its parents exist before it. So ranks rise along every edge and
//! no edge can close a cycle among noderoles; a cycle among *roles* shows as a role that requires itself while it is being bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::edit::{Edit, NumberedEdit};
use super::effects::{
    BarclampUse, Bound, Effects, Moved, NewDeployment, NewRole, NoderoleData, Refusal, Rerun, RoleData, Why,
};
use crate::canonical::Hash;
use crate::catalog::{Catalog, CatalogError, JigClass, Role};
use crate::cluster::skeleton::Answer;
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey, Skeleton, SkeletonDeployment, SkeletonNode, SkeletonNoderole};
use crate::data::{self, DataError};
use crate::ids::{BarclampName, DeploymentId, Fqdn, NodeId, NoderoleId, RoleName};

/// How many roles may bring one another along in a row.
pub const MAX_DEPTH: usize = 64;

/// Why an edit can't take effect. Each text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// No such deployment.
    #[error("deployment {0} is not there: it was removed, or the proposal is older than that; discard the edit")]
    UnknownDeployment(DeploymentId),
    /// No such node.
    #[error("node {0} is not there: it was removed, or the proposal is older than that; discard the edit")]
    UnknownNode(NodeId),
    /// The node does not carry that.
    #[error("{node} has no noderole {noderole}: bind the role first")]
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
    /// The id for the phantom is another node's.
    #[error("node {0} is there already, so it can't stand for a new deployment: mint another id for its phantom")]
    PhantomTaken(NodeId),
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
    /// A phantom takes no roles by hand.
    #[error("{0} stands for its deployment and is no machine: use a real node")]
    Phantom(Fqdn),
    /// Nobody can run it.
    #[error("{role} runs by jig {jig} of class {class}, which no worker has: the role can't be bound")]
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
    #[error("{node} carries {noderole} of {deployment}: it can only move to a deployment below {deployment}")]
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

fn path(roles: &[RoleName]) -> String {
    roles.iter().map(RoleName::as_str).collect::<Vec<_>>().join(" -> ")
}

impl EditError {
    /// A word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownDeployment(_) => "unknown_deployment",
            Self::UnknownNode(_) => "unknown_node",
            Self::UnknownNoderole { .. } => "unknown_noderole",
            Self::UnknownRole { .. } => "unknown_role",
            Self::UnresolvedRequire { .. } => "unresolved_require",
            Self::NotARoleHere { .. } => "not_a_role_here",
            Self::DeploymentExists(_) => "deployment_exists",
            Self::PhantomTaken(_) => "phantom_taken",
            Self::OtherBarclamp { .. } => "other_barclamp",
            Self::RoleExists { .. } => "role_exists",
            Self::AlreadyBound { .. } => "already_bound",
            Self::Abstract { .. } => "abstract",
            Self::Conflict { .. } => "conflict",
            Self::ProvidedTwice { .. } => "provided_twice",
            Self::Sibling { .. } => "sibling",
            Self::Phantom(_) => "phantom",
            Self::NoSuchJig { .. } => "no_such_jig",
            Self::Cycle(_) => "cycle",
            Self::TooDeep(_) => "too_deep",
            Self::WouldLeaveBehind { .. } => "would_leave_behind",
            Self::AlreadyThere { .. } => "already_there",
            Self::NoReason { .. } => "no_reason",
            Self::Data { .. } => "data",
            Self::Catalog(_) => "catalog",
        }
    }
}

/// What the edits come to. Edits that can't take effect are named in [`Effects::refused`] and change nothing.
pub fn resolve(skeleton: &Skeleton, catalog: &Catalog, edits: &[NumberedEdit]) -> Effects {
    let mut draft = Draft::new(skeleton, catalog);
    for NumberedEdit { seq, edit } in edits {
        if let Err(error) = draft.apply(*seq, edit) {
            let refusal = Refusal { edit: *seq, code: error.code().into(), reason: error.to_string() };
            draft.effects.refused.push(refusal);
        }
    }
    draft.effects
}

/// The skeleton with the edits so far laid over it.
struct Draft<'a> {
    skeleton: &'a Skeleton,
    catalog: &'a Catalog,
    effects: Effects,
    deployments: BTreeMap<DeploymentId, SkeletonDeployment>,
    nodes: BTreeMap<NodeId, SkeletonNode>,
    answering: BTreeMap<(DeploymentId, RoleName), BTreeSet<Answer>>,
}

/// What one binding comes to, before it is known to hold as a whole.
#[derive(Default)]
struct Sprout {
    bound: Vec<Bound>,
    roles: Vec<NewRole>,
    path: Vec<RoleName>,
}

/// A noderole that serves as a parent.
#[derive(Clone, Copy)]
struct Parent {
    id: NoderoleId,
    rank: u32,
}

impl<'a> Draft<'a> {
    fn new(skeleton: &'a Skeleton, catalog: &'a Catalog) -> Self {
        Self {
            skeleton,
            catalog,
            effects: Effects::default(),
            deployments: BTreeMap::new(),
            nodes: BTreeMap::new(),
            answering: BTreeMap::new(),
        }
    }

    fn apply(&mut self, seq: u32, edit: &Edit) -> Result<(), EditError> {
        let why = Why::Asked { edit: seq };
        match edit {
            Edit::CreateDeployment { id, phantom, name, parent } => {
                self.deployment(*parent)?;
                if self.deployment(*id).is_ok() || self.deployment_names().any(|taken| taken == name.as_str()) {
                    return Err(EditError::DeploymentExists(name.to_string()));
                }
                // An id that is a machine's would turn that machine into a phantom behind the reviewer's back.
                if self.node(*phantom).is_ok() {
                    return Err(EditError::PhantomTaken(*phantom));
                }
                let new = NewDeployment {
                    id: *id,
                    phantom: *phantom,
                    phantom_fqdn: phantom_fqdn(*id),
                    name: name.clone(),
                    parent: *parent,
                    why,
                };
                self.create_deployment(new);
                Ok(())
            }
            Edit::UseBarclamp { deployment, barclamp, version } => {
                self.use_barclamp(*deployment, barclamp, *version, why)
            }
            Edit::AddRole { deployment, role } => self.add_role(*deployment, role, why),
            Edit::SetRoleData { deployment, role, data } => self.set_role_data(*deployment, role, data, why),
            Edit::Bind { deployment, node, role } => self.bind(*deployment, *node, role, seq),
            Edit::SetNoderoleData { node, noderole, data } => self.set_noderole_data(*node, noderole, data, why),
            Edit::MoveNode { node, deployment } => self.move_node(*node, *deployment, why),
            Edit::Rerun { node, noderole, reason } => self.rerun(*node, noderole, reason, why),
        }
    }

    // Looking things up: the overlay first, then the skeleton.

    fn deployment(&self, id: DeploymentId) -> Result<&SkeletonDeployment, EditError> {
        let found = self.deployments.get(&id).or_else(|| self.skeleton.deployments.get(&id));
        found.ok_or(EditError::UnknownDeployment(id))
    }

    fn deployment_name(&self, id: DeploymentId) -> String {
        self.deployment(id).map(|d| d.name.to_string()).unwrap_or_else(|_| id.to_string())
    }

    fn deployment_names(&self) -> impl Iterator<Item = &str> {
        self.skeleton.deployments.values().chain(self.deployments.values()).map(|d| d.name.as_str())
    }

    fn node(&self, id: NodeId) -> Result<&SkeletonNode, EditError> {
        let found = self.nodes.get(&id).or_else(|| self.skeleton.nodes.get(&id));
        found.ok_or(EditError::UnknownNode(id))
    }

    /// A deployment and its ancestors, nearest first.
    fn chain(&self, id: DeploymentId) -> Vec<DeploymentId> {
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| !chain.contains(id)) {
            chain.push(id);
            next = self.deployment(id).ok().and_then(|d| d.parent);
        }
        chain
    }

    /// The role that a name means in a deployment: what the deployment itself has, then what the nearest pinned barclamp has.
    fn role_content(&self, deployment: DeploymentId, name: &RoleName) -> Result<Option<Hash>, EditError> {
        for id in self.chain(deployment) {
            let found = self.deployment(id)?;
            if let Some(hash) = found.roles.get(name) {
                return Ok(Some(*hash));
            }
            for pin in found.barclamps.values() {
                if let Some(hash) = self.catalog.barclamp(*pin)?.roles.get(name) {
                    return Ok(Some(*hash));
                }
            }
        }
        Ok(None)
    }

    /// The role that a *required* name means: as above, else the first role by name that provides it and can be bound.
    fn required_content(&self, deployment: DeploymentId, name: &RoleName) -> Result<Option<Hash>, EditError> {
        if let Some(hash) = self.role_content(deployment, name)?
            && !self.catalog.role(hash)?.flags.is_abstract
        {
            return Ok(Some(hash));
        }
        Ok(self.providers(deployment, name)?.into_iter().next().map(|(_, hash)| hash))
    }

    fn providers(&self, deployment: DeploymentId, name: &RoleName) -> Result<BTreeMap<RoleName, Hash>, EditError> {
        let mut found = BTreeMap::new();
        for id in self.chain(deployment) {
            for pin in self.deployment(id)?.barclamps.values() {
                for (role_name, hash) in &self.catalog.barclamp(*pin)?.roles {
                    let role = self.catalog.role(*hash)?;
                    if role.provides.contains(name) && !role.flags.is_abstract {
                        found.entry(role_name.clone()).or_insert(*hash);
                    }
                }
            }
        }
        Ok(found)
    }

    /// The role name that a deployment sees and that is most like this one.
    fn nearest_role(&self, deployment: DeploymentId, name: &str) -> Option<String> {
        let mut names = BTreeSet::new();
        for id in self.chain(deployment) {
            let found = self.deployment(id).ok()?;
            names.extend(found.roles.keys().cloned());
            for pin in found.barclamps.values() {
                names.extend(self.catalog.barclamp(*pin).ok()?.roles.keys().cloned());
            }
        }
        nearest(name, names.iter().map(RoleName::as_str))
    }

    fn answering(&self, deployment: DeploymentId, name: &RoleName) -> Option<&Answer> {
        let new = self.answering.get(&(deployment, name.clone())).and_then(BTreeSet::first);
        let old = self.skeleton.answering(deployment, name).next();
        [new, old].into_iter().flatten().min()
    }

    // Edits.

    fn create_deployment(&mut self, new: NewDeployment) {
        let deployment = SkeletonDeployment {
            name: new.name.clone(),
            parent: Some(new.parent),
            phantom: new.phantom,
            barclamps: BTreeMap::new(),
            roles: BTreeMap::new(),
        };
        let phantom = SkeletonNode {
            fqdn: new.phantom_fqdn.clone(),
            deployment: new.id,
            phantom: true,
            noderoles: BTreeMap::new(),
        };
        self.deployments.insert(new.id, deployment);
        self.nodes.insert(new.phantom, phantom);
        self.effects.deployments.push(new);
    }

    fn use_barclamp(
        &mut self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
        version: Hash,
        why: Why,
    ) -> Result<(), EditError> {
        let mut found = self.deployment(deployment)?.clone();
        let content = self.catalog.barclamp(version)?;
        if content.name != *barclamp {
            return Err(EditError::OtherBarclamp { version, found: content.name.clone(), asked: barclamp.clone() });
        }
        found.barclamps.insert(barclamp.clone(), version);
        self.deployments.insert(deployment, found);
        self.effects.barclamps.push(BarclampUse { deployment, barclamp: barclamp.clone(), version, why });
        Ok(())
    }

    fn add_role(&mut self, deployment: DeploymentId, role: &RoleName, why: Why) -> Result<(), EditError> {
        if self.deployment(deployment)?.roles.contains_key(role) {
            let deployment = self.deployment_name(deployment);
            return Err(EditError::RoleExists { deployment, role: role.clone() });
        }
        let content = self.known_role(deployment, role)?;
        self.check_bindable(deployment, content)?;
        self.join_role(NewRole { deployment, role: role.clone(), content, why });
        Ok(())
    }

    fn known_role(&self, deployment: DeploymentId, role: &RoleName) -> Result<Hash, EditError> {
        self.role_content(deployment, role)?.ok_or_else(|| EditError::UnknownRole {
            deployment: self.deployment_name(deployment),
            role: role.to_string(),
            nearest: self.nearest_role(deployment, role.as_str()),
        })
    }

    fn join_role(&mut self, new: NewRole) {
        if let Ok(found) = self.deployment(new.deployment) {
            let mut found = found.clone();
            found.roles.insert(new.role.clone(), new.content);
            self.deployments.insert(new.deployment, found);
        }
        self.effects.roles.push(new);
    }

    fn set_role_data(
        &mut self,
        deployment: DeploymentId,
        role: &RoleName,
        data: &Value,
        why: Why,
    ) -> Result<(), EditError> {
        let name = self.deployment(deployment)?.name.to_string();
        if !self.deployment(deployment)?.roles.contains_key(role) {
            return Err(EditError::NotARoleHere { deployment: name, role: role.clone() });
        }
        check_object(data).map_err(|error| EditError::Data { subject: format!("{role} in {name}"), error })?;
        let entry = RoleData { deployment, role: role.clone(), data: data.clone(), why };
        replace(&mut self.effects.role_data, entry, |e| (e.deployment, e.role.clone()));
        Ok(())
    }

    fn noderole_on(&self, node: NodeId, noderole: &NoderoleKey) -> Result<&SkeletonNode, EditError> {
        let found = self.node(node)?;
        if !found.noderoles.contains_key(noderole) {
            return Err(EditError::UnknownNoderole { node: found.fqdn.clone(), noderole: noderole.clone() });
        }
        Ok(found)
    }

    fn set_noderole_data(
        &mut self,
        node: NodeId,
        noderole: &NoderoleKey,
        data: &Value,
        why: Why,
    ) -> Result<(), EditError> {
        let fqdn = &self.noderole_on(node, noderole)?.fqdn;
        check_object(data).map_err(|error| EditError::Data { subject: format!("{noderole} on {fqdn}"), error })?;
        let entry = NoderoleData { node, noderole: noderole.clone(), data: data.clone(), why };
        replace(&mut self.effects.noderole_data, entry, |e| (e.node, e.noderole.clone()));
        Ok(())
    }

    fn rerun(&mut self, node: NodeId, noderole: &NoderoleKey, reason: &str, why: Why) -> Result<(), EditError> {
        let fqdn = self.noderole_on(node, noderole)?.fqdn.clone();
        if reason.trim().is_empty() {
            return Err(EditError::NoReason { node: fqdn, noderole: noderole.clone() });
        }
        let entry = Rerun { node, noderole: noderole.clone(), reason: reason.trim().to_owned(), why };
        replace(&mut self.effects.reruns, entry, |e| (e.node, e.noderole.clone()));
        Ok(())
    }

    fn move_node(&mut self, node: NodeId, to: DeploymentId, why: Why) -> Result<(), EditError> {
        let deployment = self.deployment(to)?.name.to_string();
        let found = self.node(node)?;
        if found.phantom {
            return Err(EditError::Phantom(found.fqdn.clone()));
        }
        if found.deployment == to {
            return Err(EditError::AlreadyThere { node: found.fqdn.clone(), deployment });
        }
        let chain = self.chain(to);
        if let Some((noderole, carried)) = found.noderoles.iter().find(|(_, n)| !chain.contains(&n.deployment)) {
            return Err(EditError::WouldLeaveBehind {
                node: found.fqdn.clone(),
                noderole: noderole.clone(),
                deployment: self.deployment_name(carried.deployment),
            });
        }
        self.join_move(node, to, why);
        Ok(())
    }

    fn join_move(&mut self, node: NodeId, to: DeploymentId, why: Why) {
        let Ok(found) = self.node(node) else { return };
        let mut found = found.clone();
        let from = std::mem::replace(&mut found.deployment, to);
        self.nodes.insert(node, found);
        self.effects.moved.push(Moved { node, from, to, why });
    }

    // Binding.

    fn bind(&mut self, deployment: DeploymentId, node: NodeId, role: &RoleName, seq: u32) -> Result<(), EditError> {
        self.deployment(deployment)?;
        let found = self.node(node)?;
        if found.phantom {
            return Err(EditError::Phantom(found.fqdn.clone()));
        }
        let moves = self.moves_along(found, deployment)?;
        let content = self.known_role(deployment, role)?;
        if found.noderoles.contains_key(&NoderoleKey::first(role.clone())) {
            return Err(EditError::AlreadyBound { role: role.clone(), node: found.fqdn.clone() });
        }
        let mut sprout = Sprout::default();
        self.sprout(&mut sprout, deployment, node, content, Why::Asked { edit: seq })?;
        if moves {
            self.join_move(node, deployment, Why::Brought { edit: seq, by: role.clone(), implicit: false });
        }
        self.join(sprout);
        Ok(())
    }

    /// Whether binding here takes the node along; refused where it belongs to somebody beside the deployment.
    fn moves_along(&self, node: &SkeletonNode, deployment: DeploymentId) -> Result<bool, EditError> {
        if self.chain(node.deployment).contains(&deployment) {
            return Ok(false);
        }
        if self.chain(deployment).contains(&node.deployment) {
            return Ok(true);
        }
        Err(EditError::Sibling {
            node: node.fqdn.clone(),
            owner: self.deployment_name(node.deployment),
            deployment: self.deployment_name(deployment),
        })
    }

    /// Works out one noderole and whatever it brings along.
    fn sprout(
        &self,
        sprout: &mut Sprout,
        deployment: DeploymentId,
        node: NodeId,
        content: Hash,
        why: Why,
    ) -> Result<Parent, EditError> {
        let role = Arc::clone(self.catalog.role(content)?);
        if let Some(start) = sprout.path.iter().position(|r| *r == role.name) {
            let mut cycle = sprout.path[start..].to_vec();
            cycle.push(role.name.clone());
            return Err(EditError::Cycle(cycle));
        }
        if sprout.path.len() >= MAX_DEPTH {
            return Err(EditError::TooDeep(sprout.path.first().unwrap_or(&role.name).clone()));
        }
        self.check_bindable(deployment, content)?;
        self.check_neighbours(sprout, node, &role)?;

        sprout.path.push(role.name.clone());
        let mut parents = Vec::new();
        for required in self.wanted(deployment, &role)? {
            parents.push(self.parent(sprout, deployment, node, &role, &required, why.edit())?);
        }
        sprout.path.pop();

        let key = NoderoleKey::first(role.name.clone());
        let rank = parents.iter().map(|p| p.rank + 1).max().unwrap_or(0);
        let edges: BTreeSet<EdgeDoc> = parents.iter().map(|p| EdgeDoc { parent: p.id, kind: EdgeKind::Hard }).collect();
        let id = key.id(node);
        let known = self.deployment(deployment)?.roles.contains_key(&role.name)
            || sprout.roles.iter().any(|r| r.role == role.name);
        if !known {
            let new = NewRole { deployment, role: role.name.clone(), content, why: why.clone() };
            sprout.roles.push(new);
        }
        let parents = edges.into_iter().collect();
        sprout.bound.push(Bound { id, node, noderole: key, deployment, role: content, rank, parents, why });
        Ok(Parent { id, rank })
    }

    /// The roles whose noderoles become parents, each once, in the order of the file, the jig's client role last.
    fn wanted(&self, deployment: DeploymentId, role: &Role) -> Result<Vec<RoleName>, EditError> {
        let mut wanted = role.requires.clone();
        for id in self.chain(deployment) {
            for pin in self.deployment(id)?.barclamps.values() {
                let client = self.catalog.barclamp(*pin)?.jigs.get(&role.jig).and_then(|jig| jig.client_role.clone());
                wanted.extend(client.filter(|client| *client != role.name));
            }
        }
        let mut seen = BTreeSet::new();
        wanted.retain(|name| seen.insert(name.clone()));
        Ok(wanted)
    }

    fn parent(
        &self,
        sprout: &mut Sprout,
        deployment: DeploymentId,
        node: NodeId,
        child: &Role,
        required: &RoleName,
        edit: u32,
    ) -> Result<Parent, EditError> {
        if let Some(parent) = self.on_node(sprout, node, required)? {
            return Ok(parent);
        }
        let content = self.required_content(deployment, required)?;
        let implicit = match content {
            Some(hash) => self.catalog.role(hash)?.flags.implicit,
            None => false,
        };
        if !implicit && let Some(parent) = self.in_chain(deployment, required) {
            return Ok(parent);
        }
        let content = content.ok_or_else(|| EditError::UnresolvedRequire {
            deployment: self.deployment_name(deployment),
            role: child.name.clone(),
            requires: required.clone(),
            nearest: self.nearest_role(deployment, required.as_str()),
        })?;
        self.sprout(sprout, deployment, node, content, Why::Brought { edit, by: child.name.clone(), implicit })
    }

    fn on_node(&self, sprout: &Sprout, node: NodeId, name: &RoleName) -> Result<Option<Parent>, EditError> {
        for bound in sprout.bound.iter().filter(|b| b.node == node) {
            if self.catalog.role(bound.role)?.answers_to(name) {
                return Ok(Some(Parent { id: bound.id, rank: bound.rank }));
            }
        }
        for (key, noderole) in &self.node(node)?.noderoles {
            if self.catalog.role(noderole.role)?.answers_to(name) {
                return Ok(Some(Parent { id: key.id(node), rank: noderole.rank }));
            }
        }
        Ok(None)
    }

    fn in_chain(&self, deployment: DeploymentId, name: &RoleName) -> Option<Parent> {
        let answer = self.chain(deployment).into_iter().find_map(|id| self.answering(id, name))?;
        let rank = self.node(answer.node).ok()?.noderoles.get(&answer.key)?.rank;
        Some(Parent { id: answer.key.id(answer.node), rank })
    }

    fn check_bindable(&self, deployment: DeploymentId, content: Hash) -> Result<(), EditError> {
        let role = self.catalog.role(content)?;
        if role.flags.is_abstract {
            let providers = self.providers(deployment, &role.name)?.into_keys().collect();
            return Err(EditError::Abstract { role: role.name.clone(), providers });
        }
        if let JigClass::Other(class) = &role.jig_class {
            let (jig, class) = (role.jig.to_string(), class.clone());
            return Err(EditError::NoSuchJig { role: role.name.clone(), jig, class });
        }
        Ok(())
    }

    fn check_neighbours(&self, sprout: &Sprout, node: NodeId, role: &Role) -> Result<(), EditError> {
        let found = self.node(node)?;
        let there = found.noderoles.values().map(|n| n.role);
        let coming = sprout.bound.iter().filter(|b| b.node == node).map(|b| b.role);
        for content in there.chain(coming) {
            let other = self.catalog.role(content)?;
            if excludes(role, other) || excludes(other, role) {
                return Err(EditError::Conflict {
                    role: role.name.clone(),
                    with: other.name.clone(),
                    node: found.fqdn.clone(),
                });
            }
            if other.name != role.name
                && let Some(name) = role.names().find(|name| other.answers_to(name))
            {
                return Err(EditError::ProvidedTwice {
                    role: role.name.clone(),
                    with: other.name.clone(),
                    name: name.clone(),
                    node: found.fqdn.clone(),
                });
            }
        }
        Ok(())
    }

    /// Joins what held to the draft.
    fn join(&mut self, sprout: Sprout) {
        for role in sprout.roles {
            self.join_role(role);
        }
        for bound in sprout.bound {
            let Ok(node) = self.node(bound.node) else { continue };
            let mut node = node.clone();
            let noderole = SkeletonNoderole {
                deployment: bound.deployment,
                role: bound.role,
                rank: bound.rank,
                parents: bound.parents.clone(),
            };
            if let Ok(role) = self.catalog.role(bound.role) {
                for name in role.names() {
                    let answer = Answer { fqdn: node.fqdn.clone(), node: bound.node, key: bound.noderole.clone() };
                    self.answering.entry((bound.deployment, name.clone())).or_default().insert(answer);
                }
            }
            node.noderoles.insert(bound.noderole.clone(), noderole);
            self.nodes.insert(bound.node, node);
            self.effects.bound.push(bound);
        }
    }
}

fn check_object(data: &Value) -> Result<(), DataError> {
    if !data.is_object() {
        let found = match data {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        return Err(DataError::NotAnObject { what: "data of a role".into(), found });
    }
    data::check(data)?;
    match has_nul(data) {
        true => Err(DataError::NotCanonical {
            reason: "a text in it has the character U+0000, which PostgreSQL can't keep".into(),
        }),
        false => Ok(()),
    }
}

/// To be asked behind the check of depth only.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(has_nul),
        Value::Object(map) => map.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

fn excludes(role: &Role, other: &Role) -> bool {
    other.name != role.name && other.names().any(|name| role.conflicts.contains(name) && !role.provides.contains(name))
}

/// Puts an entry in place of an earlier one with the same key: the last word counts.
fn replace<T, K: PartialEq>(entries: &mut Vec<T>, entry: T, key: impl Fn(&T) -> K) {
    let wanted = key(&entry);
    entries.retain(|e| key(e) != wanted);
    entries.push(entry);
}

/// The most similar of several names, if one is similar at all.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let scored = names.map(|other| (strsim::damerau_levenshtein(name, other), other));
    let (distance, best) = scored.min()?;
    (distance <= 2 + name.len() / 4).then(|| best.to_owned())
}

/// A phantom node's name: derived from the deployment's id, so that it never collides.
pub fn phantom_fqdn(deployment: DeploymentId) -> Fqdn {
    let text = format!("d-{}.phantom.gantry.internal", deployment.0.simple());
    // Hexadecimal digits and fixed labels: always a domain name.
    Fqdn::parse(&text).unwrap_or_else(|_| unreachable!("{text} is a domain name"))
}
