//! Server functions of the list of blueprints and their comparison.

use api::blueprints::BlueprintsQuery;
use api::blueprints::{BlueprintPage, Comparison};
#[cfg(feature = "ssr")]
use api::blueprints::{MAX_DOCUMENTS, Point};
use api::proposals::Restored;
use engine::ids::BlueprintNumber;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, refuse, signed_in};

#[server(
    name = ReadBlueprints,
    prefix = "/call",
    endpoint = "blueprints",
    input = AsJson,
    output = AsJson
)]
pub async fn targets(query: BlueprintsQuery) -> ServerResult<BlueprintPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.targets(&actor, &query).await).await
}

#[server(
    name = ReadComparison,
    prefix = "/call",
    endpoint = "compare",
    input = AsJson,
    output = AsJson
)]
pub async fn compare(
    from: String,
    to: String,
    deployment: Option<String>,
) -> ServerResult<Comparison> {
    let (request, actor) = signed_in()?;
    let from = Point::named(&from).map_err(refuse)?;
    let to = Point::named(&to).map_err(refuse)?;
    let found = request.control.compare(&actor, from, to, deployment.as_deref()).await;
    Ok(answer(found).await?.cut(MAX_DOCUMENTS))
}

/// Opens a proposal that restores a deployment. Redirects to its board.
#[server(name = ProposeRestore, prefix = "/call", endpoint = "restore", output = AsJson)]
pub async fn restore(
    deployment: String,
    target: BlueprintNumber,
    #[server(default)] partial: bool,
) -> ServerResult<Restored> {
    let board = crate::addresses::board_by_name(&deployment);
    let (request, actor) = signed_in()?;
    let restored =
        answer(request.control.restore(&actor, &deployment, target, partial).await).await?;
    leptos_axum::redirect(&board);
    Ok(restored)
}
