//! Warnings to reviewers about hidden risks, texts that appear only once, and large changes.

use crate::addresses;
use api::blueprints::MAX_DOCUMENTS;
use api::catalog::{HiddenCharacters, HiddenCharactersScript, TextPosition};
use api::proposals::NotRestored;
use engine::Hash;
use engine::blueprint::difference::{Mark, NodeDifference, NoderoleDifference};
use engine::data::{Change, ChangeKind};
use engine::ids::{BarclampName, BlueprintNumber, Fqdn};
use serde_json::json;

use super::fake::{Fake, fqdn, node, proposed_board, role};
use super::serve::get;

fn hidden_characters(more: usize) -> HiddenCharacters {
    let script = HiddenCharactersScript {
        barclamp: BarclampName::parse("tool").expect("a name"),
        role: role("saw"),
        file: "10-cut.sh".into(),
        hash: Hash::of_bytes(b"cut"),
        at: TextPosition { line: 3, column: 7 },
        description: "The script has the character U+202E, which is invisible or misleading".into(),
    };
    HiddenCharacters { scripts: vec![script], more }
}

#[tokio::test]
async fn reviewers_are_warned_of_hidden_characters() {
    let fake = Fake::new(|world| {
        world.review.hidden_characters = hidden_characters(0);
        world.comparison.hidden_characters = hidden_characters(2);
        world.catalog[0].hidden_characters = hidden_characters(0);
    });
    let link = format!("href=\"/api/v1/scripts/{}\"", Hash::of_bytes(b"cut"));
    let line = "10-cut.sh:3:7";
    for (page, title) in [
        (
            "/reviews/128",
            "A newly used script has hidden characters, so it does not run as displayed",
        ),
        (
            "/reviews/128?tab=checks",
            "A newly used script has hidden characters, so it does not run as displayed",
        ),
        (
            "/blueprints?from=1&to=2",
            "3 newly used scripts have hidden characters, so they do not run as displayed",
        ),
        ("/catalog", "1 script has hidden characters, so it does not run as displayed"),
    ] {
        get(&fake, page).await.assert_contains(&[
            title,
            &link,
            line,
            "saw of tool",
            "the character U+202E",
        ]);
        get(&Fake::new(|_| {}), page).await.assert_lacks(&["hidden characters"]);
    }
}

#[tokio::test]
async fn restore_omissions_are_shown_on_board_and_review() {
    let not_restored = |n: usize, more| {
        let missing = (1..=n).map(|n| format!("node n{n}: it was given up")).collect();
        Some(NotRestored { blueprint: BlueprintNumber(12), missing, more })
    };
    let fake = Fake::new(|world| {
        world.board = proposed_board();
        world.board.proposal.as_mut().expect("a proposal").not_restored = not_restored(1, 0);
        world.review.not_restored = not_restored(200, 50);
    });
    let one = "1 part of blueprint 12 is left out, because it cannot be restored";
    get(&fake, "/deployments/web").await.assert_contains(&[
        one,
        "node n1: it was given up",
        "<details open",
    ]);
    let many = "250 parts of blueprint 12 are left out, because they cannot be restored";
    get(&fake, "/reviews/128").await.assert_contains(&[
        many,
        "node n200: it was given up",
        ">and 50 more<",
    ]);
}

