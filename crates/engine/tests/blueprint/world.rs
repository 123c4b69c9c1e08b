//! A small cluster: *system* with children *web* and *edge*, nodes without a document, and roles
//! defined in code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::Hash;
use engine::blueprint::{DocumentChange, Projection, compare, project};
use engine::canonical::{Object, ObjectKind};
use engine::catalog::{
    Barclamp, Catalog, ConcurrencyGroup, ConcurrencyGroupMode, Flags, JigClass, Role,
};
use engine::cluster::{Blueprint, DeploymentDoc, NoderoleDoc, NoderoleKey, Skeleton};
use engine::ids::{
    BarclampName, ConcurrencyGroupName, DeploymentId, DeploymentName, Fqdn, JigName, NodeId,
    RoleName,
};
use engine::plan::{Edit, Effects, NumberedEdit, edit, materialize, resolve};
use serde_json::{Value, json};
use uuid::Uuid;

pub const SYSTEM: DeploymentId = DeploymentId(Uuid::from_u128(1));
pub const WEB: DeploymentId = DeploymentId(Uuid::from_u128(2));
pub const EDGE: DeploymentId = DeploymentId(Uuid::from_u128(3));

pub fn name(text: &str) -> RoleName {
    RoleName::parse(text).unwrap()
}

pub fn key(role: &str) -> NoderoleKey {
    NoderoleKey::first(name(role))
}

pub fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(100 + n))
}

pub fn fqdn(n: u128) -> Fqdn {
    Fqdn::parse(&format!("n{n}.house.example.com")).unwrap()
}

pub fn role(text: &str, requires: &[&str]) -> Role {
    Role {
        name: name(text),
        barclamp: BarclampName::parse("house").unwrap(),
        jig: JigName::parse("noop").unwrap(),
        jig_class: JigClass::Noop,
        description: String::new(),
        flags: Flags::default(),
        requires: requires.iter().map(|r| name(r)).collect(),
        provides: BTreeSet::new(),
        conflicts: BTreeSet::new(),
        preceeds: BTreeSet::new(),
        wants: Vec::new(),
        gathers: Default::default(),
        template: Value::Null,
        attribs: Vec::new(),
        run: Default::default(),
        actions: BTreeSet::new(),
        scripts: Vec::new(),
        metadata: Value::Null,
    }
}

pub fn flagged(role: Role, flag: impl Fn(&mut Flags)) -> Role {
    let mut flags = role.flags.clone();
    flag(&mut flags);
    Role { flags, ..role }
}

pub fn in_group(role: Role, max_running: u32, mode: ConcurrencyGroupMode) -> Role {
    let concurrency_group =
        ConcurrencyGroup { name: ConcurrencyGroupName::of_role(&role.name), max_running, mode };
    Role {
        run: engine::catalog::RunPolicy {
            concurrency_group: Some(concurrency_group),
            ..role.run.clone()
        },
        ..role
    }
}

/// A cluster and its catalog.
#[derive(Clone)]
pub struct World {
    pub catalog: Catalog,
    pub blueprint: Blueprint,
    pub nodes: u128,
}

/// A change of a world.
pub struct Changed {
    pub old: Blueprint,
    pub new: Blueprint,
    pub changes: Vec<DocumentChange>,
    pub effects: Effects,
    pub projection: Projection,
    pub catalog: Catalog,
}

impl World {
    pub fn of(roles: Vec<Role>) -> Self {
        let mut world =
            Self { catalog: Catalog::default(), blueprint: Blueprint::default(), nodes: 6 };
        let pin = world.import("1", roles);
        for (n, (id, label, parent)) in
            [(SYSTEM, "system", None), (WEB, "web", Some(SYSTEM)), (EDGE, "edge", Some(SYSTEM))]
                .into_iter()
                .enumerate()
        {
            let pins = parent.is_none().then(|| (BarclampName::parse("house").unwrap(), pin));
            let doc = DeploymentDoc {
                id,
                name: DeploymentName::parse(label).unwrap(),
                parent,
                phantom: NodeId(Uuid::from_u128(50 + n as u128)),
                barclamps: pins.into_iter().collect(),
                roles: BTreeMap::new(),
                inactive_jigs: BTreeSet::new(),
            };
            world.blueprint.insert_deployment(doc).unwrap();
        }
        world
    }

