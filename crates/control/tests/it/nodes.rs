//! Nodes: their pages, direct changes of records, and reports from the nodes themselves.

use std::time::Duration;

use api::Problem;
use api::nodes::{
    FactSource, HealthChecksQuery, NodeChange, NodeConnectionChange, NodeFacts, NodeNoderolesQuery,
    NodeView,
};
use api::nodes::{NodeRequest, SshRequest};
use api::runs::StepState;
use control::NodeAtVersion;
use control::people::{Actor, ClientInfo, NewPerson, Permission};
use engine::alive::TriedAddress;
use engine::anneal::Limits;
use engine::gate::VerdictKind;
use engine::ids::{BlueprintNumber, NodeId, NoderoleId, ProposalId, RoleName};
use engine::plan::{Edit, edit};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use store::nodes::{AsOf, HealthCheckResult, NodeNoderoleFilter};
use store::runs::RunEnd;

use crate::installation::{Installation, fqdn};

const HOST_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
const LONG: Duration = Duration::from_secs(600);

pub fn ssh() -> SshRequest {
    SshRequest {
        addresses: vec!["10.0.3.7".into(), "m1.mgmt.example.com".into()],
        port: 22,
        user: "root".into(),
        key: "deploy/ssh".into(),
        key_version: 1,
        host_key: HOST_KEY.into(),
    }
}

pub async fn machine(installation: &Installation, name: &str) -> NodeId {
    let request = NodeRequest {
        ssh: Some(ssh()),
        macs: vec!["00:25:90:aa:00:01".into()],
        ..NodeRequest::named(name, "")
    };
    installation.control.add_node(&installation.ada, request).await.unwrap()
}

async fn admin(installation: &Installation) -> Actor {
    let new = NewPerson::human("root", [Permission::Operator, Permission::Admin]);
    installation.people.create_person(None, &new).await.unwrap();
    installation.people.sign_in_as_owner("root").await.unwrap()
}

async fn viewer(installation: &Installation) -> Actor {
    installation
        .people
        .create_person(None, &NewPerson::human("eve", [Permission::Viewer]))
        .await
        .unwrap();
    installation.people.sign_in_as_owner("eve").await.unwrap()
}

async fn one<T>(installation: &Installation, sql: &'static str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    sqlx::query_scalar(sql).fetch_one(installation.database.owner()).await.unwrap()
}

async fn sql(installation: &Installation, sql: &str) {
    sqlx::query(AssertSqlSafe(sql)).execute(installation.database.owner()).await.unwrap();
}

fn connection_change(connection_change: NodeConnectionChange) -> NodeChange {
    NodeChange { connection: Some(connection_change), ..NodeChange::default() }
}

fn code(refused: Result<i32, Problem>) -> (u16, String) {
    refused.map_err(|problem| (problem.status, problem.code)).unwrap_err()
}

/// The versions that a health check reads at its start.
pub async fn as_of(installation: &Installation, node: NodeId) -> AsOf {
    let sql = "SELECT connection_no, report_no FROM node WHERE id = $1";
    sqlx::query_as(sql).bind(node.0).fetch_one(installation.database.owner()).await.unwrap()
}

async fn check_node(installation: &Installation, node: NodeId, came: Result<&str, &str>) -> bool {
    look_at(installation, node, came, Vec::new()).await
}

async fn look_at(
    installation: &Installation,
    node: NodeId,
    came: Result<&str, &str>,
    tried: Vec<TriedAddress>,
) -> bool {
    let looked = HealthCheckResult {
        as_of: as_of(installation, node).await,
        tried,
        address: "10.0.3.7".into(),
        came: came.map(str::to_owned).map_err(str::to_owned),
        survey: came.is_ok().then_some(Ok(())),
        took: Duration::ZERO,
        by: "w".into(),
    };
    store::nodes::record_health_check(installation.database.worker(), node, &looked).await.unwrap()
}

#[tokio::test]
async fn node_page_shows_everything_except_secrets() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    let eve = viewer(&installation).await;
    let shown = installation.control.node(&eve, "m1.rack1.example.com").await.unwrap();
    let by_id = installation.control.node(&eve, &id.to_string()).await.unwrap();
    // Transactions of other tests move the journal's cursor.
    assert_eq!(NodeView { cursor: shown.cursor, ..by_id }, shown);
    let reached = shown.connection.ssh.unwrap();
    assert_eq!(reached.addresses, ["10.0.3.7", "m1.mgmt.example.com"]);
    assert_eq!((reached.key.as_str(), reached.key_version), ("deploy/ssh", 1));
    assert_eq!(reached.fingerprint, "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU");
    assert_eq!(
        (shown.status.alive, shown.status.joined.as_str(), shown.status.threshold),
        (false, "none", 1)
    );
    assert_eq!(
        (shown.record_only, shown.added_by.as_deref(), shown.macs.len()),
        (true, Some("ada"), 1)
    );
    assert!(!shown.may_change.is_allowed(), "eve is only a viewer");

    for came in [Err("refused"), Ok("boot-1"), Err("refused")] {
        check_node(&installation, id, came).await;
    }
    let shown = installation.control.node(&installation.ada, "m1.rack1.example.com").await.unwrap();
    let looks: Vec<(bool, &str)> =
        shown.health_checks.iter().map(|check| (check.reached, check.message.as_str())).collect();
    assert_eq!(
        looks,
        [(false, "refused"), (true, ""), (false, "refused")],
        "health checks are listed newest first"
    );
    assert_eq!(
        (shown.status.alive, shown.status.contradicting, shown.status.threshold),
        (true, 1, 3)
    );
    assert_eq!(
        (shown.status.joined.as_str(), shown.status.boot_id.as_deref()),
        ("confirmed", Some("boot-1"))
    );

    installation.bound("web", 2, "app").await;
    let bound = installation.control.node(&eve, fqdn(2).as_str()).await.unwrap();
    let carried: Vec<&str> =
        bound.noderoles.iter().map(|noderole| noderole.role.as_str()).collect();
    assert_eq!(
        carried,
        ["base", "runtime", "app"],
        "roles are listed in the order in which they run"
    );
    assert!(
        !bound.record_only && bound.deployment.as_str() == "web" && bound.connection.ssh.is_none()
    );
    for name in
        ["nobody.rack1.example.com", "x", "00000000-0000-0000-0000-000000000001", "\u{202e}"]
    {
        assert_eq!(installation.control.node(&eve, name).await.unwrap_err().status, 404, "{name}");
    }
}

