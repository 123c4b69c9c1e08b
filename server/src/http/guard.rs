//! Checks every request and adds headers to every response.
//!
//! **Cross-site requests.** A browser adds the session cookie to requests that any page triggers.
//! The cookie proves the user, not the user's intent. A request that may change something (any
//! method but GET, HEAD and OPTIONS) must prove that it comes from a page of this server, or from
//! no page at all:
//! * If `Sec-Fetch-Site` is present, it must be `same-origin`. Pages can't forge it. If `Origin` is
//!   present, it must be ours.
//! * Without both, the client is not a current browser and must send `X-Gantry: 1`. An API client
//!   can set it. A form can't, and a script of another origin would need a CORS preflight, which
//!   this server never grants.
//! * `Authorization: Bearer` is sufficient. No browser adds it on its own, a cross-origin script
//!   would need a preflight too, and cookies of such a request are ignored
//!   ([`crate::http::session`]).
//!
//! A GET changes nothing and needs no proof. `SameSite=Lax` on the cookie is a second defense.
//!
//! **Request smuggling.** A proxy and this server must not interpret one request differently. So a
//! request has exactly one `Host` header with one host, and a body of one length ([`check_head`]).
//!
//! **Content security.** A page may use only scripts with this response's nonce or from our files,
//! and our styles and fonts. Frames, plug-ins and `base` are forbidden. Responses that are not
//! pages may load nothing.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use api::Problem;

use crate::AppState;
use crate::http::address::PublicAddress;
use crate::http::limits;
use crate::http::problems::Refusal;
use crate::http::session;

/// The header that API clients send instead of an origin.
pub(crate) const API_CLIENT_HEADER: HeaderName = HeaderName::from_static("x-gantry");
const FETCH_SITE: &str = "sec-fetch-site";

/// The policy of responses that are not pages.
const DEFAULT_CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Default headers of every response.
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 11] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    // Requests to our own pages have a referrer, because forms without scripts return there. Other
    // sites get none.
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static(
            "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), \
             magnetometer=(), microphone=(), midi=(), payment=(), usb=()",
        ),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    // All resources of a page are ours, so it can be isolated from other origins.
    (
        HeaderName::from_static("cross-origin-embedder-policy"),
        HeaderValue::from_static("require-corp"),
    ),
    (HeaderName::from_static("origin-agent-cluster"), HeaderValue::from_static("?1")),
    (
        HeaderName::from_static("x-permitted-cross-domain-policies"),
        HeaderValue::from_static("none"),
    ),
    (header::CONTENT_SECURITY_POLICY, DEFAULT_CSP),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// The policy of a page. `nonce` is unique to this response.
pub(crate) fn page_csp(nonce: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!(
        "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'wasm-unsafe-eval'; style-src \
         'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src \
         'none'"
    ))
    .ok()
}

/// Rejects requests whose head another server may interpret differently, and heads above
/// [`limits::MAX_HEAD_BYTES`].
///
/// With `Transfer-Encoding`, hyper removes a `Content-Length` before a request gets here. So a
/// connection ends after every request with `Transfer-Encoding`: nothing after such a body is read
/// as a request (RFC 9112, 6.3).
pub(crate) async fn check_head(request: Request, next: Next) -> Response {
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let mut answer = match head_problem(&request) {
        Some(problem) => Refusal(problem).into_response(),
        None => return close_connection_if(is_chunked, next.run(request).await),
    };
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn close_connection_if(ends: bool, mut answer: Response) -> Response {
    if ends {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn head_problem(request: &Request) -> Option<Problem> {
    let bad = |detail: &str| Some(Problem::new(400, "bad_request", "Bad request", detail));
    let (headers, uri) = (request.headers(), request.uri());
    if head_size(request) > limits::MAX_HEAD_BYTES {
        let limit = limits::MAX_HEAD_BYTES / 1024;
        let detail = format!(
            "The request line and headers are larger than {limit} KiB. Send fewer or shorter \
             headers."
        );
        return Some(Problem::new(431, "head_too_large", "Request headers too large", detail));
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        return bad("The request has several Host headers. Send one.");
    }
    if let (Some(target), Some(host)) = (uri.authority(), first)
        && !host.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes())
    {
        return bad(
            "The request target and the Host header name different hosts. Send the same host in \
             both.",
        );
    }
    None
}

/// Size in bytes of a request line and headers, with separators.
fn head_size(request: &Request) -> usize {
    let uri = request.uri();
    let origin = uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len());
    let target = origin
        + uri.authority().map_or(0, |host| host.as_str().len())
        + uri.path_and_query().map_or(0, |path| path.as_str().len());
    let line = request.method().as_str().len() + target + "  HTTP/1.1\r\n".len();
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    line + request.headers().iter().map(header).sum::<usize>() + "\r\n".len()
}

/// Adds the default headers to a response.
pub(crate) async fn add_headers(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.entry(name).or_insert(value);
    }
    if state.address.is_secure() {
        let one_year = HeaderValue::from_static("max-age=31536000");
        headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(one_year);
    }
    answer
}

