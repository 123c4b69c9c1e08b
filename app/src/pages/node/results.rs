//! What attempts returned that is kept for a node, newest first, a page at a time.
//!
//! Of each result its beginning is shown: all of it is on the page of its run, and 50 of them may be large.

use api::values::{ResultLine, ResultLines};
use engine::ids::RunId;
use leptos::prelude::*;
use leptos_meta::Title;

use super::{part_of_node, ways};
use crate::calls;
use crate::clock::Moment;
use crate::parts::{Empty, Icon, Same, Typed, load};
use crate::places;

/// The page.
#[component]
pub fn ResultsPage() -> impl IntoView {
    let asked = part_of_node::<RunId>(|text| text.parse().ok());
    let ask = |asked: Result<(String, Option<RunId>), String>| async move {
        let (name, before) = super::answered(asked)?;
        let page = calls::node_results(name.clone(), before).await?;
        Ok((name, before, page))
    };
    let results = Resource::new(move || asked.get(), ask);
    load(results, |(name, before, page)| view! { <Loaded name before page/> })
}

#[component]
fn Loaded(name: String, before: Option<RunId>, page: ResultLines) -> impl IntoView {
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
    let title = format!("Results on {name}");
    let call = name.clone();
    view! {
        <Title text=title.clone()/>
        <div class="head">
            <div>
                <div class="muted"><a href=places::node(&name)>{name.clone()}</a></div>
                <h1>{title}</h1>
                <p class="muted">"What runs here handed back, by which a later attempt knows what an earlier one made. Of each step the newest ten are kept: " {all} " in all."</p>
            </div>
        </div>
        <div class="card">
            {table}
            {pager}
        </div>
        <Same of=move |_: Typed| vec![api::calls::node_results(&call)]/>
    }
    .into_any()
}

fn table(results: Vec<ResultLine>) -> AnyView {
    let row = |line: ResultLine| {
        view! {
            <tr>
                <td data-label="Run" class="tight"><a class="main" href=places::run(line.run)>{line.run.0}</a></td>
                <td data-label="Of"><span><a href=places::noderole(line.noderole)><b>{line.role}</b></a> ": " {line.action}</span></td>
                <td data-label="Ended">{line.outcome}</td>
                <td data-label="Handed back"><code>{line.shown}</code></td>
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
