//! Connects to one address and logs in with the pinned host key.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::Preferred;
use russh::client::{self, Handle};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use tokio::time::timeout;

use super::error::SshError;
use super::identification::{FirstBytes, Recorded};
use crate::node::connection::{ConnectError, Dialer, SshEndpoint};

/// Time for an address to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Keepalive interval. The connection is closed after three unanswered keepalives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Client handler that accepts only the pinned host key.
pub(super) struct PinnedHostKey {
    key: PublicKey,
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error("another host key: {0}")]
    OtherKey(String),
}

impl client::Handler for PinnedHostKey {
    type Error = HandshakeError;

    async fn check_server_key(
        &mut self,
        offered: &PublicKeyOrCertificate,
    ) -> Result<bool, HandshakeError> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = offered else {
            return Err(HandshakeError::OtherKey("a certificate".to_owned()));
        };
        if key.key_data() == self.key.key_data() {
            return Ok(true);
        }
        Err(HandshakeError::OtherKey(key.fingerprint(HashAlg::Sha256).to_string()))
    }
}

/// Logs in at one address. `first_bytes` receives the first data of the server.
pub(super) async fn log_in(
    address: &str,
    dialer: &Dialer,
    endpoint: &SshEndpoint,
    pinned: &PublicKey,
    key: &Arc<PrivateKey>,
    first_bytes: &FirstBytes,
) -> Result<Handle<PinnedHostKey>, SshError> {
    let unreached = |reason: &dyn std::fmt::Display| {
        SshError::Unreachable(vec![format!("{address}: {reason}")])
    };
    let stream = match timeout(CONNECT_TIMEOUT, dialer.connect(address, endpoint.port)).await {
        Ok(stream) => stream.map_err(|error| match error {
            ConnectError::Refused(reason) => {
                SshError::Refused { address: address.to_owned(), reason }
            }
            ConnectError::Failed(error) => unreached(&error),
        })?,
        Err(_) => {
            return Err(unreached(&format!(
                "no answer within {} seconds",
                CONNECT_TIMEOUT.as_secs()
            )));
        }
    };
    let config = client::Config {
        inactivity_timeout: Some(IDLE_TIMEOUT),
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: 3,
        nodelay: true,
        // A server has several host keys and shows one of the requested type.
        preferred: Preferred { key: Cow::Owned(vec![pinned.algorithm()]), ..Preferred::default() },
        ..client::Config::default()
    };
    let _ = stream.set_nodelay(true);
    let stream = Recorded { stream, first_bytes: first_bytes.clone() };
    let connected =
        client::connect_stream(Arc::new(config), stream, PinnedHostKey { key: pinned.clone() })
            .await;
    let mut handle = connected.map_err(|error| match error {
        HandshakeError::OtherKey(found) => SshError::HostKeyMismatch {
            address: address.to_owned(),
            found,
            pinned: pinned.fingerprint(HashAlg::Sha256).to_string(),
        },
        HandshakeError::Ssh(russh::Error::NoCommonAlgo { .. }) => SshError::HostKeyMismatch {
            address: address.to_owned(),
            found: format!("none of type {}", pinned.algorithm()),
            pinned: pinned.fingerprint(HashAlg::Sha256).to_string(),
        },
        HandshakeError::Ssh(error) => unreached(&first_bytes.failed(endpoint.port, &error)),
    })?;
    let signing_key = PrivateKeyWithHashAlg::new(Arc::clone(key), None);
    match handle.authenticate_publickey(&endpoint.user, signing_key).await {
        Ok(result) if result.success() => Ok(handle),
        Ok(_) => Err(SshError::AuthenticationFailed {
            address: address.to_owned(),
            user: endpoint.user.clone(),
            key: endpoint.key.0.clone(),
        }),
        Err(error) => Err(unreached(&first_bytes.failed(endpoint.port, &error))),
    }
}
