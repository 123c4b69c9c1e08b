//! Tests of the server-rendered pages: their texts, states and status codes. A fake of the use
//! cases returns fixtures.

mod accounts;
mod edits;
mod equivalent_commands;
pub(crate) mod fake;
mod lists;
mod nodes;
mod overview;
mod pending;
mod policy;
mod review_changes;
mod rollout;
mod serve;
mod values;
mod warnings;

use api::deployments::EditableDraft;
use api::proposals::*;
use api::reviews::ReviewCount;
use api::reviews::*;
use api::runs::*;
use api::views::graph::*;
use api::{Allowed, Problem};
use engine::blueprint::difference::Sides;
use engine::catalog::OnInput;
use engine::gate::Policy;
use engine::ids::*;
use engine::lint::{Finding, Level, LintCheck};
use fake::Fake;
use serve::{get, get_with, post};

#[tokio::test]
async fn signed_out_reader_is_redirected_to_sign_in() {
    let fake = Fake::new(|world| world.signed_in = false);
    let page = get(&fake, "/runs?state=failed").await;
    assert_eq!(
        (page.status, page.location.as_deref()),
        (302, Some("/sign-in?next=%2Fruns%3Fstate%3Dfailed"))
    );

    let sign_in = get(&fake, "/sign-in?next=%2Fruns%3Fstate%3Dfailed").await;
    assert_eq!(sign_in.status, 200);
    sign_in.assert_contains(&[
        "gantry up",
        "method=\"post\"",
        "action=\"/sign-in\"",
        "name=\"token\"",
        "value=\"/runs?state=failed\"",
    ]);
    sign_in.assert_contains(&["id=\"by-password\"", "#token="]);
    let in_query = get(&fake, "/sign-in?token=abcdef").await;
    in_query.assert_contains(&["Links of this form are not accepted"]);
    in_query.assert_lacks(&["abcdef"]);
    get(&fake, "/sign-in?next=https://example.com").await.assert_lacks(&["example.com"]);

    let cookie = [("cookie", "gantry_name=ada")];
    let again = get_with(&fake, "/sign-in?problem=wrong", &cookie).await;
    again.assert_contains(&["value=\"ada\"", "Wrong name or password"]);
    get_with(&fake, "/sign-in", &cookie).await.assert_lacks(&["value=\"ada\""]);

    let refused = get(&fake, "/sign-in?problem=used").await;
    assert_eq!(refused.status, 403);
    refused.assert_contains(&["This link was already used"]);
}

#[tokio::test]
async fn deployment_list_shows_states() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/deployments").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Deployments · Gantry</title>",
        "href=\"/deployments/web\"",
        "PROPOSED",
        "in review",
        "No noderoles",
        "data-state=\"error\" title=\"1 error\"",
        "Reviews that need your action: 2",
        "execution on",
        "aria-current=\"page\"",
    ]);
}

#[tokio::test]
async fn committed_board_is_read_only_with_propose_button() {
    let page = get(&Fake::new(|_| {}), "/deployments/web").await;
    page.assert_contains(&[
        "COMMITTED",
        "Propose changes",
        "web-4",
        "exit 1 in 20-realm.sh",
        "milestone",
        "2 roles, in system",
    ]);
    page.assert_contains(&[&more(41)]);
    page.assert_lacks(&["draggable", "Add role</button>", "Review changes", "Open proposal"]);
}

#[tokio::test]
async fn board_shows_step_states_next_to_badge() {
    let page = get(&Fake::new(|_| {}), "/deployments/web").await;
    // Roles of ancestors are not counted.
    page.assert_contains(&[
        "COMMITTED",
        ">1 error<",
        ">1 transition<",
        ">1 todo<",
        ">1 blocked<",
        ">7 active<",
    ]);
    page.assert_contains(&[
        "<a href=\"/pending?deployment=web&amp;reason=failed\"",
        "<a href=\"/pending?deployment=web\"",
        "<a href=\"/runs?state=running&amp;deployment=web\"",
    ]);
    page.assert_lacks(&["No noderoles"]);
    let title = page
        .body
        .split("</h1>")
        .next()
        .and_then(|before| before.rsplit("<h1").next())
        .expect("a heading");
    assert!(
        title.contains("COMMITTED") && !title.contains("data-state=\"active\""),
        "the board must not use the color of a step state: {title}"
    );
    let full = Fake::new(|world| {
        world.board.omitted = StateCounts { error: 2, active: 40, ..StateCounts::default() }
    });
    get(&full, "/deployments/web").await.assert_contains(&[
        ">3 error<",
        ">47 active<",
        ">1 blocked<",
    ]);
    // Proposed noderoles are not steps yet.
    let proposed = Fake::new(|world| world.board = fake::proposed_board());
    get(&proposed, "/deployments/web").await.assert_contains(&[
        "PROPOSED",
        ">1 error<",
        ">7 active<",
    ]);
    let empty = Fake::new(|world| world.board.groups.clear());
    let page = get(&empty, "/deployments/web").await;
    page.assert_contains(&["No noderoles"]);
    page.assert_lacks(&[">1 error<"]);
}

/// The markup of a count in a cell.
fn more(n: usize) -> String {
    format!("+<!>{n}<!> more")
}

