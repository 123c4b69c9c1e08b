//! The impact of a change, for the people who decide on it.
//!
//! The difference shows which documents change. The impact shows the effect: the steps that start,
//! run again or lose data, the noderoles downstream, and the order. All of it follows from the two
//! blueprints and their projection. So the console, the CLI and the gate always agree. If the
//! caller passes the states of steps, the impact also says what is in use now. That part becomes
//! outdated, so no decision depends on it.
//!
//! # Waves
//!
//! A wave contains the steps that can run at the same time, at best. A step is one wave after the
//! last step that it waits for and that also runs. Two exclusive steps of one node are never in one
//! wave.
//!
//! Immediate steps have no run and become ACTIVE when the wave that they wait for ends. They belong
//! to that wave and are counted separately. Those that wait for nothing are in wave 0.
//!
//! Concurrency groups do not move steps to later waves: a limit of 5 over 1,000 nodes would make
//! 200 waves. Instead, a wave says how many of its steps run at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::difference::{DeploymentDifference, Mark, NodeDifference};
pub use super::planned::{Counted, MAX_LIST_ITEMS, NAMED, Planned};
use super::projection::{Projection, RerunCause, StepChange, StepIntent};
use super::secret_uses::{SecretChange, secret_changes};
use crate::anneal::StepState;
use crate::catalog::version::compare;
use crate::catalog::{ConcurrencyGroupMode, OnInput};
use crate::cluster::{Blueprint, EdgeDoc, EdgeKind, NoderoleDoc, NoderoleKey, phantom};
use crate::data::{Change, ChangeKind};
use crate::gate::Risk;
use crate::ids::{
    ActionName, BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, RoleName,
    StepId,
};
use crate::plan::Effects;

/// The current state of a step. `None` if the step does not exist.
pub type Progress<'a> = &'a dyn Fn(StepId) -> Option<StepState>;

/// Noderole that the change affects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Touched {
    /// Role and instance.
    pub noderole: NoderoleKey,
    /// Name of the node.
    pub fqdn: Fqdn,
    /// The deployment in which the noderole is bound.
    pub deployment: DeploymentName,
    /// Id of the noderole.
    pub id: NoderoleId,
}

/// Such as `app on n1`.
impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The noderoles of a phantom are bound in the deployment that it represents.
        write!(
            f,
            "{} on {}",
            self.noderole,
            phantom::short_name(&self.fqdn, |_| Some(self.deployment.to_string()))
        )
    }
}

/// Noderole that runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoderoleRerun {
    #[serde(flatten)]
    pub touched: Touched,
    /// Cause of the re-run.
    pub cause: RerunCause,
    /// Reason that a person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the noderole is ACTIVE now, so that the re-run interrupts it. Absent if the step
    /// states are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<bool>,
}

/// Loss caused by the change. The kinds are in the order of the list, the most severe first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Loss {
    /// A node leaves the blueprint.
    Node {
        /// Name of the node.
        fqdn: Fqdn,
        /// Number of noderoles that are removed with the node.
        noderoles: usize,
    },
    /// A deployment is removed.
    Deployment {
        /// Name of the deployment.
        name: DeploymentName,
    },
    /// A role is removed from a deployment.
    Role {
        /// Name of the role.
        role: RoleName,
        /// Name of the deployment.
        deployment: DeploymentName,
    },
    /// A barclamp is removed from a deployment.
    Barclamp {
        /// Name of the barclamp.
        barclamp: BarclampName,
        /// Name of the deployment.
        deployment: DeploymentName,
    },
    /// A noderole is removed from a node that stays.
    Noderole {
        /// Role and instance.
        noderole: NoderoleKey,
        /// Name of the node.
        fqdn: Fqdn,
    },
    /// The new version of a barclamp lacks something that the old version has.
    Content {
        /// The missing part, such as `script 10-cut.sh of role saw`.
        part: String,
        /// Name of the barclamp.
        barclamp: BarclampName,
        /// Name of the deployment.
        deployment: DeploymentName,
    },
    /// Reviewed values are removed.
    Data {
        /// The data, such as `app in web` or `app on n1.example.com`.
        of: String,
        /// JSON pointers of the values.
        paths: Vec<String>,
    },
}

