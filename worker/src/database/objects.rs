//! A cache of parsed objects, by the hash of their bytes.
//!
//! The worker does not trust the database: it hashes the bytes of each object that it reads.
//! Objects are immutable, so a parsed object stays valid. The cache is bounded. When it is full, it
//! drops all entries, which costs a few reads.

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
use store::catalog::object_body;

/// Maximum number of cached objects.
const MAX_CACHED_OBJECTS: usize = 4_096;

/// Why an object can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No object with this hash exists.
    #[error(
        "The {kind} {hash} is not in the database. Restore it from a backup, or import the \
         barclamp that contains it."
    )]
    Missing { kind: &'static str, hash: Hash },
    /// The bytes don't match the hash.
    #[error("The {kind} {hash} has been tampered with: its bytes have the hash {found}.")]
    Tampered {
        kind: &'static str,
        hash: Hash,
        /// Hash of the bytes.
        found: Hash,
    },
    /// The bytes are not an object of this kind.
    #[error("Object {hash} is not a {kind}: {reason}")]
    Unreadable { kind: &'static str, hash: Hash, reason: String },
}

type Cache = BTreeMap<(&'static str, Hash), Arc<dyn Any + Send + Sync>>;

pub struct Objects {
    pool: PgPool,
    parsed: Mutex<Cache>,
}

impl Objects {
    pub fn of(pool: PgPool) -> Self {
        Self { pool, parsed: Mutex::default() }
    }

    pub async fn root(&self, hash: Hash) -> Result<Arc<RootDoc>, ObjectError> {
        self.parsed("root", hash).await
    }

    pub async fn node(&self, hash: Hash) -> Result<Arc<NodeDoc>, ObjectError> {
        self.parsed("node", hash).await
    }

    pub async fn deployment(&self, hash: Hash) -> Result<Arc<DeploymentDoc>, ObjectError> {
        self.parsed("deployment", hash).await
    }

    pub async fn role(&self, hash: Hash) -> Result<Arc<Role>, ObjectError> {
        self.parsed("role", hash).await
    }

    pub async fn policy(&self, hash: Hash) -> Result<Arc<Policy>, ObjectError> {
        self.parsed("policy", hash).await
    }

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
        let cached = self.parsed.lock().ok().and_then(|parsed| parsed.get(&(kind, hash)).cloned());
        if let Some(cached) = cached.and_then(|cached| cached.downcast().ok()) {
            return Ok(cached);
        }
        let body = self.bytes(kind, hash).await?;
        let unreadable =
            |e: serde_json::Error| ObjectError::Unreadable { kind, hash, reason: e.to_string() };
        let object: Arc<T> = Arc::new(serde_json::from_slice(&body).map_err(unreadable)?);
        if let Ok(mut parsed) = self.parsed.lock() {
            if parsed.len() >= MAX_CACHED_OBJECTS {
                parsed.clear();
            }
            parsed.insert((kind, hash), object.clone());
        }
        Ok(object)
    }
}
