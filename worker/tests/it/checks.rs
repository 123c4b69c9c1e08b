//! Checks of roles: they notice what changed by hand, and the policy of the role decides.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use engine::canonical::{Object, ObjectKind};
use engine::catalog::{Check, JigClass, OnFailure};
use serde_json::json;
use tokio::time::sleep;

use crate::cluster::{Bind, Cluster, FOR_SYSTEM, bind, role, write_secret};
use crate::process::{Running, quick, spawn};
use crate::scripts::{appears, dies, is_alive};
use crate::ssh::Bed;

const POLICY: Check = Check { interval: 5, timeout: 5, failures: 1, on_failure: OnFailure::Rerun };

/// A service with a process that survives its run. A process that ended counts as down even if its
/// parent never collects it.
const SERVICE: &str = "#!/bin/sh
echo ran >>ran
grep -qs '^State:[[:space:]]*[RSD]' \"/proc/$(cat pid 2>/dev/null)/status\" && exit 0
setsid sleep 1000 </dev/null >/dev/null 2>&1 &
echo $! >pid
";
const SERVICE_CHECK: &str = "#!/bin/sh
grep -qs '^State:[[:space:]]*[RSD]' \"/proc/$(cat pid)/status\" || { echo 'the service is down' >&2; exit 1; }
";
/// Passes if the file `up` exists.
const FILE: &str = "#!/bin/sh
echo ran >>ran
[ -e kept ] || echo yes >up
";
const FILE_CHECK: &str = "#!/bin/sh
echo checked >>checked
[ -e up ] || { echo 'up is missing'; exit 1; }
";

fn path(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.nodes[0].root.join(name)
}

/// The lines of a file on the first node.
fn lines(cluster: &Cluster, name: &str) -> usize {
    fs::read_to_string(path(cluster, name)).unwrap_or_default().lines().count()
}

#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
struct Checked {
    state: String,
    failures: i32,
    caused_rerun: bool,
    detail: String,
}

async fn checked(cluster: &Cluster, role: &str) -> Option<Checked> {
    sqlx::query_as(
        "SELECT state, failures, caused_rerun, detail FROM role_check WHERE step_id = $1",
    )
    .bind(cluster.step(0, role).0)
    .fetch_optional(cluster.pool())
    .await
    .expect("a row")
}

