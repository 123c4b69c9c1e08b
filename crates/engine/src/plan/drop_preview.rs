//! Previews dropping nodes on each role of a deployment, before anything is dropped.
//!
//! The same function runs on the server and in the browser. A board with the skeleton and the
//! catalog needs no request while a user drags nodes. It has no rules of its own: it runs the
//! bindings of a drop on a draft and rolls them back.
//!
//! It must answer while the user drags, so its work is bounded:
//!
//! * The proposal's edits are resolved once. Each role is tried on top and rolled back.
//! * Equivalent nodes ([`NodeProfile`]) share one result. Exchanging two such nodes changes
//!   nothing, so binding has the same effect on both. Only the first differs, because it may add
//!   noderoles that the others then share. If another node's drop adds some, refused nodes are
//!   tried again.
//! * For the rest, at most [`MAX_CONSIDERED`] roles are considered, divided equally among the roles
//!   of the board. Further nodes are reported as *unknown*, never as illegal.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::draft::{Draft, Mark};
use super::effects::EffectCause;
use super::refusal::EditError;
use super::resolve::{AppliedEdits, apply_edits};
use super::rules::Rules;
use super::{Effects, NumberedEdit};
use crate::canonical::Hash;
use crate::catalog::Catalog;
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey, Skeleton};
use crate::ids::{DeploymentId, NodeId, NoderoleId, RoleName};

/// Maximum number of roles considered for binding per call.
pub const MAX_CONSIDERED: u64 = 5_000;

/// Maximum number of nodes named for each role that is also added.
const NAMED: usize = 8;

/// The preview of dropping some nodes: one entry per role of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DropPreview {
    /// The roles, ordered by name.
    pub roles: Vec<RoleDropPreview>,
}

/// The preview of dropping the nodes on one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleDropPreview {
    /// The role.
    pub role: RoleName,
    /// Nodes to which the role can be bound.
    pub legal: Vec<NodeId>,
    /// Nodes to which the role cannot be bound, with the reason.
    pub illegal: Vec<IllegalNode>,
    /// Nodes without a result, because the drag contains too many different nodes.
    #[serde(default)]
    pub unknown: Vec<NodeId>,
    /// Roles that the drop also adds, in the order of the decisions.
    pub also_added: Vec<AddedRole>,
    /// Nodes that would move to another deployment, as text: `Node web-1 moves from system to web`.
    pub moves: Vec<String>,
    /// Total number of noderoles that would be added.
    pub added: usize,
    /// The role's wave, starting at 1, and the number of waves; null if nothing would be added.
    pub wave: Option<(u32, u32)>,
}

/// A role that is also added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddedRole {
    /// The role.
    pub role: RoleName,
    /// Short names of the first nodes that get the role.
    pub nodes: Vec<String>,
    /// Number of nodes that get the role.
    pub count: usize,
    /// The reason, as text: `required by runtime, implicit`.
    pub reason: String,
}

/// A node to which a role cannot be bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IllegalNode {
    /// The node.
    pub node: NodeId,
    /// The node's short name.
    pub short: String,
    /// The reason, and how to fix it.
    pub reason: String,
}

/// Previews dropping these nodes on each role of a deployment, on top of a proposal's edits. `next`
/// is the number of the proposal's next edit. Duplicate nodes count once.
pub fn preview_drop(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
    next: u32,
    deployment: DeploymentId,
    nodes: &[NodeId],
) -> DropPreview {
    // Refused edits have no effect here; the proposal's page reports them.
    let AppliedEdits { mut draft, .. } = apply_edits(Rules::default(), skeleton, catalog, edits);
    let mut seen = BTreeSet::new();
    let nodes: Vec<NodeId> = nodes.iter().copied().filter(|node| seen.insert(*node)).collect();
    let dragged = dragged_nodes(&draft, &nodes);
    let roles: Vec<RoleName> = draft
        .deployment(deployment)
        .map(|found| found.roles.keys().cloned().collect())
        .unwrap_or_default();
    let limit = MAX_CONSIDERED / u64::try_from(roles.len().max(1)).unwrap_or(u64::MAX);
    let one = |role| {
        draft.run_trial(|draft| {
            DropSimulation::on(skeleton, draft, deployment, role, next).all(&dragged, limit)
        })
    };
    DropPreview { roles: roles.into_iter().map(one).collect() }
}

