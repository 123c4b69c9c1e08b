//! Clones are migrated, isolated, and dropped afterwards.

use migrations::Roles;
use private_postgres::{PrivatePostgres, Settings};
use sqlx::{Connection as _, Executor as _, PgConnection};
use testdb::TestDatabase;

#[tokio::test]
async fn clone_is_migrated() {
    let db = TestDatabase::new().await;
    assert!(migrations::is_current(db.app()).await.unwrap());
    for (pool, name) in [
        (db.server(), "gantry_server"),
        (db.worker(), "gantry_worker"),
        (db.metrics(), "gantry_metrics"),
    ] {
        let user: String =
            sqlx::query_scalar("SELECT current_user::text").fetch_one(pool).await.unwrap();
        assert_eq!(user, name);
    }
    let connection = PgConnection::connect(db.owner_url()).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn clones_are_isolated_and_dropped() {
    let (first, second) = tokio::join!(TestDatabase::new(), TestDatabase::new());
    first.owner().execute("INSERT INTO person (name) VALUES ('ada')").await.unwrap();
    let there: i64 =
        sqlx::query_scalar("SELECT count(*) FROM person").fetch_one(second.app()).await.unwrap();
    assert_eq!(there, 0);
    let name = first.name().to_owned();
    let is_there = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
    let before: bool =
        sqlx::query_scalar(is_there).bind(&name).fetch_one(second.owner()).await.unwrap();
    drop(first);
    let after: bool =
        sqlx::query_scalar(is_there).bind(&name).fetch_one(second.owner()).await.unwrap();
    assert_eq!((before, after), (true, false));
}

#[tokio::test]
async fn database_connections_can_be_blocked() {
    let db = TestDatabase::new().await;
    let first = "SELECT 1";
    assert!(db.app().execute(first).await.is_ok());
    db.set_connections_allowed(false).await.unwrap();
    assert!(db.app().execute(first).await.is_err());
    db.set_connections_allowed(true).await.unwrap();
    assert!(db.app().execute(first).await.is_ok());
}

#[tokio::test]
async fn shared_cluster_serves_other_processes() {
    if std::env::var_os(testdb::SHARED_URL).is_some() {
        return;
    }
    let shared = testdb::SharedCluster::start().await.unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "clones_are_isolated_and_dropped",
            "shared_cluster_serves_other_processes",
        ])
        .env(testdb::SHARED_URL, shared.url())
        .status()
        .unwrap();
    assert!(status.success());
    let mut admin = PgConnection::connect(&shared.url()).await.unwrap();
    let databases: Vec<String> =
        sqlx::query_scalar("SELECT datname::text FROM pg_database ORDER BY 1")
            .fetch_all(&mut admin)
            .await
            .unwrap();
    let templates = databases.iter().filter(|name| name.starts_with("gantry_template_")).count();
    assert_eq!(templates, 1, "the template must be created once: {databases:?}");
    assert!(
        !databases.iter().any(|name| name.starts_with("test_")),
        "no test database must be left: {databases:?}"
    );
    admin.close().await.unwrap();
    shared.stop().await.unwrap();
}

#[tokio::test]
async fn private_cluster_accepts_the_migrations() {
    let folder = std::env::temp_dir().join(format!("gantry-up-{}", std::process::id()));
    let cluster = PrivatePostgres::start(Settings::throwaway(&folder)).await.unwrap();
    let (owner, app) = (cluster.owner_url("gantry"), cluster.server_url("gantry"));
    let roles = Roles::default();
    let (first, second) = tokio::join!(
        migrations::migrate_url(&owner, &roles),
        migrations::migrate_url(&owner, &roles)
    );
    first.unwrap();
    second.unwrap();
    let pool = sqlx::PgPool::connect(&app).await.unwrap();
    assert!(migrations::is_current(&pool).await.unwrap());
    pool.close().await;
    let refused = migrations::migrate_url(&app, &roles).await.unwrap_err();
    assert!(matches!(refused, migrations::Error::RoleIsOwner(_)), "{refused}");
    let missing =
        Roles { worker: "nobody_here".into(), metrics: "nor here".into(), ..Roles::default() };
    let refused = migrations::migrate_url(&owner, &missing).await.unwrap_err().to_string();
    for create in ["CREATE ROLE \"nobody_here\" LOGIN;", "CREATE ROLE \"nor here\" LOGIN;"] {
        assert!(refused.contains(create), "{refused}");
    }
    let shared = Roles { worker: roles.server.clone(), ..Roles::default() };
    let refused = migrations::migrate_url(&owner, &shared).await.unwrap_err();
    assert!(matches!(refused, migrations::Error::SharedRole(..)), "{refused}");
    cluster.stop().await.unwrap();
}
