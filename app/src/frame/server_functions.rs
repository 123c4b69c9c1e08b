//! Server functions of the frame.

use api::views::frame::Frame;
use engine::ids::BlueprintNumber;
use leptos::prelude::*;

use crate::codec::AsJson;
use crate::failure::ServerResult;
#[cfg(feature = "ssr")]
use crate::request::{answer, request, signed_in};
#[cfg(feature = "ssr")]
use crate::respond;

#[server(name = ReadFrame, prefix = "/call", endpoint = "frame", input = AsJson, output = AsJson)]
pub async fn frame() -> ServerResult<Option<Frame>> {
    let request = request()?;
    let Some(actor) = &request.actor else { return Ok(None) };
    answer(request.control.frame(actor).await.map(Some)).await
}

/// Pauses or resumes execution.
#[server(name = SetExecution, prefix = "/call", endpoint = "set-execution", output = AsJson)]
pub async fn switch(enabled: bool, reason: String) -> ServerResult<BlueprintNumber> {
    let (request, actor) = signed_in()?;
    answer(request.control.switch(&actor, enabled, reason).await).await
}

/// Ends this session. Redirects to the sign-in page.
#[server(name = SignOut, prefix = "/call", endpoint = "sign-out", output = AsJson)]
pub async fn sign_out() -> ServerResult<()> {
    let (request, actor) = signed_in()?;
    answer(request.people.sign_out(&actor).await).await?;
    respond::append_cookie(&request.session_cookie.end());
    leptos_axum::redirect(crate::addresses::SIGN_IN);
    Ok(())
}
