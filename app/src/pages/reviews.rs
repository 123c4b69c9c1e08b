//! All submissions: those that wait for somebody first.

use api::console::{ReviewState, ReviewSummary};
use api::live::Topic;
use leptos::prelude::*;
use leptos_meta::Title;

use crate::calls;
use crate::clock::Moment;
use crate::live::{NOW, use_live};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, icon, load, rows};
use crate::places;

/// The list of submissions.
#[component]
pub fn Reviews() -> impl IntoView {
    let reviews = Resource::new(|| (), |()| calls::reviews());
    view! {
        <Title text="Reviews"/>
        <div class="head"><h1>"Reviews"</h1></div>
        {load(reviews, |first| view! { <List first/> })}
    }
    .into_any()
}

#[component]
fn List(first: Vec<ReviewSummary>) -> impl IntoView {
    let feed = Feed::new(first, calls::reviews);
    use_live().hear(vec![Topic::Reviews, Topic::Targets], NOW, move |_| feed.soon());
    let list = feed.value();
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let table = move || {
        match is_empty.get() {
        true => view! {
            <Empty icon=Icon::Review title="Nothing was submitted yet">
                <p>"Propose changes on a deployment's board and submit them; they wait here for somebody else's approval."</p>
                <a class="button" href=places::DEPLOYMENTS>"Deployments"</a>
            </Empty>
        }
        .into_any(),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Change"</th>
                        <th scope="col">"State"</th>
                        <th scope="col" class="number">"Approvals"</th>
                        <th scope="col">"By"</th>
                        <th scope="col">"Submitted"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |review| review.submission, row)}</tbody>
            </table>
        }
        .into_any(),
    }
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table}</div>
    }
    .into_any()
}

fn row(review: Memo<ReviewSummary>) -> impl IntoView {
    let id = review.read_untracked().submission;
    view! {
        <tr>
            <td>
                <div>
                    <a class="main" href=places::review(id)><bdi>{move || review.read().title.clone()}</bdi></a>
                    <div class="muted">{id.0} " on " {move || scope(&review.read())} ": " {move || review.read().summary.clone()}</div>
                </div>
            </td>
            <td data-label="State">{move || view! { <ReviewPill state=review.read().state/> }}</td>
            <td data-label="Approvals" class="number">{move || review.read().approvals.0} " of " {move || review.read().approvals.1}</td>
            <td data-label="By">{move || review.read().authors.join(", ")}</td>
            <td data-label="Submitted" class="muted">{move || view! { <Moment at=review.read().at/> }}</td>
        </tr>
    }
    .into_any()
}

/// What a review is of: a deployment, or one node.
fn scope(review: &ReviewSummary) -> String {
    match &review.node {
        Some(node) => format!("node {node} alone, in {}", review.deployment),
        None => review.deployment.to_string(),
    }
}

/// Where a submission stands.
#[component]
pub fn ReviewPill(
    /// There.
    state: ReviewState,
) -> impl IntoView {
    let (colour, shape, word) = match state {
        ReviewState::Waiting => ("warn", Icon::Review, "waits for review"),
        ReviewState::Open => ("active", Icon::Check, "may be committed"),
        ReviewState::Objected => ("error", Icon::Cross, "objected"),
        ReviewState::Stale => ("warn", Icon::Lost, "stale"),
        ReviewState::Replaced => ("blocked", Icon::Redo, "replaced"),
        ReviewState::SentBack => ("warn", Icon::Undo, "back with its authors"),
        ReviewState::Committed => ("active", Icon::Active, "committed"),
        ReviewState::Discarded => ("blocked", Icon::Bin, "discarded"),
    };
    view! { <span class="pill" data-state=colour>{icon(shape)} {word}</span> }.into_any()
}
