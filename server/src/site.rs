//! The site's files: scripts, styles, fonts, icons, as `cargo xtask site` leaves them, with their packed twins.
//!
//! Files keep their names from one build to the next, so browsers ask each time whether theirs is still the one (`no-cache`, by time
//! stamp); fonts change so rarely that they ask once a week.

use std::path::PathBuf;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt as _;
use tower_http::services::ServeDir;

use api::Problem;

use crate::carried::Carried;
use crate::pages;
use crate::refusal::{Refusal, is_for_programs};
use crate::state::AppState;

/// Where the site's files are.
#[derive(Debug)]
pub(crate) enum Site {
    /// In a folder.
    Folder(PathBuf),
    /// In this program.
    Carried(Carried),
}

impl Site {
    /// A named folder; else what this program carries; else where a build leaves it.
    pub(crate) fn named(folder: Option<PathBuf>) -> Self {
        match folder {
            Some(folder) => Self::Folder(folder),
            None => Carried::inside().map_or_else(|| Self::Folder("target/site".into()), Self::Carried),
        }
    }

    /// What pages are told about it.
    pub(crate) fn root(&self) -> String {
        match self {
            Self::Folder(folder) => folder.to_string_lossy().into_owned(),
            Self::Carried(_) => String::new(),
        }
    }

    async fn answer(&self, asked: Request) -> Response {
        match self {
            Self::Folder(folder) => {
                let files = ServeDir::new(folder).precompressed_br().precompressed_gzip();
                let Ok(answer) = files.append_index_html_on_directories(false).oneshot(asked).await;
                answer.into_response()
            }
            Self::Carried(files) => {
                let answer = files.answer(asked.method(), asked.uri().path(), asked.headers());
                answer.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
            }
        }
    }
}

/// Whatever no route is for: a file of the site, or the page that says there is nothing.
pub(crate) async fn file_or_nothing(State(state): State<AppState>, request: Request) -> Response {
    if is_for_programs(request.uri().path()) {
        let path: String = request.uri().path().chars().take(200).collect();
        return Refusal(Problem::not_found(format!("There is nothing at {path}."))).into_response();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let (parts, body) = request.into_parts();
    let mut answer = state.site.answer(Request::from_parts(parts.clone(), axum::body::Body::empty())).await;
    if answer.status() == StatusCode::NOT_FOUND {
        return pages::not_found(state, Request::from_parts(parts, body)).await;
    }
    answer.headers_mut().insert(header::CACHE_CONTROL, lasts(parts.uri.path()));
    answer
}

fn lasts(path: &str) -> HeaderValue {
    match path.starts_with("/fonts/") {
        true => HeaderValue::from_static("public, max-age=604800"),
        false => HeaderValue::from_static("public, no-cache"),
    }
}
