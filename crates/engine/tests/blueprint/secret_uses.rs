//! The secrets that a change uses, and the resulting risk.

use engine::blueprint::impact::{self, Planned};
use engine::blueprint::{difference, secret_changes};
use engine::catalog::Role;
use engine::cluster::{Connection, DeploymentDoc, Ssh};
use engine::data::secret::SecretRef;
use engine::gate::Risk;
use engine::ids::DeploymentName;
use engine::plan::{Edit, edit};
use serde_json::{Value, json};

use crate::world::{
    Changed, EDGE, WEB, World, bind, data, key, name, node, rerun, role, role_data,
};

fn secret(name: &str, version: i64) -> Value {
    json!({"$secret": name, "version": version})
}

/// The secrets of a change as text, and whether its risks include secrets.
fn uses_of(changed: &Changed) -> (Vec<String>, bool) {
    let found = difference(&changed.old, &changed.new, &changed.changes).unwrap();
    let Changed { old, new, effects, projection, .. } = changed;
    let planned =
        Planned { old, new, difference: &found, projection, effects, catalog: &changed.catalog };
    let secrets = secret_changes(&planned);
    let risks = impact::risks(&planned);
    let impact = impact::impact(&planned, None);
    assert_eq!((&impact.secrets, &impact.risks), (&secrets, &risks));
    (secrets.iter().map(ToString::to_string).collect(), risks.contains(&Risk::Secret))
}

fn world() -> World {
    let templated = Role { template: json!({"tls": secret("tls/key", 3)}), ..role("proxy", &[]) };
    let mut world = World::of(vec![role("db", &[]), role("app", &["db"]), templated]);
    world.commit(&[bind(WEB, 1, "db"), bind(WEB, 2, "db")]);
    world
}

#[test]
fn data_without_secrets_uses_none() {
    let world = world();
    assert_eq!(
        uses_of(&world.change(&[bind(WEB, 3, "db"), data(1, "db", json!({"port": 1}))])),
        (vec![], false)
    );
}

#[test]
fn deployment_data_secret_lists_its_nodes() {
    let mut world = world();
    let of = |version| role_data(WEB, "db", json!({"keys": [secret("db/password", version)]}));
    let changed = world.change(&[of(1)]);
    assert_eq!(
        uses_of(&changed),
        (vec!["uses secret db/password version 1 in db of web on n1, n2".into()], true)
    );
    world.commit(&[of(1)]);
    let rotated = "uses secret db/password version 2 (was version 1) in db of web on n1, n2";
    assert_eq!(uses_of(&world.change(&[of(2)])), (vec![rotated.into()], true));
    let dropped = "no longer uses secret db/password version 1 in db of web on n1, n2";
    assert_eq!(
        uses_of(&world.change(&[role_data(WEB, "db", json!({}))])),
        (vec![dropped.into()], false)
    );
    assert_eq!(
        uses_of(&world.change(&[rerun(1, "db")])),
        (vec![], false),
        "the step uses the same secret as before"
    );
}

#[test]
fn noderole_data_overrides_deployment_secret() {
    let mut world = world();
    world.commit(&[role_data(WEB, "db", json!({"key": secret("db/password", 1)}))]);
    let changed = world.change(&[data(1, "db", json!({"key": secret("db/other", 1)}))]);
    let expected = "uses secret db/other version 1 (was db/password version 1) in db of web on n1";
    assert_eq!(uses_of(&changed), (vec![expected.into()], true));
}

#[test]
fn secret_of_unbound_role_is_listed() {
    let changed = world().change(&[
        Edit::AddRole(edit::AddRole { deployment: EDGE, role: name("db") }),
        role_data(EDGE, "db", json!({"key": secret("db/password", 1)})),
    ]);
    assert_eq!(
        uses_of(&changed),
        (vec!["uses secret db/password version 1 in db of edge".into()], true)
    );
}

#[test]
fn secret_of_bound_template_is_listed() {
    let changed = world().change(&[bind(WEB, 3, "proxy")]);
    assert_eq!(
        uses_of(&changed),
        (vec!["uses secret tls/key version 3 in proxy of web on n3".into()], true)
    );
}

#[test]
fn new_noderole_receives_inherited_secrets() {
    let mut world = world();
    world.commit(&[data(1, "db", json!({"key": secret("db/password", 1)})), bind(WEB, 3, "proxy")]);
    let (secrets, risk) = uses_of(&world.change(&[bind(WEB, 1, "app")]));
    let expected = "receives secret db/password version 1 in app of web on n1, from the data of other noderoles";
    assert_eq!(
        (secrets, risk),
        (vec![expected.into()], true),
        "the secret comes from the data of a parent noderole"
    );
    let (secrets, risk) = uses_of(&world.change(&[bind(WEB, 3, "db")]));
    let expected =
        "receives secret tls/key version 3 in db of web on n3, from the data of other noderoles";
    assert_eq!(
        (secrets, risk),
        (vec![expected.into()], true),
        "the secret comes from the data of another noderole on the node"
    );
}

#[test]
fn renamed_deployment_lists_its_secrets() {
    let mut world = world();
    world.commit(&[role_data(WEB, "db", json!({"key": secret("db/password", 1)}))]);
    let mut new = world.blueprint.clone();
    let doc = DeploymentDoc {
        name: DeploymentName::parse("shop").unwrap(),
        ..(*new.deployments[&WEB].doc).clone()
    };
    new.insert_deployment(doc).unwrap();
    let (secrets, risk) = uses_of(&world.to(new));
    let expected = [
        "uses secret db/password version 1 in db of shop on n1, n2",
        "no longer uses secret db/password version 1 in db of web on n1, n2",
    ];
    assert_eq!(
        (secrets.iter().map(String::as_str).collect::<Vec<_>>(), risk),
        (expected.to_vec(), true)
    );
}

#[test]
fn changed_role_content_secret_is_listed() {
    let world = world();
    let mut next = world.clone();
    let templated = Role { template: json!({"key": secret("db/password", 7)}), ..role("db", &[]) };
    let hash = engine::canonical::hash(&templated).unwrap();
    next.catalog.add_role(hash, templated.into());
    let new = next.with_noderole(1, "db", |noderole| noderole.role = hash);
    assert_eq!(
        uses_of(&next.to(new)),
        (vec!["uses secret db/password version 7 in db of web on n1".into()], true),
        "the use is listed for {:?} on {:?}",
        key("db"),
        node(1)
    );
}

fn reached_with(world: &World, version: i64) -> engine::cluster::Blueprint {
    let ssh = Ssh {
        addresses: vec!["10.0.0.1".into()],
        port: 22,
        user: "root".into(),
        key: SecretRef { name: "deploy/ssh".into(), version },
        host_key: "ssh-ed25519 AAAA".into(),
        root: "/".into(),
    };
    world.with_node(1, |doc| doc.connection = Some(Connection::Ssh(ssh.clone())))
}

#[test]
fn node_key_is_listed_without_secret_risk() {
    let mut world = world();
    let changed = world.to(reached_with(&world, 1));
    assert_eq!(
        uses_of(&changed),
        (vec!["uses node key deploy/ssh version 1 in web on n1".into()], false)
    );
    world.blueprint = changed.new;
    let changed = world.to(reached_with(&world, 2));
    let expected = "uses node key deploy/ssh version 2 (was version 1) in web on n1";
    assert_eq!(uses_of(&changed), (vec![expected.into()], false));
}
