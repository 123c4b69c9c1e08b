//! Passkeys of people and their confirmations.
//!
//! Rows are append-only, except for a passkey's counter, last use and revocation. So a valid
//! signature can be verified at any later time.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::gate::signature::{Assertion, Confirmation, Nonce, Passkey};
use engine::ids::{PasskeyId, PersonId};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QuerySelect, Set, TryInsertResult};
use serde_json::Value;
use sqlx::{FromRow, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{join, passkey, passkey_confirmation, session};

/// A passkey to register.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPasskey {
    pub person: PersonId,
    pub name: String,
    /// The host name to which it is bound.
    pub rp_id: String,
    /// The origin at which it is registered.
    pub origin: String,
    /// The id that the authenticator gave it.
    pub credential_id: Vec<u8>,
    /// The public key and its properties.
    pub credential: Value,
    /// The authenticator's signature counter.
    pub counter: u32,
}

/// A passkey with its list columns.
#[derive(Debug, Clone, PartialEq)]
pub struct PasskeyRow {
    /// The parts needed to verify signatures.
    pub passkey: Passkey,
    /// The id that the authenticator gave it.
    pub credential_id: Vec<u8>,
    pub name: String,
    pub created_at: OffsetDateTime,
    pub last_used_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
    /// The name of the person who confirmed it. `None`: not confirmed, or confirmed by the owner of
    /// the database.
    pub confirmed_by: Option<String>,
    /// When the passkey that confirmed it was revoked.
    pub confirmer_revoked_at: Option<OffsetDateTime>,
}

#[derive(FromRow)]
struct RawPasskey {
    id: Uuid,
    person_id: Uuid,
    name: String,
    rp_id: String,
    origin: String,
    credential_id: Vec<u8>,
    credential: Value,
    created_at: OffsetDateTime,
    last_used_at: Option<OffsetDateTime>,
    revoked_at: Option<OffsetDateTime>,
    confirmed: bool,
    by_passkey: Option<Uuid>,
    nonce: Option<Vec<u8>>,
    client_data: Option<Vec<u8>>,
    authenticator_data: Option<Vec<u8>>,
    signature: Option<Vec<u8>>,
    confirmed_by: Option<String>,
    confirmer_revoked_at: Option<OffsetDateTime>,
}

/// The columns of [`RawPasskey`], for `passkey k` with its confirmation `c`. It omits names, which
/// only the server may read.
const COLUMNS: &str = "k.id, k.person_id, k.name, k.rp_id, k.origin, k.credential_id, k.credential, k.created_at, k.last_used_at, \
    k.revoked_at, c.passkey_id IS NOT NULL AS confirmed, c.by_passkey, c.nonce, c.client_data, c.authenticator_data, c.signature";

pub(crate) fn parse_nonce(column: &str, bytes: &[u8]) -> Result<Nonce, StoreError> {
    Nonce::from_bytes(bytes)
        .ok_or_else(|| StoreError::corrupt(column, "a nonce must have 16 bytes"))
}

fn to_passkey(raw: RawPasskey) -> Result<PasskeyRow, StoreError> {
    let confirmation = match (raw.confirmed, raw.by_passkey) {
        (false, _) => None,
        (true, None) => Some(Confirmation::Owner),
        (true, Some(by)) => Some(Confirmation::Passkey {
            by: PasskeyId(by),
            nonce: parse_nonce("passkey_confirmation.nonce", &raw.nonce.unwrap_or_default())?,
            assertion: Assertion {
                client_data: raw.client_data.unwrap_or_default(),
                authenticator_data: raw.authenticator_data.unwrap_or_default(),
                signature: raw.signature.unwrap_or_default(),
            },
        }),
    };
    Ok(PasskeyRow {
        passkey: Passkey {
            id: PasskeyId(raw.id),
            person: PersonId(raw.person_id),
            rp_id: raw.rp_id,
            origin: raw.origin,
            credential: raw.credential,
            confirmation,
        },
        credential_id: raw.credential_id,
        name: raw.name,
        created_at: raw.created_at,
        last_used_at: raw.last_used_at,
        revoked_at: raw.revoked_at,
        confirmed_by: raw.confirmed_by,
        confirmer_revoked_at: raw.confirmer_revoked_at,
    })
}

