//! An editor for data: a form and a JSON text, two views of one document. Both validate while the
//! user types.

use leptos::prelude::*;
use serde_json::Value;

use super::form::Fields;
use super::icon::{Icon, icon};
use super::textarea::escape_textarea;
use crate::validation::{self, Fault, Purpose};

/// A document that is being edited.
#[derive(Clone, Copy)]
pub struct Draft {
    text: RwSignal<String>,
    read: Memo<Result<Value, Fault>>,
    faults: Memo<Vec<Fault>>,
    purpose: StoredValue<Purpose>,
}

impl Draft {
    pub fn new(first: &Value, purpose: Purpose) -> Self {
        let text = RwSignal::new(validation::pretty(first));
        let purpose = StoredValue::new(purpose);
        let read = Memo::new(move |_| text.with(|text| validation::read(text)));
        let faults = Memo::new(move |_| match read.get() {
            Ok(value) => purpose.with_value(|purpose| purpose.faults(&value)),
            Err(fault) => vec![fault],
        });
        Self { text, read, faults, purpose }
    }

    /// The document, unless it has errors.
    pub fn value(self) -> Option<Value> {
        self.faults.get().is_empty().then(|| self.read.get().ok()).flatten()
    }

    /// Whether the document has no errors.
    pub fn is_fine(self) -> bool {
        self.faults.with(Vec::is_empty)
    }

    /// Whether the text is valid JSON, so that fields can change it.
    pub fn is_readable(self) -> bool {
        self.read.with(Result::is_ok)
    }

    /// The value at a JSON pointer.
    pub fn at(self, path: &str) -> Option<Value> {
        self.read.with(|read| read.as_ref().ok()?.pointer(path).cloned())
    }

    /// The errors at a JSON pointer.
    pub fn errors_at(self, path: &str) -> Vec<String> {
        self.faults.with(|faults| {
            faults
                .iter()
                .filter(|fault| fault.at == path)
                .map(|fault| fault.detail.clone())
                .collect()
        })
    }

    pub fn purpose(self) -> Purpose {
        self.purpose.get_value()
    }

    /// Sets or removes the value at a JSON pointer.
    pub fn put(self, path: &str, value: Option<Value>) {
        if let Ok(mut document) = self.read.get_untracked() {
            validation::put(&mut document, path, value);
            self.text.set(validation::pretty(&document));
        }
    }
}

/// Edits a document: with fields, as far as the role has schemas, and as JSON text next to them.
#[component]
pub fn DataEditor(
    draft: Draft,
    /// A prefix for ids, unique on the page.
    #[prop(into)]
    name: String,
) -> impl IntoView {
    let has_form = draft.purpose.with_value(|purpose| !purpose.attribs.is_empty());
    let (text_id, faults_id) = (format!("{name}-text"), format!("{name}-faults"));
    view! {
        <div class="editor" class:beside=has_form>
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
                    aria-describedby=faults_id.clone()
                >
                    {escape_textarea(draft.text.get_untracked())}
                </textarea>
                <div id=faults_id aria-live="polite">{move || verdict(&draft.faults.get())}</div>
            </div>
        </div>
    }
    .into_any()
}

fn verdict(faults: &[Fault]) -> AnyView {
    if faults.is_empty() {
        return view! { <p class="fine">{icon(Icon::Check)} "Valid JSON that matches the schemas of the role."</p> }.into_any();
    }
    let said = |fault: &Fault| {
        let at = (!fault.at.is_empty()).then(|| format!("{}: ", fault.at));
        view! { <p class="fault">{icon(Icon::Error)} <span>{at} {fault.detail.clone()}</span></p> }
    };
    faults.iter().map(said).collect_view().into_any()
}

/// A read-only document.
#[component]
pub fn DataView(value: Value) -> impl IntoView {
    let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty) || value.is_null();
    match is_empty {
        true => view! { <p class="muted">"No data."</p> }.into_any(),
        false => view! { <pre class="data" tabindex="0" role="group" aria-label="Data">{validation::pretty(&value)}</pre> }
            .into_any(),
    }
}
