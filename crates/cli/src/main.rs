//! `gantry`: the only binary.
//!
//! `up` starts everything on one machine. `server`, `worker` and `migrate` are its parts for
//! separate machines. `catalog` works on files only. The commands of [`client`] send requests to a
//! server. Results go to standard output, logs to standard error. Exit codes: 0 for success, 1 for
//! failure, 2 for wrong usage. [`client`] defines the codes and has more of them.

mod admin;
mod audit;
mod catalog;
mod configuration;
mod database;
mod environment;
mod help;
mod home;
mod logging;
mod migrate;
mod serve;
mod shipped_barclamps;
mod signals;
mod testbed;
mod unread;
mod up;
mod verify;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Deploys clusters and keeps them in their desired state: plan, review, run
#[derive(Debug, Parser)]
#[command(name = "gantry", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Log level or filter: `error`, `warn`, `info`, `debug`, or filters such as
    /// `worker=debug,info`
    #[arg(long, global = true, env = "GANTRY_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// Write logs as JSON, one object per line
    #[arg(long, global = true, env = "GANTRY_LOG_JSON")]
    log_json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything: a private PostgreSQL (unless DATABASE_URL is set), the server and one
    /// worker
    Up(up::Arguments),
    /// Start a server
    Server(serve::Arguments),
    /// Start a worker, or drain one
    Worker(work::Worker),
    /// Create or update the database's tables
    Migrate(migrate::Arguments),
    /// Add the first admin or restore an admin's access: prints a one-time sign-in link
    Admin(admin::Arguments),
    /// Compare the database's rows with the approved documents
    Verify(verify::Arguments),
    /// Show, export and verify the audit log; `verify` needs no server
    #[command(subcommand)]
    Audit(audit::Command),
    /// Start SSH servers on this machine as test nodes and add them; Ctrl-C stops them
    Testbed(testbed::Arguments),
    /// Print every setting with its value and the source of the value
    Config(configuration::Arguments),
    /// Check barclamp files
    #[command(subcommand)]
    Catalog(catalog::Command),
    #[command(flatten)]
    Client(client::Command),
}

impl Command {
    /// Whether the command uses the settings, so that a misspelled one deserves a warning.
    fn uses_settings(&self) -> bool {
        match self {
            Self::Up(_)
            | Self::Server(_)
            | Self::Worker(work::Worker { command: None, .. })
            | Self::Migrate(_)
            | Self::Admin(_)
            | Self::Verify(_)
            | Self::Testbed(_)
            | Self::Config(_) => true,
            Self::Worker(_) | Self::Audit(_) | Self::Catalog(_) | Self::Client(_) => false,
        }
    }
}

fn command() -> clap::Command {
    help::grouped(client::with_options(configuration::with_option(Arguments::command())))
}

fn main() -> ExitCode {
    client::complete(command);
    let args: Vec<OsString> = std::env::args_os().collect();
    let file = match configuration::File::find(&args, &command()) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("gantry: {error:#}");
            return ExitCode::from(client::EXIT_USAGE);
        }
    };
    let matches = match file.below(command()).try_get_matches_from(&args) {
        Ok(matches) => matches,
        Err(error) => return client::usage_error(error, &args),
    };
    if let Err(error) = client::check_options(&matches, &mut command()) {
        return client::usage_error(error, &args);
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // The client needs no log and no runtime.
    match &arguments.command {
        Command::Client(client_command) => return client::run(client_command, &matches, command()),
        Command::Worker(work::Worker { command: Some(client_command), .. }) => {
            return client::run_worker_command(client_command, &matches);
        }
        Command::Audit(audit::Command::Server(client_command)) => {
            return client::run_audit(client_command, &matches);
        }
        Command::Audit(audit::Command::Verify(verify)) => return audit::run(verify),
        Command::Audit(audit::Command::Keygen(keygen)) => return audit::keygen(keygen),
        Command::Catalog(command) => return catalog::run(command),
        // `gantry config` has no options for most settings, so clap does not parse their variables
        // here.
        Command::Config(_) => {
            if let Err(error) = configuration::check_environment(&command()) {
                eprintln!("gantry: {error:#}");
                return ExitCode::from(client::EXIT_USAGE);
            }
        }
        _ => {}
    }
    if let Err(error) = logging::start(&arguments.log, arguments.log_json) {
        eprintln!("gantry: {error}");
        return ExitCode::from(client::EXIT_USAGE);
    }
    if arguments.command.uses_settings() {
        for warning in environment::warnings(&command()) {
            tracing::warn!("{warning}");
        }
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("gantry: Cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Up(arguments) => up::run(arguments, file.path()).await,
            Command::Server(arguments) => serve::run(arguments).await,
            Command::Worker(worker) => work::run(worker.process).await,
            Command::Migrate(arguments) => migrate::run(arguments).await,
            Command::Admin(arguments) => admin::run(arguments).await,
            Command::Verify(arguments) => verify::run(arguments).await,
            Command::Testbed(arguments) => testbed::run(arguments).await,
            Command::Config(arguments) => configuration::run(&arguments, &file, &command()),
            Command::Client(_) | Command::Audit(_) | Command::Catalog(_) => Ok(()),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gantry: {}", report(&error));
            match error.is::<database::NoUrl>() {
                true => ExitCode::from(client::EXIT_USAGE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// An error with its causes. Errors of libraries often repeat the text of their cause, which is
/// then left out.
fn report(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in error.chain().map(ToString::to_string) {
        if texts.last().is_none_or(|outer| !outer.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_cause_is_left_out() {
        let error = anyhow::anyhow!("no such table").context("statement 1: no such table");
        let error = error.context("Cannot migrate the database");
        assert_eq!(report(&error), "Cannot migrate the database: statement 1: no such table");
    }

    #[test]
    fn arguments_pass_clap_checks() {
        command().debug_assert();
    }

    #[test]
    fn every_argument_has_help() {
        fn undocumented(command: &clap::Command, path: &str) -> Vec<String> {
            let own = command.get_positionals().filter(|arg| arg.get_help().is_none());
            let own = own.map(|arg| format!("{path} {}", arg.get_id()));
            let below = command
                .get_subcommands()
                .flat_map(|sub| undocumented(sub, &format!("{path} {}", sub.get_name())));
            own.chain(below).collect()
        }
        assert_eq!(undocumented(&command(), "gantry"), Vec::<String>::new());
    }
}