#[tokio::test]
async fn last_fifty_health_checks_are_paged() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    for n in 0..60 {
        check_node(&installation, id, Err(&format!("look {n}"))).await;
    }
    let walked = async |query: HealthChecksQuery| {
        let (mut text, mut query) = (Vec::new(), query);
        loop {
            let page = installation
                .control
                .node_health_checks(&installation.ada, "m1.rack1.example.com", &query)
                .await
                .unwrap();
            assert!(page.health_checks.len() <= control::MAX_HEALTH_CHECKS);
            text.extend(page.health_checks.into_iter().map(|check| check.message));
            query.before = page.next;
            if query.before.is_none() {
                return text;
            }
        }
    };
    // Two health checks may share a millisecond; each must be listed once.
    let mut expected: Vec<String> = (10..60).rev().map(|n| format!("look {n}")).collect();
    assert_eq!(walked(HealthChecksQuery::default()).await, expected);
    expected.reverse();
    let oldest_first =
        HealthChecksQuery { sort: "at".parse().unwrap(), ..HealthChecksQuery::default() };
    assert_eq!(walked(oldest_first).await, expected);
}

#[tokio::test]
async fn health_checks_are_filtered_by_result_and_text() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    check_node(&installation, id, Err("Connection refused")).await;
    check_node(&installation, id, Err("100% of 5 seconds")).await;
    check_node(&installation, id, Ok("boot-1")).await;
    let found = async |reached: Option<bool>, text: &str| {
        let query =
            HealthChecksQuery { reached, filter: text.to_owned(), ..HealthChecksQuery::default() };
        let page = installation
            .control
            .node_health_checks(&installation.ada, "m1.rack1.example.com", &query)
            .await
            .unwrap();
        page.health_checks.len()
    };
    assert_eq!(
        (found(None, "").await, found(Some(true), "").await, found(Some(false), "").await),
        (3, 1, 2)
    );
    assert_eq!(
        (found(None, "connection REFUSED").await, found(Some(true), "refused").await),
        (1, 0)
    );
    // Filter texts are not patterns, and JSON keys are not searched.
    assert_eq!(
        (found(None, "%").await, found(None, "_").await, found(None, "\"error\"").await),
        (1, 0, 0)
    );
    let failed = TriedAddress {
        address: "192.0.2.7".into(),
        reached: false,
        error: "No route to host".into(),
    };
    look_at(&installation, id, Ok("boot-1"), vec![failed]).await;
    assert_eq!((found(None, "192.0.2.7").await, found(None, "no ROUTE").await), (1, 1));
    for place in ["soon", "-5", "at~-5", "9223372036854775807"] {
        let query = HealthChecksQuery {
            before: Some(place.to_owned().into()),
            ..HealthChecksQuery::default()
        };
        let refused = installation
            .control
            .node_health_checks(&installation.ada, "m1.rack1.example.com", &query)
            .await
            .unwrap_err();
        assert_eq!(refused.status, 400, "{place}");
    }
}

