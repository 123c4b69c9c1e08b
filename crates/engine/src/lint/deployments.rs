//! Checks of deployments: their barclamps and policy, and the nodes and noderoles that enter or
//! leave.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::{CheckFindings, LintContext, Reviewers};
use crate::blueprint::difference::Mark;
use crate::blueprint::impact::risks;
use crate::catalog::version::order;
use crate::cluster::Blueprint;
use crate::counting::many;
use crate::gate::{Demand, PolicySetting, Risk};
use crate::ids::{DeploymentId, NoderoleId};

pub(super) fn node_outside_deployment(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let new = context.planned().new;
    for node in context.planned().difference.nodes.iter().filter_map(|node| new.nodes.get(&node.id))
    {
        for (key, noderole) in &node.doc.noderoles {
            if !new.is_within(node.doc.deployment, noderole.deployment) {
                let (of, place) = (
                    context.deployment(noderole.deployment),
                    context.deployment(node.doc.deployment),
                );
                let problem = format!(
                    "The noderole is bound in {of}, but its node would be in {place}, which is not \
                     below {of}"
                );
                findings.add_noderole(
                    context,
                    (node.doc.id, key),
                    problem,
                    format!("Unbind it first, or leave the node in {of}"),
                );
            }
        }
    }
}

pub(super) fn mixed_policy_change(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let Some((before, after)) = context.subject.policy else { return };
    let Some(weaker) = before.weakened_settings(after) else { return };
    if context.planned().difference.is_empty() {
        return;
    }
    let problem =
        format!("The policy would require less ({weaker}) in the same change that it would allow");
    findings.add("policy", problem, "Propose the policy change separately");
}

/// The change must also pass under its new policy. Its authors therefore do not count toward the
/// approvals for every change and for this change's risks. Other people can propose changes with
/// other risks.
pub(super) fn unsatisfiable_policy(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let Some((before, after)) = context.subject.policy else { return };
    let Reviewers { all, others } = context.subject.reviewers;
    let carried = risks(context.planned());
    // A policy that requires less than before is a step toward one that can be met.
    for change in before.changes(after) {
        let (Demand::RequiredApprovals(old), Demand::RequiredApprovals(new)) =
            (change.old, change.new)
        else {
            continue;
        };
        if new.approvals <= old.approvals {
            continue;
        }
        let risk = match change.part {
            PolicySetting::Risk(risk) => Some(risk),
            _ => None,
        };
        let (able, who) = match risk.is_none_or(|risk| carried.contains(&risk)) {
            true => (others, " without being an author"),
            false => (all, ""),
        };
        let asks = usize::try_from(new.approvals).unwrap_or(usize::MAX);
        if asks > able {
            let about = risk.map_or("every change", Risk::change);
            let people = if able == 1 { "person may" } else { "people may" };
            let never =
                if asks > all { "no such change could ever" } else { "this change could never" };
            let asks = many(asks, "approval");
            findings.add(
                "policy",
                format!(
                    "The policy would require {asks} for {about}, but only {able} {people} \
                     review{who}: {never} be committed"
                ),
                "Require fewer approvals, or give more people the reviewer permission first",
            );
        }
    }
}

pub(super) fn weaker_policy(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let Some((before, after)) = context.subject.policy else { return };
    let Some(weaker) = before.weakened_settings(after) else { return };
    let problem = format!("The policy would require less for later changes ({weaker})");
    findings.add(
        "policy",
        problem,
        "Approve it only if this is intended: it applies to every deployment",
    );
}

pub(super) fn older_barclamp(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for deployment in &context.planned().difference.deployments {
        let Some(stored) = context.planned().new.deployments.get(&deployment.id) else { continue };
        let written = deployment.barclamps.iter().filter(|barclamp| barclamp.mark != Mark::Removed);
        for barclamp in written {
            let pin = stored.doc.barclamps.get(&barclamp.barclamp);
            let Some(used) = pin.and_then(|pin| context.subject.catalog.barclamp(*pin).ok()) else {
                continue;
            };
            let all =
                context.subject.catalog.barclamps().filter(|(_, other)| other.name == used.name);
            let newest = all.map(|(_, other)| other.version.as_str()).max_by(|a, b| order(a, b));
            if let Some(newest) =
                newest.filter(|newest| order(newest, &used.version) == Ordering::Greater)
            {
                findings.add(
                    format!("{} in {}", used.name, deployment.name),
                    format!("Version {} would be used, but {newest} is imported", used.version),
                    format!("Use {newest}, unless you need the older version"),
                );
            }
        }
    }
}

