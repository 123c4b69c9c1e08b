//! The list of reviews: open ones with the required action, and closed ones with their outcome. It
//! also lists proposals that are not submitted yet, including those on single nodes.

pub mod review;

use api::calls::{Call, List};
use api::listing::{Cursor, Order, Paged, Sort};
use api::live::Topic;
use api::proposals::{ProposalPage, ProposalSort, ProposalSummary, ProposalsQuery};
use api::reviews::ReviewSort;
use api::reviews::{ReviewFilter, ReviewPage, ReviewStateFilter, ReviewsQuery};
use api::reviews::{ReviewState, ReviewSummary};
use engine::counting::many;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::params::ParamsMap;
use serde::{Deserialize, Serialize};

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::list::{ListAddress, columns_of, hidden};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext, with_fields};
use crate::components::{Empty, Icon, icon};
use crate::failure::{Failure, ServerResult};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The content of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListContent {
    Reviews(ReviewStateFilter),
    /// Proposals with edits that are not submitted.
    Drafts,
}

impl ListContent {
    const EVERY: [Self; 5] = [
        Self::Reviews(ReviewStateFilter::Open),
        Self::Drafts,
        Self::Reviews(ReviewStateFilter::Committed),
        Self::Reviews(ReviewStateFilter::Discarded),
        Self::Reviews(ReviewStateFilter::Any),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Reviews(state) => state.as_str(),
            Self::Drafts => "drafts",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Reviews(ReviewStateFilter::Open) => "open",
            Self::Drafts => "not submitted",
            Self::Reviews(ReviewStateFilter::Committed) => "committed",
            Self::Reviews(ReviewStateFilter::Discarded) => "discarded",
            Self::Reviews(ReviewStateFilter::Any) => "all",
        }
    }
}

const STATE: &str = "state";
const INVOLVEMENT: &str = "involvement";

fn state_param(of: ListContent) -> &'static str {
    if of == ListContent::Reviews(ReviewStateFilter::Open) { "" } else { of.as_str() }
}

fn involvement_param(involvement: ReviewFilter) -> &'static str {
    if involvement == ReviewFilter::All { "" } else { involvement.as_str() }
}

/// Parses the list of an address. Unknown values are refused.
fn which(listed: &ListAddress<ReviewSort>) -> Result<(ListContent, ReviewFilter), Failure> {
    let of = listed.one_of(STATE, &ListContent::EVERY, ListContent::as_str)?;
    let involvement = listed.one_of(INVOLVEMENT, &ReviewFilter::EVERY, ReviewFilter::as_str)?;
    Ok((
        of.unwrap_or(ListContent::Reviews(ReviewStateFilter::Open)),
        involvement.unwrap_or_default(),
    ))
}

/// As [`which`], but an unknown value selects the default. The list itself reports the error.
fn shown_list(listed: &ListAddress<ReviewSort>) -> (ListContent, ReviewFilter) {
    let (state, involvement) = (listed.param(STATE), listed.param(INVOLVEMENT));
    let of = ListContent::EVERY
        .into_iter()
        .find(|of| of.as_str() == state)
        .unwrap_or(ListContent::Reviews(ReviewStateFilter::Open));
    (
        of,
        ReviewFilter::EVERY
            .into_iter()
            .find(|each| each.as_str() == involvement)
            .unwrap_or_default(),
    )
}

/// The address of another list with the same deployment and text. Only open reviews can await the
/// reader.
fn other(listed: &ListAddress<ReviewSort>, of: ListContent, involvement: ReviewFilter) -> String {
    let involvement = if involvement == ReviewFilter::ForMe
        && of != ListContent::Reviews(ReviewStateFilter::Open)
    {
        ReviewFilter::All
    } else {
        involvement
    };
    let address = listed
        .without_filters()
        .with_list(STATE, state_param(of))
        .with_list(INVOLVEMENT, involvement_param(involvement));
    with_fields(address, Changes::FIELDS, |name| listed.param(name)).address()
}

/// The order of proposals that corresponds to an order of reviews. Their keys have the same types,
/// so a cursor in one order is valid in the other.
fn proposal_order(order: Order<ReviewSort>) -> Order<ProposalSort> {
    let by = match order.by {
        ReviewSort::Submitted => ProposalSort::Created,
        ReviewSort::Title => ProposalSort::Deployment,
    };
    Order { by, descending: order.descending }
}

fn moved<A: Sort, B: Sort>(place: Option<Cursor>, from: Order<A>, to: Order<B>) -> Option<Cursor> {
    place.and_then(|place| place.keys(from).ok()).map(|keys| Cursor::after_row(to, &keys))
}

