//! Objects as this worker has read them: parsed once, each under the hash of the bytes that were read.
//!
//! An object is checked here, not trusted: its bytes are hashed, whatever the database says. Objects never change, so what has been
//! parsed stays right; the cache is bounded and forgets everything at once when it is full, which costs a few reads.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use engine::Hash;
use engine::catalog::Role;
use engine::cluster::{DeploymentDoc, NodeDoc, RootDoc};
use engine::gate::Policy;
use serde::de::DeserializeOwned;
use sqlx::PgPool;
use store::StoreError;
use store::running::object_body;

/// Most parsed objects that are kept.
const KEPT: usize = 4_096;

/// Why an object can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The database could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not there.
    #[error(
        "{kind} {hash} is not in the database: restore it from a backup, or import the barclamp that has it"
    )]
    Missing {
        /// What it should be.
        kind: &'static str,
        /// Its hash.
        hash: Hash,
    },
    /// Its bytes are others than its hash says.
    #[error("{kind} {hash} has been tampered with: its bytes have the hash {found}")]
    Tampered {
        /// What it should be.
        kind: &'static str,
        /// Its hash.
        hash: Hash,
        /// What its bytes have.
        found: Hash,
    },
    /// Its bytes are something else.
    #[error("object {hash} is not a {kind}: {reason}")]
    Unreadable {
        /// What it should be.
        kind: &'static str,
        /// Its hash.
        hash: Hash,
        /// From the parser.
        reason: String,
    },
}

type Parsed = BTreeMap<(&'static str, Hash), Arc<dyn Any + Send + Sync>>;

/// The objects of one database.
pub struct Objects {
    pool: PgPool,
    parsed: Mutex<Parsed>,
}

impl Objects {
    /// Nothing read yet.
    pub fn of(pool: PgPool) -> Self {
        Self { pool, parsed: Mutex::default() }
    }

    /// A root.
    ///
    /// # Errors
    /// When it can't be had as what it should be.
    pub async fn root(&self, hash: Hash) -> Result<Arc<RootDoc>, ObjectError> {
        self.parsed("root", hash).await
    }

    /// A node's document.
    ///
    /// # Errors
    /// When it can't be had as what it should be.
    pub async fn node(&self, hash: Hash) -> Result<Arc<NodeDoc>, ObjectError> {
        self.parsed("node", hash).await
    }

    /// A deployment's document.
    ///
    /// # Errors
    /// When it can't be had as what it should be.
    pub async fn deployment(&self, hash: Hash) -> Result<Arc<DeploymentDoc>, ObjectError> {
        self.parsed("deployment", hash).await
    }

    /// A role.
    ///
    /// # Errors
    /// When it can't be had as what it should be.
    pub async fn role(&self, hash: Hash) -> Result<Arc<Role>, ObjectError> {
        self.parsed("role", hash).await
    }

    /// A policy.
    ///
    /// # Errors
    /// When it can't be had as what it should be.
    pub async fn policy(&self, hash: Hash) -> Result<Arc<Policy>, ObjectError> {
        self.parsed("policy", hash).await
    }

    /// The bytes of any object.
    ///
    /// # Errors
    /// When they can't be had.
    pub async fn bytes(&self, kind: &'static str, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        let body =
            object_body(&self.pool, hash).await?.ok_or(ObjectError::Missing { kind, hash })?;
        let found = Hash::of_bytes(&body);
        if found == hash { Ok(body) } else { Err(ObjectError::Tampered { kind, hash, found }) }
    }

    async fn parsed<T>(&self, kind: &'static str, hash: Hash) -> Result<Arc<T>, ObjectError>
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        let known = self.parsed.lock().ok().and_then(|parsed| parsed.get(&(kind, hash)).cloned());
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let body = self.bytes(kind, hash).await?;
        let unreadable =
            |e: serde_json::Error| ObjectError::Unreadable { kind, hash, reason: e.to_string() };
        let object: Arc<T> = Arc::new(serde_json::from_slice(&body).map_err(unreadable)?);
        if let Ok(mut parsed) = self.parsed.lock() {
            if parsed.len() >= KEPT {
                parsed.clear();
            }
            parsed.insert((kind, hash), object.clone());
        }
        Ok(object)
    }
}
