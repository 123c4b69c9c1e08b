//! The server functions of the overseeing pages: one for each method of `Oversight`, and the one that puts the first steps away.
#![expect(
    missing_docs,
    reason = "the macro makes a struct of each function's arguments, whose names say what they are"
)]

#[cfg(feature = "ssr")]
use api::audit::AuditWanted;
use api::audit::{AuditPage, ChainView};
use api::overview::Overview;
use api::search::Found;
use api::workers::{WorkerPage, WorkerView, WorkersWanted};
use leptos::prelude::*;
use uuid::Uuid;

use crate::failure::Answer;
use crate::wire::AsJson;

#[cfg(feature = "ssr")]
mod server {
    use std::sync::Arc;

    use api::{At, Problem};
    use leptos::prelude::*;

    use crate::clock::moment_of;
    use crate::failure::{Answer, Failure};
    use crate::oversight::Oversight;

    pub(super) fn oversight() -> Answer<Arc<dyn Oversight>> {
        use_context::<Arc<dyn Oversight>>().ok_or_else(|| Failure(Problem::internal()))
    }

    /// The moment of a field; an empty one says none.
    pub(super) fn moment(field: &str, text: &str) -> Result<Option<At>, Problem> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let shown: String = text.chars().take(40).collect();
        moment_of(text).map(Some).ok_or_else(|| {
            Problem::invalid(format!(
                "{field}: {shown:?} is no moment. Write a day, or day and time in UTC: 2026-11-22T08:15."
            ))
        })
    }
}
#[cfg(feature = "ssr")]
use super::server::answer;
#[cfg(feature = "ssr")]
use server::{moment, oversight};

/// The cookie of who put the first steps away.
#[cfg(feature = "ssr")]
const PUT_AWAY: &str = "gantry_first_steps";

/// How it stands. Whoever put the first steps away is not told of them.
#[server(name = ReadOverview, prefix = "/call", endpoint = "overview", input = AsJson, output = AsJson)]
pub async fn overview() -> Answer<(Overview, bool)> {
    let overview = answer(oversight()?.overview().await)?;
    Ok((overview, crate::respond::cookie(PUT_AWAY).as_deref() == Some("away")))
}

/// Puts the first steps away, or brings them back, in this browser; leads to the overview.
#[server(name = PutFirstStepsAway, prefix = "/call", endpoint = "put_first_steps_away", output = AsJson)]
pub async fn put_first_steps_away(#[server(default)] back: bool) -> Answer<()> {
    crate::respond::set_cookie(PUT_AWAY, (!back).then_some("away"));
    leptos_axum::redirect(crate::places::OVERVIEW);
    Ok(())
}

/// A page of workers.
#[server(name = ReadWorkers, prefix = "/call", endpoint = "workers", input = AsJson, output = AsJson)]
pub async fn workers(wanted: WorkersWanted) -> Answer<WorkerPage> {
    answer(oversight()?.workers(wanted).await)
}

/// A worker.
#[server(name = ReadWorker, prefix = "/call", endpoint = "worker", input = AsJson, output = AsJson)]
pub async fn worker(id: Uuid) -> Answer<WorkerView> {
    answer(oversight()?.worker(id).await)
}

/// A page of the audit; moments as people write them.
#[server(name = ReadAudit, prefix = "/call", endpoint = "audit", input = AsJson, output = AsJson)]
pub async fn audit(
    who: String,
    action: String,
    subject: String,
    since: String,
    until: String,
    before: Option<i64>,
) -> Answer<AuditPage> {
    let (since, until) = (answer(moment("From", &since))?, answer(moment("Until", &until))?);
    answer(oversight()?.audit(AuditWanted { who, action, subject, since, until, before }).await)
}

/// A part of the audit's chain.
#[server(name = ReadChain, prefix = "/call", endpoint = "chain", input = AsJson, output = AsJson)]
pub async fn chain(after: u64) -> Answer<ChainView> {
    answer(oversight()?.chain(after).await)
}

/// Things by what they are called; nothing for nothing.
#[server(name = Search, prefix = "/call", endpoint = "search", input = AsJson, output = AsJson)]
pub async fn search(text: String) -> Answer<Found> {
    if text.trim().is_empty() {
        return Ok(Found::default());
    }
    answer(oversight()?.search(text).await)
}
