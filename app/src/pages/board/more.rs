//! What a proposal can say beside binding: take a noderole off, a role out, a node or a deployment away, make a deployment below.
//!
//! What can be taken back by *Undo* is done at once. What reads like more than it is, or is more than it reads like (a whole
//! deployment, a machine), asks for its name.

use engine::cluster::NoderoleKey;
use engine::ids::{DeploymentId, DeploymentName, NodeId, RoleName};
use engine::plan::Edit;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use uuid::Uuid;
use wasm_bindgen::JsCast;

use super::desk::Desk;
use crate::parts::{Dialog, DialogHandle, Icon, icon};

/// Takes a role that no node carries out of the deployment.
pub(super) fn remove_role(desk: Desk, role: &RoleName) {
    let deployment = desk.board().read_untracked().id;
    desk.edit(
        vec![Edit::RemoveRole { deployment, role: role.clone() }],
        format!("Role {role} removed by the proposal. Control Z takes it back."),
    );
}

/// Takes the noderole whose chip has the focus off its node; false when there is none, or no proposal.
pub(super) fn unbind_focused(desk: Desk, event: &KeyboardEvent) -> bool {
    let chip = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let Some(id) = chip.and_then(|chip| chip.get_attribute("data-noderole")) else { return false };
    if desk.proposal().read_untracked().is_none() {
        return false;
    }
    let board = desk.board().read_untracked();
    let roles = board.groups.iter().flat_map(|group| &group.roles);
    let found = roles.flat_map(|role| role.chips.iter().map(move |chip| (role, chip)));
    let Some((role, chip)) = found.into_iter().find(|(_, chip)| chip.noderole.to_string() == id) else { return false };
    let edit =
        Edit::Unbind { node: chip.node, noderole: NoderoleKey::first(role.role.clone()), with_dependents: false };
    let done = format!("{} taken off {} by the proposal. Control Z takes it back.", role.role, chip.short);
    drop(board);
    desk.edit(vec![edit], done);
    true
}

/// A field that has to be filled with a name before something happens.
#[component]
fn TypedName(id: &'static str, #[prop(into)] name: Signal<String>, typed: RwSignal<String>) -> impl IntoView {
    view! {
        <div class="field">
            <label for=id>"Type " <b>{move || name.get()}</b> " to go on"</label>
            <input
                class="input"
                id=id
                autocomplete="off"
                spellcheck="false"
                autofocus
                prop:value=move || typed.get()
                on:input=move |event| typed.set(event_target_value(&event))
            />
        </div>
    }
    .into_any()
}

/// Gives the one selected node up.
#[component]
pub(super) fn GiveUp(desk: Desk) -> impl IntoView {
    let handle = desk.dialogs.give_up;
    let (typed, reason) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let node = Memo::new(move |_| {
        let selected = desk.selected().read();
        let board = desk.board().read();
        board.tray.iter().find(|node| selected.contains(&node.node)).map(|node| (node.node, node.short.clone()))
    });
    let name = Signal::derive(move || node.read().as_ref().map(|(_, short)| short.clone()).unwrap_or_default());
    let title = Signal::derive(move || format!("Give {} up?", name.get()));
    let ready = move || !name.read().is_empty() && *typed.read() == *name.read() && !reason.read().trim().is_empty();
    view! {
        <Dialog
            id="give-up"
            title=title
            handle=handle
            closed=Callback::new(move |()| {
                typed.set(String::new());
                reason.set(String::new());
            })
        >
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    let Some((node, short)) = node.get_untracked().filter(|_| untrack(ready)) else { return };
                    let reason = reason.get_untracked();
                    desk.edit(vec![Edit::ExpungeNode { node, reason }], format!("{short} is given up by the proposal."));
                    handle.close();
                }
            >
                <div class="body">
                    <p>
                        "For a machine that is physically gone. Once this is committed everything on it counts as gone, nothing is run for it, and \
                         it never comes back under this id."
                    </p>
                    <div class="field">
                        <label for="give-up-reason">"Reason"</label>
                        <input
                            class="input"
                            id="give-up-reason"
                            autocomplete="off"
                            prop:value=move || reason.get()
                            on:input=move |event| reason.set(event_target_value(&event))
                        />
                        <span class="hint">"Shown in the review."</span>
                    </div>
                    <TypedName id="give-up-name" name typed/>
                </div>
                <div class="foot">
                    <button class="button danger" type="submit" disabled=move || !ready()>{icon(Icon::Bin)} "Put into the proposal"</button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}

/// Makes a deployment below this one.
#[component]
pub(super) fn Child(desk: Desk, handle: DialogHandle) -> impl IntoView {
    let name = RwSignal::new(String::new());
    let read = Memo::new(move |_| DeploymentName::parse(name.read().trim()).map_err(|error| error.to_string()));
    let fault = move || (!name.read().trim().is_empty()).then(|| read.get().err()).flatten();
    view! {
        <Dialog id="child" title="Child deployment".to_owned() handle=handle closed=Callback::new(move |()| name.set(String::new()))>
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    let Ok(name) = read.get_untracked() else { return };
                    let parent = desk.board().read_untracked().id;
                    // Minted here: the edit must come to the same whoever plans it.
                    let (id, phantom) = (DeploymentId(Uuid::new_v4()), NodeId(Uuid::new_v4()));
                    let done = format!("Deployment {name} is made by the proposal.");
                    desk.edit(vec![Edit::CreateDeployment { id, phantom, name, parent }], done);
                    handle.close();
                }
            >
                <div class="body">
                    <p class="muted">"It sees the barclamps of this deployment, and can take nodes from it."</p>
                    <div class="field">
                        <label for="child-name">"Name"</label>
                        <input
                            class="input"
                            id="child-name"
                            autocomplete="off"
                            spellcheck="false"
                            autofocus
                            aria-describedby="child-fault"
                            prop:value=move || name.get()
                            on:input=move |event| name.set(event_target_value(&event))
                        />
                        <div id="child-fault" aria-live="polite">
                            {move || fault().map(|fault| view! { <p class="fault">{icon(Icon::Error)} <span>{fault}</span></p> })}
                        </div>
                    </div>
                </div>
                <div class="foot">
                    <button class="button primary" type="submit" disabled=move || read.read().is_err()>"Put into the proposal"</button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}

/// Removes this deployment.
#[component]
pub(super) fn RemoveDeployment(desk: Desk, handle: DialogHandle) -> impl IntoView {
    let typed = RwSignal::new(String::new());
    let name = Signal::derive(move || desk.board().read().name.to_string());
    let title = Signal::derive(move || format!("Remove {}?", name.get()));
    let ready = move || *typed.read() == *name.read();
    view! {
        <Dialog id="remove-deployment" title=title handle=handle closed=Callback::new(move |()| typed.set(String::new()))>
            <form
                class="form"
                on:submit=move |event| {
                    event.prevent_default();
                    if !untrack(ready) {
                        return;
                    }
                    let deployment = desk.board().read_untracked().id;
                    desk.edit(vec![Edit::RemoveDeployment { deployment }], format!("{} is removed by the proposal.", name.get_untracked()));
                    handle.close();
                }
            >
                <div class="body">
                    <p>"It has to be empty: no deployment below it, no node in it, no role on a node. What is still there is named."</p>
                    <TypedName id="remove-deployment-name" name typed/>
                </div>
                <div class="foot">
                    <button class="button danger" type="submit" disabled=move || !ready()>{icon(Icon::Bin)} "Put into the proposal"</button>
                </div>
            </form>
        </Dialog>
    }
    .into_any()
}
