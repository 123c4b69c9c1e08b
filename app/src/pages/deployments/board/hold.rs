//! Puts a deployment on hold: no new run starts in it or its descendants until someone releases it.
//! A hold adds no intent, so it needs no review and is not part of a proposal.

use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::board_state::BoardState;
use super::server_functions::Hold;
use crate::addresses;
use crate::components::action::{on_success, problem_of};
use crate::components::{
    Dialog, DialogHandle, EquivalentCommands, FormValues, Icon, ProblemNotice, Refused, icon,
};

/// Shows the person who put the deployment on hold, the reason, and the effect.
#[component]
pub(super) fn HoldNotice(board_state: BoardState) -> impl IntoView {
    let hold = Memo::new(move |_| board_state.board().read().hold.clone());
    move || {
        let hold = hold.get()?;
        let above = hold.deployment != board_state.board().read_untracked().name;
        let origin = above.then(|| {
            view! {
                <a href=addresses::deployment(&hold.deployment)>{hold.deployment.to_string()}</a>
                " above this deployment was "
            }
        });
        Some(view! {
            <div class="notice refused" data-state="warn" role="status">
                {icon(Icon::Paused)}
                <div>
                    <b>
                        {origin} {if above { "put on hold by " } else { "Put on hold by " }}
                        {hold.by} ": " {hold.reason}
                    </b>
                    <p>
                        "No new run starts in this deployment or below it. Running steps finish. \
                         You can still propose, review and commit changes."
                    </p>
                </div>
            </div>
        })
    }
}

/// The button that opens the dialog, to hold or to release.
#[component]
pub(super) fn HoldButton(board_state: BoardState, handle: DialogHandle) -> impl IntoView {
    let is_on_hold = move || board_state.board().read().on_hold_by.is_some();
    view! {
        <button
            class="button quiet"
            type="button"
            commandfor="hold"
            command="show-modal"
            on:click=handle.on_click()
        >
            {move || icon(if is_on_hold() { Icon::Run } else { Icon::Paused })}
            {move || if is_on_hold() { "Release hold…" } else { "Put on hold…" }}
        </button>
    }
    .into_any()
}

#[component]
pub(super) fn HoldDialog(board_state: BoardState, handle: DialogHandle) -> impl IntoView {
    let hold = ServerAction::<Hold>::new();
    let refused = Refused::of(hold);
    let is_on_hold = Memo::new(move |_| board_state.board().read().on_hold_by.is_some());
    let name = move || board_state.board().read().name.to_string();
    let title = Signal::derive(move || {
        let name = name();
        if is_on_hold.get() {
            format!("Release the hold of {name}")
        } else {
            format!("Put {name} on hold")
        }
    });
    on_success(hold, move |()| {
        handle.close();
        board_state.announce(match is_on_hold.get_untracked() {
            true => "Hold released. Steps start again.",
            false => "Deployment put on hold. No new run starts.",
        });
        board_state.feed().now();
    });
    view! {
        <Dialog id="hold" title=title handle=handle refused=refused.is_here()>
            <ActionForm action=hold attr:class="form">
                <input
                    type="hidden"
                    name="deployment"
                    value=move || board_state.board().read().id.to_string()
                />
                <input
                    type="hidden"
                    name="on_hold"
                    value=move || if is_on_hold.get() { "false" } else { "true" }
                />
                <div class="body">
                    <p>
                        {move || match is_on_hold.get() {
                            true => "Runs start again in this deployment and below it. No further \
                                review is needed.",
                            false => "No new run starts in this deployment or below it until the \
                                hold is released. Running steps finish. Approved changes stay \
                                approved.",
                        }}
                    </p>
                    <div class="field">
                        <label for="hold-reason">"Reason"</label>
                        <input
                            class="input"
                            id="hold-reason"
                            name="reason" required
                            maxlength=MAX_REASON autofocus
                            autocomplete="off"
                            aria-describedby="hold-hint"
                            value=refused.typed("reason")
                        />
                        <span class="hint" id="hold-hint">
                            "Shown on the board and stored in the audit log with your name."
                        </span>
                    </div>
                    <ProblemNotice problem=problem_of(hold)/>
                    <EquivalentCommands of=move |typed: FormValues| {
                        vec![
                            api::calls::hold(
                                &board_state.board().read().name,
                                !is_on_hold.get(),
                                &typed.or("reason", "WHY")
                            )
                        ]
                    }/>
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || hold.pending().get()
                    >
                        {move || if is_on_hold.get() { "Release hold" } else { "Put on hold" }}
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
