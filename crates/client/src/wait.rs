//! `wait` and `converge`: wait for a condition until it holds, can't hold or times out.
//!
//! Invariant: a missing thing never counts as success; it has its own exit code.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::blueprints::{BlueprintView, Progress};
use api::calls;
use api::deployments::{DeploymentSummary, StepPage, StepSummary};
use api::overview::{DeploymentProgress, Overview};
use api::pending::PendingPage;
use api::reviews::ReviewState;
use api::runs::StateCounts;
use clap::{Args, Subcommand, ValueEnum};
use engine::counting::many;
use engine::ids::{BlueprintNumber, ReviewId, RunId};
use serde_json::{Value, json};

use crate::address::Query;
use crate::client::Client;
use crate::exit::{Failure, Outcome};
use crate::names;
use crate::output::progress::{TimeoutOption, Watcher};
use crate::output::{FIRST, plain, value_text};
use crate::runs::pending::pending_text;
use crate::runs::{ended, run_view, state_phrase};
use crate::server::{Server, parse_answer};

/// Time limit for fetching the pending reasons after a timeout.
const REASONS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(subcommand)]
    target: WaitTarget,
}

#[derive(Debug, Subcommand)]
enum WaitTarget {
    /// Wait until the steps of a blueprint are applied
    Blueprint {
        /// Number of the blueprint
        #[arg(value_parser = names::blueprint)]
        number: i64,
        #[command(flatten)]
        most: TimeoutOption,
        /// Condition to wait for
        #[arg(
            long = "for",
            value_name = "WHAT",
            value_enum,
            default_value_t = Converged::Converged
        )]
        _condition: Converged,
    },
    /// Wait until a run ends; exits 1 if it did not succeed
    Run {
        /// Number of the run
        id: RunId,
        #[command(flatten)]
        most: TimeoutOption,
    },
    /// Wait until a review can be committed, or is committed
    Review {
        /// Number of the review
        id: ReviewId,
        /// Condition to wait for
        #[arg(
            long = "for",
            value_name = "WHAT",
            value_enum,
            default_value_t = ReviewCondition::Open
        )]
        condition: ReviewCondition,
        #[command(flatten)]
        most: TimeoutOption,
    },
    /// Wait until all steps of a deployment are applied
    Deployment {
        /// Name of the deployment
        name: String,
        #[command(flatten)]
        most: TimeoutOption,
        /// Condition to wait for
        #[arg(
            long = "for",
            value_name = "WHAT",
            value_enum,
            default_value_t = Converged::Converged
        )]
        _condition: Converged,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Converged {
    /// All steps are applied
    Converged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReviewCondition {
    /// The gate is open
    Open,
    /// The review is committed
    Committed,
}

#[derive(Debug, Args)]
pub(crate) struct Converge {
    /// Names of deployments
    #[arg(value_name = "DEPLOYMENT", required_unless_present_any = ["all", "blueprint"])]
    deployments: Vec<String>,
    /// All deployments
    #[arg(long, conflicts_with_all = ["deployments", "blueprint"])]
    all: bool,
    /// The steps of this blueprint instead of deployments
    #[arg(long, value_name = "N", conflicts_with = "deployments", value_parser = names::blueprint)]
    blueprint: Option<i64>,
    #[command(flatten)]
    most: TimeoutOption,
}

pub(crate) fn wait(client: &Client, wait: &Wait) -> Outcome {
    match &wait.target {
        WaitTarget::Blueprint { number, most, .. } => wait_for_blueprint(client, *number, *most),
        WaitTarget::Run { id, most } => wait_for_run(client, *id, *most),
        WaitTarget::Review { id, condition, most } => {
            wait_for_review(client, *id, *condition, *most)
        }
        WaitTarget::Deployment { name, most, .. } => {
            wait_for_deployments(client, std::slice::from_ref(name), false, *most)
        }
    }
}

pub(crate) fn converge(client: &Client, converge: &Converge) -> Outcome {
    match converge.blueprint {
        Some(number) => wait_for_blueprint(client, number, converge.most),
        None => wait_for_deployments(client, &converge.deployments, converge.all, converge.most),
    }
}

fn wait_for_blueprint(client: &Client, number: i64, most: TimeoutOption) -> Outcome {
    let output = client.output;
    let mut watch = Watcher::new(&client.server, most, "");
    let mut deployment = None;
    let mut counts = StateCounts::default();
    loop {
        let value =
            watch.ask(|server| server.show(&calls::show_blueprint(BlueprintNumber(number))))?;
        if let Some(value) = value {
            let view: BlueprintView = parse_answer(&value, "expected a blueprint")?;
            watch.shows(&view.steps);
            counts = view.steps;
            deployment = view.blueprint.deployment;
            let has_no_steps = view.steps == StateCounts::default();
            match view.progress {
                Progress::Converged if has_no_steps => {
                    watch.end();
                    let message = format!(
                        "Blueprint {number} has no steps of its own. It changed none, or later \
                         blueprints run all of them again."
                    );
                    return Err(Failure::Nothing(message));
                }
                Progress::Converged => {
                    watch.end();
                    return output.either(
                        &value,
                        &format!(
                            "Blueprint {number} is converged: {}.",
                            many(view.applied, "step")
                        ),
                    );
                }
                Progress::Stuck => {
                    watch.end();
                    output.either(&value, &stuck(deployment.as_deref(), &counts, client)?)?;
                    return Err(Failure::Negative(format!(
                        "Blueprint {number} is stuck: all remaining steps need a person."
                    )));
                }
                Progress::InProgress => {}
            }
        }
        watch.next().map_err(|failure| {
            add_pending_reasons(failure, deployment.as_deref(), &counts, client)
        })?;
    }
}

/// Reasons why steps are not converged, in a deployment or in all: the pending steps, then the
/// ACTIVE steps that are stale or unchecked.
fn stuck(deployment: Option<&str>, counts: &StateCounts, client: &Client) -> Outcome<String> {
    let query = Query::default().with("deployment", deployment.unwrap_or_default());
    let server = client.server.until(Instant::now().checked_add(REASONS_TIMEOUT));
    let page: PendingPage = server.read(&query.on(&calls::List::Pending.path("")))?;
    let mut text = pending_text(&page, client.output);
    let first = |field: &'static str| -> Outcome<Vec<StepSummary>> {
        let query = query.clone().with(field, true).with("limit", i64::try_from(FIRST).ok());
        Ok(server.read::<StepPage>(&query.on(calls::STEPS_PATH))?.steps)
    };
    if counts.stale > 0 {
        text += &stale_text(counts.stale, &first("stale")?, deployment);
    }
    if counts.unchecked > 0 {
        let overview: Overview = server.read(&api::overview::show_call().url())?;
        text += &unchecked_text(counts.unchecked, &first("unchecked")?, overview.enabled);
    }
    Ok(text.trim_end().to_owned())
}