#[tokio::test]
async fn noderoles_are_paged_in_run_order() {
    const NAME: &str = "n1.house.example.com";
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let n1 = installation.node(1).await;
    let shown = installation.control.node(&installation.ada, NAME).await.unwrap();
    let all: Vec<_> = shown.noderoles.iter().map(|carried| carried.id).collect();
    assert!(all.len() > 2 && !shown.more_noderoles, "{shown:?}");
    let mut connection = installation.database.app().acquire().await.unwrap();
    for (descending, order) in [(false, "order"), (true, "-order")] {
        let mut expected = all.clone();
        if descending {
            expected.reverse();
        }
        let (mut walked, mut after) = (Vec::new(), None);
        loop {
            let filter = NodeNoderoleFilter { descending, after, ..NodeNoderoleFilter::default() };
            let rows =
                store::nodes::noderoles_of_node(&mut connection, n1, filter, 1).await.unwrap();
            let Some(row) = rows.first() else { break };
            after = Some((row.rank, row.step_id));
            walked.push(NoderoleId(row.noderole_id));
            let after = Some(format!("{order}~-{}~-{}", row.rank, row.step_id).into());
            let rest = NodeNoderolesQuery {
                sort: order.parse().unwrap(),
                after,
                ..NodeNoderolesQuery::default()
            };
            let rest =
                installation.control.node_noderoles(&installation.ada, NAME, &rest).await.unwrap();
            let rest: Vec<_> = rest.noderoles.iter().map(|carried| carried.id).collect();
            assert_eq!(rest, expected[walked.len()..], "{order}");
        }
        assert_eq!(walked, expected, "{order}");
    }
    let found = async |state: Option<StepState>, role: &str| {
        let query =
            NodeNoderolesQuery { state, role: role.to_owned(), ..NodeNoderolesQuery::default() };
        installation
            .control
            .node_noderoles(&installation.ada, NAME, &query)
            .await
            .unwrap()
            .noderoles
            .len()
    };
    let state = shown.noderoles[0].state;
    let alike = shown.noderoles.iter().filter(|carried| carried.state == state).count();
    assert_eq!((found(None, "").await, found(Some(state), "").await), (all.len(), alike));
    assert_eq!(
        (
            found(None, "app").await,
            found(None, "ap").await,
            found(Some(StepState::Error), "app").await
        ),
        (1, 0, 0)
    );
    for place in
        ["x", "order~-0", "order~-0~-x", "order~-9999999999~-00000000-0000-0000-0000-000000000001"]
    {
        let query = NodeNoderolesQuery {
            after: Some(place.to_owned().into()),
            ..NodeNoderolesQuery::default()
        };
        let refused =
            installation.control.node_noderoles(&installation.ada, NAME, &query).await.unwrap_err();
        assert_eq!(refused.status, 400, "{place}");
    }
}

#[tokio::test]
async fn change_requires_current_version_of_record() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    let eve = viewer(&installation).await;
    let change = NodeChange {
        description: Some(" By the door ".into()),
        serial: Some("CN-1".into()),
        hints: Some(json!({"rack": 7})),
        connection: Some(NodeConnectionChange {
            addresses: Some(vec!["10.0.3.8".into()]),
            port: Some(2222),
            ..NodeConnectionChange::default()
        }),
        ..NodeChange::default()
    };
    let forbidden = installation.control.change_node(&eve, id, 1, change.clone()).await;
    assert_eq!(code(forbidden), (403, "forbidden".into()));
    check_node(&installation, id, Ok("boot-1")).await;
    assert_eq!(
        installation.control.change_node(&installation.ada, id, 1, change.clone()).await.unwrap(),
        2
    );
    assert_eq!(
        installation.control.change_node(&installation.ada, id, 2, change.clone()).await.unwrap(),
        2,
        "an unchanged record keeps its version"
    );
    assert_eq!(
        code(installation.control.change_node(&installation.bo, id, 1, change).await),
        (412, "changed_meanwhile".into())
    );

    let shown = installation.control.node(&installation.ada, "m1.rack1.example.com").await.unwrap();
    assert_eq!((shown.description.as_str(), shown.serial.as_str()), ("By the door", "CN-1"));
    assert_eq!(shown.hints, json!({"rack": 7}));
    let reached = shown.connection.ssh.unwrap();
    assert_eq!(
        (reached.addresses, reached.port, reached.user.as_str()),
        (vec!["10.0.3.8".to_owned()], 2222, "root")
    );
    assert_eq!(
        shown.status.joined.as_str(),
        "none",
        "no health check succeeded at the new address"
    );
    let due: bool = one(
        &installation,
        "SELECT health_checked_at IS NULL FROM node WHERE fqdn = 'm1.rack1.example.com'",
    )
    .await;
    assert!(due, "a health check is due immediately");
    let audit: Value =
        one(&installation, "SELECT detail FROM audit WHERE action = 'node.change'").await;
    assert_eq!(
        audit["addresses"],
        json!({"was": ["10.0.3.7", "m1.mgmt.example.com"], "is": ["10.0.3.8"]})
    );

    for bad in [
        NodeChange { description: Some("x".repeat(1001)), ..NodeChange::default() },
        NodeChange { macs: Some(vec!["nonsense".into()]), ..NodeChange::default() },
        NodeChange { hints: Some(json!("text")), ..NodeChange::default() },
        connection_change(NodeConnectionChange {
            addresses: Some(Vec::new()),
            ..NodeConnectionChange::default()
        }),
        connection_change(NodeConnectionChange {
            host_key: Some("ssh-rsa AAAA".into()),
            ..NodeConnectionChange::default()
        }),
        connection_change(NodeConnectionChange {
            root: Some("/a/../b".into()),
            ..NodeConnectionChange::default()
        }),
    ] {
        assert_eq!(
            code(installation.control.change_node(&installation.ada, id, 2, bad.clone()).await).0,
            400,
            "{bad:?}"
        );
    }
    let local = connection_change(NodeConnectionChange {
        user: Some("root".into()),
        ..NodeConnectionChange::default()
    });
    assert_eq!(
        code(
            installation
                .control
                .change_node(&installation.ada, installation.node(1).await, 1, local)
                .await
        )
        .0,
        400
    );
    assert_eq!(
        installation.control.delete_node(&installation.ada, id, Some(1)).await.unwrap_err().status,
        412
    );
    installation.control.delete_node(&installation.ada, id, Some(2)).await.unwrap();
    assert_eq!(
        code(
            installation.control.change_node(&installation.ada, id, 2, NodeChange::default()).await
        )
        .0,
        404
    );
}

