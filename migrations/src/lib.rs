//! Gantry's schema, and the guards in it.
//!
//! # Theory
//!
//! *What for.* Reality moves only toward an approved target. The use cases enforce that once, and the database enforces
//! it again, because the database is what every surface, every worker and every future mistake goes through.
//!
//! *Two kinds of SQL.* Tables change by migrations: forward only, in order, each once (`m0001_foundation.sql`, ...).
//! Functions, triggers and grants are one replaceable text, `guards.sql`, `guards/*.sql` and `grants.sql`: every [`migrate`] drops what it made and makes
//! it again, so what guards the tables is always what this build was tested with.
//!
//! *Four roles.* The owner runs this. The server, the workers and monitoring have a role each ([`Roles`]). These three own nothing and
//! can't disable a trigger. The server's role writes intent, the workers' role writes progress, the role of monitoring reads counts.
//!
//! *Invariants.* All of a [`migrate`] is one transaction under an advisory lock (sea-orm-migration takes none), so two
//! starting servers don't meet and a failure leaves the schema as it was. It also takes the two locks of claim and
//! commit, so nobody is in the middle of either when triggers are replaced.
//!
//! # What the guards refuse
//!
//! Each with an SQLSTATE of its own (class `GY`, [`Refusal`]) and a message for people; the hint says what to do.
//!
//! | SQLSTATE | meaning |
//! |---|---|
//! | GY001 | a row that may only be added is changed or removed |
//! | GY002 | intent is changed outside a commit |
//! | GY003 | the target doesn't follow the head (number, parent, switch, genesis) |
//! | GY004 | the base of the submission has moved |
//! | GY005 | the proposal isn't open at that version |
//! | GY006 | another policy is in force |
//! | GY007 | approvals are missing, or somebody objects |
//! | GY008 | the submission is of another epoch (a backup was restored) |
//! | GY009 | the submission is incomplete: a deployment isn't in its base, an author or a risk is missing, or it changes nothing |
//! | GY010 | the new root differs from its parent in other documents than the submission lists |
//! | GY011 | an author's verdict |
//! | GY012 | the verdict of somebody who may not review |
//! | GY013 | parts are added to a submission after it was made |
//! | GY014 | a commit ends without having projected what it changes |
//! | GY015 | what a run is about is changed |
//! | GY016 | a one-time thing is used again, or a closed one is opened again |
//! | GY017 | a thread of the discussion is open |
//! | GY018 | somebody speaks in a discussion, or resolves a thread, who may not |
//! | GY019 | somebody commits, switches or holds who may not, or not any more |
//! | GY020 | the folder of a local node and another's lie in one another |
//! | GY021 | a deployment lies too far below the first |
//! | GY022 | a submission of a proposal on one node changes more than that node |
//! | GY023 | an address or a network card of a node is another's already |
//! | GY024 | nobody would be left who may decide about people |
//! | GY025 | a permission is given in a part of the tree that is none |
//! | GY026 | a person gets the name under which Gantry itself is told of |
//! | GY030 | the connection or hints of a node with a document are changed outside a commit |
//! | GY031 | the connection or hints of a node are not those of its document |
//! | GY032 | the connection or hints of a node change while a run is open there |
//! | GY035 | a row in the name of a person that the transaction does not act for |
//! | GY036 | a row that takes a session, or a token with another scope |
//! | GY037 | people, links or passwords are changed without an admin's session or the old password |
//! | GY038 | a session is extended beyond its limits |
//! | GY040 | approvals do not count, because an author gave those people access |
//! | GY041 | access is confirmed by an admin who may not confirm it |
//! | GY042 | a session that began with an admin's link acts before it has a password, or is given another admin |
//! | GY044 | an audit row names another actor than the person that the transaction acts for |
//! | GY047 | a step moves without its run, or without a cause |
//! | GY048 | a run is inserted for a step that may not start now |
//! | GY049 | a run moves otherwise than from queued to running to ended, or what it was told changes |
//! | GY050 | output, results or system data are written that no run returned |
//! | GY051 | a log is written that is not at its end, or of a run that no worker has |
//! | GY052 | the state of a node changes without a health check, or facts without a witness |
//! | GY053 | a commit writes rows of documents that its submission does not list |
//! | GY054 | a commit leaves rows that differ from the documents |
//! | GY056 | the version of a barclamp is invalid, or another spelling of a stored one |
//! | GY057 | a person registers too many passkeys |
//! | GY058 | a passkey is confirmed without a confirmed passkey of its person or of an admin |
//! | GY059 | a verdict is signed by a passkey that is not its person's |
//! | GY060 | approvals without a signature that the policy demands |
//! | GY070 | a session acts before its second factor is presented |
//! | GY071 | a code of an authenticator app is used again, or is not of this time |

