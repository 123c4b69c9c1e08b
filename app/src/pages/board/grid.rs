//! The rows of a board: roles, and the nodes with each role.

use api::runs::StepState;
use api::views::board::{BoardGroup, BoardNoderole, BoardRole};
use engine::counting::many;
use engine::ids::{DeploymentName, RoleName};
use leptos::ev::DragEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::address::Address;
use super::board_state::BoardState;
use super::drop_outcome::DropOutcome;
use super::edit_dialog::OpenEdit;
use super::menu::Subject;
use super::role::is_bound;
use super::role_noderoles;
use super::step_states::RoleStates;
use crate::components::{Empty, Icon, icon, mark, rows};

#[component]
pub(super) fn Grid(board_state: BoardState) -> impl IntoView {
    let groups = Memo::new(move |_| board_state.board().read().groups.clone());
    let is_empty = Memo::new(move |_| groups.read().is_empty());
    view! {
        <div class="card grid">
            {rows(
                groups.into(),
                |group| (group.barclamp.clone(), group.of_ancestor.clone()),
                move |group| view! { <Group board_state group/> },
            )}
            {move || {
                is_empty
                    .get()
                    .then(|| {
                        view! {
                            <Empty icon=Icon::Deployments title="No roles yet">
                                <p>"Propose changes, add roles, then bind nodes to them."</p>
                            </Empty>
                        }
                    })
            }}
        </div>
    }
    .into_any()
}

#[component]
fn Group(board_state: BoardState, group: Memo<BoardGroup>) -> impl IntoView {
    let roles = Memo::new(move |_| group.read().roles.clone());
    // Part of the group's key, so it never changes.
    let ancestor = StoredValue::new(group.read_untracked().of_ancestor.clone());
    let about = move || {
        let count = many(roles.read().len(), "role");
        match &group.read().of_ancestor {
            Some(ancestor) => format!("{count}, in {ancestor}"),
            None => count,
        }
    };
    view! {
        <section aria-label=move || group.read().barclamp.to_string()>
            <div class="group">
                <h2>{move || group.read().barclamp.to_string()}</h2>
                <span>{move || about()}</span>
            </div>
            {rows(roles.into(), |role| role.role.clone(), move |role| view! { <Row board_state role ancestor/> })}
        </section>
    }
    .into_any()
}

#[component]
fn Row(
    board_state: BoardState,
    role: Memo<BoardRole>,
    ancestor: StoredValue<Option<DeploymentName>>,
) -> impl IntoView {
    let name = StoredValue::new(role.read_untracked().role.clone());
    let bindable = Memo::new(move |_| role.read().bindable);
    let editable = Memo::new(move |_| bindable.get() && board_state.editable().get());
    let outcome = Memo::new(move |_| {
        bindable.get().then(|| name.with_value(|name| board_state.drop_outcome(name))).flatten()
    });
    let over = Memo::new(move |_| {
        bindable.get() && name.with_value(|name| board_state.over().read().as_ref() == Some(name))
    });
    let text = move || {
        outcome.read().as_ref().map(|outcome| (outcome.text(over.get()), outcome.reasons()))
    };
    let chips = Memo::new(move |_| role.read().noderoles.clone());
    let more = move || {
        let role = role.read();
        (role.more > 0).then(|| role_noderoles::more(board_state, &role, ancestor.get_value()))
    };
    let add = move || {
        editable.get().then(|| {
            let name = name.get_value();
            view! {
                <button
                    class="button add needs-scripts"
                    type="button"
                    aria-label=format!("Bind nodes to {name}")
                    title="Bind nodes"
                    on:click=move |_| board_state.ask(OpenEdit::SelectNodes(name.clone()))
                >
                    {icon(Icon::Plus)}
                </button>
            }
        })
    };
    view! {
        <div
            class="row"
            class:proposed=move || role.read().proposed
            role="group"
            aria-label=move || format!("Role {}", role.read().role)
            data-role=move || role.read().role.to_string()
            data-bindable=move || bindable.get().then_some("")
            data-drop=move || outcome.read().as_ref().map(DropOutcome::label)
            data-over=move || over.get().then_some("")
            on:dragover=move |event| drag_over(board_state, name, bindable.get_untracked(), &outcome.get_untracked(), &event)
            on:dragleave=move |event| drag_leave(board_state, name, &event)
            on:drop=move |event| {
                event.prevent_default();
                name.with_value(|name| board_state.drop_on(name));
            }
        >
            <div class="role">
                <div title=move || role.read().description.clone()>
                    <b>{move || is_milestone(&role.read()).then(|| icon(Icon::Milestone))} {move || role.read().role.to_string()}</b>
                    <small>{move || about(&role.read())}</small>
                </div>
                {move || editable.get().then(|| view! { <RoleButtons board_state role/> })}
                <RoleStates board_state role/>
            </div>
            <div class="cell">
                <ul class="chips" aria-label=move || format!("Nodes with {}", role.read().role)>
                    {rows(chips.into(), |chip| chip.noderole, move |chip| noderole_view(board_state, name, chip))}
                </ul>
                {move || more()}
                {move || add()}
                {move || text().map(|(text, reasons)| view! { <span class="drop-text" title=reasons>{text}</span> })}
            </div>
        </div>
    }
    .into_any()
}

