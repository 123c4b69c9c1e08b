//! Properties of resolving, over random clusters and edits:
//!
//! * The result is the same every time, also through JSON. A browser receives only the catalog
//!   entries in use. It computes the server's result by hash, or reports that it cannot.
//! * Effects are complete: after materializing, nothing is left to do.
//! * Unbinding everything that was bound restores the previous root, byte for byte.
//! * After any edits, the deployments are a tree within the depth limit.
//! * After any edits, every edge has both ends. Ranks are exactly the longest paths, so there is no
//!   cycle. A node has only noderoles of its deployment and of ancestors. A barrier represents all
//!   noderoles of its role and no others.
//! * After any edits, including versions, every wanted name has a suitable parent, on the same node
//!   if implicit. Every hard parent satisfies a name. No node has two roles that conflict or answer
//!   to one name. Soft edges match the roles, and none that could exist is missing.
//! * A deployment's earlier state can be restored by edits, and the exceptions are reported.
//! * Edits of different things give the same result in any order.
//! * A node-scoped proposal that may be reviewed writes no other machine, and its base includes all
//!   that it writes.
//! * A role that a file binds is never added on another node because a role requires it, and one
//!   request can remove all roles.
//! * The preview predicts a drop, although it computes only one of several equivalent nodes.
//! * A commit in an ancestor that changes nothing that a review reads leaves its plan identical.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::blueprint::{DocumentChange, changes, compare, project};
use engine::canonical::{self, Object, ObjectKind};
use engine::catalog::{Attrib, Barclamp, Catalog, Flags, JigClass, Role};
use engine::cluster::{
    Blueprint, ConnectionChange, DeploymentDoc, EdgeDoc, EdgeKind, NodeDoc, NoderoleKey, Skeleton,
};
use engine::gate::Policy;
use engine::ids::{
    AttribName, BarclampName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId, NoderoleId,
    RoleName,
};
use engine::plan::base::{Scope, ScopeChecker, base, beyond, outside, written};
use engine::plan::drop_preview::{RoleDropPreview, preview_drop};
use engine::plan::effects::{Bound, EffectCause};
use engine::plan::planning_data::versions;
use engine::plan::reads::{Change, Reads};
use engine::plan::resolve::phantom_fqdn;
use engine::plan::restore::{Goal, Restore, RestoreInput, State, restore};
use engine::plan::{
    Edit, Effects, MAX_LEVELS, NumberedEdit, PlanningContext, PlanningData, edit, materialize,
    order, resolve,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;
use uuid::Uuid;

const ROLES: usize = 8;
/// Every world has at least this many nodes.
const FEWEST_NODES: u128 = 3;
const MAX_NODES: u128 = 7;
/// Maximum number of deployments at the start. Edits create more.
const MAX_DEPLOYMENTS: usize = 5;

fn deployment(n: usize) -> DeploymentId {
    DeploymentId(Uuid::from_u128(1 + n as u128))
}

/// The phantom node of a deployment.
fn phantom(n: usize) -> NodeId {
    NodeId(Uuid::from_u128(50 + n as u128))
}

fn deployment_name(n: usize) -> DeploymentName {
    DeploymentName::parse(&format!("d{n}")).unwrap()
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

/// A role of a random catalog. It requires roles of lower numbers and precedes roles of higher
/// numbers only, because valid catalogs have no cycle.
#[derive(Debug, Clone)]
struct Wires {
    requires: Vec<bool>,
    wants: Vec<bool>,
    preceeds: Vec<bool>,
    implicit: bool,
    cluster: bool,
    service: bool,
    conflicts: bool,
    by_test: bool,
    /// Low roles provide the shared name, and high ones require it.
    shares: bool,
}

/// The name that some low roles provide and some high ones require.
fn shared() -> RoleName {
    RoleName::parse("shared").unwrap()
}

fn wires() -> impl Strategy<Value = Wires> {
    let rarely = || prop::bool::weighted(0.15);
    (
        prop::collection::vec(prop::bool::weighted(0.3), ROLES),
        prop::collection::vec(prop::bool::weighted(0.15), ROLES),
        prop::collection::vec(prop::bool::weighted(0.1), ROLES),
        prop::bool::weighted(0.3),
        rarely(),
        rarely(),
        rarely(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.25),
    )
        .prop_map(
            |(
                requires,
                wants,
                preceeds,
                implicit,
                cluster,
                service,
                conflicts,
                by_test,
                shares,
            )| Wires {
                requires,
                wants,
                preceeds,
                implicit,
                cluster,
                service,
                conflicts,
                by_test,
                shares,
            },
        )
}

/// The initial state of a world: a tree of deployments below *system*, nodes in any of them, and
/// two versions of one barclamp. The second version usually preserves what must not change while in
/// use.
#[derive(Debug, Clone)]
struct Beginning {
    /// For each deployment below *system*, the index of an earlier one.
    parents: Vec<usize>,
    /// The deployment of each node.
    homes: Vec<usize>,
    first: Vec<Wires>,
    other: Vec<Wires>,
}

fn tree() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    let parents = prop::collection::vec(0..MAX_DEPLOYMENTS, 1..MAX_DEPLOYMENTS);
    let nodes = usize::try_from(FEWEST_NODES).unwrap()..=usize::try_from(MAX_NODES).unwrap();
    (parents, prop::collection::vec(0..MAX_DEPLOYMENTS, nodes)).prop_map(
        |(mut parents, mut homes)| {
            parents.iter_mut().enumerate().for_each(|(before, parent)| *parent %= before + 1);
            homes.iter_mut().for_each(|home| *home %= parents.len() + 1);
            (parents, homes)
        },
    )
}

fn beginning() -> impl Strategy<Value = Beginning> {
    let other = prop::collection::vec((wires(), prop::bool::weighted(0.05)), ROLES - 1..ROLES + 1);
    (tree(), prop::collection::vec(wires(), ROLES), other).prop_map(
        |((parents, homes), first, other)| {
            let keep = |(at, (wires, changes)): (usize, (Wires, bool))| {
                let (cluster, service) = match changes {
                    true => (wires.cluster, wires.service),
                    false => (first[at].cluster, first[at].service),
                };
                Wires { cluster, service, ..wires }
            };
            let other = other.into_iter().enumerate().map(keep).collect();
            Beginning { parents, homes, first, other }
        },
    )
}

fn attrib(n: usize) -> AttribName {
    AttribName::parse(&format!("a{n}")).unwrap()
}

fn role(n: usize, wires: &Wires, version: &str) -> Role {
    let jig = if wires.by_test { JigClass::Test } else { JigClass::Noop };
    let value = json!({
        "name": name(n), "barclamp": "b", "jig": jig.as_str(), "jig_class": jig.as_str(), "template": {"of": version},
    });
    let role: Role = serde_json::from_value(value).unwrap();
    let owned: Attrib = serde_json::from_value(json!({"name": attrib(n), "map": ["a"]})).unwrap();
    let (implicit, cluster, service) = (wires.implicit, wires.cluster, wires.service);
    let (low, shares) = (n < 3, wires.shares.then(shared));
    Role {
        // A role that is both would have its parent on two nodes. Importing such a role gives a
        // finding.
        flags: Flags { implicit: implicit && !cluster, cluster, service, ..Flags::default() },
        requires: (0..n)
            .filter(|m| wires.requires[*m])
            .map(name)
            .chain(shares.clone().filter(|_| !low))
            .collect(),
        provides: shares.filter(|_| low).into_iter().collect(),
        wants: (0..n).filter(|m| wires.wants[*m]).map(attrib).collect(),
        attribs: vec![owned],
        preceeds: (n + 1..ROLES).filter(|m| wires.preceeds[*m]).map(name).collect(),
        conflicts: (n > 0 && wires.conflicts).then(|| name(n - 1)).into_iter().collect(),
        ..role
    }
}

#[derive(Debug, Clone)]
struct World {
    catalog: Catalog,
    blueprint: Blueprint,
    versions: [Hash; 2],
    /// Number of deployments ever created, so that new ids are unique.
    minted: usize,
}

fn imported(catalog: &mut Catalog, roles: &[Wires], version: &str) -> Hash {
    let mut content = BTreeMap::new();
    for (n, wires) in roles.iter().enumerate() {
        let role = role(n, wires, version);
        let hash = canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        catalog.add_role(hash, Arc::new(role));
    }
    // In some catalogs, a jig requires a role on its nodes.
    let client = (!roles[0].by_test && roles[0].shares).then(|| name(0));
    let jigs = json!({"test": {"class": "test", "client_role": client}});
    let base = json!({"name": "b", "version": version, "roles": content, "jigs": jigs});
    let base: Barclamp = serde_json::from_value(base).unwrap();
    let pin = Object::of(ObjectKind::Barclamp, &base).unwrap();
    catalog.add(&pin).unwrap();
    pin.hash
}

/// An edit before the versions' hashes and the free ids are known.
#[derive(Debug, Clone)]
enum Drawn {
    Edit(Edit),
    Create {
        name: usize,
        parent: usize,
    },
    /// A version that does not exist, if the world has none of that number.
    Use(usize, usize),
    Inherit(usize),
}

impl World {
    fn of(beginning: &Beginning) -> Self {
        let mut catalog = Catalog::default();
        let pin = imported(&mut catalog, &beginning.first, "1");
        let other = imported(&mut catalog, &beginning.other, "2");
        let mut blueprint = Blueprint::default();
        let parents: Vec<Option<usize>> =
            std::iter::once(None).chain(beginning.parents.iter().copied().map(Some)).collect();
        for (n, parent) in parents.iter().enumerate() {
            let pins = parent.is_none().then(|| (BarclampName::parse("b").unwrap(), pin));
            blueprint
                .insert_deployment(DeploymentDoc {
                    id: deployment(n),
                    name: deployment_name(n),
                    parent: parent.map(deployment),
                    phantom: phantom(n),
                    barclamps: pins.into_iter().collect(),
                    roles: BTreeMap::new(),
                    inactive_jigs: BTreeSet::new(),
                })
                .unwrap();
            let (id, fqdn) = (phantom(n), phantom_fqdn(deployment(n)));
            let doc = NodeDoc {
                id,
                fqdn,
                deployment: deployment(n),
                phantom: true,
                connection: None,
                hints: serde_json::Map::new(),
                noderoles: BTreeMap::new(),
            };
            blueprint.insert_node(doc).unwrap();
        }
        for (n, home) in (0..).zip(&beginning.homes) {
            let fqdn = Fqdn::parse(&format!("n{n}.random.example.com")).unwrap();
            let at = deployment(*home);
            let doc = NodeDoc {
                id: node(n),
                fqdn,
                deployment: at,
                phantom: false,
                connection: None,
                hints: serde_json::Map::new(),
                noderoles: BTreeMap::new(),
            };
            blueprint.insert_node(doc).unwrap();
        }
        Self { catalog, blueprint, versions: [pin, other], minted: parents.len() }
    }

    /// Converts a generated edit to one for this world.
    fn edit(&mut self, drawn: &Drawn) -> Edit {
        match drawn {
            Drawn::Edit(edit) => edit.clone(),
            Drawn::Create { name, parent } => {
                let n = self.minted;
                self.minted += 1;
                Edit::CreateDeployment(edit::CreateDeployment {
                    id: deployment(n),
                    phantom: phantom(n),
                    name: deployment_name(*name),
                    parent: deployment(*parent),
                })
            }
            Drawn::Use(d, v) => Edit::UseBarclamp(edit::UseBarclamp {
                deployment: deployment(*d),
                barclamp: BarclampName::parse("b").unwrap(),
                version: self
                    .versions
                    .get(*v)
                    .copied()
                    .unwrap_or_else(|| Hash::of_bytes(b"nobody's")),
            }),
            Drawn::Inherit(d) => Edit::InheritBarclamp(edit::InheritBarclamp {
                deployment: deployment(*d),
                barclamp: BarclampName::parse("b").unwrap(),
            }),
        }
    }

    fn edits(&mut self, drawn: &[Drawn]) -> Vec<Edit> {
        drawn.iter().map(|drawn| self.edit(drawn)).collect()
    }

    /// The input of planning that a browser receives for a proposal with these edits.
    fn browser(&self, edits: &[Edit]) -> PlanningContext {
        let skeleton = self.skeleton();
        let versions = versions(&skeleton, &numbered(edits));
        let sent = serde_json::to_string(&PlanningData::of(
            &skeleton,
            &self.catalog,
            &versions,
            usize::MAX,
        ))
        .unwrap();
        serde_json::from_str::<Option<PlanningData>>(&sent).unwrap().unwrap().open().unwrap()
    }

    fn state(&self, n: usize) -> Option<State> {
        State::of(&self.blueprint, &self.catalog, deployment(n))
    }

    fn restore(&self, then: &Self, n: usize) -> Restore {
        let skeleton = self.skeleton();
        let now = RestoreInput {
            blueprint: &self.blueprint,
            skeleton: &skeleton,
            catalog: &self.catalog,
            records: &|_| None,
        };
        restore(now, &then.blueprint, deployment(n)).unwrap()
    }

    fn skeleton(&self) -> Skeleton {
        Skeleton::of(&self.blueprint, [], &self.catalog).unwrap()
    }

    fn resolve(&self, edits: &[Edit]) -> Effects {
        resolve(&self.skeleton(), &self.catalog, &numbered(edits))
    }

    /// Applies effects. The updated skeleton must equal one that is built from scratch.
    fn take(&mut self, effects: &Effects) {
        let mut skeleton = self.skeleton();
        let after = materialize(&self.blueprint, &|_| None, effects).unwrap().blueprint;
        skeleton.follow(&self.blueprint, &after, [], &self.catalog).unwrap();
        self.blueprint = after;
        assert_eq!(skeleton, self.skeleton());
    }

    /// Checks all documents, ranks and edges.
    fn check(&self) -> Result<(), TestCaseError> {
        let skeleton = self.skeleton();
        for id in skeleton.deployments.keys() {
            let chain = skeleton.chain(*id);
            let top = chain.last().and_then(|top| skeleton.deployments[top].parent);
            prop_assert!(top.is_none() && chain.len() <= MAX_LEVELS, "{chain:?} ends at the root");
        }
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
                    prop_assert!(
                        rank.is_some(),
                        "{key} on {} waits for what is not there",
                        node.fqdn
                    );
                    above = above.max(rank.unwrap() + 1);
                }
                prop_assert_eq!(noderole.rank, above, "{} on {}", key, &node.fqdn);
                let role = self.catalog.role(noderole.role).unwrap();
                let Some(gathered) = &role.gathers else { continue };
                let members: BTreeSet<NoderoleId> = skeleton
                    .candidates(noderole.deployment, gathered)
                    .map(|a| a.key.id(a.node))
                    .collect();
                let parents: BTreeSet<NoderoleId> =
                    noderole.parents.iter().map(|edge| edge.parent).collect();
                prop_assert!(!members.is_empty() && parents == members, "{} on {:?}", key, id);
            }
        }
        self.check_binding(&skeleton)
    }

    /// Checks the rules of binding on the result, independent of the planner.
    fn check_binding(&self, skeleton: &Skeleton) -> Result<(), TestCaseError> {
        let bound = Bindings::of(self, skeleton);
        for (id, noderole) in &bound.all {
            if noderole.role.gathers.is_none() {
                bound.check_parents(*id, noderole)?;
                bound.check_order(*id, noderole)?;
            }
        }
        for (id, node) in &skeleton.nodes {
            let carried: Vec<&Role> =
                node.noderoles.keys().map(|key| bound.all[&key.id(*id)].role).collect();
            for (at, one) in carried.iter().enumerate() {
                for other in &carried[at + 1..] {
                    let excludes =
                        |a: &Role, b: &Role| b.names().any(|name| a.conflicts.contains(name));
                    prop_assert!(
                        !excludes(one, other) && !excludes(other, one),
                        "{} and {}",
                        one.name,
                        other.name
                    );
                    prop_assert!(
                        one.names().all(|name| !other.satisfies(name)),
                        "{} and {} on {} answer to one name",
                        one.name,
                        other.name,
                        node.fqdn
                    );
                }
            }
        }
        Ok(())
    }
}

