//! Compares the present input of applied steps with the input of their last run, and runs stale
//! steps again.
//!
//! The store marks steps whose input may have changed ([`store::runs::changed_inputs`]). Most
//! comparisons find the same input, because a parent ran again with the same output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use engine::catalog::OnInput;
use engine::ids::{NodeId, StepId};
use store::runs::{self, ChangedInput, ComparedInput, InputFinding, VisibleStep};

use crate::run::prepare::CurrentInput;
use crate::run::runner::Runner;

/// Maximum steps whose input is read at once.
const BATCH: i64 = 100;

/// Compares the inputs of steps.
pub struct CompareInputs {
    /// Reads documents and computes the hash, like for a run.
    pub runner: Arc<Runner>,
    /// Interval of the sweep that makes up for lost notifications.
    pub sweep: Duration,
    pub deferred: Deferred,
}

/// Steps that are not compared now, each with the reason. Without this list, they would fill every
/// batch, and all other steps would wait for them.
#[derive(Debug, Default)]
pub struct Deferred {
    /// An ancestor of each step that is not ACTIVE. Its run may change the step's input, also if
    /// all parents of the step are ACTIVE.
    waiting: BTreeMap<StepId, StepId>,
    /// Steps whose input could not be read. The next sweep tries again.
    unreadable: BTreeSet<StepId>,
}

impl Deferred {
    fn steps(&self) -> impl Iterator<Item = StepId> + '_ {
        self.waiting.keys().chain(&self.unreadable).copied()
    }
}

impl Task for CompareInputs {
    fn name(&self) -> &'static str {
        "compare-inputs"
    }

    fn purpose(&self) -> &'static str {
        "Runs steps again whose input has changed since their last run."
    }

    fn period(&self) -> Duration {
        self.sweep
    }

    async fn run(&mut self) -> TaskResult {
        let failed = |error| Failure::logged("Cannot compare inputs", error);
        self.resume_deferred().await.map_err(failed)?;
        let mut again = 0;
        while let Some(reruns) = self.compare_batch().await.map_err(failed)? {
            again += reruns;
        }
        Ok(Outcome::counted(again, "Rerun:", "step", "steps", "No step is stale."))
    }
}

impl CompareInputs {
    /// Forgets the deferred steps whose ancestor is ACTIVE by now.
    async fn resume_deferred(&mut self) -> Result<(), store::StoreError> {
        self.deferred.unreadable.clear();
        if self.deferred.waiting.is_empty() {
            return Ok(());
        }
        let ancestors: BTreeSet<StepId> = self.deferred.waiting.values().copied().collect();
        let open = runs::steps_not_active(&self.runner.preparer.pool, ancestors).await?;
        self.deferred.waiting.retain(|_, ancestor| open.contains(ancestor));
        Ok(())
    }

    /// Returns how many steps run again. `None` if no step is left to compare.
    async fn compare_batch(&mut self) -> Result<Option<u64>, store::StoreError> {
        let runner = Arc::clone(&self.runner);
        let pool = &runner.preparer.pool;
        let changed = runs::changed_inputs(pool, self.deferred.steps(), BATCH).await?;
        if changed.is_empty() {
            return Ok(None);
        }
        let (immediate, steps): (Vec<_>, Vec<_>) =
            changed.iter().partition(|changed| changed.immediate);
        let of: Vec<(StepId, NodeId)> = steps.iter().map(|step| (step.step, step.node)).collect();
        let mut seen: BTreeMap<StepId, Vec<VisibleStep>> = runs::visible_steps(pool, &of).await?;
        let mut results = Vec::new();
        for step in steps {
            let seen = seen.remove(&step.step).unwrap_or_default();
            if let Some(ancestor) = open_ancestor(&seen) {
                self.deferred.waiting.insert(step.step, ancestor);
                continue;
            }
            let Some(finding) = self.compare(step, seen).await else {
                self.deferred.unreadable.insert(step.step);
                continue;
            };
            results.push(ComparedInput { step: step.step, version: step.version, finding });
        }
        // Before a step is settled, so that no change is lost if this process ends in between. A
        // step whose input cannot be read passes nothing on, or its children would be compared
        // without end.
        let immediate = immediate.iter().map(|changed| (changed.step, Some(changed.version)));
        let pass_on: Vec<(StepId, Option<i32>)> =
            immediate.chain(results.iter().map(|result| (result.step, None))).collect();
        if !pass_on.is_empty() {
            runs::pass_on_changed_inputs(pool, &pass_on).await?;
        }
        let mut again = 0;
        for result in results {
            again += u64::from(runs::settle_input(pool, result).await?);
        }
        Ok(Some(again))
    }

    /// Returns `None` if the input cannot be read.
    async fn compare(&self, step: &ChangedInput, seen: Vec<VisibleStep>) -> Option<InputFinding> {
        let CurrentInput { hash, policy } =
            match self.runner.preparer.current_input(step, seen).await {
                Ok(found) => found?,
                Err(error) => {
                    tracing::warn!(step = %step.step, %error, "cannot compare the input of a step");
                    return None;
                }
            };
        Some(match (hash, step.applied, policy) {
            (Some(hash), None, _) => InputFinding::Unknown(hash),
            (Some(hash), Some(applied), _) if applied == hash => InputFinding::Same,
            (_, _, OnInput::Rerun) => InputFinding::Rerun,
            (_, _, OnInput::Report) => InputFinding::Reported,
            (_, _, OnInput::Ignore) => InputFinding::Ignored,
        })
    }
}

fn open_ancestor(seen: &[VisibleStep]) -> Option<StepId> {
    let open = seen.iter().find(|visible| visible.distance.is_some() && !visible.step.active);
    open.map(|visible| visible.step.step)
}