#[tokio::test]
async fn removed_deployment_is_compared_at_earlier_target() {
    let fake = Fake::new(|world| {
        world.targets.removed_in = Some(BlueprintNumber(3));
        world.comparison.deployment = Some(world.board.name.clone());
        world.comparison.note =
            Some("Only blueprint 1 has deployment web. It does not exist in blueprint 2.".into());
        world.comparison.difference.deployments[0].name = world.board.name.clone();
        world.comparison.difference.deployments[0].mark = Mark::Removed;
        world.graph.blueprint = Some(BlueprintNumber(1));
        world.graph.cut =
            Some("This is deployment web at blueprint 1, without step states.".into());
    });
    let page = get(&fake, "/blueprints?deployment=web&from=2&to=1").await;
    let line = "Blueprint 3 removed deployment web. You can still compare earlier blueprints and \
        open their graphs.";
    page.assert_contains(&[
        line,
        "Only blueprint 1 has deployment web. It does not exist in blueprint 2.",
        "/graph/web?blueprint=1",
    ]);
    page.assert_lacks(&["Restoring opens a proposal", "Restore…", "/graph/web?blueprint=2"]);
    let others = Fake::new(|world| {
        world.comparison.deployment = Some(world.board.name.clone());
        world.comparison.note = Some(
            "Deployment web at blueprint 1 is not the same deployment as web at blueprint 2."
                .into(),
        );
        let mut webs = [
            world.comparison.difference.deployments[0].clone(),
            world.comparison.difference.deployments[0].clone(),
        ];
        (webs[0].mark, webs[1].mark) = (Mark::Added, Mark::Removed);
        world.comparison.difference.deployments = webs.into();
    });
    let page = get(&others, "/blueprints?deployment=web&from=1&to=2").await;
    page.assert_contains(&[
        "is not the same deployment as web at blueprint 2.",
        "/graph/web?blueprint=1",
        "/graph/web?blueprint=2",
    ]);
    let chosen = get(&fake, "/blueprints?deployment=shop").await;
    chosen.assert_contains(&["value=\"shop\"", "Blueprints that changed shop"]);
    let graph = get(&fake, "/graph/web?blueprint=1").await;
    graph.assert_contains(&[
        "Graph of web at blueprint 1<",
        "This is deployment web at blueprint 1",
        "/blueprints?deployment=web",
    ]);

    let never = get(&fake, "/blueprints?deployment=nowhere&from=1&to=2").await;
    assert_eq!(
        (never.status, never.body.matches(">Deployment nowhere does not exist.<").count()),
        (404, 1),
        "the missing deployment is reported once"
    );
}

/// A change with this many nodes. Each gets one noderole with its own value.
fn large(nodes: u128) -> Fake {
    Fake::new(|world| {
        let difference = &mut world.review.difference;
        let like = difference.nodes[1].clone();
        let own = |n: u128| Change {
            path: "/app/address".into(),
            kind: ChangeKind::Added,
            old: None,
            new: Some(json!(format!("10.0.{}.{}", n / 256, n % 256))),
            secret: false,
        };
        let one = |n: u128| NodeDifference {
            id: node(n),
            fqdn: Fqdn::parse(&fqdn(n)).expect("a name"),
            noderoles: vec![NoderoleDifference { data: vec![own(n)], ..like.noderoles[0].clone() }],
            ..like.clone()
        };
        difference.nodes = (1..=nodes).map(one).collect();
        difference.deployments.clear();
    })
}

/// A reviewer can see all of a large change. Pages are limited, as in the API.
#[tokio::test]
async fn large_change_is_paginated() {
    let fake = large(1_000);
    let next = |n: u128| {
        format!("/reviews/128?after={}", addresses::encoded(&format!("node/{}", node(n))))
    };
    let most = MAX_DOCUMENTS as u128;
    let first = get(&fake, "/reviews/128").await;
    let shown = format!("{MAX_DOCUMENTS} documents");
    first.assert_contains(&[&next(most), &shown, "Changes 1000"]);
    first.assert_lacks(&[">First<"]);
    let second = get(&fake, &next(most)).await;
    second.assert_contains(&[&next(2 * most), ">First<"]);
    let last = get(&fake, &next(999)).await;
    last.assert_contains(&["1 document", ">First<", &fqdn(1_000)]);
    last.assert_lacks(&["/reviews/128?after="]);
    let exactly = get(&large(most), "/reviews/128").await;
    assert!(
        first.body.len() < exactly.body.len() + 2_000,
        "further pages must not add to the size of the first page"
    );
    get(&Fake::new(|_| {}), "/reviews/128").await.assert_lacks(&["Pages of the changes"]);
    assert_eq!(
        get(&fake, &next(4_000)).await.status,
        400,
        "a cursor beyond the last difference is invalid"
    );
}