/// A noderole with the values that the rules of binding read.
struct Binding<'w> {
    node: NodeId,
    deployment: DeploymentId,
    role: &'w Role,
    parents: &'w [EdgeDoc],
}

/// All noderoles, with the barclamps that each deployment sees.
struct Bindings<'w> {
    world: &'w World,
    skeleton: &'w Skeleton,
    all: BTreeMap<NoderoleId, Binding<'w>>,
}

impl<'w> Bindings<'w> {
    fn of(world: &'w World, skeleton: &'w Skeleton) -> Self {
        let mut all = BTreeMap::new();
        for (node, carrier) in &skeleton.nodes {
            for (key, noderole) in &carrier.noderoles {
                let (deployment, parents) = (noderole.deployment, noderole.parents.as_slice());
                let role = &**world.catalog.role(noderole.role).unwrap();
                all.insert(key.id(*node), Binding { node: *node, deployment, role, parents });
            }
        }
        Self { world, skeleton, all }
    }

    /// The roles of the version that a deployment sees.
    fn seen(&self, deployment: DeploymentId) -> BTreeMap<&'w RoleName, &'w Role> {
        let pin = self.barclamp(deployment);
        pin.roles
            .iter()
            .map(|(name, hash)| (name, &**self.world.catalog.role(*hash).unwrap()))
            .collect()
    }

