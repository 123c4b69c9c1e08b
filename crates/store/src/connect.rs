//! The pool, and what every statement's failure is called.

use std::str::FromStr;
use std::time::Duration;

use sea_orm::{DatabaseConnection, SqlxPostgresConnector};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Row as _};

/// How to reach the database.
#[derive(Debug, Clone)]
pub struct Connecting {
    /// `postgres://...` of the application's role.
    pub url: String,
    /// Most connections of this process.
    pub connections: u32,
    /// How long a statement may wait for a connection before it fails.
    pub wait: Duration,
}

impl Connecting {
    /// Ten connections, five seconds' wait.
    pub fn to(url: impl Into<String>) -> Self {
        Self { url: url.into(), connections: 10, wait: Duration::from_secs(5) }
    }
}

/// How long one statement may take, and how long a transaction may do nothing, as PostgreSQL reads it.
pub const STATEMENT_TIME: &str = "60s";

/// How each of our sessions is set. A client that vanished without a word must not keep locks for the hours that TCP takes by
/// itself: APPLY would stop everything. The longest statement of ours, a commit of 200,000 steps, takes eight seconds.
const SETTINGS: [(&str, &str); 6] = [
    // Compiling a claim takes longer than running it.
    ("jit", "off"),
    ("statement_timeout", STATEMENT_TIME),
    ("idle_in_transaction_session_timeout", STATEMENT_TIME),
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
];

/// Why a statement did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database could not be asked, or refused.
    #[error("the database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The same, from a statement that went through SeaORM.
    #[error("the database did not answer: {0}")]
    Orm(#[from] sea_orm::DbErr),
    /// A row holds what no statement of ours writes.
    #[error(
        "row {what} is not what it should be ({reason}): restore it from a backup, or report it"
    )]
    Corrupt {
        /// Table and key.
        what: String,
        /// What does not fit.
        reason: String,
    },
}

impl StoreError {
    /// A row that holds what it can't.
    pub fn corrupt(what: impl Into<String>, reason: impl ToString) -> Self {
        Self::Corrupt { what: what.into(), reason: reason.to_string() }
    }

    /// Whether asking again later may help. It does not where a row can't be read, or contradicts what the schema or we say of it: that
    /// is told to people, who alone can mend it.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Database(error) => passes(error),
            Self::Orm(sea_orm::DbErr::Conn(_) | sea_orm::DbErr::ConnectionAcquire(_)) => true,
            Self::Orm(sea_orm::DbErr::Exec(why) | sea_orm::DbErr::Query(why)) => match why {
                sea_orm::RuntimeErr::SqlxError(error) => passes(error),
                sea_orm::RuntimeErr::Internal(_) => false,
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
        // Data, constraints, statements, our own guards. All else is about the server, the connection, or others at the same time.
        sqlx::Error::Database(refused) => {
            let class = refused.code().map(|code| code.chars().take(2).collect::<String>());
            !class.is_some_and(|class| ["22", "23", "42", "GY", "P0"].contains(&class.as_str()))
        }
        _ => true,
    }
}

/// The database, as the application sees it.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    orm: DatabaseConnection,
}

impl Store {
    /// Opens the pool; the first statement connects, so a database that is away for a while only delays.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn open(how: &Connecting) -> Result<Self, StoreError> {
        let options =
            PgConnectOptions::from_str(&how.url)?.application_name("gantry").options(SETTINGS);
        let pool = PgPoolOptions::new()
            .max_connections(how.connections)
            .acquire_timeout(how.wait)
            .after_release(|connection, _| Box::pin(is_between_transactions(connection)))
            .connect_lazy_with(options);
        Ok(Self::over(pool))
    }

    /// Uses a pool that is there.
    pub fn over(pool: PgPool) -> Self {
        let orm = SqlxPostgresConnector::from_sqlx_postgres_pool(pool.clone());
        Self { pool, orm }
    }

    /// For statements that are written out.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// For rows.
    pub fn orm(&self) -> &DatabaseConnection {
        &self.orm
    }
}

/// A listener on a connection of its own. Out of the pool, one that lost its connection at the wrong moment would give back another that
/// still listens, and whoever gets that next is answered with a notification instead of a row.
///
/// # Errors
/// When the database does not answer.
pub async fn listener(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let own = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(pool.options().get_acquire_timeout())
        .connect_lazy_with(PgConnectOptions::clone(&pool.connect_options()));
    PgListener::connect_with(&own).await
}

/// Whether no transaction is open on a connection that comes back; if one is, the pool closes it. Whoever is dropped while BEGIN is
/// under way (a client hung up, a time limit passed) leaves one that sqlx does not know of, and the next user's BEGIN, SET TRANSACTION
/// and COMMIT would be those of somebody else's transaction. Between transactions, each simple statement is one of its own and begins with
/// it (a prepared one begins when it is bound, before it is executed).
async fn is_between_transactions(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(connection).await?.try_get(0)
}
