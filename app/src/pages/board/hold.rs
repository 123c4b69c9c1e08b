//! Puts a deployment on hold: no new run starts in it or its descendants until someone releases it.
//! A hold adds no intent, so it needs no review and is not part of a proposal.

use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::calls::Hold;
use super::desk::Desk;
use crate::parts::act::{on_success, problem_of};
use crate::parts::{Dialog, DialogHandle, Icon, ProblemNotice, Refused, Same, Typed, icon};
use crate::places;

/// Shows the person who put the deployment on hold, the reason, and the effect.
#[component]
pub(super) fn Held(desk: Desk) -> impl IntoView {
    let hold = Memo::new(move |_| desk.board().read().hold.clone());
    move || {
        let hold = hold.get()?;
        let above = hold.deployment != desk.board().read_untracked().name;
        let whose = above.then(|| view! { <a href=places::deployment(&hold.deployment)>{hold.deployment.to_string()}</a> " above this deployment was " });
        Some(view! {
            <div class="notice refused" data-state="warn" role="status">
                {icon(Icon::Paused)}
                <div>
                    <b>{whose} {if above { "put on hold by " } else { "Put on hold by " }} {hold.by} ": " {hold.reason}</b>
                    <p>"No new run starts in this deployment or below it. Running steps finish. You can still propose, review and commit changes."</p>
                </div>
            </div>
        })
    }
}

/// The button that opens the dialog, to hold or to release.
#[component]
pub(super) fn HoldButton(desk: Desk, handle: DialogHandle) -> impl IntoView {
    let is_held = move || desk.board().read().on_hold_by.is_some();
    view! {
        <button class="button quiet" type="button" commandfor="hold" command="show-modal" on:click=handle.on_click()>
            {move || icon(if is_held() { Icon::Run } else { Icon::Paused })}
            {move || if is_held() { "Release hold…" } else { "Put on hold…" }}
        </button>
    }
    .into_any()
}

#[component]
pub(super) fn HoldDialog(desk: Desk, handle: DialogHandle) -> impl IntoView {
    let hold = ServerAction::<Hold>::new();
    let refused = Refused::of(hold);
    let is_held = Memo::new(move |_| desk.board().read().on_hold_by.is_some());
    let name = move || desk.board().read().name.to_string();
    let title = Signal::derive(move || {
        format!(
            "{} {}",
            if is_held.get() { "Release the hold on" } else { "Put a hold on" },
            name()
        )
    });
    on_success(hold, move |()| {
        handle.close();
        desk.say(match is_held.get_untracked() {
            true => "Hold released. Steps start again.",
            false => "Deployment put on hold. No new run starts.",
        });
        desk.feed().now();
    });
    view! {
        <Dialog id="hold" title=title handle=handle refused=refused.is_here()>
            <ActionForm action=hold attr:class="form">
                <input type="hidden" name="deployment" value=move || desk.board().read().id.to_string()/>
                <input type="hidden" name="held" value=move || if is_held.get() { "false" } else { "true" }/>
                <div class="body">
                    <p>
                        {move || match is_held.get() {
                            true => "Runs start again in this deployment and below it. No further review is needed.",
                            false => "No new run starts in this deployment or below it until the hold is released. Running steps finish. Approved changes stay approved.",
                        }}
                    </p>
                    <div class="field">
                        <label for="hold-reason">"Reason"</label>
                        <input class="input" id="hold-reason" name="reason" required maxlength=MAX_REASON autofocus autocomplete="off" aria-describedby="hold-hint" value=refused.typed("reason")/>
                        <span class="hint" id="hold-hint">"Shown on the board and stored in the audit log with your name."</span>
                    </div>
                    <ProblemNotice problem=problem_of(hold)/>
                    <Same of=move |typed: Typed| {
                        vec![api::calls::hold(&desk.board().read().name, !is_held.get(), &typed.or("reason", "WHY"))]
                    }/>
                </div>
                <div class="foot">
                    <button class="button primary" type="submit" disabled=move || hold.pending().get()>{move || if is_held.get() { "Release hold" } else { "Put on hold" }}</button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
