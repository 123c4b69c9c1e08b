//! The client commands, each run as a program against a server of its own.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use authenticator::Authenticator;
use control::people::{NewPerson, People, Permission};
use control::{Control, Demo, DemoDeployment};
use engine::gate::Policy;
use engine::ids::{DeploymentName, Fqdn, PersonId, RoleName};
use serde_json::{Value, json};
use store::Store;
use tempfile::TempDir;
use testdb::TestDatabase;
use tokio::net::TcpListener;

const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: For tests}
jigs:
  - {name: script, class: script, description: Runs scripts}
roles:
  - {name: app, jig: noop, attribs: [{name: app-port, map: port, schema: {type: int}}]}
  - {name: hello, jig: script, timeout: 30s, attribs: [{name: hello-times, map: hello/times, schema: {type: int}}]}
";
const SCRIPT: &str =
    "#!/bin/sh\necho hello from here\nprintf 'col\\033[31moured\\033]0;title\\007\\302\\233m\\n'\n";

/// A server with `web` and `edge`, three nodes, and two operators who may also review: ada and bo.
struct Installation {
    database: TestDatabase,
    people: People,
    ada: PersonId,
    bo: PersonId,
    server: String,
    home: TempDir,
}

impl Installation {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let home = tempfile::tempdir().unwrap();
        let control = Control::new(Store::over(database.app().clone()));
        let files = [("stack/stack.yml", BARCLAMP), ("stack/scripts/hello/10-say", SCRIPT)];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
        control.import_barclamps(None, &files).await.unwrap();
        let deployment = |name: &str| DemoDeployment {
            name: DeploymentName::parse(name).unwrap(),
            roles: vec![RoleName::parse("app").unwrap()],
        };
        let node = |n: u32| {
            let root = home.path().join(format!("nodes/n{n}"));
            std::fs::create_dir_all(&root).unwrap();
            (
                Fqdn::parse(&format!("n{n}.house.example.com")).unwrap(),
                root.to_string_lossy().into_owned(),
            )
        };
        let demo = Demo {
            deployments: vec![deployment("web"), deployment("edge")],
            nodes: (1..=3).map(node).collect(),
        };
        let policy = Policy { approvals: 1, by_risk: Default::default(), ..Policy::default() };
        control.ensure_genesis(&policy, &demo).await.unwrap();
        let owner = Store::over(database.owner().clone());
        let people = People::over(control.store().clone()).with_owner(owner);
        let may = [Permission::Viewer, Permission::Operator, Permission::Reviewer];
        let ada = people.create_person(None, &NewPerson::human("ada", may)).await.unwrap();
        let bo = people.create_person(None, &NewPerson::human("bo", may)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(server::serve(
            listener,
            server::Config::default(),
            control,
            std::future::pending(),
        ));
        let installation = Self { database, people, ada, bo, server, home };
        installation.can_sign_in("bo", installation.bo).await;
        installation.can_sign_in("ada", installation.ada).await;
        installation
    }

    /// Adds a context with this name, with a one-time link on standard input.
    async fn can_sign_in(&self, name: &str, person: PersonId) {
        let link =
            self.people.create_sign_in_link(None, person, Duration::from_secs(60)).await.unwrap();
        let given = format!("{}/sign-in#token={}\n", self.server, link.reveal());
        let output =
            self.run_with_input(&["context", "add", name, "--server", &self.server], &given);
        assert!(output.ok().contains(&format!("as {name}")), "{output:?}");
        assert!(!output.out.contains(link.reveal()) && !output.err.contains(link.reveal()));
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(words).env("XDG_CONFIG_HOME", self.home.path().join("config"));
        for variable in
            ["GANTRY_CONTEXT", "GANTRY_SERVER", "GANTRY_TOKEN", "GANTRY_CONFIG", "DATABASE_URL"]
        {
            command.env_remove(variable);
        }
        command
    }

