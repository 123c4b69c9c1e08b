//! The command `gantry catalog check`: output and exit codes. 0: the folder can be imported,
//! possibly with warnings. 1: it can't, or it is empty. 2: wrong usage, or it can't be read (with
//! `--json`, reported as JSON too).

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const GOOD: &str = "barclamp: {name: demo, version: 2, description: a demo}
jigs:
  - {name: mine, class: noop}
roles:
  - name: base
    jig: mine
    flags: [implicit]
  - name: app
    jig: noop
    requires: [base]
    attribs:
      - {name: app-port, map: app/port, default: 80}
";

fn check(folder: &Path, more: &[&str]) -> Output {
    checking(folder, more).output().unwrap()
}

fn checking(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    command.args(["catalog", "check"]).arg(folder).args(more).env("GANTRY_LOG", "error");
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

fn severities(reported: &Value) -> Vec<&str> {
    reported["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["severity"].as_str().unwrap())
        .collect()
}

#[test]
fn importable_catalog_passes_with_counts() {
    let good = folder(&[("demo/demo.yml", GOOD.as_bytes()), ("demo/notes.txt", b"not ours")]);
    let output = check(good.path(), &["--json"]);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    let answer = json_of(&output);
    assert_eq!(answer["counts"], json!({"barclamps": 1, "roles": 2, "jigs": 1, "attributes": 1}));
    assert_eq!((severities(&answer), &answer["removed_parts"]), (vec![], &json!([])));
    let output = check(good.path(), &[]);
    assert!(
        output.status.success() && out(&output).starts_with("demo 2: 2 roles, "),
        "{}",
        out(&output)
    );
}

#[test]
fn warnings_are_reported_and_pass() {
    let odd = folder(&[("demo.yml", GOOD.replace("requires", "require").as_bytes())]);
    let output = check(odd.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains(
            "demo.yml:10:5: warning: Unknown key of role \"app\": \"require\". \
            Did you mean \"requires\"?"
        ),
        "{}",
        out(&output)
    );
    let json = json_of(&check(odd.path(), &["--json"]));
    assert_eq!((severities(&json), &json["counts"]["roles"]), (vec!["warning"], &Value::from(2)));
    let finding = &json["findings"][0];
    assert_eq!((finding["line"].as_u64(), finding["column"].as_u64()), (Some(10), Some(5)));
}

#[test]
fn errors_are_reported_with_position_and_fail() {
    let bomb: String = ('b'..='h').zip('a'..).fold(
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n".into(),
        |bomb, (name, of)| {
            let tens = vec![format!("*{of}"); 10].join(", ");
            format!("{bomb}{name}: &{name} [{tens}]\n")
        },
    );
    let deep = |levels: usize| format!("deep: {}{}", "[".repeat(levels), "]".repeat(levels));
    let head = "barclamp: {name: demo, version: 1}\n";
    let latin1 =
        [head.as_bytes(), b"roles:\n  - {name: app, jig: noop, description: f\xfcr}\n"].concat();
    for (case, bytes, text) in [
        ("broken", format!("{head}roles: [").into_bytes(), "Invalid YAML"),
        ("bomb", format!("{head}{bomb}").into_bytes(), "With its aliases expanded"),
        ("deep", format!("{head}{}", deep(100)).into_bytes(), "nested deeper"),
        ("abyss", format!("{head}{}", deep(5_000)).into_bytes(), "Invalid YAML: recursion limit"),
        ("latin1", latin1, "is not valid UTF-8"),
        ("binary", vec![0, 159, 146, 150], "is not valid UTF-8"),
    ] {
        let bad = folder(&[("demo.yml", &bytes), ("good/good.yml", GOOD.as_bytes())]);
        let output = check(bad.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{case}");
        assert!(
            out(&output).contains("demo.yml:") && out(&output).contains(text),
            "{case}: {}",
            out(&output)
        );
        assert!(err(&output).contains("cannot be imported"), "{case}: {}", err(&output));
        let output = check(bad.path(), &["--json"]);
        let json = json_of(&output);
        assert_eq!(output.status.code(), Some(1), "{case}");
        assert!(severities(&json).contains(&"error"), "{case}: {json}");
        assert_eq!(
            json["counts"]["barclamps"], 0,
            "{case}: nothing is imported if there are errors"
        );
    }
}

#[test]
fn missing_catalog_is_reported() {
    let empty = folder(&[("notes.txt", b"nothing")]);
    let file = empty.path().join("notes.txt");
    let nowhere = empty.path().join("nowhere");
    for (path, code, text) in [
        (empty.path(), 1, "has no barclamp file"),
        (&file, 2, "Cannot read"),
        (&nowhere, 2, "Cannot read"),
    ] {
        let output = check(path, &[]);
        assert_eq!(
            (output.status.code(), out(&output).as_str()),
            (Some(code), ""),
            "{}",
            path.display()
        );
        assert!(
            err(&output).starts_with("gantry: ") && err(&output).contains(text),
            "{}",
            err(&output)
        );
        let output = check(path, &["--json"]);
        let json = json_of(&output);
        assert_eq!(output.status.code(), Some(code), "{}", path.display());
        assert_eq!(
            (severities(&json), &json["counts"]["barclamps"]),
            (vec!["error"], &Value::from(0)),
            "{json}"
        );
        let finding = &json["findings"][0];
        assert_eq!(finding["file"], path.display().to_string());
        assert!(finding["message"].as_str().unwrap().contains(text), "{json}");
        assert!(err(&output).contains(text), "{}", err(&output));
    }
    let good = folder(&[("demo.yml", GOOD.as_bytes())]);
    let json = json_of(&check(good.path(), &["--since", nowhere.to_str().unwrap(), "--json"]));
    assert_eq!(json["findings"][0]["file"], nowhere.display().to_string());
}

#[cfg(unix)]
#[test]
fn unreadable_folder_is_reported_as_json() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    /// A user id that owns no files.
    const NOBODY: u32 = 65534;
    let shut = folder(&[("demo.yml", GOOD.as_bytes()), ("inner/demo.yml", GOOD.as_bytes())]);
    let inner = shut.path().join("inner");
    fs::set_permissions(shut.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = checking(shut.path(), &["--json"]);
    // Root may read everything, so run the command as another user.
    if fs::read_dir(&inner).is_ok() {
        command.gid(NOBODY).uid(NOBODY);
    }
    let result = command.output();
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
    let output = match result {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: needs a regular user, and only root can start this program");
            return;
        }
        result => result.unwrap(),
    };
    assert_eq!((output.status.code(), severities(&json_of(&output))), (Some(2), vec!["error"]));
    assert!(
        json_of(&output)["findings"][0]["message"].as_str().unwrap().contains("inner"),
        "{}",
        json_of(&output)
    );
}

#[test]
fn oversized_file_is_not_read() {
    let huge = folder(&[("demo.yml", GOOD.as_bytes())]);
    // A sparse file: it uses no disk space, but reading it would exhaust the memory.
    File::create(huge.path().join("huge.yml")).unwrap().set_len(1 << 42).unwrap();
    let output = check(huge.path(), &[]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""));
    assert!(
        err(&output).contains("bytes in total") && err(&output).contains("huge.yml"),
        "{}",
        err(&output)
    );
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let looped = folder(&[("demo/demo.yml", GOOD.as_bytes())]);
    let outside = folder(&[("secret.yml", b"barclamp: [")]);
    std::os::unix::fs::symlink(looped.path(), looped.path().join("demo/again")).unwrap();
    std::os::unix::fs::symlink("itself", looped.path().join("demo/itself")).unwrap();
    std::os::unix::fs::symlink(outside.path(), looped.path().join("outside")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.yml"), looped.path().join("linked.yml"))
        .unwrap();
    let output = check(looped.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(json_of(&output)["counts"]["barclamps"], 1);
}

#[test]
fn removal_since_older_folder_is_reported() {
    let before = folder(&[("demo.yml", GOOD.replace("version: 2", "version: 1").as_bytes())]);
    let without =
        GOOD[..GOOD.find("    attribs").unwrap()].replace("requires: [base]", "requires: []");
    let now = folder(&[("demo.yml", without.as_bytes())]);
    let since = before.path().to_str().unwrap();
    let output = check(now.path(), &["--since", since, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let json = json_of(&output);
    let lines: Vec<&str> = json["removed_parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert!(lines.iter().any(|line| line.contains("app-port")), "{lines:?}");
    let output = check(now.path(), &["--since", since]);
    assert!(out(&output).contains("app-port"), "{}", out(&output));

    let broken = folder(&[("demo.yml", b"barclamp: [")]);
    let output = check(now.path(), &["--since", broken.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("Check that folder first"), "{}", err(&output));
}

#[test]
fn changed_content_of_known_version_fails() {
    let before = folder(&[("demo.yml", GOOD.as_bytes())]);
    let now = folder(&[("demo.yml", GOOD.replace("requires: [base]", "requires: []").as_bytes())]);
    let output = check(now.path(), &["--since", before.path().to_str().unwrap(), "--json"]);
    let json = json_of(&output);
    assert_eq!(
        (output.status.code(), severities(&json).last().copied()),
        (Some(1), Some("error")),
        "{json}"
    );
    let last = json["findings"].as_array().unwrap().last().unwrap();
    assert!(last["message"].as_str().unwrap().contains("give it a new version"), "{json}");
    assert_eq!(last["file"], "demo.yml");
    let same = check(before.path(), &["--since", before.path().to_str().unwrap()]);
    assert_eq!(same.status.code(), Some(0), "{}", err(&same));
}

#[cfg(unix)]
#[test]
fn symbolic_link_is_reported_and_skipped() {
    let good = folder(&[("demo.yml", GOOD.as_bytes())]);
    std::os::unix::fs::symlink("demo.yml", good.path().join("linked.yml")).unwrap();
    let output = check(good.path(), &["--json"]);
    let json = json_of(&output);
    assert_eq!((output.status.code(), severities(&json)), (Some(0), vec!["warning"]), "{json}");
    assert_eq!(json["findings"][0]["file"], "linked.yml");
}

#[test]
fn missing_argument_is_a_usage_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    let output = command.args(["catalog", "check"]).output().unwrap();
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("<FOLDER>"), "{}", err(&output));
}

/// The counts in the corpus's README: the last column of its table, such as `74 + 3 in the
/// template`.
fn counted_by_its_readme(corpus: &Path) -> BTreeMap<String, u64> {
    let readme = fs::read_to_string(corpus.join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let parts = cells
            .last()?
            .split('+')
            .map(|part| part.split_whitespace().next()?.parse::<u64>().ok());
        Some((cells[0].to_owned(), parts.sum::<Option<u64>>()?))
    };
    rows.filter_map(row).collect()
}

/// Other systems' files, which are not in this repository. Each folder of barclamps imports
/// unchanged, with warnings. The counts are fixed, so that a change of the importer is noticed. The
/// corpus and its README don't change.
#[test]
fn corpus_imports_with_known_counts() {
    let default_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let corpus =
        std::env::var_os("GANTRY_CORPUS").map_or(default_folder, PathBuf::from).join("opencrowbar");
    let Ok(entries) = fs::read_dir(&corpus) else {
        eprintln!("skipped: no corpus at {} (set GANTRY_CORPUS)", corpus.display());
        return;
    };
    let folders = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && !path.ends_with("worked"));
    let (mut found, mut roles) = (BTreeMap::new(), BTreeMap::new());
    for folder in folders {
        let output = check(&folder, &["--json"]);
        let answer = json_of(&output);
        assert_eq!(output.status.code(), Some(0), "{}: {}", folder.display(), err(&output));
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let [errors, warnings, notes] = ["error", "warning", "note"].map(|severity| {
            severities(&answer).into_iter().filter(|other| *other == severity).count()
        });
        let findings = json!({"error": errors, "warning": warnings, "note": notes});
        roles.insert(name.clone(), answer["counts"]["roles"].as_u64().unwrap());
        found.insert(name, json!({"counts": answer["counts"], "findings": findings}));
    }
    assert_eq!(
        roles,
        counted_by_its_readme(&corpus),
        "the number of imported roles differs from the README of {}",
        corpus.display()
    );
    let counted = |barclamps, roles, jigs, attributes, warnings, notes| {
        json!({
            "counts": {
                "barclamps": barclamps,
                "roles": roles,
                "jigs": jigs,
                "attributes": attributes
            },
            "findings": {"error": 0, "warning": warnings, "note": notes},
        })
    };
    let expected = json!({
        "anvil-2014": counted(10, 36, 6, 45, 1, 15),
        "opencrowbar-2015": counted(18, 64, 7, 130, 4, 18),
        "digitalrebar-2018": counted(25, 77, 9, 194, 7, 15),
        "workloads-2017": counted(3, 12, 0, 50, 4, 22),
        "hadoop-2015": counted(1, 1, 0, 0, 0, 0),
    });
    assert_eq!(json!(found), expected, "{}", corpus.display());
}
