//! Runs the scripts of the demo barclamp like a worker, in local folders.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "scripts take their time; the test waits for them")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use engine::canonical::Hash;
use engine::catalog::Role;
use engine::catalog::read::{Import, Source, import};
use engine::ids::ActionName;
use serde_json::{Map, Value, json};

fn demo_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../barclamps/demo")
}

fn demo() -> Import {
    let mut files = BTreeMap::new();
    for role in fs::read_dir(demo_folder().join("scripts")).expect("scripts") {
        let role = role.expect("a folder").path();
        let removal = role.join("remove");
        let folders = [Some(role), removal.is_dir().then_some(removal)];
        let entries = folders.iter().flatten().flat_map(|f| fs::read_dir(f).expect("scripts"));
        for path in entries.map(|entry| entry.expect("an entry").path()).filter(|p| p.is_file()) {
            let inner = path
                .strip_prefix(demo_folder())
                .expect("a path in the folder")
                .display()
                .to_string();
            files.insert(inner, fs::read(&path).expect("a readable file"));
        }
    }
    let bytes = fs::read(demo_folder().join("demo.yml")).expect("the demo");
    let source = Source { path: "demo.yml", bytes: &bytes, folder: "", files: &files };
    import(&[source], &engine::catalog::Catalog::default()).expect("a valid demo")
}

/// The roles in an order in which each comes after those it requires.
fn in_order(import: &Import) -> Vec<Role> {
    let mut left: Vec<Role> = import.barclamps[0].roles.clone();
    let mut done = BTreeSet::new();
    let mut order = Vec::new();
    while !left.is_empty() {
        let at = left
            .iter()
            .position(|role| role.requires.iter().all(|name| done.contains(name)))
            .expect("roles without a cycle");
        let role = left.remove(at);
        done.insert(role.name.clone());
        order.push(role);
    }
    order
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// `GANTRY_DATA_...` for each plain value.
fn variables(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Object(map) => {
            for (key, value) in map {
                variables(&format!("{path}_{key}"), value, into);
            }
            return;
        }
        Value::Array(_) | Value::Null => return,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let name = path.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    into.insert(name, text);
}

/// A node: a root folder with its services, which end when the node is dropped.
struct Node {
    folder: tempfile::TempDir,
    name: &'static str,
    scripts: BTreeMap<Hash, Vec<u8>>,
    /// The merged results of all runs so far.
    results: Value,
    /// Data that a user set.
    user: Value,
}

#[derive(Debug)]
struct Outcome {
    ok: bool,
    log: String,
    reason: String,
    result: Value,
}

impl Node {
    fn new(import: &Import, name: &'static str) -> Self {
        // A name with characters that are special in a shell.
        let folder =
            tempfile::Builder::new().prefix("a node's $root ").tempdir().expect("a folder");
        fs::create_dir(folder.path().join("root")).expect("a root");
        fs::create_dir(folder.path().join("run")).expect("a folder for runs");
        let scripts = import.objects.iter().map(|object| (object.hash, object.body.clone()));
        Self {
            folder,
            name,
            scripts: scripts.collect(),
            results: json!({}),
            user: json!({"runtime": {"pause": 0}}),
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Runs one script in its own process group, then kills the rest of that group.
    fn script(&self, role: &Role, hash: Hash, input: &Value) -> Outcome {
        let place = self.folder.path().join("run");
        let (script, output) = (place.join("script"), place.join("output"));
        fs::write(&script, &self.scripts[&hash]).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
        fs::write(place.join("input"), input.to_string()).expect("an input");
        let _ = fs::remove_file(&output);
        let mut data = BTreeMap::new();
        variables("GANTRY_DATA", input, &mut data);
        let child = Command::new("/bin/sh")
            .arg(&script)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("a path"))
            .env("GANTRY_ROOT", self.root())
            .env("GANTRY_NODE", self.name)
            .env("GANTRY_ROLE", role.name.as_str())
            .env("GANTRY_RUN", "1")
            .env("GANTRY_INPUT", place.join("input"))
            .env("GANTRY_OUTPUT", &output)
            .envs(data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let group = child.id();
        // Waits for the end of both streams too: a service that kept them open would block every
        // run.
        let ended = child.wait_with_output().expect("an end");
        let _ = kill("-KILL", &format!("-{group}"));
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        Outcome {
            ok: ended.status.success(),
            log: String::from_utf8_lossy(&ended.stdout).into_owned(),
            reason: errors.lines().last().unwrap_or("").to_owned(),
            result: match fs::read(&output) {
                Ok(bytes) => serde_json::from_slice(&bytes).expect("a JSON result"),
                Err(_) => json!({}),
            },
        }
    }

    fn run(&mut self, role: &Role) -> Outcome {
        self.act(role, &ActionName::run())
    }

    /// Runs all scripts of an action and stops at the first that fails.
    fn act(&mut self, role: &Role, action: &ActionName) -> Outcome {
        let mut input = self.results.clone();
        merge(&mut input, &role.template);
        merge(&mut input, &self.user);
        let mut all = Outcome {
            ok: true,
            log: String::new(),
            reason: String::new(),
            result: Value::Object(Map::new()),
        };
        for script in role.scripts.iter().filter(|script| script.action == *action) {
            let one = self.script(role, script.hash, &input);
            all.log += &one.log;
            merge(&mut all.result, &one.result);
            if !one.ok {
                all.ok = false;
                all.reason = one.reason;
                break;
            }
        }
        merge(&mut self.results, &all.result);
        all
    }

    fn run_all(&mut self, roles: &[Role]) {
        for role in roles {
            let outcome = self.run(role);
            assert!(outcome.ok, "{}: {outcome:?}", role.name);
        }
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn pid(&self, service: &str) -> u32 {
        let line = self.read(&format!("run/{service}.pid"));
        line.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a process")
    }

    /// Kills the process groups of all services, as a halted node does.
    fn halt(&self) {
        let Ok(entries) = fs::read_dir(self.root().join("run")) else {
            return;
        };
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            if path.extension().is_some_and(|ending| ending == "pid")
                && let Ok(line) = fs::read_to_string(&path)
                && let Some((pid, start)) = line.trim_end().split_once(' ')
                && started(pid).as_deref() == Some(start)
            {
                let _ = kill("-TERM", &format!("-{pid}"));
            }
        }
    }

    fn boot(&self) {
        let mut scripts: Vec<PathBuf> = fs::read_dir(self.root().join("etc/boot.d"))
            .expect("boot scripts")
            .map(|entry| entry.expect("a boot script").path())
            .collect();
        scripts.sort();
        for script in scripts {
            let status =
                Command::new(&script).stdout(Stdio::null()).status().expect("a boot script runs");
            assert!(status.success(), "{}", script.display());
        }
    }

    /// All configuration files, by path.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => walk(&path, into),
                    false => drop(into.insert(path.clone(), fs::read(&path).expect("a file"))),
                }
            }
        }
        let mut files = BTreeMap::new();
        for folder in ["etc", "usr"] {
            walk(&self.root().join(folder), &mut files);
        }
        files
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.halt();
    }
}

