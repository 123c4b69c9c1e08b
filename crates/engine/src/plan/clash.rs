//! Clashes: where one person's edit overrules another's in the same proposal.
//!
//! Several people may edit one proposal, and the later edit wins. That is a rule, not an accident: but it must not happen unseen. So
//! wherever an edit takes away, replaces or contradicts what somebody *else* said in it, both edits are named, with what they are
//! about. Nobody clashes with themselves, and saying the same again is none.
//!
//! Setting data replaces the whole of it, and whoever sets it has the other's data before them; so two such edits clash only at the
//! places that both changed, each compared with what stood there before it. Whoever put an object there said every value in it, so
//! what was last said of a value may be a word on something around it. What a deployment or noderole has before the first edit is
//! asked for ([`Before`]), because the edits don't say it.
//!
//! Nor do they say what they take along: unbinding takes dependents along where it says so, and binding a node that still belongs
//! further up. That only the planner knows ([`Along`]), and it is a word like any other. Binding in a deployment *above* the node's
//! leaves the node where it is, so that is no word on its place.
//!
//! Every view of an open proposal asks, so it has to be cheap where a proposal sets thousands of values: what is looked for lies
//! side by side ([`Words`]), and nothing is looked for while a proposal has one author.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit::{Edit, NumberedEdit};
use crate::cluster::NoderoleKey;
use crate::data::{Change, ChangeKind, diff};
use crate::ids::{BarclampName, DeploymentId, JigName, NodeId, PersonId, RoleName};

/// An edit that counts, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// What.
    pub edit: &'a NumberedEdit,
    /// Whose.
    pub by: PersonId,
}

/// What can be said only once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "over", rename_all = "snake_case")]
pub enum Over {
    /// Whether a deployment is there.
    Deployment {
        /// Which.
        deployment: DeploymentId,
    },
    /// The version of a barclamp in a deployment.
    Barclamp {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        barclamp: BarclampName,
    },
    /// Whether a deployment has a role.
    Role {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        role: RoleName,
    },
    /// A value of a deployment's data for a role.
    RoleValue {
        /// Where.
        deployment: DeploymentId,
        /// Which.
        role: RoleName,
        /// A JSON pointer.
        path: String,
    },
    /// Whether a node is there.
    Node {
        /// Which.
        node: NodeId,
    },
    /// The deployment of a node.
    Place {
        /// Of which.
        node: NodeId,
    },
    /// A field of a node's connection.
    Connection {
        /// Of which node.
        node: NodeId,
        /// The field.
        field: String,
    },
    /// A node's hints.
    Hints {
        /// Of which node.
        node: NodeId,
    },
    /// Whether a node carries a noderole.
    Noderole {
        /// Where.
        node: NodeId,
        /// What.
        noderole: NoderoleKey,
    },
    /// A value of a noderole's own data.
    NoderoleValue {
        /// Where.
        node: NodeId,
        /// What.
        noderole: NoderoleKey,
        /// A JSON pointer.
        path: String,
    },
    /// That a noderole runs again.
    Rerun {
        /// Where.
        node: NodeId,
        /// What.
        noderole: NoderoleKey,
    },
    /// Whether a jig is on.
    Jig {
        /// Which.
        jig: JigName,
    },
    /// The gate's policy.
    Policy,
}

/// Two people's edits of which the later overrules the earlier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clash {
    /// The edit that loses.
    pub earlier: u32,
    /// The edit that wins.
    pub later: u32,
    /// What they are about.
    pub over: Over,
}

/// What an edit takes along besides what it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Along {
    /// Noderoles that can't be without the one that it unbinds.
    pub gone: BTreeSet<(NodeId, NoderoleKey)>,
    /// Nodes that come to the deployment in which it binds.
    pub moved: BTreeMap<NodeId, DeploymentId>,
}

impl Along {
    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.moved.is_empty()
    }
}

/// What the edits don't say themselves.
pub trait Before {
    /// What an edit takes along, as [`resolve_with`](super::resolve::resolve_with) has it.
    fn along(&self, edit: u32) -> Option<&Along>;
    /// A deployment's data for a role, as it is meant now; None: there is none.
    fn role_data(&self, deployment: DeploymentId, role: &RoleName) -> Option<Value>;
    /// A noderole's own data, as it is meant now; None: there is none.
    fn noderole_data(&self, node: NodeId, noderole: &NoderoleKey) -> Option<Value>;
}

