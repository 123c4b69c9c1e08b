//! Data: the input of roles, the results of runs, and the source of each value.
//!
//! All data is JSON. The main operations:
//!
//! * [`merge`] merges one document over another: objects merge by key, everything else replaces.
//! * [`difference`] is the inverse as far as one exists: the smallest document that adds `new` to
//!   `base`. A run's output is the difference between its result and its input ([`output`]).
//! * [`diff`] lists the differences between two documents for display.
//! * [`layers`] merges a noderole's own data and the input of a run, and records the layer of every
//!   value.
//!
//! Invariants:
//!
//! * `merge(base, difference(base, new))` contains `new` ([`contains`]), and `difference(x, x)` is
//!   empty.
//! * Lists are replaced as a whole. A merge by index would mix up entries after a removal. A merge
//!   by content needs a key that JSON does not define.
//! * A reference to a secret ([`secret`]) is replaced as a whole and never merged with another
//!   value. No function here outputs the secret's value.
//! * Depth is checked ([`MAX_DEPTH`]) before any recursion, so no document can exhaust the stack.
//!   Size ([`MAX_BYTES`]) is checked on entry ([`check`]), and for the merged input of a run
//!   ([`check_visible`]).
//!
//! An absent value and `null` differ: `null` is a value that users may set. Only for a whole layer,
//! such as a role without a template, does `null` mean an empty layer.

use serde_json::{Map, Value};

use crate::{canonical, text};

mod diff;
pub mod fit;
mod layers;
mod merge;
pub mod number;
mod reads;
mod rebase;
pub mod retention;
pub mod schema;
pub mod secret;
pub mod surroundings;
pub mod written;

pub use diff::{Change, ChangeKind, diff};
pub use layers::{
    Contribution, Layer, Layered, OwnData, RunSources, Source, StepOutput, ancestor_distances,
    decides, layers, visible,
};
pub use merge::{contains, difference, merge, output};
pub use reads::{ReadNoderole, input_hash};
pub use rebase::{DataConflict, rebase};
pub use secret::mask;

/// Maximum size of one document, in bytes of its canonical form.
pub const MAX_BYTES: usize = 256 * 1024;
/// Maximum size of the data that one run sees, in bytes of its canonical form. It is stored with
/// each run and sent to its node.
pub const MAX_RUN_INPUT_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of one document as PostgreSQL stores it, in bytes ([`stored_bytes`]). Only numbers
/// with large exponents can exceed it within [`MAX_BYTES`].
pub const MAX_STORED_BYTES: usize = 1024 * 1024;
/// The largest integer that every JSON parser represents exactly: 2^53 - 1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;
/// Maximum number of objects and lists around one value: `1` has none, `{"a": [1]}` has two.
pub const MAX_DEPTH: usize = 64;

