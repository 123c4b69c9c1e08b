//! The HTTP request that a server function answers. On the server only.
//!
//! The server provides a [`RequestContext`] for each request. Server functions take the use cases
//! and the actor from it. They authorize nothing themselves: each use case of [`control`] checks
//! the actor's permissions, so a button on a page grants nothing.
//!
//! In this crate's own tests, a fake takes the place of the use cases. It returns fixtures.

use std::sync::Arc;

use api::Problem;
use control::people::ClientInfo;
use leptos::prelude::*;
use passkeys::RelyingParty;

#[cfg(not(test))]
use control::{
    Control,
    people::{Actor, People},
};

#[cfg(test)]
use crate::tests::fake::{Actor, Fake as Control, Fake as People};

use crate::failure::{Failure, ServerResult};
use crate::respond;
use crate::session_cookie::SessionCookie;

/// The use cases, and the client that sent the request.
#[derive(Clone)]
pub struct RequestContext {
    pub control: Arc<Control>,
    pub people: People,
    /// `None` if the client is not signed in.
    pub actor: Option<Actor>,
    /// The client that sent the request.
    pub client: ClientInfo,
    /// The site on which passkeys of this request work.
    pub site: Result<RelyingParty, Problem>,
    pub session_cookie: SessionCookie,
}

pub(crate) fn request() -> ServerResult<RequestContext> {
    use_context().ok_or_else(|| refuse(Problem::internal()))
}

/// The request and its actor. Fails if the client is not signed in.
pub(crate) fn signed_in() -> ServerResult<(RequestContext, Actor)> {
    let request = request()?;
    let actor = request.actor.clone().ok_or_else(|| refuse(Problem::signed_out()))?;
    Ok((request, actor))
}

/// Returns the result of a use case. If a permission is missing, adds the people who can grant it.
pub(crate) async fn answer<T>(result: Result<T, Problem>) -> ServerResult<T> {
    match result {
        Ok(value) => Ok(value),
        Err(problem) => Err(refuse(request()?.control.add_admin_contacts(problem).await)),
    }
}

/// Returns a problem, and sets the status of the page or the call.
pub(crate) fn refuse(problem: Problem) -> Failure {
    respond::status(problem.status);
    respond::again_after(problem.again_after);
    Failure(problem)
}
