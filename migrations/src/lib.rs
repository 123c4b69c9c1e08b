//! Gantry's schema and the guards that protect it.
//!
//! The actual state moves only toward an approved desired state. The use cases enforce this rule.
//! The database enforces it again, because every client, worker and future bug goes through it.
//!
//! * The tables are created by one migration, `schema/*.sql`. Later changes are forward-only
//!   migrations, each applied once. A database with other first tables, of an unreleased version, is
//!   rejected ([`Error::Unsupported`]).
//! * Functions, triggers and grants (`admission.sql`, `guards/*.sql`, `grants.sql`) are replaced by
//!   every [`migrate`]. So a database always has the guards that this build was tested with.
//! * The owner role runs the migrations. The server, the workers and monitoring have a role each
//!   ([`Roles`]). These three own nothing and cannot disable a trigger. The server's role writes
//!   intent, the worker's role writes progress, the metrics role reads counts.
//! * A [`migrate`] is one transaction under an advisory lock (sea-orm-migration takes none). Two
//!   starting servers do not collide, and a failure leaves the schema unchanged. It also takes the
//!   locks of claim and commit, so no claim or commit runs while triggers are replaced.
//!
//! A guard rejects a statement with an SQLSTATE of class `GY`, a message and a hint with the
//! remedy. [`Refusal`] lists the states.
//!
//! Conventions of the schema:
//!
//! * An id is a uuid if an edit mints it or if it is derived from content. It is a bigint identity
//!   if the order of insertion matters.
//! * Hashes have 32 bytes.
//! * Enumerations are text with CHECK, which later migrations can extend without a rewrite.
//! * Blueprint number 0 means "before genesis". `generation` and `applied_generation` are blueprint
//!   numbers too.

use std::sync::LazyLock;

use sea_orm_migration::prelude::{MigrationName, MigrationTrait, MigratorTrait, SchemaManager};
use sea_orm_migration::sea_orm::{
    ConnectionTrait, DatabaseBackend, DatabaseConnection, DbErr, SqlxPostgresConnector, Statement,
    TransactionTrait as _,
};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, PgPool};

mod refusal;

pub use refusal::Refusal;

/// The server's default role.
pub const SERVER_ROLE: &str = "gantry_server";
/// The default role of the workers.
pub const WORKER_ROLE: &str = "gantry_worker";
/// The default role of monitoring.
pub const METRICS_ROLE: &str = "gantry_metrics";

/// The roles that [`migrate`] grants privileges to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    pub server: String,
    /// Shared by all workers.
    pub worker: String,
    /// Read-only role for monitoring.
    pub metrics: String,
}

impl Default for Roles {
    fn default() -> Self {
        Self {
            server: SERVER_ROLE.to_owned(),
            worker: WORKER_ROLE.to_owned(),
            metrics: METRICS_ROLE.to_owned(),
        }
    }
}

impl Roles {
    fn names(&self) -> [&str; 3] {
        [&self.server, &self.worker, &self.metrics]
    }
}

/// The process that a database role is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolePurpose {
    /// `gantry server` and the commands that read or write intent.
    Server,
    Worker,
    Metrics,
}

impl RolePurpose {
    /// The value of `database_role.purpose`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
            Self::Metrics => "metrics",
        }
    }
}

/// The advisory lock that serializes claims: `pg_try_advisory_xact_lock(CLAIM_LOCK)`.
pub const CLAIM_LOCK: i64 = 1;
/// The advisory lock of transactions that apply a change. Claim, lease and finish take it shared.
pub const APPLY_LOCK: i64 = 2;
/// The advisory lock that serializes sealing of the audit log. `seal_audit()` takes it.
pub const SEAL_LOCK: i64 = 3;
/// The advisory lock of migrations.
pub const MIGRATE_LOCK: i64 = 4;
/// The advisory lock for adding nodes. The guards of folders, addresses and MAC addresses take it.
pub const ROOT_LOCK: i64 = 5;
/// The advisory lock for removing an admin. `guard_admins` takes it.
pub const ADMIN_LOCK: i64 = 6;
/// The advisory lock of imports. An import takes it before it reads the catalog.
pub const IMPORT_LOCK: i64 = 7;

