//! The frame around every page: navigation, breadcrumbs, live status, execution switch and account
//! menu.

mod account;
mod execution;
mod history;
mod palette;
pub mod server_functions;
pub mod theme;

use api::live::Topic;
use api::people::AccessNotice;
use api::reviews::ReviewCount;
use api::views::frame::{Frame as FrameView, Me};
use leptos::html;
use leptos::prelude::*;
use leptos_router::components::Outlet;
use leptos_router::hooks::use_location;

use crate::addresses;
use crate::clock::{time_of_day, use_clock};
use crate::components::icon::drawn;
use crate::components::progress::use_progress;
use crate::components::{Feed, Icon, Retry, icon};
use crate::live::{Status, use_live};
use crate::search_results::{NAVIGATION, PRIMARY_COUNT};

/// Seconds without a connection before the page is marked as stale.
const STALE_AFTER: i64 = 15;

/// The updates of the frame's data after the first render.
///
/// The server never writes to this signal. Several threads render one page there, and a signal
/// appears disposed to a reader while another thread writes to it. Such a reader panicked, and the
/// response never ended.
#[derive(Clone, Copy)]
struct FrameState(Feed<Option<FrameView>>);

impl FrameState {
    fn waiting(self) -> Option<ReviewCount> {
        self.seen(|frame| frame.pending_reviews)
    }

    fn execution(self) -> Option<bool> {
        self.seen(|frame| frame.execution).flatten()
    }

    /// Returns `None` before the first update, after disposal, and without a sign-in.
    fn seen<R>(self, of: impl FnOnce(&FrameView) -> R) -> Option<R> {
        self.0.value().try_read()?.as_ref().map(of)
    }
}

/// The frame and the page in it.
///
/// The page is outside of the `Suspense` that loads the frame's data. A page creates its resources
/// when it is built, and children of a pending `Suspense` are built more than once.
#[component]
pub fn Frame() -> impl IntoView {
    let frame = Resource::new(|| (), |()| server_functions::frame());
    let state = FrameState(Feed::new(None, server_functions::frame));
    let main = NodeRef::<html::Main>::new();
    focus_after_navigation(main);
    history::follow();
    let progress = use_progress();
    let retry = Retry::new();
    Effect::new(move |_| match frame.get() {
        Some(Err(failure)) => retry.failed(&failure.0, move || frame.refetch()),
        Some(Ok(_)) => retry.succeeded(),
        None => {}
    });
    let known = move |show: fn(FrameState, Option<FrameView>) -> AnyView| {
        move || {
            Suspend::new(async move {
                let first = frame.await.ok()?;
                Some(show(state, first))
            })
        }
    };
    view! {
        <a class="button skip" href="#main">"Skip to content"</a>
        <div class="frame">
            <header>
                <a class="brand" href=addresses::OVERVIEW>
                    {drawn(Icon::Gantry, "icon large")}
                    <span>"Gantry"</span>
                </a>
                <div class="top">
                    <Crumbs/>
                    <Suspense>{known(top)}</Suspense>
                </div>
                <div
                    class="progress"
                    role="progressbar"
                    aria-label="Loading the page"
                    hidden=move || !progress.is_slow()
                ></div>
            </header>
            <Navigation>
                <Suspense>{known(waiting)}</Suspense>
            </Navigation>
            <main
                class="page"
                id="main"
                tabindex="-1"
                node_ref=main
                aria-busy=move || progress.is_slow().then_some("true")
            >
                <Outlet/>
            </main>
        </div>
    }
    .into_any()
}

/// The right end of the top bar. Without a sign-in, the link to the sign-in page.
fn top(state: FrameState, first: Option<FrameView>) -> AnyView {
    match first {
        Some(first) => view! {
            <Top state
                me=first.me
                from=first.cursor
                execution=first.execution
                reset=first.reset
            />
        }
        .into_any(),
        None => view! { <SignInRedirect/> }.into_any(),
    }
}

