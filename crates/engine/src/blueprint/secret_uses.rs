//! The secrets that a change adds, replaces or removes, by name and version.
//!
//! A noderole uses the secrets that its own reviewed data names: the role's template, its
//! deployment's data for the role, and the data of the noderole itself. A noderole that is new or
//! gets new parents also receives secrets from other data: that of its ancestors and of the other
//! noderoles on its node. These uses are marked [`SecretChange::inherited`].
//!
//! Invariants:
//!
//! * The result contains every reference that a change adds to a document. A reviewer approves each
//!   of them by name.
//! * The result contains only names and versions. The engine never has the plain text; workers do.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::difference::{Difference, Mark};
use super::planned::{Counted, NAMED, Planned};
use crate::catalog::Catalog;
use crate::cluster::{Blueprint, Connection, EdgeKind, NoderoleDoc, NoderoleKey, phantom};
use crate::data::secret::{SecretRef, contains_reference, located};
use crate::data::{OwnData, layers};
use crate::ids::{DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, RoleName, StepId};
use crate::walk::reachable;

/// Kind of a change of a secret's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SecretUseChange {
    /// The use is new.
    Added,
    /// The use has another secret or another version.
    Replaced,
    /// The secret is no longer used.
    Removed,
}

/// Purpose of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// Value in the data of roles. Scripts receive it in plain text.
    Data,
    /// Key with which workers connect to nodes. Scripts never receive it.
    NodeKey,
}

/// Use of a secret that a change adds, replaces or removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretChange {
    /// Whether the use is added, replaced or removed.
    pub change: SecretUseChange,
    /// The secret. For a removed use, the previous secret.
    pub secret: SecretRef,
    /// The secret that it replaces. Absent unless `change` is `replaced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<SecretRef>,
    /// Purpose of the secret.
    pub kind: SecretKind,
    /// The deployment that uses the secret.
    pub deployment: DeploymentName,
    /// The role whose data names the secret, or that receives it. Absent for node keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// Whether the role receives the secret from the data of other noderoles, on the same node or
    /// of ancestors.
    #[serde(default)]
    pub inherited: bool,
    /// Names of the nodes with this role or key. Empty if the role is not bound on any node.
    pub nodes: Counted<Fqdn>,
}

impl SecretChange {
    /// Whether runs receive a secret, or a version, that they did not receive before. Node keys do
    /// not count, because the review shows a node's connection separately.
    pub fn is_new_to_runs(&self) -> bool {
        self.change != SecretUseChange::Removed && self.kind == SecretKind::Data
    }
}

/// Such as `uses secret db/password version 2 (was version 1) in app of web on n1, n2`.
impl fmt::Display for SecretChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, secret, was, kind, deployment, role, inherited, nodes } = self;
        f.write_str(match (change, inherited) {
            (SecretUseChange::Removed, _) => "no longer uses ",
            (_, true) => "receives ",
            (_, false) => "uses ",
        })?;
        f.write_str(if *kind == SecretKind::NodeKey { "node key " } else { "secret " })?;
        write!(f, "{secret}")?;
        match was {
            Some(was) if was.name == secret.name => write!(f, " (was version {})", was.version)?,
            Some(was) => write!(f, " (was {was})")?,
            None => {}
        }
        match role {
            Some(role) => write!(f, " in {role} of {deployment}")?,
            None => write!(f, " in {deployment}")?,
        }
        let called =
            |fqdn: &Fqdn| phantom::short_name(fqdn, |_| Some(deployment.to_string())).into_owned();
        let named: Vec<String> = nodes.first.iter().map(called).collect();
        if !named.is_empty() {
            write!(f, " on {}", named.join(", "))?;
        }
        if nodes.more() > 0 {
            write!(f, " and {} more", nodes.more())?;
        }
        f.write_str(if *inherited { ", from the data of other noderoles" } else { "" })
    }
}

/// Every use of a secret that a change adds, replaces or removes: added ones first, then by secret.
pub fn secret_changes(planned: &Planned<'_>) -> Vec<SecretChange> {
    let old = Side::of(planned.old, planned.catalog);
    let new = Side::of(planned.new, planned.catalog);
    let mut found = Gathered::default();
    for deployment in &planned.difference.deployments {
        // Workers identify a deployment by name, so a renamed one counts as another one.
        let renamed = deployment.renamed.is_some();
        let changed = deployment.roles.iter().map(|role| &role.role);
        let all =
            [&old, &new].into_iter().flat_map(|side| side.roles(deployment.id)).filter(|_| renamed);
        for role in changed.chain(all).collect::<BTreeSet<_>>() {
            let user = |side: &Side<'_>| {
                Some(User { deployment: side.name(deployment.id)?, role: Some(role.clone()) })
            };
            let (was, is) = (old.of_role(deployment.id, role), new.of_role(deployment.id, role));
            found.compare(SecretKind::Data, (user(&old), was), (user(&new), is), None);
        }
    }
    for (node, key, includes_inherited) in affected_noderoles(planned.difference, [&old, &new]) {
        let fqdn = [&new, &old].into_iter().find_map(|side| side.blueprint.nodes.get(&node));
        let fqdn = fqdn.map(|stored| stored.doc.fqdn.clone());
        let (was, is) = (
            old.of_noderole(node, &key, includes_inherited),
            new.of_noderole(node, &key, includes_inherited),
        );
        found.compare(SecretKind::Data, was, is, fqdn);
    }
    for node in &planned.difference.nodes {
        found.compare(
            SecretKind::NodeKey,
            old.node_key_uses(node.id),
            new.node_key_uses(node.id),
            Some(node.fqdn.clone()),
        );
    }
    found.close()
}

