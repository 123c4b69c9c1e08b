//! The toolbar above the picture: search, highlighting, legend, zoom and download.

use api::views::graph::{GraphDirection, Length, PathOptions};
use engine::counting::{either, many};
use leptos::prelude::*;
use leptos_router::hooks::use_navigate;

use super::address::{Address, ColorBy};
use super::{GraphState, changes, picture};
use crate::components::{Icon, icon};

/// The distances from the focus that the reader can choose, in edges.
const DISTANCES: [u32; 3] = [1, 2, 3];

#[component]
pub(super) fn Tools(shown: GraphState) -> impl IntoView {
    let counts = move || {
        let view = shown.view.read();
        let boxes = view.vertices.len();
        let (noderoles, edges) = (many(view.noderoles, "noderole"), many(view.total_edges, "edge"));
        format!("{boxes} {} for {noderoles} and {edges}", either(boxes, "box", "boxes"))
    };
    let is_table = Memo::new(move |_| shown.address.read().table);
    let other = move || shown.address.read().as_table(!is_table.get()).link();
    let all = move || {
        let address = shown.address.read();
        (!address.is_first()).then(|| {
            view! {
                <a class="button small" href=address.all().link() data-noscroll>
                    "Show all, folded"
                </a>
            }
        })
    };
    let file = move || shown.address.read().file();
    view! {
        <div class="graph-tools">
            <Find shown/>
            {move || focus(&shown.address.read())}
            {move || all()}
            <span class="grow"></span>
            <span class="muted" role="status">{move || counts()}</span>
            {move || (!is_table.get()).then(|| view! { <Zoom shown/> })}
            <a class="button small" href=other data-noscroll>
                {move || if is_table.get() { "Show picture" } else { "Show table" }}
            </a>
            <a
                class="button small"
                href=file download
                rel="external"
                aria-label="SVG, download the picture"
            >
                {icon(Icon::Download)} "SVG"
            </a>
        </div>
        <div class="graph-tools">
            {move || colors(&shown.address.read())}
            {move || legend(shown)}
            <span class="grow"></span>
            {move || longest(&shown.address.read())}
        </div>
        {move || marked_path(shown)}
    }
    .into_any()
}

/// An option of an exclusive choice.
fn choice(link: String, is_here: bool, word: impl Into<String>) -> impl IntoView {
    let word: String = word.into();
    view! {
        <a
            class="button small"
            class:quiet=!is_here
            href=link
            aria-current=is_here.then_some("true") data-noscroll
        >
            {word}
        </a>
    }
}

fn focus(address: &Address) -> Option<impl IntoView + use<>> {
    let key = address.options.focus.clone()?;
    let direction_choice = |(direction, word): (GraphDirection, &'static str)| {
        let mut other = address.focused(&key, direction);
        other.at.clone_from(&address.at);
        choice(other.link(), address.options.direction == direction, word)
    };
    let ways = [
        (GraphDirection::Both, "Both"),
        (GraphDirection::Up, "Dependencies"),
        (GraphDirection::Down, "Dependents"),
    ]
    .map(direction_choice);
    let steps = |steps: Option<u32>| {
        let word = steps.map_or_else(|| "All".to_owned(), |steps| steps.to_string());
        choice(address.with_max_distance(steps).link(), address.options.steps == steps, word)
    };
    let steps = DISTANCES.map(Some).into_iter().chain([None]).map(steps).collect_view();
    Some(view! {
        <span class="buttons" role="group" aria-label="Direction">{ways.collect_view()}</span>
        <span class="buttons" role="group" aria-label="Distance in edges">
            <span class="muted">"Distance"</span> {steps}
        </span>
    })
}

fn colors(address: &Address) -> impl IntoView + use<> {
    let one = |color: ColorBy| {
        choice(address.with_color(color).link(), address.color == color, color.label())
    };
    view! {
        <span class="buttons" role="group" aria-label="Color by">
            <span class="muted">"Color by"</span>
            {ColorBy::ALL.map(one).collect_view()}
        </span>
    }
}

fn legend(shown: GraphState) -> impl IntoView + use<> {
    let entry = |entry: super::colors::Entry| {
        view! {
            <li>
                <span class="mark" data-state=entry.tone>{icon(entry.shape)}</span> {entry.words}
            </li>
        }
    };
    let entries = shown.scale.read().legend().into_iter().map(entry).collect_view();
    let line = |(class, words): (&'static str, &'static str)| {
        view! {
            <li>
                <svg class="graph-svg sample" width="24" height="12" aria-hidden="true">
                    <g class=format!("edge {class}")><path class="line" d="M0 6h24"></path></g>
                </svg>
                {words}
            </li>
        }
    };
    let lines = changes(&shown.view.read()).into_iter().map(line).collect_view();
    view! { <ul class="legend" aria-label="Legend">{entries} {lines}</ul> }
}

