//! The permission matrix: every endpoint, called by every client, on its own and on other
//! resources.
//!
//! The endpoints come from the router. The test fails if one is missing in the table, or if the
//! table has one that no longer exists. First, every client without permission calls each endpoint.
//! The test checks each response, and that nothing changed. Then the permitted clients call the
//! same. They must not get a permission error, though their request may be outdated by then. At
//! least once, each endpoint must succeed, if necessary in a world of its own. Otherwise its
//! rejections would prove nothing about permissions.

use std::collections::{BTreeMap, BTreeSet};

use api::people::TokenRequest;
use axum::http::Method;
use control::people::{Actor, PersonKind};
use serde_json::json;

use super::change_flow::working;
use super::*;

/// The clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Caller {
    Nobody,
    /// Signed in, without any permission.
    Nothing,
    Viewer,
    Operator,
    Reviewer,
    Admin,
    /// An operator of `web` only.
    ScopedOperator,
    /// A reviewer of `web` only.
    ScopedReviewer,
    /// A service account's token, operator everywhere.
    ServiceToken,
    /// A token of a person with all permissions, restricted to operating `web`.
    ScopedToken,
    /// A token of the same person, with all permissions that a token can have.
    FullToken,
}

use Caller::*;

pub(super) const ALL: [Caller; 11] = [
    Nobody,
    Nothing,
    Viewer,
    Operator,
    Reviewer,
    Admin,
    ScopedOperator,
    ScopedReviewer,
    ServiceToken,
    ScopedToken,
    FullToken,
];

/// The permission that an endpoint requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requirement {
    /// None.
    Open,
    /// A node's token, which no client here has.
    Machine,
    /// A connection from this machine, which no client here has.
    LocalConnection,
    /// A session or a token.
    SignedIn,
    /// A session.
    Session,
    /// Viewer.
    View,
    /// Viewer, in a session.
    ViewInSession,
    /// Operator of the resource's deployment.
    Operate,
    /// Operator of any deployment. Each step of the action is checked on its own.
    OperateSomewhere,
    /// Operator everywhere.
    OperateEverywhere,
    /// Reviewer of the resource's deployment, in a session.
    Review,
    /// Operator or reviewer of the resource's deployment.
    OperateOrReview,
    /// Operator of the resource's deployment or admin, in a session.
    OperateOrAdminInSession,
    /// Operator of the resource's deployment or admin.
    OperateOrAdmin,
    /// Any permission except viewer, in any deployment.
    MoreThanView,
    /// Admin.
    Administer,
    /// Admin, in a session.
    AdministerInSession,
}

impl Requirement {
    pub(super) fn lets(self, who: Caller, own: bool) -> bool {
        let is_operator = matches!(who, Operator | ServiceToken | FullToken)
            || (own && matches!(who, ScopedOperator | ScopedToken));
        let reviews = who == Reviewer || (own && who == ScopedReviewer);
        let token = matches!(who, ServiceToken | ScopedToken | FullToken);
        let admin = matches!(who, Admin | FullToken);
        match self {
            Self::Open => true,
            Self::Machine | Self::LocalConnection => false,
            Self::SignedIn => who != Nobody,
            Self::Session => who != Nobody && !token,
            Self::View => !matches!(who, Nobody | Nothing),
            Self::ViewInSession => !matches!(who, Nobody | Nothing) && !token,
            Self::Operate => is_operator,
            Self::OperateSomewhere => is_operator || matches!(who, ScopedOperator | ScopedToken),
            Self::OperateEverywhere => matches!(who, Operator | ServiceToken | FullToken),
            Self::Review => reviews,
            Self::OperateOrReview => is_operator || reviews,
            Self::OperateOrAdmin => is_operator || admin,
            Self::OperateOrAdminInSession => (is_operator || admin) && !token,
            Self::MoreThanView => !matches!(who, Nobody | Nothing | Viewer),
            Self::Administer => admin,
            Self::AdministerInSession => admin && !token,
        }
    }
}

/// An endpoint: its request and the source of its ids.
struct Row {
    method: Method,
    path: &'static str,
    takes: Requirement,
    /// The kinds of its ids, in order.
    of: &'static [&'static str],
    query: &'static str,
    body: Value,
}

fn row(
    method: Method,
    path: &'static str,
    takes: Requirement,
    of: &'static [&'static str],
    body: Value,
) -> Row {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Row { method, path, takes, of, query, body }
}

