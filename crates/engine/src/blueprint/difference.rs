//! The difference between two blueprints, for people.
//!
//! Unchanged items are counted, never listed. Reconfigurator prints every row of a changed sled,
//! and one golden file had 10,225 lines for an input of 515. Values are shown with both sides.
//! Secrets are shown by name and version, never their content.
//!
//! Invariants:
//!
//! * Complete: the difference covers every field of the documents, because reviewers would approve
//!   an invisible change unseen. Each document is destructured, so a new field does not compile
//!   until it is handled.
//! * Symmetric: the difference from B to A mirrors the one from A to B ([`Difference::mirrored`]).
//! * Sorted by name, independent of the order of the documents.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::DocumentChange;
use crate::canonical::Hash;
use crate::cluster::{
    Blueprint, Connection, DeploymentDoc, EdgeDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey,
};
use crate::data::{self, Change, ChangeKind, DataError};
use crate::gate::Policy;
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The item is new.
    Added,
    /// The item is removed.
    Removed,
    /// The item exists on both sides with different content.
    Changed,
}

impl Mark {
    fn mirrored(self) -> Self {
        match self {
            Self::Added => Self::Removed,
            Self::Removed => Self::Added,
            Self::Changed => Self::Changed,
        }
    }
}

/// Value before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SidesOf{T}"))]
pub struct Sides<T> {
    /// Value before the change.
    pub old: T,
    /// Value after the change.
    pub new: T,
}

impl<T: PartialEq + Clone> Sides<T> {
    /// `None` if both sides are equal, or if one is absent. An absent side means that the whole
    /// document is added or removed.
    pub fn differing(old: Option<&T>, new: Option<&T>) -> Option<Self> {
        old.zip(new)
            .filter(|(old, new)| old != new)
            .map(|(old, new)| Self { old: old.clone(), new: new.clone() })
    }
}

impl<T> Sides<T> {
    fn mirrored(self) -> Self {
        Self { old: self.new, new: self.old }
    }
}

/// Differences between two blueprints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Deployments that differ, by name.
    pub deployments: Vec<DeploymentDifference>,
    /// Nodes that differ, by name.
    pub nodes: Vec<NodeDifference>,
    /// Number of unchanged documents.
    pub unchanged: usize,
    /// The approval policy, if it differs. It is not part of a blueprint and is added separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Sides<Policy>>,
}

/// Difference of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeploymentDifference {
    /// Id of the deployment.
    pub id: DeploymentId,
    /// Name of the deployment.
    pub name: DeploymentName,
    /// Kind of the difference.
    pub mark: Mark,
    /// The name, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Sides<DeploymentName>>,
    /// The parent deployment, if it differs or if the deployment is added or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Sides<Option<DeploymentId>>>,
    /// The phantom node, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phantom: Option<Sides<NodeId>>,
    /// Jigs that are turned on or off: `added` jigs are turned off, `removed` jigs are turned on
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inactive_jigs: Vec<JigDifference>,
    /// Barclamps that differ.
    pub barclamps: Vec<BarclampDifference>,
    /// Roles that differ.
    pub roles: Vec<RoleDifference>,
}

/// Jig that is turned on or off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JigDifference {
    /// Name of the jig.
    pub jig: JigName,
    /// `added` if the jig is turned off, `removed` if it is turned on again.
    pub mark: Mark,
}

/// Difference of a barclamp in a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarclampDifference {
    /// Name of the barclamp.
    pub barclamp: BarclampName,
    /// Kind of the difference.
    pub mark: Mark,
    /// Short hash of the old version. Null if the barclamp is added.
    pub old: Option<String>,
    /// Short hash of the new version. Null if the barclamp is removed.
    pub new: Option<String>,
}

/// Difference of a role in a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleDifference {
    /// Name of the role.
    pub role: RoleName,
    /// Kind of the difference.
    pub mark: Mark,
    /// Whether the content of the role (definition, scripts, schemas) differs.
    pub content: bool,
    /// Hashes of the content on each side, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Sides<Option<Hash>>>,
    /// Values of the role's data that differ.
    pub data: Vec<Change>,
}

