//! `gantry admin`: adds the first admin, creates a sign-in link for one, resets a second factor, or
//! confirms a passkey. The command needs the owner role of the database. The server's role can
//! neither add people nor confirm passkeys alone.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::people::PasskeyView;
use control::people::{NewPerson, People, Permission};
use serde_json::json;

use crate::database;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The admin's name; a new name adds an admin
    name: String,
    /// Database URL with the owner role, `postgres://...`
    #[arg(long, env = "GANTRY_OWNER_URL", hide_env_values = true)]
    owner_url: Option<String>,
    /// Lifetime of the link, in minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Remove a person's lost authenticator app and passkeys, and end their sessions; creates no
    /// link
    #[arg(long, conflicts_with = "minutes")]
    reset_second_factor: bool,
    /// List the passkeys of a person; creates no link
    #[arg(long, conflicts_with_all = ["minutes", "reset_second_factor"])]
    passkeys: bool,
    /// Confirm the passkey of a person with this fingerprint, so that it counts for signed
    /// verdicts; creates no link
    #[arg(
        long,
        value_name = "FINGERPRINT",
        conflicts_with_all = ["minutes", "reset_second_factor", "passkeys"]
    )]
    confirm_passkey: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(arguments: Arguments) -> Result<()> {
    let url = arguments.owner_url.context(
        "GANTRY_OWNER_URL is not set. Only the database's owner can add admins. Set it to the \
         owner's URL, as for `gantry migrate`.",
    )?;
    let people = People::over(database::open(&url, database::Role::Owner).await?);
    let name = &arguments.name;
    if arguments.reset_second_factor {
        let person = people.actor_by_name(name).await.context("Cannot remove the second factor")?;
        people
            .reset_factor(None, person.person)
            .await
            .context("Cannot remove the second factor")?;
        match arguments.json {
            true => println!("{}", json!({"person": name, "reset": true})),
            false => {
                println!("The second factor of {name} is removed, and their sessions have ended.")
            }
        }
        return Ok(());
    }
    if arguments.passkeys {
        let person = people.actor_by_name(name).await.context("Cannot list the passkeys")?;
        let passkeys =
            people.list_passkeys(person.person).await.context("Cannot list the passkeys")?;
        return list(name, &passkeys, arguments.json);
    }
    if let Some(fingerprint) = &arguments.confirm_passkey {
        let person = people.actor_by_name(name).await.context("Cannot confirm the passkey")?;
        let result = people.confirm_passkey_as_owner(person.person, fingerprint).await;
        let passkey = result.context("Cannot confirm the passkey")?;
        match arguments.json {
            true => println!("{}", serde_json::to_string(&passkey)?),
            false => println!(
                "The passkey {} of {name} ({}) is confirmed.",
                passkey.name, passkey.fingerprint
            ),
        }
        return Ok(());
    }
    if people.actor_by_name(name).await.is_err_and(|problem| problem.status == 404) {
        let new = NewPerson::human(name, [Permission::Viewer, Permission::Admin]);
        people.create_person(None, &new).await.context("Cannot add the admin")?;
    }
    let admin = people
        .actor_by_name(name)
        .await
        .context("Cannot create a sign-in link (a new name adds an admin)")?;
    if !admin.may(Permission::Admin) {
        bail!(
            "Account {name} exists and is not an admin. Use another name, or let an admin grant \
             the permission."
        );
    }
    let lifetime = Duration::from_secs(60 * arguments.minutes);
    let link = people
        .create_first_link(admin.person, lifetime)
        .await
        .context("Cannot create the sign-in link")?;
    let path = format!("/sign-in#token={}", link.reveal());
    if arguments.json {
        println!("{}", json!({"person": name, "path": path, "minutes": arguments.minutes}));
        return Ok(());
    }
    println!(
        "Sign-in link for {name}, valid once. Append it to the URL of the server:\n\n  {path}\n"
    );
    println!("It is valid for {} minutes and asks for a new password.", arguments.minutes);
    Ok(())
}

fn list(name: &str, passkeys: &[PasskeyView], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(passkeys)?);
        return Ok(());
    }
    if passkeys.is_empty() {
        println!("{name} has no passkeys. People register them in My account.");
    }
    for passkey in passkeys {
        let state = match (&passkey.confirmed_by, passkey.confirmed) {
            (Some(by), _) => format!("confirmed by {by}"),
            (None, true) => "confirmed by the owner".to_owned(),
            (None, false) => "not confirmed".to_owned(),
        };
        println!("{}  {}  {}  {state}", passkey.fingerprint, passkey.name, passkey.host);
    }
    Ok(())
}
