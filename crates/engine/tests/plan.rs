//! Planning: the effects of edits, and that every planner computes the same.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::blueprint::projection::StepChange;
use engine::blueprint::{changes, difference, project};
use engine::canonical::{Object, ObjectKind};
use engine::catalog::{Attrib, Barclamp, Catalog, Flags, JigClass, Role};
use engine::cluster::{Blueprint, DeploymentDoc, EdgeKind, NodeDoc, NoderoleKey, Skeleton};
use engine::gate::Policy;
use engine::ids::{
    AttribName, BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, RoleName,
};
use engine::lint::{Finding, LintCheck};
use engine::plan::base::{Scope, ScopeChecker, ScopeViolation, base, beyond, outside, written};
use engine::plan::effects::EffectCause;
use engine::plan::resolve::phantom_fqdn;
use engine::plan::{
    Edit, Effects, MAX_LEVELS, NumberedEdit, Rules, SideEffects, edit, materialize, order, resolve,
    resolve_with, resolve_with_rules,
};
use engine::report::{Line, MAX_LINES, MAX_NAMED, Report, Stage, Subject, report};
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
        actions: BTreeSet::new(),
        scripts: Vec::new(),
        gathers: None,
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

/// *system* with two child deployments, and nodes without a document.
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
            [(SYSTEM, "system", None), (WEB, "web", Some(SYSTEM)), (EDGE, "edge", Some(SYSTEM))]
                .into_iter()
                .enumerate()
        {
            let pins = parent.is_none().then(|| (barclamp.name.clone(), pin.hash));
            let doc = DeploymentDoc {
                id,
                name: DeploymentName::parse(label).unwrap(),
                parent,
                phantom: NodeId(Uuid::from_u128(50 + n as u128)),
                barclamps: pins.into_iter().collect(),
                roles: BTreeMap::new(),
                inactive_jigs: BTreeSet::new(),
            };
            let fqdn = phantom_fqdn(id);
            let phantom = NodeDoc {
                id: doc.phantom,
                fqdn,
                deployment: id,
                phantom: true,
                connection: None,
                hints: serde_json::Map::new(),
                noderoles: BTreeMap::new(),
            };
            blueprint.insert_node(phantom).unwrap();
            blueprint.insert_deployment(doc).unwrap();
        }
        Self { catalog, blueprint, nodes: 4 }
    }

    fn records(&self) -> impl Iterator<Item = (NodeId, Fqdn, DeploymentId)> {
        (1..=self.nodes).map(|n| (node(n), fqdn(n), SYSTEM))
    }

    fn skeleton(&self) -> Skeleton {
        Skeleton::of(&self.blueprint, self.records(), &self.catalog).unwrap()
    }

    fn effects(&self, edits: &[Edit]) -> Effects {
        resolve(&self.skeleton(), &self.catalog, &numbered(edits))
    }

    /// Applies edits like a commit. Every edit must take effect.
    fn commit(&mut self, edits: &[Edit]) -> Effects {
        let effects = self.effects(edits);
        assert_eq!(effects.refused, []);
        let done = materialize(
            &self.blueprint,
            &|id| self.records().find(|b| b.0 == id).map(|b| (b.1, b.2).into()),
            &effects,
        )
        .unwrap();
        let mut skeleton = self.skeleton();
        skeleton.follow(&self.blueprint, &done.blueprint, self.records(), &self.catalog).unwrap();
        self.blueprint = done.blueprint;
        assert_eq!(
            skeleton,
            self.skeleton(),
            "the updated graph must equal a graph that is built from scratch"
        );
        effects
    }
}

fn numbered(edits: &[Edit]) -> Vec<NumberedEdit> {
    (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect()
}

fn bind(deployment: DeploymentId, n: u128, role: &str) -> Edit {
    Edit::Bind(edit::Bind { deployment, node: node(n), role: name(role) })
}

fn bound(effects: &Effects) -> Vec<String> {
    effects.bound.iter().map(|b| format!("{}@{}", b.noderole, b.node.0.as_u128() - 100)).collect()
}

#[test]
fn side_effects_are_reported_for_accepted_edits() {
    let world = World::of(vec![role("base", &[]), role("app", &["base"]), role("web", &["app"])]);
    let unbind = |role: &str, with_dependents| {
        Edit::Unbind(edit::Unbind {
            node: node(1),
            noderole: NoderoleKey::first(name(role)),
            with_dependents,
        })
    };
    let edits = [
        bind(WEB, 1, "web"),
        bind(SYSTEM, 1, "base"),
        bind(EDGE, 1, "app"),
        unbind("app", false),
        unbind("base", true),
        bind(SYSTEM, 2, "base"),
    ];
    let (effects, side_effects) =
        resolve_with(&world.skeleton(), &world.catalog, &numbered(&edits));
    assert_eq!(effects, world.effects(&edits));
    assert_eq!(effects.refused.iter().map(|refused| refused.edit).collect::<Vec<_>>(), [2, 3, 4]);
    let key = |role: &str| (node(1), NoderoleKey::first(name(role)));
    let expected = [
        (1, SideEffects { moved: [(node(1), WEB)].into(), ..SideEffects::default() }),
        (5, SideEffects { gone: [key("app"), key("web")].into(), ..SideEffects::default() }),
    ];
    assert_eq!(side_effects, expected.into());
}

#[test]
fn bind_adds_required_roles_with_reason() {
    let world = World::of(vec![
        implicit(role("dns", &[])),
        role("runtime", &["dns"]),
        role("app", &["runtime", "dns"]),
    ]);
    let effects = world.effects(&[bind(WEB, 1, "app")]);
    assert_eq!(bound(&effects), ["dns@1", "runtime@1", "app@1"]);
    assert_eq!(
        effects.bound.iter().map(|b| (b.rank, b.parents.len())).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 2)]
    );
    assert_eq!(
        effects.bound[0].cause,
        EffectCause::Required { edit: 1, by: name("runtime"), implicit: true }
    );
    assert_eq!(effects.bound[2].cause, EffectCause::Requested { edit: 1 });
    assert_eq!((effects.moved[0].from, effects.moved[0].to), (SYSTEM, WEB));
    assert_eq!(effects.roles.len(), 3, "required roles can also be bound there now");
}

#[test]
fn parent_search_order_is_node_deployment_ancestors() {
    let mut world = World::of(vec![
        implicit(role("base", &[])),
        role("db", &["base"]),
        role("app", &["db", "base"]),
    ]);
    world.commit(&[bind(SYSTEM, 1, "db")]);
    world.commit(&[bind(WEB, 3, "db")]);
    let parent_of_app = |world: &World, edits: &[Edit]| {
        let effects = world.effects(edits);
        let app = effects.bound.iter().find(|b| b.noderole.role == name("app")).unwrap().clone();
        let key = NoderoleKey::first(name("db"));
        (1..=4).find(|n| app.parents.iter().any(|p| p.parent == key.id(node(*n)))).unwrap()
    };
    assert_eq!(
        parent_of_app(&world, &[bind(WEB, 2, "app")]),
        3,
        "the deployment's own parent comes before an inherited one"
    );
    assert_eq!(
        parent_of_app(&world, &[bind(EDGE, 2, "app")]),
        1,
        "the ancestor's parent is used if the deployment has none"
    );
    assert_eq!(
        parent_of_app(&world, &[bind(WEB, 2, "db"), bind(WEB, 2, "app")]),
        2,
        "a parent on the node comes first"
    );
    let effects = world.effects(&[bind(EDGE, 2, "app")]);
    assert_eq!(
        bound(&effects),
        ["base@2", "app@2"],
        "an implicit role is bound on the node itself"
    );
}

#[test]
fn provider_satisfies_provided_name() {
    let provider = Role { provides: [name("store")].into(), ..role("disk", &[]) };
    let world = World::of(vec![provider, role("app", &["store"])]);
    assert_eq!(bound(&world.effects(&[bind(WEB, 1, "app")])), ["disk@1", "app@1"]);
}

#[test]
fn refused_edit_has_no_effect_and_advice() {
    let abstract_role =
        Role { flags: Flags { is_abstract: true, ..Flags::default() }, ..role("store", &[]) };
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
        role("stored", &["store"]),
    ]);
    world.commit(&[bind(WEB, 1, "app")]);
    for (edit, code, part) in [
        (bind(WEB, 2, "ap"), "unknown_role", "Did you mean \"app\""),
        (bind(WEB, 2, "a"), "role_cycle", "a -> b -> c -> a"),
        (bind(WEB, 2, "store"), "abstract", "Bind a role that provides it"),
        (bind(WEB, 2, "cook"), "no_such_jig", "class chef"),
        (bind(WEB, 1, "rival"), "conflict", "conflicts with app"),
        (bind(WEB, 2, "dangling"), "unresolved_require", "requires ap"),
        (
            bind(WEB, 2, "stored"),
            "abstract_require",
            "stored requires store, which is abstract, and no barclamp",
        ),
        (bind(EDGE, 1, "app2"), "sibling", "belongs to web, which is neither above nor below edge"),
        (bind(SYSTEM, 1, "app"), "already_bound", "already"),
        (bind(WEB, 9, "app"), "unknown_node", "does not exist"),
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
fn bind_of_bound_role_only_requests_it() {
    let mut world = World::of(vec![role("runtime", &[]), role("app", &["runtime"])]);
    let (app, runtime) = (bind(WEB, 1, "app"), bind(WEB, 1, "runtime"));
    let reasons = |effects: &Effects| -> Vec<(String, EffectCause)> {
        effects.bound.iter().map(|b| (b.noderole.to_string(), b.cause.clone())).collect()
    };
    let requested = |role: &str, edit| (role.to_owned(), EffectCause::Requested { edit });
    let effects = world.effects(&[app.clone(), runtime.clone(), runtime.clone()]);
    assert_eq!(effects.refused, []);
    assert_eq!(reasons(&effects), [requested("runtime", 3), requested("app", 1)]);
    assert_eq!(
        reasons(&world.effects(&[runtime.clone(), app.clone()]))[0],
        requested("runtime", 1)
    );

    // A refused edit requests nothing.
    let nodes = [node(1), node(9)].into();
    let list = Edit::BindNodes(edit::BindNodes { deployment: WEB, role: name("runtime"), nodes });
    let effects = world.effects(&[app.clone(), list]);
    assert_eq!(effects.refused.len(), 1);
    let brought = EffectCause::Required { edit: 1, by: name("app"), implicit: false };
    assert_eq!(reasons(&effects)[0].1, brought);

    // Data that an edit in between sets stays.
    let data = Edit::SetNoderoleData(edit::SetNoderoleData {
        node: node(1),
        noderole: NoderoleKey::first(name("runtime")),
        data: json!({"a": 1}),
    });
    let effects = world.effects(&[app.clone(), data, runtime.clone()]);
    assert_eq!((effects.noderole_data.len(), &reasons(&effects)[0]), (1, &requested("runtime", 3)));

    world.commit(std::slice::from_ref(&app));
    assert_eq!(world.effects(&[app, runtime]), Effects::default());
}

/// The effects of edits that one request adds.
fn together(world: &World, edits: &[Edit]) -> Effects {
    let order = order(&world.skeleton(), &world.catalog, &[], edits);
    world.effects(&order.iter().map(|place| edits[*place].clone()).collect::<Vec<_>>())
}

#[test]
fn bindings_of_one_request_follow_the_graph() {
    let service = flagged(role("api", &["store"]), |f| f.service = true);
    let leader = Role { provides: [name("store")].into(), ..role("leader", &[]) };
    let world =
        World::of(vec![service, leader, role("middle", &["leader"]), role("app", &["middle"])]);
    let edits = [bind(WEB, 1, "api"), bind(WEB, 1, "app"), bind(WEB, 2, "leader")];
    assert_eq!(world.effects(&edits).bound.len(), 5, "the phantom node also gets a leader");
    let effects = together(&world, &edits);
    assert_eq!(effects.refused, []);
    let leaders: Vec<_> =
        effects.bound.iter().filter(|b| b.noderole.role == name("leader")).collect();
    assert_eq!((leaders.len(), leaders[0].node), (1, node(2)));
    assert_eq!(effects.bound.len(), 4);
}

#[test]
fn removals_of_one_request_follow_the_graph() {
    let kv = flagged(role("kv", &[]), |f| f.cluster = true);
    let mut world =
        World::of(vec![role("base", &[]), kv, role("app", &["kv", "base"]), role("web", &["app"])]);
    world.commit(&[
        bind(WEB, 1, "base"),
        bind(WEB, 1, "kv"),
        bind(WEB, 2, "kv"),
        bind(WEB, 2, "app"),
        bind(WEB, 3, "web"),
    ]);
    let unbind = |role: &str, nodes: &[u128]| {
        Edit::UnbindNodes(edit::UnbindNodes {
            noderole: NoderoleKey::first(name(role)),
            nodes: nodes.iter().map(|n| node(*n)).collect(),
        })
    };
    let edits =
        [unbind("app", &[2]), unbind("base", &[1]), unbind("kv", &[1, 2]), unbind("web", &[3])];
    assert!(!world.effects(&edits).refused.is_empty());
    let effects = together(&world, &edits);
    assert_eq!((effects.refused.len(), effects.unbound.len()), (0, 6), "{:?}", effects.refused);
}

#[test]
fn edits_of_other_kinds_keep_their_order() {
    let world = World::of(vec![role("base", &[]), role("app", &["base"]), role("other", &[])]);
    let again = |name: &str| DeploymentName::parse(name).unwrap();
    let new = Edit::CreateDeployment(edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(9)),
        phantom: NodeId(Uuid::from_u128(10)),
        name: again("new"),
        parent: WEB,
    });
    let (app, base, other) = (bind(WEB, 1, "app"), bind(WEB, 2, "base"), bind(WEB, 3, "other"));
    let positions = |edits: &[Edit]| order(&world.skeleton(), &world.catalog, &[], edits);
    assert_eq!(positions(&[other.clone(), app.clone(), base.clone()]), [0, 2, 1]);
    assert_eq!(positions(&[app.clone(), new, base.clone()]), [0, 1, 2]);
    assert_eq!(positions(&[bind(WEB, 1, "none"), app, base]), [0, 2, 1]);
    assert_eq!(positions(&[other]), [0]);
}