pub(super) fn role_version_mismatch(context: &LintContext<'_>, findings: &mut CheckFindings) {
    for deployment in &context.planned().difference.deployments {
        let Some(stored) = context.planned().new.deployments.get(&deployment.id) else { continue };
        for (name, role) in &stored.doc.roles {
            let Some(content) = context.role(role.role) else { continue };
            // A new binding takes the role from the nearest version of its barclamp.
            let Some(pin) = context.planned().new.visible_version(deployment.id, &content.barclamp)
            else {
                continue;
            };
            let Ok(barclamp) = context.subject.catalog.barclamp(pin) else { continue };
            let version =
                format!("{} {}, the version in use there", barclamp.name, barclamp.version);
            let problem = match barclamp.roles.get(name) {
                Some(pinned) if *pinned == role.role => continue,
                Some(_) => format!("The role has other content than in {version}"),
                None => format!("The role is not part of {version}"),
            };
            findings.add(
                format!("{name} in {}", deployment.name),
                problem,
                "Update the role to that version, or use the barclamp version that has it",
            );
        }
    }
}

pub(super) fn emptied_deployment(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let difference = context.planned().difference;
    let vacated = difference.nodes.iter().filter_map(|node| node.moved.and_then(|sides| sides.old));
    let gone = difference
        .nodes
        .iter()
        .flat_map(|node| &node.noderoles)
        .filter(|n| n.mark == Mark::Removed);
    let candidates: BTreeSet<DeploymentId> =
        vacated.chain(gone.map(|noderole| noderole.deployment)).collect();
    let (old, new) = (context.planned().old, context.planned().new);
    for deployment in candidates {
        if new.deployments.contains_key(&deployment)
            && is_used(old, deployment)
            && !is_used(new, deployment)
        {
            let problem = "No node and no noderole would be left in the deployment";
            findings.add(
                context.deployment(deployment),
                problem,
                "Also remove the deployment, or keep a node or a noderole in it",
            );
        }
    }
}

fn is_used(blueprint: &Blueprint, deployment: DeploymentId) -> bool {
    let mut nodes = blueprint.nodes.values().filter(|node| !node.doc.phantom);
    nodes.any(|node| {
        node.doc.deployment == deployment
            || node.doc.noderoles.values().any(|noderole| noderole.deployment == deployment)
    })
}

pub(super) fn moved_from_dependents(context: &LintContext<'_>, findings: &mut CheckFindings) {
    let new = context.planned().new;
    let mut moving: BTreeMap<NoderoleId, (crate::ids::NodeId, DeploymentId)> = BTreeMap::new();
    for node in context.planned().difference.nodes.iter().filter(|node| node.mark == Mark::Changed)
    {
        let Some(to) = node.moved.and_then(|sides| sides.new) else { continue };
        let carried =
            new.nodes.get(&node.id).into_iter().flat_map(|stored| stored.doc.noderoles.keys());
        moving.extend(carried.map(|key| (key.id(node.id), (node.id, to))));
    }
    if moving.is_empty() {
        return;
    }
    let mut users: BTreeMap<(crate::ids::NodeId, DeploymentId), BTreeSet<String>> = BTreeMap::new();
    for (id, stored) in &new.nodes {
        for (key, noderole) in &stored.doc.noderoles {
            let served = noderole.parents.iter().filter_map(|edge| moving.get(&edge.parent));
            // Noderoles that move with the node, or that are in the new deployment, stay near it.
            for (node, to) in
                served.filter(|(node, to)| node != id && !new.is_within(stored.doc.deployment, *to))
            {
                users.entry((*node, *to)).or_default().insert(context.location(*id, key));
            }
        }
    }
    for ((node, to), users) in users {
        let first = users.first().cloned().unwrap_or_default();
        let others =
            if users.len() > 1 { format!(" and {} more", users.len() - 1) } else { String::new() };
        findings.add(
            context.fqdn(node),
            format!(
                "The node moves to {}, but noderoles that depend on it stay: {first}{others}",
                context.deployment(to)
            ),
            "Also move those noderoles, or first bind the roles that they need elsewhere",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (older, newer) in [
            ("1", "2"),
            ("1.9", "1.10"),
            ("v1.0", "v2.0"),
            ("1.0", "1.0.1"),
            ("2024-12-01", "2025-01-01"),
        ] {
            assert_eq!(order(older, newer), Ordering::Less, "{older} {newer}");
        }
    }
}
