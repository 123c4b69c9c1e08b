//! A database for each test: migrated, empty, its own, gone afterwards.
//!
//! # Theory
//!
//! Tests against a shared database hide what they leave behind from each other; tests that migrate each take seconds.
//! So one database is migrated once for a cluster (the *template*), and every test gets a clone of it, which PostgreSQL
//! makes in some 50 ms by copying files.
//!
//! *Which cluster.* `GANTRY_TEST_POSTGRES` names the superuser's URL of one that the test command has started
//! (`testdb serve`), for runners that start a process for each test. Without it every process starts a throwaway one
//! for itself when its first test asks, and its clients share it: threads of `cargo test` as well as tests of one
//! process in turn.
//!
//! *Invariants.*
//! - The template is made at most once for each cluster and content of the migrations: under an advisory lock, and under
//!   a name that says what is in it ([`migrations::content`]), so a changed migration makes a new one.
//! - Nothing stays. A clone is dropped with its [`TestDatabase`], also when the test panics; clones of processes that
//!   were killed go with their cluster. A throwaway cluster is watched by a process of its own and ends with its
//!   starter, however that ends.

use std::str::FromStr as _;

use anyhow::{Context as _, Result};
use migrations::Roles;
use private_postgres::{
    METRICS_ROLE, OWNER_ROLE, PROGRAM_ROLES, PrivatePostgres, SERVER_ROLE, Settings, WORKER_ROLE,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool,
};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// The environment variable with the superuser's URL of a shared cluster.
pub const SHARED: &str = "GANTRY_TEST_POSTGRES";

/// The advisory lock under which a template is made.
const TEMPLATE_LOCK: i64 = 0x6761_6e74_7279;

/// A migrated database of one test's own. Dropping it drops the database.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    admin: PgConnectOptions,
    owner_url: String,
    server_url: String,
    worker_url: String,
    metrics_url: String,
    owner: PgPool,
    server: PgPool,
    worker: PgPool,
    metrics: PgPool,
}

impl TestDatabase {
    /// A fresh clone of the migrated template.
    ///
    /// # Panics
    /// When there is no PostgreSQL to start, or it refuses: a test can't go on then.
    pub async fn new() -> Self {
        match Self::create().await {
            Ok(database) => database,
            Err(reason) => panic!("no test database: {reason:#}"),
        }
    }

    /// [`TestDatabase::new`] for callers that handle the failure.
    ///
    /// # Errors
    /// No PostgreSQL to start, or what it refused.
    pub async fn create() -> Result<Self> {
        let cluster = cluster().await?;
        let template = cluster.ensure_template().await?;
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut admin = cluster.connect().await?;
        let made = format!("CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER_ROLE}");
        admin.execute(AssertSqlSafe(made)).await.context("cloning the template")?;
        // Rights on a database are not cloned.
        for statement in private_postgres::connect_sql(&name, PROGRAM_ROLES) {
            admin.execute(AssertSqlSafe(statement)).await?;
        }
        admin.close().await?;
        Ok(Self {
            owner_url: cluster.url(OWNER_ROLE, &name),
            server_url: cluster.url(SERVER_ROLE, &name),
            worker_url: cluster.url(WORKER_ROLE, &name),
            metrics_url: cluster.url(METRICS_ROLE, &name),
            owner: cluster.pool(OWNER_ROLE, &name),
            server: cluster.pool(SERVER_ROLE, &name),
            worker: cluster.pool(WORKER_ROLE, &name),
            metrics: cluster.pool(METRICS_ROLE, &name),
            admin: cluster.admin.clone(),
            name,
        })
    }

    /// The database's name in its cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL for migrations.
    pub fn owner_url(&self) -> &str {
        &self.owner_url
    }

    /// The server's URL.
    pub fn server_url(&self) -> &str {
        &self.server_url
    }

    /// The workers' URL.
    pub fn worker_url(&self) -> &str {
        &self.worker_url
    }

    /// The URL of monitoring.
    pub fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    /// [`TestDatabase::server_url`].
    pub fn app_url(&self) -> &str {
        self.server_url()
    }

    /// A pool of the owner role.
    pub fn owner(&self) -> &PgPool {
        &self.owner
    }

    /// A pool of the server's role.
    pub fn server(&self) -> &PgPool {
        &self.server
    }

    /// A pool of the workers' role.
    pub fn worker(&self) -> &PgPool {
        &self.worker
    }

    /// A pool of the role of monitoring.
    pub fn metrics(&self) -> &PgPool {
        &self.metrics
    }

    /// [`TestDatabase::server`].
    pub fn app(&self) -> &PgPool {
        self.server()
    }

    /// Ends every session of this database but the caller's own: what a restart of the server looks like to clients.
    ///
    /// # Errors
    /// What the cluster refused.
    pub async fn cut_connections(&self) -> Result<()> {
        let mut admin = PgConnection::connect_with(&self.admin).await?;
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
            .bind(&self.name)
            .execute(&mut admin)
            .await?;
        Ok(admin.close().await?)
    }

