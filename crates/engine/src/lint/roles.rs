//! Checks of the combination and number of roles.

use std::collections::{BTreeMap, BTreeSet};

use super::{CheckFindings, LintContext};
use crate::blueprint::projection::StepChange;
use crate::catalog::Role;
use crate::cluster::{NodeDoc, NoderoleKey};
use crate::ids::{NodeId, RoleName};

/// The nodes that the change writes, in their new state.
fn changed_nodes<'a>(context: &LintContext<'a>) -> impl Iterator<Item = &'a NodeDoc> {
    let new = context.subject.planned.new;
    context
        .subject
        .planned
        .difference
        .nodes
        .iter()
        .filter_map(|node| new.nodes.get(&node.id))
        .map(|stored| &*stored.doc)
}

pub(super) fn conflicting_roles(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for node in changed_nodes(context) {
        let carried: Vec<(&NoderoleKey, &Role)> = node
            .noderoles
            .iter()
            .filter_map(|(key, noderole)| Some((key, context.role(noderole.role)?)))
            .collect();
        let mut names: BTreeMap<&RoleName, BTreeSet<&NoderoleKey>> = BTreeMap::new();
        for (key, role) in &carried {
            for name in role.names() {
                names.entry(name).or_default().insert(key);
            }
        }
        let mut reported = BTreeSet::new();
        for (key, role) in &carried {
            let against = role.conflicts.iter().filter_map(|name| names.get(name)).flatten();
            for other in against.filter(|other| *other != key) {
                // Both roles may declare the conflict; report it once.
                if reported.insert([(*key).min(other), (*key).max(other)]) {
                    let remedy = "Bind one of them to another node";
                    findings.add_noderole(
                        context,
                        (node.id, key),
                        format!("The role conflicts with {other}, which is on the same node"),
                        remedy,
                    );
                }
            }
        }
    }
}

pub(super) fn is_abstract(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for step in &context.planned().projection.steps {
        if context.role(step.role).is_some_and(|role| role.flags.is_abstract) {
            let remedy = "Bind a role that provides it instead";
            findings.add_noderole(
                context,
                (step.node, &step.key),
                "The role is abstract, so it cannot run",
                remedy,
            );
        }
    }
}

pub(super) fn unused_service(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let is_unused = |step: &&crate::blueprint::projection::StepIntent| {
        step.change == StepChange::New
            && step.parents.is_empty()
            && context.role(step.role).is_some_and(|role| role.flags.service)
    };
    let mut unused: BTreeMap<_, (NodeId, &NoderoleKey)> = context
        .running()
        .filter(is_unused)
        .map(|step| (step.noderole, (step.node, &step.key)))
        .collect();
    if unused.is_empty() {
        return;
    }
    for noderole in
        context.planned().new.nodes.values().flat_map(|node| node.doc.noderoles.values())
    {
        for edge in &noderole.parents {
            unused.remove(&edge.parent);
        }
    }
    for place in unused.into_values() {
        let problem = "The role is a service, but no noderole provides or uses it";
        findings.add_noderole(
            context,
            place,
            problem,
            "Bind a role that does, or remove the service",
        );
    }
}

pub(super) fn cluster_size(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let bound = context
        .running()
        .filter(|step| step.change == StepChange::New)
        .map(|step| (step.deployment, step.role));
    let removed = context
        .planned()
        .difference
        .nodes
        .iter()
        .flat_map(|node| &node.noderoles)
        .filter_map(|noderole| Some((noderole.deployment, noderole.contents?.old?)));
    let touched: BTreeSet<_> = bound.chain(removed).collect();
    for (deployment, hash) in touched {
        let Some(role) = context.role(hash).filter(|role| role.flags.cluster) else { continue };
        let size = context.members().get(&(deployment, hash)).copied().unwrap_or(0);
        let problem = match size {
            0 => continue,
            1 => "The cluster has only one member, so it fails if that node fails".to_owned(),
            n if n % 2 == 0 => {
                format!("The cluster has {n} members, so neither half has a majority if it splits")
            }
            _ => continue,
        };
        let at = format!("{} in {}", role.name, context.deployment(deployment));
        findings.add(at, problem, "Use an odd number of members, at least 3");
    }
}
