//! Restoring: the edits that bring a deployment back to what it was.
//!
//! History never moves back. What a deployment was at an earlier target comes back as an ordinary proposal on what is there now: this
//! finds its edits, by the rules of every other edit, so nothing is written that a person could not have asked for.
//!
//! What comes back is the [`State`] of one deployment: the versions of barclamps that it sees, its roles with their data, the noderoles
//! that are bound in it with their content and data, and the nodes that it had. What does not:
//! * what waits for what, which is planned anew: where several could serve, another may be chosen than then;
//! * how often something was asked to run again, which only ever rises;
//! * nodes that joined since: they stay, and carry nothing of the deployment. Giving them to the one above would write that one.
//! * deployments below: each is restored by itself.
//!
//! It works by goals, not by undoing what happened: what differs gives one edit each, and each is tried on the draft. Roles are bound
//! from the top down, so that what they need comes along without an edit of its own, and the same done to many nodes becomes one edit
//! that lists them: a proposal to bring back 1,000 nodes with 20 roles each has some twenty. One edit that is refused
//! is tried again once another has taken effect, for the order in which things come and go matters (a parent must be there before the one
//! it replaces goes; a version of a barclamp that lacks a role fits only once the role has gone). When no edit takes effect any more, what
//! still differs can't be brought back, and is named with the reason: a node that was given up, a role that nobody has any more, a
//! noderole that something outside of the deployment needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::bind::Rules;
use super::draft::Draft;
use super::edit::{Edit, MAX_LISTED, NumberedEdit};
use super::effects::Refusal;
use super::materialise::{BareRecords, MaterialiseError, materialise};
use super::resolve::resolve;
use crate::canonical::Hash;
use crate::catalog::{Catalog, in_sight};
use crate::cluster::{Blueprint, NoderoleKey, Skeleton, phantom};
use crate::ids::{BarclampName, DeploymentId, NodeId, NoderoleId, RoleName};

/// How often what was refused is tried again. Chains of things that wait for one another are far shorter.
const MAX_PASSES: usize = 64;

/// What restoring brings back of a deployment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// The version of each barclamp that it sees: its own, else the nearest above it.
    pub versions: BTreeMap<BarclampName, Hash>,
    /// Its roles: content and data.
    pub roles: BTreeMap<RoleName, (Hash, Value)>,
    /// What is bound in it: content and data. Barriers are left out: they come and go with what stands before them.
    pub noderoles: BTreeMap<(NodeId, NoderoleKey), (Hash, Value)>,
    /// Its machines.
    pub nodes: BTreeSet<NodeId>,
}

impl State {
    /// A deployment's state in a blueprint; None: the blueprint does not have it.
    pub fn of(blueprint: &Blueprint, catalog: &Catalog, deployment: DeploymentId) -> Option<Self> {
        let doc = &blueprint.deployments.get(&deployment)?.doc;
        let mut state = Self {
            roles: doc
                .roles
                .iter()
                .map(|(name, role)| (name.clone(), (role.role, role.data.clone())))
                .collect(),
            ..Self::default()
        };
        let sight = in_sight(blueprint.pins_from(deployment));
        state.versions.extend(sight.into_iter().map(|pin| (pin.barclamp.clone(), pin.version)));
        for (id, node) in &blueprint.nodes {
            if node.doc.deployment == deployment && !node.doc.phantom {
                state.nodes.insert(*id);
            }
            for (key, noderole) in
                node.doc.noderoles.iter().filter(|(_, n)| n.deployment == deployment)
            {
                if !is_barrier(catalog, noderole.role) {
                    state
                        .noderoles
                        .insert((*id, key.clone()), (noderole.role, noderole.data.clone()));
                }
            }
        }
        Some(state)
    }

