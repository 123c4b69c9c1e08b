//! The target history, and the comparison of two targets.

use std::collections::BTreeMap;

use api::blueprints::{BlueprintKind, Point};
use api::blueprints::{BlueprintSort, BlueprintsQuery};
use api::listing::{Cursor, Order};
use api::views::graph::{GraphOptions, GraphView};
use control::MissingVertex;
use engine::Hash;
use engine::blueprint::difference::Mark;
use engine::gate::Policy;
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, JigName, NodeId};
use engine::plan::{Edit, edit};
use serde_json::json;
use uuid::Uuid;

use crate::installation::{Installation, role};

/// The history of a deployment or of all, from the start or from a cursor.
fn of_line(deployment: &str, before: Option<&str>) -> BlueprintsQuery {
    let before = before.map(|place| Cursor::from(place.to_owned()));
    BlueprintsQuery { deployment: deployment.into(), before, ..BlueprintsQuery::default() }
}

fn target(n: i64) -> Point {
    Point::Number(BlueprintNumber(n))
}

#[tokio::test]
async fn target_history_names_authors_and_reasons() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.control.switch(&installation.ada, false, "a storm".into()).await.unwrap();
    let page =
        installation.control.targets(&installation.ada, &BlueprintsQuery::default()).await.unwrap();
    let listed: Vec<_> = page
        .blueprints
        .iter()
        .map(|t| (t.number.0, t.kind, t.title.as_str(), t.by.as_deref(), t.deployment.as_deref()))
        .collect();
    assert_eq!(
        listed,
        [
            (3, BlueprintKind::Switch, "Execution off: a storm", Some("ada"), None),
            (2, BlueprintKind::Change, "a change", Some("ada"), Some("web")),
            (1, BlueprintKind::Genesis, "Genesis", None, None),
        ]
    );
    assert_eq!(
        page.blueprints[0].root, page.blueprints[1].root,
        "a switch does not change the desired state"
    );
    assert_eq!((page.next, page.head), (None, BlueprintNumber(3)));
    assert_eq!(
        (page.blueprints[1].authors.as_slice(), page.blueprints[1].approved_by.as_slice()),
        (&["ada".to_owned()][..], &["bo".to_owned()][..])
    );
    let older =
        installation.control.targets(&installation.ada, &of_line("", Some("2"))).await.unwrap();
    assert_eq!(older.blueprints.iter().map(|t| t.number.0).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn target_pages_are_contiguous() {
    let installation = Installation::new().await;
    for n in 0..54 {
        installation
            .control
            .switch(&installation.ada, n % 2 == 1, "to and fro".into())
            .await
            .unwrap();
    }
    let first =
        installation.control.targets(&installation.ada, &BlueprintsQuery::default()).await.unwrap();
    assert_eq!(
        (first.blueprints.len(), first.next.clone()),
        (50, Some(Cursor::from("6".to_owned())))
    );
    let second = installation
        .control
        .targets(
            &installation.ada,
            &BlueprintsQuery { before: first.next, ..BlueprintsQuery::default() },
        )
        .await
        .unwrap();
    assert_eq!(second.blueprints.iter().map(|t| t.number.0).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
    assert_eq!(second.next, None);
    let sort = Order::ascending(BlueprintSort::Number);
    let oldest = installation
        .control
        .targets(&installation.ada, &BlueprintsQuery { sort, ..BlueprintsQuery::default() })
        .await
        .unwrap();
    assert_eq!(
        (oldest.blueprints[0].number, oldest.blueprints[49].number),
        (BlueprintNumber(1), BlueprintNumber(50))
    );
    let rest = BlueprintsQuery { sort, before: oldest.next, ..BlueprintsQuery::default() };
    let rest = installation.control.targets(&installation.ada, &rest).await.unwrap();
    assert_eq!(
        rest.blueprints.iter().map(|t| t.number.0).collect::<Vec<_>>(),
        [51, 52, 53, 54, 55]
    );
    assert_eq!(
        installation
            .control
            .targets(&installation.ada, &of_line("", Some("x")))
            .await
            .unwrap_err()
            .status,
        400
    );
}

#[tokio::test]
async fn comparison_works_in_both_directions() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = Edit::SetRoleData(edit::SetRoleData {
        deployment: installation.id("web").await,
        role: role("app"),
        data: json!({"port": 1}),
    });
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();

    let forth =
        installation.control.compare(&installation.cy, target(1), target(3), None).await.unwrap();
    let text = forth.text();
    assert!(text.contains("+ node n1.house.example.com in web\n"), "{text}");
    assert!(
        text.contains(" for web, waits for runtime\n") && text.contains("    /port: added 1\n"),
        "{text}"
    );
    assert_eq!((forth.impact.starts.count, forth.impact.waves.len()), (3, 3));
    let back =
        installation.control.compare(&installation.cy, target(3), target(1), None).await.unwrap();
    assert_eq!(back.difference.clone().mirrored(), forth.difference);
    assert_eq!(
        back.impact.lost.count, 3,
        "the node's document, a role of web and a value are lost"
    );

    let root: Hash = forth.to.root.clone().unwrap().parse().unwrap();
    let same = installation
        .control
        .compare(&installation.cy, Point::Root(root), target(3), None)
        .await
        .unwrap();
    assert!(same.difference.is_empty() && same.text().contains("No differences."));
    for (from, to, part) in [
        (target(9), target(1), "Blueprint 9 does not exist. Use a number from 1 to 3."),
        (target(1), Point::Root(Hash::of_bytes(b"x")), "No blueprint has the root"),
    ] {
        let refused =
            installation.control.compare(&installation.cy, from, to, None).await.unwrap_err();
        assert!(refused.status == 404 && refused.detail.contains(part), "{refused:?}");
    }
}

/// Jigs are in no document of the deployment, and the policy is in no document at all.
#[tokio::test]
async fn policies_and_jigs_appear_in_every_comparison() {
    let installation = Installation::new().await;
    let pass = async |edits| {
        let id = installation.submit(&installation.ada, "web", edits).await;
        installation.approve(&installation.bo, id).await;
        installation.approve(&installation.cy, id).await;
        installation.commit(&installation.ada, id).await.unwrap();
    };
    let policy = |approvals| {
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy { approvals, by_risk: BTreeMap::new(), ..Policy::default() },
        })
    };
    let jig = |active| {
        Edit::ActivateJig(edit::ActivateJig { jig: JigName::parse("script").unwrap(), active })
    };
    pass(vec![policy(2)]).await;
    installation.control.switch(&installation.ada, false, "a storm".into()).await.unwrap();
    pass(vec![jig(false)]).await;
    pass(vec![jig(true)]).await;
    pass(vec![policy(1)]).await;

    let found = async |from, to, only: Option<&str>| {
        let found = installation
            .control
            .compare(&installation.cy, target(from), target(to), only)
            .await
            .unwrap();
        let approvals = found
            .difference
            .policy
            .as_ref()
            .map(|sides| (sides.old.approvals, sides.new.approvals));
        let jigs =
            found.difference.deployments.iter().flat_map(|deployment| &deployment.inactive_jigs);
        (
            approvals,
            jigs.map(|jig| (jig.jig.to_string(), jig.mark == Mark::Added)).collect::<Vec<_>>(),
            found.more,
        )
    };
    let (none, off, on) =
        (Vec::new(), vec![("script".to_owned(), true)], vec![("script".to_owned(), false)]);
    for only in [None, Some("web"), Some("system")] {
        assert_eq!(found(1, 2, only).await, (Some((1, 2)), none.clone(), 0), "{only:?}");
        assert_eq!(found(2, 1, only).await, (Some((2, 1)), none.clone(), 0), "{only:?}");
        assert_eq!(
            found(2, 3, only).await,
            (None, none.clone(), 0),
            "a change of a switch: {only:?}"
        );
        assert_eq!(found(1, 4, only).await, (Some((1, 2)), off.clone(), 0), "{only:?}");
        assert_eq!(found(4, 6, only).await, (Some((2, 1)), on.clone(), 0), "{only:?}");
        assert_eq!(found(1, 6, only).await, (None, none.clone(), 0), "{only:?}");
    }
    let text = installation
        .control
        .compare(&installation.cy, target(1), target(4), Some("web"))
        .await
        .unwrap()
        .text();
    assert!(text.contains("* approval policy") && text.contains("script"), "{text}");
}

