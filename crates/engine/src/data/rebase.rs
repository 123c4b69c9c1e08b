//! Combines the changes that two people made to the same document.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::merge::joins;
use super::{DataError, check_depth, escaped};

/// A value that both changed, and to different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataConflict {
    /// A JSON pointer (RFC 6901); empty for the whole document.
    pub path: String,
    /// `None`: removed.
    pub mine: Option<Value>,
    /// `None`: removed.
    pub theirs: Option<Value>,
}

/// Moves the changes between `base` and `mine` onto `theirs`. Returns the document, and the values
/// that both changed, ordered by path. In the document, these have my value.
///
/// Objects are combined by key. All other values are compared as a whole, including lists and
/// references to secrets.
///
/// # Errors
/// [`DataError::TooDeep`] if a document exceeds the nesting limit.
pub fn rebase(
    base: &Value,
    mine: &Value,
    theirs: &Value,
) -> Result<(Value, Vec<DataConflict>), DataError> {
    [base, mine, theirs].into_iter().try_for_each(check_depth)?;
    let mut conflicts = Vec::new();
    let combined = combine(String::new(), Some(base), Some(mine), Some(theirs), &mut conflicts);
    conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((combined.unwrap_or_default(), conflicts))
}

fn combine(
    path: String,
    base: Option<&Value>,
    mine: Option<&Value>,
    theirs: Option<&Value>,
    conflicts: &mut Vec<DataConflict>,
) -> Option<Value> {
    if mine == base {
        return theirs.cloned();
    }
    if theirs == base || mine == theirs {
        return mine.cloned();
    }
    if let (Some(Value::Object(own)), Some(Value::Object(other))) = (mine, theirs)
        && mine.zip(theirs).is_some_and(|(mine, theirs)| joins(mine, theirs))
    {
        let empty = Map::new();
        let before = base.and_then(Value::as_object).unwrap_or(&empty);
        let keys: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
        let mut combined = Map::new();
        for key in keys {
            let path = format!("{path}/{}", escaped(key));
            let value = combine(path, before.get(key), own.get(key), other.get(key), conflicts);
            combined.extend(value.map(|value| (key.clone(), value)));
        }
        return Some(Value::Object(combined));
    }
    conflicts.push(DataConflict { path, mine: mine.cloned(), theirs: theirs.cloned() });
    mine.cloned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn conflict(path: &str, mine: Option<Value>, theirs: Option<Value>) -> DataConflict {
        DataConflict { path: path.to_owned(), mine, theirs }
    }

    #[test]
    fn changes_of_different_values_are_combined() {
        let base = json!({"port": 80, "hosts": ["a"], "log": {"level": "info", "file": "x"}});
        let mine = json!({"port": 8080, "hosts": ["a"], "log": {"level": "info"}});
        let theirs = json!({"port": 80, "hosts": ["a", "b"], "log": {"level": "warn", "file": "x"}, "new": 1});
        let combined =
            json!({"port": 8080, "hosts": ["a", "b"], "log": {"level": "warn"}, "new": 1});
        assert_eq!(rebase(&base, &mine, &theirs), Ok((combined, vec![])));
    }

    #[test]
    fn different_changes_of_one_value_conflict() {
        let base = json!({"a": 1, "b": 2, "c": {"d/e": 1}, "l": [1], "same": 1});
        let mine = json!({"a": 2, "c": {"d/e": 2}, "l": [2], "new": {"x": 1}, "same": 2});
        let theirs =
            json!({"a": 3, "b": 3, "c": {"d/e": 1, "f": 1}, "l": [1, 3], "new": "x", "same": 2});
        let combined =
            json!({"a": 2, "c": {"d/e": 2, "f": 1}, "l": [2], "new": {"x": 1}, "same": 2});
        let conflicts = vec![
            conflict("/a", Some(json!(2)), Some(json!(3))),
            conflict("/b", None, Some(json!(3))),
            conflict("/l", Some(json!([2])), Some(json!([1, 3]))),
            conflict("/new", Some(json!({"x": 1})), Some(json!("x"))),
        ];
        assert_eq!(rebase(&base, &mine, &theirs), Ok((combined, conflicts)));
    }

    #[test]
    fn secret_references_are_not_combined() {
        let secret = |name: &str, version: u32| json!({"p": {"$secret": name, "version": version}});
        let (base, mine, theirs) = (secret("a", 1), secret("a", 2), secret("b", 1));
        let (combined, conflicts) = rebase(&base, &mine, &theirs).unwrap();
        assert_eq!(combined, mine);
        assert_eq!(conflicts[0].path, "/p");
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![(0..3i64).prop_map(Value::from), any::<bool>().prop_map(Value::from)];
        let value = leaf.prop_recursive(3, 12, 3, |inner| {
            proptest::collection::btree_map("[ab/~]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        });
        proptest::collection::btree_map("[abc]", value, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn one_sided_changes_win_in_any_order(
            base in document(), mine in document(), theirs in document(),
        ) {
            prop_assert_eq!(rebase(&base, &mine, &base), Ok((mine.clone(), vec![])));
            prop_assert_eq!(rebase(&base, &base, &theirs), Ok((theirs.clone(), vec![])));
            let (combined, conflicts) = rebase(&base, &mine, &theirs).unwrap();
            let (reversed, same) = rebase(&base, &theirs, &mine).unwrap();
            prop_assert_eq!(conflicts.len(), same.len());
            prop_assert!(!conflicts.is_empty() || combined == reversed);
            for conflict in &conflicts {
                prop_assert_eq!(mine.pointer(&conflict.path), conflict.mine.as_ref());
                prop_assert_eq!(theirs.pointer(&conflict.path), conflict.theirs.as_ref());
                prop_assert_eq!(combined.pointer(&conflict.path), conflict.mine.as_ref());
            }
        }
    }
}
