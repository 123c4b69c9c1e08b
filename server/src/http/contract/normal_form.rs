//! The normal form of the document's schemas, which client generators accept.
//!
//! Generators reject `true` as a schema. They have no type for `oneOf` of constants, and number the
//! alternatives of a `oneOf` that have no name. So in the normal form:
//!
//! * A schema without restrictions is an empty object.
//! * A `oneOf` of constants is an enumeration of strings.
//! * Every alternative of another `oneOf` is a schema of its own, named after the union and after
//!   the alternative. If all alternatives have a tag, a `discriminator` maps it to them.

use serde_json::{Map, Value, json};

/// Prefix of references to named schemas.
pub(super) const SCHEMAS: &str = "#/components/schemas/";
/// Suffix of the input form of a type. It stays at the end of a name.
const INPUT: &str = "Input";
/// Name of the alternative with all constants of a union.
const CONSTANTS: &str = "value";

/// Converts a part of the document that is not a named schema.
pub(super) fn normalize(part: &mut Value) {
    match part {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match key.as_str() {
                    "schema" | "items" => replace_true(value),
                    "properties" => value
                        .as_object_mut()
                        .into_iter()
                        .flat_map(Map::values_mut)
                        .for_each(replace_true),
                    _ => {}
                }
                normalize(value);
            }
            enumerate(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

/// Converts the named schemas, and adds those of their alternatives.
pub(super) fn normalize_named(schemas: &mut Map<String, Value>) {
    let mut alternatives = Map::new();
    for (name, schema) in schemas.iter_mut() {
        normalize(schema);
        if let Some(schema) = schema.as_object_mut() {
            name_alternatives(name, schema, &mut alternatives);
        }
    }
    for (name, schema) in alternatives {
        let previous = schemas.insert(name, schema);
        debug_assert!(previous.is_none(), "an alternative has the same name as a type");
    }
}

fn replace_true(schema: &mut Value) {
    if *schema == true {
        *schema = json!({});
    }
}

/// The constants of an alternative that consists of nothing else, each with its description.
fn constants(alternative: &Value) -> Option<Vec<(Value, String)>> {
    let fields = alternative.as_object()?;
    if !fields.keys().all(|key| ["const", "enum", "description", "type"].contains(&key.as_str())) {
        return None;
    }
    let values = match fields.get("const") {
        Some(value) => vec![value.clone()],
        None => fields.get("enum")?.as_array()?.clone(),
    };
    let about = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    values
        .iter()
        .all(Value::is_string)
        .then(|| values.into_iter().map(|value| (value, about.clone())).collect())
}

/// An enumeration of these constants, with a list of their descriptions.
fn enumeration(about: Option<&str>, constants: Vec<(Value, String)>) -> Map<String, Value> {
    let line = |(value, about): &(Value, String)| {
        let value = value.as_str().unwrap_or_default();
        (!about.is_empty()).then(|| format!("* `{value}`: {about}"))
    };
    let lines: Vec<String> = constants.iter().filter_map(line).collect();
    let paragraphs = about.map(str::to_owned).into_iter();
    let list = (!lines.is_empty()).then(|| lines.join("\n"));
    let about: Vec<String> = paragraphs.chain(list).collect();
    let values: Vec<Value> = constants.into_iter().map(|(value, _)| value).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), values.into());
    if !about.is_empty() {
        schema.insert("description".into(), about.join("\n\n").into());
    }
    schema
}

/// Replaces a `oneOf` of constants.
fn enumerate(schema: &mut Map<String, Value>) {
    let Some(alternatives) = schema.get("oneOf").and_then(Value::as_array) else { return };
    let Some(all) = alternatives.iter().map(constants).collect::<Option<Vec<_>>>() else { return };
    let about = schema.get("description").and_then(Value::as_str).map(str::to_owned);
    schema.remove("oneOf");
    schema.extend(enumeration(about.as_deref(), all.concat()));
}

fn name_alternatives(union: &str, schema: &mut Map<String, Value>, named: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = schema.get_mut("oneOf") else { return };
    let (base, suffix) = union.strip_suffix(INPUT).map_or((union, ""), |base| (base, INPUT));
    let mut name = |word: &str, mut alternative: Map<String, Value>| {
        let name = format!("{base}{}{suffix}", pascal_case(word));
        alternative.insert("title".into(), name.clone().into());
        let reference = format!("{SCHEMAS}{name}");
        named.insert(name, alternative.into());
        reference
    };
    let (words, others): (Vec<_>, Vec<_>) = std::mem::take(alternatives)
        .into_iter()
        .map(|alternative| constants(&alternative).ok_or(alternative))
        .partition(Result::is_ok);
    let words: Vec<_> = words.into_iter().flatten().flatten().collect();
    let others: Vec<Value> = others.into_iter().filter_map(Result::err).collect();
    let tag = words.is_empty().then(|| shared_tag(&others)).flatten();
    let mut references = Vec::new();
    if !words.is_empty() {
        references.push(name(CONSTANTS, enumeration(None, words)));
    }
    let mut mapping = Map::new();
    for (index, alternative) in others.into_iter().enumerate() {
        let fields = match alternative {
            Value::Object(fields) if !is_reference(&fields) => fields,
            other => {
                references.extend(other["$ref"].as_str().map(str::to_owned));
                continue;
            }
        };
        let word = match &tag {
            Some(tag) => tag_of(&fields, tag),
            None => fields.get("required").and_then(|all| all.get(0)).and_then(Value::as_str),
        };
        let word = word.map_or_else(|| format!("variant{index}"), str::to_owned);
        let reference = name(&word, without_sibling_reference(fields));
        mapping.insert(word, reference.clone().into());
        references.push(reference);
    }
    *alternatives = references.into_iter().map(|reference| json!({"$ref": reference})).collect();
    if let Some(tag) = tag {
        schema.insert("discriminator".into(), json!({"propertyName": tag, "mapping": mapping}));
    }
}

