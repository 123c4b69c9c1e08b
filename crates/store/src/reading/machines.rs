//! One machine and everything about it.

use api::nodes::TriedAddress;
use engine::ids::{NodeId, RunId};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// A machine.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct MachineRow {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub fqdn: String,
    /// Where it belongs.
    pub deployment_id: Uuid,
    /// The version of what people say of it.
    pub version: i32,
    /// What people say of it.
    pub description: String,
    /// What its roles may want to know before their first run.
    pub hints: Value,
    /// Of its network cards.
    pub macs: Vec<String>,
    /// Its serial number.
    pub serial: String,
    /// `local` or `ssh`.
    pub transport: String,
    /// Where it is reached.
    pub address: Value,
    /// How.
    pub connection: Value,
    /// Whether it is alive.
    pub alive: bool,
    /// Since when it is, or is not; None: nobody ever reached it.
    pub alive_since: Option<OffsetDateTime>,
    /// When it was reached last.
    pub last_seen_at: Option<OffsetDateTime>,
    /// Looks in a row that say otherwise than `alive`.
    pub look_against: i32,
    /// Whether steps may start on it.
    pub available: bool,
    /// Since when they may not.
    pub unavailable_at: Option<OffsetDateTime>,
    /// Who says so.
    pub unavailable_by: Option<String>,
    /// Why.
    pub unavailable_reason: Option<String>,
    /// How far it has joined.
    pub joined: String,
    /// When somebody last found out what runs there.
    pub joined_at: Option<OffsetDateTime>,
    /// What tells its present start from others.
    pub boot_id: Option<String>,
    /// What it booted, by its own word.
    pub bootenv: Option<String>,
    /// Who added it.
    pub created_by: Option<String>,
    /// When.
    pub created_at: OffsetDateTime,
}

/// What a machine is found by.
enum By<'a> {
    Id(Uuid),
    Name(&'a str),
}

