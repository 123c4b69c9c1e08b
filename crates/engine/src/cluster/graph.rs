//! Folds the graph of noderoles into one that people can read.
//!
//! Ten thousand edges are unreadable. The first view has one vertex per role and deployment. Users
//! then unfold a role or a node, or select a noderole with its ancestors and descendants. Every
//! view is a fold of the same graph. Each noderole belongs to exactly one vertex, and each edge
//! between vertices counts the noderole edges in it.
//!
//! Invariants:
//!
//! * The members of all vertices are the given noderoles, each exactly once.
//! * The counts of all edges plus the edges within vertices are the edges whose two ends are given.
//! * Equal input gives an equal fold in the same order: deployment, role, node name. Positions
//!   therefore stay the same from one blueprint to the next.
//!
//! A fold can have cycles even if the graph has none, for example if two roles wait for each other
//! on different nodes. Code that draws it must handle that.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{IntoNeighbors, Reversed, VisitMap, Visitable};

use crate::cluster::{EdgeKind, NoderoleKey, Skeleton};
use crate::ids::{DeploymentId, Fqdn, NodeId, NoderoleId, RoleName};
use crate::walk;

/// A noderole and its parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub id: NoderoleId,
    pub noderole: NoderoleKey,
    /// The deployment in which it is bound.
    pub deployment: DeploymentId,
    pub node: NodeId,
    /// The node's name.
    pub fqdn: Fqdn,
    /// The noderoles that it waits for.
    pub parents: Vec<(NoderoleId, EdgeKind)>,
}

/// A set of edges and their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathSet {
    /// The ends of its edges. The longest path can be a single noderole without edges.
    pub noderoles: BTreeSet<NoderoleId>,
    /// Edges as (parent, child).
    pub edges: BTreeSet<(NoderoleId, NoderoleId)>,
}

impl PathSet {
    pub fn is_empty(&self) -> bool {
        self.noderoles.is_empty()
    }
}

/// Identifies a vertex of the fold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub deployment: DeploymentId,
    pub role: RoleName,
    /// The node name and instance of an unfolded noderole. `None`: all noderoles of the role that
    /// are not unfolded.
    pub one: Option<(Fqdn, u32)>,
}

/// The noderoles that get a vertex each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfold {
    /// All noderoles of these roles.
    pub roles: BTreeSet<RoleName>,
    /// All noderoles on these nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Individual noderoles.
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
    pub key: Key,
    /// Its noderoles, as indices into the items.
    pub members: Vec<usize>,
}

/// An edge of the fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Index of the parent vertex.
    pub from: usize,
    /// Index of the child vertex.
    pub to: usize,
    /// Number of noderole edges that it represents.
    pub count: usize,
    /// The strongest kind among them.
    pub kind: EdgeKind,
    /// Number of them that are on the marked path.
    pub on_path: usize,
}

/// A folded graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoldedGraph {
    /// Ordered by key.
    pub vertices: Vec<Vertex>,
    /// Ordered by their ends.
    pub edges: Vec<Edge>,
    /// Number of noderole edges with both ends in the same vertex.
    pub within: usize,
}

impl FoldedGraph {
    /// Truncates the graph to its first `count` vertices and the edges among them.
    #[must_use]
    pub fn first(mut self, count: usize) -> Self {
        self.vertices.truncate(count);
        self.edges.retain(|edge| edge.from < count && edge.to < count);
        self
    }
}

/// Folds the graph and marks the edges of the marked path.
pub fn fold(items: &[Item], unfold: &Unfold, marked_path: &PathSet) -> FoldedGraph {
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
            edge.2 += usize::from(marked_path.edges.contains(&(*id, item.id)));
        }
    }
    FoldedGraph {
        vertices: members.into_iter().map(|(key, members)| Vertex { key, members }).collect(),
        edges: edges
            .into_iter()
            .map(|((from, to), (count, kind, on_path))| Edge { from, to, count, kind, on_path })
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

/// The direction of a walk from a noderole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To ancestors.
    Up,
    /// To descendants.
    Down,
    /// To ancestors and to descendants, each independently.
    Both,
}

/// The noderoles within `steps` edges of `from`, including `from`.
pub fn reach(
    items: &[Item],
    from: &BTreeSet<NoderoleId>,
    direction: Direction,
    steps: usize,
) -> BTreeSet<NoderoleId> {
    let graph = indexed(items);
    let starts: Vec<NodeIndex> =
        graph.node_indices().filter(|vertex| from.contains(&items[vertex.index()].id)).collect();
    let mut reached = Vec::new();
    if direction != Direction::Down {
        reached.extend(within(Reversed(&graph), &starts, steps));
    }
    if direction != Direction::Up {
        reached.extend(within(&graph, &starts, steps));
    }
    reached.into_iter().map(|vertex| items[vertex.index()].id).collect()
}

/// The graph of the items by index, without edges to noderoles that are not among them. Edges lead
/// from parents to children.
pub(super) fn indexed(items: &[Item]) -> DiGraph<(), ()> {
    let index: BTreeMap<NoderoleId, usize> =
        items.iter().enumerate().map(|(at, item)| (item.id, at)).collect();
    let edges = items.iter().enumerate().flat_map(|(child, item)| {
        let parents = item.parents.iter().filter_map(|(parent, _)| index.get(parent));
        parents.map(move |parent| (*parent, child))
    });
    walk::digraph(items.len(), edges)
}

