//! Environment variables of a script: the scalars of its input as `GANTRY_DATA_<PATH>`.
//!
//! The file `GANTRY_INPUT` has the whole input. The variables are a convenience for shell scripts,
//! so they may be incomplete. They omit values that are not scalars, and texts over `MAX_VALUE`
//! bytes (Linux limits a variable to 128 KiB). They also omit everything after the first
//! `MAX_TOTAL` bytes. If two paths map to one name (`a.b` and `a_b`), the first one in the input's
//! order wins.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::node::session::shell::quoted_argument;

/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 32 << 10;
/// Maximum total size in bytes.
const MAX_TOTAL: usize = 256 << 10;

/// The variables, by name.
pub fn variables(input: &Value) -> BTreeMap<String, String> {
    let mut found = Environment { variables: BTreeMap::new(), size: 0 };
    found.walk("GANTRY_DATA", input);
    found.variables
}

struct Environment {
    variables: BTreeMap<String, String>,
    size: usize,
}

impl Environment {
    fn walk(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    self.walk(&format!("{name}_{}", to_upper_name(key)), value);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    self.walk(&format!("{name}_{index}"), value);
                }
            }
            Value::Null => {}
            Value::String(text) => self.add(name, text.clone()),
            Value::Bool(_) | Value::Number(_) => self.add(name, value.to_string()),
        }
    }

    fn add(&mut self, name: &str, value: String) {
        let size = name.len() + value.len();
        let is_within_limits = value.len() <= MAX_VALUE && self.size + size <= MAX_TOTAL;
        if is_within_limits && !value.contains('\0') && !self.variables.contains_key(name) {
            self.size += size;
            self.variables.insert(name.to_owned(), value);
        }
    }
}

fn to_upper_name(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
            _ => '_',
        })
        .collect()
}

/// Formats the variables as lines for a POSIX shell.
pub fn to_shell(variables: &BTreeMap<String, String>) -> String {
    variables
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", quoted_argument(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_scalars_become_variables() {
        let found = variables(&json!({
            "demo": {"port": 80, "the-name": "a'b", "on": true, "none": null},
            "list": ["x", {"y": 1}],
        }));
        let as_pairs: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            as_pairs,
            [
                ("GANTRY_DATA_DEMO_ON", "true"),
                ("GANTRY_DATA_DEMO_PORT", "80"),
                ("GANTRY_DATA_DEMO_THE_NAME", "a'b"),
                ("GANTRY_DATA_LIST_0", "x"),
                ("GANTRY_DATA_LIST_1_Y", "1"),
            ]
        );
    }

    #[test]
    fn shell_reads_variables_unchanged() {
        let value = "a'b\"c $HOME `id` \\ \n second line";
        let found = variables(&json!({ "k": value }));
        let script = format!("{}printf %s \"$GANTRY_DATA_K\"", to_shell(&found));
        let output =
            std::process::Command::new("sh").args(["-c", &script]).output().expect("a POSIX shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), value);
    }

    #[test]
    fn oversized_values_are_omitted() {
        let found =
            variables(&json!({"big": "x".repeat(MAX_VALUE + 1), "small": "y", "nul": "a\u{0}b"}));
        assert_eq!(found.len(), 1);
        let many: serde_json::Map<_, _> =
            (0..100).map(|n| (format!("k{n}"), json!("x".repeat(MAX_VALUE)))).collect();
        let size: usize = variables(&Value::Object(many)).values().map(String::len).sum();
        assert!(size <= MAX_TOTAL);
    }
}
