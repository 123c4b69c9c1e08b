//! Why not yet: what waits, by what it waits for, with who or what frees it.

use api::console::NoderoleRef;
use api::live::Topic;
use api::waiting::{Behind, Freeing, WaitingGroup, WaitingPage, WaitingStep, WaitingWanted};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::use_query_map;

use crate::calls;
use crate::clock::{Moment, Span};
use crate::live::{NOW, use_live};
use crate::parts::badge::shape;
use crate::parts::{Empty, Feed, Icon, ProblemNotice, SameList, StatePill, icon, load};
use crate::places;

/// The address of a part of what waits.
fn address(wanted: &WaitingWanted) -> String {
    let pairs = [("deployment", &wanted.deployment), ("node", &wanted.node), ("reason", &wanted.reason)];
    let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let mut query: Vec<String> = given.map(|(key, value)| format!("{key}={}", places::encoded(value))).collect();
    query.extend(wanted.after.map(|after| format!("after={after}")));
    match query.is_empty() {
        true => places::WAITING.into(),
        false => format!("{}?{}", places::WAITING, query.join("&")),
    }
}

/// What waits.
#[component]
pub fn Waiting() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        WaitingWanted {
            deployment: query.get("deployment").unwrap_or_default(),
            node: query.get("node").unwrap_or_default(),
            reason: query.get("reason").unwrap_or_default(),
            after: query.get("after").and_then(|text| text.parse::<Behind>().ok()),
        }
    });
    let waiting = Resource::new(move || wanted.get(), calls::waiting);
    let is_part = move || wanted.with(|w| !(w.deployment.is_empty() && w.node.is_empty()));
    view! {
        <Title text="Why not yet"/>
        <div class="head"><h1>"Why not yet"</h1></div>
        <Form method="GET" action=places::WAITING attr:class="filters" attr:role="search">
            <div class="field">
                <label for="waiting-deployment">"Deployment"</label>
                <input class="input" id="waiting-deployment" name="deployment" autocomplete="off" value=move || wanted.read().deployment.clone()/>
            </div>
            <div class="field">
                <label for="waiting-node">"Node"</label>
                <input class="input" id="waiting-node" name="node" autocomplete="off" placeholder="n1.example.com" value=move || wanted.read().node.clone()/>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
            {move || is_part().then(|| view! { <a class="button quiet" href=places::WAITING>"Everywhere"</a> })}
        </Form>
        {load(waiting, move |first| view! { <Found first wanted=wanted.get_untracked()/> })}
        <SameList of=api::calls::List::Waiting/>
    }
    .into_any()
}

#[component]
fn Found(first: WaitingPage, wanted: WaitingWanted) -> impl IntoView {
    let asked = wanted.clone();
    let feed = Feed::new(first, move || calls::waiting(asked.clone()));
    use_live().hear(vec![Topic::Runs, Topic::Nodes, Topic::Targets], NOW, move |_| feed.eventually());
    let page = feed.value();
    let groups = {
        let wanted = wanted.clone();
        move || groups(&page.read().groups, &wanted)
    };
    let reasons = {
        let wanted = wanted.clone();
        move || reasons(&page.read().groups, &wanted)
    };
    let pager = move || pager(page.read().next, &wanted);
    view! {
        <ProblemNotice problem=feed.problem()/>
        <nav class="filters" aria-label="What steps wait for">{reasons}</nav>
        <div class="stack waiting">{groups}</div>
        {pager}
    }
    .into_any()
}

fn number(group: &WaitingGroup) -> String {
    match (group.count, group.more) {
        (None, _) => String::new(),
        (Some(count), true) => format!("{count}+"),
        (Some(count), false) => count.to_string(),
    }
}

/// Every reason with its number; a link each.
fn reasons(all: &[WaitingGroup], wanted: &WaitingWanted) -> impl IntoView + use<> {
    let link = |reason: &str, words: String, count: String| {
        let is_here = (wanted.reason == reason).then_some("true");
        let address = address(&WaitingWanted { reason: reason.to_owned(), after: None, ..wanted.clone() });
        view! {
            <a class="button small" class:quiet=is_here.is_none() href=address aria-current=is_here>
                {words} " " <span class="num">{count}</span>
            </a>
        }
    };
    let links: Vec<_> =
        all.iter().map(|group| link(group.reason.as_str(), group.heading.clone(), number(group))).collect();
    (!links.is_empty() || !wanted.reason.is_empty()).then(|| (link("", "all".to_owned(), String::new()), links))
}

fn groups(all: &[WaitingGroup], wanted: &WaitingWanted) -> AnyView {
    let shown: Vec<&WaitingGroup> = all.iter().filter(|group| !group.steps.is_empty()).collect();
    if shown.is_empty() {
        return nothing(wanted).into_any();
    }
    shown.into_iter().map(|group| one(group, wanted)).collect_view().into_any()
}

