//! One format for all errors of the server.
//!
//! Handlers return a [`Refusal`], and rejections of extractors become one. Errors of layers and the
//! router (404, 405, 413) are converted on their way out. API clients get RFC 9457
//! `application/problem+json`. A browser that navigates to a page gets a small page without
//! scripts.
//!
//! A 401 tells how to authenticate: with a token in the `Authorization` header for API clients,
//! with a link to the sign-in page for people. `WWW-Authenticate` requests `Bearer`, for which no
//! browser opens a dialog.

use std::fmt::Write as _;

use api::Problem;
use api::names::INVALID_QUERY_PREFIX;
use api::problem::{
    DEFAULT_RETRY_AFTER, Finding, SIGNED_OUT, TOKEN_REFUSED, UNKNOWN_OUTCOME, shortened,
};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{BytesRejection, FormRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use engine::data::written;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::AppState;
use crate::http::limits;
use crate::http::strict::Strict;
use crate::http::timeouts::is_body_timeout;

/// A problem as a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(pub Problem);

/// The status of a problem. An invalid number is a bug and becomes 500.
pub(crate) fn status_code(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut answer = (status_code(&self.0), Json(self.0.typed())).into_response();
        answer
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.0.again_after {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer.extensions_mut().insert(self);
        answer
    }
}

impl Refusal {
    /// Replaces a hint for the console by one for API clients.
    fn for_api_clients(self) -> Self {
        if self.0.code != SIGNED_OUT {
            return self;
        }
        let detail = "Send a token (Authorization: Bearer gantry_...) or the cookie of a valid \
            session.";
        Self(Problem { detail: detail.into(), ..self.0 })
    }
}

/// The `WWW-Authenticate` header (RFC 9110, 11.6.1; RFC 6750, 3).
fn www_authenticate(refusal: Option<&Refusal>) -> HeaderValue {
    let is_invalid_token = refusal.is_some_and(|Refusal(problem)| problem.code == TOKEN_REFUSED);
    HeaderValue::from_static(match is_invalid_token {
        true => "Bearer realm=\"gantry\", error=\"invalid_token\"",
        false => "Bearer realm=\"gantry\"",
    })
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        Self(Problem::invalid(format!("Invalid path: {}.", path_error(&rejection))))
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        Self(Problem::invalid(format!("{INVALID_QUERY_PREFIX}{}.", describe_serde_error(text))))
    }
}

impl From<FormRejection> for Refusal {
    fn from(rejection: FormRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self(problem_for_status(StatusCode::PAYLOAD_TOO_LARGE))
            }
            _ if is_body_timeout(&rejection) => {
                Self(problem_for_status(StatusCode::REQUEST_TIMEOUT))
            }
            // The library's text may quote the input, which may be a token.
            _ => Self(Problem::invalid(
                "Cannot parse the form. Send it as application/x-www-form-urlencoded.",
            )),
        }
    }
}

impl From<BytesRejection> for Refusal {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self(problem_for_status(StatusCode::PAYLOAD_TOO_LARGE))
            }
            _ if is_body_timeout(&rejection) => {
                Self(problem_for_status(StatusCode::REQUEST_TIMEOUT))
            }
            _ => Self(Problem::invalid("The request body is incomplete. Send the request again.")),
        }
    }
}

/// Typed path parameters.
#[derive(Debug, Clone, Copy, FromRequestParts)]
#[from_request(via(Path), rejection(Refusal))]
pub(crate) struct PathParams<T>(pub T);

/// Typed query parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryParams<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        // The library replaces invalid UTF-8, so a filter would look for other text.
        let query = parts.uri.query().unwrap_or_default();
        if percent_decode_str(query).decode_utf8().is_err() {
            return Err(Refusal(Problem::invalid(format!(
                "{INVALID_QUERY_PREFIX}the query is not valid UTF-8."
            ))));
        }
        let Query(found) = Query::from_request_parts(parts, state).await?;
        Ok(Self(found))
    }
}

