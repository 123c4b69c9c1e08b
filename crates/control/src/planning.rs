//! What a browser needs to plan by itself while somebody drags: the skeleton, the catalog and the proposal's edits.
//!
//! The first two are large and change rarely, so they are named by a stamp and sent only to who has not got them. Of the catalog only
//! what is in use goes along, since a catalog keeps every version that there ever was. What is too large for a browser ([`LARGEST`]) is
//! not sent at all: then the page asks the server for each lift.
//!
//! The edits' effects come along as a hash: a browser that comes to another one does not trust itself any more and asks, too.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::console::{Ground, PlannerView};
use engine::Hash;
use engine::canonical;
use engine::cluster::Skeleton;
use engine::ids::{DeploymentId, Fqdn, NodeId, ProposalId, SubmissionId};
use engine::plan::{Edit, NumberedEdit, Report, report, resolve};
use store::intent;

use crate::linting;
use crate::people::{Actor, Permission};
use crate::present::Present;
use crate::problems::from_store;
use crate::proposing::{authors, counting, plan};
use crate::{Control, aside};

/// Most parts (nodes, noderoles, edges and roles) that a browser is sent to plan on: some ten megabytes.
const LARGEST: usize = 100_000;

impl Control {
    /// How an open proposal was planned, stage by stage.
    pub async fn report(&self, actor: &Actor, proposal: ProposalId) -> Result<Report, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let mut connection = self.connection().await?;
        let row = intent::proposal(&mut connection, proposal).await.map_err(from_store)?;
        let row = row.ok_or_else(|| Problem::not_found(format!("There is no proposal {proposal}.")))?;
        if row.state != "open" {
            return Err(Problem::conflict("not_planned", "This proposal is closed, so it is planned no more."));
        }
        let rows = intent::edits(&mut connection, row.id).await.map_err(from_store)?;
        let ground = self.ground(&mut connection, &present).await?;
        drop(connection);
        aside(move || {
            let edits = counting(&rows);
            let (skeleton, catalog) = (&present.skeleton, &present.catalog);
            match plan(&present, &edits) {
                Ok(planned) => {
                    let findings = linting::all(&present, &planned, ground.lint(&authors(&rows)));
                    report(skeleton, catalog, &edits, &planned.effects, Some(&findings))
                }
                Err(_) => report(skeleton, catalog, &edits, &resolve(skeleton, catalog, &edits), None),
            }
        })
        .await
    }

    /// How a submission was planned, as long as it is its open proposal's newest version: on what is there afterwards it would come
    /// out otherwise.
    pub async fn review_report(&self, actor: &Actor, id: SubmissionId) -> Result<Option<Report>, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let row = intent::submission(&mut connection, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| Problem::not_found(format!("There is no review {id}.")))?;
        let proposal = intent::proposal(&mut connection, row.proposal).await.map_err(from_store)?;
        if proposal.is_none_or(|proposal| proposal.version != row.version || proposal.state != "open") {
            return Ok(None);
        }
        drop(connection);
        self.report(actor, row.proposal).await.map(Some)
    }

    /// What planning on a deployment's open proposal takes; the ground is left out for who knows its stamp.
    pub async fn planner(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
        known: Option<&str>,
    ) -> Result<PlannerView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let mut connection = self.connection().await?;
        let open = intent::open_proposal(&mut connection, deployment).await.map_err(from_store)?;
        let open = open.ok_or_else(|| Problem::conflict("no_proposal", "There is no open proposal here any more."))?;
        let rows = intent::edits(&mut connection, open.id).await.map_err(from_store)?;
        drop(connection);
        let (edits, known) = (counting(&rows), known.map(str::to_owned));
        let next = rows.last().map_or(1, |row| row.edit.seq + 1);
        aside(move || {
            let effects = resolve(&present.skeleton, &present.catalog, &edits).hash().map_err(unsaid)?;
            let versions = versions(&present, &edits);
            let stamp = stamp(&present, &versions)?;
            let ground = match known != Some(stamp.clone()) {
                true => ground(&present, versions),
                false => None,
            };
            Ok(PlannerView { ground, stamp, proposal: open.id, version: open.version, next, edits, effects })
        })
        .await?
    }
}

/// The versions of barclamps that are in use, or come into use by the edits.
fn versions(present: &Present, edits: &[NumberedEdit]) -> BTreeSet<Hash> {
    let deployments = present.skeleton.deployments.values();
    let pinned = deployments.flat_map(|deployment| deployment.barclamps.values().copied());
    let used = edits.iter().filter_map(|numbered| match &numbered.edit {
        Edit::UseBarclamp { version, .. } => Some(*version),
        _ => None,
    });
    pinned.chain(used).collect()
}

