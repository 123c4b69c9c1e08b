//! Access that admins gave people, and its confirmations.
//!
//! Triggers write the rows in the transaction that gives the access. This module inserts none.

use std::sync::Arc;

use engine::gate::access::{Access, AccessChange, AccessKind};
use engine::ids::PersonId;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{access_change, deployment, join, person};

/// The maximum number of changes in a list.
pub const MAX_LISTED: i64 = 20;

/// A change of a person's access, for their page.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "access_change::Entity")]
pub struct AccessChangeRow {
    /// The name of an [`AccessKind`].
    pub kind: String,
    pub permission: Option<String>,
    /// `None`: everywhere.
    #[sea_orm(from_expr = "Expr::col((deployment::Entity, deployment::Column::Name))")]
    pub deployment: Option<String>,
    /// The admin's name. `None`: the owner of the installation.
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
    pub by: Option<String>,
    pub at: OffsetDateTime,
    /// The name of the admin who confirmed it.
    #[sea_orm(from_expr = "Expr::col((CONFIRMER, person::Column::Name))")]
    pub confirmed_by: Option<String>,
    pub confirmed_at: Option<OffsetDateTime>,
}

const CONFIRMER: &str = "confirmer";

/// The person and their name, the giver and their name, kind, time, and whether it is confirmed.
type AccessGrantRow = (Uuid, String, Uuid, String, String, i64, bool);

/// The access of these people and of everyone who gave it, for the gate. The caller adds the policy
/// and the review.
pub async fn load_access(
    connection: &mut PgConnection,
    people: &[PersonId],
) -> Result<Access, StoreError> {
    let people: Vec<Uuid> = people.iter().map(|person| person.0).collect();
    let rows: Vec<AccessGrantRow> = sqlx::query_as(include_str!("statements/access.sql"))
        .bind(people)
        .fetch_all(&mut *connection)
        .await?;
    let change = |(person, person_name, by, by_name, kind, at, confirmed): AccessGrantRow| {
        let kind = AccessKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let kind =
            kind.ok_or_else(|| StoreError::corrupt("access_change.kind", "the kind is unknown"))?;
        Ok(AccessChange {
            person: PersonId(person),
            person_name,
            by: PersonId(by),
            by_name,
            kind,
            at,
            confirmed,
        })
    };
    let changes = rows.into_iter().map(change).collect::<Result<Vec<_>, StoreError>>()?;
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let now: i64 = sqlx::query_scalar(now).fetch_one(connection).await?;
    Ok(Access { changes: Arc::new(changes), now, ..Access::default() })
}

/// The newest changes of a person's access.
pub async fn listed(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<AccessChangeRow>, StoreError> {
    let confirmer = join(access_change::Column::ConfirmedBy, person::Column::Id);
    let scope = join(access_change::Column::DeploymentId, deployment::Column::Id);
    let rows = access_change::Entity::find()
        .join(JoinType::LeftJoin, join(access_change::Column::By, person::Column::Id))
        .join_as(JoinType::LeftJoin, confirmer, CONFIRMER)
        .join(JoinType::LeftJoin, scope)
        .filter(access_change::Column::PersonId.eq(person.0))
        .order_by_desc(access_change::Column::Id)
        .limit(MAX_LISTED.unsigned_abs())
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// The admins for whose changes this person's approvals do not count now, and the end of each
/// limit.
pub async fn limits(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<(String, OffsetDateTime)>, StoreError> {
    let rows = sqlx::query_as(include_str!("statements/limits.sql"))
        .bind(person.0)
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

/// Confirms the changes of a person's access that this admin may confirm. Returns their number.
///
/// # Errors
///
/// This admin may not confirm the changes.
pub async fn confirm(
    connection: &mut PgConnection,
    person: PersonId,
    admin: PersonId,
) -> Result<i64, StoreError> {
    let confirm = sqlx::query_scalar("SELECT confirm_access($1, $2)");
    Ok(confirm.bind(person.0).bind(admin.0).fetch_one(connection).await?)
}

/// Resets of a person's sign-in by others that the person has not dismissed: admin and time, newest
/// first.
pub async fn notices(
    connection: &mut PgConnection,
    person_id: PersonId,
) -> Result<Vec<(String, OffsetDateTime)>, StoreError> {
    let rows = access_change::Entity::find()
        .join(JoinType::InnerJoin, join(access_change::Column::By, person::Column::Id))
        .filter(access_change::Column::PersonId.eq(person_id.0))
        .filter(access_change::Column::Kind.eq(AccessKind::Reset.as_str()))
        .filter(access_change::Column::DismissedAt.is_null())
        .order_by_desc(access_change::Column::Id)
        .limit(MAX_LISTED.unsigned_abs())
        .select_only()
        .column(person::Column::Name)
        .column(access_change::Column::At)
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// Dismisses these notices and returns their number.
pub async fn dismiss(connection: &mut PgConnection, person: PersonId) -> Result<u64, StoreError> {
    let dismissed = access_change::Entity::update_many()
        .col_expr(access_change::Column::DismissedAt, Expr::current_timestamp())
        .filter(access_change::Column::PersonId.eq(person.0))
        .filter(access_change::Column::Kind.eq(AccessKind::Reset.as_str()))
        .filter(access_change::Column::By.is_not_null())
        .filter(access_change::Column::DismissedAt.is_null())
        .exec(&orm(connection))
        .await?;
    Ok(dismissed.rows_affected)
}
