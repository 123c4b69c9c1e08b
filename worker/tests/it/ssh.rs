//! Scripts on nodes over SSH: real servers, each with its own keys, address and folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use testbed::Testbed;
use worker::Config;

use crate::cluster::{Cluster, bind};
use crate::process::{Running, quick};
use crate::scripts::{appears, dies};

/// A cluster on a testbed, and a worker configuration for it.
pub struct Bed {
    pub testbed: Testbed,
    pub cluster: Cluster,
    folder: TempDir,
}

impl Bed {
    pub async fn of(nodes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let testbed = Testbed::start(folder.path(), &folder.path().join("secrets"), nodes)
            .expect("a testbed");
        Self { cluster: Cluster::over(&testbed).await, testbed, folder }
    }

    pub fn config(&self) -> Config {
        // A long health check interval, so that no node changes its state during a test.
        let interval = Duration::from_secs(3600);
        Config {
            secrets: Some(self.testbed.secrets()),
            health_check_interval: interval,
            ..quick(&self.cluster.folder())
        }
    }

    pub fn worker(&self) -> Running {
        Running::start(self.config(), self.cluster.pool())
    }

    /// Number of sign-ins on a node since its server started.
    fn connections(&self, node: usize) -> usize {
        let log = self.folder.path().join(&self.testbed.nodes()[node].name).join("sshd.log");
        fs::read_to_string(log).expect("a log").matches("Accepted publickey").count()
    }

