//! A page's first load.

use api::Problem;
use leptos::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::notice::{Kin, problem_of_one, problem_page};
use crate::failure::Answer;

/// Shows what was loaded, or why it could not be. A page that is loaded for another source (the next page of a list) keeps showing
/// the last one until then.
pub fn load<T, V>(
    resource: Resource<Answer<T>>,
    show: impl Fn(T) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    load_or(resource, show, |problem| problem_page(problem).into_any())
}

/// The same, with the way to the list of its kind where it can't be had: what is not there is looked for among its like.
pub fn load_one<T, V>(
    resource: Resource<Answer<T>>,
    all: Kin,
    show: impl Fn(T) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    load_or(resource, show, move |problem| problem_of_one(problem, all))
}

/// The same for what is a part of a page, which says by itself why it could not be loaded.
pub fn load_or<T, V>(
    resource: Resource<Answer<T>>,
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
