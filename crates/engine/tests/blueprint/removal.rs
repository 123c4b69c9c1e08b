//! Removal steps.

use std::collections::{BTreeMap, BTreeSet};

use engine::blueprint::impact::{self, Impact, Planned};
use engine::blueprint::projection::content;
use engine::blueprint::{difference, impact as of};
use engine::catalog::{Join, JoinNeed, Role, RunPolicy};
use engine::cluster::{EdgeDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey};
use engine::gate::Risk;
use engine::ids::{ActionName, NoderoleId, StepId};
use engine::plan::{Edit, edit};
use proptest::prelude::*;
use serde_json::json;

use crate::world::{Changed, SYSTEM, WEB, World, bind, fqdn, key, node, role};

fn removable(text: &str, requires: &[&str]) -> Role {
    Role { actions: BTreeSet::from([ActionName::remove()]), ..role(text, requires) }
}

fn unbind(n: u128, role: &str) -> Edit {
    Edit::Unbind(edit::Unbind { node: node(n), noderole: key(role), with_dependents: true })
}

fn removal(n: u128, role: &str) -> StepId {
    StepId::of(key(role).id(node(n)), &ActionName::remove())
}

fn impact_of(changed: &Changed) -> Impact {
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    let Changed { old, new, effects, projection, catalog, .. } = changed;
    of(&Planned { old, new, difference: &found, projection, effects, catalog }, None)
}

#[test]
fn removals_run_against_the_edges() {
    let mut world = World::of(vec![
        removable("base", &[]),
        role("runtime", &["base"]),
        removable("app", &["runtime"]),
    ]);
    world.commit(&[bind(WEB, 1, "app")]);
    let changed = world.change(&[unbind(1, "base")]);
    let steps: Vec<_> = changed
        .projection
        .removals
        .iter()
        .map(|step| (step.id, step.rank, step.parents.clone()))
        .collect();
    assert_eq!(
        steps,
        [
            (removal(1, "app"), 0, vec![]),
            (removal(1, "base"), 1, vec![(removal(1, "app"), EdgeKind::Hard)]),
        ],
        "the runtime has no removal step, so its edges connect app and base"
    );
    assert_eq!(changed.projection.removed.len(), 3);
    assert_eq!(impact_of(&changed).risks, [Risk::Removal].into());
}

#[test]
fn removal_has_content_from_before() {
    let joined = RunPolicy {
        join: Join { need: JoinNeed::AtLeast(7), ..Join::default() },
        ..RunPolicy::default()
    };
    let mut world = World::of(vec![Role { run: joined, ..removable("app", &[]) }]);
    world.commit(&[bind(WEB, 1, "app"), crate::world::data(1, "app", json!({"port": 1}))]);
    let (_, noderole) = world.blueprint.noderole(node(1), &key("app")).unwrap();
    let of_role = world.blueprint.deployments[&WEB].doc.roles.get(&key("app").role);
    let hash = |action| content(noderole, of_role, &action).unwrap();
    let changed = world.change(&[unbind(1, "app")]);
    let [step] = changed.projection.removals.as_slice() else { panic!("expected one removal") };
    assert_eq!((step.content, step.role), (hash(ActionName::remove()), noderole.role));
    assert_ne!(
        step.content,
        hash(ActionName::run()),
        "run and remove have different content hashes"
    );
    assert_eq!(step.join(), Join::default(), "the join of run does not apply");
}

#[test]
fn expunged_node_and_bound_noderole_have_no_removal() {
    let mut world = World::of(vec![removable("app", &[])]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]);
    let expunge = Edit::ExpungeNode(edit::ExpungeNode { node: node(1), reason: "burnt".into() });
    let changed = world.change(&[expunge]);
    assert_eq!(changed.projection.removed, [key("app").id(node(1))]);
    assert_eq!(changed.projection.removals, [], "a removal cannot run on an expunged node");
    let again = world.change(&[unbind(2, "app"), bind(WEB, 2, "app")]);
    assert_eq!(again.projection.removals, []);
}

#[test]
fn review_names_removals_and_noderoles_left_on_nodes() {
    let mut world =
        World::of(vec![removable("app", &["plain"]), role("plain", &[]), role("other", &[])]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]);
    let found = impact_of(&world.change(&[unbind(1, "plain"), bind(WEB, 3, "other")]));
    let named = |list: &impact::Counted<impact::Touched>| {
        list.first.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(named(&found.undone), ["app on n1", "app on n2"]);
    assert_eq!(named(&found.left_in_place), ["plain on n1"]);
    let wave: Vec<(String, String, usize)> = found.waves[0]
        .groups
        .iter()
        .map(|group| (group.role.to_string(), group.action.to_string(), group.nodes))
        .collect();
    assert_eq!(
        wave,
        [("app".into(), "remove".into(), 2), ("other".into(), "run".into(), 1)],
        "removals are part of the waves"
    );
}

