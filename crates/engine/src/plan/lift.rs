//! Lifting: what dropping some nodes on each role of a deployment would do, before anything is dropped.
//!
//! The same function in the server and in the browser: a board that has the skeleton and the catalog asks nobody while nodes are
//! lifted. It runs the very bindings that a drop would make, on a draft, and takes them back; it decides nothing of its own.
//!
//! It has to answer while somebody holds the nodes, so its work is bounded:
//! * The proposal's edits are worked out once. Each role is tried upon them and taken back.
//! * Nodes of equal standing ([`Standing`]) share one answer. Exchanging two such nodes changes nothing, so binding does to one what it
//!   does to the other. Only the first one differs, since it may bring along what the others then share.
//! * For what is left no more than [`MAX_LOOKED_AT`] roles are looked at, each role of the board having an equal part of that. Nodes
//!   beyond it are told as *unknown*, never as illegal.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::bind::Rules;
use super::draft::{Draft, Mark};
use super::effects::Why;
use super::refusal::EditError;
use super::resolve::{Laid, laid};
use super::{Effects, NumberedEdit};
use crate::canonical::Hash;
use crate::catalog::Catalog;
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey, Skeleton};
use crate::ids::{DeploymentId, NodeId, NoderoleId, RoleName};

/// Most roles that are looked at to be bound for one answer.
pub const MAX_LOOKED_AT: u64 = 5_000;

/// Most nodes that are named where something comes along.
const NAMED: usize = 8;

/// What lifting some nodes would allow: one entry for each role of the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lift {
    /// In the order of their names.
    pub roles: Vec<LiftRole>,
}

/// What dropping the lifted nodes on a role would mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiftRole {
    /// The role.
    pub role: RoleName,
    /// Nodes that could be bound.
    pub legal: Vec<NodeId>,
    /// Nodes that can't, and why.
    pub illegal: Vec<IllegalNode>,
    /// Nodes of which it was not worked out, because too many of different standing are lifted at once.
    #[serde(default)]
    pub unknown: Vec<NodeId>,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Brought {
    /// Which.
    pub role: RoleName,
    /// Short names of the first nodes that it comes to.
    pub nodes: Vec<String>,
    /// How many nodes it comes to.
    pub count: usize,
    /// Why: `brought by runtime, implicit`.
    pub why: String,
}

/// A node that can't be bound to a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IllegalNode {
    /// Which.
    pub node: NodeId,
    /// Its short name.
    pub short: String,
    /// Why not, and what to do.
    pub reason: String,
}

/// What lifting these nodes would allow in a deployment, on top of a proposal's edits; `next` is the number of its next edit. A node
/// counts once, however often it is named.
pub fn lift(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
    next: u32,
    deployment: DeploymentId,
    nodes: &[NodeId],
) -> Lift {
    // What is refused leaves nothing behind, and the proposal's own page says so.
    let Laid { mut draft, .. } = laid(Rules::default(), skeleton, catalog, edits);
    let mut seen = BTreeSet::new();
    let nodes: Vec<NodeId> = nodes.iter().copied().filter(|node| seen.insert(*node)).collect();
    let lifted = lifted(&draft, &nodes);
    let roles: Vec<RoleName> = draft
        .deployment(deployment)
        .map(|found| found.roles.keys().cloned().collect())
        .unwrap_or_default();
    let share = MAX_LOOKED_AT / u64::try_from(roles.len().max(1)).unwrap_or(u64::MAX);
    let one = |role| {
        draft.tried(|draft| {
            Dropping::on(skeleton, draft, deployment, role, next).all(&lifted, share)
        })
    };
    Lift { roles: roles.into_iter().map(one).collect() }
}

/// A lifted node, and the number of its standing: nodes of one number are of equal standing.
struct Lifted {
    node: NodeId,
    /// None: the node is not there, or is a phantom, which takes no role.
    standing: Option<usize>,
}

