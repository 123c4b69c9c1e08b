//! The forms for edits, as the server renders them.

use api::Allowed;
use api::views::board::HoldView;
use engine::cluster::NoderoleKey;
use leptos::prelude::*;

use super::fake::{self, Fake};
use super::serve::{get, post};
use crate::pages::proposals::{About, EditContext, Named, NoderoleOnNode};

#[tokio::test]
async fn proposal_offers_every_edit() {
    let board =
        get(&Fake::new(|world| world.board = fake::proposed_board()), "/deployments/web").await;
    board.assert_contains(&[
        "Add role",
        "More…",
        "Data of app",
        "Run app again",
        "Remove role cache",
        "aria-haspopup=\"dialog\"",
    ]);
    let committed = get(&Fake::new(|_| {}), "/deployments/web").await;
    committed.assert_contains(&["Put on hold…", "aria-haspopup=\"dialog\""]);
    committed.assert_lacks(&["More…", "Remove role"]);
}

#[tokio::test]
async fn hold_reason_is_shown_in_deployment_and_descendants() {
    let hold = |by: &str| HoldView {
        deployment: fake::deployment(by),
        by: "cy".into(),
        reason: "The switch is being replaced".into(),
    };
    let own = Fake::new(|world| {
        world.board.on_hold_by = Some("cy".into());
        world.board.hold = Some(hold("web"));
    });
    get(&own, "/deployments/web").await.assert_contains(&[
        "ON HOLD",
        "The switch is being replaced",
        "Release hold…",
        "value=\"false\"",
    ]);
    let above = Fake::new(|world| world.board.hold = Some(hold("system")));
    let page = get(&above, "/deployments/web").await;
    page.assert_contains(&[
        "ON HOLD",
        "href=\"/deployments/system\"",
        "above this deployment was",
        "Put on hold…",
    ]);
    page.assert_lacks(&["Release hold…"]);
}

#[tokio::test]
async fn deployment_is_put_on_hold_without_javascript() {
    let fake = Fake::new(|_| {});
    let form = format!("deployment={}&on_hold=true&reason=Repair", fake::deployment_id(1));
    assert_eq!(post(&fake, "/call/hold", &form).await.status, 302);
    assert_eq!(fake.0.lock().expect("an unpoisoned lock").calls, ["hold true Repair"]);
}

#[tokio::test]
async fn priority_is_set_without_javascript() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        "Set priority…",
        "The current priority is 0, the default.",
        "action=\"/call/set-priority\"",
        "min=\"-100\" max=\"100\"",
    ]);
    page.assert_lacks(&["priority <"]);
    let form = format!("deployment={}&priority=-20&reason=Tests", fake::deployment_id(1));
    assert_eq!(post(&fake, "/call/set-priority", &form).await.status, 302);
    assert_eq!(fake.0.lock().expect("an unpoisoned lock").calls, ["priority -20 Tests"]);
    let low = get(&Fake::new(|world| world.board.priority = -20), "/deployments/web").await;
    low.assert_contains(&[
        "priority <!>-20",
        "The current priority is -20. The default is 0.",
        "value=\"-20\"",
    ]);
    // Readers without the operator permission see the priority and cannot change it.
    let viewer = Fake::new(|world| {
        world.board.priority = 7;
        world.board.may_propose = Allowed::no(
            "Permission missing: vi does not have the permission operator. An admin can grant it.",
        );
        world.permissions = vec!["viewer".into()];
    });
    let page = get(&viewer, "/deployments/web").await;
    page.assert_contains(&["priority <!>7"]);
    page.assert_lacks(&["Set priority…"]);
}

#[tokio::test]
async fn node_pages_offer_move_and_own_proposal() {
    let nodes = get(&Fake::new(|_| {}), "/nodes").await;
    nodes.assert_contains(&[
        "Move web-1.rack1.example.com to another deployment",
        "Propose changes on web-1.rack1.example.com only",
    ]);
    let panel =
        get(&Fake::new(|_| {}), &format!("/noderoles/{}", fake::noderole(4, "gateway"))).await;
    // The node's name is next to the button, and the tooltip contains it in full.
    panel.assert_contains(&[
        ">Propose changes on this node only<",
        "title=\"Propose changes on web-4.rack1.example.com only\"",
        "action=\"/call/propose-on-node\"",
    ]);
    panel.assert_lacks(&["aria-label=\"Propose changes on"]);
    let fake = Fake::new(|_| {});
    let moved =
        post(&fake, "/call/propose-move", "deployment=+web+&node=web-6.rack1.example.com").await;
    assert_eq!(
        (moved.status, moved.location.as_deref()),
        (302, Some("/deployments/web?bring=web-6.rack1.example.com"))
    );
    assert!(fake.0.lock().expect("an unpoisoned lock").calls.contains(&"propose web".to_owned()));
    let sent = get(&Fake::new(|_| {}), "/deployments/web?bring=web-6.rack1.example.com").await;
    sent.assert_contains(&["web-6.rack1.example.com", "is selected for a move to this deployment"]);
}

