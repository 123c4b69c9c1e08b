//! Lists of runs and single runs.

use engine::ids::{DeploymentId, NodeId, NoderoleId, RunId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, Select};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::models::RunModel;
use crate::connect::orm;
use crate::entity::{StepModel, deployment, join, node, noderole, run, step, worker};
use crate::list::ColumnType;
use crate::{Page, Sort, Store, StoreError};

/// A run with names for display.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunModel,
    pub step: StepModel,
    pub noderole: Uuid,
    pub role: String,
    /// The node's name.
    pub fqdn: String,
    /// The name of the deployment in which the noderole is bound.
    pub deployment: String,
    pub deployment_id: Uuid,
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
}

/// The state or outcome of a run. The index needs exactly this expression.
const STATE: &str = "coalesce(run.outcome, run.state)";
/// Microseconds from start to end. The index needs exactly this expression.
const DURATION_EXPRESSION: &str =
    "coalesce((EXTRACT(epoch FROM run.ended_at - run.started_at) * 1000000)::bigint, -1)";

impl RunRow {
    pub const BY_ID: Sort<Self> =
        Sort { columns: &[("run.id", ColumnType::Number)], keys: |row| vec![row.run.id.into()] };
    pub const BY_STATE: Sort<Self> = Sort {
        columns: &[(STATE, ColumnType::Text), ("run.id", ColumnType::Number)],
        keys: |row| {
            let state = row.run.outcome.as_deref().unwrap_or(&row.run.state);
            vec![state.into(), row.run.id.into()]
        },
    };
    pub const BY_DURATION: Sort<Self> = Sort {
        columns: &[(DURATION_EXPRESSION, ColumnType::Number), ("run.id", ColumnType::Number)],
        keys: |row| {
            let duration = row.run.started_at.zip(row.run.ended_at).map(|(from, to)| to - from);
            let micros =
                duration.and_then(|duration| i64::try_from(duration.whole_microseconds()).ok());
            vec![micros.unwrap_or(-1).into(), row.run.id.into()]
        },
    };
}

/// Ids rise with the time of queueing, except for runs queued concurrently. This is the maximum
/// number of those.
const MAX_CONCURRENTLY_QUEUED: i64 = 10_000;

/// A page of runs.
pub async fn runs(
    store: &Store,
    filter: RunFilter<'_>,
    page: &Page<RunRow>,
) -> Result<Vec<RunRow>, StoreError> {
    add_names(store, run_query(filter, page).into_partial_model().all(store.orm()).await?).await
}

pub(crate) fn run_query(filter: RunFilter<'_>, page: &Page<RunRow>) -> Select<run::Entity> {
    let mut query = page.of(run::Entity::find());
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

/// The runs of a step, newest first.
pub async fn runs_of_step(
    store: &Store,
    step: StepId,
    limit: u64,
) -> Result<Vec<RunRow>, StoreError> {
    let query = run::Entity::find()
        .filter(run::Column::StepId.eq(step.0))
        .order_by_desc(run::Column::Id)
        .limit(limit);
    add_names(store, query.into_partial_model().all(store.orm()).await?).await
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
    add_names(store, query.into_partial_model().all(store.orm()).await?).await
}

pub async fn run(store: &Store, id: RunId) -> Result<Option<RunRow>, StoreError> {
    let found = run::Entity::find_by_id(id.0).into_partial_model().all(store.orm()).await?;
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
async fn add_names(store: &Store, runs: Vec<RunModel>) -> Result<Vec<RunRow>, StoreError> {
    let orm = store.orm();
    let steps: Vec<StepModel> = step::Entity::find()
        .filter(step::Column::Id.is_in(runs.iter().map(|run| run.step_id)))
        .into_partial_model()
        .all(orm)
        .await?;
    let noderoles: Vec<(Uuid, String, Uuid)> = noderole::Entity::find()
        .filter(noderole::Column::Id.is_in(steps.iter().map(|step| step.noderole_id)))
        .select_only()
        .columns([noderole::Column::Id, noderole::Column::Role, noderole::Column::DeploymentId])
        .into_tuple()
        .all(orm)
        .await?;
    let nodes: Vec<(Uuid, String)> = node::Entity::find()
        .filter(node::Column::Id.is_in(runs.iter().map(|run| run.node_id)))
        .select_only()
        .columns([node::Column::Id, node::Column::Fqdn])
        .into_tuple()
        .all(orm)
        .await?;
    let workers: Vec<(Uuid, String)> = worker::Entity::find()
        .filter(worker::Column::Id.is_in(runs.iter().filter_map(|run| run.worker_id)))
        .select_only()
        .columns([worker::Column::Id, worker::Column::Name])
        .into_tuple()
        .all(orm)
        .await?;
    let deployments: Vec<(Uuid, String)> = deployment::Entity::find()
        .filter(deployment::Column::Id.is_in(noderoles.iter().map(|(.., deployment)| *deployment)))
        .select_only()
        .columns([deployment::Column::Id, deployment::Column::Name])
        .into_tuple()
        .all(orm)
        .await?;
    let name_of = |names: &[(Uuid, String)], searched: Uuid| {
        names.iter().find(|(id, _)| *id == searched).map(|(_, name)| name.clone())
    };
    let to_row = |run: RunModel| {
        let step = steps.iter().find(|step| step.id == run.step_id)?;
        let (noderole, role, deployment) =
            noderoles.iter().find(|(id, ..)| *id == step.noderole_id)?;
        Some(RunRow {
            step: step.clone(),
            noderole: *noderole,
            role: role.clone(),
            fqdn: name_of(&nodes, run.node_id)?,
            deployment: name_of(&deployments, *deployment)?,
            deployment_id: *deployment,
            worker: run.worker_id.and_then(|worker| name_of(&workers, worker)),
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
    let query = noderole::Entity::find_by_id(id.0).select_only();
    let query = query.column(noderole::Column::DeploymentId).into_tuple();
    Ok(query.one(&orm(connection)).await?.map(DeploymentId))
}

/// The deployment in which a run's noderole is bound.
pub async fn run_deployment(
    connection: &mut PgConnection,
    id: RunId,
) -> Result<Option<DeploymentId>, StoreError> {
    let query = run::Entity::find_by_id(id.0)
        .join(JoinType::InnerJoin, join(run::Column::StepId, step::Column::Id))
        .join(JoinType::InnerJoin, join(step::Column::NoderoleId, noderole::Column::Id))
        .select_only()
        .column(noderole::Column::DeploymentId);
    Ok(query.into_tuple().one(&orm(connection)).await?.map(DeploymentId))
}