impl Loss {
    /// The position in the list.
    fn sort_key(&self) -> u8 {
        match self {
            Self::Node { .. } => 0,
            Self::Deployment { .. } => 1,
            Self::Role { .. } => 2,
            Self::Barclamp { .. } => 3,
            Self::Noderole { .. } => 4,
            Self::Content { .. } => 5,
            Self::Data { .. } => 6,
        }
    }
}

/// Noderoles of a deployment that depend on affected ones and that the change itself does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Downstream {
    /// Name of the deployment.
    pub deployment: DeploymentName,
    /// The reaction to a changed input.
    #[serde(default)]
    pub on_input: OnInput,
    #[serde(flatten)]
    pub noderoles: Counted<Touched>,
    /// Number of these noderoles that are ACTIVE now. Absent if the step states are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<usize>,
}

/// Steps that can run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wave {
    /// Number of the wave, starting at 1. Wave 0 has only immediate steps.
    pub number: u32,
    /// Steps by role and deployment, in the order of names. Immediate steps come last.
    pub groups: Vec<WaveGroup>,
    /// Number of steps with a run.
    pub runs: usize,
    /// Number of immediate steps. They become ACTIVE when the runs of the wave end.
    pub immediate: usize,
}

/// Steps of an action of a role in a wave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveGroup {
    /// Name of the role.
    pub role: RoleName,
    /// The deployment in which the role is bound.
    pub deployment: DeploymentName,
    /// Number of nodes; 1 for the phantom node of the deployment.
    pub nodes: usize,
    /// Number of steps that run at once. Null if all do.
    pub at_once: Option<u32>,
    /// Whether the next steps start only when all running ones have ended.
    pub in_chunks: bool,
    /// Whether the steps are immediate, without a run.
    pub immediate: bool,
    /// The action of the steps: `run`, or `remove` for noderoles that are removed.
    #[serde(default = "ActionName::run", skip_serializing_if = "ActionName::is_run")]
    pub action: ActionName,
    /// Whether the steps lose data.
    pub destructive: bool,
    /// The first 24 nodes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<Fqdn>,
    /// Roles in the same change that these steps wait for, the last to end first.
    #[serde(default)]
    pub after: Counted<WaveDependency>,
    /// Number of steps that wait only for their node, which runs one step at a time.
    #[serde(default)]
    pub queued: usize,
}

impl WaveGroup {
    /// Whether this is the phantom node of a deployment.
    pub fn is_phantom(&self) -> bool {
        self.first.first().is_some_and(|fqdn| phantom::represented_deployment(fqdn).is_some())
    }
}

/// Steps of a role that others wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveDependency {
    /// The last wave with such steps.
    pub wave: u32,
    /// Name of the role.
    pub role: RoleName,
    /// The deployment in which the role is bound.
    pub deployment: DeploymentName,
}

