//! Server functions of the list of nodes.
#![expect(clippy::too_many_arguments, reason = "each field of a form is one argument")]

use api::nodes::NodePage;
use api::nodes::NodesQuery;
#[cfg(feature = "ssr")]
use api::nodes::{NodeRequest, SshRequest};
use engine::ids::{NodeId, ProposalId};
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::fields::{number, several};
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};

#[server(name = ReadNodes, prefix = "/call", endpoint = "nodes", input = AsJson, output = AsJson)]
pub async fn nodes(query: NodesQuery) -> ServerResult<NodePage> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_nodes(&actor, &query).await).await
}

#[server(name = AddNode, prefix = "/call", endpoint = "add-node", output = AsJson)]
pub async fn add_node(
    #[server(default)] fqdn: String,
    #[server(default)] mac: String,
    #[server(default)] serial: String,
    #[server(default)] root: String,
    #[server(default)] address: String,
    #[server(default)] port: String,
    #[server(default)] user: String,
    #[server(default)] key: String,
    #[server(default)] host_key: String,
) -> ServerResult<NodeId> {
    // If only some SSH fields have a value, this is still an SSH node. The error then names the
    // missing address.
    let is_ssh =
        [&address, &port, &user, &key, &host_key].iter().any(|text| !text.trim().is_empty());
    let port = if port.trim().is_empty() { 22 } else { number("port", &port).map_err(refuse)? };
    let user = Some(user.trim()).filter(|user| !user.is_empty()).unwrap_or("root").to_owned();
    let ssh = SshRequest {
        addresses: several(&address),
        port,
        user,
        key: key.trim().to_owned(),
        key_version: 1,
        host_key,
    };
    let body = NodeRequest {
        macs: several(&mac),
        serial,
        ssh: is_ssh.then_some(ssh),
        ..NodeRequest::named(fqdn, root)
    };
    let (request, actor) = signed_in()?;
    answer(request.control.add_node(&actor, body).await).await
}

/// Adds nodes from a text with one node per line: all or none. Returns their number.
#[server(name = AddNodes, prefix = "/call", endpoint = "add-nodes", output = AsJson)]
pub async fn add_nodes(#[server(default)] text: String) -> ServerResult<usize> {
    let (request, actor) = signed_in()?;
    Ok(answer(request.control.add_nodes(&actor, &text).await).await?.nodes.len())
}

/// Opens a proposal on the deployment that receives a node, or joins the open one. Redirects to its
/// board with the move dialog.
#[server(name = ProposeMove, prefix = "/call", endpoint = "propose-move", output = AsJson)]
pub async fn propose_move(deployment: String, node: String) -> ServerResult<ProposalId> {
    let deployment = deployment.trim();
    let (request, actor) = signed_in()?;
    let proposal = answer(request.control.propose_by_name(&actor, deployment).await).await?;
    leptos_axum::redirect(&crate::addresses::move_node_dialog(deployment, &node));
    Ok(proposal)
}

/// Deletes the record of a node that no target contains.
#[server(name = DeleteNode, prefix = "/call", endpoint = "delete-node", output = AsJson)]
pub async fn delete_node(node: NodeId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.delete_node(&actor, node, None).await).await
}
