//! The list of workers, and their drains.

use api::JoinPhase;
use api::Problem;
use api::live::{Live, Topic};
use api::workers::{Drain, MAX_RUNS, WorkerPage, WorkerSort, WorkerView, WorkersQuery};
use engine::ids::RunId;
use serde_json::json;
use store::workers::{WorkerFilter, WorkerRow};
use uuid::Uuid;

use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::runs::operations::checked;
use crate::text::{self, at};
use crate::{Control, cursor, done};

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
        let page = cursor::stored(query.sort, query.before.as_ref(), query.limit, sort)?;
        let filter = WorkerFilter {
            alive: query.alive,
            draining: query.draining,
            phase: query.phase.map(JoinPhase::as_str),
            name: text::filter_text(&query.filter)?,
        };
        let mut connection = self.connection().await?;
        let mut rows = store::workers::workers(&mut connection, filter, &page, MAX_RUNS as u32)
            .await
            .map_err(from_store)?;
        let next = cursor::cut(&mut rows, query.sort, &page);
        let view = |row| view(actor, row);
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

    /// The worker with this id or name, with its runs.
    pub async fn worker_named(&self, actor: &Actor, text: &str) -> Result<WorkerView, Problem> {
        actor.require(Permission::Viewer)?;
        let id = self.worker_id(text).await?;
        self.worker(actor, id).await
    }

    pub async fn worker(&self, actor: &Actor, id: Uuid) -> Result<WorkerView, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let row = store::workers::worker(&mut connection, id, MAX_RUNS as u32)
            .await
            .map_err(from_store)?;
        row.map(|row| view(actor, row)).transpose()?.ok_or_else(missing)
    }

    /// Drains the worker with this id or name, or ends its drain. A draining worker finishes its
    /// runs and takes no further ones.
    pub async fn drain(
        &self,
        actor: &Actor,
        worker: &str,
        drain: bool,
        reason: String,
    ) -> Result<(), Problem> {
        actor.require(Permission::Operator)?;
        let reason = checked(&reason)?;
        let worker = self.worker_id(worker).await?;
        let mut transaction = self.begin().await?;
        let row =
            store::workers::lock_worker(&mut transaction, worker).await.map_err(from_store)?;
        actor.revalidate(&mut transaction).await?.require(Permission::Operator)?;
        let row = row.ok_or_else(missing)?;
        let name = &row.name;
        let problem = match (drain, row.draining) {
            _ if row.ended => Some(format!(
                "Worker {name} has ended. When it starts again, it is a new worker, which takes \
                 runs."
            )),
            (true, true) => {
                let by = row.by.map(|by| format!(" by {by}")).unwrap_or_default();
                let reason = row.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                Some(format!("Worker {name} is already being drained{by}{reason}"))
            }
            (false, false) => Some(format!("Worker {name} is not draining.")),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Problem::conflict("state", problem));
        }
        let by = drain.then_some((actor.person, reason));
        store::workers::set_drain(&mut transaction, worker, by).await.map_err(from_store)?;
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            if drain { "worker.drain" } else { "worker.resume" },
            &worker.to_string(),
            &json!({"name": name, "reason": reason}),
        )
        .await
        .map_err(from_store)?;
        // Also the pages of runs and pending steps: the capacity has changed.
        store::events::append_event_to_topics(
            &mut transaction,
            &[Topic::Runs],
            &Live::Worker { worker, draining: drain },
        )
        .await
        .map_err(from_store)?;
        done(transaction).await
    }
}

fn missing() -> Problem {
    Problem::not_found(
        "This worker does not exist. A worker gets a new id when it restarts, and old workers are \
         deleted.",
    )
}

fn view(actor: &Actor, row: WorkerRow) -> Result<WorkerView, Problem> {
    let phase = JoinPhase::from_name(&row.phase).ok_or_else(|| {
        tracing::error!(worker = %row.id, phase = row.phase, "cannot read the row of a worker");
        Problem::internal()
    })?;
    let runs_now = row.lease_valid && !matches!(phase, JoinPhase::None | JoinPhase::Nack);
    let may_drain = match runs_now {
        true => actor.require(Permission::Operator).map_err(|problem| problem.detail),
        false => Err("The worker has ended.".to_owned()),
    };
    Ok(WorkerView {
        drain: row.drain_since.map(|since| Drain {
            by: row.drain_by.unwrap_or_default(),
            since: at(since),
            reason: row.drain_reason.unwrap_or_default(),
            drained: row.leased == 0,
        }),
        may_drain: may_drain.into(),
        id: row.id,
        name: row.name,
        phase,
        alive: row.alive,
        capacity: row.capacity.unsigned_abs(),
        leased: row.leased,
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
