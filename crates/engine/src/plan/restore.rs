//! Finds the edits that restore a deployment to an earlier state.
//!
//! History never moves back. An earlier state returns as an ordinary proposal on the current state,
//! so the rules of all other edits apply.
//!
//! The restored [`State`] of a deployment consists of its parent, visible barclamp versions, roles
//! with data, noderoles with content and data, and nodes. Not restored are:
//!
//! * Edges. They are planned again, so another of several possible parents may be chosen.
//! * Re-run counts, which only rise.
//! * Inheritance of a version that the ancestors no longer use. The deployment pins it instead.
//!   Its other pins are restored.
//! * Nodes that joined since. They stay, without noderoles of the deployment, because moving them
//!   to the parent would write the parent.
//! * Descendants. Each is restored on its own.
//!
//! The search does not undo history. It creates one edit for each difference and tries it on the
//! draft. Roles are bound from the top down, so that required roles are added without edits of
//! their own. Equal edits of many nodes become one list edit: restoring 1,000 nodes with 20 roles
//! each takes about 20 edits.
//!
//! A refused edit is tried again after another takes effect, because the order matters. A new
//! parent must exist before the old one is removed. A version without a role fits only once the
//! role is removed. When no further edit takes effect, the remaining differences are reported with
//! the reason. Examples are an expunged node, a deleted role, or a noderole that another deployment
//! needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::draft::Draft;
use super::edit::{self, Edit, EditKind, MAX_LISTED, NumberedEdit};
use super::effects::Refusal;
use super::materialize::materialize;
use super::resolve::resolve;
use super::restore_goals::is_barrier;
pub use super::restore_goals::{Goal, State};
use super::rules::Rules;
use super::writing::{MaterializeError, NodeRecordLookup};
use crate::canonical::Hash;
use crate::catalog::Catalog;
use crate::cluster::{Blueprint, NoderoleKey, Skeleton, phantom};
use crate::ids::{BarclampName, DeploymentId, NodeId, NoderoleId, RoleName};

/// Maximum number of passes over refused edits. Real chains of dependencies are far shorter.
const MAX_PASSES: usize = 64;

/// A goal that cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub goal: Goal,
    /// The goal as text: `app on n1`.
    pub name: String,
    /// The reason as text.
    pub reason: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The plan to restore a deployment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Restore {
    /// Edits on the current state. All of them take effect.
    pub edits: Vec<Edit>,
    /// The remaining differences. Empty if the deployment is fully restored.
    pub missing: Vec<Missing>,
}

/// Why a deployment cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The deployment did not exist then.
    #[error("The deployment did not exist at that blueprint. Choose a later blueprint")]
    DidNotExist,
    /// The deployment does not exist now.
    #[error("The deployment no longer exists, and ids are never reused. Create a new deployment")]
    NoLongerExists,
    /// The planned change cannot be written.
    #[error(transparent)]
    Materialize(#[from] MaterializeError),
}

/// The current state.
#[derive(Clone, Copy)]
pub struct RestoreInput<'a> {
    pub blueprint: &'a Blueprint,
    /// The skeleton of the blueprint, with the nodes that have no document yet.
    pub skeleton: &'a Skeleton,
    /// Every version ever imported.
    pub catalog: &'a Catalog,
    /// Records of nodes without a document.
    pub records: NodeRecordLookup<'a>,
}

