//! Values with their sources. Each value names the layer that sets it, the noderole of that layer,
//! and the run or edit that wrote it. So users can see why an edit has no effect on a value.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::listing::{Cursor, Key, Limit};
use api::values::{
    MAX_VALUE_CHARS, MAX_VALUES, ResultLine, ResultOutcome, ResultPage, ResultsQuery, SetBy,
    ValueLayer, ValuePage, ValueView, ValuesQuery, ValuesView,
};
use engine::Hash;
use engine::catalog::Role;
use engine::cluster::NoderoleKey;
use engine::data::{
    Contribution, Layer, Layered, OwnData, RunSources, Source, StepOutput, layers, mask, visible,
};
use engine::ids::{
    BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId, ProposalId, RoleName, RunId,
    StepId,
};
use serde_json::Value;
use sqlx::PgConnection;
use store::deployments::{NoderoleRow, ResultFilter, SetRow, Setting, StepOf};
use store::runs::VisibleStepData;

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_run};
use crate::text::{self, at};
use crate::{Control, cursor};

/// Maximum number of results per page.
const RESULTS_PER_PAGE: usize = 50;
/// Maximum number of data sets per page for which edits are searched.
const MAX_SETTINGS: usize = 50;

fn corrupt(error: impl std::fmt::Display) -> Problem {
    tracing::error!(%error, "cannot read a row");
    Problem::internal()
}

