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
use super::desk::Desk;
use super::menu::{NodeMenu, Subject};
use super::moving::{Move, MoveHere, Placed};
use super::role_noderoles::{Asked, NodesWithRole};
use super::{bind, everywhere, more, role, version};
use crate::pages::edits::About;
use crate::pages::part;
use crate::parts::{Dialog, Icon, icon};

/// The content of the dialog.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    /// The menu of further edits.
    More,
    /// The menu of a node.
    Menu(Subject),
    About(About),
    /// Moves nodes to another deployment.
    Move(Vec<Placed>),
    /// Moves nodes here. Contains the initial filter of their names.
    MoveHere(String),
    /// Changes the versions of barclamps.
    Version,
    /// Creates a child deployment.
    Child,
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
    NodesWithRole(Asked),
}

impl Act {
    fn title(&self, desk: Desk) -> String {
        let here = move || desk.board().read().name.to_string();
        match self {
            Self::More => format!("Propose changes on {}", here()),
            Self::Menu(subject) => subject.title(),
            Self::About(about) => about.title(),
            Self::Move(nodes) => match nodes.as_slice() {
                [one] => format!("Move {}", one.named.short),
                many => format!("Move {}", super::desk::nodes(many.len())),
            },
            Self::MoveHere(_) => format!("Move nodes to {}", here()),
            Self::Version => "Change barclamp versions".into(),
            Self::Child => "Create child deployment".into(),
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

    fn form(self, desk: Desk) -> AnyView {
        let taken = Callback::new(move |()| desk.dialogs.act.close());
        match self {
            Self::More => view! { <More desk/> }.into_any(),
            Self::Menu(subject) => view! { <NodeMenu desk subject/> }.into_any(),
            Self::About(about) => about.form(desk.pen(), taken),
            Self::Move(nodes) => view! { <Move desk nodes taken/> }.into_any(),
            Self::MoveHere(wanted) => view! { <MoveHere desk wanted taken/> }.into_any(),
            Self::Version => view! { <version::ChangeVersions desk taken/> }.into_any(),
            Self::Child => view! { <more::Child desk taken/> }.into_any(),
            Self::RemoveDeployment => view! { <more::RemoveDeployment desk taken/> }.into_any(),
            Self::Jigs => view! { <everywhere::Jigs desk taken/> }.into_any(),
            Self::Policy => view! { <everywhere::SetPolicy desk taken/> }.into_any(),
            Self::RoleData(role) => view! { <role::RoleData desk role taken/> }.into_any(),
            Self::RerunRole(role) => view! { <role::RerunRole desk role taken/> }.into_any(),
            Self::RemoveRole(role) => view! { <more::RemoveRole desk role taken/> }.into_any(),
            Self::AddRole => view! { <AddRole desk taken/> }.into_any(),
            Self::SelectNodes(role) => view! { <SelectNodes desk role taken/> }.into_any(),
            Self::NodesWithRole(asked) => view! { <NodesWithRole desk asked taken/> }.into_any(),
        }
    }
}

part::pieces! {
    board_forms(act: Act, desk: Desk) act.form(desk);
}

#[component]
pub(super) fn EditDialog(desk: Desk) -> impl IntoView {
    Effect::new(move |_| {
        if desk.editable().get() {
            // If this fails, opening a form loads the chunk again.
            spawn_local(async { drop(board_forms::load().await) });
        }
    });
    let title = Signal::derive(move || {
        desk.act.read().as_ref().map(|act| act.title(desk)).unwrap_or_default()
    });
    let wide = Signal::derive(move || desk.act.read().as_ref().is_some_and(Act::is_wide));
    let form = move || {
        let act = desk.act.get()?;
        Some(Suspend::new(board_forms::shown(act, desk)))
    };
    view! {
        <Dialog id="act" title=title handle=desk.dialogs.act wide=wide closed=Callback::new(move |()| closed(desk))>
            {move || form()}
        </Dialog>
    }
    .into_any()
}

fn closed(desk: Desk) {
    if matches!(&*desk.act.read_untracked(), Some(Act::SelectNodes(_))) {
        bind::put_back(desk);
    }
    desk.act.set(None);
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
fn More(desk: Desk) -> impl IntoView {
    let to = move |act: Act| move || desk.ask(act.clone());
    view! {
        <div class="body">
            <ul class="choices tall">
                {line(Icon::Bind, "Move nodes here", "From other deployments.", to(Act::MoveHere(String::new())))}
                {line(Icon::Catalog, "Change barclamp versions", "In this deployment and those below it.", to(Act::Version))}
                {line(Icon::Deployments, "Create child deployment", "Nested in this deployment. Inherits its barclamps and can use its nodes.", to(Act::Child))}
                {line(Icon::Run, "Switch jigs", "Switch jigs on or off in all deployments.", to(Act::Jigs))}
                {line(Icon::Review, "Set policy", "Required approvals in all deployments.", to(Act::Policy))}
                {line(Icon::Delete, "Remove deployment", "Only if it is empty.", to(Act::RemoveDeployment))}
            </ul>
        </div>
    }
    .into_any()
}
