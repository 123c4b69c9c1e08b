//! The commands that the console shows next to its buttons.
//!
//! A resource declares its calls in its own module, next to its types. This module has those of
//! proposals, reviews, runs, nodes and people, the lists, and a sample of each call for tests. The
//! CLI sends the same calls, so each path of the API is in one place.
//!
//! Every REST operation that changes something has a call, or the tests list it with a reason. The
//! tests also compare each call's path, method and body with `docs/openapi.json`.

mod edits;
mod graphs;
mod lists;
mod nodes;
mod people;
mod resources;
mod samples;
mod work;

pub use crate::call::{Body, Call, Method, SERVER_VARIABLE, SESSION_VARIABLE, TOKEN, shell};
pub use edits::*;
pub use graphs::*;
pub use lists::*;
pub use nodes::*;
pub use people::*;
pub use resources::*;
pub use samples::samples;
pub use work::*;

#[cfg(test)]
mod tests;
