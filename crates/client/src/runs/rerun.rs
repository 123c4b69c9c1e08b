//! `rerun` proposes to run applied steps again. `retry` retries failed steps, without a review.

use std::collections::BTreeSet;

use api::deployments::{NoderoleView, StepPage, StepSummary};
use clap::{ArgGroup, Args};
use engine::counting::many;
use engine::ids::{BlueprintNumber, DeploymentName, RoleName};
use engine::plan::edit;
use serde_json::{Value, json};

use crate::address::Query;
use crate::args::ReasonArgs;
use crate::client::Client;
use crate::exit::{Failure, Outcome};
use crate::names;
use crate::output::{note, plain};
use crate::proposals::apply;
use crate::proposals::apply::{PlannedChange, ProposeArgs};
use crate::proposals::edits::Step;
use crate::runs::role_and_action;
use crate::server::Server;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("rerun_selection").required(true).multiple(true)
    .args(["noderoles", "deployment", "nodes", "roles", "stale"]))]
pub(crate) struct Rerun {
    /// Noderoles as NODE/ROLE, for example n1/app
    #[arg(value_name = "NODE/ROLE", conflicts_with_all = ["deployment", "nodes", "roles", "stale"])]
    noderoles: Vec<String>,
    /// Only this deployment; without --node and --stale also all dependents in the deployment
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// Only this node; repeatable
    #[arg(long = "node", value_name = "NAME")]
    nodes: Vec<String>,
    /// Only this role; repeatable
    #[arg(long = "role", value_name = "NAME")]
    roles: Vec<RoleName>,
    /// Only stale steps: their input has changed since their last run
    #[arg(long)]
    stale: bool,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    propose: ProposeArgs,
}

pub(crate) fn rerun(client: &Client, rerun: &Rerun) -> Outcome {
    let server = &client.server;
    let planned = match &rerun.deployment {
        Some(deployment) if rerun.nodes.is_empty() && !rerun.stale => {
            vec![slice(server, deployment, rerun)?]
        }
        _ if !rerun.noderoles.is_empty() => apply::by_deployment(server, named(server, rerun)?)?,
        _ => apply::by_deployment(server, selected(server, rerun)?)?,
    };
    if planned.is_empty() {
        let stale = if rerun.stale { "stale steps" } else { "steps" };
        return Err(Failure::Nothing(format!("No {stale} match.")));
    }
    apply::propose_all(client, &planned, &rerun.propose)
}

/// All noderoles of the roles in a deployment, with their dependents there.
fn slice(server: &Server, deployment: &str, rerun: &Rerun) -> Outcome<PlannedChange> {
    let current = apply::current(server, deployment)?;
    let roles: BTreeSet<RoleName> = match rerun.roles.is_empty() {
        false => rerun.roles.iter().cloned().collect(),
        true => apply::own_roles(&current.board)
            .filter(|role| !role.noderoles.is_empty())
            .map(|role| role.role.clone())
            .collect(),
    };
    if roles.is_empty() {
        return Err(Failure::Nothing(format!("Deployment {deployment:?} has no noderoles.")));
    }
    let names: Vec<&str> = roles.iter().map(RoleName::as_str).collect();
    let summary = format!("* run {} again, with dependents", names.join(", "));
    let reason = rerun.reason.reason.clone();
    let edit = edit::RerunSlice { deployment: current.board.id, roles, reason }.into();
    Ok(PlannedChange { current, steps: vec![Step { edit, summary }] })
}

/// The named noderoles, with their deployments.
fn named(server: &Server, rerun: &Rerun) -> Outcome<Vec<(DeploymentName, Step)>> {
    let one = |text: &String| {
        let (node, noderole) = names::noderole_on_node(server, text)?;
        let id = noderole.id(node);
        let view: NoderoleView = server.read(&api::calls::show_noderole(id).url())?;
        let summary = format!("* run {text} again");
        let reason = rerun.reason.reason.clone();
        let edit = edit::Rerun { node, noderole, reason }.into();
        Ok((view.deployment, Step { edit, summary }))
    };
    rerun.noderoles.iter().map(one).collect()
}

