//! The target history, and the comparison of any two blueprints.
//!
//! The page's state is in the address: the deployment, the cursor and the two blueprints. So each
//! choice is a link or a GET form, and works without JavaScript.

pub mod blueprint;
mod comparison;
pub mod server_functions;

use api::Problem;
use api::blueprints::{BlueprintKind, BlueprintPage, BlueprintSummary};
use api::blueprints::{BlueprintSort, BlueprintsQuery};
use api::live::Topic;
use engine::ids::{BlueprintNumber, actor_name};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::addresses;
use crate::clock::TimeText;
use crate::components::list::{
    ListAddress, SORT, example_field, filters, hidden, list_error, pager,
};
use crate::components::{
    Empty, Feed, Icon, ListCommands, ProblemNotice, icon, load_with_error, rows,
};
use crate::failure::ServerResult;
use crate::live::{NOW, use_live};
use crate::pages::deployments::DeploymentField;

/// The name of the cursor parameter.
const CURSOR_PARAM: &str = "before";
/// The sort orders with their labels.
const SORTS: &[(BlueprintSort, &str)] = &[(BlueprintSort::Number, "blueprint")];

/// The parameters of the page, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PageParams {
    /// The deployment whose history is shown.
    deployment: Option<String>,
    sort: Option<String>,
    before: Option<String>,
    /// A target's number or a root's hash.
    from: Option<String>,
    to: Option<String>,
}

impl PageParams {
    fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| {
            get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        Self {
            deployment: text("deployment"),
            sort: text(SORT),
            before: text(CURSOR_PARAM),
            from: text("from"),
            to: text("to"),
        }
    }

    fn address(&self) -> String {
        let all = [
            ("deployment", &self.deployment),
            (SORT, &self.sort),
            (CURSOR_PARAM, &self.before),
            ("from", &self.from),
            ("to", &self.to),
        ];
        let query: Vec<String> = all
            .into_iter()
            .filter_map(|(name, value)| {
                value.as_ref().map(|value| format!("{name}={}", addresses::encoded(value)))
            })
            .collect();
        match query.is_empty() {
            true => addresses::BLUEPRINTS.into(),
            false => format!("{}?{}", addresses::BLUEPRINTS, query.join("&")),
        }
    }

    /// The same comparison without the history's order and cursor.
    fn comparison(&self) -> Self {
        Self { sort: None, before: None, ..self.clone() }
    }

    /// The same history with a comparison of these two.
    fn with_comparison(&self, from: impl ToString, to: impl ToString) -> Self {
        Self { from: Some(from.to_string()), to: Some(to.to_string()), ..self.clone() }
    }

    /// The two blueprints to compare, once both are chosen.
    fn pair(&self) -> Option<(String, String)> {
        self.from.clone().zip(self.to.clone())
    }
}

/// The address of the history. The comparison is content next to the list and does not filter it.
fn listed(query: &ParamsMap) -> ListAddress<BlueprintSort> {
    let PageParams { deployment, from, to, .. } = PageParams::of(|name| query.get(name));
    let [deployment, from, to] = [deployment, from, to].map(Option::unwrap_or_default);
    let line = ListAddress::read(addresses::BLUEPRINTS, query, CURSOR_PARAM);
    line.with_filter("deployment", "deployment is", &deployment)
        .with_panel("from", &from)
        .with_panel("to", &to)
        .with_further_params(query, &["deployment", "from", "to"])
}

async fn fetch(listed: ListAddress<BlueprintSort>) -> ServerResult<BlueprintPage> {
    listed.known()?;
    let (sort, before) = listed.page_position()?;
    server_functions::targets(BlueprintsQuery {
        deployment: listed.param("deployment"),
        sort,
        limit: None,
        before,
    })
    .await
}

#[component]
pub fn Blueprints() -> impl IntoView {
    let query = use_query_map();
    let params = Memo::new(move |_| PageParams::of(|name| query.read().get(name)));
    let listed = Memo::new(move |_| listed(&query.read()));
    // The history stays loaded while the comparison changes.
    let line = Memo::new(move |_| listed.read().clone().without_adjacent());
    let targets = Resource::new(move || line.get(), fetch);
    // Created here and not where it is displayed: see `Frame`.
    let compared = Resource::new(
        move || params.with(|params| (params.pair(), params.deployment.clone())),
        |(pair, deployment)| async move {
            match pair {
                Some((from, to)) => server_functions::compare(from, to, deployment).await.map(Some),
                None => Ok(None),
            }
        },
    );
    let show_error =
        move |problem: Problem| list_error(&listed.read_untracked(), "blueprints", problem);
    view! {
        <Title text="Blueprints"/>
        <div class="head"><h1>"Blueprints"</h1></div>
        {filters(listed, SORTS, fields(listed))}
        <comparison::ComparisonSection compared line=targets params/>
        {load_with_error(targets, move |first| view! {
            <Line first params listed/>
        }.into_any(), show_error)}
        <ListCommands of=api::calls::List::Blueprints/>
    }
    .into_any()
}

