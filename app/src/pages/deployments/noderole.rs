//! A noderole, on its own page and in the panel next to a board.

use api::deployments::{
    CheckState, DataLayer, EditableDraft, NoderoleCheck, NoderoleRef, NoderoleView,
};
use api::listing::PAGE_SIZE;
use api::live::Topic;
use api::runs::{RunSummary, StepState};
use engine::catalog::OnFailure;
use engine::cluster::NoderoleKey;
use engine::counting::many;
use engine::ids::NoderoleId;
use engine::plan::{Edit, MAX_REASON, edit};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::use_params_map;
use wasm_bindgen::JsCast;

use crate::addresses;
use crate::clock::{Elapsed, TimeText};
use crate::codec::AsJson;
use crate::components::action::{act, on_success, problem_of};
use crate::components::draft::Draft;
use crate::components::json::{DataEditor, DataView};
use crate::components::provenance::ProvenanceTable;
use crate::components::rows::counted;
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, Refused, RunPill, StatePill, icon,
    load, mark,
};
use crate::failure::{Failure, ServerResult};
use crate::live::{Event, NOW, use_live};
use crate::pages::nodes::node::has_page;
use crate::pages::proposals;
use crate::pages::proposals::{
    Alone, EditContext, EditForm, LabelStyle, Outcome, Put, SubmitButton, author_notice,
};
use crate::piece;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};
use crate::validation::Purpose;

#[component]
pub fn NoderolePage() -> impl IntoView {
    let params = use_params_map();
    let id = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let noderole = Resource::new(move || id.get(), by_text);
    let show = |first: NoderoleView| {
        let title = format!("{} on {}", first.role, first.fqdn);
        view! {
            <Title text=title.clone()/>
            <div class="head">
                <div>
                    <div class="muted">
                        <a href=addresses::deployment(&first.deployment)>
                            {first.deployment.to_string()}
                        </a>
                    </div>
                    <h1>{title}</h1>
                </div>
            </div>
            <Details first edited=Callback::new(|()| {})/>
        }
    };
    // Noderoles have no list page. They are shown on boards.
    load(noderole, show)
}

async fn by_text(id: String) -> ServerResult<NoderoleView> {
    let id = id.parse::<NoderoleId>().map_err(|_| missing())?;
    noderole(id).await
}

fn missing() -> Failure {
    #[cfg(feature = "ssr")]
    crate::respond::status(404);
    api::Problem::not_found(
        "Noderole not found: the id in the address is not valid. Open the noderole from its board.",
    )
    .into()
}

piece::pieces! {
    noderole_panel(first: NoderoleView, edited: Callback<()>) details(first, edited);
}

/// The details of a noderole, for the panel next to a board.
fn details(first: NoderoleView, edited: Callback<()>) -> impl IntoView {
    view! { <Details first edited/> }
}

#[component]
fn Details(
    /// The initially loaded noderole.
    first: NoderoleView,
    /// Called when an edit of the noderole was added to the proposal.
    edited: Callback<()>,
) -> impl IntoView {
    let (id, deployment) = (first.id, first.deployment_id);
    let feed = Feed::new(first, move || noderole(id));
    let noderole = feed.value();
    let on_events = move |events: &[Event]| {
        if events.iter().any(|event| noderole.with_untracked(|noderole| concerns(event, noderole)))
        {
            feed.soon();
        }
    };
    use_live().subscribe(vec![Topic::Deployment(deployment), Topic::Blueprints], NOW, on_events);

    let below = noderole
        .with_untracked(|noderole| addresses::dependents_graph(&noderole.deployment, noderole.id));
    view! {
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <div class="columns">
            <div class="stack">
                <State feed/>
                <CheckOfRole noderole/>
                <Data feed edited/>
            </div>
            <div class="stack">
                <Attempts noderole/>
                <Around
                    title="Dependencies"
                    none="No dependencies."
                    list=Memo::new(move |_| noderole.read().parents.clone())
                />
                <Around
                    title="Dependents"
                    none="No dependents."
                    list=Memo::new(move |_| noderole.read().children.clone())
                    all=below
                />
            </div>
        </div>
    }
    .into_any()
}

