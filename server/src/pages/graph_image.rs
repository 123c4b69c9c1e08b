//! `GET /graph.svg`, `GET /graph/{name}/graph.svg` and `GET /reviews/{id}/graph.svg`: the
//! image of a graph page as a file.
//!
//! The query is the same as on the page. The file is sent as an attachment, because the console
//! must not display content that is not one of its pages.

use app::addresses;
use app::graph::address::Address;
use app::graph::file::svg;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use control::MissingVertex;
use engine::ids::ReviewId;

use crate::AppState;
use crate::http::problems::{PathParams, Refusal};
use crate::http::session::SignedIn;

/// The query as pairs of name and value.
type GraphQuery = Query<Vec<(String, String)>>;

pub(crate) async fn of_cluster(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    query: GraphQuery,
) -> Result<Response, Refusal> {
    let address = Address::from_pairs(addresses::GRAPH.to_owned(), query.0);
    let view = state.control.cluster_graph(&actor, &address.options, MissingVertex::Note).await?;
    Ok(file("graph-cluster.svg", svg(&view, address.color)))
}

pub(crate) async fn of_deployment(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(name): PathParams<String>,
    query: GraphQuery,
) -> Result<Response, Refusal> {
    let address = Address::from_pairs(addresses::graph_of(&name), query.0);
    let view = state.control.graph(&actor, &name, &address.options, MissingVertex::Note).await?;
    let name = format!("graph-{}.svg", view.name());
    Ok(file(&name, svg(&view, address.color)))
}

pub(crate) async fn of_review(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    query: GraphQuery,
) -> Result<Response, Refusal> {
    let address = Address::from_pairs(addresses::review(id), query.0);
    let view =
        state.control.review_graph(&actor, id, &address.options, MissingVertex::Note).await?;
    Ok(file(&format!("review-{id}.svg"), svg(&view, address.color)))
}

/// Names of deployments and numbers of reviews are plain ASCII, so they are valid in a header.
fn file(name: &str, picture: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    (headers, picture).into_response()
}