#[tokio::test]
async fn board_explains_missing_propose_permission() {
    let fake = Fake::new(|world| {
        world.board.may_propose = Allowed::no("Nobody proposes changes on system by hand.")
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&["Nobody proposes changes on system by hand.", "disabled"]);
}

#[tokio::test]
async fn proposed_board_summarizes_the_proposal() {
    let fake = Fake::new(|world| {
        world.board = fake::proposed_board();
        let proposal = world.board.proposal.as_mut().expect("a proposal");
        proposal.refused = vec![fake::refusal()];
        proposal.redo = Some("bind web-9 to store".into());
        proposal.review = Some(ReviewId(128));
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        "draggable=\"true\"",
        "Undo “bind web-6 to app”",
        "Redo “bind web-9 to store”",
        "cannot take effect",
        "web-5 belongs to storage, which stands beside web: move it first",
        "required by app",
        "script · new",
        "/reviews/128",
        "Bind nodes to app",
        "JavaScript is disabled",
        "Other edits need JavaScript or the API",
        "/api/v1/proposals/",
    ]);
    page.assert_lacks(&["Bind nodes to dns-client", "COMMITTED"]);
}

#[tokio::test]
async fn reader_is_warned_before_becoming_author() {
    let fake = |makes_author| {
        Fake::new(move |world| {
            world.board = fake::proposed_board();
            let proposal = world.board.proposal.as_mut().expect("a proposal");
            proposal.makes_author = makes_author;
            proposal.authors.push("bo".into());
            proposal.edits[0].undone = true;
            proposal.edits[0].touched_by = vec!["bo".into()];
            world.node_proposal.proposal = proposal.clone();
            if let EditableDraft::Yes(draft) = &mut world.noderole.may_edit {
                draft.makes_author = makes_author;
            }
        })
    };
    let pages = [
        "/deployments/web",
        "/proposals/9",
        &format!("/noderoles/{}", fake::noderole(4, "gateway")),
    ];
    for path in pages {
        get(&fake(true), path).await.assert_contains(&["You are not an author of this proposal"]);
        get(&fake(false), path).await.assert_lacks(&["You are not an author of this proposal"]);
    }
    for path in &pages[..2] {
        get(&fake(false), path).await.assert_contains(&["ada; undone by bo"]);
    }
    get(&fake(true), "/deployments/web")
        .await
        .assert_contains(&["you become an author and cannot approve this review"]);
}

#[tokio::test]
async fn node_page_explains_missing_propose_permission() {
    let path = format!("/noderoles/{}", fake::noderole(4, "gateway"));
    get(&Fake::new(|_| {}), &path).await.assert_lacks(&["That takes the operator permission."]);
    let fake = Fake::new(|world| {
        world.noderole.may_propose = Allowed::no("That takes the operator permission.")
    });
    let page = get(&fake, &path).await;
    page.assert_contains(&["That takes the operator permission."]);
    let button = page
        .body
        .split("<button")
        .find(|part| part.contains("on this node only"))
        .expect("the button");
    assert!(button.contains("disabled"), "{button}");
}

#[tokio::test]
async fn policy_change_is_a_card() {
    let policy = |approvals| Policy { approvals, by_risk: Default::default(), ..Policy::default() };
    let fake = Fake::new(move |world| {
        let sides = Sides { old: policy(1), new: policy(2) };
        world.review.difference.policy = Some(sides);
    });
    let page = get(&fake, "/reviews/128").await;
    page.assert_contains(&[
        "of <b class=\"num\">4",
        "name=\"anchors\" value=\"policy\"",
        "Comment on the policy, approvals for every change",
    ]);
    page.assert_contains(&["tab=discussion&amp;about=policy%23%2Fapprovals"]);
}

#[tokio::test]
async fn empty_board_shows_first_action() {
    let fake = Fake::new(|world| {
        world.board.groups.clear();
        world.board.tray.clear();
        world.board.tray_more = 0;
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        "No roles yet",
        "Propose changes, add roles",
        "No nodes yet. Add a node",
    ]);
}

#[tokio::test]
async fn missing_object_returns_404_with_link() {
    let fake = Fake::new(|_| {});
    for (path, all, word) in [
        ("/deployments/nowhere", "/deployments", "All deployments"),
        ("/reviews/x", "/reviews", "All reviews"),
        ("/runs/x", "/runs", "All runs"),
        ("/noderoles/x", "/deployments", "All deployments"),
        ("/nodes/nobody.rack1.example.com", "/nodes", "All nodes"),
        ("/proposals/x", "/reviews?state=drafts", "All proposals"),
        ("/workers/x", "/workers", "All workers"),
        ("/elsewhere", "/deployments", "All deployments"),
    ] {
        let page = get(&fake, path).await;
        assert_eq!(page.status, 404, "{path}");
        page.assert_contains(&["Not found", &format!("href=\"{all}\" class=\"button\">{word}")]);
    }
}

#[tokio::test]
async fn server_error_is_shown_on_every_page() {
    let fake = Fake::new(|world| {
        world.problem = Some(Problem::unavailable(
            "The database does not answer. Work continues automatically when it does.",
        ))
    });
    for path in [
        "/",
        "/workers",
        "/workers/00000000-0000-0000-0000-000000000007",
        "/audit",
        "/search?q=web",
        "/deployments",
        "/deployments/web",
        "/reviews",
        "/reviews/128",
        "/runs",
        "/runs/1",
        "/nodes",
        "/blueprints",
        "/catalog",
    ] {
        let page = get(&fake, path).await;
        assert_eq!(page.status, 503, "{path}");
        page.assert_contains(&[
            "Temporarily unavailable",
            "Work continues automatically",
            "Try again",
        ]);
    }
}

#[tokio::test]
async fn target_history_shows_authors_and_compares_targets() {
    let page = get(&Fake::new(|_| {}), "/blueprints?deployment=web&from=1&to=2").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Blueprints · Gantry</title>",
        "Blueprints that changed web",
        "Three more application nodes",
        "ada, eve",
        "execution off",
        "genesis",
        "data-label=\"Proposed by\">Gantry<",
        "href=\"/blueprints?deployment=web&amp;from=2&amp;to=2\" aria-label=\"Compare from \
         blueprint 2\"",
        "href=\"/blueprints?deployment=web&amp;from=1&amp;to=2\" aria-label=\"Changes of blueprint \
         2\"",
        "From blueprint 1 to blueprint 2",
        "href=\"/api/v1/blueprints/compare?deployment=web&amp;from=1&amp;to=2&amp;format=text\"",
        "10.8.0.0/22",
        "secret, ",
        "other documents are unchanged",
        "data-side=\"from\"",
    ]);
    page.assert_lacks(&["Comment on"]);
}

#[tokio::test]
async fn checks_show_planner_report() {
    get(&Fake::new(|_| {}), "/reviews/128?tab=checks").await.assert_contains(&[
        "Plan report",
        "waiting on",
        "0 of 0 edits take effect",
        "A change to review",
    ]);
    let page = get(&Fake::new(|world| world.report = None), "/reviews/128?tab=checks").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&["newest version of an open proposal"]);
    get(&Fake::new(|_| {}), "/reviews/128").await.assert_lacks(&["Plan report"]);
}

