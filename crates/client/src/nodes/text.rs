//! A node as text.
//!
//! An answer of unknown form, for example from a newer server, is printed as an outline. So nothing
//! is missing.

use api::nodes::{HealthCheckView, NodeConnection, NodeFacts, NodeStatus, NodeView};
use engine::cluster::phantom;
use engine::ids::{Fqdn, actor_name};
use serde::Deserialize as _;
use serde_json::Value;

use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{
    FIRST, OutputFormat, facts, format_time, optional_moment, permission_text, plain,
};
use crate::runs::{role_and_action, state_name};

pub(crate) fn node_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = NodeView::deserialize(response) else { return outline(response) };
    let life = &view.status;
    let fqdn = Fqdn::parse(&view.fqdn).ok();
    let is_phantom = fqdn.is_some_and(|fqdn| phantom::represented_deployment(&fqdn).is_some());
    let name = match is_phantom {
        true => phantom::command_name_of(view.deployment.as_str()),
        false => view.fqdn.clone(),
    };
    let since = optional_moment(life.alive_since);
    let since = if since.is_empty() { since } else { format!(", since {since}") };
    let mut text = format!(
        "{} {}{since}\n",
        output.heading(&format!("{}:", plain(&name))),
        if is_phantom { "phantom node" } else { status_text(life) }
    );
    let hints = view
        .hints
        .as_object()
        .is_some_and(|hints| !hints.is_empty())
        .then(|| view.hints.to_string());
    let valid_tokens =
        view.tokens.iter().filter(|token| token.valid).map(|token| token.name.as_str());
    let by = actor_name(view.added_by.as_deref());
    let undocumented =
        if view.record_only { " (record only: not part of any blueprint)" } else { "" };
    text += &facts([
        ("deployment", format!("{}{undocumented}", view.deployment)),
        ("description", view.description.clone()),
        ("maintenance", maintenance_text(life)),
        ("last seen", optional_moment(life.last_seen)),
        ("joined", format!("{} {}", life.joined.as_str(), optional_moment(life.joined_since))),
        (
            "boot",
            [&life.bootenv, &life.boot_id]
                .into_iter()
                .flatten()
                .cloned()
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("connection", connection_text(&view.connection)),
        ("health check", view.health_checks.first().map(health_check_text).unwrap_or_default()),
        ("MAC", view.macs.join(", ")),
        ("serial", view.serial.clone()),
        ("hints", hints.unwrap_or_default()),
        ("facts from", view.facts.iter().map(fact_source).collect::<Vec<_>>().join(", ")),
        ("tokens", valid_tokens.collect::<Vec<_>>().join(", ")),
        ("added", format!("{} by {by}", format_time(view.added.0))),
        ("change", permission_text(&view.may_change)),
        ("version", view.version.to_string()),
        ("id", view.id.to_string()),
    ]);
    if !view.noderoles.is_empty() {
        let mut table = Table::new(["ROLE", "DEPLOYMENT", "STATE", "SINCE", "ERROR"]);
        for carried in &view.noderoles {
            table.row([
                carried.role.to_string(),
                carried.deployment.to_string(),
                carried.state.label().to_owned(),
                output.time_of(carried.since.0),
                carried.error.clone().unwrap_or_default(),
            ]);
        }
        let more = match view.more_noderoles {
            true => {
                format!("More noderoles: gantry node noderoles {} --all\n", view.id)
            }
            false => String::new(),
        };
        text += &format!("\n{}{more}", table.text(output));
    }
    if !view.runs.is_empty() {
        let mut table = Table::new(["RUN", "ROLE", "STATE", "QUEUED", "ENDED", "ERROR"]);
        for run in view.runs.iter().take(FIRST) {
            table.row([
                run.id.to_string(),
                role_and_action(&run.role, &run.action),
                state_name(run.state).to_owned(),
                output.time_of(run.queued.0),
                output.optional_time(run.ended),
                run.error.clone().unwrap_or_default(),
            ]);
        }
        text += &format!("\n{}", table.text(output));
    }
    let id = view.id;
    text + &format!(
        "Health checks: gantry node health-checks {id}\nResults: gantry node results {id}\n"
    )
}

fn status_text(life: &NodeStatus) -> &'static str {
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
    format!("by {by} since {}: {}", optional_moment(maintenance.since), maintenance.reason)
}