#[tokio::test]
async fn connection_in_blueprint_is_changed_by_proposal_only() {
    let installation = Installation::new().await;
    let root = admin(&installation).await;
    installation.bound("web", 1, "app").await;
    let n1 = installation.node(1).await;
    let elsewhere = connection_change(NodeConnectionChange {
        root: Some("/srv/elsewhere/n1".into()),
        ..NodeConnectionChange::default()
    });
    let hints = NodeChange { hints: Some(json!({"rack": 7})), ..NodeChange::default() };
    for by in [&installation.ada, &root] {
        let refused =
            installation.control.change_node(by, n1, 1, elsewhere.clone()).await.unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (409, "in_blueprint"));
        let command = format!("gantry node edit {} --root /srv/elsewhere/n1 --propose", fqdn(1));
        assert!(refused.detail.contains(&command), "{refused:?}");
        assert_eq!(
            code(installation.control.change_node(by, n1, 1, hints.clone()).await),
            (409, "in_blueprint".into())
        );
    }
    // The description is not part of the desired state.
    let text = NodeChange { description: Some("By the door".into()), ..NodeChange::default() };
    assert_eq!(installation.control.change_node(&installation.ada, n1, 1, text).await.unwrap(), 2);
}

/// Commits edits through an approved proposal on a node.
async fn reviewed(
    installation: &Installation,
    node: NodeId,
    edits: Vec<Edit>,
) -> Result<BlueprintNumber, Problem> {
    let proposal = installation.control.propose_on_node(&installation.ada, node).await?;
    let version =
        installation.control.node_proposal(&installation.ada, proposal).await?.proposal.version;
    let version = installation.control.edit(&installation.ada, proposal, version, edits).await?;
    let review = installation
        .control
        .submit(&installation.ada, proposal, version, "A new connection".into())
        .await?;
    installation
        .control
        .give_verdict(&installation.bo, review, VerdictKind::Approve, String::new())
        .await?;
    installation.control.commit(&installation.ada, review).await
}

#[tokio::test]
async fn reviewed_connection_moves_the_record() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let n1 = installation.node(1).await;
    let connection = NodeConnectionChange {
        root: Some("/srv/elsewhere/n1".into()),
        ..NodeConnectionChange::default()
    };
    let edits = vec![
        Edit::SetConnection(edit::SetConnection { node: n1, connection: connection.clone() }),
        Edit::SetHints(edit::SetHints { node: n1, hints: json!({"rack": 7}) }),
    ];
    reviewed(&installation, n1, edits).await.unwrap();
    let shown = installation.control.node(&installation.ada, fqdn(1).as_str()).await.unwrap();
    assert_eq!(
        (shown.connection.root.as_str(), shown.hints),
        ("/srv/elsewhere/n1", json!({"rack": 7}))
    );
    let found: Vec<_> = installation.control.verify().await.unwrap().discrepancies;
    assert!(found.is_empty(), "{found:?}");

    let ssh = Edit::SetConnection(edit::SetConnection {
        node: n1,
        connection: NodeConnectionChange { port: Some(2222), ..NodeConnectionChange::default() },
    });
    assert_eq!(
        reviewed(&installation, n1, vec![ssh]).await.unwrap_err().code,
        "edit_refused",
        "a local node has no port"
    );
    let bind =
        Edit::SetConnection(edit::SetConnection { node: installation.node(2).await, connection });
    let refused =
        reviewed(&installation, installation.node(2).await, vec![bind]).await.unwrap_err();
    assert!(refused.detail.contains("gantry node edit"), "{refused:?}");
}

/// Deleting the node's record notifies all of its steps, including those of roles that it no longer
/// has.
#[tokio::test]
async fn node_that_had_other_roles_is_removed() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "still").await;
    let n1 = installation.node(1).await;
    let noderole = engine::cluster::NoderoleKey::first(RoleName::parse("still").unwrap());
    let unbind = Edit::Unbind(edit::Unbind { node: n1, noderole, with_dependents: false });
    store::runs::set_node_alive(installation.database.owner(), n1, true).await.unwrap();
    for edit in [unbind, Edit::ExpungeNode(edit::ExpungeNode { node: n1, reason: "burnt".into() })]
    {
        let review = installation.submit(&installation.ada, "web", vec![edit]).await;
        installation.approve(&installation.bo, review).await;
        installation.commit(&installation.ada, review).await.unwrap();
    }
    let sql = "SELECT count(*) FROM step WHERE node_id = $1 AND state = 'gone' AND NOT node_fits";
    let gone: i64 =
        sqlx::query_scalar(sql).bind(n1.0).fetch_one(installation.database.owner()).await.unwrap();
    assert!(gone > 0);
}

#[tokio::test]
async fn reviewed_connection_to_refused_address_is_rejected() {
    let installation = Installation::new().await;
    let node = machine(&installation, "m1.rack1.example.com").await;
    let bind = Edit::Bind(edit::Bind {
        deployment: installation.id("web").await,
        node,
        role: RoleName::parse("app").unwrap(),
    });
    let bound = installation.submit(&installation.ada, "web", vec![bind]).await;
    installation.approve(&installation.bo, bound).await;
    installation.commit(&installation.ada, bound).await.unwrap();
    for address in ["169.254.169.254", "metadata.google.internal", "127.0.0.1"] {
        let connection = NodeConnectionChange {
            addresses: Some(vec![address.into()]),
            ..NodeConnectionChange::default()
        };
        let refused = reviewed(
            &installation,
            node,
            vec![Edit::SetConnection(edit::SetConnection { node, connection })],
        )
        .await
        .unwrap_err();
        assert_eq!((refused.status, refused.code.as_str()), (422, "edit_refused"), "{address}");
        assert!(refused.detail.contains(" is not allowed: "), "{refused:?}");
    }
}

