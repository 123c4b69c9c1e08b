//! Merges documents, and computes their difference.

use serde_json::{Map, Value};

use super::secret::is_reference;
use super::{DataError, check_depth};

/// Whether two values merge by key. Otherwise, the second replaces the first.
pub(super) fn joins(base: &Value, over: &Value) -> bool {
    base.is_object() && over.is_object() && !is_reference(base) && !is_reference(over)
}

/// Merges `over` into `base`. Objects merge by key. All other values replace, including lists and
/// references to secrets.
///
/// # Errors
/// [`DataError::TooDeep`] if either document exceeds the nesting limit.
pub fn merge(base: &Value, over: &Value) -> Result<Value, DataError> {
    check_depth(base)?;
    check_depth(over)?;
    let mut merged = base.clone();
    overlay(&mut merged, over);
    Ok(merged)
}

fn overlay(base: &mut Value, over: &Value) {
    if !joins(base, over) {
        base.clone_from(over);
        return;
    }
    if let (Value::Object(base), Value::Object(over)) = (base, over) {
        for (key, value) in over {
            match base.get_mut(key) {
                Some(below) => overlay(below, value),
                None => {
                    base.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

/// The smallest document that makes `base` contain all of `new` when merged over it. `None` if
/// `base` contains it already.
///
/// Keys that `new` lacks are ignored: a difference adds and changes, but never removes.
///
/// # Errors
/// [`DataError::TooDeep`] if either document exceeds the nesting limit.
pub fn difference(base: &Value, new: &Value) -> Result<Option<Value>, DataError> {
    check_depth(base)?;
    check_depth(new)?;
    Ok(additions(base, new))
}

fn additions(base: &Value, new: &Value) -> Option<Value> {
    if !joins(base, new) {
        return (base != new).then(|| new.clone());
    }
    let (Value::Object(base), Value::Object(new)) = (base, new) else {
        return None;
    };
    let mut found = Map::new();
    for (key, value) in new {
        let beyond = match base.get(key) {
            Some(below) => additions(below, value),
            None => Some(value.clone()),
        };
        if let Some(value) = beyond {
            found.insert(key.clone(), value);
        }
    }
    (!found.is_empty()).then_some(Value::Object(found))
}

/// Whether `outer` contains `inner`: it has every key of each object in it, and all other values
/// are equal.
///
/// Recurses only as deep as `inner`, which must be within the nesting limit.
pub fn contains(outer: &Value, inner: &Value) -> bool {
    if !joins(outer, inner) {
        return outer == inner;
    }
    match (outer, inner) {
        (Value::Object(outer), Value::Object(inner)) => inner
            .iter()
            .all(|(key, value)| outer.get(key).is_some_and(|found| contains(found, value))),
        _ => false,
    }
}

/// The output of a run: the returned values that are new compared with its input. An object, empty
/// if nothing is new.
///
/// `given` must not include the step's own last output. An unchanged value would otherwise count as
/// known and disappear from the new output. [`super::visible`] omits it for that reason.
///
/// # Errors
/// [`DataError::NotAnObject`] if the result is not an object, or an error of
/// [`super::check_result`].
pub fn output(given: &Value, returned: &Value) -> Result<Value, DataError> {
    super::object(returned, || "The result of a run".into())?;
    super::check_result(returned)?;
    Ok(difference(given, returned)?.unwrap_or_else(|| Value::Object(Map::new())))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Few keys and values, so that two documents often share paths.
    pub(crate) fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
            (1..3i64).prop_map(|v| json!({"$secret": "s", "version": v})),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                1 => proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                3 => proptest::collection::btree_map("[abc~/]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn merging_difference_contains_new_document(base in document(), new in document()) {
            let missing = difference(&base, &new).unwrap();
            let whole = match &missing {
                Some(missing) => merge(&base, missing).unwrap(),
                None => base.clone(),
            };
            prop_assert!(contains(&whole, &new), "{whole} lacks {new}");
            prop_assert_eq!(missing.is_none(), contains(&base, &new));
        }

        #[test]
        fn difference_is_minimal(base in document(), new in document()) {
            prop_assert_eq!(difference(&new, &new).unwrap(), None);
            prop_assert_eq!(difference(&merge(&base, &new).unwrap(), &new).unwrap(), None);
            if let Some(missing) = difference(&base, &new).unwrap() {
                prop_assert_eq!(difference(&base, &missing).unwrap(), Some(missing));
            }
        }

        #[test]
        fn merge_is_associative_and_idempotent(a in document(), b in document(), c in document()) {
            let left = merge(&merge(&a, &b).unwrap(), &c).unwrap();
            let once = merge(&a, &b).unwrap();
            prop_assert_eq!(merge(&once, &b).unwrap(), once);
            // A value that is not an object discards everything below it, so grouping matters only
            // if one is in the middle.
            if a.is_object() == b.is_object() && !has_plain_value(&b) {
                let right = merge(&a, &merge(&b, &c).unwrap()).unwrap();
                prop_assert_eq!(left, right);
            }
        }
    }

    fn has_plain_value(value: &Value) -> bool {
        match value {
            Value::Object(map) if !is_reference(value) => map.values().any(has_plain_value),
            _ => true,
        }
    }

    #[test]
    fn lists_and_secrets_are_replaced() {
        let base = json!({"l": [1, 2, 3], "s": {"user": "u", "port": 1}, "t": {"$secret": "a", "version": 1}});
        let over = json!({"l": [9], "s": {"$secret": "b", "version": 2}, "t": {"host": "h"}});
        assert_eq!(merge(&base, &over).unwrap(), over);
        assert_eq!(difference(&base, &over).unwrap(), Some(over));
    }

    #[test]
    fn null_overrides_value() {
        assert_eq!(merge(&json!({"a": 1}), &json!({"a": null})).unwrap(), json!({"a": null}));
        assert_eq!(difference(&json!({}), &json!({"a": null})).unwrap(), Some(json!({"a": null})));
    }

    #[test]
    fn output_contains_only_new_values() {
        let given = json!({"app": {"port": 80, "name": "web"}});
        let back = json!({"app": {"port": 8080, "name": "web"}, "pid": 7});
        assert_eq!(output(&given, &back).unwrap(), json!({"app": {"port": 8080}, "pid": 7}));
        assert_eq!(output(&given, &given).unwrap(), json!({}));
        let error = output(&given, &json!({"a/b": ["x\0y"]})).unwrap_err();
        assert_eq!(error, DataError::ContainsNul { path: "/a~1b/0".into() });
        assert!(output(&given, &json!({"a": {"k\0": 1}})).is_err());
        for no_object in
            [json!(null), json!([1]), json!("x"), json!({"$secret": "s", "version": 1})]
        {
            assert!(matches!(output(&given, &no_object), Err(DataError::NotAnObject { .. })));
        }
    }
}
