//! # Use cases
//!
//! Every mutation of every surface (page, REST, command line) is one method of [`Control`], and every method asks first whether its
//! caller may. So a rule that holds here holds everywhere, and a surface can't be the way round it.
//!
//! Methods do three things: look (through `store`), let the engine decide, write (through `store`, in one transaction that also
//! has audit and events). What they refuse is a [`Problem`](api::Problem) that says what to do.
//!
//! Invariants:
//! * nothing is checked in one transaction and done in another, apart from planning, whose result is checked again by hash;
//! * who asks is looked up again in the transaction that writes ([`people::Actor`]), behind the locks that it waits for;
//! * the gate is evaluated in the transaction that commits, on facts read under its locks;
//! * no answer holds the text of a database error.

mod asking;
mod auditing;
pub mod beside;
mod blueprints;
mod board;
mod cataloguing;
mod commit;
mod connection;
mod deceiving;
mod discussing;
mod first_steps;
mod fitting;
mod genesis;
mod graphing;
mod imports;
mod inventory;
mod linting;
mod listing;
pub mod logs;
mod machines;
mod node_self;
mod nodes;
mod opening;
mod overview;
mod paging;
pub mod people;
mod planning;
mod present;
mod problems;
mod proposals;
mod proposing;
mod replanning;
mod restoring;
mod reviewing;
mod roles;
mod running;
mod saying;
mod searching;
mod showing;
mod values;
mod verifying;
mod versions;
mod waiting;
mod weighing;
mod words;
mod workers;

pub use commit::ToCommit;
pub use genesis::{Demo, DemoDeployment};
pub use graphing::Lost;
pub use imports::{Imported, MAX_IMPORT, disappeared, find_and_read, other_contents, read_files};
pub use machines::{LOOKS, Seen};
pub use node_self::Itself;
pub use overview::Numbers;
pub use proposing::{MAX_EDITS_PER_CALL, MAX_SINGLES};
pub use verifying::Verified;

use std::path::Path;
use std::sync::Arc;

use api::Problem;
use sqlx::pool::PoolConnection;
use sqlx::{Postgres, Transaction};
use store::Store;

use present::{Kept, Present};

/// The use cases, over one database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    store: Store,
    kept: Arc<Kept>,
    data: Option<Arc<Path>>,
}

impl Control {
    /// Use cases over this database.
    pub fn new(store: Store) -> Self {
        Self { store, kept: Arc::default(), data: None }
    }

    /// The same, by a process that keeps its own things (its database, for one) in this folder: no node gets that for its root.
    #[must_use]
    pub fn keeping(self, data: &Path) -> Self {
        Self { data: Some(data.into()), ..self }
    }

    /// The database below, for what is no use case: health, the journal.
    pub fn store(&self) -> &Store {
        &self.store
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, Problem> {
        self.store.pool().acquire().await.map_err(|e| problems::from_store(e.into()))
    }

    async fn begin(&self) -> Result<Transaction<'static, Postgres>, Problem> {
        self.store.pool().begin().await.map_err(|e| problems::from_store(e.into()))
    }

    /// The present as one moment saw it: a commit between two reads would pair an old plan with new base numbers.
    async fn present(&self) -> Result<Present, Problem> {
        let mut transaction = self.begin().await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *transaction)
            .await
            .map_err(|e| problems::from_store(e.into()))?;
        let present = self.kept.present(&mut transaction).await?;
        // Nothing was written that could be lost with it.
        transaction.commit().await.map_err(|e| problems::from_store(e.into()))?;
        Ok(present)
    }
}

/// Does what takes processor time on a thread for that, so that those which answer requests go on answering. It goes on to its end
/// when nobody waits for it any more. How much of it goes on at once: [`beside`].
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    beside::PLACES.work(work).await
}

/// Keeps what a transaction wrote.
async fn done(transaction: Transaction<'static, Postgres>) -> Result<(), Problem> {
    transaction.commit().await.map_err(problems::from_commit)
}
