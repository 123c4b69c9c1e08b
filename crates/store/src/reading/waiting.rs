//! Why not yet: what waits, and for what.
//!
//! One statement says of every step that is not done what it waits for first, by the rules of [`engine::anneal::wait_of`]; a test holds
//! the two against each other. It looks at [`LOOKED`] steps of each state at most, those that wait longest, so that ten thousand
//! blocked steps cost what a thousand do; beyond that its numbers say "or more". What a single step's reasons are in full is told by
//! the engine over [`super::admission_view_of`], for the few that are shown.
//!
//! Turned round, it looks from the other end: at those that began to wait last. So the order holds for all that waits and not only for
//! what was looked at, and the same index gives both.

use std::cmp::Ordering;

use engine::anneal::{ENDING, Limits, StepState, Wait};
use engine::ids::{DeploymentId, NodeId, StepId, TargetNo};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// Most steps of each state that are looked at for one answer.
pub const LOOKED: i64 = 10_000;

/// Which of what waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingFilter {
    /// In this deployment.
    pub deployment: Option<DeploymentId>,
    /// On or for this node.
    pub node: Option<NodeId>,
    /// For this. Without it some of each reason are told.
    pub wait: Option<Wait>,
    /// Those first that began to wait last, not those that wait longest.
    pub falling: bool,
    /// Behind this one: since when it waits, and its step.
    pub after: Option<(OffsetDateTime, StepId)>,
}

/// A step that waits.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct WaitingRow {
    /// What it waits for first.
    pub wait: String,
    /// How many wait for the same.
    pub total: i64,
    /// Its place among those, from 1.
    pub place: i64,
    /// Whether there may be more of them.
    pub more: bool,
    /// Which.
    pub step: Uuid,
    /// Its state.
    pub state: String,
    /// Since when it has it.
    pub since: OffsetDateTime,
    /// Whose.
    pub noderole: Uuid,
    /// The role.
    pub role: String,
    /// Where.
    pub node: Uuid,
    /// Its name.
    pub fqdn: String,
    /// Where it is bound.
    pub deployment: String,
    /// Failures so far.
    pub failures: i32,
    /// How many of them are retried.
    pub retries: i32,
    /// What went wrong last.
    pub error: Option<String>,
    /// When it may be tried again.
    pub not_before: Option<OffsetDateTime>,
    /// Its open run.
    pub run: Option<i64>,
    /// That run's state.
    pub run_state: Option<String>,
    /// When that was queued.
    pub queued_at: Option<OffsetDateTime>,
    /// Who has it.
    pub worker: Option<String>,
    /// Of a step in ERROR its last run.
    pub last_run: Option<i64>,
}

/// What waits for one reason, or the beginning of each.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingRows {
    /// By reason, then in the order that was asked for.
    pub rows: Vec<WaitingRow>,
    /// Where the next page begins, when one reason was asked for.
    pub next: Option<(OffsetDateTime, StepId)>,
}

/// What waits: a page of `page` steps of the reason that is asked for and one of each other, or the first `page` of each.
///
/// # Errors
/// What the database refused.
pub async fn waiting(
    on: &mut PgConnection,
    limits: Limits,
    filter: &WaitingFilter,
    page: i64,
) -> Result<WaitingRows, StoreError> {
    let lanes = match filter.deployment {
        None => None,
        Some(deployment) => Some(lanes_of(on, deployment).await?),
    };
    let every = [StepState::Error, StepState::Transition, StepState::Todo, StepState::Blocked];
    // Behind a page nothing is counted, so only what may be on the next one is looked at.
    let states = match (filter.wait, filter.after) {
        (Some(wait), Some(_)) => wait.states(),
        _ => every.as_slice(),
    };
    let mut rows: Vec<WaitingRow> = sqlx::query_as(AssertSqlSafe(statement(filter.falling)))
        .bind(i64::from(limits.running))
        .bind(LOOKED)
        .bind(states.iter().map(|state| state.as_str()).collect::<Vec<_>>())
        .bind(lanes.as_deref())
        .bind(filter.node.map(|node| node.0))
        .bind(filter.after.is_some())
        .bind(filter.after.map(|(since, _)| since))
        .bind(filter.after.map(|(_, step)| step.0))
        .bind(filter.wait.map(Wait::as_str))
        .bind(page + 1)
        .bind(if filter.wait.is_some() { 1 } else { page })
        .bind(f64::from(ENDING))
        .bind(None::<Vec<Uuid>>)
        .fetch_all(&mut *on)
        .await?;
    let Some(wait) = filter.wait else { return Ok(WaitingRows { rows, next: None }) };
    let ours = |row: &WaitingRow| row.wait == wait.as_str();
    // What lies behind the place where looking ended is told from there on, each once.
    let edge = edge(on, wait.states(), lanes.as_deref(), filter).await?;
    if let Some(edge) = edge {
        let beyond = if filter.falling { Ordering::Less } else { Ordering::Greater };
        rows.retain(|row| !ours(row) || (row.since, row.step).cmp(&edge) != beyond);
    }
    let told = rows.iter().filter(|row| ours(row) && row.place <= page);
    let last = told.max_by_key(|row| row.place).map(|row| (row.since, row.step));
    let more = rows.iter().any(|row| ours(row) && row.place > page);
    rows.retain(|row| !ours(row) || row.place <= page);
    let next = if more { last } else { edge };
    Ok(WaitingRows { rows, next: next.map(|(since, step)| (since, StepId(step))) })
}

