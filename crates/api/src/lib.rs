//! Wire types of the console, the REST API and the CLI.
//!
//! All three use these types only. They are plain data without I/O. Types of the engine (effects,
//! differences, the gate's state) appear here unchanged, so a rule looks the same everywhere.
//!
//! With the feature `schema`, doc comments become descriptions in the OpenAPI document.

mod allowed;
mod at;
pub mod audit;
pub mod background_tasks;
pub mod blueprints;
pub mod call;
pub mod calls;
pub mod catalog;
pub mod deployments;
#[cfg(feature = "schema")]
mod enumerations;
mod join_phase;
pub mod limits;
pub mod listing;
pub mod live;
pub mod names;
pub mod nodes;
pub mod overview;
pub mod pending;
pub mod people;
pub mod problem;
pub mod problem_codes;
pub mod proposals;
pub mod reviews;
pub mod rollout;
pub mod runs;
pub mod search;
pub mod second_factor;
pub mod values;
pub mod views;
pub mod workers;

pub use allowed::Allowed;
pub use at::{At, InvalidTime};
pub use join_phase::JoinPhase;
pub use problem::Problem;
