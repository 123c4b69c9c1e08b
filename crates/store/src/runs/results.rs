//! Deletion of results that exceed a node's limits ([`engine::data::retention`]).

use engine::data::retention::{Result as NodeResult, expired_results};
use engine::ids::{NodeId, RunId, StepId};
use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::run;

/// The maximum number of results to read. If a node has more, the oldest are not checked.
const MAX_EXAMINED: u64 = 2_000;

/// Runs with a stored result, by the condition of the partial index `run_results`.
pub(crate) fn runs_with_result() -> Select<run::Entity> {
    let has_bytes = run::Column::ResultBytes.into_expr().gt(Expr::Constant(0_i32.into()));
    run::Entity::find().filter(run::Column::Result.is_not_null()).filter(has_bytes)
}

/// Deletes results that exceed the node's limits. Each new result calls it, so few are ever too
/// many.
pub(crate) async fn delete_excess_results(
    connection: &mut PgConnection,
    node: NodeId,
) -> Result<(), StoreError> {
    let rows: Vec<(i64, Uuid, i32)> = runs_with_result()
        .filter(run::Column::NodeId.eq(node.0))
        .order_by_desc(run::Column::Id)
        .limit(MAX_EXAMINED)
        .select_only()
        .columns([run::Column::Id, run::Column::StepId, run::Column::ResultBytes])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let node_result = |(run, step, bytes): &(i64, Uuid, i32)| NodeResult {
        run: RunId(*run),
        step: StepId(*step),
        bytes: u64::from(bytes.unsigned_abs()),
    };
    let gone = expired_results(&rows.iter().map(node_result).collect::<Vec<_>>());
    if gone.is_empty() {
        return Ok(());
    }
    let gone: Vec<i64> = gone.iter().map(|run| run.0).collect();
    // The database applies the same limits, so that a worker cannot delete other results.
    sqlx::query("SELECT forget_excess_results($1)").bind(&gone).execute(connection).await?;
    Ok(())
}
