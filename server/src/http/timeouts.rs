//! Timeouts for requests.
//!
//! A client that sends its body slowly keeps a request permit for that time, so the body has a
//! timeout of its own. It is shorter than the timeout of the response: the error then names the
//! body, and nothing has been executed yet.

use std::io;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::http::limits;

/// Timeouts of this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Time to receive the whole body of a request.
    pub body: Duration,
    /// Time until the response begins.
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { body: limits::BODY_TIMEOUT, answer: limits::REQUEST_TIMEOUT }
    }
}

/// A body exceeded its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request body timed out")]
pub(crate) struct BodyTimeout;

/// A body that ends with [`BodyTimeout`] if it is not complete within this time.
pub(crate) fn within(body: Body, time: Duration) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let until = Instant::now() + time;
    let mut pieces = body.into_data_stream();
    Body::from_stream(async_stream::stream! {
        loop {
            match tokio::time::timeout_at(until, pieces.next()).await {
                Ok(Some(piece)) => yield piece.map_err(io::Error::other),
                Ok(None) => break,
                Err(_) => {
                    yield Err(io::Error::other(BodyTimeout));
                    break;
                }
            }
        }
    })
}

/// Whether a body ended because of its timeout.
pub(crate) fn is_body_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        // The `source` of an `io::Error` skips its inner error, so check that separately.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<BodyTimeout>()) || error.is::<BodyTimeout>()
    })
}
