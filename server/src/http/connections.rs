//! Limits the connections of a server and the time to send a request head.
//!
//! A connection is accepted before its client is known, so its cost is limited here. There is a
//! maximum number of connections, and a request head (first line and headers) has a time limit and
//! a size limit. A client that sends its head too slowly is disconnected; this also ends idle
//! connections. At the maximum, further connections wait in the system's queue. If the server
//! closed them, browsers would reconnect at once.
//!
//! Later stages have their own limits: [`crate::http::timeouts`] for bodies, and the request limits
//! around the router.
//!
//! Only HTTP/1.1 is supported. A reverse proxy in front of the server handles HTTP/2 and TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::http::head_errors::HeadErrors;
use crate::http::limits;

/// Limits for connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Maximum number of concurrent connections.
    pub at_once: usize,
    /// Time to receive a request head, from the start of the connection or the end of the previous
    /// answer.
    pub head: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { at_once: limits::MAX_CONNECTIONS, head: limits::HEAD_TIMEOUT }
    }
}

/// Serves connections until `stopping`, then waits for all answers in progress.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stopping: CancellationToken,
) {
    let answering = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(bounds.at_once));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(limits::MAX_HEAD_BYTES);
    loop {
        let (permit, stream, from) = tokio::select! {
            () = stopping.cancelled() => break,
            next = next_of(&listener, &permits) => match next {
                Ok(next) => next,
                Err(error) => {
                    after(error).await;
                    continue;
                }
            },
        };
        let router = router.clone();
        let handled = Arc::new(AtomicBool::new(false));
        let stream = HeadErrors::new(stream, Arc::clone(&handled));
        let service = service_fn(move |mut request: Request<Incoming>| {
            handled.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(ConnectInfo(from));
            router.clone().call(request)
        });
        let connection = answering.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %from, "a connection ended early");
            }
            drop(permit);
        });
    }
    drop(listener);
    answering.shutdown().await;
}

/// Waits for a free permit and accepts the next connection.
async fn next_of(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, from) = listener.accept().await?;
    // Answers are written whole, so Nagle's algorithm would only delay them. The call fails if the
    // connection is already closed. The connection ends then, and must not block the next accept.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %from, "a connection was closed before it was accepted");
    }
    Ok((permit, stream, from))
}

/// Handles an error of `accept`. An aborted connection is ignored. Other errors, such as a lack of
/// file descriptors, last for a while, so wait before the next `accept` to save CPU.
async fn after(error: io::Error) {
    let client_errors = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
    ];
    if client_errors.contains(&error.kind()) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections, retrying in one second");
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;

    use crate::http::connections::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// A server with one answer that reports the client's address.
    async fn serving(bounds: Bounds) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().route(
            "/",
            get(|ConnectInfo(from): ConnectInfo<SocketAddr>| async move { from.to_string() }),
        );
        let stopping = CancellationToken::new();
        let served = tokio::spawn(serve(listener, router, bounds, stopping.clone()));
        (address, stopping, served)
    }

    /// Sends bytes and returns everything received until the connection closes or an answer
    /// arrives.
    async fn response_to(stream: &mut TcpStream, sent: &[u8]) -> String {
        stream.write_all(sent).await.expect("the request is sent");
        let mut read = vec![0; 10_000];
        let length = stream.read(&mut read).await.unwrap_or(0);
        String::from_utf8_lossy(&read[..length]).into_owned()
    }

    #[tokio::test]
    async fn slow_request_head_closes_connection() {
        let bounds = Bounds { head: Duration::from_millis(100), ..Bounds::default() };
        let (address, stopping, served) = serving(bounds).await;
        for part in [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nCookie: "] {
            let mut slow = TcpStream::connect(address).await.expect("a connection");
            assert_eq!(
                response_to(&mut slow, part).await,
                "",
                "the connection is closed without a response"
            );
        }
        let mut asks = TcpStream::connect(address).await.expect("a connection");
        let answer = response_to(&mut asks, REQUEST).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ")
                && answer.ends_with(&asks.local_addr().expect("an address").to_string()),
            "{answer}"
        );
        assert_eq!(
            asks.read(&mut [0; 1]).await.unwrap_or(0),
            0,
            "the server closes the connection without reading more"
        );
        stopping.cancel();
        served.await.expect("the task ends");
    }

    #[tokio::test]
    async fn oversized_request_head_is_rejected() {
        let (address, _stopping, _served) = serving(Bounds::default()).await;
        let mut asks = TcpStream::connect(address).await.expect("a connection");
        let long =
            format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(limits::MAX_HEAD_BYTES));
        let answer = response_to(&mut asks, long.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 431 ") || answer.starts_with("HTTP/1.1 414 "),
            "{answer}"
        );
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("content-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        let problem: api::Problem = serde_json::from_str(body).expect("a problem");
        assert_eq!(problem.code, "head_too_large");
    }

    #[tokio::test]
    async fn invalid_request_head_returns_a_problem() {
        let (address, _stopping, _served) = serving(Bounds::default()).await;
        let mut asks = TcpStream::connect(address).await.expect("a connection");
        let answer = response_to(&mut asks, b"GET / HTTP/1.1\r\nno colon\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        let problem: api::Problem = serde_json::from_str(body).expect("a problem");
        assert_eq!((problem.status, problem.code.as_str()), (400, "bad_request"));
        assert_eq!(asks.read(&mut [0; 1]).await.unwrap_or(0), 0, "the connection is closed");
    }

    #[tokio::test]
    async fn connection_beyond_limit_waits_for_another() {
        let (address, _stopping, _served) =
            serving(Bounds { at_once: 1, ..Bounds::default() }).await;
        let mut first = TcpStream::connect(address).await.expect("a connection");
        assert!(response_to(&mut first, REQUEST).await.starts_with("HTTP/1.1 200 "));
        let mut second = TcpStream::connect(address).await.expect("the connection is queued");
        let waits =
            tokio::time::timeout(Duration::from_millis(200), response_to(&mut second, REQUEST))
                .await;
        assert!(waits.is_err(), "{waits:?}");
        drop(first);
        let mut read = vec![0; 1_000];
        let length = second.read(&mut read).await.expect("an answer");
        assert!(read[..length].starts_with(b"HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn shutdown_ignores_idle_connections() {
        let (address, stopping, served) = serving(Bounds::default()).await;
        let mut idle = TcpStream::connect(address).await.expect("a connection");
        assert!(response_to(&mut idle, REQUEST).await.starts_with("HTTP/1.1 200 "));
        stopping.cancel();
        tokio::time::timeout(Duration::from_secs(10), served)
            .await
            .expect("the task ends")
            .expect("a clean stop");
    }
}
