//! A database for each test: migrated, empty, isolated, and dropped afterwards.
//!
//! With a shared database, tests would see each other's data. Migrating in each test would take
//! seconds. So one database per cluster is migrated once (the *template*). Every test gets a clone,
//! which PostgreSQL creates in about 50 ms by copying files.
//!
//! `GANTRY_TEST_POSTGRES` is the superuser URL of a cluster that the test command started (`testdb
//! serve`). It is for runners with one process per test. Without it, each process starts a
//! throwaway cluster on first use and shares it between its tests.
//!
//! Invariants:
//! - The template is created at most once per cluster and content of the migrations. An advisory
//!   lock ensures this. Its name has a hash of the migrations ([`migrations::content`]), so a
//!   changed migration creates a new template.
//! - Nothing remains. A clone is dropped with its [`TestDatabase`], also if the test panics. The
//!   clones of killed processes end with their cluster. A throwaway cluster has a watcher process,
//!   and ends with the process that started it.

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

/// The environment variable with the superuser URL of a shared cluster.
pub const SHARED_URL: &str = "GANTRY_TEST_POSTGRES";

/// The advisory lock for creating a template.
const TEMPLATE_LOCK: i64 = 0x6761_6e74_7279;

/// A migrated database of one test. Dropping this drops the database.
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
    /// Clones the migrated template.
    ///
    /// # Panics
    /// If PostgreSQL is missing or fails, because the test can't continue.
    pub async fn new() -> Self {
        match Self::create().await {
            Ok(database) => database,
            Err(reason) => panic!("cannot create a test database: {reason:#}"),
        }
    }

    /// [`TestDatabase::new`] for callers that handle errors.
    ///
    /// # Errors
    /// If PostgreSQL is missing or fails.
    pub async fn create() -> Result<Self> {
        let cluster = cluster().await?;
        let template = cluster.ensure_template().await?;
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut admin = cluster.connect().await?;
        let create_sql = format!("CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER_ROLE}");
        admin.execute(AssertSqlSafe(create_sql)).await.context("cloning the template")?;
        // A clone does not have the template's privileges.
        for statement in private_postgres::grant_connect_sql(&name, PROGRAM_ROLES) {
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

    pub fn name(&self) -> &str {
        &self.name
    }

    /// URL of the owner role, for migrations.
    pub fn owner_url(&self) -> &str {
        &self.owner_url
    }

    pub fn server_url(&self) -> &str {
        &self.server_url
    }

    pub fn worker_url(&self) -> &str {
        &self.worker_url
    }

    pub fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    pub fn app_url(&self) -> &str {
        self.server_url()
    }

    /// Connections with the owner role.
    pub fn owner(&self) -> &PgPool {
        &self.owner
    }

    /// Connections with the server's role.
    pub fn server(&self) -> &PgPool {
        &self.server
    }

    /// Connections with the workers' role.
    pub fn worker(&self) -> &PgPool {
        &self.worker
    }

    /// Connections with the monitoring role.
    pub fn metrics(&self) -> &PgPool {
        &self.metrics
    }

    pub fn app(&self) -> &PgPool {
        self.server()
    }

    /// Ends every other session of this database, to simulate a restart of the database server.
    pub async fn terminate_connections(&self) -> Result<()> {
        let mut admin = PgConnection::connect_with(&self.admin).await?;
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
            .bind(&self.name)
            .execute(&mut admin)
            .await?;
        Ok(admin.close().await?)
    }

    /// Blocks (`false`) or allows (`true`) new connections, to simulate an unavailable database.
    pub async fn set_connections_allowed(&self, allow: bool) -> Result<()> {
        let mut admin = PgConnection::connect_with(&self.admin).await?;
        let sql = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {allow}", self.name);
        admin.execute(AssertSqlSafe(sql)).await?;
        admin.close().await?;
        if !allow {
            self.terminate_connections().await?;
        }
        Ok(())
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        // The test's runtime may be gone or unwinding, so use a separate one.
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
            Ok(Err(reason)) => eprintln!("cannot delete test database {}: {reason:#}", self.name),
            Err(_) => eprintln!("cannot delete test database {}", self.name),
        }
    }
}

