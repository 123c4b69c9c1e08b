//! The rows and documents of an audit export, in parts.
//!
//! An export ends at an entry of the chain. It omits rows whose audit entry is sealed later or not
//! yet. It includes rows without any entry, so that the verifier finds them.
//! [`engine::audit::export`] defines the order.

use engine::Hash;
use engine::audit::export::{Line, Table};
use engine::canonical::ObjectKind;
use sea_orm::{ColumnTrait, DerivePartialModel, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::object;

/// The number of rows per part.
const MAX_ROWS: i64 = 500;
/// The number of objects per part. Scripts may be large.
const MAX_OBJECTS: i64 = 50;
/// The number of reviews per part. Each lists its documents.
const MAX_REVIEWS: i64 = 10;

/// The start of the next part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Barclamps, roles, scripts and policies after this hash.
    Catalog(Vec<u8>),
    /// Imported barclamps after this one.
    Barclamps(String, String),
    /// Passkeys after this one.
    Passkeys(Uuid),
    /// Confirmations of passkeys after this one.
    Confirmations(Uuid),
    /// Policies after this one.
    Policies(i64),
    /// Reviews after this one.
    Reviews(i64),
    /// Verdicts after this one.
    Verdicts(i64),
    /// Signatures of verdicts after this one.
    Signatures(i64),
    /// The blueprint after this one, with its root.
    Target(i64),
    /// New documents of this blueprint, after this one.
    Documents(i64, String, Uuid),
    /// The row of this blueprint.
    TargetRow(i64),
    /// Runs of this blueprint, after this one.
    Runs(i64, i64),
    /// The export is complete.
    Done,
}

impl Default for Stage {
    fn default() -> Self {
        Self::Catalog(Vec::new())
    }
}

type Row = Map<String, Value>;

