//! Metrics of runs and workers, the access log, and the rules and the dashboard of `packaging`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::change_flow::in_progress;
use super::log_capture::LogCapture;
use super::*;

const LOCAL: [u8; 4] = [127, 0, 0, 1];

/// Names of all samples of a text with metrics.
fn sample_names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// Names of Gantry's metrics in a file.
fn named_metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("gantry_")).collect()
}

#[tokio::test]
async fn ended_runs_are_counted_once() {
    let server = TestServer::new().await;
    let (run, _) = in_progress(&server).await;
    let own = ("host", LOCAL_HOST);
    let before = server.collect(&[own], LOCAL).await;
    assert!(before.text().contains("gantry_runs_ended_total{outcome=\"failed\"} 0"));
    let end = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation,
        blueprint_number, epoch, content_hash, exclusive,
         state, outcome, queued_at, started_at, ended_at, lease_until, worker_id)
       SELECT step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch,
       content_hash, exclusive, 'ended', 'failed',
         clock_timestamp() - interval '82 seconds', clock_timestamp() - interval '30 seconds',
         clock_timestamp() - interval '10 seconds', now(), worker_id FROM run WHERE id = $1";
    sqlx::query(end).bind(run.0).execute(server.db.owner()).await.expect("a run");
    for _ in 0..2 {
        // The metrics of the database are cached for a few seconds.
        tokio::time::sleep(Duration::from_millis(5_200)).await;
        let text = server.collect(&[own], LOCAL).await;
        for line in [
            "gantry_runs_ended_total{outcome=\"failed\"} 1",
            "gantry_runs_ended_total{outcome=\"lost\"} 0",
            "gantry_run_duration_seconds_bucket{le=\"15.0\",outcome=\"failed\"} 0",
            "gantry_run_duration_seconds_bucket{le=\"60.0\",outcome=\"failed\"} 1",
            "gantry_run_queue_time_seconds_bucket{le=\"60.0\"} 1",
            "gantry_runs_open{state=\"running\"} 1",
        ] {
            assert!(text.text().contains(line), "{line} is missing in\n{}", text.text());
        }
        for (metric, value) in [("gantry_worker_runs{", "} 1"), ("gantry_worker_draining{", "} 0")]
        {
            let worker = text.text().lines().find(|line| line.starts_with(metric));
            assert!(worker.is_some_and(|line| line.ends_with(value)), "{worker:?}");
        }
    }
}

#[tokio::test]
async fn rules_and_dashboard_name_existing_metrics() {
    let server = TestServer::new().await;
    in_progress(&server).await;
    server.send_get("/api/v1/overview", &server.cookie().await).await;
    // The tasks of this test's server do not run. Their metrics have these names.
    let tasks = ["gantry_background_task_runs_total"];
    let text = server.collect(&[("host", LOCAL_HOST)], LOCAL).await;
    let known: BTreeSet<&str> = sample_names(text.text()).into_iter().chain(tasks).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    for file in ["prometheus/gantry.rules.yml", "grafana/gantry.json"] {
        let text = std::fs::read_to_string(folder.join(file)).expect("a file");
        let named = named_metrics(&text);
        let missing: Vec<_> = named
            .iter()
            // A counter or a histogram without samples yet has only its description.
            .filter(|name| !known.contains(*name) && !is_described(&known, name))
            .collect();
        assert!(
            named.len() > 5 && missing.is_empty(),
            "{file}: {missing:?} are missing in {known:?}"
        );
    }
    let dashboard = std::fs::read_to_string(folder.join("grafana/gantry.json")).expect("a file");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].to_string()).collect();
    assert_eq!(ids.len(), panels.len());
    assert!(panels.iter().all(|panel| panel["targets"][0]["expr"].is_string()));
}

/// Whether the metric is a histogram whose family has no label values yet.
fn is_described(known: &BTreeSet<&str>, name: &str) -> bool {
    let duration = "gantry_run_duration_seconds_bucket";
    name == duration && known.contains("gantry_run_queue_time_seconds_bucket")
}

#[tokio::test]
async fn access_log_names_route_person_and_request_id() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let body = json!({"name": "reader", "scopes": ["viewer"]});
    let made = server.send_post("/api/v1/tokens", &ada, body).await.json();
    let secret = made["token"].as_str().expect("a token").to_owned();
    let log = LogCapture::begin();
    let request = server.get("/api/v1/nodes?filter=confidential").header(header::COOKIE, &ada);
    let request = request.header("x-request-id", "trace-7.b").body(Body::empty());
    let answer = server.ask(request.expect("a request")).await;
    let request =
        server.get("/api/v1/runs/77").header(header::AUTHORIZATION, format!("Bearer {secret}"));
    server.ask(request.body(Body::empty()).expect("a request")).await;
    let log = log.end();
    assert_eq!(answer.header("x-request-id"), "trace-7.b");
    let entries: Vec<&str> = log.lines().filter(|line| line.contains("gantry::access")).collect();
    let [first, second] = entries.as_slice() else { panic!("{log}") };
    for part in [
        "trace-7.b",
        "method=GET",
        "route=\"/api/v1/nodes\"",
        "status=200",
        "duration_ms=",
        "person=\"ada\"",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let token = format!("person=\"ada (token {})\"", made["id"].as_str().expect("an id"));
    for part in ["route=\"/api/v1/runs/{id}\"", "status=404", &token] {
        assert!(second.contains(part), "{part}: {second}");
    }
    assert!(!log.contains("confidential") && !log.contains(&secret), "{log}");
}
