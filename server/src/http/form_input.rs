//! Keeps form input when a form is rejected.
//!
//! With scripts, the input stays in the form. Without scripts, leptos reloads the page with the
//! problem in the URL, and the form would be empty. So this layer adds the input to the URL, each
//! field as `typed.NAME`. The page opens the form's dialog and fills it in
//! (`app::components::Refused`). Only the fields listed here are added. None of them is a password,
//! token or secret. [`MAX`] limits the length of the URL.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use api::Problem;

use crate::http::problems::Refusal;

/// Maximum bytes of input. A longer form is not kept; the user can still go back in the browser.
pub(crate) const MAX: usize = 4096;

/// Fields to keep, by the path that the form posts to.
const RETAINED_FIELDS: [(&str, &[&str]); 15] = [
    (
        "/call/add-node",
        &["fqdn", "mac", "serial", "root", "address", "port", "user", "key", "host_key"],
    ),
    ("/call/add-nodes", &["text"]),
    ("/call/add-person", &["name", "viewer", "operator", "reviewer", "admin", "inside"]),
    ("/call/create-token", &["name", "viewer", "operator", "admin", "deployment", "days"]),
    ("/call/create-node-token", &["name", "days"]),
    ("/call/hold", &["reason"]),
    ("/call/set-priority", &["priority", "reason"]),
    ("/call/set-execution", &["reason"]),
    ("/call/submit", &["title"]),
    ("/call/import", &["path", "text"]),
    ("/call/set-maintenance", &["reason"]),
    ("/call/drain-worker", &["reason"]),
    ("/call/retry", &["reason"]),
    ("/call/retry-failed", &["reason"]),
    ("/call/give-verdict", &["reason"]),
];

/// Adds the input of a rejected form to the redirect.
pub(crate) async fn keep_input(request: Request, next: Next) -> Response {
    let Some(names) = retained_fields(&request) else { return next.run(request).await };
    let (parts, body) = request.into_parts();
    let Ok(form) = to_bytes(body, MAX).await else {
        return Refusal(Problem::invalid("The form is incomplete. Send it again.")).into_response();
    };
    let typed = typed(&String::from_utf8_lossy(&form), names);
    let mut answer = next.run(Request::from_parts(parts, Body::from(form))).await;
    let location = answer.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
    let back = location
        .and_then(|to| redirect_with_input(to, &typed))
        .and_then(|to| HeaderValue::from_str(&to).ok());
    if let Some(back) = back {
        answer.headers_mut().insert(header::LOCATION, back);
    }
    answer
}

/// The fields to keep for a form that a browser posts without scripts. `None` if there are none.
fn retained_fields(request: &Request) -> Option<&'static [&'static str]> {
    let path = request.uri().path();
    let (_, names) = RETAINED_FIELDS.into_iter().find(|(call, _)| *call == path)?;
    let text = |name: header::HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok())
    };
    let expects_page = text(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/html"));
    let message = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    let is_within_limit = message.is_some_and(|length| length <= MAX);
    (request.method() == Method::POST && expects_page && is_within_limit).then_some(names)
}

/// The input of these fields as query parameters.
fn typed(form: &str, names: &[&str]) -> Vec<String> {
    let text = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let is_retained = names.contains(&name) && !value.is_empty();
        is_retained
            .then(|| format!("{}{name}={}", app::components::TYPED, value.replace('+', "%20")))
    };
    form.split('&').filter_map(text).collect()
}

/// The URL with the input, without the input of earlier attempts. `None` if the URL has no problem.
fn redirect_with_input(location: &str, typed: &[String]) -> Option<String> {
    let (page, query) = location.split_once('?')?;
    let pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    let is_input = |pair: &&&str| pair.starts_with(app::components::TYPED);
    let is_problem = |pair: &&str| pair.starts_with("__path=") || pair.starts_with("__err=");
    // If there are several problems, the last one belongs to this form.
    let last = |word: &str| {
        pairs.iter().rev().find(|pair| pair.starts_with(word)).map(|pair| (*pair).to_owned())
    };
    let problem: Vec<String> = ["__path=", "__err="].into_iter().filter_map(last).collect();
    let carried: &[String] = if problem.is_empty() { &[] } else { typed };
    let own = pairs.iter().filter(|pair| !is_problem(pair)).filter(|pair| !is_input(pair));
    let all: Vec<String> =
        own.map(|pair| (*pair).to_owned()).chain(carried.iter().cloned()).chain(problem).collect();
    Some(if all.is_empty() { page.to_owned() } else { format!("{page}?{}", all.join("&")) })
}

#[cfg(test)]
mod tests {
    use crate::http::form_input::*;

    #[test]
    fn only_listed_fields_are_kept() {
        let typed =
            typed("name=ci+bot&password=secret&days=&viewer=on", &["name", "days", "viewer"]);
        assert_eq!(typed, ["typed.name=ci%20bot", "typed.viewer=on"]);
    }

    #[test]
    fn redirect_has_only_the_last_problem() {
        let typed = ["typed.fqdn=x".to_owned()];
        let first = "http://localhost/nodes?state=dead&__path=%2Fcall%2Fadd-node&__err=e30%3D";
        let then = redirect_with_input(first, &typed).expect("a query");
        assert_eq!(
            then,
            "http://localhost/nodes?state=dead&typed.fqdn=x&__path=%2Fcall%2Fadd-node&__err=e30%3D"
        );
        let again = format!("{then}&__path=%2Fcall%2Fadd-node&__err=e31%3D");
        assert_eq!(
            redirect_with_input(&again, &["typed.fqdn=y".to_owned()]).expect("a query"),
            "http://localhost/nodes?state=dead&typed.fqdn=y&__path=%2Fcall%2Fadd-node&__err=e31%3D"
        );
        assert_eq!(
            redirect_with_input("http://localhost/nodes?typed.fqdn=y", &typed)
                .expect("after a success, the address has no input"),
            "http://localhost/nodes",
            "done: nothing is left of it"
        );
        assert_eq!(redirect_with_input("http://localhost/nodes", &typed), None);
    }

    #[test]
    fn secret_fields_are_never_kept() {
        for (call, names) in RETAINED_FIELDS {
            for secret in ["password", "old", "new", "again", "token", "link", "username"] {
                assert!(!names.contains(&secret), "{call} returns the secret field {secret}");
            }
        }
    }
}
