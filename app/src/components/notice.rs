//! Errors and empty states.

use api::Problem;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_location;

use super::icon::{Icon, icon};
use super::retry::{Retry, try_again};
use crate::addresses;

/// An error message next to its cause.
#[component]
pub fn ProblemNotice(
    #[prop(into)] problem: Signal<Option<Problem>>,
    /// Makes the message dismissible.
    #[prop(optional, into)]
    dismiss: Option<Callback<()>>,
    /// The retry of the load that failed.
    #[prop(optional, into)]
    retry: Option<Retry>,
) -> impl IntoView {
    let retry = retry.or_else(use_context);
    move || {
        problem.get().map(|problem| {
            let findings = problem.errors.iter().map(|finding| {
                view! {
                    <li>
                        {(!finding.at.is_empty()).then(|| format!("{}: ", finding.at))}
                        {finding.detail.clone()}
                    </li>
                }
            });
            let findings = (!problem.errors.is_empty()).then(|| {
                view! {
                    <ul>{findings.collect_view()}</ul>
                }
            });
            view! {
                <div class="notice" data-state="error" role="alert">
                    {icon(Icon::Error)}
                    <div>
                        <b>{problem.title.clone()}</b>
                        <p>{problem.detail.clone()}</p>
                        {findings}
                    </div>
                    <div class="buttons">
                        {
                            retry.and_then(
                                |_| try_again(&problem, retry, "button small", current_address())
                            )
                        }
                        {(problem.status == 401).then(|| view! {
                            <a class="button small" rel="external" href=sign_in_link()>"Sign in"</a>
                        })}
                        {dismiss
                            .map(|dismiss| {
                                view! {
                                    <button
                                        class="button quiet small only-icon needs-scripts"
                                        type="button"
                                        aria-label="Dismiss message"
                                        on:click=move |_| dismiss.run(())
                                    >
                                        {icon(Icon::Cross)}
                                    </button>
                                }
                            })}
                    </div>
                </div>
            }
        })
    }
}

/// The address of this page.
fn current_address() -> String {
    let location = use_location();
    let (path, search) = (location.pathname.get_untracked(), location.search.get_untracked());
    let query = if search.is_empty() { String::new() } else { format!("?{search}") };
    format!("{path}{query}")
}

/// The sign-in page, which redirects back to this page.
fn sign_in_link() -> String {
    addresses::sign_in_with_next(&current_address())
}

/// The content of a page that could not be loaded.
pub fn problem_page(problem: Problem) -> impl IntoView {
    problem_page_with(
        problem,
        view! { <a class="button" href=addresses::DEPLOYMENTS>"All deployments"</a> }.into_any(),
    )
}

/// The list of all objects of a kind: its address and the text of the link.
pub type ListLink = (&'static str, &'static str);

/// The content of an object's page that could not be loaded, with a link to the list of its kind.
pub fn object_problem_page(problem: Problem, (all, word): ListLink) -> AnyView {
    problem_page_with(problem, view! { <a class="button" href=all>{word}</a> }.into_any())
}

/// As [`problem_page`], with further links.
pub fn problem_page_with(problem: Problem, links: AnyView) -> AnyView {
    let title = problem.title.clone();
    view! {
        <Title text=title.clone()/>
        {problem_card(problem, view! { <h1>{title}</h1> }.into_any(), links)}
    }
    .into_any()
}

/// A part of a page that could not be loaded, with links.
pub fn problem_in_page(problem: Problem, links: AnyView) -> AnyView {
    let title = problem.title.clone();
    problem_card(problem, view! { <h2>{title}</h2> }.into_any(), links)
}

fn problem_card(problem: Problem, title: AnyView, links: AnyView) -> AnyView {
    let is_missing = problem.status == 404;
    view! {
        <div class="empty card" data-status=problem.status.to_string()>
            {icon(if is_missing { Icon::Search } else { Icon::Warn })}
            {title}
            <p>{problem.detail.clone()}</p>
            <div class="buttons">
                {(problem.status == 401).then(|| view! {
                    <a class="button primary" rel="external" href=sign_in_link()>"Sign in"</a>
                })}
                {try_again(&problem, use_context(), "button", current_address())}
                {links}
            </div>
        </div>
    }
    .into_any()
}

/// The empty state of a list, with the action that creates the first item.
#[component]
pub fn Empty(
    /// The icon of the missing items.
    icon: Icon,
    /// The message, such as "No runs yet".
    #[prop(into)]
    title: String,
    /// The explanation and the action.
    children: Children,
) -> impl IntoView {
    view! {
        <div class="empty">
            {super::icon(icon)}
            <b>{title}</b>
            {children()}
        </div>
    }
    .into_any()
}