#[tokio::test]
async fn catalog_shows_removed_parts_of_versions() {
    let fake = Fake::new(|_| {});
    get(&fake, "/catalog").await.assert_contains(&[
        "<title>Catalog · Gantry</title>",
        "role cache",
        "nothing since ",
        "first version",
        "shipped with Gantry",
        "Import a barclamp",
        "action=\"/call/import\"",
    ]);
    let posted = post(&fake, "/call/import", "path=demo.yml&text=x").await;
    assert_eq!(posted.status, 302);
    assert_eq!(fake.0.lock().expect("an unpoisoned lock").calls, ["import demo.yml"]);
    get(&Fake::new(|world| world.catalog.clear()), "/catalog")
        .await
        .assert_contains(&["No barclamps yet"]);
}

#[tokio::test]
async fn catalog_is_paginated() {
    let fake = Fake::new(|world| world.long = true);
    let hashes: Vec<String> =
        fake.0.lock().unwrap().catalog.iter().map(|version| version.hash.clone()).collect();
    let after = |hash: &str| format!("/catalog?after={hash}");
    let link = |path: &str| format!("href=\"{path}\"");
    let title = |hash: &str| format!("<code title=\"{hash}\"");
    let first = get(&fake, "/catalog").await;
    first.assert_contains(&[&title(&hashes[0]), &link(&after(&hashes[0]))]);
    first.assert_lacks(&[&title(&hashes[1]), ">First<"]);
    let second = get(&fake, &after(&hashes[0])).await;
    second.assert_contains(&[&title(&hashes[1]), &link(&after(&hashes[1])), ">First<"]);
    second.assert_lacks(&[&title(&hashes[0]), &title(&hashes[2])]);
    let last = get(&fake, &after(&hashes[1])).await;
    last.assert_contains(&[&title(&hashes[2]), ">First<"]);
    last.assert_lacks(&[&link(&after(&hashes[2]))]);
    let nowhere = get(&fake, "/catalog?after=x").await;
    assert_eq!(nowhere.status, 400);
    nowhere.assert_contains(&["No version has that content."]);
    get(&Fake::new(|_| {}), "/catalog").await.assert_lacks(&["Pages of the list"]);
}

#[tokio::test]
async fn deployment_is_restored_without_javascript() {
    let fake = Fake::new(|world| {
        world.comparison.from.blueprint = Some(BlueprintNumber(3));
        world.comparison.to.blueprint = Some(BlueprintNumber(1));
        world.comparison.deployment = Some(fake::deployment("web"));
    });
    get(&fake, "/blueprints?deployment=web&from=3&to=1").await.assert_contains(&[
        "Restore web as of blueprint 1",
        "name=\"partial\"",
        "href=\"/blueprints?deployment=web&amp;from=3&amp;to=2\">Restore…",
    ]);
    let done = post(&fake, "/call/restore", "deployment=web&target=1&partial=true").await;
    assert_eq!((done.status, done.location.as_deref()), (302, Some("/deployments/web")));
    let refused = post(&fake, "/call/restore", "deployment=web&target=1").await;
    assert_ne!(refused.location.as_deref(), Some("/deployments/web"));
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    assert!(reported.contains(&"restore web 1 false".to_owned()), "{reported:?}");
    get(&Fake::new(|_| {}), "/blueprints?from=2&to=1")
        .await
        .assert_lacks(&["Restoring opens a proposal"]);
    let others = Fake::new(|world| {
        world.comparison.from.blueprint = Some(BlueprintNumber(3));
        world.comparison.to.blueprint = Some(BlueprintNumber(1));
        world.comparison.deployment = Some(fake::deployment("web"));
        let policy =
            |approvals| Policy { approvals, by_risk: Default::default(), ..Policy::default() };
        world.comparison.difference.policy = Some(Sides { old: policy(2), new: policy(1) });
        world.comparison.difference.nodes.clear();
        world.comparison.difference.deployments[0].name = fake::deployment("system");
    });
    let page = get(&others, "/blueprints?deployment=web&from=3&to=1").await;
    page.assert_contains(&["From blueprint 3 to blueprint 1"]);
    page.assert_lacks(&["Restoring opens a proposal"]);
}

#[tokio::test]
async fn comparison_handles_equal_unknown_and_huge_blueprints() {
    let same = Fake::new(|world| {
        world.comparison.to.root.clone_from(&world.comparison.from.root);
        world.comparison.difference = Default::default();
    });
    get(&same, "/blueprints?from=1&to=2").await.assert_contains(&["Both are the same blueprint."]);
    let unknown = get(&Fake::new(|_| {}), "/blueprints?from=1&to=9").await;
    assert_eq!(unknown.status, 404);
    unknown.assert_contains(&[
        "Blueprint 9 does not exist. Use a number from 1 to 3.",
        "Blueprint history",
    ]);
    let huge = Fake::new(|world| world.comparison = world.comparison.clone().cut(2));
    get(&huge, "/blueprints?from=1&to=2")
        .await
        .assert_contains(&["more documents differ, which is too many for one page"]);
    get(&Fake::new(|_| {}), "/blueprints?from=1")
        .await
        .assert_contains(&["From 1: select the blueprint to compare it to."]);
    let empty = Fake::new(|world| world.targets.blueprints.clear());
    let behind = get(&empty, "/blueprints?deployment=web&before=1").await;
    behind.assert_contains(&[
        "No more blueprints",
        "href=\"/blueprints?deployment=web\" class=\"button\">Open the first page",
    ]);
    behind.assert_lacks(&["Pages of the list"]);
    let untouched = get(&empty, "/blueprints?deployment=web").await;
    untouched.assert_contains(&[
        "No blueprint matches",
        "href=\"/blueprints\" class=\"button\">Show all <!>blueprints",
    ]);
    untouched.assert_lacks(&["Pages of the list"]);
}

#[tokio::test]
async fn panel_is_opened_by_address() {
    let id = fake::noderole(4, "gateway");
    let page = get(&Fake::new(|_| {}), &format!("/deployments/web?noderole={id}")).await;
    page.assert_contains(&[
        "panel-title",
        "exit 1 in 20-realm.sh",
        "deployment role",
        "(secret)",
        "Retry",
        "run 1004".split(' ').next().unwrap_or_default(),
    ]);
    let alone = get(&Fake::new(|_| {}), &format!("/noderoles/{id}")).await;
    alone.assert_contains(&[
        "<title>gateway on web-4.rack1.example.com · Gantry</title>",
        "Edit in the proposal",
        "Dependents",
    ]);
}

#[tokio::test]
async fn unchangeable_noderole_shows_reason() {
    let fake = Fake::new(|world| {
        world.noderole.may_edit = EditableDraft::no("Propose changes on web first.");
        world.noderole.may_retry = Allowed::no("Your account may not retry.");
    });
    let page = get(&fake, &format!("/noderoles/{}", fake::noderole(4, "gateway"))).await;
    page.assert_contains(&["Propose changes on web first.", "Your account may not retry."]);
}

