//! Pending steps: every step that waits, since when, the reason, and who or what resolves it.
//!
//! One query groups the steps by their main reason. For the steps shown, others return all reasons
//! and the steps that they refer to. All come from one snapshot.

use std::collections::BTreeMap;

use api::Problem;
use api::deployments::NoderoleRef;
use api::listing::{Cursor, Key, Limit};
use api::pending::{
    PAGE, PendingGroup, PendingPage, PendingQuery, PendingStep, Resolver, STEPS_PER_REASON,
};
use api::runs::StepState;
use engine::anneal::{Limits, PendingReason, Reason, StepState as State};
use engine::ids::{
    ActionName, DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName, RunId, StepId,
};
use sqlx::PgConnection;
use store::runs::{AboveRow, NamedStepRow, PendingFilter, PendingRow};
use time::OffsetDateTime;

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store};
use crate::runs::list::reason_text;
use crate::text::{at, count};
use crate::{Control, cursor, done};

/// The global run limit is a setting of the workers and unknown here, so only their capacity
/// counts.
pub(crate) const DEFAULT_LIMITS: Limits = Limits { running: u32::MAX, batch: 10 };

/// The input for the texts.
struct Facts<'p> {
    present: &'p CurrentState,
    /// The reasons of TODO steps.
    reasons: BTreeMap<StepId, Vec<Reason>>,
    /// Steps that block other steps.
    places: BTreeMap<StepId, NamedStepRow>,
    above: BTreeMap<StepId, Vec<AboveRow>>,
}

impl Control {
    /// A page of pending steps.
    pub async fn pending(
        &self,
        actor: &Actor,
        query: &PendingQuery,
    ) -> Result<PendingPage, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let filter = parse_filter(&present, query)?;
        let page = match filter.reason {
            Some(_) => Limit::rows(query.limit, PAGE),
            None => Limit::rows(query.limit, STEPS_PER_REASON).min(STEPS_PER_REASON),
        };
        let mut transaction = self.snapshot().await?;
        let page = i64::try_from(page).unwrap_or(i64::MAX);
        let found = store::runs::pending_steps(&mut transaction, DEFAULT_LIMITS, &filter, page)
            .await
            .map_err(from_store)?;
        let reported =
            |row: &&PendingRow| filter.reason.is_none_or(|reason| reason.as_str() == row.reason);
        let shown: Vec<&PendingRow> = found.rows.iter().filter(reported).collect();
        let facts = facts(&mut transaction, &present, &shown).await?;
        done(transaction).await?;
        let mut groups: BTreeMap<PendingReason, PendingGroup> = BTreeMap::new();
        for row in &found.rows {
            let reason: PendingReason = row.reason.parse().map_err(corrupt)?;
            let group = groups.entry(reason).or_insert_with(|| PendingGroup {
                reason,
                heading: reason.heading().to_owned(),
                resolution: reason.frees().to_owned(),
                count: filter.after.is_none().then_some(row.total),
                more: row.more,
                steps: Vec::new(),
            });
            if reported(&row) {
                group.steps.push(facts.step(row, reason)?);
            }
        }
        let place = |(since, step): (OffsetDateTime, StepId)| {
            [Key::Number(micros(since)), Key::Text(step.to_string())]
        };
        let next = found.next.map(|last| Cursor::after_row(query.sort, &place(last)));
        Ok(PendingPage { groups: groups.into_values().collect(), next })
    }
}

fn parse_filter(present: &CurrentState, query: &PendingQuery) -> Result<PendingFilter, Problem> {
    let deployment = Some(query.deployment.trim()).filter(|name| !name.is_empty());
    let node = Some(query.node.trim()).filter(|name| !name.is_empty());
    let reason = Some(query.reason.trim()).filter(|word| !word.is_empty());
    let reason = reason.map(str::parse::<PendingReason>).transpose().map_err(|error| {
        let words: Vec<&str> = PendingReason::ALL.iter().map(|reason| reason.as_str()).collect();
        Problem::invalid(format!("{error}. Use one of: {}.", words.join(", ")))
    })?;
    let after = cursor::decode(query.sort, query.after.as_ref())?;
    if after.is_some() && reason.is_none() {
        return Err(Problem::invalid(
            "A cursor works only for a single pending reason. Add the parameter reason.",
        ));
    }
    Ok(PendingFilter {
        deployment: deployment.map(|name| present.named(name)).transpose()?,
        node: node.map(|name| present.node_named(name)).transpose()?,
        reason,
        descending: query.sort.descending,
        after: after.as_deref().map(parse_cursor).transpose()?,
    })
}

