//! Audit rows of use cases. They name the API token of the request.

use engine::ids::PersonId;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

tokio::task_local! {
    static TOKEN: Uuid;
}

/// Runs a future on behalf of an API token, which all audit rows of the future name.
pub async fn run_with_token<W: Future>(token: Uuid, future: W) -> W::Output {
    TOKEN.scope(token, future).await
}

/// Adds the API token of the request, if any, to the detail of an audit row.
pub(crate) fn add_token(mut detail: Value) -> Value {
    if let (Ok(token), Some(object)) = (TOKEN.try_get(), detail.as_object_mut()) {
        object.insert("by_token".into(), token.to_string().into());
    }
    detail
}

/// Appends an audit row with the actor and the API token, if any. `detail` must not contain a
/// secret: audit rows are permanent and exported.
pub async fn append_audit(
    db: &mut PgConnection,
    actor: Option<PersonId>,
    action: &str,
    subject: &str,
    detail: &Value,
) -> Result<(), StoreError> {
    let detail = match actor {
        Some(_) => add_token(detail.clone()),
        None => detail.clone(),
    };
    sqlx::query("INSERT INTO audit (actor, action, subject, detail) VALUES ($1, $2, $3, $4)")
        .bind(actor.map(|person| person.0))
        .bind(action)
        .bind(subject)
        .bind(detail)
        .execute(db)
        .await?;
    Ok(())
}
