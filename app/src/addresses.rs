//! Addresses of the pages, and of the server's own routes that pages link to.

pub use api::calls::shell::encoded;
use api::deployments::DeploymentState;
use api::nodes::NodeState;
use engine::cluster::NoderoleKey;
use engine::ids::{
    BarclampName, BlueprintNumber, DeploymentName, NodeId, NoderoleId, ProposalId, ReviewId,
    RoleName, RunId,
};

pub const SIGN_IN: &str = "/sign-in";
pub const SECOND_FACTOR: &str = "/second-factor";
pub const OVERVIEW: &str = "/";
pub const WORKERS: &str = "/workers";
pub const AUDIT: &str = "/audit";
pub const SEARCH: &str = "/search";
/// The audit export, a route of the server.
pub const AUDIT_EXPORT: &str = "/api/v1/audit/export";

pub fn worker(id: uuid::Uuid) -> String {
    format!("{WORKERS}/{id}")
}

pub fn search(text: &str) -> String {
    format!("{SEARCH}?q={}", encoded(text))
}

/// Steps that are pending for one reason.
pub fn pending_for(reason: &str) -> String {
    format!("{PENDING}?reason={reason}")
}

pub const DEPLOYMENTS: &str = "/deployments";
pub const GRAPH: &str = "/graph";
/// The list of the deployments' graphs.
pub const GRAPHS: &str = "/graphs";
pub const NODES: &str = "/nodes";
pub fn node(name: &str) -> String {
    format!("{NODES}/{}", encoded(name))
}

pub const REVIEWS: &str = "/reviews";
/// Proposals that are not submitted yet.
pub const DRAFTS: &str = "/reviews?state=drafts";
pub const RUNS: &str = "/runs";

pub const PENDING: &str = "/pending";

pub const CATALOG: &str = "/catalog";
pub const ROLES: &str = "/catalog/roles";
pub const ROLE_GRAPH: &str = "/catalog/graph";
pub const IMPORTS: &str = "/catalog/imports";

pub fn role(name: &RoleName) -> String {
    format!("{ROLES}/{}", encoded(name.as_str()))
}

/// The page of a role whose name several barclamps use.
pub fn role_in(name: &RoleName, barclamp: &BarclampName) -> String {
    format!("{}?barclamp={}", role(name), encoded(barclamp.as_str()))
}

pub fn roles_of(barclamp: &BarclampName) -> String {
    format!("{ROLES}?barclamp={}", encoded(barclamp.as_str()))
}

/// The graph of a role's dependencies and dependents.
pub fn role_graph(name: &RoleName) -> String {
    format!("{ROLE_GRAPH}?role={}", encoded(name.as_str()))
}

pub const BLUEPRINTS: &str = "/blueprints";

/// The rollout of a blueprint.
pub fn blueprint(number: BlueprintNumber) -> String {
    format!("{BLUEPRINTS}/{number}")
}

pub fn comparison(from: BlueprintNumber, to: BlueprintNumber) -> String {
    format!("{BLUEPRINTS}?from={from}&to={to}")
}

pub const SETTINGS: &str = "/settings";
/// Your own account.
pub const ACCOUNT: &str = "/settings/account";
/// Your own account, with the form for a new password open.
pub const SET_PASSWORD: &str = "/settings/account?set=1";
pub const PEOPLE: &str = "/settings/people";
pub const SERVICES: &str = "/settings/services";

pub const POLICY: &str = "/settings/policy";

/// A deployment's board, with the policy dialog open.
pub fn board_for_policy(name: &str) -> String {
    format!("{}?ask=policy", board_by_name(name))
}

/// The page of a person or a service account. Their names need no encoding.
pub fn person(name: &str) -> String {
    format!("{PEOPLE}/{name}")
}

pub fn deployment(name: &DeploymentName) -> String {
    format!("{DEPLOYMENTS}/{name}")
}

/// A deployment's board, for a name that is not validated yet.
pub fn board_by_name(name: &str) -> String {
    format!("{DEPLOYMENTS}/{}", encoded(name))
}

/// A deployment's board, with the dialog that moves a node there open.
pub fn move_node_dialog(name: &str, fqdn: &str) -> String {
    format!("{}?bring={}", board_by_name(name), encoded(fqdn))
}

pub fn graph(name: &DeploymentName) -> String {
    graph_of(name.as_str())
}

/// A deployment's graph, for a name that is not validated yet.
pub fn graph_of(name: &str) -> String {
    format!("{GRAPH}/{}", encoded(name))
}

