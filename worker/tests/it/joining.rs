//! Joining nodes: running attempts are found before anything starts, on real SSH servers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use engine::catalog::OnReturn;
use engine::ids::{NodeId, RunId};
use store::{Connecting, Store};
use tokio::time::sleep;
use worker::Config;

use crate::cluster::bind;
use crate::process::{Running, quick};
use crate::scripts::{appears, dies, is_alive};
use crate::ssh::Bed;

impl Bed {
    async fn until(&self, condition: &'static str) {
        for _ in 0..1_000 {
            if self.cluster.count(condition).await == 1 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the condition did not become true: {condition}");
    }

    /// A worker with continuous health checks.
    fn checking(&self) -> Running {
        Running::start(
            Config { health_check_interval: Duration::from_millis(200), ..self.config() },
            self.cluster.pool(),
        )
    }
}

const URL: &str = "GANTRY_TEST_JOINING_URL";
const FOLDER: &str = "GANTRY_TEST_JOINING_FOLDER";
const SECRETS: &str = "GANTRY_TEST_JOINING_SECRETS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "not a test: runs as a worker process for other tests"]
async fn worker_process() {
    let text = |name: &str| std::env::var(name).ok();
    let (Some(url), Some(folder), Some(secrets)) = (text(URL), text(FOLDER), text(SECRETS)) else {
        return;
    };
    let store = Store::open(&Connecting::to(url)).expect("a valid URL");
    let config = Config { secrets: Some(secrets.into()), ..quick(Path::new(&folder)) };
    worker::run(config, store.pool().clone(), std::future::pending())
        .await
        .expect("the worker runs");
}

const SLEEPS: &str = "#!/bin/sh\necho $$ >ran\nsleep 300\n";

#[tokio::test]
async fn lost_attempts_end_before_new_starts() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("sleeps", SLEEPS, |_| ()).await;
    bed.cluster.commit(&[bind(0, "sleeps")]).await;
    let secrets = bed.testbed.secrets();
    let mut first = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "joining::worker_process", "--ignored", "--nocapture"])
        .env(URL, bed.cluster.db.worker_url())
        .env(FOLDER, bed.cluster.folder())
        .env(SECRETS, &secrets)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program starts");
    let lost = appears(&bed.cluster.nodes[0].root.join("ran")).await;
    first.kill().expect("the test owns it");
    first.wait().expect("the test owns it");
    // The node was unreachable for a while. Its run ended in the database but not on the machine.
    // Nothing else may start meanwhile.
    let node = bed.cluster.nodes[0].id;
    store::runs::set_node_alive(bed.cluster.db.owner(), node, false).await.expect("an answer");
    bed.cluster.sql("UPDATE node SET available = false WHERE transport = 'ssh'").await;
    assert!(is_alive(&lost));

    let worker = bed.checking();
    dies(&lost).await;
    bed.until(
        "node WHERE transport = 'ssh' AND alive AND joined = 'confirmed' AND joined_at IS NOT NULL",
    )
    .await;
    assert_eq!(bed.cluster.runs(0, "sleeps").await.len(), 1, "the step must not start again");
    worker.stop().await;
}

#[tokio::test]
async fn running_attempt_survives_a_survey() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("sleeps", SLEEPS, |_| ()).await;
    bed.cluster.commit(&[bind(0, "sleeps")]).await;
    let worker = bed.checking();
    let pid = appears(&bed.cluster.nodes[0].root.join("ran")).await;
    let run = bed.cluster.running(0, "sleeps").await;
    // A worker must survey the node again.
    bed.cluster.sql("UPDATE node SET joined = 'welcomed' WHERE transport = 'ssh'").await;
    bed.until("node WHERE transport = 'ssh' AND joined = 'confirmed'").await;
    assert!(is_alive(&pid));
    let open: Vec<RunId> = bed
        .cluster
        .runs(0, "sleeps")
        .await
        .iter()
        .filter(|run| run.state == "running")
        .map(|run| RunId(run.id))
        .collect();
    assert_eq!(open, [run]);
    store::runs::cancel_run(bed.cluster.db.owner(), run, "ada").await.expect("a canceled run");
    dies(&pid).await;
    worker.stop().await;
}

