//! Stops a run before its end.
//!
//! A run may be stopped at any moment, and only the first reason counts.

use std::sync::Arc;

use tokio::sync::watch;

/// Why a run is stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// This worker no longer leases the run: it was lost or taken over.
    LeaseLost,
    /// A user canceled it.
    Canceled,
    /// The worker shuts down and the grace period is over.
    WorkerShutdown,
}

/// Signals a jig to stop.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<Option<StopReason>>);

/// The sending half of a [`Stop`].
#[derive(Debug, Clone)]
pub struct StopSender(Arc<watch::Sender<Option<StopReason>>>);

impl StopSender {
    /// Creates a stopper and its stop signal.
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(None);
        (Self(Arc::new(sender)), Stop(receiver))
    }

    /// Signals the run to stop. Only the first reason counts.
    pub fn stop(&self, reason: StopReason) {
        self.0.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(reason);
            is_first
        });
    }
}

impl Stop {
    /// Waits until the run is stopped.
    pub async fn requested(&mut self) -> StopReason {
        loop {
            if let Some(reason) = *self.0.borrow_and_update() {
                return reason;
            }
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The reason, if the run has been stopped.
    pub fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }
}
