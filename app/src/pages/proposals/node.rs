//! Edits of a node as a whole: expunge it.

use engine::plan::{Edit, edit};
use leptos::prelude::*;

use super::noderole::Reason;
use super::{EditContext, EditForm, Named, SubmitButton};

/// A field that requires a name before a dangerous action. For actions with a larger impact than
/// they seem.
#[component]
pub fn TypedName(
    /// The id, unique on the page.
    id: &'static str,
    /// The required name.
    #[prop(into)]
    name: Signal<String>,
    typed: RwSignal<String>,
) -> impl IntoView {
    view! {
        <div class="field">
            <label for=id>"Type " <b>{move || name.get()}</b> " to continue"</label>
            <input
                class="input"
                id=id
                autocomplete="off"
                autocapitalize="none"
                spellcheck="false"
                prop:value=move || typed.get()
                on:input=move |event| typed.set(event_target_value(&event))
            />
        </div>
    }
    .into_any()
}

/// Expunges the node.
#[component]
pub(super) fn Expunge(pen: EditContext, of: Named, taken: Callback<()>) -> impl IntoView {
    let (typed, reason) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let (node, short) = (of.node, StoredValue::new(of.short));
    let edit_form = EditForm::new(pen, move || {
        let reason = reason.get().trim().to_owned();
        if reason.is_empty() {
            Vec::new()
        } else {
            vec![Edit::ExpungeNode(edit::ExpungeNode { node, reason })]
        }
    });
    let is_typed = Signal::derive(move || short.with_value(|short| typed.read().trim() == short));
    let fields = view! {
        <p>
            "Expunge a node only if its machine no longer exists. After the commit, everything on \
             the node counts as gone and nothing runs for it. The node cannot return with the same \
             id."
        </p>
        <Reason id="expunge-reason" reason hint="Shown in the review."/>
        <TypedName id="expunge-name" name=Signal::derive(move || short.get_value()) typed/>
    };
    let button = view! { <SubmitButton of=edit_form given=is_typed grave=true/> };
    let done = move || {
        is_typed.get_untracked().then(|| format!("The proposal expunges {}.", short.get_value()))
    };
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}
