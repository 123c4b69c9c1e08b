//! The list of reviews: what waits, for whom, and what became of the others; and the open proposals that nobody submitted yet, those on
//! single nodes among them.

use api::calls::Call;
use api::console::{ProposalSummary, ReviewState, ReviewSummary};
use api::listing::{Cursor, ReviewSort};
use api::live::Topic;
use api::reviews::{Fate, ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted, Whose};
use engine::ids::ProposalId;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;
use serde::{Deserialize, Serialize};

use crate::calls;
use crate::clock::Moment;
use crate::failure::{Answer, Failure};
use crate::live::{NOW, use_live};
use crate::parts::list::{
    Column, Listed, Shown, columns, filters, head, hidden, one_of, pager, plain_head, text_field,
};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, Same, Typed, icon, load, rows};
use crate::places;

/// What the list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Reviews(Fate),
    /// Proposals that were not submitted as they are.
    Drafts,
}

impl Of {
    const EVERY: [Self; 5] = [
        Self::Reviews(Fate::Open),
        Self::Drafts,
        Self::Reviews(Fate::Committed),
        Self::Reviews(Fate::Discarded),
        Self::Reviews(Fate::Any),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Reviews(fate) => fate.as_str(),
            Self::Drafts => "drafts",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Reviews(Fate::Open) => "open",
            Self::Drafts => "not submitted",
            Self::Reviews(Fate::Committed) => "committed",
            Self::Reviews(Fate::Discarded) => "discarded",
            Self::Reviews(Fate::Any) => "all",
        }
    }
}

/// What the list is asked for; part of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    of: Of,
    whose: Whose,
    deployment: String,
    text: String,
    listed: Listed<ReviewSort>,
    /// A word of the address that says nothing here.
    odd: Option<Failure>,
}

const SORTS: &[(ReviewSort, &str)] = &[(ReviewSort::Submitted, "submitted"), (ReviewSort::Title, "title")];

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Change,
    State,
    Approvals,
    By,
    Submitted,
}

impl Column for Part {
    const EVERY: &'static [Self] = &[Self::Change, Self::State, Self::Approvals, Self::By, Self::Submitted];

    fn as_str(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::State => "state",
            Self::Approvals => "approvals",
            Self::By => "by",
            Self::Submitted => "submitted",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Change => "Change",
            Self::State => "State",
            Self::Approvals => "Approvals",
            Self::By => "By",
            Self::Submitted => "Submitted",
        }
    }
}

impl Wanted {
    /// What an address asks for.
    fn read(query: &ParamsMap) -> Self {
        let word = |name: &str| query.get(name).unwrap_or_default();
        let of = one_of("state", &word("state"), &Of::EVERY, Of::as_str);
        let whose = one_of("whose", &word("whose"), &Whose::EVERY, Whose::as_str);
        let odd = of.as_ref().err().or(whose.as_ref().err()).cloned();
        let of = of.ok().flatten().unwrap_or(Of::Reviews(Fate::Open));
        let whose = whose.ok().flatten().unwrap_or_default();
        let listed = Listed::read(places::REVIEWS, query, "before");
        Self { odd, ..Self::of(of, whose, word("deployment"), word("text"), listed) }
    }

    fn of(of: Of, whose: Whose, deployment: String, text: String, listed: Listed<ReviewSort>) -> Self {
        let listed = listed
            .kept("state", if of == Of::Reviews(Fate::Open) { "" } else { of.as_str() })
            .kept("whose", if whose == Whose::All { "" } else { whose.as_str() })
            .asked("deployment", "deployment is", &deployment)
            .asked("text", "title contains", &text);
        Self { of, whose, deployment, text, listed, odd: None }
    }

    fn address(&self) -> String {
        self.listed.address()
    }

    /// Another list of the same deployment and text. Only what is open waits for somebody.
    fn other(&self, of: Of, whose: Whose) -> Self {
        let whose = if whose == Whose::ForMe && of != Of::Reviews(Fate::Open) { Whose::All } else { whose };
        Self::of(of, whose, self.deployment.clone(), self.text.clone(), self.listed.bare())
    }

