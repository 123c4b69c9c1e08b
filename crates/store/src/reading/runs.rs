//! Lists of runs and single runs.

use api::console::PAGE_SIZE;
use api::listing::{Key, Order, RunSort};
use engine::ids::{DeploymentId, NodeId, NoderoleId, RunId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::order::{behind, way};
use crate::entity::{deployment, node, noderole, run, step, worker};
use crate::{Store, StoreError};

/// A run with names for display.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: run::Model,
    pub step: step::Model,
    pub noderole: Uuid,
    pub role: String,
    /// The node's name.
    pub fqdn: String,
    /// The name of the deployment in which the noderole is bound.
    pub deployment: String,
    /// The worker's name.
    pub worker: Option<String>,
}

/// A filter for runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunFilter<'f> {
    /// `queued`, `running` or an outcome.
    pub state: Option<&'f str>,
    /// Only runs of noderoles bound in this deployment.
    pub deployment: Option<DeploymentId>,
    pub node: Option<NodeId>,
    pub role: Option<&'f str>,
    pub worker: Option<Uuid>,
    /// Queued at or after this time.
    pub since: Option<OffsetDateTime>,
    /// Queued before this time.
    pub until: Option<OffsetDateTime>,
    pub order: Order<RunSort>,
    /// Only runs after these keys.
    pub behind: Option<&'f [Key]>,
}

/// The state or outcome of a run. The index needs exactly this expression.
const STATE: &str = "coalesce(run.outcome, run.state)";
/// Microseconds from start to end. The index needs exactly this expression.
const DURATION_EXPRESSION: &str =
    "coalesce((EXTRACT(epoch FROM run.ended_at - run.started_at) * 1000000)::bigint, -1)";

/// The columns of a run's sort keys.
fn run_keys(sort: RunSort) -> &'static [&'static str] {
    match sort {
        RunSort::Queued => &["run.id"],
        RunSort::State => &[STATE, "run.id"],
        RunSort::Durations => &[DURATION_EXPRESSION, "run.id"],
    }
}

impl RunRow {
    /// The sort keys of this run.
    pub fn keys(&self, sort: RunSort) -> Vec<Key> {
        let id = Key::from(self.run.id);
        match sort {
            RunSort::Queued => vec![id],
            RunSort::State => {
                vec![Key::from(self.run.outcome.as_deref().unwrap_or(&self.run.state)), id]
            }
            RunSort::Durations => {
                let duration =
                    self.run.started_at.zip(self.run.ended_at).map(|(from, to)| to - from);
                let micros =
                    duration.and_then(|duration| i64::try_from(duration.whole_microseconds()).ok());
                vec![Key::from(micros.unwrap_or(-1)), id]
            }
        }
    }
}

/// Ids rise with the time of queueing, except for runs queued concurrently. This is the maximum
/// number of those.
const MAX_CONCURRENTLY_QUEUED: i64 = 10_000;

/// Runs in an order, one more than a page.
pub async fn runs(store: &Store, filter: RunFilter<'_>) -> Result<Vec<RunRow>, StoreError> {
    add_names(store, run_query(filter).all(store.orm()).await?).await
}

pub(super) fn run_query(filter: RunFilter<'_>) -> Select<run::Entity> {
    let mut query = run::Entity::find().limit(PAGE_SIZE as u64 + 1);
    let (keys, descending) = (run_keys(filter.order.by), filter.order.descending);
    for key in keys {
        query = query.order_by(Expr::cust(*key), way(descending));
    }
    if let Some(cursor) = filter.behind {
        query = query.filter(behind(keys, descending, cursor));
    }
    query = match filter.state {
        None => query,
        Some(state @ ("queued" | "running")) => query.filter(run::Column::State.eq(state)),
        Some(outcome) => query.filter(run::Column::Outcome.eq(outcome)),
    };
    if let Some(deployment) = filter.deployment {
        // A step's concurrency group belongs to its noderole's deployment.
        let in_deployment = "run.concurrency_group_id IN (SELECT l.id FROM concurrency_group l WHERE l.deployment_id = $1)";
        query = query.filter(Expr::cust_with_values(in_deployment, [deployment.0]));
    }
    if let Some(node) = filter.node {
        query = query.filter(run::Column::NodeId.eq(node.0));
    }
    if let Some(role) = filter.role {
        let steps = "run.step_id IN (SELECT s.id FROM step s JOIN noderole n ON n.id = s.noderole_id WHERE n.role = $1)";
        query = query.filter(Expr::cust_with_values(steps, [role]));
    }
    if let Some(worker) = filter.worker {
        query = query.filter(run::Column::WorkerId.eq(worker));
    }
    if let Some(since) = filter.since {
        let first = "run.id >= (SELECT r.id - $2 FROM run r WHERE r.queued_at >= $1 ORDER BY r.queued_at, r.id LIMIT 1)";
        let bounds: [sea_orm::Value; 2] = [since.into(), MAX_CONCURRENTLY_QUEUED.into()];
        query = query
            .filter(run::Column::QueuedAt.gte(since))
            .filter(Expr::cust_with_values(first, bounds));
    }
    if let Some(until) = filter.until {
        let cursor = "run.id <= (SELECT r.id + $2 FROM run r WHERE r.queued_at < $1 ORDER BY r.queued_at DESC, r.id DESC LIMIT 1)";
        let bounds: [sea_orm::Value; 2] = [until.into(), MAX_CONCURRENTLY_QUEUED.into()];
        query = query
            .filter(run::Column::QueuedAt.lt(until))
            .filter(Expr::cust_with_values(cursor, bounds));
    }
    query
}