/// The names of the first steps, one per line, and the number of the others.
fn step_lines(count: i64, first: &[StepSummary]) -> String {
    let names = first.iter().map(|step| plain(&format!("{}/{}", step.fqdn, step.noderole)));
    let mut lines: String = names.map(|name| format!("  {name}\n")).collect();
    let more = count - i64::try_from(first.len()).unwrap_or(i64::MAX);
    if more > 0 {
        lines += &format!("  and {more} more\n");
    }
    lines
}

fn stale_text(count: i64, first: &[StepSummary], deployment: Option<&str>) -> String {
    // The server also counts steps as stale while it compares their input.
    if first.is_empty() {
        return format!("{}: Gantry compares the input.\n", many(count, "stale step"));
    }
    let place = deployment.map(|name| format!(" --deployment {name}")).unwrap_or_default();
    format!(
        "{}: the input changed since the last run.\n{}Propose to run stale steps again: gantry \
         rerun --stale{place} --reason TEXT\n",
        many(count, "stale step"),
        step_lines(count, first)
    )
}

fn unchecked_text(count: i64, first: &[StepSummary], enabled: bool) -> String {
    let action = match first.first() {
        _ if !enabled => "Execution is off, so no check runs. An operator can turn it on: gantry \
                          execution on --reason TEXT\n"
            .to_owned(),
        Some(step) => format!(
            "The reason of each: gantry noderole show {}\n",
            plain(&format!("{}/{}", step.fqdn, step.noderole))
        ),
        None => String::new(),
    };
    format!(
        "{}: the check did not pass or is overdue.\n{}{action}",
        many(count, "unchecked step"),
        step_lines(count, first)
    )
}