#[tokio::test]
async fn review_difference_shows_names() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edits = vec![installation.bind("web", 2, "app").await];
    let id = installation.submit(&installation.ada, "web", edits).await;
    let text = installation.control.review_difference(&installation.bo, id).await.unwrap().text();
    assert!(text.starts_with(&format!("from blueprint 2\nto   review {id}\n\n")), "{text}");
    assert!(text.contains("for web, waits for runtime on n1.house.example.com\n"), "{text}");
    assert!(!text.contains("noderole ") && !text.contains("deployment 0"), "{text}");
}

#[tokio::test]
async fn deployment_has_its_own_history_and_differences() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("edge", 2, "app").await;
    installation.control.switch(&installation.ada, false, "a storm".into()).await.unwrap();
    installation.control.switch(&installation.ada, true, "over".into()).await.unwrap();
    installation.bound("web", 3, "wipe").await;
    let line = async |name: &str| {
        let page =
            installation.control.targets(&installation.cy, &of_line(name, None)).await.unwrap();
        page.blueprints.iter().map(|t| t.number.0).collect::<Vec<_>>()
    };
    assert_eq!(line("web").await, [6, 2, 1]);
    assert_eq!(line("edge").await, [3, 1]);
    let older =
        installation.control.targets(&installation.cy, &of_line("web", Some("6"))).await.unwrap();
    assert_eq!(older.blueprints.iter().map(|t| t.number.0).collect::<Vec<_>>(), [2, 1]);

    let web = installation
        .control
        .compare(&installation.cy, target(1), target(6), Some("web"))
        .await
        .unwrap();
    let text = web.text();
    assert!(
        text.contains("in   web\n") && text.contains("n1.house") && !text.contains("n2.house"),
        "{text}"
    );
    assert!(text.ends_with("2 more documents differ.\n"), "{text}");
    assert_eq!(
        (web.more, web.impact.starts.count),
        (2, 4),
        "the changes of edge and its node are counted"
    );
    let unknown = installation
        .control
        .compare(&installation.cy, target(1), target(6), Some("wbe"))
        .await
        .unwrap_err();
    assert!(unknown.status == 404 && unknown.detail.contains("web"), "{unknown:?}");
}

