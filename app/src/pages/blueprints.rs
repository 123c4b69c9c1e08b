//! The line of targets, and any two blueprints compared.
//!
//! Everything that is looked at is in the address: which line, how far back, which two. So each choice is a link or a form that sends
//! its fields by GET, and works without scripts.

mod comparison;

use api::console::{DeploymentSummary, TargetKind, TargetPage, TargetSummary};
use api::live::Topic;
use engine::ids::TargetNo;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::use_query_map;

use crate::calls;
use crate::clock::Moment;
use crate::live::{NOW, use_live};
use crate::parts::{Empty, Feed, Icon, ProblemNotice, SameList, icon, load, rows};
use crate::places;

/// What the page is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    /// The deployment whose line it is.
    deployment: Option<String>,
    before: Option<TargetNo>,
    /// A target's number or a root's hash, as it was typed.
    from: Option<String>,
    to: Option<String>,
}

impl Wanted {
    fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Self {
            deployment: text("deployment"),
            before: text("before").and_then(|number| number.parse().ok()).map(TargetNo),
            from: text("from"),
            to: text("to"),
        }
    }

    fn address(&self) -> String {
        let before = self.before.map(|before| before.to_string());
        let all = [("deployment", &self.deployment), ("before", &before), ("from", &self.from), ("to", &self.to)];
        let query: Vec<String> = all
            .into_iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={}", places::encoded(value))))
            .collect();
        match query.is_empty() {
            true => places::BLUEPRINTS.into(),
            false => format!("{}?{}", places::BLUEPRINTS, query.join("&")),
        }
    }

    /// The same line with these two compared.
    fn comparing(&self, from: impl ToString, to: impl ToString) -> Self {
        Self { from: Some(from.to_string()), to: Some(to.to_string()), ..self.clone() }
    }

    /// The two that are compared, once both are chosen.
    fn pair(&self) -> Option<(String, String)> {
        self.from.clone().zip(self.to.clone())
    }
}

/// The page.
#[component]
pub fn Blueprints() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| Wanted::of(|name| query.read().get(name)));
    let line = Memo::new(move |_| wanted.with(|wanted| (wanted.deployment.clone(), wanted.before)));
    let targets = Resource::new(move || line.get(), |(deployment, before)| calls::targets(deployment, before));
    let deployments = Resource::new(|| (), |()| calls::deployments());
    // Made here and not where it is shown: see `Frame`.
    let compared = Resource::new(
        move || wanted.with(|wanted| (wanted.pair(), wanted.deployment.clone())),
        |(pair, deployment)| async move {
            match pair {
                Some((from, to)) => calls::compare(from, to, deployment).await.map(Some),
                None => Ok(None),
            }
        },
    );
    view! {
        <Title text="Blueprints"/>
        <div class="head"><h1>"Blueprints"</h1></div>
        {load(deployments, move |all| view! { <Choice all wanted/> })}
        <comparison::Compared compared line=targets wanted/>
        {load(targets, move |first| view! { <Line first wanted/> })}
        <SameList of=api::calls::List::Blueprints/>
    }
    .into_any()
}

