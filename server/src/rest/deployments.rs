//! `/api/v1/deployments`: lists, the board, progress, hold, priority, and proposals that begin at a
//! deployment.

use api::deployments::{
    DeclarationQuery, DeploymentDeclaration, DeploymentDetails, DeploymentPage, DeploymentRequest,
    DeploymentsQuery, ProposedDeployment,
};
use api::overview::DeploymentProgress;
use api::proposals::Restored;
use api::views::board::{Board, BoardQuery, RoleNoderoles, RoleNoderolesQuery};
use axum::Json;
use axum::extract::State;
use engine::catalog::read::MAX_PRIORITY;
use engine::ids::BlueprintNumber;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{JsonBody, OptionalJson, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::named::NameOrId;
use crate::rest::proposals::{Proposed, proposal_created};
use crate::rest::{Answer, CreatedWithLocation, EmptyObject, Success, SwitchRequest};

pub(crate) fn operations(all: Operations) -> Operations {
    const PROPOSED: &str = "Adds the edit to the open proposal, or opens one. Nothing changes \
        until the proposal is submitted, reviewed and committed. `Location` is the \
        proposal.";
    all.get("/deployments", deployments, op("listDeployments", "List deployments"))
        .post(
            "/deployments",
            create,
            op("createDeployment", "Propose to create a deployment").also(&[422]).about(PROPOSED),
        )
        .get("/deployments/{id}", deployment, op("getDeployment", "Get a deployment"))
        .delete(
            "/deployments/{id}",
            remove,
            op("removeDeployment", "Propose to remove an empty deployment")
                .also(&[422])
                .about(PROPOSED),
        )
        .get("/deployments/{id}/board", board, op("getBoard", "Get the board of a deployment"))
        .get(
            "/deployments/{id}/declaration",
            declaration,
            op("getDeclaration", "Get the desired state of a deployment")
                .about("`gantry export` writes it as a file that `gantry apply` accepts."),
        )
        .get(
            "/deployments/{id}/progress",
            deployment_progress,
            op("getDeploymentProgress", "Get the progress of a deployment").about(
                "A deployment is stuck by the same rule as a blueprint: all remaining steps wait \
                 for a person. `GET /api/v1/pending?deployment=` returns the \
                 reasons.",
            ),
        )
        .get(
            "/deployments/{id}/noderoles",
            role_noderoles,
            op("listRoleNoderoles", "List the nodes that have a role").also(&[409]).about(
                "If the last row of a page was removed, the request for the next page \
                    returns 409 `moved`. Start again with the first page.",
            ),
        )
        .post(
            "/deployments/{id}/proposals",
            propose,
            op("openProposal", "Open a proposal for a deployment, or return the open one"),
        )
        .post("/deployments/{id}/hold", hold, op("holdDeployment", "Put a deployment on hold"))
        .post(
            "/deployments/{id}/release",
            release,
            op("releaseDeployment", "End the hold of a deployment"),
        )
        .post(
            "/deployments/{id}/priority",
            set_priority,
            op("setDeploymentPriority", "Set the priority of a deployment"),
        )
        .post(
            "/deployments/{id}/restore",
            restore,
            op("restoreDeployment", "Propose to restore a deployment from a blueprint"),
        )
}

async fn deployments(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<DeploymentsQuery>,
) -> Answer<DeploymentPage> {
    Ok(Json(state.control.find_deployments(&actor, &query).await?))
}

async fn deployment(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
) -> Answer<DeploymentDetails> {
    Ok(Json(state.control.deployment(&actor, &name).await?))
}

async fn create(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(request): JsonBody<DeploymentRequest>,
) -> CreatedWithLocation<ProposedDeployment> {
    let made = state.control.propose_deployment(&actor, &request).await?;
    Ok(proposal_created(made.proposal, made))
}

async fn remove(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
) -> CreatedWithLocation<ProposedDeployment> {
    let made = state.control.propose_removal(&actor, &name).await?;
    Ok(proposal_created(made.proposal, made))
}

async fn board(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    QueryParams(query): QueryParams<BoardQuery>,
) -> Answer<Board> {
    Ok(Json(state.control.board(&actor, &name, query).await?))
}

async fn declaration(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    QueryParams(query): QueryParams<DeclarationQuery>,
) -> Answer<DeploymentDeclaration> {
    Ok(Json(state.control.declaration(&actor, &name, &query).await?))
}

async fn deployment_progress(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
) -> Answer<DeploymentProgress> {
    Ok(Json(state.control.deployment_progress(&actor, &name).await?))
}

async fn role_noderoles(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    QueryParams(query): QueryParams<RoleNoderolesQuery>,
) -> Answer<RoleNoderoles> {
    Ok(Json(state.control.find_role_noderoles(&actor, &name, &query).await?))
}

async fn propose(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    OptionalJson(_): OptionalJson<EmptyObject>,
) -> CreatedWithLocation<Proposed> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    let proposal = state.control.propose(&actor, deployment).await?;
    Ok(proposal_created(proposal, Proposed { proposal }))
}

async fn hold(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    JsonBody(body): JsonBody<SwitchRequest>,
) -> Answer<Success> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    state.control.hold(&actor, deployment, true, body.reason).await?;
    Ok(Json(Success {}))
}

async fn release(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    JsonBody(body): JsonBody<SwitchRequest>,
) -> Answer<Success> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    state.control.hold(&actor, deployment, false, body.reason).await?;
    Ok(Json(Success {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PriorityRequest {
    #[serde(deserialize_with = "priority")]
    #[schemars(range(min = -MAX_PRIORITY, max = MAX_PRIORITY))]
    priority: i32,
    #[schemars(length(min = 1, max = 1000))]
    reason: String,
}

/// A number that is far out of range gets an error with the range of priorities, not of integers.
fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let in_range = number.as_i64().and_then(|number| i32::try_from(number).ok());
    in_range.ok_or_else(|| {
        D::Error::custom(format!(
            "the priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        ))
    })
}

async fn set_priority(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    JsonBody(request): JsonBody<PriorityRequest>,
) -> Answer<Success> {
    let deployment = state.control.deployment_named(&actor, &name).await?;
    state.control.set_priority(&actor, deployment, request.priority, request.reason).await?;
    Ok(Json(Success {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RestoreRequest {
    blueprint: BlueprintNumber,
    /// Skip parts that can't be restored, instead of failing.
    #[serde(default)]
    partial: bool,
}

async fn restore(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    JsonBody(restoring): JsonBody<RestoreRequest>,
) -> CreatedWithLocation<Restored> {
    let restored =
        state.control.restore(&actor, &name, restoring.blueprint, restoring.partial).await?;
    Ok(proposal_created(restored.proposal, restored))
}