#[component]
fn Top(
    state: FrameState,
    me: Me,
    from: Option<i64>,
    execution: Option<bool>,
    reset: Option<AccessNotice>,
) -> impl IntoView {
    if let Some(from) = from {
        use_live()
            .subscribe(vec![Topic::Reviews, Topic::Blueprints], from, move |_| state.0.soon());
    }
    let execution = execution.map(|execution| {
        let on = Memo::new(move |_| state.execution().unwrap_or(execution));
        view! { <execution::ExecutionSwitch on changed=Callback::new(move |()| state.0.now())/> }
    });
    theme::provide_current();
    view! {
        <palette::Palette/>
        <LiveStatus/>
        {execution}
        <account::Account me reset/>
    }
    .into_any()
}

/// The number of reviews that the reader can act on.
fn waiting(state: FrameState, first: Option<FrameView>) -> AnyView {
    let first = first.map(|first| first.pending_reviews).unwrap_or_default();
    let count = Memo::new(move |_| state.waiting().unwrap_or(first));
    let badge = move || {
        let waiting = count.get();
        (waiting != ReviewCount::default()).then(|| {
            let (shown, text) = words(waiting);
            let title = text.clone();
            view! {
                <span class="count" title=title>
                    <span aria-hidden="true">{shown}</span>
                    <span class="visually-hidden">{text}</span>
                </span>
            }
        })
    };
    badge.into_any()
}

/// The badge as short text and in words. `more`: further reviews may be pending, because there are
/// too many to count, or some are still being evaluated.
fn words(waiting: ReviewCount) -> (String, String) {
    match waiting {
        ReviewCount { count: 0, more: true } => {
            ("…".into(), "Counting the reviews that need your action".into())
        }
        ReviewCount { count, more: true } => {
            (waiting.to_string(), format!("Reviews that need your action: {count} or more"))
        }
        ReviewCount { count, more: false } => {
            (waiting.to_string(), format!("Reviews that need your action: {count}"))
        }
    }
}

/// Redirects to the sign-in page, which redirects back here.
#[component]
fn SignInRedirect() -> impl IntoView {
    let location = use_location();
    let (path, search) = (location.pathname.get_untracked(), location.search.get_untracked());
    let current = if search.is_empty() { path } else { format!("{path}?{search}") };
    let sign_in = addresses::sign_in_with_next(&current);
    #[cfg(feature = "ssr")]
    leptos_axum::redirect(&sign_in);
    let target = sign_in.clone();
    Effect::new(move |_| {
        let _ = window().location().replace(&target);
    });
    view! { <a class="button small" rel="external" href=sign_in>"Sign in"</a> }.into_any()
}

/// Moves the focus to the new page after keyboard navigation. Otherwise it would be at the top of
/// the document.
fn focus_after_navigation(main: NodeRef<html::Main>) {
    let path = use_location().pathname;
    Effect::new(move |last: Option<String>| {
        let now = path.get();
        if last.is_some_and(|last| last != now)
            && let Some(main) = main.get_untracked()
        {
            // The focus must not scroll: the position may just have been restored.
            let top = window().scroll_y().unwrap_or_default();
            let _ = main.focus();
            window().scroll_to_with_x_and_y(0.0, top);
        }
        now
    });
}

/// The id of the list that the *More* button opens.
const MORE_LIST_ID: &str = "rail-more";

