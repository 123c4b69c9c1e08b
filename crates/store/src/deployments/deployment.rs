//! The rows of deployments, and their progress: hold and priority.

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{deployment, join, person};
use crate::events::{CHANNEL_TODO, notify};
use engine::ids::{BlueprintNumber, DeploymentId, PersonId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect};
use sqlx::PgConnection;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentRow {
    pub id: DeploymentId,
    pub name: String,
    /// The blueprint that last changed it or one of its nodes.
    pub head_no: BlueprintNumber,
    pub parent: Option<DeploymentId>,
    /// The person who put it on hold, and the reason.
    pub hold: Option<(String, String)>,
    /// Added to the priority of its steps when runs are claimed.
    pub priority: i32,
}

/// All deployments. There are few, because people name each of them.
pub async fn deployment_rows(
    connection: &mut PgConnection,
) -> Result<Vec<DeploymentRow>, StoreError> {
    type Row = (Uuid, String, i64, Option<Uuid>, Option<String>, Option<String>, i32);
    let rows: Vec<Row> = deployment::Entity::find()
        .join(JoinType::LeftJoin, join(deployment::Column::OnHoldBy, person::Column::Id))
        .filter(deployment::Column::RemovedIn.is_null())
        .order_by_asc(deployment::Column::Name)
        .select_only()
        .columns([
            deployment::Column::Id,
            deployment::Column::Name,
            deployment::Column::HeadNo,
            deployment::Column::Parent,
        ])
        .column(person::Column::Name)
        .columns([deployment::Column::OnHoldReason, deployment::Column::Priority])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let row = |(id, name, head_no, parent, on_hold_by, reason, priority): Row| DeploymentRow {
        id: DeploymentId(id),
        name,
        head_no: BlueprintNumber(head_no),
        parent: parent.map(DeploymentId),
        hold: on_hold_by.map(|by| (by, reason.unwrap_or_default())),
        priority,
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Puts a deployment on hold or ends the hold. `false`: nothing changed. A hold stops new runs in
/// the deployment and its descendants. The caller holds APPLY exclusively, so that no claim or
/// lease is in progress.
pub async fn set_hold(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    hold: Option<(PersonId, &str)>,
) -> Result<bool, StoreError> {
    let mut query = deployment::Entity::update_many()
        .col_expr(deployment::Column::OnHoldBy, Expr::value(hold.map(|(by, _)| by.0)))
        .col_expr(deployment::Column::OnHoldReason, Expr::value(hold.map(|(_, reason)| reason)))
        .filter(deployment::Column::Id.eq(deployment.0))
        .filter(deployment::Column::RemovedIn.is_null());
    query = match hold {
        Some(_) => query
            .col_expr(deployment::Column::OnHoldSince, Expr::current_timestamp())
            .filter(deployment::Column::OnHoldBy.is_null()),
        None => query
            .col_expr(deployment::Column::OnHoldSince, Expr::cust("NULL"))
            .filter(deployment::Column::OnHoldBy.is_not_null()),
    };
    let is_changed = query.exec(&orm(connection)).await?.rows_affected == 1;
    if is_changed && hold.is_none() {
        notify(connection, CHANNEL_TODO, "").await?;
    }
    Ok(is_changed)
}

/// Sets the priority of a deployment's steps for claims. `false`: unchanged, or the deployment is
/// removed.
pub async fn set_priority(
    connection: &mut PgConnection,
    id: DeploymentId,
    priority: i32,
) -> Result<bool, StoreError> {
    let changed = deployment::Entity::update_many()
        .col_expr(deployment::Column::Priority, Expr::value(priority))
        .filter(deployment::Column::Id.eq(id.0))
        .filter(deployment::Column::RemovedIn.is_null())
        .filter(deployment::Column::Priority.ne(priority))
        .exec(&orm(connection))
        .await?;
    Ok(changed.rows_affected == 1)
}

/// The last removed deployment with this name, and the blueprint that removed it.
pub async fn removed_deployment(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<(DeploymentId, BlueprintNumber)>, StoreError> {
    let row: Option<(Uuid, i64)> = deployment::Entity::find()
        .filter(deployment::Column::Name.eq(name))
        .filter(deployment::Column::RemovedIn.is_not_null())
        .order_by_desc(deployment::Column::RemovedIn)
        .select_only()
        .columns([deployment::Column::Id, deployment::Column::RemovedIn])
        .into_tuple()
        .one(&orm(connection))
        .await?;
    Ok(row.map(|(id, removed_in)| (DeploymentId(id), BlueprintNumber(removed_in))))
}

/// An existing deployment, by name.
pub async fn deployment_named(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<DeploymentId>, StoreError> {
    let query = deployment::Entity::find()
        .filter(deployment::Column::Name.eq(name))
        .filter(deployment::Column::RemovedIn.is_null())
        .select_only()
        .column(deployment::Column::Id);
    Ok(query.into_tuple().one(&orm(connection)).await?.map(DeploymentId))
}

/// The name of an existing deployment.
pub async fn deployment_name(
    connection: &mut PgConnection,
    id: DeploymentId,
) -> Result<Option<String>, StoreError> {
    let query = deployment::Entity::find_by_id(id.0)
        .filter(deployment::Column::RemovedIn.is_null())
        .select_only()
        .column(deployment::Column::Name);
    Ok(query.into_tuple().one(&orm(connection)).await?)
}

/// The root deployment. `None` before genesis.
pub async fn top(connection: &mut PgConnection) -> Result<Option<DeploymentId>, StoreError> {
    let query = deployment::Entity::find()
        .filter(Expr::cust("system"))
        .select_only()
        .column(deployment::Column::Id);
    Ok(query.into_tuple().one(&orm(connection)).await?.map(DeploymentId))
}
