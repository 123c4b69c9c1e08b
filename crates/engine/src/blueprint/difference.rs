//! The difference of two blueprints, for people.
//!
//! What did not change is counted, never listed: Reconfigurator prints every row of a changed sled, and one golden file came to
//! 10,225 lines for an input of 515. Values are shown with both sides; references to secrets only as "changed".

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::DocumentChange;
use crate::cluster::{Blueprint, DeploymentDoc, NodeDoc, NoderoleDoc, NoderoleKey};
use crate::data::{self, Change, DataError};
use crate::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, RoleName};

/// How something differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It is new.
    Added,
    /// It goes.
    Removed,
    /// It is another than before.
    Changed,
}

/// Everything in which two blueprints differ.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Deployments, in the order of their names.
    pub deployments: Vec<DeploymentDifference>,
    /// Nodes, in the order of their names.
    pub nodes: Vec<NodeDifference>,
    /// Documents that both have.
    pub unchanged: usize,
}

/// How a deployment differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeploymentDifference {
    /// Which.
    pub id: DeploymentId,
    /// Its name.
    pub name: DeploymentName,
    /// How.
    pub mark: Mark,
    /// Barclamps that it uses: the versions' short hashes before and after.
    pub barclamps: Vec<BarclampDifference>,
    /// Its roles.
    pub roles: Vec<RoleDifference>,
}

/// How a deployment's use of a barclamp differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarclampDifference {
    /// Which.
    pub barclamp: BarclampName,
    /// How.
    pub mark: Mark,
    /// Short hash before.
    pub old: Option<String>,
    /// Short hash after.
    pub new: Option<String>,
}

/// How a deployment's role differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleDifference {
    /// Which.
    pub role: RoleName,
    /// How.
    pub mark: Mark,
    /// Whether another content of the role (definition, scripts, schemas) is meant.
    pub content: bool,
    /// Its data.
    pub data: Vec<Change>,
}

/// How a node differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeDifference {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: Fqdn,
    /// How.
    pub mark: Mark,
    /// Where it was and will be, if that differs.
    pub moved: Option<(Option<DeploymentId>, Option<DeploymentId>)>,
    /// Its noderoles.
    pub noderoles: Vec<NoderoleDifference>,
    /// Noderoles that stay as they are.
    pub unchanged: usize,
}

/// How a noderole differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoderoleDifference {
    /// Which.
    pub id: NoderoleId,
    /// Its role and instance.
    pub noderole: NoderoleKey,
    /// Where it is bound.
    pub deployment: DeploymentId,
    /// How.
    pub mark: Mark,
    /// Whether another content of the role is meant.
    pub content: bool,
    /// Whether somebody asked for it to run again.
    pub rerun: bool,
    /// Whether it waits for other noderoles than before.
    pub rewired: bool,
    /// Its own data.
    pub data: Vec<Change>,
}

/// The difference of two blueprints, given the documents in which they differ.
///
/// # Errors
/// For data that is nested deeper than data may be.
pub fn difference(old: &Blueprint, new: &Blueprint, changes: &[DocumentChange]) -> Result<Difference, DataError> {
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
    found.deployments.sort_by(|a, b| a.name.cmp(&b.name));
    found.nodes.sort_by(|a, b| a.fqdn.cmp(&b.fqdn));
    found.unchanged =
        (new.deployments.len() + new.nodes.len()).saturating_sub(changes.iter().filter(|c| is_there(c)).count());
    Ok(found)
}

fn is_there(change: &DocumentChange) -> bool {
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

fn deployment(
    was: Option<&DeploymentDoc>,
    is: Option<&DeploymentDoc>,
) -> Result<Option<DeploymentDifference>, DataError> {
    let Some(known) = is.or(was) else { return Ok(None) };
    let sides = [was, is];
    let barclamps: BTreeSet<_> = sides.iter().flatten().flat_map(|d| d.barclamps.keys()).collect();
    let roles: BTreeSet<_> = sides.iter().flatten().flat_map(|d| d.roles.keys()).collect();
    let barclamps = barclamps.into_iter().filter_map(|name| {
        let (old, new) = (was.and_then(|d| d.barclamps.get(name)), is.and_then(|d| d.barclamps.get(name)));
        (old != new).then(|| BarclampDifference {
            barclamp: name.clone(),
            mark: mark(old, new),
            old: old.map(|h| h.short()),
            new: new.map(|h| h.short()),
        })
    });
    let empty = serde_json::json!({});
    let mut found = Vec::new();
    for name in roles {
        let (old, new) = (was.and_then(|d| d.roles.get(name)), is.and_then(|d| d.roles.get(name)));
        if old == new {
            continue;
        }
        found.push(RoleDifference {
            role: name.clone(),
            mark: mark(old, new),
            content: old.map(|r| r.role) != new.map(|r| r.role),
            data: data::diff(old.map_or(&empty, |r| &r.data), new.map_or(&empty, |r| &r.data))?,
        });
    }
    Ok(Some(DeploymentDifference {
        id: known.id,
        name: known.name.clone(),
        mark: mark(was, is),
        barclamps: barclamps.collect(),
        roles: found,
    }))
}

fn node(was: Option<&NodeDoc>, is: Option<&NodeDoc>) -> Result<Option<NodeDifference>, DataError> {
    let Some(known) = is.or(was) else { return Ok(None) };
    let keys: BTreeSet<_> = [was, is].into_iter().flatten().flat_map(|n| n.noderoles.keys()).collect();
    let total = keys.len();
    let noderoles: Vec<_> = keys
        .into_iter()
        .filter_map(|key| {
            noderole(known.id, key, was.and_then(|n| n.noderoles.get(key)), is.and_then(|n| n.noderoles.get(key)))
                .transpose()
        })
        .collect::<Result<_, _>>()?;
    let (from, to) = (was.map(|n| n.deployment), is.map(|n| n.deployment));
    Ok(Some(NodeDifference {
        id: known.id,
        fqdn: known.fqdn.clone(),
        mark: mark(was, is),
        moved: (from != to).then_some((from, to)),
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
    let empty = serde_json::json!({});
    let both = was.zip(is);
    Ok(Some(NoderoleDifference {
        id: key.id(node),
        noderole: key.clone(),
        deployment: known.deployment,
        mark: mark(was, is),
        content: both.is_some_and(|(was, is)| was.role != is.role),
        rerun: both.is_some_and(|(was, is)| was.reruns != is.reruns),
        rewired: both.is_some_and(|(was, is)| was.parents != is.parents),
        data: data::diff(was.map_or(&empty, |n| &n.data), is.map_or(&empty, |n| &n.data))?,
    }))
}
