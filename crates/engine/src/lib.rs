//! The domain of Gantry.
//!
//! This crate makes all decisions: the effects of an edit, the content of a blueprint, the result
//! of the gate, and the admission of steps. It is pure and synchronous, without clock, I/O or
//! randomness. The caller passes the time, the documents and the ids that an edit mints. Server,
//! simulator, tests and browser therefore run the same code and get the same result, which they
//! compare by hash.
//!
//! A noderole binds a role to a node. A step is one action of a noderole; steps and the typed edges
//! between them form one DAG ([`cluster`]). The desired state is a [`blueprint`], a set of
//! content-addressed documents. Planning ([`plan`]) derives it from a user's edits, and the
//! [`gate`] decides whether a review of it may be committed. Each step has a state that records its
//! progress toward the blueprint ([`anneal`]).
//!
//! Invariants of the whole crate:
//!
//! * Equal input gives equal output, byte for byte: all maps are ordered, and ids are derived.
//! * No input causes a panic. External input is validated once, on conversion to one of these
//!   types.
//! * Limits on size and depth are constants next to the code that enforces them.

pub mod alive;
pub mod anneal;
pub mod audit;
pub mod blueprint;
pub mod canonical;
pub mod catalog;
pub mod cluster;
pub mod counting;
pub mod data;
pub mod gate;
pub mod ids;
pub mod lint;
pub mod plan;
pub mod reach;
pub mod report;
#[cfg(feature = "schema")]
mod schema;
pub mod suggestion;
pub mod text;
pub mod walk;

pub use canonical::Hash;