/// The fields for the deployment and the two blueprints. They are the only way to enter a root's
/// hash.
fn fields(listed: Memo<ListAddress<BlueprintSort>>) -> AnyView {
    let word = move |name: &'static str| Signal::derive(move || listed.read().param(name));
    view! {
        <div class="field">
            <label for="blueprints-deployment">"Deployment"</label>
            <DeploymentField id="blueprints-deployment" value=word("deployment")/>
        </div>
        {example_field("blueprints-from", "from", "From", "blueprint or hash", word("from"))}
        {example_field("blueprints-to", "to", "To", "blueprint or hash", word("to"))}
    }
    .into_any()
}

#[component]
fn Line(
    first: BlueprintPage,
    params: Memo<PageParams>,
    listed: Memo<ListAddress<BlueprintSort>>,
) -> impl IntoView {
    let address = listed.get_untracked();
    let of = params.read_untracked().deployment.clone();
    let feed = {
        let address = address.clone();
        Feed::new(first, move || fetch(address.clone()))
    };
    use_live().subscribe(vec![Topic::Blueprints], NOW, move |_| feed.soon());
    let page = feed.value();
    let list = Memo::new(move |_| page.read().blueprints.clone());
    let head = Memo::new(move |_| page.read().head);
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let next = Memo::new(move |_| page.read().next.clone());
    let order = if address.order().unwrap_or_default().descending {
        "newest first"
    } else {
        "oldest first"
    };
    let removed_in = page.read_untracked().removed_in;
    let removal_note = removed_in.zip(of.clone()).map(|(target, name)| {
        let text = format!(
            "Blueprint {target} removed deployment {name}. You can still compare earlier \
             blueprints and open their graphs."
        );
        view! { <p class="padded">{text}</p> }
    });
    let can_restore = removed_in.is_none();
    let table = move || {
        if is_empty.get() {
            return nothing(&listed.read());
        }
        view! {
            <table class="table responsive blueprint-list">
                <thead>
                    <tr>
                        <th scope="col" class="number">"Blueprint"</th>
                        <th scope="col">"Title"</th>
                        <th scope="col">"Proposed by"</th>
                        <th scope="col">"Approved by"</th>
                        <th scope="col">"Committed"</th>
                        <th scope="col">"Hash"</th>
                        <th scope="col">"Compare"</th>
                    </tr>
                </thead>
                <tbody>
                    {
                        rows(
                            list.into(),
                            |target| target.number,
                            move |target| row(target, params, head, can_restore)
                        )
                    }
                </tbody>
            </table>
        }
        .into_any()
    };
    // The message instead of rows already links to the first page.
    let pager = move || {
        let next = next.get();
        (!is_empty.get() || next.is_some()).then(|| pager(&listed.read(), next.as_ref()))
    };
    let title = of.map_or_else(
        || "Blueprint history".to_owned(),
        |name| format!("Blueprints that changed {name}"),
    );
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <section class="card" aria-label="Blueprint history">
            <header><h2>{title}</h2> <span class="muted">{order}</span></header>
            {removal_note}
            {table}
            {pager}
        </section>
    }
    .into_any()
}

/// The message instead of rows: the end of the history, a deployment that no target changed, or an
/// empty history.
fn nothing(listed: &ListAddress<BlueprintSort>) -> AnyView {
    hidden(listed, "blueprint", "blueprints").unwrap_or_else(|| {
        view! {
            <Empty icon=Icon::Blueprint title="No blueprints yet">
                <p>
                    "Gantry creates the first blueprint when the server starts for the first time."
                </p>
            </Empty>
        }
        .into_any()
    })
}

