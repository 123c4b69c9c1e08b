//! Which results are kept.
//!
//! What an attempt returned is worth more than its outcome: a run that failed after it had made a volume has told its name, and the
//! next attempt must not make another. So the results of all attempts are kept for their node, whatever became of them, until the node's
//! deletion is confirmed. They are bounded all the same, since a step may be tried for ever:
//!
//! * of each step the newest [`OF_STEP`];
//! * of each node [`OF_NODE`] in all, and [`BYTES_OF_NODE`] bytes. Where that is too little, the newest of every step stay longest.
//!
//! An attempt that returned nothing has no result, and pushes none out.

use std::collections::BTreeMap;

use crate::ids::{RunId, StepId};

/// Most results of one step.
pub const OF_STEP: usize = 10;
/// Most results of one node.
pub const OF_NODE: usize = 500;
/// Most bytes of one node's results (4 MiB), as JSON.
pub const BYTES_OF_NODE: u64 = 4 << 20;

/// A result that a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Result {
    /// Of which attempt. Later ones have higher numbers.
    pub run: RunId,
    /// Of which step.
    pub step: StepId,
    /// As JSON.
    pub bytes: u64,
}

/// Those of a node's results, in any order, that are not kept any longer; in the order of their runs.
pub fn outworn(results: &[Result]) -> Vec<RunId> {
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
            *nth > OF_STEP || count > OF_NODE || bytes > BYTES_OF_NODE
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
    fn of_each_step_the_newest_stay() {
        let many: Vec<Result> =
            (1..=12).map(|run| result(run, 1, 5)).chain([result(13, 2, 5)]).collect();
        assert_eq!(outworn(&many), [RunId(1), RunId(2)]);
        assert_eq!(outworn(&many[2..]), []);
    }

    #[test]
    fn where_a_node_has_too_many_bytes_the_last_word_of_each_step_stays_longest() {
        let half = BYTES_OF_NODE / 2;
        // Step 1 spoke once, long ago; step 2 speaks all the time.
        let results = [result(1, 1, 1), result(2, 2, half), result(3, 2, half), result(4, 2, half)];
        assert_eq!(outworn(&results), [RunId(2), RunId(3)]);
    }

    proptest! {
        #[test]
        fn what_stays_is_within_bounds_and_stays_the_second_time(
            results in proptest::collection::vec((0..40u128, 0..(BYTES_OF_NODE / 20)), 0..700),
        ) {
            let results: Vec<Result> =
                results.into_iter().enumerate().map(|(run, (step, bytes))| result(run as i64, step, bytes)).collect();
            let gone = outworn(&results);
            let kept: Vec<Result> = results.iter().filter(|r| !gone.contains(&r.run)).copied().collect();
            prop_assert!(kept.len() <= OF_NODE);
            prop_assert!(kept.iter().map(|r| r.bytes).sum::<u64>() <= BYTES_OF_NODE);
            for one in &kept {
                let newer = kept.iter().filter(|r| r.step == one.step && r.run > one.run).count();
                prop_assert!(newer < OF_STEP);
                prop_assert!(!gone.iter().any(|gone| *gone > one.run && results.iter().any(|r| r.run == *gone && r.step == one.step)));
            }
            prop_assert!(outworn(&kept).is_empty());
        }
    }
}
