//! The differences between two documents, for display.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::secret::{contains_reference, is_reference, named};
use super::{DataError, check_depth, escaped, merge, ordered};

/// How a value changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The value is new.
    Added,
    /// The value is removed.
    Removed,
    /// The value is replaced.
    Changed,
}

/// One difference between two documents, safe to display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// A JSON pointer (RFC 6901); empty for the whole document.
    pub path: String,
    /// How the value changed.
    pub kind: ChangeKind,
    /// The previous value, with secrets as name and version. Null for a new value, or if a secret
    /// replaces a plain value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The new value, with secrets as name and version. Null after a removal, or if a plain value
    /// replaces a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
    /// Whether the value is or contains a secret. The displayed values may then be incomplete.
    #[serde(default)]
    pub secret: bool,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        let word = match self.kind {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Changed => "changed",
        };
        match (&self.old, &self.new) {
            (None, None) => write!(f, "{path}: {word}"),
            (None, Some(new)) if self.kind == ChangeKind::Changed => {
                write!(f, "{path}: a plain value -> {new}")
            }
            (Some(old), None) if self.kind == ChangeKind::Changed => {
                write!(f, "{path}: {old} -> a plain value")
            }
            (None, Some(new)) => write!(f, "{path}: {word} {new}"),
            (Some(old), None) => write!(f, "{path}: {word} {old}"),
            (Some(old), Some(new)) => write!(f, "{path}: {old} -> {new}"),
        }
    }
}

/// All differences between two documents, ordered by path. Descends into objects. Lists are
/// compared as a whole, as everywhere in [`super`].
///
/// If a plain value becomes a secret, or the reverse, the plain value is omitted: it is likely that
/// secret. Secrets are shown as name and version, so that reviewers see which ones a change uses.
///
/// # Errors
/// [`DataError::TooDeep`] if either document exceeds the nesting limit.
pub fn diff(old: &Value, new: &Value) -> Result<Vec<Change>, DataError> {
    check_depth(old)?;
    check_depth(new)?;
    let mut changes = Vec::new();
    compare(String::new(), Some(old), Some(new), &mut changes);
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn compare(path: String, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<Change>) {
    if old == new {
        return;
    }
    if let (Some(old), Some(new)) = (old, new)
        && merge::joins(old, new)
        && let (Value::Object(old), Value::Object(new)) = (old, new)
    {
        for (key, value) in ordered(old) {
            compare(format!("{path}/{}", escaped(key)), Some(value), new.get(key), changes);
        }
        for (key, value) in ordered(new) {
            if !old.contains_key(key) {
                compare(format!("{path}/{}", escaped(key)), None, Some(value), changes);
            }
        }
        return;
    }
    changes.push(change(path, old, new));
}

fn change(path: String, old: Option<&Value>, new: Option<&Value>) -> Change {
    let kind = match (old, new) {
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Removed,
        _ => ChangeKind::Changed,
    };
    let sides = || old.into_iter().chain(new);
    let hides_plain = sides().any(is_reference);
    let shown =
        |side: Option<&Value>| side.filter(|value| !hides_plain || is_reference(value)).map(named);
    Change { path, kind, old: shown(old), new: shown(new), secret: sides().any(contains_reference) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn diff_paths_are_ordered_json_pointers() {
        let old = json!({"a": {"x": 1, "gone": true}, "l": [1, 2], "same": {"deep": [1]}});
        let new = json!({"a": {"x": 2, "b/c~d": {}}, "l": [2], "same": {"deep": [1]}, "z": null});
        let changes = diff(&old, &new).unwrap();
        let listed: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            listed,
            [
                "/a/b~1c~0d: added {}",
                "/a/gone: removed true",
                "/a/x: 1 -> 2",
                "/l: [1,2] -> [2]",
                "/z: added null"
            ]
        );
        for change in &changes {
            assert_eq!(old.pointer(&change.path), change.old.as_ref());
            assert_eq!(new.pointer(&change.path), change.new.as_ref());
        }
        assert_eq!(diff(&old, &old).unwrap(), []);
    }

    #[test]
    fn diff_names_secrets_and_hides_plain_values() {
        let secret = |v: i64| json!({"$secret": "db/admin", "version": v});
        let old = json!({"rotated": secret(1), "was_plain": "hunter2", "now_plain": secret(1), "list": [secret(1)], "gone": secret(1)});
        let new = json!({"rotated": secret(2), "was_plain": secret(1), "now_plain": "hunter3", "list": [secret(2)], "sub": {"k": secret(1)}});
        let changes = diff(&old, &new).unwrap();
        assert_eq!(changes.len(), 6);
        assert!(changes.iter().all(|change| change.secret));
        let reported = serde_json::to_string(&changes).unwrap();
        assert!(!reported.contains("hunter"), "{reported}");
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let expected = [
            r#"/gone: removed "(secret db/admin version 1)""#,
            r#"/list: ["(secret db/admin version 1)"] -> ["(secret db/admin version 2)"]"#,
            r#"/now_plain: "(secret db/admin version 1)" -> a plain value"#,
            r#"/rotated: "(secret db/admin version 1)" -> "(secret db/admin version 2)""#,
            r#"/sub: added {"k":"(secret db/admin version 1)"}"#,
            r#"/was_plain: a plain value -> "(secret db/admin version 1)""#,
        ];
        assert_eq!(lines, expected);
    }

    proptest::proptest! {
        #[test]
        fn diff_is_complete_without_duplicates(
            old in merge::tests::document(),
            new in merge::tests::document(),
        ) {
            let changes = diff(&old, &new).unwrap();
            proptest::prop_assert_eq!(changes.is_empty(), old == new);
            let mut paths: Vec<_> = changes.iter().map(|change| &change.path).collect();
            paths.dedup();
            proptest::prop_assert_eq!(paths.len(), changes.len());
            for change in &changes {
                let (was, is) = (old.pointer(&change.path), new.pointer(&change.path));
                proptest::prop_assert_ne!(was, is);
                proptest::prop_assert_eq!(was.is_none(), change.kind == ChangeKind::Added);
                proptest::prop_assert_eq!(is.is_none(), change.kind == ChangeKind::Removed);
            }
        }
    }
}
