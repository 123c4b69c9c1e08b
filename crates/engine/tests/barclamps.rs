//! Tests the findings for invalid barclamp files, the content of valid ones, and robustness against
//! any input.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use engine::canonical::ObjectKind;
use engine::catalog::read::{
    Draft, Finding, Findings, Import, MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_FILE_BYTES, MAX_FILES,
    MAX_FINDINGS, MAX_SCRIPTS_BYTES, Severity, Source, import, link, read,
};
use engine::catalog::version::is_equal_except_jigs;
use engine::catalog::{
    Attrib, Catalog, Check, ConcurrencyGroup, ConcurrencyGroupMode, JigClass, Join, JoinAfter,
    JoinNeed, MAX_ROLES, MAX_SCRIPT_BYTES, Needs, OnChange, OnError, OnFailure, OnInput, OnReturn,
    Role, RunLocation, RunPolicy,
};
use engine::data::MAX_BYTES;
use engine::ids::{ActionName, ConcurrencyGroupName};
use proptest::prelude::*;
use serde_json::json;

type Files = BTreeMap<String, Vec<u8>>;

fn files(paths: &[(&str, &str)]) -> Files {
    paths.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
}

fn import_one(path: &str, bytes: &[u8], files: &Files) -> Result<Import, Findings> {
    import(&[Source { path, bytes, folder: "", files }], &Catalog::default())
}

fn import_text(text: &str) -> Result<Import, Findings> {
    import_one("demo.yml", text.as_bytes(), &Files::new())
}

/// Imports several files, each as `(path, text)`, without scripts.
fn import_set(texts: &[(&str, &str)], base: &Catalog) -> Result<Import, Findings> {
    let none = Files::new();
    let sources: Vec<Source<'_>> = texts
        .iter()
        .map(|(path, text)| Source { path, bytes: text.as_bytes(), folder: "", files: &none })
        .collect();
    import(&sources, base)
}

fn catalog(import: &Import) -> Catalog {
    let mut catalog = Catalog::default();
    for object in &import.objects {
        catalog.add(object).expect("a readable object");
    }
    catalog
}

fn complaint(result: Result<Import, Findings>) -> String {
    result.expect_err("an error").to_string()
}

fn role<'i>(import: &'i Import, name: &str) -> &'i Role {
    import
        .barclamps
        .iter()
        .flat_map(|entry| &entry.roles)
        .find(|role| role.name.as_str() == name)
        .expect(name)
}

/// Each file in `tests/barclamps` has a flaw. The snapshot next to it has the resulting findings.
#[test]
fn flaws_are_reported_with_position() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/barclamps");
    let scripts = files(&[
        ("scripts/app/10-start", "#!/bin/sh\n"),
        ("scripts/app/20-check", "#!/bin/sh\n"),
        ("scripts/bass/10-start", "#!/bin/sh\n"),
    ]);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the folder of flawed files")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 25, "{paths:?}");
    for path in paths {
        let file = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let stem = file.trim_end_matches(".yml");
        let bytes = fs::read(&path).expect("a readable file");
        let no_scripts = Files::new();
        let files = match stem {
            "missing-script" => &scripts,
            _ => &no_scripts,
        };
        let text = match import_one(file, &bytes, files) {
            Ok(import) => format!("imported\n{}", import.findings),
            Err(findings) => format!("refused\n{findings}"),
        };
        for line in text.lines().skip(1) {
            assert!(
                line.starts_with(file) || line.starts_with("scripts/"),
                "{line:?} does not begin with its file"
            );
        }
        insta::assert_snapshot!(stem, text);
    }
}

/// The book prints the hash of its example, so that readers can compare.
#[test]
fn example_of_the_book_has_the_printed_hash() {
    let book = include_str!("../../../docs/barclamps.md");
    let mut blocks = book.split("```").skip(1).step_by(2);
    let mut next = |language: &str| blocks.find_map(|block| block.strip_prefix(language));
    let declaration = next("yaml\n").expect("hello.yml");
    let [write, read, check] = [(); 3].map(|()| next("sh\n").expect("a script"));
    let scripts = files(&[("scripts/motd/10-write", write), ("scripts/motd-check/10-read", read)]);
    let import = import_one("hello.yml", declaration.as_bytes(), &scripts).expect("no error");
    let hash = import.barclamps[0].hash.short();
    assert!(check.contains(&format!("# hello 1: 2 roles, {hash}")), "{hash}, but {check}");
    assert_eq!(book.matches(&hash).count(), 3, "all places in the book have {hash}");
}