/// Invalid data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// Deeper than [`MAX_DEPTH`].
    #[error("The data is nested deeper than {limit} levels at {path}. Flatten it there")]
    TooDeep {
        limit: usize,
        /// The first keys of the path.
        path: String,
    },
    /// Larger than [`MAX_BYTES`] or [`MAX_RUN_INPUT_BYTES`].
    #[error(
        "The data has {size} bytes as canonical JSON, and the limit is {limit}. Store bulk data in \
         a file and refer to the file"
    )]
    TooLarge { size: usize, limit: usize },
    /// Larger than [`MAX_STORED_BYTES`].
    #[error(
        "The data needs {size} bytes in the database, which stores all digits of a number (1e-300 \
         has 302). The limit is {limit}. Write such numbers as strings, or use fewer of them"
    )]
    StoredTooLarge { size: usize, limit: usize },
    /// A layer or a run's result is not an object.
    #[error("{subject} must be a JSON object, but is {found}")]
    NotAnObject {
        /// The purpose of the value.
        subject: String,
        /// The kind of value found.
        found: &'static str,
    },
    /// An integer that some JSON parsers do not represent exactly.
    #[error(
        "The number {number} at {path} is too large to be stored exactly (the limit is \
         {MAX_INTEGER}). Write it as a string, or use a smaller number"
    )]
    Inexact {
        /// A JSON pointer.
        path: String,
        /// The number as written.
        number: String,
    },
    /// An object with the key `$secret` that is not a valid reference.
    #[error(
        "The object at {path} has the key \"$secret\" but is not a valid reference to a secret. \
         Write {{\"$secret\": \"a name\", \"version\": 1}} without other keys, or use another key"
    )]
    InvalidReference {
        /// A JSON pointer.
        path: String,
    },
    /// A reference to a secret with a name that no secret can have.
    #[error(
        "The value at {path} refers to the secret {name:?}, which is not a valid name. Use the \
         name under which workers store it. Its parts are separated by slashes, and no part may be \
         empty or start with a dot"
    )]
    InvalidSecretName {
        /// A JSON pointer.
        path: String,
        /// The name as written, shortened.
        name: String,
    },
    /// A text or key with an invisible character or one that changes the text direction.
    #[error(
        "The string at {path} contains the character {number}, which is invisible or misleading. \
         Remove it"
    )]
    MisleadingText {
        /// A JSON pointer. For a key, it points to the object that contains it.
        path: String,
        /// The code point of the character.
        number: String,
    },
    /// A text or key with a NUL character, which PostgreSQL cannot store.
    #[error(
        "The string at {path} contains the character U+0000, which cannot be stored. Remove it"
    )]
    ContainsNul {
        /// A JSON pointer. For a key, it points to the object that contains it.
        path: String,
    },
    /// A value without a canonical form.
    #[error("The data cannot be written as canonical JSON: {reason}")]
    NotCanonical {
        /// The serializer's message.
        reason: String,
    },
}

/// Checks a document against all limits before it is stored or used.
///
/// # Errors
/// [`DataError::TooDeep`], [`DataError::TooLarge`], [`DataError::StoredTooLarge`],
/// [`DataError::NotCanonical`].
pub fn check(value: &Value) -> Result<(), DataError> {
    check_depth(value)?;
    at_most(value, MAX_BYTES)?;
    let size = stored_bytes(value);
    if size > MAX_STORED_BYTES {
        return Err(DataError::StoredTooLarge { size, limit: MAX_STORED_BYTES });
    }
    Ok(())
}

fn at_most(value: &Value, limit: usize) -> Result<(), DataError> {
    let bytes =
        canonical::bytes(value).map_err(|e| DataError::NotCanonical { reason: e.to_string() })?;
    match bytes.len() {
        size if size > limit => Err(DataError::TooLarge { size, limit }),
        _ => Ok(()),
    }
}

/// Checks the data that a run is about to see. Many small documents can be large together.
///
/// # Errors
/// [`DataError::TooLarge`], [`DataError::NotCanonical`].
pub fn check_visible(value: &Value) -> Result<(), DataError> {
    at_most(value, MAX_RUN_INPUT_BYTES)
}

/// The size of a document in bytes as PostgreSQL writes it (`jsonb::text`): with spaces, and
/// numbers without exponents. The document must be within [`MAX_DEPTH`].
pub fn stored_bytes(value: &Value) -> usize {
    let text = |text: &str| serde_json::to_string(text).map_or(0, |written| written.len());
    let list =
        |inside: usize, count: usize| "[]".len() + inside + ", ".len() * count.saturating_sub(1);
    match value {
        Value::Null | Value::Bool(true) => "null".len(),
        Value::Bool(false) => "false".len(),
        Value::Number(number) => expanded_length(&number.to_string()),
        Value::String(string) => text(string),
        Value::Array(values) => list(values.iter().map(stored_bytes).sum(), values.len()),
        Value::Object(map) => {
            let entry =
                |(key, value): (&String, &Value)| text(key) + ": ".len() + stored_bytes(value);
            list(map.iter().map(entry).sum(), map.len())
        }
    }
}

