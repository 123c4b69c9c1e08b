//! Marks of opened sections refer to displayed content.

use std::collections::BTreeMap;

use engine::Hash;
use engine::blueprint::difference::Sides;
use engine::blueprint::viewed::contents;
use engine::blueprint::{Anchor, Difference, difference};
use engine::gate::{Policy, Risk};
use engine::plan::Edit;
use serde_json::json;

use crate::world::{WEB, World, bind, data, node, role, role_data};

fn of(world: &World, edits: &[Edit]) -> BTreeMap<Anchor, Hash> {
    let changed = world.change(edits);
    contents(&difference(&changed.old, &changed.new, &changed.changes).unwrap()).unwrap()
}

#[test]
fn only_changed_documents_lose_their_mark() {
    let mut world = World::of(vec![role("base", &[]), role("app", &["base"])]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]);
    let first = of(&world, &[data(1, "app", json!({"a": 1})), data(2, "app", json!({"a": 1}))]);
    let second = of(&world, &[data(1, "app", json!({"a": 2})), data(2, "app", json!({"a": 1}))]);
    let (one, two) = (Anchor::Node(node(1)), Anchor::Node(node(2)));
    assert_eq!(first.keys().collect::<Vec<_>>(), [&one, &two]);
    assert_ne!(first[&one], second[&one]);
    assert_eq!(first[&two], second[&two]);
    assert_ne!(first[&one], first[&two], "the same change on another node is a different change");
    let roles = of(&world, &[role_data(WEB, "app", json!({"a": 1}))]);
    assert_eq!(roles.keys().collect::<Vec<_>>(), [&Anchor::Deployment(WEB)]);
}

#[test]
fn counted_items_do_not_affect_marks() {
    let mut world = World::of(vec![role("base", &[]), role("app", &[])]);
    world.commit(&[bind(WEB, 1, "app")]);
    let edit = data(1, "app", json!({"a": 1}));
    let before = of(&world, std::slice::from_ref(&edit));
    world.commit(&[bind(WEB, 1, "base")]);
    assert_eq!(of(&world, &[edit]), before);
}

#[test]
fn policy_change_is_marked_like_document() {
    let policy = |approvals, removal| Policy {
        approvals,
        by_risk: [(Risk::Removal, removal)].into(),
        ..Policy::default()
    };
    let of = |old, new| Difference { policy: Some(Sides { old, new }), ..Difference::default() };
    let (one, two) = (of(policy(1, 2), policy(1, 3)), of(policy(1, 2), policy(2, 3)));
    let (first, second) = (contents(&one).unwrap(), contents(&two).unwrap());
    assert_eq!(first.keys().collect::<Vec<_>>(), [&Anchor::Policy(None)]);
    assert_ne!(first, second, "another policy is a different change");
    let stands = |difference, value: &str| Anchor::Policy(Some(value.into())).exists_in(difference);
    assert!(
        Anchor::Policy(None).exists_in(&one)
            && stands(&one, "/by_risk/removal")
            && stands(&two, "/approvals")
    );
    assert!(!stands(&one, "/approvals"), "an unchanged value is not a change");
    assert!(!Anchor::Policy(None).exists_in(&Difference::default()));
}
