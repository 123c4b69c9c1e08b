//! How the effect of a change differs after it is planned again on another base.
//!
//! Each plan is compared with *its own* base, and the common part is left out. So neither side
//! contains the changes of other people, and a reviewer reads only the differences in the change
//! itself. Usually there are none, which is reported as *effect unchanged*.
//!
//! Three differences do not count as an effect of the change:
//!
//! * the number of unchanged documents and noderoles;
//! * the number of earlier re-run requests (that a step runs again does count);
//! * whether a node has a document yet. A new node gets its document with the first change of it.
//!   If another change was first, this one adds no document and copies no record into one. Its
//!   effect is the same.
//!
//! The base of a change to a whole cluster may move, so documents are matched by id.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::difference::{
    DeploymentDifference, Difference, Mark, NodeDifference, NoderoleDifference, RoleDifference,
};
use crate::cluster::NoderoleKey;
use crate::ids::{DeploymentId, NodeId, RoleName};

/// Difference between two plans of the same change. A value that differs is in both parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EffectDifference {
    /// The part that only the earlier plan has.
    pub before: Difference,
    /// The part that only the new plan has.
    pub after: Difference,
}

impl EffectDifference {
    /// Compares two plans of the same edits.
    pub fn between(before: &Difference, after: &Difference) -> Self {
        Self { before: without(before, after), after: without(after, before) }
    }

