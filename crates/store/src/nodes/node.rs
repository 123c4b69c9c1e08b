//! A node with all its data.

use engine::alive::TriedAddress;
use engine::ids::{NodeId, RunId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, FromJsonQueryResult, JoinType, Order,
    QueryFilter, QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{
    health_check, join, node, node_fact, node_report, noderole, person, step, token,
};

#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "node::Entity")]
pub struct NodeDetailRow {
    pub id: Uuid,
    pub fqdn: String,
    pub deployment_id: Uuid,
    /// The version of the record.
    pub version: i32,
    pub description: String,
    /// Input for roles before their first run.
    pub hints: Value,
    pub macs: Vec<String>,
    pub serial: String,
    /// `local` or `ssh`.
    pub transport: String,
    pub address: Value,
    pub connection: Value,
    pub alive: bool,
    /// The last change of `alive`. `None`: it was never reached.
    pub alive_since: Option<OffsetDateTime>,
    /// The last successful health check.
    pub last_seen_at: Option<OffsetDateTime>,
    /// The number of consecutive health checks that contradict `alive`.
    pub contradicting_checks: i32,
    /// `false` in maintenance.
    pub available: bool,
    /// The start of the maintenance.
    pub unavailable_at: Option<OffsetDateTime>,
    /// The person who put it in maintenance.
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
    pub unavailable_by: Option<String>,
    /// The reason of the maintenance.
    pub unavailable_reason: Option<String>,
    /// The join phase.
    pub joined: String,
    /// When its running processes were last determined.
    pub joined_at: Option<OffsetDateTime>,
    /// Identifies its present start.
    pub boot_id: Option<String>,
    /// The boot environment that it reported.
    pub bootenv: Option<String>,
    /// The name of the person who added it.
    #[sea_orm(from_expr = "Expr::col((CREATOR, person::Column::Name))")]
    pub created_by: Option<String>,
    pub created_at: OffsetDateTime,
}

const CREATOR: &str = "creator";

pub async fn node_detail(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Option<NodeDetailRow>, StoreError> {
    found(on, node::Column::Id.eq(node.0), false).await
}

pub async fn node_detail_by_name(
    on: &mut PgConnection,
    fqdn: &str,
) -> Result<Option<NodeDetailRow>, StoreError> {
    found(on, node::Column::Fqdn.eq(fqdn), false).await
}

/// Like [`node_detail`], also for a phantom.
pub async fn any_node_detail(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Option<NodeDetailRow>, StoreError> {
    found(on, node::Column::Id.eq(node.0), true).await
}

async fn found(
    on: &mut PgConnection,
    key: Expr,
    with_phantoms: bool,
) -> Result<Option<NodeDetailRow>, StoreError> {
    let creator = join(node::Column::CreatedBy, person::Column::Id);
    let mut query = node::Entity::find()
        .join(JoinType::LeftJoin, join(node::Column::UnavailableBy, person::Column::Id))
        .join_as(JoinType::LeftJoin, creator, CREATOR)
        .filter(node::Column::RemovedIn.is_null())
        .filter(key);
    if !with_phantoms {
        query = query.filter(node::Column::Phantom.eq(false));
    }
    Ok(query.into_partial_model().one(&orm(on)).await?)
}

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "health_check::Entity")]
pub struct HealthCheckRow {
    pub at: OffsetDateTime,
    pub reached: bool,
    /// The address that accepted the connection.
    pub address: String,
    /// The error.
    pub detail: String,
    /// The result of each address.
    pub attempts: Attempts,
    /// In milliseconds.
    pub duration_ms: i32,
    /// The worker's name.
    pub by: String,
}

/// The attempts of a health check, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, FromJsonQueryResult)]
pub struct Attempts(pub Vec<TriedAddress>);

/// Whether a health check contains a text, ignoring case.
const HEALTH_CHECK_TEXT: &str = "(position(lower($1) IN lower(health_check.address)) > 0 \
    OR position(lower($1) IN lower(health_check.detail)) > 0 \
    OR EXISTS (SELECT FROM jsonb_array_elements(health_check.attempts) AS t (one) \
      WHERE position(lower($1) IN lower(t.one ->> 'address')) > 0 \
        OR position(lower($1) IN lower(t.one ->> 'error')) > 0))";

/// A filter for health checks of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct HealthCheckFilter<'f> {
    pub reached: Option<bool>,
    /// Text in an address or an error, ignoring case.
    pub text: Option<&'f str>,
    /// Oldest first.
    pub ascending: bool,
    /// Only health checks after this time in the order.
    pub after: Option<OffsetDateTime>,
}

