//! Graphs: a picture, its table, and the details of the selected vertex.
//!
//! The server folds the graph ([`engine::cluster::graph`]) and sends the visible part. [`layout`]
//! computes positions, and this module draws. The reader's choices are in the [`address`], so every
//! command is a link and works without JavaScript.
//!
//! Graphs with ten thousand edges stay fast:
//!
//! * Folding keeps the picture small.
//! * Edges share one path per strand.
//! * A large picture contains only the pieces near the reader's window ([`visible_pieces`]).
//! * When zoomed out, boxes and edges are plain shapes.
//! * A new state moves nothing, because the layout depends only on the graph's structure.
//!
//! `end2end/graph-size.mjs` measures a page with a large graph.

pub mod address;
mod boxes;
mod colors;
mod edges;
pub mod file;
pub mod layout;
mod minimap;
mod picture;
mod table;
mod tools;
mod viewport;
mod visible_pieces;

use std::collections::BTreeSet;

use api::runs::StepState;
use api::views::graph::{
    Appearance, GraphDirection, GraphEdge, GraphPath, GraphVertex, GraphView, PathOptions,
};
use engine::counting::many;
use leptos::html;
use leptos::prelude::*;

use crate::addresses;
use crate::components::badge::shape;
use crate::components::{Feed, Icon, ProblemNotice, icon};
use address::Address;
use colors::Scale;
pub(crate) use edges::{arrow, curve};
use layout::Layout;
use tools::Tools;

/// Sizes of vertices and gaps, in pixels.
pub(crate) const MEASURES: layout::Dimensions =
    layout::Dimensions { width: 188.0, height: 62.0, layer_gap: 76.0, between: 18.0, margin: 20.0 };

/// The color, shape and word of a vertex's state.
pub(crate) fn state_style(appearance: Appearance) -> (&'static str, Icon, &'static str) {
    match appearance {
        Appearance::State(state) => (state.as_str(), shape(state), lower(state)),
        Appearance::Added => ("proposed", Icon::Proposed, "added"),
        Appearance::Removed => ("error", Icon::Delete, "removed"),
        Appearance::Changed => ("warn", Icon::Rerun, "changed"),
        Appearance::Downstream => ("todo", Icon::Bind, "downstream"),
        Appearance::Around => ("", Icon::Dot, "unchanged"),
    }
}

fn lower(state: StepState) -> &'static str {
    state.as_str()
}

/// The state of a vertex that needs attention most.
pub(crate) fn worst_state(vertex: &GraphVertex) -> Option<Appearance> {
    let weight = |appearance: &Appearance| match appearance {
        Appearance::State(StepState::Error) | Appearance::Removed => 0,
        Appearance::Added | Appearance::Changed => 1,
        Appearance::State(StepState::Transition) => 2,
        Appearance::State(StepState::Todo) => 3,
        Appearance::State(StepState::Proposed) => 4,
        Appearance::State(StepState::Blocked) => 5,
        Appearance::State(StepState::Active) => 6,
        Appearance::Downstream => 7,
        Appearance::Around => 8,
    };
    vertex.appearances.iter().map(|part| part.appearance).min_by_key(weight)
}

/// `3 noderoles: 2 active, 1 error`. A single noderole: its state.
pub(crate) fn state_text(vertex: &GraphVertex) -> String {
    let text = vertex
        .appearances
        .iter()
        .map(|part| format!("{} {}", part.count, state_style(part.appearance).2))
        .collect::<Vec<_>>()
        .join(", ");
    match (&vertex.noderole, vertex.appearances.first()) {
        (Some(_), Some(part)) => state_style(part.appearance).2.to_owned(),
        (Some(_), None) => String::new(),
        (None, _) => text,
    }
}

/// `app on n1`, or `app` for the whole role.
pub(crate) fn named(vertex: &GraphVertex) -> String {
    match &vertex.noderole {
        Some(one) => format!("{} on {}", vertex.role, one.short),
        None => vertex.role.to_string(),
    }
}

