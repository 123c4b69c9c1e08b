//! The present: the current desired state, read once and shared.
//!
//! Documents and catalog objects are immutable under their hash. They stay in memory until the
//! process ends, so a new target only costs reading its changes. Data that can change (the head,
//! deployment rows, nodes without a document) is read each time, so no plan uses old data.
//!
//! CPU-bound work here runs once for all requests that wait for it. So it needs no
//! [permit](crate::compute), and other computations cannot block page views. The construction of a
//! skeleton always finishes and its result is cached, even if no request waits for it any more.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use api::Problem;
use engine::Hash;
use engine::blueprint::Difference;
use engine::blueprint::text::{NamedNoderole, parents};
use engine::catalog::{Catalog, CatalogError};
use engine::cluster::document::parse;
use engine::cluster::{Blueprint, RootDoc, Skeleton, phantom};
use engine::counting::many;
use engine::ids::{BlueprintNumber, DeploymentId, Fqdn, NodeId, NoderoleId};
use engine::plan::UndocumentedNode;
use sqlx::PgConnection;
use store::StoreError;
use store::blueprints::Head;
use store::deployments::DeploymentRow;
use store::nodes::UndocumentedNodeRow;
use tokio::sync::Mutex;

use crate::Control;
use crate::compute::{ComputeLimit, on_blocking_thread};
use crate::problems::from_store;

/// The input of planning and pages.
#[derive(Debug, Clone)]
pub(crate) struct CurrentState {
    pub head: Head,
    pub blueprint: Arc<Blueprint>,
    pub catalog: Arc<Catalog>,
    pub skeleton: Arc<Skeleton>,
    pub rows: Vec<DeploymentRow>,
    /// Records of nodes without a document.
    node_records: Arc<BTreeMap<NodeId, UndocumentedNodeRow>>,
}

/// The parts of the present that can change, as of one snapshot.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub head: Head,
    pub root: Hash,
    pub catalog: Arc<Catalog>,
    node_records: Vec<UndocumentedNodeRow>,
    rows: Vec<DeploymentRow>,
}

/// Cache of data that is immutable under its hash.
#[derive(Debug, Default)]
pub(crate) struct ObjectCache {
    blueprint: RwLock<Option<(Hash, Arc<Blueprint>)>>,
    /// Locked while a blueprint is read.
    reads: Mutex<()>,
    catalog: RwLock<Arc<Catalog>>,
    skeleton: Arc<Mutex<Option<CachedSkeleton>>>,
    /// Scripts with hidden characters.
    pub hidden_character_scans: crate::hidden_characters::ScanResults,
}

/// The skeleton of a root and of the nodes without a document. It depends on nothing else, so it
/// can be reused while both are the same. Building it visits all noderoles. With 200,000 noderoles
/// this takes longer than the rest of a commit, so the next skeleton is derived from it.
#[derive(Debug, Clone)]
struct CachedSkeleton {
    /// The epoch and the target.
    at: (i64, BlueprintNumber),
    root: Hash,
    blueprint: Arc<Blueprint>,
    node_records: Vec<UndocumentedNodeRow>,
    skeleton: Arc<Skeleton>,
}

impl CurrentState {
    pub fn row(&self, id: DeploymentId) -> Option<&DeploymentRow> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// `, with 12 deployments below it`; empty if there are none.
    pub fn with_descendants(&self, id: DeploymentId) -> String {
        let all = self.skeleton.deployments.keys();
        let below = all.filter(|other| **other != id && self.skeleton.chain(**other).contains(&id));
        match below.count() {
            0 => String::new(),
            n => format!(", with {} below it", many(n, "deployment")),
        }
    }

    /// The node with this id or name.
    pub fn node_named(&self, name: &str) -> Result<NodeId, Problem> {
        let nodes = &self.skeleton.nodes;
        let by_id = name.parse::<NodeId>().ok().filter(|id| nodes.contains_key(id));
        let has_name = |id: &NodeId| self.short_name(*id).is_some_and(|short| short == name);
        let by_name = || {
            let by_fqdn =
                nodes.iter().find(|(_, node)| node.fqdn.as_str() == name).map(|(id, _)| *id);
            by_fqdn.or_else(|| nodes.keys().copied().find(has_name))
        };
        let shown: String = name.chars().take(253).collect();
        by_id.or_else(by_name).ok_or_else(|| {
            Problem::not_found(format!(
                "Node {shown} does not exist. Use its full name from GET /api/v1/nodes."
            ))
        })
    }