/// Every clash among these edits, in the order of the later edit. Those that were taken back are not to be given.
pub fn clashes(edits: &[Signed<'_>], before: &impl Before) -> Vec<Clash> {
    if edits.windows(2).all(|two| two[0].by == two[1].by) {
        return Vec::new();
    }
    let mut said =
        Said { words: Words::default(), data: BTreeMap::new(), found: BTreeSet::new(), before };
    for signed in edits {
        signed.edit.edit.each().iter().for_each(|edit| said.hear(signed, edit));
    }
    let mut found: Vec<Clash> = said.found.into_iter().collect();
    found.sort_by(|a, b| (a.later, a.earlier, &a.over).cmp(&(b.later, b.earlier, &b.over)));
    found
}

/// What somebody last said of something.
#[derive(Debug, Clone)]
struct Word {
    edit: u32,
    by: PersonId,
    /// Edits with the same meaning agree.
    meaning: String,
}

/// Whose data: a deployment's for a role, or a noderole's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Role(DeploymentId, RoleName),
    Noderole(NodeId, NoderoleKey),
}

/// What a word belongs to: whatever goes with a deployment or a node lies under it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Deployment(DeploymentId),
    Node(NodeId),
    Jig,
    Policy,
}

/// What loses its meaning together.
#[derive(Debug)]
enum Reach<'a> {
    /// Everything in a deployment.
    Deployment(DeploymentId),
    /// The values of a deployment's role.
    Role(DeploymentId, &'a RoleName),
    /// Everything on a node.
    Node(NodeId),
    /// The values of a noderole, and that it runs again.
    Noderole(NodeId, &'a NoderoleKey),
    /// The values of one owner whose paths begin with this.
    Values(&'a Owner, &'a str),
}

/// The last words. Under a subject the order of [`Over`] puts the values of one owner side by side, in the order of their paths.
#[derive(Debug, Default)]
struct Words(BTreeMap<Subject, BTreeMap<Over, Word>>);

impl Words {
    fn insert(&mut self, over: Over, word: Word) -> Option<Word> {
        self.0.entry(subject(&over)).or_default().insert(over, word)
    }

    fn get(&self, over: &Over) -> Option<&Word> {
        self.0.get(&subject(over))?.get(over)
    }

    /// The word on the nearest thing around a value.
    fn around(&self, owner: &Owner, path: &str) -> Option<&Word> {
        let mut path = path;
        while let Some((around, _)) = path.rsplit_once('/') {
            path = around;
            if let Some(word) = self.get(&owner.value(path)) {
                return Some(word);
            }
        }
        None
    }

    fn remove(&mut self, over: &Over) -> Option<Word> {
        self.0.get_mut(&subject(over))?.remove(over)
    }

    fn within(&self, reach: &Reach<'_>) -> Vec<Over> {
        match reach {
            Reach::Deployment(id) => {
                let inside = |over: &&Over| !matches!(over, Over::Deployment { .. });
                self.under(&Subject::Deployment(*id)).filter(inside).cloned().collect()
            }
            Reach::Role(deployment, role) => {
                self.values(&Owner::Role(*deployment, (*role).clone()), "")
            }
            Reach::Node(id) => {
                let inside = |over: &&Over| !matches!(over, Over::Node { .. });
                self.under(&Subject::Node(*id)).filter(inside).cloned().collect()
            }
            Reach::Noderole(node, noderole) => {
                let mut all = self.values(&Owner::Noderole(*node, (*noderole).clone()), "");
                let rerun = Over::Rerun { node: *node, noderole: (*noderole).clone() };
                all.extend(self.get(&rerun).is_some().then_some(rerun));
                all
            }
            Reach::Values(owner, prefix) => self.values(owner, prefix),
        }
    }

    fn under(&self, subject: &Subject) -> impl Iterator<Item = &Over> {
        self.0.get(subject).into_iter().flat_map(BTreeMap::keys)
    }

    fn values(&self, owner: &Owner, prefix: &str) -> Vec<Over> {
        let from = owner.value(prefix);
        let Some(words) = self.0.get(&subject(&from)) else { return Vec::new() };
        let keys = words.range(&from..).map(|(over, _)| over);
        keys.take_while(|over| owner.path(over).is_some_and(|path| path.starts_with(prefix)))
            .cloned()
            .collect()
    }
}

fn subject(over: &Over) -> Subject {
    match over {
        Over::Deployment { deployment }
        | Over::Barclamp { deployment, .. }
        | Over::Role { deployment, .. }
        | Over::RoleValue { deployment, .. } => Subject::Deployment(*deployment),
        Over::Node { node }
        | Over::Place { node }
        | Over::Connection { node, .. }
        | Over::Hints { node }
        | Over::Noderole { node, .. }
        | Over::NoderoleValue { node, .. }
        | Over::Rerun { node, .. } => Subject::Node(*node),
        Over::Jig { .. } => Subject::Jig,
        Over::Policy => Subject::Policy,
    }
}

impl Owner {
    fn value(&self, path: &str) -> Over {
        match self {
            Self::Role(deployment, role) => Over::RoleValue {
                deployment: *deployment,
                role: role.clone(),
                path: path.to_owned(),
            },
            Self::Noderole(node, noderole) => Over::NoderoleValue {
                node: *node,
                noderole: noderole.clone(),
                path: path.to_owned(),
            },
        }
    }

    /// The path of a value of this owner's data.
    fn path<'o>(&self, over: &'o Over) -> Option<&'o str> {
        match (self, over) {
            (Self::Role(d, r), Over::RoleValue { deployment, role, path })
                if d == deployment && r == role =>
            {
                Some(path)
            }
            (Self::Noderole(n, k), Over::NoderoleValue { node, noderole, path })
                if n == node && k == noderole =>
            {
                Some(path)
            }
            _ => None,
        }
    }
}