/// The noderoles whose secrets may differ. The flag says whether a noderole may also receive the
/// secrets of other noderoles for the first time.
fn affected_noderoles(
    difference: &Difference,
    sides: [&Side<'_>; 2],
) -> Vec<(NodeId, NoderoleKey, bool)> {
    let mut found: BTreeMap<(NodeId, NoderoleKey), bool> = BTreeMap::new();
    for node in &difference.nodes {
        for noderole in &node.noderoles {
            let includes_inherited =
                noderole.mark == Mark::Added || noderole.rewired || noderole.bound.is_some();
            found.insert((node.id, noderole.noderole.clone()), includes_inherited);
        }
    }
    let listed: BTreeMap<DeploymentId, Option<BTreeSet<&RoleName>>> = difference
        .deployments
        .iter()
        .filter(|deployment| deployment.renamed.is_some() || !deployment.roles.is_empty())
        .map(|deployment| {
            let roles = deployment.roles.iter().map(|role| &role.role).collect();
            (deployment.id, deployment.renamed.is_none().then_some(roles))
        })
        .collect();
    if !listed.is_empty() {
        for (id, stored) in sides.into_iter().flat_map(|side| &side.blueprint.nodes) {
            for (key, noderole) in &stored.doc.noderoles {
                let Some(roles) = listed.get(&noderole.deployment) else { continue };
                if roles.as_ref().is_none_or(|roles| roles.contains(&key.role)) {
                    // A rename can change which secrets the deployment may receive.
                    *found.entry((*id, key.clone())).or_default() |= roles.is_none();
                }
            }
        }
    }
    found
        .into_iter()
        .map(|((node, key), includes_inherited)| (node, key, includes_inherited))
        .collect()
}

/// The user of a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct User {
    deployment: DeploymentName,
    /// `None` means the node itself.
    role: Option<RoleName>,
}

/// The position of a reference: the noderole, if it is not the user, and a JSON pointer.
type At = (Option<NoderoleId>, String);
type SecretUses = BTreeMap<At, SecretRef>;

fn uses_by_pointer(value: &Value) -> SecretUses {
    located(value).into_iter().map(|(pointer, secret)| ((None, pointer), secret)).collect()
}

/// A blueprint with an index of its noderoles.
struct Side<'a> {
    blueprint: &'a Blueprint,
    catalog: &'a Catalog,
    places: OnceCell<BTreeMap<NoderoleId, (NodeId, &'a NoderoleKey)>>,
}

impl<'a> Side<'a> {
    fn of(blueprint: &'a Blueprint, catalog: &'a Catalog) -> Self {
        Self { blueprint, catalog, places: OnceCell::new() }
    }

    fn name(&self, id: DeploymentId) -> Option<DeploymentName> {
        Some(self.blueprint.deployments.get(&id)?.doc.name.clone())
    }

    fn roles(&self, id: DeploymentId) -> impl Iterator<Item = &'a RoleName> + use<'a> {
        self.blueprint.deployments.get(&id).into_iter().flat_map(|stored| stored.doc.roles.keys())
    }

    /// The secrets that a deployment's data for a role names, even if the role is not bound.
    fn of_role(&self, deployment: DeploymentId, role: &RoleName) -> SecretUses {
        let stored = self.blueprint.deployments.get(&deployment);
        stored
            .and_then(|stored| stored.doc.roles.get(role))
            .map(|role| uses_by_pointer(&role.data))
            .unwrap_or_default()
    }

    /// The secrets that a noderole's own data names.
    fn own(&self, node: NodeId, key: &NoderoleKey, noderole: &NoderoleDoc) -> SecretUses {
        let none = Value::Null;
        let role = self.catalog.role(noderole.role).ok();
        let deployment = self.blueprint.deployments.get(&noderole.deployment);
        let template = role.map_or(&none, |role| &role.template);
        let of_role = deployment
            .and_then(|stored| stored.doc.roles.get(&key.role))
            .map_or(&none, |role| &role.data);
        if ![template, of_role, &noderole.data].into_iter().any(contains_reference) {
            return SecretUses::new();
        }
        let own = OwnData {
            template,
            profiles: &[],
            deployment_role: of_role,
            system: &none,
            user: &noderole.data,
        };
        match layers(StepId::run_of(key.id(node)), own, None) {
            Ok(layered) => uses_by_pointer(&layered.value),
            // Such data can never run. Its references are still listed.
            Err(_) => {
                [template, of_role, &noderole.data].into_iter().flat_map(uses_by_pointer).collect()
            }
        }
    }

