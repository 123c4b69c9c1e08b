//! The lists of one node: noderoles, health checks and results. The node is in the path of the
//! address, all other parameters are in the query.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use crate::addresses;

/// The node of a page, from the path.
#[derive(Clone, Copy)]
pub(super) struct NodeParam(Memo<String>);

impl NodeParam {
    pub(super) fn read() -> Self {
        let params = use_params_map();
        Self(Memo::new(move |_| params.read().get("name").unwrap_or_default()))
    }

    /// The node's name or id, tracked.
    pub(super) fn name(self) -> String {
        self.0.get()
    }

    /// The node's name or id, untracked, for requests. Empty after the reader left the page.
    pub(super) fn name_untracked(self) -> String {
        self.0.try_get_untracked().unwrap_or_default()
    }
}

/// The page around a list.
pub(super) fn page(
    node: NodeParam,
    title: fn(&str) -> String,
    about: &'static str,
    list: AnyView,
) -> AnyView {
    let message = move || title(&node.name());
    view! {
        <Title text=message/>
        <div class="head">
            <div>
                <div class="muted">
                    <a href=move || addresses::node(&node.name())>{move || node.name()}</a>
                </div>
                <h1>{message}</h1>
                <p class="muted">{about}</p>
            </div>
        </div>
        {list}
    }
    .into_any()
}
