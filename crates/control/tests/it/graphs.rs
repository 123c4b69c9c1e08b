//! Graphs with folds, focus and marked paths.

use std::time::Duration;

use api::views::graph::{GraphDirection, GraphOptions, GraphView, Length, PathOptions, WaveRange};
use control::MissingVertex;
use engine::anneal::Limits;
use serde_json::json;
use store::runs::RunEnd;
use store::workers::{NewWorker, WorkerId};

use crate::installation::Installation;

impl Installation {
    async fn graph(&self, options: GraphOptions) -> GraphView {
        self.control.graph(&self.ada, "web", &options, MissingVertex::Note).await.unwrap()
    }

    async fn marked(&self, marked_path: PathOptions) -> GraphView {
        self.graph(GraphOptions { marked_path: Some(marked_path), ..GraphOptions::default() }).await
    }
}

/// `app@n1 1/1` for each vertex with noderoles on the marked path.
fn marked(view: &GraphView) -> Vec<String> {
    let text_of = |vertex: &&api::views::graph::GraphVertex| {
        let one = vertex.noderole.as_ref().map(|one| format!("@{}", one.short)).unwrap_or_default();
        format!("{}{one} {}/{}", vertex.role, vertex.on_path, vertex.members)
    };
    view.vertices
        .iter()
        .filter(|vertex| vertex.on_path > 0)
        .map(|vertex| text_of(&vertex))
        .collect()
}

fn text_of(view: &GraphView) -> &str {
    &view.marked_path.as_ref().unwrap().summary
}

#[tokio::test]
async fn path_is_marked_on_folded_graph() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    // Otherwise n1's would serve n2, too.
    installation.bound("web", 2, "runtime").await;
    installation.bound("web", 2, "app").await;
    let (base, app) = (
        installation.noderole(1, "base").await.to_string(),
        installation.noderole(2, "app").await.to_string(),
    );

    let forward = installation.marked(PathOptions::Between(base.clone(), "web:app".into())).await;
    assert_eq!(
        text_of(&forward),
        "Path found: app waits for base on n1, with 3 noderoles on the path."
    );
    assert_eq!(
        marked(&forward),
        ["app 1/2", "base 1/2", "runtime 1/2"],
        "the path does not contain n2"
    );
    assert_eq!(
        forward.edges.iter().map(|edge| (edge.on_path, edge.count)).collect::<Vec<_>>(),
        [(1, 2), (1, 2)]
    );
    assert_eq!(
        (forward.waves, forward.vertices[0].waves),
        (3, Some(WaveRange { first: 3, last: 3 }))
    );

    let backward = installation.marked(PathOptions::Between("web:app".into(), base.clone())).await;
    assert!(
        text_of(&backward).ends_with("There is no path in the other direction."),
        "{}",
        text_of(&backward)
    );
    assert_eq!(marked(&backward), marked(&forward));

    let none = installation.marked(PathOptions::Between(base.clone(), app)).await;
    assert_eq!(
        text_of(&none),
        "There is no path between base on n1 and app on n2: neither waits for the other."
    );
    assert!(marked(&none).is_empty());
    let gone = installation.marked(PathOptions::Between(base.clone(), "web:gone".into())).await;
    assert!(text_of(&gone).starts_with("One end of the path is not in this graph"));
    assert_eq!(
        installation.marked(PathOptions::From(base.clone())).await.marked_path,
        None,
        "a path with one end is not shown"
    );

    let marked_path = Some(PathOptions::Between(base, "web:app".into()));
    let only = installation
        .graph(GraphOptions { marked_path, only_path: true, ..GraphOptions::default() })
        .await;
    assert_eq!(marked(&only), ["app@n1 1/1", "base@n1 1/1", "runtime@n1 1/1"]);
    assert_eq!(
        (only.vertices.len(), only.noderoles, only.waves),
        (3, 6, 3),
        "waves are counted for the whole graph"
    );
}

#[tokio::test]
async fn cluster_graph_has_all_deployments() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let then = installation.bound("web", 2, "runtime").await;
    installation.bound("web", 2, "app").await;
    let (control, ada) = (&installation.control, &installation.ada);
    let drawn = async |options: GraphOptions| {
        control.cluster_graph(ada, &options, MissingVertex::Note).await
    };

    let cluster = drawn(GraphOptions::default()).await.unwrap();
    let web = installation.graph(GraphOptions::default()).await;
    assert_eq!((cluster.name(), cluster.deployment_id, &cluster.cut), ("cluster", None, &None));
    for vertex in &web.vertices {
        assert!(
            cluster.vertices.contains(vertex),
            "{vertex:?} is missing in {:?}",
            cluster.vertices
        );
    }
    assert!(cluster.noderoles >= web.noderoles && cluster.total_edges >= web.total_edges);
    assert!(
        cluster.vertices.iter().all(|vertex| !vertex.appearances.is_empty()),
        "each vertex has states"
    );

    let past = drawn(GraphOptions { blueprint: Some(then), ..GraphOptions::default() });
    let past = past.await.unwrap();
    assert_eq!(past.blueprint, Some(then));
    assert!(past.cut.unwrap().starts_with(&format!("This is the cluster at blueprint {then}")));
    assert!(past.noderoles < cluster.noderoles);
    assert!(past.vertices.iter().all(|vertex| vertex.appearances.is_empty()));

    let focus = GraphOptions { focus: Some("web:gone".into()), ..GraphOptions::default() };
    assert!(drawn(focus.clone()).await.unwrap().cut.unwrap().contains("is not in the graph"));
    let refused = control.cluster_graph(ada, &focus, MissingVertex::Refused).await.unwrap_err();
    assert_eq!(refused.status, 404);
}

