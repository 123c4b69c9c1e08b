//! `gantry up`: everything on one machine, as one process tree.
//!
//! This process is the server and the supervisor. Below it run the private PostgreSQL (unless `DATABASE_URL` names another one) and
//! one worker, each as a process of its own, so that either may die and is started again while the rest goes on. The worker holds the
//! other end of a pipe to this process and stops by itself when this one is killed; PostgreSQL and the demo's services then run on
//! until the next start, which takes them over.
//!
//! Stopping goes backwards: no new requests; the worker gives its runs their time; the services that ran on the demo's nodes end,
//! as when a machine is switched off; then this process's connections to the database, and PostgreSQL last. Starting boots those nodes
//! again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::people::{NewPerson, People, Permission, PersonKind, START_SIGN_IN_HOLDS};
use control::{Control, Demo, DemoDeployment};
use engine::gate::Policy;
use engine::ids::{DeploymentName, Fqdn, RoleName};
use migrations::Roles;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_postgres::{DATABASE, PrivatePostgres, Settings};
use serde_json::json;
use store::Store;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use worker::boot::{LocalNode, boot, halt};

use crate::signals::Stopping;
use crate::{database, home, migrate, serve, shipped};

/// How long the worker may take to stop: its grace for running jobs, and some.
const WORKER_STOPS: Duration = Duration::from_secs(20);
/// How long open requests may take when it stops.
const SERVER_STOPS: Duration = Duration::from_secs(10);
/// How long statements that are under way may take when it stops.
const STATEMENTS_STOP: Duration = Duration::from_secs(5);
/// How often the children are looked after.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder for everything that is kept [default: /var/lib/gantry for root, else ~/.local/share/gantry]
    #[arg(long, env = "GANTRY_DATA")]
    data: Option<PathBuf>,
    /// Where to listen; port 0 takes any free one [default: 127.0.0.1:7780; `gantry up`: a free port when that one is taken]
    #[arg(long, env = "GANTRY_LISTEN")]
    listen: Option<SocketAddr>,
    /// Under which address people come, when a proxy with HTTPS stands in front: https://gantry.example.com
    #[arg(long, env = "GANTRY_PUBLIC_ADDRESS")]
    public_address: Option<server::PublicAddress>,
    /// The folder with the page's scripts, styles and fonts [default: what this program carries, else target/site]
    #[arg(long, env = "GANTRY_SITE")]
    site: Option<PathBuf>,
    /// Whoever sends this as a bearer may collect /metrics; without it only this machine may
    #[arg(long, env = "GANTRY_METRICS_TOKEN", hide_env_values = true, value_parser = serve::Unsaid)]
    metrics_token: Option<server::MetricsToken>,
    /// Proxies whose X-Forwarded-For is believed: addresses and networks, with commas between them
    #[arg(long, env = "GANTRY_TRUSTED_PROXIES", default_value = server::TrustedProxies::LOOPBACK)]
    trusted_proxies: server::TrustedProxies,
    /// Let nodes be on Gantry's own host, at loopback addresses for one. The same for servers and workers [default: not; `gantry up`: if it
    /// listens on loopback]
    #[arg(long, env = serve::LOCAL_NODES)]
    allow_loopback_nodes: bool,
    /// Start an empty database without the demo's nodes and deployments
    #[arg(long)]
    no_demo: bool,
    /// Make the demo's people and print their sign-in links although other machines can reach this address
    #[arg(long, conflicts_with = "no_demo")]
    demo: bool,
    /// Print what happens as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// The folder with the secrets that runs and connections name [default: secrets in the data folder; `gantry worker`: none]
    #[arg(long, env = "GANTRY_SECRETS")]
    secrets: Option<PathBuf>,
    /// The folder of PostgreSQL's programs, for the private one [default: what PATH or /usr/lib/postgresql has]
    #[arg(long, env = "GANTRY_PG_BIN")]
    pg_bin: Option<PathBuf>,
    /// The database as this program's role: gantry_server, or gantry_worker for `gantry worker` [default of `gantry up`: a private one]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// The same database as the workers' role
    #[arg(long, env = "GANTRY_WORKER_URL", hide_env_values = true)]
    worker_url: Option<String>,
    /// The role of monitoring, which only reads
    #[arg(long, env = "GANTRY_METRICS_ROLE", default_value = migrations::METRICS_ROLE)]
    metrics_role: String,
    /// The same database as its owner role, for migrations and the first people
    #[arg(long, env = "GANTRY_OWNER_URL", hide_env_values = true)]
    owner_url: Option<String>,
}