    fn barclamp(&self, deployment: DeploymentId) -> &'w Barclamp {
        let chain = self.skeleton.chain(deployment);
        let pin = chain
            .iter()
            .find_map(|id| self.skeleton.deployments[id].barclamps.values().next())
            .unwrap();
        self.world.catalog.barclamp(*pin).unwrap()
    }

    fn parent_names(&self, of: &Binding<'_>) -> BTreeSet<RoleName> {
        let seen = self.seen(of.deployment);
        let owns = |attrib: &AttribName| {
            seen.values().find(|role| role.attribs.iter().any(|a| a.name == *attrib))
        };
        let owners = of.role.wants.iter().filter_map(owns).map(|role| role.name.clone());
        let client = self
            .barclamp(of.deployment)
            .jigs
            .get(&of.role.jig)
            .and_then(|jig| jig.client_role.clone());
        let mut required: BTreeSet<RoleName> =
            of.role.requires.iter().cloned().chain(owners).chain(client).collect();
        required.remove(&of.role.name);
        required
    }

    /// Whether a parent, or a member of its barrier, answers to a name.
    fn serves(&self, parent: NoderoleId, required: &RoleName) -> bool {
        let found = &self.all[&parent];
        let before =
            || found.parents.iter().any(|edge| self.all[&edge.parent].role.satisfies(required));
        found.role.satisfies(required) || found.role.gathers.is_some() && before()
    }

    fn check_parents(&self, id: NoderoleId, of: &Binding<'_>) -> Result<(), TestCaseError> {
        let seen = self.seen(of.deployment);
        prop_assert_eq!(
            seen.get(&of.role.name).copied(),
            Some(of.role),
            "the content is the one in sight"
        );
        let hard: Vec<NoderoleId> =
            of.parents.iter().filter(|e| e.kind == EdgeKind::Hard).map(|e| e.parent).collect();
        let chain = self.skeleton.chain(of.deployment);
        let required = self.parent_names(of);
        for name in &required {
            let meant =
                seen.get(name).or_else(|| seen.values().find(|role| role.provides.contains(name)));
            let implicit = meant.is_some_and(|role| role.flags.implicit);
            // An implicit service is the one of the deployment itself.
            let service = meant.is_some_and(|role| role.flags.service);
            let phantom = service.then_some(self.skeleton.deployments[&of.deployment].phantom);
            let near = |node| node == of.node || Some(node) == phantom;
            let own =
                self.all.iter().filter(|(_, other)| near(other.node) && other.role.satisfies(name));
            let own: BTreeSet<NoderoleId> = own.map(|(id, _)| *id).collect();
            let fits = |parent: &NoderoleId| {
                let in_deployment = own.contains(parent)
                    || self.all[parent].parents.iter().any(|e| own.contains(&e.parent));
                let gathers = self.all[parent].role.gathers.is_some();
                let is_usable = own.contains(parent) || gathers && in_deployment;
                is_usable || !implicit && chain.contains(&self.all[parent].deployment)
            };
            let served = hard.iter().any(|parent| self.serves(*parent, name) && fits(parent));
            prop_assert!(served, "{} ({id}) wants {name}, implicit: {implicit}", of.role.name);
        }
        for parent in hard {
            let role = &self.all[&parent].role.name;
            prop_assert!(
                required.iter().any(|name| self.serves(parent, name)),
                "{} waits for {role}",
                of.role.name
            );
        }
        Ok(())
    }

    fn waits_for(&self, later: NoderoleId, earlier: NoderoleId) -> bool {
        later == earlier
            || self.all[&later].parents.iter().any(|edge| self.waits_for(edge.parent, earlier))
    }

    fn check_order(&self, id: NoderoleId, of: &Binding<'_>) -> Result<(), TestCaseError> {
        let implicit = of.role.flags.implicit;
        for edge in of.parents.iter().filter(|edge| edge.kind == EdgeKind::Soft) {
            let first = &self.all[&edge.parent];
            prop_assert!(
                first.role.preceeds.contains(&of.role.name),
                "{} before {}",
                first.role.name,
                of.role.name
            );
            prop_assert!(
                !implicit || first.node == of.node,
                "{} before {}",
                first.role.name,
                of.role.name
            );
        }
        for earlier in
            self.seen(of.deployment).values().filter(|role| role.preceeds.contains(&of.role.name))
        {
            let before = |other: &NoderoleId| self.all[other].role.name == earlier.name;
            let gathered =
                |other: &NoderoleId| self.all[other].role.gathers.as_ref() == Some(&earlier.name);
            let mut parents = of.parents.iter().map(|edge| edge.parent);
            if parents.any(|parent| before(&parent) || gathered(&parent)) {
                continue;
            }
            let near = |other: &Binding<'_>| {
                other.node == of.node || !implicit && other.deployment == of.deployment
            };
            let all = self.all.iter().filter(|(other, found)| before(other) && near(found));
            let mut free = all.filter(|(other, found)| {
                found.role.preceeds.contains(&of.role.name) && !self.waits_for(**other, id)
            });
            prop_assert!(
                free.next().is_none(),
                "{} has {} to wait for",
                of.role.name,
                earlier.name
            );
        }
        Ok(())
    }
}

fn numbered(edits: &[Edit]) -> Vec<NumberedEdit> {
    (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect()
}

/// Usually a node that every world has. Sometimes one that only larger worlds have or that edits
/// created.
fn some_node() -> impl Strategy<Value = u128> + Clone {
    prop_oneof![5 => 0..FEWEST_NODES + 1, 2 => FEWEST_NODES..MAX_NODES + 1]
}

fn some_deployment() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![5 => 0..3usize, 2 => 2..MAX_DEPLOYMENTS + 2]
}

fn some_nodes() -> impl Strategy<Value = BTreeSet<NodeId>> + Clone {
    prop::collection::btree_set(some_node().prop_map(node), 1..4)
}

