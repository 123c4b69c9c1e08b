//! Retention of results.
//!
//! The result of a failed attempt is valuable. If it returned the name of a volume that it created,
//! the next attempt must not create another. The results of all attempts are therefore retained for
//! their node until the node's deletion is confirmed. They are bounded, since a step may be tried
//! indefinitely:
//!
//! * The newest [`MAX_RESULTS_PER_STEP`] results of each step.
//! * At most [`MAX_RESULTS_PER_NODE`] results and [`MAX_RESULT_BYTES_PER_NODE`] bytes per node.
//!   Above that, the newest result of each step is retained longest.
//!
//! An attempt that returned nothing has no result and displaces none.

use std::collections::BTreeMap;

use crate::ids::{RunId, StepId};

/// Maximum number of results per step.
pub const MAX_RESULTS_PER_STEP: usize = 10;
/// Maximum number of results per node.
pub const MAX_RESULTS_PER_NODE: usize = 500;
/// Maximum size of one node's results as JSON, in bytes (4 MiB).
pub const MAX_RESULT_BYTES_PER_NODE: u64 = 4 << 20;

/// A stored result of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Result {
    /// The attempt. Later attempts have higher numbers.
    pub run: RunId,
    pub step: StepId,
    /// Size as JSON.
    pub bytes: u64,
}

/// The results of a node to delete, ordered by run. The input can be in any order.
pub fn expired_results(results: &[Result]) -> Vec<RunId> {
    let mut newest_first = results.to_vec();
    newest_first.sort_by_key(|result| std::cmp::Reverse(result.run));
    let mut seen: BTreeMap<StepId, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Result)> = newest_first
        .into_iter()
        .map(|result| {
            let nth = seen.entry(result.step).or_default();
            *nth += 1;
            (*nth, result)
        })
        .collect();
    ranked.sort_by_key(|(nth, result)| (*nth, std::cmp::Reverse(result.run)));
    let (mut count, mut bytes) = (0, 0);
    let mut gone: Vec<RunId> = ranked
        .into_iter()
        .filter(|(nth, result)| {
            count += 1;
            bytes += result.bytes;
            *nth > MAX_RESULTS_PER_STEP
                || count > MAX_RESULTS_PER_NODE
                || bytes > MAX_RESULT_BYTES_PER_NODE
        })
        .map(|(_, result)| result.run)
        .collect();
    gone.sort_unstable();
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn result(run: i64, step: u128, bytes: u64) -> Result {
        Result { run: RunId(run), step: StepId(Uuid::from_u128(step)), bytes }
    }

    #[test]
    fn newest_results_of_each_step_are_retained() {
        let many: Vec<Result> =
            (1..=12).map(|run| result(run, 1, 5)).chain([result(13, 2, 5)]).collect();
        assert_eq!(expired_results(&many), [RunId(1), RunId(2)]);
        assert_eq!(expired_results(&many[2..]), []);
    }

    #[test]
    fn newest_result_per_step_outlasts_byte_limit() {
        let half = MAX_RESULT_BYTES_PER_NODE / 2;
        // Step 1 returned one old result; step 2 returns results often.
        let results = [result(1, 1, 1), result(2, 2, half), result(3, 2, half), result(4, 2, half)];
        assert_eq!(expired_results(&results), [RunId(2), RunId(3)]);
    }

    proptest! {
        #[test]
        fn retention_respects_limits_and_is_idempotent(
            results in proptest::collection::vec((0..40u128, 0..(MAX_RESULT_BYTES_PER_NODE / 20)), 0..700),
        ) {
            let results: Vec<Result> =
                results.into_iter().enumerate().map(|(run, (step, bytes))| result(run as i64, step, bytes)).collect();
            let gone = expired_results(&results);
            let remaining: Vec<Result> = results.iter().filter(|r| !gone.contains(&r.run)).copied().collect();
            prop_assert!(remaining.len() <= MAX_RESULTS_PER_NODE);
            prop_assert!(remaining.iter().map(|r| r.bytes).sum::<u64>() <= MAX_RESULT_BYTES_PER_NODE);
            for one in &remaining {
                let newer = remaining.iter().filter(|r| r.step == one.step && r.run > one.run).count();
                prop_assert!(newer < MAX_RESULTS_PER_STEP);
                prop_assert!(!gone.iter().any(|gone| *gone > one.run && results.iter().any(|r| r.run == *gone && r.step == one.step)));
            }
            prop_assert!(expired_results(&remaining).is_empty());
        }
    }
}
