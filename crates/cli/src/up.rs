//! `gantry up`: everything on one machine, as one process tree.
//!
//! This process is the server and the supervisor. Its child processes are the private PostgreSQL
//! (unless `DATABASE_URL` names another one) and one worker. If either dies, it is restarted while
//! the rest continues. The worker has the other end of a pipe to this process. So it stops even if
//! this process is killed, and PostgreSQL stops after it. The demo's services then run until the
//! next start adopts them.
//!
//! A stop has this order: the server rejects new requests, the worker lets its runs end, the demo
//! nodes' services end, database connections close, PostgreSQL stops. The demo's nodes then appear
//! turned off, and the next start boots them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::people::{NewPerson, People, Permission, PersonKind, START_LINK_VALIDITY};
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
use worker::node::boot::{LocalNode, boot, halt};

use crate::signals::StopRequest;
use crate::{database, home, migrate, serve, shipped_barclamps, work};

/// Time for the worker to stop, in addition to its grace period for runs.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for open requests at a stop.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for scripts of `boot.d` that run at a stop.
const BOOT_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for open database statements at a stop.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between checks of the child processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Data folder [default: /var/lib/gantry for root, otherwise ~/.local/share/gantry]
    #[arg(long, env = "GANTRY_DATA")]
    data: Option<PathBuf>,
    /// Address and port to listen on; port 0 selects a free port [default: 127.0.0.1:7780; `gantry
    /// up`: a free port if that one is taken]
    #[arg(long, env = "GANTRY_LISTEN", value_parser = serve::listen_address)]
    listen: Option<SocketAddr>,
    /// Public URL, if an HTTPS proxy forwards requests: https://gantry.example.com
    #[arg(long, env = "GANTRY_PUBLIC_ADDRESS")]
    public_address: Option<server::PublicAddress>,
    /// Folder with the console's scripts, styles and fonts [default: the files in the binary, or
    /// target/site]
    #[arg(long, env = "GANTRY_SITE")]
    site: Option<PathBuf>,
    /// Bearer token for /metrics; without it only this machine has access
    #[arg(
        long,
        env = "GANTRY_METRICS_TOKEN",
        hide_env_values = true,
        value_parser = serve::MetricsTokenParser
    )]
    metrics_token: Option<server::MetricsToken>,
    /// Trusted reverse proxies (X-Forwarded-For): addresses and networks, separated by commas
    #[arg(long, env = "GANTRY_TRUSTED_PROXIES", default_value = server::TrustedProxies::LOOPBACK)]
    trusted_proxies: server::TrustedProxies,
    /// Allow nodes on Gantry's own hosts, for example at loopback addresses. Use the same value for
    /// servers and workers [default: no; `gantry up`: yes if it listens on loopback]
    #[arg(long, env = serve::LOCAL_NODES_VARIABLE)]
    allow_loopback_nodes: bool,
    /// Start without the demo's nodes and deployments
    #[arg(long)]
    no_demo: bool,
    /// Add the demo's people and print their sign-in links even if other machines can reach this
    /// address
    #[arg(long, conflicts_with = "no_demo")]
    demo: bool,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Folder with the secrets of runs and connections [default: secrets in the data folder;
    /// `gantry worker`: none]
    #[arg(long, env = "GANTRY_SECRETS")]
    secrets: Option<PathBuf>,
    /// Seconds that runs have to end after a stop request. After that, runs over SSH continue for
    /// the next worker, and others are ended
    #[arg(
        long,
        env = work::STOP_GRACE_VARIABLE,
        default_value = "10",
        value_parser = work::stop_grace
    )]
    stop_grace: Duration,
    /// Folder with the PostgreSQL binaries for the private database [default: from PATH or
    /// /usr/lib/postgresql]
    #[arg(long, env = "GANTRY_PG_BIN")]
    pg_bin: Option<PathBuf>,
    /// Database URL with this program's role: gantry_server, or gantry_worker for `gantry worker`
    /// [default of `gantry up`: a private database]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// URL of the same database with the workers' role
    #[arg(long, env = "GANTRY_WORKER_URL", hide_env_values = true)]
    worker_url: Option<String>,
    /// Database role of monitoring, which only reads
    #[arg(long, env = "GANTRY_METRICS_ROLE", default_value = migrations::METRICS_ROLE)]
    metrics_role: String,
    /// URL of the same database with the owner role, for migrations and the first people
    #[arg(long, env = "GANTRY_OWNER_URL", hide_env_values = true)]
    owner_url: Option<String>,
}

