//! Data with the source of each value.

use api::console::Provenance;
use leptos::prelude::*;

/// Each value, where it sits and where it comes from.
#[component]
pub fn ProvenanceTable(
    /// In the order of their paths.
    values: Vec<Provenance>,
) -> impl IntoView {
    if values.is_empty() {
        return view! { <p class="muted inside">"No data."</p> }.into_any();
    }
    let rows = values.into_iter().map(|value| {
        view! {
            <tr>
                <td data-label="Path"><code>{value.path}</code></td>
                <td data-label="Value"><code>{value.value}</code></td>
                <td data-label="From" class="muted">{value.source}</td>
            </tr>
        }
    });
    view! {
        <div class="table-scroll">
            <table class="table folds">
                <thead><tr><th scope="col">"Path"</th><th scope="col">"Value"</th><th scope="col">"From"</th></tr></thead>
                <tbody>{rows.collect_view()}</tbody>
            </table>
        </div>
    }
    .into_any()
}
