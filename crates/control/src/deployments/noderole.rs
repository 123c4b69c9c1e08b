//! The details of a noderole: its state with reasons, its data and the layers of the data.

use api::Problem;
use api::deployments::{
    CheckState, DataLayer, EditableDraft, NoderoleCheck, NoderoleDraft, NoderoleRef, NoderoleView,
};
use api::listing::PAGE_SIZE;
use api::runs::StepState;
use api::values::MAX_VALUES;
use api::values::{Provenance, ValueLayer};
use engine::Hash;
use engine::anneal::Reason;
use engine::catalog::{Check, Role};
use engine::cluster::NoderoleKey;
use engine::counting::many;
use engine::data::{OwnData, StepOutput, layers, mask};
use engine::ids::{
    BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName, RunId, StepId,
};
use engine::plan::Effects;
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::deployments::{EdgeRow, NoderoleRow};
use store::runs::RoleCheckRow;

use crate::Control;
use crate::catalog::roles::attribs;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store};
use crate::proposals::change::{author_of, counting, makes_author, plan_on_pool};
use crate::runs::list::{cause_text, layer_name, limits, reason_text, to_run, value_text};
use crate::runs::pending::DEFAULT_LIMITS;
use crate::text::at;

impl Control {
    /// The problem of a noderole that is not part of the target.
    async fn removed(&self, id: NoderoleId, row: &NoderoleRow) -> Result<Problem, Problem> {
        let mut connection = self.connection().await?;
        let removal =
            store::deployments::removal_state(&mut connection, id).await.map_err(from_store)?;
        let progress = match removal.as_deref() {
            Some("blocked" | "todo" | "transition") => " Its action remove has not ended yet.",
            Some("error") => " Its action remove failed on the node. Retry it.",
            _ => "",
        };
        Ok(Problem::not_found(format!(
            "Noderole {} on {} was removed by blueprint {}.{progress} Its runs are in the list of \
             runs.",
            row.noderole.role, row.node.fqdn, row.step.generation
        )))
    }

