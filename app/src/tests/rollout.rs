//! The page of a blueprint, and the rollouts on the overview.

use api::blueprints::Progress;
use api::rollout::{
    BlueprintProgress, FailedStep, RetriedSteps, RetryFailed, Rollout, Timeline, TimelineNode,
    TimelineRun,
};
use api::runs::{RunState, StateCounts};
use api::{Allowed, At, Problem};
use engine::ids::{ActionName, BlueprintNumber, RunId};

use super::fake::{Actor, Fake, NOW, World, deployment, deployment_id, fqdn, node, noderole, role};
use super::serve::{get, post};

/// A rollout of 1,000 steps in two waves. Three steps failed, one of them destructive.
pub fn progress(world: &World) -> BlueprintProgress {
    let failed = |n: u128, name: &str, destructive| FailedStep {
        noderole: noderole(n, name),
        role: role(name),
        action: ActionName::run(),
        node: node(n),
        fqdn: fqdn(n),
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        destructive,
        error: Some("exit 1 in 20-realm.sh".into()),
        since: NOW,
    };
    let run = |id: i64, state, from: i64, to: Option<i64>| TimelineRun {
        id: RunId(id),
        role: role("app"),
        state,
        from: At(NOW.0 + from),
        to: to.map(|to| At(NOW.0 + to)),
    };
    let counts = |active, transition, todo, error| StateCounts {
        active,
        transition,
        todo,
        error,
        ..StateCounts::default()
    };
    BlueprintProgress {
        rollout: Rollout {
            blueprint: world.targets.blueprints[0].clone(),
            progress: Progress::InProgress,
            steps: counts(640, 20, 337, 3),
            all: 1000,
            applied: 640,
            seconds_left: Some(68),
        },
        waves: vec![counts(400, 0, 0, 0), counts(240, 20, 337, 3)],
        more_waves: false,
        failed: vec![failed(4, "app", false), failed(5, "app", false), failed(6, "store", true)],
        failed_destructive: 1,
        timeline: Timeline {
            nodes: vec![
                TimelineNode {
                    node: node(4),
                    fqdn: fqdn(4),
                    runs: vec![run(11, RunState::Failed, 0, Some(1_000))],
                },
                TimelineNode {
                    node: node(1),
                    fqdn: fqdn(1),
                    runs: vec![
                        run(12, RunState::Succeeded, 0, Some(2_000)),
                        run(13, RunState::Succeeded, 2_000, Some(4_000)),
                    ],
                },
            ],
            all_nodes: 350,
            all_runs: 663,
        },
        may_retry: Allowed::Yes,
        cursor: 900,
    }
}

impl Fake {
    pub async fn blueprint_progress(
        &self,
        _: &Actor,
        number: BlueprintNumber,
    ) -> Result<BlueprintProgress, Problem> {
        self.record(format!("progress {number}"));
        self.read(|world| world.progress.clone().unwrap_or_else(|| progress(world)))
    }

    pub async fn retry_failed(
        &self,
        _: &Actor,
        number: BlueprintNumber,
        request: &RetryFailed,
    ) -> Result<RetriedSteps, Problem> {
        self.record(format!("retry {number} {} {}", request.reason, request.destructive));
        self.read(|_| RetriedSteps { retried: 3, ..RetriedSteps::default() })
    }
}

#[tokio::test]
async fn rollout_shows_progress_waves_and_failures() {
    let fake = Fake::new(|_| {});
    let number = fake.0.lock().expect("an unpoisoned lock").targets.blueprints[0].number;
    let page = get(&fake, &format!("/blueprints/{number}")).await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        &format!("<title>Blueprint {number} · Gantry</title>"),
        "640 of 1,000 steps, about 70 s left, 3 failed",
        "in progress",
        "400 of 400",
        "240 of 600, 20 running, 3 failed",
        &format!("href=\"/noderoles/{}\"", noderole(6, "store")),
        "exit 1 in 20-realm.sh",
        "Also retry 1 destructive step",
        "the newest and failed runs: 3 of 663 runs on 2 of 350 nodes",
        "href=\"/runs/12\"",
        "<rect x=\"50.00%\" y=\"3\" width=\"50.00%\"",
        &format!("href=\"/blueprints?from={}&amp;to={number}\"", number.0 - 1),
        "gantry blueprint progress",
        "gantry blueprint retry",
        "\"$GANTRY_SERVER/api/v1/blueprints/",
    ]);
    page.assert_lacks(&["style=\"", "More waves"]);
}

#[tokio::test]
async fn failed_steps_are_retried_without_scripts() {
    let fake = Fake::new(|_| {});
    let answer =
        post(&fake, "/call/retry-failed", "blueprint=7&reason=fixed&destructive=true").await;
    assert_eq!(answer.status, 302);
    post(&fake, "/call/retry-failed", "blueprint=7&reason=fixed").await;
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    assert_eq!(reported, ["retry 7 fixed true", "retry 7 fixed false"]);
}