    /// Lets nobody in (`false`), or everybody again (`true`): a database that is gone for a while.
    ///
    /// # Errors
    /// What the cluster refused.
    pub async fn allow_connections(&self, allow: bool) -> Result<()> {
        let mut admin = PgConnection::connect_with(&self.admin).await?;
        let sql = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {allow}", self.name);
        admin.execute(AssertSqlSafe(sql)).await?;
        admin.close().await?;
        if !allow {
            self.cut_connections().await?;
        }
        Ok(())
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        // A test's runtime may be gone or busy unwinding, so this one is its own.
        let dropped = std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut admin = PgConnection::connect_with(&admin).await?;
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                admin.execute(AssertSqlSafe(sql)).await?;
                Ok(admin.close().await?)
            })
        });
        match dropped.join() {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => eprintln!("test database {} stays: {reason:#}", self.name),
            Err(_) => eprintln!("test database {} stays", self.name),
        }
    }
}

/// A throwaway cluster with its template, to be shared by many processes.
#[derive(Debug)]
pub struct SharedCluster(PrivatePostgres);

impl SharedCluster {
    /// Starts it and makes the template.
    ///
    /// # Errors
    /// No PostgreSQL installed, or what it refused.
    pub async fn start() -> Result<Self> {
        let postgres = start_private().await?;
        let shared = Self(postgres);
        Cluster::at(&shared.url())?.ensure_template().await?;
        Ok(shared)
    }

    /// What to put into [`SHARED`].
    pub fn url(&self) -> String {
        self.0.admin_url("postgres")
    }

    /// Stops it and removes its folder.
    ///
    /// # Errors
    /// The server didn't end.
    pub async fn stop(self) -> Result<()> {
        Ok(self.0.stop().await?)
    }
}

async fn start_private() -> Result<PrivatePostgres> {
    let folder = std::env::temp_dir().join(format!("gantry-test-{}", Uuid::new_v4().simple()));
    Ok(PrivatePostgres::start(Settings::throwaway(folder)).await?)
}

/// The cluster of this process: a shared one, or its own, started at most once and never dropped here. Its watcher ends
/// it with the process.
async fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<(Cluster, Option<PrivatePostgres>)> = OnceCell::const_new();
    let (cluster, _) = CLUSTER
        .get_or_try_init(|| async {
            if let Ok(url) = std::env::var(SHARED) {
                return anyhow::Ok((Cluster::at(&url)?, None));
            }
            let own = start_private().await?;
            anyhow::Ok((Cluster::at(&own.admin_url("postgres"))?, Some(own)))
        })
        .await?;
    Ok(cluster)
}

/// A cluster that is reached as its superuser, without passwords.
#[derive(Debug, Clone)]
struct Cluster {
    admin: PgConnectOptions,
}

impl Cluster {
    fn at(url: &str) -> Result<Self> {
        let admin =
            PgConnectOptions::from_str(url).context("the superuser's URL of the test cluster")?;
        Ok(Self { admin: admin.database("postgres").disable_statement_logging() })
    }

    async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect_with(&self.admin).await.context("connecting to the test cluster")
    }

    fn options(&self, role: &str, database: &str) -> PgConnectOptions {
        self.admin.clone().username(role).database(database)
    }

    fn pool(&self, role: &str, database: &str) -> PgPool {
        let options = self.options(role, database).options([("jit", "off")]);
        PgPoolOptions::new().max_connections(12).connect_lazy_with(options)
    }

    fn url(&self, role: &str, database: &str) -> String {
        self.options(role, database).to_url_lossy().to_string()
    }

    /// The name of the migrated template, which is made when it isn't there.
    async fn ensure_template(&self) -> Result<String> {
        let content = migrations::content();
        let name = format!("gantry_template_{}", &content[..16]);
        let mut admin = self.connect().await?;
        if self.is_there(&mut admin, &name).await? {
            return Ok(name);
        }
        sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut admin).await?;
        if !self.is_there(&mut admin, &name).await? {
            self.make_template(&mut admin, &name).await.context("making the migrated template")?;
        }
        admin.close().await?;
        Ok(name)
    }

    async fn is_there(&self, admin: &mut PgConnection, name: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
        Ok(sqlx::query_scalar(sql).bind(name).fetch_one(admin).await?)
    }

    /// Under another name until it is whole.
    async fn make_template(&self, admin: &mut PgConnection, name: &str) -> Result<()> {
        private_postgres::ensure_roles(admin).await?;
        let fresh = format!("{name}_new");
        admin
            .execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {fresh} WITH (FORCE)")))
            .await?;
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {fresh} OWNER {OWNER_ROLE}"))).await?;
        migrations::migrate_url(&self.url(OWNER_ROLE, &fresh), &Roles::default()).await?;
        // A template with a session (autovacuum's, say) can't be cloned.
        admin
            .execute(AssertSqlSafe(format!("ALTER DATABASE {fresh} WITH ALLOW_CONNECTIONS false")))
            .await?;
        admin.execute(AssertSqlSafe(format!("ALTER DATABASE {fresh} RENAME TO {name}"))).await?;
        Ok(())
    }
}
