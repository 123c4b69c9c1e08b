//! Known attacks on the gates of other systems, via REST and via server functions.

use super::*;

impl TestServer {
    /// Appends edits to an open proposal via this interface.
    async fn append_via(
        &self,
        interface: Interface,
        cookie: &str,
        (proposal, version): (i64, i64),
        edits: &Value,
    ) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                let given = json!({"version": version, "edits": edits});
                self.send_post(&format!("/api/v1/proposals/{proposal}/edits"), cookie, given).await
            }
            Interface::Page => {
                let given = json!({"proposal": proposal, "version": version, "edits": edits});
                self.send_post("/call/edit", cookie, given).await
            }
        })
    }

    async fn submit_via(
        &self,
        interface: Interface,
        cookie: &str,
        (proposal, version): (i64, i64),
        title: &str,
    ) -> Outcome {
        outcome(&match interface {
            Interface::Rest => {
                let given = json!({"version": version, "title": title});
                self.send_post(&format!("/api/v1/proposals/{proposal}/submit"), cookie, given).await
            }
            Interface::Page => {
                let form = format!("proposal={proposal}&version={version}&title={title}");
                self.post_form("/call/submit", cookie, &form).await
            }
        })
    }
}

/// Case 3.
#[tokio::test]
async fn empty_change_cannot_be_submitted() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let web = server.id_of("web", &ada).await;
    let bind =
        json!([{"edit": "bind", "deployment": web, "node": server.n1(&ada).await, "role": "app"}]);
    let (proposal, version) = server.draft(&ada, "web", bind).await;
    let undo = json!({"version": version});
    server.send_post(&format!("/api/v1/proposals/{proposal}/undo"), &ada, undo).await.json();
    let version = version + 1;
    for interface in INTERFACES {
        let edits = server.append_via(interface, &ada, (proposal, version), &json!([])).await;
        assert_eq!(edits.0, 400, "{interface:?}: an empty list of edits is rejected");
        let empty = server.submit_via(interface, &ada, (proposal, version), "nothing").await;
        assert_eq!(empty.1, "empty", "{interface:?}");
    }
    assert_eq!((server.count("review").await, server.count("blueprint").await), (0, 1));
}

/// Case 6: authors of any edit, and API clients.
#[tokio::test]
async fn author_approval_is_rejected_on_every_interface() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let both = [Permission::Operator, Permission::Reviewer];
    let edits_it = server.person("cy", both).await;
    let takes_it_back = server.person("dan", both).await;
    let brings_it_again = server.person("fay", both).await;
    let asks = server.person("eve", both).await;
    // Service accounts can't start a session. This one had a session before it became one.
    let robot = server.person("robot", both).await;
    server.sql("UPDATE person SET kind = 'service' WHERE name = 'robot'").await;
    let edits = server.data(&ada, "web", 1).await;
    let (proposal, version) = server.draft(&ada, "web", edits).await;
    for n in [2, 3] {
        let edits = server.data(&ada, "web", n).await;
        let appended = server
            .append_via(Interface::Page, &edits_it, (proposal, version + n - 2), &edits)
            .await;
        assert_eq!(appended.0, 200, "{appended:?}");
    }
    let undo = json!({"version": version + 2});
    server
        .send_post(&format!("/api/v1/proposals/{proposal}/undo"), &takes_it_back, undo)
        .await
        .json();
    let redo = json!({"version": version + 3});
    server
        .send_post(&format!("/api/v1/proposals/{proposal}/redo"), &brings_it_again, redo)
        .await
        .json();
    let id = server.submit(&asks, (proposal, version + 4)).await;
    let authors = [
        ("co-author", &edits_it),
        ("a person who undid an edit", &takes_it_back),
        ("a person who redid an edit", &brings_it_again),
        ("the submitter", &asks),
    ];
    for interface in INTERFACES {
        for (who, cookie) in authors {
            assert_eq!(
                server.add_verdict_via(interface, cookie, id, "approve").await,
                no(403, "author"),
                "{interface:?}: {who}"
            );
        }
        assert_eq!(
            server.add_verdict_via(interface, &robot, id, "approve").await,
            no(403, "not_a_reviewer"),
            "{interface:?}"
        );
    }
    for cookie in [&ada, &edits_it, &robot] {
        server.refuses(cookie, id, &no(409, "not_approved"), "no other person approved").await;
    }
    server.add_verdict_via(Interface::Page, &bo, id, "approve").await;
    assert_eq!(server.commit_via(Interface::Page, &asks, id).await.0, 200);
}