fn nothing(wanted: &WaitingWanted) -> impl IntoView + use<> {
    let is_all = *wanted == WaitingWanted::default();
    let title = if is_all { "Nothing waits" } else { "Nothing waits here" };
    view! {
        <div class="card">
            <Empty icon=Icon::Active title=title>
                <p>"Every step is done or under way. What can't go on stands here, with who or what frees it."</p>
                {(!is_all).then(|| view! { <a class="button" href=places::WAITING>"Everything that waits"</a> })}
            </Empty>
        </div>
    }
    .into_any()
}

fn one(group: &WaitingGroup, wanted: &WaitingWanted) -> impl IntoView + use<> {
    let address = address(&WaitingWanted { reason: group.reason.as_str().to_owned(), after: None, ..wanted.clone() });
    let shown = i64::try_from(group.steps.len()).unwrap_or(i64::MAX);
    let beyond = wanted.reason.is_empty() && group.count.is_some_and(|count| count > shown);
    let all = format!("All {}", number(group));
    let label = group.heading.clone();
    view! {
        <section class="card" aria-label=label data-reason=group.reason.as_str()>
            <header>
                <h2>{group.heading.clone()}</h2>
                <span class="num">{number(group)}</span>
                <span class="muted">"freed by " {group.frees.clone()}</span>
            </header>
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Step"</th>
                        <th scope="col">"State"</th>
                        <th scope="col">"Waits"</th>
                        <th scope="col">"For what"</th>
                        <th scope="col">"Freed by"</th>
                    </tr>
                </thead>
                <tbody>{group.steps.iter().map(row).collect_view()}</tbody>
            </table>
            {beyond.then(|| view! {
                <nav class="pager" aria-label=format!("More of: {}", group.heading)>
                    <span class="grow"></span>
                    <a class="button small" href=address>{all} {icon(Icon::Right)}</a>
                </nav>
            })}
        </section>
    }
    .into_any()
}

fn row(step: &WaitingStep) -> impl IntoView + use<> {
    let says = step.says.iter().map(|says| view! { <li>{icon(Icon::Right)} <span>{says.clone()}</span></li> });
    let freed_by: Vec<_> = step.freed_by.iter().map(freeing).collect();
    let state = step.state;
    view! {
        <tr>
            <td data-label="Step">
                <div>
                    <a class="main" href=places::noderole(step.noderole)>{step.role.to_string()}</a>
                    " on " <a href=places::waiting_on(&step.fqdn)>{step.fqdn.clone()}</a>
                    <div class="links"><a href=places::deployment(&step.deployment)>{step.deployment.to_string()}</a></div>
                </div>
            </td>
            <td data-label="State"><StatePill state=state/></td>
            <td data-label="Waits" class="number">
                <div><Span from=step.since to=None/> <div class="muted">"since " <Moment at=step.since/></div></div>
            </td>
            <td data-label="For what"><ul class="whys">{says.collect_view()}</ul></td>
            <td data-label="Freed by"><div class="links">{freed_by}</div></td>
        </tr>
    }
    .into_any()
}

fn freeing(by: &Freeing) -> AnyView {
    match by {
        Freeing::Step { noderole: NoderoleRef { id, role, fqdn, state } } => view! {
            <a href=places::noderole(*id) title=state.word()>{icon(shape(*state))} {role.to_string()} " on " {fqdn.clone()}</a>
        }
        .into_any(),
        Freeing::Run { run } => view! { <a href=places::run(*run)>"run " {run.0}</a> }.into_any(),
        Freeing::Node { fqdn } => {
            view! { <a href=places::nodes_named(fqdn)>{icon(Icon::Node)} {fqdn.clone()}</a> }.into_any()
        }
        Freeing::Deployment { name } => {
            view! { <a href=places::deployment(name)>{icon(Icon::Deployments)} {name.to_string()}</a> }.into_any()
        }
    }
}

fn pager(next: Option<Behind>, wanted: &WaitingWanted) -> impl IntoView + use<> {
    let later = next.map(|next| address(&WaitingWanted { after: Some(next), ..wanted.clone() }));
    let first = wanted.after.map(|_| address(&WaitingWanted { after: None, ..wanted.clone() }));
    (later.is_some() || first.is_some()).then(|| {
        view! {
            <nav class="pager" aria-label="Pages of the list">
                {first.map(|first| view! { <a class="button small" href=first>{icon(Icon::Up)} "Longest waiting"</a> })}
                <span class="grow"></span>
                {later.map(|later| view! { <a class="button small" href=later>"Next" {icon(Icon::Right)}</a> })}
            </nav>
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_its_address() {
        let mut wanted = WaitingWanted::default();
        assert_eq!(address(&wanted), "/waiting");
        wanted.reason = "node_dead".into();
        wanted.node = "n1.example.com".into();
        assert_eq!(address(&wanted), "/waiting?node=n1.example.com&reason=node_dead");
    }
}
