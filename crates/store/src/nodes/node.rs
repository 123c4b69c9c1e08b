//! A node with all its data.

use engine::alive::TriedAddress;
use engine::ids::{NodeId, RunId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{join, node_fact, node_report, token};

#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
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
    /// Who added it.
    pub created_by: Option<String>,
    pub created_at: OffsetDateTime,
}

/// The key of a lookup.
enum By<'a> {
    Id(Uuid),
    Name(&'a str),
}

pub async fn node_detail(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Option<NodeDetailRow>, StoreError> {
    found(on, By::Id(node.0)).await
}

pub async fn node_detail_by_name(
    on: &mut PgConnection,
    fqdn: &str,
) -> Result<Option<NodeDetailRow>, StoreError> {
    found(on, By::Name(fqdn)).await
}

async fn found(on: &mut PgConnection, by: By<'_>) -> Result<Option<NodeDetailRow>, StoreError> {
    const COLUMNS: &str = "SELECT n.id, n.fqdn, n.deployment_id, n.version, n.description, n.hints, n.macs, n.serial, n.transport, \
         n.address, n.connection, n.alive, n.alive_since, n.last_seen_at, n.contradicting_checks, n.available, n.unavailable_at, \
         u.name AS unavailable_by, n.unavailable_reason, n.joined, n.joined_at, n.boot_id, n.bootenv, c.name AS created_by, n.created_at \
         FROM node n LEFT JOIN person u ON u.id = n.unavailable_by LEFT JOIN person c ON c.id = n.created_by \
         WHERE NOT n.phantom AND n.removed_in IS NULL AND ";
    let condition = if matches!(by, By::Id(_)) { "n.id = $1" } else { "n.fqdn = $1" };
    let query = sqlx::query_as(sqlx::AssertSqlSafe(format!("{COLUMNS}{condition}")));
    let query = match by {
        By::Id(id) => query.bind(id),
        By::Name(fqdn) => query.bind(fqdn),
    };
    Ok(query.fetch_optional(on).await?)
}

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LookRow {
    pub at: OffsetDateTime,
    pub reached: bool,
    /// The address that accepted the connection.
    pub address: String,
    /// The error.
    pub detail: String,
    /// The result of each address.
    pub attempts: Json<Vec<TriedAddress>>,
    /// In milliseconds.
    pub took_ms: i32,
    /// The worker's name.
    pub by: String,
}

/// A filter for health checks of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct LookFilter<'f> {
    pub reached: Option<bool>,
    /// Text in an address or an error, ignoring case.
    pub text: Option<&'f str>,
    /// Oldest first.
    pub ascending: bool,
    /// Only health checks after this time in the order.
    pub behind: Option<OffsetDateTime>,
}

/// The last health checks of a node, newest or oldest first. The primary key (node, time) serves
/// both orders. A node has few, so filters need no index.
pub async fn looks(
    on: &mut PgConnection,
    node: NodeId,
    filter: LookFilter<'_>,
    limit: i64,
) -> Result<Vec<LookRow>, StoreError> {
    let (sign, direction) = if filter.ascending { (">", "ASC") } else { ("<", "DESC") };
    let query = format!(
        "SELECT at, reached, address, detail, attempts, took_ms, by FROM health_check \
         WHERE node_id = $1 AND ($2::timestamptz IS NULL OR at {sign} $2) AND ($3::boolean IS NULL OR reached = $3) \
           AND ($4::text IS NULL OR position(lower($4) IN lower(address)) > 0 OR position(lower($4) IN lower(detail)) > 0 \
             OR EXISTS (SELECT FROM jsonb_array_elements(attempts) AS t (one) \
               WHERE position(lower($4) IN lower(t.one ->> 'address')) > 0 OR position(lower($4) IN lower(t.one ->> 'said')) > 0)) \
         ORDER BY at {direction} LIMIT $5"
    );
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(node.0)
        .bind(filter.behind)
        .bind(filter.reached)
        .bind(filter.text)
        .bind(limit)
        .fetch_all(on)
        .await?)
}

/// The maximum number of noderoles of a node in a page.
pub const MAX_CARRIED: i64 = 500;

/// A noderole on a node.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct CarriedRow {
    pub noderole_id: Uuid,
    pub role: String,
    /// The deployment in which it is bound.
    pub deployment_id: Uuid,
    pub state: String,
    /// The last change of its state.
    pub since: OffsetDateTime,
    /// The reason of an ERROR.
    pub error: Option<String>,
    /// The position of its step in the order of execution.
    pub rank: i32,
    pub step_id: Uuid,
}

/// A filter for noderoles of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct CarriedFilter<'f> {
    pub state: Option<&'f str>,
    pub role: Option<&'f str>,
    /// Reverse order of execution.
    pub descending: bool,
    /// Only noderoles after the step with this rank and id in the order.
    pub behind: Option<(i32, Uuid)>,
}

/// The noderoles on a node, in the order of execution or its reverse. The index `step_node` serves
/// both orders, and filters need no index.
pub async fn noderoles_of_node(
    on: &mut PgConnection,
    node: NodeId,
    filter: CarriedFilter<'_>,
    limit: i64,
) -> Result<Vec<CarriedRow>, StoreError> {
    let (sign, direction) = if filter.descending { ("<", "DESC") } else { (">", "ASC") };
    let query = format!(
        "SELECT r.id AS noderole_id, r.role, r.deployment_id, s.state, s.since, s.error, s.rank, s.id AS step_id FROM step s \
         JOIN noderole r ON r.id = s.noderole_id \
         WHERE s.node_id = $1 AND s.action = 'run' AND s.state <> 'gone' \
           AND ($2::text IS NULL OR s.state = $2) AND ($3::text IS NULL OR r.role = $3) \
           AND ($4::int IS NULL OR (s.rank, s.id) {sign} ($4::int, $5::uuid)) \
         ORDER BY s.rank {direction}, s.id {direction} LIMIT $6"
    );
    let (rank, step) = filter.behind.unzip();
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(node.0)
        .bind(filter.state)
        .bind(filter.role)
        .bind(rank)
        .bind(step)
        .bind(limit)
        .fetch_all(on)
        .await?)
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