struct Said<'a, B> {
    words: Words,
    data: BTreeMap<Owner, Value>,
    found: BTreeSet<Clash>,
    before: &'a B,
}

/// That something is not to be there.
const GONE: &str = "gone";
/// That something is to be there.
const THERE: &str = "there";

impl<B: Before> Said<'_, B> {
    /// Takes in a single edit, which may be one of many that a signed edit lists.
    fn hear(&mut self, signed: &Signed<'_>, edit: &Edit) {
        match edit {
            Edit::CreateDeployment { id, .. } => {
                self.say(signed, Over::Deployment { deployment: *id }, THERE)
            }
            Edit::RemoveDeployment { deployment } => {
                self.take_away(
                    signed,
                    Over::Deployment { deployment: *deployment },
                    &Reach::Deployment(*deployment),
                );
            }
            Edit::UseBarclamp { deployment, barclamp, version } => {
                let over = Over::Barclamp { deployment: *deployment, barclamp: barclamp.clone() };
                self.say(signed, over, &version.to_string());
            }
            Edit::InheritBarclamp { deployment, barclamp } => {
                let over = Over::Barclamp { deployment: *deployment, barclamp: barclamp.clone() };
                self.say(signed, over, GONE);
            }
            Edit::AddRole { deployment, role } => {
                self.say(signed, Over::Role { deployment: *deployment, role: role.clone() }, THERE);
            }
            Edit::RemoveRole { deployment, role } => {
                let over = Over::Role { deployment: *deployment, role: role.clone() };
                self.take_away(signed, over, &Reach::Role(*deployment, role));
                self.data.insert(Owner::Role(*deployment, role.clone()), nothing());
            }
            Edit::SetRoleData { deployment, role, data } => {
                self.set(signed, Owner::Role(*deployment, role.clone()), data);
            }
            Edit::Bind { deployment, node, role } => {
                let noderole = NoderoleKey::first(role.clone());
                self.say(signed, Over::Noderole { node: *node, noderole }, THERE);
                // That it brings the node along is no word of its own; but it is one against whoever put the node elsewhere.
                let place = Over::Place { node: *node };
                let moves = self
                    .before
                    .along(signed.edit.seq)
                    .is_some_and(|along| along.moved.contains_key(node));
                if moves && self.words.get(&place).is_some() {
                    self.say(signed, place, &deployment.to_string());
                }
            }
            Edit::Unbind { node, noderole, .. } => {
                self.unbind(signed, *node, noderole);
                let before = self.before;
                for (node, noderole) in
                    before.along(signed.edit.seq).into_iter().flat_map(|along| &along.gone)
                {
                    self.unbind(signed, *node, noderole);
                }
            }
            Edit::SetNoderoleData { node, noderole, data } => {
                self.set(signed, Owner::Noderole(*node, noderole.clone()), data);
            }
            Edit::MoveNode { node, deployment } => {
                self.say(signed, Over::Place { node: *node }, &deployment.to_string());
            }
            Edit::SetConnection { node, connection } => {
                for (field, value) in connection.fields() {
                    self.say(signed, Over::Connection { node: *node, field }, &value);
                }
            }
            Edit::SetHints { node, hints } => {
                self.say(signed, Over::Hints { node: *node }, &hints.to_string())
            }
            Edit::ExpungeNode { node, .. } => {
                self.take_away(signed, Over::Node { node: *node }, &Reach::Node(*node));
            }
            Edit::Rerun { node, noderole, .. } => {
                self.say(signed, Over::Rerun { node: *node, noderole: noderole.clone() }, THERE);
            }
            // It asks for more; whatever it names may also be asked for by itself. Lists come here in their single edits.
            Edit::RerunSlice { .. } | Edit::BindNodes { .. } | Edit::UnbindNodes { .. } => {}
            Edit::ActivateJig { jig, active } => {
                self.say(signed, Over::Jig { jig: jig.clone() }, &active.to_string());
            }
            Edit::SetPolicy { policy } => {
                self.say(signed, Over::Policy, &serde_json::to_string(policy).unwrap_or_default());
            }
        }
    }

    fn unbind(&mut self, signed: &Signed<'_>, node: NodeId, noderole: &NoderoleKey) {
        let over = Over::Noderole { node, noderole: noderole.clone() };
        self.take_away(signed, over, &Reach::Noderole(node, noderole));
        self.data.insert(Owner::Noderole(node, noderole.clone()), nothing());
    }

    /// The last word on something; a clash if another person's was different.
    fn say(&mut self, signed: &Signed<'_>, over: Over, meaning: &str) {
        let word = Word { edit: signed.edit.seq, by: signed.by, meaning: meaning.to_owned() };
        if let Some(last) = self.words.insert(over.clone(), word)
            && last.by != signed.by
            && last.meaning != meaning
        {
            self.found.insert(Clash { earlier: last.edit, later: signed.edit.seq, over });
        }
    }

    /// The last word on something with everything in it.
    fn take_away(&mut self, signed: &Signed<'_>, over: Over, reach: &Reach<'_>) {
        for known in self.words.within(reach) {
            // What was taken away before is not taken away again.
            let Some(word) = self.words.remove(&known).filter(|word| word.meaning != GONE) else {
                continue;
            };
            if word.by != signed.by {
                self.found.insert(Clash {
                    earlier: word.edit,
                    later: signed.edit.seq,
                    over: known,
                });
            }
        }
        self.say(signed, over, GONE);
    }

    /// Data that replaces what was there: a word on every value that it changes.
    fn set(&mut self, signed: &Signed<'_>, owner: Owner, data: &Value) {
        let was = match (self.data.get(&owner), &owner) {
            (Some(known), _) => Some(known.clone()),
            (None, Owner::Role(deployment, role)) => self.before.role_data(*deployment, role),
            (None, Owner::Noderole(node, noderole)) => self.before.noderole_data(*node, noderole),
        };
        let was = was.unwrap_or_else(nothing);
        // Data that is nested too deep is refused where it is set.
        for change in diff(&was, data).unwrap_or_default() {
            self.set_value(signed, &owner, &change, data);
        }
        self.data.insert(owner, data.clone());
    }

    fn set_value(&mut self, signed: &Signed<'_>, owner: &Owner, change: &Change, data: &Value) {
        // A list in place of an object, or no object at all, overrules what was said of the values in it.
        let inside = format!("{}/", change.path);
        let now = data.pointer(&change.path).map_or_else(|| GONE.to_owned(), Value::to_string);
        for known in self.words.within(&Reach::Values(owner, &inside)) {
            if let Some(word) = self.words.remove(&known).filter(|word| word.by != signed.by) {
                self.found.insert(Clash {
                    earlier: word.edit,
                    later: signed.edit.seq,
                    over: known,
                });
            }
        }
        let over = owner.value(&change.path);
        // Of what comes into an object nobody said anything there.
        if change.kind != ChangeKind::Added
            && self.words.get(&over).is_none()
            && let Some(around) =
                self.words.around(owner, &change.path).filter(|word| word.by != signed.by)
        {
            self.found.insert(Clash {
                earlier: around.edit,
                later: signed.edit.seq,
                over: over.clone(),
            });
        }
        self.say(signed, over, &now);
    }
}