#[tokio::test]
async fn connection_stays_while_a_run_is_open() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let n1 = installation.node(1).await;
    installation.worker().await;
    store::runs::set_node_alive(installation.database.owner(), n1, true).await.unwrap();
    let claimed =
        store::runs::claim_runs(installation.database.worker(), Limits::default()).await.unwrap();
    assert_eq!(claimed.runs.len(), 1);
    let connection = NodeConnectionChange {
        root: Some("/srv/elsewhere/n1".into()),
        ..NodeConnectionChange::default()
    };
    let refused = reviewed(
        &installation,
        n1,
        vec![Edit::SetConnection(edit::SetConnection { node: n1, connection })],
    )
    .await
    .unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "busy"));
    assert!(refused.detail.contains(fqdn(1).as_str()), "{refused:?}");
}

/// The attack: a change is approved, then the record of the unbound node is redirected to another
/// address.
#[tokio::test]
async fn changed_record_voids_the_approved_review() {
    let installation = Installation::new().await;
    let n2 = installation.node(2).await;
    for change in [
        connection_change(NodeConnectionChange {
            root: Some("/srv/elsewhere/n2".into()),
            ..NodeConnectionChange::default()
        }),
        NodeChange { hints: Some(json!({"rack": 7})), ..NodeChange::default() },
    ] {
        let deployment = "web";
        let bind = Edit::Bind(edit::Bind {
            deployment: installation.id(deployment).await,
            node: n2,
            role: RoleName::parse("app").unwrap(),
        });
        let (proposal, version) =
            installation.propose(&installation.ada, deployment, vec![bind]).await;
        let review = installation
            .control
            .submit(&installation.ada, proposal, version, "Bind n2".into())
            .await
            .unwrap();
        installation
            .control
            .give_verdict(&installation.bo, review, VerdictKind::Approve, String::new())
            .await
            .unwrap();
        let now =
            installation.control.node(&installation.ada, fqdn(2).as_str()).await.unwrap().version;
        installation.control.change_node(&installation.ada, n2, now, change).await.unwrap();
        let refused = installation.control.commit(&installation.ada, review).await.unwrap_err();
        assert_eq!(refused.status, 409, "{refused:?}");
        let view = installation.control.review(&installation.ada, review).await.unwrap();
        let became = view.replaced_by.expect("the review is planned again");
        assert_eq!(became.moved, [format!("the record of node {}", fqdn(2))]);
        assert!(
            became.after.is_none() && became.refused[0].at == fqdn(2).as_str(),
            "the author must look at the changed review first: {became:?}"
        );
        let version = version_of(&installation, proposal).await;
        let again = installation
            .control
            .submit(&installation.ada, proposal, version, "Bind n2".into())
            .await
            .unwrap();
        let again = installation.control.review(&installation.ada, again).await.unwrap();
        assert!(again.verdicts.is_empty() && again.blueprint.is_none());
        assert_eq!(again.replaces.map(|came| came.before), Some(review));
        let doc: Option<Vec<u8>> =
            one(&installation, "SELECT doc FROM node WHERE fqdn = 'n2.house.example.com'").await;
        assert!(doc.is_none(), "no document was committed");
        installation
            .control
            .discard(&installation.ada, proposal, version_of(&installation, proposal).await)
            .await
            .unwrap();
    }
}

async fn version_of(installation: &Installation, proposal: ProposalId) -> i32 {
    let sql = "SELECT version FROM proposal WHERE id = $1";
    sqlx::query_scalar(sql).bind(proposal.0).fetch_one(installation.database.owner()).await.unwrap()
}

#[tokio::test]
async fn maintenance_blocks_new_runs_and_keeps_states() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let n1 = installation.node(1).await;
    let by = installation.worker().await;
    store::runs::set_node_alive(installation.database.owner(), n1, true).await.unwrap();
    let set = |maintenance| {
        installation.control.set_maintenance(&installation.ada, n1, maintenance, "new disks".into())
    };
    let states = || async {
        installation.steps().await.into_iter().map(|(_, _, state, _)| state).collect::<Vec<_>>()
    };
    let claim = || async {
        store::runs::claim_runs(installation.database.worker(), Limits::default())
            .await
            .unwrap()
            .runs
    };

    let queued = claim().await;
    set(true).await.unwrap();
    assert_eq!(
        states().await,
        ["todo", "blocked", "blocked"],
        "the queued run must end, so that its step is due again"
    );
    let outcome: String = one(&installation, "SELECT outcome || ', ' || error FROM run").await;
    assert_eq!(outcome, "unstarted, the node was put in maintenance");
    assert!(
        claim().await.is_empty()
            && store::runs::lease_runs(installation.database.worker(), by, &["noop"], 9, LONG)
                .await
                .unwrap()
                .is_empty()
    );
    let refused = set(true).await.unwrap_err();
    assert!(refused.code == "state" && refused.detail.contains("by ada: new disks"), "{refused:?}");
    let shown = installation.control.node(&installation.ada, fqdn(1).as_str()).await.unwrap();
    let out = shown.status.maintenance.unwrap();
    assert_eq!((out.by.as_deref(), out.reason.as_str()), (Some("ada"), "new disks"));

    set(false).await.unwrap();
    let run = claim().await[0];
    assert!(!queued.contains(&run));
    assert_eq!(
        store::runs::lease_runs(installation.database.worker(), by, &["noop"], 9, LONG)
            .await
            .unwrap()
            .len(),
        1
    );
    set(true).await.unwrap();
    assert_eq!(states().await, ["transition", "blocked", "blocked"], "the active run continues");
    let end = RunEnd::Succeeded { result: Default::default(), output: json!({}) };
    store::runs::finish_run(installation.database.worker(), run, by, &end).await.unwrap();
    assert_eq!(states().await, ["active", "todo", "blocked"]);
    assert!(claim().await.is_empty());
    set(false).await.unwrap();
    assert_eq!(claim().await.len(), 1);

    let actions = "SELECT string_agg(action, ' ' ORDER BY id) FROM audit WHERE action LIKE 'node.%maintenance'";
    let audit: String = one(&installation, actions).await;
    assert_eq!(
        audit,
        "node.start_maintenance node.end_maintenance node.start_maintenance node.end_maintenance"
    );
    let eve = viewer(&installation).await;
    let refused =
        installation.control.set_maintenance(&eve, n1, true, "x".into()).await.unwrap_err();
    assert_eq!(refused.status, 403);
    assert_eq!(
        installation
            .control
            .set_maintenance(&installation.ada, n1, true, " ".into())
            .await
            .unwrap_err()
            .status,
        400
    );
}

