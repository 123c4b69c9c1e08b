//! Runs operations with the generated client. Prints the name of each.
//!
//! `GANTRY_TOKEN` is a token of the author. `GANTRY_SESSION` is the cookie of the reviewer's
//! session, because no token allows verdicts.

use std::collections::BTreeSet;
use std::env;
use std::fmt::{Debug, Display};

use uuid::Uuid;

#[allow(dead_code, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/client/mod.rs"));
}

use generated::client::*;
use generated::types::*;

const NONE: Option<&str> = None;

/// The response of an operation, whose name is printed.
fn response<T, E: Debug + Display>(operation: &str, result: Result<T, E>) -> T {
    println!("{operation}");
    result.unwrap_or_else(|error| panic!("{operation}: {error}"))
}

/// The problem of an operation that must fail.
fn problem<T, E: Debug>(operation: &str, result: Result<T, ApiOpError<E>>) -> E {
    println!("{operation}");
    match result {
        Err(ApiOpError::Api(error)) => error.typed.expect("the problem has a declared type"),
        Err(error) => panic!("{operation}: {error:?}"),
        Ok(_) => panic!("{operation} must fail"),
    }
}

fn is(code: &ProblemCode, expected: KnownProblemCode) -> bool {
    matches!(code, ProblemCode::KnownProblemCode(code) if *code == expected)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let variable = |name| env::var(name).expect("the test sets its variables");
    let client = || HttpClient::new().with_base_url(variable("GANTRY_SERVER"));
    let author = client().with_api_key(variable("GANTRY_TOKEN"));
    let reviewer =
        client().with_header("Cookie", variable("GANTRY_SESSION")).with_header("X-Gantry", "1");
    read(&author).await;
    let node = change_node(&author).await;
    let review = propose(&author, node).await;
    approve(&author, &reviewer, &review).await;
    commit(&author, &review).await;
}

/// Enumerations, times, pages and problems.
async fn read(author: &HttpClient) {
    let me = response("getMe", author.get_me(NONE).await);
    assert_eq!(me.person.kind, AccountKind::Human);
    assert!(me.person.grants.iter().any(|grant| grant.permission == Permission::Operator));
    assert!((chrono::Utc::now() - me.person.created).num_hours() < 1, "{}", me.person.created);

    let mut names = BTreeSet::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = author.list_deployments(cursor, NONE, Some(1), None, None, NONE).await;
        let page = response("listDeployments", page);
        assert!(page.deployments.len() <= 1);
        assert!(page.deployments.into_iter().all(|deployment| names.insert(deployment.name)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert!(names.contains("system") && names.contains("web"), "{names:?}");

    let unknown = problem("getDeployment", author.get_deployment("nowhere", NONE).await);
    let GetDeploymentApiError::Status404(unknown) = unknown else { panic!("{unknown:?}") };
    assert!(is(&unknown.code, KnownProblemCode::NotFound), "{unknown:?}");
    assert_eq!(unknown.r#type, "urn:gantry:problem:not_found");
}

/// Filters nodes, and changes one on condition of its version.
async fn change_node(author: &HttpClient) -> NodeId {
    let sort = Some(ListNodesSort::NameDescending);
    let page = author.list_nodes(NONE, Some("system"), Some("n"), None, sort, None, NONE).await;
    let nodes = response("listNodes", page).nodes;
    assert!(nodes.is_sorted_by(|one, next| one.fqdn > next.fqdn) && !nodes.is_empty());
    assert!(nodes.iter().all(|node| node.deployment == "system"));
    let name = &nodes[0].fqdn;

    let node = response("getNode", author.get_node(name, NONE).await);
    let change = || NodeChange {
        description: Some(Some("changed by a generated client".into())),
        ..empty_change()
    };
    let version = Some(format!("\"{}\"", node.version));
    let changed = author.change_node(name, version.clone(), change()).await;
    assert_eq!(response("changeNode", changed).version, node.version + 1);
    let stale = problem("changeNode", author.change_node(name, version, change()).await);
    let ChangeNodeApiError::Status412(stale) = stale else { panic!("{stale:?}") };
    assert!(is(&stale.code, KnownProblemCode::ChangedMeanwhile), "{stale:?}");
    node.id
}

fn empty_change() -> NodeChange {
    NodeChange { connection: None, description: None, hints: None, macs: None, serial: None }
}

/// Proposes a deployment with a role on a node.
async fn propose(author: &HttpClient, node: NodeId) -> String {
    let request = DeploymentRequest { name: "generated".into(), parent: None };
    let proposed = author.create_deployment(Some(Uuid::new_v4().to_string()), request).await;
    let proposed = response("createDeployment", proposed);
    let barclamps = author.list_barclamps(NONE, Some("demo"), None, None, NONE).await;
    let demo = response("listBarclamps", barclamps).versions.remove(0);

    let deployment = proposed.id;
    let role = "base-files".to_owned();
    let edits = vec![
        EditInput::EditUseBarclampInput(EditUseBarclampInput {
            edit: EditUseBarclampInputEdit::UseBarclamp,
            deployment,
            barclamp: demo.barclamp,
            version: demo.hash,
        }),
        EditInput::EditBindInput(EditBindInput {
            edit: EditBindInputEdit::Bind,
            deployment,
            role,
            node,
        }),
    ];
    let request = EditsInput { version: proposed.version, edits };
    let proposal = proposed.proposal.to_string();
    let edited = author.edit_proposal(&proposal, NONE, NONE, request).await;
    let version = response("editProposal", edited).version;
    let request = SubmitRequest { title: "A generated client".into(), version };
    let submitted = author.submit_proposal(&proposal, NONE, NONE, request).await;
    response("submitProposal", submitted).review.to_string()
}

async fn approve(author: &HttpClient, reviewer: &HttpClient, review: &str) {
    let approve = || Verdict { kind: VerdictKind::Approve, reason: None, signature: None };
    let own = problem("giveVerdict", author.give_verdict(review, NONE, approve()).await);
    let GiveVerdictApiError::Status403(own) = own else { panic!("{own:?}") };
    assert!(is(&own.code, KnownProblemCode::NotAReviewer), "{own:?}");
    response("giveVerdict", reviewer.give_verdict(review, NONE, approve()).await);
    let seen = response("getReview", author.get_review(review, NONE).await);
    assert_eq!((seen.gate.approvals, seen.deployment.as_str()), (1, "system"));
}

/// Commits the review, waits until it is applied, and reads the log of its runs.
async fn commit(author: &HttpClient, review: &str) {
    let committed = response("commitReview", author.commit_review(review, NONE, None).await);
    let number = committed.blueprint.to_string();
    for _ in 0..6 {
        let blueprint = author.get_blueprint(&number, Some(20), NONE).await;
        match response("getBlueprint", blueprint).progress {
            Progress::InProgress => {}
            progress => {
                assert_eq!(progress, Progress::Converged);
                break;
            }
        }
    }
    let deployment = Some("generated");
    let state = Some("succeeded");
    let runs = author
        .list_runs(NONE, deployment, None, NONE, NONE, NONE, None, state, NONE, NONE, NONE)
        .await;
    let run = response("listRuns", runs).runs.remove(0);
    assert_eq!(run.state, RunState::Succeeded);
    let log = response("getRunLog", author.get_run_log(run.id.to_string(), None, NONE).await);
    assert!(log.complete && !log.pieces.is_empty(), "{log:?}");
}
