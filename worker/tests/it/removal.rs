//! Removal steps: `remove` runs on the node before its noderole is gone.

use std::fs;
use std::path::Path;

use engine::ids::RunId;
use serde_json::json;

use crate::cluster::{Cluster, bind};
use crate::process::{Running, quick};
use crate::ssh::Bed;

const RUN: &str = "#!/bin/sh
echo \"run $GANTRY_ROLE\" >>ran
echo '{\"port\": 7}' >\"$GANTRY_OUTPUT\"
";

const REMOVE: &str = "#!/bin/sh
echo \"remove $GANTRY_ROLE $GANTRY_DATA_GREETING\" >>ran
echo 'from remove'
";

/// Fails until the file `may` exists.
const STUBBORN: &str = "#!/bin/sh
[ -e may ] || { echo 'not yet' >&2; exit 3; }
echo removed >>ran
";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

async fn runs_of_removal(cluster: &Cluster, node: usize, role: &str) -> Vec<(i64, Option<String>)> {
    sqlx::query_as("SELECT id, outcome FROM run WHERE step_id = $1 ORDER BY id")
        .bind(cluster.removal(node, role).0)
        .fetch_all(cluster.pool())
        .await
        .expect("runs")
}

#[tokio::test]
async fn unbound_noderoles_run_remove_over_ssh() {
    let mut bed = Bed::of(1).await;
    bed.cluster.add_removable_role("base", RUN, REMOVE).await;
    bed.cluster.add_script_role("plain", RUN, |_| ()).await;
    bed.cluster.add_removable_role("app", RUN, REMOVE).await;
    let greeting = json!({"greeting": "hello"});
    bed.cluster
        .commit(&[
            bind(0, "base").data(greeting.clone()),
            bind(0, "plain").after(0, "base"),
            bind(0, "app").data(greeting).after(0, "plain"),
        ])
        .await;
    let worker = bed.worker();
    bed.cluster.reaches(0, "app", "active").await;
    let removed = bed.cluster.unbind(&[(0, "base"), (0, "plain"), (0, "app")]).await;
    bed.cluster.removal_reaches(0, "base", "active").await;
    let root = &bed.cluster.nodes[0].root;
    assert_eq!(
        text(&root.join("ran")),
        "run base\nrun plain\nrun app\nremove app hello\nremove base hello\n",
        "noderoles must be removed before their parents, also across a noderole without remove"
    );
    assert_eq!(
        bed.cluster.removal_state(0, "plain").await,
        None,
        "a role without remove must have no removal"
    );
    for role in ["base", "plain", "app"] {
        assert_eq!(bed.cluster.state(0, role).await, "gone");
    }
    let runs = runs_of_removal(&bed.cluster, 0, "app").await;
    assert_eq!(runs.iter().map(|(_, o)| o.as_deref()).collect::<Vec<_>>(), [Some("succeeded")]);
    assert!(bed.cluster.log(RunId(runs[0].0)).await.contains("from remove"));
    let generation: i64 = sqlx::query_scalar("SELECT generation FROM run WHERE id = $1")
        .bind(runs[0].0)
        .fetch_one(bed.cluster.pool())
        .await
        .expect("the run");
    assert_eq!(generation, removed.0, "the generation must be that of the approved removal");
    worker.stop().await;
}

#[tokio::test]
async fn failed_remove_is_retried_and_blocks_parent() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_removable_role("base", RUN, REMOVE).await;
    cluster.add_removable_role("app", RUN, STUBBORN).await;
    cluster.commit(&[bind(0, "base"), bind(0, "app").after(0, "base")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "app", "active").await;
    // Two commits: the order also holds for a removal that is not done yet.
    cluster.unbind(&[(0, "app")]).await;
    cluster.removal_reaches(0, "app", "error").await;
    cluster.unbind(&[(0, "base")]).await;
    let (state, _) = cluster.removal_state(0, "base").await.expect("a removal");
    assert_eq!(state, "blocked", "the parent must wait for the removal of its child");
    let (_, error) = cluster.removal_state(0, "app").await.expect("a removal");
    let error = error.expect("a reason");
    assert_eq!(error, "not yet", "the error must be the last line of the script");
    let root = cluster.nodes[0].root.clone();
    fs::write(root.join("may"), "").expect("a writable folder");
    store::runs::retry_step(cluster.db.owner(), cluster.removal(0, "app"), "bo")
        .await
        .expect("a retry");
    cluster.removal_reaches(0, "base", "active").await;
    assert_eq!(text(&root.join("ran")), "run base\nrun app\nremoved\nremove base \n");
    worker.stop().await;
}

#[tokio::test]
async fn noderole_without_runs_is_removed_immediately() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_removable_role("base", RUN, REMOVE).await;
    cluster.commit(&[bind(0, "base")]).await;
    cluster.unbind(&[(0, "base")]).await;
    assert_eq!(cluster.removal_state(0, "base").await, None);
    assert_eq!(cluster.state(0, "base").await, "gone");
}

#[tokio::test]
async fn bound_again_noderole_drops_its_removal() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_removable_role("app", RUN, STUBBORN).await;
    cluster.commit(&[bind(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "app", "active").await;
    cluster.unbind(&[(0, "app")]).await;
    cluster.removal_reaches(0, "app", "error").await;
    cluster.commit(&[bind(0, "app")]).await;
    cluster.removal_reaches(0, "app", "gone").await;
    cluster.reaches(0, "app", "active").await;
    let root = cluster.nodes[0].root.clone();
    assert_eq!(text(&root.join("ran")), "run app\nrun app\n");
    fs::write(root.join("may"), "").expect("a writable folder");
    cluster.unbind(&[(0, "app")]).await;
    cluster.removal_reaches(0, "app", "active").await;
    assert_eq!(text(&root.join("ran")), "run app\nrun app\nremoved\n");
    worker.stop().await;
}

/// Only the target that removes a noderole allows its removal, with the content from before.
#[tokio::test]
async fn removal_with_other_content_is_refused() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_removable_role("base", RUN, REMOVE).await;
    cluster.commit(&[bind(0, "base")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "base", "active").await;
    worker.stop().await;
    cluster.unbind(&[(0, "base")]).await;
    cluster
        .sql(
            "ALTER TABLE step DISABLE TRIGGER USER;
              UPDATE step SET content_hash = sha256('other') WHERE action = 'remove';
              ALTER TABLE step ENABLE TRIGGER USER",
        )
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.removal_reaches(0, "base", "error").await;
    let (_, error) = cluster.removal_state(0, "base").await.expect("a removal");
    let error = error.expect("a reason");
    assert!(error.contains("does not belong to the base that blueprint 3 removes"), "{error}");
    assert!(!text(&cluster.nodes[0].root.join("ran")).contains("remove"));
    worker.stop().await;
}