#[test]
fn invisible_characters_in_scripts_are_noted() {
    let text = "barclamp: {name: demo, version: 1}\nroles: [{name: app, jig: script}]\n";
    let reported = |script: &str| {
        let files = files(&[("scripts/app/10-run", script)]);
        let import =
            import_one("demo.yml", text.as_bytes(), &files).expect("a warning is not an error");
        import.findings.to_string()
    };
    assert_eq!(reported("#!/bin/sh\n# größer: 漢\n\tprintf '😀'\r\n"), "");
    let advice = ". Before you approve it, read it with a tool that shows such characters, such \
                  as cat -A";
    let which = "The script has the character U+202E, which is invisible or misleading";
    assert_eq!(
        reported("#!/bin/sh\n# nothing \u{202e}\nrm -r /\n"),
        format!("scripts/app/10-run:2:11: warning: {which}{advice}")
    );
    let lines: String = (0..8).map(|_| "echo \u{202e}\u{1b}\n").collect();
    assert_eq!(
        reported(&format!("#!/bin/sh\n{lines}")),
        format!(
            "scripts/app/10-run:2:6: warning: {which}. It has 16 such characters, in lines 2, 3, \
             4, 5, 6 and more{advice}"
        )
    );
}

#[test]
fn deceptive_paths_are_rejected_and_shown_escaped() {
    let text = "barclamp: {name: demo, version: 1}\nroles: [{name: app, jig: script}]\n";
    let message = complaint(import_one(
        "ym\u{202e}l.yml",
        text.as_bytes(),
        &files(&[("scripts/app/10-run", "#!/bin/sh\n")]),
    ));
    assert!(
        message
            .contains("ym<U+202E>l.yml:1:1: error: The path of the file has the character U+202E"),
        "{message}"
    );
    let hidden = files(&[
        ("scripts/app/10-run", "#!/bin/sh\n"),
        ("scripts/ap\u{200b}p/10-run", "#!/bin/sh\n"),
    ]);
    let message = complaint(import_one("demo.yml", text.as_bytes(), &hidden));
    assert!(
        message.contains("scripts/ap<U+200B>p/10-run:1:1: error: The path of the file has"),
        "{message}"
    );
}

#[test]
fn all_role_keys_are_imported() {
    let text = r#"
barclamp: {name: demo, version: 2.0, display: Demo, description: All of it, license: Apache-2.0}
jigs:
  - {name: ssh, class: "BarclampCrowbar::ScriptJig", description: runs, implementor: base}
attribs:
  - {name: node-tags, map: tags, default: []}
roles:
  - name: base
    jig: noop
    flags: [implicit]
    attribs:
      - {name: base-dir, map: base/dir, default: /srv, schema: {type: str, required: true}}
  - name: app
    jig: ssh
    description: the application
    flags: [milestone, destructive]
    requires: [dns]
    provides: [web]
    conflicts: [other]
    preceeds: [last]
    wants-attribs: [base-dir, {name: node-tags, at: node}]
    template: {app: {port: 8080}}
    metadata: {owner: ada}
    documentation: long
    concurrency-group: {name: doors, max-running: 1, mode: chunk}
    retries: 3
    backoff: "90s"
    timeout: 5m
    needs: any
    location: worker
    exclusive: false
    on-error: node
    on-change: keep
    on-input: report
    reads: [app/port, dns]
    on-return: never
    join: {need: 2, after: end}
    priority: -5
    scripts: [shared/hello, 20-start]
  - {name: named, jig: noop, provides: [dns]}
  - {name: other, jig: noop}
  - {name: last, jig: noop}
"#;
    let files = files(&[
        ("scripts/shared/hello", "#!/bin/sh\necho hello\n"),
        ("scripts/app/10-unused", "#!/bin/sh\nexit 1\n"),
        ("scripts/app/20-start", "#!/bin/sh\n"),
    ]);
    let import = import_one("demo.yml", text.as_bytes(), &files).expect("a valid file");
    let is_virtual = |finding: &Finding| {
        finding.severity == Severity::Note
            && finding.problem_and_suggestion().contains("a virtual name")
    };
    assert!(import.findings.0.iter().all(is_virtual), "{}", import.findings);
    let [entry] = import.barclamps.as_slice() else { panic!("expected one barclamp") };
    assert_eq!(entry.barclamp.version, "2.0");
    assert_eq!(entry.barclamp.metadata, json!({"license": "Apache-2.0"}));
    assert_eq!(entry.barclamp.attribs[0].map, ["tags"]);
    let role = role(&import, "app");
    assert_eq!(role.jig_class, JigClass::Script);
    let requires: Vec<&str> = role.requires.iter().map(|name| name.as_str()).collect();
    assert_eq!(requires, ["dns", "base"], "the client role of the jig is also required");
    assert!(role.flags.milestone && role.flags.destructive && !role.flags.implicit);
    assert_eq!(role.template, json!({"app": {"port": 8080}}));
    assert_eq!(role.metadata, json!({"owner": "ada", "documentation": "long"}));
    assert_eq!(
        role.run,
        RunPolicy {
            needs: Needs::Any,
            location: RunLocation::Worker,
            exclusive: false,
            concurrency_group: Some(ConcurrencyGroup {
                name: ConcurrencyGroupName::parse("doors").expect("a name"),
                max_running: 1,
                mode: ConcurrencyGroupMode::Chunk
            }),
            on_error: OnError::Node,
            on_change: OnChange::Keep,
            on_input: OnInput::Report,
            reads: vec![vec!["app".into(), "port".into()], vec!["dns".into()]],
            on_return: OnReturn::Never,
            retries: 3,
            backoff: 90,
            timeout: 300,
            join: Join { need: JoinNeed::AtLeast(2), after: JoinAfter::End },
            priority: -5,
            check: None,
        }
    );
    let names: Vec<&str> = role.scripts.iter().map(|script| script.name.as_str()).collect();
    assert_eq!(names, ["hello", "20-start"]);

    // Two scripts, five roles and one barclamp, each under the hash that the object above it
    // contains.
    let kinds = |kind| import.objects.iter().filter(move |object| object.kind == kind).count();
    assert_eq!(
        (kinds(ObjectKind::Script), kinds(ObjectKind::Role), kinds(ObjectKind::Barclamp)),
        (2, 5, 1)
    );
    let catalog = catalog(&import);
    let barclamp = catalog.barclamp(entry.hash).expect("stored");
    for (name, hash) in &barclamp.roles {
        assert_eq!(catalog.role(*hash).expect("stored").name, *name);
    }
    for script in &role.scripts {
        assert!(import.objects.iter().any(|object| object.hash == script.hash));
    }
}

