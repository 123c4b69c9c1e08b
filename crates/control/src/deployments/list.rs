//! The list of deployments.

use std::collections::BTreeMap;

use api::Problem;
use api::deployments::{DeploymentPage, DeploymentSummary};
use api::deployments::{DeploymentSort, DeploymentState, DeploymentsQuery};
use api::listing::Key;
use api::listing::PAGE_SIZE;
use engine::ids::{BlueprintNumber, DeploymentId};

use crate::current::Present;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::runs::step_counts;
use crate::text::{self};
use crate::{Control, cursor};

impl Control {
    /// The id of a deployment, by name.
    pub async fn deployment_named(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DeploymentId, Problem> {
        actor.require(Permission::Viewer)?;
        self.present().await?.named(name)
    }

    /// A page of the list of deployments.
    pub async fn find_deployments(
        &self,
        actor: &Actor,
        query: &DeploymentsQuery,
    ) -> Result<DeploymentPage, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let mut connection = self.connection().await?;
        let counts: BTreeMap<_, _> = store::deployments::counts(&mut connection)
            .await
            .map_err(from_store)?
            .into_iter()
            .collect();
        let drafts = store::proposals::drafts(&mut connection).await.map_err(from_store)?;
        let summary = |Placed { id, depth, path }| {
            let found = present.skeleton.deployments.get(&id)?;
            let draft = drafts.get(&id).copied();
            let counted = counts.get(&id).copied().unwrap_or_default();
            let summary = DeploymentSummary {
                id,
                name: found.name.clone(),
                depth,
                nodes: counted.nodes,
                steps: step_counts(counted.steps),
                proposal: draft.map(|(proposal, _)| proposal),
                review: draft.and_then(|(_, review)| review),
                blueprint: present.row(id).map_or(BlueprintNumber(0), |r| r.head_no),
            };
            Some((path, summary))
        };
        let name = text::filter_text(&query.filter)?.unwrap_or_default();
        let held = |id: DeploymentId| present.row(id).is_some_and(|row| row.held.is_some());
        let wants = |(_, found): &(String, DeploymentSummary)| {
            found.name.as_str().contains(name)
                && query.state.is_none_or(|state| is_so(found, held(found.id), state))
        };
        let rows: Vec<_> = tree(&present).into_iter().filter_map(summary).filter(wants).collect();
        let keys = |(path, found): &(String, DeploymentSummary), sort: DeploymentSort| {
            let (name, nodes) = (Key::from(found.name.as_str()), found.nodes);
            match sort {
                DeploymentSort::Tree => vec![Key::from(path.as_str())],
                DeploymentSort::Name => vec![name],
                DeploymentSort::Nodes => vec![Key::from(nodes), name],
                DeploymentSort::Errors => vec![Key::from(found.steps.error), name],
                DeploymentSort::Blueprint => vec![Key::from(found.blueprint.0), name],
            }
        };
        let (rows, next) = cursor::page(rows, keys, query.sort, query.after.as_ref(), PAGE_SIZE)?;
        Ok(DeploymentPage { deployments: rows.into_iter().map(|(_, found)| found).collect(), next })
    }
}

fn is_so(found: &DeploymentSummary, held: bool, state: DeploymentState) -> bool {
    let is_working = found.steps.todo + found.steps.transition > 0;
    match state {
        DeploymentState::OnHold => held,
        DeploymentState::Proposed => found.proposal.is_some(),
        DeploymentState::Review => found.review.is_some(),
        DeploymentState::Error => found.steps.error > 0,
        DeploymentState::Working => is_working,
        DeploymentState::Idle => {
            !held && found.proposal.is_none() && found.steps.error == 0 && !is_working
        }
    }
}

/// A deployment with its position in the tree.
pub(crate) struct Placed {
    pub(crate) id: DeploymentId,
    /// Levels below the root.
    pub(crate) depth: u32,
    /// The names from the root to the deployment, joined by a separator that sorts before all
    /// characters of names. Sorting by path puts each deployment directly below its parent and
    /// siblings in name order. A cursor with a path stays valid if the deployment is removed.
    path: String,
}

/// All deployments in tree order: each directly below its parent, siblings by name.
pub(crate) fn tree(present: &Present) -> Vec<Placed> {
    let all = &present.skeleton.deployments;
    let mut below: BTreeMap<Option<DeploymentId>, Vec<DeploymentId>> = BTreeMap::new();
    for (id, deployment) in all {
        below.entry(deployment.parent).or_default().push(*id);
    }
    let named = |id: &DeploymentId| all.get(id).map(|found| (*id, found.name.as_str()));
    let children =
        |of: Option<DeploymentId>| below.get(&of).into_iter().flatten().filter_map(named);
    let mut open: Vec<Placed> =
        children(None).map(|(id, name)| Placed { id, depth: 0, path: name.to_owned() }).collect();
    let mut tree = Vec::with_capacity(all.len());
    while let Some(above) = open.pop() {
        let (depth, path) = (above.depth + 1, &above.path);
        open.extend(children(Some(above.id)).map(|(id, name)| Placed {
            id,
            depth,
            path: format!("{path} {name}"),
        }));
        tree.push(above);
    }
    tree.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}
