//! Sign-in links.
//!
//! [`super::begin_session_by_link`] uses a link. Only one of two concurrent requests gets it.

use engine::ids::PersonId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use sqlx::PgConnection;
use std::time::Duration;
use time::OffsetDateTime;

use super::TokenHash;
use crate::StoreError;
use crate::connect::orm;
use crate::entity::token;

/// The purpose of a sign-in link that is made to set a password.
pub const REQUIRES_PASSWORD: &str = "password";

/// The reason why a sign-in link cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// It does not exist.
    Unknown,
    /// It was used before.
    Used,
    /// It is too old or revoked.
    Expired,
}

/// Inserts a sign-in link. `required_steps` lists the steps required after its use
/// ([`REQUIRES_PASSWORD`]).
pub async fn insert_sign_in_link(
    db: &mut PgConnection,
    person: PersonId,
    hash: &TokenHash,
    lifetime: Duration,
    required_steps: &[&str],
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO token (kind, hash, person_id, expires_at, scopes)
         VALUES ('sign_in', $1, $2, now() + make_interval(secs => $3), $4)",
    )
    .bind(hash.as_slice())
    .bind(person.0)
    .bind(lifetime.as_secs_f64())
    .bind(required_steps)
    .execute(db)
    .await?;
    Ok(())
}

/// The reason why [`begin_session_by_link`] found no valid link. The client has the link's token,
/// so the answer reveals nothing to others.
pub async fn link_error(db: &mut PgConnection, hash: &TokenHash) -> Result<LinkError, StoreError> {
    let query = token::Entity::find()
        .filter(token::Column::Hash.eq(hash.as_slice()))
        .filter(token::Column::Kind.eq("sign_in"))
        .select_only()
        .column(token::Column::UsedAt);
    let used_at: Option<Option<OffsetDateTime>> = query.into_tuple().one(&orm(db)).await?;
    Ok(match used_at {
        None => LinkError::Unknown,
        Some(Some(_)) => LinkError::Used,
        Some(None) => LinkError::Expired,
    })
}

/// Revokes the unused sign-in links of a person.
pub async fn revoke_sign_in_links(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<(), StoreError> {
    token::Entity::update_many()
        .col_expr(token::Column::RevokedAt, Expr::current_timestamp())
        .filter(token::Column::PersonId.eq(person.0))
        .filter(token::Column::Kind.eq("sign_in"))
        .filter(token::Column::UsedAt.is_null())
        .filter(token::Column::RevokedAt.is_null())
        .exec(&orm(connection))
        .await?;
    Ok(())
}
