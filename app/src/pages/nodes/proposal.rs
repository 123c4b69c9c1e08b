//! A proposal on a single node: the node's noderoles, the roles that could be bound, and
//! submission. It has no board, because there is only one node.

use api::live::Topic;
use api::problem::DEPLOYMENT_PROPOSAL;
use api::proposals::EditView;
use api::views::node_proposal::{NodeProposal, NodeRole};
use api::{Problem, limits};
use engine::ids::ProposalId;
use engine::plan::{Edit, edit};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use crate::addresses;
use crate::clock::TimeText;
use crate::codec::AsJson;
use crate::components::action::{act, on_success, problem_of};
use crate::components::{
    Dialog, DialogHandle, Empty, EquivalentCommands, Feed, FormValues, Icon, ProblemNotice,
    Refused, icon, load_with_error, object_problem_page, problem_page_with, warnings,
};
use crate::failure::{Failure, ServerResult};
use crate::live::use_live;
use crate::pages::proposals;
use crate::pages::proposals::server_functions::{Discard, Redo, Submit, Undo};
use crate::pages::proposals::{
    About, EditContext, EditForm, JoinNotice, Joining, Named, NoderoleOnNode, Outcome, Put, Step,
    by, undo_state,
};
use crate::pages::reviews::review::reasons;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// A proposal on a node, by the id in the address.
#[component]
pub fn NodeProposalPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let proposal = Resource::new(move || id.get(), by_text);
    load_with_error(proposal, move |first| view! { <Loaded first/> }, elsewhere)
}

/// A proposal on a deployment is shown on that deployment's board.
fn elsewhere(problem: Problem) -> AnyView {
    let deployment = problem.errors.first().filter(|_| problem.code == DEPLOYMENT_PROPOSAL);
    let Some(board) = deployment.map(|found| addresses::board_by_name(&found.detail)) else {
        return object_problem_page(problem, (addresses::DRAFTS, "All proposals"));
    };
    problem_page_with(
        problem,
        view! { <a class="button primary" href=board>"Open the board"</a> }.into_any(),
    )
}

async fn by_text(id: String) -> ServerResult<NodeProposal> {
    let id = id.parse::<ProposalId>().map_err(|_| missing())?;
    node_proposal(id).await
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    Problem::not_found(
        "Proposal not found: the address must end with a proposal number, such as 9. \
         Open the list of proposals.",
    )
    .into()
}

/// State that all parts of the page share.
#[derive(Clone, Copy)]
struct Draft {
    feed: Feed<NodeProposal>,
    busy: RwSignal<bool>,
    problem: RwSignal<Option<Problem>>,
    /// The content of the dialog.
    about: RwSignal<Option<About>>,
    dialog: DialogHandle,
    announcement: RwSignal<String>,
    discard: ServerAction<Discard>,
    /// Whether it was discarded here.
    gone: RwSignal<bool>,
}

impl Draft {
    fn value(self) -> RwSignal<NodeProposal> {
        self.feed.value()
    }

    /// Whether it was discarded, or is being discarded.
    fn is_discarded(self) -> bool {
        self.gone.get() || self.discard.pending().get()
    }

    /// Whether edits can be added. If the page's fetch is refused, someone else closed the
    /// proposal.
    fn is_open(self) -> bool {
        let ended = self.feed.problem().read().as_ref().is_some_and(|problem| problem.status < 500);
        !self.is_discarded() && !ended && self.value().with(|view| view.may_edit.is_allowed())
    }

    fn is_off(self) -> bool {
        self.busy.get() || !self.is_open()
    }

    fn pen(self) -> EditContext {
        let open = move || self.value().with(|view| (view.proposal.id, view.proposal.version));
        EditContext {
            // No previews for a proposal that is being discarded or that may not be edited.
            proposal: Signal::derive(move || self.is_open().then(open)),
            board: Signal::derive(|| None),
            busy: self.busy.into(),
            put: Callback::new(move |put: Put| {
                let (id, version) = untrack(open);
                act(
                    self.busy,
                    put.problem,
                    proposals::server_functions::edit(id, version, put.edits.clone()),
                    move |_| {
                        put.notify();
                        self.announcement.try_set(put.done);
                        self.feed.now();
                    },
                );
            }),
        }
    }