/// Registers a passkey. `None`: the authenticator's id is already registered.
pub async fn insert(
    connection: &mut PgConnection,
    new: &NewPasskey,
) -> Result<Option<PasskeyId>, StoreError> {
    let row = passkey::ActiveModel {
        person_id: Set(new.person.0),
        name: Set(new.name.clone()),
        rp_id: Set(new.rp_id.clone()),
        origin: Set(new.origin.clone()),
        credential_id: Set(new.credential_id.clone()),
        credential: Set(new.credential.clone()),
        counter: Set(i64::from(new.counter)),
        ..Default::default()
    };
    let insert =
        passkey::Entity::insert(row).on_conflict_do_nothing_on([passkey::Column::CredentialId]);
    Ok(match insert.exec(&orm(connection)).await? {
        TryInsertResult::Inserted(inserted) => Some(PasskeyId(inserted.last_insert_id)),
        TryInsertResult::Conflicted | TryInsertResult::Empty => None,
    })
}

/// The passkeys of a person that are not revoked, oldest first.
pub async fn list_passkeys(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<PasskeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, w.name AS confirmed_by, b.revoked_at AS confirmer_revoked_at \
         FROM passkey k LEFT JOIN passkey_confirmation c ON c.passkey_id = k.id \
         LEFT JOIN passkey b ON b.id = c.by_passkey LEFT JOIN person w ON w.id = b.person_id \
         WHERE k.person_id = $1 AND k.revoked_at IS NULL ORDER BY k.created_at, k.id LIMIT 100"
    );
    let rows: Vec<RawPasskey> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(person.0).fetch_all(connection).await?;
    rows.into_iter().map(to_passkey).collect()
}

/// A passkey, revoked or not.
pub async fn one(
    connection: &mut PgConnection,
    id: PasskeyId,
) -> Result<Option<PasskeyRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, w.name AS confirmed_by, b.revoked_at AS confirmer_revoked_at \
         FROM passkey k LEFT JOIN passkey_confirmation c ON c.passkey_id = k.id \
         LEFT JOIN passkey b ON b.id = c.by_passkey LEFT JOIN person w ON w.id = b.person_id WHERE k.id = $1"
    );
    let row: Option<RawPasskey> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(connection).await?;
    row.map(to_passkey).transpose()
}

/// These passkeys and all that confirmed them, revoked or not, for
/// [`engine::gate::signature::check`].
pub async fn load_with_confirmers(
    connection: &mut PgConnection,
    ids: &BTreeSet<PasskeyId>,
) -> Result<BTreeMap<PasskeyId, Passkey>, StoreError> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let sql = format!(
        "WITH RECURSIVE chain AS ( \
           SELECT unnest($1::uuid[]) AS id \
           UNION \
           SELECT c.by_passkey FROM chain h JOIN passkey_confirmation c ON c.passkey_id = h.id WHERE c.by_passkey IS NOT NULL) \
         SELECT {COLUMNS}, NULL::text AS confirmed_by, NULL::timestamptz AS confirmer_revoked_at \
         FROM chain h JOIN passkey k ON k.id = h.id LEFT JOIN passkey_confirmation c ON c.passkey_id = k.id"
    );
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows: Vec<RawPasskey> =
        sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(ids).fetch_all(connection).await?;
    rows.into_iter().map(|raw| to_passkey(raw).map(|row| (row.passkey.id, row.passkey))).collect()
}

/// The names of these passkeys, without revoked ones.
pub async fn names(
    connection: &mut PgConnection,
    ids: &BTreeSet<PasskeyId>,
) -> Result<BTreeMap<PasskeyId, String>, StoreError> {
    let rows: Vec<(Uuid, String)> = passkey::Entity::find()
        .filter(passkey::Column::Id.is_in(ids.iter().map(|id| id.0)))
        .filter(passkey::Column::RevokedAt.is_null())
        .select_only()
        .columns([passkey::Column::Id, passkey::Column::Name])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(rows.into_iter().map(|(id, name)| (PasskeyId(id), name)).collect())
}

/// The people in a list who have a confirmed passkey.
pub async fn able(
    connection: &mut PgConnection,
    people: &[PersonId],
) -> Result<BTreeSet<PersonId>, StoreError> {
    let confirmed = join(passkey::Column::Id, passkey_confirmation::Column::PasskeyId);
    let able: Vec<Uuid> = passkey::Entity::find()
        .join(JoinType::InnerJoin, confirmed)
        .filter(passkey::Column::PersonId.eq_any(people.iter().map(|person| person.0)))
        .filter(passkey::Column::RevokedAt.is_null())
        .select_only()
        .column(passkey::Column::PersonId)
        .distinct()
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(able.into_iter().map(PersonId).collect())
}

