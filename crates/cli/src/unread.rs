//! Exit codes of commands that check files: an unreadable file is not a failed check.

use std::io::ErrorKind;
use std::process::ExitCode;

/// The exit code for a result. Prints an error to standard error.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("gantry: {error:#}");
    ExitCode::from(if is_read_error(&error) { client::EXIT_USAGE } else { client::EXIT_NEGATIVE })
}

/// Whether the error means that a file could not be read. Invalid UTF-8 is not such an error: the
/// content was read and is wrong.
pub fn is_read_error(error: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
    };
    error.chain().filter_map(io).any(|kind| kind != ErrorKind::InvalidData)
}
