//! Reports the status of a process's tasks to the database.
//!
//! A task may run many times per second, so a change is written after [`INTERVAL`] together with
//! all others. A row that does not change is written only to renew its lease. This loop is not a
//! task itself: its own status would change with every run.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::PgPool;
use store::background_tasks::{self, ProcessRow, TaskReport};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::process::Process;
use crate::status::{Status, Statuses};

/// Minimum time between two writes.
const INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5_000 });
/// Time after which the rows of a process that no longer writes are not listed.
const LEASE: Duration = Duration::from_secs(60);
/// Time to delete the rows of a process that stops.
const END_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn run(
    pool: PgPool,
    process: Process,
    statuses: Statuses,
    stopping: CancellationToken,
) {
    let process = ProcessRow { id: process.id, kind: process.kind.as_str(), name: process.name };
    let reporting = async {
        let mut written = Written::default();
        loop {
            tokio::select! {
                () = statuses.changed() => {}
                () = sleep(LEASE / 3) => {}
            }
            let due = written.due(statuses.all());
            let rows: Vec<TaskReport<'_>> = due.iter().map(report).collect();
            match background_tasks::report(&pool, &process, &rows, LEASE).await {
                Ok(()) => written.add(due),
                Err(error) => {
                    tracing::warn!(%error, "cannot report the status of background tasks, retrying")
                }
            }
            sleep(INTERVAL).await;
        }
    };
    tokio::select! {
        () = stopping.cancelled() => {}
        () = reporting => {}
    }
    let removed = timeout(END_TIMEOUT, background_tasks::delete_process(&pool, process.id)).await;
    if !matches!(removed, Ok(Ok(()))) {
        tracing::debug!("cannot delete the status of background tasks, so it will expire");
    }
}

/// The last written status of each task, with the time of the write.
#[derive(Default)]
struct Written(BTreeMap<&'static str, (Status, Instant)>);

impl Written {
    /// The tasks to write now: those that changed, and those whose lease is partly over.
    fn due(&self, statuses: Vec<Status>) -> Vec<Status> {
        let is_due = |status: &Status| match self.0.get(status.name) {
            None => true,
            Some((written, at)) => written != status || at.elapsed() >= LEASE / 3,
        };
        statuses.into_iter().filter(is_due).collect()
    }

    fn add(&mut self, statuses: Vec<Status>) {
        let now = Instant::now();
        self.0.extend(statuses.into_iter().map(|status| (status.name, (status, now))));
    }
}

/// Times are sent relative to now, so the clocks of processes don't matter.
fn report(status: &Status) -> TaskReport<'_> {
    let last = status.last_run.as_ref();
    let result = last.map(|last| &last.result);
    TaskReport {
        task: status.name,
        purpose: status.purpose,
        period: status.period,
        started_ago: status.last_start.map(|at| at.elapsed()),
        ended_ago: last.map(|last| last.ended.elapsed()),
        took: last.map(|last| last.took),
        outcome: result.and_then(|result| result.as_ref().ok()).map(|outcome| outcome.as_str()),
        error: result.and_then(|result| result.as_ref().err()).map(|failure| failure.text()),
        failures: status.failures,
        due_in: status.next_due.map(|at| at.saturating_duration_since(Instant::now())),
    }
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;
    use uuid::Uuid;

    use super::*;
    use crate::process::ProcessKind;
    use crate::{Driver, Failure, Metrics, Task, TaskResult};

    struct Failing;

    impl Task for Failing {
        fn name(&self) -> &'static str {
            "fail"
        }

        fn purpose(&self) -> &'static str {
            "Fails."
        }

        fn period(&self) -> Duration {
            Duration::from_secs(3600)
        }

        async fn run(&mut self) -> TaskResult {
            Err(Failure::new("cannot succeed", "x".repeat(1000)))
        }
    }

    #[tokio::test]
    async fn status_is_stored_until_the_process_stops() {
        let database = TestDatabase::new().await;
        let crashed = "INSERT INTO background_task (process_id, process_kind, process, task,
            purpose, period_ms, lease_until) VALUES ($1, 'worker', 'w', 'a', 'b', 1, now())";
        sqlx::query(crashed)
            .bind(Uuid::from_u128(1))
            .execute(database.owner())
            .await
            .expect("a row of a crashed process");
        for pool in [database.app(), database.worker()] {
            let mut driver = Driver::new(Metrics::default(), CancellationToken::new());
            driver.add(Failing);
            let process = Process::start(ProcessKind::Worker, "test");
            driver.report(pool.clone(), process.clone());
            let row = loop {
                let mut connection = pool.acquire().await.expect("a connection");
                let rows = background_tasks::background_tasks(&mut connection, 10).await;
                match rows.expect("rows").pop() {
                    Some(row) if row.ended_at.is_some() => break row,
                    _ => sleep(Duration::from_millis(20)).await,
                }
            };
            assert_eq!((row.process_id, row.process), (process.id, process.name));
            assert_eq!((row.task.as_str(), row.failures, row.period_ms), ("fail", 1, 3_600_000));
            assert!(row.error.expect("an error").starts_with("cannot succeed: xxx"));
            assert!(row.due_at > row.ended_at && row.started_at <= row.ended_at);
            driver.stop().await;
            let left: i64 = sqlx::query_scalar("SELECT count(*) FROM background_task")
                .fetch_one(database.owner())
                .await
                .expect("a count");
            assert_eq!(left, 0, "its own rows and the expired row are deleted");
        }
    }

    #[test]
    fn unchanged_status_is_written_once() {
        let statuses = Statuses::default();
        statuses.add(&Failing);
        let mut written = Written::default();
        let due = written.due(statuses.all());
        assert_eq!(due.len(), 1);
        written.add(due);
        assert!(written.due(statuses.all()).is_empty());
        statuses.update("fail", |status| status.failures = 1);
        assert_eq!(written.due(statuses.all()).len(), 1);
    }
}
