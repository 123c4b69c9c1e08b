//! The client part of the CLI: everything in the console, via `/api/v1`.
//!
//! A command selects a server and its credentials ([`contexts`]) and sends requests ([`server`]).
//! It prints the answers ([`output`]) and returns an exit code ([`exit`]). The server has all
//! rules. The client only computes the edits of a file ([`proposals`]) and resolves names
//! ([`names`]). It does not access the database and needs neither a runtime nor a log. A command
//! runs in one thread, with a second one for the live stream.
//!
//! Each module has the commands of one resource, from the arguments to the text. Others are:
//!
//! * [`mod@client`]: a server and the output; lists page by page, and `--watch`.
//! * [`output`]: text, tables, JSON and progress.
//! * [`wait`]: commands that wait for a condition.
//! * [`contexts`], [`server`], [`events`]: the connection to a server.

mod address;
mod args;
mod audit;
mod background_tasks;
mod blueprints;
mod catalog;
mod client;
mod context_commands;
mod contexts;
mod deployments;
mod events;
mod exit;
mod input;
mod manual;
mod names;
mod nodes;
mod output;
mod overview;
mod people;
mod proposals;
mod request;
mod reviews;
mod runs;
mod search;
mod server;
mod time;
mod wait;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, Args as _, FromArgMatches as _, Subcommand};

pub use audit::{Audit, AuditChain, AuditExport, AuditList};
pub use contexts::config_folder;
pub use exit::{CALLED_WRONGLY, NOT_SO};

use client::Client;
use contexts::{Contexts, Secret, ServerSettings};
use exit::{Failure, Outcome};
use output::{OutputFormat, note};
use server::Server;

/// A command for a server or about servers.
#[derive(Debug, Subcommand)]
#[expect(private_interfaces, reason = "private details of the commands")]
pub enum Command {
    /// Manage servers (contexts) and sign in to them
    #[command(subcommand)]
    Context(context_commands::Command),
    /// Show your account and permissions on the server
    Me,
    /// Show an overview: counts, stuck steps, reviews, latest commits, queue
    Overview(overview::Show),
    /// Show and manage deployments
    #[command(subcommand)]
    Deployment(deployments::Deployment),
    /// Show and manage nodes
    #[command(subcommand)]
    Node(nodes::Node),
    /// Show and retry noderoles
    #[command(subcommand)]
    Noderole(nodes::noderoles::Noderole),
    /// Propose to bind a role to nodes
    Bind(proposals::apply::Bind),
    /// Propose to unbind a role from nodes
    Unbind(proposals::apply::Unbind),
    /// Propose the changes that files declare
    Apply(proposals::apply::Apply),
    /// Show the changes that `apply` would propose; exits 0 for none, 1 for some
    Diff(proposals::apply::FileArgs),
    /// Print a deployment as a file that `apply` accepts
    Export(proposals::export::Export),
    /// Show and edit open proposals
    #[command(subcommand)]
    Proposal(proposals::Proposal),
    /// Read, approve and commit reviews
    #[command(subcommand)]
    Review(reviews::Review),
    /// Show and compare blueprints
    #[command(subcommand)]
    Blueprint(blueprints::Blueprint),
    /// Show pending steps, with the reason and the action that resolves it
    Pending(runs::pending::Pending),
    /// Wait for a condition
    Wait(wait::Wait),
    /// Wait until the actual state matches the desired state, and report stuck steps; exits 4 if
    /// nothing matches
    Converge(wait::Converge),
    /// Show and cancel runs
    #[command(subcommand)]
    Run(runs::Run),
    /// Print a run's log; exits with the run's result
    Logs(runs::logs::Logs),
    /// Show and import barclamps on the server
    #[command(subcommand)]
    Barclamp(catalog::barclamps::Barclamp),
    /// Show roles of the catalog
    #[command(subcommand)]
    Role(catalog::roles::Role),
    /// Show workers
    Workers(workers::Workers),
    /// Show the background tasks of servers and workers, failing ones first
    BackgroundTasks(overview::Show),
    /// Manage people, their permissions and sign-in links
    #[command(subcommand)]
    Person(people::Person),
    /// Manage service accounts
    #[command(subcommand)]
    Service(people::services::Service),
    /// Manage API tokens
    #[command(subcommand)]
    Token(people::tokens::Token),
    /// Manage your passkeys for signed verdicts
    #[command(subcommand)]
    Passkey(people::passkeys::Passkey),
    /// Manage your sessions and password
    #[command(subcommand)]
    Session(people::sessions::Session),
    /// Find deployments, nodes, roles, runs, reviews and people by part of the name, or by number
    Search(search::Search),
    /// Show the approval policy in force
    Policy(overview::Show),
    /// Turn execution on or off for all deployments
    Execution(overview::Execution),
    /// Send any request to /api/v1, by method and path
    Api(request::Api),
    /// Print shell completions
    Completions(manual::Completions),
    /// Write manual pages, one per command
    Man(manual::Man),
    /// Explain the exit codes
    #[command(long_about = exit::EXIT_CODES)]
    ExitCodes,
}