/// Finds the edits that restore a deployment to its earlier state.
///
/// # Errors
/// [`RestoreError`] if the deployment is missing in either blueprint.
pub fn restore(
    now: RestoreInput<'_>,
    earlier_blueprint: &Blueprint,
    deployment: DeploymentId,
) -> Result<Restore, RestoreError> {
    let was =
        State::of(earlier_blueprint, now.catalog, deployment).ok_or(RestoreError::DidNotExist)?;
    if !now.blueprint.deployments.contains_key(&deployment) {
        return Err(RestoreError::NoLongerExists);
    }
    let mut search = Restoring::of(now, &was, earlier_blueprint, deployment);
    search.restore_structure();
    let Restoring { singles, refused, .. } = search;
    let (mut edits, mut refused) = (combine_edits(&singles), refused);
    let (mut current, refusals) = outcome(now, &edits, deployment)?;
    if !refusals.is_empty() {
        edits = without(edits, &refusals, &was, &mut refused);
    }
    let data = data_edits(deployment, &was, &current);
    if !data.is_empty() {
        edits.extend(data);
        current = outcome(now, &edits, deployment)?.0;
    }
    let missing = was.differences_from(&current).into_iter().map(|goal| {
        let known =
            refused.get(&goal).or_else(|| refused.get(&was.version_of(now.catalog, &goal)?));
        let reason = known.cloned().unwrap_or_else(|| reason(now, &goal));
        Missing { name: goal_text(now, earlier_blueprint, &goal), goal, reason }
    });
    Ok(Restore { missing: missing.collect(), edits })
}

/// Drops the refused edits and returns the reasons for their goals. A refused version also drops
/// the edits that need it.
fn without(
    edits: Vec<Edit>,
    refusals: &[Refusal],
    was: &State,
    refused: &mut BTreeMap<Goal, String>,
) -> Vec<Edit> {
    let reasons: BTreeMap<u32, &String> =
        refusals.iter().map(|refusal| (refusal.edit, &refusal.reason)).collect();
    let mut remaining = Vec::new();
    for (seq, edit) in (1..).zip(edits) {
        match reasons.get(&seq) {
            None => remaining.push(edit),
            Some(reason) => {
                refused.extend(edit.goals(was).into_iter().map(|goal| (goal, (*reason).clone())))
            }
        }
    }
    remaining
}

/// The deployment after the edits, and the edits that the rule about the result refuses. That rule
/// cannot be checked while edits are tried.
fn outcome(
    now: RestoreInput<'_>,
    edits: &[Edit],
    deployment: DeploymentId,
) -> Result<(State, Vec<Refusal>), RestoreError> {
    let numbered: Vec<NumberedEdit> =
        (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect();
    let effects = resolve(now.skeleton, now.catalog, &numbered);
    let new = materialize(now.blueprint, now.records, &effects)?.blueprint;
    let state = State::of(&new, now.catalog, deployment).ok_or(RestoreError::NoLongerExists)?;
    Ok((state, effects.refused))
}

fn data_edits(deployment: DeploymentId, was: &State, current: &State) -> Vec<Edit> {
    let differs =
        |known: Option<&(Hash, Value)>, data: &Value| known.is_some_and(|(_, known)| known != data);
    let roles =
        was.roles.iter().filter(|(role, (_, data))| differs(current.roles.get(*role), data)).map(
            |(role, (_, data))| {
                Edit::SetRoleData(edit::SetRoleData {
                    deployment,
                    role: role.clone(),
                    data: data.clone(),
                })
            },
        );
    let noderoles = was
        .noderoles
        .iter()
        .filter(|(at, (_, data))| differs(current.noderoles.get(*at), data))
        .map(|((node, noderole), (_, data))| {
            Edit::SetNoderoleData(edit::SetNoderoleData {
                node: *node,
                noderole: noderole.clone(),
                data: data.clone(),
            })
        });
    roles.chain(noderoles).collect()
}

struct Restoring<'a> {
    deployment: DeploymentId,
    was: &'a State,
    /// The highest rank of each role's noderoles in the earlier state.
    ranks: BTreeMap<RoleName, u32>,
    /// Noderoles that had children on other nodes in the earlier state.
    shared: BTreeSet<NoderoleId>,
    draft: Draft<'a>,
    /// The single edits that took effect.
    singles: Vec<Edit>,
    /// Why the last attempt at a goal was refused.
    refused: BTreeMap<Goal, String>,
}

