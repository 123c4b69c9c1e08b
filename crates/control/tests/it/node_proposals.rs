//! Proposals on a single node, and edits of several people in one proposal.

use api::proposals::ProposalsQuery;
use api::reviews::ReviewStateFilter;
use engine::ids::{NodeId, ProposalId};
use engine::plan::{Edit, edit};
use serde_json::json;

use crate::installation::{Installation, role};

async fn on_node(installation: &Installation, n: usize) -> (ProposalId, NodeId) {
    let node = installation.node(n).await;
    (installation.control.propose_on_node(&installation.ada, node).await.unwrap(), node)
}

#[tokio::test]
async fn new_node_is_bootstrapped_by_its_own_proposal() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 2, "still").await;
    let web = installation.submit(&installation.ada, "web", vec![edit]).await;
    let (proposal, node) = on_node(&installation, 1).await;
    assert_eq!(
        installation.control.propose_on_node(&installation.cy, node).await.unwrap(),
        proposal,
        "each node has one open proposal"
    );
    assert_ne!(on_node(&installation, 2).await.0, proposal);

    let edit = Edit::Bind(edit::Bind {
        deployment: installation.id("system").await,
        node,
        role: role("runtime"),
    });
    let version =
        installation.control.edit(&installation.ada, proposal, 0, vec![edit]).await.unwrap();
    let view = installation.control.node_proposal(&installation.bo, proposal).await.unwrap();
    let carried: Vec<(String, bool)> =
        view.noderoles.iter().map(|c| (c.noderole.to_string(), c.proposed)).collect();
    assert_eq!(carried, [("base".to_owned(), true), ("runtime".to_owned(), true)]);
    assert!(!view.choices.iter().any(|choice| choice.role == role("runtime")));
    let listed = installation
        .control
        .proposals(&installation.bo, &ProposalsQuery::default())
        .await
        .unwrap()
        .proposals;
    let scope = |id| {
        listed
            .iter()
            .find(|p| p.id == id)
            .map(|p| (p.scope.deployment.to_string(), p.scope.node.clone()))
    };
    let (deployment, on) = scope(proposal).unwrap();
    assert_eq!(
        (deployment.as_str(), on.unwrap().fqdn.as_str()),
        ("system", "n1.house.example.com")
    );
    assert_eq!(listed.len(), 3);

    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "bootstrap n1".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.fqdn.as_deref(), Some("n1.house.example.com"));
    assert_eq!(
        installation.commit(&installation.ada, id).await.unwrap_err().code,
        "not_approved",
        "a node proposal passes the same gate"
    );
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    assert_eq!(installation.steps().await.len(), 2);
    // The review of web reads nothing of this, so it stays valid.
    let web = installation.control.review(&installation.bo, web).await.unwrap();
    assert_eq!(web.replaced_by, None);
}

#[tokio::test]
async fn node_proposal_changes_only_its_node() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 2, "app").await;
    let (proposal, n1) = on_node(&installation, 1).await;
    let (web, edge, n2) =
        (installation.id("web").await, installation.id("edge").await, installation.node(2).await);
    let before = installation.traces().await;
    let cases = [
        (
            Edit::Bind(edit::Bind { deployment: web, node: n2, role: role("wipe") }),
            "only for node n1.house.example.com",
        ),
        (
            Edit::Bind(edit::Bind { deployment: edge, node: n1, role: role("wipe") }),
            "only for node n1.house.example.com",
        ),
        (
            Edit::MoveNode(edit::MoveNode { node: n1, deployment: edge }),
            "only for node n1.house.example.com",
        ),
        (
            Edit::SetRoleData(edit::SetRoleData {
                deployment: web,
                role: role("app"),
                data: json!({}),
            }),
            "Propose this change on the deployment",
        ),
        (
            Edit::AddRole(edit::AddRole { deployment: web, role: role("wipe") }),
            "Propose this change on the deployment",
        ),
    ];
    for (edit, part) in cases {
        let problem = installation
            .control
            .edit(&installation.ada, proposal, 0, vec![edit])
            .await
            .unwrap_err();
        assert!(problem.status == 422 && problem.detail.contains(part), "{part}: {problem:?}");
    }
    // app on n2 waits for the runtime on n1, which was bound first. So its removal affects n2.
    let key = engine::cluster::NoderoleKey::first(role("runtime"));
    let edit = Edit::Unbind(edit::Unbind { node: n1, noderole: key, with_dependents: true });
    let problem =
        installation.control.edit(&installation.ada, proposal, 0, vec![edit]).await.unwrap_err();
    assert!(problem.detail.contains("n2.house.example.com would change too"), "{problem:?}");
    assert_eq!(installation.traces().await, before);
    let phantom: uuid::Uuid = sqlx::query_scalar("SELECT id FROM node WHERE phantom LIMIT 1")
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert_eq!(
        installation
            .control
            .propose_on_node(&installation.ada, NodeId(phantom))
            .await
            .unwrap_err()
            .code,
        "phantom"
    );
}

