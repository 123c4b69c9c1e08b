//! The graph of noderoles, folded so that people can read it.
//!
//! Ten thousand edges are no picture. The first view has one vertex for each role in each deployment; whoever looks unfolds a role or
//! a node, or asks for one noderole with what leads to it and what follows from it. Every view is a fold of the same graph: each
//! noderole belongs to exactly one vertex, and an edge between two vertices says how many edges of noderoles it stands for.
//!
//! Invariants:
//! * the members of all vertices, together, are the noderoles that were given, each once;
//! * the counts of all edges and the edges within vertices, together, are the edges whose two ends were given;
//! * the same noderoles and the same wish give the same fold, in the same order: by deployment, role, then node name, so that
//!   positions stay from one blueprint to the next.
//!
//! A fold of a graph without cycles may have some (two roles that wait for each other on different nodes): whoever draws it must
//! expect that.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::trail::Trail;
use crate::cluster::{EdgeKind, NoderoleKey, Skeleton};
use crate::ids::{DeploymentId, Fqdn, NodeId, NoderoleId, RoleName};

/// A noderole and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which.
    pub id: NoderoleId,
    /// Its role and instance.
    pub noderole: NoderoleKey,
    /// Where it is bound.
    pub deployment: DeploymentId,
    /// Its node.
    pub node: NodeId,
    /// The node's name.
    pub fqdn: Fqdn,
    /// What it waits for.
    pub parents: Vec<(NoderoleId, EdgeKind)>,
}

/// What a vertex of the fold stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// In which deployment.
    pub deployment: DeploymentId,
    /// Which role.
    pub role: RoleName,
    /// One noderole of it, by its node's name and its instance; None: all of them that are not unfolded.
    pub one: Option<(Fqdn, u32)>,
}

/// What is to be seen one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfold {
    /// Every noderole of these roles.
    pub roles: BTreeSet<RoleName>,
    /// Every noderole on these nodes.
    pub nodes: BTreeSet<NodeId>,
    /// These.
    pub noderoles: BTreeSet<NoderoleId>,
}

impl Unfold {
    fn wants(&self, item: &Item) -> bool {
        self.roles.contains(&item.noderole.role)
            || self.nodes.contains(&item.node)
            || self.noderoles.contains(&item.id)
    }
}

/// A vertex of the fold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vertex {
    /// What it stands for.
    pub key: Key,
    /// Its noderoles, as places in what was given.
    pub members: Vec<usize>,
}

/// An edge of the fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The vertex that is waited for.
    pub from: usize,
    /// The vertex that waits.
    pub to: usize,
    /// How many edges of noderoles it stands for.
    pub count: usize,
    /// The strongest kind among them.
    pub kind: EdgeKind,
    /// How many of them are on the trail.
    pub on_trail: usize,
}

/// A graph, folded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    /// In the order of their keys.
    pub vertices: Vec<Vertex>,
    /// In the order of their ends.
    pub edges: Vec<Edge>,
    /// Edges whose ends are in the same vertex.
    pub within: usize,
}

impl Folded {
    /// The first vertices alone, and the edges among them.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        self.vertices.truncate(count);
        self.edges.retain(|edge| edge.from < count && edge.to < count);
        self
    }
}

/// Folds the graph, and marks what is on the trail.
pub fn fold(items: &[Item], unfold: &Unfold, trail: &Trail) -> Folded {
    let mut members: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        members.entry(key(item, unfold)).or_default().push(at);
    }
    let mut vertex_of = vec![0; items.len()];
    for (vertex, members) in members.values().enumerate() {
        for member in members {
            vertex_of[*member] = vertex;
        }
    }
    let place: BTreeMap<NoderoleId, usize> =
        items.iter().enumerate().map(|(at, item)| (item.id, at)).collect();
    let mut edges: BTreeMap<(usize, usize), (usize, EdgeKind, usize)> = BTreeMap::new();
    let mut within = 0;
    for (at, item) in items.iter().enumerate() {
        for (id, kind) in &item.parents {
            let Some(parent) = place.get(id) else { continue };
            let ends = (vertex_of[*parent], vertex_of[at]);
            if ends.0 == ends.1 {
                within += 1;
                continue;
            }
            let edge = edges.entry(ends).or_insert((0, *kind, 0));
            edge.0 += 1;
            edge.1 = stronger(edge.1, *kind);
            edge.2 += usize::from(trail.edges.contains(&(*id, item.id)));
        }
    }
    Folded {
        vertices: members.into_iter().map(|(key, members)| Vertex { key, members }).collect(),
        edges: edges
            .into_iter()
            .map(|((from, to), (count, kind, on_trail))| Edge { from, to, count, kind, on_trail })
            .collect(),
        within,
    }
}

