//! The page that decides: what changes, whether it may, and who says so.

mod changes;
mod gate;

use api::console::{ReviewState, ReviewView, VerdictView, WaveView};
use api::live::Topic;
use engine::gate::{Risk, VerdictKind};
use engine::ids::SubmissionId;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};

use super::reviews::ReviewPill;
use crate::calls;
use crate::clock::Moment;
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::parts::{Feed, Icon, ProblemNotice, icon, load};
use crate::places;

/// A submission, by the number in the address.
#[component]
pub fn ReviewPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let review = Resource::new(move || id.get(), by_text);
    load(review, |first| view! { <Loaded first/> })
}

async fn by_text(id: String) -> Answer<ReviewView> {
    let id = id.parse::<SubmissionId>().map_err(|_| missing())?;
    calls::review(id).await
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found("Reviews have numbers, and this is none.").into()
}

/// What can be looked at; part of the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tab {
    Changes,
    Order,
    Verdicts,
}

impl Tab {
    const ALL: [Self; 3] = [Self::Changes, Self::Order, Self::Verdicts];

    fn word(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Order => "order",
            Self::Verdicts => "verdicts",
        }
    }

    fn of(word: Option<String>) -> Self {
        Self::ALL.into_iter().find(|tab| Some(tab.word()) == word.as_deref()).unwrap_or(Self::Changes)
    }
}

#[component]
fn Loaded(first: ReviewView) -> impl IntoView {
    let (id, proposal) = (first.submission, first.proposal);
    let title = first.title.clone();
    let feed = Feed::new(first, move || calls::review(id));
    use_live().hear(vec![Topic::Submission(id), Topic::Proposal(proposal), Topic::Targets], NOW, move |_| feed.soon());
    let review = feed.value();

    let query = use_query_map();
    let tab = Memo::new(move |_| Tab::of(query.read().get("tab")));
    let shown = move || match tab.get() {
        Tab::Changes => view! { <changes::Changes review/> }.into_any(),
        Tab::Order => view! { <Order waves=Memo::new(move |_| review.read().waves.clone())/> }.into_any(),
        Tab::Verdicts => view! { <Verdicts verdicts=Memo::new(move |_| review.read().verdicts.clone())/> }.into_any(),
    };
    view! {
        <Title text=format!("Review {id}: {title}")/>
        <Head review/>
        <ProblemNotice problem=feed.problem()/>
        <div class="columns">
            <div class="stack">
                <ul class="card summary">{move || review.read().summary.iter().map(|line| view! { <li>{line.clone()}</li> }).collect_view()}</ul>
                <nav class="tabs" aria-label="What to look at">
                    {Tab::ALL.map(|which| tab_link(which, tab, review)).collect_view()}
                </nav>
                {shown}
            </div>
            <div class="stack">
                <gate::Gate feed/>
            </div>
        </div>
    }
    .into_any()
}

fn tab_link(which: Tab, tab: Memo<Tab>, review: RwSignal<ReviewView>) -> impl IntoView {
    let id = review.read_untracked().submission;
    let label = move || {
        let review = review.read();
        match which {
            Tab::Changes => format!("Changes {}", changes::count(&review.difference)),
            Tab::Order => format!("Order {}", review.waves.len()),
            Tab::Verdicts => format!("Verdicts {}", review.verdicts.len()),
        }
    };
    view! {
        <a
            href=format!("{}?tab={}", places::review(id), which.word())
            data-noscroll
            aria-current=move || (tab.get() == which).then_some("page")
        >
            {label}
        </a>
    }
    .into_any()
}