/// Impact of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Impact {
    /// Number of nodes where a step runs or a noderole is removed. Phantom nodes are not counted.
    #[serde(default)]
    pub nodes: usize,
    /// Noderoles that run for the first time, by name.
    pub starts: Counted<Touched>,
    /// Noderoles that run again. Those that are ACTIVE now come first, then by name.
    pub restarts: Counted<NoderoleRerun>,
    /// Noderoles with new content or data that do not run, because their role sets `on-change` to
    /// `keep`. Their applied result stays, and a later run uses the new values. If the step states
    /// are known, only ACTIVE noderoles are listed. Otherwise some may have no applied result yet.
    #[serde(default)]
    pub retained: Counted<Touched>,
    /// Number of noderoles that run again and are ACTIVE now, so that they are interrupted. Absent
    /// if the step states are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<usize>,
    /// Removed noderoles whose `remove` runs on the node before they are gone, by name. It does not
    /// run for a noderole that never ran.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub undone: Counted<Touched>,
    /// Other removed noderoles: nothing runs on the node, and what they did there stays. By name.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub left_in_place: Counted<Touched>,
    /// Losses, the most severe first.
    pub lost: Counted<Loss>,
    /// Number of removed noderoles that are ACTIVE now. Absent if the step states are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_in_use: Option<usize>,
    /// Noderoles that lose data when they run. No later change can restore it.
    pub irreversible: Counted<Touched>,
    /// Noderoles that depend on others that run again, are added to a barrier or are removed. They
    /// run when those are done, if their input has changed then. By deployment and policy.
    pub downstream: Vec<Downstream>,
    /// Order of the runs, at most 200 waves.
    pub waves: Vec<Wave>,
    /// Number of further waves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_waves: usize,
    /// Every use of a secret that the change adds, replaces or removes.
    #[serde(default)]
    pub secrets: Vec<SecretChange>,
    /// Risk classes of the change.
    pub risks: BTreeSet<Risk>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Impact {
    /// Noderoles that run after the waves if their input changes, by deployment.
    pub fn follow_ups(&self) -> impl Iterator<Item = &Downstream> {
        self.downstream.iter().filter(|group| group.on_input == OnInput::Rerun)
    }

    /// The number of waves with runs, including those that are not listed. Wave 0 has no runs.
    pub fn wave_count(&self) -> usize {
        self.waves.iter().filter(|wave| wave.number > 0).count() + self.more_waves
    }
}

/// Computes the impact of a change.
pub fn impact(planned: &Planned<'_>, progress: Option<Progress<'_>>) -> Impact {
    let names = Named(planned);
    let mut starts = Vec::new();
    let mut restarts = Vec::new();
    let mut irreversible = Vec::new();
    let mut affected = Vec::new();
    for step in unchanged_progress(planned) {
        let is_applied = progress.is_none_or(|state| state(step.id) == Some(StepState::Active));
        affected.extend(names.touched(step).filter(|_| is_applied));
    }
    for step in planned.projection.steps.iter().filter(|step| step.change == StepChange::Keep) {
        irreversible.extend(names.touched(step).filter(|_| becomes_destructive(planned, step)));
    }
    // A map, because `reason` would search 20,000 edits for each of 20,000 steps of a slice.
    let reasons: BTreeMap<_, _> = planned
        .effects
        .reruns
        .iter()
        .map(|rerun| ((rerun.node, &rerun.noderole), &rerun.reason))
        .collect();
    for step in running(planned.projection) {
        let Some(touched) = names.touched(step) else { continue };
        if step.destructive {
            irreversible.push(touched.clone());
        }
        match step.change {
            StepChange::Rerun(cause) => restarts.push(NoderoleRerun {
                cause,
                reason: reasons.get(&(step.node, &step.key)).map(|reason| (*reason).clone()),
                in_use: progress.map(|state| state(step.id) == Some(StepState::Active)),
                touched,
            }),
            StepChange::New | StepChange::Keep => starts.push(touched),
        }
    }
    affected.sort();
    starts.sort();
    irreversible.sort();
    // Interrupted noderoles come first, because a long list is cut at its end.
    restarts.sort_by(|a, b| {
        (a.in_use != Some(true), &a.touched).cmp(&(b.in_use != Some(true), &b.touched))
    });
    let mut waves = waves(planned);
    let secrets = secret_changes(planned);
    let more_waves = waves.len().saturating_sub(MAX_LIST_ITEMS);
    waves.truncate(MAX_LIST_ITEMS);
    let removed = &planned.projection.removed;
    let is_up = |state: Progress<'_>, id: &NoderoleId| {
        state(StepId::run_of(*id)) == Some(StepState::Active)
    };
    let (undone, left) = removed_noderoles(planned, &names);
    Impact {
        nodes: nodes(planned),
        undone: undone.into(),
        left_in_place: left.into(),
        starts: starts.into(),
        interrupted: progress
            .map(|_| restarts.iter().filter(|restart| restart.in_use == Some(true)).count()),
        restarts: restarts.into(),
        retained: affected.into(),
        lost: lost(planned, &names).into(),
        lost_in_use: progress.map(|state| removed.iter().filter(|id| is_up(state, id)).count()),
        irreversible: irreversible.into(),
        downstream: downstream(planned, progress),
        waves,
        more_waves,
        risks: risks_with_secrets(planned, &secrets),
        secrets,
    }
}

