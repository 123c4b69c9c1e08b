//! The pages. A folder for each noun has its list and its pages.

pub mod audit;
pub mod blueprints;
pub mod catalog;
pub mod deployments;
pub mod nodes;
pub mod not_found;
pub mod overview;
pub mod proposals;
pub mod reviews;
pub mod runs;
pub mod search;
pub mod second_factor;
pub mod settings;
pub mod sign_in;
pub mod workers;
