//! Views of single objects: the page frame, deployments, noderoles and runs.

use std::collections::BTreeMap;

use api::Problem;
use api::console::{
    AttribView, DataLayer, DeploymentPage, DeploymentSummary, Frame, Me, NoderoleDraft,
    NoderoleRef, NoderoleView, PAGE_SIZE, Provenance, RunPage, RunState, RunSummary, RunView,
    StepState,
};
use api::listing::{Cursor, DeploymentSort, DeploymentState, DeploymentsWanted, Key, RunsWanted};
use api::reviews::Waiting;
use api::values::MAX_VALUES;
use engine::Hash;
use engine::anneal::{Reason, why_not};
use engine::catalog::Role;
use engine::cluster::NoderoleKey;
use engine::counting::{either, many};
use engine::data::{OwnData, Wall, layers, mask};
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId, ReviewId,
    RoleName, RunId, StepId,
};
use engine::plan::Effects;
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::intent;
use store::reading::{self, EdgeRow, NoderoleRow, RunFilter, RunRow};

use crate::audit::window;
use crate::change::{counting, plan_on_pool, would_join};
use crate::people::{Actor, Permission};
use crate::present::Present;
use crate::problems::{from_store, no_run};
use crate::waiting::{DEFAULT_LIMITS, node_named};
use crate::words::{self, at, count};
use crate::{Control, cursor};

pub(crate) fn corrupt(error: impl std::fmt::Display) -> Problem {
    tracing::error!(%error, "cannot read a row");
    Problem::internal()
}

fn is_so(found: &DeploymentSummary, held: bool, state: DeploymentState) -> bool {
    let is_working = found.steps.todo + found.steps.transition > 0;
    match state {
        DeploymentState::Held => held,
        DeploymentState::Proposed => found.proposal.is_some(),
        DeploymentState::Review => found.submission.is_some(),
        DeploymentState::Error => found.steps.error > 0,
        DeploymentState::Working => is_working,
        DeploymentState::Idle => {
            !held && found.proposal.is_none() && found.steps.error == 0 && !is_working
        }
    }
}

impl Control {
    /// The current position in the journal.
    pub(crate) async fn cursor(&self, on: &mut PgConnection) -> Result<i64, Problem> {
        store::journal::cursor(on).await.map_err(from_store)
    }

    /// Like [`Self::cursor`], on a connection of its own.
    pub(crate) async fn current_cursor(&self) -> Result<i64, Problem> {
        let mut connection = self.connection().await?;
        self.cursor(&mut connection).await
    }

    /// The data for the frame around every page. Without Viewer it contains only the person's
    /// identity, so that they can sign out.
    pub async fn frame(&self, actor: &Actor) -> Result<Frame, Problem> {
        let me = Me {
            id: actor.person,
            name: actor.name.clone(),
            permissions: actor.permission_names(),
            session: actor.session.as_ref().map(|session| session.id),
        };
        if !actor.may(Permission::Viewer) {
            let reviews_waiting = Waiting::default();
            return Ok(Frame { me, reviews_waiting, execution: None, cursor: None, reset: None });
        }
        let cursor = self.current_cursor().await?;
        let reset = match &actor.session {
            Some(_) => crate::people::notices(&mut *self.connection().await?, actor.person)
                .await?
                .into_iter()
                .next(),
            None => None,
        };
        let present = self.present().await?;
        Ok(Frame {
            me,
            reviews_waiting: self.waiting_for(actor, &present).await?,
            execution: Some(present.head.enabled),
            cursor: Some(cursor),
            reset,
        })
    }

