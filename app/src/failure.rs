//! What a page gets when the server says no, or says nothing.
//!
//! A [`Problem`] crosses the wire as it is. What goes wrong on the way (the server is gone, its answer is not what this page
//! expects) becomes a problem too, so that pages have one thing to show and one place to decide what the reader can do about it.

use api::Problem;
use leptos::server_fn::error::{FromServerFnError, ServerFnErrorErr};
use serde::{Deserialize, Serialize};

use crate::wire::JsonText;

/// A problem as the answer of a server function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failure(pub Problem);

/// What a server function answers.
pub type Answer<T> = Result<T, Failure>;

/// The code of a problem that never reached the server.
pub const UNREACHABLE: &str = "unreachable";
/// The code of an answer that this page can't read.
pub const OTHER_VERSION: &str = "other_version";

impl FromServerFnError for Failure {
    type Encoder = JsonText;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        use ServerFnErrorErr as E;
        let problem = match error {
            E::Request(_) | E::Response(_) => Problem::new(
                503,
                UNREACHABLE,
                "The server can't be reached",
                "What you see may be old, and nothing was changed by this. It is tried again when you do.",
            ),
            E::Deserialization(_)
            | E::Args(_)
            | E::MissingArg(_)
            | E::Serialization(_)
            | E::UnsupportedRequestMethod(_) => Problem::new(
                400,
                OTHER_VERSION,
                "This page and the server don't understand each other",
                "Most likely the server is of another version than this page. Reload the page.",
            ),
            E::MiddlewareError(_) | E::ServerError(_) | E::Registration(_) => Problem::internal(),
        };
        // What can't be read is refused before any function runs; the answer's status is that of the problem all the same.
        #[cfg(feature = "ssr")]
        crate::respond::status(problem.status);
        Self(problem)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl Failure {
    /// Whether somebody has to sign in before anything else.
    pub fn is_signed_out(&self) -> bool {
        self.0.status == 401
    }
}