/// The next part of an export that ends at entry `end`, and the start of the following part.
pub async fn export_part(
    connection: &mut PgConnection,
    end: i64,
    stage: Stage,
) -> Result<(Vec<Line>, Stage), StoreError> {
    match stage {
        Stage::Catalog(after) => {
            let rows: Vec<ObjectRow> = object::Entity::find()
                .filter(object::Column::Kind.is_in(["barclamp", "role", "script", "policy"]))
                .filter(object::Column::Hash.gt(after))
                .order_by_asc(object::Column::Hash)
                .limit(MAX_OBJECTS.unsigned_abs())
                .into_partial_model()
                .all(&orm(connection))
                .await?;
            let next = next_of(&rows, MAX_OBJECTS, |row| Stage::Catalog(row.hash.clone()));
            let next = next.unwrap_or(Stage::Barclamps(String::new(), String::new()));
            Ok((objects(rows)?, next))
        }
        Stage::Barclamps(name, version) => {
            let rows: Vec<(String, String, Json<Row>)> = sqlx::query_as(
                "SELECT name, version, audit_image('barclamp', to_jsonb(b)) FROM barclamp b \
                 WHERE (name, version) > ($1, $2) AND NOT audited_after('barclamp.insert', concat_ws(' ', name, version), $3) \
                 ORDER BY name, version LIMIT $4",
            )
            .bind(name)
            .bind(version)
            .bind(end)
            .bind(MAX_ROWS)
            .fetch_all(connection)
            .await?;
            let next = next_of(&rows, MAX_ROWS, |(name, version, _)| {
                Stage::Barclamps(name.clone(), version.clone())
            });
            let lines = rows.into_iter().map(|(_, _, row)| line(Table::Barclamp, row)).collect();
            Ok((lines, next.unwrap_or(Stage::Passkeys(Uuid::nil()))))
        }
        Stage::Passkeys(after) => {
            let sql = "SELECT id, audit_image('passkey', to_jsonb(k)) FROM passkey k \
                       WHERE id > $1 AND NOT audited_after('passkey.insert', id::text, $2) ORDER BY id LIMIT $3";
            by_id(
                connection,
                sql,
                (after, end),
                Table::Passkey,
                Stage::Passkeys,
                Stage::Confirmations(Uuid::nil()),
            )
            .await
        }
        Stage::Confirmations(after) => {
            let sql = "SELECT passkey_id, audit_image('passkey_confirmation', to_jsonb(c)) FROM passkey_confirmation c \
                       WHERE passkey_id > $1 AND NOT audited_after('passkey_confirmation.insert', passkey_id::text, $2) \
                       ORDER BY passkey_id LIMIT $3";
            let next_stage = Stage::Policies(0);
            by_id(
                connection,
                sql,
                (after, end),
                Table::PasskeyConfirmation,
                Stage::Confirmations,
                next_stage,
            )
            .await
        }
        Stage::Policies(after) => {
            let sql = "SELECT number, audit_image('policy', to_jsonb(p)) FROM policy p \
                       WHERE number > $1 AND NOT audited_after('policy.insert', number::text, $2) ORDER BY number LIMIT $3";
            numbered(
                connection,
                sql,
                (after, end, MAX_ROWS),
                Table::Policy,
                Stage::Policies,
                Stage::Reviews(0),
            )
            .await
        }
        Stage::Reviews(after) => {
            let rows: Vec<(i64, Json<Row>, Json<Value>)> =
                sqlx::query_as(include_str!("statements/export_reviews.sql"))
                    .bind(after)
                    .bind(end)
                    .bind(MAX_REVIEWS)
                    .fetch_all(connection)
                    .await?;
            let next = next_of(&rows, MAX_REVIEWS, |(id, ..)| Stage::Reviews(*id));
            let lines = rows.into_iter().map(|(_, Json(row), Json(documents))| {
                let documents = serde_json::from_value(documents).map_err(|_| {
                    StoreError::corrupt("review_document", "a document has an unknown kind")
                })?;
                Ok(Line::Row { table: Table::Review, row, documents: Some(documents) })
            });
            Ok((lines.collect::<Result<_, StoreError>>()?, next.unwrap_or(Stage::Verdicts(0))))
        }
        Stage::Verdicts(after) => {
            let sql = "SELECT id, audit_image('verdict', to_jsonb(v)) FROM verdict v \
                       WHERE id > $1 AND NOT audited_after('verdict.insert', id::text, $2) ORDER BY id LIMIT $3";
            numbered(
                connection,
                sql,
                (after, end, MAX_ROWS),
                Table::Verdict,
                Stage::Verdicts,
                Stage::Signatures(0),
            )
            .await
        }
        Stage::Signatures(after) => {
            let sql = "SELECT verdict_id, audit_image('verdict_signature', to_jsonb(g)) FROM verdict_signature g \
                       WHERE verdict_id > $1 AND NOT audited_after('verdict_signature.insert', verdict_id::text, $2) \
                       ORDER BY verdict_id LIMIT $3";
            let (this, next_stage) = (Stage::Signatures, Stage::Target(0));
            numbered(
                connection,
                sql,
                (after, end, MAX_ROWS),
                Table::VerdictSignature,
                this,
                next_stage,
            )
            .await
        }
        Stage::Target(after) => target(connection, end, after).await,
        Stage::Documents(number, kind, id) => documents(connection, number, kind, id).await,
        Stage::TargetRow(number) => {
            let sql =
                "SELECT audit_image('blueprint', to_jsonb(t)) FROM blueprint t WHERE number = $1";
            let row: Json<Row> = sqlx::query_scalar(sql).bind(number).fetch_one(connection).await?;
            Ok((vec![line(Table::Blueprint, row)], Stage::Runs(number, 0)))
        }
        Stage::Runs(number, after) => runs(connection, end, number, after).await,
        Stage::Done => Ok((Vec::new(), Stage::Done)),
    }
}

async fn target(
    connection: &mut PgConnection,
    end: i64,
    after: i64,
) -> Result<(Vec<Line>, Stage), StoreError> {
    let found: Option<(i64, String, Vec<u8>, Vec<u8>)> = sqlx::query_as(
        "SELECT t.number, o.kind, o.hash, o.body FROM blueprint t JOIN object o ON o.hash = t.root \
         WHERE t.number > $1 AND NOT audited_after('blueprint.insert', t.number::text, $2) ORDER BY t.number LIMIT 1",
    )
    .bind(after)
    .bind(end)
    .fetch_optional(&mut *connection)
    .await?;
    let Some((number, kind, hash, body)) = found else { return Ok((Vec::new(), Stage::Done)) };
    let sql = "SELECT t.root IS NOT DISTINCT FROM p.root FROM blueprint t LEFT JOIN blueprint p ON p.number = t.parent WHERE t.number = $1";
    let root_unchanged: bool = sqlx::query_scalar(sql).bind(number).fetch_one(connection).await?;
    let root =
        if root_unchanged { Vec::new() } else { objects(vec![ObjectRow { kind, hash, body }])? };
    Ok((root, Stage::Documents(number, String::new(), Uuid::nil())))
}

