//! The priority of a deployment: among all steps that are ready, those of a higher priority start
//! first. Like a hold, it adds no intent, so it needs no review and is not part of a proposal.

use engine::catalog::read::MAX_PRIORITY;
use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::board_state::BoardState;
use super::server_functions::SetPriority;
use crate::components::action::{on_success, problem_of};
use crate::components::{
    Dialog, DialogHandle, EquivalentCommands, FormValues, Icon, ProblemNotice, Refused, icon,
};

/// Shows the priority, unless it is the default.
#[component]
pub(super) fn PriorityNotice(board_state: BoardState) -> impl IntoView {
    let priority = Memo::new(move |_| board_state.board().read().priority);
    move || {
        let shape = match priority.get() {
            0 => return None,
            1.. => Icon::Up,
            _ => Icon::Down,
        };
        Some(view! { <span class="pill flat">{icon(shape)} "priority " {priority.get()}</span> })
    }
}

#[component]
pub(super) fn PriorityButton(handle: DialogHandle) -> impl IntoView {
    view! {
        <button
            class="button quiet"
            type="button"
            commandfor="priority"
            command="show-modal"
            on:click=handle.on_click()
        >
            {icon(Icon::Up)}
            "Set priority…"
        </button>
    }
    .into_any()
}

#[component]
pub(super) fn PriorityDialog(board_state: BoardState, handle: DialogHandle) -> impl IntoView {
    let set = ServerAction::<SetPriority>::new();
    let refused = Refused::of(set);
    let typed = refused.typed("priority");
    let now = Memo::new(move |_| board_state.board().read().priority);
    let title = Signal::derive(move || format!("Priority of {}", board_state.board().read().name));
    on_success(set, move |()| {
        handle.close();
        board_state.announce("Priority set. It applies to every run that starts from now on.");
        board_state.feed().now();
    });
    let text = move || match now.get() {
        0 => "The current priority is 0, the default.".to_owned(),
        n => format!("The current priority is {n}. The default is 0."),
    };
    view! {
        <Dialog id="priority" title=title handle=handle refused=refused.is_here()>
            <ActionForm action=set attr:class="form">
                <input
                    type="hidden"
                    name="deployment"
                    value=move || board_state.board().read().id.to_string()
                />
                <div class="body">
                    <p>
                        "Ready steps with a higher priority start first. The priority of the role \
                         is added. Steps with a lower priority wait meanwhile. " {text}
                    </p>
                    <div class="field">
                        <label for="priority-number">"Priority"</label>
                        <input
                            class="input"
                            id="priority-number"
                            name="priority"
                            type="number" required
                            min=-MAX_PRIORITY
                            max=MAX_PRIORITY
                            step="1" autofocus
                            autocomplete="off"
                            aria-describedby="priority-hint"
                            value=move || typed.clone().unwrap_or_else(|| now.get().to_string())
                        />
                        <span class="hint" id="priority-hint">
                            {format!("A whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}.")}
                        </span>
                    </div>
                    <div class="field">
                        <label for="priority-reason">"Reason"</label>
                        <input
                            class="input"
                            id="priority-reason"
                            name="reason" required
                            maxlength=MAX_REASON
                            autocomplete="off"
                            aria-describedby="priority-reason-hint"
                            value=refused.typed("reason")
                        />
                        <span class="hint" id="priority-reason-hint">
                            "Stored in the audit log with your name."
                        </span>
                    </div>
                    <ProblemNotice problem=problem_of(set)/>
                    <EquivalentCommands of=move |typed: FormValues| {
                        // An invalid number keeps the current priority, since the form rejects it.
                        let priority = typed.get("priority").parse().unwrap_or_else(|_| now.get());
                        vec![
                            api::calls::set_priority(
                                &board_state.board().read().name,
                                priority,
                                &typed.or("reason", "WHY")
                            )
                        ]
                    }/>
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || set.pending().get()
                    >
                        "Set priority"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