fn is_reference(fields: &Map<String, Value>) -> bool {
    fields.len() == 1 && fields.contains_key("$ref")
}

/// Generators ignore the fields next to a `$ref`.
fn without_sibling_reference(mut fields: Map<String, Value>) -> Map<String, Value> {
    let Some(reference) = fields.remove("$ref") else { return fields };
    let about = fields.remove("description");
    let mut all = Map::new();
    all.insert("allOf".into(), json!([{"$ref": reference}, fields]));
    all.extend(about.map(|about| ("description".to_owned(), about)));
    all
}

/// The property that has a constant in every alternative.
fn shared_tag(alternatives: &[Value]) -> Option<String> {
    let (first, others) = alternatives.split_first()?;
    let properties = first.get("properties")?.as_object()?;
    let is_shared = |tag: &&String| {
        let has = |fields: &Value| fields.as_object().is_some_and(|f| tag_of(f, tag).is_some());
        has(first) && others.iter().all(has)
    };
    properties.keys().find(is_shared).cloned()
}

fn tag_of<'v>(fields: &'v Map<String, Value>, tag: &str) -> Option<&'v str> {
    fields.get("properties")?.get(tag)?.get("const")?.as_str()
}

fn pascal_case(text: &str) -> String {
    let capitalized = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    text.split(|letter: char| !letter.is_alphanumeric()).map(capitalized).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_of_tagged_union_have_names() {
        let Value::Object(mut schemas) = json!({
            "ShapeInput": {"description": "A shape.", "oneOf": [
                {
                    "type": "object",
                    "required": ["kind"],
                    "properties": {"kind": {"const": "big_circle"}}
                },
                {"$ref": "#/components/schemas/Square", "type": "object",
                    "description": "A square.",
                    "properties": {"kind": {"const": "square"}}, "required": ["kind"]},
            ]},
            "Color": {"description": "A color.", "oneOf": [
                {"type": "string", "const": "red", "description": "Like\nfire."},
                {"type": "string", "enum": ["blue", "green"]},
            ]},
            "Need": {"oneOf": [
                {"type": "string", "const": "all", "description": "All."},
                {"type": "object", "properties": {"at_least": true}, "required": ["at_least"]},
            ]},
        }) else {
            panic!("expected an object")
        };
        normalize_named(&mut schemas);
        let expected = json!({
            "ShapeInput": {
                "description": "A shape.",
                "oneOf": [
                    {"$ref": "#/components/schemas/ShapeBigCircleInput"},
                    {"$ref": "#/components/schemas/ShapeSquareInput"},
                ],
                "discriminator": {"propertyName": "kind", "mapping": {
                    "big_circle": "#/components/schemas/ShapeBigCircleInput",
                    "square": "#/components/schemas/ShapeSquareInput",
                }},
            },
            "ShapeBigCircleInput": {"title": "ShapeBigCircleInput", "type": "object",
                "required": ["kind"], "properties": {"kind": {"const": "big_circle"}}},
            "ShapeSquareInput": {"title": "ShapeSquareInput", "description": "A square.", "allOf": [
                {"$ref": "#/components/schemas/Square"},
                {
                    "type": "object",
                    "properties": {"kind": {"const": "square"}},
                    "required": ["kind"]
                },
            ]},
            "Color": {"description": "A color.\n\n* `red`: Like fire.", "type": "string",
                "enum": ["red", "blue", "green"]},
            "Need": {"oneOf": [
                {"$ref": "#/components/schemas/NeedValue"},
                {"$ref": "#/components/schemas/NeedAtLeast"},
            ]},
            "NeedValue": {"title": "NeedValue", "description": "* `all`: All.", "type": "string",
                "enum": ["all"]},
            "NeedAtLeast": {"title": "NeedAtLeast", "type": "object",
                "properties": {"at_least": {}}, "required": ["at_least"]},
        });
        assert_eq!(Value::Object(schemas), expected);
    }
}
