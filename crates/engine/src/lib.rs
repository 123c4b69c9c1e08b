//! # The domain of Gantry
//!
//! Everything that decides lives here: what an edit brings along, what a blueprint is, who may let a change pass, which step may
//! start. The crate is pure and synchronous. It has no clock, no I/O and no randomness: whoever calls it hands in the time, the
//! documents and the ids that an edit mints. So the server, the simulator, the tests and the browser run the same code and get the
//! same answer, which they compare by hash.
//!
//! ## One idea
//!
//! A **noderole** binds a role to a node. What anneals is a **step**: one action of a noderole. Steps and the typed edges between
//! them form one DAG ([`cluster`]). Desired state is a **blueprint**: content-addressed documents ([`blueprint`]) that planning
//! ([`plan`]) derives from a person's edits and that a review ([`gate`]) lets pass or not. Progress toward it is a state for each
//! step ([`anneal`]).
//!
//! ## Invariants of the whole crate
//!
//! * Equal input, equal output, to the byte: ordered maps everywhere, ids derived from what they name.
//! * Nothing panics on input. Whatever comes from outside is checked once, where it becomes one of the types below.
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
#[cfg(feature = "schema")]
mod schema;
pub mod text;

pub use canonical::Hash;
