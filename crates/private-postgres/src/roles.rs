//! The roles and the database.
//!
//! The owner's role owns the schema and runs migrations. The server, the workers and monitoring connect with a role each, and a migration
//! grants each of them what it needs. The same SQL makes the roles of a private cluster and is printed for the administrator of another
//! cluster.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::Error;

/// Owns the schema, runs migrations.
pub const OWNER_ROLE: &str = "gantry_owner";
/// The server's role.
pub const SERVER_ROLE: &str = "gantry_server";
/// The role of all workers.
pub const WORKER_ROLE: &str = "gantry_worker";
/// The role of monitoring.
pub const METRICS_ROLE: &str = "gantry_metrics";
/// The roles of the programs, which all may connect to the database and own nothing.
pub const PROGRAM_ROLES: [&str; 3] = [SERVER_ROLE, WORKER_ROLE, METRICS_ROLE];
/// The database of a private cluster.
pub const DATABASE: &str = "gantry";

/// Makes the roles that do not exist yet. Clusters of earlier versions have one role for server and workers, which becomes the server's.
fn roles_sql(programs: [&str; 3]) -> String {
    let server = programs[0];
    let mut sql = String::from("DO $roles$\nBEGIN\n");
    if server == SERVER_ROLE {
        sql.push_str(
            "  IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'gantry_app')
     AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gantry_server') THEN
    ALTER ROLE gantry_app RENAME TO gantry_server;
  END IF;\n",
        );
    }
    for role in [OWNER_ROLE].into_iter().chain(programs) {
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

/// A role's name as an identifier, quoted only if it has to be.
fn identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { quoted(name, '"') }
}

fn quoted(text: &str, quote: char) -> String {
    let doubled: String = [quote, quote].iter().collect();
    format!("{quote}{}{quote}", text.replace(quote, &doubled))
}

/// Ensures roles and database on a cluster, as its superuser.
///
/// # Errors
/// The server's refusal, as when the role isn't allowed to make roles.
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
    for statement in connect_sql(DATABASE, PROGRAM_ROLES) {
        admin.execute(AssertSqlSafe(statement)).await?;
    }
    Ok(())
}

/// Lets only these roles, and the owner, connect to a database.
pub fn connect_sql(database: &str, programs: [&str; 3]) -> [String; 2] {
    [
        format!("REVOKE ALL ON DATABASE {database} FROM PUBLIC"),
        format!("GRANT CONNECT ON DATABASE {database} TO {}", programs.map(identifier).join(", ")),
    ]
}

/// The SQL that a database administrator runs once (psql, as superuser) before Gantry can use a cluster of theirs: for the roles of the
/// server, the workers and monitoring under these names.
pub fn set_up_sql(programs: [&str; 3]) -> String {
    let [server, worker, metrics] = programs.map(identifier);
    let [revoke, connect] = connect_sql(DATABASE, programs);
    format!(
        "{}\
         ALTER ROLE {OWNER_ROLE} PASSWORD 'choose one';   -- GANTRY_OWNER_URL: gantry migrate, gantry admin\n\
         ALTER ROLE {server} PASSWORD 'choose another';   -- DATABASE_URL of gantry server\n\
         ALTER ROLE {worker} PASSWORD 'choose a third';   -- DATABASE_URL of gantry worker\n\
         ALTER ROLE {metrics} PASSWORD 'choose a fourth'; -- monitoring, read-only\n\
         CREATE DATABASE {DATABASE} OWNER {OWNER_ROLE};\n\
         {revoke};\n\
         {connect};\n",
        roles_sql(programs)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_quotes_unusual_role_names() {
        let sql = set_up_sql(["shop_server", "Shop \"W\"", "it's"]);
        for part in [
            "CREATE ROLE shop_server LOGIN",
            "CREATE ROLE \"Shop \"\"W\"\"\" LOGIN",
            "rolname = 'it''s'",
            "TO shop_server, \"Shop \"\"W\"\"\", \"it's\";",
        ] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
        assert!(!sql.contains("RENAME") && set_up_sql(PROGRAM_ROLES).contains("RENAME"), "{sql}");
    }
}
