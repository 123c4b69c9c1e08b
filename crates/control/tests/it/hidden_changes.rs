//! Changes in reviews that are easy to miss: new parents of noderoles, the approval policy, and
//! edits in other deployments.

use std::collections::BTreeMap;

use api::views::graph::{GraphEdge, GraphOptions, GraphView};
use control::MissingVertex;
use control::people::{NewPerson, Permission};
use engine::blueprint::difference::Sides;
use engine::blueprint::text::{HashDescriptions, Names};
use engine::cluster::NoderoleKey;
use engine::gate::{Policy, Risk, SignedRule};
use engine::ids::{DeploymentId, DeploymentName, JigName, NodeId, ReviewId};
use engine::lint::LintCheck;
use engine::plan::{Edit, edit};
use uuid::Uuid;

use crate::installation::{Installation, fqdn, role};

impl Installation {
    /// The runtime moves from n1 to n2; both apps waited for the one on n1.
    async fn rewired(&self) -> ReviewId {
        self.bound("web", 1, "app").await;
        self.bound("web", 2, "app").await;
        let noderole = NoderoleKey::first(role("runtime"));
        let unbind = Edit::Unbind(edit::Unbind {
            node: self.node(1).await,
            noderole,
            with_dependents: false,
        });
        self.submit(&self.ada, "web", vec![self.bind("web", 2, "runtime").await, unbind]).await
    }
}

#[tokio::test]
async fn review_names_old_and_new_parents() {
    let installation = Installation::new().await;
    let id = installation.rewired().await;
    let (old, new) = (
        installation.noderole(1, "runtime").await,
        NoderoleKey::first(role("runtime")).id(installation.node(2).await),
    );
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    for n in [1, 2] {
        let node = review.difference.nodes.iter().find(|node| node.fqdn == fqdn(n)).unwrap();
        let app =
            node.noderoles.iter().find(|noderole| noderole.noderole.role == role("app")).unwrap();
        let of = |parent| {
            app.edges
                .iter()
                .find(|edge| edge.parent == parent)
                .map(|edge| (edge.old, edge.new))
                .unwrap()
        };
        assert!(matches!(of(old), (Some(_), None)), "{:?}", app.edges);
        assert!(matches!(of(new), (None, Some(_))), "{:?}", app.edges);
    }
    assert_eq!((&review.noderoles[&old].fqdn, &review.noderoles[&new].fqdn), (&fqdn(1), &fqdn(2)));
    // After the commit, the old edge exists only in the review.
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let later = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(later.noderoles.get(&old), review.noderoles.get(&old));
    let names = Names { deployments: later.deployments, noderoles: later.noderoles };
    let text = later.difference.text(&names, &HashDescriptions::default());
    assert!(text.contains(&format!("- waits for runtime on {}", fqdn(1))), "{text}");
}

#[tokio::test]
async fn parent_on_unchanged_node_keeps_its_name() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let id = installation
        .submit(&installation.ada, "web", vec![installation.bind("web", 2, "app").await])
        .await;
    let runtime = installation.noderole(1, "runtime").await;
    let before = installation.control.review(&installation.bo, id).await.unwrap().noderoles;
    assert_eq!(before[&runtime].fqdn, fqdn(1));
    let draft = installation.board("web").await.proposal.unwrap();
    installation.control.discard(&installation.ada, draft.id, draft.version).await.unwrap();
    let noderole = NoderoleKey::first(role("app"));
    let mut gone = vec![Edit::Unbind(edit::Unbind {
        node: installation.node(1).await,
        noderole,
        with_dependents: false,
    })];
    let noderole = NoderoleKey::first(role("runtime"));
    gone.push(Edit::Unbind(edit::Unbind {
        node: installation.node(1).await,
        noderole,
        with_dependents: false,
    }));
    let gone = installation.submit(&installation.ada, "web", gone).await;
    installation.approve(&installation.bo, gone).await;
    installation.commit(&installation.ada, gone).await.unwrap();
    let after = installation.control.review(&installation.bo, id).await.unwrap().noderoles;
    assert_eq!(
        after.get(&runtime),
        before.get(&runtime),
        "the edge keeps its name for as long as it exists"
    );
}

