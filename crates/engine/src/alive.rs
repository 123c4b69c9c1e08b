//! Whether a node is alive, out of what came of looking.
//!
//! A look is one try to reach a node and to be let in. One that fails may be a packet that got lost, and one that succeeds may be a
//! machine that reboots in a loop; and each turn of *alive* moves steps, ends runs, and rings in people's ears. So a node turns only when
//! several looks in a row say so. The first of all is believed: nothing depends yet on a node that nobody has ever reached.
//!
//! What a machine says of itself is a hint and no look: whoever has its token may say anything. So a word of its own turns nothing, it
//! only spares it the row of looks: the next one that agrees is enough, and one that does not agree ends it.
//!
//! A machine that was restarted tells by its boot id, which whoever is let in reads. Nothing that ran on it runs any more, however quickly
//! it came back: it counts as having died and come back in between.
//!
//! Nothing here knows the time. How often somebody looks is the caller's; what counts is what came, in its order.

use serde::{Deserialize, Serialize};

/// Looks in a row that must fail before a node that is alive counts as dead.
pub const FAILURES: u32 = 3;
/// Looks in a row that must succeed before a node that died counts as alive again.
pub const SUCCESSES: u32 = 2;

/// What is believed of a node, and how much speaks against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Belief {
    /// Whether it is alive.
    pub alive: bool,
    /// Whether it ever was.
    pub known: bool,
    /// What speaks against it, in looks: those in a row that said otherwise. A word of the machine's own ([`Self::told`]) counts as all
    /// but the last of those that it takes.
    pub against: u32,
}

impl Belief {
    /// What is believed after one more look.
    #[must_use]
    pub fn after(self, reached: bool) -> Self {
        if reached == self.alive {
            return Self { against: 0, ..self };
        }
        let against = self.against + 1;
        if against < self.enough() {
            return Self { against, ..self };
        }
        Self { alive: reached, known: self.known || reached, against: 0 }
    }

    /// What is believed once the machine itself says that it has come up, or goes down.
    #[must_use]
    pub fn told(self, up: bool) -> Self {
        if up == self.alive {
            return self;
        }
        Self { against: self.against.max(self.enough() - 1), ..self }
    }

    /// How much has to speak against it to turn it: so many looks in a row, where the machine itself says nothing.
    pub fn enough(self) -> u32 {
        match (self.alive, self.known) {
            (true, _) => FAILURES,
            (false, true) => SUCCESSES,
            (false, false) => 1,
        }
    }
}

/// Whether two boot ids tell of two starts of a machine. A system that has none says so, and then nobody knows.
pub fn restarted(before: &str, now: &str) -> bool {
    let says = |id: &str| !id.is_empty() && id != NO_BOOT_ID;
    says(before) && says(now) && before != now
}

/// What stands for the boot id of a system that has none.
pub const NO_BOOT_ID: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEW: Belief = Belief { alive: false, known: false, against: 0 };

    fn after(looks: &[bool]) -> bool {
        looks.iter().fold(NEW, |belief, reached| belief.after(*reached)).alive
    }

    #[test]
    fn the_first_answer_is_believed_and_a_lost_packet_is_not() {
        assert!(after(&[false, true]));
        assert!(after(&[true, false, false]));
        assert!(!after(&[true, false, false, false]));
        assert!(after(&[true, false, false, true, false, false]), "in a row");
        assert!(!after(&[true, false, false, false, true]), "one answer of a dead machine");
        assert!(after(&[true, false, false, false, true, true]));
    }

    #[test]
    fn a_word_of_its_own_turns_nothing_and_spares_the_row_of_looks() {
        let alive = NEW.after(true);
        assert!(alive.told(false).alive && !alive.told(false).after(false).alive);
        assert_eq!(alive.told(false).after(true), alive, "who is still let in beats what it said");
        let died = (0..FAILURES).fold(alive, |belief, _| belief.after(false));
        assert!(!died.told(true).alive && died.told(true).after(true).alive);
        assert_eq!(alive.told(true), alive);
        assert_eq!(died.told(true).after(false), died);
    }

    #[test]
    fn only_two_boot_ids_tell_of_a_restart() {
        assert!(restarted("a", "b") && !restarted("a", "a"));
        for (before, now) in [("", "a"), ("a", ""), (NO_BOOT_ID, "a"), ("a", NO_BOOT_ID)] {
            assert!(!restarted(before, now), "{before:?} {now:?}");
        }
    }

    proptest! {
        /// It never turns on less than it asks for, and always turns on that.
        #[test]
        fn a_turn_takes_what_it_takes(looks in prop::collection::vec(any::<bool>(), 0..40)) {
            let mut belief = NEW;
            let mut same = 0;
            for (n, reached) in looks.iter().enumerate() {
                let next = belief.after(*reached);
                same = if n > 0 && looks[n - 1] == *reached { same + 1 } else { 1 };
                if next.alive != belief.alive {
                    let least = if belief.alive { FAILURES } else if belief.known { SUCCESSES } else { 1 };
                    prop_assert!(same >= least && next.alive == *reached && next.against == 0);
                }
                prop_assert!(same < FAILURES || next.alive == *reached);
                belief = next;
            }
        }
    }
}