/// The navigation. `children` is shown with the link to the reviews.
///
/// A narrow screen shows only the first pages. A button with `popovertarget` opens the others,
/// which works without JavaScript.
#[component]
fn Navigation(children: Children) -> impl IntoView {
    let mut children = Some(children);
    let mut shown: Vec<AnyView> = NAVIGATION
        .into_iter()
        .map(|(to, shape, word)| {
            let badge = if to == addresses::REVIEWS { children.take() } else { None };
            nav_link(to, shape, word, badge).into_any()
        })
        .collect();
    let more = NodeRef::<html::Ul>::new();
    close_after_navigation(more);
    let rest = shown.split_off(PRIMARY_COUNT.min(shown.len()));
    let path = use_location().pathname;
    let is_in_rest = move || {
        path.with(|path| {
            NAVIGATION.iter().skip(PRIMARY_COUNT).any(|(place, ..)| is_within(path, place))
        })
    };
    view! {
        <nav class="rail" aria-label="Pages">
            <ul>
                {shown}
            </ul>
            <button
                class="more-pages"
                type="button"
                popovertarget=MORE_LIST_ID
                aria-current=move || is_in_rest().then_some("true")
            >
                {icon(Icon::More)} "More"
            </button>
            <ul class="rest" id=MORE_LIST_ID popover="auto" node_ref=more>
                {rest}
            </ul>
        </nav>
    }
    .into_any()
}

/// Closes the navigation's popover, which would cover the new page.
fn close_after_navigation(open: NodeRef<html::Ul>) {
    let path = use_location().pathname;
    Effect::new(move |last: Option<String>| {
        let now = path.get();
        if last.is_some_and(|last| last != now)
            && let Some(open) = open.get_untracked()
        {
            // Fails if the popover is closed, which is fine.
            let _ = open.hide_popover();
        }
        now
    });
}

/// Whether a path is the page `nav_link` or below it.
fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn nav_link(
    place: &'static str,
    shape: Icon,
    word: &'static str,
    badge: Option<Children>,
) -> impl IntoView {
    let path = use_location().pathname;
    let is_here = move || path.with(|path| is_within(path, place));
    view! {
        <li>
            <a href=place title=word aria-current=move || is_here().then_some("page")>
                {icon(shape)}
                <span class="caption">{word}</span>
                {badge.map(|badge| badge())}
            </a>
        </li>
    }
    .into_any()
}

/// Breadcrumbs, derived from the address.
#[component]
fn Crumbs() -> impl IntoView {
    let path = use_location().pathname;
    view! {
        <nav class="crumbs" aria-label="Breadcrumbs">
            <ol>{move || crumbs(&path.get()).into_iter().map(crumb).collect_view()}</ol>
        </nav>
    }
    .into_any()
}

fn crumb((name, link): (String, Option<String>)) -> impl IntoView {
    let whole = name.clone();
    match link {
        Some(link) => {
            view! { <li><a href=link class="clip" title=whole>{name}</a></li> }.into_any()
        }
        None => view! { <li aria-current="page"><span class="clip" title=whole>{name}</span></li> }
            .into_any(),
    }
}

/// The breadcrumbs of a path, each with its link. The last one is the current page and has none.
fn crumbs(path: &str) -> Vec<(String, Option<String>)> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let Some(first) = parts.first() else { return vec![("Overview".into(), None)] };
    let Some(name) = name_of(first) else { return Vec::new() };
    let mut breadcrumbs = vec![(name.to_owned(), Some(list_of(first)))];
    for end in 1..parts.len() {
        let (before, last) = (&parts[..end], parts[end]);
        breadcrumbs
            .push((subpage_title(before, last), Some(format!("/{}", parts[..=end].join("/")))));
    }
    if let Some((_, link)) = breadcrumbs.last_mut() {
        *link = None;
    }
    breadcrumbs
}

/// The title for the first segment of a path. `None`: there are no such pages.
fn name_of(first: &str) -> Option<&'static str> {
    Some(match first {
        "deployments" => "Deployments",
        "nodes" => "Nodes",
        "graph" => "Graph",
        "graphs" => "Graphs",
        "reviews" => "Reviews",
        "runs" => "Runs",
        "pending" => "Pending",
        "workers" => "Workers",
        "audit" => "Audit",
        "search" => "Search",
        "catalog" => "Catalog",
        "settings" => "Settings",
        "blueprints" => "Blueprints",
        "noderoles" => "Noderoles",
        "proposals" => "Proposals",
        _ => return None,
    })
}

