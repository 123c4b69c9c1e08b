//! `docs/edits.md` shows each kind of edit in valid JSON.

use std::collections::BTreeSet;
use std::path::Path;

use engine::plan::Edit;
use serde_json::{Value, json};

/// Every kind of edit, as the deserializer lists them.
fn kinds() -> BTreeSet<String> {
    let refused = serde_json::from_value::<Edit>(json!({"edit": "none of them"}))
        .expect_err("an unknown kind")
        .to_string();
    let (_, expected) = refused.split_once("expected one of ").expect("a list of kinds");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_edit_kind_has_valid_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/edits.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let examples = page
        .split("```json\n")
        .skip(1)
        .filter_map(|part| part.split_once("\n```").map(|(example, _)| example));
    let mut shown = BTreeSet::new();
    for example in examples {
        let value: Value =
            serde_json::from_str(example).unwrap_or_else(|error| panic!("{error}: {example}"));
        let edit: Edit = serde_json::from_value(value.clone())
            .unwrap_or_else(|error| panic!("{error}: {example}"));
        edit.check().unwrap_or_else(|error| panic!("{error}: {example}"));
        assert_eq!(
            serde_json::to_value(&edit).expect("JSON"),
            value,
            "the example must have every key"
        );
        let kind = value["edit"].as_str().expect("a kind").to_owned();
        assert!(shown.insert(kind), "the example has a duplicate kind: {example}");
    }
    assert!(shown.len() > 10, "{shown:?}");
    assert_eq!(shown, kinds());
}
