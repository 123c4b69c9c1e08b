//! Metrics of runs and workers.
//!
//! The database has both, so they come from there. A worker then needs no listener of its own,
//! which a firewall would have to open for Prometheus.
//!
//! A counter must never decrease, and counting all stored runs at each collection takes longer and
//! longer. So a server counts the runs that ended since its first collection, each once: a
//! collection reads the runs after the last one that was counted. All servers count the same runs.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use control::{Control, EndCursor, WorkerLoad};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::Mutex;

/// A gauge with a fraction.
pub(crate) type FloatGauge = Gauge<f64, AtomicU64>;

/// Upper bounds of the histograms, in seconds. A run takes up to hours.
const BUCKETS: [f64; 12] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0];
/// The outcomes of a run. Each is reported from the start, so that an increase from 0 is visible.
const OUTCOMES: [&str; 6] = ["succeeded", "failed", "lost", "canceled", "late", "unstarted"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    worker: String,
}

/// The counters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunMetrics {
    ended: Family<OutcomeLabel, Counter>,
    took: Family<OutcomeLabel, Histogram, fn() -> Histogram>,
    queued: Histogram,
    /// The last run that was counted.
    last: Arc<Mutex<Option<EndCursor>>>,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl RunMetrics {
    pub(crate) fn registered(to: &mut Registry) -> Self {
        let metrics = Self {
            ended: Family::default(),
            took: Family::new_with_constructor(histogram),
            queued: histogram(),
            last: Arc::default(),
        };
        for outcome in OUTCOMES {
            drop(metrics.ended.get_or_create(&OutcomeLabel { outcome }));
        }
        to.register("runs_ended", "Runs that ended, by outcome", metrics.ended.clone());
        let about = "Time from the start of a run to its end";
        to.register_with_unit("run_duration", about, Unit::Seconds, metrics.took.clone());
        let about = "Time of a run in the queue";
        to.register_with_unit("run_queue_time", about, Unit::Seconds, metrics.queued.clone());
        metrics
    }

    /// Counts the runs that ended since the last collection.
    pub(crate) async fn update(&self, control: &Control) -> Option<()> {
        let mut last = self.last.lock().await;
        let (runs, end) = control.ended_runs(*last).await.ok()?;
        *last = Some(end);
        for run in runs {
            let outcome = OUTCOMES.into_iter().find(|outcome| *outcome == run.outcome)?;
            let label = OutcomeLabel { outcome };
            self.ended.get_or_create(&label).inc();
            if let Some(seconds) = run.run_seconds {
                self.took.get_or_create(&label).observe(seconds);
            }
            if let Some(seconds) = run.queued {
                self.queued.observe(seconds);
            }
        }
        Some(())
    }
}

/// Adds the load of each worker.
pub(crate) fn register_workers(to: &mut Registry, workers: &[WorkerLoad]) {
    let (runs, capacity) = (Family::<WorkerLabel, Gauge>::default(), Family::<_, Gauge>::default());
    let age = Family::<WorkerLabel, FloatGauge>::default();
    let draining = Family::<WorkerLabel, Gauge>::default();
    for worker in workers {
        let label = WorkerLabel { worker: worker.name.clone() };
        runs.get_or_create(&label).set(worker.runs);
        capacity.get_or_create(&label).set(worker.capacity);
        age.get_or_create(&label).set(worker.heartbeat_age);
        draining.get_or_create(&label).set(worker.draining.into());
    }
    to.register("worker_runs", "Leased runs of a worker", runs);
    to.register("worker_capacity", "Maximum number of runs of a worker at once", capacity);
    to.register("worker_draining", "Whether a worker is draining", draining);
    let about = "Time since the last heartbeat of a worker";
    to.register_with_unit("worker_heartbeat_age", about, Unit::Seconds, age);
}
