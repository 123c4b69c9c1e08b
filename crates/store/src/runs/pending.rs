//! Pending steps and their reasons.
//!
//! One statement finds the first reason of every pending step, by the rules of
//! [`engine::anneal::pending_reason`]; a test compares the two. It reads at most [`MAX_STEPS_READ`]
//! steps of each state, those pending longest. So ten thousand blocked steps cost as much as a
//! thousand, and above that the counts say "or more". For the few steps on a page,
//! [`super::admission_reasons`] finds all reasons.
//!
//! The reverse order starts with the steps that became pending last. So the order is correct for
//! all pending steps, not only for those that were read. One index serves both orders.

use std::cmp::Ordering;

use engine::anneal::{Limits, OVERDUE_GRACE, PendingReason, StepState};
use engine::ids::{BlueprintNumber, DeploymentId, NodeId, StepId};
use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{ColumnTrait, DerivePartialModel, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::models::joined_steps;
use crate::StoreError;
use crate::connect::orm;
use crate::entity::{concurrency_group, node, noderole, step};

/// The maximum number of steps of each state that a query reads.
pub const MAX_STEPS_READ: i64 = 10_000;

/// A filter for pending steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PendingFilter {
    pub deployment: Option<DeploymentId>,
    pub node: Option<NodeId>,
    /// Only this reason. `None`: some steps of each reason.
    pub reason: Option<PendingReason>,
    /// Newest first, instead of longest pending first.
    pub descending: bool,
    /// The cursor: the start of the pending time, and the step.
    pub after: Option<(OffsetDateTime, StepId)>,
}

/// A pending step.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct PendingRow {
    /// The first reason.
    pub reason: String,
    /// The number of steps with the same reason.
    pub total: i64,
    /// Its position among those, from 1.
    pub position: i64,
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
    pub deployment_id: Uuid,
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
pub struct PendingRows {
    /// Ordered by reason, then in the requested order.
    pub rows: Vec<PendingRow>,
    /// The cursor of the next page, if the filter names one reason.
    pub next: Option<(OffsetDateTime, StepId)>,
}

/// The pending steps: a page of `page` steps for the requested reason and one of each other reason.
/// Without a requested reason, the first `page` of each.
pub async fn pending_steps(
    connection: &mut PgConnection,
    limits: Limits,
    filter: &PendingFilter,
    page: i64,
) -> Result<PendingRows, StoreError> {
    let concurrency_groups = match filter.deployment {
        None => None,
        Some(deployment) => Some(concurrency_group_ids(connection, deployment).await?),
    };
    let all_states = [StepState::Error, StepState::Transition, StepState::Todo, StepState::Blocked];
    // With a cursor, no counts are needed, so only states that the next page can contain are read.
    let states = match (filter.reason, filter.after) {
        (Some(reason), Some(_)) => reason.states(),
        _ => all_states.as_slice(),
    };
    let mut rows: Vec<PendingRow> = sqlx::query_as(AssertSqlSafe(statement(filter.descending)))
        .bind(i64::from(limits.running))
        .bind(MAX_STEPS_READ)
        .bind(states.iter().map(|state| state.as_str()).collect::<Vec<_>>())
        .bind(concurrency_groups.as_deref())
        .bind(filter.node.map(|node| node.0))
        .bind(filter.after.is_some())
        .bind(filter.after.map(|(since, _)| since))
        .bind(filter.after.map(|(_, step)| step.0))
        .bind(filter.reason.map(PendingReason::as_str))
        .bind(page + 1)
        .bind(if filter.reason.is_some() { 1 } else { page })
        .bind(f64::from(OVERDUE_GRACE))
        .bind(None::<Vec<Uuid>>)
        .fetch_all(&mut *connection)
        .await?;
    let Some(reason) = filter.reason else { return Ok(PendingRows { rows, next: None }) };
    let ours = |row: &PendingRow| row.reason == reason.as_str();
    // Steps beyond the point where reading ended belong to a later page, so that each appears once.
    let edge = edge(connection, reason.states(), concurrency_groups.as_deref(), filter).await?;
    if let Some(edge) = edge {
        let past = if filter.descending { Ordering::Less } else { Ordering::Greater };
        rows.retain(|row| !ours(row) || (row.since, row.step).cmp(&edge) != past);
    }
    let page_rows = rows.iter().filter(|row| ours(row) && row.position <= page);
    let last = page_rows.max_by_key(|row| row.position).map(|row| (row.since, row.step));
    let more = rows.iter().any(|row| ours(row) && row.position > page);
    rows.retain(|row| !ours(row) || row.position <= page);
    let next = if more { last } else { edge };
    Ok(PendingRows { rows, next: next.map(|(since, step)| (since, StepId(step))) })
}