use sea_orm_migration::prelude::{MigrationTrait, MigratorTrait};
use sea_orm_migration::sea_orm::{
    ConnectionTrait, DatabaseBackend, DatabaseConnection, DbErr, SqlxPostgresConnector, Statement,
    TransactionTrait as _,
};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

mod m0001_foundation;
mod m0002_discussion;
mod m0003_removal;
mod m0004_scopes_and_replans;
mod m0005_line;
mod m0006_opened;
mod m0007_dropped;
mod m0008_catalog_objects;
mod m0009_own_reviews;
mod m0010_node_records;
mod m0011_dropped_before;
mod m0012_opened_policy;
mod m0013_policy_targets;
mod m0014_left_out;
mod m0015_removed_names;
mod m0016_canonical_roots;
mod m0017_policies_with_targets;
mod m0018_bare_nodes;
mod m0019_looks;
mod m0020_forgotten;
mod m0021_machines;
mod m0022_results;
mod m0023_waiting;
mod m0024_each_address;
mod m0025_machines_once;
mod m0026_people;
mod m0028_interface;
mod m0029_orders;
mod m0030_imports;
mod m0031_forgotten_workers;
mod m0032_runs_of_workers;
mod m0033_grants_version;
mod m0034_no_table_of_secrets;
mod m0035_visits;
mod m0036_acting;
mod m0037_machine_documents;
mod m0038_roles;
mod m0039_secrets;
mod m0040_access_changes;
mod m0041_audit_chain;
mod m0042_progress;
mod m0043_credentials;
mod m0044_probes;
mod m0045_passkeys;
mod m0046_second_factor;
mod m0047_password_first;
mod refusal;

pub use refusal::Refusal;

/// The server's role unless another is configured.
pub const SERVER_ROLE: &str = "gantry_server";
/// The workers' role unless another is configured.
pub const WORKER_ROLE: &str = "gantry_worker";
/// The role of monitoring unless another is configured.
pub const METRICS_ROLE: &str = "gantry_metrics";

/// The names of the roles that [`migrate`] grants rights to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// The server's role.
    pub server: String,
    /// The role of all workers.
    pub worker: String,
    /// The role of monitoring, which only reads.
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

/// What a role is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `gantry server`, and commands that read or write intent.
    Server,
    /// `gantry worker`.
    Worker,
    /// Monitoring.
    Metrics,
}

impl Purpose {
    /// Its name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
            Self::Metrics => "metrics",
        }
    }
}

/// The transaction-level advisory lock of claims: `pg_try_advisory_xact_lock(CLAIM_LOCK)`.
pub const CLAIM_LOCK: i64 = 1;
/// The transaction-level advisory lock of everything that applies a change; claim, lease and finish take it shared.
pub const APPLY_LOCK: i64 = 2;
/// The transaction-level advisory lock of sealing the audit; taken inside `seal_audit()`.
pub const SEAL_LOCK: i64 = 3;
/// The transaction-level advisory lock of migrations.
pub const MIGRATE_LOCK: i64 = 4;
/// The transaction-level advisory lock of adding nodes; taken by the guards of their folders, addresses and network cards.
pub const ROOT_LOCK: i64 = 5;
/// The transaction-level advisory lock of taking an admin away; taken by the guard of people.
pub const ADMIN_LOCK: i64 = 6;
/// The transaction-level advisory lock of imports; taken before the catalog is looked at that an import was read on.
pub const IMPORT_LOCK: i64 = 7;

