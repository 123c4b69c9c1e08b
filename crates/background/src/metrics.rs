//! Prometheus metrics of the tasks of a process.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabel {
    task: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    task: &'static str,
    outcome: &'static str,
}

/// The counters. Cheap to clone. Labels contain only names of tasks.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    runs: Family<RunLabels, Counter>,
    seconds: Family<TaskLabel, Counter<f64, AtomicU64>>,
    last_success: Family<TaskLabel, Gauge<f64, AtomicU64>>,
}

impl Metrics {
    pub fn register(&self, to: &mut Registry) {
        to.register(
            "background_task_runs",
            "Runs of background tasks, by task and outcome",
            self.runs.clone(),
        );
        to.register_with_unit(
            "background_task_run_time",
            "Total duration of the runs of each background task",
            Unit::Seconds,
            self.seconds.clone(),
        );
        to.register_with_unit(
            "background_task_last_success",
            "End of the last successful run of each background task, in seconds since the Unix \
             epoch",
            Unit::Seconds,
            self.last_success.clone(),
        );
    }

    pub(crate) fn count(&self, task: &'static str, succeeded: bool, took: Duration) {
        let outcome = if succeeded { "done" } else { "failed" };
        self.runs.get_or_create(&RunLabels { task, outcome }).inc();
        self.seconds.get_or_create(&TaskLabel { task }).inc_by(took.as_secs_f64());
        if succeeded {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.last_success.get_or_create(&TaskLabel { task }).set(now.as_secs_f64());
        }
    }
}