    /// The id of a deployment, by name.
    pub async fn deployment_named(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DeploymentId, Problem> {
        actor.require(Permission::Viewer)?;
        self.present().await?.named(name)
    }

    /// A page of the list of deployments.
    pub async fn find_deployments(
        &self,
        actor: &Actor,
        query: &DeploymentsWanted,
    ) -> Result<DeploymentPage, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let mut connection = self.connection().await?;
        let counts: BTreeMap<_, _> =
            reading::counts(&mut connection).await.map_err(from_store)?.into_iter().collect();
        let drafts = intent::drafts(&mut connection).await.map_err(from_store)?;
        let summary = |Placed { id, depth, path }| {
            let found = present.skeleton.deployments.get(&id)?;
            let draft = drafts.get(&id).copied();
            let counted = counts.get(&id).copied().unwrap_or_default();
            let summary = DeploymentSummary {
                id,
                name: found.name.clone(),
                depth,
                nodes: counted.nodes,
                steps: counted.steps,
                proposal: draft.map(|(proposal, _)| proposal),
                submission: draft.and_then(|(_, submission)| submission),
                target: present.row(id).map_or(BlueprintNumber(0), |r| r.head_no),
            };
            Some((path, summary))
        };
        let name = words::asked(&query.filter)?.unwrap_or_default();
        let held = |id: DeploymentId| present.row(id).is_some_and(|row| row.held.is_some());
        let wants = |(_, found): &(String, DeploymentSummary)| {
            found.name.as_str().contains(name)
                && query.state.is_none_or(|state| is_so(found, held(found.id), state))
        };
        let rows: Vec<_> = tree(&present).into_iter().filter_map(summary).filter(wants).collect();
        let keys = |(path, found): &(String, DeploymentSummary), sort: DeploymentSort| {
            let (name, nodes) = (Key::from(found.name.as_str()), found.nodes);
            match sort {
                DeploymentSort::Tree => vec![Key::from(path.as_str())],
                DeploymentSort::Name => vec![name],
                DeploymentSort::Nodes => vec![Key::from(nodes), name],
                DeploymentSort::Errors => vec![Key::from(found.steps.error), name],
                DeploymentSort::Target => vec![Key::from(found.target.0), name],
            }
        };
        let (rows, next) = cursor::page(rows, keys, query.sort, query.after.as_ref(), PAGE_SIZE)?;
        Ok(DeploymentPage { deployments: rows.into_iter().map(|(_, found)| found).collect(), next })
    }

    async fn removed(&self, id: NoderoleId, row: &NoderoleRow) -> Result<Problem, Problem> {
        let mut connection = self.connection().await?;
        let removal = reading::removal_state(&mut connection, id).await.map_err(from_store)?;
        let progress = match removal.as_deref() {
            Some("blocked" | "todo" | "transition") => " Its remove still has to run on the node.",
            Some("error") => " Its remove failed on the node. Retry it.",
            _ => "",
        };
        Ok(Problem::not_found(format!(
            "Noderole {} on {} was removed by target {}.{progress} Its runs are in the list of runs.",
            row.noderole.role, row.node.fqdn, row.step.generation
        )))
    }