/// Whether an event can change the displayed noderole.
fn concerns(event: &Event, shown: &NoderoleView) -> bool {
    match event {
        Event::Step { noderole, .. } => {
            *noderole == shown.id
                || shown.parents.iter().chain(&shown.children).any(|near| near.id == *noderole)
        }
        Event::Run { noderole, state, .. } => {
            *noderole == shown.id && shown.runs.first().is_none_or(|newest| newest.state != *state)
        }
        Event::Proposal { .. }
        | Event::Blueprint { .. }
        | Event::Hold { .. }
        | Event::Worker { .. }
        | Event::Reset => true,
        Event::Node { fqdn } => *fqdn == shown.fqdn,
        Event::Review { .. } | Event::Priority { .. } | Event::Catalog => false,
    }
}

#[component]
fn State(feed: Feed<NoderoleView>) -> impl IntoView {
    let noderole = feed.value();
    let state = Signal::derive(move || noderole.read().state);
    let reasons = move || {
        let reasons = noderole.read().reasons.clone();
        reasons
            .into_iter()
            .map(|reason| view! { <li>{icon(Icon::Right)} <span>{reason}</span></li> })
            .collect_view()
    };
    let error = move || {
        noderole
            .read()
            .error
            .clone()
            .map(|error| view! { <pre class="error" tabindex="0">{error}</pre> })
    };
    let applied = move || match noderole.read().applied {
        None => "nothing yet".to_owned(),
        Some(applied) if applied == noderole.read().generation => {
            format!("blueprint {applied}, up to date")
        }
        Some(applied) => format!("blueprint {applied}"),
    };
    view! {
        <section class="card" aria-label="State">
            <header>
                <StatePill state/>
                <span class="muted">
                    "for " {move || view! { <Elapsed from=noderole.read().since to=None/> }}
                </span>
                {move || (noderole.read().state != StepState::Active).then(|| view! {
                    <a href=addresses::pending_on(&noderole.read().fqdn)>
                        "Pending steps on this node"
                    </a>
                })}
            </header>
            <div class="padded">
                {error}
                <ul class="reason-list" aria-label="Reasons">{reasons}</ul>
                <RetryForm feed/>
                <dl class="facts">
                    <dt>"Desired"</dt>
                    <dd>"blueprint " {move || noderole.read().generation.0}</dd>
                    <dt>"Applied"</dt>
                    <dd>{applied}</dd>
                    <dt>"Node"</dt>
                    <dd>
                        {move || node_of(&noderole.read().fqdn)}
                        <Alone
                            node=Signal::derive(move || noderole.read().node)
                            name=Signal::derive(move || noderole.read().fqdn.clone())
                            shows=LabelStyle::WithoutName
                            reason=Signal::derive(
                                move || noderole.read().may_propose.reason().map(str::to_owned)
                            )
                        />
                    </dd>
                    <dt>"Deployment"</dt>
                    <dd>{move || {
                        let name = noderole.read().deployment.clone();
                        view! { <a href=addresses::deployment(&name)>{name.to_string()}</a> }
                    }}</dd>
                    {move || {
                        let limits = noderole.read().limits.clone();
                        limits.into_iter().map(|limit| view! {
                            <dt>{limit.name}</dt> <dd>{limit.value}</dd>
                        }).collect_view()
                    }}
                    <dt>"Role"</dt>
                    <dd>
                        {move || noderole.read().description.clone()} " "
                        <code class="muted" title="Hash of the role's content">
                            {move || noderole.read().role_hash.clone()}
                        </code>
                    </dd>
                </dl>
            </div>
        </section>
    }
    .into_any()
}

