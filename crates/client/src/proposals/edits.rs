//! The edits that lead from the current state to the declared one.
//!
//! This module is pure; [`super::apply`] fetches the current state.
//!
//! Invariants:
//! * The edits of a document are idempotent: applying it again produces no edits. Bindings also add
//!   the roles that they require. So a document never unbinds these ([`Planner::required`]).
//! * New data is checked against its role before a proposal is opened. The server uses the same
//!   function ([`engine::data::fit`]). Existing data is not checked, because it does not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::deployments::{AttribView, DeclaredRole, DeploymentDeclaration};
use engine::Hash;
use engine::catalog::read::PositionedYaml;
use engine::cluster::{NoderoleKey, phantom};
use engine::data::fit::{Expected, layer_errors};
use engine::data::merge;
use engine::ids::{BarclampName, DeploymentId, DeploymentName, NodeId, RoleName};
use engine::plan::{Edit, MAX_LISTED, edit};
use serde_json::{Map, Value, json};

use crate::names::near;
use crate::proposals::declaration::{Declaration, DeclarationError, Positioned};

/// The current state, with the open proposal's edits.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeploymentSnapshot {
    /// Roles of the deployment.
    pub(crate) roles: BTreeMap<RoleName, CurrentRole>,
    /// Roles that can be added.
    pub(crate) choices: BTreeMap<RoleName, ExpectedData>,
    /// Nodes by name, as the document writes it.
    pub(crate) nodes: BTreeMap<String, (NodeId, String)>,
    /// User data of the noderoles in the document. A noderole that does not exist has none.
    pub(crate) own: BTreeMap<(NodeId, NoderoleKey), Map<String, Value>>,
    /// The deployment, if the document declares more than bindings and data.
    pub(crate) place: Option<CurrentDeployment>,
}

/// A deployment with its versions and members.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CurrentDeployment {
    pub(crate) state: DeploymentDeclaration,
    pub(crate) parent: Option<DeploymentId>,
    /// The declared parent, if an existing deployment is below another one.
    pub(crate) moves_to: Option<DeploymentId>,
    /// The phantom node to create the deployment with, if it does not exist.
    pub(crate) new: Option<NodeId>,
    /// The declared versions that the catalog has.
    pub(crate) versions: BTreeMap<(BarclampName, String), Hash>,
    /// Members by name, for those that the document does not list.
    pub(crate) members: BTreeMap<String, NodeId>,
}

/// A role of the deployment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CurrentRole {
    pub(crate) bindable: bool,
    pub(crate) data: Value,
    pub(crate) expects: ExpectedData,
    /// Whether it runs on the deployment's phantom node, so that a list may name any node.
    pub(crate) service: bool,
    /// Whether it is always on the node of the role that requires it.
    pub(crate) implicit: bool,
    pub(crate) bound_nodes: RoleMembers,
}

/// The nodes that have a role, with their names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RoleMembers {
    pub(crate) nodes: BTreeMap<NodeId, String>,
    /// Those among them that the open proposal adds only because another role requires the role.
    /// Binding them again marks them as requested.
    pub(crate) added: BTreeSet<NodeId>,
}

impl RoleMembers {
    /// Whether the role is bound to a node, and not only because another role requires it.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node) && !self.added.contains(&node)
    }
}

/// Expected data of a role. Empty if it is unknown; then only the server checks the data.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ExpectedData {
    pub(crate) attribs: Vec<AttribView>,
    /// Default values from the role's template.
    pub(crate) below: Value,
}

/// An edit with its description.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) edit: Edit,
    pub(crate) summary: String,
}

/// The edits that lead from the current to the declared state. Roles are added before their data
/// and bindings, and replacements are bound before anything is unbound.
pub(crate) fn edits(
    id: DeploymentId,
    declared: &Declaration,
    present: &DeploymentSnapshot,
) -> Result<Vec<Step>, Vec<DeclarationError>> {
    let planner = Planner { id, declared, present };
    let wrong = planner.check();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut all = planner.created();
    all.extend(planner.moved());
    all.extend(planner.versions());
    all.extend(planner.members());
    all.extend(planner.roles());
    all.extend(planner.data());
    all.extend(planner.bound());
    all.extend(planner.own());
    all.extend(planner.unbind_extra());
    all.extend(planner.removed_roles());
    all.extend(planner.inherited_versions());
    all.extend(planner.removed_members());
    Ok(all)
}

struct Planner<'p> {
    id: DeploymentId,
    declared: &'p Declaration,
    present: &'p DeploymentSnapshot,
}

