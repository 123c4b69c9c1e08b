//! Background tasks: the periodic work of servers and workers.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::At;
use crate::call::Call;
use crate::listing::Limit;

/// Maximum number of tasks in the list, without a limit in the query.
pub const MAX_TASKS: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    Server,
    Worker,
}

impl ProcessKind {
    /// The name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
        }
    }

    pub fn from_name(word: &str) -> Option<Self> {
        [Self::Server, Self::Worker].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The process that runs a task. A restarted process is a new process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessView {
    /// Id of the process. For a worker, the id of the worker.
    pub id: Uuid,
    pub kind: ProcessKind,
    /// Unique name.
    pub name: String,
}

/// A background task of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundTaskView {
    /// Name of the task. Unique in its process.
    pub name: String,
    /// Purpose of the task.
    pub purpose: String,
    pub process: ProcessView,
    /// Time from the start of one run to the start of the next, in milliseconds.
    pub period_ms: u64,
    /// Whether a run is in progress.
    pub running: bool,
    /// Start of the current or last run.
    pub started: Option<At>,
    /// End of the last run that ended.
    pub ended: Option<At>,
    /// Duration of that run, in milliseconds.
    pub duration_ms: Option<u64>,
    /// Result of that run. Null if it failed.
    pub outcome: Option<String>,
    /// Reason of its failure. Null if it succeeded.
    pub error: Option<String>,
    /// Number of failed runs since the last success.
    pub failures: u32,
    /// Start of the next run. Null during a run.
    pub next: Option<At>,
}

/// The size of the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BackgroundTasksQuery {
    /// Maximum number of tasks, from 1 to 200. Without it, the list has at most 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// The background tasks of all servers and workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackgroundTasks {
    /// The tasks: first those whose last run failed, then by name. At most 500 without a
    /// `limit`.
    pub background_tasks: Vec<BackgroundTaskView>,
    /// Whether more tasks exist.
    pub more: bool,
}

/// Lists the background tasks of all processes.
pub fn list_call() -> Call {
    Call::get("/background-tasks").command(["background-task", "list"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_kind_names_match_wire_format() {
        for kind in [ProcessKind::Server, ProcessKind::Worker] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(ProcessKind::from_name(kind.as_str()), Some(kind));
        }
    }
}
