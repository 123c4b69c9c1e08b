//! Compares marked paths of small random graphs with all paths.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};

use engine::cluster::graph::{Item, Unfold, fold};
use engine::cluster::marked_path::{PathSet, along, between, longest, waves};
use engine::cluster::{EdgeKind, NoderoleKey};
use engine::ids::{DeploymentId, Fqdn, NodeId, NoderoleId, RoleName};
use proptest::prelude::*;
use uuid::Uuid;

const COUNT: usize = 9;
const NODES: usize = 3;

fn id(at: usize) -> NoderoleId {
    item(at, Vec::new()).id
}

/// Three roles on three nodes.
fn item(at: usize, parents: Vec<NoderoleId>) -> Item {
    let (role, node) = (at / NODES, at % NODES);
    let role = RoleName::parse(&format!("r{role}")).unwrap();
    let node_id = NodeId(Uuid::from_u128(1 + node as u128));
    Item {
        id: NoderoleId::of(node_id, &role, 0),
        noderole: NoderoleKey::first(role),
        deployment: DeploymentId(Uuid::from_u128(1)),
        node: node_id,
        fqdn: Fqdn::parse(&format!("n{node}.example.com")).unwrap(),
        parents: parents.into_iter().map(|parent| (parent, EdgeKind::Hard)).collect(),
    }
}

/// A graph without cycles: noderoles wait only for earlier ones.
fn graph() -> impl Strategy<Value = Vec<Item>> {
    proptest::collection::vec(prop::bool::weighted(0.3), COUNT * COUNT).prop_map(|wires| {
        let parents =
            |at: usize| (0..at).filter(|parent| wires[at * COUNT + parent]).map(id).collect();
        (0..COUNT).map(|at| item(at, parents(at))).collect()
    })
}

fn some() -> impl Strategy<Value = BTreeSet<NoderoleId>> {
    proptest::collection::btree_set((0..COUNT).prop_map(id), 1..3)
}

/// Every path that starts at this noderole.
fn paths_from(items: &[Item], from: NoderoleId) -> Vec<Vec<NoderoleId>> {
    let mut all = vec![vec![from]];
    for child in items.iter().filter(|item| item.parents.iter().any(|(parent, _)| *parent == from))
    {
        all.extend(paths_from(items, child.id).into_iter().map(|rest| [vec![from], rest].concat()));
    }
    all
}

fn every_path(items: &[Item]) -> Vec<Vec<NoderoleId>> {
    items.iter().flat_map(|item| paths_from(items, item.id)).collect()
}

fn weight(weights: &[u64], of: NoderoleId) -> u64 {
    weights[(0..COUNT).find(|at| id(*at) == of).unwrap()]
}

proptest! {
    #[test]
    fn set_contains_exactly_edges_on_paths(items in graph(), from in some(), to in some()) {
        let mut expected = PathSet::default();
        for path in every_path(&items) {
            if path.len() > 1 && from.contains(&path[0]) && to.contains(&path[path.len() - 1]) {
                let one = along(&path);
                expected.noderoles.extend(one.noderoles);
                expected.edges.extend(one.edges);
            }
        }
        prop_assert_eq!(between(&items, &from, &to), expected);
    }

    #[test]
    fn longest_path_has_greatest_weight(
        items in graph(),
        weights in proptest::collection::vec(0_u64..50, COUNT),
        turned in any::<prop::sample::Index>(),
    ) {
        let of = |path: &[NoderoleId]| path.iter().map(|id| weight(&weights, *id)).sum::<u64>();
        let all = every_path(&items);
        let found = longest(&items, |id| weight(&weights, id));
        prop_assert!(all.contains(&found), "{found:?} is no way");
        prop_assert_eq!(of(&found), all.iter().map(|path| of(path)).max().unwrap());

        let mut others = items.clone();
        others.rotate_left(turned.index(COUNT));
        prop_assert_eq!(longest(&others, |id| weight(&weights, id)), found, "whatever order they come in");
    }

    #[test]
    fn wave_equals_longest_path_length(items in graph()) {
        let mut expected: BTreeMap<NoderoleId, usize> = BTreeMap::new();
        for path in every_path(&items) {
            let longest = expected.entry(path[path.len() - 1]).or_default();
            *longest = (*longest).max(path.len());
        }
        for (item, wave) in items.iter().zip(waves(&items)) {
            prop_assert_eq!(wave.map(|wave| wave as usize), expected.get(&item.id).copied());
        }
    }

    #[test]
    fn fold_marks_path_edges_once(items in graph(), from in some(), to in some()) {
        let marked_path = between(&items, &from, &to);
        for unfold in [
            Unfold::default(),
            Unfold { noderoles: items.iter().map(|item| item.id).collect(), ..Unfold::default() },
        ] {
            let folded = fold(&items, &unfold, &marked_path);
            let marked: usize = folded.edges.iter().map(|edge| edge.on_path).sum();
            let mut vertex_of = BTreeMap::new();
            for (at, vertex) in folded.vertices.iter().enumerate() {
                vertex_of.extend(vertex.members.iter().map(|member| (items[*member].id, at)));
            }
            let seen = marked_path.edges.iter().filter(|(from, to)| vertex_of[from] != vertex_of[to]).count();
            prop_assert_eq!(marked, seen);
            prop_assert!(folded.edges.iter().all(|edge| edge.on_path <= edge.count));
        }
    }
}

#[test]
fn cycle_members_have_no_wave_or_path() {
    let items = vec![
        item(0, vec![id(1)]),
        item(1, vec![id(0)]),
        item(2, vec![id(1)]),
        item(3, vec![]),
        item(4, vec![id(3)]),
    ];
    assert_eq!(waves(&items), [None, None, None, Some(1), Some(2)]);
    assert_eq!(longest(&items, |_| 1), [id(3), id(4)]);
    assert_eq!(longest(&[], |_| 1), []);
}
