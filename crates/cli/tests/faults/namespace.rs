//! Simulates a full disk on a node without root and without leftovers.
//!
//! Preferably, the node has a small disk of its own, mounted in a mount namespace of the test's
//! processes (`unshare`). If the system does not allow this, a file size limit replaces it. While
//! the disk is to be full, no process of the node can write a file beyond [`LIMIT`]. In both cases,
//! the test runs again in a prepared process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::world::{processes, read_of};

const INSIDE: &str = "GANTRY_TEST_ROOM";
/// In bytes. A run's result and a ledger fit. The reserve of a run and the wrapper's probe file
/// don't.
const LIMIT: u64 = 2_048;

/// The method that limits the disk space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// A small disk.
    Disk,
    /// A limit on file sizes.
    Files,
}

impl Room {
    /// The most realistic method that this system allows.
    pub fn best() -> Self {
        if possible().is_ok() { Self::Disk } else { Self::Files }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Files => "files",
        }
    }

    /// The command that starts a prepared process.
    fn command(self) -> Command {
        let (program, words) = match self {
            Self::Disk => ("unshare", unshare()),
            // A write beyond the limit must return an error, not kill the process.
            Self::Files => ("sh", vec!["-c", "trap '' XFSZ; exec \"$@\"", "sh"]),
        };
        let mut command = Command::new(program);
        command.args(words);
        command
    }
}

/// Whether the caller is in a prepared process. If not, runs the test in one. If that is not
/// possible, prints a message.
pub fn entered(test: &str, room: Room) -> bool {
    if is_inside() {
        return true;
    }
    if let (Room::Disk, Err(reason)) = (room, possible()) {
        // `cargo xtask test` repeats this message at its end.
        eprintln!("skipped: {test} needs a mount namespace of its own, and unshare says: {reason}");
        return false;
    }
    assert!(enter(test, room, &[]), "{test} failed: see the output above");
    false
}

/// Runs a test of this program in a prepared process with these variables. Returns whether it
/// passed.
pub fn enter(test: &str, room: Room, variables: &[(&str, String)]) -> bool {
    let inside = room
        .command()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env(INSIDE, room.label())
        .status();
    inside.unwrap().success()
}

/// Whether the caller is in a prepared process.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn bounded_by(room: Room) -> bool {
    std::env::var_os(INSIDE).is_some_and(|word| word == room.label())
}

/// Keeps the user and group, because PostgreSQL and sshd check them.
fn unshare() -> Vec<&'static str> {
    if nix::unistd::geteuid().is_root() {
        return vec!["--mount"];
    }
    vec!["--user", "--map-current-user", "--keep-caps", "--mount"]
}

fn possible() -> Result<(), String> {
    let tried = Room::Disk.command().args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{error} (Debian: apt-get install util-linux)")),
    }
}

/// Mounts a disk of two megabytes, if the method is a disk.
pub fn small_disk(folder: &Path) {
    if !bounded_by(Room::Disk) {
        return;
    }
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m,mode=0755", "none"])
        .arg(folder)
        .status();
    assert!(mounted.unwrap().success());
}

/// Fills the disk of a node to its last byte, or frees it again.
pub fn fill(root: &Path, full: bool) {
    match bounded_by(Room::Disk) {
        true => fill_disk(&root.join("fill"), full),
        false => limit_files(root, full),
    }
}

fn fill_disk(file: &Path, full: bool) {
    if !full {
        let _ = std::fs::remove_file(file);
        return;
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

fn limit_files(root: &Path, full: bool) {
    assert!(bounded_by(Room::Files), "a test that fills a disk must run in its own namespace");
    if full {
        // Not even one more line must fit. Empty lines are ignored.
        let mut journal = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(root.join("journal"))
            .unwrap();
        journal.write_all(&vec![b'\n'; usize::try_from(LIMIT).unwrap()]).unwrap();
    }
    let limit = if full { format!("--fsize={LIMIT}:") } else { "--fsize=unlimited:".to_owned() };
    let mut reported = BTreeSet::new();
    loop {
        // A child of a process without the limit has no limit either, so repeat.
        let untold: Vec<i32> = processes_of(root).difference(&reported).copied().collect();
        if untold.is_empty() {
            return;
        }
        for pid in untold {
            // The process may have ended.
            let _ =
                Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).output().unwrap();
            reported.insert(pid);
        }
    }
}

/// A node's SSH server, its descendants, and runs in their own sessions.
fn processes_of(root: &Path) -> BTreeSet<i32> {
    let config = root.with_file_name("sshd_config").to_string_lossy().into_owned();
    let of_run = format!("GANTRY_ROOT={}", root.to_string_lossy());
    let has = |bytes: &[u8], expected: &str| {
        bytes.windows(expected.len()).any(|part| part == expected.as_bytes())
    };
    let belongs = |pid: i32| {
        let words = read_of(pid, "cmdline");
        has(&words, &config)
            || has(&words, &root.to_string_lossy())
            || has(&read_of(pid, "environ"), &of_run)
    };
    let parents: BTreeMap<i32, i32> =
        processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found: BTreeSet<i32> = parents.keys().copied().filter(|pid| belongs(*pid)).collect();
    loop {
        let before = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| found.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            return found;
        }
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = String::from_utf8_lossy(&read_of(pid, "stat")).into_owned();
    // The process name is in parentheses and may itself contain spaces and parentheses.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