/// Case 7.
#[tokio::test]
async fn concurrent_commits_create_one_target() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let edits = server.data(&ada, "web", 1).await;
    let draft = server.draft(&ada, "web", edits).await;
    let id = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
    let (rest, page) = tokio::join!(
        server.commit_via(Interface::Rest, &ada, id),
        server.commit_via(Interface::Page, &bo, id)
    );
    let lost = match (rest.0, page.0) {
        (201, _) => page,
        (_, 200) => rest,
        neither => panic!("{neither:?}"),
    };
    assert_eq!(lost, no(409, "committed"));
    assert_eq!(server.count("blueprint").await, 2);
}

/// Case 9.
#[tokio::test]
async fn recreated_resource_inherits_no_approval() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    for interface in INTERFACES {
        let edits = server.data(&ada, "web", 1).await;
        let draft = server.draft(&ada, "web", edits.clone()).await;
        let old = server.submit(&ada, draft).await;
        server.add_verdict_via(interface, &bo, old, "approve").await;
        assert_eq!(server.discard_via(interface, &ada, draft).await.0, 200, "{interface:?}");
        let draft = server.draft(&ada, "web", edits).await;
        let again = server.submit(&ada, draft).await;
        server.refuses(&ada, old, &no(409, "not_newest"), "a review of a discarded proposal").await;
        server
            .refuses(&ada, again, &no(409, "not_approved"), "the same edits in another proposal")
            .await;
        server.discard_via(interface, &ada, draft).await;
    }

    let web = server.id_of("web", &ada).await;
    let make = || {
        json!([{"edit": "create_deployment", "id": uuid::Uuid::new_v4(),
            "phantom": uuid::Uuid::new_v4(), "name": "below",
                "parent": web}])
    };
    let role =
        |deployment: &Value| json!([{"edit": "add_role", "deployment": deployment, "role": "app"}]);
    server.passes(&ada, "web", make(), &[&bo]).await;
    let first = server.id_of("below", &ada).await;
    let draft = server.draft(&ada, "below", role(&first)).await;
    let old = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Rest, &bo, old, "approve").await;
    server
        .passes(&ada, "web", json!([{"edit": "remove_deployment", "deployment": first}]), &[&bo])
        .await;
    server.passes(&ada, "web", make(), &[&bo]).await;
    let second = server.id_of("below", &ada).await;
    assert_ne!(first, second);
    server.refuses(&ada, old, &no(409, "not_newest"), "a review of a removed deployment").await;
    let draft = server.draft(&ada, "below", role(&second)).await;
    let new = server.submit(&ada, draft).await;
    server
        .refuses(&ada, new, &no(409, "not_approved"), "a new deployment with the same name")
        .await;
}

/// Case 10: a policy can't allow changes without a review.
#[tokio::test]
async fn policy_without_review_cannot_be_proposed() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let edits = server.data(&ada, "web", 1).await;
    let draft = server.draft(&ada, "web", edits).await;
    for (policy, status) in [
        (json!({"approvals": 0}), 422),
        (json!({"approvals": 1, "by_risk": {"destructive": 0}}), 422),
        (json!({"approvals": 21}), 422),
        (json!({}), 400),
        (json!({"approvals": -1}), 400),
        (json!({"approvals": null}), 400),
        (json!({"approvals": 1, "by_risk": {"anything": 1}}), 400),
        (json!({"approvals": 1, "except": ["ada"]}), 400),
    ] {
        for interface in INTERFACES {
            let set = json!([{"edit": "set_policy", "policy": policy}]);
            assert_eq!(
                server.append_via(interface, &ada, draft, &set).await.0,
                status,
                "{interface:?} {policy}"
            );
        }
    }
    assert_eq!(server.count("edit").await, 1);
}

/// Case 12: an objection outvotes approvals on every interface, until its author loses the
/// permission to review.
#[tokio::test]
async fn objection_blocks_commit_until_reviewer_loses_permission() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let cy = server.person("cy", [Permission::Reviewer]).await;
    let dan = server.person("dan", [Permission::Reviewer]).await;
    let edits = server.data(&ada, "web", 1).await;
    let draft = server.draft(&ada, "web", edits).await;
    let id = server.submit(&ada, draft).await;
    for (interface, approver) in [(Interface::Rest, &bo), (Interface::Page, &dan)] {
        server.add_verdict_via(interface, approver, id, "approve").await;
    }
    for (interface, kind) in [(Interface::Page, "request_changes"), (Interface::Rest, "reject")] {
        server.add_verdict_via(interface, &cy, id, kind).await;
        server.refuses(&ada, id, &no(409, "not_approved"), "two approvals and an objection").await;
    }
    server.sql("UPDATE person SET permissions = '{viewer}' WHERE name = 'cy'").await;
    assert_eq!(server.commit_via(Interface::Page, &ada, id).await.0, 200);
}

