//! The rendering of a review's changes: changed dependencies, role contents and the policy.

use std::collections::BTreeMap;

use api::blueprints::{EffectiveValue, RoleValueChange};
use api::catalog::{
    ContentChange, FileChange, FileLine, FileText, LineMark, PinChange, PinnedRole, PinnedVersion,
};
use engine::Hash;
use engine::blueprint::difference::{
    Difference, EdgeDifference, Mark, NodeDifference, NoderoleDifference, Sides,
};
use engine::blueprint::text::NamedNoderole;
use engine::cluster::{EdgeKind, NoderoleKey, phantom};
use engine::data::{Change, ChangeKind};
use engine::gate::{Policy, Risk};
use engine::ids::Fqdn;
use serde_json::json;

use super::fake::{
    Fake, changed_node, deployment_id, fqdn, node, noderole, noderole_difference, role,
};
use super::serve::get;

/// The noderole `app` on node `n`, with changed dependencies.
fn rewired(n: u128, edges: Vec<EdgeDifference>) -> NodeDifference {
    let content = |text: &str| Some(Hash::of_bytes(text.as_bytes()));
    let changed = NoderoleDifference {
        content: true,
        contents: Some(Sides { old: content("old"), new: content("new") }),
        rank: Some(Sides { old: 3, new: 4 }),
        rewired: true,
        edges,
        ..noderole_difference(n, "app", Mark::Changed)
    };
    changed_node(n, vec![changed])
}

fn named_noderole(n: u128, name: &str) -> (engine::ids::NoderoleId, NamedNoderole) {
    let place = NamedNoderole {
        noderole: NoderoleKey::first(role(name)),
        node: node(n),
        fqdn: Fqdn::parse(&fqdn(n)).expect("a name"),
    };
    (noderole(n, name), place)
}

fn edge(n: u128, name: &str, old: Option<EdgeKind>, new: Option<EdgeKind>) -> EdgeDifference {
    EdgeDifference { parent: noderole(n, name), old, new }
}

fn shows(nodes: Vec<NodeDifference>) -> Fake {
    Fake::new(|world| {
        let content = |text: &str| Hash::of_bytes(text.as_bytes());
        let timeout = Change {
            path: "/run/timeout".into(),
            kind: ChangeKind::Changed,
            old: Some(json!(60)),
            new: Some(json!(3600)),
            secret: false,
        };
        let mut db = named_noderole(9, "db");
        db.1.fqdn = phantom::fqdn(deployment_id(1));
        world.review.noderoles = [
            named_noderole(4, "db"),
            named_noderole(5, "db"),
            named_noderole(2, "dns"),
            named_noderole(3, "dns"),
            db,
        ]
        .into();
        world.review.contents = vec![ContentChange {
            old: content("old"),
            new: content("new"),
            changes: vec![timeout],
            files: Vec::new(),
        }];
        world.review.difference = Difference { nodes, ..Difference::default() };
    })
}

#[tokio::test]
async fn changed_dependencies_are_shown_with_both_sides() {
    let hard = Some(EdgeKind::Hard);
    let edges = vec![
        edge(4, "db", hard, None),
        edge(5, "db", None, Some(EdgeKind::Soft)),
        edge(2, "dns", hard, Some(EdgeKind::OrderOnly)),
        edge(9, "db", None, hard),
    ];
    let page = get(&shows(vec![rewired(2, edges)]), "/reviews/128").await;
    let short = |text: &[u8]| format!(">{}<", Hash::of_bytes(text).short());
    page.assert_contains(&[
        "no longer waits for",
        &format!("db on {}<", fqdn(4)),
        &format!("db on {} (soft)<", fqdn(5)),
        "dns on the same node<",
        ">order only<",
        "db on web as a whole<",
        ">rank<",
        &short(b"old"),
        &short(b"new"),
        "definition /run/timeout",
        "3600",
    ]);
    page.assert_lacks(&["other noderoles than before", "another content of the role"]);
}

#[tokio::test]
async fn nodes_with_different_dependencies_have_separate_cards() {
    let to = |n| vec![edge(n, "db", None, Some(EdgeKind::Hard))];
    let different = get(&shows(vec![rewired(2, to(4)), rewired(3, to(5))]), "/reviews/128").await;
    different.assert_lacks(&["with the same changes"]);
    let own = |n| vec![edge(n, "dns", None, Some(EdgeKind::Hard))];
    get(&shows(vec![rewired(2, own(2)), rewired(3, own(3))]), "/reviews/128")
        .await
        .assert_contains(&["more with the same changes"]);
}

#[tokio::test]
async fn added_noderole_shows_its_dependencies() {
    let mut new = rewired(
        2,
        vec![edge(4, "db", None, Some(EdgeKind::Hard)), edge(2, "dns", None, Some(EdgeKind::Hard))],
    );
    new.noderoles[0].mark = Mark::Added;
    let page = get(&shows(vec![new]), "/reviews/128").await;
    page.assert_contains(&["waits for", &format!("db on {}, dns on the same node", fqdn(4))]);
}