    fn ask(self, about: About) {
        self.about.set(Some(about));
        self.dialog.open();
    }

    /// The node, if it still exists.
    fn named(self) -> Option<Named> {
        self.value().with(|view| {
            let node = view.scope.node.as_ref()?;
            let short = node.fqdn.split('.').next().unwrap_or(&node.fqdn).to_owned();
            Some(Named { node: node.id, short })
        })
    }
}

#[component]
fn Loaded(first: NodeProposal) -> impl IntoView {
    let (id, cursor) = (first.proposal.id, first.cursor);
    let name = fqdn(&first);
    let feed = Feed::new(first, move || node_proposal(id));
    let draft = Draft {
        feed,
        busy: RwSignal::new(false),
        problem: RwSignal::new(None),
        about: RwSignal::new(None),
        dialog: DialogHandle::new(),
        announcement: RwSignal::new(String::new()),
        discard: ServerAction::new(),
        gone: RwSignal::new(false),
    };
    let on_events = move |_: &[_]| {
        if !untrack(|| draft.is_discarded()) {
            feed.soon();
        }
    };
    use_live().subscribe(vec![Topic::Proposal(id), Topic::Blueprints], cursor, on_events);
    let view = draft.value();
    let in_review = move || {
        let id = view.read().proposal.review?;
        Some(view! {
            <a class="pill" data-state="warn" href=addresses::review(id)>
                {icon(Icon::Review)} "in review " {id.0}
            </a>
        })
    };
    view! {
        <Title text=format!("Proposal on {name}")/>
        <div class="head">
            <div>
                <div class="muted">"Proposal " {id.0} " on one node, in " {move || {
                    let name = view.read().scope.deployment.clone();
                    view! { <a href=addresses::deployment(&name)>{name.to_string()}</a> }
                }}</div>
                <h1>
                    <bdi>{name}</bdi> " "
                    <span class="pill" data-state="proposed">
                        {icon(Icon::Proposed)} "PROPOSED"
                    </span>
                    " " {move || in_review()}
                </h1>
            </div>
            <div class="buttons">
                <button
                    class="button quiet needs-scripts"
                    type="button"
                    aria-haspopup="dialog"
                    disabled=move || draft.is_off()
                    on:click=move |_| {
                        if let Some(named) = untrack(|| draft.named()) {
                            draft.ask(About::Expunge(named));
                        }
                    }
                >
                    {icon(Icon::Delete)}
                    "Expunge node…"
                </button>
            </div>
        </div>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <ProblemNotice
            problem=draft.problem
            dismiss=Callback::new(move |()| draft.problem.set(None))
        />
        {move || troubles(&view.read())}
        <div class="columns">
            <div class="stack">
                <NoderoleTable draft/>
                <Bind draft/>
            </div>
            <div class="stack">
                <EditList draft/>
                <Review draft/>
            </div>
        </div>
        <EditDialog draft/>
        <div class="visually-hidden" role="status" aria-live="polite">
            {move || draft.announcement.get()}
        </div>
    }
    .into_any()
}

fn fqdn(view: &NodeProposal) -> String {
    view.scope.node.as_ref().map(|node| node.fqdn.clone()).unwrap_or_default()
}

/// The errors that prevent submission, and overruled edits.
fn troubles(view: &NodeProposal) -> impl IntoView + use<> {
    let proposal = &view.proposal;
    let refused = proposal.refused.iter().map(|r| format!("Edit {}: {}", r.edit, r.reason));
    let lines: Vec<String> = refused.collect();
    let back = proposal.sent_back.as_ref().map(|back| {
        view! {
            <div class="notice refused" data-state="warn" role="alert">
                {icon(Icon::Undo)}
                <div>
                    <b>
                        <a href=addresses::review(back.before)>"Review " {back.before.0}</a>
                        " was closed because its base changed"
                    </b>
                    {reasons(back)}
                </div>
            </div>
        }
    });
    let lines = (!lines.is_empty()).then(|| {
        view! {
            <div class="notice refused" data-state="warn" role="status">
                {icon(Icon::Warn)}
                <ul>{lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view()}</ul>
            </div>
        }
    });
    (back, lines, warnings::clashes(&proposal.clashes))
}

