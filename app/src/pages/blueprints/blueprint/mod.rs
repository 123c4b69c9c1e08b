//! The rollout of a blueprint, live: how far it is, its waves, its failed steps and its runs.
//!
//! Everything on the page comes from one request, which the server bounds. So the page for 10,000
//! steps is as fast as for ten.

pub mod server_functions;
mod timeline;

use api::blueprints::Progress;
use api::live::Topic;
use api::rollout::{BlueprintProgress, FailedStep};
use api::runs::StateCounts;
use engine::counting::{either, grouped, many};
use engine::ids::{BlueprintNumber, actor_name};
use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use crate::addresses;
use crate::clock::{Elapsed, TimeText};
use crate::components::action::{on_success, problem_of};
use crate::components::badge::{StateBar, action_pill};
use crate::components::poll_while_visible::poll_while_visible;
use crate::components::{
    Counts, EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, Refused, icon, load_one,
    rows,
};
use crate::failure::{Failure, ServerResult};
use crate::live::use_live;
use server_functions::RetryFailedSteps;
use timeline::TimelineSection;

#[component]
pub fn BlueprintPage() -> impl IntoView {
    let params = use_params_map();
    let number = Memo::new(move |_| params.read().get("number").unwrap_or_default());
    let progress = Resource::new(move || number.get(), by_text);
    load_one(progress, (addresses::BLUEPRINTS, "All blueprints"), |first| view! { <Loaded first/> })
}

async fn by_text(number: String) -> ServerResult<BlueprintProgress> {
    let number = number.parse().map(BlueprintNumber).map_err(|_| missing())?;
    server_functions::blueprint_progress(number).await
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found(
        "Blueprint not found: the address must end with a blueprint number, such as 12. Open the \
         list of blueprints.",
    )
    .into()
}

#[component]
fn Loaded(first: BlueprintProgress) -> impl IntoView {
    let (number, cursor) = (first.rollout.blueprint.number, first.cursor);
    let feed = Feed::new(first, move || server_functions::blueprint_progress(number));
    use_live().subscribe(vec![Topic::Runs, Topic::Blueprints], cursor, move |_| feed.eventually());
    poll_while_visible(feed);
    let progress = feed.value();
    let waves = Memo::new(move |_| (1..).zip(progress.read().waves.clone()).collect::<Vec<_>>());
    let timeline = Memo::new(move |_| progress.read().timeline.clone());
    view! {
        <Title text=format!("Blueprint {number}")/>
        <Head progress/>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <div class="stack wide">
            <Summary progress/>
            <Failed feed/>
            <Waves waves more=Memo::new(move |_| progress.read().more_waves)/>
            <TimelineSection timeline/>
            <EquivalentCommands
                of=move |_: FormValues| vec![api::calls::blueprint_progress(number)]
            />
        </div>
    }
    .into_any()
}

#[component]
fn Head(progress: RwSignal<BlueprintProgress>) -> impl IntoView {
    // A blueprint never changes.
    let blueprint = progress.read_untracked().rollout.blueprint.clone();
    let number = blueprint.number;
    let by = actor_name(blueprint.by.as_deref()).to_owned();
    let review = blueprint
        .review
        .map(|id| view! { <a href=addresses::review(id)>"review " {id.0}</a> " · " });
    let board = blueprint.deployment.map(|name| {
        let board = addresses::board_by_name(&name);
        view! { <a class="button small" href=board>{icon(Icon::Deployments)} {name}</a> }
    });
    let changes = (number.0 > 1).then(|| {
        let changes = addresses::comparison(BlueprintNumber(number.0 - 1), number);
        view! { <a class="button small" href=changes>"Changes"</a> }
    });
    let is_stale = move || progress.read().rollout.steps.error == 0;
    let state = move || match progress.read().rollout.progress {
        Progress::Converged => ("active", Icon::Active, "converged"),
        Progress::InProgress => ("transition", Icon::Transition, "in progress"),
        Progress::Stuck if is_stale() => ("warn", Icon::Warn, "stuck"),
        Progress::Stuck => ("error", Icon::Error, "stuck"),
    };
    let state = Memo::new(move |_| state());
    view! {
        <div class="head">
            <div>
                <div class="muted">
                    "Blueprint " {number.0} " · " {review} "committed by " {by} ", " <TimeText at=blueprint.at/>
                </div>
                <h1>
                    <bdi>
                        {
                            if blueprint.title.is_empty() {
                                format!("Blueprint {number}")
                            } else { blueprint.title }
                        }
                    </bdi>
                    " "
                    <span role="status">{move || {
                        let (color, shape, word) = state.get();
                        view! { <span class="pill" data-state=color>{icon(shape)} {word}</span> }
                    }}</span>
                </h1>
            </div>
            <div class="buttons">{board} {changes}</div>
        </div>
    }
    .into_any()
}

