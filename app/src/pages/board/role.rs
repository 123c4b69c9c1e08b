//! What a proposal can say of a role as a whole: its data in this deployment, and that it runs again.

use api::console::{BoardRole, StepState};
use engine::cluster::NoderoleKey;
use engine::plan::Edit;
use leptos::prelude::*;

use super::desk::{Desk, nodes};
use crate::parts::Dialog;
use crate::parts::json::{DataEditor, Draft};

#[component]
pub(super) fn RoleData(desk: Desk) -> impl IntoView {
    let handle = desk.dialogs.data;
    let title = Signal::derive(move || {
        desk.data_of
            .read()
            .as_ref()
            .map(|role| format!("Data of {} in {}", role.role, desk.board().read().name))
            .unwrap_or_default()
    });
    let body = move || desk.data_of.get().map(|role| view! { <Editor desk role/> });
    view! {
        <Dialog id="role-data" title=title handle=handle wide=true closed=Callback::new(move |()| desk.data_of.set(None))>
            {body}
        </Dialog>
    }
    .into_any()
}

#[component]
fn Editor(desk: Desk, role: BoardRole) -> impl IntoView {
    let draft = Draft::new(&role.data, role.attribs.clone());
    let (before, name) = (StoredValue::new(role.data), StoredValue::new(role.role));
    let changed = Memo::new(move |_| draft.value().filter(|value| before.with_value(|before| value != before)));
    view! {
        <form
            class="form"
            on:submit=move |event| {
                event.prevent_default();
                let Some(data) = changed.get_untracked() else { return };
                let deployment = desk.board().read_untracked().id;
                let role = name.get_value();
                let done = format!("Data of {role} changed in the proposal.");
                desk.edit(vec![Edit::SetRoleData { deployment, role, data }], done);
                desk.dialogs.data.close();
            }
        >
            <div class="body">
                <p class="muted">
                    "Replaces what this deployment says for the role. It stands above the role's own template and below what single noderoles say."
                </p>
                <DataEditor draft name="role-data"/>
            </div>
            <div class="foot">
                <button class="button primary" type="submit" disabled=move || changed.read().is_none()>"Put into the proposal"</button>
            </div>
        </form>
    }
    .into_any()
}

#[component]
pub(super) fn RoleAgain(desk: Desk) -> impl IntoView {
    let handle = desk.dialogs.again;
    let reason = RwSignal::new(String::new());
    let title = Signal::derive(move || {
        desk.again.read().as_ref().map(|role| format!("Run {} again", role.role)).unwrap_or_default()
    });
    let behind = RwSignal::new(false);
    let targets = move || {
        let role = desk.again.get()?;
        let bound: Vec<_> = role.chips.iter().filter(|chip| chip.state != StepState::Proposed).cloned().collect();
        Some((role, bound))
    };
    let about = move || {
        targets().map(|(role, bound)| {
            let rest =
                (role.more > 0).then(|| format!(" The {} that the board does not show are left out.", role.more));
            format!("On {}, once the change is committed.{}", nodes(bound.len()), rest.unwrap_or_default())
        })
    };
    view! {
        <Dialog id="role-again" title=title handle=handle closed=Callback::new(move |()| { desk.again.set(None); reason.set(String::new()); behind.set(false); })>
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    let Some((role, bound)) = untrack(targets) else { return };
                    if behind.get_untracked() {
                        let deployment = desk.board().read_untracked().id;
                        let roles = [role.role.clone()].into();
                        let slice = Edit::RerunSlice { deployment, roles, reason: reason.get_untracked() };
                        desk.edit(vec![slice], format!("{} and what waits for it run again by the proposal.", role.role));
                        handle.close();
                        return;
                    }
                    let again = |node| Edit::Rerun { node, noderole: NoderoleKey::first(role.role.clone()), reason: reason.get_untracked() };
                    let edits = bound.iter().map(|chip| again(chip.node)).collect();
                    desk.edit(edits, format!("{} runs again on {} by the proposal.", role.role, nodes(bound.len())));
                    handle.close();
                }
            >
                <div class="body">
                    <p>{about}</p>
                    <div class="field">
                        <label for="again-reason">"Reason"</label>
                        <input
                            class="input"
                            id="again-reason"
                            required
                            autocomplete="off"
                            prop:value=move || reason.get()
                            on:input=move |event| reason.set(event_target_value(&event))
                        />
                        <span class="hint">"Shown in the review and with each run."</span>
                    </div>
                    <label class="choice">
                        <input type="checkbox" prop:checked=move || behind.get() on:change=move |event| behind.set(event_target_checked(&event))/>
                        <span><b>"And whatever waits for it here"</b> <small>"On every node, in the order of the graph."</small></span>
                    </label>
                </div>
                <div class="foot">
                    <button class="button primary" type="submit" disabled=move || reason.read().trim().is_empty()>"Put into the proposal"</button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}
