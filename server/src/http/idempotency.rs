//! `Idempotency-Key`: a repeated POST is executed only once.
//!
//! A client that gets no response does not know whether its request was executed. With a key it can
//! repeat the request safely. The first request with a key claims the key and is executed. Its
//! response is stored for 24 hours. A repeated request with the same key gets the stored response
//! (`Idempotency-Replayed: true`). A different request with that key gets 422. A request that
//! arrives while the first one is in progress gets 409 with `Retry-After`.
//!
//! * Only successful responses (2xx) are stored. An error frees the key.
//! * A response that shows a secret, or that is too large, is not stored. A repeated request then
//!   gets 409, which says that the first one succeeded.
//! * Keys belong to a person. Requests are compared by a digest of method, path, `If-Match`, token
//!   (none for a session) and body.
//! * A claim is renewed while its request is in progress, so a repeated request never executes
//!   concurrently.
//!
//! The response is stored after the work, in a separate transaction. If a server dies between the
//! two, the claim has no response. The key stays claimed for two minutes. After that, a repeated
//! request is executed again. Most operations reject this themselves (proposal version, committed
//! review, name in use). Others, such as comments and tokens, create a duplicate. `docs/api.md`
//! documents this.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::Control;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use store::StoreError;
use store::idempotency::{
    Claimed, Key, LEASE, OmitReason, StoredResponse, claim_key, release_key, renew_claim,
    store_response,
};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use api::Problem;
use api::problem::DEFAULT_RETRY_AFTER;

use crate::AppState;
use crate::http::problems::Refusal;
use crate::http::session::RequestActor;

/// Maximum length of an idempotency key in characters.
pub(crate) const MAX_KEY_LENGTH: usize = 255;

pub(crate) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum size of a stored response in bytes.
const MAX: usize = 64 * 1024;
/// Headers that are stored with a response. All others are the same for every response.
const STORED_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::LOCATION, header::ETAG];

/// Executes a request once for its key. `secret`: its response shows a secret.
pub(crate) async fn once(state: &AppState, request: Request, next: Next, secret: bool) -> Response {
    match claim(state, request).await {
        Ok(Handling::Run(request, None)) => next.run(request).await,
        Ok(Handling::Run(request, Some((key, claim)))) => {
            let renewal = AbortOnDropHandle::new(tokio::spawn(renew(
                state.control.clone(),
                key.clone(),
                claim,
            )));
            let answer = next.run(request).await;
            drop(renewal);
            note(state, &key, claim, answer, secret).await
        }
        Ok(Handling::Answer(answer)) => answer,
        Err(refusal) => refusal.into_response(),
    }
}

/// How to handle a request.
enum Handling {
    Run(Request, Option<(Key, Uuid)>),
    Answer(Response),
}

/// Renews a claim until it is stopped or another request has the claim.
async fn renew(control: Arc<Control>, key: Key, claim: Uuid) {
    loop {
        tokio::time::sleep(LEASE / 4).await;
        match renew_claim(control.store().pool(), &key, claim).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot renew the claim of an idempotency key")
            }
        }
    }
}

