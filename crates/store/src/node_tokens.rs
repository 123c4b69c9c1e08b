//! The tokens of machines: by which of them a machine speaks for itself.
//!
//! As with sign-ins, nothing here knows a token, only its SHA-256, and every moment is the database's own. Whether a token holds is
//! asked of its row each time: one that was revoked, has expired, or whose machine was taken out, is none with the next request.

use std::time::Duration;

use engine::ids::{NodeId, PersonId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::people::TokenHash;

/// Most tokens of a machine that hold at once.
pub const MOST_TOKENS: i64 = 10;
/// Tokens of a machine that are told of, the newest first: those that hold are among them.
const TOLD: i64 = 50;

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct NodeTokenRow {
    /// Which.
    pub id: Uuid,
    /// What its maker calls it.
    pub name: String,
    /// Who made it.
    pub by: Option<String>,
    /// When.
    pub created_at: OffsetDateTime,
    /// Until when.
    pub expires_at: OffsetDateTime,
    /// When it spoke last.
    pub last_used_at: Option<OffsetDateTime>,
    /// Since when it is taken back.
    pub revoked_at: Option<OffsetDateTime>,
    /// Whether it holds.
    pub holds: bool,
}

/// Makes a token of a machine; None: there are as many as there may be. The caller has locked the machine's row.
///
/// # Errors
/// What the database refused.
pub async fn insert_node_token(
    on: &mut PgConnection,
    node: NodeId,
    hash: &TokenHash,
    name: &str,
    lifetime: Duration,
    by: PersonId,
) -> Result<Option<(Uuid, OffsetDateTime)>, StoreError> {
    let made = sqlx::query_as(
        "INSERT INTO token (kind, hash, name, node_id, created_by, expires_at)
         SELECT 'node', $2, $3, $1, $4, now() + make_interval(secs => $5)
         WHERE (SELECT count(*) FROM token WHERE node_id = $1 AND kind = 'node' AND revoked_at IS NULL AND expires_at > now()) < $6
         RETURNING id, expires_at",
    )
    .bind(node.0)
    .bind(hash.as_slice())
    .bind(name)
    .bind(by.0)
    .bind(lifetime.as_secs_f64())
    .bind(MOST_TOKENS)
    .fetch_optional(on)
    .await?;
    Ok(made)
}

/// Takes a token back; its name, or None when this machine has no such token that was not taken back before.
///
/// # Errors
/// What the database refused.
pub async fn revoke_node_token(
    on: &mut PgConnection,
    node: NodeId,
    token: Uuid,
) -> Result<Option<String>, StoreError> {
    let name = sqlx::query_scalar(
        "UPDATE token SET revoked_at = now() WHERE id = $2 AND node_id = $1 AND kind = 'node' AND revoked_at IS NULL RETURNING name",
    )
    .bind(node.0)
    .bind(token)
    .fetch_optional(on)
    .await?;
    Ok(name)
}

/// The machine that a token speaks for, and the token's id; None: it holds for none. That it was used is written down at most once a
/// minute.
///
/// # Errors
/// What the database refused.
pub async fn node_of_token(
    on: &mut PgConnection,
    hash: &TokenHash,
) -> Result<Option<(NodeId, Uuid)>, StoreError> {
    let found: Option<(Uuid, Uuid, bool)> = sqlx::query_as(
        "SELECT t.node_id, t.id, t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute'
         FROM token t JOIN node n ON n.id = t.node_id
         WHERE t.hash = $1 AND t.kind = 'node' AND t.revoked_at IS NULL AND t.expires_at > now() AND n.removed_in IS NULL",
    )
    .bind(hash.as_slice())
    .fetch_optional(&mut *on)
    .await?;
    let Some((node, token, note)) = found else { return Ok(None) };
    if note {
        sqlx::query("UPDATE token SET last_used_at = now() WHERE id = $1")
            .bind(token)
            .execute(on)
            .await?;
    }
    Ok(Some((NodeId(node), token)))
}

/// A machine's tokens, newest first.
///
/// # Errors
/// What the database refused.
pub async fn node_tokens(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Vec<NodeTokenRow>, StoreError> {
    let rows = sqlx::query_as(
        "SELECT t.id, t.name, p.name AS by, t.created_at, t.expires_at, t.last_used_at, t.revoked_at,
           t.revoked_at IS NULL AND t.expires_at > now() AS holds
         FROM token t LEFT JOIN person p ON p.id = t.created_by
         WHERE t.node_id = $1 AND t.kind = 'node' ORDER BY holds DESC, t.created_at DESC, t.id LIMIT $2",
    )
    .bind(node.0)
    .bind(TOLD)
    .fetch_all(on)
    .await?;
    Ok(rows)
}
