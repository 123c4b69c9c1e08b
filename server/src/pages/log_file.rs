//! `GET /runs/{id}/log`: a run's complete log as a file, streamed in parts.
//!
//! A log is append-only, so a client can resume a download with `Range`, also while the log grows.
//! Several ranges return the whole log. A log that has ended has an `ETag`. If `If-Range` has
//! another tag, the whole log is returned. [`downloads`] limits the number of downloads.

use std::ops::Range;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::ids::RunId;
use futures::Stream;
use http_range_header::{EndPosition, RangeUnsatisfiableError, StartPosition, parse_range_header};
use store::{Store, StoreError};

use crate::AppState;
use crate::http::downloads;
use crate::http::problems::{PathParams, Refusal};
use crate::http::session::SignedIn;

/// Chunks per query. A chunk of a worker has at most 64 KiB, so this limits the memory of a
/// download.
const PIECES: u32 = 16;

/// Streams the log up to its length at the time of the request. Later output is on the run's page.
pub(crate) async fn download(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<RunId>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let run = state.control.run(&actor, id).await?;
    let length = run.log_bytes.unsigned_abs();
    let tag = run.run.ended.is_some().then(|| format!("\"{id}-{length}\""));
    let range = part(&headers, length, tag.as_deref());
    let mut answer = match &range {
        RequestedPart::Nothing => StatusCode::RANGE_NOT_SATISFIABLE.into_response(),
        RequestedPart::Whole => {
            let place = downloads::take(&state, actor.person)?;
            downloads::body(place, bytes(state.control.store().clone(), id, 0..length))
                .into_response()
        }
        RequestedPart::Partial(range) => {
            let place = downloads::take(&state, actor.person)?;
            let body =
                downloads::body(place, bytes(state.control.store().clone(), id, range.clone()));
            (StatusCode::PARTIAL_CONTENT, body).into_response()
        }
    };
    let set = answer.headers_mut();
    let mut put = |name, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            set.insert(name, value);
        }
    };
    put(header::ACCEPT_RANGES, "bytes".to_owned());
    match range {
        RequestedPart::Nothing => {
            put(header::CONTENT_RANGE, format!("bytes */{length}"));
            return Ok(answer);
        }
        RequestedPart::Whole => put(header::CONTENT_LENGTH, length.to_string()),
        RequestedPart::Partial(range) => {
            put(header::CONTENT_RANGE, format!("bytes {}-{}/{length}", range.start, range.end - 1));
            put(header::CONTENT_LENGTH, (range.end - range.start).to_string());
        }
    }
    put(header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned());
    put(header::CONTENT_DISPOSITION, format!("attachment; filename=\"run-{id}.log\""));
    if let Some(tag) = tag {
        put(header::ETAG, tag);
    }
    Ok(answer)
}

/// The requested part of a log.
#[derive(Debug, PartialEq, Eq)]
enum RequestedPart {
    Whole,
    Partial(Range<u64>),
    /// A range after the end of the log.
    Nothing,
}

/// Parses `Range`. An invalid header, or one with several ranges, is ignored (RFC 9110, 14.2).
fn part(headers: &HeaderMap, length: u64, tag: Option<&str>) -> RequestedPart {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(range) = text(header::RANGE) else { return RequestedPart::Whole };
    if text(header::IF_RANGE).is_some_and(|of| Some(of) != tag) {
        return RequestedPart::Whole;
    }
    let read = match parse_range_header(range) {
        Ok(read) => read.ranges,
        // A suffix of zero bytes is valid and can't be satisfied.
        Err(RangeUnsatisfiableError::ZeroSuffix) => return RequestedPart::Nothing,
        Err(_) => return RequestedPart::Whole,
    };
    let [range] = read.as_slice() else { return RequestedPart::Whole };
    // Not via the library's `validate`: it rejects ranges that must be ignored, and a suffix longer
    // than the log.
    match (range.start, range.end) {
        (StartPosition::Index(first), EndPosition::Index(last)) if last < first => {
            RequestedPart::Whole
        }
        (StartPosition::Index(first), _) if first >= length => RequestedPart::Nothing,
        (StartPosition::Index(first), EndPosition::Index(last)) => {
            RequestedPart::Partial(first..length.min(last.saturating_add(1)))
        }
        (StartPosition::Index(first), EndPosition::LastByte) => {
            RequestedPart::Partial(first..length)
        }
        // An empty log has no range that could be named.
        (StartPosition::FromLast(_), _) if length == 0 => RequestedPart::Whole,
        (StartPosition::FromLast(count), _) => {
            RequestedPart::Partial(length.saturating_sub(count)..length)
        }
    }
}

