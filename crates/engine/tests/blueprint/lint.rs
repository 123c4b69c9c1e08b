//! For each check of lint, a change that triggers it and one that does not.

use std::collections::{BTreeMap, BTreeSet};

use engine::blueprint::impact::Planned;
use engine::blueprint::{difference, impact};
use engine::catalog::{Attrib, ConcurrencyGroupMode, JigClass, OnInput, Role, RunPolicy, Script};
use engine::cluster::{EdgeDoc, EdgeKind, NodeDoc, Skeleton};
use engine::data::secret::{Descriptor, KnownSecret};
use engine::gate::{Policy, Risk};
use engine::ids::{
    AttribName, BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, PersonId,
};
use engine::lint::{
    Finding, Level, LintCheck, MAX_FINDINGS_PER_CHECK, Reviewers, Subject, errors, lint,
};
use engine::plan::{Edit, edit};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{
    Changed, EDGE, SYSTEM, WEB, World, bind, data, flagged, in_group, key, name, node, rerun, role,
    role_data,
};

fn findings_with(
    world: &World,
    changed: &Changed,
    jigs: &[(&str, bool)],
    policy: Option<(&Policy, &Policy)>,
) -> Vec<Finding> {
    findings_among(world, changed, jigs, policy, Reviewers { all: 20, others: 20 })
}

fn findings_among(
    world: &World,
    changed: &Changed,
    jigs: &[(&str, bool)],
    policy: Option<(&Policy, &Policy)>,
    reviewers: Reviewers,
) -> Vec<Finding> {
    findings_knowing(world, changed, jigs, policy, reviewers, None)
}

/// The findings, given the secrets that workers report.
fn findings_knowing(
    world: &World,
    changed: &Changed,
    jigs: &[(&str, bool)],
    policy: Option<(&Policy, &Policy)>,
    reviewers: Reviewers,
    secrets: Option<&BTreeMap<String, KnownSecret>>,
) -> Vec<Finding> {
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    let Changed { old, new, effects, projection, .. } = changed;
    let planned =
        Planned { old, new, difference: &found, projection, effects, catalog: &world.catalog };
    let skeleton = Skeleton::of(old, [], &world.catalog).unwrap();
    let rank = |id| {
        let (node, key) = skeleton.location(id)?;
        Some(skeleton.nodes[node].noderoles[key].rank)
    };
    let jigs: BTreeMap<JigName, bool> =
        jigs.iter().map(|(jig, on)| (JigName::parse(jig).unwrap(), *on)).collect();
    let subject = Subject {
        planned,
        catalog: &world.catalog,
        jigs: &jigs,
        secrets,
        rank: &rank,
        policy,
        reviewers,
    };
    let all = lint(&subject, &impact(&planned, None));
    let only = errors(&subject);
    let of_all: Vec<&Finding> = all.iter().filter(|f| f.level == Level::Error).collect();
    assert_eq!(
        only.iter().collect::<Vec<_>>(),
        of_all,
        "the commit must find the same as the review"
    );
    assert!(all.iter().all(|f| f.level == f.check.level()
        && !f.at.is_empty()
        && !f.problem.is_empty()
        && !f.remedy.is_empty()));
    all
}

fn findings(world: &World, changed: &Changed) -> Vec<Finding> {
    findings_with(world, changed, &[], None)
}

/// Checks for a finding of this check and ignores findings of others.
#[track_caller]
fn trips(world: &World, changed: &Changed, check: LintCheck, part: &str) {
    let all = findings(world, changed);
    let found = all
        .iter()
        .find(|f| f.check == check)
        .unwrap_or_else(|| panic!("check {} is missing in {all:?}", check.id()));
    assert!(found.to_string().contains(part), "{found}");
}

#[track_caller]
fn passes(world: &World, changed: &Changed, check: LintCheck) {
    let all = findings(world, changed);
    assert!(all.iter().all(|f| f.check != check), "{all:?}");
}

fn group_of(limit: u32) -> Role {
    in_group(role("app", &[]), limit, ConcurrencyGroupMode::Rolling)
}

fn using(deployment: DeploymentId, version: engine::Hash) -> Edit {
    Edit::UseBarclamp(edit::UseBarclamp {
        deployment,
        barclamp: BarclampName::parse("house").unwrap(),
        version,
    })
}

#[test]
fn check_ids_are_unique() {
    let ids: BTreeSet<&str> = LintCheck::ALL.iter().map(|check| check.id()).collect();
    assert_eq!(ids.len(), LintCheck::ALL.len());
    for check in LintCheck::ALL {
        assert_eq!(serde_json::to_value(check).unwrap(), check.id());
    }
    assert!(LintCheck::ALL.is_sorted_by_key(|check| check.level()), "errors come before warnings");
}

