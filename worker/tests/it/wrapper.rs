//! The wrapper on the node: its refusals, and how it works without some tools.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use engine::catalog::{JigClass, Role, Script};
use engine::ids::{ActionName, BlueprintNumber, Fqdn, NodeId, RunId, StepId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use store::runs::LogPosition;
use uuid::Uuid;
use worker::jig::Jig;
use worker::jig::script::ScriptJig;
use worker::job::log::{Chunk, Log, LogStore};
use worker::job::{Ended, Job, StopReason, StopSender};
use worker::node::Nodes;
use worker::node::connection::Dialer;
use worker::node::wrapper::{LostRun, ScriptSource, WRAPPER};
use worker::secrets::{SecretFolder, Secrets};

use crate::cluster::role;
use crate::scripts::{appears, dies, start_time};

/// A script source with a single script.
struct OneScript(&'static str);

impl ScriptSource for OneScript {
    fn script(&self, hash: Hash) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        async move {
            let body = self.0.as_bytes().to_vec();
            if Hash::of_bytes(&body) == hash {
                Ok(body)
            } else {
                Err(format!("there is no script {hash}"))
            }
        }
        .boxed()
    }
}

struct DiscardingLog;

impl LogStore for DiscardingLog {
    fn append<'a>(&'a self, _: LogPosition, _: &'a Chunk) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }
}

fn into_nowhere() -> (Log, tokio::task::JoinHandle<()>) {
    Log::into_store(Arc::new(DiscardingLog), Secrets::default(), LogPosition::default())
}

/// A node, and a jig with one script.
struct Bench {
    folder: tempfile::TempDir,
    jig: ScriptJig,
    nodes: Arc<Nodes>,
    script: &'static str,
    step: StepId,
}

impl Bench {
    fn with(script: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (scripts, secrets) = (Arc::new(OneScript(script)), Arc::new(SecretFolder(None)));
        let root = folder.path().join("on-behalf");
        let nodes = Arc::new(Nodes::new(secrets, Dialer::default(), root));
        let jig = ScriptJig::new(scripts, nodes.clone());
        Self { folder, jig, nodes, script, step: StepId(Uuid::new_v4()) }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("node")
    }

    fn job(&self, run: i64, generation: i64, content: &str) -> Job {
        let mut role = role("bench", JigClass::Script);
        role.scripts = vec![Script {
            name: "it.sh".to_owned(),
            hash: Hash::of_bytes(self.script.as_bytes()),
            action: ActionName::run(),
        }];
        role.run.timeout = 60;
        Job {
            run: RunId(run),
            step: self.step,
            action: ActionName::run(),
            epoch: 1,
            generation: BlueprintNumber(generation),
            content: Hash::of_bytes(content.as_bytes()),
            node: NodeId(Uuid::nil()),
            fqdn: Fqdn::parse("n.test.gantry").expect("a name"),
            connection: json!({"transport": "local", "root": self.root()}),
            phantom: false,
            role: Arc::new(role),
            exclusive: true,
            input: json!({}),
            surroundings: json!({}),
        }
    }

    async fn run(&self, job: &Job) -> Ended {
        let (log, _writer) = into_nowhere();
        let (_stopper, stop) = StopSender::new();
        self.jig.run(job, &log, stop).await
    }

    fn ran(&self) -> usize {
        std::fs::read_to_string(self.root().join("ran")).unwrap_or_default().lines().count()
    }
}

const COUNTS: &str = "#!/bin/sh\necho x >>ran\n";

fn refused(ended: Ended, because: &str) {
    match ended {
        Ended::Refused(reason) => assert!(reason.contains(because), "{reason}"),
        other => panic!("expected a refusal because of {because:?}, got {other:?}"),
    }
}

fn went_well(ended: &Ended) {
    assert!(matches!(ended, Ended::Returned(_)), "{ended:?}");
}

#[tokio::test]
async fn node_refuses_outdated_or_contradicting_attempts() {
    let bench = Bench::with(COUNTS);
    went_well(&bench.run(&bench.job(10, 5, "a")).await);
    refused(bench.run(&bench.job(9, 5, "a")).await, "attempt 9 of this step is outdated");
    refused(bench.run(&bench.job(10, 5, "a")).await, "attempt 10 of this step is outdated");
    refused(bench.run(&bench.job(11, 4, "a")).await, "generation 4 of this step is outdated");
    refused(bench.run(&bench.job(12, 5, "b")).await, "other content");
    assert_eq!(bench.ran(), 1);
    went_well(&bench.run(&bench.job(13, 5, "a")).await);
    went_well(&bench.run(&bench.job(14, 6, "b")).await);
    refused(bench.run(&bench.job(15, 5, "a")).await, "generation 5");

    let other_step = Job { step: StepId(Uuid::new_v4()), ..bench.job(13, 1, "c") };
    refused(
        bench.run(&other_step).await,
        "attempt 13 is outdated: this node has started attempt 14",
    );
    let shared = Job { exclusive: false, ..other_step };
    went_well(&bench.run(&shared).await);
    let restored = Job { epoch: 2, ..bench.job(3, 2, "z") };
    went_well(&bench.run(&restored).await);
    refused(bench.run(&bench.job(99, 9, "z")).await, "epoch 1 is over");
    assert_eq!(bench.ran(), 5);
}

#[tokio::test]
async fn damaged_ledger_stops_step_and_names_file() {
    let bench = Bench::with(COUNTS);
    went_well(&bench.run(&bench.job(1, 1, "a")).await);
    let ledger = bench.root().join(".gantry/ledger").join(bench.step.to_string());
    std::fs::write(&ledger, "epoch=1\nattempt=zero\n").expect("a writable file");
    match bench.run(&bench.job(2, 1, "a")).await {
        Ended::Failed { reason, .. } => {
            assert!(reason.contains("damaged") && reason.contains(".gantry/ledger"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.ran(), 1);
}

#[tokio::test]
async fn newer_attempt_ends_the_older_first() {
    let alone = "#!/bin/sh\ncase $(sed 's/.*) //' /proc/$(cat ran)/stat 2>/dev/null) in '' | Z*) \
        ;; *) exit 9 ;; esac\n";
    let bench = Bench::with(alone);
    let slow = Bench::with(STAYS);
    let first = slow.job(1, 1, "a");
    let (log, _writer) = into_nowhere();
    let (_stopper, stop) = StopSender::new();
    let running = slow.jig.run(&first, &log, stop);
    let second = async {
        let pid = appears(&slow.root().join("ran")).await;
        // Another step of the same node. Its run is exclusive, so the previous run must end first.
        let job = Job {
            step: StepId(Uuid::new_v4()),
            connection: first.connection.clone(),
            ..bench.job(2, 1, "b")
        };
        (pid, bench.run(&job).await)
    };
    let (older, (_, newer)) = tokio::join!(running, second);
    went_well(&newer);
    refused(older, "ended by a newer one");
}

/// Ignores SIGTERM.
const STAYS: &str = "#!/bin/sh\necho $$ >ran\ntrap '' TERM\nwhile :; do sleep 1; done\n";

/// After a database restore, attempt numbers recur in a higher epoch.
#[tokio::test]
async fn old_epoch_attempt_spares_its_namesake() {
    let slow = Bench::with(STAYS);
    let alone = "#!/bin/sh\ncase $(sed 's/.*) //' /proc/$(cat ran)/stat 2>/dev/null) in '' | Z*) \
        ;; *) exit 9 ;; esac\n\
                 sleep 1\n[ -s \"$GANTRY_INPUT\" ] || exit 8\necho '{\"by\": \"the later\"}' >\"$GANTRY_OUTPUT\"\n";
    let bench = Bench::with(alone);
    let before = slow.job(5, 1, "a");
    let (log, _writer) = into_nowhere();
    let (_stopper, stop) = StopSender::new();
    let running = slow.jig.run(&before, &log, stop);
    let after = async {
        appears(&slow.root().join("ran")).await;
        let job = bench.job(5, 1, "b");
        bench
            .run(&Job { step: before.step, epoch: 2, connection: before.connection.clone(), ..job })
            .await
    };
    let (older, newer) = tokio::join!(running, after);
    match newer {
        Ended::Returned(object) => assert_eq!(object.get("by"), Some(&json!("the later"))),
        other => panic!("{other:?}"),
    }
    refused(older, "ended by a newer one");
    let left = std::fs::read_dir(slow.root().join(".gantry/run")).expect("a folder").count();
    assert_eq!(left, 0, "no file of both attempts is left");
}

#[tokio::test]
async fn remains_of_old_epoch_are_ended() {
    let bench = Bench::with(STAYS);
    let job = bench.job(5, 1, "a");
    let ending = async {
        let pid = appears(&bench.root().join("ran")).await;
        assert_eq!(
            bench.nodes.running_attempts(&job.connection).await,
            Ok(vec![(RunId(5), bench.step)])
        );
        // The epoch of the attempt is unknown by now.
        bench
            .nodes
            .end_lost_run(&job.connection, bench.step, 2, RunId(5))
            .await
            .expect("an answer");
        dies(&pid).await;
        assert_eq!(bench.nodes.running_attempts(&job.connection).await, Ok(vec![]));
        let left = std::fs::read_dir(bench.root().join(".gantry/run")).expect("a folder").count();
        assert_eq!(left, 0, "no file of the attempt is left");
    };
    let (ended, ()) = tokio::join!(bench.run(&job), ending);
    refused(ended, "ended by a newer one");
}

#[tokio::test]
async fn run_ended_before_start_never_starts() {
    let bench = Bench::with(COUNTS);
    let job = bench.job(7, 1, "a");
    let left =
        bench.nodes.end_lost_run(&job.connection, job.step, 1, job.run).await.expect("an answer");
    assert_eq!(left, LostRun::NeverStarted);
    refused(bench.run(&job).await, "outdated");
    went_well(&bench.run(&bench.job(8, 1, "a")).await);
    let left =
        bench.nodes.end_lost_run(&job.connection, job.step, 1, RunId(8)).await.expect("an answer");
    assert_eq!(left, LostRun::Started);
    assert_eq!(bench.ran(), 1);
}

#[tokio::test]
async fn dropped_run_leaves_no_processes() {
    let bench = Bench::with("#!/bin/sh\necho $$ >ran\nsleep 300\n");
    let job = bench.job(1, 1, "a");
    let pid = tokio::select! {
        ended = bench.run(&job) => panic!("{ended:?}"),
        pid = async { appears(&bench.root().join("ran")).await } => pid,
    };
    dies(&pid).await;
}

/// Number of processes with this word in their arguments.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("a list of processes");
    let arguments =
        entries.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    arguments
        .filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
        .count()
}

#[tokio::test]
async fn timeout_clock_ends_with_its_run() {
    const LIMIT: u32 = 54_321;
    let bench = Bench::with(COUNTS);
    for attempt in 1..=5 {
        let mut job = bench.job(attempt, 1, "a");
        let mut role = Role::clone(&job.role);
        role.run.timeout = LIMIT;
        job.role = Arc::new(role);
        went_well(&bench.run(&job).await);
    }
    for _ in 0..200 {
        if processes_with(&LIMIT.to_string()) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "{} processes still measure the time limit of runs that ended",
        processes_with(&LIMIT.to_string())
    );
}

/// A killed supervisor stays a zombie if its parent never collects it, as in a container without
/// an init process.
#[tokio::test]
async fn timeout_clock_ends_with_its_dead_supervisor() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrapper = folder.path().join("wrapper");
    std::fs::write(&wrapper, WRAPPER).expect("a writable folder");
    let mut supervisor = Command::new("sleep").arg("300").spawn().expect("a process");
    let pid = supervisor.id();
    let mut clock = tokio::process::Command::new("sh")
        .arg(&wrapper)
        .arg(folder.path())
        .args(["clock", "300", &pid.to_string(), &start_time(pid)])
        .kill_on_drop(true)
        .spawn()
        .expect("a shell");
    supervisor.kill().expect("the test owns it");
    let ended = tokio::time::timeout(Duration::from_secs(30), clock.wait()).await;
    supervisor.wait().expect("the test owns it");
    assert!(
        ended.expect("an end without waiting for the zombie").expect("the test owns it").success()
    );
}

/// The process id of a killed wrapper may be reused. The clock must not signal that process.
#[test]
fn timeout_clock_does_not_end_reused_process_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrapper = folder.path().join("wrapper");
    std::fs::write(&wrapper, WRAPPER).expect("a writable folder");
    let woken = |began: &str| {
        let mut other = Command::new("sleep").arg("300").spawn().expect("a process");
        let pid = other.id().to_string();
        let began = match began {
            "its own" => start_time(other.id()),
            other => other.to_owned(),
        };
        let clock = Command::new("sh")
            .arg(&wrapper)
            .arg(folder.path())
            .args(["clock", "0", &pid, &began])
            .status();
        assert!(clock.expect("the task ends").success());
        std::thread::sleep(Duration::from_millis(100));
        let woken = other.try_wait().expect("the test owns it").is_some();
        let _ = other.kill();
        let _ = other.wait();
        woken
    };
    assert!(woken("its own"));
    assert!(!woken("1"));
}

#[tokio::test]
async fn stopped_run_reports_whether_it_started() {
    let bench = Bench::with("#!/bin/sh\necho $$ >ran\nsleep 300\n");
    let job = bench.job(1, 1, "a");
    let (log, _writer) = into_nowhere();
    let (stopper, stop) = StopSender::new();
    let stopping = async {
        appears(&bench.root().join("ran")).await;
        stopper.stop(StopReason::WorkerShutdown);
    };
    let (ended, ()) = tokio::join!(bench.jig.run(&job, &log, stop), stopping);
    assert_eq!(ended, Ended::stopped(StopReason::WorkerShutdown, Some(true)));
}

#[tokio::test]
async fn unknown_transport_is_named() {
    let bench = Bench::with(COUNTS);
    let job = Job { connection: json!({"transport": "pigeon"}), ..bench.job(1, 1, "a") };
    match bench.run(&job).await {
        Ended::Failed { reason, .. } => assert!(reason.contains("pigeon"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
