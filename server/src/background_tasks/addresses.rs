//! Reports the addresses of this host, so that no worker connects to the server as a node.

use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use sqlx::PgPool;
use store::server_addresses::{self, REPORT_PERIOD, host_addresses};

pub(super) struct ReportAddresses(pub PgPool);

impl Task for ReportAddresses {
    fn name(&self) -> &'static str {
        "report-server-addresses"
    }

    fn purpose(&self) -> &'static str {
        "Stores the addresses of this server's host, to which workers do not connect."
    }

    fn period(&self) -> Duration {
        REPORT_PERIOD
    }

    async fn run(&mut self) -> TaskResult {
        let stored = server_addresses::report(&self.0, &host_addresses())
            .await
            .map_err(|error| Failure::logged("Cannot store the server's addresses", error))?;
        Ok(Outcome::counted(stored, "Stored", "address", "addresses", "The host has no address."))
    }
}