#[test]
fn plain_change_has_no_findings() {
    let world = World::of(vec![role("base", &[]), role("app", &["base"])]);
    assert_eq!(findings(&world, &world.change(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")])), []);
}

#[test]
fn existing_problems_do_not_block_change() {
    let rival = Role { conflicts: [name("app")].into(), ..role("rival", &[]) };
    let mut world = World::of(vec![role("app", &[]), rival]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "rival")]);
    world.blueprint = world.with_node(1, |doc| {
        let other = world.blueprint.nodes[&node(2)].doc.noderoles[&key("rival")].clone();
        doc.noderoles.insert(key("rival"), other);
    });
    assert_eq!(findings(&world, &world.change(&[bind(WEB, 3, "app")])), []);
}

#[test]
fn conflicting_roles_are_errors() {
    let rival = Role { conflicts: [name("app")].into(), ..role("rival", &[]) };
    let mut world = World::of(vec![role("app", &[]), rival]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "rival")]);
    let rival = world.blueprint.nodes[&node(2)].doc.noderoles[&key("rival")].clone();
    let both = world.with_node(1, |doc| drop(doc.noderoles.insert(key("rival"), rival.clone())));
    trips(
        &world,
        &world.to(both),
        LintCheck::ConflictingRoles,
        "The role conflicts with app, which is on the same node",
    );
    passes(
        &world,
        &world.change(&[bind(WEB, 3, "rival"), bind(WEB, 4, "app")]),
        LintCheck::ConflictingRoles,
    );
}

#[test]
fn abstract_role_is_error() {
    let mut world = World::of(vec![role("store", &[])]);
    world.commit(&[bind(WEB, 1, "store")]);
    let hash = world.import("2", vec![flagged(role("store", &[]), |f| f.is_abstract = true)]);
    let content = world.catalog.barclamp(hash).unwrap().roles[&name("store")];
    let new = world.with_noderole(1, "store", |noderole| noderole.role = content);
    trips(
        &world,
        &world.to(new),
        LintCheck::AbstractRole,
        "store on n1.house.example.com: The role is abstract",
    );
    passes(&world, &world.change(&[bind(WEB, 2, "store")]), LintCheck::AbstractRole);
}

#[test]
fn noderole_outside_tree_is_error() {
    let mut world = World::of(vec![role("app", &[])]);
    world.commit(&[bind(WEB, 1, "app"), bind(SYSTEM, 2, "app")]);
    let moved = world.with_node(1, |doc| doc.deployment = EDGE);
    trips(
        &world,
        &world.to(moved),
        LintCheck::NodeOutsideDeployment,
        "bound in web, but its node would be in edge",
    );
    passes(
        &world,
        &world.change(&[Edit::MoveNode(edit::MoveNode { node: node(2), deployment: EDGE })]),
        LintCheck::NodeOutsideDeployment,
    );
}

#[test]
fn broken_order_is_error() {
    let mut world = World::of(vec![role("base", &[]), role("app", &["base"])]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]);
    let nothing = EdgeDoc { parent: key("gone").id(node(1)), kind: EdgeKind::Hard };
    let dangling = world.with_noderole(1, "app", |noderole| noderole.parents.push(nothing));
    trips(&world, &world.to(dangling), LintCheck::BrokenOrder, "a noderole that will not exist");
    let later = EdgeDoc { parent: key("app").id(node(2)), kind: EdgeKind::OrderOnly };
    let circle = world.with_noderole(1, "base", |noderole| noderole.parents.push(later));
    trips(&world, &world.to(circle), LintCheck::BrokenOrder, "the order has a cycle");
    let left = world.with_node(1, |doc| drop(doc.noderoles.remove(&key("base"))));
    trips(
        &world,
        &world.to(left),
        LintCheck::BrokenOrder,
        "The noderole waits for a noderole that \
                                                        will be removed",
    );
    passes(&world, &world.change(&[bind(WEB, 3, "app"), rerun(1, "base")]), LintCheck::BrokenOrder);
}

#[test]
fn soft_edge_against_hard_is_warning() {
    let fine = Role { preceeds: [name("app")].into(), ..role("other", &[]) };
    let mut world =
        World::of(vec![role("base", &[]), role("mid", &["base"]), role("app", &["mid"]), fine]);
    world.commit(&[bind(WEB, 1, "app")]);
    // Planning refuses the cycle when binding, but a noderole's pin can still create one.
    let hash =
        world.import("2", vec![Role { preceeds: [name("base")].into(), ..role("app", &["mid"]) }]);
    let against = world.catalog.barclamp(hash).unwrap().roles[&name("app")];
    let new = world.with_noderole(1, "app", |noderole| noderole.role = against);
    trips(
        &world,
        &world.to(new),
        LintCheck::ContradictingEdges,
        "precedes base, but the noderole waits for it",
    );
    passes(&world, &world.change(&[bind(WEB, 2, "other")]), LintCheck::ContradictingEdges);
}