    /// The details of a noderole.
    pub async fn noderole(&self, actor: &Actor, id: NoderoleId) -> Result<NoderoleView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let row = store::deployments::noderole(&self.store, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| {
            Problem::not_found(
                "This noderole does not exist. A noderole from a proposal exists after the \
                 proposal is committed.",
            )
        })?;
        if row.noderole.disposition != "in_service" {
            return Err(self.removed(id, &row).await?);
        }
        let step = StepId::run_of(id);
        let runs = store::runs::runs_of_step(&self.store, step, PAGE_SIZE as u64)
            .await
            .map_err(from_store)?;
        let mut connection = self.connection().await?;
        let parents =
            store::deployments::parents(&mut connection, step).await.map_err(from_store)?;
        let children = store::deployments::children(&mut connection, step, PAGE_SIZE as u64)
            .await
            .map_err(from_store)?;
        let role_hash = Hash::from_bytes(&row.noderole.role_hash).ok_or_else(Problem::internal)?;
        let role = present.catalog.role(role_hash).map_err(corrupt)?;
        let deployment = DeploymentId(row.noderole.deployment_id);
        let role_name = RoleName::parse(&row.noderole.role).map_err(corrupt)?;
        let data = self.own_data(&present, &row, role, &role_name);
        let state = StepState::from_name(&row.step.state).unwrap_or(StepState::Blocked);
        let mut reasons =
            self.reasons(&mut connection, &present, step, state, &row, &parents).await?;
        let result = store::runs::role_check(&mut connection, step).await.map_err(from_store)?;
        let obstacle =
            store::runs::check_obstacle(&mut connection, step).await.map_err(from_store)?;
        drop(connection);
        let check = role.check().map(|(policy, script)| {
            noderole_check(*policy, &script.name, row.step.generation, result)
        });
        if let Some(reason) =
            check.as_ref().and_then(|check| check_reason(check, state, obstacle.as_deref()))
        {
            // A check and not a run set the ERROR, so its text replaces the one for a failed run.
            match reasons.first_mut() {
                Some(first) if state == StepState::Error => *first = reason,
                _ => reasons.push(reason),
            }
        }
        let may_edit = self.noderole_draft(actor, &present, &row, role).await?;
        let layered = layers(
            step,
            data.own(role),
            row.step
                .output
                .as_ref()
                .map(|value| StepOutput { value, run: row.step.output_run.map(RunId) }),
        )
        .map_err(corrupt)?;
        let sources = layered.sources.iter().map(|(path, source)| Provenance {
            path: path.clone(),
            value: value_text(&layered.value, path),
            source: layer_name(&serde_json::to_value(&source.layer).unwrap_or_default()),
        });
        Ok(NoderoleView {
            id,
            role: role_name,
            description: role.description.clone(),
            node: NodeId(row.node.id),
            fqdn: present.long_name(&row.node.fqdn),
            deployment: DeploymentName::parse(&row.deployment.name).map_err(corrupt)?,
            deployment_id: deployment,
            state,
            stale: is_stale(&row, state),
            since: at(row.step.since),
            reasons,
            error: row.step.error.clone(),
            generation: BlueprintNumber(row.step.generation),
            applied: (row.step.applied_generation > 0)
                .then_some(BlueprintNumber(row.step.applied_generation)),
            role_hash: role_hash.short(),
            layers: data.layers(role, row.step.output.as_ref()),
            merged: mask(&layered.value),
            provenance: sources.take(MAX_VALUES).collect(),
            values: layered.sources.len(),
            output: row.step.output.clone().unwrap_or_else(|| json!({})),
            attribs: attribs(role),
            parents: parents.iter().map(|row| to_ref(&present, row)).collect::<Result<_, _>>()?,
            children: children.iter().map(|row| to_ref(&present, row)).collect::<Result<_, _>>()?,
            runs: runs.iter().map(|row| to_run(&present, row)).collect::<Result<_, _>>()?,
            limits: limits(&row.step),
            check,
            may_retry: may_retry(actor, deployment, state).into(),
            may_edit,
            may_propose: actor
                .require_in(Permission::Operator, deployment)
                .map_err(|problem| problem.detail)
                .into(),
        })
    }

    fn own_data(
        &self,
        present: &CurrentState,
        row: &NoderoleRow,
        role: &Role,
        name: &RoleName,
    ) -> OwnLayers {
        let deployment =
            present.blueprint.deployments.get(&DeploymentId(row.noderole.deployment_id));
        let role_data = deployment.and_then(|d| d.doc.roles.get(name)).map(|r| r.data.clone());
        OwnLayers {
            template: role.template.clone(),
            deployment_role: role_data.unwrap_or(Value::Null),
            system: row.noderole.system_data.clone(),
            user: row.noderole.data.clone(),
        }
    }

    /// The noderole in its deployment's open proposal, if there is one and the actor may edit it.
    async fn noderole_draft(
        &self,
        actor: &Actor,
        present: &CurrentState,
        row: &NoderoleRow,
        role: &Role,
    ) -> Result<EditableDraft, Problem> {
        let deployment = DeploymentId(row.noderole.deployment_id);
        if !actor.has_permission_in(Permission::Operator, deployment) {
            return Ok(EditableDraft::no("You cannot edit this without the permission operator."));
        }
        let mut connection = self.connection().await?;
        let Some(open) = store::proposals::open_proposal(&mut connection, deployment)
            .await
            .map_err(from_store)?
        else {
            let name = &row.deployment.name;
            return Ok(EditableDraft::no(format!(
                "Open a proposal on {name} first. Its data changes only after a review."
            )));
        };
        let edits = store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?;
        drop(connection);
        let planned = plan_on_pool(&self.compute_for(actor), present, counting(&edits)).await?;
        let (node, key) = self.key_of(row)?;
        let drafted =
            planned.effects.noderole_data.iter().find(|d| d.node == node && d.noderole == key);
        Ok(EditableDraft::Yes(NoderoleDraft {
            proposal: open.id,
            version: open.version,
            makes_author: makes_author(actor, &edits),
            data: drafted.map_or_else(|| row.noderole.data.clone(), |d| d.data.clone()),
            data_by: drafted.and_then(|drafted| author_of(&edits, drafted.cause.edit())),
            defaults: data_below_user(&planned.effects, present, row, role, &key),
            rerun: planned.effects.reruns.iter().any(|r| r.node == node && r.noderole == key),
        }))
    }

    fn key_of(&self, row: &NoderoleRow) -> Result<(NodeId, NoderoleKey), Problem> {
        let role = RoleName::parse(&row.noderole.role).map_err(corrupt)?;
        let instance = u32::try_from(row.noderole.instance).map_err(corrupt)?;
        Ok((NodeId(row.noderole.node_id), NoderoleKey { role, instance }))
    }

    /// The reasons for a step's state, each with its solution.
    async fn reasons(
        &self,
        on: &mut PgConnection,
        present: &CurrentState,
        step: StepId,
        state: StepState,
        row: &NoderoleRow,
        parents: &[EdgeRow],
    ) -> Result<Vec<String>, Problem> {
        let mut reasons = Vec::new();
        match state {
            StepState::Blocked => {
                reasons.extend(parents.iter().filter_map(|parent| blocked_by(present, parent)))
            }
            StepState::Todo => {
                reasons.extend(self.waits(on, step).await?);
            }
            StepState::Transition => {
                let run = store::deployments::open_run(on, step).await.map_err(from_store)?;
                reasons.extend(run.map(|run| match run.state.as_str() {
                    "queued" => format!("Run {} waits for a worker with a free slot.", run.id),
                    _ => format!("Run {} is under way.", run.id),
                }));
            }
            // The page shows the error itself next to this.
            StepState::Error => reasons.push(
                "The step failed. Retry it, or change its data with a proposal. Its dependents \
                 wait until then."
                    .into(),
            ),
            StepState::Active | StepState::Proposed => {}
        }
        if state == StepState::Active && row.step.applied_generation < row.step.generation {
            reasons
                .push(format!("The step has not applied blueprint {} yet.", row.step.generation));
        }
        if is_stale(row, state) {
            reasons.push(
                "The input changed since the last run. Propose to run the step again.".into(),
            );
        }
        if let Some(cause) = &row.step.cause {
            let by = row.step.cause_by.as_deref();
            reasons.push(format!("The step runs again. Reason: {}.", cause_text(cause, by)));
        }
        Ok(reasons)
    }

    /// All admission rules that keep a TODO step from starting. The global run limit is a setting
    /// of the workers and unknown here, so only their capacity counts.
    async fn waits(&self, on: &mut PgConnection, step: StepId) -> Result<Vec<String>, Problem> {
        let found = store::runs::admission_reasons(on, DEFAULT_LIMITS, &[step]).await;
        let Some(reasons) = found.map_err(from_store)?.remove(&step) else {
            return Ok(vec!["The step starts when a worker claims it.".to_owned()]);
        };
        let by: Vec<StepId> = reasons.iter().flat_map(Reason::blocking_steps).copied().collect();
        let names = store::deployments::step_names(on, &by)
            .await
            .map_err(from_store)?
            .into_iter()
            .collect();
        Ok(reasons.iter().map(|reason| reason_text(reason, &names)).collect())
    }
}

