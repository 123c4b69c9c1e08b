//! Scripts on nodes: the contract, and its failures.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use engine::ids::RunId;
use serde_json::json;
use tokio::time::sleep;

use crate::cluster::{Cluster, FOR_SYSTEM, bind, write_secret};
use crate::process::{Running, quick, spawn};

/// Waits until a file exists and returns its content.
pub async fn appears(path: &Path) -> String {
    for _ in 0..1_500 {
        if let Ok(text) = std::fs::read_to_string(path)
            && !text.is_empty()
        {
            return text;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("{} does not appear", path.display());
}

/// Whether a process runs. A zombie does not count.
pub fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| {
        !matches!(stat.rsplit_once(") ").map(|(_, rest)| &rest[..1]), Some("Z" | "X"))
    })
}

/// The start time of a running process, as the wrapper records it.
pub fn start_time(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running process");
    let fields = stat.rsplit(") ").next().expect("the fields after the name");
    fields.split(' ').nth(19).expect("a start time").to_owned()
}

pub async fn dies(pid: &str) {
    for _ in 0..500 {
        if !is_alive(pid) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("process {pid} is still alive");
}

#[tokio::test]
async fn script_gets_environment_and_returns_output() {
    let mut cluster = Cluster::of(1).await;
    let script = r#"#!/bin/sh
set -eu
[ "$PWD" = "$GANTRY_ROOT" ]
[ -z "${DATABASE_URL:-}" ]
echo "$GANTRY_NODE $GANTRY_ROLE $GANTRY_DATA_DEMO_PORT $GANTRY_DATA_THE_NAME"
echo "to standard error" >&2
grep -q '"port":8080' "$GANTRY_INPUT"
echo "$GANTRY_RUN" >ran
printf '{"seen": "%s", "demo": {"port": 8080}}' "$GANTRY_DATA_DEMO_PORT" >"$GANTRY_OUTPUT"
"#;
    cluster.add_script_role("demo", script, |_| ()).await;
    cluster
        .commit(&[bind(0, "demo").data(json!({"demo": {"port": 8080}, "the-name": "it's"}))])
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "demo", "active").await;
    worker.stop().await;

    let run = cluster.runs(0, "demo").await[0].clone();
    assert_eq!(cluster.output(0, "demo").await, Some(json!({"seen": "8080"})));
    assert_eq!(run.result, Some(json!({"seen": "8080", "demo": {"port": 8080}})));
    let log = cluster.log(RunId(run.id)).await;
    assert!(log.contains("n0.test.gantry demo 8080 it's\n"), "{log}");
    assert!(log.contains("to standard error\n"), "{log}");
    assert_eq!(
        cluster.count("run WHERE log_bytes = (SELECT sum(length(body)) FROM run_log)").await,
        1
    );
    let root = &cluster.nodes[0].root;
    assert_eq!(
        std::fs::read_to_string(root.join("ran")).expect("the script ran").trim(),
        run.id.to_string()
    );
    let left = std::fs::read_dir(root.join(".gantry/run")).expect("the folder").count();
    assert_eq!(left, 0, "the input must not stay on the node");
}

