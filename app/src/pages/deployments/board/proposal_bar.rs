//! The bar of an open proposal: its impact, undo and redo, and submission.

use api::calls::Call;
use api::limits;
use api::proposals::{EditView, ProposalView};
use engine::counting::{either, many};
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::board_state::BoardState;
use super::server_functions::Propose;
use crate::addresses;
use crate::clock::TimeText;
use crate::components::action::{on_success, problem_of};
use crate::components::{
    Dialog, DialogHandle, EquivalentCommands, FormValues, Icon, ProblemNotice, Refused, icon,
    warnings,
};
use crate::pages::proposals::server_functions::{Discard, Redo, Submit, Undo};
use crate::pages::proposals::{JoinNotice, by, undo_state};
use crate::pages::reviews::review::reasons;

#[component]
pub(super) fn ProposalBar(
    board_state: BoardState,
    propose: ServerAction<Propose>,
) -> impl IntoView {
    let is_open = Memo::new(move |_| board_state.proposal().read().is_some());
    move || match is_open.get() {
        true => view! { <Open board_state/> }.into_any(),
        false => view! { <Closed board_state propose/> }.into_any(),
    }
}

/// The bar while no proposal is open. It has the size of the other one, so that opening a proposal
/// moves nothing. Its button is where the open bar has *Review changes*, which is disabled at
/// first.
#[component]
fn Closed(board_state: BoardState, propose: ServerAction<Propose>) -> impl IntoView {
    let board = board_state.board();
    let reason = Memo::new(move |_| board.read().may_propose.reason().map(str::to_owned));
    let explanation = move || match reason.get() {
        Some(explanation) => explanation,
        None => "No open proposal. The board shows the committed state.".to_owned(),
    };
    let id = board.read_untracked().id.to_string();
    view! {
        <div class="proposal none">
            <div class="line">
                <span class="facts-line muted" id="no-proposal-reason">{explanation}</span>
                <span class="grow"></span>
                <div class="buttons">
                    <ActionForm action=propose>
                        <input type="hidden" name="deployment" value=id/>
                        <button
                            class="button primary"
                            type="submit"
                            disabled=move || reason.read().is_some() || propose.pending().get()
                            aria-describedby="no-proposal-reason"
                        >
                            {icon(Icon::Proposed)}
                            "Propose changes"
                        </button>
                    </ActionForm>
                </div>
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn Open(board_state: BoardState) -> impl IntoView {
    let (discard, submit) = (DialogHandle::new(), DialogHandle::new());
    let proposal = board_state.proposal();
    let get = move |read: fn(&ProposalView) -> usize| proposal.read().as_ref().map_or(0, read);
    let figure = move |read: fn(&ProposalView) -> usize, sign: &'static str, noun: &'static str| {
        view! {
            <span class:muted=move || get(read) == 0>
                <span class="num">{sign} {move || get(read)}</span> " " {noun}
            </span>
        }
    };
    let authors = move || proposal.read().as_ref().map(by).filter(|names| !names.is_empty());
    let in_review = move || {
        let id = proposal.read().as_ref()?.review?;
        Some(view! {
            <a class="pill" data-state="warn" href=addresses::review(id)>
                {icon(Icon::Review)} "in review " {id.0}
            </a>
        })
    };
    let nothing = move || get(|p| p.edits.iter().filter(|edit| !edit.undone).count()) == 0;
    let buttons = move || {
        board_state.editable().get().then(|| {
            view! {
                <div class="buttons">
                    <UndoButton board_state/>
                    <RedoButton board_state/>
                    <button
                        class="button quiet"
                        type="button"
                        commandfor="discard"
                        command="show-modal"
                        on:click=discard.on_click()
                    >
                        {icon(Icon::Delete)}
                        <span class="caption">"Discard proposal"</span>
                    </button>
                    <button
                        class="button primary"
                        type="button"
                        commandfor="submit"
                        command="show-modal"
                        disabled=nothing
                        title=move || nothing().then_some("No changes to review yet")
                        on:click=submit.on_click()
                    >
                        "Review changes"
                    </button>
                </div>
            }
        })
    };
    let joins = move || {
        let go = Callback::new(move |step| board_state.undo_or_redo_now(step));
        board_state.editable().get().then(|| view! { <JoinNotice joining=board_state.joining go/> })
    };
    let dialogs = move || {
        board_state.editable().get().then(|| {
            view! {
                <DiscardDialog board_state handle=discard/>
                <SubmitDialog board_state handle=submit/>
            }
        })
    };
    let not_restored = Memo::new(move |_| {
        proposal.read().as_ref().and_then(|proposal| proposal.not_restored.clone())
    });
    let not_restored = move || not_restored.get().map(warnings::not_restored);
    view! {
        <section class="proposal" aria-label="Open proposal">
            <div class="line">
                <span class="facts-line">
                    <span>
                        "Proposal" {move || authors().map(|names| view! { " by " <b>{names}</b> })}
                    </span>
                    <EditList board_state/>
                    {figure(|p| p.added, "+", "noderoles")}
                    {figure(|p| p.reruns, "", "re-run")}
                    {figure(|p| p.removed, "", "removed")}
                </span>
                {move || in_review()}
                <span class="grow"></span>
                {move || buttons()}
            </div>
            {move || joins()}
        </section>
        <SentBack board_state/>
        {move || not_restored()}
        <Conflicts board_state/>
        <Refused board_state/>
        {move || dialogs()}
    }
    .into_any()
}

/// Undo and redo, as equivalent commands.
pub(super) fn steps(board_state: BoardState) -> Vec<Call> {
    let proposal = board_state.proposal().read();
    let Some(proposal) = proposal.as_ref() else { return Vec::new() };
    let undo = proposal.undo.as_ref().map(|_| api::calls::undo(proposal.id, proposal.version));
    let redo = proposal.redo.as_ref().map(|_| api::calls::redo(proposal.id, proposal.version));
    undo.into_iter().chain(redo).collect()
}

/// The number of edits, expandable to the list.
#[component]
fn EditList(board_state: BoardState) -> impl IntoView {
    let edits = Memo::new(move |_| {
        board_state.proposal().read().as_ref().map(|p| p.edits.clone()).unwrap_or_default()
    });
    let done = move || edits.read().iter().filter(|edit| !edit.undone).count();
    let line = move |edit: EditView| {
        let overruled = board_state.proposal().read_untracked().as_ref().and_then(|p| {
            let conflict =
                p.clashes.iter().find(|conflict| conflict.earlier == edit.seq && !edit.undone)?;
            Some(format!(
                "Overridden by edit {} of {}: {}",
                conflict.later, conflict.later_by, conflict.subject
            ))
        });
        view! {
            <li class:undone=edit.undone>
                <span class="muted num">{edit.seq}</span>
                <span>
                    {edit.text.clone()}
                    {overruled.map(|by| view! {
                        " " <span class="pill" data-state="warn">{by}</span>
                    })}
                    {edit.undone.then(|| view! {
                        <span class="visually-hidden">" (undone)"</span>
                    })}
                </span>
                <span class="muted">
                    {edit.actor.clone()} ", " <TimeText at=edit.at/>
                    {undo_state(&edit).map(|undo_state| view! { <br/> {undo_state} })}
                </span>
            </li>
        }
    };
    view! {
        <details>
            <summary>
                <span class="num">{move || done()}</span>
                {move || either(done(), " edit", " edits")} {icon(Icon::Right)}
            </summary>
            <ol class="edits" tabindex="0" aria-label="Edits, oldest first">
                {move || edits.get().into_iter().map(line).collect_view()}
            </ol>
        </details>
    }
    .into_any()
}

/// Hidden fields with the proposal and the displayed version.
#[component]
fn Which(board_state: BoardState) -> impl IntoView {
    let proposal = board_state.proposal();
    view! {
        <input
            type="hidden"
            name="proposal"
            value=move || proposal.read().as_ref().map(|p| p.id.to_string())
        />
        <input
            type="hidden"
            name="version"
            value=move || proposal.read().as_ref().map(|p| p.version.to_string())
        />
    }
    .into_any()
}

#[component]
fn UndoButton(board_state: BoardState) -> impl IntoView {
    let undo = ServerAction::<Undo>::new();
    let edit =
        Memo::new(move |_| board_state.proposal().read().as_ref().and_then(|p| p.undo.clone()));
    let title =
        move || edit.get().map_or("Nothing to undo".to_owned(), |edit| format!("Undo: {edit}"));
    view! {
        <ActionForm action=undo>
            <Which board_state/>
            <button
                class="button quiet undo"
                type="submit"
                title=title
                disabled=move || edit.read().is_none()
                on:click=move |event| {
                    event.prevent_default();
                    board_state.undo();
                }
            >
                {icon(Icon::Undo)}
                <span>
                    {move || edit.get().map_or("Undo".to_owned(), |edit| format!("Undo “{edit}”"))}
                </span>
                <kbd>"Ctrl Z"</kbd>
            </button>
        </ActionForm>
    }
    .into_any()
}

#[component]
fn RedoButton(board_state: BoardState) -> impl IntoView {
    let redo = ServerAction::<Redo>::new();
    let edit =
        Memo::new(move |_| board_state.proposal().read().as_ref().and_then(|p| p.redo.clone()));
    move || {
        edit.get().map(|edit| {
            view! {
                <ActionForm action=redo>
                    <Which board_state/>
                    <button
                        class="button quiet undo"
                        type="submit"
                        title=format!("Redo: {edit} (Ctrl Shift Z)")
                        on:click=move |event| {
                            event.prevent_default();
                            board_state.redo();
                        }
                    >
                        {icon(Icon::Redo)}
                        <span>{format!("Redo “{edit}”")}</span>
                    </button>
                </ActionForm>
            }
        })
    }
}

/// The reason for which the review was closed, until the next edit.
#[component]
fn SentBack(board_state: BoardState) -> impl IntoView {
    move || {
        let back = board_state.proposal().read().as_ref()?.sent_back.clone()?;
        Some(view! {
            <div class="notice refused" data-state="warn" role="alert">
                {icon(Icon::Undo)}
                <div>
                    <b>
                        <a href=addresses::review(back.before)>"Review " {back.before.0}</a>
                        " was closed because its base changed"
                    </b>
                    {reasons(&back)}
                </div>
            </div>
        })
    }
}

/// Edits of one author that overrule another's.
#[component]
fn Conflicts(board_state: BoardState) -> impl IntoView {
    let clashes = Memo::new(move |_| {
        board_state.proposal().read().as_ref().map(|p| p.clashes.clone()).unwrap_or_default()
    });
    move || warnings::clashes(&clashes.read())
}

/// Edits that cannot take effect, each with the reason.
#[component]
fn Refused(board_state: BoardState) -> impl IntoView {
    move || {
        let proposal = board_state.proposal().get()?;
        if proposal.refused.is_empty() {
            return None;
        }
        let text = |seq: u32| {
            proposal
                .edits
                .iter()
                .find(|edit| edit.seq == seq)
                .map_or_else(|| format!("Edit {seq}"), |edit| edit.text.clone())
        };
        let lines = proposal.refused.iter().map(
            |refusal| view! { <li><b>{text(refusal.edit)}</b> ": " {refusal.reason.clone()}</li> },
        );
        Some(view! {
            <div class="notice refused" data-state="warn" role="alert">
                {icon(Icon::Warn)}
                <div>
                    <b>{many(proposal.refused.len(), "edit")} " cannot take effect"</b>
                    <ul>{lines.collect_view()}</ul>
                </div>
            </div>
        })
    }
}

#[component]
fn DiscardDialog(board_state: BoardState, handle: DialogHandle) -> impl IntoView {
    let discard = ServerAction::<Discard>::new();
    let refused = Refused::of(discard).is_here();
    on_success(discard, move |()| {
        handle.close();
        board_state.announce("The proposal was discarded.");
        board_state.feed().now();
    });
    let count = move || {
        board_state
            .proposal()
            .read()
            .as_ref()
            .map_or(0, |p| p.edits.iter().filter(|edit| !edit.undone).count())
    };
    view! {
        <Dialog id="discard" title="Discard the proposal?".to_owned() handle=handle refused=refused>
            <ActionForm action=discard attr:class="form">
                <Which board_state/>
                <div class="body">
                    <p>
                        {move || many(count(), "edit")}
                        " will be deleted permanently. Committed changes stay in force."
                    </p>
                    <ProblemNotice problem=problem_of(discard)/>
                    <EquivalentCommands of=move |_: FormValues| {
                        board_state.proposal()
                            .read()
                            .as_ref()
                            .map(|p| api::calls::discard(p.id, p.version))
                            .into_iter().collect::<Vec<_>>()
                    }/>
                </div>
                <div class="foot">
                    <button
                        class="button"
                        type="button"
                        commandfor="discard"
                        command="close"
                        on:click=handle.on_click_close()
                    >
                        "Keep proposal"
                    </button>
                    <button
                        class="button danger"
                        type="submit"
                        disabled=move || discard.pending().get()
                    >
                        "Discard proposal"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}

#[component]
fn SubmitDialog(board_state: BoardState, handle: DialogHandle) -> impl IntoView {
    let submit = ServerAction::<Submit>::new();
    let refused = Refused::of(submit);
    let typed = refused.typed("title");
    let is_refused = refused.is_here();
    let suggestion = move || {
        typed.clone().or_else(|| board_state.proposal().read().as_ref().map(suggested_title))
    };
    let summary = move || {
        board_state.proposal().read().as_ref().map(|p| {
            format!(
                "{}: {} added, {} removed, {} run again.",
                many(p.edits.iter().filter(|edit| !edit.undone).count(), "edit"),
                many(p.added, "noderole"),
                p.removed,
                p.reruns
            )
        })
    };
    view! {
        <Dialog id="submit" title="Review changes".to_owned() handle=handle refused=is_refused>
            <ActionForm action=submit attr:class="form">
                <Which board_state/>
                <div class="body">
                    {move || board_state.proposal().read().as_ref().is_some_and(|p| p.makes_author).then(|| view! {
                        <p>
                            <b>
                                "If you submit, you become an author and cannot approve this \
                                 review."
                            </b>
                        </p>
                    })}
                    <p>
                        {move || summary()}
                        " Another person must approve the review before anything changes. You can \
                         continue editing and submit again."
                    </p>
                    <div class="field">
                        <label for="proposal-title">"Title"</label>
                        <input
                            class="input"
                            id="proposal-title"
                            name="title" required
                            maxlength=limits::TITLE
                            autocomplete="off"
                            value=suggestion
                        />
                        <span class="hint">"The purpose of the change, in one line."</span>
                    </div>
                    <ProblemNotice problem=problem_of(submit)/>
                    <EquivalentCommands of=move |typed: FormValues| {
                        let proposal = board_state.proposal().read();
                        let submit = |p: &ProposalView| api::calls::submit(
                            p.id,
                            p.version,
                            &typed.or("title", &suggested_title(p))
                        );
                        proposal.as_ref().map(submit).into_iter().collect::<Vec<_>>()
                    }/>
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || submit.pending().get()
                    >
                        "Submit for review"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}

/// The proposal's own title, or its first edits.
fn suggested_title(proposal: &ProposalView) -> String {
    if !proposal.title.is_empty() {
        return proposal.title.clone();
    }
    let texts: Vec<&str> =
        proposal.edits.iter().filter(|edit| !edit.undone).map(|edit| edit.text.as_str()).collect();
    match texts.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}
