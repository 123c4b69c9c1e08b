//! Commands for the catalog: roles, barclamps and their import.

mod import;

pub(crate) mod barclamps;
pub(crate) mod roles;
