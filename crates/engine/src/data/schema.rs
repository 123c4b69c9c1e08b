//! Validates values against the schemas of attributes.
//!
//! Barclamps use one of two vocabularies, and often both: OpenCrowbar's (`type: seq`, `sequence`,
//! `mapping`, `=` for any other key, `range`) and JSON Schema's (`type: array`, `items`,
//! `properties`, `additionalProperties`, `minimum`, `maximum`). Both express the same few rules, so
//! one validator handles both. It ignores unknown keywords, because it must not reject a valid
//! value. It also ignores patterns, which are written for another regular expression dialect.

use serde_json::{Map, Value};

use super::{check_depth, escaped, kind_of};

/// A value that does not match its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// A JSON pointer relative to the value; empty for the value itself.
    pub path: String,
    /// The problem: `is text, and should be a number`. Never contains the value.
    pub problem: String,
}

/// All mismatches between a value and its schema, in the order of the value. A reference to a
/// secret matches any schema.
pub fn schema_errors(value: &Value, schema: &Value) -> Vec<SchemaError> {
    let mut found = Vec::new();
    if check_depth(value).is_ok() && check_depth(schema).is_ok() {
        walk(value, schema, String::new(), &mut found);
    }
    found
}

fn walk(value: &Value, schema: &Value, path: String, found: &mut Vec<SchemaError>) {
    let Some(schema) = schema.as_object() else { return };
    if super::secret::is_reference(value) {
        return;
    }
    let mut wrong = |problem: String| found.push(SchemaError { path: path.clone(), problem });
    if let Some(expected) = schema.get("type").filter(|expected| !is_type(value, expected)) {
        return wrong(format!("is {}, but must be {}", kind_of(value), listed(expected)));
    }
    if let Some(known) = schema.get("enum").and_then(Value::as_array)
        && !known.contains(value)
    {
        let known: Vec<String> = known.iter().take(10).map(Value::to_string).collect();
        wrong(format!("must be one of {}", known.join(", ")));
    }
    if let Some(problem) = out_of_range(value, schema) {
        wrong(problem);
    }
    match value {
        Value::Object(map) => fields(map, schema, &path, found),
        Value::Array(list) => {
            let each = match schema.get("sequence").or_else(|| schema.get("items")) {
                Some(Value::Array(one)) => one.first(),
                other => other,
            };
            for (n, item) in list.iter().enumerate() {
                each.into_iter().for_each(|each| walk(item, each, format!("{path}/{n}"), found));
            }
        }
        _ => {}
    }
}

fn fields(
    map: &Map<String, Value>,
    schema: &Map<String, Value>,
    path: &str,
    found: &mut Vec<SchemaError>,
) {
    let known =
        schema.get("mapping").or_else(|| schema.get("properties")).and_then(Value::as_object);
    let other =
        known.and_then(|known| known.get("=")).or_else(|| schema.get("additionalProperties"));
    for (key, value) in super::ordered(map) {
        let at = format!("{path}/{}", escaped(key));
        match (known.and_then(|known| known.get(key)), other) {
            (Some(field), _) => walk(value, field, at, found),
            (None, Some(Value::Bool(false))) => {
                found.push(SchemaError { path: at, problem: "is an unknown key".into() });
            }
            (None, Some(other)) => walk(value, other, at, found),
            (None, None) => {}
        }
    }
    let named = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let marked = known.into_iter().flatten().filter(|(key, field)| {
        *key != "=" && field.get("required").and_then(Value::as_bool) == Some(true)
    });
    let mut missing: Vec<&str> = named
        .chain(marked.map(|(key, _)| key.as_str()))
        .filter(|key| !map.contains_key(*key))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    for key in missing {
        found.push(SchemaError {
            path: format!("{path}/{}", escaped(key)),
            problem: "is required but missing".into(),
        });
    }
}

/// Type names of both vocabularies. Dates and times of kwalify are not validated.
const TYPE_NAMES: [&str; 22] = [
    "any",
    "array",
    "bool",
    "boolean",
    "date",
    "float",
    "int",
    "integer",
    "map",
    "null",
    "number",
    "object",
    "regexp",
    "scalar",
    "seq",
    "sequence",
    "str",
    "string",
    "symbol",
    "text",
    "time",
    "timestamp",
];

