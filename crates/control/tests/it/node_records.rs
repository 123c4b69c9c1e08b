//! Node records and used ids: the database enforces the rules, also for parallel requests.

use api::nodes::NodesQuery;
use api::nodes::{NodeChange, NodeConnectionChange};
use api::nodes::{NodeRequest, SshRequest};
use engine::ids::{DeploymentId, DeploymentName, NodeId};
use engine::plan::{Edit, edit};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::installation::{Installation, role};
use crate::nodes::ssh;

fn node_request(name: &str, root: &str) -> NodeRequest {
    NodeRequest::named(format!("{name}.records.example.com"), root)
}

/// A node with this address and these network cards.
fn at(name: &str, address: &str, port: u16, macs: &[&str]) -> NodeRequest {
    let ssh = SshRequest { addresses: vec![address.into()], port, ..ssh() };
    let macs = macs.iter().copied().map(str::to_owned).collect();
    NodeRequest { ssh: Some(ssh), macs, ..node_request(name, "") }
}

async fn details(installation: &Installation, action: &str) -> Vec<Value> {
    sqlx::query_scalar("SELECT detail FROM audit WHERE action = $1 ORDER BY id")
        .bind(action)
        .fetch_all(installation.database.owner())
        .await
        .unwrap()
}

#[tokio::test]
async fn parallel_adds_cannot_share_a_folder() {
    let installation = Installation::new().await;
    let add = |name: &str, root: &str| {
        installation.control.add_node(&installation.ada, node_request(name, root))
    };
    // Both requests check before either commits. So the second one must wait for the first one's
    // lock.
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::ROOT_LOCK)
        .execute(&mut *transaction)
        .await
        .unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        transaction.commit().await.unwrap();
    };
    let (one, two, ()) =
        tokio::join!(add("a", "/srv/records/x"), add("b", "/srv/records/x/y"), between);
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1, "{one:?} {two:?}");
    let refused = one.err().or(two.err()).unwrap();
    assert_eq!((refused.status, refused.code.as_str()), (409, "root_in_use"));
    assert!(
        refused.detail.contains("/srv/records/x") && refused.detail.contains("records.example.com"),
        "{refused:?}"
    );
    for (name, root, free) in [("c", "/srv/records", false), ("d", "/srv/records/xy", true)] {
        assert_eq!(add(name, root).await.is_ok(), free, "{root}");
    }
}

#[tokio::test]
async fn record_with_forbidden_address_is_rejected() {
    let installation = Installation::new().await;
    let before = installation.traces().await;
    for address in [
        "169.254.169.254",
        "fe80::1%eth0",
        "METADATA.google.internal",
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "localhost",
    ] {
        let refused = installation
            .control
            .add_node(&installation.ada, at("a", address, 22, &[]))
            .await
            .unwrap_err();
        assert_eq!(refused.status, 400, "{address}: {refused:?}");
        assert!(refused.detail.contains(" is not allowed: "), "{refused:?}");
    }
    assert_eq!(installation.traces().await, before);
    let node = installation
        .control
        .add_node(&installation.ada, at("a", "10.0.3.7", 22, &[]))
        .await
        .unwrap();
    let connection = NodeConnectionChange {
        addresses: Some(vec!["169.254.169.254".into()]),
        ..NodeConnectionChange::default()
    };
    let change = NodeChange { connection: Some(connection), ..NodeChange::default() };
    let refused =
        installation.control.change_node(&installation.ada, node, 1, change).await.unwrap_err();
    assert!(refused.status == 400 && refused.detail.contains("link-local"), "{refused:?}");
    let local = engine::reach::Policy { allow_local: true, ..Default::default() };
    let lenient = installation.control.clone().with_address_policy(local);
    lenient.add_node(&installation.ada, at("b", "127.0.0.1", 2222, &[])).await.unwrap();
    assert!(
        lenient.add_node(&installation.ada, at("c", "169.254.169.254", 22, &[])).await.is_err()
    );
}

