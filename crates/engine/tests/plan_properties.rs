//! Over random clusters and edits: what resolving promises.
//!
//! * The same answer every time, through JSON too: so server and browser agree by hash.
//! * What was decided is all there is: after materialising, nothing is left to do.
//! * Taking back what was bound gives the root from before, to the byte.
//! * Whatever is edited, every edge has both ends, ranks rise along each by exactly what the longest way asks for (so there is no
//!   cycle), a node carries its own deployment's noderoles and those above it, and a barrier stands for all of its role and nothing
//!   else.

#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::blueprint::{changes, project};
use engine::canonical::{self, Object, ObjectKind};
use engine::catalog::{Barclamp, Catalog, Flags, Role};
use engine::cluster::{Blueprint, DeploymentDoc, NodeDoc, NoderoleKey, Skeleton};
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, RoleName};
use engine::plan::resolve::phantom_fqdn;
use engine::plan::{Edit, Effects, NumberedEdit, materialise, resolve};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

const ROLES: usize = 8;
const NODES: u128 = 5;
const DEPLOYMENTS: [(u128, &str, Option<u128>); 4] =
    [(1, "system", None), (2, "web", Some(1)), (3, "edge", Some(1)), (4, "inner", Some(2))];

fn deployment(n: usize) -> DeploymentId {
    DeploymentId(Uuid::from_u128(DEPLOYMENTS[n].0))
}

fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(100 + n))
}

fn name(n: usize) -> RoleName {
    RoleName::parse(&format!("r{n}")).unwrap()
}

fn key(n: usize) -> NoderoleKey {
    NoderoleKey::first(name(n))
}

/// A role of a random catalog. It requires and precedes roles of lower and higher numbers only, as sound catalogs have no cycle.
#[derive(Debug, Clone)]
struct Wires {
    requires: Vec<bool>,
    preceeds: Vec<bool>,
    implicit: bool,
    cluster: bool,
    service: bool,
    conflicts: bool,
}

fn wires() -> impl Strategy<Value = Wires> {
    let rarely = || prop::bool::weighted(0.15);
    (
        prop::collection::vec(prop::bool::weighted(0.3), ROLES),
        prop::collection::vec(prop::bool::weighted(0.1), ROLES),
        prop::bool::weighted(0.3),
        rarely(),
        rarely(),
        rarely(),
    )
        .prop_map(|(requires, preceeds, implicit, cluster, service, conflicts)| Wires {
            requires,
            preceeds,
            implicit,
            cluster,
            service,
            conflicts,
        })
}

fn role(n: usize, wires: &Wires) -> Role {
    let value = json!({"name": name(n), "barclamp": "b", "jig": "noop", "jig_class": "noop"});
    let role: Role = serde_json::from_value(value).unwrap();
    let (implicit, cluster, service) = (wires.implicit, wires.cluster, wires.service);
    Role {
        flags: Flags { implicit, cluster, service, ..Flags::default() },
        requires: (0..n).filter(|m| wires.requires[*m]).map(name).collect(),
        preceeds: (n + 1..ROLES).filter(|m| wires.preceeds[*m]).map(name).collect(),
        conflicts: (n > 0 && wires.conflicts).then(|| name(n - 1)).into_iter().collect(),
        ..role
    }
}

#[derive(Debug, Clone)]
struct World {
    catalog: Catalog,
    blueprint: Blueprint,
}

impl World {
    fn of(roles: &[Wires]) -> Self {
        let mut catalog = Catalog::default();
        let mut content = BTreeMap::new();
        for (n, wires) in roles.iter().enumerate() {
            let role = role(n, wires);
            let hash = canonical::hash(&role).unwrap();
            content.insert(role.name.clone(), hash);
            catalog.add_role(hash, Arc::new(role));
        }
        let base: Barclamp = serde_json::from_value(json!({"name": "b", "version": "1", "roles": {}})).unwrap();
        let pin = Object::of(ObjectKind::Barclamp, &Barclamp { roles: content, ..base }).unwrap();
        catalog.add(&pin).unwrap();
        let mut blueprint = Blueprint::default();
        for (n, (id, label, parent)) in DEPLOYMENTS.into_iter().enumerate() {
            let (id, phantom) = (deployment(n), NodeId(Uuid::from_u128(50 + id)));
            let pins = parent.is_none().then(|| (BarclampName::parse("b").unwrap(), pin.hash));
            blueprint
                .put_deployment(DeploymentDoc {
                    id,
                    name: DeploymentName::parse(label).unwrap(),
                    parent: parent.map(|p| DeploymentId(Uuid::from_u128(p))),
                    phantom,
                    barclamps: pins.into_iter().collect(),
                    roles: BTreeMap::new(),
                    inactive_jigs: BTreeSet::new(),
                })
                .unwrap();
            let fqdn = phantom_fqdn(id);
            let doc = NodeDoc { id: phantom, fqdn, deployment: id, phantom: true, noderoles: BTreeMap::new() };
            blueprint.put_node(doc).unwrap();
        }
        for n in 0..NODES {
            let fqdn = Fqdn::parse(&format!("n{n}.random.example.com")).unwrap();
            let at = deployment(usize::try_from(n).unwrap() % 3);
            let doc = NodeDoc { id: node(n), fqdn, deployment: at, phantom: false, noderoles: BTreeMap::new() };
            blueprint.put_node(doc).unwrap();
        }
        Self { catalog, blueprint }
    }

