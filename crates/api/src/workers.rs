//! Workers, their leases and their current runs.

use engine::ids::RunId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::JoinPhase;
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};
use crate::{Allowed, At};

/// Maximum number of runs listed per worker.
pub const MAX_RUNS: usize = 20;

/// Filters of the list of workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct WorkersQuery {
    /// Only workers that are alive (`true`) or only those that are not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// Only workers that are draining or drained (`true`) or only those that are not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
    /// Phase of the join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<JoinPhase>,
    /// Part of the name. Empty matches all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Sort order. Default: newest first.
    pub sort: Order<WorkerSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// The drain of a worker: it finishes its runs and takes no further ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drain {
    /// The person who drains it.
    pub by: String,
    /// Start of the drain.
    pub since: At,
    /// Reason for the drain.
    pub reason: String,
    /// Whether no run is left, so that you can stop the worker without interrupting one.
    pub drained: bool,
}

/// A worker process. A restarted worker is a new worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerView {
    /// Id of the worker.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Phase of the join.
    pub phase: JoinPhase,
    /// Whether the lease is valid, so the last heartbeat came in time.
    pub alive: bool,
    /// Number of runs that it executes at once.
    pub capacity: u32,
    /// Its drain, or null if it takes runs.
    pub drain: Option<Drain>,
    /// Whether you can start or end its drain. Otherwise the reason.
    pub may_drain: Allowed,
    /// Number of leased runs.
    pub leased: i64,
    /// The oldest leased runs, oldest first, at most 20.
    pub runs: Vec<RunId>,
    /// Classes of jigs that it supports.
    pub jigs: Vec<String>,
    /// Host that it runs on.
    pub host: String,
    /// Process id on the host.
    pub pid: Option<i32>,
    /// Gantry version.
    pub version: String,
    /// Start time.
    pub started: At,
    /// Time of the last heartbeat.
    pub last_heartbeat: At,
    /// End of the lease.
    pub lease_until: At,
    /// Reason why it left.
    pub reason: Option<String>,
}

/// A page of the list of workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerPage {
    /// The workers, newest first by default.
    pub workers: Vec<WorkerView>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

sort! {
    WorkerSort, Order::descending(Self::Started), {
        Started "started" [Number, Text],
        /// Time of the last heartbeat.
        Heartbeat "heartbeat" [Number, Text],
        Name "name" [Text],
    }
}

paged! {
    WorkerPage: workers of WorkerView,
}
