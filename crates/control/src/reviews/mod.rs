//! Reviews: submitted proposals, the gate, verdicts, discussion, and planning again after a commit.

pub(crate) mod discussion;
pub(crate) mod impact;
pub(crate) mod lists;
pub(crate) mod noderole;
pub(crate) mod replan;
pub(crate) mod review;
pub(crate) mod role_values;
pub(crate) mod signatures;
pub(crate) mod submit;
pub(crate) mod summary;
pub(crate) mod viewed;
