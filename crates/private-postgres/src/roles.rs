//! Creates the roles and the database.
//!
//! The owner role owns the schema and runs migrations. Server, workers and monitoring each connect
//! with a role of their own. A migration grants each role the rights that it needs. The same SQL
//! creates the roles of a private cluster, and is printed for administrators of other clusters.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::Error;

/// Role that owns the schema and runs migrations.
pub const OWNER_ROLE: &str = "gantry_owner";
pub const SERVER_ROLE: &str = "gantry_server";
pub const WORKER_ROLE: &str = "gantry_worker";
pub const METRICS_ROLE: &str = "gantry_metrics";
/// The roles of the programs. They may connect to the database and own nothing.
pub const PROGRAM_ROLES: [&str; 3] = [SERVER_ROLE, WORKER_ROLE, METRICS_ROLE];
/// The database of a private cluster.
pub const DATABASE: &str = "gantry";

/// SQL that creates missing roles.
fn roles_sql(program_roles: [&str; 3]) -> String {
    let mut sql = String::from("DO $roles$\nBEGIN\n");
    for role in [OWNER_ROLE].into_iter().chain(program_roles) {
        let _ = writeln!(
            sql,
            "  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {}) THEN
    CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
  END IF;",
            quoted(role, '\''),
            identifier(role)
        );
    }
    sql.push_str("EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;\nEND $roles$;\n");
    sql
}

/// A role's name as an SQL identifier, quoted only if necessary.
fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { quoted(name, '"') }
}

fn quoted(text: &str, quote: char) -> String {
    let doubled: String = [quote, quote].iter().collect();
    format!("{quote}{}{quote}", text.replace(quote, &doubled))
}

/// Ensures that roles and database exist in a cluster. Requires a superuser connection.
///
/// # Errors
/// If a statement fails, for example because the role may not create roles.
pub async fn ensure_roles(admin: &mut PgConnection) -> Result<(), Error> {
    admin.execute(AssertSqlSafe(roles_sql(PROGRAM_ROLES))).await?;
    let there: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(DATABASE)
            .fetch_one(&mut *admin)
            .await?;
    if !there {
        admin
            .execute(AssertSqlSafe(format!("CREATE DATABASE {DATABASE} OWNER {OWNER_ROLE}")))
            .await?;
    }
    for statement in grant_connect_sql(DATABASE, PROGRAM_ROLES) {
        admin.execute(AssertSqlSafe(statement)).await?;
    }
    Ok(())
}

/// SQL that lets only these roles and the owner connect to a database.
pub fn grant_connect_sql(database: &str, program_roles: [&str; 3]) -> [String; 2] {
    [
        format!("REVOKE ALL ON DATABASE {database} FROM PUBLIC"),
        format!(
            "GRANT CONNECT ON DATABASE {database} TO {}",
            program_roles.map(identifier).join(", ")
        ),
    ]
}

/// SQL that keeps functions from roles that don't need them. PostgreSQL lets every role take
/// advisory locks and write large objects, so the read-only role of monitoring could stop claims
/// and commits, or fill the disk. A superuser runs it in the database of Gantry.
pub fn restrict_functions_sql(program_roles: [&str; 3]) -> String {
    let [server, worker, _] = program_roles.map(identifier);
    format!(
        r"DO $functions$
DECLARE
  f record;
BEGIN
  FOR f IN SELECT oid::regprocedure AS name, proname LIKE '%advisory%' AS is_lock FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace
      AND (proname ~ '^pg_(try_)?advisory_' OR proname ~ '^(lo_|loread|lowrite)') LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f.name);
    IF f.is_lock THEN
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {OWNER_ROLE}, {server}, {worker}', f.name);
    END IF;
  END LOOP;
END $functions$;
"
    )
}

/// SQL that a database administrator runs once (in psql, as superuser) to prepare another cluster
/// for Gantry. It creates roles with these names for server, workers and monitoring.
pub fn setup_sql(program_roles: [&str; 3]) -> String {
    let [server, worker, metrics] = program_roles.map(identifier);
    let [revoke, connect] = grant_connect_sql(DATABASE, program_roles);
    format!(
        "{}\
         ALTER ROLE {OWNER_ROLE} PASSWORD 'choose one';   -- GANTRY_OWNER_URL: gantry migrate, \
         gantry admin\n\
         ALTER ROLE {server} PASSWORD 'choose another';   -- DATABASE_URL of gantry server\n\
         ALTER ROLE {worker} PASSWORD 'choose a third';   -- DATABASE_URL of gantry worker\n\
         ALTER ROLE {metrics} PASSWORD 'choose a fourth'; -- monitoring, read-only\n\
         CREATE DATABASE {DATABASE} OWNER {OWNER_ROLE};\n\
         {revoke};\n\
         {connect};\n\
         \\connect {DATABASE}\n\
         {}",
        roles_sql(program_roles),
        restrict_functions_sql(program_roles)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_quotes_unusual_role_names() {
        let sql = setup_sql(["shop_server", "Shop \"W\"", "it's"]);
        for part in [
            "CREATE ROLE shop_server LOGIN",
            "CREATE ROLE \"Shop \"\"W\"\"\" LOGIN",
            "rolname = 'it''s'",
            "TO shop_server, \"Shop \"\"W\"\"\", \"it's\";",
        ] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
    }
}