impl Arguments {
    /// Whether the demo's people are made and get links: their links in a terminal or log must not sign anybody in from elsewhere.
    fn has_demo_people(&self, listener: &TcpListener) -> bool {
        let is_near = self.public_address.is_none()
            && listener.local_addr().is_ok_and(|at| at.ip().is_loopback());
        is_near || self.demo
    }
}

pub async fn run(arguments: Arguments, configuration: Option<&Path>) -> Result<()> {
    // Heard from the first moment on, and asked between the parts of a start: each of them is left whole.
    let stop = Stopping::at_signals();
    // Before anything is made: a start that nobody could reach leaves nothing behind. Who connects from now on waits until it is there.
    let listener = listen(arguments.listen).await?;
    let address = serve::public_address(arguments.public_address.clone(), &listener)?;
    let data = home::data_folder(arguments.data.clone())?;
    let mut database = Database::start(&arguments, &data).await?;
    let result =
        run_on(&arguments, &data, configuration, &mut database, (listener, address), stop).await;
    database.stop().await?;
    result
}

async fn run_on(
    arguments: &Arguments,
    data: &Path,
    configuration: Option<&Path>,
    database: &mut Database,
    place: (TcpListener, server::PublicAddress),
    stop: Stopping,
) -> Result<()> {
    if stop.is_told() {
        return Ok(());
    }
    migrate::migrate(&database.owner_url, &database.roles).await?;
    if stop.is_told() {
        return Ok(());
    }
    let store = database::open(&database.server_url, database::Role::SERVER).await?;
    let result = match database::open(&database.owner_url, database::Role::Owner).await {
        Ok(owner) => {
            let stores = (&store, &owner);
            let result =
                work_on(arguments, data, configuration, database, stores, place, stop).await;
            let_go(&owner).await;
            result
        }
        Err(error) => Err(error),
    };
    let_go(&store).await;
    result
}

/// Closes the connections, however a start ended: one that came back when PostgreSQL is gone would be told of as lost.
async fn let_go(store: &Store) {
    if tokio::time::timeout(STATEMENTS_STOP, store.pool().close()).await.is_err() {
        tracing::warn!("statements that are still under way are broken off");
    }
}

async fn work_on(
    arguments: &Arguments,
    data: &Path,
    configuration: Option<&Path>,
    database: &mut Database,
    (store, owner): (&Store, &Store),
    place: (TcpListener, server::PublicAddress),
    mut stop: Stopping,
) -> Result<()> {
    // Whoever reaches this server is on this host already, so nodes here show them nothing new.
    let local_nodes = arguments.allow_loopback_nodes || place.0.local_addr()?.ip().is_loopback();
    let control =
        Control::new(store.clone()).keeping(data).reaching(database::reach(store, local_nodes));
    let people = People::over(store.clone()).with_owner(owner.clone());
    seed(arguments, data, &control, &people, arguments.has_demo_people(&place.0)).await?;
    let mut nodes = demo_nodes(store, data).await?;
    let booted = tokio::select! {
        () = stop.told() => None,
        troubles = boot(&nodes) => Some(troubles),
    };
    // From here on something may run on the nodes: however this goes on, it ends with them.
    let ended = match booted {
        None => Ok(()),
        Some(troubles) => {
            for trouble in troubles {
                tracing::warn!(%trouble, "a demo node did not start all of its services");
            }
            let secrets = arguments.secrets.clone().unwrap_or_else(|| home::secrets(data));
            let settings = WorkerSettings {
                url: database.worker_url.clone(),
                folder: data.join("worker"),
                secrets,
                configuration: configuration.map(Path::to_owned),
                local_nodes,
            };
            let worker = Worker::start(settings)?;
            serve_and_work(arguments, worker, database, place, &control, owner, stop).await
        }
    };
    // Nodes were added and moved since the start.
    match tokio::time::timeout(STATEMENTS_STOP, demo_nodes(store, data)).await {
        Ok(Ok(now)) => {
            nodes.extend(now.into_iter().filter(|node| !nodes.contains(node)).collect::<Vec<_>>())
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "services of nodes that were added since the start may run on")
        }
        Err(_) => {
            tracing::warn!(
                "services of nodes that were added since the start may run on: the database does not answer"
            )
        }
    }
    for trouble in halt(&nodes).await {
        tracing::warn!(%trouble, "a demo node did not stop all of its services");
    }
    ended
}

