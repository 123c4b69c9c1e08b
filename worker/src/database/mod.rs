//! How the worker reads from and writes to the database: pauses while it is unavailable, batches of
//! queries, and a cache of documents whose bytes it verifies.

pub(crate) mod backoff;
pub mod batching;
pub mod objects;