/// The usual edits of a proposal on a deployment.
fn everyday() -> impl Strategy<Value = Drawn> {
    let (n, r, d) = (some_node(), 0..ROLES, some_deployment());
    let bind = (n.clone(), r.clone(), d.clone()).prop_map(|(n, r, d)| {
        Edit::Bind(edit::Bind { deployment: deployment(d), node: node(n), role: name(r) })
    });
    let bind_nodes = (some_nodes(), r.clone(), d.clone()).prop_map(|(nodes, r, d)| {
        Edit::BindNodes(edit::BindNodes { deployment: deployment(d), role: name(r), nodes })
    });
    let unbind = (n.clone(), r.clone(), any::<bool>()).prop_map(|(n, r, with_dependents)| {
        Edit::Unbind(edit::Unbind { node: node(n), noderole: key(r), with_dependents })
    });
    let unbind_nodes = (some_nodes(), r.clone())
        .prop_map(|(nodes, r)| Edit::UnbindNodes(edit::UnbindNodes { noderole: key(r), nodes }));
    let service = (d.clone(), r.clone(), any::<bool>()).prop_map(|(d, r, with_dependents)| {
        Edit::Unbind(edit::Unbind { node: phantom(d), noderole: key(r), with_dependents })
    });
    let expunge = n.clone().prop_map(|n| {
        Edit::ExpungeNode(edit::ExpungeNode { node: node(n), reason: "gone".into() })
    });
    let moved = (n.clone(), d.clone()).prop_map(|(n, d)| {
        Edit::MoveNode(edit::MoveNode { node: node(n), deployment: deployment(d) })
    });
    let add = (d.clone(), r.clone()).prop_map(|(d, r)| {
        Edit::AddRole(edit::AddRole { deployment: deployment(d), role: name(r) })
    });
    let drop_role = (d.clone(), r.clone()).prop_map(|(d, r)| {
        Edit::RemoveRole(edit::RemoveRole { deployment: deployment(d), role: name(r) })
    });
    let move_deployment = (d.clone(), d.clone()).prop_map(|(d, parent)| {
        Edit::MoveDeployment(edit::MoveDeployment {
            deployment: deployment(d),
            parent: deployment(parent),
        })
    });
    let drop_deployment = d
        .clone()
        .prop_map(|d| Edit::RemoveDeployment(edit::RemoveDeployment { deployment: deployment(d) }));
    let data = (n.clone(), r.clone(), 0..3u8).prop_map(|(n, r, v)| {
        Edit::SetNoderoleData(edit::SetNoderoleData {
            node: node(n),
            noderole: key(r),
            data: json!({"v": v}),
        })
    });
    let role_data = (d.clone(), r.clone(), 0..3u8).prop_map(|(d, r, v)| {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: deployment(d),
            role: name(r),
            data: json!({"v": v}),
        })
    });
    let edit = prop_oneof![
        10 => bind, 2 => bind_nodes, 4 => unbind, 1 => unbind_nodes, 1 => service, 1 => expunge, 2 => moved, 1 => add,
        1 => drop_role, 1 => drop_deployment, 2 => move_deployment, 1 => data, 1 => role_data
    ];
    let create = (0..2 * MAX_DEPLOYMENTS, d.clone())
        .prop_map(|(name, parent)| Drawn::Create { name, parent });
    let used =
        (d.clone(), prop_oneof![8 => 0..2usize, 1 => Just(2)]).prop_map(|(d, v)| Drawn::Use(d, v));
    let inherited = d.prop_map(Drawn::Inherit);
    prop_oneof![28 => edit.prop_map(Drawn::Edit), 1 => create, 2 => used, 1 => inherited]
}

/// Every kind of edit. [`every_edit_kind_is_generated`] checks this.
fn edit() -> impl Strategy<Value = Drawn> {
    let slice =
        (some_deployment(), prop::collection::btree_set(0..ROLES, 1..3)).prop_map(|(d, roles)| {
            Edit::RerunSlice(edit::RerunSlice {
                deployment: deployment(d),
                roles: roles.into_iter().map(name).collect(),
                reason: "again".into(),
            })
        });
    let jig = (any::<bool>(), any::<bool>()).prop_map(|(test, active)| {
        Edit::ActivateJig(edit::ActivateJig {
            jig: JigName::parse(if test { "test" } else { "noop" }).unwrap(),
            active,
        })
    });
    let policy = (0..4u32).prop_map(|approvals| {
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy { approvals, by_risk: BTreeMap::new(), ..Policy::default() },
        })
    });
    let again = (some_node(), 0..ROLES).prop_map(|(n, r)| {
        Edit::Rerun(edit::Rerun { node: node(n), noderole: key(r), reason: "again".into() })
    });
    let connection = (some_node(), 0..3u8).prop_map(|(n, v)| {
        Edit::SetConnection(edit::SetConnection {
            node: node(n),
            connection: ConnectionChange {
                root: Some(format!("/srv/{v}")),
                ..ConnectionChange::default()
            },
        })
    });
    let hints = (some_node(), 0..3u8).prop_map(|(n, v)| {
        Edit::SetHints(edit::SetHints { node: node(n), hints: json!({"rack": v}) })
    });
    let rare = prop_oneof![slice, jig, policy, again, connection, hints].prop_map(Drawn::Edit);
    prop_oneof![6 => everyday(), 1 => rare]
}

/// Lists every kind of edit, and returns the kind of an edit. A new kind does not compile before it
/// is listed here, and must then be generated too.
macro_rules! kinds {
    ($($kind:ident),*) => {
        const KINDS: &[&str] = &[$(stringify!($kind)),*];

        fn kind(edit: &Edit) -> &'static str {
            match edit {
                $(Edit::$kind { .. } => stringify!($kind)),*
            }
        }
    };
}

kinds! {
    CreateDeployment, RemoveDeployment, MoveDeployment, UseBarclamp, InheritBarclamp, AddRole, RemoveRole, SetRoleData, Bind, BindNodes, Unbind,
    UnbindNodes, SetNoderoleData, MoveNode, SetConnection, SetHints, ExpungeNode, Rerun, RerunSlice, ActivateJig, SetPolicy
}

