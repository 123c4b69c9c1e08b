//! Looks whether nodes are alive: reaches each that is due, and says what came of it.
//!
//! A node that is not there keeps a look busy for as long as its addresses are tried, so many are under way at once, and none waits for
//! another. What a result means is not decided here.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use store::running::{self, DueNode, Looked};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::jig::script::ScriptJig;

/// Most looks at once.
const AT_ONCE: usize = 64;

/// What looking needs.
pub struct Looking {
    /// The database.
    pub pool: PgPool,
    /// Reaches nodes.
    pub script: Arc<ScriptJig>,
    /// How often each node is looked at.
    pub every: Duration,
    /// Who looks.
    pub by: String,
}

impl Looking {
    /// Looks until it is dropped.
    pub async fn look(self) {
        let this = Arc::new(self);
        let mut under_way = JoinSet::new();
        let mut ticks =
            tokio::time::interval((this.every / 5).clamp(Duration::from_millis(50), Duration::from_secs(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(_) = under_way.join_next() => continue,
            }
            let room = u32::try_from(AT_ONCE.saturating_sub(under_way.len())).unwrap_or_default();
            if room == 0 {
                continue;
            }
            match running::due_nodes(&this.pool, this.every, room).await {
                Ok(due) => due.into_iter().for_each(|node| drop(under_way.spawn(Arc::clone(&this).look_at(node)))),
                Err(error) => tracing::warn!(%error, "who is due for a look could not be asked; trying again"),
            }
        }
    }

    async fn look_at(self: Arc<Self>, node: DueNode) {
        let begun = Instant::now();
        let (address, came) = self.script.look(&node.connection).await;
        let looked = Looked { address, came, took: begun.elapsed(), by: self.by.clone() };
        match running::record_look(&self.pool, node.id, &looked).await {
            Ok(true) => tracing::info!(node = %node.fqdn, alive = looked.came.is_ok(), "a node turned"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(node = %node.fqdn, %error, "what came of a look could not be kept; looking again")
            }
        }
    }
}
