//! What a proposal can say beside binding, each as a form in one dialog.
//!
//! One dialog for all, so that a menu becomes the form that was chosen in it and the focus goes back to where it came from, however
//! many steps lie between.
//!
//! The forms are a piece of their own ([`part`]): most who look at a board never open one. Whoever may edit gets them beforehand.

use api::console::BoardRole;
use engine::ids::RoleName;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::add_role::AddRole;
use super::bind::NodesFor;
use super::carriers::{AllOf, Asked};
use super::desk::Desk;
use super::menu::{NodeMenu, Subject};
use super::moving::{Bring, Move, Placed};
use super::{bind, everywhere, more, role, version};
use crate::pages::edits::About;
use crate::pages::part;
use crate::parts::{Dialog, Icon, icon};

/// What the dialog is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    /// What else can be proposed here.
    More,
    /// What can be done with a node.
    Menu(Subject),
    /// One node or noderole.
    About(About),
    /// Nodes go to another deployment.
    Move(Vec<Placed>),
    /// Nodes come here; what their names have in them.
    Bring(String),
    /// Another version of a barclamp.
    Version,
    /// A deployment below this one.
    Child,
    /// This deployment goes.
    RemoveDeployment,
    /// Jigs, on and off.
    Jigs,
    /// How many approvals changes need.
    Policy,
    /// A role's data here.
    RoleData(BoardRole),
    /// A role runs again.
    RoleAgain(BoardRole),
    /// A role goes.
    RemoveRole(RoleName),
    /// A role comes.
    AddRole,
    /// Nodes for a role.
    NodesFor(RoleName),
    /// All nodes with a role.
    AllOf(Asked),
}

impl Act {
    fn title(&self, desk: Desk) -> String {
        let here = move || desk.board().read().name.to_string();
        match self {
            Self::More => format!("Propose on {}", here()),
            Self::Menu(subject) => subject.title(),
            Self::About(about) => about.title(),
            Self::Move(nodes) => match nodes.as_slice() {
                [one] => format!("Move {}", one.named.short),
                many => format!("Move {}", super::desk::nodes(many.len())),
            },
            Self::Bring(_) => format!("Move nodes to {}", here()),
            Self::Version => "Use a version".into(),
            Self::Child => "Child deployment".into(),
            Self::RemoveDeployment => format!("Remove {}?", here()),
            Self::Jigs => "Jigs".into(),
            Self::Policy => "Policy".into(),
            Self::RoleData(role) => format!("Data of {} in {}", role.role, here()),
            Self::RoleAgain(role) => format!("Run {} again", role.role),
            Self::RemoveRole(role) => format!("Remove role {role}?"),
            Self::AddRole => "Add role".into(),
            Self::NodesFor(role) => format!("Bind nodes to {role}"),
            Self::AllOf(asked) => asked.title(),
        }
    }

    fn is_wide(&self) -> bool {
        match self {
            Self::RoleData(_) | Self::AllOf(_) => true,
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
            Self::Bring(wanted) => view! { <Bring desk wanted taken/> }.into_any(),
            Self::Version => view! { <version::UseVersion desk taken/> }.into_any(),
            Self::Child => view! { <more::Child desk taken/> }.into_any(),
            Self::RemoveDeployment => view! { <more::RemoveDeployment desk taken/> }.into_any(),
            Self::Jigs => view! { <everywhere::Jigs desk taken/> }.into_any(),
            Self::Policy => view! { <everywhere::SetPolicy desk taken/> }.into_any(),
            Self::RoleData(role) => view! { <role::RoleData desk role taken/> }.into_any(),
            Self::RoleAgain(role) => view! { <role::RoleAgain desk role taken/> }.into_any(),
            Self::RemoveRole(role) => view! { <more::RemoveRole desk role taken/> }.into_any(),
            Self::AddRole => view! { <AddRole desk taken/> }.into_any(),
            Self::NodesFor(role) => view! { <NodesFor desk role taken/> }.into_any(),
            Self::AllOf(asked) => view! { <AllOf desk asked taken/> }.into_any(),
        }
    }
}

part::pieces! {
    board_forms(act: Act, desk: Desk) act.form(desk);
}

/// The dialog.
#[component]
pub(super) fn ActDialog(desk: Desk) -> impl IntoView {
    Effect::new(move |_| {
        if desk.editable().get() {
            // What can't be had now is asked for again when a form is opened.
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
    if matches!(&*desk.act.read_untracked(), Some(Act::NodesFor(_))) {
        bind::put_back(desk);
    }
    desk.act.set(None);
}

/// A line of a menu: what it leads to, and what that means.
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
                {line(Icon::Bind, "Move nodes here", "From other deployments, by name.", to(Act::Bring(String::new())))}
                {line(Icon::Catalog, "Use a version", "Another version of a barclamp, here and below.", to(Act::Version))}
                {line(Icon::Deployments, "Child deployment", "Below this one: it sees its barclamps and can take its nodes.", to(Act::Child))}
                {line(Icon::Run, "Jigs", "Switch what runs steps on or off, for all deployments.", to(Act::Jigs))}
                {line(Icon::Review, "Policy", "How many approvals changes need, for all deployments.", to(Act::Policy))}
                {line(Icon::Bin, "Remove deployment", "Once nothing is in it any more.", to(Act::RemoveDeployment))}
            </ul>
        </div>
    }
    .into_any()
}