#[component]
fn Head(review: RwSignal<ReviewView>) -> impl IntoView {
    let risks = move || review.read().risks.iter().map(|risk| risk_pill(*risk)).collect_view();
    let board = move || places::deployment(&review.read().deployment);
    view! {
        <div class="head">
            <div>
                <div class="muted">
                    "Review " {move || review.read().submission.0} " · "
                    <code title=move || format!("Hash of the change: {}\nHash of its effects: {}", review.read().change_hash, review.read().effects_hash)>
                        {move || review.read().change_hash.chars().take(8).collect::<String>()}
                    </code>
                    " on target " {move || review.read().parent.0} " · by " {move || review.read().authors.join(", ")} ", "
                    {move || view! { <Moment at=review.read().at/> }}
                </div>
                <h1>
                    <bdi>{move || review.read().title.clone()}</bdi>
                    " "
                    {move || view! { <ReviewPill state=review.read().state/> }}
                </h1>
            </div>
            <div class="buttons">
                {risks}
                <a class="button small" href=board>{icon(Icon::Deployments)} {move || review.read().deployment.to_string()}</a>
            </div>
        </div>
        {move || (review.read().state == ReviewState::Stale).then(|| view! {
            <div class="notice" data-state="warn" role="status">
                {icon(Icon::Warn)}
                <div>
                    <b>"Planned on an older state"</b>
                    <p>"Something that it rests on changed since. Open the board and submit again: it is planned anew on what is there now."</p>
                </div>
            </div>
        })}
    }
    .into_any()
}

fn risk_pill(risk: Risk) -> impl IntoView {
    let word = match risk {
        Risk::Destructive => "destructive",
        Risk::Rerun => "runs again",
        Risk::Removal => "removes",
        Risk::Move => "moves nodes",
    };
    let colour = if risk == Risk::Rerun { "todo" } else { "warn" };
    view! { <span class="pill" data-state=colour>{icon(if risk == Risk::Rerun { Icon::Again } else { Icon::Warn })} {word}</span> }.into_any()
}

/// What runs after what.
#[component]
fn Order(waves: Memo<Vec<WaveView>>) -> impl IntoView {
    let list = move || {
        let waves = waves.get();
        let most = waves.iter().map(|wave| wave.noderoles).max().unwrap_or(1).max(1);
        waves.into_iter().map(|wave| wave_line(wave, most)).collect_view()
    };
    view! {
        <section class="card" aria-label="Order">
            <header><h2>"Order"</h2> <span class="muted">"what runs together, as far as lanes and nodes allow"</span></header>
            {move || waves.read().is_empty().then(|| view! { <p class="inside muted">"Nothing has to run."</p> })}
            <ol class="waves">{list}</ol>
        </section>
    }
    .into_any()
}

fn wave_line(wave: WaveView, most: usize) -> impl IntoView {
    let share = wave.noderoles * 100 / most;
    view! {
        <li>
            <span class="muted num">{wave.number}</span>
            <div class="items">
                {wave.items.into_iter().map(|item| view! { <span>{item}</span> }).collect_view()}
                <svg class="bar" aria-hidden="true"><rect x="0" y="0" height="100%" width=format!("{share}%")></rect></svg>
            </div>
        </li>
    }
    .into_any()
}

#[component]
fn Verdicts(verdicts: Memo<Vec<VerdictView>>) -> impl IntoView {
    let line = |verdict: VerdictView| {
        let (colour, shape, word) = match verdict.kind {
            VerdictKind::Approve => ("active", Icon::Check, "approved"),
            VerdictKind::RequestChanges => ("warn", Icon::Undo, "asked for changes"),
            VerdictKind::Reject => ("error", Icon::Cross, "rejected"),
        };
        view! {
            <li>
                <span class="line">
                    <b>{verdict.person}</b>
                    <span class="pill" data-state=colour>{icon(shape)} {word}</span>
                    {(!verdict.counts).then(|| view! { <span class="pill flat">"does not count"</span> })}
                    <span class="muted"><Moment at=verdict.at/></span>
                </span>
                {(!verdict.reason.is_empty()).then(|| view! { <p>{verdict.reason}</p> })}
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Verdicts">
            {move || verdicts.read().is_empty().then(|| view! { <p class="inside muted">"Nobody has given a verdict yet."</p> })}
            <ul class="verdicts">{move || verdicts.get().into_iter().map(line).collect_view()}</ul>
        </section>
    }
    .into_any()
}
