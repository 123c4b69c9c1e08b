//! Commands for service accounts.

use api::people::AccountKind;
use clap::Subcommand;

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
        list_options: ListOptions,
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
        Service::List { filter, list_options } => client.list(
            &person_list(),
            &Query::default().with("filter", filter).with("kind", "service"),
            list_options,
        ),
        Service::Add { name, grants } => {
            let add = api::calls::add_person(name, AccountKind::Service, &grants.grants());
            let answer = client.server.call(&add)?;
            let message = format!(
                "Account {name} is added. Create a token for it: gantry token create --for {name} \
                 --name TEXT --permission viewer"
            );
            client.output.either(&answer, &message)
        }
    }
}
