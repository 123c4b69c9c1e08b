//! The graph of the cluster, of a deployment and of a review, folded for display.
//!
//! The graph comes from the desired state (the skeleton, or a review's documents), with step states
//! added. The response contains the folded graph only. A picture with more than [`MAX_VERTICES`]
//! vertices or [`MAX_EDGES`] edges is unreadable. A larger one is folded by role, with a note in
//! the response. All computations are linear in noderoles and edges, except for id lookups. The
//! graph of the cluster has at most [`MAX_CLUSTER_NODEROLES`] noderoles. Deployments that do not
//! fit are left out as a whole, with a note that names them.
//!
//! Waves and marked paths are those of the whole graph. They do not change if the reader expands or
//! filters it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::blueprints::Point;
use api::runs::StepState;
use api::views::graph::{
    Appearance, AppearanceCount, GraphDirection, GraphEdge, GraphNoderole, GraphOptions, GraphPath,
    GraphVertex, GraphView, GraphWaypoint, Length, MAX_PATH_NODEROLES, PathOptions, WaveRange,
};
use engine::blueprint::Difference;
use engine::blueprint::difference::Mark;
use engine::blueprint::impact::{below, running};
use engine::blueprint::projection::StepChange;
use engine::cluster::graph::{Direction, Edge, FoldedGraph, Item, Unfold, Vertex, fold, reach};
use engine::cluster::marked_path::{self, PathSet};
use engine::cluster::{Blueprint, EdgeKind, Skeleton, phantom};
use engine::counting::many;
use engine::ids::{BlueprintNumber, DeploymentId, DeploymentName, NoderoleId, ReviewId};
use sqlx::PgConnection;

use crate::Control;
use crate::blueprints::{PastDeployment, deployment_at, side};
use crate::current::CurrentState;
use crate::people::{Actor, Permission};
use crate::problems::from_store;
use crate::reviews::impact::PlannedReview;
use crate::reviews::review::{Case, difference_of, sides};
use crate::reviews::summary::Summary;

/// Maximum number of vertices in one picture.
pub const MAX_VERTICES: usize = 1_500;
/// Maximum number of edges in one picture.
pub const MAX_EDGES: usize = 20_000;

/// Maximum number of noderoles in the graph of the cluster.
pub const MAX_CLUSTER_NODEROLES: usize = 50_000;
/// Maximum number of left out deployments that a note names.
const MAX_NAMED_DEPLOYMENTS: usize = 5;

/// More noderoles than any path has. One millisecond weighs as much as this many noderoles.
const MILLISECOND_WEIGHT: u64 = 1 << 20;

/// The behavior if the graph lacks a requested vertex. A page's URL may be older than the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingVertex {
    /// Show the graph without it, with a note. Pages use this.
    Note,
    /// Refuse the request. API clients use this, because a client would take the whole graph for
    /// the requested part.
    Refused,
}

/// A graph before folding.
struct WholeGraph {
    items: Vec<Item>,
    /// The appearance of each noderole.
    appearances: BTreeMap<NoderoleId, Appearance>,
    names: BTreeMap<DeploymentId, DeploymentName>,
    /// Noderoles without a page: they do not exist yet, or no longer.
    new: BTreeSet<NoderoleId>,
    rewired: EdgeChanges,
    /// The target shown, if it is not the current one, and a note about it.
    then: Option<(BlueprintNumber, String)>,
    /// A note about the parts that are left out.
    left_out: Option<String>,
}

/// The edges that a change adds and removes, as (parent, child).
#[derive(Default)]
struct EdgeChanges {
    added: BTreeSet<(NoderoleId, NoderoleId)>,
    /// The kind of each removed edge, and whether its child is removed too.
    gone: BTreeMap<(NoderoleId, NoderoleId), (EdgeKind, bool)>,
}

