//! The page of pending steps.

use api::pending::PendingGroup;
use engine::anneal::PendingReason;

use super::fake::{Fake, fqdn, noderole};
use super::serve::get;

#[tokio::test]
async fn pending_steps_are_grouped_by_reason() {
    let page = get(&Fake::new(|_| {}), "/pending").await;
    assert_eq!(page.status, 200);
    let failed = noderole(4, "app").to_string();
    page.assert_contains(&[
        "<title>Pending · Gantry</title>",
        "Failed",
        "Waiting for failed steps",
        "10000+",
        "Show all 10000+",
        "href=\"/pending?reason=dependency_failed\"",
        "retry or change the failed step that they depend on",
        "href=\"/runs/12\"",
        &format!("href=\"/noderoles/{failed}\""),
        "href=\"/deployments/web\"",
        &format!("href=\"/nodes?filter={}\"", fqdn(5)),
    ]);
    page.assert_lacks(&["No pending steps", "Longest pending"]);
}

#[tokio::test]
async fn pending_reason_is_paginated_and_keeps_filter() {
    let fake = Fake::new(|world| world.long = true);
    let page = get(
        &fake,
        "/pending?deployment=web&reason=on_hold&after=since~-1~-00000000-0000-0000-0000-000000000001",
    )
    .await;
    page.assert_contains(&[
        "Deployment web was put on hold by ada.",
        "Longest pending",
        "/pending?deployment=web&amp;reason=on_hold&amp;after=since~-7~-00000000-0000-0000-0000-000000000007",
        "value=\"web\"",
        "href=\"/pending?reason=on_hold\" class=\"button quiet\"",
        "name=\"reason\" value=\"on_hold\"",
    ]);
    page.assert_lacks(&["exit 1 in 20-realm.sh", "Show all 1"]);
}

#[tokio::test]
async fn reversed_order_is_kept_across_pages() {
    let fake = Fake::new(|world| world.long = true);
    let usual = get(&fake, "/pending?deployment=web&reason=on_hold").await;
    usual.assert_contains(&[
        "aria-sort=\"ascending\"",
        "href=\"/pending?deployment=web&amp;reason=on_hold&amp;sort=-since\"",
    ]);
    let page =
        get(&fake, "/pending?deployment=web&reason=on_hold&sort=-since&after=-since~-1~-x").await;
    page.assert_contains(&[
        "aria-sort=\"descending\"",
        "Shortest pending",
        "&amp;reason=on_hold&amp;sort=-since&amp;after=-since~-7~-00000000-0000-0000-0000-000000000007",
    ]);
    let other = get(&fake, "/pending?reason=on_hold&after=-since~-1~-x").await;
    assert_eq!(other.status, 400, "a cursor of the other order is invalid");
    let odd = get(&fake, "/pending?sort=color").await;
    assert_eq!(odd.status, 400);
    odd.assert_contains(&["Valid orders: since, -since"]);
}

#[tokio::test]
async fn invalid_cursor_is_reported_next_to_form() {
    let page = get(&Fake::new(|_| {}), "/pending?deployment=web&reason=on_hold&after=7").await;
    assert_eq!((page.status, page.body.matches("<h1").count()), (400, 1));
    page.assert_contains(&[
        "Invalid cursor in `after`.",
        "value=\"web\"",
        "href=\"/pending?deployment=web&amp;reason=on_hold\" class=\"button\">Open the first page",
        "href=\"/pending\" class=\"button\">Show all pending steps",
    ]);
}

#[tokio::test]
async fn empty_pending_page_has_message() {
    let page = get(&Fake::new(|world| world.waits.clear()), "/pending").await;
    page.assert_contains(&["No pending steps", "Steps that cannot start yet"]);
    let fake = Fake::new(|world| {
        world.waits.retain(|group: &PendingGroup| group.reason == PendingReason::OnHold)
    });
    get(&fake, "/pending?reason=failed")
        .await
        .assert_contains(&["No pending steps match", "Show all pending steps"]);
}
