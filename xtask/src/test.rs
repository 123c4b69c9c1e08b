//! Runs all checks and tests, and reports the time of each part.
//!
//! The fastest checks come first, then those that most changes break. The first failure ends the
//! run after all tests of that part, because later parts depend on it. Each part has a time budget,
//! so that the run stays short enough to wait for. A part over its budget is marked but does not
//! fail, because the machine may be slow.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::command::{Background, Step};
use crate::tree::{self, Tree};
use crate::{leftover_processes, lint, site};

/// The number of files of browser tests that run at the same time.
const BROWSER_TESTS_AT_A_TIME: u32 = 2;

/// The space that the temporary files of the tests may need. They use about a third of it.
const TEMPORARY_BYTES: u64 = 4 << 30;

/// A part of the run with its own time budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Part {
    /// Install missing tools and build this program
    Tools,
    /// Check format and licenses, run clippy
    Lint,
    /// Build the server and run its tests
    Native,
    /// Build the browser files
    Webassembly,
    /// Run the browser tests
    Browser,
}

impl Part {
    /// Time budget on two cores, with only Rust and Node installed.
    const fn budget(self) -> Duration {
        let minutes = match self {
            Self::Tools | Self::Lint => 10,
            Self::Native => 30,
            // The parts and pieces of pages are optimized separately.
            Self::Webassembly => 20,
            Self::Browser => 15,
        };
        Duration::from_secs(60 * minutes)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tools => "tools",
            Self::Lint => "lint",
            Self::Native => "native",
            Self::Webassembly => "WebAssembly",
            Self::Browser => "browser",
        })
    }
}

/// A run of the stages.
struct Run<'a> {
    tree: &'a Tree,
    /// The parts to run; none means all.
    parts: &'a [Part],
    /// The build of the browser files, if it runs at the same time as the native tests.
    site: Option<Background>,
}

