//! Sign-in links.
//!
//! [`super::begin_session_by_link`] uses a link. Only one of two concurrent requests gets it.

use engine::ids::PersonId;
use sqlx::PgConnection;
use std::time::Duration;

use super::TokenHash;
use crate::StoreError;

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
    let sql = "SELECT used_at IS NOT NULL FROM token WHERE hash = $1 AND kind = 'sign_in'";
    let used: Option<bool> =
        sqlx::query_scalar(sql).bind(hash.as_slice()).fetch_optional(db).await?;
    Ok(match used {
        None => LinkError::Unknown,
        Some(true) => LinkError::Used,
        Some(false) => LinkError::Expired,
    })
}

/// Revokes the unused sign-in links of a person.
pub async fn revoke_sign_in_links(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE token SET revoked_at = now()
         WHERE person_id = $1 AND kind = 'sign_in' AND used_at IS NULL AND revoked_at IS NULL",
    )
    .bind(person.0)
    .execute(connection)
    .await?;
    Ok(())
}
