//! The progress of a blueprint: converged, stuck or in progress.

use std::time::Duration;

use api::Problem;
use api::blueprints::{BlueprintView, Progress};
use api::runs::StateCounts;
use engine::ids::BlueprintNumber;
use sqlx::PgConnection;
use store::runs::{PendingScope, UnappliedSteps};

use super::to_blueprint_summary;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_blueprint};
use crate::runs::pending::DEFAULT_LIMITS;
use crate::runs::step_counts;
use crate::{Control, done};

/// How often to poll a target while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Control {
    /// A target and its progress.
    pub async fn target(
        &self,
        actor: &Actor,
        number: BlueprintNumber,
    ) -> Result<BlueprintView, Problem> {
        actor.require(Permission::Viewer)?;
        let mut view = self.snapshot().await?;
        let target = self.target_in(&mut view, number).await?;
        done(view).await?;
        Ok(target)
    }

    /// As [`Self::target`], in a snapshot: the progress and the obstacles must come from the same
    /// one.
    pub(crate) async fn target_in(
        &self,
        view: &mut PgConnection,
        number: BlueprintNumber,
    ) -> Result<BlueprintView, Problem> {
        let row = store::blueprints::target(view, number).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_blueprint(number))?;
        let (steps, applied) =
            store::runs::blueprint_step_counts(view, number).await.map_err(from_store)?;
        let comparing = steps.comparing > 0 || steps.unchecked > 0;
        let steps = step_counts(steps);
        let unapplied_steps = match applied == all(&steps) {
            true => UnappliedSteps::default(),
            false => {
                store::runs::unapplied_steps(view, DEFAULT_LIMITS, PendingScope::Target(number))
                    .await
                    .map_err(from_store)?
            }
        };
        Ok(BlueprintView {
            progress: progress(&steps, applied, comparing, unapplied_steps),
            steps,
            applied,
            blueprint: to_blueprint_summary(row)?,
        })
    }

    /// Like [`Self::target`], but waits until the target converges or is stuck, or until the
    /// timeout.
    pub async fn wait_for_blueprint(
        &self,
        actor: &Actor,
        number: BlueprintNumber,
        timeout: Duration,
    ) -> Result<BlueprintView, Problem> {
        let end = tokio::time::Instant::now() + timeout;
        loop {
            let started = tokio::time::Instant::now();
            let view = self.target(actor, number).await?;
            let now = tokio::time::Instant::now();
            if view.progress != Progress::InProgress || now >= end {
                return Ok(view);
            }
            // Poll less often if counting takes long.
            let pause = POLL_INTERVAL.max((now - started) * 10);
            tokio::time::sleep_until((now + pause).min(end)).await;
        }
    }
}

pub(crate) fn all(steps: &StateCounts) -> i64 {
    steps.blocked + steps.todo + steps.transition + steps.active + steps.error
}

/// Whether a target has converged, is stuck or is under way. It is stuck if every obstacle needs a
/// person. Blocked steps alone do not prove that: their parents may belong to another target and
/// run. If not all ancestors were examined (`more`), one of them may run. While inputs are
/// compared, and while a check does not pass, steps may run again. A stale step waits for a person.
pub(crate) fn progress(
    steps: &StateCounts,
    applied: i64,
    comparing: bool,
    unapplied_steps: UnappliedSteps,
) -> Progress {
    match unapplied_steps {
        _ if applied == all(steps) && comparing => Progress::InProgress,
        _ if applied == all(steps) && steps.stale > 0 => Progress::Stuck,
        _ if applied == all(steps) => Progress::Converged,
        UnappliedSteps { moving: 0, resting, more: false } if resting > 0 || steps.blocked == 0 => {
            Progress::Stuck
        }
        _ => Progress::InProgress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_stuck_when_only_people_can_help() {
        let steps = |blocked, todo, transition, active, error| StateCounts {
            blocked,
            todo,
            transition,
            active,
            error,
            stale: 0,
            unchecked: 0,
        };
        let progress_of = |steps, applied, moving, resting| {
            progress(&steps, applied, false, UnappliedSteps { moving, resting, more: false })
        };
        assert_eq!(
            progress_of(steps(0, 0, 0, 0, 0), 0, 0, 0),
            Progress::Converged,
            "the blueprint changed no steps, or later blueprints replaced them"
        );
        assert_eq!(progress_of(steps(0, 0, 0, 3, 0), 3, 0, 0), Progress::Converged);
        assert_eq!(
            progress_of(steps(2, 0, 0, 3, 0), 3, 1, 0),
            Progress::InProgress,
            "the running parent belongs to another blueprint"
        );
        assert_eq!(
            progress_of(steps(2, 0, 0, 3, 0), 3, 0, 0),
            Progress::InProgress,
            "the parents are done"
        );
        assert_eq!(progress_of(steps(2, 1, 0, 3, 0), 3, 1, 0), Progress::InProgress);
        assert_eq!(progress_of(steps(0, 0, 1, 3, 1), 3, 1, 1), Progress::InProgress);
        assert_eq!(progress_of(steps(2, 0, 0, 3, 1), 3, 0, 1), Progress::Stuck);
        assert_eq!(
            progress_of(steps(2, 0, 0, 3, 0), 3, 0, 1),
            Progress::Stuck,
            "another blueprint's step failed"
        );
        assert_eq!(
            progress_of(steps(2, 1, 0, 3, 0), 3, 0, 1),
            Progress::Stuck,
            "the deployment is on hold"
        );
        assert_eq!(
            progress_of(steps(0, 0, 0, 3, 0), 2, 0, 0),
            Progress::Stuck,
            "no run is open, but one step has not applied the blueprint"
        );
        let none = UnappliedSteps { moving: 0, resting: 0, more: false };
        let stale = StateCounts { stale: 1, ..steps(0, 0, 0, 3, 0) };
        assert_eq!(
            progress(&stale, 3, false, none),
            Progress::Stuck,
            "only a person runs a stale step again"
        );
        assert_eq!(
            progress(&stale, 3, true, none),
            Progress::InProgress,
            "inputs are compared first"
        );
        assert_eq!(progress(&steps(0, 0, 0, 3, 0), 3, true, none), Progress::InProgress);
        let far = UnappliedSteps { moving: 0, resting: 10_000, more: true };
        assert_eq!(
            progress(&steps(90_000, 0, 0, 3, 1), 3, false, far),
            Progress::InProgress,
            "steps outside of the hold can run"
        );
    }
}