/// Adds the pending reasons to a timeout error.
fn add_pending_reasons(
    failure: Failure,
    deployment: Option<&str>,
    counts: &StateCounts,
    client: &Client,
) -> Failure {
    match (failure, stuck(deployment, counts, client)) {
        (Failure::TimedOut(text), Ok(reasons)) if !reasons.is_empty() => {
            Failure::TimedOut(format!("{text}\n{reasons}"))
        }
        (failure, _) => failure,
    }
}

fn wait_for_run(client: &Client, id: RunId, most: TimeoutOption) -> Outcome {
    let output = client.output;
    let mut watch = Watcher::new(&client.server, most, &format!("run:{id}"));
    loop {
        if let Some(value) = watch.ask(|server| server.show(&calls::show_run(id)))? {
            let view = run_view(&value)?;
            watch.bar.set_message(format!(
                "{} on {}: {}",
                view.run.role,
                plain(&view.run.fqdn),
                state_phrase(view.run.state)
            ));
            if view.run.ended.is_some() {
                watch.end();
                output.either(
                    &value,
                    &format!(
                        "Run {id} of {} on {} {}.",
                        view.run.role,
                        plain(&view.run.fqdn),
                        state_phrase(view.run.state)
                    ),
                )?;
                return ended(&view);
            }
        }
        watch.next()?;
    }
}

fn wait_for_review(
    client: &Client,
    id: ReviewId,
    condition: ReviewCondition,
    most: TimeoutOption,
) -> Outcome {
    let output = client.output;
    let mut watch = Watcher::new(&client.server, most, &format!("review:{id},reviews,blueprints"));
    loop {
        if let Some(value) = watch.ask(|server| server.show(&calls::show_review(id)))? {
            let state: ReviewState = parse_answer(&value["state"], "expected a review")?;
            let state_text = value_text(&value["state"]);
            watch.bar.set_message(state_text.clone());
            match reached(state, condition) {
                Some(true) => {
                    watch.end();
                    return output.either(&value, &format!("Review {id} is {state_text}."));
                }
                Some(false) => {
                    watch.end();
                    return Err(Failure::Negative(format!(
                        "Review {id} is {state_text}, so the condition can't be met. Details: \
                         gantry review show {id}"
                    )));
                }
                None => {}
            }
        }
        watch.next()?;
    }
}

/// Whether a review meets the condition, or `None` if it still can.
fn reached(state: ReviewState, condition: ReviewCondition) -> Option<bool> {
    match (state, condition) {
        (ReviewState::Committed, _) | (ReviewState::Open, ReviewCondition::Open) => Some(true),
        (ReviewState::Replaced | ReviewState::SentBack | ReviewState::Discarded, _) => Some(false),
        _ => None,
    }
}

/// Whether a deployment has no steps.
fn is_empty(counts: &StateCounts) -> bool {
    *counts == StateCounts::default()
}

/// Progress of the deployments whose counts do not show it: if all steps are active, none can be
/// stuck. The server decides what is stuck, by one rule for blueprints and deployments.
fn progress_of(server: &Server, these: &[DeploymentSummary]) -> Outcome<Vec<DeploymentProgress>> {
    let progress = |one: &DeploymentSummary| match one.steps.active {
        active if (StateCounts { active, ..StateCounts::default() }) == one.steps => {
            Ok(DeploymentProgress {
                deployment: one.name.clone(),
                deployment_id: one.id,
                progress: Progress::Converged,
                steps: one.steps,
            })
        }
        _ => server.read(&calls::deployment_progress(&one.name).url()),
    };
    these.iter().map(progress).collect()
}

