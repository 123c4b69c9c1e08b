//! Validation of data while a person types it.
//!
//! The browser and the server run the same checks of the engine, so they report the same errors.
//! This gives early feedback only: the server always validates again.

use api::deployments::AttribView;
use engine::data;
use engine::data::fit::{Expected, layer_errors};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// A position in the text or a JSON pointer. Empty: the whole document.
    pub at: String,
    pub detail: String,
}

impl ValidationError {
    fn new(at: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { at: at.into(), detail: detail.into() }
    }
}

/// Parses a text as a JSON object. An empty text is an empty object.
///
/// # Errors
/// The syntax error or violated limit, with its position.
pub fn read(text: &str) -> Result<Value, ValidationError> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    data::written::check(text).map_err(|error| parse_error(&error))?;
    let value: Value = serde_json::from_str(text).map_err(|error| parse_error(&error))?;
    if !value.is_object() {
        return Err(ValidationError::new(
            "",
            format!("Data must be a JSON object, {{…}}, not {}.", kind(&value)),
        ));
    }
    Ok(value)
}

/// Checks the rules for every document: size limits, exact numbers, valid references and no
/// deceptive characters.
fn document_error(value: &Value) -> Option<ValidationError> {
    use data::DataError::{Inexact, InvalidReference, MisleadingText};
    let error = data::check_user_data(value).err()?;
    let at = match &error {
        Inexact { path, .. } | InvalidReference { path } | MisleadingText { path, .. } => {
            path.clone()
        }
        _ => String::new(),
    };
    Some(ValidationError::new(at, error.to_string()))
}

fn parse_error(error: &serde_json::Error) -> ValidationError {
    let text = error.to_string();
    let message = text.split(" at line").next().unwrap_or(&text).to_owned();
    ValidationError::new(format!("line {}, column {}", error.line(), error.column()), message)
}