/// Whether the input changed since the last run and no run is under way for it.
fn is_stale(row: &NoderoleRow, state: StepState) -> bool {
    state == StepState::Active && row.step.stale
}

/// The values of a noderole below its user data, with the proposal's edits applied and secrets
/// masked.
fn data_below_user(
    effects: &Effects,
    present: &CurrentState,
    row: &NoderoleRow,
    role: &Role,
    key: &NoderoleKey,
) -> Value {
    let deployment = DeploymentId(row.noderole.deployment_id);
    let set =
        effects.role_data.iter().rfind(|set| set.deployment == deployment && set.role == key.role);
    let known =
        present.blueprint.deployments.get(&deployment).and_then(|d| d.doc.roles.get(&key.role));
    let of_role =
        set.map(|set| &set.data).or(known.map(|known| &known.data)).unwrap_or(&Value::Null);
    let system = &row.noderole.system_data;
    let below =
        OwnData { template: &role.template, deployment_role: of_role, system, ..OwnData::NONE };
    layers(StepId(row.step.id), below, None).map(|layered| mask(&layered.value)).unwrap_or_default()
}

/// Owned copies of a noderole's data layers.
struct OwnLayers {
    template: Value,
    deployment_role: Value,
    system: Value,
    user: Value,
}

impl OwnLayers {
    fn own<'a>(&'a self, _: &Role) -> OwnData<'a> {
        OwnData {
            template: &self.template,
            profiles: &[],
            deployment_role: &self.deployment_role,
            system: &self.system,
            user: &self.user,
        }
    }

    fn layers(&self, _: &Role, output: Option<&Value>) -> Vec<DataLayer> {
        let layer = |source: ValueLayer, value: &Value| DataLayer {
            source,
            value: if value.is_null() { json!({}) } else { mask(value) },
        };
        vec![
            layer(ValueLayer::Template, &self.template),
            layer(ValueLayer::DeploymentRole, &self.deployment_role),
            layer(ValueLayer::System, &self.system),
            layer(ValueLayer::Output, output.unwrap_or(&Value::Null)),
            layer(ValueLayer::User, &self.user),
        ]
    }
}