    /// The details of a noderole.
    pub async fn noderole(&self, actor: &Actor, id: NoderoleId) -> Result<NoderoleView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let row = reading::noderole(&self.store, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| {
            Problem::not_found(
                "This noderole does not exist. A noderole from a proposal exists after the \
                 proposal is committed.",
            )
        })?;
        if row.noderole.disposition != "in_service" {
            return Err(self.removed(id, &row).await?);
        }
        let step = StepId::of(id, &ActionName::run());
        let runs = reading::runs_of_step(&self.store, step).await.map_err(from_store)?;
        let mut connection = self.connection().await?;
        let parents = reading::parents(&mut connection, step).await.map_err(from_store)?;
        let children =
            reading::children(&mut connection, step, PAGE_SIZE as i64).await.map_err(from_store)?;
        let role_hash = Hash::from_bytes(&row.noderole.role_hash).ok_or_else(Problem::internal)?;
        let role = present.catalog.role(role_hash).map_err(corrupt)?;
        let deployment = DeploymentId(row.noderole.deployment_id);
        let role_name = RoleName::parse(&row.noderole.role).map_err(corrupt)?;
        let data = self.own_data(&present, &row, role, &role_name);
        let state = StepState::from_word(&row.step.state).unwrap_or(StepState::Blocked);
        let why = self.why(&mut connection, &present, step, state, &row, &parents).await?;
        drop(connection);
        let may_edit = self.noderole_draft(actor, &present, &row, role).await?;
        let layered = layers(
            step,
            data.own(role),
            row.step.wall.as_ref().map(|value| Wall { value, run: row.step.wall_run.map(RunId) }),
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
            fqdn: present.in_full(&row.node.fqdn),
            deployment: DeploymentName::parse(&row.deployment.name).map_err(corrupt)?,
            deployment_id: deployment,
            state,
            since: at(row.step.since),
            why,
            error: row.step.error.clone(),
            generation: BlueprintNumber(row.step.generation),
            applied: (row.step.applied_generation > 0)
                .then_some(BlueprintNumber(row.step.applied_generation)),
            role_hash: role_hash.short(),
            layers: data.layers(role, row.step.wall.as_ref()),
            merged: mask(&layered.value),
            provenance: sources.take(MAX_VALUES).collect(),
            values: layered.sources.len(),
            wall: row.step.wall.clone().unwrap_or_else(|| json!({})),
            attribs: attribs(role),
            parents: parents.iter().map(|row| to_ref(&present, row)).collect::<Result<_, _>>()?,
            children: children.iter().map(|row| to_ref(&present, row)).collect::<Result<_, _>>()?,
            runs: runs.iter().map(|row| to_run(&present, row)).collect::<Result<_, _>>()?,
            limits: limits(&row.step),
            may_retry: may_retry(actor, deployment, state),
            may_edit,
            may_propose: actor
                .require_in(Permission::Operator, deployment)
                .map_err(|problem| problem.detail),
        })
    }

    fn own_data(
        &self,
        present: &Present,
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
        present: &Present,
        row: &NoderoleRow,
        role: &Role,
    ) -> Result<Result<NoderoleDraft, String>, Problem> {
        let deployment = DeploymentId(row.noderole.deployment_id);
        if !actor.has_permission_in(Permission::Operator, deployment) {
            return Ok(Err("You cannot edit this without the permission operator.".into()));
        }
        let mut connection = self.connection().await?;
        let Some(open) =
            intent::open_proposal(&mut connection, deployment).await.map_err(from_store)?
        else {
            let name = &row.deployment.name;
            return Ok(Err(format!(
                "Open a proposal on {name} first. Its data changes only after a review."
            )));
        };
        let edits = intent::edits(&mut connection, open.id).await.map_err(from_store)?;
        drop(connection);
        let planned = plan_on_pool(&self.beside(actor), present, counting(&edits)).await?;
        let (node, key) = self.key_of(row)?;
        let drafted =
            planned.effects.noderole_data.iter().find(|d| d.node == node && d.noderole == key);
        Ok(Ok(NoderoleDraft {
            proposal: open.id,
            version: open.version,
            would_join: would_join(actor, &edits),
            data: drafted.map_or_else(|| row.noderole.data.clone(), |d| d.data.clone()),
            below: data_below_user(&planned.effects, present, row, role, &key),
            rerun: planned.effects.reruns.iter().any(|r| r.node == node && r.noderole == key),
        }))
    }

    fn key_of(&self, row: &NoderoleRow) -> Result<(NodeId, NoderoleKey), Problem> {
        let role = RoleName::parse(&row.noderole.role).map_err(corrupt)?;
        let instance = u32::try_from(row.noderole.instance).map_err(corrupt)?;
        Ok((NodeId(row.noderole.node_id), NoderoleKey { role, instance }))
    }

    /// The reasons for a step's state, each with its solution.
    async fn why(
        &self,
        on: &mut PgConnection,
        present: &Present,
        step: StepId,
        state: StepState,
        row: &NoderoleRow,
        parents: &[EdgeRow],
    ) -> Result<Vec<String>, Problem> {
        let mut why = Vec::new();
        match state {
            StepState::Blocked => {
                why.extend(parents.iter().filter_map(|parent| blocked_by(present, parent)))
            }
            StepState::Todo => {
                why.extend(self.waits(on, step).await?);
            }
            StepState::Transition => {
                let run = reading::open_run(on, step).await.map_err(from_store)?;
                why.extend(run.map(|run| match run.state.as_str() {
                    "queued" => format!("Run {} waits for a worker with a free slot.", run.id),
                    _ => format!("Run {} is under way.", run.id),
                }));
            }
            // The page shows the error itself next to this.
            StepState::Error => why.push(
                "The step failed. Retry it, or change its data with a proposal. Its dependents \
                 wait until then."
                    .into(),
            ),
            StepState::Active | StepState::Proposed => {}
        }
        if state == StepState::Active && row.step.applied_generation < row.step.generation {
            why.push(format!("The step has not applied target {} yet.", row.step.generation));
        }
        if let Some(cause) = &row.step.cause {
            let by = row.step.cause_by.as_deref();
            why.push(format!("The step runs again: {}.", cause_text(cause, by)));
        }
        Ok(why)
    }

    /// All admission rules that keep a TODO step from starting. The global run limit is a setting
    /// of the workers and unknown here, so only their capacity counts.
    async fn waits(&self, on: &mut PgConnection, step: StepId) -> Result<Vec<String>, Problem> {
        let Some(view) = reading::admission_view(on, step).await.map_err(from_store)? else {
            return Ok(Vec::new());
        };
        let reasons = why_not(&view, DEFAULT_LIMITS, step);
        let by = reasons.iter().filter_map(|reason| match reason {
            Reason::Frozen { by, .. } | Reason::Exclusive { by, .. } => Some(*by),
            _ => None,
        });
        let by: Vec<StepId> = by.collect();
        let names = reading::step_names(on, &by).await.map_err(from_store)?.into_iter().collect();
        if reasons.is_empty() {
            return Ok(vec![format!(
                "Starts when a worker claims it. {} {} under way.",
                many(view.open.len(), "run"),
                either(view.open.len(), "is", "are")
            )]);
        }
        Ok(reasons.iter().map(|reason| reason_text(reason, &names)).collect())
    }

    /// A page of the list of runs.
    pub async fn find_runs(&self, actor: &Actor, query: &RunsWanted) -> Result<RunPage, Problem> {
        actor.require(Permission::Viewer)?;
        let state = query.state.as_str();
        let known = ["queued", "running", "succeeded", "failed", "lost", "cancelled", "unstarted"];
        if !state.is_empty() && !known.contains(&state) {
            return Err(Problem::invalid(format!(
                "Unknown run state {state:?}. Use one of: {}.",
                known.join(", ")
            )));
        }
        let behind = cursor::behind(query.sort, query.before.as_ref())?;
        let present = self.present().await?;
        let worker = match words::asked(&query.worker)? {
            Some(worker) => Some(self.worker_id(worker).await?),
            None => None,
        };
        let (since, until) = window(query.since, query.until)?;
        let filter = RunFilter {
            state: Some(state).filter(|s| !s.is_empty()),
            deployment: words::asked(&query.deployment)?
                .map(|name| present.named(name))
                .transpose()?,
            node: words::asked(&query.node)?.map(|name| node_named(&present, name)).transpose()?,
            role: words::asked(&query.role)?,
            worker,
            since,
            until,
            order: query.sort,
            behind: behind.as_deref(),
        };
        let rows = reading::runs(&self.store, filter).await.map_err(from_store)?;
        let more = rows.len() > PAGE_SIZE;
        let runs = rows
            .iter()
            .take(PAGE_SIZE)
            .map(|row| to_run(&present, row))
            .collect::<Result<Vec<_>, _>>()?;
        let last = if more { rows.get(PAGE_SIZE - 1) } else { None };
        let next = last.map(|row| Cursor::behind(query.sort, &row.keys(query.sort.by)));
        Ok(RunPage { runs, next })
    }

    pub async fn run(&self, actor: &Actor, id: RunId) -> Result<RunView, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.present().await?;
        let row = reading::run(&self.store, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_run(id))?;
        let attempts = reading::runs_of_step(&self.store, StepId(row.run.step_id))
            .await
            .map_err(from_store)?;
        let mut connection = self.connection().await?;
        let documents = reading::run_documents(&mut connection, id).await.map_err(from_store)?;
        let (input, result, wall, submission, bytes) = documents.unwrap_or_default();
        let input = input.unwrap_or_else(|| json!({}));
        let summary = to_run(&present, &row)?;
        let open = matches!(summary.state, RunState::Queued | RunState::Running);
        let may_cancel = match (open, row.run.cancel_requested) {
            (false, _) => Err("The run has ended.".to_owned()),
            (true, true) => {
                Err("The run is already being canceled. It ends when its node stops it.".to_owned())
            }
            (true, false) => match reading::run_deployment(&mut connection, id)
                .await
                .map_err(from_store)?
            {
                Some(place) => actor.require_in(Permission::Operator, place).map_err(|p| p.detail),
                None => Err("The run has ended.".to_owned()),
            },
        };
        Ok(RunView {
            input: input.get("data").cloned().unwrap_or_else(|| json!({})),
            provenance: self.provenance(&mut connection, &input).await?,
            values: input.get("sources").and_then(Value::as_object).map_or(0, serde_json::Map::len),
            result_gone: result.is_none() && bytes > 0,
            result,
            wall,
            attempts: attempts.iter().map(|row| to_run(&present, row)).collect::<Result<_, _>>()?,
            submission: submission.map(ReviewId),
            may_cancel,
            log_bytes: row.run.log_bytes,
            limits: limits(&row.step),
            run: summary,
            cursor,
        })
    }

    /// The source of each value of a run's input, with names instead of ids.
    async fn provenance(
        &self,
        on: &mut PgConnection,
        input: &Value,
    ) -> Result<Vec<Provenance>, Problem> {
        let data = input.get("data").cloned().unwrap_or_default();
        let sources = input.get("sources").and_then(Value::as_object).cloned().unwrap_or_default();
        let step = |source: &Value| {
            source.get("step").and_then(Value::as_str).and_then(|s| s.parse::<StepId>().ok())
        };
        let steps: Vec<StepId> = sources.values().take(MAX_VALUES).filter_map(step).collect();
        let names: BTreeMap<StepId, String> =
            reading::step_names(on, &steps).await.map_err(from_store)?.into_iter().collect();
        let entry = |(path, source): (&String, &Value)| {
            let layer = layer_name(source.get("layer").unwrap_or(&Value::Null));
            let owner = step(source).and_then(|s| names.get(&s).cloned());
            Provenance {
                path: path.clone(),
                value: value_text(&data, path),
                source: owner.map(|owner| format!("{layer} of {owner}")).unwrap_or(layer),
            }
        };
        Ok(sources.iter().take(MAX_VALUES).map(entry).collect())
    }
}

