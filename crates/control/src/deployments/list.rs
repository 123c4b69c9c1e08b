//! The list of deployments.

use std::collections::BTreeMap;

use api::Problem;
use api::deployments::{DeploymentDetails, DeploymentPage, DeploymentSummary};
use api::deployments::{DeploymentSort, DeploymentState, DeploymentsQuery};
use api::deployments::{StepPage, StepSort, StepSummary, StepsQuery};
use api::listing::{Key, Limit, PAGE_SIZE};
use api::runs::StepState;
use engine::cluster::NoderoleKey;
use engine::ids::{
    ActionName, BlueprintNumber, DeploymentId, DeploymentName, NodeId, NoderoleId, RoleName,
};
use store::deployments::{StepFilter, StepListRow};

use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::{corrupt, from_store};
use crate::runs::step_counts;
use crate::text::{self, at};
use crate::{Control, cursor};

impl Control {
    /// The id of a deployment, by name.
    pub async fn deployment_named(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DeploymentId, Problem> {
        actor.require(Permission::Viewer)?;
        self.current_state().await?.named(name)
    }

    /// A page of the list of deployments.
    pub async fn find_deployments(
        &self,
        actor: &Actor,
        query: &DeploymentsQuery,
    ) -> Result<DeploymentPage, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let summaries = self.summaries(&present).await?;
        // Each path starts with the root, so other text is not the path of a deployment.
        let root = summaries.first().map(|(path, _)| path.as_str());
        match cursor::decode(query.sort, query.after.as_ref())?.as_deref() {
            Some([Key::Text(path)])
                if query.sort.by == DeploymentSort::Tree && path.split(' ').next() != root =>
            {
                return Err(cursor::invalid_cursor(query.sort, query.after.as_ref()));
            }
            _ => {}
        }
        let name = text::filter_text(&query.filter)?.unwrap_or_default();
        let on_hold = |id: DeploymentId| present.row(id).is_some_and(|row| row.hold.is_some());
        let wants = |(_, found): &(String, DeploymentSummary)| {
            found.name.as_str().contains(name)
                && query.state.is_none_or(|state| is_so(found, on_hold(found.id), state))
        };
        let rows: Vec<_> = summaries.into_iter().filter(wants).collect();
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
        let (rows, next) = cursor::page(
            rows,
            keys,
            query.sort,
            query.after.as_ref(),
            Limit::rows(query.limit, PAGE_SIZE),
        )?;
        Ok(DeploymentPage { deployments: rows.into_iter().map(|(_, found)| found).collect(), next })
    }

    /// A deployment, by name.
    pub async fn deployment(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DeploymentDetails, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let id = present.named(name)?;
        let mut summaries = self.summaries(&present).await?.into_iter();
        let (_, summary) =
            summaries.find(|(_, found)| found.id == id).ok_or_else(Problem::internal)?;
        let parent = present.skeleton.deployments.get(&id).and_then(|found| found.parent);
        let parent = parent.and_then(|id| present.skeleton.deployments.get_key_value(&id));
        let row = present.row(id);
        Ok(DeploymentDetails {
            summary,
            parent: parent.map(|(_, parent)| parent.name.clone()),
            parent_id: parent.map(|(id, _)| *id),
            on_hold: row.and_then(|row| row.hold.as_ref()).map(|(_, reason)| reason.clone()),
            priority: row.map_or(0, |row| row.priority),
        })
    }

