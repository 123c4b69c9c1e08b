//! Shell completions and manual pages, generated from the options.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::exit::{Failure, Outcome};
use crate::output::OutputFormat;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Name of the shell
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder to write the pages to
    folder: PathBuf,
}

/// Prints the registration of the program as its own completer.
pub(crate) fn completions(output: OutputFormat, args: &Completions) -> Outcome {
    output.raw(&registration(args.shell)?)
}

fn registration(shell: Shell) -> Outcome<String> {
    let (mut text, name) = (Vec::new(), shell.to_string());
    let unsupported = || Failure::Usage(format!("There are no completions for {name}."));
    let shells = Shells::builtins();
    let completer = shells.completer(&name).ok_or_else(unsupported)?;
    completer.write_registration("COMPLETE", "gantry", "gantry", "gantry", &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes a page for each command, for example `gantry-node-list.1`.
pub(crate) fn man(output: OutputFormat, args: &Man, command: clap::Command) -> Outcome {
    let wrong = |path: &Path, error: std::io::Error| {
        Failure::Usage(format!("Cannot write {}: {error}.", path.display()))
    };
    std::fs::create_dir_all(&args.folder).map_err(|error| wrong(&args.folder, error))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut count = 0;
    write(&command, &args.folder, &mut count).map_err(|error| wrong(&args.folder, error))?;
    output.either(
        &serde_json::json!({"pages": count}),
        &format!("Wrote {count} pages to {}.", args.folder.display()),
    )
}

fn write(command: &clap::Command, folder: &Path, count: &mut usize) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let page = clap_mangen::Man::new(command.clone().name(name.clone()));
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(folder.join(format!("{name}.1")), text)?;
    *count += 1;
    command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .try_for_each(|sub| write(sub, folder, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[derive(Debug, clap::Parser)]
    #[command(name = "gantry", version)]
    struct Program {
        #[command(subcommand)]
        _command: crate::Command,
    }

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        let args = Man { folder: folder.path().join("man") };
        man(OutputFormat::new(crate::output::Format::Json), &args, Program::command()).unwrap();
        for page in ["gantry.1", "gantry-node.1", "gantry-node-token-create.1", "gantry-converge.1"]
        {
            let text = std::fs::read_to_string(args.folder.join(page)).unwrap();
            assert!(text.contains(".SH NAME"), "{page}: {text}");
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            assert!(registration(shell).unwrap().contains("COMPLETE"), "{shell}");
        }
    }

    #[test]
    fn client_arguments_pass_clap_checks() {
        crate::with_options(Program::command()).debug_assert();
    }
}
