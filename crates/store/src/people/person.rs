//! People and their permissions.

use engine::ids::{DeploymentId, PersonId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, Set, TryInsertResult};
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::person;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A kind of person, as stored in the database.
pub const HUMAN: &str = "human";

/// A service account, as stored in the database.
pub const SERVICE: &str = "service";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    pub id: PersonId,
    /// Unique.
    pub name: String,
    /// [`HUMAN`] or [`SERVICE`].
    pub kind: String,
    pub disabled: bool,
    /// Permissions in the whole tree.
    pub permissions: Vec<String>,
    /// Additional permissions per deployment, with the descendants of each scoped grant.
    pub inside: BTreeMap<DeploymentId, Vec<String>>,
}

/// The columns of a [`PersonRow`], for a person `p`.
pub(crate) const PERSON_COLUMNS: &str = "p.id, p.name, p.kind, p.disabled, p.permissions,
    (SELECT jsonb_object_agg(c.deployment_id, c.words) FROM
      (SELECT deployment_id, jsonb_agg(permission) AS words FROM granted_deployments(p.id) GROUP BY deployment_id) c) AS inside";

type ScopedPermissions = Json<BTreeMap<Uuid, Vec<String>>>;

#[derive(Debug, sqlx::FromRow)]
pub(crate) struct RawPerson {
    id: Uuid,
    name: String,
    kind: String,
    disabled: bool,
    permissions: Vec<String>,
    inside: Option<ScopedPermissions>,
}

impl From<RawPerson> for PersonRow {
    fn from(raw: RawPerson) -> Self {
        Self {
            id: PersonId(raw.id),
            name: raw.name,
            kind: raw.kind,
            disabled: raw.disabled,
            permissions: raw.permissions,
            inside: spread(raw.inside),
        }
    }
}

fn spread(inside: Option<ScopedPermissions>) -> BTreeMap<DeploymentId, Vec<String>> {
    inside
        .map(|Json(inside)| inside)
        .unwrap_or_default()
        .into_iter()
        .map(|(id, words)| (DeploymentId(id), words))
        .collect()
}

/// Inserts a person. `None`: the name is taken.
///
/// # Errors
///
/// The name is invalid or reserved, or the database fails.
pub async fn insert_person(
    db: &mut PgConnection,
    name: &str,
    kind: &str,
    permissions: &[&str],
) -> Result<Option<PersonId>, StoreError> {
    let row = person::ActiveModel {
        name: Set(name.to_owned()),
        kind: Set(kind.to_owned()),
        permissions: Set(permissions.iter().map(|&permission| permission.to_owned()).collect()),
        ..Default::default()
    };
    let insert = person::Entity::insert(row).on_conflict_do_nothing_on([person::Column::Name]);
    Ok(match insert.exec(&orm(db)).await? {
        TryInsertResult::Inserted(inserted) => Some(PersonId(inserted.last_insert_id)),
        TryInsertResult::Conflicted | TryInsertResult::Empty => None,
    })
}

pub async fn person_by_name(pool: &PgPool, name: &str) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {PERSON_COLUMNS} FROM person p WHERE p.name = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(name).fetch_optional(pool).await?;
    Ok(row.map(PersonRow::from))
}

pub async fn person(
    db: impl PgExecutor<'_>,
    id: PersonId,
) -> Result<Option<PersonRow>, StoreError> {
    let sql = format!("SELECT {PERSON_COLUMNS} FROM person p WHERE p.id = $1");
    let row: Option<RawPerson> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(db).await?;
    Ok(row.map(PersonRow::from))
}

/// Disables or enables a person. `false`: there is no such person, or nothing changed.
pub async fn set_disabled(
    db: &mut PgConnection,
    id: PersonId,
    disabled: bool,
) -> Result<bool, StoreError> {
    let changed = person::Entity::update_many()
        .col_expr(person::Column::Disabled, Expr::value(disabled))
        .filter(person::Column::Id.eq(id.0))
        .filter(person::Column::Disabled.ne(disabled))
        .exec(&orm(db))
        .await?;
    Ok(changed.rows_affected == 1)
}

/// Locks an enabled person, whom no other transaction can change or disable until this one ends.
pub async fn lock_person(
    db: &mut PgConnection,
    id: PersonId,
) -> Result<Option<PersonRow>, StoreError> {
    let sql = "SELECT 1 FROM person WHERE id = $1 AND NOT disabled FOR SHARE";
    let found: Option<i32> = sqlx::query_scalar(sql).bind(id.0).fetch_optional(&mut *db).await?;
    if found.is_none() {
        return Ok(None);
    }
    // A statement of its own, because scoped grants may have changed while the first one waited for
    // the lock.
    person(db, id).await
}