impl Control {
    /// The graph of all deployments.
    ///
    /// # Errors
    /// If the requested target does not exist, or a requested vertex is missing and `missing` is
    /// `Refused`.
    pub async fn cluster_graph(
        &self,
        actor: &Actor,
        query: &GraphOptions,
        missing: MissingVertex,
    ) -> Result<GraphView, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let compute = self.compute_for(actor);
        let past = match query.blueprint {
            Some(target) => {
                let (_, blueprint) = side(self, &compute, &present, Point::Number(target)).await?;
                Some((target, blueprint))
            }
            None => None,
        };
        let mut graph = compute
            .work(move || match past {
                Some((target, blueprint)) => {
                    let skeleton = skeleton_at(&blueprint, &present)?;
                    let note =
                        format!("This is the cluster at blueprint {target}, without step states.");
                    let mut graph = WholeGraph::cluster(&skeleton);
                    graph.new = removed_noderoles(&graph.items, &present);
                    graph.then = Some((target, note));
                    Ok::<_, Problem>(graph)
                }
                None => Ok(WholeGraph::cluster(&present.skeleton)),
            })
            .await??;
        graph.require_vertices(query, missing)?;
        let mut connection = self.connection().await?;
        if graph.then.is_none() {
            let all: Vec<NoderoleId> = graph.items.iter().map(|item| item.id).collect();
            let states = store::deployments::step_states(&mut connection, &all).await;
            graph.appearances = states
                .map_err(from_store)?
                .into_iter()
                .filter_map(|(id, state)| Some((id, appearance(&state)?)))
                .collect();
        }
        let durations = graph.durations(&mut connection, query).await?;
        drop(connection);
        let query = query.clone();
        compute.work(move || graph.view(None, &query, &durations, cursor)).await?
    }

    /// The graph of a deployment, by the deployment's name.
    ///
    /// # Errors
    /// If the deployment does not exist (at the requested target), or a requested vertex is missing
    /// and `missing` is `Refused`.
    pub async fn graph(
        &self,
        actor: &Actor,
        deployment: &str,
        query: &GraphOptions,
        missing: MissingVertex,
    ) -> Result<GraphView, Problem> {
        actor.require(Permission::Viewer)?;
        // Read the cursor first, so the live stream reports all later events.
        let cursor = self.current_cursor().await?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let once = PastDeployment::named(&mut connection, &present, deployment).await;
        let last_blueprint = once
            .as_ref()
            .ok()
            .and_then(|once| once.removed_in)
            .map(|removed| BlueprintNumber(removed.0 - 1));
        if let Some(target) = query.blueprint.or(last_blueprint) {
            drop(connection);
            let (id, graph) =
                WholeGraph::at_blueprint(self, actor, &present, deployment, once, target).await?;
            graph.require_vertices(query, missing)?;
            let mut connection = self.connection().await?;
            let durations = graph.durations(&mut connection, query).await?;
            return graph.view(Some(id), query, &durations, cursor);
        }
        let id = once?.id;
        let items = present.skeleton.graph_of(id);
        // Parents outside of the deployment, and steps after the first 50,000, are read by id.
        let steps = store::deployments::steps_of(&mut connection, id).await.map_err(from_store)?;
        let mut appearances: BTreeMap<NoderoleId, Appearance> = steps
            .iter()
            .filter_map(|row| Some((row.noderole(), appearance(&row.state)?)))
            .collect();
        let others: Vec<NoderoleId> =
            items.iter().map(|i| i.id).filter(|id| !appearances.contains_key(id)).collect();
        for (id, state) in
            store::deployments::step_states(&mut connection, &others).await.map_err(from_store)?
        {
            appearances.extend(appearance(&state).map(|appearance| (id, appearance)));
        }
        let (new, rewired) = (BTreeSet::new(), EdgeChanges::default());
        let names = names(&present.skeleton);
        let graph =
            WholeGraph { items, appearances, names, new, rewired, then: None, left_out: None };
        graph.require_vertices(query, missing)?;
        let durations = graph.durations(&mut connection, query).await?;
        graph.view(Some(id), query, &durations, cursor)
    }

    /// The changes of a review and their direct neighbors, as a graph.
    ///
    /// # Errors
    /// If the review does not exist, or a requested vertex is missing and `missing` is `Refused`.
    pub async fn review_graph(
        &self,
        actor: &Actor,
        review: ReviewId,
        query: &GraphOptions,
        missing: MissingVertex,
    ) -> Result<GraphView, Problem> {
        actor.require(Permission::Viewer)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let mut case = self.case(&mut connection, &present, review, false).await?;
        let context = self.plan_context(&mut connection, &present).await?;
        drop(connection);
        let planned_review = self.plan_review(actor, &context, &mut case).await?;
        let mut connection = self.connection().await?;
        let (was, is) = sides(&mut connection, &case.documents).await?;
        let difference = difference_of(&was, &is, &case.documents)?;
        let mut graph = change(&present, &was, &is, &difference);
        // A noderole also runs again if its deployment's data changed, without a change of its
        // node's document.
        graph.mark(&present, &rerun_noderoles(planned_review.as_deref()), Appearance::Changed);
        graph.mark(
            &present,
            &downstream(&present, &case, planned_review.as_deref()),
            Appearance::Downstream,
        );
        // If a deployment was removed since and the change did not touch its document, only the
        // review's summary has its name.
        let summary: Summary = serde_json::from_value(case.row.summary.clone()).unwrap_or_default();
        let gone = summary.deployments.into_iter().filter(|(id, _)| !graph.names.contains_key(id));
        graph.names.extend(gone.collect::<Vec<_>>());
        let own = DeploymentName::parse(&case.proposal.deployment_name)
            .map_err(|_| Problem::internal())?;
        graph.names.entry(case.proposal.deployment).or_insert(own);
        graph
            .names
            .extend(was.deployments.iter().map(|(id, stored)| (*id, stored.doc.name.clone())));
        graph
            .names
            .extend(is.deployments.iter().map(|(id, stored)| (*id, stored.doc.name.clone())));
        graph.require_vertices(query, missing)?;
        let durations = graph.durations(&mut connection, query).await?;
        graph.view(Some(case.proposal.deployment), query, &durations, 0)
    }
}

