//! What a change leads to: what people want to know before they let it pass.
//!
//! The difference says what is written down otherwise; this says what happens: what starts, what runs again, what is lost, what
//! can't be undone, who stands downstream, and in which order it goes. All of it follows from the two blueprints and what projects
//! between them, so the page, the command line and the gate never disagree. Where states of steps are given, it says besides what
//! of it is in use at this moment; that part grows old, so no decision rests upon it.
//!
//! ## Waves
//!
//! A wave holds what can run at the same time at best. A step stands one wave after the last of those that it waits for and that
//! run too, and on one node no two exclusive steps share a wave. Instant steps run nowhere: they hold as soon as the wave that
//! they wait for has ended, so they count with that wave, apart; wave 0 has those that wait for nothing. Lanes don't move steps to
//! later waves (a lane of 5 over 1,000 nodes would make 200 of them): a wave says how many of its steps go at once instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::difference::{DeploymentDifference, Difference, Mark, NodeDifference};
use super::projection::{Projection, RerunCause, StepChange, StepIntent};
use super::secret_uses::{SecretChange, secret_changes};
use crate::anneal::StepState;
use crate::catalog::version::compare;
use crate::catalog::{Catalog, LaneMode};
use crate::cluster::{Blueprint, EdgeDoc, EdgeKind, NoderoleDoc, NoderoleKey, phantom};
use crate::data::{Change, ChangeKind};
use crate::gate::Risk;
use crate::ids::{
    ActionName, BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, RoleName,
    StepId,
};
use crate::plan::Effects;
use crate::plan::base::is_below;

/// What is listed by name in one place; beyond that it is counted.
pub const LISTED: usize = 200;
/// Nodes that a role's part of a wave names, and roles that it waits for; beyond that they are counted.
pub const NAMED: usize = 24;

/// A change, as far as planning took it.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// What is meant now.
    pub old: &'a Blueprint,
    /// What would be meant.
    pub new: &'a Blueprint,
    /// In what they differ.
    pub difference: &'a Difference,
    /// What that means for steps.
    pub projection: &'a Projection,
    /// What the edits come to; nothing when two targets are compared.
    pub effects: &'a Effects,
    /// Everything that pins name.
    pub catalog: &'a Catalog,
}

/// The state that a step is in now; None: it has none.
pub type Progress<'a> = &'a dyn Fn(StepId) -> Option<StepState>;

/// A noderole that something happens to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Touched {
    /// Its role and instance.
    pub noderole: NoderoleKey,
    /// Its node's name.
    pub fqdn: Fqdn,
    /// The deployment that it is bound in.
    pub deployment: DeploymentName,
    /// Which.
    pub id: NoderoleId,
}

/// `app on n1`.
impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a phantom carries is bound in the deployment that it stands for.
        write!(
            f,
            "{} on {}",
            self.noderole,
            phantom::called(&self.fqdn, |_| Some(self.deployment.to_string()))
        )
    }
}

/// A noderole that runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restart {
    /// Which.
    #[serde(flatten)]
    pub touched: Touched,
    /// Because of what.
    pub cause: RerunCause,
    /// The reason that a person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is ACTIVE now, so that something that works is interrupted. None: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<bool>,
}

/// Something that is gone afterwards. The kinds stand in the order in which they are told, the gravest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Loss {
    /// All intent for a node.
    Node {
        /// Its name.
        fqdn: Fqdn,
        /// Noderoles that go with it.
        noderoles: usize,
    },
    /// A deployment.
    Deployment {
        /// Its name.
        name: DeploymentName,
    },
    /// A role that can't be bound any more.
    Role {
        /// Which.
        role: RoleName,
        /// Where.
        deployment: DeploymentName,
    },
    /// A barclamp that is not in use any more.
    Barclamp {
        /// Which.
        barclamp: BarclampName,
        /// Where.
        deployment: DeploymentName,
    },
    /// A noderole of a node that stays.
    Noderole {
        /// Which.
        noderole: NoderoleKey,
        /// Its node's name.
        fqdn: Fqdn,
    },
    /// What a version of a barclamp had and the one in its place has not.
    Content {
        /// What, as [`disappeared`](crate::catalog::version::VersionDifference::disappeared) says it: `script 10-cut.sh of role saw`.
        what: String,
        /// Of which barclamp.
        barclamp: BarclampName,
        /// Where.
        deployment: DeploymentName,
    },
    /// Reviewed values.
    Data {
        /// Of what: `app in web`, `app on n1.example.com`.
        of: String,
        /// JSON pointers.
        paths: Vec<String>,
    },
}