#[tokio::test]
async fn author_sees_why_approval_is_disabled() {
    let page = get(&Fake::new(|_| {}), "/reviews/128").await;
    page.assert_contains(&[
        "Adds app on web-6, web-7 and web-8.",
        "You wrote part of this change, so another person must review it.",
        "1 of 2 approvals.",
        "Can act: bo, dee",
        "waiting for review",
        "destructive",
        "10.0.0.0/24",
        "10.8.0.0/22",
        "(secret app/key version 4)",
        "(secret app/key version 5)",
        "secret, ",
        "required by app",
        "moves from ",
        "more with the same changes",
        "other documents are unchanged",
    ]);
    page.assert_lacks(&["app/key\",\"version"]);
}

#[tokio::test]
async fn impact_summary_links_to_complete_lists() {
    let page = get(&Fake::new(|_| {}), "/reviews/128").await;
    page.assert_contains(&[
        "Can’t be undone:",
        "store on web-1 loses data when it runs.",
        "Restarts 1 noderole that is active now:",
        "/old of app in web.",
        "1204 noderoles in web, 900 active now.",
        "Starts 9 noderoles:",
        "on 4 nodes, in 10 waves.",
        "uses secret app/key version 5 (was version 4) in app of web on web-1, web-2 and 28 more.",
        "/reviews/128?tab=effects#secrets",
        "/reviews/128?tab=effects#restarts",
        "Deployment web is on hold by cy (a move)",
    ]);
    let changed = page.body.split_once("<b>Changes ").and_then(|(_, rest)| rest.split('<').next());
    let changed = changed.expect("the list of changes");
    assert!(changed.contains("noderole"), "{changed}");
    let text = page.body.matches(&format!(">Changes {changed}<")).count();
    assert_eq!(text, 1, "the text appears once, above the tabs: {changed}");
    page.assert_contains(&[">Changes<"]);
    let lists = get(&Fake::new(|_| {}), "/reviews/128?tab=effects").await;
    lists.assert_contains(&[
        "id=\"secrets\"",
        "<bdi>app/key<",
        "was version 4",
        "replaced",
        "28 more",
        "id=\"restarts\"",
        "rerun requested: the disk was replaced",
        "active now",
        "1202",
        "Downstream in web",
    ]);
    let closed = Fake::new(|world| {
        world.review.current = false;
        world.review.impact.interrupted = None;
        world.review.impact.restarts.first[0].in_use = None;
    });
    let page = get(&closed, "/reviews/128").await;
    page.assert_contains(&["Runs 1 noderole again:", "This is the impact at submission"]);
    page.assert_lacks(&["that is active now"]);
}

#[tokio::test]
async fn severe_effects_are_never_collapsed() {
    let gives_up = (1..=5).map(|n| {
        format!("Expunges n{n}: everything on it counts as removed immediately. Reason: it burned")
    });
    let roles = (1..=4).map(|n| format!("Removes role store and its data from web-{n}."));
    let unbound = (1..=4).map(|n| format!("Removes app-{n} from n9."));
    let moved = (1..=3).map(|n| format!("n{n} moves from system to web."));
    let first = ["Can’t be undone: store on n1.", "Removes deployment shop."].map(str::to_owned);
    let last = [
        "Sets the policy for all later changes in every deployment: one approval for every change.",
        "Turns jig script off: no step that needs it starts in any deployment.",
    ];
    let all = first.into_iter().chain(gives_up).chain(roles).chain(unbound).chain(moved);
    let grave: Vec<String> = all.chain(last.map(str::to_owned)).collect();
    assert_eq!(grave.len(), 20);
    let rest: Vec<String> = (1..=10).map(|n| format!("Adds cache on web-{n}.")).collect();
    for is_requested in [false, true] {
        let lines: Vec<String> = grave.iter().chain(&rest).cloned().collect();
        let fake = Fake::new(|world| {
            world.review.always_shown = grave.len();
            world.review.requested = if is_requested { lines.clone() } else { Vec::new() };
            world.review.summary = lines;
        });
        let page = get(&fake, "/reviews/128").await;
        let line = |text: &String| format!("<li>{text}<");
        let in_sight = without_folds(&page.body);
        let hidden: Vec<&String> =
            grave.iter().filter(|text| !in_sight.contains(&line(text))).collect();
        assert!(hidden.is_empty(), "severe effects are collapsed: {hidden:?}");
        assert!(
            rest.iter()
                .all(|text| !in_sight.contains(&line(text)) && page.body.contains(&line(text)))
        );
        page.assert_contains(&["Show all: <!>10<!> more"]);
    }
}

/// A page without the content of its `<details>` elements, open or not.
fn without_folds(body: &str) -> String {
    let (mut seen, mut depth) = (String::new(), 0_usize);
    for part in body.split_inclusive('>') {
        depth += part.matches("<details").count();
        if depth == 0 {
            seen.push_str(part);
        }
        depth -= part.matches("</details>").count();
    }
    seen
}

#[tokio::test]
async fn waves_show_their_dependencies() {
    let page = get(&Fake::new(|_| {}), "/reviews/128?tab=waves").await;
    page.assert_contains(&[
        "Waves 10",
        "Wave 3",
        "one at a time",
        "waits for runtime, 29 more",
        "destroys data",
        "7 waves",
    ]);
}

#[tokio::test]
async fn waves_end_with_noderoles_whose_input_may_change() {
    let unbound = |on_input| {
        Fake::new(move |world| {
            let impact = &mut world.review.impact;
            (impact.waves, impact.more_waves) = (Vec::new(), 0);
            let balancer = &mut impact.downstream[0];
            balancer.on_input = on_input;
            balancer.noderoles.first.truncate(1);
            balancer.noderoles.count = 1;
        })
    };
    let reruns = unbound(OnInput::Rerun);
    let waves = get(&reruns, "/reviews/128?tab=waves").await;
    waves.assert_contains(&[
        "Then, if their input changes",
        "<b>1 noderole<!></b>",
        "cache on web-1",
    ]);
    waves.assert_lacks(&["Nothing runs."]);
    let facts = get(&reruns, "/reviews/128?tab=changes").await;
    facts.assert_contains(&["1 noderole runs again, if its input changes.", "?tab=waves\">Waves<"]);
    facts.assert_lacks(&["Nothing runs.", "runs nothing."]);

    let reported = unbound(OnInput::Report);
    let waves = get(&reported, "/reviews/128?tab=waves").await;
    waves.assert_contains(&["Nothing runs."]);
    waves.assert_lacks(&["Then, if their input changes"]);
}