/// The named deployments, or all. Fails at the first that does not exist or has no steps.
pub(crate) fn chosen(
    all: Vec<DeploymentSummary>,
    names: &[String],
    all_deployments: bool,
) -> Outcome<Vec<DeploymentSummary>> {
    if all_deployments {
        let with_steps: Vec<DeploymentSummary> =
            all.into_iter().filter(|one| !is_empty(&one.steps)).collect();
        return match with_steps.is_empty() {
            true => Err(Failure::Nothing(
                "No deployment has noderoles, so there is nothing to wait for.".into(),
            )),
            false => Ok(with_steps),
        };
    }
    let known: BTreeMap<&str, &DeploymentSummary> =
        all.iter().map(|one| (one.name.as_str(), one)).collect();
    let one = |name: &String| match known.get(name.as_str()) {
        None => {
            let near = names::near(name, known.keys().copied());
            Err(Failure::Nothing(format!(
                "Deployment {name:?} does not exist{near}.\nList all deployments with `gantry \
                 deployment list`."
            )))
        }
        Some(found) if is_empty(&found.steps) => Err(Failure::Nothing(format!(
            "Deployment {name} has no noderoles, so there is nothing to wait for. Check that its \
             change was committed: gantry review list --deployment {name}"
        ))),
        Some(found) => Ok((*found).clone()),
    };
    let found: Vec<DeploymentSummary> = names.iter().map(one).collect::<Outcome<_>>()?;
    match found.is_empty() {
        true => Err(Failure::Nothing("Name at least one deployment.".into())),
        false => Ok(found),
    }
}

fn wait_for_deployments(
    client: &Client,
    names: &[String],
    all_deployments: bool,
    most: TimeoutOption,
) -> Outcome {
    let mut watch = Watcher::new(&client.server, most, "");
    let mut counts = StateCounts::default();
    loop {
        let all = watch.ask(|server| names::deployments(server, names, all_deployments))?;
        let ways = match all {
            None => None,
            Some(all) => {
                let these = chosen(all, names, all_deployments).inspect_err(|_| watch.end())?;
                watch.ask(|server| progress_of(server, &these))?
            }
        };
        if let Some(ways) = ways {
            counts = StateCounts::default();
            for one in &ways {
                add(&mut counts, &one.steps);
            }
            watch.shows(&counts);
            if ways.iter().all(|one| one.progress != Progress::InProgress) {
                watch.end();
                return settled(client, &ways);
            }
        }
        let one = if let [name] = names { Some(name.as_str()) } else { None };
        watch.next().map_err(|failure| add_pending_reasons(failure, one, &counts, client))?;
    }
}

pub(crate) fn add(all: &mut StateCounts, more: &StateCounts) {
    all.blocked += more.blocked;
    all.todo += more.todo;
    all.transition += more.transition;
    all.active += more.active;
    all.error += more.error;
    all.stale += more.stale;
    all.unchecked += more.unchecked;
}

