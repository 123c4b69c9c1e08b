//! Data that a person types, checked while they type.
//!
//! The server checks again and has the last word; this is so that nobody submits to learn of a missing comma. Schemas are those of
//! barclamp files, which come in two dialects: JSON Schema's words and Kwalify's (OpenCrowbar). What a schema says beyond the words
//! known here is left to the server.

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
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        let what = said.split(" at line").next().unwrap_or(&said).to_owned();
        Fault::new(format!("line {}, column {}", error.line(), error.column()), what)
    })?;
    if !value.is_object() {
        return Err(Fault::new("", format!("Data is a JSON object, {{…}}, and this is {}.", kind(&value))));
    }
    data::check(&value).map_err(|error| Fault::new("", error.to_string()))?;
    Ok(value)
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
        // A reference stands for a value that nobody here may see.
        if !data::secret::is_reference(part) {
            check(part, schema, &attrib.path, &mut found);
        }
    }
    found
}

fn check(value: &Value, schema: &Value, at: &str, found: &mut Vec<Fault>) {
    if let Some(expected) = schema.get("type").and_then(Value::as_str)
        && !has_type(value, expected)
    {
        found.push(Fault::new(at, format!("expected {}, and this is {}", said(expected), kind(value))));
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        found.push(Fault::new(at, format!("must be one of {}", allowed.join(", "))));
    }
    if let Some(number) = value.as_f64() {
        bounds(number, limits(schema, "range", ["minimum", "maximum"]), "", at, found);
    }
    if let Some(text) = value.as_str() {
        // No text is so long that its length would not fit a double.
        bounds(
            text.chars().count() as f64,
            limits(schema, "length", ["minLength", "maxLength"]),
            " characters",
            at,
            found,
        );
    }
    if let Some(list) = value.as_array() {
        let of_items = schema.get("items").or_else(|| schema.get("sequence").and_then(|s| s.get(0)));
        for (index, item) in list.iter().enumerate() {
            of_items.inspect(|schema| check(item, schema, &format!("{at}/{index}"), found));
        }
    }
    if let Some(map) = value.as_object() {
        let of_parts = schema.get("properties").or_else(|| schema.get("mapping")).and_then(Value::as_object);
        for (key, schema) in of_parts.into_iter().flatten() {
            let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            match map.get(key) {
                Some(part) => check(part, schema, &at, found),
                // Kwalify puts the word with the part, JSON Schema with the whole.
                None if schema.get("required") == Some(&Value::Bool(true)) => found.push(Fault::new(at, "is required")),
                None => {}
            }
        }
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(key) {
                found.push(Fault::new(format!("{at}/{key}"), "is required"));
            }
        }
    }
}

/// The least and the most that a schema allows, in either dialect.
fn limits(schema: &Value, both: &str, single: [&str; 2]) -> [Option<f64>; 2] {
    let nested = schema.get(both);
    let at = |index: usize| {
        let inside = nested.and_then(|n| n.get(["min", "max"][index]));
        schema.get(single[index]).or(inside).and_then(Value::as_f64)
    };
    [at(0), at(1)]
}

fn bounds(found_value: f64, [least, most]: [Option<f64>; 2], unit: &str, at: &str, found: &mut Vec<Fault>) {
    if least.is_some_and(|least| found_value < least) || most.is_some_and(|most| found_value > most) {
        let expected = match (least, most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!("at least {least}"),
            (None, Some(most)) => format!("at most {most}"),
            (None, None) => return,
        };
        found.push(Fault::new(at, format!("must be {expected}{unit}, and this is {found_value}")));
    }
}

fn has_type(value: &Value, expected: &str) -> bool {
    match Simple::of_word(expected) {
        Some(Simple::Text) => value.is_string(),
        Some(Simple::Whole) => value.is_i64() || value.is_u64(),
        Some(Simple::Number) => value.is_number(),
        Some(Simple::Flag) => value.is_boolean(),
        None => match expected {
            "seq" | "array" => value.is_array(),
            "map" | "object" => value.is_object(),
            // A word of another dialect: the server knows.
            _ => true,
        },
    }
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

fn said(expected: &str) -> &str {
    match Simple::of_word(expected) {
        Some(Simple::Text) => "text",
        Some(Simple::Whole) => "a whole number",
        Some(Simple::Number) => "a number",
        Some(Simple::Flag) => "true or false",
        None => match expected {
            "seq" | "array" => "a list",
            "map" | "object" => "an object",
            other => other,
        },
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
    fn both_dialects_are_understood() {
        for (schema, wrong, part) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 9}), json!(0), "1 to 9"),
            (json!({"type": "int", "range": {"min": 1}}), json!(0), "at least 1"),
            (json!({"type": "str"}), json!(3), "text"),
            (json!({"type": "string", "maxLength": 2}), json!("abc"), "at most 2 characters"),
            (json!({"type": "bool"}), json!("true"), "true or false"),
            (json!({"enum": ["a", "b"]}), json!("c"), "\"a\", \"b\""),
            (json!({"type": "seq", "sequence": [{"type": "int"}]}), json!([1, "x"]), "whole number"),
            (json!({"type": "map", "mapping": {"k": {"required": true}}}), json!({}), "required"),
            (json!({"type": "object", "required": ["k"]}), json!({}), "required"),
        ] {
            let found = faults(&json!({"x": {"y": wrong}}), &[attrib("/x/y", schema.clone())]);
            assert_eq!(found.len(), 1, "{schema}");
            assert!(found[0].detail.contains(part), "{schema}: {}", found[0].detail);
        }
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