/// The removed noderoles with and without a removal step, by name. Noderoles without a run, such as
/// milestones and barriers, leave nothing on a node.
fn removed_noderoles(planned: &Planned<'_>, names: &Named<'_>) -> (Vec<Touched>, Vec<Touched>) {
    let mut undone: Vec<Touched> =
        planned.projection.removals.iter().filter_map(|step| names.touched(step)).collect();
    let runs: BTreeSet<NoderoleId> = undone.iter().map(|touched| touched.id).collect();
    let gone: BTreeSet<NoderoleId> = planned.projection.removed.iter().copied().collect();
    let mut left = Vec::new();
    for node in &planned.difference.nodes {
        let Some(stored) = planned.old.nodes.get(&node.id) else { continue };
        for (key, noderole) in &stored.doc.noderoles {
            let id = key.id(node.id);
            let is_immediate =
                planned.catalog.role(noderole.role).is_ok_and(|role| role.is_immediate());
            if !gone.contains(&id) || runs.contains(&id) || is_immediate {
                continue;
            }
            let Some((fqdn, deployment)) =
                names.fqdn(node.id).zip(names.deployment(noderole.deployment))
            else {
                continue;
            };
            left.push(Touched { noderole: key.clone(), fqdn, deployment, id });
        }
    }
    undone.sort();
    left.sort();
    (undone, left)
}

/// Steps that have a place in the order of the change: those that run, and removal steps.
fn ordered(projection: &Projection) -> impl Iterator<Item = &StepIntent> + Clone {
    projection.removals.iter().chain(running(projection))
}

/// Steps that run because of the change, without removal steps.
pub fn running(projection: &Projection) -> impl Iterator<Item = &StepIntent> + Clone {
    projection.steps.iter().filter(|step| step.change != StepChange::Keep)
}

/// Steps whose intent changes but whose role keeps their progress.
pub fn unchanged_progress<'a>(planned: &Planned<'a>) -> impl Iterator<Item = &'a StepIntent> {
    let planned = *planned;
    let stays = planned.projection.steps.iter().filter(|step| step.change == StepChange::Keep);
    stays.filter(move |step| has_changed_intent(&planned, step))
}

/// The reason that a person gave for the re-run of a step.
pub fn reason<'e>(effects: &'e Effects, step: &StepIntent) -> Option<&'e str> {
    let found =
        effects.reruns.iter().find(|rerun| rerun.node == step.node && rerun.noderole == step.key);
    found.map(|rerun| rerun.reason.as_str())
}

/// Whether the reviewed intent of a step changes.
fn has_changed_intent(planned: &Planned<'_>, step: &StepIntent) -> bool {
    let intent = |blueprint: &'_ Blueprint| {
        let (_, noderole) = blueprint.noderole(step.node, &step.key)?;
        let deployment = blueprint.deployments.get(&noderole.deployment);
        let of_role = deployment
            .and_then(|found| found.doc.roles.get(&step.key.role))
            .map(|role| role.data.clone());
        let of_role = of_role.unwrap_or_else(|| serde_json::json!({}));
        Some((noderole.role, noderole.data.clone(), of_role))
    };
    intent(planned.old) != intent(planned.new)
}

/// Whether a step gets a destructive role although this change does not run it. Its next run, or
/// its first, is then destructive.
fn becomes_destructive(planned: &Planned<'_>, step: &StepIntent) -> bool {
    let before = planned.old.noderole(step.node, &step.key).map(|(_, noderole)| noderole.role);
    step.destructive && before.is_some_and(|role| role != step.role)
}

/// The risk classes of a change. Policies may require more approvals for them. If a change cannot
/// be undone, the console asks the person to type a name.
pub fn risks(planned: &Planned<'_>) -> BTreeSet<Risk> {
    risks_with_secrets(planned, &secret_changes(planned))
}

