//! Moving a deployment below another parent, from the proposal to the commit.

use api::blueprints::Point;
use api::reviews::{ReviewState, ReviewStateFilter};
use engine::gate::{Policy, Risk, Rule};
use engine::ids::{BarclampName, DeploymentId};
use engine::plan::{Edit, edit};

use crate::installation::{BARCLAMP, Installation};

async fn move_below(installation: &Installation, deployment: &str, parent: &str) -> Edit {
    let (deployment, parent) = (installation.id(deployment).await, installation.id(parent).await);
    Edit::MoveDeployment(edit::MoveDeployment { deployment, parent })
}

async fn parent_of(installation: &Installation, deployment: &str) -> DeploymentId {
    let sql = "SELECT parent FROM deployment WHERE name = $1";
    let parent =
        sqlx::query_scalar(sql).bind(deployment).fetch_one(installation.database.owner()).await;
    DeploymentId(parent.unwrap())
}

/// The deployments that the commit of this blueprint wrote.
async fn written(installation: &Installation, blueprint: i64) -> Vec<String> {
    let sql = "SELECT d.name FROM blueprint_deployment b JOIN deployment d ON d.id = b.deployment_id \
               WHERE b.blueprint_number = $1 ORDER BY d.name";
    sqlx::query_scalar(sql).bind(blueprint).fetch_all(installation.database.owner()).await.unwrap()
}

#[tokio::test]
async fn deployment_moves_by_reviewed_proposal() {
    let installation = Installation::under(Policy {
        approvals: 1,
        by_risk: [(Risk::Move, 2)].into(),
        ..Policy::default()
    })
    .await;
    installation.bound("web", 1, "app").await;
    let before = installation.steps().await;
    let edit = move_below(&installation, "web", "edge").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.summary[0], "Deployment web moves from system to edge.");
    assert_eq!((review.risks.as_slice(), review.gate.needed), ([Risk::Move].as_slice(), 2));
    installation.approve(&installation.bo, id).await;
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert_eq!(refused.code, "not_approved", "the policy requires two approvals for a move");
    installation.approve(&installation.cy, id).await;
    let blueprint = installation.commit(&installation.ada, id).await.unwrap();

    assert_eq!(parent_of(&installation, "web").await, installation.id("edge").await);
    assert_eq!(written(&installation, blueprint.0).await, ["edge", "system", "web"]);
    assert_eq!(installation.steps().await, before, "a move runs no step again");
    assert_eq!(
        installation.board("web").await.ancestors,
        ["system", "edge"].map(|name| name.parse().unwrap())
    );

    // An earlier blueprint restores the parent.
    let then = engine::ids::BlueprintNumber(blueprint.0 - 1);
    let restored =
        installation.control.restore(&installation.ada, "web", then, false).await.unwrap();
    assert_eq!((restored.edits, restored.missing.len()), (1, 0));
    let title = "as it was".to_owned();
    let id = installation
        .control
        .submit(&installation.ada, restored.proposal, restored.version, title)
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    installation.approve(&installation.cy, id).await;
    let back = installation.commit(&installation.ada, id).await.unwrap();
    assert_eq!(parent_of(&installation, "web").await, installation.id("system").await);
    let point = Point::Number;
    let left =
        installation.control.compare(&installation.cy, point(then), point(back), Some("web"));
    assert_eq!(left.await.unwrap().difference.deployments, vec![]);
}

#[tokio::test]
async fn steps_with_other_inherited_content_run_again() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let files = BARCLAMP.replace("version: '1'", "version: '2'").replace("8080", "9090");
    let files = [("stack/stack.yml".to_owned(), files.into_bytes())].into();
    let imported =
        installation.control.import_barclamps(Some(&installation.ada), &files).await.unwrap();
    let use_new = Edit::UseBarclamp(edit::UseBarclamp {
        deployment: installation.id("edge").await,
        barclamp: BarclampName::parse("stack").unwrap(),
        version: imported.barclamps[0].hash,
    });
    installation.moved_by("edge", vec![use_new]).await;
    let edit = move_below(&installation, "web", "edge").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.risks, [Risk::Rerun, Risk::Move]);
    installation.approve(&installation.bo, id).await;
    let blueprint = installation.commit(&installation.ada, id).await.unwrap();
    let again: Vec<String> = installation
        .steps()
        .await
        .into_iter()
        .filter(|(.., generation)| *generation == blueprint.0)
        .map(|(role, ..)| role)
        .collect();
    assert_eq!(again, ["app"]);
}

#[tokio::test]
async fn commit_at_either_place_voids_review_of_move() {
    let installation = Installation::new().await;
    let edit = move_below(&installation, "web", "edge").await;
    let review = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, review).await;
    installation.bound("edge", 3, "app").await;
    let refused = installation.commit(&installation.ada, review).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "not_newest"), "{refused:?}");
}

