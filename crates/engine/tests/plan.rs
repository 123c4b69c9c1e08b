//! Planning: what edits come to, and that it is the same wherever it is worked out.

#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::blueprint::projection::StepChange;
use engine::blueprint::{changes, difference, project};
use engine::canonical::{Object, ObjectKind};
use engine::catalog::{Barclamp, Catalog, Flags, JigClass, Role};
use engine::cluster::{Blueprint, DeploymentDoc, NoderoleKey, Skeleton};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, RoleName};
use engine::plan::base::{base, in_scope, written};
use engine::plan::effects::Why;
use engine::plan::{Edit, Effects, NumberedEdit, materialise, resolve};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

fn name(text: &str) -> RoleName {
    RoleName::parse(text).unwrap()
}

fn role(text: &str, requires: &[&str]) -> Role {
    Role {
        name: name(text),
        barclamp: BarclampName::parse("b").unwrap(),
        jig: JigName::parse("noop").unwrap(),
        jig_class: JigClass::Noop,
        description: String::new(),
        flags: Flags::default(),
        requires: requires.iter().map(|r| name(r)).collect(),
        provides: BTreeSet::new(),
        conflicts: BTreeSet::new(),
        preceeds: BTreeSet::new(),
        wants: Vec::new(),
        template: Value::Null,
        attribs: Vec::new(),
        run: Default::default(),
        scripts: Vec::new(),
        metadata: Value::Null,
    }
}

fn implicit(role: Role) -> Role {
    Role { flags: Flags { implicit: true, ..role.flags.clone() }, ..role }
}

const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));
const WEB: DeploymentId = DeploymentId(Uuid::from_u128(2));
const EDGE: DeploymentId = DeploymentId(Uuid::from_u128(3));

fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(100 + n))
}

fn fqdn(n: u128) -> Fqdn {
    Fqdn::parse(&format!("n{n}.plan.example.com")).unwrap()
}

/// *system* with two deployments below it and nodes without a document.
struct World {
    catalog: Catalog,
    blueprint: Blueprint,
    nodes: u128,
}

impl World {
    fn of(roles: Vec<Role>) -> Self {
        let mut catalog = Catalog::default();
        let mut content = BTreeMap::new();
        for role in roles {
            let hash = engine::canonical::hash(&role).unwrap();
            content.insert(role.name.clone(), hash);
            catalog.add_role(hash, Arc::new(role));
        }
        let barclamp: Barclamp =
            serde_json::from_value(json!({"name": "b", "version": "1", "roles": content})).unwrap();
        let pin = Object::of(ObjectKind::Barclamp, &barclamp).unwrap();
        catalog.add(&pin).unwrap();
        let mut blueprint = Blueprint::default();
        for (n, (id, label, parent)) in
            [(SYSTEM, "system", None), (WEB, "web", Some(SYSTEM)), (EDGE, "edge", Some(SYSTEM))].into_iter().enumerate()
        {
            let pins = parent.is_none().then(|| (barclamp.name.clone(), pin.hash));
            let doc = DeploymentDoc {
                id,
                name: DeploymentName::parse(label).unwrap(),
                parent,
                phantom: NodeId(Uuid::from_u128(50 + n as u128)),
                barclamps: pins.into_iter().collect(),
                roles: BTreeMap::new(),
            };
            blueprint.put_deployment(doc).unwrap();
        }
        Self { catalog, blueprint, nodes: 4 }
    }

    fn bare(&self) -> impl Iterator<Item = (NodeId, Fqdn, DeploymentId)> {
        (1..=self.nodes).map(|n| (node(n), fqdn(n), SYSTEM))
    }

    fn skeleton(&self) -> Skeleton {
        Skeleton::of(&self.blueprint, self.bare(), &self.catalog).unwrap()
    }

    fn effects(&self, edits: &[Edit]) -> Effects {
        resolve(&self.skeleton(), &self.catalog, &numbered(edits))
    }

    /// Applies edits as a commit would; every one must take effect.
    fn commit(&mut self, edits: &[Edit]) -> Effects {
        let effects = self.effects(edits);
        assert_eq!(effects.refused, []);
        let done =
            materialise(&self.blueprint, &|id| self.bare().find(|b| b.0 == id).map(|b| (b.1, b.2)), &effects).unwrap();
        self.blueprint = done.blueprint;
        effects
    }
}