#[tokio::test]
async fn node_proposal_offers_every_edit() {
    let page = get(&Fake::new(|_| {}), "/proposals/9").await;
    page.assert_contains(&[
        "Edit data dns-client",
        "Run again dns-client",
        "Unbind dns-client",
        "Edit data discovery",
        "Expunge node…",
    ]);
    page.assert_contains(&["Undo “bind web-6 to discovery”"]);
    // A role that is only proposed runs anyway.
    page.assert_lacks(&["Run again discovery"]);
}

#[tokio::test]
async fn viewer_reads_proposal_without_editor() {
    let viewer = Fake::new(|world| {
        world.board = fake::proposed_board();
        world.board.may_propose = Allowed::no(
            "Permission missing: vi does not have the permission operator. An admin can grant it.",
        );
        world.permissions = vec!["viewer".into()];
    });
    let board = get(&viewer, "/deployments/web").await;
    board.assert_contains(&[
        "PROPOSED",
        "Open proposal",
        "Permission missing: vi does not have the permission operator. An admin can grant it.",
    ]);
    board.assert_lacks(&[
        "draggable",
        "Review changes",
        "Undo “",
        "More…",
        "Data of app",
        "Bind nodes to app",
        "Put on hold…",
        "or select and",
    ]);
    let catalog = get(&viewer, "/catalog").await;
    catalog.assert_contains(&[
        "To import a barclamp, you need the permission",
        "An admin can grant it",
    ]);
    catalog.assert_lacks(&["Import a barclamp", "import-text"]);
    get(&Fake::new(|_| {}), "/catalog")
        .await
        .assert_contains(&["Import a barclamp", "import-text"]);
}

#[tokio::test]
async fn viewer_gets_no_node_commands() {
    let viewer = Fake::new(|world| {
        world.nodes[0].record_only = true;
        world.permissions = vec!["viewer".into()];
    });
    let page = get(&viewer, "/nodes").await;
    page.assert_contains(&[
        "web-1.rack1.example.com",
        "To change nodes, you need the permission",
        "An admin can grant it",
    ]);
    page.assert_lacks(&[
        "Add node",
        "Move…",
        "Delete…",
        "/call/add-node",
        "Paste nodes",
        "/call/delete-node",
        "/call/propose-on-node",
        ">Actions<",
        "data-label=\"Actions\"",
    ]);
    let operator = get(&Fake::new(|world| world.nodes[0].record_only = true), "/nodes").await;
    operator.assert_contains(&[
        "Add node",
        "Paste nodes",
        "Move…",
        "Delete…",
        "\"/call/add-node\"",
        "\"/call/add-nodes\"",
        "/call/delete-node",
        ">Actions<",
    ]);
    operator.assert_lacks(&["To change nodes, you need the permission"]);
}

#[tokio::test]
async fn only_records_outside_targets_can_be_deleted() {
    let fake = Fake::new(|world| world.nodes[0].record_only = true);
    let page = get(&fake, "/nodes").await;
    page.assert_contains(&["=\"Delete… ", "action=\"/call/delete-node\""]);
    assert_eq!(
        page.body.matches("=\"Delete… ").count(),
        2,
        "the button appears once, with a label and a title"
    );
    assert_eq!(
        post(&fake, "/call/delete-node", &format!("node={}", fake::node(1))).await.status,
        302
    );
    assert_eq!(
        fake.0.lock().expect("an unpoisoned lock").calls,
        [format!("take out {}", fake::node(1))]
    );
}

#[tokio::test]
async fn proposed_removal_is_marked_on_noderole() {
    let fake = Fake::new(|world| {
        world.board = fake::proposed_board();
        world.board.groups[0].roles[2].noderoles[0].removed = true;
    });
    let page = get(&fake, "/deployments/web").await;
    page.assert_contains(&[
        "class=\"chip changed removed\"",
        "<!>removed by this proposal, stays on the node<",
        ": ACTIVE, removed by this proposal, stays on the node\nchanged by this proposal\"",
    ]);
    let runs = Fake::new(|world| {
        world.board = fake::proposed_board();
        let noderole = &mut world.board.groups[0].roles[2].noderoles[0];
        (noderole.removed, noderole.runs_remove) = (true, true);
    });
    let page = get(&runs, "/deployments/web").await;
    page.assert_contains(&[": ACTIVE, removed by this proposal, runs remove\n"]);
    page.assert_lacks(&["stays on the node"]);
    get(&Fake::new(|world| world.board = fake::proposed_board()), "/deployments/web")
        .await
        .assert_lacks(&["removed by this proposal"]);
}

#[test]
fn unbind_dialog_names_effect_on_node() {
    let dialog = |runs_remove| {
        let noderole = NoderoleOnNode {
            on: Named { node: fake::node(1), short: "web-1".into() },
            noderole: NoderoleKey::first(fake::role("app")),
            runs_remove,
        };
        Owner::new().with(|| {
            let pen = EditContext {
                proposal: Signal::stored(None),
                board: Signal::stored(None),
                busy: Signal::stored(false),
                put: Callback::new(|_| ()),
            };
            About::Unbind(noderole).form(pen, Callback::new(|()| ())).to_html()
        })
    };
    let (stays, runs) =
        ("Its files and services stay on the node.", "its remove action runs on the node.");
    let (without, with) = (dialog(false), dialog(true));
    assert!(without.contains(stays) && !without.contains(runs), "{without}");
    assert!(with.contains(runs) && !with.contains(stays), "{with}");
}

