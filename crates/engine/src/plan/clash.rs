//! Clashes: where one person's edit overrules another's in the same proposal.
//!
//! Several people may edit one proposal, and the later edit wins. That is a rule, not an accident: but it must not happen unseen. So
//! wherever an edit takes away, replaces or contradicts what somebody *else* said in it, both edits are named, with what they are
//! about. Nobody clashes with themselves, and saying the same again is none.
//!
//! Setting data replaces the whole of it, and whoever sets it has the other's data before them; so two such edits clash only at the
//! places that both changed, each compared with what stood there before it. What a deployment or noderole has before the first edit
//! is asked for ([`Before`]), because the edits don't say it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit::{Edit, NumberedEdit};
use crate::cluster::NoderoleKey;
use crate::data::{Change, diff};
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
pub struct Clash {
    /// The edit that loses.
    pub earlier: u32,
    /// The edit that wins.
    pub later: u32,
    /// What they are about.
    pub over: Over,
}

/// What is meant now, where an edit sets data; None: nothing is.
pub trait Before {
    /// A deployment's data for a role.
    fn role_data(&self, deployment: DeploymentId, role: &RoleName) -> Option<Value>;
    /// A noderole's own data.
    fn noderole_data(&self, node: NodeId, noderole: &NoderoleKey) -> Option<Value>;
}

