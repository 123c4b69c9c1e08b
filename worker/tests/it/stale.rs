//! Steps whose input from other noderoles changes run again, are reported or stay, by role.

use std::fs;

use engine::anneal::RerunReason;
use engine::catalog::{JigClass, OnInput};
use serde_json::json;

use crate::cluster::{Cluster, bind, role};
use crate::process::{Running, quick};
use crate::ssh::Bed;

const APP: &str = "#!/bin/sh
echo \"app $GANTRY_DATA_PORT\" >>ran
[ ! -e version ] || printf '{\"version\": \"%s\"}' \"$(cat version)\" >\"$GANTRY_OUTPUT\"
";

const PROXY: &str = "#!/bin/sh
echo \"proxy $GANTRY_DATA_PORT $GANTRY_DATA_VERSION\" >>ran
";

/// The lines that the scripts wrote on a node.
fn ran(cluster: &Cluster, node: usize) -> Vec<String> {
    let text = fs::read_to_string(cluster.nodes[node].root.join("ran")).unwrap_or_default();
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Waits until no input is left to compare and no step is due.
async fn settled(cluster: &Cluster) {
    let open = "SELECT count(*) FROM step WHERE state NOT IN ('active', 'gone')
        OR (state = 'active' AND input_version <> input_checked)";
    for _ in 0..300 {
        let open: i64 = sqlx::query_scalar(open).fetch_one(cluster.pool()).await.expect("a number");
        if open == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("steps are still due, or inputs are not compared");
}

async fn stale(cluster: &Cluster, node: usize, role: &str) -> bool {
    sqlx::query_scalar("SELECT stale FROM step WHERE id = $1")
        .bind(cluster.step(node, role).0)
        .fetch_one(cluster.pool())
        .await
        .expect("the step")
}

async fn app_and_proxy(policy: OnInput) -> Cluster {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("app", APP, |_| ()).await;
    cluster.add_script_role("proxy", PROXY, |role| role.run.on_input = policy).await;
    let port = json!({"port": 1});
    cluster.commit(&[bind(0, "app").data(port), bind(0, "proxy").after(0, "app")]).await;
    cluster
}

#[tokio::test]
async fn changed_data_of_parent_reruns_child_over_ssh() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_script_role("app", APP, |_| ()).await;
    bed.cluster.add_script_role("proxy", PROXY, |_| ()).await;
    let port = |port| json!({"port": port});
    bed.cluster.commit(&[bind(0, "app").data(port(1)), bind(0, "proxy").after(0, "app")]).await;
    let worker = bed.worker();
    bed.cluster.reaches(0, "proxy", "active").await;
    settled(&bed.cluster).await;
    bed.cluster.commit(&[bind(0, "app").data(port(2))]).await;
    settled(&bed.cluster).await;
    assert_eq!(ran(&bed.cluster, 0), ["app 1", "proxy 1", "app 2", "proxy 2"]);
    worker.stop().await;
}

#[tokio::test]
async fn output_reruns_child_only_if_it_changes() {
    let cluster = app_and_proxy(OnInput::Rerun).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "proxy", "active").await;
    settled(&cluster).await;
    let again = || async {
        store::runs::rerun_step(cluster.pool(), cluster.step(0, "app"), RerunReason::Drift)
            .await
            .expect("a re-run");
        settled(&cluster).await;
    };
    again().await;
    assert_eq!(
        ran(&cluster, 0),
        ["app 1", "proxy 1", "app 1"],
        "the child must not run again if the output is the same"
    );
    fs::write(cluster.nodes[0].root.join("version"), "v2").expect("a writable folder");
    again().await;
    assert_eq!(ran(&cluster, 0)[3..], ["app 1", "proxy 1 v2"]);
    worker.stop().await;
}