/// The check of the role, if there is one, with its last result.
#[component]
fn CheckOfRole(noderole: RwSignal<NoderoleView>) -> impl IntoView {
    let check = Memo::new(move |_| noderole.read().check.clone());
    let show =
        |check: NoderoleCheck| {
            let (color, shape, word) = match check.state {
                CheckState::Passing if check.passes => ("active", Icon::Active, "passes"),
                CheckState::Passing => ("warn", Icon::Warn, "overdue"),
                CheckState::Failing => ("error", Icon::Error, "fails"),
                CheckState::Unknown => ("todo", Icon::Todo, "not run yet"),
            };
            let effect = match check.policy.on_failure {
                OnFailure::Rerun => "the step runs again, once",
                OnFailure::Report => "the step is in error until it passes",
            };
            let failures = many(check.policy.failures, "failure");
            let last = check.checked.map(|at| view! {
            <dt>"Last run"</dt> <dd><TimeText at/> {format!(", {} ms", check.duration_ms)}</dd>
        });
            let output = (!check.detail.is_empty()).then(|| {
                view! {
                    <pre class="error" tabindex="0" aria-label="Output of the check">
                        {check.detail}
                    </pre>
                }
            });
            view! {
                <section class="card" aria-label="Check">
                    <header>
                        <h2>"Check"</h2>
                        <span class="pill" data-state=color>{icon(shape)} {word}</span>
                    </header>
                    <div class="padded">
                        {output}
                        <dl class="facts">
                            <dt>"Script"</dt>
                            <dd><code>{check.script}</code></dd>
                            {last}
                            <dt>"Failures in a row"</dt>
                            <dd>{check.failures}</dd>
                            <dt>"Interval"</dt>
                            <dd>
                                {
                                    format!(
                                        "{} s, at most {} s each",
                                        check.policy.interval,
                                        check.policy.timeout
                                    )
                                }
                            </dd>
                            <dt>"After " {failures}</dt>
                            <dd>{effect}</dd>
                        </dl>
                    </div>
                </section>
            }
            .into_any()
        };
    move || check.get().map(show)
}

/// A link to a node. A phantom node has no page.
fn node_of(fqdn: &str) -> AnyView {
    match has_page(fqdn) {
        true => view! { <a href=addresses::node(fqdn)>{fqdn.to_owned()}</a> }.into_any(),
        false => fqdn.to_owned().into_any(),
    }
}

/// A retry form, if the step failed.
#[component]
fn RetryForm(feed: Feed<NoderoleView>) -> impl IntoView {
    let noderole = feed.value();
    let retry = ServerAction::<Retry>::new();
    let reason = Refused::of(retry).typed("reason");
    on_success(retry, move |()| feed.now());
    let failed = Memo::new(move |_| noderole.read().state == StepState::Error);
    let refusal = Memo::new(move |_| noderole.read().may_retry.reason().map(str::to_owned));
    let id = noderole.read_untracked().id.to_string();
    move || {
        failed.get().then(|| {
            let (id, reason) = (id.clone(), reason.clone());
            view! {
                <ActionForm action=retry attr:class="form retry">
                    <input type="hidden" name="noderole" value=id/>
                    <div class="field">
                        <label for="retry-reason">"Reason for the retry"</label>
                        <input
                            class="input"
                            id="retry-reason"
                            name="reason" required
                            maxlength=MAX_REASON
                            autocomplete="off"
                            placeholder="Why the step should succeed now"
                            value=reason
                            disabled=move || refusal.read().is_some()
                        />
                        <span class="hint">
                            {move || refusal.get().unwrap_or_else(|| "A retry uses the same \
                                blueprint and needs no review. To change the data, use a \
                                proposal.".into())}
                        </span>
                    </div>
                    <ProblemNotice problem=problem_of(retry)/>
                    <EquivalentCommands
                        of=move |typed: FormValues| vec![
                            api::calls::retry(noderole.read().id, &typed.or("reason", "WHY"))
                        ]
                    />
                    <div class="buttons">
                        <button
                            class="button"
                            type="submit"
                            disabled=move || refusal.read().is_some() || retry.pending().get()
                        >
                            {icon(Icon::Rerun)} "Retry"
                        </button>
                    </div>
                </ActionForm>
            }
        })
    }
}