/// Difference of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDifference {
    /// Id of the node.
    pub id: NodeId,
    /// Name of the node.
    pub fqdn: Fqdn,
    /// Kind of the difference.
    pub mark: Mark,
    /// The name, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Sides<Fqdn>>,
    /// Whether it is a phantom node, if that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phantom: Option<Sides<bool>>,
    /// The deployment of the node, if it differs. A side is null if the node is added or removed.
    pub moved: Option<Sides<Option<DeploymentId>>>,
    /// The connection, if it differs. The old side is null in the first document of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Sides<Option<Connection>>>,
    /// Hints that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Change>,
    /// Noderoles that differ.
    pub noderoles: Vec<NoderoleDifference>,
    /// Number of unchanged noderoles.
    pub unchanged: usize,
}

/// Difference of a noderole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleDifference {
    /// Id of the noderole.
    pub id: NoderoleId,
    /// Role and instance.
    pub noderole: NoderoleKey,
    /// The deployment in which the noderole is bound.
    pub deployment: DeploymentId,
    /// Kind of the difference.
    pub mark: Mark,
    /// Whether the content of the role differs.
    pub content: bool,
    /// Hashes of the role's content on each side, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Sides<Option<Hash>>>,
    /// The deployments in which the noderole is bound, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Sides<DeploymentId>>,
    /// Whether a re-run is requested.
    pub rerun: bool,
    /// Number of requested re-runs, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reruns: Option<Sides<u32>>,
    /// Rank in the order of the steps, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Sides<u32>>,
    /// Whether its parents differ.
    pub rewired: bool,
    /// Edges to parents that differ, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<EdgeDifference>,
    /// Values of the noderole's own data that differ.
    pub data: Vec<Change>,
}

/// Difference of an edge to a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EdgeDifference {
    /// Id of the parent noderole.
    pub parent: NoderoleId,
    /// Old kind of the edge. Null if the edge is added.
    pub old: Option<EdgeKind>,
    /// New kind of the edge. Null if the edge is removed.
    pub new: Option<EdgeKind>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.deployments.is_empty() && self.nodes.is_empty() && self.policy.is_none()
    }

    /// At most `most` of the documents, after the first `skip`.
    #[must_use]
    pub fn part(mut self, skip: usize, most: usize) -> Self {
        let before = skip.min(self.deployments.len());
        let deployments: Vec<_> = self.deployments.into_iter().skip(before).take(most).collect();
        let left = most - deployments.len();
        self.nodes = self.nodes.into_iter().skip(skip - before).take(left).collect();
        self.deployments = deployments;
        self
    }

    /// The part that concerns these deployments, and the number of the other documents that differ.
    /// The part contains:
    ///
    /// * the documents of the deployments, and the noderoles that are bound in them;
    /// * nodes that move to or from them, or whose connection or hints change;
    /// * the policy and the switched jigs, which apply to every deployment.
    #[must_use]
    pub fn for_deployments(mut self, ids: &BTreeSet<DeploymentId>) -> (Self, usize) {
        let mut other = self.deployments.len() + self.nodes.len();
        self.deployments.retain_mut(|deployment| {
            let keeps = ids.contains(&deployment.id) || !deployment.inactive_jigs.is_empty();
            if ids.contains(&deployment.id) || (keeps && !deployment.retain_only_jigs()) {
                other -= 1;
            }
            keeps
        });
        self.nodes.retain_mut(|node| {
            let is_included = |noderole: &NoderoleDifference| {
                ids.contains(&noderole.deployment)
                    || noderole.bound.is_some_and(|sides| ids.contains(&sides.old))
            };
            node.noderoles.retain(is_included);
            let theirs = |place: Option<DeploymentId>| place.is_some_and(|id| ids.contains(&id));
            let moved = node.moved.is_some_and(|sides| theirs(sides.old) || theirs(sides.new));
            // The difference does not name the deployment of a node that does not move. So every
            // deployment shows such nodes.
            let itself =
                node.mark == Mark::Changed && (node.connection.is_some() || !node.hints.is_empty());
            moved || itself || !node.noderoles.is_empty()
        });
        other -= self.nodes.len();
        (self, other)
    }

    /// The difference in the other direction.
    #[must_use]
    pub fn mirrored(self) -> Self {
        let Self { deployments, nodes, unchanged, policy } = self;
        let mut mirrored = Self {
            deployments: deployments.into_iter().map(DeploymentDifference::mirrored).collect(),
            nodes: nodes.into_iter().map(NodeDifference::mirrored).collect(),
            unchanged,
            policy: policy.map(Sides::mirrored),
        };
        mirrored.sort();
        mirrored
    }

    fn sort(&mut self) {
        self.deployments.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        self.nodes.sort_by(|a, b| (&a.fqdn, a.id).cmp(&(&b.fqdn, b.id)));
    }
}

