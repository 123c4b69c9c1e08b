//! Server functions of the page of a run.

use api::runs::{LogPart, LogSearchResult, RunView};
use engine::ids::RunId;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, signed_in};

#[server(name = ReadRun, prefix = "/call", endpoint = "run", input = AsJson, output = AsJson)]
pub async fn run(id: RunId) -> ServerResult<RunView> {
    let (request, actor) = signed_in()?;
    answer(request.control.run(&actor, id).await).await
}

#[server(name = ReadLog, prefix = "/call", endpoint = "log", input = AsJson, output = AsJson)]
pub async fn log(id: RunId, offset: i64) -> ServerResult<LogPart> {
    let (request, actor) = signed_in()?;
    answer(request.control.log(&actor, id, offset).await).await
}

/// Lines of a run's log that contain a text.
#[server(
    name = SearchLog,
    prefix = "/call",
    endpoint = "search-log",
    input = AsJson,
    output = AsJson
)]
pub async fn search_log(
    id: RunId,
    text: String,
    ignore_case: bool,
    after: String,
) -> ServerResult<LogSearchResult> {
    let (request, actor) = signed_in()?;
    answer(request.control.search_log(&actor, id, &text, ignore_case, &after).await).await
}

#[server(name = Cancel, prefix = "/call", endpoint = "cancel", output = AsJson)]
pub async fn cancel(run: RunId) -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.control.cancel(&actor, run).await).await
}