/// The change to an edge: the class of its line, and words. `None`: unchanged.
pub(crate) fn rewired(edge: &GraphEdge) -> Option<(&'static str, String)> {
    match (edge.count, edge.added, edge.removed) {
        (_, 0, 0) => None,
        (0, _, _) => Some(("removed", "removed".into())),
        (count, added, 0) if added == count => Some(("added", "new".into())),
        (_, added, 0) => Some(("changed", format!("{added} new"))),
        (_, 0, gone) => Some(("changed", format!("{gone} removed"))),
        (_, added, gone) => Some(("changed", format!("{added} new, {gone} removed"))),
    }
}

/// The kinds of edge changes in a picture, for its legend: the class of the lines, and words.
pub(crate) fn changes(view: &GraphView) -> Vec<(&'static str, &'static str)> {
    let classes: BTreeSet<&str> =
        view.edges.iter().filter_map(|edge| Some(rewired(edge)?.0)).collect();
    let all =
        [("added", "new edge"), ("removed", "removed edge"), ("changed", "some edges change")];
    all.into_iter().filter(|(class, _)| classes.contains(class)).collect()
}

/// The state of a displayed graph.
#[derive(Clone, Copy)]
pub(crate) struct GraphState {
    pub view: RwSignal<GraphView>,
    pub address: Memo<Address>,
    pub layout: Memo<Layout>,
    pub scale: Memo<Scale>,
    /// The search text.
    pub find: RwSignal<String>,
    pub zoom: RwSignal<f64>,
    /// The visible part of the picture with a margin, rounded to coarse steps.
    pub window: RwSignal<visible_pieces::Rect>,
    /// The box that the keyboard moved to.
    pub selected_box: RwSignal<Option<usize>>,
    pub room: NodeRef<html::Div>,
}

impl GraphState {
    /// The two ends of each edge.
    pub fn ends(self) -> Vec<(usize, usize)> {
        self.view.read().edges.iter().map(|edge| (edge.from, edge.to)).collect()
    }

    /// The index of the selected vertex.
    pub fn at(self) -> Option<usize> {
        let key = self.address.read().at.clone()?;
        self.view.read().vertices.iter().position(|vertex| vertex.key == key)
    }

    /// The display name for a vertex's key. If the vertex is not shown, the name of its role.
    pub fn called(self, key: &str) -> String {
        let view = self.view.read();
        match view.vertices.iter().find(|vertex| vertex.key == key) {
            Some(vertex) => named(vertex),
            None => key.split_once(':').map_or("a folded box", |(_, role)| role).to_owned(),
        }
    }

    /// The indices of vertices whose names contain the search text. `None`: no search.
    pub fn found(self) -> Option<Vec<usize>> {
        let query = self.find.read().trim().to_lowercase();
        if query.is_empty() {
            return None;
        }
        let fits = |vertex: &GraphVertex| {
            vertex.role.as_str().to_lowercase().contains(&query)
                || vertex
                    .noderole
                    .as_ref()
                    .is_some_and(|one| one.fqdn.to_lowercase().contains(&query))
        };
        let view = self.view.read();
        Some(
            view.vertices
                .iter()
                .enumerate()
                .filter(|(_, vertex)| fits(vertex))
                .map(|(at, _)| at)
                .collect(),
        )
    }
}

