//! Graphs: a picture, its table, and what one vertex is about.
//!
//! The server folds ([`engine::cluster::graph`]) and sends what is to be seen; [`layout`] says where it stands; this draws it. Whatever
//! the reader chose is in the [`address`], so every command is a link and works without scripts.
//!
//! What makes it hold for ten thousand edges: the fold keeps the picture small; all edges are one path for each kind and not an
//! element each; of a large picture only what is near the reader's window is drawn; a new state moves nothing, since the layout
//! depends on the shape alone.

pub mod address;
pub mod layout;
mod picture;
mod table;

use api::console::{GraphVertex, GraphView, GraphWay, Look, StepState};
use leptos::html;
use leptos::prelude::*;
use leptos_router::hooks::use_navigate;

use crate::parts::badge::shape;
use crate::parts::{Feed, Icon, ProblemNotice, icon};
use crate::places;
use address::Address;
use layout::Layout;

/// Size of a vertex and the room around it, in pixels.
pub(crate) const MEASURES: layout::Measures =
    layout::Measures { width: 188.0, height: 62.0, across: 76.0, between: 18.0, margin: 20.0 };

/// The colour, shape and word of a look.
pub(crate) fn drawn_as(look: Look) -> (&'static str, Icon, &'static str) {
    match look {
        Look::State(state) => (state.as_str(), shape(state), lower(state)),
        Look::Added => ("proposed", Icon::Proposed, "added"),
        Look::Removed => ("error", Icon::Bin, "removed"),
        Look::Changed => ("warn", Icon::Again, "changed"),
        Look::Downstream => ("todo", Icon::Bind, "downstream"),
        Look::Around => ("", Icon::Dot, "unchanged"),
    }
}

fn lower(state: StepState) -> &'static str {
    state.as_str()
}

/// The look that says most about a vertex: what needs somebody first.
pub(crate) fn worst(vertex: &GraphVertex) -> Option<Look> {
    let weight = |look: &Look| match look {
        Look::State(StepState::Error) | Look::Removed => 0,
        Look::Added | Look::Changed => 1,
        Look::State(StepState::Transition) => 2,
        Look::State(StepState::Todo) => 3,
        Look::State(StepState::Proposed) => 4,
        Look::State(StepState::Blocked) => 5,
        Look::State(StepState::Active) => 6,
        Look::Downstream => 7,
        Look::Around => 8,
    };
    vertex.looks.iter().map(|(look, _)| *look).min_by_key(weight)
}

/// `3 noderoles: 2 active, 1 error`; for a single one its state.
pub(crate) fn said(vertex: &GraphVertex) -> String {
    let looks =
        vertex.looks.iter().map(|(look, n)| format!("{n} {}", drawn_as(*look).2)).collect::<Vec<_>>().join(", ");
    match (&vertex.one, vertex.looks.first()) {
        (Some(_), Some((look, _))) => drawn_as(*look).2.to_owned(),
        (Some(_), None) => String::new(),
        (None, _) => looks,
    }
}

/// `app on n1`, or `app` for the whole role.
pub(crate) fn named(vertex: &GraphVertex) -> String {
    match &vertex.one {
        Some(one) => format!("{} on {}", vertex.role, one.short),
        None => vertex.role.to_string(),
    }
}

/// A graph as it is shown.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    pub view: RwSignal<GraphView>,
    pub address: Memo<Address>,
    pub layout: Memo<Layout>,
    /// What the reader looks for.
    pub find: RwSignal<String>,
    pub zoom: RwSignal<f64>,
    /// What the window shows of the picture, in its own pixels: x, y, width, height.
    pub window: RwSignal<(f64, f64, f64, f64)>,
    pub room: NodeRef<html::Div>,
}

impl Shown {
    /// The ends of all edges.
    pub fn ends(self) -> Vec<(usize, usize)> {
        self.view.read().edges.iter().map(|edge| (edge.from, edge.to)).collect()
    }

    /// The place of the vertex that is looked at.
    pub fn at(self) -> Option<usize> {
        let key = self.address.read().at.clone()?;
        self.view.read().vertices.iter().position(|vertex| vertex.key == key)
    }

    /// Places of vertices that have the wanted text in a name; None: nothing is looked for.
    pub fn found(self) -> Option<Vec<usize>> {
        let wanted = self.find.read().trim().to_lowercase();
        if wanted.is_empty() {
            return None;
        }
        let fits = |vertex: &GraphVertex| {
            vertex.role.as_str().to_lowercase().contains(&wanted)
                || vertex.one.as_ref().is_some_and(|one| one.fqdn.to_lowercase().contains(&wanted))
        };
        let view = self.view.read();
        Some(view.vertices.iter().enumerate().filter(|(_, vertex)| fits(vertex)).map(|(at, _)| at).collect())
    }
}

