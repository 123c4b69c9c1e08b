//! The page of pending steps.

use api::waiting::WaitingGroup;
use engine::anneal::Wait;

use crate::fake::{Fake, fqdn, noderole};
use crate::serve::get;

#[tokio::test]
async fn pending_steps_are_grouped_by_reason() {
    let page = get(&Fake::new(|_| {}), "/waiting").await;
    assert_eq!(page.status, 200);
    let failed = noderole(4, "app").to_string();
    page.says(&[
        "<title>Why not yet · Gantry</title>",
        "Failed",
        "Behind a failure",
        "10000+",
        "All 10000+",
        "href=\"/waiting?reason=behind_failure\"",
        "retry or change the failed step above",
        "href=\"/runs/12\"",
        &format!("href=\"/noderoles/{failed}\""),
        "href=\"/deployments/web\"",
        &format!("href=\"/nodes?filter={}\"", fqdn(5)),
    ]);
    page.says_not(&["Nothing waits", "Longest waiting"]);
}

#[tokio::test]
async fn pending_reason_is_paginated_and_keeps_filter() {
    let fake = Fake::new(|world| world.long = true);
    let page = get(
        &fake,
        "/waiting?deployment=web&reason=held&after=since~-1~-00000000-0000-0000-0000-000000000001",
    )
    .await;
    page.says(&[
        "Deployment web is held by ada.",
        "Longest waiting",
        "/waiting?deployment=web&amp;reason=held&amp;after=since~-7~-00000000-0000-0000-0000-000000000007",
        "value=\"web\"",
        "href=\"/waiting?reason=held\" class=\"button quiet\"",
        "name=\"reason\" value=\"held\"",
    ]);
    page.says_not(&["exit 1 in 20-realm.sh", "All 1"]);
}

#[tokio::test]
async fn reversed_order_is_kept_across_pages() {
    let fake = Fake::new(|world| world.long = true);
    let usual = get(&fake, "/waiting?deployment=web&reason=held").await;
    usual.says(&[
        "aria-sort=\"ascending\"",
        "href=\"/waiting?deployment=web&amp;reason=held&amp;sort=-since\"",
    ]);
    let page =
        get(&fake, "/waiting?deployment=web&reason=held&sort=-since&after=-since~-1~-x").await;
    page.says(&[
        "aria-sort=\"descending\"",
        "Shortest waiting",
        "&amp;reason=held&amp;sort=-since&amp;after=-since~-7~-00000000-0000-0000-0000-000000000007",
    ]);
    let other = get(&fake, "/waiting?reason=held&after=-since~-1~-x").await;
    assert_eq!(other.status, 400, "a place of the other order");
    let odd = get(&fake, "/waiting?sort=colour").await;
    assert_eq!(odd.status, 400);
    odd.says(&["is no order of this list. There are: since, -since"]);
}

#[tokio::test]
async fn invalid_cursor_is_reported_next_to_form() {
    let page = get(&Fake::new(|_| {}), "/waiting?deployment=web&reason=held&after=7").await;
    assert_eq!((page.status, page.body.matches("<h1").count()), (400, 1));
    page.says(&[
        "after: this address goes on behind a step that can’t be.",
        "value=\"web\"",
        "href=\"/waiting?deployment=web&amp;reason=held\" class=\"button\">From its beginning",
        "href=\"/waiting\" class=\"button\">Everything that waits",
    ]);
}

#[tokio::test]
async fn empty_pending_page_has_message() {
    let page = get(&Fake::new(|world| world.waits.clear()), "/waiting").await;
    page.says(&["Nothing waits", "Every step is done or under way."]);
    let fake =
        Fake::new(|world| world.waits.retain(|group: &WaitingGroup| group.reason == Wait::Held));
    get(&fake, "/waiting?reason=failed")
        .await
        .says(&["Nothing waits here", "Everything that waits"]);
}
