//! A difference as text, for terminals, mails and files.
//!
//! A reviewer reads it from the top: first removals, then changes, then additions, each by name.
//! One line describes one thing; its parts are indented below. Unchanged documents are only
//! counted. An id appears only if there is no name. The order depends only on the two blueprints,
//! so every reader gets the same text.
//!
//! Blueprints name versions and contents by hash. A caller with the catalog passes their
//! descriptions in [`HashDescriptions`]. Otherwise a new version is one line, although it may
//! change every script. The differences between two contents of a role appear once, where they
//! occur first.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use super::difference::{
    BarclampDifference, DeploymentDifference, Difference, EdgeDifference, Mark, NodeDifference,
    NoderoleDifference, RoleDifference, Sides,
};
use crate::canonical::Hash;
use crate::cluster::connection::FieldChange;
use crate::cluster::{Blueprint, Connection, EdgeKind, NoderoleKey, phantom};
use crate::counting::many;
use crate::data::Change;
use crate::gate::Policy;
use crate::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, RoleName};

/// Names of the ids in a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Names {
    /// Names of the deployments.
    pub deployments: BTreeMap<DeploymentId, DeploymentName>,
    /// Locations of the noderoles that others wait for.
    pub noderoles: BTreeMap<NoderoleId, NamedNoderole>,
}

/// Location of a noderole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NamedNoderole {
    /// Role and instance.
    pub noderole: NoderoleKey,
    /// Id of the node.
    pub node: NodeId,
    /// Name of the node.
    pub fqdn: Fqdn,
}

/// Descriptions of the hashes in a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashDescriptions {
    /// The old and the new version of a barclamp in a deployment, its own or inherited from an
    /// ancestor.
    pub pins: BTreeMap<(DeploymentId, BarclampName), PinDescription>,
    /// The differences between two contents of a role, one line each.
    pub contents: BTreeMap<(Hash, Hash), Vec<String>>,
}

/// A description of the change of a barclamp's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinDescription {
    /// As shown to people: `2 (77d03a91)`. `None` if the deployment does not have the barclamp.
    pub versions: Sides<Option<String>>,
    /// Roles that differ between the versions and that the deployment does not use.
    pub roles: Vec<(RoleName, Sides<Option<Hash>>)>,
}

impl Names {
    /// The names that the difference of these blueprints needs. Searches unchanged nodes only if a
    /// parent is on one of them.
    pub fn of(difference: &Difference, old: &Blueprint, new: &Blueprint) -> Self {
        let deployments =
            old.deployments.iter().chain(&new.deployments).map(|(id, d)| (*id, d.doc.name.clone()));
        let mut names = Self { deployments: deployments.collect(), noderoles: BTreeMap::new() };
        let mut unnamed = parents(difference);
        let changed = difference.nodes.iter().map(|node| node.id);
        names.find(&mut unnamed, old, new, changed);
        if !unnamed.is_empty() {
            names.find(&mut unnamed, old, new, old.nodes.keys().chain(new.nodes.keys()).copied());
        }
        names
    }

    /// Keeps only the names that these differences need. They must be parts of the differences that
    /// the names were made for.
    #[must_use]
    pub fn only(mut self, differences: &[&Difference]) -> Self {
        let deployments: BTreeSet<_> =
            differences.iter().flat_map(|difference| deployments(difference)).collect();
        let noderoles: BTreeSet<_> =
            differences.iter().flat_map(|difference| parents(difference)).collect();
        self.noderoles.retain(|id, _| noderoles.contains(id));
        let whole: BTreeSet<_> = self
            .noderoles
            .values()
            .filter_map(|place| phantom::represented_deployment(&place.fqdn))
            .collect();
        self.deployments.retain(|id, _| deployments.contains(id) || whole.contains(id));
        self
    }

    fn find(
        &mut self,
        unnamed: &mut BTreeSet<NoderoleId>,
        old: &Blueprint,
        new: &Blueprint,
        nodes: impl Iterator<Item = NodeId>,
    ) {
        for id in nodes {
            for stored in [old.nodes.get(&id), new.nodes.get(&id)].into_iter().flatten() {
                for key in stored.doc.noderoles.keys() {
                    if unnamed.is_empty() {
                        return;
                    }
                    let noderole = key.id(id);
                    if unnamed.remove(&noderole) {
                        let place = NamedNoderole {
                            noderole: key.clone(),
                            node: id,
                            fqdn: stored.doc.fqdn.clone(),
                        };
                        self.noderoles.insert(noderole, place);
                    }
                }
            }
        }
    }

