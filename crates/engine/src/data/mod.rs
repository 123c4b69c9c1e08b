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
//!   ([`MAX_BYTES`]) where documents enter ([`check`]), and where a run sees many of them merged ([`check_seen`]).
//!
//! Absent and `null` differ: `null` is a value that a person may set on purpose. Only where a whole layer is meant (a role without
//! a template) is `null` taken for "nothing".

use serde_json::{Map, Value};

use crate::{canonical, text};

mod diff;
pub mod fit;
pub mod kept;
mod layers;
mod merge;
pub mod number;
pub mod schema;
pub mod secret;
pub mod surroundings;
pub mod written;

pub use diff::{Change, ChangeKind, diff};
pub use layers::{
    Contribution, Layer, Layered, OwnData, Sight, Source, Wall, distances, layers, visible,
};
pub use merge::{contains, difference, merge, wall};
pub use secret::mask;

/// Most bytes of one document, counted in its canonical form.
pub const MAX_BYTES: usize = 256 * 1024;
/// Most bytes of what one run sees, counted in its canonical form: it is kept with each run, and goes to its node.
pub const MAX_SEEN: usize = 4 * 1024 * 1024;
/// Most bytes of one document as PostgreSQL writes it ([`stored_bytes`]). Only numbers with large exponents make more of [`MAX_BYTES`].
pub const MAX_STORED: usize = 1024 * 1024;
/// The largest whole number that every reader of JSON has exactly: 2^53 - 1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;
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
    /// Over [`MAX_BYTES`], or [`MAX_SEEN`].
    #[error(
        "the data has {size} bytes in canonical form; at most {limit} are allowed: keep bulk out of it and refer to a file"
    )]
    TooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Over [`MAX_STORED`].
    #[error(
        "the data has {size} bytes as it is stored, where numbers are written out (1e-300 has 302 digits there); at most {limit} are allowed: \
         write such numbers as texts, or fewer of them"
    )]
    Swollen {
        /// Bytes stored.
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
    /// A number that not everybody reads as the same one.
    #[error(
        "the number {number} at {path} is too large to be exact everywhere (beyond {MAX_INTEGER}): write it as a text, or smaller"
    )]
    Inexact {
        /// A JSON pointer.
        path: String,
        /// As it was given.
        number: String,
    },
    /// An object with the key of a secret that is no reference to one.
    #[error(
        "what stands at {path} has the key \"$secret\" and is no reference to a secret: write {{\"$secret\": \"a name\", \"version\": 1}} and \
         nothing else, or use another key"
    )]
    NotAReference {
        /// A JSON pointer.
        path: String,
    },
    /// A reference to a secret that no worker could have.
    #[error(
        "what stands at {path} refers to the secret {name:?}, and there can't be one of that name: give it the name under which workers have \
         it, parts with a slash between, none of them empty or with a dot in front"
    )]
    NoSecretsName {
        /// A JSON pointer.
        path: String,
        /// As it was given, shortened.
        name: String,
    },
    /// A text, or a key, with a character in it that nobody sees.
    #[error(
        "the text at {path} has the character {number}, which can't be seen or makes it read as another: leave it out"
    )]
    Deceptive {
        /// A JSON pointer; of a key, to the object that has it.
        path: String,
        /// The character's number.
        number: String,
    },
    /// A text, or a key, with the character that PostgreSQL has no place for.
    #[error("the text at {path} has the character U+0000, which can't be stored: leave it out")]
    Unstorable {
        /// A JSON pointer; of a key, to the object that has it.
        path: String,
    },
    /// A value that has no canonical form.
    #[error("the data can't be written as canonical JSON: {reason}")]
    NotCanonical {
        /// From the writer.
        reason: String,
    },
}

