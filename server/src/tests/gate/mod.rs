//! Attacks on the gate over the web, via REST and via server functions, which are forms for
//! browsers without scripts. `docs/gate.md` maps the known cases to these tests.

mod cases;
mod rules;
mod starting;

use serde_json::json;

use super::streaming::StreamClient;
use super::*;

/// The interfaces that accept commands.
const INTERFACES: [Interface; 2] = [Interface::Rest, Interface::Page];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Rest,
    Page,
}

/// The result of a command: its status and the problem's code.
type Outcome = (u16, String);

fn outcome(answer: &Answer) -> Outcome {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status.as_u16(), body["code"].as_str().unwrap_or_default().to_owned())
}

fn no(status: u16, code: &str) -> Outcome {
    (status, code.to_owned())
}

impl TestServer {
    /// A review of ada's change of `web`. Returns the cookies of ada and of the reviewer bo, and
    /// the review.
    async fn submitted_review(&self) -> (String, String, i64) {
        let bo = self.furnish().await;
        let (ada, bo) = (self.cookie().await, self.cookie_for(bo).await);
        let edits = self.data(&ada, "web", 1).await;
        let web = self.draft(&ada, "web", edits).await;
        let review = self.submit(&ada, web).await;
        (ada, bo, review)
    }

    pub(super) async fn post_form(&self, path: &str, cookie: &str, form: &str) -> Answer {
        let request = self
            .post(path)
            .header(header::COOKIE, cookie)
            .header(header::ACCEPT, "application/json");
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.ask(request.body(Body::from(form.to_owned())).expect("a request")).await
    }

    async fn commit_via(&self, interface: Interface, cookie: &str, id: i64) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                self.send_post(&format!("/api/v1/reviews/{id}/commit"), cookie, json!({})).await
            }
            Interface::Page => {
                self.post_form("/call/commit", cookie, &format!("review={id}")).await
            }
        })
    }

    async fn add_verdict_via(
        &self,
        interface: Interface,
        cookie: &str,
        id: i64,
        kind: &str,
    ) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                let verdict = json!({"kind": kind, "reason": "because"});
                self.send_post(&format!("/api/v1/reviews/{id}/verdicts"), cookie, verdict).await
            }
            Interface::Page => {
                self.post_form(
                    "/call/give-verdict",
                    cookie,
                    &format!("review={id}&kind={kind}&reason=because"),
                )
                .await
            }
        })
    }

    /// Opens a proposal, appends edits, and returns its id and version.
    pub(super) async fn draft(&self, cookie: &str, deployment: &str, edits: Value) -> (i64, i64) {
        let path = format!("/api/v1/deployments/{deployment}/proposals");
        let proposal = self.send_post(&path, cookie, json!({})).await.json()["proposal"]
            .as_i64()
            .expect("an id");
        let board =
            self.send_get(&format!("/api/v1/deployments/{deployment}/board"), cookie).await.json();
        (
            proposal,
            self.append(
                cookie,
                proposal,
                board["proposal"]["version"].as_i64().expect("a version"),
                edits,
            )
            .await,
        )
    }

    pub(super) async fn append(
        &self,
        cookie: &str,
        proposal: i64,
        version: i64,
        edits: Value,
    ) -> i64 {
        let edits = json!({"version": version, "edits": edits});
        let raised = self
            .send_post(&format!("/api/v1/proposals/{proposal}/edits"), cookie, edits)
            .await
            .json();
        raised["version"].as_i64().expect("a version")
    }

    pub(super) async fn submit(&self, cookie: &str, (proposal, version): (i64, i64)) -> i64 {
        let submit = json!({"version": version, "title": "a change"});
        let made = self
            .send_post(&format!("/api/v1/proposals/{proposal}/submit"), cookie, submit)
            .await
            .json();
        made["review"].as_i64().expect("an id")
    }

    /// An edit that sets new data of a deployment's `app`.
    async fn data(&self, cookie: &str, deployment: &str, n: i64) -> Value {
        let board =
            self.send_get(&format!("/api/v1/deployments/{deployment}/board"), cookie).await.json();
        json!(
            [{"edit": "set_role_data", "deployment": board["id"], "role": "app", "data": {"n": n}}]
        )
    }

    async fn discard_via(
        &self,
        interface: Interface,
        cookie: &str,
        (proposal, version): (i64, i64),
    ) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                let given = json!({"version": version});
                self.send_post(&format!("/api/v1/proposals/{proposal}/discard"), cookie, given)
                    .await
            }
            Interface::Page => {
                self.post_form(
                    "/call/discard",
                    cookie,
                    &format!("proposal={proposal}&version={version}"),
                )
                .await
            }
        })
    }

    pub(super) async fn id_of(&self, deployment: &str, cookie: &str) -> Value {
        self.send_get(&format!("/api/v1/deployments/{deployment}/board"), cookie).await.json()["id"]
            .clone()
    }

    pub(super) async fn n1(&self, cookie: &str) -> Value {
        self.send_get("/api/v1/nodes?filter=n1", cookie).await.json()["nodes"][0]["id"].clone()
    }

    pub(super) async fn person(
        &self,
        name: &str,
        permissions: impl IntoIterator<Item = Permission>,
    ) -> String {
        let new = NewPerson::human(name, permissions);
        let id = self.people.create_person(None, &new).await.expect("a person");
        self.cookie_for(id).await
    }

    /// Takes edits to the target. The named people approve.
    pub(super) async fn passes(&self, ada: &str, deployment: &str, edits: Value, approve: &[&str]) {
        let draft = self.draft(ada, deployment, edits).await;
        let id = self.submit(ada, draft).await;
        for who in approve {
            self.add_verdict_via(Interface::Rest, who, id, "approve").await;
        }
        let name = json!({"name": deployment});
        self.send_post(&format!("/api/v1/reviews/{id}/commit"), ada, name).await.json();
    }

    pub(super) async fn count(&self, of: &'static str) -> i64 {
        let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {of}"));
        sqlx::query_scalar(sql).fetch_one(self.db.owner()).await.expect("a count")
    }

    pub(super) async fn sql(&self, statement: &'static str) {
        sqlx::query(statement)
            .execute(self.db.owner())
            .await
            .expect("the owner has the permission");
    }

    /// Waits until a statement waits for a lock.
    async fn has_lock_waiter(&self) {
        let sql = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                   WHERE NOT l.granted AND a.datname = current_database())";
        for _ in 0..1000 {
            if sqlx::query_scalar(sql).fetch_one(self.db.owner()).await.expect("a row") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no session waits for a lock");
    }

    /// Checks that every interface rejects the commit with this result and creates no target.
    async fn refuses(&self, cookie: &str, id: i64, expected: &Outcome, case: &str) {
        let before = self.count("blueprint").await;
        for interface in INTERFACES {
            assert_eq!(
                self.commit_via(interface, cookie, id).await,
                *expected,
                "{interface:?}: {case}"
            );
        }
        assert_eq!(self.count("blueprint").await, before, "{case}");
    }
}