/// The length of a number written without an exponent, in characters.
fn expanded_length(number: &str) -> usize {
    let whole = |number: &str| number.split('.').next().map_or(0, str::len);
    let Some((mantissa, exponent)) = number.split_once(['e', 'E']) else { return number.len() };
    let behind = mantissa.split_once('.').map_or(0, |(_, behind)| behind.len());
    let shift = exponent.parse::<i64>().unwrap_or(0);
    let size = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
    match shift < 0 {
        true => whole(mantissa) + ".".len() + behind + size,
        false if size < behind => mantissa.len(),
        false => whole(mantissa) + size,
    }
}

/// Checks the result of a run: [`check`], and that PostgreSQL can store it.
///
/// # Errors
/// Those of [`check`], [`DataError::ContainsNul`].
pub fn check_result(value: &Value) -> Result<(), DataError> {
    check(value)?;
    check_storable(value, &mut String::new())
}

fn check_storable(value: &Value, path: &mut String) -> Result<(), DataError> {
    let plain = |text: &str, path: &str| match text.contains('\0') {
        false => Ok(()),
        true => Err(DataError::ContainsNul {
            path: if path.is_empty() { "/".into() } else { path.into() },
        }),
    };
    let mut inside = |key: &str, value: &Value| {
        plain(key, path)?;
        let length = path.len();
        path.push('/');
        path.push_str(&escaped(key));
        check_storable(value, path)?;
        path.truncate(length);
        Ok(())
    };
    match value {
        Value::Object(map) => {
            ordered(map).into_iter().try_for_each(|(key, value)| inside(key, value))
        }
        Value::Array(list) => {
            list.iter().enumerate().try_for_each(|(n, value)| inside(&n.to_string(), value))
        }
        Value::String(text) => plain(text, path),
        _ => Ok(()),
    }
}

/// Checks a document that a user entered: [`check`], and that every reader interprets it equally.
///
/// An integer above [`MAX_INTEGER`] can change in a browser or in canonical JSON. The approved
/// value would then differ from the entered one. A malformed reference to a secret would be masked
/// and never resolved. A reference to an impossible secret name would be approved and then fail. A
/// deceptive text ([`text::is_deceptive`]) would look different to reviewers.
///
/// # Errors
/// Those of [`check`], [`DataError::Inexact`], [`DataError::InvalidReference`],
/// [`DataError::InvalidSecretName`], [`DataError::MisleadingText`].
pub fn check_user_data(value: &Value) -> Result<(), DataError> {
    check(value)?;
    check_values(value, &mut String::new())
}

fn check_values(value: &Value, path: &mut String) -> Result<(), DataError> {
    let plain = |text: &str, path: &str| match text::deceptive_character(text) {
        None => Ok(()),
        Some(c) => Err(DataError::MisleadingText {
            path: if path.is_empty() { "/".into() } else { path.into() },
            number: text::number(c),
        }),
    };
    let mut inside = |key: &str, value: &Value| {
        plain(key, path)?;
        let length = path.len();
        path.push('/');
        path.push_str(&escaped(key));
        check_values(value, path)?;
        path.truncate(length);
        Ok(())
    };
    match value {
        Value::Number(number) if is_inexact(number) => {
            Err(DataError::Inexact { path: path.clone(), number: number.to_string() })
        }
        value if secret::is_reference(value) => check_reference(value, path),
        Value::Object(map) => {
            ordered(map).into_iter().try_for_each(|(key, value)| inside(key, value))
        }
        Value::Array(list) => {
            list.iter().enumerate().try_for_each(|(n, value)| inside(&n.to_string(), value))
        }
        Value::String(text) => plain(text, path),
        _ => Ok(()),
    }
}

