//! Why a run is not started.

use std::fmt;

use engine::data::DataError;
use engine::ids::{BlueprintNumber, RunId};
use store::StoreError;

use crate::database::objects::ObjectError;
use crate::node::connection::record::RecordError;

/// Why a run is not started.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The database query failed. A retry may help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run is finished, or another worker leases it.
    #[error("Run {0} is no longer leased by this worker.")]
    LeaseLost(RunId),
    /// A link of the chain from the run to its approval is invalid.
    #[error("Rejected, because the run does not match its approval: {0}")]
    Chain(String),
    /// A row differs from its document, so it was edited by hand.
    #[error(
        "Rejected, because a row differs from its document: {table}.{field} of {key} is {row}, but \
         blueprint {target} has {document}."
    )]
    Row {
        table: &'static str,
        /// The noderole and its node.
        key: String,
        field: &'static str,
        /// Value of the column.
        row: String,
        /// The target in force.
        target: BlueprintNumber,
        /// Value in the document.
        document: String,
    },
    /// The run may not start at this moment. Its step becomes pending again.
    #[error("The run cannot start now: {0}")]
    NotReady(&'static str),
    /// The input of an adopted run is not the one that it was started with.
    #[error("The input of the run has changed.")]
    OtherInput,
    /// An object of the chain can't be used.
    #[error("Rejected: {0}")]
    Object(ObjectError),
    /// The input can't be computed.
    #[error("Cannot compute the input of the run: {0}")]
    Data(#[from] DataError),
    /// A secret can't be resolved.
    #[error("{0}")]
    Secret(String),
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(error) => Self::Store(error),
            other => Self::Object(other),
        }
    }
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Object(error) => error.into(),
            other => broken(other.to_string()),
        }
    }
}

pub(super) fn broken(problem: impl Into<String>) -> Refusal {
    Refusal::Chain(problem.into())
}

/// Parses a name from a row.
pub(super) fn named<T, E: fmt::Display>(name: Result<T, E>) -> Result<T, Refusal> {
    name.map_err(|error| Refusal::Store(StoreError::corrupt("a name", error)))
}
