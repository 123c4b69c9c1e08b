//! The command `gantry up`: how it starts while people are disabled, and how it stops.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use control::people::People;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use store::{Connecting, Store};

/// Killed on drop.
struct Started(Child);

impl Started {
    fn up(data: &Path) -> Self {
        Self::up_with(data, &[])
    }

    fn up_with(data: &Path, more: &[&str]) -> Self {
        Self::up_on(data, "127.0.0.1:0", more)
    }

    fn up_on(data: &Path, listen: &str, more: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_gantry")), data, listen, more)
    }

    fn of(mut command: Command, data: &Path, listen: &str, more: &[&str]) -> Self {
        command.args(["up", "--json", "--listen", listen, "--data"]).arg(data).args(more);
        command.env("GANTRY_LOG", "info").env_remove("DATABASE_URL").env_remove("GANTRY_OWNER_URL");
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for the ready message.
    fn ready(&mut self) -> Value {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(ready["event"], "ready", "{ready}");
        ready
    }

    fn stop(mut self) {
        self.signal(Signal::SIGINT);
        let status = within(Duration::from_secs(120), || self.0.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn within<T>(time: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begun.elapsed() < time, "it took longer than {time:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn invalid_settings_are_reported_before_start() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("data");
    let text = |words: &[&str], variable: (&str, &str)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command
            .args(words)
            .env("XDG_CONFIG_HOME", data.path())
            .env("GANTRY_DATA", &folder)
            .env(variable.0, variable.1);
        let output = command.env_remove("DATABASE_URL").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, short) = text(&["up", "--metrics-token", "hunter22"], ("GANTRY_LOG", "info"));
    assert!(
        code == Some(2) && short.contains("too short") && !short.contains("hunter22"),
        "{code:?} {short}"
    );
    assert!(!folder.exists(), "no data folder is created");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let (code, refused) = text(&["up", "--listen", &taken], ("GANTRY_LOG", "info"));
    assert!(
        code == Some(1) && refused.contains(&format!("Cannot listen on {taken}")),
        "{code:?} {refused}"
    );
    let (code, refused) = text(&["up", "--listen", "203.0.113.9:7955"], ("GANTRY_LOG", "info"));
    assert!(
        code == Some(1) && refused.contains("Cannot listen on 203.0.113.9:7955"),
        "{code:?} {refused}"
    );
    assert!(!folder.exists(), "no data folder is created if the address is unavailable");
    let (code, listen) = text(&["config"], ("GANTRY_LISTEN", "zzz"));
    assert!(
        code == Some(2) && listen.contains("Invalid value of GANTRY_LISTEN: \"zzz\""),
        "{code:?} {listen}"
    );
    let file = data.path().join("gantry.toml");
    std::fs::write(&file, "listen = 'nonsense'\n").unwrap();
    let (code, named) =
        text(&["config", "--config", file.to_str().unwrap()], ("GANTRY_LOG", "info"));
    let names = named.contains(file.to_str().unwrap())
        && named.contains("invalid value of listen: \"nonsense\"");
    assert!(code == Some(2) && names, "{code:?} {named}");
}

#[test]
fn unknown_variable_is_only_a_warning() {
    let home = tempfile::tempdir().unwrap();
    let text = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(words).env("XDG_CONFIG_HOME", home.path()).env("GANTRY_LISTN", "hunter22");
        command
            .env("GANTRY_LOG", "info")
            .env("GANTRY_TOKEN", "hunter22")
            .env_remove("DATABASE_URL");
        let output = command.env_remove("GANTRY_OWNER_URL").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, config) = text(&["config", "--json"]);
    assert!(
        config.contains("GANTRY_LISTN") && config.contains("did you mean GANTRY_LISTEN?"),
        "{config}"
    );
    assert_eq!(
        (code, config.lines().count()),
        (Some(0), 1),
        "only the unknown variable is reported: {config}"
    );
    assert!(!config.contains("hunter22"), "{config}");
    let (code, migrate) = text(&["migrate"]);
    assert!(
        code == Some(1) && migrate.contains("did you mean GANTRY_LISTEN?"),
        "the migration must fail because of the unknown variable: {migrate}"
    );
    let (_, output) = text(&["exit-codes"]);
    assert!(
        !output.contains("GANTRY_LISTN"),
        "commands without settings do not report the variable: {output}"
    );
}

#[test]
fn interrupted_start_stops_cleanly() {
    let data = tempfile::tempdir().unwrap();
    let mut gantry = Started::up(data.path());
    within(Duration::from_secs(60), || data.path().join("postgres").exists().then_some(()));
    gantry.signal(Signal::SIGINT);
    let status = within(Duration::from_secs(120), || gantry.0.try_wait().unwrap());
    let text = std::io::read_to_string(gantry.0.stdout.take().unwrap()).unwrap();
    let logged = std::io::read_to_string(gantry.0.stderr.take().unwrap()).unwrap();
    assert!(status.success() && text.is_empty(), "{status} {text} {logged}");
    assert!(
        !data.path().join("worker").exists() && !data.path().join("nodes").exists(),
        "{logged}"
    );
    let postmaster = data.path().join("postgres/data/postmaster.pid");
    assert!(!postmaster.exists(), "PostgreSQL stopped with gantry up");
}

/// The URL of a private database for a role.
fn database(role: &str, data: &Path) -> String {
    format!("postgres://{role}@localhost/gantry?host={}", data.join("postgres/socket").display())
}

/// The output of `gantry admin`, or its error.
fn admin(data: &Path, name: &str) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    let output = command
        .args(["admin", name])
        .env("GANTRY_OWNER_URL", database("gantry_owner", data))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Disables people, as the people page does.
async fn disabled(data: &Path, by: &str, names: &[&str]) {
    let store = Store::open(&Connecting::to(database("gantry_server", data))).unwrap();
    let owner = Store::open(&Connecting::to(database("gantry_owner", data))).unwrap();
    let people = People::over(store.clone()).with_owner(owner.clone());
    let by = people.sign_in_as_owner(by).await.unwrap();
    for name in names {
        let person = people.actor_by_name(name).await.unwrap().person;
        people.set_disabled(&by, person, true).await.unwrap();
    }
    owner.pool().close().await;
    store.pool().close().await;
}

/// The roles of the programs once all of them are connected. The owner's connection is closed by
/// then.
async fn connected_roles(data: &Path) -> Vec<String> {
    let store = Store::open(&Connecting::to(database("postgres", data))).unwrap();
    let sql = "SELECT DISTINCT usename::text FROM pg_stat_activity WHERE usename LIKE 'gantry%' \
        ORDER BY 1";
    let begun = Instant::now();
    loop {
        let roles: Vec<String> = sqlx::query_scalar(sql).fetch_all(store.pool()).await.unwrap();
        if roles == ["gantry_server", "gantry_worker"] || begun.elapsed() > Duration::from_secs(30)
        {
            store.pool().close().await;
            return roles;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn people_of(reported: &Value) -> Vec<&str> {
    reported
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|one| one["person"].as_str())
        .collect()
}

#[tokio::test]
async fn reachable_address_makes_no_demo_people() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let people = async || {
        let store = Store::open(&Connecting::to(database("gantry_owner", data))).unwrap();
        let names: Vec<String> = sqlx::query_scalar("SELECT name FROM person ORDER BY name")
            .fetch_all(store.pool())
            .await
            .unwrap();
        store.pool().close().await;
        names
    };
    let public = ["--public-address", "https://gantry.example.com"];
    for (listen, more) in
        [("0.0.0.0:0", ["--public-address", "http://127.0.0.1:9"]), ("127.0.0.1:0", public)]
    {
        let mut gantry = Started::up_on(data, listen, &more);
        let ready = gantry.ready();
        assert!(people_of(&ready["sign_in"]).is_empty(), "{listen}: {ready}");
        assert!(ready["adds_admin"].as_str().unwrap().ends_with("gantry admin NAME"), "{ready}");
        assert!(people().await.is_empty(), "{listen}");
        gantry.stop();
    }
    let mut gantry = Started::up_with(data, &[]);
    let ready = gantry.ready();
    assert!(people_of(&ready["sign_in"]).is_empty() && people().await.is_empty(), "{ready}");
    gantry.stop();
    let mut gantry = Started::up_on(data, "127.0.0.1:0", &[public[0], public[1], "--demo"]);
    assert_eq!(
        people_of(&gantry.ready()["sign_in"]),
        ["ada", "bo"],
        "the option requests the demo people"
    );
    gantry.stop();
}

#[tokio::test]
async fn disabled_people_get_no_sign_in_link() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let mut gantry = Started::up_with(data, &["--no-demo"]);
    let ready = gantry.ready();
    assert_eq!(people_of(&ready["sign_in"]), ["ada", "bo"]);
    assert_eq!(connected_roles(data).await, ["gantry_server", "gantry_worker"]);
    assert!(ready["without_link"].is_null() && ready["adds_admin"].is_null(), "{ready}");
    disabled(data, "ada", &["bo"]).await;
    gantry.stop();

    let mut gantry = Started::up_with(data, &["--no-demo"]);
    let ready = gantry.ready();
    assert_eq!(
        (people_of(&ready["sign_in"]), people_of(&ready["without_link"])),
        (vec!["ada"], vec!["bo"])
    );
    assert!(
        ready["without_link"][0]["reason"].as_str().unwrap().contains("bo is disabled"),
        "{ready}"
    );
    assert!(ready["adds_admin"].is_null(), "ada is already an admin: {ready}");
    assert!(admin(data, "cy").unwrap().contains("/sign-in#token="));
    disabled(data, "cy", &["ada"]).await;
    gantry.stop();

    let mut gantry = Started::up_with(data, &["--no-demo"]);
    let ready = gantry.ready();
    assert_eq!(
        (people_of(&ready["sign_in"]), people_of(&ready["without_link"])),
        (vec![], vec!["ada", "bo"])
    );
    // The command in the ready message works.
    let variable = ready["adds_admin"].as_str().unwrap().replace("gantry admin NAME", "");
    let named = variable.trim().trim_start_matches("GANTRY_OWNER_URL='").trim_end_matches('\'');
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    let output = command.args(["admin", "dee"]).env("GANTRY_OWNER_URL", named).output().unwrap();
    assert!(output.status.success(), "{named}: {output:?}");
    let refused = admin(data, "ada").unwrap_err();
    assert!(
        refused.contains("a new name adds an admin") && refused.contains("ada is disabled"),
        "{refused}"
    );
    gantry.stop();
}

/// A service of a node, as a script leaves it: it leads a process group and has a `.pid` file in
/// `run`.
fn service(root: &Path) -> Started {
    std::fs::create_dir_all(root.join("run")).unwrap();
    let script = r#"echo "$$ $(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)" >run/svc.new
        mv run/svc.new run/svc.pid
        exec sleep 600"#;
    let mut command = Command::new("sh");
    let service =
        Started(command.args(["-c", script]).current_dir(root).process_group(0).spawn().unwrap());
    within(Duration::from_secs(10), || root.join("run/svc.pid").exists().then_some(()));
    service
}

#[test]
fn stop_ends_services_of_added_nodes() {
    let data = tempfile::tempdir().unwrap();
    let mut gantry = Started::up(data.path());
    let ready = gantry.ready();
    let ask = |words: &[&str], given: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(words).env("XDG_CONFIG_HOME", data.path().join("config"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{words:?}");
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    ask(
        &["context", "add", "ada", "--server", &text(&ready["address"])],
        &text(&ready["sign_in"][0]["url"]),
    );
    let root = |name: &str| data.path().join("nodes").join(name);
    let late = root("late");
    ask(&["node", "add", "late.demo.gantry.internal", "--root", late.to_str().unwrap()], "");
    let services = [root("n1"), late].map(|root| service(&root));
    gantry.stop();
    for mut service in services {
        within(Duration::from_secs(10), || service.0.try_wait().unwrap());
    }
}

/// The script of `boot.d` has started a service, but its `.pid` file does not exist yet.
#[test]
fn stop_while_services_start_ends_them() {
    let data = tempfile::tempdir().unwrap();
    let mut gantry = Started::up(data.path());
    gantry.ready();
    gantry.stop();
    let root = data.path().join("nodes/n1");
    std::fs::create_dir_all(&root).unwrap();
    // Another process writes the script, because a parallel test could inherit the open file.
    let script = r#"mkdir -p etc/boot.d run && cat >etc/boot.d/50-late <<'END' && chmod 755 etc/boot.d/50-late
#!/bin/sh
setsid sh -c '
  echo $$ >begun.new && mv begun.new begun && sleep 1
  echo "$$ $(sed "s/.*) //" /proc/$$/stat | cut -d" " -f20)" >run/late.pid
  exec sleep 60' >/dev/null 2>&1 &
while [ ! -s run/late.pid ]; do sleep 0.02; done
END"#;
    let mut command = Command::new("sh");
    assert!(command.args(["-c", script]).current_dir(&root).status().unwrap().success());
    let mut gantry = Started::up(data.path());
    let begun = root.join("begun");
    within(Duration::from_secs(120), || begun.exists().then_some(()));
    gantry.signal(Signal::SIGINT);
    let status = within(Duration::from_secs(120), || gantry.0.try_wait().unwrap());
    let pid = std::fs::read_to_string(begun).unwrap();
    let service = Path::new("/proc").join(pid.trim()).join("stat");
    // A process that ended, but that its parent has not waited for, has the state Z.
    let runs = std::fs::read_to_string(service).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(status.success() && !runs, "{status}: the service {pid} still runs");
}

#[test]
fn closed_terminal_stops_everything() {
    let data = tempfile::tempdir().unwrap();
    let postmaster = data.path().join("postgres/data/postmaster.pid");
    // As nohup starts it.
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_gantry")]);
    let mut gantry = Started::of(nohup, data.path(), "127.0.0.1:0", &["--no-demo"]);
    gantry.ready();
    gantry.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        gantry.0.try_wait().unwrap().is_none() && postmaster.exists(),
        "gantry up must keep running under nohup"
    );
    gantry.stop();

    // `script` gives it a terminal, which closes when `script` is killed.
    let program = format!(
        "exec {} up --no-demo --listen 127.0.0.1:0 --data {} </dev/null",
        env!("CARGO_BIN_EXE_gantry"),
        data.path().display()
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--command", &program, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    within(Duration::from_secs(120), || postmaster.exists().then_some(()));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    within(Duration::from_secs(120), || (!postmaster.exists()).then_some(()));
}

#[test]
fn hangup_without_terminal_is_ignored() {
    let data = tempfile::tempdir().unwrap();
    let mut command = Command::new("setsid");
    command.args(["--wait", env!("CARGO_BIN_EXE_gantry")]);
    let mut gantry = Started::of(command, data.path(), "127.0.0.1:0", &["--no-demo"]);
    gantry.ready();
    let postmaster = data.path().join("postgres/data/postmaster.pid");
    gantry.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_secs(2));
    assert!(gantry.0.try_wait().unwrap().is_none() && postmaster.exists());
    gantry.stop();
}

#[test]
fn killed_process_leaves_no_database() {
    let data = tempfile::tempdir().unwrap();
    let mut gantry = Started::up_with(data.path(), &["--no-demo"]);
    gantry.ready();
    let postmaster = data.path().join("postgres/data/postmaster.pid");
    assert!(postmaster.exists());
    gantry.signal(Signal::SIGKILL);
    gantry.0.wait().unwrap();
    within(Duration::from_secs(60), || (!postmaster.exists()).then_some(()));
    let mut gantry = Started::up_with(data.path(), &["--no-demo"]);
    gantry.ready();
    gantry.stop();
}
