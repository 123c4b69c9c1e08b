//! The connection pool and the error type.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use engine::Hash;
use sea_orm::prelude::async_trait;
use sea_orm::sea_query::Values;
use sea_orm::{
    ConnectionTrait, DatabaseConnection, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr,
    SqlxPostgresConnector, Statement,
};
use sea_query_sqlx::SqlxValues;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Postgres, Row as _};
use tokio::sync::Mutex;

/// Connection settings.
#[derive(Debug, Clone)]
pub struct Connecting {
    /// `postgres://...` with the application's role.
    pub url: String,
    /// The maximum number of connections of this process.
    pub connections: u32,
    /// The time that a statement waits for a connection before it fails.
    pub wait: Duration,
}

impl Connecting {
    /// Ten connections, a wait of five seconds.
    pub fn to(url: impl Into<String>) -> Self {
        Self { url: url.into(), connections: 10, wait: Duration::from_secs(5) }
    }
}

/// The time limit of a statement and of an idle transaction, in PostgreSQL's format.
pub const STATEMENT_TIME: &str = "60s";

/// Settings of each session. Without them, a client that vanishes could keep its locks for hours,
/// until TCP notices. A lost APPLY lock would stop everything. Gantry's longest statement, a commit
/// of 200,000 steps, takes eight seconds.
const SESSION_SETTINGS: [(&str, &str); 6] = [
    // Compiling a claim takes longer than running it.
    ("jit", "off"),
    ("statement_timeout", STATEMENT_TIME),
    ("idle_in_transaction_session_timeout", STATEMENT_TIME),
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
];

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is unreachable or rejects a statement.
    #[error("the database query failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The same for a statement of SeaORM.
    #[error("the database query failed: {0}")]
    Orm(DbErr),
    /// A row has a value that no statement of Gantry writes.
    #[error("the row {row} is invalid: {reason}. Restore it from a backup, or report the problem")]
    Corrupt {
        /// Table and key.
        row: String,
        reason: String,
    },
}

/// A refusal of a guard is the same error from both libraries.
impl From<DbErr> for StoreError {
    fn from(error: DbErr) -> Self {
        match error {
            DbErr::Exec(RuntimeErr::SqlxError(source))
            | DbErr::Query(RuntimeErr::SqlxError(source)) => match Arc::try_unwrap(source) {
                Ok(source) => Self::Database(source),
                Err(shared) => Self::Orm(DbErr::Query(RuntimeErr::SqlxError(shared))),
            },
            other => Self::Orm(other),
        }
    }
}

impl StoreError {
    pub fn corrupt(row: impl Into<String>, reason: impl ToString) -> Self {
        let reason = reason.to_string().trim_end_matches('.').to_owned();
        Self::Corrupt { row: row.into(), reason }
    }

    /// Whether a retry may help. It does not for rows that cannot be read, and for violations of
    /// the schema or of a guard. Those need a person to fix them.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) => passes(error),
            Self::Orm(DbErr::Conn(_) | DbErr::ConnectionAcquire(_)) => true,
            Self::Orm(DbErr::Exec(source) | DbErr::Query(source)) => match source {
                RuntimeErr::SqlxError(error) => passes(error),
                RuntimeErr::Internal(_) => false,
            },
            Self::Orm(_) | Self::Corrupt { .. } => false,
        }
    }
}

fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::RowNotFound
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_) => false,
        // Data, constraints, statements and guards. All other classes concern the server, the
        // connection or concurrent transactions.
        sqlx::Error::Database(db_error) => {
            let class = db_error.code().map(|code| code.chars().take(2).collect::<String>());
            !class.is_some_and(|class| ["22", "23", "42", "GY", "P0"].contains(&class.as_str()))
        }
        _ => true,
    }
}

/// The database connections of the application.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    orm: DatabaseConnection,
}

impl Store {
    /// Creates the pool without connecting, so a temporarily unavailable database only delays the
    /// first statement.
    ///
    /// # Errors
    ///
    /// The URL is invalid.
    pub fn open(settings: &Connecting) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(&settings.url)?
            .application_name("gantry")
            .options(SESSION_SETTINGS);
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections)
            .acquire_timeout(settings.wait)
            .after_release(|connection, _| Box::pin(is_between_transactions(connection)))
            .connect_lazy_with(options);
        Ok(Self::over(pool))
    }

    /// Uses an existing pool.
    pub fn over(pool: PgPool) -> Self {
        let orm = SqlxPostgresConnector::from_sqlx_postgres_pool(pool.clone());
        Self { pool, orm }
    }

    /// For SQL statements.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// For entities.
    pub fn orm(&self) -> &DatabaseConnection {
        &self.orm
    }
}

/// Runs SeaORM's statements on a connection, inside its transaction if it has one.
pub(crate) struct Orm<'c>(Mutex<&'c mut PgConnection>);

pub(crate) fn orm(connection: &mut PgConnection) -> Orm<'_> {
    Orm(Mutex::new(connection))
}

/// A statement with its values, for sqlx.
fn bound(statement: &Statement) -> sqlx::query::Query<'_, Postgres, SqlxValues> {
    let values = statement.values.clone().unwrap_or(Values(Vec::new()));
    sqlx::query_with(sqlx::AssertSqlSafe(statement.sql.as_str()), SqlxValues(values))
}

fn exec_error(error: sqlx::Error) -> DbErr {
    DbErr::Exec(RuntimeErr::SqlxError(error.into()))
}

fn query_error(error: sqlx::Error) -> DbErr {
    DbErr::Query(RuntimeErr::SqlxError(error.into()))
}

#[async_trait::async_trait]
impl ConnectionTrait for Orm<'_> {
    fn get_database_backend(&self) -> DbBackend {
        DbBackend::Postgres
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        let mut connection = self.0.lock().await;
        bound(&statement).execute(&mut **connection).await.map(Into::into).map_err(exec_error)
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        let mut connection = self.0.lock().await;
        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        query.execute(&mut **connection).await.map(Into::into).map_err(exec_error)
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        let mut connection = self.0.lock().await;
        let row = bound(&statement).fetch_optional(&mut **connection).await;
        row.map(|row| row.map(Into::into)).map_err(query_error)
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let mut connection = self.0.lock().await;
        let rows = bound(&statement).fetch_all(&mut **connection).await.map_err(query_error)?;
        Ok(rows.into_iter().map(Into::into).collect())
    }
}

/// The hash in a column.
pub(crate) fn hash(column: &str, bytes: &[u8]) -> Result<Hash, StoreError> {
    Hash::from_bytes(bytes).ok_or_else(|| StoreError::corrupt(column, "a hash must have 32 bytes"))
}

/// A listener with its own connection. A listener from the pool that fails at the wrong moment
/// could return a connection that still listens. The next user of that connection would receive a
/// notification instead of a row.
pub async fn listener(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let pool_of_one = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(pool.options().get_acquire_timeout())
        .connect_lazy_with(PgConnectOptions::clone(&pool.connect_options()));
    PgListener::connect_with(&pool_of_one).await
}

/// Whether a returned connection has no open transaction. If it has one, the pool closes it. A
/// future dropped during BEGIN (client gone, timeout) leaves a transaction that sqlx does not know.
/// The next user's BEGIN, SET TRANSACTION and COMMIT would then apply to it. Outside a transaction,
/// `now()` is the start of a simple statement. A prepared one starts when it is bound, before it
/// executes.
async fn is_between_transactions(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(connection).await?.try_get(0)
}
