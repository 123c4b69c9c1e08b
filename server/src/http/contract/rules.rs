//! Rules for all operations.
//!
//! * An unknown query parameter is rejected. Otherwise a misspelled filter would return everything.
//! * A JSON response to a read has a strong entity tag: the digest of its bytes, with the version
//!   as prefix if the resource has one. So an unchanged response needs no body (304). A change
//!   compares only the version ([`version`]): the state that workers report changes all the time,
//!   and must not cause conflicts for users.
//! * An operation that does not support `If-Match` rejects it, because the client relies on it.
//! * A POST with an idempotency key is executed once ([`crate::http::idempotency`]).
//!
//! Compression changes the bytes of a response. [`add_encoding_to_etag`], the outer layer, gives
//! these a tag of their own.

use std::sync::Arc;

use api::Problem;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::Hash;

use crate::AppState;
use crate::http::contract::Operation;
use crate::http::contract::describe::{Caller, OperationTypes, Version};
use crate::http::idempotency;
use crate::http::problems::Refusal;

/// Maximum number of known parameters that an error lists.
const MAX_LISTED_PARAMETERS: usize = 20;
/// Encodings that may be the suffix of a tag.
const ENCODING_SUFFIXES: [&str; 4] = ["-br", "-gzip", "-zstd", "-deflate"];

/// Whether requests may have an idempotency key.
pub(crate) fn accepts_idempotency_key(method: &Method, caller: Caller) -> bool {
    *method == Method::POST && caller == Caller::Person
}

/// Rules of one operation.
#[derive(Clone)]
pub(crate) struct Rules {
    state: AppState,
    of: Arc<RequestParams>,
}

struct RequestParams {
    /// Sorted query parameters.
    words: Vec<String>,
    on_version: bool,
    reads: bool,
    accepts_idempotency_key: bool,
    secret: bool,
}

impl Rules {
    pub(crate) fn of(operation: &Operation, types: &OperationTypes<'_>, state: &AppState) -> Self {
        let of = RequestParams {
            words: types.query.keys().cloned().collect(),
            on_version: operation.op.on_version,
            reads: operation.method == Method::GET,
            accepts_idempotency_key: accepts_idempotency_key(&operation.method, types.caller),
            secret: operation.op.secret,
        };
        debug_assert!(
            of.accepts_idempotency_key || !of.secret || types.caller != Caller::Person,
            "an operation that returns a secret must be a POST"
        );
        Self { state: state.clone(), of: Arc::new(of) }
    }
}

/// Applies the rules to a request.
pub(crate) async fn pass(State(rules): State<Rules>, request: Request, next: Next) -> Response {
    let of = &rules.of;
    if let Err(problem) = known(&of.words, request.uri().query().unwrap_or_default()) {
        return Refusal(problem).into_response();
    }
    let headers = request.headers();
    if !of.reads && !of.on_version && headers.get(header::IF_MATCH).is_some_and(|tag| tag != "*") {
        return Refusal(Problem::invalid(
            "This operation does not support If-Match. The resource has no version, or the body \
             contains it. Omit the header.",
        ))
        .into_response();
    }
    if of.accepts_idempotency_key && headers.contains_key(idempotency::KEY) {
        return idempotency::once(&rules.state, request, next, of.secret).await;
    }
    let if_none_match = of.reads.then(|| headers.get(header::IF_NONE_MATCH).cloned()).flatten();
    let answer = next.run(request).await;
    match of.reads {
        true => tagged(answer, if_none_match.as_ref()).await,
        false => answer,
    }
}

fn known(words: &[String], query: &str) -> Result<(), Problem> {
    let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
    let mut names = query.split('&').filter(|pair| !pair.is_empty()).map(name);
    let Some(unknown) = names.find(|name| !words.iter().any(|word| word == name)) else {
        return Ok(());
    };
    let unknown: String = unknown.chars().take(60).collect();
    let known = words.iter().take(MAX_LISTED_PARAMETERS).cloned().collect::<Vec<_>>().join(", ");
    let known = match known.as_str() {
        "" => "This operation has no parameters.".to_owned(),
        known => format!("Valid parameters: {known}."),
    };
    Err(Problem::invalid(format!("Unknown query parameter {unknown:?}. {known}")))
}