#[tokio::test]
async fn script_failure_has_one_line_reason() {
    let mut cluster = Cluster::of(4).await;
    let failing = "#!/bin/sh\necho first >&2\necho 'no such disk: sdx' >&2\necho >&2\nexit 3\n";
    cluster.add_script_role("failing", failing, |_| ()).await;
    let silent = "#!/bin/sh\nexit 7\n";
    cluster.add_script_role("silent", silent, |_| ()).await;
    let no_json = "#!/bin/sh\necho all fine >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("no-json", no_json, |_| ()).await;
    let list = "#!/bin/sh\necho '[1]' >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("list", list, |_| ()).await;
    cluster
        .commit(&[bind(0, "failing"), bind(1, "silent"), bind(2, "no-json"), bind(3, "list")])
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    for (node, role, reason) in [
        (0, "failing", "no such disk: sdx"),
        (1, "silent", "silent.sh ended with exit code 7"),
        (2, "no-json", "begins with: all fine"),
        (3, "list", "not an object. It begins with: [1]"),
    ] {
        cluster.reaches(node, role, "error").await;
        let error = cluster.error(node, role).await.expect("a reason");
        assert!(error.contains(reason), "{role}: {error}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn scripts_run_in_order_until_first_failure() {
    let mut cluster = Cluster::of(1).await;
    let one = "#!/bin/sh\necho one >>order\n";
    let two = "#!/bin/sh\necho two >>order\n[ -e may-go-on ]\n";
    let mut last = None;
    cluster.add_script_role("two", two, |role| last = Some(role.scripts[0].clone())).await;
    let two = last.take().expect("the script");
    cluster
        .add_script_role("both", one, |role| {
            role.scripts = vec![role.scripts[0].clone(), two.clone(), role.scripts[0].clone()]
        })
        .await;
    cluster.commit(&[bind(0, "both")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "both", "error").await;
    let root = cluster.nodes[0].root.clone();
    assert_eq!(std::fs::read_to_string(root.join("order")).expect("the script ran"), "one\ntwo\n");
    std::fs::write(root.join("may-go-on"), "").expect("a writable folder");
    store::runs::retry_step(cluster.db.owner(), cluster.step(0, "both"), "bo")
        .await
        .expect("a retry");
    cluster.reaches(0, "both", "active").await;
    assert_eq!(
        std::fs::read_to_string(root.join("order")).expect("the script ran"),
        "one\ntwo\none\ntwo\none\n"
    );
    worker.stop().await;
}

/// Writes its process id and that of a child to files, then sleeps.
const LONG: &str = r#"#!/bin/sh
sleep 300 &
echo $! >child
setsid sh -c 'echo $$ >service; exec sleep 300' >/dev/null 2>&1 &
while [ ! -s service ]; do sleep 0.02; done
echo $$ >leader
echo started
sleep 300
"#;

fn end_service(root: &Path) {
    let pid = std::fs::read_to_string(root.join("service")).expect("the service was started");
    assert!(is_alive(&pid), "a service must outlive its run");
    let pid = nix::unistd::Pid::from_raw(pid.trim().parse().expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("the test owns it");
}

#[tokio::test]
async fn timed_out_script_ends_with_its_children() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("long", LONG, |role| role.run.timeout = 1).await;
    cluster.commit(&[bind(0, "long")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "long", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "long").await.expect("a reason");
    assert!(error.contains("longer than 1 seconds"), "{error}");
    let root = &cluster.nodes[0].root;
    dies(&std::fs::read_to_string(root.join("leader")).expect("the script ran")).await;
    dies(&std::fs::read_to_string(root.join("child")).expect("the script ran")).await;
    end_service(root);
}

#[tokio::test]
async fn canceled_run_ends_and_names_the_user() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("long", LONG, |_| ()).await;
    cluster.commit(&[bind(0, "long")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    let root = cluster.nodes[0].root.clone();
    let leader = appears(&root.join("leader")).await;
    let run = cluster.running(0, "long").await;
    store::runs::cancel_run(cluster.db.owner(), run, "bo").await.expect("an open run");
    cluster.reaches(0, "long", "error").await;
    assert_eq!(cluster.error(0, "long").await.as_deref(), Some("canceled by bo"));
    assert!(!is_alive(&leader), "the run must end before its step");
    let row = cluster.runs(0, "long").await[0].clone();
    assert_eq!(row.outcome.as_deref(), Some("canceled"));
    assert_eq!(row.error.as_deref(), Some("canceled by bo"));
    assert!(
        store::runs::cancel_run(cluster.db.owner(), run, "bo").await.is_err(),
        "a run that has ended cannot be canceled"
    );
    end_service(&root);
    worker.stop().await;
}

#[tokio::test]
async fn stopping_worker_returns_runs_after_grace_period() {
    let mut cluster = Cluster::of(2).await;
    let quick_one = "#!/bin/sh\necho $$ >leader\nsleep 0.6\n";
    cluster.add_script_role("quick", quick_one, |_| ()).await;
    let long = "#!/bin/sh\necho $$ >>leader\n[ $(wc -l <leader) = 2 ] || sleep 300\n";
    cluster.add_script_role("long", long, |role| role.run.backoff = 0).await;
    cluster.commit(&[bind(0, "quick"), bind(1, "long")]).await;
    // A long lease. On a busy machine, a short lease could expire and the run would not be returned
    // to the queue.
    let (grace_period, lease) = (Duration::from_secs(3), Duration::from_secs(60));
    let config = worker::Config { grace_period, lease, ..quick(&cluster.folder()) };
    let worker = Running::start(config, cluster.pool());
    appears(&cluster.nodes[0].root.join("leader")).await;
    let leader = appears(&cluster.nodes[1].root.join("leader")).await;
    worker.stop().await;
    assert_eq!(
        cluster.state(0, "quick").await,
        "active",
        "the run must end within the grace period"
    );
    assert_eq!(cluster.state(1, "long").await, "todo");
    assert!(!is_alive(&leader));
    assert_eq!(cluster.count("run WHERE ended_at IS NULL").await, 0);

    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(1, "long", "active").await;
    worker.stop().await;
}

/// Fails if it runs twice at once: the first one to create the file owns it.
const ALONE: &str = r#"#!/bin/sh
set -C
if ! (echo $$ >alone) 2>/dev/null; then
    case $(sed 's/.*) //' "/proc/$(cat alone)/stat" 2>/dev/null) in
    '' | Z* | X*) ;;
    *)
        echo "runs twice" >>twice
        exit 1
        ;;
    esac
    set +C
    echo $$ >alone
fi
echo $$ >>starts
trap '' TERM
[ "$(wc -l <starts)" -ge 3 ] && exit 0
sleep 300 & wait
"#;

/// As if its workers had been lost too often, so that a run is lost with its worker.
async fn no_adoption(cluster: &Cluster) {
    cluster.sql("UPDATE run SET adoptions = 5 WHERE state = 'running'").await;
}

#[tokio::test]
async fn killed_workers_never_run_a_step_twice() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("alone", ALONE, |role| role.run.backoff = 0).await;
    cluster.commit(&[bind(0, "alone")]).await;
    let root = cluster.nodes[0].root.clone();
    for lives in 1..=2 {
        let mut worker = spawn(cluster.db.worker_url(), &cluster.folder());
        for tries in 0.. {
            let starts = std::fs::read_to_string(root.join("starts")).unwrap_or_default();
            if starts.lines().count() == lives {
                break;
            }
            assert!(
                tries < 1_500,
                "run {lives} did not start: {:?}",
                cluster.runs(0, "alone").await
            );
            sleep(Duration::from_millis(20)).await;
        }
        worker.kill();
        let starts = std::fs::read_to_string(root.join("starts")).expect("the script started");
        let last = starts.lines().last().expect("a line");
        assert!(is_alive(last), "the script must continue without its worker");
        no_adoption(&cluster).await;
    }
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "alone", "active").await;
    worker.stop().await;
    assert!(!root.join("twice").exists());
    let starts = std::fs::read_to_string(root.join("starts")).expect("the script started");
    assert_eq!(starts.lines().count(), 3);
    let outcomes: Vec<_> =
        cluster.runs(0, "alone").await.into_iter().filter_map(|run| run.outcome).collect();
    assert_eq!(outcomes, ["lost", "lost", "succeeded"]);
}

#[tokio::test]
async fn lost_destructive_run_repeats_only_if_unstarted() {
    let mut cluster = Cluster::of(2).await;
    let script = "#!/bin/sh\necho $$ >>starts\nsleep 300\n";
    cluster.add_script_role("wipe", script, |role| role.flags.destructive = true).await;
    cluster.commit(&[bind(0, "wipe")]).await;
    let root = cluster.nodes[0].root.clone();
    let mut first = spawn(cluster.db.worker_url(), &cluster.folder());
    let leader = appears(&root.join("starts")).await;
    first.kill();
    no_adoption(&cluster).await;
    let second = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "wipe", "error").await;
    dies(&leader).await;
    second.stop().await;
    let error = cluster.error(0, "wipe").await.expect("a reason");
    assert!(error.contains("destructive"), "{error}");
    assert_eq!(
        std::fs::read_to_string(root.join("starts")).expect("the script started").lines().count(),
        1
    );

    // For the other node, a worker leases the run and dies before it reaches the node.
    cluster.commit(&[bind(1, "wipe")]).await;
    let limits = engine::anneal::Limits::default();
    let dead = crate::queue::confirmed(&cluster, 1).await;
    let claimed = store::runs::claim_runs(cluster.pool(), limits).await.expect("a claim");
    assert_eq!(claimed.runs.len(), 1);
    let second_long = Duration::from_secs(1);
    let leased = store::runs::lease_runs(cluster.pool(), dead, &["script"], 1, second_long)
        .await
        .expect("a lease");
    assert_eq!(leased.len(), 1);
    let third = Running::start(quick(&cluster.folder()), cluster.pool());
    appears(&cluster.nodes[1].root.join("starts")).await;
    let runs = cluster.runs(1, "wipe").await;
    assert_eq!(
        runs[0].outcome.as_deref(),
        Some("unstarted"),
        "the ledger must prove that the run did not start"
    );
    third.stop().await;
}

