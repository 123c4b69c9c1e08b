//! A sample of each call, for the tests that compare calls with the OpenAPI document and with the
//! CLI's arguments.

use engine::cluster::NoderoleKey;
use engine::gate::VerdictKind;
use engine::ids::{
    BlueprintNumber, CommentId, DeploymentId, DeploymentName, NameError, NodeId, NoderoleId,
    PersonId, ProposalId, ReviewId, RoleName, RunId,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::people::{AccountKind, Grant};
use crate::views::graph::{GraphDirection, GraphOptions, Length, PathOptions};

/// A reason with characters that are special in a shell.
const REASON: &str = "ada's switch; $HOME & \"more\"";

/// One call of each kind, with values that need quotes.
///
/// # Errors
/// None in practice: the names are valid constants.
pub fn samples() -> Result<Vec<Call>, NameError> {
    let web = DeploymentName::parse("web")?;
    let role = RoleName::parse("proxy")?;
    let id = Uuid::from_u128;
    let (deployment, node, noderole) = (DeploymentId(id(1)), NodeId(id(2)), NoderoleId(id(3)));
    let (person, token, proposal) = (PersonId(id(4)), id(5), ProposalId(9));
    let key = NoderoleKey { role: role.clone(), instance: 0 };
    let (n1, n2) = ("n1.demo.gantry.internal".to_owned(), "n2.demo.gantry.internal".to_owned());
    let grants = [Grant { permission: "operator".into(), deployment: Some("web".into()) }];
    let (review, run, thread) = (ReviewId(12), RunId(7), CommentId(3));
    let local_node =
        NewNode { fqdn: n1.clone(), root: "/srv/my nodes/1".into(), ..NewNode::default() };
    let ssh_node = NewNode {
        macs: "00:25:90:aa:00:01 00:25:90:aa:00:02".into(),
        addresses: "10.0.3.7".into(),
        port: "22".into(),
        user: "root".into(),
        key: "deploy/ssh".into(),
        host_key: "ssh-ed25519 AAAA".into(),
        ..NewNode::default()
    };
    let change = json!(
        {
            "description": REASON, "macs": ["00:25:90:aa:00:01"], "connection": {
                "port": 2222,
                "key_version": 2
            }
        }
    );
    let hints = json!({ "hints": { "rack": "it's 7" } });
    let fields = |change: &Value| change.as_object().cloned().unwrap_or_default();
    let options = GraphOptions {
        roles: vec![role.clone(), RoleName::parse("app")?],
        nodes: vec!["n1".into()],
        focus: Some("it's \"role\":app".into()),
        direction: GraphDirection::Up,
        steps: Some(2),
        blueprint: Some(BlueprintNumber(3)),
        ..GraphOptions::default()
    };
    let longest = Some(PathOptions::Longest(Length::Time));
    let highlighted =
        GraphOptions { marked_path: longest, only_path: true, ..GraphOptions::default() };
    let mut all = vec![
        propose(&web),
        propose_on_node(node),
        edit(
            proposal,
            3,
            &[engine::plan::Edit::RemoveRole(engine::plan::edit::RemoveRole {
                deployment,
                role: role.clone(),
            })],
        ),
        bind((proposal, 3), (deployment, &web), &role, &[(node, n1.clone())]),
        bind((proposal, 3), (deployment, &web), &role, &[(node, n1.clone()), (NodeId(id(6)), n2)]),
        unbind((proposal, 3), &web, (node, &n1), &key, true),
        unbind(
            (proposal, 3),
            &web,
            (node, &n1),
            &NoderoleKey { instance: 1, ..key.clone() },
            false,
        ),
        preview(
            proposal,
            &[engine::plan::Edit::RemoveRole(engine::plan::edit::RemoveRole {
                deployment,
                role: role.clone(),
            })],
        ),
        undo(proposal, 3),
        redo(proposal, 3),
        discard(proposal, 3),
        submit(proposal, 3, REASON),
        hold(&web, true, REASON),
        hold(&web, false, REASON),
        set_priority(&web, -10, REASON),
        cluster_graph(&GraphOptions::default()),
        cluster_graph(&options),
        graph(&web, &GraphOptions::default()),
        graph(&web, &options),
        graph(&web, &highlighted),
        review_graph(review, &GraphOptions::default()),
        review_graph(review, &options),
        restore(&web, BlueprintNumber(3), true),
        restore(&web, BlueprintNumber(3), false),
        execution(true, REASON),
        execution(false, REASON),
        show_review(review),
        view_review(review),
        mark_viewed(review, &[format!("node/{node}"), format!("deployment/{deployment}")]),
        viewed_changes(review),
        review_difference(review),
        review_since(review),
        review_impact(review),
        review_report(review),
        reviewed_noderole(review, node, &key),
        discussion(review),
        show_deployment(&web),
        role_noderoles(&web, &role),
        deployment_progress(&web),
        export(&web),
        show_proposal(proposal),
        proposal_report(proposal),
        proposed_noderole(proposal, node, &NoderoleKey { instance: 1, ..key.clone() }),
        show_blueprint(BlueprintNumber(7)),
        compare_blueprints("3", "7"),
        show_run(run),
        search_log(run, "it's 7"),
        show_noderole(noderole),
        show_worker(id(7)),
        show_person(person),
        jigs(),
        verdict(review, VerdictKind::Approve, ""),
        verdict(review, VerdictKind::RequestChanges, REASON),
        verdict(review, VerdictKind::Reject, "-no"),
        commit(review, None, false),
        commit(review, Some("web"), true),
        comment(review, "", REASON),
        comment(review, "policy#/approvals", REASON),
        reply(thread, REASON),
        reply(thread, "-1"),
        resolve(thread, true),
        resolve(thread, false),
        cancel_run(run),
        drain(id(7), true, REASON),
        drain(id(7), false, REASON),
        run_log(run),
        show_role(&role, ""),
        show_role(&role, "demo"),
        script(engine::Hash::of_bytes(b"a script")),
        crate::audit::verify_call(),
        crate::audit::export_call(),
        role_graph("", ""),
        role_graph("demo", ""),
        role_graph("", "proxy"),
        role_graph("demo", "proxy"),
        retry(noderole, REASON),
        blueprint_progress(BlueprintNumber(7)),
        retry_failed(BlueprintNumber(7), REASON, false),
        retry_failed(BlueprintNumber(7), REASON, true),
        import(),
        policy(),
        crate::overview::show_call(),
        crate::background_tasks::list_call(),
        add_node(&local_node),
        add_node(&ssh_node),
        add_nodes("n1.demo.gantry.internal \"root=/srv/it's $HOME\"\n# no more\n"),
        show_node(&n1),
        change_node(node, 4, fields(&change)),
        change_node(node, 4, fields(&hints)),
        set_maintenance(node, 4, true, REASON),
        set_maintenance(node, 4, false, REASON),
        delete_node(node),
        create_node_token(node, "agent", 90),
        revoke_node_token(node, token),
        add_person("cy", AccountKind::Human, &grants),
        add_person("ci", AccountKind::Service, &[]),
        change_grants(person, 3, &grants),
        change_grants(person, 3, &[]),
        disable_person(person),
        enable_person(person),
        confirm_person(person),
        dismiss_notices(),
        show_account(),
        revoke_passkey(engine::ids::PasskeyId(token)),
        create_link(person),
        set_password(),
        remove_totp(),
        reset_factor(person),
        end_session(token),
        end_other_sessions(),
        create_token("ci", &["viewer", "operator"], Some("web"), Some(30), Some(person)),
        create_token("mine", &["viewer"], None, None, None),
        revoke_token(token),
        search("it's 7"),
        search("-7"),
        noderole_data(noderole, "", false),
        noderole_data(noderole, "it's 7", true),
        run_data(run, ""),
        run_data(run, "-7"),
    ];
    for which in List::ALL {
        let call_with = |filter: &dyn Fn(&str) -> Option<String>| match which {
            List::HealthChecks | List::Results | List::Noderoles => list_of(which, &n1, filter),
            _ => list(which, filter),
        };
        all.push(call_with(&|_| None));
        all.push(call_with(&|parameter| Some(sample_value(which, parameter).to_owned())));
        let is_time = |parameter: &str| matches!(parameter, "since" | "until");
        all.push(call_with(&|parameter| {
            (!is_time(parameter)).then(|| sample_value(which, parameter).to_owned())
        }));
    }
    Ok(all)
}

/// A valid value for a filter of a list.
fn sample_value(list: List, parameter: &str) -> &'static str {
    match (list, parameter) {
        (_, "alive" | "draining" | "mine" | "drafts" | "disabled" | "reached") => "true",
        (_, "since") => "2025-10-09T08:53:20.000Z",
        (_, "until") => "2026-02-02T02:40:00.000Z",
        (_, "source") => "database",
        (_, "kind") => "human",
        (_, "involvement") => "mine",
        (List::Reviews, "state") => "open",
        (_, "phase") => "confirmed",
        (List::Deployments, "state") => "on_hold",
        (List::Nodes, "state") => "dead",
        (List::Noderoles, "state") => "error",
        (List::Runs, "state") | (List::Results, "outcome") => "failed",
        _ => "a'b c",
    }
}
