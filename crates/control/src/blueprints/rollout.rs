//! The rollout of a blueprint: its progress, its failed steps, and their retry.
//!
//! A retry is one transaction for each step, by the same rule as the retry of a single step. So
//! steps are locked in the order of the annealer, and a step that cannot be retried does not stop
//! the others. The number of steps in one request is bounded.

use std::collections::BTreeMap;

use api::Problem;
use api::blueprints::{BlueprintSummary, BlueprintView, Progress};
use api::overview::MAX_ROLLOUTS;
use api::rollout::{
    BlueprintProgress, FailedStep, MAX_FAILED_STEPS, MAX_RETRIED_STEPS, MAX_TIMELINE_FAILED_RUNS,
    MAX_TIMELINE_NODES, MAX_TIMELINE_RUNS, MAX_WAVES, RefusedRetry, RetriedSteps, RetryFailed,
    Rollout, Timeline, TimelineNode, TimelineRun,
};
use api::runs::RunState;
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, NodeId, NoderoleId, RoleName, RunId, StepId,
};
use sqlx::PgConnection;
use store::runs::{FailedRow, RunCounts, TimelineRow, WaveRow};
use uuid::Uuid;

use super::progress::all;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store, no_blueprint};
use crate::runs::list::state_of_run;
use crate::runs::operations::{RetryScope, checked};
use crate::runs::step_counts;
use crate::text::at;
use crate::{Control, done};

/// The smallest number of successful runs from which the remaining time is estimated.
const MIN_RECENT: i64 = 5;

impl Control {
    /// The rollout of a blueprint with its waves, failed steps and runs.
    pub async fn blueprint_progress(
        &self,
        actor: &Actor,
        number: BlueprintNumber,
    ) -> Result<BlueprintProgress, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let mut view = self.snapshot().await?;
        let target = self.target_in(&mut view, number).await?;
        let mut waves = store::runs::waves(&mut view, number, bound(MAX_WAVES) + 1)
            .await
            .map_err(from_store)?;
        let counts = store::runs::run_counts(&mut view, number).await.map_err(from_store)?;
        let failed = store::runs::failed_steps(&mut view, number, bound(MAX_FAILED_STEPS))
            .await
            .map_err(from_store)?;
        let runs = store::runs::timeline(
            &mut view,
            number,
            bound(MAX_TIMELINE_RUNS),
            bound(MAX_TIMELINE_FAILED_RUNS),
        )
        .await
        .map_err(from_store)?;
        done(view).await?;
        let more_waves = waves.len() > MAX_WAVES;
        let rollout = rollout(target, &waves, counts);
        let failed_destructive = waves.iter().map(|wave| wave.destructive).sum();
        waves.truncate(MAX_WAVES);
        let may_retry = may_retry(actor, &failed);
        Ok(BlueprintProgress {
            rollout,
            waves: waves.iter().map(|wave| step_counts(wave.steps)).collect(),
            more_waves,
            failed: failed
                .into_iter()
                .map(|row| failed_step(&present, row))
                .collect::<Result<_, _>>()?,
            failed_destructive,
            timeline: timeline(&present, runs, counts)?,
            may_retry: may_retry.into(),
            cursor,
        })
    }

    /// The newest rollouts that are not complete.
    pub(crate) async fn rollouts(&self) -> Result<Vec<Rollout>, Problem> {
        let mut view = self.snapshot().await?;
        let numbers =
            store::runs::unfinished(&mut view, bound(MAX_ROLLOUTS)).await.map_err(from_store)?;
        let mut rollouts = Vec::new();
        for number in numbers {
            let target = self.target_in(&mut view, number).await?;
            let waves = store::runs::waves(&mut view, number, bound(MAX_WAVES))
                .await
                .map_err(from_store)?;
            let counts = store::runs::run_counts(&mut view, number).await.map_err(from_store)?;
            rollouts.push(rollout(target, &waves, counts));
        }
        done(view).await?;
        Ok(rollouts)
    }

    /// Retries the failed steps of a blueprint in all deployments that the actor operates, at most
    /// [`MAX_RETRIED_STEPS`]. Without confirmation, destructive steps are left out.
    pub async fn retry_failed(
        &self,
        actor: &Actor,
        number: BlueprintNumber,
        request: &RetryFailed,
    ) -> Result<RetriedSteps, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let reason = checked(&request.reason)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        self.existing(&mut connection, number).await?;
        let mut failed =
            store::runs::failed_steps(&mut connection, number, bound(MAX_RETRIED_STEPS) + 1)
                .await
                .map_err(from_store)?;
        drop(connection);
        let more = failed.len() > MAX_RETRIED_STEPS;
        failed.truncate(MAX_RETRIED_STEPS);
        let mut outcome = RetriedSteps { more, ..RetriedSteps::default() };
        let scope = RetryScope { blueprint: number, destructive: request.destructive };
        for row in failed {
            if row.destructive && !request.destructive {
                outcome.destructive += 1;
                continue;
            }
            let (noderole, role) =
                (NoderoleId(row.noderole), RoleName::parse(&row.role).map_err(corrupt)?);
            let (node, fqdn) = (NodeId(row.node), present.long_name(&row.fqdn));
            let called = format!("{role} on {fqdn}");
            let retried = self
                .retry_audited(actor, noderole, reason, &called, Some((StepId(row.step), scope)))
                .await;
            match retried {
                Ok(()) => outcome.retried += 1,
                Err(problem) if problem.status >= 500 || problem.status == 401 => {
                    return Err(problem);
                }
                Err(problem) => {
                    let reason = problem.detail;
                    outcome.refused.push(RefusedRetry { noderole, role, node, fqdn, reason });
                }
            }
        }
        Ok(outcome)
    }

    async fn existing(
        &self,
        connection: &mut PgConnection,
        number: BlueprintNumber,
    ) -> Result<BlueprintSummary, Problem> {
        let row = store::blueprints::target(connection, number).await.map_err(from_store)?;
        super::to_blueprint_summary(row.ok_or_else(|| no_blueprint(number))?)
    }
}

