//! Edits of one noderole: its own data, another run, and unbinding.

use api::views::node_proposal::ProposedNoderole;
use engine::plan::{Edit, edit};
use leptos::prelude::*;

use super::{EditContext, EditForm, NoderoleOnNode, SubmitButton, server_functions};
use crate::components::draft::Draft;
use crate::components::json::DataEditor;
use crate::components::{Feed, ProblemNotice};
use crate::validation::Purpose;

#[component]
pub(super) fn Unbind(pen: EditContext, of: NoderoleOnNode, taken: Callback<()>) -> impl IntoView {
    let along = RwSignal::new(false);
    let done = format!("The proposal unbinds {} from {}.", of.noderole, of.on.short);
    let removal = of.removal();
    let edit_form = EditForm::new(pen, move || {
        vec![Edit::Unbind(edit::Unbind {
            node: of.on.node,
            noderole: of.noderole.clone(),
            with_dependents: along.get(),
        })]
    });
    let fields = view! {
        <p class="muted">{removal} " Noderoles that it required stay bound."</p>
        <label class="choice">
            <input
                type="checkbox" autofocus
                prop:checked=move || along.get()
                on:change=move |event| along.set(event_target_checked(&event))
            />
            <span>
                <b>"Also unbind its dependents"</b> " "
                <small>"Otherwise the edit is rejected if another noderole needs this one."</small>
            </span>
        </label>
    };
    let button = view! { <SubmitButton of=edit_form grave=true/> };
    let done = move || Some(done.clone());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Runs the noderole again.
#[component]
pub(super) fn Rerun(pen: EditContext, of: NoderoleOnNode, taken: Callback<()>) -> impl IntoView {
    let reason = RwSignal::new(String::new());
    let done = format!("The proposal runs {of} again.");
    let edit_form = EditForm::new(pen, move || {
        let reason = reason.get().trim().to_owned();
        let again = Edit::Rerun(edit::Rerun {
            node: of.on.node,
            noderole: of.noderole.clone(),
            reason: reason.clone(),
        });
        if reason.is_empty() { Vec::new() } else { vec![again] }
    });
    let fields = view! {
        <p class="muted">"It runs again after the commit, although nothing changed."</p>
        <Reason id="noderole-again-reason" reason hint="Shown in the review and with the run."/>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || Some(done.clone());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// A field for a reason.
#[component]
pub fn Reason(
    /// The id, unique on the page.
    id: &'static str,
    reason: RwSignal<String>,
    /// The hint, which names the readers of the reason.
    hint: &'static str,
) -> impl IntoView {
    let hint_id = format!("{id}-hint");
    let described = hint_id.clone();
    view! {
        <div class="field">
            <label for=id>"Reason"</label>
            <input
                class="input"
                id=id
                required
                autofocus
                autocomplete="off"
                aria-describedby=described
                prop:value=move || reason.get()
                on:input=move |event| reason.set(event_target_value(&event))
            />
            <span class="hint" id=hint_id>{hint}</span>
        </div>
    }
    .into_any()
}

/// Edits the data of one noderole, existing or proposed.
#[component]
pub(super) fn OwnData(pen: EditContext, of: NoderoleOnNode, taken: Callback<()>) -> impl IntoView {
    let request = of.clone();
    let proposal = pen.proposal.get_untracked().map(|(proposal, _)| proposal);
    let feed = Feed::new(None::<ProposedNoderole>, move || {
        let request = request.clone();
        async move {
            let Some(proposal) = proposal else { return Ok(None) };
            let proposed =
                server_functions::proposed_noderole(proposal, request.on.node, request.noderole);
            proposed.await.map(Some)
        }
    });
    let (found, problem) = (feed.value(), feed.problem());
    // Loads the data again after each edit of the proposal, because another person may set it.
    Effect::new(move |_| {
        pen.proposal.track();
        feed.now();
    });
    let is_loaded = Memo::new(move |_| found.read().is_some());
    let first = move || is_loaded.get().then(|| found.get_untracked()).flatten();
    let of = StoredValue::new(of);
    let body = move || match first() {
        Some(noderole) => view! {
            <Editor pen of=of.get_value() noderole stored=found.into() taken/>
            <ProblemNotice problem/>
        }
        .into_any(),
        None => view! {
            <div class="body">
                {move || problem.read().is_none().then(|| view! {
                    <p class="muted" role="status">"Loading"</p>
                })}
                <ProblemNotice problem retry=feed.retry()/>
            </div>
        }
        .into_any(),
    };
    body.into_any()
}

#[component]
fn Editor(
    pen: EditContext,
    of: NoderoleOnNode,
    noderole: ProposedNoderole,
    /// The noderole in the proposal, as it was loaded last.
    stored: Signal<Option<ProposedNoderole>>,
    taken: Callback<()>,
) -> impl IntoView {
    let draft = Draft::new(
        &noderole.data,
        Purpose { attribs: noderole.attribs, below: noderole.defaults, is_last: true },
    );
    draft.follow(Signal::derive(move || {
        stored.get().map(|noderole| (noderole.data, noderole.data_by))
    }));
    let is_current = move || {
        let version = pen.proposal.get().map(|(_, version)| version);
        version.is_some() && version == stored.read().as_ref().map(|noderole| noderole.version)
    };
    let done = format!("The proposal changes the data of {of}.");
    let edit_form = EditForm::new(pen, move || {
        let changed = draft.changed().filter(|_| is_current());
        let set = |data| {
            Edit::SetNoderoleData(edit::SetNoderoleData {
                node: of.on.node,
                noderole: of.noderole.clone(),
                data,
            })
        };
        changed.map(set).into_iter().collect()
    });
    let fields = view! {
        <p class="muted">
            "This data applies only to this noderole and overrides every other source."
        </p>
        <DataEditor draft name="noderole-data"/>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || Some(done.clone());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}
