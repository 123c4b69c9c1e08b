//! The first load of a page.

use api::Problem;
use leptos::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::notice::{ListLink, object_problem_page, problem_page};
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
    say: impl Fn(Problem) -> AnyView + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    view! {
        <Transition fallback=loading>
            {move || {
                let (show, say) = (show.clone(), say.clone());
                Suspend::new(async move {
                    match resource.await {
                        Ok(loaded) => show(loaded).into_any(),
                        Err(failure) => say(failure.0),
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

fn loading() -> impl IntoView {
    view! {
        <div class="loading" aria-busy="true">
            <span class="unseen" role="status">"Loading"</span>
            <i></i>
            <i></i>
            <i></i>
        </div>
    }
    .into_any()
}
