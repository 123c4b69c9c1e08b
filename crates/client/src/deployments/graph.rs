//! Graphs of noderoles: of the cluster, of a deployment, and of the changes of a review.
//!
//! The server selects, folds and marks the vertices, with the same query parameters as on the page.
//! This module prints a graph as a table in topological order: each vertex is below its
//! dependencies. `--focus`, `--from` and `--to` take the key of a line.

use api::call::Call;
use api::views::graph::{
    Appearance, AppearanceCount, GraphEdge, GraphPath, GraphVertex, GraphView, WaveRange,
};
use clap::Args;
use engine::counting::many;
use serde::Deserialize as _;
use serde_json::Value;

use crate::address::Query;
use crate::client::{Client, WatchOption};
use crate::exit::Outcome;
use crate::names;
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, plain};

/// The part of a graph to show, and the path to mark.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Roles whose noderoles are shown individually, separated by commas
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
    /// Nodes whose noderoles are shown individually, by full or short name, separated by commas
    #[arg(long, value_name = "NODES")]
    nodes: Option<String>,
    /// Show only this vertex, its dependencies and its dependents
    #[arg(long, value_name = "KEY")]
    focus: Option<String>,
    /// Direction from the vertex: up for its dependencies, down for its dependents
    #[arg(long, value_parser = ["up", "down", "both"], requires = "focus")]
    direction: Option<String>,
    /// Maximum distance from the vertex, in edges
    #[arg(long, value_name = "N", requires = "focus", value_parser = names::from_one::<i64>)]
    steps: Option<i64>,
    /// Mark all paths from this vertex
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Last vertex of the marked paths
    #[arg(long, value_name = "KEY", requires = "from")]
    to: Option<String>,
    /// Mark the longest path, by number of noderoles or by duration of their last runs
    #[arg(long, value_parser = ["count", "time"], conflicts_with = "from")]
    longest: Option<String>,
    /// Show only the marked path, with noderoles individually
    #[arg(long, value_parser = ["path"])]
    only: Option<String>,
    /// Show the graph of the cluster or of a deployment as of this blueprint
    #[arg(long, value_name = "N", value_parser = names::blueprint)]
    blueprint: Option<i64>,
    #[command(flatten)]
    again: WatchOption,
}

impl GraphArgs {
    fn query(&self) -> Query {
        Query::default()
            .with("roles", &self.roles)
            .with("nodes", &self.nodes)
            .with("focus", &self.focus)
            .with("direction", &self.direction)
            .with("steps", self.steps)
            .with("from", &self.from)
            .with("to", &self.to)
            .with("longest", &self.longest)
            .with("only", &self.only)
            .with("blueprint", self.blueprint)
    }
}

/// Prints a graph.
pub(crate) fn graph(client: &Client, call: &Call, args: &GraphArgs) -> Outcome {
    let path = args.query().on(&call.url());
    client.show(args.again, || client.server.get(&path), text)
}

fn text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = GraphView::deserialize(response) else { return outline(response) };
    let blueprint_text =
        view.blueprint.map(|target| format!(", in blueprint {target}")).unwrap_or_default();
    let mut text = format!(
        "{} {}, {}, last wave {}{blueprint_text}\n",
        output.heading(&format!("{}:", view.name())),
        many(view.noderoles, "noderole"),
        many(view.total_edges, "edge"),
        view.waves
    );
    text += &view.cut.as_deref().map(|cut| format!("{}\n", plain(cut))).unwrap_or_default();
    text += &view.marked_path.as_ref().map(marked_path).unwrap_or_default();
    if view.vertices.is_empty() {
        return text
            + if view.noderoles == 0 { "No noderoles yet.\n" } else { "No matching noderoles.\n" };
    }
    text + &table(&view).text(output)
}

