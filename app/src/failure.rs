//! The errors that server functions return to a page.
//!
//! A [`Problem`] crosses the wire unchanged. Failures on the way (the server is unreachable, its
//! response has an unexpected format) become problems too. So pages handle one type, and one module
//! decides what the reader can do next.

use api::Problem;
use leptos::server_fn::error::{FromServerFnError, ServerFnErrorErr};
use serde::{Deserialize, Serialize};

use crate::codec::JsonText;

/// A problem as the error of a server function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failure(pub Problem);

pub type ServerResult<T> = Result<T, Failure>;

/// The code of a request that never reached the server.
pub const UNREACHABLE: &str = "unreachable";
/// The code of a response that this page cannot parse.
pub const OTHER_VERSION: &str = "other_version";

/// Whether the same request may succeed later. A refusal does not change.
pub fn is_temporary(problem: &Problem) -> bool {
    problem.status >= 500 || problem.status == 429
}

impl FromServerFnError for Failure {
    type Encoder = JsonText;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        use ServerFnErrorErr as E;
        let problem = match error {
            E::Request(_) | E::Response(_) => Problem::new(
                503,
                UNREACHABLE,
                "Cannot reach the server",
                "This page may be outdated, and your last action may have had no effect. Check \
                 your connection, then try again.",
            ),
            E::Deserialization(_)
            | E::Args(_)
            | E::MissingArg(_)
            | E::Serialization(_)
            | E::UnsupportedRequestMethod(_) => Problem::new(
                400,
                OTHER_VERSION,
                "This page does not match the version of the server",
                "The server was probably updated after this page was loaded. Reload the page.",
            ),
            E::MiddlewareError(_) | E::ServerError(_) | E::Registration(_) => Problem::internal(),
        };
        // Arguments that cannot be parsed fail before any function runs. The response still needs
        // the problem's status.
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