/// A typed JSON body. An error names the field, line and column.
///
/// The body limit bounds its size. `serde_json` bounds its depth
/// ([`limits::MAX_JSON_DEPTH`]).
#[derive(Debug, Clone)]
pub(crate) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        if !is_json(request.headers()) {
            return Err(Refusal(Problem::new(
                415,
                "not_json",
                "JSON required",
                "The request body must be JSON. Send it with Content-Type: application/json.",
            )));
        }
        let bytes = Bytes::from_request(request, state).await?;
        read_json(&bytes).map(Self)
    }
}

/// An optional JSON body.
#[derive(Debug, Clone)]
pub(crate) struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        let whole = Request::from_parts(parts, Body::from(bytes));
        JsonBody::from_request(whole, state).await.map(|JsonBody(value)| Self(value))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(Strict(&mut reader)).map_err(|error| {
        let path = error.path().to_string();
        json_error(&path, error.inner())
    })?;
    reader.end().map_err(|error| json_error(".", &error))?;
    // This check comes last: a syntax or type error above is more specific, because it names the
    // field.
    if let Ok(text) = std::str::from_utf8(bytes) {
        written::check(text).map_err(|error| json_error(".", &error))?;
    }
    Ok(read)
}

fn json_error(path: &str, error: &serde_json::Error) -> Refusal {
    let place = match path {
        "." | "?" => String::new(),
        path => format!("{path}, "),
    };
    let at = shortened(format!("{place}line {}, column {}", error.line(), error.column()));
    // serde_json appends the position to its text, but `at` has it already.
    let text = error.to_string();
    let detail = shortened(describe_serde_error(text.split(" at line ").next().unwrap_or(&text)));
    let mut problem = Problem::invalid(format!("Invalid JSON body ({at}): {detail}."));
    problem.errors.push(Finding { at, detail });
    Refusal(problem)
}

/// Describes an invalid path parameter.
fn path_error(rejection: &PathRejection) -> String {
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return rejection.body_text();
    };
    let not = |value: &str, expected: &str| format!("{value:?} is not {expected}");
    match failed.kind() {
        ErrorKind::ParseError { value, expected_type }
        | ErrorKind::ParseErrorAtKey { value, expected_type, .. }
        | ErrorKind::ParseErrorAtIndex { value, expected_type, .. } => {
            not(value, describe_number_type(expected_type).unwrap_or("a valid value"))
        }
        ErrorKind::DeserializeError { value, message, .. } => match message.contains(UUID_ERROR) {
            true => not(value, ID_DESCRIPTION),
            false => format!("{value:?}: {}", describe_serde_error(message)),
        },
        other => other.to_string(),
    }
}

/// The library's error for an invalid id.
const UUID_ERROR: &str = "UUID parsing failed";
const ID_DESCRIPTION: &str = "an ID (example: 6f1c2d3e-0a1b-4c5d-8e9f-001122334455)";

/// A number type in plain words. `None` if the type is not a number.
fn describe_number_type(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" | "u128" => "a whole number of at least 0",
        "i8" => "a whole number from -128 to 127",
        "i16" => "a whole number from -32768 to 32767",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" | "isize" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        _ => return None,
    })
}

/// Messages of the JSON parser and their replacements.
const JSON_SYNTAX_ERRORS: [(&str, &str); 12] = [
    ("expected value", "a value is missing"),
    ("expected ident", "expected true, false, null or a string in quotation marks"),
    ("key must be a string", "a field name must be in quotation marks"),
    ("trailing comma", "trailing comma"),
    ("trailing characters", "unexpected characters after the end of the JSON value"),
    ("invalid number", "invalid number"),
    ("number out of range", "number out of range (valid: -1.7e308 to 1.7e308)"),
    ("invalid escape", "invalid escape sequence (write a backslash as \\\\)"),
    (
        "unexpected end of hex escape",
        "incomplete escape sequence (use \\u and four hexadecimal digits)",
    ),
    (
        "lone leading surrogate in hex escape",
        "the second half of a surrogate pair is missing in an escape sequence",
    ),
    ("invalid unicode code point", "invalid UTF-8"),
    (
        "control character (\\u0000-\\u001F) found while parsing a string",
        "a string contains a line break or another control character (write it as an escape \
         sequence: \\n)",
    ),
];

/// Matches a library's message about a field or value: at the start of the text, or after the name
/// of its location.
fn split_message<'t>(text: &'t str, words: &str) -> Option<(&'t str, &'t str)> {
    text.split_once(words).filter(|(place, _)| place.is_empty() || place.ends_with(": "))
}