#[test]
fn scripts_are_ordered_without_leftover_files() {
    let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script}]\n";
    let files = files(&[
        ("scripts/app/20-b", "#!/bin/sh\n"),
        ("scripts/app/10-a", "#!/bin/sh\ntrue\n"),
        ("scripts/app/.10-a.swp", "x"),
        ("scripts/app/10-a~", "x"),
        ("scripts/app/lib/part", "x"),
        ("README", "x"),
    ]);
    let import = import_one("demo/demo.yml", text.as_bytes(), &files).expect("a valid folder");
    let names: Vec<&str> =
        import.barclamps[0].roles[0].scripts.iter().map(|script| script.name.as_str()).collect();
    assert_eq!(names, ["10-a", "20-b"]);
    assert!(import.findings.0.is_empty(), "{}", import.findings);
}

#[test]
fn remove_scripts_are_in_their_folder() {
    let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script, actions: [run, remove]}]\n";
    let all = files(&[
        ("scripts/app/10-a", "#!/bin/sh\n"),
        ("scripts/app/remove/20-b", "#!/bin/sh\ntrue\n"),
        ("scripts/app/remove/10-a", "#!/bin/sh\n"),
        ("scripts/app/remove/lib/part", "x"),
    ]);
    let import = import_one("demo/demo.yml", text.as_bytes(), &all).expect("a valid folder");
    assert!(import.findings.0.is_empty(), "{}", import.findings);
    let role = role(&import, "app");
    let names = |action: ActionName| {
        role.scripts_of(&action).map(|script| script.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(ActionName::run()), ["10-a"]);
    assert_eq!(names(ActionName::remove()), ["remove/10-a", "remove/20-b"]);
    assert!(role.has(&ActionName::remove()));
    let scripts = import.objects.iter().filter(|object| object.kind == ObjectKind::Script);
    assert_eq!(scripts.count(), 2, "the folders have two different scripts");
}

#[test]
fn check_of_role_has_defaults_and_its_script() {
    let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script, check: {script: alive}}]\n";
    let all =
        files(&[("scripts/app/10-a", "#!/bin/sh\n"), ("scripts/app/alive", "#!/bin/sh\ntrue\n")]);
    let import = import_one("demo/demo.yml", text.as_bytes(), &all).expect("a valid folder");
    assert!(import.findings.0.is_empty(), "{}", import.findings);
    let role = role(&import, "app");
    let names = |action: ActionName| {
        role.scripts_of(&action).map(|script| script.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(ActionName::run()), ["10-a"], "a check is not a script of the run");
    assert_eq!(names(ActionName::check()), ["check/alive"]);
    assert_eq!(role.check().map(|(policy, _)| *policy), Some(Check::DEFAULT));
    assert!(!role.has(&ActionName::check()), "a check has no step of its own");
    assert!(import.objects.iter().any(|object| object.body == b"#!/bin/sh\ntrue\n"));

    let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script, check:
      {script: check/alive, interval: 1m, timeout: 60, failures: 5, on-failure: report}}]\n";
    let all =
        files(&[("scripts/app/10-a", "#!/bin/sh\n"), ("scripts/app/check/alive", "#!/bin/sh\n")]);
    let import = import_one("demo/demo.yml", text.as_bytes(), &all).expect("a valid folder");
    let role = self::role(&import, "app");
    let (policy, script) = role.check().expect("a check");
    let expected = Check { interval: 60, timeout: 60, failures: 5, on_failure: OnFailure::Report };
    assert_eq!((*policy, script.name.as_str()), (expected, "check/alive"));
    assert_eq!(serde_json::from_value::<Role>(json!(role)).expect("a role"), *role);
}

