//! What a machine says of itself, by a token of its own.
//!
//! A token lies on its machine, so whoever gets into the machine has it, and may say anything. Therefore a report never overrules what a
//! worker sees; it only makes workers look at once, and until they have looked nothing new starts there. *Start-up* and *shutdown* spare
//! the row of looks that a turn takes otherwise ([`engine::alive::Belief::told`]); whether the machine was restarted is read by whoever
//! is let in, never taken from the report. A machine that lies keeps work away from itself, which it could do anyway.
//!
//! Of a folder of a worker's machine nobody looks whether it is there, so a report on its life is only written down.
//!
//! Reports are bounded: in size by whoever takes them, in rate here, by the rows that are kept of them.

use engine::alive::{Belief, restarted};
use engine::ids::NodeId;
use serde_json::{Map, Value};
use sqlx::PgConnection;
use uuid::Uuid;

use super::event::{append_events, node_event};
use super::facts::{Witness, ensure_facts};
use super::locks::take_apply;
use crate::StoreError;

/// Most reports of a node in a minute.
pub const MOST_REPORTS: i64 = 30;
/// Reports that are kept of a node; more than a minute's.
const KEPT: i64 = 50;

/// Who reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reporter {
    /// The machine.
    pub node: NodeId,
    /// By which of its tokens.
    pub token: Uuid,
    /// Where it was heard from.
    pub address: String,
}

/// What it says.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// It has come up, with this boot id.
    Startup(String),
    /// It goes down.
    Shutdown,
    /// What it booted.
    Bootenv(String),
    /// What it knows of itself.
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

    fn said(&self) -> &str {
        match self {
            Self::Startup(text) | Self::Bootenv(text) => text,
            Self::Shutdown | Self::Facts(_) => "",
        }
    }
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is kept.
    Kept,
    /// There were too many within the last minute: it is not.
    TooMany,
    /// The machine is gone.
    Gone,
}

#[derive(sqlx::FromRow)]
struct Now {
    fqdn: String,
    transport: String,
    alive: bool,
    known: bool,
    look_against: i32,
    boot_id: String,
}

/// Keeps a report and does what it asks for. The caller's transaction has taken nothing yet.
///
/// # Errors
/// What the database refused.
pub async fn append_report(
    transaction: &mut PgConnection,
    by: &Reporter,
    report: &Report,
) -> Result<Reported, StoreError> {
    // Whoever reports ever again must not hold up everybody's work by waiting for the lock of all.
    if too_many(transaction, by.node).await? {
        return Ok(Reported::TooMany);
    }
    if matches!(report, Report::Startup(_) | Report::Shutdown) {
        take_apply(&mut *transaction).await?;
    }
    let now: Option<Now> = sqlx::query_as(
        "SELECT fqdn, transport, alive, alive_since IS NOT NULL AS known, look_against, coalesce(boot_id, '') AS boot_id
         FROM node n WHERE id = $1 AND removed_in IS NULL FOR UPDATE",
    )
    .bind(by.node.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(now) = now else { return Ok(Reported::Gone) };
    // Others may have reported while this one waited for the row.
    if too_many(transaction, by.node).await? {
        return Ok(Reported::TooMany);
    }
    sqlx::query(
        "WITH old AS (DELETE FROM node_report WHERE node_id = $1 AND id <= (
           SELECT id FROM node_report WHERE node_id = $1 ORDER BY id DESC OFFSET $6 LIMIT 1))
         INSERT INTO node_report (node_id, kind, said, token_id, address) VALUES ($1, $2, left($3, 200), $4, left($5, 100))",
    )
    .bind(by.node.0)
    .bind(report.kind())
    .bind(report.said())
    .bind(by.token)
    .bind(&by.address)
    .bind(KEPT - 1)
    .execute(&mut *transaction)
    .await?;
    match report {
        Report::Facts(facts) => {
            ensure_facts(transaction, by.node, Witness::Node(by.token), facts).await?
        }
        Report::Bootenv(bootenv) => {
            sqlx::query("UPDATE node SET bootenv = $2 WHERE id = $1")
                .bind(by.node.0)
                .bind(bootenv)
                .execute(&mut *transaction)
                .await?;
        }
        Report::Startup(boot_id) => prompt(transaction, by.node, &now, Some(boot_id)).await?,
        Report::Shutdown => prompt(transaction, by.node, &now, None).await?,
    }
    append_events(transaction, &[node_event(&now.fqdn)], &[]).await?;
    Ok(Reported::Kept)
}

async fn too_many(on: &mut PgConnection, node: NodeId) -> Result<bool, StoreError> {
    let recent: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM node_report WHERE node_id = $1 AND at > clock_timestamp() - interval '1 minute'",
    )
    .bind(node.0)
    .fetch_one(on)
    .await?;
    Ok(recent >= MOST_REPORTS)
}

/// Has somebody look at once; until then nothing new starts there, if the machine is not what it was.
async fn prompt(
    transaction: &mut PgConnection,
    node: NodeId,
    now: &Now,
    up: Option<&str>,
) -> Result<(), StoreError> {
    if now.transport != "ssh" {
        return Ok(());
    }
    let belief =
        Belief { alive: now.alive, known: now.known, against: now.look_against.unsigned_abs() };
    let belief = belief.told(up.is_some());
    let other = up.is_none_or(|boot_id| restarted(&now.boot_id, boot_id));
    sqlx::query(
        "UPDATE node SET looked_at = NULL, look_against = $2,
           word_no = word_no + CASE WHEN $3 OR look_against <> $2 THEN 1 ELSE 0 END
         WHERE id = $1",
    )
    .bind(node.0)
    .bind(i32::try_from(belief.against).unwrap_or(i32::MAX))
    .bind(other)
    .execute(&mut *transaction)
    .await?;
    if other {
        // Only workers may write `joined`; this function withdraws a confirmation and nothing more.
        sqlx::query("SELECT doubt_node($1)").bind(node.0).execute(transaction).await?;
    }
    Ok(())
}
