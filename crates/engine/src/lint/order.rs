//! Checks of edges and their order.

use std::collections::{BTreeMap, BTreeSet};

use super::{CheckFindings, LintContext};
use crate::cluster::{EdgeKind, NodeDoc, NoderoleKey};
use crate::ids::NoderoleId;
use crate::walk::reachable;

pub(super) fn broken(context: &LintContext<'_>, found: &mut CheckFindings) {
    let ranks: BTreeMap<NoderoleId, u32> =
        context.planned().projection.steps.iter().map(|step| (step.noderole, step.rank)).collect();
    let removed: BTreeSet<NoderoleId> =
        context.planned().projection.removed.iter().copied().collect();
    let rank = |id: NoderoleId| match removed.contains(&id) {
        true => None,
        false => ranks.get(&id).copied().or_else(|| (context.subject.rank)(id)),
    };
    for step in &context.planned().projection.steps {
        let Some(noderole) = context.noderole(step) else { continue };
        for edge in &noderole.parents {
            let place = (step.node, &step.key);
            match rank(edge.parent) {
                None => {
                    let problem = "The noderole waits for a noderole that will not exist";
                    found.add_noderole(
                        context,
                        place,
                        problem,
                        "Keep that noderole, or also remove this one",
                    );
                }
                Some(parent) if parent >= step.rank => {
                    let problem =
                        "The noderole waits for one that comes after it, so the order has a cycle";
                    found.add_noderole(
                        context,
                        place,
                        problem,
                        "Unbind it, then bind it again to recompute its order",
                    );
                }
                Some(_) => {}
            }
        }
    }
    check_orphans(context, &removed, found);
}

/// Reports unchanged noderoles that wait for a removed one.
fn check_orphans(
    context: &LintContext<'_>,
    removed: &BTreeSet<NoderoleId>,
    found: &mut CheckFindings,
) {
    if removed.is_empty() {
        return;
    }
    let written: BTreeSet<NoderoleId> =
        context.planned().projection.steps.iter().map(|step| step.noderole).collect();
    for (id, stored) in &context.planned().new.nodes {
        for (key, noderole) in &stored.doc.noderoles {
            let waits = noderole.parents.iter().any(|edge| removed.contains(&edge.parent));
            if waits && !written.contains(&key.id(*id)) {
                let problem = "The noderole waits for a noderole that will be removed";
                found.add_noderole(
                    context,
                    (*id, key),
                    problem,
                    "Keep that noderole, or also remove this one",
                );
            }
        }
    }
}

pub(super) fn contradicting_edges(context: &LintContext<'_>, found: &mut CheckFindings) {
    let new = context.planned().new;
    let nodes: BTreeSet<_> = context.running().map(|step| step.node).collect();
    for node in nodes.into_iter().filter_map(|id| new.nodes.get(&id)).map(|stored| &*stored.doc) {
        for (key, noderole) in &node.noderoles {
            let Some(role) = context.role(noderole.role).filter(|role| !role.preceeds.is_empty())
            else {
                continue;
            };
            for below in ancestors(node, key) {
                if role.preceeds.contains(&below.role) {
                    let problem =
                        format!("The role precedes {}, but the noderole waits for it", below.role);
                    let remedy = "Remove one of the two orders from the barclamp. Until then, only \
                                  the hard one applies";
                    found.add_noderole(context, (node.id, key), problem, remedy);
                }
            }
        }
    }
}

/// The ancestors of a noderole on its own node, over hard edges.
pub(super) fn ancestors<'n>(node: &'n NodeDoc, of: &'n NoderoleKey) -> BTreeSet<&'n NoderoleKey> {
    let ids: BTreeMap<NoderoleId, &NoderoleKey> =
        node.noderoles.keys().map(|key| (key.id(node.id), key)).collect();
    let parents = |key: &'n NoderoleKey| {
        let edges =
            node.noderoles.get(key).map(|noderole| noderole.parents.as_slice()).unwrap_or_default();
        edges
            .iter()
            .filter(|edge| edge.kind == EdgeKind::Hard)
            .filter_map(|edge| ids.get(&edge.parent).copied())
    };
    reachable(parents(of), parents).collect()
}