#[test]
fn invalid_checks_are_reported() {
    let files = files(&[("scripts/app/10-a", "#!/bin/sh\n"), ("scripts/app/alive", "#!/bin/sh\n")]);
    for (role, part) in [
        ("jig: script, check: alive", "Expected a map for the check of role \"app\""),
        (
            "jig: script, check: {interval: 60}",
            "The script of the check of role \"app\" is missing",
        ),
        ("jig: script, check: {script: alife}", "lists the script \"alife\", but neither"),
        (
            "jig: script, check: {script: alive, interval: 4}",
            "Key `interval` of the check of role \"app\" is \"4\". It must be a time from 5 to 86400",
        ),
        (
            "jig: script, check: {script: alive, interval: 20, timeout: 30}",
            "Key `timeout` of the check of role \"app\" is \"30\". It must be a time from 1 to 20",
        ),
        (
            "jig: script, check: {script: alive, interval: 1h, timeout: 301}",
            "It must be a time from 1 to 300",
        ),
        (
            "jig: script, check: {script: alive, failures: 0}",
            "Key `failures` of the check of role \"app\" must be a whole number from 1 to 100",
        ),
        (
            "jig: script, check: {script: alive, on-failure: ignore}",
            "Key `on-failure` of the check of role \"app\" is \"ignore\". It must be rerun or report",
        ),
        (
            "jig: test, check: {script: alive}",
            "Role \"app\" has a check, but its jig \"test\" runs no scripts",
        ),
    ] {
        let text =
            format!("barclamp: {{name: demo, version: '1'}}\nroles: [{{name: app, {role}}}]\n");
        let message = complaint(import_one("demo.yml", text.as_bytes(), &files));
        assert!(message.contains(part), "{part}\n{message}");
    }
}

#[test]
fn invalid_actions_are_reported() {
    let files = files(&[("scripts/app/10-a", "#!/bin/sh\n")]);
    for (role, part) in [
        (
            "name: app, jig: script, actions: [remove]",
            "Role \"app\" declares the action remove, which has no scripts. Add some to scripts/app/remove/",
        ),
        (
            "name: milestone, jig: noop, actions: [remove]",
            "Role \"milestone\" declares the action remove, but its jig \"noop\" runs nothing",
        ),
        (
            "name: typo, jig: test, actions: [remov]",
            "Key `actions` of role \"typo\" has \"remov\". It must be run or remove. Did you mean \"remove\"?",
        ),
    ] {
        let text = format!("barclamp: {{name: demo, version: '1'}}\nroles: [{{{role}}}]\n");
        let message = complaint(import_one("demo.yml", text.as_bytes(), &files));
        assert!(message.contains(part), "{part}\n{message}");
    }
    let undeclared = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script}]\n";
    let files = self::files(&[
        ("scripts/app/10-a", "#!/bin/sh\n"),
        ("scripts/app/remove/10-a", "#!/bin/sh\n"),
    ]);
    let import = import_one("demo.yml", undeclared.as_bytes(), &files).expect("warnings only");
    let warning =
        "does not declare the action remove, so the scripts in \"scripts/app/remove/\" never run";
    assert!(import.findings.to_string().contains(warning), "{}", import.findings);
}

/// Roles from before actions existed keep their content hash.
#[test]
fn role_without_actions_has_no_new_fields() {
    let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script}]\n";
    let files = files(&[("scripts/app/10-a", "#!/bin/sh\n")]);
    let import = import_one("demo.yml", text.as_bytes(), &files).expect("a valid file");
    let written = serde_json::to_value(role(&import, "app")).expect("JSON");
    assert!(written.get("actions").is_none() && written["scripts"][0].get("action").is_none());
}

#[test]
fn invalid_scripts_are_reported_in_their_file() {
    let text = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script}]\n";
    let files = files(&[
        ("scripts/app/10-dos", "#!/bin/sh\r\ntrue\r\n"),
        ("scripts/app/20 start", "#!/bin/sh\n"),
        ("scripts/app/30-bare", "true\n"),
        ("scripts/ap/10", "#!/bin/sh\n"),
    ]);
    let message = complaint(import_one("x/demo.yml", text.as_bytes(), &files));
    insta::assert_snapshot!(message);
}

#[test]
fn hashes_depend_on_scripts_and_jig_class() {
    let text = |class: &str| {
        format!(
            "barclamp: {{name: demo, version: '1'}}\njigs: [{{name: mine, class: {class}}}]\nroles: [{{name: app, jig: mine}}]\n"
        )
    };
    let hash = |text: &str, script: &str| {
        let files = files(&[("scripts/app/10", script)]);
        let import = import_one("demo.yml", text.as_bytes(), &files).expect("a valid file");
        import.barclamps[0].barclamp.roles.values().next().copied().expect("a role")
    };
    let first = hash(&text("script"), "#!/bin/sh\n");
    let commented = format!("# a comment\n{}", text("script"));
    assert_eq!(first, hash(&commented, "#!/bin/sh\n"));
    assert_ne!(first, hash(&text("script"), "#!/bin/sh\ntrue\n"));
    assert_ne!(first, hash(&text("noop"), "#!/bin/sh\n"));
}