    fn deployment(&self, id: DeploymentId) -> String {
        self.deployments
            .get(&id)
            .map(ToString::to_string)
            .unwrap_or_else(|| format!("deployment {id}"))
    }

    /// The name of a node. A phantom is named after its deployment.
    pub fn node<'f>(&self, fqdn: &'f Fqdn) -> Cow<'f, str> {
        phantom::long_name(fqdn, |id| self.deployments.get(&id).map(ToString::to_string))
    }

    /// The name of a parent, seen from `node`: the node's name is left out if it is the same.
    pub fn parent(&self, id: NoderoleId, node: NodeId) -> String {
        match self.noderoles.get(&id) {
            Some(place) if place.node == node => place.noderole.to_string(),
            Some(place) => format!("{} on {}", place.noderole, self.node(&place.fqdn)),
            None => format!("noderole {id}"),
        }
    }
}

/// The noderoles that the difference names as parents.
pub fn parents(difference: &Difference) -> BTreeSet<NoderoleId> {
    let noderoles = difference.nodes.iter().flat_map(|node| &node.noderoles);
    noderoles.flat_map(|noderole| &noderole.edges).map(|edge| edge.parent).collect()
}

/// The deployments that the difference names.
pub fn deployments(difference: &Difference) -> BTreeSet<DeploymentId> {
    let own = difference.deployments.iter().flat_map(|deployment| {
        let above = deployment.parent.iter().flat_map(|sides| [sides.old, sides.new]).flatten();
        above.chain([deployment.id])
    });
    let of_nodes = difference.nodes.iter().flat_map(|node| {
        let moved = node.moved.iter().flat_map(|sides| [sides.old, sides.new]).flatten();
        let bound = node.noderoles.iter().flat_map(|noderole| {
            let bound = noderole.bound.iter().flat_map(|sides| [sides.old, sides.new]);
            bound.chain([noderole.deployment])
        });
        moved.chain(bound)
    });
    own.chain(of_nodes).collect()
}

impl Difference {
    /// The difference as text. It ends with a line break.
    pub fn text(&self, names: &Names, behind: &HashDescriptions) -> String {
        let mut page = TextWriter { text: String::new(), names, behind, shown: BTreeSet::new() };
        if self.is_empty() {
            page.line(0, "No differences.");
        }
        self.policy.iter().for_each(|policy| page.policy(policy));
        for mark in [Mark::Removed, Mark::Changed, Mark::Added] {
            self.deployments.iter().filter(|d| d.mark == mark).for_each(|d| page.deployment(d));
        }
        for mark in [Mark::Removed, Mark::Changed, Mark::Added] {
            self.nodes.iter().filter(|n| n.mark == mark).for_each(|n| page.node(n));
        }
        page.counted(self);
        page.text
    }
}

struct TextWriter<'a> {
    text: String,
    names: &'a Names,
    behind: &'a HashDescriptions,
    /// The pairs of contents whose differences are in the text.
    shown: BTreeSet<(Hash, Hash)>,
}

fn sign(mark: Mark) -> char {
    match mark {
        Mark::Added => '+',
        Mark::Removed => '-',
        Mark::Changed => '*',
    }
}

fn kind_of_sides(sides: Sides<Option<Hash>>) -> Mark {
    match (sides.old, sides.new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Changed,
    }
}

fn short(hash: Option<Hash>) -> String {
    hash.map_or_else(|| "nothing".into(), |hash| hash.short())
}

