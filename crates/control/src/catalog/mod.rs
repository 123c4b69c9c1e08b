//! TODO purpose of catalog

pub(crate) mod barclamps;
pub(crate) mod hidden_characters;
pub(crate) mod imports;
pub(crate) mod roles;
pub(crate) mod version_difference;