/// The values of a noderole below its user data, with the proposal's edits applied and secrets
/// masked.
fn data_below_user(
    effects: &Effects,
    present: &Present,
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

    fn layers(&self, _: &Role, wall: Option<&Value>) -> Vec<DataLayer> {
        let layer = |source: &str, value: &Value| DataLayer {
            source: source.into(),
            value: if value.is_null() { json!({}) } else { mask(value) },
        };
        vec![
            layer("role template", &self.template),
            layer("deployment role", &self.deployment_role),
            layer("system", &self.system),
            layer("output", wall.unwrap_or(&Value::Null)),
            layer("user", &self.user),
        ]
    }
}

/// A path of keys as a JSON pointer.
pub(crate) fn pointer(keys: &[String]) -> String {
    keys.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}

/// The attributes of a role, with their schemas.
pub(crate) fn attribs(role: &Role) -> Vec<AttribView> {
    let view = |attrib: &engine::catalog::Attrib| AttribView {
        name: attrib.name.to_string(),
        path: pointer(&attrib.map),
        description: attrib.description.clone(),
        schema: attrib.schema.clone(),
    };
    role.attribs.iter().map(view).collect()
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

fn blocked_by(present: &Present, parent: &EdgeRow) -> Option<String> {
    let name = format!("{} on {}", parent.role, present.in_full(&parent.fqdn));
    match StepState::from_word(&parent.state)? {
        StepState::Active => None,
        StepState::Error => Some(format!(
            "Blocked by the error of {name}: {}.",
            parent.error.as_deref().unwrap_or("see its runs")
        )),
        state => Some(format!("Waits for {name}, which is {}.", state.word())),
    }
}

/// An admission rule as text for pages, with its solution and with names instead of step ids.
pub(crate) fn reason_text(reason: &Reason, names: &BTreeMap<StepId, String>) -> String {
    let named = |step: &StepId| names.get(step).cloned().unwrap_or_else(|| step.to_string());
    let words = match reason {
        Reason::Paused => {
            "Execution is off: an operator can switch it on, at the top of each page or with \
             `gantry execution on --reason TEXT`"
                .to_owned()
        }
        Reason::Room { capacity: 0, .. } => {
            "No worker is running: start one with `gantry worker`".to_owned()
        }
        Reason::Room { running, capacity, .. } => {
            let (open, are) = (many(*running, "run"), either(*running, "is", "are"));
            format!("Waits for a free slot: {open} {are} open, and workers have {capacity} slots")
        }
        Reason::Frozen { node, by } => {
            format!("The error of {} stops all steps on {node}: retry it", named(by))
        }
        Reason::Exclusive { node, by } => {
            format!("Waits for node {node}: {} runs there", named(by))
        }
        other => other.to_string(),
    };
    let mut letters = words.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn cause_text(cause: &str, by: Option<&str>) -> String {
    let words = match cause.strip_suffix(" again").unwrap_or(cause) {
        "changed" => "a reviewed change",
        "slice" => "a reviewed re-run",
        "data" => "its input data changed",
        "hook" => "a hook requested it",
        "drift" => "the node differs from the applied state",
        "node_back" => "its node answers again",
        "retry" => return format!("{} retried it", by.unwrap_or("a person")),
        other => other,
    };
    match by {
        Some(by) => format!("{words}, by {by}"),
        None => words.to_owned(),
    }
}

/// Why a step ran again; `None` for its first run.
fn because(run: &reading::RunModel) -> Option<String> {
    let cause = run.cause.as_deref().map(|cause| cause_text(cause, run.cause_by.as_deref()));
    let retry = (run.failures > 0).then(|| {
        let failures = usize::try_from(run.failures).unwrap_or(usize::MAX);
        format!("retried after {}", count(failures, "failure"))
    });
    let causes: Vec<String> = cause.into_iter().chain(retry).collect();
    (!causes.is_empty()).then(|| causes.join("; "))
}

/// The run limits of a step's role, as text.
fn limits(step: &reading::StepModel) -> Vec<(String, String)> {
    let (retries, failures) = (step.retries, step.failures);
    let retry_text = match (retries, failures) {
        (0, _) => "none: the first failure is an error".to_owned(),
        (_, 0) => {
            format!(
                "{retries}, the first after {} s, then with doubled delays of at most one hour",
                step.backoff_s
            )
        }
        _ => format!(
            "{failures} of {retries} used, the first after {} s, then with doubled delays",
            step.backoff_s
        ),
    };
    let stops = if step.freezes_node { "all steps on its node" } else { "its dependents" };
    let mut said = vec![
        ("Retries", retry_text),
        ("Time limit", words::lasting(step.timeout_s)),
        ("An error stops", stops.to_owned()),
    ];
    if step.priority != 0 {
        said.push(("Priority", step.priority.to_string()));
    }
    said.into_iter().map(|(name, words)| (name.to_owned(), words)).collect()
}

/// The display name of a data layer, from its JSON.
fn layer_name(layer: &Value) -> String {
    match layer {
        Value::String(word) => match word.as_str() {
            "template" => "role template".into(),
            "deployment_role" => "deployment role".into(),
            "wall" => "output".into(),
            other => other.to_owned(),
        },
        Value::Object(map) => map
            .get("profile")
            .and_then(Value::as_str)
            .map(|name| format!("profile {name}"))
            .unwrap_or_default(),
        _ => String::new(),
    }
}

fn value_text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).map(|found| match mask(found) {
        Value::String(text) => text,
        other => other.to_string(),
    });
    text.unwrap_or_default().chars().take(500).collect()
}