#[test]
fn overlong_requirement_chain_is_refused() {
    let mut roles: Vec<Role> =
        (0..70).map(|n| role(&format!("r{n}"), &[&format!("r{}", n + 1)])).collect();
    roles.push(role("r70", &[]));
    let world = World::of(roles);
    assert_eq!(world.effects(&[bind(WEB, 1, "r0")]).refused[0].code, "too_deep");
    assert_eq!(world.effects(&[bind(WEB, 1, "r10")]).bound.len(), 61);
}

#[test]
fn move_must_preserve_visibility_of_noderoles() {
    let mut world = World::of(vec![role("app", &[])]);
    world.commit(&[bind(WEB, 1, "app")]);
    let sideways = Edit::MoveNode(edit::MoveNode { node: node(1), deployment: EDGE });
    assert_eq!(world.effects(&[sideways]).refused[0].code, "would_leave_behind");
    let down = Edit::MoveNode(edit::MoveNode { node: node(2), deployment: EDGE });
    assert_eq!(world.effects(&[down]).moved.len(), 1);
}

#[test]
fn used_id_is_refused() {
    let world = World::of(vec![role("app", &[])]);
    let create = |id: DeploymentId, phantom: NodeId, label: &str| {
        Edit::CreateDeployment(edit::CreateDeployment {
            id,
            phantom,
            name: DeploymentName::parse(label).unwrap(),
            parent: SYSTEM,
        })
    };
    let (id, phantom) = (DeploymentId(Uuid::from_u128(9)), NodeId(Uuid::from_u128(99)));
    let codes = |edits: &[Edit]| {
        world.effects(edits).refused.into_iter().map(|r| r.code).collect::<Vec<_>>()
    };
    assert_eq!(codes(&[create(WEB, phantom, "blue")]), ["deployment_id_used"]);
    let remove = |deployment| Edit::RemoveDeployment(edit::RemoveDeployment { deployment });
    assert_eq!(
        codes(&[remove(EDGE), create(EDGE, phantom, "blue")]),
        ["deployment_id_used"],
        "a deployment that is removed in the same request still uses its id"
    );
    let made = create(id, phantom, "blue");
    assert_eq!(
        codes(&[made.clone(), remove(id), create(id, phantom, "green")]),
        ["deployment_id_used"]
    );
    let other = create(DeploymentId(Uuid::from_u128(10)), phantom, "green");
    assert_eq!(codes(&[made.clone(), remove(id), other]), ["phantom_taken"]);
    // An id of the other kind is refused too.
    let of =
        |id: Uuid, phantom: Uuid, label: &str| create(DeploymentId(id), NodeId(phantom), label);
    let fresh = Uuid::from_u128(10);
    let phantom_of_web = world.blueprint.deployments[&WEB].doc.phantom.0;
    for taken in [node(1).0, phantom_of_web, phantom.0] {
        assert_eq!(
            codes(&[made.clone(), of(taken, fresh, "green")]),
            ["deployment_id_used"],
            "{taken}"
        );
    }
    for taken in [node(1).0, phantom_of_web, SYSTEM.0, id.0] {
        assert_eq!(codes(&[made.clone(), of(fresh, taken, "green")]), ["phantom_taken"], "{taken}");
    }
    assert_eq!(
        codes(&[of(Uuid::nil(), fresh, "green"), of(fresh, Uuid::nil(), "green")]),
        ["nil_id"; 2]
    );
    assert_eq!(codes(&[of(fresh, fresh, "green")]), ["one_id_for_two"]);
    let other = Uuid::from_u128(11);
    for name in [WEB.to_string(), WEB.to_string().to_uppercase(), WEB.0.simple().to_string()] {
        assert_eq!(codes(&[of(fresh, other, &name)]), ["name_like_id"], "{name}");
    }
    assert_eq!(codes(&[of(fresh, other, &WEB.to_string()[1..])]), [""; 0]);
}

#[test]
fn undocumented_node_cannot_be_expunged() {
    let mut world = World::of(vec![role("app", &[])]);
    let burnt = Edit::ExpungeNode(edit::ExpungeNode { node: node(1), reason: "burnt".into() });
    assert_eq!(refusal(&world, burnt.clone()).0, "only_a_record");
    world.commit(&[bind(WEB, 1, "app")]);
    assert_eq!(world.effects(&[burnt]).refused, vec![]);
}

#[test]
fn new_deployment_accepts_bindings_immediately() {
    let world = World::of(vec![role("app", &[])]);
    let (id, phantom) = (DeploymentId(Uuid::from_u128(9)), NodeId(Uuid::from_u128(99)));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id,
        phantom,
        name: DeploymentName::parse("blue").unwrap(),
        parent: WEB,
    });
    let again = Edit::CreateDeployment(edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(10)),
        phantom: NodeId(Uuid::from_u128(98)),
        name: DeploymentName::parse("edge").unwrap(),
        parent: WEB,
    });
    let over_a_machine = Edit::CreateDeployment(edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(11)),
        phantom: node(2),
        name: DeploymentName::parse("green").unwrap(),
        parent: WEB,
    });
    let effects = world.effects(&[over_a_machine]);
    assert_eq!((effects.refused[0].code.as_str(), effects.is_empty()), ("phantom_taken", true));
    let nul = Edit::SetRoleData(edit::SetRoleData {
        deployment: WEB,
        role: name("app"),
        data: json!({"a": ["x\0y"]}),
    });
    assert_eq!(
        world
            .effects(&[Edit::AddRole(edit::AddRole { deployment: WEB, role: name("app") }), nul])
            .refused[0]
            .code,
        "data"
    );
    let effects = world.effects(&[create.clone(), bind(id, 1, "app"), again]);
    assert_eq!(
        (bound(&effects), effects.refused[0].code.as_str()),
        (vec!["app@1".to_owned()], "deployment_exists")
    );
    let skeleton = world.skeleton();
    let covers = |scope: DeploymentId, earlier: Option<&Edit>, edit: Edit| {
        let mut within = ScopeChecker::new(&skeleton, scope);
        earlier.into_iter().for_each(|earlier| within.record(earlier));
        within.covers(&edit)
    };
    assert!(covers(WEB, Some(&create), bind(id, 1, "app")));
    assert!(!covers(WEB, None, bind(id, 1, "app")));
    assert!(!covers(EDGE, Some(&create), bind(id, 1, "app")));
    assert!(!covers(WEB, None, bind(SYSTEM, 1, "app")));
}

#[test]
fn deployment_depth_limit_is_exact() {
    let world = World::of(Vec::new());
    let id = |n: usize| DeploymentId(Uuid::from_u128(1_000 + n as u128));
    // These are below *system*, so the first is at the second level.
    let chain: Vec<Edit> = (2..=MAX_LEVELS + 1)
        .map(|n| {
            Edit::CreateDeployment(edit::CreateDeployment {
                id: id(n),
                phantom: NodeId(Uuid::from_u128(2_000 + n as u128)),
                name: DeploymentName::parse(&format!("level-{n}")).unwrap(),
                parent: if n == 2 { SYSTEM } else { id(n - 1) },
            })
        })
        .collect();
    let effects = world.effects(&chain);
    assert_eq!(effects.deployments.len(), MAX_LEVELS - 1);
    let [refused] = effects.refused.as_slice() else { panic!("{:?}", effects.refused) };
    assert_eq!(refused.code, "tree_too_deep");
    assert!(
        refused.reason.starts_with("Deployment level-17 cannot be below level-16"),
        "{refused:?}"
    );
}

#[test]
fn node_scope_refuses_direct_service_binding() {
    let service = flagged(role("dns", &[]), |f| f.service = true);
    let world = World::of(vec![service, role("app", &["dns"])]);
    let skeleton = world.skeleton();
    let beyond = |edits: &[Edit]| beyond(&skeleton, Scope::Node(node(1)), &world.effects(edits));
    assert_eq!(
        beyond(&[bind(SYSTEM, 1, "app")]),
        None,
        "a service that the node requires is bound with it"
    );
    let dns = ScopeViolation::Service { role: name("dns"), deployment: SYSTEM };
    assert_eq!(beyond(&[bind(SYSTEM, 1, "dns")]), Some(dns));
}

