//! Tokens with which nodes send their own reports.
//!
//! This module handles only the SHA-256 of a token, never the token. All times are the database's.
//! Each request checks the token's row. So revocation, expiry and removal of the node take effect
//! on the next request.

use std::time::Duration;

use engine::ids::{NodeId, PersonId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{join, node, person, token};
use crate::people::TokenHash;

/// The maximum number of valid tokens per node.
pub const MAX_TOKENS: i64 = 10;
/// The maximum number of tokens in a list, newest first. It always includes the valid ones.
const MAX_LISTED_TOKENS: u64 = 50;

/// A token without its text.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "token::Entity")]
pub struct NodeTokenRow {
    pub id: Uuid,
    pub name: String,
    /// The name of its creator.
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
    pub by: Option<String>,
    pub created_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
    pub last_used_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
    /// Neither expired nor revoked.
    #[sea_orm(from_expr = "Expr::cust(IS_VALID)")]
    pub holds: bool,
}

const IS_VALID: &str = "token.revoked_at IS NULL AND token.expires_at > now()";
const USE_IS_UNRECORDED: &str =
    "token.last_used_at IS NULL OR token.last_used_at < now() - interval '1 minute'";

/// Inserts a token of a node. `None`: the node has the maximum number. The caller has locked the
/// node's row.
pub async fn insert_node_token(
    connection: &mut PgConnection,
    node: NodeId,
    hash: &TokenHash,
    name: &str,
    lifetime: Duration,
    by: PersonId,
) -> Result<Option<(Uuid, OffsetDateTime)>, StoreError> {
    let inserted = sqlx::query_as(
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
    .bind(MAX_TOKENS)
    .fetch_optional(connection)
    .await?;
    Ok(inserted)
}

/// Revokes a token and returns its name. `None`: the node has no such token, or it was already
/// revoked.
pub async fn revoke_node_token(
    connection: &mut PgConnection,
    node: NodeId,
    token: Uuid,
) -> Result<Option<String>, StoreError> {
    let mut revoked = token::Entity::update_many()
        .col_expr(token::Column::RevokedAt, Expr::current_timestamp())
        .filter(token::Column::Id.eq(token))
        .filter(token::Column::NodeId.eq(node.0))
        .filter(token::Column::Kind.eq("node"))
        .filter(token::Column::RevokedAt.is_null())
        .exec_with_returning(&orm(connection))
        .await?;
    Ok(revoked.pop().map(|token| token.name))
}

/// The node and the id of a valid token. Records its use at most once a minute.
pub async fn authenticate_node(
    connection: &mut PgConnection,
    hash: &TokenHash,
) -> Result<Option<(NodeId, Uuid)>, StoreError> {
    let query = token::Entity::find()
        .join(JoinType::InnerJoin, join(token::Column::NodeId, node::Column::Id))
        .filter(token::Column::Hash.eq(hash.as_slice()))
        .filter(token::Column::Kind.eq("node"))
        .filter(Expr::cust(IS_VALID))
        .filter(node::Column::RemovedIn.is_null())
        .select_only()
        .columns([token::Column::NodeId, token::Column::Id])
        .expr(Expr::cust(USE_IS_UNRECORDED));
    let found: Option<(Uuid, Uuid, bool)> = query.into_tuple().one(&orm(connection)).await?;
    let Some((node, id, should_record_use)) = found else { return Ok(None) };
    if should_record_use {
        token::Entity::update_many()
            .col_expr(token::Column::LastUsedAt, Expr::current_timestamp())
            .filter(token::Column::Id.eq(id))
            .exec(&orm(connection))
            .await?;
    }
    Ok(Some((NodeId(node), id)))
}

/// The tokens of a node, newest first.
pub async fn node_tokens(
    connection: &mut PgConnection,
    node: NodeId,
) -> Result<Vec<NodeTokenRow>, StoreError> {
    let rows = token::Entity::find()
        .join(JoinType::LeftJoin, join(token::Column::CreatedBy, person::Column::Id))
        .filter(token::Column::NodeId.eq(node.0))
        .filter(token::Column::Kind.eq("node"))
        .order_by_desc(Expr::cust(IS_VALID))
        .order_by_desc(token::Column::CreatedAt)
        .order_by_asc(token::Column::Id)
        .limit(MAX_LISTED_TOKENS)
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}
