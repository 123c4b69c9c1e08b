//! Server functions of the board.

use api::views::board::{Board, BoardQuery, PlannerView, RoleNoderoles, TrayFilter, TrayNodes};
use engine::ids::{DeploymentId, NodeId, ProposalId, RoleName};
use engine::plan::drop_preview::DropPreview;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::fields::number;
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};

#[server(name = ReadBoard, prefix = "/call", endpoint = "board", input = AsJson, output = AsJson)]
pub async fn board(deployment: String, query: BoardQuery) -> ServerResult<Board> {
    let (request, actor) = signed_in()?;
    answer(request.control.board(&actor, &deployment, query).await).await
}

/// All nodes with a role of a board.
#[server(
    name = ReadNodesWithRole,
    prefix = "/call",
    endpoint = "nodes-with-role",
    input = AsJson,
    output = AsJson
)]
pub async fn role_noderoles(
    deployment: String,
    of_ancestor: Option<String>,
    role: RoleName,
) -> ServerResult<RoleNoderoles> {
    let (request, actor) = signed_in()?;
    answer(request.control.role_noderoles(&actor, &deployment, of_ancestor.as_deref(), &role).await)
        .await
}

/// The nodes of a board's tray that match, including those that the board does not list.
#[server(
    name = FindTrayNodes,
    prefix = "/call",
    endpoint = "tray-nodes",
    input = AsJson,
    output = AsJson
)]
pub async fn tray_nodes(
    deployment: String,
    text: String,
    show: TrayFilter,
) -> ServerResult<TrayNodes> {
    let (request, actor) = signed_in()?;
    answer(request.control.find_tray_nodes(&actor, &deployment, &text, show).await).await
}

/// The actions that the open proposal allows for these nodes.
#[server(
    name = ReadBindOptions,
    prefix = "/call",
    endpoint = "bind-options",
    input = AsJson,
    output = AsJson
)]
pub async fn preview_drop(
    deployment: DeploymentId,
    nodes: Vec<NodeId>,
) -> ServerResult<DropPreview> {
    let (request, actor) = signed_in()?;
    answer(request.control.preview_drop(&actor, deployment, nodes).await).await
}

/// The data that the browser needs to plan. See [`crate::pages::deployments::board`].
#[server(
    name = ReadPlanner,
    prefix = "/call",
    endpoint = "planner",
    input = AsJson,
    output = AsJson
)]
pub async fn planner(
    deployment: DeploymentId,
    known: Option<String>,
) -> ServerResult<Option<PlannerView>> {
    let (request, actor) = signed_in()?;
    answer(request.control.planner(&actor, deployment, known.as_deref()).await).await
}

#[server(name = Propose, prefix = "/call", endpoint = "propose", output = AsJson)]
pub async fn propose(deployment: DeploymentId) -> ServerResult<ProposalId> {
    let (request, actor) = signed_in()?;
    answer(request.control.propose(&actor, deployment).await).await
}

/// Puts a deployment on hold or releases it.
#[server(name = Hold, prefix = "/call", endpoint = "hold", output = AsJson)]
pub async fn hold(deployment: DeploymentId, on_hold: bool, reason: String) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.hold(&actor, deployment, on_hold, reason).await).await
}

/// Sets the priority of a deployment's steps.
#[server(name = SetPriority, prefix = "/call", endpoint = "set-priority", output = AsJson)]
pub async fn set_priority(
    deployment: DeploymentId,
    priority: String,
    reason: String,
) -> ServerResult<()> {
    let priority = number::<i32>("priority", &priority).map_err(refuse)?;
    let (request, actor) = signed_in()?;
    answer(request.control.set_priority(&actor, deployment, priority, reason).await).await
}