fn longest(address: &Address) -> impl IntoView + use<> {
    let one = |(length, word): (Length, &'static str)| {
        let request = PathOptions::Longest(length);
        let is_here = address.options.marked_path.as_ref() == Some(&request);
        choice(address.marked((!is_here).then_some(request)).link(), is_here, word)
    };
    view! {
        <span class="buttons" role="group" aria-label="Highlight the longest path">
            <span class="muted">"Longest path"</span>
            {[(Length::Count, "by steps"), (Length::Time, "by time")].map(one).collect_view()}
        </span>
    }
}

/// The highlighted part, or the next step to choose one.
fn marked_path(shown: GraphState) -> Option<impl IntoView + use<>> {
    let address = shown.address.read();
    let request = address.options.marked_path.clone()?;
    let text = match (&request, &shown.view.read().marked_path) {
        (PathOptions::From(from), _) => {
            format!(
                "The path starts at {}. Select the box where it ends, then press P.",
                shown.called(from)
            )
        }
        (_, Some(marked_path)) => marked_path.summary.clone(),
        (_, None) => "Searching for the path".to_owned(),
    };
    let only = shown.view.read().marked_path
        .as_ref()
        .is_some_and(|marked_path| marked_path.noderoles > 0)
        .then(|| {
        let now = address.options.only_path;
        let word = if now { "Show all" } else { "Show only the path" };
        view! {
            <a class="button small" href=address.with_only_highlighted(!now).link() data-noscroll>
                {word}
            </a>
        }
    });
    Some(view! {
        <div class="graph-tools path-tools">
            <span role="status">{text}</span>
            <span class="grow"></span>
            {only}
            <a class="button small" href=address.marked(None).link() data-noscroll>
                "Clear highlight"
            </a>
        </div>
    })
}

#[component]
fn Zoom(shown: GraphState) -> impl IntoView {
    let by = move |factor: f64| picture::zoom_by(shown, factor, None);
    view! {
        <span class="buttons needs-scripts" role="group" aria-label="Zoom">
            <button
                class="button quiet small only-icon"
                type="button"
                aria-label="Zoom out"
                on:click=move |_| by(0.8)
            >
                "−"
            </button>
            <button
                class="button quiet small only-icon"
                type="button"
                aria-label="Zoom in"
                on:click=move |_| by(1.25)
            >
                {icon(Icon::Plus)}
            </button>
            <button class="button quiet small" type="button" on:click=move |_| picture::fit(shown)>
                "Fit to window"
            </button>
        </span>
    }
    .into_any()
}

/// Searches by role or node. Enter moves to the next match. If no visible vertex matches, Enter
/// expands the node with that name.
#[component]
fn Find(shown: GraphState) -> impl IntoView {
    let turn = StoredValue::new(0_usize);
    let navigate = use_navigate();
    let found = Memo::new(move |_| shown.found());
    let text = move || match found.get() {
        None => String::new(),
        Some(found) if found.is_empty() => {
            "No match in this view. Press Enter to unfold the node with this name.".to_owned()
        }
        Some(found) => format!("{} found. Press Enter for the next one.", found.len()),
    };
    let go = move || {
        let Some(found) = found.get_untracked() else { return };
        let address = shown.address.get_untracked();
        let options = leptos_router::NavigateOptions { scroll: false, ..Default::default() };
        if found.is_empty() {
            let node = shown.find.get_untracked().trim().to_lowercase();
            if !address.options.nodes.contains(&node) {
                navigate(&address.toggled_node(&node).link(), options);
            }
            return;
        }
        let n = turn.get_value() % found.len();
        turn.set_value(n + 1);
        picture::scroll_to_box(shown, found[n]);
        let key = shown.view.read_untracked().vertices[found[n]].key.clone();
        navigate(&address.at(&key).link(), options);
    };
    view! {
        <form
            class="find needs-scripts"
            role="search"
            on:submit=move |event| {
                event.prevent_default();
                go();
            }
        >
            <label class="visually-hidden" for="graph-find">"Find a role or a node"</label>
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
            <small class="muted" role="status">{move || text()}</small>
        </form>
    }
    .into_any()
}
