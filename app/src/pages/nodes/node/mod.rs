//! The page of a node, and the changes to its record that need no review.

pub mod health_checks;
pub mod server_functions;

pub mod noderoles;
pub mod results;
mod stored;

use api::Allowed;
use api::JoinPhase;
use api::limits;
use api::live::Topic;
use api::nodes::{
    FactSource, HealthCheckView, NodeFacts, NodeNoderole, NodeToken, NodeView, ReportView, SshView,
};
use api::runs::RunSummary;
use engine::ids::{Fqdn, NodeId, actor_name};
use engine::plan::MAX_REASON;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::NavigateOptions;
use leptos_router::hooks::{use_navigate, use_params_map};
use serde_json::{Map, Value};

use crate::addresses;
use crate::clock::{Elapsed, TimeText};
use crate::components::action::{last_of, on_success, problem_of};
use crate::components::badge::action_pill;
use crate::components::json::DataView;
use crate::components::{
    EquivalentCommands, Feed, FormValues, Icon, ProblemNotice, Refused, RunPill, escape_textarea,
    icon, load_one, mark, reset_on_success,
};
use crate::live::{Event, NOW, use_live};
use crate::pages::nodes::server_functions::DeleteNode;
use crate::pages::proposals::{Alone, LabelStyle};
use crate::validation;
use server_functions::{
    ChangeNode, CreateNodeToken, ProposeChange, RevokeNodeToken, SetMaintenance,
};

/// The maximum number of topics for the deployments of the node's noderoles.
const DEPLOYMENTS: usize = 16;

#[component]
pub fn NodePage() -> impl IntoView {
    let params = use_params_map();
    let name = Memo::new(move |_| params.read().get("name").unwrap_or_default());
    let node = Resource::new(move || name.get(), server_functions::node);
    load_one(
        node,
        (addresses::NODES, "All nodes"),
        |first: NodeView| view! { <NodeContent first/> },
    )
}

#[component]
fn NodeContent(first: NodeView) -> impl IntoView {
    let id = first.id;
    let topics = topics(&first);
    let (deployment, fqdn) = (first.deployment.clone(), first.fqdn.clone());
    let is_ssh = first.connection.ssh.is_some();
    let feed = Feed::new(first, move || server_functions::node(id.to_string()));
    let node = feed.value();
    let on_events = move |events: &[Event]| {
        if events.iter().any(|event| node.with_untracked(|node| concerns(event, node))) {
            feed.soon();
        }
    };
    use_live().subscribe(topics, NOW, on_events);
    let refusal = Signal::derive(move || node.read().may_change.reason().map(str::to_owned));
    view! {
        <Title text=fqdn.clone()/>
        <div class="head">
            <div>
                <div class="muted">
                    <a href=addresses::deployment(&deployment)>{deployment.to_string()}</a>
                </div>
                <h1>{fqdn}</h1>
                <p class="muted">{move || node.read().description.clone()}</p>
            </div>
            <div class="buttons">
                <Alone
                    node=Signal::derive(move || id)
                    name=Signal::derive(move || node.read().fqdn.clone())
                    shows=LabelStyle::InFull
                    same_elsewhere=true
                    reason=refusal
                />
            </div>
        </div>
        <ProblemNotice problem=feed.problem() retry=feed.retry()/>
        <EquivalentCommands
            of=move |_: FormValues| vec![
                api::calls::show_node(&node.read().fqdn),
                api::calls::propose_on_node(id)
            ]
        />
        <div class="columns">
            <div class="stack">
                <NodeStatusCard feed/>
                <Reached feed/>
                {is_ssh.then(|| view! { <HealthChecks feed/> })}
                <Facts feed/>
            </div>
            <div class="stack">
                <Noderoles feed/>
                <Runs feed/>
                <NodeReports feed/>
                <DeleteNodeForm feed/>
            </div>
        </div>
    }
    .into_any()
}

/// The topics of events that can change the page.
fn topics(node: &NodeView) -> Vec<Topic> {
    let mut topics = vec![Topic::Nodes, Topic::Blueprints, Topic::Deployment(node.deployment_id)];
    for noderole in &node.noderoles {
        let topic = Topic::Deployment(noderole.deployment_id);
        if !topics.contains(&topic) && topics.len() < DEPLOYMENTS {
            topics.push(topic);
        }
    }
    topics
}

fn concerns(event: &Event, shown: &NodeView) -> bool {
    match event {
        Event::Node { fqdn } => *fqdn == shown.fqdn,
        Event::Step { noderole, .. } | Event::Run { noderole, .. } => {
            shown.noderoles.iter().any(|carried| carried.id == *noderole)
        }
        Event::Blueprint { .. } | Event::Reset => true,
        Event::Proposal { .. }
        | Event::Review { .. }
        | Event::Hold { .. }
        | Event::Priority { .. }
        | Event::Worker { .. }
        | Event::Catalog => false,
    }
}

