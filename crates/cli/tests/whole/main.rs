//! Everything as it is run: a PostgreSQL, a server and a worker, each as a process of its own, and people at the command line.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

mod canary;
mod house;
mod proof;
mod restoring;
