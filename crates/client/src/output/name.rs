//! Names in an answer, for `--output name`. Other commands accept them.

use serde_json::Value;

/// Fields with the name of a thing, most specific first.
const NAME_FIELDS: [&str; 13] = [
    "name",
    "fqdn",
    "number",
    "review",
    "proposal",
    "blueprint",
    "barclamp",
    "jig",
    "context",
    "id",
    "comment",
    "person",
    "deployment",
];

/// The names in an answer, one per line.
pub(crate) fn lines(value: &Value) -> String {
    let mut names = names(value);
    names.dedup();
    names.iter().map(|name| format!("{name}\n")).collect()
}

fn names(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(names).collect(),
        // A page of a list has no name, only its items have.
        Value::Object(entries) => match name(value) {
            Some(name) => vec![name],
            None => entries.values().filter(|value| value.is_array()).flat_map(names).collect(),
        },
        _ => Vec::new(),
    }
}

/// The name of a thing. A noderole is `NODE/ROLE`. A run or a proposal has a number.
fn name(thing: &Value) -> Option<String> {
    let text = |word: &str| match &thing[word] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Object(_) => name(&thing[word]),
        _ => None,
    };
    if thing["id"].is_number() {
        return text("id");
    }
    let role = text("role").or_else(|| text("noderole"));
    let noderole = text("fqdn").zip(role).map(|(node, role)| format!("{node}/{role}"));
    noderole.or_else(|| NAME_FIELDS.iter().find_map(|word| text(word)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_answer_has_its_names() {
        let answers = [
            (
                json!(
                    {"nodes": [{"id": "u", "fqdn": "n1.demo", "deployment": "web"}], "next": null}
                ),
                "n1.demo\n",
            ),
            (
                json!({"deployments": [{"id": "u", "name": "web", "review": 3}], "next": null}),
                "web\n",
            ),
            (json!({"runs": [{"id": 7, "role": "app", "fqdn": "n1"}, {"id": 6}]}), "7\n6\n"),
            (json!({"reviews": [{"review": 4, "title": "x", "deployment": "web"}]}), "4\n"),
            (json!({"noderoles": [{"id": "u", "role": "app", "fqdn": "n1"}]}), "n1/app\n"),
            (json!({"steps": [{"id": "u", "noderole": "app/1", "fqdn": "n1"}]}), "n1/app/1\n"),
            (json!({"versions": [{"barclamp": "a", "version": "1"}, {"barclamp": "a"}]}), "a\n"),
            (json!({"id": 3, "review": 5, "scope": {}}), "3\n"),
            (json!([{"deployment": "web", "proposal": 3, "review": null}]), "3\n"),
            (json!({"blueprint": {"number": 8}, "progress": "stuck"}), "8\n"),
            (json!({"person": {"name": "ada"}, "permissions": []}), "ada\n"),
            (
                json!({"groups": [{"reason": "x", "steps": [{"role": "app", "fqdn": "n1"}]}]}),
                "n1/app\n",
            ),
            (json!({}), ""),
        ];
        for (answer, expected) in answers {
            assert_eq!(lines(&answer), expected, "{answer}");
        }
    }
}
