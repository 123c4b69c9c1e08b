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
mod completion;
mod context_commands;
mod contexts;
mod deployments;
mod events;
mod exit;
mod input;
mod jigs;
mod manual;
mod names;
mod nodes;
mod output;
mod overview;
mod people;
mod policy;
mod proposals;
mod request;
mod reviews;
mod runs;
mod script_diff;
mod search;
mod server;
mod time;
mod wait;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use api::views::graph::GraphOptions;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, FromArgMatches as _, Subcommand, ValueEnum as _};

pub use audit::{Audit, AuditChain, AuditExport, AuditList};
pub use completion::complete;
pub use contexts::config_folder;
pub use exit::{EXIT_NEGATIVE, EXIT_USAGE};
pub use workers::WorkerCommand;

use client::Client;
use contexts::{Contexts, Secret, ServerSettings};
use exit::{Failure, Outcome};
use output::{Format, OutputFormat, note, yaml};
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
    /// Show the graph of all deployments in topological order
    Graph(deployments::graph::GraphArgs),
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
    /// Show how files differ from the target; exits 0 for no difference, 1 for some
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
    /// Propose to run applied steps again: of noderoles, of roles of a deployment, or all stale
    /// steps
    Rerun(runs::rerun::Rerun),
    /// Retry failed steps: of a deployment, a blueprint, a node or a role, or all
    Retry(runs::rerun::Retry),
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
    /// Show the background tasks of servers and workers
    #[command(subcommand)]
    BackgroundTask(background_tasks::BackgroundTask),
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
    /// Show the approval policy in force, or propose a change to it
    Policy(policy::PolicyArgs),
    /// Show jigs, and propose to turn them on or off
    #[command(subcommand)]
    Jig(jigs::Jig),
    /// Turn execution on or off for all deployments
    Execution(overview::Execution),
    /// Send any request to /api/v1, by method and path
    Api(request::Api),
    /// Print the setup of completions for a shell
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
    /// Format of the result
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, conflicts_with = "json")]
    output: Option<Format>,
    /// Short for --output json
    #[arg(long, global = true)]
    json: bool,
}

impl Options {
    /// The options before and after the command. clap copies those before it to the command.
    fn of(matches: &ArgMatches) -> Outcome<Self> {
        let mut below = matches.subcommand().map_or(matches, |(_, matches)| matches);
        if let Some((WORKER, worker)) = matches.subcommand() {
            below = worker.subcommand().map_or(below, |(_, matches)| matches);
        }
        let options =
            Self::from_arg_matches(below).map_err(|error| Failure::Usage(error.to_string()))?;
        if options.context.is_some() && options.server.is_some() {
            return Err(Failure::Usage(
                "--context and --server can't be used together. Use one of them.".into(),
            ));
        }
        Ok(options)
    }

