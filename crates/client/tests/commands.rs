//! The commands as a whole: what each kind of them has, and that the book names them.

use std::collections::BTreeSet;

use clap::Subcommand as _;

/// Commands about this machine alone, or about the program itself. The book has sections of their own for them.
const HERE: [&str; 4] = ["context", "completions", "man", "exit-codes"];

fn program() -> clap::Command {
    let audit = client::Audit::augment_subcommands(clap::Command::new("audit"));
    client::Command::augment_subcommands(clap::Command::new("gantry")).subcommand(audit)
}

/// Every command from here on that has none below it, as it is typed.
fn leaves(command: &clap::Command) -> Vec<(String, &clap::Command)> {
    let name = command.get_name();
    if !command.has_subcommands() {
        return vec![(name.to_owned(), command)];
    }
    command.get_subcommands().flat_map(leaves).map(|(path, leaf)| (format!("{name} {path}"), leaf)).collect()
}

/// Those that ask a server.
fn asking(program: &clap::Command) -> Vec<(String, &clap::Command)> {
    program.get_subcommands().filter(|command| !HERE.contains(&command.get_name())).flat_map(leaves).collect()
}

#[test]
fn whatever_lists_or_shows_something_of_a_server_can_be_watched() {
    let program = program();
    let shows = |path: &str| matches!(path.split(' ').next_back(), Some("list" | "show" | "graph" | "overview"));
    let is_watched = |command: &clap::Command| command.get_arguments().any(|arg| arg.get_long() == Some("watch"));
    let found = asking(&program).into_iter().filter(|(path, command)| shows(path) && !is_watched(command));
    assert_eq!(found.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn every_command_is_in_a_table_of_its_chapter() {
    let chapter = include_str!("../../../docs/cli.md");
    let words = |row: &'static str| -> BTreeSet<&'static str> {
        row.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect()
    };
    let rows: Vec<BTreeSet<&str>> = chapter.lines().filter(|line| line.starts_with("| `")).map(words).collect();
    let program = program();
    let is_named = |path: &str| rows.iter().any(|row| path.split(' ').all(|word| row.contains(word)));
    let found = asking(&program).into_iter().filter(|(path, _)| !is_named(path));
    assert_eq!(found.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<String>::new());
}