#[tokio::test]
async fn members_of_barrier_rerun_its_children() {
    let mut cluster = Cluster::of(3).await;
    cluster.add_script_role("app", APP, |_| ()).await;
    cluster.add_script_role("proxy", PROXY, |_| ()).await;
    let mut barrier = role("apps", JigClass::Noop);
    barrier.flags.milestone = true;
    cluster.add_role(barrier).await;
    let barrier = || bind(2, "apps").after(0, "app");
    cluster
        .commit(&[
            bind(0, "app"),
            bind(1, "app"),
            barrier().after(1, "app"),
            bind(2, "proxy").after(2, "apps"),
        ])
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(2, "proxy", "active").await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 2).len(), 1);
    cluster.commit(&[barrier()]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 2).len(), 2, "the child must run again because a member left");
    cluster.commit(&[barrier().after(1, "app")]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 2).len(), 3, "the child must run again because a member joined");
    cluster.commit(&[bind(1, "app").data(json!({"port": 5}))]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 2).len(), 4, "the child must run again because a member changed");
    assert_eq!(ran(&cluster, 0).len(), 1, "the member that reads no data must not run again");
    worker.stop().await;
}

#[tokio::test]
async fn declared_value_of_a_grandparent_reruns_step() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("app", APP, |_| ()).await;
    cluster.add_script_role("middle", "#!/bin/sh\necho middle >>ran\n", |_| ()).await;
    let reads = |role: &mut engine::catalog::Role| role.run.reads = vec![vec!["port".into()]];
    cluster.add_script_role("proxy", PROXY, reads).await;
    let app = |port: i64| bind(0, "app").data(json!({"port": port}));
    let rest = [bind(0, "middle").after(0, "app"), bind(0, "proxy").after(0, "middle")];
    let [middle, proxy] = rest;
    cluster.commit(&[app(1), middle, proxy]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "proxy", "active").await;
    settled(&cluster).await;
    cluster.commit(&[app(2)]).await;
    settled(&cluster).await;
    assert_eq!(
        ran(&cluster, 0),
        ["app 1", "middle", "proxy 1", "app 2", "middle", "proxy 2"],
        "the output of the middle step is the same, but the proxy reads the port of the app"
    );
    worker.stop().await;
}

/// The step between them stays ACTIVE, so only the grandparent holds the change back.
#[tokio::test]
async fn changed_data_of_a_grandparent_reaches_step_after_its_run() {
    let mut cluster = Cluster::of(1).await;
    let slow =
        APP.replacen("#!/bin/sh\n", "#!/bin/sh\n[ \"$GANTRY_DATA_PORT\" = 1 ] || sleep 2\n", 1);
    cluster.add_script_role("app", &slow, |_| ()).await;
    let nothing = |role: &mut engine::catalog::Role| role.run.reads = vec![vec!["none".into()]];
    cluster.add_script_role("middle", "#!/bin/sh\necho middle >>ran\n", nothing).await;
    let port = |role: &mut engine::catalog::Role| role.run.reads = vec![vec!["port".into()]];
    cluster.add_script_role("proxy", PROXY, port).await;
    let app = |port: i64| bind(0, "app").data(json!({"port": port}));
    let (middle, proxy) = (bind(0, "middle").after(0, "app"), bind(0, "proxy").after(0, "middle"));
    cluster.commit(&[app(1), middle, proxy]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "proxy", "active").await;
    settled(&cluster).await;
    cluster.commit(&[app(2)]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 0), ["app 1", "middle", "proxy 1", "app 2", "proxy 2"]);
    worker.stop().await;
}

