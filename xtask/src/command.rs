//! Starting other programs: shown before they start, failing with the words of a person who has to act on it.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::tree::Tree;

/// Variables that cargo sets for a program it runs. A cargo started below must not see them: build scripts that watch
/// them (ring's does) would take them for a change, and half the tree would be compiled again.
const SET_BY_CARGO: [&str; 7] = [
    "CARGO",
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// One program to run in the tree.
pub(crate) struct Step {
    command: Command,
}

impl Step {
    /// A program by name or path, with the tree as its working folder.
    pub(crate) fn new(tree: &Tree, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(tree.path("")).stdin(Stdio::null());
        for name in SET_BY_CARGO {
            command.env_remove(name);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") {
                command.env_remove(name);
            }
        }
        Self { command }
    }

    /// The cargo in use.
    pub(crate) fn cargo(tree: &Tree) -> Self {
        Self::new(tree, "cargo")
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without_env(mut self, names: &[&str]) -> Self {
        for name in names {
            self.command.env_remove(name);
        }
        self
    }

    /// Runs it; its output goes where ours goes.
    ///
    /// # Errors
    /// When it can't start or fails.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        let shown = self.shown();
        println!("\n$ {shown}");
        let status = self.command.status().with_context(|| format!("can't start `{shown}`"))?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        Ok(())
    }

    /// Runs it unseen, but for its errors; what it wrote, without the last line's end.
    ///
    /// # Errors
    /// When it can't start, fails, or writes something that isn't UTF-8.
    pub(crate) fn output(mut self) -> anyhow::Result<String> {
        let shown = self.shown();
        let output = self
            .command
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("can't start `{shown}`"))?;
        if !output.status.success() {
            bail!("`{shown}` failed ({})", output.status);
        }
        let text = String::from_utf8(output.stdout)
            .with_context(|| format!("`{shown}` wrote no UTF-8"))?;
        Ok(text.trim_end().to_owned())
    }

    fn shown(&self) -> String {
        let words: Vec<OsString> = std::iter::once(self.command.get_program())
            .chain(self.command.get_args())
            .map(OsStr::to_owned)
            .collect();
        words.join(OsStr::new(" ")).to_string_lossy().into_owned()
    }
}