fn kill(signal: &str, target: &str) -> bool {
    Command::new("/bin/kill")
        .args([signal, "--", target])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The start time of a running process, from /proc.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (!matches!(fields[0], "Z" | "X")).then(|| fields[19].to_owned())
}

fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "not within 20 s: {condition}");
        sleep(Duration::from_millis(50));
    }
}

fn role<'r>(roles: &'r [Role], name: &str) -> &'r Role {
    roles.iter().find(|role| role.name.as_str() == name).expect(name)
}

#[test]
fn every_role_succeeds_and_is_idempotent() {
    let import = demo();
    let roles = in_order(&import);
    let mut node = Node::new(&import, "web-1.demo.example.com");
    node.run_all(&roles);
    let (results, files, pids) =
        (node.results.clone(), node.files(), (node.pid("app"), node.pid("proxy")));
    assert_eq!(results["app"]["port"], 8080);
    assert_eq!(results["app"]["pid"], pids.0);
    assert_eq!(results["check"]["status"], "ok");
    assert_eq!(results["proxy"]["answer"], "Hello from the demo");
    assert!(
        node.read("var/metrics/demo.prom")
            .contains("demo_services{node=\"web-1.demo.example.com\"}")
    );
    assert_eq!(results["base"]["hostname"], "web-1.demo.example.com");
    assert_eq!(
        node.read("etc/hosts").lines().last(),
        Some("127.0.1.1 web-1.demo.example.com web-1")
    );

    node.run_all(&roles);
    assert_eq!((node.pid("app"), node.pid("proxy")), pids, "the services restarted");
    assert_eq!(node.results, results, "the results of two runs differ");
    assert_eq!(node.files(), files);
}

