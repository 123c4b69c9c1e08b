//! `/api/v1/nodes/NODE` and `/api/v1/self`: a node by its name or id, and the reports of a node.
//!
//! The entity tag of a node begins with the version of its record, and a change names that version
//! (`If-Match`). The node's actual state is not part of the version, so a health check never causes
//! a conflict for a user.
//!
//! `/self` is for nodes. The token in `Authorization: Bearer TOKEN` identifies the node. A node's
//! token is valid only here, and tokens of people are not valid here.

use api::Problem;
use api::nodes::{
    AddedNodes, CreatedNodeToken, HealthCheckPage, HealthChecksQuery, NodeChange, NodeNoderolePage,
    NodeNoderolesQuery, NodePage, NodeRequest, NodeView, NodesQuery,
};
use api::values::{ResultPage, ResultsQuery};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use control::{NodeAtVersion, NodeIdentity};
use engine::ids::NodeId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::AppState;
use crate::http::contract::{
    Caller, Created, DescribeInput, OperationTypes, Operations, Versioned, op, version,
};
use crate::http::limits;
use crate::http::problems::{JsonBody, OptionalJson, PathParams, QueryParams, Refusal};
use crate::http::session::{self, SignedIn};
use crate::rest::named::{NameOrId, PathNode};
use crate::rest::{Answer, CreatedResult, CreatedWithLocation, Success, SwitchRequest};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/nodes", nodes, op("listNodes", "List nodes"))
        .post("/nodes", add_node, op("addNode", "Add a node to the inventory"))
        .post(
            "/nodes/bulk",
            add_nodes,
            op("addNodes", "Add several nodes to the inventory").about(
                "`text` contains one node per line: its name, then fields, for example \
                 `web-7.rack1.example.com root=/srv/nodes/web-7`. docs/nodes.md lists all fields. \
                 If a line is invalid, no node is added, and `errors` lists the invalid lines.",
            ),
        )
        .get("/nodes/{id}", node, op("getNode", "Get a node"))
        .patch(
            "/nodes/{id}",
            change,
            op("changeNode", "Change the record of a node").on_version().also(&[428]),
        )
        .delete(
            "/nodes/{id}",
            delete_node,
            op("removeNode", "Remove a node that is not part of a blueprint").on_version(),
        )
        .get(
            "/nodes/{id}/health-checks",
            health_checks,
            op("listHealthChecks", "List the health checks of a node"),
        )
        .get(
            "/nodes/{id}/noderoles",
            noderoles,
            op("listNodeNoderoles", "List the noderoles of a node"),
        )
        .get("/nodes/{id}/results", results, op("listResults", "List the stored results of a node"))
        .post(
            "/nodes/{id}/start-maintenance",
            start_maintenance,
            op("startMaintenance", "Start the maintenance of a node").on_version(),
        )
        .post(
            "/nodes/{id}/end-maintenance",
            end_maintenance,
            op("endMaintenance", "End the maintenance of a node").on_version(),
        )
        .post(
            "/nodes/{id}/tokens",
            create_token,
            op("createNodeToken", "Create a token for a node").on_version().secret(),
        )
        .delete(
            "/nodes/{id}/tokens/{token}",
            revoke,
            op("revokeNodeToken", "Revoke a token of a node").on_version(),
        )
        .post(
            "/self/startup",
            startup,
            op("reportStartup", "Report the startup of the calling node")
                .body(limits::MAX_REPORT_BYTES),
        )
        .post(
            "/self/shutdown",
            shutdown,
            op("reportShutdown", "Report the shutdown of the calling node")
                .body(limits::MAX_REPORT_BYTES),
        )
        .post(
            "/self/bootenv",
            bootenv,
            op("reportBootenv", "Report the boot environment of the calling node")
                .body(limits::MAX_REPORT_BYTES),
        )
        .put(
            "/self/facts",
            facts,
            op("reportFacts", "Report the facts of the calling node")
                .body(limits::MAX_REPORT_BYTES),
        )
}

/// An entity tag with a version.
fn tag(version: i32) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

async fn node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
) -> Result<Versioned<NodeView>, Refusal> {
    let node = state.control.node(&actor, &name).await?;
    Ok(Versioned(node.version.into(), node))
}

#[derive(Debug, Serialize, JsonSchema)]
struct NodeVersion {
    version: i32,
}

async fn change(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    headers: HeaderMap,
    JsonBody(change): JsonBody<NodeChange>,
) -> Result<([(HeaderName, HeaderValue); 1], Json<NodeVersion>), Refusal> {
    let on = version(&headers)?.ok_or_else(|| {
        Problem::new(
            428,
            "version_required",
            "Version required",
            "Fetch the node and send its ETag header as If-Match. The version protects \
             changes by other people.",
        )
    })?;
    let version = state.control.change_node(&actor, node, on, change).await?;
    Ok(([(header::ETAG, tag(version))], Json(NodeVersion { version })))
}

async fn delete_node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    headers: HeaderMap,
) -> Answer<Success> {
    state.control.delete_node(&actor, node, version(&headers)?).await?;
    Ok(Json(Success {}))
}