/// Problems of a schema itself, with which it would accept either no value or any value. In the
/// order of its keys, with pointers.
pub fn schema_defects(schema: &Value) -> Vec<SchemaError> {
    let mut found = Vec::new();
    if check_depth(schema).is_ok() {
        collect_defects(schema, String::new(), &mut found);
    }
    found
}

fn collect_defects(schema: &Value, path: String, found: &mut Vec<SchemaError>) {
    let Some(map) = schema.as_object() else { return };
    let mut wrong = |problem: String| found.push(SchemaError { path: path.clone(), problem });
    for word in words(map.get("type")).filter(|word| !TYPE_NAMES.contains(word)) {
        wrong(format!("has the unknown type {word:?}, so every value passes"));
    }
    if map.get("enum").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        wrong("has an empty enum, so no value passes".into());
    }
    for (both, [least, most]) in
        [("range", ["minimum", "maximum"]), ("length", ["minLength", "maxLength"])]
    {
        let both = map.get(both);
        let limit = |short: &str, long: &str| {
            both.and_then(|b| b.get(short)).or_else(|| map.get(long)).and_then(Value::as_f64)
        };
        if let Some((least, most)) =
            limit("min", least).zip(limit("max", most)).filter(|(least, most)| least > most)
        {
            wrong(format!("requires at least {least} and at most {most}, so no value passes"));
        }
    }
    for (key, value) in super::ordered(map) {
        let at = format!("{path}/{}", escaped(key));
        match (key.as_str(), value) {
            ("mapping" | "properties", Value::Object(fields)) => {
                for (field, schema) in super::ordered(fields) {
                    collect_defects(schema, format!("{at}/{}", escaped(field)), found);
                }
            }
            ("sequence" | "items", Value::Array(one)) => {
                one.iter()
                    .enumerate()
                    .for_each(|(n, schema)| collect_defects(schema, format!("{at}/{n}"), found));
            }
            ("items" | "additionalProperties", schema) => collect_defects(schema, at, found),
            _ => {}
        }
    }
}

fn words(kind: Option<&Value>) -> impl Iterator<Item = &str> {
    let (one, several) = match kind {
        Some(Value::Array(words)) => (None, words.as_slice()),
        one => (one, [].as_slice()),
    };
    one.into_iter().chain(several).filter_map(Value::as_str)
}

fn is_type(value: &Value, expected: &Value) -> bool {
    match expected {
        Value::String(word) => matches_type_name(value, word),
        Value::Array(words) => words.iter().any(|word| is_type(value, word)),
        _ => true,
    }
}

