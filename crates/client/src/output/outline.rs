//! Outlines: answers without a text of their own, field by field.

use api::At;
use serde_json::Value;

use crate::output::{plain, steps, time_text, value_text};

/// Names of fields that contain times.
const TIME_FIELDS: [&str; 19] = [
    "at",
    "since",
    "last_seen",
    "created",
    "confirmed_at",
    "expires",
    "used",
    "revoked",
    "queued",
    "started",
    "ended",
    "imported",
    "added",
    "alive_since",
    "joined_since",
    "last_heartbeat",
    "lease_until",
    "until",
    "oldest",
];

/// Prints any answer as an outline: one field per line, nested fields indented.
pub(crate) fn outline(value: &Value) -> String {
    let mut text = String::new();
    outline_into(&mut text, value, 0);
    text
}

fn outline_into(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) => {
            for (name, value) in
                entries.iter().filter(|(name, value)| *name != "cursor" && !value.is_null())
            {
                let name = plain(name);
                match one_line(&name, value) {
                    Some(line) => *text += &format!("{indent}{name}: {line}\n"),
                    None => {
                        *text += &format!("{indent}{name}:\n");
                        outline_into(text, value, depth + 1);
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut within = String::new();
                outline_into(&mut within, item, depth + 1);
                let start = within.find(|c| c != ' ').unwrap_or_default();
                *text += &format!("{indent}- {}", &within[start..]);
            }
        }
        other => *text += &format!("{indent}{}\n", plain(&value_text(other))),
    }
}

/// A field that fits on one line, or `None`.
fn one_line(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) if TIME_FIELDS.contains(&name) && text.parse::<At>().is_ok() => {
            Some(time_text(value))
        }
        Value::Object(entries) if entries.is_empty() => Some("{}".to_owned()),
        Value::Object(entries) if name == "steps" && entries.contains_key("active") => {
            Some(steps(value))
        }
        // A permission, with the reason if it is denied.
        Value::Object(entries) if entries.contains_key("allowed") => {
            Some(match entries.get("reason") {
                Some(reason) => format!("no: {}", plain(&value_text(reason))),
                None => "yes".to_owned(),
            })
        }
        Value::Object(_) => None,
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            Some(if items.is_empty() { "none".to_owned() } else { plain(&value_text(value)) })
        }
        Value::Array(_) => None,
        other => Some(plain(&value_text(other))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outline_formats_times_and_permissions() {
        let value = json!({"name": "n1", "at": "2026-09-21T14:13:20.000Z", "queued": 3,
            "may": {"allowed": false, "reason": "not\nyours"}, "can": {"allowed": true},
            "cursor": 7, "list": [{"a": 1, "b": null}], "steps": {"active": 2, "error": 1},
            "empty": [], "tags": ["x", "y"]});
        let text = outline(&value);
        for line in [
            "name: n1",
            "at: 2026-09-21 14:13:20Z",
            "queued: 3",
            "may: no: not yours",
            "can: yes",
            "- a: 1",
            "steps: 1 ERROR, 2 ACTIVE",
            "empty: none",
            "tags: x, y",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("cursor"));
    }
}