#[tokio::test]
async fn policy_change_is_shown_with_both_sides() {
    let policy = |approvals, destructive| Policy {
        approvals,
        by_risk: BTreeMap::from([(Risk::Destructive, destructive)]),
        ..Policy::default()
    };
    let fake = Fake::new(|world| {
        world.review.difference = Difference {
            policy: Some(Sides { old: policy(1, 3), new: policy(2, 1) }),
            ..Difference::default()
        };
    });
    let page = get(&fake, "/reviews/128").await;
    page.assert_contains(&[
        "Approval policy",
        ">every change<",
        ">destructive<",
        "fewer than before",
        ">1 (2, as for every change)<",
    ]);
    page.assert_lacks(&["No differences", "cooling period"]);
    let fake = Fake::new(|world| {
        let (old, new) = (policy(1, 3), Policy { cooling_hours: 1, ..policy(1, 3) });
        world.review.difference =
            Difference { policy: Some(Sides { old, new }), ..Difference::default() };
    });
    let page = get(&fake, "/reviews/128").await;
    page.assert_contains(&[">cooling period<", "shorter than before", ">24 hours<", ">1 hour<"]);
}

#[tokio::test]
async fn version_change_shows_old_version_and_scripts() {
    let content = |text: &str| Hash::of_bytes(text.as_bytes());
    let contents = Sides { old: Some(content("old")), new: Some(content("new")) };
    let line =
        |mark, number, text: &str| FileLine { mark, number: Some(number), text: text.into() };
    let lines = vec![
        line(LineMark::Unchanged, 1, "#!/bin/sh"),
        line(LineMark::Removed, 2, "cut"),
        line(LineMark::Added, 2, "burn \\u{202e}"),
    ];
    let file = |name: &str, text| FileChange {
        name: name.into(),
        mark: Mark::Changed,
        old: None,
        new: Some(Hash::of_bytes(b"new")),
        text,
    };
    let reported = ContentChange {
        old: content("old"),
        new: content("new"),
        changes: Vec::new(),
        files: vec![
            file("10-cut.sh", FileText::Lines { lines, cut: true }),
            file("20-blade", FileText::Binary { old: Some(3), new: Some(4) }),
            file("30-last.sh", FileText::NotCompared),
        ],
    };
    let version = |version: &str, from: Option<&str>| PinnedVersion {
        version: version.into(),
        hash: "a1b2c3d4".into(),
        from: from.map(super::fake::deployment),
    };
    let barclamp = engine::ids::BarclampName::parse("tool").expect("a name");
    let pin = PinChange {
        deployment: deployment_id(1),
        barclamp: barclamp.clone(),
        old: Some(version("1", Some("system"))),
        new: Some(version("2", None)),
        roles: vec![PinnedRole { role: role("saw"), contents }],
    };
    let fake = Fake::new(|world| {
        let deployment = &mut world.review.difference.deployments[0];
        deployment.id = deployment_id(1);
        // The document only shows that the deployment had no pin of its own.
        deployment.barclamps = vec![engine::blueprint::difference::BarclampDifference {
            barclamp,
            mark: Mark::Added,
            old: None,
            new: Some("a1b2c3d4".into()),
        }];
        world.review.contents = vec![reported.clone()];
        world.review.pins = vec![pin.clone()];
        world.comparison.difference = world.review.difference.clone();
        world.comparison.contents = vec![reported];
        world.comparison.pins = vec![pin];
    });
    for path in ["/reviews/128", "/blueprints?from=1&to=2"] {
        let page = get(&fake, path).await;
        page.assert_contains(&[
            "1 (a1b2c3d4), from system",
            "2 (a1b2c3d4)",
            "in that version, not used here",
        ]);
        page.assert_contains(&[
            "10-cut.sh",
            "− ",
            "cut",
            "burn \\u{202e}",
            "This comparison is incomplete",
            "Full file after",
            &format!("href=\"/api/v1/scripts/{}\"", Hash::of_bytes(b"new")),
            "binary file",
            "3 bytes, then 4 bytes",
        ]);
        page.assert_contains(&["30-last.sh", "too many files"]);
        let (_, row) = page.body.split_once("1 (a1b2c3d4), from system").expect("the pin");
        assert!(row.contains("2 (a1b2c3d4)"));
        let (before, _) = page.body.split_once("1 (a1b2c3d4), from system").expect("the pin");
        let (_, mark) = before.rsplit_once("data-mark=\"").expect("a row");
        assert!(mark.starts_with("changed"), "the version is marked as changed: {mark}");
    }
}

#[tokio::test]
async fn role_value_shows_its_effect_on_noderoles() {
    let fake = Fake::new(|world| {
        world.review.role_values = vec![RoleValueChange {
            deployment: deployment_id(1),
            role: role("app"),
            path: "/app/network".into(),
            before: Some(EffectiveValue {
                value: "\"10.0.0.0/24\"".into(),
                source: "role template".into(),
            }),
            after: None,
            noderoles: 12,
            overridden: 2,
        }];
    });
    get(&fake, "/reviews/128").await.assert_contains(&[
        "effective value",
        "(role template)",
        "no value",
        "2 of 12 noderoles override it.",
    ]);
    get(&Fake::new(|_| {}), "/reviews/128").await.assert_lacks(&["effective value"]);
}