#[test]
fn sibling_change_is_outside_base() {
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
fn difference_lists_changes_and_counts_rest() {
    let mut world = World::of(vec![role("app", &[]), role("other", &[])]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 1, "other"), bind(WEB, 2, "app")]);
    let before = world.blueprint.clone();
    let data = |value: Value| {
        Edit::SetNoderoleData(edit::SetNoderoleData {
            node: node(1),
            noderole: NoderoleKey::first(name("app")),
            data: value,
        })
    };
    world.commit(&[data(json!({"port": 1, "key": {"$secret": "k", "version": 2}}))]);
    let documents = changes(&before.root(), &world.blueprint.root());
    let found = difference(&before, &world.blueprint, &documents).unwrap();
    assert_eq!((found.nodes.len(), found.nodes[0].unchanged, found.unchanged), (1, 1, 7));
    let lines: Vec<String> =
        found.nodes[0].noderoles[0].data.iter().map(ToString::to_string).collect();
    assert_eq!(lines, [r#"/key: added "(secret k version 2)""#, "/port: added 1"]);
    let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
    assert_eq!(work.steps.len(), 1);
    assert!(matches!(work.steps[0].change, StepChange::Rerun(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Over random catalogs and edits, the result is the same each time, also through JSON. All
    /// edits at once and one by one give the same blueprint. Ranks rise along every edge, nothing
    /// exists twice, and refused edits leave no trace.
    #[test]
    fn resolve_is_deterministic_and_sound(
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

/// Effects with an item in every list.
fn every_effect() -> Value {
    let id = Uuid::from_u128;
    let content = |n: u8| Hash::from_bytes(&[n; 32]).unwrap();
    let (requested, required) = (
        json!({"kind": "requested", "edit": 1}),
        json!({"kind": "required", "edit": 2, "by": "app", "implicit": true}),
    );
    json!({
        "deployments": [{
            "id": id(4), "phantom": id(54), "phantom_fqdn": "made.example.com", "name": "made",
            "parent": id(2), "cause": requested
        }],
        "barclamps": [{
            "deployment": id(2), "barclamp": "b", "version": content(1), "cause": requested
        }],
        "roles": [{"deployment": id(2), "role": "app", "content": content(2), "cause": required}],
        "role_data": [{
            "deployment": id(2), "role": "app", "data": {"port": 8080}, "cause": requested
        }],
        "moved": [{"node": id(101), "from": id(1), "to": id(2), "cause": required}],
        "bound": [{
            "id": id(201), "node": id(101), "noderole": "app", "deployment": id(2),
            "role": content(2), "rank": 1, "parents": [{"parent": id(202), "kind": "hard"}],
            "cause": requested
        }],
        "noderole_data": [{
            "node": id(101), "noderole": "app", "data": {"port": 81}, "cause": requested
        }],
        "reruns": [{
            "node": id(101), "noderole": "app", "reason": "the disk was replaced",
            "cause": requested
        }],
        "removed_deployments": [{
            "id": id(3), "phantom": id(52), "name": "edge", "cause": requested
        }],
        "moved_deployments": [{
            "deployment": id(2), "from": id(1), "to": id(4), "cause": requested
        }],
        "removed_roles": [{"deployment": id(2), "role": "db", "cause": requested}],
        "unpinned": [{
            "deployment": id(2), "barclamp": "b", "from": content(1), "to": null, "cause": requested
        }],
        "unbound": [{
            "id": id(203), "node": id(101), "noderole": "db", "deployment": id(2), "cause": required
        }],
        "expunged": [{
            "node": id(102), "fqdn": "n2.example.com", "reason": "its board burnt",
            "cause": requested
        }],
        "rewired": [{
            "node": id(101), "noderole": "top", "deployment": id(2), "rank": 2,
            "parents": [{"parent": id(201), "kind": "order_only"}]
        }],
        "repinned": [{
            "deployment": id(2), "node": id(101), "noderole": "top", "from": content(3),
            "to": content(4)
        }],
        "connections": [{
            "node": id(101), "connection": {"root": "/srv/n1"}, "cause": requested
        }],
        "hints": [{"node": id(101), "hints": {"rack": 7}, "cause": requested}],
        "jigs": [{"jig": "noop", "active": false, "cause": requested}],
        "refused": [{"edit": 3, "code": "needed", "reason": "app needs it"}],
    })
}

#[test]
fn effects_hashes_are_stable() {
    let world = World::of(vec![role("app", &[])]);
    let effects = world.effects(&[bind(WEB, 1, "app")]);
    let through_json: Effects =
        serde_json::from_slice(&engine::canonical::bytes(&effects).unwrap()).unwrap();
    assert_eq!(through_json.hash().unwrap(), effects.hash().unwrap());

    // Stored reviews contain hashes of effects, so a field that gets another name breaks them.
    let document = every_effect();
    let effects: Effects = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(serde_json::to_value(&effects).unwrap(), document);
    let hash = "61d12fda9e132e70ff61eeeaf6c59e190cf55ef93d54848c34b995ae8f8c5fb8";
    assert_eq!(effects.hash().unwrap().to_string(), hash);
    assert!(Effects::default().is_empty() && !effects.is_empty());
}

/// *web* with three nodes: db on node 1, and app on nodes 2 and 3, which waits for db.
fn tiers() -> World {
    let mut world = World::of(vec![role("db", &[]), role("app", &["db"]), role("top", &["app"])]);
    world.commit(&[bind(WEB, 1, "db"), bind(WEB, 2, "app"), bind(WEB, 3, "app")]);
    world
}

fn unbind(n: u128, role: &str, with_dependents: bool) -> Edit {
    Edit::Unbind(edit::Unbind {
        node: node(n),
        noderole: NoderoleKey::first(name(role)),
        with_dependents,
    })
}

fn expunge(n: u128) -> Edit {
    Edit::ExpungeNode(edit::ExpungeNode { node: node(n), reason: "its board burnt".into() })
}

fn refusal(world: &World, edit: Edit) -> (String, String) {
    let effects = world.effects(&[edit]);
    assert!(effects.is_empty(), "a refused edit must leave no effects: {effects:?}");
    (effects.refused[0].code.clone(), effects.refused[0].reason.clone())
}

#[test]
fn needed_noderole_requires_replacement_or_dependents() {
    let mut world = tiers();
    let (code, reason) = refusal(&world, unbind(1, "db", false));
    assert_eq!(code, "needed");
    assert!(reason.contains("app on n2, app on n3 need it"), "{reason}");

    let effects = world.effects(&[unbind(1, "db", true)]);
    let gone: BTreeSet<String> = effects
        .unbound
        .iter()
        .map(|u| format!("{}@{}", u.noderole, u.node.0.as_u128() - 100))
        .collect();
    assert_eq!(gone, ["app@2", "app@3", "db@1"].map(String::from).into());
    let db = effects.unbound.iter().find(|u| u.noderole.role == name("db")).unwrap();
    assert_eq!(db.cause, EffectCause::Requested { edit: 1 });
    let app = effects.unbound.iter().find(|u| u.noderole.role == name("app")).unwrap();
    assert_eq!(app.cause, EffectCause::Required { edit: 1, by: name("db"), implicit: false });

    world.commit(&[bind(WEB, 4, "db")]);
    let effects = world.effects(&[unbind(1, "db", false)]);
    assert_eq!((effects.refused.len(), effects.unbound.len(), effects.rewired.len()), (0, 1, 2));
    let other = NoderoleKey::first(name("db")).id(node(4));
    assert!(effects.rewired.iter().all(|r| r.parents.iter().any(|p| p.parent == other)));
    assert_eq!(refusal(&world, unbind(2, "db", false)).0, "unknown_noderole");
}

#[test]
fn expunge_requires_reason_and_no_outside_dependents() {
    let mut world = tiers();
    let (code, reason) = refusal(&world, expunge(1));
    assert_eq!(code, "node_needed");
    assert!(reason.contains("app on n2, app on n3 need its noderoles"), "{reason}");
    assert_eq!(
        refusal(
            &world,
            Edit::ExpungeNode(edit::ExpungeNode { node: node(2), reason: "  ".into() })
        )
        .0,
        "no_reason"
    );
    let before = world.blueprint.clone();
    let effects = world.commit(&[expunge(2)]);
    assert_eq!(
        (effects.expunged[0].node, effects.expunged[0].reason.as_str()),
        (node(2), "its board burnt")
    );
    assert!(!world.blueprint.nodes.contains_key(&node(2)));
    let documents = changes(&before.root(), &world.blueprint.root());
    let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
    assert_eq!(work.removed, [NoderoleKey::first(name("app")).id(node(2))]);
    assert_eq!(written(&before, &world.blueprint, &documents), [WEB].into());
}

#[test]
fn only_empty_roles_and_deployments_are_removed() {
    let mut world = tiers();
    let drop_role =
        |role: &str| Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: name(role) });
    let (code, reason) = refusal(&world, drop_role("app"));
    assert_eq!((code.as_str(), reason.contains("on n2, n3")), ("role_in_use", true), "{reason}");
    assert_eq!(refusal(&world, drop_role("top")).0, "not_a_role_here");
    let (code, reason) =
        refusal(&world, Edit::RemoveDeployment(edit::RemoveDeployment { deployment: WEB }));
    assert_eq!(
        (code.as_str(), reason.contains("node n1, node n2, node n3")),
        ("not_empty", true),
        "{reason}"
    );
    assert_eq!(
        refusal(&world, Edit::RemoveDeployment(edit::RemoveDeployment { deployment: SYSTEM })).0,
        "root_deployment"
    );

    world.commit(&[unbind(2, "app", false), unbind(3, "app", false), drop_role("app")]);
    assert!(!world.blueprint.deployments[&WEB].doc.roles.contains_key(&name("app")));
    world.commit(&[Edit::RemoveDeployment(edit::RemoveDeployment { deployment: EDGE })]);
    assert!(!world.blueprint.deployments.contains_key(&EDGE));
    assert!(world.blueprint.nodes.values().all(|n| n.doc.deployment != EDGE));
}

#[test]
fn opposite_edits_leave_no_trace() {
    let world = tiers();
    let (id, phantom) = (DeploymentId(Uuid::from_u128(9)), NodeId(Uuid::from_u128(99)));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id,
        phantom,
        name: DeploymentName::parse("blue").unwrap(),
        parent: WEB,
    });
    let data = Edit::SetNoderoleData(edit::SetNoderoleData {
        node: node(2),
        noderole: NoderoleKey::first(name("top")),
        data: json!({"a": 1}),
    });
    let add = Edit::AddRole(edit::AddRole { deployment: WEB, role: name("top") });
    let drop_role = Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: name("top") });
    let effects = world.effects(&[
        create,
        Edit::MoveNode(edit::MoveNode { node: node(4), deployment: id }),
        bind(WEB, 2, "top"),
        data,
        unbind(2, "top", false),
        drop_role.clone(),
        add,
        drop_role,
        Edit::MoveNode(edit::MoveNode { node: node(4), deployment: SYSTEM }),
        Edit::RemoveDeployment(edit::RemoveDeployment { deployment: id }),
    ]);
    assert_eq!(effects, Effects::default());
}