impl Arguments {
    /// Whether to add the demo's people and print their links. If other machines can reach this
    /// address, links in a terminal or log could sign in strangers.
    fn adds_demo_people(&self, listener: &TcpListener) -> bool {
        let is_local = self.public_address.is_none()
            && listener.local_addr().is_ok_and(|at| at.ip().is_loopback());
        is_local || self.demo
    }
}

pub async fn run(arguments: Arguments, configuration: Option<&Path>) -> Result<()> {
    // Signals count from the start. The stop request is checked between the stages of the start, so
    // each stage is complete.
    let stop = StopRequest::on_signals();
    // Bind first: if the address is taken, nothing is created. Early connections wait until the
    // server is ready.
    let listener = listen(arguments.listen).await?;
    let address = serve::public_address(arguments.public_address.clone(), &listener)?;
    let data = home::ensure_data_folder(arguments.data.clone())?;
    let mut database = Database::start(&arguments, &data).await?;
    let result = run_with_database(
        &arguments,
        &data,
        configuration,
        &mut database,
        (listener, address),
        stop,
    )
    .await;
    database.stop().await?;
    result
}

async fn run_with_database(
    arguments: &Arguments,
    data: &Path,
    configuration: Option<&Path>,
    database: &mut Database,
    endpoint: (TcpListener, server::PublicAddress),
    stop: StopRequest,
) -> Result<()> {
    if stop.is_stopping() {
        return Ok(());
    }
    migrate::migrate(&database.owner_url, &database.roles).await?;
    if stop.is_stopping() {
        return Ok(());
    }
    let store = database::open(&database.server_url, database::Role::SERVER).await?;
    let result = match database::open(&database.owner_url, database::Role::Owner).await {
        Ok(owner) => {
            let stores = (&store, &owner);
            let result =
                run_with_stores(arguments, data, configuration, database, stores, endpoint, stop)
                    .await;
            close_connections(&owner).await;
            result
        }
        Err(error) => Err(error),
    };
    close_connections(&store).await;
    result
}

/// Closes the connections, even after a failed start. Otherwise they would report errors when
/// PostgreSQL stops.
async fn close_connections(store: &Store) {
    if tokio::time::timeout(STATEMENT_TIMEOUT, store.pool().close()).await.is_err() {
        tracing::warn!("running statements are aborted");
    }
}

async fn run_with_stores(
    arguments: &Arguments,
    data: &Path,
    configuration: Option<&Path>,
    database: &mut Database,
    (store, owner): (&Store, &Store),
    endpoint: (TcpListener, server::PublicAddress),
    mut stop: StopRequest,
) -> Result<()> {
    // On loopback, every client is already on this host, so local nodes reveal nothing new.
    let local_nodes = arguments.allow_loopback_nodes || endpoint.0.local_addr()?.ip().is_loopback();
    let control = Control::new(store.clone())
        .with_data_folder(data)
        .with_address_policy(database::reach(store, local_nodes));
    let people = People::over(store.clone()).with_owner(owner.clone());
    seed(arguments, data, &control, &people, arguments.adds_demo_people(&endpoint.0)).await?;
    let mut nodes = demo_nodes(store, data).await?;
    let boot_problems = {
        let mut booting = std::pin::pin!(boot(&nodes));
        tokio::select! {
            () = stop.stop_requested() => {
                // A script that is killed may leave a service without a `.pid` file, which nothing
                // could stop.
                let _ = tokio::time::timeout(BOOT_STOP_TIMEOUT, booting).await;
                None
            }
            problems = &mut booting => Some(problems),
        }
    };
    // From here on, services may run on the nodes. They stop in every case.
    let ended = match boot_problems {
        None => Ok(()),
        Some(problems) => {
            for problem in problems {
                tracing::warn!(%problem, "some services of a demo node did not start");
            }
            let secrets = arguments.secrets.clone().unwrap_or_else(|| home::secrets(data));
            let settings = WorkerSettings {
                url: database.worker_url.clone(),
                folder: data.join("worker"),
                secrets,
                configuration: configuration.map(Path::to_owned),
                local_nodes,
                stop_grace: arguments.stop_grace,
            };
            let worker = Worker::start(settings)?;
            run_server_and_worker(arguments, worker, database, endpoint, &control, owner, stop)
                .await
        }
    };
    // Includes nodes that were added or moved since the start.
    match tokio::time::timeout(STATEMENT_TIMEOUT, demo_nodes(store, data)).await {
        Ok(Ok(current_nodes)) => nodes.extend(
            current_nodes.into_iter().filter(|node| !nodes.contains(node)).collect::<Vec<_>>(),
        ),
        Ok(Err(error)) => {
            tracing::warn!(%error, "services of nodes that were added since the start may still \
                run")
        }
        Err(_) => {
            tracing::warn!(
                "services of nodes that were added since the start may still run, because the \
                 database does not answer"
            )
        }
    }
    for problem in halt(&nodes).await {
        tracing::warn!(%problem, "some services of a demo node did not stop");
    }
    ended
}