#[tokio::test]
async fn addresses_per_person_and_minute_are_limited() {
    let installation = Installation::new().await;
    let most = usize::try_from(control::nodes::address_policy::ADDRESSES_PER_MINUTE).unwrap();
    let one = |n: usize| format!("10.7.0.{n}");
    let node =
        installation.control.add_node(&installation.ada, at("a", &one(0), 22, &[])).await.unwrap();
    for n in 1..most {
        installation
            .control
            .add_node(&installation.ada, at(&format!("a{n}"), &one(n), 22, &[]))
            .await
            .unwrap();
    }
    let refused = installation
        .control
        .add_node(&installation.ada, at("b", "10.8.0.1", 22, &[]))
        .await
        .unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (429, "too_many_addresses"));
    assert!(refused.again_after.is_some());
    let connection = NodeConnectionChange { port: Some(6379), ..NodeConnectionChange::default() };
    let change = NodeChange { connection: Some(connection), ..NodeChange::default() };
    let refused =
        installation.control.change_node(&installation.ada, node, 1, change).await.unwrap_err();
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (429, "too_many_addresses"),
        "each port counts as another address"
    );
    let described = NodeChange { description: Some("by the door".into()), ..NodeChange::default() };
    installation.control.change_node(&installation.ada, node, 1, described).await.unwrap();
    let line = |n: usize| {
        let key = ssh().host_key;
        format!(
            "b{n}.records.example.com ssh=10.9.{}.{} key=deploy/ssh host_key=\"{key}\"\n",
            n / 250,
            n % 250
        )
    };
    let text: String = (0..api::limits::INVENTORY).map(line).collect();
    let added = installation.control.add_nodes(&installation.ada, &text).await.unwrap();
    assert_eq!(
        added.nodes.len(),
        api::limits::INVENTORY,
        "a text with the maximum number of nodes is accepted"
    );
}

#[tokio::test]
async fn folder_check_covers_all_nodes() {
    let installation = Installation::new().await;
    sqlx::query(
        "INSERT INTO node (fqdn, deployment_id, transport, connection) \
         SELECT 'm' || n || '.many.example.com', d.id, 'local', jsonb_build_object('root', '/srv//many/' || n || '/') \
         FROM generate_series(1, 1200) n, deployment d WHERE d.system",
    )
    .execute(installation.database.app())
    .await
    .unwrap();
    for root in ["/srv/many/1200", "/srv/many/999/below", "/srv/many"] {
        let refused = installation
            .control
            .add_node(&installation.ada, node_request("late", root))
            .await
            .unwrap_err();
        assert_eq!(refused.code, "root_in_use", "{root}");
    }
    installation
        .control
        .add_node(&installation.ada, node_request("late", "/srv/many/12000"))
        .await
        .unwrap();
    let mut connection = installation.database.app().acquire().await.unwrap();
    let (below, more) = store::nodes::local_nodes(&mut connection, "/srv/many/").await.unwrap();
    assert_eq!(
        (below.len(), more),
        (1201, false),
        "all folders below are included, and no folders next to it"
    );
}