    fn format(&self) -> Format {
        self.output.unwrap_or(if self.json { Format::Json } else { Format::Text })
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

const WORKER: &str = "worker";
/// The commands of [`WorkerCommand`].
const WORKER_COMMANDS: [&str; 2] = ["drain", "resume"];

/// Adds the options of all client commands to the program.
#[must_use]
pub fn with_options(program: clap::Command) -> clap::Command {
    let names = command_names();
    let names = names.iter().filter(|name| program.find_subcommand(name).is_some());
    let names: Vec<String> = names.cloned().collect();
    let add_options = |program: clap::Command, name: &String| {
        program.mut_subcommand(name, |command| with_aliases(Options::augment_args(command)))
    };
    let mut program = names.iter().fold(program, add_options);
    // The worker process itself has no such options.
    for name in WORKER_COMMANDS {
        if program.find_subcommand(WORKER).is_some() {
            program = program.mut_subcommand(WORKER, |worker| {
                worker.mut_subcommand(name, Options::augment_args)
            });
        }
    }
    // Not global here, because the other commands have no such options.
    program.args(option_args().into_iter().map(|arg| arg.global(false)))
}

/// The commands that have the options. `audit` also has commands without a server.
fn command_names() -> Vec<String> {
    #[derive(Debug, clap::Parser)]
    struct ClientCommands {
        #[command(subcommand)]
        _command: Command,
    }
    let own = <ClientCommands as clap::CommandFactory>::command();
    let names = own.get_subcommands().map(|command| command.get_name().to_owned());
    names.chain(["audit".to_owned()]).collect()
}

/// Adds plural and short names.
fn with_aliases(command: clap::Command) -> clap::Command {
    let aliases: &[&'static str] = match command.get_name() {
        "background-task" => &["background-tasks"],
        "barclamp" => &["barclamps"],
        "blueprint" => &["blueprints"],
        "context" => &["contexts"],
        "deployment" => &["deployments", "deploy"],
        "jig" => &["jigs"],
        "list" => &["ls"],
        "node" => &["nodes"],
        "noderole" => &["noderoles"],
        "person" => &["people"],
        "proposal" => &["proposals"],
        "remove" => &["rm"],
        "review" => &["reviews"],
        "role" => &["roles"],
        "run" => &["runs"],
        "service" => &["services"],
        "session" => &["sessions"],
        "token" => &["tokens"],
        _ => &[],
    };
    command.visible_aliases(aliases.iter().copied()).mut_subcommands(|below| {
        // `deployment noderoles` is no plural of a noun.
        match below.get_name() {
            "list" | "remove" => with_aliases(below),
            "token" => below.mut_subcommands(with_aliases),
            _ => below,
        }
    })
}

fn option_args() -> Vec<clap::Arg> {
    Options::augment_args(clap::Command::new("")).get_arguments().cloned().collect()
}

/// Checks that the options before the command are options of the command.
///
/// # Errors
/// If they are not.
pub fn check_options(matches: &ArgMatches, program: &mut clap::Command) -> Result<(), clap::Error> {
    let Some((name, below)) = matches.subcommand() else { return Ok(()) };
    let is_given = |arg: &clap::Arg| {
        matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let is_worker_command = name == WORKER && below.subcommand().is_some();
    if is_worker_command || command_names().iter().any(|known| known == name) {
        return Ok(());
    }
    let Some(given) = option_args().into_iter().find(is_given) else { return Ok(()) };
    let long = given.get_long().unwrap_or_default();
    Err(program
        .error(ErrorKind::UnknownArgument, format!("`gantry {name}` has no option --{long}")))
}

/// Runs a command. `matches` are those of the whole command line; `program` is its definition.
pub fn run(command: &Command, matches: &ArgMatches, program: clap::Command) -> ExitCode {
    match Options::of(matches) {
        Ok(options) => end(done(command, &options, program), options.format()),
        Err(failure) => end(Err(failure), Format::Text),
    }
}

/// Runs an audit command that needs a server.
pub fn run_audit(command: &Audit, matches: &ArgMatches) -> ExitCode {
    run_on_server(matches, |client| audit::audit(client, command))
}

/// Runs a command below `gantry worker` that needs a server.
pub fn run_worker_command(command: &WorkerCommand, matches: &ArgMatches) -> ExitCode {
    run_on_server(matches, |client| workers::change_worker(client, command))
}

fn run_on_server(matches: &ArgMatches, command: impl Fn(&Client) -> Outcome) -> ExitCode {
    match Options::of(matches) {
        Ok(options) => {
            let done = client(&options).and_then(|(client, _)| command(&client));
            end(done, options.format())
        }
        Err(failure) => end(Err(failure), Format::Text),
    }
}

/// Ends after an invalid command line or a request for help. With `--output json` or `yaml`, the
/// error is a document like all others.
pub fn usage_error(mut error: clap::Error, line: &[OsString]) -> ExitCode {
    remove_unlikely_suggestion(&mut error);
    let format = wanted_format(line);
    if !error.use_stderr() || !matches!(format, Format::Json | Format::Yaml) {
        error.exit()
    }
    let text = error.to_string();
    end(Err(Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned())), format)
}

/// Removes the suggestion of another option if it is not similar enough to be a typing error.
fn remove_unlikely_suggestion(error: &mut clap::Error) {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.trim_start_matches('-')),
        _ => None,
    };
    let words = text(ContextKind::InvalidArg).zip(text(ContextKind::SuggestedArg));
    if words.is_some_and(|(given, known)| names::near(given, [known]).is_empty()) {
        error.remove(ContextKind::SuggestedArg);
    }
}