/// The selected steps, with their deployments.
fn selected(server: &Server, rerun: &Rerun) -> Outcome<Vec<(DeploymentName, Step)>> {
    let query = Query::default().with("deployment", &rerun.deployment).with("stale", rerun.stale);
    let mut found = Vec::new();
    match rerun.nodes.as_slice() {
        [] => found.extend(steps(server, query)?),
        nodes => {
            for node in nodes {
                let node = names::node(server, node)?.id.to_string();
                found.extend(steps(server, query.clone().with("node", node))?);
            }
        }
    }
    let is_selected = |step: &StepSummary| {
        let is_role = rerun.roles.is_empty() || rerun.roles.contains(&step.noderole.role);
        step.action.is_run() && is_role
    };
    let one = |step: StepSummary| {
        let summary = format!("* run {} on {} again", step.noderole, step.fqdn);
        let reason = rerun.reason.reason.clone();
        let edit = edit::Rerun { node: step.node, noderole: step.noderole, reason }.into();
        (step.deployment, Step { edit, summary })
    };
    Ok(found.into_iter().filter(is_selected).map(one).collect())
}

/// All steps of a query, page by page.
fn steps(server: &Server, mut query: Query) -> Outcome<Vec<StepSummary>> {
    let mut all = Vec::new();
    loop {
        let page: StepPage = server.read(&query.on(api::calls::STEPS_PATH))?;
        all.extend(page.steps);
        match page.next {
            Some(next) => query = query.with("after", next.to_string()),
            None => return Ok(all),
        }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("retry_selection").required(true).multiple(true)
    .args(["deployment", "blueprint", "node", "role", "all"]))]
pub(crate) struct Retry {
    /// Only this deployment
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// Only steps that this blueprint changed or re-ran last
    #[arg(long, value_name = "N", value_parser = names::blueprint)]
    blueprint: Option<i64>,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only this role
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// All failed steps
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Checks that the role and the blueprint exist. The list of steps is just empty if they do not.
fn check_known(server: &Server, retry: &Retry) -> Outcome {
    if let Some(role) = &retry.role {
        let role = RoleName::parse(role)
            .map_err(|error| Failure::Nothing(format!("Role {role:?} does not exist: {error}.")))?;
        server.show(&api::calls::show_role(&role, ""))?;
    }
    if let Some(number) = retry.blueprint {
        server.show(&api::calls::show_blueprint(BlueprintNumber(number)))?;
    }
    Ok(())
}

pub(crate) fn retry(client: &Client, retry: &Retry) -> Outcome {
    let Client { server, output } = client;
    let node = match &retry.node {
        Some(node) => Some(names::node(server, node)?.id.to_string()),
        None => None,
    };
    let query = Query::default()
        .with("state", "error")
        .with("deployment", &retry.deployment)
        .with("blueprint", retry.blueprint)
        .with("node", &node)
        .with("role", &retry.role);
    let failed = steps(server, query)?;
    if failed.is_empty() {
        check_known(server, retry)?;
        return Err(Failure::Nothing("No failed steps match.".into()));
    }
    let (mut results, mut refused) = (Vec::new(), 0);
    for step in &failed {
        let error = match server.call(&api::calls::retry(step.id, &retry.reason.reason)) {
            Ok(_) => None,
            // Another person may have retried it, or the permission is missing in one deployment.
            Err(failure @ Failure::Refused(_)) => Some(failure.to_string()),
            Err(failure) => return Err(failure),
        };
        refused += usize::from(error.is_some());
        results.push((step, error));
    }
    if output.is_document() {
        let result = |(step, error): &(&StepSummary, Option<String>)| {
            json!(
                {
                    "noderole": step.noderole, "fqdn": step.fqdn, "retried": error.is_none(),
                    "error": error
                }
            )
        };
        output.document(&Value::Array(results.iter().map(result).collect()))?;
    } else {
        output.line(&format!("Retried {}:", many(failed.len() - refused, "step")))?;
        for (step, error) in &results {
            let name =
                format!("{} on {}", role_and_action(&step.noderole.role, &step.action), step.fqdn);
            match error {
                None => output.line(&format!("  {}", plain(&name)))?,
                Some(error) => note(&format!("{name}: {error}")),
            }
        }
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::Negative(format!(
            "The server refused to retry {}.",
            many(refused, "step")
        ))),
    }
}