#[test]
fn rebound_noderole_starts_fresh() {
    let mut world = tiers();
    let key = NoderoleKey::first(name("app"));
    let data = |value: u32| {
        Edit::SetNoderoleData(edit::SetNoderoleData {
            node: node(2),
            noderole: key.clone(),
            data: json!({"port": value}),
        })
    };
    world.commit(&[data(1)]);
    world.commit(&[data(2), unbind(2, "app", false), bind(WEB, 2, "app")]);
    let (_, noderole) = world.blueprint.noderole(node(2), &key).unwrap();
    assert_eq!(noderole.data, json!({}));
}

#[test]
fn rebinding_without_data_is_no_change() {
    let mut world = tiers();
    let again = [unbind(2, "app", false), bind(WEB, 2, "app")];
    assert_eq!(world.effects(&again), Effects::default());
    let data = Edit::SetNoderoleData(edit::SetNoderoleData {
        node: node(2),
        noderole: NoderoleKey::first(name("app")),
        data: json!({"port": 1}),
    });
    world.commit(&[data]);
    let effects = world.effects(&again);
    assert_eq!(
        (effects.unbound.len(), effects.bound.len()),
        (1, 1),
        "the data of the noderole are lost"
    );
}

#[test]
fn slice_rerun_includes_descendants_in_deployment() {
    let mut world = tiers();
    world.commit(&[bind(SYSTEM, 4, "db"), bind(WEB, 3, "top")]);
    let slice = |roles: &[&str], reason: &str| {
        Edit::RerunSlice(edit::RerunSlice {
            deployment: WEB,
            roles: roles.iter().map(|r| name(r)).collect(),
            reason: reason.into(),
        })
    };
    let effects = world.effects(&[slice(&["db"], "new certificates")]);
    let again: Vec<String> = effects
        .reruns
        .iter()
        .map(|r| format!("{}@{}", r.noderole, r.node.0.as_u128() - 100))
        .collect();
    assert_eq!(
        again,
        ["db@1", "app@2", "app@3", "top@3"],
        "steps are in running order, without the db of system"
    );
    assert_eq!(effects.reruns[0].cause, EffectCause::Requested { edit: 1 });
    assert_eq!(
        effects.reruns[3].cause,
        EffectCause::Required { edit: 1, by: name("app"), implicit: false }
    );
    assert_eq!(refusal(&world, slice(&["db"], "")).0, "no_reason");
    assert_eq!(refusal(&world, slice(&["nobody"], "x")).0, "nothing_to_rerun");
    assert_eq!(refusal(&world, slice(&[], "x")).0, "no_roles");
}

#[test]
fn inactive_jig_refuses_new_bindings() {
    let mut world = tiers();
    let jig = |text: &str, active| {
        Edit::ActivateJig(edit::ActivateJig { jig: JigName::parse(text).unwrap(), active })
    };
    assert_eq!(refusal(&world, jig("noop", true)).0, "jig_state_unchanged");
    assert_eq!(refusal(&world, jig("anvil", false)).0, "unknown_jig");
    assert_eq!(world.effects(&[jig("noop", false), jig("noop", true)]), Effects::default());
    let before = world.blueprint.clone();
    world.commit(&[jig("noop", false)]);
    let documents = changes(&before.root(), &world.blueprint.root());
    assert_eq!(written(&before, &world.blueprint, &documents), [SYSTEM].into());
    assert_eq!(refusal(&world, bind(WEB, 4, "db")).0, "inactive_jig");
    let effects = world.effects(&[jig("noop", true), bind(WEB, 4, "db")]);
    assert_eq!((effects.refused.len(), effects.bound.len()), (0, 1));
}

#[test]
fn policy_requires_at_least_one_approval() {
    let world = tiers();
    let policy = |approvals| {
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy { approvals, by_risk: BTreeMap::new(), ..Policy::default() },
        })
    };
    assert_eq!(refusal(&world, policy(0)).0, "policy");
    let effects = world.effects(&[policy(1), policy(2)]);
    assert_eq!(effects.policy.map(|p| (p.policy.approvals, p.cause.edit())), Some((2, 2)));
}

fn flagged(role: Role, how: impl Fn(&mut Flags)) -> Role {
    let mut flags = role.flags.clone();
    how(&mut flags);
    Role { flags, ..role }
}

#[test]
fn cluster_members_share_barrier_as_parent() {
    let cluster = flagged(role("kv", &[]), |f| f.cluster = true);
    let mut world = World::of(vec![cluster, role("app", &["kv"])]);
    world.commit(&[bind(WEB, 1, "kv"), bind(WEB, 2, "app")]);
    let phantom = world.blueprint.deployments[&WEB].doc.phantom;
    let barrier = NoderoleKey::first(name("kv").barrier());
    let edges = |world: &World, node: NodeId, key: &NoderoleKey| {
        let (_, noderole) = world.blueprint.noderole(node, key).unwrap();
        noderole.parents.iter().map(|e| e.parent).collect::<BTreeSet<_>>()
    };
    assert_eq!(
        edges(&world, node(2), &NoderoleKey::first(name("app"))),
        [barrier.id(phantom)].into()
    );

    let joined = world.commit(&[bind(WEB, 3, "kv")]);
    assert_eq!(
        joined.rewired.len(),
        1,
        "a later member must become a parent of the steps that wait already"
    );
    let members: BTreeSet<_> = [1, 3].map(|n| NoderoleKey::first(name("kv")).id(node(n))).into();
    assert_eq!(edges(&world, phantom, &barrier), members);

    let (code, _) = refusal(
        &world,
        Edit::Unbind(edit::Unbind {
            node: phantom,
            noderole: barrier.clone(),
            with_dependents: true,
        }),
    );
    assert_eq!(code, "barrier");
    world.commit(&[unbind(1, "kv", false)]);
    let (code, reason) = refusal(&world, unbind(3, "kv", false));
    assert_eq!(
        (code.as_str(), reason.contains("app on n2 needs it")),
        ("needed", true),
        "{reason}"
    );
    world.commit(&[unbind(3, "kv", true)]);
    assert!(
        world.blueprint.noderole(phantom, &barrier).is_none(),
        "the barrier is removed with the last member"
    );
}

#[test]
fn service_binds_to_phantom_without_moving_node() {
    let service = flagged(role("dns", &[]), |f| {
        f.service = true;
        f.implicit = true;
    });
    let mut world = World::of(vec![service, role("app", &["dns"])]);
    let effects = world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]);
    let phantom = world.blueprint.deployments[&WEB].doc.phantom;
    let on: Vec<_> = effects.bound.iter().map(|b| (b.noderole.role.as_str(), b.node)).collect();
    assert_eq!(on, [("dns", phantom), ("app", node(1)), ("app", node(2))]);
    assert_eq!(world.effects(&[bind(WEB, 3, "dns")]), Effects::default());
    let rules = Rules { service_roles_to_phantom: false, ..Rules::default() };
    let plain = resolve_with_rules(
        rules,
        &world.skeleton(),
        &world.catalog,
        &numbered(&[bind(EDGE, 3, "app")]),
    );
    assert_eq!(bound(&plain), ["dns@3", "app@3"]);
}

#[test]
fn dependents_on_child_phantom_are_in_base() {
    let service = flagged(role("dns", &["db"]), |f| f.service = true);
    let mut world = World::of(vec![role("db", &[]), service]);
    world.commit(&[bind(SYSTEM, 1, "db")]);
    world.commit(&[bind(WEB, 2, "dns")]);
    let (before, skeleton) = (world.blueprint.clone(), world.skeleton());
    let effects = world.commit(&[unbind(1, "db", true)]);
    assert_eq!(
        beyond(&skeleton, Scope::Node(node(1)), &effects),
        None,
        "no other node is affected"
    );
    let written =
        written(&before, &world.blueprint, &changes(&before.root(), &world.blueprint.root()));
    assert_eq!(written, [SYSTEM, WEB].into());
    let rests_on = base(&skeleton, Scope::Node(node(1)), &effects);
    assert_eq!(rests_on, [SYSTEM, WEB].into(), "the base does not include edge");
    assert_eq!(outside(&skeleton, &rests_on, &written), [].into());
    assert_eq!(outside(&skeleton, &[SYSTEM].into(), &written), [WEB].into());
    let made = DeploymentId(Uuid::from_u128(9));
    assert_eq!(
        outside(&skeleton, &[SYSTEM].into(), &[SYSTEM, made].into()),
        [].into(),
        "a deployment that the edits create is not outside of the base"
    );
}

#[test]
fn preceding_role_adds_soft_edge_only() {
    let first = Role { preceeds: [name("later")].into(), ..role("first", &[]) };
    let mut world = World::of(vec![first, role("later", &[])]);
    world.commit(&[bind(WEB, 1, "later"), bind(WEB, 1, "first")]);
    let (_, later) = world.blueprint.noderole(node(1), &NoderoleKey::first(name("later"))).unwrap();
    assert_eq!((later.rank, later.parents.len(), later.parents[0].kind), (1, 1, EdgeKind::Soft));
    let effects = world.commit(&[unbind(1, "first", false)]);
    assert_eq!(effects.rewired.len(), 1, "a soft edge must not prevent the unbinding");
    let (_, later) = world.blueprint.noderole(node(1), &NoderoleKey::first(name("later"))).unwrap();
    assert_eq!((later.rank, later.parents.len()), (0, 0));
    let rules = Rules { preceeds_soft_edges: false, ..Rules::default() };
    let plain = resolve_with_rules(
        rules,
        &world.skeleton(),
        &world.catalog,
        &numbered(&[bind(WEB, 1, "first")]),
    );
    assert_eq!(plain.rewired, []);
}

/// The parents of a noderole as `role@node`, soft ones with a question mark.
fn above(world: &World, n: u128, role: &str) -> Vec<String> {
    let (_, noderole) = world.blueprint.noderole(node(n), &NoderoleKey::first(name(role))).unwrap();
    let skeleton = world.skeleton();
    let above = noderole.parents.iter().map(|edge| {
        let (node, key) = skeleton.location(edge.parent).unwrap();
        format!(
            "{key}@{}{}",
            node.0.as_u128() - 100,
            if edge.kind == EdgeKind::Soft { "?" } else { "" }
        )
    });
    let mut above: Vec<String> = above.collect();
    above.sort();
    above
}

#[test]
fn soft_order_moves_to_next_parent() {
    let first = Role { preceeds: [name("later")].into(), ..role("first", &[]) };
    let mut world = World::of(vec![first, role("later", &[])]);
    world.commit(&[
        bind(WEB, 3, "later"),
        bind(WEB, 4, "later"),
        bind(WEB, 1, "first"),
        bind(WEB, 2, "first"),
    ]);
    assert_eq!(
        [above(&world, 3, "later"), above(&world, 4, "later")],
        [["first@1?"], ["first@1?"]],
        "each later step has one soft parent"
    );
    world.commit(&[unbind(1, "first", false)]);
    assert_eq!(
        [above(&world, 3, "later"), above(&world, 4, "later")],
        [["first@2?"], ["first@2?"]],
        "the removed parent must be replaced by the next one"
    );
    world.commit(&[bind(WEB, 3, "first")]);
    assert_eq!(
        above(&world, 3, "later"),
        ["first@2?", "first@3?"],
        "a parent on the same node must always be included"
    );
    world.commit(&[unbind(3, "first", false)]);
    assert_eq!(above(&world, 3, "later"), ["first@2?"]);
    world.commit(&[unbind(2, "first", false)]);
    assert_eq!(above(&world, 3, "later"), Vec::<String>::new());
}