#[test]
fn unknown_or_inactive_jig_is_error() {
    let mut world = World::of(vec![role("app", &[])]);
    let plain = world.change(&[bind(WEB, 1, "app")]);
    let off = findings_with(&world, &plain, &[("noop", false)], None);
    assert_eq!((off.len(), off[0].check), (1, LintCheck::InactiveJig));
    assert!(off[0].remedy.contains("Turn jig noop on"), "{}", off[0]);
    assert_eq!(findings_with(&world, &plain, &[("noop", true), ("other", false)], None), []);

    let switch = |active| {
        Edit::ActivateJig(edit::ActivateJig { jig: JigName::parse("noop").unwrap(), active })
    };
    let mut without = world.clone();
    without.commit(&[switch(false)]);
    let together = without.change(&[switch(true), bind(WEB, 1, "app")]);
    assert_eq!(
        findings_with(&without, &together, &[("noop", false)], None),
        [],
        "the same change enables the jig"
    );

    world.commit(&[bind(WEB, 1, "app")]);
    let hash = world
        .import("2", vec![Role { jig_class: JigClass::Other("chef".into()), ..role("app", &[]) }]);
    let content = world.catalog.barclamp(hash).unwrap().roles[&name("app")];
    let cooked = world.with_noderole(1, "app", |noderole| noderole.role = content);
    trips(&world, &world.to(cooked), LintCheck::UnknownJig, "class chef, which no worker supports");
    passes(&world, &plain, LintCheck::UnknownJig);
}

#[test]
fn zero_timeout_is_error() {
    let hasty =
        Role { run: RunPolicy { timeout: 0, ..RunPolicy::default() }, ..role("hasty", &[]) };
    let world = World::of(vec![hasty, role("app", &[])]);
    trips(
        &world,
        &world.change(&[bind(WEB, 1, "hasty")]),
        LintCheck::ZeroTimeout,
        "has a timeout of 0",
    );
    passes(&world, &world.change(&[bind(WEB, 1, "app")]), LintCheck::ZeroTimeout);
}

#[test]
fn script_role_without_scripts_is_found() {
    let script = |name: &str| Role { jig_class: JigClass::Script, ..role(name, &[]) };
    let lines = |name: &str, action: &str| Script {
        name: name.into(),
        hash: engine::canonical::hash(&name).unwrap(),
        action: action.parse().unwrap(),
    };
    let removed = Role { scripts: vec![lines("remove/10-stop", "remove")], ..script("removed") };
    let ran = Role { scripts: vec![lines("10-start", "run")], ..script("ran") };
    let world = World::of(vec![script("imported"), removed, ran, role("app", &[])]);
    let bound = |name: &str| world.change(&[bind(WEB, 1, name), bind(WEB, 2, name)]);
    let text = "imported in web: The role has no scripts, so 2 steps would become ACTIVE";
    trips(&world, &bound("imported"), LintCheck::NothingToRun, text);
    trips(&world, &bound("removed"), LintCheck::NothingToRun, "no scripts");
    passes(&world, &bound("ran"), LintCheck::NothingToRun);
    passes(&world, &bound("app"), LintCheck::NothingToRun);
}

#[test]
fn unrequested_or_retried_destruction_is_found() {
    let wipe = flagged(role("wipe", &[]), |f| f.destructive = true);
    let stubborn = Role {
        run: RunPolicy { retries: 3, ..RunPolicy::default() },
        ..flagged(role("stubborn", &[]), |f| f.destructive = true)
    };
    let mut world = World::of(vec![wipe, stubborn]);
    trips(
        &world,
        &world.change(&[bind(WEB, 2, "stubborn")]),
        LintCheck::DestructiveRetries,
        "its 3 retries are ignored",
    );
    passes(&world, &world.change(&[bind(WEB, 1, "wipe")]), LintCheck::DestructiveRetries);
    passes(&world, &world.change(&[bind(WEB, 1, "wipe")]), LintCheck::DestructiveRerun);
    world.commit(&[bind(WEB, 1, "wipe")]);
    let silent = world.change(&[data(1, "wipe", json!({"disk": "sda"}))]);
    trips(
        &world,
        &silent,
        LintCheck::DestructiveRerun,
        "lose its data again because its data changed",
    );
    let shared = world.change(&[role_data(WEB, "wipe", json!({"disk": "sda"}))]);
    trips(&world, &shared, LintCheck::DestructiveRerun, "Add a re-run of wipe with a reason");
    let text = world.change(&[data(1, "wipe", json!({"disk": "sda"})), rerun(1, "wipe")]);
    passes(&world, &text, LintCheck::DestructiveRerun);
}