#[tokio::test]
async fn only_record_outside_blueprints_is_deleted() {
    let installation = Installation::new().await;
    installation.bound("web", 2, "app").await;
    let (n1, n2) = (installation.node(1).await, installation.node(2).await);
    let burnt = Edit::ExpungeNode(edit::ExpungeNode { node: n1, reason: "burnt".into() });
    let (proposal, version) = installation
        .propose(&installation.ada, "web", vec![installation.bind("web", 1, "app").await])
        .await;
    let own = installation.control.propose_on_node(&installation.ada, n1).await.unwrap();
    let refused =
        installation.control.edit(&installation.ada, own, 0, vec![burnt]).await.unwrap_err();
    assert!(refused.detail.contains("not part of any blueprint"), "{refused:?}");

    installation.control.delete_node(&installation.ada, n1, None).await.unwrap();
    let query = NodesQuery { filter: "n1".into(), ..NodesQuery::default() };
    let listed = installation.control.find_nodes(&installation.ada, &query).await.unwrap();
    assert!(listed.nodes.is_empty(), "{listed:?}");
    assert_eq!(
        installation.control.proposal(&installation.ada, own).await.unwrap_err().code,
        "closed"
    );
    assert_eq!(
        details(&installation, "node.remove").await,
        [json!({"fqdn": "n1.house.example.com"})]
    );
    let submitted = installation
        .control
        .submit(&installation.ada, proposal, version, "bind".into())
        .await
        .unwrap_err();
    assert!(submitted.detail.contains("does not exist"), "{submitted:?}");
    assert_eq!(
        installation.control.delete_node(&installation.ada, n1, None).await.unwrap_err().status,
        404
    );
    // The name is free again; the id is not.
    let again = NodeRequest::named("n1.house.example.com", "/srv/nodes/n1");
    assert_ne!(installation.control.add_node(&installation.ada, again).await.unwrap(), n1);
    let back = "UPDATE node SET removed_in = NULL WHERE id = $1";
    let refused =
        sqlx::query(back).bind(n1.0).execute(installation.database.app()).await.unwrap_err();
    assert_eq!(
        migrations::Refusal::of(&refused),
        Some(migrations::Refusal::AlreadyUsed),
        "{refused}"
    );

    let meant = installation.control.delete_node(&installation.ada, n2, None).await.unwrap_err();
    assert_eq!((meant.status, meant.code.as_str()), (409, "node_in_desired_state"));
    let by_hand = "UPDATE node SET removed_in = (SELECT number FROM head) WHERE id = $1";
    let refused =
        sqlx::query(by_hand).bind(n2.0).execute(installation.database.app()).await.unwrap_err();
    assert_eq!(
        migrations::Refusal::of(&refused),
        Some(migrations::Refusal::IntentOutsideCommit),
        "{refused}"
    );
}

#[tokio::test]
async fn removed_ids_cannot_be_reused() {
    let installation = Installation::new().await;
    let system = installation.id("system").await;
    let edge = installation.id("edge").await;
    let (blue, phantom) = (DeploymentId(Uuid::new_v4()), NodeId(Uuid::new_v4()));
    let create = |id, phantom, name: &str| {
        Edit::CreateDeployment(edit::CreateDeployment {
            id,
            phantom,
            name: DeploymentName::parse(name).unwrap(),
            parent: edge,
        })
    };
    installation.moved_by("edge", vec![create(blue, phantom, "blue")]).await;
    installation
        .moved_by("edge", vec![Edit::RemoveDeployment(edit::RemoveDeployment { deployment: blue })])
        .await;
    let id = installation.control.propose(&installation.ada, edge).await.unwrap();
    for (deployment, stands, text) in [
        (blue, NodeId(Uuid::new_v4()), "another deployment"),
        (DeploymentId(Uuid::new_v4()), phantom, "another node"),
    ] {
        let edit = create(deployment, stands, "green");
        let refused =
            installation.control.edit(&installation.ada, id, 0, vec![edit]).await.unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (422, "edit_refused"));
        assert!(refused.detail.contains(text) && refused.errors[0].at == "edit 1", "{refused:?}");
    }
    let gone = Edit::AddRole(edit::AddRole { deployment: blue, role: role("app") });
    assert_eq!(
        installation.control.edit(&installation.ada, id, 0, vec![gone]).await.unwrap_err().code,
        "edit_refused"
    );
    // If a client bypasses this, the database refuses, in a commit too.
    let back = "UPDATE deployment SET parent = $2 WHERE id = $1";
    let refused = sqlx::query(back)
        .bind(blue.0)
        .bind(system.0)
        .execute(installation.database.owner())
        .await
        .unwrap_err();
    assert!(migrations::Refusal::of(&refused).is_some(), "{refused}");
}