async fn claim(state: &AppState, request: Request) -> Result<Handling, Refusal> {
    let word = word(request.headers())?;
    let actor = request.extensions().get::<RequestActor>().and_then(|who| who.0.as_ref());
    // Without an actor, an inner layer rejects the request.
    let Some(actor) = actor else { return Ok(Handling::Run(request, None)) };
    let person = actor.person;
    let token = actor.token.as_ref().map(|token| token.id.into_bytes()).unwrap_or_default();
    let (parts, body) = request.into_parts();
    let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await?;
    let place = parts.uri.path_and_query().map_or(parts.uri.path(), |place| place.as_str());
    let mut digest = Sha256::new();
    let versions = parts.headers.get_all(header::IF_MATCH).iter().map(HeaderValue::as_bytes);
    let versions = versions.collect::<Vec<_>>().join(&b","[..]);
    for part in [parts.method.as_str().as_bytes(), place.as_bytes(), &versions, &token, &bytes] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let key = Key { person, key: word, request: digest.finalize().into() };
    let mut connection =
        state.control.store().pool().acquire().await.map_err(|error| away(&error.into()))?;
    match claim_key(&mut connection, &key).await.map_err(|error| away(&error))? {
        Claimed::Yours(claim) => {
            Ok(Handling::Run(Request::from_parts(parts, Body::from(bytes)), Some((key, claim))))
        }
        Claimed::Completed(stored) => Ok(Handling::Answer(again(stored))),
        Claimed::UnderWay(seconds) => {
            let problem = Problem::conflict(
                "in_progress",
                "A request with this idempotency key is still running. Send it again later to get \
                 its response.",
            );
            // The request usually ends long before its claim expires.
            Err(Refusal(problem.again_after(Duration::from_secs(seconds).min(DEFAULT_RETRY_AFTER))))
        }
        Claimed::Other => Err(Refusal(Problem::new(
            422,
            "idempotency_key_reused",
            "Idempotency key already used",
            "You used this Idempotency-Key for another request within the last 24 hours. Use a new \
             key for each request.",
        ))),
        Claimed::TooMany(seconds) => Err(Refusal(
            Problem::new(
                429,
                "too_many_keys",
                "Too many idempotency keys",
                format!(
                    "You used {} keys within 24 hours, which is the limit. Omit the key for \
                     requests that may run twice.",
                    store::idempotency::MAX_KEYS
                ),
            )
            .again_after(Duration::from_secs(seconds)),
        )),
    }
}

/// The database did not answer, so nothing was executed.
fn away(error: &StoreError) -> Refusal {
    tracing::warn!(%error, "cannot claim an idempotency key");
    Refusal(Problem::unavailable(
        "The database is not available. Nothing was changed. Send the request again.",
    ))
}

fn word(headers: &HeaderMap) -> Result<String, Problem> {
    let mut all = headers.get_all(KEY).iter();
    let only = all.next().filter(|_| all.next().is_none()).and_then(|value| value.to_str().ok());
    let is_valid = |text: &&str| {
        (1..=MAX_KEY_LENGTH).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    only.filter(is_valid).map(str::to_owned).ok_or_else(|| {
        Problem::invalid(format!(
            "Invalid Idempotency-Key: send one key of 1 to {MAX_KEY_LENGTH} visible ASCII \
             characters, such as a UUID."
        ))
    })
}

fn again(stored: StoredResponse) -> Response {
    let mut answer = match stored.body {
        Ok(body) => {
            let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
            let mut answer = (status, Body::from(body)).into_response();
            for name in STORED_HEADERS {
                let value = stored.headers.get(name.as_str()).and_then(Value::as_str);
                if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                    answer.headers_mut().insert(name, value);
                }
            }
            answer
        }
        Err(OmitReason::Secret) => Refusal(Problem::conflict(
            "shown_once",
            "The first request with this key succeeded. Its response contained a secret, which is \
             not stored. If you did not receive it, revoke the result and create another one with \
             a new key.",
        ))
        .into_response(),
        Err(OmitReason::TooLarge) => Refusal(Problem::conflict(
            "response_not_stored",
            "The first request with this key succeeded, but its response was too large to store. \
             Fetch the result with a GET request.",
        ))
        .into_response(),
    };
    answer.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    answer
}

/// Stores the response, or frees the key.
async fn note(
    state: &AppState,
    key: &Key,
    claim: Uuid,
    answer: Response,
    secret: bool,
) -> Response {
    let (parts, body) = answer.into_parts();
    // The body is in memory already, because a handler made it from a value.
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return Refusal(Problem::internal()).into_response();
    };
    let pairs = STORED_HEADERS.iter().filter_map(|name| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), Value::from(value)))
    });
    let body = match secret {
        true => Err(OmitReason::Secret),
        false if bytes.len() > MAX => Err(OmitReason::TooLarge),
        false => Ok(bytes.to_vec()),
    };
    let stored = StoredResponse {
        status: parts.status.as_u16(),
        headers: Value::Object(pairs.collect()),
        body,
    };
    let noted = async {
        let mut connection = state.control.store().pool().acquire().await?;
        match parts.status.is_success() {
            true => store_response(&mut connection, key, claim, &stored).await.map(drop),
            false => release_key(&mut connection, key, claim).await,
        }
    };
    if let Err(error) = noted.await {
        tracing::warn!(%error, "cannot store a response under its idempotency key");
    }
    Response::from_parts(parts, Body::from(bytes))
}
