//! The part of the graph that a change reads, and the outcome of the change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Progress, Step, StepState};
use crate::cluster::EdgeKind;
use crate::ids::{NodeId, StepId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    pub step: StepId,
    pub kind: EdgeKind,
}

/// The steps that were loaded (and locked), with their children and nodes.
///
/// An absent entry means "not loaded", never "none": a step without children has an empty list.
///
/// States can move until the rows are locked, so a database loads the steps in a loop:
///
/// ```text
/// to_load := the step and its children
/// loop
///     savepoint; lock and read all of `to_load` in (rank, id) order, with their lists of children
///     apply(world, change)
///         Ok(outcome)      -> write the deltas, done
///         Err(Missing(m))  -> roll back to the savepoint (this releases the locks), to_load += m
/// ```
///
/// The loop ends because `to_load` only grows. Each hop of a chain that was not loaded costs
/// another round. One recursive query can load the children that are reachable through immediate
/// steps. This is safe because edges and immediate steps change only in a commit.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub steps: BTreeMap<StepId, Step>,
    pub children: BTreeMap<StepId, Vec<Child>>,
    /// Loaded only for changes of nodes.
    pub on_node: BTreeMap<NodeId, Vec<StepId>>,
}

impl World {
    pub fn add(&mut self, step: Step, children: Vec<Child>) {
        self.children.insert(step.id, children);
        self.steps.insert(step.id, step);
    }

    /// Applies an outcome to the steps, as the database does with its rows.
    pub fn take(&mut self, outcome: &Outcome) {
        for delta in &outcome.deltas {
            if let Some(step) = self.steps.get_mut(&delta.step) {
                step.progress = delta.now.clone();
            }
        }
    }
}

/// The rows that a change needs and that were not loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    pub steps: BTreeSet<StepId>,
    pub children_of: BTreeSet<StepId>,
    pub by_node: BTreeSet<NodeId>,
}

impl Missing {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.children_of.is_empty() && self.by_node.is_empty()
    }
}

/// The new values of a step's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    pub step: StepId,
    /// Decides the order of writing.
    pub rank: u32,
    /// The previous state. If it differs from `now.state`, then hooks, events and `since` apply.
    pub was: StepState,
    /// All columns that transitions write.
    pub now: Progress,
    /// The earliest start, counted from now. `None` keeps the stored value.
    pub not_before: Option<Duration>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Every step with a changed column, in (rank, id) order.
    pub deltas: Vec<Delta>,
    /// Steps left in TODO for [`super::Change::Settle`]; see [`super::BATCH`].
    pub more: Vec<StepId>,
    /// Steps whose node died during their open attempt. The caller ends these runs.
    pub outdated: Vec<StepId>,
}

impl Outcome {
    /// Merges this outcome with `next`, which was applied to the result of this one.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let mut deltas: BTreeMap<(u32, StepId), Delta> =
            self.deltas.into_iter().map(|delta| ((delta.rank, delta.step), delta)).collect();
        for mut delta in next.deltas {
            if let Some(before) = deltas.get(&(delta.rank, delta.step)) {
                delta.was = before.was;
                delta.not_before = delta.not_before.or(before.not_before);
            }
            deltas.insert((delta.rank, delta.step), delta);
        }
        // [`super::Change::Settle`] skips steps that have moved since.
        let more = self.more.into_iter().chain(next.more).collect::<BTreeSet<_>>();
        Self {
            deltas: deltas.into_values().collect(),
            more: more.into_iter().collect(),
            outdated: self.outdated.into_iter().chain(next.outdated).collect(),
        }
    }
}