/// The result once nothing more happens without human action.
fn settled(client: &Client, these: &[DeploymentProgress]) -> Outcome {
    let output = client.output;
    let with = |progress: Progress| these.iter().filter(move |one| one.progress == progress);
    let stuck_names: Vec<&str> = with(Progress::Stuck).map(|one| one.deployment.as_str()).collect();
    let has_stale = with(Progress::Stuck).any(|one| one.steps.stale > 0);
    let has_others = with(Progress::Stuck).any(|one| {
        StateCounts { active: 0, stale: 0, unchecked: 0, ..one.steps } != StateCounts::default()
    });
    if output.is_document() {
        let to_json = |one: &DeploymentProgress| {
            json!(
                {
                    "deployment": one.deployment, "steps": one.steps,
                    "converged": one.progress == Progress::Converged
                }
            )
        };
        output.document(&Value::Array(these.iter().map(to_json).collect()))?;
    } else {
        for one in with(Progress::Converged) {
            output.line(&format!(
                "Deployment {} is converged: {}.",
                one.deployment,
                many(one.steps.active, "step")
            ))?;
        }
        for one in with(Progress::Stuck) {
            let name = one.deployment.as_str();
            output.line(&format!("Deployment {name} is stuck."))?;
            output.line(&stuck(Some(name), &one.steps, client)?)?;
        }
    }
    match stuck_names.as_slice() {
        [] => Ok(()),
        names => {
            let mut text =
                format!("Stuck: {}. All remaining steps need a person.", names.join(", "));
            if has_others {
                text += " See `gantry pending`. After a failed run, use `gantry noderole retry`, \
                    or change the step.";
            }
            if has_stale {
                text += " Run stale steps again with `gantry rerun --stale`.";
            }
            Err(Failure::Negative(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(blocked: i64, todo: i64, transition: i64, active: i64, error: i64) -> StateCounts {
        StateCounts { blocked, todo, transition, active, error, ..StateCounts::default() }
    }

    fn deployment(name: &str, steps: StateCounts) -> DeploymentSummary {
        serde_json::from_value(
            json!({"id": uuid::Uuid::nil(), "name": name, "depth": 1, "nodes": 0, "steps": steps,
                "proposal": null,
            "review": null, "blueprint": 1}),
        )
        .unwrap()
    }

    #[test]
    fn empty_selection_exits_with_4() {
        let all = || {
            vec![
                deployment("web", counts(0, 0, 0, 1, 0)),
                deployment("edge", counts(0, 0, 0, 0, 0)),
            ]
        };
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let code = |named: &[&str], all_deployments| {
            chosen(all(), &names(named), all_deployments)
                .map_err(|failure| failure.code())
                .map(|all| all.len())
        };
        assert_eq!(code(&["web"], false), Ok(1));
        assert_eq!(code(&[], true), Ok(1), "deployments without steps are left out");
        assert_eq!(
            (code(&["wob"], false), code(&["web", "edge"], false), code(&[], false)),
            (Err(4), Err(4), Err(4))
        );
        assert_eq!(chosen(Vec::new(), &[], true).map_err(|failure| failure.code()).err(), Some(4));
    }

    #[test]
    fn stale_and_unchecked_steps_are_named_with_action() {
        let step = |node: &str| -> StepSummary {
            serde_json::from_value(json!({"id": uuid::Uuid::nil(), "noderole": "reporter",
                "action": "run",
                "node": uuid::Uuid::nil(), "fqdn": node, "deployment": "web",
                "deployment_id": uuid::Uuid::nil(),
                "state": "active", "since": "2026-09-21T14:13:20Z", "stale": true, "generation": 3,
                "error": null}))
            .unwrap()
        };
        assert_eq!(
            stale_text(13, &[step("n3"), step("n4")], Some("web")),
            "13 stale steps: the input changed since the last run.\n  n3/reporter\n  \
             n4/reporter\n  and 11 more\nPropose to run stale steps again: gantry rerun --stale \
             --deployment web --reason TEXT\n"
        );
        let off = unchecked_text(1, &[step("n3")], false);
        assert_eq!(
            off,
            "1 unchecked step: the check did not pass or is overdue.\n  n3/reporter\nExecution is \
             off, so no check runs. An operator can turn it on: gantry execution on --reason TEXT\n"
        );
        let on = unchecked_text(1, &[step("n3")], true);
        assert!(on.ends_with("The reason of each: gantry noderole show n3/reporter\n"), "{on}");
    }

    #[test]
    fn waiting_ends_when_review_is_closed() {
        assert_eq!(reached(ReviewState::Waiting, ReviewCondition::Open), None);
        assert_eq!(reached(ReviewState::Open, ReviewCondition::Open), Some(true));
        assert_eq!(reached(ReviewState::Open, ReviewCondition::Committed), None);
        assert_eq!(reached(ReviewState::Committed, ReviewCondition::Committed), Some(true));
        assert_eq!(reached(ReviewState::Discarded, ReviewCondition::Open), Some(false));
    }
}
