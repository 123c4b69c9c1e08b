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

pub mod audit;
pub mod background_tasks;
pub mod blueprints;
pub mod catalog;
mod connect;
pub mod deployments;
pub mod entity;
pub mod events;
pub mod housekeeping;
pub mod idempotency;
mod list;
mod locks;
pub mod monitoring;
pub mod nodes;
pub mod people;
pub mod proposals;
pub mod reviews;
pub mod runs;
pub mod server_addresses;
pub mod workers;

pub use connect::{Connecting, STATEMENT_TIME, Store, StoreError, listener};
pub use list::{Key, Page, Sort};
pub use locks::lock_apply_shared;