#[tokio::test]
async fn every_interface_enforces_the_gate() {
    let server = TestServer::new().await;
    let bo_is = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo_is).await);
    let eve = server
        .people
        .create_person(None, &NewPerson::human("eve", [Permission::Viewer]))
        .await
        .expect("a person");
    let eve = server.cookie_for(eve).await;
    let edits = server.data(&ada, "web", 1).await;
    let (proposal, version) = server.draft(&ada, "web", edits).await;
    let first = server.submit(&ada, (proposal, version)).await;
    let not_approved = no(409, "not_approved");

    server.refuses(&ada, first, &not_approved, "a review without a verdict").await;
    for interface in INTERFACES {
        assert_eq!(
            server.add_verdict_via(interface, &ada, first, "approve").await,
            no(403, "author"),
            "{interface:?}"
        );
        assert_eq!(
            server.add_verdict_via(interface, &eve, first, "approve").await,
            no(403, "not_a_reviewer"),
            "{interface:?}"
        );
        assert_eq!(
            server.add_verdict_via(interface, "", first, "approve").await,
            no(401, "signed_out"),
            "{interface:?}"
        );
        assert_eq!(
            server.add_verdict_via(interface, &bo, first + 7, "approve").await,
            no(404, "not_found"),
            "{interface:?}"
        );
    }
    server.refuses(&ada, first, &not_approved, "an approval by the author only").await;
    for (interface, kind) in INTERFACES.into_iter().zip(["reject", "request_changes"]) {
        server.add_verdict_via(interface, &bo, first, "approve").await;
        server.add_verdict_via(interface, &bo, first, kind).await;
        server.refuses(&ada, first, &not_approved, kind).await;
    }
    server.add_verdict_via(Interface::Rest, &bo, first, "approve").await;
    server.refuses(&eve, first, &no(403, "forbidden"), "a commit by a viewer").await;
    server.refuses("", first, &no(401, "signed_out"), "a commit without a session").await;
    server.sql("UPDATE person SET permissions = '{viewer}' WHERE name = 'bo'").await;
    server
        .refuses(&ada, first, &not_approved, "an approval by a person without the permission")
        .await;
    server
        .sql("UPDATE person SET permissions = '{reviewer}', disabled = true WHERE name = 'bo'")
        .await;
    server.refuses(&ada, first, &not_approved, "an approval by a disabled person").await;
    server.sql("UPDATE person SET disabled = false WHERE name = 'bo'").await;
    server
        .refuses(&ada, first, &not_approved, "an approval from before the person was disabled")
        .await;

    let more = server.data(&ada, "web", 2).await;
    let version = server.append(&ada, proposal, version, more).await;
    server.refuses(&ada, first, &no(409, "not_newest"), "a review that was edited").await;
    let second = server.submit(&ada, (proposal, version)).await;
    server.refuses(&ada, second, &not_approved, "an approval of the earlier review").await;
    server.add_verdict_via(Interface::Page, &bo, second, "approve").await;

    let other = "INSERT INTO proposal (deployment_id, kind, created_by)
                 SELECT deployment_id, 'autopilot', created_by FROM proposal RETURNING id";
    let other: i64 =
        sqlx::query_scalar(other).fetch_one(server.db.owner()).await.expect("a proposal");
    let board = server.send_get("/api/v1/deployments/web/board", &ada).await.json();
    let node =
        server.send_get("/api/v1/nodes?filter=n1", &ada).await.json()["nodes"][0]["id"].clone();
    let edits = json!([{"edit": "bind", "deployment": board["id"], "node": node, "role": "app"}]);
    let sooner = server.append(&ada, other, 0, edits).await;
    let sooner = server.submit(&ada, (other, sooner)).await;
    server.add_verdict_via(Interface::Page, &bo, sooner, "approve").await;
    assert_eq!(server.commit_via(Interface::Page, &ada, sooner).await.0, 200);
    server.refuses(&ada, sooner, &no(409, "committed"), "a review that is already committed").await;
    server.refuses(&ada, second, &no(409, "not_newest"), "a review whose base changed").await;
    assert_eq!(
        server.add_verdict_via(Interface::Rest, &bo, second, "approve").await,
        no(409, "not_newest"),
        "an outdated review cannot be approved"
    );

    let review = server.send_get(&format!("/api/v1/reviews/{second}"), &bo).await.json();
    // The same documents change, but a new node now re-runs a step, which is another risk. So the
    // author must check and submit again.
    assert_eq!(
        (&review["state"], &review["replaced_by"]["after"]),
        (&json!("sent_back"), &Value::Null)
    );
    let third = server.submit(&ada, (proposal, version + 1)).await;
    let review = server.send_get(&format!("/api/v1/reviews/{third}"), &bo).await.json();
    assert_eq!(
        (&review["replaces"]["before"], &review["replaces"]["voided_verdicts"]),
        (&json!(second), &json!(["bo (approved)"]))
    );
    assert_eq!(review["authors"], json!(["ada"]));
    server.refuses(&ada, third, &not_approved, "an approval of another plan").await;
    let version = version + 1;
    server.add_verdict_via(Interface::Rest, &bo, third, "approve").await;
    server.sql("UPDATE head SET epoch = epoch + 1").await;
    server.refuses(&ada, third, &no(409, "other_epoch"), "a review from before a restore").await;
    let fourth = server.submit(&ada, (proposal, version)).await;
    server.add_verdict_via(Interface::Rest, &bo, fourth, "approve").await;
    let path = format!("/api/v1/proposals/{proposal}/discard");
    server.send_post(&path, &ada, json!({"version": version + 1})).await.json();
    server.refuses(&ada, fourth, &no(409, "not_newest"), "a discarded proposal").await;
    assert_eq!(server.count("blueprint").await, 2);
    // The audit records each rejected person and reason once per minute, no matter which interface
    // was used.
    let noted = "(SELECT DISTINCT actor, subject, detail FROM audit WHERE action = \
        'review.commit.refused') AS noted";
    assert_eq!(server.count(noted).await, 9);
}