impl Loss {
    /// Its place among others.
    fn grade(&self) -> u8 {
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

/// Noderoles of a deployment that stand downstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Downstream {
    /// Where.
    pub deployment: DeploymentName,
    /// Which.
    #[serde(flatten)]
    pub noderoles: Counted<Touched>,
    /// How many of them are ACTIVE now. None: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<usize>,
}

/// What can run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wave {
    /// From 1; 0 has instant steps alone.
    pub number: u32,
    /// By role and deployment, in the order of names; instant ones last.
    pub groups: Vec<WaveGroup>,
    /// Steps that run.
    pub runs: usize,
    /// Steps that hold as soon as those have ended.
    pub instants: usize,
}

/// A role's steps in a wave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaveGroup {
    /// Which role.
    pub role: RoleName,
    /// Where it is bound.
    pub deployment: DeploymentName,
    /// On how many nodes; 1 where it stands for its deployment ([`WaveGroup::is_whole`]).
    pub nodes: usize,
    /// How many of them go at once; None: all.
    pub at_once: Option<u32>,
    /// Whether the next ones start when all of the last have ended.
    pub in_chunks: bool,
    /// Whether they run nowhere.
    pub instant: bool,
    /// Whether they lose data.
    pub destructive: bool,
    /// The first of the nodes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<Fqdn>,
    /// What they wait for of all that runs in the same change, the last to end first.
    #[serde(default)]
    pub after: Counted<Awaited>,
    /// How many of them wait for nothing but their node, which runs one at a time.
    #[serde(default)]
    pub queued: usize,
}

impl WaveGroup {
    /// Whether it stands for its deployment as a whole, and is on no node that anybody has.
    pub fn is_whole(&self) -> bool {
        self.first.first().is_some_and(|fqdn| phantom::stands_for(fqdn).is_some())
    }
}

/// A role's steps that others wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Awaited {
    /// The last wave in which they are.
    pub wave: u32,
    /// Which role.
    pub role: RoleName,
    /// Where it is bound.
    pub deployment: DeploymentName,
}

/// A list that may be long: all of it counted, the first [`LISTED`] there. The difference has every one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Counted{T}"))]
pub struct Counted<T> {
    /// How many there are.
    pub count: usize,
    /// The first of them.
    pub first: Vec<T>,
}

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self { count: 0, first: Vec::new() }
    }
}

impl<T> From<Vec<T>> for Counted<T> {
    fn from(all: Vec<T>) -> Self {
        Self::up_to(LISTED, all)
    }
}

impl<T> Counted<T> {
    pub(super) fn up_to(most: usize, mut all: Vec<T>) -> Self {
        let count = all.len();
        all.truncate(most);
        Self { count, first: all }
    }

    /// How many are counted and not there.
    pub fn more(&self) -> usize {
        self.count - self.first.len()
    }
}