async fn run_server_and_worker(
    arguments: &Arguments,
    mut worker: Worker,
    database: &mut Database,
    (listener, address): (TcpListener, server::PublicAddress),
    control: &Control,
    owner: &Store,
    stop: StopRequest,
) -> Result<()> {
    let demo_people = arguments.adds_demo_people(&listener);
    let site =
        arguments.site.as_ref().map(|site| site.canonicalize().unwrap_or_else(|_| site.clone()));
    let (stop_server, server_stopped) = tokio::sync::oneshot::channel::<()>();
    let config = server::Config {
        address: Some(address.clone()),
        site,
        metrics_token: arguments.metrics_token,
        trusted_proxies: arguments.trusted_proxies.clone(),
        checkpoints: None,
    };
    let server = tokio::spawn(serve::serve(listener, config, control.clone(), async {
        let _ = server_stopped.await;
    }));
    let people = People::over(control.store().clone()).with_owner(owner.clone());
    let links = match demo_people {
        true => Some(create_sign_in_links(&address.to_string(), &people).await),
        false => None,
    };
    // The owner's connections are needed only during the start.
    close_connections(owner).await;
    let ended = match print_ready(
        arguments.json,
        &address.to_string(),
        links,
        &database.add_admin_command(),
    ) {
        Ok(()) => supervise(database, &mut worker, stop, &server).await,
        Err(error) => Err(error),
    };
    tracing::info!("stopping");
    let _ = stop_server.send(());
    worker.stop().await;
    match tokio::time::timeout(SERVER_STOP_TIMEOUT, server).await {
        Ok(Ok(Err(error))) => Err(error),
        _ => ended,
    }
}

/// Supervises the child processes until a stop request or a fatal error.
async fn supervise(
    database: &mut Database,
    worker: &mut Worker,
    mut stop: StopRequest,
    server: &tokio::task::JoinHandle<Result<()>>,
) -> Result<()> {
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    loop {
        // Stop requests also count while PostgreSQL restarts.
        let check = async {
            interval.tick().await;
            database.supervise().await;
        };
        tokio::select! {
            () = stop.stop_requested() => return Ok(()),
            () = check => {}
        }
        if server.is_finished() {
            bail!(
                "The server stopped unexpectedly: the last lines of its log have the reason. Start \
                 Gantry again."
            );
        }
        worker.supervise();
    }
}

/// The database: a private one or an external one.
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
                "GANTRY_WORKER_URL is not set. `gantry up` starts a worker, which uses another \
                 role than the server. Set it to the URL of the database with the worker's role",
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

    /// The command that adds an admin. It omits the URL of an external database, which may contain
    /// a password.
    fn add_admin_command(&self) -> String {
        match &self.private {
            Some(_) => format!("GANTRY_OWNER_URL='{}' gantry admin NAME", self.owner_url),
            None => "gantry admin NAME".to_owned(),
        }
    }

    async fn supervise(&mut self) {
        let Some(private) = &mut self.private else { return };
        match private.ensure_running().await {
            Ok(true) => tracing::warn!("PostgreSQL had stopped and was restarted"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "cannot start PostgreSQL"),
        }
    }

    async fn stop(self) -> Result<()> {
        match self.private {
            Some(private) => private.stop().await.context("PostgreSQL did not stop cleanly"),
            None => Ok(()),
        }
    }
}

/// Settings of the worker process.
struct WorkerSettings {
    url: String,
    folder: PathBuf,
    secrets: PathBuf,
    configuration: Option<PathBuf>,
    local_nodes: bool,
    stop_grace: Duration,
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

    fn supervise(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else { return };
        tracing::warn!(%status, "the worker ended and is restarted");
        match spawn_worker(&self.settings) {
            Ok(child) => self.child = child,
            Err(error) => tracing::error!(%error, "cannot start the worker"),
        }
    }

    async fn stop(&mut self) {
        // Closing the pipe also stops the worker, in case the signal is lost.
        drop(self.child.stdin.take());
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let limit = self.settings.stop_grace + WORKER_STOP_TIMEOUT;
        if tokio::time::timeout(limit, self.child.wait()).await.is_err() {
            tracing::warn!(
                "the worker did not stop in time and is killed, its runs continue after the next \
                 start"
            );
            let _ = self.child.kill().await;
        }
    }
}