    /// The deployment with this name or id.
    pub fn named(&self, name: &str) -> Result<DeploymentId, Problem> {
        let found = self.skeleton.deployments.iter().find(|(_, d)| d.name.as_str() == name);
        let by_id = || {
            let id = name.parse().ok()?;
            self.skeleton.deployments.contains_key(&id).then_some(id)
        };
        found.map(|(id, _)| *id).or_else(by_id).ok_or_else(|| {
            let names = self.skeleton.deployments.values().map(|d| d.name.as_str());
            let hint = engine::suggestion::nearest(name, names);
            let hint = match hint {
                Some(name) => format!("Did you mean {name:?}?"),
                None => "See the list of deployments.".to_owned(),
            };
            Problem::not_found(format!("Deployment {name:?} does not exist. {hint}"))
        })
    }

    /// The root deployment.
    pub fn system(&self) -> Result<DeploymentId, Problem> {
        let found = self.skeleton.deployments.iter().find(|(_, d)| d.parent.is_none());
        found.map(|(id, _)| *id).ok_or_else(Problem::internal)
    }

    /// The name of a deployment, or its id if the deployment was removed.
    pub fn name_of(&self, id: DeploymentId) -> String {
        self.skeleton
            .deployments
            .get(&id)
            .map(|d| d.name.to_string())
            .unwrap_or_else(|| id.to_string())
    }

    /// The display name of a node next to its domain; `None` if the node was removed.
    pub fn short_name(&self, node: NodeId) -> Option<String> {
        let fqdn = &self.skeleton.nodes.get(&node)?.fqdn;
        let name =
            |id| self.skeleton.deployments.get(&id).map(|deployment| deployment.name.to_string());
        Some(phantom::short_name(fqdn, name).into_owned())
    }

    /// The display name of a node without its domain in the context.
    pub fn long_name(&self, fqdn: &str) -> String {
        let name =
            |id| self.skeleton.deployments.get(&id).map(|deployment| deployment.name.to_string());
        Fqdn::parse(fqdn)
            .map_or_else(|_| fqdn.to_owned(), |fqdn| phantom::long_name(&fqdn, name).into_owned())
    }

    /// The name of a node in commands: a machine's full name, or `phantom:web`.
    pub fn command_name(&self, fqdn: &str) -> String {
        let name =
            |id| self.skeleton.deployments.get(&id).map(|deployment| deployment.name.to_string());
        Fqdn::parse(fqdn)
            .map_or_else(|_| fqdn.to_owned(), |fqdn| phantom::name(&fqdn, name).into_owned())
    }

    /// The parents that these differences name: existing noderoles, and those that the differences
    /// add or remove.
    pub fn parents<'d>(
        &self,
        differences: impl IntoIterator<Item = &'d Difference>,
    ) -> BTreeMap<NoderoleId, NamedNoderole> {
        let mut places = BTreeMap::new();
        for difference in differences {
            for parent in parents(difference) {
                let Some((node, noderole)) = self.skeleton.location(parent) else { continue };
                let Some(fqdn) = self.skeleton.nodes.get(node).map(|node| node.fqdn.clone()) else {
                    continue;
                };
                places.insert(
                    parent,
                    NamedNoderole { noderole: noderole.clone(), node: *node, fqdn },
                );
            }
            // A parent that is added in the same change is not in the skeleton yet.
            for node in &difference.nodes {
                for noderole in &node.noderoles {
                    let place = NamedNoderole {
                        noderole: noderole.noderole.clone(),
                        node: node.id,
                        fqdn: node.fqdn.clone(),
                    };
                    places.entry(noderole.id).or_insert(place);
                }
            }
        }
        places
    }

    /// The record of a node without a document. An invalid connection counts as none.
    pub fn node_record(&self, id: NodeId) -> Option<UndocumentedNode> {
        let UndocumentedNodeRow { id: _, fqdn, deployment, connection, hints } =
            self.node_records.get(&id)?;
        Some(UndocumentedNode {
            fqdn: fqdn.clone(),
            deployment: *deployment,
            connection: connection
                .clone()
                .and_then(|connection| serde_json::from_value(connection).ok()),
            hints: hints.as_object().cloned().unwrap_or_default(),
        })
    }
}

