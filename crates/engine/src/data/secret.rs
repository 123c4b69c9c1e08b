//! References to secrets, and masking.
//!
//! Documents never contain a secret, only a reference: `{"$secret": "db/admin", "version": 3}`. It
//! is resolved when a run starts, so the value reaches only the worker. [`mask`] hides references
//! from readers of data. [`conceal`] removes secret values that a run printed or returned from its
//! output.
//!
//! Any object with the key `$secret` counts as a reference, even if malformed. As ordinary data,
//! the parts of a malformed reference would be shown and merged.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{escaped, ordered};

/// The key that makes an object a reference.
pub const KEY: &str = "$secret";
/// The replacement text for a secret.
pub const MASK: &str = "(secret)";

/// Minimum length for masking, in bytes. Replacing every `1` of an output would hide nothing and
/// destroy the output.
pub const MIN_REDACTED_BYTES: usize = 4;

/// A reference to a secret by name and version. It never contains the value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// The secret's name, a path such as `db/admin`.
    #[serde(rename = "$secret")]
    pub name: String,
    /// The version of the value. A rotation is a reviewed edit that raises it.
    pub version: i64,
}

/// Writes `db/admin version 3`.
impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}

impl SecretRef {
    /// The components of its name, which is a path. `None` if no secret can have that name. Workers
    /// store secrets as files, so no component may lead to another folder.
    pub fn parts(&self) -> Option<Vec<&str>> {
        let plain = |part: &&str| {
            !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0'])
        };
        let parts: Vec<&str> = self.name.split('/').collect();
        parts.iter().all(plain).then_some(parts)
    }
}

/// The allowed use of a secret, from the descriptor file next to it on the workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Descriptor {
    /// Data of runs in these deployments, by name.
    Data {
        /// `*` means every deployment. Descendants of a listed deployment are not included.
        deployments: BTreeSet<String>,
    },
    /// The key for connections to nodes. No run receives it.
    NodeKey {},
}

impl Descriptor {
    /// The name in a descriptor that means every deployment.
    pub const EVERY: &str = "*";

    /// Whether runs in this deployment may receive the secret.
    pub fn allows(&self, deployment: &str) -> bool {
        match self {
            Self::Data { deployments } => {
                deployments.contains(Self::EVERY) || deployments.contains(deployment)
            }
            Self::NodeKey {} => false,
        }
    }
}

/// A secret as workers report it. Only a hint for reviewers: workers decide from their own files
/// which secrets a run receives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnownSecret {
    pub name: String,
    /// The newest versions.
    pub versions: BTreeSet<i64>,
    /// `None`: the secret has no valid descriptor and cannot be used.
    pub descriptor: Option<Descriptor>,
}

/// Whether a value is a reference to a secret, well-formed or not.
pub fn is_reference(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.contains_key(KEY))
}

/// Parses a reference. `None` for any other value and for a malformed reference; [`is_reference`]
/// distinguishes these.
pub fn reference(value: &Value) -> Option<SecretRef> {
    let map = value.as_object()?;
    let name = map.get(KEY)?.as_str()?;
    let version = map.get("version")?.as_i64()?;
    (map.len() == 2 && !name.is_empty() && version > 0)
        .then(|| SecretRef { name: name.to_owned(), version })
}

/// Every distinct well-formed reference in a document, in order. A run needs all of them resolved.
pub fn references(value: &Value) -> BTreeSet<SecretRef> {
    let mut found = BTreeSet::new();
    collect(value, &mut found);
    found
}

/// Every well-formed reference in a document, with its JSON pointer.
pub fn located(value: &Value) -> Vec<(String, SecretRef)> {
    let mut found = Vec::new();
    locate(value, String::new(), &mut found);
    found
}

fn locate(value: &Value, at: String, found: &mut Vec<(String, SecretRef)>) {
    if is_reference(value) {
        found.extend(reference(value).map(|secret| (at, secret)));
        return;
    }
    match value {
        Value::Object(map) => {
            ordered(map)
                .into_iter()
                .for_each(|(key, v)| locate(v, format!("{at}/{}", escaped(key)), found));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, v)| locate(v, format!("{at}/{n}"), found))
        }
        _ => {}
    }
}

