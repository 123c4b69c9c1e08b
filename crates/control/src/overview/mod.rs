//! The cluster state in a few queries (for pages, API clients and metrics), the policy in force,
//! and the progress of targets.
//!
//! Nothing is cached here: all numbers are current. Callers that ask often (metrics) cache the
//! result for a moment.

pub(crate) mod first_steps;
pub(crate) mod frame;

use std::time::Duration;

use api::Problem;
use api::overview::{
    BlueprintView, DeploymentProgress, DeploymentTally, Hour, MAX_COMMITS, NodeTally, Overview,
    PolicyView, Progress, QueueTally, WorkerTally,
};
use api::pending::PendingQuery;
use api::runs::StateCounts;
use engine::ids::BlueprintNumber;
use store::runs::{InTheWay, PendingScope, Tally};

use crate::blueprints::to_blueprint_summary;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::runs::pending::DEFAULT_LIMITS;
use crate::runs::step_counts;
use crate::text::at;
use crate::{Control, done};

/// Runs of the last 24 hours are counted up to this limit.
const MAX_COUNTED_RUNS: i64 = 50_000;

/// Numbers for metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers {
    /// All numbers except step counts.
    pub tally: Tally,
    pub steps: StateCounts,
}

impl Control {
    pub async fn overview(&self, actor: &Actor) -> Result<Overview, Problem> {
        actor.require(Permission::Viewer)?;
        let stuck = self.pending(actor, &PendingQuery::default()).await?.groups;
        let present = self.present().await?;
        let reviews = self.waiting_for(actor, &present).await?;
        let Numbers { tally, steps } = self.numbers().await?;
        let first_steps = self.first_steps(actor, &present).await?;
        let mut connection = self.connection().await?;
        let hours =
            store::runs::hours(&mut connection, MAX_COUNTED_RUNS).await.map_err(from_store)?;
        let hour = |row: store::runs::HourRow| Hour {
            from: at(row.hour),
            runs: row.runs,
            failed: row.failed,
        };
        let rows =
            store::blueprints::targets(&mut connection, None, true, None, MAX_COMMITS as u64)
                .await
                .map_err(from_store)?;
        let commits = rows.into_iter().map(to_blueprint_summary).collect::<Result<_, _>>()?;
        Ok(Overview {
            blueprint: present.head.number,
            enabled: present.head.enabled,
            deployments: DeploymentTally {
                all: tally.deployments,
                on_hold: tally.held,
                proposed: tally.proposed,
            },
            nodes: NodeTally { all: tally.nodes, dead: tally.dead, maintenance: tally.maintenance },
            steps,
            stuck,
            reviews,
            open_reviews: tally.open_reviews,
            commits,
            queue: QueueTally {
                queued: tally.queued,
                running: tally.running,
                oldest: tally.oldest.map(at),
            },
            workers: WorkerTally { alive: tally.workers, capacity: tally.capacity },
            hours: hours.into_iter().map(hour).collect(),
            first_steps,
        })
    }

    /// Numbers for monitoring. They contain no names of people or nodes, so they need no
    /// permission.
    pub async fn numbers(&self) -> Result<Numbers, Problem> {
        let mut connection = self.connection().await?;
        let tally = store::runs::tally(&mut connection).await.map_err(from_store)?;
        let steps = store::runs::step_counts(&mut connection).await.map_err(from_store)?;
        Ok(Numbers { tally, steps: step_counts(steps) })
    }

