//! Text output for large resources: the overview, a node, a noderole, a role, a run, a worker. Each
//! is a few lines, with commands for the details.
//!
//! An answer of unknown form, for example from a newer server, is printed as an outline. So nothing
//! is missing.

use std::borrow::Borrow;

use serde::Deserialize as _;
use serde_json::Value;

use api::blueprints::BlueprintSummary;
use api::catalog::{ResolvedName, RoleView};
use api::deployments::{DataLayer, NoderoleRef, NoderoleView};
use api::nodes::{HealthCheckView, NodeConnection, NodeStatus, NodeView};
use api::overview::Overview;
use api::pending::PendingPage;
use api::runs::{RunState, RunSummary, RunView};
use api::views::node_proposal::DraftedNoderole;
use api::workers::WorkerView;
use engine::counting::many;
use engine::ids::actor_name;

use crate::output::{Paper, Table, facts, moment_of, outline, plain, steps};

/// Maximum number of items of a list that are printed.
const FIRST: usize = 10;

pub(crate) fn overview(response: &Value, output: Paper) -> String {
    let Ok(told) = Overview::deserialize(response) else { return outline(response) };
    let execution =
        if told.enabled { "execution is on" } else { "execution is off: no steps start" };
    let mut text =
        format!("{}, {execution}\n", output.heading(&format!("Blueprint {}", told.blueprint)));
    let queued =
        told.queue.oldest.map(|at| format!(" since {}", moment_of(at.0))).unwrap_or_default();
    text += &facts([
        (
            "deployments",
            counted(
                told.deployments.all,
                [
                    (told.deployments.on_hold, "on hold"),
                    (told.deployments.proposed, "with an open proposal"),
                ],
            ),
        ),
        (
            "nodes",
            counted(
                told.nodes.all,
                [(told.nodes.dead, "dead"), (told.nodes.unavailable, "in maintenance")],
            ),
        ),
        ("steps", steps(&response["steps"])),
        ("runs", format!("{} running, {} queued{queued}", told.queue.running, told.queue.queued)),
        (
            "workers",
            format!(
                "{} alive, capacity {}",
                told.workers.alive,
                many(told.workers.capacity, "run")
            ),
        ),
        ("reviews", format!("{} open, {} for you", told.open_reviews, told.reviews)),
    ]);
    if !told.commits.is_empty() {
        text += &format!(
            "\n{}\n{}",
            output.heading("Last commits"),
            commits(&told.commits).text(output)
        );
    }
    if !told.stuck.is_empty() {
        text +=
            &format!("\n{}", pending_text(&PendingPage { groups: told.stuck, next: None }, output));
    }
    text
}

/// A total with non-zero parts, for example `30, 2 dead, 1 in maintenance`.
fn counted<const N: usize>(all: i64, parts: [(i64, &str); N]) -> String {
    let parts = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!(", {count} {label}"));
    format!("{all}{}", parts.collect::<String>())
}

fn commits(blueprints: &[BlueprintSummary]) -> Table {
    let mut table = Table::new(["TARGET", "DEPLOYMENT", "TITLE", "BY", "AT"]);
    for target in blueprints {
        let by = actor_name(target.by.as_deref()).to_owned();
        let deployment = target.deployment.clone().unwrap_or_default();
        table.row([
            target.number.to_string(),
            deployment,
            target.title.clone(),
            by,
            moment_of(target.at.0),
        ]);
    }
    table
}