fn collect(value: &Value, found: &mut BTreeSet<SecretRef>) {
    if is_reference(value) {
        found.extend(reference(value));
        return;
    }
    match value {
        Value::Object(map) => map.values().for_each(|v| collect(v, found)),
        Value::Array(list) => list.iter().for_each(|v| collect(v, found)),
        _ => {}
    }
}

/// Replaces every reference with [`MASK`].
pub fn mask(value: &Value) -> Value {
    replaced(value, &|_| MASK.to_owned())
}

/// Replaces every reference with its name for reviewers: `(secret db/admin version 3)`.
pub fn named(value: &Value) -> Value {
    replaced(value, &|at| {
        reference(at).map_or_else(|| MASK.to_owned(), |secret| format!("(secret {secret})"))
    })
}

fn replaced(value: &Value, text: &dyn Fn(&Value) -> String) -> Value {
    if is_reference(value) {
        return Value::String(text(value));
    }
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().map(|(k, v)| (k.clone(), replaced(v, text))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(|v| replaced(v, text)).collect()),
        plain => plain.clone(),
    }
}

/// Whether a document contains a reference.
pub fn contains_reference(value: &Value) -> bool {
    is_reference(value)
        || match value {
            Value::Object(map) => map.values().any(contains_reference),
            Value::Array(list) => list.iter().any(contains_reference),
            _ => false,
        }
}

/// Replaces every occurrence of these plain texts with [`MASK`]: in strings, in keys, and in
/// numbers that equal one of them.
///
/// Longer texts are replaced first, so that a secret that contains another leaves no remainder.
/// Texts shorter than [`MIN_REDACTED_BYTES`] bytes are ignored.
pub fn conceal(value: &Value, plain: &[&str]) -> Value {
    let mut plain: Vec<&str> =
        plain.iter().copied().filter(|text| text.len() >= MIN_REDACTED_BYTES).collect();
    plain.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    concealed(value, &plain)
}

fn concealed(value: &Value, plain: &[&str]) -> Value {
    match value {
        Value::String(text) => Value::String(redact_text(text, plain)),
        Value::Number(number) => {
            let text = number.to_string();
            match plain.contains(&text.as_str()) {
                true => Value::String(MASK.to_owned()),
                false => value.clone(),
            }
        }
        Value::Array(list) => Value::Array(list.iter().map(|v| concealed(v, plain)).collect()),
        Value::Object(map) => {
            let entries = map.iter().map(|(k, v)| (redact_text(k, plain), concealed(v, plain)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) => value.clone(),
    }
}

fn redact_text(text: &str, plain: &[&str]) -> String {
    plain.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn malformed_references_are_masked_and_unresolved() {
        for value in [
            json!({"$secret": "db"}),
            json!({"$secret": "db", "version": 0}),
            json!({"$secret": 7, "version": 1}),
            json!({"$secret": "db", "version": 1, "hunter2": "plain"}),
        ] {
            assert_eq!(mask(&json!({ "a": value.clone() })), json!({"a": MASK}));
            assert_eq!(reference(&value), None);
            assert!(is_reference(&value));
        }
        let good =
            json!({"x": [{"$secret": "db", "version": 2}], "y": {"$secret": "db", "version": 2}});
        let only = SecretRef { name: "db".into(), version: 2 };
        assert_eq!(references(&good).into_iter().collect::<Vec<_>>(), [only]);
        assert!(contains_reference(&good) && !contains_reference(&mask(&good)));
    }

    #[test]
    fn conceal_leaves_no_secret_fragment() {
        let output = json!({"url": "https://u:hunter2-long@h", "hunter2": ["x hunter2 y", 12345, 1], "pin": "123"});
        let hidden = conceal(&output, &["hunter2", "hunter2-long", "12345", "123", "1"]);
        let text = hidden.to_string();
        assert!(
            !text.contains("hunter2") && !text.contains("-long") && !text.contains("12345"),
            "{text}"
        );
        assert_eq!(hidden["pin"], json!("123"));
        assert_eq!(hidden[MASK], json!(["x (secret) y", MASK, 1]));
    }
}