type Stage = (Part, fn(&mut Run<'_>) -> anyhow::Result<()>);

const STAGES: [Stage; 7] = [
    (Part::Tools, |run| tools(run.tree)),
    (Part::Lint, |run| lint::quick(run.tree)),
    (Part::Native, |run| run.native_build()),
    (Part::Native, |run| run.native_tests()),
    (Part::Lint, |run| lint::clippy(run.tree)),
    (Part::Webassembly, |run| run.webassembly()),
    (Part::Browser, |run| browser(run.tree)),
];

/// Runs the given parts, or all.
///
/// # Errors
/// The first failure.
pub(crate) fn run(tree: &Tree, parts: &[Part]) -> anyhow::Result<()> {
    leftover_processes::adopt()?;
    let mut times = Times::default();
    let mut run = Run { tree, parts, site: None };
    if parts.is_empty() {
        times.add(Part::Tools, time_since_make_began());
    }
    let mut result = Ok(());
    for (part, stage) in STAGES {
        if !run.includes(part) {
            continue;
        }
        let started = Instant::now();
        result = stage(&mut run).with_context(|| format!("{part}"));
        times.add(part, started.elapsed());
        if result.is_err() {
            break;
        }
    }
    drop(run);
    println!("\n{times}");
    for skipped in skipped(tree, &times) {
        println!("{skipped}");
    }
    result
}

impl Run<'_> {
    fn includes(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Builds the programs and their tests. At the same time, the toolchain of the browser files is
    /// downloaded and assembled.
    fn native_build(&self) -> anyhow::Result<()> {
        let toolchain = if self.includes(Part::Webassembly) {
            let toolchain = Step::new(self.tree, self.tree.path("scripts/wasm-toolchain"));
            fs::create_dir_all(self.tree.target()).context("the target folder")?;
            Some(toolchain.start(self.tree.target().join("wasm-toolchain.log"))?)
        } else {
            None
        };
        Step::cargo(self.tree).args(["build", "--locked"]).run()?;
        Step::cargo(self.tree).args(["test", "--locked", "--no-run"]).run()?;
        toolchain.map_or(Ok(()), Background::finish)
    }

    /// Runs the native tests. All test programs share one throwaway database cluster, in which each
    /// test has its own database.
    ///
    /// The tests mostly wait, and the optimizer of the browser files uses a single core. So both
    /// run at the same time, and the tests have priority. For the same reason, more tests run at a
    /// time than there are cores.
    fn native_tests(&mut self) -> anyhow::Result<()> {
        if self.includes(Part::Webassembly) {
            let xtask = env::current_exe().context("the path of this program")?;
            let site = Step::new(self.tree, "nice")
                .args(["-n", "10"])
                .arg(xtask)
                .arg("site")
                .env(tree::MANIFEST_DIR, self.tree.path("xtask"));
            self.site = Some(site.start(self.tree.target().join("site.log"))?);
        }
        let tests = ["run", "--", "cargo", "test", "--locked", "--no-fail-fast"];
        leftover_processes::fail_on_leftovers(|| {
            Step::new(self.tree, self.tree.target().join("debug/testdb"))
                .args(tests)
                .env("RUST_TEST_THREADS", tests_at_a_time().to_string())
                .env("TMPDIR", temporary_folder())
                .run()
        })
    }

    fn webassembly(&mut self) -> anyhow::Result<()> {
        match self.site.take() {
            Some(site) => site.finish(),
            None => site::build(self.tree),
        }
    }
}

/// Checks that passed without running. The output of passing tests is hidden, so the summary lists
/// them.
fn skipped(tree: &Tree, ran: &Times) -> Vec<String> {
    let mut skipped = Vec::new();
    if ran.0.contains_key(&Part::Lint) {
        skipped.extend(lint::skipped(tree).into_iter().map(Some));
    }
    if ran.0.contains_key(&Part::Native) {
        let corpus = env::var_os("GANTRY_CORPUS")
            .map_or_else(|| tree.path("../shared/corpus"), PathBuf::from);
        skipped.extend([
            corpus_skipped(&corpus),
            mount_namespace_skipped("unshare"),
            systemd_skipped("systemd-analyze"),
        ]);
    }
    if ran.0.contains_key(&Part::Browser) {
        let chromium = env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
        skipped
            .push(screenshots_skipped(&chromium, &tree.path("end2end/screenshots/chromium.txt")));
    }
    skipped.into_iter().flatten().collect()
}

/// If another major version of Chromium drew the screenshots, they are not compared.
fn screenshots_skipped(chromium: &str, version_file: &Path) -> Option<String> {
    let expected_version = fs::read_to_string(version_file).unwrap_or_default();
    let version_output = Command::new(chromium).arg("--version").output();
    let version_output = version_output.map_or_else(
        |error| error.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    // "Chromium 148.0.1.2 built on Debian": the first word that begins with a digit.
    let version = version_output
        .split_whitespace()
        .find(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
    let major = version.and_then(|version| version.split('.').next());
    (major != Some(expected_version.trim())).then(|| {
        format!(
            "skipped: screenshots were not compared ({chromium}: {}; baselines in \
             end2end/screenshots are of Chromium {})",
            version_output.trim(),
            expected_version.trim()
        )
    })
}

/// Without the corpus of other systems' files, its tests pass without running.
fn corpus_skipped(corpus: &Path) -> Option<String> {
    let files = corpus.join("opencrowbar");
    (!files.is_dir()).then(|| {
        format!(
            "skipped: the import of other systems' barclamps was not tested ({} does not exist; \
             set GANTRY_CORPUS to the folder)",
            files.display()
        )
    })
}

/// Without systemd-analyze, the packaged units are not verified.
fn systemd_skipped(analyze: &str) -> Option<String> {
    let error = Command::new(analyze).arg("--version").output().err()?;
    Some(format!(
        "skipped: the packaged systemd units were not verified ({analyze}: {error}; install \
         Debian's systemd)"
    ))
}

/// The test of a full disk passes without running if the system does not allow mounting a small
/// disk (crates/cli/tests/faults/namespace.rs). Another test simulates the full disk with a file
/// size limit and always runs. The chaos test uses the same simulation then.
fn mount_namespace_skipped(unshare: &str) -> Option<String> {
    let root = nix::unistd::geteuid().is_root();
    let user: &[&str] = if root { &[] } else { &["--user", "--map-current-user", "--keep-caps"] };
    let result = Command::new(unshare)
        .args(user)
        .args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    let reason = match result {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "skipped: the test with a full disk; a file size limit replaced it ({unshare}: {reason}; \
         it needs util-linux and a system that allows mount namespaces)"
    ))
}

/// Time since `make` began. Compiling this program is part of `Tools`.
fn time_since_make_began() -> Duration {
    let start = env::var("GANTRY_MAKE_BEGAN")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .map(Duration::from_secs);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    start.map_or(Duration::ZERO, |start| now.saturating_sub(start))
}

fn tools(tree: &Tree) -> anyhow::Result<()> {
    Step::new(tree, tree.path("scripts/setup")).args(["test"]).run()
}

/// The number of native tests that run at the same time.
fn tests_at_a_time() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get() + 1)
}

/// The folder for temporary files of the tests: the one of the user (`TMPDIR`), or one in memory if
/// it is large enough. Each test database has 300 files. Creating and deleting them takes 60 ms in
/// memory, and 400 ms on a disk.
fn temporary_folder() -> PathBuf {
    let in_memory = Path::new("/dev/shm");
    if env::var_os("TMPDIR").is_none() && suits_tests(in_memory) {
        return in_memory.to_path_buf();
    }
    env::temp_dir()
}

/// Whether a folder has space for the files of the tests, and lets them run programs there.
fn suits_tests(folder: &Path) -> bool {
    let Ok(file_system) = statvfs(folder) else {
        return false;
    };
    let available = file_system.blocks_available() * file_system.fragment_size();
    available >= TEMPORARY_BYTES && !file_system.flags().contains(FsFlags::ST_NOEXEC)
}

/// Runs the tests in `end2end`, some files at the same time. Each starts complete Gantry instances
/// and mostly waits for them.
fn browser(tree: &Tree) -> anyhow::Result<()> {
    let tests = browser_test_files(tree)?;
    let programs = Programs::build(tree)?;
    let run = Step::new(tree, "node")
        .args(["--test", "--test-timeout=600000", "--test-reporter=spec"])
        .arg(format!("--test-concurrency={BROWSER_TESTS_AT_A_TIME}"))
        .args(tests)
        .env("TMPDIR", temporary_folder())
        .env("GANTRY_BIN", programs.without_site)
        .env("GANTRY_SITE", tree.site())
        .env("GANTRY_ONE_FILE", programs.one_file);
    leftover_processes::fail_on_leftovers(|| run.run())
}

/// The programs that the browser tests start.
struct Programs {
    /// The development build, which reads the site from a folder.
    without_site: PathBuf,
    /// Has the site embedded, as after `make release` but without optimization.
    one_file: PathBuf,
}

impl Programs {
    /// Builds the program with its site, after it has copied the one without.
    fn build(tree: &Tree) -> anyhow::Result<Self> {
        let built = tree.target().join("debug/gantry");
        let folder = tree.target().join("end2end");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let without_site = folder.join("gantry");
        Step::cargo(tree).args(["build", "--locked"]).run()?;
        fs::copy(&built, &without_site).with_context(|| without_site.display().to_string())?;
        let build_args = ["build", "--locked", "--features", "cli/embedded-site"];
        Step::cargo(tree).args(build_args).env("GANTRY_EMBEDDED_SITE", tree.site()).run()?;
        Ok(Self { without_site, one_file: built })
    }
}

fn browser_test_files(tree: &Tree) -> anyhow::Result<Vec<String>> {
    let mut tests = Vec::new();
    for entry in fs::read_dir(tree.path("end2end")).context("end2end")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.mjs") {
            tests.push(format!("end2end/{name}"));
        }
    }
    // Node would report a run without tests as a success.
    if tests.is_empty() {
        bail!("no browser tests in end2end");
    }
    tests.sort();
    Ok(tests)
}