fn get(path: &'static str, takes: Requirement, of: &'static [&'static str]) -> Row {
    row(Method::GET, path, takes, of, Value::Null)
}

fn post(path: &'static str, takes: Requirement, of: &'static [&'static str], body: Value) -> Row {
    row(Method::POST, path, takes, of, body)
}

fn table() -> Vec<Row> {
    use Requirement::*;
    let reason = || json!({"reason": "because"});
    let (delete, put, patch) = (Method::DELETE, Method::PUT, Method::PATCH);
    let mut rows = vec![
        get("/healthz", Open, &[]),
        get("/readyz", Open, &[]),
        get("/metrics", LocalConnection, &[]),
        get("/api/v1/openapi.json", Open, &[]),
        get("/api/v1/overview", View, &[]),
        get("/api/v1/search?q=a", View, &[]),
        get("/api/v1/workers", View, &[]),
        get("/api/v1/workers/{id}", View, &["worker"]),
        post("/api/v1/workers/{id}/drain", OperateEverywhere, &["worker"], json!({"reason": "x"})),
        post("/api/v1/workers/{id}/resume", OperateEverywhere, &["worker"], json!({"reason": "x"})),
        get("/api/v1/background-tasks", View, &[]),
        get("/api/v1/policy", View, &[]),
        get("/api/v1/audit", MoreThanView, &[]),
        get("/api/v1/audit/chain", MoreThanView, &[]),
        get("/api/v1/audit/export", MoreThanView, &[]),
        get("/api/v1/blueprints/{number}", View, &["target"]),
        get("/api/v1/blueprints/{number}/progress", View, &["target"]),
        post("/api/v1/blueprints/{number}/retry", OperateSomewhere, &["target"], reason()),
        get("/api/v1/watch?after=x", View, &[]),
        get("/events?after=x", View, &[]),
        get("/runs/{id}/log", View, &["run"]),
        get("/graph.svg", View, &[]),
        get("/graph/{name}/graph.svg", View, &["deployment"]),
        get("/reviews/{id}/graph.svg", View, &["review"]),
        get("/api/v1/deployments", View, &[]),
        post(
            "/api/v1/deployments",
            Operate,
            &[],
            json!({"name": "below-$deployment", "parent": "$deployment"}),
        ),
        get("/api/v1/deployments/{id}", View, &["deployment"]),
        row(delete.clone(), "/api/v1/deployments/{id}", Operate, &["deployment"], Value::Null),
        get("/api/v1/deployments/{id}/board", View, &["deployment"]),
        get("/api/v1/deployments/{id}/declaration", View, &["deployment"]),
        get("/api/v1/deployments/{id}/progress", View, &["deployment"]),
        get("/api/v1/deployments/{id}/noderoles?role=app", View, &["deployment"]),
        get("/api/v1/graph?longest=count", View, &[]),
        get("/api/v1/deployments/{id}/graph?longest=count", View, &["deployment"]),
        post("/api/v1/deployments/{id}/proposals", Operate, &["deployment"], json!({})),
        post(
            "/api/v1/deployments/{id}/priority",
            Operate,
            &["deployment"],
            json!({"priority": 1, "reason": "because"}),
        ),
        post(
            "/api/v1/deployments/{id}/restore",
            Operate,
            &["deployment"],
            json!({"blueprint": 1, "partial": true}),
        ),
        post("/api/v1/nodes/{id}/proposals", Operate, &["node"], json!({})),
        get("/api/v1/nodes/{id}/noderoles", View, &["node"]),
        get("/api/v1/nodes/{id}/results", View, &["node"]),
        get("/api/v1/nodes/{id}/health-checks", View, &["node"]),
        get("/api/v1/nodes/{id}", View, &["node"]),
        get("/api/v1/nodes", View, &[]),
        get("/api/v1/proposals", View, &[]),
        get("/api/v1/proposals/{id}", View, &["proposal"]),
        get("/api/v1/proposals/{id}/report", View, &["proposal"]),
        get("/api/v1/proposals/{id}/noderole?node=$node&noderole=app", View, &["proposal"]),
        post(
            "/api/v1/proposals/{id}/preview",
            Operate,
            &["proposal"],
            json!({"edits": [{"edit": "set_role_data"}]}),
        ),
        post(
            "/api/v1/proposals/{id}/edits",
            Operate,
            &["proposal"],
            json!({"version": "$version", "edits": ["$edit"]}),
        ),
        post("/api/v1/proposals/{id}/undo", Operate, &["proposal"], json!({"version": "$version"})),
        post("/api/v1/proposals/{id}/redo", Operate, &["proposal"], json!({"version": "$version"})),
        get("/api/v1/reviews", View, &[]),
        get("/api/v1/reviews/{id}", View, &["review"]),
        get("/api/v1/reviews/{id}/difference", View, &["review"]),
        get("/api/v1/reviews/{id}/impact", View, &["review"]),
        get("/api/v1/reviews/{id}/discussion", View, &["review"]),
        get("/api/v1/reviews/{id}/since", View, &["review"]),
        get("/api/v1/reviews/{id}/viewed", View, &["review"]),
        get("/api/v1/reviews/{id}/report", View, &["review"]),
        get("/api/v1/reviews/{id}/noderole?node=$node&noderole=app", View, &["review"]),
        get("/api/v1/reviews/{id}/graph?roles=app", View, &["review"]),
        post(
            "/api/v1/reviews/{id}/verdicts/options",
            ViewInSession,
            &["review"],
            json!({"kind": "approve"}),
        ),
        post("/api/v1/reviews/{id}/viewed", ViewInSession, &["review"], json!({"anchors": []})),
        post("/api/v1/reviews/{id}/view", ViewInSession, &["review"], Value::Null),
        post("/api/v1/reviews/{id}/threads", OperateOrReview, &["review"], json!({"body": "why"})),
        post("/api/v1/threads/{id}/replies", OperateOrReview, &["thread"], json!({"body": "so"})),
        post("/api/v1/threads/{id}/reopen", OperateOrReview, &["thread"], Value::Null),
        // The thread's author or a reviewer. ada opened it.
        post("/api/v1/threads/{id}/resolve", Review, &["thread"], Value::Null),
        post("/api/v1/reviews/{id}/verdicts", Review, &["review"], json!({"kind": "approve"})),
        post(
            "/api/v1/reviews/{id}/commit",
            OperateOrReview,
            &["review"],
            json!({"name": "$deployment"}),
        ),
        post(
            "/api/v1/proposals/{id}/submit",
            Operate,
            &["proposal"],
            json!({"version": "$version", "title": "again"}),
        ),
        post(
            "/api/v1/proposals/{id}/discard",
            Operate,
            &["proposal"],
            json!({"version": "$version"}),
        ),
        get("/api/v1/blueprints", View, &[]),
        get("/api/v1/blueprints/compare?from=1&to=1", View, &[]),
        get("/api/v1/steps?state=error", View, &[]),
        get("/api/v1/jigs", View, &[]),
        get("/api/v1/noderoles/{id}", View, &["noderole"]),
        get("/api/v1/noderoles/{id}/data", View, &["noderole"]),
        post("/api/v1/noderoles/{id}/retry", Operate, &["noderole"], reason()),
        get("/api/v1/runs", View, &[]),
        get("/api/v1/runs/{id}", View, &["run"]),
        get("/api/v1/runs/{id}/data", View, &["run"]),
        get("/api/v1/runs/{id}/log", View, &["run"]),
        get("/api/v1/runs/{id}/log/search?q=x", View, &["run"]),
        post("/api/v1/runs/{id}/cancel", Operate, &["run"], Value::Null),
        get("/api/v1/scripts/{hash}", View, &["hash"]),
        get("/api/v1/pending", View, &[]),
        get("/api/v1/barclamps", View, &[]),
        get("/api/v1/roles", View, &[]),
        get("/api/v1/roles/{name}", View, &["role"]),
        get("/api/v1/catalog/graph", View, &[]),
        get("/api/v1/imports", View, &[]),
        post(
            "/api/v1/barclamps",
            OperateEverywhere,
            &[],
            json!({"files": {"b.yml": "barclamp: {name: b, version: '1', description: x}\nroles: \
                []\n"}}),
        ),
        post(
            "/api/v1/nodes",
            OperateEverywhere,
            &[],
            json!({"fqdn": "m9.house.example.com", "root": "/srv/m9"}),
        ),
        post(
            "/api/v1/nodes/bulk",
            OperateEverywhere,
            &[],
            json!({"text": "m8.house.example.com root=/srv/m8"}),
        ),
        row(patch.clone(), "/api/v1/nodes/{id}", Operate, &["node"], json!({"description": "x"})),
        post("/api/v1/nodes/{id}/start-maintenance", Operate, &["node"], json!({"reason": "x"})),
        post("/api/v1/nodes/{id}/end-maintenance", Operate, &["node"], json!({"reason": "x"})),
        post("/api/v1/nodes/{id}/tokens", OperateOrAdminInSession, &["node"], json!({"name": "x"})),
        row(
            delete.clone(),
            "/api/v1/nodes/{id}/tokens/{token}",
            OperateOrAdmin,
            &["node", "node_token"],
            Value::Null,
        ),
        row(delete.clone(), "/api/v1/nodes/{id}", OperateEverywhere, &["spare"], Value::Null),
        post("/api/v1/self/startup", Machine, &[], json!({"boot_id": "x"})),
        post("/api/v1/self/shutdown", Machine, &[], json!({})),
        post("/api/v1/self/bootenv", Machine, &[], json!({"bootenv": "x"})),
        row(put.clone(), "/api/v1/self/facts", Machine, &[], json!({})),
        post("/api/v1/deployments/{id}/hold", Operate, &["deployment"], json!({"reason": "x"})),
        post("/api/v1/deployments/{id}/release", Operate, &["deployment"], json!({"reason": "x"})),
        post("/api/v1/execution/off", OperateEverywhere, &[], json!({"reason": "x"})),
        post("/api/v1/execution/on", OperateEverywhere, &[], json!({"reason": "x"})),
    ];
    rows.extend(of_people());
    rows
}

fn of_people() -> Vec<Row> {
    use Requirement::*;
    let (delete, put, patch) = (Method::DELETE, Method::PUT, Method::PATCH);
    vec![
        get("/api/v1/people", Administer, &[]),
        post("/api/v1/people", AdministerInSession, &[], json!({"name": "someone-new"})),
        get("/api/v1/people/me", SignedIn, &[]),
        get("/api/v1/people/{id}", Administer, &["victim"]),
        row(
            patch,
            "/api/v1/people/{id}/grants",
            AdministerInSession,
            &["victim"],
            json!({"grants": [{"permission": "viewer"}]}),
        ),
        post("/api/v1/people/{id}/confirm", AdministerInSession, &["victim"], Value::Null),
        row(delete.clone(), "/api/v1/me/notices", Session, &[], Value::Null),
        row(
            delete.clone(),
            "/api/v1/people/{id}/second-factor",
            AdministerInSession,
            &["victim"],
            Value::Null,
        ),
        row(delete.clone(), "/api/v1/passkeys/{id}", Session, &["victim_session"], Value::Null),
        post(
            "/api/v1/passkeys/{id}/confirm",
            Session,
            &["victim_session"],
            json!({"nonce": "0", "answer": {}}),
        ),
        post("/api/v1/passkeys/{id}/confirm/options", Session, &["victim_session"], Value::Null),
        post("/api/v1/me/passkeys", Session, &[], json!({"name": "x", "answer": {}})),
        post("/api/v1/me/passkeys/options", Session, &[], Value::Null),
        post(
            "/api/v1/reviews/{id}/verdicts/options",
            ViewInSession,
            &["review"],
            json!({"kind": "approve"}),
        ),
        get("/api/v1/me/second-factor", SignedIn, &[]),
        post("/api/v1/me/second-factor", Session, &[], json!({"code": "123456"})),
        post("/api/v1/me/second-factor/options", Session, &[], Value::Null),
        post("/api/v1/me/totp", Session, &[], Value::Null),
        post("/api/v1/me/totp/confirm", Session, &[], json!({"code": "12345"})),
        row(delete.clone(), "/api/v1/me/totp", Session, &[], Value::Null),
        post("/second-factor", Session, &[], Value::Null),
        post("/api/v1/people/{id}/link", AdministerInSession, &["victim"], Value::Null),
        post("/api/v1/people/{id}/disable", AdministerInSession, &["victim"], Value::Null),
        post("/api/v1/people/{id}/enable", AdministerInSession, &["victim"], Value::Null),
        get("/api/v1/me/sessions", SignedIn, &[]),
        // Resources of another person with viewer permission only. `check_foreign_resources` checks
        // the results.
        row(delete.clone(), "/api/v1/me/sessions/{id}", Session, &["victim_session"], Value::Null),
        row(put, "/api/v1/me/password", Session, &[], json!({"new": "too short"})),
        get("/api/v1/tokens", SignedIn, &[]),
        get("/api/v1/tokens?person=$victim", Administer, &[]),
        post("/api/v1/tokens", AdministerInSession, &[], json!({"name": "x", "scopes": ["admin"]})),
        row(delete.clone(), "/api/v1/tokens/{id}", Session, &["victim_token"], Value::Null),
        row(delete, "/api/v1/me/sessions", Session, &[], Value::Null),
        post("/sign-in", Open, &[], Value::Null),
        // A token has no session to end, so nothing happens.
        post("/sign-out", SignedIn, &[], Value::Null),
        post("/sign-out/everywhere", Session, &[], Value::Null),
    ]
}

/// Endpoints that never succeed here, with the reason.
const NEVER_SUCCEED: [(&str, &str); 18] = [
    (
        "DELETE /api/v1/deployments/{id}",
        "the deployment has nodes: `change_flow` removes an empty one",
    ),
    ("GET /api/v1/watch", "the response does not end: `streaming` tests it"),
    ("GET /events", "the response does not end: `streaming` tests it"),
    ("GET /api/v1/scripts/{hash}", "no role of this test has a script"),
    ("POST /api/v1/noderoles/{id}/retry", "no step of this test is in ERROR"),
    ("POST /api/v1/runs/{id}/cancel", "the run has ended"),
    (
        "DELETE /api/v1/me/sessions/{id}",
        "another person's session: `people_end_only_their_own_sessions` ends an own one",
    ),
    (
        "POST /api/v1/me/second-factor",
        "no person of this test has a factor: `second_factor` presents one",
    ),
    ("POST /api/v1/me/second-factor/options", "no person of this test has a passkey"),
    (
        "POST /api/v1/me/totp/confirm",
        "the request needs the code of an app: `second_factor` sends one",
    ),
    ("DELETE /api/v1/passkeys/{id}", "no person of this test has a passkey"),
    ("POST /api/v1/passkeys/{id}/confirm", "no person of this test has a passkey"),
    ("POST /api/v1/passkeys/{id}/confirm/options", "no person of this test has a passkey"),
    ("POST /api/v1/me/passkeys", "passkeys need a host name: `second_factor` registers one"),
    ("POST /api/v1/me/passkeys/options", "passkeys need a host name"),
    ("POST /api/v1/reviews/{id}/verdicts/options", "no person of this test has a passkey"),
    ("POST /second-factor", "the request must be a form: `second_factor` sends one"),
    ("PUT /api/v1/me/password", "the session would get another cookie: `people` sets passwords"),
];

/// The endpoints of a router, parsed from its `Debug` output.
pub(super) async fn endpoints(server: &TestServer) -> BTreeSet<(String, String)> {
    let routes = format!("{:?}", server.routes);
    let paths: BTreeSet<&str> = routes.split('"').filter(|text| text.starts_with('/')).collect();
    let mut found = BTreeSet::new();
    for path in paths
        .into_iter()
        .filter(|path| !path.starts_with("/call/") && !path.contains("__private__"))
    {
        let concrete =
            path.split('/').map(|part| if part.starts_with(['{', '*']) { "1" } else { part });
        let concrete = concrete.collect::<Vec<_>>().join("/");
        let request =
            Request::builder().method("PROPFIND").uri(concrete).header(header::HOST, server.host);
        let request =
            request.header("sec-fetch-site", "same-origin").body(Body::empty()).expect("a request");
        let answer = server.ask(request).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = answer
            .header(header::ALLOW)
            .split(',')
            .map(str::trim)
            .filter(|m| !matches!(*m, "HEAD" | ""));
        found.extend(allowed.map(|method| (method.to_owned(), path.to_owned())));
    }
    found
}

/// The header of each client.
pub(super) type Credentials = BTreeMap<Caller, (&'static str, String)>;

pub(super) struct World {
    pub(super) server: TestServer,
    pub(super) everybody: Credentials,
    /// Ids in `web` and in `edge`.
    pub(super) places: [BTreeMap<&'static str, String>; 2],
    pub(super) versions: [i64; 2],
    pub(super) edits: [Value; 2],
}

impl World {
    pub(super) async fn new() -> Self {
        let server = TestServer::new().await;
        server.furnish().await;
        let ada = server.cookie().await;
        let cy = server.person("cy", [Permission::Reviewer]).await;
        let added = server.add_n2(&ada).await;
        let n2 = added.json()["node"].clone();
        let n1 = server.n1(&ada).await;
        let victim = NewPerson::human("victim", [Permission::Viewer]);
        let victim = server.people.create_person(None, &victim).await.expect("a person");
        server.cookie_for(victim).await;
        let sql = "SELECT id::text FROM session WHERE person_id = (SELECT id FROM person WHERE \
            name = 'victim')";
        let victim_session: String =
            sqlx::query_scalar(sql).fetch_one(server.db.owner()).await.expect("a session");
        let as_victim = server.people.sign_in_as_owner("victim").await.expect("an actor");
        let request = TokenRequest {
            name: "x".into(),
            days: 1,
            scopes: vec!["viewer".into()],
            deployment: None,
            person: None,
        };
        let victim_token =
            server.people.create_token(&as_victim, &request).await.expect("a token").id.to_string();
        let worker = working(&server, &["noop"]).await;
        let (mut places, mut versions, mut edits) = (Vec::new(), Vec::new(), Vec::new());
        for (deployment, node) in [("web", &n1), ("edge", &n2)] {
            let id = server.id_of(deployment, &ada).await;
            let bind = json!([{"edit": "bind", "deployment": id, "node": node, "role": "app"}]);
            server.passes(&ada, deployment, bind, &[&cy]).await;
            let edit =
                json!({"edit": "set_role_data", "deployment": id, "role": "app", "data": {"n": 7}});
            let (proposal, version) = server.draft(&ada, deployment, json!([edit])).await;
            let submit = json!({"version": version, "title": "a change"});
            let made = server
                .send_post(&format!("/api/v1/proposals/{proposal}/submit"), &ada, submit)
                .await
                .json();
            let review = made["review"].to_string();
            let threads = format!("/api/v1/reviews/{review}/threads");
            let thread =
                server.send_post(&threads, &ada, json!({"body": "why"})).await.json()["comment"]
                    .to_string();
            let text =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let (noderole, run) = server.bound(&text(node)).await;
            let node_token = server.node_token(&ada, &text(node)).await;
            let name = format!("spare-{deployment}");
            let body = json!(
                {"fqdn": format!("{name}.house.example.com"), "root": format!("/srv/{name}")}
            );
            let spare = text(&server.send_post("/api/v1/nodes", &ada, body).await.json()["node"]);
            places.push(BTreeMap::from([
                ("deployment", deployment.to_owned()),
                ("deployment_id", text(&id)),
                ("worker", worker.to_string()),
                ("node", text(node)),
                ("proposal", proposal.to_string()),
                ("review", review),
                ("thread", thread),
                ("noderole", noderole),
                ("run", run),
                ("victim", victim.to_string()),
                ("victim_session", victim_session.clone()),
                ("victim_token", victim_token.clone()),
                ("passkey", "00000000-0000-0000-0000-000000000000".to_owned()),
                ("node_token", node_token),
                // A node without bindings.
                ("spare", spare),
                ("hash", "0".repeat(64)),
                ("target", "1".to_owned()),
                ("role", "app".to_owned()),
            ]));
            versions.push(version);
            edits.push(edit);
        }
        let everybody = everybody(&server).await;
        let two = |mut list: Vec<_>| [list.remove(0), list.remove(0)];
        Self {
            everybody,
            places: two(places),
            versions: [versions[0], versions[1]],
            edits: [edits[0].clone(), edits[1].clone()],
            server,
        }
    }

    /// All GET paths, including pages, with existing ids.
    pub(super) async fn readable(&self) -> BTreeSet<String> {
        let table = table();
        let of_table =
            |path: &str| table.iter().find(|row| row.method == Method::GET && row.path == path);
        let concrete = |path: &str| match of_table(path) {
            Some(row) => self.filled(row, 0),
            None => self.page(path),
        };
        let all = endpoints(&self.server).await;
        all.iter().filter(|(method, _)| method == "GET").map(|(_, path)| concrete(path)).collect()
    }

    /// A page with existing ids.
    fn page(&self, path: &str) -> String {
        let places = &self.places[0];
        let parts: Vec<&str> = path.split('/').collect();
        let filled = parts.iter().enumerate().map(|(at, part)| {
            let before =
                at.checked_sub(1).and_then(|at| parts.get(at)).copied().unwrap_or_default();
            let of = match before {
                _ if !part.starts_with(['{', '*']) => return *part,
                "nodes" => "node",
                "deployments" | "graph" => "deployment",
                "reviews" => "review",
                "blueprints" => "target",
                "runs" => "run",
                "noderoles" => "noderole",
                "proposals" => "proposal",
                "workers" => "worker",
                "roles" => "role",
                "people" => "victim",
                other => panic!("the table has no page of {path} for {other}"),
            };
            places[of].as_str()
        });
        filled.collect::<Vec<_>>().join("/")
    }

    fn filled(&self, row: &Row, place: usize) -> String {
        let mut ids = row.of.iter().map(|kind| self.places[place][kind].as_str());
        let parts = row
            .path
            .split('/')
            .map(|part| if part.starts_with('{') { ids.next().expect("an id") } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        let query = row.query.replace("$victim", &self.places[place]["victim"]);
        let query = query.replace("$node", &self.places[place]["node"]);
        if query.is_empty() { path } else { format!("{path}?{query}") }
    }

    async fn ask(&self, row: &Row, who: Caller, place: usize) -> Answer {
        let path = self.filled(row, place);
        let mut request = Request::builder()
            .method(row.method.clone())
            .uri(path)
            .header(header::HOST, self.server.host);
        if let Some((name, value)) = self.everybody.get(&who) {
            request = request.header(*name, value);
        }
        request = request.header("x-gantry", "1");
        // A missing version is an error for every client.
        let versioned = match (&row.method, row.path) {
            (&Method::PATCH, "/api/v1/nodes/{id}") => {
                Some(("node", "SELECT version FROM node WHERE id = $1::text::uuid"))
            }
            (&Method::PATCH, "/api/v1/people/{id}/grants") => {
                Some(("victim", "SELECT grants_version FROM person WHERE id = $1::text::uuid"))
            }
            _ => None,
        };
        if let Some((of, sql)) = versioned {
            let version = sqlx::query_scalar::<_, i32>(sql).bind(&self.places[place][of]);
            let version = version.fetch_one(self.server.db.owner()).await.expect("a version");
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        let body = match &row.body {
            Value::Null => Body::empty(),
            body => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                let filled =
                    body.to_string().replace("\"$version\"", &self.versions[place].to_string());
                Body::from(
                    filled
                        .replace("$deployment", &self.places[place]["deployment"])
                        .replace("\"$edit\"", &self.edits[place].to_string())
                        .replace("{\"edit\":\"set_role_data\"}", &self.edits[place].to_string()),
                )
            }
        };
        self.server.ask(request.body(body).expect("a request")).await
    }

    /// Prepares `web` so that a call can succeed.
    async fn prepare_for(&mut self, row: &Row) {
        let table = table();
        let of = |path: &str| {
            table.iter().find(|row| row.method == Method::POST && row.path == path).expect("a row")
        };
        let resolve = of("/api/v1/threads/{id}/resolve");
        match row.path {
            "/api/v1/reviews/{id}/commit" => {
                self.ask(resolve, Reviewer, 0).await.json();
                self.ask(of("/api/v1/reviews/{id}/verdicts"), Reviewer, 0).await.json();
            }
            "/api/v1/threads/{id}/reopen" => drop(self.ask(resolve, Reviewer, 0).await.json()),
            "/api/v1/proposals/{id}/redo" => {
                let undone = self.ask(of("/api/v1/proposals/{id}/undo"), Operator, 0).await.json();
                self.versions[0] = undone["version"].as_i64().expect("a version");
            }
            "/api/v1/proposals/{id}/submit" => {
                self.edits[0]["data"] = json!({"n": 8});
                let edited = self.ask(of("/api/v1/proposals/{id}/edits"), Operator, 0).await.json();
                self.versions[0] = edited["version"].as_i64().expect("a version");
            }
            "/api/v1/deployments/{id}/restore" => {
                self.ask(of("/api/v1/proposals/{id}/discard"), Operator, 0).await.json();
            }
            _ => {}
        }
    }

    /// For another person's resource, a session gets 404 and the resource stays. Only an admin may
    /// revoke any token.
    async fn check_foreign_resources(&self, table: &[Row]) {
        for (path, unless) in
            [("/api/v1/me/sessions/{id}", None), ("/api/v1/tokens/{id}", Some(Admin))]
        {
            let row = table
                .iter()
                .find(|row| row.method == Method::DELETE && row.path == path)
                .expect("a row");
            for who in
                ALL.into_iter().filter(|who| row.takes.lets(*who, true) && Some(*who) != unless)
            {
                let answer = self.ask(row, who, 0).await;
                assert_eq!(
                    answer.status,
                    StatusCode::NOT_FOUND,
                    "{who:?} {path}: {}",
                    answer.text()
                );
            }
        }
    }
}

impl TestServer {
    /// Creates a token of a node and returns its id.
    async fn node_token(&self, cookie: &str, node: &str) -> String {
        let made = self
            .send_post(&format!("/api/v1/nodes/{node}/tokens"), cookie, json!({"name": "its unit"}))
            .await
            .json();
        let sql = "SELECT id::text FROM token WHERE hash = sha256(convert_to($1, 'UTF8'))";
        let named = sqlx::query_scalar(sql).bind(made["token"].as_str().expect("a token"));
        named.fetch_one(self.db.owner()).await.expect("a row")
    }

    /// A noderole on a node, with a run.
    async fn bound(&self, node: &str) -> (String, String) {
        let sql = "WITH of AS (SELECT s.* FROM step s JOIN node n ON n.id = s.node_id WHERE n.id =
            $1::text::uuid LIMIT 1)
            INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number,
            epoch, content_hash, exclusive, state, outcome,
              ended_at, lease_until)
            SELECT id, node_id, concurrency_group_id, generation, generation, 1, content_hash,
            exclusive, 'ended', 'failed', now(), now() FROM of
            RETURNING (SELECT noderole_id::text FROM of), id::text";
        sqlx::query_as(sql).bind(node).fetch_one(self.db.owner()).await.expect("a run")
    }

    /// Everything that a client could have changed, except records of rejected attempts.
    pub(super) async fn state(&self) -> Vec<(String, String)> {
        let mut state = Vec::new();
        for table in [
            "blueprint",
            "deployment",
            "node",
            "proposal",
            "edit",
            "review",
            "verdict",
            "comment",
            "viewed_change",
            "review_view",
            "noderole",
            "step",
            "run",
            "barclamp",
            "person",
            "scoped_grant",
            "account",
            "session",
            "token",
            "import_report",
            "policy",
            "concurrency_group",
            "head",
        ] {
            let leave_out = match table {
                "token" => " - 'last_used_at'",
                "session" => " - 'last_seen_at' - 'idle_expires_at'",
                _ => "",
            };
            let sql = format!(
                "SELECT coalesce(md5(string_agg(r, '' ORDER BY r)), '') FROM (SELECT \
                 (to_jsonb(t){leave_out})::text AS r FROM {table} t) x"
            );
            let hash = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .fetch_one(self.db.owner())
                .await
                .expect("a row");
            state.push((table.to_owned(), hash));
        }
        state
    }
}

async fn everybody(server: &TestServer) -> Credentials {
    let mut everybody = Credentials::new();
    for (who, name, permissions) in [
        (Nothing, "nothing", &[][..]),
        (Viewer, "viewer", &[Permission::Viewer][..]),
        (Operator, "operator", &[Permission::Operator]),
        (Reviewer, "reviewer", &[Permission::Reviewer]),
        (Admin, "admin", &[Permission::Admin]),
        (ScopedOperator, "own-operator", &[]),
        (ScopedReviewer, "own-reviewer", &[]),
    ] {
        everybody.insert(who, ("cookie", server.person(name, permissions.iter().copied()).await));
    }
    for (name, permission) in [("own-operator", "operator"), ("own-reviewer", "reviewer")] {
        let sql = "INSERT INTO scoped_grant SELECT p.id, $2, d.id FROM person p, deployment d \
            WHERE p.name = $1 AND d.name = 'web'";
        sqlx::query(sql)
            .bind(name)
            .bind(permission)
            .execute(server.db.owner())
            .await
            .expect("a grant");
    }
    let all = [Permission::Operator, Permission::Reviewer, Permission::Admin];
    server.people.create_person(None, &NewPerson::human("all", all)).await.expect("a person");
    let all = server.people.sign_in_as_owner("all").await.expect("an actor");
    let service = NewPerson {
        kind: PersonKind::Service,
        ..NewPerson::human("service", [Permission::Operator])
    };
    let service = server.people.create_person(None, &service).await.expect("a person");
    let token = async |by: &Actor, scopes: &[&str], deployment: Option<&str>, person| {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let deployment = deployment.map(str::to_owned);
        let request = TokenRequest { name: "x".into(), days: 1, scopes, deployment, person };
        let made = server.people.create_token(by, &request).await.expect("a token");
        ("authorization", format!("Bearer {}", made.token))
    };
    everybody.insert(ServiceToken, token(&all, &["operator"], None, Some(service)).await);
    everybody.insert(ScopedToken, token(&all, &["operator"], Some("web"), None).await);
    everybody.insert(FullToken, token(&all, &["viewer", "operator", "admin"], None, None).await);
    everybody
}

#[tokio::test]
async fn clients_use_only_permitted_endpoints() {
    let world = World::new().await;
    let table = table();
    let known: BTreeSet<(String, String)> =
        table.iter().map(|row| (row.method.to_string(), row.path.to_owned())).collect();
    let found = endpoints(&world.server).await;
    assert!(found.len() > 80, "{found:?}");
    let pages: BTreeSet<&(String, String)> =
        found.iter().filter(|(method, path)| method == "GET" && is_page(path)).collect();
    assert!(pages.len() > 15, "{pages:?}");
    let unknown: Vec<_> =
        found.iter().filter(|one| !known.contains(*one) && !pages.contains(one)).collect();
    assert!(unknown.is_empty(), "the table has no permission for these routes: {unknown:?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "the router does not have these routes: {gone:?}");

    let before = world.server.state().await;
    for row in &table {
        for who in ALL {
            for place in [0, 1] {
                if row.takes.lets(who, place == 0) {
                    continue;
                }
                let answer = world.ask(row, who, place).await;
                let expected = match row.takes {
                    Requirement::LocalConnection => 403,
                    Requirement::Machine => 401,
                    _ if who == Nobody => 401,
                    _ => 403,
                };
                let case =
                    format!("{who:?} {} {} {}", row.method, row.path, ["own", "other"][place]);
                assert_eq!(answer.status.as_u16(), expected, "{case}: {}", answer.text());
                assert_eq!(
                    answer.header(header::CONTENT_TYPE),
                    "application/problem+json",
                    "{case}"
                );
            }
        }
    }
    world.check_foreign_resources(&table).await;
    assert_eq!(world.server.state().await, before, "a rejected request must change nothing");
    let mut nothing = Vec::new();
    for row in &table {
        let mut done = false;
        for (who, place) in ALL.into_iter().flat_map(|who| [(who, 0), (who, 1)]) {
            // After signing out, a client can't call anything. A separate test covers that.
            if !row.takes.lets(who, place == 0) || row.path.starts_with("/sign-") {
                continue;
            }
            let answer = world.ask(row, who, place).await;
            let case = format!("{who:?} {} {} {}", row.method, row.path, ["own", "other"][place]);
            assert!(
                !matches!(answer.status.as_u16(), 401 | 403),
                "{case}: {} {}",
                answer.status,
                answer.text()
            );
            assert!(answer.status.as_u16() < 500, "{case}: {} {}", answer.status, answer.text());
            done |= answer.status.is_success();
        }
        if !done {
            nothing.push(row);
        }
    }
    check_each_succeeds(nothing).await;
}

/// Some endpoints did not succeed because their resource was missing or used up. Calls each of them
/// in its own world.
async fn check_each_succeeds(rows: Vec<&Row>) {
    let known: BTreeSet<&str> = NEVER_SUCCEED.iter().map(|(name, _)| *name).collect();
    let (mut never, mut failed) = (BTreeSet::new(), Vec::new());
    for row in rows {
        let who = ALL.into_iter().find(|who| row.takes.lets(*who, true));
        let Some(who) = who.filter(|_| !row.path.starts_with("/sign-")) else { continue };
        let name = format!("{} {}", row.method, row.path);
        if known.contains(name.as_str()) {
            never.insert(name);
            continue;
        }
        let mut world = World::new().await;
        world.prepare_for(row).await;
        let answer = world.ask(row, who, 0).await;
        if !answer.status.is_success() {
            failed.push(format!("{who:?} {name}: {} {}", answer.status, answer.text()));
        }
    }
    assert!(
        failed.is_empty(),
        "these requests always fail, and the table gives no reason: {failed:#?}"
    );
    let never: BTreeSet<&str> = never.iter().map(String::as_str).collect();
    assert_eq!(never, known, "these requests succeed, although the table lists them as failing");
}

#[tokio::test]
async fn people_end_only_their_own_sessions() {
    let world = World::new().await;
    let server = &world.server;
    let of = |who: Caller| world.everybody[&who].1.clone();
    let delete = async |cookie: &str, path: &str| {
        let request = server.post(path).method(Method::DELETE).header(header::COOKIE, cookie);
        server.ask(request.body(Body::empty()).expect("a request")).await
    };
    let viewer = server.people.actor_by_name("viewer").await.expect("an actor").person;
    let other = server.cookie_for(viewer).await;
    let sessions = server.send_get("/api/v1/me/sessions", &of(Viewer)).await.json();
    let sessions = sessions["sessions"].as_array().expect("a list");
    let id = sessions.iter().find(|session| session["current"] == false).expect("another session")
        ["id"]
        .clone();
    let path = format!("/api/v1/me/sessions/{}", id.as_str().expect("an id"));
    for who in [Nothing, Admin] {
        assert_eq!(delete(&of(who), &path).await.status, StatusCode::NOT_FOUND, "{who:?}");
    }
    assert!(
        server.send_get("/api/v1/people/me", &other).await.status.is_success(),
        "the other session is still valid"
    );
    assert!(delete(&of(Viewer), &path).await.status.is_success());
    assert_eq!(server.send_get("/api/v1/people/me", &other).await.status, StatusCode::UNAUTHORIZED);
    assert!(
        server.send_get("/api/v1/people/me", &of(Viewer)).await.status.is_success(),
        "this session is still valid"
    );

    let body = json!({"name": "mine", "scopes": ["viewer"]});
    let made = server.send_post("/api/v1/tokens", &of(Viewer), body).await.json();
    let path = format!("/api/v1/tokens/{}", made["id"].as_str().expect("an id"));
    let bearer = format!("Bearer {}", made["token"].as_str().expect("a token"));
    let asks = async || {
        let request = server.get("/api/v1/people/me").header(header::AUTHORIZATION, &bearer);
        server.ask(request.body(Body::empty()).expect("a request")).await.status
    };
    assert_eq!(delete(&of(Operator), &path).await.status, StatusCode::NOT_FOUND);
    assert!(asks().await.is_success(), "the token is still valid");
    assert!(delete(&of(Viewer), &path).await.status.is_success());
    assert_eq!(asks().await, StatusCode::UNAUTHORIZED);
}

/// Pages of the console, which redirect to the sign-in page.
fn is_page(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    let pages = [
        "",
        "sign-in",
        "second-factor",
        "deployments",
        "nodes",
        "graph",
        "graphs",
        "reviews",
        "runs",
        "pending",
        "blueprints",
        "catalog",
        "workers",
        "audit",
        "search",
        "settings",
        "proposals",
        "noderoles",
    ];
    pages.contains(&first) && !path.ends_with(".svg") && !path.ends_with("/log")
}

#[tokio::test]
async fn every_page_redirects_to_sign_in() {
    let server = TestServer::new().await;
    let pages: Vec<String> = endpoints(&server)
        .await
        .into_iter()
        .filter(|(method, path)| method == "GET" && is_page(path))
        .map(|(_, p)| p)
        .collect();
    for page in pages.iter().filter(|page| *page != "/sign-in") {
        let concrete = page.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let answer = server.visit(&concrete.collect::<Vec<_>>().join("/"), "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{page}");
        assert!(answer.header(header::LOCATION).starts_with("/sign-in"), "{page}");
    }
}