#[test]
fn every_edit_kind_is_generated() {
    let mut runner = TestRunner::deterministic();
    let drawn = (beginning(), prop::collection::vec(edit(), 2_000))
        .new_tree(&mut runner)
        .unwrap()
        .current();
    let drawn: BTreeSet<&str> = World::of(&drawn.0).edits(&drawn.1).iter().map(kind).collect();
    assert_eq!(drawn, KINDS.iter().copied().collect());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn resolve_preserves_all_invariants(
        beginning in beginning(),
        first in prop::collection::vec(edit(), 0..16),
        second in prop::collection::vec(edit(), 1..16),
    ) {
        let mut world = World::of(&beginning);
        let (first, second) = (world.edits(&first), world.edits(&second));
        let effects = world.resolve(&first);
        world.take(&effects);
        world.check()?;

        let effects = world.resolve(&second);
        prop_assert_eq!(effects.hash().unwrap(), world.resolve(&second).hash().unwrap());
        let in_browser = world.browser(&second).effects_with(&numbered(&second), &[]).unwrap();
        prop_assert_eq!(in_browser.hash().unwrap(), effects.hash().unwrap());
        let read: Effects = serde_json::from_slice(&canonical::bytes(&effects).unwrap()).unwrap();
        prop_assert_eq!(&read, &effects);

        let before = world.blueprint.clone();
        world.take(&effects);
        world.check()?;
        let documents = changes(&before.root(), &world.blueprint.root());
        prop_assert!(!effects.is_empty() || documents.is_empty(), "nothing differs without an effect");
        // Data, connections and hints may be set to their old values, also of a noderole that was
        // bound again, and no document contains the policy.
        let is_set = |id: NoderoleId| {
            let data = effects.noderole_data.iter().map(|d| d.noderole.id(d.node));
            data.chain(effects.reruns.iter().map(|r| r.noderole.id(r.node))).any(|set| set == id)
        };
        let only_set = Effects {
            bound: effects.bound.iter().filter(|b| is_set(b.id)).cloned().collect(),
            unbound: effects.unbound.iter().filter(|u| is_set(u.id)).cloned().collect(),
            reruns: effects.reruns.iter().filter(|r| effects.bound.iter().any(|b| b.id == r.noderole.id(r.node))).cloned().collect(),
            policy: effects.policy.clone(),
            role_data: effects.role_data.clone(),
            noderole_data: effects.noderole_data.clone(),
            connections: effects.connections.clone(),
            hints: effects.hints.clone(),
            refused: effects.refused.clone(),
            ..Effects::default()
        };
        prop_assert!(!documents.is_empty() || effects == only_set, "every other effect is a difference: {:?}", effects);
        let work = project(&before, &world.blueprint, &documents, &world.catalog).unwrap();
        let removed: BTreeSet<NoderoleId> = work.removed.into_iter().collect();
        prop_assert!(effects.unbound.iter().all(|u| removed.contains(&u.id) || effects.bound.iter().any(|b| b.id == u.id)));
        prop_assert_eq!(world.resolve(&[]), Effects::default(), "nothing is left to do");

        // Edits that take effect together also take effect one by one.
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
    fn bind_and_unbind_restores_root(
        beginning in beginning(),
        first in prop::collection::vec(edit(), 0..16),
        n in 0..FEWEST_NODES,
        r in 0..ROLES,
    ) {
        let mut world = World::of(&beginning);
        // Adds all roles to all deployments first, because binding adds roles and unbinding leaves
        // them.
        let add = |(d, r): (usize, usize)| Edit::AddRole(edit::AddRole { deployment: deployment(d), role: name(r) });
        let first = world.edits(&first);
        let all = (0..world.minted).flat_map(|d| (0..ROLES).map(move |r| (d, r)));
        let harmless = |e: &Edit| !matches!(e, Edit::RemoveDeployment(edit::RemoveDeployment { .. }) | Edit::ExpungeNode(edit::ExpungeNode { .. }) | Edit::RemoveRole(edit::RemoveRole { .. }));
        let edits: Vec<Edit> = first.into_iter().filter(harmless).chain(all.map(add)).collect();
        let effects = world.resolve(&edits);
        world.take(&effects);
        let before = world.blueprint.root();
        let at = world.blueprint.nodes[&node(n)].doc.deployment;
        let effects = world.resolve(&[Edit::Bind(edit::Bind { deployment: at, node: node(n), role: name(r) })]);
        world.take(&effects);
        // Noderoles are unbound in the opposite order, each without dependents.
        let is_barrier = |key: &NoderoleKey| key.role.as_str().ends_with(".all");
        let mut back: Vec<_> = effects.bound.iter().filter(|b| !is_barrier(&b.noderole)).collect();
        back.sort_by_key(|bound| std::cmp::Reverse(bound.rank));
        for bound in back {
            let edit = Edit::Unbind(edit::Unbind { node: bound.node, noderole: bound.noderole.clone(), with_dependents: false });
            let gone = world.resolve(&[edit]);
            prop_assert_eq!(&gone.refused, &vec![], "{:?}", effects);
            world.take(&gone);
            world.check()?;
        }
        prop_assert_eq!(world.blueprint.root(), before);
    }
}

/// The page predicts the result of a proposal with further edits. It may fail to know only for a
/// version that was not in use when it received the planning data. The test measures how often it
/// knows, also for edits that use a version.
#[test]
fn browser_effects_equal_server_or_are_unknown() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let (known, known_with_version, unknown) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let edits = || prop::collection::vec(edit(), 0..10);
    let version = || (some_deployment(), 0..3usize).prop_map(|(d, v)| Drawn::Use(d, v));
    let further = prop::collection::vec(prop_oneof![9 => edit(), 1 => version()], 1..8);
    let done = runner.run(
        &(beginning(), edits(), edits(), further),
        |(beginning, first, draft, further)| {
            let mut world = World::of(&beginning);
            let first = world.edits(&first);
            let effects = world.resolve(&first);
            world.take(&effects);
            let (draft, further) = (world.edits(&draft), world.edits(&further));
            let used = |edits: &[Edit]| -> BTreeSet<Hash> {
                let version = |edit: &Edit| match edit {
                    Edit::UseBarclamp(edit::UseBarclamp { version, .. }) => Some(*version),
                    _ => None,
                };
                edits.iter().filter_map(version).collect()
            };
            let pinned = world
                .blueprint
                .deployments
                .values()
                .flat_map(|found| found.doc.barclamps.values().copied());
            let in_use: BTreeSet<Hash> =
                pinned.chain(used(&draft)).filter(|hash| world.versions.contains(hash)).collect();

            let all: Vec<Edit> = draft.iter().chain(&further).cloned().collect();
            let (before, new) = (numbered(&draft), numbered(&all).split_off(draft.len()));
            let foretold = world.browser(&draft).effects_with(&before, &new);
            prop_assert_eq!(foretold.is_some(), used(&further).is_subset(&in_use));
            let count = |of: &Cell<usize>| of.set(of.get() + 1);
            let Some(foretold) = foretold else {
                count(&unknown);
                return Ok(());
            };
            prop_assert_eq!(foretold.hash().unwrap(), world.resolve(&all).hash().unwrap());
            count(if used(&further).is_empty() { &known } else { &known_with_version });
            Ok(())
        },
    );
    done.unwrap();
    let counts = (known.get(), known_with_version.get(), unknown.get());
    println!("KNOWN {}, {} with a version; UNKNOWN {}", counts.0, counts.1, counts.2);
    assert!(counts.0 >= 10 && counts.1 >= 5 && counts.2 >= 5, "{counts:?}");
}