impl Planner<'_> {
    fn check(&self) -> Vec<DeclarationError> {
        let Self { declared, present, .. } = self;
        let mut wrong = Vec::new();
        let bound =
            declared.bindings.iter().map(|(role, nodes)| (role, nodes.at, !nodes.is.is_empty()));
        let data = declared.data.iter().map(|(role, data)| (role, data.position(""), false));
        let listed = declared.roles.iter().map(|(role, at)| (role, *at, false));
        for (role, at, binds) in bound.chain(data).chain(listed) {
            match present.roles.get(role) {
                Some(current) if binds && !current.bindable => {
                    wrong.push(declared.error(
                        at,
                        format!(
                            "Role {role} can't be bound directly. Gantry adds it when another \
                            role requires it."
                        ),
                    ));
                }
                Some(_) => {}
                None if present.choices.contains_key(role) || self.changes_catalog() => {}
                None => {
                    let known =
                        present.roles.keys().chain(present.choices.keys()).map(RoleName::as_str);
                    let near = near(role.as_str(), known);
                    let deployment = &declared.deployment.is;
                    wrong.push(declared.error(
                        at,
                        format!(
                            "Deployment {deployment} has no role {role}, and no role of that \
                            name can be added{near}."
                        ),
                    ));
                }
            }
        }
        for (node, at) in
            declared.nodes().into_iter().filter(|(node, _)| !present.nodes.contains_key(*node))
        {
            wrong.push(declared.error(at, format!("Node {node:?} does not exist.")));
        }
        for member in &declared.members {
            let node = present.nodes.get(&member.is).map(|(_, name)| name.as_str());
            if node.is_some_and(|name| phantom::deployment_of(name).is_some()) {
                let message = format!(
                    "Node {} is a phantom node, which always belongs to its deployment. Remove it \
                     from `members`.",
                    member.is
                );
                wrong.push(declared.error(member.at, message));
            }
        }
        wrong.extend(self.misplaced());
        wrong.extend(self.doubled());
        wrong.extend(self.data_errors());
        wrong
    }

    /// Whether the document changes which roles the deployment sees. Only the server then knows
    /// them.
    fn changes_catalog(&self) -> bool {
        let Some(place) = &self.present.place else { return false };
        place.new.is_some() || place.moves_to.is_some() || !self.versions().is_empty()
    }

    /// Errors of the root's parent and of versions.
    fn misplaced(&self) -> Vec<DeclarationError> {
        let (declared, Some(place)) = (self.declared, &self.present.place) else {
            return Vec::new();
        };
        let mut wrong = Vec::new();
        if let (Some(parent), None) = (&declared.parent, &place.state.parent) {
            let message = format!(
                "Deployment {} is the root and can't have a parent. Remove the key parent.",
                declared.deployment.is
            );
            wrong.push(declared.error(parent.at, message));
        }
        for (barclamp, version) in &declared.versions {
            let key = (barclamp.clone(), version.is.clone());
            if !place.versions.contains_key(&key) {
                wrong.push(declared.error(
                    version.at,
                    format!(
                        "Barclamp {barclamp} has no version {}. List its versions with `gantry \
                         barclamp list`.",
                        version.is
                    ),
                ));
            }
        }
        wrong
    }

    /// The deployment itself, if it does not exist.
    fn created(&self) -> Vec<Step> {
        let name = &self.declared.deployment.is;
        let new = self.present.place.as_ref().and_then(|place| place.new.zip(place.parent));
        let step = |(phantom, parent)| Step {
            edit: Edit::CreateDeployment(edit::CreateDeployment {
                id: self.id,
                phantom,
                name: name.clone(),
                parent,
            }),
            summary: format!("+ deployment {name}"),
        };
        new.map(step).into_iter().collect()
    }

    /// The move below the declared parent. It comes before everything that depends on the versions
    /// of the ancestors.
    fn moved(&self) -> Vec<Step> {
        let place = self.present.place.as_ref();
        let step = |(parent, name): (DeploymentId, &Positioned<DeploymentName>)| Step {
            edit: edit::MoveDeployment { deployment: self.id, parent }.into(),
            summary: format!("* parent: {}", name.is),
        };
        let to = place.and_then(|place| place.moves_to).zip(self.declared.parent.as_ref());
        to.map(step).into_iter().collect()
    }

    /// The declared versions that the deployment does not pin yet.
    fn versions(&self) -> Vec<Step> {
        let Some(place) = &self.present.place else { return Vec::new() };
        let missing = self.declared.versions.iter().filter_map(|(barclamp, version)| {
            let pinned = place.state.versions.get(barclamp);
            let key = (barclamp.clone(), version.is.clone());
            let hash = place.versions.get(&key).filter(|_| pinned != Some(&version.is))?;
            Some(Step {
                edit: Edit::UseBarclamp(edit::UseBarclamp {
                    deployment: self.id,
                    barclamp: barclamp.clone(),
                    version: *hash,
                }),
                summary: format!("+ version {} of {barclamp}", version.is),
            })
        });
        missing.collect()
    }

    /// The versions that a complete document does not pin any more.
    fn inherited_versions(&self) -> Vec<Step> {
        let Some(place) = self.complete() else { return Vec::new() };
        let extra = place.state.versions.iter();
        let extra = extra.filter(|(barclamp, _)| !self.declared.versions.contains_key(*barclamp));
        let step = |(barclamp, version): (&BarclampName, &String)| Step {
            edit: Edit::InheritBarclamp(edit::InheritBarclamp {
                deployment: self.id,
                barclamp: barclamp.clone(),
            }),
            summary: format!("- version {version} of {barclamp}"),
        };
        extra.map(step).collect()
    }

    /// The declared members that are in another deployment.
    fn members(&self) -> Vec<Step> {
        let Some(place) = &self.present.place else { return Vec::new() };
        let missing = self
            .known_nodes(&self.declared.members)
            .filter(|(_, name)| !place.state.members.iter().any(|member| member == name));
        missing.map(|(node, name)| moved(node, self.id, format!("+ member {name}"))).collect()
    }

    /// The members that a complete document does not list. They go to the parent.
    fn removed_members(&self) -> Vec<Step> {
        let Some((place, parent)) = self.complete().and_then(|place| Some((place, place.parent?)))
        else {
            return Vec::new();
        };
        let listed: BTreeSet<NodeId> =
            self.known_nodes(&self.declared.members).map(|(node, _)| node).collect();
        let extra = place.members.iter().filter(|(_, node)| !listed.contains(node));
        extra.map(|(name, node)| moved(*node, parent, format!("- member {name}"))).collect()
    }

    /// The deployment, if the document declares it completely.
    fn complete(&self) -> Option<&CurrentDeployment> {
        self.present.place.as_ref().filter(|_| self.declared.complete)
    }

    /// The roles that a document names.
    fn named_roles(&self) -> BTreeSet<&RoleName> {
        let bound = self.declared.bindings.iter().filter(|(_, nodes)| !nodes.is.is_empty());
        let named = bound.map(|(role, _)| role).chain(self.declared.data.keys());
        named.chain(self.declared.roles.keys()).collect()
    }

    /// The roles that a complete document keeps: those that it names, those that they require, and
    /// those that other deployments require.
    fn retained_roles<'w>(&'w self, place: &'w CurrentDeployment) -> BTreeSet<&'w RoleName> {
        let roles = &place.state.roles;
        let elsewhere = roles.iter().filter(|(_, role)| role.required_elsewhere);
        let mut retained = self.named_roles();
        let mut open: Vec<&RoleName> =
            retained.iter().copied().chain(elsewhere.map(|(role, _)| role)).collect();
        while let Some(role) = open.pop() {
            retained.insert(role);
            let required = roles.get(role).into_iter().flat_map(|role| &role.requires);
            open.extend(required.filter(|role| !retained.contains(*role)));
        }
        retained
    }

    /// The roles that a complete document does not keep.
    fn extra_roles(&self) -> Vec<&RoleName> {
        let Some(place) = self.complete() else { return Vec::new() };
        let retained = self.retained_roles(place);
        place.state.roles.keys().filter(|role| !retained.contains(*role)).collect()
    }

    fn removed_roles(&self) -> Vec<Step> {
        let step = |role: &RoleName| Step {
            edit: Edit::RemoveRole(edit::RemoveRole { deployment: self.id, role: role.clone() }),
            summary: format!("- role {role}"),
        };
        self.extra_roles().into_iter().map(step).collect()
    }

    /// Errors of new data that does not fit its role.
    fn data_errors(&self) -> Vec<DeclarationError> {
        let mut wrong = Vec::new();
        for (role, data) in self.changed_data() {
            let Some(expects) = self.expects(role) else { continue };
            wrong.extend(self.schema_errors(data, expects, &expects.below, false, role));
        }
        for (_, _, noderole, data) in self.changed_user_data() {
            let Some(expects) = self.expects(&noderole.role) else { continue };
            wrong.extend(self.schema_errors(
                data,
                expects,
                &self.user_data_defaults(noderole, expects),
                true,
                noderole,
            ));
        }
        wrong
    }

    /// Defaults of a noderole's user data: the role's declared or current data, merged over the
    /// template.
    fn user_data_defaults(&self, noderole: &NoderoleKey, expects: &ExpectedData) -> Value {
        let declared =
            self.declared.data.get(&noderole.role).and_then(|data| data.value.as_object());
        let role_data = shown(declared.or_else(|| self.current_data(&noderole.role)));
        match expects.below.is_null() {
            true => role_data,
            false => merge(&expects.below, &role_data).unwrap_or_default(),
        }
    }

    fn expects(&self, role: &RoleName) -> Option<&ExpectedData> {
        self.present
            .roles
            .get(role)
            .map(|current| &current.expects)
            .or_else(|| self.present.choices.get(role))
    }

    fn schema_errors(
        &self,
        data: &PositionedYaml,
        expects: &ExpectedData,
        below: &Value,
        require_all: bool,
        subject: impl fmt::Display,
    ) -> Vec<DeclarationError> {
        let expected = expects.attribs.iter().filter_map(|attrib| {
            Some(Expected {
                name: &attrib.name,
                path: &attrib.path,
                schema: attrib.schema.as_ref()?,
            })
        });
        // Data that is too deeply nested to check here is rejected by the server.
        let found = layer_errors(&data.value, below, expected, require_all).unwrap_or_default();
        let wrong = |path: &str, message: &str| {
            let place = data.position(written(&data.value, path));
            self.declared.error(place, format!("Invalid data of {subject}: {path} {message}."))
        };
        found.iter().map(|error| wrong(&error.path, &error.problem)).collect()
    }

    /// Data of roles that differs from the current data.
    fn changed_data(&self) -> Vec<(&RoleName, &PositionedYaml)> {
        let is_new = |(role, data): &(&RoleName, &PositionedYaml)| {
            !is_current(self.current_data(role), &data.value)
        };
        self.declared.data.iter().filter(is_new).collect()
    }

    fn current_data(&self, role: &RoleName) -> Option<&Map<String, Value>> {
        self.present.roles.get(role).and_then(|current| current.data.as_object())
    }

    /// User data of noderoles that differs from the current data, with node id and name.
    fn changed_user_data(&self) -> Vec<(NodeId, &str, &NoderoleKey, &PositionedYaml)> {
        let mut all = Vec::new();
        for (node, roles) in &self.declared.node_data {
            let Some((id, name)) = self.present.nodes.get(node) else { continue };
            let (id, name) = (*id, name.as_str());
            let new = roles.is.iter().filter(|(noderole, data)| {
                !is_current(self.current_user_data(id, noderole), &data.value)
            });
            all.extend(new.map(move |(noderole, data)| (id, name, noderole, data)));
        }
        all
    }

    fn current_user_data(
        &self,
        node: NodeId,
        noderole: &NoderoleKey,
    ) -> Option<&Map<String, Value>> {
        self.present.own.get(&(node, noderole.clone()))
    }

    /// Errors of nodes that are twice in one list, even under different names.
    fn doubled(&self) -> Vec<DeclarationError> {
        let mut wrong = Vec::new();
        for (role, nodes) in &self.declared.bindings {
            let mut seen = BTreeSet::new();
            for node in &nodes.is {
                let id = self.present.nodes.get(&node.is).map(|(id, _)| *id);
                if id.is_some_and(|id| !seen.insert(id)) {
                    wrong.push(
                        self.declared.error(
                            node.at,
                            format!("Node {} is listed twice for {role}.", node.is),
                        ),
                    );
                }
            }
        }
        wrong
    }

    fn known_nodes<'w>(
        &'w self,
        nodes: &'w [Positioned<String>],
    ) -> impl Iterator<Item = (NodeId, &'w str)> {
        nodes
            .iter()
            .filter_map(|node| self.present.nodes.get(&node.is))
            .map(|(id, name)| (*id, name.as_str()))
    }

    fn roles(&self) -> Vec<Step> {
        let missing =
            self.named_roles().into_iter().filter(|role| !self.present.roles.contains_key(*role));
        let step = |role: &RoleName| Step {
            edit: Edit::AddRole(edit::AddRole { deployment: self.id, role: role.clone() }),
            summary: format!("+ role {role}"),
        };
        missing.map(step).collect()
    }

    fn data(&self) -> Vec<Step> {
        let step = |(role, data): (&RoleName, &PositionedYaml)| {
            let (current, data) = (shown(self.current_data(role)), &data.value);
            let edit = Edit::SetRoleData(edit::SetRoleData {
                deployment: self.id,
                role: role.clone(),
                data: data.clone(),
            });
            Step { edit, summary: format!("* data of {role}: {current} -> {data}") }
        };
        let mut steps: Vec<Step> = self.changed_data().into_iter().map(step).collect();
        steps.extend(self.dropped_data());
        steps
    }

    /// The data of roles that a complete document does not have.
    fn dropped_data(&self) -> Vec<Step> {
        let Some(place) = self.complete() else { return Vec::new() };
        let retained = self.retained_roles(place);
        let dropped = place.state.roles.iter().filter(|(role, current)| {
            let has_data = current.data.as_object().is_some_and(|data| !data.is_empty());
            has_data && retained.contains(*role) && !self.declared.data.contains_key(*role)
        });
        let step = |(role, current): (&RoleName, &DeclaredRole)| Step {
            edit: Edit::SetRoleData(edit::SetRoleData {
                deployment: self.id,
                role: role.clone(),
                data: json!({}),
            }),
            summary: format!("* data of {role}: {} -> {{}}", current.data),
        };
        dropped.map(step).collect()
    }

    /// The user data of remaining noderoles that a complete document does not have.
    fn dropped_own(&self) -> Vec<Step> {
        let Some(place) = self.complete() else { return Vec::new() };
        let (extra, required) = (self.extra_roles(), self.required());
        let mut steps = Vec::new();
        for (name, roles) in &place.state.node_data {
            for (noderole, data) in roles.iter().filter(|(key, _)| !extra.contains(&&key.role)) {
                let bound_nodes =
                    self.present.roles.get(&noderole.role).map(|role| &role.bound_nodes);
                let mut nodes = bound_nodes.into_iter().flat_map(|bound_nodes| &bound_nodes.nodes);
                let Some((node, _)) = nodes.find(|(_, carrier)| *carrier == name) else { continue };
                let is_unbound = !required.contains(&(&noderole.role, name.as_str()))
                    && self.declared.bindings.get(&noderole.role).is_some_and(|nodes| {
                        self.known_nodes(&nodes.is).all(|(listed, _)| listed != *node)
                    });
                if is_unbound || self.present.own.contains_key(&(*node, noderole.clone())) {
                    continue;
                }
                let edit = Edit::SetNoderoleData(edit::SetNoderoleData {
                    node: *node,
                    noderole: noderole.clone(),
                    data: json!({}),
                });
                let summary = format!("* data of {noderole} on {name}: {data} -> {{}}");
                steps.push(Step { edit, summary });
            }
        }
        steps
    }

    fn bound(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (role, nodes) in &self.declared.bindings {
            let current = self.present.roles.get(role);
            if current
                .is_some_and(|current| current.service && !current.bound_nodes.nodes.is_empty())
            {
                continue;
            }
            let missing: BTreeMap<NodeId, &str> = self
                .known_nodes(&nodes.is)
                .filter(|(id, _)| current.is_none_or(|current| !current.bound_nodes.has(*id)))
                .collect();
            steps.extend(bound(self.id, role, &missing));
        }
        steps
    }

    fn own(&self) -> Vec<Step> {
        let step = |(node, name, noderole, data): (NodeId, &str, &NoderoleKey, &PositionedYaml)| {
            let (current, data) = (shown(self.current_user_data(node, noderole)), &data.value);
            let edit = Edit::SetNoderoleData(edit::SetNoderoleData {
                node,
                noderole: noderole.clone(),
                data: data.clone(),
            });
            Step { edit, summary: format!("* data of {noderole} on {name}: {current} -> {data}") }
        };
        let mut steps: Vec<Step> = self.changed_user_data().into_iter().map(step).collect();
        steps.extend(self.dropped_own());
        steps
    }

    /// The noderoles, by role and node, that the declared bindings require. They stay bound on
    /// nodes that the list of their role omits, because binding would add them again.
    ///
    /// A noderole requires another one on its own node. If that role is not implicit and the
    /// document lists nodes for it, one of these replaces it. If it is not implicit and has no node
    /// here, all its remaining noderoles count.
    fn required(&self) -> BTreeSet<(&RoleName, &str)> {
        let Some(place) = &self.present.place else { return BTreeSet::new() };
        let state = &place.state;
        let phantom = state.roles.iter().filter(|(role, _)| self.is_service(role));
        let phantom = phantom.flat_map(|(_, found)| &found.nodes).next().map(String::as_str);
        let node_of = |role: &RoleName, node| match self.is_service(role) {
            true => phantom.unwrap_or(node),
            false => node,
        };
        let mut open: Vec<(&RoleName, &str)> = Vec::new();
        for (role, nodes) in &self.declared.bindings {
            open.extend(self.known_nodes(&nodes.is).map(|(_, name)| (role, node_of(role, name))));
        }
        let listed: BTreeSet<(&RoleName, &str)> = open.iter().copied().collect();
        let (mut seen, mut required) = (listed.clone(), BTreeSet::new());
        while let Some((role, node)) = open.pop() {
            for needed in state.roles.get(role).into_iter().flat_map(|role| &role.requires) {
                let Some(found) = state.roles.get(needed) else { continue };
                let expected_node = node_of(needed, node);
                let is_expected = |name: &&str| *name == expected_node;
                let nodes = found.nodes.iter().map(String::as_str);
                let mut next: Vec<&str> = nodes.clone().filter(is_expected).collect();
                if !self.is_implicit(needed) {
                    if self.declared.bindings.get(needed).is_some_and(|list| !list.is.is_empty()) {
                        next.retain(|name| listed.contains(&(needed, *name)));
                    } else if next.is_empty() {
                        next.extend(nodes);
                    }
                }
                required.extend(next.iter().map(|name| (needed, *name)));
                let new = next.into_iter().map(|name| (needed, name));
                open.extend(new.filter(|noderole| seen.insert(*noderole)));
            }
        }
        required
    }

    fn is_service(&self, role: &RoleName) -> bool {
        self.present.roles.get(role).is_some_and(|current| current.service)
    }

    fn is_implicit(&self, role: &RoleName) -> bool {
        self.present.roles.get(role).is_some_and(|current| current.implicit)
    }

    fn unbind_extra(&self) -> Vec<Step> {
        let (required, mut steps) = (self.required(), Vec::new());
        for (role, nodes) in self.declared.bindings.iter().filter(|_| self.declared.prune) {
            let Some(current) = self.present.roles.get(role) else { continue };
            if current.service && !nodes.is.is_empty() {
                continue;
            }
            let declared_ids: BTreeSet<NodeId> =
                self.known_nodes(&nodes.is).map(|(id, _)| id).collect();
            let extra: BTreeMap<NodeId, &str> = current
                .bound_nodes
                .nodes
                .iter()
                .map(|(id, name)| (*id, name.as_str()))
                .filter(|(id, name)| {
                    !declared_ids.contains(id) && !required.contains(&(role, *name))
                })
                .collect();
            steps.extend(unbound(&NoderoleKey::first(role.clone()), &extra));
        }
        for role in self.extra_roles() {
            let Some(current) = self.present.roles.get(role) else { continue };
            let nodes =
                current.bound_nodes.nodes.iter().map(|(id, name)| (*id, name.as_str())).collect();
            // An empty list in `bindings` unbinds the role already.
            if !self.declared.bindings.contains_key(role) {
                steps.extend(unbound(&NoderoleKey::first(role.clone()), &nodes));
            }
        }
        steps
    }
}

