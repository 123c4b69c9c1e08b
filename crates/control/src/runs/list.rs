//! The list of runs, and the details of a run.

use std::collections::BTreeMap;

use api::Problem;
use api::listing::PAGE_SIZE;
use api::runs::{RunLimit, RunPage, RunState, RunSummary, RunView};
use api::runs::{RunSort, RunsQuery};
use api::values::MAX_VALUES;
use api::values::Provenance;
use engine::anneal::Reason;
use engine::counting::{either, many};
use engine::data::mask;
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId, ReviewId,
    RoleName, RunId, StepId,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::runs::{RunFilter, RunRow};

use crate::audit::window;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store, no_run};
use crate::text::{self, at, count};
use crate::{Control, cursor};

impl Control {
    /// A page of the list of runs.
    pub async fn find_runs(&self, actor: &Actor, query: &RunsQuery) -> Result<RunPage, Problem> {
        actor.require(Permission::Viewer)?;
        let state = query.state.as_str();
        let known = ["queued", "running", "succeeded", "failed", "lost", "canceled", "unstarted"];
        if !state.is_empty() && !known.contains(&state) {
            return Err(Problem::invalid(format!(
                "Unknown run state {state:?}. Use one of: {}.",
                known.join(", ")
            )));
        }
        let sort = match query.sort.by {
            RunSort::Queued => RunRow::BY_ID,
            RunSort::State => RunRow::BY_STATE,
            RunSort::Durations => RunRow::BY_DURATION,
        };
        let page = cursor::stored(query.sort, query.before.as_ref(), query.limit, sort)?;
        let present = self.current_state().await?;
        let worker = match text::filter_text(&query.worker)? {
            Some(worker) => Some(self.worker_id(worker).await?),
            None => None,
        };
        let (since, until) = window(query.since, query.until)?;
        let filter = RunFilter {
            state: Some(state).filter(|s| !s.is_empty()),
            deployment: text::filter_text(&query.deployment)?
                .map(|name| present.named(name))
                .transpose()?,
            node: text::filter_text(&query.node)?
                .map(|name| present.node_named(name))
                .transpose()?,
            role: text::filter_text(&query.role)?,
            worker,
            since,
            until,
        };
        let mut rows = store::runs::runs(&self.store, filter, &page).await.map_err(from_store)?;
        let next = cursor::cut(&mut rows, query.sort, &page);
        let runs = rows.iter().map(|row| to_run(&present, row)).collect::<Result<_, _>>()?;
        Ok(RunPage { runs, next })
    }

