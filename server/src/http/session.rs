//! Authenticates requests: session cookie or token, and the actor.
//!
//! If a request has `Authorization`, only that counts and its cookies are ignored. A browser never
//! adds that header itself, and a cross-origin script can't add it without a preflight. Such a
//! request therefore needs no further cross-site check ([`crate::http::guard`]). Tokens are for API
//! clients: REST, the live stream, downloads. Pages and their server functions accept only the
//! cookie.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::CookieJar;

use api::Problem;
use api::problem::TOKEN_REFUSED;
use app::addresses;
use control::people::{Actor, ClientInfo};

use crate::AppState;
use crate::http::access_log::RequestPerson;
use crate::http::problems::{Refusal, expects_page};

/// The authenticated client of a request, set by the session middleware. `None` if it is not signed
/// in.
#[derive(Debug, Clone)]
pub(crate) struct RequestActor(pub Option<Actor>);

/// The bearer token of a request, if it has `Authorization`. Another scheme counts as an empty
/// token, which is never valid.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let sent = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or_default();
    let token = sent.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Some(token.map(|(_, token)| token.trim()).unwrap_or_default())
}

/// The actor of a request that requires authentication.
#[derive(Debug, Clone)]
pub(crate) struct SignedIn(pub Actor);

impl FromRequestParts<AppState> for SignedIn {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Refusal> {
        let actor = parts.extensions.get::<RequestActor>().and_then(|who| who.0.clone());
        actor.map(Self).ok_or_else(|| {
            Refusal(match bearer(&parts.headers) {
                None => Problem::signed_out(),
                Some(_) => Problem::new(
                    401,
                    TOKEN_REFUSED,
                    "Invalid token",
                    "The token is unknown, expired or revoked, or its owner is disabled. Send a \
                     valid token: Authorization: Bearer gantry_...",
                ),
            })
        })
    }
}

/// The session cookie of a request, valid or not.
pub(crate) fn cookie(state: &AppState, headers: &HeaderMap) -> Option<String> {
    CookieJar::from_headers(headers)
        .get(state.address.session_cookie().name())
        .map(|cookie| cookie.value().to_owned())
}

/// Looks up the actor of a session.
pub(crate) async fn session_actor(
    state: &AppState,
    headers: &HeaderMap,
) -> Result<Option<Actor>, Problem> {
    match cookie(state, headers).filter(|_| bearer(headers).is_none()) {
        Some(cookie) => state.people.actor_of_session(&cookie).await,
        None => Ok(None),
    }
}

/// Paths that a session may use before it has set its required password.
const PATHS_BEFORE_PASSWORD: [&str; 8] = [
    "/api/v1/people/me",
    "/api/v1/me/password",
    "/api/v1/me/second-factor",
    "/call/account",
    "/call/frame",
    "/call/set-password",
    "/call/sign-out",
    "/sign-out",
];

/// Rejects other paths for a session that must set a password first. Redirects a browser to that
/// page.
fn require_password_set(request: &Request, actor: Option<&Actor>) -> Option<Response> {
    let refused = actor?.require_password().err()?;
    let path = request.uri().path();
    if path == addresses::ACCOUNT || PATHS_BEFORE_PASSWORD.contains(&path) {
        return None;
    }
    Some(match expects_page(request) {
        true => Redirect::to(addresses::SET_PASSWORD).into_response(),
        false => Refusal(refused).into_response(),
    })
}

/// Paths that a session may use before it has presented its second factor. The database accepts a
/// passkey only as the first factor of its person.
const PATHS_BEFORE_SECOND_FACTOR: [&str; 15] = [
    "/api/v1/me/passkeys",
    "/api/v1/me/passkeys/options",
    "/api/v1/me/second-factor",
    "/api/v1/me/second-factor/options",
    "/api/v1/me/totp",
    "/api/v1/me/totp/confirm",
    "/call/factor-options",
    "/call/passkey-options",
    "/call/present-passkey",
    "/call/register-passkey",
    "/call/second-factor",
    "/call/sign-out",
    "/second-factor",
    "/sign-out",
    "/sign-in",
];

/// Rejects other paths for a session without its second factor. Redirects a browser to that page.
fn require_second_factor(request: &Request, actor: Option<&Actor>) -> Option<Response> {
    let refused = actor?.require_factor().err()?;
    if PATHS_BEFORE_SECOND_FACTOR.contains(&request.uri().path()) {
        return None;
    }
    let place = request.uri().path_and_query().map(|place| place.as_str()).unwrap_or_default();
    Some(match expects_page(request) {
        true => Redirect::to(&addresses::second_factor_with_next(place)).into_response(),
        false => Refusal(refused).into_response(),
    })
}

/// The response to a session that may not use this path yet.
fn before(request: &Request, actor: Option<&Actor>) -> Option<Response> {
    match actor.is_some_and(Actor::needs_password) {
        true => require_password_set(request, actor),
        false => require_second_factor(request, actor),
    }
}

/// Adds [`RequestActor`] to a page request.
pub(crate) async fn look_up(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    match session_actor(&state, request.headers()).await {
        Ok(actor) => {
            if let Some(refused) = before(&request, actor.as_ref()) {
                return refused;
            }
            RequestPerson::set(&request, actor.as_ref());
            request.extensions_mut().insert(RequestActor(actor));
            next.run(request).await
        }
        Err(problem) => Refusal(problem).into_response(),
    }
}

/// Adds [`RequestActor`] to a request that may use a token. The audit records the token.
pub(crate) async fn authenticate(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let found = match bearer(request.headers()) {
        Some(token) => state.people.actor_of_token(token).await,
        None => session_actor(&state, request.headers()).await,
    };
    let actor = match found {
        Ok(actor) => actor,
        Err(problem) => return Refusal(problem).into_response(),
    };
    if let Some(refused) = before(&request, actor.as_ref()) {
        return refused;
    }
    RequestPerson::set(&request, actor.as_ref());
    let token = actor.as_ref().and_then(|actor| actor.token.as_ref()).map(|token| token.id);
    request.extensions_mut().insert(RequestActor(actor));
    match token {
        Some(token) => store::audit::run_with_token(token, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// Redirects a browser without a session to the sign-in page, and back afterwards.
pub(crate) async fn redirect_to_sign_in(request: Request, next: Next) -> Response {
    let signed_in = request.extensions().get::<RequestActor>().is_some_and(|who| who.0.is_some());
    let path = request.uri().path();
    if signed_in || path == addresses::SIGN_IN || !expects_page(&request) {
        return next.run(request).await;
    }
    match request.uri().path_and_query().map(|place| place.as_str()) {
        None | Some("/") => Redirect::to(addresses::SIGN_IN).into_response(),
        Some(place) => Redirect::to(&addresses::sign_in_with_next(place)).into_response(),
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Client(pub ClientInfo);

impl FromRequestParts<AppState> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &AppState,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self(visitor(state, parts)))
    }
}

/// The origin of a request, for the audit and for rate limits. Over HTTPS, a reverse proxy reports
/// the address ([`crate::http::proxies`]). A server for this machine only has no proxy.
pub(crate) fn visitor(state: &AppState, parts: &Parts) -> ClientInfo {
    let connected = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    ClientInfo {
        address: match state.address.is_secure() {
            true => state.proxies.client_address(connected, &parts.headers),
            false => connected,
        },
        user_agent: agent.unwrap_or_default().to_owned(),
    }
}
