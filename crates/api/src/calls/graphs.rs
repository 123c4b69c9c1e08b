//! Calls for graphs, with the filters of the page.

use engine::ids::{DeploymentName, ReviewId};

use super::Call;
use super::shell::encoded;
use crate::console::GraphWish;

pub fn graph(deployment: &DeploymentName, wish: &GraphWish) -> Call {
    asked(
        format!("/deployments/{deployment}/graph"),
        wish,
        ["deployment", "graph", deployment.as_str()],
    )
}

/// The graph of the noderoles that a review changes.
pub fn review_graph(id: ReviewId, wish: &GraphWish) -> Call {
    asked(format!("/submissions/{id}/graph"), wish, ["review", "graph", &id.to_string()])
}

/// The command has the query parameters as options of the same names.
fn asked(path: String, wish: &GraphWish, command: [&str; 3]) -> Call {
    let wanted = wish.words();
    let words: Vec<String> =
        wanted.iter().map(|(word, said)| format!("{word}={}", encoded(said))).collect();
    let call =
        Call::get(if words.is_empty() { path } else { format!("{path}?{}", words.join("&")) });
    wanted.iter().fold(call.words(command), |call, (word, said)| call.option(word, said))
}