    fn skeleton(&self) -> Skeleton {
        Skeleton::of(&self.blueprint, [], &self.catalog).unwrap()
    }

    fn resolve(&self, edits: &[Edit]) -> Effects {
        resolve(&self.skeleton(), &self.catalog, &numbered(edits))
    }

    fn take(&mut self, effects: &Effects) {
        self.blueprint = materialise(&self.blueprint, &|_| None, effects).unwrap().blueprint;
    }

    /// Where everything is, with its rank and edges.
    fn check(&self) -> Result<(), TestCaseError> {
        let skeleton = self.skeleton();
        let mut ranks: BTreeMap<NoderoleId, u32> = BTreeMap::new();
        for (id, node) in &skeleton.nodes {
            let chain = skeleton.chain(node.deployment);
            prop_assert!(!chain.is_empty(), "a node is in a deployment that is there");
            for (key, noderole) in &node.noderoles {
                prop_assert!(
                    chain.contains(&noderole.deployment),
                    "{key} on {} is of its node's deployments",
                    node.fqdn
                );
                ranks.insert(key.id(*id), noderole.rank);
            }
        }
        for (id, node) in &skeleton.nodes {
            for (key, noderole) in &node.noderoles {
                let mut above = 0;
                for edge in &noderole.parents {
                    let rank = ranks.get(&edge.parent);
                    prop_assert!(rank.is_some(), "{key} on {} waits for what is not there", node.fqdn);
                    above = above.max(rank.unwrap() + 1);
                }
                prop_assert_eq!(noderole.rank, above, "{} on {}", key, &node.fqdn);
                let role = self.catalog.role(noderole.role).unwrap();
                let Some(gathered) = &role.gathers else { continue };
                let members: BTreeSet<NoderoleId> =
                    skeleton.answering(noderole.deployment, gathered).map(|a| a.key.id(a.node)).collect();
                let parents: BTreeSet<NoderoleId> = noderole.parents.iter().map(|edge| edge.parent).collect();
                prop_assert!(!members.is_empty() && parents == members, "{} on {:?}", key, id);
            }
        }
        Ok(())
    }
}

