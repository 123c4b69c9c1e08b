//! The list of background tasks, for operators.

use api::Problem;
use api::background_tasks::{
    BackgroundTaskView, BackgroundTasks, BackgroundTasksQuery, MAX_TASKS, ProcessKind, ProcessView,
};
use api::listing::Limit;
use store::background_tasks::{self, BackgroundTaskRow};

use crate::Control;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::at;

impl Control {
    /// The background tasks of all servers and workers.
    pub async fn background_tasks(
        &self,
        actor: &Actor,
        query: &BackgroundTasksQuery,
    ) -> Result<BackgroundTasks, Problem> {
        actor.require(Permission::Viewer)?;
        let limit = Limit::rows(query.limit, MAX_TASKS);
        let mut connection = self.connection().await?;
        let mut rows = background_tasks::background_tasks(&mut connection, limit as u64 + 1)
            .await
            .map_err(from_store)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok(BackgroundTasks {
            background_tasks: rows.into_iter().map(view).collect::<Result<_, _>>()?,
            more,
        })
    }
}

fn view(row: BackgroundTaskRow) -> Result<BackgroundTaskView, Problem> {
    let kind = ProcessKind::from_name(&row.process_kind).ok_or_else(|| {
        tracing::error!(process = %row.process_id, kind = row.process_kind, "cannot read the row \
            of a background task");
        Problem::internal()
    })?;
    Ok(BackgroundTaskView {
        name: row.task,
        purpose: row.purpose,
        process: ProcessView { id: row.process_id, kind, name: row.process },
        period_ms: row.period_ms.unsigned_abs(),
        running: row.due_at.is_none(),
        started: row.started_at.map(at),
        ended: row.ended_at.map(at),
        duration_ms: row.duration_ms.map(i64::unsigned_abs),
        outcome: row.outcome,
        error: row.error,
        failures: row.failures.unsigned_abs(),
        next: row.due_at.map(at),
    })
}
