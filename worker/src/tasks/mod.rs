//! The tasks of a worker process next to its runs. Each is a loop that ends when it is dropped.

pub mod annealer;
pub mod health;
pub mod heartbeat;
pub mod listen;
pub(crate) mod secrets;
