//! The graph of a deployment and of a change, folded as the reader asks.
//!
//! The graph itself is what is meant (the skeleton, or a submission's documents); states of steps stand beside it. What is sent is
//! the fold, never the whole: a picture of more than [`DRAWN`] vertices helps nobody, so whoever asks for more gets the roles
//! folded again and is told so.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::console::{GraphEdge, GraphNoderole, GraphVertex, GraphView, GraphWay, GraphWish, Look, StepState};
use engine::blueprint::Difference;
use engine::blueprint::consequences::{below, running};
use engine::blueprint::difference::Mark;
use engine::blueprint::projection::StepChange;
use engine::cluster::Blueprint;
use engine::cluster::graph::{Item, Unfold, Vertex, Way, fold, reach};
use engine::ids::{DeploymentId, DeploymentName, NoderoleId, SubmissionId};
use store::reading;

use crate::Control;
use crate::people::{Actor, Permission};
use crate::present::Present;
use crate::problems::from_store;
use crate::proposing::Summary;
use crate::reviewing::{Case, difference_of, sides};
use crate::weighing::Weighed;

/// Most vertices of one picture.
pub const DRAWN: usize = 1_500;

/// A graph before it is folded.
struct Scene {
    items: Vec<Item>,
    /// How each noderole looks.
    looks: BTreeMap<NoderoleId, Look>,
    names: BTreeMap<DeploymentId, DeploymentName>,
    /// Noderoles that have no page yet.
    new: BTreeSet<NoderoleId>,
}

impl Control {
    /// A deployment's graph, by the deployment's name.
    pub async fn graph(&self, actor: &Actor, deployment: &str, wish: &GraphWish) -> Result<GraphView, Problem> {
        actor.require(Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let cursor = self.cursor(&mut connection).await?;
        let present = self.kept.present(&mut connection).await?;
        let id = present.named(deployment)?;
        let items = present.skeleton.graph_of(id);
        // What is waited for outside of the deployment is few, and is read by id.
        let steps = reading::steps_of(&mut connection, id).await.map_err(from_store)?;
        let mut looks: BTreeMap<NoderoleId, Look> =
            steps.iter().filter_map(|row| Some((row.noderole(), look(&row.state)?))).collect();
        let beyond: Vec<NoderoleId> = items.iter().map(|i| i.id).filter(|id| !looks.contains_key(id)).collect();
        for (id, state) in reading::states_of(&mut connection, &beyond).await.map_err(from_store)? {
            looks.extend(look(&state).map(|look| (id, look)));
        }
        let scene = Scene { items, looks, names: names(&present), new: BTreeSet::new() };
        scene.view(id, wish, cursor)
    }

    /// What a submission changes and one step around it, as a graph.
    pub async fn review_graph(
        &self,
        actor: &Actor,
        submission: SubmissionId,
        wish: &GraphWish,
    ) -> Result<GraphView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.present().await?;
        let mut connection = self.connection().await?;
        let mut case = self.case(&mut connection, &present, submission, false).await?;
        let weighed = self.weigh(&mut connection, &present, &mut case).await?;
        let (was, is) = sides(&mut connection, &case.documents).await?;
        let difference = difference_of(&was, &is, &case.documents)?;
        let mut scene = change(&present, &was, &is, &difference);
        // A noderole runs again without a change of its node's document when its deployment's data changed.
        scene.mark(&present, &again(weighed.as_deref()), Look::Changed);
        scene.mark(&present, &downstream(&present, &case, weighed.as_deref()), Look::Downstream);
        scene.names.extend(was.deployments.iter().map(|(id, stored)| (*id, stored.doc.name.clone())));
        scene.names.extend(is.deployments.iter().map(|(id, stored)| (*id, stored.doc.name.clone())));
        scene.view(case.proposal.deployment, wish, 0)
    }
}

/// What runs again, as a plan on the present has it.
fn again(weighed: Option<&Weighed>) -> Vec<NoderoleId> {
    let planned = weighed.and_then(|weighed| weighed.planned.as_ref());
    let steps = planned.into_iter().flat_map(|planned| running(&planned.projection));
    steps.filter(|step| step.change != StepChange::New).map(|step| step.noderole).collect()
}