    /// The same, asked by command.
    fn call(&self) -> Call {
        let is_mine = self.whose == Whose::Mine;
        match self.of {
            Of::Reviews(fate) => api::calls::list(api::calls::List::Reviews, |word| match word {
                "whose" => (self.whose != Whose::All).then(|| self.whose.as_str().to_owned()),
                "fate" => Some(fate.as_str().to_owned()),
                "deployment" => Some(self.deployment.clone()),
                "text" => Some(self.text.clone()),
                _ => None,
            }),
            Of::Drafts => api::calls::list(api::calls::List::Proposals, |word| match word {
                "mine" => is_mine.then(|| "true".to_owned()),
                "drafts" => Some("true".to_owned()),
                "deployment" => Some(self.deployment.clone()),
                _ => None,
            }),
        }
    }
}

/// What is asked for, when it is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Page {
    Reviews(ReviewPage),
    Drafts(ProposalPage),
}

async fn fetch(wanted: Wanted) -> Answer<Page> {
    let Wanted { of, whose, deployment, text, listed, odd } = wanted;
    if let Some(odd) = odd {
        return Err(odd);
    }
    match of {
        Of::Reviews(fate) => {
            let (sort, before) = (listed.order()?, listed.place());
            calls::reviews(ReviewsWanted { whose, fate, deployment, text, sort, before }).await.map(Page::Reviews)
        }
        Of::Drafts => {
            let before = listed.place().and_then(|place| place.as_str().parse().ok()).map(ProposalId);
            let mine = whose == Whose::Mine;
            calls::proposals(ProposalsWanted { mine, drafts: true, deployment, before }).await.map(Page::Drafts)
        }
    }
}

/// The list of reviews.
#[component]
pub fn Reviews() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        Wanted::read(&query)
    });
    let listed = Memo::new(move |_| wanted.read().listed.clone());
    let page = Resource::new(move || wanted.get(), fetch);
    let kept = move || {
        let wanted = wanted.read();
        let state = (wanted.of != Of::Reviews(Fate::Open))
            .then(|| view! { <input type="hidden" name="state" value=wanted.of.as_str()/> });
        let whose = (wanted.whose != Whose::All)
            .then(|| view! { <input type="hidden" name="whose" value=wanted.whose.as_str()/> });
        (state, whose)
    };
    let deployment = Signal::derive(move || wanted.read().deployment.clone());
    let text = Signal::derive(move || wanted.read().text.clone());
    let fields = (
        kept,
        text_field("review-deployment", "deployment", "Deployment", deployment),
        view! {
            <div class="within" hidden=move || wanted.read().of == Of::Drafts>
                {text_field("review-text", "text", "Title contains", text)}
            </div>
        },
    );
    view! {
        <Title text="Reviews"/>
        <div class="head"><h1>"Reviews"</h1></div>
        <div class="filters spread">
            <nav class="buttons" aria-label="Filter by what became of them">{move || fates(&wanted.get())}</nav>
            <nav class="buttons" aria-label="Filter by whose they are">{move || whose(&wanted.get())}</nav>
        </div>
        {filters(listed, SORTS, fields)}
        {columns::<_, Part>(listed)}
        {load(page, move |first| match first {
            Page::Reviews(first) => view! { <List first wanted=wanted.get_untracked()/> }.into_any(),
            Page::Drafts(first) => view! { <Drafts first wanted=wanted.get_untracked()/> }.into_any(),
        })}
        <Same of=move |_: Typed| vec![wanted.read().call()]/>
    }
    .into_any()
}

fn link(to: Wanted, word: &'static str, is_here: bool) -> AnyView {
    let current = is_here.then_some("true");
    view! { <a class="button small" class:quiet=!is_here href=to.address() aria-current=current>{word}</a> }.into_any()
}

fn fates(wanted: &Wanted) -> AnyView {
    let one = |of: Of| link(wanted.other(of, wanted.whose), of.word(), of == wanted.of);
    Of::EVERY.map(one).collect_view().into_any()
}

fn whose(wanted: &Wanted) -> AnyView {
    let one = |(whose, word): (Whose, &'static str)| {
        let of = if whose == Whose::ForMe { Of::Reviews(Fate::Open) } else { wanted.of };
        link(wanted.other(of, whose), word, whose == wanted.whose)
    };
    [(Whose::All, "everybody’s"), (Whose::ForMe, "waiting for me"), (Whose::Mine, "mine")]
        .map(one)
        .collect_view()
        .into_any()
}

