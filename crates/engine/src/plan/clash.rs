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
//! the first edit comes from [`PriorState`], because the edits do not contain it.
//!
//! Edits also have effects that they do not name. Unbinding can remove dependents, and binding can
//! move a node down from an ancestor. Only the planner knows these effects ([`SideEffects`]). They
//! count like any other edit. Binding in an ancestor of the node's deployment does not move the
//! node and does not affect its place.
//!
//! Every view of an open proposal calls this, so it must be fast with thousands of values.
//! [`Conflicts`] stores related settings next to each other, and proposals with one author are not
//! searched.

use super::conflicts::Conflicts;
pub use super::conflicts::{Clash, ClashSubject, PriorState};
use super::edit::{EditKind, NumberedEdit};
use crate::ids::PersonId;

/// An edit that is in effect, with its author.
#[derive(Debug, Clone, Copy)]
pub struct AuthoredEdit<'a> {
    pub edit: &'a NumberedEdit,
    pub by: PersonId,
}

/// Finds every clash, ordered by the later edit. Do not pass undone edits.
pub fn clashes(edits: &[AuthoredEdit<'_>], before: &impl PriorState) -> Vec<Clash> {
    if edits.windows(2).all(|two| two[0].by == two[1].by) {
        return Vec::new();
    }
    let Some(first) = edits.first() else { return Vec::new() };
    let mut conflicts = Conflicts::new(before, first.edit.seq, first.by);
    for authored in edits {
        conflicts.next_edit(authored.edit.seq, authored.by);
        authored.edit.edit.record(&mut conflicts);
    }
    let mut found: Vec<Clash> = conflicts.into_clashes().into_iter().collect();
    found.sort_by(|a, b| (a.later, a.earlier, &a.setting).cmp(&(b.later, b.earlier, &b.setting)));
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::conflicts::{
        LastEdit, LastEdits, Owner, PRESENT, SettingScope, Subject, subject,
    };
    use super::*;
    use crate::cluster::NoderoleKey;
    use crate::ids::{BarclampName, DeploymentId, JigName, NodeId, RoleName};
    use crate::plan::SideEffects;
    use crate::plan::edit::{self, Edit};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use uuid::Uuid;

    struct NoState;

    impl PriorState for NoState {
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

    impl PriorState for Set {
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

    fn found(before: &impl PriorState, edits: &[(PersonId, Edit)]) -> Vec<Clash> {
        let numbered: Vec<NumberedEdit> = (1..)
            .zip(edits)
            .map(|(seq, (_, edit))| NumberedEdit { seq, edit: edit.clone() })
            .collect();
        let authored: Vec<AuthoredEdit<'_>> = numbered
            .iter()
            .zip(edits)
            .map(|(edit, (by, _))| AuthoredEdit { edit, by: *by })
            .collect();
        clashes(&authored, before)
    }

    fn value(path: &str) -> ClashSubject {
        ClashSubject::RoleValue { deployment: WEB, role: role(), path: path.into() }
    }

    #[test]
    fn edits_of_same_value_clash() {
        let (one, other) =
            ((ADA, data(json!({"a": 1, "c": 0}))), (BO, data(json!({"a": 2, "b": 1, "c": 0}))));
        assert_eq!(
            found(&NoState, &[one.clone(), other]),
            [Clash { earlier: 1, later: 2, setting: value("/a") }]
        );
        let other = (BO, data(json!({"a": 1, "b": 1, "c": 0})));
        assert_eq!(found(&NoState, &[one.clone(), other]), []);
        let dropped = (BO, data(json!({"c": 0})));
        assert_eq!(
            found(&NoState, &[one, dropped]),
            [Clash { earlier: 1, later: 2, setting: value("/a") }]
        );
    }

    #[test]
    fn existing_data_causes_no_clash() {
        let was = Set(json!({"a": 1, "b": 1}));
        let edits = [(ADA, data(json!({"a": 1, "b": 2}))), (BO, data(json!({"a": 5, "b": 2})))];
        assert_eq!(found(&was, &edits), []);
        assert_eq!(
            found(&NoState, &edits).len(),
            1,
            "without existing data, ada's edit sets /a, so bo's edit clashes"
        );
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
        assert_eq!(found(&NoState, &[made.clone(), inside.clone()]), [clash(1, 2, "/a/x/y")]);
        let dropped = (BO, data(json!({"a": {"x": {}, "z": 1}})));
        assert_eq!(found(&NoState, &[made.clone(), dropped]), [clash(1, 2, "/a/x/y")]);
        let other = (BO, data(json!({"a": {"x": {"y": 1, "new": 1}, "z": 1}})));
        assert_eq!(
            found(&NoState, &[made.clone(), other]),
            [],
            "a new inner key is not a value that ada set"
        );
        // The nearest edit is the last one: from then on, the value is bo's.
        let third = (PersonId(Uuid::from_u128(3)), data(json!({"a": {"x": {"y": 3}, "z": 2}})));
        let clashes = found(&NoState, &[made.clone(), inside.clone(), inside.clone(), third]);
        assert_eq!(clashes, [clash(1, 2, "/a/x/y"), clash(1, 4, "/a/z"), clash(2, 4, "/a/x/y")]);
        assert_eq!(
            found(&Set(json!({"a": {"x": {"y": 1}, "z": 1}})), &[made, inside]),
            [],
            "the value existed before the edits"
        );
    }

    struct Takes(u32, SideEffects);

    impl PriorState for Takes {
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
        assert_eq!(found(&NoState, &[(ADA, bind()), (BO, away)]), []);
    }

    #[test]
    fn bind_clashes_with_move_only_if_moving() {
        let edits =
            [(ADA, Edit::MoveNode(edit::MoveNode { node: N1, deployment: DB })), (BO, bind())];
        assert_eq!(found(&NoState, &edits), [], "a binding in an ancestor does not move the node");
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
                found(&NoState, &edits),
                [Clash { earlier: 1, later: 2, setting: setting.clone() }]
            );
        }
    }

    #[test]
    fn removal_clashes_with_edits_inside() {
        let gone = Edit::RemoveRole(edit::RemoveRole { deployment: WEB, role: role() });
        let role_gone = found(&NoState, &[(ADA, data(json!({"a": 1}))), (BO, gone)]);
        assert_eq!(role_gone, [Clash { earlier: 1, later: 2, setting: value("/a") }]);
        let noderole = found(&NoState, &[(ADA, own(json!({"a": 1}))), (BO, unbind())]);
        assert!(matches!(
            noderole.as_slice(),
            [Clash { earlier: 1, later: 2, setting: ClashSubject::NoderoleValue { .. } }]
        ));
        let expunge = Edit::ExpungeNode(edit::ExpungeNode { node: N1, reason: "burnt".into() });
        assert_eq!(
            found(&NoState, &[(ADA, bind()), (ADA, own(json!({"a": 1}))), (BO, expunge)]).len(),
            2
        );
        let remove = Edit::RemoveDeployment(edit::RemoveDeployment { deployment: WEB });
        assert_eq!(found(&NoState, &[(ADA, data(json!({"a": 1}))), (BO, remove)]).len(), 1);
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
            assert_eq!(found(&NoState, &[(ADA, one.clone()), (BO, other)]).len(), 1, "{one:?}");
            assert_eq!(
                found(&NoState, &[(ADA, one.clone()), (BO, one)]),
                [],
                "equal edits do not clash"
            );
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
    #[expect(clippy::disallowed_methods, reason = "the test measures time, not the engine")]
    fn thirty_thousand_values_are_checked_quickly() {
        let all = |to: u32| {
            data(Value::Object((0..30_000).map(|n| (format!("k{n}"), json!(to))).collect()))
        };
        let began = std::time::Instant::now();
        assert_eq!(found(&NoState, &[(ADA, all(1)), (BO, all(2))]).len(), 30_000);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn single_author_skips_lookups() {
        struct NoLookups;
        impl PriorState for NoLookups {
            fn side_effects(&self, _: u32) -> Option<&SideEffects> {
                panic!("the test must not read side effects")
            }
            fn role_data(&self, _: DeploymentId, _: &RoleName) -> Option<Value> {
                panic!("the test must not read role data")
            }
            fn noderole_data(&self, _: NodeId, _: &NoderoleKey) -> Option<Value> {
                panic!("the test must not read noderole data")
            }
        }
        assert_eq!(
            found(&NoLookups, &[(ADA, data(json!({"a": 1}))), (ADA, own(json!({"a": 1})))]),
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
            let mut last_edits = LastEdits::default();
            for setting in &settings {
                last_edits.insert(setting.clone(), LastEdit { edit: 1, by: ADA, value: PRESENT.into() });
            }
            let wide = match &owner {
                Owner::Role(deployment, role) => [SettingScope::Deployment(*deployment), SettingScope::Role(*deployment, role)],
                Owner::Noderole(node, noderole) => [SettingScope::Node(*node), SettingScope::Noderole(*node, noderole)],
            };
            for reach in wide.into_iter().chain([SettingScope::Values(&owner, &prefix)]) {
                let looked_up: BTreeSet<ClashSubject> = last_edits.within(&reach).into_iter().collect();
                let simply: BTreeSet<ClashSubject> = settings.iter().filter(|setting| reached(setting, &reach)).cloned().collect();
                prop_assert_eq!(looked_up, simply, "{:?}", reach);
            }
        }

        #[test]
        fn own_edits_never_clash(edits in proptest::collection::vec(any_edit(), 0..12)) {
            let mine: Vec<_> = edits.into_iter().map(|edit| (ADA, edit)).collect();
            prop_assert_eq!(found(&NoState, &mine), []);
        }

        #[test]
        fn later_edit_wins_clash(edits in proptest::collection::vec((any::<bool>(), any_edit()), 0..12)) {
            let all: Vec<_> = edits.into_iter().map(|(ada, edit)| (if ada { ADA } else { BO }, edit)).collect();
            for clash in found(&NoState, &all) {
                prop_assert!(clash.earlier < clash.later);
                prop_assert_ne!(all[clash.earlier as usize - 1].0, all[clash.later as usize - 1].0);
            }
        }
    }
}