/// Which line, and which two: a form for whoever knows, and the only way to name a root.
#[component]
fn Choice(all: Vec<DeploymentSummary>, wanted: Memo<Wanted>) -> impl IntoView {
    let option = move |name: String| {
        let (value, shown) = (name.clone(), name.clone());
        let is_chosen = Memo::new(move |_| wanted.read().deployment.as_deref() == Some(name.as_str()));
        view! { <option value=value selected=move || is_chosen.get() prop:selected=move || is_chosen.get()>{shown}</option> }
    };
    // What is gone is no choice, and stays chosen for who came to look at it.
    let known: Vec<String> = all.iter().map(|deployment| deployment.name.to_string()).collect();
    let gone = move || {
        let chosen = wanted.read().deployment.clone().filter(|name| !known.contains(name))?;
        Some(view! { <option value=chosen.clone() selected=true>{chosen.clone()}</option> })
    };
    let options = all.into_iter().map(|deployment| option(deployment.name.to_string())).collect_view();
    view! {
        <Form method="GET" action=places::BLUEPRINTS attr:class="filters" attr:aria-label="What to look at">
            <div class="field">
                <label for="blueprints-deployment">"Deployment"</label>
                <select class="select" id="blueprints-deployment" name="deployment">
                    <option value="" selected=move || wanted.read().deployment.is_none() prop:selected=move || wanted.read().deployment.is_none()>"All"</option>
                    {options}
                    {gone}
                </select>
            </div>
            <div class="field">
                <label for="blueprints-from">"From"</label>
                <input class="input point" id="blueprints-from" name="from" autocomplete="off" spellcheck="false" placeholder="target or hash" value=move || wanted.read().from.clone() prop:value=move || wanted.read().from.clone().unwrap_or_default()/>
            </div>
            <div class="field">
                <label for="blueprints-to">"To"</label>
                <input class="input point" id="blueprints-to" name="to" autocomplete="off" spellcheck="false" placeholder="target or hash" value=move || wanted.read().to.clone() prop:value=move || wanted.read().to.clone().unwrap_or_default()/>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Show"</button>
        </Form>
    }
    .into_any()
}

#[component]
fn Line(first: TargetPage, wanted: Memo<Wanted>) -> impl IntoView {
    let here = wanted.get_untracked();
    let (deployment, before) = (here.deployment.clone(), here.before);
    let of = deployment.clone();
    let feed = Feed::new(first, move || calls::targets(deployment.clone(), before));
    use_live().hear(vec![Topic::Targets], NOW, move |_| feed.soon());
    let page = feed.value();
    let list = Memo::new(move |_| page.read().targets.clone());
    let head = Memo::new(move |_| page.read().head);
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let next = move || page.read().next.map(|next| Wanted { before: Some(next), ..wanted.get() }.address());
    let newest = move || before.map(|_| Wanted { before: None, ..wanted.get() }.address());
    let removed_in = page.read_untracked().removed_in;
    let fate = removed_in.zip(of.clone()).map(|(target, name)| {
        let said = format!("Target {target} removed {name}: it is compared, and drawn as a graph, where it was.");
        view! { <p class="inside">{said}</p> }
    });
    let may_come_back = removed_in.is_none();
    let table = move || {
        match is_empty.get() {
        true => view! {
            <Empty icon=Icon::Blueprint title="Nothing here">
                <p>"No target this far back changed what you look at."</p>
                <a class="button" href=places::BLUEPRINTS>"The whole line"</a>
            </Empty>
        }
        .into_any(),
        false => view! {
            <table class="table folds line-of-targets">
                <thead>
                    <tr>
                        <th scope="col" class="number">"Target"</th>
                        <th scope="col">"What for"</th>
                        <th scope="col">"Proposed by"</th>
                        <th scope="col">"Approved by"</th>
                        <th scope="col">"Committed"</th>
                        <th scope="col">"Blueprint"</th>
                        <th scope="col">"Compare"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |target| target.number, move |target| row(target, wanted, head, may_come_back))}</tbody>
            </table>
        }
        .into_any(),
    }
    };
    let title = of.map_or_else(|| "The line of targets".to_owned(), |name| format!("Targets that changed {name}"));
    view! {
        <ProblemNotice problem=feed.problem()/>
        <section class="card" aria-label="Line of targets">
            <header><h2>{title}</h2> <span class="muted">"newest first"</span></header>
            {fate}
            {table}
            {move || {
                let (next, newest) = (next(), newest());
                (next.is_some() || newest.is_some()).then(|| view! {
                    <nav class="pager" aria-label="Pages of the line">
                        {newest.map(|newest| view! { <a class="button small" href=newest>{icon(Icon::Up)} "Newest"</a> })}
                        <span class="grow"></span>
                        {next.map(|next| view! { <a class="button small" href=next>"Older" {icon(Icon::Right)}</a> })}
                    </nav>
                })
            }}
        </section>
    }
    .into_any()
}

