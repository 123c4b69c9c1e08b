//! Results that are kept for their node: which of them no longer ([`engine::data::kept`]).

use engine::data::kept::{Result as Kept, outworn};
use engine::ids::{NodeId, RunId, StepId};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// Most results that are looked at: where a node has more, the oldest go unseen.
const LOOKED_AT: i64 = 2_000;

/// Takes the results away for which a node has no room any more. Called with each result that comes, so few are ever too many.
pub(super) async fn forget_outworn(on: &mut PgConnection, node: NodeId) -> Result<(), StoreError> {
    let rows: Vec<(i64, Uuid, i32)> = sqlx::query_as(
        "SELECT id, step_id, result_bytes FROM run WHERE node_id = $1 AND result IS NOT NULL AND result_bytes > 0 \
         ORDER BY id DESC LIMIT $2",
    )
    .bind(node.0)
    .bind(LOOKED_AT)
    .fetch_all(&mut *on)
    .await?;
    let kept = |(run, step, bytes): &(i64, Uuid, i32)| Kept {
        run: RunId(*run),
        step: StepId(*step),
        bytes: u64::from(bytes.unsigned_abs()),
    };
    let gone = outworn(&rows.iter().map(kept).collect::<Vec<_>>());
    if gone.is_empty() {
        return Ok(());
    }
    let gone: Vec<i64> = gone.iter().map(|run| run.0).collect();
    // Others may forget the same at the same time, and take the rows in the same order.
    sqlx::query(
        "UPDATE run SET result = NULL WHERE id IN (SELECT id FROM run WHERE id = ANY($1) AND result IS NOT NULL ORDER BY id FOR UPDATE)",
    )
    .bind(&gone)
    .execute(on)
    .await?;
    Ok(())
}
