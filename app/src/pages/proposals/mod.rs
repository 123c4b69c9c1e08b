//! Forms for edits, shared by the board, a noderole's panel and the page of a proposal on a node.
//!
//! A form produces edits. It shows their impact before they are saved ([`Preview`]) and adds them
//! to the proposal with one command. After an error, the form keeps its input.

mod authors;
mod node;
mod noderole;
pub mod preview;
pub mod server_functions;

use api::Problem;
use engine::cluster::NoderoleKey;
use engine::ids::{DeploymentName, NodeId, ProposalId};
use engine::plan::Edit;
use leptos::ev::SubmitEvent;
use leptos::form::ActionForm;
use leptos::prelude::*;

use crate::components::action::problem_of;
use crate::components::{EquivalentCommands, FormValues, Icon, ProblemNotice, icon};
pub use authors::{JoinNotice, Joining, Step, author_notice, by, undo_state};
pub use node::TypedName;
pub use noderole::Reason;
use preview::{Preview, PreviewImpact};
use server_functions::ProposeOnNode;

/// A request to add edits to a proposal.
#[derive(Clone)]
pub struct Put {
    /// Added all or none.
    pub edits: Vec<Edit>,
    /// The announcement on success.
    pub done: String,
    /// The signal that shows an error.
    pub problem: RwSignal<Option<Problem>>,
    /// Called on success.
    pub taken: Option<Callback<()>>,
}

impl Put {
    /// Calls `taken`, unless the form is gone.
    pub fn notify(&self) {
        self.taken.and_then(|taken| taken.try_run(()));
    }
}

/// The page's interface for a form.
#[derive(Clone, Copy)]
pub struct EditContext {
    /// The open proposal and its version.
    pub proposal: Signal<Option<(ProposalId, i32)>>,
    /// The proposal's deployment. `None`: the proposal is on a single node.
    pub board: Signal<Option<DeploymentName>>,
    /// Whether a command is running.
    pub busy: Signal<bool>,
    /// Adds edits to the proposal.
    pub put: Callback<Put>,
}

/// A form and its edits.
#[derive(Clone, Copy)]
pub struct EditForm {
    pen: EditContext,
    preview: Preview,
    problem: RwSignal<Option<Problem>>,
}

impl EditForm {
    /// Creates a form. `edits` is empty while the form is incomplete.
    pub fn new(pen: EditContext, edits: impl Fn() -> Vec<Edit> + Send + Sync + 'static) -> Self {
        let preview = Preview::new(pen.proposal, Signal::derive(edits));
        Self { pen, preview, problem: RwSignal::new(None) }
    }

    /// Whether the preview found the edits valid.
    pub fn is_ready(self) -> bool {
        !self.pen.busy.get() && self.preview.edits().is_some()
    }

    /// Adds the edits to the proposal if they are valid.
    pub fn put(self, done: impl Into<String>, taken: Callback<()>) {
        let Some(edits) = untrack(|| self.preview.edits()) else { return };
        self.pen.put.run(Put {
            edits,
            done: done.into(),
            problem: self.problem,
            taken: Some(taken),
        });
    }

    /// The form in a dialog: its fields, the impact of the edits, and the button. `done` returns
    /// the announcement on success, or `None` if the form is incomplete.
    pub fn view(
        self,
        taken: Callback<()>,
        done: impl Fn() -> Option<String> + 'static,
        fields: AnyView,
        button: AnyView,
    ) -> AnyView {
        let submit = move |event: SubmitEvent| {
            event.prevent_default();
            if let Some(done) = done() {
                self.put(done, taken);
            }
        };
        view! {
            <form class="form" on:submit=submit>
                <div class="body">
                    {fields}
                    <Outcome of=self/>
                </div>
                <div class="foot">{button}</div>
            </form>
        }
        .into_any()
    }
}

/// The impact of a form's edits, and the error of the last attempt.
#[component]
pub fn Outcome(of: EditForm) -> impl IntoView {
    view! {
        <PreviewImpact of=of.preview/>
        <ProblemNotice problem=of.problem/>
        <EditCommands pen=of.pen of=of.preview/>
    }
    .into_any()
}

/// The commands that are equivalent to the edits. Empty without edits.
#[component]
pub fn EditCommands(pen: EditContext, of: Preview) -> impl IntoView {
    let calls = move |_: FormValues| {
        let put = |(proposal, version, edits): (ProposalId, i32, Vec<Edit>)| {
            api::calls::put((proposal, version), pen.board.read().as_ref(), &edits)
        };
        of.represented_deployment().map(put).into_iter().collect::<Vec<_>>()
    };
    view! { <EquivalentCommands of=calls/> }.into_any()
}