pub(crate) fn node(response: &Value, output: Paper) -> String {
    let Ok(told) = NodeView::deserialize(response) else { return outline(response) };
    let life = &told.status;
    let since = at(life.alive_since);
    let since = if since.is_empty() { since } else { format!(", since {since}") };
    let mut text =
        format!("{} {}{since}\n", output.heading(&format!("{}:", plain(&told.fqdn))), how(life));
    let hints = told
        .hints
        .as_object()
        .is_some_and(|hints| !hints.is_empty())
        .then(|| told.hints.to_string());
    let valid_tokens =
        told.tokens.iter().filter(|token| token.valid).map(|token| token.name.as_str());
    let by = actor_name(told.added_by.as_deref());
    let undocumented = if told.record { " (record only: not part of any blueprint)" } else { "" };
    text += &facts([
        ("deployment", format!("{}{undocumented}", told.deployment)),
        ("description", told.description.clone()),
        ("maintenance", maintenance_text(life)),
        ("last seen", at(life.seen)),
        ("joined", format!("{} {}", life.joined, at(life.joined_since))),
        (
            "boot",
            [&life.bootenv, &life.boot_id]
                .into_iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("connection", way(&told.connection)),
        ("health check", told.health_checks.first().map(look).unwrap_or_default()),
        ("MAC", told.macs.join(", ")),
        ("serial", told.serial.clone()),
        ("hints", hints.unwrap_or_default()),
        (
            "facts from",
            told.facts.iter().map(|of| of.source.as_str()).collect::<Vec<_>>().join(", "),
        ),
        ("tokens", valid_tokens.collect::<Vec<_>>().join(", ")),
        ("added", format!("{} by {by}", moment_of(told.added.0))),
        ("change", leave(&told.may_change)),
        ("version", told.version.to_string()),
        ("id", told.id.to_string()),
    ]);
    if !told.noderoles.is_empty() {
        let mut table = Table::new(["ROLE", "DEPLOYMENT", "STATE", "SINCE", "ERROR"]);
        for carried in &told.noderoles {
            table.row([
                carried.role.to_string(),
                carried.deployment.to_string(),
                carried.state.word().to_owned(),
                moment_of(carried.since.0),
                carried.error.clone().unwrap_or_default(),
            ]);
        }
        let more = match told.more_noderoles {
            true => {
                format!("More noderoles: gantry node noderoles {} --all\n", told.id)
            }
            false => String::new(),
        };
        text += &format!("\n{}{more}", table.text(output));
    }
    if !told.runs.is_empty() {
        let mut table = Table::new(["RUN", "ROLE", "STATE", "QUEUED", "ENDED", "ERROR"]);
        for run in told.runs.iter().take(FIRST) {
            table.row([
                run.id.to_string(),
                run.role.to_string(),
                word(run.state).to_owned(),
                moment_of(run.queued.0),
                at(run.ended),
                run.error.clone().unwrap_or_default(),
            ]);
        }
        text += &format!("\n{}", table.text(output));
    }
    let id = told.id;
    text + &format!(
        "Health checks: gantry node health-checks {id}\nResults: gantry node results {id}\n"
    )
}

fn how(life: &NodeStatus) -> &'static str {
    match (life.alive, &life.alive_since, &life.maintenance) {
        (false, None, _) => "never reached",
        (false, Some(_), _) => "dead",
        (true, _, Some(_)) => "alive, in maintenance",
        (true, _, None) => "alive",
    }
}

fn maintenance_text(life: &NodeStatus) -> String {
    let Some(maintenance) = &life.maintenance else { return String::new() };
    let by = actor_name(maintenance.by.as_deref());
    format!("by {by} since {}: {}", at(maintenance.since), maintenance.reason)
}

fn way(way: &NodeConnection) -> String {
    match &way.ssh {
        None => format!("folder {}", way.root),
        Some(ssh) => format!(
            "ssh {}@{} port {}, key {} version {}, host key {}",
            ssh.user,
            ssh.addresses.join(" or "),
            ssh.port,
            ssh.key,
            ssh.key_version,
            ssh.fingerprint
        ),
    }
}

fn look(look: &HealthCheckView) -> String {
    let outcome = if look.reached {
        format!("reached at {}", look.address)
    } else {
        "not reached".to_owned()
    };
    let said = if look.message.is_empty() { String::new() } else { format!(": {}", look.message) };
    format!("{outcome}, {} by {}{said}", moment_of(look.at.0), look.by)
}

