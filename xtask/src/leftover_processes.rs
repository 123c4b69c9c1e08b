//! Detects processes that outlive the test that started them.
//!
//! Tests start databases, servers and workers. A leftover process uses memory, ports and files. It
//! is a bug in a test, or in Gantry, which promises that Ctrl-C stops everything. On Linux, a
//! process can become the reaper of its orphaned descendants. Everything that a step leaves running
//! then becomes our child, at any depth and in any session, and can be named.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time for a process to end that was just told to stop, or whose parent was killed.
const GRACE_PERIOD: Duration = Duration::from_secs(15);

/// Makes this process the reaper of its orphaned descendants.
///
/// # Errors
/// If the system call fails.
pub(crate) fn adopt() -> anyhow::Result<()> {
    nix::sys::prctl::set_child_subreaper(true).context("can't adopt orphaned processes")
}

/// Runs a step. If it leaves processes running, ends them and fails.
///
/// # Errors
/// The step's own error, or one that lists the processes.
pub(crate) fn fail_on_leftovers(step: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    fail_on_leftovers_after(GRACE_PERIOD, step)
}

fn fail_on_leftovers_after(
    grace_period: Duration,
    step: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let before = running_children()?;
    let result = step();
    let left = wait_for_exit(&before, grace_period)?;
    let descriptions: Vec<String> =
        left.iter().map(|pid| format!("{pid} ({})", command_line(*pid))).collect();
    for pid in &left {
        end(*pid);
    }
    result?;
    if !descriptions.is_empty() {
        bail!("left running after the tests: {}", descriptions.join(", "));
    }
    Ok(())
}

fn wait_for_exit(before: &[Pid], grace_period: Duration) -> anyhow::Result<Vec<Pid>> {
    let started = Instant::now();
    loop {
        let mut left = running_children()?;
        left.retain(|pid| !before.contains(pid));
        if left.is_empty() || started.elapsed() > grace_period {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The children of this process that have not ended. Those that have ended are not collected here:
/// the code that started them waits for them, and adopted ones disappear with this process.
fn running_children() -> anyhow::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("can't list processes")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between being listed and being read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        if running_parent(&stat) == Some(nix::unistd::getpid()) {
            found.push(Pid::from_raw(pid));
        }
    }
    Ok(found)
}

/// The parent in a line of `/proc/PID/stat`, unless the process has ended. The program's name is in
/// parentheses and may contain any character.
fn running_parent(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then(|| Pid::from_raw(parent))
}

fn command_line(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
}

fn end(pid: Pid) {
    // The process may have ended already.
    let _ = kill(pid, Signal::SIGTERM);
    thread::sleep(Duration::from_secs(1));
    let _ = kill(pid, Signal::SIGKILL);
}

/// Tests that start programs take this lock, because another one looks for leftover programs.
#[cfg(test)]
pub(crate) static TESTS_OF_PROGRAMS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn leftover_processes_are_named_and_ended() {
        let _alone = TESTS_OF_PROGRAMS.lock();
        adopt().expect("the kernel allows it");
        let shell = |script: &'static str| {
            move || {
                let status = Command::new("sh").args(["-c", script]).status()?;
                status.success().then_some(()).context("the shell failed")
            }
        };

        fail_on_leftovers_after(Duration::from_secs(10), shell("sleep 0.3 &"))
            .expect("the process ended by itself");

        // In its own session, below a parent that has ended.
        let left = fail_on_leftovers_after(
            Duration::ZERO,
            shell("setsid sh -c 'sleep 60.25 & exit 0' & wait"),
        );
        assert!(left.expect_err("a leftover process").to_string().contains("sleep 60.25"));
        fail_on_leftovers_after(Duration::ZERO, || Ok(())).expect("the process was ended");

        let failed = fail_on_leftovers_after(Duration::ZERO, shell("exit 3"));
        assert_eq!(failed.expect_err("the step's own error").to_string(), "the shell failed");
    }

    #[test]
    fn parent_is_parsed_despite_program_name() {
        assert_eq!(running_parent("12 (a) b) S 7 12 12 0"), Some(Pid::from_raw(7)));
        assert_eq!(running_parent("12 (postgres: app) R 1 1"), Some(Pid::from_raw(1)));
        assert_eq!(running_parent("12 (ended) Z 7 12 12 0"), None);
        assert_eq!(running_parent(""), None);
    }
}
