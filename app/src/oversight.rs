//! What the overseeing pages (overview, workers, audit, search) ask of the server, as [`crate::console`] says it of the others.

use api::Problem;
use api::audit::{AuditPage, AuditWanted, ChainView};
use api::overview::Overview;
use api::search::Found;
use api::workers::{WorkerPage, WorkerView, WorkersWanted};
use async_trait::async_trait;
use uuid::Uuid;

/// How it stands, as whoever sent the request may know it.
#[async_trait]
pub trait Oversight: Send + Sync {
    /// How it stands.
    async fn overview(&self) -> Result<Overview, Problem>;
    /// A page of the list of workers.
    async fn workers(&self, wanted: WorkersWanted) -> Result<WorkerPage, Problem>;
    /// A worker.
    async fn worker(&self, id: Uuid) -> Result<WorkerView, Problem>;
    /// A page of the audit.
    async fn audit(&self, wanted: AuditWanted) -> Result<AuditPage, Problem>;
    /// Whether a part of the audit's chain holds: what comes behind a place, 0 for its beginning.
    async fn chain(&self, after: u64) -> Result<ChainView, Problem>;
    /// A few things of each kind that are called like this.
    async fn search(&self, text: String) -> Result<Found, Problem>;
}
