//! Graphs, as they are looked at on a page.

use engine::ids::{DeploymentName, SubmissionId};

use super::Call;
use super::shell::encoded;
use crate::console::GraphWish;

/// A deployment's graph.
pub fn graph(deployment: &DeploymentName, wish: &GraphWish) -> Call {
    asked(format!("/deployments/{deployment}/graph"), wish)
}

/// The graph of what a review changes.
pub fn review_graph(id: SubmissionId, wish: &GraphWish) -> Call {
    asked(format!("/submissions/{id}/graph"), wish)
}

fn asked(path: String, wish: &GraphWish) -> Call {
    let words: Vec<String> =
        wish.words().into_iter().map(|(word, said)| format!("{word}={}", encoded(&said))).collect();
    Call::get(if words.is_empty() { path } else { format!("{path}?{}", words.join("&")) })
}