/// What a change leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Consequences {
    /// How many nodes something happens on: a step runs there, or a noderole goes. What stands for a deployment is none.
    #[serde(default)]
    pub nodes: usize,
    /// What runs for the first time, by name.
    pub starts: Counted<Touched>,
    /// What runs again, by name.
    pub restarts: Counted<Restart>,
    /// What gets another content or other data and does not run because of it, as its role says (`on-change: keep`): what is applied
    /// stays, and its next run, which this change does not ask for, takes the new. Where states are given only what is ACTIVE: a
    /// run that is due takes the new with it. Where nobody looked all of them, so that some may have nothing applied yet.
    #[serde(default)]
    pub kept: Counted<Touched>,
    /// How many of those that run again are ACTIVE now: they are interrupted. None: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<usize>,
    /// What is gone afterwards, the gravest first.
    pub lost: Counted<Loss>,
    /// How many of the noderoles that go are ACTIVE now. None: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_in_use: Option<usize>,
    /// What loses data when it runs: no later change brings that back.
    pub irreversible: Counted<Touched>,
    /// Who depends on what runs again or goes, and does not run itself; by deployment.
    pub downstream: Vec<Downstream>,
    /// The order; at most [`LISTED`] waves.
    pub waves: Vec<Wave>,
    /// Waves behind those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_waves: usize,
    /// Every use of a secret that it adds, replaces or removes.
    #[serde(default)]
    pub secrets: Vec<SecretChange>,
    /// What makes it riskier than others.
    pub risks: BTreeSet<Risk>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks like this")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Consequences {
    /// In how many waves it runs, those that are not listed too. What holds at once (wave 0) runs nowhere and is none of them.
    pub fn waves_in_all(&self) -> usize {
        self.waves.iter().filter(|wave| wave.number > 0).count() + self.more_waves
    }
}

/// What a change leads to.
pub fn consequences(planned: &Planned<'_>, progress: Option<Progress<'_>>) -> Consequences {
    let names = Named(planned);
    let mut starts = Vec::new();
    let mut restarts = Vec::new();
    let mut irreversible = Vec::new();
    let mut kept = Vec::new();
    for step in self::kept(planned) {
        let is_applied = progress.is_none_or(|state| state(step.id) == Some(StepState::Active));
        kept.extend(names.touched(step).filter(|_| is_applied));
    }
    for step in planned.projection.steps.iter().filter(|step| step.change == StepChange::Keep) {
        irreversible.extend(names.touched(step).filter(|_| becomes_destructive(planned, step)));
    }
    // As `reason`, but found by key: a slice of 20,000 steps would be looked through 20,000 times.
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
            StepChange::Rerun(cause) => restarts.push(Restart {
                cause,
                reason: reasons.get(&(step.node, &step.key)).map(|reason| (*reason).clone()),
                in_use: progress.map(|state| state(step.id) == Some(StepState::Active)),
                touched,
            }),
            StepChange::New | StepChange::Keep => starts.push(touched),
        }
    }
    kept.sort();
    starts.sort();
    irreversible.sort();
    // What is interrupted stands first: of a long list that is what must not be left out.
    restarts.sort_by(|a, b| {
        (a.in_use != Some(true), &a.touched).cmp(&(b.in_use != Some(true), &b.touched))
    });
    let mut waves = waves(planned);
    let secrets = secret_changes(planned);
    let more_waves = waves.len().saturating_sub(LISTED);
    waves.truncate(LISTED);
    let removed = &planned.projection.removed;
    let is_up = |state: Progress<'_>, id: &NoderoleId| {
        state(StepId::of(*id, &ActionName::run())) == Some(StepState::Active)
    };
    Consequences {
        nodes: nodes(planned),
        starts: starts.into(),
        interrupted: progress
            .map(|_| restarts.iter().filter(|restart| restart.in_use == Some(true)).count()),
        restarts: restarts.into(),
        kept: kept.into(),
        lost: lost(planned, &names).into(),
        lost_in_use: progress.map(|state| removed.iter().filter(|id| is_up(state, id)).count()),
        irreversible: irreversible.into(),
        downstream: downstream(planned, progress),
        waves,
        more_waves,
        risks: risks_with(planned, &secrets),
        secrets,
    }
}

/// Steps that run because of the change.
pub fn running(projection: &Projection) -> impl Iterator<Item = &StepIntent> + Clone {
    projection.steps.iter().filter(|step| step.change != StepChange::Keep)
}

/// Steps that keep their progress although they are told otherwise than before: their roles say so.
pub fn kept<'a>(planned: &Planned<'a>) -> impl Iterator<Item = &'a StepIntent> {
    let planned = *planned;
    let stays = planned.projection.steps.iter().filter(|step| step.change == StepChange::Keep);
    stays.filter(move |step| is_told_otherwise(&planned, step))
}

