//! The health check of one node: whether it accepts a connection, and the id of its boot.
//!
//! Every reader sees the recorded result, and the author of a node record chooses its addresses.
//! The checks must not become a port scanner. Until an address has let a worker in, the record does
//! not reveal whether something listens there. Only the worker's log has the details.

use std::time::Duration;

use api::nodes::TriedAddress;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::Nodes;
use super::connection::{SshEndpoint, Transport};
use super::session::Session;

/// Recorded for an address that never let a worker in.
const UNREACHABLE: &str = "not reachable over SSH, see the log of the worker";
/// Prints the id of the machine's current boot, if the system has one.
const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo unknown";
/// Time that a connected node has to return its boot id.
const BOOT_ID_TIMEOUT: Duration = Duration::from_secs(25);

/// The result of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub tried: Vec<TriedAddress>,
    /// Addresses whose result reveals whether something listens there.
    pub revealing: Vec<String>,
    /// The node's boot id, or the reason why the node was not reached.
    pub boot_id: Result<String, String>,
}

impl HealthCheck {
    /// The result if no address was tried.
    pub fn untried(boot_id: Result<String, String>) -> Self {
        Self { tried: Vec::new(), revealing: Vec::new(), boot_id }
    }

    /// Removes details about addresses that never let a worker in: those that reveal something and
    /// are not in `known_addresses`. Returns whether it removed any.
    pub fn conceal(&mut self, known_addresses: &[String]) -> bool {
        let mut concealed = false;
        for tried in &mut self.tried {
            if !tried.reached
                && self.revealing.contains(&tried.address)
                && !known_addresses.contains(&tried.address)
            {
                UNREACHABLE.clone_into(&mut tried.error);
                concealed = true;
            }
        }
        if concealed && self.boot_id.is_err() {
            self.boot_id = Err(format!("Cannot reach the node: {}", self.errors()));
        }
        concealed
    }

    /// The errors of the addresses that failed, for a log.
    pub fn errors(&self) -> String {
        let failed = self.tried.iter().filter(|tried| !tried.reached);
        let each = failed.map(|tried| format!("{}: {}", tried.address, tried.error));
        each.collect::<Vec<_>>().join("; ")
    }
    /// The address that accepted the worker, with its result. If several addresses failed, no
    /// single address represents the result.
    pub fn address(&self) -> String {
        let accepted = self.tried.iter().find(|tried| tried.reached && self.boot_id.is_ok());
        let only = self.tried.first().filter(|_| self.tried.len() == 1);
        accepted.or(only).map(|tried| tried.address.clone()).unwrap_or_default()
    }
}

impl Nodes {
    /// Checks whether the node accepts a connection. A node without an address is a folder of this
    /// machine and always passes.
    pub async fn check(&self, connection: &Value) -> HealthCheck {
        let session = match Transport::read(connection) {
            Ok(transport) => self.session(transport),
            Err(error) => return HealthCheck::untried(Err(error.to_string())),
        };
        let Transport::Ssh { endpoint, .. } = &*session.transport else {
            return HealthCheck::untried(Ok(String::new()));
        };
        let begun = Instant::now();
        let boot_id = match self.ssh.reach(endpoint).await {
            Ok(_) => boot_id(&session, endpoint).await,
            Err(error) => Err(error.to_string()),
        };
        HealthCheck {
            tried: self.ssh.tried(endpoint, begun).await,
            revealing: self.ssh.revealing(endpoint, begun).await,
            boot_id,
        }
    }
}

/// Reads the id of the machine's current boot.
async fn boot_id(session: &Session, endpoint: &SshEndpoint) -> Result<String, String> {
    let query = session.execute("reading its boot id", BOOT_ID, &[], b"");
    match timeout(BOOT_ID_TIMEOUT, query).await {
        Ok(Ok(answer)) => Ok(String::from_utf8_lossy(&answer).trim().chars().take(100).collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            let error = format!("no answer within {} seconds", BOOT_ID_TIMEOUT.as_secs());
            session.ssh.give_up(endpoint, &error).await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_address_reveals_no_listener() {
        let tried = |address: &str, reached: bool, text: &str| TriedAddress {
            address: address.into(),
            reached,
            error: text.into(),
        };
        let check = |boot_id: Result<String, String>| HealthCheck {
            tried: vec![
                tried("10.0.0.1", false, "Connection refused"),
                tried("10.0.0.2", false, "does not let root in"),
                tried("10.0.0.3", false, "it says \"220 ftp\""),
            ],
            revealing: vec!["10.0.0.1".into(), "10.0.0.3".into()],
            boot_id,
        };
        let mut failed = check(Err("all of it".into()));
        assert!(failed.conceal(&["10.0.0.3".into()]));
        let error = failed.boot_id.unwrap_err();
        assert_eq!(
            error,
            format!(
                "Cannot reach the node: 10.0.0.1: {UNREACHABLE}; 10.0.0.2: does not let root in; \
                 10.0.0.3: it says \"220 ftp\""
            )
        );
        let mut reached = check(Ok("boot".into()));
        assert!(reached.conceal(&[]) && reached.boot_id.is_ok());
        assert_eq!(
            (reached.tried[0].error.as_str(), reached.tried[2].error.as_str()),
            (UNREACHABLE, UNREACHABLE)
        );
        assert!(!check(Err("all".into())).conceal(&["10.0.0.1".into(), "10.0.0.3".into()]));
    }
}
