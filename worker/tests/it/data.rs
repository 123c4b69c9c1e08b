//! What runs are given, what they give back, and what is kept of it: on folders of this machine and over SSH.

use std::fs;
use std::time::Duration;

use engine::catalog::JigClass;
use engine::data::kept;
use engine::ids::RunId;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Testbed;
use worker::Config;

use crate::cluster::{Cluster, RunRow, bind, role};
use crate::process::{Running, quick};
use crate::scripts::appears;

/// A cluster whose nodes are reached by SSH, and secrets of its own.
struct Bed {
    cluster: Cluster,
    testbed: Testbed,
    _folder: TempDir,
}

impl Bed {
    async fn of(nodes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let testbed = Testbed::start(folder.path(), &folder.path().join("secrets"), nodes).expect("a testbed");
        Self { cluster: Cluster::over(&testbed).await, testbed, _folder: folder }
    }

    fn secret(&self, name: &str, text: &str) {
        let folder = self.testbed.secrets().join(name);
        fs::create_dir_all(&folder).expect("the folder is ours");
        fs::write(folder.join("1"), text).expect("the folder is ours");
    }

    fn worker(&self) -> Running {
        let looks = Duration::from_secs(3600);
        let config = Config { secrets: Some(self.testbed.secrets()), looks, ..quick(&self.cluster.folder()) };
        Running::start(config, self.cluster.pool())
    }
}

fn outcomes(runs: &[RunRow]) -> Vec<(Option<&str>, Value)> {
    runs.iter().map(|run| (run.outcome.as_deref(), run.result.clone().unwrap_or(Value::Null))).collect()
}

