//! The page of a node, as the server renders it.

use api::JoinPhase;
use api::deployments::{CheckState, NoderoleCheck};
use api::nodes::Maintenance;
use api::{Allowed, At};
use engine::catalog::Check;
use engine::ids::ActionName;

use super::fake::{self, Fake};
use super::serve::{get, post};

const PAGE: &str = "/nodes/web-1.rack1.example.com";

#[tokio::test]
async fn noderole_page_shows_result_of_its_check() {
    let check = |state, passes, failures| NoderoleCheck {
        script: "check/alive".into(),
        policy: Check { failures: 2, ..Check::DEFAULT },
        state,
        passes,
        failures,
        caused_rerun: false,
        detail: "the service is down".into(),
        duration_ms: 12,
        checked: Some(At(1_795_248_902_000)),
        changed: None,
    };
    let page = async |check: Option<NoderoleCheck>| {
        let fake = Fake::new(|world| world.noderole.check = check);
        get(&fake, &format!("/noderoles/{}", fake::noderole(4, "gateway"))).await
    };
    let failing = page(Some(check(CheckState::Failing, false, 1))).await;
    failing.assert_contains(&[
        "aria-label=\"Check\"",
        "fails",
        "the service is down",
        "check/alive",
    ]);
    failing.assert_contains(&["2 failures", "the step runs again, once", "12 ms"]);
    page(Some(check(CheckState::Passing, true, 0))).await.assert_contains(&["passes"]);
    page(Some(check(CheckState::Passing, false, 0))).await.assert_contains(&["overdue"]);
    page(None).await.assert_lacks(&["aria-label=\"Check\""]);
}

#[tokio::test]
async fn node_page_shows_all_data() {
    let list = get(&Fake::new(|_| {}), "/nodes").await;
    list.assert_contains(&["href=\"/nodes/web-1.rack1.example.com\""]);
    let page = get(&Fake::new(|_| {}), PAGE).await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>web-1.rack1.example.com · Gantry</title>",
        "By the door",
        "href=\"/deployments/web\"",
    ]);
    let main = page.body.split_once("<main").expect("the main element").1;
    let head = main.split_once("<div class=\"columns\">").expect("the columns below the heading").0;
    assert_eq!(head.matches("CLI and API").count(), 1, "{head}");
    page.assert_contains(&[
        "alive",
        "8f14e45f",
        "yes: a worker has checked for running processes",
        "reported by the node",
    ]);
    page.assert_contains(&[
        "web-1.mgmt.example.com",
        "deploy/ssh",
        "SHA256:+DiY3wvvV6TuJJhbpZisF",
        "00:25:90:aa:00:01",
        "CN-1",
    ]);
    page.assert_contains(&[
        ">reached<",
        "not reached",
        "connection refused",
        "no answer within 5 seconds",
        "worker@here",
    ]);
    page.assert_contains(&[
        &format!("href=\"/noderoles/{}\"", fake::noderole(1, "app")),
        "href=\"/runs/41\"",
        "TRANSITION",
    ]);
    page.assert_contains(&[
        "reported by role",
        "facts",
        "\"cores\": 4",
        "href=\"/runs/40\"",
        "start-up",
        "its unit",
    ]);
    let removal = Fake::new(|world| world.machine.runs[0].action = ActionName::remove());
    get(&removal, PAGE).await.assert_contains(&["pill flat\">remove<"]);
    let by_id = get(&Fake::new(|_| {}), &format!("/nodes/{}", fake::node(1))).await;
    assert_eq!(by_id.status, 200);
    let missing = get(&Fake::new(|_| {}), "/nodes/nobody.rack1.example.com").await;
    assert_eq!(missing.status, 404);
    missing.assert_contains(&["Node nobody.rack1.example.com does not exist."]);
}

