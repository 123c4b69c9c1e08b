//! The background tasks of a server. Any number of servers may run them at once.

use std::sync::Arc;
use std::time::Duration;

use background::{Driver, Process, ProcessKind};
use control::Control;
use tokio_util::sync::CancellationToken;

use crate::background_tasks::addresses::ReportAddresses;
use crate::background_tasks::checkpoints::{Checkpoints, WriteCheckpoint};
use crate::background_tasks::expired::{DeleteExpiredKeys, DeleteExpiredSessions};
use crate::background_tasks::replan::ReplanReviews;
use crate::background_tasks::seal::SealAudit;
use crate::http::metrics::Metrics;

mod addresses;
pub(crate) mod checkpoints;
mod expired;
mod replan;
mod seal;

/// Period of tasks that finish work of requests that died.
const SWEEP_PERIOD: Duration = Duration::from_secs(20);

/// Starts the tasks. They end with `stopping`.
pub(crate) fn start(
    control: &Arc<Control>,
    metrics: &Metrics,
    checkpoints: Option<Checkpoints>,
    stopping: CancellationToken,
) -> Driver {
    let mut driver = Driver::new(metrics.background_tasks(), stopping);
    let pool = control.store().pool();
    driver.add(DeleteExpiredKeys(pool.clone()));
    driver.add(DeleteExpiredSessions(pool.clone()));
    driver.add(SealAudit(pool.clone()));
    driver.add(ReplanReviews(Arc::clone(control)));
    driver.add(ReportAddresses(pool.clone()));
    if let Some(checkpoints) = checkpoints {
        driver.add(WriteCheckpoint::new(Arc::clone(control), checkpoints));
    }
    driver.report(pool.clone(), Process::start(ProcessKind::Server, "server"));
    driver
}
