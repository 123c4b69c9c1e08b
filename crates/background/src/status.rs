//! The status of each task of a process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::task::{Task, TaskResult};

/// The status of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub name: &'static str,
    pub purpose: &'static str,
    pub period: Duration,
    /// Start of the current or last run.
    pub last_start: Option<Instant>,
    /// The last run that ended.
    pub last_run: Option<LastRun>,
    /// Failures since the last success.
    pub failures: u32,
    /// Start of the next run. `None`: a run is in progress.
    pub next_due: Option<Instant>,
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LastRun {
    pub ended: Instant,
    pub took: Duration,
    pub result: TaskResult,
}

/// The status of all tasks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statuses(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tasks: Mutex<BTreeMap<&'static str, Status>>,
    changed: Notify,
}

impl Statuses {
    pub(crate) fn add(&self, task: &impl Task) {
        let status = Status {
            name: task.name(),
            purpose: task.purpose(),
            period: task.period(),
            last_start: None,
            last_run: None,
            failures: 0,
            next_due: Some(Instant::now()),
        };
        self.tasks().insert(status.name, status);
        self.0.changed.notify_one();
    }

    /// Changes the status of one task.
    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut Status)) {
        if let Some(status) = self.tasks().get_mut(name) {
            change(status);
        }
        self.0.changed.notify_one();
    }

    pub(crate) fn all(&self) -> Vec<Status> {
        self.tasks().values().cloned().collect()
    }

    /// Waits for the next change since the last call. Cancel-safe. For one caller only.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<&'static str, Status>> {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
