//! States as shape, color and word.

use api::runs::{RunState, StateCounts, StepState};
use engine::ids::ActionName;
use leptos::prelude::*;

use super::icon::{Icon, drawn, icon};

pub fn shape(state: StepState) -> Icon {
    match state {
        StepState::Proposed => Icon::Proposed,
        StepState::Blocked => Icon::Blocked,
        StepState::Todo => Icon::Todo,
        StepState::Transition => Icon::Transition,
        StepState::Active => Icon::Active,
        StepState::Error => Icon::Error,
    }
}

/// The icon of a step's state, for places that name the state elsewhere.
pub fn mark(state: StepState) -> impl IntoView {
    let class = if state == StepState::Transition { "icon mark spinning" } else { "icon mark" };
    drawn(shape(state), class)
}

#[component]
pub fn StatePill(#[prop(into)] state: Signal<StepState>) -> impl IntoView {
    view! {
        <span class="pill" data-state=move || state.get().as_str()>
            {move || mark(state.get())}
            {move || state.get().label()}
        </span>
    }
    .into_any()
}

pub fn run_style(state: RunState) -> (&'static str, Icon, &'static str) {
    match state {
        RunState::Queued => ("todo", Icon::Queued, "queued"),
        RunState::Running => ("transition", Icon::Transition, "running"),
        RunState::Succeeded => ("active", Icon::Active, "succeeded"),
        RunState::Failed => ("error", Icon::Error, "failed"),
        RunState::Lost => ("warn", Icon::Lost, "lost"),
        RunState::Canceled => ("blocked", Icon::Canceled, "canceled"),
        RunState::Unstarted => ("blocked", Icon::Undo, "unstarted"),
    }
}

/// All states of runs, in the order of the filter.
pub const RUN_STATES: [RunState; 7] = [
    RunState::Queued,
    RunState::Running,
    RunState::Succeeded,
    RunState::Failed,
    RunState::Lost,
    RunState::Canceled,
    RunState::Unstarted,
];

/// The action of a step, if it is not `run`.
pub fn action_pill(action: &ActionName) -> Option<AnyView> {
    let name = action.to_string();
    (!action.is_run()).then(|| view! { " " <span class="pill flat">{name}</span> }.into_any())
}

#[component]
pub fn RunPill(state: RunState) -> impl IntoView {
    let (color, shape, word) = run_style(state);
    let class = if state == RunState::Running { "icon spinning" } else { "icon" };
    view! { <span class="pill" data-state=color>{drawn(shape, class)} {word}</span> }.into_any()
}

/// The states in which steps are counted, those that need attention first.
pub const STEP_STATES: [StepState; 5] = [
    StepState::Error,
    StepState::Transition,
    StepState::Todo,
    StepState::Blocked,
    StepState::Active,
];

/// The states in a bar, in their order: done first, so that the bar fills from the left.
const BAR_STATES: [StepState; 5] = [
    StepState::Active,
    StepState::Error,
    StepState::Transition,
    StepState::Todo,
    StepState::Blocked,
];

/// The smallest share of a state in a bar, in percent, so that one failure among thousands is
/// visible.
const MIN_SHARE: f64 = 1.5;

/// Numbers of steps by state as a bar. The counts next to it have the same content as text.
#[component]
pub fn StateBar(counts: StateCounts) -> impl IntoView {
    let numbers = BAR_STATES.map(|state| (state, counts.of(state) as f64));
    let all = numbers.iter().map(|(_, n)| n).sum::<f64>().max(1.0);
    let share = |n: f64| if n > 0.0 { (n / all * 100.0).max(MIN_SHARE) } else { 0.0 };
    // Minimum shares may exceed the bar, so all are scaled.
    let scale = 100.0 / numbers.iter().map(|(_, n)| share(*n)).sum::<f64>().max(1.0);
    let mut left = 0.0;
    let parts = numbers.into_iter().filter(|(_, n)| *n > 0.0).map(|(state, n)| {
        let (x, width) = (left, share(n) * scale);
        left += width;
        view! {
            <rect
                data-state=state.as_str()
                x=format!("{x:.2}%")
                y="0"
                width=format!("{width:.2}%")
                height="100%"
            ></rect>
        }
    });
    let parts: Vec<_> = parts.collect();
    view! { <svg class="state-bar" aria-hidden="true">{parts}</svg> }.into_any()
}

/// Numbers of steps by state. States without steps are left out.
#[component]
pub fn Counts(counts: StateCounts) -> impl IntoView {
    let some: Vec<_> = STEP_STATES
        .into_iter()
        .map(|state| (state, counts.of(state)))
        .filter(|(_, n)| *n > 0)
        .collect();
    if some.is_empty() {
        return view! { <span class="muted nowrap">"No noderoles"</span> }.into_any();
    }
    let items = some.into_iter().map(|(state, n)| {
        let word = state.label().to_lowercase();
        let title = format!("{n} {word}");
        view! {
            <li data-state=state.as_str() title=title>
                {icon(shape(state))} {n} <span class="visually-hidden">{word}</span>
            </li>
        }
    });
    view! { <ul class="counts">{items.collect_view()} {marks(&counts)}</ul> }.into_any()
}

/// The numbers of stale and unchecked steps. They are ACTIVE, so their states do not show them.
pub fn marks(counts: &StateCounts) -> AnyView {
    let mark = |text: String| view! { <li data-state="warn">{icon(Icon::Warn)} {text}</li> };
    counts.marks().map(mark).collect_view().into_any()
}
