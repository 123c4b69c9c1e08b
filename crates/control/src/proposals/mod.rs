//! Proposals: open changes. They are planned on the current target and edited until they are
//! submitted ([`crate::reviews`]).

pub(crate) mod barclamp_preview;
pub(crate) mod edit_text;
pub(crate) mod summary;

pub(crate) mod browser_plan;
pub(crate) mod change;
pub(crate) mod data_fit;
pub(crate) mod lint;
pub(crate) mod proposal;
