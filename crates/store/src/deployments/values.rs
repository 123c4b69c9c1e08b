//! The origin of values: steps and edits.

use engine::ids::{BlueprintNumber, NodeId, RunId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, DerivePartialModel, EntityTrait, QueryFilter, QuerySelect};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{node, noderole, run, step};
use crate::runs::joined_steps;

/// A step with its noderole and node.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct StepOf {
    pub id: Uuid,
    pub noderole_id: Uuid,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Role))")]
    pub role: String,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Instance))")]
    pub instance: i32,
    pub node_id: Uuid,
    /// The node's name.
    #[sea_orm(from_expr = "Expr::col((node::Entity, node::Column::Fqdn))")]
    pub fqdn: String,
    /// The deployment in which the noderole is bound.
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::DeploymentId))")]
    pub deployment_id: Uuid,
}

/// These steps with their noderoles and nodes.
pub async fn step_details(
    on: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<StepOf>, StoreError> {
    let rows = joined_steps()
        .filter(step::Column::Id.eq_any(steps.iter().map(|step| step.0)))
        .into_partial_model()
        .all(&orm(on))
        .await?;
    Ok(rows)
}

/// The object whose data an edit sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// `set_noderole_data` or `set_role_data`.
    pub edit: &'static str,
    /// The node or the deployment.
    pub on: Uuid,
    /// The noderole on the node, or the role.
    pub of: String,
}

/// A committed edit that set data.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct SetRow {
    pub proposal_id: i64,
    pub seq: i32,
    /// The name of the person who made the change.
    pub name: String,
    pub at: OffsetDateTime,
    /// The blueprint that committed it.
    pub target: i64,
    /// All data that it set.
    pub data: Value,
}

/// The maximum number of edits to read per object.
const MAX_EDITS_READ: i64 = 20;

/// The committed edits that set this, up to a blueprint, newest first, at most 20.
pub async fn sets(
    on: &mut PgConnection,
    subject: &Setting,
    up_to: BlueprintNumber,
) -> Result<Vec<SetRow>, StoreError> {
    Ok(sqlx::query_as(include_str!("statements/sets.sql"))
        .bind(subject.edit)
        .bind(subject.on.to_string())
        .bind(&subject.of)
        .bind(up_to.0)
        .bind(MAX_EDITS_READ)
        .fetch_all(on)
        .await?)
}

/// The input of a run, its surroundings and its blueprint.
pub async fn run_input(
    on: &mut PgConnection,
    id: RunId,
) -> Result<Option<(Option<Value>, Option<Value>, i64)>, StoreError> {
    let query = run::Entity::find_by_id(id.0).select_only().columns([
        run::Column::Input,
        run::Column::Surroundings,
        run::Column::BlueprintNumber,
    ]);
    Ok(query.into_tuple().one(&orm(on)).await?)
}

/// A stored result of a node, cut to its beginning.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct ResultRow {
    pub id: i64,
    pub noderole_id: Uuid,
    pub role: String,
    pub instance: i32,
    pub action: String,
    pub outcome: String,
    /// The generation of the step that it executed.
    pub generation: i64,
    pub ended_at: OffsetDateTime,
    /// The beginning of the result, as text.
    pub begins: String,
    /// The size of the whole result.
    pub result_bytes: i32,
}

/// A filter for results of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResultFilter<'f> {
    pub outcome: Option<&'f str>,
    pub role: Option<&'f str>,
    /// Oldest first.
    pub ascending: bool,
    /// Only results after this run in the order.
    pub after: Option<RunId>,
}

/// The stored results of a node, newest or oldest first, each cut to `max_characters`, and their
/// total number. `None`: there is no such node. The index `run_results` lists them by node and run.
/// A node has few ([`engine::data::retention`]), so filters need no index.
pub async fn node_results(
    on: &mut PgConnection,
    node: NodeId,
    filter: ResultFilter<'_>,
    limit: i64,
    max_characters: i32,
) -> Result<Option<(Vec<ResultRow>, usize)>, StoreError> {
    let total: Option<i64> = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM run r WHERE r.node_id = n.id AND r.result IS NOT NULL AND r.result_bytes > 0) \
         FROM node n WHERE n.id = $1",
    )
    .bind(node.0)
    .fetch_optional(&mut *on)
    .await?;
    let Some(total) = total else { return Ok(None) };
    let (sign, direction) = if filter.ascending { (">", "ASC") } else { ("<", "DESC") };
    let query =
        format!(include_str!("statements/node_results.sql"), sign = sign, direction = direction,);
    let rows = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(node.0)
        .bind(filter.after.map(|run| run.0))
        .bind(limit)
        .bind(max_characters)
        .bind(filter.outcome)
        .bind(filter.role)
        .fetch_all(on)
        .await?;
    Ok(Some((rows, usize::try_from(total).unwrap_or(0))))
}