#[component]
fn Summary(progress: RwSignal<BlueprintProgress>) -> impl IntoView {
    let rollout = Memo::new(move |_| progress.read().rollout.clone());
    let counts = Memo::new(move |_| StateCounts { stale: 0, unchecked: 0, ..rollout.read().steps });
    let hint = move || {
        let rollout = rollout.read();
        match rollout.progress {
            _ if rollout.all == 0 => {
                "This blueprint changed no steps, or later blueprints changed all of them."
            }
            Progress::Stuck if rollout.steps.error > 0 => {
                "Nothing starts by itself until the failed steps are retried or changed."
            }
            Progress::Stuck => {
                "Nothing starts by itself. The list of pending steps shows who or what can act."
            }
            Progress::Converged | Progress::InProgress => {
                "Steps that a later blueprint changed belong to that blueprint."
            }
        }
    };
    let is_pending = move || rollout.read().applied < rollout.read().all;
    view! {
        <section class="card rollout" aria-label="Progress">
            <div class="padded">
                <p class="lead">{move || rollout.read().text()}</p>
                {move || (rollout.read().all > 0).then(|| view! {
                    <StateBar counts=counts.get()/> <Counts counts=counts.get()/>
                })}
                <p class="muted">
                    {hint}
                    {move || is_pending().then(|| view! {
                        " " <a href=addresses::PENDING>"Pending steps"</a>
                    })}
                </p>
            </div>
        </section>
    }
    .into_any()
}

#[component]
fn Waves(waves: Memo<Vec<(usize, StateCounts)>>, more: Memo<bool>) -> impl IntoView {
    let is_empty = Memo::new(move |_| waves.read().is_empty());
    let line = |wave: Memo<(usize, StateCounts)>| {
        let (number, _) = wave.get_untracked();
        let text = move || wave_text(&wave.read().1);
        view! {
            <li>
                <b class="num">"Wave " {number}</b>
                {move || view! { <StateBar counts=wave.read().1/> }}
                <span class="muted num">{text}</span>
            </li>
        }
    };
    move || {
        (!is_empty.get()).then(|| {
            view! {
                <section class="card" aria-label="Waves">
                    <header>
                        <h2>"Waves"</h2>
                        <span class="muted grow">
                            {move || waves.read().len()} ", in the order in which they run"
                        </span>
                    </header>
                    <ol class="rollout-waves" tabindex="0" aria-label="Steps of each wave">
                        {rows(waves.into(), |(number, _)| *number, line)}
                    </ol>
                    {move || more.get().then(|| view! {
                        <p class="padded muted">"More waves are not shown."</p>
                    })}
                </section>
            }
        })
    }
}

/// `12 of 40, 1 running, 2 failed`.
fn wave_text(counts: &StateCounts) -> String {
    let all = counts.blocked + counts.todo + counts.transition + counts.active + counts.error;
    let mut text = format!("{} of {}", grouped(counts.active), grouped(all));
    if counts.transition > 0 {
        text += &format!(", {} running", grouped(counts.transition));
    }
    if counts.error > 0 {
        text += &format!(", {} failed", grouped(counts.error));
    }
    text
}

