//! Clashes: edits of one person that override another person's edits in the same proposal.
//!
//! Several people may edit one proposal, and the later edit wins. The override must be visible. If
//! an edit removes, replaces or contradicts another person's edit, the clash therefore names both
//! edits and the setting. A person does not clash with themselves, and repeating a value is no
//! clash.
//!
//! Setting data replaces all of it, and its author saw the previous data. Two such edits clash only
//! at paths that both changed, each compared with the data before it. An edit of an object sets
//! every value in it, so the last edit of a value may concern an enclosing object. The data before
//! the first edit comes from [`Before`], because the edits do not contain it.
//!
//! Edits also have effects that they do not name. Unbinding can remove dependents, and binding can
//! move a node down from an ancestor. Only the planner knows these effects ([`SideEffects`]). They count
//! like any other edit. Binding in an ancestor of the node's deployment does not move the node and
//! does not affect its place.
//!
//! Every view of an open proposal calls this, so it must be fast with thousands of values.
//! [`LastEdits`] stores related settings next to each other, and proposals with one author are not
//! searched.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit::{EditKind, EditNames, NumberedEdit};
use crate::cluster::NoderoleKey;
use crate::data::{Change, ChangeKind, diff};
use crate::ids::{BarclampName, DeploymentId, JigName, NodeId, PersonId, RoleName};

/// An edit that is in effect, with its author.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    pub edit: &'a NumberedEdit,
    pub by: PersonId,
}

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

/// Effects of an edit beyond the things that it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideEffects {
    /// Dependent noderoles that it also unbinds.
    pub gone: BTreeSet<(NodeId, NoderoleKey)>,
    /// Nodes that it also moves, each with the new deployment.
    pub moved: BTreeMap<NodeId, DeploymentId>,
}

impl SideEffects {
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.moved.is_empty()
    }
}

/// State that the edits themselves do not contain.
pub trait Before {
    /// The side effects of an edit, as [`resolve_with`](super::resolve::resolve_with) returns them.
    fn side_effects(&self, edit: u32) -> Option<&SideEffects>;
    /// A deployment's current data for a role; `None` if it has none.
    fn role_data(&self, deployment: DeploymentId, role: &RoleName) -> Option<Value>;
    /// A noderole's current own data; `None` if it has none.
    fn noderole_data(&self, node: NodeId, noderole: &NoderoleKey) -> Option<Value>;
}