/// Case 14.
#[tokio::test]
async fn policy_change_must_pass_both_policies() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let cy = server.person("cy", [Permission::Reviewer]).await;
    let edits = server.data(&ada, "edge", 1).await;
    let draft = server.draft(&ada, "edge", edits).await;
    let waiting = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Page, &bo, waiting, "approve").await;

    let set = |approvals: u32| json!([{"edit": "set_policy", "policy": {"approvals": approvals}}]);
    let draft = server.draft(&ada, "web", set(2)).await;
    let stricter = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Page, &bo, stricter, "approve").await;
    server
        .refuses(
            &ada,
            stricter,
            &no(409, "not_approved"),
            "enough approvals for the old policy, too few for the new one",
        )
        .await;
    server.add_verdict_via(Interface::Page, &cy, stricter, "approve").await;
    assert_eq!(server.commit_via(Interface::Page, &ada, stricter).await.0, 200);
    server
        .refuses(&ada, waiting, &no(409, "policy_moved"), "an approval under the old policy")
        .await;

    let draft = server.draft(&ada, "web", set(1)).await;
    let weaker = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Rest, &bo, weaker, "approve").await;
    server
        .refuses(
            &ada,
            weaker,
            &no(409, "not_approved"),
            "enough approvals for the new policy, too few for the old one",
        )
        .await;
}

/// Case 16.
#[tokio::test]
async fn database_failure_during_commit_commits_nothing() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let edits = server.data(&ada, "web", 1).await;
    let draft = server.draft(&ada, "web", edits).await;
    let id = server.submit(&ada, draft).await;
    server.add_verdict_via(Interface::Rest, &bo, id, "approve").await;
    let written = "object o WHERE o.kind <> 'barclamp'";
    let before = (server.count(written).await, server.count("audit").await);
    for interface in INTERFACES {
        let mut transaction = server.db.owner().begin().await.expect("a transaction");
        // The last statement of the commit waits. All others have been executed.
        sqlx::query("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await
            .expect("the owner has the permission");
        let cut = async {
            server.has_lock_waiter().await;
            server.db.terminate_connections().await.expect("connections are terminated");
        };
        let (committed, ()) = tokio::join!(server.commit_via(interface, &ada, id), cut);
        drop(transaction);
        assert_eq!(committed.0, 503, "{interface:?}: {committed:?}");
        assert_eq!(server.count("blueprint").await, 1, "{interface:?}");
        assert_eq!(
            (server.count(written).await, server.count("audit").await),
            before,
            "{interface:?}"
        );
    }
    assert_eq!(
        server.commit_via(Interface::Page, &ada, id).await.0,
        200,
        "the commit succeeds after the failure"
    );
}

/// Case 20: irreversible changes come first, however many others there are and however few fit into
/// the response.
#[tokio::test]
async fn destructive_changes_precede_oversized_difference() {
    const TOOL: &str = "
barclamp: {name: tool, version: '1', description: For tests}
roles:
  - {name: wipe, jig: noop, flags: [destructive]}
";
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let imported = server
        .send_post("/api/v1/barclamps", &ada, json!({"files": {"tool/tool.yml": TOOL}}))
        .await
        .json();
    let web = server.id_of("web", &ada).await;
    let crowd = api::blueprints::MAX_DOCUMENTS;
    let add = "INSERT INTO node (fqdn, deployment_id, transport, connection)
               SELECT 'm' || n || '.house.example.com', d.id, 'local', jsonb_build_object('root',
               '/srv/m' || n)
               FROM deployment d, generate_series(1, $1) n WHERE d.system RETURNING id";
    let crowd: Vec<uuid::Uuid> = sqlx::query_scalar(add)
        .bind(i32::try_from(crowd).expect("a number"))
        .fetch_all(server.db.app())
        .await
        .expect("nodes");
    let mut edits: Vec<Value> =
        vec![json!({"edit": "bind_nodes", "deployment": web, "nodes": crowd, "role": "app"})];
    edits.push(json!(
        {
            "edit": "use_barclamp", "deployment": web, "barclamp": "tool",
            "version": imported["barclamps"][0]["hash"]
        }
    ));
    edits.push(
        json!({"edit": "bind", "deployment": web, "node": server.n1(&ada).await, "role": "wipe"}),
    );
    let draft = server.draft(&ada, "web", Value::from(edits)).await;
    let id = server.submit(&ada, draft).await;
    for interface in INTERFACES {
        let review = match interface {
            Interface::Rest => server.send_get(&format!("/api/v1/reviews/{id}"), &bo).await,
            Interface::Page => server.send_post("/call/review", &bo, json!({"id": id})).await,
        };
        let review = review.json();
        assert_eq!(review["risks"], json!(["destructive"]), "{interface:?}");
        let first = review["summary"][0].as_str().expect("a line");
        assert!(first.contains("be undone") && first.contains("n1"), "{interface:?}: {first}");
        assert_eq!(review["type_to_commit"], "web", "{interface:?}");
    }
    let page = server.visit(&format!("/reviews/{id}"), &bo).await;
    let text = page.text();
    let (undone, crowd) = (text.find("be undone"), text.find("m1.house.example.com"));
    assert!(
        undone.is_some() && crowd.is_none_or(|crowd| undone < Some(crowd)),
        "{undone:?} {crowd:?}"
    );
}

