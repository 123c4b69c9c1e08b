//! API tokens of people and service accounts.
//!
//! This module handles only the SHA-256 of a token, never the token. All times are the database's.
//! Each request checks the rows of the token and its person. So revocation, expiry and disabling
//! take effect on the next request.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::ids::{DeploymentId, PersonId};
use sea_orm::sea_query::{Expr, ExprTrait as _};
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
    Select,
};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{deployment, join, person, token};
use crate::people::person::{PERSON_COLUMNS, PersonRow, RawPerson, TokenHash};
use crate::people::sessions::RECORD_VISIT;

/// The maximum number of valid tokens per person.
pub const MAX_TOKENS: i64 = 50;

/// A valid token with its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerRow {
    pub id: Uuid,
    pub person: PersonRow,
    /// Upper limit of its permissions.
    pub scopes: Vec<String>,
    /// The only deployments where it is valid. `None`: everywhere its person has permissions.
    pub inside: Option<BTreeSet<DeploymentId>>,
    /// Whether this use should be recorded, because the last record is old enough.
    pub note_due: bool,
}

#[derive(Debug, sqlx::FromRow)]
struct RawBearer {
    #[sqlx(flatten)]
    person: RawPerson,
    token: Uuid,
    scopes: Vec<String>,
    inside_token: Option<Vec<Uuid>>,
    note_due: bool,
}

impl From<RawBearer> for BearerRow {
    fn from(raw: RawBearer) -> Self {
        Self {
            id: raw.token,
            person: raw.person.into(),
            scopes: raw.scopes,
            inside: raw.inside_token.map(|places| places.into_iter().map(DeploymentId).collect()),
            note_due: raw.note_due,
        }
    }
}

const TOKEN_DEPLOYMENTS: &str = "CASE WHEN t.deployment_id IS NULL THEN NULL ELSE ARRAY(
    WITH RECURSIVE below AS (
      SELECT t.deployment_id AS id UNION SELECT d.id FROM below b JOIN deployment d ON d.parent = b.id)
    SELECT id FROM below) END AS inside_token";

/// The valid token with this hash.
pub async fn bearer(pool: &PgPool, hash: &TokenHash) -> Result<Option<BearerRow>, StoreError> {
    let sql = holding("t.hash = $1");
    let row: Option<RawBearer> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(hash.as_slice()).fetch_optional(pool).await?;
    Ok(row.map(BearerRow::from))
}

/// The valid token with this id, for a client that presented it earlier.
pub async fn bearer_by_id(pool: &PgPool, token: Uuid) -> Result<Option<BearerRow>, StoreError> {
    let sql = holding("t.id = $1");
    let row: Option<RawBearer> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(token).fetch_optional(pool).await?;
    Ok(row.map(BearerRow::from))
}

/// Selects a valid token by a condition.
fn holding(condition: &str) -> String {
    format!(
        "SELECT {PERSON_COLUMNS}, t.id AS token, t.scopes, {TOKEN_DEPLOYMENTS},
           t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute' AS note_due
         FROM token t JOIN person p ON p.id = t.person_id
         WHERE {condition} AND t.kind = 'api' AND t.revoked_at IS NULL AND t.expires_at > now() AND NOT p.disabled"
    )
}

/// Records a use of a token, at most once a minute.
pub async fn record_use(pool: &PgPool, token: Uuid) -> Result<(), StoreError> {
    let sql = format!(
        "WITH noted AS (
           UPDATE token SET last_used_at = now()
           WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
           RETURNING person_id)
         {RECORD_VISIT}"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(token).execute(pool).await?;
    Ok(())
}

/// A token to insert.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    pub person: PersonId,
    /// The SHA-256 of the token.
    pub hash: TokenHash,
    pub name: &'a str,
    /// Upper limit of its permissions.
    pub scopes: Vec<&'a str>,
    /// `None`: everywhere its person has permissions.
    pub deployment: Option<DeploymentId>,
    pub lifetime: Duration,
    /// The person who creates it.
    pub by: PersonId,
}