#[test]
fn owners_of_read_attributes_become_parents() {
    let attrib = |text: &str| AttribName::parse(text).unwrap();
    let owned: Attrib = serde_json::from_value(json!({"name": "port", "map": ["port"]})).unwrap();
    let owner = Role { attribs: vec![owned], ..role("owner", &[]) };
    let wants = Role { wants: vec![attrib("port")], ..role("wants", &[]) };
    let world = World::of(vec![owner, wants]);
    assert_eq!(bound(&world.effects(&[bind(WEB, 1, "wants")])), ["owner@1", "wants@1"]);
    let rules = Rules { wants_attribs_make_parents: false, ..Rules::default() };
    let plain = resolve_with_rules(
        rules,
        &world.skeleton(),
        &world.catalog,
        &numbered(&[bind(WEB, 1, "wants")]),
    );
    assert_eq!(bound(&plain), ["wants@1"]);
}

#[test]
fn noderole_cycle_is_refused() {
    let one = Role { preceeds: [name("two")].into(), ..role("one", &[]) };
    let two = Role { preceeds: [name("three")].into(), ..role("two", &[]) };
    let three = Role { preceeds: [name("one")].into(), ..role("three", &[]) };
    let world = World::of(vec![one, two, three]);
    let effects = world.effects(&[bind(WEB, 1, "one"), bind(WEB, 1, "two"), bind(WEB, 1, "three")]);
    assert_eq!(
        (effects.refused[0].code.as_str(), bound(&effects)),
        ("noderole_cycle", vec!["one@1".to_owned(), "two@1".to_owned()])
    );
}

#[test]
fn every_report_stage_has_content_without_changes() {
    let world = tiers();
    let about = |edits: &[Edit]| {
        let effects = world.effects(edits);
        report(&world.skeleton(), &world.catalog, &numbered(edits), &effects, Some(&[]))
    };
    let idle = about(&[]);
    let stages: Vec<Stage> = idle.stages.iter().map(|s| s.stage).collect();
    let all = [
        Stage::Catalog,
        Stage::Edits,
        Stage::Bind,
        Stage::Move,
        Stage::Order,
        Stage::Check,
        Stage::Lint,
    ];
    assert_eq!(stages, all);
    for stage in &idle.stages {
        assert!(
            !stage.results.is_empty() && stage.results.iter().all(|line| !line.evidence.is_empty()),
            "{stage:?}"
        );
        assert!(stage.effects.is_empty() && stage.blocked_by.is_empty(), "{stage:?}");
    }
    assert_eq!(
        idle.stages[3].waiting_on[0].subjects,
        [Subject::Node(node(4))],
        "the report lists the node without roles"
    );

    let busy = about(&[bind(WEB, 4, "top"), unbind(1, "db", false), bind(EDGE, 1, "top")]);
    let of = |stage: Stage| busy.stages.iter().find(|s| s.stage == stage).unwrap();
    let (bound, top) = (&of(Stage::Bind).effects, NoderoleKey::first(name("top")).id(node(4)));
    let lines: Vec<&str> = bound.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(lines, ["Bind top: 1 noderole"]);
    assert_eq!(
        (bound[0].subjects.as_slice(), &bound[0].edits),
        (&[Subject::Noderole(top)][..], &[1].into())
    );
    assert_eq!(
        of(Stage::Bind).blocked_by[0].edits,
        [2].into(),
        "a required role cannot be removed"
    );
    assert_eq!(
        of(Stage::Move).blocked_by[0].edits,
        [3].into(),
        "the node belongs to a sibling deployment"
    );
    assert_eq!(of(Stage::Move).effects[0].subjects, [Subject::Node(node(4))]);
    assert_eq!(of(Stage::Check).blocked_by[0].edits, [2, 3].into());
    let begins = &of(Stage::Order).effects[0];
    assert_eq!(
        begins.text, "New work begins with 1 noderole",
        "the number of waves is part of the impact, not of the report"
    );
    assert_eq!(begins.subjects, [Subject::Noderole(top)]);
    let read: Report = serde_json::from_value(serde_json::to_value(&busy).unwrap()).unwrap();
    assert_eq!(read, busy);
}

/// A board in the browser receives the skeleton and the catalog as JSON. Its preview of a drop must
/// equal the server's.
#[test]
fn browser_preview_equals_server_and_predicts_drop() {
    let rival = Role { conflicts: [name("app")].into(), ..role("rival", &[]) };
    let mut world = World::of(vec![implicit(role("dns", &[])), role("app", &["dns"]), rival]);
    world.commit(&[
        Edit::AddRole(edit::AddRole { deployment: WEB, role: name("app") }),
        bind(WEB, 1, "app"),
    ]);
    world.commit(&[Edit::AddRole(edit::AddRole { deployment: WEB, role: name("rival") })]);
    let edits = numbered(&[bind(WEB, 2, "app")]);
    let preview = engine::plan::preview_drop(
        &world.skeleton(),
        &world.catalog,
        &edits,
        2,
        WEB,
        &[node(1), node(2), node(3)],
    );

    let mut skeleton: Skeleton =
        serde_json::from_str(&serde_json::to_string(&world.skeleton()).unwrap()).unwrap();
    let mut catalog = Catalog::default();
    for (hash, barclamp) in world.catalog.barclamps() {
        let text = serde_json::to_string(&**barclamp).unwrap();
        catalog.add_barclamp(hash, Arc::new(serde_json::from_str(&text).unwrap()));
    }
    for (hash, role) in world.catalog.roles() {
        let text = serde_json::to_string(&**role).unwrap();
        catalog.add_role(hash, Arc::new(serde_json::from_str(&text).unwrap()));
    }
    skeleton.index(&catalog).unwrap();
    assert_eq!(
        engine::plan::preview_drop(
            &skeleton,
            &catalog,
            &edits,
            2,
            WEB,
            &[node(1), node(2), node(3)]
        ),
        preview
    );

    let of = |role: &str| preview.roles.iter().find(|r| r.role == name(role)).unwrap();
    assert_eq!(of("app").legal, [node(3)], "the proposal already binds the second node");
    assert_eq!(of("app").illegal.len(), 2);
    assert_eq!(of("rival").legal, [node(3)]);
    assert!(
        of("rival").illegal[0].reason.contains("conflicts with app"),
        "{:?}",
        of("rival").illegal
    );
    assert_eq!(
        (of("app").added, of("app").also_added[0].reason.as_str()),
        (2, "required by app, implicit")
    );
    assert_eq!(of("app").moves, ["Node n3 moves from system to web"]);
    assert_eq!(of("app").wave, Some((2, 2)));

    // The drop has exactly the previewed effects, by hash.
    let expected = resolve(
        &skeleton,
        &catalog,
        &[edits.clone(), vec![NumberedEdit { seq: 2, edit: bind(WEB, 3, "app") }]].concat(),
    );
    let done = world.effects(&[bind(WEB, 2, "app"), bind(WEB, 3, "app")]);
    assert_eq!(expected.hash().unwrap(), done.hash().unwrap());
}

/// A drop on one node adds a noderole that also serves equivalent nodes after it.
#[test]
fn preview_tries_refused_nodes_again_after_addition() {
    let shared = |text: &str| Role { provides: [name("shared")].into(), ..role(text, &[]) };
    let mut world = World::of(vec![shared("one"), shared("other"), role("app", &["other"])]);
    world.nodes = 6;
    let nodes: Vec<NodeId> = (1..=6).map(node).collect();
    world.commit(&[Edit::AddRole(edit::AddRole { deployment: WEB, role: name("app") })]);
    world.commit(&[1, 2, 3, 5, 6].map(|n| bind(WEB, n, "one")));
    let preview =
        engine::plan::preview_drop(&world.skeleton(), &world.catalog, &[], 1, WEB, &nodes);
    let app = preview.roles.iter().find(|r| r.role == name("app")).unwrap();
    assert_eq!(app.legal, [4, 5, 6].map(node), "{app:?}");
    let refused =
        |edits: &[Edit]| world.effects(edits).refused.iter().map(|r| r.edit).collect::<Vec<_>>();
    assert_eq!(refused(&[1, 2, 3, 4, 5, 6].map(|n| bind(WEB, n, "app"))), [1, 2, 3]);
}

/// A noderole of the parent deployment waits for the barrier of a child deployment, because a
/// member is on its node.
#[test]
fn noderole_above_depends_on_cluster_member_of_its_node() {
    let cluster = flagged(role("kv", &[]), |f| f.cluster = true);
    let mut world = World::of(vec![cluster, role("app", &["kv"])]);
    world.commit(&[bind(WEB, 1, "kv"), bind(WEB, 2, "kv"), bind(SYSTEM, 1, "app")]);
    let (code, reason) = refusal(&world, unbind(1, "kv", false));
    assert_eq!(code, "needed");
    assert!(reason.contains("app on n1 needs it"), "{reason}");
    // The other member serves no noderole outside of web.
    let effects = world.effects(&[unbind(2, "kv", false)]);
    assert_eq!((effects.refused.len(), effects.unbound.len()), (0, 1));
    let effects = world.effects(&[unbind(1, "kv", true)]);
    assert_eq!((effects.refused.len(), effects.unbound.len()), (0, 2));
    // Another one in the parent deployment can serve instead.
    world.commit(&[bind(SYSTEM, 3, "kv")]);
    world.commit(&[unbind(1, "kv", false)]);
    let (_, app) = world.blueprint.noderole(node(1), &NoderoleKey::first(name("app"))).unwrap();
    let phantom = world.blueprint.deployments[&SYSTEM].doc.phantom;
    let barrier = NoderoleKey::first(name("kv").barrier()).id(phantom);
    assert_eq!(app.parents.iter().map(|e| e.parent).collect::<Vec<_>>(), [barrier]);
}

#[test]
fn report_ends_with_lint_and_names_phantoms() {
    let member = flagged(role("db", &[]), |f| f.cluster = true);
    let world = World::of(vec![member, role("app", &["db"])]);
    let edits = numbered(&[bind(WEB, 1, "db"), bind(WEB, 2, "app")]);
    let effects = resolve(&world.skeleton(), &world.catalog, &edits);
    let about = |findings: Option<&[Finding]>| {
        report(&world.skeleton(), &world.catalog, &edits, &effects, findings)
    };
    let finding = |check: LintCheck| Finding {
        check,
        level: check.level(),
        at: "app on n2".into(),
        noderole: Some(NoderoleKey::first(name("app")).id(node(2))),
        problem: "it is odd".into(),
        remedy: "Mend it".into(),
    };
    let reported =
        about(Some(&[finding(LintCheck::AbstractRole), finding(LintCheck::ClusterSize)]));
    let lint = reported.stages.last().unwrap();
    assert_eq!((lint.stage, lint.results[0].text.as_str()), (Stage::Lint, "1 error and 1 warning"));
    let words = |line: &Line| (line.text.clone(), line.evidence.clone(), line.subjects.len());
    let text =
        |check: &str| ("app on n2: it is odd. Mend it".to_owned(), format!("check {check}"), 1);
    assert_eq!(lint.blocked_by.iter().map(words).collect::<Vec<_>>(), [text("abstract-role")]);
    assert_eq!(lint.results.iter().skip(1).map(words).collect::<Vec<_>>(), [text("cluster-size")]);
    assert_eq!(about(None).stages.last().unwrap().waiting_on.len(), 1);
    let bind = &reported.stages[2];
    let barrier = bind.effects.iter().find(|line| line.text == "Bind db.all: 1 noderole").unwrap();
    assert_eq!(barrier.evidence, "required by db for web as a whole");
}

