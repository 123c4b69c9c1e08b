//! The impact of a change.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::anneal::StepState;
use engine::blueprint::impact::{self, Impact, Loss, Planned, placed, running};
use engine::blueprint::{difference, impact as of};
use engine::catalog::{ConcurrencyGroupMode, JigClass, OnChange, OnInput, Role, RunPolicy, Script};
use engine::cluster::{Connection, ConnectionChange};
use engine::gate::Risk;
use engine::ids::{
    ActionName, BarclampName, DeploymentId, DeploymentName, JigName, NodeId, StepId,
};
use engine::plan::{Edit, edit};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use crate::world::{
    Changed, EDGE, SYSTEM, WEB, World, bind, data, flagged, fqdn, in_group, key, node, rerun, role,
    role_data,
};

fn impact_of(changed: &Changed) -> Impact {
    impact_at(changed, None)
}

fn impact_at(changed: &Changed, progress: Option<impact::Progress<'_>>) -> Impact {
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    let Changed { old, new, effects, projection, .. } = changed;
    of(
        &Planned { old, new, difference: &found, projection, effects, catalog: &changed.catalog },
        progress,
    )
}

/// The waves as text: `1: base 2; 2: runtime 2, db 1 (1 at once)`.
fn order(found: &Impact) -> String {
    let group = |g: &impact::WaveGroup| {
        let limit = g
            .at_once
            .map(|n| format!(" ({n} at once{})", if g.in_chunks { ", in chunks" } else { "" }));
        let immediate = if g.immediate { "!" } else { "" };
        format!("{}{immediate} {}{}", g.role, g.nodes, limit.unwrap_or_default())
    };
    let wave = |w: &impact::Wave| {
        let groups: Vec<String> = w.groups.iter().map(group).collect();
        format!("{}: {}", w.number, groups.join(", "))
    };
    found.waves.iter().map(wave).collect::<Vec<_>>().join("; ")
}

fn chain() -> World {
    World::of(vec![
        role("base", &[]),
        role("db", &["base"]),
        role("app", &["db"]),
        role("web", &["app"]),
    ])
}

#[test]
fn new_noderoles_start_without_losses() {
    let found = impact_of(&chain().change(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]));
    let starts: Vec<String> =
        found.starts.first.iter().map(|t| format!("{}@{}", t.noderole, t.fqdn.short())).collect();
    assert_eq!(
        starts,
        ["app@n1", "app@n2", "base@n1", "db@n1"],
        "the roles that n2 requires are available on n1"
    );
    assert!([found.restarts.count, found.lost.count, found.irreversible.count] == [0, 0, 0]);
    assert!(found.downstream.is_empty() && found.risks.is_empty());
    assert_eq!(order(&found), "1: base 1; 2: db 1; 3: app 2");
}

#[test]
fn rerun_reports_reason_and_descendants() {
    let mut world = chain();
    world.commit(&[bind(WEB, 1, "web"), bind(WEB, 2, "web"), bind(EDGE, 3, "web")]);
    let changed = world.change(&[rerun(1, "base"), role_data(WEB, "web", json!({"a": 1}))]);
    let found = impact_of(&changed);
    let restarts: Vec<String> = found
        .restarts
        .first
        .iter()
        .map(|r| format!("{}@{} {:?}", r.touched.noderole, r.touched.fqdn.short(), r.cause))
        .collect();
    assert_eq!(restarts, ["base@n1 Requested", "web@n1 DataChanged", "web@n2 DataChanged"]);
    assert_eq!(found.restarts.first[0].reason.as_deref(), Some("the disk was replaced"));
    assert_eq!(found.risks, [Risk::Rerun].into());
    let below: Vec<(&str, usize)> =
        found.downstream.iter().map(|d| (d.deployment.as_str(), d.noderoles.count)).collect();
    assert_eq!(
        below,
        [("web", 2)],
        "app and db of n1 are counted, without the step that runs again itself"
    );
    assert_eq!(
        order(&found),
        "1: base 1, web 1; 2: web 1",
        "two steps of n1 are in different waves"
    );

    let (old, new) = (&changed.old, &changed.new);
    let shown = difference(old, new, &changed.changes).unwrap();
    let planned = Planned {
        old,
        new,
        difference: &shown,
        projection: &changed.projection,
        effects: &changed.effects,
        catalog: &changed.catalog,
    };
    let step = |n: u128, name: &str| StepId::run_of(key(name).id(node(n)));
    let active: BTreeSet<StepId> = [step(1, "base"), step(1, "db")].into();
    let now = of(&planned, Some(&|id| active.contains(&id).then_some(StepState::Active)));
    assert_eq!(
        now.restarts.first.iter().map(|r| r.in_use).collect::<Vec<_>>(),
        [Some(true), Some(false), Some(false)]
    );
    assert_eq!((now.downstream[0].noderoles.count, now.downstream[0].in_use), (2, Some(1)));
    assert_eq!((now.nodes, now.interrupted, now.lost_in_use), (2, Some(1), Some(0)));
    assert_eq!(
        (found.interrupted, found.lost_in_use),
        (None, None),
        "without step states, the impact does not know which steps are in use"
    );
    let later = of(&planned, Some(&|id| (id == step(2, "web")).then_some(StepState::Active)));
    assert_eq!(later.restarts.first[0].touched.fqdn, fqdn(2), "interrupted steps come first");
}

