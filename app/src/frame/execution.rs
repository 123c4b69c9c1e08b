//! The switch that pauses and resumes execution. Running steps finish either way.

use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::server_functions::SetExecution;
use crate::components::action::{on_success, problem_of};
use crate::components::{
    Dialog, DialogHandle, EquivalentCommands, FormValues, Icon, ProblemNotice, Refused, icon,
};

#[component]
pub(super) fn ExecutionSwitch(on: Memo<bool>, changed: Callback<()>) -> impl IntoView {
    let switch = ServerAction::<SetExecution>::new();
    let dialog = DialogHandle::new();
    let refused = Refused::of(switch);
    on_success(switch, move |_| {
        dialog.close();
        changed.run(());
    });
    let (color, shape) = (
        move || if on.get() { "" } else { "warn" },
        move || icon(if on.get() { Icon::Run } else { Icon::Paused }),
    );
    view! {
        <button
            class=move || if on.get() { "pill flat" } else { "pill" }
            type="button"
            data-state=color
            commandfor="execution"
            command="show-modal"
            on:click=dialog.on_click()
            title="Execution switch for all deployments"
        >
            {shape}
            <span class="caption">
                {move || if on.get() { "execution on" } else { "execution off" }}
            </span>
        </button>
        <Dialog
            id="execution"
            handle=dialog
            refused=refused.is_here()
            title=Signal::derive(
                move || if on.get() { "Turn execution off" } else { "Turn execution on" }.to_owned()
            )
        >
            <ActionForm action=switch attr:class="form">
                <div class="body">
                    <p>
                        {move || match on.get() {
                            true => "No new run starts in any deployment until execution is turned \
                                on again. Running steps finish. Approved changes stay approved.",
                            false => "Runs start again in all deployments. No further review is \
                                needed.",
                        }}
                    </p>
                    <input
                        type="hidden"
                        name="enabled"
                        value=move || if on.get() { "false" } else { "true" }
                    />
                    <div class="field">
                        <label for="execution-reason">"Reason"</label>
                        <input
                            class="input"
                            id="execution-reason"
                            name="reason" required
                            maxlength=MAX_REASON
                            autocomplete="off"
                            value=refused.typed("reason")
                        />
                        <span class="hint">"Stored with the switch and visible to everyone."</span>
                    </div>
                    <ProblemNotice problem=problem_of(switch)/>
                    <EquivalentCommands
                        of=move |typed: FormValues| vec![
                            api::calls::execution(!on.get(), &typed.or("reason", "WHY"))
                        ]
                    />
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || switch.pending().get()
                    >
                        {move || if on.get() { "Turn execution off" } else { "Turn execution on" }}
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