fn bound(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

fn rollout(target: BlueprintView, waves: &[WaveRow], counts: RunCounts) -> Rollout {
    let BlueprintView { blueprint, progress, steps, applied } = target;
    let to_run = waves.iter().map(|wave| wave.to_run).sum();
    let seconds_left = match progress {
        Progress::InProgress => seconds_left(to_run, counts),
        Progress::Converged | Progress::Stuck => None,
    };
    Rollout { blueprint, progress, all: all(&steps), applied, steps, seconds_left }
}

/// The time that the remaining runs need at the pace of the newest successful runs.
fn seconds_left(to_run: i64, counts: RunCounts) -> Option<i64> {
    if counts.recent < MIN_RECENT || to_run == 0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = counts.recent_seconds / counts.recent as f64 * to_run as f64;
    #[expect(clippy::cast_possible_truncation, reason = "an estimate, far below the limit")]
    let seconds = seconds.ceil() as i64;
    Some(seconds)
}

fn may_retry(actor: &Actor, failed: &[FailedRow]) -> Result<(), String> {
    let is_operated = |row: &FailedRow| {
        actor.has_permission_in(Permission::Operator, DeploymentId(row.deployment))
    };
    match failed.is_empty() || failed.iter().any(is_operated) {
        true => Ok(()),
        false => Err("You cannot retry these steps without the permission operator.".into()),
    }
}

fn failed_step(present: &CurrentState, row: FailedRow) -> Result<FailedStep, Problem> {
    let deployment_id = DeploymentId(row.deployment);
    let deployment = present.skeleton.deployments.get(&deployment_id);
    Ok(FailedStep {
        noderole: NoderoleId(row.noderole),
        role: RoleName::parse(&row.role).map_err(corrupt)?,
        action: ActionName::parse(&row.action).map_err(corrupt)?,
        node: NodeId(row.node),
        fqdn: present.long_name(&row.fqdn),
        deployment: deployment.ok_or_else(Problem::internal)?.name.clone(),
        deployment_id,
        destructive: row.destructive,
        error: row.error,
        since: at(row.since),
    })
}

/// The runs by node. Nodes whose newest run failed come first, then those that started first.
fn timeline(
    present: &CurrentState,
    rows: Vec<TimelineRow>,
    counts: RunCounts,
) -> Result<Timeline, Problem> {
    let mut nodes: BTreeMap<(String, Uuid), Vec<TimelineRun>> = BTreeMap::new();
    for row in rows.into_iter().rev() {
        let run = TimelineRun {
            id: RunId(row.id),
            role: RoleName::parse(&row.role).map_err(corrupt)?,
            state: state_of_run(&row.state),
            from: at(row.started_at.unwrap_or(row.queued_at)),
            to: row.ended_at.map(at),
        };
        nodes.entry((row.fqdn, row.node)).or_default().push(run);
    }
    let mut nodes: Vec<TimelineNode> = nodes
        .into_iter()
        .map(|((fqdn, node), runs)| TimelineNode {
            node: NodeId(node),
            fqdn: present.long_name(&fqdn),
            runs,
        })
        .collect();
    nodes.sort_by_key(|node| {
        let newest = node.runs.last().map(|run| run.state);
        let is_fine = !matches!(newest, Some(RunState::Failed | RunState::Lost));
        (is_fine, node.runs.first().map(|run| run.from))
    });
    nodes.truncate(MAX_TIMELINE_NODES);
    Ok(Timeline { nodes, all_nodes: counts.nodes, all_runs: counts.runs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_follows_the_recent_pace() {
        let pace =
            |recent, recent_seconds| RunCounts { recent, recent_seconds, ..Default::default() };
        assert_eq!(seconds_left(360, pace(100, 20.0)), Some(72));
        assert_eq!(seconds_left(360, pace(4, 1.0)), None, "too few runs");
        assert_eq!(seconds_left(0, pace(100, 20.0)), None, "no run is left");
    }
}