fn key(item: &Item, unfold: &Unfold) -> Key {
    let one = unfold.wants(item).then(|| (item.fqdn.clone(), item.noderole.instance));
    Key { deployment: item.deployment, role: item.noderole.role.clone(), one }
}

fn stronger(a: EdgeKind, b: EdgeKind) -> EdgeKind {
    let weight = |kind| match kind {
        EdgeKind::Hard => 0,
        EdgeKind::OrderOnly => 1,
        EdgeKind::Soft => 2,
    };
    if weight(a) <= weight(b) { a } else { b }
}

/// Which way to walk from a noderole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To what it waits for, and so on.
    Up,
    /// To what waits for it, and so on.
    Down,
    /// Both, each for itself.
    Both,
}

/// The noderoles that a walk of at most `steps` from some of them reaches, those included.
pub fn reach(
    items: &[Item],
    from: &BTreeSet<NoderoleId>,
    way: Way,
    steps: usize,
) -> BTreeSet<NoderoleId> {
    let mut parents: BTreeMap<NoderoleId, Vec<NoderoleId>> = BTreeMap::new();
    let mut children: BTreeMap<NoderoleId, Vec<NoderoleId>> = BTreeMap::new();
    for item in items {
        for (parent, _) in &item.parents {
            parents.entry(item.id).or_default().push(*parent);
            children.entry(*parent).or_default().push(item.id);
        }
    }
    let known: BTreeSet<NoderoleId> = items.iter().map(|item| item.id).collect();
    let mut reached: BTreeSet<NoderoleId> = from.intersection(&known).copied().collect();
    if way != Way::Down {
        walk(&parents, &known, from, steps, &mut reached);
    }
    if way != Way::Up {
        walk(&children, &known, from, steps, &mut reached);
    }
    reached
}

fn walk(
    next: &BTreeMap<NoderoleId, Vec<NoderoleId>>,
    known: &BTreeSet<NoderoleId>,
    from: &BTreeSet<NoderoleId>,
    steps: usize,
    reached: &mut BTreeSet<NoderoleId>,
) {
    // Apart from what is reached already: the two ways of `Both` must not stop each other.
    let mut seen = from.clone();
    let mut edge: Vec<NoderoleId> = from.iter().copied().collect();
    for _ in 0..steps {
        let further = edge.iter().flat_map(|id| next.get(id).into_iter().flatten());
        edge = further
            .filter(|id| known.contains(*id))
            .copied()
            .filter(|id| seen.insert(*id))
            .collect();
        if edge.is_empty() {
            return;
        }
        reached.extend(edge.iter().copied());
    }
}

impl Skeleton {
    /// The noderoles of a deployment's graph: those that are bound there, everything on its nodes, and what these wait for at once.
    pub fn graph_of(&self, deployment: DeploymentId) -> Vec<Item> {
        let mut items: BTreeMap<NoderoleId, Item> = BTreeMap::new();
        for (id, node) in &self.nodes {
            for (key, noderole) in &node.noderoles {
                if node.deployment == deployment || noderole.deployment == deployment {
                    let found = self.item(*id, key);
                    items.extend(found.map(|item| (item.id, item)));
                }
            }
        }
        let beyond: BTreeSet<NoderoleId> = items
            .values()
            .flat_map(|item| &item.parents)
            .map(|(parent, _)| *parent)
            .filter(|parent| !items.contains_key(parent))
            .collect();
        for id in beyond {
            let found = self.place(id).and_then(|(node, key)| self.item(*node, key));
            items.extend(found.map(|item| (item.id, item)));
        }
        items.into_values().collect()
    }

