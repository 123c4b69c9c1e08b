//! The addresses of the pages.

pub use api::calls::shell::encoded;
use api::listing::{DeploymentState, NodeState};
use engine::ids::{
    BarclampName, DeploymentName, NoderoleId, PersonId, ProposalId, RoleName, RunId, SubmissionId,
};

/// Where people sign in.
pub const SIGN_IN: &str = "/sign-in";
/// Where people present or set up their second factor.
pub const SECOND_FACTOR: &str = "/second-factor";
/// How it stands; where people begin.
pub const OVERVIEW: &str = "/";
/// Who carries runs out.
pub const WORKERS: &str = "/workers";
/// Who did what, when, to what.
pub const AUDIT: &str = "/audit";
/// Things by what they are called.
pub const SEARCH: &str = "/search";
/// The audit as a file; the server's own route.
pub const AUDIT_FILE: &str = "/api/v1/audit/export";

/// A worker's page.
pub fn worker(id: uuid::Uuid) -> String {
    format!("{WORKERS}/{id}")
}

/// What is called like this.
pub fn search(text: &str) -> String {
    format!("{SEARCH}?q={}", encoded(text))
}

/// What waits for one reason.
pub fn waiting_for(reason: &str) -> String {
    format!("{WAITING}?reason={reason}")
}

/// All deployments.
pub const DEPLOYMENTS: &str = "/deployments";
/// The graphs of all deployments.
pub const GRAPH: &str = "/graph";
/// All nodes.
pub const NODES: &str = "/nodes";
/// A node's own page, by its name or id.
pub fn node(name: &str) -> String {
    format!("{NODES}/{}", encoded(name))
}

/// All submissions.
pub const REVIEWS: &str = "/reviews";
/// Proposals that nobody submitted yet.
pub const DRAFTS: &str = "/reviews?state=drafts";
/// All runs.
pub const RUNS: &str = "/runs";

/// Why not yet: what waits.
pub const WAITING: &str = "/waiting";

/// Every imported barclamp.
pub const CATALOG: &str = "/catalog";
/// The roles of the newest versions.
pub const ROLES: &str = "/catalog/roles";
/// How they hang together.
pub const ROLE_GRAPH: &str = "/catalog/graph";
/// What imports brought.
pub const IMPORTS: &str = "/catalog/imports";

/// A role's own page.
pub fn role(name: &RoleName) -> String {
    format!("{ROLES}/{}", encoded(name.as_str()))
}

/// The same, of one of several barclamps that have one of this name.
pub fn role_in(name: &RoleName, barclamp: &BarclampName) -> String {
    format!("{}?barclamp={}", role(name), encoded(barclamp.as_str()))
}

/// The roles of a barclamp.
pub fn roles_of(barclamp: &BarclampName) -> String {
    format!("{ROLES}?barclamp={}", encoded(barclamp.as_str()))
}

/// A role among what it builds on and what builds on it.
pub fn role_graph(name: &RoleName) -> String {
    format!("{ROLE_GRAPH}?role={}", encoded(name.as_str()))
}

/// The line of targets.
pub const BLUEPRINTS: &str = "/blueprints";

/// Accounts, one's own first.
pub const SETTINGS: &str = "/settings";
/// One's own account.
pub const ACCOUNT: &str = "/settings/account";
/// The same, for who came to set a password.
pub const SET_PASSWORD: &str = "/settings/account?set=1";
/// Everybody who may come in.
pub const PEOPLE: &str = "/settings/people";
/// Programs that may come in.
pub const SERVICES: &str = "/settings/services";

/// How many approvals changes need.
pub const POLICY: &str = "/settings/policy";

/// A deployment's board, where another policy is to be proposed.
pub fn board_for_policy(name: &str) -> String {
    format!("{}?ask=policy", board_of(name))
}

/// A person, or a service account.
pub fn person(id: PersonId) -> String {
    format!("{PEOPLE}/{id}")
}

/// A deployment's board.
pub fn deployment(name: &DeploymentName) -> String {
    format!("{DEPLOYMENTS}/{name}")
}

/// The same, of a name that nobody has checked yet.
pub fn board_of(name: &str) -> String {
    format!("{DEPLOYMENTS}/{}", encoded(name))
}

/// A deployment's board, where a node is to be moved to.
pub fn bring(name: &str, fqdn: &str) -> String {
    format!("{}?bring={}", board_of(name), encoded(fqdn))
}

/// A deployment's graph.
pub fn graph(name: &DeploymentName) -> String {
    graph_of(name.as_str())
}

/// The same, of a name that nobody has checked yet.
pub fn graph_of(name: &str) -> String {
    format!("{GRAPH}/{}", encoded(name))
}

