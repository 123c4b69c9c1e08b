//! Sign-in with a password and with a token.

use axum::http::Method;
use serde_json::json;

use super::*;

impl TestServer {
    pub(super) async fn root(&self) -> String {
        self.person("root", [Permission::Operator, Permission::Admin]).await
    }

    pub(super) async fn token(&self, cookie: &str, scopes: &[&str]) -> String {
        let made =
            self.send_post("/api/v1/tokens", cookie, json!({"name": "t", "scopes": scopes})).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        made.json()["token"].as_str().expect("a token").to_owned()
    }

    async fn form(&self, path: &str, cookie: &str, form: &str) -> Answer {
        let request =
            self.post(path).header(header::COOKIE, cookie).header(header::ACCEPT, "text/html");
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.ask(request.body(Body::from(form.to_owned())).expect("a request")).await
    }
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.problem()["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn token_overrides_cookies() {
    let server = TestServer::new().await;
    server.furnish().await;
    let root = server.root().await;
    let bearer = format!("Bearer {}", server.token(&root, &["operator"]).await);
    let (get, post) = (Method::GET, Method::POST);
    let open = "/api/v1/deployments/web/proposals";
    let opened = server.send(post.clone(), open, &[("authorization", &bearer)], json!({})).await;
    assert_eq!(
        opened.status,
        StatusCode::CREATED,
        "a token needs no X-Gantry header: {}",
        opened.text()
    );
    let audit: Value =
        sqlx::query_scalar("SELECT detail FROM audit WHERE action = 'proposal.open'")
            .fetch_one(server.db.owner())
            .await
            .expect("an audit entry");
    assert!(audit["by_token"].is_string(), "{audit}");

    let request = json!({"name": "t", "scopes": ["viewer", "admin"], "deployment": "web"});
    let refused = server.send_post("/api/v1/tokens", &root, request).await;
    assert_eq!(code(&refused), (400, "invalid".to_owned()));
    assert!(refused.problem()["detail"].as_str().is_some_and(|text| {
        text.starts_with("deployment: The permission admin always applies everywhere.")
    }));

    let me = server
        .send(
            get.clone(),
            "/api/v1/people/me",
            &[("authorization", &bearer), ("cookie", "x=y")],
            json!({}),
        )
        .await;
    assert_eq!(me.json()["permissions"], json!(["operator"]));
    assert_eq!(
        me.json()["person"]["grants"].as_array().map(Vec::len),
        Some(2),
        "the response has all grants of the person"
    );
    for wrong in ["Bearer gantry_0", "Bearer nonsense", "Basic YTpi", "Bearer"] {
        let both = [("authorization", wrong), ("cookie", root.as_str()), ("x-gantry", "1")];
        let refused = server.send(get.clone(), "/api/v1/people/me", &both, json!({})).await;
        assert_eq!(code(&refused), (401, "token_refused".into()), "{wrong}");
        let proof = refused.header(header::WWW_AUTHENTICATE);
        assert_eq!(proof, "Bearer realm=\"gantry\", error=\"invalid_token\"", "{wrong}");
    }
    let page = [("authorization", bearer.as_str()), ("origin", "http://evil.example")];
    assert_eq!(
        code(&server.send(post, open, &page, json!({})).await),
        (403, "other_origin".into())
    );
    let events =
        server.send(get.clone(), "/events?after=x", &[("authorization", &bearer)], json!({})).await;
    assert_eq!(events.status, StatusCode::BAD_REQUEST, "the token can open the stream");
    let of_a_page = server
        .send(
            get,
            "/deployments",
            &[("authorization", &bearer), ("accept", "text/html")],
            json!({}),
        )
        .await;
    assert_eq!(of_a_page.status, StatusCode::SEE_OTHER, "pages require a session");
}

#[tokio::test]
async fn concurrent_permission_change_conflicts() {
    let server = TestServer::new().await;
    let root = server.root().await;
    let place = format!("/api/v1/people/{}", server.ada);
    let seen = server.send_get(&place, &root).await;
    let (tag, version) =
        (seen.header(header::ETAG).to_owned(), seen.json()["version"].as_i64().expect("a version"));
    assert!(tag.starts_with(&format!("\"{version}.")), "{tag}");
    let change = async |permission: &str, on: Option<&str>| {
        let mut headers = vec![("cookie", root.as_str()), ("x-gantry", "1")];
        headers.extend(on.map(|tag| ("if-match", tag)));
        let grants = json!({"grants": [{"permission": permission}]});
        server.send(Method::PATCH, &format!("{place}/grants"), &headers, grants).await
    };
    let missing = change("viewer", None).await;
    assert_eq!(code(&missing), (428, "version_required".into()));
    assert_eq!(
        missing.problem()["detail"],
        "Fetch the person and send its ETag header as If-Match. The version protects changes by \
         other admins."
    );
    let changed = change("viewer", Some(&tag)).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    assert_eq!(changed.json()["version"], version + 1);
    assert_eq!(code(&change("operator", Some(&tag)).await), (412, "changed_meanwhile".into()));
    let now = server.send_get(&place, &root).await.json();
    assert_eq!(now["grants"], json!([{"permission": "viewer"}]), "no permission change is lost");
}

#[tokio::test]
async fn admin_who_grants_themselves_stays_signed_in() {
    let server = TestServer::new().await;
    let root = server.root().await;
    let me = async || server.send_get("/api/v1/people/me", &root).await;
    let id = me().await.json()["person"]["id"].as_str().expect("an id").to_owned();
    let place = format!("/api/v1/people/{id}");
    let tag = server.send_get(&place, &root).await.header(header::ETAG).to_owned();
    let headers = [("cookie", root.as_str()), ("x-gantry", "1"), ("if-match", tag.as_str())];
    let grants = json!({"grants": [{"permission": "admin"}, {"permission": "reviewer"}]});
    let changed = server.send(Method::PATCH, &format!("{place}/grants"), &headers, grants).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    let now = me().await;
    assert_eq!(now.status, StatusCode::OK, "{}", now.text());
    assert!(
        now.json()["permissions"].as_array().is_some_and(|all| all.contains(&json!("reviewer")))
    );
    assert_eq!(server.send_get("/api/v1/people", &root).await.status, StatusCode::OK);
}

#[tokio::test]
async fn disabling_requires_current_version() {
    let server = TestServer::new().await;
    let root = server.root().await;
    let place = format!("/api/v1/people/{}", server.ada);
    let decide = async |action: &str, on: Option<&str>| {
        let mut headers = vec![("cookie", root.as_str()), ("x-gantry", "1")];
        headers.extend(on.map(|tag| ("if-match", tag)));
        server.send(Method::POST, &format!("{place}/{action}"), &headers, json!({})).await
    };
    let tag = async || server.send_get(&place, &root).await.header(header::ETAG).to_owned();
    let seen = tag().await;
    assert_eq!(decide("link", Some(&seen)).await.status, StatusCode::CREATED);
    assert_eq!(
        decide("disable", Some(&seen)).await.status,
        StatusCode::OK,
        "a sign-in link does not change the version"
    );
    for action in ["disable", "enable", "link"] {
        assert_eq!(
            code(&decide(action, Some(&seen)).await),
            (412, "changed_meanwhile".into()),
            "{action}"
        );
    }
    assert_eq!(
        server.send_get(&place, &root).await.json()["disabled"],
        true,
        "the rejected request must not change the person"
    );
    assert_eq!(decide("enable", Some(&tag().await)).await.status, StatusCode::OK);
    assert_eq!(
        decide("disable", None).await.status,
        StatusCode::OK,
        "a request without a version is not checked for conflicts"
    );
}

#[tokio::test]
async fn rate_limit_applies_per_token() {
    let server = TestServer::new().await;
    let root = server.root().await;
    let (one, other) =
        (server.token(&root, &["viewer"]).await, server.token(&root, &["viewer"]).await);
    let ask = async |token: &str| {
        let bearer = format!("Bearer {token}");
        server.send(Method::GET, "/events?after=x", &[("authorization", &bearer)], json!({})).await
    };
    for _ in 0..600 {
        assert_eq!(ask(&one).await.status, StatusCode::BAD_REQUEST);
    }
    let refused = ask(&one).await;
    let wait = refused.header(header::RETRY_AFTER).parse::<u32>();
    assert!(wait.is_ok_and(|seconds| (1..=60).contains(&seconds)), "{:?}", refused.headers);
    assert_eq!(code(&refused), (429, "too_many_requests".into()));
    assert_eq!(ask(&other).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn first_link_requires_setting_a_password() {
    let server = TestServer::new().await;
    server.furnish().await;
    let root = server.root().await;
    let request = json!({"name": "dee", "grants": [{"permission": "viewer"}]});
    let made = server.send_post("/api/v1/people", &root, request.clone()).await.json();
    assert_eq!(
        code(&server.send_post("/api/v1/people", &root, request).await),
        (409, "name_taken".into())
    );
    let link = made["link"]["link"].as_str().expect("a link");
    let answer = server
        .form(
            "/sign-in",
            "",
            &format!("next=/runs&token={}", link.rsplit('=').next().expect("a token")),
        )
        .await;
    assert_eq!(answer.header(header::LOCATION), "/settings/account?set=1");
    let dee = answer.cookie().split(';').next().expect("a cookie").to_owned();
    let page = server.visit("/settings/account?set=1", &dee).await;
    assert!(
        page.status.is_success() && page.text().contains("Set a password first"),
        "{}",
        page.text()
    );
    // The session may do nothing else.
    for path in ["/api/v1/nodes", "/api/v1/me/sessions", "/events?after=1"] {
        assert_eq!(
            code(&server.send_get(path, &dee).await),
            (403, "password_needed".into()),
            "{path}"
        );
    }
    // A passkey does not replace the password.
    for path in
        ["/call/nodes", "/call/passkey-options", "/api/v1/me/passkeys/options", "/api/v1/me/totp"]
    {
        assert_eq!(
            code(&server.send_post(path, &dee, json!({})).await),
            (403, "password_needed".into()),
            "{path}"
        );
    }
    let away = server.visit("/nodes", &dee).await;
    assert_eq!(
        (away.status, away.header(header::LOCATION)),
        (StatusCode::SEE_OTHER, "/settings/account?set=1")
    );
    // As a form without scripts sends it.
    let set = server
        .form("/call/set-password", &dee, "new=vague+otter+lamp&again=vague+otter+lamp")
        .await;
    assert!(
        set.status.is_success() || set.status.is_redirection(),
        "{} {}",
        set.status,
        set.text()
    );
    let rotated = set.cookie().split(';').next().expect("a cookie").to_owned();
    assert!(rotated.starts_with("gantry_session=") && rotated != dee);
    assert_eq!(
        server.send_get("/api/v1/people/me", &dee).await.status,
        StatusCode::UNAUTHORIZED,
        "the session from before the sign-in ended"
    );
    let me = server.send_get("/api/v1/people/me", &rotated).await.json();
    assert_eq!(
        (&me["requires_old_password"], &me["notices"][0]["by"]),
        (&json!(true), &json!("root"))
    );
    let page = server.visit("/settings/account", &rotated).await;
    assert!(page.text().contains("A password was set with a sign-in link that"), "{}", page.text());
    let headers = [("cookie", rotated.as_str()), ("x-gantry", "1")];
    let dismissed = server.send(Method::DELETE, "/api/v1/me/notices", &headers, json!({})).await;
    assert_eq!(dismissed.status, StatusCode::OK);
    assert_eq!(server.send_get("/api/v1/people/me", &rotated).await.json()["notices"], json!([]));

    let wrong = server.form("/sign-in", "", "name=dee&password=nonsense&next=/runs").await;
    assert_eq!(wrong.header(header::LOCATION), "/sign-in?next=%2Fruns&problem=wrong");
    let nobody = server.form("/sign-in", "", "name=nobody&password=nonsense&next=/runs").await;
    assert_eq!(nobody.header(header::LOCATION), wrong.header(header::LOCATION));
    // The entered name is kept for the next attempt, whether or not it exists. The password is not.
    for (answer, name) in [(&wrong, "dee"), (&nobody, "nobody")] {
        let cookie = answer.cookie();
        assert!(cookie.starts_with(&format!("gantry_name={name}; ")), "{cookie}");
        assert!(
            cookie.contains("Path=/sign-in")
                && cookie.contains("HttpOnly")
                && !cookie.contains("nonsense"),
            "{cookie}"
        );
    }
    let astray = server.form("/sign-in", "", "name=Vague+otter+lamp&password=dee").await;
    assert!(
        astray.headers.get(header::SET_COOKIE).is_none(),
        "a rejected form must not store the password"
    );
    let begun =
        server.form("/sign-in", &rotated, "name=dee&password=vague+otter+lamp&next=/runs").await;
    assert_eq!((begun.status, begun.header(header::LOCATION)), (StatusCode::SEE_OTHER, "/runs"));
    assert_eq!(
        server.send_get("/api/v1/people/me", &rotated).await.status,
        StatusCode::UNAUTHORIZED,
        "changing the password ended the session"
    );
    let dee = begun.cookie().split(';').next().expect("a cookie").to_owned();
    let sessions = server.send_get("/api/v1/me/sessions", &dee).await.json();
    assert_eq!(
        (sessions["sessions"].as_array().map(Vec::len), &sessions["next"]),
        (Some(1), &Value::Null)
    );
}

#[tokio::test]
async fn second_admin_confirms_access_over_rest_and_page() {
    let server = TestServer::new().await;
    server.furnish().await;
    let (root, second) = (server.root().await, server.person("second", [Permission::Admin]).await);
    let request = json!({"name": "dee", "grants": [{"permission": "reviewer"}]});
    let id = server.send_post("/api/v1/people", &root, request).await.json()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let place = format!("/api/v1/people/{id}");
    let seen = server.send_get(&place, &root).await.json();
    assert_eq!(seen["approvals_limited"][0]["admin"], "root", "{seen}");
    assert!(seen["approvals_limited"][0]["until"].is_string());
    let kinds: Vec<&Value> =
        seen["access_changes"].as_array().expect("a list").iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["link", "granted", "created"]);
    let page = server.visit(&format!("/settings/people/{id}"), &second).await;
    assert!(page.text().contains("Confirm access"), "{}", page.text());
    let confirm = format!("{place}/confirm");
    assert_eq!(
        code(&server.send_post(&confirm, &root, json!({})).await),
        (403, "may_not_confirm".into())
    );
    let bearer = format!("Bearer {}", server.token(&second, &["admin"]).await);
    let by_token =
        server.send(Method::POST, &confirm, &[("authorization", &bearer)], json!({})).await;
    assert_eq!(code(&by_token), (403, "session_required".into()));
    let by_page = server.form("/call/confirm-person", &second, &format!("person={id}")).await;
    assert!(
        by_page.status.is_redirection() && !by_page.header(header::LOCATION).contains("__err"),
        "{}",
        by_page.text()
    );
    let seen = server.send_post(&confirm, &second, json!({})).await.json();
    assert_eq!(
        (&seen["approvals_limited"], &seen["access_changes"][0]["confirmed_by"]),
        (&json!([]), &json!("second"))
    );
}

#[tokio::test]
async fn people_list_is_filtered_and_paged() {
    let server = TestServer::new().await;
    let root = server.root().await;
    for n in 0..60 {
        let new = NewPerson::human(format!("p{n:02}"), [Permission::Viewer]);
        server.people.create_person(None, &new).await.expect("a person");
    }
    let first = server.send_get("/api/v1/people?filter=p", &root).await.json();
    assert_eq!(
        (first["people"].as_array().map(Vec::len), &first["next"]),
        (Some(50), &json!("p49"))
    );
    let rest = server.send_get("/api/v1/people?filter=p&after=p49", &root).await.json();
    assert_eq!((rest["people"].as_array().map(Vec::len), &rest["next"]), (Some(10), &Value::Null));
    assert_eq!(
        server.send_get("/api/v1/people?kind=service", &root).await.json()["people"],
        json!([])
    );
    assert_eq!(
        server.send_get("/api/v1/people?kind=robot", &root).await.status,
        StatusCode::BAD_REQUEST
    );
    let page = server.visit("/settings/people?filter=p0", &root).await;
    assert!(page.text().contains("p09") && !page.text().contains("p10"), "{}", page.text());
}

#[tokio::test]
async fn rejected_form_keeps_input_except_password() {
    let server = TestServer::new().await;
    server.furnish().await;
    let root = server.root().await;
    let send = async |path: &str, from: &str, form: &str| {
        let request =
            server.post(path).header(header::COOKIE, &root).header(header::ACCEPT, "text/html");
        let request = request.header(header::REFERER, format!("http://127.0.0.1{from}"));
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request.header(header::CONTENT_LENGTH, form.len());
        let answer =
            server.ask(request.body(Body::from(form.to_owned())).expect("a request")).await;
        answer.header(header::LOCATION).to_owned()
    };
    let token =
        send("/call/create-token", "/settings/account?set=1", "name=ci+bot&days=soon&viewer=on")
            .await;
    let begins = "http://127.0.0.1/settings/account?set=1&typed.name=ci%20bot&typed.days=soon&typed.viewer=on&__path=";
    assert!(token.starts_with(begins), "{token}");
    let password =
        send("/call/set-password", "/settings/account", "old=x&new=short&again=short").await;
    assert!(password.contains("__err=") && !password.contains("typed."), "{password}");
}
