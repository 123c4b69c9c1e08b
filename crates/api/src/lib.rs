//! Wire types: what crosses the line between Gantry's programs and whoever uses them.
//!
//! The console's pages, the REST interface and the command line speak these types and nothing else. They are plain data. Where the
//! engine's own types say it already (effects, differences, the gate's state), they are used as they are, so that a rule shows the
//! same everywhere.
//!
//! * [`audit`]: who did what.
//! * [`calls`]: what a page does, as a command line and as a request.
//! * [`catalog`]: roles, how they hang together, and what imports brought.
//! * [`overview`]: how it stands, and the policy.
//! * [`workers`]: who carries out runs.
//! * [`problem`]: how anything says no (RFC 9457).
//! * [`console`]: what the pages show.
//! * [`nodes`]: a machine, and what people change about it.
//! * [`people`]: people, what they may, their sessions and tokens.
//! * [`limits`]: how long texts may be.
//! * [`second_factor`]: authenticator apps and passkeys at sign-in.
//! * [`reviews`]: lists of reviews and proposals, page by page.
//! * [`values`]: values of data, each with where it comes from.
//! * [`listing`]: the words that lists can be asked by.
//! * [`live`]: what the journal tells while it happens.
//! * [`names`]: what both ends of a request have to know.

pub mod audit;
pub mod calls;
pub mod catalog;
pub mod console;
pub mod limits;
pub mod listing;
pub mod live;
pub mod names;
pub mod nodes;
pub mod overview;
pub mod people;
pub mod problem;
pub mod reviews;
pub mod search;
pub mod second_factor;
pub mod values;
pub mod waiting;
pub mod workers;

pub use problem::Problem;

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970-01-01T00:00:00Z. A number, so that a browser needs no calendar to tell how long ago it was.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct At(pub i64);
