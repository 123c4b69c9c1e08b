//! Reads any YAML file into values with positions, for files that are not barclamps. The syntax
//! rules and limits are those of barclamp files.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::Value;

use super::finding::At;
use super::yaml::{Kind, Node, YamlError, parse_all};

/// A YAML document as a value, with the position of each part.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionedYaml {
    pub value: Value,
    /// Positions by JSON pointer. A map entry has the position of its key.
    places: BTreeMap<String, At>,
}

impl PositionedYaml {
    /// The position of the part at a JSON pointer. Falls back to the start of the document.
    pub fn position(&self, pointer: &str) -> At {
        let beginning = || self.places.get("").copied().unwrap_or(At::START);
        self.places.get(pointer).copied().unwrap_or_else(beginning)
    }

    /// The part at a JSON pointer as a document of its own, with its positions in the file.
    pub fn part(&self, pointer: &str) -> Option<Self> {
        let value = self.value.pointer(pointer)?.clone();
        let from_pointer =
            self.places.range::<str, _>((Bound::Included(pointer), Bound::Unbounded));
        let around = from_pointer.take_while(|(place, _)| place.starts_with(pointer));
        let within = around.filter_map(|(place, at)| Some((place.strip_prefix(pointer)?, *at)));
        let within = within.filter(|(rest, _)| rest.is_empty() || rest.starts_with('/'));
        Some(Self { value, places: within.map(|(rest, at)| (rest.to_owned(), at)).collect() })
    }
}

/// Parses the documents of a YAML file.
///
/// # Errors
/// The position and the problem: a syntax error, an exceeded limit, a duplicate key, or a number
/// that JSON cannot represent.
pub fn positioned_yaml(bytes: &[u8]) -> Result<Vec<PositionedYaml>, (At, String)> {
    let position_and_text = |YamlError { at, message }| (at, message);
    let trees = parse_all(bytes).map_err(position_and_text)?;
    let document = |tree: &Node| {
        let mut places = BTreeMap::new();
        gather(tree, tree.at, String::new(), &mut places);
        Ok(PositionedYaml { value: tree.json().map_err(position_and_text)?, places })
    };
    trees.iter().map(|tree| document(tree)).collect()
}

fn gather(node: &Node, at: At, pointer: String, places: &mut BTreeMap<String, At>) {
    match &node.kind {
        Kind::Scalar { .. } => {}
        Kind::List(items) => {
            for (number, item) in items.iter().enumerate() {
                gather(item, item.at, format!("{pointer}/{number}"), places);
            }
        }
        Kind::Map(entries) => {
            for entry in entries {
                let key = entry.key.replace('~', "~0").replace('/', "~1");
                gather(&entry.value, entry.at, format!("{pointer}/{key}"), places);
            }
        }
    }
    places.insert(pointer, at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn multiple_documents_have_positions() {
        let documents = positioned_yaml(b"a: {b: 1}\n---\nlist:\n  - x\n  - y/z: 2\n").unwrap();
        assert_eq!(
            documents.iter().map(|d| d.value.clone()).collect::<Vec<_>>(),
            [json!({"a": {"b": 1}}), json!({"list": ["x", {"y/z": 2}]})]
        );
        let at = |pointer: &str| documents[1].position(pointer);
        assert_eq!(at("/list"), At { line: 3, column: 1 });
        assert_eq!(at("/list/0"), At { line: 4, column: 5 });
        assert_eq!(at("/list/1/y~1z"), At { line: 5, column: 5 });
        assert_eq!(
            at("/no"),
            At { line: 3, column: 1 },
            "an unknown path has the position of its document"
        );
        assert_eq!(positioned_yaml(b"").unwrap(), []);
    }

    #[test]
    fn part_retains_positions_of_its_values() {
        let documents = positioned_yaml(b"a:\n  b: {c: 1}\na-b: 2\n").unwrap();
        let part = documents[0].part("/a").unwrap();
        assert_eq!(part.value, json!({"b": {"c": 1}}));
        assert_eq!(part.position(""), At { line: 1, column: 1 });
        assert_eq!(part.position("/b/c"), At { line: 2, column: 7 });
        assert_eq!(part.places.len(), 3, "positions of other paths are dropped");
        assert_eq!(documents[0].part("/no"), None);
    }

    #[test]
    fn errors_have_positions() {
        assert_eq!(positioned_yaml(b"a: 1\nb: [\n").unwrap_err().0.line, 3);
        let (at, message) = positioned_yaml(b"a: 1\n---\nb: 1\nb: 2\n").unwrap_err();
        assert!(at.line == 4 && message.contains('b'), "{at:?} {message}");
    }
}
