//! The status and headers of a page's HTTP response, and the request's cookies. On the server only.

use http::StatusCode;
use http::request::Parts;
use leptos::prelude::*;
use leptos_axum::ResponseOptions;

/// Sets the response status.
///
/// Does nothing for a form that was posted without JavaScript: its response is a redirect to the
/// page, which shows the problem. Also does nothing for a page that requires a sign-in, because the
/// frame redirects to the sign-in page.
pub(crate) fn status(status: u16) {
    let Some(options) = use_context::<ResponseOptions>() else { return };
    let Some(request) = use_context::<Parts>() else { return };
    let is_call = request.uri.path().starts_with("/call/");
    if (is_call && expects_page(&request)) || (!is_call && status == 401) {
        return;
    }
    if let Ok(status) = StatusCode::from_u16(status) {
        options.set_status(status);
    }
}

/// Sets `Retry-After` for a client that was refused.
pub(crate) fn again_after(seconds: Option<u64>) {
    let Some((options, seconds)) = use_context::<ResponseOptions>().zip(seconds) else { return };
    options.insert_header(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
}

fn expects_page(request: &Parts) -> bool {
    let accept = request.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Refuses to create a secret that is shown only once if no page can show it. This is the case for
/// a form that was posted without JavaScript, because its response is a redirect. `alternative` is
/// the alternative for API clients.
pub(crate) fn ensure_displayable(subject: &str, alternative: &str) -> Result<(), api::Problem> {
    match use_context::<Parts>().is_some_and(|request| expects_page(&request)) {
        true => Err(api::Problem::invalid(format!(
            "Cannot create {subject}: it is shown only once, and this needs JavaScript. Enable \
             JavaScript or use {alternative}."
        ))),
        false => Ok(()),
    }
}

pub(crate) fn cookie(name: &str) -> Option<String> {
    let request = use_context::<Parts>()?;
    let all =
        request.headers.get_all(http::header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    all.flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}

/// Stores a choice in a cookie for a year, or deletes the cookie. `HttpOnly`, since no script reads
/// it.
pub(crate) fn set_cookie(name: &str, value: Option<&'static str>) {
    const YEAR: u32 = 31_536_000;
    let (value, age) = value.map_or(("", 0), |value| (value, YEAR));
    let cookie = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax");
    append_cookie(&cookie);
}

pub(crate) fn append_cookie(cookie: &impl ToString) {
    let Some(options) = use_context::<ResponseOptions>() else { return };
    if let Ok(cookie) = cookie.to_string().parse() {
        options.append_header(http::header::SET_COOKIE, cookie);
    }
}