/// Describes the marked path. Lists each noderole of a longest path.
fn marked_path(marked_path: &GraphPath) -> String {
    let took = |took: Option<u64>| took.map(|ms| format!(", {ms} ms")).unwrap_or_default();
    let steps = marked_path
        .path
        .iter()
        .map(|step| format!("  {}{}\n", plain(&step.name), took(step.duration_ms)));
    format!("{}\n{}", plain(&marked_path.summary), steps.collect::<String>())
}

/// One line per vertex, by wave.
fn table(graph: &GraphView) -> Table {
    let mut dependencies: Vec<Vec<String>> = vec![Vec::new(); graph.vertices.len()];
    for edge in &graph.edges {
        if let (Some(dependency), Some(dependencies)) =
            (graph.vertices.get(edge.from), dependencies.get_mut(edge.to))
        {
            dependencies.push(tie(edge, dependency));
        }
    }
    let mut lines: Vec<(&GraphVertex, Vec<String>)> =
        graph.vertices.iter().zip(dependencies).collect();
    lines.sort_by_key(|(vertex, _)| vertex.waves);
    let mut table =
        Table::new(["WAVE", "MARKED", "ROLE", "DEPLOYMENT", "STATE", "DEPENDS ON", "KEY"]);
    for (vertex, dependencies) in lines {
        table.row([
            waves(vertex),
            marked(vertex),
            name(vertex),
            vertex.deployment.to_string(),
            state_text(vertex),
            dependencies.join(", "),
            vertex.key.clone(),
        ]);
    }
    table
}

/// Name of a vertex: `app on n1`, or `app (3)` for a folded role with three noderoles.
pub(crate) fn name(vertex: &GraphVertex) -> String {
    match &vertex.noderole {
        Some(one) => format!("{} on {}", vertex.role, one.short),
        None => format!("{} ({})", vertex.role, vertex.members),
    }
}

fn waves(vertex: &GraphVertex) -> String {
    match vertex.waves {
        None => String::new(),
        Some(WaveRange { first, last }) if first == last => first.to_string(),
        Some(WaveRange { first, last }) => format!("{first}-{last}"),
    }
}

fn marked(vertex: &GraphVertex) -> String {
    match (vertex.on_path, &vertex.noderole) {
        (0, _) => String::new(),
        (_, Some(_)) => "yes".to_owned(),
        (some, None) => format!("{some} of {}", vertex.members),
    }
}

/// State of a vertex: `ACTIVE`, or `2 ACTIVE, 1 ERROR` for a folded role.
fn state_text(vertex: &GraphVertex) -> String {
    let status = |part: &AppearanceCount| match vertex.noderole {
        Some(_) => label(part.appearance).to_owned(),
        None => format!("{} {}", part.count, label(part.appearance)),
    };
    vertex.appearances.iter().map(status).collect::<Vec<_>>().join(", ")
}

fn label(status: Appearance) -> &'static str {
    match status {
        Appearance::State(state) => state.label(),
        Appearance::Added => "added",
        Appearance::Removed => "removed",
        Appearance::Changed => "changed",
        Appearance::Downstream => "depends on a change",
        Appearance::Around => "unchanged",
    }
}

