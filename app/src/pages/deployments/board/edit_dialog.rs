//! The edits of a proposal other than binding, each as a form in one shared dialog.
//!
//! With one dialog, a menu can become the chosen form. The focus returns to its origin after any
//! number of steps.
//!
//! The forms are a separate chunk ([`piece`]), since most readers of a board never open one. The
//! chunk is preloaded for readers who may edit.

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::add_role::AddRole;
use super::bind::SelectNodes;
use super::board_state::{BoardState, FormsLoaded};
use super::menu::{NodeMenu, entry};
use super::move_nodes::{Move, MoveHere};
use super::open_edit::OpenEdit;
use super::role_noderoles::NodesWithRole;
use super::{bind, cluster_edits, deployment_edits, role, version};
use crate::components::{Dialog, Icon};
use crate::piece;

impl OpenEdit {
    fn title(&self, board_state: BoardState) -> String {
        let deployment = move || board_state.board().read().name.to_string();
        match self {
            Self::More => format!("Propose changes on {}", deployment()),
            Self::Menu(subject) => subject.title(),
            Self::About(about) => about.title(),
            Self::Move(nodes) => match nodes.as_slice() {
                [one] => format!("Move {}", one.named.short),
                many => format!("Move {}", super::board_state::nodes(many.len())),
            },
            Self::MoveHere(_) => format!("Move nodes to {}", deployment()),
            Self::Version => "Change barclamp versions".into(),
            Self::Child => "Create child deployment".into(),
            Self::MoveDeployment => format!("Move deployment {}", deployment()),
            Self::RemoveDeployment => format!("Remove deployment {}?", deployment()),
            Self::Jigs => "Turn jigs on or off".into(),
            Self::Policy => "Set policy".into(),
            Self::RoleData(role) => format!("Data of {} in {}", role.role, deployment()),
            Self::RerunRole(role) => format!("Run {} again", role.role),
            Self::RemoveRole(role) => format!("Remove role {role}?"),
            Self::AddRole => "Add role".into(),
            Self::SelectNodes(role) => format!("Bind nodes to {role}"),
            Self::NodesWithRole(role_ref) => role_ref.title(),
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
            Self::MoveHere(fqdn) => view! { <MoveHere board_state fqdn taken/> }.into_any(),
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
            Self::NodesWithRole(role_ref) => {
                view! { <NodesWithRole board_state role_ref taken/> }.into_any()
            }
        }
    }
}

piece::pieces! {
    board_forms(act: OpenEdit, board_state: BoardState) act.form(board_state);
}

/// Loads the chunk of the forms. If this fails, the form that opens loads it again.
pub(super) fn load_forms() -> FormsLoaded {
    Box::pin(async { drop(board_forms::load().await) })
}

#[component]
pub(super) fn EditDialog(board_state: BoardState) -> impl IntoView {
    Effect::new(move |_| {
        if board_state.editable().get() {
            spawn_local(load_forms());
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
        <Dialog
            id="act"
            title=title
            handle=board_state.dialogs.act
            wide=wide
            closed=Callback::new(move |()| closed(board_state))
        >
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

#[component]
fn More(board_state: BoardState) -> impl IntoView {
    let to = move |act: OpenEdit| move || board_state.ask(act.clone());
    view! {
        <div class="body">
            <ul class="choices tall">
                {
                    entry(
                        Icon::Bind,
                        "Move nodes here",
                        "From other deployments.",
                        to(OpenEdit::MoveHere(String::new()))
                    )
                }
                {entry(Icon::Catalog, "Change barclamp versions", "In this deployment and those \
                    below it.", to(OpenEdit::Version))}
                {entry(Icon::Deployments, "Create child deployment", "Nested in this deployment. \
                    Inherits its barclamps and can use its nodes.", to(OpenEdit::Child))}
                {entry(Icon::Bind, "Move deployment", "Below another parent, with the deployments \
                    below it.", to(OpenEdit::MoveDeployment))}
                {entry(Icon::Run, "Turn jigs on or off", "In all deployments.", to(OpenEdit::Jigs))}
                {entry(Icon::Review, "Set policy", "Required approvals in all \
                    deployments.", to(OpenEdit::Policy))}
                {
                    entry(
                        Icon::Delete,
                        "Remove deployment",
                        "Only if it is empty.",
                        to(OpenEdit::RemoveDeployment)
                    )
                }
            </ul>
        </div>
    }
    .into_any()
}
