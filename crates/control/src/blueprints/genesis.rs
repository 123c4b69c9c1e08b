//! Genesis: the first target. There is no review, because no person exists yet.
//!
//! It contains *system* with its phantom node, the approval policy, and the shipped barclamps,
//! pinned. For the demo it also contains deployments with bindable roles, and node records. Genesis
//! happens once. All later changes of the desired state are reviewed.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use engine::Hash;
use engine::blueprint::{changes, project};
use engine::canonical::{Object, ObjectKind};
use engine::catalog::version::newest;
use engine::catalog::{Catalog, visible_barclamps};
use engine::cluster::{Blueprint, DeploymentDoc, DeploymentRoleDoc, NodeDoc, RootDoc};
use engine::gate::Policy;
use engine::ids::{BarclampName, DeploymentId, DeploymentName, Fqdn, NodeId, RoleName};
use engine::plan::resolve::phantom_fqdn;
use engine::plan::{Edit, duplicate_role, edit};
use serde_json::json;
use store::blueprints::NewBlueprint;
use store::nodes::NewNode;
use store::people::DEMO_CHANGE;
use uuid::{Builder, Uuid};

use crate::people::Actor;
use crate::problems::from_store;
use crate::{Control, done, text};

/// The content of a demo, in addition to *system*.
///
/// The ids of a demo are derived from names, and lists are sorted by id. So two demos are equal,
/// and tests can compare screenshots. Without a demo, ids are random.
#[derive(Debug, Clone, Default)]
pub struct Demo {
    /// Deployments below *system*.
    pub deployments: Vec<DemoDeployment>,
    /// Node records with their root folders, in *system*.
    pub nodes: Vec<(Fqdn, String)>,
}

impl Demo {
    /// The id of an object that genesis creates.
    fn id(&self, kind: &str, name: &str) -> Uuid {
        if self.deployments.is_empty() && self.nodes.is_empty() {
            return Uuid::new_v4();
        }
        let hash = Hash::of_bytes(format!("demo {kind} {name}").as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&hash.as_bytes()[..16]);
        Builder::from_custom_bytes(half).into_uuid()
    }
}

/// A deployment of a demo.
#[derive(Debug, Clone)]
pub struct DemoDeployment {
    pub name: DeploymentName,
    /// Roles that can be bound in this deployment.
    pub roles: Vec<RoleName>,
}

impl Control {
    /// Creates the first target unless one exists; returns whether it did. *system* pins the newest
    /// version of each imported barclamp.
    ///
    /// # Errors
    /// If no imported barclamp has one of the demo's roles.
    pub async fn ensure_genesis(&self, policy: &Policy, demo: &Demo) -> Result<bool, Problem> {
        policy.check().map_err(|error| Problem::invalid(text::sentence(&error.to_string())))?;
        let mut transaction = self.begin().await?;
        let head =
            store::blueprints::lock_for_commit(&mut transaction).await.map_err(from_store)?;
        if head.root.is_some() {
            return Ok(false);
        }
        let catalog = self.cache.catalog(&mut transaction).await.map_err(from_store)?;
        let pins =
            newest(&catalog).into_iter().map(|(name, (hash, _))| (name.clone(), hash)).collect();
        check_names(&catalog, &pins)?;
        let (blueprint, mut objects) = first_blueprint(&catalog, pins, demo)?;
        let system =
            blueprint.deployments.values().find(|d| d.doc.parent.is_none()).map(|d| d.doc.id);
        let system = system.ok_or_else(Problem::internal)?;
        let root = blueprint.root_object().map_err(|e| Problem::invalid(e.to_string()))?;
        let changes = changes(&RootDoc::default(), &blueprint.root());
        let projection = project(&Blueprint::default(), &blueprint, &changes, &catalog)
            .map_err(|error| Problem::invalid(text::sentence(&error.to_string())))?;
        let written: BTreeSet<DeploymentId> = blueprint.deployments.keys().copied().collect();
        let policy_object =
            Object::of(ObjectKind::Policy, policy).map_err(|e| Problem::invalid(e.to_string()))?;
        let new = NewBlueprint {
            head,
            review: None,
            policy: None,
            by: None,
            old: &Blueprint::default(),
            new: &blueprint,
            root: root.hash,
            changes: &changes,
            written: &written,
            projection: &projection,
        };
        objects.extend([root.clone(), policy_object.clone()]);
        store::catalog::ensure_objects(&mut transaction, &objects).await.map_err(from_store)?;
        store::blueprints::commit_genesis(&mut transaction, &new, &policy_object)
            .await
            .map_err(from_store)?;
        for (fqdn, folder) in &demo.nodes {
            let node = NewNode {
                id: NodeId(demo.id("node", fqdn.as_str())),
                fqdn: fqdn.clone(),
                deployment: system,
                transport: "local",
                connection: json!({"root": folder}),
                addresses: Vec::new(),
                by: None,
            };
            store::nodes::insert_node(&mut transaction, &node).await.map_err(from_store)?;
        }
        store::audit::append_audit(
            &mut transaction,
            None,
            "genesis",
            "1",
            &json!({"root": root.hash}),
        )
        .await
        .map_err(from_store)?;
        done(transaction).await?;
        Ok(true)
    }