/// The duration of each part.
#[derive(Default)]
struct Times(BTreeMap<Part, Duration>);

impl Times {
    fn add(&mut self, part: Part, duration: Duration) {
        *self.0.entry(part).or_default() += duration;
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12} {:>8} {:>8}", "part", "took", "budget")?;
        for (part, duration) in &self.0 {
            let mark = if *duration > part.budget() { "  over its budget" } else { "" };
            writeln!(
                f,
                "{part:<12} {:>8} {:>8}{mark}",
                minutes(*duration),
                minutes(part.budget())
            )?;
        }
        write!(f, "{:<12} {:>8}", "together", minutes(self.0.values().sum()))
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn stages_of_a_part_share_its_budget() {
        let mut times = Times::default();
        times.add(Part::Lint, Duration::from_secs(301));
        times.add(Part::Native, Duration::from_secs(61));
        times.add(Part::Lint, Duration::from_secs(300));

        let table = times.to_string();

        assert!(table.contains("lint            10:01    10:00  over its budget"), "{table}");
        assert!(table.contains("native           1:01    30:00\n"), "{table}");
        assert!(table.contains("together        11:02"), "{table}");
    }

    #[test]
    fn skipped_corpus_tests_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let skipped = corpus_skipped(folder.path()).expect("a line");
        assert!(
            skipped.starts_with("skipped: the import of other")
                && skipped.contains("GANTRY_CORPUS"),
            "{skipped}"
        );
        fs::create_dir(folder.path().join("opencrowbar")).expect("a folder");
        assert_eq!(corpus_skipped(folder.path()), None);
    }

    #[test]
    fn missing_folder_does_not_suit_tests() {
        assert!(!suits_tests(Path::new("/no/such/folder")));
        // The kernel's own folder has no space for files.
        assert!(!suits_tests(Path::new("/proc")));
    }

    #[test]
    fn skipped_full_disk_test_is_reported() {
        let skipped = mount_namespace_skipped("/no/such/unshare").expect("a line");
        assert!(skipped.starts_with("skipped: the test with a full disk"), "{skipped}");
        assert_eq!(mount_namespace_skipped("true"), None);
    }

    #[test]
    fn skipped_systemd_check_is_reported() {
        let skipped = systemd_skipped("/no/such/systemd-analyze").expect("a line");
        assert!(
            skipped.starts_with("skipped: the packaged systemd units were not verified"),
            "{skipped}"
        );
        assert_eq!(systemd_skipped("true"), None);
    }

    #[test]
    fn skipped_screenshot_comparison_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let version_file = folder.path().join("chromium.txt");
        fs::write(&version_file, "148\n").expect("a file");
        let browser = |version: &str| {
            let program = folder.path().join(format!("chromium-{version}"));
            fs::write(&program, format!("#!/bin/sh\necho Chromium {version} built on Debian\n"))
                .expect("a file");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
                .expect("a file of the test");
            screenshots_skipped(&program.to_string_lossy(), &version_file)
        };
        assert_eq!(browser("148.0.1.2"), None);
        let skipped = browser("149.0.1.2").expect("a line");
        assert!(skipped.starts_with("skipped: screenshots were not compared"), "{skipped}");
        assert!(
            skipped.contains("Chromium 149.0.1.2") && skipped.ends_with("are of Chromium 148)"),
            "{skipped}"
        );
        assert!(screenshots_skipped("/no/such/chromium", &version_file).is_some());
    }

    #[test]
    fn missing_browser_tests_fail_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("end2end")).expect("end2end");
        let tree = Tree::at(folder.path());
        assert!(browser_test_files(&tree).is_err());

        for name in ["b.test.mjs", "a.test.mjs", "lib.mjs"] {
            fs::write(folder.path().join("end2end").join(name), "").expect("a file");
        }
        assert_eq!(
            browser_test_files(&tree).expect("tests"),
            ["end2end/a.test.mjs", "end2end/b.test.mjs"]
        );
    }
}
