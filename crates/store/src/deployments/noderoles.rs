//! A noderole with its step, node, deployment, parents and children.

use engine::ids::{ActionName, NoderoleId, RunId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::connect::orm;
use crate::entity::{NoderoleModel, StepModel, deployment, edge, join, node, noderole, run, step};
use crate::nodes::NodeModel;
use crate::runs::joined_steps;
use crate::{Store, StoreError};

/// The columns of a deployment that pages show.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "deployment::Entity")]
pub struct DeploymentModel {
    pub id: Uuid,
    pub parent: Option<Uuid>,
    /// Unique.
    pub name: String,
    /// Whether it is *system*.
    pub system: bool,
    /// The blueprint that last changed it.
    pub head_no: i64,
}

/// A noderole with its step, node and deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct NoderoleRow {
    pub noderole: NoderoleModel,
    pub step: StepModel,
    pub node: NodeModel,
    /// The deployment in which it is bound.
    pub deployment: DeploymentModel,
}

pub async fn noderole(store: &Store, id: NoderoleId) -> Result<Option<NoderoleRow>, StoreError> {
    let orm = store.orm();
    let query = noderole::Entity::find_by_id(id.0).into_partial_model::<NoderoleModel>();
    let Some(noderole) = query.one(orm).await? else { return Ok(None) };
    let node = node::Entity::find_by_id(noderole.node_id).into_partial_model().one(orm).await?;
    let step = step::Entity::find()
        .filter(step::Column::NoderoleId.eq(id.0))
        .filter(step::Column::Action.eq("run"))
        .into_partial_model()
        .one(orm)
        .await?;
    let deployment = deployment::Entity::find_by_id(noderole.deployment_id);
    let deployment = deployment.into_partial_model().one(orm).await?;
    let (Some(node), Some(step), Some(deployment)) = (node, step, deployment) else {
        return Ok(None);
    };
    Ok(Some(NoderoleRow { noderole, step, node, deployment }))
}

/// The step that a retry of a noderole runs: its removal, while that is unfinished, or its `run`.
pub async fn retried_step(
    connection: &mut PgConnection,
    noderole: NoderoleId,
) -> Result<StepId, StoreError> {
    Ok(match removal_state(connection, noderole).await?.as_deref() {
        Some("blocked" | "todo" | "transition" | "error") => {
            StepId::of(noderole, &ActionName::remove())
        }
        _ => StepId::run_of(noderole),
    })
}

/// The state of a noderole's removal step. `None` without one.
pub async fn removal_state(
    connection: &mut PgConnection,
    noderole: NoderoleId,
) -> Result<Option<String>, StoreError> {
    let removal = StepId::of(noderole, &ActionName::remove());
    let query = step::Entity::find_by_id(removal.0).select_only().column(step::Column::State);
    Ok(query.into_tuple().one(&orm(connection)).await?)
}

/// A noderole at the other end of an edge.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct EdgeRow {
    pub noderole_id: Uuid,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Role))")]
    pub role: String,
    pub node_id: Uuid,
    /// The node's name.
    #[sea_orm(from_expr = "Expr::col((node::Entity, node::Column::Fqdn))")]
    pub fqdn: String,
    pub state: String,
    /// The kind of the edge.
    #[sea_orm(from_expr = "Expr::col((edge::Entity, edge::Column::Kind))")]
    pub kind: String,
    /// The reason of an ERROR.
    pub error: Option<String>,
}

/// The parents of a step, ordered by rank, at most 1,000.
pub async fn parents(
    connection: &mut PgConnection,
    step: StepId,
) -> Result<Vec<EdgeRow>, StoreError> {
    neighbors(connection, (edge::Column::Child, step), edge::Column::Parent, 1_000).await
}

/// The children of a step, ordered by rank.
pub async fn children(
    connection: &mut PgConnection,
    step: StepId,
    limit: u64,
) -> Result<Vec<EdgeRow>, StoreError> {
    neighbors(connection, (edge::Column::Parent, step), edge::Column::Child, limit).await
}

/// The steps at the other end of the edges from a step.
async fn neighbors(
    connection: &mut PgConnection,
    (this_end, step): (edge::Column, StepId),
    other_end: edge::Column,
    limit: u64,
) -> Result<Vec<EdgeRow>, StoreError> {
    let rows = joined_steps()
        .join(JoinType::InnerJoin, join(step::Column::Id, other_end))
        .filter(this_end.eq(step.0))
        .order_by_asc(step::Column::Rank)
        .order_by_asc(step::Column::Id)
        .limit(limit)
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// An open run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRow {
    pub id: RunId,
    /// `queued` or `running`.
    pub state: String,
    /// The start, or the time of queueing.
    pub since: OffsetDateTime,
}

pub async fn open_run(
    connection: &mut PgConnection,
    step: StepId,
) -> Result<Option<RunningRow>, StoreError> {
    let query = run::Entity::find()
        .filter(run::Column::StepId.eq(step.0))
        .filter(run::Column::EndedAt.is_null())
        .select_only()
        .columns([run::Column::Id, run::Column::State])
        .expr(Expr::cust("coalesce(started_at, queued_at)"));
    let row: Option<(i64, String, OffsetDateTime)> =
        query.into_tuple().one(&orm(connection)).await?;
    Ok(row.map(|(id, state, since)| RunningRow { id: RunId(id), state, since }))
}
