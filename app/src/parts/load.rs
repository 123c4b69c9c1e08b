//! A page's first load.

use leptos::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::notice::problem_page;
use crate::failure::Answer;

/// Shows what was loaded, or why it could not be. A page that is loaded for another source (the next page of a list) keeps showing
/// the last one until then.
pub fn load<T, V>(resource: Resource<Answer<T>>, show: impl Fn(T) -> V + Clone + Send + Sync + 'static) -> impl IntoView
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    V: IntoView + 'static,
{
    view! {
        <Transition fallback=loading>
            {move || {
                let show = show.clone();
                Suspend::new(async move {
                    match resource.await {
                        Ok(loaded) => show(loaded).into_any(),
                        Err(failure) => problem_page(failure.0).into_any(),
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