impl Control {
    /// The values that a run of a noderole would see now, or the noderole's own values, each with
    /// its source.
    ///
    /// # Errors
    /// Not found.
    pub async fn noderole_values(
        &self,
        actor: &Actor,
        id: NoderoleId,
        query: &ValuesQuery,
    ) -> Result<ValuesView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let row = store::deployments::noderole(&self.store, id).await.map_err(from_store)?;
        let row = row.filter(|row| row.noderole.disposition == "in_service");
        let row =
            row.ok_or_else(|| Problem::not_found("This noderole does not exist or was removed."))?;
        let layered = self.layered(&present, &row, query.own).await?;
        let sources =
            layered.sources.iter().map(|(path, source)| (path.as_str(), source.clone())).collect();
        let mut connection = self.connection().await?;
        let page =
            page(&mut connection, &present, &layered.value, sources, query, present.head.number)
                .await?;
        Ok(ValuesView {
            name: format!("{} on {}", row.noderole.role, present.long_name(&row.node.fqdn)),
            noderole: id,
            deployment: DeploymentName::parse(&row.deployment.name).map_err(corrupt)?,
            deployment_id: DeploymentId(row.noderole.deployment_id),
            run: None,
            page,
            surroundings: None,
        })
    }

    async fn layered(
        &self,
        present: &CurrentState,
        row: &NoderoleRow,
        own_only: bool,
    ) -> Result<Layered, Problem> {
        let role = role_of(present, &row.noderole.role_hash)?;
        let of_role = role_data(present, DeploymentId(row.noderole.deployment_id), &role.name);
        let own = OwnData {
            template: &role.template,
            profiles: &[],
            deployment_role: of_role,
            system: &row.noderole.system_data,
            user: &row.noderole.data,
        };
        let step = StepId(row.step.id);
        if own_only {
            let run = row.step.output_run.map(RunId);
            let output = row.step.output.as_ref().map(|value| StepOutput { value, run });
            return layers(step, own, output).map_err(corrupt);
        }
        let of = [(step, NodeId(row.node.id))];
        let seen = store::runs::visible_steps(self.store.pool(), &of)
            .await
            .map_err(from_store)?
            .remove(&step)
            .unwrap_or_default();
        let seen = seen.iter().map(|seen| Ok((seen.distance, contribution(present, &seen.step)?)));
        let seen = seen.collect::<Result<Vec<_>, Problem>>()?;
        let sources = RunSources {
            on_node: seen
                .iter()
                .filter(|(distance, _)| distance.is_none())
                .map(|(_, seen)| *seen)
                .collect(),
            ancestors: seen
                .iter()
                .filter_map(|(distance, seen)| Some(((*distance)?, *seen)))
                .collect(),
            step,
            own,
        };
        visible(&sources).map_err(corrupt)
    }

    /// The input of a run, each value with its source, and the further data that the run received.
    ///
    /// # Errors
    /// Not found.
    pub async fn run_values(
        &self,
        actor: &Actor,
        id: RunId,
        query: &ValuesQuery,
    ) -> Result<ValuesView, Problem> {
        actor.require(Permission::Viewer)?;
        if query.own {
            return Err(Problem::invalid(
                "own: a run has no values of its own. Omit it, or get the values of the noderole.",
            ));
        }
        let present = self.current_state().await?;
        let row = store::runs::run(&self.store, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_run(id))?;
        let noderole = store::deployments::noderole(&self.store, NoderoleId(row.noderole))
            .await
            .map_err(from_store)?;
        let noderole = noderole.ok_or_else(|| {
            Problem::not_found(format!(
                "The noderole of run {id} no longer exists, so the run has no values."
            ))
        })?;
        let mut connection = self.connection().await?;
        let documents =
            store::deployments::run_input(&mut connection, id).await.map_err(from_store)?;
        let (input, surroundings, target) = documents.unwrap_or_default();
        let input = input.unwrap_or_default();
        let empty = serde_json::Map::new();
        let source_values = input.get("sources").and_then(Value::as_object).unwrap_or(&empty);
        // Sort by path; the database does not keep an order.
        let sources = source_values.iter().filter_map(|(path, source)| {
            Some((path.as_str(), serde_json::from_value::<Source>(source.clone()).ok()?))
        });
        let data = input.get("data").unwrap_or(&Value::Null);
        let page = page(
            &mut connection,
            &present,
            data,
            sources.collect(),
            query,
            BlueprintNumber(target),
        )
        .await?;
        Ok(ValuesView {
            name: format!("{} on {}", row.role, present.long_name(&row.fqdn)),
            noderole: NoderoleId(row.noderole),
            deployment: DeploymentName::parse(&row.deployment).map_err(corrupt)?,
            deployment_id: DeploymentId(noderole.noderole.deployment_id),
            run: Some(id),
            page,
            surroundings,
        })
    }

    /// Like [`Control::results`], with the node's name or id.
    ///
    /// # Errors
    /// Not found.
    pub async fn node_results(
        &self,
        actor: &Actor,
        name: &str,
        query: &ResultsQuery,
    ) -> Result<ResultPage, Problem> {
        let node = self.node_named(actor, name).await?;
        self.results(actor, node, query).await
    }

    /// A page of the stored results of a node. Each is shortened, already in the query.
    ///
    /// # Errors
    /// Not found.
    pub async fn results(
        &self,
        actor: &Actor,
        node: NodeId,
        query: &ResultsQuery,
    ) -> Result<ResultPage, Problem> {
        actor.require(Permission::Viewer)?;
        let after = match cursor::decode(query.sort, query.before.as_ref())?.as_deref() {
            Some([Key::Number(run)]) => Some(RunId(*run)),
            _ => None,
        };
        let filter = ResultFilter {
            outcome: query.outcome.map(ResultOutcome::as_str),
            role: text::filter_text(&query.role)?,
            ascending: !query.sort.descending,
            after,
        };
        let mut connection = self.connection().await?;
        let size = Limit::rows(query.limit, RESULTS_PER_PAGE);
        let limit = i64::try_from(size + 1).unwrap_or(i64::MAX);
        // One character more than is shown, to detect longer values.
        let characters = i32::try_from(MAX_VALUE_CHARS + 1).unwrap_or(i32::MAX);
        let found =
            store::deployments::node_results(&mut connection, node, filter, limit, characters)
                .await
                .map_err(from_store)?;
        let (rows, all) = found.ok_or_else(|| {
            Problem::not_found("This node does not exist. See the list of nodes.")
        })?;
        let more = rows.len() > size;
        let results: Vec<ResultLine> = rows
            .into_iter()
            .take(size)
            .map(|row| ResultLine {
                run: RunId(row.id),
                noderole: NoderoleId(row.noderole_id),
                role: if row.instance == 0 {
                    row.role
                } else {
                    format!("{}/{}", row.role, row.instance)
                },
                action: row.action,
                outcome: row.outcome,
                blueprint: BlueprintNumber(row.generation),
                at: at(row.ended_at),
                result: beginning(&row.begins),
                bytes: u64::from(row.result_bytes.unsigned_abs()),
            })
            .collect();
        let next = results
            .last()
            .filter(|_| more)
            .map(|last| Cursor::after_row(query.sort, &[Key::from(last.run.0)]));
        Ok(ResultPage { results, all, next })
    }
}