#[tokio::test]
async fn maintenance_requires_current_version_of_record() {
    let installation = Installation::new().await;
    let node = installation.node(1).await;
    let out = |version| {
        let seen = NodeAtVersion { node, version: Some(version) };
        installation.control.set_maintenance(&installation.ada, seen, true, "new disks".into())
    };
    // A change of descriptive data does not take the APPLY lock. It is written but not committed
    // yet.
    let mut transaction = installation.database.app().begin().await.unwrap();
    let change = "UPDATE node SET version = version + 1, description = 'by the door' WHERE id = $1";
    sqlx::query(change).bind(node.0).execute(&mut *transaction).await.unwrap();
    let between = async {
        installation.has_lock_waiter().await;
        transaction.commit().await.unwrap();
    };
    let (late, ()) = tokio::join!(out(1), between);
    let late = late.unwrap_err();
    assert_eq!((late.status, late.code.as_str()), (412, "changed_meanwhile"));
    let available: bool = sqlx::query_scalar("SELECT available FROM node WHERE id = $1")
        .bind(node.0)
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert!(available, "a rejected request must not change the node");
    out(2).await.unwrap();
}

#[tokio::test]
async fn node_restart_and_death_update_steps() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    check_node(&installation, id, Ok("boot-1")).await;
    let web = installation.id("web").await;
    let edit = Edit::Bind(edit::Bind {
        deployment: web,
        node: id,
        role: crate::installation::role("app"),
    });
    installation.moved_by("web", vec![edit]).await;
    let by = installation.worker().await;
    let states = || async {
        installation.steps().await.into_iter().map(|(_, _, state, _)| state).collect::<Vec<_>>()
    };
    let begun = || async {
        store::runs::claim_runs(installation.database.worker(), Limits::default()).await.unwrap();
        store::runs::lease_runs(installation.database.worker(), by, &["noop"], 9, LONG)
            .await
            .unwrap()[0]
            .run
    };
    let first = begun().await;
    let end = RunEnd::Succeeded { result: Default::default(), output: json!({}) };
    store::runs::finish_run(installation.database.worker(), first, by, &end).await.unwrap();
    let second = begun().await;
    assert_eq!(states().await, ["active", "transition", "blocked"]);

    assert!(
        !check_node(&installation, id, Ok("boot-1")).await
            && !check_node(&installation, id, Ok("unknown")).await
    );
    assert_eq!(states().await, ["active", "transition", "blocked"]);
    assert!(
        check_node(&installation, id, Ok("boot-2")).await,
        "one health check detects a restart"
    );
    assert_eq!(states().await, ["todo", "blocked", "blocked"], "the interrupted step is due again");
    let ended: String =
        one(&installation, "SELECT outcome FROM run WHERE id = (SELECT max(id) FROM run)").await;
    assert_eq!(ended, "lost");
    assert_eq!(
        store::runs::finish_run(installation.database.worker(), second, by, &end).await.unwrap(),
        store::runs::Finished::Late
    );
    let shown = installation.control.node(&installation.ada, "m1.rack1.example.com").await.unwrap();
    assert_eq!((shown.status.alive, shown.status.boot_id.as_deref()), (true, Some("boot-2")));
    assert_eq!(shown.status.joined.as_str(), "confirmed");

    // A health check that began before the change and ends after it.
    let late = HealthCheckResult {
        as_of: as_of(&installation, id).await,
        tried: Vec::new(),
        address: String::new(),
        came: Ok("boot-1".into()),
        survey: Some(Ok(())),
        took: Duration::from_secs(25),
        by: "slow".into(),
    };
    assert!(
        !store::nodes::record_health_check(installation.database.worker(), id, &late)
            .await
            .unwrap()
    );
    let boot: String = one(&installation, "SELECT boot_id FROM node WHERE transport = 'ssh'").await;
    assert_eq!(boot, "boot-2");
}

