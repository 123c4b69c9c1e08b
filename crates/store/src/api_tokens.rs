//! Tokens by which programs speak for a person or for a service account.
//!
//! As with sign-ins, nothing here knows a token, only its SHA-256, and every moment is the database's own. Whether a token holds is asked
//! of its row and its person's each time: one that was revoked or has expired, or whose person is disabled, is none with the next request.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::ids::{DeploymentId, PersonId};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::people::{PERSON, PersonRow, RawPerson, TokenHash, VISITED};

/// Most tokens of a person that hold at once.
pub const MOST_TOKENS: i64 = 50;
/// Tokens of a person that are told of: those that are neither over nor taken back, of which there are no more than [`MOST_TOKENS`], and
/// the newest of the others.
const TOLD: i64 = api::limits::TOKENS_TOLD as i64;

/// What a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerRow {
    /// Which.
    pub id: Uuid,
    /// Whose.
    pub person: PersonRow,
    /// What it may at most.
    pub scopes: Vec<String>,
    /// Where it may at most: these; None: wherever its person may.
    pub inside: Option<BTreeSet<DeploymentId>>,
    /// Whether its last use was noted long enough ago to note this one.
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

const BELOW: &str = "CASE WHEN t.deployment_id IS NULL THEN NULL ELSE ARRAY(
    WITH RECURSIVE below AS (
      SELECT t.deployment_id AS id UNION SELECT d.id FROM below b JOIN deployment d ON d.parent = b.id)
    SELECT id FROM below) END AS inside_token";

/// What a token stands for; None: for nothing (any more).
///
/// # Errors
/// When the database does not answer.
pub async fn bearer(pool: &PgPool, hash: &TokenHash) -> Result<Option<BearerRow>, StoreError> {
    let sql = holding("t.hash = $1");
    let row: Option<RawBearer> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(hash.as_slice()).fetch_optional(pool).await?;
    Ok(row.map(BearerRow::from))
}

/// The same of a token that is known by its id, because somebody came by it before.
///
/// # Errors
/// When the database does not answer.
pub async fn bearer_of(pool: &PgPool, token: Uuid) -> Result<Option<BearerRow>, StoreError> {
    let sql = holding("t.id = $1");
    let row: Option<RawBearer> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(token).fetch_optional(pool).await?;
    Ok(row.map(BearerRow::from))
}

/// What a token that holds stands for, by what names it.
fn holding(named: &str) -> String {
    format!(
        "SELECT {PERSON}, t.id AS token, t.scopes, {BELOW},
           t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute' AS note_due
         FROM token t JOIN person p ON p.id = t.person_id
         WHERE {named} AND t.kind = 'api' AND t.revoked_at IS NULL AND t.expires_at > now() AND NOT p.disabled"
    )
}

/// Notes that a token is used, unless somebody noted it within a minute.
///
/// # Errors
/// When the database does not answer.
pub async fn note_use(pool: &PgPool, token: Uuid) -> Result<(), StoreError> {
    let sql = format!(
        "WITH noted AS (
           UPDATE token SET last_used_at = now()
           WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
           RETURNING person_id)
         {VISITED}"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(token).execute(pool).await?;
    Ok(())
}

/// A token to be made.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    /// Whose.
    pub person: PersonId,
    /// Its SHA-256.
    pub hash: TokenHash,
    /// What its maker calls it.
    pub name: &'a str,
    /// What it may at most.
    pub scopes: Vec<&'a str>,
    /// Where; None: wherever its person may.
    pub deployment: Option<DeploymentId>,
    /// How long it holds.
    pub lifetime: Duration,
    /// Who makes it.
    pub by: PersonId,
}

/// Makes a token; None: there are as many as there may be. The caller has the person's row.
///
/// # Errors
/// When the database does not answer.
pub async fn insert_token(
    on: &mut PgConnection,
    new: &NewToken<'_>,
) -> Result<Option<(Uuid, OffsetDateTime)>, StoreError> {
    let made = sqlx::query_as(
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
    .bind(MOST_TOKENS)
    .fetch_optional(on)
    .await?;
    Ok(made)
}

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ApiTokenRow {
    /// Which.
    pub id: Uuid,
    /// Whose.
    pub person_id: Uuid,
    /// Whose, by name.
    pub person: String,
    /// Of which kind they are.
    pub kind: String,
    /// What its maker calls it.
    pub name: String,
    /// What it may at most.
    pub scopes: Vec<String>,
    /// Where it may at most, by name.
    pub deployment: Option<String>,
    /// Who made it.
    pub by: Option<String>,
    /// When.
    pub created_at: OffsetDateTime,
    /// Until when.
    pub expires_at: OffsetDateTime,
    /// When it was last used.
    pub last_used_at: Option<OffsetDateTime>,
    /// Since when it is taken back.
    pub revoked_at: Option<OffsetDateTime>,
    /// Whether it holds.
    pub holds: bool,
}

const TOKEN: &str =
    "t.id, t.person_id, p.name AS person, p.kind, t.name, t.scopes, d.name AS deployment, by.name AS by,
    t.created_at, t.expires_at, t.last_used_at, t.revoked_at,
    t.revoked_at IS NULL AND t.expires_at > now() AND NOT p.disabled AS holds";
const FROM: &str =
    "token t JOIN person p ON p.id = t.person_id LEFT JOIN deployment d ON d.id = t.deployment_id
    LEFT JOIN person by ON by.id = t.created_by";

/// A person's tokens, those first that are neither over nor taken back.
///
/// # Errors
/// When the database does not answer.
pub async fn tokens_of(
    on: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<ApiTokenRow>, StoreError> {
    let sql = format!(
        "SELECT {TOKEN} FROM {FROM} WHERE t.person_id = $1 AND t.kind = 'api'
         ORDER BY t.revoked_at IS NULL AND t.expires_at > now() DESC, t.created_at DESC, t.id LIMIT $2"
    );
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(person.0).bind(TOLD).fetch_all(on).await?)
}

/// A token.
///
/// # Errors
/// When the database does not answer.
pub async fn token(on: &mut PgConnection, id: Uuid) -> Result<Option<ApiTokenRow>, StoreError> {
    let sql = format!("SELECT {TOKEN} FROM {FROM} WHERE t.id = $1 AND t.kind = 'api'");
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id).fetch_optional(on).await?)
}

/// Takes a token back; hands back whether it was not taken back before.
///
/// # Errors
/// When the database does not answer.
pub async fn revoke(on: &mut PgConnection, id: Uuid) -> Result<bool, StoreError> {
    let sql =
        "UPDATE token SET revoked_at = now() WHERE id = $1 AND kind = 'api' AND revoked_at IS NULL";
    Ok(sqlx::query(sql).bind(id).execute(on).await?.rows_affected() == 1)
}

/// Takes back all tokens of a person that hold; hands back how many these were. The caller has the person's row.
///
/// # Errors
/// When the database does not answer.
pub async fn revoke_all_of(on: &mut PgConnection, person: PersonId) -> Result<u64, StoreError> {
    let sql = "UPDATE token SET revoked_at = now()
               WHERE person_id = $1 AND kind = 'api' AND revoked_at IS NULL AND expires_at > now()";
    Ok(sqlx::query(sql).bind(person.0).execute(on).await?.rows_affected())
}
