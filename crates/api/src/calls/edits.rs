//! Proposals: opened, edited, submitted, given up.

use engine::ids::{DeploymentId, DeploymentName, NodeId, ProposalId, RoleName};
use engine::plan::Edit;
use serde_json::json;

use super::Call;

/// Opens a proposal on a deployment, or finds the one that is open.
pub fn propose(deployment: &DeploymentName) -> Call {
    let name = deployment.as_str();
    Call::post(format!("/deployments/{name}/proposals")).words(["deployment", "propose", name])
}

/// Opens a proposal on one node alone.
pub fn propose_on_node(node: NodeId) -> Call {
    Call::post(format!("/nodes/{node}/proposals")).words(["node", "propose"]).word(node.to_string())
}

/// Puts edits into a proposal, all or none.
pub fn edit(proposal: ProposalId, version: i32, edits: &[Edit]) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/edits"))
        .json(json!({ "version": version, "edits": edits }));
    let call = call.words(["proposal", "edit"]).word(proposal.to_string()).option("file", "-");
    let call = call.version(version);
    Call { input: Some(json!(edits).to_string()), ..call }
}

/// The same on a deployment's board, or on a node alone: what has a command of its own is said by that.
pub fn put(
    (proposal, version): (ProposalId, i32),
    board: Option<&DeploymentName>,
    edits: &[Edit],
) -> Call {
    match (board, edits) {
        (Some(deployment), [Edit::Unbind { node, noderole, with_dependents }]) => unbind(
            (proposal, version),
            deployment,
            (*node, &node.to_string()),
            noderole,
            *with_dependents,
        ),
        _ => edit(proposal, version, edits),
    }
}

/// Binds a role to nodes: by their names, and by their ids as this proposal's version has them.
pub fn bind(
    (proposal, version): (ProposalId, i32),
    (deployment, name): (DeploymentId, &DeploymentName),
    role: &RoleName,
    nodes: &[(NodeId, String)],
) -> Call {
    let edit_of = match nodes {
        [(node, _)] => Edit::Bind { deployment, node: *node, role: role.clone() },
        many => Edit::BindNodes {
            deployment,
            role: role.clone(),
            nodes: many.iter().map(|(node, _)| *node).collect(),
        },
    };
    let call = Call { input: None, ..edit(proposal, version, &[edit_of]) }.words(["bind"]);
    let call = nodes.iter().fold(call, |call, (_, fqdn)| call.word(fqdn));
    call.word(role.as_str()).option("in", name.as_str())
}

/// Takes a noderole off a node, by the node's name or its id.
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
        &[Edit::Unbind { node, noderole: noderole.clone(), with_dependents }],
    );
    Call { input: None, ..edit }
        .words(["unbind", name])
        .word(noderole.to_string())
        .option("in", deployment.as_str())
        .switch("with-dependents", with_dependents)
}

fn on_version(proposal: ProposalId, version: i32, what: &str) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/{what}"))
        .json(json!({ "version": version }))
        .words(["proposal", what])
        .word(proposal.to_string());
    call.version(version)
}

/// Takes the last edit back.
pub fn undo(proposal: ProposalId, version: i32) -> Call {
    on_version(proposal, version, "undo")
}

/// Brings the last undone edit back.
pub fn redo(proposal: ProposalId, version: i32) -> Call {
    on_version(proposal, version, "redo")
}

/// Closes a proposal without effect.
pub fn discard(proposal: ProposalId, version: i32) -> Call {
    on_version(proposal, version, "discard")
}

/// Asks for a review.
pub fn submit(proposal: ProposalId, version: i32, title: &str) -> Call {
    let call = Call::post(format!("/proposals/{proposal}/submit"))
        .json(json!({ "version": version, "title": title }))
        .words(["proposal", "submit"])
        .word(proposal.to_string())
        .option("title", title);
    call.version(version)
}
