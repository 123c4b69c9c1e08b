//! Starts of runs on nodes, and changes that could start other runs: the execution switch, holds,
//! jigs, a restored blueprint, a repeated import. Via REST and via server functions. The claim is
//! the same statement that workers use.

use api::proposals::Restored;
use engine::anneal::Limits;
use engine::catalog::Role;
use engine::ids::{NodeId, RunId};
use store::workers::{NewWorker, WorkerId};

use super::*;

const LEASE: Duration = Duration::from_secs(600);

impl TestServer {
    /// A worker for the jigs `noop` and `script`, and a live node `n1`.
    async fn start_worker_and_node(&self, cookie: &str) {
        let hello = NewWorker {
            id: WorkerId(uuid::Uuid::new_v4()),
            name: "w".into(),
            capacity: 10,
            jigs: vec!["noop".into(), "script".into()],
            host: "here".into(),
            pid: 1,
            version: "0".into(),
        };
        store::workers::ensure_worker(self.db.worker(), &hello, LEASE).await.expect("a worker");
        store::workers::confirm_worker(self.db.worker(), hello.id).await.expect("a worker");
        let n1: NodeId = self.n1(cookie).await.as_str().expect("an id").parse().expect("an id");
        store::runs::set_node_alive(self.db.owner(), n1, true).await.expect("a node");
    }

    /// Claims and returns the runs that start now.
    async fn starts(&self) -> Vec<RunId> {
        store::runs::claim_runs(self.db.worker(), Limits::default()).await.expect("a claim").runs
    }

    async fn switch_via(&self, interface: Interface, cookie: &str, enabled: bool) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                let state = if enabled { "on" } else { "off" };
                let path = format!("/api/v1/execution/{state}");
                self.send_post(&path, cookie, json!({"reason": "because"})).await
            }
            Interface::Page => {
                self.post_form(
                    "/call/set-execution",
                    cookie,
                    &format!("enabled={enabled}&reason=because"),
                )
                .await
            }
        })
    }

    async fn hold_via(
        &self,
        interface: Interface,
        cookie: &str,
        deployment: &str,
        on_hold: bool,
    ) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                let verb = if on_hold { "hold" } else { "release" };
                let path = format!("/api/v1/deployments/{deployment}/{verb}");
                self.send_post(&path, cookie, json!({"reason": "because"})).await
            }
            Interface::Page => {
                let id = self.id_of(deployment, cookie).await;
                let id = id.as_str().expect("an id");
                self.post_form(
                    "/call/hold",
                    cookie,
                    &format!("deployment={id}&on_hold={on_hold}&reason=because"),
                )
                .await
            }
        })
    }

    async fn restore_via(
        &self,
        interface: Interface,
        cookie: &str,
        deployment: &str,
        target: i64,
    ) -> Answer {
        match interface {
            Interface::Rest => {
                self.send_post(
                    &format!("/api/v1/deployments/{deployment}/restore"),
                    cookie,
                    json!({"blueprint": target}),
                )
                .await
            }
            Interface::Page => {
                self.post_form(
                    "/call/restore",
                    cookie,
                    &format!("deployment={deployment}&target={target}"),
                )
                .await
            }
        }
    }

    /// Imports one file of a barclamp. A page takes one file at a time.
    async fn import_via(
        &self,
        interface: Interface,
        cookie: &str,
        (path, text): (&str, &str),
    ) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                self.send_post("/api/v1/barclamps", cookie, json!({"files": {path: text}})).await
            }
            Interface::Page => {
                let encoded = |text: &str| {
                    text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>()
                };
                let form = format!("path={}&text={}", encoded(path), encoded(text));
                self.post_form("/call/import", cookie, &form).await
            }
        })
    }

    async fn role_of(&self, run: RunId) -> Role {
        let facts = store::runs::run_details(self.db.worker(), &[run])
            .await
            .expect("a run")
            .remove(&run)
            .expect("a run");
        let body = store::catalog::object_body(self.db.worker(), facts.role_hash)
            .await
            .expect("a role")
            .expect("a role");
        serde_json::from_slice(&body).expect("a role")
    }
}

