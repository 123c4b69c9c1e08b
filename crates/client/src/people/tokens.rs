//! Commands for the tokens of people and service accounts.

use api::calls;
use clap::Subcommand;
use serde_json::Value;
use uuid::Uuid;

use crate::address::Query;
use crate::client::{Client, ListOptions};
use crate::exit::Outcome;
use crate::names;
use crate::output::list::{List, word};
use crate::output::{note, time_text, value_text};

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// List your tokens or those of a service account, valid ones first, at most 100
    List {
        /// Name of the service account [default: yourself]
        #[arg(long = "for", value_name = "NAME")]
        person: Option<String>,
        /// Only valid (true) or only invalid (false) tokens
        #[arg(long, value_name = "BOOL", value_parser = ["true", "false"])]
        valid: Option<String>,
        #[command(flatten)]
        list_options: ListOptions,
    },
    /// Create a token, which is shown only once
    Create {
        /// Name of the token, for people
        #[arg(long, value_name = "TEXT")]
        name: String,
        /// Permission of the token: viewer, operator or admin; repeatable
        #[arg(long = "permission", value_name = "PERMISSION", required = true)]
        permission: Vec<String>,
        /// Limit the token to this deployment and its descendants; not with --permission admin
        #[arg(long = "in", value_name = "DEPLOYMENT")]
        deployment: Option<String>,
        /// Lifetime in days
        #[arg(long, default_value_t = 90)]
        days: u32,
        /// Name of the service account that gets the token [default: yourself]
        #[arg(long = "for", value_name = "NAME")]
        person: Option<String>,
    },
    /// Revoke a token
    Revoke {
        /// Id of the token, from the list of tokens
        id: Uuid,
    },
}

pub(crate) fn token(client: &Client, command: &Token) -> Outcome {
    let Client { server, output } = client;
    let person_id =
        |name: &Option<String>| name.as_deref().map(|name| names::person(server, name)).transpose();
    match command {
        Token::List { person: name, valid, list_options } => {
            let person = person_id(name)?.map(|person| person.to_string());
            let query = Query::default().with("person", &person).with("valid", valid);
            client.list(&token_list(), &query, list_options)
        }
        Token::Create { name, permission, deployment, days, person: of } => {
            let scopes: Vec<&str> = permission.iter().map(String::as_str).collect();
            let deployment = deployment.as_deref();
            let create =
                calls::create_token(name, &scopes, deployment, Some(*days), person_id(of)?);
            print_new_token(client, &server.call(&create)?)
        }
        Token::Revoke { id } => {
            let answer = server.call(&calls::revoke_token(*id))?;
            output.either(&answer, &format!("Token {id} is revoked."))
        }
    }
}

/// Prints a new token: the secret to standard output, notes to standard error.
pub(crate) fn print_new_token(client: &Client, response: &Value) -> Outcome {
    client.output.either(response, &value_text(&response["token"]))?;
    if !client.output.is_document() {
        note(&format!(
            "The token is shown only once and is valid until {}. Its id is {}.",
            time_text(&response["expires"]),
            value_text(&response["id"])
        ));
    }
    Ok(())
}

pub(crate) fn token_list() -> List {
    List {
        path: calls::TOKENS_PATH.into(),
        items: "tokens",
        cursor: "before",
        columns: &[
            ("ID", |v, _| word(v, "id")),
            ("NAME", |v, _| word(v, "name")),
            ("OWNER", |v, _| word(v, "person")),
            ("PERMISSIONS", |v, _| word(v, "scopes")),
            ("DEPLOYMENT", |v, _| word(v, "deployment")),
            ("VALID", |v, _| word(v, "valid")),
            ("EXPIRES", |v, o| o.time(&v["expires"])),
            ("LAST USED", |v, o| o.time(&v["used"])),
        ],
        none: "No tokens found.",
    }
}