#[test]
fn long_report_lists_are_truncated_with_count() {
    let world = World { nodes: 400, ..World::of(vec![role("app", &[])]) };
    let edits: Vec<Edit> = (1..=300)
        .map(|n| Edit::MoveNode(edit::MoveNode { node: node(n), deployment: WEB }))
        .collect();
    let edits = numbered(&edits);
    let effects = resolve(&world.skeleton(), &world.catalog, &edits);
    let reported = report(&world.skeleton(), &world.catalog, &edits, &effects, None);
    let place = &reported.stages[3].effects;
    assert_eq!(
        (place.len(), place.last().unwrap().text.as_str()),
        (MAX_LINES + 1, "250 more like these")
    );
    let taken = &reported.stages[1].results[0];
    assert_eq!((taken.edits.len(), taken.more_edits), (MAX_NAMED, 250));
    assert_eq!(taken.edits.last(), Some(&50));
}

/// Another version of the world's barclamp, with these roles replaced.
fn other_version(world: &mut World, roles: Vec<Role>) -> Edit {
    Edit::UseBarclamp(edit::UseBarclamp {
        deployment: SYSTEM,
        barclamp: BarclampName::parse("b").unwrap(),
        version: version(world, "2", roles, json!({})),
    })
}

/// Imports a version of the world's barclamp.
fn version(world: &mut World, version: &str, roles: Vec<Role>, jigs: Value) -> Hash {
    let mut content = BTreeMap::new();
    for role in roles {
        let hash = engine::canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        world.catalog.add_role(hash, Arc::new(role));
    }
    let barclamp = json!({"name": "b", "version": version, "roles": content, "jigs": jigs});
    let barclamp: Barclamp = serde_json::from_value(barclamp).unwrap();
    let pin = Object::of(ObjectKind::Barclamp, &barclamp).unwrap();
    world.catalog.add(&pin).unwrap();
    pin.hash
}

fn using(deployment: DeploymentId, version: Hash) -> Edit {
    Edit::UseBarclamp(edit::UseBarclamp {
        deployment,
        barclamp: BarclampName::parse("b").unwrap(),
        version,
    })
}

#[test]
fn bound_noderoles_adopt_new_version() {
    let mut world = tiers();
    let newer = |text: &str, requires: &[&str]| Role {
        description: "newer".into(),
        ..role(text, requires)
    };
    let lacking = other_version(&mut world, vec![role("db", &[])]);
    let (code, reason) = refusal(&world, lacking);
    assert_eq!(
        (code.as_str(), reason.contains("lacks role app, which deployment web has")),
        ("version_unfit", true),
        "{reason}"
    );

    let roles = vec![
        role("db", &[]),
        newer("app", &["db", "cache"]),
        role("cache", &[]),
        role("top", &["app"]),
    ];
    let edit = other_version(&mut world, roles);
    let before = world.blueprint.clone();
    let effects = world.commit(&[edit]);
    assert_eq!(bound(&effects), ["cache@2"], "a role that the new version requires is bound once");
    assert_eq!(
        effects.repinned.iter().filter(|r| r.node.is_some()).count(),
        2,
        "app changes on two nodes, and db is unchanged"
    );
    assert_eq!(effects.rewired.len(), 2);
    let documents = changes(&before.root(), &world.blueprint.root());
    let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
    let again = work.steps.iter().filter(|s| matches!(s.change, StepChange::Rerun(_))).count();
    assert_eq!((again, work.steps.len()), (2, 3));
    assert_eq!(world.effects(&[]), Effects::default());
}

/// Imports a version of any barclamp.
fn barclamp(world: &mut World, label: &str, number: &str, roles: &[&str]) -> (BarclampName, Hash) {
    let label = BarclampName::parse(label).unwrap();
    let mut content = BTreeMap::new();
    for text in roles {
        let role = Role { barclamp: label.clone(), description: number.into(), ..role(text, &[]) };
        let hash = engine::canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        world.catalog.add_role(hash, Arc::new(role));
    }
    let stored: Barclamp =
        serde_json::from_value(json!({"name": label, "version": number, "roles": content}))
            .unwrap();
    let pin = Object::of(ObjectKind::Barclamp, &stored).unwrap();
    world.catalog.add(&pin).unwrap();
    (label, pin.hash)
}

fn use_in(deployment: DeploymentId, (barclamp, version): &(BarclampName, Hash)) -> Edit {
    Edit::UseBarclamp(edit::UseBarclamp {
        deployment,
        barclamp: barclamp.clone(),
        version: *version,
    })
}

/// A child deployment of web, and the edit that creates it.
fn below_web() -> (DeploymentId, Edit) {
    let below = DeploymentId(Uuid::from_u128(90));
    let (phantom, name) = (NodeId(Uuid::from_u128(91)), DeploymentName::parse("below").unwrap());
    (
        below,
        Edit::CreateDeployment(edit::CreateDeployment { id: below, phantom, name, parent: WEB }),
    )
}

#[test]
fn visible_barclamps_cannot_share_role_name() {
    let mut world = World::of(Vec::new());
    let first = barclamp(&mut world, "first", "1", &["app", "db"]);
    let second = barclamp(&mut world, "second", "1", &["app", "other"]);
    let mended = barclamp(&mut world, "second", "2", &["other"]);
    let worse = barclamp(&mut world, "second", "3", &["other", "db"]);
    world.commit(&[use_in(WEB, &first)]);
    // In a sibling, an ancestor and a descendant.
    let refused = |world: &World, edit: Edit| {
        let (code, reason) = refusal(world, edit);
        assert_eq!(code, "duplicate_role", "{reason}");
        reason
    };
    let reason = refused(&world, use_in(WEB, &second));
    assert!(
        reason.starts_with(
            "Barclamps second and first both have a role app, and deployment web would see both"
        ),
        "{reason}"
    );
    assert!(refused(&world, use_in(SYSTEM, &second)).contains("deployment web would see both"));
    let (below, make) = below_web();
    let effects = world.effects(&[make, use_in(below, &second)]);
    assert_eq!(
        effects.refused.iter().map(|r| (r.edit, r.code.as_str())).collect::<Vec<_>>(),
        [(2, "duplicate_role")]
    );
    // A sibling does not see it. A version without the role is accepted too.
    assert_eq!(world.effects(&[use_in(EDGE, &second), use_in(WEB, &mended)]).refused, []);
    // If both were visible before, shared role names may stay, but no more may be added.
    let mut doc = (*world.blueprint.deployments[&WEB].doc).clone();
    doc.barclamps.insert(second.0.clone(), second.1);
    world.blueprint.insert_deployment(doc).unwrap();
    let same = barclamp(&mut world, "second", "4", &["app"]);
    assert_eq!(world.effects(&[use_in(WEB, &same)]).refused, []);
    assert!(refused(&world, use_in(WEB, &worse)).contains("role db"));
}

#[test]
fn nearer_pin_hides_inherited_version() {
    let attrib = |text: &str| AttribName::parse(text).unwrap();
    let owned: Attrib = serde_json::from_value(json!({"name": "port", "map": ["port"]})).unwrap();
    let owner = Role { attribs: vec![owned], ..role("owner", &[]) };
    let app = Role { wants: vec![attrib("port")], ..role("app", &[]) };
    let jig = |client: &str| json!({"noop": {"class": "noop", "client_role": client}});
    let own =
        |text: &str| Role { jig: JigName::parse("test").unwrap(), ..implicit(role(text, &[])) };
    let mut world = World::of(Vec::new());
    let one = version(
        &mut world,
        "1",
        vec![own("old"), owner, role("dropped", &[]), app.clone()],
        jig("old"),
    );
    let two = version(&mut world, "2", vec![own("new"), own("old"), app], jig("new"));
    world.commit(&[using(SYSTEM, one), using(WEB, two), bind(SYSTEM, 1, "dropped")]);

    let effects = world.effects(&[bind(EDGE, 2, "app")]);
    assert_eq!(
        bound(&effects),
        ["old@2", "owner@2", "app@2"],
        "deployment edge must use the inherited version"
    );
    let effects = world.effects(&[bind(WEB, 2, "app")]);
    assert_eq!(
        bound(&effects),
        ["new@2", "app@2"],
        "neither the jig nor the attribute's owner of the inherited version applies"
    );
    // The role that *system* itself has belongs to the hidden version.
    for edit in [
        bind(WEB, 2, "dropped"),
        Edit::AddRole(edit::AddRole { deployment: WEB, role: name("dropped") }),
    ] {
        let (code, reason) = refusal(&world, edit);
        assert_eq!(
            (code.as_str(), reason.contains("Did you mean \"dropped\"")),
            ("unknown_role", false),
            "{reason}"
        );
    }
}

#[test]
fn adopted_version_applies_all_binding_rules() {
    let before =
        |text: &str, later: &str| Role { preceeds: [name(later)].into(), ..role(text, &[]) };
    let roles =
        || vec![role("first", &[]), role("later", &[]), role("db", &[]), role("app", &["db"])];
    let with = |other: Role| {
        let mut roles = roles();
        roles.retain(|role| role.name != other.name);
        roles.push(other);
        roles
    };
    let mut world = World::of(roles());
    world.commit(&["later", "first", "db"].map(|role| bind(WEB, 1, role)));
    world.commit(&[bind(WEB, 2, "later"), bind(WEB, 2, "app")]);
    assert_eq!(above(&world, 2, "app"), ["db@1"]);

    let ordered = version(&mut world, "ordered", with(before("first", "later")), json!({}));
    world.commit(&[using(SYSTEM, ordered)]);
    assert_eq!(
        [above(&world, 1, "later"), above(&world, 2, "later")],
        [["first@1?"], ["first@1?"]]
    );
    let plain = version(&mut world, "plain", with(before("first", "elsewhere")), json!({}));
    world.commit(&[using(SYSTEM, plain)]);
    assert_eq!(
        [above(&world, 1, "later"), above(&world, 2, "later")],
        [Vec::<String>::new(), Vec::new()]
    );

    let near = version(&mut world, "near", with(implicit(role("db", &[]))), json!({}));
    let effects = world.commit(&[using(SYSTEM, near)]);
    assert_eq!(
        (bound(&effects), above(&world, 2, "app")),
        (vec!["db@2".to_owned()], vec!["db@2".to_owned()])
    );

    // The content of app is the same, but its jig now requires a role.
    let client = Role { jig: JigName::parse("test").unwrap(), ..implicit(role("client", &[])) };
    let mut asking = with(implicit(role("db", &[])));
    asking.retain(|role| role.name != name("db"));
    asking.extend([
        client,
        Role { jig: JigName::parse("test").unwrap(), ..implicit(role("db", &[])) },
    ]);
    let asking = version(
        &mut world,
        "asking",
        asking,
        json!({"noop": {"class": "noop", "client_role": "client"}}),
    );
    world.commit(&[using(SYSTEM, asking)]);
    assert_eq!(above(&world, 2, "app"), ["client@2", "db@2"]);

    let phantom = version(
        &mut world,
        "service",
        with(flagged(role("app", &[]), |flags| flags.service = true)),
        json!({}),
    );
    let (code, reason) = refusal(&world, using(SYSTEM, phantom));
    assert_eq!(code, "version_unfit");
    assert_eq!(
        reason,
        "Barclamp b service changes the service flag of role app, which deployment web has. Unbind \
         and remove the role there first, or use another version"
    );
}

