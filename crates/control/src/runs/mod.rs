//! Runs: the list, logs, pending steps, and the operations that need no review.

pub(crate) mod list;
pub mod logs;
pub(crate) mod operations;
pub(crate) mod pending;
