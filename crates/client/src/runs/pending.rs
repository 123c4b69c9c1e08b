//! Pending steps, with the reason and the action that resolves it.

use api::pending::PendingPage;
use clap::Args;
use serde_json::Value;

use crate::address::Query;
use crate::client::{Client, WatchOption};
use crate::exit::Outcome;
use crate::names;
use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, plain};
use crate::runs::role_and_action;
use crate::server::taken;

#[derive(Debug, Args)]
pub(crate) struct Pending {
    /// Name of a deployment
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// The node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// List all steps with this reason (failed, on_hold, ...)
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Sort order within each reason: since (longest pending first) or -since
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    sort: Option<String>,
    #[command(flatten)]
    again: WatchOption,
}

pub(crate) fn pending(client: &Client, args: &Pending) -> Outcome {
    let server = &client.server;
    let node = args
        .node
        .as_deref()
        .map(|node| names::node(server, node))
        .transpose()?
        .map(|node| node.fqdn);
    let query = Query::default()
        .with("deployment", &args.deployment)
        .with("node", &node)
        .with("reason", &args.reason)
        .with("sort", &args.sort);
    // With one reason, the pages form one list.
    let fetch = || {
        let path = api::calls::List::Pending.path("");
        let mut whole = server.get(&query.on(&path))?;
        while let (Some(reason), Value::String(next)) = (&args.reason, taken(&mut whole, "next")) {
            let mut more = server.get(&query.clone().with("after", next).on(&path))?;
            if let (Some(steps_so_far), Some(steps)) =
                (steps_of(&mut whole, reason), steps_of(&mut more, reason))
            {
                steps_so_far.append(steps);
            }
            if let Some(page) = whole.as_object_mut() {
                page.insert("next".into(), taken(&mut more, "next"));
            }
        }
        Ok(whole)
    };
    client.show(args.again, fetch, |value, output| {
        match serde_json::from_value::<PendingPage>(value.clone()) {
            Ok(page) => match args.reason {
                None if page.groups.is_empty() => "No pending steps.\n".to_owned(),
                None => pending_text(&page, output),
                Some(_) => pending_with_reason(page, output),
            },
            Err(_) => outline(value),
        }
    })
}

/// Pending steps of the requested reason. The answer also has the counts of the other reasons.
fn pending_with_reason(mut page: PendingPage, output: OutputFormat) -> String {
    page.groups.retain(|group| !group.steps.is_empty());
    if page.groups.is_empty() {
        "No pending steps with this reason.\n".to_owned()
    } else {
        pending_text(&page, output)
    }
}

/// The steps of one reason. The other reasons have only counts.
fn steps_of<'p>(page: &'p mut Value, reason: &str) -> Option<&'p mut Vec<Value>> {
    let groups = page.get_mut("groups")?.as_array_mut()?;
    groups.iter_mut().find(|group| group["reason"] == reason)?.get_mut("steps")?.as_array_mut()
}

/// Pending steps by reason, each with the action that resolves it.
pub(crate) fn pending_text(page: &PendingPage, output: OutputFormat) -> String {
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
                format!("  {}", role_and_action(&step.role, &step.action)),
                step.fqdn.clone(),
                step.deployment.to_string(),
                step.state.label().to_owned(),
                output.time_of(step.since.0),
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

    #[test]
    fn reason_filter_hides_other_reasons() {
        let step = json!({"noderole": uuid::Uuid::nil(), "role": "app", "node": uuid::Uuid::nil(),
            "fqdn": "n1.demo",
            "deployment": "web", "deployment_id": uuid::Uuid::nil(), "state": "error",
            "since": "2026-09-21T14:13:20Z", "reasons": ["It failed."], "resolved_by": []});
        let group = |reason: &str, heading: &str, steps: Value| {
            json!(
                {
                    "reason": reason, "heading": heading, "resolution": "a person", "count": 1,
                    "more": false, "steps": steps
                }
            )
        };
        let page = |steps: Value| -> PendingPage {
            let groups = [group("failed", "Failed", steps), group("on_hold", "On hold", json!([]))];
            serde_json::from_value(json!({"groups": groups})).unwrap()
        };
        let view = pending_with_reason(page(json!([step])), OutputFormat::default());
        assert!(
            view.contains(" (1) - resolved by a person\n") && view.contains("It failed."),
            "{view}"
        );
        assert!(!view.contains("On hold"), "{view}");
        let mut removal = step.clone();
        removal["action"] = json!("remove");
        let view = pending_with_reason(page(json!([removal])), OutputFormat::default());
        assert!(view.contains("  app (remove) "), "{view}");
        assert_eq!(
            pending_with_reason(page(json!([])), OutputFormat::default()),
            "No pending steps with this reason.\n"
        );
    }

    #[test]
    fn steps_of_requested_reason_are_found() {
        let mut page = json!(
            {"groups": [{"reason": "on_hold", "steps": []}, {"reason": "failed", "steps": [1, 2]}]}
        );
        assert_eq!(steps_of(&mut page, "failed").map(|steps| steps.len()), Some(2));
        assert_eq!(steps_of(&mut page, "on_hold").map(|steps| steps.len()), Some(0));
        assert!(steps_of(&mut page, "nothing").is_none());
        for other in [
            json!(null),
            json!([]),
            json!({"groups": []}),
            json!({"groups": [{"reason": "failed"}]}),
        ] {
            assert!(steps_of(&mut other.clone(), "failed").is_none(), "{other}");
        }
    }
}
