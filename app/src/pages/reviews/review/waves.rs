//! The order of execution: wave by wave, grouped by role, with dependencies. Names are abbreviated
//! and counts are exact, so that the page for 20,000 noderoles is as short as for twenty.

use std::borrow::Cow;

use engine::blueprint::Impact;
use engine::blueprint::impact::{Downstream, Wave, WaveGroup};
use engine::cluster::phantom;
use engine::counting::many;
use leptos::prelude::*;

use crate::components::badge::action_pill;
use crate::components::{Icon, icon};

/// The number of names of a group that runs after the waves. The tab *Effects* has all.
const MAX_NAMED: usize = 24;

#[component]
pub(super) fn Waves(found: Memo<Impact>) -> impl IntoView {
    let list = move || {
        let found = found.read();
        let most =
            found.waves.iter().map(|wave| wave.runs + wave.immediate).max().unwrap_or(1).max(1);
        found.waves.iter().map(|wave| wave_line(wave, most)).collect_view()
    };
    let more = move || match found.read().more_waves {
        0 => None,
        n => Some(view! { <p class="pager">"Not shown: " {many(n, "wave")} "."</p> }),
    };
    view! {
        <section class="card" aria-label="Waves">
            <header>
                <h2>"Waves"</h2>
                <span class="muted">
                    "steps of a wave run together if their dependencies, concurrency groups and \
                     nodes allow it"
                </span>
            </header>
            {move || is_empty(&found.read()).then(|| view! {
                <p class="padded muted">"Nothing runs."</p>
            })}
            <ol class="waves">{move || list()}</ol>
            {more}
            {move || follow_ups(&found.read())}
        </section>
    }
    .into_any()
}

fn is_empty(found: &Impact) -> bool {
    found.waves.is_empty() && found.follow_ups().next().is_none()
}

/// The noderoles that run after the waves because of the outputs and members of others.
fn follow_ups(found: &Impact) -> Option<AnyView> {
    let group = |group: &Downstream| {
        let (all, place) = (many(group.noderoles.count, "noderole"), &group.deployment);
        let names: Vec<String> =
            group.noderoles.first.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let names = match group.noderoles.count - names.len() {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        };
        view! { <li><b>{all}</b> <span class="muted">{format!(" in {place}: {names}")}</span></li> }
    };
    let groups: Vec<_> = found.follow_ups().map(group).collect();
    (!groups.is_empty()).then(|| {
        view! {
            <h3 class="padded">"Then, if their input changes"</h3>
            <ul class="waves">{groups}</ul>
        }
        .into_any()
    })
}

fn wave_line(wave: &Wave, most: usize) -> AnyView {
    let all = wave.runs + wave.immediate;
    let share = (all * 100 / most).max(1);
    let title = match wave.number {
        0 => "Immediately".to_owned(),
        n => format!("Wave {n}"),
    };
    let count = match (wave.runs, wave.immediate) {
        (runs, 0) => many(runs, "run"),
        (0, instants) => many(instants, "immediate step"),
        (runs, instants) => {
            format!("{}, then {}", many(runs, "run"), many(instants, "immediate step"))
        }
    };
    view! {
        <li>
            <div class="wave-head">
                <b class="num">{title}</b>
                <svg class="bar" aria-hidden="true">
                    <rect x="0" y="0" height="100%" width=format!("{share}%")></rect>
                </svg>
                <span class="muted num">{count}</span>
            </div>
            <ul>{wave.groups.iter().map(group_line).collect_view()}</ul>
        </li>
    }
    .into_any()
}

fn group_line(group: &WaveGroup) -> AnyView {
    let pace = match group.at_once {
        Some(1) => Some("one at a time".to_owned()),
        Some(n) if group.in_chunks => Some(format!("in batches of {n}")),
        Some(n) => Some(format!("{n} at a time")),
        None if group.immediate => Some("immediate step".to_owned()),
        None => None,
    };
    // A noderole of a phantom node is bound in the deployment that the node represents.
    let name = |fqdn| phantom::short_name(fqdn, |_| Some(group.deployment.to_string()));
    let names: Vec<Cow<'_, str>> = group.first.iter().map(name).collect();
    let more = group.nodes.saturating_sub(names.len());
    let names = names.join(", ");
    let nodes = match more {
        0 => names,
        more => format!("{names} and {more} more"),
    };
    let place = match group.is_phantom() {
        true => format!(" for the whole deployment {}", group.deployment),
        false => format!(" in {} on {}", group.deployment, many(group.nodes, "node")),
    };
    view! {
        <li>
            <details>
                <summary>
                    <b>{group.role.to_string()}</b>
                    {action_pill(&group.action)}
                    <span class="muted">{place}</span>
                    {pace.map(|pace| view! { <span class="pill flat">{pace}</span> })}
                    {group.destructive.then(|| view! {
                        <span class="pill" data-state="error">
                            {icon(Icon::Delete)} "destroys data"
                        </span>
                    })}
                </summary>
                <p class="muted">{nodes}</p>
            </details>
            <small class="muted">{waits(group)}</small>
        </li>
    }
    .into_any()
}

/// The dependencies of a role's part of a wave.
fn waits(group: &WaveGroup) -> String {
    let mut waits: Vec<String> =
        group.after.first.iter().take(4).map(|after| after.role.to_string()).collect();
    let more = group.after.count - waits.len();
    if more > 0 {
        waits.push(format!("{more} more"));
    }
    let queue = match group.queued {
        0 => None,
        1 => Some("1 waits for its node, which runs one step at a time".to_owned()),
        n => Some(format!("{n} wait for their nodes, which run one step at a time")),
    };
    match (waits.is_empty(), queue) {
        (true, None) => "waits for nothing in this change".into(),
        (true, Some(queue)) => queue,
        (false, None) => format!("waits for {}", waits.join(", ")),
        (false, Some(queue)) => format!("waits for {} ({queue})", waits.join(", ")),
    }
}
