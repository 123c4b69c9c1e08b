//! The pages, one module each.

pub mod blueprints;
pub mod board;
pub mod catalog;
pub mod deployments;
pub mod edits;
pub mod graph;
pub mod node;
pub mod node_proposal;
pub mod noderole;
pub mod nodes;
pub mod not_found;
pub(crate) mod part;
pub mod review;
pub mod reviews;
pub mod run;
pub mod runs;
pub mod settings;
pub mod sign_in;
pub mod values;
pub mod waiting;
