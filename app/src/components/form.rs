//! A form that is generated from a role's schemas.
//!
//! Each field shows one value of the edited document and changes only that value. Some values have
//! no field: unknown keys, and values deeper than four levels. They remain in the JSON text next to
//! the form. An empty field means that the document sets no value. It then shows the value that
//! applies instead. A secret is a name and a version, never a value.

use engine::data::secret;
use leptos::prelude::*;
use serde_json::{Value, json};

use super::draft::Draft;
use super::icon::{Icon, icon};
use crate::validation::{self, Entry, Field, ScalarType};

/// A field of the document.
#[derive(Clone)]
struct FormField {
    draft: Draft,
    /// A JSON pointer.
    path: String,
    /// The id of the control.
    id: String,
    label: String,
    hint: String,
    schema: Value,
    required: bool,
    /// The number of objects and lists around it.
    depth: usize,
    /// Whether it is a list item, which cannot be left out.
    item: bool,
    /// The value that applies if the document does not set one.
    below: Option<Value>,
}

impl FormField {
    /// A field inside this one.
    fn inside(&self, key: &str, schema: Value) -> Self {
        let part = key.replace('~', "~0").replace('/', "~1");
        Self {
            draft: self.draft,
            path: format!("{}/{part}", self.path),
            id: format!("{}-{}", self.id, key.replace(|c: char| !c.is_ascii_alphanumeric(), "_")),
            label: key.to_owned(),
            hint: schema
                .get("description")
                .or_else(|| schema.get("desc"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            required: validation::is_required(&schema),
            depth: self.depth + 1,
            item: false,
            below: self.below.as_ref().and_then(|below| below.get(key)).cloned(),
            schema,
        }
    }

    fn now(&self) -> Memo<Option<Value>> {
        let (draft, path) = (self.draft, self.path.clone());
        Memo::new(move |_| draft.at(&path))
    }

    fn put(&self, value: Option<Value>) {
        self.draft.put(&self.path, value);
    }

    fn is_off(&self) -> impl Fn() -> bool + Copy + use<> {
        let draft = self.draft;
        move || !draft.is_readable()
    }
}

/// One field for each attribute.
#[component]
pub(super) fn Fields(
    draft: Draft,
    /// A prefix for ids, unique on the page.
    name: String,
) -> impl IntoView {
    let purpose = draft.purpose();
    let place = |(n, attrib): (usize, api::deployments::AttribView)| {
        let schema = attrib.schema.unwrap_or_default();
        enter(FormField {
            draft,
            below: purpose.below.pointer(&attrib.path).cloned(),
            path: attrib.path,
            id: format!("{name}-{n}"),
            label: attrib.name,
            hint: attrib.description,
            required: validation::is_required(&schema),
            schema,
            depth: 0,
            item: false,
        })
    };
    let fields = purpose.attribs.iter().cloned().enumerate().map(place).collect_view();
    view! { <div class="fields">{fields}</div> }.into_any()
}

fn enter(place: FormField) -> AnyView {
    match validation::entry(&place.schema, place.depth) {
        Entry::One(simple) => single(place, Some(simple), Vec::new()),
        Entry::Choice(known) => single(place, None, known),
        Entry::Fields(fields) => group(&place, fields),
        Entry::Items(each) => list(place, each),
        Entry::Json => by_text(&place),
    }
}

/// The errors of a field, as a list for `aria-describedby`.
fn wrong(place: &FormField) -> (String, AnyView) {
    let (draft, path, id) = (place.draft, place.path.clone(), format!("{}-wrong", place.id));
    let lines = move || {
        let text = |message: String| {
            view! {
                <p class="error-text">{icon(Icon::Error)} <span>{message}</span></p>
            }
        };
        draft.errors_at(&path).into_iter().map(text).collect_view()
    };
    (id.clone(), view! { <div class="errors" id=id aria-live="polite">{lines}</div> }.into_any())
}

fn name_of(place: &FormField) -> impl IntoView + use<> {
    let required = place.required.then(|| view! { <small class="muted">" required"</small> });
    view! { {place.label.clone()} {required} }
}

fn by_text(place: &FormField) -> AnyView {
    let (_, wrong) = wrong(place);
    let below =
        place.below.as_ref().map(|below| view! { <code class="clip">{below.to_string()}</code> });
    view! {
        <div class="field">
            <span class="label">{name_of(place)}</span>
            <span class="hint">
                {place.hint.clone()} " Edit as JSON, at " <code>{place.path.clone()}</code> {below}
            </span>
            {wrong}
        </div>
    }
    .into_any()
}

fn group(place: &FormField, fields: Vec<Field>) -> AnyView {
    let inside = fields.into_iter().map(|field| {
        let within = place.inside(&field.key, field.schema);
        enter(FormField { required: field.required, ..within })
    });
    let (_, wrong) = wrong(place);
    view! {
        <fieldset class="field group">
            <legend>{name_of(place)}</legend>
            {(!place.hint.is_empty()).then(|| view! {
                <span class="hint">{place.hint.clone()}</span>
            })}
            {inside.collect_view()}
            {wrong}
        </fieldset>
    }
    .into_any()
}

/// A list overrides the list below as a whole. To change it, the reader first copies the inherited
/// items.
fn list(place: FormField, each: Value) -> AnyView {
    let now = place.now();
    let count =
        Memo::new(move |_| now.with(|now| now.as_ref().and_then(Value::as_array).map(Vec::len)));
    let below = place.below.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let inherited = below.len();
    let is_off = place.is_off();
    let whole = StoredValue::new(place.clone());
    let schema = StoredValue::new(each);
    let items = move || {
        let line = |n: usize| {
            let item = whole.with_value(|whole| whole.inside(&n.to_string(), schema.get_value()));
            let out = StoredValue::new(item.clone());
            let label = format!("Remove entry {}", n + 1);
            let entry = enter(FormField { label: format!("Entry {}", n + 1), item: true, ..item });
            view! {
                <li>
                    {entry}
                    <button
                        class="button quiet small only-icon"
                        type="button"
                        aria-label=label.clone()
                        title=label
                        disabled=is_off
                        on:click=move |_| out.with_value(|out| out.put(None))
                    >
                        {icon(Icon::Delete)}
                    </button>
                </li>
            }
        };
        (0..count.get().unwrap_or(0)).map(line).collect_view()
    };
    let add = move |_| {
        let blank = validation::blank(&schema.get_value());
        whole.with_value(|whole| match count.get_untracked() {
            Some(n) => whole.draft.put(&format!("{}/{n}", whole.path), Some(blank)),
            None => whole.put(Some(Value::Array(below.iter().cloned().chain([blank]).collect()))),
        });
    };
    let hint = move || match (count.get(), inherited) {
        (Some(_), _) | (None, 0) => String::new(),
        (None, 1) => {
            "Not set here: 1 inherited entry applies. Adding an entry copies it.".to_owned()
        }
        (None, n) => {
            format!("Not set here: {n} inherited entries apply. Adding an entry copies them.")
        }
    };
    let (_, wrong) = wrong(&place);
    let clear = move |_| whole.with_value(|whole| whole.put(None));
    view! {
        <fieldset class="field group">
            <legend>{name_of(&place)}</legend>
            {(!place.hint.is_empty()).then(|| view! {
                <span class="hint">{place.hint.clone()}</span>
            })}
            <span class="hint">{hint}</span>
            <ol class="entries">{items}</ol>
            {wrong}
            <div class="buttons">
                <button class="button small" type="button" disabled=is_off on:click=add>
                    {icon(Icon::Plus)} "Add entry"
                </button>
                {move || count.get().map(|_| view! {
                    <button class="button quiet small" type="button" disabled=is_off on:click=clear>
                        "Unset list"
                    </button>
                })}
            </div>
        </fieldset>
    }
    .into_any()
}

/// A single value: typed, selected, or the name of a secret.
fn single(place: FormField, simple: Option<ScalarType>, known: Vec<Value>) -> AnyView {
    let now = place.now();
    let is_secret =
        Memo::new(move |_| now.with(|now| now.as_ref().is_some_and(secret::is_reference)));
    let (wrong_id, wrong) = wrong(&place);
    let is_off = place.is_off();
    let stored_place = StoredValue::new(place.clone());
    let known = StoredValue::new(known);
    let control = move || {
        let place = stored_place.get_value();
        match (is_secret.get(), simple) {
            (true, _) => secret_control(place, now),
            (false, Some(simple)) => typed(place, simple, now, &wrong_id),
            (false, None) => chosen(place, known.get_value(), now, &wrong_id),
        }
    };
    let switch_input = move |_| {
        let secret = (!is_secret.get_untracked()).then(|| json!({"$secret": "", "version": 1}));
        stored_place.with_value(|place| {
            place.put(secret.or_else(|| place.item.then(|| validation::blank(&place.schema))))
        });
    };
    let can_switch = simple == Some(ScalarType::Text);
    view! {
        <div class="field">
            <label for=place.id.clone()>{name_of(&place)}</label>
            {control}
            {(!place.hint.is_empty()).then(|| view! {
                <span class="hint">{place.hint.clone()}</span>
            })}
            {wrong}
            {can_switch.then(|| view! {
                <button
                    class="button quiet small switch"
                    type="button"
                    disabled=is_off
                    on:click=switch_input
                >
                    {move || if is_secret.get() { "Enter a value" } else { "Use a secret" }}
                </button>
            })}
        </div>
    }
    .into_any()
}

fn inherited(place: &FormField) -> String {
    match &place.below {
        Some(below) if secret::is_reference(below) => secret::MASK.to_owned(),
        Some(below) => validation::typed(below),
        None => String::new(),
    }
}

fn typed(
    place: FormField,
    simple: ScalarType,
    now: Memo<Option<Value>>,
    wrong_id: &str,
) -> AnyView {
    let shown = move || {
        now.with(|now| now.as_ref().filter(|now| !now.is_null()).map(validation::typed))
            .unwrap_or_default()
    };
    let is_off = place.is_off();
    let (draft, path) = (place.draft, place.path.clone());
    let id = place.id.clone();
    let below = inherited(&place);
    let change = move |event: leptos::ev::Event| {
        let typed = event_target_value(&event);
        let value = match (typed.is_empty(), place.item) {
            (true, true) => Some(validation::blank(&place.schema)),
            (true, false) => None,
            (false, _) => Some(simple.value(&typed)),
        };
        place.put(value);
    };
    view! {
        <input
            id=id
            class="input"
            type="text"
            inputmode=if simple == ScalarType::Text { "text" } else { "decimal" }
            autocomplete="off"
            placeholder=below
            disabled=is_off
            aria-describedby=wrong_id.to_owned()
            aria-invalid=move || (!draft.errors_at(&path).is_empty()).then_some("true")
            prop:value=shown
            value=untrack(shown)
            on:input=change
        />
    }
    .into_any()
}

fn chosen(
    place: FormField,
    known: Vec<Value>,
    now: Memo<Option<Value>>,
    wrong_id: &str,
) -> AnyView {
    let below = inherited(&place);
    let none = if below.is_empty() {
        "not set".to_owned()
    } else {
        format!("not set, inherited: {below}")
    };
    let options = known.iter().map(|choice| {
        let (typed, this) = (validation::typed(choice), choice.clone());
        let value = typed.clone();
        view! {
            <option value=value selected=move || now.with(|now| now.as_ref() == Some(&this))>
                {typed}
            </option>
        }
    });
    let options = options.collect_view();
    let is_off = place.is_off();
    let (id, is_item) = (place.id.clone(), place.item);
    // A value that is not an option becomes an additional option, so that opening the form does not
    // change it.
    let other = {
        let known = known.clone();
        move || {
            now.get()
                .filter(|now| !known.contains(now))
                .map(|now| view! { <option value="" selected>{validation::typed(&now)}</option> })
        }
    };
    let change = move |event: leptos::ev::Event| {
        let typed = event_target_value(&event);
        place.put(known.iter().find(|choice| validation::typed(choice) == typed).cloned());
    };
    view! {
        <select
            id=id
            class="select"
            disabled=is_off
            aria-describedby=wrong_id.to_owned()
            on:change=change
        >
            {(!is_item).then(|| view! {
                <option value="" selected=move || now.with(Option::is_none)>{none}</option>
            })}
            {other}
            {options}
        </select>
    }
    .into_any()
}

/// The name and version of a secret. Its value is never in a document.
fn secret_control(place: FormField, now: Memo<Option<Value>>) -> AnyView {
    let part = move |key: &'static str| {
        now.with(|now| now.as_ref().and_then(|now| now.get(key)).map(validation::typed))
            .unwrap_or_default()
    };
    let is_off = place.is_off();
    let (id, version_id) = (place.id.clone(), format!("{}-version", place.id));
    let place = StoredValue::new(place);
    let set = move |name: String, version: String| {
        let version =
            version.trim().parse::<u32>().map_or_else(|_| Value::String(version), Value::from);
        place.with_value(|place| place.put(Some(json!({"$secret": name, "version": version}))));
    };
    view! {
        <div class="secret">
            <input
                class="input"
                id=id
                type="text"
                autocomplete="off"
                placeholder="Name of the secret"
                disabled=is_off
                prop:value=move || part(secret::KEY)
                value=untrack(|| part(secret::KEY))
                on:input=move |event| set(event_target_value(&event), untrack(|| part("version")))
            />
            <label for=version_id.clone()>"version"</label>
            <input
                class="input"
                id=version_id
                type="text"
                inputmode="numeric"
                autocomplete="off"
                disabled=is_off
                prop:value=move || part("version")
                value=untrack(|| part("version"))
                on:input=move |event| set(untrack(|| part(secret::KEY)), event_target_value(&event))
            />
        </div>
    }
    .into_any()
}
