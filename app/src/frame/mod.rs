//! What is around every page: where one can go, where one is, whether it is live, whether steps are started, who one is.

mod account;
mod execution;
pub mod theme;

use api::console::{Frame as FrameView, Me};
use api::live::Topic;
use leptos::html;
use leptos::prelude::*;
use leptos_router::components::Outlet;
use leptos_router::hooks::use_location;

use crate::calls;
use crate::clock::{of_day, use_clock};
use crate::live::{Status, use_live};
use crate::parts::icon::drawn;
use crate::parts::{Feed, Icon, icon, problem_page};
use crate::places;

/// Seconds after which a lost connection is said to make the page stale.
const STALE: i64 = 15;

/// Who is signed in, for pages.
#[derive(Clone)]
pub struct SignedIn(pub Me);

/// Loads the frame, sends away who is not signed in, and shows the page inside.
#[component]
pub fn Frame() -> impl IntoView {
    let frame = Resource::new(|| (), |()| calls::frame());
    view! {
        <Suspense>
            {move || Suspend::new(async move {
                match frame.await {
                    Ok(first) => match first.me.clone() {
                        Some(me) => view! { <Framed first me/> }.into_any(),
                        None => view! { <SignedOut/> }.into_any(),
                    },
                    Err(failure) => view! { <main class="page">{problem_page(failure.0)}</main> }.into_any(),
                }
            })}
        </Suspense>
    }
    .into_any()
}

/// Leads to the sign-in and from there back here.
#[component]
fn SignedOut() -> impl IntoView {
    let location = use_location();
    let (path, search) = (location.pathname.get_untracked(), location.search.get_untracked());
    let here = if search.is_empty() { path } else { format!("{path}?{search}") };
    let sign_in = places::sign_in_for(&here);
    #[cfg(feature = "ssr")]
    leptos_axum::redirect(&sign_in);
    let there = sign_in.clone();
    Effect::new(move |_| {
        let _ = window().location().replace(&there);
    });
    view! { <main class="page"><p>"You are not signed in. " <a rel="external" href=sign_in>"Sign in"</a></p></main> }
        .into_any()
}

#[component]
fn Framed(first: FrameView, me: Me) -> impl IntoView {
    let from = first.cursor;
    let feed = Feed::new(first, calls::frame);
    use_live().hear(vec![Topic::Reviews, Topic::Targets], from, move |_| feed.soon());
    provide_context(SignedIn(me.clone()));

    let frame = feed.value();
    let waiting = Memo::new(move |_| frame.read().reviews_waiting);
    let execution = Memo::new(move |_| frame.read().execution);
    let main = NodeRef::<html::Main>::new();
    focus_after_navigation(main);
    view! {
        <a class="button skip" href="#main">"Skip to the page"</a>
        <div class="frame">
            <a class="brand" href=places::DEPLOYMENTS>
                {drawn(Icon::Gantry, "icon large")}
                <span>"Gantry"</span>
            </a>
            <header class="top">
                <Crumbs/>
                <LiveMark/>
                <execution::Execution on=execution changed=Callback::new(move |()| feed.now())/>
                <account::Account me/>
            </header>
            <Rail waiting/>
            <main class="page" id="main" tabindex="-1" node_ref=main>
                <Outlet/>
            </main>
        </div>
    }
    .into_any()
}

/// Whoever follows a link by keyboard goes on in the new page, not at its very top.
fn focus_after_navigation(main: NodeRef<html::Main>) {
    let path = use_location().pathname;
    Effect::new(move |last: Option<String>| {
        let now = path.get();
        if last.is_some_and(|last| last != now)
            && let Some(main) = main.get_untracked()
        {
            let _ = main.focus();
        }
        now
    });
}

/// The pages that exist.
#[component]
fn Rail(waiting: Memo<usize>) -> impl IntoView {
    let path = use_location().pathname;
    let places = [
        (places::DEPLOYMENTS, Icon::Deployments, "Deployments"),
        (places::NODES, Icon::Node, "Nodes"),
        (places::REVIEWS, Icon::Review, "Reviews"),
        (places::RUNS, Icon::Run, "Runs"),
    ];
    let links = places.into_iter().map(|(place, shape, word)| {
        let is_here = move || path.with(|path| path == place || path.starts_with(&format!("{place}/")));
        let count = (place == places::REVIEWS).then_some(move || {
                let n = waiting.get();
                (n > 0).then(|| view! { <span class="count" title=format!("{n} you can act on")>{n} <span class="unseen">" you can act on"</span></span> })
            });
        view! {
            <li>
                <a href=place title=word aria-current=move || is_here().then_some("page")>
                    {icon(shape)}
                    <span class="word">{word}</span>
                    {count}
                </a>
            </li>
        }
    });
    view! { <nav class="rail" aria-label="Pages"><ul>{links.collect_view()}</ul></nav> }.into_any()
}

/// Where one is, out of the address.
#[component]
fn Crumbs() -> impl IntoView {
    let path = use_location().pathname;
    view! {
        <nav class="crumbs" aria-label="Where you are">
            <ol>{move || crumbs(&path.get()).into_iter().map(crumb).collect_view()}</ol>
        </nav>
    }
    .into_any()
}

fn crumb((name, link): (String, Option<String>)) -> impl IntoView {
    match link {
        Some(link) => view! { <li><a href=link>{name}</a></li> }.into_any(),
        None => view! { <li aria-current="page" class="clip">{name}</li> }.into_any(),
    }
}

/// The names of the places on the way to an address; the last one is no link.
fn crumbs(path: &str) -> Vec<(String, Option<String>)> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return Vec::new() };
    let (name, link) = match first {
        "deployments" => ("Deployments", places::DEPLOYMENTS),
        "nodes" => ("Nodes", places::NODES),
        "reviews" => ("Reviews", places::REVIEWS),
        "runs" => ("Runs", places::RUNS),
        "noderoles" => ("Noderoles", places::DEPLOYMENTS),
        _ => return Vec::new(),
    };
    match parts.next() {
        None => vec![(name.into(), None)],
        Some(id) => {
            let short = if first == "noderoles" { id.chars().take(8).collect() } else { id.to_owned() };
            vec![(name.into(), Some(link.into())), (short, None)]
        }
    }
}

/// Whether what is shown is what is.
#[component]
fn LiveMark() -> impl IntoView {
    let (live, clock) = (use_live(), use_clock());
    let said = Memo::new(move |_| match live.status() {
        Status::Quiet => ("", Icon::Dot, "not live".to_owned()),
        Status::Live => ("active", Icon::Dot, "live".to_owned()),
        Status::Lost { since } if clock.now().0 - since.0 < STALE * 1000 => {
            ("warn", Icon::Again, "reconnecting".to_owned())
        }
        Status::Lost { since } => ("warn", Icon::Lost, format!("stale since {} UTC", &of_day(since)[..8])),
    });
    view! {
        <span class=move || if said.read().0.is_empty() { "pill flat" } else { "pill" } data-state=move || said.read().0 data-live role="status" title="Whether this page follows what happens">
            {move || icon(said.read().1)}
            <span class="word">{move || said.read().2.clone()}</span>
        </span>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crumbs_follow_the_address() {
        let said = |path: &str| crumbs(path).into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" / ");
        assert_eq!(said("/deployments"), "Deployments");
        assert_eq!(said("/deployments/web"), "Deployments / web");
        assert_eq!(said("/noderoles/0123456789ab"), "Noderoles / 01234567");
        assert_eq!(said("/elsewhere"), "");
    }
}