/// The statement, in an order: those first that wait longest, or, `falling`, those that began to wait last.
fn statement(falling: bool) -> String {
    let (behind, way) = direction(falling);
    include_str!("waiting.sql").replace("{behind}", behind).replace("{way}", way)
}

/// What lies behind a place in an order, and the way it goes.
const fn direction(falling: bool) -> (&'static str, &'static str) {
    if falling { ("<", "DESC") } else { (">", "ASC") }
}

/// Whose steps are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those that this target asked for, and no later one asked anew.
    Target(TargetNo),
    /// Those of the roles that are bound in this deployment.
    Deployment(DeploymentId),
}

/// What stands between a target, or a deployment, and its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InTheWay {
    /// Steps that move, or will without anybody doing anything.
    pub moving: usize,
    /// Steps about which somebody has to do something first.
    pub resting: usize,
    /// Whether there is more above it than was looked at.
    pub more: bool,
}

/// Steps above those asked about that are gone through on the way up from it.
const WALKED: i64 = 50_000;

/// What the open steps of a target or a deployment come down to: themselves, and in the place of a blocked one whatever is open above it, whosever it is,
/// until a step is reached that is not blocked. The first [`LOOKED`] of those are judged.
///
/// The way up is long where much is blocked, so it is gone last: not while some of its own move, and not when nothing moves
/// anywhere. It ends after [`WALKED`] steps.
///
/// The caller holds one view of the database for all statements, or a step that moved on in between counts as moving.
///
/// # Errors
/// What the database refused.
pub async fn in_the_way(
    on: &mut PgConnection,
    limits: Limits,
    whose: Whose,
) -> Result<InTheWay, StoreError> {
    let (target, lanes) = match whose {
        Whose::Target(target) => (Some(target.0), None),
        Whose::Deployment(deployment) => (None, Some(lanes_of(on, deployment).await?)),
    };
    let own: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM step WHERE ($1::bigint IS NULL OR generation = $1) AND ($3::bigint[] IS NULL OR lane_id = ANY ($3)) \
           AND state IN ('todo', 'transition', 'error') ORDER BY since, id LIMIT $2",
    )
    .bind(target)
    .bind(LOOKED)
    .bind(lanes.as_deref())
    .fetch_all(&mut *on)
    .await?;
    let itself = judged(on, limits, &own).await?;
    if itself.moving > 0 || (itself.resting > 0 && nothing_moves(on, limits).await?) {
        return Ok(itself);
    }
    let (walked, open): (i64, Vec<Uuid>) = sqlx::query_as(
        "WITH RECURSIVE up (id) AS ( \
           SELECT id FROM step WHERE ($1::bigint IS NULL OR generation = $1) AND ($4::bigint[] IS NULL OR lane_id = ANY ($4)) \
             AND state IN ('blocked', 'todo', 'transition', 'error') \
           UNION \
           SELECT p.id FROM up JOIN step c ON c.id = up.id AND c.state = 'blocked' JOIN edge e ON e.child = c.id \
           JOIN step p ON p.id = e.parent \
           WHERE p.state IN ('blocked', 'todo', 'transition') \
             OR (p.state = 'error' AND e.kind <> 'order_only' AND c.join_after = 'success')), \
         walked AS MATERIALIZED (SELECT id FROM up LIMIT $3) \
         SELECT (SELECT count(*) FROM walked), ARRAY( \
           SELECT s.id FROM walked JOIN step s ON s.id = walked.id WHERE s.state <> 'blocked' ORDER BY s.since, s.id LIMIT $2)",
    )
    .bind(target)
    .bind(LOOKED)
    .bind(WALKED)
    .bind(lanes.as_deref())
    .fetch_one(&mut *on)
    .await?;
    Ok(InTheWay { more: walked == WALKED, ..judged(on, limits, &open).await? })
}

