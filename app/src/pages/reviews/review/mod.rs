//! The page of a review: the changes, the approval policy and the discussion.

mod changes;
mod checks;
mod discussion;
mod effects;
mod facts;
mod files;
mod gate;
mod moved;
mod noderole;
mod planned;
pub mod server_functions;
mod viewed;
mod waves;

use std::future::ready;
use std::sync::Arc;

use api::live::Topic;
use api::reviews::{
    ChangesSinceView, Discussion, ReviewState, ReviewView, ReviewedNoderole, ViewedChanges,
};
use api::views::graph::GraphView;
use engine::blueprint::Anchor;
use engine::counting::many;
use engine::gate::Risk;
use engine::ids::ReviewId;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};
use leptos_router::location::Url;

pub(in crate::pages) use changes::{Changed, differs};
pub(crate) use moved::reasons;
pub(crate) use planned::ReportResult;

use super::ReviewPill;
use crate::addresses;
use crate::clock::TimeText;
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, icon, load_one, load_part,
    loading_text, warnings,
};
use crate::failure::{Failure, ServerResult};
use crate::graph::Graph;
use crate::graph::address::Address;
use crate::live::{NOW, use_live};
use crate::piece;

piece::pieces! {
    reviewed_noderole(first: ReviewedNoderole) noderole::opened(first);
    review_details(
        which: Detail,
        review: RwSignal<ReviewView>,
        report: Resource<ReportResult>
    ) which.view(review, report);
    review_discussion(
        review: Feed<ReviewView>,
        discussion: Feed<Discussion>,
        about: Memo<Option<Anchor>>
    ) discussion::discussion(review, discussion, about);
    review_graph(
        first: GraphView,
        id: ReviewId,
        address: Memo<Address>
    ) graph_of(first, id, address);
}

/// A review, by the number in the address.
#[component]
pub fn ReviewPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let query = use_query_map();
    let tab = Memo::new(move |_| Tab::of(query.read().get("tab")));
    let address = Memo::new(move |_| {
        let path = format!("{}/{}", addresses::REVIEWS, addresses::encoded(&id.get()));
        Address::of(path, Some(("tab", Tab::Graph.label())), &query.read())
    });
    // An invalid anchor selects the first page.
    let after = Memo::new(move |_| {
        query.read().get("after").and_then(|after| after.parse::<Anchor>().ok())
    });
    let review = Resource::new(move || (id.get(), after.get()), |(id, after)| by_text(id, after));
    // Created here and not where it is displayed: see `Frame`.
    let graph = Resource::new(
        move || (id.get(), tab.get() == Tab::Graph),
        move |(id, is_shown)| {
            let request = address.get_untracked().options;
            async move {
                match id.parse::<ReviewId>() {
                    Ok(id) if is_shown => {
                        server_functions::review_graph(id, request).await.map(Some)
                    }
                    _ => Ok(None),
                }
            }
        },
    );
    let report = Resource::new(
        move || (id.get(), tab.get() == Tab::Checks),
        |(id, is_shown)| async move {
            match id.parse::<ReviewId>() {
                Ok(id) if is_shown => server_functions::review_report(id).await,
                _ => Ok(None),
            }
        },
    );
    load_one(
        review,
        (addresses::REVIEWS, "All reviews"),
        move |first| view! { <Loaded first after=after.get_untracked() tab address graph report/> },
    )
}

/// The data of the page: a review, its discussion, the changes since the reader's last view, and
/// the viewed changes.
type ReviewData = (ReviewView, Discussion, ChangesSinceView, ViewedChanges);

async fn by_text(id: String, after: Option<Anchor>) -> ServerResult<ReviewData> {
    let id = id.parse::<ReviewId>().map_err(|_| missing())?;
    let review = server_functions::review(id, after).await?;
    Ok((
        review,
        server_functions::discussion(id).await?,
        server_functions::changes_since_view(id).await?,
        server_functions::viewed_changes(id).await?,
    ))
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found(
        "Review not found: the address must end with a review number, such as 12. \
         Open the list of reviews.",
    )
    .into()
}

/// A tab, which is part of the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tab {
    Changes,
    Since,
    Effects,
    Graph,
    Waves,
    Checks,
    Discussion,
}