/// Rejects requests for other hosts and cross-site requests.
pub(crate) async fn pass(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let host = host(&request);
    if !host.as_deref().is_some_and(|host| state.address.is_host(host)) {
        return Refusal(Problem::new(
            StatusCode::MISDIRECTED_REQUEST.as_u16(),
            "other_host",
            "Unknown host name",
            format!(
                "The host name of the request is unknown. This server's address is {}. Use it, or \
                 start the server with another public address.",
                state.address
            ),
        ))
        .into_response();
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && !is_own(request.headers(), host.as_deref(), &state.address) {
        return Refusal(Problem::new(
            403,
            "other_origin",
            "Cross-site request rejected",
            "Changes are accepted only from this server's own pages. API clients must send the \
             header X-Gantry: 1.",
        ))
        .into_response();
    }
    if !is_identity(request.headers()) {
        let problem = Problem::new(
            415,
            "unsupported_encoding",
            "Unsupported content encoding",
            "The request body is compressed, and the server does not decompress it. Send it \
             without Content-Encoding.",
        );
        let supported = [(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))];
        return (supported, Refusal(problem)).into_response();
    }
    next.run(request).await
}

/// Whether the body has no `Content-Encoding`.
fn is_identity(headers: &HeaderMap) -> bool {
    let is_identity = |value: &HeaderValue| {
        value.to_str().is_ok_and(|codings| {
            codings.split(',').all(|coding| coding.trim().eq_ignore_ascii_case("identity"))
        })
    };
    headers.get_all(header::CONTENT_ENCODING).iter().all(is_identity)
}

fn host(request: &Request) -> Option<String> {
    let named = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    named
        .or_else(|| request.uri().authority().map(|authority| authority.as_str()))
        .map(str::to_owned)
}

fn is_own(headers: &HeaderMap, host: Option<&str>, address: &PublicAddress) -> bool {
    let site = headers.get(FETCH_SITE);
    let origin = headers.get(header::ORIGIN);
    let same_site = site.map(|site| site == "same-origin");
    let same_origin = origin
        .map(|origin| origin.to_str().is_ok_and(|origin| address.is_own_origin(origin, host)));
    match (same_site, same_origin) {
        (Some(false), _) | (_, Some(false)) => false,
        (Some(true), _) | (_, Some(true)) => true,
        (None, None) => {
            let is_bearer = session::bearer(headers).is_some_and(|token| !token.is_empty());
            is_bearer || headers.get(API_CLIENT_HEADER).is_some_and(|value| value == "1")
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::http::guard::*;

    fn own(headers: &[(&'static str, &'static str)]) -> bool {
        let address = "http://127.0.0.1:7700".parse().expect("an address");
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        is_own(&headers, Some("127.0.0.1:7700"), &address)
    }

    #[test]
    fn cross_site_changes_are_rejected() {
        let own_origin = ("origin", "http://127.0.0.1:7700");
        assert!(own(&[("sec-fetch-site", "same-origin")]));
        assert!(own(&[("sec-fetch-site", "same-origin"), own_origin]));
        assert!(own(&[own_origin]));
        assert!(own(&[("x-gantry", "1")]));
        assert!(own(&[("authorization", "Bearer gantry_x")]));
        assert!(!own(&[("authorization", "Basic YTpi")]) && !own(&[("authorization", "Bearer ")]));
        assert!(!own(&[("authorization", "Bearer gantry_x"), ("origin", "http://evil.example")]));
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!own(&[("sec-fetch-site", site), own_origin, ("x-gantry", "1")]), "{site}");
        }
        for origin in ["null", "http://127.0.0.1:7701", "http://evil.example"] {
            assert!(!own(&[("origin", origin), ("x-gantry", "1")]), "{origin}");
            assert!(!own(&[("origin", origin), ("sec-fetch-site", "same-origin")]), "{origin}");
        }
        assert!(!own(&[]) && !own(&[("x-gantry", "0")]));
    }
}