fn is_milestone(role: &BoardRole) -> bool {
    role.traits.iter().any(|word| word == "milestone")
}

fn about(role: &BoardRole) -> String {
    let added = role.proposed.then(|| "new".to_owned());
    role.traits.iter().cloned().chain(added).collect::<Vec<_>>().join(" · ")
}

#[component]
fn RoleButtons(board_state: BoardState, role: Memo<BoardRole>) -> impl IntoView {
    let name = role.read_untracked().role.to_string();
    let has_nodes = Memo::new(move |_| !role.read().noderoles.is_empty() || role.read().more > 0);
    view! {
        <div class="buttons needs-scripts">
            <button
                class="button quiet small only-icon"
                type="button"
                aria-label=format!("Data of {name}")
                title="Data of the role in this deployment"
                on:click=move |_| board_state.ask(OpenEdit::RoleData(role.get_untracked()))
            >
                {icon(Icon::Data)}
            </button>
            <button
                class="button quiet small only-icon"
                type="button"
                aria-label=format!("Run {name} again")
                title="Run again"
                disabled=move || !is_bound(&role.read())
                on:click=move |_| board_state.ask(OpenEdit::RerunRole(role.get_untracked()))
            >
                {icon(Icon::Rerun)}
            </button>
            <button
                class="button quiet small only-icon"
                type="button"
                aria-label=format!("Remove role {name}")
                title=move || if has_nodes.get() { "Nodes have this role. Unbind them first: press Delete on a node." } else { "Remove the role from this deployment" }
                disabled=has_nodes
                on:click=move |_| board_state.ask(OpenEdit::RemoveRole(role.read_untracked().role.clone()))
            >
                {icon(Icon::Delete)}
            </button>
        </div>
    }
    .into_any()
}

fn drag_over(
    board_state: BoardState,
    name: StoredValue<RoleName>,
    bindable: bool,
    outcome: &Option<DropOutcome>,
    event: &DragEvent,
) {
    if !bindable || board_state.dragged().read_untracked().is_none() {
        return;
    }
    let is_other =
        name.with_value(|name| board_state.over().read_untracked().as_ref() != Some(name));
    if is_other {
        board_state.over().set(Some(name.get_value()));
    }
    // Allow the drop while the response is pending. The response decides.
    let takes = outcome.as_ref().is_none_or(DropOutcome::takes);
    if takes {
        event.prevent_default();
    }
    if let Some(transfer) = event.data_transfer() {
        transfer.set_drop_effect(if takes { "copy" } else { "none" });
    }
}