async fn health_checks(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    QueryParams(query): QueryParams<HealthChecksQuery>,
) -> Answer<HealthCheckPage> {
    Ok(Json(state.control.node_health_checks(&actor, &name, &query).await?))
}

async fn noderoles(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    QueryParams(query): QueryParams<NodeNoderolesQuery>,
) -> Answer<NodeNoderolePage> {
    Ok(Json(state.control.node_noderoles(&actor, &name, &query).await?))
}

async fn start_maintenance(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    headers: HeaderMap,
    JsonBody(body): JsonBody<SwitchRequest>,
) -> Answer<Success> {
    let node = NodeAtVersion { node, version: version(&headers)? };
    state.control.set_maintenance(&actor, node, true, body.reason).await?;
    Ok(Json(Success {}))
}

async fn end_maintenance(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SwitchRequest>,
) -> Answer<Success> {
    let node = NodeAtVersion { node, version: version(&headers)? };
    state.control.set_maintenance(&actor, node, false, request.reason).await?;
    Ok(Json(Success {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeTokenRequest {
    name: String,
    #[serde(default = "api::people::default_days")]
    #[schemars(range(min = 1, max = api::limits::NODE_TOKEN_DAYS))]
    days: u32,
}

async fn create_token(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    headers: HeaderMap,
    JsonBody(request): JsonBody<NodeTokenRequest>,
) -> CreatedWithLocation<CreatedNodeToken> {
    let created = state
        .control
        .create_node_token(
            &actor,
            NodeAtVersion { node, version: version(&headers)? },
            request.name,
            request.days,
        )
        .await?;
    Ok(Created(format!("/nodes/{node}/tokens/{}", created.id), created))
}

/// The path parameters after the node.
#[derive(Debug, Deserialize)]
struct Revoked {
    token: Uuid,
}

impl FromRequestParts<AppState> for Revoked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        PathParams::from_request_parts(parts, state).await.map(|PathParams(revoked)| revoked)
    }
}

impl DescribeInput for Revoked {
    fn describe(types: &mut OperationTypes<'_>) {
        types.places.push(json!({"type": "string", "format": "uuid"}));
    }
}

async fn revoke(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(node): PathNode,
    Revoked { token }: Revoked,
    headers: HeaderMap,
) -> Answer<Success> {
    state
        .control
        .revoke_node_token(&actor, NodeAtVersion { node, version: version(&headers)? }, token)
        .await?;
    Ok(Json(Success {}))
}

/// The node that a request comes from, identified by its token.
struct AuthenticatedNode(NodeIdentity);

impl FromRequestParts<AppState> for AuthenticatedNode {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let token = session::bearer(&parts.headers).unwrap_or_default();
        let visitor = session::visitor(state, parts);
        Ok(Self(state.control.authenticate_node(token, &visitor).await?))
    }
}

impl DescribeInput for AuthenticatedNode {
    fn describe(types: &mut OperationTypes<'_>) {
        types.caller = Caller::Node;
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Startup {
    boot_id: String,
}

async fn startup(
    state: State<AppState>,
    AuthenticatedNode(identity): AuthenticatedNode,
    JsonBody(report): JsonBody<Startup>,
) -> Answer<Success> {
    state.control.report_startup(&identity, report.boot_id).await?;
    Ok(Json(Success {}))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shutdown {}

async fn shutdown(
    state: State<AppState>,
    AuthenticatedNode(identity): AuthenticatedNode,
    OptionalJson(_): OptionalJson<Shutdown>,
) -> Answer<Success> {
    state.control.report_shutdown(&identity).await?;
    Ok(Json(Success {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bootenv {
    bootenv: String,
}

async fn bootenv(
    state: State<AppState>,
    AuthenticatedNode(identity): AuthenticatedNode,
    JsonBody(report): JsonBody<Bootenv>,
) -> Answer<Success> {
    state.control.report_bootenv(&identity, report.bootenv).await?;
    Ok(Json(Success {}))
}

async fn facts(
    state: State<AppState>,
    AuthenticatedNode(identity): AuthenticatedNode,
    JsonBody(facts): JsonBody<Value>,
) -> Answer<Success> {
    state.control.report_facts(&identity, facts).await?;
    Ok(Json(Success {}))
}

async fn nodes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<NodesQuery>,
) -> Answer<NodePage> {
    Ok(Json(state.control.find_nodes(&actor, &query).await?))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Added {
    node: NodeId,
}

async fn add_node(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(new): JsonBody<NodeRequest>,
) -> CreatedWithLocation<Added> {
    let node = state.control.add_node(&actor, new).await?;
    Ok(Created(format!("/nodes/{node}"), Added { node }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeList {
    /// Node list with one node per line.
    text: String,
}

async fn add_nodes(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(inventory): JsonBody<NodeList>,
) -> CreatedResult<AddedNodes> {
    Ok((StatusCode::CREATED, Json(state.control.add_nodes(&actor, &inventory.text).await?)))
}

async fn results(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathNode(id): PathNode,
    QueryParams(query): QueryParams<ResultsQuery>,
) -> Answer<ResultPage> {
    Ok(Json(state.control.results(&actor, id, &query).await?))
}