#[component]
fn NodeStatusCard(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let pill = move || {
        let node = node.read();
        let new_bytes = !node.status.alive && node.status.alive_since.is_none();
        let (color, shape, word) = match (node.status.alive, node.status.maintenance.is_none()) {
            _ if new_bytes => ("blocked", Icon::Blocked, "never reached"),
            (true, true) => ("active", Icon::Active, "alive"),
            (true, false) => ("warn", Icon::Paused, "in maintenance"),
            (false, _) => ("error", Icon::Dead, "dead"),
        };
        view! { <span class="pill" data-state=color>{icon(shape)} {word}</span> }
    };
    let since = move || {
        let since = node.read().status.alive_since;
        since.map(|since| view! { <span class="muted">"for " <Elapsed from=since to=None/></span> })
    };
    let reasons = move || {
        reasons(&node.read())
            .into_iter()
            .map(|reason| view! { <li>{icon(Icon::Right)} <span>{reason}</span></li> })
            .collect_view()
    };
    let seen = move || {
        node.read()
            .status
            .last_seen
            .map(|seen| view! { <dt>"Last reached"</dt> <dd><TimeText at=seen/></dd> })
    };
    let joined = move || {
        let life = node.read().status.clone();
        let since = life.joined_since.map(|since| view! { ", " <TimeText at=since/> });
        view! { <dt>"Joined"</dt> <dd>{join_phase_text(life.joined)} {since}</dd> }
    };
    let boot = move || {
        node.read()
            .status
            .boot_id
            .clone()
            .map(|id| view! { <dt>"Boot ID"</dt> <dd><code>{id}</code></dd> })
    };
    let bootenv = move || {
        let text = node.read().status.bootenv.clone();
        text.map(|text| {
            view! {
                <dt>"Boot environment"</dt>
                <dd>{text} " " <small class="muted">"reported by the node"</small></dd>
            }
        })
    };
    let added =
        node.with_untracked(|node| (actor_name(node.added_by.as_deref()).to_owned(), node.added));
    view! {
        <section class="card" aria-label="State">
            <header>{pill} {since}</header>
            <div class="padded">
                <ul class="reason-list" aria-label="Reasons">{reasons}</ul>
                <Service feed/>
                <dl class="facts">
                    {seen}
                    {joined}
                    {boot}
                    {bootenv}
                    <dt>"Added"</dt>
                    <dd><TimeText at=added.1/> " by " {added.0}</dd>
                </dl>
            </div>
        </section>
    }
    .into_any()
}

/// The reasons for which steps cannot run on the node, each with its remedy.
fn reasons(node: &NodeView) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(out) = &node.status.maintenance {
        let by = actor_name(out.by.as_deref());
        reasons.push(format!(
            "In maintenance, set by {by}: {}. No new runs start. Steps keep their states, and \
             current runs finish.",
            out.reason
        ));
    }
    let last = node.health_checks.first();
    match (node.status.alive, last.filter(|check| !check.message.is_empty())) {
        (false, Some(check)) => reasons.push(format!("Not reached: {}.", check.message)),
        (false, None) if node.connection.ssh.is_some() => {
            reasons.push("No health check yet. Workers check every ten seconds.".into())
        }
        (true, Some(check)) if check.reached => reasons.push(format!("{}.", check.message)),
        (true, Some(_)) => reasons
            .push(dead_after_text(node.status.threshold.saturating_sub(node.status.contradicting))),
        _ => {}
    }
    if node.status.alive && node.status.joined != JoinPhase::Confirmed {
        reasons.push(
            "No run starts until a worker has logged in and checked for running processes.".into(),
        );
    }
    reasons
}

/// For a node that is alive and was not reached. A report from the node itself may have counted as
/// alive, so only the remaining health checks are counted.
fn dead_after_text(more: u32) -> String {
    match more {
        0 | 1 => {
            "The last health check failed. If the next one fails too, the node counts as dead."
                .into()
        }
        more => format!(
            "The last health check failed. If the next {more} fail too, the node counts as dead."
        ),
    }
}

fn join_phase_text(phase: JoinPhase) -> &'static str {
    match phase {
        JoinPhase::Confirmed => "yes: a worker has checked for running processes",
        JoinPhase::Welcomed => "in progress: a worker must still check for running processes",
        JoinPhase::Nack => "refused",
        _ => "no",
    }
}

