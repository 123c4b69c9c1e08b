//! Who can give a permission.

use sqlx::PgConnection;

use crate::StoreError;

/// Names of those who decide about people and are let in, in their order, so many at most.
///
/// # Errors
/// What the database refused.
pub async fn admins(on: &mut PgConnection, limit: i64) -> Result<Vec<String>, StoreError> {
    let names = sqlx::query_scalar(
        "SELECT name FROM person WHERE kind = 'human' AND NOT disabled AND 'admin' = ANY (permissions) ORDER BY name LIMIT $1",
    )
    .bind(limit)
    .fetch_all(on)
    .await?;
    Ok(names)
}