/// The noderoles that run again, according to a plan on the present.
fn rerun_noderoles(planned_review: Option<&PlannedReview>) -> Vec<NoderoleId> {
    let planned = planned_review.and_then(|planned_review| planned_review.planned.as_ref());
    let steps = planned.into_iter().flat_map(|planned| running(&planned.projection));
    steps.filter(|step| step.change != StepChange::New).map(|step| step.noderole).collect()
}

/// The blast radius according to a plan on the present. Without a plan, the noderoles that the
/// review's summary lists.
fn downstream(
    present: &CurrentState,
    case: &Case,
    planned_review: Option<&PlannedReview>,
) -> Vec<NoderoleId> {
    if let Some(planned) = planned_review.and_then(|planned_review| planned_review.planned.as_ref())
    {
        return below(&planned.from(present))
            .into_iter()
            .map(|(node, key, _)| key.id(node))
            .collect();
    }
    let summary: Summary = serde_json::from_value(case.row.summary.clone()).unwrap_or_default();
    let named = summary.impact.downstream.iter().flat_map(|group| &group.noderoles.first);
    named.map(|touched| touched.id).collect()
}

fn appearance(state: &str) -> Option<Appearance> {
    StepState::from_name(state).map(Appearance::State)
}

fn names(skeleton: &Skeleton) -> BTreeMap<DeploymentId, DeploymentName> {
    skeleton.deployments.iter().map(|(id, found)| (*id, found.name.clone())).collect()
}

/// The skeleton of an earlier blueprint.
fn skeleton_at(blueprint: &Blueprint, present: &CurrentState) -> Result<Skeleton, Problem> {
    Skeleton::of(blueprint, [], &present.catalog).map_err(|error| {
        tracing::error!(%error, "the catalog lacks an object that a blueprint pins");
        Problem::internal()
    })
}

/// The noderoles that no longer exist.
fn removed_noderoles(items: &[Item], present: &CurrentState) -> BTreeSet<NoderoleId> {
    let ids = items.iter().map(|item| item.id);
    ids.filter(|id| present.skeleton.location(*id).is_none()).collect()
}

