//! Runs in lists and one by one.

use api::console::PAGE_SIZE;
use engine::ids::{DeploymentId, NodeId, RunId, StepId};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::entity::{deployment, node, noderole, run, step, worker};
use crate::{Store, StoreError};

/// A run with the names around it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Itself.
    pub run: run::Model,
    /// Of which step.
    pub step: step::Model,
    /// Whose.
    pub noderole: Uuid,
    /// The role.
    pub role: String,
    /// The node's name.
    pub fqdn: String,
    /// Where it is bound.
    pub deployment: String,
    /// The worker's name.
    pub worker: Option<String>,
}

/// Which runs a list shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunFilter<'f> {
    /// `queued`, `running`, or the word of an outcome.
    pub state: Option<&'f str>,
    /// Only runs before this one.
    pub before: Option<RunId>,
}

/// Runs, newest first; one more than a page.
pub async fn runs(store: &Store, filter: RunFilter<'_>) -> Result<Vec<RunRow>, StoreError> {
    let mut query = run::Entity::find().order_by_desc(run::Column::Id).limit(PAGE_SIZE as u64 + 1);
    if let Some(before) = filter.before {
        query = query.filter(run::Column::Id.lt(before.0));
    }
    query = match filter.state {
        None => query,
        Some(state @ ("queued" | "running")) => query.filter(run::Column::State.eq(state)),
        Some(outcome) => query.filter(run::Column::Outcome.eq(outcome)),
    };
    name_all(store, query.all(store.orm()).await?).await
}

/// Attempts at a step, newest first; at most a page.
pub async fn runs_of_step(store: &Store, step: StepId) -> Result<Vec<RunRow>, StoreError> {
    let query = run::Entity::find()
        .filter(run::Column::StepId.eq(step.0))
        .order_by_desc(run::Column::Id)
        .limit(PAGE_SIZE as u64);
    name_all(store, query.all(store.orm()).await?).await
}

/// Runs on a node, newest first; at most so many.
pub async fn runs_of_node(store: &Store, node: NodeId, limit: u64) -> Result<Vec<RunRow>, StoreError> {
    let query = run::Entity::find().filter(run::Column::NodeId.eq(node.0)).order_by_desc(run::Column::Id).limit(limit);
    name_all(store, query.all(store.orm()).await?).await
}

/// A run.
pub async fn run(store: &Store, id: RunId) -> Result<Option<RunRow>, StoreError> {
    let found = run::Entity::find_by_id(id.0).all(store.orm()).await?;
    Ok(name_all(store, found).await?.pop())
}

/// What a run was told and handed back; its step's wall, if this is the run that left it; the submission that it rests on; and the size of
/// what it handed back, also where that is not kept any more.
pub async fn run_documents(
    on: &mut PgConnection,
    id: RunId,
) -> Result<Option<(Option<Value>, Option<Value>, Option<Value>, Option<i64>, i32)>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT r.input, r.result, CASE WHEN s.wall_run = r.id THEN s.wall END, t.submission_id, r.result_bytes FROM run r \
         JOIN step s ON s.id = r.step_id LEFT JOIN target t ON t.number = r.generation WHERE r.id = $1",
    )
    .bind(id.0)
    .fetch_optional(on)
    .await?)
}

/// Adds names, by one statement for each kind of name.
async fn name_all(store: &Store, runs: Vec<run::Model>) -> Result<Vec<RunRow>, StoreError> {
    let steps: Vec<Uuid> = runs.iter().map(|r| r.step_id).collect();
    let steps = step::Entity::find()
        .filter(step::Column::Id.is_in(steps))
        .find_also_related(noderole::Entity)
        .all(store.orm())
        .await?;
    let nodes =
        node::Entity::find().filter(node::Column::Id.is_in(runs.iter().map(|r| r.node_id))).all(store.orm()).await?;
    let workers = worker::Entity::find()
        .filter(worker::Column::Id.is_in(runs.iter().filter_map(|r| r.worker_id)))
        .all(store.orm())
        .await?;
    let deployments = deployment::Entity::find()
        .filter(deployment::Column::Id.is_in(steps.iter().filter_map(|(_, n)| n.as_ref().map(|n| n.deployment_id))))
        .all(store.orm())
        .await?;
    let named = |run: run::Model| {
        let (step, noderole) = steps.iter().find(|(s, _)| s.id == run.step_id)?;
        let noderole = noderole.as_ref()?;
        Some(RunRow {
            step: step.clone(),
            noderole: noderole.id,
            role: noderole.role.clone(),
            fqdn: nodes.iter().find(|n| n.id == run.node_id)?.fqdn.clone(),
            deployment: deployments.iter().find(|d| d.id == noderole.deployment_id)?.name.clone(),
            worker: run.worker_id.and_then(|id| workers.iter().find(|w| w.id == id)).map(|w| w.name.clone()),
            run,
        })
    };
    Ok(runs.into_iter().filter_map(named).collect())
}

/// The deployment that a run's noderole is bound in.
pub async fn place_of_run(on: &mut PgConnection, id: RunId) -> Result<Option<DeploymentId>, StoreError> {
    let place: Option<Uuid> = sqlx::query_scalar(
        "SELECT n.deployment_id FROM run r JOIN step s ON s.id = r.step_id JOIN noderole n ON n.id = s.noderole_id WHERE r.id = $1",
    )
    .bind(id.0)
    .fetch_optional(on)
    .await?;
    Ok(place.map(DeploymentId))
}
