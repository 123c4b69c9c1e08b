//! The rows of a board: roles, and the nodes with each role.

use api::views::board::{BoardGroup, BoardRole};
use engine::counting::many;
use engine::ids::{DeploymentName, RoleName};
use leptos::ev::DragEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::board_state::BoardState;
use super::drop_outcome::DropOutcome;
use super::noderole_cell::noderole_view;
use super::open_edit::OpenEdit;
use super::role::is_bound;
use super::role_noderoles;
use super::step_states::RoleStates;
use crate::components::{Empty, Icon, icon, rows};

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
            {rows(roles.into(), |role| role.role.clone(), move |role| view! {
                <Row board_state role ancestor/>
            })}
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
    let noderoles = Memo::new(move |_| role.read().noderoles.clone());
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
            on:dragover=move |event| drag_over(
                board_state,
                name,
                bindable.get_untracked(),
                &outcome.get_untracked(),
                &event
            )
            on:dragleave=move |event| drag_leave(board_state, name, &event)
            on:drop=move |event| {
                event.prevent_default();
                name.with_value(|name| board_state.drop_on(name));
            }
        >
            <div class="role">
                <div title=move || role.read().description.clone()>
                    <b>
                        {move || is_milestone(&role.read()).then(|| icon(Icon::Milestone))}
                        {move || role.read().role.to_string()}
                    </b>
                    <small>{move || about(&role.read())}</small>
                </div>
                {move || editable.get().then(|| view! { <RoleButtons board_state role/> })}
                <RoleStates board_state role/>
            </div>
            <div class="cell">
                <ul class="chips" aria-label=move || format!("Nodes with {}", role.read().role)>
                    {
                        rows(
                            noderoles.into(),
                            |noderole| noderole.noderole,
                            move |noderole| noderole_view(board_state, name, noderole)
                        )
                    }
                </ul>
                {move || more()}
                {move || add()}
                {move || text().map(|(text, reasons)| view! {
                    <span class="drop-text" title=reasons>{text}</span>
                })}
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
    let remove_title = move || match has_nodes.get() {
        true => "Nodes have this role. Unbind them first: press Delete on a node.",
        false => "Remove the role from this deployment",
    };
    let data = move || board_state.ask(OpenEdit::RoleData(role.get_untracked()));
    let rerun = move || board_state.ask(OpenEdit::RerunRole(role.get_untracked()));
    let remove = move || board_state.ask(OpenEdit::RemoveRole(role.read_untracked().role.clone()));
    view! {
        <div class="buttons needs-scripts">
            {role_button(
                Icon::Data,
                format!("Data of {name}"),
                Box::new(|| "Data of the role in this deployment"),
                Box::new(|| false),
                Box::new(data),
            )}
            {role_button(
                Icon::Rerun,
                format!("Run {name} again"),
                Box::new(|| "Run again"),
                Box::new(move || !is_bound(&role.read())),
                Box::new(rerun),
            )}
            {role_button(
                Icon::Delete,
                format!("Remove role {name}"),
                Box::new(remove_title),
                Box::new(move || has_nodes.get()),
                Box::new(remove),
            )}
        </div>
    }
    .into_any()
}

/// Not generic, so that the browser's module has its code once.
fn role_button(
    shape: Icon,
    label: String,
    title: Box<dyn Fn() -> &'static str + Send>,
    is_off: Box<dyn Fn() -> bool + Send>,
    click: Box<dyn Fn() + Send>,
) -> AnyView {
    view! {
        <button
            class="button quiet small only-icon"
            type="button"
            aria-label=label
            title=title
            disabled=is_off
            on:click=move |_| click()
        >
            {icon(shape)}
        </button>
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