/// Edits of different things, none of which affects another's result.
fn independent() -> impl Strategy<Value = Vec<Edit>> {
    let role_data = (some_deployment(), 0..ROLES, 0..3u8).prop_map(|(d, r, v)| {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: deployment(d),
            role: name(r),
            data: json!({"of": v}),
        })
    });
    let data = (some_node(), 0..ROLES, 0..3u8).prop_map(|(n, r, v)| {
        Edit::SetNoderoleData(edit::SetNoderoleData {
            node: node(n),
            noderole: key(r),
            data: json!({"of": v}),
        })
    });
    let again = (some_node(), 0..ROLES).prop_map(|(n, r)| {
        Edit::Rerun(edit::Rerun { node: node(n), noderole: key(r), reason: "again".into() })
    });
    let about = |edit: &Edit| match edit {
        Edit::SetRoleData(edit::SetRoleData { deployment, role, .. }) => {
            format!("{deployment} {role}")
        }
        Edit::SetNoderoleData(edit::SetNoderoleData { node, noderole, .. }) => {
            format!("{node} {noderole}")
        }
        Edit::Rerun(edit::Rerun { node, noderole, .. }) => format!("again {node} {noderole}"),
        _ => String::new(),
    };
    prop::collection::vec(prop_oneof![role_data, data, again], 1..12).prop_map(move |edits| {
        let by_subject: BTreeMap<String, Edit> =
            edits.into_iter().map(|edit| (about(&edit), edit)).collect();
        by_subject.into_values().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn independent_edits_commute(
        beginning in beginning(),
        first in prop::collection::vec(everyday(), 4..20),
        (edits, shuffled) in independent().prop_flat_map(|edits| (Just(edits.clone()), Just(edits).prop_shuffle())),
    ) {
        let mut world = World::of(&beginning);
        let first = world.edits(&first);
        let effects = world.resolve(&first);
        world.take(&effects);
        let (mut one, mut other) = (world.clone(), world.clone());
        one.take(&world.resolve(&edits));
        other.take(&world.resolve(&shuffled));
        prop_assert_eq!(one.blueprint.root(), other.blueprint.root());
    }

    #[test]
    fn node_proposal_writes_only_its_machine(
        beginning in beginning(),
        first in prop::collection::vec(everyday(), 4..20),
        drawn in prop::collection::vec(edit(), 1..24),
        n in 0..FEWEST_NODES,
    ) {
        let mut world = World::of(&beginning);
        let first = world.edits(&first);
        let effects = world.resolve(&first);
        world.take(&effects);
        let (skeleton, scope) = (world.skeleton(), Scope::Node(node(n)));
        // Most generated edits concern another node, so redirect them to this one.
        let in_scope = |edit: Edit| match edit {
            Edit::Bind(edit::Bind { deployment, role, .. }) => Edit::Bind(edit::Bind { deployment, node: node(n), role }),
            Edit::BindNodes(edit::BindNodes { deployment, role, .. }) => Edit::BindNodes(edit::BindNodes { deployment, role, nodes: [node(n)].into() }),
            Edit::Unbind(edit::Unbind { noderole, with_dependents, .. }) => Edit::Unbind(edit::Unbind { node: node(n), noderole, with_dependents }),
            Edit::UnbindNodes(edit::UnbindNodes { noderole, .. }) => Edit::UnbindNodes(edit::UnbindNodes { noderole, nodes: [node(n)].into() }),
            Edit::SetNoderoleData(edit::SetNoderoleData { noderole, data, .. }) => Edit::SetNoderoleData(edit::SetNoderoleData { node: node(n), noderole, data }),
            other => other,
        };
        let edits: Vec<Edit> =
            world.edits(&drawn).into_iter().map(in_scope).filter(|edit| ScopeChecker::new(&skeleton, scope).covers(edit)).collect();
        let effects = world.resolve(&edits);
        if beyond(&skeleton, scope, &effects).is_some() {
            return Ok(());
        }
        let before = world.blueprint.clone();
        world.take(&effects);
        world.check()?;
        let documents = compare(&before, &world.blueprint);
        for document in &documents {
            if let DocumentChange::Node { id, .. } = document {
                let phantom = skeleton.nodes.get(id).is_some_and(|found| found.phantom);
                prop_assert!(*id == node(n) || phantom, "{id} is another machine");
            }
        }
        let rests_on = base(&skeleton, scope, &effects);
        let written = written(&before, &world.blueprint, &documents);
        prop_assert_eq!(outside(&skeleton, &rests_on, &written), BTreeSet::new(), "its review covers all that it writes");
    }
}

/// Bindings of different roles in one deployment, as a file declares them.
fn declared() -> impl Strategy<Value = Vec<(usize, BTreeSet<NodeId>)>> {
    let roles = prop::sample::subsequence((0..ROLES).collect::<Vec<_>>(), 2..=4);
    roles.prop_shuffle().prop_flat_map(|roles| {
        roles.into_iter().map(|role| (Just(role), some_nodes())).collect::<Vec<_>>()
    })
}

/// A role that a file binds is on the declared nodes only, unless it is implicit. The test measures
/// how often the order decides, so that bindings without requirements do not pass.
#[test]
fn declared_role_is_never_added_elsewhere() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let (ordered, decided) = (Cell::new(0), Cell::new(0));
    let done = runner.run(&(beginning(), declared()), |(beginning, declared)| {
        let world = World::of(&beginning);
        let bind = |(r, nodes): &(usize, BTreeSet<NodeId>)| {
            let (role, nodes) = (name(*r), nodes.clone());
            Edit::BindNodes(edit::BindNodes { deployment: deployment(0), role, nodes })
        };
        let edits: Vec<Edit> = declared.iter().map(bind).collect();
        let named: BTreeSet<RoleName> = declared.iter().map(|(r, _)| name(*r)).collect();
        let elsewhere = |effects: &Effects| {
            let mut bound = effects.bound.iter();
            let brought =
                |b: &Bound| matches!(b.cause, EffectCause::Required { implicit: false, .. });
            bound.any(|b| named.contains(&b.noderole.role) && brought(b))
        };
        let positions = order(&world.skeleton(), &world.catalog, &[], &edits);
        let sorted: Vec<Edit> = positions.iter().map(|place| edits[*place].clone()).collect();
        let effects = world.resolve(&sorted);
        if !effects.refused.is_empty() {
            return Ok(());
        }
        prop_assert!(!elsewhere(&effects), "{:?}", effects);
        ordered.set(ordered.get() + 1);
        decided.set(decided.get() + usize::from(elsewhere(&world.resolve(&edits))));

        // The same roles are removed from all nodes with one request, in any order.
        let mut after = world.clone();
        after.take(&effects);
        let carriers = |r: usize| -> BTreeSet<NodeId> {
            let nodes = after.blueprint.nodes.values().map(|node| &node.doc);
            nodes.filter(|node| node.noderoles.contains_key(&key(r))).map(|node| node.id).collect()
        };
        let all: Vec<Edit> = (0..ROLES)
            .map(|r| edit::UnbindNodes { noderole: key(r), nodes: carriers(r) })
            .filter(|edit| !edit.nodes.is_empty())
            .map(Edit::UnbindNodes)
            .collect();
        let positions = order(&after.skeleton(), &after.catalog, &[], &all);
        let sorted: Vec<Edit> = positions.iter().map(|place| all[*place].clone()).collect();
        prop_assert_eq!(&after.resolve(&sorted).refused, &vec![]);
        Ok(())
    });
    done.unwrap();
    println!("ORDERED {}, {} of them by the order", ordered.get(), decided.get());
    assert!(ordered.get() >= 30 && decided.get() >= 5, "{ordered:?} {decided:?}");
}

/// Additional nodes, many of them equivalent: fresh ones, and ones with the same bindings.
fn many_alike(world: &mut World, alike: &[Edit]) -> Vec<NodeId> {
    let dragged: Vec<NodeId> = (0..9).map(|n| node(20 + n)).collect();
    let homes: Vec<DeploymentId> = world.blueprint.deployments.keys().copied().take(2).collect();
    for (n, id) in dragged.iter().enumerate() {
        let fqdn = Fqdn::parse(&format!("m{n}.random.example.com")).unwrap();
        let doc = NodeDoc {
            id: *id,
            fqdn,
            deployment: homes[n % homes.len()],
            phantom: false,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: BTreeMap::new(),
        };
        world.blueprint.insert_node(doc).unwrap();
    }
    let on = |id: NodeId| {
        alike.iter().filter_map(move |edit| match edit {
            Edit::Bind(edit::Bind { deployment, role, .. }) => Some(Edit::Bind(edit::Bind {
                deployment: *deployment,
                node: id,
                role: role.clone(),
            })),
            _ => None,
        })
    };
    let edits: Vec<Edit> = dragged.iter().take(6).flat_map(|id| on(*id)).collect();
    let effects = world.resolve(&edits);
    world.take(&effects);
    dragged.into_iter().chain((0..MAX_NODES + 1).map(node)).collect()
}

