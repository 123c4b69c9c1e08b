//! How long a server waits: for what a client sends, and for what it answers itself.
//!
//! Whoever sends a body byte by byte keeps a request's place for as long as that takes, so the whole of it has a time of its own. That
//! ends before the answer's does: it is told as what it is, while nothing was done yet.

use std::io;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::limits;

/// How long this server waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Until a request's body is there, all of it.
    pub body: Duration,
    /// Until its answer begins.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { body: limits::BODY_TIME, answer: limits::REQUEST }
    }
}

/// A body that took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body did not come in time")]
pub(crate) struct TooLate;

/// A body that ends with [`TooLate`] when it is not there so long after now.
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
                    yield Err(io::Error::other(TooLate));
                    break;
                }
            }
        }
    })
}

/// Whether an error that a body ended with is that it was too late.
pub(crate) fn is_too_late(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        // An io::Error passes over what it was made of when it is asked for its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<TooLate>()) || error.is::<TooLate>()
    })
}
