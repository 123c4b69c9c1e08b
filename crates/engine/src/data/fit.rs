//! Validates data that users enter against the schemas of a role, in any layer.
//!
//! An attribute is validated as a run would see it: the entered data merged over the lower layers.
//! A partial object is valid if a template has the rest. Errors concern only values that this user
//! entered, because another user owns the other layers. A missing value is an error only in the top
//! layer, because a higher layer could still add it.
//!
//! Forms use this while the user types, and the server checks again with the same rules and
//! messages.

use serde_json::Value;

use super::schema::{SchemaError, schema_errors};
use super::{DataError, merge, secret};

/// An attribute: the JSON pointer of its value, and its schema.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub name: &'a str,
    /// A JSON pointer.
    pub path: &'a str,
    /// A schema as in [`super::schema`].
    pub schema: &'a Value,
}

/// The problems of `own` when merged over `below`, with pointers into `own`, in the order of the
/// attributes. `is_last`: whether no layer above can be edited.
///
/// # Errors
/// [`DataError::TooDeep`] if either document exceeds the nesting limit.
pub fn layer_errors<'a>(
    own: &Value,
    below: &Value,
    expected: impl IntoIterator<Item = Expected<'a>>,
    is_last: bool,
) -> Result<Vec<SchemaError>, DataError> {
    let whole = if below.is_null() { own.clone() } else { merge(below, own)? };
    let mut found: Vec<SchemaError> = Vec::new();
    for attrib in expected {
        if let Some(error) = obstructing_value(own, &attrib) {
            if !found.contains(&error) {
                found.push(error);
            }
            continue;
        }
        let Some(value) = whole.pointer(attrib.path).filter(|_| own.pointer(attrib.path).is_some())
        else {
            continue;
        };
        for error in schema_errors(value, attrib.schema) {
            let path = format!("{}{}", attrib.path, error.path);
            let is_missing = whole.pointer(&path).is_none();
            let place = if is_missing { parent(&path) } else { &path };
            if own.pointer(place).is_some() && (!is_missing || is_last) {
                found.push(SchemaError { path, problem: error.problem });
            }
        }
    }
    Ok(found)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A value above the attribute's path that is not an object. Such an entry hides the attribute
/// permanently.
fn obstructing_value(own: &Value, attrib: &Expected<'_>) -> Option<SchemaError> {
    let mut at = "";
    loop {
        let rest = attrib.path.get(at.len() + 1..)?;
        let value = own.pointer(at)?;
        let holds = value.is_object() && !secret::is_reference(value);
        if !holds {
            let problem = format!(
                "is {}, but must be an object that contains {}",
                super::kind_of(value),
                attrib.name
            );
            return Some(SchemaError { path: at.to_owned(), problem });
        }
        let next = rest.find('/').map_or(attrib.path.len(), |end| at.len() + 1 + end);
        if next >= attrib.path.len() {
            return None;
        }
        at = &attrib.path[..next];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(own: Value, below: Value, path: &str, schema: Value, is_last: bool) -> Vec<String> {
        let expected = [Expected { name: "it", path, schema: &schema }];
        layer_errors(&own, &below, expected, is_last)
            .unwrap()
            .into_iter()
            .map(|m| format!("{} {}", m.path, m.problem))
            .collect()
    }

    fn map() -> Value {
        json!({"type": "map", "mapping": {"port": {"type": "int", "required": true}, "name": {"type": "str"}}})
    }

    #[test]
    fn partial_object_over_lower_layer_is_valid() {
        assert_eq!(
            messages(json!({"a": {"name": "x"}}), json!({"a": {"port": 1}}), "/a", map(), true),
            [""; 0]
        );
        let missing = ["/a/port is required but missing"];
        assert_eq!(messages(json!({"a": {"name": "x"}}), Value::Null, "/a", map(), true), missing);
        assert_eq!(
            messages(json!({"a": {"name": "x"}}), Value::Null, "/a", map(), false),
            [""; 0],
            "the missing value may come from a higher layer"
        );
        assert_eq!(
            messages(json!({}), Value::Null, "/a", map(), true),
            [""; 0],
            "a document without the key is valid"
        );
    }

    #[test]
    fn other_layers_cause_no_errors() {
        let below = json!({"a": {"port": "eighty"}});
        assert_eq!(
            messages(json!({"a": {"name": "x"}}), below.clone(), "/a", map(), true),
            [""; 0]
        );
        let wrong = ["/a/name is a number, but must be a string"];
        assert_eq!(messages(json!({"a": {"name": 1}}), below.clone(), "/a", map(), true), wrong);
        assert_eq!(
            messages(json!({"a": {"port": "x"}}), below, "/a", map(), false),
            ["/a/port is a string, but must be an integer"]
        );
    }

    #[test]
    fn value_above_attribute_path_is_reported() {
        let schema = json!({"type": "int"});
        let wrong = ["/a is a number, but must be an object that contains it"];
        assert_eq!(messages(json!({"a": 5}), json!({}), "/a/b~1c/d", schema.clone(), false), wrong);
        let list = ["/a/b~1c is an array, but must be an object that contains it"];
        assert_eq!(
            messages(json!({"a": {"b/c": []}}), json!({}), "/a/b~1c/d", schema.clone(), true),
            list
        );
        assert_eq!(
            messages(json!({"a": {"b/c": {"d": 1}}}), json!({}), "/a/b~1c/d", schema.clone(), true),
            [""; 0]
        );
        assert_eq!(
            messages(
                json!({"d": {"$secret": "s", "version": 1}}),
                json!({}),
                "/d",
                schema.clone(),
                true
            ),
            [""; 0]
        );
        let secret = ["/a is a reference to a secret, but must be an object that contains it"];
        assert_eq!(
            messages(json!({"a": {"$secret": "s", "version": 1}}), json!({}), "/a/d", schema, true),
            secret
        );
    }

    proptest::proptest! {
        #[test]
        fn unwritten_values_are_not_reported(
            below in merge::tests::document(),
            own in merge::tests::document(),
        ) {
            let (below, own) = (json!({"a": below}), json!({"b": own}));
            let schema = json!({"type": "map", "mapping": {"x": {"required": true}, "=": {"type": "int"}}});
            let expected = [Expected { name: "it", path: "/a", schema: &schema }];
            proptest::prop_assert_eq!(layer_errors(&own, &below, expected, true).unwrap(), vec![]);
        }
    }
}