/// The cursor of a step: the start of its wait, and its id.
fn parse_cursor(keys: &[Key]) -> Result<(OffsetDateTime, StepId), Problem> {
    let [Key::Number(since), Key::Text(step)] = keys else {
        return Err(Problem::invalid("Invalid cursor. Use the `next` value of the previous page."));
    };
    let since =
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(*since) * 1_000).map_err(|_| {
            Problem::invalid("Invalid cursor. Use the `next` value of the previous page.")
        })?;
    let step: StepId = step.parse().map_err(|_| {
        Problem::invalid("Invalid cursor. Use the `next` value of the previous page.")
    })?;
    Ok((since, step))
}

fn micros(moment: OffsetDateTime) -> i64 {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

async fn facts<'p>(
    connection: &mut PgConnection,
    present: &'p CurrentState,
    rows: &[&PendingRow],
) -> Result<Facts<'p>, Problem> {
    let of = |state: &str| -> Vec<StepId> {
        rows.iter().filter(|row| row.state == state).map(|row| StepId(row.step)).collect()
    };
    let todo = of(State::Todo.as_str());
    let reasons = store::runs::admission_reasons(connection, DEFAULT_LIMITS, &todo).await;
    let reasons = reasons.map_err(from_store)?;
    let blocking: Vec<StepId> =
        reasons.values().flatten().flat_map(Reason::blocking_steps).copied().collect();
    let places = store::runs::steps_with_names(connection, &blocking).await.map_err(from_store)?;
    let mut above: BTreeMap<StepId, Vec<AboveRow>> = BTreeMap::new();
    for row in
        store::runs::above(connection, &of(State::Blocked.as_str())).await.map_err(from_store)?
    {
        above.entry(StepId(row.step)).or_default().push(row);
    }
    let places = places.into_iter().map(|place| (StepId(place.step), place)).collect();
    Ok(Facts { present, reasons, places, above })
}

