//! What edits would come to, before they are made: asked of the server a moment after they settled, and told in its words.
//!
//! An answer counts for exactly the edits and the version of the proposal that it was asked for. So a button that waits for it never
//! makes what nobody has seen the outcome of.

use std::time::Duration;

use api::Problem;
use api::console::Foreseen;
use engine::ids::ProposalId;
use engine::plan::Edit;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::icon::{Icon, icon};
use super::notice::ProblemNotice;
use crate::calls;

/// What is typed within this time is asked about once.
const SETTLE: Duration = Duration::from_millis(200);
/// Lines of an outcome before the rest becomes a number.
const LINES: usize = 12;

/// A proposal at a version, and edits that it has not got yet.
type Question = (ProposalId, i32, Vec<Edit>);

/// What edits would come to.
#[derive(Clone, Copy)]
pub struct Foresight {
    question: Memo<Option<Question>>,
    answer: RwSignal<Option<(Question, Foreseen)>>,
    problem: RwSignal<Option<Problem>>,
}

impl Foresight {
    /// Asks whenever the edits, or the proposal, are others. No edits: there is nothing to ask.
    pub fn new(proposal: Signal<Option<(ProposalId, i32)>>, edits: Signal<Vec<Edit>>) -> Self {
        let question = Memo::new(move |_| {
            let edits = edits.get();
            let (id, version) = proposal.get().filter(|_| !edits.is_empty())?;
            Some((id, version, edits))
        });
        let foresight =
            Self { question, answer: RwSignal::new(None), problem: RwSignal::new(None) };
        Effect::new(move |waiting: Option<Option<TimeoutHandle>>| {
            if let Some(Some(waiting)) = waiting {
                waiting.clear();
            }
            let Some(question) = question.get() else {
                foresight.answer.set(None);
                foresight.problem.set(None);
                return None;
            };
            set_timeout_with_handle(move || foresight.ask(question), SETTLE).ok()
        });
        foresight
    }

    fn ask(self, question: Question) {
        spawn_local(async move {
            let answer = calls::foresee(question.0, question.2.clone()).await;
            // An answer about something else comes too late.
            if self.question.try_get_untracked().flatten().as_ref() != Some(&question) {
                return;
            }
            match answer {
                Ok(found) => {
                    self.problem.try_set(None);
                    self.answer.try_set(Some((question, found)));
                }
                Err(failure) => drop(self.problem.try_set(Some(failure.0))),
            }
        });
    }

    /// The proposal, its version, and the edits that are wished, whether or not they can take effect.
    pub fn stands_for(self) -> Option<(ProposalId, i32, Vec<Edit>)> {
        self.question.get()
    }

    /// The edits, once it is known that they can take effect.
    pub fn edits(self) -> Option<Vec<Edit>> {
        let question = self.question.get()?;
        let is_fine = self
            .answer
            .read()
            .as_ref()
            .is_some_and(|(of, found)| *of == question && found.refused.is_empty());
        is_fine.then_some(question.2)
    }
}

/// Tells what edits would come to, or why they can't take effect.
#[component]
pub fn Consequence(
    /// Of these edits.
    of: Foresight,
) -> impl IntoView {
    let asks = move || of.question.read().is_some();
    let waits = move || {
        let answered = of.answer.read().as_ref().map(|(question, _)| question.clone());
        asks() && answered != of.question.get() && of.problem.read().is_none()
    };
    let told = Memo::new(move |_| of.answer.read().as_ref().map(|(_, found)| found.clone()));
    let said = move || {
        asks().then(|| match told.get() {
            Some(found) => outcome(found),
            None => view! { <p class="muted">"Working out what this comes to"</p> }.into_any(),
        })
    };
    view! {
        <div class="consequence" role="status" aria-live="polite" aria-busy=move || waits().to_string()>{said}</div>
        <ProblemNotice problem=of.problem/>
    }
    .into_any()
}

fn outcome(found: Foreseen) -> AnyView {
    let (state, shape, head, lines) = match found.refused.is_empty() {
        true => ("todo", Icon::Review, "With this the proposal comes to", found.lines),
        false => ("error", Icon::Error, "This can’t be put into the proposal", found.refused),
    };
    let more = lines.len().saturating_sub(LINES);
    let lines = lines.into_iter().take(LINES).map(|line| view! { <li>{line}</li> }).collect_view();
    view! {
        <div class="notice" data-state=state>
            {icon(shape)}
            <div>
                <b>{head}</b>
                <ul>{lines}</ul>
                {(more > 0).then(|| view! { <p class="muted">"And " {more} " more."</p> })}
            </div>
        </div>
    }
    .into_any()
}
