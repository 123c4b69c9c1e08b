//! Pending steps, grouped by reason, with the person or event that unblocks each.

use api::deployments::NoderoleRef;
use api::listing::{Cursor, Order};
use api::live::Topic;
use api::pending::{PendingGroup, PendingPage, PendingQuery, PendingSort, PendingStep, Resolver};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::badge::{action_pill, shape};
use crate::components::list::{
    ListAddress, SORT, example_field, filters, head, page_links, refused, text_field,
    unknown_parameter,
};
use crate::components::notice::problem_in_page;
use crate::components::{
    Empty, Feed, Icon, ListCommands, ProblemNotice, StatePill, icon, load_with_error, rows,
};
use crate::failure::ServerResult;
use crate::live::{NOW, use_live};
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The name of the cursor parameter.
const CURSOR_PARAM: &str = "after";
/// The sort orders with their labels.
const SORTS: &[(PendingSort, &str)] = &[(PendingSort::Since, "pending since")];

/// The pending steps as a list: its form and headers.
fn listed(query: &ParamsMap) -> ListAddress<PendingSort> {
    let word = |name: &str| query.get(name).unwrap_or_default();
    ListAddress::read(addresses::PENDING, query, CURSOR_PARAM)
        .with_filter("deployment", "deployment is", &word("deployment"))
        .with_filter("node", "node is", &word("node"))
        .with_list("reason", &word("reason"))
}

/// The address of a filtered list.
fn address(parameters: &PendingQuery) -> String {
    let pairs = [
        ("deployment", &parameters.deployment),
        ("node", &parameters.node),
        ("reason", &parameters.reason),
    ];
    let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let mut query: Vec<String> =
        given.map(|(key, value)| format!("{key}={}", addresses::encoded(value))).collect();
    query.extend((!parameters.sort.is_default()).then(|| format!("{SORT}={}", parameters.sort)));
    query.extend(
        parameters
            .after
            .as_ref()
            .map(|after| format!("{CURSOR_PARAM}={}", addresses::encoded(after.as_str()))),
    );
    match query.is_empty() {
        true => addresses::PENDING.into(),
        false => format!("{}?{}", addresses::PENDING, query.join("&")),
    }
}

/// The parsed address: the filter, the cursor as written, and the error about unknown parameters.
type ParsedAddress = (PendingQuery, String, Option<String>);

fn read(query: &ParamsMap) -> ParsedAddress {
    let word = |name: &str| query.get(name).unwrap_or_default();
    let (deployment, node, reason) = (word("deployment"), word("node"), word("reason"));
    let sort = word(SORT).parse::<Order<PendingSort>>();
    let unsorted = sort.as_ref().err().map(|error| format!("{SORT}: {error}."));
    let invalid = unknown_parameter(query, &["deployment", "node", "reason", SORT, CURSOR_PARAM])
        .or(unsorted);
    (
        PendingQuery {
            deployment,
            node,
            reason,
            sort: sort.unwrap_or_default(),
            limit: None,
            after: None,
        },
        word(CURSOR_PARAM),
        invalid,
    )
}

/// Parses the cursor. An invalid one is refused here, with a readable error and without a request.
fn at_position((parsed_query, after, invalid): ParsedAddress) -> ServerResult<PendingQuery> {
    if let Some(invalid) = invalid {
        return Err(refused(invalid));
    }
    if after.is_empty() {
        return Ok(parsed_query);
    }
    let after = Cursor::from(after);
    let nowhere =
        |_| refused("Invalid cursor in `after`. Open the first page of the list.".to_owned());
    after.keys(parsed_query.sort).map_err(nowhere)?;
    Ok(PendingQuery { after: Some(after), ..parsed_query })
}

#[component]
pub fn Pending() -> impl IntoView {
    let query = use_query_map();
    let parsed_address = Memo::new(move |_| read(&query.read()));
    let fetch = |parsed_address: ParsedAddress| async move {
        let parsed_query = at_position(parsed_address)?;
        Ok((parsed_query.clone(), pending(parsed_query).await?))
    };
    let waiting = Resource::new(move || parsed_address.get(), fetch);
    let listed = Memo::new(move |_| listed(&query.read()));
    let word = move |name: &'static str| Signal::derive(move || listed.read().param(name));
    let fields = view! {
        {text_field("waiting-deployment", "deployment", "Deployment", word("deployment"))}
        {example_field("waiting-node", "node", "Node", "n1.example.com", word("node"))}
    };
    view! {
        <Title text="Pending"/>
        <div class="head"><h1>"Pending"</h1></div>
        {filters(listed, SORTS, fields)}
        {load_with_error(
            waiting,
            move |(query, first)| view! { <Found first query listed/> },
            move |problem| problem_in_page(
                problem,
                correction_links(&parsed_address.read_untracked())
            ),
        )}
        <ListCommands of=api::calls::List::Pending/>
    }
    .into_any()
}

