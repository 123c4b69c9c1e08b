//! The catalog: barclamps and their versions, roles, and imports.

pub(crate) mod barclamps;
pub(crate) mod imports;
pub(crate) mod roles;
pub(crate) mod version_difference;
