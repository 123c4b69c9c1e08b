//! The settings that edits change, and the conflicts between their authors.
//!
//! Every edit records its settings in [`Conflicts`], in order. [`LastEdits`] stores related
//! settings next to each other, so a proposal with thousands of values is checked quickly. The
//! rules are those of [`clash`](super::clash).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names::EditNames;
use super::side_effects::SideEffects;
use crate::cluster::NoderoleKey;
use crate::data::{Change, ChangeKind, diff};
use crate::ids::{BarclampName, DeploymentId, JigName, NodeId, PersonId, RoleName};

/// A setting that has one value, so that the last edit of it wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ClashSubject {
    /// Whether a deployment exists.
    Deployment {
        /// The deployment.
        deployment: DeploymentId,
    },
    /// The parent of a deployment.
    Parent {
        /// The deployment.
        deployment: DeploymentId,
    },
    /// The version of a barclamp in a deployment.
    Barclamp {
        /// The deployment.
        deployment: DeploymentId,
        /// The barclamp.
        barclamp: BarclampName,
    },
    /// Whether a deployment has a role.
    Role {
        /// The deployment.
        deployment: DeploymentId,
        /// The role.
        role: RoleName,
    },
    /// A value of a deployment's data for a role.
    RoleValue {
        /// The deployment.
        deployment: DeploymentId,
        /// The role.
        role: RoleName,
        /// The value's path in the data, as a JSON pointer.
        path: String,
    },
    /// Whether a node exists.
    Node {
        /// The node.
        node: NodeId,
    },
    /// The deployment of a node.
    NodeDeployment {
        /// The node.
        node: NodeId,
    },
    /// A field of a node's connection.
    Connection {
        /// The node.
        node: NodeId,
        /// The field's name.
        field: String,
    },
    /// A node's hints.
    Hints {
        /// The node.
        node: NodeId,
    },
    /// Whether a noderole is bound to a node.
    Noderole {
        /// The node.
        node: NodeId,
        /// The noderole.
        noderole: NoderoleKey,
    },
    /// A value of a noderole's own data.
    NoderoleValue {
        /// The node.
        node: NodeId,
        /// The noderole.
        noderole: NoderoleKey,
        /// The value's path in the data, as a JSON pointer.
        path: String,
    },
    /// Whether a noderole runs again.
    Rerun {
        /// The node.
        node: NodeId,
        /// The noderole.
        noderole: NoderoleKey,
    },
    /// Whether a jig is active.
    Jig {
        /// The jig.
        jig: JigName,
    },
    /// The approval policy.
    Policy,
}

impl ClashSubject {
    /// The setting as text.
    pub fn text(&self, names: &impl EditNames) -> String {
        let whole =
            |path: &str| if path.is_empty() { "all data".to_owned() } else { path.to_owned() };
        match self {
            Self::Deployment { deployment } => {
                format!("deployment {}", names.deployment(*deployment))
            }
            Self::Parent { deployment } => {
                format!("the parent of deployment {}", names.deployment(*deployment))
            }
            Self::Barclamp { deployment, barclamp } => {
                format!("the version of {barclamp}{}", names.in_deployment(*deployment))
            }
            Self::Role { deployment, role } => {
                format!("role {role}{}", names.in_deployment(*deployment))
            }
            Self::RoleValue { deployment, role, path } => {
                format!("{} of {role}{}", whole(path), names.in_deployment(*deployment))
            }
            Self::Node { node } => format!("node {}", names.node(*node)),
            Self::NodeDeployment { node } => format!("the deployment of {}", names.node(*node)),
            Self::Connection { node, field } => {
                format!("{field} of the connection of {}", names.node(*node))
            }
            Self::Hints { node } => format!("the hints of {}", names.node(*node)),
            Self::Noderole { node, noderole } => format!("{noderole} on {}", names.node(*node)),
            Self::NoderoleValue { node, noderole, path } => {
                format!("{} of {noderole} on {}", whole(path), names.node(*node))
            }
            Self::Rerun { node, noderole } => {
                format!("running {noderole} on {} again", names.node(*node))
            }
            Self::Jig { jig } => format!("jig {jig}"),
            Self::Policy => "the policy".into(),
        }
    }
}

