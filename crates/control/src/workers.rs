//! The list of workers, for operators.

use api::Problem;
use api::workers::{MAX_RUNS, Phase, WorkerPage, WorkerSort, WorkerView, WorkersQuery};
use engine::ids::RunId;
use store::workers::{WorkerFilter, WorkerRow};
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
        query: &WorkersQuery,
    ) -> Result<WorkerPage, Problem> {
        actor.require(Permission::Viewer)?;
        let sort = match query.sort.by {
            WorkerSort::Started => WorkerRow::BY_START,
            WorkerSort::Heartbeat => WorkerRow::BY_HEARTBEAT,
            WorkerSort::Name => WorkerRow::BY_NAME,
        };
        let page = cursor::stored(query.sort, query.before.as_ref(), sort)?;
        let filter = WorkerFilter {
            alive: query.alive,
            phase: query.phase.map(Phase::as_str),
            name: text::filter_text(&query.name)?,
        };
        let mut connection = self.connection().await?;
        let mut rows = store::workers::workers(&mut connection, filter, &page, MAX_RUNS as u32)
            .await
            .map_err(from_store)?;
        let next = cursor::cut(&mut rows, query.sort, &page);
        Ok(WorkerPage { workers: rows.into_iter().map(view).collect::<Result<_, _>>()?, next })
    }

    /// The worker with this id or name.
    pub(crate) async fn worker_id(&self, text: &str) -> Result<Uuid, Problem> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mut connection = self.connection().await?;
        let found =
            store::workers::worker_id_by_name(&mut connection, text).await.map_err(from_store)?;
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
        let row = store::workers::worker(&mut connection, id, MAX_RUNS as u32)
            .await
            .map_err(from_store)?;
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
        leased: row.held,
        runs: row.runs.into_iter().map(RunId).collect(),
        jigs: row.jigs,
        host: row.host,
        pid: row.pid,
        version: row.version,
        started: at(row.started_at),
        last_heartbeat: at(row.last_heartbeat_at),
        lease_until: at(row.lease_until),
        reason: row.reason,
    })
}
