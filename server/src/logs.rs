//! `GET /runs/{id}/log`: a run's whole log as a file, in parts as they are read.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::ids::RunId;

use crate::refusal::{Place, Refusal};
use crate::session::SignedIn;
use crate::state::AppState;

/// The log up to where it is when this is asked; what comes later is for the run's page.
pub(crate) async fn download(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
) -> Result<Response, Refusal> {
    let end = state.control.run(&actor, id).await?.log_bytes;
    let body = async_stream::try_stream! {
        let mut offset = 0;
        while offset < end {
            let part = state.control.log(&actor, id, offset).await?;
            if part.next <= offset {
                break;
            }
            offset = part.next;
            for piece in part.pieces {
                yield piece.text;
            }
        }
    };
    let body: futures::stream::BoxStream<'static, Result<String, api::Problem>> = Box::pin(body);
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"run-{id}.log\"")),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}
