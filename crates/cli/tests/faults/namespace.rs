//! A view of the file systems of a test's own, in which it may mount a small disk, without being root and without leaving anything
//! behind: it ends with the processes in it.

use std::path::Path;
use std::process::Command;

const INSIDE: &str = "GANTRY_TEST_NAMESPACE";

/// Whether the caller is in such a namespace. If not, the test of that name was run there, and there is nothing left to do; where that
/// is not possible, it says so.
pub fn entered(test: &str) -> bool {
    if is_inside() {
        return true;
    }
    if let Err(why) = possible(&words()) {
        eprintln!("skipped: {test} needs a mount namespace of its own, and unshare says: {why}");
        return false;
    }
    assert!(enter(test, &[]), "{test} failed within its namespace: see above");
    false
}

/// Runs a test of this program there, with these variables; whether it went well.
pub fn enter(test: &str, variables: &[(&str, String)]) -> bool {
    let inside = Command::new("unshare")
        .args(words())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env(INSIDE, "1")
        .status();
    inside.unwrap().success()
}

/// Whether the caller is there.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether a namespace of one's own is to be had at all.
pub fn is_possible() -> bool {
    possible(&words()).is_ok()
}

/// As who we are: PostgreSQL and sshd ask for that.
fn words() -> Vec<&'static str> {
    if nix::unistd::geteuid().is_root() {
        return vec!["--mount"];
    }
    vec!["--user", "--map-current-user", "--keep-caps", "--mount"]
}

fn possible(words: &[&str]) -> Result<(), String> {
    let tried = Command::new("unshare").args(words).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{error} (Debian: apt-get install util-linux)")),
    }
}

/// Two megabytes.
pub fn small_disk(folder: &Path) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m,mode=0755", "none"]).arg(folder).status();
    assert!(mounted.unwrap().success());
}
