//! Whether a node is alive, out of what came of looking.
//!
//! A look is one try to reach a node and to be let in. One that fails may be a packet that got lost, and one that succeeds may be a
//! machine that reboots in a loop; and each turn of *alive* moves steps, ends runs, and rings in people's ears. So a node turns only when
//! several looks in a row say so. The first of all is believed: nothing depends yet on a node that nobody has ever reached.
//!
//! Nothing here knows the time. How often somebody looks is the caller's; what counts is what came, in its order.

use serde::{Deserialize, Serialize};

/// Looks in a row that must fail before a node that is alive counts as dead.
pub const FAILURES: u32 = 3;
/// Looks in a row that must succeed before a node that died counts as alive again.
pub const SUCCESSES: u32 = 2;

/// What is believed of a node, and how much speaks against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    /// Whether it is alive.
    pub alive: bool,
    /// Whether it ever was.
    pub known: bool,
    /// Looks in a row that said otherwise.
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
        let enough = match (self.alive, self.known) {
            (true, _) => FAILURES,
            (false, true) => SUCCESSES,
            (false, false) => 1,
        };
        if against < enough {
            return Self { against, ..self };
        }
        Self { alive: reached, known: self.known || reached, against: 0 }
    }
}

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