fn check_reference(value: &Value, path: &str) -> Result<(), DataError> {
    let path = || if path.is_empty() { "/".into() } else { path.into() };
    let secret =
        secret::reference(value).ok_or_else(|| DataError::InvalidReference { path: path() })?;
    if let Some(c) = text::deceptive_character(&secret.name) {
        return Err(DataError::MisleadingText { path: path(), number: text::number(c) });
    }
    match secret.parts() {
        Some(_) => Ok(()),
        None => Err(DataError::InvalidSecretName {
            path: path(),
            name: secret.name.chars().take(64).collect(),
        }),
    }
}

fn is_inexact(number: &serde_json::Number) -> bool {
    if let Some(whole) = number.as_u64() {
        return whole > MAX_INTEGER;
    }
    if let Some(whole) = number.as_i64() {
        return whole.unsigned_abs() > MAX_INTEGER;
    }
    // Integers beyond 64 bits are parsed as floats, which loses their digits.
    #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is a float itself")]
    number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() > MAX_INTEGER as f64)
}

/// Stops at the limit, so that a document over the limit cannot exhaust the stack.
pub(crate) fn check_depth(value: &Value) -> Result<(), DataError> {
    fn walk(value: &Value, around: usize, at: &mut Vec<String>) -> Result<(), DataError> {
        let depth = around + usize::from(value.is_object() || value.is_array());
        if depth > MAX_DEPTH {
            let path = at.iter().take(4).map(|key| format!("/{}", escaped(key)));
            return Err(DataError::TooDeep {
                limit: MAX_DEPTH,
                path: path.chain(["/...".to_owned()]).collect(),
            });
        }
        let mut inside = |key: String, value: &Value| {
            at.push(key);
            let result = walk(value, depth, at);
            at.pop();
            result
        };
        match value {
            Value::Object(map) => map.iter().try_for_each(|(k, v)| inside(k.clone(), v)),
            Value::Array(list) => {
                list.iter().enumerate().try_for_each(|(i, v)| inside(i.to_string(), v))
            }
            _ => Ok(()),
        }
    }
    walk(value, 0, &mut Vec::new())
}