impl ObjectCache {
    /// Reads the parts that can change. `on` must be a transaction with a snapshot.
    pub async fn cluster_state(&self, on: &mut PgConnection) -> Result<ClusterState, Problem> {
        let head = store::blueprints::head(on).await.map_err(from_store)?;
        let root = head.root.ok_or_else(|| {
            Problem::unavailable(
                "This database has no blueprint yet. Start `gantry server` or `gantry up` on it once.",
            )
        })?;
        let catalog = self.catalog(on).await.map_err(from_store)?;
        let node_records = store::nodes::undocumented_nodes(on).await.map_err(from_store)?;
        let rows = store::deployments::deployment_rows(on).await.map_err(from_store)?;
        Ok(ClusterState { head, root, catalog, node_records, rows })
    }

    /// The present as of a snapshot. The caller must not have a connection, because this may wait
    /// for other requests.
    pub async fn current_state(
        &self,
        control: &Control,
        state: ClusterState,
    ) -> Result<CurrentState, Problem> {
        let ClusterState { head, root, catalog, node_records, rows } = state;
        let blueprint = self.blueprint(control, root).await?;
        let skeleton = self
            .skeleton((head.epoch, head.number), root, node_records.clone(), &blueprint, &catalog)
            .await?;
        let node_records = Arc::new(node_records.into_iter().map(|node| (node.id, node)).collect());
        Ok(CurrentState { head, blueprint, catalog, skeleton, rows, node_records })
    }

    /// Builds or updates the skeleton on a blocking thread. With 200,000 noderoles the first build
    /// takes most of a second. An update only compares hashes of documents, and copies the skeleton
    /// if a reader still uses the old one.
    async fn skeleton(
        &self,
        at: (i64, BlueprintNumber),
        root: Hash,
        node_records: Vec<UndocumentedNodeRow>,
        blueprint: &Arc<Blueprint>,
        catalog: &Arc<Catalog>,
    ) -> Result<Arc<Skeleton>, Problem> {
        // Locked until the skeleton is ready, so that other requests wait for it instead of
        // building another.
        let mut cached = Arc::clone(&self.skeleton).lock_owned().await;
        if let Some(reusable) = cached
            .as_ref()
            .filter(|cached| cached.root == root && cached.node_records == node_records)
        {
            return Ok(Arc::clone(&reusable.skeleton));
        }
        let (blueprint, catalog) = (Arc::clone(blueprint), Arc::clone(catalog));
        // The task stores the result itself, because the request that started it may be gone by
        // then.
        let building = on_blocking_thread(move || {
            // A reader with an older snapshot gets its skeleton, but must not replace a newer one
            // in the cache.
            let is_older = cached.as_ref().is_some_and(|cached| cached.at > at);
            let before = if is_older { (*cached).clone() } else { cached.take() };
            let built = build_skeleton(before, at, root, node_records, blueprint, &catalog)?;
            let skeleton = Arc::clone(&built.skeleton);
            if !is_older {
                *cached = Some(built);
            }
            Ok::<_, CatalogError>(skeleton)
        });
        building.await?.map_err(|error| {
            tracing::error!(%error, "the catalog lacks an object that the blueprint pins");
            Problem::internal()
        })
    }