/// Whether no step anywhere goes on without somebody. Not where there are too many to look at.
async fn nothing_moves(on: &mut PgConnection, limits: Limits) -> Result<bool, StoreError> {
    let open: Vec<Uuid> = sqlx::query_scalar(
        "SELECT l.id FROM unnest(ARRAY['transition', 'todo']) AS w (state) CROSS JOIN LATERAL ( \
           SELECT s.id FROM step s WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error') \
           ORDER BY s.since, s.id LIMIT $1) l LIMIT $1",
    )
    .bind(LOOKED)
    .fetch_all(&mut *on)
    .await?;
    let all = i64::try_from(open.len()).is_ok_and(|all| all < LOOKED);
    Ok(all && judged(on, limits, &open).await?.moving == 0)
}

/// How many of these steps, none of them blocked, move, and how many wait for somebody.
async fn judged(
    on: &mut PgConnection,
    limits: Limits,
    open: &[Uuid],
) -> Result<InTheWay, StoreError> {
    if open.is_empty() {
        return Ok(InTheWay::default());
    }
    let states = [StepState::Error, StepState::Transition, StepState::Todo];
    let rows: Vec<WaitingRow> = sqlx::query_as(AssertSqlSafe(statement(false)))
        .bind(i64::from(limits.running))
        .bind(LOOKED)
        .bind(states.map(StepState::as_str).to_vec())
        .bind(None::<Vec<i64>>)
        .bind(None::<Uuid>)
        .bind(false)
        .bind(None::<OffsetDateTime>)
        .bind(None::<Uuid>)
        .bind(None::<&str>)
        .bind(1_i64)
        // One of each reason: its number is what is asked for.
        .bind(1_i64)
        .bind(f64::from(ENDING))
        .bind(open)
        .fetch_all(&mut *on)
        .await?;
    let somebody = |row: &&WaitingRow| row.wait.parse::<Wait>().is_ok_and(Wait::needs_somebody);
    let resting: i64 = rows.iter().filter(somebody).map(|row| row.total).sum();
    let resting = usize::try_from(resting).unwrap_or(0);
    Ok(InTheWay { moving: open.len().saturating_sub(resting), resting, more: false })
}

async fn lanes_of(on: &mut PgConnection, deployment: DeploymentId) -> Result<Vec<i64>, StoreError> {
    let lanes =
        sqlx::query_scalar("SELECT id FROM lane WHERE deployment_id = $1").bind(deployment.0);
    Ok(lanes.fetch_all(on).await?)
}

/// The first place at which looking ended in one of these states, if it did not reach their ends.
async fn edge(
    on: &mut PgConnection,
    states: &[StepState],
    lanes: Option<&[i64]>,
    filter: &WaitingFilter,
) -> Result<Option<(OffsetDateTime, Uuid)>, StoreError> {
    let (behind, way) = direction(filter.falling);
    let sql = format!(
        "SELECT l.since, l.id FROM unnest($1::text[]) AS w (state) CROSS JOIN LATERAL ( \
           SELECT s.since, s.id FROM step s \
           WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error') \
             AND ($2::bigint[] IS NULL OR s.lane_id = ANY ($2)) AND ($3::uuid IS NULL OR s.node_id = $3) \
             AND ($4::bool IS NOT TRUE OR (s.since, s.id) {behind} ($5::timestamptz, $6::uuid)) \
           ORDER BY s.since {way}, s.id {way} OFFSET $7 LIMIT 1) l ORDER BY 1 {way}, 2 {way} LIMIT 1",
    );
    let edge = sqlx::query_as(AssertSqlSafe(sql))
        .bind(states.iter().map(|state| state.as_str()).collect::<Vec<_>>())
        .bind(lanes)
        .bind(filter.node.map(|node| node.0))
        .bind(filter.after.is_some())
        .bind(filter.after.map(|(since, _)| since))
        .bind(filter.after.map(|(_, step)| step.0))
        .bind(LOOKED - 1)
        .fetch_optional(on)
        .await?;
    Ok(edge)
}