fn connection_text(connection: &NodeConnection) -> String {
    match &connection.ssh {
        None => format!("folder {}", connection.root),
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

fn health_check_text(check: &HealthCheckView) -> String {
    let outcome = if check.reached {
        format!("reached at {}", check.address)
    } else {
        "not reached".to_owned()
    };
    let text =
        if check.message.is_empty() { String::new() } else { format!(": {}", check.message) };
    format!("{outcome}, {} by {}{text}", format_time(check.at.0), check.by)
}

/// The source of facts: the node itself, or a role.
fn fact_source(of: &NodeFacts) -> String {
    match &of.role {
        Some(role) => format!("role {role}"),
        None => "node".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Format;

    fn summary(id: i64, state: &str) -> Value {
        json!({"id": id, "noderole": uuid::Uuid::nil(), "role": "app", "node": uuid::Uuid::nil(),
            "fqdn": "n1.demo",
            "deployment": "web", "deployment_id": uuid::Uuid::nil(), "state": state, "cause": null,
            "blueprint": 3, "worker": "w1", "queued": "2026-09-21T14:13:20Z", "started": null,
            "ended": null, "error": "it\nbroke"})
    }

    #[test]
    fn node_page_has_noderoles_and_connection() {
        let moment = "2026-09-21T14:13:20Z";
        let id = uuid::Uuid::from_u128(2);
        let mut view = json!({"id": id, "fqdn": "n1.demo", "version": 3,
            "description": "by the\u{202e} door", "deployment": "web",
            "deployment_id": uuid::Uuid::nil(), "record_only": false,
            "status": {"alive": true, "alive_since": moment, "last_seen": moment,
            "contradicting": 0, "threshold": 3,
                "maintenance": {
                    "by": "ada",
                    "since": moment,
                    "reason": "a new disk"
                }, "joined": "confirmed", "joined_since": moment,
                "boot_id": "8f14", "bootenv": null},
            "connection": {"transport": "ssh", "root": "/", "ssh": {"addresses": ["10.0.3.7",
            "n1.mgmt"], "port": 22, "user": "root",
                "key": "deploy/ssh", "key_version": 1, "host_key": "ssh-ed25519 AAAA",
                "fingerprint": "SHA256:xyz"}},
            "macs": [
                "00:25:90:aa:00:01"
            ], "serial": "", "hints": {"rack": 7}, "added_by": null, "added": moment,
            "health_checks": [
                {
                    "at": moment, "reached": false, "address": "", "message": "no answer",
                    "tried": [], "duration_ms": 1, "by": "w1"
                }
            ],
            "noderoles": [{"id": uuid::Uuid::nil(), "role": "app", "deployment": "web",
            "deployment_id": uuid::Uuid::nil(),
                "state": "error", "since": moment, "error": "it\nbroke"}],
            "more_noderoles": true, "runs": [summary(7, "failed")],
            "facts": [
                {
                    "source": "role", "role": "facts", "facts": {"cores": 4}, "at": moment,
                    "run": null
                }
            ], "reports": [],
            "tokens": [{"id": id, "name": "its unit", "by": null, "created": moment,
            "expires": moment, "used": null, "revoked": null,
                "valid": true}, {"id": id, "name": "old", "by": null, "created": moment,
                "expires": moment, "used": null,
                "revoked": moment, "valid": false}],
            "may_change": {"allowed": false, "reason": "you may not"}, "cursor": 1});
        let wide = OutputFormat { format: Format::Wide, ..OutputFormat::default() };
        let text = node_text(&view, wide);
        for line in [
            "n1.demo: alive, in maintenance, since 2026-09-21 14:13:20Z\n",
            "  deployment    web\n",
            "  maintenance   by ada since 2026-09-21 14:13:20Z: a new disk\n",
            "  joined        confirmed 2026-09-21 14:13:20Z\n",
            "  boot          8f14\n",
            "  connection    ssh root@10.0.3.7 or n1.mgmt port 22, key deploy/ssh version 1, host \
             key SHA256:xyz\n",
            "  health check  not reached, 2026-09-21 14:13:20Z by w1: no answer\n",
            "  hints         {\"rack\":7}\n",
            "  facts from    role facts\n",
            "  tokens        its unit\n",
            "  added         2026-09-21 14:13:20Z by Gantry\n",
            "  change        not possible: you may not\n",
            "\napp   web         ERROR  2026-09-21 14:13:20Z  it broke\nMore noderoles: gantry \
             node noderoles 00000000-0000-0000-0000-000000000002 --all\n",
            "\n7    app   failed  2026-09-21 14:13:20Z         it broke\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert!(text.ends_with(&format!("gantry node results {id}\n")), "{text}");
        assert!(
            !text.contains("serial") && !text.contains("ssh-ed25519") && !text.contains('\u{202e}'),
            "{text}"
        );
        view["status"] = json!({"alive": false, "alive_since": null, "last_seen": null,
            "contradicting": 0, "threshold": 3, "maintenance": null,
            "joined": "none", "joined_since": null, "boot_id": null, "bootenv": null});
        view["connection"] = json!({"transport": "local", "root": "/srv/n1", "ssh": null});
        view["record_only"] = json!(true);
        let text = node_text(&view, OutputFormat::default());
        for line in [
            "n1.demo: never reached\n",
            "  deployment    web (record only: not part of any blueprint)\n",
            "  joined        none\n",
            "  connection    folder /srv/n1\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        assert_eq!(
            node_text(&json!({"of": "another"}), OutputFormat::default()),
            "of: another\n",
            "an unknown answer is printed as an outline"
        );
    }
}
