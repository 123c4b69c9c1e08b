//! Accounts: people, their grants, their passwords and their sessions.
//!
//! To change a person's permissions, a transaction first locks the person's row
//! ([`lock_people`]). Permission checks lock it too ([`crate::people::lock_person`]). The
//! database itself ensures that an admin remains.

use std::collections::BTreeSet;

use engine::ids::{DeploymentId, PersonId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, Order, QueryFilter, QueryOrder,
    QuerySelect,
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{account, deployment, join, person, scoped_grant};
use crate::people::{HUMAN, TokenHash};

/// A person in a list.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "person::Entity")]
pub struct AccountRow {
    pub id: Uuid,
    pub name: String,
    /// [`crate::people::HUMAN`] or [`crate::people::SERVICE`].
    pub kind: String,
    pub disabled: bool,
    /// Permissions in the whole tree.
    pub permissions: Vec<String>,
    /// The version of all permissions, scoped grants included.
    pub grants_version: i32,
    /// Whether they have a password.
    #[sea_orm(from_expr = "Expr::cust(HAS_PASSWORD)")]
    pub password: bool,
    /// The last request, with a session or a token. `None`: never.
    #[sea_orm(from_expr = "Expr::cust(LAST_VISIT)")]
    pub last_seen: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

const HAS_PASSWORD: &str = "EXISTS (SELECT FROM account a WHERE a.person_id = person.id)";
const LAST_VISIT: &str = "(SELECT v.at FROM visit v WHERE v.person_id = person.id)";

/// A search for accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountListQuery {
    /// Text in the name.
    pub text: String,
    pub kind: Option<String>,
    pub disabled: Option<bool>,
    /// Descending order.
    pub descending: bool,
    /// Only names after this one.
    pub after: Option<String>,
}

/// Accounts ordered by name.
pub async fn accounts(
    connection: &mut PgConnection,
    find: &AccountListQuery,
    limit: u64,
) -> Result<Vec<AccountRow>, StoreError> {
    let direction = if find.descending { Order::Desc } else { Order::Asc };
    let mut query = person::Entity::find().order_by(person::Column::Name, direction).limit(limit);
    if !find.text.is_empty() {
        // `position` instead of LIKE, because search texts are not patterns.
        let text = find.text.as_str();
        query = query.filter(Expr::cust_with_values("position($1 IN person.name) > 0", [text]));
    }
    if let Some(kind) = &find.kind {
        query = query.filter(person::Column::Kind.eq(kind));
    }
    if let Some(disabled) = find.disabled {
        query = query.filter(person::Column::Disabled.eq(disabled));
    }
    query = match &find.after {
        None => query,
        Some(after) if find.descending => query.filter(person::Column::Name.lt(after)),
        Some(after) => query.filter(person::Column::Name.gt(after)),
    };
    Ok(query.into_partial_model().all(&orm(connection)).await?)
}

pub async fn account(
    connection: &mut PgConnection,
    id: PersonId,
) -> Result<Option<AccountRow>, StoreError> {
    let query = person::Entity::find_by_id(id.0).into_partial_model();
    Ok(query.one(&orm(connection)).await?)
}

/// A permission in a part of the tree.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "scoped_grant::Entity")]
pub struct GrantRow {
    pub person_id: Uuid,
    pub permission: String,
    /// The deployment with all descendants.
    pub deployment_id: Uuid,
    /// `None`: the deployment is removed, and the grant has no effect.
    #[sea_orm(from_expr = "Expr::cust(PRESENT_DEPLOYMENT)")]
    pub deployment: Option<String>,
}

const PRESENT_DEPLOYMENT: &str = "CASE WHEN deployment.removed_in IS NULL THEN deployment.name END";

/// The scoped grants of these people.
pub async fn grants(
    connection: &mut PgConnection,
    ids: &[PersonId],
) -> Result<Vec<GrantRow>, StoreError> {
    let of_deployment = join(scoped_grant::Column::DeploymentId, deployment::Column::Id);
    let rows = scoped_grant::Entity::find()
        .join(JoinType::InnerJoin, of_deployment)
        .filter(scoped_grant::Column::PersonId.is_in(ids.iter().map(|id| id.0)))
        .order_by_asc(scoped_grant::Column::PersonId)
        .order_by_asc(deployment::Column::Name)
        .order_by_asc(scoped_grant::Column::Permission)
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// Locks the rows of these people in one order. No other transaction can change or check their
/// permissions until this one ends.
pub async fn lock_people(
    connection: &mut PgConnection,
    ids: &[PersonId],
) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    sqlx::query("SELECT FROM person WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE")
        .bind(ids)
        .execute(connection)
        .await?;
    Ok(())
}

/// Sets the permissions of a person, everywhere and in parts of the tree, and raises their version.
/// The caller has locked the person.
///
/// # Errors
///
/// No admin would be left, or a deployment does not exist.
pub async fn set_grants(
    connection: &mut PgConnection,
    id: PersonId,
    global: &[&str],
    scoped: &BTreeSet<(&str, DeploymentId)>,
) -> Result<(), StoreError> {
    // Also for equal permissions: the update raises the version.
    let global: Vec<String> = global.iter().map(|&word| word.to_owned()).collect();
    person::Entity::update_many()
        .col_expr(person::Column::Permissions, Expr::value(global))
        .filter(person::Column::Id.eq(id.0))
        .exec(&orm(connection))
        .await?;
    let (words, deployments): (Vec<&str>, Vec<Uuid>) =
        scoped.iter().map(|(word, place)| (*word, place.0)).unzip();
    sqlx::query(
        "DELETE FROM scoped_grant g WHERE g.person_id = $1
         AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::uuid[]) AS x (w, d) WHERE x.w = g.permission AND x.d = g.deployment_id)",
    )
    .bind(id.0)
    .bind(&words)
    .bind(&deployments)
    .execute(&mut *connection)
    .await?;
    // Existing grants stay. The guard would reject a new grant for a removed deployment.
    sqlx::query(
        "INSERT INTO scoped_grant (person_id, permission, deployment_id)
         SELECT $1, x.w, x.d FROM unnest($2::text[], $3::uuid[]) AS x (w, d)
         WHERE NOT EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = $1 AND g.permission = x.w AND g.deployment_id = x.d)",
    )
    .bind(id.0)
    .bind(&words)
    .bind(&deployments)
    .execute(connection)
    .await?;
    Ok(())
}

