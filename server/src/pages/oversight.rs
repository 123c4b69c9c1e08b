//! Implements [`Oversight`] for the overview pages, bound to the client of the request.

use api::Problem;
use api::audit::{AuditPage, AuditWanted, ChainView, ChainWanted};
use api::overview::Overview;
use api::search::{Found, SearchWanted};
use api::workers::{WorkerPage, WorkerView, WorkersWanted};
use app::oversight::Oversight;
use async_trait::async_trait;
use uuid::Uuid;

use crate::pages::bound::Bound;

#[async_trait]
impl Oversight for Bound {
    async fn overview(&self) -> Result<Overview, Problem> {
        self.told(self.control.overview(self.actor()?).await).await
    }

    async fn workers(&self, wanted: WorkersWanted) -> Result<WorkerPage, Problem> {
        self.told(self.control.workers(self.actor()?, &wanted).await).await
    }

    async fn worker(&self, id: Uuid) -> Result<WorkerView, Problem> {
        self.told(self.control.worker(self.actor()?, id).await).await
    }

    async fn audit(&self, wanted: AuditWanted) -> Result<AuditPage, Problem> {
        self.told(self.control.audit(self.actor()?, &wanted).await).await
    }

    async fn chain(&self, after: u64) -> Result<ChainView, Problem> {
        self.told(self.control.audit_chain(self.actor()?, ChainWanted { after }).await).await
    }

    async fn search(&self, text: String) -> Result<Found, Problem> {
        self.told(self.control.search(self.actor()?, &SearchWanted { q: text }).await).await
    }
}