fn drag_leave(board_state: BoardState, name: StoredValue<RoleName>, event: &DragEvent) {
    let row = event.current_target().and_then(|row| row.dyn_into::<web_sys::Node>().ok());
    let into = event.related_target().and_then(|into| into.dyn_into::<web_sys::Node>().ok());
    let stays = row.zip(into).is_some_and(|(row, into)| row.contains(Some(&into)));
    if !stays && name.with_value(|name| board_state.over().read_untracked().as_ref() == Some(name))
    {
        board_state.over().set(None);
    }
}

pub(super) fn noderole_view(
    board_state: BoardState,
    role: StoredValue<RoleName>,
    chip: Memo<BoardNoderole>,
) -> impl IntoView {
    let here = expect_context::<Memo<Address>>();
    let id = chip.read_untracked().noderole;
    let state = board_state.state_of(&chip.read_untracked());
    let state = Memo::new(move |_| state.get());
    let address = move || here.read().panel(Some(id)).link();
    let title = move || hover(&chip.read(), state.get());
    let is_proposed = move || state.get() == StepState::Proposed;
    let menu = move || {
        role.with_value(|role| {
            board_state.ask(OpenEdit::Menu(Subject::from_cell(
                board_state,
                role,
                &chip.read_untracked(),
            )))
        })
    };
    view! {
        <li>
            <a
                class="chip"
                class:touched=move || chip.read().changed
                class:going=move || chip.read().removed
                // A proposed noderole does not exist yet, so it has a menu instead of a panel.
                href=move || (!is_proposed()).then(address)
                tabindex=move || is_proposed().then_some("0")
                role=move || is_proposed().then_some("button")
                aria-haspopup=move || is_proposed().then_some("dialog")
                on:click=move |_| {
                    if untrack(is_proposed) {
                        menu();
                    }
                }
                on:keydown=move |event| {
                    if untrack(is_proposed) && matches!(event.key().as_str(), "Enter" | " ") {
                        event.prevent_default();
                        menu();
                    }
                }
                on:contextmenu=move |event| {
                    event.prevent_default();
                    menu();
                }
                data-noscroll
                data-noderole=id.to_string()
                data-state=move || state.get().as_str()
                aria-current=move || (here.read().noderole == Some(id)).then_some("true")
                title=title
            >
                {move || mark(state.get())}
                <span class="clip">{move || chip.read().short.clone()}</span>
                <span class="unseen">" " {move || state.get().label()}</span>
                {move || chip.read().removed.then(|| view! { <span class="gone">{icon(Icon::Delete)} <span class="unseen">" removed by this proposal"</span></span> })}
                {move || (!chip.read().alive).then(|| view! { <span class="dead">{icon(Icon::Dead)} <span class="unseen">" node is dead"</span></span> })}
            </a>
        </li>
    }
    .into_any()
}

/// The tooltip of a chip.
fn hover(chip: &BoardNoderole, state: StepState) -> String {
    let mut text = vec![format!("{}: {}", chip.fqdn, state.label())];
    text.extend(chip.required_by.as_ref().map(|by| format!("required by {by}")));
    text.extend(chip.removed.then(|| "removed by this proposal".to_owned()));
    text.extend(chip.changed.then(|| "changed by this proposal".to_owned()));
    text.extend((!chip.alive).then(|| "the node is dead".to_owned()));
    text.extend(chip.error.clone());
    text.join("\n")
}

pub(super) fn scroll_to(role: &RoleName) {
    let selector = format!("[data-bindable][data-role='{role}']");
    let Ok(Some(row)) = document().query_selector(&selector) else { return };
    let options = web_sys::ScrollIntoViewOptions::new();
    options.set_block(web_sys::ScrollLogicalPosition::Nearest);
    row.scroll_into_view_with_scroll_into_view_options(&options);
}