    /// All deployments in tree order, each with its path.
    async fn summaries(
        &self,
        present: &CurrentState,
    ) -> Result<Vec<(String, DeploymentSummary)>, Problem> {
        let mut connection = self.connection().await?;
        let counts: BTreeMap<_, _> = store::deployments::counts(&mut connection)
            .await
            .map_err(from_store)?
            .into_iter()
            .collect();
        let drafts = store::proposals::drafts(&mut connection).await.map_err(from_store)?;
        let summary = |TreeDeployment { id, depth, path }| {
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
        Ok(tree(present).into_iter().filter_map(summary).collect())
    }

    /// A page of the list of steps.
    pub async fn find_steps(&self, actor: &Actor, query: &StepsQuery) -> Result<StepPage, Problem> {
        actor.require(Permission::Viewer)?;
        let StepSort::Id = query.sort.by;
        let page =
            cursor::stored(query.sort, query.after.as_ref(), query.limit, StepListRow::BY_ID)?;
        let present = self.current_state().await?;
        let filter = StepFilter {
            deployment: text::filter_text(&query.deployment)?
                .map(|name| present.named(name))
                .transpose()?,
            node: text::filter_text(&query.node)?
                .map(|name| present.node_named(name))
                .transpose()?,
            role: text::filter_text(&query.role)?,
            state: query.state.map(StepState::as_str),
            stale: query.stale,
            unchecked: query.unchecked,
            generation: query.blueprint.map(|number| number.0),
        };
        let mut rows =
            store::deployments::list_steps(&self.store, filter, &page).await.map_err(from_store)?;
        let next = cursor::cut(&mut rows, query.sort, &page);
        let steps = rows.into_iter().map(|row| step(&present, row)).collect::<Result<_, _>>()?;
        Ok(StepPage { steps, next })
    }
}

fn step(present: &CurrentState, row: StepListRow) -> Result<StepSummary, Problem> {
    let deployment_id = DeploymentId(row.deployment_id);
    let deployment = present.name_of(deployment_id);
    let role = RoleName::parse(&row.role).map_err(corrupt)?;
    let instance = row.instance.try_into().map_err(corrupt)?;
    Ok(StepSummary {
        id: NoderoleId(row.noderole_id),
        noderole: NoderoleKey { role, instance },
        action: ActionName::parse(&row.action).map_err(corrupt)?,
        node: NodeId(row.node_id),
        fqdn: present.command_name(&row.fqdn),
        deployment: DeploymentName::parse(&deployment).map_err(corrupt)?,
        deployment_id,
        state: StepState::from_name(&row.state).unwrap_or(StepState::Blocked),
        since: at(row.since),
        stale: row.stale,
        unchecked: row.unchecked,
        generation: BlueprintNumber(row.generation),
        error: row.error,
    })
}

fn is_so(found: &DeploymentSummary, on_hold: bool, state: DeploymentState) -> bool {
    let is_working = found.steps.todo + found.steps.transition > 0;
    match state {
        DeploymentState::OnHold => on_hold,
        DeploymentState::Proposed => found.proposal.is_some(),
        DeploymentState::Review => found.review.is_some(),
        DeploymentState::Error => found.steps.error > 0,
        DeploymentState::Working => is_working,
        DeploymentState::Idle => {
            !on_hold && found.proposal.is_none() && found.steps.error == 0 && !is_working
        }
    }
}

/// A deployment with its position in the tree.
pub(crate) struct TreeDeployment {
    pub(crate) id: DeploymentId,
    /// Levels below the root.
    pub(crate) depth: u32,
    /// The names from the root to the deployment, joined by a separator that sorts before all
    /// characters of names. Sorting by path puts each deployment directly below its parent and
    /// siblings in name order. A cursor with a path stays valid if the deployment is removed.
    path: String,
}

/// All deployments in tree order: each directly below its parent, siblings by name.
pub(crate) fn tree(present: &CurrentState) -> Vec<TreeDeployment> {
    let all = &present.skeleton.deployments;
    let mut below: BTreeMap<Option<DeploymentId>, Vec<DeploymentId>> = BTreeMap::new();
    for (id, deployment) in all {
        below.entry(deployment.parent).or_default().push(*id);
    }
    let named = |id: &DeploymentId| all.get(id).map(|found| (*id, found.name.as_str()));
    let children =
        |of: Option<DeploymentId>| below.get(&of).into_iter().flatten().filter_map(named);
    let mut open: Vec<TreeDeployment> = children(None)
        .map(|(id, name)| TreeDeployment { id, depth: 0, path: name.to_owned() })
        .collect();
    let mut tree = Vec::with_capacity(all.len());
    while let Some(above) = open.pop() {
        let (depth, path) = (above.depth + 1, &above.path);
        open.extend(children(Some(above.id)).map(|(id, name)| TreeDeployment {
            id,
            depth,
            path: format!("{path} {name}"),
        }));
        tree.push(above);
    }
    tree.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}