/// The failed steps, and the form that retries them. The outcome of the last retry stays visible
/// when no failed step is left.
#[component]
fn Failed(feed: Feed<BlueprintProgress>) -> impl IntoView {
    let progress = feed.value();
    let retry = ServerAction::<RetryFailedSteps>::new();
    on_success(retry, move |_| feed.now());
    let outcome = move || retry.value().get().and_then(Result::ok).map(|outcome| outcome.text());
    let failed = Memo::new(move |_| progress.read().failed.clone());
    let count = Memo::new(move |_| progress.read().rollout.steps.error);
    let has_failed = Memo::new(move |_| count.get() > 0);
    let left_out = move || {
        let left_out = count.get() - i64::try_from(failed.read().len()).unwrap_or(i64::MAX);
        (left_out > 0).then(|| {
            let text =
                format!("{} not shown: retry these first.", many(left_out, "more failed step"));
            view! { <p class="padded muted">{text}</p> }
        })
    };
    view! {
        <div class="visually-hidden" role="status">{outcome}</div>
        {move || outcome().filter(|_| !has_failed.get()).map(|text| view! {
            <div class="notice" data-state="active">
                {icon(Icon::Check)} <div><p>{text}</p></div>
            </div>
        })}
        {move || has_failed.get().then(|| view! {
            <section class="card" aria-label="Failed steps">
                <header>
                    <h2>"Failed steps"</h2>
                    <span class="pill" data-state="error">
                        {icon(Icon::Error)} {move || grouped(count.get())}
                    </span>
                </header>
                <ul class="failed-steps">
                    {rows(failed.into(), |step| (step.noderole, step.action.clone()), failed_line)}
                </ul>
                {left_out}
                <RetryForm retry progress/>
                {move || outcome().map(|text| view! { <p class="padded">{text}</p> })}
            </section>
        })}
    }
    .into_any()
}

fn failed_line(step: Memo<FailedStep>) -> impl IntoView {
    move || {
        let step = step.get();
        let error = step.error.unwrap_or_else(|| "No error message.".into());
        view! {
            <li>
                <div>
                    <a class="main" href=addresses::noderole(step.noderole)>
                        {format!("{} on {}", step.role, step.fqdn)}
                    </a>
                    {action_pill(&step.action)}
                    " "
                    <span class="muted">
                        "in " {step.deployment.to_string()} ", for "
                        <Elapsed from=step.since to=None/>
                    </span>
                    {step.destructive.then(|| view! {
                        " "
                        <span class="pill" data-state="warn">{icon(Icon::Warn)} "destructive"</span>
                    })}
                </div>
                <code>{error}</code>
            </li>
        }
    }
}

#[component]
fn RetryForm(
    retry: ServerAction<RetryFailedSteps>,
    progress: RwSignal<BlueprintProgress>,
) -> impl IntoView {
    let number = progress.read_untracked().rollout.blueprint.number;
    let reason = Refused::of(retry).typed("reason");
    let refusal = Memo::new(move |_| progress.read().may_retry.reason().map(str::to_owned));
    let destructive = Memo::new(move |_| progress.read().failed_destructive);
    let off = move || refusal.read().is_some() || retry.pending().get();
    let hint = move || {
        refusal.get().unwrap_or_else(|| {
            "A retry uses the same blueprint and needs no review. At most 200 steps at a time."
                .into()
        })
    };
    let confirmation = move || {
        let count = destructive.get();
        (count > 0).then(|| {
            let text = format!("Also retry {}", many(count, "destructive step"));
            let rest = either(count, "It destroys data", "They destroy data");
            view! {
                <label class="choice">
                    <input type="checkbox" name="destructive" value="true" disabled=off/>
                    <span>
                        <b>{text}</b> " " <small>{rest} " again. Without this option, they are not retried."</small>
                    </span>
                </label>
            }
        })
    };
    view! {
        <ActionForm action=retry attr:class="form padded retry">
            <input type="hidden" name="blueprint" value=number.to_string()/>
            <div class="field">
                <label for="retry-failed-reason">"Reason for the retry"</label>
                <input
                    class="input"
                    id="retry-failed-reason"
                    name="reason" required
                    maxlength=MAX_REASON
                    autocomplete="off"
                    placeholder="Why the steps should succeed now"
                    value=reason
                    disabled=move || refusal.read().is_some()
                />
                <span class="hint">{hint}</span>
            </div>
            {confirmation}
            <ProblemNotice problem=problem_of(retry)/>
            <EquivalentCommands of=move |typed: FormValues| {
                vec![
                    api::calls::retry_failed(
                        number,
                        &typed.or("reason", "WHY"),
                        typed.is_checked("destructive")
                    )
                ]
            }/>
            <div class="buttons">
                <button class="button" type="submit" disabled=off>
                    {icon(Icon::Rerun)} "Retry failed"
                </button>
            </div>
        </ActionForm>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wave_text_names_running_and_failed_steps() {
        let counts = StateCounts { active: 1_200, todo: 3, ..StateCounts::default() };
        assert_eq!(wave_text(&counts), "1,200 of 1,203");
        let counts = StateCounts { active: 1, transition: 2, error: 3, ..StateCounts::default() };
        assert_eq!(wave_text(&counts), "1 of 6, 2 running, 3 failed");
    }
}
