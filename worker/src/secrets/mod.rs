//! Secrets: decides which run may use one, and masks secrets in everything that leaves a run.
//!
//! The descriptor of a secret, `<name>/secret.toml`, is next to its versions. It states the purpose
//! of the secret and the deployments that may use it. Only the worker reads it: neither a document
//! nor the database can make a secret usable. A secret without a descriptor is unusable.
//!
//! Everything that leaves a run (log, result, reason) passes a mask with the secrets of this run
//! only. A chunk border may split a secret. The mask therefore withholds the end of a chunk while a
//! secret could begin there. The withheld part is shorter than the longest secret.

use engine::data::secret::SecretRef;
use engine::ids::DeploymentName;
use futures::future::BoxFuture;

mod folder;
mod mask;

pub use folder::{DESCRIPTOR, SecretFolder};
pub use mask::{Secrets, StreamMask};

/// The use of a secret's plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Data of a run in this deployment.
    Data(&'a DeploymentName),
    /// The private key for a connection to a node.
    NodeKey,
}

/// Why a secret is not resolved. The text is for users and has no part of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The descriptor forbids this use.
    #[error("{0}")]
    Denied(String),
    /// The secret or its descriptor can't be read.
    #[error("{0}")]
    Unavailable(String),
}

/// Source of the plain text of secrets.
pub trait SecretSource: Send + Sync {
    /// Returns the plain text, if the secret may be used for this purpose.
    fn resolve<'a>(
        &'a self,
        secret: &'a SecretRef,
        purpose: Purpose<'a>,
    ) -> BoxFuture<'a, Result<String, SecretError>>;
}