// Options of all client commands. A doc comment here would replace the help text of the program.
#[derive(Debug, Clone, clap::Args)]
struct Options {
    /// Use this context's server [env: GANTRY_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server selection")]
    context: Option<String>,
    /// Use this server [env: GANTRY_SERVER, with GANTRY_TOKEN]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Server selection",
        conflicts_with = "context"
    )]
    server: Option<String>,
    /// Allow plain HTTP to other machines; your credentials can be read in transit
    #[arg(long, global = true, help_heading = "Server selection")]
    insecure_http: bool,
    /// Print JSON: one document, or one per line for continuous output
    #[arg(long, global = true)]
    json: bool,
}

impl Options {
    fn of(matches: &ArgMatches) -> Self {
        let defaults = || Self { context: None, server: None, insecure_http: false, json: false };
        matches
            .subcommand()
            .and_then(|(_, matches)| Self::from_arg_matches(matches).ok())
            .unwrap_or_else(defaults)
    }

    fn server_settings(&self) -> ServerSettings {
        // Not read by clap: the choice of a server is personal, not a setting of the configuration
        // file.
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        ServerSettings {
            context: self.context.clone(),
            server: self.server.clone(),
            insecure_http: self.insecure_http,
            env_context: variable("GANTRY_CONTEXT"),
            env_server: variable("GANTRY_SERVER"),
            env_token: variable("GANTRY_TOKEN").map(|token| Secret::new(token.trim())),
        }
    }
}

/// Adds the options of all client commands to the program.
#[must_use]
pub fn with_options(program: clap::Command) -> clap::Command {
    #[derive(Debug, clap::Parser)]
    struct ClientCommands {
        #[command(subcommand)]
        _command: Command,
    }
    let own = <ClientCommands as clap::CommandFactory>::command();
    let names: Vec<String> =
        own.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let add_options =
        |program: clap::Command, name: &String| program.mut_subcommand(name, Options::augment_args);
    let audit = "audit".to_owned();
    let has_audit = program.find_subcommand(&audit).is_some();
    names.iter().chain(has_audit.then_some(&audit)).fold(program, add_options)
}

/// Runs a command. `matches` are those of the whole command line; `program` is its definition.
pub fn run(command: &Command, matches: &ArgMatches, program: clap::Command) -> ExitCode {
    let options = Options::of(matches);
    end(done(command, &options, program), options.json)
}

/// Runs an audit command that needs a server.
pub fn run_audit(command: &Audit, matches: &ArgMatches) -> ExitCode {
    let options = Options::of(matches);
    let done = client(&options).and_then(|(client, _)| audit::audit(&client, command));
    end(done, options.json)
}

/// Ends after an invalid command line or a request for help. With `--json`, the error is JSON like
/// all others.
pub fn usage_error(error: &clap::Error, line: &[OsString]) -> ExitCode {
    if !error.use_stderr() || !wants_json(line) {
        error.exit()
    }
    let text = error.to_string();
    end(Err(Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned())), true)
}

