//! Reports of machines about themselves, with their own tokens.
//!
//! The token is stored on the machine, so an intruder on the machine can report anything. Therefore
//! a report never overrides a worker's findings. It only makes a health check due, and until then
//! nothing new starts on the machine. *Start-up* and *shutdown* replace most of the failed checks
//! that a change otherwise needs ([`engine::alive::Liveness::after_report`]). A restart is detected
//! by the worker that connects, never taken from the report. A false report only keeps work away
//! from the machine that sends it, and the machine could refuse work anyway.
//!
//! Local nodes have no health checks, so a start-up or shutdown that they report is only stored.
//!
//! Reports are bounded: in size by the caller, in rate by the number of stored rows here.

use engine::alive::{Liveness, restarted};
use engine::ids::NodeId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait as _, QueryFilter};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{node, node_report};
use crate::events::{append_events, node_event};
use crate::locks::lock_apply_exclusive;
use crate::runs::{FactSource, store_facts};

/// The maximum number of reports per node and minute.
pub const MAX_REPORTS: i64 = 30;
/// The number of reports stored per node. It exceeds a minute's maximum.
const MAX_STORED_REPORTS: i64 = 50;

/// The sender of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reporter {
    pub node: NodeId,
    /// The id of its token.
    pub token: Uuid,
    /// The client's address.
    pub address: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// Start-up, with the boot id.
    Startup(String),
    Shutdown,
    /// The boot environment.
    Bootenv(String),
    Facts(Map<String, Value>),
}

impl Report {
    fn kind(&self) -> &'static str {
        match self {
            Self::Startup(_) => "startup",
            Self::Shutdown => "shutdown",
            Self::Bootenv(_) => "bootenv",
            Self::Facts(_) => "facts",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Startup(text) | Self::Bootenv(text) => text,
            Self::Shutdown | Self::Facts(_) => "",
        }
    }
}

/// The result of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportOutcome {
    Stored,
    /// Not stored, because of too many reports within the last minute.
    TooMany,
    /// The node was removed.
    NodeRemoved,
}

#[derive(sqlx::FromRow)]
struct NodeState {
    fqdn: String,
    transport: String,
    alive: bool,
    known: bool,
    contradicting_checks: i32,
    boot_id: String,
}

/// Stores a report and applies its effect. The caller's transaction must hold no locks yet.
pub async fn append_report(
    transaction: &mut PgConnection,
    reporter: &Reporter,
    report: &Report,
) -> Result<ReportOutcome, StoreError> {
    // Checked before the global lock, so that a machine with constant reports does not block
    // everyone's work.
    if exceeds_limit(transaction, reporter.node).await? {
        return Ok(ReportOutcome::TooMany);
    }
    if matches!(report, Report::Startup(_) | Report::Shutdown) {
        lock_apply_exclusive(&mut *transaction).await?;
    }
    let state: Option<NodeState> = sqlx::query_as(
        "SELECT fqdn, transport, alive, alive_since IS NOT NULL AS known, contradicting_checks, coalesce(boot_id, '') AS boot_id
         FROM node n WHERE id = $1 AND removed_in IS NULL FOR UPDATE",
    )
    .bind(reporter.node.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(state) = state else { return Ok(ReportOutcome::NodeRemoved) };
    // Other reports may have been stored while this one waited for the row.
    if exceeds_limit(transaction, reporter.node).await? {
        return Ok(ReportOutcome::TooMany);
    }
    sqlx::query(
        "WITH old AS (DELETE FROM node_report WHERE node_id = $1 AND id <= (
           SELECT id FROM node_report WHERE node_id = $1 ORDER BY id DESC OFFSET $6 LIMIT 1))
         INSERT INTO node_report (node_id, kind, detail, token_id, address) VALUES ($1, $2, left($3, 200), $4, left($5, 100))",
    )
    .bind(reporter.node.0)
    .bind(report.kind())
    .bind(report.message())
    .bind(reporter.token)
    .bind(&reporter.address)
    .bind(MAX_STORED_REPORTS - 1)
    .execute(&mut *transaction)
    .await?;
    match report {
        Report::Facts(facts) => {
            store_facts(transaction, reporter.node, FactSource::Node(reporter.token), facts).await?
        }
        Report::Bootenv(bootenv) => {
            node::Entity::update_many()
                .col_expr(node::Column::Bootenv, Expr::value(bootenv))
                .filter(node::Column::Id.eq(reporter.node.0))
                .exec(&orm(transaction))
                .await?;
        }
        Report::Startup(boot_id) => {
            request_health_check(transaction, reporter.node, &state, Some(boot_id)).await?
        }
        Report::Shutdown => request_health_check(transaction, reporter.node, &state, None).await?,
    }
    append_events(transaction, &[node_event(&state.fqdn)], &[]).await?;
    Ok(ReportOutcome::Stored)
}

async fn exceeds_limit(connection: &mut PgConnection, node: NodeId) -> Result<bool, StoreError> {
    let recent = node_report::Entity::find()
        .filter(node_report::Column::NodeId.eq(node.0))
        .filter(Expr::cust("node_report.at > clock_timestamp() - interval '1 minute'"))
        .count(&orm(connection))
        .await?;
    Ok(recent >= MAX_REPORTS.unsigned_abs())
}

/// Makes a health check due. If the machine has restarted or shuts down, nothing new starts there
/// until then.
async fn request_health_check(
    transaction: &mut PgConnection,
    node: NodeId,
    state: &NodeState,
    new_boot_id: Option<&str>,
) -> Result<(), StoreError> {
    if state.transport != "ssh" {
        return Ok(());
    }
    let liveness = Liveness {
        alive: state.alive,
        known: state.known,
        contradicting: state.contradicting_checks.unsigned_abs(),
    };
    let liveness = liveness.after_report(new_boot_id.is_some());
    let may_have_restarted = new_boot_id.is_none_or(|boot_id| restarted(&state.boot_id, boot_id));
    sqlx::query(
        "UPDATE node SET health_checked_at = NULL, contradicting_checks = $2,
           report_no = report_no + CASE WHEN $3 OR contradicting_checks <> $2 THEN 1 ELSE 0 END
         WHERE id = $1",
    )
    .bind(node.0)
    .bind(i32::try_from(liveness.contradicting).unwrap_or(i32::MAX))
    .bind(may_have_restarted)
    .execute(&mut *transaction)
    .await?;
    if may_have_restarted {
        // Only workers may write `joined`. This function can only withdraw a confirmation.
        sqlx::query("SELECT reset_join_confirmation($1)").bind(node.0).execute(transaction).await?;
    }
    Ok(())
}