#[tokio::test]
async fn refused_form_reopens_filled_in_without_javascript() {
    let fake = Fake::new(|_| {});
    let refused = post(&fake, "/call/add-node", "fqdn=n9&address=10.0.3.7&port=soon").await;
    let location = refused.location.expect("a redirect");
    let problem = location.split_once('?').expect("the problem").1;
    let page = get(
        &fake,
        &format!("/nodes?typed.fqdn=n9&typed.address=10.0.3.7&typed.port=soon&{problem}"),
    )
    .await;
    assert_eq!(page.status, 200);
    let dialog = page.body.split_once("<dialog id=\"add-node\"").expect("the dialog").1;
    let (tag, rest) = dialog.split_once('>').expect("the end of the element");
    assert!(tag.contains(" open"), "{tag}");
    let form = rest.split_once("</dialog>").expect("the end of the element").0;
    for text in [
        "is not a whole number or is out of range",
        "value=\"n9\"",
        "value=\"10.0.3.7\"",
        "value=\"soon\"",
    ] {
        assert!(form.contains(text), "{text} is missing in {form}");
    }
    let button = form.split("<button").last().expect("a button");
    assert!(!button.contains("disabled"), "a refilled form can be sent again: {button}");

    // Neither another problem nor parameters in the address open the form.
    for path in [
        "/nodes",
        "/nodes?typed.fqdn=n9",
        "/nodes?typed.fqdn=n9&__path=%2Fcall%2Fretry&__err=e30%3D",
    ] {
        let page = get(&fake, path).await;
        assert_eq!(page.status, 200, "{path}");
        let dialog = page.body.split_once("<dialog id=\"add-node\"").expect("the dialog").1;
        assert!(!dialog.split('>').next().is_some_and(|tag| tag.contains(" open")), "{path}");
        page.assert_lacks(&["value=\"n9\""]);
    }
}

#[tokio::test]
async fn refused_text_lists_every_invalid_line() {
    let fake = Fake::new(|_| {});
    let refused = post(&fake, "/call/add-nodes", "text=n1.a.example%0An2.a.example").await;
    assert_eq!(
        fake.0.lock().expect("an unpoisoned lock").calls,
        ["add many \"n1.a.example\\nn2.a.example\""]
    );
    let location = refused.location.expect("a redirect");
    let problem = location.split_once('?').expect("the problem").1;
    let page =
        get(&fake, &format!("/nodes?typed.text=n1.a.example%0An2.a.example&{problem}")).await;
    let dialog = page.body.split_once("<dialog id=\"add-nodes\"").expect("the dialog").1;
    let (tag, rest) = dialog.split_once('>').expect("the end of the element");
    assert!(tag.contains(" open"), "{tag}");
    let form = rest.split_once("</dialog>").expect("the end of the element").0;
    for text in
        ["line 1: ", "line 2: ", "Node n2.a.example already exists.", "n1.a.example\nn2.a.example"]
    {
        assert!(form.contains(text), "{text} is missing in {form}");
    }
    let other = page.body.split_once("<dialog id=\"add-node\"").expect("the dialog for one node").1;
    assert!(
        !other.split('>').next().is_some_and(|tag| tag.contains(" open")),
        "the form for a single node stays closed"
    );
}

#[tokio::test]
async fn refused_priority_form_keeps_its_reason() {
    let fake = Fake::new(|_| {});
    let form = format!("deployment={}&priority=much&reason=Because", fake::deployment_id(1));
    let location = post(&fake, "/call/set-priority", &form).await.location.expect("a redirect");
    let problem = location.split_once('?').expect("the problem").1;
    let page =
        get(&fake, &format!("/deployments/web?typed.priority=7&typed.reason=Because&{problem}"))
            .await;
    let dialog = page.body.split_once("<dialog id=\"priority\"").expect("the dialog").1;
    assert!(dialog.split('>').next().is_some_and(|tag| tag.contains(" open")), "{dialog}");
    page.assert_contains(&["value=\"Because\"", "value=\"7\""]);
}

#[tokio::test]
async fn input_from_address_is_escaped() {
    let fake = Fake::new(|_| {});
    // A form with a missing field is refused before the function runs.
    let location = post(&fake, "/call/import", "path=demo.yml").await.location.expect("a redirect");
    let problem = location.split_once('?').expect("the problem").1;
    let typed = "typed.path=%22%3E%3Cb%20id%3Dodd%3E&typed.text=%3C%2Ftextarea%3E%3Cb%20id%3Dodd%3E%26amp%3B";
    let page = get(&fake, &format!("/catalog?{typed}&{problem}")).await;
    page.assert_contains(&["&lt;/textarea>&lt;b id=odd>&amp;amp;"]);
    page.assert_lacks(&["<b id=odd>"]);
}