/// The tables, one file per noun. The order matters: foreign keys refer to earlier files.
const SCHEMA: &str = concat!(
    include_str!("schema/objects.sql"),
    include_str!("schema/people.sql"),
    include_str!("schema/catalog.sql"),
    include_str!("schema/blueprints.sql"),
    include_str!("schema/deployments.sql"),
    include_str!("schema/nodes.sql"),
    include_str!("schema/proposals.sql"),
    include_str!("schema/reviews.sql"),
    include_str!("schema/runs.sql"),
    include_str!("schema/workers.sql"),
    include_str!("schema/audit.sql"),
    include_str!("schema/events.sql"),
    include_str!("schema/times.sql"),
);

/// Functions and triggers, one file per topic, then the grants. The order matters: later files use
/// functions of earlier ones.
const GUARDS: &str = concat!(
    include_str!("admission.sql"),
    "\n",
    include_str!("guards/triggers.sql"),
    "\n",
    include_str!("guards/secrets.sql"),
    "\n",
    include_str!("guards/append_only.sql"),
    "\n",
    include_str!("guards/documents.sql"),
    "\n",
    include_str!("guards/permissions.sql"),
    "\n",
    include_str!("guards/blueprints.sql"),
    "\n",
    include_str!("guards/policies.sql"),
    "\n",
    include_str!("guards/proposals.sql"),
    "\n",
    include_str!("guards/reviews.sql"),
    "\n",
    include_str!("guards/verdicts.sql"),
    "\n",
    include_str!("guards/comments.sql"),
    "\n",
    include_str!("guards/intent.sql"),
    "\n",
    include_str!("guards/risks.sql"),
    "\n",
    include_str!("guards/moves.sql"),
    "\n",
    include_str!("guards/node_fits.sql"),
    "\n",
    include_str!("guards/runs.sql"),
    "\n",
    include_str!("guards/housekeeping.sql"),
    "\n",
    include_str!("guards/acting.sql"),
    "\n",
    include_str!("guards/catalog.sql"),
    "\n",
    include_str!("guards/health_checks.sql"),
    "\n",
    include_str!("guards/people.sql"),
    "\n",
    include_str!("guards/passkeys.sql"),
    "\n",
    include_str!("guards/second_factor.sql"),
    "\n",
    include_str!("guards/base.sql"),
    "\n",
    include_str!("guards/nodes.sql"),
    "\n",
    include_str!("guards/checks.sql"),
    "\n",
    include_str!("guards/progress.sql"),
    "\n",
    include_str!("guards/projection.sql"),
    "\n",
    include_str!("guards/audit.sql"),
    "\n",
    include_str!("guards/roles.sql"),
    "\n",
    include_str!("grants.sql"),
    "\n",
);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Configured roles do not exist.
    #[error(
        "these database roles do not exist: {}. As a superuser of the database, run: {}",
        .0.join(", "),
        create_role_sql(.0)
    )]
    MissingRoles(Vec<String>),
    /// A restricted role has the privileges of the owner.
    #[error(
        "the role {0:?} has the rights of the owner role. Set GANTRY_OWNER_URL to the URL of the \
         owner role, and use separate roles for the server, the workers and monitoring"
    )]
    RoleIsOwner(String),
    /// A restricted role has the privileges of another restricted role.
    #[error(
        "the role {0:?} has the rights of the role {1:?}. Use separate roles for the server, the \
         workers and monitoring"
    )]
    SharedRole(String, String),
    /// The database has the tables of an unreleased version.
    #[error(
        "its tables are from an unreleased version of Gantry, which cannot be upgraded. Save what \
         you need with that version (`gantry audit export`, `pg_dump`), then run `gantry migrate` on a new, \
         empty database"
    )]
    Unsupported,
    /// The database has migrations that this build does not know.
    #[error("the database is newer than this version of Gantry: {0}. Install a newer version")]
    Newer(String),
    /// PostgreSQL rejected a statement of a migration.
    #[error("the database rejected a migration: {0}")]
    Database(#[from] DbErr),
    #[error("cannot connect to the database as the owner role: {0}")]
    Unreachable(#[from] sqlx::Error),
}

fn create_role_sql(roles: &[String]) -> String {
    let create = |role: &String| format!("CREATE ROLE \"{}\" LOGIN;", role.replace('"', "\"\""));
    roles.iter().map(create).collect::<Vec<_>>().join(" ")
}

/// The name of [`Schema`]. It contains the hash of the tables, because before the first release
/// they are edited in place, and a database with other tables must be refused.
static SCHEMA_NAME: LazyLock<String> = LazyLock::new(|| {
    let hash = Sha256::digest(SCHEMA);
    hash[..8].iter().fold("m0001_schema_".to_owned(), |name, byte| format!("{name}{byte:02x}"))
});
const HAS_OTHER_SCHEMA: &str = "SELECT EXISTS (
    SELECT FROM seaql_migrations WHERE version LIKE 'm0001%' AND version <> $1)";

struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(Schema)]
    }
}

/// Creates the tables. Later migrations alter them.
struct Schema;

impl MigrationName for Schema {
    fn name(&self) -> &str {
        &SCHEMA_NAME
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Schema {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.get_connection().execute_unprepared(SCHEMA).await?;
        Ok(())
    }
}

/// Runs [`migrate`] with the owner's database URL.
///
/// # Errors
///
/// The database is unreachable, or [`migrate`] fails.
pub async fn migrate_url(owner_url: &str, roles: &Roles) -> Result<(), Error> {
    // The schema is one statement. If it is slow, the log would print all of it.
    let options = owner_url.parse::<PgConnectOptions>()?.disable_statement_logging();
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await?;
    let migrated = migrate(&pool, roles).await;
    pool.close().await;
    migrated
}

/// Updates the schema and replaces its guards and grants. Idempotent. Safe to call from several
/// processes at once and while servers and workers run.
///
/// # Errors
///
/// A role is missing or has too many privileges, a newer build has migrated the database, or a
/// statement fails. In each case the database is unchanged.
pub async fn migrate(owner: &PgPool, roles: &Roles) -> Result<(), Error> {
    let connection = connection(owner);
    let transaction = connection.begin().await?;
    require_roles(&transaction, roles).await?;
    for lock in [MIGRATE_LOCK, CLAIM_LOCK, APPLY_LOCK] {
        run(&transaction, "SELECT pg_advisory_xact_lock($1)", [lock.into()]).await?;
    }
    require_supported(&transaction).await?;
    require_not_newer(&transaction).await?;
    Migrator::up(&transaction, None).await?;
    for (purpose, name) in ["server", "worker", "metrics"].into_iter().zip(roles.names()) {
        let setting = format!("gantry.{purpose}_role");
        run(&transaction, "SELECT set_config($1, $2, true)", [setting.into(), name.into()]).await?;
    }
    transaction.execute_unprepared(GUARDS).await?;
    run(
        &transaction,
        "INSERT INTO guard_version (hash) VALUES ($1)
         ON CONFLICT (singleton) DO UPDATE SET hash = excluded.hash, applied_at = now()",
        [guards_hash().into()],
    )
    .await?;
    transaction.commit().await?;
    Ok(())
}

/// How the schema of a database compares with this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaStatus {
    Current,
    /// It was never migrated, or this role may not read the migration tables.
    Empty,
    /// It is from an unreleased version of Gantry, which cannot be upgraded.
    Unsupported,
    /// Migrations are missing.
    Behind,
    /// It has migrations that this build does not know.
    Ahead,
    /// The tables match, but the guards differ.
    GuardsDiffer,
}

/// Compares the schema of a database with this build. Works with every role.
pub async fn schema_status(pool: &PgPool) -> Result<SchemaStatus, Error> {
    let can_read_sql =
        "SELECT coalesce(has_table_privilege(to_regclass('seaql_migrations'), 'SELECT'), false)
        AND coalesce(has_table_privilege(to_regclass('guard_version'), 'SELECT'), false)";
    if !sqlx::query_scalar::<_, bool>(can_read_sql).fetch_one(pool).await? {
        return Ok(SchemaStatus::Empty);
    }
    if sqlx::query_scalar(HAS_OTHER_SCHEMA).bind(SCHEMA_NAME.as_str()).fetch_one(pool).await? {
        return Ok(SchemaStatus::Unsupported);
    }
    match Migrator::get_pending_migrations_read_only(&connection(pool)).await {
        Ok(pending) if pending.is_empty() => {}
        Ok(_) => return Ok(SchemaStatus::Behind),
        Err(DbErr::Custom(_)) => return Ok(SchemaStatus::Ahead),
        Err(refused) => return Err(refused.into()),
    }
    let applied: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT hash FROM guard_version").fetch_optional(pool).await?;
    Ok(if applied == Some(guards_hash()) {
        SchemaStatus::Current
    } else {
        SchemaStatus::GuardsDiffer
    })
}

/// Whether schema and guards match this build. See [`schema_status`].
pub async fn is_current(pool: &PgPool) -> Result<bool, Error> {
    Ok(schema_status(pool).await? == SchemaStatus::Current)
}

