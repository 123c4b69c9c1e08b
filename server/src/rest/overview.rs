//! `/api/v1`: overview, search and the approval policy in force.

use api::overview::{Overview, PolicyView};
use api::search::{SearchQuery, SearchResults};
use axum::Json;
use axum::extract::State;

use crate::AppState;
use crate::http::contract::{Operations, Versioned, op};
use crate::http::problems::{QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::Answer;

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/overview", overview, op("getOverview", "Get the overview"))
        .get("/search", search, op("search", "Search by name, title or number").about(
            "Returns at most 8 results of each kind. Deployments, nodes, roles, reviews and people \
             match by a part of their name or title. Runs and reviews match by number. Only admins \
             find people.",
        ))
        .get("/policy", policy, op("getPolicy", "Get the policy in force").about(
            "A proposal changes the policy, like all other desired state. The ETag begins with the \
             number of the policy.",
        ))
}

async fn overview(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Overview> {
    Ok(Json(state.control.overview(&actor).await?))
}

async fn search(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<SearchQuery>,
) -> Answer<SearchResults> {
    Ok(Json(state.control.search(&actor, &query).await?))
}

async fn policy(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
) -> Result<Versioned<PolicyView>, Refusal> {
    let policy = state.control.policy_in_force(&actor).await?;
    Ok(Versioned(policy.number.0, policy))
}
