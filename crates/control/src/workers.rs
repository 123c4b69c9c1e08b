//! The list of workers, for operators.

use api::Problem;
use api::console::PAGE_SIZE;
use api::listing::Cursor;
use api::workers::{MAX_RUNS, Phase, WorkerPage, WorkerView, WorkersWanted};
use engine::ids::RunId;
use store::reading::{self, WorkerFilter, WorkerRow};
use uuid::Uuid;

use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::text::{self, at};
use crate::{Control, cursor};

impl Control {
    /// A page of the list of workers.
    pub async fn workers(
        &self,
        actor: &Actor,
        query: &WorkersWanted,
    ) -> Result<WorkerPage, Problem> {
        actor.require(Permission::Viewer)?;
        let behind = cursor::behind(query.sort, query.before.as_ref())?;
        let filter = WorkerFilter {
            alive: query.alive,
            phase: query.phase.map(Phase::as_str),
            name: text::asked(&query.name)?,
            order: query.sort,
            behind: behind.as_deref(),
        };
        let mut connection = self.connection().await?;
        let mut rows =
            reading::workers(&mut connection, filter, PAGE_SIZE as i64 + 1, MAX_RUNS as i64)
                .await
                .map_err(from_store)?;
        let more = rows.len() > PAGE_SIZE;
        rows.truncate(PAGE_SIZE);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::behind(query.sort, &row.keys(query.sort.by)));
        Ok(WorkerPage { workers: rows.into_iter().map(view).collect::<Result<_, _>>()?, next })
    }

    /// The worker with this id or name.
    pub(crate) async fn worker_id(&self, text: &str) -> Result<Uuid, Problem> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mut connection = self.connection().await?;
        let found = reading::worker_id_by_name(&mut connection, text).await.map_err(from_store)?;
        found.ok_or_else(|| {
            Problem::not_found(format!(
                "Worker {text} does not exist. Use its full name or id from the list of workers. A \
                 worker without runs is deleted a week after it stopped."
            ))
        })
    }

    pub async fn worker(&self, actor: &Actor, id: Uuid) -> Result<WorkerView, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let row =
            reading::worker(&mut connection, id, MAX_RUNS as i64).await.map_err(from_store)?;
        row.map(view).transpose()?.ok_or_else(|| {
            Problem::not_found(
                "This worker does not exist. A worker gets a new id when it restarts, and old \
                 workers are deleted.",
            )
        })
    }
}

fn view(row: WorkerRow) -> Result<WorkerView, Problem> {
    let phase = Phase::from_word(&row.phase).ok_or_else(|| {
        tracing::error!(worker = %row.id, phase = row.phase, "cannot read the row of a worker");
        Problem::internal()
    })?;
    Ok(WorkerView {
        id: row.id,
        name: row.name,
        phase,
        alive: row.alive,
        capacity: row.capacity.unsigned_abs(),
        held: row.held,
        runs: row.runs.into_iter().map(RunId).collect(),
        jigs: row.jigs,
        host: row.host,
        pid: row.pid,
        version: row.version,
        started: at(row.started_at),
        heard: at(row.last_heartbeat_at),
        lease_until: at(row.lease_until),
        reason: row.reason,
    })
}
