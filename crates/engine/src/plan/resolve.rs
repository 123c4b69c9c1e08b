//! Resolving: what a proposal's edits come to.
//!
//! Edits are laid over the skeleton one by one, in their order ([`Draft`]); each takes effect as a whole, or is refused with a reason
//! and leaves nothing behind. In the end the effects are what draft and skeleton differ in.
//!
//! One rule is about the end and not about any edit: no role name begins to mean two things ([`Draft::doubling`]). Two barclamps that
//! exchange a role break it in between, whichever comes first. So it is asked when all edits are laid over the skeleton; the edit at
//! fault is refused then, and the others are laid over it anew without it.
//!
//! Here are the edits that only set something; [`bind`](super::bind) and [`remove`](super::remove) have the rules for what comes
//! along and what can't go.
//!
//! A cycle among *roles* shows as a role that requires itself while it is being bound; among noderoles none can arise, since a new
//! one waits only for those that are there, and an edge to one that is there already is refused if it would close a circle.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::bind::Rules;
use super::clash::Along;
use super::draft::Draft;
use super::edit::{Edit, MAX_LEVELS, NumberedEdit};
use super::effects::{
    ConnectionSet, Effects, HintsSet, JigSwitch, NewDeployment, NoderoleData, PolicySet, Refusal,
    Rerun, RoleData, Why,
};
use super::refusal::EditError;
use super::sight::Pinned;
use crate::canonical::Hash;
use crate::catalog::{Catalog, JigClass};
pub use crate::cluster::phantom::fqdn as phantom_fqdn;
use crate::cluster::{ConnectionChange, EdgeKind, NoderoleKey, Skeleton};
use crate::data::{self, DataError};
use crate::gate::Policy;
use crate::ids::{
    BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId, RoleName,
};

/// What the edits come to. Edits that can't take effect are named in [`Effects::refused`] and change nothing.
pub fn resolve(skeleton: &Skeleton, catalog: &Catalog, edits: &[NumberedEdit]) -> Effects {
    resolve_by(Rules::default(), skeleton, catalog, edits)
}

/// What the edits come to by the rules of one of OpenCrowbar's versions.
pub fn resolve_by(
    rules: Rules,
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
) -> Effects {
    let Laid { draft, refused, .. } = laid(rules, skeleton, catalog, edits);
    draft.effects(refused)
}

/// What the edits come to, and what each takes along besides what it names, by its number.
pub fn resolve_with(
    skeleton: &Skeleton,
    catalog: &Catalog,
    edits: &[NumberedEdit],
) -> (Effects, BTreeMap<u32, Along>) {
    let Laid { draft, refused, along } = laid(Rules::default(), skeleton, catalog, edits);
    (draft.effects(refused), along)
}

/// Edits laid over a skeleton.
pub(super) struct Laid<'a> {
    pub draft: Draft<'a>,
    pub refused: Vec<Refusal>,
    /// What each that took effect takes along, if it does.
    pub along: BTreeMap<u32, Along>,
}

/// Lays all edits over the skeleton.
pub(super) fn laid<'a>(
    rules: Rules,
    skeleton: &'a Skeleton,
    catalog: &'a Catalog,
    edits: &[NumberedEdit],
) -> Laid<'a> {
    let mut at_fault = BTreeMap::new();
    // Once round finds all that are at fault, so the second time is mostly the last. Another follows where one that goes takes others with
    // it, or leaves a version in sight that it hid; each refuses at least one edit more.
    loop {
        let laid = laid_without(&at_fault, Draft::new(skeleton, catalog, rules), edits);
        let refused: BTreeSet<u32> = laid.refused.iter().map(|refusal| refusal.edit).collect();
        let pins = edits.iter().filter(|edit| !refused.contains(&edit.seq)).filter_map(Pinned::by);
        let more = laid.draft.doubling(&pins.collect::<Vec<_>>());
        if more.is_empty() {
            return laid;
        }
        at_fault.extend(more);
    }
}

