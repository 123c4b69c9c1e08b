//! Dialogs: `<dialog>` elements, so that the browser handles focus, Escape and the inert page
//! below.
//!
//! A button opens a dialog via `commandfor`, which works without JavaScript. If its form was
//! refused without JavaScript, the dialog is open when the page loads again. Code opens a dialog
//! via its handle. After a navigation inside the console, effects run before the elements exist, so
//! opening waits for the dialog. It gives up if the dialog never appears, for example because the
//! page shows an error instead.

use leptos::ev::MouseEvent;
use leptos::html;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::icon::{Icon, icon};

/// The selectors for the initial focus: the marked element or the first control of the body.
const FIRST: [&str; 2] =
    ["[autofocus]", ".body :is(a[href], button, input, select, textarea):not(:disabled)"];

/// The number of frames to wait for a dialog: about a second.
const MAX_FRAMES: u8 = 60;

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
    pub fn new() -> Self {
        Self { node: NodeRef::new() }
    }

    /// Opens the dialog as modal. If it is already open, its content changed, so it gets the focus
    /// again.
    pub fn open(self) {
        self.open_within(MAX_FRAMES);
    }

    fn open_within(self, frames: u8) {
        // The handle is disposed: the reader left the page.
        let Some(dialog) = self.node.try_get_untracked() else { return };
        let Some(dialog) = dialog.filter(|dialog| dialog.is_connected()) else {
            if let Some(left) = frames.checked_sub(1) {
                request_animation_frame(move || self.open_within(left));
            }
            return;
        };
        if !dialog.open() {
            // Fails only for a dialog that is not in the document.
            let _ = dialog.show_modal();
        }
        // The dialog's content may be rendered only in the next frame.
        request_animation_frame(move || {
            let first = FIRST.iter().find_map(|first| dialog.query_selector(first).ok().flatten());
            if let Some(first) = first {
                let _ = first.unchecked_into::<web_sys::HtmlElement>().focus();
            }
        });
    }

    /// Opens the dialog on click, for browsers without `commandfor`.
    pub fn on_click(self) -> impl Fn(MouseEvent) + 'static {
        move |event| {
            event.prevent_default();
            self.open();
        }
    }

    /// Closes the dialog on click, for browsers without `commandfor`.
    pub fn on_click_close(self) -> impl Fn(MouseEvent) + 'static {
        move |event| {
            event.prevent_default();
            self.close();
        }
    }

    /// Closes the dialog. The browser restores the focus.
    pub fn close(self) {
        if let Some(dialog) = self.node.get_untracked() {
            dialog.close();
        }
    }
}

/// A dialog with a heading and a close button. Its children are a form, or a body and a footer.
#[component]
pub fn Dialog(
    /// The id for `commandfor`.
    id: &'static str,
    #[prop(into)] title: Signal<String>,
    handle: DialogHandle,
    /// Makes the dialog wide, for long content.
    #[prop(optional, into)]
    wide: Signal<bool>,
    /// Opens the dialog initially, because its form was refused without JavaScript.
    #[prop(optional)]
    refused: bool,
    /// Called on every close.
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
                <button
                    class="button quiet small only-icon"
                    type="button"
                    commandfor=id
                    command="close"
                    aria-label="Close"
                    on:click=handle.on_click_close()
                >
                    {icon(Icon::Cross)}
                </button>
            </header>
            {children()}
        </dialog>
    }
    .into_any()
}
