//! Commands for service accounts.

use clap::Subcommand;
use serde_json::json;

use crate::address::Query;
use crate::client::{Client, ListOptions};
use crate::exit::Outcome;
use crate::people::{GrantArgs, person_list};

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// List service accounts
    List {
        /// Part of the name
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        #[command(flatten)]
        much: ListOptions,
    },
    /// Add a service account, which has only tokens and cannot review
    Add {
        /// Name of the service account
        name: String,
        #[command(flatten)]
        grants: GrantArgs,
    },
}

pub(crate) fn service(client: &Client, command: &Service) -> Outcome {
    match command {
        Service::List { filter, much } => client.list(
            &person_list(),
            &Query::default().with("filter", filter).with("kind", "service"),
            much,
        ),
        Service::Add { name, grants } => {
            let answer = client.server.post(
                "/people",
                json!({"name": name, "kind": "service", "grants": grants.json()}),
            )?;
            let message = format!(
                "Account {name} is added. Create a token for it: gantry token create --for {name} \
                 --name TEXT --permission viewer"
            );
            client.output.either(&answer, &message)
        }
    }
}