/// A page's graph as an SVG file, a route of the server.
pub fn graph_file(page: &str) -> String {
    // Not below the page of the cluster: a deployment may have the name `graph.svg`.
    if page == GRAPH {
        return format!("{GRAPH}.svg");
    }
    format!("{page}/graph.svg")
}

pub fn noderole(id: NoderoleId) -> String {
    format!("/noderoles/{id}")
}

/// The input of a noderole's next run, value by value.
pub fn noderole_values(id: NoderoleId) -> String {
    format!("{}/data", noderole(id))
}

/// The input of a run, value by value.
pub fn run_values(id: RunId) -> String {
    format!("{}/data", run(id))
}

/// A stored script as text, a route of the server.
pub fn script(hash: engine::Hash) -> String {
    format!("/api/v1/scripts/{hash}")
}

pub fn review(id: ReviewId) -> String {
    format!("{REVIEWS}/{id}")
}

/// The values and scripts of a noderole in a review, a route of the server.
pub fn reviewed_noderole(id: ReviewId, node: NodeId, key: &NoderoleKey) -> String {
    format!("/api/v1/reviews/{id}/noderole?node={node}&noderole={}", encoded(&key.to_string()))
}

pub fn proposal(id: ProposalId) -> String {
    format!("/proposals/{id}")
}

pub fn pending_in(name: &DeploymentName) -> String {
    format!("{PENDING}?deployment={name}")
}

pub fn pending_in_for(name: &DeploymentName, reason: &str) -> String {
    format!("{PENDING}?deployment={name}&reason={reason}")
}

pub fn running_in(name: &DeploymentName) -> String {
    format!("{RUNS}?state=running&deployment={name}")
}

pub fn pending_on(fqdn: &str) -> String {
    format!("{PENDING}?node={}", encoded(fqdn))
}

pub fn nodes_in_state(state: NodeState) -> String {
    format!("{NODES}?state={}", state.as_str())
}

pub fn deployments_in_state(state: DeploymentState) -> String {
    format!("{DEPLOYMENTS}?state={}", state.as_str())
}

/// The results of a node's health checks.
pub fn node_health_checks(name: &str) -> String {
    format!("{}/health-checks", node(name))
}

pub fn node_noderoles(name: &str) -> String {
    format!("{}/noderoles", node(name))
}

/// The results that attempts returned on a node.
pub fn node_results(name: &str) -> String {
    format!("{}/results", node(name))
}

/// The noderoles of a node, unfolded in the graph of its deployment.
pub fn node_graph(name: &DeploymentName, fqdn: &str) -> String {
    format!("{}?nodes={}", graph(name), encoded(fqdn))
}

pub fn runs_on(node: &str) -> String {
    format!("{RUNS}?node={}", encoded(node))
}

pub fn runs_of_worker(worker: &str) -> String {
    format!("{RUNS}?worker={}", encoded(worker))
}

/// The runs of a role, on one node (by name or id) or on all.
pub fn runs_of(deployment: &DeploymentName, node: Option<&str>, role: &RoleName) -> String {
    let node = node.map(|node| format!("&node={}", encoded(node))).unwrap_or_default();
    format!("{RUNS}?deployment={deployment}{node}&role={}", encoded(role.as_str()))
}

/// The dependents of a noderole, in the graph of its deployment.
pub fn dependents_graph(name: &DeploymentName, noderole: NoderoleId) -> String {
    format!("{}?focus={noderole}&direction=down&steps=1", graph(name))
}

/// The nodes whose names contain `fqdn`.
pub fn nodes_matching(fqdn: &str) -> String {
    format!("{NODES}?filter={}", encoded(fqdn))
}

pub fn run(id: RunId) -> String {
    format!("{RUNS}/{id}")
}

/// A run's log as a file, a route of the server.
pub fn log_file(id: RunId) -> String {
    format!("{RUNS}/{id}/log")
}

/// The sign-in page, which redirects to `next` afterwards.
pub fn sign_in_with_next(next: &str) -> String {
    format!("{SIGN_IN}?next={}", encoded(next))
}

/// The page of the second factor, which redirects to `next` afterwards.
pub fn second_factor_with_next(next: &str) -> String {
    match next {
        "" | "/" => SECOND_FACTOR.to_owned(),
        next => format!("{SECOND_FACTOR}?next={}", encoded(next)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_address_survives_sign_in() {
        assert_eq!(
            sign_in_with_next("/runs?state=failed"),
            "/sign-in?next=%2Fruns%3Fstate%3Dfailed"
        );
        assert_eq!(second_factor_with_next("/runs"), "/second-factor?next=%2Fruns");
        assert_eq!(second_factor_with_next("/"), "/second-factor");
        assert_eq!(encoded("é&"), "%C3%A9%26");
    }
}
