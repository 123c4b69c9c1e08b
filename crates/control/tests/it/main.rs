//! Integration tests of the use cases on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

mod abuse;
mod access;
mod acting;
mod bad_input;
mod beside;
mod blueprints;
mod cataloguing;
mod change;
mod discussion;
mod gate;
mod graphs;
mod house;
mod line;
mod lint;
mod listing;
mod looks;
mod machines;
mod opening;
mod people;
mod pool;
mod proof;
mod races;
mod records;
mod removal;
mod replanning;
mod restoring;
mod scopes;
mod second_factor;
mod secrets;
mod settling;
mod shut_out;
mod signatures;
mod top;
mod undoing;
mod weighing;
mod wiring;
