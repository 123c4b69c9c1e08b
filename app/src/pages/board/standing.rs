//! How a deployment's steps stand. The badge at the top of a board says what people have decided, which is no word about what is: a
//! change is COMMITTED while its steps fail. So what is stands beside it, counted from the chips as they are at this moment.

use api::console::{StateCounts, StepState};
use engine::anneal::Wait;
use engine::ids::DeploymentName;
use leptos::prelude::*;

use super::desk::Desk;
use crate::parts::badge::STEP_STATES;
use crate::parts::mark;
use crate::places;

/// The counts, each with the way to what it counts.
#[component]
pub(super) fn Standing(desk: Desk) -> impl IntoView {
    let counts = Memo::new(move |last: Option<&StateCounts>| match last {
        // Nothing moves while something is lifted, and a line more up here would move every row.
        Some(last) if desk.lifted().read().is_some() => *last,
        _ => desk.standing(),
    });
    let is_none = Memo::new(move |_| counts.get() == StateCounts::default());
    let each = STEP_STATES.into_iter().map(|state| one(desk, counts, state)).collect_view();
    view! {
        <ul class="counts standing" aria-label="Steps by state">
            {each}
            {move || is_none.get().then(|| view! { <li><span class="muted">"nothing bound"</span></li> })}
        </ul>
    }
    .into_any()
}

/// Where those in a state can be looked at.
fn way(state: StepState, name: &DeploymentName) -> Option<String> {
    match state {
        StepState::Error => Some(places::waiting_in_for(name, Wait::Failed.as_str())),
        StepState::Blocked | StepState::Todo => Some(places::waiting_in(name)),
        StepState::Transition => Some(places::running_in(name)),
        StepState::Active | StepState::Proposed => None,
    }
}

/// One state's; while none is in it, nothing. What is focused stays while its number changes.
fn one(desk: Desk, counts: Memo<StateCounts>, state: StepState) -> impl IntoView {
    let number = Memo::new(move |_| counts.get().of(state));
    let is_any = Memo::new(move |_| number.get() > 0);
    move || {
        is_any.get().then(|| {
            let word = state.word().to_lowercase();
            view! {
                <li data-state=state.as_str()>
                    <a href=move || way(state, &desk.board().read().name)>{mark(state)} <span>{move || format!("{} {word}", number.get())}</span></a>
                </li>
            }
        })
    }
}