#[tokio::test]
async fn review_summary_names_lint_warnings() {
    let fake = Fake::new(|world| {
        world.review.checks = (1..=4)
            .map(|n| Finding {
                check: LintCheck::NothingToRun,
                level: Level::Warning,
                at: format!("cache on web-{n}"),
                noderole: None,
                problem: format!("the role lacks script {n}"),
                remedy: "Import its scripts".into(),
            })
            .collect();
    });
    let page = get(&fake, "/reviews/128").await;
    page.assert_contains(&[
        "aria-label=\"Lint warnings\"",
        "cache on web-3:",
        "the role lacks script 3",
        "1 more.",
        ">4 lint warnings<",
    ]);
    page.assert_lacks(&["the role lacks script 4<"]);
    get(&Fake::new(|_| {}), "/reviews/128").await.assert_lacks(&["Lint warnings"]);
}

#[tokio::test]
async fn viewed_changes_are_marked_without_javascript() {
    let web = engine::blueprint::Anchor::Deployment(fake::deployment_id(1));
    let marked = web.clone();
    let fake = Fake::new(move |world| world.opened.viewed = [marked].into());
    let page = get(&fake, "/reviews/128").await;
    page.assert_contains(&[
        "You have ",
        "viewed <b class=\"num\">1<!></b> of <b class=\"num\">3",
        "action=\"/call/mark-viewed\"",
        "</svg>viewed",
    ]);
    let done = post(
        &fake,
        "/call/mark-viewed",
        &format!("review=128&anchors={}", crate::addresses::encoded(&web.to_string())),
    )
    .await;
    assert_eq!(done.status, 302);
    assert_eq!(fake.0.lock().unwrap().calls, [format!("opened 128 {web}")]);
}

#[tokio::test]
async fn only_large_change_is_collapsed() {
    let small = get(&Fake::new(|_| {}), "/reviews/128").await;
    small.assert_contains(&["<details open class=\"fold\""]);
    let large = Fake::new(|world| {
        let node = world.review.difference.nodes[0].clone();
        let noderole = node.noderoles[0].clone();
        world.review.difference.nodes[0].noderoles = vec![noderole; 20_000];
    });
    let page = get(&large, "/reviews/128").await;
    page.assert_lacks(&["<details open class=\"fold\""]);
    page.assert_contains(&["19800"]);
    assert!(page.body.matches("<tr").count() < 500);
}

#[tokio::test]
async fn destructive_commit_requires_typed_name() {
    let fake = Fake::new(|world| {
        world.review.may_commit = Allowed::Yes;
        world.review.may_review = Allowed::Yes;
        world.review.gate = fake::gate(2, 2);
        world.review.state = ReviewState::Open;
    });
    let page = get(&fake, "/reviews/128").await;
    page.assert_contains(&["pattern=\"web\"", "Type ", "ready to commit", "name=\"name\""]);
    page.assert_lacks(&["You wrote part"]);
    let harmless = Fake::new(|world| {
        world.review.may_commit = Allowed::Yes;
        world.review.gate = fake::gate(2, 2);
        world.review.state = ReviewState::Open;
        world.review.type_to_commit = None;
    });
    get(&harmless, "/reviews/128").await.assert_lacks(&["pattern=\"web\"", "name=\"name\""]);
}

#[tokio::test]
async fn committed_review_links_to_its_runs() {
    let fake = Fake::new(|world| {
        world.review.state = ReviewState::Committed;
        world.review.blueprint = Some(BlueprintNumber(128));
    });
    let page = get(&fake, "/reviews/128?tab=discussion").await;
    page.assert_contains(&[
        "Watch progress",
        "href=\"/blueprints/128\"",
        "Looked at the network with the site.",
        "does not count",
    ]);
    page.assert_lacks(&["name=\"kind\""]);
}

#[tokio::test]
async fn thread_links_to_change_and_names_resolver() {
    let changes = get(&Fake::new(|_| {}), "/reviews/128").await;
    changes.assert_contains(&[
        "Discussion 1 open",
        "Comment on app",
        "tab=discussion&amp;about=deployment%2F",
    ]);
    let anchor = engine::blueprint::Anchor::Role(fake::deployment_id(1), fake::role("app"), None);
    let path = format!(
        "/reviews/128?tab=discussion&about={}",
        crate::addresses::encoded(&anchor.to_string())
    );
    let talk = get(&Fake::new(|_| {}), &path).await;
    talk.assert_contains(&[
        "Why this port?",
        "resolved",
        "whoever opened this thread resolves it",
        "Open a thread on ",
        "name=\"anchor\"",
    ]);
    talk.assert_contains(&[&format!("value=\"{anchor}\"")]);
}

#[tokio::test]
async fn comments_work_without_javascript() {
    let fake = Fake::new(|_| {});
    let done = post(&fake, "/call/open-thread", "review=128&anchor=&body=Why%3F").await;
    assert_eq!(done.status, 302);
    post(&fake, "/call/reply", "thread=1&body=Because").await;
    post(&fake, "/call/resolve-thread", "thread=1&resolved=true").await;
    assert_eq!(
        fake.0.lock().unwrap().calls,
        ["open 128  Why?", "reply 1 Because", "resolve 1 true"]
    );
    let odd = post(&fake, "/call/open-thread", "review=128&anchor=elsewhere&body=x").await;
    assert_eq!(odd.status, 302, "the form redirects to its page, which reports the error");
}

#[tokio::test]
async fn checks_show_their_evidence() {
    let page = get(&Fake::new(|_| {}), "/reviews/128?tab=checks").await;
    page.assert_contains(&["Approvals", "1 of 2 approvals. Can approve: ", "planned on blueprint"]);
}