#[tokio::test]
async fn rollout_without_steps_is_reported() {
    let fake = Fake::new(|world| {
        let mut empty = progress(world);
        empty.rollout = Rollout {
            progress: Progress::Converged,
            steps: StateCounts::default(),
            all: 0,
            applied: 0,
            seconds_left: None,
            ..empty.rollout
        };
        (empty.waves, empty.failed, empty.failed_destructive) = (Vec::new(), Vec::new(), 0);
        empty.timeline = Timeline::default();
        world.progress = Some(empty);
    });
    let page = get(&fake, "/blueprints/3").await;
    page.assert_contains(&[
        "This blueprint changed no steps",
        "0 of 0 steps",
        "No runs yet.",
        "converged",
    ]);
    page.assert_lacks(&["Retry failed", "aria-label=\"Waves\"", "Pending steps"]);
}

#[tokio::test]
async fn reader_without_permission_cannot_retry() {
    let fake = Fake::new(|world| {
        let reason = "You cannot retry these steps without the permission operator.";
        world.progress =
            Some(BlueprintProgress { may_retry: Allowed::no(reason), ..progress(world) });
    });
    let page = get(&fake, "/blueprints/3").await;
    page.assert_contains(&["without the permission operator", "type=\"submit\" disabled"]);
}

#[tokio::test]
async fn invalid_blueprint_number_is_not_found() {
    let page = get(&Fake::new(|_| {}), "/blueprints/x").await;
    assert_eq!(page.status, 404);
    page.assert_contains(&["must end with a blueprint number", "All blueprints"]);
}

#[tokio::test]
async fn board_counts_states_and_filters_them() {
    let fake = Fake::new(|world| {
        let gateway = world.board.groups[0].roles.iter_mut().find(|r| r.role.as_str() == "gateway");
        let omitted = StateCounts { active: 201, error: 2, ..StateCounts::default() };
        gateway.expect("a role").omitted = omitted;
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        "201 active, 3 error, 1 blocked",
        "href=\"/deployments/web?state=not-active\"",
    ]);
    let filtered = get(&fake, "/deployments/web?state=not-active").await;
    filtered.assert_contains(&["Show all noderoles", "href=\"/deployments/web\""]);
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    assert!(reported.contains(&"board web, not active".to_owned()), "{reported:?}");
}

#[tokio::test]
async fn board_marks_stale_and_unchecked_noderoles() {
    let fake = Fake::new(|world| {
        let roles = &mut world.board.groups[0].roles;
        let store = roles.iter_mut().find(|role| role.role.as_str() == "store").expect("a role");
        store.noderoles[0].stale = true;
        (store.noderoles[1].stale, store.noderoles[1].unchecked) = (true, true);
        store.omitted = StateCounts { active: 5, unchecked: 5, ..StateCounts::default() };
        // A step that runs again is not counted as stale.
        let app = roles.iter_mut().find(|role| role.role.as_str() == "app").expect("a role");
        app.noderoles[1].stale = true;
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        ": ACTIVE, stale\"",
        ": ACTIVE, stale, unchecked\"",
        ">, <!>stale<",
        "7 active, 2 stale, 6 unchecked<",
    ]);
    let states = page.body.split("aria-label=\"Steps by state\"").nth(1).expect("the counts");
    let states = states.split("</ul>").next().expect("the end");
    for text in ["2 stale", "1 unchecked"] {
        assert!(states.contains(text), "{text} is missing in {states}");
    }
    get(&Fake::new(|_| {}), "/deployments/web").await.assert_lacks(&[", stale", "unchecked<"]);
}

#[tokio::test]
async fn lists_count_stale_and_unchecked_steps() {
    let fake = Fake::new(|world| {
        world.deployments[0].steps =
            StateCounts { active: 9, stale: 2, unchecked: 1, ..StateCounts::default() };
    });
    let page = get(&fake, "/deployments").await;
    page.assert_contains(&["2 stale<", "1 unchecked<"]);
    get(&Fake::new(|_| {}), "/deployments").await.assert_lacks(&[" stale<", " unchecked<"]);
}

#[tokio::test]
async fn gate_folds_checks_that_pass() {
    let page = get(&Fake::new(|_| {}), "/reviews/128").await;
    page.assert_contains(&[
        "checks passed",
        "<details class=\"passed-checks\">",
        "class=\"runs-with",
    ]);
}

#[tokio::test]
async fn overview_shows_rollouts() {
    let fake = Fake::new(|world| {
        let rollout = progress(world).rollout;
        let overview = &mut world.monitoring.overview;
        overview.steps = StateCounts { transition: 20, active: 640, ..StateCounts::default() };
        (overview.nodes.dead, overview.deployments.on_hold) = (0, 0);
        overview.rollouts =
            vec![Rollout { steps: StateCounts { error: 0, ..rollout.steps }, ..rollout }];
    });
    let number = fake.0.lock().expect("an unpoisoned lock").targets.blueprints[0].number;
    let page = get(&fake, "/").await;
    page.assert_contains(&[
        "aria-label=\"Rollouts\"",
        &format!("href=\"/blueprints/{number}\""),
        &format!("blueprint {number}: 640 of 1,000 steps, about 70 s left"),
        "data-state=\"transition\" class=\"pill wraps\"",
    ]);
    page.assert_lacks(&["no problems"]);
    get(&Fake::new(|_| {}), "/").await.assert_lacks(&["aria-label=\"Rollouts\""]);
}
