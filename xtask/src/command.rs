//! Runs other programs. It prints the command before it starts, and adds a readable error if it
//! fails.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

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

    /// A setup script. If it fails, it has printed the reason.
    pub(crate) fn script(tree: &Tree, name: &str) -> Self {
        Self::new(tree, tree.path("scripts").join(name))
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

    /// Starts the program. Its output goes to a file until [`Background::finish`] prints it.
    ///
    /// # Errors
    /// If the file can't be written or the program can't start.
    pub(crate) fn start(mut self, log: PathBuf) -> anyhow::Result<Background> {
        let shown = self.shown();
        println!("\n$ {shown}   (at the same time; output in {})", log.display());
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let errors = output.try_clone().with_context(|| log.display().to_string())?;
        self.command.stdout(output).stderr(errors).process_group(0);
        let child = self.command.spawn().with_context(|| format!("can't start `{shown}`"))?;
        Ok(Background { child, shown, log })
    }

    fn shown(&self) -> String {
        let words: Vec<OsString> = std::iter::once(self.command.get_program())
            .chain(self.command.get_args())
            .map(OsStr::to_owned)
            .collect();
        words.join(OsStr::new(" ")).to_string_lossy().into_owned()
    }
}

/// A program that runs at the same time as later steps. It is ended when this is dropped.
pub(crate) struct Background {
    child: Child,
    shown: String,
    log: PathBuf,
}

impl Background {
    /// Waits for the program and prints its output.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let status = self.child.wait().with_context(|| format!("waiting for `{}`", self.shown))?;
        println!("\n$ {}", self.shown);
        print!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        if !status.success() {
            bail!("`{}` failed ({status})", self.shown);
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // `Err` or a status: `finish` has waited for it already.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Ok(id) = i32::try_from(self.child.id()) {
            // It may have ended just now.
            let _ = killpg(Pid::from_raw(id), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::leftover_processes::TESTS_OF_PROGRAMS;

    fn shell(script: &str, log: &str) -> (tempfile::TempDir, anyhow::Result<Background>) {
        let folder = tempfile::tempdir().expect("a folder");
        let step = Step::new(&Tree::at(folder.path()), "sh").args(["-c", script]);
        let started = step.start(folder.path().join(log));
        (folder, started)
    }

    #[test]
    fn background_program_reports_its_status() {
        let _alone = TESTS_OF_PROGRAMS.lock();
        let (_folder, started) = shell("true", "log");
        started.expect("started").finish().expect("the program succeeds");
        let (_folder, started) = shell("exit 3", "log");
        let error = started.expect("started").finish().expect_err("a failed program").to_string();
        assert_eq!(error, "`sh -c exit 3` failed (exit status: 3)");
        let (_folder, started) = shell("true", "no/such/folder");
        assert!(started.is_err());
    }

    #[test]
    fn dropped_background_program_ends_with_its_children() {
        let _alone = TESTS_OF_PROGRAMS.lock();
        let (_folder, started) = shell("sleep 61.5 & wait", "log");
        let begin = Instant::now();
        drop(started.expect("started"));
        assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    }
}