/// Confirms a passkey as the owner of the database. `false`: it is already confirmed.
pub async fn confirm_as_owner(
    connection: &mut PgConnection,
    id: PasskeyId,
) -> Result<bool, StoreError> {
    let row = passkey_confirmation::ActiveModel { passkey_id: Set(id.0), ..Default::default() };
    insert_confirmation(connection, row).await
}

/// Confirms a passkey with another one. `false`: it is already confirmed.
pub async fn confirm(
    connection: &mut PgConnection,
    id: PasskeyId,
    by: PasskeyId,
    nonce: Nonce,
    assertion: &Assertion,
) -> Result<bool, StoreError> {
    let row = passkey_confirmation::ActiveModel {
        passkey_id: Set(id.0),
        by_passkey: Set(Some(by.0)),
        nonce: Set(Some(nonce.0.to_vec())),
        client_data: Set(Some(assertion.client_data.clone())),
        authenticator_data: Set(Some(assertion.authenticator_data.clone())),
        signature: Set(Some(assertion.signature.clone())),
        ..Default::default()
    };
    insert_confirmation(connection, row).await
}

async fn insert_confirmation(
    connection: &mut PgConnection,
    row: passkey_confirmation::ActiveModel,
) -> Result<bool, StoreError> {
    let insert = passkey_confirmation::Entity::insert(row)
        .on_conflict(OnConflict::new().do_nothing().to_owned());
    Ok(insert.exec_without_returning(&orm(connection)).await? > 0)
}

/// Revokes a passkey. `false`: it does not exist or was already revoked.
pub async fn revoke(
    connection: &mut PgConnection,
    id: PasskeyId,
    by: PersonId,
) -> Result<bool, StoreError> {
    let revoked = passkey::Entity::update_many()
        .col_expr(passkey::Column::RevokedAt, Expr::current_timestamp())
        .col_expr(passkey::Column::RevokedBy, Expr::value(by.0))
        .filter(passkey::Column::Id.eq(id.0))
        .filter(passkey::Column::RevokedAt.is_null())
        .exec(&orm(connection))
        .await?;
    Ok(revoked.rows_affected > 0)
}

/// Records a use with the authenticator's counter. `false`: the counter did not rise, so the
/// passkey may have been copied.
pub async fn record_use(
    connection: &mut PgConnection,
    id: PasskeyId,
    counter: u32,
) -> Result<bool, StoreError> {
    let counter = i64::from(counter);
    // Authenticators without a counter report 0.
    let is_plausible = match counter {
        0 => passkey::Column::Counter.eq(0),
        _ => passkey::Column::Counter.lt(counter),
    };
    let recorded = passkey::Entity::update_many()
        .col_expr(passkey::Column::LastUsedAt, Expr::current_timestamp())
        .col_expr(passkey::Column::Counter, Expr::value(counter))
        .filter(passkey::Column::Id.eq(id.0))
        .filter(is_plausible)
        .exec(&orm(connection))
        .await?;
    Ok(recorded.rows_affected > 0)
}

/// Stores a WebAuthn registration or sign-in in progress in a session. It replaces an earlier one.
pub async fn begin_ceremony(
    connection: &mut PgConnection,
    session_id: Uuid,
    state: &Value,
) -> Result<(), StoreError> {
    session::Entity::update_many()
        .col_expr(session::Column::Ceremony, Expr::value(state.clone()))
        .filter(session::Column::Id.eq(session_id))
        .exec(&orm(connection))
        .await?;
    Ok(())
}

/// Takes the registration or sign-in in progress out of a session. It can be taken only once.
pub async fn consume_ceremony(
    connection: &mut PgConnection,
    session: Uuid,
) -> Result<Option<Value>, StoreError> {
    let sql = "UPDATE session s SET ceremony = NULL FROM (SELECT id, ceremony FROM session WHERE id = $1 FOR UPDATE) b \
               WHERE s.id = b.id RETURNING b.ceremony";
    let state: Option<Option<Value>> =
        sqlx::query_scalar(sql).bind(session).fetch_optional(connection).await?;
    Ok(state.flatten())
}

/// The digest of the parts of a passkey that never change.
///
/// # Errors
///
/// The passkey cannot be written as JSON.
pub fn digest(row: &PasskeyRow) -> Result<Hash, StoreError> {
    row.passkey.digest().map_err(|error| StoreError::corrupt("passkey.credential", error))
}
