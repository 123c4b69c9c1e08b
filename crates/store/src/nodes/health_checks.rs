//! Health checks of nodes: the nodes that are due, and the effect of results.
//!
//! Every worker runs health checks. A due node is assigned to one worker at a time. So the interval
//! does not depend on the number of workers. If that worker dies, the check is only postponed.
//! [`engine::alive`] decides whether a node is alive after a check. The change itself is a
//! transition like any other.
//!
//! Nothing starts on an alive node before its running processes are known. A *survey* reads the
//! boot id and the remaining attempts, and ends those without an open run. It is due at the first
//! connection, when the node returns, after a new boot id, and after a report. After a restart, the
//! old attempts are gone, so the node dies and returns within one check. If an attempt is
//! unexpectedly gone without a restart, its worker or the reaper notices.
//!
//! A check takes seconds and a survey a minute, so the result carries the versions with which it
//! began ([`AsOf`]):
//! * A result over an outdated connection says nothing about the node and is not stored.
//! * A result from before a report of the machine confirms nothing. It counts only against the
//!   believed state, because agreement would cancel the report. An unreachable result always
//!   counts, so a machine cannot keep itself alive with reports.
//! * Under the lock, the effect of a result is checked again, because another result may have come
//!   first.

use std::time::Duration;

use engine::Hash;
use engine::alive::{Liveness, TriedAddress, restarted};
use engine::cluster::connection::ADDRESSES;
use engine::ids::{NodeId, RunId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::StoreError;
use crate::connect::{hash, orm};
use crate::entity::{health_check, node};
use crate::events::{CHANNEL_TODO, append_events, node_event};
use crate::locks::lock_apply_exclusive;
use crate::runs::{ChangeError, ConnectionResult, Expected, change_node_alive};

/// The number of results stored per node.
const MAX_STORED_CHECKS: i64 = 50;

/// The versions with which a health check began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct AsOf {
    /// Raised with every change of the connection.
    pub connection_no: i32,
    /// Raised when the machine reports a start-up or shutdown.
    pub report_no: i32,
}

/// A node whose health check is due.
#[derive(Debug, Clone)]
pub struct DueNode {
    pub id: NodeId,
    pub fqdn: String,
    /// The hash of its document. `None`: it is in no blueprint.
    pub doc: Option<Hash>,
    /// The connection in its row, in the form of a document.
    pub connection: Value,
    /// Whether its running processes are known.
    pub confirmed: bool,
    /// Empty if unknown.
    pub boot_id: String,
    /// To be copied to the result.
    pub as_of: AsOf,
}

impl DueNode {
    /// Whether a successful check must include a survey.
    pub fn needs_survey(&self, boot_id: &str) -> bool {
        !self.confirmed || restarted(&self.boot_id, boot_id)
    }
}

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheckResult {
    /// The versions with which it began.
    pub as_of: AsOf,
    /// Each address in the order of attempts. For an existing connection, only its address.
    pub tried: Vec<TriedAddress>,
    /// The address that accepted the connection. Otherwise the only address, or empty if there were
    /// several.
    pub address: String,
    /// The boot id, or the error.
    pub came: Result<String, String>,
    /// The result of the survey. `None`: there was no survey.
    pub survey: Option<Result<(), String>>,
    pub took: Duration,
    /// The name of the worker.
    pub by: String,
}

impl HealthCheckResult {
    /// Truncates texts for storage.
    fn tried(&self) -> Json<Vec<TriedAddress>> {
        let short = |text: &str, max_chars| text.chars().take(max_chars).collect();
        let to_stored = |tried: &TriedAddress| TriedAddress {
            address: short(&tried.address, 300),
            reached: tried.reached,
            error: short(&tried.error, 500),
        };
        Json(self.tried.iter().take(ADDRESSES).map(to_stored).collect())
    }

    fn message(&self) -> &str {
        let survey = || self.survey.as_ref().and_then(|survey| survey.as_ref().err());
        self.came.as_ref().err().or_else(survey).map(String::as_str).unwrap_or_default()
    }
}