/// Starts or ends the node's maintenance.
#[component]
fn Service(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let set = ServerAction::<SetMaintenance>::new();
    on_success(set, move |()| feed.now());
    let is_out = Memo::new(move |_| node.read().status.maintenance.is_some());
    let may = Memo::new(move |_| node.read().may_change.is_allowed());
    let id = node.read_untracked().id;
    move || {
        may.get().then(|| {
            let (title, hint, label, value) = match is_out.get() {
                true => (
                    "Reason for the end of maintenance",
                    "New runs can start again.",
                    "End maintenance",
                    "false",
                ),
                false => (
                    "Reason for maintenance",
                    "No new runs start. Steps keep their states, \
                    and current runs finish.",
                    "Start maintenance",
                    "true",
                ),
            };
            let reason = reset_on_success(set, |refused| {
                view! {
                    <input
                        class="input"
                        id="service-reason"
                        name="reason" required
                        maxlength=MAX_REASON
                        autocomplete="off"
                        placeholder="Reason"
                        value=refused.typed("reason")
                    />
                }
                .into_any()
            });
            view! {
                <ActionForm action=set attr:class="form">
                    <input type="hidden" name="node" value=id.to_string()/>
                    <input type="hidden" name="maintenance" value=value/>
                    <div class="field">
                        <label for="service-reason">{title}</label>
                        {reason}
                        <span class="hint">{hint}</span>
                    </div>
                    <ProblemNotice problem=problem_of(set)/>
                    <EquivalentCommands of=move |typed: FormValues| {
                        let version = node.read().version;
                        vec![
                            api::calls::set_maintenance(
                                id,
                                version,
                                !is_out.get(),
                                &typed.or("reason", "WHY")
                            )
                        ]
                    }/>
                    <div class="buttons">
                        <button class="button" type="submit" disabled=move || set.pending().get()>
                            {icon(if value == "true" { Icon::Paused } else { Icon::Run })} {label}
                        </button>
                    </div>
                </ActionForm>
            }
        })
    }
}

#[component]
fn Reached(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let connection = Memo::new(move |_| node.read().connection.clone());
    let ssh = move || connection.get().ssh.map(by_ssh);
    let hardware = move || {
        let node = node.read();
        let macs = (!node.macs.is_empty()).then(
            || view! { <dt>"MAC addresses"</dt> <dd class="mono">{node.macs.join(" ")}</dd> },
        );
        let serial = (!node.serial.is_empty()).then(
            || view! { <dt>"Serial number"</dt> <dd class="mono">{node.serial.clone()}</dd> },
        );
        view! { {macs} {serial} }
    };
    let hints = Memo::new(move |_| node.read().hints.clone());
    let may = Memo::new(move |_| node.read().may_change.clone());
    view! {
        <section class="card" aria-label="Connection">
            <header>
                <h2>"Connection"</h2>
                <span class="muted">{move || connection.read().transport.clone()}</span>
            </header>
            <div class="padded">
                <dl class="facts">
                    {ssh}
                    <dt>"Root folder"</dt>
                    <dd><code>{move || connection.read().root.clone()}</code></dd>
                    {hardware}
                </dl>
            </div>
            <details class="fold">
                <summary>
                    {icon(Icon::Right)} "Hints"
                    <span class="muted">"data for roles before their first run"</span>
                </summary>
                <div class="padded">{move || view! { <DataView value=hints.get()/> }}</div>
            </details>
            {move || match may.get() {
                Allowed::Yes => view! { <Change feed/> }.into_any(),
                Allowed::No { reason } => view! { <p class="padded muted">{reason}</p> }.into_any(),
            }}
        </section>
    }
    .into_any()
}

fn by_ssh(ssh: SshView) -> impl IntoView {
    let version = (ssh.key_version != 1).then(|| format!(", version {}", ssh.key_version));
    view! {
        <dt>"Addresses"</dt>
        <dd>
            <ol class="plain">
                {ssh.addresses.into_iter().map(|address| view! {
                    <li><code>{address}</code></li>
                }).collect_view()}
            </ol>
        </dd>
        <dt>"Port, user"</dt>
        <dd><code>{ssh.port}</code> ", " <code>{ssh.user}</code></dd>
        <dt>"Key"</dt>
        <dd>"secret " <code>{ssh.key}</code> {version}</dd>
        <dt>"Host key"</dt>
        <dd><code class="wraps" title=ssh.host_key.clone()>{ssh.fingerprint}</code></dd>
    }
    .into_any()
}