/// The node's noderoles, with the proposed changes.
#[component]
fn NoderoleTable(draft: Draft) -> impl IntoView {
    let view = draft.value();
    let line = move |role: NodeRole| {
        let (key, proposed) = (StoredValue::new(role.noderole.clone()), role.proposed);
        let runs_remove = role.runs_remove;
        let act = move |shape: Icon, words: &'static str, about: fn(NoderoleOnNode) -> About| {
            let ask = move |_| {
                if let Some(on) = untrack(|| draft.named()) {
                    let noderole = key.get_value();
                    draft.ask(about(NoderoleOnNode { on, noderole, runs_remove }));
                }
            };
            view! {
                <button
                    class="button quiet small needs-scripts"
                    type="button"
                    aria-haspopup="dialog"
                    aria-label=format!("{words} {}", key.get_value())
                    disabled=move || draft.is_off()
                    on:click=ask
                >
                    {icon(shape)}
                    {words}
                </button>
            }
        };
        view! {
            <li>
                <span class="grow">
                    <b>{role.noderole.to_string()}</b>
                    " "
                    <span class="muted">"in " {role.deployment.to_string()}</span>
                    " "
                    {proposed.then(|| view! {
                        <span class="pill" data-state="proposed">{icon(Icon::Proposed)} "new"</span>
                    })}
                </span>
                <span class="buttons">
                    {act(Icon::Data, "Edit data", About::Data)}
                    {(!proposed).then(|| act(Icon::Rerun, "Run again", About::Rerun))}
                    {act(Icon::Delete, "Unbind", About::Unbind)}
                </span>
            </li>
        }
    };
    let list = move || {
        let noderoles = view.read().noderoles.clone();
        if noderoles.is_empty() {
            return view! { <p class="padded muted">"No roles are bound to this node yet."</p> }
                .into_any();
        }
        view! { <ul class="noderoles">{noderoles.into_iter().map(line).collect_view()}</ul> }
            .into_any()
    };
    view! {
        <section class="card" aria-labelledby="noderoles-title">
            <header>
                <h2 id="noderoles-title">"Noderoles"</h2>
                <span class="muted">"after the commit"</span>
            </header>
            {move || list()}
        </section>
    }
    .into_any()
}

/// The dialog with the forms.
#[component]
fn EditDialog(draft: Draft) -> impl IntoView {
    let about = draft.about;
    let title = Signal::derive(move || about.read().as_ref().map(About::title).unwrap_or_default());
    let wide = Signal::derive(move || about.read().as_ref().is_some_and(About::is_wide));
    let form = move || {
        let taken = Callback::new(move |()| draft.dialog.close());
        about.get().map(|about| about.form(draft.pen(), taken))
    };
    view! {
        <Dialog
            id="about"
            title=title
            handle=draft.dialog
            wide=wide
            closed=Callback::new(move |()| about.set(None))
        >
            {move || form()}
        </Dialog>
    }
    .into_any()
}