fn edge<'v>(view: &'v GraphView, from: &str, to: &str) -> Option<&'v GraphEdge> {
    let at = |name: &str| {
        view.vertices.iter().position(|vertex| match &vertex.noderole {
            Some(one) => format!("{}@{}", vertex.role, one.short) == name,
            None => vertex.role.as_str() == name,
        })
    };
    let (from, to) = (at(from)?, at(to)?);
    view.edges.iter().find(|edge| (edge.from, edge.to) == (from, to))
}

#[tokio::test]
async fn review_graph_has_added_and_removed_edges() {
    let installation = Installation::new().await;
    let id = installation.rewired().await;
    let graph = async |options: GraphOptions| {
        installation
            .control
            .review_graph(&installation.bo, id, &options, MissingVertex::Note)
            .await
            .unwrap()
    };
    let folded = graph(GraphOptions::default()).await;
    let reported = |edge: &GraphEdge| (edge.count, edge.added, edge.removed);
    assert_eq!(edge(&folded, "runtime", "app").map(reported), Some((2, 2, 2)));
    let open = graph(GraphOptions {
        roles: vec![role("runtime"), role("app")],
        ..GraphOptions::default()
    })
    .await;
    assert_eq!(edge(&open, "runtime@n1", "app@n1").map(reported), Some((0, 0, 1)));
    assert_eq!(edge(&open, "runtime@n1", "app@n2").map(reported), Some((0, 0, 1)));
    assert_eq!(edge(&open, "runtime@n2", "app@n2").map(reported), Some((1, 1, 0)));
    // A removed noderole waits for nothing any more.
    assert_eq!(
        edge(&open, "base", "runtime@n1").map(|edge| (edge.count, edge.removed)),
        Some((0, 1))
    );
    let present = installation
        .control
        .graph(&installation.bo, "web", &GraphOptions::default(), MissingVertex::Note)
        .await
        .unwrap();
    assert!(present.edges.iter().all(|edge| (edge.added, edge.removed) == (0, 0)));
}

#[tokio::test]
async fn policy_change_shows_both_sides_and_warns() {
    let policy = |destructive| Policy {
        approvals: 1,
        by_risk: BTreeMap::from([(Risk::Destructive, destructive)]),
        ..Policy::default()
    };
    let installation = Installation::under(policy(2)).await;
    let id = installation
        .submit(
            &installation.ada,
            "web",
            vec![Edit::SetPolicy(edit::SetPolicy { policy: policy(1) })],
        )
        .await;
    let undo = installation.board("web").await.proposal.unwrap().undo.unwrap();
    assert_eq!(
        undo,
        "require one approval for changes in every deployment, 1 for a destructive change"
    );
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.difference.policy, Some(Sides { old: policy(2), new: policy(1) }));
    let text = installation.control.review_difference(&installation.bo, id).await.unwrap();
    let text = text.difference.text(&text.names, &HashDescriptions::default());
    assert!(text.contains("destructive: 2 -> 1") && !text.contains("No differences"), "{text}");
    assert!(
        review.checks.iter().any(|finding| finding.check == LintCheck::PolicyWeaker),
        "{:?}",
        review.checks
    );
    let signed = SignedRule { deployment: Some(installation.id("edge").await), risk: None };
    let signed = Edit::SetPolicy(edit::SetPolicy {
        policy: Policy { signed: [signed].into(), ..policy(1) },
    });
    let open = installation.board("web").await.proposal.unwrap().id;
    let lines = installation
        .control
        .preview_edits(&installation.ada, open, vec![signed])
        .await
        .unwrap()
        .lines;
    assert!(
        lines[0]
            .ends_with(", approvals signed with a passkey for every change of deployment edge."),
        "{lines:?}"
    );
    // The same after the commit.
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let later = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(later.difference.policy, review.difference.policy);
}