#[test]
fn nodes_coexist_and_proxy_finds_application() {
    let import = demo();
    let roles = in_order(&import);
    let until_app: Vec<Role> = roles
        .iter()
        .filter(|role| {
            !["app-check", "proxy", "metrics", "web-ready"].contains(&role.name.as_str())
        })
        .cloned()
        .collect();
    let mut one = Node::new(&import, "web-1.demo.example.com");
    let mut two = Node::new(&import, "web-2.demo.example.com");
    one.run_all(&until_app);
    two.run_all(&until_app);
    assert_ne!(one.pid("app"), two.pid("app"));

    let mut front = Node::new(&import, "front.demo.example.com");
    for name in ["base-files", "dns-client", "time-sync", "runtime"] {
        let outcome = front.run(role(&roles, name));
        assert!(outcome.ok, "{name}: {outcome:?}");
    }
    merge(&mut front.results, &json!({"app": two.results["app"]}));
    for name in ["app-check", "proxy"] {
        let outcome = front.run(role(&roles, name));
        assert!(outcome.ok, "{name}: {outcome:?}");
    }
    assert!(front.read("etc/proxy.conf").contains(&two.root().display().to_string()));
    assert!(!front.root().join("run/app.pid").exists());
}

#[test]
fn failures_report_reason() {
    let import = demo();
    let roles = in_order(&import);
    let mut node = Node::new(&import, "web-1.demo.example.com");
    let fails = |node: &mut Node, name: &str, user: Value, reason: &str| {
        let before = std::mem::replace(&mut node.user, user);
        let outcome = node.run(role(&roles, name));
        node.user = before;
        assert!(!outcome.ok, "{name} did not fail");
        assert!(outcome.reason.contains(reason), "{name}: {outcome:?}");
    };
    let base = role(&roles, "base-files").clone();
    assert!(node.run(&base).ok);
    fails(&mut node, "dns-client", json!({"dns": {"server": ""}}), "dns.server is not set");
    for (port, reason) in [
        (json!(80), "app.port is 80: ports below 1024 need privileges"),
        (json!(70000), "the highest port is 65535"),
        (json!(123_456_789), "must be a number from 1024 to 65535"),
        (json!("http"), "app.port is \"http\""),
        (json!(-1), "app.port is \"-1\""),
    ] {
        fails(&mut node, "app-config", json!({"app": {"port": port}}), reason);
    }
    assert!(!node.root().join("etc/app.conf").exists(), "a rejected port was written to the file");
    fails(
        &mut node,
        "runtime",
        json!({"runtime": {"pause": "long"}}),
        "must be a number of seconds",
    );
    fails(&mut node, "app-check", json!({}), "the application does not report");

    node.run_all(&roles);
    fails(
        &mut node,
        "app-check",
        json!({"check": {"fail": true}}),
        "told to fail: check.fail is true",
    );
    fails(
        &mut node,
        "app-check",
        json!({"check": {"expect": "fine"}}),
        "reports \"ok\", but check.expect is \"fine\"",
    );
    // Killed without a chance to clean up: its last report still exists.
    assert!(kill("-KILL", &format!("-{}", node.pid("app"))));
    fails(&mut node, "app-check", json!({}), "the application has stopped");
    // A retry of the application repairs it.
    let app = role(&roles, "app").clone();
    assert!(node.run(&app).ok);
    let check = role(&roles, "app-check").clone();
    assert!(node.run(&check).ok);
}