/// More steps than one batch holds wait for an ancestor that runs. They must not hold back others.
#[tokio::test]
async fn waiting_steps_do_not_delay_other_steps() {
    let mut cluster = Cluster::of(2).await;
    let slow = "#!/bin/sh\n[ \"$GANTRY_DATA_PORT\" = 1 ] || sleep 20\n";
    cluster.add_script_role("app", slow, |_| ()).await;
    let nothing = |role: &mut engine::catalog::Role| role.run.reads = vec![vec!["none".into()]];
    cluster.add_script_role("middle", "#!/bin/sh\ntrue\n", nothing).await;
    let leaves: Vec<&'static str> =
        (0..101).map(|n| &*Box::leak(format!("leaf{n}").into_boxed_str())).collect();
    for name in &leaves {
        let mut leaf = role(name, JigClass::Noop);
        leaf.run.reads = vec![vec!["port".into()]];
        cluster.add_role(leaf).await;
    }
    // The proxy has the highest rank, so it is the last of all steps to compare.
    for name in ["one", "two", "three"] {
        cluster.add_script_role(name, "#!/bin/sh\ntrue\n", |_| ()).await;
    }
    cluster.add_script_role("proxy", PROXY, |_| ()).await;
    let port = |port: i64| json!({"port": port});
    let mut binds = vec![bind(0, "app").data(port(1)), bind(0, "middle").after(0, "app")];
    binds.extend(leaves.iter().map(|name| bind(0, name).after(0, "middle")));
    binds.extend([bind(1, "one"), bind(1, "two").after(1, "one")]);
    binds.push(bind(1, "three").after(1, "two").data(port(1)));
    binds.push(bind(1, "proxy").after(1, "three"));
    cluster.commit(&binds).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(1, "proxy", "active").await;
    settled(&cluster).await;
    cluster.commit(&[bind(0, "app").data(port(2))]).await;
    cluster.reaches(0, "app", "transition").await;
    let waiting = "step WHERE state = 'active' AND input_version <> input_checked";
    assert!(cluster.count(waiting).await > 100, "the leaves wait for the app");
    cluster.commit(&[bind(1, "three").after(1, "two").data(port(2))]).await;
    for _ in 0..200 {
        if ran(&cluster, 1).len() == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(ran(&cluster, 1), ["proxy 1", "proxy 2"]);
    assert_eq!(cluster.state(0, "app").await, "transition", "the leaves still wait");
    worker.stop().await;
}

/// A step whose input can no longer be computed must fail with the reason, not stay applied.
#[tokio::test]
async fn step_whose_input_becomes_too_large_runs_again_and_fails() {
    let mut cluster = Cluster::of(1).await;
    // Together, the outputs of these roles exceed the limit of an input (4 MiB), but only later.
    let large: Vec<&'static str> =
        (0..17).map(|n| &*Box::leak(format!("r{n}").into_boxed_str())).collect();
    for name in &large {
        let script = format!(
            "#!/bin/sh\n[ \"$GANTRY_DATA_PORT\" = 2 ] || exit 0\n{{ printf '{{\"{name}\": \"'; \
             head -c 260000 /dev/zero | tr '\\0' x; printf '\"}}'; }} >\"$GANTRY_OUTPUT\"\n"
        );
        cluster.add_script_role(name, &script, |_| ()).await;
    }
    cluster.add_script_role("proxy", PROXY, |_| ()).await;
    cluster.add_script_role("leaf", "#!/bin/sh\ntrue\n", |_| ()).await;
    let port = |name: &'static str, port: i64| bind(0, name).data(json!({"port": port}));
    let mut binds: Vec<_> = large.iter().map(|name| port(name, 1)).collect();
    binds.push(large.iter().fold(bind(0, "proxy"), |bind, name| bind.after(0, name)));
    binds.push(bind(0, "leaf").after(0, "proxy"));
    cluster.commit(&binds).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "leaf", "active").await;
    settled(&cluster).await;
    let changed: Vec<_> = large.iter().map(|name| port(name, 2)).collect();
    cluster.commit(&changed).await;
    cluster.reaches(0, "proxy", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "proxy").await.expect("a reason");
    assert!(error.contains("Cannot compute the input of the run"), "{error}");
}