/// Functions and triggers, one file per topic, then the grants. Applied in this order; later files may use functions of earlier ones.
const GUARDS: &str = concat!(
    include_str!("guards/secrets.sql"),
    "\n",
    include_str!("guards.sql"),
    "\n",
    include_str!("guards/acting.sql"),
    "\n",
    include_str!("guards/catalog.sql"),
    "\n",
    include_str!("guards/probes.sql"),
    "\n",
    include_str!("guards/people.sql"),
    "\n",
    include_str!("guards/passkeys.sql"),
    "\n",
    include_str!("guards/second_factor.sql"),
    "\n",
    include_str!("guards/nodes.sql"),
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

/// Why the schema couldn't be brought up to date.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Roles that are to get rights do not exist.
    #[error("these database roles do not exist: {}. As a superuser of the database, run: {}", .0.join(", "), creation(.0))]
    MissingRoles(Vec<String>),
    /// A role that is to get few rights has all of them.
    #[error(
        "the role {0:?} has the rights of the role that migrates. Set GANTRY_OWNER_URL to the owner's address, and use separate \
         roles for the server, the workers and monitoring"
    )]
    RoleIsOwner(String),
    /// A role that is to get few rights has those of another one.
    #[error(
        "the role {0:?} has the rights of {1:?}: the server, the workers and monitoring need a separate role each"
    )]
    SharedRole(String, String),
    /// The database is newer than this build.
    #[error("this build is older than the database: {0}")]
    Newer(String),
    /// The database refused.
    #[error("the database refused a migration: {0}")]
    Database(#[from] DbErr),
    /// The database can't be reached.
    #[error("the owner's database can't be reached: {0}")]
    Unreachable(#[from] sqlx::Error),
}

fn creation(roles: &[String]) -> String {
    let create = |role: &String| format!("CREATE ROLE \"{}\" LOGIN;", role.replace('"', "\"\""));
    roles.iter().map(create).collect::<Vec<_>>().join(" ")
}

/// The migrations, and the text of all their tables: one list, so that neither has what the other lacks.
macro_rules! migrations {
    ($($name:ident,)*) => {
        struct Migrator;

        impl MigratorTrait for Migrator {
            fn migrations() -> Vec<Box<dyn MigrationTrait>> {
                vec![$(Box::new($name::Migration)),*]
            }
        }

        const TABLES: &[&str] = &[$($name::SQL),*];
    };
}

migrations! {
    m0001_foundation,
    m0002_discussion,
    m0003_removal,
    m0004_scopes_and_replans,
    m0005_line,
    m0006_opened,
    m0007_dropped,
    m0008_catalog_objects,
    m0009_own_reviews,
    m0010_node_records,
    m0011_dropped_before,
    m0012_opened_policy,
    m0013_policy_targets,
    m0014_left_out,
    m0015_removed_names,
    m0016_canonical_roots,
    m0017_policies_with_targets,
    m0018_bare_nodes,
    m0019_looks,
    m0020_forgotten,
    m0021_machines,
    m0022_results,
    m0023_waiting,
    m0024_each_address,
    m0025_machines_once,
    m0026_people,
    m0028_interface,
    m0029_orders,
    m0030_imports,
    m0031_forgotten_workers,
    m0032_runs_of_workers,
    m0033_grants_version,
    m0034_no_table_of_secrets,
    m0035_visits,
    m0036_acting,
    m0037_machine_documents,
    m0038_roles,
    m0039_secrets,
    m0040_access_changes,
    m0043_credentials,
    m0044_probes,
    m0041_audit_chain,
    m0042_progress,
    m0045_passkeys,
    m0046_second_factor,
    m0047_password_first,
}

/// Brings the schema up to date by the owner role's URL; see [`migrate`].
///
/// # Errors
/// As [`migrate`], and when the database can't be reached.
pub async fn migrate_url(owner_url: &str, roles: &Roles) -> Result<(), Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect(owner_url).await?;
    let migrated = migrate(&pool, roles).await;
    pool.close().await;
    migrated
}

