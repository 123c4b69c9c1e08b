//! What is counted: for an overview, for a target's way to reality, and for metrics.

use api::console::StateCounts;
use engine::ids::TargetNo;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// Numbers of one moment.
#[derive(Debug, Clone, Default, PartialEq, sqlx::FromRow)]
pub struct Tally {
    /// Deployments.
    pub deployments: i64,
    /// Those that are held.
    pub held: i64,
    /// Those with an open proposal.
    pub proposed: i64,
    /// Machines.
    pub nodes: i64,
    /// Those that are not reached.
    pub dead: i64,
    /// Those that are out of service.
    pub unavailable: i64,
    /// Runs that are queued.
    pub queued: i64,
    /// Runs that are carried out.
    pub running: i64,
    /// Since when the oldest queued one is.
    pub oldest: Option<OffsetDateTime>,
    /// How long that is, in seconds.
    pub oldest_age: f64,
    /// Workers that are alive.
    pub workers: i64,
    /// Runs that these take at once.
    pub capacity: i64,
    /// Submissions that are open; at most 1,000 counted.
    pub open_reviews: i64,
}

/// Numbers of this moment, but for steps.
pub async fn tally(on: &mut PgConnection) -> Result<Tally, StoreError> {
    Ok(sqlx::query_as(
        "SELECT d.deployments, d.held, d.proposed, n.nodes, n.dead, n.unavailable, r.queued, r.running, r.oldest, \
         coalesce(extract(epoch FROM now() - r.oldest), 0)::float8 AS oldest_age, w.workers, w.capacity, o.open_reviews FROM \
         (SELECT count(*) AS deployments, count(*) FILTER (WHERE held_by IS NOT NULL) AS held, \
                 (SELECT count(DISTINCT deployment_id) FROM proposal WHERE state = 'open' AND kind = 'personal') AS proposed \
          FROM deployment WHERE removed_in IS NULL) d, \
         (SELECT count(*) AS nodes, count(*) FILTER (WHERE NOT alive) AS dead, count(*) FILTER (WHERE NOT available) AS unavailable \
          FROM node WHERE NOT phantom AND removed_in IS NULL) n, \
         (SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'running') AS running, \
                 min(queued_at) FILTER (WHERE state = 'queued') AS oldest FROM run WHERE ended_at IS NULL) r, \
         (SELECT count(*) AS workers, coalesce(sum(capacity), 0)::bigint AS capacity FROM worker \
          WHERE phase = 'confirmed' AND lease_until > now()) w, \
         (SELECT count(*) AS open_reviews FROM (SELECT 1 FROM proposal p JOIN submission s ON s.proposal_id = p.id AND s.version = p.version \
          WHERE p.state = 'open' LIMIT 1000) s) o",
    )
    .fetch_one(on)
    .await?)
}

/// Steps by state, everywhere.
pub async fn all_steps(on: &mut PgConnection) -> Result<StateCounts, StoreError> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT state, count(*) FROM step GROUP BY state").fetch_all(on).await?;
    let of = |state: &str| rows.iter().find(|(word, _)| word == state).map_or(0, |(_, count)| *count);
    Ok(StateCounts {
        blocked: of("blocked"),
        todo: of("todo"),
        transition: of("transition"),
        active: of("active"),
        error: of("error"),
    })
}

/// Steps by state that a target asked for and no later one asked anew; and how many of them have applied what it says.
pub async fn steps_of_target(on: &mut PgConnection, target: TargetNo) -> Result<(StateCounts, i64), StoreError> {
    let (blocked, todo, transition, active, error, applied): (i64, i64, i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE state = 'blocked'), count(*) FILTER (WHERE state = 'todo'), \
         count(*) FILTER (WHERE state = 'transition'), count(*) FILTER (WHERE state = 'active'), \
         count(*) FILTER (WHERE state = 'error'), \
         count(*) FILTER (WHERE state = 'active' AND (applied_generation = generation OR instant OR skipped IS NOT NULL)) \
         FROM step WHERE generation = $1",
    )
    .bind(target.0)
    .fetch_one(on)
    .await?;
    Ok((StateCounts { blocked, todo, transition, active, error }, applied))
}

/// A worker's row, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkerRow {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// How far it has joined.
    pub phase: String,
    /// Whether its lease holds and its capacity counts.
    pub alive: bool,
    /// Runs that it takes at once.
    pub capacity: i32,
    /// Runs that it holds.
    pub held: i64,
    /// The first of them, oldest first.
    pub runs: Vec<i64>,
    /// Classes of jigs.
    pub jigs: Vec<String>,
    /// Its machine.
    pub host: String,
    /// Its process there.
    pub pid: Option<i32>,
    /// Its build.
    pub version: String,
    /// When it started.
    pub started_at: OffsetDateTime,
    /// When it was heard last.
    pub heard_at: OffsetDateTime,
    /// Until when it counts without being heard again.
    pub lease_until: OffsetDateTime,
    /// Why it left.
    pub reason: Option<String>,
}

/// Which workers are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerFilter<'f> {
    /// Alive, or not.
    pub alive: Option<bool>,
    /// Of this phase.
    pub phase: Option<&'f str>,
    /// Started before this one.
    pub before: Option<Uuid>,
}

/// Workers, those that started last first; at most so many, each with so many of its runs.
pub async fn workers(
    on: &mut PgConnection,
    filter: WorkerFilter<'_>,
    most: i64,
    runs: i64,
) -> Result<Vec<WorkerRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT w.id, w.name, w.phase, w.phase = 'confirmed' AND w.lease_until > now() AS alive, w.capacity, \
         (SELECT count(*) FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL) AS held, \
         ARRAY(SELECT r.id FROM run r WHERE r.worker_id = w.id AND r.ended_at IS NULL ORDER BY r.id LIMIT $5) AS runs, \
         w.jigs, w.host, w.pid, w.version, w.started_at, w.heard_at, w.lease_until, w.reason FROM worker w \
         WHERE ($1::bool IS NULL OR (w.phase = 'confirmed' AND w.lease_until > now()) = $1) AND ($2::text IS NULL OR w.phase = $2) \
         AND ($3::uuid IS NULL OR (w.started_at, w.id) < (SELECT b.started_at, b.id FROM worker b WHERE b.id = $3)) \
         ORDER BY w.started_at DESC, w.id DESC LIMIT $4",
    )
    .bind(filter.alive)
    .bind(filter.phase)
    .bind(filter.before)
    .bind(most)
    .bind(runs)
    .fetch_all(on)
    .await?)
}

/// Since when a version of the policy is there, who made it, and the target that brought it.
pub async fn policy_made(
    on: &mut PgConnection,
    number: i64,
) -> Result<Option<(OffsetDateTime, Option<String>, i64)>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT p.created_at, w.name, p.target FROM policy p LEFT JOIN person w ON w.id = p.created_by WHERE p.number = $1",
    )
    .bind(number)
    .fetch_optional(on)
    .await?)
}
