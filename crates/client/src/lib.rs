//! The command line as a client: everything that the console can do, by `/api/v1`.
//!
//! # Theory
//!
//! A command is a line of steps: find out which server is meant and how one is let in there ([`contexts`]), ask it ([`server`]), print what it
//! says ([`paper`]), end with a number that says how it went ([`exit`]). Rules are the server's; what is worked out here is only which
//! edits a file comes to ([`declare`]), which is pure, and where names stand for ids ([`names`]).
//!
//! Nothing here knows the database, and the program that holds this starts neither a runtime nor a log for it: a command that asks a
//! server is one thread that waits, and one that listens where something is watched.
//!
//! * [`lists`]: lists page by page, and looking again.
//! * [`apply`]: from files and names to a proposal.
//! * [`following`]: what takes long.
//! * [`pages`]: what is much by itself, for people; [`graphs`]: what hangs together.
//! * [`plans`], [`machines`], [`people`], [`overseeing`]: the resources.

mod address;
mod apply;
mod context_commands;
mod contexts;
mod declare;
mod exit;
mod following;
mod graphs;
mod lists;
mod machines;
mod manual;
mod names;
mod overseeing;
mod pages;
mod paper;
mod people;
mod plans;
mod server;
mod terminal;
mod when;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, Args as _, FromArgMatches as _, Subcommand};

pub use exit::{CALLED_WRONGLY, NOT_SO};
pub use overseeing::{Audit, AuditChain, AuditExport, AuditList};

use contexts::{Contexts, Said, Secret};
use exit::{Failure, Outcome};
use lists::Client;
use paper::{Paper, note};
use server::Server;

/// A command that asks a server, or is about asking one.
#[derive(Debug, Subcommand)]
#[expect(private_interfaces, reason = "who runs a command does not look into it")]
pub enum Command {
    /// Servers by a short name, and coming in there
    #[command(subcommand)]
    Context(context_commands::Command),
    /// Who you are there, and what you may
    Me,
    /// How it stands: counts, what is stuck, reviews, the last commits, the queue
    Overview(overseeing::Show),
    /// Deployments and their boards
    #[command(subcommand)]
    Deployment(plans::Deployment),
    /// Nodes of the inventory
    #[command(subcommand)]
    Node(machines::Node),
    /// Roles on nodes
    #[command(subcommand)]
    Noderole(machines::Noderole),
    /// Bind a role to nodes, by a proposal
    Bind(apply::Bind),
    /// Take a role off nodes, by a proposal
    Unbind(apply::Unbind),
    /// Propose what files declare
    Apply(apply::Apply),
    /// What `apply` would change: 0 nothing, 1 something
    Diff(apply::Files),
    /// Proposals that are open
    #[command(subcommand)]
    Proposal(plans::Proposal),
    /// Reviews: read, judge, commit
    #[command(subcommand)]
    Review(plans::Review),
    /// The line of targets
    #[command(subcommand)]
    Target(plans::Target),
    /// What waits, and who or what frees it
    Waiting(overseeing::Waiting),
    /// Wait until something is so
    Wait(following::Wait),
    /// Wait until reality is what is meant, and say what is stuck; never 0 where nothing matched
    Converge(following::Converge),
    /// Runs
    #[command(subcommand)]
    Run(machines::Run),
    /// A run's log; ends as the run ended
    Logs(following::Logs),
    /// Barclamps on the server
    #[command(subcommand)]
    Barclamp(machines::Barclamp),
    /// Roles of the catalog
    #[command(subcommand)]
    Role(machines::Role),
    /// Workers, as the server sees them
    Workers(machines::Workers),
    /// People, what they may, and their one-time links
    #[command(subcommand)]
    Person(people::Person),
    /// Service accounts
    #[command(subcommand)]
    Service(people::Service),
    /// Tokens of programs
    #[command(subcommand)]
    Token(people::Token),
    /// Passkeys: your own, for signed verdicts
    #[command(subcommand)]
    Passkey(people::Passkey),
    /// Your own sessions and your password
    #[command(subcommand)]
    Session(people::Session),
    /// Find deployments, nodes, roles, runs, reviews and people by a part of their name, or by number
    Search(overseeing::Search),
    /// The gate's policy that is in force
    Policy(overseeing::Show),
    /// Turn execution off or on, for all
    Execution(overseeing::Execution),
    /// Any operation of /api/v1, by its method and path
    Api(plans::Api),
    /// Print completions for a shell
    Completions(manual::Completions),
    /// Write pages of the manual, one for each command
    Man(manual::Man),
    /// With which numbers commands end
    #[command(long_about = exit::CODES)]
    ExitCodes,
}

// What every command here takes. No text for the help: each command has its own.
#[derive(Debug, Clone, clap::Args)]
struct Options {
    /// Ask the server of this context [env: GANTRY_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Which server")]
    context: Option<String>,
    /// Ask this server [env: GANTRY_SERVER, with GANTRY_TOKEN]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Which server",
        conflicts_with = "context"
    )]
    server: Option<String>,
    /// Plain HTTP will do, also to another machine: what lets you in can be read on the way
    #[arg(long, global = true, help_heading = "Which server")]
    insecure_http: bool,
    /// Print JSON: one document, or one a line where it goes on
    #[arg(long, global = true)]
    json: bool,
}

impl Options {
    fn of(matches: &ArgMatches) -> Self {
        let none = || Self { context: None, server: None, insecure_http: false, json: false };
        matches
            .subcommand()
            .and_then(|(_, matches)| Self::from_arg_matches(matches).ok())
            .unwrap_or_else(none)
    }