    async fn fails(&self, node: usize, role: &str) -> String {
        self.cluster.reaches(node, role, "error").await;
        self.cluster.error(node, role).await.expect("a reason")
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

const WRITES: &str = "#!/bin/sh
echo \"$GANTRY_NODE $GANTRY_ROLE $GANTRY_DATA_GREETING\" >>ran
echo 'to standard error' >&2
echo '{\"found\": {\"shell\": \"sh\"}}' >\"$GANTRY_OUTPUT\"
";

#[tokio::test]
async fn scripts_run_over_one_connection_per_node() {
    let mut bed = Bed::of(3).await;
    for role in ["first", "second"] {
        bed.cluster.add_script_role(role, WRITES, |_| ()).await;
    }
    let data = serde_json::json!({"greeting": "it's \"here\" $HOME"});
    for node in 0..3 {
        let first = bind(node, "first").data(data.clone());
        bed.cluster
            .commit(&[first, bind(node, "second").data(data.clone()).after(node, "first")])
            .await;
    }
    let worker = bed.worker();
    for node in 0..3 {
        bed.cluster.reaches(node, "second", "active").await;
        let root = &bed.cluster.nodes[node].root;
        let message = |role: &str| format!("n{node}.test.gantry {role} it's \"here\" $HOME\n");
        assert_eq!(text(&root.join("ran")), message("first") + &message("second"));
        // The second role returns its input.
        assert_eq!(
            bed.cluster.output(node, "first").await,
            Some(serde_json::json!({"found": {"shell": "sh"}}))
        );
        let scripts = fs::read_dir(root.join(".gantry/scripts")).expect("a folder").count();
        assert_eq!(scripts, 1, "the script must be sent once");
        assert_eq!(bed.connections(node), 1);
    }
    let run = bed.cluster.runs(0, "first").await.remove(0);
    assert!(bed.cluster.log(engine::ids::RunId(run.id)).await.contains("to standard error\n"));
    worker.stop().await;
}

#[tokio::test]
async fn aliveness_changes_after_several_health_checks() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("writes", WRITES, |_| ()).await;
    bed.cluster
        .sql(
            "UPDATE node SET alive = false, alive_since = NULL, joined = 'none' WHERE \
        transport = 'ssh'",
        )
        .await;
    bed.cluster.commit(&[bind(0, "writes")]).await;
    let worker = Running::start(
        Config { health_check_interval: Duration::from_millis(200), ..bed.config() },
        bed.cluster.pool(),
    );
    bed.cluster.reaches(0, "writes", "active").await;
    let of_node =
        "node WHERE transport = 'ssh' AND alive AND joined = 'confirmed' AND length(boot_id) > 10";
    assert_eq!(bed.cluster.count(of_node).await, 1);
    let checks = bed.cluster.count("health_check WHERE reached AND address LIKE '127.%'").await;
    assert!(checks >= 1);

    bed.testbed.node(0).stop();
    let until = async |condition: &'static str| {
        for _ in 0..500 {
            if bed.cluster.count(condition).await == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the condition did not become true: {condition}");
    };
    until("node WHERE transport = 'ssh' AND NOT alive").await;
    let failed = bed.cluster.count("health_check WHERE NOT reached").await;
    assert!(
        failed >= i64::from(engine::alive::FAILURE_THRESHOLD),
        "the node is dead after only {failed} health checks"
    );
    let refused = bed
        .cluster
        .count(
            "health_check WHERE NOT reached AND detail LIKE '%Cannot reach the node: \
            127.%refused%'",
        )
        .await;
    assert!(refused >= 1, "the stored health check must have the address and the error");
    bed.testbed.node(0).restart().expect("the server restarts");
    until("node WHERE transport = 'ssh' AND alive").await;
    worker.stop().await;
}

/// Prints numbered lines to both streams for three seconds, without a final newline. Also writes
/// them to a file.
const COUNTS: &str = "#!/bin/sh
say() { printf \"$@\"; printf \"$@\" >>said.out; }
warn() { printf \"$@\" >&2; printf \"$@\" >>said.err; }
n=0
while [ $n -lt 300 ]; do
    n=$((n + 1))
    say 'o %s größer 世界 🚀\\n' $n
    [ $((n % 10)) -ne 0 ] || warn 'e %s – Fehler \\377\\n' $n
    [ $n -ne 50 ] || echo $$ >half
    sleep 0.01
done
say 'o das Ende ∎'
warn 'e das Ende ∎'
";

#[tokio::test]
async fn run_survives_broken_connection_with_complete_log() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("counts", COUNTS, |_| ()).await;
    bed.cluster.commit(&[bind(0, "counts")]).await;
    let worker = bed.worker();
    appears(&bed.cluster.nodes[0].root.join("half")).await;
    bed.testbed.node(0).stop();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    bed.testbed.node(0).restart().expect("the server restarts");
    bed.cluster.reaches(0, "counts", "active").await;
    worker.stop().await;
    let runs = bed.cluster.runs(0, "counts").await;
    assert_eq!(runs.len(), 1, "the run must not start again: {runs:?}");
    let run = engine::ids::RunId(runs[0].id);
    let pieces = store::runs::read_log_range(
        bed.cluster.server(),
        run,
        0,
        2 * worker::job::log::MAX_LOG,
        100_000,
    )
    .await
    .expect("a log");
    let mut log = Vec::new();
    for piece in pieces {
        assert_eq!(piece.at_offset, log.len() as i64, "the chunks of the log must be contiguous");
        log.extend(piece.body);
    }
    // Each stream's bytes are unchanged, except that unfinished lines got a newline.
    let of = |stream: u8| {
        let lines = log.split_inclusive(|byte| *byte == b'\n').filter(|line| line[0] == stream);
        lines.flatten().copied().collect::<Vec<u8>>()
    };
    for (stream, file) in [(b'o', "said.out"), (b'e', "said.err")] {
        let mut text = fs::read(bed.cluster.nodes[0].root.join(file)).expect("the printed text");
        text.push(b'\n');
        assert!(of(stream) == text, "got {} of {} bytes of {file}", of(stream).len(), text.len());
    }
    assert_eq!(of(b'o').len() + of(b'e').len(), log.len(), "the log must contain nothing else");
    assert!(bed.connections(0) >= 1, "the worker must have reconnected");
}

#[tokio::test]
async fn canceled_run_ends_on_its_node() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("sleeps", "#!/bin/sh\necho $$ >ran\nsleep 300\n", |_| ()).await;
    bed.cluster.commit(&[bind(0, "sleeps")]).await;
    let worker = bed.worker();
    let pid = appears(&bed.cluster.nodes[0].root.join("ran")).await;
    let run = bed.cluster.running(0, "sleeps").await;
    store::runs::cancel_run(bed.cluster.db.owner(), run, "ada").await.expect("a canceled run");
    dies(&pid).await;
    worker.stop().await;
}

#[tokio::test]
async fn node_with_other_host_key_is_refused() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("writes", WRITES, |_| ()).await;
    bed.testbed.node(0).stop();
    bed.testbed.node(0).replace_host_key().expect("another key");
    bed.testbed.node(0).restart().expect("the server starts");
    bed.cluster.commit(&[bind(0, "writes")]).await;
    let worker = bed.worker();
    let reason = bed.fails(0, "writes").await;
    assert!(
        reason.contains("Unexpected host key of") && reason.contains("reinstalled"),
        "{reason}"
    );
    assert_eq!(bed.connections(0), 0, "no key must be offered to the unknown server");
    worker.stop().await;
}

