//! Downloads: long answers that stream at the reader's speed, such as a run's log or an audit
//! export.
//!
//! Such an answer starts long before it ends. Its request permit is free again while it reads the
//! database in parts. It has a permit of its own ([`Permits`](crate::http::permits::Permits)) until
//! its body ends or is dropped. These are limited in total and per person.

use api::Problem;
use api::problem::DEFAULT_RETRY_AFTER;
use axum::BoxError;
use axum::body::{Body, Bytes};
use engine::ids::PersonId;
use futures::Stream;

use crate::AppState;
use crate::http::limits;
use crate::http::permits::{Full, Permit};

/// Takes a download permit for a person.
pub(crate) fn take(state: &AppState, person: PersonId) -> Result<Permit, Problem> {
    state.downloads.take(person).map_err(|full| match full {
        Full::Server => Problem::unavailable(
            "The server has reached its limit of concurrent downloads. Try again in a moment.",
        ),
        Full::ForOne => Problem::new(
            429,
            "too_many_downloads",
            "Too many downloads",
            format!(
                "You already have {} running downloads, which is the limit. Wait until one ends, \
                 then try again.",
                limits::MAX_DOWNLOADS_PER_PERSON
            ),
        )
        .again_after(DEFAULT_RETRY_AFTER),
    })
}

/// Wraps a body so that it keeps its permit until it ends or is dropped.
pub(crate) fn body<E>(
    permit: Permit,
    parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body
where
    E: Into<BoxError> + Send + 'static,
{
    Body::from_stream(async_stream::stream! {
        let _permit = permit;
        for await part in parts {
            yield part;
        }
    })
}
