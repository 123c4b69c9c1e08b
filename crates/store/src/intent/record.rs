//! Events for connected clients.

use api::live::{Live, Topic};
use sqlx::PgConnection;

use crate::StoreError;
use crate::journal::append_event;

/// Appends an event to the journal under each topic. Clients receive it when the transaction
/// commits.
pub async fn append_event_to_topics(
    connection: &mut PgConnection,
    topics: &[Topic],
    event: &Live,
) -> Result<(), StoreError> {
    for topic in topics {
        append_event(connection, &topic.to_string(), "", event).await?;
    }
    Ok(())
}