/// A machine by id.
pub async fn machine(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Option<MachineRow>, StoreError> {
    found(on, By::Id(node.0)).await
}

/// A machine by name.
pub async fn machine_named(
    on: &mut PgConnection,
    fqdn: &str,
) -> Result<Option<MachineRow>, StoreError> {
    found(on, By::Name(fqdn)).await
}

async fn found(on: &mut PgConnection, by: By<'_>) -> Result<Option<MachineRow>, StoreError> {
    const COLUMNS: &str = "SELECT n.id, n.fqdn, n.deployment_id, n.version, n.description, n.hints, n.macs, n.serial, n.transport, \
         n.address, n.connection, n.alive, n.alive_since, n.last_seen_at, n.look_against, n.available, n.unavailable_at, \
         u.name AS unavailable_by, n.unavailable_reason, n.joined, n.joined_at, n.boot_id, n.bootenv, c.name AS created_by, n.created_at \
         FROM node n LEFT JOIN person u ON u.id = n.unavailable_by LEFT JOIN person c ON c.id = n.created_by \
         WHERE NOT n.phantom AND n.removed_in IS NULL AND ";
    let which = if matches!(by, By::Id(_)) { "n.id = $1" } else { "n.fqdn = $1" };
    let query = sqlx::query_as(sqlx::AssertSqlSafe(format!("{COLUMNS}{which}")));
    let query = match by {
        By::Id(id) => query.bind(id),
        By::Name(fqdn) => query.bind(fqdn),
    };
    Ok(query.fetch_optional(on).await?)
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LookRow {
    /// When.
    pub at: OffsetDateTime,
    /// Whether it let somebody in.
    pub reached: bool,
    /// Where it answered.
    pub address: String,
    /// Why it was not reached, or what was wrong there.
    pub said: String,
    /// What came of each address that was tried.
    pub tried: Json<Vec<TriedAddress>>,
    /// How long it took.
    pub took_ms: i32,
    /// Which worker looked.
    pub by: String,
}

/// Which looks at a node are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct LookFilter<'f> {
    /// That were let in, or that were not.
    pub reached: Option<bool>,
    /// With this in an address or in what was said, in any case.
    pub text: Option<&'f str>,
    /// Oldest first.
    pub rising: bool,
    /// Behind this moment, in that order.
    pub behind: Option<OffsetDateTime>,
}

/// What came of the last looks at a node, newest first or oldest first. The key of the table (node, moment) finds them in both orders,
/// and few are kept of a node, so what they are asked for is looked up in each.
pub async fn looks(
    on: &mut PgConnection,
    node: NodeId,
    filter: LookFilter<'_>,
    limit: i64,
) -> Result<Vec<LookRow>, StoreError> {
    let (sign, way) = if filter.rising { (">", "ASC") } else { ("<", "DESC") };
    let query = format!(
        "SELECT at, reached, address, said, tried, took_ms, by FROM node_look \
         WHERE node_id = $1 AND ($2::timestamptz IS NULL OR at {sign} $2) AND ($3::boolean IS NULL OR reached = $3) \
           AND ($4::text IS NULL OR position(lower($4) IN lower(address)) > 0 OR position(lower($4) IN lower(said)) > 0 \
             OR EXISTS (SELECT FROM jsonb_array_elements(tried) AS t (one) \
               WHERE position(lower($4) IN lower(t.one ->> 'address')) > 0 OR position(lower($4) IN lower(t.one ->> 'said')) > 0)) \
         ORDER BY at {way} LIMIT $5"
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

/// Most noderoles of a node that are told of at once.
pub const MAX_CARRIED: i64 = 500;

/// A noderole on a node.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct CarriedRow {
    /// Which.
    pub noderole_id: Uuid,
    /// Its role.
    pub role: String,
    /// Where it is bound.
    pub deployment_id: Uuid,
    /// Its state.
    pub state: String,
    /// Since when.
    pub since: OffsetDateTime,
    /// Why it is in ERROR.
    pub error: Option<String>,
    /// Where its step stands in the order in which they run.
    pub rank: i32,
    /// That step.
    pub step_id: Uuid,
}

/// Which noderoles of a node are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct CarriedFilter<'f> {
    /// In this state.
    pub state: Option<&'f str>,
    /// Of this role.
    pub role: Option<&'f str>,
    /// The last that runs first.
    pub falling: bool,
    /// Behind the step of this rank and id, in that order.
    pub behind: Option<(i32, Uuid)>,
}

/// The noderoles on a node in the order in which they run, or the other way around. The index `step_node` has a node's steps in both
/// orders, and what they are asked for is looked up in each.
pub async fn noderoles_on(
    on: &mut PgConnection,
    node: NodeId,
    filter: CarriedFilter<'_>,
    limit: i64,
) -> Result<Vec<CarriedRow>, StoreError> {
    let (sign, way) = if filter.falling { ("<", "DESC") } else { (">", "ASC") };
    let query = format!(
        "SELECT r.id AS noderole_id, r.role, r.deployment_id, s.state, s.since, s.error, s.rank, s.id AS step_id FROM step s \
         JOIN noderole r ON r.id = s.noderole_id \
         WHERE s.node_id = $1 AND s.action = 'run' AND s.state <> 'gone' \
           AND ($2::text IS NULL OR s.state = $2) AND ($3::text IS NULL OR r.role = $3) \
           AND ($4::int IS NULL OR (s.rank, s.id) {sign} ($4::int, $5::uuid)) \
         ORDER BY s.rank {way}, s.id {way} LIMIT $6"
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

/// What somebody says of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct FactRow {
    /// `node`: itself; `role` and a name: a role that looked.
    pub source: String,
    /// What.
    pub facts: Value,
    /// When.
    pub at: OffsetDateTime,
    /// The run that found it.
    pub run: Option<RunId>,
}

/// What is known of a node, by who says it; each role of it has one word at most.
pub async fn facts(on: &mut PgConnection, node: NodeId) -> Result<Vec<FactRow>, StoreError> {
    let rows: Vec<(String, Value, OffsetDateTime, Option<i64>)> = sqlx::query_as(
        "SELECT source, facts, at, run_id FROM node_fact WHERE node_id = $1 ORDER BY source DESC LIMIT 100",
    )
    .bind(node.0)
    .fetch_all(on)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(source, facts, at, run)| FactRow { source, facts, at, run: run.map(RunId) })
        .collect())
}

/// A report of a machine about itself.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ReportRow {
    /// When.
    pub at: OffsetDateTime,
    /// What kind of.
    pub kind: String,
    /// Its short text: a boot id, a boot environment.
    pub said: String,
    /// The name of the token.
    pub token: String,
    /// Where it was heard from.
    pub address: String,
}

/// The last reports of a node, newest first.
pub async fn reports(
    on: &mut PgConnection,
    node: NodeId,
    limit: i64,
) -> Result<Vec<ReportRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT r.at, r.kind, r.said, t.name AS token, r.address FROM node_report r JOIN token t ON t.id = r.token_id \
         WHERE r.node_id = $1 ORDER BY r.id DESC LIMIT $2",
    )
    .bind(node.0)
    .bind(limit)
    .fetch_all(on)
    .await?)
}
