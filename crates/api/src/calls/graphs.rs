//! Calls for graphs, with the filters of the page.

use engine::ids::{DeploymentName, ReviewId};

use super::Call;
use super::shell::encoded;
use crate::views::graph::GraphOptions;

/// The graph of all deployments.
pub fn cluster_graph(options: &GraphOptions) -> Call {
    graph_call("/graph".to_owned(), options, &["graph"])
}

pub fn graph(deployment: &DeploymentName, options: &GraphOptions) -> Call {
    graph_call(
        format!("/deployments/{deployment}/graph"),
        options,
        &["deployment", "graph", deployment.as_str()],
    )
}

/// The graph of the noderoles that a review changes.
pub fn review_graph(id: ReviewId, options: &GraphOptions) -> Call {
    graph_call(format!("/reviews/{id}/graph"), options, &["review", "graph", &id.to_string()])
}

/// The command has the query parameters as options of the same names.
fn graph_call(path: String, options: &GraphOptions, command: &[&str]) -> Call {
    let parameters = options.query_params();
    let words: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let call =
        Call::get(if words.is_empty() { path } else { format!("{path}?{}", words.join("&")) });
    parameters
        .iter()
        .fold(call.command(command.iter().copied()), |call, (name, value)| call.option(name, value))
}