/// Binds a further role.
#[component]
fn Bind(draft: Draft) -> impl IntoView {
    let view = draft.value();
    // The index of the choice, because the list of choices changes with every edit.
    let place = RwSignal::new(0_usize);
    let of = move || {
        view.with(|view| {
            let choice = view.choices.get(place.get())?;
            let node = view.scope.node.as_ref()?.id;
            Some(Edit::Bind(edit::Bind {
                deployment: choice.deployment,
                node,
                role: choice.role.clone(),
            }))
        })
    };
    let request = EditForm::new(draft.pen(), move || of().into_iter().collect());
    let bind = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let role = view.with_untracked(|view| {
            view.choices.get(place.get_untracked()).map(|choice| choice.role.clone())
        });
        if let Some(role) = role {
            request.put(
                format!("The proposal binds role {role}."),
                Callback::new(move |()| place.set(0)),
            );
        }
    };
    let options = move || {
        let choices = view.read().choices.clone();
        let option = |(n, choice): (usize, api::views::node_proposal::NodeChoice)| {
            view! {
                <option value=n.to_string() selected=move || place.get() == n>
                    {choice.role.to_string()} " (" {choice.name.to_string()} ")"
                </option>
            }
        };
        choices.into_iter().enumerate().map(option).collect_view()
    };
    let nothing = move || view.read().choices.is_empty();
    view! {
        <section class="card" aria-labelledby="bind-title">
            <header><h2 id="bind-title">"Bind a role"</h2></header>
            <form class="padded actions" on:submit=bind>
                <div class="field">
                    <label for="bind-role">"Role and deployment"</label>
                    <select
                        class="input"
                        id="bind-role"
                        disabled=nothing
                        on:change=move |event| place.set(
                            event_target_value(&event).parse().unwrap_or_default()
                        )
                    >
                        {move || options()}
                    </select>
                    <span class="hint">
                        "Gantry also adds the roles that this role requires. No other node changes."
                    </span>
                </div>
                <Outcome of=request/>
                <button
                    class="button"
                    type="submit"
                    disabled=move || nothing() || draft.is_off() || !request.is_ready()
                    aria-describedby="no-edit-reason"
                >
                    {icon(Icon::Plus)}
                    "Bind role"
                </button>
                <small class="muted" id="no-edit-reason">
                    {move || view.read().may_edit.reason().map(str::to_owned)}
                </small>
            </form>
        </section>
    }
    .into_any()
}

/// `Undo “bind n6 to app”`.
fn named(verb: &str, edit: Option<&String>) -> String {
    edit.map_or_else(|| verb.to_owned(), |edit| format!("{verb} “{edit}”"))
}

/// The edits, with undo and redo.
#[component]
fn EditList(draft: Draft) -> impl IntoView {
    let view = draft.value();
    let (undo, redo) = (ServerAction::<Undo>::new(), ServerAction::<Redo>::new());
    on_success(undo, move |_| draft.feed.now());
    on_success(redo, move |_| draft.feed.now());
    let joins = move || {
        view.with(|view| {
            (view.proposal.makes_author && view.may_edit.is_allowed()).then_some(view.proposal.id)
        })
    };
    let joining = Joining::new(Signal::derive(joins));
    let go = Callback::new(move |step| {
        let (proposal, version) =
            view.with_untracked(|view| (view.proposal.id, view.proposal.version));
        match step {
            Step::Undo => drop(undo.dispatch(Undo { proposal, version })),
            Step::Redo => drop(redo.dispatch(Redo { proposal, version })),
        }
    });
    let ask = move |step| {
        move |event: leptos::ev::MouseEvent| {
            if !joining.may(step) {
                event.prevent_default();
            }
        }
    };
    let line = |edit: EditView| {
        let undo_state = undo_state(&edit).map(|undo_state| view! { <br/> {undo_state} });
        view! {
            <li class:undone=edit.undone>
                <span class="muted num">{edit.seq}</span>
                <span>
                    {edit.text}
                    {edit.undone.then(|| view! {
                        <span class="visually-hidden">" (undone)"</span>
                    })}
                </span>
                <span class="muted">{edit.actor} ", " <TimeText at=edit.at/> {undo_state}</span>
            </li>
        }
    };
    let list = move || {
        let edits = view.read().proposal.edits.clone();
        if edits.is_empty() {
            return view! {
                <Empty icon=Icon::Proposed title="No edits yet">
                    <p>
                        "Bind or unbind a role. Nothing runs before another person approves the \
                         change."
                    </p>
                </Empty>
            }
            .into_any();
        }
        view! {
            <ol class="node-edits" tabindex="0" aria-label="Edits, oldest first">
                {edits.into_iter().map(line).collect_view()}
            </ol>
        }
        .into_any()
    };
    view! {
        <section class="card" aria-labelledby="edits-title">
            <header>
                <h2 id="edits-title">"Edits"</h2>
                <span class="muted">
                    {
                        move || Some(by(&view.read().proposal))
                            .filter(|by| !by.is_empty())
                            .map(|by| format!("by {by}"))
                    }
                </span>
            </header>
            {move || list()}
            <JoinNotice joining go/>
            <div class="padded buttons">
                <ActionForm action=undo>
                    <Which draft/>
                    <button
                        class="button quiet undo"
                        type="submit"
                        disabled=move || view.read().proposal.undo.is_none() || draft.is_off()
                        on:click=ask(Step::Undo)
                    >
                        {icon(Icon::Undo)}
                        <span>{move || named("Undo", view.read().proposal.undo.as_ref())}</span>
                    </button>
                </ActionForm>
                <ActionForm action=redo>
                    <Which draft/>
                    <button
                        class="button quiet undo"
                        type="submit"
                        disabled=move || view.read().proposal.redo.is_none() || draft.is_off()
                        on:click=ask(Step::Redo)
                    >
                        {icon(Icon::Redo)}
                        <span>{move || named("Redo", view.read().proposal.redo.as_ref())}</span>
                    </button>
                </ActionForm>
            </div>
            <ProblemNotice problem=problem_of(undo)/>
            <ProblemNotice problem=problem_of(redo)/>
            <EquivalentCommands of=move |_: FormValues| {
                let view = view.read();
                let proposal = &view.proposal;
                let undo = proposal.undo.as_ref().map(
                    |_| api::calls::undo(proposal.id, proposal.version)
                );
                let redo = proposal.redo.as_ref().map(
                    |_| api::calls::redo(proposal.id, proposal.version)
                );
                undo.into_iter().chain(redo).collect::<Vec<_>>()
            }/>
        </section>
    }
    .into_any()
}

