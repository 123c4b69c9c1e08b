//! `/api/v1/barclamps`, `/roles`, `/catalog`, `/imports` and `/scripts`: the catalog of barclamps.

use std::collections::BTreeMap;

use api::catalog::{
    BarclampsQuery, CatalogPage, ImportPage, ImportsQuery, RoleGraph, RoleGraphQuery, RolePage,
    RoleQuery, RoleView, RolesQuery,
};
use api::views::board::JigView;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::Imported;
use engine::Hash;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::limits;
use crate::http::problems::{JsonBody, PathParams, QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::{Answer, CreatedResult};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/barclamps", catalog, op("listBarclamps", "List imported barclamps"))
        .post(
            "/barclamps",
            import,
            op("importBarclamps", "Import barclamps")
                .body(limits::MAX_IMPORT_BYTES)
                .also(&[422])
                .about(
                    "Adds the content of the files to the catalog. Running steps do not change. \
                     The keys of `files` are paths. A script must be next to the file of its \
                     barclamp.",
                ),
        )
        .get("/roles", roles, op("listRoles", "List roles"))
        .get("/roles/{name}", role, op("getRole", "Get a role"))
        .get("/catalog/graph", role_graph, op("getRoleGraph", "Get the dependency graph of roles"))
        .get("/jigs", jigs, op("listJigs", "List the jigs of the barclamps in use"))
        .get("/imports", imports, op("listImports", "List import reports"))
        .get(
            "/scripts/{hash}",
            script,
            op("getScript", "Get a script of a role").content(&["text/plain"]),
        )
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Files {
    files: BTreeMap<String, String>,
}

async fn jigs(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Vec<JigView>> {
    Ok(Json(state.control.jigs(&actor).await?))
}

/// Returns any script as plain text, so that a browser shows it and executes nothing.
async fn script(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(hash): PathParams<Hash>,
) -> Result<Response, Refusal> {
    let body = state.control.script(&actor, hash).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

async fn catalog(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<BarclampsQuery>,
) -> Answer<CatalogPage> {
    Ok(Json(state.control.find_barclamps(&actor, &query).await?))
}

async fn roles(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<RolesQuery>,
) -> Answer<RolePage> {
    Ok(Json(state.control.roles(&actor, &query).await?))
}

async fn role(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<RoleQuery>,
) -> Answer<RoleView> {
    Ok(Json(state.control.role(&actor, &name, &query).await?))
}

async fn role_graph(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<RoleGraphQuery>,
) -> Answer<RoleGraph> {
    Ok(Json(state.control.role_graph(&actor, &query).await?))
}

async fn imports(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<ImportsQuery>,
) -> Answer<ImportPage> {
    Ok(Json(state.control.imports(&actor, &query).await?))
}

async fn import(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(given): JsonBody<Files>,
) -> CreatedResult<Imported> {
    let files = given.files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
    let imported = state.control.import_barclamps(Some(&actor), &files).await?;
    Ok((StatusCode::CREATED, Json(imported)))
}
