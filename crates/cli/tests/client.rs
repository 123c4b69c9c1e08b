//! The client commands, each run as a program against a server of its own.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what a test can’t go on without, it fails without")]

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
barclamp: {name: house, version: '1', description: For tests}
jigs:
  - {name: script, class: script, description: Runs scripts}
roles:
  - {name: app, jig: noop, attribs: [{name: app-port, map: port, schema: {type: int}}]}
  - {name: hello, jig: script, timeout: 30s, attribs: [{name: hello-times, map: hello/times, schema: {type: int}}]}
";
const SCRIPT: &str =
    "#!/bin/sh\necho hello from here\nprintf 'col\\033[31moured\\033]0;title\\007\\302\\233m\\n'\n";

/// A server with `web` and `edge`, three nodes, and two operators who may also review: ada and bo.
struct House {
    database: TestDatabase,
    people: People,
    ada: PersonId,
    bo: PersonId,
    server: String,
    home: TempDir,
}

impl House {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let home = tempfile::tempdir().unwrap();
        let control = Control::new(Store::over(database.app().clone()));
        let files = [("house/house.yml", BARCLAMP), ("house/scripts/hello/10-say", SCRIPT)];
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
        let house = Self { database, people, ada, bo, server, home };
        house.comes_in("bo", house.bo).await;
        house.comes_in("ada", house.ada).await;
        house
    }

    /// Adds a context with this name, with a one-time link on standard input.
    async fn comes_in(&self, name: &str, person: PersonId) {
        let link =
            self.people.create_sign_in_link(None, person, Duration::from_secs(60)).await.unwrap();
        let given = format!("{}/sign-in#token={}\n", self.server, link.reveal());
        let said = self.told(&["context", "add", name, "--server", &self.server], &given);
        assert!(said.ok().contains(&format!("as {name}")), "{said:?}");
        assert!(!said.out.contains(link.reveal()) && !said.err.contains(link.reveal()));
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

    fn told(&self, words: &[&str], given: &str) -> Said {
        let mut command = self.command(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(given.as_bytes());
        Said::of(words, child.wait_with_output().unwrap())
    }

    fn gantry(&self, words: &[&str]) -> Said {
        self.told(words, "")
    }

    /// An admin with a context.
    async fn admin(&self, name: &str) {
        let person = self
            .people
            .create_person(None, &NewPerson::human(name, [Permission::Admin]))
            .await
            .unwrap();
        self.comes_in(name, person).await;
        self.gantry(&["context", "use", "ada"]).ok();
    }

    /// Runs `gantry admin` with the database's owner.
    fn as_owner(&self, words: &[&str]) -> Said {
        let words = [&["admin"], words].concat();
        let output =
            self.command(&words).env("GANTRY_OWNER_URL", self.database.owner_url()).output();
        Said::of(&words, output.unwrap())
    }

    /// Registers a passkey in a session of its person. Returns its id and fingerprint.
    async fn passkey(&self, name: &str, person: PersonId) -> (String, String) {
        // Passkeys need a host name.
        let origin = self.server.replace("127.0.0.1", "localhost");
        let link =
            self.people.create_sign_in_link(None, person, Duration::from_secs(60)).await.unwrap();
        self.told(&["context", "add", name, "--server", &origin], link.reveal()).ok();
        self.gantry(&["context", "use", "ada"]).ok();
        let post = |path: &str, body: Value| {
            self.told(&["api", "POST", path, "--body", "-", "--context", name], &body.to_string())
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
        self.gantry(&[&["review", "commit", review, "--json"][..], more].concat()).json()["blueprint"]
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
struct Said {
    words: String,
    code: i32,
    out: String,
    err: String,
}

impl Said {
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
    fn no(self, code: i32, says: &str) -> Self {
        assert!(self.code == code && self.err.contains(says), "{code}, {says:?}: {self:?}");
        self
    }
}

fn only(mode: &Path) -> u32 {
    std::fs::metadata(mode).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_are_private_and_hide_secrets() {
    let house = House::new().await;
    assert_eq!(only(&house.contexts()), 0o600);
    let kept = std::fs::read_to_string(house.contexts()).unwrap();
    let cookies: Vec<&str> =
        kept.split('"').filter(|text| text.starts_with("gantry_session=")).collect();
    assert_eq!(cookies.len(), 2, "one for each");
    for words in [
        &["context", "list"][..],
        &["context", "list", "--json"],
        &["context", "show", "bo"],
        &["me", "--json"],
    ] {
        let said = house.gantry(words);
        assert!(
            cookies.iter().all(|cookie| !said.out.contains(cookie) && !said.err.contains(cookie)),
            "{said:?}"
        );
        said.ok();
    }
    let all = house.gantry(&["context", "list", "--json"]).json();
    assert_eq!((all[0]["name"].as_str(), all[0]["current"].as_bool()), (Some("ada"), Some(true)));
    house.gantry(&["context", "use", "bo"]).ok();
    assert_eq!(house.gantry(&["me", "--json"]).json()["person"]["name"], "bo");
    assert_eq!(house.gantry(&["me", "--context", "ada", "--json"]).json()["person"]["name"], "ada");
    house.gantry(&["context", "use", "nobody"]).no(4, "ada, bo");
    house.gantry(&["context", "add", "ada", "--server", &house.server]).no(2, "--replace");
    house
        .gantry(&["context", "add", "far", "--server", "http://gantry.example.com"])
        .no(2, "--insecure-http");
    let link =
        house.people.create_sign_in_link(None, house.ada, Duration::from_secs(60)).await.unwrap();
    let of_another = format!("http://127.0.0.1:1/sign-in#token={}", link.reveal());
    house
        .told(&["context", "add", "other", "--server", &house.server], &of_another)
        .no(2, "not sent");
    house.told(&["context", "add", "other", "--server", &house.server], link.reveal()).ok();
    house.gantry(&["context", "use", "ada"]).ok();

    // A token in the environment works too. Without credentials, the error names the remedy.
    let token = house
        .gantry(&["token", "create", "--name", "ci", "--may", "viewer", "--json"])
        .json()["token"]
        .clone();
    let by_token = |token: &str, words: &[&str]| {
        let output = house
            .command(words)
            .env("GANTRY_SERVER", &house.server)
            .env("GANTRY_TOKEN", token)
            .output();
        Said::of(words, output.unwrap())
    };
    assert_eq!(
        by_token(token.as_str().unwrap(), &["me", "--json"]).json()["permissions"],
        json!(["viewer"])
    );
    by_token(token.as_str().unwrap(), &["deployment", "propose", "web"]).no(6, "");
    by_token(token.as_str().unwrap(), &["review", "approve", "1"]).no(6, "");
    house
        .gantry(&["token", "create", "--name", "x", "--may", "admin", "--in", "web"])
        .no(5, "always applies everywhere");
    let refused = by_token("gantry_hunter22", &["me"]).no(6, "--token-file");
    assert!(!refused.err.contains("hunter22"), "{refused:?}");

    // After the session has ended, the error says how to sign in again.
    house
        .people
        .sign_out_everywhere(&house.people.sign_in_as_owner("ada").await.unwrap())
        .await
        .unwrap();
    house.gantry(&["me", "--context", "ada"]).no(6, "gantry context sign-in");
    let link =
        house.people.create_sign_in_link(None, house.ada, Duration::from_secs(60)).await.unwrap();
    let file = house.file("link", link.reveal());
    house.gantry(&["context", "sign-in", "ada", "--link-file", &file]).ok();
    house.gantry(&["me", "--context", "ada"]).ok();
    house.gantry(&["context", "remove", "ada"]).ok();
    house.gantry(&["me", "--context", "ada"]).no(4, "Context ada does not exist");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_admin_confirms_with_the_command_line() {
    let house = House::new().await;
    for name in ["root", "second"] {
        house.admin(name).await;
    }
    let link = house.gantry(&["person", "link", "bo", "--context", "root"]).ok();
    assert!(link.contains("/sign-in#token="), "{link}");
    let shown = house.gantry(&["person", "show", "bo", "--context", "second", "--json"]).json();
    assert_eq!(shown["approvals_limited"][0]["admin"], "root", "{shown}");
    house
        .gantry(&["person", "confirm", "bo", "--context", "root"])
        .no(5, "did not give the access");
    house.gantry(&["person", "confirm", "bo", "--context", "second"]).ok();
    let shown = house.gantry(&["person", "show", "bo", "--context", "second", "--json"]).json();
    assert_eq!(
        (&shown["approvals_limited"], &shown["access_changes"][0]["confirmed_by"]),
        (&json!([]), &json!("second"))
    );

    // The session of the link first sets a password, then it is a regular session.
    let added = house.told(&["context", "add", "again", "--server", &house.server], link.trim());
    assert!(added.ok().contains("as bo"), "{added:?}");
    house.gantry(&["node", "list", "--context", "again"]).no(5, "Set a password");
    house.told(&["session", "password", "--context", "again"], "vague otter lamp\n").ok();
    house.gantry(&["node", "list", "--context", "again"]).ok();
    house.gantry(&["session", "dismiss-notices", "--context", "again"]).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_link_resets_a_persons_access() {
    let house = House::new().await;
    house.admin("root").await;
    let root = |words: &[&str]| house.gantry(&[words, &["--context", "root"]].concat());
    house.gantry(&["person", "link", "bo"]).no(6, "admin");
    root(&["person", "link", "zoe"]).no(4, "Person zoe does not exist");
    let made = root(&["person", "link", "bo", "--json"]).json();
    let first = made["link"].as_str().unwrap().to_owned();
    assert!(first.starts_with(&format!("{}/sign-in#token=", house.server)), "{made}");
    assert_eq!(made["minutes"], 24 * 60);
    let said = root(&["person", "link", "bo"]);
    let second = said.ok();
    assert!(said.err.contains("within 24 hours") && !said.err.contains("token="), "{said:?}");
    let add = |name: &str, link: &str| {
        house.told(&["context", "add", name, "--server", &house.server], link.trim())
    };
    add("first", &first).no(6, "");
    assert_eq!(root(&["person", "link", "bo", "--version", "99"]).code, 5);
    add("second", &second).ok();
    add("again", &second).no(6, "already used");

    // Setting the password ends earlier sessions. Both people see who reset the sign-in.
    house.gantry(&["node", "list", "--context", "bo"]).ok();
    house.told(&["session", "password", "--context", "second"], "vague otter lamp\n").ok();
    house.gantry(&["node", "list", "--context", "bo"]).no(6, "gantry context sign-in");
    let me = house.gantry(&["me", "--json", "--context", "second"]).json();
    assert_eq!(me["notices"][0]["by"], "root", "{me}");
    let shown = root(&["person", "show", "bo", "--json"]).json();
    assert_eq!(
        (&shown["access_changes"][0]["kind"], &shown["access_changes"][0]["by"]),
        (&json!("reset"), &json!("root"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_person_returns_without_their_approvals() {
    let house = House::new().await;
    house.admin("root").await;
    let root = |words: &[&str]| house.gantry(&[words, &["--context", "root"]].concat());
    let make = ["token", "create", "--name", "ci", "--may", "viewer", "--context", "bo", "--json"];
    let token = house.gantry(&make).json()["token"].as_str().unwrap().to_owned();
    let by_token = || {
        let mut command = house.command(&["node", "list"]);
        Said::of(
            &["node", "list"],
            command
                .env("GANTRY_SERVER", &house.server)
                .env("GANTRY_TOKEN", &token)
                .output()
                .unwrap(),
        )
    };
    by_token().ok();
    let file = house.file("web.yaml", "deployment: web\nbindings: {app: [n1]}\n");
    let made =
        house.gantry(&["apply", "-f", &file, "--submit", "--title", "One app", "--json"]).json();
    let review = made[0]["review"].to_string();
    house.gantry(&["review", "approve", &review, "--context", "bo"]).ok();
    assert!(house.gantry(&["review", "show", &review]).ok().contains("1 of 1 approval"));

    house.gantry(&["person", "disable", "bo"]).no(6, "admin");
    root(&["person", "disable", "zoe"]).no(4, "Person zoe does not exist");
    root(&["person", "disable", "root"]).no(5, "another admin");
    assert_eq!(
        root(&["person", "disable", "bo"]).ok(),
        "Account bo is disabled, and its tokens are revoked.\n"
    );
    house.gantry(&["node", "list", "--context", "bo"]).no(6, "gantry context sign-in");
    by_token().no(6, "");
    root(&["person", "link", "bo"]).no(5, "bo is disabled");
    assert_eq!(root(&["person", "show", "bo", "--json"]).json()["disabled"], json!(true));

    assert_eq!(
        root(&["person", "enable", "bo"]).ok(),
        "Account bo is enabled. Earlier tokens stay revoked.\n"
    );
    assert_eq!(root(&["person", "show", "bo", "--json"]).json()["disabled"], json!(false));
    house.gantry(&["node", "list", "--context", "bo"]).no(6, "");
    by_token().no(6, "");
    let shown = house.gantry(&["review", "show", &review]).ok();
    assert!(
        shown.contains("0 of 1 approval") && shown.contains("bo approve (does not count)"),
        "{shown}"
    );
    house
        .gantry(&["review", "commit", &review])
        .no(5, "bo approved it before the account was disabled");
    let link =
        house.people.create_sign_in_link(None, house.bo, Duration::from_secs(60)).await.unwrap();
    house.told(&["context", "sign-in", "bo"], link.reveal()).ok();
    house.committed(&review, &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_confirms_a_passkey_by_its_fingerprint() {
    let house = House::new().await;
    let (id, fingerprint) = house.passkey("local", house.bo).await;
    let confirm =
        |name: &str, fingerprint: &str| house.as_owner(&[name, "--confirm-passkey", fingerprint]);
    let listed = house.as_owner(&["bo", "--passkeys"]).ok();
    assert_eq!(listed, format!("{fingerprint}  Laptop  localhost  not confirmed\n"));
    assert!(house.as_owner(&["ada", "--passkeys"]).ok().starts_with("ada has no passkeys."));

    let words = ["admin", "bo", "--confirm-passkey", &fingerprint];
    house.gantry(&words).no(1, "GANTRY_OWNER_URL is not set");
    confirm("zoe", &fingerprint).no(1, "zoe");
    house.as_owner(&["zoe", "--passkeys"]).no(1, "zoe");
    for (name, other) in [("ada", fingerprint.as_str()), ("bo", "0000-0000-0000-0000-0000")] {
        confirm(name, other).no(1, "no passkey with the fingerprint");
    }
    assert!(house.as_owner(&["bo", "--passkeys"]).ok().contains("not confirmed"));
    let said = confirm("bo", &fingerprint.to_uppercase()).ok();
    assert_eq!(said, format!("The passkey Laptop of bo ({fingerprint}) is confirmed.\n"));
    confirm("bo", &fingerprint).no(1, "already confirmed");
    let listed = house.as_owner(&["bo", "--passkeys", "--json"]).json();
    assert_eq!((&listed[0]["id"], &listed[0]["confirmed"]), (&json!(id), &json!(true)), "{listed}");
    assert!(house.as_owner(&["bo", "--passkeys"]).ok().contains("confirmed by the owner"));

    // A revoked passkey can't be confirmed.
    house.gantry(&["passkey", "revoke", "Laptop"]).no(2, "");
    house.gantry(&["passkey", "revoke", &id]).no(4, "");
    let said = house.gantry(&["passkey", "revoke", &id, "--context", "local"]).ok();
    assert_eq!(said, format!("Passkey {id} is revoked.\n"));
    assert_eq!(house.gantry(&["me", "--context", "local", "--json"]).json()["passkeys"], json!([]));
    confirm("bo", &fingerprint).no(1, "no passkey with the fingerprint");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_second_factor_ends_sessions_and_passkeys() {
    let house = House::new().await;
    house.admin("root").await;
    let root = |words: &[&str]| house.gantry(&[words, &["--context", "root"]].concat());
    house.passkey("local", house.bo).await;
    house.gantry(&["node", "list", "--context", "bo"]).no(5, "second factor");
    house.gantry(&["node", "list", "--context", "local"]).ok();
    house.gantry(&["person", "reset-second-factor", "bo"]).no(6, "admin");
    root(&["person", "reset-second-factor", "zoe"]).no(4, "Person zoe does not exist");
    root(&["person", "reset-second-factor", "root"]).no(5, "another admin");
    let said = root(&["person", "reset-second-factor", "bo"]).ok();
    assert_eq!(said, "The second factor of bo is removed, and their sessions have ended.\n");
    house.gantry(&["node", "list", "--context", "local"]).no(6, "gantry context sign-in");
    let shown = root(&["person", "show", "bo", "--json"]).json();
    assert_eq!(
        (&shown["passkeys"], &shown["access_changes"][0]["kind"]),
        (&json!([]), &json!("factor_removed"))
    );

    // The owner can reset a factor too, because an admin may have lost theirs.
    house.passkey("near", house.bo).await;
    let said = house.as_owner(&["bo", "--reset-second-factor"]).ok();
    assert_eq!(said, "The second factor of bo is removed, and their sessions have ended.\n");
    house.gantry(&["node", "list", "--context", "near"]).no(6, "gantry context sign-in");
    house.as_owner(&["zoe", "--reset-second-factor"]).no(1, "zoe");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_names_secrets_by_version() {
    let house = House::new().await;
    let declared = |data: &str| {
        let text = format!(
            "deployment: web\nprune: true\nbindings: {{app: [n1]}}\ndata: {{app: {data}}}\n"
        );
        let made = house.gantry(&[
            "apply",
            "-f",
            &house.file("web.yaml", &text),
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
        let page = house.gantry(&["review", "show", review]).ok();
        (page, house.gantry(&["review", "show", review, "--json"]).json())
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
    house.committed(&review, &[]);

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
    house.committed(&review, &[]);

    let (page, json) = shown(&declared("{port: 80}"));
    assert!(page.contains("no longer uses secret db/password version 2"), "{page}");
    assert!(!json["risks"].as_array().unwrap().contains(&json!("secret")), "{json}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_back_proposal_shows_reason_and_shift() {
    let house = House::new().await;
    house.gantry(&["bind", "n3", "app", "--in", "web"]).ok();
    let proposal =
        house.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"].to_string();
    let submit = || {
        let answer =
            house.gantry(&["proposal", "submit", &proposal, "--title", "One app", "--json"]).json();
        answer["review"].to_string()
    };
    let first = submit();
    house.gantry(&["node", "edit", "n3", "--root", "/srv/elsewhere/n3"]).ok();
    let moved = "  Changed since: the record of node n3.house.example.com.\n  n3.house.example.com: It has changed, so the proposal would now change it differently than submitted.\n";
    let review = house.gantry(&["review", "show", &first]).ok();
    assert!(
        review.contains("state: sent back (")
            && review.contains(&format!("Sent back to its authors\n{moved}")),
        "{review}"
    );
    let open = house.gantry(&["proposal", "show", &proposal]).ok();
    assert!(
        open.contains(&format!("sent back from review {first}: its base changed\n{moved}")),
        "{open}"
    );
    let open = house.gantry(&["proposal", "show", &proposal, "--json"]).json();
    assert_eq!(
        (&open["title"], open["sent_back"]["before"].to_string()),
        (&json!("One app"), first.clone())
    );

    let second = submit();
    let review = house.gantry(&["review", "show", &second]).ok();
    let begin = format!("  Submitted again: review {first} was sent back to its authors.\n{moved}");
    assert!(review.contains(&begin), "{review}");
    let shift = &review[review.find("  Before:").expect("a shift")..];
    assert!(
        shift.contains("/n3") && shift.contains("  Now:") && shift.contains("/srv/elsewhere/n3"),
        "{review}"
    );
    let told = house.gantry(&["review", "show", &second, "--json"]).json();
    assert_eq!(told["replaces"]["before"].to_string(), first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_becomes_one_proposal_for_review() {
    let house = House::new().await;
    let file = house.file(
        "web.yaml",
        "deployment: web\nprune: true\nbindings:\n  app: [n1, n2]\ndata:\n  app: {port: 80}\n",
    );
    let apply = |more: &[&str]| house.gantry(&[&["apply", "-f", &file][..], more].concat());
    let diff = house.gantry(&["diff", "-f", &file]);
    assert_eq!((diff.code, diff.err.as_str()), (1, ""));
    assert!(
        diff.out.contains("+ app on n1.house.example.com, n2.house.example.com")
            && diff.out.contains("data of app"),
        "{diff:?}"
    );
    assert_eq!(
        house.gantry(&["proposal", "list", "--json"]).json()["proposals"],
        json!([]),
        "diff opens nothing"
    );

    assert!(apply(&[]).ok().contains("adds 2, removes 0"));
    assert!(apply(&[]).ok().contains("Deployment web: nothing to change."));
    assert_eq!(house.gantry(&["diff", "-f", &file]).ok(), "");
    let proposal =
        house.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"].to_string();
    let bo = |words: &[&str]| house.gantry(&[words, &["--context", "bo"]].concat());
    bo(&["bind", "n3", "app", "--in", "web"]).no(2, "--join");
    let drafted = house.gantry(&["proposal", "noderole", &proposal, "n1/app", "--json"]).json();
    assert_eq!(drafted["proposed"], json!(true), "{drafted}");
    assert!(
        bo(&["proposal", "noderole", &proposal, "n1/app"])
            .ok()
            .contains("exists only in the proposal")
    );
    let review = house
        .gantry(&["proposal", "submit", &proposal, "--title", "Two apps", "--json"])
        .json()["review"]
        .to_string();

    house.gantry(&["review", "approve", &review]).no(5, "You wrote part of this change");
    let problem = house.gantry(&["review", "approve", &review, "--json"]).no(5, "");
    assert_eq!(serde_json::from_str::<Value>(&problem.err).unwrap()["status"], 403);
    house.gantry(&["review", "commit", &review]).no(5, "approval");
    assert!(house.gantry(&["review", "show", &review]).ok().contains("can approve: bo"));
    let consequences = house.gantry(&["review", "impact", &review]).ok();
    assert!(
        consequences.starts_with("Affects 2 nodes.") && !consequences.contains('{'),
        "{consequences}"
    );
    assert!(house.gantry(&["review", "diff", &review]).ok().contains("app"));
    let graph = house.gantry(&["review", "graph", &review]).ok();
    assert!(graph.starts_with("web: ") && graph.contains("added"), "{graph}");
    let node =
        house.gantry(&["node", "show", "n1", "--json"]).json()["id"].as_str().unwrap().to_owned();
    let anchor = format!("node/{node}");
    assert!(bo(&["review", "viewed", &review]).ok().starts_with("You have viewed 0 of "));
    assert!(bo(&["review", "viewed", &review, &anchor]).ok().contains(&format!("  {anchor}\n")));
    bo(&["review", "viewed", &review, "somewhere"]).no(5, "");
    bo(&["review", "view", &review]).ok();
    let thread =
        bo(&["review", "comment", &review, "Why two?", "--json"]).json()["comment"].to_string();
    house.gantry(&["review", "reply", &thread, "One may fail."]).ok();
    assert!(house.gantry(&["review", "discussion", &review]).ok().contains("    One may fail."));
    bo(&["review", "resolve", &thread]).ok();
    bo(&["review", "approve", &review]).ok();
    assert!(
        bo(&["review", "since", &review]).ok().contains("gantry review diff"),
        "of this proposal it is the first"
    );
    house.gantry(&["wait", "review", &review, "--for", "open"]).ok();
    assert!(
        apply(&[]).ok().contains(&format!("Review {review} can be committed")),
        "it waits for nobody else"
    );
    house.gantry(&["review", "commit", &review]).ok();
    house.gantry(&["wait", "review", &review, "--for", "committed"]).ok();

    // After the commit, nothing is left to change. Pruning removes everything that the file does
    // not name.
    assert!(apply(&[]).ok().contains("nothing to change"));
    let less = house.file("less.yaml", "deployment: web\nprune: true\nbindings: {app: [n2]}\n");
    assert!(
        house
            .gantry(&["diff", "-f", &less])
            .no(1, "")
            .out
            .contains("- app from n1.house.example.com")
    );
    house.gantry(&["unbind", "n1", "app", "--in", "web"]).ok();
    assert_eq!(house.gantry(&["diff", "-f", &less]).ok(), "");
    // Data of single noderoles, with and without an open proposal.
    let own = house.file("own.yaml", "deployment: web\nnode_data: {n2: {app: {port: 81}}}\n");
    house.gantry(&["apply", "-f", &own]).ok();
    assert!(house.gantry(&["apply", "-f", &own]).ok().contains("nothing to change"));
    let told = house.gantry(&["apply", "-f", &less]);
    assert!(
        told.err.contains("gantry proposal submit"),
        "what the open proposal has is not submitted yet: {told:?}"
    );
    let proposal =
        house.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"].to_string();
    let submit = ["proposal", "submit", &proposal, "--title", "One app", "--json"];
    let review = house.gantry(&submit).json()["review"].to_string();
    house.gantry(&["review", "commit", &review]).no(5, "");
    house.committed(&review, &["--name", "web"]);
    assert!(house.gantry(&["apply", "-f", &own]).ok().contains("nothing to change"));
    let name = house.gantry(&["noderole", "show", "n2/app", "--json"]).json();
    assert_eq!(name["fqdn"], "n2.house.example.com");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_proposal_is_joined_only_on_request() {
    let house = House::new().await;
    house.gantry(&["bind", "n1", "app", "--in", "web"]).ok();
    // A person without permission to review loses nothing by joining. ada would: her edits are
    // submitted too.
    let make = [
        "token",
        "create",
        "--name",
        "ci",
        "--may",
        "viewer",
        "--may",
        "operator",
        "--context",
        "bo",
        "--json",
    ];
    let token = house.gantry(&make).json()["token"].as_str().unwrap().to_owned();
    let by_token = |words: &[&str]| {
        let output = house
            .command(words)
            .env("GANTRY_SERVER", &house.server)
            .env("GANTRY_TOKEN", &token)
            .output();
        Said::of(words, output.unwrap())
    };
    let more = house.file("more.yaml", "deployment: web\nbindings: {app: [n1, n2]}\n");
    let same = house.file("same.yaml", "deployment: web\nbindings: {app: [n1]}\n");
    for file in [&more, &same] {
        by_token(&["apply", "-f", file, "--submit", "--title", "Mine"]).no(2, "--join");
    }
    by_token(&["bind", "n2", "app", "--in", "web"]).no(2, "has edits of ada");
    by_token(&["apply", "-f", &same]).ok();
    let open = house.gantry(&["proposal", "list", "--json"]).json()["proposals"][0].clone();
    assert_eq!((&open["review"], &open["authors"]), (&Value::Null, &json!(["ada"])), "{open}");

    let made =
        by_token(&["apply", "-f", &more, "--submit", "--title", "Ours", "--join", "--json"]).json();
    assert!(made[0]["review"].is_number() && made[0]["proposal"] == open["id"], "{made}");

    // An edit with an old version is rejected.
    let id = open["id"].to_string();
    house.gantry(&["proposal", "undo", &id, "--version", "1"]).no(5, "");
    house.gantry(&["proposal", "undo", &id, "--version", "2"]).ok();
    house.gantry(&["proposal", "discard", &id, "--version", "2"]).no(5, "");
    house.gantry(&["proposal", "discard", &id]).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_in_a_blueprint_is_proposed() {
    let house = House::new().await;
    house.gantry(&["bind", "n1", "app", "--in", "web"]).ok();
    let proposal =
        house.gantry(&["proposal", "list", "--json"]).json()["proposals"][0]["id"].to_string();
    let submit = ["proposal", "submit", &proposal, "--title", "App", "--json"];
    let review = house.gantry(&submit).json()["review"].to_string();
    house.committed(&review, &[]);
    let elsewhere = ["node", "edit", "n1", "--root", "/srv/elsewhere"];
    house
        .gantry(&elsewhere)
        .no(5, "gantry node edit n1.house.example.com --root /srv/elsewhere --propose");
    let proposed =
        house.gantry(&[&elsewhere[..], &["--propose", "--json"]].concat()).json()["proposal"]
            .to_string();
    let submit = ["proposal", "submit", &proposed, "--title", "Moved", "--json"];
    let review = house.gantry(&submit).json()["review"].to_string();
    let shown = house.gantry(&["review", "diff", &review]).ok();
    assert!(shown.contains("connection, root: ") && shown.contains("-> /srv/elsewhere"), "{shown}");
    house.committed(&review, &[]);
    assert_eq!(
        house.gantry(&["node", "show", "n1", "--json"]).json()["connection"]["root"],
        "/srv/elsewhere"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_change_on_old_version_is_rejected() {
    let house = House::new().await;
    let version =
        |node: &str| house.gantry(&["node", "show", node, "--json"]).json()["version"].to_string();
    let old = version("n1");
    house.gantry(&["node", "edit", "n1", "--description", "first rack", "--version", &old]).ok();
    let new = version("n1");
    assert_ne!(old, new);
    for words in [
        &["node", "edit", "n1", "--description", "other rack"][..],
        &["node", "start-maintenance", "n1", "--reason", "disks"],
        &["node", "token", "create", "n1", "--name", "agent"],
    ] {
        let refused = house.gantry(&[words, &["--version", &old, "--json"]].concat()).no(5, "");
        assert_eq!(
            serde_json::from_str::<Value>(&refused.err).unwrap()["status"],
            412,
            "{words:?}"
        );
    }
    house.gantry(&["node", "start-maintenance", "n1", "--reason", "disks", "--version", &new]).ok();
    house
        .gantry(&["node", "end-maintenance", "n1", "--reason", "done", "--version", &version("n1")])
        .ok();
    // Without a version, it applies to the newest.
    house.gantry(&["node", "edit", "n1", "--description", "other rack"]).ok();
    let made = house.gantry(&["node", "token", "create", "n1", "--name", "agent", "--json"]).json();
    let token = made["id"].as_str().unwrap();
    let revoke = ["node", "token", "revoke", "n1", token, "--version"];
    house.gantry(&[&revoke[..], &[old.as_str()]].concat()).no(5, "");
    assert!(house.gantry(&["node", "token", "list", "n1"]).ok().contains("agent"));
    house.gantry(&[&revoke[..], &[version("n1").as_str()]].concat()).ok();
    let listed = house.gantry(&["node", "token", "list", "n1", "--json"]).json();
    assert_eq!(
        (listed[0]["id"].as_str(), &listed[0]["valid"]),
        (Some(token), &json!(false)),
        "{listed}"
    );

    let root = house.home.path().join("nodes/n4").to_string_lossy().into_owned();
    house.gantry(&["node", "add", "n4.house.example.com", "--root", &root]).ok();
    house.gantry(&["node", "remove", "n4", "--version", "99"]).no(5, "Reload it");
    house.gantry(&["node", "remove", "n4", "--version", &version("n4")]).ok();
    house.gantry(&["node", "show", "n4"]).no(4, "Node n4 does not exist");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_documents_leave_no_open_proposal() {
    let house = House::new().await;
    let first = house.file("first.yaml", "deployment: web\nbindings: {app: [n1]}\n");
    house.passes(&first);
    // n1 has app in web, so edge can't bind it there. Only the server knows this.
    let both = "deployment: web\nbindings: {app: [n1, n2]}\n---\ndeployment: edge\nbindings: {app: [n1]}\n";
    let both = house.file("both.yaml", both);
    let said = house.gantry(&["apply", "-f", &both, "--json"]).no(5, "");
    let made: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (made.as_array().map(Vec::len), &made[0]["deployment"]),
        (Some(1), &json!("web")),
        "{said:?}"
    );
    house.gantry(&["apply", "-f", &both]).no(5, "Not proposed: edge");
    let open = house.gantry(&["proposal", "list", "--json"]).json();
    let open: Vec<&Value> = open["proposals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["scope"]["deployment"])
        .collect();
    assert_eq!(open, [&json!("web")], "what was opened for edge is closed again");

    // There is nothing left to edit, but the proposal is still submitted, once.
    let web = house.file("web.yaml", "deployment: web\nbindings: {app: [n1, n2]}\n");
    let submit = ["apply", "-f", &web, "--submit", "--title", "Two", "--json"];
    let review = house.gantry(&submit).json()[0]["review"].clone();
    assert!(review.is_number(), "{review}");
    assert_eq!(house.gantry(&submit).json()[0]["review"], review);
    house.committed(&review.to_string(), &[]);
    assert_eq!(house.gantry(&submit).json()[0]["review"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_file_opens_no_proposal() {
    let house = House::new().await;
    // Invalid data: of an existing role, of a new role, and of a noderole.
    let unfit = "deployment: web\ndata:\n  app: {port: x}\n  hello: {hello: {times: y}}\nnode_data:\n  n1: {app: {port: z}}\n";
    let unfit = house.file("unfit.yaml", unfit);
    for command in ["diff", "apply"] {
        let refused = house
            .gantry(&[command, "-f", &unfit])
            .no(2, "unfit.yaml:3:9: Invalid data of app: /port ");
        for place in
            ["unfit.yaml:4:19: Invalid data of hello", "unfit.yaml:6:14: Invalid data of app"]
        {
            assert!(refused.err.contains(place), "{refused:?}");
        }
    }
    let opened = house.gantry(&["audit", "list", "--json"]).ok();
    assert!(
        !opened.contains("proposal.open"),
        "no proposal was opened, not for a moment either: {opened}"
    );
    let file =
        house.file("wrong.yaml", "deployment: web\nbindings:\n  ap: [n1]\n  app: [n1, n33]\n");
    for command in ["apply", "diff"] {
        let said =
            house.gantry(&[command, "-f", &file]).no(2, "wrong.yaml:4:13: Node n33 does not exist");
        assert_eq!(said.out, "", "{command}");
    }
    let file = house.file("role.yaml", "deployment: web\nbindings:\n  ap: [n1]\n");
    house
        .gantry(&["apply", "-f", &file])
        .no(2, "role.yaml:3:3: Deployment web has no role ap, and no role of that name can be added (did you mean app?).");
    let file = house.file("name.yaml", "deployment: wob\n");
    house.gantry(&["apply", "-f", &file]).no(4, "did you mean web?");
    house.gantry(&["apply", "-f", "/nowhere"]).no(2, "Cannot read /nowhere");
    house.told(&["apply", "-f", "-"], "").no(4, "No declarations in -");
    assert_eq!(house.gantry(&["proposal", "list", "--json"]).json()["proposals"], json!([]));

    house.gantry(&["converge", "web"]).no(4, "has no noderoles");
    house.gantry(&["converge", "wob"]).no(4, "did you mean web?");
    house.gantry(&["converge", "--all"]).no(4, "No deployment has noderoles");
    house.gantry(&["converge"]).no(2, "DEPLOYMENT");
    house.gantry(&["converge", "--blueprint", "1"]).no(4, "has no steps of its own");
    house.gantry(&["converge", "--blueprint", "99"]).no(4, "");
    house.gantry(&["deployment", "show", "wob"]).no(4, "did you mean web?");
    house.gantry(&["node", "show", "n9"]).no(4, "Node n9 does not exist");
    house.gantry(&["review", "show", "99", "--json"]).no(4, "\"status\":404");

    let nobody = |words: &[&str]| {
        let output = house
            .command(words)
            .env("GANTRY_SERVER", "http://127.0.0.1:1")
            .env("GANTRY_TOKEN", "gantry_x")
            .output();
        Said::of(words, output.unwrap())
    };
    nobody(&["overview"]).no(3, "Cannot reach http://127.0.0.1:1");
    nobody(&["diff", "-f", &file]).no(3, "");
    let json = nobody(&["node", "list", "--json"]).no(3, "");
    assert_eq!(serde_json::from_str::<Value>(&json.err).unwrap()["exit"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_file_is_added_atomically() {
    let house = House::new().await;
    let root = |n: u32| house.home.path().join(format!("many/{n}")).to_string_lossy().into_owned();
    let wrong = format!("# rack 1\nm1.rack1.example.com root={}\nm2 root={}\n", root(1), root(2));
    let file = house.file("wrong.txt", &wrong);
    let refused = house.gantry(&["node", "add", "--file", &file]).no(5, "line 3: ");
    assert!(
        refused.err.contains("No node was added") && !refused.err.contains("line 2: "),
        "{refused:?}"
    );
    let json = house.gantry(&["node", "add", "-f", &file, "--json"]).no(5, "");
    assert_eq!(serde_json::from_str::<Value>(&json.err).unwrap()["errors"][0]["at"], "line 3");
    house
        .gantry(&["node", "add", "m3.rack1.example.com", "-f", &file])
        .no(2, "cannot be used with");
    house.gantry(&["node", "add", "-f", &root(3)]).no(2, "Cannot read ");

    let good = wrong.replace("m2 ", "m2.rack1.example.com ");
    let made = house.told(&["node", "add", "-f", "-"], &good).ok();
    assert_eq!(made, "Added 2 nodes:\n  m1.rack1.example.com\n  m2.rack1.example.com\n");
    house.told(&["node", "add", "-f", "-", "--json"], &good).no(5, "\"nodes_refused\"");
    let there = house.gantry(&["node", "list", "--filter", "rack1", "--json"]).json();
    assert_eq!(there["nodes"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_lists_are_paged_and_updated() {
    let house = House::new().await;
    let nodes = house.gantry(&["node", "list", "--limit", "2", "--json"]).json();
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&nodes["next"], &nodes["omitted"]),
        (&Value::Null, &json!(1)),
        "a page is cut, and that is told"
    );
    let targets = house.gantry(&["blueprint", "list", "--json"]).json();
    assert_eq!(targets["head"], json!(1), "all that REST answers: {targets}");
    let all = house.gantry(&["node", "list", "--all", "--json"]).json();
    assert_eq!((all["nodes"].as_array().map(Vec::len), &all["next"]), (Some(3), &Value::Null));
    let sessions = house.gantry(&["session", "list", "--json"]).json();
    assert!(
        sessions["sessions"].is_array() && sessions["next"].is_null(),
        "a page like all others: {sessions}"
    );
    let tokens =
        house.gantry(&["token", "list", "--valid", "true", "--sort", "name", "--json"]).json();
    assert!(
        tokens["tokens"].is_array() && tokens["next"].is_null(),
        "a page like all others: {tokens}"
    );
    let table = house.gantry(&["node", "list", "--filter", "n2"]).ok();
    assert!(table.starts_with("NAME ") && table.lines().count() == 2, "{table}");
    for words in [
        &["overview"][..],
        &["policy"],
        &["pending"],
        &["pending", "--sort", "-since"],
        &["workers"],
        &["background-tasks"],
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
        assert!(!house.gantry(words).ok().is_empty(), "{words:?}");
    }
    let board = house.gantry(&["deployment", "show", "web"]);
    assert_eq!(board.err, "", "a board is no list, so it has no --all");
    house.gantry(&["person", "list"]).no(6, "");
    house.gantry(&["api", "GET", "nodes"]).no(2, "Invalid path nodes");
    house.gantry(&["search", ""]).no(2, "Enter a search text");
    let order = house.gantry(&["run", "list", "--sort", "nope"]).no(2, "unknown sort order");
    assert!(!order.err.contains("query parameters"), "without the part about the URL: {order:?}");
    house.gantry(&["review", "approve", "null"]).no(2, "The review must be a number");
    house.gantry(&["blueprint", "show", "first"]).no(2, "The blueprint must be a number");
    let wrong = house
        .gantry(&["run", "list", "--limit", "0", "--json"])
        .no(2, "must be a whole number of at least 1");
    let wrong: Value = serde_json::from_str(&wrong.err).unwrap();
    assert_eq!(wrong["exit"], 2, "{wrong}");
    assert!(
        house.gantry(&["run", "list", "--help", "--json"]).ok().contains("Usage:"),
        "help is no error"
    );
    let nothing = house.home.path().join("nothing").to_string_lossy().into_owned();
    house.gantry(&["audit", "verify", &nothing]).no(2, "Cannot read ");
    let other = house.file("other.jsonl", "{}\n");
    house.gantry(&["audit", "verify", &other]).no(1, "Invalid export");

    let watch = |words: &[&str]| {
        let mut command = house.command(words);
        let mut child =
            Worker(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        (child, lines)
    };
    let (_tokens, mut lines) = watch(&["node", "token", "list", "n1", "--watch", "--json"]);
    assert_eq!(lines.next().unwrap().unwrap(), "[]");
    house.gantry(&["node", "token", "create", "n1", "--name", "agent"]).ok();
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
    house.gantry(&["deployment", "propose", "edge"]).ok();
    assert_eq!(open(lines.next().unwrap().unwrap()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn converge_waits_and_log_is_shown() {
    let house = House::new().await;
    let file = house.file("web.yaml", "deployment: web\nbindings: {app: [n1], hello: [n2]}\n");
    let target = house.passes(&file);
    let late = house.gantry(&["converge", "web", "--timeout", "1s"]).no(124, "--timeout");
    assert!(late.out.is_empty(), "{late:?}");
    house.gantry(&["deployment", "hold", "web", "--reason", "disks"]).ok();
    let worker = house.worker();
    // The worker finds the nodes first. After that, nothing happens without a person.
    for command in [
        ["converge", "web"].as_slice(),
        &["wait", "deployment", "web"],
        &["converge", "--blueprint", &target],
    ] {
        let held = house.gantry(&[command, &["--timeout", "90s"]].concat()).no(1, "need a person");
        assert!(held.out.contains("eployment web was put on hold by"), "{held:?}");
    }
    house.gantry(&["deployment", "release", "web", "--reason", "done"]).ok();
    house.gantry(&["wait", "deployment", "web", "--timeout", "90s"]).ok();
    assert!(house.gantry(&["converge", "--blueprint", &target]).ok().contains("is converged"));
    assert!(house.gantry(&["converge", "--all"]).ok().contains("Deployment web is converged"));
    drop(worker);

    let runs = house.gantry(&["run", "list", "--role", "hello", "--json"]).json();
    let run = runs["runs"][0]["id"].to_string();
    let log = house.gantry(&["logs", &run, "--follow"]).ok();
    assert!(log.contains("hello from here\ncoloured\n") && !log.contains('\x1b'), "{log:?}");
    let raw = house.gantry(&["logs", &run, "--raw"]).ok();
    assert!(raw.contains("col\x1b[31moured\x1b]0;title\x07\u{9b}m\n"), "{raw:?}");
    let json = house.gantry(&["logs", &run, "--json"]).ok();
    assert!(json.contains("\\u001b[31m") && json.contains("\\u009b"), "{json:?}");
    let behind = house.gantry(&["logs", &run, "--since-byte", "5"]).ok();
    assert_eq!(behind, log[5..], "from a byte on, without gap");
    let found = house.gantry(&["logs", &run, "--find", "HELLO from", "--any-case"]).ok();
    assert!(found.lines().count() == 1 && found.ends_with(": hello from here\n"), "{found}");
    let none = house.gantry(&["logs", &run, "--find", "HELLO from"]).no(4, "No line of run");
    assert!(!none.err.contains("so far"), "it has ended: {none:?}");
    assert_eq!(
        house.gantry(&["logs", &run, "--since-byte", "-99999"]).ok(),
        log,
        "counted from its end"
    );
    house.gantry(&["logs", &run, "--find", ""]).no(2, "--find");
    house
        .gantry(&["logs", &run, "--since-byte", "99999"])
        .no(2, "99999 is after the end of the log");
    house.gantry(&["node", "list", "--sort", "colour"]).no(2, "unknown sort order");
    house.gantry(&["pending", "--reason", "zzz"]).no(2, "zzz");
    assert_eq!(
        house.gantry(&["pending", "--reason", "failed"]).ok(),
        "No pending steps with this reason.\n"
    );
    house.gantry(&["pending", "--sort", "colour"]).no(2, "unknown sort order");
    house.gantry(&["run", "list", "--since", "99999999h"]).no(2, "before the year 1");
    let page = house.gantry(&["run", "show", &run]).ok();
    assert!(
        page.starts_with(&format!("Run {run}: hello on n2.house.example.com, succeeded\n")),
        "{page}"
    );
    let page = house.gantry(&["noderole", "show", "n2/hello"]).ok();
    assert!(page.starts_with("hello on n2.house.example.com: ACTIVE, since "), "{page}");
    house.gantry(&["workers", "nobody"]).no(4, "Worker nobody does not exist");
    let worker = house.gantry(&["workers", "--json"]).json()["workers"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let page = house.gantry(&["workers", &worker]).ok();
    assert!(
        page.starts_with(&format!("Worker {worker}: ")) && page.contains("\n  leased "),
        "{page}"
    );
    let page = house.gantry(&["node", "show", "n2"]).ok();
    assert!(page.starts_with("n2.house.example.com: ") && page.contains("\nhello "), "{page}");
    let page = house.gantry(&["role", "show", "hello"]).ok();
    assert!(page.starts_with("Role hello: of ") && page.contains("\nweb "), "{page}");
    assert_eq!(house.gantry(&["role", "script", "hello"]).ok(), SCRIPT, "as it is");
    let script = house
        .gantry(&["role", "script", "hello", "10-say", "--barclamp", "house", "--json"])
        .json();
    assert_eq!(script["text"], SCRIPT);
    assert_eq!(
        house.gantry(&["role", "script", "--hash", script["hash"].as_str().unwrap()]).ok(),
        SCRIPT
    );
    house.gantry(&["role", "script", "hello", "10-sag"]).no(4, "did you mean 10-say?");
    house.gantry(&["role", "script", "app"]).no(4, "Role app has no scripts");
    house.gantry(&["role", "script"]).no(2, "ROLE");
    let graph = house.gantry(&["deployment", "graph", "web"]).ok();
    assert!(
        graph.starts_with("web: ") && graph.contains("ACTIVE") && graph.contains(" web:app\n"),
        "{graph}"
    );
    let near =
        house.gantry(&["deployment", "graph", "web", "--focus", "web:app", "--roles", "app"]);
    assert!(near.ok().contains("app on n1"), "{near:?}");
    house.gantry(&["deployment", "graph", "web", "--focus", "web:none"]).no(4, "");
    house.gantry(&["deployment", "graph", "web", "--steps", "2"]).no(2, "--focus");
    let carriers = house.gantry(&["deployment", "noderoles", "web", "app"]).ok();
    assert!(carriers.contains("n1.house.example.com  ACTIVE"), "{carriers}");
    house.gantry(&["wait", "run", &run]).ok();
    house.gantry(&["logs", "999999"]).no(4, "");
}
