use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::task::Outcome;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// A task whose runs wait for a result from the test.
struct Scripted {
    period: Duration,
    started: UnboundedSender<()>,
    results: UnboundedReceiver<TaskResult>,
    dropped: Arc<AtomicBool>,
}

/// The test's side of a [`Scripted`] task.
struct Script {
    started: UnboundedReceiver<()>,
    results: UnboundedSender<TaskResult>,
    dropped: Arc<AtomicBool>,
}

fn scripted(period: Duration) -> (Scripted, Script) {
    let (start, started) = unbounded_channel();
    let (result, results) = unbounded_channel();
    let dropped = Arc::<AtomicBool>::default();
    let task = Scripted { period, started: start, results, dropped: dropped.clone() };
    (task, Script { started, results: result, dropped })
}

impl Script {
    async fn run_starts(&mut self) {
        let started = tokio::time::timeout(Duration::from_secs(10), self.started.recv()).await;
        started.expect("a run starts in time").expect("the task still runs");
    }

    /// Whether a run starts within a moment.
    async fn starts_again(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(50), self.started.recv()).await.is_ok()
    }

    fn end(&self, result: TaskResult) {
        self.results.send(result).expect("the task still runs");
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Task for Scripted {
    fn name(&self) -> &'static str {
        "follow-script"
    }

    fn purpose(&self) -> &'static str {
        "Follows the script of a test."
    }

    fn period(&self) -> Duration {
        self.period
    }

    async fn run(&mut self) -> TaskResult {
        let _dropped = SetOnDrop(self.dropped.clone());
        self.started.send(()).expect("the test still runs");
        let result = self.results.recv().await.expect("the test still runs");
        if let Err(failure) = &result {
            assert_ne!(failure.text(), "panic: now", "boom");
        }
        result
    }
}

fn driver() -> Driver {
    Driver::new(Metrics::default(), CancellationToken::new())
}

fn done() -> TaskResult {
    Ok(Outcome::from("Done."))
}

/// The status after the current run has ended.
async fn status_when_idle(driver: &Driver) -> Status {
    loop {
        let status = driver.status().remove(0);
        if status.next_due.is_some() && status.last_run.is_some() {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn task_runs_immediately_and_every_period() {
    let mut driver = driver();
    let (task, mut script) = scripted(Duration::from_millis(20));
    let began = Instant::now();
    driver.add(task);
    for _ in 0..3 {
        script.run_starts().await;
        script.end(done());
    }
    assert!(began.elapsed() >= Duration::from_millis(40));
}

#[tokio::test]
async fn activations_during_a_run_cause_one_more() {
    let mut driver = driver();
    let (task, mut script) = scripted(NEVER);
    let activator = driver.add(task);
    script.run_starts().await;
    for _ in 0..3 {
        activator.activate();
    }
    assert!(!script.starts_again().await, "two runs are active at once");
    script.end(done());
    script.run_starts().await;
    script.end(done());
    assert!(!script.starts_again().await);
    activator.activate();
    script.run_starts().await;
}

#[tokio::test]
async fn failures_are_counted_until_a_success() {
    let mut driver = driver();
    let (task, mut script) = scripted(NEVER);
    let activator = driver.add(task);
    for failures in 1..=2 {
        script.run_starts().await;
        script.end(Err(Failure::new("cannot read the script", "it is empty")));
        let status = status_when_idle(&driver).await;
        assert_eq!(status.failures, failures);
        let result = status.last_run.unwrap().result;
        assert_eq!(result.unwrap_err().text(), "cannot read the script: it is empty");
        activator.activate();
    }
    script.run_starts().await;
    assert_eq!(driver.status()[0].next_due, None, "a task that is running has no next start");
    script.end(done());
    let status = status_when_idle(&driver).await;
    assert_eq!((status.failures, status.last_run.unwrap().result), (0, done()));
    let due = status.next_due.unwrap() - status.last_start.unwrap();
    assert!(due >= NEVER && due <= NEVER.mul_f64(1.0 + JITTER), "{due:?}");
}

#[tokio::test]
async fn panic_is_a_failure_and_the_task_continues() {
    let mut driver = driver();
    let (task, mut script) = scripted(NEVER);
    let activator = driver.add(task);
    script.run_starts().await;
    script.end(Err(Failure::new("panic", "now")));
    let status = status_when_idle(&driver).await;
    let error = status.last_run.unwrap().result.unwrap_err();
    assert_eq!(
        error.text(),
        "The task panicked: internal error. Read the log of this process for the cause."
    );
    assert!(error.cause().unwrap().contains("boom"));
    assert_eq!(status.failures, 1);
    activator.activate();
    script.run_starts().await;
}

#[tokio::test]
async fn stop_drops_the_current_run() {
    let mut driver = driver();
    let (task, mut script) = scripted(NEVER);
    driver.add(task);
    script.run_starts().await;
    driver.stop().await;
    assert!(script.dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn stop_ends_tasks_with_their_own_signal() {
    let mut driver = driver();
    let (task, mut script) = scripted(NEVER);
    driver.add_until(CancellationToken::new(), task);
    script.run_starts().await;
    let stopped = tokio::time::timeout(Duration::from_secs(10), driver.stop()).await;
    assert!(stopped.is_ok() && script.dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn own_signal_stops_only_its_task() {
    let (mut driver, signal) = (driver(), CancellationToken::new());
    let (first, mut first_script) = scripted(Duration::from_millis(5));
    let (second, mut second_script) = scripted(Duration::from_millis(5));
    driver.add_until(signal.clone(), first);
    driver.add(second);
    first_script.run_starts().await;
    signal.cancel();
    second_script.run_starts().await;
    second_script.end(done());
    second_script.run_starts().await;
    assert!(first_script.dropped.load(Ordering::SeqCst));
}

#[test]
fn backoff_doubles_up_to_its_limits() {
    let seconds = |period, failures| backoff(Duration::from_secs(period), failures).as_secs();
    assert_eq!([1, 2, 3, 4, 5, 99].map(|n| seconds(2, n)), [2, 4, 8, 16, 16, 16]);
    assert_eq!([1, 2, 3, 4].map(|n| seconds(20, n)), [20, 40, 60, 60]);
    assert_eq!([1, 2, 99].map(|n| seconds(3600, n)), [3600; 3]);
}

#[test]
fn next_start_counts_from_start_unless_failed() {
    let (period, started) = (Duration::from_secs(10), Instant::now());
    let after = |seconds| started + Duration::from_secs(seconds);
    assert_eq!(next_start(started, after(3), period, 0), after(10));
    assert_eq!(
        next_start(started, after(12), period, 0),
        after(12),
        "a task that runs longer than its period starts again at once"
    );
    assert_eq!(next_start(started, after(3), period, 1), after(13));
}
