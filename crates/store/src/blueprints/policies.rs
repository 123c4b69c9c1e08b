//! Versions of the gate's policy.

use engine::Hash;
use engine::gate::Policy;
use engine::ids::{BlueprintNumber, PersonId, PolicyNumber};
use sea_orm::{
    ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, Select, Set,
};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{join, object, person, policy};

pub async fn policy(
    connection: &mut PgConnection,
    number: PolicyNumber,
) -> Result<Option<Policy>, StoreError> {
    let query = policy::Entity::find_by_id(number.0);
    body(connection, query).await?.map(|body| parse(&body, number)).transpose()
}

/// The text of the first policy of a query.
async fn body(
    connection: &mut PgConnection,
    query: Select<policy::Entity>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let query = query
        .join(JoinType::InnerJoin, join(policy::Column::Hash, object::Column::Hash))
        .select_only()
        .column(object::Column::Body);
    Ok(query.into_tuple().one(&orm(connection)).await?)
}

fn parse(body: &[u8], policy: impl std::fmt::Display) -> Result<Policy, StoreError> {
    serde_json::from_slice(body).map_err(|e| StoreError::corrupt(format!("policy {policy}"), e))
}

/// The policy that was in force after a target was committed.
pub async fn policy_at(
    connection: &mut PgConnection,
    blueprint: BlueprintNumber,
) -> Result<Option<Policy>, StoreError> {
    let query = policy::Entity::find()
        .filter(policy::Column::BlueprintNumber.lte(blueprint.0))
        .order_by_desc(policy::Column::BlueprintNumber);
    let body = body(connection, query).await?;
    body.map(|body| parse(&body, format!("of blueprint {blueprint}"))).transpose()
}

/// Adds a version of the policy, whose object is stored. Works only in the transaction of its
/// commit.
pub async fn insert_policy(
    connection: &mut PgConnection,
    number: PolicyNumber,
    hash: Hash,
    by: Option<PersonId>,
) -> Result<(), StoreError> {
    let row = policy::ActiveModel {
        number: Set(number.0),
        hash: Set(hash.as_bytes().to_vec()),
        created_by: Set(by.map(|person| person.0)),
        ..Default::default()
    };
    policy::Entity::insert(row).exec_without_returning(&orm(connection)).await?;
    Ok(())
}

/// The creation time, creator and blueprint of a policy version.
pub async fn policy_origin(
    connection: &mut PgConnection,
    number: i64,
) -> Result<Option<(OffsetDateTime, Option<String>, i64)>, StoreError> {
    let row = policy::Entity::find_by_id(number)
        .join(JoinType::LeftJoin, join(policy::Column::CreatedBy, person::Column::Id))
        .select_only()
        .column(policy::Column::CreatedAt)
        .column(person::Column::Name)
        .column(policy::Column::BlueprintNumber)
        .into_tuple()
        .one(&orm(connection))
        .await?;
    Ok(row)
}