/// Whether an invalid command line asks for JSON, as far as that can be determined.
fn wants_json(line: &[OsString]) -> bool {
    line.iter().take_while(|word| word.as_os_str() != "--").any(|word| word.as_os_str() == "--json")
}

fn end(done: Outcome, json: bool) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    let text = failure.to_string();
    match json {
        _ if text.is_empty() => {}
        true => note(&failure.as_json().to_string()),
        false => note(&format!("gantry: {text}")),
    }
    ExitCode::from(failure.code())
}

/// The selected server, and the context whose session is used.
fn client(options: &Options) -> Outcome<(Client, Option<String>)> {
    let said = options.server_settings();
    let is_explicit =
        said.server.is_some() || (said.context.is_none() && said.env_server.is_some());
    let contexts = match (is_explicit && said.env_token.is_some(), contexts::default_path()) {
        // With a token, API clients need no home directory.
        (true, _) => Contexts::default(),
        (false, Ok(path)) => Contexts::read(&path)?,
        (false, Err(failure)) if !is_explicit => return Err(failure),
        (false, Err(_)) => Contexts::default(),
    };
    let selected = contexts::choose(&said, &contexts)?;
    if selected.key.is_none() {
        let server = &selected.address;
        return Err(Failure::NotSignedIn(format!(
            "No credentials for {server}. Run `gantry context add NAME --server {server} \
             --link-file FILE`, or set GANTRY_TOKEN."
        )));
    }
    let server = Server::new(selected.address, selected.key);
    Ok((Client { server, output: OutputFormat::new(options.json) }, selected.context))
}

fn done(command: &Command, options: &Options, program: clap::Command) -> Outcome {
    let output = OutputFormat::new(options.json);
    match command {
        Command::Context(command) => {
            return context_commands::run(
                output,
                options.context.as_deref(),
                options.insecure_http,
                command,
            );
        }
        Command::Completions(args) => return manual::completions(output, args, program),
        Command::Man(args) => return manual::man(output, args, program),
        Command::ExitCodes => return output.line(exit::EXIT_CODES),
        _ => {}
    }
    let (client, context) = client(options)?;
    let client = &client;
    match command {
        Command::Context(_) | Command::Completions(_) | Command::Man(_) | Command::ExitCodes => {
            Ok(())
        }
        Command::Me => people::me(client),
        Command::Overview(show) => overview::overview(client, show),
        Command::Deployment(command) => deployments::deployment(client, command),
        Command::Node(command) => nodes::node(client, command),
        Command::Noderole(command) => nodes::noderoles::noderole(client, command),
        Command::Bind(bind) => proposals::apply::bind(client, bind),
        Command::Unbind(unbind) => proposals::apply::unbind(client, unbind),
        Command::Apply(apply) => proposals::apply::apply(client, apply),
        Command::Diff(files) => proposals::apply::diff(client, files),
        Command::Export(export) => proposals::export::export(client, export),
        Command::Proposal(command) => proposals::proposal(client, command),
        Command::Review(command) => reviews::review(client, command),
        Command::Blueprint(command) => blueprints::blueprint(client, command),
        Command::Pending(args) => runs::pending::pending(client, args),
        Command::Wait(wait) => wait::wait(client, wait),
        Command::Converge(converge) => wait::converge(client, converge),
        Command::Run(command) => runs::run(client, command),
        Command::Logs(logs) => runs::logs::logs(client, logs),
        Command::Barclamp(command) => catalog::barclamps::barclamp(client, command),
        Command::Role(command) => catalog::roles::role(client, command),
        Command::Search(args) => search::search(client, args),
        Command::Workers(args) => workers::workers(client, args),
        Command::BackgroundTasks(show) => background_tasks::background_tasks(client, show),
        Command::Person(command) => people::person(client, command),
        Command::Service(command) => people::services::service(client, command),
        Command::Token(command) => people::tokens::token(client, command),
        Command::Passkey(command) => people::passkeys::passkey(client, command),
        Command::Session(command) => people::sessions::session(client, context.as_deref(), command),
        Command::Policy(show) => overview::policy(client, show),
        Command::Execution(args) => overview::execution(client, args),
        Command::Api(api) => request::api(client, api),
    }
}