async fn tagged(answer: Response, if_none_match: Option<&HeaderValue>) -> Response {
    let is_json =
        answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if answer.status() != StatusCode::OK || !is_json || answer.headers().contains_key(header::ETAG)
    {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    // The body is in memory already, because a handler made it from a value.
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return Refusal(Problem::internal()).into_response();
    };
    let digest = Hash::of_bytes(&bytes).to_string();
    let tag = match parts.extensions.get::<Version>() {
        Some(Version(version)) => format!("\"{version}.{}\"", &digest[..16]),
        None => format!("\"{}\"", &digest[..16]),
    };
    let Ok(value) = HeaderValue::from_str(&tag) else {
        return (parts, Body::from(bytes)).into_response();
    };
    if let Some(same) = if_none_match.and_then(|if_none_match| named(if_none_match, &tag)) {
        let mut answer = StatusCode::NOT_MODIFIED.into_response();
        answer.headers_mut().insert(header::ETAG, HeaderValue::from_str(&same).unwrap_or(value));
        if let Some(vary) = parts.headers.remove(header::VARY) {
            answer.headers_mut().insert(header::VARY, vary);
        }
        return answer;
    }
    parts.headers.insert(header::ETAG, value);
    (parts, Body::from(bytes)).into_response()
}

/// Returns the tag that matches the response, as the client sent it (RFC 9110, 13.1.2: weak
/// comparison).
fn named(if_none_match: &HeaderValue, tag: &str) -> Option<String> {
    let if_none_match = if_none_match.to_str().ok()?;
    if if_none_match.trim() == "*" {
        return Some(tag.to_owned());
    }
    let plain = tag.trim_matches('"');
    let without_weak_prefix = |given: &str| given.trim().trim_start_matches("W/").to_owned();
    if_none_match
        .split(',')
        .map(without_weak_prefix)
        .find(|given| strip_encoding_suffix(given.trim_matches('"')) == plain)
}

fn strip_encoding_suffix(tag: &str) -> &str {
    ENCODING_SUFFIXES.iter().find_map(|coding| tag.strip_suffix(coding)).unwrap_or(tag)
}

/// Gives a compressed response its own tag, because its bytes differ.
pub(crate) async fn add_encoding_to_etag(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers();
    let coding = headers.get(header::CONTENT_ENCODING).and_then(|coding| coding.to_str().ok());
    let tag = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let Some((coding, tag)) = coding.zip(tag) else { return answer };
    let other = tag
        .strip_suffix('"')
        .filter(|tag| tag.starts_with('"'))
        .map(|tag| format!("{tag}-{coding}\""));
    if let Some(other) = other.and_then(|other| HeaderValue::from_str(&other).ok()) {
        answer.headers_mut().insert(header::ETAG, other);
    }
    answer
}

/// Parses the expected version from `If-Match`. `None` if the header is missing.
///
/// # Errors
/// If it has no version, or several.
pub(crate) fn version(headers: &HeaderMap) -> Result<Option<i32>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let tag = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let number = tag.and_then(|tag| tag.split('.').next()?.parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::invalid(
            "Invalid If-Match: send exactly one ETag, unchanged and in quotation marks.",
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::http::contract::rules::*;

    #[test]
    fn entity_tags_use_weak_comparison() {
        let tag = "\"3.0123456789abcdef\"";
        let same =
            |if_none_match: &'static str| named(&HeaderValue::from_static(if_none_match), tag);
        assert_eq!(same("\"3.0123456789abcdef\"").as_deref(), Some(tag));
        assert_eq!(
            same("\"x\", W/\"3.0123456789abcdef-br\"").as_deref(),
            Some("\"3.0123456789abcdef-br\"")
        );
        assert_eq!(same("*").as_deref(), Some(tag));
        for other in ["\"3\"", "", "3", "\"3.0123456789abcdee\"", "\"3.0123456789abcdef-xz\""] {
            assert_eq!(same(other), None, "{other}");
        }
    }

    #[test]
    fn if_match_names_exactly_one_version() {
        let of = |text: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_static(text))]);
            version(&headers).map_err(|problem| problem.status)
        };
        assert_eq!(version(&HeaderMap::new()), Ok(None));
        for same in ["\"3\"", " \"3.0123456789abcdef\"", "\"3.0123456789abcdef-gzip\""] {
            assert_eq!(of(same), Ok(Some(3)), "{same}");
        }
        for wrong in ["3", "*", "W/\"3\"", "\"\"", "\"3\", \"4\"", "\"x.1\""] {
            assert_eq!(of(wrong), Err(400), "{wrong}");
        }
    }

    #[test]
    fn unknown_parameter_error_lists_known_ones() {
        let words = ["after".to_owned(), "filter".to_owned()];
        for fine in ["", "after=1&filter=x", "&&", "after"] {
            assert_eq!(known(&words, fine), Ok(()), "{fine}");
        }
        let problem = known(&words, "filter=x&fitler=y").expect_err("a misspelled parameter");
        assert!(
            problem.detail.contains("\"fitler\"") && problem.detail.contains("after, filter"),
            "{problem}"
        );
        assert!(
            known(&[], "x")
                .expect_err("a route without parameters")
                .detail
                .contains("has no parameters")
        );
    }
}
