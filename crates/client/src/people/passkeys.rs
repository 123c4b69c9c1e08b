//! Commands for passkeys.

use clap::Subcommand;
use ureq::http::Method;
use uuid::Uuid;

use crate::client::Client;
use crate::exit::Outcome;
use crate::server::RequestOptions;

#[derive(Debug, Subcommand)]
pub(crate) enum Passkey {
    /// Revoke a passkey: its signatures no longer count for later commits
    Revoke {
        /// Id of the passkey, from gantry me
        id: Uuid,
    },
}

pub(crate) fn passkey(client: &Client, command: &Passkey) -> Outcome {
    let Client { server, output } = client;
    match command {
        Passkey::Revoke { id } => {
            let answer = server
                .ask(&Method::DELETE, &format!("/passkeys/{id}"), &RequestOptions::default())?
                .read()?;
            output.either(&answer, &format!("Passkey {id} is revoked."))
        }
    }
}
