//! `/api/v1/people`, `/me` and `/tokens`: people, their permissions, and the client's own account.
//!
//! Credentials (tokens, links) are shown once, in the response that creates them. That response
//! must not be cached.

use api::Problem;
use api::people::{
    CreatedPerson, CreatedToken, EndedSessions, GrantsRequest, MyAccount, OneTimeLink,
    PasskeyOptions, PasskeyRequest, PasskeyView, PasswordRequest, PeopleQuery, PersonDetails,
    PersonPage, PersonRequest, PersonView, SessionPage, SessionsQuery, Signature, SignatureRequest,
    TokenPage, TokenRequest, TokensQuery,
};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum_extra::extract::CookieJar;
use control::people::PersonAtVersion;
use engine::ids::PasskeyId;
use uuid::Uuid;

use crate::AppState;
use crate::http::contract::{Created, Operations, Versioned, op, version};
use crate::http::problems::{JsonBody, PathParams, QueryParams, Refusal};
use crate::http::session::SignedIn;
use crate::rest::named::PathPerson;
use crate::rest::{Answer, CreatedResult, CreatedWithLocation, Success};

pub(crate) fn operations(all: Operations) -> Operations {
    all.get("/people", people, op("listPeople", "List people and service accounts"))
        .post("/people", add, op("addPerson", "Add a person or a service account").secret())
        .get("/people/me", me, op("getMe", "Get your account"))
        .get("/people/{id}", person, op("getPerson", "Get a person or a service account"))
        .patch(
            "/people/{id}/grants",
            change_grants,
            op("changeGrants", "Change the permissions of a person").on_version().also(&[428]),
        )
        .post(
            "/people/{id}/disable",
            disable,
            op("disablePerson", "Disable a person").on_version(),
        )
        .post("/people/{id}/enable", enable, op("enablePerson", "Enable a person").on_version())
        .post("/people/{id}/link", link, op("createLink", "Create a sign-in link for a \
            person").on_version().secret())
        .post(
            "/people/{id}/confirm",
            confirm,
            op("confirmPerson", "Confirm the access of a person as a second admin").about(
                "If an admin gave a person access, approvals by this person do not count on \
                 changes by that admin. They count again after the cooling period of the policy, \
                 or once another admin confirms the access. You cannot confirm access that you \
                 gave. You also cannot confirm access from an admin who gave you access within the \
                 cooling period.",
            ),
        )
        .delete("/me/notices", dismiss_notices, op("dismissNotices", "Dismiss the notices of \
            resets of your sign-in"))
        .get("/me/sessions", sessions, op("listSessions", "List your sessions").about(
            "A person can have at most 100 sessions. Each further sign-in ends the session that \
             was unused for the longest time.",
        ))
        .delete("/me/sessions", end_other_sessions, op("endOtherSessions", "End all of your other \
            sessions"))
        .delete("/me/sessions/{id}", end_session, op("endSession", "End one of your sessions"))
        .put("/me/password", set_password, op("setPassword", "Set or change your password"))
        .post(
            "/me/passkeys/options",
            passkey_options,
            op("getPasskeyOptions", "Get the WebAuthn options to register a passkey").about(
                "Pass the options to navigator.credentials.create in the browser. Passkeys require \
                 a host name. On the server's own machine, open Gantry at http://localhost.",
            ),
        )
        .post("/me/passkeys", register_passkey, op("registerPasskey", "Register a passkey"))
        .delete("/passkeys/{id}", revoke_passkey, op("revokePasskey", "Revoke a passkey"))
        .post(
            "/passkeys/{id}/confirm/options",
            confirmation_options,
            op("getConfirmationOptions", "Get the WebAuthn options to confirm a passkey"),
        )
        .post(
            "/passkeys/{id}/confirm",
            confirm_passkey,
            op("confirmPasskey", "Confirm a passkey with another passkey").about(
                "Only a confirmed passkey can sign verdicts that count. The owner of the database, \
                 another passkey of its person or a passkey of an admin can confirm it. Compare \
                 the fingerprint with the person first.",
            ),
        )
        .get("/tokens", tokens, op("listTokens", "List your tokens, or those of a service \
            account").about(
            "Returns at most 100 tokens: all valid ones, of which a person has at most 50, and the \
             newest of the others. To find older tokens, filter the audit by `action=token.create`.",
        ))
        .post("/tokens", create_token, op("createToken", "Create a token").secret())
        .delete("/tokens/{id}", revoke_token, op("revokeToken", "Revoke a token"))
}

async fn people(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<PeopleQuery>,
) -> Answer<PersonPage> {
    Ok(Json(state.people.list(&actor, &query).await?))
}

async fn add(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(request): JsonBody<PersonRequest>,
) -> CreatedWithLocation<CreatedPerson> {
    let made = state.people.add(&actor, &request).await?;
    Ok(Created(format!("/people/{}", made.id), made))
}