/// Edits the record. Half-typed input survives updates. The version at which the form was opened
/// detects concurrent changes.
#[component]
fn Change(feed: Feed<NodeView>) -> impl IntoView {
    let now = feed.value().get_untracked();
    let change = ServerAction::<ChangeNode>::new();
    let is_refused = Refused::of(change).is_here();
    let version = RwSignal::new(now.version);
    on_success(change, move |new| {
        version.set(new);
        feed.now();
    });
    let (id, before) = (now.id, now.clone());
    let record = now.record_only;
    let connection = record.then(|| connection_fields(&now));
    let hints = record.then(|| hints_field(&now));
    let propose = (!record).then(|| view! { <ProposeConnection now=now.clone()/> });
    view! {
        <details class="fold" open=is_refused>
            <summary>{icon(Icon::Right)} "Edit node"</summary>
            <div class="padded">
                <ActionForm action=change attr:class="form">
                    <input type="hidden" name="node" value=now.id.to_string()/>
                    <input type="hidden" name="version" value=move || version.get().to_string()/>
                    <div class="field">
                        <label for="change-description">"Description"</label>
                        <input
                            class="input"
                            id="change-description"
                            name="description"
                            maxlength=limits::DESCRIPTION
                            autocomplete="off"
                            value=now.description.clone()
                        />
                    </div>
                    <div class="field">
                        <label for="change-mac">"MAC addresses"</label>
                        <input
                            class="input mono"
                            id="change-mac"
                            name="mac"
                            autocomplete="off"
                            spellcheck="false"
                            value=now.macs.join(" ")
                        />
                    </div>
                    <div class="field">
                        <label for="change-serial">"Serial number"</label>
                        <input
                            class="input mono"
                            id="change-serial"
                            name="serial"
                            maxlength="200"
                            autocomplete="off"
                            spellcheck="false"
                            value=now.serial.clone()
                        />
                    </div>
                    {hints}
                    {connection}
                    <ProblemNotice problem=problem_of(change)/>
                    <EquivalentCommands
                        of=move |typed: FormValues| vec![
                            api::calls::change_node(id, version.get(), changed(typed, &before))
                        ]
                    />
                    <div class="buttons">
                        <button
                            class="button"
                            type="submit"
                            disabled=move || change.pending().get()
                        >
                            {icon(Icon::Check)} "Save"
                        </button>
                        <span role="status" aria-live="polite" class="muted">
                            {
                                move || change.value()
                                    .read()
                                    .as_ref()
                                    .is_some_and(|done| done.is_ok())
                                    .then_some("Saved.")
                            }
                        </span>
                    </div>
                </ActionForm>
            </div>
        </details>
        {propose}
    }
    .into_any()
}

/// The fields in which a form differs from the record. If none differs: the description, as an
/// example.
fn changed(typed: FormValues, before: &NodeView) -> Map<String, Value> {
    let is_read = typed.is_checked("node");
    let mut change = Map::new();
    let texts = [("description", &before.description), ("serial", &before.serial)];
    for (name, was) in texts.into_iter().filter(|_| is_read) {
        let now = typed.get(name);
        if now != *was {
            change.insert(name.into(), now.into());
        }
    }
    let macs: Vec<String> = typed.get("mac").split_whitespace().map(str::to_owned).collect();
    if is_read && macs != before.macs {
        change.insert("macs".into(), macs.into());
    }
    if let Some(hints) =
        serde_json::from_str::<Value>(&typed.get("hints")).ok().filter(|now| *now != before.hints)
    {
        change.insert("hints".into(), hints);
    }
    let connection = changed_connection(typed, before);
    if !connection.is_empty() {
        change.insert("connection".into(), connection.into());
    }
    if change.is_empty() {
        change.insert("description".into(), "TEXT".into());
    }
    change
}

/// As [`changed`], for the connection.
fn changed_connection(typed: FormValues, before: &NodeView) -> Map<String, Value> {
    let mut change = Map::new();
    let mut put = |field: &str, name: &str, was: Value, read: fn(String) -> Value| {
        let now = Some(typed.get(field)).filter(|now| !now.is_empty()).map(read);
        change.extend(now.filter(|now| *now != was).map(|now| (name.to_owned(), now)));
    };
    let number = |text: String| text.parse::<i64>().map_or(Value::String(text), Value::from);
    put("root", "root", before.connection.root.clone().into(), Value::from);
    if let Some(ssh) = &before.connection.ssh {
        let listed = |text: String| text.split_whitespace().map(Value::from).collect();
        put("address", "addresses", ssh.addresses.clone().into(), listed);
        put("port", "port", ssh.port.into(), number);
        put("user", "user", ssh.user.clone().into(), Value::from);
        put("key", "key", ssh.key.clone().into(), Value::from);
        put("key_version", "key_version", ssh.key_version.into(), number);
        put("host_key", "host_key", ssh.host_key.clone().into(), Value::from);
    }
    change
}