#[tokio::test]
async fn focus_includes_requested_number_of_edges() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let options = |steps| GraphOptions {
        focus: Some("web:app".into()),
        direction: GraphDirection::Up,
        steps,
        ..GraphOptions::default()
    };
    assert_eq!(installation.graph(options(Some(1))).await.vertices.len(), 2);
    assert_eq!(installation.graph(options(None)).await.vertices.len(), 3);
    let focus = Some("web:gone".into());
    let gone = installation.graph(GraphOptions { focus, ..GraphOptions::default() }).await;
    assert_eq!(
        gone.vertices.len(),
        installation.graph(GraphOptions::default()).await.vertices.len(),
        "the whole graph is shown if the focus does not exist"
    );
    assert!(gone.cut.is_some_and(|text| text.contains("not in the graph, so the whole graph")));
}

#[tokio::test]
async fn unknown_vertex_is_refused_for_api_clients() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let request = async |options: GraphOptions| {
        installation.control.graph(&installation.ada, "web", &options, MissingVertex::Refused).await
    };
    let of = |focus: &str| GraphOptions { focus: Some(focus.into()), ..GraphOptions::default() };
    assert_eq!(request(of("web:runtime")).await.unwrap().vertices.len(), 3);
    for key in ["nope", "web:nope", "nowhere:app", "6f1c2d3e-0a1b-4c5d-8e9f-001122334455"] {
        let refused = request(of(key)).await.unwrap_err();
        assert_eq!(refused.status, 404, "{refused:?}");
        assert!(
            refused.detail.starts_with("focus: ") && refused.detail.contains(key),
            "{refused:?}"
        );
    }
    for (from, to, field) in [("web:nope", "web:app", "from: "), ("web:app", "web:nope", "to: ")] {
        let marked_path = Some(PathOptions::Between(from.into(), to.into()));
        let refused =
            request(GraphOptions { marked_path, ..GraphOptions::default() }).await.unwrap_err();
        assert!(refused.status == 404 && refused.detail.starts_with(field), "{refused:?}");
    }
}

#[tokio::test]
async fn longest_path_uses_count_or_duration() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 2, "runtime").await;
    let path = |view: &GraphView| {
        view.marked_path.as_ref().unwrap().path.iter().map(|w| w.name.clone()).collect::<Vec<_>>()
    };
    let count = installation.marked(PathOptions::Longest(Length::Count)).await;
    assert_eq!(path(&count), ["base on n1", "runtime on n1", "app on n1"]);
    assert_eq!(text_of(&count), "Longest path: 3 noderoles in sequence.");

    // `base` runs on both nodes; on n2 it takes an hour.
    let worker = WorkerId(uuid::Uuid::from_u128(7));
    let hello = NewWorker {
        id: worker,
        name: "w".into(),
        capacity: 9,
        jigs: vec!["noop".into()],
        host: "here".into(),
        pid: 1,
        version: "0".into(),
    };
    let long = Duration::from_secs(3_600);
    store::workers::ensure_worker(installation.database.worker(), &hello, long).await.unwrap();
    store::workers::confirm_worker(installation.database.worker(), worker).await.unwrap();
    store::runs::claim_runs(installation.database.worker(), Limits::default()).await.unwrap();
    let leased =
        store::runs::lease_runs(installation.database.worker(), worker, &["noop"], 9, long)
            .await
            .unwrap();
    assert_eq!(leased.len(), 2);
    let slow = installation.node(2).await;
    sqlx::query("UPDATE run SET started_at = now() - interval '1 hour' WHERE node_id = $1")
        .bind(slow.0)
        .execute(installation.database.owner())
        .await
        .unwrap();
    for run in leased {
        let end = RunEnd::Succeeded { result: Default::default(), output: json!({}) };
        store::runs::finish_run(installation.database.worker(), run.run, worker, &end)
            .await
            .unwrap();
    }
    let time = installation.marked(PathOptions::Longest(Length::Time)).await;
    assert_eq!(path(&time), ["base on n2", "runtime on n2"]);
    let took = time.marked_path.as_ref().unwrap().path[0].duration_ms.unwrap();
    assert!((3_600_000..3_700_000).contains(&took), "{took}");
    assert!(
        text_of(&time).ends_with("Not counted, because they have not succeeded yet: 1."),
        "{}",
        text_of(&time)
    );
    assert_eq!(
        installation.marked(PathOptions::Longest(Length::Count)).await.marked_path,
        count.marked_path,
        "the longest path by number of steps is unchanged"
    );
}
