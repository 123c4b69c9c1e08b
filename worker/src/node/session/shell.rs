//! Quoting for POSIX shells, and the shell of a local node.

use std::process::Stdio;

use tokio::process::Command;

/// Quotes words for a POSIX shell, also plain ones, so that all commands to nodes look alike.
pub(super) fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted_argument).collect::<Vec<_>>().join(" ")
}

/// Quotes one word for a POSIX shell.
pub(crate) fn quoted_argument(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Environment variables that local processes inherit from the worker. All others, such as the
/// database URL, are removed.
const INHERITED_VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

/// A local shell in its own process group, so that Ctrl-C in the worker's terminal does not reach
/// it.
pub(super) fn local_shell(line: &str, words: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).arg("gantry").args(words);
    command.env_clear();
    for name in INHERITED_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.current_dir("/").process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_splits_quoted_arguments() {
        let words = ["a b", "it's", "", "$HOME `id` \\ \"x\"\nnext", "'"];
        let script = format!("for word in {}; do printf '%s|' \"$word\"; done", quoted(words));
        let output =
            std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), words.join("|") + "|");
    }
}