/// Case 17: while one of them is off, nothing starts. A person without permission can't enable it.
/// After it is enabled, the state is as before.
#[tokio::test]
async fn disabled_switch_hold_or_jig_starts_nothing() {
    let server = TestServer::new().await;
    let bo_is = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo_is).await);
    let bind = json!(
        [
            {
                "edit": "bind", "deployment": server
                    .id_of("web", &ada).await, "node": server
                    .n1(&ada).await, "role": "app"
            }
        ]
    );
    let nothing: [RunId; 0] = [];
    for interface in INTERFACES {
        let (done, made) = match interface {
            Interface::Rest => (200, 201),
            Interface::Page => (200, 200),
        };
        assert_eq!(server.switch_via(interface, &ada, false).await.0, made, "{interface:?}");
        assert_eq!(server.hold_via(interface, &ada, "web", true).await.0, done, "{interface:?}");
        if interface == INTERFACES[0] {
            // None of them blocks an approved change. Its steps stay pending.
            server.passes(&ada, "web", bind.clone(), &[&bo]).await;
            server.start_worker_and_node(&ada).await;
        }
        assert_eq!(
            server.starts().await,
            nothing,
            "{interface:?}: the switch is off and the deployment is on hold"
        );
        assert_eq!(
            server.switch_via(interface, &bo, true).await,
            no(403, "forbidden"),
            "{interface:?}"
        );
        assert_eq!(server.switch_via(interface, &ada, true).await.0, made, "{interface:?}");
        assert_eq!(server.starts().await, nothing, "{interface:?}: the deployment is on hold");
        assert_eq!(
            server.hold_via(interface, &bo, "web", false).await,
            no(403, "forbidden"),
            "{interface:?}"
        );
        assert_eq!(
            server.hold_via(interface, &ada, "edge", false).await,
            no(409, "state"),
            "{interface:?}: the hold belongs to another deployment"
        );
        assert_eq!(server.switch_via(interface, &ada, false).await.0, made, "{interface:?}");
        assert_eq!(server.hold_via(interface, &ada, "web", false).await.0, done, "{interface:?}");
        assert_eq!(server.starts().await, nothing, "{interface:?}: the switch is off");
        assert_eq!(server.switch_via(interface, &ada, true).await.0, made, "{interface:?}");

        // A jig's state is part of the blueprint, so it has no switch outside of the gate.
        let jig = |active: bool| json!([{"edit": "activate_jig", "jig": "noop", "active": active}]);
        server.passes(&ada, "web", jig(false), &[&bo]).await;
        assert_eq!(server.starts().await, nothing, "{interface:?}: the jig is disabled");
        let on = server.draft(&ada, "web", jig(true)).await;
        let on = server.submit(&ada, on).await;
        server.refuses(&ada, on, &no(409, "not_approved"), "an unapproved change of a jig").await;
        assert_eq!(server.starts().await, nothing, "{interface:?}: the jig stays disabled");
        server.add_verdict_via(interface, &bo, on, "approve").await;
        assert!(server.commit_via(interface, &ada, on).await.0 < 300, "{interface:?}");
        // Check for starts only after the last case, because a claim can't be undone.
        assert_eq!(server.switch_via(interface, &ada, false).await.0, made, "{interface:?}");
        assert_eq!(server.starts().await, nothing, "{interface:?}: the switch is off again");
        assert_eq!(server.switch_via(interface, &ada, true).await.0, made, "{interface:?}");
    }
    assert_eq!(server.starts().await.len(), 1, "the step starts if nothing blocks it");
}

