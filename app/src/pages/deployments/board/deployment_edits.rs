//! Edits of deployments, and of roles without nodes: create a child deployment, move the
//! deployment, remove a role or the deployment.
//!
//! An edit with a larger impact than it seems (removing a deployment) requires typing the name.

use api::deployments::DeploymentSummary;
use engine::ids::{DeploymentId, DeploymentName, NodeId, RoleName};
use engine::plan::{Edit, edit};
use leptos::prelude::*;
use uuid::Uuid;

use super::board_state::BoardState;
use crate::components::FieldError;
use crate::pages::deployments::DeploymentField;
use crate::pages::proposals::{EditForm, Outcome, SubmitButton, TypedName};

/// Removes a role without nodes from the deployment.
#[component]
pub(super) fn RemoveRole(
    board_state: BoardState,
    role: RoleName,
    taken: Callback<()>,
) -> impl IntoView {
    let done = format!("The proposal removes role {role}. Press Ctrl Z to undo it.");
    let edit_form = EditForm::new(board_state.pen(), move || {
        let deployment = board_state.board().read().id;
        vec![Edit::RemoveRole(edit::RemoveRole { deployment, role: role.clone() })]
    });
    let fields = view! {
        <p class="muted">
            "Also removes the data of the role in this deployment. The role must not be bound to \
             any node."
        </p>
    };
    let button = view! { <SubmitButton of=edit_form grave=true/> };
    let done = move || Some(done.clone());
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Creates a child deployment.
#[component]
pub(super) fn Child(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let name = RwSignal::new(String::new());
    let read = Memo::new(move |_| {
        DeploymentName::parse(name.read().trim()).map_err(|error| error.to_string())
    });
    let error = move || (!name.read().trim().is_empty()).then(|| read.get().err()).flatten();
    // Ids are created here, because an edit must have the same result for everyone who plans it.
    let (id, phantom) = (DeploymentId(Uuid::new_v4()), NodeId(Uuid::new_v4()));
    let edit_form = EditForm::new(board_state.pen(), move || {
        let parent = board_state.board().read().id;
        read.get()
            .map(|name| {
                Edit::CreateDeployment(edit::CreateDeployment { id, phantom, name, parent })
            })
            .into_iter()
            .collect()
    });
    let fields = view! {
        <p class="muted">"It inherits the barclamps of this deployment and can use its nodes."</p>
        <div class="field">
            <label for="child-name">"Name"</label>
            <input
                class="input"
                id="child-name"
                autocomplete="off"
                autocapitalize="none"
                spellcheck="false"
                autofocus
                aria-invalid=move || error().is_some().then_some("true")
                aria-describedby="child-error"
                prop:value=move || name.get()
                on:input=move |event| name.set(event_target_value(&event))
            />
            <FieldError id="child-error" of=Signal::derive(error)/>
        </div>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done =
        move || Some(format!("The proposal creates deployment {}.", name.read_untracked().trim()));
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

/// Moves the deployment below another parent.
#[component]
pub(super) fn MoveDeployment(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let to = RwSignal::new(String::new());
    let suggested = RwSignal::new(Vec::<DeploymentSummary>::new());
    let chosen = move || {
        let to = to.read();
        suggested.read().iter().find(|found| found.name.as_str() == to.trim()).cloned()
    };
    let edit_form = EditForm::new(board_state.pen(), move || {
        let deployment = board_state.board().read().id;
        chosen()
            .map(|parent| edit::MoveDeployment { deployment, parent: parent.id }.into())
            .into_iter()
            .collect()
    });
    let fields = view! {
        <p class="muted">
            "Deployments below it move too. All of them inherit barclamps and permissions from the \
             new parent."
        </p>
        <div class="field">
            <label for="new-parent">"New parent"</label>
            <DeploymentField
                id="new-parent"
                value=to
                typed=Callback::new(move |text| to.set(text)) suggested
            />
        </div>
    };
    let button = view! { <SubmitButton of=edit_form/> };
    let done = move || {
        let parent = untrack(chosen)?;
        Some(format!("The proposal moves the deployment below {}.", parent.name))
    };
    edit_form.view(taken, done, fields.into_any(), button.into_any())
}

#[component]
pub(super) fn RemoveDeployment(board_state: BoardState, taken: Callback<()>) -> impl IntoView {
    let typed = RwSignal::new(String::new());
    let name = Signal::derive(move || board_state.board().read().name.to_string());
    let is_typed = Signal::derive(move || typed.read().trim() == *name.read());
    let edit_form = EditForm::new(board_state.pen(), move || {
        vec![Edit::RemoveDeployment(edit::RemoveDeployment {
            deployment: board_state.board().read().id,
        })]
    });
    view! {
        <form
            class="form"
            on:submit=move |event| {
                event.prevent_default();
                if is_typed.get_untracked() {
                    edit_form.put(
                        format!("The proposal removes deployment {}.", name.get_untracked()),
                        taken
                    );
                }
            }
        >
            <div class="body">
                <p>
                    "The deployment must be empty: no deployments below it, no nodes and no bound \
                     roles."
                </p>
                <Outcome of=edit_form/>
                <TypedName id="remove-deployment-name" name typed/>
            </div>
            <div class="foot"><SubmitButton of=edit_form given=is_typed grave=true/></div>
        </form>
    }
    .into_any()
}
