//! The order in which the edits of one request take effect.
//!
//! A file that declares a deployment binds many roles with one request. If an edit binds a role
//! before a role that it requires, binding also adds the required role on the same node, even if
//! the next edit binds it elsewhere. So bindings that follow each other take effect in the order of
//! the graph: required roles first. Removals that follow each other take effect in the opposite
//! order, so that a role goes before the roles that it requires.
//!
//! Invariants:
//!
//! * Only bindings, or only removals, change places among themselves. All other edits stay.
//! * Edits of roles that do not depend on each other keep their order.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::draft::Draft;
use super::edit::{self, Edit, NumberedEdit};
use super::limits::MAX_DEPTH;
use super::refusal::EditError;
use super::rules::Rules;
use crate::canonical::Hash;
use crate::catalog::Catalog;
use crate::cluster::{NoderoleKey, Skeleton};
use crate::ids::{DeploymentId, NodeId, RoleName};

/// The positions of new edits in the order in which they take effect, after the known edits.
pub fn order(
    skeleton: &Skeleton,
    catalog: &Catalog,
    known: &[NumberedEdit],
    edits: &[Edit],
) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..edits.len()).collect();
    if !edits.windows(2).any(|pair| is_same_kind(&pair[0], &pair[1])) {
        return positions;
    }
    let mut draft = Draft::new(skeleton, catalog, Rules::default());
    for NumberedEdit { seq, edit } in known {
        apply(&mut draft, *seq, edit);
    }
    let mut seq = known.last().map_or(0, |edit| edit.seq);
    let mut rest = positions.as_mut_slice();
    for group in edits.chunk_by(is_same_kind) {
        let (places, after) = std::mem::take(&mut rest).split_at_mut(group.len());
        rest = after;
        if group.len() > 1 {
            sort(&draft, edits, places);
        }
        for place in places {
            seq += 1;
            apply(&mut draft, seq, &edits[*place]);
        }
    }
    positions
}

/// A refused edit has no effect. The caller resolves all edits and reports it.
fn apply(draft: &mut Draft<'_>, seq: u32, edit: &Edit) {
    let _refused = draft.apply_or_roll_back(|draft| draft.apply(seq, edit));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bind,
    Unbind,
}

fn kind(edit: &Edit) -> Option<Kind> {
    match edit {
        Edit::Bind(_) | Edit::BindNodes(_) => Some(Kind::Bind),
        Edit::Unbind(_) | Edit::UnbindNodes(_) => Some(Kind::Unbind),
        _ => None,
    }
}

fn is_same_kind(one: &Edit, other: &Edit) -> bool {
    kind(one).is_some() && kind(one) == kind(other)
}

/// A role in a deployment.
type DeployedRole = (DeploymentId, Hash);

/// Sorts the positions of edits of one kind by the requirements of their roles.
fn sort(draft: &Draft<'_>, edits: &[Edit], places: &mut [usize]) {
    let roles: Vec<Option<DeployedRole>> =
        places.iter().map(|place| deployed_role(draft, &edits[*place])).collect();
    let mut walk = Requirements {
        draft,
        named: roles.iter().flatten().copied().collect(),
        seen: BTreeSet::new(),
        sorted: Vec::new(),
    };
    roles.iter().flatten().for_each(|role| walk.visit(*role, 0));
    let sorted = walk.sorted;
    let rank = |role: &Option<DeployedRole>| {
        role.and_then(|role| sorted.iter().position(|sorted| *sorted == role))
    };
    let first = places.first().copied().unwrap_or_default();
    let ranks: Vec<Option<usize>> = roles.iter().map(rank).collect();
    match places.first().and_then(|place| kind(&edits[*place])) {
        Some(Kind::Unbind) => places.sort_by_key(|place| Reverse(ranks[*place - first])),
        _ => places.sort_by_key(|place| ranks[*place - first]),
    }
}

/// The role that an edit binds or unbinds. An edit without one is refused later.
fn deployed_role(draft: &Draft<'_>, edit: &Edit) -> Option<DeployedRole> {
    let visible = |deployment: DeploymentId, role: &RoleName| {
        Some((deployment, draft.visible_role(deployment, role).ok()?))
    };
    let bound = |node: &NodeId, key: &NoderoleKey| {
        let (_, _, noderole) = draft.noderole(key.id(*node))?;
        Some((noderole.deployment, noderole.role))
    };
    match edit {
        Edit::Bind(edit::Bind { deployment, role, .. })
        | Edit::BindNodes(edit::BindNodes { deployment, role, .. }) => visible(*deployment, role),
        Edit::Unbind(edit::Unbind { node, noderole, .. }) => bound(node, noderole),
        Edit::UnbindNodes(edit::UnbindNodes { noderole, nodes }) => {
            nodes.iter().find_map(|node| bound(node, noderole))
        }
        _ => None,
    }
}

/// A walk over roles and the roles that they require, directly or through others.
struct Requirements<'d, 'a> {
    draft: &'d Draft<'a>,
    /// The roles of the edits.
    named: BTreeSet<DeployedRole>,
    seen: BTreeSet<DeployedRole>,
    /// All visited roles, each after those that it requires.
    sorted: Vec<DeployedRole>,
}

impl Requirements<'_, '_> {
    /// Binding refuses longer chains, so the walk need not follow them.
    fn visit(&mut self, role: DeployedRole, depth: usize) {
        if depth > MAX_DEPTH || !self.seen.insert(role) {
            return;
        }
        for required in self.required(role).unwrap_or_default() {
            self.visit(required, depth + 1);
        }
        self.sorted.push(role);
    }

    /// The roles that may satisfy the requirements of a role: those of the edits first, because
    /// binding prefers noderoles that exist.
    fn required(
        &self,
        (deployment, content): DeployedRole,
    ) -> Result<Vec<DeployedRole>, EditError> {
        let catalog = self.draft.catalog;
        let chain = self.draft.chain(deployment);
        let mut required = Vec::new();
        for name in self.draft.parent_names(deployment, catalog.role(content)?)? {
            let satisfies = |(place, other): &&DeployedRole| {
                *other != content
                    && chain.contains(place)
                    && catalog.role(*other).is_ok_and(|role| role.satisfies(&name))
            };
            required.extend(self.named.iter().filter(satisfies).copied());
            let added = self.draft.required_content(deployment, &name)?;
            required.extend(added.map(|content| (deployment, content)));
        }
        Ok(required)
    }
}