#[tokio::test]
async fn list_edits_count_each_node() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let nodes = [
        installation.node(1).await,
        installation.node(2).await,
        installation.node(3).await,
        installation.node(4).await,
    ];
    let all = Edit::BindNodes(edit::BindNodes {
        deployment: web,
        role: role("app"),
        nodes: nodes.into(),
    });
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![all]).await;
    let text = details(&installation, "proposal.edit").await;
    let text = text[0]["edits"][0].as_str().unwrap();
    assert_eq!(text, "bind 4 nodes (n1, n2 and 2 more) to app in web");
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "all of them".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let bound = installation.steps().await.into_iter().filter(|(role, ..)| role == "app").count();
    assert_eq!(bound, 4);

    let many: std::collections::BTreeSet<NodeId> =
        (0..1_000).map(|n| NodeId(Uuid::from_u128(n))).collect();
    let list = Edit::BindNodes(edit::BindNodes { deployment: web, role: role("app"), nodes: many });
    let id = installation.control.propose(&installation.ada, web).await.unwrap();
    let refused =
        installation.control.edit(&installation.ada, id, 0, vec![list; 51]).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "too_many_nodes"));
}

#[tokio::test]
async fn second_record_of_a_machine_is_rejected() {
    let installation = Installation::new().await;
    let add = |request: NodeRequest| installation.control.add_node(&installation.ada, request);
    let one = add(at("one", "GW.example.com", 22, &["00-25-90-AA-00-01"])).await.unwrap();
    let taken = |refused: api::Problem, text: &str| {
        assert_eq!((refused.status, refused.code.as_str()), (409, "address_in_use"), "{refused:?}");
        assert!(
            refused.detail.contains(text) && refused.detail.contains("one.records.example.com"),
            "{refused:?}"
        );
    };
    taken(
        add(at("two", "gw.example.COM", 22, &[])).await.unwrap_err(),
        "gw.example.com with port 22",
    );
    taken(
        add(at("two", "10.0.0.2", 22, &["0025.90aa.0001"])).await.unwrap_err(),
        "00:25:90:aa:00:01",
    );
    let folder = NodeRequest {
        macs: vec!["00:25:90:aa:00:01".to_owned()],
        ..node_request("two", "/srv/records/two")
    };
    taken(add(folder).await.unwrap_err(), "00:25:90:aa:00:01");

    // The port distinguishes nodes with the same address.
    let two = add(at("two", "gw.example.com", 2222, &["00:25:90:aa:00:02"])).await.unwrap();
    let change =
        |version, change| installation.control.change_node(&installation.ada, two, version, change);
    let port = |port| NodeChange {
        connection: Some(NodeConnectionChange {
            port: Some(port),
            ..NodeConnectionChange::default()
        }),
        ..NodeChange::default()
    };
    taken(change(1, port(22)).await.unwrap_err(), "gw.example.com with port 22");
    let macs = |mac: &str| NodeChange { macs: Some(vec![mac.into()]), ..NodeChange::default() };
    taken(change(1, macs("00:25:90:AA:00:01")).await.unwrap_err(), "00:25:90:aa:00:01");
    assert_eq!(
        change(1, macs("00:25:90:AA:00:02")).await.unwrap(),
        1,
        "a node may keep its own address in another notation"
    );
    assert_eq!(change(1, port(2223)).await.unwrap(), 2);

    installation.control.delete_node(&installation.ada, one, None).await.unwrap();
    assert_eq!(change(2, port(22)).await.unwrap(), 3, "the address of the deleted record is free");
    for twice in [at("x", "10.0.0.3", 22, &["00:25:90:aa:00:03", "00-25-90-aa-00-03"]), {
        let mut request = at("x", "10.0.0.3", 22, &[]);
        request.ssh.as_mut().unwrap().addresses.push("::ffff:10.0.0.3".into());
        request
    }] {
        let refused = add(twice).await.unwrap_err();
        assert!(refused.status == 400 && refused.detail.contains("twice"), "{refused:?}");
    }
}

