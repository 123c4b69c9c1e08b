//! What a page tells the HTTP response around it, and what it learns from the request. On the server only.

use http::StatusCode;
use http::request::Parts;
use leptos::prelude::*;
use leptos_axum::ResponseOptions;

/// Sets the status.
///
/// Not for a form that was posted without scripts: its answer is a redirect back to the page, which shows the problem. And not of a page
/// whose reader has to sign in first: its frame leads them there.
pub(crate) fn status(status: u16) {
    let Some(options) = use_context::<ResponseOptions>() else { return };
    let Some(request) = use_context::<Parts>() else { return };
    let is_call = request.uri.path().starts_with("/call/");
    if (is_call && wants_page(&request)) || (!is_call && status == 401) {
        return;
    }
    if let Ok(status) = StatusCode::from_u16(status) {
        options.set_status(status);
    }
}

/// Says when whoever was refused may come again.
pub(crate) fn again_after(seconds: Option<u64>) {
    let Some((options, seconds)) = use_context::<ResponseOptions>().zip(seconds) else { return };
    options.insert_header(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
}

fn wants_page(request: &Parts) -> bool {
    let accept = request.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Refuses to make what is shown once and never again, where no page is there to show it: for a form that was posted without scripts, whose
/// answer is a redirect. `instead`: what programs ask.
pub(crate) fn can_show(what: &str, instead: &str) -> Result<(), api::Problem> {
    match use_context::<Parts>().is_some_and(|request| wants_page(&request)) {
        true => Err(api::Problem::invalid(format!(
            "Without scripts {what} can’t be shown, and it would be shown only once. None was made: ask {instead}."
        ))),
        false => Ok(()),
    }
}

/// A cookie of the request.
pub(crate) fn cookie(name: &str) -> Option<String> {
    let request = use_context::<Parts>()?;
    let all =
        request.headers.get_all(http::header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    all.flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}

/// Lets the browser keep a choice for a year, or forget it. No script needs to read it.
pub(crate) fn set_cookie(name: &str, value: Option<&'static str>) {
    const YEAR: u32 = 31_536_000;
    let Some(options) = use_context::<ResponseOptions>() else { return };
    let (value, age) = value.map_or(("", 0), |value| (value, YEAR));
    let cookie = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax");
    if let Ok(cookie) = cookie.parse() {
        options.append_header(http::header::SET_COOKIE, cookie);
    }
}