    /// The blueprint of the newest root, read once for all requests that wait for it.
    async fn blueprint(&self, control: &Control, root: Hash) -> Result<Arc<Blueprint>, Problem> {
        let cached = || self.blueprint.read().map(|cached| cached.clone()).unwrap_or_default();
        let matching =
            |(hash, blueprint): (Hash, Arc<Blueprint>)| (hash == root).then_some(blueprint);
        if let Some(blueprint) = cached().and_then(matching) {
            return Ok(blueprint);
        }
        let _reads = self.reads.lock().await;
        let before = match cached() {
            Some((hash, blueprint)) if hash == root => return Ok(blueprint),
            Some((_, blueprint)) => blueprint,
            None => Arc::default(),
        };
        let blueprint = Arc::new(load(control, &ComputeLimit::Unlimited, root, &before).await?);
        if let Ok(mut cached) = self.blueprint.write() {
            *cached = Some((root, Arc::clone(&blueprint)));
        }
        Ok(blueprint)
    }

    /// The whole catalog.
    pub async fn catalog(&self, on: &mut PgConnection) -> Result<Arc<Catalog>, StoreError> {
        let cached = self.catalog.read().map(|cached| Arc::clone(&cached)).unwrap_or_default();
        let known: Vec<Hash> = cached
            .barclamps()
            .map(|(hash, _)| hash)
            .chain(cached.roles().map(|(hash, _)| hash))
            .collect();
        let new = store::catalog::catalog_objects(on, &known).await?;
        if new.is_empty() {
            return Ok(cached);
        }
        let mut catalog = (*cached).clone();
        for object in &new {
            catalog
                .add(object)
                .map_err(|e| StoreError::corrupt(format!("object {}", object.hash), e))?;
        }
        let catalog = Arc::new(catalog);
        if let Ok(mut cached) = self.catalog.write() {
            *cached = Arc::clone(&catalog);
        }
        Ok(catalog)
    }
}

fn build_skeleton(
    before: Option<CachedSkeleton>,
    at: (i64, BlueprintNumber),
    root: Hash,
    node_records: Vec<UndocumentedNodeRow>,
    blueprint: Arc<Blueprint>,
    catalog: &Catalog,
) -> Result<CachedSkeleton, CatalogError> {
    let nodes = || node_records.iter().map(|node| (node.id, node.fqdn.clone(), node.deployment));
    let followed = before.and_then(|mut cached| {
        let followed = Arc::make_mut(&mut cached.skeleton).follow(
            &cached.blueprint,
            &blueprint,
            nodes(),
            catalog,
        );
        // The cached skeleton may belong to a newer target, with roles that are missing in this
        // reader's older catalog.
        followed.ok().map(|()| cached.skeleton)
    });
    let skeleton = match followed {
        Some(skeleton) => skeleton,
        None => Arc::new(Skeleton::of(&blueprint, nodes(), catalog)?),
    };
    Ok(CachedSkeleton { at, root, blueprint, node_records, skeleton })
}

/// Loads a blueprint and reuses the documents that `before` already has. Parsing runs outside of
/// the threads that answer requests, because an old target may differ in every node.
pub(crate) async fn load(
    control: &Control,
    compute: &ComputeLimit,
    root: Hash,
    before: &Arc<Blueprint>,
) -> Result<Blueprint, Problem> {
    let mut connection = control.connection().await?;
    let found = store::catalog::bodies(&mut connection, &[root]).await;
    let body = found.and_then(|bodies| single_body(bodies, root)).map_err(from_store)?;
    drop(connection);
    let known = Arc::clone(before);
    let named = compute.work(move || {
        let doc: RootDoc = parse("root", root, &body).map_err(corrupt)?;
        let missing = [missing_deployments(&doc, &known), missing_nodes(&doc, &known)].concat();
        Ok::<_, StoreError>((doc, missing))
    });
    let (doc, missing) = named.await?.map_err(from_store)?;
    let mut connection = control.connection().await?;
    let bodies = bodies(&mut connection, &missing).await.map_err(from_store)?;
    drop(connection);
    let known = Arc::clone(before);
    compute.work(move || with_nodes(&doc, &known, &bodies)).await?.map_err(from_store)
}

