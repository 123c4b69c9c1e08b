//! Commands for the tokens of nodes.

use api::calls;
use clap::Subcommand;
use serde_json::Value;

use crate::args::ExpectedVersion;
use crate::client::{Client, WatchOption};
use crate::exit::{Failure, Outcome};
use crate::names;
use crate::output::table::Table;
use crate::output::{OutputFormat, value_text};
use crate::people::tokens::print_new_token;
use crate::server::taken;

#[derive(Debug, Subcommand)]
pub(crate) enum NodeToken {
    /// List tokens of a node, valid ones first, at most 50
    List {
        /// The node: full name, unique first label, or id
        node: String,
        #[command(flatten)]
        again: WatchOption,
    },
    /// Create a token, which is shown only once
    Create {
        /// The node: full name, unique first label, or id
        node: String,
        /// Name of the token, for people
        #[arg(long, value_name = "TEXT")]
        name: String,
        /// Lifetime in days
        #[arg(long, default_value_t = api::limits::DEFAULT_TOKEN_DAYS)]
        days: u32,
        #[command(flatten)]
        on: ExpectedVersion,
    },
    /// Revoke a token
    Revoke {
        /// The node: full name, unique first label, or id
        node: String,
        /// Id of the token, from the list of the node's tokens
        token: uuid::Uuid,
        #[command(flatten)]
        on: ExpectedVersion,
    },
}

pub(crate) fn node_token(client: &Client, command: &NodeToken) -> Outcome {
    let Client { server, output } = client;
    let id = |node: &str| Ok::<_, Failure>(names::node(server, node)?.id);
    match command {
        NodeToken::List { node, again } => {
            let shown = calls::show_node(&names::node(server, node)?.fqdn);
            client.show(*again, || Ok(taken(&mut server.show(&shown)?, "tokens")), node_tokens_text)
        }
        NodeToken::Create { node, name, days, on } => {
            let create = calls::create_node_token(id(node)?, name, *days);
            print_new_token(client, &server.call_on(&create, on.tag())?)
        }
        NodeToken::Revoke { node, token, on } => {
            let revoke = calls::revoke_node_token(id(node)?, *token);
            let response = server.call_on(&revoke, on.tag())?;
            output.either(&response, &format!("Token {token} is revoked."))
        }
    }
}

fn node_tokens_text(tokens: &Value, output: OutputFormat) -> String {
    let tokens = tokens.as_array().map(Vec::as_slice).unwrap_or_default();
    if tokens.is_empty() {
        return "No tokens yet. Create one with `gantry node token create`.\n".to_owned();
    }
    let mut table = Table::new(["ID", "NAME", "VALID", "EXPIRES", "LAST USED", "CREATED BY"]);
    for token in tokens {
        let word = |word: &str| value_text(&token[word]);
        table.row([
            word("id"),
            word("name"),
            word("valid"),
            output.time(&token["expires"]),
            output.time(&token["used"]),
            word("by"),
        ]);
    }
    table.text(output)
}