    fn said(&self) -> Said {
        // Not by clap: what names a server is a person's, and no setting of the server's own file.
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Said {
            context: self.context.clone(),
            server: self.server.clone(),
            insecure_http: self.insecure_http,
            env_context: variable("GANTRY_CONTEXT"),
            env_server: variable("GANTRY_SERVER"),
            env_token: variable("GANTRY_TOKEN").map(|token| Secret::new(token.trim())),
        }
    }
}

/// The program's command line, with what every command here takes.
#[must_use]
pub fn with_options(program: clap::Command) -> clap::Command {
    #[derive(Debug, clap::Parser)]
    struct Own {
        #[command(subcommand)]
        _command: Command,
    }
    let own = <Own as clap::CommandFactory>::command();
    let names: Vec<String> =
        own.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let with =
        |program: clap::Command, name: &String| program.mut_subcommand(name, Options::augment_args);
    let audit = "audit".to_owned();
    let has_audit = program.find_subcommand(&audit).is_some();
    names.iter().chain(has_audit.then_some(&audit)).fold(program, with)
}

/// Runs a command. `matches`: of the whole line; `program`: what the line is understood by.
pub fn run(command: &Command, matches: &ArgMatches, program: clap::Command) -> ExitCode {
    let options = Options::of(matches);
    end(done(command, &options, program), options.json)
}

/// Asks the server about the audit.
pub fn run_audit(command: &Audit, matches: &ArgMatches) -> ExitCode {
    let options = Options::of(matches);
    let done = client(&options).and_then(|(client, _)| overseeing::audit(&client, command));
    end(done, options.json)
}

/// Ends where the line can't be understood, or asks for help. A program that asks for JSON reads this error as every other one.
pub fn misunderstood(error: &clap::Error, line: &[OsString]) -> ExitCode {
    if !error.use_stderr() || !asks_json(line) {
        error.exit()
    }
    let text = error.to_string();
    end(Err(Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned())), true)
}

/// Whether a line asks for JSON, as far as that can be told of one that is not understood.
fn asks_json(line: &[OsString]) -> bool {
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

/// The server that is meant, and the context whose session asks it.
fn client(options: &Options) -> Outcome<(Client, Option<String>)> {
    let said = options.said();
    let by_itself = said.server.is_some() || (said.context.is_none() && said.env_server.is_some());
    let contexts = match (by_itself && said.env_token.is_some(), contexts::usual_place()) {
        // Programs with a token need no home.
        (true, _) => Contexts::default(),
        (false, Ok(path)) => Contexts::read(&path)?,
        (false, Err(failure)) if !by_itself => return Err(failure),
        (false, Err(_)) => Contexts::default(),
    };
    let chosen = contexts::choose(&said, &contexts)?;
    if chosen.key.is_none() {
        let server = &chosen.address;
        return Err(Failure::SignedOut(format!(
            "nothing lets you in at {server}: gantry context add NAME --server {server} --link-file FILE, or set GANTRY_TOKEN"
        )));
    }
    let server = Server::new(chosen.address, chosen.key);
    Ok((Client { server, paper: Paper::new(options.json) }, chosen.context))
}

fn done(command: &Command, options: &Options, program: clap::Command) -> Outcome {
    let paper = Paper::new(options.json);
    match command {
        Command::Context(command) => {
            return context_commands::run(
                paper,
                options.context.as_deref(),
                options.insecure_http,
                command,
            );
        }
        Command::Completions(wanted) => return manual::completions(paper, wanted, program),
        Command::Man(wanted) => return manual::man(paper, wanted, program),
        Command::ExitCodes => return paper.line(exit::CODES),
        _ => {}
    }
    let (client, context) = client(options)?;
    let client = &client;
    match command {
        Command::Context(_) | Command::Completions(_) | Command::Man(_) | Command::ExitCodes => {
            Ok(())
        }
        Command::Me => people::me(client),
        Command::Overview(show) => overseeing::overview(client, show),
        Command::Deployment(command) => plans::deployment(client, command),
        Command::Node(command) => machines::node(client, command),
        Command::Noderole(command) => machines::noderole(client, command),
        Command::Bind(bind) => apply::bind(client, bind),
        Command::Unbind(unbind) => apply::unbind(client, unbind),
        Command::Apply(apply) => apply::apply(client, apply),
        Command::Diff(files) => apply::diff(client, files),
        Command::Proposal(command) => plans::proposal(client, command),
        Command::Review(command) => plans::review(client, command),
        Command::Target(command) => plans::target(client, command),
        Command::Waiting(wanted) => overseeing::waiting(client, wanted),
        Command::Wait(wait) => following::wait(client, wait),
        Command::Converge(converge) => following::converge(client, converge),
        Command::Run(command) => machines::run(client, command),
        Command::Logs(logs) => following::logs(client, logs),
        Command::Barclamp(command) => machines::barclamp(client, command),
        Command::Role(command) => machines::role(client, command),
        Command::Search(wanted) => overseeing::search(client, wanted),
        Command::Workers(wanted) => machines::workers(client, wanted),
        Command::Person(command) => people::person(client, command),
        Command::Service(command) => people::service(client, command),
        Command::Token(command) => people::token(client, command),
        Command::Passkey(command) => people::passkey(client, command),
        Command::Session(command) => people::session(client, context.as_deref(), command),
        Command::Policy(show) => overseeing::policy(client, show),
        Command::Execution(wanted) => overseeing::execution(client, wanted),
        Command::Api(api) => plans::api(client, api),
    }
}
