//! A node's context menu, for pointer, touch and keyboard.
//!
//! It opens on a right click, a long touch or the menu key (Shift+F10). Chips without a panel open
//! it on click.

use engine::ids::NodeId;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::address::Address;
use super::bind;
use super::board_state::BoardState;
use super::open_edit::{NodeInDeployment, OpenEdit, Subject};
use crate::components::{Icon, icon};
use crate::pages::proposals::{About, Alone, LabelStyle, Named};

/// Opens the menu of the focused chip. Returns false if no chip has the focus.
pub(super) fn open_for_focused(board_state: BoardState, event: &KeyboardEvent) -> bool {
    let Some(element) =
        event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok())
    else {
        return false;
    };
    let in_tray = element.get_attribute("data-tray").and_then(|id| id.parse().ok());
    let subject = match in_tray {
        Some(node) => Subject::in_tray(&board_state.board().read_untracked(), NodeId(node)),
        None => element.get_attribute("data-noderole").and_then(|id| of_noderole(board_state, &id)),
    };
    match subject {
        Some(subject) => board_state.ask(OpenEdit::Menu(subject)),
        None => return false,
    }
    true
}

/// Opens the dialog that unbinds the focused chip's noderole. Returns false without a focused chip
/// or an open proposal.
pub(super) fn unbind_focused(board_state: BoardState, event: &KeyboardEvent) -> bool {
    let element = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let Some(id) = element.and_then(|element| element.get_attribute("data-noderole")) else {
        return false;
    };
    if !board_state.editable().get_untracked() {
        return false;
    }
    let Some(carried) = of_noderole(board_state, &id).and_then(|subject| subject.carried()) else {
        return false;
    };
    board_state.ask(OpenEdit::About(About::Unbind(carried)));
    true
}

fn of_noderole(board_state: BoardState, id: &str) -> Option<Subject> {
    let board = board_state.board().read_untracked();
    let roles = board.groups.iter().flat_map(|group| &group.roles);
    let mut all =
        roles.flat_map(|role| role.noderoles.iter().map(move |noderole| (&role.role, noderole)));
    let (role, noderole) = all.find(|(_, noderole)| noderole.noderole.to_string() == id)?;
    Some(Subject::from_cell(&board, role, noderole))
}

/// An entry of a menu: its form and its description.
pub(super) fn entry(
    shape: Icon,
    words: impl Into<String>,
    about: &'static str,
    run: impl Fn() + 'static,
) -> AnyView {
    let words = words.into();
    view! {
        <li>
            <button class="choice-button" type="button" on:click=move |_| run()>
                {icon(shape)}
                <span><b>{words}</b> " " <small>{about}</small></span>
            </button>
        </li>
    }
    .into_any()
}

#[component]
pub(super) fn NodeMenu(board_state: BoardState, subject: Subject) -> impl IntoView {
    let page_address = expect_context::<Memo<Address>>();
    let is_open = board_state.editable().get_untracked();
    let may_propose = board_state.board().read_untracked().may_propose.is_allowed();
    let to = move |act: OpenEdit| move || board_state.ask(act.clone());
    let Named { node, short } = subject.named.clone();
    let panel = subject.of.as_ref().filter(|of| !of.proposed).map(|of| {
        let link = page_address.read_untracked().panel(Some(of.id)).link();
        view! {
            <li>
                <a
                    class="choice-button"
                    href=link data-noscroll
                    on:click=move |_| board_state.dialogs.act.close()
                >
                    {icon(Icon::Search)}
                    <span>
                        <b>"Show details"</b> " "
                        <small>"State, pending reason, data and runs."</small>
                    </span>
                </a>
            </li>
        }
    });
    let noderole = subject.carried().filter(|_| is_open).map(|carried| {
        let again = subject.of.as_ref().is_some_and(|of| !of.proposed);
        view! {
            {
                entry(
                    Icon::Data,
                    "Set data",
                    "For this noderole only.",
                    to(OpenEdit::About(About::Data(carried.clone())))
                )
            }
            {
                again.then(
                    || entry(
                        Icon::Rerun,
                        "Run again",
                        "Even if nothing changed.",
                        to(OpenEdit::About(About::Rerun(carried.clone())))
                    )
                )
            }
            {
                entry(
                    Icon::Cross,
                    format!("Unbind from {short}"),
                    carried.removal(),
                    to(OpenEdit::About(About::Unbind(carried.clone())))
                )
            }
        }
    });
    let placed =
        NodeInDeployment { named: subject.named.clone(), deployment: subject.deployment.clone() };
    let is_here = subject
        .deployment
        .as_ref()
        .is_some_and(|name| *name == board_state.board().read_untracked().name);
    let whole = is_open.then(|| {
        let bind = move || {
            board_state.dialogs.act.close();
            bind::open(board_state, vec![node]);
        };
        let expunge = match is_here {
            true => entry(
                Icon::Delete,
                format!("Expunge {short}"),
                "For a machine that no longer exists.",
                to(OpenEdit::About(About::Expunge(subject.named.clone()))),
            ),
            false => view! {
                <li class="aside">
                    {icon(Icon::Delete)}
                    <span>
                        "The node is in "
                        {
                            subject.deployment.as_ref().map_or(
                                "another deployment".to_owned(),
                                ToString::to_string
                            )
                        }
                        ". To expunge it, propose changes on this node only."
                    </span>
                </li>
            }
            .into_any(),
        };
        view! {
            {
                entry(
                    Icon::Bind,
                    format!("Bind {short} to a role"),
                    "Also adds required roles.",
                    bind
                )
            }
            {
                entry(
                    Icon::Deployments,
                    format!("Move {short}"),
                    "To another deployment.",
                    to(OpenEdit::Move(vec![placed.clone()]))
                )
            }
            {expunge}
        }
    });
    view! {
        <div class="body">
            <p class="muted lines">{subject.about.clone()}</p>
            <ul class="choices tall">{panel} {noderole} {whole}</ul>
        </div>
        {may_propose.then(|| view! {
            <div class="foot">
                <span class="muted grow">"To change only this node, use a separate proposal:"</span>
                <Alone node=node name=short shows=LabelStyle::InFull/>
            </div>
        })}
    }
    .into_any()
}
