//! The list of reviews: what waits, for whom, and what became of the others; and the open proposals that nobody submitted yet, those on
//! single nodes among them.

use api::calls::Call;
use api::console::{ProposalSummary, ReviewState, ReviewSummary};
use api::live::Topic;
use api::reviews::{Fate, ProposalPage, ProposalsWanted, ReviewPage, ReviewsWanted, Whose};
use engine::ids::{ProposalId, SubmissionId};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::use_query_map;
use serde::{Deserialize, Serialize};

use crate::calls;
use crate::clock::Moment;
use crate::failure::Answer;
use crate::live::{NOW, use_live};
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
    before: Option<i64>,
}

impl Wanted {
    /// What an address asks for. What it asks for and there is not is left out.
    fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let word = |name: &str| get(name).unwrap_or_default();
        let (of, whose) = (word("state"), word("whose"));
        Self {
            of: Of::EVERY.into_iter().find(|known| known.as_str() == of).unwrap_or(Of::Reviews(Fate::Open)),
            whose: Whose::EVERY.into_iter().find(|known| known.as_str() == whose).unwrap_or_default(),
            deployment: word("deployment"),
            text: word("text"),
            before: get("before").and_then(|id| id.parse().ok()),
        }
    }

    fn address(&self) -> String {
        let of = (self.of != Of::Reviews(Fate::Open)).then(|| format!("state={}", self.of.as_str()));
        let whose = (self.whose != Whose::All).then(|| format!("whose={}", self.whose.as_str()));
        let said = |name: &str, value: &str| (!value.is_empty()).then(|| format!("{name}={}", places::encoded(value)));
        let before = self.before.map(|before| format!("before={before}"));
        let parts = [of, whose, said("deployment", &self.deployment), said("text", &self.text), before];
        let query: Vec<String> = parts.into_iter().flatten().collect();
        match query.is_empty() {
            true => places::REVIEWS.into(),
            false => format!("{}?{}", places::REVIEWS, query.join("&")),
        }
    }

    /// The same list from its beginning.
    fn newest(&self) -> Self {
        Self { before: None, ..self.clone() }
    }

    /// Another list of the same deployment and text. Only what is open waits for somebody.
    fn other(&self, of: Of, whose: Whose) -> Self {
        let whose = if whose == Whose::ForMe && of != Of::Reviews(Fate::Open) { Whose::All } else { whose };
        Self { of, whose, ..self.newest() }
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

    fn is_narrow(&self) -> bool {
        self.whose != Whose::All || !self.deployment.is_empty() || !self.text.is_empty()
    }
}

/// What is asked for, when it is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Page {
    Reviews(ReviewPage),
    Drafts(ProposalPage),
}

async fn fetch(wanted: Wanted) -> Answer<Page> {
    let Wanted { of, whose, deployment, text, before } = wanted;
    match of {
        Of::Reviews(fate) => {
            let before = before.map(SubmissionId);
            calls::reviews(ReviewsWanted { whose, fate, deployment, text, before }).await.map(Page::Reviews)
        }
        Of::Drafts => {
            let (mine, before) = (whose == Whose::Mine, before.map(ProposalId));
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
        Wanted::read(|name| query.get(name))
    });
    let page = Resource::new(move || wanted.get(), fetch);
    view! {
        <Title text="Reviews"/>
        <div class="head"><h1>"Reviews"</h1></div>
        <div class="filters spread">
            <nav class="buttons" aria-label="Filter by what became of them">{move || fates(&wanted.get())}</nav>
            <nav class="buttons" aria-label="Filter by whose they are">{move || whose(&wanted.get())}</nav>
        </div>
        <Form method="GET" action=places::REVIEWS attr:class="filters" attr:role="search">
            {move || hidden(&wanted.get())}
            <div class="field">
                <label for="review-deployment">"Deployment"</label>
                <input class="input" id="review-deployment" name="deployment" autocomplete="off" value=move || wanted.read().deployment.clone()/>
            </div>
            <div class="field" hidden=move || wanted.read().of == Of::Drafts>
                <label for="review-text">"Title contains"</label>
                <input class="input" id="review-text" name="text" autocomplete="off" maxlength="200" value=move || wanted.read().text.clone()/>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
        </Form>
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

/// What the form keeps of the address.
fn hidden(wanted: &Wanted) -> AnyView {
    let state = wanted.of.as_str();
    let whose = wanted.whose.as_str();
    view! { <input type="hidden" name="state" value=state/> <input type="hidden" name="whose" value=whose/> }.into_any()
}

/// The ways to the beginning of a list and on.
fn pager(wanted: &Wanted, next: Option<i64>) -> AnyView {
    let newest = wanted.before.map(|_| wanted.newest().address());
    let next = next.map(|next| Wanted { before: Some(next), ..wanted.clone() }.address());
    (next.is_some() || newest.is_some())
        .then(|| {
            view! {
                <nav class="pager" aria-label="Pages of the list">
                    {newest.map(|newest| view! { <a class="button small" href=newest>{icon(Icon::Up)} "Newest"</a> })}
                    <span class="grow"></span>
                    {next.map(|next| view! { <a class="button small" href=next>"Older" {icon(Icon::Right)}</a> })}
                </nav>
            }
        })
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
    if wanted.before.is_some() {
        return view! { <Empty icon=Icon::Review title="There are no older ones"><p>"This is the end of the list."</p></Empty> }
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
    if wanted.is_narrow() {
        let all = Wanted { whose: Whose::All, deployment: String::new(), text: String::new(), ..wanted.newest() };
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
    let next = Memo::new(move |_| feed.value().read().next.map(|next| next.0));
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let of = StoredValue::new(wanted);
    let table = move || match is_empty.get() {
        true => of.with_value(|wanted| nothing(wanted, next.get().is_some())),
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
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">{table} {move || of.with_value(|wanted| pager(wanted, next.get()))}</div>
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
    let next = Memo::new(move |_| feed.value().read().next.map(|next| next.0));
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
        <div class="card">{table} {move || of.with_value(|wanted| pager(wanted, next.get()))}</div>
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

    #[test]
    fn the_list_is_in_its_address() {
        let read = |query: &[(&str, &str)]| {
            Wanted::read(|name| query.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        let plain = read(&[]);
        assert_eq!(
            (plain.of, plain.whose, plain.address().as_str()),
            (Of::Reviews(Fate::Open), Whose::All, "/reviews")
        );
        let query =
            [("state", "committed"), ("whose", "mine"), ("deployment", "web"), ("text", "a&b"), ("before", "7")];
        let wanted = read(&query);
        assert_eq!(wanted.address(), "/reviews?state=committed&whose=mine&deployment=web&text=a%26b&before=7");
        assert_eq!(wanted.newest().address(), "/reviews?state=committed&whose=mine&deployment=web&text=a%26b");
        assert_eq!(read(&[("state", "drafts")]).of, Of::Drafts);
        assert_eq!(
            read(&[("state", "nowhere"), ("whose", "?"), ("before", "x")]),
            plain,
            "what there is not is left out"
        );
    }

    #[test]
    fn only_what_is_open_waits_for_somebody() {
        let for_me = Wanted::read(|name| (name == "whose").then(|| "for_me".into()));
        assert_eq!(for_me.other(Of::Reviews(Fate::Committed), for_me.whose).address(), "/reviews?state=committed");
        assert_eq!(for_me.other(Of::Drafts, Whose::Mine).address(), "/reviews?state=drafts&whose=mine");
    }
}