/// Finds every clash, ordered by the later edit. Do not pass undone edits.
pub fn clashes(edits: &[Signed<'_>], before: &impl Before) -> Vec<Clash> {
    if edits.windows(2).all(|two| two[0].by == two[1].by) {
        return Vec::new();
    }
    let Some(first) = edits.first() else { return Vec::new() };
    let mut conflicts = Conflicts {
        edit: first.edit.seq,
        by: first.by,
        words: LastEdits::default(),
        data: BTreeMap::new(),
        found: BTreeSet::new(),
        before,
    };
    for signed in edits {
        (conflicts.edit, conflicts.by) = (signed.edit.seq, signed.by);
        signed.edit.edit.record(&mut conflicts);
    }
    let mut found: Vec<Clash> = conflicts.found.into_iter().collect();
    found.sort_by(|a, b| (a.later, a.earlier, &a.setting).cmp(&(b.later, b.earlier, &b.setting)));
    found
}

/// The last edit of a setting.
#[derive(Debug, Clone)]
struct LastEdit {
    edit: u32,
    by: PersonId,
    /// The value, as text. Edits with equal values agree.
    value: String,
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
enum Subject {
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

/// The last edit of each setting. Within a subject, the order of [`ClashSubject`] puts the values of one
/// owner next to each other, ordered by path.
#[derive(Debug, Default)]
struct LastEdits(BTreeMap<Subject, BTreeMap<ClashSubject, LastEdit>>);

impl LastEdits {
    fn insert(&mut self, setting: ClashSubject, word: LastEdit) -> Option<LastEdit> {
        self.0.entry(subject(&setting)).or_default().insert(setting, word)
    }

    fn get(&self, setting: &ClashSubject) -> Option<&LastEdit> {
        self.0.get(&subject(setting))?.get(setting)
    }

    /// The last edit of the nearest enclosing value.
    fn around(&self, owner: &Owner, path: &str) -> Option<&LastEdit> {
        let mut path = path;
        while let Some((around, _)) = path.rsplit_once('/') {
            path = around;
            if let Some(word) = self.get(&owner.value(path)) {
                return Some(word);
            }
        }
        None
    }

    fn remove(&mut self, setting: &ClashSubject) -> Option<LastEdit> {
        self.0.get_mut(&subject(setting))?.remove(setting)
    }

    fn within(&self, reach: &SettingScope<'_>) -> Vec<ClashSubject> {
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
        let Some(words) = self.0.get(&subject(&from)) else { return Vec::new() };
        let keys = words.range(&from..).map(|(setting, _)| setting);
        keys.take_while(|setting| owner.path(setting).is_some_and(|path| path.starts_with(prefix)))
            .cloned()
            .collect()
    }
}

fn subject(setting: &ClashSubject) -> Subject {
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
    fn value(&self, path: &str) -> ClashSubject {
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
    words: LastEdits,
    data: BTreeMap<Owner, Value>,
    found: BTreeSet<Clash>,
    before: &'a dyn Before,
}

/// The value of a setting for a thing that the edit removes.
pub(super) const REMOVED: &str = "gone";
/// The value of a setting for a thing that the edit adds.
pub(super) const PRESENT: &str = "there";

impl<'a> Conflicts<'a> {
    /// The side effects of the current edit.
    pub fn side_effects(&self) -> Option<&'a SideEffects> {
        self.before.side_effects(self.edit)
    }

    /// Whether an earlier edit changed the setting.
    pub fn has(&self, setting: &ClashSubject) -> bool {
        self.words.get(setting).is_some()
    }

    /// Records that the current edit removes the data.
    pub fn clear_data(&mut self, owner: Owner) {
        self.data.insert(owner, nothing());
    }

    pub fn unbind(&mut self, node: NodeId, noderole: &NoderoleKey) {
        let setting = ClashSubject::Noderole { node, noderole: noderole.clone() };
        self.record_removal(setting, &SettingScope::Noderole(node, noderole));
        self.clear_data(Owner::Noderole(node, noderole.clone()));
    }

    /// Records the last edit of a setting, and a clash if another person set a different value.
    pub fn say(&mut self, setting: ClashSubject, value: &str) {
        let word = LastEdit { edit: self.edit, by: self.by, value: value.to_owned() };
        if let Some(last) = self.words.insert(setting.clone(), word)
            && last.by != self.by
            && last.value != value
        {
            self.found.insert(Clash { earlier: last.edit, later: self.edit, setting });
        }
    }

    /// Records the removal of a thing, which voids all settings in `reach`.
    pub fn record_removal(&mut self, setting: ClashSubject, reach: &SettingScope<'_>) {
        for known in self.words.within(reach) {
            // A setting that was removed before is not removed again.
            let Some(word) = self.words.remove(&known).filter(|word| word.value != REMOVED) else {
                continue;
            };
            if word.by != self.by {
                self.found.insert(Clash { earlier: word.edit, later: self.edit, setting: known });
            }
        }
        self.say(setting, REMOVED);
    }

    /// Records an edit of every value that the new data changes.
    pub fn set(&mut self, owner: Owner, data: &Value) {
        let was = match (self.data.get(&owner), &owner) {
            (Some(known), _) => Some(known.clone()),
            (None, Owner::Role(deployment, role)) => self.before.role_data(*deployment, role),
            (None, Owner::Noderole(node, noderole)) => self.before.noderole_data(*node, noderole),
        };
        let was = was.unwrap_or_else(nothing);
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
        for known in self.words.within(&SettingScope::Values(owner, &inside)) {
            if let Some(word) = self.words.remove(&known).filter(|word| word.by != self.by) {
                self.found.insert(Clash { earlier: word.edit, later: self.edit, setting: known });
            }
        }
        let setting = owner.value(&change.path);
        // No edit has set a value inside an object that is new.
        if change.kind != ChangeKind::Added
            && self.words.get(&setting).is_none()
            && let Some(around) =
                self.words.around(owner, &change.path).filter(|word| word.by != self.by)
        {
            self.found.insert(Clash {
                earlier: around.edit,
                later: self.edit,
                setting: setting.clone(),
            });
        }
        self.say(setting, &now);
    }
}

fn nothing() -> Value {
    Value::Object(serde_json::Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::edit::{self, Edit};
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    struct Nothing;

    impl Before for Nothing {
        fn side_effects(&self, _: u32) -> Option<&SideEffects> {
            None
        }
        fn role_data(&self, _: DeploymentId, _: &RoleName) -> Option<Value> {
            None
        }
        fn noderole_data(&self, _: NodeId, _: &NoderoleKey) -> Option<Value> {
            None
        }
    }

    struct Set(Value);

    impl Before for Set {
        fn side_effects(&self, _: u32) -> Option<&SideEffects> {
            None
        }
        fn role_data(&self, _: DeploymentId, _: &RoleName) -> Option<Value> {
            Some(self.0.clone())
        }
        fn noderole_data(&self, _: NodeId, _: &NoderoleKey) -> Option<Value> {
            Some(self.0.clone())
        }
    }

    const ADA: PersonId = PersonId(Uuid::from_u128(1));
    const BO: PersonId = PersonId(Uuid::from_u128(2));
    const WEB: DeploymentId = DeploymentId(Uuid::from_u128(10));
    const N1: NodeId = NodeId(Uuid::from_u128(20));

    fn role() -> RoleName {
        RoleName::parse("app").unwrap()
    }

    fn key() -> NoderoleKey {
        NoderoleKey::first(role())
    }

    fn data(value: Value) -> Edit {
        Edit::SetRoleData(edit::SetRoleData { deployment: WEB, role: role(), data: value })
    }

    fn own(value: Value) -> Edit {
        Edit::SetNoderoleData(edit::SetNoderoleData { node: N1, noderole: key(), data: value })
    }

    fn bind() -> Edit {
        Edit::Bind(edit::Bind { deployment: WEB, node: N1, role: role() })
    }

    fn unbind() -> Edit {
        Edit::Unbind(edit::Unbind { node: N1, noderole: key(), with_dependents: false })
    }

    fn found(before: &impl Before, edits: &[(PersonId, Edit)]) -> Vec<Clash> {
        let numbered: Vec<NumberedEdit> = (1..)
            .zip(edits)
            .map(|(seq, (_, edit))| NumberedEdit { seq, edit: edit.clone() })
            .collect();
        let signed: Vec<Signed<'_>> =
            numbered.iter().zip(edits).map(|(edit, (by, _))| Signed { edit, by: *by }).collect();
        clashes(&signed, before)
    }

    fn value(path: &str) -> ClashSubject {
        ClashSubject::RoleValue { deployment: WEB, role: role(), path: path.into() }
    }

    #[test]
    fn edits_of_same_value_clash() {
        let (one, other) =
            ((ADA, data(json!({"a": 1, "c": 0}))), (BO, data(json!({"a": 2, "b": 1, "c": 0}))));
        assert_eq!(
            found(&Nothing, &[one.clone(), other]),
            [Clash { earlier: 1, later: 2, setting: value("/a") }]
        );
        let beside = (BO, data(json!({"a": 1, "b": 1, "c": 0})));
        assert_eq!(found(&Nothing, &[one.clone(), beside]), []);
        let dropped = (BO, data(json!({"c": 0})));
        assert_eq!(
            found(&Nothing, &[one, dropped]),
            [Clash { earlier: 1, later: 2, setting: value("/a") }]
        );
    }

    #[test]
    fn existing_data_causes_no_clash() {
        let was = Set(json!({"a": 1, "b": 1}));
        let edits = [(ADA, data(json!({"a": 1, "b": 2}))), (BO, data(json!({"a": 5, "b": 2})))];
        assert_eq!(found(&was, &edits), []);
        assert_eq!(found(&Nothing, &edits).len(), 1, "without it, a would count as ada's");
    }

    #[test]
    fn replaced_object_clashes_with_inner_edits() {
        let edits = [
            (ADA, data(json!({"a": {"x": {"y": 1}}}))),
            (ADA, data(json!({"a": {"x": {"y": 2}}}))),
            (BO, data(json!({"a": [1]}))),
        ];
        let clashes = found(&Set(json!({"a": {"x": {"y": 0}}})), &edits);
        assert_eq!(clashes, [Clash { earlier: 2, later: 3, setting: value("/a/x/y") }]);
    }

    #[test]
    fn setting_object_sets_inner_values() {
        let made = (ADA, data(json!({"a": {"x": {"y": 1}, "z": 1}})));
        let inside = (BO, data(json!({"a": {"x": {"y": 2}, "z": 1}})));
        let clash = |earlier, later, path: &str| Clash { earlier, later, setting: value(path) };
        assert_eq!(found(&Nothing, &[made.clone(), inside.clone()]), [clash(1, 2, "/a/x/y")]);
        let dropped = (BO, data(json!({"a": {"x": {}, "z": 1}})));
        assert_eq!(found(&Nothing, &[made.clone(), dropped]), [clash(1, 2, "/a/x/y")]);
        let beside = (BO, data(json!({"a": {"x": {"y": 1, "new": 1}, "z": 1}})));
        assert_eq!(
            found(&Nothing, &[made.clone(), beside]),
            [],
            "nobody said that it is not there"
        );
        // The nearest edit is the last one: from then on, the value is bo's.
        let third = (PersonId(Uuid::from_u128(3)), data(json!({"a": {"x": {"y": 3}, "z": 2}})));
        let clashes = found(&Nothing, &[made.clone(), inside.clone(), inside.clone(), third]);
        assert_eq!(clashes, [clash(1, 2, "/a/x/y"), clash(1, 4, "/a/z"), clash(2, 4, "/a/x/y")]);
        assert_eq!(
            found(&Set(json!({"a": {"x": {"y": 1}, "z": 1}})), &[made, inside]),
            [],
            "it was there before"
        );
    }

    struct Takes(u32, SideEffects);

    impl Before for Takes {
        fn side_effects(&self, edit: u32) -> Option<&SideEffects> {
            (edit == self.0).then_some(&self.1)
        }
        fn role_data(&self, _: DeploymentId, _: &RoleName) -> Option<Value> {
            None
        }
        fn noderole_data(&self, _: NodeId, _: &NoderoleKey) -> Option<Value> {
            None
        }
    }

    #[test]
    fn removed_dependents_clash_like_named_noderoles() {
        let below = NoderoleKey::first(RoleName::parse("below").unwrap());
        let away =
            Edit::Unbind(edit::Unbind { node: N1, noderole: below.clone(), with_dependents: true });
        let takes = |edit| {
            Takes(edit, SideEffects { gone: [(N1, key())].into(), ..SideEffects::default() })
        };
        let app = ClashSubject::Noderole { node: N1, noderole: key() };
        let clash = [Clash { earlier: 1, later: 2, setting: app }];
        assert_eq!(found(&takes(2), &[(ADA, bind()), (BO, away.clone())]), clash);
        assert_eq!(found(&takes(1), &[(ADA, away.clone()), (BO, bind())]), clash);
        let own = found(&takes(2), &[(ADA, own(json!({"a": 1}))), (BO, away.clone())]);
        assert!(
            matches!(own.as_slice(), [Clash { setting: ClashSubject::NoderoleValue { .. }, .. }]),
            "{own:?}"
        );
        assert_eq!(found(&Nothing, &[(ADA, bind()), (BO, away)]), []);
    }

    #[test]
    fn bind_clashes_with_move_only_if_moving() {
        let edits =
            [(ADA, Edit::MoveNode(edit::MoveNode { node: N1, deployment: DB })), (BO, bind())];
        assert_eq!(
            found(&Nothing, &edits),
            [],
            "in a deployment above: the node stays where ada put it"
        );
        let moves = Takes(2, SideEffects { moved: [(N1, WEB)].into(), ..SideEffects::default() });
        assert_eq!(
            found(&moves, &edits),
            [Clash { earlier: 1, later: 2, setting: ClashSubject::NodeDeployment { node: N1 } }]
        );
    }

    #[test]
    fn bind_and_unbind_clash_in_any_order() {
        let setting = ClashSubject::Noderole { node: N1, noderole: key() };
        for edits in [[(ADA, bind()), (BO, unbind())], [(ADA, unbind()), (BO, bind())]] {
            assert_eq!(
                found(&Nothing, &edits),
                [Clash { earlier: 1, later: 2, setting: setting.clone() }]
            );
        }
    }

    #[test]
    fn removal_clashes_with_edits_inside() {
        let gone = Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: role() });
        let role_gone = found(&Nothing, &[(ADA, data(json!({"a": 1}))), (BO, gone)]);
        assert_eq!(role_gone, [Clash { earlier: 1, later: 2, setting: value("/a") }]);
        let noderole = found(&Nothing, &[(ADA, own(json!({"a": 1}))), (BO, unbind())]);
        assert!(matches!(
            noderole.as_slice(),
            [Clash { earlier: 1, later: 2, setting: ClashSubject::NoderoleValue { .. } }]
        ));
        let expunge = Edit::ExpungeNode(edit::ExpungeNode { node: N1, reason: "burnt".into() });
        assert_eq!(
            found(&Nothing, &[(ADA, bind()), (ADA, own(json!({"a": 1}))), (BO, expunge)]).len(),
            2
        );
        let remove = Edit::RemoveDeployment(edit::RemoveDeployment { deployment: WEB });
        assert_eq!(found(&Nothing, &[(ADA, data(json!({"a": 1}))), (BO, remove)]).len(), 1);
    }

    #[test]
    fn different_moves_versions_switches_and_policies_clash() {
        let to = |n: u128| {
            Edit::MoveNode(edit::MoveNode {
                node: N1,
                deployment: DeploymentId(Uuid::from_u128(n)),
            })
        };
        let jig = |active| {
            Edit::ActivateJig(edit::ActivateJig { jig: JigName::parse("script").unwrap(), active })
        };
        let version = |text: &[u8]| {
            Edit::UseBarclamp(edit::UseBarclamp {
                deployment: WEB,
                barclamp: BarclampName::parse("house").unwrap(),
                version: crate::Hash::of_bytes(text),
            })
        };
        let inherit = Edit::InheritBarclamp(edit::InheritBarclamp {
            deployment: WEB,
            barclamp: BarclampName::parse("house").unwrap(),
        });
        let policy = |approvals| {
            Edit::SetPolicy(edit::SetPolicy {
                policy: crate::gate::Policy { approvals, ..crate::gate::Policy::default() },
            })
        };
        let below = |n: u128| {
            Edit::MoveDeployment(edit::MoveDeployment {
                deployment: WEB,
                parent: DeploymentId(Uuid::from_u128(n)),
            })
        };
        for (one, other) in [
            (to(1), to(2)),
            (below(1), below(2)),
            (jig(true), jig(false)),
            (version(b"1"), version(b"2")),
            (version(b"1"), inherit.clone()),
            (inherit, version(b"1")),
            (policy(1), policy(2)),
        ] {
            assert_eq!(found(&Nothing, &[(ADA, one.clone()), (BO, other)]).len(), 1, "{one:?}");
            assert_eq!(found(&Nothing, &[(ADA, one.clone()), (BO, one)]), [], "the same again");
        }
    }

    const DB: DeploymentId = DeploymentId(Uuid::from_u128(11));
    const N2: NodeId = NodeId(Uuid::from_u128(21));

    /// Names with a common prefix, to test that neighbors are distinguished.
    fn any_role() -> impl Strategy<Value = RoleName> {
        "(a|ab|b)".prop_map(|name| RoleName::parse(&name).unwrap())
    }

    fn any_key() -> impl Strategy<Value = NoderoleKey> {
        (any_role(), 0..2_u32).prop_map(|(role, instance)| NoderoleKey { role, instance })
    }

    fn any_owner() -> impl Strategy<Value = Owner> {
        prop_oneof![
            (prop_oneof![Just(WEB), Just(DB)], any_role())
                .prop_map(|(d, role)| Owner::Role(d, role)),
            (prop_oneof![Just(N1), Just(N2)], any_key())
                .prop_map(|(n, key)| Owner::Noderole(n, key)),
        ]
    }

    fn any_setting() -> impl Strategy<Value = ClashSubject> {
        prop_oneof![
            4 => (any_owner(), "(|/a|/a/b|/a/b/c|/a-|/ab|/a/é|/b)").prop_map(|(owner, path)| owner.value(&path)),
            2 => (any_owner(), 0..3).prop_map(|(owner, which)| match (owner, which) {
                (Owner::Role(deployment, _), 0) => ClashSubject::Deployment { deployment },
                (Owner::Role(deployment, _), 1) => {
                    ClashSubject::Barclamp { deployment, barclamp: BarclampName::parse("house").unwrap() }
                }
                (Owner::Role(deployment, role), _) => ClashSubject::Role { deployment, role },
                (Owner::Noderole(node, _), 0) => ClashSubject::Node { node },
                (Owner::Noderole(node, noderole), 1) => ClashSubject::Noderole { node, noderole },
                (Owner::Noderole(node, noderole), _) => ClashSubject::Rerun { node, noderole },
            }),
            1 => Just(ClashSubject::NodeDeployment { node: N1 }),
            1 => Just(ClashSubject::Policy),
            1 => Just(ClashSubject::Jig { jig: JigName::parse("script").unwrap() }),
        ]
    }

    /// The definition of [`LastEdits::within`] for a single setting.
    fn reached(setting: &ClashSubject, reach: &SettingScope<'_>) -> bool {
        match (reach, setting) {
            (SettingScope::Deployment(_), ClashSubject::Deployment { .. })
            | (SettingScope::Node(_), ClashSubject::Node { .. }) => false,
            (SettingScope::Deployment(id), _) => subject(setting) == Subject::Deployment(*id),
            (SettingScope::Node(id), _) => subject(setting) == Subject::Node(*id),
            (SettingScope::Role(d, r), ClashSubject::RoleValue { deployment, role, .. }) => {
                d == deployment && *r == role
            }
            (
                SettingScope::Noderole(n, k),
                ClashSubject::NoderoleValue { node, noderole, .. }
                | ClashSubject::Rerun { node, noderole },
            ) => n == node && *k == noderole,
            (
                SettingScope::Values(owner, prefix),
                ClashSubject::RoleValue { path, .. } | ClashSubject::NoderoleValue { path, .. },
            ) => path.starts_with(prefix) && owner.value(path) == *setting,
            _ => false,
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test looks at the clock, not the engine")]
    fn thirty_thousand_values_are_checked_quickly() {
        let all = |to: u32| {
            data(Value::Object((0..30_000).map(|n| (format!("k{n}"), json!(to))).collect()))
        };
        let began = std::time::Instant::now();
        assert_eq!(found(&Nothing, &[(ADA, all(1)), (BO, all(2))]).len(), 30_000);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn single_author_skips_lookups() {
        struct Unasked;
        impl Before for Unasked {
            fn side_effects(&self, _: u32) -> Option<&SideEffects> {
                panic!("nothing to compare")
            }
            fn role_data(&self, _: DeploymentId, _: &RoleName) -> Option<Value> {
                panic!("nothing to compare")
            }
            fn noderole_data(&self, _: NodeId, _: &NoderoleKey) -> Option<Value> {
                panic!("nothing to compare")
            }
        }
        assert_eq!(
            found(&Unasked, &[(ADA, data(json!({"a": 1}))), (ADA, own(json!({"a": 1})))]),
            []
        );
    }

    fn any_edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            Just(bind()),
            Just(unbind()),
            ("[ab]", 0..3).prop_map(|(key, n)| data(json!({ key: n }))),
            ("[ab]", 0..3).prop_map(|(key, n)| own(json!({ key: n }))),
            Just(Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: role() })),
            Just(Edit::AddRole(edit::AddRole { deployment: WEB, role: role() })),
            Just(Edit::ExpungeNode(edit::ExpungeNode { node: N1, reason: "burnt".into() })),
        ]
    }

    proptest! {
        #[test]
        fn indexed_lookup_matches_linear_search(
            settings in proptest::collection::btree_set(any_setting(), 0..40),
            owner in any_owner(),
            prefix in "(/|/a|/a/|/a/b/|/b/)",
        ) {
            let mut words = LastEdits::default();
            for setting in &settings {
                words.insert(setting.clone(), LastEdit { edit: 1, by: ADA, value: PRESENT.into() });
            }
            let wide = match &owner {
                Owner::Role(deployment, role) => [SettingScope::Deployment(*deployment), SettingScope::Role(*deployment, role)],
                Owner::Noderole(node, noderole) => [SettingScope::Node(*node), SettingScope::Noderole(*node, noderole)],
            };
            for reach in wide.into_iter().chain([SettingScope::Values(&owner, &prefix)]) {
                let looked_up: BTreeSet<ClashSubject> = words.within(&reach).into_iter().collect();
                let simply: BTreeSet<ClashSubject> = settings.iter().filter(|setting| reached(setting, &reach)).cloned().collect();
                prop_assert_eq!(looked_up, simply, "{:?}", reach);
            }
        }

        #[test]
        fn own_edits_never_clash(edits in proptest::collection::vec(any_edit(), 0..12)) {
            let mine: Vec<_> = edits.into_iter().map(|edit| (ADA, edit)).collect();
            prop_assert_eq!(found(&Nothing, &mine), []);
        }

        #[test]
        fn later_edit_wins_clash(edits in proptest::collection::vec((any::<bool>(), any_edit()), 0..12)) {
            let all: Vec<_> = edits.into_iter().map(|(ada, edit)| (if ada { ADA } else { BO }, edit)).collect();
            for clash in found(&Nothing, &all) {
                prop_assert!(clash.earlier < clash.later);
                prop_assert_ne!(all[clash.earlier as usize - 1].0, all[clash.later as usize - 1].0);
            }
        }
    }
}
