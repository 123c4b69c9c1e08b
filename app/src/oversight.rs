//! The server's side of the overview, workers, audit and search pages, as one trait. See
//! [`crate::console`].

use api::Problem;
use api::audit::{AuditPage, AuditWanted, ChainView};
use api::overview::Overview;
use api::search::Found;
use api::workers::{WorkerPage, WorkerView, WorkersWanted};
use async_trait::async_trait;
use uuid::Uuid;

/// The state of the system, limited to the permissions of the signed-in user.
#[async_trait]
pub trait Oversight: Send + Sync {
    async fn overview(&self) -> Result<Overview, Problem>;
    async fn workers(&self, query: WorkersWanted) -> Result<WorkerPage, Problem>;
    async fn worker(&self, id: Uuid) -> Result<WorkerView, Problem>;
    async fn audit(&self, query: AuditWanted) -> Result<AuditPage, Problem>;
    /// Verifies a part of the audit's hash chain, from the entry after `after`. 0 starts at the
    /// beginning.
    async fn chain(&self, after: u64) -> Result<ChainView, Problem>;
    /// A few items of each kind whose names match the text.
    async fn search(&self, text: String) -> Result<Found, Problem>;
}
