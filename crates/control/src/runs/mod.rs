//! TODO purpose of runs

pub mod logs;
pub(crate) mod operations;
pub(crate) mod pending;
