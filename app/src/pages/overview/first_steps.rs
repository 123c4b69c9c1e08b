//! A checklist for new users: five steps from a board to a retried step. Gantry ticks them off from
//! actual events.

use api::overview::FirstSteps;
use leptos::form::ActionForm;
use leptos::prelude::*;

use super::HideFirstSteps;
use crate::addresses;
use crate::components::action::{on_success, problem_of};
use crate::components::{Icon, ProblemNotice, icon};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    done: bool,
    title: &'static str,
    how: &'static str,
    place: String,
}

/// The five steps, each with a link.
fn five(first_steps: &FirstSteps) -> [Step; 5] {
    let board = first_steps
        .deployment
        .as_ref()
        .map_or_else(|| addresses::DEPLOYMENTS.to_owned(), addresses::deployment);
    let review =
        first_steps.review.map_or_else(|| addresses::REVIEWS.to_owned(), addresses::review);
    let watch = match (first_steps.run_ended, first_steps.retried) {
        (false, _) => {
            "Watch the states on the board: BLOCKED, TODO, TRANSITION, ACTIVE. Select a noderole \
             to see its runs and logs."
        }
        (true, _) => {
            "The step ran. Now break it with a reviewed change: give a role data that makes its \
             run fail. Then correct the data or retry the step."
        }
    };
    [
        Step {
            done: first_steps.edited,
            title: "Drag a node onto a role",
            how: "Press Propose changes on the board. Drag a node from the tray onto a role, or \
                  select the node and press “Bind to…”.",
            place: board.clone(),
        },
        Step {
            done: first_steps.submitted,
            title: "Check what Gantry adds",
            how: "The bar above the board counts the noderoles that your edits add. Press Review \
                  changes and enter a title.",
            place: board.clone(),
        },
        Step {
            done: first_steps.reviewed,
            title: "Get or give an approval",
            how: "Try to approve it yourself: the page explains why you cannot. Another person \
                with the reviewer permission can. If you are alone, use the sign-in links that \
                  make run prints at each start. Each link signs in a different person. If you approve another person's change, this step is done, too.",
            place: review.clone(),
        },
        Step {
            done: first_steps.committed,
            title: "Commit the change",
            how: "So far nothing has run on a machine. After the approval, press Commit.",
            place: review,
        },
        Step {
            done: first_steps.run_ended && first_steps.retried,
            title: "Watch the run, break it and retry it",
            how: watch,
            place: board,
        },
    ]
}

/// The checklist. Empty once all is done, or after the user hides it.
#[component]
pub(super) fn FirstSteps(
    steps: Memo<Option<FirstSteps>>,
    hidden: Memo<bool>,
    changed: Callback<()>,
) -> impl IntoView {
    let put = ServerAction::<HideFirstSteps>::new();
    on_success(put, move |()| changed.run(()));
    let left = Memo::new(move |_| steps.get().filter(|first_steps| !first_steps.is_complete()));
    let list = move || {
        let first_steps = left.get()?;
        if hidden.get() {
            return Some(show_button(put));
        }
        let five = five(&first_steps);
        let done = five.iter().filter(|step| step.done).count();
        let next = five.iter().position(|step| !step.done);
        let lines = five.into_iter().enumerate().map(|(n, step)| line(step, Some(n) == next));
        Some(
            view! {
                <section class="card" aria-label="First steps">
                    <header>
                        <h2 class="grow">"First steps"</h2>
                        <span class="muted">{format!("{done} of 5 done")}</span>
                        <ActionForm action=put>
                            <button class="button quiet small" type="submit">
                                {icon(Icon::Cross)} "Hide first steps"
                            </button>
                        </ActionForm>
                    </header>
                    <ol class="first-steps">{lines.collect_view()}</ol>
                </section>
            }
            .into_any(),
        )
    };
    view! {
        <ProblemNotice problem=problem_of(put)/>
        {list}
    }
    .into_any()
}

fn line(step: Step, is_current: bool) -> impl IntoView {
    let (color, shape, word) = match (step.done, is_current) {
        (true, _) => ("active", Icon::Active, "done"),
        (false, true) => ("todo", Icon::Right, "next"),
        (false, false) => ("blocked", Icon::Todo, "to do"),
    };
    view! {
        <li aria-current=is_current.then_some("step")>
            <span class="pill" data-state=color>{icon(shape)} {word}</span>
            <div>
                <a class="main" href=step.place>{step.title}</a>
                <p class="muted">{step.how}</p>
            </div>
        </li>
    }
    .into_any()
}

fn show_button(put: ServerAction<HideFirstSteps>) -> AnyView {
    view! {
        <ActionForm action=put>
            <input type="hidden" name="show" value="true"/>
            <button class="button quiet small" type="submit">"Show first steps"</button>
        </ActionForm>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ids::{DeploymentName, ReviewId};

    #[test]
    fn first_steps_link_to_their_pages() {
        let places = |first_steps: &FirstSteps| five(first_steps).map(|step| step.place);
        assert_eq!(
            places(&FirstSteps::default()),
            ["/deployments", "/deployments", "/reviews", "/reviews", "/deployments"]
        );
        let deployment = DeploymentName::parse("web").ok();
        let first_steps = FirstSteps {
            edited: true,
            deployment,
            review: Some(ReviewId(7)),
            ..FirstSteps::default()
        };
        assert_eq!(
            places(&first_steps),
            [
                "/deployments/web",
                "/deployments/web",
                "/reviews/7",
                "/reviews/7",
                "/deployments/web"
            ]
        );
        assert_eq!(five(&first_steps).map(|step| step.done), [true, false, false, false, false]);
        let ran = FirstSteps { run_ended: true, ..first_steps };
        assert!(!five(&ran)[4].done && five(&ran)[4].how.contains("break it"));
        assert!(five(&FirstSteps { retried: true, ..ran })[4].done);
    }
}
