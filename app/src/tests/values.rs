//! Values and their sources, without JavaScript.

use api::deployments::EditableDraft;
use api::values::ValuesQuery;

use super::fake::Fake;
use super::serve::get;

const NODEROLE: &str = "/noderoles/00000000-0000-0000-0000-000000000001/data";

#[tokio::test]
async fn values_link_to_their_sources() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, &format!("{NODEROLE}?filter=app")).await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "Input of the next run",
        "2 of 412 values",
        "/app/key",
        "(secret)",
        "set by ada",
        "blueprint 120",
        "href=\"/runs/1001\"",
        "name=\"filter\"",
        "value=\"app\"",
        "?filter=app&amp;after=%2Fapp%2Fpid",
        "?own=true&amp;filter=app",
    ]);
    let own = get(&fake, &format!("{NODEROLE}?own=true&filter=x&after=%2Fa")).await;
    own.assert_contains(&["type=\"hidden\" name=\"own\" value=\"true\"", ">First"]);
    let query = ValuesQuery { filter: "x".into(), after: Some("/a".into()), own: true };
    let call = format!("values {}", serde_json::to_string(&query).expect("JSON"));
    assert!(fake.0.lock().expect("an unpoisoned lock").calls.contains(&call));
    let nothing = get(&fake, "/noderoles/none/data").await;
    assert_eq!((nothing.status, nothing.body.matches("<h1").count()), (404, 1));
    nothing.assert_lacks(&["name=\"filter\""]);
}

#[tokio::test]
async fn form_survives_errors_and_commands_match_query() {
    let fake = Fake::new(|_| {});
    let odd = get(&fake, &format!("{NODEROLE}?own=perhaps&filter=app")).await;
    assert_eq!((odd.status, odd.body.matches("<h1").count()), (400, 1));
    odd.assert_contains(&[
        "Use one of: true, false.",
        "name=\"filter\"",
        "value=\"app\"",
        "All values",
    ]);
    let away = Fake::new(|world| {
        world.problem = Some(api::Problem::unavailable("The database does not answer."))
    });
    let away = get(&away, "/runs/1004/data?filter=app").await;
    assert_eq!(away.status, 503);
    away.assert_contains(&["name=\"filter\"", "value=\"app\"", "The database does not answer."]);
    let id = NODEROLE.split('/').nth(2).expect("an id");
    let own = get(&fake, &format!("{NODEROLE}?own=true&filter=app")).await;
    own.assert_contains(&[
        &format!("gantry noderole data {id} --filter app --own"),
        &format!("/api/v1/noderoles/{id}/data?filter=app&amp;own=true"),
    ]);
    get(&fake, "/runs/1004/data")
        .await
        .assert_contains(&["gantry run data 1004", "/api/v1/runs/1004/data"]);
}

#[tokio::test]
async fn run_shows_input_and_surroundings() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/runs/1004/data").await;
    page.assert_contains(&[
        "Data of gateway",
        "href=\"/runs/1004\"",
        "Surroundings",
        "\"outcome\": \"failed\"",
    ]);
    get(&fake, "/runs/1006").await.assert_contains(&["href=\"/runs/1006/data\"", "3 values"]);
    let gone = Fake::new(|world| (world.run.result, world.run.result_expired) = (None, true));
    get(&gone, "/runs/1006").await.assert_contains(&["no longer stored"]);
}

#[tokio::test]
async fn form_from_schema_shows_inherited_values() {
    let schema = serde_json::json!({"type": "map", "mapping": {
        "port": {"type": "int", "required": true},
        "mode": {"type": "str", "enum": ["fast", "safe"]},
        "peers": {"type": "seq", "sequence": [{"type": "str"}]},
        "key": {"type": "str"},
    }});
    let fake = Fake::new(|world| {
        world.noderole.attribs[0].path = "/app".into();
        world.noderole.attribs[0].schema = Some(schema);
        let EditableDraft::Yes(draft) = &mut world.noderole.may_edit else {
            panic!("the node role cannot be edited")
        };
        draft.data = serde_json::json!(
            {"app": {"peers": ["a", 7], "key": {"$secret": "app/key", "version": 2}}}
        );
        draft.defaults = serde_json::json!({"app": {"port": 8080, "mode": "safe"}});
    });
    let page = get(&fake, "/noderoles/00000000-0000-0000-0000-000000000001").await;
    page.assert_contains(&[
        "id=\"own-data-0-port\"",
        "placeholder=\"8080\"",
        " required",
        "not set, inherited: safe",
        "Entry 2",
        "Remove entry 2",
        "is a number, but must be a string",
        "value=\"app/key\"",
        "Enter a value",
        "Use a secret",
        "As JSON",
    ]);
    // The invalid value is reported at its field and next to the text. The port has a value below,
    // so it is not missing.
    page.assert_lacks(&["is required but missing"]);
}