impl Tab {
    const ALL: [Self; 7] = [
        Self::Changes,
        Self::Since,
        Self::Effects,
        Self::Graph,
        Self::Waves,
        Self::Checks,
        Self::Discussion,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Since => "since",
            Self::Effects => "effects",
            Self::Graph => "graph",
            Self::Waves => "waves",
            Self::Checks => "checks",
            Self::Discussion => "discussion",
        }
    }

    fn of(word: Option<String>) -> Self {
        Self::ALL
            .into_iter()
            .find(|tab| Some(tab.label()) == word.as_deref())
            .unwrap_or(Self::Changes)
    }
}

/// A tab that a first visit does not load.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Detail {
    Effects,
    Waves,
    Checks,
}

impl Detail {
    pub(crate) fn view(
        self,
        review: RwSignal<ReviewView>,
        report: Resource<ReportResult>,
    ) -> AnyView {
        match self {
            Self::Effects => view! { <effects::Effects review/> }.into_any(),
            Self::Waves => {
                view! { <waves::Waves found=Memo::new(move |_| review.read().impact.clone())/> }
                    .into_any()
            }
            Self::Checks => {
                view! { <checks::Checks review/> <planned::Planned report/> }.into_any()
            }
        }
    }
}

#[component]
fn Details(
    which: Detail,
    review: RwSignal<ReviewView>,
    report: Resource<ReportResult>,
) -> impl IntoView {
    loading_piece(move || Suspend::new(review_details::shown(which, review, report)))
}

/// A piece, and a text until it is loaded.
fn loading_piece<V: IntoView + 'static>(body: impl Fn() -> V + Send + Sync + 'static) -> AnyView {
    let body = Arc::new(body);
    let shown = move || {
        let body = body.clone();
        move || body()
    };
    view! {
        <Transition fallback=|| view! { <p class="padded muted" role="status">"Loading"</p> }>
            {shown()}
        </Transition>
    }
    .into_any()
}

/// Whether an address opens the discussion.
pub(crate) fn has_discussion_tab(address: &Url) -> bool {
    Tab::of(address.search_params().get("tab")) == Tab::Discussion
}

/// Whether an address opens one of these tabs.
pub(crate) fn has_details_tab(address: &Url) -> bool {
    matches!(Tab::of(address.search_params().get("tab")), Tab::Effects | Tab::Waves | Tab::Checks)
}

#[component]
fn Loaded(
    first: ReviewData,
    /// The document after which the page starts. `None`: the first page.
    after: Option<Anchor>,
    tab: Memo<Tab>,
    address: Memo<Address>,
    graph: Resource<GraphResult>,
    report: Resource<ReportResult>,
) -> impl IntoView {
    let (first, message, since, marked) = first;
    let (id, proposal) = (first.review, first.proposal);
    let title = first.title.clone();
    let begins = after.clone();
    let feed = Feed::new(first, move || server_functions::review(id, begins.clone()));
    let discussion = Feed::new(message, move || server_functions::discussion(id));
    use_live().subscribe(
        vec![Topic::Review(id), Topic::Proposal(proposal), Topic::Blueprints],
        NOW,
        move |_| {
            feed.soon();
            discussion.soon();
        },
    );
    let review = feed.value();
    record_view(id);

    let query = use_query_map();
    let about = Memo::new(move |_| query.read().get("about")?.parse::<Anchor>().ok());
    let comment_links = changes::CommentLinks::of(id, discussion);
    let marks = viewed::Marks::of(id, marked, changes::cards(&review.read_untracked()));
    let since = StoredValue::new(since);
    let shown = move || match tab.get() {
        Tab::Changes => {
            let difference = review.read_untracked().difference.clone();
            let pages = pages(&review.read_untracked(), after.is_some());
            view! {
                <changes::Changes review difference comment_links=Some(comment_links) marks/>
                {pages}
            }
            .into_any()
        }
        Tab::Since => view! { <Since review since=since.get_value()/> }.into_any(),
        Tab::Graph => view! { <ChangeGraph id graph address/> }.into_any(),
        Tab::Effects => view! { <Details which=Detail::Effects review report/> }.into_any(),
        Tab::Waves => view! { <Details which=Detail::Waves review report/> }.into_any(),
        Tab::Checks => view! { <Details which=Detail::Checks review report/> }.into_any(),
        Tab::Discussion => {
            let body = move || Suspend::new(review_discussion::shown(feed, discussion, about));
            loading_piece(body).into_any()
        }
    };
    let tabs = Tab::ALL
        .into_iter()
        .filter(|tab| *tab != Tab::Since || since.with_value(|since| since.before.is_some()));
    view! {
        <Title text=format!("Review {id}: {title}")/>
        <Head review/>
        <moved::Moved review/>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        {since_notice(id, &since.get_value())}
        // A review never changes, so these do not change either.
        {review.read_untracked().not_restored.clone().map(warnings::not_restored)}
        {warnings::clashes(&review.read_untracked().clashes)}
        {warnings::hidden_characters(&review.read_untracked().hidden_characters)}
        <div class="columns">
            <div class="stack">
                <facts::Facts review/>
                <div class="tabs-line">
                    <nav class="tabs" aria-label="Review sections">
                        {tabs.map(|which| tab_link(which, tab, review, discussion)).collect_view()}
                    </nav>
                    {viewed::viewed_count(marks, review.read_untracked().more > 0)}
                </div>
                {move || shown()}
            </div>
            <div class="stack gate">
                <gate::Gate feed/>
            </div>
        </div>
    }
    .into_any()
}