    /// A noderole of the skeleton with its edges.
    pub fn item(&self, node: NodeId, key: &NoderoleKey) -> Option<Item> {
        let found = self.nodes.get(&node)?;
        let noderole = found.noderoles.get(key)?;
        Some(Item {
            id: key.id(node),
            noderole: key.clone(),
            deployment: noderole.deployment,
            node,
            fqdn: found.fqdn.clone(),
            parents: noderole.parents.iter().map(|edge| (edge.parent, edge.kind)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn item(node: u128, role: &str, parents: &[(u128, &str)]) -> Item {
        let id =
            |node: u128, role: &str| NoderoleId::of(NodeId(Uuid::from_u128(node)), &name(role), 0);
        Item {
            id: id(node, role),
            noderole: NoderoleKey::first(name(role)),
            deployment: DeploymentId(Uuid::from_u128(1)),
            node: NodeId(Uuid::from_u128(node)),
            fqdn: Fqdn::parse(&format!("n{node}.example.com")).unwrap(),
            parents: parents.iter().map(|(node, role)| (id(*node, role), EdgeKind::Hard)).collect(),
        }
    }

    fn name(role: &str) -> RoleName {
        RoleName::parse(role).unwrap()
    }

    /// `dns` on two nodes, `run` after it on each, `app` on the second after both `run`.
    fn small() -> Vec<Item> {
        vec![
            item(1, "dns", &[]),
            item(2, "dns", &[]),
            item(1, "run", &[(1, "dns")]),
            item(2, "run", &[(2, "dns")]),
            item(2, "app", &[(1, "run"), (2, "run"), (9, "gone")]),
        ]
    }

    fn said(folded: &Folded) -> Vec<String> {
        let name = |at: usize| {
            let key = &folded.vertices[at].key;
            let one =
                key.one.as_ref().map(|(fqdn, _)| format!("@{}", fqdn.short())).unwrap_or_default();
            format!("{}{one}", key.role)
        };
        folded
            .edges
            .iter()
            .map(|e| format!("{} -{}-> {}", name(e.from), e.count, name(e.to)))
            .collect()
    }

    #[test]
    fn the_first_view_has_one_vertex_for_each_role() {
        let folded = fold(&small(), &Unfold::default(), &Trail::default());
        assert_eq!(said(&folded), ["dns -2-> run", "run -2-> app"]);
        assert_eq!(folded.vertices.iter().map(|v| v.members.len()).collect::<Vec<_>>(), [1, 2, 2]);
    }

    #[test]
    fn a_role_or_a_node_unfolds_and_the_rest_stays() {
        let role = Unfold { roles: [name("run")].into(), ..Unfold::default() };
        assert_eq!(
            said(&fold(&small(), &role, &Trail::default())),
            ["dns -1-> run@n1", "dns -1-> run@n2", "run@n1 -1-> app", "run@n2 -1-> app"]
        );
        let node = Unfold { nodes: [NodeId(Uuid::from_u128(1))].into(), ..Unfold::default() };
        assert_eq!(
            said(&fold(&small(), &node, &Trail::default())),
            ["dns -1-> run", "dns@n1 -1-> run@n1", "run -1-> app", "run@n1 -1-> app"]
        );
    }

    #[test]
    fn nothing_is_lost_or_counted_twice() {
        let items = small();
        for unfold in [
            Unfold::default(),
            Unfold { roles: [name("dns")].into(), ..Unfold::default() },
            Unfold { noderoles: [items[3].id].into(), ..Unfold::default() },
        ] {
            let folded = fold(&items, &unfold, &Trail::default());
            let mut members: Vec<usize> =
                folded.vertices.iter().flat_map(|v| v.members.clone()).collect();
            members.sort_unstable();
            assert_eq!(members, [0, 1, 2, 3, 4]);
            assert_eq!(folded.edges.iter().map(|e| e.count).sum::<usize>() + folded.within, 4);
        }
    }

    #[test]
    fn the_first_of_a_fold_are_a_fold() {
        let folded = fold(&small(), &Unfold::default(), &Trail::default()).first(2);
        assert_eq!(folded.vertices.len(), 2);
        assert_eq!(folded.edges, [], "app and dns have nothing between them, and run is gone");
    }

    #[test]
    fn a_walk_goes_as_far_as_it_is_told_and_both_ways_stay_apart() {
        let items = small();
        let from = |at: usize| BTreeSet::from([items[at].id]);
        let names = |reached: BTreeSet<NoderoleId>| {
            let of = |i: &&Item| reached.contains(&i.id);
            items
                .iter()
                .filter(of)
                .map(|i| format!("{}@{}", i.noderole.role, i.fqdn.short()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(reach(&items, &from(4), Way::Up, 1)), ["run@n1", "run@n2", "app@n2"]);
        assert_eq!(
            names(reach(&items, &from(0), Way::Down, usize::MAX)),
            ["dns@n1", "run@n1", "app@n2"]
        );
        // Not the other `run`: it is neither before nor behind this one.
        assert_eq!(
            names(reach(&items, &from(2), Way::Both, usize::MAX)),
            ["dns@n1", "run@n1", "app@n2"]
        );
    }
}
