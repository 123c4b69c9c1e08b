//! `/api/v1/nodes/NODE` and `/api/v1/self`: a machine, by its name or id, and what it says of itself.
//!
//! The entity tag of a machine is the version of what people say of it; how it is at the moment is no part of that, so nobody is refused
//! a change because a worker looked meanwhile. A change names its version (`If-Match`).
//!
//! `/self` is for machines: who asks is known by `Authorization: Bearer TOKEN` alone. Such a token means nothing anywhere else, and a
//! person's or a program's means nothing here.

use std::collections::BTreeMap;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use api::nodes::{LookPage, MintedToken, NodeChange};
use api::{At, Problem};
use control::Itself;
use engine::ids::NodeId;

use crate::limits;
use crate::refusal::{Asked, Given, Perhaps, Place, Refusal};
use crate::rest::{Answer, Done, Made};
use crate::session::{self, SignedIn};
use crate::state::AppState;

pub(crate) fn routes() -> Router<AppState> {
    let of_itself = Router::new()
        .route("/self/startup", post(startup))
        .route("/self/shutdown", post(shutdown))
        .route("/self/bootenv", post(bootenv))
        .route("/self/facts", put(facts))
        .layer(DefaultBodyLimit::max(limits::REPORT_BODY));
    Router::new()
        .route("/nodes/{id}", get(node).patch(change).delete(take_out))
        .route("/nodes/{id}/looks", get(looks))
        .route("/nodes/{id}/availability", put(availability))
        .route("/nodes/{id}/tokens", post(mint))
        .route("/nodes/{id}/tokens/{token}", delete(revoke))
        .merge(of_itself)
}

/// An entity tag that names a version.
fn tag(version: i32) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The version that a change was made on; None: it does not say.
fn version(headers: &HeaderMap) -> Result<Option<i32>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::invalid(
            "If-Match: send the ETag of what you looked at as it is, with its quotation marks, and no other one.",
        )
    })
}

/// The machine that a path names as `{id}`: by its id, or by its name.
pub(crate) struct Machine(pub NodeId);

impl FromRequestParts<AppState> for Machine {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let SignedIn(actor) = SignedIn::from_request_parts(parts, state).await?;
        let Place(named) = Place::<BTreeMap<String, String>>::from_request_parts(parts, state).await?;
        let named = named.get("id").map(String::as_str).unwrap_or_default();
        Ok(Self(state.control.node_named(&actor, named).await?))
    }
}

async fn node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
) -> Result<Response, Refusal> {
    let node = state.control.node(&actor, &name).await?;
    Ok(([(header::ETAG, tag(node.version))], Json(node)).into_response())
}

#[derive(Debug, Serialize)]
struct Changed {
    version: i32,
}

async fn change(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(node): Machine,
    headers: HeaderMap,
    Given(change): Given<NodeChange>,
) -> Result<Response, Refusal> {
    let on = version(&headers)?.ok_or_else(|| {
        Problem::new(
            428,
            "version_wanted",
            "Say which version this is made on",
            "Send the ETag of the node as you looked at it: If-Match: \"3\". So nobody's change is lost by another's.",
        )
    })?;
    let version = state.control.change_node(&actor, node, on, change).await?;
    Ok(([(header::ETAG, tag(version))], Json(Changed { version })).into_response())
}

async fn take_out(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(node): Machine,
    headers: HeaderMap,
) -> Answer<Done> {
    state.control.take_out_node(&actor, node, version(&headers)?).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LooksWanted {
    before: Option<At>,
}

async fn looks(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(name): Place<String>,
    Asked(wanted): Asked<LooksWanted>,
) -> Answer<LookPage> {
    Ok(Json(state.control.node_looks(&actor, &name, wanted.before).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Availability {
    available: bool,
    reason: String,
}

async fn availability(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(node): Machine,
    Given(wanted): Given<Availability>,
) -> Answer<Done> {
    state.control.set_available(&actor, node, wanted.available, wanted.reason).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Minting {
    name: String,
    #[serde(default = "usual_days")]
    days: u32,
}

fn usual_days() -> u32 {
    90
}

async fn mint(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(node): Machine,
    Given(wanted): Given<Minting>,
) -> Made<MintedToken> {
    let minted = state.control.mint_node_token(&actor, node, wanted.name, wanted.days).await?;
    Ok((StatusCode::CREATED, Json(minted)))
}

/// The part of the path behind the machine.
#[derive(Debug, Deserialize)]
struct Revoked {
    token: Uuid,
}

async fn revoke(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Machine(node): Machine,
    Place(Revoked { token }): Place<Revoked>,
) -> Answer<Done> {
    state.control.revoke_node_token(&actor, node, token).await?;
    Ok(Json(Done {}))
}

/// The machine that a request comes from, by its token.
struct AsItself(Itself);

impl FromRequestParts<AppState> for AsItself {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let token = session::bearer(&parts.headers).unwrap_or_default();
        let visitor = session::visitor(&state.address, parts);
        Ok(Self(state.control.itself(token, &visitor).await?))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Startup {
    boot_id: String,
}

async fn startup(state: State<AppState>, AsItself(itself): AsItself, Given(said): Given<Startup>) -> Answer<Done> {
    state.control.report_startup(&itself, said.boot_id).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shutdown {}

async fn shutdown(state: State<AppState>, AsItself(itself): AsItself, Perhaps(_): Perhaps<Shutdown>) -> Answer<Done> {
    state.control.report_shutdown(&itself).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bootenv {
    bootenv: String,
}

async fn bootenv(state: State<AppState>, AsItself(itself): AsItself, Given(said): Given<Bootenv>) -> Answer<Done> {
    state.control.report_bootenv(&itself, said.bootenv).await?;
    Ok(Json(Done {}))
}

async fn facts(state: State<AppState>, AsItself(itself): AsItself, Given(facts): Given<Value>) -> Answer<Done> {
    state.control.report_facts(&itself, facts).await?;
    Ok(Json(Done {}))
}
