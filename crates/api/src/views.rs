//! Data that only a page of the console needs.

pub mod board;
pub mod frame;
pub mod graph;
pub mod node_proposal;