#[tokio::test]
async fn scripts_imported_after_approval_are_not_run() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("right", "#!/bin/sh\necho approved >>ran\n", |_| ()).await;
    cluster.commit(&[bind(0, "right")]).await;
    // The same role with other scripts, which nothing uses.
    cluster.add_script_role("right", "#!/bin/sh\necho imported later >>ran\n", |_| ()).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "right", "active").await;
    cluster.add_script_role("right", "#!/bin/sh\necho imported between runs >>ran\n", |_| ()).await;
    store::runs::rerun_step(
        cluster.pool(),
        cluster.step(0, "right"),
        engine::anneal::RerunReason::Drift,
    )
    .await
    .expect("a re-run");
    cluster.reaches(0, "right", "active").await;
    worker.stop().await;
    let ran = std::fs::read_to_string(cluster.nodes[0].root.join("ran")).expect("the script ran");
    assert_eq!(ran, "approved\napproved\n");
}

#[tokio::test]
async fn staged_scripts_are_sent_once_and_verified() {
    let mut cluster = Cluster::of(1).await;
    let script = "#!/bin/sh\necho right >>ran\n";
    cluster.add_script_role("right", script, |_| ()).await;
    cluster.commit(&[bind(0, "right")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "right", "active").await;
    let root = cluster.nodes[0].root.clone();
    let staged = || {
        let folders = [".gantry/scripts", ".gantry/bin"]
            .map(|folder| std::fs::read_dir(root.join(folder)).expect("a folder"));
        folders
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("an entry").path())
            .collect::<Vec<_>>()
    };
    let inodes =
        || staged().iter().map(|path| path.metadata().expect("a file").ino()).collect::<Vec<_>>();
    let first = inodes();
    let again = async || {
        let step = cluster.step(0, "right");
        store::runs::rerun_step(cluster.pool(), step, engine::anneal::RerunReason::Drift)
            .await
            .expect("a re-run");
        cluster.reaches(0, "right", "active").await;
    };
    again().await;
    assert_eq!(inodes(), first, "a script on the node must not be sent again");
    for path in staged() {
        std::fs::write(&path, "#!/bin/sh\necho wrong >>ran\n").expect("a writable file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("a writable file");
    }
    again().await;
    worker.stop().await;
    assert_eq!(
        std::fs::read_to_string(root.join("ran")).expect("the script ran"),
        "right\nright\nright\n"
    );
}

/// Otherwise an attacker on one node could get all secrets by naming them in a result.
#[tokio::test]
async fn secret_reference_in_result_is_removed() {
    let mut cluster = Cluster::of(1).await;
    let asks = "#!/bin/sh\nprintf '{\"x\": {\"$secret\": \"deploy/ssh\", \"version\": 1}}' \
        >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("asks", asks, |_| ()).await;
    cluster.add_script_role("next", "#!/bin/sh\ncat \"$GANTRY_INPUT\" >seen\n", |_| ()).await;
    write_secret(&cluster.folder().join("secrets"), "deploy/ssh", "hunter22wxyz\n", FOR_SYSTEM);
    cluster.commit(&[bind(0, "asks"), bind(0, "next").after(0, "asks")]).await;
    let config = worker::Config {
        secrets: Some(cluster.folder().join("secrets")),
        ..quick(&cluster.folder())
    };
    let worker = Running::start(config, cluster.pool());
    cluster.reaches(0, "next", "active").await;
    worker.stop().await;
    assert_eq!(cluster.output(0, "asks").await, Some(json!({"x": "(secret)"})));
    assert_eq!(cluster.runs(0, "asks").await[0].result, Some(json!({"x": "(secret)"})));
    let seen: serde_json::Value = serde_json::from_slice(
        &std::fs::read(cluster.nodes[0].root.join("seen")).expect("the script ran"),
    )
    .expect("JSON");
    assert_eq!(seen["x"], "(secret)");
}

/// Many documents that are small on their own exceed the limit together.
#[tokio::test]
async fn oversized_run_input_is_rejected() {
    let mut cluster = Cluster::of(1).await;
    let names: Vec<&'static str> =
        (0..17).map(|n| &*Box::leak(format!("r{n}").into_boxed_str())).collect();
    for name in &names {
        let script = format!(
            "#!/bin/sh\n{{ printf '{{\"{name}\": \"'; head -c 260000 /dev/zero | tr '\\0' x; \
             printf '\"}}'; }} >\"$GANTRY_OUTPUT\"\n"
        );
        cluster.add_script_role(name, &script, |_| ()).await;
    }
    cluster.add_script_role("all", "#!/bin/sh\ntouch ran\n", |_| ()).await;
    let mut binds: Vec<_> = names.iter().map(|name| bind(0, name)).collect();
    binds.push(names.iter().fold(bind(0, "all"), |bind, name| bind.after(0, name)));
    cluster.commit(&binds).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "all", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "all").await.expect("a reason");
    assert!(
        error.contains("Cannot compute the input of the run")
            && error.contains("the limit is 4194304"),
        "{error}"
    );
    assert!(!cluster.nodes[0].root.join("ran").exists());
}