/// The additional noderoles that a binding may add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Additions {
    /// Only noderoles of the earlier state.
    OnlyRestored,
    /// Any noderole. Superfluous ones are removed again or reported.
    Anything,
}

/// A kind of goal: returns the unmet goals with the edits that would meet them.
type GoalFinder<R> = fn(&R, Additions) -> Vec<(Goal, Edit)>;

impl<'a> Restoring<'a> {
    fn of(
        now: RestoreInput<'a>,
        was: &'a State,
        earlier_blueprint: &Blueprint,
        deployment: DeploymentId,
    ) -> Self {
        let mut ranks: BTreeMap<RoleName, u32> = BTreeMap::new();
        for (node, key) in was.noderoles.keys() {
            let Some((_, noderole)) = earlier_blueprint.noderole(*node, key) else { continue };
            let rank = ranks.entry(key.role.clone()).or_default();
            *rank = (*rank).max(noderole.rank);
        }
        let mut shared = BTreeSet::new();
        for (node, stored) in &earlier_blueprint.nodes {
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

    /// Meets all goals except those about data, which no rule of binding reads.
    fn restore_structure(&mut self) {
        for _ in 0..MAX_PASSES {
            self.refused.clear();
            if !self.try_goals(Additions::OnlyRestored) && !self.try_goals(Additions::Anything) {
                return;
            }
        }
    }

    /// Tries an edit for each unmet goal, in the order that usually takes effect. Returns whether
    /// any edit did.
    fn try_goals(&mut self, additions: Additions) -> bool {
        let kinds: [GoalFinder<Self>; 9] = [
            Self::noderoles_to_unbind,
            Self::parent,
            Self::versions,
            Self::own_versions,
            Self::moves,
            Self::roles_to_add,
            Self::binds,
            Self::roles_to_remove,
            Self::barclamp_in_use,
        ];
        let done = self.singles.len();
        for kind in kinds {
            for (goal, edit) in kind(self, additions) {
                self.attempt(goal, edit, additions);
            }
        }
        self.singles.len() > done
    }

    fn attempt(&mut self, goal: Goal, edit: Edit, additions: Additions) {
        // Another edit of this pass already added it.
        if let Goal::Noderole(node, key) = &goal
            && self.draft.node(*node).is_ok_and(|carrier| carrier.noderoles.contains_key(key))
        {
            return;
        }
        let (was, deployment) = (self.was, self.deployment);
        let done = self.draft.apply_or_roll_back(|draft| {
            let mark = draft.mark();
            // The number only appears in the reason. The proposal assigns the real one.
            draft.apply(0, &edit).map_err(|error| error.to_string())?;
            let new = draft.added_since(mark).find(|id| {
                additions == Additions::OnlyRestored && !was.has(draft, *id, deployment)
            });
            new.map_or(Ok(()), |id| {
                Err(format!(
                    "The restore would also add {}, which did not exist then",
                    draft.noderole_text(id)
                ))
            })
        });
        match done {
            Ok(()) => {
                self.refused.remove(&goal);
                self.singles.push(edit);
            }
            Err(reason) => drop(self.refused.insert(goal, reason)),
        }
    }

    /// Unbinds those with the highest rank first, with all noderoles of a role together.
    fn noderoles_to_unbind(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let mut ranks: BTreeMap<&RoleName, u32> = BTreeMap::new();
        let mut additional = Vec::new();
        for (node, carrier) in self.draft.nodes() {
            for (key, noderole) in
                carrier.noderoles.iter().filter(|(_, n)| n.deployment == self.deployment)
            {
                let known = self.was.noderoles.contains_key(&(node, key.clone()));
                if !known && !is_barrier(self.draft.catalog, noderole.role) {
                    let rank = ranks.entry(&key.role).or_default();
                    *rank = (*rank).max(noderole.rank);
                    additional.push((key, node));
                }
            }
        }
        additional.sort_by_key(|(key, node)| (Reverse(ranks.get(&key.role)), *key, *node));
        let edit = |key: &NoderoleKey, node| {
            Edit::Unbind(edit::Unbind { node, noderole: key.clone(), with_dependents: false })
        };
        additional
            .into_iter()
            .map(|(key, node)| (Goal::WithoutNoderole(node, key.clone()), edit(key, node)))
            .collect()
    }

    /// The move back comes before versions, because it changes the inherited ones.
    fn parent(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let (deployment, was) = (self.deployment, self.was.parent);
        let Ok(current) = self.draft.deployment(deployment) else { return Vec::new() };
        let parent = was.filter(|was| current.parent != Some(*was));
        let edit = |parent| Edit::MoveDeployment(edit::MoveDeployment { deployment, parent });
        parent.map(|parent| (Goal::Parent, edit(parent))).into_iter().collect()
    }

    fn versions(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let deployment = self.deployment;
        let seen = |barclamp: &BarclampName| self.draft.visible_version(deployment, barclamp);
        let other = self
            .was
            .versions
            .iter()
            .filter(|(barclamp, version)| seen(barclamp) != Some(**version));
        let edit = |barclamp: &BarclampName, version: Hash| match !self
            .was
            .own_versions
            .contains(barclamp)
            && self.inherited_version(barclamp) == Some(version)
        {
            true => Edit::InheritBarclamp(edit::InheritBarclamp {
                deployment,
                barclamp: barclamp.clone(),
            }),
            false => Edit::UseBarclamp(edit::UseBarclamp {
                deployment,
                barclamp: barclamp.clone(),
                version,
            }),
        };
        other
            .map(|(barclamp, version)| (Goal::Version(barclamp.clone()), edit(barclamp, *version)))
            .collect()
    }

    /// Pins that the deployment had or did not have in the earlier state, if the version that it
    /// sees is right already. A pin stays if the deployment would inherit another version.
    fn own_versions(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let (deployment, was) = (self.deployment, self.was);
        let Ok(current) = self.draft.deployment(deployment) else { return Vec::new() };
        let mut all = Vec::new();
        for (barclamp, version) in &was.versions {
            let is_inherited = self.inherited_version(barclamp) == Some(*version);
            let pinned = current.barclamps.contains_key(barclamp);
            let barclamp = barclamp.clone();
            match was.own_versions.contains(&barclamp) {
                true if !pinned && is_inherited => all.push((
                    Goal::OwnVersion(barclamp.clone()),
                    edit::UseBarclamp { deployment, barclamp, version: *version }.into(),
                )),
                false if pinned && is_inherited => all.push((
                    Goal::WithoutOwnVersion(barclamp.clone()),
                    edit::InheritBarclamp { deployment, barclamp }.into(),
                )),
                _ => {}
            }
        }
        all
    }

    /// The version that the deployment would inherit without its own pin.
    fn inherited_version(&self, barclamp: &BarclampName) -> Option<Hash> {
        let above = self.draft.deployment(self.deployment).ok()?.parent?;
        self.draft.visible_version(above, barclamp)
    }

    /// Barclamps that the deployment pins now and did not see in the earlier state. Inherited
    /// barclamps are the ancestor's concern.
    fn barclamp_in_use(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let Ok(current) = self.draft.deployment(self.deployment) else { return Vec::new() };
        let additional =
            current.barclamps.keys().filter(|barclamp| !self.was.versions.contains_key(*barclamp));
        let edit = |barclamp: &BarclampName| {
            Edit::InheritBarclamp(edit::InheritBarclamp {
                deployment: self.deployment,
                barclamp: barclamp.clone(),
            })
        };
        let additional = additional.filter(|barclamp| self.inherited_version(barclamp).is_none());
        additional
            .map(|barclamp| (Goal::WithoutBarclamp(barclamp.clone()), edit(barclamp)))
            .collect()
    }

    fn moves(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let deployment = self.deployment;
        let away =
            |id: &&NodeId| self.draft.node(**id).is_ok_and(|node| node.deployment != deployment);
        let edit = |node| (Goal::Node(node), Edit::MoveNode(edit::MoveNode { node, deployment }));
        self.was.nodes.iter().filter(away).map(|id| edit(*id)).collect()
    }

    fn roles_to_add(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let Ok(current) = self.draft.deployment(self.deployment) else { return Vec::new() };
        let gone = self.was.roles.keys().filter(|role| !current.roles.contains_key(*role));
        let edit = |role: &RoleName| {
            Edit::AddRole(edit::AddRole { deployment: self.deployment, role: role.clone() })
        };
        gone.map(|role| (Goal::Role(role.clone()), edit(role))).collect()
    }

    fn roles_to_remove(&self, _: Additions) -> Vec<(Goal, Edit)> {
        let Ok(current) = self.draft.deployment(self.deployment) else { return Vec::new() };
        let additional = current.roles.keys().filter(|role| !self.was.roles.contains_key(*role));
        let edit = |role: &RoleName| {
            Edit::RemoveRole(edit::RemoveRole { deployment: self.deployment, role: role.clone() })
        };
        additional.map(|role| (Goal::WithoutRole(role.clone()), edit(role))).collect()
    }

    /// Noderoles with children on other nodes come first, from the bottom up. Otherwise other
    /// noderoles would be added in their place. Then roles follow from the top down, because each
    /// also adds the roles it requires. If that adds noderoles that did not exist, they follow from
    /// the bottom up. Only a role's first instance can be bound.
    fn binds(&self, additions: Additions) -> Vec<(Goal, Edit)> {
        let mut gone = Vec::new();
        for (node, key) in self.was.noderoles.keys().filter(|(_, key)| key.instance == 0) {
            let Ok(carrier) = self.draft.node(*node) else { continue };
            if carrier.noderoles.contains_key(key) {
                continue;
            }
            let Some(target) = self.binding_node(*node, carrier.phantom) else { continue };
            let rank = i64::from(self.ranks.get(&key.role).copied().unwrap_or_default());
            let shared = self.shared.contains(&key.id(*node));
            let up = shared || additions == Additions::Anything;
            gone.push((!shared, if up { rank } else { -rank }, key, target, *node));
        }
        gone.sort();
        let edit = |node, role| Edit::Bind(edit::Bind { deployment: self.deployment, node, role });
        gone.into_iter()
            .map(|(_, _, key, target, node)| {
                (Goal::Noderole(node, key.clone()), edit(target, key.role.clone()))
            })
            .collect()
    }

    /// The machine to name in a binding. A service may name any machine, since its phantom node
    /// runs it.
    fn binding_node(&self, node: NodeId, phantom: bool) -> Option<NodeId> {
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

/// Combines runs of bindings and unbindings into list edits. A list edit equals its single edits in
/// the order of the ids, so the result is the same.
fn combine_edits(singles: &[Edit]) -> Vec<Edit> {
    let runs = singles.chunk_by(continues).flat_map(|run| run.chunks(MAX_LISTED));
    runs.flat_map(|run| listed(run).map_or_else(|| run.to_vec(), |list| vec![list])).collect()
}

fn continues(one: &Edit, next: &Edit) -> bool {
    match (one, next) {
        (
            Edit::Bind(edit::Bind { deployment, role, node }),
            Edit::Bind(edit::Bind { deployment: d, role: r, node: behind }),
        ) => (deployment, role) == (d, r) && node < behind,
        (
            Edit::Unbind(edit::Unbind { noderole, node, with_dependents: false }),
            Edit::Unbind(edit::Unbind { noderole: same, node: behind, with_dependents: false }),
        ) => noderole == same && node < behind,
        _ => false,
    }
}

/// A run as one list edit; `None` if it is a single edit.
fn listed(run: &[Edit]) -> Option<Edit> {
    let nodes = run.iter().filter_map(|edit| match edit {
        Edit::Bind(edit::Bind { node, .. }) | Edit::Unbind(edit::Unbind { node, .. }) => {
            Some(*node)
        }
        _ => None,
    });
    match run {
        [Edit::Bind(edit::Bind { deployment, role, .. }), _, ..] => {
            Some(Edit::BindNodes(edit::BindNodes {
                deployment: *deployment,
                role: role.clone(),
                nodes: nodes.collect(),
            }))
        }
        [Edit::Unbind(edit::Unbind { noderole, .. }), _, ..] => {
            Some(Edit::UnbindNodes(edit::UnbindNodes {
                noderole: noderole.clone(),
                nodes: nodes.collect(),
            }))
        }
        _ => None,
    }
}

/// The reason for a goal for which no edit could be tried.
fn reason(now: RestoreInput<'_>, goal: &Goal) -> String {
    let name = |id: DeploymentId| {
        now.skeleton.deployments.get(&id).map(|d| d.name.to_string()).unwrap_or_default()
    };
    match goal {
        Goal::Node(node) | Goal::Noderole(node, _) if !now.skeleton.nodes.contains_key(node) => {
            "The node was expunged since, and its id is never reused".into()
        }
        Goal::Noderole(node, key) => {
            let bound = now
                .skeleton
                .nodes
                .get(node)
                .and_then(|n| n.noderoles.get(key))
                .map(|n| name(n.deployment));
            match bound {
                _ if key.instance > 0 => {
                    "An edit can only bind the first instance of a role".into()
                }
                Some(deployment) => {
                    format!("It is bound in {deployment} now, or has other content there")
                }
                None => "There is no node on which it can be bound".into(),
            }
        }
        Goal::WithoutBarclamp(_) => {
            "A deployment above uses it, or a deployment below still needs it".into()
        }
        Goal::Role(_) => "The versions that can be used give it other content".into(),
        Goal::Parent
        | Goal::Version(_)
        | Goal::OwnVersion(_)
        | Goal::WithoutOwnVersion(_)
        | Goal::Node(_)
        | Goal::WithoutRole(_)
        | Goal::WithoutNoderole(..) => "A restored object needs its current state".into(),
    }
}

fn goal_text(now: RestoreInput<'_>, earlier_blueprint: &Blueprint, goal: &Goal) -> String {
    let node = |id: &NodeId| {
        let known = now.skeleton.nodes.get(id).map(|node| &node.fqdn);
        let fqdn = known.or_else(|| earlier_blueprint.nodes.get(id).map(|node| &node.doc.fqdn));
        let name = |id: DeploymentId| {
            let known = now.skeleton.deployments.get(&id).map(|deployment| &deployment.name);
            known
                .or_else(|| earlier_blueprint.deployments.get(&id).map(|stored| &stored.doc.name))
                .map(ToString::to_string)
        };
        fqdn.map_or_else(|| id.to_string(), |fqdn| phantom::short_name(fqdn, name).into_owned())
    };
    match goal {
        Goal::Parent => "the parent deployment".into(),
        Goal::Version(barclamp) => format!("version of barclamp {barclamp}"),
        Goal::WithoutBarclamp(barclamp) => format!("removal of barclamp {barclamp}"),
        Goal::OwnVersion(barclamp) => format!("own version of barclamp {barclamp}"),
        Goal::WithoutOwnVersion(barclamp) => {
            format!("removal of the own version of barclamp {barclamp}")
        }
        Goal::Node(id) => format!("node {}", node(id)),
        Goal::Role(role) => format!("role {role}"),
        Goal::WithoutRole(role) => format!("removal of role {role}"),
        Goal::Noderole(id, key) => format!("{key} on {}", node(id)),
        Goal::WithoutNoderole(id, key) => format!("removal of {key} on {}", node(id)),
    }
}
