//! Starts real clusters: as this user, as another user, after a kill, in unusual folders.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use private_postgres::{DATABASE, Error, PrivatePostgres, Settings};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

/// The folder (and kind of cluster) for tests that run again in a separate process.
const FOLDER: &str = "GANTRY_TEST_CLUSTER_FOLDER";

/// A folder that every account may enter, because a server started by root runs as another account.
fn shared_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn scalar<T>(url: &str, sql: &'static str) -> T
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    let mut connection = PgConnection::connect(url).await.unwrap();
    let value = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    value
}

async fn execute(url: &str, sql: &'static str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(sql).await?;
    connection.close().await
}

fn postmaster_pid(data_dir: &Path) -> i32 {
    let text = fs::read_to_string(data_dir.join("data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie counts as ended.
    !stat.is_empty() && !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

fn eventually(description: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 30 s: {description}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test]
async fn data_and_roles_survive_a_stop() {
    let folder = shared_folder();
    let home = folder.path().join("db");
    let cluster = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    execute(&cluster.owner_url(DATABASE), "CREATE TABLE kept AS SELECT 7 AS n").await.unwrap();
    for (url, name) in [
        (cluster.server_url(DATABASE), "gantry_server"),
        (cluster.worker_url(DATABASE), "gantry_worker"),
        (cluster.metrics_url(DATABASE), "gantry_metrics"),
    ] {
        assert_eq!(scalar::<String>(&url, "SELECT current_user::text").await, name);
    }
    assert_eq!(scalar::<String>(&cluster.owner_url(DATABASE), "SHOW fsync").await, "on");
    assert_eq!(scalar::<String>(&cluster.owner_url(DATABASE), "SHOW jit").await, "off");
    assert_eq!(scalar::<String>(&cluster.owner_url(DATABASE), "SHOW listen_addresses").await, "");
    let pid = postmaster_pid(&home);
    cluster.stop().await.unwrap();
    assert!(!runs(pid));

    let again = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    assert_eq!(scalar::<i32>(&again.owner_url(DATABASE), "SELECT n FROM kept").await, 7);
    let admin = again.admin_url(DATABASE);
    for removal in
        ["DROP OWNED BY gantry_worker, gantry_metrics", "DROP ROLE gantry_worker, gantry_metrics"]
    {
        execute(&admin, removal).await.unwrap();
    }
    again.stop().await.unwrap();

    // A start creates missing roles.
    let again = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    for url in [again.server_url(DATABASE), again.worker_url(DATABASE), again.metrics_url(DATABASE)]
    {
        assert_eq!(scalar::<i32>(&url, "SELECT 1").await, 1);
    }
    let pid = postmaster_pid(&home);
    drop(again);
    assert!(!runs(pid), "dropping the cluster must stop it");
}

#[tokio::test]
async fn the_application_role_owns_nothing() {
    let folder = shared_folder();
    let cluster =
        PrivatePostgres::start(Settings::throwaway(folder.path().join("db"))).await.unwrap();
    let app = cluster.server_url(DATABASE);
    execute(&cluster.owner_url(DATABASE), "CREATE TABLE t (n int)").await.unwrap();
    for refused in [
        "CREATE TABLE mine (n int)",
        "SELECT * FROM t",
        "DROP TABLE t",
        "CREATE ROLE x",
        "CREATE DATABASE x",
    ] {
        let error = execute(&app, refused).await.expect_err(refused);
        assert!(
            error.to_string().contains("denied") || error.to_string().contains("must be owner"),
            "{refused}: {error}"
        );
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn second_start_on_a_folder_fails() {
    let folder = shared_folder();
    let home = folder.path().join("db");
    let mut first = PrivatePostgres::start(Settings::throwaway(&home)).await.unwrap();
    let second = PrivatePostgres::start(Settings::throwaway(&home)).await;
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
    assert!(first.is_running());
    first.stop().await.unwrap();
    assert!(!home.exists(), "a temporary folder must be removed with its cluster");
}

#[tokio::test]
async fn dead_postmaster_is_restarted() {
    let folder = shared_folder();
    let home = folder.path().join("db");
    let mut cluster = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    execute(&cluster.owner_url(DATABASE), "CREATE TABLE kept AS SELECT 7 AS n").await.unwrap();
    assert!(!cluster.ensure_running().await.unwrap());
    sigkill(postmaster_pid(&home));
    eventually("the end of the process is detected", || !cluster.is_running());
    assert!(cluster.ensure_running().await.unwrap());
    assert_eq!(scalar::<i32>(&cluster.owner_url(DATABASE), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn deep_folders_get_a_short_socket() {
    let folder = shared_folder();
    let home = folder.path().join("d".repeat(100)).join("db");
    let cluster = PrivatePostgres::start(Settings::throwaway(&home)).await.unwrap();
    let socket = cluster.socket_dir().to_owned();
    assert!(socket.starts_with("/tmp"), "{}", socket.display());
    assert_eq!(scalar::<i32>(&cluster.server_url(DATABASE), "SELECT 1").await, 1);
    cluster.stop().await.unwrap();
    assert!(!socket.exists());
}

#[tokio::test]
async fn unusual_folder_names_work() {
    let folder = shared_folder();
    let home = folder.path().join("it's a \"näme\" & 100%");
    let cluster = PrivatePostgres::start(Settings::throwaway(&home)).await.unwrap();
    assert_eq!(scalar::<i32>(&cluster.server_url(DATABASE), "SELECT 1").await, 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn foreign_folder_is_rejected() {
    let folder = shared_folder();
    fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    let refused = PrivatePostgres::start(Settings::durable(folder.path())).await;
    assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{refused:?}");
}

#[tokio::test]
async fn other_major_version_is_rejected() {
    let folder = shared_folder();
    let home = folder.path().join("db");
    PrivatePostgres::start(Settings::durable(&home)).await.unwrap().stop().await.unwrap();
    fs::write(home.join("data/PG_VERSION"), "9\n").unwrap();
    let refused = PrivatePostgres::start(Settings::durable(&home)).await.unwrap_err();
    assert!(matches!(refused, Error::MajorVersionMismatch { data: 9, .. }), "{refused:?}");
    assert!(refused.to_string().contains("pg_dumpall"));
}

#[tokio::test]
async fn stale_pid_file_is_ignored() {
    let folder = shared_folder();
    let home = folder.path().join("db");
    PrivatePostgres::start(Settings::durable(&home)).await.unwrap().stop().await.unwrap();
    let data = home.join("data");
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(data.join("postmaster.pid"), format!("{}\n{}\n1\n", stranger.id(), data.display()))
        .unwrap();
    let cluster = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "a process of another program was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn failed_start_shows_the_log() {
    let folder = shared_folder();
    let home = folder.path().join("db");
    PrivatePostgres::start(Settings::durable(&home)).await.unwrap().stop().await.unwrap();
    fs::write(home.join("data/local.conf"), "shared_buffers = 'plenty'\n").unwrap();
    let refused = PrivatePostgres::start(Settings::durable(&home)).await.unwrap_err();
    assert!(refused.to_string().contains("shared_buffers"), "{refused}");
}

/// A helper process of other tests: runs a cluster until it is killed.
#[tokio::test]
#[ignore = "not a test: runs as a separate process for other tests"]
async fn holder_process() {
    let Some(home) = std::env::var_os(FOLDER) else {
        return;
    };
    let home = PathBuf::from(home);
    let throwaway = home.ends_with("throwaway");
    let settings = if throwaway { Settings::throwaway(&home) } else { Settings::durable(&home) };
    let cluster = PrivatePostgres::start(settings).await.unwrap();
    execute(&cluster.owner_url(DATABASE), "CREATE TABLE IF NOT EXISTS kept AS SELECT 7 AS n")
        .await
        .unwrap();
    println!("\nholding");
    tokio::time::sleep(Duration::from_secs(600)).await;
}

fn start_holder(home: &Path) -> Child {
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, home)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let is_ready = lines.map_while(Result::ok).any(|line| line == "holding");
    assert!(is_ready, "the process that holds the folder ended early");
    holder
}

fn sigkill(pid: i32) {
    use nix::sys::signal::{Signal, kill};
    kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn start_after_kill_takes_over() {
    let folder = shared_folder();
    let home = folder.path().join("durable");
    let mut holder = start_holder(&home);
    let left = postmaster_pid(&home);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let cluster = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    assert!(!runs(left));
    assert_ne!(postmaster_pid(&home), left);
    assert_eq!(scalar::<i32>(&cluster.owner_url(DATABASE), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn durable_cluster_stops_with_killed_process() {
    let folder = shared_folder();
    let home = folder.path().join("durable");
    let mut holder = start_holder(&home);
    let left = postmaster_pid(&home);
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("server gone", || !runs(left) && !home.join("data/postmaster.pid").exists());
    let cluster = PrivatePostgres::start(Settings::durable(&home)).await.unwrap();
    assert_eq!(scalar::<i32>(&cluster.owner_url(DATABASE), "SELECT n FROM kept").await, 7);
    cluster.stop().await.unwrap();
}

#[test]
fn killed_throwaway_cluster_leaves_nothing() {
    let folder = shared_folder();
    let home = folder.path().join("throwaway");
    let mut holder = start_holder(&home);
    let left = postmaster_pid(&home);
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("server gone", || !runs(left));
    eventually("folder gone", || !home.exists());
}

fn unprivileged_user() -> Option<nix::unistd::User> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    nix::unistd::User::from_name("nobody").unwrap()
}

#[tokio::test]
async fn inaccessible_folder_is_named_to_root() {
    if unprivileged_user().is_none() {
        return;
    }
    let folder = shared_folder();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let refused = PrivatePostgres::start(Settings::durable(closed.join("db"))).await.unwrap_err();
    assert!(matches!(refused, Error::Inaccessible { .. }), "{refused:?}");
    assert!(!closed.join("db").exists(), "a failed start must leave no folder");
}

/// Root, then a regular user, then root again, all on the regular user's folder.
#[tokio::test]
async fn regular_user_needs_no_root() {
    let Some(nobody) = unprivileged_user() else {
        return;
    };
    let folder = shared_folder();
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    nix::unistd::chown(&theirs, Some(nobody.uid), Some(nobody.gid)).unwrap();
    let run = |test: &str| {
        Command::new(&program)
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(FOLDER, theirs.join("db"))
            .env("HOME", &theirs)
            .env("TMPDIR", &theirs)
            .current_dir(&theirs)
            .uid(nobody.uid.as_raw())
            .gid(nobody.gid.as_raw())
            .status()
            .unwrap()
    };
    assert!(run("regular_user_process").success());
    let as_root = PrivatePostgres::start(Settings::durable(theirs.join("db"))).await.unwrap();
    assert_eq!(scalar::<i32>(&as_root.owner_url(DATABASE), "SELECT n FROM kept").await, 7);
    as_root.stop().await.unwrap();
    assert!(
        run("regular_user_process").success(),
        "root must leave no files that the user cannot use"
    );
}

/// A helper process of other tests: starts and stops a cluster as the current user.
#[tokio::test]
#[ignore = "not a test: runs as another user for other tests"]
async fn regular_user_process() {
    let Some(home) = std::env::var_os(FOLDER) else {
        return;
    };
    let cluster = PrivatePostgres::start(Settings::durable(home)).await.unwrap();
    execute(&cluster.owner_url(DATABASE), "CREATE TABLE IF NOT EXISTS kept AS SELECT 7 AS n")
        .await
        .unwrap();
    cluster.stop().await.unwrap();
}