#[tokio::test]
async fn policy_change_since_last_view_is_shown() {
    let installation = Installation::new().await;
    installation
        .people
        .create_person(None, &NewPerson::human("dee", [Permission::Reviewer]))
        .await
        .unwrap();
    let policy = |approvals| {
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy { approvals, by_risk: BTreeMap::new(), ..Policy::default() },
        })
    };
    let first = installation.submit(&installation.ada, "web", vec![policy(2)]).await;
    installation.control.record_view(&installation.bo, first).await.unwrap();
    let second = installation.submit(&installation.ada, "web", vec![policy(3)]).await;
    let since = installation.control.changes_since_view(&installation.bo, second).await.unwrap();
    let sides = since.difference.policy.unwrap();
    assert_eq!((sides.old.approvals, sides.new.approvals, since.same_effect), (2, 3, false));
}

#[tokio::test]
async fn edit_names_deployment_unless_it_is_current() {
    let installation = Installation::new().await;
    let (id, phantom) = (DeploymentId(Uuid::from_u128(77)), NodeId(Uuid::from_u128(78)));
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id,
        phantom,
        name: DeploymentName::parse("web-canary").unwrap(),
        parent: installation.id("web").await,
    });
    let below = Edit::AddRole(edit::AddRole { deployment: id, role: role("app") });
    let bound = installation.bind("web", 1, "app").await;
    installation.propose(&installation.ada, "web", vec![create, below, bound]).await;
    let edits = installation.board("web").await.proposal.unwrap().edits;
    let texts: Vec<&str> = edits.iter().map(|edit| edit.text.as_str()).collect();
    assert_eq!(
        texts,
        ["create web-canary below web", "add role app in web-canary", "bind n1 to app"]
    );
}

#[tokio::test]
async fn severe_lines_always_come_first() {
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Halt, 3)].into(),
        ..Policy::default()
    })
    .await;
    installation.bound("web", 1, "app").await;
    let web = installation.id("web").await;
    let mut edits: Vec<Edit> = (100..150_u128)
        .map(|n| {
            Edit::CreateDeployment(edit::CreateDeployment {
                id: DeploymentId(Uuid::from_u128(n)),
                phantom: NodeId(Uuid::from_u128(1000 + n)),
                name: DeploymentName::parse(&format!("web-{n}")).unwrap(),
                parent: web,
            })
        })
        .collect();
    edits.extend([
        Edit::Unbind(edit::Unbind {
            node: installation.node(1).await,
            noderole: NoderoleKey::first(role("app")),
            with_dependents: false,
        }),
        Edit::RemoveRole(edit::RemoveRole { deployment: web, role: role("still") }),
        Edit::MoveNode(edit::MoveNode { node: installation.node(2).await, deployment: web }),
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy {
                approvals: 1,
                by_risk: [(Risk::Halt, 3), (Risk::Rerun, 1)].into(),
                ..Policy::default()
            },
        }),
        Edit::ActivateJig(edit::ActivateJig {
            jig: JigName::parse("script").unwrap(),
            active: false,
        }),
    ]);
    let (proposal, version) = installation.propose(&installation.ada, "web", edits).await;
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "a lot".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    let grave = [
        "Removes role still and its data from web.",
        "Removes app from n1.",
        "Turns jig script off: no step that needs it starts in any deployment.",
        "Sets the policy for all later changes in every deployment: one approval for every \
         change, 1 for a re-run, 3 for a switched-off jig.",
        "n2 moves from system to web.",
        "Creates web-100 below web.",
    ];
    assert_eq!(review.summary[..6], grave);
    assert_eq!(review.requested[..6], grave);
    assert_eq!(review.always_shown, 5, "these lines must never be collapsed");
    assert_eq!(review.summary.len(), 41, "{:?}", review.summary);
    assert!(review.risks.contains(&Risk::Halt), "{:?}", review.risks);
    assert_eq!(review.gate.needed, 3, "the policy requires three approvals if a jig is disabled");
}