#[test]
fn existing_noderole_satisfies_only_its_own_version() {
    let provides = Role { provides: [name("store")].into(), ..role("disk", &[]) };
    let mut world = World::of(vec![role("disk", &[])]);
    world.commit(&[bind(SYSTEM, 1, "disk")]);
    let newer = version(&mut world, "2", vec![provides, role("app", &["store"])], json!({}));
    world.commit(&[using(WEB, newer)]);
    let (code, reason) = refusal(&world, bind(WEB, 1, "app"));
    assert_eq!(code, "served_by_other_version");
    assert!(
        reason.contains("n1.plan.example.com already has disk for deployment system")
            && reason.ends_with("Use the newer version in system too"),
        "{reason}"
    );
    assert_eq!(bound(&world.effects(&[bind(WEB, 2, "app")])), ["disk@2", "app@2"]);
}

fn inherit(deployment: DeploymentId) -> Edit {
    Edit::InheritBarclamp(edit::InheritBarclamp {
        deployment,
        barclamp: BarclampName::parse("b").unwrap(),
    })
}

/// The content hashes of a deployment's role and of its noderole on a node.
fn contents(world: &World, deployment: DeploymentId, n: u128, role: &str) -> (Hash, Hash) {
    let of_role = world.blueprint.deployments[&deployment].doc.roles[&name(role)].role;
    (of_role, world.blueprint.nodes[&node(n)].doc.noderoles[&NoderoleKey::first(name(role))].role)
}

#[test]
fn unpinned_deployment_inherits_ancestor_version() {
    let newer = |text: &str, requires: &[&str]| Role {
        description: "newer".into(),
        ..role(text, requires)
    };
    let mut world = World::of(vec![role("db", &[]), role("app", &[])]);
    let (code, reason) = refusal(&world, inherit(WEB));
    assert_eq!(
        (code.as_str(), reason.as_str()),
        (
            "no_own_version",
            "Deployment web has no version of b of its own, so there is nothing to \
                            remove"
        )
    );

    world.commit(&[bind(WEB, 1, "app")]);
    let was = contents(&world, WEB, 1, "app");
    let empty = world.blueprint.root();
    let two = version(&mut world, "2", vec![role("db", &[]), newer("app", &["db"])], json!({}));
    world.commit(&[using(WEB, two)]);
    assert_ne!(contents(&world, WEB, 1, "app"), was);
    assert_eq!(above(&world, 1, "app"), ["db@1"]);

    let before = world.blueprint.clone();
    let effects = world.commit(&[inherit(WEB)]);
    assert_eq!(
        contents(&world, WEB, 1, "app"),
        was,
        "the role and noderole have the inherited content"
    );
    assert_eq!(
        above(&world, 1, "app"),
        Vec::<String>::new(),
        "the noderole has only the parents that the inherited content requires"
    );
    let [reported] = effects.unpinned.as_slice() else { panic!("{:?}", effects.unpinned) };
    let one = world.blueprint.deployments[&SYSTEM].doc.barclamps[&reported.barclamp];
    assert_eq!(
        (reported.deployment, reported.from, reported.to, &reported.cause),
        (WEB, two, Some(one), &EffectCause::Requested { edit: 1 })
    );
    assert!(!effects.is_empty() && world.blueprint.deployments[&WEB].doc.barclamps.is_empty());
    let documents = changes(&before.root(), &world.blueprint.root());
    let found = difference(&before, &world.blueprint, &documents).unwrap();
    let names = engine::blueprint::text::Names::of(&found, &before, &world.blueprint);
    let text = found.text(&names, &Default::default());
    assert!(text.contains(&format!("  - barclamp b {}\n", two.short())), "{text}");
    let reported =
        report(&world.skeleton(), &world.catalog, &numbered(&[inherit(WEB)]), &effects, None);
    let line = reported
        .stages
        .iter()
        .flat_map(|stage| &stage.effects)
        .find(|line| line.text.starts_with("Deployment web inherits b"));
    assert_eq!(
        line.map(|line| line.text.clone()),
        Some(format!("Deployment web inherits b {}", one.short()))
    );

    // Pinned and unpinned in one proposal, it leaves no trace. A change of the ancestor's version
    // changes the deployments that inherit it.
    world.commit(&[
        unbind(1, "db", false),
        Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: name("db") }),
    ]);
    assert_eq!(world.blueprint.root(), empty);
    let effects = world.effects(&[using(EDGE, two), inherit(EDGE)]);
    assert!(effects.is_empty() && effects.refused.is_empty(), "{effects:?}");
    world.commit(&[using(WEB, one)]);
    world.commit(&[using(SYSTEM, two), inherit(WEB)]);
    assert_ne!(contents(&world, WEB, 1, "app"), was);
}

#[test]
fn own_pin_survives_removal_of_ancestor_pin() {
    let newer = |text: &str| Role { description: "newer".into(), ..role(text, &[]) };
    let mut world = World::of(vec![role("app", &[])]);
    let (below, make) = below_web();
    let one = world.blueprint.deployments[&SYSTEM].doc.barclamps.values().next().copied().unwrap();
    let two = version(&mut world, "2", vec![newer("app")], json!({}));
    let three = version(
        &mut world,
        "3",
        vec![Role { description: "newest".into(), ..role("app", &[]) }],
        json!({}),
    );
    world.commit(&[
        make,
        using(WEB, two),
        using(below, three),
        bind(WEB, 1, "app"),
        bind(below, 2, "app"),
    ]);
    let before = contents(&world, below, 2, "app");
    world.commit(&[inherit(WEB)]);
    let content = |pin: Hash| world.catalog.barclamp(pin).unwrap().roles[&name("app")];
    assert_eq!(contents(&world, WEB, 1, "app"), (content(one), content(one)));
    assert_eq!(contents(&world, below, 2, "app"), before);
}

#[test]
fn last_pin_is_removed_only_without_roles() {
    let mut world = World::of(Vec::new());
    let (label, tool) = barclamp(&mut world, "tool", "1", &["app"]);
    let empty = world.blueprint.root();
    let drop = || {
        Edit::InheritBarclamp(edit::InheritBarclamp { deployment: WEB, barclamp: label.clone() })
    };
    world.commit(&[Edit::UseBarclamp(edit::UseBarclamp {
        deployment: WEB,
        barclamp: label.clone(),
        version: tool,
    })]);
    let unused = world.blueprint.clone();
    world.commit(&[Edit::AddRole(edit::AddRole { deployment: WEB, role: name("app") })]);
    let (code, reason) = refusal(&world, drop());
    assert_eq!(code, "barclamp_in_use");
    assert_eq!(
        reason,
        "No deployment above web uses barclamp tool, and deployment web has its role app. Unbind \
         and remove the role there first, or use another version"
    );
    world.commit(&[Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: name("app") })]);
    assert_eq!(world.blueprint.root(), unused.root());
    let effects = world.commit(&[drop()]);
    assert_eq!((effects.unpinned.len(), effects.unpinned[0].to), (1, None));
    assert_eq!(world.blueprint.root(), empty);
}

#[test]
fn role_name_exchange_works_in_any_order() {
    let mut world = World::of(Vec::new());
    let refused = |world: &World, edits: &[Edit]| {
        let effects = world.effects(edits);
        effects.refused.into_iter().map(|r| (r.edit, r.code, r.reason)).collect::<Vec<_>>()
    };
    let (a1, b1) =
        (barclamp(&mut world, "a", "1", &["r", "x"]), barclamp(&mut world, "b2", "1", &["s"]));
    let (a2, b2) =
        (barclamp(&mut world, "a", "2", &["s", "x"]), barclamp(&mut world, "b2", "2", &["r"]));
    world.commit(&[use_in(WEB, &a1), use_in(WEB, &b1), bind(WEB, 1, "x")]);
    let (to_a, to_b) = (use_in(WEB, &a2), use_in(WEB, &b2));
    let mut ends = Vec::new();
    for edits in [[to_a.clone(), to_b.clone()], [to_b.clone(), to_a.clone()]] {
        assert_eq!(refused(&world, &edits), []);
        let mut other = World {
            catalog: world.catalog.clone(),
            blueprint: world.blueprint.clone(),
            nodes: world.nodes,
        };
        other.commit(&edits);
        let bound = other.effects(&[bind(WEB, 2, "r")]).bound;
        assert_eq!(
            world.catalog.role(bound[0].role).unwrap().barclamp,
            b2.0,
            "a later binding uses the new owner"
        );
        ends.push(other.blueprint.root());
    }
    assert_eq!(ends[0], ends[1]);
    // Only one of them conflicts with the existing state. Later edits take effect without it.
    for (edit, named) in [
        (&to_a, "Barclamps a and b2 both have a role s"),
        (&to_b, "Barclamps b2 and a both have a role r"),
    ] {
        let add = Edit::AddRole(edit::AddRole { deployment: WEB, role: name("x") });
        let found = refused(
            &world,
            &[
                Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: name("s") }),
                edit.clone(),
                bind(WEB, 2, "x"),
                add,
            ],
        );
        let [_, (2, code, reason), (4, _, _)] = found.as_slice() else { panic!("{found:?}") };
        assert!(code == "duplicate_role" && reason.starts_with(named), "{reason}");
    }
    // If two edits conflict, the later one is refused. An edit that conflicted only with it stays.
    let c = barclamp(&mut world, "c", "1", &["new"]);
    let d = barclamp(&mut world, "d", "1", &["new", "newer"]);
    let e = barclamp(&mut world, "e", "1", &["newer"]);
    let found = refused(&world, &[use_in(WEB, &c), use_in(SYSTEM, &d), use_in(WEB, &e)]);
    assert_eq!(found.iter().map(|(edit, ..)| *edit).collect::<Vec<_>>(), [2]);
    // A pin that a nearer pin hides is not at fault.
    let above = barclamp(&mut world, "c", "2", &["other"]);
    let found = refused(&world, &[use_in(WEB, &c), use_in(WEB, &d), use_in(SYSTEM, &above)]);
    assert_eq!(found.iter().map(|(edit, ..)| *edit).collect::<Vec<_>>(), [2]);
    // Neither is a later version of the barclamp that had the role before.
    let taker = barclamp(&mut world, "f", "1", &["x"]);
    let more = barclamp(&mut world, "a", "3", &["r", "x", "y"]);
    for edits in
        [[use_in(WEB, &taker), use_in(WEB, &more)], [use_in(WEB, &taker), use_in(WEB, &a1)]]
    {
        let found = refused(&world, &edits);
        assert_eq!(found.iter().map(|(edit, ..)| *edit).collect::<Vec<_>>(), [1], "{found:?}");
    }
    // A version that becomes visible again from an ancestor counts like a used one.
    world.commit(&[use_in(SYSTEM, &d)]);
    let own = barclamp(&mut world, "d", "2", &["other"]);
    world.commit(&[use_in(WEB, &own), use_in(WEB, &e)]);
    let back =
        Edit::InheritBarclamp(edit::InheritBarclamp { deployment: WEB, barclamp: own.0.clone() });
    let found = refused(&world, &[back]);
    let [(1, code, reason)] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        code == "duplicate_role" && reason.starts_with("Barclamps d and e both have a role newer"),
        "{reason}"
    );
}

