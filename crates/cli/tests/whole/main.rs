//! The complete system: PostgreSQL, a server and a worker as separate processes, and people at the
//! command line.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod canary;
mod installation;
mod proof;
mod restoring;
mod stack;