fn to_ref(present: &Present, row: &EdgeRow) -> Result<NoderoleRef, Problem> {
    Ok(NoderoleRef {
        id: NoderoleId(row.noderole_id),
        role: RoleName::parse(&row.role).map_err(corrupt)?,
        fqdn: present.in_full(&row.fqdn),
        state: StepState::from_word(&row.state).unwrap_or(StepState::Blocked),
    })
}

fn run_state(row: &RunRow) -> RunState {
    match (row.run.state.as_str(), row.run.outcome.as_deref()) {
        ("queued", _) => RunState::Queued,
        ("running", _) => RunState::Running,
        (_, Some("succeeded")) => RunState::Succeeded,
        (_, Some("cancelled")) => RunState::Cancelled,
        (_, Some("unstarted")) => RunState::Unstarted,
        (_, Some("lost" | "late")) => RunState::Lost,
        _ => RunState::Failed,
    }
}

pub(crate) fn to_run(present: &Present, row: &RunRow) -> Result<RunSummary, Problem> {
    Ok(RunSummary {
        id: RunId(row.run.id),
        noderole: NoderoleId(row.noderole),
        role: RoleName::parse(&row.role).map_err(corrupt)?,
        action: ActionName::parse(&row.step.action).map_err(corrupt)?,
        fqdn: present.in_full(&row.fqdn),
        deployment: DeploymentName::parse(&row.deployment).map_err(corrupt)?,
        state: run_state(row),
        cause: because(&row.run),
        target: BlueprintNumber(row.run.generation),
        worker: row.worker.clone(),
        queued: at(row.run.queued_at),
        started: row.run.started_at.map(at),
        ended: row.run.ended_at.map(at),
        error: row.run.error.clone(),
    })
}

