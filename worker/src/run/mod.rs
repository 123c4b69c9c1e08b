//! The phases of a leased run between lease and result: verify its approval, prepare its input,
//! execute it with its jig.

mod approvals;
pub mod prepare;
mod refusal;
pub mod runner;
mod signatures;

pub use refusal::Refusal;
