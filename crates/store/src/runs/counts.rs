//! Counts for the overview, for the progress of a blueprint, and for metrics.

use engine::ids::{BlueprintNumber, DeploymentId, NoderoleId};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QuerySelect};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::step;

/// Numbers of steps by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct StateCounts {
    pub blocked: i64,
    pub todo: i64,
    pub transition: i64,
    pub active: i64,
    pub error: i64,
    /// ACTIVE steps whose input has changed and that do not run again by themselves.
    pub stale: i64,
    /// ACTIVE steps whose input may have changed and is not compared yet.
    pub comparing: i64,
    /// ACTIVE steps whose check does not pass: it failed, has not run yet, or no worker runs it.
    pub unchecked: i64,
}

/// The columns of [`StateCounts`], for a statement with the steps as `s` and their checks that do
/// not pass as `c`.
pub(crate) const STATE_COUNTS: &str = "count(*) FILTER (WHERE s.state = 'blocked') AS blocked, \
    count(*) FILTER (WHERE s.state = 'todo') AS todo, \
    count(*) FILTER (WHERE s.state = 'transition') AS transition, \
    count(*) FILTER (WHERE s.state = 'active' AND s.action = 'run') AS active, \
    count(*) FILTER (WHERE s.state = 'error') AS error, \
    count(*) FILTER (WHERE s.state = 'active' AND s.stale) AS stale, \
    count(*) FILTER (WHERE s.state = 'active' AND s.pending = 0 AND s.input_version <> s.input_checked) AS comparing, \
    count(c.step_id) FILTER (WHERE s.state = 'active') AS unchecked";

/// The numbers of stale steps and of those whose input is not compared yet. Both have an index.
const STALE_AND_COMPARING: &str = "(SELECT count(*) FROM step WHERE stale) AS stale, \
    (SELECT count(*) FROM step WHERE input_version <> input_checked AND state = 'active' AND pending = 0) AS comparing";

/// Counts of one snapshot.
#[derive(Debug, Clone, Default, PartialEq, sqlx::FromRow)]
pub struct Tally {
    pub deployments: i64,
    /// Deployments on hold.
    pub on_hold: i64,
    /// Deployments with an open proposal.
    pub proposed: i64,
    pub nodes: i64,
    pub dead: i64,
    /// Nodes in maintenance.
    pub maintenance: i64,
    /// Queued runs.
    pub queued: i64,
    /// Running runs.
    pub running: i64,
    /// The time of the oldest queued run.
    pub oldest: Option<OffsetDateTime>,
    /// The age of the oldest queued run in seconds.
    pub oldest_age: f64,
    /// Workers with a valid lease.
    pub workers: i64,
    /// The number of concurrent runs of those of them that are not draining.
    pub capacity: i64,
    /// Open reviews, counted up to 1,000.
    pub open_reviews: i64,
}

/// The present counts, except for steps.
pub async fn tally(connection: &mut PgConnection) -> Result<Tally, StoreError> {
    Ok(sqlx::query_as(include_str!("statements/tally.sql")).fetch_one(connection).await?)
}

/// All steps by state. An ACTIVE removal step belongs to a noderole that is gone, so it does not
/// count.
pub async fn step_counts(connection: &mut PgConnection) -> Result<StateCounts, StoreError> {
    let is_counted =
        Condition::any().add(step::Column::Action.eq("run")).add(step::Column::State.ne("active"));
    let rows: Vec<(String, i64)> = step::Entity::find()
        .filter(is_counted)
        .group_by(step::Column::State)
        .select_only()
        .column(step::Column::State)
        .expr(step::Column::Id.count())
        .into_tuple()
        .all(&orm(&mut *connection))
        .await?;
    let sql = format!(
        "SELECT {STALE_AND_COMPARING}, (SELECT count(*) FROM role_check c JOIN step s ON s.id = c.step_id \
          WHERE c.passes_until <= now() AND s.state = 'active')"
    );
    let (stale, comparing, unchecked): (i64, i64, i64) =
        sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&mut *connection).await?;
    let of =
        |state: &str| rows.iter().find(|(name, _)| name == state).map_or(0, |(_, count)| *count);
    Ok(StateCounts {
        blocked: of("blocked"),
        todo: of("todo"),
        transition: of("transition"),
        active: of("active"),
        error: of("error"),
        stale,
        comparing,
        unchecked,
    })
}