#[component]
fn Data(feed: Feed<NoderoleView>, edited: Callback<()>) -> impl IntoView {
    let noderole = feed.value();
    let provenance = Memo::new(move |_| noderole.read().provenance.clone());
    let layers = Memo::new(move |_| noderole.read().layers.clone());
    let id = noderole.read_untracked().id;
    let output = Memo::new(move |_| noderole.read().output.clone());
    let layer =
        |layer: DataLayer| view! { <h3>{layer.source.label()}</h3> <DataView value=layer.value/> };
    view! {
        <section class="card" aria-label="Data">
            <details class="fold" open>
                <summary>
                    {icon(Icon::Right)} "Data" <span class="muted">"all sources merged"</span>
                </summary>
                {move || view! {
                    <ProvenanceTable
                        values=provenance.get()
                        all=noderole.read().values
                        place=addresses::noderole_values(id)
                    />
                }}
            </details>
            <details class="fold">
                <summary>{icon(Icon::Right)} "Data by source"</summary>
                <div class="padded">
                    {move || layers.get().into_iter().map(layer).collect_view()}
                </div>
            </details>
            <details class="fold">
                <summary>
                    {icon(Icon::Right)} "Output"
                    <span class="muted">"values that the last successful run added"</span>
                </summary>
                <div class="padded">{move || view! { <DataView value=output.get()/> }}</div>
            </details>
            <EditOwnData feed edited/>
        </section>
    }
    .into_any()
}

/// Edits the user data of this noderole in the open proposal.
#[component]
fn EditOwnData(feed: Feed<NoderoleView>, edited: Callback<()>) -> impl IntoView {
    let noderole = feed.value();
    let may = Memo::new(move |_| match &noderole.read().may_edit {
        EditableDraft::Yes(draft) => Ok(draft.proposal),
        EditableDraft::No { reason } => Err(reason.clone()),
    });
    move || match may.get() {
        Err(reason) => view! {
            <details class="fold">
                <summary>{icon(Icon::Right)} "Edit"</summary>
                <p class="padded muted">{reason}</p>
            </details>
        }
        .into_any(),
        Ok(_) => view! { <Editor feed edited/> }.into_any(),
    }
}