fn laid_without<'a>(
    at_fault: &BTreeMap<u32, EditError>,
    mut draft: Draft<'a>,
    edits: &[NumberedEdit],
) -> Laid<'a> {
    let (mut refused, mut along) = (Vec::new(), BTreeMap::new());
    for NumberedEdit { seq, edit } in edits {
        let taken = match at_fault.get(seq) {
            Some(error) => Err(error.clone()),
            None => draft.whole(|draft| draft.apply(*seq, edit)),
        };
        let takes = std::mem::take(&mut draft.along);
        match taken {
            Ok(()) if takes.is_empty() => {}
            Ok(()) => drop(along.insert(*seq, takes)),
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
            Edit::AddRole { deployment, role } => self.let_bind(*deployment, role, why),
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
            Edit::MoveNode { node, deployment } => self.move_by_hand(*node, *deployment, why),
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
        // Two that differ in capitals alone are one for whoever says them aloud.
        if let Some((_, taken)) = self
            .deployments()
            .find(|(_, taken)| taken.name.as_str().eq_ignore_ascii_case(name.as_str()))
        {
            return Err(EditError::DeploymentExists(taken.name.to_string()));
        }
        // One id for two things, one after the other or at once, would mix up what was approved and what was run for them: histories,
        // links and records name what they are about by its id alone.
        if self.had_deployment(id) || self.had_node(NodeId(id.0)) {
            return Err(EditError::DeploymentIdUsed(id));
        }
        // An id that is a machine's would turn that machine into a phantom behind the reviewer's back.
        if self.had_node(phantom) || self.had_deployment(DeploymentId(phantom.0)) {
            return Err(EditError::PhantomTaken(phantom));
        }
        self.create_deployment(NewDeployment {
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
        self.say_pinned(deployment, barclamp, why);
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
        self.say_pinned(deployment, barclamp, why);
        Ok(())
    }

    fn let_bind(
        &mut self,
        deployment: DeploymentId,
        role: &RoleName,
        why: Why,
    ) -> Result<(), EditError> {
        if self.deployment(deployment)?.roles.contains_key(role) {
            let deployment = self.deployment_name(deployment);
            return Err(EditError::RoleExists { deployment, role: role.clone() });
        }
        let content = self.known_role(deployment, role)?;
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

    /// A machine that a document describes. The record of any other is edited without a proposal.
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
            .say(node, ConnectionSet { node, connection: change.after(earlier), why });
        Ok(())
    }

    fn set_hints(&mut self, node: NodeId, hints: &Value, why: Why) -> Result<(), EditError> {
        let fqdn = self.documented(node)?;
        check_object(hints)
            .map_err(|error| EditError::Data { subject: format!("the hints of {fqdn}"), error })?;
        let hints = hints.as_object().cloned().unwrap_or_default();
        self.set.hints.say(node, HintsSet { node, hints, why });
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

    /// The named roles' noderoles and everything in the deployment that waits for them by hard edges, barriers too: one that stayed
    /// ACTIVE would let its children start before its members are done.
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

    fn move_by_hand(&mut self, node: NodeId, to: DeploymentId, why: Why) -> Result<(), EditError> {
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

    /// Jigs serve all deployments, so it is the root that says which are off.
    fn activate_jig(&mut self, jig: &JigName, active: bool, why: Why) -> Result<(), EditError> {
        self.known_jig(jig)?;
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

    fn known_jig(&self, jig: &JigName) -> Result<(), EditError> {
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
        self.set.policy = Some(PolicySet { policy: policy.clone(), why });
        Ok(())
    }
}

/// Data is laid over other data key by key, so it is an object; a secret in its place would be laid over by nothing.
fn check_object(data: &Value) -> Result<(), DataError> {
    data::object(data, || "data of a role".into())?;
    data::check_written(data)
}

/// The most similar of several names, if at most a third of it is written otherwise: what is further away was hardly meant.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let length = name.chars().count();
    let alike = names.filter_map(|other| {
        let of_other = other.chars().count();
        // A short name that is as far away as a long one is less alike, so each is measured by itself before they are compared.
        let is_near = |distance: usize| distance * 3 <= length.max(of_other);
        // Names are at least as far away as their lengths are. What somebody sent may be of any length, and is compared with none then.
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
    fn only_what_was_hardly_meant_otherwise_is_suggested() {
        let of = |name: &str| nearest(name, ["web", "runtime", "dns-client"].into_iter());
        assert_eq!(of("runtme").as_deref(), Some("runtime"));
        assert_eq!(of("dnsclient").as_deref(), Some("dns-client"));
        for far in ["db", "app", "zzz", "nothing", "x", "ööö", &"web".repeat(1_000_000)] {
            assert_eq!(of(far), None, "{far:.20}");
        }
        assert_eq!(nearest("ap", ["a", "app", "b"].into_iter()).as_deref(), Some("app"));
    }

    /// What an edit with this reason is refused for, where nothing that it names is there.
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
    fn a_long_reason_is_refused_before_anything_is_looked_up() {
        assert_eq!(
            refusals(&"ä".repeat(MAX_REASON)),
            ["unknown_node", "unknown_node", "unknown_deployment"]
        );
        assert_eq!(refusals(&"ä".repeat(MAX_REASON + 1)), ["long_reason"; 3]);
        assert_eq!(refusals("nothing\u{202e}epiw"), ["deceptive_reason"; 3]);
    }
}
