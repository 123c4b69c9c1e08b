//! Decides from health checks whether a node is alive.
//!
//! One failed check may be a lost packet. One successful check may be a machine that reboots in a
//! loop. A change of aliveness moves steps, ends runs and alerts people, so it takes several checks
//! in a row. One success is enough for a node that was never alive, because nothing depends on it
//! yet.
//!
//! A node's own report is only a hint, because anyone with the node's token can send it. It changes
//! nothing by itself, but one health check that agrees is then enough. A check that disagrees
//! clears the hint.
//!
//! A changed boot id proves a restart, which stops everything on the node. So the node counts as
//! dead and alive again, however fast it restarted. The same boot id before and after an absence
//! proves that there was none.
//!
//! This module has no clock. The caller decides when to check; only the order of the results
//! counts.

use serde::{Deserialize, Serialize};

/// Consecutive failed checks after which an alive node counts as dead.
pub const FAILURE_THRESHOLD: u32 = 3;
/// Consecutive successful checks after which a dead node counts as alive again.
pub const SUCCESS_THRESHOLD: u32 = 2;

/// Result of a connection attempt to one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TriedAddress {
    /// The address.
    pub address: String,
    /// Whether the login succeeded.
    pub reached: bool,
    /// Reason for the failure.
    pub error: String,
}

/// Believed aliveness of a node, with the evidence contradicting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Liveness {
    /// Whether the node counts as alive.
    pub alive: bool,
    /// Whether the node was ever alive.
    pub known: bool,
    /// Evidence contradicting `alive`: the number of consecutive health checks that contradict it.
    /// A report of the node itself that contradicts it counts as all but one of the required
    /// checks.
    pub contradicting: u32,
}

impl Liveness {
    /// The liveness after one more health check.
    #[must_use]
    pub fn after(self, reached: bool) -> Self {
        if reached == self.alive {
            return Self { contradicting: 0, ..self };
        }
        let contradicting = self.contradicting + 1;
        if contradicting < self.threshold() {
            return Self { contradicting, ..self };
        }
        Self { alive: reached, known: self.known || reached, contradicting: 0 }
    }

    /// The liveness after the node itself reports a start-up or a shutdown.
    #[must_use]
    pub fn after_report(self, up: bool) -> Self {
        if up == self.alive {
            return self;
        }
        Self { contradicting: self.contradicting.max(self.threshold() - 1), ..self }
    }

    /// The number of consecutive contradicting checks that change `alive`.
    pub fn threshold(self) -> u32 {
        match (self.alive, self.known) {
            (true, _) => FAILURE_THRESHOLD,
            (false, true) => SUCCESS_THRESHOLD,
            (false, false) => 1,
        }
    }
}

/// Whether two boot ids prove a restart. An empty id or [`NO_BOOT_ID`] proves nothing.
pub fn restarted(before: &str, now: &str) -> bool {
    let is_known = |id: &str| !id.is_empty() && id != NO_BOOT_ID;
    is_known(before) && is_known(now) && before != now
}

/// Whether two boot ids prove that there was no restart.
pub fn is_same_boot(before: &str, now: &str) -> bool {
    !before.is_empty() && before != NO_BOOT_ID && before == now
}

/// The boot id of a system that has none.
pub const NO_BOOT_ID: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEW: Liveness = Liveness { alive: false, known: false, contradicting: 0 };

    fn after(checks: &[bool]) -> bool {
        checks.iter().fold(NEW, |liveness, reached| liveness.after(*reached)).alive
    }

    #[test]
    fn first_success_counts_and_single_failure_does_not() {
        assert!(after(&[false, true]));
        assert!(after(&[true, false, false]));
        assert!(!after(&[true, false, false, false]));
        assert!(
            after(&[true, false, false, true, false, false]),
            "the node fails two health checks in a row"
        );
        assert!(
            !after(&[true, false, false, false, true]),
            "one success does not make a dead node alive"
        );
        assert!(after(&[true, false, false, false, true, true]));
    }

    #[test]
    fn node_report_needs_one_confirming_check() {
        let alive = NEW.after(true);
        assert!(alive.after_report(false).alive && !alive.after_report(false).after(false).alive);
        assert_eq!(
            alive.after_report(false).after(true),
            alive,
            "a successful health check overrides the report"
        );
        let died = (0..FAILURE_THRESHOLD).fold(alive, |liveness, _| liveness.after(false));
        assert!(!died.after_report(true).alive && died.after_report(true).after(true).alive);
        assert_eq!(alive.after_report(true), alive);
        assert_eq!(died.after_report(true).after(false), died);
    }

    #[test]
    fn restart_requires_two_known_boot_ids() {
        assert!(restarted("a", "b") && !restarted("a", "a"));
        for (before, now) in [("", "a"), ("a", ""), (NO_BOOT_ID, "a"), ("a", NO_BOOT_ID)] {
            assert!(!restarted(before, now), "{before:?} {now:?}");
            assert!(!is_same_boot(before, now), "{before:?} {now:?}");
        }
        assert!(is_same_boot("a", "a") && !is_same_boot("a", "b"));
        assert!(!is_same_boot("", "") && !is_same_boot(NO_BOOT_ID, NO_BOOT_ID));
    }

    proptest! {
        /// `alive` never changes before the required number of checks, and follows
        /// [`FAILURE_THRESHOLD`] equal checks.
        #[test]
        fn aliveness_changes_exactly_at_limit(checks in prop::collection::vec(any::<bool>(), 0..40)) {
            let mut liveness = NEW;
            let mut same = 0;
            for (n, reached) in checks.iter().enumerate() {
                let next = liveness.after(*reached);
                same = if n > 0 && checks[n - 1] == *reached { same + 1 } else { 1 };
                if next.alive != liveness.alive {
                    let least = if liveness.alive { FAILURE_THRESHOLD } else if liveness.known { SUCCESS_THRESHOLD } else { 1 };
                    prop_assert!(same >= least && next.alive == *reached && next.contradicting == 0);
                }
                prop_assert!(same < FAILURE_THRESHOLD || next.alive == *reached);
                liveness = next;
            }
        }
    }
}
