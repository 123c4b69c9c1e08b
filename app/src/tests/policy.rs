//! The page of the approval policy.

use api::Problem;
use engine::gate::{Risk, SignedRule};
use engine::ids::DeploymentId;
use uuid::Uuid;

use super::fake::Fake;
use super::serve::{get, post};

#[tokio::test]
async fn required_approvals_are_shown_as_text() {
    let page = get(&Fake::new(|_| {}), "/settings/policy").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Policy · Gantry</title>",
        "Every change",
        "When a destructive step runs",
        "When an applied step runs again",
        "When a noderole is removed",
        "When a deployment moves, or a node moves to one that is not above or below",
        "When a jig is turned off",
        "same as every change",
        "by bo",
        "href=\"/blueprints?from=39&amp;to=40\"",
        "aria-current=\"page\"",
        "gantry policy",
        "\"$GANTRY_SERVER/api/v1/policy\"",
    ]);
    assert_eq!(
        page.body.matches("<b>2<").count(),
        1,
        "only destructive changes need two approvals"
    );
}

#[tokio::test]
async fn ineffective_risk_rule_is_reported() {
    let fake = Fake::new(|world| {
        world.policy.policy.approvals = 3;
        world.policy.policy.by_risk = [(Risk::Removal, 2)].into();
    });
    get(&fake, "/settings/policy").await.assert_contains(&["set to 2, but every change needs 3"]);
}

#[tokio::test]
async fn policy_change_is_proposed_on_a_board() {
    let fake = Fake::new(|_| {});
    get(&fake, "/settings/policy").await.assert_contains(&[
        "must pass the old and the new policy",
        "must be submitted again",
        "action=\"/call/propose-policy\"",
        "name=\"deployment\"",
        "has an open proposal",
    ]);
    let done = post(&fake, "/call/propose-policy", "deployment=web").await;
    assert_eq!((done.status, done.location.as_deref()), (302, Some("/deployments/web?ask=policy")));
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    assert!(reported.contains(&"propose web".to_owned()), "{reported:?}");
}

#[tokio::test]
async fn policy_page_explains_missing_propose_permission() {
    let viewer = Fake::new(|world| world.permissions = vec!["viewer".into()]);
    let page = get(&viewer, "/settings/policy").await;
    page.assert_contains(&[
        "Every change",
        "you need the permission ",
        " in every deployment. An admin can grant it",
    ]);
    page.assert_lacks(&["/call/propose-policy"]);
}

#[tokio::test]
async fn policy_page_shows_refusal_and_server_error() {
    let fake = Fake::new(|world| {
        world.problem = Some(Problem::unavailable("The database does not answer."))
    });
    let page = get(&fake, "/settings/policy").await;
    assert_eq!(page.status, 503);
    page.assert_contains(&["Temporarily unavailable"]);
}

#[tokio::test]
async fn policy_shows_signature_rules_and_second_factor() {
    get(&Fake::new(|_| {}), "/settings/policy").await.assert_contains(&[
        "Approvals signed with a passkey",
        "<b>none<",
        "<b>no one<",
    ]);
    let elsewhere = DeploymentId(Uuid::from_u128(77));
    let fake = Fake::new(|world| {
        let everywhere = SignedRule { deployment: None, risk: Some(Risk::Destructive) };
        world.policy.policy.signed =
            [everywhere, SignedRule { deployment: Some(elsewhere), risk: None }].into();
        world.policy.policy.second_factor = true;
    });
    let rules = format!("destructive, every change of deployment {elsewhere}");
    get(&fake, "/settings/policy").await.assert_contains(&[&rules, "<b>everyone<"]);
}