/// A real drop: every node is bound to the role, one after the other, in the state after the
/// proposal's edits. As further edits of the proposal, the bindings would not be effects if they
/// only bind again what the proposal unbinds.
fn dropped(
    world: &World,
    edits: &[Edit],
    d: usize,
    role: &RoleName,
    nodes: &[NodeId],
) -> RoleDropPreview {
    let skeleton = world.skeleton();
    let bind = |node: &NodeId| {
        Edit::Bind(edit::Bind { deployment: deployment(d), node: *node, role: role.clone() })
    };
    let mut before = world.clone();
    before.take(&world.resolve(edits));
    let effects = before.resolve(&nodes.iter().map(bind).collect::<Vec<_>>());
    let name = |id: DeploymentId| skeleton.deployments.get(&id).map(|found| found.name.to_string());
    let called = |fqdn: &Fqdn| engine::cluster::phantom::short_name(fqdn, name).into_owned();
    let short =
        |node: NodeId| skeleton.nodes.get(&node).map_or(node.to_string(), |n| called(&n.fqdn));
    let mut reported = RoleDropPreview {
        role: role.clone(),
        legal: Vec::new(),
        illegal: Vec::new(),
        unknown: Vec::new(),
        also_added: Vec::new(),
        moves: Vec::new(),
        added: 0,
        wave: None,
    };
    // A node whose binding adds nothing has the role already, itself or as a service.
    let new: &[Bound] = &effects.bound;
    let binds = |seq: u32| new.iter().any(|b| b.cause == EffectCause::Requested { edit: seq });
    let mut after = before.clone();
    after.take(&effects);
    let already = |id: NodeId| {
        let key = NoderoleKey::first(role.clone());
        let phantom = after.blueprint.deployments[&deployment(d)].doc.phantom;
        let mut places = [id, phantom].into_iter().map(|id| &after.blueprint.nodes[&id].doc);
        let carrier = places.find(|node| node.noderoles.contains_key(&key)).unwrap();
        format!("Role {role} is already bound to node {}", carrier.fqdn)
    };
    for (seq, id) in (1..).zip(nodes) {
        let refused = effects.refused.iter().find(|refused| refused.edit == seq);
        match refused.map(|refused| refused.reason.clone()) {
            None if binds(seq) => reported.legal.push(*id),
            reason => {
                let reason = reason.unwrap_or_else(|| already(*id));
                reported.illegal.push(engine::plan::drop_preview::IllegalNode {
                    node: *id,
                    short: short(*id),
                    reason,
                });
            }
        }
    }
    reported.added = new.len();
    let mut levels: BTreeMap<NoderoleId, u32> = BTreeMap::new();
    for bound in new {
        let above = bound.parents.iter().filter_map(|edge| levels.get(&edge.parent)).max();
        levels.insert(bound.id, above.map_or(0, |level| level + 1));
        let EffectCause::Required { by, implicit, .. } = &bound.cause else { continue };
        let reason = format!("required by {by}{}", if *implicit { ", implicit" } else { "" });
        let known = reported
            .also_added
            .iter()
            .position(|b| b.role == bound.noderole.role && b.reason == reason);
        let at = known.unwrap_or_else(|| {
            let role = bound.noderole.role.clone();
            reported.also_added.push(engine::plan::drop_preview::AddedRole {
                role,
                nodes: Vec::new(),
                count: 0,
                reason,
            });
            reported.also_added.len() - 1
        });
        reported.also_added[at].count += 1;
        if reported.also_added[at].nodes.len() < 8 {
            reported.also_added[at].nodes.push(short(bound.node));
        }
    }
    let own =
        new.iter().filter(|b| b.noderole.role == *role).filter_map(|b| levels.get(&b.id)).max();
    reported.wave = own.zip(levels.values().max()).map(|(own, all)| (own + 1, all + 1));
    // From the node's place in the proposal, because the board shows it there.
    let at =
        |world: &World, node: NodeId| world.blueprint.nodes.get(&node).map(|n| n.doc.deployment);
    // The proposal itself may have created the deployment of a node.
    let titled = |id: DeploymentId| &after.blueprint.deployments[&id].doc.name;
    let moved = nodes.iter().filter_map(|id| Some((*id, at(&before, *id)?, at(&after, *id)?)));
    reported.moves = moved
        .filter(|(_, from, to)| from != to)
        .map(|(id, from, to)| {
            format!("Node {} moves from {} to {}", short(id), titled(from), titled(to))
        })
        .collect();
    reported
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn preview_predicts_drop(
        beginning in beginning(),
        alike in prop::collection::vec(everyday(), 0..6),
        first in prop::collection::vec(everyday(), 0..10),
        draft in prop::collection::vec(everyday(), 0..6),
        d in some_deployment(),
    ) {
        let mut world = World::of(&beginning);
        let first = world.edits(&first);
        let effects = world.resolve(&first);
        world.take(&effects);
        let alike = world.edits(&alike);
        let nodes = many_alike(&mut world, &alike);
        let edits = world.edits(&draft);
        let skeleton = world.skeleton();
        let next = u32::try_from(edits.len()).unwrap() + 1;
        let preview = preview_drop(&skeleton, &world.catalog, &numbered(&edits), next, deployment(d), &nodes);
        let browser = world.browser(&edits);
        let in_browser = preview_drop(&browser.skeleton, &browser.catalog, &numbered(&edits), next, deployment(d), &nodes);
        prop_assert_eq!(&in_browser, &preview);

        let mut after = world.clone();
        after.take(&world.resolve(&edits));
        let found_deployment = after.blueprint.deployments.get(&deployment(d));
        let roles: Vec<RoleName> = found_deployment.map(|found| found.doc.roles.keys().cloned().collect()).unwrap_or_default();
        prop_assert_eq!(preview.roles.iter().map(|role| role.role.clone()).collect::<Vec<_>>(), roles);
        for reported in preview.roles {
            let is = dropped(&world, &edits, d, &reported.role, &nodes);
            prop_assert_eq!(reported, is);
        }
    }
}

/// Restores a deployment from one list of edits to another. The test measures how many cases are
/// fully restored, so that restoring nothing does not pass.
#[test]
fn restore_is_complete_or_reports_differences() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 240,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let (whole, busy) = (Cell::new(0), Cell::new(0));
    let edits = || prop::collection::vec(everyday(), 1..14);
    let drawn = (beginning(), edits(), edits(), any::<prop::sample::Index>());
    let done = runner.run(&drawn, |(beginning, first, second, d)| {
        let d = 1 + d.index(beginning.parents.len());
        let mut then = World::of(&beginning);
        let first = then.edits(&first);
        let effects = then.resolve(&first);
        then.take(&effects);
        let mut now = then.clone();
        let second = now.edits(&second);
        let effects = now.resolve(&second);
        now.take(&effects);
        let (Some(was), Some(is)) = (then.state(d), now.state(d)) else { return Ok(()) };

        let Restore { edits, missing } = now.restore(&then, d);
        let effects = now.resolve(&edits);
        prop_assert_eq!(&effects.refused, &vec![], "every edit takes effect");
        let skeleton = now.skeleton();
        let mut within = ScopeChecker::new(&skeleton, deployment(d));
        for edit in &edits {
            prop_assert!(within.covers(edit), "{:?}", edit);
            within.record(edit);
        }
        let mut back = now.clone();
        back.take(&effects);
        back.check()?;
        let back = back.state(d).unwrap();
        let required: BTreeSet<&Goal> = missing.iter().map(|m| &m.goal).collect();
        let named = |of: Goal| required.contains(&of);
        for (at, noderole) in &was.noderoles {
            let same = back.noderoles.get(at) == Some(noderole);
            prop_assert_eq!(same, !named(Goal::Noderole(at.0, at.1.clone())), "{:?}", at);
        }
        for at in back.noderoles.keys() {
            prop_assert_eq!(
                was.noderoles.contains_key(at),
                !named(Goal::WithoutNoderole(at.0, at.1.clone())),
                "{:?}",
                at
            );
        }
        for (role, content) in &was.roles {
            prop_assert_eq!(
                back.roles.get(role) == Some(content),
                !named(Goal::Role(role.clone())),
                "{}",
                role
            );
        }
        for role in back.roles.keys() {
            prop_assert_eq!(
                was.roles.contains_key(role),
                !named(Goal::WithoutRole(role.clone())),
                "{}",
                role
            );
        }
        for node in &was.nodes {
            prop_assert_eq!(back.nodes.contains(node), !named(Goal::Node(*node)), "{}", node);
        }
        prop_assert!(missing.iter().all(|m| !m.reason.is_empty()), "each with its reason");
        prop_assert_eq!(
            was.versions == back.versions,
            !missing.iter().any(|m| matches!(m.goal, Goal::Version(_) | Goal::WithoutBarclamp(_)))
        );
        if missing.is_empty() {
            // Compares by hash, like documents. Nodes that joined since stay.
            let hash = |state: &State| {
                let noderoles: Vec<_> = state.noderoles.iter().collect();
                canonical::hash(&json!([state.versions, state.roles, noderoles])).unwrap()
            };
            prop_assert_eq!(hash(&back), hash(&was), "what is asked for, and nothing beside it");
            prop_assert!(was.nodes.is_subset(&back.nodes));
        }
        if was != is {
            busy.set(busy.get() + 1);
            whole.set(whole.get() + usize::from(missing.is_empty()));
        }
        Ok(())
    });
    done.unwrap();
    let (whole, busy) = (whole.get(), busy.get());
    println!("WHOLE {whole} of {busy}");
    assert!(busy >= 60 && whole * 2 >= busy, "{whole} of {busy} restores were complete");
}

/// Roles of a second barclamp.
const SECOND_ROLES: usize = 4;

fn second_name(n: usize) -> RoleName {
    RoleName::parse(&format!("s{n}")).unwrap()
}

/// The second barclamp. Its name comes first, so its attributes and jigs hide those of the other.
fn second_barclamp() -> BarclampName {
    BarclampName::parse("a").unwrap()
}