/// The reason that a person gave for a step to run again.
pub fn reason<'e>(effects: &'e Effects, step: &StepIntent) -> Option<&'e str> {
    let found =
        effects.reruns.iter().find(|rerun| rerun.node == step.node && rerun.noderole == step.key);
    found.map(|rerun| rerun.reason.as_str())
}

/// Whether reviewed intent tells a step something else than before.
fn is_told_otherwise(planned: &Planned<'_>, step: &StepIntent) -> bool {
    let told = |blueprint: &'_ Blueprint| {
        let (_, noderole) = blueprint.noderole(step.node, &step.key)?;
        let deployment = blueprint.deployments.get(&noderole.deployment);
        let of_role = deployment
            .and_then(|found| found.doc.roles.get(&step.key.role))
            .map(|role| role.data.clone());
        let of_role = of_role.unwrap_or_else(|| serde_json::json!({}));
        Some((noderole.role, noderole.data.clone(), of_role))
    };
    told(planned.old) != told(planned.new)
}

/// Whether a step gets a role that destroys, although nothing runs because of it: what has not run yet, or runs again some day, will.
fn becomes_destructive(planned: &Planned<'_>, step: &StepIntent) -> bool {
    let before = planned.old.noderole(step.node, &step.key).map(|(_, noderole)| noderole.role);
    step.destructive && before.is_some_and(|role| role != step.role)
}

/// What makes a change riskier than others. Policies ask more approvals for it, and pages a typed name where it can't be undone.
pub fn risks(planned: &Planned<'_>) -> BTreeSet<Risk> {
    risks_with(planned, &secret_changes(planned))
}

