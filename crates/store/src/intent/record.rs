//! What happened, told to whoever watches.

use api::live::{Live, Topic};
use sqlx::PgConnection;

use crate::StoreError;
use crate::journal::append_event;

/// Journals an event under each of these topics; it is told when the transaction commits.
pub async fn append_live(
    on: &mut PgConnection,
    topics: &[Topic],
    event: &Live,
) -> Result<(), StoreError> {
    for topic in topics {
        append_event(on, &topic.to_string(), "", event).await?;
    }
    Ok(())
}
