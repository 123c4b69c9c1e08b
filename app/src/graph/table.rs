//! The same graph as a table: for who reads by ear, prints, or looks for one row.

use leptos::prelude::*;

use super::{Shown, drawn_as, named};
use crate::parts::icon;

#[component]
pub(super) fn Table(shown: Shown) -> impl IntoView {
    let rows = move || {
        let (view, address) = (shown.view.read(), shown.address.get());
        let found = shown.found();
        // In the order of the layers: what comes first stands first.
        let layout = shown.layout.read();
        let mut order: Vec<usize> = (0..view.vertices.len()).collect();
        order.sort_by_key(|at| (layout.layers.get(*at).copied().unwrap_or_default(), *at));
        order.retain(|at| found.as_ref().is_none_or(|found| found.contains(at)));
        let row = |at: usize| {
            let vertex = &view.vertices[at];
            let looks = vertex.looks.iter().map(|(look, n)| {
                let (colour, shape, word) = drawn_as(*look);
                view! { <span class="pill" data-state=colour>{icon(shape)} {*n} " " {word}</span> " " }
            });
            let looks = looks.collect_view();
            let names = |ends: Vec<usize>| {
                ends.into_iter().map(|end| named(&view.vertices[end])).collect::<Vec<_>>().join(", ")
            };
            let before = names(view.edges.iter().filter(|edge| edge.to == at).map(|edge| edge.from).collect());
            let behind = names(view.edges.iter().filter(|edge| edge.from == at).map(|edge| edge.to).collect());
            let layer = layout.layers.get(at).copied().unwrap_or_default() + 1;
            view! {
                <tr data-key=vertex.key.clone()>
                    <td data-label="Layer" class="tight muted">{layer}</td>
                    <td data-label="What"><a class="main" href=address.at(&vertex.key).link() data-noscroll>{named(vertex)}</a></td>
                    <td data-label="In">{vertex.deployment.to_string()}</td>
                    <td data-label="State"><span class="buttons">{looks}</span></td>
                    <td data-label="Waits for">{before}</td>
                    <td data-label="Waits for it">{behind}</td>
                </tr>
            }
        };
        order.into_iter().map(row).collect_view()
    };
    view! {
        <div class="table-scroll">
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Layer"</th>
                        <th scope="col">"What"</th>
                        <th scope="col">"In"</th>
                        <th scope="col">"State"</th>
                        <th scope="col">"Waits for"</th>
                        <th scope="col">"Waits for it"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}