/// Formats the names that a library lists.
fn listed(known: &str) -> String {
    known.strip_prefix("one of ").unwrap_or(known).replace("` or `", "`, `")
}

/// Rewrites a library's message about the input without Rust type names, which mean nothing to
/// clients.
fn describe_serde_error(text: &str) -> String {
    if let Some((before, _)) = text.split_once(UUID_ERROR) {
        return format!("{before}it must be {ID_DESCRIPTION}");
    }
    if let Some((_, plain)) = JSON_SYNTAX_ERRORS.into_iter().find(|(message, _)| *message == text) {
        return plain.to_owned();
    }
    if let Some((place, field)) = split_message(text, "missing field ") {
        return format!("{place}missing field {field}");
    }
    if let Some((place, rest)) = split_message(text, "unknown field ")
        && let Some((field, known)) = rest.split_once(", expected ")
    {
        return format!("{place}unknown field {field}. Valid fields: {}", listed(known));
    }
    if let Some((place, rest)) = split_message(text, "unknown variant ")
        && let Some((word, known)) = rest.split_once(", expected ")
    {
        return format!("{place}{word} is not a valid value. Valid values: {}", listed(known));
    }
    let text = match text.strip_prefix("EOF while parsing") {
        Some(_) => "unexpected end of JSON input",
        None => text,
    };
    let text = text
        .replace("invalid digit found in string", "it must be a whole number")
        .replace("number too large to fit in target type", "number out of range")
        .replace("invalid type: sequence", "invalid type: array")
        .replace("invalid type: map", "invalid type: object");
    let Some((before, expected)) = text.rsplit_once(", expected ") else { return text };
    let first = expected.split(' ').next().unwrap_or_default();
    let plain = match expected {
        "a map" => "an object",
        "a sequence" => "an array",
        "a boolean" => "true or false",
        "a string" => "a string",
        "a formatted UUID string" => ID_DESCRIPTION,
        _ if first == "struct" || expected.starts_with("internally tagged enum") => "an object",
        _ if first == "enum" => "one of the valid values",
        expected => describe_number_type(expected).unwrap_or(expected),
    };
    format!("{before}, expected {plain}")
}

