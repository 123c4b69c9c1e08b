//! Server functions of the page of a blueprint.

use api::rollout::BlueprintProgress;
use api::rollout::RetriedSteps;
#[cfg(feature = "ssr")]
use api::rollout::RetryFailed;
use engine::ids::BlueprintNumber;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

#[server(
    name = ReadBlueprintProgress,
    prefix = "/call",
    endpoint = "blueprint-progress",
    input = AsJson,
    output = AsJson
)]
pub async fn blueprint_progress(number: BlueprintNumber) -> ServerResult<BlueprintProgress> {
    let (request, actor) = signed_in()?;
    answer(request.control.blueprint_progress(&actor, number).await).await
}

/// Retries the failed steps of a blueprint.
#[server(name = RetryFailedSteps, prefix = "/call", endpoint = "retry-failed", output = AsJson)]
pub async fn retry_failed(
    blueprint: BlueprintNumber,
    reason: String,
    #[server(default)] destructive: bool,
) -> ServerResult<RetriedSteps> {
    let (request, actor) = signed_in()?;
    let retry = RetryFailed { reason, destructive };
    answer(request.control.retry_failed(&actor, blueprint, &retry).await).await
}
