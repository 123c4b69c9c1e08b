//! `/api/v1/people`, `/me` and `/tokens`: who there is, what they may, and one's own account.
//!
//! What lets somebody in is in the answer that makes it, once, and that answer is not stored by anything on its way.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, patch, post, put};
use axum::{Json, Router};
use axum_extra::extract::CookieJar;
use uuid::Uuid;

use api::people::{
    Ended, GrantsWish, LinkMade, MyAccount, PasswordWish, PeopleWanted, PersonMade, PersonPage, PersonView, PersonWish,
    SessionView, TokenMade, TokenView, TokenWish, TokensWanted,
};
use engine::ids::PersonId;

use crate::refusal::{Asked, Given, Place, Refusal};
use crate::rest::{Answer, Done, Made};
use crate::session::{self, SignedIn};
use crate::state::AppState;

pub(crate) fn routes() -> Router<AppState> {
    Router::new()
        .route("/people", get(people).post(add))
        .route("/people/me", get(me))
        .route("/people/{id}", get(person))
        .route("/people/{id}/grants", patch(change_grants))
        .route("/people/{id}/disable", post(disable))
        .route("/people/{id}/enable", post(enable))
        .route("/people/{id}/link", post(link))
        .route("/me/sessions", get(sessions).delete(end_other_sessions))
        .route("/me/sessions/{id}", delete(end_session))
        .route("/me/password", put(set_password))
        .route("/tokens", get(tokens).post(make_token))
        .route("/tokens/{id}", delete(revoke_token))
}

async fn people(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<PeopleWanted>,
) -> Answer<PersonPage> {
    Ok(Json(state.people.list(&actor, &wanted).await?))
}

async fn add(state: State<AppState>, SignedIn(actor): SignedIn, Given(wish): Given<PersonWish>) -> Made<PersonMade> {
    Ok((StatusCode::CREATED, Json(state.people.add(&actor, &wish).await?)))
}

async fn me(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<MyAccount> {
    Ok(Json(state.people.mine(&actor).await?))
}

async fn person(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<PersonId>) -> Answer<PersonView> {
    Ok(Json(state.people.one(&actor, id).await?))
}

async fn change_grants(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Place(id): Place<PersonId>,
    Given(wish): Given<GrantsWish>,
) -> Answer<PersonView> {
    Ok(Json(state.people.change_grants(&actor, id, &wish.grants).await?))
}

async fn disable(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<PersonId>) -> Answer<Done> {
    state.people.set_disabled(&actor, id, true).await?;
    Ok(Json(Done {}))
}

async fn enable(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<PersonId>) -> Answer<Done> {
    state.people.set_disabled(&actor, id, false).await?;
    Ok(Json(Done {}))
}

async fn link(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<PersonId>) -> Made<LinkMade> {
    Ok((StatusCode::CREATED, Json(state.people.new_link(&actor, id).await?)))
}

async fn sessions(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Vec<SessionView>> {
    Ok(Json(state.people.sessions(&actor).await?))
}

async fn end_other_sessions(state: State<AppState>, SignedIn(actor): SignedIn) -> Answer<Ended> {
    Ok(Json(state.people.end_other_sessions(&actor).await?))
}

async fn end_session(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<Uuid>) -> Answer<Done> {
    state.people.end_session(&actor, id).await?;
    Ok(Json(Done {}))
}

/// The session gets another cookie, and the one before lets nobody in.
async fn set_password(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(wish): Given<PasswordWish>,
) -> Result<(CookieJar, Json<Done>), Refusal> {
    let session = state.people.set_password(&actor, &wish).await?;
    Ok((CookieJar::new().add(session::begin(&state.address, &session)), Json(Done {})))
}

async fn tokens(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Asked(wanted): Asked<TokensWanted>,
) -> Answer<Vec<TokenView>> {
    Ok(Json(state.people.tokens(&actor, &wanted).await?))
}

async fn make_token(
    state: State<AppState>,
    SignedIn(actor): SignedIn,
    Given(wish): Given<TokenWish>,
) -> Made<TokenMade> {
    Ok((StatusCode::CREATED, Json(state.people.make_token(&actor, &wish).await?)))
}

async fn revoke_token(state: State<AppState>, SignedIn(actor): SignedIn, Place(id): Place<Uuid>) -> Answer<Done> {
    state.people.revoke_token(&actor, id).await?;
    Ok(Json(Done {}))
}
