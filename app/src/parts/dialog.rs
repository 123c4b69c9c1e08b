//! Dialogs: the browser's own, so that focus, Escape and what lies behind are its business.
//!
//! A button opens one by `commandfor`, which works without scripts, and one whose form was refused without them is open when the page comes
//! back. Code opens one by its handle. Code may be earlier than the page:
//! who goes to a page from within the console has its effects before its elements, so opening waits until the dialog is there. A dialog
//! that doesn't come, because its page shows why it has none, is not waited for for ever.

use leptos::ev::MouseEvent;
use leptos::html;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::icon::{Icon, icon};

/// Where the focus goes in a dialog: where it says, else to the first thing of its body.
const FIRST: [&str; 2] =
    ["[autofocus]", ".body :is(a[href], button, input, select, textarea):not(:disabled)"];

/// Frames that a dialog is waited for: about a second.
const PATIENCE: u8 = 60;

/// Opens and closes a dialog.
#[derive(Clone, Copy)]
pub struct DialogHandle {
    node: NodeRef<html::Dialog>,
}

impl Default for DialogHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl DialogHandle {
    /// A handle for one dialog.
    pub fn new() -> Self {
        Self { node: NodeRef::new() }
    }

    /// Opens it above the page. One that is open has something else in it now, and the focus goes there.
    pub fn open(self) {
        self.open_within(PATIENCE);
    }

    fn open_within(self, frames: u8) {
        // None once more: the page is left.
        let Some(dialog) = self.node.try_get_untracked() else { return };
        let Some(dialog) = dialog.filter(|dialog| dialog.is_connected()) else {
            if let Some(left) = frames.checked_sub(1) {
                request_animation_frame(move || self.open_within(left));
            }
            return;
        };
        if !dialog.open() {
            // Fails only for a dialog that is not in the page.
            let _ = dialog.show_modal();
        }
        // What is in it may be drawn only now.
        request_animation_frame(move || {
            let first = FIRST.iter().find_map(|first| dialog.query_selector(first).ok().flatten());
            if let Some(first) = first {
                let _ = first.unchecked_into::<web_sys::HtmlElement>().focus();
            }
        });
    }

    /// What a button does that also opens it by `commandfor`: the same, in any browser.
    pub fn on_click(self) -> impl Fn(MouseEvent) + 'static {
        move |event| {
            event.prevent_default();
            self.open();
        }
    }

    /// The same to close it.
    pub fn on_click_close(self) -> impl Fn(MouseEvent) + 'static {
        move |event| {
            event.prevent_default();
            self.close();
        }
    }

    /// Closes it; the focus goes back to where it was.
    pub fn close(self) {
        if let Some(dialog) = self.node.get_untracked() {
            dialog.close();
        }
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
    #[prop(optional, into)]
    wide: Signal<bool>,
    /// Open from the beginning: without scripts its form was refused, and says why.
    #[prop(optional)]
    refused: bool,
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
            class=move || if wide.get() { "dialog wide" } else { "dialog" }
            node_ref=handle.node
            open=refused
            aria-labelledby=heading
            on:close=move |_| {
                if let Some(closed) = closed {
                    closed.run(());
                }
            }
        >
            <header>
                <h2 id=heading_id class="grow">{move || title.get()}</h2>
                <button class="button quiet small only-icon" type="button" commandfor=id command="close" aria-label="Close" on:click=handle.on_click_close()>
                    {icon(Icon::Cross)}
                </button>
            </header>
            {children()}
        </dialog>
    }
    .into_any()
}