/// Inserts a token. `None`: the person has the maximum number. The caller has locked the person.
pub async fn insert_token(
    connection: &mut PgConnection,
    new: &NewToken<'_>,
) -> Result<Option<(Uuid, OffsetDateTime)>, StoreError> {
    let inserted = sqlx::query_as(
        "INSERT INTO token (kind, hash, name, person_id, scopes, deployment_id, created_by, expires_at)
         SELECT 'api', $2, $3, $1, $4, $5, $6, now() + make_interval(secs => $7)
         WHERE (SELECT count(*) FROM token WHERE person_id = $1 AND kind = 'api' AND revoked_at IS NULL AND expires_at > now()) < $8
         RETURNING id, expires_at",
    )
    .bind(new.person.0)
    .bind(new.hash.as_slice())
    .bind(new.name)
    .bind(&new.scopes)
    .bind(new.deployment.map(|id| id.0))
    .bind(new.by.0)
    .bind(new.lifetime.as_secs_f64())
    .bind(MAX_TOKENS)
    .fetch_optional(connection)
    .await?;
    Ok(inserted)
}

/// A token without its text.
#[derive(Debug, Clone, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "token::Entity")]
pub struct ApiTokenRow {
    pub id: Uuid,
    pub person_id: Uuid,
    /// The person's name.
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
    pub person: String,
    /// The kind of the person.
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Kind))")]
    pub kind: String,
    pub name: String,
    /// Upper limit of its permissions.
    pub scopes: Vec<String>,
    /// The name of the only deployment where it is valid.
    #[sea_orm(from_expr = "Expr::col((deployment::Entity, deployment::Column::Name))")]
    pub deployment: Option<String>,
    /// The name of its creator.
    #[sea_orm(from_expr = "Expr::col((CREATOR, person::Column::Name))")]
    pub by: Option<String>,
    pub created_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
    pub last_used_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
    /// Neither expired nor revoked, and its person is enabled.
    #[sea_orm(from_expr = "Expr::cust(IS_VALID).and(person::Column::Disabled.into_expr().not())")]
    pub holds: bool,
}

const CREATOR: &str = "creator";
const IS_VALID: &str = "(token.revoked_at IS NULL AND token.expires_at > now())";

/// API tokens with the tables of an [`ApiTokenRow`].
fn tokens() -> Select<token::Entity> {
    let scope = join(token::Column::DeploymentId, deployment::Column::Id);
    let creator = join(token::Column::CreatedBy, person::Column::Id);
    token::Entity::find()
        .join(JoinType::InnerJoin, join(token::Column::PersonId, person::Column::Id))
        .join(JoinType::LeftJoin, scope)
        .join_as(JoinType::LeftJoin, creator, CREATOR)
        .filter(token::Column::Kind.eq("api"))
}

/// A person's tokens, valid ones first, then the newest of the others.
pub async fn list_tokens(
    connection: &mut PgConnection,
    person: PersonId,
    limit: u64,
) -> Result<Vec<ApiTokenRow>, StoreError> {
    let query = tokens()
        .filter(token::Column::PersonId.eq(person.0))
        .order_by_desc(Expr::cust(IS_VALID))
        .order_by_desc(token::Column::CreatedAt)
        .order_by_asc(token::Column::Id)
        .limit(limit);
    Ok(query.into_partial_model().all(&orm(connection)).await?)
}

pub async fn token(
    connection: &mut PgConnection,
    id: Uuid,
) -> Result<Option<ApiTokenRow>, StoreError> {
    let query = tokens().filter(token::Column::Id.eq(id));
    Ok(query.into_partial_model().one(&orm(connection)).await?)
}

/// Revokes a token. `false`: it does not exist or was already revoked.
pub async fn revoke(connection: &mut PgConnection, id: Uuid) -> Result<bool, StoreError> {
    let revoked = token::Entity::update_many()
        .col_expr(token::Column::RevokedAt, Expr::current_timestamp())
        .filter(token::Column::Id.eq(id))
        .filter(token::Column::Kind.eq("api"))
        .filter(token::Column::RevokedAt.is_null())
        .exec(&orm(connection))
        .await?;
    Ok(revoked.rows_affected == 1)
}

/// Revokes all valid tokens of a person and returns their number. The caller has locked the person.
pub async fn revoke_all(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<u64, StoreError> {
    let revoked = token::Entity::update_many()
        .col_expr(token::Column::RevokedAt, Expr::current_timestamp())
        .filter(token::Column::PersonId.eq(person.0))
        .filter(token::Column::Kind.eq("api"))
        .filter(token::Column::RevokedAt.is_null())
        .filter(token::Column::ExpiresAt.into_expr().gt(Expr::current_timestamp()))
        .exec(&orm(connection))
        .await?;
    Ok(revoked.rows_affected)
}
