//! How a command ends that looks into files: what can't be read says nothing of what is in it, so that is no verdict on it.

use std::io::ErrorKind;
use std::process::ExitCode;

/// The end of such a command, and why it did not go well on standard error.
pub fn ended(done: anyhow::Result<()>) -> ExitCode {
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("gantry: {error:#}");
    ExitCode::from(if is_unread(&error) { client::CALLED_WRONGLY } else { client::NOT_SO })
}

/// Whether there was nothing to be read. Bytes that are no text were read, and are not what they should be.
pub fn is_unread(error: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
    };
    error.chain().filter_map(io).any(|kind| kind != ErrorKind::InvalidData)
}
