//! A REST client for a person, with a new connection for each request.

use std::fmt;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of a request. The server retries while the database is unavailable.
const ANSWER: Duration = Duration::from_secs(30);

/// A person at a server, such as `127.0.0.1:1234`.
#[derive(Debug, Clone)]
pub struct Client {
    pub server: String,
    pub cookie: String,
}

/// Why a request failed.
#[derive(Debug)]
pub enum RequestFailure {
    /// The connection broke, so the result is unknown.
    NoResponse(String),
    /// An error response: status and problem.
    Refused(u16, Value),
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponse(error) => write!(f, "without an answer: {error}"),
            Self::Refused(status, problem) => {
                write!(f, "{status} {}", problem["code"].as_str().unwrap_or("?"))
            }
        }
    }
}

impl Client {
    pub async fn get(&self, path: &str) -> Result<Value, RequestFailure> {
        self.ask(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Value, RequestFailure> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, RequestFailure> {
        let (status, body) = match timeout(ANSWER, self.exchange(method, path, body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(RequestFailure::NoResponse(error)),
            Err(_) => return Err(RequestFailure::NoResponse("no answer".to_owned())),
        };
        let body = serde_json::from_slice(&body)
            .unwrap_or_else(|_| json!({"text": String::from_utf8_lossy(&body).into_owned()}));
        if (200..300).contains(&status) {
            Ok(body)
        } else {
            Err(RequestFailure::Refused(status, body))
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(u16, Bytes), String> {
        let stream = TcpStream::connect(&self.server).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let carrying = tokio::spawn(connection);
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("host", &self.server)
            .header("cookie", &self.cookie)
            .header("x-gantry", "1")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body =
            answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        carrying.abort();
        Ok((status, body))
    }
}
