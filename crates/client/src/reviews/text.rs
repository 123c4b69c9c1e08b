//! Reviews as text: the change, its impact, the viewed changes, and the discussion.

use api::proposals::Replanned;
use api::reviews::{Discussion, ReviewedNoderole, ThreadResolution, ViewedChanges};
use engine::blueprint::Impact;
use engine::blueprint::impact::{Counted, Touched, WaveGroup};
use engine::blueprint::secret_uses::SecretChange;
use engine::blueprint::text::{HashDescriptions, Names};
use engine::catalog::OnInput;
use engine::counting::many;
use engine::ids::ReviewId;
use serde::Deserialize as _;
use serde_json::Value;

use crate::output::outline::outline;
use crate::output::table::Table;
use crate::output::{OutputFormat, format_time, plain, sanitize_lines, time_text, value_text};
use crate::proposals::{indented, reasons, replanned};

/// Differences between a review and the one that it replaces.
fn effect_changes(came: &Replanned, value: &Value) -> Vec<String> {
    let mut lines = vec![match came.refused.is_empty() {
        true => format!("Planned again from review {}.", came.before),
        false => format!("Submitted again: review {} was sent back to its authors.", came.before),
    }];
    lines.extend(reasons(came));
    if !came.voided_verdicts.is_empty() {
        lines.push(plain(&format!(
            "Verdicts that do not count here: {}.",
            came.voided_verdicts.join(", ")
        )));
    }
    if came.same_effect {
        lines.push("The effect is unchanged.".to_owned());
        return lines;
    }
    if came.effect_changes.is_empty() {
        lines.push("The same values change, but the effects or risks differ.".to_owned());
        return lines;
    }
    let names: Names = serde_json::from_value(value.clone()).unwrap_or_default();
    for (title, side) in
        [("Before:", &came.effect_changes.before), ("Now:", &came.effect_changes.after)]
    {
        lines.push(title.to_owned());
        match side.is_empty() {
            true => lines.push("  Nothing.".to_owned()),
            false => {
                let text = sanitize_lines(&side.text(&names, &HashDescriptions::default()));
                lines.extend(text.lines().map(|line| format!("  {line}")));
            }
        }
    }
    if came.more > 0 {
        lines.push(format!("{} not shown.", many(came.more, "document")));
    }
    lines
}

/// The viewed changes, by anchor.
pub(crate) fn viewed_text(value: &Value, id: ReviewId) -> String {
    let Ok(view) = serde_json::from_value::<ViewedChanges>(value.clone()) else {
        return outline(value);
    };
    let mut text =
        format!("You have viewed {} of {}.\n", view.viewed.len(), many(view.all, "change"));
    text += &view.viewed.iter().map(|anchor| format!("  {anchor}\n")).collect::<String>();
    if !view.outdated.is_empty() {
        text += "Changed since you viewed them:\n";
        text += &view.outdated.iter().map(|anchor| format!("  {anchor}\n")).collect::<String>();
    }
    text + &format!("All changes with their ids: gantry review diff {id} --json\n")
}

fn lines_of(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|all| all.iter().map(|line| plain(&value_text(line))).collect())
        .unwrap_or_default()
}