/// The database can't store NUL. A reason that can't be stored would hide that the run may be
/// retried.
#[tokio::test]
async fn failure_reason_with_nul_is_stored() {
    let mut cluster = Cluster::of(1).await;
    let script =
        "#!/bin/sh\n[ -e tried ] && exit 0\ntouch tried\nprintf 'half\\0way\\n' >&2\nexit 3\n";
    cluster
        .add_script_role("app", script, |role| {
            role.run.retries = 1;
            role.run.backoff = 0;
        })
        .await;
    cluster.commit(&[bind(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "app", "active").await;
    worker.stop().await;
    let runs = cluster.runs(0, "app").await;
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].error.as_deref(), Some("half\u{fffd}way"));
}

/// Returns the failure reason of a run whose data names a secret that it may not use.
async fn refused_use(name: &str, descriptor: Option<&str>) -> String {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("db", "#!/bin/sh\ncat \"$GANTRY_INPUT\" >seen\n", |_| ()).await;
    let secrets = cluster.folder().join("secrets");
    write_secret(&secrets, name, "hunter22wxyz\n", descriptor.unwrap_or_default());
    if descriptor.is_none() {
        std::fs::remove_file(secrets.join(name).join("secret.toml")).expect("a writable file");
    }
    cluster.commit(&[bind(0, "db").data(json!({"key": {"$secret": name, "version": 1}}))]).await;
    let config = worker::Config { secrets: Some(secrets), ..quick(&cluster.folder()) };
    let worker = Running::start(config, cluster.pool());
    cluster.reaches(0, "db", "error").await;
    worker.stop().await;
    assert!(!cluster.nodes[0].root.join("seen").exists(), "the script must not start");
    let error = cluster.error(0, "db").await.expect("a reason");
    assert!(
        error.contains(&format!("Secret {name} version 1")) && error.contains("system"),
        "{error}"
    );
    assert!(!error.contains("hunter22"), "{error}");
    error
}

