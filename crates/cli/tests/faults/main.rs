//! Fault injection with real processes, a real PostgreSQL and real SSH servers: each fault
//! separately, and a seeded mix of all (`make chaos`). After each fault, no work is lost, no step
//! runs twice at once, and no step is stuck without a reason.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod chaos;
mod checker;
mod clock;
mod database;
mod evidence;
mod namespace;
mod nodes;
mod rest;
mod server;
mod workers;
mod world;