pub(crate) fn role(response: &Value, output: Paper) -> String {
    let Ok(told) = RoleView::deserialize(response) else { return outline(response) };
    let role = &told.role;
    let mut text = format!(
        "{} of {} {}\n",
        output.heading(&format!("Role {}:", role.name)),
        role.barclamp,
        plain(&told.version)
    );
    text += &facts([
        ("description", role.description.clone()),
        ("jig", format!("{} ({})", role.jig, role.jig_class.as_str())),
        ("flags", told.flags.join(", ")),
        ("requires", meant(&told.requires)),
        ("reads", meant(&told.wants)),
        ("provides", names(&role.provides)),
        ("conflicts with", names(&role.conflicts)),
        ("runs before", names(&role.preceeds)),
        ("required by", names(&told.required_by)),
        (
            "scripts",
            role.scripts.iter().map(|script| script.name.as_str()).collect::<Vec<_>>().join(", "),
        ),
        ("also in", names(&told.namesakes)),
        ("content", told.hash.to_string()),
    ]);
    if !role.attribs.is_empty() {
        let mut table = Table::new(["ATTRIBUTE", "PATH", "DEFAULT", "SCHEMA", "DESCRIPTION"]);
        let json = |value: &Option<Value>| value.as_ref().map(Value::to_string).unwrap_or_default();
        for attrib in &role.attribs {
            table.row([
                attrib.name.to_string(),
                attrib.map.join("/"),
                json(&attrib.default),
                json(&attrib.schema),
                attrib.description.clone(),
            ]);
        }
        text += &format!("\n{}", table.text(output));
    }
    if !told.bound.is_empty() {
        let mut table = Table::new(["DEPLOYMENT", "NODEROLES"]);
        for one in &told.bound {
            table.row([one.deployment.to_string(), one.noderoles.to_string()]);
        }
        text += &format!("\n{}", table.text(output));
    }
    let mut table = Table::new(["VERSION", "CONTENT", "USED BY"]);
    for one in &told.versions {
        let same = if one.same { "same as newest" } else { "different" };
        table.row([one.version.clone(), same.to_owned(), names(&one.used_by)]);
    }
    text + &format!("\n{}Graph: gantry role graph --role {}\n", table.text(output), role.name)
}

