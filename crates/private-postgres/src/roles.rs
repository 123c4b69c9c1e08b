//! The two roles and the database.
//!
//! *Theory.* The owner role owns the schema and runs migrations. The application role is what server and workers use:
//! it can't alter tables, and what it must never change (objects, targets, submissions, verdicts, audit) it can only
//! add to. One text makes both: run here for a private cluster, printed for a person whose cluster is somebody else's.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::Error;

/// Owns the schema, runs migrations.
pub const OWNER_ROLE: &str = "gantry_owner";
/// What server and workers connect as.
pub const APP_ROLE: &str = "gantry_app";
/// The database of a private cluster.
pub const DATABASE: &str = "gantry";

const ROLES: &str = r#"
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gantry_owner') THEN
    CREATE ROLE gantry_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gantry_app') THEN
    CREATE ROLE gantry_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
"#;

/// Ensures roles and database on a cluster, as its superuser.
///
/// # Errors
/// The server's refusal, as when the role isn't allowed to make roles.
pub async fn ensure_roles(admin: &mut PgConnection) -> Result<(), Error> {
    admin.execute(ROLES).await?;
    let there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(DATABASE)
        .fetch_one(&mut *admin)
        .await?;
    if !there {
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {DATABASE} OWNER {OWNER_ROLE}"))).await?;
    }
    admin.execute(AssertSqlSafe(format!("REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC"))).await?;
    admin.execute(AssertSqlSafe(format!("GRANT CONNECT ON DATABASE {DATABASE} TO {APP_ROLE}"))).await?;
    Ok(())
}

/// The SQL that a database administrator runs once (psql, as superuser) before Gantry can use a cluster of theirs.
pub fn set_up_sql() -> String {
    format!(
        "{ROLES}\
         ALTER ROLE {OWNER_ROLE} PASSWORD 'choose one';\n\
         ALTER ROLE {APP_ROLE} PASSWORD 'choose another';\n\
         CREATE DATABASE {DATABASE} OWNER {OWNER_ROLE};\n\
         REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC;\n\
         GRANT CONNECT ON DATABASE {DATABASE} TO {APP_ROLE};\n"
    )
}
