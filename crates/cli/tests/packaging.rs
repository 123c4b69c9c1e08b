//! The systemd units: systemd accepts them, and their commands exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const GANTRY: &str = env!("CARGO_BIN_EXE_gantry");

fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut units: Vec<_> =
        fs::read_dir(folder).expect("units").map(|entry| entry.expect("a unit").path()).collect();
    units.sort();
    assert_eq!(units.len(), 3);
    units
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!(
            "skipped: this machine has no systemd-analyze (package systemd), so the units were not \
             looked at by systemd"
        );
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut paths = Vec::new();
    for unit in units() {
        let text =
            fs::read_to_string(&unit).expect("a unit").replace("/usr/local/bin/gantry", GANTRY);
        let path = folder.path().join(unit.file_name().expect("a name"));
        fs::write(&path, text).expect("a written file");
        paths.push(path);
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(&paths)
        .output();
    let output = output.expect("systemd-analyze");
    let ours: Vec<String> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| line.contains("gantry"))
        .map(str::to_owned)
        .collect();
    assert_eq!(ours, Vec::<String>::new());
}

/// If a machine starts before its database, which may be on another machine, Gantry must recover on
/// its own.
#[test]
fn units_restart_until_the_database_is_available() {
    for unit in units() {
        let text = fs::read_to_string(&unit).expect("a unit");
        for line in ["Restart=on-failure", "StartLimitIntervalSec=0"] {
            assert!(text.lines().any(|setting| setting == line), "{}: {line}", unit.display());
        }
        // With `Requires=`, a unit stays down if its dependency fails.
        assert!(!text.contains("Requires="), "{}", unit.display());
    }
}

#[test]
fn units_start_existing_commands() {
    for unit in units() {
        let text = fs::read_to_string(&unit).expect("a unit");
        let start = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/gantry "))
            .expect("the start command");
        let help =
            Command::new(GANTRY).args(start.split(' ')).arg("--help").output().expect("gantry");
        assert!(help.status.success(), "{}: {start}", unit.display());
        // The units' accounts would look for the file elsewhere.
        assert!(text.contains("GANTRY_CONFIG=/etc/gantry/"), "{}", unit.display());
    }
}