/// Escapes a key for a JSON pointer (RFC 6901).
pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The keys of an object in byte order, regardless of the map's own order.
pub(crate) fn ordered(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// Checks that a layer or result is an object and not a reference to a secret.
pub(crate) fn object(value: &Value, subject: impl FnOnce() -> String) -> Result<(), DataError> {
    if value.is_object() && !secret::is_reference(value) {
        return Ok(());
    }
    Err(DataError::NotAnObject { subject: subject(), found: kind_of(value) })
}

/// The kind of a value, for messages.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        reference if secret::is_reference(reference) => "a reference to a secret",
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels)
            .fold(json!(1), |inner, _| Value::Object(Map::from_iter([("k".to_owned(), inner)])))
    }

    #[test]
    fn data_limits_apply_exactly() {
        check(&nested(MAX_DEPTH)).unwrap();
        let error = check(&nested(MAX_DEPTH + 1)).unwrap_err();
        assert!(matches!(error, DataError::TooDeep { .. }));
        assert!(error.to_string().contains("/k/k/k/k/..."), "{error}");

        let overhead = canonical::bytes(&json!({"k": ""})).unwrap().len();
        check(&json!({"k": "x".repeat(MAX_BYTES - overhead)})).unwrap();
        let error = check(&json!({"k": "x".repeat(MAX_BYTES - overhead + 1)})).unwrap_err();
        assert_eq!(error, DataError::TooLarge { size: MAX_BYTES + 1, limit: MAX_BYTES });
        check_visible(&json!({"k": "x".repeat(MAX_RUN_INPUT_BYTES - overhead)})).unwrap();
        assert!(
            check_visible(&json!({"k": "x".repeat(MAX_RUN_INPUT_BYTES - overhead + 1)})).is_err()
        );
    }

    #[test]
    fn stored_size_limit_counts_expanded_numbers() {
        let value = json!({ "n": vec![1e-300; 4_000] });
        assert!(serde_json::to_vec(&value).unwrap().len() < 30_000);
        for refused in [check(&value), check_user_data(&value), check_result(&value)] {
            let Err(error @ DataError::StoredTooLarge { size, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert!(size > 1_200_000 && error.to_string().contains("1e-300"), "{error}");
        }
        check(&json!({ "n": vec![1e-300; 3_000] })).unwrap();
    }

    #[test]
    fn inexact_integer_is_rejected_with_position() {
        for good in ["9007199254740991", "-9007199254740991", "0", "1.5", "1e-300", "12345.0"] {
            let value: Value = serde_json::from_str(&format!("{{\"n\": {good}}}")).unwrap();
            assert_eq!(check_user_data(&value), Ok(()), "{good}");
        }
        for bad in [
            "9007199254740992",
            "-9007199254740992",
            "18446744073709551615",
            "123456789012345678901234",
            "1e300",
        ] {
            let value: Value =
                serde_json::from_str(&format!("{{\"a/b\": [1, {{\"n\": {bad}}}]}}")).unwrap();
            let error = check_user_data(&value).unwrap_err();
            assert!(
                matches!(&error, DataError::Inexact { path, .. } if path == "/a~1b/1/n"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn invisible_character_is_rejected_with_position() {
        for bad in [
            json!({"a/b": ["x", "\u{202e}x"]}),
            json!({"a": {"\u{200b}": 1}}),
            json!({"a": "\u{feff}"}),
        ] {
            let error = check_user_data(&bad).unwrap_err();
            assert!(
                matches!(&error, DataError::MisleadingText { path, .. } if path.starts_with("/a")),
                "{bad}: {error}"
            );
        }
        assert_eq!(check_user_data(&json!({"two": "lines\nand a\ttab, é 漢 😀"})), Ok(()));
    }

    #[test]
    fn malformed_secret_reference_is_rejected_with_position() {
        let good = json!({"password": {"$secret": "db", "version": 2}});
        assert_eq!(check_user_data(&good), Ok(()));
        for bad in [
            json!({"$secret": 1}),
            json!({"$secret": "db"}),
            json!({"$secret": "db", "version": 0}),
            json!({"$secret": "", "version": 1}),
            json!({"$secret": "db", "version": 1, "more": true}),
        ] {
            let error = check_user_data(&json!({"x": [bad.clone()]})).unwrap_err();
            assert_eq!(error, DataError::InvalidReference { path: "/x/0".into() }, "{bad}");
            assert!(error.to_string().contains("\"version\": 1"), "{error}");
            assert!(check_user_data(&bad).is_err(), "the check also covers the top level");
        }
    }

    #[test]
    fn impossible_secret_name_is_rejected_with_position() {
        for name in ["../x", "/etc/passwd", "a//b", "a/../../b", ".hidden", "a\\b"] {
            let error =
                check_user_data(&json!({"x": [{"$secret": name, "version": 1}]})).unwrap_err();
            assert_eq!(
                error,
                DataError::InvalidSecretName { path: "/x/0".into(), name: name.into() }
            );
        }
        let hidden =
            check_user_data(&json!({"x": {"$secret": "d\u{200b}b", "version": 1}})).unwrap_err();
        assert!(matches!(hidden, DataError::MisleadingText { .. }), "{hidden}");
        assert_eq!(check_user_data(&json!({"x": {"$secret": "db/admin", "version": 1}})), Ok(()));
    }

    #[test]
    fn very_deep_document_is_rejected_without_recursion() {
        let deep = nested(1_000);
        assert!(matches!(check(&deep), Err(DataError::TooDeep { .. })));
        assert!(matches!(merge(&deep, &deep), Err(DataError::TooDeep { .. })));
        assert!(matches!(difference(&deep, &json!({})), Err(DataError::TooDeep { .. })));
    }
}