/// Two people's edits, the later of which overrides the earlier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clash {
    /// Number of the edit that is overridden.
    pub earlier: u32,
    /// Number of the edit that wins.
    pub later: u32,
    /// The setting that both edits change.
    pub setting: ClashSubject,
}

/// State that the edits themselves do not contain.
pub trait PriorState {
    /// The side effects of an edit, as [`resolve_with`](super::resolve::resolve_with) returns them.
    fn side_effects(&self, edit: u32) -> Option<&SideEffects>;
    /// A deployment's current data for a role; `None` if it has none.
    fn role_data(&self, deployment: DeploymentId, role: &RoleName) -> Option<Value>;
    /// A noderole's current own data; `None` if it has none.
    fn noderole_data(&self, node: NodeId, noderole: &NoderoleKey) -> Option<Value>;
}

/// The last edit of a setting.
#[derive(Debug, Clone)]
pub(super) struct LastEdit {
    pub edit: u32,
    pub by: PersonId,
    /// The value, as text. Edits with equal values agree.
    pub value: String,
}

/// The owner of data: a deployment's role or a noderole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Role(DeploymentId, RoleName),
    Noderole(NodeId, NoderoleKey),
}

/// The object that a setting belongs to. Settings of roles and noderoles belong to their deployment
/// or node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Deployment(DeploymentId),
    Node(NodeId),
    Jig,
    Policy,
}