/// The list page for the first segment of a path.
fn list_of(first: &str) -> String {
    match first {
        // Noderoles have no list page. They are shown on boards.
        "noderoles" => addresses::DEPLOYMENTS.to_owned(),
        // Only proposals on a node have pages. Proposals on a deployment are shown on its board.
        "proposals" => addresses::DRAFTS.to_owned(),
        first => format!("/{first}"),
    }
}

/// The title for a further segment of a path: the title of a known page, or the name or id.
fn subpage_title(before: &[&str], last: &str) -> String {
    let title = match (before, last) {
        (["catalog"], "roles") => "Roles",
        (["catalog"], "graph") => "Dependencies of roles",
        (["catalog"], "imports") => "Imports",
        (["settings"], "account") => "My account",
        (["settings"], "people") => "People",
        (["settings"], "services") => "Service accounts",
        (["settings"], "policy") => "Policy",
        (["noderoles" | "runs", _], "data") => "Data",
        (["nodes", _], "health-checks") => "Health checks",
        (["nodes", _], "noderoles") => "Noderoles",
        (["nodes", _], "results") => "Results",
        (["noderoles" | "workers"], id) => return id.chars().take(8).collect(),
        _ => return last.to_owned(),
    };
    title.to_owned()
}

/// Shows whether the page is live, and since when it is stale.
#[component]
fn LiveStatus() -> impl IntoView {
    let (live, clock) = (use_live(), use_clock());
    let text = Memo::new(move |_| match live.status() {
        Status::Quiet => ("", Icon::Dot, "not live".to_owned()),
        Status::Live => ("active", Icon::Dot, "live".to_owned()),
        Status::Lost { since } if clock.now().0 - since.0 < STALE_AFTER * 1000 => {
            ("warn", Icon::Rerun, "reconnecting".to_owned())
        }
        Status::Lost { since } => {
            ("warn", Icon::Lost, format!("stale since {} UTC", &time_of_day(since)[..8]))
        }
    });
    view! {
        <span
            class=move || if text.read().0.is_empty() { "pill flat" } else { "pill" }
            data-state=move || text.read().0 data-live
            role="status"
            title="Live updates of this page"
        >
            {move || icon(text.read().1)}
            <span class="caption">{move || text.read().2.clone()}</span>
        </span>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breadcrumbs_match_the_path() {
        let text = |path: &str| {
            crumbs(path).into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" / ")
        };
        assert_eq!(text("/"), "Overview");
        assert_eq!(text("/workers/0123456789ab"), "Workers / 01234567");
        assert_eq!(text("/deployments"), "Deployments");
        assert_eq!(text("/deployments/web"), "Deployments / web");
        assert_eq!(text("/noderoles/0123456789ab"), "Noderoles / 01234567");
        assert_eq!(text("/noderoles/0123456789ab/data"), "Noderoles / 01234567 / Data");
        assert_eq!(text("/proposals/17"), "Proposals / 17");
        assert_eq!(text("/catalog/roles/app"), "Catalog / Roles / app");
        assert_eq!(text("/settings/people/ada.lovelace"), "Settings / People / ada.lovelace");
        assert_eq!(text("/elsewhere"), "");
    }

    #[test]
    fn breadcrumbs_are_links_except_the_last() {
        let links = |path: &str| crumbs(path).into_iter().map(|(_, link)| link).collect::<Vec<_>>();
        let to = |place: &str| Some(place.to_owned());
        assert_eq!(links("/"), [None]);
        assert_eq!(links("/catalog"), [None]);
        assert_eq!(links("/catalog/roles/app"), [to("/catalog"), to("/catalog/roles"), None]);
        assert_eq!(
            links("/settings/people/ada.lovelace"),
            [to("/settings"), to("/settings/people"), None]
        );
        assert_eq!(
            links("/noderoles/0123456789ab/data"),
            [to("/deployments"), to("/noderoles/0123456789ab"), None]
        );
        assert_eq!(links("/proposals/17"), [to(addresses::DRAFTS), None]);
    }
}
