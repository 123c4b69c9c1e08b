//! Resolves a proposal's edits into effects.
//!
//! The edits apply to a [`Draft`] of the skeleton in order. Each takes effect as a whole, or is
//! refused with a reason and no effect. The effects are the final difference between draft and
//! skeleton.
//!
//! One rule concerns the result and not a single edit: no role name may refer to two roles
//! ([`Draft::doubling`]). If two barclamps exchange a role, the rule is broken between the edits in
//! any order. It is therefore checked after all edits. The edit at fault is then refused, and the
//! others are applied again without it.
//!
//! This module has the edits that only set a value. [`bind`](super::bind) and
//! [`remove`](super::remove) have the rules for additional bindings and for dependents.
//!
//! A cycle among roles appears as a role that requires itself during binding. Noderoles cannot form
//! a cycle. A new one only waits for existing ones, and an edge between existing ones that would
//! create a cycle is refused.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::bind::Rules;
use super::clash::Along;
use super::draft::Draft;
use super::edit::{Edit, MAX_LEVELS, NumberedEdit};
use super::effects::{
    ConnectionUpdate, Effects, JigSwitch, NewDeployment, NewHints, NewPolicy, NoderoleData,
    Refusal, Rerun, RoleData, Why,
};
use super::refusal::EditError;
use super::sight::PinEdit;
use crate::canonical::Hash;
use crate::catalog::{Catalog, JigClass};
pub use crate::cluster::phantom::fqdn as phantom_fqdn;
use crate::cluster::{ConnectionChange, EdgeKind, NoderoleKey, Skeleton};
use crate::data::{self, DataError};
use crate::gate::Policy;
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// The effects of the edits. Edits that cannot take effect are in [`Effects::refused`].
pub fn resolve(skeleton: &Skeleton, catalog: &Catalog, edits: &[NumberedEdit]) -> Effects {
    resolve_with_rules(Rules::default(), skeleton, catalog, edits)
}

/// The effects of the edits under the rules of one of OpenCrowbar's versions.
pub fn resolve_with_rules(
    rules: Rules,
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
) -> Effects {
    let Laid { draft, refused, .. } = laid(rules, skeleton, catalog, edits);
    draft.effects(refused)
}

/// The effects of the edits, and the side effects of each edit by its number.
pub fn resolve_with(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
) -> (Effects, BTreeMap<u32, Along>) {
    let Laid { draft, refused, along } = laid(Rules::default(), skeleton, catalog, edits);
    (draft.effects(refused), along)
}

/// Edits applied to a skeleton.
pub(super) struct Laid<'a> {
    pub draft: Draft<'a>,
    pub refused: Vec<Refusal>,
    /// The side effects of each edit, if it has any.
    pub along: BTreeMap<u32, Along>,
}

/// Applies all edits to the skeleton.
pub(super) fn laid<'a>(
    rules: Rules,
    skeleton: &'a Skeleton,
    catalog: &'a Catalog,
    edits: &[NumberedEdit],
) -> Laid<'a> {
    let mut at_fault = BTreeMap::new();
    // The first pass finds all edits at fault, so the second is usually the last. Another pass is
    // needed if a refused edit causes others to fail, or leaves a version visible that it hid. Each
    // pass refuses at least one more edit, so the loop ends.
    loop {
        let laid = apply_edits_except(&at_fault, Draft::new(skeleton, catalog, rules), edits);
        let refused: BTreeSet<u32> = laid.refused.iter().map(|refusal| refusal.edit).collect();
        let pins = edits.iter().filter(|edit| !refused.contains(&edit.seq)).filter_map(PinEdit::by);
        let more = laid.draft.doubling(&pins.collect::<Vec<_>>());
        if more.is_empty() {
            return laid;
        }
        at_fault.extend(more);
    }
}