/// Links to the other pages of documents.
fn pages(review: &ReviewView, is_later: bool) -> AnyView {
    if review.more == 0 {
        return ().into_any();
    }
    let (first, shown) = (addresses::review(review.review), review.difference.documents().count());
    let next = review
        .next
        .as_ref()
        .map(|last| format!("{first}?after={}", addresses::encoded(&last.to_string())));
    view! {
        <nav class="pager card" aria-label="Pages of the changes">
            {is_later.then(|| view! {
                <a class="button small" href=first.clone()>{icon(Icon::Up)} "First"</a>
            })}
            <span class="muted">
                {many(shown, "document")} " on this page, " {shown + review.more} " in total"
            </span>
            <span class="grow"></span>
            {next.map(|next| view! {
                <a class="button small" href=next>"Next" {icon(Icon::Right)}</a>
            })}
        </nav>
    }
    .into_any()
}

/// Records that this person viewed this version, so that the next one can be compared with it.
fn record_view(id: ReviewId) {
    Effect::new(move |_| {
        leptos::task::spawn_local(async move {
            // A failure only costs a later comparison.
            let _ = server_functions::record_view(id).await;
        });
    });
}

fn since_notice(id: ReviewId, since: &ChangesSinceView) -> impl IntoView + use<> {
    let before = since.before?;
    let text = match since.same_effect {
        true => "Gantry planned the change again, and its effect is exactly the same.".to_owned(),
        false => format!("Changed since then: {}.", Changed::of(&since.difference, since.more)),
    };
    let link = format!("{}?tab=since", addresses::review(id));
    Some(view! {
        <div class="notice" data-state="todo" role="status">
            {icon(Icon::Rerun)}
            <div>
                <b>
                    "You viewed " <a href=addresses::review(before)>"review " {before.0}</a>
                    " of this change before"
                </b>
                <p>{text} " " <a href=link data-noscroll>"Show the differences"</a></p>
            </div>
        </div>
    })
}

#[component]
fn Since(review: RwSignal<ReviewView>, since: ChangesSinceView) -> impl IntoView {
    if since.difference.is_empty() {
        return view! {
            <p class="card padded muted">
                "The effect is the same as in the version that you viewed before."
            </p>
        }
        .into_any();
    }
    let more = (since.more > 0).then(|| {
        view! {
            <p class="card padded muted">
                "Not shown: " {many(since.more, "document")} ". See "
                <code>"/api/v1/reviews/" {since.review.0} "/since"</code> "."
            </p>
        }
    });
    view! {
        <changes::Changes review
            difference=since.difference
            noderoles=since.noderoles
            versions=(since.contents, since.pins)
            comment_links=None
        />
        {more}
    }
    .into_any()
}

type GraphResult = ServerResult<Option<GraphView>>;

/// The changes and their direct neighbors, as a graph.
#[component]
fn ChangeGraph(
    id: ReviewId,
    graph: Resource<GraphResult>,
    address: Memo<Address>,
) -> impl IntoView {
    let show = move |found: Option<GraphView>| async move {
        match found {
            Some(first) => review_graph::shown(first, id, address).await,
            None => ().into_any(),
        }
    };
    let show_error = |problem| ready(view! { <ProblemNotice problem=Some(problem)/> }.into_any());
    load_part(graph, loading_text, show, show_error)
}

