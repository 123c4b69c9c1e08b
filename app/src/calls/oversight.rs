//! Server functions of the overview, workers, audit and search pages.
#![expect(
    missing_docs,
    reason = "the macro generates a struct from the arguments of each function"
)]

#[cfg(feature = "ssr")]
use api::audit::ChainWanted;
use api::audit::{AuditPage, AuditWanted, ChainView};
use api::overview::Overview;
use api::search::Found;
#[cfg(feature = "ssr")]
use api::search::SearchWanted;
use api::workers::{WorkerPage, WorkerView, WorkersWanted};
use leptos::prelude::*;
use uuid::Uuid;

use crate::failure::ServerResult;
use crate::wire::AsJson;

#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

/// The cookie that hides the first steps in this browser.
#[cfg(feature = "ssr")]
const FIRST_STEPS_COOKIE: &str = "gantry_first_steps";

/// The overview, and whether to show the first steps.
#[server(name = ReadOverview, prefix = "/call", endpoint = "overview", input = AsJson, output = AsJson)]
pub async fn overview() -> ServerResult<(Overview, bool)> {
    let (request, actor) = signed_in()?;
    let overview = answer(request.control.overview(&actor).await).await?;
    Ok((overview, crate::respond::cookie(FIRST_STEPS_COOKIE).as_deref() == Some("away")))
}

/// Hides the first steps in this browser, or shows them again. Redirects to the overview.
#[server(name = HideFirstSteps, prefix = "/call", endpoint = "put_first_steps_away", output = AsJson)]
pub async fn hide_first_steps(#[server(default)] back: bool) -> ServerResult<()> {
    crate::respond::set_cookie(FIRST_STEPS_COOKIE, (!back).then_some("away"));
    leptos_axum::redirect(crate::places::OVERVIEW);
    Ok(())
}

#[server(name = ReadWorkers, prefix = "/call", endpoint = "workers", input = AsJson, output = AsJson)]
pub async fn workers(wanted: WorkersWanted) -> ServerResult<WorkerPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.workers(&actor, &wanted).await).await
}

#[server(name = ReadWorker, prefix = "/call", endpoint = "worker", input = AsJson, output = AsJson)]
pub async fn worker(id: Uuid) -> ServerResult<WorkerView> {
    let (request, actor) = signed_in()?;
    answer(request.control.worker(&actor, id).await).await
}

#[server(name = ReadAudit, prefix = "/call", endpoint = "audit", input = AsJson, output = AsJson)]
pub async fn audit(wanted: AuditWanted) -> ServerResult<AuditPage> {
    let (request, actor) = signed_in()?;
    answer(request.control.audit(&actor, &wanted).await).await
}

/// Verifies a part of the audit's hash chain.
#[server(name = VerifyChain, prefix = "/call", endpoint = "chain", input = AsJson, output = AsJson)]
pub async fn chain(after: u64) -> ServerResult<ChainView> {
    let (request, actor) = signed_in()?;
    answer(request.control.audit_chain(&actor, ChainWanted { after }).await).await
}

/// Searches by name. An empty text finds nothing.
#[server(name = Search, prefix = "/call", endpoint = "search", input = AsJson, output = AsJson)]
pub async fn search(text: String) -> ServerResult<Found> {
    if text.trim().is_empty() {
        return Ok(Found::default());
    }
    let (request, actor) = signed_in()?;
    answer(request.control.search(&actor, &SearchWanted { q: text }).await).await
}
