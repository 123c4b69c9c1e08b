//! Data as a form and as text, two views of one document, both checked while one types.

use api::console::AttribView;
use leptos::prelude::*;
use serde_json::Value;

use super::icon::{Icon, icon};
use crate::check::{self, Fault, Simple};

/// A document that is being edited.
#[derive(Clone, Copy)]
pub struct Draft {
    text: RwSignal<String>,
    read: Memo<Result<Value, Fault>>,
    faults: Memo<Vec<Fault>>,
    attribs: StoredValue<Vec<AttribView>>,
}

impl Draft {
    /// Begins with a document.
    pub fn new(first: &Value, attribs: Vec<AttribView>) -> Self {
        let text = RwSignal::new(check::pretty(first));
        let attribs = StoredValue::new(attribs);
        let read = Memo::new(move |_| text.with(|text| check::read(text)));
        let faults = Memo::new(move |_| match read.get() {
            Ok(value) => attribs.with_value(|attribs| check::faults(&value, attribs)),
            Err(fault) => vec![fault],
        });
        Self { text, read, faults, attribs }
    }

    /// The document, unless something is wrong with it.
    pub fn value(self) -> Option<Value> {
        self.faults.get().is_empty().then(|| self.read.get().ok()).flatten()
    }

    /// Whether it can be taken as it is.
    pub fn is_fine(self) -> bool {
        self.faults.with(Vec::is_empty)
    }

    fn put(self, path: &str, value: Option<Value>) {
        if let Ok(mut document) = self.read.get_untracked() {
            check::put(&mut document, path, value);
            self.text.set(check::pretty(&document));
        }
    }
}

/// Edits a document. `below` is what applies where it says nothing.
#[component]
pub fn DataEditor(
    /// The document.
    draft: Draft,
    /// Tells the editors of one page apart.
    #[prop(into)]
    name: String,
    /// What applies where the document says nothing.
    #[prop(optional)]
    below: Value,
) -> impl IntoView {
    let simple: Vec<_> = draft
        .attribs
        .get_value()
        .into_iter()
        .filter_map(|attrib| Simple::of(&attrib).map(|kind| (attrib, kind)))
        .collect();
    let fields = simple
        .into_iter()
        .enumerate()
        .map(|(n, (attrib, kind))| field(draft, format!("{name}-{n}"), attrib, kind, &below))
        .collect_view();
    let (text_id, faults_id) = (format!("{name}-text"), format!("{name}-faults"));
    view! {
        <div class="form">
            {fields}
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
                    {draft.text.get_untracked()}
                </textarea>
                <div id=faults_id aria-live="polite">{move || verdict(&draft.faults.get())}</div>
            </div>
        </div>
    }
    .into_any()
}

fn verdict(faults: &[Fault]) -> AnyView {
    if faults.is_empty() {
        return view! { <p class="fine">{icon(Icon::Check)} "Reads as data and fits the role."</p> }.into_any();
    }
    let said = |fault: &Fault| {
        let at = (!fault.at.is_empty()).then(|| format!("{}: ", fault.at));
        view! { <p class="fault">{icon(Icon::Error)} <span>{at} {fault.detail.clone()}</span></p> }
    };
    faults.iter().map(said).collect_view().into_any()
}

fn field(draft: Draft, id: String, attrib: AttribView, kind: Simple, below: &Value) -> AnyView {
    let path = StoredValue::new(attrib.path.clone());
    let choices = check::allowed(&attrib).or_else(|| (kind == Simple::Flag).then(|| vec![true.into(), false.into()]));
    let inherited = below.pointer(&attrib.path).map(check::typed).unwrap_or_default();
    let current = Memo::new(move |_| {
        let document = draft.read.get().ok()?;
        path.with_value(|path| document.pointer(path).map(check::typed))
    });
    let change = move |typed: String| {
        let value = (!typed.is_empty()).then(|| kind.value(&typed));
        path.with_value(|path| draft.put(path, value));
    };
    let unreadable = move || draft.read.with(Result::is_err);
    let control = match choices {
        Some(choices) => {
            let inherited =
                if inherited.is_empty() { "not set".to_owned() } else { format!("not set here: {inherited}") };
            let options = choices.iter().map(|choice| {
                let typed = check::typed(choice);
                let (chosen, value) = (typed.clone(), typed.clone());
                view! { <option value=value selected=move || current.get().as_ref() == Some(&chosen)>{typed}</option> }
            });
            view! {
                <select id=id.clone() class="select" disabled=unreadable on:change=move |event| change(event_target_value(&event))>
                    <option value="" selected=move || current.get().is_none()>{inherited}</option>
                    {options.collect_view()}
                </select>
            }
            .into_any()
        }
        None => view! {
            <input
                id=id.clone()
                class="input"
                type="text"
                inputmode=if kind == Simple::Text { "text" } else { "decimal" }
                autocomplete="off"
                placeholder=inherited
                disabled=unreadable
                prop:value=move || current.get().unwrap_or_default()
                value=current.get_untracked()
                on:input=move |event| change(event_target_value(&event))
            />
        }
        .into_any(),
    };
    view! {
        <div class="field">
            <label for=id>{attrib.name}</label>
            {control}
            {(!attrib.description.is_empty()).then(|| view! { <span class="hint">{attrib.description}</span> })}
        </div>
    }
    .into_any()
}

/// A document to read.
#[component]
pub fn DataView(
    /// The document.
    value: Value,
) -> impl IntoView {
    let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty) || value.is_null();
    match is_empty {
        true => view! { <p class="muted">"Nothing."</p> }.into_any(),
        false => view! { <pre class="data" tabindex="0" role="group" aria-label="Data">{check::pretty(&value)}</pre> }
            .into_any(),
    }
}
