//! The reason why a change of a step's progress was rejected.

use engine::anneal::Refused;
use engine::ids::{NodeId, RunId, StepId};
use sea_orm::DbErr;

use crate::StoreError;

/// The reason why a change of progress was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It does not fit the present state of the step.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The noderole of the step was removed.
    #[error("The noderole of step {0} was removed. To run it again, bind the role in a proposal.")]
    NoderoleRemoved(StepId),
    /// The run does not exist or has ended.
    #[error("Run {0} is not open. It has ended, or it does not exist.")]
    RunNotOpen(RunId),
    #[error("Node {0} does not exist.")]
    NoNode(NodeId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for ChangeError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<DbErr> for ChangeError {
    fn from(error: DbErr) -> Self {
        Self::Store(error.into())
    }
}