fn row(
    target: Memo<BlueprintSummary>,
    params: Memo<PageParams>,
    head: Memo<BlueprintNumber>,
    can_restore: bool,
) -> impl IntoView {
    // A target never changes.
    let target = target.get_untracked();
    let number = target.number;
    let about = match target.review {
        Some(review) => view! {
            <a class="main" href=addresses::review(review)><bdi>{target.title.clone()}</bdi></a>
        }
        .into_any(),
        None => view! { <bdi>{target.title.clone()}</bdi> }.into_any(),
    };
    let kind = match target.kind {
        BlueprintKind::Genesis => Some(("blocked", Icon::Blueprint, "genesis")),
        BlueprintKind::Switch if target.enabled => Some(("active", Icon::Run, "execution on")),
        BlueprintKind::Switch => Some(("warn", Icon::Paused, "execution off")),
        BlueprintKind::Change => None,
    };
    let kind = kind.map(|(color, shape, word)| {
        view! { <span class="pill" data-state=color>{icon(shape)} {word}</span> }
    });
    let on =
        target.deployment.clone().map(|name| view! { <span class="muted">"on " {name}</span> });
    let by = actor_name(target.by.as_deref()).to_owned();
    let short: String = target.root.chars().take(8).collect();
    let names =
        |names: &[String]| if names.is_empty() { "–".to_owned() } else { names.join(", ") };
    let authors = match target.kind {
        BlueprintKind::Genesis => by.clone(),
        BlueprintKind::Change | BlueprintKind::Switch => names(&target.authors),
    };
    let restorable = move || {
        let params = params.get();
        let head = head.get();
        (can_restore && params.deployment.is_some() && number < head).then(
            || view! { <a href=params.with_comparison(head, number).address()>"Restore…"</a> },
        )
    };
    view! {
        <tr
            data-blueprint=number.0.to_string()
            data-side=move || selected_side(&params.read(), number)
        >
            <td data-label="Blueprint" class="number">
                <a class="main" href=addresses::blueprint(number)>{number.0}</a>
            </td>
            <td data-label="Title"><div class="about">{about} {on} {kind}</div></td>
            <td data-label="Proposed by">{authors}</td>
            <td data-label="Approved by">{names(&target.approved_by)}</td>
            <td data-label="Committed" class="muted">
                <span>{by} ", " <TimeText at=target.at/></span>
            </td>
            <td data-label="Hash"><code title=target.root.clone()>{short}</code></td>
            <td data-label="Compare" class="nowrap">
                <span class="pick">
                    {
                        pick(
                            "from",
                            number,
                            params,
                            |params, number| PageParams { from: Some(number), ..params }
                        )
                    }
                    {
                        pick(
                            "to",
                            number,
                            params,
                            |params, number| PageParams { to: Some(number), ..params }
                        )
                    }
                    {(number.0 > 1).then(|| {
                        let changes = move || params
                            .read()
                            .with_comparison(number.0 - 1, number)
                            .address();
                        view! {
                            <a href=changes aria-label=format!("Changes of blueprint {}", number.0)>
                                "Changes"
                            </a>
                        }
                    })}
                    {restorable}
                </span>
            </td>
        </tr>
    }
    .into_any()
}

/// Selects a target as one side of the comparison.
fn pick(
    word: &'static str,
    number: BlueprintNumber,
    params: Memo<PageParams>,
    with: fn(PageParams, String) -> PageParams,
) -> impl IntoView {
    let address = move || with(params.get(), number.to_string()).address();
    let is_here =
        move || (params.get() == with(params.get(), number.to_string())).then_some("true");
    let label = format!("Compare {word} blueprint {}", number.0);
    view! { <a href=address aria-current=is_here aria-label=label data-noscroll>{word}</a> }
        .into_any()
}

fn selected_side(params: &PageParams, number: BlueprintNumber) -> Option<&'static str> {
    let is = |side: &Option<String>| side.as_deref() == Some(number.to_string().as_str());
    match (is(&params.from), is(&params.to)) {
        (true, true) => Some("both"),
        (true, false) => Some("from"),
        (false, true) => Some("to"),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_and_comparison_round_trip_through_address() {
        let of = |pairs: &[(&str, &str)]| {
            PageParams::of(|name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]).address(), "/blueprints");
        assert_eq!(of(&[("deployment", ""), ("from", " ")]), PageParams::default());
        // An invalid cursor stays in the address and is reported.
        assert_eq!(of(&[("before", "x")]).address(), "/blueprints?before=x");
        let params =
            of(&[("deployment", "web"), ("before", "40"), ("from", " 11 "), ("to", "a&b")]);
        assert_eq!(params.address(), "/blueprints?deployment=web&before=40&from=11&to=a%26b");
        assert_eq!(
            params.with_comparison(BlueprintNumber(3), 4).pair(),
            Some(("3".into(), "4".into()))
        );
        assert_eq!(params.comparison().address(), "/blueprints?deployment=web&from=11&to=a%26b");
        assert_eq!(of(&[("from", "1")]).pair(), None);
    }
}