#[test]
fn wave_reports_its_dependencies() {
    let found = impact_of(&chain().change(&[bind(WEB, 1, "web")]));
    assert!(found.waves.iter().all(|wave| wave.groups[0].first == [fqdn(1)]));
    let after = |n: usize| -> Vec<(u32, String)> {
        found.waves[n].groups[0].after.first.iter().map(|a| (a.wave, a.role.to_string())).collect()
    };
    assert_eq!(
        (after(0), after(1), after(2)),
        (vec![], vec![(1, "base".into())], vec![(2, "db".into())])
    );
    let alone = impact_of(
        &World::of(vec![role("one", &[]), role("two", &[])])
            .change(&[bind(WEB, 1, "one"), bind(WEB, 1, "two")]),
    );
    assert_eq!(order(&alone), "1: one 1; 2: two 1");
    assert_eq!(
        alone.waves.iter().map(|w| w.groups[0].queued).collect::<Vec<_>>(),
        [0, 1],
        "a node runs one step at a time"
    );
    assert_eq!(alone.waves[1].groups[0].after.count, 0);
}

#[test]
fn huge_change_is_counted() {
    let mut world = World { nodes: 500, ..chain() };
    let all: Vec<Edit> = (1..=500).map(|n| bind(WEB, n, "web")).collect();
    let found = impact_of(&world.change(&all));
    let listed = impact::MAX_LIST_ITEMS;
    assert_eq!((found.starts.count, found.starts.first.len(), found.nodes), (503, listed, 500));
    assert_eq!(found.starts.more(), 303);
    let last = &found.waves.last().unwrap().groups[0];
    assert_eq!((last.nodes, last.first.len()), (500, impact::NAMED));
    world.commit(&all);
    let changed = world.change(&[rerun(1, "base")]);
    let found = impact_of(&changed);
    assert_eq!(found.downstream[0].noderoles.count, 502);
    assert_eq!(found.downstream[0].noderoles.first.len(), listed);
}

#[test]
fn removed_noderoles_are_named() {
    let mut world = chain();
    world.commit(&[
        bind(WEB, 1, "web"),
        bind(WEB, 2, "app"),
        data(1, "app", json!({"a": 1, "b": 2})),
    ]);
    let mut new = world.with_node(1, |doc| {
        doc.noderoles.remove(&key("web"));
        doc.noderoles.get_mut(&key("app")).unwrap().data = json!({"b": 2});
    });
    new.nodes.remove(&node(2));
    new.deployments.remove(&EDGE);
    let found = impact_of(&world.to(new));
    assert_eq!(
        found.lost.first,
        [
            Loss::Node { fqdn: fqdn(2), noderoles: 1 },
            Loss::Deployment { name: DeploymentName::parse("edge").unwrap() },
            Loss::Noderole { noderole: key("web"), fqdn: fqdn(1) },
            Loss::Data { of: "app on n1.house.example.com".into(), paths: vec!["/a".into()] },
        ],
        "the most severe losses come first"
    );
    assert_eq!(found.risks, [Risk::Removal, Risk::Rerun].into());
}

