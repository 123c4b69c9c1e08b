//! # PostgreSQL: the only place where state lives
//!
//! Servers and workers hold nothing that another one could miss; all of it is in one database, and all coordination (locks,
//! queue, notifications) goes through it. One pool of connections serves both kinds of statements: [`sea_orm`] for rows, and
//! [`sqlx`] where the statement itself is the point (claim, finish, locks).
//!
//! Invariants:
//! * locks are taken in one order, by everybody: CLAIM, APPLY, head, deployment, run, steps by (rank, id);
//! * functions promise by their name: `ensure_` may find it done already, `claim_` takes what no one else then gets, `commit_` is
//!   one transaction, `append_` never changes what is there;
//! * a function that writes progress leaves it consistent or unchanged: state, counts, events and notifications move together.

pub mod access;
pub mod accounts;
pub mod api_tokens;
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