fn risks_with_secrets(planned: &Planned<'_>, secrets: &[SecretChange]) -> BTreeSet<Risk> {
    let mut risks = BTreeSet::new();
    if planned.projection.steps.iter().any(|step| becomes_destructive(planned, step)) {
        risks.insert(Risk::Destructive);
    }
    for step in running(planned.projection) {
        if step.destructive {
            risks.insert(Risk::Destructive);
        }
        if matches!(step.change, StepChange::Rerun(_)) {
            risks.insert(Risk::Rerun);
        }
    }
    let goes =
        planned.difference.deployments.iter().any(|deployment| deployment.mark == Mark::Removed);
    if goes || !planned.projection.removed.is_empty() || !planned.effects.expunged.is_empty() {
        risks.insert(Risk::Removal);
    }
    let requested = planned.effects.moved.iter().map(|moved| (moved.from, moved.to));
    let seen = planned
        .difference
        .nodes
        .iter()
        .filter_map(|node| node.moved)
        .filter_map(|sides| sides.old.zip(sides.new));
    // Permissions and signature rules follow from the ancestors of a deployment, so every move of
    // one counts.
    let other_parent = planned
        .difference
        .deployments
        .iter()
        .any(|deployment| deployment.mark == Mark::Changed && deployment.parent.is_some());
    if other_parent || requested.chain(seen).any(|(from, to)| !planned.new.is_within(to, from)) {
        risks.insert(Risk::Move);
    }
    let changes_connection =
        |node: &NodeDifference| node.mark == Mark::Changed && node.connection.is_some();
    if planned.difference.nodes.iter().any(changes_connection) {
        risks.insert(Risk::Connection);
    }
    let switched =
        planned.difference.deployments.iter().flat_map(|deployment| &deployment.inactive_jigs);
    if switched.into_iter().any(|jig| jig.mark == Mark::Added) {
        risks.insert(Risk::Halt);
    }
    if secrets.iter().any(SecretChange::is_new_to_runs) {
        risks.insert(Risk::Secret);
    }
    risks
}

struct Named<'a>(&'a Planned<'a>);

impl Named<'_> {
    fn deployment(&self, id: DeploymentId) -> Option<DeploymentName> {
        let Planned { old, new, .. } = self.0;
        new.deployments.get(&id).or_else(|| old.deployments.get(&id)).map(|d| d.doc.name.clone())
    }

    fn fqdn(&self, id: NodeId) -> Option<Fqdn> {
        let Planned { old, new, .. } = self.0;
        new.nodes.get(&id).or_else(|| old.nodes.get(&id)).map(|n| n.doc.fqdn.clone())
    }

    fn touched(&self, step: &StepIntent) -> Option<Touched> {
        Some(Touched {
            noderole: step.key.clone(),
            fqdn: self.fqdn(step.node)?,
            deployment: self.deployment(step.deployment)?,
            id: step.noderole,
        })
    }
}

/// The losses, the most severe first, because a long list is cut at its end.
fn lost(planned: &Planned<'_>, names: &Named<'_>) -> Vec<Loss> {
    let difference = planned.difference;
    let mut lost = Vec::new();
    for deployment in &difference.deployments {
        if deployment.mark == Mark::Removed {
            lost.push(Loss::Deployment { name: deployment.name.clone() });
            continue;
        }
        lost.extend(
            deployment
                .barclamps
                .iter()
                .flat_map(|pin| removed_from(planned, deployment, &pin.barclamp)),
        );
        for role in &deployment.roles {
            if role.mark == Mark::Removed {
                lost.push(Loss::Role {
                    role: role.role.clone(),
                    deployment: deployment.name.clone(),
                });
            } else {
                lost.extend(dropped(format!("{} in {}", role.role, deployment.name), &role.data));
            }
        }
    }
    for node in &difference.nodes {
        // A phantom node is not a machine. If it is removed, its noderoles are listed instead.
        if node.mark == Mark::Removed && phantom::represented_deployment(&node.fqdn).is_none() {
            lost.push(Loss::Node { fqdn: node.fqdn.clone(), noderoles: node.noderoles.len() });
            continue;
        }
        for noderole in &node.noderoles {
            let fqdn = names.fqdn(node.id).unwrap_or_else(|| node.fqdn.clone());
            if noderole.mark == Mark::Removed {
                lost.push(Loss::Noderole { noderole: noderole.noderole.clone(), fqdn });
            } else {
                let node = phantom::long_name(&fqdn, |id| {
                    names.deployment(id).map(|name| name.to_string())
                });
                lost.extend(dropped(format!("{} on {node}", noderole.noderole), &noderole.data));
            }
        }
    }
    lost.sort_by_key(Loss::sort_key);
    lost
}