impl Facts<'_> {
    fn step(&self, row: &PendingRow, reason: PendingReason) -> Result<PendingStep, Problem> {
        let (reasons, freed_by) = match row.state.as_str() {
            "todo" => self.todo_reasons(row)?,
            "blocked" => self.blocked(row, reason)?,
            "transition" => self.attempt(row, reason),
            _ => failed(row),
        };
        Ok(PendingStep {
            noderole: NoderoleId(row.noderole),
            role: RoleName::parse(&row.role).map_err(corrupt)?,
            action: ActionName::parse(&row.action).map_err(corrupt)?,
            node: NodeId(row.node),
            fqdn: self.present.long_name(&row.fqdn),
            deployment: DeploymentName::parse(&row.deployment).map_err(corrupt)?,
            deployment_id: DeploymentId(row.deployment_id),
            state: StepState::from_name(&row.state).unwrap_or(StepState::Blocked),
            since: at(row.since),
            reasons,
            resolved_by: freed_by,
        })
    }

    fn todo_reasons(&self, row: &PendingRow) -> Result<(Vec<String>, Vec<Resolver>), Problem> {
        let Some(reasons) = self.reasons.get(&StepId(row.step)) else {
            return Ok((vec!["The step starts when a worker claims it.".to_owned()], Vec::new()));
        };
        let named = |place: &NamedStepRow| {
            format!("{} on {}", place.role, self.present.long_name(&place.fqdn))
        };
        let names = self.places.iter().map(|(id, place)| (*id, named(place))).collect();
        let texts = reasons.iter().map(|reason| reason_text(reason, &names)).collect();
        let mut freed_by = Vec::new();
        for reason in reasons {
            match reason {
                Reason::OnHold { deployment, .. } => {
                    // A deployment that was created in the meantime is not known yet.
                    let id = self.present.named(deployment.as_str()).ok();
                    let resolver = |id| Resolver::Deployment { id, name: deployment.clone() };
                    freed_by.extend(id.map(resolver));
                }
                Reason::NodeDead { .. }
                | Reason::NodeAlive { .. }
                | Reason::NotJoined { .. }
                | Reason::Maintenance { .. } => {
                    freed_by.push(Resolver::Node { node: NodeId(row.node), fqdn: row.fqdn.clone() })
                }
                other => {
                    let by = other.blocking_steps().iter();
                    for place in by.filter_map(|by| self.places.get(by)) {
                        freed_by.push(self.reference(
                            place.noderole,
                            &place.role,
                            (place.node, &place.fqdn),
                            &place.state,
                        )?);
                    }
                }
            }
        }
        Ok((texts, freed_by))
    }

    fn reference(
        &self,
        noderole: uuid::Uuid,
        role: &str,
        (node, fqdn): (uuid::Uuid, &str),
        state: &str,
    ) -> Result<Resolver, Problem> {
        Ok(Resolver::Step {
            noderole: NoderoleRef {
                id: NoderoleId(noderole),
                role: RoleName::parse(role).map_err(corrupt)?,
                node: NodeId(node),
                fqdn: self.present.long_name(fqdn),
                state: StepState::from_name(state).unwrap_or(StepState::Blocked),
            },
        })
    }

    fn blocked(
        &self,
        row: &PendingRow,
        reason: PendingReason,
    ) -> Result<(Vec<String>, Vec<Resolver>), Problem> {
        let above = self.above.get(&StepId(row.step)).map(Vec::as_slice).unwrap_or_default();
        let open = above.iter().map(|row| row.open).max().unwrap_or(0);
        let parents = usize::try_from(open).unwrap_or(0);
        if open == 0 {
            let reasons = "The step is BLOCKED, but all of its parents are done: its stored count \
                        is wrong. Run `gantry verify`, then restore the step from a backup.";
            return Ok((vec![reasons.to_owned()], Vec::new()));
        }
        let named = |row: &AboveRow| {
            let word = StepState::from_name(&row.state).unwrap_or(StepState::Blocked).label();
            format!("{} on {} ({word})", row.role, self.present.long_name(&row.fqdn))
        };
        let names: Vec<String> = above.iter().filter(|row| row.parent).map(named).collect();
        let unnamed = parents.saturating_sub(names.len());
        let suffix = if unnamed > 0 { format!(" and {unnamed} more") } else { String::new() };
        let mut reasons =
            vec![format!("Waits for {}: {}{suffix}.", count(parents, "parent"), names.join(", "))];
        let top = above.iter().find(|row| !row.parent);
        reasons.extend(top.map(|top| match reason {
            PendingReason::DependencyFailed => {
                format!("The cause is the failure of {}.", named(top))
            }
            _ => format!("The next step to run is {}.", named(top)),
        }));
        // A failed step and the next step to run can be acted on; a blocked step cannot.
        let actionable = above.iter().filter(|row| row.state != "blocked");
        let freed_by = actionable
            .map(|row| self.reference(row.noderole, &row.role, (row.node, &row.fqdn), &row.state));
        Ok((reasons, freed_by.collect::<Result<_, _>>()?))
    }

    fn attempt(&self, row: &PendingRow, reason: PendingReason) -> (Vec<String>, Vec<Resolver>) {
        let Some(run) = row.run else {
            let reasons = "The step is in TRANSITION without an open run. Report this error with \
                        the server's log.";
            return (vec![reasons.to_owned()], Vec::new());
        };
        let reasons = match (reason, &row.worker) {
            (PendingReason::Overdue, Some(worker)) => format!(
                "Run {run} is overdue: worker {worker} did not report it in time, or its time \
                 limit has passed. Another worker ends it."
            ),
            (PendingReason::NoWorkerForJig, _) => {
                format!("Run {run} is queued, but no worker supports its jig.")
            }
            (PendingReason::NoWorker, _) => {
                format!("Run {run} is queued, but no worker is running.")
            }
            _ => format!("Run {run} waits for a worker with a free slot."),
        };
        (vec![reasons], vec![Resolver::Run { run: RunId(run) }])
    }
}

fn failed(row: &PendingRow) -> (Vec<String>, Vec<Resolver>) {
    let mut reasons = vec![row.error.clone().unwrap_or_else(|| "The step failed.".to_owned())];
    if row.retries > 0 && row.failures > row.retries {
        reasons.push(format!(
            "The step failed {} times, and its role permits {} retries.",
            row.failures, row.retries
        ));
    }
    (reasons, row.last_run.map(|run| Resolver::Run { run: RunId(run) }).into_iter().collect())
}
