//! What a command says of a database that it can't work on, before it does anything.

use std::process::{Output, Stdio};

use testdb::TestDatabase;
use tokio::process::Command;

async fn gantry(url: &str, command: &[&str]) -> Output {
    let mut gantry = Command::new(env!("CARGO_BIN_EXE_gantry"));
    let variable = if command[0] == "admin" { "GANTRY_OWNER_URL" } else { "DATABASE_URL" };
    gantry.args(command).env_clear().env(variable, url).env("HOME", std::env::temp_dir());
    gantry.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("gantry runs")
}

async fn refused(url: &str, command: &[&str]) -> String {
    let ended = gantry(url, command).await;
    let said = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(1), "{command:?}: {said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("gantry: ")).count(), 1, "{said}");
    said
}

fn with(url: &str, from: &str, to: &str) -> String {
    assert!(url.contains(from), "{from} is no part of the address");
    url.replacen(from, to, 1)
}

/// Every command that works on a database by itself.
const COMMANDS: [&[&str]; 4] = [&["server", "--listen", "127.0.0.1:0"], &["worker"], &["verify"], &["admin", "ada"]];

#[tokio::test]
async fn the_owners_address_is_not_taken_for_the_applications() {
    let db = TestDatabase::new().await;
    for command in COMMANDS.into_iter().filter(|command| command[0] != "admin") {
        let said = refused(db.owner_url(), command).await;
        assert!(said.contains("owns Gantry's tables") && said.contains("GANTRY_OWNER_URL"), "{command:?}: {said}");
    }
}

#[tokio::test]
async fn admin_command_takes_the_owners_address_only() {
    let db = TestDatabase::new().await;
    let said = refused(db.app_url(), &["admin", "ada"]).await;
    assert!(said.contains("gantry_app, who does not own Gantry's tables"), "{said}");
    let made = gantry(db.owner_url(), &["admin", "ada"]).await;
    assert!(made.status.success(), "{made:?}");
}

#[tokio::test]
async fn tables_of_another_version_are_told_before_anything_is_done() {
    let db = TestDatabase::new().await;
    let says = async |word: &str| {
        for command in COMMANDS {
            let url = if command[0] == "admin" { db.owner_url() } else { db.app_url() };
            let said = refused(url, command).await;
            assert!(said.contains(word), "{command:?}: {said}");
        }
    };
    let owner = async |sql: &'static str| {
        sqlx::raw_sql(sql).execute(db.owner()).await.unwrap();
    };
    owner("UPDATE guard_version SET hash = sha256('older')").await;
    says("what guards the database's tables").await;
    owner("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_future', 0)").await;
    says("a newer Gantry").await;
    owner("DELETE FROM seaql_migrations WHERE version IN ('m9999_future', (SELECT max(version) FROM seaql_migrations WHERE version < 'm9'))").await;
    says("an older Gantry").await;
    owner("DROP TABLE seaql_migrations").await;
    says("`gantry migrate`").await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_says_which_part_is_wrong() {
    let db = TestDatabase::new().await;
    let nowhere = with(db.app_url(), db.name(), "there_is_none");
    for command in COMMANDS {
        assert!(refused(&nowhere, command).await.contains("there is no database there_is_none"), "{command:?}");
        assert!(refused("", command).await.contains("_URL is empty"), "{command:?}");
        assert!(refused("mysql://db/shop", command).await.contains("postgres://"), "{command:?}");
    }
    let nobody = "postgres://gantry_app:geheim@127.0.0.1:1/gantry";
    let said = refused(nobody, &["verify"]).await;
    assert!(said.contains("127.0.0.1:1 does not answer") && !said.contains("geheim"), "{said}");
}