fn apply_edits_except<'a>(
    at_fault: &BTreeMap<u32, EditError>,
    mut draft: Draft<'a>,
    edits: &[NumberedEdit],
) -> Laid<'a> {
    let (mut refused, mut along) = (Vec::new(), BTreeMap::new());
    for NumberedEdit { seq, edit } in edits {
        let result = match at_fault.get(seq) {
            Some(error) => Err(error.clone()),
            None => draft.whole(|draft| draft.apply(*seq, edit)),
        };
        let side_effects = std::mem::take(&mut draft.along);
        match result {
            Ok(()) if side_effects.is_empty() => {}
            Ok(()) => drop(along.insert(*seq, side_effects)),
            Err(error) => {
                refused.push(Refusal {
                    edit: *seq,
                    code: error.code().into(),
                    reason: error.to_string(),
                });
            }
        }
    }
    Laid { draft, refused, along }
}

impl Draft<'_> {
    pub fn apply(&mut self, seq: u32, edit: &Edit) -> Result<(), EditError> {
        edit.check()?;
        let why = Why::Asked { edit: seq };
        match edit {
            Edit::CreateDeployment { id, phantom, name, parent } => {
                self.make(*id, *phantom, name, *parent, why)
            }
            Edit::RemoveDeployment { deployment } => self.drop_deployment(*deployment, why),
            Edit::UseBarclamp { deployment, barclamp, version } => {
                self.use_barclamp(*deployment, barclamp, *version, why)
            }
            Edit::InheritBarclamp { deployment, barclamp } => {
                self.inherit_barclamp(*deployment, barclamp, why)
            }
            Edit::AddRole { deployment, role } => self.apply_add_role(*deployment, role, why),
            Edit::RemoveRole { deployment, role } => self.drop_role(*deployment, role, why),
            Edit::SetRoleData { deployment, role, data } => {
                self.set_role_data(*deployment, role, data, why)
            }
            Edit::Bind { deployment, node, role } => self.bind(*deployment, *node, role, seq),
            Edit::Unbind { node, noderole, with_dependents } => {
                self.unbind(*node, noderole, *with_dependents, seq)
            }
            Edit::BindNodes { .. } | Edit::UnbindNodes { .. } => {
                edit.each().iter().try_for_each(|single| self.apply(seq, single))
            }
            Edit::SetNoderoleData { node, noderole, data } => {
                self.set_noderole_data(*node, noderole, data, why)
            }
            Edit::MoveNode { node, deployment } => self.apply_move_node(*node, *deployment, why),
            Edit::SetConnection { node, connection } => self.set_connection(*node, connection, why),
            Edit::SetHints { node, hints } => self.set_hints(*node, hints, why),
            Edit::ExpungeNode { node, reason } => self.expunge_node(*node, reason, seq),
            Edit::Rerun { node, noderole, reason } => self.rerun(*node, noderole, reason, why),
            Edit::RerunSlice { deployment, roles, reason } => {
                self.rerun_slice(*deployment, roles, reason, seq)
            }
            Edit::ActivateJig { jig, active } => self.activate_jig(jig, *active, why),
            Edit::SetPolicy { policy } => self.set_policy(policy, why),
        }
    }

    fn make(
        &mut self,
        id: DeploymentId,
        phantom: NodeId,
        name: &DeploymentName,
        parent: DeploymentId,
        why: Why,
    ) -> Result<(), EditError> {
        self.deployment(parent)?;
        if self.chain(parent).len() >= MAX_LEVELS {
            return Err(EditError::TooLow {
                name: name.to_string(),
                parent: self.deployment_name(parent),
            });
        }
        // Names that differ only in case are too easy to confuse.
        if let Some((_, result)) = self
            .deployments()
            .find(|(_, result)| result.name.as_str().eq_ignore_ascii_case(name.as_str()))
        {
            return Err(EditError::DeploymentExists(result.name.to_string()));
        }
        // Histories, links and records name things by id only. A reused id would mix up approvals
        // and runs, even if the two things never exist at once.
        if self.had_deployment(id) || self.had_node(NodeId(id.0)) {
            return Err(EditError::DeploymentIdUsed(id));
        }
        // A machine's id would silently turn that machine into a phantom node.
        if self.had_node(phantom) || self.had_deployment(DeploymentId(phantom.0)) {
            return Err(EditError::PhantomTaken(phantom));
        }
        self.insert_deployment(NewDeployment {
            id,
            phantom,
            phantom_fqdn: phantom_fqdn(id),
            name: name.clone(),
            parent,
            why,
        });
        Ok(())
    }

    fn use_barclamp(
        &mut self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
        version: Hash,
        why: Why,
    ) -> Result<(), EditError> {
        self.deployment(deployment)?;
        let content = self.catalog.barclamp(version)?;
        if content.name != *barclamp {
            return Err(EditError::OtherBarclamp {
                version,
                found: content.name.clone(),
                asked: barclamp.clone(),
            });
        }
        self.pin(deployment, barclamp, Some(version))?;
        self.adopt(deployment, barclamp, why.edit())?;
        self.record_pin_origin(deployment, barclamp, why);
        Ok(())
    }

    fn inherit_barclamp(
        &mut self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
        why: Why,
    ) -> Result<(), EditError> {
        if self.pin(deployment, barclamp, None)?.is_none() {
            let deployment = self.deployment_name(deployment);
            return Err(EditError::NoOwnVersion { deployment, barclamp: barclamp.clone() });
        }
        self.adopt(deployment, barclamp, why.edit())?;
        self.record_pin_origin(deployment, barclamp, why);
        Ok(())
    }

    fn apply_add_role(
        &mut self,
        deployment: DeploymentId,
        role: &RoleName,
        why: Why,
    ) -> Result<(), EditError> {
        if self.deployment(deployment)?.roles.contains_key(role) {
            let deployment = self.deployment_name(deployment);
            return Err(EditError::RoleExists { deployment, role: role.clone() });
        }
        let content = self.visible_role(deployment, role)?;
        self.add_role(deployment, role, content, why)
    }

    fn set_role_data(
        &mut self,
        deployment: DeploymentId,
        role: &RoleName,
        data: &Value,
        why: Why,
    ) -> Result<(), EditError> {
        let name = self.deployment(deployment)?.name.to_string();
        if !self.deployment(deployment)?.roles.contains_key(role) {
            return Err(EditError::NotARoleHere { deployment: name, role: role.clone() });
        }
        check_object(data)
            .map_err(|error| EditError::Data { subject: format!("{role} in {name}"), error })?;
        let entry = RoleData { deployment, role: role.clone(), data: data.clone(), why };
        self.set.role_data.say((deployment, role.clone()), entry);
        Ok(())
    }

    fn set_noderole_data(
        &mut self,
        node: NodeId,
        noderole: &NoderoleKey,
        data: &Value,
        why: Why,
    ) -> Result<(), EditError> {
        let fqdn = &self.noderole_on(node, noderole)?.fqdn;
        check_object(data)
            .map_err(|error| EditError::Data { subject: format!("{noderole} on {fqdn}"), error })?;
        let entry = NoderoleData { node, noderole: noderole.clone(), data: data.clone(), why };
        self.set.noderole_data.say((node, noderole.clone()), entry);
        Ok(())
    }

    /// Requires a machine with a document. Any other node is edited without a proposal.
    fn documented(&self, node: NodeId) -> Result<&Fqdn, EditError> {
        let found = self.node(node)?;
        match (found.phantom, found.bare) {
            (true, _) => Err(EditError::Phantom(found.fqdn.clone())),
            (_, true) => Err(EditError::BareNode(found.fqdn.clone())),
            _ => Ok(&found.fqdn),
        }
    }

    fn set_connection(
        &mut self,
        node: NodeId,
        change: &ConnectionChange,
        why: Why,
    ) -> Result<(), EditError> {
        self.documented(node)?;
        let change = change.checked().map_err(EditError::Connection)?;
        let earlier =
            self.set.connections.last(&node).map(|set| set.connection.clone()).unwrap_or_default();
        self.set
            .connections
            .say(node, ConnectionUpdate { node, connection: change.after(earlier), why });
        Ok(())
    }

    fn set_hints(&mut self, node: NodeId, hints: &Value, why: Why) -> Result<(), EditError> {
        let fqdn = self.documented(node)?;
        check_object(hints)
            .map_err(|error| EditError::Data { subject: format!("the hints of {fqdn}"), error })?;
        let hints = hints.as_object().cloned().unwrap_or_default();
        self.set.hints.say(node, NewHints { node, hints, why });
        Ok(())
    }

    fn rerun(
        &mut self,
        node: NodeId,
        noderole: &NoderoleKey,
        reason: &str,
        why: Why,
    ) -> Result<(), EditError> {
        let fqdn = self.noderole_on(node, noderole)?.fqdn.clone();
        if reason.trim().is_empty() {
            return Err(EditError::NoReason { node: fqdn, noderole: noderole.clone() });
        }
        let entry =
            Rerun { node, noderole: noderole.clone(), reason: reason.trim().to_owned(), why };
        self.set.reruns.say((node, noderole.clone()), entry);
        Ok(())
    }

    /// Re-runs the noderoles of these roles and all their descendants over hard edges in the
    /// deployment, including barriers. A barrier that stayed ACTIVE would let its children start
    /// before its members are done.
    fn rerun_slice(
        &mut self,
        deployment: DeploymentId,
        roles: &BTreeSet<RoleName>,
        reason: &str,
        seq: u32,
    ) -> Result<(), EditError> {
        let name = self.deployment(deployment)?.name.to_string();
        if reason.trim().is_empty() {
            return Err(EditError::NoReasonForSlice(name));
        }
        if roles.is_empty() {
            return Err(EditError::NoRoles);
        }
        let of_role = |role: &RoleName| {
            let answering: Vec<NoderoleId> = self.answering(deployment, role).collect();
            let named =
                |id: &NoderoleId| self.noderole(*id).is_some_and(|(_, key, _)| key.role == *role);
            answering.into_iter().filter(named).collect::<Vec<_>>()
        };
        let mut open: Vec<(NoderoleId, Why)> =
            roles.iter().flat_map(of_role).map(|id| (id, Why::Asked { edit: seq })).collect();
        if open.is_empty() {
            let roles = roles.iter().map(ToString::to_string).collect();
            return Err(EditError::NothingToRerun { deployment: name, roles });
        }
        let mut seen: BTreeSet<NoderoleId> = open.iter().map(|(id, _)| *id).collect();
        let mut slice = Vec::new();
        while let Some((id, why)) = open.pop() {
            let Some((node, key, noderole)) = self.noderole(id) else { continue };
            let by = key.role.clone();
            slice.push((
                noderole.rank,
                Rerun { node, noderole: key.clone(), reason: reason.trim().to_owned(), why },
            ));
            for (child, kind) in self.children(id) {
                let here = self.noderole(child).is_some_and(|(_, _, n)| n.deployment == deployment);
                if kind == EdgeKind::Hard && here && seen.insert(child) {
                    open.push((child, Why::Brought { edit: seq, by: by.clone(), implicit: false }));
                }
            }
        }
        slice.sort_by(|(rank, a), (other, b)| {
            (rank, a.node, &a.noderole).cmp(&(other, b.node, &b.noderole))
        });
        for (_, rerun) in slice {
            self.set.reruns.say((rerun.node, rerun.noderole.clone()), rerun);
        }
        Ok(())
    }

    fn apply_move_node(
        &mut self,
        node: NodeId,
        to: DeploymentId,
        why: Why,
    ) -> Result<(), EditError> {
        let deployment = self.deployment(to)?.name.to_string();
        let found = self.node(node)?;
        if found.phantom {
            return Err(EditError::Phantom(found.fqdn.clone()));
        }
        if found.deployment == to {
            return Err(EditError::AlreadyThere { node: found.fqdn.clone(), deployment });
        }
        let chain = self.chain(to);
        if let Some((noderole, carried)) =
            found.noderoles.iter().find(|(_, n)| !chain.contains(&n.deployment))
        {
            return Err(EditError::WouldLeaveBehind {
                node: found.fqdn.clone(),
                noderole: noderole.clone(),
                deployment: self.deployment_name(carried.deployment),
            });
        }
        self.move_node(node, to, why)
    }

    /// Jigs serve all deployments, so the root deployment stores which ones are off.
    fn activate_jig(&mut self, jig: &JigName, active: bool, why: Why) -> Result<(), EditError> {
        self.check_known_jig(jig)?;
        let Some(root) = self.root() else { return Ok(()) };
        if self.deployment(root)?.inactive_jigs.contains(jig) != active {
            return Err(EditError::JigIsSo { jig: jig.clone(), active });
        }
        let inactive = &mut self.deployment_mut(root)?.inactive_jigs;
        if active {
            inactive.remove(jig);
        } else {
            inactive.insert(jig.clone());
        }
        self.set.jigs.say(jig.clone(), JigSwitch { jig: jig.clone(), active, why });
        Ok(())
    }

    fn check_known_jig(&self, jig: &JigName) -> Result<(), EditError> {
        let mut declared = BTreeSet::new();
        for (_, deployment) in self.deployments() {
            for pin in deployment.barclamps.values() {
                declared.extend(self.catalog.barclamp(*pin)?.jigs.keys().cloned());
            }
        }
        if declared.contains(jig) || JigClass::built_in(jig.as_str()).is_some() {
            return Ok(());
        }
        let nearest = nearest(jig.as_str(), declared.iter().map(JigName::as_str));
        Err(EditError::UnknownJig { jig: jig.clone(), nearest })
    }

    fn set_policy(&mut self, policy: &Policy, why: Why) -> Result<(), EditError> {
        policy.check()?;
        self.set.policy = Some(NewPolicy { policy: policy.clone(), why });
        Ok(())
    }
}