columns_of!(Part {
    Change "change" "Change",
    State "state" "State",
    Approvals "approvals" "Approvals",
    By "by" "By",
    Submitted "submitted" "Submitted",
});

/// A row: a review, or a proposal that is not submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Line {
    Review(ReviewSummary),
    Draft(ProposalSummary),
}

/// A page of either list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Page {
    lines: Vec<Line>,
    next: Option<Cursor>,
}

impl Paged for Page {
    type Row = Line;

    fn rows(&self) -> &[Line] {
        &self.lines
    }

    fn next(&self) -> Option<&Cursor> {
        self.next.as_ref()
    }
}

#[derive(Clone, Copy)]
struct Changes;

impl ListPage for Changes {
    type Sort = ReviewSort;
    type Part = Part;
    type Page = Page;
    type Key = (bool, i64);

    const ID: &'static str = "review";
    const NAMES: (&'static str, &'static str) = ("review", "reviews");
    const CURSOR_PARAM: &'static str = "before";
    const FIELDS: &'static [Field] = &[
        Field::text("deployment", "Deployment", "deployment is"),
        Field::text("filter", "Title or name contains", "title or name contains"),
    ];
    const EXTRA_PARAMS: &'static [&'static str] = &[STATE, INVOLVEMENT];
    const NUMBERS: &'static [Part] = &[Part::Approvals];
    const SORTS: &'static [(ReviewSort, &'static str)] =
        &[(ReviewSort::Submitted, "submitted"), (ReviewSort::Title, "title")];
    const TOPICS: &'static [Topic] = &[Topic::Reviews, Topic::Blueprints];
    const API_LIST: List = List::Reviews;

    fn path(self) -> String {
        addresses::REVIEWS.to_owned()
    }

    fn read(self, query: &ParamsMap) -> ListAddress<ReviewSort> {
        let word = |name: &str| query.get(name).unwrap_or_default();
        let default_param = |name: &str, usual: &str| {
            Some(word(name)).filter(|text| text != usual).unwrap_or_default()
        };
        let listed = ListAddress::read(self.path(), query, Self::CURSOR_PARAM)
            .with_list(STATE, &default_param(STATE, ReviewStateFilter::Open.as_str()))
            .with_list(INVOLVEMENT, &default_param(INVOLVEMENT, ReviewFilter::All.as_str()));
        with_fields(listed, Self::FIELDS, word)
    }

    async fn fetch(self, listed: ListAddress<ReviewSort>) -> ServerResult<Page> {
        let (of, involvement) = which(&listed)?;
        let (sort, before) = listed.page_position()?;
        let (deployment, filter) = (listed.param("deployment"), listed.param("filter"));
        match of {
            ListContent::Reviews(state) => {
                let parsed_query = ReviewsQuery {
                    involvement,
                    state,
                    deployment,
                    filter,
                    sort,
                    limit: None,
                    before,
                };
                let page = reviews(parsed_query).await?;
                Ok(Page {
                    lines: page.reviews.into_iter().map(Line::Review).collect(),
                    next: page.next,
                })
            }
            ListContent::Drafts => {
                let (mine, to) = (involvement == ReviewFilter::Mine, proposal_order(sort));
                let before = moved(before, sort, to);
                let parsed_query = ProposalsQuery {
                    mine,
                    drafts: true,
                    deployment,
                    filter,
                    sort: to,
                    limit: None,
                    before,
                };
                let page = proposals(parsed_query).await?;
                let next = moved(page.next, to, sort);
                Ok(Page { lines: page.proposals.into_iter().map(Line::Draft).collect(), next })
            }
        }
    }

    fn sorted_by(column: Part) -> Option<(ReviewSort, bool)> {
        match column {
            Part::Change => Some((ReviewSort::Title, false)),
            Part::Submitted => Some((ReviewSort::Submitted, true)),
            Part::State | Part::Approvals | Part::By => None,
        }
    }

    fn key(line: &Line) -> (bool, i64) {
        match line {
            Line::Review(review) => (true, review.review.0),
            Line::Draft(proposal) => (false, proposal.id.0),
        }
    }

    fn row(self, line: Memo<Line>, with: RowContext<Self>) -> AnyView {
        match line.get_untracked() {
            Line::Review(first) => review(following(line, first, as_review), with),
            Line::Draft(first) => draft(following(line, first, as_draft), with),
        }
    }

    fn api_call(self, listed: &ListAddress<ReviewSort>) -> Call {
        let (of, involvement) = shown_list(listed);
        match of {
            ListContent::Reviews(state) => api::calls::list(List::Reviews, |word| match word {
                "involvement" => Some(involvement_param(involvement).to_owned()),
                "state" => Some(state.as_str().to_owned()),
                word => Some(listed.param(word)),
            }),
            ListContent::Drafts => api::calls::list(List::Proposals, |word| match word {
                "mine" => (involvement == ReviewFilter::Mine).then(|| "true".to_owned()),
                "drafts" => Some("true".to_owned()),
                "sort" => {
                    let order = listed.param(word).parse().unwrap_or_default();
                    Some(proposal_order(order))
                        .filter(|order| !order.is_default())
                        .map(|order| order.to_string())
                }
                word => Some(listed.param(word)),
            }),
        }
    }

    fn nothing(self, listed: &ListAddress<ReviewSort>, next: Option<&Cursor>) -> AnyView {
        nothing(listed, next.is_some())
    }

    fn none(self) -> AnyView {
        empty_state(ListContent::Reviews(ReviewStateFilter::Any))
    }
}