fn numbered(edits: &[Edit]) -> Vec<NumberedEdit> {
    (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect()
}

fn bind(deployment: DeploymentId, n: u128, role: &str) -> Edit {
    Edit::Bind { deployment, node: node(n), role: name(role) }
}

fn bound(effects: &Effects) -> Vec<String> {
    effects.bound.iter().map(|b| format!("{}@{}", b.noderole, b.node.0.as_u128() - 100)).collect()
}

#[test]
fn a_role_brings_what_it_requires_and_says_why() {
    let world =
        World::of(vec![implicit(role("dns", &[])), role("runtime", &["dns"]), role("app", &["runtime", "dns"])]);
    let effects = world.effects(&[bind(WEB, 1, "app")]);
    assert_eq!(bound(&effects), ["dns@1", "runtime@1", "app@1"]);
    assert_eq!(effects.bound.iter().map(|b| (b.rank, b.parents.len())).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(effects.bound[0].why, Why::Brought { edit: 1, by: name("runtime"), implicit: true });
    assert_eq!(effects.bound[2].why, Why::Asked { edit: 1 });
    assert_eq!((effects.moved[0].from, effects.moved[0].to), (SYSTEM, WEB));
    assert_eq!(effects.roles.len(), 3, "roles that come along can be bound there from now on");
}

#[test]
fn a_parent_is_found_on_the_node_then_in_the_deployment_then_above_it() {
    let mut world = World::of(vec![implicit(role("base", &[])), role("db", &["base"]), role("app", &["db", "base"])]);
    world.commit(&[bind(SYSTEM, 1, "db")]);
    world.commit(&[bind(WEB, 3, "db")]);
    let parent_of_app = |world: &World, edits: &[Edit]| {
        let effects = world.effects(edits);
        let app = effects.bound.iter().find(|b| b.noderole.role == name("app")).unwrap().clone();
        let key = NoderoleKey::first(name("db"));
        (1..=4).find(|n| app.parents.iter().any(|p| p.parent == key.id(node(*n)))).unwrap()
    };
    assert_eq!(parent_of_app(&world, &[bind(WEB, 2, "app")]), 3, "the deployment's before its ancestor's");
    assert_eq!(parent_of_app(&world, &[bind(EDGE, 2, "app")]), 1, "the ancestor's where the deployment has none");
    assert_eq!(parent_of_app(&world, &[bind(WEB, 2, "db"), bind(WEB, 2, "app")]), 2, "the node's own before all");
    let effects = world.effects(&[bind(EDGE, 2, "app")]);
    assert_eq!(bound(&effects), ["base@2", "app@2"], "what is implicit never comes from elsewhere");
}

#[test]
fn a_provider_serves_for_what_it_provides() {
    let provider = Role { provides: [name("store")].into(), ..role("disk", &[]) };
    let world = World::of(vec![provider, role("app", &["store"])]);
    assert_eq!(bound(&world.effects(&[bind(WEB, 1, "app")])), ["disk@1", "app@1"]);
}

#[test]
fn refused_edits_leave_nothing_and_say_what_to_do() {
    let abstract_role = Role { flags: Flags { is_abstract: true, ..Flags::default() }, ..role("store", &[]) };
    let foreign = Role { jig_class: JigClass::Other("chef".into()), ..role("cook", &[]) };
    let rival = Role { conflicts: [name("app")].into(), ..role("rival", &["app2"]) };
    let mut world = World::of(vec![
        role("app", &[]),
        role("app2", &[]),
        rival,
        abstract_role,
        foreign,
        role("a", &["b"]),
        role("b", &["c"]),
        role("c", &["a"]),
        role("dangling", &["app2", "ap"]),
    ]);
    world.commit(&[bind(WEB, 1, "app")]);
    for (edit, code, part) in [
        (bind(WEB, 2, "ap"), "unknown_role", "did you mean \"a\""),
        (bind(WEB, 2, "a"), "cycle", "a -> b -> c -> a"),
        (bind(WEB, 2, "store"), "abstract", "bind a role that provides it"),
        (bind(WEB, 2, "cook"), "no_such_jig", "class chef"),
        (bind(WEB, 1, "rival"), "conflict", "conflicts with app"),
        (bind(WEB, 2, "dangling"), "unresolved_require", "requires ap"),
        (bind(EDGE, 1, "app2"), "sibling", "belongs to web, beside edge"),
        (bind(WEB, 1, "app"), "already_bound", "already"),
        (bind(WEB, 9, "app"), "unknown_node", "not there"),
    ] {
        let effects = world.effects(&[bind(WEB, 3, "app2"), edit, bind(WEB, 4, "app2")]);
        assert_eq!(effects.refused.len(), 1);
        assert_eq!((effects.refused[0].edit, effects.refused[0].code.as_str()), (2, code));
        assert!(effects.refused[0].reason.contains(part), "{:?}", effects.refused);
        assert_eq!(bound(&effects), ["app2@3", "app2@4"]);
        assert_eq!(effects.moved.len(), 2);
    }
}

#[test]
fn a_chain_that_is_too_long_is_refused() {
    let mut roles: Vec<Role> = (0..70).map(|n| role(&format!("r{n}"), &[&format!("r{}", n + 1)])).collect();
    roles.push(role("r70", &[]));
    let world = World::of(roles);
    assert_eq!(world.effects(&[bind(WEB, 1, "r0")]).refused[0].code, "too_deep");
    assert_eq!(world.effects(&[bind(WEB, 1, "r10")]).bound.len(), 61);
}

#[test]
fn moving_a_node_keeps_what_it_carries_in_sight() {
    let mut world = World::of(vec![role("app", &[])]);
    world.commit(&[bind(WEB, 1, "app")]);
    let sideways = Edit::MoveNode { node: node(1), deployment: EDGE };
    assert_eq!(world.effects(&[sideways]).refused[0].code, "would_leave_behind");
    let down = Edit::MoveNode { node: node(2), deployment: EDGE };
    assert_eq!(world.effects(&[down]).moved.len(), 1);
}

#[test]
fn a_new_deployment_can_be_filled_at_once() {
    let world = World::of(vec![role("app", &[])]);
    let (id, phantom) = (DeploymentId(Uuid::from_u128(9)), NodeId(Uuid::from_u128(99)));
    let create = Edit::CreateDeployment { id, phantom, name: DeploymentName::parse("blue").unwrap(), parent: WEB };
    let again = Edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(10)),
        phantom: NodeId(Uuid::from_u128(98)),
        name: DeploymentName::parse("edge").unwrap(),
        parent: WEB,
    };
    let over_a_machine = Edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(11)),
        phantom: node(2),
        name: DeploymentName::parse("green").unwrap(),
        parent: WEB,
    };
    let effects = world.effects(&[over_a_machine]);
    assert_eq!((effects.refused[0].code.as_str(), effects.is_empty()), ("phantom_taken", true));
    let nul = Edit::SetRoleData { deployment: WEB, role: name("app"), data: json!({"a": ["x\0y"]}) };
    assert_eq!(world.effects(&[Edit::AddRole { deployment: WEB, role: name("app") }, nul]).refused[0].code, "data");
    let effects = world.effects(&[create.clone(), bind(id, 1, "app"), again]);
    assert_eq!((bound(&effects), effects.refused[0].code.as_str()), (vec!["app@1".to_owned()], "deployment_exists"));
    let skeleton = world.skeleton();
    let earlier = numbered(std::slice::from_ref(&create));
    assert!(in_scope(&skeleton, WEB, &earlier, &bind(id, 1, "app")));
    assert!(!in_scope(&skeleton, EDGE, &earlier, &bind(id, 1, "app")));
    assert!(!in_scope(&skeleton, WEB, &[], &bind(SYSTEM, 1, "app")));
}