/// Formats a value for editing.
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A value in a sentence: as JSON, shortened.
pub fn shown(value: &Value) -> String {
    const LENGTH: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The context in which a document is validated.
#[derive(Debug, Clone, Default)]
pub struct Purpose {
    /// The schemas of the role's attributes.
    pub attribs: Vec<AttribView>,
    /// The value that applies if the document does not set one.
    pub below: Value,
    /// Whether no other user data overrides this document.
    pub is_last: bool,
}

impl Purpose {
    /// All errors in a document, each with its position.
    pub fn errors(&self, value: &Value) -> Vec<ValidationError> {
        if let Some(error) = document_error(value) {
            return vec![error];
        }
        let expected = self.attribs.iter().filter_map(|attrib| {
            Some(Expected {
                name: &attrib.name,
                path: &attrib.path,
                schema: attrib.schema.as_ref()?,
            })
        });
        match layer_errors(value, &self.below, expected, self.is_last) {
            Ok(found) => found
                .into_iter()
                .map(|error| ValidationError::new(error.path, error.problem))
                .collect(),
            Err(error) => vec![ValidationError::new("", error.to_string())],
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Types that fit in a single field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarType {
    Text,
    Integer,
    Number,
    Boolean,
}

impl ScalarType {
    fn from_schema_type(word: &str) -> Option<Self> {
        match word {
            "str" | "string" | "text" => Some(Self::Text),
            "int" | "integer" => Some(Self::Integer),
            "float" | "number" => Some(Self::Number),
            "bool" | "boolean" => Some(Self::Boolean),
            _ => None,
        }
    }

    /// Converts a field's text to a value. Text that does not match the type stays a string, so
    /// that validation reports it.
    pub fn value(self, typed: &str) -> Value {
        let text = || Value::String(typed.to_owned());
        match self {
            Self::Text => text(),
            Self::Integer => typed.trim().parse::<i64>().map_or_else(|_| text(), Value::from),
            Self::Number => {
                let typed = typed.trim();
                let exact = data::number::fidelity(typed) == Some(data::number::Fidelity::Exact);
                let number = typed
                    .parse::<f64>()
                    .ok()
                    .filter(|_| exact)
                    .and_then(serde_json::Number::from_f64);
                typed
                    .parse::<i64>()
                    .map(Value::from)
                    .ok()
                    .or(number.map(Value::Number))
                    .unwrap_or_else(text)
            }
            Self::Boolean => typed.parse::<bool>().map_or_else(|_| text(), Value::from),
        }
    }
}

/// The form control for a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    One(ScalarType),
    Choice(Vec<Value>),
    Fields(Vec<Field>),
    /// A list whose items match this schema.
    Items(Value),
    /// A JSON editor, if the schema is too general for a form.
    Json,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub key: String,
    pub schema: Value,
    pub required: bool,
}

/// Deeper objects and lists are edited as JSON. A field at the fifth level is hard to find.
const MAX_DEPTH: usize = 4;

/// The form control for a schema. `depth` is the number of objects and lists around it.
pub fn entry(schema: &Value, depth: usize) -> Entry {
    if let Some(known) =
        schema.get("enum").and_then(Value::as_array).filter(|known| !known.is_empty())
    {
        return Entry::Choice(known.clone());
    }
    let word = schema.get("type").and_then(Value::as_str);
    if let Some(simple) = word.and_then(ScalarType::from_schema_type) {
        return if simple == ScalarType::Boolean {
            Entry::Choice(vec![true.into(), false.into()])
        } else {
            Entry::One(simple)
        };
    }
    if depth >= MAX_DEPTH {
        return Entry::Json;
    }
    if let Some(known) =
        schema.get("mapping").or_else(|| schema.get("properties")).and_then(Value::as_object)
    {
        let named = schema.get("required").and_then(Value::as_array);
        let is_named = |key: &str| {
            named.is_some_and(|named| named.iter().any(|one| one.as_str() == Some(key)))
        };
        let fields = known.iter().filter(|(key, _)| *key != "=").map(|(key, schema)| Field {
            key: key.clone(),
            schema: schema.clone(),
            required: is_named(key) || is_required(schema),
        });
        return Entry::Fields(fields.collect());
    }
    let each = match schema.get("sequence").or_else(|| schema.get("items")) {
        Some(Value::Array(one)) => one.first(),
        other => other,
    };
    match each.filter(|each| entry(each, depth + 1) != Entry::Json) {
        Some(each) => Entry::Items(each.clone()),
        None => Entry::Json,
    }
}

pub fn is_required(schema: &Value) -> bool {
    schema.get("required").and_then(Value::as_bool) == Some(true)
}

/// The initial value of a new list item.
pub fn blank(schema: &Value) -> Value {
    match entry(schema, 0) {
        Entry::One(ScalarType::Text) => Value::String(String::new()),
        Entry::Choice(known) => known.first().cloned().unwrap_or_default(),
        Entry::Fields(_) => Value::Object(Map::new()),
        Entry::Items(_) => Value::Array(Vec::new()),
        Entry::One(_) | Entry::Json => Value::Null,
    }
}

/// Formats a value for a field.
pub fn typed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Sets the value at a JSON pointer and creates missing parent objects. `None` removes the value.
/// An index one past the end of a list appends an item. If a parent is neither an object nor a
/// list, nothing changes.
pub fn put(document: &mut Value, pointer: &str, value: Option<Value>) {
    let mut keys: Vec<String> =
        pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
    let Some(last) = keys.pop() else { return };
    let mut current = document;
    for key in keys {
        current = match current {
            Value::Object(map) => {
                if value.is_none() && !map.contains_key(&key) {
                    return;
                }
                map.entry(key).or_insert_with(|| Value::Object(Map::new()))
            }
            Value::Array(items) => match key.parse::<usize>().ok().and_then(|n| items.get_mut(n)) {
                Some(item) => item,
                None => return,
            },
            _ => return,
        };
    }
    match (current, value) {
        (Value::Object(map), Some(value)) => drop(map.insert(last, value)),
        (Value::Object(map), None) => drop(map.remove(&last)),
        (Value::Array(items), value) => {
            let Ok(n) = last.parse::<usize>() else { return };
            match value {
                Some(value) if n < items.len() => items[n] = value,
                Some(value) if n == items.len() => items.push(value),
                None if n < items.len() => drop(items.remove(n)),
                _ => {}
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attrib(path: &str, schema: Value) -> AttribView {
        AttribView {
            name: "a".into(),
            path: path.into(),
            description: String::new(),
            schema: Some(schema),
        }
    }

    #[test]
    fn missing_comma_is_reported_with_position() {
        let error = read("{\n  \"a\": 1\n  \"b\": 2\n}").unwrap_err();
        assert_eq!(error.at, "line 3, column 3");
        assert!(error.detail.contains("expected `,`"), "{}", error.detail);
        assert!(read("[1]").unwrap_err().detail.contains("an array"));
        assert_eq!(read(" \n").unwrap(), json!({}));
    }

    fn purpose(attribs: Vec<AttribView>) -> Purpose {
        Purpose { attribs, below: json!({}), is_last: true }
    }

    #[test]
    fn invalid_data_is_rejected_like_on_the_server() {
        for (typed, at, part) in [
            ("{\"n\": 9007199254740992}", "/n", "too large to be stored exactly"),
            ("{\"t\": \"\u{202e}x\"}", "/t", "U+202E"),
            ("{\"\u{200b}\": 1}", "/", "U+200B"),
            ("{\"p\": {\"$secret\": \"db\"}}", "/p", "not a valid reference to a secret"),
        ] {
            let error = purpose(vec![]).errors(&read(typed).unwrap()).remove(0);
            assert!(error.at == at && error.detail.contains(part), "{typed}: {error:?}");
        }
        for lost in ["1e-400", "9007199254740993", "0.10000000000000001"] {
            let error = read(&format!("{{\n \"n\": {lost}}}")).unwrap_err();
            assert!(
                error.at == "line 2, column 7" && error.detail.contains("cannot be stored exactly"),
                "{error:?}"
            );
        }
        assert_eq!(
            ScalarType::Number.value("1e-400"),
            json!("1e-400"),
            "a number that loses precision stays text, so that the check reports it"
        );
        assert_eq!(ScalarType::Number.value(" 1.50 "), json!(1.5));
        let twice = read("{\"a\": {\n  \"b\": 1,\n  \"b\": 2}}").unwrap_err();
        assert!(
            twice.at.starts_with("line 3") && twice.detail.contains("duplicate key"),
            "{twice:?}"
        );
    }

    #[test]
    fn schema_violation_is_reported_with_its_path() {
        let of =
            purpose(vec![attrib("/x/y", json!({"type": "seq", "sequence": [{"type": "int"}]}))]);
        let found = of.errors(&json!({"x": {"y": [1, "z"]}}));
        assert_eq!(found, [ValidationError::new("/x/y/1", "is a string, but must be an integer")]);
        let secret = json!({"x": {"$secret": "db", "version": 1}});
        assert_eq!(purpose(vec![attrib("/x", json!({"type": "str"}))]).errors(&secret), []);
        // The template sets the required key.
        let half = json!(
            {
                "type": "map", "mapping": {
                    "port": {"type": "int", "required": true},
                    "name": {"type": "str"}
                }
            }
        );
        let of = Purpose { below: json!({"a": {"port": 1}}), ..purpose(vec![attrib("/a", half)]) };
        assert_eq!(of.errors(&json!({"a": {"name": "x"}})), []);
    }

    #[test]
    fn schema_maps_to_form_controls() {
        let crowbar = json!(
            {
                "type": "map", "mapping": {
                    "port": {"type": "int", "required": true},
                    "=": {"type": "str"}
                }
            }
        );
        let other = json!(
            {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}}}
        );
        for schema in [crowbar, other] {
            let Entry::Fields(fields) = entry(&schema, 0) else { panic!("{schema}") };
            assert!(fields.len() == 1 && fields[0].key == "port" && fields[0].required, "{schema}");
            assert_eq!(entry(&fields[0].schema, 1), Entry::One(ScalarType::Integer));
        }
        assert_eq!(
            entry(&json!({"type": "bool"}), 0),
            Entry::Choice(vec![json!(true), json!(false)])
        );
        assert_eq!(
            entry(&json!({"type": "str", "enum": ["a"]}), 0),
            Entry::Choice(vec![json!("a")])
        );
        let list = json!({"type": "seq", "sequence": [{"type": "str"}]});
        assert_eq!(entry(&list, 0), Entry::Items(json!({"type": "str"})));
        assert_eq!(
            (blank(&json!({"type": "str"})), blank(&list), blank(&json!({"type": "int"}))),
            (json!(""), json!([]), json!(null))
        );
        for unknown in [
            json!({}),
            json!({"type": "any"}),
            json!({"type": "seq"}),
            json!({"type": "seq", "sequence": [{}]}),
        ] {
            assert_eq!(entry(&unknown, 0), Entry::Json, "{unknown}");
        }
        let deep =
            (0..9).fold(json!({"type": "str"}), |inner, _| json!({"properties": {"k": inner}}));
        let mut at = deep;
        let mut depth = 0;
        while let Entry::Fields(fields) = entry(&at, depth) {
            (at, depth) = (fields[0].schema.clone(), depth + 1);
        }
        assert_eq!(depth, MAX_DEPTH, "nested schemas are limited");
    }

    #[test]
    fn list_items_are_changed_added_and_removed() {
        let mut document = json!({"l": ["a", {"k": 1}]});
        put(&mut document, "/l/0", Some(json!("b")));
        put(&mut document, "/l/1/k", Some(json!(2)));
        put(&mut document, "/l/2", Some(json!("c")));
        put(&mut document, "/l/9", Some(json!("never")));
        put(&mut document, "/l/7/k", Some(json!("never")));
        assert_eq!(document, json!({"l": ["b", {"k": 2}, "c"]}));
        put(&mut document, "/l/0", None);
        assert_eq!(document, json!({"l": [{"k": 2}, "c"]}));
    }

    #[test]
    fn put_changes_only_its_own_path() {
        let mut document = json!({"a": {"b": 1}, "c": 2});
        put(&mut document, "/a/d~1e/f", Some(json!(3)));
        assert_eq!(document, json!({"a": {"b": 1, "d/e": {"f": 3}}, "c": 2}));
        put(&mut document, "/a/d~1e/f", None);
        put(&mut document, "/x/y", None);
        put(&mut document, "/c/y", Some(json!(1)));
        assert_eq!(document, json!({"a": {"b": 1, "d/e": {}}, "c": 2}));
    }

    #[test]
    fn invalid_number_stays_text() {
        assert_eq!(ScalarType::Integer.value("12"), json!(12));
        assert_eq!(ScalarType::Integer.value("1x"), json!("1x"));
        assert_eq!(ScalarType::Number.value("1.5"), json!(1.5));
        assert_eq!(ScalarType::Boolean.value("true"), json!(true));
    }
}
