//! The phases of a leased run between lease and result: verify its approval, prepare its input,
//! execute it with its jig.

pub mod prepare;
pub mod runner;
mod signatures;
