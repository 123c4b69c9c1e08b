//! Checks JSON that users enter, before it is parsed into data.
//!
//! Reviewers approve a document as displayed, but runs read its bytes. This module therefore
//! rejects a text in which an object has a duplicate key, because JSON parsers choose different
//! values. It also rejects a number that would not be stored exactly ([`number`]).
//! `check_user_data` checks the parsed value. Forms use this while the user types and the server
//! checks again, so both accept the same texts.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::number::{self, Fidelity};

/// Checks a JSON text from a user or an API client: keys are unique, and numbers are stored
/// exactly.
///
/// # Errors
/// Those of [`check_keys`], and an inexact number with its line and column.
pub fn check(text: &str) -> Result<(), serde_json::Error> {
    check_keys(text)?;
    // The library reads the position from the end of the message.
    number::check_numbers(text, Fidelity::Exact).map_err(serde_json::Error::custom)
}

/// Rejects a JSON text in which an object has a duplicate key. Stores no values.
///
/// # Errors
/// Invalid JSON, or a duplicate key. The position is after that key.
pub fn check_keys(text: &str) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    Once.deserialize(&mut reader)?;
    reader.end()
}

/// Any value, of which only the keys are read.
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("duplicate key {key:?} in an object")));
            }
            seen.insert(key);
            entries.next_value_seed(Self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inexact_number_is_rejected_with_position() {
        check(r#"{"a": [0.5, 1e22, -3]}"#).unwrap();
        let error = check("{\"a\":\n [0.5, 1e-400]}").unwrap_err();
        assert_eq!((error.line(), error.column()), (2, 8), "{error}");
        assert!(
            error.to_string().starts_with("the number 1e-400 at /a/1 cannot be stored exactly"),
            "{error}"
        );
        assert!(check("[1e400]").is_err() && check("[0.10000000000000001]").is_err());
    }

    #[test]
    fn duplicate_key_is_rejected_with_position() {
        for good in
            ["{}", r#"{"a": {"a": [{"a": 1}, {"a": null}]}, "b": 1.5, "c": -1}"#, "[true, \"x\"]"]
        {
            check_keys(good).unwrap();
        }
        let error = check_keys("{\n  \"x\": [{\"a\": 1,\n  \"b\": 2, \"a\": 1}]\n}").unwrap_err();
        assert_eq!(
            (error.line(), error.to_string().contains("duplicate key \"a\"")),
            (3, true),
            "{error}"
        );
        assert!((11..=14).contains(&error.column()), "{error}");
        // The same characters in another spelling.
        assert!(check_keys(r#"{"a": 1, "\u0061": 2}"#).is_err());
        assert!(check_keys("{\"a\": 1} x").is_err());
        assert!(
            check_keys(&"[".repeat(100_000)).is_err(),
            "deep nesting must not exhaust the stack"
        );
    }
}
