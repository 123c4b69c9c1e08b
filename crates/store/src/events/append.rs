//! Events for listeners.
//!
//! An event is a row of the journal and a notification without content. Readers read the journal in
//! the order (xid, id), below the oldest open transaction, and so miss nothing.

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// A claim may find steps: steps became TODO, a concurrency group or a node became free, a hold or
/// a backoff ended.
pub const CHANNEL_TODO: &str = "gantry_todo";
/// Runs were queued. The payload is a run's number.
pub const CHANNEL_RUN: &str = "gantry_run";
/// Runs are to be canceled. The payload is a run's number.
pub const CHANNEL_CANCEL: &str = "gantry_cancel";
/// Events were appended to the journal.
pub const CHANNEL_EVENT: &str = "gantry_event";
/// A log grew. The payload is a run's number and the size of its log in bytes. The journal omits
/// growth, which would outnumber all other events. A client that misses a notification gets the
/// next one, or calls [`super::lengths`].
pub const CHANNEL_LOG: &str = "gantry_log";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// The recipients, such as `deployment:<id>` or `run:<id>`.
    pub topic: String,
    /// The id of the object.
    pub subject: String,
    /// `step`, `run` or `node`.
    pub kind: &'static str,
    /// Small, because the journal stores it.
    pub body: Value,
}

/// Appends events to the journal, and notifies its readers and these channels. One statement,
/// because every run pays for it.
pub(crate) async fn append_events(
    transaction: &mut PgConnection,
    events: &[Event],
    channels: &[&str],
) -> Result<(), StoreError> {
    let journal = if events.is_empty() { None } else { Some(CHANNEL_EVENT) };
    let channels: Vec<&str> = channels.iter().copied().chain(journal).collect();
    if channels.is_empty() {
        return Ok(());
    }
    let topics: Vec<&str> = events.iter().map(|e| e.topic.as_str()).collect();
    let subjects: Vec<&str> = events.iter().map(|e| e.subject.as_str()).collect();
    let kinds: Vec<&str> = events.iter().map(|e| e.kind).collect();
    let bodies: Vec<&Value> = events.iter().map(|e| &e.body).collect();
    sqlx::query(
        "WITH inserted AS (
           INSERT INTO event (topic, subject, kind, body)
           SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[]))
         SELECT pg_notify(channel, '') FROM unnest($5::text[]) AS c (channel)",
    )
    .bind(topics)
    .bind(subjects)
    .bind(kinds)
    .bind(bodies)
    .bind(channels)
    .execute(transaction)
    .await?;
    Ok(())
}

/// Sends a notification when the transaction commits.
pub(crate) async fn notify(
    transaction: &mut PgConnection,
    channel: &'static str,
    payload: &str,
) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_notify($1, $2)")
        .bind(channel)
        .bind(payload)
        .execute(transaction)
        .await?;
    Ok(())
}

/// A step changed its state.
pub(crate) fn step_event(deployment: Uuid, noderole: Uuid, state: &str) -> Event {
    Event {
        topic: format!("deployment:{deployment}"),
        subject: noderole.to_string(),
        kind: "step",
        body: json!({"noderole": noderole, "state": state}),
    }
}

/// A run was queued, leased or ended. `state` is `queued`, `running` or the outcome. The recipients
/// are the pages of the run, of its deployment and of the list of runs.
pub(crate) fn run_events(
    run: i64,
    noderole: Uuid,
    deployment: Uuid,
    state: &str,
    log_bytes: i64,
) -> [Event; 3] {
    [format!("run:{run}"), format!("deployment:{deployment}"), "runs".to_owned()].map(|topic| {
        Event {
            topic,
            subject: noderole.to_string(),
            kind: "run",
            body: json!({"run": run, "noderole": noderole, "state": state, "log_bytes": log_bytes}),
        }
    })
}

/// A node died or came back.
pub(crate) fn node_event(fqdn: &str) -> Event {
    Event {
        topic: "nodes".to_owned(),
        subject: fqdn.to_owned(),
        kind: "node",
        body: json!({"fqdn": fqdn}),
    }
}