/// Data layers merge by key, so data must be an object. A secret in its place could not be merged.
fn check_object(data: &Value) -> Result<(), DataError> {
    data::object(data, || "The data of a role".into())?;
    data::check_user_data(data)
}

/// The most similar name, if at most a third of its characters differ. Names with more differences
/// are unlikely to be what the user meant.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let length = name.chars().count();
    let alike = names.filter_map(|other| {
        let of_other = other.chars().count();
        // The threshold depends on the length of each name, so each is tested before names are
        // compared by distance.
        let is_near = |distance: usize| distance * 3 <= length.max(of_other);
        // The distance is at least the difference in length. This check comes first because input
        // can have any length.
        let distance =
            is_near(length.abs_diff(of_other)).then(|| strsim::damerau_levenshtein(name, other))?;
        is_near(distance).then_some((distance, other))
    });
    alike.min().map(|(_, best)| best.to_owned())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::plan::MAX_REASON;

    #[test]
    fn only_similar_names_are_suggested() {
        let of = |name: &str| nearest(name, ["web", "runtime", "dns-client"].into_iter());
        assert_eq!(of("runtme").as_deref(), Some("runtime"));
        assert_eq!(of("dnsclient").as_deref(), Some("dns-client"));
        for far in ["db", "app", "zzz", "nothing", "x", "ööö", &"web".repeat(1_000_000)] {
            assert_eq!(of(far), None, "{far:.20}");
        }
        assert_eq!(nearest("ap", ["a", "app", "b"].into_iter()).as_deref(), Some("app"));
    }

    /// The refusals of edits with this reason that name missing things.
    fn refusals(reason: &str) -> Vec<String> {
        let (node, deployment, reason) =
            (NodeId(Uuid::nil()), DeploymentId(Uuid::nil()), reason.to_owned());
        let role = RoleName::parse("app").unwrap();
        let edits = [
            Edit::ExpungeNode { node, reason: reason.clone() },
            Edit::Rerun {
                node,
                noderole: NoderoleKey::first(role.clone()),
                reason: reason.clone(),
            },
            Edit::RerunSlice { deployment, roles: [role].into(), reason },
        ];
        let edits: Vec<NumberedEdit> =
            (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit }).collect();
        let effects = resolve(&Skeleton::default(), &Catalog::default(), &edits);
        effects.refused.into_iter().map(|refusal| refusal.code).collect()
    }

    #[test]
    fn invalid_reason_is_refused_before_lookups() {
        assert_eq!(
            refusals(&"ä".repeat(MAX_REASON)),
            ["unknown_node", "unknown_node", "unknown_deployment"]
        );
        assert_eq!(refusals(&"ä".repeat(MAX_REASON + 1)), ["long_reason"; 3]);
        assert_eq!(refusals("nothing\u{202e}epiw"), ["deceptive_reason"; 3]);
    }
}
