//! The data with which a browser plans drags by itself: the skeleton, the catalog and the
//! proposal's edits.
//!
//! Skeleton and catalog (the [`PlanningData`]) are large and change rarely. So they have a stamp
//! and are sent only if the browser does not have them. Data larger than [`MAX_PARTS`] is never
//! sent; then the page asks the server to plan each drag.
//!
//! The response contains the hash of the edits' effects. A browser that computes another hash
//! discards its result and asks the server.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::views::board::PlannerView;
use engine::ids::{DeploymentId, Fqdn, NodeId, ProposalId, ReviewId};
use engine::plan::planning_data::{PlanningData, versions};
use engine::plan::resolve;
use engine::report::{Report, report};
use engine::{Hash, canonical};

use crate::Control;
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_proposal, no_review};
use crate::proposals::change::{authors, counting, plan};
use crate::proposals::lint;

/// Maximum number of parts (nodes, noderoles, edges and roles) in planning data for browsers, about
/// ten megabytes.
const MAX_PARTS: usize = 100_000;

impl Control {
    /// The planning report of an open proposal, stage by stage.
    pub async fn report(&self, actor: &Actor, proposal: ProposalId) -> Result<Report, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let row =
            store::proposals::proposal(&mut connection, proposal).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_proposal(proposal))?;
        if row.state != "open" {
            return Err(Problem::conflict(
                "not_planned",
                "This proposal is closed, so it has no plan.",
            ));
        }
        let rows = store::proposals::edits(&mut connection, row.id).await.map_err(from_store)?;
        let context = self.plan_context(&mut connection, &present).await?;
        drop(connection);
        let planning = move || {
            let edits = counting(&rows);
            let (skeleton, catalog) = (&present.skeleton, &present.catalog);
            match plan(&present, &edits) {
                Ok(planned) => {
                    let findings = lint::all(&present, &planned, context.lint(&authors(&rows)));
                    report(skeleton, catalog, &edits, &planned.effects, Some(&findings))
                }
                Err(_) => {
                    report(skeleton, catalog, &edits, &resolve(skeleton, catalog, &edits), None)
                }
            }
        };
        self.compute_for(actor).work(planning).await
    }

    /// The planning report of a review. `None` unless the review is the newest version of an open
    /// proposal, because on a later state its plan would differ.
    pub async fn review_report(
        &self,
        actor: &Actor,
        id: ReviewId,
    ) -> Result<Option<Report>, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let row = store::reviews::find_review(&mut connection, id).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_review(id))?;
        let proposal =
            store::proposals::proposal(&mut connection, row.proposal).await.map_err(from_store)?;
        if proposal
            .is_none_or(|proposal| proposal.version != row.version || proposal.state != "open")
        {
            return Ok(None);
        }
        drop(connection);
        self.report(actor, row.proposal).await.map(Some)
    }

    /// The data for planning on a deployment's open proposal, without planning data if the client
    /// knows its stamp. `None` if no proposal is open; that is no error, because another person may
    /// have closed it meanwhile.
    pub async fn planner(
        &self,
        actor: &Actor,
        deployment: DeploymentId,
        known: Option<&str>,
    ) -> Result<Option<PlannerView>, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let open = store::proposals::open_proposal(&mut connection, deployment)
            .await
            .map_err(from_store)?;
        let Some(open) = open else { return Ok(None) };
        let rows = store::proposals::edits(&mut connection, open.id).await.map_err(from_store)?;
        drop(connection);
        let (edits, known) = (counting(&rows), known.map(str::to_owned));
        let next = rows.last().map_or(1, |row| row.edit.seq + 1);
        let planning = move || {
            let effects = resolve(&present.skeleton, &present.catalog, &edits)
                .hash()
                .map_err(not_serializable)?;
            let versions = versions(&present.skeleton, &edits);
            let stamp = stamp(&present, &versions)?;
            let planning_data = match known != Some(stamp.clone()) {
                true => PlanningData::of(&present.skeleton, &present.catalog, &versions, MAX_PARTS),
                false => None,
            };
            Ok::<_, Problem>(Some(PlannerView {
                planning_data,
                stamp,
                proposal: open.id,
                version: open.version,
                next,
                edits,
                effects,
            }))
        };
        self.compute_for(actor).work(planning).await?
    }
}

/// Identifies the input of planning: the root, the nodes without a document, and the versions.
fn stamp(present: &CurrentState, versions: &BTreeSet<Hash>) -> Result<String, Problem> {
    let node_records: BTreeMap<&NodeId, (&Fqdn, &DeploymentId)> = present
        .skeleton
        .nodes
        .iter()
        .filter(|(id, _)| !present.blueprint.nodes.contains_key(id))
        .map(|(id, node)| (id, (&node.fqdn, &node.deployment)))
        .collect();
    let root: Option<Hash> = present.head.root;
    canonical::hash(&(root, node_records, versions))
        .map(|hash| hash.to_string())
        .map_err(not_serializable)
}

fn not_serializable(error: serde_json::Error) -> Problem {
    tracing::error!(%error, "cannot write a plan as JSON");
    Problem::internal()
}