fn spawn_worker(settings: &WorkerSettings) -> Result<Child> {
    let program = std::env::current_exe().context("Cannot find the path of this program")?;
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
        .env(serve::LOCAL_NODES_VARIABLE, settings.local_nodes.to_string())
        .env(work::STOP_GRACE_VARIABLE, settings.stop_grace.as_secs_f64().to_string())
        .env_remove("GANTRY_OWNER_URL")
        .env_remove("GANTRY_WORKER_URL")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // A process group of its own: Ctrl-C reaches only this process, which stops the others in
        // order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("Cannot start the worker")
}

/// Binds the requested address or fails, because bookmarks and proxies rely on it. Only the default
/// address may be replaced by a free port.
async fn listen(requested: Option<SocketAddr>) -> Result<TcpListener> {
    let address = requested.unwrap_or(serve::DEFAULT);
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if requested.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {
            tracing::info!(
                port = address.port(),
                "the default port is in use, so a free port is \
                used"
            );
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await.context("No port is free")
        }
        Err(error) => Err(error).with_context(|| {
            format!("Cannot listen on {address} (choose another address with --listen)")
        }),
    }
}

/// Nodes of the demo: those with folders in the data folder.
async fn demo_nodes(store: &Store, data: &Path) -> Result<Vec<LocalNode>> {
    let mut connection = store.pool().acquire().await?;
    let (ours, more) = store::nodes::local_nodes(&mut connection, &data.to_string_lossy()).await?;
    if more {
        tracing::warn!(
            looked_at = ours.len(),
            "not all nodes with a folder below {} are managed, because there are too many",
            data.display()
        );
    }
    let ours = ours
        .into_iter()
        .filter_map(|(fqdn, connection)| LocalNode::of(Fqdn::parse(&fqdn).ok()?, &connection));
    Ok(ours.collect())
}

/// Adds the shipped barclamps, the first blueprint, people and a demo change. Existing things stay
/// unchanged. Only the first start or `--demo` adds people: an installation that was first started
/// for other machines gets no demo accounts later.
async fn seed(
    arguments: &Arguments,
    data: &Path,
    control: &Control,
    people: &People,
    demo_people: bool,
) -> Result<()> {
    if let Err(problem) = control.import_barclamps(None, &shipped_barclamps::files()).await {
        // Another build imported other content under the same version. The first import stays in
        // use.
        if problem.code != "other_content" {
            return Err(problem).context("Cannot import the shipped barclamps");
        }
        tracing::warn!(reason = %problem.detail, "the shipped barclamps differ from the imported \
            ones");
    }
    // Two people, because authors can't approve their own change. One of them is an admin.
    let permissions = [Permission::Operator, Permission::Reviewer];
    let demo_accounts = [("ada", Some(Permission::Admin)), ("bo", None)];
    let adds_people = demo_people && (arguments.demo || is_new(control.store()).await?);
    for (name, more) in demo_accounts.into_iter().filter(|_| adds_people) {
        if people.actor_by_name(name).await.is_err_and(|problem| problem.status == 404) {
            let new = NewPerson::human(name, permissions.into_iter().chain(more));
            people.create_person(None, &new).await.context("Cannot create a person")?;
        }
    }
    let seeds_demo = demo_people && !arguments.no_demo;
    let demo = if seeds_demo { demo(data)? } else { Demo::default() };
    let policy = Policy::default();
    if control.ensure_genesis(&policy, &demo).await.context("Cannot create the first blueprint")?
        && seeds_demo
    {
        let ada = people.sign_in_as_owner("ada").await?;
        let bindings = [(role("app")?, node("n5")?), (role("metrics")?, node("n5")?)];
        control.propose_binding(&ada, "edge", "First application on the edge", &bindings).await?;
        people.sign_out(&ada).await?;
    }
    Ok(())
}

/// Whether there is no blueprint yet.
async fn is_new(store: &Store) -> Result<bool> {
    let mut connection = store.pool().acquire().await?;
    Ok(store::blueprints::head(&mut connection).await?.root.is_none())
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
            .with_context(|| format!("Cannot create {}", folder.display()))?;
        Ok((node(&name)?, folder.to_string_lossy().into_owned()))
    });
    Ok(Demo {
        deployments: deployments.collect::<Result<_>>()?,
        nodes: nodes.collect::<Result<_>>()?,
    })
}

/// A person with a sign-in link from this start.
struct SignIn {
    name: &'static str,
    role: &'static str,
    url: String,
    admin: bool,
}