fn numbered(edits: &[Edit]) -> Vec<NumberedEdit> {
    (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect()
}

fn edit() -> impl Strategy<Value = Edit> {
    let (n, r, d) = (0..NODES + 1, 0..ROLES, 0..DEPLOYMENTS.len());
    let bind = (n.clone(), r.clone(), d.clone()).prop_map(|(n, r, d)| Edit::Bind {
        deployment: deployment(d),
        node: node(n),
        role: name(r),
    });
    let unbind = (n.clone(), r.clone(), any::<bool>()).prop_map(|(n, r, with_dependents)| Edit::Unbind {
        node: node(n),
        noderole: key(r),
        with_dependents,
    });
    let service = (d.clone(), r.clone(), any::<bool>()).prop_map(|(d, r, with_dependents)| Edit::Unbind {
        node: NodeId(Uuid::from_u128(50 + DEPLOYMENTS[d].0)),
        noderole: key(r),
        with_dependents,
    });
    let expunge = n.clone().prop_map(|n| Edit::ExpungeNode { node: node(n), reason: "gone".into() });
    let moved = (n.clone(), d.clone()).prop_map(|(n, d)| Edit::MoveNode { node: node(n), deployment: deployment(d) });
    let add = (d.clone(), r.clone()).prop_map(|(d, r)| Edit::AddRole { deployment: deployment(d), role: name(r) });
    let drop_role =
        (d.clone(), r.clone()).prop_map(|(d, r)| Edit::RemoveRole { deployment: deployment(d), role: name(r) });
    let drop_deployment = d.clone().prop_map(|d| Edit::RemoveDeployment { deployment: deployment(d) });
    let data = (n.clone(), r.clone(), 0..3u8).prop_map(|(n, r, v)| Edit::SetNoderoleData {
        node: node(n),
        noderole: key(r),
        data: json!({"v": v}),
    });
    let slice = (d, prop::collection::btree_set(r, 1..3)).prop_map(|(d, roles)| Edit::RerunSlice {
        deployment: deployment(d),
        roles: roles.into_iter().map(name).collect(),
        reason: "again".into(),
    });
    prop_oneof![
        10 => bind, 4 => unbind, 1 => service, 1 => expunge, 2 => moved, 1 => add, 1 => drop_role, 1 => drop_deployment,
        1 => data, 1 => slice
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn resolving_keeps_its_promises(
        roles in prop::collection::vec(wires(), ROLES),
        first in prop::collection::vec(edit(), 0..16),
        second in prop::collection::vec(edit(), 1..16),
    ) {
        let mut world = World::of(&roles);
        let effects = world.resolve(&first);
        world.take(&effects);
        world.check()?;

        let effects = world.resolve(&second);
        prop_assert_eq!(effects.hash().unwrap(), world.resolve(&second).hash().unwrap());
        let mut browser: Skeleton = serde_json::from_value(serde_json::to_value(world.skeleton()).unwrap()).unwrap();
        browser.index(&world.catalog).unwrap();
        let there = resolve(&browser, &world.catalog, &numbered(&second));
        prop_assert_eq!(there.hash().unwrap(), effects.hash().unwrap());
        let read: Effects = serde_json::from_slice(&canonical::bytes(&effects).unwrap()).unwrap();
        prop_assert_eq!(&read, &effects);

        let before = world.blueprint.clone();
        world.take(&effects);
        world.check()?;
        let documents = changes(&before.root(), &world.blueprint.root());
        prop_assert_eq!(effects.is_empty(), documents.is_empty(), "effects are what documents differ in");
        let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
        let removed: BTreeSet<NoderoleId> = work.removed.into_iter().collect();
        prop_assert!(effects.unbound.iter().all(|u| removed.contains(&u.id) || effects.bound.iter().any(|b| b.id == u.id)));
        prop_assert_eq!(world.resolve(&[]), Effects::default(), "nothing is left to do");

        // Edits that take effect do so one by one as well as together.
        let refused: BTreeSet<u32> = effects.refused.iter().map(|r| r.edit).collect();
        let mut steps = World { blueprint: before, ..world.clone() };
        for NumberedEdit { seq, edit } in numbered(&second) {
            let step = steps.resolve(&[edit]);
            prop_assert_eq!(step.refused.is_empty(), !refused.contains(&seq));
            steps.take(&step);
        }
        let reruns = |world: &World| world.blueprint.nodes.values().flat_map(|n| n.doc.noderoles.values()).map(|n| n.reruns).sum::<u32>();
        if reruns(&steps) == reruns(&world) {
            prop_assert_eq!(steps.blueprint.root(), world.blueprint.root());
        }
    }

    #[test]
    fn what_is_bound_and_unbound_again_leaves_the_root_as_it_was(
        roles in prop::collection::vec(wires(), ROLES),
        first in prop::collection::vec(edit(), 0..16),
        n in 0..NODES,
        r in 0..ROLES,
    ) {
        let mut world = World::of(&roles);
        // Roles are at home everywhere beforehand: binding adds those that it brings, and unbinding leaves them.
        let add = |(d, r): (usize, usize)| Edit::AddRole { deployment: deployment(d), role: name(r) };
        let all = (0..DEPLOYMENTS.len()).flat_map(|d| (0..ROLES).map(move |r| (d, r)));
        let edits: Vec<Edit> = first.iter().filter(|e| !matches!(e, Edit::RemoveDeployment { .. } | Edit::ExpungeNode { .. } | Edit::RemoveRole { .. })).cloned().chain(all.map(add)).collect();
        let effects = world.resolve(&edits);
        world.take(&effects);
        let before = world.blueprint.root();
        let at = world.blueprint.nodes[&node(n)].doc.deployment;
        let effects = world.resolve(&[Edit::Bind { deployment: at, node: node(n), role: name(r) }]);
        world.take(&effects);
        // What came along goes in the opposite order, each without anything else.
        let is_barrier = |key: &NoderoleKey| key.role.as_str().ends_with(".all");
        let mut back: Vec<_> = effects.bound.iter().filter(|b| !is_barrier(&b.noderole)).collect();
        back.sort_by_key(|bound| std::cmp::Reverse(bound.rank));
        for bound in back {
            let edit = Edit::Unbind { node: bound.node, noderole: bound.noderole.clone(), with_dependents: false };
            let gone = world.resolve(&[edit]);
            prop_assert_eq!(&gone.refused, &vec![], "{:?}", effects);
            world.take(&gone);
            world.check()?;
        }
        prop_assert_eq!(world.blueprint.root(), before);
    }
}