fn import_second(catalog: &mut Catalog, all: &[Wires], version: &str) -> Hash {
    let mut content = BTreeMap::new();
    for (n, wires) in all.iter().take(SECOND_ROLES).enumerate() {
        let own = role(n, wires, version);
        let role = Role {
            name: second_name(n),
            barclamp: second_barclamp(),
            requires: (0..n).filter(|m| wires.requires[*m]).map(second_name).collect(),
            wants: Vec::new(),
            attribs: own.attribs.into_iter().filter(|_| wires.conflicts).collect(),
            conflicts: BTreeSet::new(),
            ..own
        };
        let hash = canonical::hash(&role).unwrap();
        content.insert(role.name.clone(), hash);
        catalog.add_role(hash, Arc::new(role));
    }
    let jig = json!({"test": {"class": "test", "client_role": second_name(0)}});
    let jigs = if all[1].conflicts { jig } else { json!({}) };
    let stored = json!({"name": "a", "version": version, "roles": content, "jigs": jigs});
    let stored: Barclamp = serde_json::from_value(stored).unwrap();
    let object = Object::of(ObjectKind::Barclamp, &stored).unwrap();
    catalog.add(&object).unwrap();
    object.hash
}

impl World {
    /// Adds the second barclamp and pins it in *system*. Returns an edit for each of its versions.
    fn add_second(&mut self, beginning: &Beginning) -> [Edit; 2] {
        let pins = [(&beginning.first, "1"), (&beginning.other, "2")]
            .map(|(roles, version)| import_second(&mut self.catalog, roles, version));
        let uses = pins.map(|version| {
            Edit::UseBarclamp(edit::UseBarclamp {
                deployment: deployment(0),
                barclamp: second_barclamp(),
                version,
            })
        });
        let effects = self.resolve(&uses[..1]);
        self.take(&effects);
        uses
    }

    /// The edits of the list that take effect together.
    fn effective(&self, mut edits: Vec<Edit>) -> Vec<Edit> {
        loop {
            let refused = self.resolve(&edits).refused;
            if refused.is_empty() {
                return edits;
            }
            let refused: BTreeSet<u32> = refused.into_iter().map(|refusal| refusal.edit).collect();
            edits = numbered(&edits)
                .into_iter()
                .filter(|numbered| !refused.contains(&numbered.seq))
                .map(|numbered| numbered.edit)
                .collect();
        }
    }

    /// The blueprint after these effects, and the documents that change.
    fn after(&self, effects: &Effects) -> (Blueprint, Vec<DocumentChange>) {
        let after = materialize(&self.blueprint, &|_| None, effects).unwrap().blueprint;
        let documents = compare(&self.blueprint, &after);
        (after, documents)
    }
}

/// Edits of the shared part of the cluster.
fn shared_edit() -> impl Strategy<Value = Drawn> {
    let bind = (some_node(), 0..SECOND_ROLES).prop_map(|(n, r)| {
        Edit::Bind(edit::Bind { deployment: deployment(0), node: node(n), role: second_name(r) })
    });
    let unbind = (some_node(), 0..SECOND_ROLES).prop_map(|(n, r)| {
        let noderole = NoderoleKey::first(second_name(r));
        Edit::Unbind(edit::Unbind { node: node(n), noderole, with_dependents: true })
    });
    let add = (0..ROLES)
        .prop_map(|r| Edit::AddRole(edit::AddRole { deployment: deployment(0), role: name(r) }));
    let data = (0..ROLES, 3..6u8).prop_map(|(r, v)| {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: deployment(0),
            role: name(r),
            data: json!({"v": v}),
        })
    });
    let jig = any::<bool>().prop_map(|test| {
        Edit::ActivateJig(edit::ActivateJig {
            jig: JigName::parse(if test { "test" } else { "noop" }).unwrap(),
            active: false,
        })
    });
    let shared = prop_oneof![3 => bind, 1 => unbind, 1 => add, 2 => data, 1 => jig];
    prop_oneof![2 => shared.prop_map(Drawn::Edit), 1 => edit()]
}

/// A review in a deployment and a commit in an ancestor. If the commit changes nothing that the
/// review reads, the review still has its approved effects and documents. The test measures how
/// many reviews survive a commit in their base, so that voiding all of them does not pass.
#[test]
fn commit_outside_of_reads_leaves_plan_identical() {
    let cases = std::env::var("READS_CASES").ok().and_then(|cases| cases.parse().ok());
    let mut runner = TestRunner::new(ProptestConfig {
        cases: cases.unwrap_or(1_500),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let (survived, void) = (Cell::new(0), Cell::new(0));
    let drawn = (
        beginning(),
        prop::collection::vec(prop_oneof![2 => everyday(), 1 => shared_edit()], 0..14),
        prop::collection::vec(prop_oneof![5 => everyday(), 1 => edit()], 1..8),
        prop::collection::vec(shared_edit(), 1..4),
        prop::option::weighted(0.3, 0..2usize),
        any::<prop::sample::Index>(),
    );
    let done = runner.run(&drawn, |(beginning, first, review, commit, version, own)| {
        let mut world = World::of(&beginning);
        let uses = world.add_second(&beginning);
        let first = world.edits(&first);
        let effects = world.resolve(&first);
        world.take(&effects);
        let own = deployment(1 + own.index(beginning.parents.len()));
        let skeleton = world.skeleton();
        let covered = |edit: &Edit| ScopeChecker::new(&skeleton, own).covers(edit);
        let review: Vec<Edit> = world.edits(&review).into_iter().filter(covered).collect();
        let review = world.effective(review);
        let commit = world.edits(&commit).into_iter().chain(version.map(|v| uses[v].clone()));
        let commit = world.effective(commit.collect());
        let (approved, committed) = (world.resolve(&review), world.resolve(&commit));
        if !skeleton.deployments.contains_key(&own) || approved.is_empty() {
            return Ok(());
        }
        let (planned, documents) = world.after(&approved);
        let (after, changes) = world.after(&committed);
        let now = World { blueprint: after, ..world.clone() };

        let base = base(&skeleton, own, &approved);
        let changed = written(&world.blueprint, &now.blueprint, &changes);
        let changed: BTreeSet<_> = base.intersection(&changed).copied().collect();
        if changed.is_empty() {
            return Ok(());
        }
        let writes = written(&world.blueprint, &planned, &documents);
        let review_change = Change { old: &world.blueprint, new: &planned, documents: &documents };
        let commit_change =
            Change { old: &world.blueprint, new: &now.blueprint, documents: &changes };
        let reads =
            Reads::of(review_change, approved.policy.is_some(), &now.skeleton(), &world.catalog)
                .unwrap();
        let ancestors = skeleton.chain(own).split_off(1);
        let voids = |id: &DeploymentId| {
            !ancestors.contains(id)
                || writes.contains(id)
                || reads.changed_by(commit_change, *id, &world.catalog).unwrap()
        };
        let id = |change: &DocumentChange| match change {
            DocumentChange::Deployment { id, .. } => id.0,
            DocumentChange::Node { id, .. } => id.0,
        };
        let replaced = documents.iter().any(|one| changes.iter().any(|two| id(one) == id(two)));
        if replaced || changed.iter().any(voids) {
            void.set(void.get() + 1);
            return Ok(());
        }
        let again = now.resolve(&review);
        // The reads come from documents. They miss the needs of edits that no document shows: edits
        // that cancel each other, and the node that was named for a service role, which is bound to
        // a phantom. A refused edit blocks the commit by itself.
        if !again.refused.is_empty() {
            return Ok(());
        }
        survived.set(survived.get() + 1);
        prop_assert_eq!(&again, &approved, "{:?} and then {:?}", commit, review);
        prop_assert_eq!(now.after(&again).1, documents);
        Ok(())
    });
    done.unwrap();
    let (survived, void) = (survived.get(), void.get());
    println!("SURVIVED {survived}, VOID {void}");
    assert!(survived >= 50 && void >= 50, "{survived} plans survived and {void} were void");
}