async fn serve_and_work(
    arguments: &Arguments,
    mut worker: Worker,
    database: &mut Database,
    (listener, address): (TcpListener, server::PublicAddress),
    control: &Control,
    owner: &Store,
    stop: Stopping,
) -> Result<()> {
    let demo_people = arguments.has_demo_people(&listener);
    let site =
        arguments.site.as_ref().map(|site| site.canonicalize().unwrap_or_else(|_| site.clone()));
    let (stop_server, server_stops) = tokio::sync::oneshot::channel::<()>();
    let config = server::Config {
        address: Some(address.clone()),
        site,
        metrics_token: arguments.metrics_token,
        trusted_proxies: arguments.trusted_proxies.clone(),
        checkpoints: None,
    };
    let server = tokio::spawn(serve::serve(listener, config, control.clone(), async {
        let _ = server_stops.await;
    }));
    let people = People::over(control.store().clone()).with_owner(owner.clone());
    let links = match demo_people {
        true => Some(sign_ins(&address.to_string(), &people).await),
        false => None,
    };
    // The owner's connections do not outlive the start.
    let_go(owner).await;
    let ended = match announce(arguments.json, &address.to_string(), links, &database.adds_admin())
    {
        Ok(()) => look_after(database, &mut worker, stop, &server).await,
        Err(error) => Err(error),
    };
    tracing::info!("stopping");
    let _ = stop_server.send(());
    worker.stop().await;
    match tokio::time::timeout(SERVER_STOPS, server).await {
        Ok(Ok(Err(error))) => Err(error),
        _ => ended,
    }
}

/// Until somebody stops this, or it can't go on.
async fn look_after(
    database: &mut Database,
    worker: &mut Worker,
    mut stop: Stopping,
    server: &tokio::task::JoinHandle<Result<()>>,
) -> Result<()> {
    let mut look = tokio::time::interval(LOOK);
    loop {
        // Stopping is heard also while PostgreSQL is being started again.
        let looked = async {
            look.tick().await;
            database.look_after().await;
        };
        tokio::select! {
            () = stop.told() => return Ok(()),
            () = looked => {}
        }
        if server.is_finished() {
            bail!("the server ended by itself; its log says why");
        }
        worker.look_after();
    }
}

/// The database: a private one, or one that somebody else runs.
struct Database {
    private: Option<PrivatePostgres>,
    server_url: String,
    worker_url: String,
    owner_url: String,
    roles: Roles,
}

impl Database {
    async fn start(arguments: &Arguments, data: &Path) -> Result<Self> {
        if let Some(server_url) = arguments.database_url.clone() {
            let owner_url = migrate::owner_url(arguments.owner_url.clone())?;
            let worker_url = arguments.worker_url.clone().context(
                "GANTRY_WORKER_URL is not set: `gantry up` starts a worker, which connects as another role than the server. \
                 Set it to the database's address with the workers' role",
            )?;
            let roles = Roles {
                server: migrate::role_of(&server_url, "DATABASE_URL")?,
                worker: migrate::role_of(&worker_url, "GANTRY_WORKER_URL")?,
                metrics: arguments.metrics_role.clone(),
            };
            return Ok(Self { private: None, server_url, worker_url, owner_url, roles });
        }
        let settings = Settings {
            bin_dir: arguments.pg_bin.clone(),
            ..Settings::durable(data.join("postgres"))
        };
        let private = PrivatePostgres::start(settings).await?;
        Ok(Self {
            server_url: private.server_url(DATABASE),
            worker_url: private.worker_url(DATABASE),
            owner_url: private.owner_url(DATABASE),
            roles: Roles::default(),
            private: Some(private),
        })
    }

