//! Serves the pages with fixtures, without a socket.

use std::sync::{Arc, LazyLock};

use api::Problem;
use axum::Router;
use axum::body::Body;
use control::people::ClientInfo;
use http::{Request, header};
use leptos::config::LeptosOptions;
use leptos::prelude::provide_context;
use leptos_axum::{AxumRouteListing, LeptosRoutes, generate_route_list};
use passkeys::RelyingParty;
use tower::ServiceExt;

use super::fake::{Actor, Fake};
use crate::request::RequestContext;
use crate::session_cookie::SessionCookie;

/// The response.
pub struct Page {
    pub status: u16,
    pub location: Option<String>,
    pub body: String,
}

impl Page {
    /// Fails unless the page contains all of these texts.
    pub fn assert_contains(&self, expected: &[&str]) {
        let missing: Vec<_> = expected.iter().filter(|text| !self.body.contains(**text)).collect();
        assert!(missing.is_empty(), "missing {missing:?} in {} {}", self.status, self.body);
    }

    /// Fails if the page contains one of these texts.
    pub fn assert_lacks(&self, unwanted: &[&str]) {
        let found: Vec<_> = unwanted.iter().filter(|text| self.body.contains(**text)).collect();
        assert!(found.is_empty(), "{found:?} must not be in {}", self.body);
    }
}

/// Initialized once: while routes are generated, resources do not load in any thread of the
/// process.
static ROUTES: LazyLock<Vec<AxumRouteListing>> = LazyLock::new(|| generate_route_list(crate::App));

pub fn router(fake: &Fake) -> Router {
    let options = LeptosOptions::builder().output_name("gantry").site_root("target/site").build();
    let request = RequestContext {
        control: Arc::new(fake.clone()),
        people: fake.clone(),
        actor: fake.0.lock().expect("an unpoisoned lock").signed_in.then_some(Actor),
        client: ClientInfo::default(),
        site: RelyingParty::of("http://localhost:7700").map_err(|_| Problem::internal()),
        session_cookie: SessionCookie { is_secure: false },
    };
    let provide = move || provide_context(request.clone());
    let shell_options = options.clone();
    let missing = leptos_axum::file_and_error_handler_with_context(provide.clone(), crate::shell);
    Router::new()
        .leptos_routes_with_context(&options, ROUTES.clone(), provide, move || {
            crate::shell(shell_options.clone())
        })
        .fallback(missing)
        .with_state(options)
}

pub async fn get(fake: &Fake, path: &str) -> Page {
    get_with(fake, path, &[]).await
}

pub async fn get_with(fake: &Fake, path: &str, headers: &[(&str, &str)]) -> Page {
    let request = Request::get(path).header(header::ACCEPT, "text/html");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    answer(fake, request.body(Body::empty()).expect("a request")).await
}

/// The page from which forms are posted.
pub const HERE: &str = "http://localhost/from-here";

/// Posts a form like a browser without JavaScript.
pub async fn post(fake: &Fake, path: &str, form: &str) -> Page {
    let request = Request::post(path)
        .header(header::ACCEPT, "text/html")
        .header(header::REFERER, HERE)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(form.to_owned()))
        .expect("a request");
    answer(fake, request).await
}

async fn answer(fake: &Fake, request: Request<Body>) -> Page {
    let response = router(fake).oneshot(request).await.expect("the router never fails");
    let location =
        response.headers().get(header::LOCATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    Page { status, location, body: String::from_utf8(body.into()).expect("text") }
}