/// What stands where no row is.
fn nothing(wanted: &Wanted, has_next: bool) -> AnyView {
    if has_next {
        return view! {
            <Empty icon=Icon::Search title="Nothing here so far">
                <p>"A search looks through a few thousand reviews at a time. Older ones may fit."</p>
            </Empty>
        }
        .into_any();
    }
    if wanted.whose == Whose::ForMe && wanted.deployment.is_empty() && wanted.text.is_empty() {
        return view! {
            <Empty icon=Icon::Check title="Nothing waits for you">
                <p>"Here are the reviews that you could judge or commit at this moment."</p>
            </Empty>
        }
        .into_any();
    }
    if let Some(hidden) = hidden(&wanted.listed, "review", "of them") {
        return hidden;
    }
    if wanted.whose != Whose::All {
        let all = wanted.other(wanted.of, Whose::All);
        let (to, word) = (all.address(), format!("All that are {}", all.of.word()));
        let word = if all.of == Of::Reviews(Fate::Any) { "All".to_owned() } else { word };
        return view! { <Empty icon=Icon::Search title="None fits"><a class="button" href=to>{word}</a></Empty> }
            .into_any();
    }
    let (title, said) = match wanted.of {
        Of::Reviews(Fate::Open) => (
            "No review is open",
            "Propose changes on a deployment's board and submit them; they wait here for somebody else's approval.",
        ),
        Of::Reviews(Fate::Committed) => {
            ("Nothing was committed yet", "What was approved and committed is listed here.")
        }
        Of::Reviews(Fate::Discarded) => ("Nothing was discarded", "Reviews of discarded proposals are listed here."),
        Of::Reviews(Fate::Any) => (
            "Nothing was submitted yet",
            "Propose changes on a deployment's board and submit them; they wait here for somebody else's approval.",
        ),
        Of::Drafts => {
            ("No proposal waits to be submitted", "Proposals that are open and not submitted as they are stand here.")
        }
    };
    view! {
        <Empty icon=Icon::Review title=title>
            <p>{said}</p>
            <a class="button" href=places::DEPLOYMENTS>"Deployments"</a>
        </Empty>
    }
    .into_any()
}