/// Case 8: restoring a blueprint is a proposal like any other.
#[tokio::test]
async fn restore_only_opens_a_proposal() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let (web, n1) = (server.id_of("web", &ada).await, server.n1(&ada).await);
    server
        .passes(
            &ada,
            "web",
            json!([{"edit": "bind", "deployment": web, "node": n1, "role": "app"}]),
            &[&bo],
        )
        .await;
    let bound = "step";
    let before =
        (server.count("blueprint").await, server.count(bound).await, server.count("verdict").await);
    for interface in INTERFACES {
        let refused = server.restore_via(interface, &bo, "web", 1).await;
        assert_eq!(
            outcome(&refused),
            no(403, "forbidden"),
            "{interface:?}: a reviewer cannot restore"
        );
        let nowhere = server.restore_via(interface, &ada, "web", 99).await;
        assert_eq!(nowhere.status, StatusCode::NOT_FOUND, "{interface:?}");
        let restored: Restored =
            serde_json::from_value(server.restore_via(interface, &ada, "web", 1).await.json())
                .expect("a restored proposal");
        let draft = (restored.proposal.0, restored.version.into());
        let id = server.submit(&ada, draft).await;
        assert_eq!(
            server.add_verdict_via(interface, &ada, id, "approve").await,
            no(403, "author"),
            "{interface:?}: the person who restores is an author"
        );
        let path = format!("/api/v1/reviews/{id}");
        assert_eq!(
            server.send_get(&path, &bo).await.json()["gate"]["approvals"],
            0,
            "{interface:?}: approvals of the earlier blueprint do not count"
        );
        server.refuses(&ada, id, &no(409, "not_approved"), "the restore has no approval").await;
        let named = server.send_post(&format!("{path}/commit"), &ada, json!({"name": "web"})).await;
        assert_eq!(
            outcome(&named),
            no(409, "not_approved"),
            "a typed name does not replace an approval"
        );
        let now = (
            server.count("blueprint").await,
            server.count(bound).await,
            server.count("verdict").await,
        );
        assert_eq!(now, before, "{interface:?}");
        assert_eq!(server.discard_via(interface, &ada, draft).await.0, 200, "{interface:?}");
    }
}

/// A catalog import after the approval does not affect the approved runs.
#[tokio::test]
async fn import_after_approval_affects_no_run() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let file = |version: &str, about: &str| {
        format!(
            "barclamp: {{name: tool, version: '{version}'}}\nroles:\n  - {{name: tool, jig: noop, \
             description: {about}}}\n"
        )
    };
    let path = "tool/tool.yml";
    let first = server
        .send_post("/api/v1/barclamps", &ada, json!({"files": {path: file("1", "right")}}))
        .await
        .json();
    let (web, n1) = (server.id_of("web", &ada).await, server.n1(&ada).await);
    let edits = json!([
        {
            "edit": "use_barclamp",
            "deployment": web,
            "barclamp": "tool",
            "version": first["barclamps"][0]["hash"]
        },
        {"edit": "add_role", "deployment": web, "role": "tool"},
        {"edit": "bind", "deployment": web, "node": n1, "role": "tool"},
    ]);
    let draft = server.draft(&ada, "web", edits).await;
    let id = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Page, &bo, id, "approve").await;
    let change = async || {
        server.send_get(&format!("/api/v1/reviews/{id}"), &bo).await.json()["change_hash"].clone()
    };
    let approved = change().await;
    assert!(approved.is_string());
    for (interface, newer) in [(Interface::Rest, "2"), (Interface::Page, "3")] {
        let same = server.import_via(interface, &ada, (path, &file("1", "wrong"))).await;
        assert_eq!(
            same,
            no(409, "other_content"),
            "{interface:?}: the content of a version cannot change"
        );
        let newer = server.import_via(interface, &ada, (path, &file(newer, "wrong"))).await;
        assert!(newer.0 < 300, "{interface:?}: {newer:?}");
        assert_eq!(
            change().await,
            approved,
            "{interface:?}: the run must use the approved content"
        );
    }
    assert_eq!(server.commit_via(Interface::Page, &ada, id).await.0, 200);
    for interface in INTERFACES {
        assert_eq!(
            server.import_via(interface, &ada, (path, &file("1", "late"))).await,
            no(409, "other_content"),
            "{interface:?}"
        );
        assert!(
            server
                .import_via(interface, &ada, (path, &file(&format!("4-{interface:?}"), "wrong")))
                .await
                .0
                < 300,
            "{interface:?}"
        );
    }
    server.start_worker_and_node(&ada).await;
    let runs = server.starts().await;
    assert_eq!(runs.len(), 1);
    assert_eq!(server.role_of(runs[0]).await.description, "right");
}
