//! The second factor: its operations, and the form of its page, which works without scripts.

use api::Problem;
use api::second_factor::{
    Code, CodeRequest, FactorOptions, FactorRequest, SecondFactor, TotpSetup,
};
use app::addresses;
use axum::Json;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::AppState;
use crate::http::contract::{Operations, op};
use crate::http::problems::{JsonBody, Refusal, expects_page};
use crate::http::session::{Client, SignedIn};
use crate::pages::sign_in::safe_redirect_path;
use crate::rest::named::PathPerson;
use crate::rest::{Answer, CreatedResult, Success};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get(
        "/me/second-factor",
        state,
        op("getSecondFactor", "Get the state of your second factor"),
    )
    .post(
        "/me/second-factor",
        present,
        op("presentSecondFactor", "Verify your second factor").about(
            "Send a code from your authenticator app, or the response of a passkey. Until \
                 then, the session can do nothing else. Each code works once. Wrong codes count as \
                 failed sign-ins.",
        ),
    )
    .post(
        "/me/second-factor/options",
        options,
        op("getSecondFactorOptions", "Get the WebAuthn options to verify your second factor")
            .about(
                "Pass the options to navigator.credentials.get in the browser. They work \
                    once and expire after five minutes.",
            ),
    )
    .post(
        "/me/totp",
        start,
        op("startTotp", "Set up an authenticator app")
            .about(
                "The response shows the secret of the app, once. Confirm the app with a \
                    code in the same session within 15 minutes.",
            )
            .secret(),
    )
    .post(
        "/me/totp/confirm",
        confirm,
        op(
            "confirmTotp",
            "Confirm your authenticator app with \
            a code",
        ),
    )
    .delete(
        "/me/totp",
        remove,
        op("removeTotp", "Remove your authenticator app").about(
            "If the policy requires a second factor and you have no passkey, you must set up a \
                 new one. The session can do nothing else until then.",
        ),
    )
    .delete(
        "/people/{id}/second-factor",
        reset,
        op("resetSecondFactor", "Reset the second factor of a person").about(
            "Removes the authenticator app, revokes all passkeys and ends all sessions. \
                 Afterwards, approvals by the person do not count on your own changes. They count \
                 again after the cooling period of the policy, or once another admin confirms the \
                 access.",
        ),
    )
}

async fn state(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<SecondFactor> {
    Ok(Json(state.people.second_factor(&actor).await?))
}

async fn present(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Client(visitor): Client,
    headers: HeaderMap,
    JsonBody(request): JsonBody<FactorRequest>,
) -> Answer<Success> {
    let site = state.address.site(&headers).ok();
    state.people.present_factor(&actor, site.as_ref(), &request, &visitor).await?;
    Ok(Json(Success {}))
}

async fn options(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    headers: HeaderMap,
) -> Answer<FactorOptions> {
    actor.require_enrollable()?;
    Ok(Json(state.people.factor_options(&actor, &state.address.site(&headers)?).await?))
}

async fn start(state: State<AppState>, SignedIn(actor): SignedIn) -> CreatedResult<TotpSetup> {
    Ok((StatusCode::CREATED, Json(state.people.start_totp(&actor).await?)))
}

async fn confirm(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Client(visitor): Client,
    JsonBody(request): JsonBody<CodeRequest>,
) -> Answer<Success> {
    state.people.confirm_totp(&actor, &request.code, &visitor).await?;
    Ok(Json(Success {}))
}

async fn remove(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Success> {
    state.people.remove_totp(&actor).await?;
    Ok(Json(Success {}))
}

async fn reset(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(person): PathPerson,
) -> Answer<Success> {
    state.people.reset_factor(Some(&actor), person).await?;
    Ok(Json(Success {}))
}

/// The button that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Submits a code.
    Present,
    /// Sets up an authenticator app.
    Start,
    /// Confirms the app with a code.
    Confirm,
    /// Removes the app.
    Remove,
}

/// The fields of the form.
#[derive(Debug, Deserialize)]
struct SecondFactorForm {
    act: Action,
    #[serde(default)]
    code: Code,
    /// The page to return to.
    #[serde(default)]
    next: String,
}

/// `POST /second-factor`: submits a code, or sets up, confirms or removes an authenticator app.
/// After an error, a browser returns to the page with an error code in the URL.
pub(crate) async fn post(
    State(state): State<AppState>,
    SignedIn(actor): SignedIn,
    Client(visitor): Client,
    request: Request,
) -> Response {
    if let Err(problem) = actor.require_enrollable() {
        return Refusal(problem).into_response();
    }
    let browser = expects_page(&request);
    let form: Result<Form<SecondFactorForm>, FormRejection> =
        Form::from_request(request, &state).await;
    let Form(SecondFactorForm { act, code, next }) = match form {
        Ok(form) => form,
        Err(rejection) => return Refusal::from(rejection).into_response(),
    };
    let next = safe_redirect_path(&next);
    let page = addresses::second_factor_with_next(next);
    let done = match act {
        Action::Present => {
            let body = FactorRequest { code: Some(code), answer: None };
            state.people.present_factor(&actor, None, &body, &visitor).await
        }
        Action::Start => state.people.start_totp(&actor).await.map(drop),
        Action::Confirm => state.people.confirm_totp(&actor, &code, &visitor).await,
        Action::Remove => state.people.remove_totp(&actor).await,
    };
    match done {
        Ok(()) => Redirect::to(match act {
            Action::Start => &page,
            Action::Present | Action::Confirm | Action::Remove => next,
        })
        .into_response(),
        Err(problem) if browser => {
            let separator = if page.contains('?') { '&' } else { '?' };
            Redirect::to(&format!("{page}{separator}problem={}", word(&problem))).into_response()
        }
        Err(problem) => Refusal(problem).into_response(),
    }
}

fn word(problem: &Problem) -> &'static str {
    match problem.code.as_str() {
        "code_wrong" | "invalid" => "wrong",
        "code_used" => "used",
        "too_many_attempts" => "slow",
        "no_totp" => "stale",
        "totp_set" => "set",
        "unavailable" => "busy",
        _ => "other",
    }
}