    /// The command that adds an admin. Somebody else's database is not named: its address may have a password.
    fn adds_admin(&self) -> String {
        match &self.private {
            Some(_) => format!("GANTRY_OWNER_URL='{}' gantry admin NAME", self.owner_url),
            None => "gantry admin NAME".to_owned(),
        }
    }

    async fn look_after(&mut self) {
        let Some(private) = &mut self.private else { return };
        match private.ensure_running().await {
            Ok(true) => tracing::warn!("PostgreSQL had died and was started again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "PostgreSQL does not start"),
        }
    }

    async fn stop(self) -> Result<()> {
        match self.private {
            Some(private) => private.stop().await.context("PostgreSQL did not stop by itself"),
            None => Ok(()),
        }
    }
}

/// What the worker process is started with.
struct WorkerSettings {
    url: String,
    folder: PathBuf,
    secrets: PathBuf,
    configuration: Option<PathBuf>,
    local_nodes: bool,
}

/// The worker process.
struct Worker {
    settings: WorkerSettings,
    child: Child,
}

impl Worker {
    fn start(settings: WorkerSettings) -> Result<Self> {
        Ok(Self { child: spawn_worker(&settings)?, settings })
    }

    fn look_after(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else { return };
        tracing::warn!(%status, "the worker ended and is started again");
        match spawn_worker(&self.settings) {
            Ok(child) => self.child = child,
            Err(error) => tracing::error!(%error, "the worker does not start"),
        }
    }