#[test]
fn schema_mismatch_is_error() {
    let port = Attrib {
        name: AttribName::parse("app-port").unwrap(),
        map: vec!["app".into(), "port".into()],
        description: String::new(),
        default: None,
        schema: Some(json!({"type": "int", "range": {"max": 65535}, "required": true})),
    };
    let mut world = World::of(vec![Role { attribs: vec![port], ..role("app", &[]) }]);
    world.commit(&[bind(WEB, 1, "app")]);
    let own = |value: Value| world.change(&[data(1, "app", json!({"app": {"port": value}}))]);
    trips(
        &world,
        &own(json!("http")),
        LintCheck::BrokenSchema,
        "/app/port is a string, but must be an integer",
    );
    trips(&world, &own(json!(70000)), LintCheck::BrokenSchema, "/app/port must be at most 65535");
    let shared = world.change(&[role_data(WEB, "app", json!({"app": {"port": true}}))]);
    trips(
        &world,
        &shared,
        LintCheck::BrokenSchema,
        "Change it to match the schema of attribute \
                                                 app-port",
    );
    let away = "Value /app/port is required, but a null removes it";
    trips(&world, &own(json!(null)), LintCheck::BrokenSchema, away);
    trips(
        &world,
        &world.change(&[data(1, "app", json!({"app": null}))]),
        LintCheck::BrokenSchema,
        away,
    );
    passes(&world, &own(json!(8080)), LintCheck::BrokenSchema);
    passes(
        &world,
        &world.change(&[data(1, "app", json!({"app": {"other": "x"}}))]),
        LintCheck::BrokenSchema,
    );
}

#[test]
fn plain_text_secret_is_found() {
    let mut world = World::of(vec![role("app", &[])]);
    world.commit(&[bind(WEB, 1, "app")]);
    let own = |value: Value| world.change(&[data(1, "app", value)]);
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----";
    trips(
        &world,
        &own(json!({"tls": [{"pem": pem}]})),
        LintCheck::PlainSecret,
        "/tls/0/pem contains a private key",
    );
    let token = format!("ghp_{}", "a1".repeat(18));
    let shared = world.change(&[role_data(WEB, "app", json!({"env": format!("TOKEN={token}")}))]);
    trips(
        &world,
        &shared,
        LintCheck::PlainSecret,
        "app in web: Value /env contains an access token",
    );
    assert!(
        !serde_json::to_string(&findings(&world, &shared)).unwrap().contains(&token),
        "the finding must not repeat the secret"
    );
    passes(
        &world,
        &own(json!({"tls": {"pem": "-----BEGIN CERTIFICATE-----"}, "akia": "AKIA"})),
        LintCheck::PlainSecret,
    );

    for value in [
        json!({"db_password": "x"}),
        json!({"api": {"apiKey": "x"}}),
        json!({"tokens": 1, "auth-token": ["x"]}),
    ] {
        trips(&world, &own(value), LintCheck::SecretByName, "has a name like a secret");
    }
    let secret = json!({"$secret": "db", "version": 1});
    let fine = json!({"password": secret, "token": "", "secret": "/etc/secret", "tokenizer": "fast", "password_length": 12});
    passes(&world, &own(fine), LintCheck::SecretByName);

    // No edit can write a malformed reference or one with such a name, so the test writes the
    // document directly.
    let half =
        |doc: &mut engine::cluster::NoderoleDoc| doc.data = json!({"key": {"$secret": "db"}});
    trips(
        &world,
        &world.to(world.with_noderole(1, "app", half)),
        LintCheck::BrokenReference,
        "not a complete reference",
    );
    passes(
        &world,
        &own(json!({"key": secret, "path": {"$secret": "db/admin", "version": 3}})),
        LintCheck::BrokenReference,
    );
    for name in ["../db", "/etc/passwd", "db/", "db//admin", ".hidden", "db\\admin"] {
        let refers = |doc: &mut engine::cluster::NoderoleDoc| {
            doc.data = json!({"tls": {"key": {"$secret": name, "version": 1}}});
        };
        trips(
            &world,
            &world.to(world.with_noderole(1, "app", refers)),
            LintCheck::BrokenReference,
            "app on n1.house.example.com: Value /tls/key refers to a secret with an invalid name",
        );
    }
}