fn risks_with(planned: &Planned<'_>, secrets: &[SecretChange]) -> BTreeSet<Risk> {
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
    let asked = planned.effects.moved.iter().map(|moved| (moved.from, moved.to));
    let seen = planned
        .difference
        .nodes
        .iter()
        .filter_map(|node| node.moved)
        .filter_map(|(from, to)| from.zip(to));
    if asked.chain(seen).any(|(from, to)| !is_below(planned.new, to, from)) {
        risks.insert(Risk::Move);
    }
    let reached_otherwise =
        |node: &NodeDifference| node.mark == Mark::Changed && node.connection.is_some();
    if planned.difference.nodes.iter().any(reached_otherwise) {
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

/// What is gone, the gravest first: of a long list that is what must not be left out.
fn lost(planned: &Planned<'_>, names: &Named<'_>) -> Vec<Loss> {
    let difference = planned.difference;
    let mut lost = Vec::new();
    for deployment in &difference.deployments {
        if deployment.mark == Mark::Removed {
            lost.push(Loss::Deployment { name: deployment.name.clone() });
            continue;
        }
        lost.extend(
            deployment.barclamps.iter().flat_map(|pin| lacking(planned, deployment, &pin.barclamp)),
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
        // What stands for a deployment is no node that anybody has: what it carries goes, if anything.
        if node.mark == Mark::Removed && phantom::stands_for(&node.fqdn).is_none() {
            lost.push(Loss::Node { fqdn: node.fqdn.clone(), noderoles: node.noderoles.len() });
            continue;
        }
        for noderole in &node.noderoles {
            let fqdn = names.fqdn(node.id).unwrap_or_else(|| node.fqdn.clone());
            if noderole.mark == Mark::Removed {
                lost.push(Loss::Noderole { noderole: noderole.noderole.clone(), fqdn });
            } else {
                let node =
                    phantom::in_full(&fqdn, |id| names.deployment(id).map(|name| name.to_string()));
                lost.extend(dropped(format!("{} on {node}", noderole.noderole), &noderole.data));
            }
        }
    }
    lost.sort_by_key(Loss::grade);
    lost
}

/// What the version that a deployment had of a barclamp has, and the one in its place has not. Either may be from above.
fn lacking(
    planned: &Planned<'_>,
    deployment: &DeploymentDifference,
    barclamp: &BarclampName,
) -> Vec<Loss> {
    let Planned { old, new, catalog, .. } = planned;
    let Some(was) = old.version_in_sight(deployment.id, barclamp) else { return Vec::new() };
    let (barclamp, place) = (barclamp.clone(), deployment.name.clone());
    let Some(is) = new.version_in_sight(deployment.id, &barclamp) else {
        return vec![Loss::Barclamp { barclamp, deployment: place }];
    };
    let (Ok(was), Ok(is)) = (catalog.barclamp(was), catalog.barclamp(is)) else {
        return Vec::new();
    };
    // A catalog that lacks one of their roles is no reason to say nothing of all the rest; the projection said that it does.
    let lines = compare(was, is, catalog).map(|found| found.disappeared()).unwrap_or_default();
    let loss = |what| Loss::Content { what, barclamp: barclamp.clone(), deployment: place.clone() };
    lines.into_iter().map(loss).collect()
}

fn dropped(of: String, data: &[Change]) -> Option<Loss> {
    let gone = data.iter().filter(|change| change.kind == ChangeKind::Removed);
    let paths: Vec<String> = gone.map(|change| change.path.clone()).collect();
    (!paths.is_empty()).then_some(Loss::Data { of, paths })
}

/// How many nodes a step runs on, or lose a noderole.
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

/// A noderole with its place.
type Placed<'a> = (NodeId, &'a NoderoleKey, &'a NoderoleDoc);

/// The blast radius: everything that depends on what runs again or goes and does not run itself, over edges that carry data, however
/// far; parents before children.
pub fn below<'a>(planned: &Planned<'a>) -> Vec<Placed<'a>> {
    let again = running(planned.projection)
        .filter(|step| step.change != StepChange::New)
        .map(|step| step.noderole);
    let mut upstream: BTreeSet<NoderoleId> =
        again.chain(planned.projection.removed.iter().copied()).collect();
    if upstream.is_empty() {
        return Vec::new();
    }
    let own: BTreeSet<NoderoleId> = running(planned.projection).map(|step| step.noderole).collect();
    let mut by_rank: BTreeMap<u32, Vec<Placed<'a>>> = BTreeMap::new();
    for (id, stored) in &planned.new.nodes {
        for (key, noderole) in
            stored.doc.noderoles.iter().filter(|(_, noderole)| !noderole.parents.is_empty())
        {
            by_rank.entry(noderole.rank).or_default().push((*id, key, noderole));
        }
    }
    // Ranks rise along edges, so one pass meets every parent before its children.
    let mut found = Vec::new();
    for (node, key, noderole) in by_rank.into_values().flatten() {
        let depends =
            |edge: &EdgeDoc| edge.kind == EdgeKind::Hard && upstream.contains(&edge.parent);
        if !noderole.parents.iter().any(depends) {
            continue;
        }
        let id = key.id(node);
        upstream.insert(id);
        if !own.contains(&id) {
            found.push((node, key, noderole));
        }
    }
    found
}

fn downstream(planned: &Planned<'_>, progress: Option<Progress<'_>>) -> Vec<Downstream> {
    let names = Named(planned);
    let mut found: BTreeMap<DeploymentName, (Vec<Touched>, usize)> = BTreeMap::new();
    for (node, key, noderole) in below(planned) {
        let id = key.id(node);
        let Some((deployment, fqdn)) = names.deployment(noderole.deployment).zip(names.fqdn(node))
        else {
            continue;
        };
        let step = StepId::of(id, &ActionName::run());
        let (touched, in_use) = found.entry(deployment.clone()).or_default();
        *in_use +=
            usize::from(progress.is_some_and(|state| state(step) == Some(StepState::Active)));
        touched.push(Touched { noderole: key.clone(), fqdn, deployment, id });
    }
    let group = |(deployment, (mut noderoles, in_use)): (DeploymentName, (Vec<Touched>, usize))| {
        noderoles.sort();
        Downstream { deployment, noderoles: noderoles.into(), in_use: progress.map(|_| in_use) }
    };
    found.into_iter().map(group).collect()
}

/// The wave of each step that runs.
pub fn placed(projection: &Projection) -> BTreeMap<StepId, u32> {
    order(projection).into_iter().map(|(step, place)| (step, place.wave)).collect()
}

/// Where a step stands in the order.
#[derive(Debug, Clone, Copy)]
struct Place {
    wave: u32,
    /// Whether what it waits for would have let it run earlier, but its node was taken.
    queued: bool,
}

fn order(projection: &Projection) -> BTreeMap<StepId, Place> {
    let mut placed: BTreeMap<StepId, Place> = BTreeMap::new();
    let instants: BTreeSet<StepId> =
        running(projection).filter(|step| step.instant).map(|step| step.id).collect();
    let mut taken: BTreeSet<(NodeId, u32)> = BTreeSet::new();
    // Parents come before children.
    for step in running(projection) {
        let waits = step
            .parents
            .iter()
            .filter_map(|(parent, _)| placed.get(parent))
            .map(|at| at.wave)
            .max()
            .unwrap_or(0);
        if instants.contains(&step.id) {
            placed.insert(step.id, Place { wave: waits, queued: false });
            continue;
        }
        let mut wave = waits + 1;
        while step.run.exclusive && !taken.insert((step.node, wave)) {
            wave += 1;
        }
        placed.insert(step.id, Place { wave, queued: wave > waits + 1 });
    }
    placed
}

/// What is gathered of a role's part of a wave before it is bounded.
struct Gathered<'a> {
    group: WaveGroup,
    nodes: BTreeSet<Fqdn>,
    after: BTreeMap<(&'a RoleName, DeploymentId), u32>,
}

fn waves(planned: &Planned<'_>) -> Vec<Wave> {
    let names = Named(planned);
    let placed = order(planned.projection);
    let by_id: BTreeMap<StepId, &StepIntent> =
        running(planned.projection).map(|step| (step.id, step)).collect();
    let mut waves: BTreeMap<u32, BTreeMap<(bool, &RoleName, DeploymentId), Gathered<'_>>> =
        BTreeMap::new();
    for step in running(planned.projection) {
        let Some((place, deployment)) = placed.get(&step.id).zip(names.deployment(step.deployment))
        else {
            continue;
        };
        let key = (step.instant, &step.key.role, step.deployment);
        let gathered =
            waves.entry(place.wave).or_default().entry(key).or_insert_with(|| Gathered {
                group: group(step, deployment),
                nodes: BTreeSet::new(),
                after: BTreeMap::new(),
            });
        gathered.group.nodes += 1;
        gathered.group.at_once = step.lane.max_running;
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
            (a.instant, &a.role, &a.deployment).cmp(&(b.instant, &b.role, &b.deployment))
        });
        let of =
            |instant: bool| groups.iter().filter(|g| g.instant == instant).map(|g| g.nodes).sum();
        Wave { number, runs: of(false), instants: of(true), groups }
    };
    waves.into_iter().map(wave).collect()
}