#[tokio::test]
async fn what_an_attempt_returned_is_kept_also_when_it_failed() {
    let mut cluster = Cluster::of(1).await;
    let script = r#"#!/bin/sh
echo x >>tries
tries=$(wc -l <tries | tr -d ' ')
echo "{\"volume\": \"v-$tries\"}" >"$GANTRY_OUTPUT"
[ "$tries" -ne 2 ] || echo 'no json' >"$GANTRY_OUTPUT"
[ "$tries" -ge 3 ] || { echo "no luck $tries" >&2; exit 1; }
"#;
    let again = |role: &mut engine::catalog::Role| (role.run.retries, role.run.backoff) = (5, 0);
    cluster.add_script_role("volume", script, again).await;
    cluster.commit(&[bind(0, "volume")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "volume", "active").await;
    worker.stop().await;
    let runs = cluster.runs(0, "volume").await;
    let expected = [
        (Some("failed"), json!({"volume": "v-1"})),
        (Some("failed"), Value::Null),
        (Some("succeeded"), json!({"volume": "v-3"})),
    ];
    assert_eq!(outcomes(&runs), expected);
    assert_eq!(runs[1].error.as_deref(), Some("no luck 2"), "the reason is the script's own");
    let log = cluster.log(RunId(runs[1].id)).await;
    assert!(log.contains("what it returned before it failed is not kept") && log.contains("no json"), "{log}");
    assert_eq!(cluster.wall(0, "volume").await, Some(json!({"volume": "v-3"})), "only a success leaves a wall");
    assert_eq!(cluster.count("step WHERE wall_run = (SELECT max(id) FROM run)").await, 1);
}

#[tokio::test]
async fn of_a_step_that_fails_for_ever_the_newest_results_are_kept() {
    let mut cluster = Cluster::of(1).await;
    let tries = u32::try_from(kept::OF_STEP).expect("a small number") + 2;
    let mut fails = role("fails", JigClass::Test);
    (fails.run.retries, fails.run.backoff) = (tries, 0);
    cluster.add_role(fails).await;
    cluster.commit(&[bind(0, "fails").data(json!({"test": {"fail": "never", "returns": {"found": 1}}}))]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "fails", "error").await;
    worker.stop().await;
    let runs = cluster.runs(0, "fails").await;
    assert!(runs.len() > kept::OF_STEP + 1, "{} attempts", runs.len());
    let kept_of: Vec<bool> = runs.iter().map(|run| run.result.is_some()).collect();
    let expected: Vec<bool> = (0..runs.len()).map(|n| n >= runs.len() - kept::OF_STEP).collect();
    assert_eq!(kept_of, expected);
    assert_eq!(
        cluster.count("run WHERE result IS NULL AND result_bytes > 0").await,
        3,
        "and it is known that there was one"
    );
}

#[tokio::test]
async fn a_cancelled_run_has_returned_what_it_wrote_by_then() {
    let mut cluster = Cluster::of(1).await;
    let script = "#!/bin/sh\necho '{\"port\": 7}' >\"$GANTRY_OUTPUT\"\necho up >started\nsleep 300\n";
    cluster.add_script_role("serves", script, |_| ()).await;
    cluster.commit(&[bind(0, "serves")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    appears(&cluster.nodes[0].root.join("started")).await;
    let run = cluster.running(0, "serves").await;
    store::running::cancel_run(cluster.pool(), run, "ada").await.expect("to cancel");
    cluster.reaches(0, "serves", "error").await;
    worker.stop().await;
    assert_eq!(outcomes(&cluster.runs(0, "serves").await), [(Some("cancelled"), json!({"port": 7}))]);
}

#[tokio::test]
async fn a_result_that_can_not_be_stored_is_refused_with_its_place() {
    let mut cluster = Cluster::of(1).await;
    let script = "#!/bin/sh\nprintf '{\"a\": {\"b\": \"x\\\\u0000y\"}}' >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("odd", script, |_| ()).await;
    cluster.commit(&[bind(0, "odd")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "odd", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "odd").await.expect("a reason");
    assert!(error.contains("can't be kept") && error.contains("/a/b") && error.contains("U+0000"), "{error}");
}

const HALVES: &str = r#"#!/bin/sh
whole=$GANTRY_DATA_DB_PASSWORD
half=$(printf %s "$whole" | cut -c1-9)
rest=$(printf %s "$whole" | cut -c10-)
printf 'first: %s' "$half"; sleep 1; printf '%s.\n' "$rest"
printf 'to the other: %s' "$half" >&2; sleep 1; printf '%s.\n' "$rest" >&2
# Many times over every border that there may be: of a packet, of a buffer, of a chunk.
n=0
while [ $n -lt 3000 ]; do printf '%s%s ' "$whole" "$n"; n=$((n + 1)); done
echo
cat "$GANTRY_INPUT"
printf '{"db": {"url": "db://u:%s@h", "%s": 1}}' "$whole" "$whole" >"$GANTRY_OUTPUT"
"#;

#[tokio::test]
async fn a_secret_in_two_halves_stays_hidden_the_whole_way_over_ssh() {
    let mut bed = Bed::of(1).await;
    let secret = "hunter22-and-more/é'";
    bed.secret("db/admin", secret);
    bed.cluster.add_script_role("tells", HALVES, |_| ()).await;
    let fails = format!("{HALVES}\nprintf 'no: %s' \"$whole\" >&2\nexit 3\n");
    bed.cluster.add_script_role("fails", &fails, |_| ()).await;
    let no_json = "#!/bin/sh\nprintf '%100s%s' x \"$GANTRY_DATA_DB_PASSWORD\" >\"$GANTRY_OUTPUT\"\n";
    bed.cluster.add_script_role("no-json", no_json, |_| ()).await;
    let deep = "#!/bin/sh\nprintf '{\"%s\": \"\\\\u0000\"}' hunter22-and-more/é >\"$GANTRY_OUTPUT\"\n";
    bed.cluster.add_script_role("odd-key", deep, |_| ()).await;
    bed.secret("db/key", "hunter22-and-more/é");
    let data =
        json!({"db": {"password": {"$secret": "db/admin", "version": 1}, "key": {"$secret": "db/key", "version": 1}}});
    for name in ["tells", "fails", "no-json", "odd-key"] {
        bed.cluster.commit(&[bind(0, name).data(data.clone())]).await;
    }
    let worker = bed.worker();
    bed.cluster.reaches_within(0, "tells", "active", Duration::from_secs(60)).await;
    for name in ["fails", "no-json", "odd-key"] {
        bed.cluster.reaches_within(0, name, "error", Duration::from_secs(60)).await;
    }
    worker.stop().await;

    let tells = bed.cluster.runs(0, "tells").await.remove(0);
    let log = bed.cluster.log(RunId(tells.id)).await;
    assert!(log.contains("first: (secret).\n") && log.contains("to the other: (secret)"), "{}", &log[..200]);
    assert!(log.contains("(secret)0 (secret)1 ") && log.contains("(secret)2999 \n"));
    assert_eq!(tells.result, Some(json!({"db": {"url": "db://u:(secret)@h", "(secret)": 1}})));
    let fails = bed.cluster.runs(0, "fails").await.remove(0);
    assert_eq!(fails.error.as_deref(), Some("no: (secret)"));
    assert_eq!(fails.result.expect("kept")["db"]["url"], "db://u:(secret)@h");
    let error = bed.cluster.error(0, "no-json").await.expect("a reason");
    assert!(error.contains("begins with: x(secret)"), "{error}");
    let error = bed.cluster.error(0, "odd-key").await.expect("a reason");
    assert!(error.contains("can't be kept") && error.contains("/(secret)"), "{error}");

    // Nothing that the database has, of whatever table, has any half of it beyond what a name has by chance.
    for table in ["run", "run_log", "step", "event", "audit", "noderole"] {
        let query = sqlx::AssertSqlSafe(match table {
            "run_log" => "SELECT count(*) FROM run_log WHERE position('and-more'::bytea IN body) > 0".to_owned(),
            table => format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%and-more%'"),
        });
        let found: i64 = sqlx::query_scalar(query).fetch_one(bed.cluster.pool()).await.expect("a count");
        assert_eq!(found, 0, "{table}");
    }
}
