//! Background tasks of a server: deletes expired idempotency keys and sessions in batches, seals
//! the audit, and replans reviews. A review needs this if its base moved and the commit's request
//! timed out or died before replanning it. Any number of servers may do this concurrently.

use std::sync::Arc;
use std::time::Duration;

use control::Control;
use store::{housekeeping, idempotency};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::http::metrics::Metrics;

/// Interval. It limits the delay of a review after a process died.
const INTERVAL: Duration = Duration::from_secs(20);

/// Runs until shutdown. An interrupted sweep leaves nothing half done, because each review is a
/// transaction of its own.
pub(crate) async fn run(control: Arc<Control>, metrics: Metrics, stopping: CancellationToken) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let tasks = async {
        loop {
            ticks.tick().await;
            delete_expired_keys(&control, &metrics).await;
            delete_expired_sessions(&control, &metrics).await;
            seal(&control, &metrics).await;
            let replanned = control.replan_stale().await;
            metrics.count_task_round("replan", replanned.is_ok());
            match replanned {
                Ok(0) => {}
                Ok(planned) => tracing::info!(planned, "replanned reviews whose base changed"),
                Err(problem) => {
                    tracing::warn!(%problem, "cannot replan reviews, retrying later")
                }
            }
        }
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        () = tasks => {}
    }
}

/// Servers seal too, because there may be no worker. Entries must be sealed soon, or the seal
/// proves little.
async fn seal(control: &Control, metrics: &Metrics) {
    let sealed = housekeeping::seal(control.store().pool()).await;
    metrics.count_task_round("seal_audit", sealed.is_ok());
    if let Err(error) = sealed {
        tracing::warn!(%error, "cannot seal the audit, retrying later");
    }
}

async fn delete_expired_keys(control: &Control, metrics: &Metrics) {
    let gone = idempotency::delete_expired_keys(control.store().pool()).await;
    metrics.count_task_round("forget_keys", gone.is_ok());
    match gone {
        Ok(0) => {}
        Ok(gone) => tracing::debug!(gone, "deleted expired idempotency keys"),
        Err(error) => tracing::warn!(%error, "cannot delete expired idempotency keys, retrying \
            later"),
    }
}

/// Deletes expired sessions. A person's own are deleted at their next sign-in; these belong to
/// people who don't return.
async fn delete_expired_sessions(control: &Control, metrics: &Metrics) {
    let gone = store::people::delete_expired_sessions(control.store().pool()).await;
    metrics.count_task_round("forget_sessions", gone.is_ok());
    match gone {
        Ok(0) => {}
        Ok(gone) => tracing::debug!(gone, "deleted expired sessions"),
        Err(error) => tracing::warn!(%error, "cannot delete expired sessions, retrying later"),
    }
}
