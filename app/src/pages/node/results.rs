//! What attempts returned that is kept for a node. Of each result its beginning is shown: all of it is on the page of its run, and 50 of
//! them may be large.

use api::values::{ResultLine, ResultLines};
use engine::counting::many;
use engine::ids::RunId;
use leptos::prelude::*;

use super::kept::{Asked, Sheet, kept, ways};
use crate::calls;
use crate::clock::Moment;
use crate::parts::{Empty, Icon};
use crate::places;

/// The page.
#[component]
pub fn ResultsPage() -> impl IntoView {
    kept(|text| text.parse().ok(), calls::node_results, |asked, page| view! { <Loaded asked page/> })
}

#[component]
fn Loaded(asked: Asked<RunId>, page: ResultLines) -> impl IntoView {
    let (name, before) = asked;
    let ResultLines { results, all, next } = page;
    let newest = before.map(|_| places::node_results(&name, None));
    let pager = ways(newest, next.map(|next| places::node_results(&name, Some(next))));
    let none = match all {
        0 => "A run that hands something back leaves it here, however it ended.",
        _ => "No result is kept from before that run.",
    };
    let table = match results.is_empty() {
        true => view! { <Empty icon=Icon::Data title="No results"><p>{none}</p></Empty> }.into_any(),
        false => table(results),
    };
    let about = view! { "What runs here handed back, by which a later attempt knows what an earlier one made. Of each step the newest ten are kept: " {all} " in all." }
        .into_any();
    let same = api::calls::node_results(&name);
    view! { <Sheet title=format!("Results on {name}") name about same>{table} {pager}</Sheet> }.into_any()
}

fn table(results: Vec<ResultLine>) -> AnyView {
    let row = |line: ResultLine| {
        let rest = line.result.ends_with('…').then(|| format!("{} in all", many(line.bytes, "byte")));
        view! {
            <tr>
                <td data-label="Run" class="tight"><a class="main" href=places::run(line.run)>{line.run.0}</a></td>
                <td data-label="Of"><span><a href=places::noderole(line.noderole)><b>{line.role}</b></a> ": " {line.action}</span></td>
                <td data-label="Ended">{line.outcome}</td>
                <td data-label="Handed back"><span><code>{line.result}</code> {rest.map(|rest| view! { " " <small class="muted">{rest}</small> })}</span></td>
                <td data-label="Target" class="number">{line.target.0}</td>
                <td data-label="When" class="muted"><Moment at=line.at/></td>
            </tr>
        }
    };
    let rows = results.into_iter().map(row).collect_view();
    view! {
        <table class="table folds">
            <thead>
                <tr>
                    <th scope="col">"Run"</th>
                    <th scope="col">"Of"</th>
                    <th scope="col">"Ended"</th>
                    <th scope="col">"Handed back"</th>
                    <th scope="col" class="number">"Target"</th>
                    <th scope="col">"When"</th>
                </tr>
            </thead>
            <tbody>{rows}</tbody>
        </table>
    }
    .into_any()
}