/// A dragged node with the number of its profile. Equivalent nodes have the same number.
struct DraggedNode {
    node: NodeId,
    /// `None`: the node does not exist or is a phantom, which takes no role.
    profile: Option<usize>,
}

/// Two nodes with an equal profile are equivalent: exchanging them changes only their names. They
/// belong to the same deployment, and their noderoles have the same roles, parents and children.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NodeProfile<'a> {
    deployment: DeploymentId,
    noderoles: Vec<ProfileNoderole<'a>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ProfileNoderole<'a> {
    key: &'a NoderoleKey,
    deployment: DeploymentId,
    role: Hash,
    parents: Vec<(End<'a>, EdgeKind)>,
    /// Children on other nodes. Those on this node are covered by their parents.
    children: Vec<(NoderoleId, EdgeKind)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum End<'a> {
    SameNode(&'a NoderoleKey),
    OtherNode(NoderoleId),
}

impl<'a> NodeProfile<'a> {
    fn of(draft: &'a Draft<'_>, node: NodeId) -> Option<Self> {
        let found = draft.node(node).ok().filter(|found| !found.phantom)?;
        let keys: BTreeMap<NoderoleId, &NoderoleKey> =
            found.noderoles.keys().map(|key| (key.id(node), key)).collect();
        let noderoles = keys.iter().filter_map(|(id, key)| {
            let noderole = found.noderoles.get(key)?;
            let end = |edge: &EdgeDoc| match keys.get(&edge.parent) {
                Some(key) => (End::SameNode(key), edge.kind),
                None => (End::OtherNode(edge.parent), edge.kind),
            };
            let mut parents: Vec<_> = noderole.parents.iter().map(end).collect();
            parents.sort();
            let mut children = draft.children(*id);
            children.retain(|(child, _)| !keys.contains_key(child));
            Some(ProfileNoderole {
                key,
                deployment: noderole.deployment,
                role: noderole.role,
                parents,
                children,
            })
        });
        let mut noderoles: Vec<ProfileNoderole<'_>> = noderoles.collect();
        noderoles.sort();
        Some(Self { deployment: found.deployment, noderoles })
    }
}

fn dragged_nodes(draft: &Draft<'_>, nodes: &[NodeId]) -> Vec<DraggedNode> {
    let mut numbers: BTreeMap<NodeProfile<'_>, usize> = BTreeMap::new();
    let number = |node: &NodeId| {
        let profile = NodeProfile::of(draft, *node).map(|profile| {
            let next = numbers.len();
            *numbers.entry(profile).or_insert(next)
        });
        DraggedNode { node: *node, profile }
    };
    nodes.iter().map(number).collect()
}

/// The result of dropping one node.
#[derive(Clone)]
enum DropResult {
    Bound {
        /// The added noderoles, with the reason if the drop did not name them.
        new: Vec<(RoleName, NodeId, Option<String>)>,
        /// The previous deployment, if the node moves.
        from: Option<DeploymentId>,
    },
    Refused(EditError),
}

/// The last result for a profile.
struct Answer {
    node: NodeId,
    dropped: DropResult,
    /// Number of nodes of this profile that were computed.
    computed: usize,
}

/// Drops all nodes on one role, one after the other.
struct DropSimulation<'d, 'a> {
    skeleton: &'a Skeleton,
    draft: &'d mut Draft<'a>,
    deployment: DeploymentId,
    role: RoleName,
    next: u32,
    answers: BTreeMap<usize, Answer>,
    /// Nodes that another node's drop touched. They are no longer equivalent to others.
    touched: BTreeSet<NodeId>,
    /// The level of each new noderole among the new ones, starting at 0.
    levels: BTreeMap<NoderoleId, u32>,
    own_level: Option<u32>,
    brought: BTreeMap<(RoleName, String), usize>,
    preview: RoleDropPreview,
}

impl<'d, 'a> DropSimulation<'d, 'a> {
    fn on(
        skeleton: &'a Skeleton,
        draft: &'d mut Draft<'a>,
        deployment: DeploymentId,
        role: RoleName,
        next: u32,
    ) -> Self {
        let preview = RoleDropPreview {
            role: role.clone(),
            legal: Vec::new(),
            illegal: Vec::new(),
            unknown: Vec::new(),
            also_added: Vec::new(),
            moves: Vec::new(),
            added: 0,
            wave: None,
        };
        let (answers, touched, levels) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let brought = BTreeMap::new();
        Self {
            skeleton,
            draft,
            deployment,
            role,
            next,
            answers,
            touched,
            levels,
            own_level: None,
            brought,
            preview,
        }
    }

    fn all(mut self, dragged: &[DraggedNode], limit: u64) -> RoleDropPreview {
        let end = self.draft.considered_count().saturating_add(limit);
        for (seq, one) in (self.next..).zip(dragged) {
            match self.answered(one) {
                Some((like, dropped)) => self.add_result(one.node, like, &dropped),
                None if self.draft.considered_count() >= end => self.preview.unknown.push(one.node),
                None => self.simulate_drop(one, seq),
            }
        }
        self.preview.wave =
            self.own_level.zip(self.levels.values().max()).map(|(own, all)| (own + 1, all + 1));
        self.preview
    }

    /// The result of an equivalent node. The first result may contain noderoles that the others
    /// share; from the second on, results are equal.
    fn answered(&self, one: &DraggedNode) -> Option<(NodeId, DropResult)> {
        let known = self.answers.get(&one.profile?)?;
        let same = known.computed >= 2 && !self.touched.contains(&one.node);
        same.then(|| (known.node, known.dropped.clone()))
    }

    fn simulate_drop(&mut self, one: &DraggedNode, seq: u32) {
        let (deployment, role) = (self.deployment, self.role.clone());
        let from = self.draft.node(one.node).map(|found| found.deployment).ok();
        let mark = self.draft.mark();
        let done =
            self.draft.apply_or_roll_back(|draft| draft.bind(deployment, one.node, &role, seq));
        let new: Vec<NoderoleId> = self.draft.added_since(mark).collect();
        let dropped = match done {
            Ok(()) if new.is_empty() => DropResult::Refused(self.already_bound(one.node)),
            Ok(()) => {
                self.record_levels(one.node, &new, mark);
                self.forget_refusals(&new);
                let is = self.draft.node(one.node).map(|found| found.deployment).ok();
                DropResult::Bound {
                    new: self.required_reasons(&new),
                    from: from.filter(|from| is != Some(*from)),
                }
            }
            Err(error) => DropResult::Refused(error),
        };
        self.add_result(one.node, one.node, &dropped);
        if let Some(profile) = one.profile
            && !self.touched.contains(&one.node)
        {
            let computed = self.answers.get(&profile).map_or(0, |answer| answer.computed) + 1;
            self.answers.insert(profile, Answer { node: one.node, dropped, computed });
        }
    }

    /// The reason against a drop that would change nothing.
    fn already_bound(&self, node: NodeId) -> EditError {
        let phantom = self.draft.deployment(self.deployment).map(|found| found.phantom);
        let carrier = [Ok(node), phantom].into_iter().flatten().find_map(|id| {
            let found = self.draft.node(id).ok()?;
            found.noderoles.contains_key(&NoderoleKey::first(self.role.clone())).then_some(found)
        });
        match carrier {
            Some(found) => {
                EditError::AlreadyBound { role: self.role.clone(), node: found.fqdn.clone() }
            }
            None => EditError::UnknownNode(node),
        }
    }

    /// Records the levels of new noderoles and the nodes that the drop touched.
    fn record_levels(&mut self, node: NodeId, new: &[NoderoleId], mark: Mark) {
        for id in new {
            let Some((at, key, noderole)) = self.draft.noderole(*id) else { continue };
            let above =
                noderole.parents.iter().filter_map(|edge| self.levels.get(&edge.parent)).max();
            let level = above.map_or(0, |level| level + 1);
            if key.role == self.role {
                self.own_level = self.own_level.max(Some(level));
            }
            let places =
                noderole.parents.iter().filter_map(|edge| self.draft.noderole(edge.parent));
            self.touched.extend(places.map(|(place, ..)| place).filter(|place| *place != at));
            self.levels.insert(*id, level);
        }
        self.touched.extend(self.draft.touched_since(mark).filter(|touched| *touched != node));
    }

    /// A required noderole that a drop adds can also serve nodes that could not get one of their
    /// own before.
    fn forget_refusals(&mut self, new: &[NoderoleId]) {
        let is_own = |id: &NoderoleId| {
            self.draft.noderole(*id).is_some_and(|(_, key, _)| key.role == self.role)
        };
        if !new.iter().all(is_own) {
            self.answers.retain(|_, answer| matches!(answer.dropped, DropResult::Bound { .. }));
        }
    }

    fn required_reasons(&self, new: &[NoderoleId]) -> Vec<(RoleName, NodeId, Option<String>)> {
        let required_reason = |id: &NoderoleId| {
            let (node, key, _) = self.draft.noderole(*id)?;
            Some((key.role.clone(), node, self.draft.bind_origin(*id).and_then(reason_text)))
        };
        new.iter().filter_map(required_reason).collect()
    }

    /// Adds the result of a node's drop, computed for it or for an equivalent node (`like`).
    fn add_result(&mut self, node: NodeId, like: NodeId, dropped: &DropResult) {
        match dropped {
            DropResult::Bound { new, from } => {
                self.preview.legal.push(node);
                self.preview.added += new.len();
                for (role, at, reason) in new {
                    if let Some(reason) = reason {
                        self.add_required(role, if *at == like { node } else { *at }, reason);
                    }
                }
                if let Some(from) = from {
                    let (from, to) = (
                        self.draft.deployment_name(*from),
                        self.draft.deployment_name(self.deployment),
                    );
                    self.preview
                        .moves
                        .push(format!("Node {} moves from {from} to {to}", self.short(node)));
                }
            }
            DropResult::Refused(error) => {
                let reason = match (self.draft.node(like), self.draft.node(node)) {
                    (Ok(like), Ok(is)) => error.clone().of_node(&like.fqdn, &is.fqdn).to_string(),
                    _ => error.to_string(),
                };
                self.preview.illegal.push(IllegalNode { node, short: self.short(node), reason });
            }
        }
    }

    fn add_required(&mut self, role: &RoleName, node: NodeId, reason: &str) {
        let short = self.short(node);
        let place = *self.brought.entry((role.clone(), reason.to_owned())).or_insert_with(|| {
            self.preview.also_added.push(AddedRole {
                role: role.clone(),
                nodes: Vec::new(),
                count: 0,
                reason: reason.to_owned(),
            });
            self.preview.also_added.len() - 1
        });
        let brought = &mut self.preview.also_added[place];
        brought.count += 1;
        if brought.nodes.len() < NAMED {
            brought.nodes.push(short);
        }
    }

    fn short(&self, node: NodeId) -> String {
        // A node that the proposal expunges still has its name in the skeleton.
        let found = self.draft.node(node).ok().or_else(|| self.skeleton.nodes.get(&node));
        found.map_or_else(|| node.to_string(), |found| self.draft.short_name(found))
    }
}

/// The reasons for noderoles that no edit requested, as text.
pub fn required_reasons_of(effects: &Effects) -> BTreeMap<NoderoleId, String> {
    effects.bound.iter().filter_map(|bound| Some((bound.id, reason_text(&bound.cause)?))).collect()
}

fn reason_text(cause: &EffectCause) -> Option<String> {
    match cause {
        EffectCause::Requested { .. } => None,
        EffectCause::Required { by, implicit: true, .. } => {
            Some(format!("required by {by}, implicit"))
        }
        EffectCause::Required { by, implicit: false, .. } => Some(format!("required by {by}")),
    }
}
