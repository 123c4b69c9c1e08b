//! Forwards PostgreSQL notifications to local notifiers.
//!
//! PostgreSQL notifications are hints: they are lost while the connection is down. All receivers
//! therefore also sweep, and every new connection wakes all of them.
//!
//! This is a stream and not a background task: it has no period, and it ends with its connection.

use std::sync::Arc;
use std::time::Duration;

use background::Activator;
use sqlx::PgPool;
use store::events::{CHANNEL_CANCEL, CHANNEL_RUN, CHANNEL_TODO};

use crate::database::backoff::Backoff;
use crate::queue::leases::Leases;

/// The tasks to wake.
pub struct Notifiers {
    /// The queue: runs were queued.
    pub leases: Arc<Leases>,
    /// The annealer: something may have become admissible.
    pub claims: Activator,
    /// The comparison of inputs: the input of a step may have changed.
    pub inputs: Activator,
    /// The heartbeat: a run was canceled.
    pub renewals: Activator,
}

impl Notifiers {
    fn notify_all(&self) {
        self.leases.wake.notify_one();
        self.claims.activate();
        self.inputs.activate();
        self.renewals.activate();
    }

    fn notify(&self, channel: &str) {
        match channel {
            CHANNEL_RUN => self.leases.wake.notify_one(),
            CHANNEL_TODO => {
                self.claims.activate();
                self.inputs.activate();
            }
            CHANNEL_CANCEL => self.renewals.activate(),
            _ => {}
        }
    }

    /// Listens until it is dropped. Reconnects after every lost connection.
    pub async fn run(self, pool: PgPool) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.listen_once(&pool).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(%error, "cannot receive notifications of the database, so the \
                        worker polls");
                    backoff.pause().await;
                }
            }
        }
    }

    async fn listen_once(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut listener = store::listener(pool).await?;
        listener.listen_all([CHANNEL_RUN, CHANNEL_TODO, CHANNEL_CANCEL]).await?;
        self.notify_all();
        // `None` means that the connection was lost.
        while let Some(notification) = listener.try_recv().await? {
            self.notify(notification.channel());
        }
        Ok(())
    }
}
