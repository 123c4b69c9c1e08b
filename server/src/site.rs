//! The site's files: scripts, styles, fonts, icons, as `cargo xtask site` leaves them, with their packed twins.
//!
//! Files keep their names from one build to the next, so browsers ask each time whether theirs is still the one (`no-cache`, by time
//! stamp); fonts change so rarely that they ask once a week.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt as _;
use tower_http::services::ServeDir;

use api::Problem;

use crate::pages;
use crate::refusal::{Refusal, is_for_programs};
use crate::state::AppState;

/// Whatever no route is for: a file of the site, or the page that says there is nothing.
pub(crate) async fn file_or_nothing(State(state): State<AppState>, request: Request) -> Response {
    if is_for_programs(request.uri().path()) {
        let path: String = request.uri().path().chars().take(200).collect();
        return Refusal(Problem::not_found(format!("There is nothing at {path}."))).into_response();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    let (parts, body) = request.into_parts();
    let files = ServeDir::new(state.site.as_path())
        .precompressed_br()
        .precompressed_gzip()
        .append_index_html_on_directories(false);
    let asked = Request::from_parts(parts.clone(), axum::body::Body::empty());
    let Ok(mut answer) = files.oneshot(asked).await;
    if answer.status() == axum::http::StatusCode::NOT_FOUND {
        return pages::not_found(state, Request::from_parts(parts, body)).await;
    }
    answer.headers_mut().insert(header::CACHE_CONTROL, lasts(parts.uri.path()));
    answer.into_response()
}

fn lasts(path: &str) -> HeaderValue {
    match path.starts_with("/fonts/") {
        true => HeaderValue::from_static("public, max-age=604800"),
        false => HeaderValue::from_static("public, no-cache"),
    }
}