/// Like [`load`], without documents to reuse and on the caller's connection. For callers that read
/// a whole snapshot and block no other request.
pub(crate) async fn load_full_blueprint(
    on: &mut PgConnection,
    root: Hash,
) -> Result<Blueprint, StoreError> {
    let (body, empty) =
        (single_body(store::catalog::bodies(on, &[root]).await?, root)?, Blueprint::default());
    let doc: RootDoc = parse("root", root, &body).map_err(corrupt)?;
    let missing = [missing_deployments(&doc, &empty), missing_nodes(&doc, &empty)].concat();
    let bodies = bodies(on, &missing).await?;
    with_nodes(&doc, &empty, &bodies)
}

/// Loads only the deployments of a blueprint. Callers that need the pinned versions skip the many
/// nodes.
pub(crate) async fn load_deployments(
    on: &mut PgConnection,
    root: Hash,
    before: &Blueprint,
) -> Result<Blueprint, StoreError> {
    let body = single_body(store::catalog::bodies(on, &[root]).await?, root)?;
    let doc: RootDoc = parse("root", root, &body).map_err(corrupt)?;
    let bodies = bodies(on, &missing_deployments(&doc, before)).await?;
    with_deployments(&doc, before, &bodies)
}

fn missing_deployments(doc: &RootDoc, before: &Blueprint) -> Vec<Hash> {
    let missing = |id| {
        move |hash: &Hash| before.deployments.get(id).is_none_or(|stored| stored.hash != *hash)
    };
    doc.deployments.iter().filter_map(|(id, hash)| Some(*hash).filter(missing(id))).collect()
}

fn missing_nodes(doc: &RootDoc, before: &Blueprint) -> Vec<Hash> {
    let missing =
        |id| move |hash: &Hash| before.nodes.get(id).is_none_or(|stored| stored.hash != *hash);
    doc.nodes.iter().filter_map(|(id, hash)| Some(*hash).filter(missing(id))).collect()
}

fn with_deployments(
    doc: &RootDoc,
    before: &Blueprint,
    bodies: &BTreeMap<Hash, Vec<u8>>,
) -> Result<Blueprint, StoreError> {
    let mut blueprint = Blueprint::default();
    for (id, hash) in &doc.deployments {
        match before.deployments.get(id).filter(|stored| stored.hash == *hash) {
            Some(stored) => drop(blueprint.deployments.insert(*id, stored.clone())),
            None => blueprint.load_deployment(*hash, find_body(bodies, *hash)?).map_err(corrupt)?,
        }
    }
    Ok(blueprint)
}

fn with_nodes(
    doc: &RootDoc,
    before: &Blueprint,
    bodies: &BTreeMap<Hash, Vec<u8>>,
) -> Result<Blueprint, StoreError> {
    let mut blueprint = with_deployments(doc, before, bodies)?;
    for (id, hash) in &doc.nodes {
        match before.nodes.get(id).filter(|stored| stored.hash == *hash) {
            Some(stored) => drop(blueprint.nodes.insert(*id, stored.clone())),
            None => blueprint.load_node(*hash, find_body(bodies, *hash)?).map_err(corrupt)?,
        }
    }
    Ok(blueprint)
}

/// Skips the query if nothing is missing.
async fn bodies(
    on: &mut PgConnection,
    missing: &[Hash],
) -> Result<BTreeMap<Hash, Vec<u8>>, StoreError> {
    if missing.is_empty() { Ok(BTreeMap::new()) } else { store::catalog::bodies(on, missing).await }
}

fn corrupt(error: engine::cluster::BlueprintError) -> StoreError {
    StoreError::corrupt("object", error)
}

fn find_body(bodies: &BTreeMap<Hash, Vec<u8>>, hash: Hash) -> Result<&[u8], StoreError> {
    bodies
        .get(&hash)
        .map(Vec::as_slice)
        .ok_or_else(|| StoreError::corrupt(format!("object {hash}"), "it is missing"))
}

fn single_body(mut bodies: BTreeMap<Hash, Vec<u8>>, hash: Hash) -> Result<Vec<u8>, StoreError> {
    bodies
        .remove(&hash)
        .ok_or_else(|| StoreError::corrupt(format!("object {hash}"), "it is missing"))
}