    pub async fn run(&self, actor: &Actor, id: RunId) -> Result<RunView, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let row = store::runs::run(&self.store, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_run(id))?;
        let attempts =
            store::runs::runs_of_step(&self.store, StepId(row.run.step_id), PAGE_SIZE as u64)
                .await
                .map_err(from_store)?;
        let mut connection = self.connection().await?;
        let documents =
            store::runs::run_documents(&mut connection, id).await.map_err(from_store)?;
        let (input, result, output, review, bytes) = documents.unwrap_or_default();
        let input = input.unwrap_or_else(|| json!({}));
        let summary = to_run(&present, &row)?;
        let open = matches!(summary.state, RunState::Queued | RunState::Running);
        let may_cancel = match (open, row.run.cancel_requested) {
            (false, _) => Err("The run has ended.".to_owned()),
            (true, true) => {
                Err("The run is already being canceled. It ends when its node stops it.".to_owned())
            }
            (true, false) => match store::runs::run_deployment(&mut connection, id)
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
            result_expired: result.is_none() && bytes > 0,
            result,
            output,
            attempts: attempts.iter().map(|row| to_run(&present, row)).collect::<Result<_, _>>()?,
            review: review.map(ReviewId),
            may_cancel: may_cancel.into(),
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
        let names: BTreeMap<StepId, String> = store::deployments::step_names(on, &steps)
            .await
            .map_err(from_store)?
            .into_iter()
            .collect();
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

/// An admission rule as text for pages, with its solution and with names instead of step ids.
pub(crate) fn reason_text(reason: &Reason, names: &BTreeMap<StepId, String>) -> String {
    let named = |step: &StepId| names.get(step).cloned().unwrap_or_else(|| step.to_string());
    let words = match reason {
        Reason::Paused => {
            "Execution is off: an operator can turn it on, at the top of each page or with \
             `gantry execution on --reason TEXT`"
                .to_owned()
        }
        Reason::RunLimit { capacity: 0, .. } => {
            "No worker is running, or all are draining: start one with `gantry worker`, or resume one"
                .to_owned()
        }
        Reason::RunLimit { running, draining, capacity, .. } => {
            let (open, are) = (many(*running, "run"), either(*running, "is", "are"));
            let draining = match draining {
                0 => String::new(),
                some => format!(", {some} of them on draining workers"),
            };
            format!(
                "Waits for a free slot: {open} {are} open{draining}, and workers have {capacity} \
                 slots"
            )
        }
        Reason::NodeBlocked { node, by } => {
            format!("The error of {} stops all steps on {node}: retry it", named(by))
        }
        Reason::Exclusive { node, by } => {
            format!("Waits for node {node}: {} runs there", named(by))
        }
        Reason::OtherAction { .. } => {
            "Waits for another action of this noderole, which is running".to_owned()
        }
        other => other.to_string(),
    };
    let mut letters = words.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// The state of a run, from its state or, once it has ended, its outcome.
pub(crate) fn state_of_run(state: &str) -> RunState {
    match state {
        "queued" => RunState::Queued,
        "running" => RunState::Running,
        "succeeded" => RunState::Succeeded,
        "canceled" => RunState::Canceled,
        "unstarted" => RunState::Unstarted,
        "lost" | "late" => RunState::Lost,
        _ => RunState::Failed,
    }
}

pub(crate) fn to_run(present: &CurrentState, row: &RunRow) -> Result<RunSummary, Problem> {
    Ok(RunSummary {
        id: RunId(row.run.id),
        noderole: NoderoleId(row.noderole),
        role: RoleName::parse(&row.role).map_err(corrupt)?,
        action: ActionName::parse(&row.step.action).map_err(corrupt)?,
        node: NodeId(row.run.node_id),
        fqdn: present.long_name(&row.fqdn),
        deployment: DeploymentName::parse(&row.deployment).map_err(corrupt)?,
        deployment_id: DeploymentId(row.deployment_id),
        state: state_of_run(row.run.outcome.as_deref().unwrap_or(&row.run.state)),
        cause: rerun_reasons(&row.run),
        blueprint: BlueprintNumber(row.run.generation),
        worker: row.worker.clone(),
        worker_id: row.run.worker_id,
        queued: at(row.run.queued_at),
        started: row.run.started_at.map(at),
        ended: row.run.ended_at.map(at),
        error: row.run.error.clone(),
    })
}

pub(crate) fn cause_text(cause: &str, by: Option<&str>) -> String {
    let words = match cause.strip_suffix(" again").unwrap_or(cause) {
        "changed" => "a reviewed change",
        "slice" => "a reviewed re-run",
        "data" => "its input data changed",
        "hook" => "a hook requested it",
        "drift" => "the node differs from the applied state",
        "check" => "its check failed",
        "node_away" => "its node does not answer",
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
fn rerun_reasons(run: &store::runs::RunModel) -> Option<String> {
    let cause = run.cause.as_deref().map(|cause| cause_text(cause, run.cause_by.as_deref()));
    let retry = (run.failures > 0).then(|| {
        let failures = usize::try_from(run.failures).unwrap_or(usize::MAX);
        format!("retried after {}", count(failures, "failure"))
    });
    let causes: Vec<String> = cause.into_iter().chain(retry).collect();
    (!causes.is_empty()).then(|| causes.join("; "))
}

/// The run limits of a step's role, as text.
pub(crate) fn limits(step: &store::runs::StepModel) -> Vec<RunLimit> {
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
    let stops = if step.blocks_node { "all steps on its node" } else { "its dependents" };
    let mut message = vec![
        ("Retries", retry_text),
        ("Time limit", text::duration_text(step.timeout_s)),
        ("An error stops", stops.to_owned()),
    ];
    if step.priority != 0 {
        message.push(("Priority", step.priority.to_string()));
    }
    message.into_iter().map(|(name, value)| RunLimit { name: name.to_owned(), value }).collect()
}

/// The display name of a data layer, from its JSON.
pub(crate) fn layer_name(layer: &Value) -> String {
    match layer {
        Value::String(word) => match word.as_str() {
            "template" => "role template".into(),
            "deployment_role" => "deployment role".into(),
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

pub(crate) fn value_text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).map(|found| match mask(found) {
        Value::String(text) => text,
        other => other.to_string(),
    });
    text.unwrap_or_default().chars().take(500).collect()
}
