//! Checks of runs: jigs, timeouts, retries and concurrency.

use std::collections::{BTreeMap, BTreeSet};

use super::{Found, Look};
use crate::blueprint::consequences::{placed, reason};
use crate::blueprint::projection::{RerunCause, StepChange, StepIntent};
use crate::catalog::JigClass;
use crate::counting::{either, many};
use crate::ids::JigName;

pub(super) fn unknown_jig(look: &Look<'_>, found: &mut Found) {
    for step in look.running() {
        if let JigClass::Other(class) = &step.jig_class {
            let what = format!("it runs by jig {} of class {class}, which no worker has", step.jig);
            found.add_noderole(
                look,
                (step.node, &step.key),
                what,
                "Use a role with a jig of a class that workers have",
            );
        }
    }
}

pub(super) fn inactive_jig(look: &Look<'_>, found: &mut Found) {
    let switched = |jig: &JigName| {
        let last = look.subject.planned.effects.jigs.iter().rev().find(|switch| switch.jig == *jig);
        last.map(|switch| switch.active)
    };
    let is_active = |jig: &JigName| {
        switched(jig).or_else(|| look.subject.jigs.get(jig).copied()).unwrap_or(true)
    };
    let inactive = |step: &&StepIntent| !step.instant && !is_active(&step.jig);
    for step in look.running().filter(inactive) {
        let what =
            format!("it runs by jig {}, which is not active, so it would never start", step.jig);
        found.add_noderole(
            look,
            (step.node, &step.key),
            what,
            format!("Make jig {} active first", step.jig),
        );
    }
}

pub(super) fn no_time(look: &Look<'_>, found: &mut Found) {
    for step in look.running().filter(|step| !step.instant && step.run.timeout == 0) {
        let what = "its role gives a run no time, so each would be stopped as it starts";
        found.add_noderole(
            look,
            (step.node, &step.key),
            what,
            "Give the role a timeout of a second or more",
        );
    }
}

pub(super) fn destructive_unasked(look: &Look<'_>, found: &mut Found) {
    for step in look.running().filter(|step| step.destructive) {
        let why = match step.change {
            StepChange::Rerun(RerunCause::RoleChanged) => "because its role changed",
            StepChange::Rerun(RerunCause::DataChanged) => "because its data changed",
            _ => continue,
        };
        if reason(look.planned().effects, step).is_none() {
            let what =
                format!("it would lose its data again {why}, and nobody said that this is meant");
            let remedy =
                format!("Add a re-run of {} with the reason, or leave it as it is", step.key);
            found.add_noderole(look, (step.node, &step.key), what, remedy);
        }
    }
}

pub(super) fn destructive_retries(look: &Look<'_>, found: &mut Found) {
    for step in look.running().filter(|step| step.destructive && step.run.retries > 0) {
        let what = format!(
            "it loses data, so its {} retries don't count: a person decides after a failure",
            step.run.retries
        );
        found.add_noderole(
            look,
            (step.node, &step.key),
            what,
            "Set the role's retries to 0, so that nobody relies on them",
        );
    }
}

pub(super) fn all_at_once(look: &Look<'_>, found: &mut Found) {
    let mut groups: BTreeMap<_, Vec<&StepIntent>> = BTreeMap::new();
    let again =
        look.running().filter(|step| matches!(step.change, StepChange::Rerun(_)) && !step.instant);
    for step in again {
        groups.entry((step.deployment, step.role)).or_default().push(step);
    }
    groups.retain(|_, steps| steps.len() > 1);
    if groups.is_empty() {
        return;
    }
    let waves = placed(look.planned().projection);
    for ((deployment, role), steps) in groups {
        let all = look.members().get(&(deployment, role)).copied().unwrap_or(0);
        let limit = steps
            .first()
            .and_then(|step| step.lane.max_running)
            .and_then(|limit| usize::try_from(limit).ok());
        let together =
            steps.iter().map(|step| waves.get(&step.id)).collect::<BTreeSet<_>>().len() == 1;
        if steps.len() < all || !together || limit.is_some_and(|limit| limit < all) {
            continue;
        }
        let Some(name) = steps.first().map(|step| &step.key.role) else { continue };
        found.add(
            format!("{name} in {}", look.deployment(deployment)),
            format!(
                "all {all} nodes restart at the same time, so what they give is away meanwhile"
            ),
            "Give the role a lane that lets a few run at once, or change some nodes first",
        );
    }
}

pub(super) fn stale_below(look: &Look<'_>, found: &mut Found) {
    let Some(consequences) = look.consequences else { return };
    for group in &consequences.downstream {
        let (count, what) = match group.in_use {
            Some(0) => continue,
            Some(active) => (active, "ACTIVE noderole"),
            None => (group.noderoles.count, "noderole"),
        };
        let go_on = either(
            count,
            "depends on what changes, and goes on with what it was told before",
            "depend on what changes, and go on with what they were told before",
        );
        let names = group.noderoles.first.iter().take(3).map(ToString::to_string);
        let names: Vec<String> = names.collect();
        found.add(
            group.deployment.to_string(),
            format!("{} {go_on} ({}, ...)", many(count, what), names.join(", ")),
            "Add a re-run of those that must see the change",
        );
    }
}

pub(super) fn limit_gone(look: &Look<'_>, found: &mut Found) {
    let mut told = BTreeSet::new();
    for step in
        look.planned().projection.steps.iter().filter(|step| step.lane.max_running.is_none())
    {
        let before =
            look.planned().old.noderole(step.node, &step.key).map(|(_, noderole)| noderole.role);
        let before =
            before.filter(|before| *before != step.role && told.insert((step.deployment, *before)));
        let Some(limit) = before.and_then(|before| look.role(before)?.lane().1) else { continue };
        found.add(
            format!("{} in {}", step.key.role, look.deployment(step.deployment)),
            format!("until now {limit} ran at once; the role's new content has no limit"),
            "Give the role its lane back, or be sure that all may run at once",
        );
    }
}

pub(super) fn limit_too_wide(look: &Look<'_>, found: &mut Found) {
    let mut lanes = BTreeMap::new();
    for step in look.running() {
        if let Some(limit) = step.lane.max_running {
            lanes.insert((step.deployment, step.lane.name.clone()), limit);
        }
    }
    for ((deployment, lane), limit) in lanes {
        let here = look.members().iter().filter(|((place, _), _)| *place == deployment);
        let sharing = here
            .filter(|((_, role), _)| look.role(*role).is_some_and(|role| role.lane().0 == lane));
        let nodes: usize = sharing.map(|(_, count)| count).sum();
        if nodes > 1 && usize::try_from(limit).is_ok_and(|limit| limit >= nodes) {
            found.add(
                format!("lane {lane} in {}", look.deployment(deployment)),
                format!("it lets {limit} run at once, and there are {nodes}: they all go together"),
                format!("Lower it below {nodes} if some must stay up"),
            );
        }
    }
}
