//! Proposals and their edits.
//!
//! Every edit, submission, verdict and commit locks the proposal's row. So none of them happens
//! between the check and the write of another.

mod list;
mod not_restored;
mod proposal;

pub use list::{FindProposals, ProposalLine, find_proposals};
pub use not_restored::{MAX_NOT_RESTORED, NotRestoredRow, insert_not_restored, not_restored};
pub use proposal::{
    EditRow, MAX_EDITS, ProposalRow, UndoResult, append_edits, discard_proposal,
    discard_proposals_on, drafts, edits, ensure_node_proposal, ensure_proposal, increment_version,
    lock_proposal, open_proposal, proposal, redo_edit, set_title, undo_edit,
};