#[tokio::test]
async fn database_permits_one_proposal_per_node() {
    let installation = Installation::new().await;
    let (first, node) = on_node(&installation, 1).await;
    let (one, two) = tokio::join!(
        installation.control.propose_on_node(&installation.bo, node),
        installation.control.propose_on_node(&installation.cy, node)
    );
    assert_eq!((one.unwrap(), two.unwrap()), (first, first));
    let again = "INSERT INTO proposal (deployment_id, node_id, kind, created_by)
                 SELECT deployment_id, node_id, kind, created_by FROM proposal WHERE kind = 'node_scoped'";
    assert!(sqlx::query(again).execute(installation.database.app()).await.is_err());
    let odd = "INSERT INTO proposal (deployment_id, node_id, kind, created_by)
               SELECT deployment_id, node_id, 'personal', created_by FROM proposal";
    assert!(
        sqlx::query(odd).execute(installation.database.app()).await.is_err(),
        "a proposal names a node only if its kind requires one"
    );
    installation.control.discard(&installation.ada, first, 0).await.unwrap();
    assert_ne!(on_node(&installation, 1).await.0, first);
}

#[tokio::test]
async fn node_removal_discards_its_proposal() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let (proposal, node) = on_node(&installation, 1).await;
    let edit = Edit::ExpungeNode(edit::ExpungeNode { node, reason: "burnt".into() });
    installation.moved_by("web", vec![edit]).await;
    assert_eq!(
        installation.control.proposal(&installation.ada, proposal).await.unwrap_err().code,
        "closed"
    );
}

#[tokio::test]
async fn conflicting_edits_name_both_authors() {
    let installation = Installation::new().await;
    let one = installation.data_edit("web", json!({"a": 1})).await;
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![one]).await;
    let two = vec![
        installation.data_edit("web", json!({"a": 1, "b": 1})).await,
        installation.data_edit("web", json!({"a": 2, "b": 1})).await,
    ];
    let version =
        installation.control.edit(&installation.bo, proposal, version, two).await.unwrap();
    let clashes = installation.board("web").await.proposal.unwrap().clashes;
    let [clash] = clashes.as_slice() else { panic!("{clashes:?}") };
    assert_eq!(
        (clash.earlier, clash.earlier_by.as_str(), clash.later, clash.later_by.as_str()),
        (1, "ada", 3, "bo")
    );
    assert_eq!(clash.subject, "/a of app");
    let (_, shown) = installation.control.proposal(&installation.cy, proposal).await.unwrap();
    assert_eq!(shown.clashes, clashes);
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "both".into())
        .await
        .unwrap();
    let reviewed = installation.control.review(&installation.cy, id).await.unwrap().clashes;
    let lines: Vec<_> =
        reviewed.iter().map(|clash| (clash.earlier, clash.later, clash.subject.as_str())).collect();
    assert_eq!(
        lines,
        [(1, 3, "/a of app in web")],
        "the review shows the conflict to its approvers"
    );
    installation.control.undo(&installation.ada, proposal, version).await.unwrap();
    assert_eq!(
        installation.board("web").await.proposal.unwrap().clashes,
        [],
        "an undone edit causes no clash"
    );
}