/// A graph with its tools. The owner of `feed` fetches again when `address` changes.
#[component]
pub fn Graph(feed: Feed<GraphView>, address: Memo<Address>) -> impl IntoView {
    let view = feed.value();
    let form = Memo::new(move |_| {
        let view = view.read();
        (
            view.vertices.len(),
            view.edges.iter().map(|edge| (edge.from, edge.to)).collect::<Vec<_>>(),
        )
    });
    let shown = GraphState {
        view,
        address,
        layout: Memo::new(move |_| {
            form.with(|(count, edges)| layout::lay_out(*count, edges, MEASURES))
        }),
        scale: Memo::new(move |_| Scale::of(&view.read(), address.read().color)),
        find: RwSignal::new(String::new()),
        zoom: RwSignal::new(1.0),
        // The window of a large screen, for the server and for browsers without JavaScript.
        window: RwSignal::new(visible_pieces::Rect {
            left: 0.0,
            top: 0.0,
            right: 2_000.0,
            bottom: 1_400.0,
        }),
        selected_box: RwSignal::new(None),
        room: NodeRef::new(),
    };
    let request = Memo::new(move |_| address.read().options.clone());
    Effect::new(move |last: Option<api::views::graph::GraphOptions>| {
        let now = request.get();
        if last.is_some_and(|last| last != now) {
            feed.now();
        }
        now
    });
    let is_table = Memo::new(move |_| address.read().table);
    let is_empty = Memo::new(move |_| view.read().vertices.is_empty());
    let body = move || match (is_empty.get(), is_table.get()) {
        (true, _) => view! {
            <p class="padded muted">"No noderoles yet. Bind a role to a node on the board."</p>
        }
        .into_any(),
        (false, true) => view! { <table::Table shown/> }.into_any(),
        (false, false) => view! { <picture::Picture shown/> }.into_any(),
    };
    let cut = move || {
        view.read().cut.clone().map(|cut| {
            view! {
                <div class="notice" data-state="warn" role="status">
                    {icon(Icon::Warn)} <p>{cut}</p>
                </div>
            }
        })
    };
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        {cut}
        <div class="graph">
            <section class="card" aria-label="Graph">
                <Tools shown/>
                {move || body()}
            </section>
            <About shown/>
        </div>
    }
    .into_any()
}

