//! Blueprints: the head, the commit transaction, the history, policies and the comparison with the
//! documents.

mod commit;
mod head;
mod history;
mod policies;
mod verify;

pub use commit::{
    NewBlueprint, close_committed_proposal, commit_change, commit_genesis, insert_switch,
};
pub use head::{Head, head, lock_for_commit};
pub use history::{BlueprintRow, blueprint_root, is_root, target, targets};
pub use policies::{insert_policy, policy, policy_at, policy_origin};
pub use verify::{Discrepancy, discrepancies, unproven_rows};