#[tokio::test]
async fn health_checks_and_results_are_paginated_without_javascript() {
    let fake = Fake::new(|_| {});
    let node = get(&fake, PAGE).await;
    node.assert_contains(&[
        &format!("href=\"{PAGE}/health-checks\""),
        &format!("href=\"{PAGE}/results\""),
    ]);
    node.assert_contains(&[
        "href=\"/runs?node=web-1.rack1.example.com\"",
        "gantry node show web-1.rack1.example.com",
    ]);
    node.assert_lacks(&["The node has more noderoles"]);

    node.assert_contains(&[&format!("href=\"{PAGE}/noderoles\"")]);
    let carried = get(&fake, &format!("{PAGE}/noderoles")).await;
    assert_eq!(carried.status, 200);
    carried.assert_contains(&[
        "<title>Noderoles of web-1.rack1.example.com · Gantry</title>",
        "gantry node noderoles",
        "TRANSITION",
    ]);
    carried.assert_contains(&[&format!("href=\"/noderoles/{}\"", fake::noderole(1, "app"))]);

    let page = get(&fake, &format!("{PAGE}/health-checks")).await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Health checks of web-1.rack1.example.com · Gantry</title>",
        ">reached<",
        "gantry node health-checks",
    ]);
    page.assert_lacks(&["connection refused", ">Newest<"]);
    let older = linked(&page.body, &format!("{PAGE}/health-checks?before="));
    let older = get(&fake, &older).await;
    older.assert_contains(&["connection refused", &format!("href=\"{PAGE}/health-checks\"")]);
    older.assert_lacks(&["health-checks?before="]);
    let end = get(&fake, &format!("{PAGE}/health-checks?before=0")).await;
    end.assert_contains(&["No more health checks", &format!("href=\"{PAGE}/health-checks\"")]);
    let failed = get(&fake, &format!("{PAGE}/health-checks?reached=false&filter=refused")).await;
    failed.assert_contains(&[
        "connection refused",
        "gantry node health-checks web-1.rack1.example.com --reached false --filter refused",
    ]);
    failed.assert_lacks(&["health-checks?before="]);

    let results = get(&fake, &format!("{PAGE}/results")).await;
    assert_eq!(results.status, 200);
    results.assert_contains(&[
        "href=\"/runs/42\"",
        "v-42",
        "<title>Results on web-1.rack1.example.com · Gantry</title>",
    ]);
    results.assert_contains(&["2 stored in total"]);
    results.assert_lacks(&["v-41"]);
    let elsewhere = get(&fake, &format!("{PAGE}/results?role=nothing")).await;
    elsewhere.assert_contains(&["No result matches", "role is “nothing”"]);
    let older = linked(&results.body, &format!("{PAGE}/results?before="));
    get(&fake, &older).await.assert_contains(&["href=\"/runs/41\"", "v-41"]);
    let long = Fake::new(|world| {
        (world.results[0].result, world.results[0].bytes) = ("{\"log\": \"xx…".into(), 100_012)
    });
    get(&long, &format!("{PAGE}/results")).await.assert_contains(&["100012 bytes in total"]);
    let none = Fake::new(|world| world.results.clear());
    get(&none, &format!("{PAGE}/results"))
        .await
        .assert_contains(&["No results yet", "on this node return"]);

    for part in ["health-checks", "results"] {
        let odd = get(&fake, &format!("{PAGE}/{part}?before=soon")).await;
        assert_eq!(odd.status, 400, "{part}");
        odd.assert_contains(&["Invalid cursor in before", "Open the first page"]);
        assert_eq!(
            get(&fake, &format!("/nodes/nobody.rack1.example.com/{part}")).await.status,
            404,
            "{part}"
        );
    }
}

/// The first link in a page that starts with `begin`.
fn linked(body: &str, begin: &str) -> String {
    let at =
        body.find(&format!("href=\"{begin}")).expect("a link with this address") + "href=\"".len();
    body[at..].split('"').next().expect("the end of the element").to_owned()
}

#[tokio::test]
async fn truncated_lists_link_to_complete_lists() {
    let fake = Fake::new(|world| world.machine.more_noderoles = true);
    let page = get(&fake, PAGE).await;
    page.assert_contains(&[
        "2 shown",
        "The node has more noderoles.",
        "href=\"/graph/web?nodes=web-1.rack1.example.com\"",
    ]);
    let fake = Fake::new(|world| {
        let attempt = world.run.attempts[0].clone();
        world.run.attempts = vec![attempt.clone(); api::listing::PAGE_SIZE];
        world.noderole.runs = vec![attempt; api::listing::PAGE_SIZE];
        let child = world.noderole.parents[0].clone();
        world.noderole.children = vec![child; api::listing::PAGE_SIZE];
    });
    let run = get(&fake, "/runs/41").await;
    run.assert_contains(&[
        "50 or more",
        "href=\"/runs?deployment=web&amp;node=web-",
        "gantry logs",
    ]);
    let id = fake.read(|world| world.noderole.id).expect("signed in");
    let noderole = get(&fake, &format!("/noderoles/{id}")).await;
    noderole.assert_contains(&["50 or more", "href=\"/runs?deployment=web&amp;node=web-"]);
    noderole.assert_contains(&[
        "Show all in the graph",
        &format!("href=\"/graph/web?focus={id}&amp;direction=down&amp;steps=1\""),
    ]);
    get(&Fake::new(|_| {}), &format!("/noderoles/{id}"))
        .await
        .assert_lacks(&["50 or more", "Show all in the graph"]);
}