#[tokio::test]
async fn parallel_adds_of_one_machine_make_one_record() {
    let installation = Installation::new().await;
    for (one, other) in [
        (at("a", "10.0.0.7", 22, &[]), at("b", "10.0.0.7", 22, &[])),
        (
            at("c", "10.0.0.8", 22, &["00:25:90:aa:00:01"]),
            at("d", "10.0.0.9", 22, &["00:25:90:aa:00:01"]),
        ),
    ] {
        let mut transaction = installation.database.app().begin().await.unwrap();
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(migrations::ROOT_LOCK)
            .execute(&mut *transaction)
            .await
            .unwrap();
        let between = async {
            installation.has_lock_waiter().await;
            transaction.commit().await.unwrap();
        };
        let add = |request| installation.control.add_node(&installation.ada, request);
        let (one, other, ()) = tokio::join!(add(one), add(other), between);
        assert_eq!(usize::from(one.is_ok()) + usize::from(other.is_ok()), 1, "{one:?} {other:?}");
        assert_eq!(one.err().or(other.err()).unwrap().code, "address_in_use");
    }
}

#[tokio::test]
async fn duplicates_in_old_records_do_not_block_changes() {
    let installation = Installation::new().await;
    let one = installation
        .control
        .add_node(&installation.ada, at("one", "10.0.0.7", 22, &["00:25:90:aa:00:01"]))
        .await
        .unwrap();
    let two = installation
        .control
        .add_node(&installation.ada, at("two", "10.0.0.8", 22, &["00:25:90:aa:00:02"]))
        .await
        .unwrap();
    let owner = installation.database.owner();
    sqlx::query("ALTER TABLE node DISABLE TRIGGER guard_node_machine")
        .execute(owner)
        .await
        .unwrap();
    sqlx::query("UPDATE node SET (address, macs) = (SELECT address, macs FROM node WHERE id = $2) WHERE id = $1")
        .bind(two.0)
        .bind(one.0)
        .execute(owner)
        .await
        .unwrap();
    sqlx::query("ALTER TABLE node ENABLE TRIGGER guard_node_machine").execute(owner).await.unwrap();
    let change =
        |version, change| installation.control.change_node(&installation.ada, two, version, change);
    let text = NodeChange { description: Some("by the door".into()), ..NodeChange::default() };
    assert_eq!(change(1, text).await.unwrap(), 2);
    let user =
        NodeConnectionChange { user: Some("gantry".into()), ..NodeConnectionChange::default() };
    assert_eq!(
        change(2, NodeChange { connection: Some(user), ..NodeChange::default() }).await.unwrap(),
        3
    );
}

/// The errors of a refused text, by line.
fn lines(refused: &api::Problem) -> Vec<(&str, &str)> {
    refused.errors.iter().map(|finding| (finding.at.as_str(), finding.detail.as_str())).collect()
}

#[track_caller]
fn each_reports(refused: &api::Problem, expected: &[(&str, &str)]) {
    let reported = lines(refused);
    assert_eq!(reported.len(), expected.len(), "{refused:?}");
    for ((at, detail), (line, part)) in reported.into_iter().zip(expected) {
        assert!(at == *line && detail.contains(part), "{line}, {part}: {refused:?}");
    }
}

#[tokio::test]
async fn nodes_in_text_equal_nodes_added_singly() {
    let installation = Installation::new().await;
    let text = "# rack 1\r\n\r\none.records.example.com root=/srv/records/one mac=0025.90aa.0001\r\n\
                serial=CN-0F8S7 domain=records.example.com \"root=/srv/records/my two\"";
    let added = installation.control.add_nodes(&installation.ada, text).await.unwrap();
    let names: Vec<&str> = added.nodes.iter().map(|node| node.fqdn.as_str()).collect();
    assert_eq!(names, ["one.records.example.com", "scn0f8s7.records.example.com"]);
    let [one, two] = [0, 1].map(|at| added.nodes[at].node.to_string());
    let one = installation.control.node(&installation.ada, &one).await.unwrap();
    let two = installation.control.node(&installation.ada, &two).await.unwrap();
    assert_eq!(
        (one.fqdn.as_str(), one.macs, one.added_by.as_deref()),
        (names[0], vec!["00:25:90:aa:00:01".to_owned()], Some("ada"))
    );
    assert_eq!(
        (two.connection.root.as_str(), two.serial.as_str()),
        ("/srv/records/my two", "CN-0F8S7")
    );
    let noted: Vec<Value> = details(&installation, "node.add")
        .await
        .into_iter()
        .map(|detail| detail["fqdn"].clone())
        .collect();
    assert_eq!(noted, names, "each node is in the audit");
}

