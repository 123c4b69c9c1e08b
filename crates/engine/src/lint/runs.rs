//! Checks of runs: jigs, timeouts, retries and concurrency.

use std::collections::{BTreeMap, BTreeSet};

use super::{CheckFindings, LintContext};
use crate::blueprint::impact::{placed, reason};
use crate::blueprint::projection::{RerunCause, StepChange, StepIntent};
use crate::catalog::{JigClass, OnInput, Role};
use crate::counting::{either, many};
use crate::ids::JigName;

pub(super) fn unknown_jig(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for step in context.running() {
        if let JigClass::Other(class) = &step.jig_class {
            let problem = format!(
                "The role uses jig {} of class {class}, which no worker supports",
                step.jig
            );
            findings.add_noderole(
                context,
                (step.node, &step.key),
                problem,
                "Use a role with a jig of a class that workers support",
            );
        }
    }
}

pub(super) fn inactive_jig(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let switched = |jig: &JigName| {
        let last =
            context.subject.planned.effects.jigs.iter().rev().find(|switch| switch.jig == *jig);
        last.map(|switch| switch.active)
    };
    let is_active = |jig: &JigName| {
        switched(jig).or_else(|| context.subject.jigs.get(jig).copied()).unwrap_or(true)
    };
    let inactive = |step: &&StepIntent| !step.immediate && !is_active(&step.jig);
    for step in context.running().filter(inactive) {
        let problem =
            format!("The role uses jig {}, which is turned off, so it would never start", step.jig);
        findings.add_noderole(
            context,
            (step.node, &step.key),
            problem,
            format!("Turn jig {} on first", step.jig),
        );
    }
}

pub(super) fn nothing_to_run(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for step in context.running().filter(|step| step.action.is_run()) {
        if context.role(step.role).is_some_and(Role::lacks_scripts) {
            *counts.entry((step.deployment, step.role)).or_default() += 1;
        }
    }
    for ((deployment, role), count) in counts {
        let Some(role) = context.role(role) else { continue };
        findings.add(
            format!("{} in {}", role.name, context.deployment(deployment)),
            format!(
                "The role has no scripts, so {} would become ACTIVE although nothing runs",
                many(count, "step")
            ),
            "Import the barclamp with the role's scripts, or set jig: noop",
        );
    }
}

pub(super) fn zero_timeout(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for step in context.running().filter(|step| !step.immediate && step.run.timeout == 0) {
        let problem = "The role has a timeout of 0, so each run would be stopped when it starts";
        findings.add_noderole(
            context,
            (step.node, &step.key),
            problem,
            "Set the role's timeout to at least one second",
        );
    }
}

pub(super) fn destructive_rerun(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for step in context.running().filter(|step| step.destructive) {
        let cause = match step.change {
            StepChange::Rerun(RerunCause::RoleChanged) => "because its role changed",
            StepChange::Rerun(RerunCause::DataChanged) => "because its data changed",
            _ => continue,
        };
        if reason(context.planned().effects, step).is_none() {
            let problem = format!(
                "The noderole would lose its data again {cause}, but no edit requests this"
            );
            let remedy = format!(
                "Add a re-run of {} with a reason, or keep its role and data unchanged",
                step.key
            );
            findings.add_noderole(context, (step.node, &step.key), problem, remedy);
        }
    }
}

pub(super) fn destructive_retries(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for step in context.running().filter(|step| step.destructive && step.run.retries > 0) {
        let problem = format!(
            "The role can lose data, so its {} retries are ignored: a person decides after a \
             failure",
            step.run.retries
        );
        findings.add_noderole(
            context,
            (step.node, &step.key),
            problem,
            "Set the role's retries to 0 to make this clear",
        );
    }
}

