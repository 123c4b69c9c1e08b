//! Removal of noderoles, nodes, roles and deployments.
//!
//! The noderoles that a removed one required stay, but its children must not lose a parent. If
//! binding would find another noderole that satisfies a child, the child is rewired to it and
//! continues to run. Otherwise the child is a *dependent*. An edit removes dependents only if it
//! says so; otherwise it is refused and names them. (OpenCrowbar had no way to remove a wrong
//! binding for years, and later removed descendants silently.) Soft edges have no dependents: a
//! child that loses such a parent gets the next one, as in binding.
//!
//! A barrier loses removed members and is removed with the last. Its children then count as
//! children of that member. A noderole of an ancestor can wait for the barrier of a member on its
//! own node. It counts as a child of the last member there.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::Draft;
use super::effects::EffectCause;
use super::refusal::EditError;
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey};
use crate::ids::{DeploymentId, NodeId, NoderoleId, RoleName};

/// Noderoles that are removed together.
struct RemovalClosure {
    /// Each with the noderole that it depends on; `None` if the edit names it.
    gone: BTreeMap<NoderoleId, Option<NoderoleId>>,
    /// Those that the edit does not name, without barriers.
    dependents: Vec<NoderoleId>,
}

impl Draft<'_> {
    pub fn unbind(
        &mut self,
        node: NodeId,
        noderole: &NoderoleKey,
        with_dependents: bool,
        seq: u32,
    ) -> Result<(), EditError> {
        self.noderole_on(node, noderole)?;
        let id = noderole.id(node);
        if let Some(role) = self.role_of(id).and_then(|role| role.gathers.clone()) {
            return Err(EditError::Barrier { barrier: noderole.role.clone(), role });
        }
        let going = self.removal_closure(&[id])?;
        if !with_dependents && !going.dependents.is_empty() {
            return Err(EditError::Needed {
                subject: self.noderole_text(id),
                dependents: self.named(&going.dependents),
            });
        }
        self.remove_closure(&going, seq)
    }

    pub fn expunge_node(&mut self, node: NodeId, reason: &str, seq: u32) -> Result<(), EditError> {
        let found = self.node(node)?;
        if found.phantom {
            return Err(EditError::Phantom(self.full_name(found)));
        }
        if reason.trim().is_empty() {
            return Err(EditError::NoReasonToExpunge(found.fqdn.clone()));
        }
        // The node has no desired state, so no document would change and there is nothing to
        // approve.
        if found.record_only {
            return Err(EditError::OnlyARecord(found.fqdn.clone()));
        }
        let ids: Vec<NoderoleId> = found.noderoles.keys().map(|key| key.id(node)).collect();
        let going = self.removal_closure(&ids)?;
        if !going.dependents.is_empty() {
            let node = self.node(node)?.fqdn.clone();
            return Err(EditError::NodeNeeded { node, dependents: self.named(&going.dependents) });
        }
        self.remove_closure(&going, seq)?;
        self.expunge(node, reason.trim().to_owned(), EffectCause::Requested { edit: seq })
    }

    pub fn drop_role(
        &mut self,
        deployment: DeploymentId,
        role: &RoleName,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        let found = self.deployment(deployment)?;
        if !found.roles.contains_key(role) {
            return Err(EditError::NotARoleHere {
                deployment: found.name.to_string(),
                role: role.clone(),
            });
        }
        let holders = self.candidates(deployment, role).filter_map(|id| {
            let (node, key, _) = self.noderole(id)?;
            (key.role == *role)
                .then(|| self.node(node).map(|n| self.short_name(n)).unwrap_or_default())
        });
        let nodes: Vec<String> = holders.collect();
        if !nodes.is_empty() {
            let deployment = self.deployment_name(deployment);
            return Err(EditError::RoleInUse { deployment, role: role.clone(), nodes });
        }
        self.remove_role(deployment, role, cause)
    }

    pub fn drop_deployment(
        &mut self,
        id: DeploymentId,
        cause: EffectCause,
    ) -> Result<(), EditError> {
        let found = self.deployment(id)?;
        if found.parent.is_none() {
            return Err(EditError::RootDeployment(found.name.to_string()));
        }
        let contents = self.contents(id)?;
        if !contents.is_empty() {
            return Err(EditError::NotEmpty { deployment: found.name.to_string(), contents });
        }
        self.remove_deployment(id, cause)
    }

    /// The reasons why a deployment is not empty: children, nodes and noderoles on its phantom
    /// node.
    fn contents(&self, id: DeploymentId) -> Result<Vec<String>, EditError> {
        let mut contents: Vec<String> = self
            .deployments()
            .filter(|(_, d)| d.parent == Some(id))
            .map(|(_, d)| format!("deployment {}", d.name))
            .collect();
        let nodes = self.nodes().filter(|(_, n)| n.deployment == id && !n.phantom);
        contents.extend(nodes.map(|(_, n)| format!("node {}", self.short_name(n))));
        let phantom = self.node(self.deployment(id)?.phantom)?;
        contents.extend(phantom.noderoles.keys().map(|key| format!("service {key}")));
        Ok(contents)
    }

    fn named(&self, noderoles: &[NoderoleId]) -> Vec<String> {
        noderoles.iter().map(|id| self.noderole_text(*id)).collect()
    }

    /// The closure of a removal. It repeats until nothing is added, because each removal leaves
    /// fewer noderoles that could replace a parent.
    fn removal_closure(&self, requested: &[NoderoleId]) -> Result<RemovalClosure, EditError> {
        let mut going = RemovalClosure {
            gone: requested.iter().map(|id| (*id, None)).collect(),
            dependents: Vec::new(),
        };
        loop {
            let mut more = Vec::new();
            for id in going.gone.keys() {
                for (child, kind) in self.children(*id) {
                    if kind == EdgeKind::Hard
                        && !going.gone.contains_key(&child)
                        && self.must_be_removed(child, *id, &going)?
                    {
                        more.push((child, *id));
                    }
                    for (child, barrier) in self.left_by_members(child, &going) {
                        if self.must_be_removed(child, barrier, &going)? {
                            more.push((child, *id));
                        }
                    }
                }
            }
            if more.is_empty() {
                return Ok(going);
            }
            for (child, with) in more {
                let new = going.gone.insert(child, Some(with)).is_none();
                if new && self.role_of(child).is_none_or(|role| role.gathers.is_none()) {
                    going.dependents.push(child);
                }
            }
        }
    }

    /// The remaining children of a barrier that lose it although it stays, with the barrier.
    fn left_by_members(
        &self,
        barrier: NoderoleId,
        going: &RemovalClosure,
    ) -> Vec<(NoderoleId, NoderoleId)> {
        if going.gone.contains_key(&barrier)
            || self.role_of(barrier).is_none_or(|role| role.gathers.is_none())
        {
            return Vec::new();
        }
        let children = self.children(barrier).into_iter();
        children
            .filter(|(child, kind)| {
                *kind == EdgeKind::Hard
                    && !going.gone.contains_key(child)
                    && self.loses_barrier(*child, barrier, going)
            })
            .map(|(child, _)| (child, barrier))
            .collect()
    }

    /// Whether a noderole can no longer wait for a barrier that loses members: it is not above, and
    /// no remaining member is on the node.
    fn loses_barrier(
        &self,
        child: NoderoleId,
        barrier: NoderoleId,
        going: &RemovalClosure,
    ) -> bool {
        let (Some((node, _, noderole)), Some((_, _, gathering))) =
            (self.noderole(child), self.noderole(barrier))
        else {
            return false;
        };
        let is_member_here = |edge: &EdgeDoc| {
            !going.gone.contains_key(&edge.parent)
                && self.noderole(edge.parent).is_some_and(|(place, _, _)| place == node)
        };
        !gathering.parents.iter().any(is_member_here)
            && !self.chain(noderole.deployment).contains(&gathering.deployment)
    }

    /// Whether a child cannot exist without this parent.
    fn must_be_removed(
        &self,
        child: NoderoleId,
        parent: NoderoleId,
        going: &RemovalClosure,
    ) -> Result<bool, EditError> {
        let stays = |id: &NoderoleId| !going.gone.contains_key(id);
        if self.role_of(child).is_some_and(|role| role.gathers.is_some()) {
            let members =
                self.noderole(child).map(|(_, _, n)| n.parents.as_slice()).unwrap_or_default();
            return Ok(!members.iter().any(|edge| stays(&edge.parent)));
        }
        Ok(self.replacement(child, parent, &|other| stays(&other))?.is_none())
    }

    /// Rewires the remaining children to replacement parents, then removes the noderoles. Children
    /// are handled one at a time, so that each sees the edges of the previous ones. Otherwise two
    /// replacements together could create a cycle that neither creates alone.
    fn remove_closure(&mut self, going: &RemovalClosure, seq: u32) -> Result<(), EditError> {
        let mut children: BTreeSet<NoderoleId> =
            going.gone.keys().flat_map(|id| self.children(*id)).map(|(child, _)| child).collect();
        // Found first, because rewired barriers no longer have the removed members.
        let left = children.iter().flat_map(|barrier| self.left_by_members(*barrier, going));
        let left: BTreeSet<(NoderoleId, NoderoleId)> = left.collect();
        children.extend(left.iter().map(|(child, _)| *child));
        let mut out_of_order: Vec<(NoderoleId, RoleName)> = Vec::new();
        for child in children.into_iter().filter(|child| !going.gone.contains_key(child)) {
            out_of_order.extend(self.removed_predecessors(child, going));
            let parents = self.parents_without(child, going, &left)?;
            self.rewire(child, parents)?;
        }
        let dependents = going.dependents.iter().filter_map(|id| self.noderole(*id));
        let dependents: Vec<_> = dependents.map(|(node, key, _)| (node, key.clone())).collect();
        self.side_effects.gone.extend(dependents);
        let names: BTreeMap<NoderoleId, RoleName> = going
            .gone
            .keys()
            .filter_map(|id| Some((*id, self.role_of(*id)?.name.clone())))
            .collect();
        for (id, with) in &going.gone {
            let by = with.and_then(|with| names.get(&with).cloned());
            let cause = match by {
                None => EffectCause::Requested { edit: seq },
                Some(by) => EffectCause::Required { edit: seq, by, implicit: false },
            };
            self.take(*id, cause)?;
        }
        out_of_order.iter().try_for_each(|(child, earlier)| self.follow(*child, earlier))
    }

    /// The removed noderoles that a child follows by a soft edge, with their roles.
    fn removed_predecessors(
        &self,
        child: NoderoleId,
        going: &RemovalClosure,
    ) -> Vec<(NoderoleId, RoleName)> {
        let parents =
            self.noderole(child).map(|(_, _, n)| n.parents.as_slice()).unwrap_or_default();
        let lost = parents
            .iter()
            .filter(|edge| edge.kind == EdgeKind::Soft && going.gone.contains_key(&edge.parent));
        lost.filter_map(|edge| Some((child, self.role_of(edge.parent)?.name.clone()))).collect()
    }

    /// The parents of a child after the removal. `left`: the children that lose a barrier which
    /// stays, with the barrier.
    fn parents_without(
        &self,
        child: NoderoleId,
        going: &RemovalClosure,
        left: &BTreeSet<(NoderoleId, NoderoleId)>,
    ) -> Result<BTreeSet<EdgeDoc>, EditError> {
        let Some((_, _, noderole)) = self.noderole(child) else { return Ok(BTreeSet::new()) };
        let barrier = self.role_of(child).is_some_and(|role| role.gathers.is_some());
        let mut parents: BTreeSet<EdgeDoc> = BTreeSet::new();
        for edge in &noderole.parents {
            let stays = !going.gone.contains_key(&edge.parent)
                && (edge.kind != EdgeKind::Hard || !left.contains(&(child, edge.parent)));
            if stays {
                parents.insert(*edge);
            } else if edge.kind == EdgeKind::Hard && !barrier {
                let instead = self
                    .replacement(child, edge.parent, &|other| !going.gone.contains_key(&other))?;
                let instead = instead.ok_or_else(|| EditError::Needed {
                    subject: self.noderole_text(edge.parent),
                    dependents: self.named(&[child]),
                })?;
                parents.extend(
                    instead.into_iter().map(|parent| EdgeDoc { parent, kind: EdgeKind::Hard }),
                );
            }
        }
        // A hard edge to the same parent includes the soft one.
        let hard: BTreeSet<NoderoleId> =
            parents.iter().filter(|e| e.kind == EdgeKind::Hard).map(|e| e.parent).collect();
        parents.retain(|edge| edge.kind == EdgeKind::Hard || !hard.contains(&edge.parent));
        Ok(parents)
    }
}