async fn documents(
    connection: &mut PgConnection,
    number: i64,
    kind: String,
    id: Uuid,
) -> Result<(Vec<Line>, Stage), StoreError> {
    type Row = (String, Uuid, String, Vec<u8>, Vec<u8>);
    let rows: Vec<Row> = sqlx::query_as(include_str!("statements/export_documents.sql"))
        .bind(number)
        .bind(kind)
        .bind(id)
        .bind(MAX_ROWS)
        .fetch_all(connection)
        .await?;
    let next =
        next_of(&rows, MAX_ROWS, |(kind, id, ..)| Stage::Documents(number, kind.clone(), *id));
    let rows =
        rows.into_iter().map(|(_, _, kind, hash, body)| ObjectRow { kind, hash, body }).collect();
    Ok((objects(rows)?, next.unwrap_or(Stage::TargetRow(number))))
}

async fn runs(
    connection: &mut PgConnection,
    end: i64,
    number: i64,
    after: i64,
) -> Result<(Vec<Line>, Stage), StoreError> {
    let sql = include_str!("statements/export_runs.sql");
    let rows: Vec<(i64, Option<Json<Row>>)> = sqlx::query_as(sql)
        .bind(number)
        .bind(after)
        .bind(end)
        .bind(MAX_ROWS)
        .fetch_all(connection)
        .await?;
    let next = next_of(&rows, MAX_ROWS, |(id, _)| Stage::Runs(number, *id));
    let lines = rows.into_iter().filter_map(|(_, row)| Some(line(Table::Run, row?))).collect();
    Ok((lines, next.unwrap_or(Stage::Target(number))))
}

async fn numbered(
    connection: &mut PgConnection,
    sql: &'static str,
    (after, end, limit): (i64, i64, i64),
    table: Table,
    this: fn(i64) -> Stage,
    next_stage: Stage,
) -> Result<(Vec<Line>, Stage), StoreError> {
    let rows: Vec<(i64, Json<Row>)> =
        sqlx::query_as(sql).bind(after).bind(end).bind(limit).fetch_all(connection).await?;
    let next = next_of(&rows, limit, |(number, _)| this(*number));
    Ok((rows.into_iter().map(|(_, row)| line(table, row)).collect(), next.unwrap_or(next_stage)))
}

async fn by_id(
    connection: &mut PgConnection,
    sql: &'static str,
    (after, end): (Uuid, i64),
    table: Table,
    this: fn(Uuid) -> Stage,
    next_stage: Stage,
) -> Result<(Vec<Line>, Stage), StoreError> {
    let rows: Vec<(Uuid, Json<Row>)> =
        sqlx::query_as(sql).bind(after).bind(end).bind(MAX_ROWS).fetch_all(connection).await?;
    let next = next_of(&rows, MAX_ROWS, |(id, _)| this(*id));
    Ok((rows.into_iter().map(|(_, row)| line(table, row)).collect(), next.unwrap_or(next_stage)))
}

/// The start of the next part of the same stage. `None`: this was the last one.
fn next_of<R>(rows: &[R], limit: i64, stage: impl Fn(&R) -> Stage) -> Option<Stage> {
    let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows >= limit);
    rows.last().filter(|_| is_full).map(stage)
}

fn line(table: Table, Json(row): Json<Row>) -> Line {
    Line::Row { table, row, documents: None }
}

#[derive(DerivePartialModel)]
#[sea_orm(entity = "object::Entity")]
struct ObjectRow {
    kind: String,
    hash: Vec<u8>,
    body: Vec<u8>,
}

fn objects(rows: Vec<ObjectRow>) -> Result<Vec<Line>, StoreError> {
    let object = |row: ObjectRow| {
        let kind: ObjectKind = serde_json::from_value(Value::String(row.kind))
            .map_err(|_| StoreError::corrupt("object.kind", "the kind is unknown"))?;
        let hash = Hash::from_bytes(&row.hash)
            .ok_or_else(|| StoreError::corrupt("object.hash", "a hash must have 32 bytes"))?;
        Ok(match String::from_utf8(row.body) {
            Ok(body) => Line::Object { kind, hash, body: Some(body), hex: None },
            Err(bytes) => {
                let hex = bytes.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                Line::Object { kind, hash, body: None, hex: Some(hex) }
            }
        })
    };
    rows.into_iter().map(object).collect()
}