    /// The approval policy in force.
    pub async fn policy_in_force(&self, actor: &Actor) -> Result<PolicyView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let number = present.head.policy;
        let mut connection = self.connection().await?;
        let policy = self.policy(&mut connection, &present).await?;
        let made = store::blueprints::policy_origin(&mut connection, number.0)
            .await
            .map_err(from_store)?;
        let (since, by, target) = made.ok_or_else(Problem::internal)?;
        Ok(PolicyView { number, policy, since: at(since), by, blueprint: BlueprintNumber(target) })
    }

    /// A target and its progress.
    pub async fn target(
        &self,
        actor: &Actor,
        number: BlueprintNumber,
    ) -> Result<BlueprintView, Problem> {
        actor.require(Permission::Viewer)?;
        let mut view = self.begin().await?;
        // The progress and the obstacles must come from the same snapshot.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *view)
            .await
            .map_err(|e| from_store(e.into()))?;
        let row = store::blueprints::target(&mut view, number).await.map_err(from_store)?;
        let row = row.ok_or_else(|| {
            Problem::not_found(format!(
                "Blueprint {number} does not exist. See the list of blueprints."
            ))
        })?;
        let (steps, applied) =
            store::runs::blueprint_step_counts(&mut view, number).await.map_err(from_store)?;
        let comparing = steps.comparing > 0;
        let steps = step_counts(steps);
        let in_the_way = match applied == all(&steps) {
            true => InTheWay::default(),
            false => {
                store::runs::in_the_way(&mut view, DEFAULT_LIMITS, PendingScope::Target(number))
                    .await
                    .map_err(from_store)?
            }
        };
        done(view).await?;
        Ok(BlueprintView {
            progress: progress(&steps, applied, comparing, in_the_way),
            steps,
            applied,
            blueprint: to_blueprint_summary(row)?,
        })
    }

    /// The progress of a deployment, by the same rule as for a target.
    pub async fn deployment_progress(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DeploymentProgress, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let id = present.named(name)?;
        let deployment = present.skeleton.deployments.get(&id).map(|found| found.name.clone());
        let deployment = deployment.ok_or_else(Problem::internal)?;
        let mut view = self.begin().await?;
        // The progress and the obstacles must come from the same snapshot.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *view)
            .await
            .map_err(|e| from_store(e.into()))?;
        let steps = store::runs::deployment_step_counts(&mut view, id).await.map_err(from_store)?;
        let comparing = steps.comparing > 0;
        let steps = step_counts(steps);
        let in_the_way = match steps.active == all(&steps) {
            true => InTheWay::default(),
            false => {
                store::runs::in_the_way(&mut view, DEFAULT_LIMITS, PendingScope::Deployment(id))
                    .await
                    .map_err(from_store)?
            }
        };
        done(view).await?;
        Ok(DeploymentProgress {
            deployment,
            progress: progress(&steps, steps.active, comparing, in_the_way),
            steps,
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

/// How often to poll a target while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

fn all(steps: &StateCounts) -> i64 {
    steps.blocked + steps.todo + steps.transition + steps.active + steps.error
}

/// Whether a target has converged, is stuck or is under way. It is stuck if every obstacle needs a
/// person. Blocked steps alone do not prove that: their parents may belong to another target and
/// run. If not all ancestors were examined (`more`), one of them may run. While inputs are compared,
/// steps may run again. A stale step waits for a person.
fn progress(steps: &StateCounts, applied: i64, comparing: bool, in_the_way: InTheWay) -> Progress {
    match in_the_way {
        _ if applied == all(steps) && comparing => Progress::InProgress,
        _ if applied == all(steps) && steps.stale > 0 => Progress::Stuck,
        _ if applied == all(steps) => Progress::Converged,
        InTheWay { moving: 0, resting, more: false } if resting > 0 || steps.blocked == 0 => {
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
        };
        let way = |steps, applied, moving, resting| {
            progress(&steps, applied, false, InTheWay { moving, resting, more: false })
        };
        assert_eq!(
            way(steps(0, 0, 0, 0, 0), 0, 0, 0),
            Progress::Converged,
            "it changed no steps, or later ones did"
        );
        assert_eq!(way(steps(0, 0, 0, 3, 0), 3, 0, 0), Progress::Converged);
        assert_eq!(
            way(steps(2, 0, 0, 3, 0), 3, 1, 0),
            Progress::InProgress,
            "the running parent belongs to another blueprint"
        );
        assert_eq!(
            way(steps(2, 0, 0, 3, 0), 3, 0, 0),
            Progress::InProgress,
            "the parents are done"
        );
        assert_eq!(way(steps(2, 1, 0, 3, 0), 3, 1, 0), Progress::InProgress);
        assert_eq!(way(steps(0, 0, 1, 3, 1), 3, 1, 1), Progress::InProgress);
        assert_eq!(way(steps(2, 0, 0, 3, 1), 3, 0, 1), Progress::Stuck);
        assert_eq!(
            way(steps(2, 0, 0, 3, 0), 3, 0, 1),
            Progress::Stuck,
            "another blueprint's step failed"
        );
        assert_eq!(
            way(steps(2, 1, 0, 3, 0), 3, 0, 1),
            Progress::Stuck,
            "the deployment is on hold"
        );
        assert_eq!(
            way(steps(0, 0, 0, 3, 0), 2, 0, 0),
            Progress::Stuck,
            "no run is open, but one step has not applied the blueprint"
        );
        let far = InTheWay { moving: 0, resting: 10_000, more: true };
        assert_eq!(
            progress(&steps(90_000, 0, 0, 3, 1), 3, false, far),
            Progress::InProgress,
            "steps outside of the hold can run"
        );
    }
}