/// The parents of each noderole, and two properties of each.
type Graph = (Vec<Vec<(usize, bool)>>, Vec<bool>, Vec<bool>);

/// A random graph on three nodes, of which a part is removed.
fn graphs() -> impl Strategy<Value = Graph> {
    (2_usize..14).prop_flat_map(|n| {
        let parents = prop::collection::vec(
            prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..4),
            n,
        );
        let flags = prop::collection::vec(any::<bool>(), n);
        (parents, flags.clone(), flags).prop_map(|(parents, removable, removed)| {
            let parents = parents.into_iter().enumerate().map(|(child, parents)| {
                let earlier = parents.into_iter().filter(|_| child > 0);
                let unique: BTreeMap<usize, bool> =
                    earlier.map(|(index, hard)| (index.index(child), hard)).collect();
                unique.into_iter().collect()
            });
            (parents.collect(), removable, removed)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Removal steps are exactly those of removed noderoles with `remove`. A noderole comes after
    /// every one that depended on it over removed noderoles, and ranks rise along edges.
    #[test]
    fn removal_order_reverses_dependencies((parents, can, gone) in graphs()) {
        let names: Vec<String> = (0..parents.len()).map(|n| format!("r{n}")).collect();
        let roles = names.iter().zip(&can).map(|(name, can)| match can {
            true => removable(name, &[]),
            false => role(name, &[]),
        });
        let mut world = World::of(roles.collect());
        let place = |n: usize| node(1 + (n % 3) as u128);
        let id = |n: usize| NoderoleKey::first(key(&names[n]).role).id(place(n));
        let mut ranks: Vec<u32> = Vec::new();
        let mut docs: Vec<NoderoleDoc> = Vec::new();
        for (n, parents) in parents.iter().enumerate() {
            let rank = parents.iter().map(|(p, _)| ranks[*p] + 1).max().unwrap_or(0);
            ranks.push(rank);
            let hash = world
                .catalog
                .roles()
                .find(|(_, role)| role.name.as_str() == names[n])
                .unwrap()
                .0;
            let edge = |(p, hard): &(usize, bool)| EdgeDoc {
                parent: id(*p),
                kind: if *hard { EdgeKind::Hard } else { EdgeKind::Soft },
            };
            docs.push(NoderoleDoc {
                deployment: SYSTEM,
                role: hash,
                data: json!({}),
                reruns: 0,
                rank,
                parents: parents.iter().map(edge).collect(),
            });
        }
        let mut new = world.blueprint.clone();
        for at in 1..=3_u128 {
            let doc = |keep: &dyn Fn(usize) -> bool| NodeDoc {
                id: node(at),
                fqdn: fqdn(at),
                deployment: SYSTEM,
                phantom: false,
                connection: None,
                hints: serde_json::Map::new(),
                noderoles: (0..docs.len())
                    .filter(|n| place(*n) == node(at) && keep(*n))
                    .map(|n| (key(&names[n]), docs[n].clone()))
                    .collect(),
            };
            world.blueprint.insert_node(doc(&|_| true)).unwrap();
            new.insert_node(doc(&|n| !gone[n])).unwrap();
        }
        let removals = world.to(new).projection.removals;

        let of = |id: NoderoleId| StepId::of(id, &ActionName::remove());
        let expected: BTreeSet<StepId> =
            (0..docs.len()).filter(|n| gone[*n] && can[*n]).map(|n| of(id(n))).collect();
        prop_assert_eq!(removals.iter().map(|step| step.id).collect::<BTreeSet<_>>(), expected);
        let rank: BTreeMap<StepId, u32> =
            removals.iter().map(|step| (step.id, step.rank)).collect();
        for step in &removals {
            for (parent, _) in &step.parents {
                prop_assert!(rank[parent] < step.rank);
            }
        }
        // The removals above each one, over any number of edges.
        let mut before: BTreeMap<StepId, BTreeSet<StepId>> = BTreeMap::new();
        for step in &removals {
            let own: BTreeSet<StepId> = step
                .parents
                .iter()
                .flat_map(|(parent, _)| before[parent].iter().copied().chain([*parent]))
                .collect();
            before.insert(step.id, own);
        }
        // The removed noderoles that depend on each removed one.
        for ancestor in (0..docs.len()).filter(|n| gone[*n]) {
            let mut below = BTreeSet::from([ancestor]);
            for n in ancestor + 1..docs.len() {
                if gone[n] && parents[n].iter().any(|(p, hard)| *hard && below.contains(p)) {
                    below.insert(n);
                }
            }
            below.remove(&ancestor);
            for child in below.into_iter().filter(|n| can[*n] && can[ancestor]) {
                prop_assert!(before[&of(id(ancestor))].contains(&of(id(child))));
            }
        }
    }
}
