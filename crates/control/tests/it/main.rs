//! The use cases on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

mod abuse;
mod bad_input;
mod blueprints;
mod change;
mod discussion;
mod gate;
mod house;
mod line;
mod lint;
mod races;
mod removal;
mod replanning;
mod scopes;
