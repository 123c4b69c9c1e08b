//! A run: its live log, its input and its result.

mod log;
mod log_search;
mod log_text;
pub mod server_functions;

use api::live::Topic;
use api::runs::{LogPart, RunState, RunSummary, RunView};
use engine::ids::RunId;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;

use crate::addresses;
use crate::clock::{Elapsed, TimeText};
use crate::components::action::{on_success, problem_of};
use crate::components::badge::action_pill;
use crate::components::json::DataView;
use crate::components::provenance::ProvenanceTable;
use crate::components::rows::counted;
use crate::components::{
    Dialog, DialogHandle, EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, Refused,
    RunPill, icon, load_one,
};
use crate::failure::{Failure, ServerResult};
use crate::live::{Event, use_live};
use crate::pages::nodes::node::has_page;
use log::{Log, LogView};
use server_functions::Cancel;

/// The number of bytes from the end of the log that the page loads with.
const TAIL_BYTES: i64 = 64 * 1024;

#[component]
pub fn RunPage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let run = Resource::new(move || id.get(), by_text);
    load_one(run, (addresses::RUNS, "All runs"), |(first, part)| view! { <Loaded first part/> })
}

async fn by_text(id: String) -> ServerResult<(RunView, LogPart)> {
    let id = id.parse::<RunId>().map_err(|_| missing())?;
    let run = server_functions::run(id).await?;
    let part = server_functions::log(id, -TAIL_BYTES).await?;
    Ok((run, part))
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found(
        "Run not found: the address must end with a run number, such as 12. Open the list of runs.",
    )
    .into()
}

fn is_open(state: RunState) -> bool {
    matches!(state, RunState::Queued | RunState::Running)
}

