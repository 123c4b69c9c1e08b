//! Edits by form, wherever a proposal is edited: on a board, in a noderole's panel, on the page of a proposal on a node.
//!
//! A form says which edits it stands for. What these come to is shown before they are made ([`Foresight`]), they are put into the
//! proposal by one command, and a refusal leaves the form as it was filled in.

mod authors;
mod node;
mod noderole;

use api::Problem;
use engine::cluster::NoderoleKey;
use engine::ids::{DeploymentName, NodeId, ProposalId};
use engine::plan::Edit;
use leptos::form::ActionForm;
use leptos::prelude::*;

use crate::calls::ProposeOnNode;
use crate::parts::act::problem_of;
use crate::parts::foresight::{Consequence, Foresight};
use crate::parts::{Icon, ProblemNotice, Same, Typed, icon};
pub use authors::{JoinNotice, Joining, Step, by, fate, says};
pub use node::TypedName;
pub use noderole::Reason;

/// Edits on their way into a proposal.
#[derive(Clone)]
pub struct Put {
    /// All or none of them.
    pub edits: Vec<Edit>,
    /// What is announced when they were taken.
    pub done: String,
    /// Where a refusal is shown.
    pub problem: RwSignal<Option<Problem>>,
    /// Called when they were taken.
    pub taken: Option<Callback<()>>,
}

impl Put {
    /// Tells whoever asked, if they are still there.
    pub fn tell(&self) {
        self.taken.and_then(|taken| taken.try_run(()));
    }
}

/// What a form needs of the page that it is on.
#[derive(Clone, Copy)]
pub struct Pen {
    /// The open proposal and its version.
    pub proposal: Signal<Option<(ProposalId, i32)>>,
    /// The deployment that it is on; None: it is on a node alone.
    pub board: Signal<Option<DeploymentName>>,
    /// Whether a command is under way.
    pub busy: Signal<bool>,
    /// Puts edits into the proposal.
    pub put: Callback<Put>,
}

/// A form that stands for edits.
#[derive(Clone, Copy)]
pub struct Wish {
    pen: Pen,
    foresight: Foresight,
    problem: RwSignal<Option<Problem>>,
}

impl Wish {
    /// Of a form that stands for these edits; none while it is not filled in.
    pub fn new(pen: Pen, edits: impl Fn() -> Vec<Edit> + Send + Sync + 'static) -> Self {
        let foresight = Foresight::new(pen.proposal, Signal::derive(edits));
        Self { pen, foresight, problem: RwSignal::new(None) }
    }

    /// Whether its edits can take effect, as far as is known.
    pub fn is_ready(self) -> bool {
        !self.pen.busy.get() && self.foresight.edits().is_some()
    }

    /// Puts its edits into the proposal, if they can take effect.
    pub fn put(self, done: impl Into<String>, taken: Callback<()>) {
        let Some(edits) = untrack(|| self.foresight.edits()) else { return };
        self.pen.put.run(Put {
            edits,
            done: done.into(),
            problem: self.problem,
            taken: Some(taken),
        });
    }
}

/// What a form's edits come to, and why they were refused if they were.
#[component]
pub fn Outcome(
    /// The form.
    of: Wish,
) -> impl IntoView {
    view! {
        <Consequence of=of.foresight/>
        <ProblemNotice problem=of.problem/>
        <SameEdits pen=of.pen of=of.foresight/>
    }
    .into_any()
}

/// What edits are as a command, as long as there are some.
#[component]
pub fn SameEdits(
    /// What they are put in with.
    pen: Pen,
    /// The edits.
    of: Foresight,
) -> impl IntoView {
    let calls = move |_: Typed| {
        let put = |(proposal, version, edits): (ProposalId, i32, Vec<Edit>)| {
            api::calls::put((proposal, version), pen.board.read().as_ref(), &edits)
        };
        of.stands_for().map(put).into_iter().collect::<Vec<_>>()
    };
    view! { <Same of=calls/> }.into_any()
}