/// The stored password of a person. `None`: they have no password, are disabled or are a service
/// account.
pub async fn password_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<(PersonId, String)>, StoreError> {
    let row: Option<(Uuid, String)> = person::Entity::find()
        .join(JoinType::InnerJoin, join(person::Column::Id, account::Column::PersonId))
        .filter(person::Column::Name.eq(name))
        .filter(person::Column::Disabled.eq(false))
        .filter(person::Column::Kind.eq(HUMAN))
        .select_only()
        .column(person::Column::Id)
        .column(account::Column::PasswordHash)
        .into_tuple()
        .one(&orm(connection))
        .await?;
    Ok(row.map(|(id, hash)| (PersonId(id), hash)))
}

/// The stored password of a person.
pub async fn password(
    connection: &mut PgConnection,
    id: PersonId,
) -> Result<Option<String>, StoreError> {
    let query = account::Entity::find_by_id(id.0).select_only();
    let query = query.column(account::Column::PasswordHash).into_tuple();
    Ok(query.one(&orm(connection)).await?)
}

/// Sets the password of the acting person, if the stored one still equals `current_hash` (`None`:
/// no password yet). It also replaces the token of their session, which voids the old token.
/// Returns whether the password was set. `proof` proves the old password; without it, the
/// session must have begun with a link recently.
///
/// # Errors
///
/// The proof of the old password is missing or wrong.
pub async fn set_password(
    connection: &mut PgConnection,
    current_hash: Option<&str>,
    after: &str,
    proof: Option<&[u8]>,
    session: &TokenHash,
) -> Result<bool, StoreError> {
    let set = sqlx::query_scalar("SELECT set_password($1, $2, $3, $4)")
        .bind(current_hash)
        .bind(after)
        .bind(proof)
        .bind(session.as_slice())
        .fetch_one(connection)
        .await?;
    Ok(set)
}