#[tokio::test]
async fn graph_has_picture_table_and_links() {
    let page = get(&Fake::new(|_| {}), "/graph/web?roles=app&at=web%3Aruntime").await;
    page.assert_contains(&[
        "Graph of ",
        "aria-label=\"web-2 · app error, in web\"",
        "aria-label=\"runtime ×4 3 active, 1 blocked, in web\"",
        "class=\"edge current\"",
        "/graph/web?roles=app&amp;at=web%3Aruntime&amp;as=table",
        "Unfold its 4 noderoles",
        "href=\"/graph/web?roles=app&amp;focus=web%3Aruntime&amp;at=web%3Aruntime\"",
    ]);
    let table = get(&Fake::new(|_| {}), "/graph/web?as=table").await;
    table.assert_contains(&[
        "<th scope=\"col\">Dependencies</th>",
        "<li>app on web-1",
        "<li>app on web-2",
    ]);
    get(&Fake::new(|_| {}), "/reviews/128?tab=graph")
        .await
        .assert_contains(&["/reviews/128?tab=graph&amp;at=web%3Aruntime"]);
}

#[tokio::test]
async fn cluster_graph_names_deployments() {
    let page = get(&Fake::new(|_| {}), "/graph").await;
    page.assert_contains(&[
        "Graph of the cluster",
        "aria-label=\"runtime · web ×4 3 active, 1 blocked, in web\"",
        "href=\"/graph?at=web%3Aruntime\"",
        "href=\"/graph.svg\"",
        "href=\"/graphs\"",
    ]);
    let cut = Fake::new(|world| world.graph.cut = Some("Not shown: edge, xen.".into()));
    get(&cut, "/graph").await.assert_contains(&["Not shown: edge, xen."]);
}

#[tokio::test]
async fn replaced_run_links_to_the_newest() {
    let page = get(&Fake::new(|_| {}), "/runs/1006").await;
    page.assert_lacks(&["replaced this run"]);
    let replaced = Fake::new(|world| {
        let mut newer = world.run.run.clone();
        newer.id = RunId(2_001);
        world.run.attempts.insert(0, newer);
    });
    let page = get(&replaced, "/runs/1006").await;
    page.assert_contains(&["href=\"/runs/2001\"", "class=\"to-newest\"", "replaced this run"]);
}

#[tokio::test]
async fn only_temporary_problems_can_be_tried_again() {
    let temporary = Problem::new(429, "rate_limited", "Too many requests", "Wait a little.");
    for (problem, again) in [
        (Problem::unavailable("Work continues automatically."), true),
        (temporary, true),
        (Problem::not_found("It does not exist."), false),
        (Problem::forbidden("You may not see it."), false),
        (Problem::invalid("It is not valid."), false),
    ] {
        let status = problem.status;
        let page = get(&Fake::new(|world| world.problem = Some(problem)), "/deployments/web").await;
        assert_eq!(page.body.contains("Try again"), again, "{status}");
    }
}

#[tokio::test]
async fn board_reserves_the_space_of_the_proposal_bar() {
    let page = get(&Fake::new(|_| {}), "/deployments/web").await;
    page.assert_contains(&[
        "class=\"proposal none\"",
        "action=\"/call/propose\"",
        "role=\"progressbar\"",
    ]);
    page.assert_lacks(&["aria-label=\"Open proposal\""]);
    let open = Fake::new(|world| world.board = fake::proposed_board());
    let open = get(&open, "/deployments/web").await;
    open.assert_lacks(&["class=\"proposal none\"", "action=\"/call/propose\""]);
}

#[tokio::test]
async fn highlighted_path_is_shown_everywhere() {
    let fake = Fake::new(|world| {
        world.graph.marked_path = Some(GraphPath {
            summary: "app waits for runtime: 2 noderoles.".into(),
            noderoles: 2,
            path: Vec::new(),
        });
        world.graph.vertices[0].on_path = 1;
        world.graph.vertices[2].on_path = 1;
        world.graph.edges[0].on_path = 1;
    });
    let query = "from=web%3Aruntime&to=web%3Aapp";
    let page = get(&fake, &format!("/graph/web?{query}")).await;
    page.assert_contains(&[
        "app waits for runtime: 2 noderoles.",
        "class=\"edge on-path\"",
        "class=\"box on-path\"",
        "1 of 4 on the path",
        "href=\"/graph/web/graph.svg?from=web%3Aruntime&amp;to=web%3Aapp\"",
        ">Show only the path<",
        ">Clear highlight<",
    ]);
    let table = get(&fake, &format!("/graph/web?{query}&as=table")).await;
    table.assert_contains(&["<th scope=\"col\">On the path", "<b>runtime", "1 of 4 on the path"]);
    let begun = get(&Fake::new(|_| {}), "/graph/web?from=web%3Aruntime&at=web%3Aruntime").await;
    begun.assert_contains(&["The path starts at runtime. Select the box where it ends"]);
    assert!(!begun.body.contains("edge on-path"), "no path is highlighted before one is selected");
}

#[tokio::test]
async fn colors_have_text_labels() {
    let page = get(&Fake::new(|_| {}), "/graph/web?color=wave").await;
    page.assert_contains(&[
        "aria-label=\"Legend\"",
        "waves 1–2 · ",
        "wave 3 · active",
        "data-state=\"tone-3\"",
    ]);
    let page = get(&Fake::new(|_| {}), "/graph/web?color=owner").await;
    page.assert_contains(&["in web · active", "data-state=\"tone-1\""]);
}

/// A resource that is created inside a pending `Suspense` is created again on each render. Then the
/// server and the browser number resources differently, and hydration fails.
#[tokio::test]
async fn every_page_creates_its_resources_once() {
    let id = fake::noderole(4, "gateway");
    for (path, resources) in [
        ("/deployments".to_owned(), 2),
        ("/deployments/web".into(), 3),
        (format!("/deployments/web?noderole={id}"), 3),
        (format!("/noderoles/{id}"), 2),
        ("/reviews".into(), 2),
        ("/reviews/128".into(), 4),
        ("/reviews/128?tab=graph".into(), 4),
        ("/graph".into(), 2),
        ("/graphs".into(), 2),
        ("/graph/web".into(), 2),
        ("/runs".into(), 2),
        ("/runs/1006".into(), 2),
        ("/nodes".into(), 2),
        ("/blueprints?from=1&to=2".into(), 3),
        ("/catalog".into(), 2),
    ] {
        let page = get(&Fake::new(|_| {}), &path).await;
        assert_eq!(page.body.matches("__RESOLVED_RESOURCES[").count(), resources, "{path}");
    }
}

