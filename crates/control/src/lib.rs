//! Use cases: authorization, validation and all changes of data.
//!
//! Every mutation of every client (console, REST, CLI) is one method of [`Control`]. Each method
//! first checks the caller's permission, so no client can bypass a rule.
//!
//! A method reads through `store`, lets the engine decide, and writes through `store`. One
//! transaction contains the change, its audit entry and its event. A refusal is a
//! [`Problem`](api::Problem) that says what to do.
//!
//! A folder has the use cases of one resource. No two folders import each other: `text`, `cursor`,
//! `problems` and `compute` are used by all, then follow `people`, `current`, `runs`, `nodes`,
//! `catalog`, `proposals`, `reviews`, `blueprints`, `deployments` and `overview`. Each uses only
//! the ones before it.
//!
//! Invariants:
//! * A check and its write are in the same transaction. Planning is the exception; the transaction
//!   compares its result by hash.
//! * CPU-bound work waits for a permit without row locks and without a connection ([`compute`]).
//! * The transaction that writes loads the caller again ([`people::Actor`]), after it has its
//!   locks.
//! * The commit transaction evaluates the gate, on facts that it reads under its locks.
//! * No response contains the text of a database error.

pub mod audit;
mod background_tasks;
mod blueprints;
mod catalog;
mod compute;
mod current;
mod cursor;
mod deployments;
mod hidden_characters;
pub mod nodes;
mod overview;
pub mod people;
mod problems;
mod proposals;
mod reviews;
pub mod runs;
mod search;
mod text;
mod workers;

pub use crate::blueprints::commit::CommitInput;
pub use crate::blueprints::genesis::{Demo, DemoDeployment};
pub use crate::blueprints::verify::Verified;
pub use crate::catalog::imports::{
    Imported, MAX_IMPORT, conflicting_versions, read_files, read_files_with_findings, removed_parts,
};
pub use crate::compute::Shares;
pub use crate::deployments::graph::MissingVertex;
pub use crate::nodes::node::{MAX_HEALTH_CHECKS, NodeAtVersion};
pub use crate::nodes::self_reports::NodeIdentity;
pub use crate::proposals::change::{MAX_EDITS_PER_CALL, MAX_SINGLES};
pub use overview::MetricValues;
pub use store::monitoring::{EndCursor, WorkerLoad};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::Problem;
use engine::reach::Policy;
use people::Actor;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Transaction};
use store::Store;

use crate::compute::{ComputeLimit, PERMITS, Permits};
use crate::current::{CurrentState, ObjectCache};
use crate::nodes::address_policy::Added;
use crate::problems::from_store;

/// The use cases on one database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    store: Store,
    cache: Arc<ObjectCache>,
    /// Plans of open reviews on the current target.
    plans: Arc<reviews::impact::PlanCache>,
    permits: Arc<Permits>,
    data: Option<Arc<Path>>,
    reach: Arc<Policy>,
    added: Arc<Added>,
}

impl Control {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            cache: Arc::default(),
            plans: Arc::default(),
            permits: Arc::clone(&PERMITS),
            data: None,
            reach: Arc::default(),
            added: Arc::default(),
        }
    }

    /// Replaces the default policy for node addresses, which is the strictest.
    #[must_use]
    pub fn with_address_policy(self, policy: Policy) -> Self {
        Self { reach: Arc::new(policy), ..self }
    }

    /// Sets the data folder of this process. Node root folders must not overlap it, because it
    /// contains the database, for example.
    #[must_use]
    pub fn with_data_folder(self, data: &Path) -> Self {
        Self { data: Some(data.into()), ..self }
    }

    /// Replaces the process-wide limit for CPU-bound work: tasks at once, tasks that may wait, and
    /// the maximum waiting time.
    #[must_use]
    pub fn computing(self, concurrency: usize, waiting: usize, max_wait: Duration) -> Self {
        Self { permits: Arc::new(Permits::new(concurrency, waiting, max_wait)), ..self }
    }

    /// Direct database access for code that is not a use case, such as health checks and the
    /// journal.
    pub fn store(&self) -> &Store {
        &self.store
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, Problem> {
        self.store.pool().acquire().await.map_err(|e| from_store(e.into()))
    }

    async fn begin(&self) -> Result<Transaction<'static, Postgres>, Problem> {
        self.store.pool().begin().await.map_err(|e| from_store(e.into()))
    }

    /// A transaction that reads one state of the database.
    async fn snapshot(&self) -> Result<Transaction<'static, Postgres>, Problem> {
        let mut view = self.begin().await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *view)
            .await
            .map_err(|e| from_store(e.into()))?;
        Ok(view)
    }

    /// Limits CPU-bound work that counts for the actor.
    fn compute_for(&self, actor: &Actor) -> ComputeLimit {
        ComputeLimit::In(Arc::clone(&self.permits), Some(actor.person))
    }

    /// Limits CPU-bound work that counts for no person.
    fn compute_for_system(&self) -> ComputeLimit {
        ComputeLimit::In(Arc::clone(&self.permits), None)
    }

    /// Reads the present in one snapshot. A commit between two reads would pair an old plan with
    /// new base numbers. The caller must not have a connection.
    async fn current_state(&self) -> Result<CurrentState, Problem> {
        let mut transaction = self.snapshot().await?;
        let state = self.cache.cluster_state(&mut transaction).await?;
        // The transaction is read-only; the commit just ends it.
        transaction.commit().await.map_err(|e| from_store(e.into()))?;
        self.cache.current_state(self, state).await
    }
}

/// Commits a transaction.
async fn done(transaction: Transaction<'static, Postgres>) -> Result<(), Problem> {
    transaction.commit().await.map_err(problems::from_commit)
}

impl Control {
    /// The current position in the journal.
    pub(crate) async fn cursor(&self, on: &mut PgConnection) -> Result<i64, Problem> {
        store::events::cursor(on).await.map_err(from_store)
    }

    /// Like [`Self::cursor`], on a connection of its own.
    pub(crate) async fn current_cursor(&self) -> Result<i64, Problem> {
        let mut connection = self.connection().await?;
        self.cursor(&mut connection).await
    }
}
