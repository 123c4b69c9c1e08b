//! The client accepts every command that the console shows.

use clap::{FromArgMatches as _, Subcommand as _};

#[test]
fn every_shown_command_is_accepted() {
    let audit = client::Audit::augment_subcommands(clap::Command::new("audit"));
    let worker = client::WorkerCommand::augment_subcommands(clap::Command::new("worker"));
    let program = client::Command::augment_subcommands(clap::Command::new("gantry"))
        .subcommand(audit)
        .subcommand(worker);
    let program = client::with_options(program);
    for call in api::calls::samples().expect("the samples") {
        let words = std::iter::once("gantry".to_owned()).chain(call.arguments());
        let matches = program.clone().try_get_matches_from(words);
        let matches = matches.unwrap_or_else(|error| panic!("{}: {error}", call.cli()));
        if !matches!(matches.subcommand_name(), Some("audit" | "worker")) {
            client::Command::from_arg_matches(&matches)
                .unwrap_or_else(|error| panic!("{}: {error}", call.cli()));
        }
    }
}