/// The losses from another version of a barclamp, or from its removal. Either version may be
/// inherited from an ancestor.
fn removed_from(
    planned: &Planned<'_>,
    deployment: &DeploymentDifference,
    barclamp: &BarclampName,
) -> Vec<Loss> {
    let Planned { old, new, catalog, .. } = planned;
    let Some(was) = old.visible_version(deployment.id, barclamp) else { return Vec::new() };
    let (barclamp, place) = (barclamp.clone(), deployment.name.clone());
    let Some(is) = new.visible_version(deployment.id, &barclamp) else {
        return vec![Loss::Barclamp { barclamp, deployment: place }];
    };
    let (Ok(was), Ok(is)) = (catalog.barclamp(was), catalog.barclamp(is)) else {
        return Vec::new();
    };
    // If the catalog lacks a role, the other losses are still listed. The projection reports the
    // missing role.
    let lines = compare(was, is, catalog).map(|found| found.removed_parts()).unwrap_or_default();
    let loss = |part| Loss::Content { part, barclamp: barclamp.clone(), deployment: place.clone() };
    lines.into_iter().map(loss).collect()
}

fn dropped(of: String, data: &[Change]) -> Option<Loss> {
    let gone = data.iter().filter(|change| change.kind == ChangeKind::Removed);
    let paths: Vec<String> = gone.map(|change| change.path.clone()).collect();
    (!paths.is_empty()).then_some(Loss::Data { of, paths })
}

/// The number of nodes where a step runs or a noderole is removed, without phantom nodes.
fn nodes(planned: &Planned<'_>) -> usize {
    let goes = planned.difference.nodes.iter().filter(|node| {
        node.mark == Mark::Removed
            || node.noderoles.iter().any(|noderole| noderole.mark == Mark::Removed)
    });
    let mut all: BTreeSet<NodeId> =
        running(planned.projection).map(|step| step.node).chain(goes.map(|node| node.id)).collect();
    let is_phantom = |id: &NodeId| {
        let stored = planned.new.nodes.get(id).or_else(|| planned.old.nodes.get(id));
        stored.is_some_and(|stored| stored.doc.phantom)
    };
    all.retain(|id| !is_phantom(id));
    all.len()
}

/// A noderole with its node.
type NoderoleOnNode<'a> = (NodeId, &'a NoderoleKey, &'a NoderoleDoc);