/// Checks a document against all limits, before it is stored or used.
///
/// # Errors
/// [`DataError::TooDeep`], [`DataError::TooLarge`], [`DataError::Swollen`], [`DataError::NotCanonical`].
pub fn check(value: &Value) -> Result<(), DataError> {
    check_depth(value)?;
    at_most(value, MAX_BYTES)?;
    let size = stored_bytes(value);
    if size > MAX_STORED {
        return Err(DataError::Swollen { size, limit: MAX_STORED });
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

/// Checks what a run is about to see: many documents of which each is small may be large together.
///
/// # Errors
/// [`DataError::TooLarge`], [`DataError::NotCanonical`].
pub fn check_seen(value: &Value) -> Result<(), DataError> {
    at_most(value, MAX_SEEN)
}

/// How many bytes a document, no deeper than [`MAX_DEPTH`], has as PostgreSQL writes it (`jsonb::text`): with spaces between its parts,
/// and its numbers without exponents.
pub fn stored_bytes(value: &Value) -> usize {
    let text = |text: &str| serde_json::to_string(text).map_or(0, |written| written.len());
    let list =
        |inside: usize, count: usize| "[]".len() + inside + ", ".len() * count.saturating_sub(1);
    match value {
        Value::Null | Value::Bool(true) => "null".len(),
        Value::Bool(false) => "false".len(),
        Value::Number(number) => written_out(&number.to_string()),
        Value::String(string) => text(string),
        Value::Array(values) => list(values.iter().map(stored_bytes).sum(), values.len()),
        Value::Object(map) => {
            let entry =
                |(key, value): (&String, &Value)| text(key) + ": ".len() + stored_bytes(value);
            list(map.iter().map(entry).sum(), map.len())
        }
    }
}

/// How many characters a number has that is written out, without an exponent.
fn written_out(number: &str) -> usize {
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

/// Checks what a run handed back: [`check`], and that it can be stored.
///
/// # Errors
/// Those of [`check`], [`DataError::Unstorable`].
pub fn check_returned(value: &Value) -> Result<(), DataError> {
    check(value)?;
    check_storable(value, &mut String::new())
}

fn check_storable(value: &Value, path: &mut String) -> Result<(), DataError> {
    let plain = |text: &str, path: &str| match text.contains('\0') {
        false => Ok(()),
        true => Err(DataError::Unstorable {
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

/// Checks a document that a person wrote: [`check`], and that it means the same wherever it is read.
///
/// A whole number beyond [`MAX_INTEGER`] has several neighbours that a browser, or canonical JSON, can't tell from it, so what is
/// approved would not be what was written. Half a reference to a secret would be kept and masked for ever, and resolved never; one to a
/// secret that there can't be would be approved, and fail. And of
/// a text that deceives ([`text::deceives`]), reviewers would read another.
///
/// # Errors
/// Those of [`check`], [`DataError::Inexact`], [`DataError::NotAReference`], [`DataError::NoSecretsName`], [`DataError::Deceptive`].
pub fn check_written(value: &Value) -> Result<(), DataError> {
    check(value)?;
    check_values(value, &mut String::new())
}

fn check_values(value: &Value, path: &mut String) -> Result<(), DataError> {
    let plain = |text: &str, path: &str| match text::deceiving(text) {
        None => Ok(()),
        Some(c) => Err(DataError::Deceptive {
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
        secret::reference(value).ok_or_else(|| DataError::NotAReference { path: path() })?;
    if let Some(c) = text::deceiving(&secret.name) {
        return Err(DataError::Deceptive { path: path(), number: text::number(c) });
    }
    match secret.parts() {
        Some(_) => Ok(()),
        None => Err(DataError::NoSecretsName {
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
    // Digits beyond 64 bits are read as a float; which ones they were is lost then.
    #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is a float itself")]
    number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() > MAX_INTEGER as f64)
}

/// Goes no deeper than the limit itself, so the document that it refuses can't exhaust the stack first.
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

/// What layers and results must be: an object, of which no part is hidden as a whole.
pub(crate) fn object(value: &Value, what: impl FnOnce() -> String) -> Result<(), DataError> {
    if value.is_object() && !secret::is_reference(value) {
        return Ok(());
    }
    Err(DataError::NotAnObject { what: what(), found: kind_of(value) })
}

/// The kind of a value, for people.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        reference if secret::is_reference(reference) => "a reference to a secret",
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
        (0..levels)
            .fold(json!(1), |inner, _| Value::Object(Map::from_iter([("k".to_owned(), inner)])))
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
        check_seen(&json!({"k": "x".repeat(MAX_SEEN - overhead)})).unwrap();
        assert!(check_seen(&json!({"k": "x".repeat(MAX_SEEN - overhead + 1)})).is_err());
    }

    #[test]
    fn what_is_small_as_it_is_written_may_be_too_large_as_it_is_stored() {
        let value = json!({ "n": vec![1e-300; 4_000] });
        assert!(serde_json::to_vec(&value).unwrap().len() < 30_000);
        for refused in [check(&value), check_written(&value), check_returned(&value)] {
            let Err(error @ DataError::Swollen { size, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert!(size > 1_200_000 && error.to_string().contains("1e-300"), "{error}");
        }
        check(&json!({ "n": vec![1e-300; 3_000] })).unwrap();
    }

    #[test]
    fn whole_numbers_are_exact_everywhere_or_refused_with_their_place() {
        for good in ["9007199254740991", "-9007199254740991", "0", "1.5", "1e-300", "12345.0"] {
            let value: Value = serde_json::from_str(&format!("{{\"n\": {good}}}")).unwrap();
            assert_eq!(check_written(&value), Ok(()), "{good}");
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
            let error = check_written(&value).unwrap_err();
            assert!(
                matches!(&error, DataError::Inexact { path, .. } if path == "/a~1b/1/n"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn what_nobody_sees_is_refused_with_its_place() {
        for bad in [
            json!({"a/b": ["x", "\u{202e}x"]}),
            json!({"a": {"\u{200b}": 1}}),
            json!({"a": "\u{feff}"}),
        ] {
            let error = check_written(&bad).unwrap_err();
            assert!(
                matches!(&error, DataError::Deceptive { path, .. } if path.starts_with("/a")),
                "{bad}: {error}"
            );
        }
        assert_eq!(check_written(&json!({"two": "lines\nand a\ttab, é 漢 😀"})), Ok(()));
    }

    #[test]
    fn half_a_reference_is_refused_with_its_place() {
        let good = json!({"password": {"$secret": "db", "version": 2}});
        assert_eq!(check_written(&good), Ok(()));
        for bad in [
            json!({"$secret": 1}),
            json!({"$secret": "db"}),
            json!({"$secret": "db", "version": 0}),
            json!({"$secret": "", "version": 1}),
            json!({"$secret": "db", "version": 1, "more": true}),
        ] {
            let error = check_written(&json!({"x": [bad.clone()]})).unwrap_err();
            assert_eq!(error, DataError::NotAReference { path: "/x/0".into() }, "{bad}");
            assert!(error.to_string().contains("\"version\": 1"), "{error}");
            assert!(check_written(&bad).is_err(), "at the top too");
        }
    }

    #[test]
    fn a_secret_that_there_can_not_be_is_refused_with_its_place() {
        for name in ["../x", "/etc/passwd", "a//b", "a/../../b", ".hidden", "a\\b"] {
            let error =
                check_written(&json!({"x": [{"$secret": name, "version": 1}]})).unwrap_err();
            assert_eq!(error, DataError::NoSecretsName { path: "/x/0".into(), name: name.into() });
        }
        let hidden =
            check_written(&json!({"x": {"$secret": "d\u{200b}b", "version": 1}})).unwrap_err();
        assert!(matches!(hidden, DataError::Deceptive { .. }), "{hidden}");
        assert_eq!(check_written(&json!({"x": {"$secret": "db/admin", "version": 1}})), Ok(()));
    }

    #[test]
    fn a_document_far_too_deep_is_refused_and_not_walked() {
        let deep = nested(1_000);
        assert!(matches!(check(&deep), Err(DataError::TooDeep { .. })));
        assert!(matches!(merge(&deep, &deep), Err(DataError::TooDeep { .. })));
        assert!(matches!(difference(&deep, &json!({})), Err(DataError::TooDeep { .. })));
    }
}