/// Every clash among these edits, in the order of the later edit. Those that were taken back are not to be given.
pub fn clashes(edits: &[Signed<'_>], before: &impl Before) -> Vec<Clash> {
    let mut said = Said { words: BTreeMap::new(), data: BTreeMap::new(), found: BTreeSet::new(), before };
    edits.iter().for_each(|signed| said.hear(signed));
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

struct Said<'a, B> {
    words: BTreeMap<Over, Word>,
    data: BTreeMap<Owner, Value>,
    found: BTreeSet<Clash>,
    before: &'a B,
}

/// That something is not to be there.
const GONE: &str = "gone";
/// That something is to be there.
const THERE: &str = "there";

impl<B: Before> Said<'_, B> {
    fn hear(&mut self, signed: &Signed<'_>) {
        match &signed.edit.edit {
            Edit::CreateDeployment { id, .. } => self.say(signed, Over::Deployment { deployment: *id }, THERE),
            Edit::RemoveDeployment { deployment } => {
                let inside = |over: &Over| in_deployment(over, *deployment);
                self.take_away(signed, Over::Deployment { deployment: *deployment }, inside);
            }
            Edit::UseBarclamp { deployment, barclamp, version } => {
                let over = Over::Barclamp { deployment: *deployment, barclamp: barclamp.clone() };
                self.say(signed, over, &version.to_string());
            }
            Edit::AddRole { deployment, role } => {
                self.say(signed, Over::Role { deployment: *deployment, role: role.clone() }, THERE);
            }
            Edit::RemoveRole { deployment, role } => {
                let inside = |over: &Over| matches!(over, Over::RoleValue { deployment: d, role: r, .. } if d == deployment && r == role);
                self.take_away(signed, Over::Role { deployment: *deployment, role: role.clone() }, inside);
                self.data.remove(&Owner::Role(*deployment, role.clone()));
            }
            Edit::SetRoleData { deployment, role, data } => {
                self.set(signed, Owner::Role(*deployment, role.clone()), data);
            }
            Edit::Bind { deployment, node, role } => {
                let noderole = NoderoleKey::first(role.clone());
                self.say(signed, Over::Noderole { node: *node, noderole }, THERE);
                // It may bring the node along, which is no word against whoever put it there.
                let place = Over::Place { node: *node };
                if self.words.get(&place).is_some_and(|word| word.meaning != deployment.to_string()) {
                    self.say(signed, place, &deployment.to_string());
                }
            }
            Edit::Unbind { node, noderole, .. } => {
                let inside = |over: &Over| of_noderole(over, *node, noderole);
                self.take_away(signed, Over::Noderole { node: *node, noderole: noderole.clone() }, inside);
                self.data.remove(&Owner::Noderole(*node, noderole.clone()));
            }
            Edit::SetNoderoleData { node, noderole, data } => {
                self.set(signed, Owner::Noderole(*node, noderole.clone()), data);
            }
            Edit::MoveNode { node, deployment } => {
                self.say(signed, Over::Place { node: *node }, &deployment.to_string());
            }
            Edit::ExpungeNode { node, .. } => {
                let inside = |over: &Over| on_node(over) == Some(*node);
                self.take_away(signed, Over::Node { node: *node }, inside);
            }
            Edit::Rerun { node, noderole, .. } => {
                self.say(signed, Over::Rerun { node: *node, noderole: noderole.clone() }, THERE);
            }
            // It asks for more; whatever it names may also be asked for by itself.
            Edit::RerunSlice { .. } => {}
            Edit::ActivateJig { jig, active } => {
                self.say(signed, Over::Jig { jig: jig.clone() }, &active.to_string());
            }
            Edit::SetPolicy { policy } => {
                self.say(signed, Over::Policy, &serde_json::to_string(policy).unwrap_or_default());
            }
        }
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
    fn take_away(&mut self, signed: &Signed<'_>, over: Over, inside: impl Fn(&Over) -> bool) {
        let lost: Vec<Over> = self.words.keys().filter(|known| inside(known)).cloned().collect();
        for known in lost {
            // What was taken away before is not taken away again.
            let Some(word) = self.words.remove(&known).filter(|word| word.meaning != GONE) else { continue };
            if word.by != signed.by {
                self.found.insert(Clash { earlier: word.edit, later: signed.edit.seq, over: known });
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
        let was = was.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        // Data that is nested too deep is refused where it is set.
        for change in diff(&was, data).unwrap_or_default() {
            self.set_value(signed, &owner, &change, data);
        }
        self.data.insert(owner, data.clone());
    }

    fn set_value(&mut self, signed: &Signed<'_>, owner: &Owner, change: &Change, data: &Value) {
        let over = |path: &str| match owner {
            Owner::Role(deployment, role) => {
                Over::RoleValue { deployment: *deployment, role: role.clone(), path: path.to_owned() }
            }
            Owner::Noderole(node, noderole) => {
                Over::NoderoleValue { node: *node, noderole: noderole.clone(), path: path.to_owned() }
            }
        };
        // A list in place of an object, or no object at all, overrules what was said of the values in it.
        let inside = format!("{}/", change.path);
        let deeper = |known: &Over| match (value_path(known), known) {
            (Some(path), known) => path.starts_with(&inside) && over(path) == *known,
            (None, _) => false,
        };
        let now = data.pointer(&change.path).map_or_else(|| GONE.to_owned(), Value::to_string);
        let lost: Vec<Over> = self.words.keys().filter(|known| deeper(known)).cloned().collect();
        for known in lost {
            if let Some(word) = self.words.remove(&known).filter(|word| word.by != signed.by) {
                self.found.insert(Clash { earlier: word.edit, later: signed.edit.seq, over: known });
            }
        }
        self.say(signed, over(&change.path), &now);
    }
}

fn value_path(over: &Over) -> Option<&str> {
    match over {
        Over::RoleValue { path, .. } | Over::NoderoleValue { path, .. } => Some(path),
        _ => None,
    }
}

fn in_deployment(over: &Over, which: DeploymentId) -> bool {
    match over {
        Over::Deployment { .. } => false,
        Over::Barclamp { deployment, .. } | Over::Role { deployment, .. } | Over::RoleValue { deployment, .. } => {
            *deployment == which
        }
        _ => false,
    }
}

fn on_node(over: &Over) -> Option<NodeId> {
    match over {
        Over::Place { node }
        | Over::Noderole { node, .. }
        | Over::NoderoleValue { node, .. }
        | Over::Rerun { node, .. } => Some(*node),
        _ => None,
    }
}

fn of_noderole(over: &Over, which: NodeId, key: &NoderoleKey) -> bool {
    match over {
        Over::NoderoleValue { node, noderole, .. } | Over::Rerun { node, noderole } => {
            *node == which && noderole == key
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    struct Nothing;

    impl Before for Nothing {
        fn role_data(&self, _: DeploymentId, _: &RoleName) -> Option<Value> {
            None
        }
        fn noderole_data(&self, _: NodeId, _: &NoderoleKey) -> Option<Value> {
            None
        }
    }

    struct Set(Value);

    impl Before for Set {
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
        let numbered: Vec<NumberedEdit> =
            (1..).zip(edits).map(|(seq, (_, edit))| NumberedEdit { seq, edit: edit.clone() }).collect();
        let signed: Vec<Signed<'_>> =
            numbered.iter().zip(edits).map(|(edit, (by, _))| Signed { edit, by: *by }).collect();
        clashes(&signed, before)
    }

    fn value(path: &str) -> Over {
        Over::RoleValue { deployment: WEB, role: role(), path: path.into() }
    }

    #[test]
    fn two_words_on_one_value_clash_and_two_values_do_not() {
        let (one, other) = ((ADA, data(json!({"a": 1, "c": 0}))), (BO, data(json!({"a": 2, "b": 1, "c": 0}))));
        assert_eq!(found(&Nothing, &[one.clone(), other]), [Clash { earlier: 1, later: 2, over: value("/a") }]);
        let beside = (BO, data(json!({"a": 1, "b": 1, "c": 0})));
        assert_eq!(found(&Nothing, &[one.clone(), beside]), []);
        let dropped = (BO, data(json!({"c": 0})));
        assert_eq!(found(&Nothing, &[one, dropped]), [Clash { earlier: 1, later: 2, over: value("/a") }]);
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
    fn binding_and_unbinding_clash_either_way() {
        let over = Over::Noderole { node: N1, noderole: key() };
        for edits in [[(ADA, bind()), (BO, unbind())], [(ADA, unbind()), (BO, bind())]] {
            assert_eq!(found(&Nothing, &edits), [Clash { earlier: 1, later: 2, over: over.clone() }]);
        }
    }

    #[test]
    fn taking_something_away_clashes_with_what_was_said_in_it() {
        let gone = Edit::RemoveRole { deployment: WEB, role: role() };
        let role_gone = found(&Nothing, &[(ADA, data(json!({"a": 1}))), (BO, gone)]);
        assert_eq!(role_gone, [Clash { earlier: 1, later: 2, over: value("/a") }]);
        let noderole = found(&Nothing, &[(ADA, own(json!({"a": 1}))), (BO, unbind())]);
        assert!(matches!(noderole.as_slice(), [Clash { earlier: 1, later: 2, over: Over::NoderoleValue { .. } }]));
        let expunge = Edit::ExpungeNode { node: N1, reason: "burnt".into() };
        assert_eq!(found(&Nothing, &[(ADA, bind()), (ADA, own(json!({"a": 1}))), (BO, expunge)]).len(), 2);
        let remove = Edit::RemoveDeployment { deployment: WEB };
        assert_eq!(found(&Nothing, &[(ADA, data(json!({"a": 1}))), (BO, remove)]).len(), 1);
    }

    #[test]
    fn other_targets_versions_switches_and_policies_clash() {
        let to = |n: u128| Edit::MoveNode { node: N1, deployment: DeploymentId(Uuid::from_u128(n)) };
        let jig = |active| Edit::ActivateJig { jig: JigName::parse("script").unwrap(), active };
        let version = |text: &[u8]| Edit::UseBarclamp {
            deployment: WEB,
            barclamp: BarclampName::parse("house").unwrap(),
            version: crate::Hash::of_bytes(text),
        };
        let policy =
            |approvals| Edit::SetPolicy { policy: crate::gate::Policy { approvals, by_risk: BTreeMap::new() } };
        for (one, other) in
            [(to(1), to(2)), (jig(true), jig(false)), (version(b"1"), version(b"2")), (policy(1), policy(2))]
        {
            assert_eq!(found(&Nothing, &[(ADA, one.clone()), (BO, other)]).len(), 1, "{one:?}");
            assert_eq!(found(&Nothing, &[(ADA, one.clone()), (BO, one)]), [], "the same again");
        }
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