/// Nodes without a health check for the given interval, the longest first. They count as checked
/// from now on.
pub async fn due_nodes(
    pool: &PgPool,
    interval: Duration,
    limit: u32,
) -> Result<Vec<DueNode>, StoreError> {
    type Row = (Uuid, String, Option<Vec<u8>>, Option<Value>, bool, String, i32, i32);
    let rows: Vec<Row> = sqlx::query_as(include_str!("statements/due_nodes.sql"))
        .bind(interval.as_secs_f64())
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    let to_due_node =
        |(id, fqdn, doc, connection, confirmed, boot_id, connection_no, report_no)| {
            let doc: Option<Vec<u8>> = doc;
            Ok(DueNode {
                id: NodeId(id),
                fqdn,
                doc: doc.map(|doc| hash("node", &doc)).transpose()?,
                connection: Option::unwrap_or_default(connection),
                confirmed,
                boot_id,
                as_of: AsOf { connection_no, report_no },
            })
        };
    rows.into_iter().map(to_due_node).collect()
}

/// The addresses of a node that have accepted a worker with its present connection.
pub async fn reached_addresses(
    pool: &PgPool,
    node: NodeId,
    connection_no: i32,
) -> Result<Vec<String>, StoreError> {
    let mut connection = pool.acquire().await?;
    let addresses = health_check::Entity::find()
        .filter(health_check::Column::NodeId.eq(node.0))
        .filter(health_check::Column::Reached.eq(true))
        .filter(health_check::Column::ConnectionNo.eq(connection_no))
        .select_only()
        .column(health_check::Column::Address)
        .distinct()
        .into_tuple()
        .all(&orm(&mut connection))
        .await?;
    Ok(addresses)
}

/// The believed state of a node before a health check.
#[derive(sqlx::FromRow)]
struct Before {
    fqdn: String,
    alive: bool,
    known: bool,
    contradicting_checks: i32,
    confirmed: bool,
    boot_id: String,
    /// Whether a survey finished after this check began.
    outdated: bool,
    #[sqlx(flatten)]
    as_of: AsOf,
}

impl Before {
    /// The believed state after the check, if the check counts.
    fn after(&self, result: &HealthCheckResult) -> Liveness {
        let liveness = Liveness {
            alive: self.alive,
            known: self.known,
            contradicting: self.contradicting_checks.unsigned_abs(),
        };
        let reported_since = self.as_of.report_no != result.as_of.report_no;
        match reported_since && result.came.is_ok() == self.alive {
            true => liveness,
            false => liveness.after(result.came.is_ok()),
        }
    }

    /// The state in which the node must still be when a change is applied.
    fn expected(&self, contradicting: i32) -> Expected<'_> {
        Expected { connection_no: self.as_of.connection_no, contradicting, boot_id: &self.boot_id }
    }
}

/// Stores the result of a health check and changes the node if it is sufficient. Returns whether
/// anything changed. A removed node changes nothing.
pub async fn record_health_check(
    pool: &PgPool,
    node: NodeId,
    result: &HealthCheckResult,
) -> Result<bool, ChangeError> {
    let mut transaction = pool.begin().await?;
    let before: Option<Before> = sqlx::query_as(
        "SELECT fqdn, alive, alive_since IS NOT NULL AS known, contradicting_checks, joined = 'confirmed' AS confirmed,
           coalesce(boot_id, '') AS boot_id, connection_no, report_no,
           coalesce(joined_at > now() - make_interval(secs => $2), false) AS outdated
         FROM node WHERE id = $1 AND removed_in IS NULL FOR UPDATE",
    )
    .bind(node.0)
    .bind(result.took.as_secs_f64())
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(before) = before else { return Ok(false) };
    if before.as_of.connection_no != result.as_of.connection_no {
        // This check may have made another worker skip the new connection, so the node is due
        // again.
        node::Entity::update_many()
            .col_expr(node::Column::HealthCheckedAt, Expr::cust("NULL"))
            .filter(node::Column::Id.eq(node.0))
            .exec(&orm(&mut transaction))
            .await
            .map_err(StoreError::from)?;
        transaction.commit().await?;
        return Ok(false);
    }
    let liveness = before.after(result);
    let turns = liveness.alive != before.alive;
    // If the process dies before the change, the stored count is sufficient for the next check to
    // change the node.
    let contradicting = if turns {
        before.contradicting_checks + 1
    } else {
        i32::try_from(liveness.contradicting).unwrap_or(i32::MAX)
    };
    keep(&mut transaction, node, contradicting, result, &before.fqdn).await?;
    transaction.commit().await?;
    apply_result(pool, node, &before, result, turns.then_some(contradicting)).await
}

