//! Calls for proposals: open, edit, submit, discard.

use engine::ids::{DeploymentId, DeploymentName, NodeId, ProposalId, RoleName};
use engine::plan::{Edit, edit};
use serde_json::json;

use super::Call;

/// Opens a proposal on a deployment, or returns the open one.
pub fn propose(deployment: &DeploymentName) -> Call {
    let name = deployment.as_str();
    Call::post(format!("/deployments/{name}/proposals")).command(["deployment", "propose", name])
}

/// Opens a proposal on a single node.
pub fn propose_on_node(node: NodeId) -> Call {
    Call::post(format!("/nodes/{node}/proposals"))
        .command(["node", "propose"])
        .argument(node.to_string())
}

/// Adds edits to a proposal, all or none.
pub fn edit(proposal: ProposalId, version: i32, edits: &[Edit]) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/edits"))
        .json(json!({ "version": version, "edits": edits }));
    let call =
        call.command(["proposal", "edit"]).argument(proposal.to_string()).option("file", "-");
    let call = call.version(version);
    Call { input: Some(json!(edits).to_string()), ..call }
}

/// Adds edits to a proposal, with the edit's own command if it has one. `board` is the deployment
/// of the proposal; a proposal on a node has none.
pub fn put(
    (proposal, version): (ProposalId, i32),
    board: Option<&DeploymentName>,
    edits: &[Edit],
) -> Call {
    match (board, edits) {
        (Some(deployment), [Edit::Unbind(edit::Unbind { node, noderole, with_dependents })]) => {
            unbind(
                (proposal, version),
                deployment,
                (*node, &node.to_string()),
                noderole,
                *with_dependents,
            )
        }
        _ => edit(proposal, version, edits),
    }
}

/// Binds a role to nodes. The command has their names, the request their ids.
pub fn bind(
    (proposal, version): (ProposalId, i32),
    (deployment, name): (DeploymentId, &DeploymentName),
    role: &RoleName,
    nodes: &[(NodeId, String)],
) -> Call {
    let edit_of = match nodes {
        [(node, _)] => Edit::Bind(edit::Bind { deployment, node: *node, role: role.clone() }),
        many => Edit::BindNodes(edit::BindNodes {
            deployment,
            role: role.clone(),
            nodes: many.iter().map(|(node, _)| *node).collect(),
        }),
    };
    let call = Call { input: None, ..edit(proposal, version, &[edit_of]) }.command(["bind"]);
    let call = nodes.iter().fold(call, |call, (_, fqdn)| call.argument(fqdn));
    call.argument(role.as_str()).option("in", name.as_str())
}

/// Unbinds a noderole. The command has the node's name or id.
pub fn unbind(
    (proposal, version): (ProposalId, i32),
    deployment: &DeploymentName,
    (node, name): (NodeId, &str),
    noderole: &engine::cluster::NoderoleKey,
    with_dependents: bool,
) -> Call {
    let edit = edit(
        proposal,
        version,
        &[Edit::Unbind(edit::Unbind { node, noderole: noderole.clone(), with_dependents })],
    );
    Call { input: None, ..edit }
        .command(["unbind", name])
        .argument(noderole.to_string())
        .option("in", deployment.as_str())
        .switch("with-dependents", with_dependents)
}

/// Shows the effect of edits that are not in the proposal.
pub fn preview(proposal: ProposalId, edits: &[Edit]) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/preview"))
        .json(json!({ "edits": edits }))
        .command(["proposal", "preview"])
        .argument(proposal.to_string())
        .option("file", "-");
    Call { input: Some(json!(edits).to_string()), ..call }
}

fn on_version(proposal: ProposalId, version: i32, verb: &str) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/{verb}"))
        .json(json!({ "version": version }))
        .command(["proposal", verb])
        .argument(proposal.to_string());
    call.version(version)
}

/// Undoes the edits of the last request.
pub fn undo(proposal: ProposalId, version: i32) -> Call {
    on_version(proposal, version, "undo")
}

/// Redoes the edits that were undone last.
pub fn redo(proposal: ProposalId, version: i32) -> Call {
    on_version(proposal, version, "redo")
}

/// Discards a proposal.
pub fn discard(proposal: ProposalId, version: i32) -> Call {
    on_version(proposal, version, "discard")
}

/// Submits a proposal for review.
pub fn submit(proposal: ProposalId, version: i32, title: &str) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/submit"))
        .json(json!({ "version": version, "title": title }))
        .command(["proposal", "submit"])
        .argument(proposal.to_string())
        .option("title", title);
    call.version(version)
}
