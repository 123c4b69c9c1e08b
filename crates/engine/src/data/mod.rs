//! Data: what roles are told, what runs hand back, and who said which value.
//!
//! All data is JSON. Three operations carry everything else:
//!
//! * [`merge`] lays one document over another: objects join key by key, everything else replaces;
//! * [`difference`] is its inverse as far as there is one: the least that must be laid over `base` to find `new` in it. What a run
//!   handed back, less what it was given, is its **wall** ([`wall`]);
//! * [`diff`] shows two documents to people.
//!
//! [`layers`] uses the first to build a noderole's own data and what a run sees, and keeps for every value the layer it came from.
//!
//! ## Invariants
//!
//! * `merge(base, difference(base, new))` contains `new` ([`contains`]), and `difference(x, x)` is nothing.
//! * Lists are values: they are replaced whole. Merging lists by place loses entries as soon as one is taken out, and merging them
//!   by content needs a key that JSON does not name.
//! * A reference to a secret is a value too ([`secret`]): it is replaced whole, never mixed with the keys of what it replaces, and no
//!   function here prints what stands in its place.
//! * Depth is limited ([`MAX_DEPTH`]) before anything recurses, so no document can exhaust the stack; size is limited
//!   ([`MAX_BYTES`]) where documents enter ([`check`]).
//!
//! Absent and `null` differ: `null` is a value that a person may set on purpose. Only where a whole layer is meant (a role without
//! a template) is `null` taken for "nothing".

use serde_json::{Map, Value};

use crate::canonical;

mod diff;
mod layers;
mod merge;
pub mod schema;
pub mod secret;

pub use diff::{Change, ChangeKind, diff};
pub use layers::{Contribution, Layer, Layered, OwnData, Sight, Source, layers, visible};
pub use merge::{contains, difference, merge, wall};
pub use secret::mask;

/// Most bytes of one document, counted in its canonical form.
pub const MAX_BYTES: usize = 256 * 1024;
/// Most objects and lists around one value: `1` has none, `{"a": [1]}` has two.
pub const MAX_DEPTH: usize = 64;

/// A document that can't be taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// Over [`MAX_DEPTH`].
    #[error("the data is nested deeper than {limit} levels, at {path}: flatten it there")]
    TooDeep {
        /// Levels allowed.
        limit: usize,
        /// The first keys on the way down.
        path: String,
    },
    /// Over [`MAX_BYTES`].
    #[error(
        "the data has {size} bytes in canonical form; at most {limit} are allowed: keep bulk out of it and refer to a file"
    )]
    TooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A layer or a run's answer that is no object.
    #[error("{what} must be a JSON object, and is {found}")]
    NotAnObject {
        /// What it was given for.
        what: String,
        /// The kind of value found.
        found: &'static str,
    },
    /// A value that has no canonical form.
    #[error("the data can't be written as canonical JSON: {reason}")]
    NotCanonical {
        /// From the writer.
        reason: String,
    },
}

/// Checks a document against both limits, before it is stored or used.
///
/// # Errors
/// [`DataError::TooDeep`], [`DataError::TooLarge`], [`DataError::NotCanonical`].
pub fn check(value: &Value) -> Result<(), DataError> {
    check_depth(value)?;
    let bytes = canonical::bytes(value).map_err(|e| DataError::NotCanonical { reason: e.to_string() })?;
    if bytes.len() > MAX_BYTES {
        return Err(DataError::TooLarge { size: bytes.len(), limit: MAX_BYTES });
    }
    Ok(())
}

/// Goes no deeper than the limit itself, so the document that it refuses can't exhaust the stack first.
pub(crate) fn check_depth(value: &Value) -> Result<(), DataError> {
    fn walk(value: &Value, around: usize, at: &mut Vec<String>) -> Result<(), DataError> {
        let depth = around + usize::from(value.is_object() || value.is_array());
        if depth > MAX_DEPTH {
            let path = at.iter().take(4).map(|key| format!("/{}", escaped(key)));
            return Err(DataError::TooDeep { limit: MAX_DEPTH, path: path.chain(["/...".to_owned()]).collect() });
        }
        let mut inside = |key: String, value: &Value| {
            at.push(key);
            let result = walk(value, depth, at);
            at.pop();
            result
        };
        match value {
            Value::Object(map) => map.iter().try_for_each(|(k, v)| inside(k.clone(), v)),
            Value::Array(list) => list.iter().enumerate().try_for_each(|(i, v)| inside(i.to_string(), v)),
            _ => Ok(()),
        }
    }
    walk(value, 0, &mut Vec::new())
}

/// A key as a JSON pointer writes it (RFC 6901).
pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The keys of an object in byte order, whatever order the map itself keeps.
pub(crate) fn ordered(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| Value::Object(Map::from_iter([("k".to_owned(), inner)])))
    }

    #[test]
    fn limits_hold_at_their_edge() {
        check(&nested(MAX_DEPTH)).unwrap();
        let error = check(&nested(MAX_DEPTH + 1)).unwrap_err();
        assert!(matches!(error, DataError::TooDeep { .. }));
        assert!(error.to_string().contains("/k/k/k/k/..."), "{error}");

        let overhead = canonical::bytes(&json!({"k": ""})).unwrap().len();
        check(&json!({"k": "x".repeat(MAX_BYTES - overhead)})).unwrap();
        let error = check(&json!({"k": "x".repeat(MAX_BYTES - overhead + 1)})).unwrap_err();
        assert_eq!(error, DataError::TooLarge { size: MAX_BYTES + 1, limit: MAX_BYTES });
    }

    #[test]
    fn a_document_far_too_deep_is_refused_and_not_walked() {
        let deep = nested(1_000);
        assert!(matches!(check(&deep), Err(DataError::TooDeep { .. })));
        assert!(matches!(merge(&deep, &deep), Err(DataError::TooDeep { .. })));
        assert!(matches!(difference(&deep, &json!({})), Err(DataError::TooDeep { .. })));
    }
}