    /// The noderole as a user, and the secrets that it receives. If `includes_inherited`, this
    /// includes secrets from the data of other noderoles.
    fn of_noderole(
        &self,
        node: NodeId,
        key: &NoderoleKey,
        includes_inherited: bool,
    ) -> (Option<User>, SecretUses) {
        let Some((_, noderole)) = self.blueprint.noderole(node, key) else {
            return (None, SecretUses::new());
        };
        let Some(deployment) = self.name(noderole.deployment) else {
            return (None, SecretUses::new());
        };
        let mut uses = self.own(node, key, noderole);
        if includes_inherited {
            for (node, other) in self.visible_noderoles(node, key, noderole) {
                let Some((_, noderole)) = self.blueprint.noderole(node, other) else { continue };
                let id = other.id(node);
                uses.extend(
                    self.own(node, other, noderole)
                        .into_iter()
                        .map(|((_, at), s)| ((Some(id), at), s)),
                );
            }
        }
        (Some(User { deployment, role: Some(key.role.clone()) }), uses)
    }

    /// The key with which workers connect to a node.
    fn node_key_uses(&self, node: NodeId) -> (Option<User>, SecretUses) {
        let Some(doc) = self.blueprint.nodes.get(&node).map(|stored| &stored.doc) else {
            return (None, SecretUses::new());
        };
        let user = self.name(doc.deployment).map(|deployment| User { deployment, role: None });
        let Some(Connection::Ssh(ssh)) = &doc.connection else { return (user, SecretUses::new()) };
        (user, [((None, "/connection/key".to_owned()), ssh.key.clone())].into())
    }

    /// The noderoles whose data a noderole receives: all others on its node, and its ancestors via
    /// hard edges.
    fn visible_noderoles(
        &self,
        node: NodeId,
        key: &NoderoleKey,
        noderole: &NoderoleDoc,
    ) -> BTreeSet<(NodeId, &'a NoderoleKey)> {
        let stored = self.blueprint.nodes.get(&node);
        let on_node = stored.into_iter().flat_map(|stored| stored.doc.noderoles.keys());
        let mut seen: BTreeSet<_> =
            on_node.filter(|other| *other != key).map(|other| (node, other)).collect();
        let above = |id: NoderoleId| {
            let place = self.places().get(&id);
            let found = place.and_then(|(node, key)| self.blueprint.noderole(*node, key));
            found.into_iter().flat_map(|(_, noderole)| hard_parents(noderole))
        };
        let ancestors = reachable(hard_parents(noderole), above);
        seen.extend(ancestors.filter_map(|id| self.places().get(&id).copied()));
        seen
    }

    fn places(&self) -> &BTreeMap<NoderoleId, (NodeId, &'a NoderoleKey)> {
        self.places.get_or_init(|| {
            let nodes = self.blueprint.nodes.iter();
            nodes
                .flat_map(|(id, n)| n.doc.noderoles.keys().map(|key| (key.id(*id), (*id, key))))
                .collect()
        })
    }
}

fn hard_parents(noderole: &NoderoleDoc) -> impl Iterator<Item = NoderoleId> {
    noderole.parents.iter().filter(|edge| edge.kind == EdgeKind::Hard).map(|edge| edge.parent)
}

/// The properties of uses that are reported as one change.
type ChangeKey = (
    SecretUseChange,
    SecretRef,
    Option<SecretRef>,
    SecretKind,
    DeploymentName,
    Option<RoleName>,
    bool,
);

#[derive(Default)]
struct Gathered(BTreeMap<ChangeKey, BTreeSet<Fqdn>>);

impl Gathered {
    fn compare(
        &mut self,
        kind: SecretKind,
        (old_consumer, was): (Option<User>, SecretUses),
        (is_of, is): (Option<User>, SecretUses),
        node: Option<Fqdn>,
    ) {
        let same = old_consumer == is_of;
        let mut add = |change,
                       secret: &SecretRef,
                       before: Option<&SecretRef>,
                       user: &Option<User>,
                       at: &At| {
            let Some(User { deployment, role }) = user.clone() else { return };
            let group =
                (change, secret.clone(), before.cloned(), kind, deployment, role, at.0.is_some());
            self.0.entry(group).or_default().extend(node.clone());
        };
        for (at, secret) in &is {
            match was.get(at).filter(|_| same) {
                Some(before) if before == secret => {}
                Some(before) => add(SecretUseChange::Replaced, secret, Some(before), &is_of, at),
                None => add(SecretUseChange::Added, secret, None, &is_of, at),
            }
        }
        for (at, secret) in was.iter().filter(|(at, _)| !(same && is.contains_key(*at))) {
            add(SecretUseChange::Removed, secret, None, &old_consumer, at);
        }
    }

    fn close(self) -> Vec<SecretChange> {
        let secret_use = |((change, secret, was, kind, deployment, role, inherited), nodes): (
            ChangeKey,
            BTreeSet<Fqdn>,
        )| {
            let nodes = Counted::up_to(NAMED, nodes.into_iter().collect());
            SecretChange { change, secret, was, kind, deployment, role, inherited, nodes }
        };
        self.0.into_iter().map(secret_use).collect()
    }
}
