//! An editor for data: a form and a JSON text, two views of one document. Both validate while the
//! user types.
//!
//! Other people may change the stored document in the meantime ([`Draft::follow`]). The editor
//! takes over their changes of other values. If both changed a value, the user chooses.

use engine::data::{DataConflict, rebase};
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
    /// The stored document that the text is based on.
    base: RwSignal<Value>,
    /// The person who set the stored document.
    base_by: RwSignal<Option<String>>,
    /// Values that this person changed too, before the user chose.
    found: RwSignal<Vec<DataConflict>>,
    conflicts: Memo<Vec<DataConflict>>,
}

/// A stored document, and the person who set it.
pub type Stored = (Value, Option<String>);

impl Draft {
    pub fn new(first: &Value, purpose: Purpose) -> Self {
        let text = RwSignal::new(validation::pretty(first));
        let purpose = StoredValue::new(purpose);
        let read = Memo::new(move |_| text.with(|text| validation::read(text)));
        let faults = Memo::new(move |_| match read.get() {
            Ok(value) => purpose.with_value(|purpose| purpose.faults(&value)),
            Err(fault) => vec![fault],
        });
        let found = RwSignal::new(Vec::<DataConflict>::new());
        let conflicts = Memo::new(move |_| {
            let Ok(document) = read.get() else { return found.get() };
            let mut open = found.get();
            open.retain(|conflict| document.pointer(&conflict.path) != conflict.theirs.as_ref());
            open
        });
        let (base, base_by) = (RwSignal::new(first.clone()), RwSignal::new(None));
        Self { text, read, faults, purpose, base, base_by, found, conflicts }
    }

    /// The document, if it differs from the stored one and has no errors and no open conflicts.
    pub fn changed(self) -> Option<Value> {
        if !self.is_fine() || !self.conflicts.read().is_empty() {
            return None;
        }
        self.read.get().ok().filter(|value| *value != *self.base.read())
    }

    /// Moves the user's changes onto the stored document whenever that changes. `None`: unknown.
    /// While the text is invalid, it stays as it is.
    pub fn follow(self, stored: Signal<Option<Stored>>) {
        Effect::new(move |_| {
            if let (Some(stored), Ok(mine)) = (stored.get(), self.read.get()) {
                self.rebase(&mine, stored);
            }
        });
    }

    fn rebase(self, mine: &Value, (theirs, by): Stored) {
        let base = self.base.get_untracked();
        if base == theirs {
            return;
        }
        // Both documents were checked before, so they are not too deep.
        let Ok((combined, mut found)) = rebase(&base, mine, &theirs) else { return };
        let still_open = self.conflicts.get_untracked().into_iter().map(|conflict| DataConflict {
            theirs: theirs.pointer(&conflict.path).cloned(),
            ..conflict
        });
        let is_new = |path: &str| found.iter().all(|known| known.path != path);
        let still_open: Vec<_> = still_open.filter(|conflict| is_new(&conflict.path)).collect();
        found.extend(still_open);
        self.base.set(theirs);
        self.base_by.set(by);
        self.found.set(found);
        if combined != *mine {
            self.text.set(validation::pretty(&combined));
        }
    }

    /// Resolves a conflict: the document gets their value, or keeps the user's.
    fn resolve(self, conflict: &DataConflict, takes_theirs: bool) {
        self.found.update(|found| found.retain(|other| other.path != conflict.path));
        if takes_theirs {
            self.put(&conflict.path, conflict.theirs.clone());
        }
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
        {move || conflict_choices(draft)}
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

/// The values that another person changed too, each with a choice.
fn conflict_choices(draft: Draft) -> Option<AnyView> {
    let conflicts = draft.conflicts.get();
    let by = draft.base_by.get().unwrap_or_else(|| "Another person".to_owned());
    let choice = |conflict: DataConflict| {
        let path = conflict.path.trim_start_matches('/').to_owned();
        let what = match &conflict.theirs {
            Some(value) => format!("{by} set {path} to {} meanwhile.", validation::shown(value)),
            None => format!("{by} removed {path} meanwhile."),
        };
        let (take, keep) = (format!("Take theirs: {path}"), format!("Keep mine: {path}"));
        let (taken, kept) = (conflict.clone(), conflict);
        view! {
            <li>
                {what} " "
                <button class="button small" type="button" aria-label=take on:click=move |_| draft.resolve(&taken, true)>"Take theirs"</button>
                " "
                <button class="button small" type="button" aria-label=keep on:click=move |_| draft.resolve(&kept, false)>"Keep mine"</button>
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

fn verdict(faults: &[Fault]) -> AnyView {
    if faults.is_empty() {
        return view! { <p class="fine">{icon(Icon::Check)} "Valid JSON that matches the schemas of the role."</p> }.into_any();
    }
    let text = |fault: &Fault| {
        let at = (!fault.at.is_empty()).then(|| format!("{}: ", fault.at));
        view! { <p class="fault">{icon(Icon::Error)} <span>{at} {fault.detail.clone()}</span></p> }
    };
    faults.iter().map(text).collect_view().into_any()
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