/// The noderoles that depend on others that run again or are removed, or whose parents change, and
/// do not run themselves. They depend via hard edges, over any number of hops. Parents come before
/// children. Noderoles without a run are not listed.
pub fn below<'a>(planned: &Planned<'a>) -> Vec<NoderoleOnNode<'a>> {
    let again = running(planned.projection)
        .filter(|step| step.change != StepChange::New)
        .map(|step| step.noderole);
    let mut upstream: BTreeSet<NoderoleId> =
        again.chain(planned.projection.removed.iter().copied()).collect();
    let rewired: BTreeSet<NoderoleId> = planned
        .projection
        .steps
        .iter()
        .filter(|step| step.change == StepChange::Keep && has_other_parents(planned, step))
        .map(|step| step.noderole)
        .collect();
    if upstream.is_empty() && rewired.is_empty() {
        return Vec::new();
    }
    let own: BTreeSet<NoderoleId> = running(planned.projection).map(|step| step.noderole).collect();
    let mut by_rank: BTreeMap<u32, Vec<NoderoleOnNode<'a>>> = BTreeMap::new();
    for (id, stored) in &planned.new.nodes {
        for (key, noderole) in
            stored.doc.noderoles.iter().filter(|(_, noderole)| !noderole.parents.is_empty())
        {
            by_rank.entry(noderole.rank).or_default().push((*id, key, noderole));
        }
    }
    let is_immediate = |noderole: &NoderoleDoc| {
        planned.catalog.role(noderole.role).is_ok_and(|role| role.is_immediate())
    };
    // Ranks rise along edges, so one pass meets every parent before its children.
    let mut found = Vec::new();
    for (node, key, noderole) in by_rank.into_values().flatten() {
        let depends =
            |edge: &EdgeDoc| edge.kind == EdgeKind::Hard && upstream.contains(&edge.parent);
        let id = key.id(node);
        if !noderole.parents.iter().any(depends) && !rewired.contains(&id) {
            continue;
        }
        upstream.insert(id);
        if !own.contains(&id) && !is_immediate(noderole) {
            found.push((node, key, noderole));
        }
    }
    found
}

fn has_other_parents(planned: &Planned<'_>, step: &StepIntent) -> bool {
    let parents = |blueprint: &Blueprint| {
        blueprint.noderole(step.node, &step.key).map(|(_, noderole)| noderole.parents.clone())
    };
    parents(planned.old) != parents(planned.new)
}

fn downstream(planned: &Planned<'_>, progress: Option<Progress<'_>>) -> Vec<Downstream> {
    let names = Named(planned);
    let mut found: BTreeMap<(DeploymentName, OnInput), (Vec<Touched>, usize)> = BTreeMap::new();
    for (node, key, noderole) in below(planned) {
        let id = key.id(node);
        let Some((deployment, fqdn)) = names.deployment(noderole.deployment).zip(names.fqdn(node))
        else {
            continue;
        };
        let step = StepId::run_of(id);
        let on_input = planned
            .catalog
            .role(noderole.role)
            .map_or_else(|_| OnInput::default(), |role| role.on_changed_input());
        let (touched, in_use) = found.entry((deployment.clone(), on_input)).or_default();
        *in_use +=
            usize::from(progress.is_some_and(|state| state(step) == Some(StepState::Active)));
        touched.push(Touched { noderole: key.clone(), fqdn, deployment, id });
    }
    let groups = found.into_iter().map(|((deployment, on_input), (mut noderoles, in_use))| {
        noderoles.sort();
        let in_use = progress.map(|_| in_use);
        Downstream { deployment, on_input, noderoles: noderoles.into(), in_use }
    });
    groups.collect()
}

/// The wave of each step that runs.
pub fn placed(projection: &Projection) -> BTreeMap<StepId, u32> {
    order(projection).into_iter().map(|(step, place)| (step, place.wave)).collect()
}

/// The position of a step in the order.
#[derive(Debug, Clone, Copy)]
struct WavePosition {
    wave: u32,
    /// Whether it runs later than its parents allow, because its node is busy.
    queued: bool,
}

fn order(projection: &Projection) -> BTreeMap<StepId, WavePosition> {
    let mut placed: BTreeMap<StepId, WavePosition> = BTreeMap::new();
    let instants: BTreeSet<StepId> =
        ordered(projection).filter(|step| step.immediate).map(|step| step.id).collect();
    let mut taken: BTreeSet<(NodeId, u32)> = BTreeSet::new();
    // Parents come before children.
    for step in ordered(projection) {
        let waits = step
            .parents
            .iter()
            .filter_map(|(parent, _)| placed.get(parent))
            .map(|at| at.wave)
            .max()
            .unwrap_or(0);
        if instants.contains(&step.id) {
            placed.insert(step.id, WavePosition { wave: waits, queued: false });
            continue;
        }
        let mut wave = waits + 1;
        while step.run.exclusive && !taken.insert((step.node, wave)) {
            wave += 1;
        }
        placed.insert(step.id, WavePosition { wave, queued: wave > waits + 1 });
    }
    placed
}