#[test]
fn shared_key_is_warning() {
    let mut world = World::of(vec![role("base", &[]), role("app", &["base"]), role("other", &[])]);
    world.commit(&[
        bind(WEB, 1, "app"),
        bind(WEB, 1, "other"),
        data(1, "app", json!({"net": {"mtu": 1500}})),
    ]);
    let own = |role: &str, value: Value| world.change(&[data(1, role, value)]);
    let both = own("other", json!({"net": {"mtu": 9000}}));
    trips(&world, &both, LintCheck::SharedKey, "Noderoles app and other both set /net/mtu");
    passes(&world, &own("other", json!({"net": {"mtu": 1500}})), LintCheck::SharedKey);
    passes(&world, &own("other", json!({"net": {"name": "x"}})), LintCheck::SharedKey);
    passes(&world, &own("base", json!({"net": {"mtu": 9000}})), LintCheck::SharedKey);
}

#[test]
fn shared_key_findings_are_bounded() {
    let names: Vec<String> = (0..40).map(|n| format!("r{n}")).collect();
    let mut world = World::of(names.iter().map(|name| role(name, &[])).collect());
    world.commit(&names.iter().map(|name| bind(WEB, 1, name)).collect::<Vec<_>>());
    let keys = |to: usize| Value::Object((0..300).map(|n| (format!("k{n}"), json!(to))).collect());
    let all: Vec<Edit> = names.iter().enumerate().map(|(n, name)| data(1, name, keys(n))).collect();
    let changed = world.change(&all);
    let found = findings(&world, &changed);
    assert_eq!(
        found.iter().filter(|f| f.check == LintCheck::SharedKey).count(),
        MAX_FINDINGS_PER_CHECK
    );
}

#[test]
fn weakened_policy_with_other_change_is_error() {
    let world = World::of(vec![role("app", &[])]);
    let changed = world.change(&[bind(WEB, 1, "app")]);
    let policy = |approvals, destructive| Policy {
        approvals,
        by_risk: [(Risk::Destructive, destructive)].into(),
        ..Policy::default()
    };
    let weaker = findings_with(&world, &changed, &[], Some((&policy(1, 2), &policy(1, 1))));
    let checks: Vec<LintCheck> = weaker.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, [LintCheck::PolicyWeakened, LintCheck::PolicyWeaker]);
    assert!(weaker[0].problem.contains("destructive: 2 -> 1"), "{}", weaker[0]);
    assert_eq!(findings_with(&world, &changed, &[], Some((&policy(1, 2), &policy(2, 2)))), []);
    let alone = world.to(world.blueprint.clone());
    let warned = findings_with(&world, &alone, &[], Some((&policy(2, 2), &policy(1, 1))));
    assert_eq!(
        (warned.len(), warned[0].check, warned[0].level),
        (1, LintCheck::PolicyWeaker, Level::Warning)
    );
    assert!(
        warned[0].problem.contains("every change: 2 -> 1, destructive: 2 -> 1"),
        "{}",
        warned[0]
    );
    let mixed = findings_with(&world, &alone, &[], Some((&policy(1, 3), &policy(2, 2))));
    assert_eq!(mixed.len(), 1, "one weaker part of a policy is enough");
    assert_eq!(findings_with(&world, &alone, &[], Some((&policy(1, 1), &policy(1, 2)))), []);
}

#[test]
fn unsatisfiable_policy_is_error() {
    let world =
        World::of(vec![role("app", &[]), flagged(role("wipe", &[]), |f| f.destructive = true)]);
    let alone = world.to(world.blueprint.clone());
    let policy = |approvals, destructive| Policy {
        approvals,
        by_risk: [(Risk::Destructive, destructive)].into(),
        ..Policy::default()
    };
    let found_in = |changed: &Changed, before: &Policy, after: &Policy, all, others| {
        let among = Reviewers { all, others };
        let all = findings_among(&world, changed, &[], Some((before, after)), among).into_iter();
        all.filter(|f| f.check == LintCheck::PolicyUnmet)
            .map(|f| (f.level, f.to_string()))
            .collect::<Vec<_>>()
    };
    let found =
        |before: &Policy, after: &Policy, all, others| found_in(&alone, before, after, all, others);
    let reported = |problem: &str, never: &str| {
        let remedy = "Require fewer approvals, or give more people the reviewer permission first";
        vec![(Level::Error, format!("policy: {problem}: {never} be committed. {remedy}"))]
    };
    let two = "The policy would require 2 approvals for every change, but only 1 person may review \
               without being an author";
    assert_eq!(
        found(&policy(1, 2), &policy(2, 2), 2, 1),
        reported(two, "this change could never"),
        "an author does not count as a reviewer"
    );
    assert_eq!(found(&policy(1, 2), &policy(2, 2), 2, 2), []);
    let risk = "The policy would require 3 approvals for a destructive change, but only 2 people may \
                review";
    assert_eq!(
        found(&policy(1, 1), &policy(1, 3), 2, 1),
        reported(risk, "no such change could ever")
    );
    assert_eq!(found(&policy(1, 1), &policy(1, 2), 2, 1), [], "another person may be the author");
    let wiped = world.change(&[bind(WEB, 1, "wipe")]);
    let own = "The policy would require 2 approvals for a destructive change, but only 1 person may \
               review without being an author";
    assert_eq!(
        found_in(&wiped, &policy(1, 1), &policy(1, 2), 2, 1),
        reported(own, "this change could never"),
        "the change of the test is itself destructive"
    );
    assert_eq!(found_in(&wiped, &policy(1, 1), &policy(1, 2), 3, 2), []);
    assert_eq!(
        found(&policy(9, 9), &policy(5, 9), 2, 1),
        [],
        "a policy that is still too strict may be lowered"
    );
    let people = [1, 2, 3].map(|n| PersonId(Uuid::from_u128(n)));
    let among = Reviewers::of(&people.into(), &[people[0], PersonId(Uuid::from_u128(9))].into());
    assert_eq!(among, Reviewers { all: 3, others: 2 });
}