fn nothing() -> Value {
    Value::Object(serde_json::Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    struct Nothing;

    impl Before for Nothing {
        fn along(&self, _: u32) -> Option<&Along> {
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
        fn along(&self, _: u32) -> Option<&Along> {
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
        Edit::SetRoleData { deployment: WEB, role: role(), data: value }
    }

    fn own(value: Value) -> Edit {
        Edit::SetNoderoleData { node: N1, noderole: key(), data: value }
    }

    fn bind() -> Edit {
        Edit::Bind { deployment: WEB, node: N1, role: role() }
    }

    fn unbind() -> Edit {
        Edit::Unbind { node: N1, noderole: key(), with_dependents: false }
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

    fn value(path: &str) -> Over {
        Over::RoleValue { deployment: WEB, role: role(), path: path.into() }
    }

    #[test]
    fn two_words_on_one_value_clash_and_two_values_do_not() {
        let (one, other) =
            ((ADA, data(json!({"a": 1, "c": 0}))), (BO, data(json!({"a": 2, "b": 1, "c": 0}))));
        assert_eq!(
            found(&Nothing, &[one.clone(), other]),
            [Clash { earlier: 1, later: 2, over: value("/a") }]
        );
        let beside = (BO, data(json!({"a": 1, "b": 1, "c": 0})));
        assert_eq!(found(&Nothing, &[one.clone(), beside]), []);
        let dropped = (BO, data(json!({"c": 0})));
        assert_eq!(
            found(&Nothing, &[one, dropped]),
            [Clash { earlier: 1, later: 2, over: value("/a") }]
        );
    }

    #[test]
    fn what_was_there_before_is_nobodys_word() {
        let was = Set(json!({"a": 1, "b": 1}));
        let edits = [(ADA, data(json!({"a": 1, "b": 2}))), (BO, data(json!({"a": 5, "b": 2})))];
        assert_eq!(found(&was, &edits), []);
        assert_eq!(found(&Nothing, &edits).len(), 1, "without it, a would count as ada's");
    }

    #[test]
    fn a_value_that_swallows_others_clashes_with_them() {
        let edits = [
            (ADA, data(json!({"a": {"x": {"y": 1}}}))),
            (ADA, data(json!({"a": {"x": {"y": 2}}}))),
            (BO, data(json!({"a": [1]}))),
        ];
        let clashes = found(&Set(json!({"a": {"x": {"y": 0}}})), &edits);
        assert_eq!(clashes, [Clash { earlier: 2, later: 3, over: value("/a/x/y") }]);
    }

    #[test]
    fn who_made_the_object_around_a_value_said_the_value() {
        let made = (ADA, data(json!({"a": {"x": {"y": 1}, "z": 1}})));
        let inside = (BO, data(json!({"a": {"x": {"y": 2}, "z": 1}})));
        let clash = |earlier, later, path: &str| Clash { earlier, later, over: value(path) };
        assert_eq!(found(&Nothing, &[made.clone(), inside.clone()]), [clash(1, 2, "/a/x/y")]);
        let dropped = (BO, data(json!({"a": {"x": {}, "z": 1}})));
        assert_eq!(found(&Nothing, &[made.clone(), dropped]), [clash(1, 2, "/a/x/y")]);
        let beside = (BO, data(json!({"a": {"x": {"y": 1, "new": 1}, "z": 1}})));
        assert_eq!(
            found(&Nothing, &[made.clone(), beside]),
            [],
            "nobody said that it is not there"
        );
        // The nearest word is the last one: from then on the value is bo's.
        let third = (PersonId(Uuid::from_u128(3)), data(json!({"a": {"x": {"y": 3}, "z": 2}})));
        let clashes = found(&Nothing, &[made.clone(), inside.clone(), inside.clone(), third]);
        assert_eq!(clashes, [clash(1, 2, "/a/x/y"), clash(1, 4, "/a/z"), clash(2, 4, "/a/x/y")]);
        assert_eq!(
            found(&Set(json!({"a": {"x": {"y": 1}, "z": 1}})), &[made, inside]),
            [],
            "it was there before"
        );
    }

    struct Takes(u32, Along);

    impl Before for Takes {
        fn along(&self, edit: u32) -> Option<&Along> {
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
    fn what_goes_along_is_taken_away_like_what_is_named() {
        let below = NoderoleKey::first(RoleName::parse("below").unwrap());
        let away = Edit::Unbind { node: N1, noderole: below.clone(), with_dependents: true };
        let takes = |edit| Takes(edit, Along { gone: [(N1, key())].into(), ..Along::default() });
        let app = Over::Noderole { node: N1, noderole: key() };
        let clash = [Clash { earlier: 1, later: 2, over: app }];
        assert_eq!(found(&takes(2), &[(ADA, bind()), (BO, away.clone())]), clash);
        assert_eq!(found(&takes(1), &[(ADA, away.clone()), (BO, bind())]), clash);
        let own = found(&takes(2), &[(ADA, own(json!({"a": 1}))), (BO, away.clone())]);
        assert!(
            matches!(own.as_slice(), [Clash { over: Over::NoderoleValue { .. }, .. }]),
            "{own:?}"
        );
        assert_eq!(found(&Nothing, &[(ADA, bind()), (BO, away)]), []);
    }

    #[test]
    fn only_a_binding_that_brings_the_node_along_is_a_word_on_its_place() {
        let edits = [(ADA, Edit::MoveNode { node: N1, deployment: DB }), (BO, bind())];
        assert_eq!(
            found(&Nothing, &edits),
            [],
            "in a deployment above: the node stays where ada put it"
        );
        let moves = Takes(2, Along { moved: [(N1, WEB)].into(), ..Along::default() });
        assert_eq!(
            found(&moves, &edits),
            [Clash { earlier: 1, later: 2, over: Over::Place { node: N1 } }]
        );
    }

    #[test]
    fn binding_and_unbinding_clash_either_way() {
        let over = Over::Noderole { node: N1, noderole: key() };
        for edits in [[(ADA, bind()), (BO, unbind())], [(ADA, unbind()), (BO, bind())]] {
            assert_eq!(
                found(&Nothing, &edits),
                [Clash { earlier: 1, later: 2, over: over.clone() }]
            );
        }
    }

    #[test]
    fn taking_something_away_clashes_with_what_was_said_in_it() {
        let gone = Edit::RemoveRole { deployment: WEB, role: role() };
        let role_gone = found(&Nothing, &[(ADA, data(json!({"a": 1}))), (BO, gone)]);
        assert_eq!(role_gone, [Clash { earlier: 1, later: 2, over: value("/a") }]);
        let noderole = found(&Nothing, &[(ADA, own(json!({"a": 1}))), (BO, unbind())]);
        assert!(matches!(
            noderole.as_slice(),
            [Clash { earlier: 1, later: 2, over: Over::NoderoleValue { .. } }]
        ));
        let expunge = Edit::ExpungeNode { node: N1, reason: "burnt".into() };
        assert_eq!(
            found(&Nothing, &[(ADA, bind()), (ADA, own(json!({"a": 1}))), (BO, expunge)]).len(),
            2
        );
        let remove = Edit::RemoveDeployment { deployment: WEB };
        assert_eq!(found(&Nothing, &[(ADA, data(json!({"a": 1}))), (BO, remove)]).len(), 1);
    }

    #[test]
    fn other_targets_versions_switches_and_policies_clash() {
        let to =
            |n: u128| Edit::MoveNode { node: N1, deployment: DeploymentId(Uuid::from_u128(n)) };
        let jig = |active| Edit::ActivateJig { jig: JigName::parse("script").unwrap(), active };
        let version = |text: &[u8]| Edit::UseBarclamp {
            deployment: WEB,
            barclamp: BarclampName::parse("house").unwrap(),
            version: crate::Hash::of_bytes(text),
        };
        let inherit = Edit::InheritBarclamp {
            deployment: WEB,
            barclamp: BarclampName::parse("house").unwrap(),
        };
        let policy = |approvals| Edit::SetPolicy {
            policy: crate::gate::Policy { approvals, ..crate::gate::Policy::default() },
        };
        for (one, other) in [
            (to(1), to(2)),
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

    /// Names that begin alike, so that neighbours are told apart.
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

    fn any_over() -> impl Strategy<Value = Over> {
        prop_oneof![
            4 => (any_owner(), "(|/a|/a/b|/a/b/c|/a-|/ab|/a/é|/b)").prop_map(|(owner, path)| owner.value(&path)),
            2 => (any_owner(), 0..3).prop_map(|(owner, which)| match (owner, which) {
                (Owner::Role(deployment, _), 0) => Over::Deployment { deployment },
                (Owner::Role(deployment, _), 1) => {
                    Over::Barclamp { deployment, barclamp: BarclampName::parse("house").unwrap() }
                }
                (Owner::Role(deployment, role), _) => Over::Role { deployment, role },
                (Owner::Noderole(node, _), 0) => Over::Node { node },
                (Owner::Noderole(node, noderole), 1) => Over::Noderole { node, noderole },
                (Owner::Noderole(node, noderole), _) => Over::Rerun { node, noderole },
            }),
            1 => Just(Over::Place { node: N1 }),
            1 => Just(Over::Policy),
            1 => Just(Over::Jig { jig: JigName::parse("script").unwrap() }),
        ]
    }

    /// What [`Words::within`] means, asked of one word.
    fn reached(over: &Over, reach: &Reach<'_>) -> bool {
        match (reach, over) {
            (Reach::Deployment(_), Over::Deployment { .. })
            | (Reach::Node(_), Over::Node { .. }) => false,
            (Reach::Deployment(id), _) => subject(over) == Subject::Deployment(*id),
            (Reach::Node(id), _) => subject(over) == Subject::Node(*id),
            (Reach::Role(d, r), Over::RoleValue { deployment, role, .. }) => {
                d == deployment && *r == role
            }
            (
                Reach::Noderole(n, k),
                Over::NoderoleValue { node, noderole, .. } | Over::Rerun { node, noderole },
            ) => n == node && *k == noderole,
            (
                Reach::Values(owner, prefix),
                Over::RoleValue { path, .. } | Over::NoderoleValue { path, .. },
            ) => path.starts_with(prefix) && owner.value(path) == *over,
            _ => false,
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test looks at the clock, not the engine")]
    fn thirty_thousand_values_of_two_people_take_no_time() {
        let all = |to: u32| {
            data(Value::Object((0..30_000).map(|n| (format!("k{n}"), json!(to))).collect()))
        };
        let began = std::time::Instant::now();
        assert_eq!(found(&Nothing, &[(ADA, all(1)), (BO, all(2))]).len(), 30_000);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn one_author_is_not_asked_what_was_there() {
        struct Unasked;
        impl Before for Unasked {
            fn along(&self, _: u32) -> Option<&Along> {
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
            Just(Edit::RemoveRole { deployment: WEB, role: role() }),
            Just(Edit::AddRole { deployment: WEB, role: role() }),
            Just(Edit::ExpungeNode { node: N1, reason: "burnt".into() }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_looked_up_is_what_a_look_at_every_word_finds(
            overs in proptest::collection::btree_set(any_over(), 0..40),
            owner in any_owner(),
            prefix in "(/|/a|/a/|/a/b/|/b/)",
        ) {
            let mut words = Words::default();
            for over in &overs {
                words.insert(over.clone(), Word { edit: 1, by: ADA, meaning: THERE.into() });
            }
            let wide = match &owner {
                Owner::Role(deployment, role) => [Reach::Deployment(*deployment), Reach::Role(*deployment, role)],
                Owner::Noderole(node, noderole) => [Reach::Node(*node), Reach::Noderole(*node, noderole)],
            };
            for reach in wide.into_iter().chain([Reach::Values(&owner, &prefix)]) {
                let looked_up: BTreeSet<Over> = words.within(&reach).into_iter().collect();
                let simply: BTreeSet<Over> = overs.iter().filter(|over| reached(over, &reach)).cloned().collect();
                prop_assert_eq!(looked_up, simply, "{:?}", reach);
            }
        }

        #[test]
        fn nobody_clashes_with_themselves(edits in proptest::collection::vec(any_edit(), 0..12)) {
            let mine: Vec<_> = edits.into_iter().map(|edit| (ADA, edit)).collect();
            prop_assert_eq!(found(&Nothing, &mine), []);
        }

        #[test]
        fn the_later_of_two_people_wins(edits in proptest::collection::vec((any::<bool>(), any_edit()), 0..12)) {
            let all: Vec<_> = edits.into_iter().map(|(ada, edit)| (if ada { ADA } else { BO }, edit)).collect();
            for clash in found(&Nothing, &all) {
                prop_assert!(clash.earlier < clash.later);
                prop_assert_ne!(all[clash.earlier as usize - 1].0, all[clash.later as usize - 1].0);
            }
        }
    }
}