#[tokio::test]
async fn parameters_never_widen_an_approval() {
    let server = TestServer::new().await;
    let (ada, bo, approved) = server.submitted_review().await;
    let edits = server.data(&ada, "edge", 1).await;
    let edge = server.draft(&ada, "edge", edits).await;
    let other = server.submit(&ada, edge).await;
    server.add_verdict_via(Interface::Rest, &bo, approved, "approve").await;

    let path = format!("/api/v1/reviews/{other}");
    let forced =
        json!({"review": approved, "override": true, "force": true, "approvals_needed": 0});
    assert_eq!(
        outcome(&server.send_post(&format!("{path}/commit?force=true"), &ada, forced).await),
        no(400, "invalid")
    );
    let named = json!({"name": "edge"});
    let forced = server.send_post(&format!("{path}/commit?force=true"), &ada, named.clone()).await;
    assert_eq!(outcome(&forced), no(400, "invalid"));
    let named = server.send_post(&format!("{path}/commit"), &ada, named).await;
    assert_eq!(
        outcome(&named),
        no(409, "not_approved"),
        "a typed name does not replace an approval"
    );
    let forced = format!("review={other}&override=true&force=1&approvals_needed=0");
    assert_eq!(
        outcome(&server.post_form("/call/commit?force=true", &ada, &forced).await),
        no(409, "not_approved")
    );
    for twice in [
        format!("review={approved}&review={other}"),
        format!("submission[]={other}"),
        String::new(),
    ] {
        let answer = server.post_form("/call/commit", &ada, &twice).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{twice}: {}", answer.text());
    }
    let verdicts = server.count("verdict").await;
    for more in [
        json!({"kind": "approve", "person": "bo"}),
        json!({"kind": "override"}),
        json!({"kind": ["approve"]}),
    ] {
        let answer = server.send_post(&format!("{path}/verdicts"), &ada, more.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{more}");
    }
    let as_bo = format!("review={other}&kind=approve&reason=&person=bo&actor=bo");
    assert_eq!(
        outcome(&server.post_form("/call/give-verdict", &ada, &as_bo).await),
        no(403, "author")
    );
    for name in ["x-forwarded-user", "x-remote-user", "x-http-method-override"] {
        let mut request =
            server.post_json(&format!("{path}/verdicts"), &ada, r#"{"kind":"approve"}"#);
        request.headers_mut().insert(name, axum::http::HeaderValue::from_static("bo"));
        assert_eq!(outcome(&server.ask(request).await), no(403, "author"), "{name}");
    }
    // An edit outside of its proposal's scope.
    let beyond = json!({"version": edge.1, "edits": server.data(&ada, "web", 2).await});
    let beyond =
        server.send_post(&format!("/api/v1/proposals/{}/edits", edge.0), &ada, beyond).await;
    assert_eq!(outcome(&beyond), no(422, "edit_refused"));
    assert_eq!((server.count("verdict").await, server.count("blueprint").await), (verdicts, 1));
    assert_eq!(server.commit_via(Interface::Rest, &ada, approved).await.0, 201);
}

#[tokio::test]
async fn crafted_ids_return_404() {
    let server = TestServer::new().await;
    let (ada, bo, id) = server.submitted_review().await;
    server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
    let verdicts = server.count("verdict").await;
    let near = [".0", "e0", "%20", "%00", ";", ",1", "%2f..%2f1", "'", "%EF%BC%91"]
        .map(|end| format!("{id}{end}"));
    let far = ["0", "-1", "0x1", "9223372036854775808", "%", "%ff", "%F0%9F%98%80", ""]
        .map(str::to_owned);
    for crafted in near.into_iter().chain(far) {
        for (action, body) in [("commit", "{}"), ("verdicts", r#"{"kind":"reject","reason":"x"}"#)]
        {
            let path = format!("/api/v1/reviews/{crafted}/{action}");
            let answer = server.ask(server.post_json(&path, &bo, body)).await;
            assert!(
                matches!(answer.status.as_u16(), 400 | 404),
                "{path}: {} {}",
                answer.status,
                answer.text()
            );
            answer.problem();
        }
        for (call, more) in [("commit", ""), ("give-verdict", "&kind=reject&reason=x")] {
            let answer = server
                .post_form(&format!("/call/{call}"), &bo, &format!("review={crafted}{more}"))
                .await;
            assert!(
                matches!(answer.status.as_u16(), 400 | 404),
                "{call} {crafted}: {}",
                answer.text()
            );
        }
    }
    assert_eq!((server.count("blueprint").await, server.count("verdict").await), (1, verdicts));
    assert_eq!(server.commit_via(Interface::Page, &ada, id).await.0, 200);
}

#[tokio::test]
async fn cross_site_verdict_and_commit_are_rejected() {
    let server = TestServer::new().await;
    let (_, bo, id) = server.submitted_review().await;
    let rest = format!("/api/v1/reviews/{id}");
    let commands = [
        (format!("{rest}/verdicts"), "application/json", r#"{"kind":"approve"}"#.to_owned()),
        (format!("{rest}/verdicts"), "text/plain", r#"{"kind":"approve"}"#.to_owned()),
        (format!("{rest}/commit"), "application/json", "{}".to_owned()),
        (
            "/call/give-verdict".to_owned(),
            "application/x-www-form-urlencoded",
            format!("review={id}&kind=approve&reason="),
        ),
        ("/call/commit".to_owned(), "application/x-www-form-urlencoded", format!("review={id}")),
    ];
    let froms: [&[(&str, &str)]; 5] = [
        &[],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("x-gantry", "1")],
        &[("origin", "http://evil.example"), ("x-gantry", "1")],
        &[("origin", "null"), ("sec-fetch-site", "same-origin")],
    ];
    for (path, kind, body) in &commands {
        for from in froms {
            let mut request =
                Request::post(path).header(header::HOST, LOCAL_HOST).header(header::COOKIE, &bo);
            for (name, value) in from {
                request = request.header(*name, *value);
            }
            let request =
                request.header(header::CONTENT_TYPE, *kind).body(Body::from(body.clone()));
            let answer = server.ask(request.expect("a request")).await;
            assert_eq!(answer.problem()["code"], "other_origin", "{path} {kind} {from:?}");
        }
        let query = if body.starts_with('{') { "" } else { body };
        let read = server.send_get(&format!("{path}?{query}"), &bo).await;
        assert!(matches!(read.status.as_u16(), 400 | 404 | 405), "{path}: {}", read.status);
    }
    let own = server.post(&format!("{rest}/verdicts")).header(header::COOKIE, &bo);
    let own =
        own.header(header::CONTENT_TYPE, "text/plain").body(Body::from(r#"{"kind":"approve"}"#));
    assert_eq!(
        server.ask(own.expect("a request")).await.status,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    assert_eq!((server.count("blueprint").await, server.count("verdict").await), (1, 0));
}

#[tokio::test]
async fn commit_after_lost_permission_is_rejected() {
    let server = TestServer::with_short_intervals().await;
    let (ada, bo, id) = server.submitted_review().await;
    server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
    let mut tab = StreamClient::open(&server, &ada, "", "").await;

    server.sql("UPDATE person SET permissions = '{viewer}' WHERE name = 'ada'").await;
    server.refuses(&ada, id, &no(403, "forbidden"), "a commit without the permission").await;
    server.sql("UPDATE person SET permissions = '{operator}' WHERE name = 'ada'").await;
    server.people.disable(None, server.ada).await.expect("the person is disabled");
    let ends = async { while tab.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), ends).await.expect("the stream ends in time");
    server.refuses(&ada, id, &no(401, "signed_out"), "a commit by a disabled person").await;
    server.sql("UPDATE person SET disabled = false WHERE name = 'ada'").await;
    server
        .refuses(&ada, id, &no(401, "signed_out"), "a session from before the person was disabled")
        .await;
    let again = server.cookie().await;
    assert_eq!(server.commit_via(Interface::Rest, &again, id).await.0, 201);
}

#[tokio::test]
async fn irreversible_commit_requires_the_name() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let web = server.send_get("/api/v1/deployments/web/board", &ada).await.json()["id"].clone();
    let node =
        server.send_get("/api/v1/nodes?filter=n1", &ada).await.json()["nodes"][0]["id"].clone();
    let bind = json!([{"edit": "bind", "deployment": web, "node": node, "role": "app"}]);
    let draft = server.draft(&ada, "web", bind).await;
    let id = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
    assert_eq!(server.commit_via(Interface::Rest, &ada, id).await.0, 201);
    let draft = server
        .draft(&ada, "web", json!([{"edit": "unbind", "node": node, "noderole": "app"}]))
        .await;
    let id = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
    let path = format!("/api/v1/reviews/{id}");
    assert_eq!(server.send_get(&path, &ada).await.json()["type_to_commit"], "web");
    server
        .refuses(&ada, id, &no(422, "confirmation_required"), "a commit without the typed name")
        .await;
    let empty = server
        .post(&format!("{path}/commit"))
        .header(header::COOKIE, &ada)
        .body(Body::empty())
        .expect("a request");
    assert_eq!(
        outcome(&server.ask(empty).await),
        no(422, "confirmation_required"),
        "an empty body does not confirm the name"
    );
    let wrong =
        server.send_post(&format!("{path}/commit"), &ada, json!({"name": "edge"})).await.problem();
    assert_eq!(wrong["errors"], json!([{"at": "name", "detail": "Type web."}]));
    let wrong = server.post_form("/call/commit", &ada, &format!("review={id}&name=edge")).await;
    assert_eq!(outcome(&wrong), no(422, "confirmation_required"));
    let right = server.post_form("/call/commit", &ada, &format!("review={id}&name=web")).await;
    assert_eq!(outcome(&right).0, 200, "{}", right.text());
}