/// The problem for a response that only has a status.
fn problem_for_status(status: StatusCode) -> Problem {
    match status {
        StatusCode::NOT_FOUND => Problem::not_found("This path does not exist. Check the URL."),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            405,
            "method_not_allowed",
            "Method not allowed",
            "This path does not support the request method.",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => {
            let (most, import) = (limits::MAX_BODY_BYTES >> 20, limits::MAX_IMPORT_BYTES >> 20);
            let detail = format!(
                "The request body is too large. The limit is {most} MiB, or {import} MiB for POST \
                 /api/v1/barclamps."
            );
            Problem::new(413, "too_large", "Request body too large", detail)
        }
        StatusCode::REQUEST_TIMEOUT => {
            let most = limits::BODY_TIMEOUT.as_secs();
            let detail = format!(
                "The request body did not arrive within {most} seconds. Nothing was changed. Send \
                 the request again."
            );
            Problem::new(408, "body_too_slow", "Request body timed out", detail)
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Problem::new(
            415,
            "unsupported",
            "Unsupported media type",
            "This path does not support the Content-Type of the body. Check that header.",
        ),
        status if status.is_client_error() => Problem::new(
            status.as_u16(),
            "refused",
            status.canonical_reason().unwrap_or("Request rejected"),
            "The server cannot process this request. Check its URL, headers and body.",
        ),
        status => Problem { status: status.as_u16(), ..Problem::internal() },
    }
}

/// Like `problem_for_status`. For 405, also lists the methods that the path supports.
fn problem_for_response(status: StatusCode, headers: &HeaderMap) -> Problem {
    let problem = problem_for_status(status);
    let allowed =
        headers.get(header::ALLOW).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let allowed: Vec<&str> =
        allowed.split(',').map(str::trim).filter(|method| !method.is_empty()).collect();
    match (status, allowed.as_slice()) {
        (StatusCode::METHOD_NOT_ALLOWED, [_, ..]) => Problem {
            detail: format!("{} Use one of: {}.", problem.detail, allowed.join(", ")),
            ..problem
        },
        _ => problem,
    }
}

/// Adds to an error the people who can grant the missing permission. It queries the database, so it
/// must run within the request's limits.
pub(crate) async fn add_admin_contacts(state: &AppState, mut answer: Response) -> Response {
    if let Some(Refusal(problem)) = answer.extensions_mut().remove::<Refusal>() {
        let refusal = Refusal(state.control.add_admin_contacts(problem).await);
        answer.extensions_mut().insert(refusal);
    }
    answer
}

/// Converts every error response to the standard format.
pub(crate) async fn shape(request: Request, next: Next) -> Response {
    let expects_page = expects_page(&request);
    let mut answer = next.run(request).await;
    let status = answer.status();
    let known = answer.extensions().get::<Refusal>().cloned();
    let is_retryable =
        known.as_ref().is_none_or(|Refusal(problem)| problem.code != UNKNOWN_OUTCOME);
    // Pages and layers know no better time.
    if status == StatusCode::SERVICE_UNAVAILABLE
        && is_retryable
        && !answer.headers().contains_key(header::RETRY_AFTER)
    {
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(DEFAULT_RETRY_AFTER.as_secs()));
    }
    if !status.is_client_error() && !status.is_server_error() {
        return answer;
    }
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, www_authenticate(known.as_ref()));
    }
    let refusal = match known {
        Some(refusal) if !expects_page => refusal.for_api_clients(),
        Some(refusal) => refusal,
        None if has_custom_body(answer.headers()) => return answer,
        None => Refusal(problem_for_response(status, answer.headers())),
    };
    let mut formatted = match expects_page {
        true => (status, Html(page(&refusal.0))).into_response(),
        false => refusal.into_response(),
    };
    // Keeps headers such as `Allow`.
    formatted.headers_mut().remove(header::RETRY_AFTER);
    for (name, value) in answer.headers() {
        if !matches!(*name, header::CONTENT_TYPE | header::CONTENT_LENGTH) {
            formatted.headers_mut().append(name, value.clone());
        }
    }
    formatted
}

/// Whether the response already has a format: pages and server functions have their own. Layers and
/// the router send an empty body or a line of plain text.
fn has_custom_body(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    headers.contains_key("serverfnerror")
        || kind.is_some_and(|kind| !kind.starts_with("text/plain"))
}

/// Whether a browser navigates to a page, as opposed to an API client or a script that fetches
/// data.
pub(crate) fn expects_page(request: &Request) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::POST);
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    reads
        && !is_api_path(request.uri().path())
        && accepts.is_some_and(|kinds| kinds.contains("text/html"))
}

/// Paths that are never navigated to: the REST API and the server functions of pages.
pub(crate) fn is_api_path(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/call/")
}