/// The button of a form.
#[component]
pub fn PutIn(
    /// The form.
    of: Wish,
    /// What else has to be so.
    #[prop(optional, into)]
    given: Option<Signal<bool>>,
    /// Set for what takes something away.
    #[prop(optional)]
    grave: bool,
) -> impl IntoView {
    let is_off = move || !of.is_ready() || given.is_some_and(|given| !given.get());
    let class = if grave { "button danger" } else { "button primary" };
    view! {
        <button class=class type="submit" disabled=is_off>
            {grave.then(|| icon(Icon::Bin))}
            "Put into the proposal"
        </button>
    }
    .into_any()
}

/// A node as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Which.
    pub node: NodeId,
    /// The first label of its name.
    pub short: String,
}

/// A noderole as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Its node.
    pub on: Named,
    /// What it is there.
    pub noderole: NoderoleKey,
}

impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.noderole, self.on.short)
    }
}

/// What can be said of one node or of one noderole in a dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Its own data.
    Data(Carried),
    /// That it runs again.
    Again(Carried),
    /// That it goes.
    Unbind(Carried),
    /// That the node is gone.
    GiveUp(Named),
}

impl About {
    /// The dialog's heading.
    pub fn title(&self) -> String {
        match self {
            Self::Data(of) => format!("Data of {of}"),
            Self::Again(of) => format!("Run {of} again"),
            Self::Unbind(of) => format!("Unbind {} from {}", of.noderole, of.on.short),
            Self::GiveUp(node) => format!("Give {} up?", node.short),
        }
    }

    /// Whether it has long things in it.
    pub fn is_wide(&self) -> bool {
        matches!(self, Self::Data(_))
    }

    /// The dialog's form; `taken` is called when its edits were taken.
    pub fn form(self, pen: Pen, taken: Callback<()>) -> AnyView {
        match self {
            Self::Data(of) => view! { <noderole::OwnData pen of taken/> }.into_any(),
            Self::Again(of) => view! { <noderole::Again pen of taken/> }.into_any(),
            Self::Unbind(of) => view! { <noderole::Unbind pen of taken/> }.into_any(),
            Self::GiveUp(of) => view! { <node::GiveUp pen of taken/> }.into_any(),
        }
    }
}

/// What the button to a proposal on one node shows of what it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shows {
    /// The first word: each row of a list has one.
    #[default]
    Word,
    /// That it is this node's: the name stands beside it.
    This,
    /// All, with the node's name.
    InFull,
}

/// The way to a proposal on one node alone.
#[component]
pub fn Alone(
    /// Which node.
    #[prop(into)]
    node: Signal<NodeId>,
    /// Its name, for the button.
    #[prop(into)]
    name: Signal<String>,
    /// What of that it shows.
    #[prop(optional)]
    shows: Shows,
    /// Its command stands with others of the page.
    #[prop(optional)]
    same_elsewhere: bool,
    /// Why this person may not; None: they may.
    #[prop(optional, into)]
    why_not: Option<Signal<Option<String>>>,
) -> impl IntoView {
    let why_not = Memo::new(move |_| why_not.and_then(|why| why.get()));
    let propose = ServerAction::<ProposeOnNode>::new();
    let label = move || format!("Propose changes on {} alone", name.get());
    // What is read aloud has the words that are seen.
    let aloud = move || (shows != Shows::This).then(label);
    let class = if shows == Shows::Word { "button quiet small" } else { "button small wraps" };
    let words = move || match shows {
        Shows::Word => "Propose".to_owned(),
        Shows::This => "Propose on this node alone".to_owned(),
        Shows::InFull => label(),
    };
    view! {
        <ActionForm action=propose>
            <input type="hidden" name="node" value=move || node.get().to_string()/>
            <button class=class type="submit" aria-label=aloud title=label disabled=move || why_not.read().is_some() || propose.pending().get()>
                {icon(Icon::Proposed)}
                {words}
            </button>
        </ActionForm>
        {move || why_not.get().map(|why| view! { <small class="muted">{why}</small> })}
        {(shows != Shows::Word && !same_elsewhere).then(|| view! { <Same of=move |_: Typed| vec![api::calls::propose_on_node(node.get())]/> })}
        <ProblemNotice problem=problem_of(propose)/>
    }
    .into_any()
}