/// A set of settings that become void together.
#[derive(Debug)]
pub(super) enum SettingScope<'a> {
    /// All settings of a deployment.
    Deployment(DeploymentId),
    /// The values of a deployment's role.
    Role(DeploymentId, &'a RoleName),
    /// All settings of a node.
    Node(NodeId),
    /// The values of a noderole, and its re-run.
    Noderole(NodeId, &'a NoderoleKey),
    /// The values of one owner whose paths start with this one.
    Values(&'a Owner, &'a str),
}

/// The last edit of each setting. Within a subject, the order of [`ClashSubject`] puts the values
/// of one owner next to each other, ordered by path.
#[derive(Debug, Default)]
pub(super) struct LastEdits(BTreeMap<Subject, BTreeMap<ClashSubject, LastEdit>>);

impl LastEdits {
    pub fn insert(&mut self, setting: ClashSubject, last_edit: LastEdit) -> Option<LastEdit> {
        self.0.entry(subject(&setting)).or_default().insert(setting, last_edit)
    }

    fn get(&self, setting: &ClashSubject) -> Option<&LastEdit> {
        self.0.get(&subject(setting))?.get(setting)
    }

    /// The last edit of the nearest enclosing value.
    fn enclosing(&self, owner: &Owner, path: &str) -> Option<&LastEdit> {
        let mut path = path;
        while let Some((around, _)) = path.rsplit_once('/') {
            path = around;
            if let Some(last_edit) = self.get(&owner.value(path)) {
                return Some(last_edit);
            }
        }
        None
    }

    fn remove(&mut self, setting: &ClashSubject) -> Option<LastEdit> {
        self.0.get_mut(&subject(setting))?.remove(setting)
    }

    pub fn within(&self, reach: &SettingScope<'_>) -> Vec<ClashSubject> {
        match reach {
            SettingScope::Deployment(id) => {
                let inside =
                    |setting: &&ClashSubject| !matches!(setting, ClashSubject::Deployment { .. });
                self.under(&Subject::Deployment(*id)).filter(inside).cloned().collect()
            }
            SettingScope::Role(deployment, role) => {
                self.values(&Owner::Role(*deployment, (*role).clone()), "")
            }
            SettingScope::Node(id) => {
                let inside =
                    |setting: &&ClashSubject| !matches!(setting, ClashSubject::Node { .. });
                self.under(&Subject::Node(*id)).filter(inside).cloned().collect()
            }
            SettingScope::Noderole(node, noderole) => {
                let mut all = self.values(&Owner::Noderole(*node, (*noderole).clone()), "");
                let rerun = ClashSubject::Rerun { node: *node, noderole: (*noderole).clone() };
                all.extend(self.get(&rerun).is_some().then_some(rerun));
                all
            }
            SettingScope::Values(owner, prefix) => self.values(owner, prefix),
        }
    }

    fn under(&self, subject: &Subject) -> impl Iterator<Item = &ClashSubject> {
        self.0.get(subject).into_iter().flat_map(BTreeMap::keys)
    }

    fn values(&self, owner: &Owner, prefix: &str) -> Vec<ClashSubject> {
        let from = owner.value(prefix);
        let Some(last_edits) = self.0.get(&subject(&from)) else { return Vec::new() };
        let keys = last_edits.range(&from..).map(|(setting, _)| setting);
        keys.take_while(|setting| owner.path(setting).is_some_and(|path| path.starts_with(prefix)))
            .cloned()
            .collect()
    }
}

pub(super) fn subject(setting: &ClashSubject) -> Subject {
    match setting {
        ClashSubject::Deployment { deployment }
        | ClashSubject::Parent { deployment }
        | ClashSubject::Barclamp { deployment, .. }
        | ClashSubject::Role { deployment, .. }
        | ClashSubject::RoleValue { deployment, .. } => Subject::Deployment(*deployment),
        ClashSubject::Node { node }
        | ClashSubject::NodeDeployment { node }
        | ClashSubject::Connection { node, .. }
        | ClashSubject::Hints { node }
        | ClashSubject::Noderole { node, .. }
        | ClashSubject::NoderoleValue { node, .. }
        | ClashSubject::Rerun { node, .. } => Subject::Node(*node),
        ClashSubject::Jig { .. } => Subject::Jig,
        ClashSubject::Policy => Subject::Policy,
    }
}

impl Owner {
    pub fn value(&self, path: &str) -> ClashSubject {
        match self {
            Self::Role(deployment, role) => ClashSubject::RoleValue {
                deployment: *deployment,
                role: role.clone(),
                path: path.to_owned(),
            },
            Self::Noderole(node, noderole) => ClashSubject::NoderoleValue {
                node: *node,
                noderole: noderole.clone(),
                path: path.to_owned(),
            },
        }
    }

    /// The path of a setting, if it is a value of this owner's data.
    fn path<'o>(&self, setting: &'o ClashSubject) -> Option<&'o str> {
        match (self, setting) {
            (Self::Role(d, r), ClashSubject::RoleValue { deployment, role, path })
                if d == deployment && r == role =>
            {
                Some(path)
            }
            (Self::Noderole(n, k), ClashSubject::NoderoleValue { node, noderole, path })
                if n == node && k == noderole =>
            {
                Some(path)
            }
            _ => None,
        }
    }
}

/// The settings that the edits changed so far, and the edit that is recorded now.
pub(super) struct Conflicts<'a> {
    /// Number of the current edit.
    edit: u32,
    /// Its author.
    by: PersonId,
    last_edits: LastEdits,
    data: BTreeMap<Owner, Value>,
    found: BTreeSet<Clash>,
    before: &'a dyn PriorState,
}

/// The value of a setting for a thing that the edit removes.
pub(super) const REMOVED: &str = "removed";
/// The value of a setting for a thing that the edit adds.
pub(super) const PRESENT: &str = "present";

impl<'a> Conflicts<'a> {
    /// Starts without any recorded edit. [`Conflicts::next_edit`] sets the current one.
    pub fn new(before: &'a dyn PriorState, edit: u32, by: PersonId) -> Self {
        Self {
            edit,
            by,
            last_edits: LastEdits::default(),
            data: BTreeMap::new(),
            found: BTreeSet::new(),
            before,
        }
    }

    /// Sets the edit that is recorded next.
    pub fn next_edit(&mut self, edit: u32, by: PersonId) {
        (self.edit, self.by) = (edit, by);
    }