/// A deployment with its position in the tree.
pub(crate) struct Placed {
    pub(crate) id: DeploymentId,
    /// Levels below the root.
    pub(crate) depth: u32,
    /// The names from the root to the deployment, joined by a separator that sorts before all
    /// characters of names. Sorting by path puts each deployment directly below its parent and
    /// siblings in name order. A cursor with a path stays valid if the deployment is removed.
    path: String,
}

/// All deployments in tree order: each directly below its parent, siblings by name.
pub(crate) fn tree(present: &Present) -> Vec<Placed> {
    let all = &present.skeleton.deployments;
    let mut below: BTreeMap<Option<DeploymentId>, Vec<DeploymentId>> = BTreeMap::new();
    for (id, deployment) in all {
        below.entry(deployment.parent).or_default().push(*id);
    }
    let named = |id: &DeploymentId| all.get(id).map(|found| (*id, found.name.as_str()));
    let children =
        |of: Option<DeploymentId>| below.get(&of).into_iter().flatten().filter_map(named);
    let mut open: Vec<Placed> =
        children(None).map(|(id, name)| Placed { id, depth: 0, path: name.to_owned() }).collect();
    let mut tree = Vec::with_capacity(all.len());
    while let Some(above) = open.pop() {
        let (depth, path) = (above.depth + 1, &above.path);
        open.extend(children(Some(above.id)).map(|(id, name)| Placed {
            id,
            depth,
            path: format!("{path} {name}"),
        }));
        tree.push(above);
    }
    tree.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}
