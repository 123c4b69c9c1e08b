//! Reports the names of this worker's secrets.

use std::time::Duration;

use sqlx::PgPool;
use store::workers::{self, WorkerId};

use crate::secrets::SecretFolder;

/// Reports the names of the secrets in the folder periodically, because files change while the
/// worker runs.
pub(crate) async fn report_secrets(
    pool: PgPool,
    worker: WorkerId,
    folder: SecretFolder,
    interval: Duration,
) {
    let mut pause = Duration::from_millis(250).min(interval);
    loop {
        let known = tokio::task::spawn_blocking({
            let folder = folder.clone();
            move || folder.known()
        });
        if let Ok(known) = known.await {
            match workers::report_secrets(&pool, worker, &known).await {
                Ok(true) => pause = interval,
                // The worker's row does not exist yet. The heartbeat inserts it.
                Ok(false) => {}
                Err(error) => {
                    pause = interval;
                    tracing::warn!(%error, "cannot report the worker's secrets, retrying");
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}