#[tokio::test]
async fn unconfirmed_node_gets_no_runs() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    let unread = HealthCheckResult {
        as_of: as_of(&installation, id).await,
        tried: Vec::new(),
        address: String::new(),
        came: Ok("boot-1".into()),
        survey: Some(Err("its disk is full".into())),
        took: Duration::ZERO,
        by: "w".into(),
    };
    assert!(
        store::nodes::record_health_check(installation.database.worker(), id, &unread)
            .await
            .unwrap()
    );
    let shown = installation.control.node(&installation.ada, "m1.rack1.example.com").await.unwrap();
    assert_eq!((shown.status.alive, shown.status.joined.as_str()), (true, "welcomed"));
    assert!(shown.health_checks[0].reached && shown.health_checks[0].message == "its disk is full");
    let web = installation.id("web").await;
    let edit = Edit::Bind(edit::Bind {
        deployment: web,
        node: id,
        role: crate::installation::role("app"),
    });
    installation.moved_by("web", vec![edit]).await;
    installation.worker().await;
    let claim = || async {
        store::runs::claim_runs(installation.database.worker(), Limits::default())
            .await
            .unwrap()
            .runs
            .len()
    };
    assert_eq!(claim().await, 0);
    assert!(check_node(&installation, id, Ok("boot-1")).await);
    assert_eq!(claim().await, 1);
}

#[tokio::test]
async fn health_check_overrides_report() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    check_node(&installation, id, Ok("boot-1")).await;
    let minted = installation
        .control
        .create_node_token(&installation.ada, id, "its unit".into(), 30)
        .await
        .unwrap();
    let identity = installation
        .control
        .authenticate_node(&minted.token, &ClientInfo::default())
        .await
        .unwrap();
    let now = || async {
        installation.control.node(&installation.ada, "m1.rack1.example.com").await.unwrap().status
    };
    let due = "SELECT health_checked_at IS NULL FROM node WHERE transport = 'ssh'";

    sql(&installation, "UPDATE node SET health_checked_at = now() WHERE transport = 'ssh'").await;
    installation.control.report_startup(&identity, "boot-1".into()).await.unwrap();
    assert_eq!(
        (now().await.joined.as_str(), now().await.alive),
        ("confirmed", true),
        "the confirmed state is kept"
    );
    installation.control.report_shutdown(&identity).await.unwrap();
    assert_eq!(
        (now().await.joined.as_str(), now().await.alive),
        ("welcomed", true),
        "the reported state is not confirmed by a health check"
    );
    assert!(one::<bool>(&installation, due).await, "a health check is due immediately");
    check_node(&installation, id, Ok("boot-1")).await;
    assert_eq!(
        (now().await.joined.as_str(), now().await.contradicting),
        ("confirmed", 0),
        "a successful health check overrides the report"
    );
    installation.control.report_shutdown(&identity).await.unwrap();
    assert!(
        check_node(&installation, id, Err("refused")).await,
        "one health check that confirms the report suffices"
    );
    assert!(!now().await.alive);
    installation.control.report_startup(&identity, "boot-2".into()).await.unwrap();
    assert!(!now().await.alive);
    check_node(&installation, id, Ok("boot-2")).await;
    assert_eq!((now().await.alive, now().await.boot_id.as_deref()), (true, Some("boot-2")));
    // The node reports a false boot id; a health check reads the real one.
    installation.control.report_startup(&identity, "boot-9".into()).await.unwrap();
    assert_eq!(now().await.joined.as_str(), "welcomed");
    check_node(&installation, id, Ok("boot-2")).await;
    assert_eq!(
        (now().await.joined.as_str(), now().await.boot_id.as_deref()),
        ("confirmed", Some("boot-2"))
    );

    installation.control.report_bootenv(&identity, "sledgehammer".into()).await.unwrap();
    assert_eq!(now().await.bootenv.as_deref(), Some("sledgehammer"));
    let reports =
        installation.control.node(&installation.ada, "m1.rack1.example.com").await.unwrap().reports;
    let kinds: Vec<&str> = reports.iter().map(|report| report.kind.as_str()).collect();
    assert_eq!(kinds, ["bootenv", "startup", "startup", "shutdown", "shutdown", "startup"]);
    for bad in ["", "a\nb", "größe", &"x".repeat(101)] {
        assert_eq!(
            installation.control.report_startup(&identity, bad.into()).await.unwrap_err().status,
            400,
            "{bad:?}"
        );
    }
}

