//! Deployments: the list, the board, the graph, and noderoles with their values.

pub(crate) mod board;
mod declaration;
pub(crate) mod graph;
mod lifecycle;
pub(crate) mod list;
pub(crate) mod noderole;
pub(crate) mod values;
