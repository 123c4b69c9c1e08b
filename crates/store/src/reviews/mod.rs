//! Reviews: submitted proposals with their verdicts, signatures and comments.
//!
//! This module makes no decisions. `control` asks the engine's gate whether a change may pass. The
//! guards in the database check the essential rules again, and return refusals as
//! [`migrations::Refusal`].

mod comments;
mod list;
mod replans;
mod review;
mod signatures;
mod viewed;

pub use comments::{
    CommentRow, MAX_COMMENTS, NewComment, ViewedReviews, append_comment, comments, ensure_viewed,
    open_threads, set_resolved, thread, viewed_reviews,
};
pub use list::{
    FactsRow, Find, Hit, LineRow, ReviewHits, ReviewOutcome, WINDOW, facts_of, find_reviews,
    lines_of, open_review_facts,
};
pub use replans::{
    ReplanRow, insert_replan, left_holds, moved_base, moved_records, newest_of_proposal,
    replan_for_version, replans, stale_reviews,
};
pub use review::{
    NewReview, PersonRow, REFUSAL_INTERVAL, ReviewRow, ReviewerRow, VerdictRow, able,
    affected_deployments_by_review, append_refusal, authors, base, documents, eligible_reviewers,
    find_review, insert_review, insert_verdict, people, review_of_version, review_rights,
    reviewers, touched, verdicts,
};
pub use signatures::{SignatureRow, demanded, insert_signature, reviewed, signatures};
pub use viewed::{MAX_VIEWED, ensure_changes_viewed, opened};