/// An input that cannot be read (here, because a row was edited by hand) is tried again by each
/// sweep. Its children must not be compared each time.
#[tokio::test]
async fn unreadable_input_is_not_passed_on() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("app", APP, |_| ()).await;
    cluster.add_script_role("proxy", PROXY, |_| ()).await;
    cluster.add_script_role("leaf", "#!/bin/sh\ntrue\n", |_| ()).await;
    let (proxy, leaf) = (bind(0, "proxy").after(0, "app"), bind(0, "leaf").after(0, "proxy"));
    cluster.commit(&[bind(0, "app"), proxy, leaf]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "leaf", "active").await;
    settled(&cluster).await;
    let leaf = cluster.step(0, "leaf").0;
    let version = || async {
        sqlx::query_scalar::<_, i32>("SELECT input_version FROM step WHERE id = $1")
            .bind(leaf)
            .fetch_one(cluster.pool())
            .await
            .expect("the step")
    };
    let before = version().await;
    cluster
        .sql(
            "ALTER TABLE noderole DISABLE TRIGGER USER;
             ALTER TABLE step DISABLE TRIGGER USER;
             UPDATE step SET input_version = input_version + 1
               WHERE noderole_id = (SELECT id FROM noderole WHERE role = 'proxy');
             UPDATE noderole SET role = 'No name' WHERE role = 'proxy';",
        )
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    worker.stop().await;
    assert_eq!(version().await, before);
}

#[tokio::test]
async fn report_policy_marks_step_stale_until_it_runs() {
    let mut cluster = app_and_proxy(OnInput::Report).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "proxy", "active").await;
    cluster.commit(&[bind(0, "app").data(json!({"port": 2}))]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 0), ["app 1", "proxy 1", "app 2"]);
    assert!(stale(&cluster, 0, "proxy").await);
    let mut connection = cluster.server().acquire().await.expect("a connection");
    let counts =
        store::runs::deployment_step_counts(&mut connection, cluster.system).await.expect("counts");
    assert_eq!((counts.active, counts.stale, counts.comparing), (2, 1, 0));
    store::runs::rerun_step(cluster.pool(), cluster.step(0, "proxy"), RerunReason::Data)
        .await
        .expect("a re-run");
    settled(&cluster).await;
    assert!(!stale(&cluster, 0, "proxy").await);
    assert_eq!(ran(&cluster, 0).last().map(String::as_str), Some("proxy 2"));
    worker.stop().await;
}

#[tokio::test]
async fn ignore_policy_keeps_result_without_report() {
    let mut cluster = app_and_proxy(OnInput::Ignore).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "proxy", "active").await;
    cluster.commit(&[bind(0, "app").data(json!({"port": 2}))]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 0), ["app 1", "proxy 1", "app 2"]);
    assert!(!stale(&cluster, 0, "proxy").await);
    worker.stop().await;
}

#[tokio::test]
async fn destructive_child_is_reported_and_never_repeated() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("app", APP, |_| ()).await;
    cluster.add_script_role("wipe", PROXY, |role| role.flags.destructive = true).await;
    cluster.commit(&[bind(0, "app"), bind(0, "wipe").after(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "wipe", "active").await;
    cluster.commit(&[bind(0, "app").data(json!({"port": 2}))]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 0), ["app", "proxy", "app 2"]);
    assert!(stale(&cluster, 0, "wipe").await);
    worker.stop().await;
}

#[tokio::test]
async fn declared_reads_limit_what_reruns_child() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_script_role("app", APP, |_| ()).await;
    let reads = |role: &mut engine::catalog::Role| role.run.reads = vec![vec!["port".into()]];
    cluster.add_script_role("proxy", PROXY, reads).await;
    let app = |port: i64, name: &str| bind(0, "app").data(json!({"port": port, "name": name}));
    cluster.commit(&[app(1, "a"), bind(0, "proxy").after(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "proxy", "active").await;
    cluster.commit(&[app(1, "b")]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 0), ["app 1", "proxy 1", "app 1"]);
    cluster.commit(&[app(2, "b")]).await;
    settled(&cluster).await;
    assert_eq!(ran(&cluster, 0)[3..], ["app 2", "proxy 2"]);
    worker.stop().await;
}
