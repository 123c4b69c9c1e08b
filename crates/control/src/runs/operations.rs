//! Actions that need no review because they do not change the desired state: retry, cancel, hold,
//! priority, and the execution switch. All of them are audited.

use std::collections::BTreeSet;

use api::Problem;
use api::live::{Live, Topic};
use engine::catalog::read::MAX_PRIORITY;
use engine::ids::{BlueprintNumber, DeploymentId, NoderoleId, RunId, StepId};
use engine::plan::MAX_REASON;
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::deployments::DeploymentRow;
use store::runs::ChangeError;

use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_run};
use crate::{Control, done, text};

pub(crate) fn checked(reason: &str) -> Result<&str, Problem> {
    let reason = text::plain(reason)?;
    if reason.is_empty() || reason.chars().count() > MAX_REASON {
        return Err(Problem::invalid(format!(
            "The reason must have 1 to {MAX_REASON} characters. It is stored in the audit."
        )));
    }
    Ok(reason)
}

pub(crate) fn from_change(error: ChangeError) -> Problem {
    match error {
        ChangeError::Store(error) => from_store(error),
        ChangeError::Refused(refused) => {
            Problem::conflict("state", text::sentence(&refused.to_string()))
        }
        ChangeError::NoderoleRemoved(_) | ChangeError::RunNotOpen(_) | ChangeError::NoNode(_) => {
            Problem::conflict("state", text::sentence(&error.to_string()))
        }
    }
}

/// The error for a step that cannot be retried. `called` is its role and node.
fn retry_problem(error: ChangeError, called: &str) -> Problem {
    let detail = match &error {
        ChangeError::Refused(refused) => refused.message_for(called),
        ChangeError::NoderoleRemoved(_) => {
            format!("Noderole {called} was removed. To use it again, bind it with a proposal")
        }
        ChangeError::RunNotOpen(_) | ChangeError::NoNode(_) | ChangeError::Store(_) => {
            return from_change(error);
        }
    };
    Problem::conflict("state", text::sentence(&detail))
}

/// The steps that the retry of a blueprint may start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryScope {
    pub blueprint: BlueprintNumber,
    /// Whether destructive steps are included.
    pub destructive: bool,
}

impl RetryScope {
    /// Checks again in the transaction of the retry: the step may have changed since it was listed.
    async fn check(self, transaction: &mut PgConnection, step: StepId) -> Result<(), Problem> {
        let is_destructive =
            store::runs::failed_in(transaction, self.blueprint, step).await.map_err(from_store)?;
        match is_destructive {
            Some(destructive) if self.destructive || !destructive => Ok(()),
            Some(_) => Err(Problem::conflict(
                "state",
                "The step is destructive, and the retry does not include destructive steps.",
            )),
            None => Err(Problem::conflict(
                "state",
                "The step no longer fails, or a later blueprint changed it.",
            )),
        }
    }
}

fn no_noderole() -> Problem {
    Problem::not_found("This noderole does not exist. It may have been removed.")
}

/// The error for a run that cannot be canceled because it is not open.
async fn run_not_open(on: &mut PgConnection, run: RunId) -> Result<Problem, Problem> {
    Ok(match store::runs::run_exists(on, run).await.map_err(from_store)? {
        true => Problem::conflict("state", format!("Run {run} has already ended.")),
        false => no_run(run),
    })
}

/// A deployment and its descendants.
fn descendants(rows: &[DeploymentRow], deployment: DeploymentId) -> BTreeSet<DeploymentId> {
    let mut all = BTreeSet::from([deployment]);
    loop {
        let more = rows.iter().filter(|row| row.parent.is_some_and(|parent| all.contains(&parent)));
        let before = all.len();
        all = more.map(|row| row.id).chain(all.iter().copied()).collect();
        if all.len() == before {
            return all;
        }
    }
}