/// The displayed value of a row, while the row keeps its kind. The row's key contains the kind.
fn following<T: Clone + PartialEq + Send + Sync + 'static>(
    line: Memo<Line>,
    first: T,
    of: fn(&Line) -> Option<&T>,
) -> Memo<T> {
    Memo::new(move |_| of(&line.read()).cloned().unwrap_or_else(|| first.clone()))
}

fn as_review(line: &Line) -> Option<&ReviewSummary> {
    if let Line::Review(review) = line { Some(review) } else { None }
}

fn as_draft(line: &Line) -> Option<&ProposalSummary> {
    if let Line::Draft(proposal) = line { Some(proposal) } else { None }
}

#[component]
pub fn Reviews() -> impl IntoView {
    let list = ListOf::new(Changes);
    let listed = list.listed();
    view! {
        <Title text="Reviews"/>
        <div class="head"><h1>"Reviews"</h1></div>
        <div class="filters spread">
            <nav class="buttons" aria-label="Filter by state">
                {move || state_links(&listed.read())}
            </nav>
            <nav class="buttons" aria-label="Filter by person">
                {move || involvement_links(&listed.read())}
            </nav>
        </div>
        {list.view()}
    }
    .into_any()
}

fn link(to: String, word: &'static str, is_current: bool) -> AnyView {
    let current = is_current.then_some("true");
    view! {
        <a class="button small" class:quiet=!is_current href=to aria-current=current>{word}</a>
    }
    .into_any()
}

fn state_links(listed: &ListAddress<ReviewSort>) -> AnyView {
    let (now, involvement) = shown_list(listed);
    let one = |of: ListContent| link(other(listed, of, involvement), of.label(), of == now);
    ListContent::EVERY.map(one).collect_view().into_any()
}

fn involvement_links(listed: &ListAddress<ReviewSort>) -> AnyView {
    let (of, now) = shown_list(listed);
    let one = |(involvement, word): (ReviewFilter, &'static str)| {
        let of = if involvement == ReviewFilter::ForMe {
            ListContent::Reviews(ReviewStateFilter::Open)
        } else {
            of
        };
        link(other(listed, of, involvement), word, involvement == now)
    };
    [
        (ReviewFilter::All, "everyone’s"),
        (ReviewFilter::ForMe, "waiting for me"),
        (ReviewFilter::Mine, "mine"),
    ]
    .map(one)
    .collect_view()
    .into_any()
}

/// The message instead of rows.
fn nothing(listed: &ListAddress<ReviewSort>, has_next: bool) -> AnyView {
    if has_next {
        return view! {
            <Empty icon=Icon::Search title="No matches so far">
                <p>"A search covers a few thousand reviews at a time. Older reviews may match."</p>
            </Empty>
        }
        .into_any();
    }
    let (of, involvement) = shown_list(listed);
    if involvement == ReviewFilter::ForMe && !listed.is_filtered() && listed.cursor().is_none() {
        return view! {
            <Empty icon=Icon::Check title="No reviews wait for you">
                <p>"This list shows the reviews that you can approve, reject or commit now."</p>
            </Empty>
        }
        .into_any();
    }
    let (one, many) = Changes::NAMES;
    if let Some(hidden) = hidden(listed, one, many) {
        return hidden;
    }
    if involvement != ReviewFilter::All {
        let to = other(listed, of, ReviewFilter::All);
        let word = if of == ListContent::Reviews(ReviewStateFilter::Any) {
            "Show all".to_owned()
        } else {
            format!("Show all ({})", of.label())
        };
        return view! {
            <Empty icon=Icon::Search title="No matches"><a class="button" href=to>{word}</a></Empty>
        }
        .into_any();
    }
    empty_state(of)
}