#[derive(sqlx::FromRow)]
struct BlueprintCountsRow {
    #[sqlx(flatten)]
    steps: StateCounts,
    /// Steps of all blueprints that run again because their input changed.
    running_for_input: i64,
    applied: i64,
}

/// The steps by state whose last change or re-run is this blueprint, and the number of them that
/// have applied it. Steps with changed input of all blueprints count, because the commit
/// of this one may have changed it.
pub async fn blueprint_step_counts(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
) -> Result<(StateCounts, i64), StoreError> {
    let sql = format!(
        "SELECT count(*) FILTER (WHERE state = 'blocked') AS blocked, count(*) FILTER (WHERE state = 'todo') AS todo, \
         count(*) FILTER (WHERE state = 'transition') AS transition, count(*) FILTER (WHERE state = 'active') AS active, \
         count(*) FILTER (WHERE state = 'error') AS error, {STALE_AND_COMPARING}, \
         (SELECT count(*) FROM step WHERE state IN ('blocked', 'todo', 'transition') AND cause LIKE 'data%') AS running_for_input, \
         (SELECT count(*) FROM role_check c JOIN step s ON s.id = c.step_id \
          WHERE c.passes_until <= now() AND s.state = 'active' AND s.generation = $1) AS unchecked, \
         count(*) FILTER (WHERE state = 'active' AND (applied_generation = generation OR immediate OR skipped IS NOT NULL)) AS applied \
         FROM step WHERE generation = $1"
    );
    let row: BlueprintCountsRow =
        sqlx::query_as(AssertSqlSafe(sql)).bind(blueprint.0).fetch_one(connection).await?;
    let comparing = row.steps.comparing + row.running_for_input;
    Ok((StateCounts { comparing, ..row.steps }, row.applied))
}

/// Steps of a deployment's noderoles by state.
pub async fn deployment_step_counts(
    connection: &mut PgConnection,
    deployment: DeploymentId,
) -> Result<StateCounts, StoreError> {
    let sql = format!(
        "SELECT {STATE_COUNTS} FROM noderole r JOIN step s ON s.noderole_id = r.id \
         LEFT JOIN role_check c ON c.step_id = s.id AND c.passes_until <= now() WHERE r.deployment_id = $1"
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(deployment.0).fetch_one(connection).await?)
}

/// Steps of one role on a board.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RoleCountsRow {
    /// The deployment in which the noderoles are bound.
    pub deployment: Uuid,
    pub role: String,
    #[sqlx(flatten)]
    pub steps: StateCounts,
}

/// The steps on a deployment's board by role and state: those of noderoles bound in it, and those
/// of ancestors on its nodes. Without removed noderoles and without these.
pub async fn role_step_counts_except(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    noderoles: &[NoderoleId],
) -> Result<Vec<RoleCountsRow>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    let sql = format!(
        "WITH s AS (
           SELECT s.id, r.deployment_id, r.role, s.action, s.state, s.stale, s.pending, s.input_version, s.input_checked
           FROM noderole r JOIN step s ON s.noderole_id = r.id AND s.action = 'run'
           WHERE r.deployment_id = $1 AND s.state <> 'gone' AND r.id <> ALL($2)
           UNION ALL
           SELECT s.id, r.deployment_id, r.role, s.action, s.state, s.stale, s.pending, s.input_version, s.input_checked
           FROM node n JOIN noderole r ON r.node_id = n.id JOIN step s ON s.noderole_id = r.id AND s.action = 'run'
           WHERE n.deployment_id = $1 AND r.deployment_id <> $1 AND s.state <> 'gone' AND r.id <> ALL($2))
         SELECT deployment_id AS deployment, role, {STATE_COUNTS}
         FROM s LEFT JOIN role_check c ON c.step_id = s.id AND c.passes_until <= now()
         GROUP BY deployment_id, role ORDER BY role, deployment_id"
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql))
        .bind(deployment.0)
        .bind(ids)
        .fetch_all(connection)
        .await?)
}

/// Runs queued within one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct HourRow {
    /// The start of the hour.
    pub hour: OffsetDateTime,
    pub runs: i64,
    /// Failed and lost runs.
    pub failed: i64,
}

/// Runs of the last 24 hours by the hour of queueing, oldest first. It reads the newest `limit`
/// runs and omits hours before the oldest of them.
pub async fn hours(connection: &mut PgConnection, limit: i64) -> Result<Vec<HourRow>, StoreError> {
    Ok(sqlx::query_as(include_str!("statements/hours.sql"))
        .bind(limit)
        .fetch_all(connection)
        .await?)
}
