//! The edits of a proposal other than binding, each as a form in one shared dialog.
//!
//! With one dialog, a menu can become the chosen form. The focus returns to its origin after any
//! number of steps.
//!
//! The forms are a separate chunk ([`part`]), since most readers of a board never open one. The
//! chunk is preloaded for readers who may edit.

use api::views::board::BoardRole;
use engine::ids::RoleName;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::add_role::AddRole;
use super::bind::SelectNodes;
use super::board_state::BoardState;
use super::menu::{NodeMenu, Subject};
use super::move_nodes::{Move, MoveHere, NodeInDeployment};
use super::role_noderoles::{BoardRoleRef, NodesWithRole};
use super::{bind, cluster_edits, deployment_edits, role, version};
use crate::components::{Dialog, Icon, icon};
use crate::pages::edits::About;
use crate::part;

/// The content of the dialog.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OpenEdit {
    /// The menu of further edits.
    More,
    /// The menu of a node.
    Menu(Subject),
    About(About),
    /// Moves nodes to another deployment.
    Move(Vec<NodeInDeployment>),
    /// Moves nodes here. Contains the initial filter of their names.
    MoveHere(String),
    /// Changes the versions of barclamps.
    Version,
    /// Creates a child deployment.
    Child,
    /// Moves the deployment below another parent.
    MoveDeployment,
    RemoveDeployment,
    /// Enables and disables jigs.
    Jigs,
    /// The approval policy.
    Policy,
    /// The data of a role in this deployment.
    RoleData(BoardRole),
    /// Runs a role again.
    RerunRole(BoardRole),
    RemoveRole(RoleName),
    AddRole,
    /// Selects nodes for a role.
    SelectNodes(RoleName),
    /// Lists all nodes with a role.
    NodesWithRole(BoardRoleRef),
}

impl OpenEdit {
    fn title(&self, board_state: BoardState) -> String {
        let here = move || board_state.board().read().name.to_string();
        match self {
            Self::More => format!("Propose changes on {}", here()),
            Self::Menu(subject) => subject.title(),
            Self::About(about) => about.title(),
            Self::Move(nodes) => match nodes.as_slice() {
                [one] => format!("Move {}", one.named.short),
                many => format!("Move {}", super::board_state::nodes(many.len())),
            },
            Self::MoveHere(_) => format!("Move nodes to {}", here()),
            Self::Version => "Change barclamp versions".into(),
            Self::Child => "Create child deployment".into(),
            Self::MoveDeployment => format!("Move deployment {}", here()),
            Self::RemoveDeployment => format!("Remove deployment {}?", here()),
            Self::Jigs => "Switch jigs".into(),
            Self::Policy => "Set policy".into(),
            Self::RoleData(role) => format!("Data of {} in {}", role.role, here()),
            Self::RerunRole(role) => format!("Run {} again", role.role),
            Self::RemoveRole(role) => format!("Remove role {role}?"),
            Self::AddRole => "Add role".into(),
            Self::SelectNodes(role) => format!("Bind nodes to {role}"),
            Self::NodesWithRole(asked) => asked.title(),
        }
    }

    fn is_wide(&self) -> bool {
        match self {
            Self::RoleData(_) | Self::NodesWithRole(_) => true,
            Self::About(about) => about.is_wide(),
            _ => false,
        }
    }

    fn form(self, board_state: BoardState) -> AnyView {
        let taken = Callback::new(move |()| board_state.dialogs.act.close());
        match self {
            Self::More => view! { <More board_state/> }.into_any(),
            Self::Menu(subject) => view! { <NodeMenu board_state subject/> }.into_any(),
            Self::About(about) => about.form(board_state.pen(), taken),
            Self::Move(nodes) => view! { <Move board_state nodes taken/> }.into_any(),
            Self::MoveHere(wanted) => view! { <MoveHere board_state wanted taken/> }.into_any(),
            Self::Version => view! { <version::ChangeVersions board_state taken/> }.into_any(),
            Self::Child => view! { <deployment_edits::Child board_state taken/> }.into_any(),
            Self::MoveDeployment => {
                view! { <deployment_edits::MoveDeployment board_state taken/> }.into_any()
            }
            Self::RemoveDeployment => {
                view! { <deployment_edits::RemoveDeployment board_state taken/> }.into_any()
            }
            Self::Jigs => view! { <cluster_edits::Jigs board_state taken/> }.into_any(),
            Self::Policy => view! { <cluster_edits::SetPolicy board_state taken/> }.into_any(),
            Self::RoleData(role) => view! { <role::RoleData board_state role taken/> }.into_any(),
            Self::RerunRole(role) => view! { <role::RerunRole board_state role taken/> }.into_any(),
            Self::RemoveRole(role) => {
                view! { <deployment_edits::RemoveRole board_state role taken/> }.into_any()
            }
            Self::AddRole => view! { <AddRole board_state taken/> }.into_any(),
            Self::SelectNodes(role) => view! { <SelectNodes board_state role taken/> }.into_any(),
            Self::NodesWithRole(asked) => {
                view! { <NodesWithRole board_state asked taken/> }.into_any()
            }
        }
    }
}

part::pieces! {
    board_forms(act: OpenEdit, board_state: BoardState) act.form(board_state);
}

#[component]
pub(super) fn EditDialog(board_state: BoardState) -> impl IntoView {
    Effect::new(move |_| {
        if board_state.editable().get() {
            // If this fails, opening a form loads the chunk again.
            spawn_local(async { drop(board_forms::load().await) });
        }
    });
    let title = Signal::derive(move || {
        board_state.act.read().as_ref().map(|act| act.title(board_state)).unwrap_or_default()
    });
    let wide =
        Signal::derive(move || board_state.act.read().as_ref().is_some_and(OpenEdit::is_wide));
    let form = move || {
        let act = board_state.act.get()?;
        Some(Suspend::new(board_forms::shown(act, board_state)))
    };
    view! {
        <Dialog id="act" title=title handle=board_state.dialogs.act wide=wide closed=Callback::new(move |()| closed(board_state))>
            {move || form()}
        </Dialog>
    }
    .into_any()
}

fn closed(board_state: BoardState) {
    if matches!(&*board_state.act.read_untracked(), Some(OpenEdit::SelectNodes(_))) {
        bind::cancel_menu_drag(board_state);
    }
    board_state.act.set(None);
}

/// An entry of a menu: its form and its description.
pub(super) fn line(
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
fn More(board_state: BoardState) -> impl IntoView {
    let to = move |act: OpenEdit| move || board_state.ask(act.clone());
    view! {
        <div class="body">
            <ul class="choices tall">
                {line(Icon::Bind, "Move nodes here", "From other deployments.", to(OpenEdit::MoveHere(String::new())))}
                {line(Icon::Catalog, "Change barclamp versions", "In this deployment and those below it.", to(OpenEdit::Version))}
                {line(Icon::Deployments, "Create child deployment", "Nested in this deployment. Inherits its barclamps and can use its nodes.", to(OpenEdit::Child))}
                {line(Icon::Bind, "Move deployment", "Below another parent, with the deployments below it.", to(OpenEdit::MoveDeployment))}
                {line(Icon::Run, "Switch jigs", "Switch jigs on or off in all deployments.", to(OpenEdit::Jigs))}
                {line(Icon::Review, "Set policy", "Required approvals in all deployments.", to(OpenEdit::Policy))}
                {line(Icon::Delete, "Remove deployment", "Only if it is empty.", to(OpenEdit::RemoveDeployment))}
            </ul>
        </div>
    }
    .into_any()
}
