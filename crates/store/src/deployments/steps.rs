//! Steps of deployments, for boards and lists.

use engine::ids::{DeploymentId, NodeId, NoderoleId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QuerySelect,
};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::connect::orm;
use crate::entity::{join, node, noderole, step};
use crate::list::ColumnType;
use crate::runs::{STATE_COUNTS, StateCounts, joined_steps};
use crate::{Page, Sort, Store, StoreError};

/// A step on a board.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StepRow {
    pub noderole_id: Uuid,
    pub state: String,
    /// The reason of an ERROR.
    pub error: Option<String>,
}

impl StepRow {
    pub fn noderole(&self) -> NoderoleId {
        NoderoleId(self.noderole_id)
    }
}

/// The steps on a deployment's board: those of noderoles bound in it, and all on its nodes. At most
/// 50,000, unordered. To get certain steps, query them by id.
pub async fn steps_of(
    connection: &mut PgConnection,
    deployment: DeploymentId,
) -> Result<Vec<StepRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT s.noderole_id, s.state, s.error FROM step s JOIN noderole r ON r.id = s.noderole_id \
         WHERE r.deployment_id = $1 AND s.action = 'run' AND s.state <> 'gone' \
         UNION \
         SELECT s.noderole_id, s.state, s.error FROM node n JOIN step s ON s.node_id = n.id \
         WHERE n.deployment_id = $1 AND s.action = 'run' AND s.state <> 'gone' LIMIT 50000",
    )
    .bind(deployment.0)
    .fetch_all(connection)
    .await?)
}

/// Noderoles on a deployment's board whose steps are in ERROR: noderoles bound in it, and those on
/// its nodes.
pub async fn failed_noderoles(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    limit: i64,
) -> Result<Vec<(NoderoleId, String)>, StoreError> {
    noderoles_where(connection, deployment, "step.state = 'error'", limit).await
}

/// Noderoles on a deployment's board whose steps are stale, unchecked or not ACTIVE, as
/// [`failed_noderoles`]. Those in ERROR come first.
pub async fn unfinished_noderoles(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    limit: i64,
) -> Result<Vec<(NoderoleId, String)>, StoreError> {
    let condition = format!("(step.state NOT IN ('active', 'gone') OR {STALE} OR {UNCHECKED})");
    noderoles_where(connection, deployment, &condition, limit).await
}

async fn noderoles_where(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    steps: &str,
    limit: i64,
) -> Result<Vec<(NoderoleId, String)>, StoreError> {
    let sql = format!(
        "SELECT noderole_id, state FROM (\
           SELECT step.noderole_id, step.state FROM noderole r JOIN step ON step.noderole_id = r.id \
           WHERE r.deployment_id = $1 AND step.action = 'run' AND {steps} \
           UNION \
           SELECT step.noderole_id, step.state FROM node n JOIN step ON step.node_id = n.id \
           WHERE n.deployment_id = $1 AND step.action = 'run' AND {steps}) found \
         ORDER BY state <> 'error', noderole_id LIMIT $2"
    );
    let rows: Vec<(Uuid, String)> = sqlx::query_as(AssertSqlSafe(sql))
        .bind(deployment.0)
        .bind(limit)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|(id, state)| (NoderoleId(id), state)).collect())
}

/// The step of a noderole that a board shows.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct BoardStepRow {
    pub noderole_id: Uuid,
    pub state: String,
    /// The reason of an ERROR.
    pub error: Option<String>,
    /// Whether it is ACTIVE and its input has changed, or is not compared yet.
    #[sea_orm(from_expr = "Expr::cust(STALE)")]
    pub stale: bool,
    /// Whether it is ACTIVE and its check does not pass.
    #[sea_orm(from_expr = "Expr::cust(UNCHECKED)")]
    pub unchecked: bool,
}

/// The steps of these noderoles, without removed ones.
pub async fn steps_by_noderole(
    connection: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<BoardStepRow>, StoreError> {
    let rows = step::Entity::find()
        .filter(step::Column::NoderoleId.eq_any(noderoles.iter().map(|id| id.0)))
        .filter(step::Column::Action.eq("run"))
        .filter(step::Column::State.ne("gone"))
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// The states of these noderoles' steps.
pub async fn step_states(
    connection: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<(NoderoleId, String)>, StoreError> {
    let rows: Vec<(Uuid, String)> = step::Entity::find()
        .filter(step::Column::NoderoleId.eq_any(noderoles.iter().map(|id| id.0)))
        .filter(step::Column::Action.eq("run"))
        .select_only()
        .columns([step::Column::NoderoleId, step::Column::State])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(rows.into_iter().map(|(id, state)| (NoderoleId(id), state)).collect())
}

/// The duration in milliseconds of the last successful run of each noderole. Steps with more than
/// 20 failures since are omitted.
pub async fn run_durations(
    connection: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<(NoderoleId, u64)>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "SELECT s.noderole_id, (extract(epoch FROM took.ended_at - took.started_at) * 1000)::bigint FROM step s \
         CROSS JOIN LATERAL (SELECT started_at, ended_at FROM (SELECT id, started_at, ended_at, outcome FROM run \
         WHERE step_id = s.id ORDER BY id DESC LIMIT 20) last \
         WHERE outcome = 'succeeded' AND started_at IS NOT NULL ORDER BY id DESC LIMIT 1) took \
         WHERE s.noderole_id = ANY($1) AND s.action = 'run'",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, duration)| (NoderoleId(id), u64::try_from(duration).unwrap_or(0)))
        .collect())
}

