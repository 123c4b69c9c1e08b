//! Downloads: answers that go on for as long as their reader takes: the log of a run, an export of the audit.
//!
//! Such an answer has begun long before it ends, so its request's place is free again while it asks the database for part after part. It
//! has a place of its own ([`Places`](crate::places::Places)), of which there are so many in all and so many for each person, until its body
//! ended or nobody reads it any more.

use api::Problem;
use api::problem::MOMENT;
use axum::BoxError;
use axum::body::{Body, Bytes};
use engine::ids::PersonId;
use futures::Stream;

use crate::limits;
use crate::places::{Full, Place};
use crate::state::AppState;

/// Takes a place for somebody's download.
pub(crate) fn take(state: &AppState, person: PersonId) -> Result<Place, Problem> {
    state.downloads.take(person).map_err(|full| match full {
        Full::ForAll => Problem::unavailable(
            "This server sends as many downloads as it does at once. Try again in a moment.",
        ),
        Full::ForOne => Problem::new(
            429,
            "too_many_downloads",
            "Too many downloads",
            format!(
                "You have {} downloads under way. Let one end, then begin this one.",
                limits::DOWNLOADS_EACH
            ),
        )
        .again_after(MOMENT),
    })
}

/// A body that keeps its place until it ended or is dropped.
pub(crate) fn body<E>(
    place: Place,
    parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body
where
    E: Into<BoxError> + Send + 'static,
{
    Body::from_stream(async_stream::stream! {
        let _place = place;
        for await part in parts {
            yield part;
        }
    })
}