#[tokio::test]
async fn review_list_matches_its_address() {
    let fake = Fake::new(|world| world.long = true);
    let open = get(&fake, "/reviews").await;
    open.assert_contains(&[
        "Three more application nodes",
        "waiting for review",
        "href=\"/reviews?before=128\"",
        "Older",
    ]);
    open.assert_lacks(&["Gateways", "Newest"]);
    let link = "href=\"/reviews?involvement=for_me&amp;deployment=web&amp;filter=Gate\"";
    let settled =
        get(&fake, "/reviews?state=committed&deployment=web&filter=Gate&before=200").await;
    settled.assert_contains(&[
        "Gateways",
        "name=\"filter\"",
        "value=\"Gate\"",
        "value=\"committed\"",
        link,
    ]);
    settled.assert_contains(&[
        "href=\"/reviews?state=committed&amp;deployment=web&amp;filter=Gate\"",
        "Newest",
    ]);
    settled.assert_lacks(&["Three more application nodes"]);
    let drafts = get(&fake, "/reviews?state=drafts").await;
    drafts.assert_contains(&["href=\"/proposals/19\"", "href=\"/deployments/web\"", "ada, cy"]);
    for (state, word) in
        [(ReviewState::Invalid, "has errors"), (ReviewState::ThreadsOpen, "has open threads")]
    {
        let fake = Fake::new(|world| world.reviews[0].state = state);
        let page = get(&fake, "/reviews").await;
        page.assert_contains(&[word]);
        page.assert_lacks(&["waiting for review"]);
    }
}

#[tokio::test]
async fn badge_shows_incomplete_count() {
    let badge = async |count, more| {
        get(&Fake::new(|world| world.waiting = ReviewCount { count, more }), "/nodes").await
    };
    badge(100, true).await.assert_contains(&["100+", "Reviews that need your action: 100 or more"]);
    badge(0, true).await.assert_contains(&["Counting the reviews that need your action"]);
    badge(0, false).await.assert_lacks(&["need your action"]);
}

#[tokio::test]
async fn lists_have_empty_states() {
    let fake = Fake::new(|world| {
        world.reviews.clear();
        world.proposals.clear();
        world.runs.clear();
        world.nodes.clear();
    });
    get(&fake, "/reviews").await.assert_contains(&["No open reviews"]);
    get(&fake, "/reviews?state=any").await.assert_contains(&["No reviews yet"]);
    get(&fake, "/reviews?involvement=for_me").await.assert_contains(&["No reviews wait for you"]);
    get(&fake, "/reviews?involvement=mine&filter=x")
        .await
        .assert_contains(&["No review matches", "href=\"/reviews?involvement=mine\""]);
    get(&fake, "/reviews?before=3")
        .await
        .assert_contains(&["No more reviews", "href=\"/reviews\""]);
    get(&fake, "/reviews?state=drafts").await.assert_contains(&["No proposals to submit"]);
    get(&fake, "/runs").await.assert_contains(&["No runs"]);
    get(&fake, "/nodes").await.assert_contains(&["No nodes yet", "Add node"]);
    get(&fake, "/nodes?filter=x").await.assert_contains(&["No node matches", "name contains “x”"]);
}

#[tokio::test]
async fn run_is_readable_without_javascript() {
    let page = get(&Fake::new(|_| {}), "/runs/1006").await;
    page.assert_contains(&[
        "step 59 of 60",
        "/runs/1006/log",
        "Cancel",
        "running",
        "4242",
        "deployment role",
        "review ",
    ]);
    let failed = Fake::new(|world| {
        world.run.run.state = RunState::Failed;
        world.run.run.error = Some("exit 1 in 20-realm.sh".into());
        world.run.run.ended = Some(fake::NOW);
        world.log = String::new();
    });
    get(&failed, "/runs/1006").await.assert_contains(&[
        "The run wrote no output.",
        "exit 1 in 20-realm.sh",
        "failed",
    ]);
    let removal = Fake::new(|world| world.run.run.action = ActionName::remove());
    get(&removal, "/runs/1006").await.assert_contains(&["pill flat\">remove<"]);
}

#[tokio::test]
async fn forms_work_without_javascript() {
    let fake = Fake::new(|_| {});
    let answer =
        post(&fake, "/call/propose", &format!("deployment={}", fake::deployment_id(1))).await;
    assert_eq!(
        (answer.status, answer.location.as_deref()),
        (302, Some("http://localhost/from-here?"))
    );
    let submitted = post(&fake, "/call/submit", "proposal=7&version=3&title=More+nodes").await;
    assert_eq!((submitted.status, submitted.location.as_deref()), (302, Some("/reviews/128")));
    let refused = post(&fake, "/call/give-verdict", "review=128&kind=approve&reason=").await;
    assert_eq!(refused.status, 302, "the form redirects to its page, which shows the problem");
    let back = refused.location.expect("a redirect");
    assert!(back.starts_with("http://localhost/from-here?"), "{back}");
    let reported = fake.0.lock().expect("an unpoisoned lock").calls.clone();
    assert_eq!(reported, ["propose", "submit More nodes", "give_verdict approve "]);

    let query = back.split_once('?').map(|(_, query)| query.to_owned()).expect("a query");
    let page = get(&fake, &format!("/reviews/128?{query}")).await;
    page.assert_contains(&["Not allowed"]);
}

#[tokio::test]
async fn pages_comply_with_content_security_policy() {
    let fake = Fake::new(|world| world.board = fake::proposed_board());
    let id = fake::noderole(4, "gateway");
    for path in [
        "/deployments",
        &format!("/deployments/web?noderole={id}"),
        "/reviews/128",
        "/runs/1006",
        "/runs",
        "/nodes",
        "/sign-in",
    ] {
        let page = get(&fake, path).await;
        page.assert_lacks(&[" style=", " onclick=", "javascript:"]);
        for script in page.body.split("<script").skip(1) {
            let tag = script.split('>').next().unwrap_or_default();
            assert!(
                tag.contains("nonce=") || tag.contains("src="),
                "{path}: <script{tag}> has neither a nonce nor a source"
            );
        }
    }
}

#[tokio::test]
async fn theme_cookie_is_rendered_by_server() {
    let fake = Fake::new(|_| {});
    get_with(&fake, "/deployments", &[("cookie", "a=b; gantry_theme=dark")])
        .await
        .assert_contains(&["<html lang=\"en\" data-theme=\"dark\">"]);
    get_with(&fake, "/deployments", &[("cookie", "gantry_theme=x")])
        .await
        .assert_contains(&["<html lang=\"en\">"]);
}