#[test]
fn roles_may_be_defined_in_later_file() {
    let one =
        "barclamp: {name: one, version: '1'}\nroles: [{name: app, jig: quiet, requires: [base]}]\n";
    let two = "barclamp: {name: two, version: '1'}\njigs: [{name: quiet, class: noop}]\nroles: [{name: base, jig: quiet}]\n";
    for set in [[("1.yml", one), ("2.yml", two)], [("2.yml", two), ("1.yml", one)]] {
        let import = import_set(&set, &Catalog::default()).expect("a valid set");
        assert_eq!(role(&import, "app").jig_class, JigClass::Noop);
        let names: Vec<&str> = import.barclamps.iter().map(|b| b.barclamp.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
    }
    // Alone, each file lacks what the other declares. The catalog satisfies references, except for
    // how a step runs.
    assert!(
        complaint(import_set(&[("1.yml", one)], &Catalog::default()))
            .contains("no barclamp declares")
    );
    let base = catalog(
        &import_set(&[("2.yml", two)], &Catalog::default()).expect("valid without the other file"),
    );
    assert_eq!(
        complaint(import_set(&[("1.yml", one)], &base)),
        r#"1.yml:2:26: error: Role "app" uses the jig "quiet", which only the catalog declares. Declare it here too, with class: noop"#
    );
    let whole = one.replace("roles:", "jigs: [{name: quiet, class: noop}]\nroles:");
    import_set(&[("1.yml", &whole)], &base).expect("valid with its base");
}

/// The same files give the same content, regardless of earlier imports and of their order.
#[test]
fn content_depends_on_own_files_only() {
    let declares = "barclamp: {name: root, version: '1', parent: core}\njigs: [{name: ansible, class: AnsibleJig, implementor: client}, {name: noop, class: noop, implementor: client}]\nroles: [{name: client, jig: test, flags: [implicit]}]\n";
    let uses = "barclamp: {name: work, version: '1', parent: core}\nroles: [{name: app, jig: ansible}, {name: mark, jig: noop, requires: [app]}]\n";
    let alone = import_set(&[("work.yml", uses)], &Catalog::default()).expect("warnings only");
    let root =
        catalog(&import_set(&[("root.yml", declares)], &Catalog::default()).expect("valid files"));
    let behind = import_set(&[("work.yml", uses)], &root).expect("valid files");
    assert_eq!(alone.barclamps[0].hash, behind.barclamps[0].hash);
    assert_eq!(role(&behind, "app").requires, []);
    let set = import_set(&[("root.yml", declares), ("work.yml", uses)], &Catalog::default())
        .expect("valid files");
    assert_eq!(
        role(&set, "app").requires,
        [role(&set, "client").name.clone()],
        "files of one import must see each other's definitions"
    );

    // A file of the set that is imported again alone counts as the same version. Any other
    // difference does not.
    let (stored, read) = (&set.barclamps[1].barclamp, &behind.barclamps[0].barclamp);
    let mut both = catalog(&set);
    for object in &behind.objects {
        both.add(object).expect("a readable object");
    }
    assert_ne!(stored, read);
    assert_eq!(is_equal_except_jigs(stored, read, &both), Ok(true));
    for (from, to) in [
        ("name: mark", "name: spot"),
        ("requires: [app]", "requires: [client]"),
        ("version: '1'", "version: '2'"),
    ] {
        let other =
            import_set(&[("work.yml", &uses.replace(from, to))], &root).expect("valid files");
        for object in &other.objects {
            both.add(object).expect("a readable object");
        }
        assert_eq!(
            is_equal_except_jigs(stored, &other.barclamps[0].barclamp, &both),
            Ok(false),
            "{to}"
        );
    }
}

#[test]
fn new_version_is_independent_of_old_one() {
    let old = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: noop}, {name: base, jig: noop}]\n";
    let new =
        "barclamp: {name: demo, version: '2'}\nroles: [{name: app, jig: noop, requires: [base]}]\n";
    let base = catalog(&import_text(old).expect("valid files"));
    let text = complaint(import_set(&[("demo.yml", new)], &base));
    assert_eq!(
        text,
        r#"demo.yml:2:43: error: Role "app" requires "base", which no barclamp has. Remove it, or import the barclamp that has it"#
    );
}

/// If the set or the base has a role of that name, the name refers to the role.
#[test]
fn provided_name_without_role_is_virtual() {
    let reported = |text: &str, base: &Catalog| {
        import_set(&[("demo.yml", text)], base).expect("valid files").findings.to_string()
    };
    let provides =
        "barclamp: {name: demo, version: 1}\nroles:\n  - {name: app, jig: noop, provides: [web]}\n";
    assert_eq!(
        reported(provides, &Catalog::default()),
        r#"demo.yml:3:39: note: Role "app" provides "web", which is not the name of a role. This is a virtual name, which other roles can require"#
    );
    assert_eq!(
        reported(&format!("{provides}  - {{name: web, jig: noop}}\n"), &Catalog::default()),
        ""
    );
    let web = "barclamp: {name: base, version: 1}\nroles: [{name: web, jig: noop}]\n";
    assert_eq!(reported(provides, &catalog(&import_text(web).expect("valid files"))), "");
}