#[tokio::test]
async fn node_proposal_outlives_its_first_deployment() {
    let installation = Installation::new().await;
    let (web, edge, n1) =
        (installation.id("web").await, installation.id("edge").await, installation.node(1).await);
    installation
        .moved_by("web", vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: web })])
        .await;
    let (proposal, _) = on_node(&installation, 1).await;
    installation
        .moved_by("edge", vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: edge })])
        .await;
    installation
        .moved_by("web", vec![Edit::RemoveDeployment(edit::RemoveDeployment { deployment: web })])
        .await;

    let listed = installation
        .control
        .proposals(&installation.bo, &ProposalsQuery::default())
        .await
        .unwrap()
        .proposals;
    let scopes: Vec<_> = listed.iter().map(|p| (p.id, p.scope.deployment.to_string())).collect();
    assert_eq!(scopes, [(proposal, "edge".to_owned())], "the scope is the deployment of the node");
    assert_eq!(
        installation
            .control
            .proposal(&installation.bo, proposal)
            .await
            .unwrap()
            .0
            .deployment
            .as_str(),
        "edge"
    );
    assert_eq!(
        installation
            .control
            .node_proposal(&installation.bo, proposal)
            .await
            .unwrap()
            .scope
            .deployment
            .as_str(),
        "edge"
    );
    // The review is listed and committed like others, also if the node was removed since.
    let edit = Edit::ExpungeNode(edit::ExpungeNode { node: n1, reason: "burnt".into() });
    let version =
        installation.control.edit(&installation.ada, proposal, 0, vec![edit]).await.unwrap();
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "give n1 up".into())
        .await
        .unwrap();
    assert_eq!(installation.listed(&installation.bo, ReviewStateFilter::Open).await[0].review, id);
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(
        (review.state, review.deployment.as_str()),
        (api::reviews::ReviewState::Committed, "web")
    );
}

#[tokio::test]
async fn node_proposal_cannot_bind_a_service() {
    let installation = Installation::new().await;
    let text = "barclamp: {name: names, version: '1'}\nroles:\n  - {name: dns, jig: noop, flags: [service]}\n  - {name: client, jig: noop, requires: [dns]}\n";
    let files = [("names/names.yml".to_owned(), text.as_bytes().to_vec())].into();
    let version = installation
        .control
        .import_barclamps(Some(&installation.ada), &files)
        .await
        .unwrap()
        .barclamps[0]
        .hash;
    let (web, n1) = (installation.id("web").await, installation.node(1).await);
    let barclamp = engine::ids::BarclampName::parse("names").unwrap();
    let using = Edit::UseBarclamp(edit::UseBarclamp { deployment: web, barclamp, version });
    installation
        .moved_by("web", vec![using, Edit::MoveNode(edit::MoveNode { node: n1, deployment: web })])
        .await;

    let (proposal, node) = on_node(&installation, 1).await;
    let bind =
        |name: &str| vec![Edit::Bind(edit::Bind { deployment: web, node, role: role(name) })];
    let refused =
        installation.control.edit(&installation.ada, proposal, 0, bind("dns")).await.unwrap_err();
    assert_eq!(refused.status, 422);
    assert!(refused.detail.contains("dns is a service of the whole deployment web"), "{refused:?}");
    let offered =
        installation.control.node_proposal(&installation.ada, proposal).await.unwrap().choices;
    assert!(offered.iter().any(|choice| choice.role == role("client")));
    assert!(!offered.iter().any(|choice| choice.role == role("dns")), "a service is not offered");
    // The required role is added too.
    installation.control.edit(&installation.ada, proposal, 0, bind("client")).await.unwrap();
    let view = installation.control.node_proposal(&installation.ada, proposal).await.unwrap();
    assert_eq!(view.proposal.added, 2);
}

#[tokio::test]
async fn moved_node_proposal_has_equal_effect() {
    let installation = Installation::new().await;
    let (web, n1) = (installation.id("web").await, installation.node(1).await);
    let (proposal, node) = on_node(&installation, 1).await;
    let bind = Edit::Bind(edit::Bind {
        deployment: installation.id("system").await,
        node,
        role: role("runtime"),
    });
    let version =
        installation.control.edit(&installation.ada, proposal, 0, vec![bind]).await.unwrap();
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "bootstrap n1".into())
        .await
        .unwrap();
    installation
        .moved_by("web", vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: web })])
        .await;
    let became =
        installation.control.review(&installation.bo, id).await.unwrap().replaced_by.unwrap();
    assert_eq!(
        (became.after, became.moved),
        (None, vec!["n1.house.example.com (changed by another blueprint)".to_owned()])
    );
    assert_eq!(became.refused[0].at, "n1.house.example.com");
    let version = installation
        .control
        .node_proposal(&installation.ada, proposal)
        .await
        .unwrap()
        .proposal
        .version;
    let again = installation
        .control
        .submit(&installation.ada, proposal, version, "bootstrap n1".into())
        .await
        .unwrap();
    let came =
        installation.control.review(&installation.bo, again).await.unwrap().replaces.unwrap();
    assert!(came.before == id && came.same_effect, "{:?}", came.effect_changes);
}
