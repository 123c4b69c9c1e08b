//! The effect of a check's result on its step.
//!
//! A check counts consecutive failures. As many as its role allows take the step out of ACTIVE: it
//! runs again, or it is ERROR until the check passes. A step runs again once. If its check still
//! fails after that run, without having passed in between, the step is ERROR. Otherwise a broken
//! machine or a wrong check would run the step forever.

use super::Event;
use crate::catalog::{Check, OnFailure};

/// Results of the checks of a step at one generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckHistory {
    /// Consecutive failures. The first success and a re-run reset them.
    pub failures: u32,
    /// Whether a failure made the step run again since the last success.
    pub caused_rerun: bool,
}

/// A step whose check has a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedStep {
    /// Whether it is ERROR because of its check. Otherwise it is ACTIVE.
    pub is_failed: bool,
    /// Whether it must not run again.
    pub destructive: bool,
}

/// The history after a result, and the change of the step, if there is one.
///
/// `reason` is the output of a failed check, without secrets. `None` means that the check passed.
pub fn check_transition(
    policy: &Check,
    history: CheckHistory,
    step: CheckedStep,
    reason: Option<&str>,
) -> (CheckHistory, Option<Event>) {
    let Some(reason) = reason else {
        return (CheckHistory::default(), step.is_failed.then_some(Event::CheckPassed));
    };
    let failures = history.failures.saturating_add(1);
    if failures < policy.failures || step.is_failed {
        return (CheckHistory { failures, ..history }, None);
    }
    let rerun = policy.on_failure == OnFailure::Rerun && !history.caused_rerun && !step.destructive;
    let times =
        if failures == 1 { "once".to_owned() } else { format!("{failures} times in a row") };
    let again = if history.caused_rerun { ", also after the step ran again" } else { "" };
    let reason = format!("The check failed {times}{again}: {reason}");
    let after = match rerun {
        true => CheckHistory { failures: 0, caused_rerun: true },
        false => CheckHistory { failures, ..history },
    };
    (after, Some(Event::CheckFailed { reason, rerun }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVE: CheckedStep = CheckedStep { is_failed: false, destructive: false };
    const FAILED: CheckedStep = CheckedStep { is_failed: true, destructive: false };

    fn failure(history: CheckHistory, step: CheckedStep) -> (CheckHistory, Option<Event>) {
        check_transition(&Check { failures: 2, ..Check::DEFAULT }, history, step, Some("down"))
    }

    #[test]
    fn failures_in_a_row_rerun_the_step_once() {
        let (one, event) = failure(CheckHistory::default(), ACTIVE);
        assert_eq!((one, event), (CheckHistory { failures: 1, caused_rerun: false }, None));
        let (two, event) = failure(one, ACTIVE);
        assert_eq!(two, CheckHistory { failures: 0, caused_rerun: true });
        let reason = "The check failed 2 times in a row: down".to_owned();
        assert_eq!(event, Some(Event::CheckFailed { reason, rerun: true }));
        let (three, event) = failure(two, ACTIVE);
        assert_eq!((three, event), (CheckHistory { failures: 1, caused_rerun: true }, None));
        let (four, event) = failure(three, ACTIVE);
        assert_eq!(four, CheckHistory { failures: 2, caused_rerun: true });
        let Some(Event::CheckFailed { reason, rerun: false }) = event else { panic!("{event:?}") };
        assert_eq!(
            reason,
            "The check failed 2 times in a row, also after the step ran again: down"
        );
        let (five, event) = failure(four, FAILED);
        assert_eq!((five, event), (CheckHistory { failures: 3, caused_rerun: true }, None));
    }

    #[test]
    fn success_resets_the_history() {
        let policy = Check::DEFAULT;
        let history = CheckHistory { failures: 2, caused_rerun: true };
        let none = CheckHistory::default();
        assert_eq!(check_transition(&policy, history, ACTIVE, None), (none, None));
        assert_eq!(
            check_transition(&policy, history, FAILED, None),
            (none, Some(Event::CheckPassed))
        );
    }

    #[test]
    fn reported_and_destructive_steps_do_not_run_again() {
        let report = Check { failures: 1, on_failure: OnFailure::Report, ..Check::DEFAULT };
        let destructive = CheckedStep { destructive: true, ..ACTIVE };
        let rerun = Check { failures: 1, ..Check::DEFAULT };
        for (policy, step) in [(report, ACTIVE), (rerun, destructive)] {
            let (history, event) =
                check_transition(&policy, CheckHistory::default(), step, Some("down"));
            assert_eq!(history, CheckHistory { failures: 1, caused_rerun: false });
            assert!(matches!(event, Some(Event::CheckFailed { rerun: false, .. })), "{event:?}");
        }
    }
}