#[component]
fn Editor(feed: Feed<NoderoleView>, edited: Callback<()>) -> impl IntoView {
    let noderole = feed.value();
    let now = noderole.get_untracked();
    let own = now.may_edit.draft().map(|draft| draft.data.clone()).unwrap_or_default();
    let below = now.may_edit.draft().map(|draft| draft.defaults.clone()).unwrap_or_default();
    let draft = Draft::new(&own, Purpose { attribs: now.attribs.clone(), below, is_last: true });
    draft.follow(Signal::derive(move || {
        let noderole = noderole.read();
        noderole.may_edit.draft().map(|draft| (draft.data.clone(), draft.data_by.clone()))
    }));
    let (reason, along) = (RwSignal::new(String::new()), RwSignal::new(false));
    let is_again =
        Memo::new(move |_| noderole.read().may_edit.draft().is_some_and(|draft| draft.rerun));
    // No previews while the section is collapsed.
    let is_open = RwSignal::new(false);
    let (pen, text) = edit_context(feed, edited);
    let (node, key) = (now.node, NoderoleKey::first(now.role.clone()));
    let name = format!("{} on {}", now.role, now.fqdn.split('.').next().unwrap_or(&now.fqdn));
    let (of_data, of_again, of_unbind) = (key.clone(), key.clone(), key);
    let data = EditForm::new(pen, move || {
        let set = |data| {
            Edit::SetNoderoleData(edit::SetNoderoleData { node, noderole: of_data.clone(), data })
        };
        draft.changed().map(set).into_iter().collect()
    });
    let again = EditForm::new(pen, move || {
        let reason = reason.get().trim().to_owned();
        let edit =
            Edit::Rerun(edit::Rerun { node, noderole: of_again.clone(), reason: reason.clone() });
        if reason.is_empty() || is_again.get() { Vec::new() } else { vec![edit] }
    });
    let unbind = EditForm::new(pen, move || {
        let edit = Edit::Unbind(edit::Unbind {
            node,
            noderole: of_unbind.clone(),
            with_dependents: along.get(),
        });
        if is_open.get() { vec![edit] } else { Vec::new() }
    });
    let done = StoredValue::new(name);
    let put = move |request: EditForm, message: fn(&str) -> String, taken: Callback<()>| {
        move |event: leptos::ev::SubmitEvent| {
            event.prevent_default();
            request.put(done.with_value(|name| message(name)), taken);
        }
    };
    let (nothing, clear) =
        (Callback::new(|()| ()), Callback::new(move |()| reason.set(String::new())));
    view! {
        <p class="no-scripts padded muted">
            "Without JavaScript, edit the data over the API: "
            <code>"POST /api/v1/proposals/NUMBER/edits"</code>
        </p>
        <details class="fold needs-scripts" on:toggle=move |event| is_open.set(is_shown(&event))>
            <summary>
                {icon(Icon::Right)} "Edit in the proposal"
                {move || is_again.get().then(|| view! {
                    <span class="pill" data-state="proposed">"runs again"</span>
                })}
            </summary>
            {
                move || noderole.read().may_edit
                    .draft()
                    .is_some_and(|draft| draft.makes_author)
                    .then(author_notice)
            }
            <div class="padded">
                <form
                    class="form"
                    on:submit=put(data, |name| format!("The proposal changes the data of \
                        {name}."), nothing)
                >
                    <p class="muted">
                        "This data applies only to this noderole and overrides every other source."
                    </p>
                    <DataEditor draft name="own-data"/>
                    <Outcome of=data/>
                    <div class="buttons"><SubmitButton of=data/></div>
                </form>
                <form
                    class="form"
                    on:submit=put(again, |name| format!("The proposal runs {name} again."), clear)
                >
                    <div class="field">
                        <label for="own-again">"Run again without a change"</label>
                        <input
                            class="input"
                            id="own-again"
                            autocomplete="off"
                            placeholder="Reason"
                            disabled=is_again
                            prop:value=move || reason.get()
                            on:input=move |event| reason.set(event_target_value(&event))
                        />
                    </div>
                    <Outcome of=again/>
                    <div class="buttons"><SubmitButton of=again/></div>
                </form>
                <form
                    class="form"
                    on:submit=put(unbind, |name| format!("The proposal unbinds {name}."), nothing)
                >
                    <h3>"Unbind"</h3>
                    <label class="choice">
                        <input
                            type="checkbox"
                            prop:checked=move || along.get()
                            on:change=move |event| along.set(event_target_checked(&event))
                        />
                        <span>
                            <b>"Also unbind its dependents"</b> " "
                            <small>
                                "Otherwise the edit is rejected if another noderole needs this one."
                            </small>
                        </span>
                    </label>
                    <Outcome of=unbind/>
                    <div class="buttons"><SubmitButton of=unbind grave=true/></div>
                </form>
            </div>
            <div class="visually-hidden" role="status" aria-live="polite">{move || text.get()}</div>
        </details>
    }
    .into_any()
}

/// Whether a `<details>` element is open after its toggle event.
fn is_shown(event: &leptos::ev::Event) -> bool {
    event
        .target()
        .and_then(|target| target.dyn_into::<web_sys::Element>().ok())
        .is_some_and(|fold| fold.has_attribute("open"))
}