impl DeploymentDifference {
    /// Removes everything except the switched jigs. Returns whether there was anything else.
    fn retain_only_jigs(&mut self) -> bool {
        let parts = [
            self.renamed.take().is_some(),
            self.parent.take().is_some(),
            self.phantom.take().is_some(),
        ];
        let had_parts =
            parts.contains(&true) || !self.barclamps.is_empty() || !self.roles.is_empty();
        self.barclamps.clear();
        self.roles.clear();
        had_parts
    }

    fn mirrored(self) -> Self {
        let Self { id, name, mark, renamed, parent, phantom, inactive_jigs, barclamps, roles } =
            self;
        let jigs = inactive_jigs.into_iter();
        let inactive_jigs =
            jigs.map(|JigDifference { jig, mark }| JigDifference { jig, mark: mark.mirrored() });
        let barclamps =
            barclamps.into_iter().map(|BarclampDifference { barclamp, mark, old, new }| {
                BarclampDifference { barclamp, mark: mark.mirrored(), old: new, new: old }
            });
        let roles =
            roles.into_iter().map(|RoleDifference { role, mark, content, contents, data }| {
                RoleDifference {
                    role,
                    mark: mark.mirrored(),
                    content,
                    contents: contents.map(Sides::mirrored),
                    data: data.into_iter().map(mirrored_value).collect(),
                }
            });
        Self {
            id,
            name: renamed.as_ref().map_or(name, |sides| sides.old.clone()),
            mark: mark.mirrored(),
            renamed: renamed.map(Sides::mirrored),
            parent: parent.map(Sides::mirrored),
            phantom: phantom.map(Sides::mirrored),
            inactive_jigs: inactive_jigs.collect(),
            barclamps: barclamps.collect(),
            roles: roles.collect(),
        }
    }
}

impl NodeDifference {
    fn mirrored(self) -> Self {
        let Self {
            id,
            fqdn,
            mark,
            renamed,
            phantom,
            moved,
            connection,
            hints,
            noderoles,
            unchanged,
        } = self;
        Self {
            id,
            fqdn: renamed.as_ref().map_or(fqdn, |sides| sides.old.clone()),
            mark: mark.mirrored(),
            renamed: renamed.map(Sides::mirrored),
            phantom: phantom.map(Sides::mirrored),
            moved: moved.map(Sides::mirrored),
            connection: connection.map(Sides::mirrored),
            hints: hints.into_iter().map(mirrored_value).collect(),
            noderoles: noderoles.into_iter().map(NoderoleDifference::mirrored).collect(),
            unchanged,
        }
    }
}

impl NoderoleDifference {
    fn mirrored(self) -> Self {
        let edges = self.edges.into_iter().map(|edge| EdgeDifference {
            old: edge.new,
            new: edge.old,
            ..edge
        });
        Self {
            deployment: self.bound.map_or(self.deployment, |sides| sides.old),
            mark: self.mark.mirrored(),
            contents: self.contents.map(Sides::mirrored),
            bound: self.bound.map(Sides::mirrored),
            reruns: self.reruns.map(Sides::mirrored),
            rank: self.rank.map(Sides::mirrored),
            edges: edges.collect(),
            data: self.data.into_iter().map(mirrored_value).collect(),
            ..self
        }
    }
}

fn mirrored_value(change: Change) -> Change {
    let kind = match change.kind {
        ChangeKind::Added => ChangeKind::Removed,
        ChangeKind::Removed => ChangeKind::Added,
        ChangeKind::Changed => ChangeKind::Changed,
    };
    Change { kind, old: change.new, new: change.old, ..change }
}

