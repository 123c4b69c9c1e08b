//! A person's progress with the first steps, derived from history. Only recent history is read,
//! because people who completed them long ago have a long history.

use engine::ids::PersonId;
use sqlx::PgConnection;

use crate::StoreError;

/// The completed first steps of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct FirstStepsRow {
    /// They edited a proposal other than the demo's initial change.
    pub edited: bool,
    /// Their latest review.
    pub review: Option<i64>,
    /// Another person gave a verdict on one of their reviews, or they gave one on another's.
    pub reviewed: bool,
    /// A review of theirs was committed, or they committed another's.
    pub committed: bool,
    /// A run of that commit has ended.
    pub ran: bool,
    /// A run failed, and they retried it or ran it again with a later change. Automatic retries do
    /// not count.
    pub retried: bool,
    /// The deployment of an open proposal that they edited, otherwise of their latest review.
    pub deployment: Option<String>,
}

/// The action of Gantry's audit entry that names the demo's initial review.
pub const DEMO_CHANGE: &str = "demo.change";

/// A person's progress since the demo's initial change, which is in a person's name but not their
/// work. It reads their last 100 reviews, 200 audit entries and 20 blueprints, and the last 20 runs
/// of each of 1,000 steps.
pub async fn first_steps(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<FirstStepsRow, StoreError> {
    Ok(sqlx::query_as(include_str!("statements/first_steps.sql"))
        .bind(person.0)
        .bind(DEMO_CHANGE)
        .fetch_one(connection)
        .await?)
}