/// Links that correct the address.
fn correction_links((parsed_query, after, invalid): &ParsedAddress) -> AnyView {
    let part = address(parsed_query);
    let all = (invalid.is_some() || part != addresses::PENDING || !after.is_empty())
        .then_some(addresses::PENDING);
    let without =
        (invalid.is_some() && after.is_empty() && part != addresses::PENDING).then(|| part.clone());
    let first = (!after.is_empty()).then_some(part);
    view! {
        {without.map(|without| view! {
            <a class="button" href=without>"Remove the invalid parameters"</a>
        })}
        {first.map(|first| view! { <a class="button" href=first>"Open the first page"</a> })}
        {all.map(|all| view! { <a class="button" href=all>"Show all pending steps"</a> })}
    }
    .into_any()
}

#[component]
fn Found(
    first: PendingPage,
    query: PendingQuery,
    listed: Memo<ListAddress<PendingSort>>,
) -> impl IntoView {
    let request = query.clone();
    let feed = Feed::new(first, move || pending(request.clone()));
    use_live().subscribe(vec![Topic::Runs, Topic::Nodes, Topic::Blueprints], NOW, move |_| {
        feed.eventually()
    });
    let page = feed.value();
    let of = StoredValue::new(query.clone());
    let shown = Memo::new(move |_| {
        let page = page.read();
        page.groups
            .iter()
            .filter(|group| !group.steps.is_empty())
            .cloned()
            .collect::<Vec<PendingGroup>>()
    });
    let is_empty = Memo::new(move |_| shown.read().is_empty());
    let none = move || is_empty.get().then(|| of.with_value(nothing));
    let groups =
        rows(shown.into(), |group| group.reason.as_str(), move |group| one(group, of, listed));
    let reasons = {
        let query = query.clone();
        move || reasons(&page.read().groups, &query)
    };
    let pager = move || pager(page.read().next.as_ref(), &query);
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <nav class="filters" aria-label="Pending reasons">{reasons}</nav>
        <div class="stack waiting">{none} {groups}</div>
        {pager}
    }
    .into_any()
}

fn number(group: &PendingGroup) -> String {
    match (group.count, group.more) {
        (None, _) => String::new(),
        (Some(count), true) => format!("{count}+"),
        (Some(count), false) => count.to_string(),
    }
}

/// All reasons with their counts, as links.
fn reasons(all: &[PendingGroup], query: &PendingQuery) -> impl IntoView + use<> {
    let link = |reason: &str, words: String, count: String| {
        let is_here = (query.reason == reason).then_some("true");
        let address =
            address(&PendingQuery { reason: reason.to_owned(), after: None, ..query.clone() });
        view! {
            <a class="button small" class:quiet=is_here.is_none() href=address aria-current=is_here>
                {words} " " <span class="num">{count}</span>
            </a>
        }
    };
    let links: Vec<_> = all
        .iter()
        .map(|group| link(group.reason.as_str(), group.heading.clone(), number(group)))
        .collect();
    (!links.is_empty() || !query.reason.is_empty())
        .then(|| (link("", "all".to_owned(), String::new()), links))
}

fn nothing(query: &PendingQuery) -> impl IntoView + use<> {
    let is_all = *query == PendingQuery { sort: query.sort, ..PendingQuery::default() };
    let title = if is_all { "No pending steps" } else { "No pending steps match" };
    view! {
        <div class="card">
            <Empty icon=Icon::Active title=title>
                <p>"Steps that cannot start yet are listed here with the reason."</p>
                {(!is_all).then(|| view! {
                    <a class="button" href=addresses::PENDING>"Show all pending steps"</a>
                })}
            </Empty>
        </div>
    }
    .into_any()
}

/// The steps that are pending for one reason. A row keeps its place while its step is pending.
fn one(
    group: Memo<PendingGroup>,
    of: StoredValue<PendingQuery>,
    listed: Memo<ListAddress<PendingSort>>,
) -> impl IntoView {
    let PendingGroup { reason, heading, resolution: frees, .. } = group.get_untracked();
    let steps = Memo::new(move |_| group.read().steps.clone());
    let more = move || {
        let group = group.read();
        let shown = i64::try_from(group.steps.len()).unwrap_or(i64::MAX);
        let parsed_query = of.get_value();
        let has_more =
            parsed_query.reason.is_empty() && group.count.is_some_and(|count| count > shown);
        let address = address(&PendingQuery {
            reason: group.reason.as_str().to_owned(),
            after: None,
            ..parsed_query
        });
        let all = format!("Show all {}", number(&group));
        has_more.then(|| {
            view! {
                <nav class="pager" aria-label=format!("More steps: {}", group.heading)>
                    <span class="grow"></span>
                    <a class="button small" href=address>{all} {icon(Icon::Right)}</a>
                </nav>
            }
        })
    };
    let since =
        head(&listed.get_untracked(), PendingSort::Since, "Pending since", false, Some("number"));
    view! {
        <section class="card" aria-label=heading.clone() data-reason=reason.as_str()>
            <header>
                <h2>{heading.clone()}</h2>
                <span class="num">{move || number(&group.read())}</span>
                <span class="muted">"resolved by " {frees}</span>
            </header>
            <table class="table responsive">
                <thead>
                    <tr>
                        <th scope="col">"Step"</th>
                        <th scope="col">"State"</th>
                        {since}
                        <th scope="col">"Pending reason"</th>
                        <th scope="col">"Resolved by"</th>
                    </tr>
                </thead>
                <tbody>{rows(steps.into(), |step| step.noderole, row)}</tbody>
            </table>
            {more}
        </section>
    }
    .into_any()
}

