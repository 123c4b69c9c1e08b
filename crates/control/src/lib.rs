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
//! * who needs the processor waits for it without a row's lock and without a connection (`beside`);
//! * who asks is looked up again in the transaction that writes ([`people::Actor`]), behind the locks that it waits for;
//! * the gate is evaluated in the transaction that commits, on facts read under its locks;
//! * no answer holds the text of a database error.

mod asking;
mod auditing;
mod beside;
mod blueprints;
mod board;
mod cataloguing;
pub mod checkpoints;
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
pub mod reach;
mod replanning;
mod restoring;
mod reviewing;
mod roles;
mod running;
mod saying;
mod searching;
mod showing;
mod signatures;
mod values;
mod verifying;
mod versions;
mod waiting;
mod weighing;
mod words;
mod workers;

pub use beside::Shares;
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
use std::time::Duration;

use api::Problem;
use engine::reach::Policy;
use sqlx::pool::PoolConnection;
use sqlx::{Postgres, Transaction};
use store::Store;

use beside::{Beside, PLACES, Places};
use people::Actor;
use present::{Kept, Present};
use reach::Added;

/// The use cases, over one database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    store: Store,
    kept: Arc<Kept>,
    places: Arc<Places>,
    data: Option<Arc<Path>>,
    reach: Arc<Policy>,
    added: Arc<Added>,
}

impl Control {
    /// Use cases over this database.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            kept: Arc::default(),
            places: Arc::clone(&PLACES),
            data: None,
            reach: Arc::default(),
            added: Arc::default(),
        }
    }

    /// The same with these rules about the addresses of nodes, instead of the strictest.
    #[must_use]
    pub fn reaching(self, policy: Policy) -> Self {
        Self { reach: Arc::new(policy), ..self }
    }

    /// The same, by a process that keeps its own things (its database, for one) in this folder: no node gets that for its root.
    #[must_use]
    pub fn keeping(self, data: &Path) -> Self {
        Self { data: Some(data.into()), ..self }
    }

    /// The same with places of its own for what takes processor time, instead of the process's: so many, for so many more that wait so
    /// long.
    #[must_use]
    pub fn computing(self, at_once: usize, waiting: usize, patience: Duration) -> Self {
        Self { places: Arc::new(Places::new(at_once, waiting, patience)), ..self }
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

    /// Where something is computed for somebody.
    fn beside(&self, actor: &Actor) -> Beside {
        Beside::In(Arc::clone(&self.places), Some(actor.person))
    }

    /// Where something is computed for nobody in particular.
    fn beside_all(&self) -> Beside {
        Beside::In(Arc::clone(&self.places), None)
    }

    /// The present as one moment saw it: a commit between two reads would pair an old plan with new base numbers. The caller has no
    /// connection.
    async fn present(&self) -> Result<Present, Problem> {
        let mut transaction = self.begin().await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *transaction)
            .await
            .map_err(|e| problems::from_store(e.into()))?;
        let moment = self.kept.moment(&mut transaction).await?;
        // Nothing was written that could be lost with it.
        transaction.commit().await.map_err(|e| problems::from_store(e.into()))?;
        self.kept.present(self, moment).await
    }
}

/// Keeps what a transaction wrote.
async fn done(transaction: Transaction<'static, Postgres>) -> Result<(), Problem> {
    transaction.commit().await.map_err(problems::from_commit)
}
