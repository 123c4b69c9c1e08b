//! YAML: block style, with strings in JSON notation unless they are plain words.

use engine::text::is_deceptive;
use serde_json::Value;

/// A value as a YAML document.
pub(crate) fn text(value: &Value) -> String {
    lines(value).iter().map(|line| format!("{line}\n")).collect()
}

fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            entries.iter().flat_map(|(key, value)| entry(&word(key), value)).collect()
        }
        Value::Array(items) if !items.is_empty() => items.iter().flat_map(item).collect(),
        Value::String(text) => vec![word(text)],
        other => vec![other.to_string()],
    }
}

fn entry(key: &str, value: &Value) -> Vec<String> {
    let mut below = lines(value);
    let is_nested = match value {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    match is_nested {
        true => {
            below.iter_mut().for_each(|line| line.insert_str(0, "  "));
            below.insert(0, format!("{key}:"));
            below
        }
        false => vec![format!("{key}: {}", below.concat())],
    }
}

fn item(value: &Value) -> Vec<String> {
    let indented = |(number, line)| format!("{}{line}", if number == 0 { "- " } else { "  " });
    lines(value).into_iter().enumerate().map(indented).collect()
}

/// A text, quoted unless it starts with a letter, is no YAML keyword and has only characters
/// without a meaning in YAML.
pub(crate) fn word(text: &str) -> String {
    const KEYWORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c))
        && !KEYWORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// JSON notation, which YAML includes, except for the escapes of invisible characters.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        c if is_deceptive(c) => format!("\\U{:08x}", u32::from(c)),
        c => c.to_string(),
    };
    Value::from(text).to_string().chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn document_has_block_style() {
        let value = json!({"name": "n1", "port": 80, "tags": ["a b", "no"], "none": null,
            "empty": {},
            "runs": [{"id": 1, "log": "x\ny"}, {"id": 2, "steps": [[1, 2], []]}]});
        let expected = "name: n1\nport: 80\ntags:\n  - \"a b\"\n  - \"no\"\nnone: null\nempty: {}\n\
            runs:\n  - id: 1\n    log: \"x\\ny\"\n  - id: 2\n    steps:\n      - - 1\n        - 2\n      - []\n";
        let mut lines: Vec<&str> = expected.lines().collect();
        let printed = text(&value);
        let mut found: Vec<&str> = printed.lines().collect();
        // The order of keys depends on the features of serde_json.
        lines.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, lines);
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(word("a\u{202e}\u{e0041}\u{1b}"), "\"a\\U0000202e\\U000e0041\\u001b\"");
        assert_eq!(word("2026-01-01"), "\"2026-01-01\"", "a text that looks like a date is quoted");
    }
}