/// The last health checks of a node, newest or oldest first. The primary key (node, time) serves
/// both orders. A node has few, so filters need no index.
pub async fn health_checks(
    on: &mut PgConnection,
    node: NodeId,
    filter: HealthCheckFilter<'_>,
    limit: u64,
) -> Result<Vec<HealthCheckRow>, StoreError> {
    let at = health_check::Column::At;
    let direction = if filter.ascending { Order::Asc } else { Order::Desc };
    let mut query = health_check::Entity::find()
        .filter(health_check::Column::NodeId.eq(node.0))
        .order_by(at, direction)
        .limit(limit);
    if let Some(after) = filter.after {
        query = query.filter(if filter.ascending { at.gt(after) } else { at.lt(after) });
    }
    if let Some(reached) = filter.reached {
        query = query.filter(health_check::Column::Reached.eq(reached));
    }
    if let Some(text) = filter.text {
        query = query.filter(Expr::cust_with_values(HEALTH_CHECK_TEXT, [text]));
    }
    Ok(query.into_partial_model().all(&orm(on)).await?)
}

/// The maximum number of noderoles of a node in a page.
pub const MAX_NODE_NODEROLES: u64 = 500;

/// A noderole on a node.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct NodeNoderoleRow {
    pub noderole_id: Uuid,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Role))")]
    pub role: String,
    /// The deployment in which it is bound.
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::DeploymentId))")]
    pub deployment_id: Uuid,
    pub state: String,
    /// The last change of its state.
    pub since: OffsetDateTime,
    /// The reason of an ERROR.
    pub error: Option<String>,
    /// The position of its step in the order of execution.
    pub rank: i32,
    #[sea_orm(from_col = "id")]
    pub step_id: Uuid,
}

/// A filter for noderoles of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeNoderoleFilter<'f> {
    pub state: Option<&'f str>,
    pub role: Option<&'f str>,
    /// Reverse order of execution.
    pub descending: bool,
    /// Only noderoles after the step with this rank and id in the order.
    pub after: Option<(i32, Uuid)>,
}

/// The noderoles on a node, in the order of execution or its reverse. The index `step_node` serves
/// both orders, and filters need no index.
pub async fn noderoles_of_node(
    on: &mut PgConnection,
    node: NodeId,
    filter: NodeNoderoleFilter<'_>,
    limit: u64,
) -> Result<Vec<NodeNoderoleRow>, StoreError> {
    let (after, direction) = match filter.descending {
        true => ("(step.rank, step.id) < ($1, $2)", Order::Desc),
        false => ("(step.rank, step.id) > ($1, $2)", Order::Asc),
    };
    let mut query = step::Entity::find()
        .join(JoinType::InnerJoin, join(step::Column::NoderoleId, noderole::Column::Id))
        .filter(step::Column::NodeId.eq(node.0))
        .filter(step::Column::Action.eq("run"))
        .filter(step::Column::State.ne("gone"))
        .order_by(step::Column::Rank, direction.clone())
        .order_by(step::Column::Id, direction)
        .limit(limit);
    if let Some(state) = filter.state {
        query = query.filter(step::Column::State.eq(state));
    }
    if let Some(role) = filter.role {
        query = query.filter(noderole::Column::Role.eq(role));
    }
    if let Some((rank, id)) = filter.after {
        let values: [sea_orm::Value; 2] = [rank.into(), id.into()];
        query = query.filter(Expr::cust_with_values(after, values));
    }
    Ok(query.into_partial_model().all(&orm(on)).await?)
}

/// Facts of a node from one source.
#[derive(Debug, Clone, PartialEq)]
pub struct FactRow {
    /// `node` for the machine itself, or `role` and a name.
    pub source: String,
    pub facts: Value,
    pub at: OffsetDateTime,
    /// The run that found them.
    pub run: Option<RunId>,
}

/// The facts of a node by source. Each of its roles has at most one row.
pub async fn facts(on: &mut PgConnection, node: NodeId) -> Result<Vec<FactRow>, StoreError> {
    let rows: Vec<(String, Value, OffsetDateTime, Option<i64>)> = node_fact::Entity::find()
        .filter(node_fact::Column::NodeId.eq(node.0))
        .order_by_desc(node_fact::Column::Source)
        .limit(100)
        .select_only()
        .columns([
            node_fact::Column::Source,
            node_fact::Column::Facts,
            node_fact::Column::At,
            node_fact::Column::RunId,
        ])
        .into_tuple()
        .all(&orm(on))
        .await?;
    let row = |(source, facts, at, run): (_, _, _, Option<i64>)| FactRow {
        source,
        facts,
        at,
        run: run.map(RunId),
    };
    Ok(rows.into_iter().map(row).collect())
}

/// A report of a machine about itself.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "node_report::Entity")]
pub struct ReportRow {
    pub at: OffsetDateTime,
    pub kind: String,
    /// The boot id or boot environment.
    pub detail: String,
    /// The name of the token.
    #[sea_orm(from_expr = "Expr::col((token::Entity, token::Column::Name))")]
    pub token: String,
    /// The client's address.
    pub address: String,
}

/// The last reports of a node, newest first.
pub async fn reports(
    on: &mut PgConnection,
    node: NodeId,
    limit: u64,
) -> Result<Vec<ReportRow>, StoreError> {
    let rows = node_report::Entity::find()
        .join(JoinType::InnerJoin, join(node_report::Column::TokenId, token::Column::Id))
        .filter(node_report::Column::NodeId.eq(node.0))
        .order_by_desc(node_report::Column::Id)
        .limit(limit)
        .into_partial_model()
        .all(&orm(on))
        .await?;
    Ok(rows)
}
