//! Pending steps and their reasons.
//!
//! One statement finds the first reason of every pending step, by the rules of
//! [`engine::anneal::pending_reason`]; a test compares the two. It reads at most [`LOOKED`] steps
//! of each state, those pending longest. So ten thousand blocked steps cost as much as a thousand,
//! and above that the counts say "or more". For the few steps on a page,
//! [`super::admission_reasons`] finds all reasons.
//!
//! The reverse order starts with the steps that became pending last. So the order is correct for
//! all pending steps, not only for those that were read. One index serves both orders.

use std::cmp::Ordering;

use engine::anneal::{ENDING, Limits, StepState, Wait};
use engine::ids::{BlueprintNumber, DeploymentId, NodeId, StepId};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;

/// The maximum number of steps of each state that a query reads.
pub const LOOKED: i64 = 10_000;

/// A filter for pending steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingFilter {
    pub deployment: Option<DeploymentId>,
    pub node: Option<NodeId>,
    /// Only this reason. `None`: some steps of each reason.
    pub wait: Option<Wait>,
    /// Newest first, instead of longest pending first.
    pub descending: bool,
    /// The cursor: the start of the pending time, and the step.
    pub after: Option<(OffsetDateTime, StepId)>,
}

/// A pending step.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct WaitingRow {
    /// The first reason.
    pub wait: String,
    /// The number of steps with the same reason.
    pub total: i64,
    /// Its position among those, from 1.
    pub place: i64,
    /// Whether there may be more of them.
    pub more: bool,
    pub step: Uuid,
    pub state: String,
    /// The last change of its state.
    pub since: OffsetDateTime,
    pub noderole: Uuid,
    pub role: String,
    pub action: String,
    pub node: Uuid,
    /// The node's name.
    pub fqdn: String,
    /// The name of the deployment in which the noderole is bound.
    pub deployment: String,
    pub failures: i32,
    /// The maximum number of retries.
    pub retries: i32,
    /// The last error.
    pub error: Option<String>,
    /// The earliest time of the next attempt.
    pub not_before: Option<OffsetDateTime>,
    /// The open run.
    pub run: Option<i64>,
    pub run_state: Option<String>,
    pub queued_at: Option<OffsetDateTime>,
    /// The name of the run's worker.
    pub worker: Option<String>,
    /// The last run of a step in ERROR.
    pub last_run: Option<i64>,
}

/// The pending steps for one reason, or the first of each reason.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingRows {
    /// Ordered by reason, then in the requested order.
    pub rows: Vec<WaitingRow>,
    /// The cursor of the next page, if the filter names one reason.
    pub next: Option<(OffsetDateTime, StepId)>,
}

/// The pending steps: a page of `page` steps for the requested reason and one of each other reason.
/// Without a requested reason, the first `page` of each.
pub async fn waiting(
    connection: &mut PgConnection,
    limits: Limits,
    filter: &WaitingFilter,
    page: i64,
) -> Result<WaitingRows, StoreError> {
    let lanes = match filter.deployment {
        None => None,
        Some(deployment) => Some(concurrency_group_ids(connection, deployment).await?),
    };
    let all_states = [StepState::Error, StepState::Transition, StepState::Todo, StepState::Blocked];
    // With a cursor, no counts are needed, so only states that the next page can contain are read.
    let states = match (filter.wait, filter.after) {
        (Some(wait), Some(_)) => wait.states(),
        _ => all_states.as_slice(),
    };
    let mut rows: Vec<WaitingRow> = sqlx::query_as(AssertSqlSafe(statement(filter.descending)))
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
        .fetch_all(&mut *connection)
        .await?;
    let Some(wait) = filter.wait else { return Ok(WaitingRows { rows, next: None }) };
    let ours = |row: &WaitingRow| row.wait == wait.as_str();
    // Steps beyond the point where reading ended belong to a later page, so that each appears once.
    let edge = edge(connection, wait.states(), lanes.as_deref(), filter).await?;
    if let Some(edge) = edge {
        let past = if filter.descending { Ordering::Less } else { Ordering::Greater };
        rows.retain(|row| !ours(row) || (row.since, row.step).cmp(&edge) != past);
    }
    let page_rows = rows.iter().filter(|row| ours(row) && row.place <= page);
    let last = page_rows.max_by_key(|row| row.place).map(|row| (row.since, row.step));
    let more = rows.iter().any(|row| ours(row) && row.place > page);
    rows.retain(|row| !ours(row) || row.place <= page);
    let next = if more { last } else { edge };
    Ok(WaitingRows { rows, next: next.map(|(since, step)| (since, StepId(step))) })
}