/// The statement for an order: longest pending first, or newest first if `descending`.
fn statement(descending: bool) -> String {
    let (comparison, order) = direction(descending);
    include_str!("statements/pending.sql")
        .replace("{comparison}", comparison)
        .replace("{order}", order)
}

/// The comparison operator and the direction of an order.
const fn direction(descending: bool) -> (&'static str, &'static str) {
    if descending { ("<", "DESC") } else { (">", "ASC") }
}

/// The steps that a query is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingScope {
    /// Steps whose last change or re-run is this blueprint.
    Target(BlueprintNumber),
    /// Steps of noderoles bound in this deployment.
    Deployment(DeploymentId),
}

/// The steps that keep a blueprint or deployment from being applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnappliedSteps {
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
/// ancestors of its blocked ones, up to the first that is not blocked. The first [`MAX_STEPS_READ`]
/// of these are classified.
///
/// The walk over ancestors is expensive if many steps are blocked. It is skipped if some of its own
/// steps progress, or if nothing progresses anywhere. It ends after [`MAX_STEPS_VISITED`] steps.
///
/// The caller must run all statements in one snapshot. Otherwise, a step that changes in between
/// counts as moving.
pub async fn unapplied_steps(
    connection: &mut PgConnection,
    limits: Limits,
    scope: PendingScope,
) -> Result<UnappliedSteps, StoreError> {
    let (blueprint, concurrency_groups) = match scope {
        PendingScope::Target(blueprint) => (Some(blueprint.0), None),
        PendingScope::Deployment(deployment) => {
            (None, Some(concurrency_group_ids(connection, deployment).await?))
        }
    };
    // Literals, so that PostgreSQL can use the partial index of pending steps.
    let states = ["todo", "transition", "error"].map(|state| Expr::Constant(state.into()));
    let is_own = match &concurrency_groups {
        Some(concurrency_groups) => {
            step::Column::ConcurrencyGroupId.eq_any(concurrency_groups.iter().copied())
        }
        None => step::Column::Generation.eq(blueprint),
    };
    let query = step::Entity::find()
        .filter(step::Column::State.into_expr().is_in(states))
        .filter(is_own)
        .order_by_asc(step::Column::Since)
        .order_by_asc(step::Column::Id)
        .limit(MAX_STEPS_READ.unsigned_abs())
        .select_only()
        .column(step::Column::Id);
    let own: Vec<Uuid> = query.into_tuple().all(&orm(connection)).await?;
    let own_blockers = classify(connection, limits, &own).await?;
    if own_blockers.moving > 0
        || (own_blockers.resting > 0 && nothing_progresses(connection, limits).await?)
    {
        return Ok(own_blockers);
    }
    let (visited, open): (i64, Vec<Uuid>) =
        sqlx::query_as(include_str!("statements/open_ancestors.sql"))
            .bind(blueprint)
            .bind(MAX_STEPS_READ)
            .bind(MAX_STEPS_VISITED)
            .bind(concurrency_groups.as_deref())
            .fetch_one(&mut *connection)
            .await?;
    Ok(UnappliedSteps {
        more: visited == MAX_STEPS_VISITED,
        ..classify(connection, limits, &open).await?
    })
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
    .bind(MAX_STEPS_READ)
    .fetch_all(&mut *connection)
    .await?;
    let is_complete = i64::try_from(open.len()).is_ok_and(|count| count < MAX_STEPS_READ);
    Ok(is_complete && classify(connection, limits, &open).await?.moving == 0)
}

