//! Runs: the list, logs, pending steps, and the operations that need no review.

pub(crate) mod list;
pub mod logs;
pub(crate) mod operations;
pub(crate) mod pending;

use api::runs::StateCounts;

/// The numbers of steps for the API.
pub(crate) fn step_counts(counts: store::runs::StateCounts) -> StateCounts {
    let store::runs::StateCounts {
        blocked,
        todo,
        transition,
        active,
        error,
        stale,
        comparing,
        unchecked,
    } = counts;
    StateCounts { blocked, todo, transition, active, error, stale: stale + comparing, unchecked }
}
