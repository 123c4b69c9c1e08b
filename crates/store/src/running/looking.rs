//! Looking whether nodes are alive: who is due, and what came of it.
//!
//! Every worker looks; who is due is taken by one worker at a time, so that a node is looked at as often as is said and not as often as
//! there are workers. A worker that dies in between has only put the next look off. What is believed after a look is
//! [`engine::alive`]'s to say; turning a node is a transition like any other.

use std::time::Duration;

use engine::alive::Belief;
use engine::ids::NodeId;
use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use super::transition::{ChangeError, turn_node};
use crate::StoreError;

/// Results that are kept of a node.
const KEPT: i64 = 50;

/// A node that somebody should look at.
#[derive(Debug, Clone)]
pub struct DueNode {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: String,
    /// How to reach it.
    pub connection: Value,
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// Where it answered; empty: nowhere.
    pub address: String,
    /// The boot id of a node that let us in; else why it did not.
    pub came: Result<String, String>,
    /// How long it took.
    pub took: Duration,
    /// Who looked.
    pub by: String,
}

/// Nodes that nobody has looked at for so long, the longest first; they count as looked at from now on.
///
/// # Errors
/// What the database refused.
pub async fn due_nodes(pool: &PgPool, every: Duration, limit: u32) -> Result<Vec<DueNode>, StoreError> {
    let rows: Vec<(Uuid, String, Value)> = sqlx::query_as(
        "UPDATE node n SET looked_at = now()
         FROM (SELECT id FROM node
               WHERE transport = 'ssh' AND removed_in IS NULL
                 AND (looked_at IS NULL OR looked_at < now() - make_interval(secs => $1))
               ORDER BY looked_at NULLS FIRST LIMIT $2 FOR UPDATE SKIP LOCKED) due
         WHERE n.id = due.id
         RETURNING n.id, n.fqdn, jsonb_build_object('transport', n.transport, 'addresses', n.address) || n.connection",
    )
    .bind(every.as_secs_f64())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(id, fqdn, connection)| DueNode { id: NodeId(id), fqdn, connection }).collect())
}

/// Keeps what came of a look, and turns the node if that is enough; says whether it did.
///
/// # Errors
/// What the database refused; a node that is gone is none.
pub async fn record_look(pool: &PgPool, node: NodeId, looked: &Looked) -> Result<bool, ChangeError> {
    let mut transaction = pool.begin().await?;
    let row: Option<(bool, bool, i32)> = sqlx::query_as(
        "SELECT alive, alive_since IS NOT NULL, look_against FROM node WHERE id = $1 AND removed_in IS NULL FOR UPDATE",
    )
    .bind(node.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some((alive, known, against)) = row else { return Ok(false) };
    let reached = looked.came.is_ok();
    let belief = Belief { alive, known, against: against.unsigned_abs() }.after(reached);
    let turns = belief.alive != alive;
    // Whoever dies before the node has turned leaves enough against it for the next look to turn it.
    let against = if turns { against + 1 } else { i32::try_from(belief.against).unwrap_or(i32::MAX) };
    let said = looked.came.as_ref().err().map(String::as_str).unwrap_or_default();
    sqlx::query(
        "WITH counted AS (UPDATE node SET look_against = $2, last_seen_at = CASE WHEN $3 THEN now() ELSE last_seen_at END WHERE id = $1),
              old AS (DELETE FROM node_look WHERE node_id = $1 AND at <= (
                SELECT at FROM node_look WHERE node_id = $1 ORDER BY at DESC OFFSET $4 LIMIT 1))
         INSERT INTO node_look (node_id, reached, address, said, took_ms, by) VALUES ($1, $3, left($5, 300), left($6, 2000), $7, $8)",
    )
    .bind(node.0)
    .bind(against)
    .bind(reached)
    .bind(KEPT - 1)
    .bind(&looked.address)
    .bind(said)
    .bind(i32::try_from(looked.took.as_millis()).unwrap_or(i32::MAX))
    .bind(&looked.by)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    match turns {
        true => turn_node(pool, node, belief.alive, looked.came.as_deref().ok()).await,
        false => Ok(false),
    }
}
