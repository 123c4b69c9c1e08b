//! Drains: a draining worker finishes its runs and takes no further ones.

use engine::ids::PersonId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::worker;
use crate::events::{CHANNEL_TODO, notify};
use crate::locks::lock_apply_exclusive;

/// A worker whose drain begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct DrainRow {
    pub id: Uuid,
    pub name: String,
    /// Whether it has ended or let its lease expire.
    pub ended: bool,
    pub draining: bool,
    /// The name of the person who drains it.
    pub by: Option<String>,
    pub reason: Option<String>,
}

/// The worker with this id, locked until the transaction ends. No claim and no lease runs
/// at the same time, so the worker gets no run after the caller's commit.
pub async fn lock_worker(
    transaction: &mut PgConnection,
    id: Uuid,
) -> Result<Option<DrainRow>, StoreError> {
    lock_apply_exclusive(&mut *transaction).await?;
    Ok(sqlx::query_as(
        "SELECT w.id, w.name, w.phase IN ('none', 'nack') OR w.lease_until <= now() AS ended,
           w.drain_since IS NOT NULL AS draining, p.name AS by, w.drain_reason AS reason
         FROM worker w LEFT JOIN person p ON p.id = w.drain_by WHERE w.id = $1 FOR UPDATE OF w",
    )
    .bind(id)
    .fetch_optional(transaction)
    .await?)
}

/// Drains a worker, with person and reason, or ends its drain. The transaction has locked it.
pub async fn set_drain(
    transaction: &mut PgConnection,
    worker: Uuid,
    drain: Option<(PersonId, &str)>,
) -> Result<(), StoreError> {
    let since = if drain.is_some() { Expr::current_timestamp() } else { Expr::cust("NULL") };
    let (by, reason) = drain.map(|(person, reason)| (person.0, reason)).unzip();
    worker::Entity::update_many()
        .col_expr(worker::Column::DrainBy, Expr::value(by))
        .col_expr(worker::Column::DrainSince, since)
        .col_expr(worker::Column::DrainReason, Expr::value(reason))
        .filter(worker::Column::Id.eq(worker))
        .exec(&orm(transaction))
        .await?;
    // Other workers, or this one again, can now start its steps.
    notify(transaction, CHANNEL_TODO, "").await
}
