//! *CLI and API*: the commands that are equivalent to a form or page.
//!
//! [`api::calls`] generates the commands. This component shows them in a collapsed section and
//! copies them. They contain the current values of the page. Missing values (a reason, a title) are
//! in capitals. They change to the text of the surrounding form's fields. Without JavaScript, the
//! capitals remain.

use std::collections::BTreeMap;

use api::calls::{Call, List, SERVER_VARIABLE, SESSION_VARIABLE, TOKEN, list};
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::{ev, html};
use leptos_router::hooks::use_query_map;
use wasm_bindgen::{JsCast, JsValue};

use super::icon::{Icon, icon};

/// The input of a form, by field.
#[derive(Clone, Copy)]
pub struct FormValues {
    fields: RwSignal<BTreeMap<String, String>>,
}

impl FormValues {
    /// The text of a field. Empty if the field is missing or empty.
    pub fn get(self, field: &str) -> String {
        self.fields.read().get(field).map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    /// The text of a field, or a placeholder.
    pub fn or(self, field: &str, default: &str) -> String {
        Some(self.get(field)).filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
    }

    /// Whether a checkbox is ticked.
    pub fn is_checked(self, field: &str) -> bool {
        !self.get(field).is_empty()
    }
}

/// The collapsed section with the commands.
#[component]
pub fn EquivalentCommands(
    /// The equivalent calls for the current input of the surrounding form.
    #[prop(into)]
    of: Callback<FormValues, Vec<Call>>,
) -> impl IntoView {
    let typed = FormValues { fields: RwSignal::new(BTreeMap::new()) };
    let calls = Memo::new(move |_| of.run(typed));
    let fold = NodeRef::<html::Details>::new();
    let read = move || {
        let now = fold
            .try_get_untracked()
            .flatten()
            .filter(|fold| fold.open())
            .and_then(|fold| form_fields(&fold));
        if let Some(now) = now {
            typed.fields.try_set(now);
        }
    };
    Effect::new(move |_| {
        let handle = window_event_listener(ev::input, move |_| read());
        on_cleanup(move || handle.remove());
    });
    let shown = move || calls.get().into_iter().map(one).collect_view();
    view! {
        <details
            class="commands"
            node_ref=fold
            hidden=move || calls.read().is_empty()
            on:toggle=move |_| read()
        >
            <summary>{icon(Icon::Right)} "CLI and API"</summary>
            <div class="calls">
                {shown}
                <p class="muted">{move || note(&calls.read())}</p>
            </div>
        </details>
    }
    .into_any()
}

/// The commands that return the list of the page, with the parameters of its address.
#[component]
pub fn ListCommands(
    of: List,
    /// Parameters that the address does not have, or has under another name.
    #[prop(optional)]
    given: Vec<(&'static str, String)>,
) -> impl IntoView {
    let query = use_query_map();
    let calls = move |_: FormValues| {
        let query = query.read();
        let value_of = |word: &str| match given.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => Some(value.clone()),
            None => query.get(word),
        };
        vec![list(of, value_of)]
    };
    view! { <EquivalentCommands of=calls/> }
}

/// The prerequisites of the commands.
fn note(calls: &[Call]) -> String {
    let session = calls.iter().any(|call| call.curl().contains(SESSION_VARIABLE));
    let token = calls.iter().any(|call| call.curl().contains(TOKEN));
    let by = match (token, session) {
        (true, true) => {
            format!(
                "{TOKEN} to an API token, and {SESSION_VARIABLE} to a session cookie file for \
                 requests that tokens cannot make"
            )
        }
        (false, true) => {
            format!(
                "{SESSION_VARIABLE} to a session cookie file, because tokens cannot make this \
                 request"
            )
        }
        _ => format!("{TOKEN} to an API token"),
    };
    format!(
        "Set {SERVER_VARIABLE} to the URL of this server, and {by}. Replace the words in capitals."
    )
}

fn one(call: Call) -> impl IntoView {
    view! {
        {command("CLI", call.cli())}
        {command("API", call.curl())}
    }
}

fn command(by: &'static str, line: String) -> impl IntoView {
    let message = RwSignal::new("");
    let text = StoredValue::new(line.clone());
    let code = NodeRef::<html::Code>::new();
    let copy = move |_| {
        spawn_local(async move {
            let is_copied = match text.with_value(|text| written(text)) {
                Some(promise) => promise.await.is_ok(),
                None => false,
            };
            if !is_copied {
                select(code);
            }
            message.try_set(if is_copied {
                "Copied"
            } else {
                "Selected: copy it with your keyboard"
            });
        });
    };
    view! {
        <div class="call">
            <span class="by">{by}</span>
            <code node_ref=code>{line}</code>
            <button
                class="button quiet small needs-scripts"
                type="button"
                aria-label=format!("Copy the command for the {by}")
                on:click=copy
            >
                "Copy"
            </button>
            <small role="status" class="muted">{move || message.get()}</small>
        </div>
    }
    .into_any()
}

/// Writes a text to the clipboard. `None`: the browser forbids it, for example on a page over plain
/// HTTP from another machine.
fn written(text: &str) -> Option<js_sys::Promise> {
    let clipboard =
        js_sys::Reflect::get(&window().navigator(), &JsValue::from_str("clipboard")).ok()?;
    let write = js_sys::Reflect::get(&clipboard, &JsValue::from_str("writeText")).ok()?;
    let write = write.dyn_into::<js_sys::Function>().ok()?;
    write.call1(&clipboard, &JsValue::from_str(text)).ok()?.dyn_into().ok()
}

/// Selects a command, so that the reader can copy it.
fn select(code: NodeRef<html::Code>) {
    let selection = window().get_selection().ok().flatten();
    if let (Some(code), Some(selection)) = (code.try_get_untracked().flatten(), selection) {
        // Fails only for an element that is not in the document.
        let _ = selection.select_all_children(&code);
    }
}

/// The input of the form around a section. Empty without a readable form.
fn form_fields(fold: &web_sys::Element) -> Option<BTreeMap<String, String>> {
    let form = fold.closest("form").ok().flatten()?.dyn_into::<web_sys::HtmlFormElement>().ok()?;
    let fields = form.query_selector_all(FIELD_SELECTOR).ok()?;
    let field = |n: u32| {
        let field = fields.item(n)?;
        let text =
            |name: &str| js_sys::Reflect::get(&field, &JsValue::from_str(name)).ok()?.as_string();
        Some((text("name")?, text("value")?))
    };
    Some((0..fields.length()).filter_map(field).collect())
}

/// The fields that are read: no passwords, and only ticked checkboxes and radio buttons.
const FIELD_SELECTOR: &str = "input:not([type=password], [type=checkbox], [type=radio]), \
    :checked:is(input), select, textarea";