/// A step above a blocked one.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AboveRow {
    /// The blocked step.
    pub step: Uuid,
    /// The noderole above.
    pub noderole: Uuid,
    /// Its role.
    pub role: String,
    /// Its node's name.
    pub fqdn: String,
    /// Its state.
    pub state: String,
    /// Whether it is a parent, and not further up.
    pub parent: bool,
    /// How many parents are not done, this one included.
    pub open: i64,
}

/// Of each of these blocked steps up to three parents that are not done, those that failed first; and where the way up from it ends: a
/// step in ERROR if there is one, else one that runs or is to run. The way up is followed for 500 steps.
///
/// # Errors
/// What the database refused.
pub async fn above(on: &mut PgConnection, steps: &[StepId]) -> Result<Vec<AboveRow>, StoreError> {
    let ids: Vec<Uuid> = steps.iter().map(|step| step.0).collect();
    let rows = sqlx::query_as(
        "WITH wanted AS (SELECT unnest($1::uuid[]) AS id), \
         parent AS ( \
           SELECT w.id AS step, p.id, p.state, p.rank, e.kind <> 'order_only' AND p.state = 'error' AS failed, \
             count(*) OVER (PARTITION BY w.id) AS open, \
             row_number() OVER (PARTITION BY w.id ORDER BY (e.kind <> 'order_only' AND p.state = 'error') DESC, p.rank, p.id) AS place \
           FROM wanted w JOIN edge e ON e.child = w.id JOIN step p ON p.id = e.parent \
           WHERE p.state IN ('blocked', 'todo', 'transition') OR (p.state = 'error' AND e.kind <> 'order_only')), \
         top AS ( \
           SELECT w.id AS step, t.id FROM wanted w CROSS JOIN LATERAL ( \
             SELECT u.id FROM ( \
               WITH RECURSIVE up (id) AS ( \
                 SELECT w.id UNION \
                 SELECT p.id FROM up JOIN step c ON c.id = up.id JOIN edge e ON e.child = up.id JOIN step p ON p.id = e.parent \
                 WHERE c.state = 'blocked' AND (p.state IN ('blocked', 'todo', 'transition') OR (p.state = 'error' AND e.kind <> 'order_only'))) \
               SELECT id FROM up LIMIT 500) u JOIN step s ON s.id = u.id \
             WHERE s.state IN ('todo', 'transition', 'error') \
             ORDER BY (s.state = 'error') DESC, s.since, s.id LIMIT 1) t), \
         told AS ( \
           SELECT step, id, true AS parent, open FROM parent WHERE place <= 3 \
           UNION ALL \
           SELECT step, id, false, 0 FROM top t WHERE NOT EXISTS (SELECT FROM parent p WHERE p.step = t.step AND p.id = t.id AND p.place <= 3)) \
         SELECT t.step, s.noderole_id AS noderole, r.role, n.fqdn, s.state, t.parent, t.open \
         FROM told t JOIN step s ON s.id = t.id JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id \
         ORDER BY t.step, t.parent DESC, (s.state = 'error') DESC, s.rank, s.id",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(rows)
}

/// A step with its names.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PlaceRow {
    /// Which.
    pub step: Uuid,
    /// Whose.
    pub noderole: Uuid,
    /// The role.
    pub role: String,
    /// The node's name.
    pub fqdn: String,
    /// Its state.
    pub state: String,
}

/// These steps with their names.
///
/// # Errors
/// What the database refused.
pub async fn step_places(
    on: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<PlaceRow>, StoreError> {
    let ids: Vec<Uuid> = steps.iter().map(|step| step.0).collect();
    let rows = sqlx::query_as(
        "SELECT s.id AS step, s.noderole_id AS noderole, r.role, n.fqdn, s.state FROM step s \
         JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id WHERE s.id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(rows)
}
