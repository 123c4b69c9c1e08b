//! The graph as a table, for screen readers, for print and to find a row.

use api::views::graph::GraphView;
use leptos::prelude::*;

use super::{GraphState, boxes, colors, named, rewired, state_style};
use crate::components::icon;

/// Maximum number of neighbors that a cell names. The rest is a count. Otherwise a barrier before
/// a thousand noderoles would fill the page.
const MAX_NAMED: usize = 12;

/// The dependencies and dependents of each vertex: the other end of the edge, and a note about the
/// edge.
type Near = Vec<[Vec<(usize, Option<String>)>; 2]>;

fn near(view: &GraphView) -> Near {
    let mut near: Near = vec![[Vec::new(), Vec::new()]; view.vertices.len()];
    for edge in &view.edges {
        let path = (edge.on_path > 0).then(|| "path".to_owned());
        let text: Vec<String> =
            path.into_iter().chain(rewired(edge).map(|(_, words)| words)).collect();
        let text = (!text.is_empty()).then(|| text.join(", "));
        near[edge.to][0].push((edge.from, text.clone()));
        near[edge.from][1].push((edge.to, text));
    }
    // Highlighted edges come first.
    for side in near.iter_mut().flatten() {
        side.sort_by_key(|(other, text)| (text.is_none(), *other));
    }
    near
}

fn edge_list(view: &GraphView, ends: &[(usize, Option<String>)]) -> Option<impl IntoView + use<>> {
    if ends.is_empty() {
        return None;
    }
    let name = |(other, text): &(usize, Option<String>)| {
        let name = named(&view.vertices[*other]);
        match text {
            Some(text) => view! { <li><b>{name}</b> " (" {text.clone()} ")"</li> }.into_any(),
            None => view! { <li>{name}</li> }.into_any(),
        }
    };
    let more = ends.len().saturating_sub(MAX_NAMED);
    Some(view! {
        <ul class="neighbors">
            {ends.iter().take(MAX_NAMED).map(name).collect_view()}
            {(more > 0).then(|| view! { <li class="muted">"and " {more} " more"</li> })}
        </ul>
    })
}

#[component]
pub(super) fn Table(shown: GraphState) -> impl IntoView {
    let marks = move || shown.view.read().marked_path.is_some();
    let rows = move || {
        let (view, address) = (shown.view.read(), shown.address.get());
        let found: Option<std::collections::BTreeSet<usize>> =
            shown.found().map(|found| found.into_iter().collect());
        let near = near(&view);
        // In the order of the layers, from left to right.
        let layout = shown.layout.read();
        let mut order: Vec<usize> = (0..view.vertices.len()).collect();
        order.sort_by_key(|at| (layout.layers.get(*at).copied().unwrap_or_default(), *at));
        order.retain(|at| found.as_ref().is_none_or(|found| found.contains(at)));
        let row = |at: usize| {
            let vertex = &view.vertices[at];
            let states = vertex.appearances.iter().map(|part| {
                let (color, shape, word) = state_style(part.appearance);
                view! {
                    <span class="pill" data-state=color>{icon(shape)} {part.count} " " {word}</span>
                    " "
                }
            });
            let states = states.collect_view();
            let [before, after] = &near[at];
            let (before, after) = (edge_list(&view, before), edge_list(&view, after));
            let path = marks()
                .then(|| view! { <td data-label="On the path">{boxes::on_path(vertex)}</td> });
            view! {
                <tr data-key=vertex.key.clone()>
                    <td data-label="Wave" class="tight muted">{colors::wave(vertex)}</td>
                    <td data-label="Name">
                        <a class="main" href=address.at(&vertex.key).link() data-noscroll>
                            {named(vertex)}
                        </a>
                    </td>
                    <td data-label="Deployment">{vertex.deployment.to_string()}</td>
                    <td data-label="State"><span class="buttons">{states}</span></td>
                    {path}
                    <td data-label="Dependencies">{before}</td>
                    <td data-label="Dependents">{after}</td>
                </tr>
            }
        };
        order.into_iter().map(row).collect_view()
    };
    view! {
        <div class="table-scroll">
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Wave"</th>
                        <th scope="col">"Name"</th>
                        <th scope="col">"Deployment"</th>
                        <th scope="col">"State"</th>
                        {move || marks().then(|| view! { <th scope="col">"On the path"</th> })}
                        <th scope="col">"Dependencies"</th>
                        <th scope="col">"Dependents"</th>
                    </tr>
                </thead>
                <tbody>{move || rows()}</tbody>
            </table>
        </div>
    }
    .into_any()
}