fn row(step: Memo<PendingStep>) -> impl IntoView {
    let PendingStep { noderole, role, action, fqdn, deployment, .. } = step.get_untracked();
    let reasons = Memo::new(move |_| step.read().reasons.clone());
    let reasons = move || {
        let line = |reasons: String| view! { <li>{icon(Icon::Right)} <span>{reasons}</span></li> };
        reasons.get().into_iter().map(line).collect_view()
    };
    // A focused link remains while the unblocking action stays the same.
    let freed_by = Memo::new(move |_| step.read().resolved_by.clone());
    let freed_by = move || freed_by.read().iter().map(unblock_text).collect_view();
    let since = Memo::new(move |_| step.read().since);
    view! {
        <tr>
            <td data-label="Step">
                <div>
                    <a class="main" href=addresses::noderole(noderole)>{role.to_string()}</a>
                    {action_pill(&action)}
                    " on " <a href=addresses::pending_on(&fqdn)>{fqdn.clone()}</a>
                    <div class="links">
                        <a href=addresses::deployment(&deployment)>{deployment.to_string()}</a>
                    </div>
                </div>
            </td>
            <td data-label="State">{move || view! { <StatePill state=step.read().state/> }}</td>
            <td data-label="Pending since" class="number">
                {move || view! { <TimeText at=since.get()/> }}
            </td>
            <td data-label="Pending reason"><ul class="reason-list">{reasons}</ul></td>
            <td data-label="Resolved by"><div class="links">{freed_by}</div></td>
        </tr>
    }
    .into_any()
}

fn unblock_text(by: &Resolver) -> AnyView {
    match by {
        Resolver::Step { noderole: NoderoleRef { id, role, fqdn, state, .. } } => view! {
            <a href=addresses::noderole(*id) title=state.label()>
                {icon(shape(*state))} {role.to_string()} " on " {fqdn.clone()}
            </a>
        }
        .into_any(),
        Resolver::Run { run } => view! {
            <a href=addresses::run(*run)>"run " {run.0}</a>
        }
        .into_any(),
        Resolver::Node { fqdn, .. } => view! {
            <a href=addresses::nodes_matching(fqdn)>{icon(Icon::Node)} {fqdn.clone()}</a>
        }
        .into_any(),
        Resolver::Deployment { name, .. } => view! {
            <a href=addresses::deployment(name)>{icon(Icon::Deployments)} {name.to_string()}</a>
        }
        .into_any(),
    }
}

fn pager(next: Option<&Cursor>, query: &PendingQuery) -> impl IntoView + use<> {
    let later =
        next.map(|next| address(&PendingQuery { after: Some(next.clone()), ..query.clone() }));
    let first =
        query.after.as_ref().map(|_| address(&PendingQuery { after: None, ..query.clone() }));
    let to_first = if query.sort.descending { "Shortest pending" } else { "Longest pending" };
    page_links(first, later, (to_first, "Next"))
}

#[server(
    name = ReadPending,
    prefix = "/call",
    endpoint = "pending",
    input = AsJson,
    output = AsJson
)]
pub async fn pending(query: PendingQuery) -> ServerResult<PendingPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.pending(&actor, &query).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_list_round_trips_through_address() {
        let mut parsed_query = PendingQuery::default();
        assert_eq!(address(&parsed_query), "/pending");
        parsed_query.reason = "node_dead".into();
        parsed_query.node = "n1.example.com".into();
        assert_eq!(address(&parsed_query), "/pending?node=n1.example.com&reason=node_dead");
        parsed_query.sort = Order::descending(PendingSort::Since);
        parsed_query.after = Some(Cursor::from("-since~-7~-x".to_owned()));
        assert_eq!(
            address(&parsed_query),
            "/pending?node=n1.example.com&reason=node_dead&sort=-since&after=-since~-7~-x"
        );
    }
}