fn moved(node: NodeId, deployment: DeploymentId, summary: String) -> Step {
    Step { edit: Edit::MoveNode(edit::MoveNode { node, deployment }), summary }
}

/// Whether data equals the current data. Absent data equals an empty map.
fn is_current(current: Option<&Map<String, Value>>, data: &Value) -> bool {
    match current {
        Some(current) => data.as_object() == Some(current),
        None => data.as_object().is_some_and(Map::is_empty),
    }
}

fn shown(current: Option<&Map<String, Value>>) -> Value {
    Value::Object(current.cloned().unwrap_or_default())
}

/// The path, or its nearest ancestor that exists in the data. A missing value has no position.
fn written<'p>(data: &Value, mut path: &'p str) -> &'p str {
    while data.pointer(path).is_none() {
        path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    path
}

/// The edits that bind a role to nodes.
pub(crate) fn bound(
    deployment: DeploymentId,
    role: &RoleName,
    nodes: &BTreeMap<NodeId, &str>,
) -> Vec<Step> {
    listed(nodes, &format!("+ {role} on"), |nodes| {
        Edit::BindNodes(edit::BindNodes { deployment, role: role.clone(), nodes })
    })
}

/// The edits that unbind a noderole from nodes.
pub(crate) fn unbound(noderole: &NoderoleKey, nodes: &BTreeMap<NodeId, &str>) -> Vec<Step> {
    listed(nodes, &format!("- {noderole} from"), |nodes| {
        Edit::UnbindNodes(edit::UnbindNodes { noderole: noderole.clone(), nodes })
    })
}

