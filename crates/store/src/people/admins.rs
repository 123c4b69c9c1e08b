//! The people who can grant a permission.

use sqlx::PgConnection;

use crate::StoreError;

/// The names of enabled admins, in order.
pub async fn admins(connection: &mut PgConnection, limit: i64) -> Result<Vec<String>, StoreError> {
    let names = sqlx::query_scalar(
        "SELECT name FROM person WHERE kind = 'human' AND NOT disabled AND 'admin' = ANY (permissions) ORDER BY name LIMIT $1",
    )
    .bind(limit)
    .fetch_all(connection)
    .await?;
    Ok(names)
}