#[tokio::test]
async fn invalid_lines_are_all_reported_and_nothing_added() {
    let installation = Installation::new().await;
    let before = installation.traces().await;
    let add = async |text: &str| installation.control.add_nodes(&installation.ada, text).await;
    let wrong = "# rack 1\none.records.example.com root=/srv/records/one\nweb root=/srv/records/web\n\
                 ONE.records.example.com root=/srv/records/two\nthree.records.example.com rot=/srv/records/three\n\
                 four.records.example.com ssh=10.0.0.4\nfive.records.example.com root=/";
    let refused = add(wrong).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (400, "invalid"));
    assert!(
        refused.detail.starts_with("No node was added, because 5 lines of 6 cannot be used"),
        "{refused:?}"
    );
    let expected = [
        ("line 3", "1 of at least 3 labels"),
        ("line 4", "Node one.records.example.com is already in line 2"),
        ("line 5", "Unknown field \"rot\""),
        ("line 6", "key: Give the name of the secret"),
        ("line 7", "absolute path"),
    ];
    each_reports(&refused, &expected);
    assert_eq!(installation.traces().await, before);

    installation
        .control
        .add_node(&installation.ada, at("there", "10.0.0.7", 22, &["00:25:90:aa:00:01"]))
        .await
        .unwrap();
    let before = installation.traces().await;
    let taken = "one.records.example.com root=/srv/records/one\nthere.records.example.com root=/srv/records/there\n\
                 two.records.example.com root=/srv/records/one/two\nthree.records.example.com root=/srv/records/three mac=00:25:90:aa:00:01\n\
                 four.records.example.com root=/srv/records/four";
    let refused = add(taken).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "nodes_refused"));
    let expected = [
        ("line 2", "Node there.records.example.com already exists"),
        ("line 3", "one.records.example.com"),
        (
            "line 4",
            "MAC address 00:25:90:aa:00:01 already belongs to node there.records.example.com",
        ),
    ];
    each_reports(&refused, &expected);
    assert_eq!(
        installation.traces().await,
        before,
        "lines before and after an invalid line are not added either"
    );
    let rest = "one.records.example.com root=/srv/records/one\nfour.records.example.com root=/srv/records/four";
    assert_eq!(add(rest).await.unwrap().nodes.len(), 2);
}

#[tokio::test]
async fn parallel_adds_of_texts_do_not_deadlock() {
    let installation = Installation::new().await;
    let text =
        "a.records.example.com root=/srv/records/a\nb.records.example.com root=/srv/records/b";
    let turned =
        "b.records.example.com root=/srv/records/b\na.records.example.com root=/srv/records/a";
    let mut transaction = installation.database.app().begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::ROOT_LOCK)
        .execute(&mut *transaction)
        .await
        .unwrap();
    let between = async {
        installation.so_many_wait(3).await;
        transaction.commit().await.unwrap();
    };
    let (many, others, one, ()) = tokio::join!(
        installation.control.add_nodes(&installation.ada, text),
        installation.control.add_nodes(&installation.bo, turned),
        installation.control.add_node(&installation.cy, node_request("b", "/srv/records/c")),
        between
    );
    let ends = [many.map(drop), others.map(drop), one.map(drop)];
    assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1, "{ends:?}");
    for refused in ends.into_iter().filter_map(Result::err) {
        assert!(["nodes_refused", "node_exists"].contains(&refused.code.as_str()), "{refused:?}");
    }
}