/// The format that an invalid command line asks for, as far as that can be determined.
fn wanted_format(line: &[OsString]) -> Format {
    let words: Vec<&str> = line
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .take_while(|w| *w != "--")
        .collect();
    let format = |text: &str| Format::from_str(text.trim_start_matches('='), true).ok();
    let named = words.iter().enumerate().find_map(|(at, word)| match *word {
        "--json" => Some(Format::Json),
        "-o" | "--output" => format(words.get(at + 1)?),
        _ => format(word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o"))?),
    });
    named.unwrap_or_default()
}

fn end(done: Outcome, format: Format) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    let text = failure.to_string();
    match format {
        _ if text.is_empty() => {}
        Format::Json => note(&failure.as_json().to_string()),
        Format::Yaml => note(yaml::text(&failure.as_json()).trim_end()),
        _ => note(&format!("gantry: {text}")),
    }
    ExitCode::from(failure.code())
}

/// The selected server, and the context whose session is used.
fn client(options: &Options) -> Outcome<(Client, Option<String>)> {
    let settings = options.server_settings();
    let is_explicit =
        settings.server.is_some() || (settings.context.is_none() && settings.env_server.is_some());
    let contexts = match (is_explicit && settings.env_token.is_some(), contexts::default_path()) {
        // With a token, API clients need no home directory.
        (true, _) => Contexts::default(),
        (false, Ok(path)) => Contexts::read(&path)?,
        (false, Err(failure)) if !is_explicit => return Err(failure),
        (false, Err(_)) => Contexts::default(),
    };
    let selected = contexts::choose(&settings, &contexts)?;
    if selected.key.is_none() {
        let server = &selected.address;
        return Err(Failure::NotSignedIn(format!(
            "No credentials for {server}. Run `gantry context add NAME --server {server} \
             --link-file FILE`, or set GANTRY_TOKEN."
        )));
    }
    let server = Server::new(selected.address, selected.key);
    Ok((Client { server, output: OutputFormat::new(options.format()) }, selected.context))
}

fn done(command: &Command, options: &Options, program: clap::Command) -> Outcome {
    let output = OutputFormat::new(options.format());
    match command {
        Command::Context(command) => {
            return context_commands::run(
                output,
                options.context.as_deref(),
                options.insecure_http,
                command,
            );
        }
        Command::Completions(args) => return manual::completions(output, args),
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
        Command::Graph(args) => {
            let graph = api::calls::cluster_graph(&GraphOptions::default());
            deployments::graph::graph(client, &graph, args)
        }
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
        Command::BackgroundTask(args) => background_tasks::background_task(client, args),
        Command::Person(command) => people::person(client, command),
        Command::Service(command) => people::services::service(client, command),
        Command::Token(command) => people::tokens::token(client, command),
        Command::Passkey(command) => people::passkeys::passkey(client, command),
        Command::Session(command) => people::sessions::session(client, context.as_deref(), command),
        Command::Policy(args) => policy::policy(client, args),
        Command::Jig(command) => jigs::jig(client, command),
        Command::Rerun(args) => runs::rerun::rerun(client, args),
        Command::Retry(args) => runs::rerun::retry(client, args),
        Command::Execution(args) => overview::execution(client, args),
        Command::Api(api) => request::api(client, api),
    }
}
