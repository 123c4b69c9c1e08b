//! The frame around every page.

use engine::ids::PersonId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::reviews::ReviewCount;

/// The signed-in person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Me {
    /// Id of the person.
    pub id: PersonId,
    /// Short name.
    pub name: String,
    /// Permissions: `viewer`, `operator`, `reviewer`, `admin`.
    pub permissions: Vec<String>,
    /// Id of the session, or null if the request did not use one.
    pub session: Option<Uuid>,
}

/// The frame around every page. Only signed-in people get it, so it reveals nothing to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// The signed-in person.
    pub me: Me,
    /// Reviews that you can approve, reject or commit now.
    pub pending_reviews: ReviewCount,
    /// Whether execution is on, or null if you can't see it.
    pub execution: Option<bool>,
    /// Journal position of this view, to start a live stream from. Null if you can't read the
    /// journal.
    pub cursor: Option<i64>,
    /// The last reset of your sign-in by an admin, until you dismiss it.
    #[serde(default)]
    pub reset: Option<crate::people::AccessNotice>,
}