/// No step of the role may run, but it is removed nevertheless.
#[test]
fn roles_missing_in_version_are_lost() {
    let script = |name: &str| Script {
        name: name.into(),
        hash: Hash::of_bytes(name.as_bytes()),
        action: ActionName::run(),
    };
    let with = |scripts: &[&str]| Role {
        scripts: scripts.iter().map(|name| script(name)).collect(),
        ..role("app", &[])
    };
    let mut world = World::of(vec![with(&["10-a.sh", "20-b.sh"])]);
    let barclamp = BarclampName::parse("house").unwrap();
    let version = world.import("2", vec![with(&["10-a.sh"])]);
    let (web, house) = (DeploymentName::parse("web").unwrap(), barclamp.clone());
    let using = Edit::UseBarclamp(edit::UseBarclamp {
        deployment: WEB,
        barclamp: barclamp.clone(),
        version,
    });
    let found = impact_of(&world.change(std::slice::from_ref(&using)));
    let script = "script 20-b.sh of role app".to_owned();
    assert_eq!(
        found.lost.first,
        [Loss::Content { part: script, barclamp: house, deployment: web }],
        "the inherited version had the content"
    );
    world.commit(&[using]);
    let back = impact_of(&world.change(&[Edit::InheritBarclamp(edit::InheritBarclamp {
        deployment: WEB,
        barclamp: barclamp.clone(),
    })]));
    assert_eq!(back.lost.count, 0);

    let drop = Edit::InheritBarclamp(edit::InheritBarclamp {
        deployment: SYSTEM,
        barclamp: barclamp.clone(),
    });
    let deployment = DeploymentName::parse("system").unwrap();
    assert_eq!(
        impact_of(&world.change(&[drop])).lost.first,
        [Loss::Barclamp { barclamp, deployment }]
    );
}

#[test]
fn retained_results_are_reported_without_run() {
    let keeps = |text: &str, description: &str| {
        let run = RunPolicy { on_change: OnChange::Keep, ..RunPolicy::default() };
        Role { run, description: description.into(), ..role(text, &[]) }
    };
    let mut world = World::of(vec![
        keeps("app", ""),
        keeps("own", ""),
        keeps("same", ""),
        role("runs", &["same"]),
    ]);
    world.commit(&[
        bind(WEB, 1, "app"),
        bind(WEB, 2, "app"),
        bind(WEB, 1, "own"),
        bind(WEB, 1, "runs"),
    ]);
    let retained =
        |found: &Impact| found.retained.first.iter().map(ToString::to_string).collect::<Vec<_>>();
    let changed =
        world.change(&[role_data(WEB, "app", json!({"a": 1})), data(1, "own", json!({"a": 1}))]);
    let found = impact_of(&changed);
    assert_eq!(
        (retained(&found), found.restarts.count),
        (vec!["app on n1".into(), "app on n2".into(), "own on n1".into()], 0)
    );
    // A step without an applied result has nothing to retain: its next run uses the new data.
    for state in StepState::ALL {
        let first = StepId::run_of(key("app").id(node(1)));
        let found = impact_at(
            &changed,
            Some(&|step| Some(if step == first { StepState::Active } else { state })),
        );
        let others = if state == StepState::Active {
            vec!["app on n2".into(), "own on n1".into()]
        } else {
            Vec::new()
        };
        assert_eq!(retained(&found), [vec!["app on n1".to_owned()], others].concat(), "{state}");
    }
    assert_eq!(impact_at(&changed, Some(&|_| None)).retained.count, 0);
    let all = vec![keeps("app", "newer"), keeps("own", ""), keeps("same", ""), role("runs", &[])];
    let version = world.import("2", all);
    let using = Edit::UseBarclamp(edit::UseBarclamp {
        deployment: SYSTEM,
        barclamp: BarclampName::parse("house").unwrap(),
        version,
    });
    let found = impact_of(&world.change(&[using]));
    let again: Vec<String> =
        found.restarts.first.iter().map(|restart| restart.touched.to_string()).collect();
    assert_eq!(
        (retained(&found), again),
        (vec!["app on n1".into(), "app on n2".into()], vec!["runs on n1".to_owned()])
    );
    assert_eq!(
        impact_of(&world.change(&[rerun(1, "app"), data(1, "app", json!({"a": 1}))]))
            .retained
            .count,
        0,
        "a requested run is not counted as retained"
    );
}

#[test]
fn destructive_steps_are_irreversible() {
    let wipe = flagged(role("wipe", &[]), |flags| flags.destructive = true);
    let found = impact_of(&World::of(vec![wipe]).change(&[bind(WEB, 1, "wipe")]));
    assert_eq!(found.irreversible.count, 1);
    assert_eq!(found.risks, [Risk::Destructive].into());
}

