//! A preview of edits before they are saved. The server computes it when the input settles.
//!
//! A preview is valid only for the same edits and the same version of the proposal. So a button
//! that requires a preview never saves edits whose impact was not shown.

use std::time::Duration;

use api::Problem;
use api::views::board::EditsPreview;
use engine::ids::ProposalId;
use engine::plan::Edit;
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::server_functions;
use crate::components::{Icon, ProblemNotice, icon};

/// Changes within this time share one request.
const SETTLE: Duration = Duration::from_millis(200);
/// The maximum number of lines of a preview. The rest is a count.
const LINES: usize = 12;

/// A proposal, its version, and edits that are not saved yet.
type PreviewRequest = (ProposalId, i32, Vec<Edit>);

/// A preview of edits.
#[derive(Clone, Copy)]
pub struct Preview {
    question: Memo<Option<PreviewRequest>>,
    answer: RwSignal<Option<(PreviewRequest, EditsPreview)>>,
    problem: RwSignal<Option<Problem>>,
}

impl Preview {
    /// Requests a preview whenever the edits or the proposal change. Without edits there is no
    /// request.
    pub fn new(proposal: Signal<Option<(ProposalId, i32)>>, edits: Signal<Vec<Edit>>) -> Self {
        let question = Memo::new(move |_| {
            let edits = edits.get();
            let (id, version) = proposal.get().filter(|_| !edits.is_empty())?;
            Some((id, version, edits))
        });
        let preview = Self { question, answer: RwSignal::new(None), problem: RwSignal::new(None) };
        Effect::new(move |waiting: Option<Option<TimeoutHandle>>| {
            if let Some(Some(waiting)) = waiting {
                waiting.clear();
            }
            let Some(question) = question.get() else {
                preview.answer.set(None);
                preview.problem.set(None);
                return None;
            };
            set_timeout_with_handle(move || preview.ask(question), SETTLE).ok()
        });
        preview
    }

    fn ask(self, question: PreviewRequest) {
        spawn_local(async move {
            let answer = server_functions::preview_edits(question.0, question.2.clone()).await;
            // The response to an outdated question.
            if self.question.try_get_untracked().flatten().as_ref() != Some(&question) {
                return;
            }
            match answer {
                Ok(impact) => {
                    self.problem.try_set(None);
                    self.answer.try_set(Some((question, impact)));
                }
                Err(failure) => drop(self.problem.try_set(Some(failure.0))),
            }
        });
    }

    /// The proposal, its version and the edits, whether or not they are valid.
    pub fn represented_deployment(self) -> Option<(ProposalId, i32, Vec<Edit>)> {
        self.question.get()
    }

    /// The edits, once the preview shows that they are valid.
    pub fn edits(self) -> Option<Vec<Edit>> {
        let question = self.question.get()?;
        let is_fine = self
            .answer
            .read()
            .as_ref()
            .is_some_and(|(of, impact)| *of == question && impact.refused.is_empty());
        is_fine.then_some(question.2)
    }
}

/// Shows the impact of edits, or why they are invalid.
#[component]
pub fn PreviewImpact(of: Preview) -> impl IntoView {
    let asks = move || of.question.read().is_some();
    let waits = move || {
        let answered = of.answer.read().as_ref().map(|(question, _)| question.clone());
        asks() && answered != of.question.get() && of.problem.read().is_none()
    };
    let impact = Memo::new(move |_| of.answer.read().as_ref().map(|(_, impact)| impact.clone()));
    let text = move || {
        asks().then(|| match impact.get() {
            Some(impact) => outcome(impact),
            None => view! { <p class="muted">"Computing the preview"</p> }.into_any(),
        })
    };
    view! {
        <div class="impact" role="status" aria-live="polite" aria-busy=move || waits().to_string()>
            {text}
        </div>
        <ProblemNotice problem=of.problem/>
    }
    .into_any()
}

fn outcome(impact: EditsPreview) -> AnyView {
    let (state, shape, head, lines) = match impact.refused.is_empty() {
        true => ("todo", Icon::Review, "Preview of the proposal", impact.lines),
        false => ("error", Icon::Error, "Cannot add this change to the proposal", impact.refused),
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
