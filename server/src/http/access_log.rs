//! The access log: one entry per request, with its method, route, status and duration, and with the
//! person. The span of a request has its id.
//!
//! An entry has the route's template and no query, because a query can contain anything. Entries of
//! probes are at the debug level: there are many of them, and they all look the same.

use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;
use control::people::Actor;
use tokio::time::Instant;

use crate::http::health::PROBE_PATHS;
use crate::http::metrics::MatchedRoute;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of a request id that a client sends.
const MAX_ID_LENGTH: usize = 64;
/// Target of the entries.
pub(crate) const TARGET: &str = "gantry::access";

/// Holds the person of a request, for [`record`], which runs before authentication.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestPerson(Arc<OnceLock<String>>);

impl RequestPerson {
    /// Stores the name of the person, and the id of the token.
    pub(crate) fn set(request: &Request, actor: Option<&Actor>) {
        let Some((actor, person)) = actor.zip(request.extensions().get::<Self>()) else { return };
        let token = actor.token.as_ref().map(|token| format!(" (token {})", token.id));
        let _ = person.0.set(format!("{}{}", actor.name, token.unwrap_or_default()));
    }
}

/// Removes a request id that is not well formed. It is logged and returned.
pub(crate) async fn check_request_id(mut request: Request, next: Next) -> Response {
    if !has_valid_id(request.headers()) {
        request.headers_mut().remove(REQUEST_ID);
    }
    next.run(request).await
}

fn has_valid_id(headers: &HeaderMap) -> bool {
    let mut ids = headers.get_all(REQUEST_ID).iter();
    let (Some(id), None) = (ids.next(), ids.next()) else { return false };
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=MAX_ID_LENGTH).contains(&id.len()) && id.as_bytes().iter().all(is_allowed)
}

/// Writes the entry of a request.
pub(crate) async fn record(mut request: Request, next: Next) -> Response {
    let person = RequestPerson::default();
    request.extensions_mut().insert(person.clone());
    let route = request.extensions().get::<MatchedRoute>().cloned().unwrap_or_default();
    let is_probe = PROBE_PATHS.contains(&request.uri().path());
    let (method, began) = (request.method().clone(), Instant::now());
    let answer = next.run(request).await;
    let (status, route) = (answer.status().as_u16(), route.template());
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let person = person.0.get().map_or("-", String::as_str);
    match is_probe {
        true => {
            tracing::debug!(
                target: TARGET,
                %method,
                route,
                status,
                duration_ms,
                person,
                "answered"
            );
        }
        false => {
            tracing::info!(target: TARGET, %method, route, status, duration_ms, person, "answered");
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn malformed_request_id_is_not_accepted() {
        let valid = |ids: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for id in ids {
                headers
                    .append(REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).expect("a value"));
            }
            has_valid_id(&headers)
        };
        for id in ["1", "6f1c2d3e-0a1b-4c5d-8e9f-001122334455", "trace_7.b"] {
            assert!(valid(&[id]), "{id}");
        }
        let long = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0";
        for id in ["", "a b", "a\tb", "a\"b", "ä", "a=b", long] {
            assert!(!valid(&[id]), "{id}");
        }
        assert!(!valid(&[]) && !valid(&["a", "b"]));
    }
}
