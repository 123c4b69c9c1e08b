//! Path parameters of resources that people name: deployments, nodes, people and workers. Each is a
//! name or an id.

use std::collections::BTreeMap;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use engine::ids::{NodeId, PersonId};
use serde_json::json;

use crate::AppState;
use crate::http::contract::{DescribeInput, OperationTypes};
use crate::http::problems::{PathParams, Refusal};
use crate::http::session::SignedIn;

/// The text of the path parameter `{id}`, a name or an id.
pub(crate) struct NameOrId(pub String);

impl FromRequestParts<AppState> for NameOrId {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let PathParams(mut parameters) =
            PathParams::<BTreeMap<String, String>>::from_request_parts(parts, state).await?;
        Ok(Self(parameters.remove("id").unwrap_or_default()))
    }
}

impl DescribeInput for NameOrId {
    fn describe(types: &mut OperationTypes<'_>) {
        types.places.push(json!({
            "type": "string", "minLength": 1, "maxLength": 253, "description": "Name or id."
        }));
    }
}

/// The node in the path parameter `{id}`.
pub(crate) struct PathNode(pub NodeId);

impl FromRequestParts<AppState> for PathNode {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let SignedIn(actor) = SignedIn::from_request_parts(parts, state).await?;
        let NameOrId(node) = NameOrId::from_request_parts(parts, state).await?;
        Ok(Self(state.control.node_named(&actor, &node).await?))
    }
}

impl DescribeInput for PathNode {
    fn describe(types: &mut OperationTypes<'_>) {
        NameOrId::describe(types);
    }
}

/// The person or service account in the path parameter `{id}`.
pub(crate) struct PathPerson(pub PersonId);

impl FromRequestParts<AppState> for PathPerson {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        let SignedIn(actor) = SignedIn::from_request_parts(parts, state).await?;
        let NameOrId(person) = NameOrId::from_request_parts(parts, state).await?;
        Ok(Self(state.people.person_named(&actor, &person).await?))
    }
}

impl DescribeInput for PathPerson {
    fn describe(types: &mut OperationTypes<'_>) {
        NameOrId::describe(types);
    }
}