#[test]
fn simultaneous_restart_is_warning() {
    let mut world = World::of(vec![group_of(1), role("free", &[])]);
    world.commit(&[
        bind(WEB, 1, "free"),
        bind(WEB, 2, "free"),
        bind(WEB, 1, "app"),
        bind(WEB, 2, "app"),
    ]);
    let all = world.change(&[role_data(WEB, "free", json!({"a": 1}))]);
    trips(&world, &all, LintCheck::AllAtOnce, "free in web: All 2 nodes restart at the same time");
    passes(&world, &world.change(&[role_data(WEB, "app", json!({"a": 1}))]), LintCheck::AllAtOnce);
    passes(&world, &world.change(&[rerun(1, "free")]), LintCheck::AllAtOnce);
    passes(
        &world,
        &world.change(&[bind(WEB, 3, "free"), bind(WEB, 4, "free")]),
        LintCheck::AllAtOnce,
    );
}

#[test]
fn stale_descendants_are_warning() {
    let of = |on_input| {
        let mut app = role("app", &["base"]);
        app.run.on_input = on_input;
        let mut world = World::of(vec![role("base", &[]), app]);
        world.commit(&[bind(WEB, 1, "app")]);
        world
    };
    let world = of(OnInput::Rerun);
    passes(&world, &world.change(&[rerun(1, "base")]), LintCheck::StaleDescendants);
    let world = of(OnInput::Report);
    trips(
        &world,
        &world.change(&[rerun(1, "base")]),
        LintCheck::StaleDescendants,
        "1 noderole depends on the changed noderoles",
    );
    passes(
        &world,
        &world.change(&[rerun(1, "base"), rerun(1, "app")]),
        LintCheck::StaleDescendants,
    );
}

#[test]
fn removed_or_ineffective_limit_is_warning() {
    let mut world = World::of(vec![group_of(2)]);
    world.commit(&[bind(WEB, 1, "app"), bind(WEB, 2, "app"), bind(WEB, 3, "app")]);
    let content = |world: &mut World, version: &str, role: Role| {
        let hash = world.import(version, vec![role]);
        world.catalog.barclamp(hash).unwrap().roles[&name("app")]
    };
    let (open, tight) =
        (content(&mut world, "2", role("app", &[])), content(&mut world, "3", group_of(1)));
    let to = |hash| world.to(world.with_noderole(1, "app", |noderole| noderole.role = hash));
    trips(
        &world,
        &to(open),
        LintCheck::LimitRemoved,
        "Until now, 2 ran at once, but the role's new content has no limit",
    );
    passes(&world, &to(tight), LintCheck::LimitRemoved);
    passes(&world, &world.change(&[bind(WEB, 4, "app")]), LintCheck::LimitTooHigh);

    let wide = World::of(vec![group_of(2)]);
    let two = wide.change(&[bind(WEB, 1, "app"), bind(WEB, 2, "app")]);
    trips(
        &wide,
        &two,
        LintCheck::LimitTooHigh,
        "concurrency group app in web: The limit is 2, but the group has only 2 nodes",
    );
    passes(&wide, &wide.change(&[bind(WEB, 1, "app")]), LintCheck::LimitTooHigh);
}