impl Control {
    /// Retries a step in ERROR.
    pub async fn retry(
        &self,
        actor: &Actor,
        noderole: NoderoleId,
        reason: String,
    ) -> Result<(), Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let reason = checked(&reason)?;
        let row = store::deployments::noderole(&self.store, noderole).await.map_err(from_store)?;
        let row = row.ok_or_else(no_noderole)?;
        actor.require_in(Permission::Operator, DeploymentId(row.noderole.deployment_id))?;
        let called = format!(
            "{} on {}",
            row.noderole.role,
            self.current_state().await?.long_name(&row.node.fqdn)
        );
        self.retry_audited(actor, noderole, reason, &called, None).await
    }

    /// Retries a step, and audits a refused attempt. With a scope, only this step, and only if it
    /// still belongs to the scope.
    pub(crate) async fn retry_audited(
        &self,
        actor: &Actor,
        noderole: NoderoleId,
        reason: &str,
        called: &str,
        only: Option<(StepId, RetryScope)>,
    ) -> Result<(), Problem> {
        let result = self.retry_step(actor, noderole, reason, called, only).await;
        // Audit a refused attempt too, as a separate action. It needs its own transaction, because
        // the refused one was rolled back.
        if let Err(no) = &result
            && no.status < 500
        {
            let detail = json!({"reason": reason, "refused": no.code});
            self.note(actor, "step.retry.refused", &noderole.to_string(), &detail).await?;
        }
        result
    }

    async fn retry_step(
        &self,
        actor: &Actor,
        noderole: NoderoleId,
        reason: &str,
        called: &str,
        only: Option<(StepId, RetryScope)>,
    ) -> Result<(), Problem> {
        let mut transaction = self.begin().await?;
        store::lock_apply_shared(&mut transaction).await.map_err(from_store)?;
        // The lock may have waited for a commit that moved the node.
        let deployment = store::runs::noderole_deployment(&mut transaction, noderole)
            .await
            .map_err(from_store)?;
        let deployment = deployment.ok_or_else(no_noderole)?;
        actor.revalidate(&mut transaction).await?.require_in(Permission::Operator, deployment)?;
        let detail = json!({"reason": reason});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "step.retry",
            &noderole.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        let step = match only {
            Some((step, scope)) => {
                scope.check(&mut transaction, step).await?;
                step
            }
            None => store::deployments::retried_step(&mut transaction, noderole)
                .await
                .map_err(from_store)?,
        };
        let requested = store::runs::request_retry(&mut transaction, step, &actor.name).await;
        requested.map_err(|error| retry_problem(error, called))?;
        done(transaction).await
    }

    /// Cancels a run. An unknown or ended run leaves no audit entry.
    pub async fn cancel(&self, actor: &Actor, run: RunId) -> Result<(), Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let mut transaction = self.begin().await?;
        // The deployment of a run never changes.
        let deployment =
            store::runs::run_deployment(&mut transaction, run).await.map_err(from_store)?;
        deployment.map_or(Ok(()), |id| actor.require_in(Permission::Operator, id))?;
        store::lock_apply_shared(&mut transaction).await.map_err(from_store)?;
        let current = actor.revalidate(&mut transaction).await?;
        deployment.map_or(Ok(()), |id| current.require_in(Permission::Operator, id))?;
        let requested = match store::runs::request_cancel(&mut transaction, run, &actor.name).await
        {
            Ok(requested) => requested,
            Err(ChangeError::RunNotOpen(_)) => {
                return Err(run_not_open(&mut transaction, run).await?);
            }
            Err(error) => return Err(from_change(error)),
        };
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "run.cancel",
            &run.to_string(),
            &json!({}),
        )
        .await
        .map_err(from_store)?;
        done(transaction).await?;
        store::runs::finish_cancel(self.store.pool(), run, requested).await.map_err(from_change)
    }

    async fn note(
        &self,
        actor: &Actor,
        action: &str,
        subject: &str,
        detail: &Value,
    ) -> Result<(), Problem> {
        let mut connection = self.connection().await?;
        store::audit::append_audit(&mut connection, Some(actor.person), action, subject, detail)
            .await
            .map_err(from_store)
    }

    /// Puts a deployment on hold, so that no run starts in it or its descendants, or ends the hold.
    /// Open runs finish.
    pub async fn hold(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
        on_hold: bool,
        reason: String,
    ) -> Result<(), Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let reason = checked(&reason)?;
        let mut transaction = self.begin().await?;
        store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        actor.revalidate(&mut transaction).await?.require_in(Permission::Operator, deployment)?;
        let rows =
            store::deployments::deployment_rows(&mut transaction).await.map_err(from_store)?;
        let row = rows.iter().find(|row| row.id == deployment);
        let row = row.ok_or_else(|| {
            Problem::not_found("This deployment no longer exists. See the list of deployments.")
        })?;
        let by = on_hold.then_some((actor.person, reason));
        if !store::deployments::set_hold(&mut transaction, deployment, by)
            .await
            .map_err(from_store)?
        {
            let detail = match &row.hold {
                Some((by, reason)) => {
                    format!("Deployment {} is already on hold, by {by}: {reason}", row.name)
                }
                None => format!("Deployment {} is not on hold.", row.name),
            };
            return Err(Problem::conflict("state", detail));
        }
        let action = if on_hold { "deployment.hold" } else { "deployment.release" };
        let detail = json!({"name": row.name, "reason": reason});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            action,
            &deployment.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        let event = Live::Hold { deployment, by: on_hold.then(|| actor.name.clone()) };
        // The list of pending steps covers all deployments, so pages that watch runs are notified
        // too.
        let topics: Vec<Topic> = descendants(&rows, deployment)
            .into_iter()
            .map(Topic::Deployment)
            .chain([Topic::Runs])
            .collect();
        store::events::append_event_to_topics(&mut transaction, &topics, &event)
            .await
            .map_err(from_store)?;
        done(transaction).await
    }

    /// Sets the priority of a deployment's steps: above 0 they start before those of others, below
    /// 0 after them.
    pub async fn set_priority(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
        priority: i32,
        reason: String,
    ) -> Result<(), Problem> {
        actor.require_somewhere(Permission::Operator)?;
        let reason = checked(&reason)?;
        if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&priority) {
            return Err(Problem::invalid(format!(
                "The priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}."
            )));
        }
        let mut transaction = self.begin().await?;
        store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        actor.revalidate(&mut transaction).await?.require_in(Permission::Operator, deployment)?;
        if !store::deployments::set_priority(&mut transaction, deployment, priority)
            .await
            .map_err(from_store)?
        {
            return Err(Problem::conflict(
                "state",
                "The deployment already has this priority, or no longer exists.",
            ));
        }
        let detail = json!({"priority": priority, "reason": reason});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "deployment.priority",
            &deployment.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        store::events::append_event_to_topics(
            &mut transaction,
            &[Topic::Deployment(deployment)],
            &Live::Priority { deployment, priority },
        )
        .await
        .map_err(from_store)?;
        done(transaction).await
    }

    /// Turns execution on or off, for all deployments.
    pub async fn switch(
        &self,
        actor: &Actor,
        enabled: bool,
        reason: String,
    ) -> Result<BlueprintNumber, Problem> {
        actor.require(Permission::Operator)?;
        let reason = checked(&reason)?;
        let mut transaction = self.begin().await?;
        let head =
            store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        actor.revalidate(&mut transaction).await?.require(Permission::Operator)?;
        if head.enabled == enabled {
            let word = if enabled { "on" } else { "off" };
            return Err(Problem::conflict("state", format!("Execution is already {word}.")));
        }
        let number = store::blueprints::insert_switch(
            &mut transaction,
            &head,
            enabled,
            reason,
            actor.person,
        )
        .await
        .map_err(from_store)?;
        let detail = json!({"enabled": enabled, "reason": reason});
        store::audit::append_audit(
            &mut transaction,
            Some(actor.person),
            "execution.set",
            &number.to_string(),
            &detail,
        )
        .await
        .map_err(from_store)?;
        store::events::append_event_to_topics(
            &mut transaction,
            &[Topic::Blueprints],
            &Live::Blueprint { blueprint: number },
        )
        .await
        .map_err(from_store)?;
        done(transaction).await?;
        Ok(number)
    }
}