/// The submit button of a form.
#[component]
pub fn SubmitButton(
    of: EditForm,
    /// A further condition that enables the button.
    #[prop(optional, into)]
    given: Option<Signal<bool>>,
    /// Set for a destructive edit.
    #[prop(optional)]
    grave: bool,
) -> impl IntoView {
    let is_off = move || !of.is_ready() || given.is_some_and(|given| !given.get());
    let class = if grave { "button danger" } else { "button primary" };
    view! {
        <button class=class type="submit" disabled=is_off>
            {grave.then(|| icon(Icon::Delete))}
            "Add to the proposal"
        </button>
    }
    .into_any()
}

/// A node with its short name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub node: NodeId,
    /// The first label of its name.
    pub short: String,
}

/// A noderole with its node's short name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoderoleOnNode {
    pub on: Named,
    pub noderole: NoderoleKey,
    /// Whether its removal runs `remove` on the node.
    pub runs_remove: bool,
}

impl NoderoleOnNode {
    /// The effect of its removal on the node.
    pub fn removal(&self) -> &'static str {
        match self.runs_remove {
            true => "If it ever ran, its remove action runs on the node.",
            false => "Its files and services stay on the node.",
        }
    }
}

impl std::fmt::Display for NoderoleOnNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.noderole, self.on.short)
    }
}

/// Edits of one node or noderole that have a dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The noderole's own data.
    Data(NoderoleOnNode),
    /// Another run.
    Rerun(NoderoleOnNode),
    Unbind(NoderoleOnNode),
    /// Expunges the node.
    Expunge(Named),
}

impl About {
    pub fn title(&self) -> String {
        match self {
            Self::Data(of) => format!("Data of {of}"),
            Self::Rerun(of) => format!("Run {of} again"),
            Self::Unbind(of) => format!("Unbind {} from {}", of.noderole, of.on.short),
            Self::Expunge(node) => format!("Expunge {}?", node.short),
        }
    }

    /// Whether the dialog needs a wide layout.
    pub fn is_wide(&self) -> bool {
        matches!(self, Self::Data(_))
    }

    /// The dialog's form. `taken` is called on success.
    pub fn form(self, pen: EditContext, taken: Callback<()>) -> AnyView {
        match self {
            Self::Data(of) => view! { <noderole::OwnData pen of taken/> }.into_any(),
            Self::Rerun(of) => view! { <noderole::Rerun pen of taken/> }.into_any(),
            Self::Unbind(of) => view! { <noderole::Unbind pen of taken/> }.into_any(),
            Self::Expunge(of) => view! { <node::Expunge pen of taken/> }.into_any(),
        }
    }
}

/// The label of the button that proposes on one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LabelStyle {
    /// One word, for rows of a list.
    #[default]
    Word,
    /// A text without the node's name, which is next to the button.
    WithoutName,
    /// A text with the node's name.
    InFull,
}

/// The button that opens a proposal on a single node.
#[component]
pub fn Alone(
    #[prop(into)] node: Signal<NodeId>,
    #[prop(into)] name: Signal<String>,
    #[prop(optional)] shows: LabelStyle,
    /// Whether the page shows the equivalent command elsewhere.
    #[prop(optional)]
    same_elsewhere: bool,
    /// Why the reader may not propose. `None`: permitted.
    #[prop(optional, into)]
    reason: Option<Signal<Option<String>>>,
) -> impl IntoView {
    let reason = Memo::new(move |_| reason.and_then(|reason| reason.get()));
    let propose = ServerAction::<ProposeOnNode>::new();
    let label = move || format!("Propose changes on {} only", name.get());
    // The accessible name contains the visible text.
    let accessible_label = move || (shows != LabelStyle::WithoutName).then(label);
    let class = if shows == LabelStyle::Word { "button quiet small" } else { "button small wraps" };
    let words = move || match shows {
        LabelStyle::Word => "Propose".to_owned(),
        LabelStyle::WithoutName => "Propose changes on this node only".to_owned(),
        LabelStyle::InFull => label(),
    };
    view! {
        <ActionForm action=propose>
            <input type="hidden" name="node" value=move || node.get().to_string()/>
            <button
                class=class
                type="submit"
                aria-label=accessible_label
                title=label
                disabled=move || reason.read().is_some() || propose.pending().get()
            >
                {icon(Icon::Proposed)}
                {words}
            </button>
        </ActionForm>
        {move || reason.get().map(|reason| view! { <small class="muted">{reason}</small> })}
        {(shows != LabelStyle::Word && !same_elsewhere).then(|| view! {
            <EquivalentCommands
                of=move |_: FormValues| vec![api::calls::propose_on_node(node.get())]
            />
        })}
        <ProblemNotice problem=problem_of(propose)/>
    }
    .into_any()
}