/// The check of a noderole. A result for another generation counts as none.
fn noderole_check(
    policy: Check,
    script: &str,
    generation: i64,
    result: Option<RoleCheckRow>,
) -> NoderoleCheck {
    let result = result.filter(|result| result.generation == generation);
    let unsigned = |n: i32| n.unsigned_abs();
    let of = |get: fn(&RoleCheckRow) -> i32| result.as_ref().map_or(0, |row| unsigned(get(row)));
    NoderoleCheck {
        script: script.to_owned(),
        policy,
        state: match result.as_ref().map(|row| row.state.as_str()) {
            Some("passing") => CheckState::Passing,
            Some("failing") => CheckState::Failing,
            _ => CheckState::Unknown,
        },
        passes: result.as_ref().is_some_and(|row| row.passes),
        failures: of(|row| row.failures),
        caused_rerun: result.as_ref().is_some_and(|row| row.caused_rerun),
        duration_ms: of(|row| row.duration_ms),
        checked: result.as_ref().and_then(|row| row.checked_at).map(at),
        changed: result.as_ref().and_then(|row| row.changed_at).map(at),
        detail: result.map(|row| row.detail).unwrap_or_default(),
    }
}

/// Why a step with a check is not converged although it is ACTIVE, or how its ERROR ends.
fn check_reason(check: &NoderoleCheck, state: StepState, obstacle: Option<&str>) -> Option<String> {
    let failing = check.state == CheckState::Failing;
    let next = || match obstacle {
        Some(obstacle) => check_obstacle_text(obstacle),
        None => "It runs as soon as a worker can run it.",
    };
    match state {
        StepState::Active if failing && check.caused_rerun && check.failures == 0 => Some(
            "The step ran again because its check failed. The check has not passed yet.".into(),
        ),
        StepState::Active if failing => Some(format!(
            "The check failed {} in a row. It has an effect after {}.",
            many(check.failures, "time"),
            many(check.policy.failures, "failure")
        )),
        StepState::Active if check.state == CheckState::Passing && !check.passes => {
            Some(format!("The last check passed, but the next one is overdue. {}", next()))
        }
        StepState::Active if !check.passes => Some(format!("The check has not run. {}", next())),
        StepState::Error if failing => {
            let reason = format!(
                "The check failed {} in a row. The step is ACTIVE again when the check passes. You \
                 can also retry the step, which runs it, or change its data with a proposal.",
                many(check.failures, "time")
            );
            Some(match obstacle {
                Some(obstacle) => format!("{reason} {}", check_obstacle_text(obstacle)),
                None => reason,
            })
        }
        _ => None,
    }
}

