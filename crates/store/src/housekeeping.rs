//! Periodic tasks of workers: sealing the audit, creating log partitions, deleting old events and
//! workers.
//!
//! Each task is one statement with its own locks, so several workers can run them at once.

use sqlx::PgPool;

use crate::StoreError;

/// The number of audit rows that one statement seals.
const SEAL_BATCH: i32 = 1_000;
/// The maximum number of sealing statements per round. Each run writes two rows, so a busy cluster
/// has thousands between two rounds.
const MAX_SEAL_BATCHES: usize = 100;
/// The retention of events in days. A stream that was away for longer starts over.
const EVENT_RETENTION_DAYS: i32 = 7;

/// Seals the unsealed audit rows and returns their number.
pub async fn seal(pool: &PgPool) -> Result<i32, StoreError> {
    let mut total = 0;
    for _ in 0..MAX_SEAL_BATCHES {
        let sealed: i32 =
            sqlx::query_scalar("SELECT seal_audit($1)").bind(SEAL_BATCH).fetch_one(pool).await?;
        total += sealed;
        if sealed < SEAL_BATCH {
            break;
        }
    }
    Ok(total)
}

/// Days for which a worker is listed after its lease. A worker with a run stays as long as the run,
/// which references it.
const WORKER_RETENTION_DAYS: i32 = 7;
/// The maximum number of workers that one round deletes.
const WORKER_DELETE_BATCH: i64 = 500;

/// Deletes workers that are long gone and have no run. Returns their number.
pub async fn delete_old_workers(pool: &PgPool) -> Result<u64, StoreError> {
    let deleted = sqlx::query(
        "DELETE FROM worker WHERE id IN ( \
           SELECT w.id FROM worker w WHERE w.lease_until < now() - make_interval(days => $1) \
             AND NOT EXISTS (SELECT FROM run WHERE worker_id = w.id) \
           ORDER BY w.lease_until LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(WORKER_RETENTION_DAYS)
    .bind(WORKER_DELETE_BATCH)
    .execute(pool)
    .await?;
    Ok(deleted.rows_affected())
}

/// Runs all tasks once.
///
/// # Errors
///
/// A task fails. The effects of earlier tasks stay.
pub async fn run_housekeeping(pool: &PgPool) -> Result<(), StoreError> {
    seal(pool).await?;
    sqlx::query("SELECT ensure_run_log_room()").execute(pool).await?;
    sqlx::query("SELECT forget_events(make_interval(days => $1))")
        .bind(EVENT_RETENTION_DAYS)
        .execute(pool)
        .await?;
    delete_old_workers(pool).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn old_worker_without_runs_is_deleted() {
        let database = TestDatabase::new().await;
        // The other references of a run do not matter here.
        for sql in [
            "DO $$ DECLARE c record; BEGIN FOR c IN SELECT conname FROM pg_constraint \
               WHERE contype = 'f' AND conrelid = 'run'::regclass AND confrelid <> 'worker'::regclass \
             LOOP EXECUTE format('ALTER TABLE run DROP CONSTRAINT %I', c.conname); END LOOP; END $$",
            "ALTER TABLE run DISABLE TRIGGER USER",
            "INSERT INTO worker (name, lease_until) VALUES ('gone', now() - interval '8 days'), ('named', now() - interval '8 days'), \
               ('away', now() - interval '6 days'), ('here', now() + interval '1 minute')",
            "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, state, outcome, \
               worker_id, started_at, ended_at, lease_until) \
             SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 1, 1, sha256(''), false, 'ended', 'succeeded', \
               id, now(), now(), now() FROM worker WHERE name = 'named'",
        ] {
            sqlx::query(sql).execute(database.owner()).await.expect(sql);
        }
        assert_eq!(delete_old_workers(database.worker()).await.expect("deleted workers"), 1);
        let left: Vec<String> = sqlx::query_scalar("SELECT name FROM worker ORDER BY name")
            .fetch_all(database.worker())
            .await
            .expect("the samples");
        assert_eq!(left, ["away", "here", "named"]);
        assert_eq!(delete_old_workers(database.worker()).await.expect("deleted workers"), 0);
    }

    #[tokio::test]
    async fn seal_clears_a_backlog_in_one_round() {
        let database = TestDatabase::new().await;
        let rows = "INSERT INTO audit (action) SELECT 'test' FROM generate_series(1, 2500)";
        sqlx::query(rows).execute(database.app()).await.expect("rows");
        assert_eq!(seal(database.app()).await.expect("sealed entries"), 2500);
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM audit_unsealed")
            .fetch_one(database.app())
            .await
            .expect("a count");
        assert_eq!(left, 0);
    }
}