fn matches_type_name(value: &Value, word: &str) -> bool {
    match word {
        "str" | "string" => value.is_string(),
        "text" => value.is_string() || value.is_number(),
        "int" | "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        "float" | "number" => value.is_number(),
        "bool" | "boolean" => value.is_boolean(),
        "seq" | "array" => value.is_array(),
        "map" | "object" => value.is_object(),
        "scalar" => !value.is_array() && !value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn listed(expected: &Value) -> String {
    let plain = |word: &str| match word {
        "str" | "string" => "a string".to_owned(),
        "int" | "integer" => "an integer".into(),
        "float" | "number" => "a number".into(),
        "bool" | "boolean" => "a boolean".into(),
        "seq" | "array" => "an array".into(),
        "map" | "object" => "an object".into(),
        other => other.to_owned(),
    };
    match expected {
        Value::String(word) => plain(word),
        Value::Array(words) => {
            words.iter().filter_map(Value::as_str).map(plain).collect::<Vec<_>>().join(" or ")
        }
        other => other.to_string(),
    }
}

fn out_of_range(value: &Value, schema: &Map<String, Value>) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "no text is so long")]
    let (found, both, single, unit) = match value {
        Value::Number(number) => (number.as_f64()?, "range", ["minimum", "maximum"], ""),
        Value::String(text) => {
            (text.chars().count() as f64, "length", ["minLength", "maxLength"], " characters")
        }
        _ => return None,
    };
    let both = schema.get(both);
    let limit = |short: &str, long: &str| {
        both.and_then(|b| b.get(short)).or_else(|| schema.get(long)).and_then(Value::as_f64)
    };
    if let Some(least) = limit("min", single[0]).filter(|least| found < *least) {
        return Some(format!("must be at least {least}{unit}"));
    }
    limit("max", single[1])
        .filter(|most| found > *most)
        .map(|most| format!("must be at most {most}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(value: Value, schema: Value) -> Vec<String> {
        schema_errors(&value, &schema)
            .into_iter()
            .map(|m| format!("{} {}", m.path, m.problem))
            .collect()
    }

    #[test]
    fn both_schema_vocabularies_are_equivalent() {
        let crowbar = json!({"type": "map", "mapping": {
            "port": {"type": "int", "required": true, "range": {"min": 1, "max": 65535}},
            "hosts": {"type": "seq", "sequence": [{"type": "str"}]},
            "=": {"type": "bool"},
        }});
        let json_schema = json!({"type": "object", "required": ["port"], "additionalProperties": {"type": "boolean"}, "properties": {
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "hosts": {"type": "array", "items": {"type": "string"}},
        }});
        for schema in [crowbar, json_schema] {
            assert_eq!(
                messages(json!({"port": 80, "hosts": ["a"], "on": true}), schema.clone()),
                [""; 0]
            );
            assert_eq!(
                messages(json!([]), schema.clone()),
                [" is an array, but must be an object"]
            );
            let wrong =
                messages(json!({"port": 0, "hosts": ["a", 1], "on": "yes"}), schema.clone());
            assert_eq!(
                wrong,
                [
                    "/hosts/1 is a number, but must be a string",
                    "/on is a string, but must be a boolean",
                    "/port must be at least 1"
                ]
            );
            assert_eq!(messages(json!({}), schema.clone()), ["/port is required but missing"]);
        }
        for schema in [json!({"length": {"max": 2}}), json!({"maxLength": 2})] {
            assert_eq!(messages(json!("äöü"), schema.clone()), [" must be at most 2 characters"]);
            assert_eq!(messages(json!("äö"), schema), [""; 0]);
        }
        assert_eq!(
            messages(json!("x"), json!({"enum": ["a", "b"]})),
            [" must be one of \"a\", \"b\""]
        );
        assert_eq!(
            messages(json!({"a": 1}), json!({"additionalProperties": false})),
            ["/a is an unknown key"]
        );
    }

    #[test]
    fn flawed_schemas_are_detected() {
        let messages = |schema: Value| {
            schema_defects(&schema)
                .into_iter()
                .map(|m| format!("{} {}", m.path, m.problem))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            messages(json!({"type": "zz"})),
            [" has the unknown type \"zz\", so every value passes"]
        );
        assert_eq!(messages(json!({"enum": []})), [" has an empty enum, so no value passes"]);
        let crossed = [" requires at least 5 and at most 1, so no value passes"];
        assert_eq!(messages(json!({"type": "int", "range": {"min": 5, "max": 1}})), crossed);
        assert_eq!(messages(json!({"minimum": 5, "maximum": 1})), crossed);
        let deep = json!({"type": "seq", "sequence": [{"type": "map", "mapping": {"a": {"type": ["str", "nil"]}}}]});
        assert_eq!(
            messages(deep),
            ["/sequence/0/mapping/a has the unknown type \"nil\", so every value passes"]
        );
        assert_eq!(
            messages(
                json!({"type": "str", "pattern": "/x/", "required": true, "length": {"min": 1}})
            ),
            [""; 0]
        );
    }

    #[test]
    fn unknown_keywords_are_ignored_and_values_hidden() {
        assert_eq!(messages(json!("x"), json!({"type": "date", "pattern": "/\\Ay\\z/"})), [""; 0]);
        assert_eq!(
            messages(json!({"$secret": "s", "version": 1}), json!({"type": "str"})),
            [""; 0]
        );
        assert!(!messages(json!("hunter2"), json!({"type": "int"}))[0].contains("hunter"));
    }
}