fn empty_state(of: ListContent) -> AnyView {
    let (title, text) = match of {
        ListContent::Reviews(ReviewStateFilter::Open) => (
            "No open reviews",
            "Propose changes on a deployment's board and submit them. They wait here for another \
             person's approval.",
        ),
        ListContent::Reviews(ReviewStateFilter::Committed) => {
            ("No committed reviews yet", "Committed reviews are listed here.")
        }
        ListContent::Reviews(ReviewStateFilter::Discarded) => {
            ("No discarded reviews", "Reviews of discarded proposals are listed here.")
        }
        ListContent::Reviews(ReviewStateFilter::Any) => (
            "No reviews yet",
            "Propose changes on a deployment's board and submit them. They wait here for another \
             person's approval.",
        ),
        ListContent::Drafts => (
            "No proposals to submit",
            "Open proposals with edits that are not submitted are listed here.",
        ),
    };
    view! {
        <Empty icon=Icon::Review title=title>
            <p>{text}</p>
            <a class="button" href=addresses::DEPLOYMENTS>"Open deployments"</a>
        </Empty>
    }
    .into_any()
}

fn review(review: Memo<ReviewSummary>, with: RowContext<Changes>) -> AnyView {
    let id = review.read_untracked().review;
    let approvals = view! {
        {move || review.read().approvals.valid} " of " {move || review.read().approvals.required}
    };
    view! {
        <tr>
            <td>
                <div>
                    <a class="main" href=addresses::review(id)>
                        <bdi>{move || review.read().title.clone()}</bdi>
                    </a>
                    <div class="muted">
                        {id.0} " on " {move || scope(&review.read())} ": "
                        {move || review.read().summary.clone()}
                    </div>
                </div>
            </td>
            {with.cell(Part::State, "", move || view! { <ReviewPill state=review.read().state/> })}
            {with.cell(Part::Approvals, "", approvals)}
            {with.cell(Part::By, "", move || review.read().authors.join(", "))}
            {with.cell(Part::Submitted, "muted", move || view! { <TimeText at=review.read().at/> })}
        </tr>
    }
    .into_any()
}

/// The row of a proposal that is not submitted. Its cells name the missing parts.
fn draft(proposal: Memo<ProposalSummary>, with: RowContext<Changes>) -> AnyView {
    let by = move || match proposal.read().authors.join(", ") {
        nobody if nobody.is_empty() => "no one yet".to_owned(),
        authors => authors,
    };
    let edits = move || many(proposal.read().edits, "edit");
    let change = move || {
        let proposal = proposal.read();
        let (to, on) = edit_address(&proposal);
        view! {
            <a class="main" href=to>{on}</a>
            <div class="muted">"proposal " {proposal.id.0} ", version " {proposal.version}</div>
        }
    };
    view! {
        <tr>
            <td><div>{change}</div></td>
            {with.cell(Part::State, "", edits)}
            {with.cell(Part::Approvals, "muted", "none yet")}
            {with.cell(Part::By, "", by)}
            {with.cell(Part::Submitted, "muted", "not yet")}
        </tr>
    }
    .into_any()
}

/// The address of the page that edits a proposal, and the proposal's scope.
fn edit_address(proposal: &ProposalSummary) -> (String, String) {
    let deployment = &proposal.scope.deployment;
    match &proposal.scope.node {
        Some(node) => {
            (addresses::proposal(proposal.id), format!("node {} only, in {deployment}", node.fqdn))
        }
        None => (addresses::deployment(deployment), deployment.to_string()),
    }
}

/// The scope of a review: a deployment or one node.
fn scope(review: &ReviewSummary) -> String {
    match &review.fqdn {
        Some(node) => format!("node {node} only, in {}", review.deployment),
        None => review.deployment.to_string(),
    }
}

#[component]
pub fn ReviewPill(state: ReviewState) -> impl IntoView {
    let (color, shape, word) = match state {
        ReviewState::Waiting => ("warn", Icon::Review, "waiting for review"),
        ReviewState::Open => ("active", Icon::Check, "ready to commit"),
        ReviewState::ChangesRequested => ("error", Icon::Cross, "changes requested"),
        ReviewState::Invalid => ("error", Icon::Error, "has errors"),
        ReviewState::ThreadsOpen => ("warn", Icon::Talk, "has open threads"),
        ReviewState::Stale => ("warn", Icon::Lost, "stale"),
        ReviewState::Replaced => ("blocked", Icon::Redo, "replaced"),
        ReviewState::SentBack => ("warn", Icon::Undo, "returned to its authors"),
        ReviewState::Committed => ("active", Icon::Active, "committed"),
        ReviewState::Discarded => ("blocked", Icon::Delete, "discarded"),
    };
    view! { <span class="pill" data-state=color>{icon(shape)} {word}</span> }.into_any()
}