#[tokio::test]
async fn rebooted_node_reruns_steps_by_policy() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("writes", "#!/bin/sh\necho once >>ran\n", |_| ()).await;
    let never = |role: &mut engine::catalog::Role| role.run.on_return = OnReturn::Never;
    bed.cluster.add_script_role("formats", "#!/bin/sh\necho once >>formatted\n", never).await;
    bed.cluster.commit(&[bind(0, "formats"), bind(0, "writes").after(0, "formats")]).await;
    let worker = bed.checking();
    bed.cluster.reaches(0, "writes", "active").await;
    bed.until("node WHERE transport = 'ssh' AND length(boot_id) > 10").await;
    // All servers of a testbed share a machine, so change the stored boot id instead.
    bed.cluster.sql("UPDATE node SET boot_id = 'another start' WHERE transport = 'ssh'").await;
    bed.until(
        "node WHERE transport = 'ssh' AND boot_id <> 'another start' AND joined = \
        'confirmed' AND alive",
    )
    .await;
    for _ in 0..1_000 {
        if bed.cluster.runs(0, "writes").await.len() == 2 {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    bed.cluster.reaches(0, "writes", "active").await;
    let ran = fs::read_to_string(bed.cluster.nodes[0].root.join("ran")).expect("a file");
    assert_eq!(ran, "once\nonce\n");
    bed.cluster.reaches(0, "formats", "active").await;
    let formatted =
        fs::read_to_string(bed.cluster.nodes[0].root.join("formatted")).expect("a file");
    assert_eq!(formatted, "once\n", "the role's on-return is never");
    worker.stop().await;
}

/// The default, and a role that runs again although nothing restarted.
#[tokio::test]
async fn returned_node_resumes_at_same_boot_id() {
    let mut bed = Bed::of(1).await;
    let script = "#!/bin/sh\necho \"$GANTRY_ROLE\" >>ran\n";
    bed.cluster.add_script_role("keeps", script, |_| ()).await;
    let always = |role: &mut engine::catalog::Role| role.run.on_return = OnReturn::Always;
    bed.cluster.add_script_role("repeats", script, always).await;
    bed.cluster.commit(&[bind(0, "keeps"), bind(0, "repeats").after(0, "keeps")]).await;
    let worker = bed.checking();
    bed.cluster.reaches(0, "repeats", "active").await;
    bed.until("node WHERE transport = 'ssh' AND length(boot_id) > 10").await;
    bed.testbed.node(0).stop();
    bed.until("node WHERE transport = 'ssh' AND NOT alive").await;
    assert_eq!(
        bed.cluster.state(0, "keeps").await,
        "todo",
        "the step is not ACTIVE while the node is away"
    );
    bed.testbed.node(0).restart().expect("the server restarts");
    bed.until("node WHERE transport = 'ssh' AND alive AND joined = 'confirmed'").await;
    bed.cluster.reaches(0, "keeps", "active").await;
    bed.cluster.reaches(0, "repeats", "active").await;
    let ran = fs::read_to_string(bed.cluster.nodes[0].root.join("ran")).expect("a file");
    assert_eq!(ran, "keeps\nrepeats\nrepeats\n");
    worker.stop().await;
}

#[tokio::test]
async fn unwritable_node_starts_nothing_and_reports_it() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("writes", "#!/bin/sh\necho once >>ran\n", |_| ()).await;
    let root = bed.cluster.nodes[0].root.clone();
    // A file instead of the folder: even root can't write into it.
    fs::write(root.join(".gantry"), "").expect("a writable folder");
    bed.cluster
        .sql(
            "UPDATE node SET alive = false, alive_since = NULL, joined = 'none' WHERE \
        transport = 'ssh'",
        )
        .await;
    bed.cluster.commit(&[bind(0, "writes")]).await;
    let worker = bed.checking();
    bed.until("node WHERE transport = 'ssh' AND alive AND joined = 'welcomed'").await;
    let text = "(SELECT FROM health_check WHERE reached AND detail LIKE '%the runs on the node are \
        unknown%' LIMIT 1) said";
    bed.until(text).await;
    assert_eq!(bed.cluster.state(0, "writes").await, "todo");
    fs::remove_file(root.join(".gantry")).expect("a writable folder");
    bed.cluster.reaches(0, "writes", "active").await;
    worker.stop().await;
}

/// The script of the shipped role.
const SHIPPED: &str = include_str!("../../../barclamps/facts/scripts/facts/10-collect");

#[tokio::test]
async fn facts_role_stores_facts_of_its_node() {
    let mut bed = Bed::of(1).await;
    let script = "#!/bin/sh\necho '{\"facts\": {\"cpu\": {\"cores\": 4}}}' >\"$GANTRY_OUTPUT\"\n";
    bed.cluster.add_script_role("looks", script, |role| role.flags.facts = true).await;
    bed.cluster.add_script_role("writes", script, |_| ()).await;
    let large = "#!/bin/sh\n{ printf '{\"facts\": {\"x\": \"'; head -c 270000 /dev/zero | tr '\\0' y; printf '\"}}'; } >\"$GANTRY_OUTPUT\"\n";
    bed.cluster.add_script_role("large", large, |role| role.flags.facts = true).await;
    bed.cluster.add_script_role("facts", SHIPPED, |role| role.flags.facts = true).await;
    let binds = ["looks", "writes", "large", "facts"].map(|role| bind(0, role));
    bed.cluster.commit(&binds).await;
    let worker = bed.checking();
    for role in ["looks", "writes", "facts"] {
        bed.cluster.reaches(0, role, "active").await;
    }
    bed.cluster.reaches(0, "large", "error").await;
    let reason = bed.cluster.error(0, "large").await.expect("a reason");
    assert!(reason.contains("has 2700") && reason.contains("262144"), "{reason}");
    let run = bed.cluster.runs(0, "looks").await[0].id;
    let node: NodeId = bed.cluster.nodes[0].id;
    let mut on = bed.cluster.server().acquire().await.expect("a connection");
    let facts = store::nodes::facts(&mut on, node).await.expect("facts");
    let found =
        facts.iter().find(|facts| facts.source == "role facts").expect("facts of a shipped role");
    assert!(found.facts["cpu"]["cores"].as_u64().is_some_and(|cores| cores > 0), "{}", found.facts);
    assert!(
        found.facts["memory"]["total_kib"].as_u64().is_some()
            && found.facts["kernel"]["name"] == "Linux"
    );
    assert!(
        found.facts["network"]["lo"].is_object() && found.facts["disks"].is_array(),
        "{}",
        found.facts
    );
    let facts = facts.iter().filter(|facts| facts.source != "role facts");
    let facts: Vec<_> =
        facts.map(|facts| (facts.source.as_str(), facts.facts.to_string(), facts.run)).collect();
    assert_eq!(facts, [("role looks", "{\"cpu\":{\"cores\":4}}".to_owned(), Some(RunId(run)))]);
    worker.stop().await;
}