    /// Whether both plans have the same effect.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

/// The part of `one` that `other` does not have.
fn without(one: &Difference, other: &Difference) -> Difference {
    let known: BTreeMap<DeploymentId, &DeploymentDifference> =
        other.deployments.iter().map(|d| (d.id, d)).collect();
    let deployments = one.deployments.iter().filter_map(|d| match known.get(&d.id) {
        Some(variant_path) => subtract_deployment(d, variant_path),
        None => Some(d.clone()),
    });
    let known: BTreeMap<NodeId, &NodeDifference> = other.nodes.iter().map(|n| (n.id, n)).collect();
    let nodes = one.nodes.iter().filter_map(|n| match known.get(&n.id) {
        Some(variant_path) => subtract_node(n, variant_path),
        None => Some(plain(n)),
    });
    let policy = one.policy.clone().filter(|_| one.policy != other.policy);
    Difference { deployments: deployments.collect(), nodes: nodes.collect(), unchanged: 0, policy }
}

/// `None` if `other` contains all of it. If a part differs, the deployment's own fields are
/// included.
fn subtract_deployment(
    one: &DeploymentDifference,
    other: &DeploymentDifference,
) -> Option<DeploymentDifference> {
    if one == other {
        return None;
    }
    let mut left = one.clone();
    let roles: BTreeMap<&RoleName, &RoleDifference> =
        other.roles.iter().map(|role| (&role.role, role)).collect();
    left.barclamps.retain(|barclamp| !other.barclamps.contains(barclamp));
    left.roles.retain(|role| roles.get(&role.role) != Some(&role));
    left.inactive_jigs.retain(|jig| !other.inactive_jigs.contains(jig));
    let itself = |d: &DeploymentDifference| DeploymentDifference {
        barclamps: Vec::new(),
        roles: Vec::new(),
        inactive_jigs: Vec::new(),
        ..d.clone()
    };
    let inside = left.barclamps.len() + left.roles.len() + left.inactive_jigs.len();
    (inside > 0 || itself(one) != itself(other)).then_some(left)
}

fn subtract_node(one: &NodeDifference, other: &NodeDifference) -> Option<NodeDifference> {
    let (mut left, variant_path) = (plain(one), plain(other));
    let known: BTreeMap<&NoderoleKey, &NoderoleDifference> =
        variant_path.noderoles.iter().map(|n| (&n.noderole, n)).collect();
    left.noderoles.retain(|noderole| known.get(&noderole.noderole) != Some(&noderole));
    (!left.noderoles.is_empty() || !has_same_effect(&left, &variant_path)).then_some(left)
}

/// Whether two differences agree on the node itself, without its noderoles.
fn has_same_effect(one: &NodeDifference, other: &NodeDifference) -> bool {
    let itself = |n: &NodeDifference| NodeDifference { noderoles: Vec::new(), ..n.clone() };
    let (new, known) = match (one.mark, other.mark) {
        (Mark::Added, Mark::Changed) => (one, other),
        (Mark::Changed, Mark::Added) => (other, one),
        _ => return itself(one) == itself(other),
    };
    // A node with a document has `moved` only if its deployment changes.
    let to = |n: &NodeDifference| n.moved.and_then(|sides| sides.new);
    let has_other_destination = known.moved.is_some() && to(known) != to(new);
    // The first document of a node copies its record. If another change did this first, its
    // document already contains the record.
    let shown = |n: &NodeDifference| NodeDifference {
        mark: Mark::Changed,
        moved: None,
        connection: n.connection.clone().filter(|_| n.mark == Mark::Changed),
        hints: if n.mark == Mark::Changed { n.hints.clone() } else { Vec::new() },
        ..itself(n)
    };
    !has_other_destination && shown(new) == shown(known)
}

/// Removes the parts that do not count as an effect.
fn plain(node: &NodeDifference) -> NodeDifference {
    let noderole = |n: &NoderoleDifference| NoderoleDifference { reruns: None, ..n.clone() };
    NodeDifference {
        unchanged: 0,
        noderoles: node.noderoles.iter().map(noderole).collect(),
        ..node.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blueprint::difference::Sides;
    use crate::data::diff;
    use crate::gate::Policy;
    use crate::ids::{Fqdn, NoderoleId};
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    fn noderole(role: &str, port: u32, reruns: u32) -> NoderoleDifference {
        let key = NoderoleKey::first(RoleName::parse(role).unwrap());
        NoderoleDifference {
            id: NoderoleId(Uuid::from_u128(u128::from(port))),
            noderole: key,
            deployment: DeploymentId(Uuid::from_u128(1)),
            mark: Mark::Changed,
            content: false,
            contents: None,
            bound: None,
            rerun: reruns > 0,
            reruns: (reruns > 0).then(|| Sides { old: reruns - 1, new: reruns }),
            rank: None,
            rewired: false,
            edges: Vec::new(),
            data: diff(&json!({}), &json!({"port": port})).unwrap(),
        }
    }

    fn node(n: u128, noderoles: Vec<NoderoleDifference>, unchanged: usize) -> NodeDifference {
        NodeDifference {
            id: NodeId(Uuid::from_u128(n)),
            fqdn: Fqdn::parse(&format!("n{n}.example.com")).unwrap(),
            mark: Mark::Changed,
            renamed: None,
            phantom: None,
            moved: None,
            connection: None,
            hints: Vec::new(),
            noderoles,
            unchanged,
        }
    }

    fn of(nodes: Vec<NodeDifference>) -> Difference {
        Difference { nodes, ..Difference::default() }
    }

    #[test]
    fn shift_ignores_first_document_and_reports_new_destination() {
        let (web, edge) = (DeploymentId(Uuid::from_u128(2)), DeploymentId(Uuid::from_u128(3)));
        let with = |mark, moved| {
            of(vec![NodeDifference { mark, moved, ..node(1, vec![noderole("app", 1, 0)], 0) }])
        };
        let first = with(Mark::Added, Some(Sides { old: None, new: Some(web) }));
        assert!(
            EffectDifference::between(&first, &with(Mark::Changed, None)).is_empty(),
            "the shift ignores an earlier move by another review"
        );
        assert!(
            EffectDifference::between(
                &first,
                &with(Mark::Changed, Some(Sides { old: Some(edge), new: Some(web) }))
            )
            .is_empty()
        );
        assert!(
            !EffectDifference::between(
                &first,
                &with(Mark::Changed, Some(Sides { old: Some(web), new: Some(edge) }))
            )
            .is_empty()
        );
        assert!(
            !EffectDifference::between(
                &first,
                &with(Mark::Removed, Some(Sides { old: Some(web), new: None }))
            )
            .is_empty()
        );
        let mut other = with(Mark::Changed, None);
        other.nodes[0].noderoles = vec![noderole("app", 2, 0)];
        assert_eq!(
            EffectDifference::between(&first, &other).after,
            other,
            "other effects are compared as before"
        );
    }

    #[test]
    fn shift_ignores_unchanged_counts_and_earlier_reruns() {
        let before = of(vec![node(1, vec![noderole("app", 1, 1)], 3)]);
        let after =
            Difference { unchanged: 9, ..of(vec![node(1, vec![noderole("app", 1, 4)], 5)]) };
        assert!(EffectDifference::between(&before, &after).is_empty());
        let stays = of(vec![node(1, vec![noderole("app", 1, 0)], 5)]);
        assert!(
            !EffectDifference::between(&before, &stays).is_empty(),
            "a new run of the noderole is a difference"
        );
    }

    #[test]
    fn changed_base_policy_is_reported_as_shift() {
        let policy =
            |approvals| Policy { approvals, by_risk: Default::default(), ..Policy::default() };
        let sides = |old, new| Difference {
            policy: Some(Sides { old: policy(old), new: policy(new) }),
            ..Difference::default()
        };
        assert!(EffectDifference::between(&sides(2, 1), &sides(2, 1)).is_empty());
        let effect_changes = EffectDifference::between(&sides(2, 1), &sides(3, 1));
        assert_eq!((effect_changes.before, effect_changes.after), (sides(2, 1), sides(3, 1)));
    }

    #[test]
    fn shift_contains_only_differences() {
        let before = of(vec![
            node(1, vec![noderole("app", 1, 0), noderole("db", 2, 0)], 0),
            node(2, vec![], 0),
        ]);
        let after = of(vec![node(1, vec![noderole("app", 1, 0), noderole("db", 3, 0)], 0)]);
        let effect_changes = EffectDifference::between(&before, &after);
        let roles = |d: &Difference| {
            let of_node = |n: &NodeDifference| {
                n.noderoles.iter().map(|r| r.noderole.to_string()).collect::<Vec<_>>()
            };
            d.nodes.iter().map(|n| (n.fqdn.short().to_owned(), of_node(n))).collect::<Vec<_>>()
        };
        assert_eq!(
            roles(&effect_changes.before),
            [("n1".to_owned(), vec!["db".to_owned()]), ("n2".to_owned(), vec![])]
        );
        assert_eq!(roles(&effect_changes.after), [("n1".to_owned(), vec!["db".to_owned()])]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test measures time, not the engine")]
    fn shift_of_large_cluster_is_fast() {
        let of_all =
            |port| of((0..60_000).map(|n| node(n, vec![noderole("app", port, 0)], 0)).collect());
        let (before, after) = (of_all(1), of_all(1));
        let began = std::time::Instant::now();
        assert!(EffectDifference::between(&before, &after).is_empty());
        // A linear search for each node would take minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }

    /// Port and re-runs by role.
    type Roles = BTreeMap<String, (u32, u32)>;

    fn any_difference() -> impl Strategy<Value = Difference> {
        let noderoles = proptest::collection::btree_map("[ab]", (0u32..3, 0u32..3), 0..3);
        proptest::collection::btree_map(1u128..4, (noderoles, 0usize..3), 0..4).prop_map(|nodes| {
            let one = |(n, (roles, unchanged)): (u128, (Roles, usize))| {
                node(
                    n,
                    roles
                        .into_iter()
                        .map(|(role, (port, reruns))| noderole(&role, port, reruns))
                        .collect(),
                    unchanged,
                )
            };
            of(nodes.into_iter().map(one).collect())
        })
    }

    proptest! {
        #[test]
        fn shift_is_symmetric_and_empty_for_equal_plans(one in any_difference(), other in any_difference()) {
            prop_assert!(EffectDifference::between(&one, &one).is_empty());
            let (forward, backward) = (EffectDifference::between(&one, &other), EffectDifference::between(&other, &one));
            prop_assert_eq!((&forward.before, &forward.after), (&backward.after, &backward.before));
            prop_assert_eq!(forward.is_empty(), backward.is_empty());
        }
    }
}