/// Approved, and then the old parent is put on hold.
#[tokio::test]
async fn move_out_of_a_hold_waits_until_it_ends() {
    let installation = Installation::new().await;
    let edit = move_below(&installation, "web", "edge").await;
    installation.moved_by("web", vec![edit]).await;
    installation.bound("web", 1, "app").await;
    let edit = move_below(&installation, "web", "system").await;
    let review = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, review).await;
    let edge = installation.id("edge").await;
    let hold = async |on_hold: bool| {
        let done = installation.control.hold(&installation.bo, edge, on_hold, "incident".into());
        done.await.unwrap();
    };
    hold(true).await;

    let refused = installation.commit(&installation.ada, review).await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "leaves_hold"), "{refused:?}");
    let reason = "The change moves a deployment out of a hold: web leaves edge (on hold by bo). \
                  Ask an operator to end the hold of edge first, or wait until it ends";
    assert_eq!(refused.errors[0].at, "leaves_hold");
    assert!(refused.detail.contains(reason), "{refused:?}");
    let shown = installation.control.review(&installation.cy, review).await.unwrap();
    let broken: Vec<_> = shown.gate.broken().map(|rule| (rule.rule, rule.text.as_str())).collect();
    assert_eq!(broken, [(Rule::Resolved, reason)]);
    let listed = installation.listed(&installation.cy, ReviewStateFilter::Open).await;
    assert_eq!(listed[0].state, ReviewState::Invalid);
    assert_eq!(parent_of(&installation, "web").await, edge);

    hold(false).await;
    installation.commit(&installation.ada, review).await.unwrap();
    let shown = installation.control.review(&installation.cy, review).await.unwrap();
    assert!(shown.gate.is_open());
}

#[tokio::test]
async fn hold_of_new_parent_applies_from_commit_on() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edge = installation.id("edge").await;
    let hold = installation.control.hold(&installation.bo, edge, true, "incident".into());
    hold.await.unwrap();
    let edit = move_below(&installation, "web", "edge").await;
    let review = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, review).await;
    let shown = installation.control.review(&installation.cy, review).await.unwrap();
    assert_eq!(
        shown.pending_reasons,
        ["Deployment edge is on hold by bo (incident). You can commit this review, and its steps \
          start when the hold ends."]
    );
    assert!(shown.gate.is_open());
    let held_steps = "SELECT count(*) FROM step s JOIN noderole r ON r.id = s.noderole_id \
                WHERE s.state <> 'gone' AND on_hold(r.deployment_id)";
    let held_steps = async || -> i64 {
        sqlx::query_scalar(held_steps).fetch_one(installation.database.owner()).await.unwrap()
    };
    assert_eq!(held_steps().await, 0);
    installation.commit(&installation.ada, review).await.unwrap();
    assert_eq!(held_steps().await, 3, "app and the roles that it requires");
    let hold = installation.board("web").await.hold.unwrap();
    assert_eq!((hold.deployment.as_str(), hold.by.as_str()), ("edge", "bo"));
}

#[tokio::test]
async fn moved_deployment_takes_its_descendants_along() {
    let installation = Installation::new().await;
    let edit = move_below(&installation, "web", "edge").await;
    installation.moved_by("web", vec![edit]).await;
    let new = DeploymentId(uuid::Uuid::new_v4());
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: new,
        phantom: engine::ids::NodeId(uuid::Uuid::new_v4()),
        name: "lab".parse().unwrap(),
        parent: installation.id("system").await,
    });
    installation.moved_by("system", vec![create]).await;
    let hold = installation.control.hold(&installation.bo, new, true, "incident".into());
    hold.await.unwrap();

    let edit = move_below(&installation, "edge", "lab").await;
    let id = installation.submit(&installation.ada, "edge", vec![edit]).await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(
        review.summary[0],
        "Deployment edge moves from system to lab, with 1 deployment below it."
    );
    assert!(
        review.pending_reasons[0].starts_with("Deployment lab is on hold by bo"),
        "{:?}",
        review.pending_reasons
    );
    let difference =
        installation.control.review_difference(&installation.bo, id).await.unwrap().text();
    assert!(
        difference.contains("Deployment edge moves, with 1 deployment below it.\n"),
        "{difference}"
    );
}

#[tokio::test]
async fn refused_move_names_remedy() {
    let installation = Installation::new().await;
    let edit = move_below(&installation, "web", "web").await;
    let proposal = installation.control.propose(&installation.ada, installation.id("web").await);
    let proposal = proposal.await.unwrap();
    let refused = installation.control.edit(&installation.ada, proposal, 0, vec![edit]).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (422, "edit_refused"));
    assert!(refused.detail.contains("Choose a parent outside of web"), "{refused:?}");
    let outside = move_below(&installation, "edge", "web").await;
    let refused = installation.control.edit(&installation.ada, proposal, 0, vec![outside]).await;
    assert!(refused.unwrap_err().detail.contains("only for deployment web"));
}