/// Why no worker can run a check now, with the solution.
fn check_obstacle_text(obstacle: &str) -> &'static str {
    match obstacle {
        "execution_off" => {
            "It cannot run: execution is off. An operator can turn it on with `gantry execution \
             on --reason TEXT`."
        }
        "on_hold" => "It cannot run: the deployment is on hold. An operator can end the hold.",
        "jig_off" => "It cannot run: its jig is off. Propose to turn the jig on.",
        "maintenance" => "It cannot run: the node is in maintenance. An operator can end it.",
        "node" => "It cannot run: the node is not in the state that the role needs. See the node.",
        "no_worker" => "It cannot run: no worker is running. Start one with `gantry worker`.",
        "parent" => "It runs after the parents of the step are done.",
        _ => "It runs after the run on the node has ended.",
    }
}

fn may_retry(actor: &Actor, place: DeploymentId, state: StepState) -> Result<(), String> {
    if !actor.has_permission_in(Permission::Operator, place) {
        return Err("You cannot retry this step without the permission operator.".into());
    }
    match state {
        StepState::Error => Ok(()),
        StepState::Active => Err("The step is done. To run it again, propose a re-run.".into()),
        StepState::Transition => Err("A run is under way.".into()),
        _ => Err("The step starts automatically as soon as it can.".into()),
    }
}

fn blocked_by(present: &CurrentState, parent: &EdgeRow) -> Option<String> {
    let name = format!("{} on {}", parent.role, present.long_name(&parent.fqdn));
    match StepState::from_name(&parent.state)? {
        StepState::Active => None,
        StepState::Error => Some(format!(
            "Blocked by the error of {name}: {}.",
            parent.error.as_deref().unwrap_or("see its runs")
        )),
        state => Some(format!("Waits for {name}, which is {}.", state.label())),
    }
}

fn to_ref(present: &CurrentState, row: &EdgeRow) -> Result<NoderoleRef, Problem> {
    Ok(NoderoleRef {
        id: NoderoleId(row.noderole_id),
        role: RoleName::parse(&row.role).map_err(corrupt)?,
        node: NodeId(row.node_id),
        fqdn: present.long_name(&row.fqdn),
        state: StepState::from_name(&row.state).unwrap_or(StepState::Blocked),
    })
}

#[cfg(test)]
mod tests {
    use engine::catalog::OnFailure;

    use super::*;

    fn check(state: CheckState, failures: u32) -> NoderoleCheck {
        let policy = Check { interval: 30, timeout: 5, failures: 2, on_failure: OnFailure::Report };
        NoderoleCheck { state, failures, ..noderole_check(policy, "check/alive", 1, None) }
    }

    #[test]
    fn overdue_check_is_not_described_as_never_run() {
        let overdue = check(CheckState::Passing, 0);
        assert_eq!(
            check_reason(&overdue, StepState::Active, Some("execution_off")).unwrap(),
            "The last check passed, but the next one is overdue. It cannot run: execution is off. \
             An operator can turn it on with `gantry execution on --reason TEXT`."
        );
        assert_eq!(
            check_reason(&check(CheckState::Unknown, 0), StepState::Active, None).unwrap(),
            "The check has not run. It runs as soon as a worker can run it."
        );
    }

    #[test]
    fn failed_check_has_one_consistent_reason() {
        let failed = check(CheckState::Failing, 3);
        assert_eq!(
            check_reason(&failed, StepState::Error, None).unwrap(),
            "The check failed 3 times in a row. The step is ACTIVE again when the check passes. You \
             can also retry the step, which runs it, or change its data with a proposal."
        );
        let once = check(CheckState::Failing, 1);
        assert_eq!(
            check_reason(&once, StepState::Active, None).unwrap(),
            "The check failed 1 time in a row. It has an effect after 2 failures."
        );
    }
}