fn move_below(deployment: DeploymentId, parent: DeploymentId) -> Edit {
    Edit::MoveDeployment(edit::MoveDeployment { deployment, parent })
}

/// Binds roles in the child of web: node 1 has dns of web, node 2 has dns of edge, node 3 has app
/// of the child.
fn app_below_web() -> (World, DeploymentId) {
    let mut world = World::of(vec![role("dns", &[]), role("app", &["dns"])]);
    let (below, create) = below_web();
    let dns = [bind(WEB, 1, "dns"), bind(EDGE, 2, "dns")];
    world.commit(&[vec![create], dns.to_vec(), vec![bind(below, 3, "app")]].concat());
    (world, below)
}

#[test]
fn invalid_new_parent_is_refused() {
    let mut world = World::of(vec![role("app", &[])]);
    let (below, create) = below_web();
    world.commit(&[create]);
    let code = |deployment, parent| refusal(&world, move_below(deployment, parent)).0;
    assert_eq!(code(SYSTEM, WEB), "root_deployment");
    assert_eq!(code(WEB, SYSTEM), "already_there");
    assert_eq!([code(WEB, WEB), code(WEB, below)], ["below_itself"; 2]);
    let missing = DeploymentId(Uuid::from_u128(404));
    assert_eq!([code(missing, WEB), code(WEB, missing)], ["unknown_deployment"; 2]);
}

#[test]
fn moved_deployment_and_descendants_fit_depth_limit() {
    let mut world = World::of(Vec::new());
    let id = |n: usize| DeploymentId(Uuid::from_u128(1_000 + n as u128));
    let create = |n: usize| {
        Edit::CreateDeployment(edit::CreateDeployment {
            id: id(n),
            phantom: NodeId(Uuid::from_u128(2_000 + n as u128)),
            name: DeploymentName::parse(&format!("level-{n}")).unwrap(),
            parent: if n == 2 { SYSTEM } else { id(n - 1) },
        })
    };
    let (below, child) = below_web();
    world.commit(&(2..=MAX_LEVELS).map(create).chain([child]).collect::<Vec<_>>());
    // Web has a child, so its own level is at most the last but one.
    assert_eq!(world.effects(&[move_below(WEB, id(MAX_LEVELS - 2))]).refused, []);
    assert_eq!(refusal(&world, move_below(WEB, id(MAX_LEVELS - 1))).0, "tree_too_deep");
    assert_eq!(world.effects(&[move_below(below, id(MAX_LEVELS - 1))]).refused, []);
}

#[test]
fn noderole_of_lost_ancestor_refuses_move() {
    let mut world = World::of(vec![role("app", &[]), role("other", &[])]);
    let (below, create) = below_web();
    let down = Edit::MoveNode(edit::MoveNode { node: node(1), deployment: below });
    world.commit(&[create, bind(below, 1, "app"), down, bind(WEB, 1, "other")][..2]);
    world.commit(&[bind(WEB, 1, "other")]);
    let (code, reason) = refusal(&world, move_below(below, EDGE));
    assert_eq!(code, "would_leave_behind");
    assert!(
        reason
            .starts_with("Node n1 has other of deployment web, so deployment below can only move"),
        "{reason}"
    );
    // With web above it, nothing is lost.
    assert_eq!(world.effects(&[move_below(WEB, EDGE)]).refused, []);
    let unbind = Edit::Unbind(edit::Unbind {
        node: node(1),
        noderole: NoderoleKey::first(name("other")),
        with_dependents: false,
    });
    assert_eq!(world.effects(&[unbind, move_below(below, EDGE)]).refused, []);
}

#[test]
fn noderoles_wait_for_parents_above_new_place() {
    let (mut world, below) = app_below_web();
    let parents = |world: &World| {
        let app = &world.blueprint.nodes[&node(3)].doc.noderoles[&NoderoleKey::first(name("app"))];
        app.parents.iter().map(|edge| edge.parent).collect::<Vec<_>>()
    };
    let dns = |n| NoderoleKey::first(name("dns")).id(node(n));
    assert_eq!(parents(&world), [dns(1)]);

    let (code, reason) = refusal(&world, move_below(below, SYSTEM));
    assert_eq!(code, "not_bound_above");
    assert_eq!(
        reason,
        "Deployment below cannot move below system: app on n3 requires dns, which is bound neither \
         in below nor in system or above it. First bind dns in one of these deployments"
    );
    let effects = world.effects(&[bind(SYSTEM, 4, "dns"), move_below(below, SYSTEM)]);
    assert_eq!((effects.refused, effects.bound.len()), (vec![], 1));

    let effects = world.commit(&[move_below(below, EDGE)]);
    assert_eq!((effects.bound, effects.rewired.len()), (vec![], 1));
    assert_eq!(parents(&world), [dns(2)]);
    assert_eq!(world.blueprint.deployments[&below].doc.parent, Some(EDGE));
    assert_eq!(world.effects(&[]), Effects::default());
}

#[test]
fn parent_above_is_unchanged() {
    let (mut world, below) = app_below_web();
    // Edge moves below web, so both dns are above.
    let effects = world.commit(&[move_below(EDGE, WEB), move_below(below, EDGE)]);
    assert_eq!((effects.rewired, effects.moved_deployments.len()), (vec![], 2));
}

#[test]
fn move_there_and_back_has_no_effects() {
    let (world, below) = app_below_web();
    let effects = world.effects(&[move_below(below, EDGE), move_below(below, WEB)]);
    assert_eq!(effects, Effects::default());
}

#[test]
fn moved_new_deployments_are_listed_parents_first() {
    let world = World::of(Vec::new());
    let (below, create) = below_web();
    let new = |n: u128, label: &str, parent| {
        Edit::CreateDeployment(edit::CreateDeployment {
            id: DeploymentId(Uuid::from_u128(n)),
            phantom: NodeId(Uuid::from_u128(n + 1)),
            name: DeploymentName::parse(label).unwrap(),
            parent,
        })
    };
    let other = DeploymentId(Uuid::from_u128(0xa0));
    let edits =
        [create, new(0xb0, "child", below), new(0xa0, "other", SYSTEM), move_below(below, other)];
    let effects = world.effects(&edits);
    let names: Vec<&str> = effects.deployments.iter().map(|new| new.name.as_str()).collect();
    assert_eq!((names, effects.refused), (vec!["other", "below", "child"], vec![]));
    assert_eq!((effects.deployments[1].parent, effects.moved_deployments), (other, vec![]));
}

#[test]
fn moved_deployment_adopts_inherited_versions() {
    let mut world = World::of(Vec::new());
    let first = barclamp(&mut world, "tool", "1", &["app"]);
    let second = barclamp(&mut world, "tool", "2", &["app"]);
    let (below, create) = below_web();
    world.commit(&[create, use_in(WEB, &first), bind(below, 1, "app")]);
    let (code, reason) = refusal(&world, move_below(below, EDGE));
    assert_eq!(code, "barclamp_in_use");
    assert_eq!(
        reason,
        "No deployment above below after the move (edge, system) uses barclamp tool, and \
         deployment below has its role app. First use tool in below or in edge"
    );

    let before = world.blueprint.clone();
    let effects = world.commit(&[use_in(EDGE, &second), move_below(below, EDGE)]);
    let repinned: Vec<_> = effects.repinned.iter().map(|r| (r.deployment, r.node)).collect();
    assert_eq!(repinned, [(below, None), (below, Some(node(1)))]);
    let documents = changes(&before.root(), &world.blueprint.root());
    let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
    assert!(matches!(work.steps.as_slice(), [step] if matches!(step.change, StepChange::Rerun(_))));
    // With a version of its own, nothing changes.
    let effects = world.commit(&[use_in(below, &second), move_below(below, WEB)]);
    assert_eq!(effects.repinned, []);
}

#[test]
fn move_cannot_make_role_name_ambiguous() {
    let mut world = World::of(Vec::new());
    let first = barclamp(&mut world, "first", "1", &["app"]);
    let second = barclamp(&mut world, "second", "1", &["app"]);
    let (below, create) = below_web();
    world.commit(&[create, use_in(below, &first), use_in(EDGE, &second)]);
    let (code, reason) = refusal(&world, move_below(below, EDGE));
    assert_eq!(code, "duplicate_role");
    assert!(reason.contains("deployment below would see both"), "{reason}");
    // A move of web, which has no versions of its own, also moves its child.
    assert_eq!(refusal(&world, move_below(WEB, EDGE)).0, "duplicate_role");
    // The later of two conflicting edits is at fault.
    let effects = world.effects(&[move_below(below, SYSTEM), use_in(SYSTEM, &second)]);
    assert_eq!(effects.refused.iter().map(|r| r.edit).collect::<Vec<_>>(), [2]);
    let other = barclamp(&mut world, "third", "1", &["app"]);
    let effects = world.effects(&[move_below(EDGE, below), use_in(below, &other)]);
    assert_eq!(effects.refused.iter().map(|r| r.edit).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn base_of_move_covers_both_places() {
    let (mut world, below) = app_below_web();
    let child = DeploymentId(Uuid::from_u128(0xa0));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: child,
        phantom: NodeId(Uuid::from_u128(0xa1)),
        name: DeploymentName::parse("child").unwrap(),
        parent: below,
    });
    world.commit(&[create]);
    let (before, skeleton) = (world.blueprint.clone(), world.skeleton());
    let edit = move_below(below, EDGE);
    let covers = |scope: DeploymentId| ScopeChecker::new(&skeleton, scope).covers(&edit);
    assert_eq!([below, WEB, EDGE, child].map(covers), [true, true, false, false]);
    let effects = world.commit(&[edit]);
    let rests_on = base(&skeleton, below, &effects);
    assert_eq!(rests_on, [SYSTEM, WEB, EDGE, below, child].into());
    let documents = changes(&before.root(), &world.blueprint.root());
    let written = written(&before, &world.blueprint, &documents);
    assert_eq!(written, [WEB, EDGE, below].into());
    assert_eq!(outside(&skeleton, &rests_on, &written), BTreeSet::new());
}
