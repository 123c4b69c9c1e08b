//! The system under test: a database, servers and workers as processes of the built program, and
//! nodes with real SSH servers.
//!
//! Times are scaled down: a lease is 6 seconds instead of 60, and all timeouts accordingly.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use api::nodes::{NodeRequest, SshRequest};
use control::people::{ClientInfo, NewPerson, People, Permission};
use control::{Control, Demo, DemoDeployment};
use engine::gate::Policy;
use engine::ids::{DeploymentName, RoleName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_postgres::{DATABASE, PrivatePostgres, Settings};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use store::{Connecting, Store};
use tempfile::TempDir;
use testbed::Testbed;

use crate::clock;
use crate::namespace;
use crate::rest::{Client, RequestFailure};

pub const LEASE: Duration = Duration::from_secs(6);
/// Timeout for any condition on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The deployments. Nodes are assigned to them in turn.
pub const DEPLOYMENTS: [&str; 2] = ["east", "west"];
const ROLES: [&str; 9] = ["base", "left", "right", "top", "flaky", "aside", "hub", "spoke", "wipe"];

pub struct World {
    // Fields are dropped in this order.
    pub workers: Vec<Worker>,
    pub servers: Vec<Server>,
    pub testbed: Testbed,
    pub nodes: Vec<Machine>,
    pub people: [String; 2],
    pub deployments: BTreeMap<&'static str, String>,
    /// The superuser's connections, without restrictions.
    pub admin: PgPool,
    pub postgres: PrivatePostgres,
    pub folder: TempDir,
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub id: String,
    pub deployment: &'static str,
    pub root: PathBuf,
}

impl World {
    /// Starts everything except servers and workers.
    pub async fn of(nodes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let postgres = PrivatePostgres::start(Settings::throwaway(folder.path().join("postgres")))
            .await
            .unwrap();
        let admin = PgPoolOptions::new()
            .max_connections(6)
            .connect_lazy(&postgres.admin_url(DATABASE))
            .unwrap();
        // Committed data must survive a crash of PostgreSQL, as in production. (Power failures of
        // the host are not tested, so fsync is not needed.)
        for setting in ["ALTER SYSTEM SET synchronous_commit = on", "SELECT pg_reload_conf()"] {
            sqlx::raw_sql(setting).execute(&admin).await.unwrap();
        }
        migrations::migrate_url(&postgres.owner_url(DATABASE), &migrations::Roles::default())
            .await
            .unwrap();
        let store = Store::open(&Connecting::to(postgres.server_url(DATABASE))).unwrap();
        let reach = engine::reach::Policy { allow_local: true, ..Default::default() };
        let control = Control::new(store.clone()).with_address_policy(reach);
        control.import_barclamps(None, &barclamp()).await.unwrap();
        let deployment = |name: &&'static str| DemoDeployment {
            name: DeploymentName::parse(name).unwrap(),
            roles: ROLES.iter().map(|role| RoleName::parse(role).unwrap()).collect(),
        };
        let demo =
            Demo { deployments: DEPLOYMENTS.iter().map(deployment).collect(), nodes: Vec::new() };
        let policy = Policy { approvals: 1, by_risk: BTreeMap::new(), ..Policy::default() };
        control.ensure_genesis(&policy, &demo).await.unwrap();
        let owner = Store::open(&Connecting::to(postgres.owner_url(DATABASE))).unwrap();
        let people = People::over(owner.clone());
        let people = [session(&people, "ada").await, session(&people, "bo").await];
        owner.pool().close().await;
        let start = {
            let folder = folder.path().to_owned();
            move || Testbed::start(&folder.join("testbed"), &folder.join("secrets"), nodes)
        };
        let testbed = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        for node in testbed.nodes() {
            control.ensure_node(node_request(node)).await.unwrap();
        }
        let machines: Vec<(String, String)> = sqlx::query_as(
            "SELECT id::text, connection->>'root' FROM node WHERE transport = 'ssh' ORDER BY fqdn",
        )
        .fetch_all(&admin)
        .await
        .unwrap();
        let nodes = machines.into_iter().zip(DEPLOYMENTS.iter().cycle());
        let nodes = nodes
            .map(|((id, root), deployment)| Machine { id, deployment, root: PathBuf::from(root) })
            .collect();
        let deployments: Vec<(String, String)> =
            sqlx::query_as("SELECT name, id::text FROM deployment WHERE parent IS NOT NULL")
                .fetch_all(&admin)
                .await
                .unwrap();
        let of =
            |name: &str| deployments.iter().find(|(known, _)| known == name).unwrap().1.clone();
        let deployments = DEPLOYMENTS.iter().map(|name| (*name, of(name))).collect();
        store.pool().close().await;
        Self {
            workers: Vec::new(),
            servers: Vec::new(),
            testbed,
            nodes,
            people,
            deployments,
            admin,
            postgres,
            folder,
        }
    }

    /// Like `of`, with one server and some workers.
    pub async fn running(nodes: usize, workers: usize) -> Self {
        let mut world = Self::of(nodes).await;
        world.start_server();
        for _ in 0..workers {
            world.start_worker();
        }
        world
    }

    pub fn start_server(&mut self) {
        assert!(self.try_server(), "{}", self.logs());
    }

    /// Returns false if it exits at once, because the database is unavailable.
    pub fn try_server(&mut self) -> bool {
        let server = Server::start(&self.postgres.server_url(DATABASE), &self.log("server"));
        let serves = !server.address.is_empty();
        if serves {
            self.servers.push(server);
        }
        serves
    }

    pub fn start_worker(&mut self) {
        self.start_worker_at(0);
    }

    /// Starts a worker whose clock is off by this number of seconds.
    pub fn start_worker_at(&mut self, offset: i64) {
        let preload = (offset != 0).then(|| clock::shim(self.folder.path()));
        let mut command = gantry(&self.postgres.worker_url(DATABASE), &self.log("worker"));
        command.args([
            "worker",
            "--until-orphaned",
            "--lease",
            "6",
            "--sweep",
            "1",
            "--health-check-interval",
            "3",
        ]);
        command.env("GANTRY_WORKER_FOLDER", self.folder.path().join("worker"));
        command.env("GANTRY_SECRETS", self.testbed.secrets());
        command.env("GANTRY_LOG", "info");
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload).env(clock::OFFSET, offset.to_string());
        }
        let worker = Worker(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        self.workers.push(worker);
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// The programs' logs, for the messages of failing tests.
    pub fn logs(&self) -> String {
        let read = |name: &str| {
            let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(60)..].join("\n"))
        };
        read("server") + &read("worker")
    }

    pub fn ada(&self) -> Client {
        self.client(0)
    }

    fn client(&self, person: usize) -> Client {
        Client { server: self.servers[0].address.clone(), cookie: self.people[person].clone() }
    }

    /// The programs' error logs, without errors that a fault explains.
    pub fn errors(&self) -> Vec<String> {
        let of = |name: &str| std::fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines = of("server") + &of("worker");
        lines
            .lines()
            .filter(|line| line.contains(" ERROR ") || line.contains("panicked"))
            .map(str::to_owned)
            .collect()
    }

    pub fn bind(&self, node: usize, role: &str) -> Value {
        let node = &self.nodes[node];
        json!(
            {
                "edit": "bind", "deployment": self.deployments[node.deployment], "node": node.id,
                "role": role
            }
        )
    }

    /// Proposes and approves a change.
    pub async fn approved(
        &self,
        deployment: &str,
        edits: Vec<Value>,
    ) -> Result<i64, RequestFailure> {
        approved(&self.client(0), &self.client(1), deployment, edits).await
    }

    pub async fn commit(&self, review: i64) -> Result<i64, RequestFailure> {
        commit(&self.client(0), review).await
    }

    /// Proposes, approves and commits a change.
    pub async fn change(&self, deployment: &str, edits: Vec<Value>) -> i64 {
        let changed = async {
            let review = self.approved(deployment, edits).await?;
            commit_named(&self.client(0), review, deployment).await
        };
        changed.await.unwrap_or_else(|refused: RequestFailure| panic!("{refused}\n{}", self.logs()))
    }

    /// A person retries a step in ERROR.
    pub async fn retry(&self, node: usize, role: &str) {
        let noderole: String = sqlx::query_scalar(
            "SELECT id::text FROM noderole WHERE node_id = $1::uuid AND role = $2",
        )
        .bind(&self.nodes[node].id)
        .bind(role)
        .fetch_one(&self.admin)
        .await
        .unwrap();
        let retried = self
            .ada()
            .post(&format!("/noderoles/{noderole}/retry"), json!({"reason": "looked at it"}))
            .await;
        retried.unwrap_or_else(|refused| panic!("{refused}\n{}", self.logs()));
    }

    /// Counts rows in the database.
    pub async fn count(&self, from: &str) -> i64 {
        let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {from}"));
        sqlx::query_scalar(query).fetch_one(&self.admin).await.unwrap()
    }

    /// Waits until this number of rows exists.
    pub async fn until(&self, count: i64, from: &str) {
        let begun = Instant::now();
        loop {
            let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {from}"));
            let found: Result<i64, sqlx::Error> =
                sqlx::query_scalar(query).fetch_one(&self.admin).await;
            if found.as_ref().is_ok_and(|found| *found == count) {
                return;
            }
            if begun.elapsed() > PATIENCE {
                panic!(
                    "expected {count}, found {found:?}: {from}\n{}\n{}",
                    self.picture().await,
                    self.logs()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until this number of steps exists and all are ACTIVE.
    pub async fn converged(&self, steps: i64) {
        self.until(steps, "step WHERE state = 'active' AND applied_generation = generation").await;
        assert_eq!(self.count("step").await, steps);
    }

    /// Steps and runs, for the messages of failing tests.
    pub async fn picture(&self) -> String {
        let lines: Result<Vec<String>, _> = sqlx::query_scalar(
            "SELECT concat_ws(' ', n.role, d.fqdn, s.state, s.generation, s.applied_generation,
                 s.failures, CASE WHEN s.not_before > now() THEN s.not_before - now() END,
                 s.pending, s.error)
             FROM step s JOIN noderole n ON n.id = s.noderole_id JOIN node d ON d.id = s.node_id
             UNION ALL (SELECT concat_ws(' ', 'run', id, state, outcome, worker_id, lease_until -
             now(), error) FROM run ORDER BY id DESC LIMIT 30)
             UNION ALL SELECT concat_ws(' ', fqdn, alive, contradicting_checks) FROM node WHERE NOT
             phantom
             UNION ALL (SELECT concat_ws(' ', 'health check', at, detail) FROM health_check WHERE
             NOT reached ORDER BY at DESC LIMIT 10)
             UNION ALL SELECT concat_ws(' ', name, phase, lease_until - now()) FROM worker
             UNION ALL SELECT concat_ws(' ', pid, state, wait_event, now() - xact_start,
             left(query, 80)) FROM pg_stat_activity WHERE datname = current_database()",
        )
        .fetch_all(&self.admin)
        .await;
        lines.map_or_else(|error| error.to_string(), |lines| lines.join("\n"))
    }

    /// Waits until a run's script has started on its node. Returns the attempt.
    pub async fn started(&self, node: usize, role: &str, after: i64) -> i64 {
        let begun = Instant::now();
        loop {
            let lines = crate::evidence::journal(&self.nodes[node].root);
            let found = lines.iter().rev().find_map(|line| match line {
                crate::checker::Line::Start { run, role: its, .. }
                    if its == role && *run > after =>
                {
                    Some(*run)
                }
                _ => None,
            });
            match found {
                Some(run) => return run,
                None if begun.elapsed() > PATIENCE => {
                    panic!(
                        "{role} did not start on node {node}\n{}\n{}",
                        self.picture().await,
                        self.logs()
                    );
                }
                None => tokio::time::sleep(Duration::from_millis(30)).await,
            }
        }
    }

    /// Prevents runs of a role from ending, or lets them end.
    pub fn keep(&self, node: usize, role: &str, keep: bool) {
        let file = self.nodes[node].root.join(format!("wait-{role}"));
        if keep {
            std::fs::write(file, "").unwrap();
        } else {
            std::fs::remove_file(file).unwrap();
        }
    }

    pub fn journal(&self, node: usize) -> Vec<crate::checker::Line> {
        crate::evidence::journal(&self.nodes[node].root)
    }

    /// Whether any process of a run is on a node.
    pub fn exists(&self, node: usize, run: i64) -> bool {
        let root = self.nodes[node].root.to_string_lossy().into_owned();
        let (run, root) = (format!("GANTRY_RUN={run}"), format!("GANTRY_ROOT={root}"));
        processes().any(|pid| {
            let words = read_of(pid, "environ");
            let has = |expected: &str| {
                words.split(|byte| *byte == 0).any(|word| word == expected.as_bytes())
            };
            has(&run) && has(&root)
        })
    }

    /// Waits until no process of a run is on a node.
    pub async fn gone_from(&self, node: usize, run: i64) {
        let begun = Instant::now();
        while self.exists(node, run) {
            assert!(
                begun.elapsed() < PATIENCE,
                "run {run} did not end on node {node}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Keeps a node's disk full until a condition is true.
    pub async fn full_until(&self, node: usize, from: &str) {
        let begun = Instant::now();
        while self.count(from).await == 0 {
            assert!(
                begun.elapsed() < PATIENCE,
                "{from}\n{}\n{}",
                self.picture().await,
                self.logs()
            );
            self.fill_disk(node, true);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Fills a node's disk to its last byte, or frees it again.
    pub fn fill_disk(&self, node: usize, full: bool) {
        namespace::fill(&self.nodes[node].root, full);
    }

    /// Replaces or restores the host key of a node's server.
    pub fn other_host_key(&mut self, node: usize, other: bool) {
        let folder = self.testbed.nodes()[node].root.parent().unwrap().to_owned();
        let files = ["host_key", "host_key.pub"];
        let node = self.testbed.node(node);
        node.stop();
        if other {
            for file in files {
                std::fs::copy(folder.join(file), folder.join(format!("own_{file}"))).unwrap();
            }
            node.replace_host_key().unwrap();
        } else {
            for file in files {
                std::fs::copy(folder.join(format!("own_{file}")), folder.join(file)).unwrap();
            }
        }
        node.restart().unwrap();
    }

    /// Changes a setting of PostgreSQL and reloads it.
    pub async fn set_postgres(&self, setting: &str) {
        let set = sqlx::AssertSqlSafe(format!("ALTER SYSTEM SET {setting}"));
        sqlx::raw_sql(set).execute(&self.admin).await.unwrap();
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&self.admin).await.unwrap();
    }

    /// Ends PostgreSQL with a signal and waits for its end.
    pub fn end_postgres(&mut self, signal: Signal) {
        let file = self.folder.path().join("postgres/data/postmaster.pid");
        let text = std::fs::read_to_string(file).unwrap();
        kill(Pid::from_raw(text.lines().next().unwrap().trim().parse().unwrap()), signal).unwrap();
        let begun = Instant::now();
        while self.postgres.is_running() {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL did not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Repeatedly closes every connection that listens for notifications.
    pub async fn block_notifications(&self) -> NotificationBlock {
        let admin = self.admin.clone();
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let cutting = tokio::spawn(async move {
            let mut cut = 0;
            while stopped.try_recv().is_err() {
                let listening: Result<i64, sqlx::Error> = sqlx::query_scalar(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query \
                     ILIKE 'listen%'",
                )
                .fetch_one(&admin)
                .await;
                cut += listening.unwrap_or_default();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            cut
        });
        NotificationBlock { stop, cutting }
    }

    /// Kills all runs on a node. Its connection still works.
    pub fn kill_on(&self, node: usize) {
        kill_all_of(&self.nodes[node].root);
    }

    /// Kills everything on a node, like a power failure.
    pub fn crash(&mut self, node: usize) {
        self.testbed.node(node).stop();
        kill_all_of(&self.nodes[node].root);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        self.workers.clear();
        self.servers.clear();
        // Scripts continue without their workers, and no worker will return for them.
        for node in &self.nodes {
            kill_all_of(&node.root);
        }
    }
}

/// Prevents notifications until it is stopped.
pub struct NotificationBlock {
    stop: tokio::sync::oneshot::Sender<()>,
    cutting: tokio::task::JoinHandle<i64>,
}

impl NotificationBlock {
    /// Returns the number of closed connections.
    pub async fn stop(self) -> i64 {
        let _ = self.stop.send(());
        self.cutting.await.unwrap()
    }
}

/// All processes except this one.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != std::process::id().cast_signed())
}

pub fn read_of(pid: i32, file: &str) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// Kills every process that has a node's folder in its arguments or environment.
fn kill_all_of(root: &Path) {
    let root = root.to_string_lossy().into_owned();
    for _ in 0..3 {
        for pid in processes() {
            let words = [read_of(pid, "cmdline"), read_of(pid, "environ")].concat();
            let mut words = words.split(|byte| *byte == 0);
            if words.any(|word| {
                word == root.as_bytes() || word == format!("GANTRY_ROOT={root}").as_bytes()
            }) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

fn barclamp() -> BTreeMap<String, Vec<u8>> {
    let script = include_bytes!("journal/run.sh").to_vec();
    let mut files = BTreeMap::from([(
        "journal/journal.yml".to_owned(),
        include_bytes!("journal/journal.yml").to_vec(),
    )]);
    files.extend(ROLES.map(|role| (format!("journal/scripts/{role}/10-run"), script.clone())));
    files
}

async fn session(people: &People, name: &str) -> String {
    let everything = [Permission::Operator, Permission::Reviewer];
    let person = people.create_person(None, &NewPerson::human(name, everything)).await.unwrap();
    let token = people.create_sign_in_link(None, person, Duration::from_secs(600)).await.unwrap();
    let visitor = ClientInfo { address: None, user_agent: "a test".to_owned() };
    let session = people.sign_in(token.reveal(), &visitor, None).await.unwrap().session;
    format!("gantry_session={}", session.reveal())
}

fn node_request(node: &testbed::Node) -> NodeRequest {
    let ssh = SshRequest {
        addresses: vec![node.address.to_string()],
        port: testbed::PORT,
        user: node.user.clone(),
        key: testbed::KEY.into(),
        key_version: 1,
        host_key: node.host_key.clone(),
    };
    let fqdn = format!("{}.faults.gantry.internal", node.name);
    NodeRequest { ssh: Some(ssh), ..NodeRequest::named(fqdn, node.root.to_string_lossy()) }
}

/// Proposes a change as one person and approves it as another. First undoes the edits that an
/// earlier attempt left in the proposal.
pub async fn approved(
    author: &Client,
    reviewer: &Client,
    deployment: &str,
    edits: Vec<Value>,
) -> Result<i64, RequestFailure> {
    let board = format!("/deployments/{deployment}/board");
    let propose = format!("/deployments/{deployment}/proposals");
    let mut proposal = author.post(&propose, json!({})).await?["proposal"].clone();
    let mut version = author.get(&board).await?["proposal"]["version"].clone();
    if version != json!(0) {
        author.post(&format!("/proposals/{proposal}/discard"), json!({"version": version})).await?;
        proposal = author.post(&propose, json!({})).await?["proposal"].clone();
        version = author.get(&board).await?["proposal"]["version"].clone();
    }
    let edits = json!({"version": version, "edits": edits});
    let version =
        author.post(&format!("/proposals/{proposal}/edits"), edits).await?["version"].clone();
    let submit = json!({"version": version, "title": "a change"});
    let review =
        author.post(&format!("/proposals/{proposal}/submit"), submit).await?["review"].clone();
    reviewer.post(&format!("/reviews/{review}/verdicts"), json!({"kind": "approve"})).await?;
    Ok(review.as_i64().unwrap_or_default())
}

pub async fn commit(author: &Client, review: i64) -> Result<i64, RequestFailure> {
    commit_with(author, review, json!({})).await
}

/// Commits with the confirmation for irreversible changes: the name of the proposal's deployment.
pub async fn commit_named(author: &Client, review: i64, name: &str) -> Result<i64, RequestFailure> {
    commit_with(author, review, json!({"name": name})).await
}

async fn commit_with(author: &Client, review: i64, body: Value) -> Result<i64, RequestFailure> {
    let committed = author.post(&format!("/reviews/{review}/commit"), body).await?;
    Ok(committed["blueprint"].as_i64().unwrap_or_default())
}

fn gantry(url: &str, log: &Path) -> Command {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
    command.env("DATABASE_URL", url).env_remove("GANTRY_OWNER_URL").stderr(log);
    // The testbed's nodes have loopback addresses.
    command.env("GANTRY_ALLOW_LOOPBACK_NODES", "true");
    command
}

/// A server process. It is killed on drop.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start(url: &str, log: &Path) -> Self {
        let mut command = gantry(url, log);
        command.args(["server", "--listen", "127.0.0.1:0"]).env("GANTRY_LOG", "warn");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut text).unwrap();
        let address = text.trim().trim_start_matches("http://").to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker process. It is killed on drop.
pub struct Worker(Child);

impl Worker {
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
