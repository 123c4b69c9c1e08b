//! The people who can grant a permission.

use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use sqlx::PgConnection;

use super::HUMAN;
use crate::StoreError;
use crate::connect::orm;
use crate::entity::person;

/// The names of enabled admins, in order.
pub async fn admins(connection: &mut PgConnection, limit: u64) -> Result<Vec<String>, StoreError> {
    let names = person::Entity::find()
        .filter(person::Column::Kind.eq(HUMAN))
        .filter(person::Column::Disabled.eq(false))
        .filter(Expr::cust("'admin' = ANY (permissions)"))
        .order_by_asc(person::Column::Name)
        .limit(limit)
        .select_only()
        .column(person::Column::Name)
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(names)
}