/// A dependency. In the graph of a change, with the effect of the change on the edge.
fn tie(edge: &GraphEdge, dependency: &GraphVertex) -> String {
    let name = name(dependency);
    let change = match (edge.added, edge.removed, edge.count) {
        (0, 0, _) => return name,
        (_, _, 0) => "removed".to_owned(),
        (added, 0, count) if added == count => "new".to_owned(),
        (added, 0, _) => format!("{added} new"),
        (0, gone, _) => format!("{gone} removed"),
        (added, gone, _) => format!("{added} new, {gone} removed"),
    };
    format!("{name} ({change})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vertex(
        key: &str,
        one: Option<&str>,
        [first, last]: [u32; 2],
        appearances: Value,
        on_path: usize,
    ) -> Value {
        let id = uuid::Uuid::nil();
        let members = if one.is_some() { 1 } else { 3 };
        let one = one.map(|short| {
            json!(
                {"id": id, "short": short, "fqdn": format!("{short}.demo"), "has_page": true}
            )
        });
        let role = key.split(':').next_back();
        json!({"key": key, "role": role, "deployment": "web", "noderole": one, "members": members,
            "appearances": appearances, "waves": {"first": first, "last": last},
            "on_path": on_path})
    }

    fn counted(appearance: Value, count: usize) -> Value {
        json!({"appearance": appearance, "count": count})
    }

    fn graph(vertices: &[Value], edges: &[Value], marked_path: Value) -> Value {
        json!({"deployment": "web", "deployment_id": uuid::Uuid::nil(), "blueprint": 3,
            "vertices": vertices, "edges": edges, "noderoles": 4,
            "total_edges": 1, "waves": 2, "cut": "Too much\nfor one picture.",
            "marked_path": marked_path, "cursor": 1})
    }

    #[test]
    fn graph_table_is_in_topological_order() {
        let app = vertex(
            "web:app",
            None,
            [1, 2],
            json!([counted(json!({"state": "active"}), 2), counted(json!({"state": "error"}), 1)]),
            2,
        );
        let proxy = vertex(
            "web:proxy",
            Some("n1"),
            [0, 0],
            json!([counted(json!({"state": "active"}), 1)]),
            1,
        );
        let edge = json!({"from": 1, "to": 0, "count": 3, "kind": "hard", "on_path": 0});
        let path = json!([{"id": uuid::Uuid::nil(), "name": "proxy on n1", "duration_ms": 12}]);
        let shown = graph(
            &[app, proxy],
            &[edge],
            json!({"summary": "The longest path.", "noderoles": 3, "path": path}),
        );
        assert_eq!(
            text(&shown, OutputFormat::default()),
            "web: 4 noderoles, 1 edge, last wave 2, in blueprint 3\nToo much for one picture.\nThe \
             longest path.\n  proxy on n1, 12 ms\nWAVE  MARKED  ROLE         DEPLOYMENT  \
             STATE              DEPENDS ON   KEY\n0     yes     proxy on n1  web         \
             ACTIVE                          web:proxy\n1-2   2 of 3  app (3)      web         2 \
             ACTIVE, 1 ERROR  proxy on n1  web:app\n"
        );
        assert!(
            text(&graph(&[], &[], Value::Null), OutputFormat::default())
                .ends_with("No matching noderoles.\n")
        );
        let mut nothing = graph(&[], &[], Value::Null);
        nothing["noderoles"] = json!(0);
        assert!(text(&nothing, OutputFormat::default()).ends_with("No noderoles yet.\n"));
        assert_eq!(
            text(&json!({"of": "another"}), OutputFormat::default()),
            "of: another\n",
            "an unknown answer is printed as an outline"
        );
    }

    #[test]
    fn change_graph_marks_added_and_removed_edges() {
        let app = vertex(
            "web:app",
            None,
            [1, 1],
            json!([counted(json!("added"), 2), counted(json!("around"), 1)]),
            0,
        );
        let proxy =
            vertex("web:proxy", Some("n1"), [0, 0], json!([counted(json!("changed"), 1)]), 0);
        let changes = |count: usize, added: usize, gone: usize| {
            let edge = json!(
                {
                    "from": 1, "to": 0, "count": count, "kind": "hard", "on_path": 0,
                    "added": added, "removed": gone
                }
            );
            text(
                &graph(&[app.clone(), proxy.clone()], &[edge], Value::Null),
                OutputFormat::default(),
            )
        };
        assert!(
            changes(3, 0, 0).contains("2 added, 1 unchanged  proxy on n1  web:app\n"),
            "{}",
            changes(3, 0, 0)
        );
        assert!(changes(2, 2, 0).contains("proxy on n1 (new)"), "{}", changes(2, 2, 0));
        assert!(changes(0, 0, 1).contains("proxy on n1 (removed)"), "{}", changes(0, 0, 1));
        assert!(
            changes(2, 1, 3).contains("proxy on n1 (1 new, 3 removed)"),
            "{}",
            changes(2, 1, 3)
        );
    }
}
