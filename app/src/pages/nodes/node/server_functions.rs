//! Server functions of the page of a node.
#![expect(clippy::too_many_arguments, reason = "each field of a form is one argument")]

use api::nodes::{
    CreatedNodeToken, HealthCheckPage, HealthChecksQuery, NodeNoderolePage, NodeNoderolesQuery,
    NodeView,
};
#[cfg(feature = "ssr")]
use api::nodes::{NodeChange, NodeConnectionChange};
use api::values::{ResultPage, ResultsQuery};
use engine::ids::{NodeId, ProposalId};
use leptos::prelude::*;
use uuid::Uuid;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::fields::{number, several};
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};
#[cfg(feature = "ssr")]
use crate::respond;

#[server(name = ReadNode, prefix = "/call", endpoint = "node", input = AsJson, output = AsJson)]
pub async fn node(name: String) -> ServerResult<NodeView> {
    let (request, actor) = signed_in()?;
    answer(request.control.node(&actor, &name).await).await
}

/// A page of the results of a node's health checks.
#[server(
    name = ReadNodeHealthChecks,
    prefix = "/call",
    endpoint = "node-health-checks",
    input = AsJson,
    output = AsJson
)]
pub async fn node_health_checks(
    name: String,
    query: HealthChecksQuery,
) -> ServerResult<HealthCheckPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_health_checks(&actor, &name, &query).await).await
}

/// A page of the results that attempts returned on a node.
#[server(
    name = ReadNodeResults,
    prefix = "/call",
    endpoint = "node-results",
    input = AsJson,
    output = AsJson
)]
pub async fn node_results(name: String, query: ResultsQuery) -> ServerResult<ResultPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_results(&actor, &name, &query).await).await
}

/// A page of a node's noderoles.
#[server(
    name = ReadNodeNoderoles,
    prefix = "/call",
    endpoint = "node-noderoles",
    input = AsJson,
    output = AsJson
)]
pub async fn node_noderoles(
    name: String,
    query: NodeNoderolesQuery,
) -> ServerResult<NodeNoderolePage> {
    let (request, actor) = signed_in()?;
    answer(request.control.node_noderoles(&actor, &name, &query).await).await
}

/// Changes a node's record. Hints and connection settings that the form does not contain stay
/// unchanged.
#[server(name = ChangeNode, prefix = "/call", endpoint = "change-node", output = AsJson)]
pub async fn change_node(
    node: NodeId,
    version: i32,
    #[server(default)] description: String,
    #[server(default)] mac: String,
    #[server(default)] serial: String,
    hints: Option<String>,
    root: Option<String>,
    address: Option<String>,
    port: Option<String>,
    user: Option<String>,
    key: Option<String>,
    key_version: Option<String>,
    host_key: Option<String>,
) -> ServerResult<i32> {
    let connection =
        parse_connection(root, address, port, user, key, key_version, host_key).map_err(refuse)?;
    let hints = hints.as_deref().map(parse_hints).transpose().map_err(refuse)?;
    // The form always contains these three fields. Decoding cannot tell an empty field from a
    // missing one.
    let (description, macs, serial) = (Some(description), Some(several(&mac)), Some(serial));
    let change = NodeChange {
        description,
        macs,
        serial,
        hints,
        connection: Some(connection).filter(|connection| !connection.is_empty()),
    };
    let (request, actor) = signed_in()?;
    answer(request.control.change_node(&actor, node, version, change).await).await
}

/// Proposes another connection or other hints for a node in a blueprint. Adds the differences to
/// the proposal on the node and redirects there.
#[server(name = ProposeChange, prefix = "/call", endpoint = "propose-change", output = AsJson)]
pub async fn propose_change(
    node: NodeId,
    hints: Option<String>,
    root: Option<String>,
    address: Option<String>,
    port: Option<String>,
    user: Option<String>,
    key: Option<String>,
    key_version: Option<String>,
    host_key: Option<String>,
) -> ServerResult<ProposalId> {
    let connection =
        parse_connection(root, address, port, user, key, key_version, host_key).map_err(refuse)?;
    let hints = hints.as_deref().map(parse_hints).transpose().map_err(refuse)?;
    let (request, actor) = signed_in()?;
    let now = answer(request.control.node(&actor, &node.to_string()).await).await?;
    let change =
        now.differing(NodeChange { hints, connection: Some(connection), ..NodeChange::default() });
    let edits = change.edits(node);
    if edits.is_empty() {
        return Err(refuse(api::Problem::invalid(
            "The change is empty: it equals the connection and the hints of the node. Change at \
             least one field.",
        )));
    }
    let proposal = answer(request.control.propose_on_node(&actor, node).await).await?;
    let version =
        answer(request.control.node_proposal(&actor, proposal).await).await?.proposal.version;
    answer(request.control.edit(&actor, proposal, version, edits).await).await?;
    leptos_axum::redirect(&crate::addresses::proposal(proposal));
    Ok(proposal)
}

#[cfg(feature = "ssr")]
fn parse_connection(
    root: Option<String>,
    address: Option<String>,
    port: Option<String>,
    user: Option<String>,
    key: Option<String>,
    key_version: Option<String>,
    host_key: Option<String>,
) -> Result<NodeConnectionChange, api::Problem> {
    let trimmed = |text: Option<String>| text.map(|text| text.trim().to_owned());
    Ok(NodeConnectionChange {
        root,
        addresses: address.as_deref().map(several),
        port: port.as_deref().map(|text| number::<u16>("port", text)).transpose()?,
        user: trimmed(user),
        key: trimmed(key),
        key_version: key_version
            .as_deref()
            .map(|text| number::<i64>("key_version", text))
            .transpose()?,
        host_key,
    })
}

#[cfg(feature = "ssr")]
fn parse_hints(text: &str) -> Result<serde_json::Value, api::Problem> {
    let invalid = |reason: String| api::Problem::invalid(format!("Invalid hints: {reason}"));
    crate::validation::read(text)
        .map_err(|error| invalid(format!("{} {}", error.at, error.detail).trim().to_owned()))
}

/// Starts or ends a node's maintenance.
#[server(name = SetMaintenance, prefix = "/call", endpoint = "set-maintenance", output = AsJson)]
pub async fn set_maintenance(node: NodeId, maintenance: bool, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.set_maintenance(&actor, node, maintenance, reason).await).await
}

/// Creates a token with which a node authenticates.
#[server(name = CreateNodeToken, prefix = "/call", endpoint = "create-node-token", output = AsJson)]
pub async fn create_node_token(
    node: NodeId,
    name: String,
    #[server(default)] days: String,
) -> ServerResult<CreatedNodeToken> {
    respond::ensure_displayable("a new token", "POST /api/v1/nodes/ID/tokens").map_err(refuse)?;
    let days = if days.trim().is_empty() {
        Ok(api::people::default_days())
    } else {
        number::<u32>("days", &days)
    }
    .map_err(refuse)?;
    let (request, actor) = signed_in()?;
    answer(request.control.create_node_token(&actor, node, name, days).await).await
}

#[server(name = RevokeNodeToken, prefix = "/call", endpoint = "revoke-node-token", output = AsJson)]
pub async fn revoke_node_token(node: NodeId, token: Uuid) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.revoke_node_token(&actor, node, token).await).await
}