pub(super) fn simultaneous_restart(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let mut groups: BTreeMap<_, Vec<&StepIntent>> = BTreeMap::new();
    let reruns = context
        .running()
        .filter(|step| matches!(step.change, StepChange::Rerun(_)) && !step.immediate);
    for step in reruns {
        groups.entry((step.deployment, step.role)).or_default().push(step);
    }
    groups.retain(|_, steps| steps.len() > 1);
    if groups.is_empty() {
        return;
    }
    let waves = placed(context.planned().projection);
    for ((deployment, role), steps) in groups {
        let all = context.members().get(&(deployment, role)).copied().unwrap_or(0);
        let limit = steps
            .first()
            .and_then(|step| step.concurrency_group.max_running)
            .and_then(|limit| usize::try_from(limit).ok());
        let together =
            steps.iter().map(|step| waves.get(&step.id)).collect::<BTreeSet<_>>().len() == 1;
        if steps.len() < all || !together || limit.is_some_and(|limit| limit < all) {
            continue;
        }
        let Some(name) = steps.first().map(|step| &step.key.role) else { continue };
        findings.add(
            format!("{name} in {}", context.deployment(deployment)),
            format!(
                "All {all} nodes restart at the same time, so their services are down meanwhile"
            ),
            "Limit the role with a concurrency group, or change some nodes first",
        );
    }
}

pub(super) fn stale_descendants(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let Some(impact) = context.impact else { return };
    for group in impact.downstream.iter().filter(|group| group.on_input != OnInput::Rerun) {
        let (count, problem) = match group.in_use {
            Some(0) => continue,
            Some(active) => (active, "ACTIVE noderole"),
            None => (group.noderoles.count, "noderole"),
        };
        let predicate = either(
            count,
            "depends on the changed noderoles but keeps its old input",
            "depend on the changed noderoles but keep their old input",
        );
        let names = group.noderoles.first.iter().take(3).map(ToString::to_string);
        let names: Vec<String> = names.collect();
        findings.add(
            group.deployment.to_string(),
            format!("{} {predicate} ({}, ...)", many(count, problem), names.join(", ")),
            "Add re-runs of the noderoles that need the new input, or set `on-input: rerun`",
        );
    }
}

pub(super) fn limit_removed(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let mut reported = BTreeSet::new();
    for step in context
        .planned()
        .projection
        .steps
        .iter()
        .filter(|step| step.concurrency_group.max_running.is_none())
    {
        let before =
            context.planned().old.noderole(step.node, &step.key).map(|(_, noderole)| noderole.role);
        let before = before
            .filter(|before| *before != step.role && reported.insert((step.deployment, *before)));
        let Some(limit) = before.and_then(|before| context.role(before)?.concurrency_group().1)
        else {
            continue;
        };
        findings.add(
            format!("{} in {}", step.key.role, context.deployment(step.deployment)),
            format!("Until now, {limit} ran at once, but the role's new content has no limit"),
            "Restore the role's concurrency group, or make sure that all may run at once",
        );
    }
}

pub(super) fn limit_too_high(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let mut concurrency_groups = BTreeMap::new();
    for step in context.running() {
        if let Some(limit) = step.concurrency_group.max_running {
            concurrency_groups
                .insert((step.deployment, step.concurrency_group.name.clone()), limit);
        }
    }
    for ((deployment, concurrency_group), limit) in concurrency_groups {
        let members = context.members().iter().filter(|((place, _), _)| *place == deployment);
        let sharing = members.filter(|((_, role), _)| {
            context.role(*role).is_some_and(|role| role.concurrency_group().0 == concurrency_group)
        });
        let nodes: usize = sharing.map(|(_, count)| count).sum();
        if nodes > 1 && usize::try_from(limit).is_ok_and(|limit| limit >= nodes) {
            findings.add(
                format!(
                    "concurrency group {concurrency_group} in {}",
                    context.deployment(deployment)
                ),
                format!(
                    "The limit is {limit}, but the group has only {nodes} nodes, so all of them \
                     run at once"
                ),
                format!("Set the limit below {nodes} if some nodes must stay up"),
            );
        }
    }
}