#[tokio::test]
async fn node_key_in_data_is_refused() {
    let error = refused_use("deploy/ssh", Some("kind = \"node_key\"\n")).await;
    assert!(error.contains("declares a node key, which runs never receive"), "{error}");
}

#[tokio::test]
async fn secret_of_other_deployment_is_refused() {
    let error =
        refused_use("db/admin", Some("kind = \"data\"\ndeployments = [\"web\", \"edge\"]\n")).await;
    assert!(
        error.contains("allows edge, web") && error.contains("add \"system\" to deployments"),
        "{error}"
    );
}

#[tokio::test]
async fn secret_without_descriptor_is_refused() {
    let error = refused_use("db/admin", None).await;
    assert!(error.contains("secrets/db/admin/secret.toml does not exist"), "{error}");
    assert!(error.contains(r#"write kind = "data" and deployments = ["system"]"#), "{error}");
}

/// If a parent's data names a secret for the parent alone, its children must neither get the secret
/// nor fail.
#[tokio::test]
async fn denied_secret_of_parent_stays_a_reference() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("db", "#!/bin/sh\n", |_| ()).await;
    cluster.add_script_role("app", "#!/bin/sh\ncat \"$GANTRY_INPUT\" >seen\n", |_| ()).await;
    let secrets = cluster.folder().join("secrets");
    write_secret(&secrets, "db/admin", "hunter22wxyz\n", FOR_SYSTEM);
    let reference = json!({"$secret": "db/admin", "version": 1});
    cluster.commit(&[bind(0, "db").data(json!({"key": reference.clone()}))]).await;
    let config = worker::Config { secrets: Some(secrets.clone()), ..quick(&cluster.folder()) };
    let worker = Running::start(config, cluster.pool());
    cluster.reaches(0, "db", "active").await;
    write_secret(&secrets, "db/admin", "hunter22wxyz\n", "kind = \"node_key\"\n");
    cluster.commit(&[bind(0, "app").after(0, "db")]).await;
    cluster.reaches(0, "app", "active").await;
    worker.stop().await;
    let seen = std::fs::read(cluster.nodes[0].root.join("seen")).expect("the script ran");
    let seen: serde_json::Value = serde_json::from_slice(&seen).expect("JSON");
    assert_eq!(seen["key"], reference);
    let run = cluster.runs(0, "app").await[0].clone();
    let log = cluster.log(RunId(run.id)).await;
    assert!(
        log.contains("in the data of another noderole is not resolved: Secret db/admin version 1"),
        "{log}"
    );
}

#[tokio::test]
async fn secrets_reach_only_the_script() {
    let mut cluster = Cluster::of(1).await;
    let script = r#"#!/bin/sh
printf 'half of it: %s' "${GANTRY_DATA_DB_PASSWORD%????}"; sleep 0.3; echo "${GANTRY_DATA_DB_PASSWORD#????????}"
echo "$GANTRY_DATA_DB_PASSWORD" >seen
printf '{"url": "db://u:%s@h", "db": {"password": "%s"}}' "$GANTRY_DATA_DB_PASSWORD" "$GANTRY_DATA_DB_PASSWORD" >"$GANTRY_OUTPUT"
"#;
    cluster.add_script_role("db", script, |_| ()).await;
    write_secret(&cluster.folder().join("secrets"), "db/admin", "of before\n", FOR_SYSTEM);
    std::fs::write(cluster.folder().join("secrets/db/admin/3"), "hunter22wxyz\n")
        .expect("a writable folder");
    let data = json!({"db": {"password": {"$secret": "db/admin", "version": 3}}});
    cluster.commit(&[bind(0, "db").data(data.clone())]).await;
    let config = worker::Config {
        secrets: Some(cluster.folder().join("secrets")),
        ..quick(&cluster.folder())
    };
    let worker = Running::start(config, cluster.pool());
    cluster.reaches(0, "db", "active").await;
    worker.stop().await;
    let seen = std::fs::read_to_string(cluster.nodes[0].root.join("seen")).expect("the script ran");
    assert_eq!(seen, "hunter22wxyz\n");
    let run = cluster.runs(0, "db").await[0].clone();
    let log = cluster.log(RunId(run.id)).await;
    assert_eq!(log, "half of it: (secret)\n");
    assert_eq!(run.input.expect("a stored input")["data"], data);
    assert_eq!(cluster.output(0, "db").await, Some(json!({"url": "db://u:(secret)@h"})));
    assert_eq!(run.result.expect("a stored result")["db"]["password"], "(secret)");
}
