//! # PostgreSQL: the only place for state
//!
//! Servers and workers have no state that another process could miss. One database stores
//! everything and coordinates everything (locks, queue, notifications). One connection pool serves
//! two libraries: [`sea_orm`] for rows, and [`sqlx`] for statements that need exact SQL (claim,
//! finish, locks).
//!
//! Invariants:
//! * All code takes locks in one order: CLAIM, APPLY, head, deployment, run, steps by (rank, id).
//! * A function's name is a promise. `ensure_` is idempotent, `claim_` gets exclusive ownership,
//!   `commit_` is one transaction, `append_` never changes existing rows.
//! * A function that writes progress leaves it consistent or unchanged: state, counts, events and
//!   notifications change together.

pub mod access;
pub mod accounts;
pub mod api_tokens;
pub mod background_tasks;
mod connect;
mod entity;
pub mod housekeeping;
pub mod idempotency;
pub mod intent;
pub mod journal;
pub mod node_tokens;
pub mod passkeys;
pub mod people;
pub mod reading;
pub mod running;
pub mod second_factor;

pub use connect::{Connecting, STATEMENT_TIME, Store, StoreError, listener};