#[tokio::test]
async fn node_page_lists_pending_reasons() {
    let out = Fake::new(|world| {
        let by = Some("ada".into());
        world.machine.status.maintenance =
            Some(Maintenance { by, since: None, reason: "new disks".into() });
    });
    get(&out, PAGE).await.assert_contains(&[
        "in maintenance",
        "by ada: new disks",
        "End maintenance",
        "name=\"maintenance\" value=\"false\"",
    ]);
    let dead = Fake::new(|world| {
        world.machine.status.alive = false;
        world.machine.health_checks.remove(0);
    });
    get(&dead, PAGE).await.assert_contains(&["dead", "Not reached: 10.0.3.7: connection refused."]);
    let unknown = Fake::new(|world| world.machine.status.joined = JoinPhase::Welcomed);
    get(&unknown, PAGE).await.assert_contains(&[
        "a worker must still check for running processes",
        "No run starts until a worker has logged in",
    ]);
    let new = Fake::new(|world| {
        world.machine.status.alive = false;
        world.machine.status.alive_since = None;
        (world.machine.health_checks, world.machine.facts, world.machine.noderoles) =
            Default::default();
        (world.machine.reports, world.machine.tokens, world.machine.runs) = Default::default();
    });
    let page = get(&new, PAGE).await;
    page.assert_contains(&[
        "never reached",
        "No health checks yet.",
        "No facts yet",
        "No noderoles yet",
    ]);
    page.assert_contains(&["No runs yet.", "No reports yet.", "No tokens yet."]);
}

#[tokio::test]
async fn node_commands_depend_on_permission() {
    let operator = get(&Fake::new(|_| {}), PAGE).await;
    operator.assert_contains(&[
        "/call/change-node",
        "/call/set-maintenance",
        "/call/create-node-token",
        "/call/revoke-node-token",
    ]);
    operator.assert_contains(&[
        "name=\"version\" value=\"3\"",
        "/call/propose-change",
        "Propose a new connection",
    ]);
    operator.assert_lacks(&["name=\"reason\" maxlength", "/call/delete-node"]);
    let record = Fake::new(|world| {
        world.machine.record_only = true;
    });
    let page = get(&record, PAGE).await;
    page.assert_contains(&[
        "name=\"address\"",
        "value=\"10.0.3.7 web-1.mgmt.example.com\"",
        "name=\"host_key\"",
        "name=\"hints\"",
    ]);
    page.assert_contains(&["/call/delete-node"]);
    page.assert_lacks(&["/call/propose-change"]);
    let viewer = Fake::new(|world| {
        world.machine.may_change = Allowed::no("ada does not have the permission operator.")
    });
    let page = get(&viewer, PAGE).await;
    page.assert_contains(&["ada does not have the permission operator."]);
    page.assert_lacks(&[
        "/call/change-node",
        "/call/set-maintenance",
        "/call/create-node-token",
        "/call/revoke-node-token",
    ]);
}

#[tokio::test]
async fn node_is_changed_without_javascript() {
    let fake = Fake::new(|_| {});
    let node = format!("node={}", fake::node(1));
    let form = format!(
        "{node}&version=3&description=&mac=a+b&port=2222&address=10.0.3.8,10.0.3.9&hints=%7B%7D"
    );
    for (call, form) in [
        ("change-node", form),
        ("change-node", format!("{node}&version=3&description=x")),
        ("set-maintenance", format!("{node}&maintenance=true&reason=disks")),
        ("create-node-token", format!("{node}&name=unit&days=")),
        ("revoke-node-token", format!("{node}&token={}", uuid::Uuid::from_u128(7))),
        ("propose-change", format!("{node}&root=/srv/other&user=root")),
    ] {
        assert_eq!(post(&fake, &format!("/call/{call}"), &form).await.status, 302, "{call}");
    }
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    let connection = r#"{"addresses":["10.0.3.8","10.0.3.9"],"port":2222}"#;
    let first = format!(
        r#"change node 3 {{"description":"","macs":["a","b"],"serial":"","hints":{{}},"connection":{connection}}}"#
    );
    assert_eq!(reported[0], first);
    assert!(
        reported[1].contains(r#""description":"x","macs":[]"#)
            && reported[1].contains(r#""connection":null"#),
        "{}",
        reported[1]
    );
    assert_eq!(reported[2], "maintenance true disks");
    assert!(
        reported[3].starts_with("revoke 0000"),
        "no token is created for a request without a token form: {reported:?}"
    );
    let edits =
        reported.iter().find(|reported| reported.starts_with("edit ")).expect("an edit call");
    assert!(
        edits.contains(r#""edit":"set_connection""#)
            && edits.contains(r#""connection":{"root":"/srv/other"}"#),
        "{edits}"
    );
    let page = get(&fake, "/nodes/web-1.rack1.example.com").await;
    page.assert_contains(&[
        "To create a token without JavaScript, use POST /api/v1/nodes/ID/tokens",
        "needs-scripts",
    ]);
}