/// Removed deployments stay visible under their last name.
#[tokio::test]
async fn removed_deployment_can_be_compared_and_drawn() {
    let installation = Installation::new().await;
    let then = installation.bound("web", 1, "app").await;
    let (web, system) = (installation.id("web").await, installation.id("system").await);
    let pass = async |on: &str, edits| {
        let id = installation.submit(&installation.ada, on, edits).await;
        installation.approve(&installation.bo, id).await;
        installation.commit(&installation.ada, id).await.unwrap()
    };
    pass(
        "web",
        vec![Edit::ExpungeNode(edit::ExpungeNode {
            node: installation.node(1).await,
            reason: "burnt".into(),
        })],
    )
    .await;
    let last =
        pass("web", vec![Edit::RemoveDeployment(edit::RemoveDeployment { deployment: web })]).await;
    assert_eq!((then, last), (BlueprintNumber(2), BlueprintNumber(4)));
    let (control, cy) = (&installation.control, &installation.cy);

    let line = control.targets(cy, &of_line("web", None)).await.unwrap();
    assert_eq!((line.blueprints[0].number, line.removed_in), (last, Some(last)));
    let gone = control.compare(cy, target(2), target(4), Some("web")).await.unwrap();
    let note = "Only blueprint 2 has deployment web. It does not exist in blueprint 4.";
    assert_eq!(
        (gone.note.as_deref(), gone.deployment.as_ref().map(|name| name.as_str())),
        (Some(note), Some("web"))
    );
    assert_eq!(gone.difference.deployments[0].mark, Mark::Removed);
    assert!(gone.text().contains(&format!("in   web\n{note}\n")), "{}", gone.text());
    let back = control.compare(cy, target(4), target(2), Some("web")).await.unwrap();
    assert_eq!(
        (back.note.as_deref(), back.difference.deployments[0].mark),
        (Some(note), Mark::Added)
    );
    let both = control.compare(cy, target(1), target(2), Some("web")).await.unwrap();
    assert_eq!((both.note, both.difference.nodes.len()), (None, 1));
    let neither = control.compare(cy, target(4), target(4), Some("web")).await.unwrap_err();
    let text =
        "Neither blueprint 4 nor blueprint 4 has the deployment web. Blueprint 4 removed it.";
    assert_eq!((neither.status, neither.detail.as_str()), (404, text));

    let drawn = async |name: &str, at: Option<i64>| {
        let request =
            GraphOptions { blueprint: at.map(BlueprintNumber), ..GraphOptions::default() };
        control.graph(cy, name, &request, MissingVertex::Note).await
    };
    let roles = |view: &GraphView| {
        view.vertices.iter().map(|vertex| vertex.role.to_string()).collect::<Vec<_>>()
    };
    let graph = drawn("web", Some(2)).await.unwrap();
    assert_eq!(
        (graph.blueprint, roles(&graph)),
        (Some(then), vec!["app".into(), "base".into(), "runtime".into()])
    );
    assert!(
        graph.vertices.iter().all(|vertex| vertex.appearances.is_empty()),
        "an earlier blueprint has no current step states"
    );
    let text =
        "This is deployment web at blueprint 2, without step states. Blueprint 4 removed it.";
    assert_eq!(graph.cut.as_deref(), Some(text));
    let graph = drawn("web", None).await.unwrap();
    assert_eq!(
        (graph.blueprint, graph.vertices.len()),
        (Some(BlueprintNumber(3)), 0),
        "the removed deployment is drawn at its last blueprint"
    );
    for (at, text) in [
        (4, "Blueprint 4 does not have the deployment web. Blueprint 4 removed it."),
        (9, "Blueprint 9 does not exist. Use a number from 1 to 4."),
    ] {
        let refused = drawn("web", Some(at)).await.unwrap_err();
        assert_eq!((refused.status, refused.detail.as_str()), (404, text));
    }
    let refused = drawn("wbe", Some(2)).await.unwrap_err();
    assert_eq!(
        (refused.status, refused.detail.as_str()),
        (404, "Deployment \"wbe\" does not exist. See the list of deployments.")
    );

    // A new deployment with the same name is another deployment.
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: DeploymentId(Uuid::from_u128(0xa0)),
        phantom: NodeId(Uuid::from_u128(0xa1)),
        name: DeploymentName::parse("web").unwrap(),
        parent: system,
    });
    pass("system", vec![create]).await;
    assert_eq!(control.targets(cy, &of_line("web", None)).await.unwrap().blueprints.len(), 1);
    let old = control.compare(cy, target(1), target(2), Some("web")).await.unwrap();
    assert_eq!(old.difference.nodes.len(), 1, "the name refers to the earlier deployment");
    assert_eq!(drawn("web", Some(2)).await.unwrap().vertices.len(), 3);
    assert_eq!(drawn("web", None).await.unwrap().blueprint, None);
    for (from, to, then, now) in
        [(2, 5, Mark::Removed, Mark::Added), (5, 2, Mark::Added, Mark::Removed)]
    {
        let others = control.compare(cy, target(from), target(to), Some("web")).await.unwrap();
        let note = format!(
            "Deployment web at blueprint {from} is not the same deployment as web at blueprint {to}."
        );
        assert_eq!(others.note, Some(note));
        assert_eq!(others.deployment.as_ref().map(|name| name.as_str()), Some("web"));
        let marks: BTreeMap<_, _> =
            others.difference.deployments.iter().map(|one| (one.id, one.mark)).collect();
        assert_eq!(
            marks,
            BTreeMap::from([(web, then), (DeploymentId(Uuid::from_u128(0xa0)), now)])
        );
        assert!(
            others.difference.nodes.iter().any(|node| node.noderoles.len() == 3),
            "the noderoles of the earlier deployment are compared"
        );
    }
}