#[test]
fn removed_roles_leave_no_service_or_file() {
    let import = demo();
    let roles = in_order(&import);
    let mut node = Node::new(&import, "web-1.demo.example.com");
    let removable = ["app", "proxy", "metrics"];
    let stay = |role: &&Role| !removable.contains(&role.name.as_str());
    for role in roles.iter().filter(stay) {
        node.run(role);
    }
    let before = node.files();
    node.run_all(&roles);
    let services = [node.pid("app"), node.pid("proxy")];

    let undo: Vec<&Role> = roles.iter().rev().filter(|role| !stay(role)).collect();
    // The second time, there is nothing left to remove.
    for role in undo.iter().chain(&undo) {
        let outcome = node.act(role, &ActionName::remove());
        assert!(outcome.ok, "{}: {outcome:?}", role.name);
    }
    assert_eq!(services.map(|pid| started(&pid.to_string())), [None, None]);
    assert_eq!(node.files(), before);
    assert!(!node.root().join("var/metrics/demo.prom").exists());
    let left = fs::read_dir(node.root().join("run")).expect("run").count();
    assert_eq!(left, 0, "files of a service are left in run/");
}

#[test]
fn changed_data_restarts_service_and_preserves_text() {
    let import = demo();
    let roles = in_order(&import);
    let mut node = Node::new(&import, "web-1.demo.example.com");
    node.run_all(&roles);
    let before = node.pid("app");
    let greeting = r#"quotes " and ' and \ and $HOME and `id` and ünïcode = yes"#;
    merge(&mut node.user, &json!({"app": {"port": 9090, "greeting": greeting}}));
    node.run_all(&roles);
    assert_ne!(node.pid("app"), before);
    assert_eq!(started(&before.to_string()), None, "the old service still runs");
    assert_eq!(node.results["app"]["port"], 9090);
    assert_eq!(node.results["proxy"]["answer"], greeting);
}

#[test]
fn services_stop_on_halt_and_restart_on_boot() {
    let import = demo();
    let roles = in_order(&import);
    let mut node = Node::new(&import, "web-1.demo.example.com");
    node.run_all(&roles);
    let (app, proxy) = (node.pid("app"), node.pid("proxy"));
    node.halt();
    for pid in [app, proxy] {
        eventually("the service ends", || started(&pid.to_string()).is_none());
    }
    node.boot();
    let again = (node.pid("app"), node.pid("proxy"));
    assert_ne!(again, (app, proxy));
    node.boot();
    assert_eq!(
        (node.pid("app"), node.pid("proxy")),
        again,
        "a second boot started a service twice"
    );
}

#[test]
fn reused_process_id_is_not_killed() {
    let import = demo();
    let roles = in_order(&import);
    let mut node = Node::new(&import, "web-1.demo.example.com");
    node.run_all(&roles);
    let app = node.pid("app");
    node.halt();
    eventually("the service ends", || started(&app.to_string()).is_none());

    let mut other = Command::new("sleep").arg("60").process_group(0).spawn().expect("a process");
    let stale = format!("{} 1\n", other.id());
    fs::write(node.root().join("run/app.pid"), stale).expect("a stale file");
    let control = node.root().join("usr/lib/demo/control");
    let run = |action: &str| {
        let status = Command::new(&control).args([action, "app"]).stdout(Stdio::null()).status();
        status.expect("the control program runs").success()
    };
    assert!(!run("status"), "a foreign process is taken for the service");
    assert!(run("stop"));
    assert!(run("start"));
    assert!(started(&other.id().to_string()).is_some(), "a foreign process was ended");
    assert_ne!(node.pid("app"), other.id());
    other.kill().expect("a process of the test");
    other.wait().expect("a process of the test");
}

/// Data that no attribute of its role maps would be accepted and have no effect.
#[test]
fn example_data_matches_role_attributes() {
    let manual = include_str!("../../../docs/cli.md");
    let behind = manual.split_once("## Declaration files").expect("the chapter").1;
    let example = behind
        .split("```")
        .nth(1)
        .and_then(|block| block.strip_prefix("yaml\n"))
        .expect("an example");
    let demo = demo();
    let mut given = 0;
    for line in example.lines().filter(|line| line.contains(": {")) {
        let (role, data) = line.trim().split_once(": {").expect("a role and its data");
        let (part, value) =
            data.trim_end_matches('}').split_once(": {").expect("a value of its data");
        let path = format!("{part}/{}", value.split(':').next().expect("a value"));
        let found = demo.barclamps[0].roles.iter().find(|found| found.name.as_str() == role);
        let found = found.unwrap_or_else(|| panic!("the demo has no role {role}"));
        assert!(
            found.attribs.iter().any(|attrib| attrib.map.join("/") == path),
            "role {role} has no attribute at {path}"
        );
        given += 1;
    }
    assert_eq!(given, 2, "{example}");
}