/// The vertices within `steps` edges of some, including these. The walks of petgraph have no limit.
fn within<G>(graph: G, from: &[NodeIndex], steps: usize) -> Vec<NodeIndex>
where
    G: IntoNeighbors<NodeId = NodeIndex> + Visitable,
{
    let mut seen = graph.visit_map();
    let mut last = from.to_vec();
    last.retain(|vertex| seen.visit(*vertex));
    let mut found = last.clone();
    for _ in 0..steps {
        let next = last.iter().flat_map(|vertex| graph.neighbors(*vertex));
        last = next.filter(|vertex| seen.visit(*vertex)).collect();
        if last.is_empty() {
            break;
        }
        found.extend(&last);
    }
    found
}

impl Skeleton {
    /// The noderoles of a deployment's graph: those bound there, all noderoles on its nodes, and
    /// their direct parents.
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
        let outside: BTreeSet<NoderoleId> = items
            .values()
            .flat_map(|item| &item.parents)
            .map(|(parent, _)| *parent)
            .filter(|parent| !items.contains_key(parent))
            .collect();
        for id in outside {
            let found = self.location(id).and_then(|(node, key)| self.item(*node, key));
            items.extend(found.map(|item| (item.id, item)));
        }
        items.into_values().collect()
    }

    /// The noderoles bound in these deployments, by id. Their parents outside are left out.
    pub fn graph_within(&self, deployments: &BTreeSet<DeploymentId>) -> Vec<Item> {
        let mut items: Vec<Item> = self
            .nodes
            .iter()
            .flat_map(|(id, node)| node.noderoles.iter().map(move |found| (*id, found)))
            .filter(|(_, (_, noderole))| deployments.contains(&noderole.deployment))
            .filter_map(|(node, (key, _))| self.item(node, key))
            .collect();
        items.sort_by_key(|item| item.id);
        items
    }

    /// The number of noderoles bound in each deployment that has any.
    pub fn noderole_counts(&self) -> BTreeMap<DeploymentId, usize> {
        let mut counts = BTreeMap::new();
        for noderole in self.nodes.values().flat_map(|node| node.noderoles.values()) {
            *counts.entry(noderole.deployment).or_default() += 1;
        }
        counts
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

    /// `dns` on two nodes, `run` after it on each, and `app` on the second node after both `run`.
    fn small() -> Vec<Item> {
        vec![
            item(1, "dns", &[]),
            item(2, "dns", &[]),
            item(1, "run", &[(1, "dns")]),
            item(2, "run", &[(2, "dns")]),
            item(2, "app", &[(1, "run"), (2, "run"), (9, "gone")]),
        ]
    }

    fn names(folded: &FoldedGraph) -> Vec<String> {
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
    fn folded_view_has_one_vertex_per_role() {
        let folded = fold(&small(), &Unfold::default(), &PathSet::default());
        assert_eq!(names(&folded), ["dns -2-> run", "run -2-> app"]);
        assert_eq!(folded.vertices.iter().map(|v| v.members.len()).collect::<Vec<_>>(), [1, 2, 2]);
    }

    #[test]
    fn unfolding_role_or_node_leaves_rest_folded() {
        let role = Unfold { roles: [name("run")].into(), ..Unfold::default() };
        assert_eq!(
            names(&fold(&small(), &role, &PathSet::default())),
            ["dns -1-> run@n1", "dns -1-> run@n2", "run@n1 -1-> app", "run@n2 -1-> app"]
        );
        let node = Unfold { nodes: [NodeId(Uuid::from_u128(1))].into(), ..Unfold::default() };
        assert_eq!(
            names(&fold(&small(), &node, &PathSet::default())),
            ["dns -1-> run", "dns@n1 -1-> run@n1", "run -1-> app", "run@n1 -1-> app"]
        );
    }

    #[test]
    fn fold_counts_every_item_once() {
        let items = small();
        for unfold in [
            Unfold::default(),
            Unfold { roles: [name("dns")].into(), ..Unfold::default() },
            Unfold { noderoles: [items[3].id].into(), ..Unfold::default() },
        ] {
            let folded = fold(&items, &unfold, &PathSet::default());
            let mut members: Vec<usize> =
                folded.vertices.iter().flat_map(|v| v.members.clone()).collect();
            members.sort_unstable();
            assert_eq!(members, [0, 1, 2, 3, 4]);
            assert_eq!(folded.edges.iter().map(|e| e.count).sum::<usize>() + folded.within, 4);
        }
    }

    #[test]
    fn truncated_fold_is_consistent() {
        let folded = fold(&small(), &Unfold::default(), &PathSet::default()).first(2);
        assert_eq!(folded.vertices.len(), 2);
        assert_eq!(folded.edges, [], "the omitted vertex leaves app and dns without an edge");
    }

    #[test]
    fn reach_respects_step_limit_and_direction() {
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
        assert_eq!(
            names(reach(&items, &from(4), Direction::Up, 1)),
            ["run@n1", "run@n2", "app@n2"]
        );
        assert_eq!(
            names(reach(&items, &from(0), Direction::Down, usize::MAX)),
            ["dns@n1", "run@n1", "app@n2"]
        );
        // The other `run` is neither an ancestor nor a descendant.
        assert_eq!(
            names(reach(&items, &from(2), Direction::Both, usize::MAX)),
            ["dns@n1", "run@n1", "app@n2"]
        );
    }
}
