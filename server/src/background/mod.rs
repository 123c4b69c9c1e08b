//! Tasks that run without a request.

pub(crate) mod checkpoints;
pub(crate) mod sweep;