/// Case 20: a number that would be stored as another number is rejected.
#[tokio::test]
async fn unrepresentable_number_is_rejected_on_every_interface() {
    let server = TestServer::new().await;
    server.furnish().await;
    let ada = server.cookie().await;
    let web = server.id_of("web", &ada).await;
    let edits = server.data(&ada, "web", 1).await;
    let (proposal, version) = server.draft(&ada, "web", edits).await;
    for number in [
        "1e-400",
        "-1e-400",
        "1e400",
        "9007199254740993",
        "123456789012345678901234",
        "0.10000000000000001",
    ] {
        let edits = format!(
            r#"[{{"edit": "set_role_data", "deployment": {web}, "role": "app",
                 "data": {{"app": {{"port": {number}}}}}}}]"#
        );
        for interface in INTERFACES {
            let (path, body) = match interface {
                Interface::Rest => (
                    format!("/api/v1/proposals/{proposal}/edits"),
                    format!(r#"{{"version": {version}, "edits": {edits}}}"#),
                ),
                Interface::Page => (
                    "/call/edit".to_owned(),
                    format!(
                        r#"{{"proposal": {proposal}, "version": {version}, "edits": {edits}}}"#
                    ),
                ),
            };
            let answer = server.ask(server.post_json(&path, &ada, body)).await;
            assert!(
                (400..500).contains(&answer.status.as_u16()),
                "{interface:?} {number}: {}",
                answer.text()
            );
            let placed = interface == Interface::Page
                || answer.text().contains("line 2")
                || answer.text().contains("/app/port");
            assert!(placed, "{interface:?} {number}: {}", answer.text());
        }
    }
    let facts = r#"{"a": 1e-400}"#;
    let read = serde_json::from_str::<Value>(facts).expect("JSON");
    assert_eq!(read["a"], 0.0, "serde_json reads the rejected number as zero");
}

/// Case 20: text that displays as other text is rejected.
#[tokio::test]
async fn misleading_text_is_rejected_on_every_interface() {
    let server = TestServer::new().await;
    let bo = server.furnish().await;
    let (ada, bo) = (server.cookie().await, server.cookie_for(bo).await);
    let web = server.id_of("web", &ada).await;
    let edits = server.data(&ada, "web", 1).await;
    let draft = server.draft(&ada, "web", edits).await;
    for interface in INTERFACES {
        for hidden in ["\u{202e}", "\u{200b}", "\u{2066}", "\u{0}"] {
            let data = json!({"app": {format!("{hidden}trop"): 1}});
            let set =
                json!([{"edit": "set_role_data", "deployment": web, "role": "app", "data": data}]);
            assert_eq!(
                server.append_via(interface, &ada, draft, &set).await,
                no(422, "edit_refused"),
                "{interface:?} {hidden:?}"
            );
            let title = match interface {
                Interface::Rest => format!("safe{hidden}"),
                Interface::Page => format!("safe{}", escaped(hidden)),
            };
            assert_eq!(
                server.submit_via(interface, &ada, draft, &title).await.0,
                400,
                "{interface:?} {hidden:?}"
            );
        }
    }
    let list = json!({"app": ["fine", {"note": "a\u{200b}b"}]});
    let set = json!([{"edit": "set_role_data", "deployment": web, "role": "app", "data": list}]);
    let given = json!({"version": draft.1, "edits": set});
    let refused = server
        .send_post(&format!("/api/v1/proposals/{}/edits", draft.0), &ada, given)
        .await
        .problem();
    let detail = refused["errors"][0]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("/app/1/note contains the character U+200B"), "{refused}");
    let id = server.submit(&ada, draft).await;
    for interface in INTERFACES {
        let text = match interface {
            Interface::Rest => {
                let text = json!({"kind": "approve", "reason": "fine\u{202e}"});
                server.send_post(&format!("/api/v1/reviews/{id}/verdicts"), &bo, text).await
            }
            Interface::Page => {
                let text = format!("review={id}&kind=approve&reason=fine{}", escaped("\u{202e}"));
                server.post_form("/call/give-verdict", &bo, &text).await
            }
        };
        assert_eq!(outcome(&text).0, 400, "{interface:?}");
    }
    assert_eq!((server.count("edit").await, server.count("verdict").await), (1, 0));
}

/// Form encoding.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