/// Two nodes are of equal standing when exchanging them would change nothing but their names: they belong to the same deployment,
/// and what they carry is the same, waits for the same and is waited for by the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Standing<'a> {
    deployment: DeploymentId,
    carried: Vec<Carried<'a>>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Carried<'a> {
    key: &'a NoderoleKey,
    deployment: DeploymentId,
    role: Hash,
    parents: Vec<(End<'a>, EdgeKind)>,
    /// On other nodes; those on this one are told by their parents.
    children: Vec<(NoderoleId, EdgeKind)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum End<'a> {
    Here(&'a NoderoleKey),
    Elsewhere(NoderoleId),
}

impl<'a> Standing<'a> {
    fn of(draft: &'a Draft<'_>, node: NodeId) -> Option<Self> {
        let found = draft.node(node).ok().filter(|found| !found.phantom)?;
        let here: BTreeMap<NoderoleId, &NoderoleKey> =
            found.noderoles.keys().map(|key| (key.id(node), key)).collect();
        let carried = here.iter().filter_map(|(id, key)| {
            let noderole = found.noderoles.get(key)?;
            let end = |edge: &EdgeDoc| match here.get(&edge.parent) {
                Some(key) => (End::Here(key), edge.kind),
                None => (End::Elsewhere(edge.parent), edge.kind),
            };
            let mut parents: Vec<_> = noderole.parents.iter().map(end).collect();
            parents.sort();
            let mut children = draft.children(*id);
            children.retain(|(child, _)| !here.contains_key(child));
            Some(Carried {
                key,
                deployment: noderole.deployment,
                role: noderole.role,
                parents,
                children,
            })
        });
        let mut carried: Vec<Carried<'_>> = carried.collect();
        carried.sort();
        Some(Self { deployment: found.deployment, carried })
    }
}

fn lifted(draft: &Draft<'_>, nodes: &[NodeId]) -> Vec<Lifted> {
    let mut numbers: BTreeMap<Standing<'_>, usize> = BTreeMap::new();
    let number = |node: &NodeId| {
        let standing = Standing::of(draft, *node).map(|standing| {
            let next = numbers.len();
            *numbers.entry(standing).or_insert(next)
        });
        Lifted { node: *node, standing }
    };
    nodes.iter().map(number).collect()
}

/// What dropping one node came to.
#[derive(Clone)]
enum Dropped {
    Bound {
        /// What was put there, and why, for what came along.
        new: Vec<(RoleName, NodeId, Option<String>)>,
        /// Where the node was, if it moves.
        from: Option<DeploymentId>,
    },
    Refused(EditError),
}

/// The last answer for a standing.
struct Answer {
    node: NodeId,
    dropped: Dropped,
    /// How many nodes of this standing were worked out.
    worked_out: usize,
}

/// All lifted nodes dropped on one role, one after the other.
struct Dropping<'d, 'a> {
    skeleton: &'a Skeleton,
    draft: &'d mut Draft<'a>,
    deployment: DeploymentId,
    role: RoleName,
    next: u32,
    answers: BTreeMap<usize, Answer>,
    /// Nodes that another one's drop has touched, so that they are of their own standing now.
    touched: BTreeSet<NodeId>,
    /// How many each new noderole waits for in a row, of the new ones.
    levels: BTreeMap<NoderoleId, u32>,
    own_level: Option<u32>,
    brought: BTreeMap<(RoleName, String), usize>,
    told: LiftRole,
}

impl<'d, 'a> Dropping<'d, 'a> {
    fn on(
        skeleton: &'a Skeleton,
        draft: &'d mut Draft<'a>,
        deployment: DeploymentId,
        role: RoleName,
        next: u32,
    ) -> Self {
        let told = LiftRole {
            role: role.clone(),
            legal: Vec::new(),
            illegal: Vec::new(),
            unknown: Vec::new(),
            brings: Vec::new(),
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
            told,
        }
    }

    fn all(mut self, lifted: &[Lifted], share: u64) -> LiftRole {
        let end = self.draft.looked_at().saturating_add(share);
        for (seq, one) in (self.next..).zip(lifted) {
            match self.answered(one) {
                Some((like, dropped)) => self.tell(one.node, like, &dropped),
                None if self.draft.looked_at() >= end => self.told.unknown.push(one.node),
                None => self.work_out(one, seq),
            }
        }
        self.told.wave =
            self.own_level.zip(self.levels.values().max()).map(|(own, all)| (own + 1, all + 1));
        self.told
    }

    /// What a node of equal standing came to. The first one may bring along what the others then share; from the second on it is always
    /// the same.
    fn answered(&self, one: &Lifted) -> Option<(NodeId, Dropped)> {
        let known = self.answers.get(&one.standing?)?;
        let same = known.worked_out >= 2 && !self.touched.contains(&one.node);
        same.then(|| (known.node, known.dropped.clone()))
    }

    fn work_out(&mut self, one: &Lifted, seq: u32) {
        let (deployment, role) = (self.deployment, self.role.clone());
        let from = self.draft.node(one.node).map(|found| found.deployment).ok();
        let mark = self.draft.mark();
        let done = self.draft.whole(|draft| draft.bind(deployment, one.node, &role, seq));
        let dropped = match done {
            Ok(()) => {
                let new: Vec<NoderoleId> = self.draft.put_since(mark).collect();
                self.learn(one.node, &new, mark);
                let is = self.draft.node(one.node).map(|found| found.deployment).ok();
                Dropped::Bound {
                    new: self.in_words(&new),
                    from: from.filter(|from| is != Some(*from)),
                }
            }
            Err(error) => Dropped::Refused(error),
        };
        self.tell(one.node, one.node, &dropped);
        if let Some(standing) = one.standing
            && !self.touched.contains(&one.node)
        {
            let worked_out = self.answers.get(&standing).map_or(0, |answer| answer.worked_out) + 1;
            self.answers.insert(standing, Answer { node: one.node, dropped, worked_out });
        }
    }

    /// Notes how far up the new ones stand and whose standing they change.
    fn learn(&mut self, node: NodeId, new: &[NoderoleId], mark: Mark) {
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

    fn in_words(&self, new: &[NoderoleId]) -> Vec<(RoleName, NodeId, Option<String>)> {
        let told = |id: &NoderoleId| {
            let (node, key, _) = self.draft.noderole(*id)?;
            Some((key.role.clone(), node, self.draft.why_bound(*id).and_then(along)))
        };
        new.iter().filter_map(told).collect()
    }

    /// Tells what a node's drop came to, which was worked out for it or for one like it.
    fn tell(&mut self, node: NodeId, like: NodeId, dropped: &Dropped) {
        match dropped {
            Dropped::Bound { new, from } => {
                self.told.legal.push(node);
                self.told.added += new.len();
                for (role, at, why) in new {
                    if let Some(why) = why {
                        self.bring(role, if *at == like { node } else { *at }, why);
                    }
                }
                if let Some(from) = from {
                    let (from, to) = (
                        self.draft.deployment_name(*from),
                        self.draft.deployment_name(self.deployment),
                    );
                    self.told.moves.push(format!("{} moves from {from} to {to}", self.short(node)));
                }
            }
            Dropped::Refused(error) => {
                let reason = match (self.draft.node(like), self.draft.node(node)) {
                    (Ok(like), Ok(is)) => error.clone().of_node(&like.fqdn, &is.fqdn).to_string(),
                    _ => error.to_string(),
                };
                self.told.illegal.push(IllegalNode { node, short: self.short(node), reason });
            }
        }
    }

    fn bring(&mut self, role: &RoleName, node: NodeId, why: &str) {
        let short = self.short(node);
        let place = *self.brought.entry((role.clone(), why.to_owned())).or_insert_with(|| {
            self.told.brings.push(Brought {
                role: role.clone(),
                nodes: Vec::new(),
                count: 0,
                why: why.to_owned(),
            });
            self.told.brings.len() - 1
        });
        let brought = &mut self.told.brings[place];
        brought.count += 1;
        if brought.nodes.len() < NAMED {
            brought.nodes.push(short);
        }
    }

    fn short(&self, node: NodeId) -> String {
        // One that the proposal gives up is still known by its name.
        let found = self.draft.node(node).ok().or_else(|| self.skeleton.nodes.get(&node));
        found.map_or_else(|| node.to_string(), |found| self.draft.called(found))
    }
}

/// Why noderoles come along, in words, for those that nobody asked for.
pub fn brought(effects: &Effects) -> BTreeMap<NoderoleId, String> {
    effects.bound.iter().filter_map(|bound| Some((bound.id, along(&bound.why)?))).collect()
}

fn along(why: &Why) -> Option<String> {
    match why {
        Why::Asked { .. } => None,
        Why::Brought { by, implicit: true, .. } => Some(format!("brought by {by}, implicit")),
        Why::Brought { by, implicit: false, .. } => Some(format!("brought by {by}")),
    }
}
