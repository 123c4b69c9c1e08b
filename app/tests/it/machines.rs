//! A node's own page, as the server renders it.

use api::nodes::OutOfService;

use crate::fake::{self, Fake};
use crate::serve::{get, post};

const PAGE: &str = "/nodes/web-1.rack1.example.com";

#[tokio::test]
async fn all_that_is_known_of_a_node_is_on_its_page() {
    let list = get(&Fake::new(|_| {}), "/nodes").await;
    list.says(&["href=\"/nodes/web-1.rack1.example.com\""]);
    let page = get(&Fake::new(|_| {}), PAGE).await;
    assert_eq!(page.status, 200);
    page.says(&["<title>web-1.rack1.example.com · Gantry</title>", "By the door", "href=\"/deployments/web\""]);
    page.says(&["alive", "8f14e45f", "what runs here is known", "by its own word"]);
    page.says(&["web-1.mgmt.example.com", "deploy/ssh", "SHA256:+DiY3wvvV6TuJJhbpZisF", "00:25:90:aa:00:01", "CN-1"]);
    page.says(&["let in", "not reached", "connection refused", "no answer within 5 seconds", "worker@here"]);
    page.says(&[&format!("href=\"/noderoles/{}\"", fake::noderole(1, "app")), "href=\"/runs/41\"", "TRANSITION"]);
    page.says(&["found by", "facts", "\"cores\": 4", "href=\"/runs/40\"", "came up", "its unit"]);
    let by_id = get(&Fake::new(|_| {}), &format!("/nodes/{}", fake::node(1))).await;
    assert_eq!(by_id.status, 200);
    let missing = get(&Fake::new(|_| {}), "/nodes/nobody.rack1.example.com").await;
    assert_eq!(missing.status, 404);
    missing.says(&["There is no node nobody.rack1.example.com."]);
}

#[tokio::test]
async fn what_stands_between_a_node_and_its_work_is_said() {
    let out = Fake::new(|world| {
        let by = Some("ada".into());
        world.machine.life.unavailable = Some(OutOfService { by, since: None, reason: "new disks".into() });
    });
    get(&out, PAGE).await.says(&["out of service", "by ada: new disks", "Put into service", "value=\"true\""]);
    let dead = Fake::new(|world| {
        world.machine.life.alive = false;
        world.machine.looks.remove(0);
    });
    get(&dead, PAGE).await.says(&["dead", "Not reached: 10.0.3.7: connection refused."]);
    let unknown = Fake::new(|world| world.machine.life.joined = "welcomed".into());
    get(&unknown, PAGE).await.says(&["what runs here is not known", "Nothing starts before a worker was let in"]);
    let new = Fake::new(|world| {
        world.machine.life.alive = false;
        world.machine.life.alive_since = None;
        (world.machine.looks, world.machine.facts, world.machine.noderoles) = Default::default();
        (world.machine.reports, world.machine.tokens, world.machine.runs) = Default::default();
    });
    let page = get(&new, PAGE).await;
    page.says(&["never reached", "Nobody has looked yet.", "Nothing is known of it yet", "no role is bound to it"]);
    page.says(&["Nothing has run here yet.", "It has reported nothing yet.", "None."]);
}

#[tokio::test]
async fn who_may_change_a_node_finds_how_and_who_may_not_reads_why() {
    let operator = get(&Fake::new(|_| {}), PAGE).await;
    operator.says(&["/call/change-node", "/call/set-available", "/call/mint-node-token", "/call/revoke-node-token"]);
    operator.says(&["name=\"version\" value=\"3\"", "that takes the permission admin, and a reason."]);
    operator.says_not(&["name=\"address\"", "name=\"hints\"", "/call/take-out-node"]);
    let record = Fake::new(|world| {
        world.machine.may_reach = Ok(());
        (world.machine.record, world.machine.settled) = (true, false);
    });
    let page = get(&record, PAGE).await;
    page.says(&[
        "name=\"address\"",
        "value=\"10.0.3.7 web-1.mgmt.example.com\"",
        "name=\"host_key\"",
        "name=\"hints\"",
    ]);
    page.says(&["/call/take-out-node"]);
    let viewer = Fake::new(|world| world.machine.may_change = Err("ada does not have the permission operator.".into()));
    let page = get(&viewer, PAGE).await;
    page.says(&["ada does not have the permission operator."]);
    page.says_not(&["/call/change-node", "/call/set-available", "/call/mint-node-token", "/call/revoke-node-token"]);
}

#[tokio::test]
async fn a_node_is_changed_without_scripts_too() {
    let fake = Fake::new(|_| {});
    let node = format!("node={}", fake::node(1));
    let form =
        format!("{node}&version=3&description=&mac=a+b&port=2222&address=10.0.3.8,10.0.3.9&hints=%7B%7D&reason=moved");
    for (call, form) in [
        ("change-node", form),
        ("change-node", format!("{node}&version=3&description=x")),
        ("set-available", format!("{node}&available=false&reason=disks")),
        ("mint-node-token", format!("{node}&name=unit&days=")),
        ("revoke-node-token", format!("{node}&token={}", uuid::Uuid::from_u128(7))),
    ] {
        assert_eq!(post(&fake, &format!("/call/{call}"), &form).await.status, 302, "{call}");
    }
    let told = fake.0.lock().expect("no test died here").told.clone();
    let way = r#"{"root":null,"addresses":["10.0.3.8","10.0.3.9"],"port":2222,"user":null,"key":null,"key_version":null,"host_key":null}"#;
    let first = format!(
        r#"change node 3 {{"description":"","macs":["a","b"],"serial":"","hints":{{}},"way":{way},"reason":"moved"}}"#
    );
    assert_eq!(told[0], first);
    assert!(told[1].contains(r#""description":"x","macs":[]"#) && told[1].contains(r#""way":null"#), "{}", told[1]);
    assert_eq!(told[2..4], ["available false disks", "mint unit 90"]);
    assert!(told[4].starts_with("revoke 0000"));
}
