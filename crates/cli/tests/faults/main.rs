//! What breaks, broken on purpose: each fault on real processes, a real PostgreSQL and real SSH servers; and a seeded mix of all of
//! them (`make chaos`). After each: nothing is lost, nothing runs twice at once, nothing is stuck without a reason.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

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