#[server(
    name = ReadReviews,
    prefix = "/call",
    endpoint = "reviews",
    input = AsJson,
    output = AsJson
)]
pub async fn reviews(query: ReviewsQuery) -> ServerResult<ReviewPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.reviews(&actor, &query).await).await
}

#[server(
    name = ReadProposals,
    prefix = "/call",
    endpoint = "proposals",
    input = AsJson,
    output = AsJson
)]
pub async fn proposals(query: ProposalsQuery) -> ServerResult<ProposalPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.proposals(&actor, &query).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[(&str, &str)]) -> ListAddress<ReviewSort> {
        let mut query = ParamsMap::new();
        for (name, value) in words {
            query.insert((*name).to_owned(), (*value).to_owned());
        }
        Changes.read(&query)
    }

    #[test]
    fn review_list_round_trips_through_address() {
        let plain = read(&[("state", "open"), ("involvement", "all")]);
        assert_eq!(
            which(&plain).unwrap(),
            (ListContent::Reviews(ReviewStateFilter::Open), ReviewFilter::All)
        );
        assert_eq!(plain.address(), "/reviews");
        let query = [
            ("state", "committed"),
            ("involvement", "mine"),
            ("deployment", "web"),
            ("filter", "a+b"),
            ("before", "7"),
        ];
        let parsed_query = read(&query);
        assert_eq!(
            parsed_query.address(),
            "/reviews?state=committed&involvement=mine&deployment=web&filter=a%2Bb&before=7"
        );
        assert_eq!(
            parsed_query.first(),
            "/reviews?state=committed&involvement=mine&deployment=web&filter=a%2Bb"
        );
        assert_eq!(
            parsed_query.all(),
            "/reviews?state=committed&involvement=mine",
            "the state is a parameter of its own"
        );
        assert_eq!(which(&read(&[("state", "drafts")])).unwrap().0, ListContent::Drafts);
        assert_eq!(
            other(&read(&[]), ListContent::Drafts, ReviewFilter::All),
            addresses::DRAFTS,
            "drafts have their own address"
        );
        let odd = read(&[("state", "nowhere"), ("filter", "x")]);
        assert!(which(&odd).is_err_and(|odd| odd.0.detail.contains("Use one of: open, drafts")));
        assert_eq!(odd.param("filter"), "x", "valid parameters are kept");
    }

    #[test]
    fn only_open_reviews_await_a_person() {
        let for_me = read(&[("involvement", "for_me")]);
        assert_eq!(
            other(&for_me, ListContent::Reviews(ReviewStateFilter::Committed), ReviewFilter::ForMe),
            "/reviews?state=committed"
        );
        assert_eq!(
            other(&for_me, ListContent::Drafts, ReviewFilter::Mine),
            "/reviews?state=drafts&involvement=mine"
        );
    }

    #[test]
    fn equivalent_command_has_every_parameter() {
        let curl = |words: &[(&str, &str)]| Changes.api_call(&read(words)).curl();
        let reviews = curl(&[("state", "committed"), ("filter", "x"), ("sort", "title")]);
        for word in ["state=committed", "filter=x", "sort=title"] {
            assert!(reviews.contains(word), "{word}: {reviews}");
        }
        let drafts = curl(&[
            ("state", "drafts"),
            ("involvement", "mine"),
            ("filter", "x"),
            ("sort", "-title"),
        ]);
        for word in ["/proposals?", "mine=true", "drafts=true", "filter=x", "sort=-deployment"] {
            assert!(drafts.contains(word), "{word}: {drafts}");
        }
    }

    #[test]
    fn cursor_converts_between_reviews_and_proposals() {
        let (from, to) =
            (Order::ascending(ReviewSort::Title), Order::ascending(ProposalSort::Deployment));
        assert_eq!(proposal_order(from), to);
        let place = Some(Cursor::from("title~-web~-7".to_owned()));
        let converted = moved(place.clone(), from, to);
        assert_eq!(converted.as_ref().map(Cursor::as_str), Some("deployment~-web~-7"));
        assert_eq!(moved(converted, to, from), place);
    }
}
