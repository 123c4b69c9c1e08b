//! What there is of one node, as lists: what it carries, what came of looks, what runs handed back. Whose it is stands in the path of the address, everything
//! else that a list is asked for in its query.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use crate::places;

/// The node that a page is of, as its address names it.
#[derive(Clone, Copy)]
pub(super) struct Whose(Memo<String>);

impl Whose {
    /// The one in the address.
    pub(super) fn read() -> Self {
        let params = use_params_map();
        Self(Memo::new(move |_| params.read().get("name").unwrap_or_default()))
    }

    /// Its name or id. Who asks hears of another one.
    pub(super) fn name(self) -> String {
        self.0.get()
    }

    /// The same for what is under way. Whoever left the page meanwhile asks for nobody's.
    pub(super) fn name_now(self) -> String {
        self.0.try_get_untracked().unwrap_or_default()
    }
}

/// The page around a list.
pub(super) fn page(
    whose: Whose,
    title: fn(&str) -> String,
    about: &'static str,
    list: AnyView,
) -> AnyView {
    let said = move || title(&whose.name());
    view! {
        <Title text=said/>
        <div class="head">
            <div>
                <div class="muted"><a href=move || places::node(&whose.name())>{move || whose.name()}</a></div>
                <h1>{said}</h1>
                <p class="muted">{about}</p>
            </div>
        </div>
        {list}
    }
    .into_any()
}
