//! Health checks: tests periodically whether nodes are alive and records the results.
//!
//! A health check of an absent node takes as long as all its addresses take to fail. Many checks
//! therefore run concurrently, and none waits for another. A worker never has two checks of the
//! same node in progress. Otherwise checks would pile up on a slow machine. The database decides
//! what a result means.
//!
//! A check surveys the node if its running attempts are unknown (the node is new, returns or was
//! restarted). Attempts that the database counts as lost may still run there. They are ended before
//! anything starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use background::{Failure, Outcome, Task, TaskResult};
use engine::ids::NodeId;
use serde_json::Value;
use sqlx::PgPool;
use store::nodes::{DueNode, HealthCheckResult};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::database::objects::Objects;
use crate::node::Nodes;
use crate::node::connection::record;
use crate::node::health::HealthCheck;

/// Maximum concurrent health checks.
const MAX_CONCURRENT: usize = 64;

/// Timeout for finding out which attempts run on a node.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts the health checks that are due. Checks of a run continue during the next ones.
pub struct CheckNodes {
    checker: Arc<Checker>,
    checks: JoinSet<()>,
    busy: Arc<Mutex<BTreeSet<NodeId>>>,
}

struct Checker {
    pool: PgPool,
    objects: Arc<Objects>,
    nodes: Arc<Nodes>,
    /// Health check interval of each node.
    every: Duration,
    /// Name of the worker that checks.
    by: String,
    /// Last logged result of each node whose details are not recorded.
    logged: Mutex<BTreeMap<NodeId, String>>,
}

impl CheckNodes {
    pub fn new(
        pool: PgPool,
        objects: Arc<Objects>,
        nodes: Arc<Nodes>,
        every: Duration,
        by: String,
    ) -> Self {
        let checker = Checker { pool, objects, nodes, every, by, logged: Mutex::default() };
        Self { checker: Arc::new(checker), checks: JoinSet::new(), busy: Arc::default() }
    }
}

impl Task for CheckNodes {
    fn name(&self) -> &'static str {
        "check-nodes"
    }

    fn purpose(&self) -> &'static str {
        "Starts the health checks of nodes that are due."
    }

    /// Shorter than the interval of each node, so a check starts in time.
    fn period(&self) -> Duration {
        (self.checker.every / 5).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    async fn run(&mut self) -> TaskResult {
        while self.checks.try_join_next().is_some() {}
        let free_slots =
            u32::try_from(MAX_CONCURRENT.saturating_sub(self.checks.len())).unwrap_or_default();
        if free_slots == 0 {
            return Ok(Outcome::from(format!("{MAX_CONCURRENT} checks are in progress.")));
        }
        let due = store::nodes::due_nodes(&self.checker.pool, self.checker.every, free_slots).await;
        let failed = "Cannot list the nodes for health checks";
        let mut started = 0;
        for node in due.map_err(|error| Failure::logged(failed, error))? {
            let Some(busy) = Busy::with(&self.busy, node.id) else { continue };
            let check = Arc::clone(&self.checker).check_node(node);
            started += 1;
            self.checks.spawn(async move {
                check.await;
                drop(busy);
            });
        }
        Ok(Outcome::counted(started, "Started", "check", "checks", "No check is due."))
    }
}

impl Checker {
    async fn check_node(self: Arc<Self>, node: DueNode) {
        let begun = Instant::now();
        let connection = record::load_connection(&self.objects, node.doc, &node.connection).await;
        let mut check = match &connection {
            Ok(connection) => self.nodes.check(connection).await,
            Err(error) => HealthCheck::untried(Err(error.to_string())),
        };
        let concealed = self.conceal(&node, &mut check).await;
        let survey = match (&check.boot_id, &connection) {
            (Ok(boot_id), Ok(connection)) if node.needs_survey(boot_id) => {
                Some(self.survey(&node, connection).await)
            }
            _ => None,
        };
        let address = check.address();
        let HealthCheck { tried, boot_id: came, .. } = check;
        // The duration would tell a closed port from a filtered one.
        let took = if concealed && came.is_err() { Duration::ZERO } else { begun.elapsed() };
        let by = self.by.clone();
        let result =
            HealthCheckResult { as_of: node.as_of, tried, address, came, survey, took, by };
        match store::nodes::record_health_check(&self.pool, node.id, &result).await {
            Ok(true) => {
                tracing::info!(node = %node.fqdn, alive = result.came.is_ok(), "the state of a \
                    node changed")
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(node = %node.fqdn, %error, "cannot store the result of a health \
                    check, repeating the check")
            }
        }
    }

    /// Removes details about addresses that never let a worker in, and logs them. Returns whether
    /// it removed any.
    async fn conceal(&self, node: &DueNode, check: &mut HealthCheck) -> bool {
        if check.revealing.is_empty() {
            self.logged.lock().unwrap_or_else(PoisonError::into_inner).remove(&node.id);
            return false;
        }
        let known_addresses =
            store::nodes::reached_addresses(&self.pool, node.id, node.as_of.connection_no)
                .await
                .unwrap_or_else(|error| {
                    // If this conceals too much, the next check corrects it.
                    tracing::warn!(node = %node.fqdn, %error, "cannot read the addresses that \
                        accepted a worker");
                    Vec::new()
                });
        let detail = check.errors();
        if !check.conceal(&known_addresses) {
            return false;
        }
        let last = self
            .logged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(node.id, detail.clone());
        if last.as_ref() != Some(&detail) {
            tracing::info!(node = %node.fqdn, %detail, "cannot reach a node");
        }
        true
    }

    /// Finds out which attempts run on the node, and ends those without an open run. They were lost
    /// while the node was unreachable.
    async fn survey(&self, node: &DueNode, connection: &Value) -> Result<(), String> {
        let failure = |error: String| {
            format!("the login succeeded, but the runs on the node are unknown: {error}")
        };
        let result = timeout(SURVEY_TIMEOUT, async {
            let attempts = self.nodes.running_attempts(connection).await?;
            let orphans = store::nodes::orphaned_attempts(&self.pool, node.id, &attempts)
                .await
                .map_err(|error| error.to_string())?;
            for (run, step, epoch) in orphans {
                tracing::info!(node = %node.fqdn, %run, %step, "ending an attempt on a node, \
                    because it has no open run");
                self.nodes.end_lost_run(connection, step, epoch, run).await?;
            }
            Ok(())
        });
        match result.await {
            Ok(done) => done.map_err(failure),
            Err(_) => {
                Err(failure(format!("no answer within {} seconds", SURVEY_TIMEOUT.as_secs())))
            }
        }
    }
}

/// Marks a node as being checked until it is dropped.
struct Busy {
    all: Arc<Mutex<BTreeSet<NodeId>>>,
    node: NodeId,
}

impl Busy {
    /// Returns `None` if a check of this node is already in progress.
    fn with(all: &Arc<Mutex<BTreeSet<NodeId>>>, node: NodeId) -> Option<Self> {
        let new = all.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
        new.then(|| Self { all: Arc::clone(all), node })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn node_has_one_health_check_at_once() {
        let all = Arc::default();
        let (one, other) = (NodeId(Uuid::from_u128(1)), NodeId(Uuid::from_u128(2)));
        let check = Busy::with(&all, one);
        assert!(check.is_some() && Busy::with(&all, one).is_none());
        assert!(Busy::with(&all, other).is_some(), "health checks of other nodes must not wait");
        drop(check);
        assert!(Busy::with(&all, one).is_some());
    }
}