/// Brings the schema up to date and makes its guards and grants anew. Idempotent; safe to call from several processes
/// at once and while servers and workers run.
///
/// # Errors
/// A missing role or one with too many rights, a database that a newer build has migrated, or what the database refused. Nothing has changed
/// then.
pub async fn migrate(owner: &PgPool, roles: &Roles) -> Result<(), Error> {
    let connection = connection(owner);
    let transaction = connection.begin().await?;
    require_roles(&transaction, roles).await?;
    for lock in [MIGRATE_LOCK, CLAIM_LOCK, APPLY_LOCK] {
        run(&transaction, "SELECT pg_advisory_xact_lock($1)", [lock.into()]).await?;
    }
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

/// How a database stands to this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Schema and guards are those of this build.
    Current,
    /// It was never migrated, or this role may not see that it was.
    Empty,
    /// Migrations are missing.
    Behind,
    /// It has migrations that this build does not know.
    Ahead,
    /// The tables are the same, what guards them is not.
    OtherGuards,
}

/// How a database stands to this build. Works for every role.
///
/// # Errors
/// What the database refused.
pub async fn standing(pool: &PgPool) -> Result<Standing, Error> {
    let may_read =
        "SELECT coalesce(has_table_privilege(to_regclass('seaql_migrations'), 'SELECT'), false)
        AND coalesce(has_table_privilege(to_regclass('guard_version'), 'SELECT'), false)";
    if !sqlx::query_scalar::<_, bool>(may_read).fetch_one(pool).await? {
        return Ok(Standing::Empty);
    }
    match Migrator::get_pending_migrations_read_only(&connection(pool)).await {
        Ok(pending) if pending.is_empty() => {}
        Ok(_) => return Ok(Standing::Behind),
        Err(DbErr::Custom(_)) => return Ok(Standing::Ahead),
        Err(refused) => return Err(refused.into()),
    }
    let applied: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT hash FROM guard_version").fetch_optional(pool).await?;
    Ok(if applied == Some(guards_hash()) { Standing::Current } else { Standing::OtherGuards })
}

/// Whether a database is of this build; see [`standing`].
///
/// # Errors
/// What the database refused.
pub async fn is_current(pool: &PgPool) -> Result<bool, Error> {
    Ok(standing(pool).await? == Standing::Current)
}

/// The role of a purpose, as far as a connection has anything to do with it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct DatabaseRole {
    /// The name of the role that the latest migration granted the rights to.
    pub name: String,
    /// Whether the connection's role is that role or a member of it.
    pub is_own: bool,
}

/// The role of a purpose. `None`: no migration has granted rights for it.
///
/// # Errors
/// What the database refused.
pub async fn database_role(pool: &PgPool, purpose: Purpose) -> Result<Option<DatabaseRole>, Error> {
    let sql = "SELECT d.name::text AS name, coalesce(pg_has_role(r.oid, 'USAGE'), false) AS is_own
        FROM database_role d LEFT JOIN pg_roles r ON r.rolname = d.name WHERE d.purpose = $1";
    Ok(sqlx::query_as(sql).bind(purpose.as_str()).fetch_optional(pool).await?)
}

/// Raises the epoch after a backup was restored, as the owner: submissions, runs and ledger entries from before no
/// longer count. Returns the new one.
///
/// # Errors
/// What the database refused.
pub async fn raise_epoch(owner: &PgPool) -> Result<i64, Error> {
    Ok(sqlx::query_scalar("SELECT raise_epoch()").fetch_one(owner).await?)
}

fn connection(pool: &PgPool) -> DatabaseConnection {
    SqlxPostgresConnector::from_sqlx_postgres_pool(pool.clone())
}

/// A name for everything that [`migrate`] applies: another one as soon as any of it changes. Tests name their template
/// database by it.
pub fn content() -> String {
    let mut hash = Sha256::new();
    for tables in TABLES {
        hash.update(tables);
    }
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
        // A superuser has the rights of every role.
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