    /// What of this state another one lacks or has beside it.
    fn lacking(&self, is: &Self) -> BTreeSet<Wanted> {
        let mut wanted = BTreeSet::new();
        let versions =
            self.versions.iter().filter(|(name, version)| is.versions.get(*name) != Some(*version));
        wanted.extend(versions.map(|(name, _)| Wanted::Version(name.clone())));
        let beside = is.versions.keys().filter(|name| !self.versions.contains_key(*name));
        wanted.extend(beside.map(|name| Wanted::WithoutBarclamp(name.clone())));
        for name in self.roles.keys().chain(is.roles.keys()) {
            match (self.roles.get(name), is.roles.get(name)) {
                (Some(was), Some(is)) if was == is => {}
                (Some(_), _) => drop(wanted.insert(Wanted::Role(name.clone()))),
                (None, _) => drop(wanted.insert(Wanted::WithoutRole(name.clone()))),
            }
        }
        for (node, key) in self.noderoles.keys().chain(is.noderoles.keys()) {
            let at = (*node, key.clone());
            match (self.noderoles.get(&at), is.noderoles.get(&at)) {
                (Some(was), Some(is)) if was == is => {}
                (Some(_), _) => drop(wanted.insert(Wanted::Noderole(*node, key.clone()))),
                (None, _) => drop(wanted.insert(Wanted::WithoutNoderole(*node, key.clone()))),
            }
        }
        wanted.extend(self.nodes.difference(&is.nodes).map(|node| Wanted::Node(*node)));
        wanted
    }
}