#[test]
fn siblings_do_not_write_each_others_base() {
    let mut world = World::of(vec![role("app", &[])]);
    let (before, skeleton) = (world.blueprint.clone(), world.skeleton());
    let effects = world.commit(&[bind(EDGE, 1, "app")]);
    let documents = changes(&before.root(), &world.blueprint.root());
    assert_eq!(written(&before, &world.blueprint, &documents), [EDGE].into());
    assert_eq!(base(&skeleton, WEB, &Effects::default()), [SYSTEM, WEB].into());
    assert_eq!(base(&skeleton, EDGE, &effects), [SYSTEM, EDGE].into());
    assert_eq!(base(&skeleton, SYSTEM, &Effects::default()), [SYSTEM, WEB, EDGE].into());
}

#[test]
fn the_difference_lists_what_differs_and_counts_the_rest() {
    let mut world = World::of(vec![role("app", &[]), role("other", &[])]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 1, "other"), bind(WEB, 2, "app")]);
    let before = world.blueprint.clone();
    let data =
        |value: Value| Edit::SetNoderoleData { node: node(1), noderole: NoderoleKey::first(name("app")), data: value };
    world.commit(&[data(json!({"port": 1, "key": {"$secret": "k", "version": 2}}))]);
    let documents = changes(&before.root(), &world.blueprint.root());
    let found = difference(&before, &world.blueprint, &documents).unwrap();
    assert_eq!((found.nodes.len(), found.nodes[0].unchanged, found.unchanged), (1, 1, 4));
    let lines: Vec<String> = found.nodes[0].noderoles[0].data.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["/key: secret added", "/port: added 1"]);
    let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
    assert_eq!(work.steps.len(), 1);
    assert!(matches!(work.steps[0].change, StepChange::Rerun(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Over random catalogs and edits: the same answer each time, through JSON too; the whole at once or edit by edit comes to the
    /// same blueprint; ranks rise along every edge; nothing exists twice; refused edits leave no trace.
    #[test]
    fn resolving_is_deterministic_and_sound(
        wires in prop::collection::vec((1usize..8, 0usize..8), 0..14),
        implicits in prop::collection::vec(any::<bool>(), 8),
        drops in prop::collection::vec((0u128..5, 0usize..8, 0usize..3), 1..14),
    ) {
        let roles = (0..8).map(|n| {
            let requires: BTreeSet<String> =
                wires.iter().filter(|(child, parent)| *child == n && parent < child).map(|(_, p)| format!("r{p}")).collect();
            let requires: Vec<&str> = requires.iter().map(String::as_str).collect();
            let role = role(&format!("r{n}"), &requires);
            if implicits[n] { implicit(role) } else { role }
        });
        let world = World::of(roles.collect());
        let edits: Vec<Edit> =
            drops.iter().map(|(n, r, d)| bind([SYSTEM, WEB, EDGE][*d], *n, &format!("r{r}"))).collect();
        let effects = world.effects(&edits);
        prop_assert_eq!(effects.hash().unwrap(), world.effects(&edits).hash().unwrap());

        let mut browser: Skeleton = serde_json::from_value(serde_json::to_value(world.skeleton()).unwrap()).unwrap();
        browser.index(&world.catalog).unwrap();
        prop_assert_eq!(&resolve(&browser, &world.catalog, &numbered(&edits)), &effects);

        let refused: BTreeSet<u32> = effects.refused.iter().map(|r| r.edit).collect();
        let taken: Vec<Edit> =
            (1..).zip(&edits).filter(|(seq, _)| !refused.contains(seq)).map(|(_, e)| e.clone()).collect();
        let (mut whole, mut steps) = (World { ..world_like(&world) }, World { ..world_like(&world) });
        whole.commit(&taken);
        for edit in &taken {
            steps.commit(std::slice::from_ref(edit));
        }
        prop_assert_eq!(whole.blueprint.root(), steps.blueprint.root());

        let mut ranks = BTreeMap::new();
        for (id, stored) in &whole.blueprint.nodes {
            let chain = whole.skeleton().chain(stored.doc.deployment);
            for (key, noderole) in &stored.doc.noderoles {
                prop_assert!(chain.contains(&noderole.deployment), "a node carries its own and its ancestors' noderoles");
                prop_assert!(ranks.insert(key.id(*id), noderole.rank).is_none());
            }
        }
        for stored in whole.blueprint.nodes.values() {
            for noderole in stored.doc.noderoles.values() {
                for edge in &noderole.parents {
                    prop_assert!(ranks.get(&edge.parent).is_some_and(|rank| *rank < noderole.rank));
                }
            }
        }
        prop_assert_eq!(ranks.len(), effects.bound.len());

        let before = world.blueprint.root();
        let documents = changes(&before, &whole.blueprint.root());
        let work = project(&world.blueprint, &whole.blueprint, &documents, &world.catalog).unwrap();
        prop_assert_eq!(work.steps.len(), effects.bound.len());
        prop_assert!(work.steps.is_sorted_by_key(|s| (s.rank, s.id)));
    }
}

fn world_like(world: &World) -> World {
    World { catalog: world.catalog.clone(), blueprint: world.blueprint.clone(), nodes: world.nodes }
}

#[test]
fn hashes_of_effects_are_known_to_be_stable() {
    let world = World::of(vec![role("app", &[])]);
    let effects = world.effects(&[bind(WEB, 1, "app")]);
    let through_json: Effects = serde_json::from_slice(&engine::canonical::bytes(&effects).unwrap()).unwrap();
    assert_eq!(through_json.hash().unwrap(), effects.hash().unwrap());
    assert_ne!(effects.hash().unwrap(), Hash::of_bytes(b""));
    assert!(Effects::default().is_empty() && !effects.is_empty());
}