/// The blast radius: as a plan on the present has it, else as far as the submission named it.
fn downstream(present: &Present, case: &Case, weighed: Option<&Weighed>) -> Vec<NoderoleId> {
    if let Some(planned) = weighed.and_then(|weighed| weighed.planned.as_ref()) {
        return below(&planned.from(present)).into_iter().map(|(node, key, _)| key.id(node)).collect();
    }
    let summary: Summary = serde_json::from_value(case.row.summary.clone()).unwrap_or_default();
    let named = summary.consequences.downstream.iter().flat_map(|group| &group.noderoles.first);
    named.map(|touched| touched.id).collect()
}

fn look(state: &str) -> Option<Look> {
    StepState::from_word(state).map(Look::State)
}

fn names(present: &Present) -> BTreeMap<DeploymentId, DeploymentName> {
    present.skeleton.deployments.iter().map(|(id, found)| (*id, found.name.clone())).collect()
}

/// What changes, and its neighbours: what it waits for, and what waits for it.
fn change(present: &Present, was: &Blueprint, is: &Blueprint, difference: &Difference) -> Scene {
    let mut looks = BTreeMap::new();
    let mut new = BTreeSet::new();
    for noderole in difference.nodes.iter().flat_map(|node| &node.noderoles) {
        let look = match noderole.mark {
            Mark::Added => Look::Added,
            Mark::Removed => Look::Removed,
            Mark::Changed => Look::Changed,
        };
        if look == Look::Added && present.skeleton.place(noderole.id).is_none() {
            new.insert(noderole.id);
        }
        looks.insert(noderole.id, look);
    }
    // What goes stands in the old documents, what stays or comes in the new ones.
    let changed: BTreeSet<NoderoleId> = looks.keys().copied().collect();
    let mut items: BTreeMap<NoderoleId, Item> = BTreeMap::new();
    for item in items_of(was).chain(items_of(is)) {
        items.insert(item.id, item);
    }
    let near: BTreeSet<NoderoleId> = changed
        .iter()
        .filter_map(|id| items.get(id))
        .flat_map(|item| item.parents.iter().map(|(parent, _)| *parent))
        .filter(|parent| !changed.contains(parent))
        .collect();
    for node in present.skeleton.nodes.keys() {
        let Some(found) = present.skeleton.nodes.get(node) else { continue };
        for (key, noderole) in &found.noderoles {
            let waits = noderole.parents.iter().any(|edge| changed.contains(&edge.parent));
            let id = key.id(*node);
            if (waits || near.contains(&id)) && !changed.contains(&id) {
                items.extend(present.skeleton.item(*node, key).map(|item| (item.id, item)));
                looks.insert(id, Look::Around);
            }
        }
    }
    for id in near {
        looks.entry(id).or_insert(Look::Around);
    }
    let items = items.into_values().filter(|item| looks.contains_key(&item.id)).collect();
    Scene { items, looks, names: names(present), new }
}

fn items_of(blueprint: &Blueprint) -> impl Iterator<Item = Item> {
    blueprint.nodes.iter().flat_map(|(id, stored)| {
        stored.doc.noderoles.iter().map(|(key, noderole)| Item {
            id: key.id(*id),
            noderole: key.clone(),
            deployment: noderole.deployment,
            node: *id,
            fqdn: stored.doc.fqdn.clone(),
            parents: noderole.parents.iter().map(|edge| (edge.parent, edge.kind)).collect(),
        })
    })
}

impl Scene {
    /// Gives noderoles a look, and brings in those that are not drawn, however far from the change; what changes itself keeps its look.
    fn mark(&mut self, present: &Present, marked: &[NoderoleId], as_what: Look) {
        let drawn: BTreeSet<NoderoleId> = self.items.iter().map(|item| item.id).collect();
        for id in marked {
            if !drawn.contains(id) {
                let Some((node, key)) = present.skeleton.place(*id) else { continue };
                self.items.extend(present.skeleton.item(*node, key));
            }
            let look = self.looks.entry(*id).or_insert(as_what);
            if *look == Look::Around {
                *look = as_what;
            }
        }
        self.items.sort_by_key(|item| item.id);
    }