impl State {
    /// What an edit of restoring is for.
    fn wanted_by(&self, edit: &Edit) -> Vec<Wanted> {
        match edit {
            Edit::UseBarclamp { barclamp, .. } | Edit::InheritBarclamp { barclamp, .. } => {
                let barclamp = barclamp.clone();
                vec![match self.versions.contains_key(&barclamp) {
                    true => Wanted::Version(barclamp),
                    false => Wanted::WithoutBarclamp(barclamp),
                }]
            }
            Edit::MoveNode { node, .. } => vec![Wanted::Node(*node)],
            Edit::AddRole { role, .. } => vec![Wanted::Role(role.clone())],
            Edit::RemoveRole { role, .. } => vec![Wanted::WithoutRole(role.clone())],
            Edit::Bind { node, role, .. } => {
                vec![Wanted::Noderole(*node, NoderoleKey::first(role.clone()))]
            }
            Edit::Unbind { node, noderole, .. } => {
                vec![Wanted::WithoutNoderole(*node, noderole.clone())]
            }
            Edit::BindNodes { .. } | Edit::UnbindNodes { .. } => {
                edit.each().iter().flat_map(|single| self.wanted_by(single)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The version without which this can't be: the one of its role's barclamp. For what an edit would have brought along, or bound
    /// elsewhere than it names.
    fn version_of(&self, catalog: &Catalog, wanted: &Wanted) -> Option<Wanted> {
        let (content, _) = match wanted {
            Wanted::Role(role) => self.roles.get(role)?,
            Wanted::Noderole(node, key) => self.noderoles.get(&(*node, key.clone()))?,
            _ => return None,
        };
        Some(Wanted::Version(catalog.role(*content).ok()?.barclamp.clone()))
    }

    /// Whether a noderole of a draft was there then, in this deployment. Barriers come and go by themselves.
    fn has(&self, draft: &Draft<'_>, id: NoderoleId, deployment: DeploymentId) -> bool {
        let Some((node, key, noderole)) = draft.noderole(id) else { return false };
        let here =
            noderole.deployment == deployment && self.noderoles.contains_key(&(node, key.clone()));
        here || is_barrier(draft.catalog, noderole.role)
    }
}

fn is_barrier(catalog: &Catalog, role: Hash) -> bool {
    catalog.role(role).is_ok_and(|role| role.gathers.is_some())
}

/// A thing that has to be so for a deployment to be what it was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// The deployment sees this barclamp in the version of then.
    Version(BarclampName),
    /// It does not see this barclamp.
    WithoutBarclamp(BarclampName),
    /// The node is its.
    Node(NodeId),
    /// It has the role, with the content and data of then.
    Role(RoleName),
    /// It does not have the role.
    WithoutRole(RoleName),
    /// The noderole is bound in it, with the content and data of then.
    Noderole(NodeId, NoderoleKey),
    /// The noderole is not bound in it.
    WithoutNoderole(NodeId, NoderoleKey),
}

/// Something that can't be brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What.
    pub wanted: Wanted,
    /// The same in words: `app on n1`.
    pub what: String,
    /// Why not, in words.
    pub reason: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// How a deployment comes back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Restore {
    /// Edits on what is there now. Each takes effect.
    pub edits: Vec<Edit>,
    /// What differs from then although they took effect. Empty: nothing does.
    pub missing: Vec<Missing>,
}

/// Why there is nothing to say about restoring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It did not exist.
    #[error("the deployment was not there then: choose a later target")]
    NotThen,
    /// It does not exist.
    #[error("the deployment is not there any more: make it anew, an id never comes back")]
    NotNow,
    /// What was planned can't be written.
    #[error(transparent)]
    Materialise(#[from] MaterialiseError),
}

/// What is there now.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    /// What is meant.
    pub blueprint: &'a Blueprint,
    /// The same for planning, with the nodes that have no document yet.
    pub skeleton: &'a Skeleton,
    /// Everything that was ever imported.
    pub catalog: &'a Catalog,
    /// Records of nodes without a document.
    pub bare: BareRecords<'a>,
}

/// The edits that bring a deployment back from now to then.
///
/// # Errors
/// When the deployment is missing on either side.
pub fn restore(
    now: Now<'_>,
    then: &Blueprint,
    deployment: DeploymentId,
) -> Result<Restore, RestoreError> {
    let was = State::of(then, now.catalog, deployment).ok_or(RestoreError::NotThen)?;
    if !now.blueprint.deployments.contains_key(&deployment) {
        return Err(RestoreError::NotNow);
    }
    let mut restoring = Restoring::of(now, &was, then, deployment);
    restoring.shape();
    let Restoring { singles, refused, .. } = restoring;
    let (mut edits, mut refused) = (in_lists(&singles), refused);
    let (mut is, at_odds) = outcome(now, &edits, deployment)?;
    if !at_odds.is_empty() {
        edits = without(edits, &at_odds, &was, &mut refused);
    }
    let data = data_edits(deployment, &was, &is);
    if !data.is_empty() {
        edits.extend(data);
        is = outcome(now, &edits, deployment)?.0;
    }
    let missing = was.lacking(&is).into_iter().map(|wanted| {
        let known =
            refused.get(&wanted).or_else(|| refused.get(&was.version_of(now.catalog, &wanted)?));
        let reason = known.cloned().unwrap_or_else(|| reason(now, &wanted));
        Missing { what: in_words(now, then, &wanted), wanted, reason }
    });
    Ok(Restore { missing: missing.collect(), edits })
}

/// Only those edits that take effect, and why what the others were for can't come back. A version that is refused takes along what
/// needs it.
fn without(
    edits: Vec<Edit>,
    at_odds: &[Refusal],
    was: &State,
    refused: &mut BTreeMap<Wanted, String>,
) -> Vec<Edit> {
    let reasons: BTreeMap<u32, &String> =
        at_odds.iter().map(|refusal| (refusal.edit, &refusal.reason)).collect();
    let mut kept = Vec::new();
    for (seq, edit) in (1..).zip(edits) {
        match reasons.get(&seq) {
            None => kept.push(edit),
            Some(reason) => refused
                .extend(was.wanted_by(&edit).into_iter().map(|wanted| (wanted, (*reason).clone()))),
        }
    }
    kept
}

/// The deployment as the edits leave it, and those that the rule about their end refuses: it can't be asked while they are tried.
fn outcome(
    now: Now<'_>,
    edits: &[Edit],
    deployment: DeploymentId,
) -> Result<(State, Vec<Refusal>), RestoreError> {
    let numbered: Vec<NumberedEdit> =
        (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect();
    let effects = resolve(now.skeleton, now.catalog, &numbered);
    let new = materialise(now.blueprint, now.bare, &effects)?.blueprint;
    let state = State::of(&new, now.catalog, deployment).ok_or(RestoreError::NotNow)?;
    Ok((state, effects.refused))
}

fn data_edits(deployment: DeploymentId, was: &State, is: &State) -> Vec<Edit> {
    let differs =
        |known: Option<&(Hash, Value)>, data: &Value| known.is_some_and(|(_, known)| known != data);
    let roles =
        was.roles.iter().filter(|(role, (_, data))| differs(is.roles.get(*role), data)).map(
            |(role, (_, data))| Edit::SetRoleData {
                deployment,
                role: role.clone(),
                data: data.clone(),
            },
        );
    let noderoles =
        was.noderoles.iter().filter(|(at, (_, data))| differs(is.noderoles.get(*at), data)).map(
            |((node, noderole), (_, data))| Edit::SetNoderoleData {
                node: *node,
                noderole: noderole.clone(),
                data: data.clone(),
            },
        );
    roles.chain(noderoles).collect()
}

struct Restoring<'a> {
    deployment: DeploymentId,
    was: &'a State,
    /// For each role of then, how far up its noderoles stood.
    ranks: BTreeMap<RoleName, u32>,
    /// Noderoles of then that others waited for on other nodes.
    shared: BTreeSet<NoderoleId>,
    draft: Draft<'a>,
    /// What took effect, each for one thing.
    singles: Vec<Edit>,
    /// Why the last try was refused.
    refused: BTreeMap<Wanted, String>,
}

/// What a binding may bring along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    /// What was there then, and nothing else.
    OnlyWhatWas,
    /// Whatever comes. It is taken away again, or named.
    Anything,
}

