//! All deployments, in the order of their tree.

use api::console::DeploymentSummary;
use api::live::{PAGE_TOPICS, Topic};
use leptos::prelude::*;
use leptos_meta::Title;

use crate::calls;
use crate::live::use_live;
use crate::parts::{Counts, Feed, Icon, ProblemNotice, SameList, icon, load, rows};
use crate::places;

/// Levels that are indented; of those below, the level is said.
pub(super) const INDENTED: u32 = 8;

/// The list of deployments.
#[component]
pub fn Deployments() -> impl IntoView {
    let deployments = Resource::new(|| (), |()| calls::deployments());
    view! {
        <Title text="Deployments"/>
        <div class="head"><h1>"Deployments"</h1></div>
        {load(deployments, |first| view! { <List first/> })}
        <SameList of=api::calls::List::Deployments/>
    }
    .into_any()
}

#[component]
fn List(first: Vec<DeploymentSummary>) -> impl IntoView {
    let own = first.iter().map(|deployment| Topic::Deployment(deployment.id));
    // The frame listens too, and a stream has only so many topics.
    let topics = [Topic::Targets, Topic::Reviews].into_iter().chain(own).take(PAGE_TOPICS - 2).collect();
    let feed = Feed::new(first, calls::deployments);
    use_live().hear(topics, crate::live::NOW, move |_| feed.eventually());
    let list = feed.value();
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            <table class="table folds deployments">
                <thead>
                    <tr>
                        <th scope="col">"Deployment"</th>
                        <th scope="col">"Steps"</th>
                        <th scope="col" class="number">"Nodes"</th>
                        <th scope="col">"Under way"</th>
                        <th scope="col" class="number">"Changed by"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |deployment| deployment.id, row)}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// How deep a deployment stands that is indented no further than those above it.
pub(super) fn deep(depth: u32) -> Option<impl IntoView> {
    (depth > INDENTED).then(|| view! { " " <small class="muted">"level " {depth}</small> })
}

fn row(deployment: Memo<DeploymentSummary>) -> impl IntoView {
    let board = move || places::deployment(&deployment.read().name);
    view! {
        <tr>
            <td class="name" data-depth=move || deployment.read().depth.min(INDENTED).to_string()>
                <span>
                    <a class="main" href=board>{move || deployment.read().name.to_string()}</a>
                    {move || deep(deployment.read().depth)}
                </span>
            </td>
            <td data-label="Steps">{move || view! { <Counts counts=deployment.read().steps/> }}</td>
            <td data-label="Nodes" class="number">{move || deployment.read().nodes}</td>
            <td data-label="Under way">
                <span class="buttons">
                    {move || {
                        deployment
                            .read()
                            .proposal
                            .map(|_| view! { <a class="pill" data-state="proposed" href=board>{icon(Icon::Proposed)} "PROPOSED"</a> })
                    }}
                    {move || {
                        deployment
                            .read()
                            .submission
                            .map(|id| view! { <a class="pill" data-state="warn" href=places::review(id)>{icon(Icon::Review)} "in review " {id.0}</a> })
                    }}
                </span>
            </td>
            <td data-label="Changed by" class="number muted">"target " {move || deployment.read().target.0}</td>
        </tr>
    }
    .into_any()
}