pub(crate) fn review_text(value: &Value, output: OutputFormat) -> String {
    let word = |word: &str| plain(&value_text(&value[word]));
    let mut text =
        format!("{} {}\n", output.heading(&format!("Review {}:", word("review"))), word("title"));
    let node =
        value["fqdn"].as_str().map(|node| format!(", node {}", plain(node))).unwrap_or_default();
    let at = time_text(&value["at"]);
    text += &format!(
        "on {}{node}, by {}, {at}\nstate: {} (proposal {} version {}, planned on blueprint {})\n",
        word("deployment"),
        word("authors"),
        word("state").replace('_', " "),
        word("proposal"),
        word("version"),
        word("parent")
    );
    if !value["blueprint"].is_null() {
        text += &format!("blueprint: {}\n", word("blueprint"));
    }
    if !value["risks"].as_array().is_none_or(Vec::is_empty) {
        text += &format!("risks: {}\n", word("risks"));
    }
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text += &format!("\n{}\n{}", output.heading(title), indented(&lines));
        }
    };
    if let Some(replacement) = replanned(&value["replaced_by"]) {
        match replacement.after {
            Some(after) => {
                let effect_text =
                    if replacement.same_effect { "the same effect" } else { "another effect" };
                let mut lines = reasons(&replacement);
                lines.push(format!(
                    "Planned again as review {after}, with {effect_text}: gantry review show \
                     {after}"
                ));
                part("The base changed", lines);
            }
            None => part("Sent back to its authors", reasons(&replacement)),
        }
    }
    if let Some(came) = replanned(&value["replaces"]) {
        part("The base changed", effect_changes(&came, value));
    }
    part("Summary", lines_of(&value["summary"]));
    let secrets = serde_json::from_value::<Vec<SecretChange>>(value["impact"]["secrets"].clone());
    part(
        "Secrets",
        secrets.unwrap_or_default().iter().map(|secret| plain(&secret.to_string())).collect(),
    );
    let checks = value["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    part("Lint", checks.iter().map(finding_line).collect());
    let waves = value["waves"].as_array().map(Vec::as_slice).unwrap_or_default();
    part(
        "Order",
        waves
            .iter()
            .map(|wave| {
                format!("{}. {}", value_text(&wave["number"]), plain(&value_text(&wave["items"])))
            })
            .collect(),
    );
    part("Pending", lines_of(&value["pending_reasons"]));
    let gate = &value["gate"];
    let mut lines = vec![format!(
        "{} of {}",
        value_text(&gate["approvals"]),
        many(gate["needed"].as_u64().unwrap_or_default(), "approval")
    )];
    if !gate["can_approve"].as_array().is_none_or(Vec::is_empty) {
        lines.push(format!("can approve: {}", plain(&value_text(&gate["can_approve"]))));
    }
    let rules = gate["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    // The first line has the number of approvals, and the permissions below name one rule each.
    let open_rules = rules.iter().filter(|rule| {
        let text = rule["text"].as_str();
        let is_shown = ["may_review", "may_commit"].iter().any(|permission| {
            value[permission]["reason"].as_str().is_some_and(|reason| Some(reason) == text)
        });
        rule["passes"] != true && rule["rule"] != "approvals" && !is_shown
    });
    lines.extend(open_rules.map(|rule| format!("blocked: {}", plain(&value_text(&rule["text"])))));
    for (permission, action) in
        [("may_review", "you can't give a verdict"), ("may_commit", "you can't commit it")]
    {
        if let Some(reason) = value[permission]["reason"].as_str() {
            lines.push(format!("{action}: {}", plain(reason)));
        }
    }
    part("Gate", lines);
    let verdict = |verdict: &Value| {
        let at = time_text(&verdict["at"]);
        let counts = if verdict["counts"] == true { "" } else { " (does not count)" };
        plain(&format!(
            "{} {}{counts}, {at} {}",
            value_text(&verdict["person"]),
            value_text(&verdict["kind"]),
            value_text(&verdict["reason"])
        ))
    };
    part(
        "Verdicts",
        value["verdicts"]
            .as_array()
            .map(|all| all.iter().map(verdict).collect())
            .unwrap_or_default(),
    );
    if let Some(discussion) = value.get("discussion") {
        text += &format!("\n{}\n{}", output.heading("Discussion"), discussion_text(discussion));
    }
    text
}

/// A lint finding on one line.
fn finding_line(value: &Value) -> String {
    let [level, at, message, remedy] =
        ["level", "at", "problem", "remedy"].map(|word| value_text(&value[word]));
    plain(&format!("{level}: {at}: {message}. {remedy}"))
}

/// The impact of a change, line by line.
pub(crate) fn impact_text(value: &Value) -> String {
    let Ok(view) = serde_json::from_value::<Impact>(value.clone()) else {
        return outline(value);
    };
    let mut text = format!("Affects {}.\n", many(view.nodes, "node"));
    let mut part = |title: &str, count: usize, first: Vec<String>| {
        if count == 0 {
            return;
        }
        text += &format!("{title}: {count}\n");
        let more = count.saturating_sub(first.len());
        text += &first.iter().map(|line| format!("  {}\n", plain(line))).collect::<String>();
        if more > 0 {
            text += &format!("  and {more} more\n");
        }
    };
    let touched = |all: &Counted<Touched>| all.first.iter().map(Touched::to_string).collect();
    let restarts = view.restarts.first.iter().map(|restart| {
        let reason_text =
            restart.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let in_use = if restart.in_use == Some(true) { ", ACTIVE now" } else { "" };
        format!("{}{in_use}{reason_text}", restart.touched)
    });
    let lost = value["lost"]["first"].as_array().map(Vec::as_slice).unwrap_or_default();
    part("Runs for the first time", view.starts.count, touched(&view.starts));
    part("Runs again", view.restarts.count, restarts.collect());
    part("Uses the change with its next run", view.retained.count, touched(&view.retained));
    part("Removed", view.lost.count, lost.iter().map(item_line).collect());
    part("Runs the action remove on the node first", view.undone.count, touched(&view.undone));
    part("Nothing is run on the node", view.left_in_place.count, touched(&view.left_in_place));
    part("Loses data permanently", view.irreversible.count, touched(&view.irreversible));
    part("Secrets", view.secrets.len(), view.secrets.iter().map(ToString::to_string).collect());
    if let Some(interrupted) = view.interrupted.filter(|count| *count > 0) {
        text += &format!("ACTIVE steps that are interrupted: {interrupted}\n");
    }
    if let Some(lost) = view.lost_in_use.filter(|count| *count > 0) {
        text += &format!("ACTIVE steps that are removed: {lost}\n");
    }
    if !view.downstream.is_empty() {
        text += "Dependents:\n";
        for behind in &view.downstream {
            let (one, several) = match behind.on_input {
                OnInput::Rerun => {
                    ("runs again if its input changes", "run again if their input changes")
                }
                OnInput::Report => {
                    ("becomes stale if its input changes", "become stale if their input changes")
                }
                OnInput::Ignore => ("does not run again", "do not run again"),
            };
            let (count, place) = (behind.noderoles.count, &behind.deployment);
            let line = match (count, behind.noderoles.first.first()) {
                (1, Some(only)) => format!("{only} in {place} {one}"),
                (_, Some(first)) => {
                    format!("{count} noderoles in {place} {several}, such as {first}")
                }
                (_, None) => format!("{} in {place} {several}", many(count, "noderole")),
            };
            text += &format!("  {line}\n");
        }
    }
    if !view.waves.is_empty() {
        text += &format!("In {}:\n", many(view.wave_count(), "wave"));
    }
    for wave in &view.waves {
        let group = |group: &WaveGroup| {
            let action = match group.action.is_run() {
                true => String::new(),
                false => format!("{} of ", group.action),
            };
            let step = format!("{action}{} of {}", group.role, group.deployment);
            if group.is_phantom() {
                return step;
            }
            let at_once = group.at_once.map(|n| format!(", {n} at once")).unwrap_or_default();
            format!("{step} on {}{at_once}", many(group.nodes, "node"))
        };
        let groups: Vec<String> = wave.groups.iter().map(group).collect();
        let wave_name = if wave.number == 0 {
            "Immediately".to_owned()
        } else {
            format!("Wave {}", wave.number)
        };
        text += &format!("  {wave_name}: {}\n", groups.join("; "));
    }
    if view.more_waves > 0 {
        text += &format!("  and {} more\n", many(view.more_waves, "wave"));
    }
    let risks: Vec<String> = value["risks"]
        .as_array()
        .map(|all| all.iter().map(value_text).collect())
        .unwrap_or_default();
    if !risks.is_empty() {
        text += &format!("Risks: {}\n", risks.join(", "));
    }
    text
}

/// An item with the text of a field. For a boolean, only the field's name.
fn field_line(word: &str, value: &Value) -> String {
    let word = word.replace('_', " ");
    match value {
        Value::Bool(true) => word,
        Value::Bool(false) => format!("not {word}"),
        other => format!("{word} {}", item_line(other)),
    }
}

/// An item on one line. Ids are left out of text output.
fn item_line(item: &Value) -> String {
    match item {
        // A noderole with its node, and any other fields.
        Value::Object(entries)
            if entries.contains_key("noderole") && entries.contains_key("fqdn") =>
        {
            let word = |word: &str| entries.get(word).map(item_line).unwrap_or_default();
            let place = entries
                .get("deployment")
                .map(|name| format!(" in {}", item_line(name)))
                .unwrap_or_default();
            let known = ["noderole", "fqdn", "deployment", "id", "kind"];
            let rest = entries
                .iter()
                .filter(|(word, value)| !value.is_null() && !known.contains(&word.as_str()));
            let rest: String =
                rest.map(|(word, value)| format!(", {}", field_line(word, value))).collect();
            format!("{} on {}{place}{rest}", word("noderole"), word("fqdn"))
        }
        Value::Object(entries) => {
            let view = entries.iter().filter(|(word, value)| {
                !value.is_null() && !matches!(word.as_str(), "id" | "node_id" | "noderole_id")
            });
            view.map(|(word, value)| field_line(word, value)).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(item_line).collect::<Vec<_>>().join("; "),
        other => plain(&value_text(other)),
    }
}

pub(crate) fn discussion_text(value: &Value) -> String {
    let Ok(view) = serde_json::from_value::<Discussion>(value.clone()) else {
        return outline(value);
    };
    if view.threads.is_empty() {
        return format!("No comments yet. Add one: gantry review comment {} TEXT\n", view.review);
    }
    let mut text = String::new();
    for thread in &view.threads {
        let state = match &thread.resolved {
            Some(ThreadResolution { by, at }) => {
                format!("resolved by {}, {}", plain(by), format_time(at.0))
            }
            None => "open".to_owned(),
        };
        let removed_text = if thread.current { "" } else { ", which this version no longer has" };
        text += &format!(
            "Thread {} ({state}), about {}{removed_text}\n",
            thread.id,
            plain(&thread.subject)
        );
        for comment in &thread.comments {
            text += &format!("  {}, {}:\n", plain(&comment.person), format_time(comment.at.0));
            text += &sanitize_lines(&comment.body)
                .lines()
                .map(|line| format!("    {line}\n"))
                .collect::<String>();
        }
    }
    text
}

/// The values and scripts of a noderole in a review.
pub(crate) fn reviewed_noderole_text(response: &Value, output: OutputFormat) -> String {
    let Ok(view) = ReviewedNoderole::deserialize(response) else { return outline(response) };
    let mut table = Table::new(["PATH", "BEFORE", "AFTER", "SOURCE"]);
    for value in view.values {
        let before = if value.changed { value.before } else { value.after.clone() };
        table.row([
            value.path,
            before.unwrap_or_default(),
            value.after.unwrap_or_default(),
            value.source,
        ]);
    }
    let mut text = table.text(output);
    text += &view.check.map(|check| format!("\nCheck: {check}\n")).unwrap_or_default();
    for script in view.scripts {
        let body =
            script.text.unwrap_or_else(|| format!("gantry role script --hash {}", script.hash));
        text += &format!("\n{}\n{}\n", output.heading(&plain(&script.name)), sanitize_lines(&body));
    }
    text
}

#[cfg(test)]
mod tests {
    use engine::blueprint::difference::{Difference, Sides};
    use engine::gate::Policy;
    use serde_json::json;

    use crate::proposals::proposal_text;

    use super::*;

    fn secret_use() -> Value {
        json!({"change": "replaced", "secret": {"$secret": "db/password", "version": 2},
            "was": {
                "$secret": "db/password",
                "version": 1
            }, "kind": "data", "deployment": "web", "role": "app",
            "nodes": {"count": 1, "first": ["n1.example.com"]}})
    }

    #[test]
    fn review_lists_secrets_by_version() {
        let text =
            review_text(&json!({"impact": {"secrets": [secret_use()]}}), OutputFormat::default());
        let line =
            "Secrets\n  uses secret db/password version 2 (was version 1) in app of web on n1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn impact_is_printed_line_by_line() {
        let view = Impact { nodes: 3, interrupted: Some(1), ..Impact::default() };
        let mut value = serde_json::to_value(view).unwrap();
        assert_eq!(impact_text(&value), "Affects 3 nodes.\nACTIVE steps that are interrupted: 1\n");
        let touched = json!(
            {
                "deployment": "web", "fqdn": "n1.example.com", "noderole": "app",
                "id": uuid::Uuid::nil()
            }
        );
        value["starts"] = json!({"count": 3, "first": [touched]});
        let text = impact_text(&value);
        assert!(text.contains("Runs for the first time: 3\n  app on n1\n  and 2 more\n"), "{text}");
        value["secrets"] = json!([secret_use()]);
        let text = impact_text(&value);
        assert!(
            text.contains(
                "Secrets: 1\n  uses secret db/password version 2 (was version 1) in app \
                of web on n1\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn wave_count_matches_listed_waves() {
        let wave = |number: u32| json!({"number": number, "runs": 1, "immediate": 0, "groups": []});
        let mut value = serde_json::to_value(Impact::default()).unwrap();
        assert!(!impact_text(&value).contains("wave"), "an impact without runs has no waves");
        value["waves"] = json!([wave(0), wave(1), wave(2)]);
        value["more_waves"] = json!(3);
        let text = impact_text(&value);
        assert!(
            text.contains(
                "In 5 waves:\n  Immediately: \n  Wave 1: \n  Wave 2: \n  and 3 waves \
                more\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn viewed_changes_are_listed_by_anchor() {
        let node = format!("node/{}", uuid::Uuid::from_u128(2));
        let value = json!({"all": 2, "viewed": [node], "outdated": []});
        let all = "All changes with their ids: gantry review diff 7 --json\n";
        let text = viewed_text(&value, ReviewId(7));
        assert_eq!(text, format!("You have viewed 1 of 2 changes.\n  {node}\n{all}"));
        let value = json!({"all": 1, "viewed": [], "outdated": [node]});
        let text = viewed_text(&value, ReviewId(7));
        let before = "Changed since you viewed them:\n";
        assert_eq!(text, format!("You have viewed 0 of 1 change.\n{before}  {node}\n{all}"));
    }

    #[test]
    fn review_text_has_missing_permissions_with_reasons() {
        let value = json!({"review": 7, "title": "A proxy", "deployment": "web", "authors": ["ada"],
            "state": "waiting", "proposal": 3,
            "version": 1, "parent": 2, "summary": ["binds proxy to n1"], "gate": {
                "approvals": 0,
                "needed": 1,
                "can_approve": ["bo"]
            },
            "may_review": {"allowed": false, "reason": "you wrote part of this change"},
            "may_commit": {"allowed": true}, "verdicts": [], "risks": []});
        let text = review_text(&value, OutputFormat::default());
        for line in [
            "A proxy",
            "  binds proxy to n1",
            "0 of 1 approval",
            "can approve: bo",
            "you can't give a verdict: you wrote part",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("you can't commit"), "{text}");
    }

    #[test]
    fn review_text_has_broken_rules_and_discussion() {
        let rules = json!([{"rule": "approvals", "passes": false, "text": "0 of 1 approval"},
            {"rule": "threads", "passes": false, "text": "One thread is open, started by bo"},
            {"rule": "lint", "passes": true, "text": "Lint found no errors"}]);
        let value = json!({"gate": {"approvals": 0, "needed": 1, "rules": rules},
            "discussion": {"review": 7, "open": 1, "may_write": {"allowed": true},
            "threads": [{"id": 5, "review": 7,
                "anchor": "", "subject": "the whole change", "current": true, "resolved": null,
                "may_resolve": {"allowed": true}, "comments": []}]}});
        let text = review_text(&value, OutputFormat::default());
        let gate = "Gate\n  0 of 1 approval\n  blocked: One thread is open, started by bo\n";
        assert!(text.contains(gate), "{text}");
        assert!(
            text.ends_with("\nDiscussion\nThread 5 (open), about the whole change\n"),
            "{text}"
        );
    }

    #[test]
    fn dependents_are_named_in_sentences() {
        let touched = json!(
            {
                "deployment": "web", "fqdn": "n3.example.com", "noderole": "reporter",
                "id": uuid::Uuid::nil()
            }
        );
        let text = |count: u64| {
            let mut value = serde_json::to_value(Impact::default()).unwrap();
            value["downstream"] = json!([{"deployment": "web", "on_input": "report",
                "count": count, "first": [touched]}]);
            impact_text(&value)
        };
        let one = text(1);
        assert!(
            one.contains("  reporter on n3 in web becomes stale if its input changes\n"),
            "{one}"
        );
        let two = text(2);
        let line =
            "  2 noderoles in web become stale if their input changes, such as reporter on n3\n";
        assert!(two.contains(line), "{two}");
    }

    fn moved(after: Option<i64>) -> Value {
        json!({"before": 5, "after": after, "blueprint": 4, "moved": ["web (blueprint 4)"],
            "voided_verdicts": ["bo (approved)"],
            "same_effect": false, "effect_changes": {"before": Difference::default(),
            "after": Difference::default()}})
    }

    #[test]
    fn returned_review_and_proposal_show_reason() {
        let mut replan = moved(None);
        replan["refused"] = json!([{"at": "web", "detail": "It changed since."}]);
        let text = review_text(
            &json!({"state": "sent_back", "replaced_by": replan}),
            OutputFormat::default(),
        );
        let lines = "\nSent back to its authors\n  Changed since: web (blueprint 4).\n  web: It \
            changed since.\n";
        assert!(text.contains("state: sent back (") && text.contains(lines), "{text}");
        let text = proposal_text(&json!({"sent_back": replan}), OutputFormat::default());
        let lines = "sent back from review 5: its base changed\n  Changed since: web (blueprint \
            4).\n  web: It changed since.\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn resubmitted_review_shows_its_shift() {
        let mut came = moved(Some(6));
        let lines = |came: &Value| review_text(&json!({"replaces": came}), OutputFormat::default());
        let text = lines(&came);
        assert!(
            text.contains("  Planned again from review 5.\n  Changed since: web (blueprint 4).\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "  Verdicts that do not count here: bo (approved).\n  The same values change,"
            ),
            "{text}"
        );
        let policy = |approvals: u32| Policy { approvals, ..Policy::default() };
        let side = |old, new| Difference {
            policy: Some(Sides { old: policy(old), new: policy(new) }),
            ..Difference::default()
        };
        came["effect_changes"] = json!({"before": side(1, 2), "after": side(3, 2)});
        let text = lines(&came);
        let (was, is) = text.split_once("  Now:\n").expect("both sides");
        assert!(was.contains("  Before:\n    ") && is.starts_with("    "), "{text}");
        assert_ne!(was.lines().last(), is.lines().next(), "{text}");
    }

    #[test]
    fn findings_are_one_line_each() {
        let found = json!({"check": "reserved", "level": "warning", "at": "app on n1",
            "problem": "it has no data",
            "remedy": "Set some."});
        let text = review_text(&json!({"checks": [found]}), OutputFormat::default());
        assert!(text.contains("Lint\n  warning: app on n1: it has no data. Set some.\n"), "{text}");
        let text = proposal_text(
            &json!({"refused": [{"edit": 2, "code": "already_bound", "reason": "Role app is already bound to node n1"}]}),
            OutputFormat::default(),
        );
        assert!(
            text.ends_with("rejected: edit 2: Role app is already bound to node n1\n"),
            "{text}"
        );
    }
}
