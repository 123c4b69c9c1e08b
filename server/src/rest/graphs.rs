//! `/api/v1/graph`, `/api/v1/deployments/{id}/graph` and `/api/v1/reviews/{id}/graph`: the graph
//! of a page as data.
//!
//! The parameters are those of the page. A page ignores unknown or useless parameters and shows the
//! graph without them. The API returns an error. An unknown vertex is a 404. Unknown roles and
//! nodes to expand are ignored, because they may have been removed since.

use api::Problem;
use api::views::graph::{GraphDirection, GraphOptions, GraphView, Length, PathOptions};
use axum::Json;
use axum::extract::State;
use control::MissingVertex;
use engine::ids::{BlueprintNumber, ReviewId, RoleName};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{PathParams, QueryParams};
use crate::http::session::SignedIn;
use crate::rest::Answer;
use crate::rest::named::NameOrId;

pub(crate) fn operations(all: Operations) -> Operations {
    let about = "The parameters are the same as in the URL of the page. If the graph is too large, \
        some vertices stay folded, and `cut` reports it. An unknown vertex in `focus`, `from` or \
        `to` returns 404.";
    all.get("/graph", of_cluster, op("getGraph", "Get the graph of the cluster").about(about))
        .get(
            "/deployments/{id}/graph",
            of_deployment,
            op("getDeploymentGraph", "Get the graph of a deployment").about(about),
        )
        .get(
            "/reviews/{id}/graph",
            of_review,
            op("getReviewGraph", "Get the graph of a review").about(about),
        )
}

/// Selection and display options of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct GraphQuery {
    /// Roles to expand into single noderoles, separated by commas.
    roles: String,
    /// Nodes to expand into single noderoles, by full or short name, separated by commas.
    nodes: String,
    /// Show only this vertex, its dependencies and its dependents. The value is the key of a
    /// vertex.
    focus: String,
    /// Restrict `focus` to dependencies (`up`) or dependents (`down`). Default: both.
    direction: String,
    /// Restrict `focus` to vertices within this number of edges.
    #[schemars(range(min = 1))]
    steps: Option<u32>,
    /// Highlight all paths from this vertex to `to`. The value is the key of a vertex.
    from: String,
    /// The end of the highlighted paths. The value is the key of a vertex.
    to: String,
    /// Highlight the longest path, by `count` of noderoles or by the `time` of their last runs.
    longest: String,
    /// `path`: show only the highlighted vertices, expanded into single noderoles.
    only: String,
    /// Show the cluster or a deployment as of this blueprint.
    #[schemars(range(min = 1))]
    blueprint: Option<i64>,
}

/// Parses an optional parameter with a fixed set of values.
fn one_of<T: Copy>(field: &str, text: &str, words: &[(&str, T)]) -> Result<Option<T>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, meant)| *meant);
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    found.map(Some).ok_or_else(|| {
        Problem::invalid(format!("Invalid `{field}`: {text:?} is not one of {}.", known.join(", ")))
    })
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn nonempty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl TryFrom<GraphQuery> for GraphOptions {
    type Error = Problem;

    fn try_from(query: GraphQuery) -> Result<Self, Problem> {
        let role = |name: &str| {
            RoleName::parse(name).map_err(|error| {
                Problem::invalid(format!(
                    "Invalid `roles`: \
                {error}."
                ))
            })
        };
        let direction = one_of(
            "direction",
            &query.direction,
            &[
                ("up", GraphDirection::Up),
                ("down", GraphDirection::Down),
                ("both", GraphDirection::Both),
            ],
        )?;
        let longest =
            one_of("longest", &query.longest, &[("count", Length::Count), ("time", Length::Time)])?;
        let only_path = one_of("only", &query.only, &[("path", true)])?.unwrap_or_default();
        let marked_path = match (longest, nonempty(query.from), nonempty(query.to)) {
            (Some(length), None, None) => Some(PathOptions::Longest(length)),
            (None, Some(from), Some(to)) => Some(PathOptions::Between(from, to)),
            (None, Some(from), None) => Some(PathOptions::From(from)),
            (None, None, None) => None,
            (None, None, Some(_)) => {
                return Err(Problem::invalid(
                    "Invalid `to`: it requires `from`. Add the vertex at \
                    which the path begins.",
                ));
            }
            (Some(_), _, _) => {
                return Err(Problem::invalid(
                    "Invalid `longest`: it cannot be combined with `from` or `to`. Omit one of \
                     them.",
                ));
            }
        };
        if query.focus.is_empty() && (direction.is_some() || query.steps.is_some()) {
            return Err(Problem::invalid(
                "Invalid `direction` or `steps`: they require `focus`. Add a vertex as `focus`.",
            ));
        }
        if query.steps == Some(0) {
            return Err(Problem::invalid("Invalid `steps`: it must be at least 1."));
        }
        if only_path && marked_path.is_none() {
            return Err(Problem::invalid(
                "Invalid `only`: nothing is highlighted. Add `from` and \
                `to`, or `longest`.",
            ));
        }
        Ok(Self {
            roles: list(&query.roles).map(role).collect::<Result<_, _>>()?,
            nodes: list(&query.nodes).map(str::to_owned).collect(),
            focus: nonempty(query.focus),
            direction: direction.unwrap_or_default(),
            steps: query.steps,
            marked_path,
            only_path,
            blueprint: query.blueprint.map(BlueprintNumber),
        })
    }
}