/// The difference of two blueprints, from the documents that differ.
///
/// # Errors
/// If data is nested too deeply.
pub fn difference(
    old: &Blueprint,
    new: &Blueprint,
    changes: &[DocumentChange],
) -> Result<Difference, DataError> {
    let mut found = Difference::default();
    for change in changes {
        match change {
            DocumentChange::Deployment { id, .. } => {
                let (was, is) = (old.deployments.get(id), new.deployments.get(id));
                found.deployments.extend(deployment(was.map(|d| &*d.doc), is.map(|d| &*d.doc))?);
            }
            DocumentChange::Node { id, .. } => {
                let (was, is) = (old.nodes.get(id), new.nodes.get(id));
                found.nodes.extend(node(was.map(|n| &*n.doc), is.map(|n| &*n.doc))?);
            }
        }
    }
    found.sort();
    let total = (new.deployments.len() + new.nodes.len())
        .saturating_sub(changes.iter().filter(|c| exists(c)).count());
    found.unchanged = total;
    Ok(found)
}

fn exists(change: &DocumentChange) -> bool {
    match change {
        DocumentChange::Deployment { new, .. } | DocumentChange::Node { new, .. } => new.is_some(),
    }
}

fn mark<T>(was: Option<T>, is: Option<T>) -> Mark {
    match (was, is) {
        (None, _) => Mark::Added,
        (Some(_), None) => Mark::Removed,
        (Some(_), Some(_)) => Mark::Changed,
    }
}

/// The keys of both maps, in order.
fn keys<'m, K: Ord, V>(
    was: Option<&'m BTreeMap<K, V>>,
    is: Option<&'m BTreeMap<K, V>>,
) -> BTreeSet<&'m K> {
    was.into_iter().chain(is).flat_map(BTreeMap::keys).collect()
}

fn deployment(
    was: Option<&DeploymentDoc>,
    is: Option<&DeploymentDoc>,
) -> Result<Option<DeploymentDifference>, DataError> {
    let Some(known) = is.or(was) else { return Ok(None) };
    // Names every field, so that a new one does not compile until it is handled.
    let DeploymentDoc { id, name, parent: _, phantom: _, barclamps: _, roles: _, inactive_jigs: _ } =
        known;
    let (pins_was, pins_is) = (was.map(|d| &d.barclamps), is.map(|d| &d.barclamps));
    let barclamps = keys(pins_was, pins_is).into_iter().filter_map(|name| {
        let (old, new) =
            (pins_was.and_then(|pins| pins.get(name)), pins_is.and_then(|pins| pins.get(name)));
        (old != new).then(|| BarclampDifference {
            barclamp: name.clone(),
            mark: mark(old, new),
            old: old.map(Hash::short),
            new: new.map(Hash::short),
        })
    });
    let off =
        |side: Option<&DeploymentDoc>| side.map(|d| d.inactive_jigs.clone()).unwrap_or_default();
    let (off_was, off_is) = (off(was), off(is));
    let switched = off_was.symmetric_difference(&off_is).map(|jig| JigDifference {
        jig: jig.clone(),
        mark: if off_is.contains(jig) { Mark::Added } else { Mark::Removed },
    });
    let (old_parent, new_parent) = (was.map(|d| d.parent), is.map(|d| d.parent));
    Ok(Some(DeploymentDifference {
        id: *id,
        name: name.clone(),
        mark: mark(was, is),
        renamed: Sides::differing(was.map(|d| &d.name), is.map(|d| &d.name)),
        parent: (old_parent != new_parent)
            .then(|| Sides { old: old_parent.flatten(), new: new_parent.flatten() }),
        phantom: Sides::differing(was.map(|d| &d.phantom), is.map(|d| &d.phantom)),
        inactive_jigs: switched.collect(),
        barclamps: barclamps.collect(),
        roles: roles(was, is)?,
    }))
}

fn roles(
    was: Option<&DeploymentDoc>,
    is: Option<&DeploymentDoc>,
) -> Result<Vec<RoleDifference>, DataError> {
    let (was, is) = (was.map(|d| &d.roles), is.map(|d| &d.roles));
    let empty = serde_json::json!({});
    let mut found = Vec::new();
    for name in keys(was, is) {
        let (old, new) =
            (was.and_then(|roles| roles.get(name)), is.and_then(|roles| roles.get(name)));
        if old == new {
            continue;
        }
        let contents = Sides { old: old.map(|r| r.role), new: new.map(|r| r.role) };
        found.push(RoleDifference {
            role: name.clone(),
            mark: mark(old, new),
            content: contents.old != contents.new,
            contents: (contents.old != contents.new).then_some(contents),
            data: data::diff(old.map_or(&empty, |r| &r.data), new.map_or(&empty, |r| &r.data))?,
        });
    }
    Ok(found)
}