#[test]
fn lonely_service_or_even_cluster_is_warning() {
    let service = flagged(role("name-service", &[]), |f| f.service = true);
    let member = flagged(role("member", &[]), |f| f.cluster = true);
    let mut world = World::of(vec![service, role("client", &["name-service"]), member]);
    let phantom = world.blueprint.deployments[&WEB].doc.phantom;
    let doc = NodeDoc {
        id: phantom,
        fqdn: Fqdn::parse("web.phantom.example.com").unwrap(),
        deployment: WEB,
        phantom: true,
        connection: None,
        hints: serde_json::Map::new(),
        noderoles: BTreeMap::new(),
    };
    world.blueprint.insert_node(doc).unwrap();
    trips(
        &world,
        &world.change(&[bind(WEB, 1, "name-service")]),
        LintCheck::UnusedService,
        "no noderole provides or uses it",
    );
    passes(&world, &world.change(&[bind(WEB, 1, "client")]), LintCheck::UnusedService);

    let of = |n: u128| world.change(&(1..=n).map(|n| bind(WEB, n, "member")).collect::<Vec<_>>());
    trips(&world, &of(1), LintCheck::ClusterSize, "member in web: The cluster has only one member");
    trips(&world, &of(4), LintCheck::ClusterSize, "The cluster has 4 members");
    passes(&world, &of(3), LintCheck::ClusterSize);
    let mut whole = world.clone();
    whole.commit(&(1..=3).map(|n| bind(WEB, n, "member")).collect::<Vec<_>>());
    let fewer = whole.with_node(3, |doc| doc.noderoles.clear());
    trips(&whole, &whole.to(fewer), LintCheck::ClusterSize, "The cluster has 2 members");
}

#[test]
fn outdated_or_mismatched_version_is_warning() {
    let mut world = World::of(vec![role("app", &[])]);
    world.commit(&[bind(WEB, 1, "app")]);
    let newer = Role { description: "other".into(), ..role("app", &[]) };
    let nine = world.import("1.9", vec![newer]);
    let ten = world.import("1.10", vec![role("app", &[])]);
    trips(
        &world,
        &world.change(&[using(WEB, nine)]),
        LintCheck::OlderBarclamp,
        "Version 1.9 would be used, but 1.10 is imported",
    );
    passes(&world, &world.change(&[using(WEB, ten)]), LintCheck::OlderBarclamp);
    // Using a version also updates its roles, so the test writes a role that differs from the pin
    // directly.
    let other = world.catalog.barclamp(nine).unwrap().roles[&name("app")];
    let mut changed = world.blueprint.clone();
    let mut doc = (*changed.deployments[&WEB].doc).clone();
    doc.roles.get_mut(&name("app")).unwrap().role = other;
    changed.insert_deployment(doc).unwrap();
    trips(
        &world,
        &world.to(changed),
        LintCheck::RoleVersionMismatch,
        "The role has other content than in \
                                                            house 1",
    );
    passes(&world, &world.change(&[using(WEB, nine)]), LintCheck::RoleVersionMismatch);
    let without = world.import("2", Vec::new());
    let mut lacks = world.blueprint.clone();
    let mut doc = (*lacks.deployments[&WEB].doc).clone();
    doc.barclamps.insert(BarclampName::parse("house").unwrap(), without);
    lacks.insert_deployment(doc).unwrap();
    trips(
        &world,
        &world.to(lacks),
        LintCheck::RoleVersionMismatch,
        "The role is not part of house 2, the version in use there",
    );
}

#[test]
fn emptied_deployment_or_moved_node_is_warning() {
    let blue = DeploymentId(Uuid::from_u128(9));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: blue,
        phantom: NodeId(Uuid::from_u128(99)),
        name: DeploymentName::parse("blue").unwrap(),
        parent: WEB,
    });
    let mut world = World::of(vec![role("base", &[]), role("app", &["base"])]);
    world.commit(&[create, bind(WEB, 1, "app"), bind(WEB, 2, "app"), bind(EDGE, 4, "base")]);
    let down = |n: u128| {
        world.change(&[Edit::MoveNode(edit::MoveNode { node: node(n), deployment: blue })])
    };
    trips(
        &world,
        &down(1),
        LintCheck::MovedFromDependents,
        "n1.house.example.com: The node moves to blue, but noderoles that depend on it stay: app on n2",
    );
    passes(&world, &down(2), LintCheck::MovedFromDependents);
    let together =
        [1, 2].map(|n| Edit::MoveNode(edit::MoveNode { node: node(n), deployment: blue }));
    passes(&world, &world.change(&together), LintCheck::MovedFromDependents);

    let unbound = world.with_node(4, |doc| {
        doc.noderoles.clear();
        doc.deployment = SYSTEM;
    });
    trips(
        &world,
        &world.to(unbound),
        LintCheck::EmptiedDeployment,
        "edge: No node and no noderole would be left in the deployment",
    );
    passes(&world, &down(1), LintCheck::EmptiedDeployment);
}