    /// Creates a review in the usual way, so that a new user has one to look at. The audit log
    /// records Gantry as the initiator. So the proposal does not count as an action of its nominal
    /// author.
    ///
    /// # Errors
    /// The errors of the individual proposal calls.
    pub async fn propose_binding(
        &self,
        actor: &Actor,
        deployment: &str,
        title: &str,
        binds: &[(RoleName, Fqdn)],
    ) -> Result<(), Problem> {
        let present = self.current_state().await?;
        let deployment = present.named(deployment)?;
        let edits = binds.iter().map(|(role, fqdn)| {
            let node = present.skeleton.nodes.iter().find(|(_, node)| node.fqdn == *fqdn);
            let (node, _) = node.ok_or_else(|| {
                Problem::not_found(format!("Node {fqdn} does not exist. Add the node first."))
            })?;
            Ok(Edit::Bind(edit::Bind { deployment, node: *node, role: role.clone() }))
        });
        let edits = edits.collect::<Result<Vec<_>, Problem>>()?;
        let proposal = self.propose(actor, deployment).await?;
        let version = self.edit(actor, proposal, 0, edits).await?;
        let review = self.submit(actor, proposal, version, title.to_owned()).await?;
        let mut connection = self.connection().await?;
        store::audit::append_audit(
            &mut connection,
            None,
            DEMO_CHANGE,
            &review.to_string(),
            &json!({"by": actor.name}),
        )
        .await
        .map_err(from_store)
    }
}

/// Applies the naming rule for edits to the barclamps of *system*.
fn check_names(catalog: &Catalog, pins: &BTreeMap<BarclampName, Hash>) -> Result<(), Problem> {
    let invalid =
        |error: engine::catalog::CatalogError| Problem::invalid(text::sentence(&error.to_string()));
    for pin in pins.values() {
        let barclamp = catalog.barclamp(*pin).map_err(invalid)?;
        if let Some((other, role)) =
            duplicate_role(catalog, barclamp, &visible_barclamps([pins])).map_err(invalid)?
        {
            return Err(Problem::invalid(format!(
                "Barclamps {} and {other} both have a role {role}. Rename the role in one of them, \
                 or leave out that barclamp.",
                barclamp.name
            )));
        }
    }
    Ok(())
}

fn first_blueprint(
    catalog: &Catalog,
    pins: BTreeMap<BarclampName, Hash>,
    demo: &Demo,
) -> Result<(Blueprint, Vec<Object>), Problem> {
    let mut blueprint = Blueprint::default();
    let mut objects = Vec::new();
    let broken = |error: engine::cluster::BlueprintError| {
        Problem::invalid(text::sentence(&error.to_string()))
    };
    let mut add = |name: DeploymentName, parent, barclamps, roles| {
        let (id, phantom) = (
            DeploymentId(demo.id("deployment", name.as_str())),
            NodeId(demo.id("phantom", name.as_str())),
        );
        let node = NodeDoc {
            id: phantom,
            fqdn: phantom_fqdn(id),
            deployment: id,
            phantom: true,
            connection: None,
            hints: serde_json::Map::new(),
            noderoles: BTreeMap::new(),
        };
        objects.push(blueprint.insert_node(node).map_err(broken)?);
        let doc = DeploymentDoc {
            id,
            name,
            parent,
            phantom,
            barclamps,
            roles,
            inactive_jigs: BTreeSet::new(),
        };
        objects.push(blueprint.insert_deployment(doc).map_err(broken)?);
        Ok::<_, Problem>(id)
    };
    let system = DeploymentName::parse("system").map_err(|e| Problem::invalid(e.to_string()))?;
    let system = add(system, None, pins.clone(), BTreeMap::new())?;
    for deployment in &demo.deployments {
        let role = |name: &RoleName| {
            let found =
                pins.values().find_map(|pin| catalog.barclamp(*pin).ok()?.roles.get(name).copied());
            let role = found.ok_or_else(|| {
                Problem::invalid(format!("No shipped barclamp has a role {name}."))
            })?;
            Ok((name.clone(), DeploymentRoleDoc { role, data: json!({}) }))
        };
        let roles =
            deployment.roles.iter().map(role).collect::<Result<BTreeMap<_, _>, Problem>>()?;
        add(deployment.name.clone(), Some(system), BTreeMap::new(), roles)?;
    }
    Ok((blueprint, objects))
}

#[cfg(test)]
mod tests {
    use crate::blueprints::genesis::*;

    fn root(demo: &Demo) -> Hash {
        let (blueprint, _) = first_blueprint(&Catalog::default(), BTreeMap::new(), demo).unwrap();
        blueprint.root_object().unwrap().hash
    }

    #[test]
    fn only_demos_have_reproducible_ids() {
        let web = DemoDeployment { name: DeploymentName::parse("web").unwrap(), roles: Vec::new() };
        let demo = Demo { deployments: vec![web], nodes: Vec::new() };
        assert_eq!(root(&demo), root(&demo));
        assert_ne!(demo.id("deployment", "web"), demo.id("phantom", "web"));
        assert_ne!(root(&Demo::default()), root(&Demo::default()));
    }
}
