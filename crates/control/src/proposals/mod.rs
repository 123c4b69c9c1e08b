//! TODO purpose of proposals

pub(crate) mod browser_plan;
pub(crate) mod change;
pub(crate) mod data_fit;
pub(crate) mod lint;
pub(crate) mod proposal;
