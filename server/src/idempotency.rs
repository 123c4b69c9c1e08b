//! `Idempotency-Key`.
use axum::extract::Request;
use axum::http::HeaderName;
use axum::middleware::Next;
use axum::response::Response;

use crate::state::AppState;

/// The header.
pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(crate) async fn once(_: &AppState, request: Request, next: Next, _: usize, _: bool) -> Response {
    next.run(request).await
}
