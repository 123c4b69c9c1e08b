//! Audit rows of use cases. They name the API token of the request.

use engine::ids::PersonId;
use sea_orm::{EntityTrait, Set};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::audit;

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
    let row = audit::ActiveModel {
        actor: Set(actor.map(|person| person.0)),
        action: Set(action.to_owned()),
        subject: Set(subject.to_owned()),
        detail: Set(detail),
        ..Default::default()
    };
    audit::Entity::insert(row).exec_without_returning(&orm(db)).await?;
    Ok(())
}