/// A kind of thing that is not as it was, and the edits that would bring it back.
type Lacking<R> = fn(&R, Along) -> Vec<(Wanted, Edit)>;

impl<'a> Restoring<'a> {
    fn of(now: Now<'a>, was: &'a State, then: &Blueprint, deployment: DeploymentId) -> Self {
        let mut ranks: BTreeMap<RoleName, u32> = BTreeMap::new();
        for (node, key) in was.noderoles.keys() {
            let Some((_, noderole)) = then.noderole(*node, key) else { continue };
            let rank = ranks.entry(key.role.clone()).or_default();
            *rank = (*rank).max(noderole.rank);
        }
        let mut shared = BTreeSet::new();
        for (node, stored) in &then.nodes {
            let own: BTreeSet<NoderoleId> =
                stored.doc.noderoles.keys().map(|key| key.id(*node)).collect();
            let parents = stored.doc.noderoles.values().flat_map(|noderole| &noderole.parents);
            shared.extend(parents.map(|edge| edge.parent).filter(|id| !own.contains(id)));
        }
        let draft = Draft::new(now.skeleton, now.catalog, Rules::default());
        Self {
            deployment,
            was,
            ranks,
            shared,
            draft,
            singles: Vec::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Everything but data, which no rule of binding looks at.
    fn shape(&mut self) {
        for _ in 0..MAX_PASSES {
            self.refused.clear();
            if !self.pass(Along::OnlyWhatWas) && !self.pass(Along::Anything) {
                return;
            }
        }
    }

    /// Tries an edit for each thing that is not as it was, in the order in which they mostly take effect. Says whether one did.
    fn pass(&mut self, along: Along) -> bool {
        let kinds: [Lacking<Self>; 7] = [
            Self::unbinds,
            Self::versions,
            Self::moves,
            Self::roles_back,
            Self::binds,
            Self::roles_out,
            Self::out_of_use,
        ];
        let done = self.singles.len();
        for kind in kinds {
            for (wanted, edit) in kind(self, along) {
                self.attempt(wanted, edit, along);
            }
        }
        self.singles.len() > done
    }

    fn attempt(&mut self, wanted: Wanted, edit: Edit, along: Along) {
        // One that came along with another since the tries were found.
        if let Wanted::Noderole(node, key) = &wanted
            && self.draft.node(*node).is_ok_and(|carrier| carrier.noderoles.contains_key(key))
        {
            return;
        }
        let (was, deployment) = (self.was, self.deployment);
        let done = self.draft.whole(|draft| {
            let mark = draft.mark();
            // The number only says why; these edits get theirs when the proposal takes them.
            draft.apply(0, &edit).map_err(|error| error.to_string())?;
            let new = draft
                .put_since(mark)
                .find(|id| along == Along::OnlyWhatWas && !was.has(draft, *id, deployment));
            new.map_or(Ok(()), |id| {
                Err(format!("it would bring {} along, which was not there", draft.in_words(id)))
            })
        });
        match done {
            Ok(()) => {
                self.refused.remove(&wanted);
                self.singles.push(edit);
            }
            Err(reason) => drop(self.refused.insert(wanted, reason)),
        }
    }

    /// Those furthest up go first, a role's all together.
    fn unbinds(&self, _: Along) -> Vec<(Wanted, Edit)> {
        let mut ranks: BTreeMap<&RoleName, u32> = BTreeMap::new();
        let mut beside = Vec::new();
        for (node, carrier) in self.draft.nodes() {
            for (key, noderole) in
                carrier.noderoles.iter().filter(|(_, n)| n.deployment == self.deployment)
            {
                let known = self.was.noderoles.contains_key(&(node, key.clone()));
                if !known && !is_barrier(self.draft.catalog, noderole.role) {
                    let rank = ranks.entry(&key.role).or_default();
                    *rank = (*rank).max(noderole.rank);
                    beside.push((key, node));
                }
            }
        }
        beside.sort_by_key(|(key, node)| (Reverse(ranks.get(&key.role)), *key, *node));
        let edit = |key: &NoderoleKey, node| Edit::Unbind {
            node,
            noderole: key.clone(),
            with_dependents: false,
        };
        beside
            .into_iter()
            .map(|(key, node)| (Wanted::WithoutNoderole(node, key.clone()), edit(key, node)))
            .collect()
    }

    fn versions(&self, _: Along) -> Vec<(Wanted, Edit)> {
        let deployment = self.deployment;
        let seen = |barclamp: &BarclampName| self.draft.version_in_sight(deployment, barclamp);
        let other = self
            .was
            .versions
            .iter()
            .filter(|(barclamp, version)| seen(barclamp) != Some(**version));
        let edit = |barclamp: &BarclampName, version: Hash| match self.version_above(barclamp)
            == Some(version)
        {
            true => Edit::InheritBarclamp { deployment, barclamp: barclamp.clone() },
            false => Edit::UseBarclamp { deployment, barclamp: barclamp.clone(), version },
        };
        other
            .map(|(barclamp, version)| {
                (Wanted::Version(barclamp.clone()), edit(barclamp, *version))
            })
            .collect()
    }

    /// The version that the deployment would have without its own.
    fn version_above(&self, barclamp: &BarclampName) -> Option<Hash> {
        let above = self.draft.deployment(self.deployment).ok()?.parent?;
        self.draft.version_in_sight(above, barclamp)
    }

    /// Barclamps that were not there then, of versions that the deployment has of its own. One from above is that one's affair.
    fn out_of_use(&self, _: Along) -> Vec<(Wanted, Edit)> {
        let Ok(here) = self.draft.deployment(self.deployment) else { return Vec::new() };
        let beside =
            here.barclamps.keys().filter(|barclamp| !self.was.versions.contains_key(*barclamp));
        let edit = |barclamp: &BarclampName| Edit::InheritBarclamp {
            deployment: self.deployment,
            barclamp: barclamp.clone(),
        };
        let beside = beside.filter(|barclamp| self.version_above(barclamp).is_none());
        beside.map(|barclamp| (Wanted::WithoutBarclamp(barclamp.clone()), edit(barclamp))).collect()
    }

    fn moves(&self, _: Along) -> Vec<(Wanted, Edit)> {
        let deployment = self.deployment;
        let away =
            |id: &&NodeId| self.draft.node(**id).is_ok_and(|node| node.deployment != deployment);
        let edit = |node| (Wanted::Node(node), Edit::MoveNode { node, deployment });
        self.was.nodes.iter().filter(away).map(|id| edit(*id)).collect()
    }

    fn roles_back(&self, _: Along) -> Vec<(Wanted, Edit)> {
        let Ok(here) = self.draft.deployment(self.deployment) else { return Vec::new() };
        let gone = self.was.roles.keys().filter(|role| !here.roles.contains_key(*role));
        let edit =
            |role: &RoleName| Edit::AddRole { deployment: self.deployment, role: role.clone() };
        gone.map(|role| (Wanted::Role(role.clone()), edit(role))).collect()
    }

    fn roles_out(&self, _: Along) -> Vec<(Wanted, Edit)> {
        let Ok(here) = self.draft.deployment(self.deployment) else { return Vec::new() };
        let beside = here.roles.keys().filter(|role| !self.was.roles.contains_key(*role));
        let edit =
            |role: &RoleName| Edit::RemoveRole { deployment: self.deployment, role: role.clone() };
        beside.map(|role| (Wanted::WithoutRole(role.clone()), edit(role))).collect()
    }

    /// What others waited for on other nodes comes first, from the bottom up: else something else would come along in its place. Then
    /// roles from the top down, as each brings along what stood below it; from the bottom up where that brings what was not there. Only
    /// a role's first instance can be bound.
    fn binds(&self, along: Along) -> Vec<(Wanted, Edit)> {
        let mut gone = Vec::new();
        for (node, key) in self.was.noderoles.keys().filter(|(_, key)| key.instance == 0) {
            let Ok(carrier) = self.draft.node(*node) else { continue };
            if carrier.noderoles.contains_key(key) {
                continue;
            }
            let Some(asked) = self.asked_on(*node, carrier.phantom) else { continue };
            let rank = i64::from(self.ranks.get(&key.role).copied().unwrap_or_default());
            let shared = self.shared.contains(&key.id(*node));
            let up = shared || along == Along::Anything;
            gone.push((!shared, if up { rank } else { -rank }, key, asked, *node));
        }
        gone.sort();
        let edit = |node, role| Edit::Bind { deployment: self.deployment, node, role };
        gone.into_iter()
            .map(|(_, _, key, asked, node)| {
                (Wanted::Noderole(node, key.clone()), edit(asked, key.role.clone()))
            })
            .collect()
    }

    /// The machine that a binding names: a service is asked for on any, and stands on the phantom node.
    fn asked_on(&self, node: NodeId, phantom: bool) -> Option<NodeId> {
        if !phantom {
            return Some(node);
        }
        let mine = self.draft.chain(self.deployment);
        let fits = |at: DeploymentId| {
            mine.contains(&at) || self.draft.chain(at).contains(&self.deployment)
        };
        self.draft
            .nodes()
            .find(|(_, found)| !found.phantom && fits(found.deployment))
            .map(|(id, _)| id)
    }
}

/// The same edits with runs of bindings and unbindings as lists. A list means its single edits in the order of the ids, so that the
/// same comes of it.
fn in_lists(singles: &[Edit]) -> Vec<Edit> {
    let runs = singles.chunk_by(goes_on).flat_map(|run| run.chunks(MAX_LISTED));
    runs.flat_map(|run| listed(run).map_or_else(|| run.to_vec(), |list| vec![list])).collect()
}

fn goes_on(one: &Edit, next: &Edit) -> bool {
    match (one, next) {
        (
            Edit::Bind { deployment, role, node },
            Edit::Bind { deployment: d, role: r, node: behind },
        ) => (deployment, role) == (d, r) && node < behind,
        (
            Edit::Unbind { noderole, node, with_dependents: false },
            Edit::Unbind { noderole: same, node: behind, with_dependents: false },
        ) => noderole == same && node < behind,
        _ => false,
    }
}

/// A run as one edit; None: it is a single one.
fn listed(run: &[Edit]) -> Option<Edit> {
    let nodes = run.iter().filter_map(|edit| match edit {
        Edit::Bind { node, .. } | Edit::Unbind { node, .. } => Some(*node),
        _ => None,
    });
    match run {
        [Edit::Bind { deployment, role, .. }, _, ..] => Some(Edit::BindNodes {
            deployment: *deployment,
            role: role.clone(),
            nodes: nodes.collect(),
        }),
        [Edit::Unbind { noderole, .. }, _, ..] => {
            Some(Edit::UnbindNodes { noderole: noderole.clone(), nodes: nodes.collect() })
        }
        _ => None,
    }
}

/// Why something can't be brought back for which no edit could even be tried.
fn reason(now: Now<'_>, wanted: &Wanted) -> String {
    let name = |id: DeploymentId| {
        now.skeleton.deployments.get(&id).map(|d| d.name.to_string()).unwrap_or_default()
    };
    match wanted {
        Wanted::Node(node) | Wanted::Noderole(node, _)
            if !now.skeleton.nodes.contains_key(node) =>
        {
            "the node was given up since, and its id never comes back".into()
        }
        Wanted::Noderole(node, key) => {
            let bound = now
                .skeleton
                .nodes
                .get(node)
                .and_then(|n| n.noderoles.get(key))
                .map(|n| name(n.deployment));
            match bound {
                _ if key.instance > 0 => {
                    "only a role's first instance can be bound by an edit".into()
                }
                Some(deployment) => {
                    format!("it is bound in {deployment} now, or has another content there")
                }
                None => "there is no machine to ask for it on".into(),
            }
        }
        Wanted::WithoutBarclamp(_) => {
            "a deployment above has it, or something below still needs it".into()
        }
        Wanted::Role(_) => "the versions that can be used give it another content".into(),
        Wanted::Version(_)
        | Wanted::Node(_)
        | Wanted::WithoutRole(_)
        | Wanted::WithoutNoderole(..) => "something that comes back needs it as it is now".into(),
    }
}

fn in_words(now: Now<'_>, then: &Blueprint, wanted: &Wanted) -> String {
    let node = |id: &NodeId| {
        let known = now.skeleton.nodes.get(id).map(|node| &node.fqdn);
        let fqdn = known.or_else(|| then.nodes.get(id).map(|node| &node.doc.fqdn));
        let name = |id: DeploymentId| {
            let known = now.skeleton.deployments.get(&id).map(|deployment| &deployment.name);
            known
                .or_else(|| then.deployments.get(&id).map(|stored| &stored.doc.name))
                .map(ToString::to_string)
        };
        fqdn.map_or_else(|| id.to_string(), |fqdn| phantom::called(fqdn, name).into_owned())
    };
    match wanted {
        Wanted::Version(barclamp) => format!("the version of {barclamp}"),
        Wanted::WithoutBarclamp(barclamp) => format!("no {barclamp}"),
        Wanted::Node(id) => format!("node {}", node(id)),
        Wanted::Role(role) => format!("role {role}"),
        Wanted::WithoutRole(role) => format!("no role {role}"),
        Wanted::Noderole(id, key) => format!("{key} on {}", node(id)),
        Wanted::WithoutNoderole(id, key) => format!("no {key} on {}", node(id)),
    }
}