/// Waits until the check of a role is in this state.
async fn check_is(cluster: &Cluster, role: &str, state: &str) -> Checked {
    for _ in 0..600 {
        if let Some(found) = checked(cluster, role).await.filter(|found| found.state == state) {
            return found;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("the check of {role} is not {state}: {:?}", checked(cluster, role).await);
}

/// Makes all checks due, so that no test waits for an interval.
async fn check_now(cluster: &Cluster) {
    sqlx::query("UPDATE role_check SET due_at = now() WHERE worker_id IS NULL")
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
}

/// A milestone that follows the role.
async fn milestone(cluster: &mut Cluster, after: &'static str) -> Bind {
    let mut ready = role("ready", JigClass::Noop);
    ready.flags.milestone = true;
    cluster.add_role(ready).await;
    bind(0, "ready").after(0, after)
}

async fn unchecked(cluster: &Cluster) -> i64 {
    let mut connection = cluster.server().acquire().await.expect("a connection");
    let counts = store::runs::step_counts(&mut connection).await.expect("counts");
    counts.unchecked
}

async fn obstacle(cluster: &Cluster, role: &str) -> Option<String> {
    let mut connection = cluster.server().acquire().await.expect("a connection");
    let step = cluster.step(0, role);
    store::runs::check_obstacle(&mut connection, step).await.expect("a row")
}

async fn causes(cluster: &Cluster, role: &str) -> Vec<Option<String>> {
    sqlx::query_scalar("SELECT cause FROM run WHERE step_id = $1 ORDER BY id")
        .bind(cluster.step(0, role).0)
        .fetch_all(cluster.pool())
        .await
        .expect("runs")
}

#[tokio::test]
async fn service_killed_by_hand_runs_again_over_ssh() {
    let mut bed = Bed::of(1).await;
    let policy = Check { failures: 2, ..POLICY };
    bed.cluster.add_checked_role("redis", SERVICE, SERVICE_CHECK, policy).await;
    let ready = milestone(&mut bed.cluster, "redis").await;
    bed.cluster.commit(&[bind(0, "redis"), ready]).await;
    let worker = bed.worker();
    bed.cluster.reaches(0, "ready", "active").await;
    check_is(&bed.cluster, "redis", "passing").await;
    assert_eq!(unchecked(&bed.cluster).await, 0);

    let pid = appears(&path(&bed.cluster, "pid")).await;
    std::process::Command::new("kill").args(["-9", pid.trim()]).status().expect("kill");
    dies(&pid).await;
    check_now(&bed.cluster).await;
    let failing = check_is(&bed.cluster, "redis", "failing").await;
    assert_eq!((failing.failures, failing.detail.as_str()), (1, "the service is down"));
    assert_eq!(
        bed.cluster.state(0, "redis").await,
        "active",
        "one of two allowed failures does not change the state"
    );
    assert_eq!(
        unchecked(&bed.cluster).await,
        1,
        "a deployment with a failing check is not converged"
    );
    assert_eq!(obstacle(&bed.cluster, "redis").await, None);
    check_now(&bed.cluster).await;
    check_is(&bed.cluster, "redis", "passing").await;
    bed.cluster.reaches(0, "ready", "active").await;
    assert!(is_alive(&appears(&path(&bed.cluster, "pid")).await), "the service must run again");
    assert_eq!(causes(&bed.cluster, "redis").await, [None, Some("check".to_owned())]);
    assert_eq!(unchecked(&bed.cluster).await, 0);
    worker.stop().await;
    let pid = appears(&path(&bed.cluster, "pid")).await;
    std::process::Command::new("kill").args(["-9", pid.trim()]).status().expect("kill");
}

#[tokio::test]
async fn reported_failure_blocks_milestone_until_it_passes() {
    let mut cluster = Cluster::of(1).await;
    let policy = Check { on_failure: OnFailure::Report, ..POLICY };
    cluster.add_checked_role("app", FILE, FILE_CHECK, policy).await;
    let ready = milestone(&mut cluster, "app").await;
    cluster.commit(&[bind(0, "app"), ready]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    cluster.reaches(0, "ready", "active").await;
    check_is(&cluster, "app", "passing").await;
    fs::remove_file(path(&cluster, "up")).expect("a writable folder");
    check_now(&cluster).await;
    cluster.reaches(0, "app", "error").await;
    assert_eq!(
        cluster.error(0, "app").await.as_deref(),
        Some("The check failed once: up is missing")
    );
    assert_eq!(cluster.state(0, "ready").await, "blocked");
    fs::write(path(&cluster, "up"), "").expect("a writable folder");
    check_now(&cluster).await;
    cluster.reaches(0, "ready", "active").await;
    assert_eq!(
        (cluster.state(0, "app").await, cluster.error(0, "app").await),
        ("active".to_owned(), None)
    );
    assert_eq!(causes(&cluster, "app").await, [None], "the step must not run again");
    assert_eq!(unchecked(&cluster).await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn step_runs_again_only_once_for_failing_check() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_checked_role("app", FILE, FILE_CHECK, POLICY).await;
    cluster.commit(&[bind(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    check_is(&cluster, "app", "passing").await;
    // From now on, a run does not repair it.
    fs::write(path(&cluster, "kept"), "").expect("a writable folder");
    fs::remove_file(path(&cluster, "up")).expect("a writable folder");
    check_now(&cluster).await;
    cluster.reaches(0, "app", "error").await;
    let error = cluster.error(0, "app").await.expect("a reason");
    assert_eq!(error, "The check failed once, also after the step ran again: up is missing");
    assert_eq!(lines(&cluster, "ran"), 2);
    check_now(&cluster).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!((lines(&cluster, "ran"), cluster.state(0, "app").await), (2, "error".to_owned()));
    // A person repairs it. The next failure runs it again.
    fs::write(path(&cluster, "up"), "").expect("a writable folder");
    check_now(&cluster).await;
    cluster.reaches(0, "app", "active").await;
    assert!(!check_is(&cluster, "app", "passing").await.caused_rerun);
    worker.stop().await;
}

#[tokio::test]
async fn hanging_check_ends_with_its_processes_over_ssh() {
    let mut bed = Bed::of(1).await;
    let hangs =
        "#!/bin/sh\n[ -e hang ] || exit 0\nsleep 1000 &\necho $! >child\necho waiting\nwait\n";
    let policy = Check { timeout: 1, on_failure: OnFailure::Report, ..POLICY };
    bed.cluster.add_checked_role("app", FILE, hangs, policy).await;
    bed.cluster.commit(&[bind(0, "app")]).await;
    let worker = bed.worker();
    check_is(&bed.cluster, "app", "passing").await;
    fs::write(path(&bed.cluster, "hang"), "").expect("a writable folder");
    check_now(&bed.cluster).await;
    bed.cluster.reaches(0, "app", "error").await;
    dies(&appears(&path(&bed.cluster, "child")).await).await;
    let error = bed.cluster.error(0, "app").await.expect("a reason");
    assert!(error.contains("check/it.sh took longer than 1 seconds, its time limit"), "{error}");
    let left = fs::read_dir(path(&bed.cluster, ".gantry/check")).expect("a folder").count();
    assert_eq!(left, 0, "the folders of checks must be deleted");
    worker.stop().await;
}

#[tokio::test]
async fn destructive_step_is_reported_and_never_repeated() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_checked_role("wipe", FILE, FILE_CHECK, POLICY).await;
    let mut wipe = cluster.role("wipe");
    wipe.flags.destructive = true;
    cluster.add_role(wipe).await;
    cluster.commit(&[bind(0, "wipe")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    check_is(&cluster, "wipe", "passing").await;
    fs::remove_file(path(&cluster, "up")).expect("a writable folder");
    check_now(&cluster).await;
    cluster.reaches(0, "wipe", "error").await;
    fs::write(path(&cluster, "up"), "").expect("a writable folder");
    check_now(&cluster).await;
    cluster.reaches(0, "wipe", "active").await;
    assert_eq!(lines(&cluster, "ran"), 1);
    worker.stop().await;
}

#[tokio::test]
async fn no_check_runs_on_excluded_node() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_checked_role("app", FILE, FILE_CHECK, POLICY).await;
    cluster.commit(&[bind(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    check_is(&cluster, "app", "passing").await;
    fs::remove_file(path(&cluster, "up")).expect("a writable folder");
    // A switch is a blueprint.
    cluster.sql("ALTER TABLE head DISABLE TRIGGER USER").await;
    for (begin, end) in [
        ("UPDATE node SET available = false WHERE NOT phantom", "UPDATE node SET available = true"),
        ("UPDATE head SET enabled = false", "UPDATE head SET enabled = true"),
        (
            "UPDATE deployment SET on_hold_by = (SELECT id FROM person LIMIT 1), on_hold_since = \
             now(), on_hold_reason = 'x'",
            "UPDATE deployment SET on_hold_by = NULL, on_hold_since = NULL, on_hold_reason = NULL",
        ),
    ] {
        cluster.sql(begin).await;
        let before = lines(&cluster, "checked");
        check_now(&cluster).await;
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(lines(&cluster, "checked"), before, "{begin}");
        assert_eq!(cluster.state(0, "app").await, "active", "{begin}");
        // The step is not checked any more, so the deployment is not converged.
        sqlx::query("UPDATE role_check SET passes_until = now() - interval '1 second'")
            .execute(cluster.db.owner())
            .await
            .expect("the owner has the permission");
        assert_eq!(unchecked(&cluster).await, 1);
        cluster.sql(end).await;
    }
    check_now(&cluster).await;
    for _ in 0..200 {
        if lines(&cluster, "ran") == 2 {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lines(&cluster, "ran"), 2, "the check must run after the maintenance");
    worker.stop().await;
}

#[tokio::test]
async fn check_reads_run_data_and_masks_secrets() {
    let mut cluster = Cluster::of(1).await;
    let prints = "#!/bin/sh
printf '%s %s %s' \"$GANTRY_NODE\" \"$GANTRY_ROLE\" \"$GANTRY_DATA_PORT\" >seen
printf '%s' \"$GANTRY_DATA_KEY\" >key
echo \"key $GANTRY_DATA_KEY\"
exit 3
";
    let policy = Check { on_failure: OnFailure::Report, ..POLICY };
    cluster.add_checked_role("db", FILE, prints, policy).await;
    let secrets = cluster.folder().join("secrets");
    write_secret(&secrets, "db/admin", "hunter22wxyz\n", FOR_SYSTEM);
    let key = json!({"$secret": "db/admin", "version": 1});
    cluster.commit(&[bind(0, "db").data(json!({"port": 5432, "key": key}))]).await;
    let config = worker::Config { secrets: Some(secrets), ..quick(&cluster.folder()) };
    let worker = Running::start(config, cluster.pool());
    cluster.reaches(0, "db", "error").await;
    worker.stop().await;
    let read = |name: &str| fs::read_to_string(path(&cluster, name)).unwrap_or_default();
    assert_eq!(read("seen"), "n0.test.gantry db 5432");
    assert_eq!(read("key"), "hunter22wxyz", "the script must receive the secret");
    assert_eq!(checked(&cluster, "db").await.expect("a row").detail, "key (secret)");
    assert_eq!(
        cluster.error(0, "db").await.as_deref(),
        Some("The check failed once: key (secret)")
    );
}

#[tokio::test]
async fn removed_step_has_no_check() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_checked_role("app", FILE, FILE_CHECK, POLICY).await;
    cluster.commit(&[bind(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    check_is(&cluster, "app", "passing").await;
    cluster.unbind(&[(0, "app")]).await;
    assert_eq!(checked(&cluster, "app").await, None);
    worker.stop().await;
}

#[tokio::test]
async fn two_workers_share_the_checks() {
    let mut cluster = Cluster::of(1).await;
    cluster.add_checked_role("app", FILE, FILE_CHECK, POLICY).await;
    cluster.commit(&[bind(0, "app")]).await;
    let workers: Vec<_> =
        (0..2).map(|_| Running::start(quick(&cluster.folder()), cluster.pool())).collect();
    check_is(&cluster, "app", "passing").await;
    let before = lines(&cluster, "checked");
    check_now(&cluster).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(lines(&cluster, "checked"), before + 1, "two workers must run the check once");
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn check_with_changed_row_does_not_run() {
    let mut cluster = Cluster::of(1).await;
    let evil = "#!/bin/sh\ntouch evil\n";
    cluster.add_checked_role("app", FILE, evil, POLICY).await;
    let other = Object::of(ObjectKind::Role, &cluster.role("app")).expect("a role").hash;
    cluster.add_checked_role("app", FILE, FILE_CHECK, POLICY).await;
    cluster.commit(&[bind(0, "app")]).await;
    let worker = Running::start(quick(&cluster.folder()), cluster.pool());
    check_is(&cluster, "app", "passing").await;
    cluster.sql("ALTER TABLE noderole DISABLE TRIGGER USER").await;
    sqlx::query("UPDATE noderole SET role_hash = $1")
        .bind(other.as_bytes().as_slice())
        .execute(cluster.db.owner())
        .await
        .expect("the owner has the permission");
    let before = lines(&cluster, "checked");
    check_now(&cluster).await;
    sleep(Duration::from_secs(2)).await;
    assert!(!path(&cluster, "evil").exists(), "no blueprint contains this script");
    assert_eq!(lines(&cluster, "checked"), before);
    worker.stop().await;
}

/// The wrapper's own clock also ends a check whose supervisor was killed.
#[tokio::test]
async fn check_of_killed_worker_ends_on_its_node() {
    let mut cluster = Cluster::of(1).await;
    let hangs = "#!/bin/sh\nsleep 1000 &\necho $! >child\nwait\n";
    let policy = Check { interval: 300, timeout: 200, ..POLICY };
    cluster.add_checked_role("app", FILE, hangs, policy).await;
    cluster.commit(&[bind(0, "app")]).await;
    let mut worker = spawn(cluster.db.worker_url(), &cluster.folder());
    let child = appears(&path(&cluster, "child")).await;
    let supervisor = fs::read_dir(path(&cluster, ".gantry/check"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .next()
        .expect("a check");
    worker.kill();
    let pid = supervisor.split('.').nth(1).expect("BOOT.PID.START");
    std::process::Command::new("kill").args(["-9", pid]).status().expect("kill");
    dies(&child).await;
}
