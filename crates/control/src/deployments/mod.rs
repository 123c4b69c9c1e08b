//! TODO purpose of deployments

pub(crate) mod board;
pub(crate) mod graph;
pub(crate) mod values;