fn page(problem: &Problem) -> String {
    let (title, detail) = (escaped(&problem.title), escaped(&problem.detail));
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><meta \
         name=\"color-scheme\" content=\"light dark\">\
         <title>{title} · Gantry</title></head><body><main><h1>{title}</h1><p>{detail}</p>\
         <p><a href=\"/\">Go to the overview</a></p></main></body></html>"
    )
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '<' | '>' | '&' | '"' | '\'' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use crate::http::problems::*;

    #[derive(Debug, serde::Deserialize)]
    struct TestBody {
        #[expect(dead_code, reason = "only read to fail")]
        edits: Vec<Inner>,
    }
    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        #[expect(dead_code, reason = "only read to fail")]
        version: u8,
    }

    #[test]
    fn invalid_value_names_field_and_position() {
        let cases = [
            r#"{"edits":[{"version":1},{"version":"x"}]}"#,
            "{\n  \"edits\": [,]\n}",
            "",
            r#"{"edits":[]} and more"#,
            r#"{"edits":[{"version":999}]}"#,
        ];
        let problems: Vec<_> = cases
            .iter()
            .map(|text| read_json::<TestBody>(text.as_bytes()).expect_err("a refusal").0)
            .collect();
        insta::assert_yaml_snapshot!(problems);
        let deep = "[".repeat(100_000);
        assert_eq!(
            read_json::<serde_json::Value>(deep.as_bytes()).expect_err("a refusal").0.status,
            400
        );
    }

    #[test]
    fn body_depth_matches_documented_limit() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let read = |levels| {
            read_json::<serde_json::Value>(nested(levels).as_bytes())
                .map_err(|refusal| refusal.0.status)
        };
        assert!(read(limits::MAX_JSON_DEPTH).is_ok());
        assert_eq!(read(limits::MAX_JSON_DEPTH + 1).map(drop), Err(400));
    }

    #[test]
    fn rust_types_are_described_as_text() {
        for (text, expected) in [
            (
                "invalid type: integer `7`, expected struct NodeRequest",
                "invalid type: integer `7`, expected an object",
            ),
            (
                "invalid type: sequence, expected internally tagged enum Edit",
                "invalid type: array, expected an object",
            ),
            (
                "invalid type: string \"x\", expected i64",
                "invalid type: string \"x\", expected a whole number",
            ),
            (
                "invalid value: integer `999`, expected u8",
                "invalid value: integer `999`, expected a whole number from 0 to 255",
            ),
            (
                "invalid value: integer `999999999999`, expected i32",
                "invalid value: integer `999999999999`, expected a whole number from -2147483648 \
                 to 2147483647",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
            ),
            ("before: invalid digit found in string", "before: it must be a whole number"),
            (
                "unknown field `a`, expected one of `b`, `c`",
                "unknown field `a`. Valid fields: `b`, `c`",
            ),
            (
                "x: unknown field `a`, expected `b` or `c`",
                "x: unknown field `a`. Valid fields: `b`, `c`",
            ),
            ("unknown variant `a`, expected `b`", "`a` is not a valid value. Valid values: `b`"),
            ("missing field `a`", "missing field `a`"),
            ("a text, missing field `a`", "a text, missing field `a`"),
            ("EOF while parsing an object", "unexpected end of JSON input"),
        ] {
            assert_eq!(describe_serde_error(text), expected);
        }
        assert!(
            describe_serde_error("UUID parsing failed: invalid character: found `x` at 0")
                .starts_with("it must be an ID")
        );
    }

    /// Uses the library itself, so that a change of its messages is noticed.
    #[test]
    fn invalid_json_is_described_as_text() {
        for (sent, expected) in [
            (r#"{"a": }"#, "a value is missing"),
            ("nothing", "expected true, false, null or a string in quotation marks"),
            ("{1: 2}", "a field name must be in quotation marks"),
            ("[1,]", "trailing comma"),
            ("{} {}", "unexpected characters after the end of the JSON value"),
            ("[-]", "invalid number"),
            (r#"["\q"]"#, r"invalid escape sequence (write a backslash as \\)"),
            (r#"["\ud800"]"#, r"incomplete escape sequence (use \u and four hexadecimal digits)"),
            (
                "[\"a\nb\"]",
                "a string contains a line break or another control character (write it as an \
                 escape sequence: \\n)",
            ),
        ] {
            let Refusal(problem) =
                read_json::<serde_json::Value>(sent.as_bytes()).expect_err("invalid JSON");
            assert_eq!(problem.errors[0].detail, expected, "{sent}");
        }
        let Refusal(problem) =
            read_json::<serde_json::Value>(b"[\"\xff\"]").expect_err("invalid UTF-8");
        assert_eq!(problem.errors[0].detail, "invalid UTF-8");
    }

    #[test]
    fn error_pages_escape_markup() {
        let page = page(&Problem::not_found("There is no <script>alert('x')</script> & \"more\"."));
        assert!(!page.contains("<script") && page.contains("&#60;script&#62;"));
    }

    #[test]
    fn duplicate_json_key_is_rejected() {
        assert!(read_json::<serde_json::Value>(b"{\"a\": 1, \"b\": 1}").is_ok());
        let twice = b"{\"data\": {\"a\": 1,\n\"a\": 2}}";
        let Refusal(problem) = read_json::<serde_json::Value>(twice).expect_err("a duplicate key");
        assert!(problem.errors[0].at.starts_with("line 2"), "{problem:?}");
        assert!(problem.detail.contains("duplicate key"), "{problem:?}");
    }
}