#[test]
fn sideways_move_is_risk_unlike_move_down() {
    let mut world = chain();
    let blue = DeploymentId(Uuid::from_u128(9));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: blue,
        phantom: NodeId(Uuid::from_u128(99)),
        name: DeploymentName::parse("blue").unwrap(),
        parent: WEB,
    });
    world.commit(&[create, bind(WEB, 1, "base")]);
    let to = |deployment| {
        impact_of(&world.change(&[Edit::MoveNode(edit::MoveNode { node: node(1), deployment })]))
            .risks
    };
    assert_eq!(to(blue), [].into());
    // A deployment that moves down counts too: other ancestors grant permissions.
    let down = Edit::MoveDeployment(edit::MoveDeployment { deployment: EDGE, parent: WEB });
    assert_eq!(impact_of(&world.change(&[down])).risks, [Risk::Move].into());
    let moved = world.with_node(1, |doc| doc.deployment = EDGE);
    assert_eq!(impact_of(&world.to(moved)).risks, [Risk::Move].into());
}

#[test]
fn changed_connection_is_a_risk() {
    let mut world = chain();
    world.commit(&[bind(WEB, 1, "base")]);
    let old = Connection::Local { root: "/srv/n1".into() };
    world.blueprint = world.with_node(1, |doc| doc.connection = Some(old.clone()));
    let connection =
        ConnectionChange { root: Some("/srv/other".into()), ..ConnectionChange::default() };
    let changed =
        world.change(&[Edit::SetConnection(edit::SetConnection { node: node(1), connection })]);
    assert_eq!(impact_of(&changed).risks, [Risk::Connection].into());
    let hints = world
        .change(&[Edit::SetHints(edit::SetHints { node: node(1), hints: json!({"rack": 7}) })]);
    assert_eq!(impact_of(&hints).risks, [].into());
    let first = world.change(&[bind(WEB, 2, "base")]);
    assert_eq!(
        impact_of(&first).risks,
        [].into(),
        "the first document of a node does not change its connection"
    );
}

#[test]
fn waves_show_immediate_steps_and_concurrency() {
    let milestone = Role {
        jig_class: JigClass::Noop,
        ..flagged(role("gate", &["base"]), |f| f.milestone = true)
    };
    let first = flagged(role("first", &[]), |f| f.milestone = true);
    let roles = vec![
        role("base", &["first"]),
        first,
        milestone,
        in_group(role("app", &["gate"]), 2, ConcurrencyGroupMode::Chunk),
        in_group(role("few", &["gate"]), 5, ConcurrencyGroupMode::Chunk),
    ];
    let mut edits: Vec<Edit> = (1..=5).map(|n| bind(WEB, n, "app")).collect();
    edits.push(bind(WEB, 6, "few"));
    let found = impact_of(&World::of(roles).change(&edits));
    assert_eq!(
        order(&found),
        "0: first! 1; 1: base 1, gate! 1; 2: app 5 (2 at once, in chunks), few 1"
    );
    assert_eq!(
        found.waves.iter().map(|w| (w.runs, w.immediate)).collect::<Vec<_>>(),
        [(0, 1), (1, 1), (6, 0)]
    );
    assert_eq!(found.wave_count(), 2, "an immediate step has no wave of its own");
}

#[test]
fn phantom_is_not_counted_as_node() {
    let member = flagged(role("member", &[]), |f| f.cluster = true);
    let mut world = World::of(vec![member, role("app", &["member"])]);
    let made = DeploymentId(Uuid::from_u128(60));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: made,
        phantom: NodeId(Uuid::from_u128(61)),
        name: DeploymentName::parse("made").unwrap(),
        parent: WEB,
    });
    let edits = [create, bind(made, 1, "member"), bind(made, 2, "app")];
    let found = impact_of(&world.change(&edits));
    assert_eq!(
        (found.starts.count, found.nodes),
        (3, 2),
        "the barrier of the cluster is on no real node"
    );
    let groups = found.waves.iter().flat_map(|wave| &wave.groups);
    let whole: Vec<_> =
        groups.filter(|group| group.is_phantom()).map(|group| group.role.as_str()).collect();
    assert_eq!(whole, ["member.all"]);

    // A removed deployment is reported once, not also as a phantom node.
    world.commit(&edits[..1]);
    let gone = impact_of(
        &world.change(&[Edit::RemoveDeployment(edit::RemoveDeployment { deployment: made })]),
    );
    assert!(matches!(gone.lost.first.as_slice(), [Loss::Deployment { .. }]), "{:?}", gone.lost);
    assert_eq!(gone.nodes, 0);
}