fn row(target: Memo<TargetSummary>, wanted: Memo<Wanted>, head: Memo<TargetNo>, may_come_back: bool) -> impl IntoView {
    // A target never changes.
    let target = target.get_untracked();
    let number = target.number;
    let about = match target.submission {
        Some(submission) => {
            view! { <a class="main" href=places::review(submission)><bdi>{target.title.clone()}</bdi></a> }.into_any()
        }
        None => view! { <bdi>{target.title.clone()}</bdi> }.into_any(),
    };
    let kind = match target.kind {
        TargetKind::Genesis => Some(("blocked", Icon::Blueprint, "genesis")),
        TargetKind::Switch if target.enabled => Some(("active", Icon::Run, "execution on")),
        TargetKind::Switch => Some(("warn", Icon::Paused, "execution off")),
        TargetKind::Change => None,
    };
    let kind = kind.map(|(colour, shape, word)| {
        view! { <span class="pill" data-state=colour>{icon(shape)} {word}</span> }
    });
    let on = target.deployment.clone().map(|name| view! { <span class="muted">"on " {name}</span> });
    let by = target.by.clone().map(|by| view! { <span>{by} ", "</span> });
    let short: String = target.root.chars().take(8).collect();
    let names = |names: &[String]| if names.is_empty() { "–".to_owned() } else { names.join(", ") };
    let restorable = move || {
        let wanted = wanted.get();
        let head = head.get();
        (may_come_back && wanted.deployment.is_some() && number < head)
            .then(|| view! { <a href=wanted.comparing(head, number).address()>"Restore…"</a> })
    };
    view! {
        <tr data-target=number.0.to_string() data-side=move || side_of(&wanted.read(), number)>
            <td data-label="Target" class="number"><b>{number.0}</b></td>
            <td data-label="What for"><div class="about">{about} {on} {kind}</div></td>
            <td data-label="Proposed by">{names(&target.authors)}</td>
            <td data-label="Approved by">{names(&target.approved_by)}</td>
            <td data-label="Committed" class="muted"><span>{by} <Moment at=target.at/></span></td>
            <td data-label="Blueprint"><code title=target.root.clone()>{short}</code></td>
            <td data-label="Compare" class="nowrap">
                <span class="pick">
                    {pick("from", number, wanted, |wanted, number| Wanted { from: Some(number), ..wanted })}
                    {pick("to", number, wanted, |wanted, number| Wanted { to: Some(number), ..wanted })}
                    {(number.0 > 1).then(|| {
                        let changes = move || wanted.read().comparing(number.0 - 1, number).address();
                        view! { <a href=changes aria-label=format!("Changes of target {}", number.0)>"Changes"</a> }
                    })}
                    {restorable}
                </span>
            </td>
        </tr>
    }
    .into_any()
}

/// Takes a target as one side of the comparison.
fn pick(
    word: &'static str,
    number: TargetNo,
    wanted: Memo<Wanted>,
    with: fn(Wanted, String) -> Wanted,
) -> impl IntoView {
    let address = move || with(wanted.get(), number.to_string()).address();
    let is_here = move || (wanted.get() == with(wanted.get(), number.to_string())).then_some("true");
    let label = format!("Compare {word} target {}", number.0);
    view! { <a href=address aria-current=is_here aria-label=label data-noscroll>{word}</a> }.into_any()
}

fn side_of(wanted: &Wanted, number: TargetNo) -> Option<&'static str> {
    let is = |side: &Option<String>| side.as_deref() == Some(number.to_string().as_str());
    match (is(&wanted.from), is(&wanted.to)) {
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
    fn what_is_looked_at_is_in_the_address() {
        let of = |pairs: &[(&str, &str)]| {
            Wanted::of(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[]).address(), "/blueprints");
        assert_eq!(of(&[("deployment", ""), ("from", " "), ("before", "x")]), Wanted::default());
        let wanted = of(&[("deployment", "web"), ("before", "40"), ("from", " 11 "), ("to", "a&b")]);
        assert_eq!(wanted.address(), "/blueprints?deployment=web&before=40&from=11&to=a%26b");
        assert_eq!(wanted.comparing(TargetNo(3), 4).pair(), Some(("3".into(), "4".into())));
        assert_eq!(of(&[("from", "1")]).pair(), None);
    }
}
