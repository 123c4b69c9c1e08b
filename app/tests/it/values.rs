//! Values and where they come from, as a browser without scripts gets them.

use api::values::ValuesWanted;

use crate::fake::Fake;
use crate::serve::get;

const NODEROLE: &str = "/noderoles/00000000-0000-0000-0000-000000000001/data";

#[tokio::test]
async fn each_value_leads_to_what_brought_it() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, &format!("{NODEROLE}?find=app")).await;
    assert_eq!(page.status, 200);
    page.says(&[
        "What a run would see now",
        "2 of 412 values",
        "/app/key",
        "(secret)",
        "set by ada",
        "target 120",
        "href=\"/runs/1001\"",
        "name=\"find\"",
        "value=\"app\"",
        "?find=app&amp;after=%2Fapp%2Fpid",
        "?own=true&amp;find=app",
    ]);
    let own = get(&fake, &format!("{NODEROLE}?own=true&find=x&after=%2Fa")).await;
    own.says(&["type=\"hidden\" name=\"own\" value=\"true\"", ">First"]);
    let asked = ValuesWanted { find: "x".into(), after: Some("/a".into()), own: true };
    let asked = format!("values {}", serde_json::to_string(&asked).expect("JSON"));
    assert!(fake.0.lock().expect("no test died here").told.contains(&asked));
    assert_eq!(get(&fake, "/noderoles/none/data").await.status, 404);
}

#[tokio::test]
async fn a_run_shows_what_it_was_told_and_what_was_beside_it() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/runs/1004/data").await;
    page.says(&["Data of gateway", "href=\"/runs/1004\"", "Surroundings", "\"outcome\": \"failed\""]);
    get(&fake, "/runs/1004").await.says(&["href=\"/runs/1004/data\"", "3 values"]);
    let gone = Fake::new(|world| (world.run.result, world.run.result_gone) = (None, true));
    get(&gone, "/runs/1004").await.says(&["not kept any more"]);
}