    fn view(mut self, deployment: DeploymentId, wish: &GraphWish, cursor: i64) -> Result<GraphView, Problem> {
        let known: BTreeSet<NoderoleId> = self.items.iter().map(|item| item.id).collect();
        let wires = |items: &[Item]| -> usize {
            items.iter().map(|item| item.parents.iter().filter(|(p, _)| known.contains(p)).count()).sum()
        };
        let (noderoles, wires) = (self.items.len(), wires(&self.items));
        let focused = self.focus(wish)?;
        let mut unfold = self.unfold(wish);
        if let Some(focused) = &focused {
            let way = match wish.way {
                GraphWay::Both => Way::Both,
                GraphWay::Up => Way::Up,
                GraphWay::Down => Way::Down,
            };
            let reached = reach(&self.items, focused, way, usize::MAX);
            self.items.retain(|item| reached.contains(&item.id));
            // One noderole is looked at one by one; a role stays a role.
            if let [one] = focused.iter().collect::<Vec<_>>()[..]
                && wish.focus.as_deref() == Some(&one.to_string())
            {
                unfold.noderoles.extend(reached);
            }
        }
        let mut folded = fold(&self.items, &unfold);
        let mut cut = None;
        if folded.vertices.len() > DRAWN {
            cut = Some(format!(
                "That would be {} boxes, and a picture has room for {DRAWN}: everything was folded by role again. Look at a node, or at \
                 one noderole and what leads to it.",
                folded.vertices.len()
            ));
            folded = fold(&self.items, &Unfold::default());
        }
        let vertices = folded.vertices.iter().map(|vertex| self.vertex(vertex)).collect::<Result<_, _>>()?;
        let edges = folded.edges.iter().map(|e| GraphEdge { from: e.from, to: e.to, count: e.count, kind: e.kind });
        let name = self.names.get(&deployment).cloned().ok_or_else(Problem::internal)?;
        Ok(GraphView {
            deployment: name,
            deployment_id: deployment,
            vertices,
            edges: edges.collect(),
            noderoles,
            wires,
            cut,
            cursor,
        })
    }

    /// The noderoles that a key names.
    fn focus(&self, wish: &GraphWish) -> Result<Option<BTreeSet<NoderoleId>>, Problem> {
        let Some(key) = &wish.focus else { return Ok(None) };
        let by_id = key.parse::<NoderoleId>().ok();
        let of_role = key.split_once(':');
        let named = |item: &&Item| match (by_id, of_role) {
            (Some(id), _) => item.id == id,
            (None, Some((deployment, role))) => {
                item.noderole.role.as_str() == role
                    && self.names.get(&item.deployment).is_some_and(|name| name.as_str() == deployment)
            }
            (None, None) => false,
        };
        let found: BTreeSet<NoderoleId> = self.items.iter().filter(named).map(|item| item.id).collect();
        if found.is_empty() {
            return Err(Problem::not_found("What this address looks at is not in the graph any more, or never was."));
        }
        Ok(Some(found))
    }

    fn unfold(&self, wish: &GraphWish) -> Unfold {
        let is_wanted =
            |item: &&Item| wish.nodes.iter().any(|name| name == item.fqdn.as_str() || name == item.fqdn.short());
        Unfold {
            roles: wish.roles.iter().cloned().collect(),
            nodes: self.items.iter().filter(is_wanted).map(|item| item.node).collect(),
            noderoles: BTreeSet::new(),
        }
    }

    fn vertex(&self, vertex: &Vertex) -> Result<GraphVertex, Problem> {
        let key = &vertex.key;
        let deployment = self.names.get(&key.deployment).cloned().ok_or_else(Problem::internal)?;
        let one = vertex.members.first().filter(|_| key.one.is_some()).map(|at| {
            let item = &self.items[*at];
            let instance = item.noderole.instance;
            let more = if instance > 0 { format!(" #{instance}") } else { String::new() };
            GraphNoderole {
                id: item.id,
                short: format!("{}{more}", item.fqdn.short()),
                fqdn: item.fqdn.to_string(),
                has_page: !self.new.contains(&item.id),
            }
        });
        let mut looks: BTreeMap<Look, usize> = BTreeMap::new();
        for member in &vertex.members {
            if let Some(look) = self.looks.get(&self.items[*member].id) {
                *looks.entry(*look).or_default() += 1;
            }
        }
        Ok(GraphVertex {
            key: match &one {
                Some(one) => one.id.to_string(),
                None => format!("{deployment}:{}", key.role),
            },
            role: key.role.clone(),
            deployment,
            one,
            members: vertex.members.len(),
            looks: looks.into_iter().collect(),
        })
    }
}