#[test]
fn unbound_barrier_member_makes_balancer_follow_up() {
    let member = flagged(role("member", &[]), |f| f.cluster = true);
    let mut world = World::of(vec![member, role("balancer", &["member"])]);
    let made = DeploymentId(Uuid::from_u128(60));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: made,
        phantom: NodeId(Uuid::from_u128(61)),
        name: DeploymentName::parse("made").unwrap(),
        parent: WEB,
    });
    let members = [bind(made, 1, "member"), bind(made, 2, "member")];
    world.commit(&[&[create][..], &members, &[bind(made, 3, "balancer")]].concat());
    let unbind = edit::Unbind { node: node(2), noderole: key("member"), with_dependents: false };
    let found = impact_of(&world.change(&[Edit::Unbind(unbind)]));
    assert_eq!(found.wave_count(), 0, "the change itself runs nothing");
    let follow_ups = found.follow_ups().flat_map(|group| &group.noderoles.first);
    let follow_ups: Vec<String> = follow_ups
        .map(|touched| format!("{}@{}", touched.noderole, touched.fqdn.short()))
        .collect();
    assert_eq!(follow_ups, ["balancer@n3"]);
}

#[test]
fn destructive_dependent_is_reported_and_never_follows_up() {
    let wipe = flagged(role("wipe", &["base"]), |f| f.destructive = true);
    let mut world = World::of(vec![role("base", &[]), wipe]);
    world.commit(&[bind(WEB, 1, "base"), bind(WEB, 1, "wipe")]);
    let rerun = edit::Rerun { node: node(1), noderole: key("base"), reason: "drift".into() };
    let found = impact_of(&world.change(&[Edit::Rerun(rerun)]));
    assert_eq!(found.follow_ups().count(), 0);
    let [group] = found.downstream.as_slice() else { panic!("{:?}", found.downstream) };
    assert_eq!((group.on_input, group.noderoles.count), (OnInput::Report, 1));
}

#[test]
fn switching_jig_off_is_risk() {
    let mut world = chain();
    let switch = |active| {
        Edit::ActivateJig(edit::ActivateJig { jig: JigName::parse("noop").unwrap(), active })
    };
    assert_eq!(impact_of(&world.change(&[switch(false)])).risks, [Risk::Halt].into());
    world.commit(&[switch(false)]);
    assert_eq!(impact_of(&world.change(&[switch(true)])).risks, [].into());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// After any bindings, each step that runs is in one wave, after all its parents. No wave has
    /// two exclusive steps of one node, and each step is counted once.
    #[test]
    fn waves_respect_edges(
        wires in prop::collection::vec((1usize..8, 0usize..8), 0..14),
        shared in prop::collection::vec(any::<bool>(), 8),
        immediate in prop::collection::vec(any::<bool>(), 8),
        drops in prop::collection::btree_set((1u128..5, 0usize..8), 1..14),
    ) {
        let roles = (0..8).map(|n| {
            let requires: BTreeSet<String> =
                wires.iter().filter(|(child, parent)| *child == n && parent < child).map(|(_, p)| format!("r{p}")).collect();
            let requires: Vec<&str> = requires.iter().map(String::as_str).collect();
            let made = flagged(role(&format!("r{n}"), &requires), |f| f.milestone = immediate[n]);
            Role { run: RunPolicy { exclusive: !shared[n], ..made.run.clone() }, ..made }
        });
        let mut world = World::of(roles.collect());
        for (n, r) in &drops {
            if !world.blueprint.nodes.get(&node(*n)).is_some_and(|d| d.doc.noderoles.contains_key(&key(&format!("r{r}")))) {
                let empty = World { blueprint: world.blueprint.clone(), ..world.clone() };
                world.blueprint = empty.change(&[bind(WEB, *n, &format!("r{r}"))]).new;
            }
        }
        let all = world.blueprint.clone();
        let start = World { blueprint: World::of(vec![]).blueprint, ..world };
        let mut new = all;
        for id in [WEB, EDGE] {
            new.deployments.entry(id).or_insert_with(|| start.blueprint.deployments[&id].clone());
        }
        let changed = start.to(new);
        let found = impact_of(&changed);
        let waves = placed(&changed.projection);
        let mut exclusive = BTreeSet::new();
        let steps: BTreeMap<StepId, _> = running(&changed.projection).map(|s| (s.id, s)).collect();
        for (id, step) in &steps {
            let wave = waves[id];
            for (parent, _) in step.parents.iter().filter(|(parent, _)| steps.contains_key(parent)) {
                prop_assert!(wave > waves[parent] || (step.immediate && wave == waves[parent]));
            }
            prop_assert!(step.immediate || wave > 0);
            prop_assert!(step.immediate || !step.run.exclusive || exclusive.insert((step.node, wave)));
        }
        prop_assert_eq!(found.waves.iter().map(|w| w.runs + w.immediate).sum::<usize>(), steps.len());
        prop_assert_eq!(found.starts.count, steps.len());
    }
}