/// The number of a deployment's steps by state, and of its nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeploymentCounts {
    pub nodes: i64,
    pub steps: StateCounts,
}

#[derive(sqlx::FromRow)]
struct DeploymentCountsRow {
    id: Uuid,
    nodes: i64,
    #[sqlx(flatten)]
    steps: StateCounts,
}

/// The counts of every deployment with steps or nodes.
pub async fn counts(
    connection: &mut PgConnection,
) -> Result<Vec<(DeploymentId, DeploymentCounts)>, StoreError> {
    let sql = format!(
        "SELECT d.id, (SELECT count(*) FROM node n WHERE n.deployment_id = d.id AND NOT n.phantom AND n.removed_in IS NULL) AS nodes, \
         {STATE_COUNTS} FROM deployment d \
         LEFT JOIN noderole r ON r.deployment_id = d.id LEFT JOIN step s ON s.noderole_id = r.id \
         LEFT JOIN role_check c ON c.step_id = s.id AND c.passes_until <= now() \
         WHERE d.removed_in IS NULL GROUP BY d.id"
    );
    let rows: Vec<DeploymentCountsRow> =
        sqlx::query_as(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let row = |row: DeploymentCountsRow| {
        (DeploymentId(row.id), DeploymentCounts { nodes: row.nodes, steps: row.steps })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// `role on node` for each of these steps.
pub async fn step_names(
    connection: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<(StepId, String)>, StoreError> {
    let rows: Vec<(Uuid, String, String)> = joined_steps()
        .filter(step::Column::Id.eq_any(steps.iter().map(|step| step.0)))
        .select_only()
        .column(step::Column::Id)
        .column(noderole::Column::Role)
        .column(node::Column::Fqdn)
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let to_name = |(id, role, fqdn): (Uuid, String, String)| {
        let host = fqdn.split_once('.').map_or(fqdn.as_str(), |(host, _)| host);
        (StepId(id), format!("{role} on {host}"))
    };
    Ok(rows.into_iter().map(to_name).collect())
}

/// Whether a step is ACTIVE and its input has changed or is not compared yet, as in the counts of
/// steps.
const STALE: &str = "(step.state = 'active' AND (step.stale \
    OR step.pending = 0 AND step.input_version <> step.input_checked))";

/// Whether a step is ACTIVE and its check does not pass, as in the counts of steps.
const UNCHECKED: &str = "(step.state = 'active' AND EXISTS (SELECT FROM role_check c \
    WHERE c.step_id = step.id AND c.passes_until <= now()))";

/// A step in a list, with names for display.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct StepListRow {
    pub id: Uuid,
    pub noderole_id: Uuid,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Role))")]
    pub role: String,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Instance))")]
    pub instance: i32,
    pub action: String,
    pub node_id: Uuid,
    /// The node's name.
    #[sea_orm(from_expr = "Expr::col((node::Entity, node::Column::Fqdn))")]
    pub fqdn: String,
    /// The deployment in which the noderole is bound.
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::DeploymentId))")]
    pub deployment_id: Uuid,
    pub state: String,
    /// The last change of its state.
    pub since: OffsetDateTime,
    pub stale: bool,
    /// Whether it is ACTIVE and its check does not pass.
    #[sea_orm(from_expr = "Expr::cust(UNCHECKED)")]
    pub unchecked: bool,
    pub generation: i64,
    /// The reason of an ERROR.
    pub error: Option<String>,
}

impl StepListRow {
    pub const BY_ID: Sort<Self> =
        Sort { columns: &[("step.id", ColumnType::Id)], keys: |row| vec![row.id.into()] };
}

/// A filter for steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepFilter<'f> {
    pub deployment: Option<DeploymentId>,
    pub node: Option<NodeId>,
    pub role: Option<&'f str>,
    pub state: Option<&'f str>,
    pub stale: bool,
    /// Only ACTIVE steps whose check does not pass.
    pub unchecked: bool,
    pub generation: Option<i64>,
}

/// A page of steps. The primary key serves the order, and the filters for stale steps, a node and
/// a generation have indexes of their own.
pub async fn list_steps(
    store: &Store,
    filter: StepFilter<'_>,
    page: &Page<StepListRow>,
) -> Result<Vec<StepListRow>, StoreError> {
    let mut query = page
        .of(step::Entity::find())
        .join(JoinType::InnerJoin, join(step::Column::NoderoleId, noderole::Column::Id))
        .join(JoinType::InnerJoin, join(step::Column::NodeId, node::Column::Id))
        .filter(step::Column::State.ne("gone"))
        // The noderole of an ACTIVE removal step is gone, as in the counts of steps.
        .filter(
            Condition::any()
                .add(step::Column::Action.eq("run"))
                .add(step::Column::State.ne("active")),
        );
    if let Some(deployment) = filter.deployment {
        query = query.filter(noderole::Column::DeploymentId.eq(deployment.0));
    }
    if let Some(node) = filter.node {
        query = query.filter(step::Column::NodeId.eq(node.0));
    }
    if let Some(role) = filter.role {
        query = query.filter(noderole::Column::Role.eq(role));
    }
    if filter.unchecked {
        query = query.filter(Expr::cust(UNCHECKED));
    }
    if let Some(state) = filter.state {
        query = query.filter(step::Column::State.eq(state));
    }
    if filter.stale {
        // The index needs this expression, without a parameter.
        query = query.filter(Expr::cust("step.stale")).filter(step::Column::State.eq("active"));
    }
    if let Some(generation) = filter.generation {
        query = query.filter(step::Column::Generation.eq(generation));
    }
    Ok(query.into_partial_model().all(store.orm()).await?)
}
