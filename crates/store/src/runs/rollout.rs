//! The rollout of a blueprint: its steps by wave, its failed steps, and its runs by node.
//!
//! A step belongs to the blueprint that last changed it (its generation), and so do its runs. Each
//! query reads one generation through an index and returns a bounded number of rows.

use engine::ids::{BlueprintNumber, StepId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::StateCounts;
use crate::StoreError;

/// The steps of a blueprint with one rank. They can run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct WaveRow {
    #[sqlx(flatten)]
    pub steps: StateCounts,
    /// Steps that still have to run. Immediate and skipped steps have no run.
    pub to_run: i64,
    /// Destructive steps in ERROR.
    pub destructive: i64,
}

/// The steps of a blueprint by rank, lowest first.
pub async fn waves(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
    limit: i64,
) -> Result<Vec<WaveRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT count(*) FILTER (WHERE state = 'blocked') AS blocked, count(*) FILTER (WHERE state = 'todo') AS todo, \
         count(*) FILTER (WHERE state = 'transition') AS transition, count(*) FILTER (WHERE state = 'active') AS active, \
         count(*) FILTER (WHERE state = 'error') AS error, 0::bigint AS stale, 0::bigint AS comparing, 0::bigint AS unchecked, \
         count(*) FILTER (WHERE state IN ('blocked', 'todo', 'transition') AND NOT immediate AND skipped IS NULL) AS to_run, \
         count(*) FILTER (WHERE state = 'error' AND destructive) AS destructive \
         FROM step WHERE generation = $1 AND state <> 'gone' GROUP BY rank ORDER BY rank LIMIT $2",
    )
    .bind(blueprint.0)
    .bind(limit)
    .fetch_all(connection)
    .await?)
}

/// A step in ERROR.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FailedRow {
    pub step: Uuid,
    pub noderole: Uuid,
    pub role: String,
    pub action: String,
    pub destructive: bool,
    pub node: Uuid,
    /// The node's name.
    pub fqdn: String,
    /// The deployment in which the noderole is bound.
    pub deployment: Uuid,
    pub error: Option<String>,
    /// When it failed.
    pub since: OffsetDateTime,
}

/// The steps of a blueprint in ERROR, in the order of their ranks.
pub async fn failed_steps(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
    limit: i64,
) -> Result<Vec<FailedRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT s.id AS step, r.id AS noderole, r.role, s.action, s.destructive, s.node_id AS node, n.fqdn, r.deployment_id AS deployment, s.error, s.since \
         FROM step s JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id \
         WHERE s.generation = $1 AND s.state = 'error' ORDER BY s.rank, s.id LIMIT $2",
    )
    .bind(blueprint.0)
    .bind(limit)
    .fetch_all(connection)
    .await?)
}

/// Whether a step in ERROR still belongs to a blueprint, and whether it is destructive. `None` if
/// it does not. Call it with APPLY, so that no commit changes the answer.
pub async fn failed_in(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
    step: StepId,
) -> Result<Option<bool>, StoreError> {
    let found: Option<(bool,)> = sqlx::query_as(
        "SELECT destructive FROM step WHERE id = $1 AND generation = $2 AND state = 'error'",
    )
    .bind(step.0)
    .bind(blueprint.0)
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|(destructive,)| destructive))
}

/// A run in the timeline of a blueprint.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct TimelineRow {
    pub id: i64,
    pub node: Uuid,
    /// The node's name.
    pub fqdn: String,
    pub role: String,
    /// The state, or the outcome of an ended run.
    pub state: String,
    pub queued_at: OffsetDateTime,
    pub started_at: Option<OffsetDateTime>,
    pub ended_at: Option<OffsetDateTime>,
}

/// The newest runs of a blueprint, and its newest failed and lost runs, newest first.
pub async fn timeline(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
    limit: i64,
    failed: i64,
) -> Result<Vec<TimelineRow>, StoreError> {
    Ok(sqlx::query_as(include_str!("statements/timeline.sql"))
        .bind(blueprint.0)
        .bind(limit)
        .bind(failed)
        .fetch_all(connection)
        .await?)
}

/// The numbers of a blueprint's runs and of their nodes, and its recent pace.
#[derive(Debug, Clone, Copy, Default, PartialEq, sqlx::FromRow)]
pub struct RunCounts {
    /// At most 100,000 runs are counted.
    pub runs: i64,
    pub nodes: i64,
    /// The newest successful runs, at most 100.
    pub recent: i64,
    /// The seconds since the first of them started.
    pub recent_seconds: f64,
}

/// Counts the runs of a blueprint.
pub async fn run_counts(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
) -> Result<RunCounts, StoreError> {
    Ok(sqlx::query_as(
        "SELECT a.runs, a.nodes, p.recent, p.recent_seconds FROM \
         (SELECT count(*) AS runs, count(DISTINCT node_id) AS nodes FROM \
           (SELECT node_id FROM run WHERE generation = $1 ORDER BY id DESC LIMIT 100000) r) a, \
         (SELECT count(*) AS recent, coalesce(extract(epoch FROM now() - min(started_at)), 0)::float8 AS recent_seconds FROM \
           (SELECT started_at FROM run WHERE generation = $1 AND outcome = 'succeeded' AND started_at IS NOT NULL ORDER BY id DESC LIMIT 100) r) p",
    )
    .bind(blueprint.0)
    .fetch_one(connection)
    .await?)
}

/// The newest blueprints with steps that are not done yet, newest first.
pub async fn unfinished(
    connection: &mut PgConnection,
    limit: i64,
) -> Result<Vec<BlueprintNumber>, StoreError> {
    let rows: Vec<(i64,)> = sqlx::query_as(
        "SELECT DISTINCT generation FROM step WHERE state IN ('blocked', 'todo', 'transition', 'error') ORDER BY generation DESC LIMIT $1",
    )
    .bind(limit)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(number,)| BlueprintNumber(number)).collect())
}