async fn me(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<MyAccount> {
    Ok(Json(state.people.mine(&actor).await?))
}

async fn person(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(id): PathPerson,
) -> Result<Versioned<PersonDetails>, Refusal> {
    let found = state.people.details(&actor, id).await?;
    Ok(Versioned(found.person.version.into(), found))
}

async fn change_grants(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(id): PathPerson,
    headers: HeaderMap,
    JsonBody(request): JsonBody<GrantsRequest>,
) -> Answer<PersonView> {
    let Some(on) = version(&headers)? else {
        // A missing permission takes precedence over invalid input.
        actor.require_manager()?;
        return Err(Refusal(Problem::new(
            428,
            "version_required",
            "Version required",
            "Fetch the person and send its ETag header as If-Match. The version protects \
             changes by other admins.",
        )));
    };
    let seen = PersonAtVersion { person: id, version: Some(on) };
    Ok(Json(state.people.change_grants(&actor, seen, &request.grants).await?))
}

async fn disable(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(person): PathPerson,
    headers: HeaderMap,
) -> Answer<Success> {
    state
        .people
        .set_disabled(&actor, PersonAtVersion { person, version: version(&headers)? }, true)
        .await?;
    Ok(Json(Success {}))
}

async fn enable(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(person): PathPerson,
    headers: HeaderMap,
) -> Answer<Success> {
    state
        .people
        .set_disabled(&actor, PersonAtVersion { person, version: version(&headers)? }, false)
        .await?;
    Ok(Json(Success {}))
}

async fn passkey_options(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    headers: HeaderMap,
) -> Answer<PasskeyOptions> {
    actor.require_enrollable()?;
    Ok(Json(state.people.passkey_options(&actor, &state.address.site(&headers)?).await?))
}

async fn register_passkey(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    headers: HeaderMap,
    JsonBody(request): JsonBody<PasskeyRequest>,
) -> CreatedResult<PasskeyView> {
    actor.require_enrollable()?;
    let made =
        state.people.register_passkey(&actor, &state.address.site(&headers)?, &request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn revoke_passkey(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<PasskeyId>,
) -> Answer<Success> {
    state.people.revoke_passkey(&actor, id).await?;
    Ok(Json(Success {}))
}

async fn confirmation_options(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<PasskeyId>,
    headers: HeaderMap,
) -> Answer<SignatureRequest> {
    actor.require_in_person()?;
    Ok(Json(state.people.confirmation_options(&actor, &state.address.site(&headers)?, id).await?))
}

async fn confirm_passkey(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<PasskeyId>,
    JsonBody(signature): JsonBody<Signature>,
) -> Answer<PasskeyView> {
    Ok(Json(state.people.confirm_passkey(&actor, id, &signature).await?))
}

async fn confirm(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(person): PathPerson,
) -> Answer<PersonDetails> {
    Ok(Json(state.people.confirm(&actor, person).await?))
}

async fn dismiss_notices(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Success> {
    state.people.dismiss_notices(&actor).await?;
    Ok(Json(Success {}))
}

async fn link(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathPerson(person): PathPerson,
    headers: HeaderMap,
) -> CreatedResult<OneTimeLink> {
    let seen = PersonAtVersion { person, version: version(&headers)? };
    Ok((StatusCode::CREATED, Json(state.people.new_link(&actor, seen).await?)))
}

async fn sessions(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<SessionsQuery>,
) -> Answer<SessionPage> {
    Ok(Json(state.people.session_page(&actor, &query).await?))
}

async fn end_other_sessions(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
) -> Answer<EndedSessions> {
    Ok(Json(state.people.end_other_sessions(&actor).await?))
}

async fn end_session(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<Uuid>,
) -> Answer<Success> {
    state.people.end_session(&actor, id).await?;
    Ok(Json(Success {}))
}

/// The session gets a new cookie, and the old one becomes invalid.
async fn set_password(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(request): JsonBody<PasswordRequest>,
) -> Result<(CookieJar, Json<Success>), Refusal> {
    let session = state.people.set_password(&actor, &request).await?;
    Ok((CookieJar::new().add(state.address.session_cookie().begin(&session)), Json(Success {})))
}

async fn tokens(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    QueryParams(query): QueryParams<TokensQuery>,
) -> Answer<TokenPage> {
    Ok(Json(state.people.token_page(&actor, &query).await?))
}

async fn create_token(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    JsonBody(request): JsonBody<TokenRequest>,
) -> CreatedWithLocation<CreatedToken> {
    let made = state.people.create_token(&actor, &request).await?;
    Ok(Created(format!("/tokens/{}", made.id), made))
}

async fn revoke_token(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    PathParams(id): PathParams<Uuid>,
) -> Answer<Success> {
    state.people.revoke_token(&actor, id).await?;
    Ok(Json(Success {}))
}
