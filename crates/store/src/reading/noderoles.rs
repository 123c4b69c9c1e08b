//! One noderole and what stands around it.

use engine::ids::{NoderoleId, RunId, StepId};
use sea_orm::EntityTrait;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::entity::{deployment, node, noderole, step};
use crate::{Store, StoreError};
use sea_orm::{ColumnTrait, QueryFilter};

/// A noderole with its step, node and deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct NoderoleRow {
    /// Itself.
    pub noderole: noderole::Model,
    /// Its step.
    pub step: step::Model,
    /// Its node.
    pub node: node::Model,
    /// Where it is bound.
    pub deployment: deployment::Model,
}

/// A noderole.
pub async fn noderole(store: &Store, id: NoderoleId) -> Result<Option<NoderoleRow>, StoreError> {
    let Some((noderole, Some(node))) =
        noderole::Entity::find_by_id(id.0).find_also_related(node::Entity).one(store.orm()).await?
    else {
        return Ok(None);
    };
    let step = step::Entity::find()
        .filter(step::Column::NoderoleId.eq(id.0))
        .filter(step::Column::Action.eq("run"))
        .one(store.orm())
        .await?;
    let deployment =
        deployment::Entity::find_by_id(noderole.deployment_id).one(store.orm()).await?;
    Ok(step.zip(deployment).map(|(step, deployment)| NoderoleRow {
        noderole,
        step,
        node,
        deployment,
    }))
}

/// A noderole at the other end of an edge.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct EdgeRow {
    /// Which.
    pub noderole_id: Uuid,
    /// Its role.
    pub role: String,
    /// Its node's name.
    pub fqdn: String,
    /// Its state.
    pub state: String,
    /// What the edge means.
    pub kind: String,
    /// Why it is in ERROR.
    pub error: Option<String>,
}

/// What a step waits for, in the order of rank; at most 1,000.
pub async fn parents(on: &mut PgConnection, step: StepId) -> Result<Vec<EdgeRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT s.noderole_id, r.role, n.fqdn, s.state, e.kind, s.error FROM edge e JOIN step s ON s.id = e.parent \
         JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id \
         WHERE e.child = $1 ORDER BY s.rank, s.id LIMIT 1000",
    )
    .bind(step.0)
    .fetch_all(on)
    .await?)
}

/// What waits for a step, in the order of rank.
pub async fn children(
    on: &mut PgConnection,
    step: StepId,
    limit: i64,
) -> Result<Vec<EdgeRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT s.noderole_id, r.role, n.fqdn, s.state, e.kind, s.error FROM edge e JOIN step s ON s.id = e.child \
         JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id \
         WHERE e.parent = $1 ORDER BY s.rank, s.id LIMIT $2",
    )
    .bind(step.0)
    .bind(limit)
    .fetch_all(on)
    .await?)
}

/// A run that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRow {
    /// Which.
    pub id: RunId,
    /// `queued` or `running`.
    pub state: String,
    /// Since when.
    pub since: OffsetDateTime,
}

/// The open run of a step.
pub async fn open_run(
    on: &mut PgConnection,
    step: StepId,
) -> Result<Option<RunningRow>, StoreError> {
    let row: Option<(i64, String, OffsetDateTime)> = sqlx::query_as(
        "SELECT id, state, coalesce(started_at, queued_at) FROM run WHERE step_id = $1 AND ended_at IS NULL",
    )
    .bind(step.0)
    .fetch_optional(on)
    .await?;
    Ok(row.map(|(id, state, since)| RunningRow { id: RunId(id), state, since }))
}
