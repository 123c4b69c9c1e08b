//! Why TODO steps may not start. The SQL function `step_admission` decides; this adds the details.

use std::collections::BTreeMap;

use engine::anneal::{Limits, Reason};
use engine::ids::StepId;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::StoreError;

/// Every rule that prevents each of these TODO steps from starting, in the order of
/// [`engine::anneal::PendingReason`]. A step that may start, or is not TODO, is missing in the
/// result.
pub async fn admission_reasons(
    connection: &mut PgConnection,
    limits: Limits,
    steps: &[StepId],
) -> Result<BTreeMap<StepId, Vec<Reason>>, StoreError> {
    let ids: Vec<Uuid> = steps.iter().map(|step| step.0).collect();
    let rows: Vec<(Uuid, Json<Reason>)> = sqlx::query_as(include_str!("statements/admission.sql"))
        .bind(i64::from(limits.running))
        .bind(ids)
        .fetch_all(connection)
        .await?;
    let mut reasons: BTreeMap<StepId, Vec<Reason>> = BTreeMap::new();
    for (step, Json(reason)) in rows {
        reasons.entry(StepId(step)).or_default().push(reason);
    }
    for reasons in reasons.values_mut() {
        reasons.sort_by_key(Reason::pending_reason);
    }
    Ok(reasons)
}