/// The graph, once it is loaded.
pub(crate) fn graph_of(first: GraphView, id: ReviewId, address: Memo<Address>) -> impl IntoView {
    let feed = Feed::new(first, move || {
        server_functions::review_graph(id, address.get_untracked().options)
    });
    view! {
        <Graph feed address/>
        <EquivalentCommands
            of=move |_: FormValues| vec![api::calls::review_graph(id, &address.read().options)]
        />
    }
}

/// Whether an address opens the graph.
pub(crate) fn has_graph_tab(address: &Url) -> bool {
    Tab::of(address.search_params().get("tab")) == Tab::Graph
}

fn tab_link(
    which: Tab,
    tab: Memo<Tab>,
    review: RwSignal<ReviewView>,
    discussion: Feed<Discussion>,
) -> impl IntoView {
    let id = review.read_untracked().review;
    let label = move || {
        let review = review.read();
        match which {
            // No count: the lines above the tabs contain it.
            Tab::Changes => "Changes".to_owned(),
            Tab::Since => "Since your last view".to_owned(),
            Tab::Graph => "Graph".to_owned(),
            Tab::Effects => "Impact".to_owned(),
            Tab::Waves => format!("Waves {}", review.impact.wave_count()),
            // A closed review has no open checks.
            Tab::Checks => match review.gate.rules.iter().filter(|rule| !rule.passes).count() {
                broken if broken > 0 && !gate::is_closed(review.state) => {
                    format!("Checks {broken} open")
                }
                _ => "Checks".to_owned(),
            },
            Tab::Discussion => match discussion.value().read().open {
                0 => "Discussion".to_owned(),
                open => format!("Discussion {open} open"),
            },
        }
    };
    view! {
        <a
            href=format!("{}?tab={}", addresses::review(id), which.label())
            data-noscroll
            aria-current=move || (tab.get() == which).then_some("page")
        >
            {move || label()}
        </a>
    }
    .into_any()
}

#[component]
fn Head(review: RwSignal<ReviewView>) -> impl IntoView {
    let risks = move || review.read().risks.iter().map(|risk| risk_pill(*risk)).collect_view();
    let board = move || addresses::deployment(&review.read().deployment);
    view! {
        <div class="head">
            <div>
                <div class="muted">
                    "Review " {move || review.read().review.0} " · "
                    <code
                        title=move || format!("Hash of the change: {}\nHash of its effects: \
                            {}", review.read().change_hash, review.read().effects_hash)
                    >
                        {move || review.read().change_hash.chars().take(8).collect::<String>()}
                    </code>
                    " on blueprint " {move || review.read().parent.0} " · by " {
                        move || review.read().authors.join(", ")
                    } ", "
                    {move || view! { <TimeText at=review.read().at/> }}
                </div>
                <h1>
                    <bdi>{move || review.read().title.clone()}</bdi>
                    " "
                    {move || view! { <ReviewPill state=review.read().state/> }}
                </h1>
            </div>
            <div class="buttons">
                {move || review.read().fqdn.clone().map(|node| view! {
                    <span class="pill flat">"node " {node} " only"</span>
                })}
                {move || risks()}
                <a class="button small" href=board>
                    {icon(Icon::Deployments)} {move || review.read().deployment.to_string()}
                </a>
            </div>
        </div>
        <EquivalentCommands
            of=move |_: FormValues| vec![api::calls::show_review(review.read().review)]
        />
        {move || (review.read().state == ReviewState::Stale).then(|| view! {
            <div class="notice" data-state="warn" role="status">
                {icon(Icon::Warn)}
                <div>
                    <b>"Planned on an older state"</b>
                    <p>
                        "The base of this review changed, and the gate names the change. After \
                         another commit, Gantry plans the review again automatically. Otherwise an \
                         author must submit it again on the board."
                    </p>
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
        Risk::Move => "moves",
        Risk::Halt => "turns off",
        Risk::Secret => "secrets",
        Risk::Connection => "changes a connection",
    };
    let color = if risk == Risk::Rerun { "todo" } else { "warn" };
    view! {
        <span class="pill" data-state=color>
            {icon(if risk == Risk::Rerun { Icon::Rerun } else { Icon::Warn })} {word}
        </span>
    }
    .into_any()
}
