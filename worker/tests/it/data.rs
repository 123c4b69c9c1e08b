//! Input, results and stored data of runs, on local folders and over SSH.

use std::fs;
use std::time::Duration;

use engine::catalog::JigClass;
use engine::data::retention;
use engine::ids::RunId;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Testbed;
use worker::Config;

use crate::cluster::{Cluster, FOR_SYSTEM, RunRow, bind, role, write_secret};
use crate::process::{Running, quick};
use crate::scripts::appears;

/// A cluster with nodes over SSH and its own secrets.
struct Bed {
    cluster: Cluster,
    testbed: Testbed,
    _folder: TempDir,
}

impl Bed {
    async fn of(nodes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let testbed = Testbed::start(folder.path(), &folder.path().join("secrets"), nodes)
            .expect("a testbed");
        Self { cluster: Cluster::over(&testbed).await, testbed, _folder: folder }
    }

    fn secret(&self, name: &str, text: &str) {
        write_secret(&self.testbed.secrets(), name, text, FOR_SYSTEM);
    }

    fn worker(&self) -> Running {
        let interval = Duration::from_secs(3600);
        let config = Config {
            secrets: Some(self.testbed.secrets()),
            health_check_interval: interval,
            ..quick(&self.cluster.folder())
        };
        Running::start(config, self.cluster.pool())
    }
}

fn outcomes(runs: &[RunRow]) -> Vec<(Option<&str>, Value)> {
    runs.iter()
        .map(|run| (run.outcome.as_deref(), run.result.clone().unwrap_or(Value::Null)))
        .collect()
}

#[tokio::test]
async fn result_of_failed_attempt_is_stored() {
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
    assert_eq!(runs[1].error.as_deref(), Some("no luck 2"), "the error is that of the script");
    let log = cluster.log(RunId(runs[1].id)).await;
    assert!(log.contains("the partial result is not stored") && log.contains("no json"), "{log}");
    assert_eq!(
        cluster.output(0, "volume").await,
        Some(json!({"volume": "v-3"})),
        "only a successful run changes the output"
    );
    assert_eq!(cluster.count("step WHERE output_run = (SELECT max(id) FROM run)").await, 1);
}

#[tokio::test]
async fn only_newest_results_of_failing_step_are_stored() {
    let mut cluster = Cluster::of(1).await;
    let tries = u32::try_from(retention::MAX_RESULTS_PER_STEP).expect("a small number") + 2;
    let mut fails = role("fails", JigClass::Test);
    (fails.run.retries, fails.run.backoff) = (tries, 0);
    cluster.add_role(fails).await;
    cluster
        .commit(&[
            bind(0, "fails").data(json!({"test": {"fail": "never", "returns": {"found": 1}}}))
        ])
        .await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "fails", "error").await;
    worker.stop().await;
    let runs = cluster.runs(0, "fails").await;
    assert!(
        runs.len() > retention::MAX_RESULTS_PER_STEP + 1,
        "only {} attempts were made",
        runs.len()
    );
    let kept_of: Vec<bool> = runs.iter().map(|run| run.result.is_some()).collect();
    let expected: Vec<bool> =
        (0..runs.len()).map(|n| n >= runs.len() - retention::MAX_RESULTS_PER_STEP).collect();
    assert_eq!(kept_of, expected);
    assert_eq!(
        cluster.count("run WHERE result IS NULL AND result_bytes > 0").await,
        3,
        "the sizes of the three deleted results must stay known"
    );
}