fn node(was: Option<&NodeDoc>, is: Option<&NodeDoc>) -> Result<Option<NodeDifference>, DataError> {
    let Some(known) = is.or(was) else { return Ok(None) };
    let NodeDoc { id, fqdn, deployment: _, phantom: _, connection: _, hints: _, noderoles: _ } =
        known;
    let (old_noderoles, new_noderoles) = (was.map(|n| &n.noderoles), is.map(|n| &n.noderoles));
    let keys = keys(old_noderoles, new_noderoles);
    let total = keys.len();
    let noderoles: Vec<_> = keys
        .into_iter()
        .filter_map(|key| {
            let (was, is) =
                (old_noderoles.and_then(|n| n.get(key)), new_noderoles.and_then(|n| n.get(key)));
            noderole(*id, key, was, is).transpose()
        })
        .collect::<Result<_, _>>()?;
    let deployments = Sides { old: was.map(|n| n.deployment), new: is.map(|n| n.deployment) };
    let connection = |side: Option<&NodeDoc>| side.and_then(|n| n.connection.clone());
    let connections = Sides { old: connection(was), new: connection(is) };
    let hints =
        |side: Option<&NodeDoc>| Value::Object(side.map(|n| n.hints.clone()).unwrap_or_default());
    Ok(Some(NodeDifference {
        id: *id,
        fqdn: fqdn.clone(),
        mark: mark(was, is),
        renamed: Sides::differing(was.map(|n| &n.fqdn), is.map(|n| &n.fqdn)),
        phantom: Sides::differing(was.map(|n| &n.phantom), is.map(|n| &n.phantom)),
        moved: (deployments.old != deployments.new).then_some(deployments),
        connection: (connections.old != connections.new).then_some(connections),
        hints: data::diff(&hints(was), &hints(is))?,
        unchanged: total - noderoles.len(),
        noderoles,
    }))
}

fn noderole(
    node: NodeId,
    key: &NoderoleKey,
    was: Option<&NoderoleDoc>,
    is: Option<&NoderoleDoc>,
) -> Result<Option<NoderoleDifference>, DataError> {
    let Some(known) = is.or(was).filter(|_| was != is) else { return Ok(None) };
    let NoderoleDoc { deployment, role: _, data: _, reruns: _, rank: _, parents: _ } = known;
    let empty = serde_json::json!({});
    let both = was.zip(is);
    let contents = Sides { old: was.map(|n| n.role), new: is.map(|n| n.role) };
    Ok(Some(NoderoleDifference {
        id: key.id(node),
        noderole: key.clone(),
        deployment: *deployment,
        mark: mark(was, is),
        content: both.is_some_and(|(was, is)| was.role != is.role),
        contents: (contents.old != contents.new).then_some(contents),
        bound: Sides::differing(was.map(|n| &n.deployment), is.map(|n| &n.deployment)),
        rerun: both.is_some_and(|(was, is)| was.reruns != is.reruns),
        reruns: Sides::differing(was.map(|n| &n.reruns), is.map(|n| &n.reruns)),
        rank: Sides::differing(was.map(|n| &n.rank), is.map(|n| &n.rank)),
        rewired: both.is_some_and(|(was, is)| was.parents != is.parents),
        edges: edges(was.map(|n| n.parents.as_slice()), is.map(|n| n.parents.as_slice())),
        data: data::diff(was.map_or(&empty, |n| &n.data), is.map_or(&empty, |n| &n.data))?,
    }))
}

fn edges(was: Option<&[EdgeDoc]>, is: Option<&[EdgeDoc]>) -> Vec<EdgeDifference> {
    let kinds = |edges: Option<&[EdgeDoc]>| -> BTreeMap<NoderoleId, EdgeKind> {
        edges.unwrap_or_default().iter().map(|edge| (edge.parent, edge.kind)).collect()
    };
    let (was, is) = (kinds(was), kinds(is));
    let parents = keys(Some(&was), Some(&is)).into_iter();
    let edges = parents.map(|parent| EdgeDifference {
        parent: *parent,
        old: was.get(parent).copied(),
        new: is.get(parent).copied(),
    });
    edges.filter(|edge| edge.old != edge.new).collect()
}