    pub fn into_clashes(self) -> BTreeSet<Clash> {
        self.found
    }

    /// The side effects of the current edit.
    pub fn side_effects(&self) -> Option<&'a SideEffects> {
        self.before.side_effects(self.edit)
    }

    /// Whether an earlier edit changed the setting.
    pub fn has(&self, setting: &ClashSubject) -> bool {
        self.last_edits.get(setting).is_some()
    }

    /// Records that the current edit removes the data.
    pub fn clear_data(&mut self, owner: Owner) {
        self.data.insert(owner, no_data());
    }

    pub fn unbind(&mut self, node: NodeId, noderole: &NoderoleKey) {
        let setting = ClashSubject::Noderole { node, noderole: noderole.clone() };
        self.record_removal(setting, &SettingScope::Noderole(node, noderole));
        self.clear_data(Owner::Noderole(node, noderole.clone()));
    }

    /// Records the last edit of a setting, and a clash if another person set a different value.
    pub fn record(&mut self, setting: ClashSubject, value: &str) {
        let last_edit = LastEdit { edit: self.edit, by: self.by, value: value.to_owned() };
        if let Some(last) = self.last_edits.insert(setting.clone(), last_edit)
            && last.by != self.by
            && last.value != value
        {
            self.found.insert(Clash { earlier: last.edit, later: self.edit, setting });
        }
    }

    /// Records the removal of a thing, which voids all settings in `reach`.
    pub fn record_removal(&mut self, setting: ClashSubject, reach: &SettingScope<'_>) {
        for known in self.last_edits.within(reach) {
            // A setting that was removed before is not removed again.
            let Some(last_edit) =
                self.last_edits.remove(&known).filter(|last_edit| last_edit.value != REMOVED)
            else {
                continue;
            };
            if last_edit.by != self.by {
                self.found.insert(Clash {
                    earlier: last_edit.edit,
                    later: self.edit,
                    setting: known,
                });
            }
        }
        self.record(setting, REMOVED);
    }

    /// Records an edit of every value that the new data changes.
    pub fn set(&mut self, owner: Owner, data: &Value) {
        let was = match (self.data.get(&owner), &owner) {
            (Some(known), _) => Some(known.clone()),
            (None, Owner::Role(deployment, role)) => self.before.role_data(*deployment, role),
            (None, Owner::Noderole(node, noderole)) => self.before.noderole_data(*node, noderole),
        };
        let was = was.unwrap_or_else(no_data);
        // Data with excessive nesting is refused where it is set.
        for change in diff(&was, data).unwrap_or_default() {
            self.set_value(&owner, &change, data);
        }
        self.data.insert(owner, data.clone());
    }

    fn set_value(&mut self, owner: &Owner, change: &Change, data: &Value) {
        // A list or scalar in place of an object overrides all edits of values inside it.
        let inside = format!("{}/", change.path);
        let now = data.pointer(&change.path).map_or_else(|| REMOVED.to_owned(), Value::to_string);
        for known in self.last_edits.within(&SettingScope::Values(owner, &inside)) {
            if let Some(last_edit) =
                self.last_edits.remove(&known).filter(|last_edit| last_edit.by != self.by)
            {
                self.found.insert(Clash {
                    earlier: last_edit.edit,
                    later: self.edit,
                    setting: known,
                });
            }
        }
        let setting = owner.value(&change.path);
        // No edit has set a value inside an object that is new.
        if change.kind != ChangeKind::Added
            && self.last_edits.get(&setting).is_none()
            && let Some(enclosing) = self
                .last_edits
                .enclosing(owner, &change.path)
                .filter(|last_edit| last_edit.by != self.by)
        {
            self.found.insert(Clash {
                earlier: enclosing.edit,
                later: self.edit,
                setting: setting.clone(),
            });
        }
        self.record(setting, &now);
    }
}

fn no_data() -> Value {
    Value::Object(serde_json::Map::new())
}