/// The deployments that fit into one graph, in the order of their names, and a note about the
/// others.
fn deployments_within_limit(
    counts: &BTreeMap<DeploymentId, usize>,
    names: &BTreeMap<DeploymentId, DeploymentName>,
    limit: usize,
) -> (BTreeSet<DeploymentId>, Option<String>) {
    let mut by_name: Vec<(&DeploymentName, DeploymentId, usize)> =
        counts.iter().filter_map(|(id, count)| Some((names.get(id)?, *id, *count))).collect();
    by_name.sort();
    let total: usize = counts.values().sum();
    let (mut shown, mut left_out, mut room) = (BTreeSet::new(), Vec::new(), limit);
    for (name, id, count) in by_name {
        match room.checked_sub(count) {
            Some(rest) => {
                room = rest;
                shown.insert(id);
            }
            None => left_out.push(name.as_str()),
        }
    }
    let more = match left_out.len().saturating_sub(MAX_NAMED_DEPLOYMENTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let note = (!left_out.is_empty()).then(|| {
        let named = left_out.iter().take(MAX_NAMED_DEPLOYMENTS).copied().collect::<Vec<_>>();
        format!(
            "The cluster has {total} noderoles, but this graph shows at most {limit}. Not shown: \
             {}{more}. Open the graph of one of these deployments.",
            named.join(", ")
        )
    });
    (shown, note)
}

/// The changed noderoles and their direct parents and children.
fn change(
    present: &CurrentState,
    was: &Blueprint,
    is: &Blueprint,
    difference: &Difference,
) -> WholeGraph {
    let mut appearances = BTreeMap::new();
    let mut new = BTreeSet::new();
    for noderole in difference.nodes.iter().flat_map(|node| &node.noderoles) {
        let appearance = match noderole.mark {
            Mark::Added => Appearance::Added,
            Mark::Removed => Appearance::Removed,
            Mark::Changed => Appearance::Changed,
        };
        if appearance == Appearance::Added && present.skeleton.location(noderole.id).is_none() {
            new.insert(noderole.id);
        }
        appearances.insert(noderole.id, appearance);
    }
    let rewired = EdgeChanges::of(difference);
    // Removed noderoles come from the old documents, all others from the new ones.
    let changed: BTreeSet<NoderoleId> = appearances.keys().copied().collect();
    let mut items: BTreeMap<NoderoleId, Item> = BTreeMap::new();
    for item in blueprint_items(was).chain(blueprint_items(is)) {
        items.insert(item.id, item);
    }
    let neighbors: BTreeSet<NoderoleId> = changed
        .iter()
        .filter_map(|id| items.get(id))
        .flat_map(|item| item.parents.iter().map(|(parent, _)| *parent))
        .chain(rewired.gone.keys().map(|(parent, _)| *parent))
        .filter(|parent| !changed.contains(parent))
        .collect();
    for node in present.skeleton.nodes.keys() {
        let Some(found) = present.skeleton.nodes.get(node) else { continue };
        for (key, noderole) in &found.noderoles {
            let has_changed_parent =
                noderole.parents.iter().any(|edge| changed.contains(&edge.parent));
            let id = key.id(*node);
            if (has_changed_parent || neighbors.contains(&id)) && !changed.contains(&id) {
                items.extend(present.skeleton.item(*node, key).map(|item| (item.id, item)));
                appearances.insert(id, Appearance::Around);
            }
        }
    }
    for id in neighbors {
        appearances.entry(id).or_insert(Appearance::Around);
    }
    let items = items.into_values().filter(|item| appearances.contains_key(&item.id)).collect();
    let names = names(&present.skeleton);
    WholeGraph { items, appearances, names, new, rewired, then: None, left_out: None }
}

impl EdgeChanges {
    fn of(difference: &Difference) -> Self {
        let mut rewired = Self::default();
        for noderole in difference.nodes.iter().flat_map(|node| &node.noderoles) {
            let is_child_removed = noderole.mark == Mark::Removed;
            for edge in &noderole.edges {
                let ends = (edge.parent, noderole.id);
                match (edge.old, edge.new) {
                    (None, _) => drop(rewired.added.insert(ends)),
                    (Some(kind), None) => drop(rewired.gone.insert(ends, (kind, is_child_removed))),
                    (Some(_), Some(_)) => {}
                }
            }
        }
        rewired
    }

    /// The folded edges with marks for additions and removals, plus the edges that no longer exist.
    /// Waves and marked paths ignore the latter. The exception is a removed noderole: it is still
    /// drawn, so its edges are part of the fold.
    fn mark(&self, items: &[Item], folded: &FoldedGraph) -> Vec<GraphEdge> {
        let edge = |e: &Edge| GraphEdge {
            from: e.from,
            to: e.to,
            count: e.count,
            kind: e.kind,
            on_path: e.on_path,
            added: 0,
            removed: 0,
        };
        if self.added.is_empty() && self.gone.is_empty() {
            return folded.edges.iter().map(edge).collect();
        }
        let mut edges: BTreeMap<(usize, usize), GraphEdge> =
            folded.edges.iter().map(|e| ((e.from, e.to), edge(e))).collect();
        let members = folded
            .vertices
            .iter()
            .enumerate()
            .flat_map(|(at, v)| v.members.iter().map(move |m| (*m, at)));
        let vertices: BTreeMap<NoderoleId, usize> =
            members.map(|(member, at)| (items[member].id, at)).collect();
        let ends = |(from, to): &(NoderoleId, NoderoleId)| {
            let (from, to) = (*vertices.get(from)?, *vertices.get(to)?);
            (from != to).then_some((from, to))
        };
        for pair in self.added.iter().filter_map(ends) {
            edges.entry(pair).and_modify(|edge| edge.added += 1);
        }
        for (both, (kind, is_child_removed)) in &self.gone {
            let Some((from, to)) = ends(both) else { continue };
            let new =
                GraphEdge { from, to, count: 0, kind: *kind, on_path: 0, added: 0, removed: 0 };
            let edge = edges.entry((from, to)).or_insert(new);
            edge.removed += 1;
            edge.count = edge.count.saturating_sub(usize::from(*is_child_removed));
        }
        let mut edges: Vec<GraphEdge> = edges.into_values().collect();
        // Beyond the limit, existing edges take precedence over removed ones.
        if edges.len() > MAX_EDGES {
            edges.sort_by_key(|edge| (edge.count == 0, edge.from, edge.to));
            edges.truncate(MAX_EDGES);
        }
        edges
    }
}

fn blueprint_items(blueprint: &Blueprint) -> impl Iterator<Item = Item> {
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

/// The duration of each noderole's last run, in milliseconds.
type Durations = BTreeMap<NoderoleId, u64>;

impl WholeGraph {
    /// All deployments, or as many as fit, without step states.
    fn cluster(skeleton: &Skeleton) -> Self {
        let names = names(skeleton);
        let (shown, left_out) =
            deployments_within_limit(&skeleton.noderole_counts(), &names, MAX_CLUSTER_NODEROLES);
        Self {
            items: skeleton.graph_within(&shown),
            appearances: BTreeMap::new(),
            names,
            new: BTreeSet::new(),
            rewired: EdgeChanges::default(),
            then: None,
            left_out,
        }
    }

    /// A deployment as of an earlier target. Step states are known only for the current target, so
    /// the scene has none.
    async fn at_blueprint(
        control: &Control,
        actor: &Actor,
        present: &CurrentState,
        name: &str,
        once: Result<PastDeployment, Problem>,
        target: BlueprintNumber,
    ) -> Result<(DeploymentId, Self), Problem> {
        let compute = control.compute_for(actor);
        let (_, blueprint) = side(control, &compute, present, Point::Number(target)).await?;
        let known = once.as_ref().ok().copied();
        let Some(id) = deployment_at(&blueprint, name, known) else {
            let removal = once?.removal();
            return Err(Problem::not_found(format!(
                "Blueprint {target} does not have the deployment {name}.{removal}"
            )));
        };
        let removal =
            known.filter(|once| once.id == id).map(PastDeployment::removal).unwrap_or_default();
        let text = format!(
            "This is deployment {name} at blueprint {target}, without step states.{removal}"
        );
        let present = present.clone();
        let graph = compute.work(move || {
            let skeleton = skeleton_at(&blueprint, &present)?;
            let items = skeleton.graph_of(id);
            Ok(Self {
                new: removed_noderoles(&items, &present),
                items,
                appearances: BTreeMap::new(),
                names: names(&skeleton),
                rewired: EdgeChanges::default(),
                then: Some((target, text)),
                left_out: None,
            })
        });
        Ok((id, graph.await??))
    }

    /// Sets the appearance of noderoles and adds those that are missing, at any distance from the
    /// change. Changed noderoles keep their appearance.
    fn mark(&mut self, present: &CurrentState, marked: &[NoderoleId], appearance: Appearance) {
        let shown: BTreeSet<NoderoleId> = self.items.iter().map(|item| item.id).collect();
        for id in marked {
            if !shown.contains(id) {
                let Some((node, key)) = present.skeleton.location(*id) else { continue };
                self.items.extend(present.skeleton.item(*node, key));
            }
            let known = self.appearances.entry(*id).or_insert(appearance);
            if *known == Appearance::Around {
                *known = appearance;
            }
        }
        self.items.sort_by_key(|item| item.id);
    }

    /// Returns an error if the graph lacks a requested vertex and `missing` is `Refused`.
    fn require_vertices(
        &self,
        query: &GraphOptions,
        missing: MissingVertex,
    ) -> Result<(), Problem> {
        if missing == MissingVertex::Note {
            return Ok(());
        }
        let (from, to) = match &query.marked_path {
            Some(PathOptions::From(from)) => (Some(from), None),
            Some(PathOptions::Between(from, to)) => (Some(from), Some(to)),
            Some(PathOptions::Longest(_)) | None => (None, None),
        };
        for (field, key) in [("focus", query.focus.as_ref()), ("from", from), ("to", to)] {
            let Some(key) = key.filter(|key| self.noderoles_of_key(key).is_empty()) else {
                continue;
            };
            return Err(Problem::not_found(format!(
                "{field}: this graph has no vertex {key:?}. Use DEPLOYMENT:ROLE, or the id of a \
                 noderole."
            )));
        }
        Ok(())
    }

    /// The durations of the noderoles, if the request needs them.
    async fn durations(
        &self,
        connection: &mut PgConnection,
        query: &GraphOptions,
    ) -> Result<Durations, Problem> {
        if query.marked_path != Some(PathOptions::Longest(Length::Time)) {
            return Ok(Durations::new());
        }
        let all: Vec<NoderoleId> = self.items.iter().map(|item| item.id).collect();
        Ok(store::deployments::run_durations(connection, &all)
            .await
            .map_err(from_store)?
            .into_iter()
            .collect())
    }

    fn view(
        mut self,
        deployment: Option<DeploymentId>,
        query: &GraphOptions,
        durations: &Durations,
        cursor: i64,
    ) -> Result<GraphView, Problem> {
        let known: BTreeSet<NoderoleId> = self.items.iter().map(|item| item.id).collect();
        let edge_count = |items: &[Item]| -> usize {
            items
                .iter()
                .map(|item| item.parents.iter().filter(|(p, _)| known.contains(p)).count())
                .sum()
        };
        let (noderoles, edge_count) = (self.items.len(), edge_count(&self.items));
        let waves = marked_path::waves(&self.items);
        let waves: BTreeMap<NoderoleId, u32> = self
            .items
            .iter()
            .zip(waves)
            .filter_map(|(item, wave)| Some((item.id, wave?)))
            .collect();
        let (marked_path, path_view) = self.marked_path(query, durations);
        let (unfold, gone) = self.restrict(query, &marked_path);
        let (folded, cut) = self.fold(&unfold, &marked_path);
        let (target, then) = self.then.take().unzip();
        let left_out = self.left_out.take();
        let lines: Vec<String> =
            then.into_iter().chain(left_out).chain(gone.map(str::to_owned)).chain(cut).collect();
        let cut = (!lines.is_empty()).then(|| lines.join(" "));

        let vertex = |vertex| self.vertex(vertex, &waves, &marked_path);
        let vertices = folded.vertices.iter().map(vertex).collect::<Result<_, _>>()?;
        let edges = self.rewired.mark(&self.items, &folded);
        let name = |id| self.names.get(&id).cloned().ok_or_else(Problem::internal);
        Ok(GraphView {
            deployment: deployment.map(name).transpose()?,
            deployment_id: deployment,
            blueprint: target,
            vertices,
            edges,
            noderoles,
            total_edges: edge_count,
            waves: waves.values().copied().max().unwrap_or(0),
            cut,
            marked_path: path_view,
            cursor,
        })
    }

    /// Reduces the graph to the requested part. Returns the noderoles to show individually, and a
    /// note if the requested part does not exist; then the graph stays complete.
    fn restrict(
        &mut self,
        query: &GraphOptions,
        marked_path: &PathSet,
    ) -> (Unfold, Option<&'static str>) {
        let mut unfold = self.unfold(query);
        if query.only_path && !marked_path.is_empty() {
            self.items.retain(|item| marked_path.noderoles.contains(&item.id));
            unfold.noderoles.extend(&marked_path.noderoles);
            return (unfold, None);
        }
        let Some(key) = &query.focus else { return (unfold, None) };
        let focused = self.noderoles_of_key(key);
        if focused.is_empty() {
            let gone =
                "The vertex in this address is not in the graph, so the whole graph is shown.";
            return (unfold, Some(gone));
        }
        let direction = match query.direction {
            GraphDirection::Both => Direction::Both,
            GraphDirection::Up => Direction::Up,
            GraphDirection::Down => Direction::Down,
        };
        let reached = reach(
            &self.items,
            &focused,
            direction,
            query.steps.map_or(usize::MAX, |steps| steps as usize),
        );
        self.items.retain(|item| reached.contains(&item.id));
        // A focused noderole is shown individually, a focused role stays folded.
        if key.parse::<NoderoleId>().is_ok() {
            unfold.noderoles.extend(reached);
        }
        (unfold, None)
    }

    /// The folded graph, and a note if it is not the requested fold.
    fn fold(&self, unfold: &Unfold, marked_path: &PathSet) -> (FoldedGraph, Option<String>) {
        let fits = |folded: &FoldedGraph| {
            folded.vertices.len() <= MAX_VERTICES && folded.edges.len() <= MAX_EDGES
        };
        let requested = fold(&self.items, unfold, marked_path);
        if fits(&requested) {
            return (requested, None);
        }
        let size_note = format!(
            "This graph has {} vertices and {} edges, but at most {MAX_VERTICES} vertices and \
             {MAX_EDGES} edges can be shown",
            requested.vertices.len(),
            requested.edges.len()
        );
        let folded = fold(&self.items, &Unfold::default(), marked_path);
        if fits(&folded) {
            let help = "The graph is grouped by role instead. Focus on a node, or on one noderole \
                        and its dependencies";
            return (folded, Some(format!("{size_note}. {help}.")));
        }
        // The number of edges between n vertices is not known in advance, but it is at most n
        // squared.
        let room = MAX_VERTICES.min(MAX_EDGES.isqrt());
        (
            folded.first(room),
            Some(format!(
                "{size_note}. Only the first {room} roles are shown. Focus on one of them."
            )),
        )
    }

    /// The path to mark, and its description for the response.
    fn marked_path(
        &self,
        query: &GraphOptions,
        durations: &Durations,
    ) -> (PathSet, Option<GraphPath>) {
        match &query.marked_path {
            None | Some(PathOptions::From(_)) => (PathSet::default(), None),
            Some(PathOptions::Between(from, to)) => {
                let (marked_path, text) = self.between(from, to);
                let path_view = GraphPath {
                    summary: text,
                    noderoles: marked_path.noderoles.len(),
                    path: Vec::new(),
                };
                (marked_path, Some(path_view))
            }
            Some(PathOptions::Longest(length)) => {
                let longest_path = match length {
                    Length::Count => marked_path::longest(&self.items, |_| 1),
                    // If two paths have the same duration, the one with more noderoles is longer:
                    // it includes noderoles that never ran.
                    Length::Time => {
                        let one = |id| {
                            durations
                                .get(&id)
                                .copied()
                                .unwrap_or(0)
                                .saturating_mul(MILLISECOND_WEIGHT)
                                .saturating_add(1)
                        };
                        marked_path::longest(&self.items, one)
                    }
                };
                let path_view = self.path_of(&longest_path, *length, durations);
                (marked_path::along(&longest_path), Some(path_view))
            }
        }
    }

    /// All paths from `from` to `to`, or from `to` to `from` if there are none.
    fn between(&self, from: &str, to: &str) -> (PathSet, String) {
        let (a, b) = (self.noderoles_of_key(from), self.noderoles_of_key(to));
        if a.is_empty() || b.is_empty() {
            return (PathSet::default(), "One end of the path is not in this graph.".into());
        }
        let (from, to) = (self.vertex_name(from), self.vertex_name(to));
        let text = |n: usize, from: &str, to: &str| {
            format!("Path found: {to} waits for {from}, with {} on the path", many(n, "noderole"))
        };
        let forward = marked_path::between(&self.items, &a, &b);
        if !forward.is_empty() {
            let text = text(forward.noderoles.len(), &from, &to);
            return (forward, text + ".");
        }
        let backward = marked_path::between(&self.items, &b, &a);
        if !backward.is_empty() {
            let text = text(backward.noderoles.len(), &to, &from);
            return (backward, text + ". There is no path in the other direction.");
        }
        (
            PathSet::default(),
            format!("There is no path between {from} and {to}: neither waits for the other."),
        )
    }

    fn path_of(&self, path: &[NoderoleId], length: Length, durations: &Durations) -> GraphPath {
        let known: BTreeMap<NoderoleId, &Item> =
            self.items.iter().map(|item| (item.id, item)).collect();
        let waypoint = |id: &NoderoleId| {
            let item = known.get(id)?;
            let name = format!("{} on {}", item.noderole.role, self.node(item));
            Some(GraphWaypoint { id: *id, name, duration_ms: durations.get(id).copied() })
        };
        let text = match length {
            Length::Count => {
                format!("Longest path: {} in sequence.", many(path.len(), "noderole"))
            }
            Length::Time => {
                let all: u64 = path.iter().filter_map(|id| durations.get(id)).sum();
                let seconds = all.div_ceil(1_000);
                let unmeasured = path.iter().filter(|id| !durations.contains_key(id)).count();
                let unknown = match unmeasured {
                    0 => String::new(),
                    unmeasured => {
                        format!(" Not counted, because they have not succeeded yet: {unmeasured}.")
                    }
                };
                format!(
                    "Longest path by time: {} took {seconds} s in their last successful \
                     runs.{unknown}",
                    many(path.len(), "noderole")
                )
            }
        };
        GraphPath {
            summary: text,
            noderoles: path.len(),
            path: path.iter().filter_map(waypoint).take(MAX_PATH_NODEROLES).collect(),
        }
    }

    /// The noderoles that a key names: one, or all of a role.
    fn noderoles_of_key(&self, key: &str) -> BTreeSet<NoderoleId> {
        let by_id = key.parse::<NoderoleId>().ok();
        let of_role = key.split_once(':');
        let named = |item: &&Item| match (by_id, of_role) {
            (Some(id), _) => item.id == id,
            (None, Some((deployment, role))) => {
                item.noderole.role.as_str() == role
                    && self
                        .names
                        .get(&item.deployment)
                        .is_some_and(|name| name.as_str() == deployment)
            }
            (None, None) => false,
        };
        self.items.iter().filter(named).map(|item| item.id).collect()
    }

    /// The display name of the vertex with this key.
    fn vertex_name(&self, key: &str) -> String {
        let by_id = key.parse::<NoderoleId>().ok();
        match by_id.and_then(|id| self.items.iter().find(|item| item.id == id)) {
            Some(item) => format!("{} on {}", item.noderole.role, self.node(item)),
            None => key.split_once(':').map_or(key, |(_, role)| role).to_owned(),
        }
    }

    /// The display name of a noderole's node.
    fn node<'i>(&self, item: &'i Item) -> Cow<'i, str> {
        phantom::short_name(&item.fqdn, |id| self.names.get(&id).map(ToString::to_string))
    }

    fn unfold(&self, query: &GraphOptions) -> Unfold {
        let names: BTreeSet<&str> = query.nodes.iter().map(String::as_str).collect();
        let is_requested =
            |item: &&Item| names.contains(item.fqdn.as_str()) || names.contains(item.fqdn.short());
        Unfold {
            roles: query.roles.iter().cloned().collect(),
            nodes: self.items.iter().filter(is_requested).map(|item| item.node).collect(),
            noderoles: BTreeSet::new(),
        }
    }

    fn vertex(
        &self,
        vertex: &Vertex,
        waves: &BTreeMap<NoderoleId, u32>,
        marked_path: &PathSet,
    ) -> Result<GraphVertex, Problem> {
        let key = &vertex.key;
        let deployment = self.names.get(&key.deployment).cloned().ok_or_else(Problem::internal)?;
        let one = vertex.members.first().filter(|_| key.one.is_some()).map(|at| {
            let item = &self.items[*at];
            let instance = item.noderole.instance;
            let more = if instance > 0 { format!(" #{instance}") } else { String::new() };
            GraphNoderole {
                id: item.id,
                short: format!("{}{more}", self.node(item)),
                fqdn: item.fqdn.to_string(),
                has_page: !self.new.contains(&item.id),
            }
        });
        let mut appearances: BTreeMap<Appearance, usize> = BTreeMap::new();
        for member in &vertex.members {
            if let Some(appearance) = self.appearances.get(&self.items[*member].id) {
                *appearances.entry(*appearance).or_default() += 1;
            }
        }
        let ids = || vertex.members.iter().map(|member| self.items[*member].id);
        let member_waves = || ids().filter_map(|id| waves.get(&id).copied());
        Ok(GraphVertex {
            key: match &one {
                Some(one) => one.id.to_string(),
                None => format!("{deployment}:{}", key.role),
            },
            role: key.role.clone(),
            deployment,
            noderole: one,
            members: vertex.members.len(),
            appearances: appearances
                .into_iter()
                .map(|(appearance, count)| AppearanceCount { appearance, count })
                .collect(),
            waves: member_waves()
                .min()
                .zip(member_waves().max())
                .map(|(first, last)| WaveRange { first, last }),
            on_path: ids().filter(|id| marked_path.noderoles.contains(id)).count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn deployments_beyond_the_limit_are_named() {
        let names = ["db", "edge", "web", "xen"].map(|name| DeploymentName::parse(name).unwrap());
        let id = |n: usize| DeploymentId(Uuid::from_u128(n as u128));
        let names: BTreeMap<_, _> =
            names.into_iter().enumerate().map(|(n, name)| (id(n), name)).collect();
        let counts = [3, 9, 4, 4].into_iter().enumerate().map(|(n, count)| (id(n), count));
        let counts: BTreeMap<_, _> = counts.collect();
        let (shown, note) = deployments_within_limit(&counts, &names, 8);
        assert_eq!(shown, BTreeSet::from([id(0), id(2)]), "a smaller deployment still fits");
        assert_eq!(
            note.as_deref(),
            Some(
                "The cluster has 20 noderoles, but this graph shows at most 8. Not shown: edge, \
                 xen. Open the graph of one of these deployments."
            )
        );
        assert_eq!(deployments_within_limit(&counts, &names, 20).1, None);
        let many: BTreeMap<_, _> =
            (0..9).map(|n| (id(n), DeploymentName::parse(&format!("d{n}")).unwrap())).collect();
        let counts = many.keys().map(|id| (*id, 1)).collect();
        let (_, note) = deployments_within_limit(&counts, &many, 2);
        assert!(note.unwrap().contains("d2, d3, d4, d5, d6 and 2 more."));
    }
}
