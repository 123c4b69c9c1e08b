//! The states of a deployment's steps. The badge at the top of a board shows the state of decisions
//! and not the actual state: a change is COMMITTED even while its steps fail. So the states of the
//! steps are shown below it, counted from the chips.

use api::runs::{StateCounts, StepState};
use api::views::board::BoardRole;
use engine::anneal::PendingReason;
use engine::ids::DeploymentName;
use leptos::prelude::*;

use super::address::Address;
use super::board_state::BoardState;
use crate::addresses;
use crate::components::badge::{STEP_STATES, StateBar, marks};
use crate::components::mark;

/// The counts, each with a link to its steps.
#[component]
pub(super) fn StepStates(board_state: BoardState) -> impl IntoView {
    let counts = Memo::new(move |last: Option<&StateCounts>| match last {
        // While nodes are dragged, an additional line would shift every row under the pointer.
        Some(last) if board_state.dragged().read().is_some() => *last,
        _ => board_state.standing(),
    });
    let page_address = expect_context::<Memo<Address>>();
    let is_none = Memo::new(move |_| counts.get() == StateCounts::default());
    let each = STEP_STATES.into_iter().map(|state| one(board_state, counts, state)).collect_view();
    view! {
        <ul class="counts step-counts" aria-label="Steps by state">
            {each}
            {move || marks(&counts.read())}
            {move || is_none.get().then(|| view! {
                <li><span class="muted">"No noderoles"</span></li>
            })}
            <li>
                <a
                    class="muted"
                    href=move || page_address
                        .read()
                        .with_not_active(!page_address.read().not_active)
                        .link()
                    aria-current=move || page_address.read().not_active.then_some("true")
                    data-noscroll
                >
                    {
                        move || if page_address.read().not_active { "Show all noderoles" } else {
                            "Only noderoles that have not converged"
                        }
                    }
                </a>
            </li>
        </ul>
    }
    .into_any()
}

/// The steps of one role as a bar and in words: `201 active, 3 error, 3 blocked, 2 stale`.
#[component]
pub(super) fn RoleStates(board_state: BoardState, role: Memo<BoardRole>) -> impl IntoView {
    let counts = Memo::new(move |_| board_state.role_standing(&role.read()));
    move || {
        let counts = counts.get();
        let words: Vec<String> = STATE_ORDER
            .into_iter()
            .filter(|state| counts.of(*state) > 0)
            .map(|state| format!("{} {}", counts.of(state), state.label().to_lowercase()))
            .chain(counts.marks())
            .collect();
        (!words.is_empty()).then(|| {
            let words = words.join(", ");
            view! { <div class="role-states"><StateBar counts/> <small>{words}</small></div> }
        })
    }
}

/// The order of the states in words.
const STATE_ORDER: [StepState; 5] = [
    StepState::Active,
    StepState::Error,
    StepState::Blocked,
    StepState::Todo,
    StepState::Transition,
];

/// The list of steps in a state.
fn steps_address(state: StepState, name: &DeploymentName) -> Option<String> {
    match state {
        StepState::Error => Some(addresses::pending_in_for(name, PendingReason::Failed.as_str())),
        StepState::Blocked | StepState::Todo => Some(addresses::pending_in(name)),
        StepState::Transition => Some(addresses::running_in(name)),
        StepState::Active | StepState::Proposed => None,
    }
}

/// The count of one state. Hidden while it is zero. It keeps the focus while the number changes.
fn one(board_state: BoardState, counts: Memo<StateCounts>, state: StepState) -> impl IntoView {
    let number = Memo::new(move |_| counts.get().of(state));
    let is_any = Memo::new(move |_| number.get() > 0);
    move || {
        is_any.get().then(|| {
            let word = state.label().to_lowercase();
            view! {
                <li data-state=state.as_str()>
                    <a href=move || steps_address(state, &board_state.board().read().name)>
                        {mark(state)} <span>{move || format!("{} {word}", number.get())}</span>
                    </a>
                </li>
            }
        })
    }
}
