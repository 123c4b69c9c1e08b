//! Permissions in a review's discussion.
//!
//! An open thread blocks the gate, so resolving one is a small verdict. Only the person who opened
//! the thread, or someone who could approve the change, can resolve it. Authors can reply but
//! resolve only their own threads; otherwise they could dismiss a reviewer's question. Threads
//! belong to the proposal, so submitting again does not resolve them.

use serde::{Deserialize, Serialize};

use crate::ids::PersonId;

/// A person's current permissions in a discussion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscussionAccess {
    pub person: PersonId,
    /// Whether they may edit or review anything in this deployment.
    pub writes: bool,
    /// Whether their approval of this change would count.
    pub reviews: bool,
}

/// Why a person may not perform an action in a discussion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiscussionDenied {
    /// The account has read-only access.
    #[error(
        "Your account has read-only access. To write here, you need the operator or the reviewer \
         permission."
    )]
    Viewer,
    /// The proposal is closed, so its discussion can no longer change.
    #[error("The proposal is closed, so its discussion is closed too. Open another proposal.")]
    Closed,
    /// The person neither opened the thread nor could approve the change.
    #[error(
        "Only the person who opened this thread, or a reviewer who is not an author of the change, \
         can resolve it."
    )]
    NotYours,
}

/// Whether a person may open a thread, reply, or reopen a resolved thread.
///
/// # Errors
/// [`DiscussionDenied`] with the reason.
pub fn may_write(access: DiscussionAccess, open: bool) -> Result<(), DiscussionDenied> {
    if !access.writes {
        return Err(DiscussionDenied::Viewer);
    }
    if open { Ok(()) } else { Err(DiscussionDenied::Closed) }
}

/// Whether a person may resolve a thread that `opener` opened.
///
/// # Errors
/// [`DiscussionDenied`] with the reason.
pub fn may_resolve(
    access: DiscussionAccess,
    opener: PersonId,
    open: bool,
) -> Result<(), DiscussionDenied> {
    may_write(access, open)?;
    if access.person == opener || access.reviews { Ok(()) } else { Err(DiscussionDenied::NotYours) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn author_resolves_only_own_threads() {
        let (ada, bo) = (PersonId(Uuid::from_u128(1)), PersonId(Uuid::from_u128(2)));
        let author = DiscussionAccess { person: ada, writes: true, reviews: false };
        let reviewer = DiscussionAccess { person: bo, writes: true, reviews: true };
        let viewer = DiscussionAccess { person: bo, writes: false, reviews: false };
        assert_eq!(may_write(author, true), Ok(()));
        assert_eq!(may_resolve(author, bo, true), Err(DiscussionDenied::NotYours));
        assert_eq!(may_resolve(author, ada, true), Ok(()));
        assert_eq!(may_resolve(reviewer, ada, true), Ok(()));
        assert_eq!(may_resolve(reviewer, bo, false), Err(DiscussionDenied::Closed));
        assert_eq!(may_write(viewer, true), Err(DiscussionDenied::Viewer));
    }
}
