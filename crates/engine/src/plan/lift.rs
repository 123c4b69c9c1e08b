//! Lifting: what dropping some nodes on each role of a deployment would do, before anything is dropped.
//!
//! The same function in the server and in the browser: a board that has the skeleton and the catalog asks nobody while nodes are
//! lifted. It is [`resolve`] with the drop appended to the proposal's edits, told for people; it decides nothing of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::effects::{Bound, Why};
use super::{Edit, Effects, NumberedEdit, resolve};
use crate::catalog::Catalog;
use crate::cluster::Skeleton;
use crate::ids::{DeploymentId, NodeId, NoderoleId, RoleName};

/// What lifting some nodes would allow: one entry for each role of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lift {
    /// In the order of their names.
    pub roles: Vec<LiftRole>,
}

/// What dropping the lifted nodes on a role would mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiftRole {
    /// The role.
    pub role: RoleName,
    /// Nodes that could be bound.
    pub legal: Vec<NodeId>,
    /// Nodes that can't, and why.
    pub illegal: Vec<IllegalNode>,
    /// What would come along, in the order in which it was decided.
    pub brings: Vec<Brought>,
    /// Nodes that would change their deployment, in words: `web-1 moves from system to web`.
    pub moves: Vec<String>,
    /// Noderoles that would be added in all.
    pub added: usize,
    /// The place of the role in the order it all would run in, and how many places there are.
    pub wave: Option<(u32, u32)>,
}

/// A role that comes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// Which.
    pub role: RoleName,
    /// Short names of the nodes that it comes to.
    pub nodes: Vec<String>,
    /// Why: `brought by runtime, implicit`.
    pub why: String,
}

/// A node that can't be bound to a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IllegalNode {
    /// Which.
    pub node: NodeId,
    /// Its short name.
    pub short: String,
    /// Why not, and what to do.
    pub reason: String,
}

/// What lifting these nodes would allow in a deployment, on top of a proposal's edits; `next` is the number of its next edit.
pub fn lift(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
    next: u32,
    deployment: DeploymentId,
    nodes: &[NodeId],
) -> Lift {
    let effects = resolve(skeleton, catalog, edits);
    let known = skeleton.deployments.get(&deployment).into_iter().flat_map(|d| d.roles.keys().cloned());
    let new = effects.roles.iter().filter(|r| r.deployment == deployment).map(|r| r.role.clone());
    let roles: BTreeSet<RoleName> = known.chain(new).collect();
    let gone = |role: &RoleName| effects.removed_roles.iter().any(|r| r.deployment == deployment && r.role == *role);
    let names = Names { skeleton, edits };
    let one = |role| lift_role(&names, catalog, next, deployment, nodes, role);
    Lift { roles: roles.into_iter().filter(|role| !gone(role)).map(one).collect() }
}

/// Names of nodes and deployments, those that the edits make included.
struct Names<'a> {
    skeleton: &'a Skeleton,
    edits: &'a [NumberedEdit],
}

impl Names<'_> {
    fn node(&self, id: NodeId) -> String {
        self.skeleton.nodes.get(&id).map_or_else(|| id.to_string(), |node| node.fqdn.short().to_owned())
    }

    fn deployment(&self, id: DeploymentId) -> String {
        let known = self.skeleton.deployments.get(&id).map(|d| d.name.to_string());
        let made = |edit: &NumberedEdit| match &edit.edit {
            Edit::CreateDeployment { id: made, name, .. } if *made == id => Some(name.to_string()),
            _ => None,
        };
        known.or_else(|| self.edits.iter().find_map(made)).unwrap_or_else(|| id.to_string())
    }
}

fn lift_role(
    names: &Names<'_>,
    catalog: &Catalog,
    next: u32,
    deployment: DeploymentId,
    nodes: &[NodeId],
    role: RoleName,
) -> LiftRole {
    let binds = (next..).zip(nodes).map(|(seq, node)| {
        let edit = Edit::Bind { deployment, node: *node, role: role.clone() };
        NumberedEdit { seq, edit }
    });
    let all: Vec<NumberedEdit> = names.edits.iter().cloned().chain(binds).collect();
    let effects = resolve(names.skeleton, catalog, &all);
    let refused: BTreeMap<u32, &str> =
        effects.refused.iter().filter(|r| r.edit >= next).map(|r| (r.edit, r.reason.as_str())).collect();
    let (mut legal, mut illegal) = (Vec::new(), Vec::new());
    for (seq, node) in (next..).zip(nodes) {
        match refused.get(&seq) {
            None => legal.push(*node),
            Some(reason) => {
                illegal.push(IllegalNode { node: *node, short: names.node(*node), reason: (*reason).to_owned() });
            }
        }
    }
    let new: Vec<&Bound> = effects.bound.iter().filter(|b| b.why.edit() >= next).collect();
    let moved = effects.moved.iter().filter(|m| m.why.edit() >= next).map(|m| {
        format!("{} moves from {} to {}", names.node(m.node), names.deployment(m.from), names.deployment(m.to))
    });
    let levels = levels(new.iter().map(|b| (b.id, b.parents.iter().map(|p| p.parent).collect())));
    let own = new.iter().filter(|b| b.noderole.role == role).filter_map(|b| levels.get(&b.id)).max();
    let wave = own.zip(levels.values().max()).map(|(own, all)| (own + 1, all + 1));
    LiftRole {
        role,
        legal,
        illegal,
        brings: brings(names, &effects, &new),
        moves: moved.collect(),
        added: new.len(),
        wave,
    }
}

fn brings(names: &Names<'_>, effects: &Effects, new: &[&Bound]) -> Vec<Brought> {
    let why = brought(effects);
    let mut brings: Vec<Brought> = Vec::new();
    for bound in new {
        let (Some(why), node) = (why.get(&bound.id), names.node(bound.node)) else { continue };
        match brings.iter_mut().find(|b| b.role == bound.noderole.role && b.why == *why) {
            Some(known) => known.nodes.push(node),
            None => brings.push(Brought { role: bound.noderole.role.clone(), nodes: vec![node], why: why.clone() }),
        }
    }
    brings
}

/// Why noderoles come along, in words, for those that nobody asked for.
pub fn brought(effects: &Effects) -> BTreeMap<NoderoleId, String> {
    let text = |why: &Why| match why {
        Why::Asked { .. } => None,
        Why::Brought { by, implicit: true, .. } => Some(format!("brought by {by}, implicit")),
        Why::Brought { by, implicit: false, .. } => Some(format!("brought by {by}")),
    };
    effects.bound.iter().filter_map(|bound| Some((bound.id, text(&bound.why)?))).collect()
}

/// How many of a set each waits for in a row; parents come before children in the iterator.
fn levels<Id: Ord + Copy>(items: impl Iterator<Item = (Id, Vec<Id>)>) -> BTreeMap<Id, u32> {
    let mut levels = BTreeMap::new();
    for (id, parents) in items {
        let level = parents.iter().filter_map(|p| levels.get(p)).max().map_or(0, |l: &u32| l + 1);
        levels.insert(id, level);
    }
    levels
}