impl TextWriter<'_> {
    fn line(&mut self, depth: usize, content: impl fmt::Display) {
        // Writing into a String does not fail.
        let _ = writeln!(self.text, "{:1$}{content}", "", depth * 2);
    }

    fn counted(&mut self, difference: &Difference) {
        let of = |mark: Mark| {
            let deployments = difference.deployments.iter().filter(|d| d.mark == mark).count();
            deployments + difference.nodes.iter().filter(|n| n.mark == mark).count()
        };
        if !difference.is_empty() {
            self.text.push('\n');
        }
        let (removed, changed, added) = (of(Mark::Removed), of(Mark::Changed), of(Mark::Added));
        self.line(
            0,
            format_args!(
                "{removed} removed, {changed} changed, {added} added, {} unchanged.",
                many(difference.unchanged, "document")
            ),
        );
    }

    fn policy(&mut self, Sides { old, new }: &Sides<Policy>) {
        self.line(0, "* approval policy");
        old.changes(new).iter().for_each(|change| self.line(1, change));
    }

    fn deployment(&mut self, deployment: &DeploymentDifference) {
        let place = |id: Option<DeploymentId>| {
            id.map_or_else(|| "the top".into(), |id| self.names.deployment(id))
        };
        let above = match (deployment.mark, &deployment.parent) {
            (Mark::Added, Some(sides)) => format!(", below {}", place(sides.new)),
            (Mark::Removed, Some(sides)) => format!(", was below {}", place(sides.old)),
            _ => String::new(),
        };
        let moved = deployment.parent.as_ref().filter(|_| deployment.mark == Mark::Changed);
        let moved = moved.map(|sides| {
            format!("moves from below {} to below {}", place(sides.old), place(sides.new))
        });
        self.line(
            0,
            format_args!("{} deployment {}{above}", sign(deployment.mark), deployment.name),
        );
        if let Some(Sides { old, new }) = &deployment.renamed {
            self.line(1, format_args!("name: {old} -> {new}"));
        }
        moved.into_iter().for_each(|text| self.line(1, text));
        if let Some(Sides { old, new }) = &deployment.phantom {
            self.line(1, format_args!("phantom node: {old} -> {new}"));
        }
        for jig in &deployment.inactive_jigs {
            let word = if jig.mark == Mark::Added { "off" } else { "on" };
            self.line(1, format_args!("jig {}: turned {word}", jig.jig));
        }
        deployment.barclamps.iter().for_each(|barclamp| self.barclamp(deployment.id, barclamp));
        deployment.roles.iter().for_each(|role| self.role(role));
    }

    fn barclamp(&mut self, deployment: DeploymentId, change: &BarclampDifference) {
        let BarclampDifference { barclamp, mark, old, new } = change;
        let behind = self.behind.pins.get(&(deployment, barclamp.clone()));
        let (old, new) = match behind {
            Some(PinDescription { versions, .. }) => (&versions.old, &versions.new),
            None => (old, new),
        };
        let (mark, versions) = match (old, new) {
            // A change between an own and an inherited version is a change of version, not an
            // addition or removal.
            (Some(old), Some(new)) => (Mark::Changed, format!(": {old} -> {new}")),
            (Some(one), None) | (None, Some(one)) => (*mark, format!(" {one}")),
            (None, None) => (*mark, String::new()),
        };
        self.line(1, format_args!("{} barclamp {barclamp}{versions}", sign(mark)));
        for (role, sides) in behind.into_iter().flat_map(|behind| &behind.roles) {
            let mark = kind_of_sides(*sides);
            let content = content(mark, Some(*sides));
            self.line(2, format_args!("{} role {role}{content}, not used here", sign(mark)));
            self.contents(3, Some(*sides));
        }
    }

    /// Adds the differences between two contents, unless they are in the text already.
    fn contents(&mut self, depth: usize, sides: Option<Sides<Option<Hash>>>) {
        let Some(pair) = sides.and_then(|sides| sides.old.zip(sides.new)) else { return };
        let behind = self.behind;
        if self.shown.insert(pair) {
            behind
                .contents
                .get(&pair)
                .into_iter()
                .flatten()
                .for_each(|line| self.line(depth, line));
        }
    }

    fn role(&mut self, change: &RoleDifference) {
        let content = content(change.mark, change.contents);
        self.line(1, format_args!("{} role {}{content}", sign(change.mark), change.role));
        self.contents(2, change.contents);
        self.values(2, &change.data);
    }

    fn node(&mut self, node: &NodeDifference) {
        let place = |id: Option<DeploymentId>| {
            id.map_or_else(|| "no deployment".into(), |id| self.names.deployment(id))
        };
        let (place, moved) = match (node.mark, node.moved) {
            (Mark::Added, Some(sides)) => (format!(" in {}", place(sides.new)), None),
            (Mark::Removed, Some(sides)) => (format!(", was in {}", place(sides.old)), None),
            (_, Some(Sides { old, new })) => {
                (String::new(), Some(format!("moves from {} to {}", place(old), place(new))))
            }
            (_, None) => (String::new(), None),
        };
        let name = self.names.node(&node.fqdn);
        match phantom::represented_deployment(&node.fqdn) {
            // The name of a phantom node is that of its deployment.
            Some(_) => {
                let name = name.strip_suffix(" as a whole").unwrap_or(&name);
                self.line(0, format_args!("{} phantom node of {name}", sign(node.mark)));
            }
            None => self.line(0, format_args!("{} node {name}{place}", sign(node.mark))),
        }
        if let Some(Sides { old, new }) = &node.renamed {
            self.line(1, format_args!("name: {old} -> {new}"));
        }
        if let Some(Sides { new, .. }) = node.phantom {
            self.line(
                1,
                if new {
                    "becomes a phantom node without a machine"
                } else {
                    "becomes a machine instead of a phantom node"
                },
            );
        }
        moved.into_iter().for_each(|text| self.line(1, text));
        match &node.connection {
            None => {}
            Some(Sides { old: None, new: Some(new) }) => {
                self.line(1, format_args!("+ connection: {}", new.line()))
            }
            Some(Sides { old: Some(old), new: None }) => {
                self.line(1, format_args!("- connection: {}", old.line()))
            }
            Some(Sides { old, new }) => {
                for FieldChange { name, old, new } in
                    Connection::changes(old.as_ref(), new.as_ref())
                {
                    let side = |side: Option<String>| side.unwrap_or_else(|| "nothing".into());
                    self.line(
                        1,
                        format_args!("* connection, {name}: {} -> {}", side(old), side(new)),
                    );
                }
            }
        }
        if !node.hints.is_empty() {
            self.line(1, "* hints");
            self.values(2, &node.hints);
        }
        for mark in [Mark::Removed, Mark::Changed, Mark::Added] {
            node.noderoles
                .iter()
                .filter(|n| n.mark == mark)
                .for_each(|n| self.noderole(node.id, n));
        }
        match node.unchanged {
            0 => {}
            n => self.line(1, format_args!("{} unchanged", many(n, "noderole"))),
        }
    }

    fn noderole(&mut self, node: NodeId, change: &NoderoleDifference) {
        let content = content(change.mark, change.contents);
        let mut head = format!("{} {}{content}", sign(change.mark), change.noderole);
        if change.mark != Mark::Changed {
            head.push_str(&format!(" for {}", self.names.deployment(change.deployment)));
        }
        let plain: Vec<String> = change.edges.iter().map(|edge| self.edge(node, edge)).collect();
        if change.mark != Mark::Changed && !plain.is_empty() {
            let waits = if change.mark == Mark::Added { "waits for" } else { "waited for" };
            head.push_str(&format!(", {waits} {}", plain.join(", ")));
        }
        self.line(1, head);
        self.contents(2, change.contents);
        if change.mark == Mark::Changed {
            self.facts(change);
            for (edge, plain) in change.edges.iter().zip(plain) {
                let text = match (edge.old, edge.new) {
                    (None, _) => format!("+ waits for {plain}"),
                    (_, None) => format!("- waits for {plain}"),
                    _ => format!("* waits for {plain}"),
                };
                self.line(2, text);
            }
        }
        self.values(2, &change.data);
    }

    fn facts(&mut self, change: &NoderoleDifference) {
        if let Some(Sides { old, new }) = change.bound {
            let (old, new) = (self.names.deployment(old), self.names.deployment(new));
            self.line(2, format_args!("bound in: {old} -> {new}"));
        }
        match change.reruns {
            Some(Sides { old, new }) if new > old => self.line(2, "runs again: requested"),
            Some(Sides { old, new }) => {
                self.line(2, format_args!("requested re-runs: {old} -> {new}"))
            }
            None => {}
        }
        if let Some(Sides { old, new }) = change.rank {
            self.line(2, format_args!("rank: {old} -> {new}"));
        }
    }

    fn edge(&self, node: NodeId, edge: &EdgeDifference) -> String {
        let word = |kind: EdgeKind| kind.as_str().replace('_', " ");
        let parent = self.names.parent(edge.parent, node);
        match (edge.old, edge.new) {
            (Some(old), Some(new)) => format!("{parent}: {} -> {}", word(old), word(new)),
            (Some(EdgeKind::Hard), None) | (None, Some(EdgeKind::Hard)) | (None, None) => parent,
            (Some(kind), None) | (None, Some(kind)) => format!("{parent} ({})", word(kind)),
        }
    }

    fn values(&mut self, depth: usize, data: &[Change]) {
        data.iter().for_each(|change| self.line(depth, change));
    }
}

fn content(mark: Mark, contents: Option<Sides<Option<Hash>>>) -> String {
    match (mark, contents) {
        (_, None) => String::new(),
        (Mark::Added, Some(sides)) => format!(" {}", short(sides.new)),
        (Mark::Removed, Some(sides)) => format!(" {}", short(sides.old)),
        (Mark::Changed, Some(sides)) => format!(": {} -> {}", short(sides.old), short(sides.new)),
    }
}
