//! A database, a server, a worker, two nodes, and two people with all permissions: ada and bo.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use control::people::{NewPerson, People, Permission};
use control::{Control, Demo, DemoDeployment};
use engine::gate::Policy;
use engine::ids::{DeploymentName, Fqdn, RoleName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_postgres::{DATABASE, PrivatePostgres, Settings};
use serde_json::Value;
use sqlx::PgPool;
use store::{Connecting, Store};
use tempfile::TempDir;

/// Timeout for any condition on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// The setup of an installation.
pub struct Plan {
    /// Barclamps as files by name.
    pub barclamps: Vec<(&'static str, String)>,
    /// The roles that `web` may bind.
    pub roles: Vec<&'static str>,
    /// Additional environment variables of servers and workers.
    pub environment: Vec<(&'static str, String)>,
    /// A password in the database's URL. (PostgreSQL authenticates by account here and ignores it.)
    pub password: Option<&'static str>,
}

pub struct Installation {
    // Fields are dropped in this order.
    pub worker: Option<Process>,
    pub server: Option<Process>,
    pub address: String,
    pub postgres: PrivatePostgres,
    pub folder: TempDir,
    plan: Plan,
}

/// Killed on drop.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Checks the exit code and the output of a failed command.
    #[track_caller]
    pub fn no(self, code: i32, message: &str) -> Self {
        assert!(
            self.code == Some(code) && self.err.contains(message),
            "{code}, {message:?}: {self:?}"
        );
        self
    }
}

impl Installation {
    /// Starts a server, but no worker.
    pub async fn of(plan: Plan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let postgres = PrivatePostgres::start(Settings::throwaway(folder.path().join("postgres")))
            .await
            .unwrap();
        migrations::migrate_url(&postgres.owner_url(DATABASE), &migrations::Roles::default())
            .await
            .unwrap();
        let mut installation =
            Self { worker: None, server: None, address: String::new(), postgres, folder, plan };
        let store = installation.store();
        installation.furnish(&store).await;
        installation.start_server();
        installation.can_sign_in("bo").await;
        installation.can_sign_in("ada").await;
        store.pool().close().await;
        installation
    }

    async fn furnish(&self, store: &Store) {
        let control = Control::new(store.clone());
        let files = self
            .plan
            .barclamps
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes()));
        control.import_barclamps(None, &files.collect()).await.unwrap();
        let roles = self.plan.roles.iter().map(|role| RoleName::parse(role).unwrap()).collect();
        let web = DemoDeployment { name: DeploymentName::parse("web").unwrap(), roles };
        let node = |n: usize| {
            std::fs::create_dir_all(self.root(n)).unwrap();
            (
                Fqdn::parse(&format!("n{n}.house.example.com")).unwrap(),
                self.root(n).to_string_lossy().into_owned(),
            )
        };
        let demo = Demo { deployments: vec![web], nodes: (1..=2).map(node).collect() };
        control.ensure_genesis(&Policy::default(), &demo).await.unwrap();
        let owner = self.owner_store();
        let people = People::over(owner.clone());
        for name in ["ada", "bo"] {
            let may = [Permission::Operator, Permission::Reviewer, Permission::Admin];
            people.create_person(None, &NewPerson::human(name, may)).await.unwrap();
        }
        owner.pool().close().await;
    }

    /// The database with the application's role. Close it before dropping the database.
    pub fn store(&self) -> Store {
        Store::open(&Connecting::to(self.postgres.server_url(DATABASE))).unwrap()
    }

    /// The database with the owner's role, which creates people and their links.
    pub fn owner_store(&self) -> Store {
        Store::open(&Connecting::to(self.owner())).unwrap()
    }

    /// The root folder of a node.
    pub fn root(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("nodes/n{n}"))
    }

    /// The workers' folder of secrets.
    pub fn secrets(&self) -> PathBuf {
        self.folder.path().join("secrets")
    }

    /// The programs' logs.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Adds a context for a person, with a one-time link on standard input.
    pub async fn can_sign_in(&self, name: &str) {
        let owner = self.owner_store();
        let people = People::over(owner.clone());
        let person = people.actor_by_name(name).await.unwrap().person;
        let link =
            people.create_sign_in_link(None, person, Duration::from_secs(600)).await.unwrap();
        owner.pool().close().await;
        let words = ["context", "add", name, "--replace", "--server", &self.address];
        self.run_with_input(&words, &format!("{}/sign-in#token={}\n", self.address, link.reveal()))
            .ok();
    }

    fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(words).env("XDG_CONFIG_HOME", self.folder.path().join("config"));
        for variable in
            ["GANTRY_CONTEXT", "GANTRY_SERVER", "GANTRY_TOKEN", "GANTRY_CONFIG", "GANTRY_OWNER_URL"]
        {
            command.env_remove(variable);
        }
        command.env_remove("DATABASE_URL");
        command
    }

    fn serving(&self, role: &str, words: &[&str]) -> Command {
        let log = self.folder.path().join("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let url = match role {
            "gantry_worker" => self.postgres.worker_url(DATABASE),
            _ => self.postgres.server_url(DATABASE),
        };
        let url = match self.plan.password {
            Some(password) => url.replacen(&format!("{role}@"), &format!("{role}:{password}@"), 1),
            None => url,
        };
        let mut command = self.program(words);
        command.env("DATABASE_URL", url).env("GANTRY_LOG", "debug").stderr(log);
        command.envs(self.plan.environment.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }

    pub fn start_server(&mut self) {
        let listen = if self.address.is_empty() {
            "127.0.0.1:0"
        } else {
            self.address.trim_start_matches("http://")
        };
        let mut command = self.serving("gantry_server", &["server", "--listen", listen]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut text).unwrap();
        assert!(text.starts_with("http://"), "{text:?}\n{}", self.log());
        self.address = text.trim().to_owned();
        self.server = Some(Process(child));
    }

    pub fn start_worker(&mut self) {
        let words = [
            "worker",
            "--until-orphaned",
            "--lease",
            "6",
            "--sweep",
            "1",
            "--health-check-interval",
            "1",
        ];
        let mut command = self.serving("gantry_worker", &words);
        command
            .env("GANTRY_WORKER_FOLDER", self.folder.path().join("worker"))
            .env("GANTRY_SECRETS", self.secrets());
        command.env("GANTRY_ALLOW_LOOPBACK_NODES", "true");
        self.worker =
            Some(Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()));
    }

    pub fn run_with_input(&self, words: &[&str], given: &str) -> CommandOutput {
        let mut command = self.program(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(given.as_bytes());
        CommandOutput::of(child.wait_with_output().unwrap())
    }

    /// The database URL of the owner.
    pub fn owner(&self) -> String {
        self.postgres.owner_url(DATABASE)
    }

    /// Runs a command with the owner's URL.
    pub fn as_owner(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(
            self.program(words).env("GANTRY_OWNER_URL", self.owner()).output().unwrap(),
        )
    }

    /// Runs a command with the application's URL.
    pub fn as_application(&self, words: &[&str]) -> CommandOutput {
        let url = self.postgres.server_url(DATABASE);
        CommandOutput::of(self.program(words).env("DATABASE_URL", url).output().unwrap())
    }

    /// Runs a command as ada, unless it names another context.
    pub fn gantry(&self, words: &[&str]) -> CommandOutput {
        self.run_with_input(words, "")
    }

    /// Applies a document and submits it as ada. Returns the review.
    pub fn submitted(&self, document: &str) -> String {
        let file = self.folder.path().join("declared.yaml");
        std::fs::write(&file, document).unwrap();
        let file = file.to_string_lossy();
        let made = self
            .gantry(&["apply", "-f", &file, "--submit", "--title", "A change", "--json"])
            .json();
        made[0]["review"].to_string()
    }

    /// Approves as bo and commits as ada. Returns the target.
    pub fn committed(&self, review: &str) -> String {
        self.gantry(&["review", "approve", review, "--context", "bo"]).ok();
        self.gantry(&["review", "commit", review, "--json"]).json()["blueprint"].to_string()
    }

    /// Connections of the superuser.
    pub async fn admin(&self) -> PgPool {
        PgPool::connect(&self.postgres.admin_url(DATABASE)).await.unwrap()
    }

    /// Stops PostgreSQL until it is started again.
    pub fn loses_its_database(&mut self) {
        let file = self.folder.path().join("postgres/data/postmaster.pid");
        let text = std::fs::read_to_string(file).unwrap();
        kill(Pid::from_raw(text.lines().next().unwrap().trim().parse().unwrap()), Signal::SIGINT)
            .unwrap();
        let begun = Instant::now();
        while self.postgres.is_running() {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL did not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a query counts this number of rows.
    pub async fn counts(&self, query: &'static str, expected: i64) {
        let admin = self.admin().await;
        let begun = Instant::now();
        loop {
            let found: i64 = sqlx::query_scalar(query).fetch_one(&admin).await.unwrap();
            if found == expected {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{query} is {found}, expected {expected}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        admin.close().await;
    }

    /// Waits until this number of noderoles of a role has a state.
    pub async fn reaches(&self, role: &str, state: &str, count: i64) {
        let admin = self.admin().await;
        let begun = Instant::now();
        loop {
            let found: Vec<(String, Option<String>)> = sqlx::query_as(
                "SELECT s.state::text, s.error FROM step s JOIN noderole n ON n.id = s.noderole_id \
                 WHERE n.role = $1",
            )
            .bind(role)
            .fetch_all(&admin)
            .await
            .unwrap();
            if found.iter().filter(|(is, _)| is == state).count() as i64 == count {
                break;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{role} did not become {state}: {found:?}\n{}",
                tail(&self.log())
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        admin.close().await;
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Whether a file contains this text.
pub fn has(file: &Path, text: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|found| found == text)
}
