//! Runs whose worker was lost: the next worker continues them on real SSH servers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use engine::ids::RunId;
use tokio::time::sleep;

use crate::cluster::bind;
use crate::process::{Process, spawn_with};
use crate::scripts::{appears, dies, is_alive};
use crate::ssh::Bed;

/// Waits for the file `go` in the middle, and returns an object.
const WAITS: &str = "#!/bin/sh
echo $$ >>ran
echo 'before, on both streams'
echo 'to standard error' >&2
while [ ! -e go ]; do sleep 0.05; done
echo after
echo '{\"found\": {\"n\": 7}}' >\"$GANTRY_OUTPUT\"
";

impl Bed {
    /// A node with a run in progress, and the process of its worker.
    async fn in_progress(destructive: bool) -> (Self, Process, RunId) {
        let mut bed = Self::of(1).await;
        bed.cluster
            .add_script_role("waits", WAITS, |role| role.flags.destructive = destructive)
            .await;
        bed.cluster.commit(&[bind(0, "waits")]).await;
        let worker = bed.process();
        let script = appears(&bed.root().join("ran")).await;
        assert!(is_alive(&script));
        let run = bed.cluster.running(0, "waits").await;
        bed.reaches("run_log WHERE position('standard error' IN encode(body, 'escape')) > 0").await;
        (bed, worker, run)
    }

    /// A worker process that can be killed.
    fn process(&self) -> Process {
        let (folder, secrets) = (self.cluster.folder(), self.testbed.secrets());
        spawn_with(self.cluster.db.worker_url(), &folder, &secrets)
    }

    fn root(&self) -> &Path {
        &self.cluster.nodes[0].root
    }

    async fn reaches(&self, condition: &'static str) {
        for _ in 0..1_000 {
            if self.cluster.count(condition).await > 0 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the condition did not become true: {condition}");
    }

    /// The script ran once, and its result and whole log were taken.
    async fn ran_once(&self, run: RunId, adoptions: i64) {
        self.cluster.reaches(0, "waits", "active").await;
        let ran = fs::read_to_string(self.root().join("ran")).expect("a file");
        assert_eq!(ran.lines().count(), 1, "{ran}");
        let runs = self.cluster.runs(0, "waits").await;
        assert_eq!(
            (runs.len(), runs[0].id, runs[0].outcome.as_deref()),
            (1, run.0, Some("succeeded"))
        );
        assert_eq!(
            self.cluster.output(0, "waits").await,
            Some(serde_json::json!({"found": {"n": 7}}))
        );
        let log = self.cluster.log(run).await;
        let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("[gantry")).collect();
        let mut first = lines[..lines.len() - 1].to_vec();
        first.sort_unstable();
        assert_eq!(
            (first, lines.last().copied()),
            (vec!["before, on both streams", "to standard error"], Some("after"),),
            "{log}"
        );
        let note = "[gantry: the worker was lost, another one continues the run]";
        assert_eq!(log.matches(note).count() as i64, adoptions, "{log}");
        assert_eq!(self.cluster.count("run WHERE adoptions > 0").await, 1);
        let left = fs::read_dir(self.root().join(".gantry/run")).expect("a folder").count();
        assert_eq!(left, 0, "no file of the run is left on the node");
    }
}

#[tokio::test]
async fn run_of_killed_workers_continues_to_its_end() {
    let (bed, mut first, run) = Bed::in_progress(false).await;
    first.kill();
    let mut second = bed.process();
    let noted = "run_log WHERE position('another one continues' IN encode(body, 'escape')) > 0";
    bed.reaches(noted).await;
    second.kill();
    let third = bed.worker();
    bed.reaches("run WHERE adoptions = 2").await;
    fs::write(bed.root().join("go"), "").expect("a writable folder");
    bed.ran_once(run, 2).await;
    third.stop().await;
}

/// A destructive step would need a person if its run were lost.
#[tokio::test]
async fn result_of_run_without_worker_is_adopted() {
    let (bed, mut first, run) = Bed::in_progress(true).await;
    first.kill();
    fs::write(bed.root().join("go"), "").expect("a writable folder");
    let attempts = bed.root().join(".gantry/run");
    for tries in 0.. {
        let mut folders = fs::read_dir(&attempts).expect("a folder");
        if folders.any(|folder| folder.expect("a folder").path().join("ended").exists()) {
            break;
        }
        assert!(tries < 500, "the script must end");
        sleep(Duration::from_millis(20)).await;
    }
    let second = bed.worker();
    bed.ran_once(run, 1).await;
    second.stop().await;
}

