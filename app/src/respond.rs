//! What a page tells the HTTP response around it, and what it learns from the request. On the server only.

use http::StatusCode;
use http::request::Parts;
use leptos::prelude::*;
use leptos_axum::ResponseOptions;

/// Sets the status, once: the first problem decides.
///
/// Not for a form that was posted without scripts: its answer is a redirect back to the page, which shows the problem.
pub(crate) fn status(status: u16) {
    let Some(options) = use_context::<ResponseOptions>() else { return };
    if posted_without_scripts() {
        return;
    }
    if let Ok(status) = StatusCode::from_u16(status) {
        options.set_status(status);
    }
}

fn posted_without_scripts() -> bool {
    use_context::<Parts>().is_some_and(|request| {
        let wants_page = request.headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok());
        request.uri.path().starts_with("/call/") && wants_page.is_some_and(|accept| accept.contains("text/html"))
    })
}

/// A cookie of the request.
pub(crate) fn cookie(name: &str) -> Option<String> {
    let request = use_context::<Parts>()?;
    let all = request.headers.get_all(http::header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    all.flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}