/// The statement for an order: longest pending first, or newest first if `descending`.
fn statement(descending: bool) -> String {
    let (comparison, way) = direction(descending);
    include_str!("statements/waiting.sql").replace("{comparison}", comparison).replace("{way}", way)
}

/// The comparison operator and the direction of an order.
const fn direction(descending: bool) -> (&'static str, &'static str) {
    if descending { ("<", "DESC") } else { (">", "ASC") }
}

/// The steps that a query is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Steps whose last change or re-run is this blueprint.
    Target(BlueprintNumber),
    /// Steps of noderoles bound in this deployment.
    Deployment(DeploymentId),
}

/// The steps that keep a blueprint or deployment from being applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InTheWay {
    /// Steps that progress without any person.
    pub moving: usize,
    /// Steps that need action by a person.
    pub resting: usize,
    /// Whether there are more ancestors than were read.
    pub more: bool,
}

/// The maximum number of steps to visit in a walk over ancestors.
const MAX_STEPS_VISITED: i64 = 50_000;

/// The steps that keep a blueprint or deployment from being applied: its open steps, and the open
/// ancestors of its blocked ones, up to the first that is not blocked. The first [`LOOKED`] of
/// these are classified.
///
/// The walk over ancestors is expensive if many steps are blocked. It is skipped if some of its own
/// steps progress, or if nothing progresses anywhere. It ends after [`MAX_STEPS_VISITED`] steps.
///
/// The caller must run all statements in one snapshot. Otherwise, a step that changes in between
/// counts as moving.
pub async fn in_the_way(
    connection: &mut PgConnection,
    limits: Limits,
    scope: Whose,
) -> Result<InTheWay, StoreError> {
    let (blueprint, lanes) = match scope {
        Whose::Target(blueprint) => (Some(blueprint.0), None),
        Whose::Deployment(deployment) => {
            (None, Some(concurrency_group_ids(connection, deployment).await?))
        }
    };
    let own: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM step WHERE ($1::bigint IS NULL OR generation = $1) AND ($3::bigint[] IS NULL OR concurrency_group_id = ANY ($3)) \
           AND state IN ('todo', 'transition', 'error') ORDER BY since, id LIMIT $2",
    )
    .bind(blueprint)
    .bind(LOOKED)
    .bind(lanes.as_deref())
    .fetch_all(&mut *connection)
    .await?;
    let own_blockers = judged(connection, limits, &own).await?;
    if own_blockers.moving > 0
        || (own_blockers.resting > 0 && nothing_progresses(connection, limits).await?)
    {
        return Ok(own_blockers);
    }
    let (visited, open): (i64, Vec<Uuid>) = sqlx::query_as(
        "WITH RECURSIVE up (id) AS ( \
           SELECT id FROM step WHERE ($1::bigint IS NULL OR generation = $1) AND ($4::bigint[] IS NULL OR concurrency_group_id = ANY ($4)) \
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
    .bind(blueprint)
    .bind(LOOKED)
    .bind(MAX_STEPS_VISITED)
    .bind(lanes.as_deref())
    .fetch_one(&mut *connection)
    .await?;
    Ok(InTheWay { more: visited == MAX_STEPS_VISITED, ..judged(connection, limits, &open).await? })
}