/// The picture of a page with a graph, as a file; the server's own route.
pub fn graph_file(page: &str) -> String {
    format!("{page}/graph.svg")
}

/// A noderole's own page.
pub fn noderole(id: NoderoleId) -> String {
    format!("/noderoles/{id}")
}

/// What a run of a noderole would see, value by value.
pub fn noderole_values(id: NoderoleId) -> String {
    format!("{}/data", noderole(id))
}

/// What a run was told, value by value.
pub fn run_values(id: RunId) -> String {
    format!("{}/data", run(id))
}

/// A script as it is stored, as text; the server's own route.
pub fn script(hash: engine::Hash) -> String {
    format!("/api/v1/scripts/{hash}")
}

/// A submission's page.
pub fn review(id: SubmissionId) -> String {
    format!("{REVIEWS}/{id}")
}

/// The page of a proposal on a node.
pub fn proposal(id: ProposalId) -> String {
    format!("/proposals/{id}")
}

/// What waits in a deployment.
pub fn waiting_in(name: &DeploymentName) -> String {
    format!("{WAITING}?deployment={name}")
}

/// What waits in a deployment for one reason.
pub fn waiting_in_for(name: &DeploymentName, reason: &str) -> String {
    format!("{WAITING}?deployment={name}&reason={reason}")
}

/// What runs in a deployment.
pub fn running_in(name: &DeploymentName) -> String {
    format!("{RUNS}?state=running&deployment={name}")
}

/// What waits on a node.
pub fn waiting_on(fqdn: &str) -> String {
    format!("{WAITING}?node={}", encoded(fqdn))
}

/// The nodes of which this is so.
pub fn nodes_that_are(state: NodeState) -> String {
    format!("{NODES}?state={}", state.as_str())
}

/// The deployments of which this is so.
pub fn deployments_that_are(state: DeploymentState) -> String {
    format!("{DEPLOYMENTS}?state={}", state.as_str())
}

/// What came of looks at a node.
pub fn node_looks(name: &str) -> String {
    format!("{}/looks", node(name))
}

/// What a node carries.
pub fn node_noderoles(name: &str) -> String {
    format!("{}/noderoles", node(name))
}

/// What attempts returned on a node.
pub fn node_results(name: &str) -> String {
    format!("{}/results", node(name))
}

/// What a node carries, one by one, in the graph of its deployment.
pub fn graph_of_node(name: &DeploymentName, fqdn: &str) -> String {
    format!("{}?nodes={}", graph(name), encoded(fqdn))
}

/// All runs on a node.
pub fn runs_on(node: &str) -> String {
    format!("{RUNS}?node={}", encoded(node))
}

/// The runs that a worker carries out, and did.
pub fn runs_by(worker: &str) -> String {
    format!("{RUNS}?worker={}", encoded(worker))
}

/// All runs of a role on a node, by its name or its id, or on any.
pub fn runs_of(deployment: &DeploymentName, node: Option<&str>, role: &RoleName) -> String {
    let node = node.map(|node| format!("&node={}", encoded(node))).unwrap_or_default();
    format!("{RUNS}?deployment={deployment}{node}&role={}", encoded(role.as_str()))
}

/// What waits for a noderole, in the graph of its deployment.
pub fn graph_below(name: &DeploymentName, noderole: NoderoleId) -> String {
    format!("{}?focus={noderole}&way=down&steps=1", graph(name))
}

/// The nodes with this in their names.
pub fn nodes_named(fqdn: &str) -> String {
    format!("{NODES}?filter={}", encoded(fqdn))
}

/// A run's page.
pub fn run(id: RunId) -> String {
    format!("{RUNS}/{id}")
}

/// A run's log as a file; the server's own route.
pub fn log_file(id: RunId) -> String {
    format!("{RUNS}/{id}/log")
}

/// The sign-in that leads back to where one was.
pub fn sign_in_for(next: &str) -> String {
    format!("{SIGN_IN}?next={}", encoded(next))
}

/// The page of the second factor that leads back to where one was.
pub fn second_factor_for(next: &str) -> String {
    match next {
        "" | "/" => SECOND_FACTOR.to_owned(),
        next => format!("{SECOND_FACTOR}?next={}", encoded(next)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_one_was_survives_the_sign_in() {
        assert_eq!(sign_in_for("/runs?state=failed"), "/sign-in?next=%2Fruns%3Fstate%3Dfailed");
        assert_eq!(second_factor_for("/runs"), "/second-factor?next=%2Fruns");
        assert_eq!(second_factor_for("/"), "/second-factor");
        assert_eq!(encoded("é&"), "%C3%A9%26");
    }
}