/// A role's steps in a wave, before the lists are cut.
struct Gathered<'a> {
    group: WaveGroup,
    nodes: BTreeSet<Fqdn>,
    after: BTreeMap<(&'a RoleName, DeploymentId), u32>,
}

/// Whether the steps are immediate, their role, deployment and action.
type GroupKey<'a> = (bool, &'a RoleName, DeploymentId, &'a ActionName);

fn waves(planned: &Planned<'_>) -> Vec<Wave> {
    let names = Named(planned);
    let placed = order(planned.projection);
    let by_id: BTreeMap<StepId, &StepIntent> =
        ordered(planned.projection).map(|step| (step.id, step)).collect();
    let mut waves: BTreeMap<u32, BTreeMap<GroupKey<'_>, Gathered<'_>>> = BTreeMap::new();
    for step in ordered(planned.projection) {
        let Some((place, deployment)) = placed.get(&step.id).zip(names.deployment(step.deployment))
        else {
            continue;
        };
        let key = (step.immediate, &step.key.role, step.deployment, &step.action);
        let gathered =
            waves.entry(place.wave).or_default().entry(key).or_insert_with(|| Gathered {
                group: group(step, deployment),
                nodes: BTreeSet::new(),
                after: BTreeMap::new(),
            });
        gathered.group.nodes += 1;
        gathered.group.at_once = step.concurrency_group.max_running;
        gathered.group.queued += usize::from(place.queued);
        gathered.nodes.extend(names.fqdn(step.node));
        if gathered.nodes.len() > NAMED {
            gathered.nodes.pop_last();
        }
        for parent in step.parents.iter().filter_map(|(parent, _)| by_id.get(parent)) {
            let wave = placed.get(&parent.id).map_or(0, |at| at.wave);
            let last = gathered.after.entry((&parent.key.role, parent.deployment)).or_default();
            *last = wave.max(*last);
        }
    }
    let wave = |(number, groups): (u32, BTreeMap<_, Gathered<'_>>)| {
        let mut groups: Vec<WaveGroup> =
            groups.into_values().map(|gathered| bounded(gathered, &names)).collect();
        groups.sort_by(|a, b| {
            (a.immediate, &a.role, &a.deployment, &a.action).cmp(&(
                b.immediate,
                &b.role,
                &b.deployment,
                &b.action,
            ))
        });
        let of = |immediate: bool| {
            groups.iter().filter(|g| g.immediate == immediate).map(|g| g.nodes).sum()
        };
        Wave { number, runs: of(false), immediate: of(true), groups }
    };
    waves.into_iter().map(wave).collect()
}

fn group(step: &StepIntent, deployment: DeploymentName) -> WaveGroup {
    WaveGroup {
        role: step.key.role.clone(),
        deployment,
        nodes: 0,
        at_once: None,
        in_chunks: step.concurrency_group.mode == ConcurrencyGroupMode::Chunk,
        immediate: step.immediate,
        action: step.action.clone(),
        destructive: step.destructive,
        first: Vec::new(),
        after: Counted::default(),
        queued: 0,
    }
}

fn bounded(gathered: Gathered<'_>, names: &Named<'_>) -> WaveGroup {
    let Gathered { mut group, nodes, after } = gathered;
    // A limit that the wave does not reach has no effect.
    group.at_once = group
        .at_once
        .filter(|limit| usize::try_from(*limit).is_ok_and(|limit| limit < group.nodes));
    group.in_chunks &= group.at_once.is_some();
    group.first = nodes.into_iter().collect();
    let dependency = |((role, deployment), wave): ((&RoleName, DeploymentId), u32)| {
        Some(WaveDependency { wave, role: role.clone(), deployment: names.deployment(deployment)? })
    };
    let mut after: Vec<WaveDependency> = after.into_iter().filter_map(dependency).collect();
    after.sort_by(|a, b| b.wave.cmp(&a.wave).then_with(|| a.cmp(b)));
    group.after = Counted::up_to(NAMED, after);
    group
}
