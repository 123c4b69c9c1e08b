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
        let edits = counting(&rows);
        let effects = resolve(&present.skeleton, &present.catalog, &edits).hash().map_err(unsaid)?;
        let needed = Needed::of(&present, &edits);
        let stamp = needed.stamp()?;
        let wanted = known != Some(stamp.as_str()) && !is_too_large(&present.skeleton, needed.roles.len());
        Ok(PlannerView {
            ground: wanted.then(|| needed.ground()),
            stamp,
            proposal: open.id,
            version: open.version,
            next: rows.last().map_or(1, |row| row.edit.seq + 1),
            edits,
            effects,
        })
    }
}

/// What a browser gets of the cluster and the catalog.
struct Needed<'a> {
    present: &'a Present,
    /// The versions that are in use, or come into use by the edits.
    barclamps: BTreeSet<Hash>,
    /// The roles of these versions, and those that something still has from another one.
    roles: BTreeSet<Hash>,
}

impl<'a> Needed<'a> {
    fn of(present: &'a Present, edits: &[NumberedEdit]) -> Self {
        let deployments = present.skeleton.deployments.values();
        let pinned = deployments.clone().flat_map(|deployment| deployment.barclamps.values().copied());
        let used = edits.iter().filter_map(|numbered| match &numbered.edit {
            Edit::UseBarclamp { version, .. } => Some(*version),
            _ => None,
        });
        let barclamps: BTreeSet<Hash> = pinned.chain(used).collect();
        let known = barclamps.iter().filter_map(|version| present.catalog.barclamp(*version).ok());
        let mut roles: BTreeSet<Hash> = known.flat_map(|barclamp| barclamp.roles.values().copied()).collect();
        roles.extend(deployments.flat_map(|deployment| deployment.roles.values()));
        let nodes = present.skeleton.nodes.values();
        roles.extend(nodes.flat_map(|node| node.noderoles.values()).map(|noderole| noderole.role));
        Self { present, barclamps, roles }
    }

    fn ground(&self) -> Ground {
        let catalog = &self.present.catalog;
        let barclamps =
            self.barclamps.iter().filter_map(|hash| Some((*hash, (**catalog.barclamp(*hash).ok()?).clone())));
        let roles = self.roles.iter().filter_map(|hash| Some((*hash, (**catalog.role(*hash).ok()?).clone())));
        Ground { skeleton: (*self.present.skeleton).clone(), barclamps: barclamps.collect(), roles: roles.collect() }
    }

    /// Names what planning rests on: the root, the nodes that no document speaks of yet, and the versions.
    fn stamp(&self) -> Result<String, Problem> {
        let present = self.present;
        let bare: BTreeMap<&NodeId, (&Fqdn, &DeploymentId)> = present
            .skeleton
            .nodes
            .iter()
            .filter(|(id, _)| !present.blueprint.nodes.contains_key(id))
            .map(|(id, node)| (id, (&node.fqdn, &node.deployment)))
            .collect();
        let root: Option<Hash> = present.head.root;
        canonical::hash(&(root, bare, &self.barclamps)).map(|hash| hash.to_string()).map_err(unsaid)
    }
}

/// Whether it is more than a browser should have to take in.
fn is_too_large(skeleton: &Skeleton, roles: usize) -> bool {
    let noderoles = skeleton.nodes.values().flat_map(|node| node.noderoles.values());
    let parts: usize = noderoles.map(|noderole| 1 + noderole.parents.len()).sum();
    parts + skeleton.nodes.len() + roles > LARGEST
}

fn unsaid(error: serde_json::Error) -> Problem {
    tracing::error!(%error, "a plan can't be written as JSON");
    Problem::internal()
}

#[cfg(test)]
mod tests {
    use engine::cluster::SkeletonNode;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_too_large_for_a_browser_is_not_sent() {
        let node = |n: u128| {
            let fqdn = Fqdn::parse(&format!("n{n}.large.example.com")).unwrap();
            let deployment = DeploymentId(Uuid::nil());
            let node = SkeletonNode { fqdn, deployment, phantom: false, bare: true, noderoles: BTreeMap::new() };
            (NodeId(Uuid::from_u128(n)), node)
        };
        let mut skeleton = Skeleton::default();
        skeleton.nodes.extend((0..LARGEST as u128 - 10).map(node));
        assert!(!is_too_large(&skeleton, 10));
        assert!(is_too_large(&skeleton, 11));
    }
}