/// What a browser gets of the cluster and the catalog, unless that is more than it should have to take in.
fn ground(present: &Present, versions: BTreeSet<Hash>) -> Option<Ground> {
    // Before anything is gathered: what is too large is looked at and not copied.
    let left = LARGEST.checked_sub(parts(&present.skeleton, LARGEST))?;
    let roles = roles(present, &versions);
    if roles.len() > left {
        return None;
    }
    let catalog = &present.catalog;
    let barclamps = versions.into_iter().filter_map(|hash| Some((hash, (**catalog.barclamp(hash).ok()?).clone())));
    let roles = roles.into_iter().filter_map(|hash| Some((hash, (**catalog.role(hash).ok()?).clone())));
    Some(Ground { skeleton: (*present.skeleton).clone(), barclamps: barclamps.collect(), roles: roles.collect() })
}

/// The roles of these versions, and those that something still has from another one.
fn roles(present: &Present, versions: &BTreeSet<Hash>) -> BTreeSet<Hash> {
    let known = versions.iter().filter_map(|version| present.catalog.barclamp(*version).ok());
    let mut roles: BTreeSet<Hash> = known.flat_map(|barclamp| barclamp.roles.values().copied()).collect();
    roles.extend(present.skeleton.deployments.values().flat_map(|deployment| deployment.roles.values()));
    let nodes = present.skeleton.nodes.values();
    roles.extend(nodes.flat_map(|node| node.noderoles.values()).map(|noderole| noderole.role));
    roles
}

/// Names what planning rests on: the root, the nodes that no document speaks of yet, and the versions.
fn stamp(present: &Present, versions: &BTreeSet<Hash>) -> Result<String, Problem> {
    let bare: BTreeMap<&NodeId, (&Fqdn, &DeploymentId)> = present
        .skeleton
        .nodes
        .iter()
        .filter(|(id, _)| !present.blueprint.nodes.contains_key(id))
        .map(|(id, node)| (id, (&node.fqdn, &node.deployment)))
        .collect();
    let root: Option<Hash> = present.head.root;
    canonical::hash(&(root, bare, versions)).map(|hash| hash.to_string()).map_err(unsaid)
}

/// Nodes, noderoles and edges, counted until they are more than `most`.
fn parts(skeleton: &Skeleton, most: usize) -> usize {
    let mut parts = skeleton.nodes.len();
    for noderole in skeleton.nodes.values().flat_map(|node| node.noderoles.values()) {
        if parts > most {
            break;
        }
        parts += 1 + noderole.parents.len();
    }
    parts
}

fn unsaid(error: serde_json::Error) -> Problem {
    tracing::error!(%error, "a plan can't be written as JSON");
    Problem::internal()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::cluster::{SkeletonDeployment, SkeletonNode};
    use engine::ids::{DeploymentName, PolicyNo, RoleName, TargetNo};
    use store::intent::Head;
    use uuid::Uuid;

    use super::*;

    /// With so many nodes, and so many roles beside them.
    fn cluster(nodes: u128, roles: u128) -> Present {
        let node = |n: u128| {
            let fqdn = Fqdn::parse(&format!("n{n}.large.example.com")).unwrap();
            let deployment = DeploymentId(Uuid::nil());
            let node = SkeletonNode { fqdn, deployment, phantom: false, bare: true, noderoles: BTreeMap::new() };
            (NodeId(Uuid::from_u128(n)), node)
        };
        let mut skeleton = Skeleton::default();
        skeleton.nodes.extend((0..nodes).map(node));
        let role = |n: u128| (RoleName::parse(&format!("role-{n}")).unwrap(), Hash::of_bytes(&n.to_be_bytes()));
        let deployment = SkeletonDeployment {
            name: DeploymentName::parse("system").unwrap(),
            parent: None,
            phantom: NodeId(Uuid::nil()),
            barclamps: BTreeMap::new(),
            roles: (0..roles).map(role).collect(),
            inactive_jigs: BTreeSet::new(),
        };
        skeleton.deployments.insert(DeploymentId(Uuid::nil()), deployment);
        Present {
            head: Head { number: TargetNo(1), root: None, enabled: true, policy: PolicyNo(1), epoch: 1 },
            blueprint: Arc::default(),
            catalog: Arc::default(),
            skeleton: Arc::new(skeleton),
            rows: Vec::new(),
        }
    }

    #[test]
    fn what_is_too_large_for_a_browser_is_not_sent() {
        let most = LARGEST as u128;
        let is_sent = |nodes, roles| ground(&cluster(nodes, roles), BTreeSet::new()).is_some();
        assert!(is_sent(most, 0) && is_sent(most - 2, 2));
        assert!(!is_sent(most + 1, 0) && !is_sent(most - 2, 3));
    }
}