/// Whether every open step anywhere needs a person. `false` if there are too many to check.
async fn nothing_progresses(
    connection: &mut PgConnection,
    limits: Limits,
) -> Result<bool, StoreError> {
    let open: Vec<Uuid> = sqlx::query_scalar(
        "SELECT l.id FROM unnest(ARRAY['transition', 'todo']) AS w (state) CROSS JOIN LATERAL ( \
           SELECT s.id FROM step s WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error') \
           ORDER BY s.since, s.id LIMIT $1) l LIMIT $1",
    )
    .bind(LOOKED)
    .fetch_all(&mut *connection)
    .await?;
    let is_complete = i64::try_from(open.len()).is_ok_and(|count| count < LOOKED);
    Ok(is_complete && judged(connection, limits, &open).await?.moving == 0)
}

/// Classifies steps that are not blocked: those that progress, and those that need a person.
async fn judged(
    connection: &mut PgConnection,
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
        // One row of each reason is enough, because it has the count.
        .bind(1_i64)
        .bind(f64::from(ENDING))
        .bind(open)
        .fetch_all(&mut *connection)
        .await?;
    let needs_person = |row: &&WaitingRow| row.wait.parse::<Wait>().is_ok_and(Wait::needs_person);
    let resting: i64 = rows.iter().filter(needs_person).map(|row| row.total).sum();
    let resting = usize::try_from(resting).unwrap_or(0);
    Ok(InTheWay { moving: open.len().saturating_sub(resting), resting, more: false })
}

async fn concurrency_group_ids(
    connection: &mut PgConnection,
    deployment: DeploymentId,
) -> Result<Vec<i64>, StoreError> {
    let lanes = sqlx::query_scalar("SELECT id FROM concurrency_group WHERE deployment_id = $1")
        .bind(deployment.0);
    Ok(lanes.fetch_all(connection).await?)
}

/// The first point in these states where reading ended early, if any.
async fn edge(
    connection: &mut PgConnection,
    states: &[StepState],
    lanes: Option<&[i64]>,
    filter: &WaitingFilter,
) -> Result<Option<(OffsetDateTime, Uuid)>, StoreError> {
    let (comparison, way) = direction(filter.descending);
    let sql = format!(
        "SELECT l.since, l.id FROM unnest($1::text[]) AS w (state) CROSS JOIN LATERAL ( \
           SELECT s.since, s.id FROM step s \
           WHERE s.state = w.state AND s.state IN ('blocked', 'todo', 'transition', 'error') \
             AND ($2::bigint[] IS NULL OR s.concurrency_group_id = ANY ($2)) AND ($3::uuid IS NULL OR s.node_id = $3) \
             AND ($4::bool IS NOT TRUE OR (s.since, s.id) {comparison} ($5::timestamptz, $6::uuid)) \
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
        .fetch_optional(connection)
        .await?;
    Ok(edge)
}

/// A step above a blocked one.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AboveRow {
    /// The blocked step.
    pub step: Uuid,
    /// The noderole above it.
    pub noderole: Uuid,
    pub role: String,
    /// The node's name.
    pub fqdn: String,
    pub state: String,
    /// Whether it is a parent, not a more distant ancestor.
    pub parent: bool,
    /// The number of parents that are not done, this one included. 0 if this is not a parent.
    pub open: i64,
}

/// For each blocked step, up to three open parents (failed ones first) and the end of the chain
/// above it. The end is a step in ERROR if there is one, otherwise a step that runs or is due. It
/// visits at most 500 steps.
pub async fn above(
    connection: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<AboveRow>, StoreError> {
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
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

/// A step with names for display.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PlaceRow {
    pub step: Uuid,
    pub noderole: Uuid,
    pub role: String,
    /// The node's name.
    pub fqdn: String,
    pub state: String,
}

/// These steps with names for display.
pub async fn steps_with_names(
    connection: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<PlaceRow>, StoreError> {
    let ids: Vec<Uuid> = steps.iter().map(|step| step.0).collect();
    let rows = sqlx::query_as(
        "SELECT s.id AS step, s.noderole_id AS noderole, r.role, n.fqdn, s.state FROM step s \
         JOIN noderole r ON r.id = s.noderole_id JOIN node n ON n.id = s.node_id WHERE s.id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows)
}