/// The runs of a step, newest first, at most a page.
pub async fn runs_of_step(store: &Store, step: StepId) -> Result<Vec<RunRow>, StoreError> {
    let query = run::Entity::find()
        .filter(run::Column::StepId.eq(step.0))
        .order_by_desc(run::Column::Id)
        .limit(PAGE_SIZE as u64);
    add_names(store, query.all(store.orm()).await?).await
}

/// The runs on a node, newest first.
pub async fn runs_of_node(
    store: &Store,
    node: NodeId,
    limit: u64,
) -> Result<Vec<RunRow>, StoreError> {
    let query = run::Entity::find()
        .filter(run::Column::NodeId.eq(node.0))
        .order_by_desc(run::Column::Id)
        .limit(limit);
    add_names(store, query.all(store.orm()).await?).await
}

pub async fn run(store: &Store, id: RunId) -> Result<Option<RunRow>, StoreError> {
    let found = run::Entity::find_by_id(id.0).all(store.orm()).await?;
    Ok(add_names(store, found).await?.pop())
}

/// Returns the input, result, output, review and result size of a run. The output is present only
/// if this run produced its step's present output. The size is known even after the result was
/// deleted.
pub async fn run_documents(
    connection: &mut PgConnection,
    id: RunId,
) -> Result<Option<(Option<Value>, Option<Value>, Option<Value>, Option<i64>, i32)>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT r.input, r.result, CASE WHEN s.output_run = r.id THEN s.output END, t.review_id, r.result_bytes FROM run r \
         JOIN step s ON s.id = r.step_id LEFT JOIN blueprint t ON t.number = r.generation WHERE r.id = $1",
    )
    .bind(id.0)
    .fetch_optional(connection)
    .await?)
}

/// Adds names, with one statement for each kind of name.
async fn add_names(store: &Store, runs: Vec<run::Model>) -> Result<Vec<RunRow>, StoreError> {
    let steps: Vec<Uuid> = runs.iter().map(|r| r.step_id).collect();
    let steps = step::Entity::find()
        .filter(step::Column::Id.is_in(steps))
        .find_also_related(noderole::Entity)
        .all(store.orm())
        .await?;
    let nodes = node::Entity::find()
        .filter(node::Column::Id.is_in(runs.iter().map(|r| r.node_id)))
        .all(store.orm())
        .await?;
    let workers = worker::Entity::find()
        .filter(worker::Column::Id.is_in(runs.iter().filter_map(|r| r.worker_id)))
        .all(store.orm())
        .await?;
    let deployments = deployment::Entity::find()
        .filter(
            deployment::Column::Id
                .is_in(steps.iter().filter_map(|(_, n)| n.as_ref().map(|n| n.deployment_id))),
        )
        .all(store.orm())
        .await?;
    let to_row = |run: run::Model| {
        let (step, noderole) = steps.iter().find(|(s, _)| s.id == run.step_id)?;
        let noderole = noderole.as_ref()?;
        Some(RunRow {
            step: step.clone(),
            noderole: noderole.id,
            role: noderole.role.clone(),
            fqdn: nodes.iter().find(|n| n.id == run.node_id)?.fqdn.clone(),
            deployment: deployments.iter().find(|d| d.id == noderole.deployment_id)?.name.clone(),
            worker: run
                .worker_id
                .and_then(|id| workers.iter().find(|w| w.id == id))
                .map(|w| w.name.clone()),
            run,
        })
    };
    Ok(runs.into_iter().filter_map(to_row).collect())
}

/// The deployment in which a noderole is bound, or was until its removal.
pub async fn noderole_deployment(
    connection: &mut PgConnection,
    id: NoderoleId,
) -> Result<Option<DeploymentId>, StoreError> {
    let place: Option<Uuid> =
        sqlx::query_scalar("SELECT deployment_id FROM noderole WHERE id = $1")
            .bind(id.0)
            .fetch_optional(connection)
            .await?;
    Ok(place.map(DeploymentId))
}

/// The deployment in which a run's noderole is bound.
pub async fn run_deployment(
    connection: &mut PgConnection,
    id: RunId,
) -> Result<Option<DeploymentId>, StoreError> {
    let place: Option<Uuid> = sqlx::query_scalar(
        "SELECT n.deployment_id FROM run r JOIN step s ON s.id = r.step_id JOIN noderole n ON n.id = s.noderole_id WHERE r.id = $1",
    )
    .bind(id.0)
    .fetch_optional(connection)
    .await?;
    Ok(place.map(DeploymentId))
}