fn replanned(after: Option<i64>) -> Replanned {
    Replanned {
        before: ReviewId(127),
        after: after.map(ReviewId),
        blueprint: BlueprintNumber(131),
        moved: vec!["web (blueprint 131)".into()],
        voided_verdicts: vec!["bo (approved)".into()],
        same_effect: true,
        effect_changes: Default::default(),
        more: 0,
        refused: Vec::new(),
    }
}

#[tokio::test]
async fn review_shows_effect_of_changed_base() {
    let reset_on_success = Fake::new(|world| world.review.replaces = Some(replanned(Some(128))));
    let page = get(&reset_on_success, "/reviews/128").await;
    page.assert_contains(&[
        "The base changed: <!>the effect is the same",
        "/reviews/127",
        "web (blueprint 131)",
        "bo (approved)",
    ]);
    page.assert_lacks(&["Differences from", "on blueprint <!>131"]);

    let other = Fake::new(|world| {
        let effect_changes = engine::blueprint::EffectDifference {
            after: world.review.difference.clone(),
            ..Default::default()
        };
        world.review.replaces =
            Some(Replanned { same_effect: false, effect_changes, ..replanned(Some(128)) });
    });
    get(&other, "/reviews/128").await.assert_contains(&[
        "the effect is different",
        "Differences from",
        "Current change",
        "None.",
    ]);

    let old = Fake::new(|world| {
        world.review.state = ReviewState::Replaced;
        world.review.replaced_by = Some(replanned(Some(129)));
    });
    get(&old, "/reviews/128").await.assert_contains(&[
        "planned again as",
        "/reviews/129",
        "with the same effect",
    ]);

    let back = Fake::new(|world| {
        let refused = vec![api::problem::Finding {
            at: "edit 1, by ada".into(),
            detail: "n1 belongs to web".into(),
        }];
        world.review.state = ReviewState::SentBack;
        world.review.replaced_by = Some(Replanned { refused, ..replanned(None) });
    });
    get(&back, "/reviews/128").await.assert_contains(&[
        "went back to its authors",
        "edit 1, by ada",
        "n1 belongs to web",
        "An author checks the change",
        "Open the board",
    ]);
}

#[tokio::test]
async fn board_shows_overruled_edits_and_returned_reviews() {
    let fake = Fake::new(|world| {
        world.board = fake::proposed_board();
        let proposal = world.board.proposal.as_mut().expect("a proposal");
        let clash = ClashView {
            earlier: 1,
            earlier_by: "ada".into(),
            later: 2,
            later_by: "bo".into(),
            setting: serde_json::json!({"kind": "policy"}),
            subject: "the policy".into(),
        };
        proposal.clashes = vec![clash.clone()];
        world.review.clashes = vec![clash];
        let refused = vec![api::problem::Finding {
            at: "edit 1, by ada".into(),
            detail: "n1 belongs to web".into(),
        }];
        proposal.sent_back = Some(Replanned { refused, ..replanned(None) });
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        "Edits of two authors clash",
        "Overridden by edit 2 of bo: the policy",
        "The later edit applies.",
    ]);
    get(&fake, "/reviews/128").await.assert_contains(&[
        "Edits of two authors clash",
        "the policy",
        "The later edit applies.",
    ]);
    page.assert_contains(&[
        "was closed because its base changed",
        "n1 belongs to web",
        "An author checks the change",
    ]);
}

#[tokio::test]
async fn deployment_proposal_redirects_to_board() {
    let fake = Fake::new(|world| {
        let mut problem = Problem::conflict(
            api::problem::DEPLOYMENT_PROPOSAL,
            "Proposal 9 belongs to deployment web. Open the board of that deployment.",
        );
        problem.errors =
            vec![api::problem::Finding { at: "deployment".into(), detail: "web".into() }];
        world.problem = Some(problem);
    });
    let page = get(&fake, "/proposals/9").await;
    assert_eq!(page.status, 409);
    page.assert_contains(&[
        "Proposal 9 belongs to deployment web.",
        "href=\"/deployments/web\"",
        "Open the board",
    ]);
}

#[tokio::test]
async fn node_proposal_has_its_own_page() {
    let fake = Fake::new(|_| {});
    get(&fake, "/nodes")
        .await
        .assert_contains(&["action=\"/call/propose-on-node\"", "Propose changes on web-1"]);
    let page = get(&fake, "/proposals/9").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "Proposal on web-6",
        "Unbind discovery",
        "bootstrap<!> (<!>system",
        "bind web-6 to discovery",
        "Submit for review",
        "action=\"/call/submit\"",
    ]);
    assert_eq!(get(&fake, "/proposals/x").await.status, 404);
    let opened =
        post(&fake, "/call/propose-on-node", &format!("node={}", uuid::Uuid::from_u128(6))).await;
    assert_eq!(opened.location.as_deref(), Some("/proposals/9"));
}

#[tokio::test]
async fn approval_is_signed_if_policy_requires_it() {
    let page = async |needed: bool, able: bool| {
        let fake = Fake::new(move |world| {
            world.review.may_review = Allowed::Yes;
            world.review.state = ReviewState::Open;
            (world.review.signature_needed, world.review.may_sign) = (needed, able);
        });
        get(&fake, "/reviews/128").await
    };
    let unsigned = page(false, false).await;
    unsigned.assert_contains(&["value=\"approve\""]);
    unsigned.assert_lacks(&["Approve and sign", "must be signed"]);
    page(false, true).await.assert_contains(&["value=\"approve\"", "Approve and sign"]);
    let signed = page(true, true).await;
    signed.assert_contains(&[
        "Approve and sign",
        "value=\"reject\"",
        "must be signed with a passkey, which requires JavaScript",
    ]);
    signed.assert_lacks(&["value=\"approve\""]);
    let unable = page(true, false).await;
    unable.assert_contains(&[
        "you have no confirmed passkey",
        "href=\"/settings/account#passkeys\"",
        "value=\"reject\"",
    ]);
    unable.assert_lacks(&["Approve and sign"]);
}

#[tokio::test]
async fn signed_verdict_names_its_passkey() {
    let fake = Fake::new(|world| world.review.verdicts[0].signed = Some("Laptop".into()));
    let page = get(&fake, "/reviews/128?tab=discussion").await;
    page.assert_contains(&["signed with ", "Laptop"]);
    assert_eq!(page.body.matches("signed with ").count(), 1);
}
