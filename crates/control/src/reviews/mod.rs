//! TODO purpose of reviews

pub(crate) mod discussion;
pub(crate) mod impact;
pub(crate) mod lists;
pub(crate) mod replan;
pub(crate) mod review;
pub(crate) mod signatures;
pub(crate) mod summary;
pub(crate) mod viewed;