/// The database role of a [`RolePurpose`], seen from a connection.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct DatabaseRole {
    /// The role that the latest migration granted the privileges to.
    pub name: String,
    /// Whether the connection's role is this role or a member of it.
    pub is_own: bool,
}

/// The database role of a purpose. `None` if no migration has granted privileges for it.
pub async fn database_role(
    pool: &PgPool,
    purpose: RolePurpose,
) -> Result<Option<DatabaseRole>, Error> {
    let sql = "SELECT d.name::text AS name, coalesce(pg_has_role(r.oid, 'USAGE'), false) AS is_own
        FROM database_role d LEFT JOIN pg_roles r ON r.rolname = d.name WHERE d.purpose = $1";
    Ok(sqlx::query_as(sql).bind(purpose.as_str()).fetch_optional(pool).await?)
}

/// Raises the epoch after a restore and returns it. Only the owner may call it. Reviews, runs and
/// ledger entries of earlier epochs become invalid.
pub async fn raise_epoch(owner: &PgPool) -> Result<i64, Error> {
    Ok(sqlx::query_scalar("SELECT raise_epoch()").fetch_one(owner).await?)
}

fn connection(pool: &PgPool) -> DatabaseConnection {
    SqlxPostgresConnector::from_sqlx_postgres_pool(pool.clone())
}

/// A hash of everything that [`migrate`] applies. Tests name their template database after it.
pub fn content() -> String {
    let mut hash = Sha256::new();
    hash.update(SCHEMA);
    hash.update(GUARDS);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn guards_hash() -> Vec<u8> {
    Sha256::digest(GUARDS.as_bytes()).to_vec()
}

async fn require_roles(transaction: &impl ConnectionTrait, roles: &Roles) -> Result<(), Error> {
    let mut missing = Vec::new();
    for name in roles.names() {
        if !is_true(
            transaction,
            "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)",
            [name.into()],
        )
        .await?
        {
            missing.push(name.to_owned());
        }
    }
    if !missing.is_empty() {
        return Err(Error::MissingRoles(missing));
    }
    for name in roles.names() {
        // A superuser is a member of every role.
        if is_true(
            transaction,
            "SELECT pg_has_role($1::name, current_user, 'MEMBER')",
            [name.into()],
        )
        .await?
        {
            return Err(Error::RoleIsOwner(name.to_owned()));
        }
    }
    for (at, name) in roles.names().into_iter().enumerate() {
        for (_, other) in roles.names().into_iter().enumerate().filter(|(place, _)| *place != at) {
            let member = "SELECT pg_has_role($1::name, $2::name, 'MEMBER')";
            if is_true(transaction, member, [name.into(), other.into()]).await? {
                return Err(Error::SharedRole(name.to_owned(), other.to_owned()));
            }
        }
    }
    Ok(())
}

async fn is_true<const N: usize>(
    transaction: &impl ConnectionTrait,
    sql: &str,
    values: [sea_orm_migration::sea_orm::Value; N],
) -> Result<bool, DbErr> {
    let statement = Statement::from_sql_and_values(DatabaseBackend::Postgres, sql, values);
    match transaction.query_one_raw(statement).await? {
        Some(row) => row.try_get_by_index(0),
        None => Ok(false),
    }
}

async fn require_supported(transaction: &impl ConnectionTrait) -> Result<(), Error> {
    let any =
        is_true(transaction, "SELECT to_regclass('seaql_migrations') IS NOT NULL", []).await?;
    if any && is_true(transaction, HAS_OTHER_SCHEMA, [SCHEMA_NAME.as_str().into()]).await? {
        return Err(Error::Unsupported);
    }
    Ok(())
}

async fn require_not_newer(transaction: &impl ConnectionTrait) -> Result<(), Error> {
    match Migrator::get_migration_with_status_read_only(transaction).await {
        Err(DbErr::Custom(unknown)) => Err(Error::Newer(unknown)),
        Err(refused) => Err(refused.into()),
        Ok(_) => Ok(()),
    }
}

async fn run<const N: usize>(
    transaction: &impl ConnectionTrait,
    sql: &str,
    values: [sea_orm_migration::sea_orm::Value; N],
) -> Result<(), DbErr> {
    transaction
        .execute_raw(Statement::from_sql_and_values(DatabaseBackend::Postgres, sql, values))
        .await
        .map(|_| ())
}