fn hints_field(now: &NodeView) -> AnyView {
    let text = validation::pretty(&now.hints);
    view! {
        <div class="field">
            <label for="change-hints">"Hints"</label>
            <textarea
                class="area code"
                id="change-hints"
                name="hints"
                rows="4"
                spellcheck="false"
                autocomplete="off"
            >
                {escape_textarea(text)}
            </textarea>
            <span class="hint">"A JSON object."</span>
        </div>
    }
    .into_any()
}

/// Proposes another connection or other hints. For a node in a blueprint, both require a review.
#[component]
fn ProposeConnection(now: NodeView) -> impl IntoView {
    let propose = ServerAction::<ProposeChange>::new();
    let is_refused = Refused::of(propose).is_here();
    let id = now.id;
    view! {
        <details class="fold" open=is_refused>
            <summary>{icon(Icon::Right)} "Propose a new connection"</summary>
            <div class="padded">
                <ActionForm action=propose attr:class="form">
                    <input type="hidden" name="node" value=id.to_string()/>
                    {hints_field(&now)}
                    {connection_fields(&now)}
                    <span class="hint">
                        "The node is in a blueprint, so its connection and hints change only after \
                         a review."
                    </span>
                    <ProblemNotice problem=problem_of(propose)/>
                    <EquivalentCommands
                        of=move |_: FormValues| vec![api::calls::propose_on_node(id)]
                    />
                    <div class="buttons">
                        <button
                            class="button"
                            type="submit"
                            disabled=move || propose.pending().get()
                        >
                            {icon(Icon::Proposed)} "Propose the change"
                        </button>
                    </div>
                </ActionForm>
            </div>
        </details>
    }
    .into_any()
}

fn connection_fields(now: &NodeView) -> impl IntoView + use<> {
    let root = now.connection.root.clone();
    let ssh = now.connection.ssh.clone().map(|ssh| {
        view! {
            <div class="field">
                <label for="change-address">"Addresses"</label>
                <input
                    class="input mono"
                    id="change-address"
                    name="address" required
                    autocomplete="off"
                    spellcheck="false"
                    value=ssh.addresses.join(" ")
                />
                <span class="hint">"Host names or IP addresses, tried in this order."</span>
            </div>
            <div class="field">
                <label for="change-port">"Port"</label>
                <input
                    class="input mono"
                    id="change-port"
                    name="port" required
                    inputmode="numeric"
                    autocomplete="off"
                    value=ssh.port.to_string()
                />
            </div>
            <div class="field">
                <label for="change-user">"User"</label>
                <input
                    class="input mono"
                    id="change-user"
                    name="user" required
                    autocomplete="off"
                    spellcheck="false"
                    value=ssh.user
                />
            </div>
            <div class="field">
                <label for="change-key">"Key"</label>
                <input
                    class="input mono"
                    id="change-key"
                    name="key" required
                    autocomplete="off"
                    spellcheck="false"
                    value=ssh.key
                />
                <span class="hint">"The name of the secret that contains the private key."</span>
            </div>
            <div class="field">
                <label for="change-key-version">"Key version"</label>
                <input
                    class="input mono"
                    id="change-key-version"
                    name="key_version" required
                    inputmode="numeric"
                    autocomplete="off"
                    value=ssh.key_version.to_string()
                />
            </div>
            <div class="field">
                <label for="change-host-key">"Host key"</label>
                <input
                    class="input mono"
                    id="change-host-key"
                    name="host_key" required
                    autocomplete="off"
                    spellcheck="false"
                    value=ssh.host_key
                />
                <span class="hint">
                    "The output of " <code>"ssh-keyscan -t ed25519 HOST"</code>
                    " after the host name. Workers accept no other key."
                </span>
            </div>
        }
    });
    view! {
        {ssh}
        <div class="field">
            <label for="change-root">"Root folder"</label>
            <input
                class="input mono"
                id="change-root"
                name="root"
                autocomplete="off"
                spellcheck="false"
                value=root
            />
        </div>
    }
    .into_any()
}

/// Each address that a health check tried, with its result, and further output.
fn check_details(check: &HealthCheckView) -> impl IntoView + use<> {
    let line = |address: String, text: String| {
        view! { <div><code>{address}</code> " " <small class="reason">{text}</small></div> }
    };
    // A check that found no address to try has only a message.
    if check.tried.is_empty() {
        return line(check.address.clone(), check.message.clone()).into_any();
    }
    let several = check.tried.len() > 1;
    let tried = check.tried.iter().map(|tried| {
        let text =
            if tried.reached && several { "reached".to_owned() } else { tried.error.clone() };
        line(tried.address.clone(), text)
    });
    let entered = check.tried.iter().any(|tried| tried.reached);
    let beyond = (entered && !check.message.is_empty())
        .then(|| view! { <small class="reason">{check.message.clone()}</small> });
    view! { {tried.collect_view()} {beyond} }.into_any()
}