/// A graph with everything around it. `address` says what is shown; the owner of `feed` fetches when that changes.
#[component]
pub fn Graph(
    /// What is shown.
    feed: Feed<GraphView>,
    /// What the reader chose.
    address: Memo<Address>,
) -> impl IntoView {
    let view = feed.value();
    let form = Memo::new(move |_| {
        let view = view.read();
        (view.vertices.len(), view.edges.iter().map(|edge| (edge.from, edge.to)).collect::<Vec<_>>())
    });
    let shown = Shown {
        view,
        address,
        layout: Memo::new(move |_| form.with(|(count, edges)| layout::lay_out(*count, edges, MEASURES))),
        find: RwSignal::new(String::new()),
        zoom: RwSignal::new(1.0),
        window: RwSignal::new((0.0, 0.0, 1600.0, 1000.0)),
        room: NodeRef::new(),
    };
    let wish = Memo::new(move |_| address.read().wish.clone());
    Effect::new(move |last: Option<api::console::GraphWish>| {
        let now = wish.get();
        if last.is_some_and(|last| last != now) {
            feed.now();
        }
        now
    });
    let is_table = Memo::new(move |_| address.read().table);
    let is_empty = Memo::new(move |_| view.read().vertices.is_empty());
    let body = move || match (is_empty.get(), is_table.get()) {
        (true, _) => {
            view! { <p class="inside muted">"There is nothing to draw: no role is bound to a node here yet."</p> }
                .into_any()
        }
        (false, true) => view! { <table::Table shown/> }.into_any(),
        (false, false) => view! { <picture::Picture shown/> }.into_any(),
    };
    let cut = move || {
        view.read().cut.clone().map(
            |cut| view! { <div class="notice" data-state="warn" role="status">{icon(Icon::Warn)} <p>{cut}</p></div> },
        )
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        {cut}
        <div class="graph">
            <section class="card" aria-label="Graph">
                <Tools shown/>
                {body}
            </section>
            <About shown/>
        </div>
    }
    .into_any()
}

#[component]
fn Tools(shown: Shown) -> impl IntoView {
    let counts = move || {
        let view = shown.view.read();
        format!("{} boxes for {} noderoles and {} edges", view.vertices.len(), view.noderoles, view.wires)
    };
    let is_table = Memo::new(move |_| shown.address.read().table);
    let other = move || shown.address.read().as_table(!is_table.get()).link();
    let all = move || {
        let address = shown.address.read();
        (!address.is_first())
            .then(|| view! { <a class="button small" href=address.all().link() data-noscroll>"Show all, folded"</a> })
    };
    let focus = move || {
        let address = shown.address.get();
        let key = address.wish.focus.clone()?;
        let ways = [(GraphWay::Both, "Both"), (GraphWay::Up, "Before it"), (GraphWay::Down, "After it")].map(|(way, word)| {
            let is_here = (address.wish.way == way).then_some("true");
            view! { <a class="button small" class:quiet=is_here.is_none() href=address.focused(&key, way).link() aria-current=is_here data-noscroll>{word}</a> }
        });
        Some(
            view! { <span class="buttons" role="group" aria-label="What is shown around it">{ways.collect_view()}</span> },
        )
    };
    view! {
        <div class="graph-tools">
            <Find shown/>
            {focus}
            {all}
            <span class="grow"></span>
            <span class="muted" role="status">{counts}</span>
            {move || (!is_table.get()).then(|| view! { <Zoom shown/> })}
            <a class="button small" href=other data-noscroll>{move || if is_table.get() { "Picture" } else { "Table" }}</a>
        </div>
    }
    .into_any()
}

#[component]
fn Zoom(shown: Shown) -> impl IntoView {
    let by = move |factor: f64| shown.zoom.update(|zoom| *zoom = (*zoom * factor).clamp(0.1, 2.0));
    let fit = move || {
        let Some(room) = shown.room.get_untracked() else { return };
        let layout = shown.layout.read_untracked();
        let (across, down) =
            (f64::from(room.client_width()) / layout.width, f64::from(room.client_height()) / layout.height);
        shown.zoom.set(across.min(down).clamp(0.1, 1.0));
    };
    view! {
        <span class="buttons" role="group" aria-label="Size of the picture">
            <button class="button quiet small only-icon" type="button" aria-label="Smaller" on:click=move |_| by(0.8)>"−"</button>
            <button class="button quiet small only-icon" type="button" aria-label="Larger" on:click=move |_| by(1.25)>{icon(Icon::Plus)}</button>
            <button class="button quiet small" type="button" on:click=move |_| fit()>"Fit"</button>
        </span>
    }
    .into_any()
}

