//! Whether what a person writes fits the role, whichever layer they write it in.
//!
//! An attribute is judged as a run would see it: what is written, laid over what is below it. So half an object is fine whose other half a
//! template has. But only what the writer wrote is held against them: a value of another layer is somebody else's, and what is missing may
//! still come from above (a noderole's own data over its deployment's), so it counts only where nothing comes above.
//!
//! Forms ask this while one types and the server asks it again: one rule, in the same words.

use serde_json::Value;

use super::schema::{Misfit, misfits};
use super::{DataError, merge, secret};

/// An attribute: where its value sits, as a JSON pointer, and what it must look like.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Its name.
    pub name: &'a str,
    /// A JSON pointer.
    pub path: &'a str,
    /// In the words of [`super::schema`].
    pub schema: &'a Value,
}

/// In what `own`, laid over `below`, does not fit; with pointers into `own`, in the order of the attributes. `is_last`: whether nothing that
/// people write comes above it.
///
/// # Errors
/// [`DataError::TooDeep`].
pub fn unfit<'a>(
    own: &Value,
    below: &Value,
    expected: impl IntoIterator<Item = Expected<'a>>,
    is_last: bool,
) -> Result<Vec<Misfit>, DataError> {
    let whole = if below.is_null() { own.clone() } else { merge(below, own)? };
    let mut found: Vec<Misfit> = Vec::new();
    for attrib in expected {
        if let Some(misfit) = in_the_way(own, &attrib) {
            if !found.contains(&misfit) {
                found.push(misfit);
            }
            continue;
        }
        let Some(value) = whole.pointer(attrib.path).filter(|_| own.pointer(attrib.path).is_some())
        else {
            continue;
        };
        for misfit in misfits(value, attrib.schema) {
            let path = format!("{}{}", attrib.path, misfit.path);
            let is_missing = whole.pointer(&path).is_none();
            let place = if is_missing { parent(&path) } else { &path };
            if own.pointer(place).is_some() && (!is_missing || is_last) {
                found.push(Misfit { path, what: misfit.what });
            }
        }
    }
    Ok(found)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Something on the way to an attribute that holds no keys: what a person wrote there hides the attribute for good.
fn in_the_way(own: &Value, attrib: &Expected<'_>) -> Option<Misfit> {
    let mut at = "";
    loop {
        let rest = attrib.path.get(at.len() + 1..)?;
        let value = own.pointer(at)?;
        let holds = value.is_object() && !secret::is_reference(value);
        if !holds {
            let what = format!(
                "is {}, and should be an object: {} is in it",
                super::kind_of(value),
                attrib.name
            );
            return Some(Misfit { path: at.to_owned(), what });
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

    fn told(own: Value, below: Value, path: &str, schema: Value, is_last: bool) -> Vec<String> {
        let expected = [Expected { name: "it", path, schema: &schema }];
        unfit(&own, &below, expected, is_last)
            .unwrap()
            .into_iter()
            .map(|m| format!("{} {}", m.path, m.what))
            .collect()
    }

    fn map() -> Value {
        json!({"type": "map", "mapping": {"port": {"type": "int", "required": true}, "name": {"type": "str"}}})
    }

    #[test]
    fn half_an_object_is_fine_whose_other_half_is_below() {
        assert_eq!(
            told(json!({"a": {"name": "x"}}), json!({"a": {"port": 1}}), "/a", map(), true),
            [""; 0]
        );
        let missing = ["/a/port is required, and missing"];
        assert_eq!(told(json!({"a": {"name": "x"}}), Value::Null, "/a", map(), true), missing);
        assert_eq!(
            told(json!({"a": {"name": "x"}}), Value::Null, "/a", map(), false),
            [""; 0],
            "it may come above"
        );
        assert_eq!(
            told(json!({}), Value::Null, "/a", map(), true),
            [""; 0],
            "who says nothing says nothing wrong"
        );
    }

    #[test]
    fn only_what_the_writer_wrote_is_held_against_them() {
        let below = json!({"a": {"port": "eighty"}});
        assert_eq!(told(json!({"a": {"name": "x"}}), below.clone(), "/a", map(), true), [""; 0]);
        let wrong = ["/a/name is a number, and should be text"];
        assert_eq!(told(json!({"a": {"name": 1}}), below.clone(), "/a", map(), true), wrong);
        assert_eq!(
            told(json!({"a": {"port": "x"}}), below, "/a", map(), false),
            ["/a/port is a text, and should be a whole number"]
        );
    }

    #[test]
    fn what_stands_in_an_attributes_way_is_named() {
        let schema = json!({"type": "int"});
        let wrong = ["/a is a number, and should be an object: it is in it"];
        assert_eq!(told(json!({"a": 5}), json!({}), "/a/b~1c/d", schema.clone(), false), wrong);
        let list = ["/a/b~1c is a list, and should be an object: it is in it"];
        assert_eq!(
            told(json!({"a": {"b/c": []}}), json!({}), "/a/b~1c/d", schema.clone(), true),
            list
        );
        assert_eq!(
            told(json!({"a": {"b/c": {"d": 1}}}), json!({}), "/a/b~1c/d", schema.clone(), true),
            [""; 0]
        );
        assert_eq!(
            told(
                json!({"d": {"$secret": "s", "version": 1}}),
                json!({}),
                "/d",
                schema.clone(),
                true
            ),
            [""; 0]
        );
        let secret = ["/a is a reference to a secret, and should be an object: it is in it"];
        assert_eq!(
            told(json!({"a": {"$secret": "s", "version": 1}}), json!({}), "/a/d", schema, true),
            secret
        );
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_told_of_what_was_not_written(
            below in merge::tests::document(),
            own in merge::tests::document(),
        ) {
            let (below, own) = (json!({"a": below}), json!({"b": own}));
            let schema = json!({"type": "map", "mapping": {"x": {"required": true}, "=": {"type": "int"}}});
            let expected = [Expected { name: "it", path: "/a", schema: &schema }];
            proptest::prop_assert_eq!(unfit(&own, &below, expected, true).unwrap(), vec![]);
        }
    }
}