/// Names separated by commas.
fn names<N: ToString>(all: impl IntoIterator<Item = N>) -> String {
    all.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

/// Names in a role, each with the role that provides it if its name is different: `dns (by bind),
/// runtime`.
fn meant<N: ToString>(all: &[ResolvedName<N>]) -> String {
    let one = |one: &ResolvedName<N>| {
        let said = one.name.to_string();
        match one.by.as_slice() {
            [] => format!("{said} (no provider)"),
            [only] if only.as_str() == said => said,
            by => format!("{said} (by {})", names(by)),
        }
    };
    names(all.iter().map(one))
}

pub(crate) fn worker(response: &Value, output: Paper) -> String {
    let Ok(told) = WorkerView::deserialize(response) else { return outline(response) };
    let heard = if told.alive { "alive" } else { "not alive" };
    let name = output.heading(&format!("Worker {}:", plain(&told.name)));
    let more = told.leased - i64::try_from(told.runs.len()).unwrap_or(i64::MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let process = told.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    format!("{name} {}, {heard}\n", told.phase.as_str())
        + &facts([
            ("reason", told.reason.clone().unwrap_or_default()),
            ("leased", format!("{} of {}", told.leased, many(told.capacity, "run"))),
            ("runs", names(&told.runs) + &more),
            ("jigs", told.jigs.join(", ")),
            ("host", format!("{}{process}", told.host)),
            ("version", told.version.clone()),
            ("started", moment_of(told.started.0)),
            ("heartbeat", moment_of(told.last_heartbeat.0)),
            ("lease until", moment_of(told.lease_until.0)),
            ("id", told.id.to_string()),
        ])
}

fn at(at: Option<api::At>) -> String {
    at.map(|at| moment_of(at.0)).unwrap_or_default()
}

pub(crate) fn noderole(response: &Value, output: Paper) -> String {
    let Ok(told) = NoderoleView::deserialize(response) else { return outline(response) };
    let applied = told.applied.map_or_else(|| "none yet".to_owned(), |target| target.to_string());
    let mut text = format!(
        "{} {}, since {}\n",
        output.heading(&format!("{} on {}:", told.role, plain(&told.fqdn))),
        told.state.word(),
        moment_of(told.since.0)
    );
    text += &facts([
        ("deployment", told.deployment.to_string()),
        ("role", told.description.clone()),
        ("reason", told.why.join(" ")),
        ("error", told.error.clone().unwrap_or_default()),
        ("generation", told.generation.to_string()),
        ("applied blueprint", applied),
        ("dependencies", steps_of(&told.parents)),
        ("dependents", steps_of(&told.children)),
        ("retry", leave(&told.may_retry)),
        ("id", told.id.to_string()),
    ]);
    let layers: Vec<&DataLayer> = told
        .layers
        .iter()
        .filter(|layer| layer.value.as_object().is_none_or(|data| !data.is_empty()))
        .collect();
    if !layers.is_empty() {
        let mut table = Table::new(["SOURCE", "DATA"]);
        for layer in layers {
            table.row([layer.source.clone(), layer.value.to_string()]);
        }
        text += &format!("\n{}", table.text(output));
    }
    if !told.runs.is_empty() {
        text += &format!("\n{}", attempts(&told.runs).text(output));
    }
    text + &format!("All values with their sources: gantry noderole data {}\n", told.id)
}

/// A noderole in an open proposal.
pub(crate) fn drafted(response: &Value, output: Paper) -> String {
    let Ok(told) = DraftedNoderole::deserialize(response) else { return outline(response) };
    let existence = match (told.proposed, told.rerun) {
        (true, _) => "exists only in the proposal",
        (false, true) => "exists, and the proposal runs it again",
        (false, false) => "exists",
    };
    let mut text = facts([
        ("state", existence.to_owned()),
        ("own data", told.data.to_string()),
        ("default data", told.defaults.to_string()),
    ]);
    if !told.attribs.is_empty() {
        let mut table = Table::new(["ATTRIBUTE", "PATH", "SCHEMA", "DESCRIPTION"]);
        for attrib in told.attribs {
            let schema = attrib.schema.map(|schema| schema.to_string()).unwrap_or_default();
            table.row([attrib.name, attrib.path, schema, attrib.description]);
        }
        text += &format!("\n{}", table.text(output));
    }
    text
}

/// For example `proxy on n1 ACTIVE, app on n2 ERROR and 3 more`.
fn steps_of(all: &[impl Borrow<NoderoleRef>]) -> String {
    let one = |step: &NoderoleRef| format!("{} on {} {}", step.role, step.fqdn, step.state.word());
    let first: Vec<String> = all.iter().take(FIRST).map(|step| one(step.borrow())).collect();
    let more = all.len().saturating_sub(FIRST);
    first.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn leave(permission: &Result<(), String>) -> String {
    match permission {
        Ok(()) => "possible".to_owned(),
        Err(why) => format!("not possible: {why}"),
    }
}

pub(crate) fn run(response: &Value, output: Paper) -> String {
    let Ok(told) = RunView::deserialize(response) else { return outline(response) };
    let run = &told.run;
    let mut text = format!(
        "{} {} of {} on {}\n",
        output.heading(&format!("Run {}:", run.id)),
        word(run.state),
        run.role,
        plain(&run.fqdn)
    );
    text += &facts([
        ("error", run.error.clone().unwrap_or_default()),
        ("deployment", run.deployment.to_string()),
        ("target", run.blueprint.to_string()),
        ("review", told.review.map(|id| id.to_string()).unwrap_or_default()),
        ("cause", run.cause.clone().unwrap_or_default()),
        ("worker", run.worker.clone().unwrap_or_default()),
        ("queued", moment_of(run.queued.0)),
        ("started", at(run.started)),
        ("ended", at(run.ended)),
        ("result", result(&told)),
        ("cancel", leave(&told.may_cancel)),
        ("noderole", run.noderole.to_string()),
    ]);
    if told.attempts.len() > 1 {
        text += &format!("\n{}", attempts(&told.attempts).text(output));
    }
    let id = run.id;
    text + &format!(
        "Input: gantry run data {id}\nLog ({} bytes): gantry logs {id}\n",
        told.log_bytes
    )
}

fn result(told: &RunView) -> String {
    match &told.result {
        Some(result) => result.to_string(),
        None if told.result_gone => "no longer stored".to_owned(),
        None => String::new(),
    }
}

/// The state of a run as in lists and filters.
fn word(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "queued",
        RunState::Running => "running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Lost => "lost",
        RunState::Cancelled => "cancelled",
        RunState::Unstarted => "unstarted",
    }
}

fn attempts(runs: &[RunSummary]) -> Table {
    let mut table = Table::new(["RUN", "STATE", "TARGET", "QUEUED", "ENDED", "ERROR"]);
    for run in runs.iter().take(FIRST) {
        table.row([
            run.id.to_string(),
            word(run.state).to_owned(),
            run.blueprint.to_string(),
            moment_of(run.queued.0),
            at(run.ended),
            run.error.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// Pending steps by reason, each with the action that resolves it.
pub(crate) fn pending_text(page: &PendingPage, output: Paper) -> String {
    let mut text = String::new();
    for group in &page.groups {
        let count = group
            .count
            .map(|count| format!(" ({count}{})", if group.more { "+" } else { "" }))
            .unwrap_or_default();
        text += &format!(
            "{}{count} - resolved by {}\n",
            output.heading(&plain(&group.heading)),
            plain(&group.resolution)
        );
        let mut table = Table::new(["  STEP", "NODE", "DEPLOYMENT", "STATE", "SINCE", "REASON"]);
        for step in &group.steps {
            table.row([
                format!("  {}", step.role),
                step.fqdn.clone(),
                step.deployment.to_string(),
                step.state.word().to_owned(),
                moment_of(step.since.0),
                step.reasons.join(" "),
            ]);
        }
        if !group.steps.is_empty() {
            text += &table.text(output);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(id: i64, state: &str) -> Value {
        json!({"id": id, "noderole": uuid::Uuid::nil(), "role": "app", "fqdn": "n1.demo", "deployment": "web", "state": state, "cause": null,
            "blueprint": 3, "worker": "w1", "queued": 1_790_000_000_000_i64, "started": null, "ended": null, "error": "it\nbroke"})
    }

    #[test]
    fn run_page_has_aligned_lines() {
        let view = json!({"run": summary(7, "failed"), "input": {"secret": "x"}, "provenance": [], "values": 0, "result": {"a": 1},
            "result_gone": false, "output": null, "attempts": [summary(7, "failed"), summary(6, "lost")], "review": null,
            "may_cancel": {"Err": "it has ended"}, "log_bytes": 12, "cursor": 1});
        let text = run(&view, Paper::new(false));
        for line in [
            "Run 7: failed of app on n1.demo\n",
            "  error       it broke\n",
            "  deployment  web\n",
            "  result      {\"a\":1}\n",
            "  cancel      not possible: it has ended\n",
            "\n6    lost    3 ",
            "gantry logs 7\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(!text.contains("started") && !text.contains("secret"), "{text}");
        assert_eq!(
            run(&json!({"of": "another"}), Paper::new(false)),
            "of: another\n",
            "printed as an outline"
        );
    }

    #[test]
    fn node_page_has_noderoles_and_connection() {
        let moment = 1_790_000_000_000_i64;
        let id = uuid::Uuid::from_u128(2);
        let mut view = json!({"id": id, "fqdn": "n1.demo", "version": 3, "description": "by the\u{202e} door", "deployment": "web",
            "deployment_id": uuid::Uuid::nil(), "record": false,
            "status": {"alive": true, "alive_since": moment, "seen": moment, "contradicting": 0, "threshold": 3,
                "maintenance": {"by": "ada", "since": moment, "reason": "a new disk"}, "joined": "confirmed", "joined_since": moment,
                "boot_id": "8f14", "bootenv": null},
            "connection": {"transport": "ssh", "root": "/", "ssh": {"addresses": ["10.0.3.7", "n1.mgmt"], "port": 22, "user": "root",
                "key": "deploy/ssh", "key_version": 1, "host_key": "ssh-ed25519 AAAA", "fingerprint": "SHA256:xyz"}},
            "macs": ["00:25:90:aa:00:01"], "serial": "", "hints": {"rack": 7}, "added_by": null, "added": moment,
            "health_checks": [{"at": moment, "reached": false, "address": "", "message": "no answer", "tried": [], "took_ms": 1, "by": "w1"}],
            "noderoles": [{"id": uuid::Uuid::nil(), "role": "app", "deployment": "web", "deployment_id": uuid::Uuid::nil(),
                "state": "error", "since": moment, "error": "it\nbroke"}],
            "more_noderoles": true, "runs": [summary(7, "failed")],
            "facts": [{"source": "role facts", "facts": {"cores": 4}, "at": moment, "run": null}], "reports": [],
            "tokens": [{"id": id, "name": "its unit", "by": null, "created": moment, "expires": moment, "used": null, "revoked": null,
                "valid": true}, {"id": id, "name": "old", "by": null, "created": moment, "expires": moment, "used": null,
                "revoked": moment, "valid": false}],
            "may_change": {"Err": "you may not"}, "cursor": 1});
        let text = node(&view, Paper::new(false));
        for line in [
            "n1.demo: alive, in maintenance, since 2026-09-21 14:13:20Z\n",
            "  deployment    web\n",
            "  maintenance   by ada since 2026-09-21 14:13:20Z: a new disk\n",
            "  joined        confirmed 2026-09-21 14:13:20Z\n",
            "  boot          8f14\n",
            "  connection    ssh root@10.0.3.7 or n1.mgmt port 22, key deploy/ssh version 1, host key SHA256:xyz\n",
            "  health check  not reached, 2026-09-21 14:13:20Z by w1: no answer\n",
            "  hints         {\"rack\":7}\n",
            "  facts from    role facts\n",
            "  tokens        its unit\n",
            "  added         2026-09-21 14:13:20Z by Gantry\n",
            "  change        not possible: you may not\n",
            "\napp   web         ERROR  2026-09-21 14:13:20Z  it broke\nMore noderoles: gantry node noderoles 00000000-0000-0000-0000-000000000002 --all\n",
            "\n7    app   failed  2026-09-21 14:13:20Z         it broke\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(text.ends_with(&format!("gantry node results {id}\n")), "{text}");
        assert!(
            !text.contains("serial") && !text.contains("ssh-ed25519") && !text.contains('\u{202e}'),
            "{text}"
        );
        view["status"] = json!({"alive": false, "alive_since": null, "seen": null, "contradicting": 0, "threshold": 3, "maintenance": null,
            "joined": "none", "joined_since": null, "boot_id": null, "bootenv": null});
        view["connection"] = json!({"transport": "local", "root": "/srv/n1", "ssh": null});
        view["record"] = json!(true);
        let text = node(&view, Paper::new(false));
        for line in [
            "n1.demo: never reached\n",
            "  deployment    web (record only: not part of any blueprint)\n",
            "  joined        none\n",
            "  connection    folder /srv/n1\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert_eq!(
            node(&json!({"of": "another"}), Paper::new(false)),
            "of: another\n",
            "printed as an outline"
        );
    }

    #[test]
    fn role_page_has_providers_and_users() {
        let hash = "5f".repeat(32);
        let view = json!({"role": {"name": "app", "barclamp": "demo", "jig": "script", "jig_class": "script",
                "description": "An\napplication", "provides": ["http"], "scripts": [],
                "attribs": [{"name": "port", "description": "Where it listens", "map": ["app", "port"], "default": 80}]},
            "hash": hash, "version": "3", "flags": ["milestone"],
            "requires": [{"name": "runtime", "by": ["runtime"]}, {"name": "dns", "by": ["bind", "unbound"]}, {"name": "x", "by": []}],
            "wants": [], "required_by": ["proxy", "web-ready"], "namesakes": [],
            "versions": [{"version": "3", "same": true, "used_by": ["web"]}, {"version": "2", "same": false, "used_by": []}],
            "bound": [{"deployment": "web", "noderoles": 12}]});
        let text = role(&view, Paper::new(false));
        for line in [
            "Role app: of demo 3\n",
            "  description  An application\n",
            "  requires     runtime, dns (by bind, unbound), x (no provider)\n",
            "  provides     http\n",
            "  required by  proxy, web-ready\n",
            "\nport       app/port  80               Where it listens\n",
            "\nweb         12\n",
            "\n3        same as newest  web\n2        different\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(
            text.ends_with("gantry role graph --role app\n") && !text.contains("conflicts"),
            "{text}"
        );
        assert_eq!(
            role(&json!({"of": "another"}), Paper::new(false)),
            "of: another\n",
            "printed as an outline"
        );
    }

    #[test]
    fn drafted_noderole_page_has_attribute_schemas() {
        let mut view = json!({"data": {"port": 81}, "defaults": {"port": 80}, "proposed": false, "rerun": true,
            "attribs": [{"name": "port", "path": "/port", "description": "Where it listens", "schema": {"type": "integer"}}]});
        let text = drafted(&view, Paper::new(false));
        for line in [
            "exists, and the proposal runs it again\n",
            "  own data      {\"port\":81}\n",
            "  default data  {\"port\":80}\n",
            "\nport       /port  {\"type\":\"integer\"}  Where it listens\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        view["proposed"] = json!(true);
        assert!(drafted(&view, Paper::new(false)).contains("exists only in the proposal"));
        assert_eq!(
            drafted(&json!({"of": "another"}), Paper::new(false)),
            "of: another\n",
            "printed as an outline"
        );
    }

    #[test]
    fn worker_page_lists_leased_runs() {
        let moment = 1_790_000_000_000_i64;
        let mut view = json!({"id": uuid::Uuid::nil(), "name": "w1", "phase": "confirmed", "alive": true, "capacity": 8, "leased": 5,
            "runs": [7, 8], "jigs": ["noop", "script"], "host": "here", "pid": 12, "version": "0.1.0", "started": moment, "last_heartbeat": moment,
            "lease_until": moment, "reason": null});
        let text = worker(&view, Paper::new(false));
        for line in [
            "Worker w1: confirmed, alive\n",
            "  leased       5 of 8 runs\n",
            "  runs         7, 8 and 3 more\n",
            "  jigs         noop, script\n",
            "  host         here, process 12\n",
            "  heartbeat    2026-09-21 14:13:20Z\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(!text.contains("reason"), "{text}");
        (view["alive"], view["leased"], view["runs"]) = (json!(false), json!(0), json!([]));
        (view["phase"], view["reason"]) = (json!("none"), json!("it was\nstopped"));
        let text = worker(&view, Paper::new(false));
        assert!(
            text.starts_with("Worker w1: none, not alive\n  reason       it was stopped\n"),
            "{text}"
        );
        assert!(!text.contains("  runs"), "{text}");
        assert_eq!(
            worker(&json!({"of": "another"}), Paper::new(false)),
            "of: another\n",
            "printed as an outline"
        );
    }

    #[test]
    fn overview_has_counts_and_pending_steps() {
        let view = json!({"blueprint": 3, "enabled": false, "deployments": {"all": 2, "on_hold": 1, "proposed": 0},
            "nodes": {"all": 30, "dead": 2, "unavailable": 0},
            "steps": {"blocked": 0, "todo": 0, "transition": 0, "active": 5, "error": 1}, "stuck": [],
            "reviews": {"count": 1, "more": true}, "open_reviews": 2, "commits": [], "queue": {"queued": 0, "running": 4, "oldest": null},
            "workers": {"alive": 1, "capacity": 8}, "hours": [], "first_steps": null});
        let text = overview(&view, Paper::new(false));
        for line in [
            "Blueprint 3, execution is off: no steps start\n",
            "  deployments  2, 1 on hold\n",
            "  nodes        30, 2 dead\n",
            "  steps        1 ERROR, 5 ACTIVE\n",
            "  runs         4 running, 0 queued\n",
            "  reviews      2 open, 1+ for you\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
    }
}
