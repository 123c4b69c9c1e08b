//! Data that a person types, checked while they type.
//!
//! This is so that nobody submits to learn of a missing comma. The server checks again and has the last word, in the same words: what is
//! wrong is found by the engine, here as there.

use api::console::AttribView;
use engine::data;
use serde_json::{Map, Value};

/// Something that is wrong with what was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A place in the text or a JSON pointer; empty for the whole.
    pub at: String,
    /// What is wrong and what is expected.
    pub detail: String,
}

impl Fault {
    fn new(at: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { at: at.into(), detail: detail.into() }
    }
}

/// Reads a text as data: a JSON object within the engine's limits. Nothing at all is an empty object.
///
/// # Errors
/// What is wrong and where.
pub fn read(text: &str) -> Result<Value, Fault> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    data::written::check_keys(text).map_err(|error| misread(&error))?;
    let value: Value = serde_json::from_str(text).map_err(|error| misread(&error))?;
    if !value.is_object() {
        return Err(Fault::new("", format!("Data is a JSON object, {{…}}, and this is {}.", kind(&value))));
    }
    data::check_written(&value).map_err(|error| Fault::new("", error.to_string()))?;
    Ok(value)
}

fn misread(error: &serde_json::Error) -> Fault {
    let said = error.to_string();
    let what = said.split(" at line").next().unwrap_or(&said).to_owned();
    Fault::new(format!("line {}, column {}", error.line(), error.column()), what)
}

/// A value as people edit it.
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// What the role's attributes object to.
pub fn faults(value: &Value, attribs: &[AttribView]) -> Vec<Fault> {
    let mut found = Vec::new();
    for attrib in attribs {
        let (Some(schema), Some(part)) = (&attrib.schema, value.pointer(&attrib.path)) else { continue };
        let misfits = data::schema::misfits(part, schema);
        found.extend(misfits.into_iter().map(|m| Fault::new(format!("{}{}", attrib.path, m.path), m.what)));
    }
    found
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Types that a single field can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Simple {
    /// Any text.
    Text,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// True or false.
    Flag,
}

impl Simple {
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "str" | "string" | "text" => Some(Self::Text),
            "int" | "integer" => Some(Self::Whole),
            "float" | "number" => Some(Self::Number),
            "bool" | "boolean" => Some(Self::Flag),
            _ => None,
        }
    }

    /// The type of an attribute that fits one field.
    pub fn of(attrib: &AttribView) -> Option<Self> {
        attrib.schema.as_ref()?.get("type")?.as_str().and_then(Self::of_word)
    }

    /// What was typed into the field, as data. What is no such value stays text, so that the check names it.
    pub fn value(self, typed: &str) -> Value {
        let text = || Value::String(typed.to_owned());
        match self {
            Self::Text => text(),
            Self::Whole => typed.trim().parse::<i64>().map_or_else(|_| text(), Value::from),
            Self::Number => {
                let number = typed.trim().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                typed.trim().parse::<i64>().map(Value::from).ok().or(number.map(Value::Number)).unwrap_or_else(text)
            }
            Self::Flag => typed.parse::<bool>().map_or_else(|_| text(), Value::from),
        }
    }
}

/// The values that an attribute allows, if they are few.
pub fn allowed(attrib: &AttribView) -> Option<Vec<Value>> {
    attrib.schema.as_ref()?.get("enum")?.as_array().cloned()
}

/// A value in a field.
pub fn typed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Puts a value at a JSON pointer, with the objects that lead there; None takes it away. Something other than an object on the way is
/// left alone.
pub fn put(document: &mut Value, pointer: &str, value: Option<Value>) {
    let mut keys: Vec<String> =
        pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
    let Some(last) = keys.pop() else { return };
    let mut here = document;
    for key in keys {
        let Value::Object(map) = here else { return };
        if value.is_none() && !map.contains_key(&key) {
            return;
        }
        here = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
    let Value::Object(map) = here else { return };
    match value {
        Some(value) => map.insert(last, value),
        None => map.remove(&last),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attrib(path: &str, schema: Value) -> AttribView {
        AttribView { name: "a".into(), path: path.into(), description: String::new(), schema: Some(schema) }
    }

    #[test]
    fn a_missing_comma_is_found_where_it_is_missing() {
        let fault = read("{\n  \"a\": 1\n  \"b\": 2\n}").unwrap_err();
        assert_eq!(fault.at, "line 3, column 3");
        assert!(fault.detail.contains("expected `,`"), "{}", fault.detail);
        assert!(read("[1]").unwrap_err().detail.contains("a list"));
        assert_eq!(read(" \n").unwrap(), json!({}));
    }

    #[test]
    fn what_the_server_refuses_is_refused_while_one_types() {
        for (typed, part) in [
            ("{\"n\": 9007199254740993}", "too large to be exact"),
            ("{\"t\": \"\u{202e}x\"}", "U+202E"),
            ("{\"\u{200b}\": 1}", "U+200B"),
            ("{\"p\": {\"$secret\": \"db\"}}", "no reference to a secret"),
        ] {
            let fault = read(typed).unwrap_err();
            assert!(fault.detail.contains(part), "{typed}: {fault:?}");
        }
        let twice = read("{\"a\": {\n  \"b\": 1,\n  \"b\": 2}}").unwrap_err();
        assert!(twice.at.starts_with("line 3") && twice.detail.contains("twice"), "{twice:?}");
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        let found = faults(
            &json!({"x": {"y": [1, "z"]}}),
            &[attrib("/x/y", json!({"type": "seq", "sequence": [{"type": "int"}]}))],
        );
        assert_eq!(found, [Fault::new("/x/y/1", "is a text, and should be a whole number")]);
        let secret = json!({"x": {"$secret": "db", "version": 1}});
        assert_eq!(faults(&secret, &[attrib("/x", json!({"type": "str"}))]), []);
    }

    #[test]
    fn a_field_changes_its_place_and_nothing_else() {
        let mut document = json!({"a": {"b": 1}, "c": 2});
        put(&mut document, "/a/d~1e/f", Some(json!(3)));
        assert_eq!(document, json!({"a": {"b": 1, "d/e": {"f": 3}}, "c": 2}));
        put(&mut document, "/a/d~1e/f", None);
        put(&mut document, "/x/y", None);
        put(&mut document, "/c/y", Some(json!(1)));
        assert_eq!(document, json!({"a": {"b": 1, "d/e": {}}, "c": 2}));
    }

    #[test]
    fn what_is_no_number_stays_what_was_typed() {
        assert_eq!(Simple::Whole.value("12"), json!(12));
        assert_eq!(Simple::Whole.value("1x"), json!("1x"));
        assert_eq!(Simple::Number.value("1.5"), json!(1.5));
        assert_eq!(Simple::Flag.value("true"), json!(true));
    }
}