/// The details of the selected vertex, with links.
#[component]
fn About(shown: GraphState) -> impl IntoView {
    let body = move || {
        let Some(at) = shown.at() else {
            let marked_path = shown
                .view
                .read()
                .marked_path
                .clone()
                .filter(|marked_path| !marked_path.path.is_empty());
            return match marked_path {
                Some(marked_path) => path_view(&marked_path).into_any(),
                None => view! {
                    <p class="padded muted">
                        "Choose a box with the pointer or the arrow \
                         keys. " <kbd>"Enter"</kbd> " shows its details, " <kbd>"U"</kbd>
                        " unfolds it, " <kbd>"F"</kbd> " shows only its dependencies and \
                            dependents, " <kbd>"P"</kbd>
                        " starts a path, or ends it at another box."
                    </p>
                }
                .into_any(),
            };
        };
        let view = shown.view.read();
        let vertex = view.vertices[at].clone();
        let address = shown.address.get();
        let states = vertex.appearances.iter().map(|part| {
            let (color, shape, word) = state_style(part.appearance);
            view! {
                <span class="pill" data-state=color>{icon(shape)} {part.count} " " {word}</span>
            }
        });
        let near = |ids: Vec<(usize, &GraphEdge)>, title: &'static str, none: &'static str| {
            let links = ids.iter().map(|(other, edge)| {
                let other = &view.vertices[*other];
                let (color, shape, _) = worst_state(other).map_or(("", Icon::Dot, ""), state_style);
                let count = (edge.count > 1).then(|| format!("{} edges", edge.count));
                let count = count.into_iter().chain(rewired(edge).map(|(_, words)| words));
                let count = count.collect::<Vec<_>>().join(", ");
                view! {
                    <li>
                        <a href=address.at(&other.key).link() data-noscroll>
                            <span class="mark" data-state=color>{icon(shape)}</span>
                            <span>{named(other)} " "</span>
                            <span class="muted">{count}</span>
                        </a>
                    </li>
                }
            });
            let links = links.collect_view();
            let nothing = ids.is_empty().then(|| view! { <p class="muted padded">{none}</p> });
            view! { <h3 class="sub">{title}</h3> {nothing} <ul class="link-list">{links}</ul> }
        };
        let parents =
            view.edges.iter().filter(|edge| edge.to == at).map(|edge| (edge.from, edge)).collect();
        let children =
            view.edges.iter().filter(|edge| edge.from == at).map(|edge| (edge.to, edge)).collect();
        let fold = match vertex.noderole.is_some() {
            true => format!("Fold {}", vertex.role),
            false => format!("Unfold its {}", many(vertex.members, "noderole")),
        };
        let is_node = vertex.noderole.as_ref().map(|one| one.fqdn.clone()).map(|fqdn| {
            let word = if address.options.nodes.contains(&fqdn) {
                "Fold this node"
            } else {
                "Show \
                everything on this node"
            };
            view! {
                <a class="button small" href=address.toggled_node(&fqdn).link() data-noscroll>
                    {word}
                </a>
            }
        });
        let path = match &address.options.marked_path {
            Some(PathOptions::From(from)) if *from != vertex.key => {
                format!("Show path from {} to here", shown.called(from))
            }
            _ => "Start path here".to_owned(),
        };
        let started = address.options.marked_path == Some(PathOptions::From(vertex.key.clone()));
        let path = (!started).then(|| {
            view! {
                <a class="button small" href=address.with_path_at(&vertex.key).link() data-noscroll>
                    {path}
                </a>
            }
        });
        let waves = vertex.waves.is_some().then(|| format!(", {}", colors::wave(&vertex)));
        let marked_path =
            boxes::on_path(&vertex).map(|words| view! { <p class="muted">{words}</p> });
        let page = vertex.noderole.as_ref().filter(|one| one.has_page).map(|one| {
            view! {
                <a class="button small" href=addresses::noderole(one.id)>
                    {icon(Icon::Wide)} "Open noderole"
                </a>
            }
        });
        view! {
            <div class="padded">
                <div class="buttons">{states.collect_view()}</div>
                <p class="muted">
                    "in "
                    <a href=addresses::deployment(&vertex.deployment)>
                        {vertex.deployment.to_string()}
                    </a>
                    {waves}
                </p>
                {marked_path}
                <div class="buttons">
                    <a
                        class="button small"
                        href=address.focused(&vertex.key, GraphDirection::Both).link() data-noscroll
                    >
                        "Show only dependencies and dependents"
                    </a>
                    <a
                        class="button small"
                        href=address.toggled_role(&vertex.role).link() data-noscroll
                    >
                        {fold}
                    </a>
                    {is_node}
                    {path}
                    {page}
                </div>
            </div>
            {near(parents, "Dependencies", "None in this view.")}
            {near(children, "Dependents", "None in this view.")}
        }
        .into_any()
    };
    let title = move || match shown.at() {
        Some(at) => named(&shown.view.read().vertices[at]),
        None if shown
            .view
            .read()
            .marked_path
            .as_ref()
            .is_some_and(|marked_path| !marked_path.path.is_empty()) =>
        {
            "Longest path".into()
        }
        None => "No box selected".into(),
    };
    view! {
        <aside class="card about" aria-labelledby="graph-about">
            <header><h2 id="graph-about">{title}</h2></header>
            {move || body()}
        </aside>
    }
    .into_any()
}

/// The noderoles of a path, from the first.
fn path_view(marked_path: &GraphPath) -> impl IntoView + use<> {
    let point = |point: &api::views::graph::GraphWaypoint| {
        let took = point.duration_ms.map(|took| format!("{:.1} s", took as f64 / 1_000.0));
        view! {
            <li>
                <a href=addresses::noderole(point.id)>
                    <span>{point.name.clone()} " "</span>
                    <span class="muted">{took}</span>
                </a>
            </li>
        }
    };
    let more = marked_path.noderoles - marked_path.path.len();
    view! {
        <ol class="link-list path-list">{marked_path.path.iter().map(point).collect_view()}</ol>
        {(more > 0).then(|| view! { <p class="padded muted">"and " {more} " more"</p> })}
    }
}