/// The start of a text up to the display limit, marked if it is cut.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn role_of<'p>(present: &'p CurrentState, hash: &[u8]) -> Result<&'p Role, Problem> {
    let hash = Hash::from_bytes(hash).ok_or_else(Problem::internal)?;
    present.catalog.role(hash).map(AsRef::as_ref).map_err(corrupt)
}

fn role_data<'p>(
    present: &'p CurrentState,
    deployment: DeploymentId,
    role: &RoleName,
) -> &'p Value {
    let deployment = present.blueprint.deployments.get(&deployment);
    deployment.and_then(|d| d.doc.roles.get(role)).map_or(&Value::Null, |role| &role.data)
}

fn contribution<'p>(
    present: &'p CurrentState,
    seen: &'p VisibleStepData,
) -> Result<Contribution<'p>, Problem> {
    let role = role_of(present, seen.role_hash.as_bytes())?;
    Ok(Contribution {
        step: seen.step,
        rank: seen.rank,
        own: OwnData {
            template: &role.template,
            profiles: &[],
            deployment_role: role_data(present, seen.deployment, &role.name),
            system: &seen.system_data,
            user: &seen.data,
        },
        output: StepOutput { value: &seen.output, run: seen.output_run },
    })
}

/// The requested page of the values.
async fn page(
    on: &mut PgConnection,
    present: &CurrentState,
    data: &Value,
    sources: BTreeMap<&str, Source>,
    query: &ValuesQuery,
    until: BlueprintNumber,
) -> Result<ValuePage, Problem> {
    if query.filter.chars().count() > MAX_VALUE_CHARS {
        return Err(Problem::invalid(format!(
            "The search text is too long. Use at most {MAX_VALUE_CHARS} characters."
        )));
    }
    if let Some(junk) =
        query.after.as_deref().filter(|after| !after.is_empty() && !after.starts_with('/'))
    {
        return Err(Problem::invalid(format!(
            "after: {} is not the path of a value. Use the `next` value of the previous page, such \
             as /app/port.",
            text::quoted(junk)
        )));
    }
    let steps: Vec<StepId> =
        sources.values().map(|source| source.step).collect::<BTreeSet<_>>().into_iter().collect();
    let steps = store::deployments::step_details(on, &steps).await.map_err(from_store)?;
    let steps: BTreeMap<StepId, StepOf> =
        steps.into_iter().map(|step| (StepId(step.id), step)).collect();
    let needle = query.filter.trim().to_lowercase();
    let all = sources.len();
    let found: Vec<(Source, ValueView)> = sources
        .into_iter()
        .map(|(path, source)| {
            let view = value_view(present, data, path, &source, steps.get(&source.step));
            (source, view)
        })
        .filter(|(_, view)| {
            needle.is_empty()
                || [&view.path, &view.value, &view.source]
                    .iter()
                    .any(|text| text.to_lowercase().contains(&needle))
        })
        .collect();
    let matching = found.len();
    let is_after = |view: &ValueView| query.after.as_ref().is_none_or(|after| view.path > *after);
    let mut rest = found.into_iter().filter(|(_, view)| is_after(view));
    let mut shown: Vec<(Source, ValueView)> = rest.by_ref().take(MAX_VALUES).collect();
    let next = rest.next().and_then(|_| shown.last().map(|(_, view)| view.path.clone()));
    add_edits(on, data, &steps, &mut shown, until).await?;
    Ok(ValuePage { values: shown.into_iter().map(|(_, view)| view).collect(), all, matching, next })
}