#[tokio::test]
async fn stopped_worker_leaves_its_run_to_the_next() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("waits", WAITS, |_| ()).await;
    bed.cluster.commit(&[bind(0, "waits")]).await;
    let first = bed.worker();
    let script = appears(&bed.root().join("ran")).await;
    let run = bed.cluster.running(0, "waits").await;
    first.stop().await;
    assert!(is_alive(&script), "the script must continue after the grace period");
    assert_eq!(bed.cluster.count("run WHERE state = 'running' AND lease_until <= now()").await, 1);
    let second = bed.worker();
    bed.reaches("run WHERE adoptions = 1").await;
    fs::write(bed.root().join("go"), "").expect("a writable folder");
    bed.ran_once(run, 1).await;
    second.stop().await;
}

/// A step whose run was ended on the node runs again.
#[tokio::test]
async fn missing_attempt_is_lost() {
    let (bed, mut first, run) = Bed::in_progress(false).await;
    first.kill();
    let script = fs::read_to_string(bed.root().join("ran")).expect("a file");
    let attempts = bed.root().join(".gantry/run");
    fs::rename(&attempts, bed.root().join("elsewhere")).expect("a writable folder");
    let second = bed.worker();
    bed.reaches("run WHERE outcome = 'lost' AND error LIKE 'The worker was lost%'").await;
    fs::write(bed.root().join("go"), "").expect("a writable folder");
    bed.cluster.reaches(0, "waits", "active").await;
    let runs = bed.cluster.runs(0, "waits").await;
    assert!(
        runs.len() == 2 && runs[0].id == run.0 && runs[1].outcome.as_deref() == Some("succeeded")
    );
    assert_ne!(script, fs::read_to_string(bed.root().join("ran")).expect("a file"));
    second.stop().await;
}

/// The database itself gives a run to another worker only after its lease.
#[tokio::test]
async fn run_with_valid_lease_is_not_adopted() {
    let (bed, mut first, run) = Bed::in_progress(false).await;
    let other = crate::queue::confirmed(&bed.cluster, 1).await;
    let minute = Duration::from_secs(60);
    let adopt = async || store::runs::adopt_run(bed.cluster.pool(), run, other, minute).await;
    assert_eq!(adopt().await.expect("an answer"), None);
    let by_hand = async |assignments: &str| {
        let sql = format!("UPDATE run SET {assignments} WHERE id = {run}");
        let result = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(bed.cluster.pool()).await;
        result.expect_err("a refusal").to_string()
    };
    let to_other = format!("worker_id = '{other}', adoptions = adoptions + 1");
    let error = by_hand(&to_other).await;
    assert!(error.contains("the lease of its worker is valid"), "{error}");
    first.kill();
    bed.reaches("run WHERE state = 'running' AND lease_until < now()").await;
    for (assignments, expected) in [
        (format!("worker_id = '{other}'"), "the adoption is not counted"),
        ("adoptions = adoptions + 1".to_owned(), "its worker has it already"),
        (format!("{to_other}, started_at = now()"), "it started only once"),
    ] {
        let error = by_hand(&assignments).await;
        assert!(error.contains(expected), "{error}");
    }
    bed.cluster
        .sql(
            "UPDATE run SET cancel_requested = true, error = 'canceled by ada' WHERE state \
        = 'running'",
        )
        .await;
    assert_eq!(adopt().await.expect("an answer"), None, "a canceled run must not be adopted");
    let error = by_hand(&to_other).await;
    assert!(error.contains("its cancellation was requested"), "{error}");
    bed.cluster
        .sql("UPDATE run SET cancel_requested = false, adoptions = 5 WHERE state = 'running'")
        .await;
    assert_eq!(
        adopt().await.expect("an answer"),
        None,
        "a run is adopted a limited number of times"
    );
    // No worker ends the script, so the test does.
    let script = fs::read_to_string(bed.root().join("ran")).expect("a file");
    fs::write(bed.root().join("go"), "").expect("a writable folder");
    dies(&script).await;
}