async fn of_cluster(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<GraphQuery>,
) -> Answer<GraphView> {
    Ok(Json(state.control.cluster_graph(&actor, &query.try_into()?, MissingVertex::Refused).await?))
}

async fn of_deployment(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    NameOrId(name): NameOrId,
    QueryParams(query): QueryParams<GraphQuery>,
) -> Answer<GraphView> {
    Ok(Json(state.control.graph(&actor, &name, &query.try_into()?, MissingVertex::Refused).await?))
}

async fn of_review(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<ReviewId>,
    QueryParams(query): QueryParams<GraphQuery>,
) -> Answer<GraphView> {
    if query.blueprint.is_some() {
        let detail = "Invalid `blueprint`: a review always changes the current target. Omit it, or \
            request the graph of the deployment.";
        return Err(Problem::invalid(detail).into());
    }
    Ok(Json(
        state.control.review_graph(&actor, id, &query.try_into()?, MissingVertex::Refused).await?,
    ))
}

#[cfg(test)]
mod tests {
    use app::graph::address::Address;

    use crate::rest::graphs::*;

    fn options_of(query: &str) -> Result<GraphOptions, Problem> {
        let pairs: Vec<(String, String)> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(a, b)| (a.into(), b.into()))
            .collect();
        let fields = pairs.into_iter().map(|(name, value)| {
            let number = matches!(name.as_str(), "steps" | "blueprint")
                .then(|| value.parse::<i64>().ok())
                .flatten();
            (name, number.map_or_else(|| value.clone().into(), serde_json::Value::from))
        });
        let parameters: GraphQuery =
            serde_json::from_value(serde_json::Value::Object(fields.collect()))
                .expect("known parameters");
        parameters.try_into()
    }

    #[test]
    fn parameters_match_those_of_the_page() {
        for query in [
            "",
            "roles=app,web-ready&nodes=n1,n2.house.example.com",
            "focus=role:app&direction=up&steps=2",
            "focus=role:app&direction=down",
            "from=role:app&to=role:web",
            "from=role:app",
            "longest=count",
            "longest=time&only=path",
            "blueprint=3",
        ] {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let address = Address::from_pairs(
                String::new(),
                pairs.map(|(a, b)| (a.to_owned(), b.to_owned())),
            );
            assert_eq!(options_of(query), Ok(address.options), "{query}");
        }
    }

    #[test]
    fn invalid_parameter_error_lists_valid_values() {
        for (query, text) in [
            ("direction=left", "not one of up, down, both"),
            ("longest=far", "not one of count, time"),
            ("only=all", "not one of path"),
            ("only=path", "nothing is highlighted"),
            ("to=role:app", "it requires `from`"),
            ("longest=time&from=role:app", "combined with `from` or `to`"),
            ("focus=role:app&steps=0", "at least 1"),
            ("direction=up", "as `focus`"),
            ("steps=2", "as `focus`"),
            ("roles=App!", "`roles`:"),
        ] {
            let problem = options_of(query).expect_err(query);
            assert_eq!(problem.status, 400);
            assert!(problem.detail.contains(text), "{query}: {problem}");
        }
    }
}