#[component]
fn Loaded(first: RunView, part: LogPart) -> impl IntoView {
    let (id, noderole, cursor) = (first.run.id, first.run.noderole, first.cursor);
    let title = format!("Run {id}: {} on {}", first.run.role, first.run.fqdn);
    let log = Log::new(id, &part);
    let feed = Feed::new(first, move || server_functions::run(id));
    let run = feed.value();
    let on_events = move |events: &[Event]| {
        for event in events {
            match event {
                Event::Run { run: which, state, log_bytes, .. } if *which == id => {
                    log.on_event(*log_bytes, *state);
                    if run.with_untracked(|run| run.run.state != *state) {
                        feed.soon();
                    }
                }
                // A newer run of the step.
                Event::Run { run: which, noderole: of, .. } if *of == noderole && *which > id => {
                    feed.soon();
                }
                Event::Reset => {
                    log.pull();
                    feed.now();
                }
                _ => {}
            }
        }
    };
    use_live().subscribe(vec![Topic::Run(id), Topic::Runs], cursor, on_events);
    let open = Memo::new(move |_| is_open(run.read().run.state));
    view! {
        <Title text=title/>
        <Head feed open/>
        <ReplacedBy run/>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <EquivalentCommands of=move |_: FormValues| vec![api::calls::run_log(id)]/>
        {move || run.read().run.error.clone().map(|error| view! {
            <pre class="error" tabindex="0" aria-label="Error">{error}</pre>
        })}
        <div class="columns run">
            <div class="stack">
                <LogView log is_open=open/>
                <Documents run/>
            </div>
            <div class="stack">
                <About run/>
                <Attempts run/>
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn Head(feed: Feed<RunView>, open: Memo<bool>) -> impl IntoView {
    let run = feed.value();
    let dialog = DialogHandle::new();
    let cancel = ServerAction::<Cancel>::new();
    let refused = Refused::of(cancel).is_here();
    on_success(cancel, move |()| {
        dialog.close();
        feed.now();
    });
    let reason = Memo::new(move |_| run.read().may_cancel.reason().map(str::to_owned));
    let id = run.read_untracked().run.id.to_string();
    let button = move || {
        open.get().then(|| {
            view! {
                <button
                    class="button danger"
                    type="button"
                    commandfor="cancel-run"
                    command="show-modal"
                    disabled=move || reason.read().is_some()
                    title=move || reason.get()
                    on:click=dialog.on_click()
                >
                    {icon(Icon::Canceled)}
                    "Cancel run"
                </button>
            }
        })
    };
    view! {
        <div class="head">
            <div>
                <div class="muted">
                    "Run " {id.clone()} " · blueprint " {move || run.read().run.blueprint.0}
                </div>
                <h1>
                    <span>
                        <a href=move || addresses::noderole(run.read().run.noderole)>
                            {move || run.read().run.role.to_string()}
                        </a>
                        {move || action_pill(&run.read().run.action)}
                        " on " {move || run.read().run.fqdn.clone()}
                    </span>
                    {move || view! { <RunPill state=run.read().run.state/> }}
                </h1>
            </div>
            <div class="buttons">{button}</div>
        </div>
        <Dialog id="cancel-run" title="Cancel this run?".to_owned() handle=dialog refused=refused>
            <ActionForm action=cancel attr:class="form">
                <input type="hidden" name="run" value=id/>
                <div class="body">
                    <p>
                        "The worker stops everything that the run started on the node. The step \
                         becomes ERROR, and you can retry it. Changes on the node remain."
                    </p>
                    <ProblemNotice problem=problem_of(cancel)/>
                    <EquivalentCommands
                        of=move |_: FormValues| vec![api::calls::cancel_run(run.read().run.id)]
                    />
                </div>
                <div class="foot">
                    <button
                        class="button"
                        type="button"
                        commandfor="cancel-run"
                        command="close"
                        on:click=dialog.on_click_close()
                    >
                        "Keep it running"
                    </button>
                    <button
                        class="button danger"
                        type="submit"
                        disabled=move || cancel.pending().get()
                    >
                        "Cancel run"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}

/// The newest run of the step, if it is not this one.
#[component]
fn ReplacedBy(run: RwSignal<RunView>) -> impl IntoView {
    let newest = Memo::new(move |_| {
        let run = run.read();
        let newest = run.attempts.iter().max_by_key(|attempt| attempt.id)?;
        (newest.id > run.run.id).then_some((newest.id, newest.state))
    });
    let notice = move || {
        newest.get().map(|(id, state)| {
            view! {
                <div class="notice" data-state="todo">
                    {icon(Icon::Rerun)}
                    <p>
                        <a class="to-newest" href=addresses::run(id)>"Run " {id.0}</a>
                        " replaced this run. " <RunPill state/>
                    </p>
                </div>
            }
        })
    };
    // The region exists before the notice, so that screen readers announce it.
    view! { <div role="status">{notice}</div> }.into_any()
}

#[component]
fn About(run: RwSignal<RunView>) -> impl IntoView {
    let facts = move || {
        let view = run.read();
        let run = &view.run;
        let line = |name: &'static str, value: AnyView| {
            view! { <dt>{name}</dt> <dd>{value}</dd> }.into_any()
        };
        let mut facts = vec![
            line(
                "Deployment",
                view! {
                    <a href=addresses::deployment(&run.deployment)>{run.deployment.to_string()}</a>
                }
                .into_any(),
            ),
            line("Queued", view! { <TimeText at=run.queued/> }.into_any()),
        ];
        if let Some(started) = run.started {
            facts.push(line(
                "Wait time",
                view! { <Elapsed from=run.queued to=Some(started)/> }.into_any(),
            ));
            facts.push(line("Duration", view! { <Elapsed from=started to=run.ended/> }.into_any()));
        }
        facts.extend(
            run.worker
                .clone()
                .map(|worker| line("Worker", view! { <code>{worker}</code> }.into_any())),
        );
        facts.extend(run.cause.clone().map(|cause| line("Cause", cause.into_any())));
        let rests_on = view
            .review
            .map(|id| view! { <a href=addresses::review(id)>"review " {id.0}</a> }.into_any());
        facts.extend(
            view.limits
                .iter()
                .map(|limit| {
                    view! { <dt>{limit.name.clone()}</dt> <dd>{limit.value.clone()}</dd> }
                })
                .map(IntoAny::into_any),
        );
        facts.push(line("Origin", rests_on.unwrap_or_else(|| "genesis".into_any())));
        facts.collect_view()
    };
    view! {
        <section class="card" aria-label="About this run">
            <header><h2>"About"</h2></header>
            <dl class="facts padded">{facts}</dl>
        </section>
    }
    .into_any()
}

const RESULT_EXPIRED: &str = "The result is no longer stored. Gantry stores the newest ten results \
    of each step until its node is gone.";

/// The input, the result and the difference.
#[component]
fn Documents(run: RwSignal<RunView>) -> impl IntoView {
    let provenance = Memo::new(move |_| run.read().provenance.clone());
    let input = Memo::new(move |_| run.read().input.clone());
    let id = run.read_untracked().run.id;
    let output = Memo::new(move |_| run.read().output.clone());
    let result = Memo::new(move |_| run.read().result.clone());
    let or_none = |value: Option<serde_json::Value>, none: &'static str| match value {
        Some(value) => view! { <DataView value/> }.into_any(),
        None => view! { <p class="muted">{none}</p> }.into_any(),
    };
    view! {
        <section class="card" aria-label="Data">
            <details class="fold" open>
                <summary>
                    {icon(Icon::Right)} "Output"
                    <span class="muted">"values that the run added to its input"</span>
                </summary>
                <div class="padded">
                    {move || or_none(output.get(), "No output: only a successful run has one.")}
                </div>
            </details>
            <details class="fold">
                <summary>
                    {icon(Icon::Right)} "Result"
                    <span class="muted">"values that the run returned, even if it failed"</span>
                </summary>
                <div class="padded">
                    {
                        move || or_none(
                            result.get(),
                            if run.read().result_expired { RESULT_EXPIRED } else {
                                "The run returned no result."
                            }
                        )
                    }
                </div>
            </details>
            <details class="fold">
                <summary>
                    {icon(Icon::Right)} "Input"
                    <span class="muted">"values with their sources"</span>
                </summary>
                {move || view! {
                    <ProvenanceTable
                        values=provenance.get()
                        all=run.read().values
                        place=addresses::run_values(id)
                    />
                }}
            </details>
            <details class="fold">
                <summary>{icon(Icon::Right)} "Input as JSON"</summary>
                <div class="padded">{move || view! { <DataView value=input.get()/> }}</div>
            </details>
        </section>
    }
    .into_any()
}

#[component]
fn Attempts(run: RwSignal<RunView>) -> impl IntoView {
    let attempts = Memo::new(move |_| run.read().attempts.clone());
    let id = run.read_untracked().run.id;
    let line = move |attempt: RunSummary| {
        let from = attempt.started.unwrap_or(attempt.queued);
        view! {
            <li>
                <a
                    href=addresses::run(attempt.id)
                    aria-current=(attempt.id == id).then_some("page")
                >
                    <RunPill state=attempt.state/>
                    <span>"run " {attempt.id.0}</span>
                    <span class="muted"><Elapsed from to=attempt.ended/></span>
                </a>
            </li>
        }
    };
    let all = run.with_untracked(|run| {
        let RunSummary { deployment, fqdn, role, .. } = &run.run;
        addresses::runs_of(deployment, Some(fqdn.as_str()).filter(|fqdn| has_page(fqdn)), role)
    });
    view! {
        <section class="card" aria-label="Runs of this step">
            <header>
                <h2>"Runs of this step"</h2>
                <span class="muted grow">{move || counted(attempts.read().len())}</span>
                <a href=all>"All runs"</a>
            </header>
            <ul class="link-list">{move || attempts.get().into_iter().map(line).collect_view()}</ul>
        </section>
    }
    .into_any()
}
