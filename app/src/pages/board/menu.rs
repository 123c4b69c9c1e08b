//! A node's context menu, for pointer, touch and keyboard.
//!
//! It opens on a right click, a long touch or the menu key (Shift+F10). Chips without a panel open
//! it on click.

use api::runs::StepState;
use api::views::board::BoardNoderole;
use engine::cluster::NoderoleKey;
use engine::ids::{DeploymentName, NodeId, NoderoleId, RoleName};
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

use super::address::Address;
use super::bind;
use super::board_state::BoardState;
use super::edit_dialog::{OpenEdit, line};
use super::move_nodes::NodeInDeployment;
use crate::components::{Icon, icon};
use crate::pages::edits::{About, Alone, LabelStyle, Named, NoderoleOnNode};

/// A node, and its role if the menu was opened on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    named: Named,
    /// Its full name and state.
    about: String,
    /// Its deployment, if known.
    deployment: Option<DeploymentName>,
    of: Option<MenuNoderole>,
}

/// The noderole of a chip.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MenuNoderole {
    role: RoleName,
    id: NoderoleId,
    /// Whether the noderole is only proposed.
    proposed: bool,
}

impl Subject {
    /// A node of the tray.
    pub(super) fn in_tray(board_state: BoardState, id: NodeId) -> Option<Self> {
        let board = board_state.board().read_untracked();
        let node = board.tray.iter().find(|node| node.node == id)?;
        Some(Self {
            named: Named { node: id, short: node.short.clone() },
            about: super::tray::about(node),
            deployment: Some(node.deployment.clone()),
            of: None,
        })
    }

    /// A node in a role's cell.
    pub(super) fn from_cell(
        board_state: BoardState,
        role: &RoleName,
        chip: &BoardNoderole,
    ) -> Self {
        let known = Self::in_tray(board_state, chip.node);
        Self {
            named: Named { node: chip.node, short: chip.short.clone() },
            about: known.as_ref().map_or_else(|| chip.fqdn.clone(), |known| known.about.clone()),
            deployment: known.and_then(|known| known.deployment),
            of: Some(MenuNoderole {
                role: role.clone(),
                id: chip.noderole,
                proposed: chip.state == StepState::Proposed,
            }),
        }
    }

    pub(super) fn title(&self) -> String {
        match &self.of {
            Some(of) => format!("{} on {}", of.role, self.named.short),
            None => self.named.short.clone(),
        }
    }
}

/// Opens the menu of the focused chip. Returns false if no chip has the focus.
pub(super) fn open_for_focused(board_state: BoardState, event: &KeyboardEvent) -> bool {
    let Some(chip) = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok())
    else {
        return false;
    };
    let in_tray = chip.get_attribute("data-tray").and_then(|id| id.parse().ok());
    let subject = match in_tray {
        Some(node) => Subject::in_tray(board_state, NodeId(node)),
        None => chip.get_attribute("data-noderole").and_then(|id| of_noderole(board_state, &id)),
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
    let chip = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let Some(id) = chip.and_then(|chip| chip.get_attribute("data-noderole")) else { return false };
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
    let mut all = roles.flat_map(|role| role.noderoles.iter().map(move |chip| (&role.role, chip)));
    let (role, chip) = all.find(|(_, chip)| chip.noderole.to_string() == id)?;
    Some(Subject::from_cell(board_state, role, chip))
}

impl Subject {
    fn carried(&self) -> Option<NoderoleOnNode> {
        let of = self.of.as_ref()?;
        Some(NoderoleOnNode {
            on: self.named.clone(),
            noderole: NoderoleKey::first(of.role.clone()),
        })
    }
}

#[component]
pub(super) fn NodeMenu(board_state: BoardState, subject: Subject) -> impl IntoView {
    let here = expect_context::<Memo<Address>>();
    let is_open = board_state.editable().get_untracked();
    let may_propose = board_state.board().read_untracked().may_propose.is_allowed();
    let to = move |act: OpenEdit| move || board_state.ask(act.clone());
    let Named { node, short } = subject.named.clone();
    let panel = subject.of.as_ref().filter(|of| !of.proposed).map(|of| {
        let link = here.read_untracked().panel(Some(of.id)).link();
        view! {
            <li>
                <a class="choice-button" href=link data-noscroll on:click=move |_| board_state.dialogs.act.close()>
                    {icon(Icon::Search)}
                    <span><b>"Show details"</b> " " <small>"State, pending reason, data and runs."</small></span>
                </a>
            </li>
        }
    });
    let noderole = subject.carried().filter(|_| is_open).map(|carried| {
        let again = subject.of.as_ref().is_some_and(|of| !of.proposed);
        view! {
            {line(Icon::Data, "Set data", "For this noderole only.", to(OpenEdit::About(About::Data(carried.clone()))))}
            {again.then(|| line(Icon::Rerun, "Run again", "Even if nothing changed.", to(OpenEdit::About(About::Rerun(carried.clone())))))}
            {line(Icon::Cross, format!("Unbind from {short}"), "Without remove, its files and services stay on the node.", to(OpenEdit::About(About::Unbind(carried.clone()))))}
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
        let give_up = match is_here {
            true => line(
                Icon::Delete,
                format!("Expunge {short}"),
                "For a machine that no longer exists.",
                to(OpenEdit::About(About::GiveUp(subject.named.clone()))),
            ),
            false => view! {
                <li class="aside">
                    {icon(Icon::Delete)}
                    <span>"The node is in " {subject.deployment.as_ref().map_or("another deployment".to_owned(), ToString::to_string)} ". To expunge it, propose changes on this node only."</span>
                </li>
            }
            .into_any(),
        };
        view! {
            {line(Icon::Bind, format!("Bind {short} to a role"), "Also adds required roles.", bind)}
            {line(Icon::Deployments, format!("Move {short}"), "To another deployment.", to(OpenEdit::Move(vec![placed.clone()])))}
            {give_up}
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