/// Splits the nodes into edits of at most 1,000 nodes. No edits for no nodes.
fn listed(
    nodes: &BTreeMap<NodeId, &str>,
    summary: &str,
    edit: impl Fn(BTreeSet<NodeId>) -> Edit,
) -> Vec<Step> {
    let mut nodes: Vec<(&str, NodeId)> = nodes.iter().map(|(id, name)| (*name, *id)).collect();
    nodes.sort_unstable();
    let step = |chunk: &[(&str, NodeId)]| Step {
        edit: edit(chunk.iter().map(|(_, id)| *id).collect()),
        summary: format!(
            "{summary} {}",
            chunk.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        ),
    };
    nodes.chunks(MAX_LISTED).map(step).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use crate::proposals::declaration::read;

    use super::*;

    const WEB: DeploymentId = DeploymentId(Uuid::nil());

    fn node(n: u128) -> NodeId {
        NodeId(Uuid::from_u128(n))
    }

    fn role(name: &str) -> RoleName {
        RoleName::parse(name).unwrap()
    }

    /// `app` on n1 and n2, `proxy` on no node, `runtime` required on n1; `cache` can be added.
    fn present() -> DeploymentSnapshot {
        let current_role = |bindable, data: Value, on: &[u128]| CurrentRole {
            bindable,
            data,
            expects: ExpectedData::default(),
            service: false,
            implicit: false,
            bound_nodes: RoleMembers {
                nodes: on.iter().map(|n| (node(*n), format!("n{n}.demo"))).collect(),
                added: BTreeSet::new(),
            },
        };
        DeploymentSnapshot {
            roles: BTreeMap::from([
                (role("app"), current_role(true, json!({"port": 80}), &[1, 2])),
                (role("proxy"), current_role(true, json!({}), &[])),
                (role("runtime"), current_role(false, Value::Null, &[1])),
            ]),
            choices: BTreeMap::from([(role("cache"), ExpectedData::default())]),
            nodes: (1..=3)
                .flat_map(|n| {
                    [
                        (format!("n{n}"), (node(n), format!("n{n}.demo"))),
                        (format!("n{n}.demo"), (node(n), format!("n{n}.demo"))),
                    ]
                })
                .chain([("phantom:web".to_owned(), (node(50), "phantom:web".to_owned()))])
                .collect(),
            own: BTreeMap::from([(
                (node(1), NoderoleKey::first(role("app"))),
                Map::from_iter([("port".into(), json!(81))]),
            )]),
            place: None,
        }
    }

    fn declared(text: &str) -> Declaration {
        let mut all = read("web.yaml", text.as_bytes()).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn summaries(text: &str) -> Vec<String> {
        edits(WEB, &declared(text), &present())
            .unwrap()
            .into_iter()
            .map(|step| step.summary)
            .collect()
    }

    fn wrong(text: &str) -> Vec<String> {
        let found = match read("web.yaml", text.as_bytes()) {
            Ok(all) => {
                all.iter().filter_map(|one| edits(WEB, one, &present()).err()).flatten().collect()
            }
            Err(wrong) => wrong,
        };
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_missing_nodes_are_bound() {
        assert_eq!(
            summaries("deployment: web\nbindings:\n  app: [n1, n3]\n  proxy: [n3.demo, n1]\n"),
            ["+ app on n3.demo", "+ proxy on n1.demo, n3.demo"]
        );
        assert!(summaries("deployment: web\nbindings:\n  app: [n2]\n").is_empty());
        assert!(summaries("deployment: web\n").is_empty());
    }

    #[test]
    fn prune_unbinds_undeclared_nodes_of_named_roles() {
        assert_eq!(
            summaries("deployment: web\nprune: true\nbindings: {app: [n3]}"),
            ["+ app on n3.demo", "- app from n1.demo, n2.demo"]
        );
        assert_eq!(
            summaries("deployment: web\nprune: true\nbindings: {app: []}"),
            ["- app from n1.demo, n2.demo"]
        );
        assert!(
            summaries("deployment: web\nprune: true\nbindings: {proxy: []}").is_empty(),
            "roles without an entry keep their nodes"
        );
        assert_eq!(
            summaries("deployment: web\nprune: true\nbindings: {runtime: }"),
            ["- runtime from n1.demo"]
        );
    }

    #[test]
    fn noderole_added_for_another_role_is_requested() {
        let mut present = present();
        present.roles.get_mut(&role("app")).unwrap().bound_nodes.added.insert(node(2));
        let text = "deployment: web\nbindings: {app: [n1, n2]}";
        let steps = edits(WEB, &declared(text), &present).unwrap();
        assert_eq!(
            steps.into_iter().map(|step| step.summary).collect::<Vec<_>>(),
            ["+ app on n2.demo"]
        );
    }

    #[test]
    fn service_needs_one_binding_for_any_node() {
        let mut present = present();
        let app = present.roles.get_mut(&role("app")).unwrap();
        app.service = true;
        app.bound_nodes.nodes = [(node(50), "phantom".to_owned())].into();
        let summaries = |text: &str, present: &DeploymentSnapshot| -> Vec<String> {
            let steps = edits(WEB, &declared(text), present).unwrap();
            steps.into_iter().map(|step| step.summary).collect()
        };
        let some = "deployment: web\nprune: true\nbindings: {app: [n1]}";
        assert!(summaries(some, &present).is_empty());
        let none = "deployment: web\nprune: true\nbindings: {app: []}";
        assert_eq!(summaries(none, &present), ["- app from phantom"]);
        present.roles.get_mut(&role("app")).unwrap().bound_nodes.nodes.clear();
        assert_eq!(summaries(some, &present), ["+ app on n1.demo"]);
    }

    #[test]
    fn complete_document_removes_unlisted_parts() {
        let role_state = |nodes: &[&str], requires: &[&str], data: Value| DeclaredRole {
            data,
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            requires: requires.iter().map(|name| role(name)).collect(),
            required_elsewhere: false,
        };
        let state = DeploymentDeclaration {
            deployment: "web".parse().unwrap(),
            parent: Some("system".parse().unwrap()),
            phantom: node(50),
            versions: [("stack".parse().unwrap(), "1".to_owned())].into(),
            members: vec!["n1.demo".into(), "n2.demo".into()],
            roles: BTreeMap::from([
                (role("app"), role_state(&["n1.demo"], &["runtime"], json!({"port": 80}))),
                (role("proxy"), role_state(&[], &[], json!({}))),
                (role("runtime"), role_state(&["n1.demo"], &[], json!({"a": 1}))),
            ]),
            node_data: [(
                "n1.demo".to_owned(),
                [(NoderoleKey::first(role("app")), json!({"port": 81}))].into(),
            )]
            .into(),
        };
        let place = CurrentDeployment {
            state,
            parent: Some(DeploymentId(Uuid::from_u128(9))),
            moves_to: None,
            new: None,
            versions: BTreeMap::new(),
            members: [("n1.demo".to_owned(), node(1)), ("n2.demo".to_owned(), node(2))].into(),
        };
        let mut present = DeploymentSnapshot { place: Some(place), ..present() };
        present.own.clear();
        let summaries = |text: &str| -> Vec<String> {
            let steps = edits(WEB, &declared(text), &present).unwrap();
            steps.into_iter().map(|step| step.summary).collect()
        };
        assert_eq!(
            summaries("deployment: web\ncomplete: true\nmembers: [n1, n3]\nbindings: {app: [n1]}"),
            [
                "+ member n3.demo",
                "* data of app: {\"port\":80} -> {}",
                "* data of runtime: {\"a\":1} -> {}",
                "* data of app on n1.demo: {\"port\":81} -> {}",
                "- app from n2.demo",
                "- role proxy",
                "- version 1 of stack",
                "- member n2.demo",
            ]
        );
        let mut elsewhere = present.clone();
        elsewhere.place.as_mut().unwrap().moves_to = Some(DeploymentId(Uuid::from_u128(8)));
        let steps = edits(WEB, &declared("deployment: web\nparent: edge"), &elsewhere).unwrap();
        let steps: Vec<String> = steps.into_iter().map(|step| step.summary).collect();
        assert_eq!(steps, ["* parent: edge"]);
        let nothing = summaries("deployment: web\nparent: system\ncomplete: true");
        assert_eq!(nothing[..2], ["- app from n1.demo, n2.demo", "- runtime from n1.demo"]);
        assert!(summaries("deployment: web\nparent: system\nmembers: [n1]").is_empty());
    }

    /// `app` on n1 and n2 requires `runtime` on its own node and `proxy`, which n1 has.
    fn with_requirements() -> DeploymentSnapshot {
        let mut present = present();
        let role_state = |nodes: &[u128], requires: &[&str]| DeclaredRole {
            nodes: nodes.iter().map(|n| format!("n{n}.demo")).collect(),
            requires: requires.iter().map(|name| role(name)).collect(),
            ..DeclaredRole::default()
        };
        let on = |n: u128| (node(n), format!("n{n}.demo"));
        let runtime = present.roles.get_mut(&role("runtime")).unwrap();
        (runtime.implicit, runtime.bindable) = (true, true);
        runtime.bound_nodes.nodes = (1..=3).map(on).collect();
        present.roles.get_mut(&role("proxy")).unwrap().bound_nodes.nodes = [on(1)].into();
        let roles = BTreeMap::from([
            (role("app"), role_state(&[1, 2], &["proxy", "runtime"])),
            (role("proxy"), role_state(&[1], &[])),
            (role("runtime"), role_state(&[1, 2, 3], &[])),
        ]);
        let state = DeploymentDeclaration {
            deployment: "web".parse().unwrap(),
            parent: None,
            phantom: node(50),
            versions: BTreeMap::new(),
            members: Vec::new(),
            roles,
            node_data: BTreeMap::new(),
        };
        let place = CurrentDeployment {
            state,
            parent: None,
            moves_to: None,
            new: None,
            versions: BTreeMap::new(),
            members: BTreeMap::new(),
        };
        present.own.clear();
        DeploymentSnapshot { place: Some(place), ..present }
    }

    #[test]
    fn noderole_that_a_listed_binding_requires_stays() {
        let present = with_requirements();
        let summaries = |text: &str| -> Vec<String> {
            let steps = edits(WEB, &declared(text), &present).unwrap();
            steps.into_iter().map(|step| step.summary).collect()
        };
        for flag in ["prune", "complete"] {
            let file = |bindings: &str| {
                format!(
                    "deployment: web\n{flag}: true\ndata: {{app: {{port: 80}}}}\nbindings: \
                     {bindings}"
                )
            };
            assert_eq!(
                summaries(&file("{app: [n1, n2], proxy: [n1], runtime: [n1]}")),
                ["- runtime from n3.demo"],
                "app on n2 requires runtime on n2"
            );
            assert_eq!(
                summaries(&file("{app: [n1], proxy: [n1], runtime: [n1]}")),
                ["- app from n2.demo", "- runtime from n2.demo, n3.demo"],
                "runtime goes with the binding that requires it"
            );
            assert_eq!(
                summaries(&file("{app: [n1, n2], proxy: [], runtime: []}")),
                ["- runtime from n3.demo"],
                "app requires proxy, so its last noderole stays"
            );
            assert_eq!(
                summaries(&file("{app: [n1, n2], proxy: [n3], runtime: [n1, n2, n3]}")),
                ["+ proxy on n3.demo", "- proxy from n1.demo"],
                "proxy on n3 replaces proxy on n1"
            );
        }
    }

    #[test]
    fn missing_role_is_added_first() {
        let steps = summaries("deployment: web\nbindings: {cache: [n1]}\ndata: {cache: {size: 1}}");
        assert_eq!(
            steps,
            ["+ role cache", "* data of cache: {} -> {\"size\":1}", "+ cache on n1.demo"]
        );
    }

    #[test]
    fn only_changed_data_is_set() {
        assert!(summaries("deployment: web\ndata: {app: {port: 80}, proxy: {}}").is_empty());
        assert_eq!(
            summaries("deployment: web\ndata: {app: {port: 81}}"),
            ["* data of app: {\"port\":80} -> {\"port\":81}"]
        );
        assert!(
            summaries("deployment: web\nnode_data: {n1: {app: {port: 81}}, n2: {app: {}}}")
                .is_empty()
        );
        assert_eq!(
            summaries("deployment: web\nnode_data: {n1.demo: {app: {}}}"),
            ["* data of app on n1.demo: {\"port\":81} -> {}"]
        );
    }

    /// A required integer port.
    fn expects_port() -> ExpectedData {
        let schema = json!({"type": "map", "mapping": {"port": {"type": "int", "required": true}}});
        ExpectedData {
            attribs: vec![AttribView {
                name: "listen".into(),
                path: "/listen".into(),
                description: String::new(),
                schema: Some(schema),
            }],
            below: json!({"listen": {"host": "::"}}),
        }
    }

    #[test]
    fn invalid_data_is_reported_with_position() {
        let mut present = present();
        present.roles.get_mut(&role("app")).unwrap().expects = expects_port();
        present.choices.insert(role("cache"), expects_port());
        let wrong = |text: &str| -> Vec<String> {
            let found = edits(WEB, &declared(text), &present).err().unwrap_or_default();
            found.iter().map(ToString::to_string).collect()
        };
        let error = "/listen/port is a string, but must be an integer";
        assert_eq!(
            wrong(
                "deployment: web\ndata:\n  app: {listen: {port: x}}\n  cache:\n    listen:\n      \
                 port: y\n"
            ),
            [
                format!("web.yaml:3:18: Invalid data of app: {error}."),
                format!("web.yaml:6:7: Invalid data of cache: {error}."),
            ]
        );
        assert_eq!(
            wrong("deployment: web\nnode_data:\n  n2:\n    app: {listen: {port: x}}\n"),
            [format!("web.yaml:4:20: Invalid data of app: {error}.")]
        );
        // A value is missing only if no lower layer has it. The error is at its parent.
        let missing = ["web.yaml:2:24: Invalid data of app: /listen/port is required but missing."];
        assert_eq!(wrong("deployment: web\nnode_data: {n2: {app: {listen: {}}}}\n"), missing);
        let with_role = "deployment: web\ndata: {app: {listen: {port: 1}}}\nnode_data: {n2: {app: \
            {listen: {}}}}\n";
        assert!(wrong(with_role).is_empty(), "the role's data has the required value");
        assert!(
            wrong("deployment: web\ndata: {app: {listen: {}}}\n").is_empty(),
            "the required value may be set by a noderole"
        );
    }

    #[test]
    fn existing_data_is_not_validated() {
        let mut present = present();
        let app = present.roles.get_mut(&role("app")).unwrap();
        (app.expects, app.data) = (expects_port(), json!({"listen": {"port": "x"}}));
        assert_eq!(
            edits(WEB, &declared("deployment: web\ndata: {app: {listen: {port: x}}}\n"), &present),
            Ok(vec![])
        );
    }

    #[test]
    fn applying_twice_produces_no_edits() {
        let text = "deployment: web\nprune: true\nbindings: {app: [n3], cache: [n1]}\ndata: \
            {app: {port: 1}}\nnode_data: {n1: {app: {port: 2}}}";
        let (declared, mut present) = (declared(text), present());
        for step in edits(WEB, &declared, &present).unwrap() {
            make(&mut present, step.edit);
        }
        assert_eq!(edits(WEB, &declared, &present), Ok(Vec::new()));
    }

    /// Applies an edit as the server does, for the edits that declarations produce.
    fn make(present: &mut DeploymentSnapshot, edit: Edit) {
        match edit {
            Edit::AddRole(edit::AddRole { role, .. }) => {
                present
                    .roles
                    .insert(role, CurrentRole { bindable: true, ..CurrentRole::default() });
            }
            Edit::SetRoleData(edit::SetRoleData { role, data, .. }) => {
                present.roles.get_mut(&role).unwrap().data = data
            }
            Edit::BindNodes(edit::BindNodes { role, nodes, .. }) => {
                present
                    .roles
                    .get_mut(&role)
                    .unwrap()
                    .bound_nodes
                    .nodes
                    .extend(nodes.into_iter().map(|id| (id, String::new())));
            }
            Edit::UnbindNodes(edit::UnbindNodes { noderole, nodes }) => {
                present
                    .roles
                    .get_mut(&noderole.role)
                    .unwrap()
                    .bound_nodes
                    .nodes
                    .retain(|id, _| !nodes.contains(id));
            }
            Edit::SetNoderoleData(edit::SetNoderoleData { node, noderole, data }) => {
                present.own.insert((node, noderole), data.as_object().unwrap().clone());
            }
            other => panic!("unexpected edit {other:?}"),
        }
    }

    #[test]
    fn large_bindings_are_split_into_several_edits() {
        let names: Vec<(NodeId, String)> =
            (0..1_001).map(|n| (node(n), format!("n{n:04}"))).collect();
        let nodes = names.iter().map(|(id, name)| (*id, name.as_str())).collect();
        let app = NoderoleKey::first(role("app"));
        for steps in [bound(WEB, &role("app"), &nodes), unbound(&app, &nodes)] {
            let listed: Vec<usize> = steps.iter().map(|step| step.edit.singles()).collect();
            assert_eq!(
                listed,
                [1_000, 1],
                "the edits have 1,000 nodes and 1 node, without duplicates"
            );
            assert!(steps[1].summary.ends_with(" n1000"), "{}", steps[1].summary);
        }
        assert_eq!(bound(WEB, &role("app"), &BTreeMap::new()), Vec::new());
    }

    #[test]
    fn errors_have_position_and_suggestion() {
        assert_eq!(
            wrong("deployment: web\nbindings:\n  proxi: [n1]\n"),
            ["web.yaml:3:3: Deployment web has no role proxi, and no role of that name can be \
                 added (did you mean proxy?)."]
        );
        assert_eq!(
            wrong("deployment: web\nbindings:\n  app: [n1, n9]\n"),
            ["web.yaml:3:13: Node \"n9\" does not exist."]
        );
        assert_eq!(
            wrong("deployment: web\nbindings:\n  app: [n1, n1.demo]\n"),
            ["web.yaml:3:13: Node n1.demo is listed twice for app."]
        );
        assert_eq!(
            wrong("deployment: web\nmembers: [n1, 'phantom:web']"),
            ["web.yaml:2:15: Node phantom:web is a phantom node, which always belongs to its \
                 deployment. Remove it from `members`."]
        );
        assert_eq!(
            wrong("deployment: web\nparent: web"),
            ["web.yaml:2:1: Deployment web can't be its own parent. Name another one."]
        );
        assert!(wrong("deployment: web\nparent: ")[0].contains("must be the name of a deployment"));
        assert_eq!(
            wrong("deployment: web\nbindings: {runtime: [n2]}"),
            ["web.yaml:2:12: Role runtime can't be bound directly. Gantry adds it when another \
                 role requires it."]
        );
        assert!(
            wrong("deployment: web\nbinding: {}")[0]
                .contains("Unknown key binding (did you mean bindings?)")
        );
        assert!(wrong("bindings: {}")[0].contains("The deployment is missing"));
        assert!(wrong("deployment: [web]")[0].contains("must be the name of one deployment"));
        assert!(wrong("- web")[0].contains("A document must be a map"));
        assert!(
            wrong("deployment: web\ndata: {app: 1}")[0]
                .contains("web.yaml:2:8: Data must be a map")
        );
        assert!(wrong("deployment: web\nprune: maybe")[0].contains("must be true or false"));
        assert!(wrong("deployment: web\nbindings: {app: n1}")[0].contains("must be a list"));
        assert_eq!(
            wrong("deployment: web\nbindings: {app: [1]}\ndata: 3").len(),
            2,
            "all errors are reported at once"
        );
    }
}