    /// Imports a version of the barclamp `house`.
    pub fn import(&mut self, version: &str, roles: Vec<Role>) -> Hash {
        let mut content = BTreeMap::new();
        for role in roles {
            let hash = engine::canonical::hash(&role).unwrap();
            content.insert(role.name.clone(), hash);
            self.catalog.add_role(hash, Arc::new(role));
        }
        let barclamp: Barclamp =
            serde_json::from_value(json!({"name": "house", "version": version, "roles": content}))
                .unwrap();
        let object = Object::of(ObjectKind::Barclamp, &barclamp).unwrap();
        self.catalog.add(&object).unwrap();
        object.hash
    }

    fn records(&self) -> impl Iterator<Item = (NodeId, Fqdn, DeploymentId)> {
        (1..=self.nodes).map(|n| (node(n), fqdn(n), SYSTEM))
    }

    /// The result of edits, all of which must take effect.
    pub fn change(&self, edits: &[Edit]) -> Changed {
        let skeleton = Skeleton::of(&self.blueprint, self.records(), &self.catalog).unwrap();
        let numbered: Vec<NumberedEdit> =
            (1..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() }).collect();
        let effects = resolve(&skeleton, &self.catalog, &numbered);
        assert_eq!(effects.refused, []);
        let records = |id| self.records().find(|b| b.0 == id).map(|b| (b.1, b.2).into());
        let new = materialize(&self.blueprint, &records, &effects).unwrap().blueprint;
        Changed { effects, ..self.to(new) }
    }

    /// The change to another blueprint, whether or not edits can produce it.
    pub fn to(&self, new: Blueprint) -> Changed {
        let changes = compare(&self.blueprint, &new);
        let projection = project(&self.blueprint, &new, &changes, &self.catalog).unwrap();
        Changed {
            old: self.blueprint.clone(),
            new,
            changes,
            effects: Effects::default(),
            projection,
            catalog: self.catalog.clone(),
        }
    }

    /// Applies edits like a commit.
    pub fn commit(&mut self, edits: &[Edit]) {
        self.blueprint = self.change(edits).new;
    }

    /// The blueprint with a node's document rewritten, as no edit could do it.
    pub fn with_node(&self, n: u128, change: impl Fn(&mut engine::cluster::NodeDoc)) -> Blueprint {
        let mut new = self.blueprint.clone();
        let mut doc = (*new.nodes.get(&node(n)).unwrap().doc).clone();
        change(&mut doc);
        new.insert_node(doc).unwrap();
        new
    }

    /// The same for one noderole.
    pub fn with_noderole(
        &self,
        n: u128,
        role: &str,
        change: impl Fn(&mut NoderoleDoc),
    ) -> Blueprint {
        self.with_node(n, |doc| change(doc.noderoles.get_mut(&key(role)).unwrap()))
    }
}

pub fn bind(deployment: DeploymentId, n: u128, role: &str) -> Edit {
    Edit::Bind(edit::Bind { deployment, node: node(n), role: name(role) })
}

pub fn data(n: u128, role: &str, data: Value) -> Edit {
    Edit::SetNoderoleData(edit::SetNoderoleData { node: node(n), noderole: key(role), data })
}

pub fn role_data(deployment: DeploymentId, role: &str, data: Value) -> Edit {
    Edit::SetRoleData(edit::SetRoleData { deployment, role: name(role), data })
}

pub fn rerun(n: u128, role: &str) -> Edit {
    Edit::Rerun(edit::Rerun {
        node: node(n),
        noderole: key(role),
        reason: "the disk was replaced".into(),
    })
}