/// Classifies steps that are not blocked: those that progress, and those that need a person.
async fn classify(
    connection: &mut PgConnection,
    limits: Limits,
    open: &[Uuid],
) -> Result<UnappliedSteps, StoreError> {
    if open.is_empty() {
        return Ok(UnappliedSteps::default());
    }
    let states = [StepState::Error, StepState::Transition, StepState::Todo];
    let rows: Vec<PendingRow> = sqlx::query_as(AssertSqlSafe(statement(false)))
        .bind(i64::from(limits.running))
        .bind(MAX_STEPS_READ)
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
        .bind(f64::from(OVERDUE_GRACE))
        .bind(open)
        .fetch_all(&mut *connection)
        .await?;
    let needs_person = |row: &&PendingRow| {
        row.reason.parse::<PendingReason>().is_ok_and(PendingReason::needs_person)
    };
    let resting: i64 = rows.iter().filter(needs_person).map(|row| row.total).sum();
    let resting = usize::try_from(resting).unwrap_or(0);
    Ok(UnappliedSteps { moving: open.len().saturating_sub(resting), resting, more: false })
}

async fn concurrency_group_ids(
    connection: &mut PgConnection,
    deployment: DeploymentId,
) -> Result<Vec<i64>, StoreError> {
    let query = concurrency_group::Entity::find()
        .filter(concurrency_group::Column::DeploymentId.eq(deployment.0))
        .select_only()
        .column(concurrency_group::Column::Id);
    Ok(query.into_tuple().all(&orm(connection)).await?)
}

/// The first point in these states where reading ended early, if any.
async fn edge(
    connection: &mut PgConnection,
    states: &[StepState],
    concurrency_groups: Option<&[i64]>,
    filter: &PendingFilter,
) -> Result<Option<(OffsetDateTime, Uuid)>, StoreError> {
    let (comparison, order) = direction(filter.descending);
    let sql = format!(
        include_str!("statements/pending_edge.sql"),
        comparison = comparison,
        order = order
    );
    let edge = sqlx::query_as(AssertSqlSafe(sql))
        .bind(states.iter().map(|state| state.as_str()).collect::<Vec<_>>())
        .bind(concurrency_groups)
        .bind(filter.node.map(|node| node.0))
        .bind(filter.after.is_some())
        .bind(filter.after.map(|(since, _)| since))
        .bind(filter.after.map(|(_, step)| step.0))
        .bind(MAX_STEPS_READ - 1)
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
    pub node: Uuid,
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
    let rows = sqlx::query_as(include_str!("statements/above.sql"))
        .bind(ids)
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

/// A step with names for display.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "step::Entity")]
pub struct NamedStepRow {
    #[sea_orm(from_col = "id")]
    pub step: Uuid,
    #[sea_orm(from_col = "noderole_id")]
    pub noderole: Uuid,
    #[sea_orm(from_expr = "Expr::col((noderole::Entity, noderole::Column::Role))")]
    pub role: String,
    #[sea_orm(from_col = "node_id")]
    pub node: Uuid,
    /// The node's name.
    #[sea_orm(from_expr = "Expr::col((node::Entity, node::Column::Fqdn))")]
    pub fqdn: String,
    pub state: String,
}

/// These steps with names for display.
pub async fn steps_with_names(
    connection: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<NamedStepRow>, StoreError> {
    let rows = joined_steps()
        .filter(step::Column::Id.eq_any(steps.iter().map(|step| step.0)))
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}
