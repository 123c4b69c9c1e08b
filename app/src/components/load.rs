//! The first load of a page or a part of it. A failed load is retried (`retry`).

use std::future::{Future, ready};

use api::Problem;
use leptos::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::notice::{ListLink, object_problem_page, problem_page};
use super::progress;
use super::retry::Retry;
use crate::failure::ServerResult;

/// Shows the loaded value or the error. While a new source loads (the next page of a list), the
/// last value remains visible.
pub fn load<T, V>(
    resource: Resource<ServerResult<T>>,
    show: impl Fn(T) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    load_with_error(resource, show, |problem| problem_page(problem).into_any())
}

/// As [`load`]. On an error it also links to the list of all objects of the kind.
pub fn load_one<T, V>(
    resource: Resource<ServerResult<T>>,
    list_link: ListLink,
    show: impl Fn(T) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    load_with_error(resource, show, move |problem| object_problem_page(problem, list_link))
}

/// As [`load`], for a part of a page with its own error message.
pub fn load_with_error<T, V>(
    resource: Resource<ServerResult<T>>,
    show: impl Fn(T) -> V + Clone + Send + Sync + 'static,
    show_error: impl Fn(Problem) -> AnyView + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    let show = move |loaded| ready(show(loaded).into_any());
    load_part(resource, loading, show, move |problem| ready(show_error(problem)))
}

/// As [`load_with_error`], with another view until the value is loaded. Both views may load further
/// things.
pub fn load_part<T, S, E>(
    resource: Resource<ServerResult<T>>,
    fallback: fn() -> AnyView,
    show: impl Fn(T) -> S + Clone + Send + Sync + 'static,
    show_error: impl Fn(Problem) -> E + Clone + Send + Sync + 'static,
) -> AnyView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    S: Future<Output = AnyView> + Send + 'static,
    E: Future<Output = AnyView> + Send + 'static,
{
    let retry = Retry::new();
    let body = move || {
        let (show, show_error) = (show.clone(), show_error.clone());
        Suspend::new(async move {
            match resource.await {
                Ok(loaded) => {
                    retry.succeeded();
                    show(loaded).await
                }
                Err(failure) => {
                    retry.failed(&failure.0, move || resource.refetch());
                    // For the button of the error message.
                    provide_context(retry);
                    show_error(failure.0).await
                }
            }
        })
    };
    view! { <Transition fallback set_pending=progress::loads()>{body}</Transition> }.into_any()
}

/// The fallback of a small part.
pub fn loading_text() -> AnyView {
    view! { <p class="padded muted" role="status">"Loading"</p> }.into_any()
}

fn loading() -> AnyView {
    view! {
        <div class="loading" aria-busy="true">
            <span class="visually-hidden" role="status">"Loading"</span>
            <i></i>
            <i></i>
            <i></i>
        </div>
    }
    .into_any()
}