#[tokio::test]
async fn connection_errors_name_key_or_address() {
    let mut bed = Bed::of(2).await;
    bed.cluster.add_script_role("writes", WRITES, |_| ()).await;
    fs::write(bed.testbed.secrets().join("testbed/1.pub"), "").expect("a writable file");
    let address = bed.testbed.nodes()[1].address;
    bed.testbed.node(1).stop();
    bed.cluster.commit(&[bind(0, "writes"), bind(1, "writes")]).await;
    let worker = bed.worker();
    let reason = bed.fails(0, "writes").await;
    assert!(reason.contains("rejects user") && reason.contains("key testbed"), "{reason}");
    let reason = bed.fails(1, "writes").await;
    assert!(
        reason.contains(&format!("Cannot reach the node: {address}: "))
            && reason.contains("refused"),
        "{reason}"
    );
    worker.stop().await;
}

#[tokio::test]
async fn invalid_key_secret_is_not_revealed() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("writes", WRITES, |_| ()).await;
    fs::write(bed.testbed.secrets().join("testbed/1"), "hunter2 is not a key\n")
        .expect("a writable file");
    bed.cluster.commit(&[bind(0, "writes")]).await;
    let worker = bed.worker();
    let reason = bed.fails(0, "writes").await;
    assert!(
        reason.contains("Secret testbed version 1 is not an OpenSSH private key")
            && !reason.contains("hunter"),
        "{reason}"
    );
    worker.stop().await;
}

/// More output than any limit, faster than it can be sent.
#[tokio::test]
async fn flood_of_output_is_cut_with_notice() {
    let mut bed = Bed::of(1).await;
    let script = "#!/bin/sh\nyes 'a line of output' | head -c 1000000000\necho done >ran\n";
    bed.cluster.add_script_role("floods", script, |_| ()).await;
    bed.cluster.commit(&[bind(0, "floods")]).await;
    let worker = bed.worker();
    bed.cluster.reaches(0, "floods", "active").await;
    worker.stop().await;
    let run = bed.cluster.runs(0, "floods").await.remove(0);
    let run = engine::ids::RunId(run.id);
    let pieces = store::runs::read_log_range(
        bed.cluster.server(),
        run,
        0,
        2 * worker::job::log::MAX_LOG,
        100_000,
    )
    .await
    .expect("a log");
    let length: u64 = pieces.iter().map(|piece| piece.body.len() as u64).sum();
    assert!(length <= worker::job::log::MAX_LOG + 1_000, "the log has {length} bytes");
    let last =
        String::from_utf8_lossy(&pieces.last().expect("a chunk of the log").body).into_owned();
    assert!(
        last.contains("the rest is not stored")
            || last.contains("more output than this node stores"),
        "{last}"
    );
    let left = bed.cluster.nodes[0].root.join(".gantry/run");
    assert_eq!(
        fs::read_dir(left).expect("a folder").count(),
        0,
        "no file of the run is left on the node"
    );
}
