//! Errors of commands about an unusable database, before they change anything.

use std::process::{Output, Stdio};

use testdb::TestDatabase;
use tokio::process::Command;

async fn gantry(url: &str, command: &[&str]) -> Output {
    let mut gantry = Command::new(env!("CARGO_BIN_EXE_gantry"));
    gantry.args(command).env_clear().env(variable(command), url).env("HOME", std::env::temp_dir());
    gantry.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("gantry runs")
}

/// The variable with the database's URL for a command.
fn variable(command: &[&str]) -> &'static str {
    if command[0] == "admin" { "GANTRY_OWNER_URL" } else { "DATABASE_URL" }
}

/// The URL with the role of a command.
fn own_url<'d>(db: &'d TestDatabase, command: &[&str]) -> &'d str {
    match command[0] {
        "admin" => db.owner_url(),
        "worker" => db.worker_url(),
        _ => db.server_url(),
    }
}

async fn refused(url: &str, command: &[&str]) -> String {
    let ended = gantry(url, command).await;
    let text = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(1), "{command:?}: {text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("gantry: ")).count(), 1, "{text}");
    text
}

fn with(url: &str, from: &str, to: &str) -> String {
    assert!(url.contains(from), "{from} is missing in the address");
    url.replacen(from, to, 1)
}

/// All commands with a database connection of their own.
const COMMANDS: [&[&str]; 4] =
    [&["server", "--listen", "127.0.0.1:0"], &["worker"], &["verify"], &["admin", "ada"]];

#[tokio::test]
async fn owner_url_is_rejected_by_programs() {
    let db = TestDatabase::new().await;
    for command in COMMANDS.iter().filter(|command| command[0] != "admin") {
        let text = refused(db.owner_url(), command).await;
        assert!(
            text.contains("owns Gantry's tables") && text.contains("GANTRY_OWNER_URL"),
            "{command:?}: {text}"
        );
    }
}

#[tokio::test]
async fn url_of_another_role_is_rejected() {
    let db = TestDatabase::new().await;
    for command in COMMANDS {
        let own = own_url(&db, command);
        for other in [db.server_url(), db.worker_url(), db.metrics_url()] {
            if other == own {
                continue;
            }
            let text = refused(other, command).await;
            let needed = match command[0] {
                "admin" => "does not own Gantry's tables. Set it to the URL of their owner",
                "worker" => {
                    "not the worker's role. Set DATABASE_URL of this command to the URL of \
                     gantry_worker"
                }
                _ => {
                    "not the server's role. Set DATABASE_URL of this command to the URL of \
                     gantry_server"
                }
            };
            assert!(text.contains(needed), "{command:?}: {text}");
        }
    }
    let made = gantry(db.owner_url(), &["admin", "ada"]).await;
    assert!(made.status.success(), "{made:?}");
}

#[tokio::test]
async fn setup_creates_all_roles() {
    let printed = gantry("", &["migrate", "--print-setup", "--worker-role", "shop_worker"]).await;
    let sql = String::from_utf8(printed.stdout).expect("text");
    for role in ["gantry_owner", "gantry_server", "shop_worker", "gantry_metrics"] {
        assert!(sql.contains(&format!("CREATE ROLE {role} LOGIN")), "{role}: {sql}");
        assert!(sql.contains(&format!("ALTER ROLE {role} PASSWORD")), "{role}: {sql}");
    }
    assert!(sql.contains("TO gantry_server, shop_worker, gantry_metrics;"), "{sql}");
}

#[tokio::test]
async fn other_schema_version_is_reported_first() {
    let db = TestDatabase::new().await;
    let assert_error = async |word: &str| {
        for command in COMMANDS {
            let text = refused(own_url(&db, command), command).await;
            assert!(text.contains(word), "{command:?}: {text}");
        }
    };
    let owner = async |sql: &'static str| {
        sqlx::raw_sql(sql).execute(db.owner()).await.unwrap();
    };
    owner("UPDATE guard_version SET hash = sha256('older')").await;
    assert_error("The guards of the database").await;
    owner("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_future', 0)").await;
    assert_error("a newer Gantry").await;
    owner(
        "DELETE FROM seaql_migrations WHERE version IN ('m9999_future', (SELECT max(version) \
        FROM seaql_migrations WHERE version < 'm9'))",
    )
    .await;
    assert_error("an older Gantry").await;
    owner("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m0001_foundation', 0)")
        .await;
    assert_error("an unreleased version of Gantry").await;
    owner("DROP TABLE seaql_migrations").await;
    assert_error("`gantry migrate`").await;
}

#[tokio::test]
async fn invalid_database_url_names_the_wrong_part() {
    let db = TestDatabase::new().await;
    for command in COMMANDS {
        let nowhere = with(own_url(&db, command), db.name(), "there_is_none");
        assert!(
            refused(&nowhere, command).await.contains("Database there_is_none does not exist"),
            "{command:?}"
        );
        assert!(
            refused("", command).await.contains(&format!("{} is empty", variable(command))),
            "{command:?}"
        );
        assert!(refused("mysql://db/shop", command).await.contains("postgres://"), "{command:?}");
    }
    let nobody = "postgres://gantry_server:geheim@127.0.0.1:1/gantry";
    let text = refused(nobody, &["verify"]).await;
    assert!(text.contains("127.0.0.1:1 does not answer") && !text.contains("geheim"), "{text}");
}