fn bytes(
    store: Store,
    run: RunId,
    part: Range<u64>,
) -> impl Stream<Item = Result<Bytes, StoreError>> {
    async_stream::try_stream! {
        let mut offset = part.start;
        while offset < part.end {
            let pieces = store::runs::read_log_range(
                store.pool(),
                run,
                offset,
                part.end,
                PIECES
            ).await?;
            if pieces.is_empty() {
                // Breaking off the download is better than omitting a part.
                Err(StoreError::corrupt(format!("the log of run {run}"), format!("byte {offset} is \
                    missing")))?;
            }
            for piece in pieces {
                let skip = usize::try_from(
                    offset.saturating_sub(piece.at_offset.unsigned_abs())
                ).unwrap_or(usize::MAX);
                let new = piece.body.get(skip..).unwrap_or_default();
                let remaining = usize::try_from(part.end - offset).unwrap_or(usize::MAX);
                let new = &new[..new.len().min(remaining)];
                offset += new.len() as u64;
                yield Bytes::copy_from_slice(new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pages::log_file::*;

    #[test]
    fn range_header_follows_rfc_9110() {
        let asks = |range: &str, of: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, HeaderValue::from_str(range).expect("text"));
            if let Some(of) = of {
                headers.insert(header::IF_RANGE, HeaderValue::from_str(of).expect("text"));
            }
            part(&headers, 100, Some("\"1-100\""))
        };
        assert_eq!(asks("bytes=0-0", None), RequestedPart::Partial(0..1));
        assert_eq!(asks("bytes=40-", None), RequestedPart::Partial(40..100));
        assert_eq!(asks("bytes=-10", None), RequestedPart::Partial(90..100));
        assert_eq!(asks("bytes=90-200", None), RequestedPart::Partial(90..100));
        assert_eq!(asks("bytes=100-", None), RequestedPart::Nothing);
        assert_eq!(asks("bytes=-0", None), RequestedPart::Nothing);
        assert_eq!(
            asks("bytes=100-50", None),
            RequestedPart::Whole,
            "an invalid range is ignored before the log is read"
        );
        assert_eq!(asks("bytes=-99999999999", None), RequestedPart::Partial(0..100));
        assert_eq!(asks("bytes=99-18446744073709551615", None), RequestedPart::Partial(99..100));
        for whole in [
            "bytes=9-1",
            "bytes=5-2",
            "bytes=0-1,5-6",
            "lines=1-2",
            "bytes=x",
            "bytes=-99999999999999999999",
        ] {
            assert_eq!(asks(whole, None), RequestedPart::Whole, "{whole}");
        }
        assert_eq!(asks("bytes=40-", Some("\"1-100\"")), RequestedPart::Partial(40..100));
        assert_eq!(
            asks("bytes=40-", Some("\"1-50\"")),
            RequestedPart::Whole,
            "the log has grown since then"
        );
        assert_eq!(part(&HeaderMap::new(), 100, None), RequestedPart::Whole);
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=-5"));
        assert_eq!(part(&headers, 0, None), RequestedPart::Whole, "an empty log has no ranges");
    }
}