#[component]
fn HealthChecks(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let checks = Memo::new(move |_| node.read().health_checks.clone());
    let all = addresses::node_health_checks(&node.read_untracked().fqdn);
    view! {
        <section class="card" aria-label="Health checks">
            <header>
                <h2 class="grow">"Last health checks"</h2> <a href=all>"All health checks"</a>
            </header>
            {move || match checks.read().is_empty() {
                true => view! { <p class="padded muted">"No health checks yet."</p> }.into_any(),
                false => health_check_table(checks.get()).into_any(),
            }}
        </section>
    }
    .into_any()
}

/// The result of a health check, in a word.
fn health_check_result(reached: bool) -> impl IntoView {
    let (color, shape, word) = match reached {
        true => ("active", Icon::Active, "reached"),
        false => ("error", Icon::Dead, "not reached"),
    };
    view! { <span class="pill" data-state=color>{icon(shape)} {word}</span> }
}

/// Health checks, newest first.
fn health_check_table(checks: Vec<HealthCheckView>) -> impl IntoView {
    let row = |check: HealthCheckView| {
        view! {
            <tr>
                <td><TimeText at=check.at/></td>
                <td data-label="Result">{health_check_result(check.reached)}</td>
                <td data-label="Address and error">{check_details(&check)}</td>
                <td data-label="Duration" class="num">{check.duration_ms} " ms"</td>
                <td data-label="Worker" class="muted">{check.by}</td>
            </tr>
        }
    };
    view! {
        <table class="table responsive">
            <thead>
                <tr>
                    <th scope="col">"When"</th>
                    <th scope="col">"Result"</th>
                    <th scope="col">"Address and error"</th>
                    <th scope="col">"Duration"</th>
                    <th scope="col">"Worker"</th>
                </tr>
            </thead>
            <tbody>{checks.into_iter().map(row).collect_view()}</tbody>
        </table>
    }
    .into_any()
}

#[component]
fn Facts(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let facts = Memo::new(move |_| node.read().facts.clone());
    let of = |stored: NodeFacts| {
        let who = match &stored.role {
            Some(role) => format!("reported by role {role}"),
            None => "reported by the node".into(),
        };
        let run =
            stored.run.map(|run| view! { ", " <a href=addresses::run(run)>"run " {run.0}</a> });
        view! {
            <details class="fold" open>
                <summary>
                    {icon(Icon::Right)} {who} <span class="muted"><TimeText at=stored.at/></span>
                </summary>
                <div class="padded">
                    <p class="muted">{source_label(stored.source)} {run}</p>
                    <DataView value=stored.facts/>
                </div>
            </details>
        }
    };
    view! {
        <section class="card" aria-label="Facts">
            <header><h2>"Facts"</h2></header>
            {move || facts.read().is_empty().then(|| view! {
                <p class="padded muted">
                    <span>
                        "No facts yet. Bind the role " <b>"facts"</b>
                        " to the node, or create a token so that the node can report facts."
                    </span>
                </p>
            })}
            {move || facts.get().into_iter().map(of).collect_view()}
        </section>
    }
    .into_any()
}

fn source_label(source: FactSource) -> &'static str {
    match source {
        FactSource::Node => "Reported by the machine itself, not verified",
        FactSource::Role => "Collected by a role on the node",
    }
}

/// The link to further noderoles of the node.
fn graph_link(node: &NodeView) -> impl IntoView + use<> {
    let graph = addresses::node_graph(&node.deployment, &node.fqdn);
    let deployment = node.deployment.to_string();
    view! {
        <p class="padded muted">
            "The node has more noderoles. " <a href=graph>"Graph of " {deployment}</a>
        </p>
    }
    .into_any()
}

