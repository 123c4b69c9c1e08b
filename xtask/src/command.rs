//! Runs other programs. It prints the command before it starts, and adds a readable error if it
//! fails.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::tree::Tree;

/// Variables that cargo sets for a program that it runs. A nested cargo must not see them. Build
/// scripts that watch them (such as ring's) would see a change, and half of the dependencies would
/// be recompiled.
const CARGO_VARIABLES: [&str; 7] = [
    "CARGO",
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// A program to run in the tree.
pub(crate) struct Step {
    command: Command,
}

impl Step {
    /// Creates a step for a program by name or path. Its working folder is the tree.
    pub(crate) fn new(tree: &Tree, program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(tree.path("")).stdin(Stdio::null());
        for name in CARGO_VARIABLES {
            command.env_remove(name);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") {
                command.env_remove(name);
            }
        }
        Self { command }
    }

    /// The current cargo.
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

    /// Runs the program with inherited output.
    ///
    /// # Errors
    /// If it can't start or fails.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        let shown = self.shown();
        println!("\n$ {shown}");
        let status = self.command.status().with_context(|| format!("can't start `{shown}`"))?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        Ok(())
    }

    /// Runs the program and returns its standard output without the last newline.
    ///
    /// # Errors
    /// If it can't start, fails, or writes invalid UTF-8.
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
