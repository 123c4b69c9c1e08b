//! Dialogs: the browser's own, so that focus, Escape and what lies behind are its business.
//!
//! A button opens one by `commandfor`, which works without scripts; code opens one by its handle.

use leptos::html;
use leptos::prelude::*;

use super::icon::{Icon, icon};

/// Opens and closes a dialog.
#[derive(Clone, Copy)]
pub struct DialogHandle {
    node: NodeRef<html::Dialog>,
    /// Rises each time it is opened by code or by a button.
    opened: RwSignal<u32>,
}

impl Default for DialogHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl DialogHandle {
    /// A handle for one dialog.
    pub fn new() -> Self {
        Self { node: NodeRef::new(), opened: RwSignal::new(0) }
    }

    /// Opens it above the page.
    pub fn open(self) {
        if let Some(dialog) = self.node.get_untracked() {
            if !dialog.open() {
                // Fails only for a dialog that is not in the page.
                let _ = dialog.show_modal();
            }
            self.opened.update(|n| *n += 1);
        }
    }

    /// Closes it; the focus goes back to where it was.
    pub fn close(self) {
        if let Some(dialog) = self.node.get_untracked() {
            dialog.close();
        }
    }

    /// Whether it is open.
    pub fn is_open(self) -> bool {
        self.node.get_untracked().is_some_and(|dialog| dialog.open())
    }
}

/// A dialog with a heading and a way out. Its children are a form or a body and a foot.
#[component]
pub fn Dialog(
    /// The name by which buttons open it.
    id: &'static str,
    /// What it is about.
    #[prop(into)]
    title: Signal<String>,
    /// Opens it from code.
    handle: DialogHandle,
    /// Room for long things.
    #[prop(optional)]
    wide: bool,
    /// Called when it closed, whichever way.
    #[prop(optional, into)]
    closed: Option<Callback<()>>,
    children: Children,
) -> impl IntoView {
    let heading = format!("{id}-title");
    let heading_id = heading.clone();
    view! {
        <dialog
            id=id
            class=if wide { "dialog wide" } else { "dialog" }
            node_ref=handle.node
            aria-labelledby=heading
            on:close=move |_| {
                if let Some(closed) = closed {
                    closed.run(());
                }
            }
        >
            <header>
                <h2 id=heading_id class="grow">{move || title.get()}</h2>
                <button class="button quiet small only-icon" type="button" commandfor=id command="close" aria-label="Close" on:click=move |_| handle.close()>
                    {icon(Icon::Cross)}
                </button>
            </header>
            {children()}
        </dialog>
    }
    .into_any()
}