#[test]
fn cycles_across_files_and_catalog_are_found() {
    let one = "barclamp: {name: one, version: '1'}\nroles: [{name: a, jig: noop, requires: [b]}]\n";
    let two = "barclamp: {name: two, version: '1'}\nroles: [{name: b, jig: noop, requires: [c]}, {name: c, jig: noop, requires: [a]}]\n";
    let path = "Roles wait for each other in a cycle: a -> b -> c -> a";
    let text = complaint(import_set(&[("1.yml", one), ("2.yml", two)], &Catalog::default()));
    assert_eq!(text, format!("1.yml:2:41: error: {path}"));

    let stub = "barclamp: {name: one, version: '1'}\nroles: [{name: a, jig: noop}]\n";
    let base = catalog(
        &import_set(&[("1.yml", stub), ("2.yml", two)], &Catalog::default())
            .expect("files without a cycle"),
    );
    let text = complaint(import_set(&[("1.yml", one)], &base));
    assert_eq!(text, format!("1.yml:2:41: error: {path}"));
}

/// The catalog's jigs require their client roles, although the roles' contents do not say so.
#[test]
fn cycle_through_catalog_jig_is_found() {
    let root = "barclamp: {name: root, version: '1'}\njigs: [{name: noop, class: noop, implementor: client}]\nroles: [{name: client, jig: test, flags: [implicit]}]\n";
    let middle = "barclamp: {name: middle, version: '1'}\nroles: [{name: app, jig: noop}]\n";
    let mut base =
        catalog(&import_set(&[("root.yml", root)], &Catalog::default()).expect("valid files"));
    for object in &import_set(&[("middle.yml", middle)], &base).expect("valid files").objects {
        base.add(object).expect("a readable object");
    }
    let closing = root.replace("jig: test, ", "jig: test, requires: [app], ");
    let text = complaint(import_set(&[("root.yml", &closing)], &base));
    assert!(text.contains("Roles wait for each other in a cycle"), "{text}");
}

#[test]
fn duplicate_names_in_set_are_rejected() {
    let one = "barclamp: {name: demo, version: '1'}\njigs: [{name: j, class: noop}]\nroles: [{name: a, jig: j}]\n";
    let two = "barclamp: {name: demo, version: '1'}\njigs: [{name: j, class: test}]\nroles: [{name: a, jig: j}]\n";
    insta::assert_snapshot!(complaint(import_set(
        &[("1.yml", one), ("2.yml", two)],
        &Catalog::default()
    )));
}

#[test]
fn foreign_files_may_use_undefined_names() {
    let text = "barclamp: {name: demo, version: '1', parent: core}\nroles: [{name: a, jig: chef, requires: [b], wants-attribs: [c], preceeds: [d]}]\n";
    let import = import_text(text).expect("warnings only");
    assert_eq!(role(&import, "a").jig_class, JigClass::Other("chef".to_owned()));
    insta::assert_snapshot!(import.findings.to_string());
}

#[test]
fn jig_client_role_must_be_bindable() {
    let text = |client: &str| {
        format!(
            "barclamp: {{name: demo, version: '1'}}\njigs: [{{name: chef, class: ChefJig, implementor: {client}}}]\nroles: [{{name: own, jig: chef, flags: [implicit]}}, {{name: loose, jig: noop}}, {{name: good, jig: noop, flags: [implicit]}}]\n"
        )
    };
    for (client, part) in [
        ("own", "needs that jig itself"),
        ("loose", "is not implicit"),
        ("gone", "which no barclamp has"),
    ] {
        let message = complaint(import_text(&text(client)));
        assert!(message.contains("demo.yml:2:50: error:") && message.contains(part), "{message}");
    }
    import_text(&text("good")).expect("an implicit client role with another jig");
}

// Limits.

fn many_roles(count: usize) -> String {
    let roles: Vec<String> = (0..count).map(|i| format!("{{name: r{i}, jig: noop}}")).collect();
    format!("barclamp: {{name: demo, version: '1'}}\nroles: [{}]\n", roles.join(", "))
}

fn pad(text: &str, length: usize) -> String {
    text.to_owned() + &" ".repeat(length - text.len())
}

