//! Intent: objects, blueprints, proposals, reviews, verdicts, and the commit transaction.
//!
//! Reading functions accept any connection, so that a page can read outside a transaction and a
//! commit inside one. Writing functions lock the rows that they depend on. Every edit, submission,
//! verdict and commit locks the proposal's row. So none of them happens between the check and the
//! write of another.
//!
//! This module makes no decisions. `control` asks the engine's gate whether a change may pass. The
//! guards in the database check the essential rules again, and return refusals as
//! [`migrations::Refusal`].

mod comments;
mod commit;
mod head;
mod imports;
mod left_out;
mod listing;
mod machines;
mod nodes;
mod objects;
mod opened;
mod policies;
mod proposals;
mod record;
mod replans;
mod submissions;
mod verify;

pub use crate::people::append_audit;
pub use comments::{
    CommentRow, Look, MAX_COMMENTS, NewComment, append_comment, comments, ensure_viewed, look,
    open_threads, set_resolved, thread,
};
pub use commit::{
    NewTarget, close_committed_proposal, commit_change, commit_genesis, insert_switch,
};
pub use head::{
    DeploymentRow, Head, deployment_rows, head, lock_for_commit, removed_deployment, set_hold,
    set_priority,
};
pub use imports::{
    BarclampRow, ImportOutcome, ImportRow, MAX_BARCLAMPS, append_import_report, barclamps,
    import_barclamp, import_reports, jigs, lock_imports,
};
pub use left_out::{LeftOutRow, MAX_LEFT_OUT, insert_omitted_parts, left_out};
pub use listing::{
    Became, FactsRow, Find, FindProposals, Found, Hit, LineRow, ProposalLine, WINDOW, facts_of,
    find_proposals, find_reviews, lines_of, open_review_facts,
};
pub use machines::{MachineRow, lock_node_record, set_hardware, update_node_record};
pub use nodes::{
    BareNode, NewNode, insert_node, lock_node_inserts, remove_node_record, removed_ids,
    undocumented_nodes,
};
pub use objects::{ScriptHead, bodies, catalog_objects, ensure_objects, script_heads};
pub use opened::{MAX_OPENED, ensure_changes_viewed, opened};
pub use policies::{insert_policy, policy, policy_at};
pub use proposals::{
    EditRow, MAX_EDITS, ProposalRow, Stepped, append_edits, discard_proposal, discard_proposals_on,
    drafts, edits, ensure_node_proposal, ensure_proposal, increment_version, lock_proposal,
    open_proposal, proposal, redo_edit, set_title, undo_edit,
};
pub use record::append_event_to_topics;
pub use replans::{
    ReplanRow, insert_replan, moved_records, replan_for_version, replans, stale_reviews,
};
pub use submissions::{
    JudgeRow, NewSubmission, PersonRow, REFUSED_AGAIN, SubmissionRow, VerdictRow, able,
    affected_deployments_by_review, append_refusal, authors, base, documents, eligible_reviewers,
    insert_submission, insert_verdict, judges, people, review_of_version, reviewers, submission,
    touched, verdicts,
};

pub use verify::{Discrepancy, discrepancies, unproven_rows};

use engine::Hash;

use crate::StoreError;

fn hash(column: &str, bytes: &[u8]) -> Result<Hash, StoreError> {
    Hash::from_bytes(bytes).ok_or_else(|| StoreError::corrupt(column, "a hash must have 32 bytes"))
}