/// People with links, and people without one, each with the reason.
type SignInLinks = (Vec<SignIn>, Vec<(&'static str, String)>);

/// Creates sign-in links. A person who gets none, for example a disabled one, does not fail the
/// start.
async fn create_sign_in_links(address: &str, people: &People) -> Result<SignInLinks> {
    let (mut let_in, mut without_link) = (Vec::new(), Vec::new());
    for (name, role) in [("ada", "author"), ("bo", "reviewer")] {
        let actor = match people.actor_by_name(name).await {
            Ok(actor) if actor.kind == PersonKind::Human => actor,
            Ok(_) => {
                without_link.push((
                    name,
                    format!("{name} is a service account, which signs in with tokens."),
                ));
                continue;
            }
            Err(problem) if matches!(problem.status, 403 | 404) => {
                without_link.push((name, problem.detail));
                continue;
            }
            Err(problem) => return Err(problem).context("Cannot create a sign-in link"),
        };
        let token = people.create_sign_in_link(None, actor.person, START_LINK_VALIDITY).await?;
        let url = format!("{address}/sign-in#token={}", token.reveal());
        let_in.push(SignIn { name, role, url, admin: actor.may(Permission::Admin) });
    }
    Ok((let_in, without_link))
}

/// Prints the URL and the sign-in links. `links` is `None` if other machines can reach the address,
/// so no links are created. `add_admin_command` is the command to print if none of the linked
/// people is an admin.
fn print_ready(
    as_json: bool,
    address: &str,
    links: Option<Result<SignInLinks>>,
    add_admin_command: &str,
) -> Result<()> {
    let is_public = links.is_none();
    let (let_in, without_link) = links.transpose()?.unwrap_or_default();
    let add_admin_command = (!let_in.iter().any(|link| link.admin)).then_some(add_admin_command);
    if as_json {
        let sign_in: Vec<_> = let_in
            .iter()
            .map(|link| json!({"person": link.name, "role": link.role, "url": link.url}))
            .collect();
        let without_link: Vec<_> = without_link
            .iter()
            .map(|(name, reason)| json!({"person": name, "reason": reason}))
            .collect();
        let mut ready = json!({"event": "ready", "address": address, "sign_in": sign_in});
        if !without_link.is_empty() {
            ready["without_link"] = json!(without_link);
        }
        if let Some(command) = add_admin_command {
            ready["adds_admin"] = json!(command);
        }
        println!("{ready}");
        return Ok(());
    }
    println!("\nGantry is up: {address}\n");
    match let_in.len() {
        0 => {}
        1 => {
            println!("One person can sign in, once, with this link (each start prints a new one):")
        }
        _ => println!(
            "Two people can sign in, once each, with these links (each start prints new ones):"
        ),
    }
    for SignIn { name, role, url, .. } in &let_in {
        println!("  {name:<4} {role:<9} {url}");
    }
    for (name, reason) in &without_link {
        println!("No link for {name}: {reason}");
    }
    if let Some(command) = add_admin_command.filter(|_| is_public) {
        println!(
            "Other machines can reach this address, so no sign-in links are printed (--demo prints \
             them)."
        );
        println!("This command adds an admin and prints a sign-in link:\n  {command}");
    }
    if let Some(command) = add_admin_command.filter(|_| !is_public) {
        println!(
            "\nNone of these people is an admin. This command adds an admin with a new name and \
             prints a link:"
        );
        println!("  {command}");
    }
    match let_in.len() {
        2 => {
            println!(
                "\nOpen the second link in a private window to use both accounts at once. Ctrl-C \
                 stops everything."
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
    async fn connections_close_after_a_stop() {
        let database = TestDatabase::new().await;
        let store = Store::over(database.app().clone());
        drop(store.pool().acquire().await.expect("a connection"));
        close_connections(&store).await;
        assert!(store.pool().is_closed() && store.pool().size() == 0, "{}", store.pool().size());
    }

    #[tokio::test]
    async fn requested_address_is_bound_or_fails() {
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let taken = other.local_addr().expect("an address");
        let refused = listen(Some(taken)).await.expect_err("another program has it");
        let message = format!("{refused:#}");
        assert!(
            message.starts_with(&format!(
                "Cannot listen on {taken} (choose another address with --listen)"
            )),
            "{message}"
        );
        drop(other);
        assert_eq!(
            listen(Some(taken)).await.expect("a free port").local_addr().expect("an address"),
            taken
        );
        // Ensure that the default port is taken, by this test or by another program.
        let _usual = TcpListener::bind(serve::DEFAULT).await;
        let moved = listen(None).await.expect("a free port").local_addr().expect("an address");
        assert_eq!(moved.ip(), serve::DEFAULT.ip());
        assert_ne!(moved.port(), serve::DEFAULT.port());
    }
}
