//! Background tasks: periodic work of a server or worker that no request waits for.
//!
//! A [`Task`] is one kind of work with a period. A [`Driver`] runs the tasks of a process, counts
//! their runs ([`Metrics`]) and reports their status to the database, so every server can list the
//! tasks of all processes.
//!
//! Invariants:
//! * A task never runs twice at once in one process. Several processes run the same task at once,
//!   so a task must allow this.
//! * A run that fails or panics is repeated after a delay that grows with each failure.
//! * A stop drops the current run at its next await, so a task must be cancel-safe.
//!
//! Loops that follow a connection are not tasks: they have no period, and no run of them ends. The
//! feed of the server and the listener of the worker are such loops.

mod driver;
mod metrics;
mod process;
mod report;
mod status;
mod task;

pub use driver::{Activator, Driver};
pub use metrics::Metrics;
pub use process::{Process, ProcessKind};
pub use status::{LastRun, Status};
pub use task::{Failure, Outcome, Task, TaskResult};
