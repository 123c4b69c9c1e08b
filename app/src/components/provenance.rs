//! Data with the source of each value.

use api::values::Provenance;
use engine::counting::many;
use leptos::prelude::*;

use super::icon::{Icon, icon};

/// The maximum number of rows in a panel. The values page shows the rest.
const MAX_ROWS: usize = 100;

/// The first values with their path and source, and a link to all.
#[component]
pub fn ProvenanceTable(
    /// Sorted by path.
    values: Vec<Provenance>,
    /// The total number of values.
    all: usize,
    /// The address of the page with all values, which also has a filter and the author of each
    /// value.
    #[prop(into)]
    place: String,
) -> impl IntoView {
    if values.is_empty() {
        return view! {
            <p class="muted padded">
                "No data. " <a href=place>"Show the data of the next run"</a>
            </p>
        }
        .into_any();
    }
    let shown = values.len().min(MAX_ROWS);
    let rows = values.into_iter().take(MAX_ROWS).map(|value| {
        view! {
            <tr>
                <td data-label="Path"><code>{value.path}</code></td>
                <td data-label="Value"><code>{value.value}</code></td>
                <td data-label="Source" class="muted">{value.source}</td>
            </tr>
        }
    });
    let count =
        if shown < all { format!("{shown} of {}", many(all, "value")) } else { many(all, "value") };
    view! {
        <div class="table-scroll">
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Path"</th> <th scope="col">"Value"</th>
                        <th scope="col">"Source"</th>
                    </tr>
                </thead>
                <tbody>{rows.collect_view()}</tbody>
            </table>
        </div>
        <nav class="pager" aria-label="All values">
            <span class="grow">{count}</span>
            <a class="button small" href=place>"Find a value and its author" {icon(Icon::Right)}</a>
        </nav>
    }
    .into_any()
}