    fn run_with_input(&self, words: &[&str], given: &str) -> CommandOutput {
        let mut command = self.command(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(given.as_bytes());
        CommandOutput::of(words, child.wait_with_output().unwrap())
    }

    fn gantry(&self, words: &[&str]) -> CommandOutput {
        self.run_with_input(words, "")
    }

    /// An admin with a context.
    async fn admin(&self, name: &str) {
        let person = self
            .people
            .create_person(None, &NewPerson::human(name, [Permission::Admin]))
            .await
            .unwrap();
        self.can_sign_in(name, person).await;
        self.gantry(&["context", "use", "ada"]).ok();
    }

    /// Runs `gantry admin` with the database's owner.
    fn as_owner(&self, words: &[&str]) -> CommandOutput {
        let words = [&["admin"], words].concat();
        let output =
            self.command(&words).env("GANTRY_OWNER_URL", self.database.owner_url()).output();
        CommandOutput::of(&words, output.unwrap())
    }

    /// Registers a passkey in a session of its person. Returns its id and fingerprint.
    async fn passkey(&self, name: &str, person: PersonId) -> (String, String) {
        // Passkeys need a host name.
        let origin = self.server.replace("127.0.0.1", "localhost");
        let link =
            self.people.create_sign_in_link(None, person, Duration::from_secs(60)).await.unwrap();
        self.run_with_input(&["context", "add", name, "--server", &origin], link.reveal()).ok();
        self.gantry(&["context", "use", "ada"]).ok();
        let post = |path: &str, body: Value| {
            self.run_with_input(
                &["api", "POST", path, "--body", "-", "--context", name],
                &body.to_string(),
            )
            .json()
        };
        let begun = post("/me/passkeys/options", json!({}));
        let answer = Authenticator::new().create(&origin, &begun["options"]);
        let made = post("/me/passkeys", json!({"name": "Laptop", "answer": answer}));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["id"]), text(&made["fingerprint"]))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }

    fn contexts(&self) -> PathBuf {
        self.home.path().join("config/gantry/contexts.toml")
    }

    /// Applies a file, approves as bo and commits. Returns the target.
    fn passes(&self, file: &str) -> String {
        let made =
            self.gantry(&["apply", "-f", file, "--submit", "--title", "A change", "--json"]).json();
        self.committed(&made[0]["review"].to_string(), &[])
    }

    /// Approves as bo and commits as ada. Returns the target.
    fn committed(&self, review: &str, more: &[&str]) -> String {
        self.gantry(&["review", "approve", review, "--context", "bo"]).ok();
        self.gantry(
            &[&["review", "commit", review, "--json"][..], more].concat()
        ).json()["blueprint"]
            .to_string()
    }

    fn worker(&self) -> Worker {
        let mut command = self.command(&[
            "worker",
            "--until-orphaned",
            "--sweep",
            "1",
            "--health-check-interval",
            "1",
        ]);
        command.env("DATABASE_URL", self.database.worker_url()).env("GANTRY_LOG", "error");
        command.env("GANTRY_ALLOW_LOOPBACK_NODES", "true");
        command.env("GANTRY_WORKER_FOLDER", self.home.path().join("worker"));
        Worker(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

/// Killed on drop.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
struct CommandOutput {
    words: String,
    code: i32,
    out: String,
    err: String,
}

impl CommandOutput {
    fn of(words: &[&str], output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        Self { words: words.join(" "), code, out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn ok(&self) -> String {
        assert_eq!(self.code, 0, "gantry {}: {self:?}", self.words);
        self.out.clone()
    }

    #[track_caller]
    fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Checks the exit code and the output of a failed command.
    #[track_caller]
    fn no(self, code: i32, message: &str) -> Self {
        assert!(self.code == code && self.err.contains(message), "{code}, {message:?}: {self:?}");
        self
    }
}

fn only(mode: &Path) -> u32 {
    std::fs::metadata(mode).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_are_private_and_hide_secrets() {
    let installation = Installation::new().await;
    assert_eq!(only(&installation.contexts()), 0o600);
    let contexts = std::fs::read_to_string(installation.contexts()).unwrap();
    let cookies: Vec<&str> =
        contexts.split('"').filter(|text| text.starts_with("gantry_session=")).collect();
    assert_eq!(cookies.len(), 2, "each context has its own cookie");
    for words in [
        &["context", "list"][..],
        &["context", "list", "--json"],
        &["context", "show", "bo"],
        &["me", "--json"],
    ] {
        let printed = installation.gantry(words);
        assert!(
            cookies
                .iter()
                .all(|cookie| !printed.out.contains(cookie) && !printed.err.contains(cookie)),
            "{printed:?}"
        );
        printed.ok();
    }
    let all = installation.gantry(&["context", "list", "--json"]).json();
    assert_eq!((all[0]["name"].as_str(), all[0]["current"].as_bool()), (Some("ada"), Some(true)));
    installation.gantry(&["context", "use", "bo"]).ok();
    assert_eq!(installation.gantry(&["me", "--json"]).json()["person"]["name"], "bo");
    assert_eq!(
        installation.gantry(&["me", "--context", "ada", "--json"]).json()["person"]["name"],
        "ada"
    );
    installation.gantry(&["context", "use", "nobody"]).no(4, "ada, bo");
    installation
        .gantry(&["context", "add", "ada", "--server", &installation.server])
        .no(2, "--replace");
    installation
        .gantry(&["context", "add", "far", "--server", "http://gantry.example.com"])
        .no(2, "--insecure-http");
    let link = installation
        .people
        .create_sign_in_link(None, installation.ada, Duration::from_secs(60))
        .await
        .unwrap();
    let of_another = format!("http://127.0.0.1:1/sign-in#token={}", link.reveal());
    installation
        .run_with_input(&["context", "add", "other", "--server", &installation.server], &of_another)
        .no(2, "not sent");
    installation
        .run_with_input(
            &["context", "add", "other", "--server", &installation.server],
            link.reveal(),
        )
        .ok();
    installation.gantry(&["context", "use", "ada"]).ok();

    // A token in the environment works too. Without credentials, the error names the remedy.
    let token = installation
        .gantry(&["token", "create", "--name", "ci", "--permission", "viewer", "--json"])
        .json()["token"]
        .clone();
    let by_token = |token: &str, words: &[&str]| {
        let output = installation
            .command(words)
            .env("GANTRY_SERVER", &installation.server)
            .env("GANTRY_TOKEN", token)
            .output();
        CommandOutput::of(words, output.unwrap())
    };
    assert_eq!(
        by_token(token.as_str().unwrap(), &["me", "--json"]).json()["permissions"],
        json!(["viewer"])
    );
    by_token(token.as_str().unwrap(), &["deployment", "propose", "web"]).no(6, "");
    by_token(token.as_str().unwrap(), &["review", "approve", "1"]).no(6, "");
    installation
        .gantry(&["token", "create", "--name", "x", "--permission", "admin", "--in", "web"])
        .no(5, "always applies everywhere");
    let refused = by_token("gantry_hunter22", &["me"]).no(6, "--token-file");
    assert!(!refused.err.contains("hunter22"), "{refused:?}");

    // After the session has ended, the error says how to sign in again.
    installation
        .people
        .sign_out_everywhere(&installation.people.sign_in_as_owner("ada").await.unwrap())
        .await
        .unwrap();
    installation.gantry(&["me", "--context", "ada"]).no(6, "gantry context sign-in");
    let link = installation
        .people
        .create_sign_in_link(None, installation.ada, Duration::from_secs(60))
        .await
        .unwrap();
    let file = installation.file("link", link.reveal());
    installation.gantry(&["context", "sign-in", "ada", "--link-file", &file]).ok();
    installation.gantry(&["me", "--context", "ada"]).ok();
    installation.gantry(&["context", "remove", "ada"]).ok();
    installation.gantry(&["me", "--context", "ada"]).no(4, "Context \"ada\" does not exist");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_admin_confirms_with_the_command_line() {
    let installation = Installation::new().await;
    for name in ["root", "second"] {
        installation.admin(name).await;
    }
    let link = installation.gantry(&["person", "link", "bo", "--context", "root"]).ok();
    assert!(link.contains("/sign-in#token="), "{link}");
    let shown =
        installation.gantry(&["person", "show", "bo", "--context", "second", "--json"]).json();
    assert_eq!(shown["approvals_limited"][0]["admin"], "root", "{shown}");
    installation
        .gantry(&["person", "confirm", "bo", "--context", "root"])
        .no(5, "did not give the access");
    installation.gantry(&["person", "confirm", "bo", "--context", "second"]).ok();
    let shown =
        installation.gantry(&["person", "show", "bo", "--context", "second", "--json"]).json();
    assert_eq!(
        (&shown["approvals_limited"], &shown["access_changes"][0]["confirmed_by"]),
        (&json!([]), &json!("second"))
    );

    // The session of the link first sets a password, then it is a regular session.
    let added = installation.run_with_input(
        &["context", "add", "again", "--server", &installation.server],
        link.trim(),
    );
    assert!(added.ok().contains("as bo"), "{added:?}");
    installation.gantry(&["node", "list", "--context", "again"]).no(5, "Set a password");
    installation
        .run_with_input(&["session", "password", "--context", "again"], "vague otter lamp\n")
        .ok();
    installation.gantry(&["node", "list", "--context", "again"]).ok();
    installation.gantry(&["session", "dismiss-notices", "--context", "again"]).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_link_resets_a_persons_access() {
    let installation = Installation::new().await;
    installation.admin("root").await;
    let root = |words: &[&str]| installation.gantry(&[words, &["--context", "root"]].concat());
    installation.gantry(&["person", "link", "bo"]).no(6, "admin");
    root(&["person", "link", "zoe"]).no(4, "Person \"zoe\" does not exist");
    let made = root(&["person", "link", "bo", "--json"]).json();
    let first = made["link"].as_str().unwrap().to_owned();
    assert!(first.starts_with(&format!("{}/sign-in#token=", installation.server)), "{made}");
    assert_eq!(made["minutes"], 24 * 60);
    let output = root(&["person", "link", "bo"]);
    let second = output.ok();
    assert!(output.err.contains("within 24 hours") && !output.err.contains("token="), "{output:?}");
    let add = |name: &str, link: &str| {
        installation.run_with_input(
            &["context", "add", name, "--server", &installation.server],
            link.trim(),
        )
    };
    add("first", &first).no(6, "");
    assert_eq!(root(&["person", "link", "bo", "--version", "99"]).code, 5);
    add("second", &second).ok();
    add("again", &second).no(6, "already used");

    // Setting the password ends earlier sessions. Both people see who reset the sign-in.
    installation.gantry(&["node", "list", "--context", "bo"]).ok();
    installation
        .run_with_input(&["session", "password", "--context", "second"], "vague otter lamp\n")
        .ok();
    installation.gantry(&["node", "list", "--context", "bo"]).no(6, "gantry context sign-in");
    let me = installation.gantry(&["me", "--json", "--context", "second"]).json();
    assert_eq!(me["notices"][0]["by"], "root", "{me}");
    let shown = root(&["person", "show", "bo", "--json"]).json();
    assert_eq!(
        (&shown["access_changes"][0]["kind"], &shown["access_changes"][0]["by"]),
        (&json!("reset"), &json!("root"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_who_grants_themselves_stays_signed_in() {
    let installation = Installation::new().await;
    installation.admin("root").await;
    let root = |words: &[&str]| installation.gantry(&[words, &["--context", "root"]].concat());
    root(&["person", "grant", "root", "--permission", "admin", "--permission", "reviewer"]).ok();
    let me = root(&["me", "--json"]).json();
    assert!(
        me["permissions"].as_array().is_some_and(|all| all.contains(&json!("reviewer"))),
        "{me}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_person_returns_without_their_approvals() {
    let installation = Installation::new().await;
    installation.admin("root").await;
    let root = |words: &[&str]| installation.gantry(&[words, &["--context", "root"]].concat());
    let make =
        ["token", "create", "--name", "ci", "--permission", "viewer", "--context", "bo", "--json"];
    let token = installation.gantry(&make).json()["token"].as_str().unwrap().to_owned();
    let by_token = || {
        let mut command = installation.command(&["node", "list"]);
        CommandOutput::of(
            &["node", "list"],
            command
                .env("GANTRY_SERVER", &installation.server)
                .env("GANTRY_TOKEN", &token)
                .output()
                .unwrap(),
        )
    };
    by_token().ok();
    let file = installation.file("web.yaml", "deployment: web\nbindings: {app: [n1]}\n");
    let made = installation
        .gantry(&["apply", "-f", &file, "--submit", "--title", "One app", "--json"])
        .json();
    let review = made[0]["review"].to_string();
    installation.gantry(&["review", "approve", &review, "--context", "bo"]).ok();
    assert!(installation.gantry(&["review", "show", &review]).ok().contains("1 of 1 approval"));

    installation.gantry(&["person", "disable", "bo"]).no(6, "admin");
    root(&["person", "disable", "zoe"]).no(4, "Person \"zoe\" does not exist");
    root(&["person", "disable", "root"]).no(5, "another admin");
    assert_eq!(
        root(&["person", "disable", "bo"]).ok(),
        "Account bo is disabled, and its tokens are revoked.\n"
    );
    installation.gantry(&["node", "list", "--context", "bo"]).no(6, "gantry context sign-in");
    by_token().no(6, "");
    root(&["person", "link", "bo"]).no(5, "bo is disabled");
    assert_eq!(root(&["person", "show", "bo", "--json"]).json()["disabled"], json!(true));

    assert_eq!(
        root(&["person", "enable", "bo"]).ok(),
        "Account bo is enabled. Earlier tokens stay revoked.\n"
    );
    assert_eq!(root(&["person", "show", "bo", "--json"]).json()["disabled"], json!(false));
    installation.gantry(&["node", "list", "--context", "bo"]).no(6, "");
    by_token().no(6, "");
    let shown = installation.gantry(&["review", "show", &review]).ok();
    assert!(
        shown.contains("0 of 1 approval") && shown.contains("bo approve (does not count)"),
        "{shown}"
    );
    installation
        .gantry(&["review", "commit", &review])
        .no(5, "bo approved it before the account was disabled");
    let link = installation
        .people
        .create_sign_in_link(None, installation.bo, Duration::from_secs(60))
        .await
        .unwrap();
    installation.run_with_input(&["context", "sign-in", "bo"], link.reveal()).ok();
    installation.committed(&review, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_confirms_a_passkey_by_its_fingerprint() {
    let installation = Installation::new().await;
    let (id, fingerprint) = installation.passkey("local", installation.bo).await;
    let confirm = |name: &str, fingerprint: &str| {
        installation.as_owner(&[name, "--confirm-passkey", fingerprint])
    };
    let listed = installation.as_owner(&["bo", "--passkeys"]).ok();
    assert_eq!(listed, format!("{fingerprint}  Laptop  localhost  not confirmed\n"));
    assert!(installation.as_owner(&["ada", "--passkeys"]).ok().starts_with("ada has no passkeys."));

    let words = ["admin", "bo", "--confirm-passkey", &fingerprint];
    installation.gantry(&words).no(1, "GANTRY_OWNER_URL is not set");
    confirm("zoe", &fingerprint).no(1, "zoe");
    installation.as_owner(&["zoe", "--passkeys"]).no(1, "zoe");
    for (name, other) in [("ada", fingerprint.as_str()), ("bo", "0000-0000-0000-0000-0000")] {
        confirm(name, other).no(1, "no passkey with the fingerprint");
    }
    assert!(installation.as_owner(&["bo", "--passkeys"]).ok().contains("not confirmed"));
    let text = confirm("bo", &fingerprint.to_uppercase()).ok();
    assert_eq!(text, format!("The passkey Laptop of bo ({fingerprint}) is confirmed.\n"));
    confirm("bo", &fingerprint).no(1, "already confirmed");
    let listed = installation.as_owner(&["bo", "--passkeys", "--json"]).json();
    assert_eq!((&listed[0]["id"], &listed[0]["confirmed"]), (&json!(id), &json!(true)), "{listed}");
    assert!(installation.as_owner(&["bo", "--passkeys"]).ok().contains("confirmed by the owner"));

    // A revoked passkey can't be confirmed.
    installation.gantry(&["passkey", "revoke", "Laptop"]).no(2, "");
    installation.gantry(&["passkey", "revoke", &id]).no(4, "");
    let text = installation.gantry(&["passkey", "revoke", &id, "--context", "local"]).ok();
    assert_eq!(text, format!("Passkey {id} is revoked.\n"));
    assert_eq!(
        installation.gantry(&["me", "--context", "local", "--json"]).json()["passkeys"],
        json!([])
    );
    confirm("bo", &fingerprint).no(1, "no passkey with the fingerprint");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_second_factor_ends_sessions_and_passkeys() {
    let installation = Installation::new().await;
    installation.admin("root").await;
    let root = |words: &[&str]| installation.gantry(&[words, &["--context", "root"]].concat());
    installation.passkey("local", installation.bo).await;
    installation.gantry(&["node", "list", "--context", "bo"]).no(5, "second factor");
    installation.gantry(&["node", "list", "--context", "local"]).ok();
    installation.gantry(&["person", "reset-second-factor", "bo"]).no(6, "admin");
    root(&["person", "reset-second-factor", "zoe"]).no(4, "Person \"zoe\" does not exist");
    root(&["person", "reset-second-factor", "root"]).no(5, "another admin");
    let text = root(&["person", "reset-second-factor", "bo"]).ok();
    assert_eq!(text, "The second factor of bo is removed, and their sessions have ended.\n");
    installation.gantry(&["node", "list", "--context", "local"]).no(6, "gantry context sign-in");
    let shown = root(&["person", "show", "bo", "--json"]).json();
    assert_eq!(
        (&shown["passkeys"], &shown["access_changes"][0]["kind"]),
        (&json!([]), &json!("factor_removed"))
    );

    // The owner can reset a factor too, because an admin may have lost theirs.
    installation.passkey("near", installation.bo).await;
    let text = installation.as_owner(&["bo", "--reset-second-factor"]).ok();
    assert_eq!(text, "The second factor of bo is removed, and their sessions have ended.\n");
    installation.gantry(&["node", "list", "--context", "near"]).no(6, "gantry context sign-in");
    installation.as_owner(&["zoe", "--reset-second-factor"]).no(1, "zoe");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_names_secrets_by_version() {
    let installation = Installation::new().await;
    let declared = |data: &str| {
        let text = format!(
            "deployment: web\nprune: true\nbindings: {{app: [n1]}}\ndata: {{app: {data}}}\n"
        );
        let made = installation.gantry(&[
            "apply",
            "-f",
            &installation.file("web.yaml", &text),
            "--submit",
            "--title",
            "A key",
            "--json",
        ]);
        made.json()[0]["review"].to_string()
    };
    let secret = |version: u32| {
        format!("{{db: {{password: {{$secret: db/password, version: {version}}}}}}}")
    };
    let shown = |review: &str| {
        let page = installation.gantry(&["review", "show", review]).ok();
        (page, installation.gantry(&["review", "show", review, "--json"]).json())
    };
    let review = declared(&secret(1));
    let (page, json) = shown(&review);
    assert!(
        page.contains("\nSecrets\n  uses secret db/password version 1 in app of web on n1\n"),
        "{page}"
    );
    assert!(
        page.lines().any(|line| line.starts_with("risks: ") && line.contains("secret")),
        "{page}"
    );
    assert!(json["risks"].as_array().unwrap().contains(&json!("secret")), "{json}");
    let used = &json["impact"]["secrets"][0];
    let first = json!({"$secret": "db/password", "version": 1});
    assert_eq!(
        (&used["change"], &used["secret"], &used["role"]),
        (&json!("added"), &first, &json!("app")),
        "{used}"
    );
    installation.committed(&review, &[]);

    let review = declared(&secret(2));
    let (page, json) = shown(&review);
    assert!(
        page.contains("  uses secret db/password version 2 (was version 1) in app of web on n1\n"),
        "{page}"
    );
    assert!(json["risks"].as_array().unwrap().contains(&json!("secret")), "{json}");
    let used = &json["impact"]["secrets"][0];
    let second = json!({"$secret": "db/password", "version": 2});
    assert_eq!(
        (&used["change"], &used["secret"], &used["was"]),
        (&json!("replaced"), &second, &first),
        "{used}"
    );
    installation.committed(&review, &[]);

    let (page, json) = shown(&declared("{port: 80}"));
    assert!(page.contains("no longer uses secret db/password version 2"), "{page}");
    assert!(!json["risks"].as_array().unwrap().contains(&json!("secret")), "{json}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_back_proposal_shows_reason_and_shift() {
    let installation = Installation::new().await;
    installation.gantry(&["bind", "n3", "app", "--in", "web"]).ok();
    let proposal =
        installation.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"]
            .to_string();
    let submit = || {
        let answer = installation
            .gantry(&["proposal", "submit", &proposal, "--title", "One app", "--json"])
            .json();
        answer["review"].to_string()
    };
    let first = submit();
    installation.gantry(&["node", "edit", "n3", "--root", "/srv/elsewhere/n3"]).ok();
    let moved = "  Changed since: the record of node n3.house.example.com.\n  \
        n3.house.example.com: It has changed, so the proposal would now change it differently than \
        submitted.\n";
    let review = installation.gantry(&["review", "show", &first]).ok();
    assert!(
        review.contains("state: sent back (")
            && review.contains(&format!("Sent back to its authors\n{moved}")),
        "{review}"
    );
    let open = installation.gantry(&["proposal", "show", &proposal]).ok();
    assert!(
        open.contains(&format!(
            "title: One app\nsent back from review {first}: its base changed\n{moved}"
        )),
        "{open}"
    );
    let open = installation.gantry(&["proposal", "show", &proposal, "--json"]).json();
    assert_eq!(
        (&open["title"], open["sent_back"]["before"].to_string()),
        (&json!("One app"), first.clone())
    );

    let second = submit();
    let review = installation.gantry(&["review", "show", &second]).ok();
    let begin = format!("  Submitted again: review {first} was sent back to its authors.\n{moved}");
    assert!(review.contains(&begin), "{review}");
    let effect_changes = &review[review.find("  Before:").expect("a changed effect")..];
    assert!(
        effect_changes.contains("/n3")
            && effect_changes.contains("  Now:")
            && effect_changes.contains("/srv/elsewhere/n3"),
        "{review}"
    );
    let reported = installation.gantry(&["review", "show", &second, "--json"]).json();
    assert_eq!(reported["replaces"]["before"].to_string(), first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_becomes_one_proposal_for_review() {
    let installation = Installation::new().await;
    let file = installation.file(
        "web.yaml",
        "deployment: web\nprune: true\nbindings:\n  app: [n1, n2]\ndata:\n  app: {port: 80}\n",
    );
    let apply = |more: &[&str]| installation.gantry(&[&["apply", "-f", &file][..], more].concat());
    let diff = installation.gantry(&["diff", "-f", &file]);
    assert_eq!((diff.code, diff.err.as_str()), (1, ""));
    assert!(
        diff.out.contains("+ app on n1.house.example.com, n2.house.example.com")
            && diff.out.contains("data of app"),
        "{diff:?}"
    );
    assert_eq!(
        installation.gantry(&["proposal", "list", "--json"]).json()["proposals"],
        json!([]),
        "gantry diff leaves no open proposal"
    );

    assert!(apply(&[]).ok().contains("adds 2, removes 0"));
    assert!(apply(&[]).ok().contains("Deployment web: nothing to change."));
    let again = installation.gantry(&["diff", "-f", &file]).no(1, "").out;
    assert_eq!(again, diff.out, "only a commit changes the target");
    let proposal =
        installation.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"]
            .to_string();
    let bo = |words: &[&str]| installation.gantry(&[words, &["--context", "bo"]].concat());
    bo(&["bind", "n3", "app", "--in", "web"]).no(2, "--join");
    let drafted =
        installation.gantry(&["proposal", "noderole", &proposal, "n1/app", "--json"]).json();
    assert_eq!(drafted["proposed"], json!(true), "{drafted}");
    assert!(
        bo(&["proposal", "noderole", &proposal, "n1/app"])
            .ok()
            .contains("exists only in the proposal")
    );
    let review = installation
        .gantry(&["proposal", "submit", &proposal, "--title", "Two apps", "--json"])
        .json()["review"]
        .to_string();

    installation.gantry(&["review", "approve", &review]).no(5, "You wrote part of this change");
    let problem = installation.gantry(&["review", "approve", &review, "--json"]).no(5, "");
    assert_eq!(serde_json::from_str::<Value>(&problem.err).unwrap()["status"], 403);
    installation.gantry(&["review", "commit", &review]).no(5, "approval");
    assert!(installation.gantry(&["review", "show", &review]).ok().contains("can approve: bo"));
    let consequences = installation.gantry(&["review", "impact", &review]).ok();
    assert!(
        consequences.starts_with("Affects 2 nodes.") && !consequences.contains('{'),
        "{consequences}"
    );
    assert!(installation.gantry(&["review", "diff", &review]).ok().contains("app"));
    let graph = installation.gantry(&["review", "graph", &review]).ok();
    assert!(graph.starts_with("web: ") && graph.contains("added"), "{graph}");
    let node = installation.gantry(&["node", "show", "n1", "--json"]).json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let anchor = format!("node/{node}");
    assert!(bo(&["review", "viewed", &review]).ok().starts_with("You have viewed 0 of "));
    assert!(bo(&["review", "viewed", &review, &anchor]).ok().contains(&format!("  {anchor}\n")));
    bo(&["review", "viewed", &review, "somewhere"]).no(5, "");
    bo(&["review", "view", &review]).ok();
    let thread =
        bo(&["review", "comment", &review, "Why two?", "--json"]).json()["comment"].to_string();
    installation.gantry(&["review", "reply", &thread, "One may fail."]).ok();
    assert!(
        installation.gantry(&["review", "discussion", &review]).ok().contains("    One may fail.")
    );
    bo(&["review", "resolve", &thread]).ok();
    bo(&["review", "approve", &review]).ok();
    assert!(
        bo(&["review", "since", &review]).ok().contains("gantry review diff"),
        "the first review of a proposal has no earlier one to compare with"
    );
    installation.gantry(&["wait", "review", &review, "--for", "open"]).ok();
    assert!(
        apply(&[]).ok().contains(&format!("Review {review} can be committed")),
        "no other review must be committed before this one"
    );
    installation.gantry(&["review", "commit", &review]).ok();
    installation.gantry(&["wait", "review", &review, "--for", "committed"]).ok();

    // After the commit, nothing is left to change. Pruning removes everything that the file does
    // not name.
    assert!(apply(&[]).ok().contains("nothing to change"));
    let less =
        installation.file("less.yaml", "deployment: web\nprune: true\nbindings: {app: [n2]}\n");
    assert!(
        installation
            .gantry(&["diff", "-f", &less])
            .no(1, "")
            .out
            .contains("- app from n1.house.example.com")
    );
    installation.gantry(&["unbind", "n1", "app", "--in", "web"]).ok();
    installation.gantry(&["diff", "-f", &less]).no(1, "");
    let applied = installation.gantry(&["apply", "-f", &less]).ok();
    assert!(applied.contains("nothing to change"), "the open proposal has it: {applied}");
    // Data of single noderoles, with and without an open proposal.
    let own =
        installation.file("own.yaml", "deployment: web\nnode_data: {n2: {app: {port: 81}}}\n");
    installation.gantry(&["apply", "-f", &own]).ok();
    assert!(installation.gantry(&["apply", "-f", &own]).ok().contains("nothing to change"));
    let reported = installation.gantry(&["apply", "-f", &less]);
    assert!(
        reported.err.contains("gantry proposal submit"),
        "the open proposal has edits that are not submitted: {reported:?}"
    );
    let proposal =
        installation.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"]
            .to_string();
    let submit = ["proposal", "submit", &proposal, "--title", "One app", "--json"];
    let review = installation.gantry(&submit).json()["review"].to_string();
    installation.gantry(&["review", "commit", &review]).no(5, "");
    installation.committed(&review, &["--name", "web"]);
    assert!(installation.gantry(&["apply", "-f", &own]).ok().contains("nothing to change"));
    let name = installation.gantry(&["noderole", "show", "n2/app", "--json"]).json();
    assert_eq!(name["fqdn"], "n2.house.example.com");
}

/// `api` is a service that requires `store`. The file binds them in the order of their names.
const GRAPH: &str = "
barclamp: {name: graph, version: '1', description: For tests}
roles:
  - {name: api, jig: noop, flags: [service], requires: [store]}
  - {name: store, jig: noop, attribs: [{name: store-size, map: size, schema: {type: int}}]}
  - {name: user, jig: noop, requires: [api, store]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complete_deployment_is_exported_and_applied() {
    let installation = Installation::new().await;
    let barclamp = installation.file("graph.yml", GRAPH);
    installation.gantry(&["barclamp", "import", &barclamp]).ok();
    let commit = |file: &str| {
        let file = installation.file("change.yaml", file);
        let made = installation
            .gantry(&["apply", "-f", &file, "--submit", "--title", "A change", "--json"])
            .json();
        let (review, on) = (made[0]["review"].to_string(), &made[0]["deployment"]);
        installation.committed(&review, &["--name", on.as_str().unwrap()]);
    };

    // A file creates a deployment. A role that it binds runs on no other node.
    let shop = "deployment: shop\nparent: system\nversions: {graph: '1'}\nmembers: [n1, n2, n3]\n\
                bindings: {api: ['phantom:shop'], store: [n2], user: [n1]}\n\
                data: {store: {size: 1}}\nnode_data: {n2: {store: {size: 2}}}\n";
    commit(shop);
    let export = || installation.gantry(&["export", "shop"]).ok();
    let exported = export();
    for line in [
        "parent: system\n",
        "  graph: \"1\"\n",
        "  api: [\"phantom:shop\"]\n",
        "  store: [n2.house.example.com]\n",
        "  user: [n1.house.example.com]\n",
        "  store: {\"size\":1}\n",
        "    store: {\"size\":2}\n",
        "members: [n1.house.example.com, n2.house.example.com, n3.house.example.com]\n",
    ] {
        assert!(exported.contains(line), "{line}: {exported}");
    }
    let same = installation.file("same.yaml", &exported);
    assert_eq!(installation.gantry(&["diff", "-f", &same]).ok(), "");
    let phantom = installation.gantry(&["noderole", "show", "phantom:shop/api", "--json"]).json();
    assert_eq!(phantom["role"], "api");
    installation.gantry(&["node", "show", "phantom:shopp"]).no(4, "did you mean shop?");

    // A complete file drops all that it does not name, except required roles.
    let less = installation.file(
        "less.yaml",
        "deployment: shop\nparent: system\ncomplete: true\nversions: {graph: '1'}\n\
         members: [n1, n2]\nbindings: {api: ['phantom:shop']}\n",
    );
    let diff = installation.gantry(&["diff", "-f", &less]).no(1, "").out;
    for line in [
        "- user from n1.house.example.com\n",
        "- role user\n",
        "* data of store: {\"size\":1} -> {}\n",
        "* data of store on n2.house.example.com: {\"size\":2} -> {}\n",
        "- member n3.house.example.com\n",
    ] {
        assert!(diff.contains(line), "{line}: {diff}");
    }
    assert!(!diff.contains("- store") && !diff.contains("role store"), "{diff}");
    commit(&std::fs::read_to_string(&less).unwrap());
    assert_eq!(installation.gantry(&["diff", "-f", &less]).ok(), "");
    assert!(!export().contains("user") && !export().contains("size"), "{}", export());

    // A file that empties all roles works.
    commit("deployment: shop\nprune: true\nbindings: {api: [], store: []}\n");
    assert!(!export().contains("bindings"), "{}", export());

    let wrong = installation.file("wrong.yaml", "deployment: shop\nversions: {graph: '9'}\n");
    installation.gantry(&["diff", "-f", &wrong]).no(2, "has no version 9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_proposal_is_joined_only_on_request() {
    let installation = Installation::new().await;
    installation.gantry(&["bind", "n1", "app", "--in", "web"]).ok();
    // A person without permission to review loses nothing by joining. ada would: her edits are
    // submitted too.
    let make = [
        "token",
        "create",
        "--name",
        "ci",
        "--permission",
        "viewer",
        "--permission",
        "operator",
        "--context",
        "bo",
        "--json",
    ];
    let token = installation.gantry(&make).json()["token"].as_str().unwrap().to_owned();
    let by_token = |words: &[&str]| {
        let output = installation
            .command(words)
            .env("GANTRY_SERVER", &installation.server)
            .env("GANTRY_TOKEN", &token)
            .output();
        CommandOutput::of(words, output.unwrap())
    };
    let more = installation.file("more.yaml", "deployment: web\nbindings: {app: [n1, n2]}\n");
    let same = installation.file("same.yaml", "deployment: web\nbindings: {app: [n1]}\n");
    for file in [&more, &same] {
        by_token(&["apply", "-f", file, "--submit", "--title", "Mine"]).no(2, "--join");
    }
    by_token(&["bind", "n2", "app", "--in", "web"]).no(2, "has edits of ada");
    by_token(&["apply", "-f", &same]).ok();
    let open = installation.gantry(&["proposal", "list", "--json"]).json()["proposals"][0].clone();
    assert_eq!((&open["review"], &open["authors"]), (&Value::Null, &json!(["ada"])), "{open}");

    let made =
        by_token(&["apply", "-f", &more, "--submit", "--title", "Ours", "--join", "--json"]).json();
    assert!(made[0]["review"].is_number() && made[0]["proposal"] == open["id"], "{made}");

    // An edit with an old version is rejected.
    let id = open["id"].to_string();
    installation.gantry(&["proposal", "undo", &id, "--version", "1"]).no(5, "");
    installation.gantry(&["proposal", "undo", &id, "--version", "2"]).ok();
    installation.gantry(&["proposal", "discard", &id, "--version", "2"]).no(5, "");
    installation.gantry(&["proposal", "discard", &id]).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_in_a_blueprint_is_proposed() {
    let installation = Installation::new().await;
    installation.gantry(&["bind", "n1", "app", "--in", "web"]).ok();
    let proposal =
        installation.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"]
            .to_string();
    let submit = ["proposal", "submit", &proposal, "--title", "App", "--json"];
    let review = installation.gantry(&submit).json()["review"].to_string();
    installation.committed(&review, &[]);
    let elsewhere = ["node", "edit", "n1", "--root", "/srv/elsewhere"];
    installation
        .gantry(&elsewhere)
        .no(5, "gantry node edit n1.house.example.com --root /srv/elsewhere --propose");
    let proposed = installation.gantry(&[&elsewhere[..], &["--propose", "--json"]].concat()).json()
        ["proposal"]
        .to_string();
    let submit = ["proposal", "submit", &proposed, "--title", "Moved", "--json"];
    let review = installation.gantry(&submit).json()["review"].to_string();
    let shown = installation.gantry(&["review", "diff", &review]).ok();
    assert!(shown.contains("connection, root: ") && shown.contains("-> /srv/elsewhere"), "{shown}");
    installation.committed(&review, &[]);
    assert_eq!(
        installation.gantry(&["node", "show", "n1", "--json"]).json()["connection"]["root"],
        "/srv/elsewhere"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_change_on_old_version_is_rejected() {
    let installation = Installation::new().await;
    let version = |node: &str| {
        installation.gantry(&["node", "show", node, "--json"]).json()["version"].to_string()
    };
    let old = version("n1");
    installation
        .gantry(&["node", "edit", "n1", "--description", "first rack", "--version", &old])
        .ok();
    let new = version("n1");
    assert_ne!(old, new);
    for words in [
        &["node", "edit", "n1", "--description", "other rack"][..],
        &["node", "start-maintenance", "n1", "--reason", "disks"],
        &["node", "token", "create", "n1", "--name", "agent"],
    ] {
        let refused =
            installation.gantry(&[words, &["--version", &old, "--json"]].concat()).no(5, "");
        assert_eq!(
            serde_json::from_str::<Value>(&refused.err).unwrap()["status"],
            412,
            "{words:?}"
        );
    }
    installation
        .gantry(&["node", "start-maintenance", "n1", "--reason", "disks", "--version", &new])
        .ok();
    installation
        .gantry(&["node", "end-maintenance", "n1", "--reason", "done", "--version", &version("n1")])
        .ok();
    // Without a version, it applies to the newest.
    installation.gantry(&["node", "edit", "n1", "--description", "other rack"]).ok();
    let made =
        installation.gantry(&["node", "token", "create", "n1", "--name", "agent", "--json"]).json();
    let token = made["id"].as_str().unwrap();
    let revoke = ["node", "token", "revoke", "n1", token, "--version"];
    installation.gantry(&[&revoke[..], &[old.as_str()]].concat()).no(5, "");
    assert!(installation.gantry(&["node", "token", "list", "n1"]).ok().contains("agent"));
    installation.gantry(&[&revoke[..], &[version("n1").as_str()]].concat()).ok();
    let listed = installation.gantry(&["node", "token", "list", "n1", "--json"]).json();
    assert_eq!(
        (listed[0]["id"].as_str(), &listed[0]["valid"]),
        (Some(token), &json!(false)),
        "{listed}"
    );

    let root = installation.home.path().join("nodes/n4").to_string_lossy().into_owned();
    installation.gantry(&["node", "add", "n4.house.example.com", "--root", &root]).ok();
    installation.gantry(&["node", "remove", "n4", "--version", "99"]).no(5, "Reload it");
    installation.gantry(&["node", "remove", "n4", "--version", &version("n4")]).ok();
    installation.gantry(&["node", "show", "n4"]).no(4, "Node \"n4\" does not exist");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_documents_leave_no_open_proposal() {
    let installation = Installation::new().await;
    let first = installation.file("first.yaml", "deployment: web\nbindings: {app: [n1]}\n");
    installation.passes(&first);
    let below = installation.submitted(&["deployment", "create", "below", "--parent", "edge"]);
    installation.committed(&below, &["--name", "edge"]);
    // A deployment can't move below itself. Only the server knows this.
    let both = "deployment: web\nbindings: {app: [n1, n2]}\n---\ndeployment: edge\nparent: below\n";
    let both = installation.file("both.yaml", both);
    let output = installation.gantry(&["apply", "-f", &both, "--json"]).no(5, "");
    let made: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (made.as_array().map(Vec::len), &made[0]["deployment"]),
        (Some(1), &json!("web")),
        "{output:?}"
    );
    installation.gantry(&["apply", "-f", &both]).no(5, "Not proposed: edge");
    let open = installation.gantry(&["proposal", "list", "--json"]).json();
    let open: Vec<&Value> = open["proposals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["scope"]["deployment"])
        .collect();
    assert_eq!(open, [&json!("web")], "the proposal on edge was closed again");

    // There is nothing left to edit, but the proposal is still submitted, once.
    let web = installation.file("web.yaml", "deployment: web\nbindings: {app: [n1, n2]}\n");
    let submit = ["apply", "-f", &web, "--submit", "--title", "Two", "--json"];
    let review = installation.gantry(&submit).json()[0]["review"].clone();
    assert!(review.is_number(), "{review}");
    assert_eq!(installation.gantry(&submit).json()[0]["review"], review);
    installation.committed(&review.to_string(), &[]);
    assert_eq!(installation.gantry(&submit).json()[0]["review"], Value::Null);
}

const REQUIRING: &str = "
barclamp: {name: requiring, version: '1', description: For tests}
roles:
  - {name: base, jig: noop, flags: [implicit]}
  - {name: tool, jig: noop, requires: [base]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applied_file_has_no_differences() {
    let installation = Installation::new().await;
    let barclamp = installation.file("requiring.yml", REQUIRING);
    installation.gantry(&["barclamp", "import", &barclamp]).ok();
    let use_version = ["deployment", "use-version", "web", "requiring", "1"];
    installation.committed(&installation.submitted(&use_version), &[]);
    let bindings = "deployment: web\nbindings: {tool: [n1]}\n";
    installation.passes(&installation.file("web.yaml", bindings));
    let exported = installation.gantry(&["export", "web"]).ok();
    let both = "tool: [n1.house.example.com, n2.house.example.com]";
    let more = exported.replace("tool: [n1.house.example.com]", both);
    let more = more.replace("members: [n1.house.example.com]", "members: [n1, n2]");
    assert!(more.contains("  base: [n1.house.example.com]\n") && more.contains(both), "{more}");
    let more = installation.file("more.yaml", &more);
    let pruned = "deployment: web\nprune: true\nbindings: {tool: [n1, n2], base: [n1]}\n";
    let pruned = installation.file("pruned.yaml", pruned);
    let made = installation
        .gantry(&["apply", "-f", &more, "--submit", "--title", "A second tool", "--json"])
        .json();
    let agrees = |code| {
        for file in [&more, &pruned] {
            assert_eq!(installation.gantry(&["diff", "-f", file]).code, code, "{file}");
            let applied = installation.gantry(&["apply", "-f", file]).ok();
            assert!(applied.contains("nothing to change"), "{applied}");
        }
    };
    agrees(1);
    let on = made[0]["deployment"].as_str().unwrap();
    installation.committed(&made[0]["review"].to_string(), &["--name", on]);
    agrees(0);
    installation.gantry(&["noderole", "show", "n2/base"]).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_and_child_are_created_together() {
    let installation = Installation::new().await;
    // The order of the documents has no meaning.
    let text = "deployment: mm\nparent: nn\nroles: [app]\n---\ndeployment: nn\nparent: web\n";
    let file = installation.file("both.yaml", text);
    let made =
        installation.gantry(&["apply", "-f", &file, "--submit", "--title", "Two", "--json"]).json();
    assert_eq!((made.as_array().map(Vec::len), &made[0]["deployment"]), (Some(1), &json!("web")));
    let waits = installation.gantry(&["apply", "-f", &file]);
    waits.no(5, "both.yaml:5:1: Deployment nn does not exist yet: open proposal");
    let diff = installation.gantry(&["diff", "-f", &file]).no(1, "").out;
    assert!(diff.contains("+ deployment nn"), "{diff}");
    installation.committed(&made[0]["review"].to_string(), &["--name", "web"]);
    assert!(installation.gantry(&["export", "mm"]).ok().contains("parent: nn\n"));
    assert_eq!(installation.gantry(&["diff", "-f", &file]).ok(), "");

    let text = "deployment: mm\nparent: oo\n---\ndeployment: oo\nparent: web\n";
    let file = installation.file("move.yaml", text);
    installation.gantry(&["apply", "-f", &file]).no(2, "its new parent oo does not");
    let text = "deployment: web\n---\ndeployment: web\n";
    let file = installation.file("twice.yaml", text);
    installation.gantry(&["apply", "-f", &file]).no(2, "twice.yaml, line 1.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_another_deployment_is_not_bound() {
    let installation = Installation::new().await;
    let moved = installation.submitted(&["node", "move", "n1", "--to", "web"]);
    installation.committed(&moved, &["--name", "web"]);
    let file = installation.file("edge.yaml", "deployment: edge\nbindings: {app: [n1]}\n");
    for command in ["diff", "apply"] {
        let refused = installation.gantry(&[command, "-f", &file]);
        refused.no(2, "edge.yaml:2:18: Node n1 belongs to web, which is neither above nor below");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expunged_node_leaves_the_blueprint() {
    let installation = Installation::new().await;
    let moved = installation.submitted(&["node", "move", "n1", "--to", "web"]);
    installation.committed(&moved, &["--name", "web"]);
    let expunge = ["node", "expunge", "n1", "--reason", "Its machine was scrapped"];
    installation.gantry(&expunge[..3]).no(2, "--reason");
    let refused = installation.gantry(&["node", "remove", "n1"]);
    refused.no(5, "gantry node expunge n1");
    let submit = ["--submit", "--title", "Scrapped", "--json"];
    let made = installation.gantry(&[&expunge[..], &submit].concat()).json();
    installation.committed(&made[0]["review"].to_string(), &["--name", "web"]);
    installation.gantry(&["node", "show", "n1"]).no(4, "n1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phantom_node_has_no_record_to_change() {
    let installation = Installation::new().await;
    let phantom = "phantom:web is a phantom node without a machine";
    for command in [
        &["node", "remove", "phantom:web"][..],
        &["node", "edit", "phantom:web", "--serial", "s1"],
        &["node", "start-maintenance", "phantom:web", "--reason", "x"],
        &["node", "end-maintenance", "phantom:web", "--reason", "x"],
        &["node", "move", "phantom:web", "--to", "edge"],
        &["node", "expunge", "phantom:web", "--reason", "x"],
    ] {
        installation.gantry(command).no(5, phantom);
    }
    installation.gantry(&["node", "propose", "phantom:web"]).no(5, "phantom:web is a phantom node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_permission_names_deployment_and_proposal() {
    let installation = Installation::new().await;
    installation.admin("boss").await;
    let cy = NewPerson::human("cy", [Permission::Viewer]);
    let cy = installation.people.create_person(None, &cy).await.unwrap();
    installation.can_sign_in("cy", cy).await;
    let grant = ["person", "grant", "cy", "--permission", "viewer", "--context", "boss"];
    installation.gantry(&[&grant[..], &["--permission", "operator@web"]].concat()).ok();
    let move_web = ["deployment", "move", "web", "--to", "edge", "--context", "cy"];
    let move_web = [&move_web[..], &["--submit", "--title", "web below edge"]].concat();
    let refused = installation.gantry(&move_web).no(6, "the permission operator in ");
    for text in ["The new edits stay in proposal", "gantry proposal undo "] {
        assert!(refused.err.contains(text), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_file_opens_no_proposal() {
    let installation = Installation::new().await;
    // Invalid data: of an existing role, of a new role, and of a noderole.
    let invalid = "deployment: web\ndata:\n  app: {port: x}\n  hello: \
        {hello: {times: y}}\nnode_data:\n  n1: {app: {port: z}}\n";
    let invalid = installation.file("invalid.yaml", invalid);
    for command in ["diff", "apply"] {
        let refused = installation
            .gantry(&[command, "-f", &invalid])
            .no(2, "invalid.yaml:3:9: Invalid data of app: /port ");
        for place in
            ["invalid.yaml:4:19: Invalid data of hello", "invalid.yaml:6:14: Invalid data of app"]
        {
            assert!(refused.err.contains(place), "{refused:?}");
        }
    }
    let opened = installation.gantry(&["audit", "list", "--json"]).ok();
    assert!(!opened.contains("proposal.open"), "no proposal was opened at any time: {opened}");
    let file = installation
        .file("wrong.yaml", "deployment: web\nbindings:\n  ap: [n1]\n  app: [n1, n33]\n");
    for command in ["apply", "diff"] {
        let printed = installation
            .gantry(&[command, "-f", &file])
            .no(2, "wrong.yaml:4:13: Node \"n33\" does not exist");
        assert_eq!(printed.out, "", "{command}");
    }
    let file = installation.file("role.yaml", "deployment: web\nbindings:\n  ap: [n1]\n");
    installation.gantry(&["apply", "-f", &file]).no(
        2,
        "role.yaml:3:3: Deployment web has no role ap, and no role of that name can be \
            added (did you mean app?).",
    );
    let file = installation.file("name.yaml", "deployment: wob\n");
    installation.gantry(&["apply", "-f", &file]).no(4, "did you mean web?");
    installation.gantry(&["apply", "-f", "/nowhere"]).no(2, "Cannot read /nowhere");
    installation.run_with_input(&["apply", "-f", "-"], "").no(4, "No declarations in -");
    assert_eq!(installation.gantry(&["proposal", "list", "--json"]).json()["proposals"], json!([]));

    installation.gantry(&["converge", "web"]).no(4, "has no noderoles");
    installation.gantry(&["converge", "wob"]).no(4, "did you mean web?");
    installation.gantry(&["converge", "--all"]).no(4, "No deployment has noderoles");
    installation.gantry(&["converge"]).no(2, "DEPLOYMENT");
    installation.gantry(&["converge", "--blueprint", "1"]).no(4, "has no steps of its own");
    installation.gantry(&["converge", "--blueprint", "99"]).no(4, "");
    installation.gantry(&["deployment", "show", "wob"]).no(4, "did you mean web?");
    installation.gantry(&["node", "show", "n9"]).no(4, "Node \"n9\" does not exist");
    installation.gantry(&["review", "show", "99", "--json"]).no(4, "\"status\":404");

    let nobody = |words: &[&str]| {
        let output = installation
            .command(words)
            .env("GANTRY_SERVER", "http://127.0.0.1:1")
            .env("GANTRY_TOKEN", "gantry_x")
            .output();
        CommandOutput::of(words, output.unwrap())
    };
    nobody(&["overview"]).no(3, "Cannot reach http://127.0.0.1:1");
    nobody(&["diff", "-f", &file]).no(3, "");
    let json = nobody(&["node", "list", "--json"]).no(3, "");
    assert_eq!(serde_json::from_str::<Value>(&json.err).unwrap()["exit"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_file_is_added_atomically() {
    let installation = Installation::new().await;
    let root =
        |n: u32| installation.home.path().join(format!("many/{n}")).to_string_lossy().into_owned();
    let wrong = format!("# rack 1\nm1.rack1.example.com root={}\nm2 root={}\n", root(1), root(2));
    let file = installation.file("wrong.txt", &wrong);
    let refused = installation.gantry(&["node", "add", "--file", &file]).no(5, "line 3: ");
    assert!(
        refused.err.contains("No node was added") && !refused.err.contains("line 2: "),
        "{refused:?}"
    );
    let json = installation.gantry(&["node", "add", "-f", &file, "--json"]).no(5, "");
    assert_eq!(serde_json::from_str::<Value>(&json.err).unwrap()["errors"][0]["at"], "line 3");
    installation
        .gantry(&["node", "add", "m3.rack1.example.com", "-f", &file])
        .no(2, "cannot be used with");
    installation.gantry(&["node", "add", "-f", &root(3)]).no(2, "Cannot read ");

    let good = wrong.replace("m2 ", "m2.rack1.example.com ");
    let made = installation.run_with_input(&["node", "add", "-f", "-"], &good).ok();
    assert_eq!(made, "Added 2 nodes:\n  m1.rack1.example.com\n  m2.rack1.example.com\n");
    installation
        .run_with_input(&["node", "add", "-f", "-", "--json"], &good)
        .no(5, "\"nodes_refused\"");
    let listed = installation.gantry(&["node", "list", "--filter", "rack1", "--json"]).json();
    assert_eq!(listed["nodes"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_lists_are_paged_and_updated() {
    let installation = Installation::new().await;
    let nodes = installation.gantry(&["node", "list", "--limit", "2", "--json"]).json();
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&nodes["next"], &nodes["omitted"]),
        (&Value::Null, &json!(1)),
        "a truncated page reports the number of omitted nodes"
    );
    let targets = installation.gantry(&["blueprint", "list", "--json"]).json();
    assert_eq!(
        targets["head"],
        json!(1),
        "the output has every field of the REST response: {targets}"
    );
    let all = installation.gantry(&["node", "list", "--all", "--json"]).json();
    assert_eq!((all["nodes"].as_array().map(Vec::len), &all["next"]), (Some(3), &Value::Null));
    let sessions = installation.gantry(&["session", "list", "--json"]).json();
    assert!(
        sessions["sessions"].is_array() && sessions["next"].is_null(),
        "sessions are a page like other lists: {sessions}"
    );
    let tokens = installation
        .gantry(&["token", "list", "--valid", "true", "--sort", "name", "--json"])
        .json();
    assert!(
        tokens["tokens"].is_array() && tokens["next"].is_null(),
        "tokens are a page like other lists: {tokens}"
    );
    let table = installation.gantry(&["node", "list", "--filter", "n2"]).ok();
    assert!(table.starts_with("NAME ") && table.lines().count() == 2, "{table}");
    for words in [
        &["overview"][..],
        &["policy"],
        &["pending"],
        &["pending", "--sort", "-since"],
        &["workers"],
        &["background-task", "list"],
        &["run", "list", "--since", "1h"],
        &["blueprint", "list"],
        &["blueprint", "show", "1"],
        &["barclamp", "list"],
        &["audit", "list"],
        &["audit", "chain"],
        &["audit", "export"],
        &["token", "list"],
        &["session", "list"],
        &["deployment", "show", "web"],
        &["node", "show", "n1"],
        &["node", "token", "list", "n1"],
        &["role", "show", "app"],
        &["role", "graph"],
        &["api", "GET", "/nodes?filter=n1"],
        &["exit-codes"],
        &["completions", "zsh"],
    ] {
        assert!(!installation.gantry(words).ok().is_empty(), "{words:?}");
    }
    let board = installation.gantry(&["deployment", "show", "web"]);
    assert_eq!(board.err, "", "a board is not a list, so it has no --all");
    installation.gantry(&["person", "list"]).no(6, "");
    installation.gantry(&["api", "GET", "nodes"]).no(2, "Invalid path nodes");
    installation.gantry(&["search", ""]).no(2, "Enter a search text");
    let order = installation.gantry(&["run", "list", "--sort", "nope"]).no(2, "unknown sort order");
    assert!(
        !order.err.contains("query parameters"),
        "the advice about the URL is left out: {order:?}"
    );
    installation.gantry(&["review", "approve", "null"]).no(2, "The review must be a number");
    installation.gantry(&["blueprint", "show", "first"]).no(2, "The blueprint must be a number");
    let wrong = installation
        .gantry(&["run", "list", "--limit", "0", "--json"])
        .no(2, "must be a whole number of at least 1");
    let wrong: Value = serde_json::from_str(&wrong.err).unwrap();
    assert_eq!(wrong["exit"], 2, "{wrong}");
    assert!(
        installation.gantry(&["run", "list", "--help", "--json"]).ok().contains("Usage:"),
        "--help succeeds with --json"
    );
    let nothing = installation.home.path().join("nothing").to_string_lossy().into_owned();
    installation.gantry(&["audit", "verify", &nothing]).no(2, "Cannot read ");
    let other = installation.file("other.jsonl", "{}\n");
    installation.gantry(&["audit", "verify", &other]).no(1, "Invalid export");

    let watch = |words: &[&str]| {
        let mut command = installation.command(words);
        let mut child =
            Worker(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        (child, lines)
    };
    let (_tokens, mut lines) = watch(&["node", "token", "list", "n1", "--watch", "--json"]);
    assert_eq!(lines.next().unwrap().unwrap(), "[]");
    installation.gantry(&["node", "token", "create", "n1", "--name", "agent"]).ok();
    assert!(lines.next().unwrap().unwrap().contains("\"agent\""));

    // The command ends when its reader is gone, even if nothing changes.
    for words in [&["policy", "--watch"][..], &["blueprint", "list", "--watch", "--json"]] {
        let (mut unread, mut lines) = watch(words);
        lines.next().unwrap().unwrap();
        drop(lines);
        let ended = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            unread.0.try_wait().unwrap()
        });
        assert!(ended.is_some_and(|status| status.success()), "{words:?}: {ended:?}");
    }

    let (_deployments, mut lines) = watch(&["deployment", "list", "--watch", "--json"]);
    let open = |line: String| {
        let all: Value = serde_json::from_str(&line).unwrap();
        all["deployments"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| !one["proposal"].is_null())
            .count()
    };
    assert_eq!(open(lines.next().unwrap().unwrap()), 0);
    installation.gantry(&["deployment", "propose", "edge"]).ok();
    assert_eq!(open(lines.next().unwrap().unwrap()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn converge_waits_and_log_is_shown() {
    let installation = Installation::new().await;
    let file =
        installation.file("web.yaml", "deployment: web\nbindings: {app: [n1], hello: [n2]}\n");
    let target = installation.passes(&file);
    let late = installation.gantry(&["converge", "web", "--timeout", "1s"]).no(124, "--timeout");
    assert!(late.out.is_empty(), "{late:?}");
    installation.gantry(&["deployment", "hold", "web", "--reason", "disks"]).ok();
    let worker = installation.worker();
    // The worker finds the nodes first. After that, nothing happens without a person.
    for command in [
        ["converge", "web"].as_slice(),
        &["wait", "deployment", "web"],
        &["converge", "--blueprint", &target],
    ] {
        let result =
            installation.gantry(&[command, &["--timeout", "90s"]].concat()).no(1, "need a person");
        assert!(result.out.contains("eployment web was put on hold by"), "{result:?}");
    }
    installation.gantry(&["deployment", "release", "web", "--reason", "done"]).ok();
    installation.gantry(&["wait", "deployment", "web", "--timeout", "90s"]).ok();
    assert!(
        installation.gantry(&["converge", "--blueprint", &target]).ok().contains("is converged")
    );
    assert!(
        installation.gantry(&["converge", "--all"]).ok().contains("Deployment web is converged")
    );
    drop(worker);

    let runs = installation.gantry(&["run", "list", "--role", "hello", "--json"]).json();
    let run = runs["runs"][0]["id"].to_string();
    let log = installation.gantry(&["logs", &run, "--follow"]).ok();
    assert!(log.contains("hello from here\ncoloured\n") && !log.contains('\x1b'), "{log:?}");
    let raw = installation.gantry(&["logs", &run, "--raw"]).ok();
    assert!(raw.contains("col\x1b[31moured\x1b]0;title\x07\u{9b}m\n"), "{raw:?}");
    let json = installation.gantry(&["logs", &run, "--json"]).ok();
    assert!(json.contains("\\u001b[31m") && json.contains("\\u009b"), "{json:?}");
    let behind = installation.gantry(&["logs", &run, "--since-byte", "5"]).ok();
    assert_eq!(behind, log[5..], "the log continues at the requested byte without a gap");
    let found = installation.gantry(&["logs", &run, "--find", "HELLO from", "--ignore-case"]).ok();
    assert!(found.lines().count() == 1 && found.ends_with(": hello from here\n"), "{found}");
    let none = installation.gantry(&["logs", &run, "--find", "HELLO from"]).no(4, "No line of run");
    assert!(!none.err.contains("so far"), "the run has ended, so its log is complete: {none:?}");
    assert_eq!(
        installation.gantry(&["logs", &run, "--since-byte", "-99999"]).ok(),
        log,
        "a negative offset counts from the end of the log"
    );
    installation.gantry(&["logs", &run, "--find", ""]).no(2, "--find");
    installation
        .gantry(&["logs", &run, "--since-byte", "99999"])
        .no(2, "99999 is after the end of the log");
    installation.gantry(&["node", "list", "--sort", "color"]).no(2, "unknown sort order");
    installation.gantry(&["pending", "--reason", "zzz"]).no(2, "zzz");
    assert_eq!(
        installation.gantry(&["pending", "--reason", "failed"]).ok(),
        "No pending steps with this reason.\n"
    );
    installation.gantry(&["pending", "--sort", "color"]).no(2, "unknown sort order");
    installation.gantry(&["run", "list", "--since", "99999999h"]).no(2, "before the year 1");
    let page = installation.gantry(&["run", "show", &run]).ok();
    assert!(
        page.starts_with(&format!("Run {run}: hello on n2.house.example.com, succeeded\n")),
        "{page}"
    );
    let page = installation.gantry(&["noderole", "show", "n2/hello"]).ok();
    assert!(page.starts_with("hello on n2.house.example.com: ACTIVE, since "), "{page}");
    installation.gantry(&["workers", "nobody"]).no(4, "Worker \"nobody\" does not exist");
    let worker = installation.gantry(&["workers", "--json"]).json()["workers"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let page = installation.gantry(&["workers", &worker]).ok();
    assert!(
        page.starts_with(&format!("Worker {worker}: ")) && page.contains("\n  leased "),
        "{page}"
    );
    let page = installation.gantry(&["node", "show", "n2"]).ok();
    assert!(page.starts_with("n2.house.example.com: ") && page.contains("\nhello "), "{page}");
    let page = installation.gantry(&["role", "show", "hello"]).ok();
    assert!(page.starts_with("Role hello of barclamp ") && page.contains("\nweb "), "{page}");
    assert_eq!(
        installation.gantry(&["role", "script", "hello"]).ok(),
        SCRIPT,
        "the script is printed unchanged"
    );
    let script = installation
        .gantry(&["role", "script", "hello", "10-say", "--barclamp", "stack", "--json"])
        .json();
    assert_eq!(script["text"], SCRIPT);
    assert_eq!(
        installation.gantry(&["role", "script", "--hash", script["hash"].as_str().unwrap()]).ok(),
        SCRIPT
    );
    installation.gantry(&["role", "script", "hello", "10-sag"]).no(4, "did you mean 10-say?");
    installation.gantry(&["role", "script", "app"]).no(4, "Role app has no scripts");
    installation.gantry(&["role", "script"]).no(2, "ROLE");
    let graph = installation.gantry(&["deployment", "graph", "web"]).ok();
    assert!(
        graph.starts_with("web: ") && graph.contains("ACTIVE") && graph.contains(" web:app\n"),
        "{graph}"
    );
    let near = installation.gantry(&[
        "deployment",
        "graph",
        "web",
        "--focus",
        "web:app",
        "--roles",
        "app",
    ]);
    assert!(near.ok().contains("app on n1"), "{near:?}");
    installation.gantry(&["deployment", "graph", "web", "--focus", "web:none"]).no(4, "");
    installation.gantry(&["deployment", "graph", "web", "--steps", "2"]).no(2, "--focus");
    let carriers = installation.gantry(&["deployment", "noderoles", "web", "app"]).ok();
    assert!(carriers.contains("n1.house.example.com  ACTIVE"), "{carriers}");
    installation.gantry(&["wait", "run", &run]).ok();
    installation.gantry(&["logs", "999999"]).no(4, "");
}

impl Installation {
    /// A folder with version 2 of the barclamp, in which the script of `hello` is another one.
    fn second_version(&self, script: &str) -> String {
        let folder = self.home.path().join("second/stack");
        std::fs::create_dir_all(folder.join("scripts/hello")).unwrap();
        let barclamp = BARCLAMP.replace("version: '1'", "version: '2'");
        std::fs::write(folder.join("stack.yml"), barclamp).unwrap();
        std::fs::write(folder.join("scripts/hello/10-say"), script).unwrap();
        folder.to_string_lossy().into_owned()
    }

    /// Submits the edits of a command. Returns the review.
    #[track_caller]
    fn submitted(&self, words: &[&str]) -> String {
        let submit = ["--submit", "--title", "A change", "--json"];
        self.gantry(&[words, &submit].concat()).json()["review"].to_string()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_change_by_name() {
    let installation = Installation::new().await;
    let commit = |words: &[&str], on: &str| {
        installation.committed(&installation.submitted(words), &["--name", on]);
    };
    let export = || installation.gantry(&["export", "shop"]).ok();
    commit(&["deployment", "create", "shop", "--parent", "web"], "web");
    assert!(export().contains("parent: web\n"), "{}", export());
    commit(&["deployment", "move", "shop", "--to", "edge"], "shop");
    assert!(export().contains("parent: edge\n"), "{}", export());
    let nowhere = ["deployment", "move", "shop", "--to", "edg"];
    installation.gantry(&nowhere).no(4, "did you mean edge?");
    let file = installation.file("shop.yaml", "deployment: shop\nparent: web\n");
    let diff = installation.gantry(&["diff", "-f", &file]);
    assert_eq!((diff.code, diff.out.as_str()), (1, "shop\n  * parent: web\n"));
    let made = installation
        .gantry(&["apply", "-f", &file, "--submit", "--title", "Back", "--json"])
        .json();
    assert_eq!(
        installation.gantry(&["diff", "-f", &file]).no(1, "").out,
        "shop\n  * parent: web\n",
        "the move is only proposed"
    );
    installation.committed(&made[0]["review"].to_string(), &["--name", "shop"]);
    assert!(export().contains("parent: web\n"), "{}", export());
    let file = installation.file("shop.yaml", "deployment: shop\nparent: nowhere\n");
    installation.gantry(&["apply", "-f", &file]).no(4, "shop.yaml:2:1");
    let file = installation.file("system.yaml", "deployment: system\nparent: web\n");
    installation.gantry(&["apply", "-f", &file]).no(2, "is the root and can't have a parent");
    commit(&["node", "move", "n1", "n2", "--to", "shop"], "shop");
    assert!(
        export().contains("members: [n1.house.example.com, n2.house.example.com]\n"),
        "{}",
        export()
    );
    installation.gantry(&["node", "move", "n1", "--to", "shopp"]).no(4, "did you mean shop?");
    commit(&["deployment", "add-role", "shop", "hello"], "shop");
    assert!(export().contains("roles: [hello]\n"), "{}", export());
    let again = installation.gantry(&["deployment", "add-role", "shop", "hello"]).ok();
    assert!(again.contains("nothing to change"), "{again}");

    // A new version changes the script of the role. The review shows its text.
    let changed = SCRIPT.replace("hello from here", "hello again");
    installation.gantry(&["barclamp", "import", &installation.second_version(&changed)]).ok();
    let wrong = ["deployment", "use-version", "shop", "stack", "9"];
    installation.gantry(&wrong).no(4, "Barclamp stack has no version \"9\"");
    let review = installation.submitted(&["deployment", "use-version", "shop", "stack", "2"]);
    let diff = installation.gantry(&["review", "diff", &review]).ok();
    for line in [
        "\n--- a/hello/10-say\n+++ b/hello/10-say\n@@ -1,3 +1,3 @@\n",
        "\n-echo hello from here\n+echo hello again\n",
    ] {
        assert!(diff.contains(line), "{line:?}: {diff}");
    }
    assert!(!diff.contains('\u{1b}'), "the output has no colors in a pipe: {diff}");
    installation.committed(&review, &["--name", "shop"]);
    assert!(export().contains("  stack: \"2\"\n"), "{}", export());
    commit(&["deployment", "use-version", "shop", "stack", "--inherit"], "shop");
    assert!(!export().contains("versions"), "{}", export());

    commit(&["deployment", "remove-role", "shop", "hello"], "shop");
    commit(&["node", "move", "n1", "n2", "--to", "web"], "web");
    commit(&["deployment", "remove", "shop"], "web");
    installation.gantry(&["deployment", "show", "shop"]).no(4, "Deployment \"shop\"");
    installation.gantry(&["deployment", "remove", "system"]).no(2, "is the root");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phantom_node_is_shown_by_name() {
    let installation = Installation::new().await;
    let shown = installation.gantry(&["node", "show", "phantom:web"]).ok();
    assert!(shown.starts_with("phantom:web: phantom node"), "{shown}");
    assert_eq!(
        installation.gantry(&["node", "show", "phantom:web", "--json"]).json()["deployment"],
        "web"
    );
    installation.gantry(&["node", "noderoles", "phantom:web"]).ok();
    installation.gantry(&["node", "health-checks", "phantom:web"]).ok();
    installation.gantry(&["noderole", "list", "--node", "phantom:web"]).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_run_again_by_selection() {
    let installation = Installation::new().await;
    installation.passes(
        &installation.file("web.yaml", "deployment: web\nbindings: {app: [n1, n2], hello: [n2]}\n"),
    );
    let reruns = |words: &[&str]| {
        let made = installation.gantry(&[words, &["--reason", "again", "--json"]].concat()).json();
        let proposal = made[0]["proposal"].to_string();
        installation.gantry(&["proposal", "discard", &proposal]).ok();
        made[0]["reruns"].as_u64().unwrap()
    };
    assert_eq!(reruns(&["rerun", "n1/app"]), 1);
    assert_eq!(reruns(&["rerun", "--node", "n2"]), 2);
    assert_eq!(reruns(&["rerun", "--node", "n2", "--role", "hello"]), 1);
    assert_eq!(reruns(&["rerun", "--deployment", "web", "--role", "app"]), 2);
    assert_eq!(reruns(&["rerun", "--deployment", "web"]), 3);
    installation.gantry(&["rerun", "--reason", "again"]).no(2, "required");
    installation.gantry(&["rerun", "--stale", "--reason", "again"]).no(4, "No stale steps match");

    let worker = installation.worker();
    installation.gantry(&["converge", "web"]).ok();
    drop(worker);
    for sql in [
        "ALTER TABLE step DISABLE TRIGGER USER",
        "UPDATE step SET stale = true FROM noderole r WHERE r.id = noderole_id AND r.role = \
         'hello'",
        "ALTER TABLE step ENABLE TRIGGER USER",
    ] {
        sqlx::query(sql).execute(installation.database.owner()).await.unwrap();
    }
    let stale = installation.gantry(&["noderole", "list", "--stale", "-o", "name"]).ok();
    assert_eq!(stale, "n2.house.example.com/hello\n");
    installation.gantry(&["converge", "web"]).no(1, "gantry rerun --stale");
    assert_eq!(reruns(&["rerun", "--stale"]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_steps_are_retried_at_once() {
    let installation = Installation::new().await;
    let folder = installation.second_version("#!/bin/sh\nexit 3\n");
    installation.gantry(&["barclamp", "import", &folder]).ok();
    let version = installation.submitted(&["deployment", "use-version", "web", "stack", "2"]);
    installation.committed(&version, &[]);
    let bindings = "deployment: web\nbindings: {hello: [n1, n2]}\n";
    let blueprint = installation.passes(&installation.file("web.yaml", bindings));
    let _worker = installation.worker();
    installation.gantry(&["converge", "web"]).no(1, "");
    let retry =
        |more: &[&str]| installation.gantry(&[&["retry", "--reason", "fixed"][..], more].concat());
    retry(&[]).no(2, "required");
    retry(&["--deployment", "edge"]).no(4, "No failed steps match");
    retry(&["--blueprint", "1"]).no(4, "No failed steps match");
    retry(&["--role", "app"]).no(4, "No failed steps match");
    for unknown in [["--role", "nope"], ["--blueprint", "999"], ["--deployment", "nope"]] {
        let output = retry(&unknown).no(4, unknown[1]);
        assert!(!output.err.contains("No failed steps"), "{output:?}");
    }
    let unknown = installation.gantry(&["run", "cancel", "1", "--reason", "x"]).no(2, "--reason");
    assert!(!unknown.err.contains("similar"), "{unknown:?}");
    installation.gantry(&["run", "list", "--nodes", "n1"]).no(2, "'--node'");
    let text = retry(&["--blueprint", &blueprint]).ok();
    assert!(text.starts_with("Retried 2 steps:\n  hello on n"), "{text}");
    installation.gantry(&["converge", "web"]).no(1, "");
    let one = retry(&["--node", "n1", "--json"]).json();
    assert_eq!(
        (one.as_array().map(Vec::len), &one[0]["retried"]),
        (Some(1), &json!(true)),
        "{one}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jigs_and_policy_change_by_proposal() {
    let installation = Installation::new().await;
    assert!(installation.gantry(&["jig", "list"]).ok().contains("script  on     "));
    let on = installation.gantry(&["jig", "on", "script"]).ok();
    assert!(on.contains("nothing to change"), "{on}");
    let review = installation.submitted(&["jig", "off", "script"]);
    installation.committed(&review, &["--name", "system"]);
    assert!(installation.gantry(&["jig", "list"]).ok().contains("script  off    "));
    assert_eq!(installation.gantry(&["jig", "list", "-o", "name"]).ok(), "noop\nscript\n");

    let change = ["policy", "--approvals", "2", "--risk", "removal=3"];
    let made = installation.gantry(&[&change[..], &["--json"]].concat()).json();
    let summary = made["changes"][0].as_str().unwrap();
    assert!(summary.starts_with("* approval policy: every change: "), "{summary}");
    let again = installation.gantry(&change).ok();
    assert!(again.contains("nothing to change"), "{again}");
    installation.gantry(&["policy", "--risk", "danger=2"]).no(2, "use one of destructive");
    assert!(
        installation.gantry(&["policy"]).ok().contains("approvals: 1"),
        "the policy is unchanged before the commit"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_has_the_requested_form() {
    let installation = Installation::new().await;
    let all = "n1.house.example.com\nn2.house.example.com\nn3.house.example.com\n";
    assert_eq!(installation.gantry(&["node", "list", "-o", "name"]).ok(), all);
    assert_eq!(installation.gantry(&["nodes", "ls", "--output=name"]).ok(), all);
    let yaml = installation.gantry(&["-o", "yaml", "deployment", "list"]).ok();
    assert!(yaml.starts_with("deployments:\n  - ") && yaml.contains("name: web\n"), "{yaml}");
    let json = installation.gantry(&["node", "list", "-o", "json"]).ok();
    assert_eq!(json, installation.gantry(&["node", "list", "--json"]).ok());
    installation.gantry(&["node", "list", "--json", "-o", "yaml"]).no(2, "cannot be used with");
    let short = installation.gantry(&["blueprint", "list"]).ok();
    let wide = installation.gantry(&["blueprint", "list", "-o", "wide"]).ok();
    assert!(wide.contains(":") && wide.contains("Z\n") && !short.contains("Z\n"), "{short}{wide}");
    let problem = installation.gantry(&["node", "show", "n9", "-o", "yaml"]).no(4, "exit: 4\n");
    assert!(problem.err.contains("detail: "), "{problem:?}");

    // Options are valid before and after the command.
    let me = |words: &[&str]| installation.gantry(words).json()["person"]["name"].clone();
    assert_eq!(me(&["--context", "bo", "--json", "me"]), "bo");
    assert_eq!(me(&["--json", "me", "--context", "bo"]), "bo");
    assert_eq!(me(&["me", "--json"]), "ada");
    let server = &installation.server;
    installation
        .gantry(&["--context", "bo", "me", "--server", server])
        .no(2, "can't be used together");
    installation.gantry(&["--json", "server"]).no(2, "`gantry server` has no option --json");
    installation.gantry(&["run", "list", "--limit", "-1"]).no(2, "whole number of at least 1");
    installation.gantry(&["server"]).no(2, "No database URL is set. Set DATABASE_URL");
    let help = installation.gantry(&["help"]).ok();
    assert!(help.contains("\nChanges:\n") && help.contains("\nServers:\n"), "{help}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_completes_names_of_the_server() {
    let installation = Installation::new().await;
    let complete = |words: &[&str]| {
        let all = [&["--", "gantry"][..], words].concat();
        let mut command = installation.command(&all);
        command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_SPACE", "true");
        CommandOutput::of(&all, command.env("_CLAP_COMPLETE_COMP_TYPE", "9").output().unwrap())
    };
    assert!(complete(&["node", "show", "n2"]).ok().contains("n2.house.example.com"));
    let deployments = complete(&["export", ""]).ok();
    assert!(deployments.contains("edge") && deployments.contains("web"), "{deployments}");
    assert!(complete(&["role", "show", "hel"]).ok().contains("hello"));
    assert!(complete(&["me", "--context", "b"]).ok().contains("bo"));
    let other = complete(&["node", "show", "--server", "http://127.0.0.1:1", "n"]);
    assert_eq!(
        (other.code, other.err.as_str()),
        (0, ""),
        "completion prints no error if there is no server"
    );
    let setup = installation.gantry(&["completions", "bash"]).ok();
    assert!(setup.contains("COMPLETE=\"bash\""), "{setup}");
}
