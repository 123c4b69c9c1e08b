//! A node with a role, in a cell of the board or in the list of all nodes with the role.

use api::runs::StepState;
use api::views::board::BoardNoderole;
use engine::ids::RoleName;
use leptos::prelude::*;

use super::address::Address;
use super::board_state::BoardState;
use super::open_edit::{OpenEdit, Subject};
use crate::components::{Icon, icon, mark};

pub(super) fn noderole_view(
    board_state: BoardState,
    role: StoredValue<RoleName>,
    noderole: Memo<BoardNoderole>,
) -> impl IntoView {
    let page_address = expect_context::<Memo<Address>>();
    let id = noderole.read_untracked().noderole;
    let state = board_state.state_of(&noderole.read_untracked());
    let state = Memo::new(move |_| state.get());
    let address = move || page_address.read().panel(Some(id)).link();
    let title = move || hover(&noderole.read(), state.get());
    let is_proposed = move || state.get() == StepState::Proposed;
    let menu = move || {
        role.with_value(|role| {
            board_state.ask(OpenEdit::Menu(Subject::from_cell(
                &board_state.board().read_untracked(),
                role,
                &noderole.read_untracked(),
            )))
        })
    };
    view! {
        <li>
            <a
                class="chip"
                class:changed=move || noderole.read().changed
                class:removed=move || noderole.read().removed
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
                aria-current=move || (page_address.read().noderole == Some(id)).then_some("true")
                title=title
            >
                {move || mark(state.get())}
                <span class="clip">{move || noderole.read().short.clone()}</span>
                <span class="visually-hidden">" " {move || state.get().label()}</span>
                {
                    move || signs(&noderole.read(), state.get())
                        .into_iter()
                        .map(sign_view)
                        .collect_view()
                }
            </a>
        </li>
    }
    .into_any()
}

/// A mark after a chip's name: its color, its icon and its text.
type Sign = (&'static str, Icon, &'static str);

fn signs(noderole: &BoardNoderole, state: StepState) -> Vec<Sign> {
    let is_active = state == StepState::Active;
    let removed = match noderole.runs_remove {
        true => "removed by this proposal, runs remove",
        false => "removed by this proposal, stays on the node",
    };
    let all = [
        (noderole.stale && is_active, ("warn", Icon::Warn, "stale")),
        (noderole.unchecked && is_active, ("warn", Icon::Warn, "unchecked")),
        (noderole.removed, ("error", Icon::Delete, removed)),
        (!noderole.alive, ("error", Icon::Dead, "node is dead")),
    ];
    all.into_iter().filter(|(applies, _)| *applies).map(|(_, sign)| sign).collect()
}

fn sign_view((color, shape, text): Sign) -> AnyView {
    view! {
        <span data-state=color>{icon(shape)} <span class="visually-hidden">", " {text}</span></span>
    }
    .into_any()
}

/// The tooltip of a chip.
fn hover(noderole: &BoardNoderole, state: StepState) -> String {
    let mut text = format!("{}: {}", noderole.fqdn, state.label());
    for (_, _, sign) in signs(noderole, state) {
        text += ", ";
        text += sign;
    }
    let mut text = vec![text];
    text.extend(noderole.required_by.as_ref().map(|by| format!("required by {by}")));
    text.extend(noderole.changed.then(|| "changed by this proposal".to_owned()));
    text.extend(noderole.error.clone());
    text.join("\n")
}
