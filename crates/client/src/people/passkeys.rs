//! Commands for passkeys.

use clap::Subcommand;
use engine::ids::PasskeyId;

use crate::client::Client;
use crate::exit::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Passkey {
    /// Revoke a passkey: its signatures no longer count for later commits
    Revoke {
        /// Id of the passkey, from gantry me
        id: PasskeyId,
    },
}

pub(crate) fn passkey(client: &Client, command: &Passkey) -> Outcome {
    let Client { server, output } = client;
    match command {
        Passkey::Revoke { id } => {
            let answer = server.call(&api::calls::revoke_passkey(*id))?;
            output.either(&answer, &format!("Passkey {id} is revoked."))
        }
    }
}
