//! The planner's report, stage by stage: results, effects, waiting on, blocked by.

use std::future::ready;

use engine::report::{Line, Report, Stage, StageReport};
use leptos::prelude::*;

use crate::components::{Icon, ProblemNotice, icon, load_part, loading_text};
use crate::failure::ServerResult;

/// The report. It exists only for the newest version of an open proposal.
pub(crate) type ReportResult = ServerResult<Option<Report>>;

#[component]
pub(super) fn Planned(report: Resource<ReportResult>) -> impl IntoView {
    let show = |found: Option<Report>| {
        ready(match found {
            Some(report) => {
                let stages = report.stages.into_iter().map(stage).collect_view();
                view! { <ol class="stages">{stages}</ol> }.into_any()
            }
            None => view! {
                <p class="padded muted">
                    "The plan report is available only for the newest version of an open proposal."
                </p>
            }
            .into_any(),
        })
    };
    let show_error = |problem| ready(view! { <ProblemNotice problem=Some(problem)/> }.into_any());
    view! {
        <section class="card" aria-label="Plan report">
            <details>
                <summary class="padded">
                    <h2>"Plan report"</h2>
                    <span class="muted">"on the current target, stage by stage"</span>
                </summary>
                {load_part(report, loading_text, show, show_error)}
            </details>
        </section>
    }
    .into_any()
}

fn stage(found: StageReport) -> impl IntoView {
    let name = match found.stage {
        Stage::Catalog => "Catalog",
        Stage::Edits => "Edits",
        Stage::Bind => "Bind",
        Stage::Move => "Move",
        Stage::Order => "Order",
        Stage::Check => "Check",
        Stage::Lint => "Lint",
    };
    let parts = [
        ("results", "blocked", Icon::Check, found.results),
        ("effects", "proposed", Icon::Plus, found.effects),
        ("waiting on", "todo", Icon::Queued, found.waiting_on),
        ("blocked by", "error", Icon::Blocked, found.blocked_by),
    ];
    let parts = parts.into_iter().filter(|(_, _, _, lines)| !lines.is_empty()).map(
        |(word, color, shape, lines)| {
            view! {
                <div class="part">
                    <span class="pill" data-state=color>{icon(shape)} {word}</span>
                    <ul>{lines.into_iter().map(line).collect_view()}</ul>
                </div>
            }
        },
    );
    view! { <li><h3>{name}</h3> {parts.collect_view()}</li> }.into_any()
}

fn line(line: Line) -> impl IntoView {
    let edits: Vec<String> = line.edits.iter().map(ToString::to_string).collect();
    let more =
        if line.more_edits > 0 { format!(" and {} more", line.more_edits) } else { String::new() };
    let edits = (!edits.is_empty()).then(|| format!(" · edits: {}{more}", edits.join(", ")));
    let about = line.subjects.len() + line.more;
    let about = (about > 0).then(|| format!(" · objects: {about}"));
    view! { <li>{line.text} " " <span class="muted">{line.evidence} {edits} {about}</span></li> }
        .into_any()
}