#[component]
fn List(first: ReviewPage, wanted: Wanted) -> impl IntoView {
    let asked = wanted.clone();
    let feed = Feed::new(first, move || {
        let asked = asked.clone();
        async move {
            let page = fetch(asked).await?;
            Ok(if let Page::Reviews(page) = page { page } else { ReviewPage::default() })
        }
    });
    use_live().hear(vec![Topic::Reviews, Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().reviews.clone());
    let next = Memo::new(move |_| feed.value().read().next.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let shown = Shown::of(&wanted.listed);
    let of = StoredValue::new(wanted);
    let table = move || match is_empty.get() {
        true => of.with_value(|wanted| nothing(wanted, next.get().is_some())),
        false => view! {
            <table class="table folds">
                <thead><tr>{of.with_value(|wanted| heads(&wanted.listed, shown))}</tr></thead>
                <tbody>{rows(list.into(), |review| review.submission, move |review| row(review, shown))}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table} {move || of.with_value(|wanted| pager(&wanted.listed, next.get().as_ref()))}</div>
    }
    .into_any()
}

fn heads(listed: &Listed<ReviewSort>, shown: Shown<Part>) -> AnyView {
    let one = |part: &Part| match part {
        Part::Change => head(listed, ReviewSort::Title, part.label(), false),
        Part::Submitted => head(listed, ReviewSort::Submitted, part.label(), true),
        Part::State | Part::Approvals | Part::By => plain_head(part.label()),
    };
    Part::EVERY.iter().filter(|part| shown.has(**part)).map(one).collect_view().into_any()
}

fn row(review: Memo<ReviewSummary>, shown: Shown<Part>) -> impl IntoView {
    let id = review.read_untracked().submission;
    view! {
        <tr>
            <td>
                <div>
                    <a class="main" href=places::review(id)><bdi>{move || review.read().title.clone()}</bdi></a>
                    <div class="muted">{id.0} " on " {move || scope(&review.read())} ": " {move || review.read().summary.clone()}</div>
                </div>
            </td>
            {shown.has(Part::State).then(|| view! {
                <td data-label="State">{move || view! { <ReviewPill state=review.read().state/> }}</td>
            })}
            {shown.has(Part::Approvals).then(|| view! {
                <td data-label="Approvals" class="number">{move || review.read().approvals.0} " of " {move || review.read().approvals.1}</td>
            })}
            {shown.has(Part::By).then(|| view! { <td data-label="By">{move || review.read().authors.join(", ")}</td> })}
            {shown.has(Part::Submitted).then(|| view! {
                <td data-label="Submitted" class="muted">{move || view! { <Moment at=review.read().at/> }}</td>
            })}
        </tr>
    }
    .into_any()
}

#[component]
fn Drafts(first: ProposalPage, wanted: Wanted) -> impl IntoView {
    let asked = wanted.clone();
    let feed = Feed::new(first, move || {
        let asked = asked.clone();
        async move {
            let page = fetch(asked).await?;
            Ok(if let Page::Drafts(page) = page { page } else { ProposalPage::default() })
        }
    });
    use_live().hear(vec![Topic::Reviews, Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().proposals.clone());
    let next = Memo::new(move |_| feed.value().read().next.map(|next| Cursor::from(next.to_string())));
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let of = StoredValue::new(wanted);
    let table = move || match is_empty.get() {
        true => of.with_value(|wanted| nothing(wanted, false)),
        false => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Proposal"</th>
                        <th scope="col" class="number">"Edits"</th>
                        <th scope="col">"By"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |proposal| proposal.id, draft)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table} {move || of.with_value(|wanted| pager(&wanted.listed, next.get().as_ref()))}</div>
    }
    .into_any()
}

fn draft(proposal: Memo<ProposalSummary>) -> impl IntoView {
    let by = move || match proposal.read().authors.join(", ") {
        nobody if nobody.is_empty() => "nobody yet".to_owned(),
        authors => authors,
    };
    view! {
        <tr>
            <td>
                <div>
                    {move || {
                        let proposal = proposal.read();
                        let (to, on) = place(&proposal);
                        view! {
                            <a class="main" href=to>{on}</a>
                            <div class="muted">"proposal " {proposal.id.0} ", version " {proposal.version}</div>
                        }
                    }}
                </div>
            </td>
            <td data-label="Edits" class="number">{move || proposal.read().edits}</td>
            <td data-label="By">{by}</td>
        </tr>
    }
    .into_any()
}

/// Where a proposal is edited, and what it is on.
fn place(proposal: &ProposalSummary) -> (String, String) {
    let deployment = &proposal.scope.deployment;
    match &proposal.scope.node {
        Some(node) => (places::proposal(proposal.id), format!("node {} alone, in {deployment}", node.fqdn)),
        None => (places::deployment(deployment), deployment.to_string()),
    }
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
        ReviewState::Faulty => ("error", Icon::Error, "has errors"),
        ReviewState::Discussed => ("warn", Icon::Talk, "threads are open"),
        ReviewState::Stale => ("warn", Icon::Lost, "stale"),
        ReviewState::Replaced => ("blocked", Icon::Redo, "replaced"),
        ReviewState::SentBack => ("warn", Icon::Undo, "back with its authors"),
        ReviewState::Committed => ("active", Icon::Active, "committed"),
        ReviewState::Discarded => ("blocked", Icon::Bin, "discarded"),
    };
    view! { <span class="pill" data-state=colour>{icon(shape)} {word}</span> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[(&str, &str)]) -> Wanted {
        let mut query = ParamsMap::new();
        for (name, value) in words {
            query.insert((*name).to_owned(), (*value).to_owned());
        }
        Wanted::read(&query)
    }

    #[test]
    fn the_list_is_in_its_address() {
        let plain = read(&[]);
        assert_eq!(
            (plain.of, plain.whose, plain.address().as_str()),
            (Of::Reviews(Fate::Open), Whose::All, "/reviews")
        );
        let query =
            [("state", "committed"), ("whose", "mine"), ("deployment", "web"), ("text", "a+b"), ("before", "7")];
        let wanted = read(&query);
        assert_eq!(wanted.address(), "/reviews?state=committed&whose=mine&deployment=web&text=a%2Bb&before=7");
        assert_eq!(wanted.listed.first(), "/reviews?state=committed&whose=mine&deployment=web&text=a%2Bb");
        assert_eq!(wanted.listed.all(), "/reviews?state=committed&whose=mine", "what became of them is no filter");
        assert_eq!(read(&[("state", "drafts")]).of, Of::Drafts);
        let odd = read(&[("state", "nowhere"), ("text", "x")]);
        assert!(odd.odd.is_some_and(|odd| odd.0.detail.contains("There are: open, drafts")));
        assert_eq!(odd.text, "x", "the rest is kept");
    }

    #[test]
    fn only_what_is_open_waits_for_somebody() {
        let for_me = read(&[("whose", "for_me")]);
        assert_eq!(for_me.other(Of::Reviews(Fate::Committed), for_me.whose).address(), "/reviews?state=committed");
        assert_eq!(for_me.other(Of::Drafts, Whose::Mine).address(), "/reviews?state=drafts&whose=mine");
    }
}
