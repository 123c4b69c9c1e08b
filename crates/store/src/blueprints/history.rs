//! The target history, of everything or of one deployment.

use engine::Hash;
use engine::canonical::ObjectKind;
use engine::ids::{BlueprintNumber, DeploymentId};
use sea_orm::{ColumnTrait, EntityTrait, Order, QueryFilter, QueryOrder, QuerySelect, Select};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::hash;
use crate::connect::orm;
use crate::entity::{blueprint, blueprint_deployment, object};

/// A blueprint in the target history, with names for display.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BlueprintRow {
    pub number: i64,
    /// `genesis`, `change` or `switch`.
    pub kind: String,
    /// The hash of its root.
    pub root: Vec<u8>,
    /// Whether execution is enabled from it on.
    pub enabled: bool,
    /// The reason of a switch.
    pub reason: Option<String>,
    /// When it was committed.
    pub at: OffsetDateTime,
    /// The name of the person who committed it.
    pub by: Option<String>,
    /// The review that it commits.
    pub review: Option<i64>,
    /// The title of the review.
    pub title: Option<String>,
    /// The deployment of the proposal.
    pub deployment: Option<String>,
    pub deployment_id: Option<Uuid>,
    /// The names of the authors.
    pub authors: Vec<String>,
    /// The people whose last verdict is an approval that counts.
    pub approved_by: Vec<String>,
}

/// Blueprints after a cursor by number. With a deployment: only blueprints that changed it.
pub async fn targets(
    connection: &mut PgConnection,
    deployment: Option<DeploymentId>,
    descending: bool,
    after: Option<BlueprintNumber>,
    limit: u64,
) -> Result<Vec<BlueprintRow>, StoreError> {
    let numbers = match deployment {
        None => {
            let query = blueprint::Entity::find();
            numbers(connection, query, blueprint::Column::Number, descending, after, limit).await?
        }
        Some(deployment) => {
            let query = blueprint_deployment::Entity::find()
                .filter(blueprint_deployment::Column::DeploymentId.eq(deployment.0));
            let column = blueprint_deployment::Column::BlueprintNumber;
            numbers(connection, query, column, descending, after, limit).await?
        }
    };
    let mut rows = blueprints_by_number(connection, &numbers).await?;
    if !descending {
        rows.reverse();
    }
    Ok(rows)
}

/// The values of a column with numbers of blueprints, after a cursor.
async fn numbers<E: EntityTrait>(
    connection: &mut PgConnection,
    query: Select<E>,
    column: E::Column,
    descending: bool,
    after: Option<BlueprintNumber>,
    limit: u64,
) -> Result<Vec<i64>, StoreError> {
    let direction = if descending { Order::Desc } else { Order::Asc };
    let mut query = query.order_by(column, direction).limit(limit).select_only().column(column);
    if let Some(after) = after {
        query = query.filter(if descending { column.lt(after.0) } else { column.gt(after.0) });
    }
    Ok(query.into_tuple().all(&orm(connection)).await?)
}

pub async fn target(
    connection: &mut PgConnection,
    number: BlueprintNumber,
) -> Result<Option<BlueprintRow>, StoreError> {
    Ok(blueprints_by_number(connection, &[number.0]).await?.pop())
}

/// Blueprints with these numbers, newest first.
async fn blueprints_by_number(
    connection: &mut PgConnection,
    numbers: &[i64],
) -> Result<Vec<BlueprintRow>, StoreError> {
    let rows = sqlx::query_as(include_str!("statements/blueprints_by_number.sql"))
        .bind(numbers)
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

/// The root of a blueprint.
pub async fn blueprint_root(
    connection: &mut PgConnection,
    number: BlueprintNumber,
) -> Result<Option<Hash>, StoreError> {
    let query = blueprint::Entity::find_by_id(number.0).select_only();
    let query = query.column(blueprint::Column::Root).into_tuple();
    let root: Option<Vec<u8>> = query.one(&orm(connection)).await?;
    root.map(|bytes| hash("blueprint.root", &bytes)).transpose()
}

/// Whether a root with this hash is stored.
pub async fn is_root(connection: &mut PgConnection, hash: Hash) -> Result<bool, StoreError> {
    let query = object::Entity::find_by_id(hash.as_bytes().to_vec())
        .filter(object::Column::Kind.eq(ObjectKind::Root.as_str()))
        .select_only()
        .column(object::Column::Kind);
    let found: Option<String> = query.into_tuple().one(&orm(connection)).await?;
    Ok(found.is_some())
}
