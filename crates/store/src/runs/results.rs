//! Deletion of results that exceed a node's limits ([`engine::data::kept`]).

use engine::data::kept::{Result as Kept, expired_results};
use engine::ids::{NodeId, RunId, StepId};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// The maximum number of results to read. If a node has more, the oldest are not checked.
const LOOKED_AT: i64 = 2_000;

/// Deletes results that exceed the node's limits. Each new result calls it, so few are ever too
/// many.
pub(crate) async fn delete_excess_results(
    connection: &mut PgConnection,
    node: NodeId,
) -> Result<(), StoreError> {
    let rows: Vec<(i64, Uuid, i32)> = sqlx::query_as(
        "SELECT id, step_id, result_bytes FROM run WHERE node_id = $1 AND result IS NOT NULL AND result_bytes > 0 \
         ORDER BY id DESC LIMIT $2",
    )
    .bind(node.0)
    .bind(LOOKED_AT)
    .fetch_all(&mut *connection)
    .await?;
    let kept = |(run, step, bytes): &(i64, Uuid, i32)| Kept {
        run: RunId(*run),
        step: StepId(*step),
        bytes: u64::from(bytes.unsigned_abs()),
    };
    let gone = expired_results(&rows.iter().map(kept).collect::<Vec<_>>());
    if gone.is_empty() {
        return Ok(());
    }
    let gone: Vec<i64> = gone.iter().map(|run| run.0).collect();
    // A concurrent call may delete the same results, so rows are locked in order of id.
    sqlx::query(
        "UPDATE run SET result = NULL WHERE id IN (SELECT id FROM run WHERE id = ANY($1) AND result IS NOT NULL ORDER BY id FOR UPDATE)",
    )
    .bind(&gone)
    .execute(connection)
    .await?;
    Ok(())
}