/// A throwaway cluster with its template, shared by many processes.
#[derive(Debug)]
pub struct SharedCluster(PrivatePostgres);

impl SharedCluster {
    /// Starts the cluster and creates the template.
    ///
    /// # Errors
    /// If PostgreSQL is missing or fails.
    pub async fn start() -> Result<Self> {
        let postgres = start_private().await?;
        let shared = Self(postgres);
        Cluster::at(&shared.url())?.ensure_template().await?;
        Ok(shared)
    }

    /// The value for [`SHARED_URL`].
    pub fn url(&self) -> String {
        self.0.admin_url("postgres")
    }

    /// Stops the cluster and removes its folder.
    ///
    /// # Errors
    /// If the server does not stop.
    pub async fn stop(self) -> Result<()> {
        Ok(self.0.stop().await?)
    }
}

async fn start_private() -> Result<PrivatePostgres> {
    let folder = std::env::temp_dir().join(format!("gantry-test-{}", Uuid::new_v4().simple()));
    Ok(PrivatePostgres::start(Settings::throwaway(folder)).await?)
}

/// The cluster of this process: a shared one, or its own. It is started at most once and never
/// dropped here. Its watcher stops it when the process ends.
async fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<(Cluster, Option<PrivatePostgres>)> = OnceCell::const_new();
    let (cluster, _) = CLUSTER
        .get_or_try_init(|| async {
            if let Ok(url) = std::env::var(SHARED_URL) {
                return anyhow::Ok((Cluster::at(&url)?, None));
            }
            let private = start_private().await?;
            anyhow::Ok((Cluster::at(&private.admin_url("postgres"))?, Some(private)))
        })
        .await?;
    Ok(cluster)
}

/// A cluster with superuser access, without passwords.
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

    /// Returns the name of the migrated template. Creates it if missing.
    async fn ensure_template(&self) -> Result<String> {
        let content = migrations::content();
        let name = format!("gantry_template_{}", &content[..16]);
        let mut admin = self.connect().await?;
        if self.exists(&mut admin, &name).await? {
            return Ok(name);
        }
        sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut admin).await?;
        if !self.exists(&mut admin, &name).await? {
            self.create_template(&mut admin, &name)
                .await
                .context("making the migrated template")?;
        }
        admin.close().await?;
        Ok(name)
    }

    async fn exists(&self, admin: &mut PgConnection, name: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
        Ok(sqlx::query_scalar(sql).bind(name).fetch_one(admin).await?)
    }

    /// Creates the template under a temporary name until it is complete.
    async fn create_template(&self, admin: &mut PgConnection, name: &str) -> Result<()> {
        private_postgres::ensure_roles(admin).await?;
        let temporary = format!("{name}_new");
        admin
            .execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {temporary} WITH (FORCE)")))
            .await?;
        admin
            .execute(AssertSqlSafe(format!("CREATE DATABASE {temporary} OWNER {OWNER_ROLE}")))
            .await?;
        let mut inside =
            PgConnection::connect_with(&self.admin.clone().database(&temporary)).await?;
        let restrict = private_postgres::restrict_functions_sql(PROGRAM_ROLES);
        inside.execute(AssertSqlSafe(restrict)).await?;
        inside.close().await?;
        migrations::migrate_url(&self.url(OWNER_ROLE, &temporary), &Roles::default()).await?;
        // A template with a session (such as autovacuum's) can't be cloned.
        admin
            .execute(AssertSqlSafe(format!(
                "ALTER DATABASE {temporary} WITH ALLOW_CONNECTIONS false"
            )))
            .await?;
        admin
            .execute(AssertSqlSafe(format!("ALTER DATABASE {temporary} RENAME TO {name}")))
            .await?;
        Ok(())
    }
}