#[tokio::test]
async fn canceled_run_stores_its_partial_result() {
    let mut cluster = Cluster::of(1).await;
    let script =
        "#!/bin/sh\necho '{\"port\": 7}' >\"$GANTRY_OUTPUT\"\necho up >started\nsleep 300\n";
    cluster.add_script_role("serves", script, |_| ()).await;
    cluster.commit(&[bind(0, "serves")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    appears(&cluster.nodes[0].root.join("started")).await;
    let run = cluster.running(0, "serves").await;
    store::runs::cancel_run(cluster.db.owner(), run, "ada").await.expect("a canceled run");
    cluster.reaches(0, "serves", "error").await;
    worker.stop().await;
    assert_eq!(
        outcomes(&cluster.runs(0, "serves").await),
        [(Some("canceled"), json!({"port": 7}))]
    );
}

#[tokio::test]
async fn unstorable_result_is_rejected_with_its_pointer() {
    let mut cluster = Cluster::of(1).await;
    let script = "#!/bin/sh\nprintf '{\"a\": {\"b\": \"x\\\\u0000y\"}}' >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("odd", script, |_| ()).await;
    cluster.commit(&[bind(0, "odd")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "odd", "error").await;
    worker.stop().await;
    let error = cluster.error(0, "odd").await.expect("a reason");
    assert!(
        error.contains("Cannot store the result")
            && error.contains("/a/b")
            && error.contains("U+0000"),
        "{error}"
    );
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
async fn split_secret_stays_masked_over_ssh() {
    let mut bed = Bed::of(1).await;
    let secret = "hunter22-and-more/é'";
    bed.secret("db/admin", secret);
    bed.cluster.add_script_role("tells", HALVES, |_| ()).await;
    let fails = format!("{HALVES}\nprintf 'no: %s' \"$whole\" >&2\nexit 3\n");
    bed.cluster.add_script_role("fails", &fails, |_| ()).await;
    let no_json =
        "#!/bin/sh\nprintf '%100s%s' x \"$GANTRY_DATA_DB_PASSWORD\" >\"$GANTRY_OUTPUT\"\n";
    bed.cluster.add_script_role("no-json", no_json, |_| ()).await;
    let deep =
        "#!/bin/sh\nprintf '{\"%s\": \"\\\\u0000\"}' hunter22-and-more/é >\"$GANTRY_OUTPUT\"\n";
    bed.cluster.add_script_role("odd-key", deep, |_| ()).await;
    bed.secret("db/key", "hunter22-and-more/é");
    let data = json!(
        {
            "db": {
                "password": {"$secret": "db/admin", "version": 1},
                "key": {"$secret": "db/key", "version": 1}
            }
        }
    );
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
    assert!(
        log.contains("first: (secret).\n") && log.contains("to the other: (secret)"),
        "{}",
        &log[..200]
    );
    assert!(log.contains("(secret)0 (secret)1 ") && log.contains("(secret)2999 \n"));
    assert_eq!(tells.result, Some(json!({"db": {"url": "db://u:(secret)@h", "(secret)": 1}})));
    let fails = bed.cluster.runs(0, "fails").await.remove(0);
    assert_eq!(fails.error.as_deref(), Some("no: (secret)"));
    assert_eq!(fails.result.expect("a stored result")["db"]["url"], "db://u:(secret)@h");
    let error = bed.cluster.error(0, "no-json").await.expect("a reason");
    assert!(error.contains("begins with: x(secret)"), "{error}");
    let error = bed.cluster.error(0, "odd-key").await.expect("a reason");
    assert!(error.contains("Cannot store the result") && error.contains("/(secret)"), "{error}");

    // No table has either half of the secret more often than a random name would.
    for table in ["run", "run_log", "step", "event", "audit", "noderole"] {
        let query = sqlx::AssertSqlSafe(match table {
            "run_log" => {
                "SELECT count(*) FROM run_log WHERE position('and-more'::bytea IN body) > 0"
                    .to_owned()
            }
            table => format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%and-more%'"),
        });
        let found: i64 =
            sqlx::query_scalar(query).fetch_one(bed.cluster.db.owner()).await.expect("a count");
        assert_eq!(found, 0, "{table}");
    }
}

/// Stores its input, and fails the first time after writing a result.
const COLLECTS: &str = r#"#!/bin/sh
set -eu
cp "$GANTRY_SURROUNDINGS" "seen-$GANTRY_RUN"
cp "$GANTRY_INPUT" "input-$GANTRY_RUN"
printf '{"volume": "v-%s"}' "$GANTRY_RUN" >"$GANTRY_OUTPUT"
echo x >>tries
[ "$(wc -l <tries | tr -d ' ')" -ge 2 ] || { echo 'not yet' >&2; exit 1; }
"#;

async fn surrounded(cluster: &mut Cluster) {
    let serves = "#!/bin/sh\nprintf '{\"peer\": {\"port\": 9999, \"pid\": \"%s\"}}' \
        \"$GANTRY_NODE\" >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("peer", serves, |_| ()).await;
    cluster.add_script_role("beside", "#!/bin/sh\n", |_| ()).await;
    let again = |role: &mut engine::catalog::Role| (role.run.retries, role.run.backoff) = (5, 0);
    cluster.add_script_role("collects", COLLECTS, again).await;
    cluster.sql("UPDATE node SET facts = '{\"cpus\": 4}' WHERE NOT phantom").await;
    let data = json!({"peer": {"port": 80, "key": {"$secret": "db/admin", "version": 1}}});
    cluster
        .commit(&[
            bind(0, "peer").data(data.clone()),
            bind(1, "peer").data(data),
            bind(1, "beside"),
        ])
        .await;
    cluster.commit(&[bind(2, "collects").after(0, "peer").after(1, "peer")]).await;
}

/// Reads a JSON file that a run wrote on its node.
fn found(cluster: &Cluster, node: usize, name: &str, run: i64) -> Value {
    let text = fs::read_to_string(cluster.nodes[node].root.join(format!("{name}-{run}")))
        .expect("the script ran");
    serde_json::from_str(&text).expect("JSON")
}

async fn surroundings_are_right(cluster: &Cluster, addresses: [Value; 3]) {
    let runs = cluster.runs(2, "collects").await;
    let [first, second] = [runs[0].id, runs[1].id];
    let seen = found(cluster, 2, "seen", second);
    let [a, b, own] = addresses;
    let expected = json!({"id": cluster.nodes[2].id, "name": "n2.test.gantry",
        "deployment": "system", "phantom": false,
        "addresses": own, "facts": {"cpus": 4}, "hints": {}});
    assert_eq!(seen["node"], expected);
    // Both peers are listed, although the attributes show only one value for the shared key.
    let peer = |n: usize, addresses: Value| {
        let data = json!(
            {
                "peer": {
                    "port": 80,
                    "pid": format!("n{n}.test.gantry"),
                    "key": {"$secret": "db/admin", "version": 1}
                }
            }
        );
        let role =
            json!({"role": "peer", "instance": 0, "distance": 1, "active": true, "data": data});
        let (id, name) = (cluster.nodes[n].id, format!("n{n}.test.gantry"));
        json!({"id": id, "name": name, "phantom": false, "addresses": addresses, "roles": [role]})
    };
    assert_eq!(
        seen["nodes"],
        json!([peer(0, a), peer(1, b)]),
        "noderoles that are not related to the node must not be listed"
    );
    // The failed attempt returned what it created.
    assert_eq!(found(cluster, 2, "seen", first)["results"], json!([]));
    let [result] = seen["results"].as_array().expect("a list").as_slice() else {
        panic!("expected one result: {seen}")
    };
    assert_eq!((&result["run"], &result["outcome"]), (&json!(first), &json!("failed")));
    assert_eq!(
        (&result["role"], &result["result"]),
        (&json!("collects"), &json!({"volume": format!("v-{first}")}))
    );
    assert_eq!(
        seen["omitted"],
        json!({"results": 0, "nodes": 0, "data": 0, "facts": false, "hints": false})
    );

    // The run stores its input with the secret's name, never the secret.
    let (stored, input): (Value, Value) =
        sqlx::query_as("SELECT surroundings, input FROM run WHERE id = $1")
            .bind(second)
            .fetch_one(cluster.pool())
            .await
            .expect("the run");
    assert_eq!(stored, seen);
    let given = found(cluster, 2, "input", second);
    assert_eq!(given["peer"]["key"], "hunter22-secret");
    assert_eq!(input["data"]["peer"]["key"], json!({"$secret": "db/admin", "version": 1}));
    assert_eq!(
        (&given["peer"]["port"], &input["sources"]["/peer/port"]["layer"]),
        (&json!(80), &json!("user"))
    );
    assert_eq!(input["sources"]["/peer/pid"]["layer"], "output");
    let walls = [cluster.runs(0, "peer").await[0].id, cluster.runs(1, "peer").await[0].id];
    let run = input["sources"]["/peer/pid"]["run"].as_i64().expect("the output names its role");
    assert!(walls.contains(&run));
    assert_eq!(
        cluster
            .count(
                "run WHERE surroundings::text LIKE '%hunter22%' OR input::text LIKE '%hunter22%'"
            )
            .await,
        0
    );
    for node in &cluster.nodes {
        let left = fs::read_dir(node.root.join(".gantry/run")).expect("a folder").count();
        assert_eq!(left, 0, "no file of the run is left on the node");
    }
}

#[tokio::test]
async fn run_gets_surroundings_on_local_node() {
    let mut cluster = Cluster::of(3).await;
    let secrets = cluster.folder().join("secrets");
    write_secret(&secrets, "db/admin", "hunter22-secret\n", FOR_SYSTEM);
    surrounded(&mut cluster).await;
    let worker = Running::start(
        Config { secrets: Some(secrets), ..quick(&cluster.folder()) },
        cluster.pool(),
    );
    cluster.reaches(2, "collects", "active").await;
    worker.stop().await;
    surroundings_are_right(&cluster, [json!([]), json!([]), json!([])]).await;
}

#[tokio::test]
async fn run_gets_surroundings_over_ssh() {
    let mut bed = Bed::of(3).await;
    bed.secret("db/admin", "hunter22-secret");
    surrounded(&mut bed.cluster).await;
    let worker = bed.worker();
    bed.cluster.reaches(2, "collects", "active").await;
    worker.stop().await;
    let addresses = [0, 1, 2].map(|n| json!([bed.testbed.nodes()[n].address.to_string()]));
    surroundings_are_right(&bed.cluster, addresses).await;
}

#[tokio::test]
async fn output_never_overrides_own_user_data() {
    let mut cluster = Cluster::of(1).await;
    let finds = "#!/bin/sh\ncat \"$GANTRY_INPUT\" >>inputs\nprintf \
        '{\"a\": {\"port\": 9999, \"pid\": 7}}' >\"$GANTRY_OUTPUT\"\n";
    cluster.add_script_role("finds", finds, |_| ()).await;
    cluster.add_script_role("after", "#!/bin/sh\ncp \"$GANTRY_INPUT\" after\n", |_| ()).await;
    let data = json!({"a": {"port": 80}});
    cluster.commit(&[bind(0, "finds").data(data), bind(0, "after").after(0, "finds")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "after", "active").await;
    store::runs::rerun_step(
        cluster.pool(),
        cluster.step(0, "finds"),
        engine::anneal::RerunReason::Drift,
    )
    .await
    .expect("a re-run");
    cluster.reaches(0, "finds", "active").await;
    worker.stop().await;
    let root = &cluster.nodes[0].root;
    let after: Value =
        serde_json::from_str(&fs::read_to_string(root.join("after")).expect("the script ran"))
            .expect("JSON");
    assert_eq!(
        after,
        json!({"a": {"port": 80, "pid": 7}}),
        "the output adds pid and must not override the person's port"
    );
    let inputs = fs::read_to_string(root.join("inputs")).expect("the script ran");
    let inputs: Vec<Value> =
        inputs.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // A run does not see its own last output. Otherwise unchanged values would count as known and
    // drop out of the output.
    assert_eq!(inputs, [json!({"a": {"port": 80}}), json!({"a": {"port": 80}})]);
    assert_eq!(cluster.output(0, "finds").await, Some(json!({"a": {"port": 9999, "pid": 7}})));
}

#[tokio::test]
async fn phantom_node_service_shares_data_normally() {
    let mut cluster = Cluster::of(2).await;
    let phantom: (uuid::Uuid, String) = sqlx::query_as("SELECT id, fqdn FROM node WHERE phantom")
        .fetch_one(cluster.pool())
        .await
        .expect("the phantom of system");
    cluster.nodes.push(crate::cluster::Node {
        id: engine::ids::NodeId(phantom.0),
        fqdn: engine::ids::Fqdn::parse(&phantom.1).expect("a name"),
        root: cluster.folder().join("nowhere"),
        connection: engine::cluster::Connection::Local { root: "/nowhere".to_owned() },
    });
    let member = |n: usize| json!({"test": {"returns": {format!("member{n}"): true}}});
    let [mut a, mut service, mut reads] =
        ["member", "service", "reads"].map(|name| role(name, JigClass::Test));
    (a.run.exclusive, service.flags.service, reads.run.exclusive) = (false, true, false);
    for role in [a, service, reads] {
        cluster.add_role(role).await;
    }
    let binds = [
        bind(0, "member").data(member(0)),
        bind(1, "member").data(member(1)),
        bind(2, "service")
            .data(json!({"test": {"returns": {"vip": "10.0.0.9"}}}))
            .after(0, "member")
            .after(1, "member"),
        bind(0, "reads").data(json!({"test": {"returns": {}}})).after(2, "service"),
    ];
    cluster.commit(&binds).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "reads", "active").await;
    worker.stop().await;
    let input = |run: &RunRow| run.input.clone().expect("a stored input")["data"].clone();
    let service = input(&cluster.runs(2, "service").await[0]);
    assert_eq!((&service["member0"], &service["member1"]), (&json!(true), &json!(true)));
    let reads = input(&cluster.runs(0, "reads").await[0]);
    assert_eq!(
        (&reads["vip"], &reads["member1"]),
        (&json!("10.0.0.9"), &json!(true)),
        "the values are also visible through the service"
    );
}