#[component]
fn Noderoles(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let list = Memo::new(move |_| node.read().noderoles.clone());
    let more = move || node.read().more_noderoles.then(|| graph_link(&node.read()));
    let all = node.with_untracked(|node| addresses::node_noderoles(&node.fqdn));
    let count = move || {
        format!("{}{}", list.read().len(), if node.read().more_noderoles { " shown" } else { "" })
    };
    let line = |carried: NodeNoderole| {
        let title = carried.error.clone();
        view! {
            <li>
                <a href=addresses::noderole(carried.id) title=title>
                    <span data-state=carried.state.as_str()>{mark(carried.state)}</span>
                    <span class="clip">
                        <b>{carried.role.to_string()}</b> " in " {carried.deployment.to_string()}
                    </span>
                    <span class="muted">
                        {carried.state.label()} ", " <TimeText at=carried.since/>
                    </span>
                </a>
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Noderoles">
            <header>
                <h2>"Noderoles"</h2> <span class="muted grow">{count}</span> <a href=all>"All"</a>
            </header>
            <div>
                {move || list.read().is_empty().then(|| view! {
                    <p class="padded muted">
                        "No noderoles yet. Bind roles on the board of a deployment."
                    </p>
                })}
                <ul class="link-list">{move || list.get().into_iter().map(line).collect_view()}</ul>
                {more}
            </div>
        </section>
    }
    .into_any()
}

#[component]
fn Runs(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let runs = Memo::new(move |_| node.read().runs.clone());
    let (all, results) = node.with_untracked(|node| {
        (addresses::runs_on(&node.fqdn), addresses::node_results(&node.fqdn))
    });
    let line = |run: RunSummary| {
        let from = run.started.unwrap_or(run.queued);
        view! {
            <li>
                <a href=addresses::run(run.id)>
                    <RunPill state=run.state/>
                    <span class="clip">
                        "run " {run.id.0} " of " <b>{run.role.to_string()}</b>
                        {action_pill(&run.action)}
                    </span>
                    <span class="muted">
                        <Elapsed from to=run.ended/> ", " <TimeText at=run.queued/>
                    </span>
                </a>
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Last runs">
            <header>
                <h2 class="grow">"Last runs"</h2>
                <a href=all>"All"</a>
                <a href=results>"Results"</a>
            </header>
            <div>
                {move || runs.read().is_empty().then(|| view! {
                    <p class="padded muted">"No runs yet."</p>
                })}
                <ul class="link-list">{move || runs.get().into_iter().map(line).collect_view()}</ul>
            </div>
        </section>
    }
    .into_any()
}

/// The node's own reports, and the tokens with which it authenticates.
#[component]
fn NodeReports(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let (reports, tokens) = (
        Memo::new(move |_| node.read().reports.clone()),
        Memo::new(move |_| node.read().tokens.clone()),
    );
    let may = Memo::new(move |_| node.read().may_change.is_allowed());
    let id = node.read_untracked().id;
    let revoke = ServerAction::<RevokeNodeToken>::new();
    on_success(revoke, move |()| feed.now());
    let message = |report: ReportView| {
        let text = (!report.value.is_empty()).then(|| view! { <code>{report.value}</code> });
        view! {
            <li>
                <b>{report_label(&report.kind)}</b> " " {text} " "
                <span class="muted">
                    <TimeText at=report.at/> ", " {report.token} " " {report.address}
                </span>
            </li>
        }
    };
    view! {
        <section class="card" aria-label="Reports and tokens">
            <header><h2>"Reports and tokens"</h2></header>
            <div class="padded">
                <p class="muted">
                    "With a token of its own, the machine can report its start-up, shutdown, boot \
                     environment and facts. Workers verify a reported start-up or shutdown with a \
                     health check."
                </p>
                <ul class="plain">
                    {move || reports.get().into_iter().map(message).collect_view()}
                </ul>
                {move || reports.read().is_empty().then(|| view! {
                    <p class="muted">"No reports yet."</p>
                })}
                <h3>"Tokens"</h3>
                {move || tokens.read().is_empty().then(|| view! {
                    <p class="muted">"No tokens yet."</p>
                })}
                <ul class="plain tokens">
                    {
                        move || tokens.get()
                            .into_iter()
                            .map(|token| token_row(token, id, may.get(), revoke))
                            .collect_view()
                    }
                </ul>
                <ProblemNotice problem=problem_of(revoke)/>
                {move || may.get().then(|| view! { <CreateTokenForm feed/> })}
                <EquivalentCommands of=move |_: FormValues| {
                    let holding = tokens.get().into_iter().filter(|token| token.valid);
                    holding.map(
                        |token| api::calls::revoke_node_token(id, token.id)
                    ).collect::<Vec<_>>()
                }/>
            </div>
        </section>
    }
    .into_any()
}

fn report_label(kind: &str) -> &'static str {
    match kind {
        "startup" => "start-up",
        "shutdown" => "shutdown",
        "bootenv" => "boot environment",
        _ => "facts",
    }
}

fn token_row(
    token: NodeToken,
    node: NodeId,
    may: bool,
    revoke: ServerAction<RevokeNodeToken>,
) -> impl IntoView {
    let state = match (token.valid, token.revoked) {
        (true, _) => {
            view! { <span class="muted">"until " <TimeText at=token.expires/></span> }.into_any()
        }
        (false, Some(at)) => {
            view! { <span class="muted">"revoked " <TimeText at/></span> }.into_any()
        }
        (false, None) => {
            view! { <span class="muted">"expired " <TimeText at=token.expires/></span> }.into_any()
        }
    };
    let used =
        token.used.map(|at| view! { <span class="muted">", last used " <TimeText at/></span> });
    let label = format!("Revoke token {}", token.name);
    let by = token.by.map(|by| format!(" by {by}"));
    view! {
        <li>
            <b>{token.name}</b> {by} " " {state} {used}
            {(may && token.valid).then(|| view! {
                <ActionForm action=revoke>
                    <input type="hidden" name="node" value=node.to_string()/>
                    <input type="hidden" name="token" value=token.id.to_string()/>
                    <button
                        class="button quiet small"
                        type="submit"
                        aria-label=label.clone()
                        title=label
                    >
                        {icon(Icon::Cross)} "Revoke"
                    </button>
                </ActionForm>
            })}
        </li>
    }
    .into_any()
}

/// Creates a token and shows it once.
#[component]
fn CreateTokenForm(feed: Feed<NodeView>) -> impl IntoView {
    let create = ServerAction::<CreateNodeToken>::new();
    on_success(create, move |_| feed.now());
    let last = last_of(create);
    let id = feed.value().read_untracked().id;
    let made = move || {
        last.get().map(|made| {
            view! {
                <div class="notice" role="status">
                    <p>"Copy the token to the machine now. It is shown only once."</p>
                    <pre class="data" tabindex="0" role="group" aria-label="Token">
                        {made.token}
                    </pre>
                </div>
            }
        })
    };
    let fields = reset_on_success(create, move |refused| {
        view! {
            <div class="field">
                <label for="token-name">"New token"</label>
                <input
                    class="input"
                    id="token-name"
                    name="name" required
                    maxlength=limits::NODE_TOKEN_NAME
                    autocomplete="off"
                    placeholder="Purpose"
                    value=refused.typed("name")
                />
            </div>
            <div class="field">
                <label for="token-days">"Validity in days"</label>
                <input
                    class="input mono"
                    id="token-days"
                    name="days"
                    inputmode="numeric"
                    autocomplete="off"
                    placeholder=limits::DEFAULT_TOKEN_DAYS
                    value=refused.typed("days")
                />
            </div>
            <ProblemNotice problem=problem_of(create)/>
            <EquivalentCommands of=move |typed: FormValues| {
                let days = typed.get("days").parse().unwrap_or(limits::DEFAULT_TOKEN_DAYS);
                vec![api::calls::create_node_token(id, &typed.or("name", "NAME"), days)]
            }/>
        }
        .into_any()
    });
    view! {
        <p class="no-scripts muted">
            "To create a token without JavaScript, use POST /api/v1/nodes/ID/tokens."
        </p>
        <ActionForm action=create attr:class="form needs-scripts">
            <input type="hidden" name="node" value=id.to_string()/>
            {fields}
            {made}
            <div class="buttons">
                <button class="button" type="submit" disabled=move || create.pending().get()>
                    {icon(Icon::Plus)} "Create token"
                </button>
            </div>
        </ActionForm>
    }
    .into_any()
}

/// Deletes the record of a node that no target contains.
#[component]
fn DeleteNodeForm(feed: Feed<NodeView>) -> impl IntoView {
    let node = feed.value();
    let take = ServerAction::<DeleteNode>::new();
    let is_refused = Refused::of(take).is_here();
    let navigate = use_navigate();
    on_success(take, move |()| navigate(addresses::NODES, NavigateOptions::default()));
    let may =
        Memo::new(move |_| node.with(|node| node.record_only && node.may_change.is_allowed()));
    let id = node.read_untracked().id;
    move || {
        may.get().then(|| {
            view! {
                <section class="card" aria-label="Delete node">
                    <details class="fold" open=is_refused>
                        <summary>{icon(Icon::Right)} "Delete node…"</summary>
                        <div class="padded">
                            <ActionForm action=take attr:class="form">
                                <input type="hidden" name="node" value=id.to_string()/>
                                <p class="muted">
                                    "The node is in no blueprint, so you can delete its record \
                                     without a review. Its tokens are revoked."
                                </p>
                                <ProblemNotice problem=problem_of(take)/>
                                <EquivalentCommands
                                    of=move |_: FormValues| vec![api::calls::delete_node(id)]
                                />
                                <div class="buttons">
                                    <button
                                        class="button danger"
                                        type="submit"
                                        disabled=move || take.pending().get()
                                    >
                                        {icon(Icon::Delete)} "Delete node"
                                    </button>
                                </div>
                            </ActionForm>
                        </div>
                    </details>
                </section>
            }
        })
    }
}

/// Whether a name is a valid node name. Phantom nodes have none and no page.
pub fn has_page(fqdn: &str) -> bool {
    Fqdn::parse(fqdn).is_ok()
}
