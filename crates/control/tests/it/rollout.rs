//! The rollout of a blueprint, and the retry of its failed steps.

use api::rollout::RetryFailed;

use crate::installation::Installation;

#[tokio::test]
async fn failed_steps_are_retried_except_destructive_ones() {
    let installation = Installation::new().await;
    let (control, ada) = (&installation.control, &installation.ada);
    let edits =
        vec![installation.bind("web", 1, "app").await, installation.bind("web", 2, "wipe").await];
    let review = installation.submit(ada, "web", edits).await;
    installation.approve(&installation.bo, review).await;
    let number = installation.commit(ada, review).await.unwrap();
    let fail = "UPDATE step SET state = 'error', error = 'no room left', pending = 0 FROM noderole r \
                WHERE r.id = step.noderole_id AND r.role IN ('app', 'wipe') AND step.generation = $1";
    sqlx::query(fail).bind(number.0).execute(installation.database.owner()).await.unwrap();

    let progress = control.blueprint_progress(ada, number).await.unwrap();
    assert_eq!((progress.rollout.steps.error, progress.failed_destructive), (2, 1));
    assert_eq!(progress.failed[0].error.as_deref(), Some("no room left"));
    let in_waves: i64 = progress.waves.iter().map(|wave| wave.error).sum();
    assert_eq!(in_waves, 2);
    let overview = control.overview(ada).await.unwrap();
    assert_eq!(overview.rollouts[0].blueprint.number, number);
    assert_eq!(overview.rollouts[0].steps.error, 2);

    let retry = async |destructive| {
        let request = RetryFailed { reason: "freed the disk".into(), destructive };
        let outcome = control.retry_failed(ada, number, &request).await.unwrap();
        assert!(outcome.refused.is_empty() && !outcome.more, "{outcome:?}");
        (outcome.retried, outcome.destructive)
    };
    assert_eq!(retry(false).await, (1, 1), "the destructive step needs a confirmation");
    assert_eq!(retry(true).await, (1, 0));
    assert_eq!(retry(true).await, (0, 0), "no step is left");
    let progress = control.blueprint_progress(ada, number).await.unwrap();
    assert!(progress.failed.is_empty(), "{:?}", progress.failed);

    let blank = RetryFailed { reason: " ".into(), destructive: false };
    assert_eq!(control.retry_failed(ada, number, &blank).await.unwrap_err().status, 400);
}
