//! Problem documents for request heads that hyper rejects.
//!
//! If a request head is invalid or too large, hyper sends a status without a body and closes the
//! connection. No handler gets the request. [`HeadErrors`] replaces that response by one with a
//! problem document.
//!
//! It only replaces the first response of a connection, and only if no request reached a handler.
//! Later bytes can be a part of a response body with any content, such as a log.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use api::Problem;
use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::limits;

/// A connection whose first response is replaced if hyper sends it.
pub(crate) struct HeadErrors<S> {
    stream: S,
    /// Whether a request reached a handler.
    handled: Arc<AtomicBool>,
    /// The response to send instead of hyper's, and the number of its bytes that are sent.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S> HeadErrors<S> {
    pub(crate) fn new(stream: S, handled: Arc<AtomicBool>) -> Self {
        Self { stream, handled, instead: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadErrors<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadErrors<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.handled.load(Ordering::Relaxed) {
            return Pin::new(&mut this.stream).poll_write(context, bytes);
        }
        if this.instead.is_none() {
            let Some(problem) = problem_of(bytes) else {
                return Pin::new(&mut this.stream).poll_write(context, bytes);
            };
            this.instead = Some((response(&problem), 0));
        }
        if let Some((response, sent)) = &mut this.instead {
            while *sent < response.len() {
                let more =
                    ready!(Pin::new(&mut this.stream).poll_write(context, &response[*sent..]))?;
                if more == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                *sent += more;
            }
        }
        // hyper closes the connection after its response, so nothing follows.
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.handled.load(Ordering::Relaxed) {
            return Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        }
        let first = slices.iter().find(|slice| !slice.is_empty());
        let first: &[u8] = first.map_or(&[], |slice| &**slice);
        self.poll_write(context, first)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The problem for the status of a response that hyper sends.
fn problem_of(response: &[u8]) -> Option<Problem> {
    let status = response.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let limit = limits::MAX_HEAD_BYTES / 1024;
    let too_large = |status, title: &str| {
        let detail = format!(
            "The request line and headers are larger than {limit} KiB. Use a shorter URL, or fewer \
             or shorter headers."
        );
        Problem::new(status, "head_too_large", title, detail)
    };
    match status {
        b"400" => Some(Problem::new(
            400,
            "bad_request",
            "Bad request",
            "The request line or a header is not valid HTTP/1.1. Check the URL and the headers.",
        )),
        b"414" => Some(too_large(414, "URL too long")),
        b"431" => Some(too_large(431, "Request headers too large")),
        _ => None,
    }
}

fn response(problem: &Problem) -> Vec<u8> {
    let body = serde_json::to_string(&problem.typed()).unwrap_or_default();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
