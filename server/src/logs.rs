//! `GET /runs/{id}/log`: a run's whole log as a file, in parts as they are read.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::ids::RunId;
use futures::Stream;
use store::{Store, StoreError, running};

use crate::refusal::{Place, Refusal};
use crate::session::SignedIn;
use crate::state::AppState;

/// Pieces read at once. A worker's pieces have 64 KiB at most, so this is what a download takes of memory.
const PIECES: u32 = 16;

/// The log up to where it is when this is asked, byte for byte; what comes later is for the run's page.
pub(crate) async fn download(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<RunId>,
) -> Result<Response, Refusal> {
    let end = state.control.run(&actor, id).await?.log_bytes;
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"run-{id}.log\"")),
    ];
    let log = bytes(state.control.store().clone(), id, end.unsigned_abs());
    Ok((headers, Body::from_stream(log)).into_response())
}

fn bytes(store: Store, run: RunId, end: u64) -> impl Stream<Item = Result<Bytes, StoreError>> {
    async_stream::try_stream! {
        let mut offset = 0;
        while offset < end {
            let pieces = running::read_log(store.pool(), run, offset, PIECES).await?;
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                let seen = offset.saturating_sub(piece.at_offset.unsigned_abs());
                let new = piece.body.get(usize::try_from(seen).unwrap_or(usize::MAX)..).unwrap_or_default();
                offset += new.len() as u64;
                yield Bytes::copy_from_slice(new);
            }
        }
    }
}