#[test]
fn each_import_limit_is_exact() {
    import_text(&many_roles(MAX_ROLES)).expect("as many roles as allowed");
    let message = complaint(import_text(&many_roles(MAX_ROLES + 1)));
    assert!(message.contains(&format!("has {} roles", MAX_ROLES + 1)), "{message}");

    let padded = |length: usize| pad("barclamp: {name: demo, version: '1'}\n", length);
    import_text(&padded(MAX_FILE_BYTES)).expect("as large as allowed");
    assert_eq!(
        complaint(import_text(&padded(MAX_FILE_BYTES + 1))),
        format!(
            "demo.yml:1:1: error: The file has {} bytes, and the limit is {MAX_FILE_BYTES}",
            MAX_FILE_BYTES + 1
        )
    );

    let roles = "barclamp: {name: demo, version: '1'}\nroles: [{name: app, jig: script}]\n";
    let script = |length: usize| files(&[("scripts/app/10", &pad("#!/bin/sh\n", length))]);
    import_one("demo.yml", roles.as_bytes(), &script(MAX_SCRIPT_BYTES))
        .expect("as large as allowed");
    let message =
        complaint(import_one("demo.yml", roles.as_bytes(), &script(MAX_SCRIPT_BYTES + 1)));
    assert!(message.starts_with("scripts/app/10:1:1: error: The script has"), "{message}");

    let data = format!(
        "barclamp: {{name: demo, version: '1'}}\nroles:\n- {{name: app, jig: noop, template: {{a: {}}}}}\n",
        "x".repeat(MAX_BYTES)
    );
    let message = complaint(import_text(&data));
    assert!(message.starts_with("demo.yml:3:36: error: The data has"), "{message}");

    let mut folder = Files::new();
    for i in 0..=MAX_SCRIPTS_BYTES / MAX_SCRIPT_BYTES {
        let body = pad("#!/bin/sh\n", MAX_SCRIPT_BYTES);
        folder.insert(format!("scripts/app/{i}"), body.into_bytes());
    }
    let message = complaint(import_one("demo.yml", roles.as_bytes(), &folder));
    assert!(message.contains(&format!("is {MAX_SCRIPTS_BYTES}")), "{message}");

    let text = "barclamp: {name: demo, version: '1'}\nroles: []\n";
    let none = Files::new();
    let source = Source { path: "demo.yml", bytes: text.as_bytes(), folder: "", files: &none };
    let drafts: Vec<Draft> = vec![read(&source).expect("valid files"); MAX_FILES + 1];
    let message = complaint(link(&drafts, &Catalog::default()));
    assert!(message.contains(&format!("The set has {} files", MAX_FILES + 1)), "{message}");
}

/// The other limits are tested next to the parser; this is their purpose.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures time, not the engine")]
fn hostile_files_are_read_quickly() {
    let unresolved: Vec<String> = (0..60_000).map(|i| format!("role-{i}")).collect();
    let wide = |key: &str| {
        format!(
            "barclamp: {{name: demo, version: '1'}}\nroles: [{{name: app, jig: noop, {key}: [{}]}}]\n",
            unresolved.join(", ")
        )
    };
    let keys: String = (0..90_000).map(|i| format!("k{i}: 1\n")).collect();
    let texts = [
        "[".repeat(MAX_FILE_BYTES),
        "- ".repeat(MAX_FILE_BYTES / 2),
        "? ".repeat(MAX_FILE_BYTES / 2),
        "{a: ".repeat(MAX_FILE_BYTES / 4),
        "&a ".repeat(MAX_FILE_BYTES / 3),
        "a: *a\n".repeat(MAX_FILE_BYTES / 6),
        "!!str ".repeat(MAX_FILE_BYTES / 6),
        "\"\\u0041".repeat(MAX_FILE_BYTES / 7),
        "'".repeat(MAX_FILE_BYTES),
        "#\n".repeat(MAX_FILE_BYTES / 2),
        "\n".repeat(MAX_FILE_BYTES),
        " ".repeat(MAX_FILE_BYTES),
        "a ".repeat(MAX_FILE_BYTES / 2),
        "a:\n".repeat(MAX_FILE_BYTES / 3),
        format!("a: [{}]\n", "b,".repeat(MAX_FILE_BYTES / 2 - 10)),
        format!("a: |\n{}", " b\n".repeat(MAX_FILE_BYTES / 3 - 10)),
        "%YAML 1.2\n".repeat(MAX_FILE_BYTES / 10),
        "---\n".repeat(MAX_FILE_BYTES / 4),
        format!("barclamp: {{name: demo, version: '1'}}\n{keys}"),
        wide("requires"),
        wide("wants-attribs"),
        wide("preceeds"),
        wide("provides"),
        wide("flags"),
        wide("scripts"),
    ];
    for text in texts {
        let begin = Instant::now();
        let result = import_text(&text);
        let took = begin.elapsed();
        let start: String = text.chars().take(40).collect();
        assert!(took < Duration::from_secs(30), "{start:?} took {took:?}");
        if let Err(findings) = result {
            assert!(findings.0.len() <= 3 * MAX_FINDINGS);
        }
    }
}

// Arbitrary input.

const SOUND: &str = include_str!("../../../barclamps/demo/demo.yml");