/// Finds by role or node; Enter goes to the next one, or unfolds the node of that name when nothing that is shown has it.
#[component]
fn Find(shown: Shown) -> impl IntoView {
    let turn = StoredValue::new(0_usize);
    let navigate = use_navigate();
    let found = Memo::new(move |_| shown.found());
    let said = move || match found.get() {
        None => String::new(),
        Some(found) if found.is_empty() => "Nothing that is shown. Enter unfolds the node of that name.".to_owned(),
        Some(found) => format!("{} found. Enter goes to the next.", found.len()),
    };
    let go = move || {
        let Some(found) = found.get_untracked() else { return };
        let address = shown.address.get_untracked();
        let options = leptos_router::NavigateOptions { scroll: false, ..Default::default() };
        if found.is_empty() {
            let node = shown.find.get_untracked().trim().to_lowercase();
            if !address.wish.nodes.contains(&node) {
                navigate(&address.toggled_node(&node).link(), options);
            }
            return;
        }
        let n = turn.get_value() % found.len();
        turn.set_value(n + 1);
        picture::bring_into_sight(shown, found[n]);
        let key = shown.view.read_untracked().vertices[found[n]].key.clone();
        navigate(&address.at(&key).link(), options);
    };
    view! {
        <form
            class="find"
            role="search"
            on:submit=move |event| {
                event.prevent_default();
                go();
            }
        >
            <label class="unseen" for="graph-find">"Find a role or a node"</label>
            <input
                class="input"
                id="graph-find"
                type="search"
                placeholder="Find a role or a node"
                autocomplete="off"
                prop:value=move || shown.find.get()
                on:input=move |event| {
                    turn.set_value(0);
                    shown.find.set(event_target_value(&event));
                }
            />
            <small class="muted" role="status">{said}</small>
        </form>
    }
    .into_any()
}

/// What the vertex that is looked at is about, and where one can go from it.
#[component]
fn About(shown: Shown) -> impl IntoView {
    let body = move || {
        let Some(at) = shown.at() else {
            return view! {
                <p class="inside muted">
                    "Choose a box: by pointer, or with the arrow keys, which walk along the edges. " <kbd>"Enter"</kbd> " shows it here, " <kbd>"U"</kbd>
                    " unfolds, " <kbd>"F"</kbd> " shows only it and what leads to it and follows from it."
                </p>
            }
            .into_any();
        };
        let view = shown.view.read();
        let vertex = view.vertices[at].clone();
        let address = shown.address.get();
        let looks = vertex.looks.iter().map(|(look, n)| {
            let (colour, shape, word) = drawn_as(*look);
            view! { <span class="pill" data-state=colour>{icon(shape)} {*n} " " {word}</span> }
        });
        let near = |ids: Vec<(usize, usize)>, title: &'static str, none: &'static str| {
            let links = ids.iter().map(|(other, count)| {
                let other = &view.vertices[*other];
                let (colour, shape, _) = worst(other).map_or(("", Icon::Dot, ""), drawn_as);
                let count = (*count > 1).then(|| format!("{count} edges"));
                view! {
                    <li>
                        <a href=address.at(&other.key).link() data-noscroll>
                            <span class="mark" data-state=colour>{icon(shape)}</span>
                            <span>{named(other)} " "</span>
                            <span class="muted">{count}</span>
                        </a>
                    </li>
                }
            });
            let links = links.collect_view();
            let nothing = ids.is_empty().then(|| view! { <p class="muted inside">{none}</p> });
            view! { <h3 class="sub">{title}</h3> {nothing} <ul class="link-list">{links}</ul> }
        };
        let parents = view.edges.iter().filter(|edge| edge.to == at).map(|edge| (edge.from, edge.count)).collect();
        let children = view.edges.iter().filter(|edge| edge.from == at).map(|edge| (edge.to, edge.count)).collect();
        let fold = match vertex.one.is_some() {
            true => format!("Fold {}", vertex.role),
            false => format!("Show its {} noderoles one by one", vertex.members),
        };
        let is_node = vertex.one.as_ref().map(|one| one.fqdn.clone()).map(|fqdn| {
            let word = if address.wish.nodes.contains(&fqdn) { "Fold this node" } else { "Everything on this node" };
            view! { <a class="button small" href=address.toggled_node(&fqdn).link() data-noscroll>{word}</a> }
        });
        let page = vertex.one.as_ref().filter(|one| one.has_page).map(|one| {
            view! { <a class="button small" href=places::noderole(one.id)>{icon(Icon::Wide)} "Noderole"</a> }
        });
        view! {
            <div class="inside">
                <div class="buttons">{looks.collect_view()}</div>
                <p class="muted">"in " <a href=places::deployment(&vertex.deployment)>{vertex.deployment.to_string()}</a></p>
                <div class="buttons">
                    <a class="button small" href=address.focused(&vertex.key, GraphWay::Both).link() data-noscroll>"Only this and around it"</a>
                    <a class="button small" href=address.toggled_role(&vertex.role).link() data-noscroll>{fold}</a>
                    {is_node}
                    {page}
                </div>
            </div>
            {near(parents, "Waits for", "Nothing that is shown.")}
            {near(children, "Waits for it", "Nothing that is shown.")}
        }
        .into_any()
    };
    let title = move || shown.at().map_or("Nothing chosen".to_owned(), |at| named(&shown.view.read().vertices[at]));
    view! {
        <aside class="card about" aria-labelledby="graph-about">
            <header><h2 id="graph-about">{title}</h2></header>
            {body}
        </aside>
    }
    .into_any()
}
