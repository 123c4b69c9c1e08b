//! The state of one node: its session, and the results of its addresses.

use std::sync::Arc;
use std::time::Duration;

use russh::keys::PrivateKey;
use tokio::time::Instant;

use super::SharedSession;
use super::attempts::Attempt;
use super::error::SshError;

/// Time to remember the last good address of a node without a session.
const MEMORY_TIME: Duration = Duration::from_secs(3600);

/// The state of one node in the memory of a worker.
#[derive(Default)]
pub(super) struct NodeState {
    pub(super) connection: Option<SharedSession>,
    /// The last address that accepted the worker.
    pub(super) answered: Option<String>,
    /// The address that accepted the worker and then stopped answering.
    pub(super) silent: Option<String>,
    pub(super) tries: Option<Attempts>,
}

/// The results of the last attempt to connect.
pub(super) struct Attempts {
    pub(super) ended: Instant,
    pub(super) each: Vec<Attempt>,
    pub(super) failed: Option<SshError>,
}

impl NodeState {
    pub(super) fn usable(&self, key: &PrivateKey, max_age: Duration) -> Option<SharedSession> {
        let connection = self.connection.as_ref().filter(|connection| open(connection))?;
        let same_key = connection.key.public_key().key_data() == key.public_key().key_data();
        (same_key && connection.opened_at.elapsed() < max_age).then(|| Arc::clone(connection))
    }

    /// The error, if the last attempt ended after `since` and failed. A caller that waited for that
    /// attempt does not repeat it.
    pub(super) fn failed_since(&self, since: Instant) -> Option<SshError> {
        self.tries.as_ref().filter(|tries| tries.ended >= since)?.failed.clone()
    }

    /// The order in which to try the addresses.
    pub(super) fn order(&self, addresses: &[String]) -> Vec<String> {
        let mut order = addresses.to_vec();
        order.sort_by_key(|address| match Some(address) {
            address if address == self.silent.as_ref() => 2,
            address if address == self.answered.as_ref() => 0,
            _ => 1,
        });
        order
    }

    pub(super) fn note(&mut self, each: Vec<Attempt>, result: &Result<SharedSession, SshError>) {
        if let Ok(connection) = result {
            self.answered = Some(connection.address.clone());
            self.silent.take_if(|silent| *silent == connection.address);
        }
        self.connection = result.as_ref().ok().cloned();
        self.tries =
            Some(Attempts { ended: Instant::now(), each, failed: result.as_ref().err().cloned() });
    }

    pub(super) fn is_recent(&self) -> bool {
        let tried = self.tries.as_ref().is_some_and(|tries| tries.ended.elapsed() < MEMORY_TIME);
        tried || self.connection.as_ref().is_some_and(open)
    }
}

pub(super) fn open(connection: &SharedSession) -> bool {
    !connection.handle.is_closed()
}
