//! The part of the graph that a change was given, and what the change made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Progress, Step, StepState};
use crate::cluster::EdgeKind;
use crate::ids::{NodeId, StepId};

/// An edge seen from its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// The child.
    pub step: StepId,
    /// What the edge means.
    pub kind: EdgeKind,
}

/// The steps that were loaded (and locked), and what is known of their surroundings.
///
/// An absent entry means "not loaded", never "none": a step without children has an empty list.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// The steps.
    pub steps: BTreeMap<StepId, Step>,
    /// All children of a step.
    pub children: BTreeMap<StepId, Vec<Child>>,
    /// All steps of a node. Only for changes of nodes.
    pub on_node: BTreeMap<NodeId, Vec<StepId>>,
}

impl World {
    /// Adds a step with all its children.
    pub fn add(&mut self, step: Step, children: Vec<Child>) {
        self.children.insert(step.id, children);
        self.steps.insert(step.id, step);
    }

    /// Writes an outcome into the steps, as the database does with its rows.
    pub fn take(&mut self, outcome: &Outcome) {
        for delta in &outcome.deltas {
            if let Some(step) = self.steps.get_mut(&delta.step) {
                step.progress = delta.now.clone();
            }
        }
    }
}

/// What a change needs and was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Steps.
    pub steps: BTreeSet<StepId>,
    /// Steps whose lists of children are needed.
    pub children_of: BTreeSet<StepId>,
    /// Nodes whose lists of steps are needed.
    pub on_nodes: BTreeSet<NodeId>,
}

impl Missing {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.children_of.is_empty() && self.on_nodes.is_empty()
    }
}

/// A step's new columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Which step.
    pub step: StepId,
    /// Its rank, for the order of writing.
    pub rank: u32,
    /// The state before. Differs from `now.state` where hooks, events and `since` have something to tell.
    pub was: StepState,
    /// All columns that transitions write, as they are now.
    pub now: Progress,
    /// When it may start, counted from now. None leaves what was set.
    pub not_before: Option<Duration>,
}

/// What a change did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Every step with a changed column, in (rank, id) order.
    pub deltas: Vec<Delta>,
    /// Steps left TODO that are to be settled by [`super::Change::Settle`]; see "Batches" in the theory.
    pub more: Vec<StepId>,
    /// Steps whose open attempt counts no more, because their node died: their runs are to be ended.
    pub outdated: Vec<StepId>,
}

impl Outcome {
    /// The two together, `next` applied to what this one left: each step's first state before, and its last columns.
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
        // What was left to settle and has moved since is passed over by whoever settles it.
        let more = self.more.into_iter().chain(next.more).collect::<BTreeSet<_>>();
        Self {
            deltas: deltas.into_values().collect(),
            more: more.into_iter().collect(),
            outdated: self.outdated.into_iter().chain(next.outdated).collect(),
        }
    }
}
