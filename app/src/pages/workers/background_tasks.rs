//! The background tasks of servers and workers, below the list of workers.

use api::At;
#[cfg(feature = "ssr")]
use api::background_tasks::BackgroundTasksQuery;
use api::background_tasks::{BackgroundTaskView, BackgroundTasks, ProcessKind};
use engine::counting::{duration, many, period};
use leptos::prelude::*;

use super::pill;
use crate::addresses;
use crate::clock::{TimeText, exact, use_clock};
use crate::codec::AsJson;
use crate::components::poll_while_visible::poll_while_visible;
use crate::components::{EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, load, rows};
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The section of the page.
#[component]
pub(super) fn Section() -> impl IntoView {
    let tasks = Resource::new(|| (), |()| background_tasks());
    view! {
        <section class="card" aria-label="Background tasks">
            <header><h2>"Background tasks"</h2></header>
            {load(tasks, |first| view! { <List first/> })}
        </section>
    }
    .into_any()
}

#[component]
fn List(first: BackgroundTasks) -> impl IntoView {
    let feed = Feed::new(first, background_tasks);
    poll_while_visible(feed);
    let list = feed.value();
    let tasks = Signal::derive(move || list.read().background_tasks.clone());
    let none = move || {
        let is_empty = tasks.read().is_empty();
        is_empty.then(|| view! {
            <p class="padded muted">
                "No background tasks yet. A server or worker lists its tasks a few seconds after \
                 it starts."
            </p>
        })
    };
    let more = move || {
        let more = list.read().more;
        more.then(|| {
            view! {
                <p class="padded muted">"More tasks exist. Failing tasks are listed first."</p>
            }
        })
    };
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        {none}
        <table class="table responsive" hidden=move || tasks.read().is_empty()>
            <thead>
                <tr>
                    <th scope="col">"Task"</th>
                    <th scope="col">"Process"</th>
                    <th scope="col">"Every"</th>
                    <th scope="col">"Last run"</th>
                    <th scope="col">"Duration"</th>
                    <th scope="col">"Result"</th>
                    <th scope="col">"Next run"</th>
                </tr>
            </thead>
            <tbody>{rows(tasks, |task| (task.process.id, task.name.clone()), row)}</tbody>
        </table>
        {more}
        <div class="padded">
            <EquivalentCommands of=move |_: FormValues| vec![api::background_tasks::list_call()]/>
        </div>
    }
    .into_any()
}

fn row(task: Memo<BackgroundTaskView>) -> impl IntoView {
    let (name, purpose, process, every) = {
        let task = task.read_untracked();
        (task.name.clone(), task.purpose.clone(), task.process.clone(), period(task.period_ms))
    };
    let process = match process.kind {
        ProcessKind::Worker => {
            view! { <a href=addresses::worker(process.id)>{process.name}</a> }.into_any()
        }
        ProcessKind::Server => view! { <span>{process.name}</span> }.into_any(),
    };
    view! {
        <tr>
            <td>
                <div>
                    <b>{name}</b>
                    <div class="muted">{purpose}</div>
                </div>
            </td>
            <td data-label="Process"><span class="nowrap">{process}</span></td>
            <td data-label="Every"><span class="nowrap">{every}</span></td>
            <td data-label="Last run" class="muted">
                {move || task.read().started.map(|at| view! { <TimeText at/> })}
            </td>
            <td data-label="Duration">
                <span class="nowrap">{move || task.read().duration_ms.map(duration)}</span>
            </td>
            <td data-label="Result">{move || result(&task.read())}</td>
            <td data-label="Next run" class="muted">
                {move || task.read().next.map(|at| view! { <Due at/> })}
            </td>
        </tr>
    }
    .into_any()
}

/// The result of the last run, or that a run is in progress. A failure stays visible during the
/// next run.
fn result(task: &BackgroundTaskView) -> impl IntoView + use<> {
    let failed = task.error.clone().map(|error| {
        let times = match task.failures {
            0 | 1 => "failed".to_owned(),
            failures => format!("failed {}", many(failures, "time")),
        };
        view! {
            <span class="pill" data-state="error">
                {crate::components::icon(Icon::Error)} {times}
            </span>
            <span class="reason">{error}</span>
        }
    });
    let running = task.running.then(|| pill(("transition", Icon::Transition, "running")));
    let outcome = task.outcome.clone().filter(|_| !task.running);
    view! { <div>{running} {failed} {outcome}</div> }.into_any()
}

/// A time in the near future: `in 12 s`.
#[component]
fn Due(at: At) -> impl IntoView {
    let clock = use_clock();
    let text = Memo::new(move |_| until(clock.now(), at));
    view! { <time title=exact(at)>{text}</time> }.into_any()
}

fn until(now: At, at: At) -> String {
    match (at.0 - now.0) / 1000 {
        ..=0 => "now".to_owned(),
        seconds @ 1..60 => format!("in {seconds} s"),
        seconds @ 60..3600 => format!("in {} min", seconds / 60),
        seconds => format!("in {} h", seconds / 3600),
    }
}

#[server(
    name = ReadBackgroundTasks,
    prefix = "/call",
    endpoint = "background-tasks",
    input = AsJson,
    output = AsJson
)]
pub async fn background_tasks() -> ServerResult<BackgroundTasks> {
    let (request, actor) = signed_in()?;
    answer(request.control.background_tasks(&actor, &BackgroundTasksQuery::default()).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_run_is_relative() {
        let texts =
            [-5, 0, 1, 59, 60, 7200].map(|s| until(At(1_000_000), At(1_000_000 + s * 1000)));
        assert_eq!(texts, ["now", "now", "in 1 s", "in 59 s", "in 1 min", "in 2 h"]);
    }
}
