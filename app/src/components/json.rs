//! An editor for data: a form and a JSON text, two views of one document. Both validate while the
//! user types.

use engine::data::DataConflict;
use leptos::prelude::*;
use serde_json::Value;

use super::draft::Draft;
use super::form::Fields;
use super::icon::{Icon, icon};
use super::textarea::escape_textarea;
use crate::validation::{self, ValidationError};

/// Edits a document: with fields, as far as the role has schemas, and as JSON text next to them.
#[component]
pub fn DataEditor(
    draft: Draft,
    /// A prefix for ids, unique on the page.
    #[prop(into)]
    name: String,
) -> impl IntoView {
    let has_form = draft.purpose.with_value(|purpose| !purpose.attribs.is_empty());
    let (text_id, errors_id) = (format!("{name}-text"), format!("{name}-errors"));
    view! {
        {move || conflict_choices(draft)}
        <div class="editor" class:split=has_form>
            {has_form.then(|| view! { <Fields draft name=name.clone()/> })}
            <div class="field">
                <label for=text_id.clone()>"As JSON"</label>
                <textarea
                    id=text_id
                    class="area code"
                    spellcheck="false"
                    autocomplete="off"
                    rows="10"
                    prop:value=move || draft.text.get()
                    on:input=move |event| draft.text.set(event_target_value(&event))
                    aria-invalid=move || (!draft.is_fine()).then_some("true")
                    aria-describedby=errors_id.clone()
                >
                    {escape_textarea(draft.text.get_untracked())}
                </textarea>
                <div id=errors_id aria-live="polite">{move || verdict(&draft.errors.get())}</div>
            </div>
        </div>
    }
    .into_any()
}

/// The values that another person changed too, each with a choice.
fn conflict_choices(draft: Draft) -> Option<AnyView> {
    let conflicts = draft.conflicts.get();
    let by = draft.base_by.get().unwrap_or_else(|| "Another person".to_owned());
    let choice = |conflict: DataConflict| {
        let path = conflict.path.trim_start_matches('/').to_owned();
        let message = match &conflict.theirs {
            Some(value) => format!("{by} set {path} to {} meanwhile.", validation::shown(value)),
            None => format!("{by} removed {path} meanwhile."),
        };
        let (take, keep) = (format!("Take theirs: {path}"), format!("Keep mine: {path}"));
        let (theirs, mine) = (conflict.clone(), conflict);
        view! {
            <li>
                {message} " "
                <button
                    class="button small"
                    type="button"
                    aria-label=take
                    on:click=move |_| draft.resolve(&theirs, true)
                >
                    "Take theirs"
                </button>
                " "
                <button
                    class="button small"
                    type="button"
                    aria-label=keep
                    on:click=move |_| draft.resolve(&mine, false)
                >
                    "Keep mine"
                </button>
            </li>
        }
    };
    (!conflicts.is_empty()).then(|| {
        view! {
            <div class="notice" data-state="warn" role="alert">
                {icon(Icon::Warn)}
                <div>
                    <b>"You both changed these values"</b>
                    <ul class="plain">{conflicts.into_iter().map(choice).collect_view()}</ul>
                </div>
            </div>
        }
        .into_any()
    })
}

fn verdict(errors: &[ValidationError]) -> AnyView {
    if errors.is_empty() {
        return view! {
            <p class="valid">
                {icon(Icon::Check)} "Valid JSON that matches the schemas of the role."
            </p>
        }
        .into_any();
    }
    let text = |error: &ValidationError| {
        let at = (!error.at.is_empty()).then(|| format!("{}: ", error.at));
        view! {
            <p class="error-text">{icon(Icon::Error)} <span>{at} {error.detail.clone()}</span></p>
        }
    };
    errors.iter().map(text).collect_view().into_any()
}

/// A read-only document.
#[component]
pub fn DataView(value: Value) -> impl IntoView {
    let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty) || value.is_null();
    match is_empty {
        true => view! { <p class="muted">"No data."</p> }.into_any(),
        false => view! {
            <pre class="data" tabindex="0" role="group" aria-label="Data">
                {validation::pretty(&value)}
            </pre>
        }
        .into_any(),
    }
}
