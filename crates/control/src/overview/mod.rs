//! The cluster state in a few queries (for pages, API clients and metrics), the policy in force,
//! and the progress of deployments.
//!
//! Nothing is cached here: all numbers are current. Callers that ask often (metrics) cache the
//! result for a moment.

pub(crate) mod first_steps;
pub(crate) mod frame;

use api::Problem;
use api::overview::{
    DeploymentProgress, DeploymentTally, Hour, MAX_COMMITS, NodeTally, Overview, PolicyView,
    QueueTally, WorkerTally,
};
use api::pending::PendingQuery;
use api::runs::StateCounts;
use engine::ids::BlueprintNumber;
use store::monitoring::{EndCursor, EndedRun, WorkerLoad};
use store::runs::{PendingScope, Tally, UnappliedSteps};

use crate::blueprints::progress::{all, progress};
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
pub struct MetricValues {
    /// All numbers except step counts.
    pub tally: Tally,
    pub steps: StateCounts,
}

impl Control {
    pub async fn overview(&self, actor: &Actor) -> Result<Overview, Problem> {
        actor.require(Permission::Viewer)?;
        let stuck = self.pending(actor, &PendingQuery::default()).await?.groups;
        let present = self.current_state().await?;
        let reviews = self.waiting_for(actor, &present).await?;
        let MetricValues { tally, steps } = self.numbers().await?;
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
        drop(connection);
        let rollouts = self.rollouts().await?;
        let commits = rows.into_iter().map(to_blueprint_summary).collect::<Result<_, _>>()?;
        Ok(Overview {
            blueprint: present.head.number,
            enabled: present.head.enabled,
            deployments: DeploymentTally {
                all: tally.deployments,
                on_hold: tally.on_hold,
                proposed: tally.proposed,
            },
            nodes: NodeTally { all: tally.nodes, dead: tally.dead, maintenance: tally.maintenance },
            steps,
            stuck,
            reviews,
            open_reviews: tally.open_reviews,
            rollouts,
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
    pub async fn numbers(&self) -> Result<MetricValues, Problem> {
        let mut connection = self.connection().await?;
        let tally = store::runs::tally(&mut connection).await.map_err(from_store)?;
        let steps = store::runs::step_counts(&mut connection).await.map_err(from_store)?;
        Ok(MetricValues { tally, steps: step_counts(steps) })
    }

    /// The workers of the last minutes, for monitoring.
    pub async fn worker_loads(&self) -> Result<Vec<WorkerLoad>, Problem> {
        let mut connection = self.connection().await?;
        store::monitoring::worker_loads(&mut connection).await.map_err(from_store)
    }

    /// The runs that ended after a cursor, for monitoring. Without a cursor, only the cursor of
    /// their present end.
    pub async fn ended_runs(
        &self,
        after: Option<EndCursor>,
    ) -> Result<(Vec<EndedRun>, EndCursor), Problem> {
        let mut connection = self.connection().await?;
        let Some(after) = after else {
            let end = store::monitoring::end_of_runs(&mut connection).await.map_err(from_store)?;
            return Ok((Vec::new(), end));
        };
        let runs =
            store::monitoring::ended_runs(&mut connection, after).await.map_err(from_store)?;
        let end = runs.last().map_or(after, |run| run.cursor);
        Ok((runs, end))
    }

    /// The approval policy in force.
    pub async fn policy_in_force(&self, actor: &Actor) -> Result<PolicyView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let number = present.head.policy;
        let mut connection = self.connection().await?;
        let policy = self.policy(&mut connection, &present).await?;
        let made = store::blueprints::policy_origin(&mut connection, number.0)
            .await
            .map_err(from_store)?;
        let (since, by, target) = made.ok_or_else(Problem::internal)?;
        Ok(PolicyView { number, policy, since: at(since), by, blueprint: BlueprintNumber(target) })
    }

    /// The progress of a deployment, by the same rule as for a target.
    pub async fn deployment_progress(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DeploymentProgress, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let id = present.named(name)?;
        let deployment = present.skeleton.deployments.get(&id).map(|found| found.name.clone());
        let deployment = deployment.ok_or_else(Problem::internal)?;
        // The progress and the obstacles must come from the same snapshot.
        let mut view = self.snapshot().await?;
        let steps = store::runs::deployment_step_counts(&mut view, id).await.map_err(from_store)?;
        let comparing = steps.comparing > 0 || steps.unchecked > 0;
        let steps = step_counts(steps);
        let unapplied_steps = match steps.active == all(&steps) {
            true => UnappliedSteps::default(),
            false => store::runs::unapplied_steps(
                &mut view,
                DEFAULT_LIMITS,
                PendingScope::Deployment(id),
            )
            .await
            .map_err(from_store)?,
        };
        done(view).await?;
        Ok(DeploymentProgress {
            deployment,
            deployment_id: id,
            progress: progress(&steps, steps.active, comparing, unapplied_steps),
            steps,
        })
    }
}