/// Applies the effect of a stored result. `turns` is the sufficient count of results against the
/// believed state.
async fn apply_result(
    pool: &PgPool,
    node: NodeId,
    before: &Before,
    result: &HealthCheckResult,
    turns: Option<i32>,
) -> Result<bool, ChangeError> {
    let expected = turns.map(|contradicting| before.expected(contradicting));
    let Ok(boot_id) = &result.came else {
        let Some(expected) = expected else { return Ok(false) };
        return change_node_alive(pool, node, false, None, Some(expected)).await;
    };
    let confirmed = (result.survey == Some(Ok(()))).then_some(result.as_of.report_no);
    let joined = ConnectionResult { boot_id, confirmed };
    if let Some(expected) = expected {
        return change_node_alive(pool, node, true, Some(joined), Some(expected)).await;
    }
    if !before.alive || before.outdated {
        return Ok(false);
    }
    if restarted(&before.boot_id, boot_id) {
        let contradicting = i32::try_from(before.after(result).contradicting).unwrap_or(i32::MAX);
        if !change_node_alive(pool, node, false, None, Some(before.expected(contradicting))).await?
        {
            return Ok(false);
        }
        return change_node_alive(pool, node, true, Some(joined), Some(before.expected(0))).await;
    }
    match joined.confirmed.is_some() && !before.confirmed {
        true => confirm_node(pool, node, boot_id, result.as_of).await,
        false => Ok(false),
    }
}

/// Stores the result. Pages that show the node are notified if it differs from the last one.
async fn keep(
    transaction: &mut PgConnection,
    node: NodeId,
    contradicting: i32,
    result: &HealthCheckResult,
    fqdn: &str,
) -> Result<(), StoreError> {
    let differs: bool = sqlx::query_scalar(include_str!("statements/record_health_check.sql"))
        .bind(node.0)
        .bind(contradicting)
        .bind(result.came.is_ok())
        .bind(MAX_STORED_CHECKS - 1)
        .bind(&result.address)
        .bind(result.message())
        .bind(i32::try_from(result.took.as_millis()).unwrap_or(i32::MAX))
        .bind(&result.by)
        .bind(result.came.as_deref().ok())
        .bind(result.tried())
        .fetch_one(&mut *transaction)
        .await?;
    match differs {
        true => append_events(transaction, &[node_event(fqdn)], &[]).await,
        false => Ok(()),
    }
}

/// Marks the running processes of an alive node as known, unless something happened since. Returns
/// whether that is new.
async fn confirm_node(
    pool: &PgPool,
    node: NodeId,
    boot_id: &str,
    as_of: AsOf,
) -> Result<bool, ChangeError> {
    let mut transaction = pool.begin().await?;
    lock_apply_exclusive(&mut transaction).await?;
    let fqdn: Option<String> = sqlx::query_scalar(
        "UPDATE node SET joined = 'confirmed', joined_at = now(), boot_id = $2
         WHERE id = $1 AND alive AND joined <> 'confirmed' AND removed_in IS NULL AND connection_no = $3 AND report_no = $4
         RETURNING fqdn",
    )
    .bind(node.0)
    .bind(boot_id)
    .bind(as_of.connection_no)
    .bind(as_of.report_no)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(fqdn) = fqdn else { return Ok(false) };
    append_events(&mut transaction, &[node_event(&fqdn)], &[CHANNEL_TODO]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// The attempts on a node without an open run, each with the epoch for ending it. Reads at most
/// 10,000 attempts.
pub async fn orphaned_attempts(
    pool: &PgPool,
    node: NodeId,
    found: &[(RunId, StepId)],
) -> Result<Vec<(RunId, StepId, i64)>, StoreError> {
    let found = &found[..found.len().min(10_000)];
    let rows: Vec<(i64, Uuid, i64)> = sqlx::query_as(
        "SELECT f.run, f.step, coalesce(r.epoch, h.epoch)
         FROM unnest($2::bigint[], $3::uuid[]) AS f (run, step) CROSS JOIN head h
         LEFT JOIN run r ON r.id = f.run AND r.node_id = $1 AND r.step_id = f.step
         WHERE r.id IS NULL OR r.ended_at IS NOT NULL",
    )
    .bind(node.0)
    .bind(found.iter().map(|(run, _)| run.0).collect::<Vec<_>>())
    .bind(found.iter().map(|(_, step)| step.0).collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(run, step, epoch)| (RunId(run), StepId(step), epoch)).collect())
}