/// Hidden fields with the proposal and the displayed version.
#[component]
fn Which(draft: Draft) -> impl IntoView {
    let view = draft.value();
    view! {
        <input type="hidden" name="proposal" value=move || view.read().proposal.id.to_string()/>
        <input type="hidden" name="version" value=move || view.read().proposal.version.to_string()/>
    }
    .into_any()
}

/// The title of the last submission, or the node's name.
fn suggested_title(view: &NodeProposal) -> String {
    match view.proposal.title.as_str() {
        "" => format!("Changes on {}", fqdn(view)),
        title => title.to_owned(),
    }
}

/// Submits or discards the proposal.
#[component]
fn Review(draft: Draft) -> impl IntoView {
    let view = draft.value();
    let (submit, discard, gone) = (ServerAction::<Submit>::new(), draft.discard, draft.gone);
    let nothing = move || view.read().proposal.edits.iter().all(|edit| edit.undone);
    on_success(discard, move |()| gone.set(true));
    let typed = Refused::of(submit).typed("title");
    let title = move || typed.clone().unwrap_or_else(|| suggested_title(&view.read()));
    view! {
        <section class="card" aria-labelledby="review-title">
            <header><h2 id="review-title">"Review"</h2></header>
            <ActionForm action=submit attr:class="padded actions">
                <Which draft/>
                <div class="field">
                    <label for="proposal-title">"Title"</label>
                    <input
                        class="input"
                        id="proposal-title"
                        name="title" required
                        maxlength=limits::TITLE
                        autocomplete="off"
                        value=title
                    />
                </div>
                <button
                    class="button primary wide"
                    type="submit"
                    disabled=move || nothing() || draft.is_off() || submit.pending().get()
                >
                    "Submit for review"
                </button>
                <ProblemNotice problem=problem_of(submit)/>
                <EquivalentCommands of=move |typed: FormValues| {
                    let view = view.read();
                    let (id, version) = (view.proposal.id, view.proposal.version);
                    let title = typed.or("title", &suggested_title(&view));
                    vec![api::calls::submit(id, version, &title), api::calls::discard(id, version)]
                }/>
            </ActionForm>
            <ActionForm action=discard attr:class="padded actions">
                <Which draft/>
                <button class="button danger wide" type="submit" disabled=move || draft.is_off()>
                    {icon(Icon::Delete)} "Discard proposal"
                </button>
                {move || gone.get().then(|| view! {
                    <p role="status">
                        "The proposal was discarded. " <a href=addresses::NODES>"All nodes"</a>
                    </p>
                })}
                <ProblemNotice problem=problem_of(discard)/>
            </ActionForm>
        </section>
    }
    .into_any()
}

#[server(
    name = ReadNodeProposal,
    prefix = "/call",
    endpoint = "node-proposal",
    input = AsJson,
    output = AsJson
)]
pub async fn node_proposal(id: ProposalId) -> ServerResult<NodeProposal> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_proposal(&actor, id).await).await
}
