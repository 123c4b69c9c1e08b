//! The progress of a target, whose obstacles may belong to another target.

use std::time::Duration;

use api::blueprints::Progress;
use engine::anneal::Limits;
use engine::ids::BlueprintNumber;
use serde_json::{Map, json};
use store::runs::RunEnd;

use crate::installation::Installation;

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn target_is_stuck_when_its_parents_are() {
    let installation = Installation::new().await;
    let (control, ada) = (&installation.control, &installation.ada);
    let before = installation.bound("web", 1, "runtime").await;
    let after = installation.bound("web", 1, "app").await;
    let progress_of =
        async |target: BlueprintNumber| control.target(ada, target).await.unwrap().progress;

    let steps = control.target(ada, after).await.unwrap().steps;
    assert_eq!(
        (steps.blocked, steps.todo, steps.transition, steps.error),
        (1, 0, 0, 0),
        "its parent belongs to another blueprint"
    );
    assert_eq!(
        (progress_of(before).await, progress_of(after).await),
        (Progress::InProgress, Progress::InProgress),
        "a worker can still join"
    );

    let system = installation.id("system").await;
    control.hold(ada, system, true, "a look at the disks".into()).await.unwrap();
    assert_eq!(
        (progress_of(before).await, progress_of(after).await),
        (Progress::Stuck, Progress::Stuck),
        "a person must release the hold"
    );
    control.hold(ada, system, false, "done".into()).await.unwrap();
    control.switch(ada, false, "power".into()).await.unwrap();
    assert_eq!(
        (progress_of(before).await, progress_of(after).await),
        (Progress::Stuck, Progress::Stuck),
        "a person must enable the switch"
    );
    control.switch(ada, true, "power".into()).await.unwrap();

    let worker = installation.worker().await;
    let ends = [
        RunEnd::Succeeded { result: Map::new(), output: json!({}) },
        RunEnd::failed("no such disk"),
    ];
    for end in ends {
        store::runs::claim_runs(installation.database.worker(), Limits::default()).await.unwrap();
        let leased =
            store::runs::lease_runs(installation.database.worker(), worker, &["noop"], 1, LONG)
                .await
                .unwrap();
        assert_eq!(
            progress_of(after).await,
            Progress::InProgress,
            "a parent of the step is running"
        );
        store::runs::finish_run(installation.database.worker(), leased[0].run, worker, &end)
            .await
            .unwrap();
    }
    let steps = control.target(ada, after).await.unwrap().steps;
    assert_eq!((steps.blocked, steps.error), (1, 0));
    assert_eq!(
        (progress_of(before).await, progress_of(after).await),
        (Progress::Stuck, Progress::Stuck),
        "the failed step belongs to another blueprint"
    );

    // A step moves in another deployment, but not among this target's ancestors.
    let elsewhere = installation.bound("edge", 2, "runtime").await;
    assert_eq!(progress_of(elsewhere).await, Progress::InProgress);
    assert_eq!(
        (progress_of(before).await, progress_of(after).await),
        (Progress::Stuck, Progress::Stuck),
        "the failed step does not block them"
    );
}