#[test]
fn excess_findings_are_counted() {
    let mut world = World::of((0..60).map(|n| role(&format!("r{n}"), &[])).collect());
    world.commit(&(0..60).map(|n| bind(WEB, 1, &format!("r{n}"))).collect::<Vec<_>>());
    let edits: Vec<Edit> =
        (0..60).map(|n| data(1, &format!("r{n}"), json!({"password": "x"}))).collect();
    let found = findings(&world, &world.change(&edits));
    assert_eq!(found.len(), MAX_FINDINGS_PER_CHECK);
    assert!(found.last().unwrap().problem.ends_with("(and 10 more like this)"));
}

/// The findings for a secret in `app` of web, given what workers report for that name.
fn secret_findings(
    inherited: bool,
    version: i64,
    known: Option<Option<Descriptor>>,
) -> Vec<(LintCheck, String)> {
    let mut world = World::of(vec![role("db", &[]), role("app", &["db"])]);
    world.commit(&[bind(WEB, 1, "db")]);
    let key = json!({"key": {"$secret": "db/admin", "version": version}});
    let changed = match inherited {
        false => world.change(&[data(1, "db", key)]),
        true => {
            world.commit(&[data(1, "db", key)]);
            world.change(&[bind(WEB, 1, "app")])
        }
    };
    let secret =
        |descriptor| KnownSecret { name: "db/admin".into(), versions: [1, 2].into(), descriptor };
    let mut reported: BTreeMap<String, KnownSecret> =
        known.into_iter().map(|descriptor| ("db/admin".into(), secret(descriptor))).collect();
    reported.insert("other".into(), KnownSecret { name: "other".into(), ..secret(None) });
    let reviewers = Reviewers { all: 20, others: 20 };
    let found = findings_knowing(&world, &changed, &[], None, reviewers, Some(&reported));
    assert_eq!(
        findings(&world, &changed),
        [],
        "without reports of workers, secrets are not checked"
    );
    found.into_iter().map(|finding| (finding.check, finding.to_string())).collect()
}

#[test]
fn secrets_are_checked_against_worker_descriptors() {
    let of = |deployments: &[&str]| Descriptor::Data {
        deployments: deployments.iter().map(|d| (*d).into()).collect(),
    };
    type Case = (bool, i64, Option<Option<Descriptor>>, Option<(LintCheck, &'static str)>);
    let cases: [Case; 9] = [
        (false, 2, Some(Some(of(&["web"]))), None),
        (false, 2, Some(Some(of(&["*"]))), None),
        (
            false,
            1,
            Some(Some(Descriptor::NodeKey {})),
            Some((LintCheck::NodeKeyAsData, "which is a node key")),
        ),
        (false, 1, None, Some((LintCheck::UnusableSecret, "which no worker has"))),
        (false, 1, Some(None), Some((LintCheck::UnusableSecret, "no valid db/admin/secret.toml"))),
        (
            false,
            1,
            Some(Some(of(&["edge"]))),
            Some((
                LintCheck::UnusableSecret,
                "which deployment web may not use: its runs will fail",
            )),
        ),
        (
            false,
            3,
            Some(Some(of(&["web"]))),
            Some((LintCheck::UnusableSecret, "no worker has this version")),
        ),
        (
            true,
            1,
            Some(Some(of(&["edge"]))),
            Some((LintCheck::UnusableSecret, "its runs receive only the reference")),
        ),
        (true, 1, Some(Some(Descriptor::NodeKey {})), None),
    ];
    for (inherited, version, known, expected) in cases {
        let found = secret_findings(inherited, version, known.clone());
        match (found.as_slice(), expected) {
            ([], None) => {}
            ([(check, text)], Some((expected, part))) => {
                assert!(*check == expected && text.contains(part), "{text}")
            }
            other => panic!("{known:?}: {other:?}"),
        }
    }
}

#[test]
fn node_key_as_data_is_error() {
    let mut world = World::of(vec![role("db", &[])]);
    world.commit(&[bind(WEB, 1, "db")]);
    let ssh = json!({"transport": "ssh", "addresses": ["10.0.0.1"], "user": "root", "host_key": "ssh-ed25519 AAAA",
        "key": {"$secret": "deploy/ssh", "version": 1}});
    let ssh: engine::cluster::Connection = serde_json::from_value(ssh).unwrap();
    world.blueprint = world.with_node(1, |doc| doc.connection = Some(ssh.clone()));
    let uses = |name: &str| {
        world.change(&[data(1, "db", json!({"key": {"$secret": name, "version": 7}}))])
    };
    trips(
        &world,
        &uses("deploy/ssh"),
        LintCheck::NodeKeyAsData,
        "uses secret deploy/ssh version 7, which is a node key",
    );
    passes(&world, &uses("deploy/other"), LintCheck::NodeKeyAsData);
}
