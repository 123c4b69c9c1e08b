//! The site's files: scripts, styles, fonts, icons, as `cargo xtask site` writes them, with
//! compressed variants.
//!
//! Build results (scripts, parts of the WebAssembly module, styles) are in a folder named by their
//! content hash, so browsers cache them permanently. A page thus gets all files from one build, or
//! a 404 if that build is gone. `site.json` names the build and the files of each part. Browsers
//! revalidate fonts once a week, and all other files on each use (`no-cache`, by modification
//! time).
//!
//! The description of the site is read once, at start. Pages and server must come from the same
//! build.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use leptos::WasmSplitManifest;
use leptos::prelude::ArcStoredValue;
use serde::Deserialize;
use tower::ServiceExt as _;
use tower_http::services::ServeDir;

use api::Problem;

use crate::AppState;
use crate::http::problems::{Refusal, expects_page, is_api_path};
use crate::pages;
use crate::pages::embedded_site::EmbeddedFiles;

const ABOUT: &str = "site.json";

/// The site's files and their description.
#[derive(Debug)]
pub(crate) struct Site {
    files: Files,
    about: SiteManifest,
}

#[derive(Debug)]
enum Files {
    /// In a folder.
    Folder(PathBuf),
    /// In this program.
    Embedded(EmbeddedFiles),
}

/// `site.json`, as `cargo xtask site` writes it.
#[derive(Debug, Deserialize)]
struct SiteManifest {
    /// The name of the build's folder in `pkg`.
    build: String,
    /// The files of each part of the module, without their extension.
    parts: HashMap<String, Vec<String>>,
}

impl Site {
    /// Uses the given folder, or the embedded site, or the folder of a local build.
    pub(crate) fn named(folder: Option<PathBuf>) -> Self {
        let files = match folder {
            Some(folder) => Files::Folder(folder),
            None => EmbeddedFiles::inside()
                .map_or_else(|| Files::Folder("target/site".into()), Files::Embedded),
        };
        let about = files.about().unwrap_or_else(|| {
            let place = files.location();
            tracing::warn!(site = %place, "site files not found, so pages have no styles and \
                scripts: run `cargo xtask site`");
            SiteManifest { build: "none".into(), parts: HashMap::new() }
        });
        Self { files, about }
    }

    /// The path of this build's files, without the leading slash.
    pub(crate) fn pkg(&self) -> String {
        format!("pkg/{}", self.about.build)
    }

    /// Tells pages which parts of the module to preload.
    pub(crate) fn manifest(&self) -> WasmSplitManifest {
        let loader = "split.js".to_owned();
        WasmSplitManifest(ArcStoredValue::new((
            format!("/{}", self.pkg()),
            self.about.parts.clone(),
            loader,
        )))
    }

    async fn answer(&self, request: Request) -> Response {
        self.files.answer(request).await
    }

    fn lasts(&self, path: &str) -> HeaderValue {
        let build_path = path.strip_prefix('/').and_then(|path| path.strip_prefix(&self.pkg()));
        match path.starts_with("/fonts/") {
            true => HeaderValue::from_static("public, max-age=604800"),
            false if build_path.is_some_and(|rest| rest.starts_with('/')) => {
                HeaderValue::from_static("public, max-age=31536000, immutable")
            }
            false => HeaderValue::from_static("public, no-cache"),
        }
    }
}

impl Files {
    fn location(&self) -> String {
        match self {
            Self::Folder(folder) => folder.to_string_lossy().into_owned(),
            Self::Embedded(_) => "this program".into(),
        }
    }

    /// `None` if there is no site or it can't be read.
    fn about(&self) -> Option<SiteManifest> {
        let json = match self {
            Self::Folder(folder) => Cow::from(std::fs::read(folder.join(ABOUT)).ok()?),
            Self::Embedded(files) => Cow::from(files.content(ABOUT)?),
        };
        serde_json::from_slice(&json).ok()
    }

    async fn answer(&self, request: Request) -> Response {
        match self {
            Self::Folder(folder) => {
                let files = ServeDir::new(folder).precompressed_br().precompressed_gzip();
                let Ok(answer) =
                    files.append_index_html_on_directories(false).oneshot(request).await;
                answer.into_response()
            }
            Self::Embedded(files) => {
                let answer =
                    files.answer(request.method(), request.uri().path(), request.headers());
                answer.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
            }
        }
    }
}

/// The fallback: a file of the site, or the 404 page.
pub(crate) async fn file_or_not_found(State(state): State<AppState>, request: Request) -> Response {
    if is_api_path(request.uri().path()) {
        let path: String = request.uri().path().chars().take(200).collect();
        return Refusal(Problem::not_found(format!("Path {path} does not exist. Check the URL.")))
            .into_response();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if expects_page(&request)
        && let Some(place) = strip_trailing_slash(request.uri())
    {
        return Redirect::permanent(&place).into_response();
    }
    let (parts, body) = request.into_parts();
    let mut answer =
        state.site.answer(Request::from_parts(parts.clone(), axum::body::Body::empty())).await;
    if answer.status() == StatusCode::NOT_FOUND {
        return pages::not_found(state, Request::from_parts(parts, body)).await;
    }
    answer.headers_mut().insert(header::CACHE_CONTROL, state.site.lasts(parts.uri.path()));
    answer
}

/// The same path without a trailing slash. Never a path that browsers take for another host
/// (`//evil.example`).
fn strip_trailing_slash(uri: &Uri) -> Option<String> {
    let path = uri.path().strip_suffix('/')?.trim_end_matches('/');
    let is_own_path = path.starts_with('/') && !path.starts_with("//") && !path.contains('\\');
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    is_own_path.then(|| format!("{path}{query}"))
}

#[cfg(test)]
mod tests {
    use crate::pages::site::*;

    #[test]
    fn trailing_slash_redirects_within_the_site() {
        let target = |text: &str| strip_trailing_slash(&text.parse().expect("an address"));
        let to = |text: &str| Some(text.to_owned());
        assert_eq!(
            (target("/nodes/"), target("/runs/8//?tab=log&a=/")),
            (to("/nodes"), to("/runs/8?tab=log&a=/"))
        );
        assert_eq!(target("http://evil.example/nodes/"), to("/nodes"));
        for stays in ["/", "/nodes", "/nodes?a=/", "//", "//evil.example/", "///evil.example/"] {
            assert_eq!(target(stays), None, "{stays}");
        }
    }
}