fn demo_files() -> Files {
    fn walk(folder: &Path, prefix: &str, files: &mut Files) {
        for entry in fs::read_dir(folder).expect("the demo's scripts") {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let inner = format!("{prefix}/{name}");
            match path.is_dir() {
                true => walk(&path, &inner, files),
                false => {
                    files.insert(inner, fs::read(&path).expect("a readable script"));
                }
            }
        }
    }
    let mut files = Files::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../barclamps/demo/scripts");
    walk(&folder, "scripts", &mut files);
    files
}

/// Invariants of every result.
fn check_answer(result: &Result<Import, Findings>) {
    let findings = match result {
        Ok(import) => {
            assert!(!import.findings.has_errors());
            catalog(import);
            &import.findings
        }
        Err(findings) => {
            assert!(findings.has_errors());
            findings
        }
    };
    for finding in &findings.0 {
        assert!(finding.line >= 1 && finding.column >= 1 && !finding.file.is_empty());
        assert!(!finding.to_string().contains('\n') || finding.message.contains("Invalid YAML"));
    }
}

/// A mutation of a text: bytes cut, duplicated, replaced, or copied from another position.
fn mutate(text: &mut Vec<u8>, (kind, at, length, byte): (u8, usize, usize, u8)) {
    if text.is_empty() {
        return;
    }
    let at = at % text.len();
    let end = (at + length).min(text.len());
    match kind % 6 {
        0 => drop(text.drain(at..end)),
        1 => text[at] = byte,
        2 => text.insert(at, b"\n\t :-[]{}&*!|>'\"%@`#,?"[usize::from(byte) % 21]),
        3 => {
            let piece = text[at..end].to_vec();
            text.splice(end..end, piece);
        }
        4 => {
            let piece = text[at..end].to_vec();
            let to = (at * 7 + usize::from(byte)) % text.len();
            text.splice(to..to, piece);
        }
        _ => {
            let words: [&[u8]; 8] =
                [b"&a ", b"*a", b"null", b"1e999", b"!!int ", b"---\n", b"<<: ", b"\xef\xbb\xbf"];
            let word = words[usize::from(byte) % words.len()];
            text.splice(at..at, word.iter().copied());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check_answer(&import_one("x.yml", &bytes, &Files::new()));
    }

    #[test]
    fn yaml_like_text_does_not_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "barclamp", "roles", "name", "jig", "noop", "demo", ":", ": ", "- ", "\n", "\n  ", "\n    ", "[", "]",
                "{", "}", ",", "&a ", "*a", "!!str ", "!", "|", ">", "'", "\"", "#", "%", "? ", "---\n", "...\n", "\t",
                "requires", "template", "é", "\u{85}", "\u{feff}", "0x", "~", "\\x",
            ]),
            0..80,
        )
    ) {
        check_answer(&import_one("x.yml", words.concat().as_bytes(), &Files::new()));
    }

    #[test]
    fn mutated_file_does_not_panic(
        damage in prop::collection::vec((any::<u8>(), any::<usize>(), 0usize..200, any::<u8>()), 1..6)
    ) {
        let mut text = SOUND.as_bytes().to_vec();
        for change in damage {
            mutate(&mut text, change);
        }
        check_answer(&import_one("demo.yml", &text, &Files::new()));
    }
}

#[test]
fn demo_barclamp_has_only_expected_notes() {
    let files = demo_files();
    let import = import_one("demo.yml", SOUND.as_bytes(), &files).expect("the demo");
    // A milestone names the roles that it represents, including those that another of these adds.
    let implied = |finding: &Finding| {
        finding.severity == Severity::Note && finding.message.contains("already adds")
    };
    assert!(import.findings.0.iter().all(implied), "{}", import.findings);
    let scripts: usize = import.barclamps[0].roles.iter().map(|role| role.scripts.len()).sum();
    assert_eq!(scripts, files.len(), "a script is not used by any role");
    assert!(import.barclamps[0].roles.len() >= 10);
}

/// The documentation contains these numbers too.
#[test]
fn documented_limits_are_unchanged() {
    assert_eq!((MAX_FILE_BYTES, MAX_EXPANDED_BYTES, MAX_DEPTH), (1 << 20, 4 << 20, 32));
}

#[test]
fn read_attributes_use_their_map() {
    let named = |name: &str, path: [&str; 2]| -> Attrib {
        let value = json!({"name": name, "map": path});
        serde_json::from_value(value).expect("an attribute")
    };
    let attribs = [named("app-port", ["app", "port"]), named("app-pid", ["app", "pid"])];
    let role = json!({"name": "proxy", "barclamp": "web", "jig": "script", "jig_class": "script"});
    let mut role: Role = serde_json::from_value(role).expect("a role");
    assert_eq!(role.read_paths(&attribs), None, "the role reads all data of its parents");
    role.wants = vec![attribs[0].name.clone()];
    role.run.reads = vec![vec!["dns".to_owned()]];
    let paths: Vec<String> =
        role.read_paths(&attribs).expect("paths").iter().map(|keys| keys.join("/")).collect();
    assert_eq!(paths, ["app/port", "dns"]);
}
