//! HTTP: requests are checked, authenticated and limited here, and errors become problem details.

pub(crate) mod access_log;
pub(crate) mod address;
pub(crate) mod connections;
pub(crate) mod contract;
pub(crate) mod downloads;
pub(crate) mod form_input;
pub(crate) mod guard;
pub(crate) mod head_errors;
pub(crate) mod health;
pub(crate) mod idempotency;
pub mod limits;
pub(crate) mod metrics;
pub(crate) mod permits;
pub(crate) mod problems;
pub(crate) mod proxies;
pub(crate) mod run_metrics;
pub(crate) mod session;
pub(crate) mod strict;
pub(crate) mod timeouts;