fn group(step: &StepIntent, deployment: DeploymentName) -> WaveGroup {
    WaveGroup {
        role: step.key.role.clone(),
        deployment,
        nodes: 0,
        at_once: None,
        in_chunks: step.lane.mode == LaneMode::Chunk,
        instant: step.instant,
        destructive: step.destructive,
        first: Vec::new(),
        after: Counted::default(),
        queued: 0,
    }
}

fn bounded(gathered: Gathered<'_>, names: &Named<'_>) -> WaveGroup {
    let Gathered { mut group, nodes, after } = gathered;
    // A limit that nothing of the wave meets is none.
    group.at_once = group
        .at_once
        .filter(|limit| usize::try_from(*limit).is_ok_and(|limit| limit < group.nodes));
    group.in_chunks &= group.at_once.is_some();
    group.first = nodes.into_iter().collect();
    let awaited = |((role, deployment), wave): ((&RoleName, DeploymentId), u32)| {
        Some(Awaited { wave, role: role.clone(), deployment: names.deployment(deployment)? })
    };
    let mut after: Vec<Awaited> = after.into_iter().filter_map(awaited).collect();
    after.sort_by(|a, b| b.wave.cmp(&a.wave).then_with(|| a.cmp(b)));
    group.after = Counted::up_to(NAMED, after);
    group
}