    async fn stop(&mut self) {
        // The pipe's end tells it too, should the signal go astray.
        drop(self.child.stdin.take());
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if tokio::time::timeout(WORKER_STOPS, self.child.wait()).await.is_err() {
            tracing::warn!(
                "the worker did not stop in time and is killed; the next start goes on with its runs"
            );
            let _ = self.child.kill().await;
        }
    }
}

fn spawn_worker(settings: &WorkerSettings) -> Result<Child> {
    let program = std::env::current_exe().context("this program can't find itself")?;
    let mut command = Command::new(program);
    if let Some(file) = &settings.configuration {
        command.arg("--config").arg(file);
    }
    command
        .arg("worker")
        .arg("--until-orphaned")
        .env("DATABASE_URL", &settings.url)
        .env("GANTRY_WORKER_FOLDER", &settings.folder)
        .env("GANTRY_SECRETS", &settings.secrets)
        .env(serve::LOCAL_NODES, settings.local_nodes.to_string())
        .env_remove("GANTRY_OWNER_URL")
        .env_remove("GANTRY_WORKER_URL")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // A group of its own: Ctrl-C is for this process, which stops the others in their order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("the worker can't be started")
}

/// An address that was asked for is taken or refused: a bookmark or a proxy would look for it in vain elsewhere. Only where nobody asked
/// for one may a free port stand in.
async fn listen(asked: Option<SocketAddr>) -> Result<TcpListener> {
    let wanted = asked.unwrap_or(serve::USUAL);
    match TcpListener::bind(wanted).await {
        Ok(listener) => Ok(listener),
        Err(error) if asked.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {
            tracing::info!(port = wanted.port(), "the port is taken; a free one is used instead");
            TcpListener::bind(SocketAddr::new(wanted.ip(), 0)).await.context("no port is free")
        }
        Err(error) => Err(error).with_context(|| {
            format!("{wanted} can't be listened on: choose another with --listen")
        }),
    }
}

/// Nodes of the demo: those whose folders lie in our data.
async fn demo_nodes(store: &Store, data: &Path) -> Result<Vec<LocalNode>> {
    let mut connection = store.pool().acquire().await?;
    let (ours, more) =
        store::reading::local_nodes(&mut connection, &data.to_string_lossy()).await?;
    if more {
        tracing::warn!(
            looked_at = ours.len(),
            "more nodes than that have their folder below {}",
            data.display()
        );
    }
    let ours = ours
        .into_iter()
        .filter_map(|(fqdn, connection)| LocalNode::of(Fqdn::parse(&fqdn).ok()?, &connection));
    Ok(ours.collect())
}

/// The barclamps that are shipped, the first target, people, and a change to look at. Whatever is there already stays.
async fn seed(
    arguments: &Arguments,
    data: &Path,
    control: &Control,
    people: &People,
    demo_people: bool,
) -> Result<()> {
    if let Err(problem) = control.import_barclamps(None, &shipped::files()).await {
        // Another build's content under the same version: what was imported first stays in use.
        if problem.code != "other_content" {
            return Err(problem).context("the shipped barclamps can't be imported");
        }
        tracing::warn!(reason = %problem.detail, "the shipped barclamps differ from those that were imported");
    }
    // Two, since nobody approves their own change; one of them decides about people and about machines that are in use.
    let both = [Permission::Operator, Permission::Reviewer];
    let demo_of_people = [("ada", Some(Permission::Admin)), ("bo", None)];
    for (name, more) in demo_of_people.into_iter().filter(|_| demo_people) {
        if people.actor_by_name(name).await.is_err_and(|problem| problem.status == 404) {
            let new = NewPerson::human(name, both.into_iter().chain(more));
            people.create_person(None, &new).await.context("a person can't be made")?;
        }
    }
    let with_demo = demo_people && !arguments.no_demo;
    let demo = if with_demo { demo(data)? } else { Demo::default() };
    let policy = Policy::default();
    if control.ensure_genesis(&policy, &demo).await.context("the first target can't be made")?
        && with_demo
    {
        let ada = people.sign_in_as_owner("ada").await?;
        let binds = [(role("app")?, node("n5")?), (role("metrics")?, node("n5")?)];
        control.propose_binding(&ada, "edge", "First application on the edge", &binds).await?;
        people.sign_out(&ada).await?;
    }
    Ok(())
}

fn role(name: &str) -> Result<RoleName> {
    RoleName::parse(name).context("a shipped role's name")
}

fn node(name: &str) -> Result<Fqdn> {
    Fqdn::parse(&format!("{name}.demo.gantry.internal")).context("a demo node's name")
}

fn demo(data: &Path) -> Result<Demo> {
    let roles = |names: &[&str]| names.iter().map(|name| role(name)).collect::<Result<Vec<_>>>();
    let deployments = [
        ("web", roles(&["app", "app-check", "metrics", "proxy", "web-ready"])?),
        ("edge", roles(&["app", "metrics"])?),
    ];
    let deployments = deployments.into_iter().map(|(name, roles)| {
        Ok(DemoDeployment {
            name: DeploymentName::parse(name).context("a demo deployment's name")?,
            roles,
        })
    });
    let folders = data.join("nodes");
    let nodes = (1..=6).map(|n| {
        let name = format!("n{n}");
        let folder = folders.join(&name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("{} can't be made", folder.display()))?;
        Ok((node(&name)?, folder.to_string_lossy().into_owned()))
    });
    Ok(Demo {
        deployments: deployments.collect::<Result<_>>()?,
        nodes: nodes.collect::<Result<_>>()?,
    })
}

/// Who comes in by a link of this start.
struct SignIn {
    name: &'static str,
    role: &'static str,
    url: String,
    admin: bool,
}

/// Those who are let in, and why there is no link for the others.
type SignIns = (Vec<SignIn>, Vec<(&'static str, String)>);

/// Links for those who are let in, and why there is none for the others: a start goes on without anybody whom an admin keeps out.
async fn sign_ins(address: &str, people: &People) -> Result<SignIns> {
    let (mut let_in, mut kept_out) = (Vec::new(), Vec::new());
    for (name, role) in [("ada", "author"), ("bo", "reviewer")] {
        let actor = match people.actor_by_name(name).await {
            Ok(actor) if actor.kind == PersonKind::Human => actor,
            Ok(_) => {
                kept_out.push((
                    name,
                    format!("{name} is a program here, and programs come in by tokens."),
                ));
                continue;
            }
            Err(problem) if matches!(problem.status, 403 | 404) => {
                kept_out.push((name, problem.detail));
                continue;
            }
            Err(problem) => return Err(problem).context("a sign-in can't be made"),
        };
        let token = people.one_time_sign_in(None, actor.person, START_SIGN_IN_HOLDS).await?;
        let url = format!("{address}/sign-in#token={}", token.reveal());
        let_in.push(SignIn { name, role, url, admin: actor.may(Permission::Admin) });
    }
    Ok((let_in, kept_out))
}

/// Says where it is and how to come in. `links`: None if other machines can reach it, so that none are made. `adds_admin` is the command
/// for when nobody who comes in by these links decides about people.
fn announce(
    as_json: bool,
    address: &str,
    links: Option<Result<SignIns>>,
    adds_admin: &str,
) -> Result<()> {
    let is_far = links.is_none();
    let (let_in, kept_out) = links.transpose()?.unwrap_or_default();
    let adds_admin = (!let_in.iter().any(|one| one.admin)).then_some(adds_admin);
    if as_json {
        let sign_in: Vec<_> = let_in
            .iter()
            .map(|one| json!({"person": one.name, "role": one.role, "url": one.url}))
            .collect();
        let kept_out: Vec<_> =
            kept_out.iter().map(|(name, why)| json!({"person": name, "why": why})).collect();
        let mut ready = json!({"event": "ready", "address": address, "sign_in": sign_in});
        if !kept_out.is_empty() {
            ready["kept_out"] = json!(kept_out);
        }
        if let Some(command) = adds_admin {
            ready["adds_admin"] = json!(command);
        }
        println!("{ready}");
        return Ok(());
    }
    println!("\nGantry is up: {address}\n");
    match let_in.len() {
        0 => {}
        1 => println!("One person can sign in, once by this link (each start prints a new one):"),
        _ => println!(
            "Two people can sign in, once each by these links (each start prints new ones):"
        ),
    }
    for SignIn { name, role, url, .. } in &let_in {
        println!("  {name:<4} {role:<9} {url}");
    }
    for (name, why) in &kept_out {
        println!("No link for {name}: {why}");
    }
    if let Some(command) = adds_admin.filter(|_| is_far) {
        println!(
            "Other machines can reach this address, so no sign-in links are printed (--demo prints them)."
        );
        println!("This makes an admin, with a sign-in link:\n  {command}");
    }
    if let Some(command) = adds_admin.filter(|_| !is_far) {
        println!(
            "\nNone of these decides about people. This adds an admin, under a name that nobody has, with a link:"
        );
        println!("  {command}");
    }
    match let_in.len() {
        2 => {
            println!(
                "\nOpen the second in a private window, so that both are there at once. Ctrl-C stops everything."
            )
        }
        _ => println!("\nCtrl-C stops everything."),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn no_connection_outlives_the_work() {
        let database = TestDatabase::new().await;
        let store = Store::over(database.app().clone());
        drop(store.pool().acquire().await.expect("a connection"));
        let_go(&store).await;
        assert!(store.pool().is_closed() && store.pool().size() == 0, "{}", store.pool().size());
    }

    #[tokio::test]
    async fn an_address_that_was_asked_for_is_taken_or_refused() {
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let taken = other.local_addr().expect("an address");
        let refused = listen(Some(taken)).await.expect_err("another program has it");
        let said = format!("{refused:#}");
        assert!(
            said.starts_with(&format!(
                "{taken} can't be listened on: choose another with --listen"
            )),
            "{said}"
        );
        drop(other);
        assert_eq!(
            listen(Some(taken)).await.expect("it is free").local_addr().expect("an address"),
            taken
        );
        // Whoever has the usual one, this test or another program.
        let _usual = TcpListener::bind(serve::USUAL).await;
        let moved =
            listen(None).await.expect("some port is free").local_addr().expect("an address");
        assert_eq!(moved.ip(), serve::USUAL.ip());
        assert_ne!(moved.port(), serve::USUAL.port());
    }
}
