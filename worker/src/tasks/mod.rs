//! The background tasks of a worker, next to its runs, and the listener that activates them.

pub mod annealer;
pub mod checks;
pub mod health;
pub mod heartbeat;
pub(crate) mod housekeeping;
pub mod inputs;
pub mod listen;
pub(crate) mod secrets;