#[tokio::test]
async fn node_token_is_hashed_expires_and_is_revocable() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    let mint =
        |name: &str| installation.control.create_node_token(&installation.ada, id, name.into(), 30);
    let lets_in = |token: String| {
        let control = installation.control.clone();
        async move { control.authenticate_node(&token, &ClientInfo::default()).await.is_ok() }
    };
    let (one_, two) = (mint("one").await.unwrap(), mint("two").await.unwrap());
    let stored: String =
        one(&installation, "SELECT string_agg(t::text || a::text, '') FROM token t, audit a").await;
    assert!(!stored.contains(&one_.token), "the database must not contain the token");
    assert!(lets_in(one_.token.clone()).await && lets_in(two.token.clone()).await);
    installation.control.revoke_node_token(&installation.ada, id, one_.id).await.unwrap();
    assert!(!lets_in(one_.token.clone()).await && lets_in(two.token.clone()).await);
    assert_eq!(
        installation
            .control
            .revoke_node_token(&installation.ada, id, one_.id)
            .await
            .unwrap_err()
            .status,
        404
    );
    let elsewhere = SshRequest { port: 2222, ..ssh() };
    let other =
        NodeRequest { ssh: Some(elsewhere), ..NodeRequest::named("m2.rack1.example.com", "") };
    let other = installation.control.add_node(&installation.ada, other).await.unwrap();
    assert_eq!(
        installation
            .control
            .revoke_node_token(&installation.ada, other, two.id)
            .await
            .unwrap_err()
            .status,
        404
    );
    sql(&installation, "UPDATE token SET expires_at = now() WHERE name = 'two'").await;
    assert!(!lets_in(two.token).await);

    for n in 0..10 {
        mint(&format!("t{n}")).await.unwrap();
    }
    assert_eq!(mint("one too many").await.unwrap_err().code, "too_many_tokens");
    let shown = installation.control.node(&installation.ada, &id.to_string()).await.unwrap().tokens;
    assert_eq!(shown.iter().filter(|token| token.valid).count(), 10);
    assert!(
        shown
            .iter()
            .any(|token| token.name == "one" && token.revoked.is_some() && token.used.is_some())
    );
    for (name, days) in [("", 1), ("x", 0), ("x", 367), ("a\nb", 1)] {
        let refused = installation
            .control
            .create_node_token(&installation.ada, id, name.into(), days)
            .await
            .unwrap_err();
        assert_eq!(refused.status, 400, "{name:?} {days}");
    }
    let eve = viewer(&installation).await;
    assert_eq!(
        installation.control.create_node_token(&eve, id, "x".into(), 1).await.unwrap_err().status,
        403
    );
    // A token of a deleted node is invalid.
    let last = installation
        .control
        .create_node_token(&installation.ada, other, "x".into(), 1)
        .await
        .unwrap();
    installation.control.delete_node(&installation.ada, other, None).await.unwrap();
    assert!(!lets_in(last.token).await);
}

#[tokio::test]
async fn reports_are_limited_and_role_facts_override_them() {
    let installation = Installation::new().await;
    let id = machine(&installation, "m1.rack1.example.com").await;
    let minted = installation
        .control
        .create_node_token(&installation.ada, id, "its unit".into(), 30)
        .await
        .unwrap();
    let identity = installation
        .control
        .authenticate_node(&minted.token, &ClientInfo::default())
        .await
        .unwrap();
    let large = json!({"x": "y".repeat(api::limits::FACTS)});
    let deep = (0..200).fold(json!(1), |inner, _| json!({ "a": inner }));
    let leak = json!({"a": {"$secret": "deploy/ssh", "version": 1}});
    for bad in [large, deep, leak, json!([1]), json!({"a": "\0"})] {
        assert_eq!(
            installation.control.report_facts(&identity, bad).await.unwrap_err().status,
            400
        );
    }
    installation
        .control
        .report_facts(&identity, json!({"cpu": {"cores": 4}, "os": "said"}))
        .await
        .unwrap();
    installation.control.report_facts(&identity, json!({"os": "said", "memory": 7})).await.unwrap();

    installation.bound("web", 2, "app").await;
    let (pool, by) = (installation.database.owner(), installation.worker().await);
    store::runs::set_node_alive(installation.database.owner(), installation.node(2).await, true)
        .await
        .unwrap();
    let run = store::runs::claim_runs(installation.database.worker(), Limits::default())
        .await
        .unwrap()
        .runs[0];
    let mut on = pool.acquire().await.unwrap();
    let found = json!({"os": "found"});
    let source = store::runs::FactSource::Role("facts", run);
    store::runs::store_facts(&mut on, id, source, found.as_object().unwrap()).await.unwrap();
    drop(on);
    // A role without the declaration stores no facts.
    store::runs::lease_runs(installation.database.worker(), by, &["noop"], 9, LONG).await.unwrap();
    let result = json!({"facts": {"cores": 1}}).as_object().unwrap().clone();
    store::runs::finish_run(
        installation.database.worker(),
        run,
        by,
        &RunEnd::Succeeded { result, output: json!({}) },
    )
    .await
    .unwrap();
    let stored: i64 = one(&installation, "SELECT count(*) FROM node_fact").await;
    assert_eq!(stored, 2);
    let all: Value = one(&installation, "SELECT facts FROM node WHERE transport = 'ssh'").await;
    assert_eq!(
        all,
        json!({"os": "found", "memory": 7}),
        "the newest value of each key counts, and facts of roles override those of machines"
    );
    let shown = installation.control.node(&installation.ada, &id.to_string()).await.unwrap().facts;
    let source =
        |facts: &NodeFacts| (facts.source, facts.role.as_ref().map(ToString::to_string), facts.run);
    let sources: Vec<_> = shown.iter().map(source).collect();
    let role = Some("facts".to_owned());
    let expected = [(FactSource::Role, role, Some(run)), (FactSource::Node, None, None)];
    assert_eq!(sources, expected);

    let mut refused = None;
    for _ in 0..store::nodes::MAX_REPORTS {
        refused = installation.control.report_shutdown(&identity).await.err().or(refused);
    }
    assert_eq!(
        refused.map(|problem| (problem.status, problem.code)),
        Some((429, "too_many_reports".into()))
    );
    let stored: i64 = one(&installation, "SELECT count(*) FROM node_report").await;
    assert_eq!(stored, store::nodes::MAX_REPORTS);
}