/// The interface to the open proposal of the noderole's deployment, and the announcement after an
/// edit.
fn edit_context(feed: Feed<NoderoleView>, edited: Callback<()>) -> (EditContext, RwSignal<String>) {
    let noderole = feed.value();
    let (busy, text) = (RwSignal::new(false), RwSignal::new(String::new()));
    let open =
        move || noderole.read().may_edit.draft().map(|draft| (draft.proposal, draft.version));
    let put = move |put: Put| {
        let Some((proposal, version)) = untrack(open).filter(|_| !busy.get_untracked()) else {
            return;
        };
        act(
            busy,
            put.problem,
            proposals::server_functions::edit(proposal, version, put.edits.clone()),
            move |_| {
                put.notify();
                text.try_set(put.done);
                feed.now();
                edited.run(());
            },
        );
    };
    let board = Signal::derive(move || Some(noderole.read().deployment.clone()));
    (
        EditContext {
            proposal: Signal::derive(open),
            board,
            busy: busy.into(),
            put: Callback::new(put),
        },
        text,
    )
}

#[component]
fn Attempts(noderole: RwSignal<NoderoleView>) -> impl IntoView {
    let runs = Memo::new(move |_| noderole.read().runs.clone());
    let all = noderole.with_untracked(|of| {
        // The list of runs does not accept the name of a phantom node, so this uses its id.
        let node = if has_page(&of.fqdn) { of.fqdn.clone() } else { of.node.to_string() };
        addresses::runs_of(&of.deployment, Some(&node), &of.role)
    });
    let none = move || {
        runs.read().is_empty().then(|| view! { <p class="padded muted">"No runs yet."</p> })
    };
    let line = |run: RunSummary| {
        let from = run.started.unwrap_or(run.queued);
        view! {
            <li>
                <a href=addresses::run(run.id)>
                    <RunPill state=run.state/>
                    <span>"run " {run.id.0}</span>
                    <span class="muted">
                        <Elapsed from to=run.ended/> ", " <TimeText at=run.queued/>
                    </span>
                </a>
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Runs">
            <header>
                <h2>"Runs"</h2>
                <span class="muted grow">{move || counted(runs.read().len())}</span>
                <a href=all>"All runs"</a>
            </header>
            <div>
                {none}
                <ul class="link-list">{move || runs.get().into_iter().map(line).collect_view()}</ul>
            </div>
        </section>
    }
    .into_any()
}

#[component]
fn Around(
    title: &'static str,
    none: &'static str,
    list: Memo<Vec<NoderoleRef>>,
    /// The link to the complete list, if the rows may be only the first ones.
    #[prop(optional, into)]
    all: Option<String>,
) -> impl IntoView {
    let count = {
        let may_be_truncated = all.is_some();
        move || {
            if may_be_truncated {
                counted(list.read().len())
            } else {
                list.read().len().to_string()
            }
        }
    };
    let more = move || {
        let all = all.clone().filter(|_| list.read().len() >= PAGE_SIZE);
        all.map(|all| view! { <p class="padded"><a href=all>"Show all in the graph"</a></p> })
    };
    let empty =
        move || list.read().is_empty().then(|| view! { <p class="padded muted">{none}</p> });
    view! {
        <section class="card" aria-label=title>
            <header><h2>{title}</h2> <span class="muted">{count}</span></header>
            <div>
                {empty}
                <ul class="link-list">{move || list.get().into_iter().map(near).collect_view()}</ul>
                {more}
            </div>
        </section>
    }
    .into_any()
}

fn near(noderole: NoderoleRef) -> impl IntoView {
    view! {
        <li>
            <a href=addresses::noderole(noderole.id)>
                <span data-state=noderole.state.as_str()>{mark(noderole.state)}</span>
                <span class="clip"><b>{noderole.role.to_string()}</b> " on " {noderole.fqdn}</span>
                <span class="muted">{noderole.state.label()}</span>
            </a>
        </li>
    }
    .into_any()
}

#[server(
    name = ReadNoderole,
    prefix = "/call",
    endpoint = "noderole",
    input = AsJson,
    output = AsJson
)]
pub async fn noderole(id: NoderoleId) -> ServerResult<NoderoleView> {
    let (request, actor) = signed_in()?;
    answer(request.control.noderole(&actor, id).await).await
}

/// Retries a step in ERROR.
#[server(name = Retry, prefix = "/call", endpoint = "retry", output = AsJson)]
pub async fn retry(noderole: NoderoleId, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.retry(&actor, noderole, reason).await).await
}
