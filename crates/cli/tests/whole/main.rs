//! The complete system: PostgreSQL, a server and a worker as separate processes, and people at the
//! command line.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

mod canary;
mod installation;
mod proof;
mod restoring;
mod stack;