fn value_view(
    present: &CurrentState,
    data: &Value,
    path: &str,
    source: &Source,
    of: Option<&StepOf>,
) -> ValueView {
    let layer = match &source.layer {
        Layer::Template => ValueLayer::Template,
        Layer::Profile(_) => ValueLayer::Profile,
        Layer::DeploymentRole => ValueLayer::DeploymentRole,
        Layer::System => ValueLayer::System,
        Layer::Output => ValueLayer::Output,
        Layer::User => ValueLayer::User,
    };
    let words = match &source.layer {
        Layer::Profile(name) => format!("profile {name}"),
        _ => layer.label().to_owned(),
    };
    let value = match data.pointer(path).map(mask) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    ValueView {
        path: path.to_owned(),
        value: value.chars().take(MAX_VALUE_CHARS).collect(),
        layer,
        source: match of {
            Some(of) => format!("{words} of {} on {}", of.role, present.long_name(&of.fqdn)),
            None => words,
        },
        noderole: of.map(|of| NoderoleId(of.noderole_id)),
        run: source.run,
        edit: None,
    }
}

/// Adds the edit that set each user-written value. If several consecutive edits set the current
/// value, it is the earliest of these.
async fn add_edits(
    on: &mut PgConnection,
    data: &Value,
    steps: &BTreeMap<StepId, StepOf>,
    shown: &mut [(Source, ValueView)],
    until: BlueprintNumber,
) -> Result<(), Problem> {
    let settings: BTreeSet<Setting> = shown
        .iter()
        .filter_map(|(source, _)| setting(source, steps.get(&source.step)?))
        .take(MAX_SETTINGS * 4)
        .collect();
    let mut sets = BTreeMap::new();
    for setting in settings.into_iter().take(MAX_SETTINGS) {
        let rows = store::deployments::sets(on, &setting, until).await.map_err(from_store)?;
        sets.insert(setting, rows);
    }
    for (source, view) in shown {
        let setting = steps.get(&source.step).and_then(|of| setting(source, of));
        let rows = setting.and_then(|setting| sets.get(&setting));
        view.edit = rows.and_then(|rows| set_by(rows, &view.path, data.pointer(&view.path)?));
    }
    Ok(())
}

fn setting(source: &Source, of: &StepOf) -> Option<Setting> {
    match source.layer {
        Layer::User => {
            let role = RoleName::parse(&of.role).ok()?;
            let key = NoderoleKey { role, instance: of.instance.unsigned_abs() };
            Some(Setting { edit: "set_noderole_data", on: of.node_id, of: key.to_string() })
        }
        Layer::DeploymentRole => {
            Some(Setting { edit: "set_role_data", on: of.deployment_id, of: of.role.clone() })
        }
        _ => None,
    }
}

/// `rows` are newest first. `None` if the newest edit set another value; then the current value has
/// another origin.
fn set_by(rows: &[SetRow], path: &str, value: &Value) -> Option<SetBy> {
    let first = rows.iter().take_while(|row| row.data.pointer(path) == Some(value)).last()?;
    Some(SetBy {
        proposal: ProposalId(first.proposal_id),
        seq: first.seq,
        by: first.name.clone(),
        at: at(first.at),
        blueprint: BlueprintNumber(first.target),
    })
}

#[cfg(test)]
mod tests {
    use crate::deployments::values::*;
    use serde_json::json;
    use time::OffsetDateTime;

    #[test]
    fn long_values_are_shortened() {
        let of = |n: usize| beginning(&"é".repeat(n));
        assert_eq!(of(MAX_VALUE_CHARS), "é".repeat(MAX_VALUE_CHARS));
        assert_eq!(of(MAX_VALUE_CHARS + 1), "é".repeat(MAX_VALUE_CHARS) + "…");
        assert_eq!(beginning(""), "");
    }

    #[test]
    fn value_names_earliest_edit_that_set_it() {
        let row = |target: i64, data: Value| SetRow {
            proposal_id: target,
            seq: 1,
            name: "ada".into(),
            at: OffsetDateTime::UNIX_EPOCH,
            target,
            data,
        };
        let rows = [
            row(9, json!({"a": 1, "b": 3})),
            row(7, json!({"a": 1, "b": 2})),
            row(5, json!({"a": 0})),
            row(3, json!({"a": 1})),
        ];
        let by = |path: &str, value: Value| set_by(&rows, path, &value).map(|set| set.blueprint.0);
        assert_eq!(by("/a", json!(1)), Some(7), "a restored value counts from its restoration");
        assert_eq!(by("/b", json!(3)), Some(9));
        assert_eq!(by("/b", json!(2)), None, "the newest value differs, so its edit is unknown");
        assert_eq!(set_by(&[], "/a", &json!(1)), None);
    }
}
