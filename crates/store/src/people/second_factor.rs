//! Second factors of people: authenticator apps (TOTP) and passkeys.
//!
//! A secret is read only to verify a code, and to show the set-up again to the session that began
//! it. The database decides whether a session lacks its factor, and accepts each time step once.
//! Times are the database's, so all servers agree on the current code.

use std::fmt;

use engine::ids::{PasskeyId, PersonId};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect, Select, Set};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{passkey, totp};

/// The length of a secret in bytes.
pub const SECRET_BYTES: usize = 20;

/// A secret with the database's time. `Debug` omits the secret, so that it never appears in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Totp {
    pub secret: [u8; SECRET_BYTES],
    /// Seconds since 1970.
    pub now: u64,
}

impl fmt::Debug for Totp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totp").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The second factors of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct SecondFactors {
    /// Whether they have a confirmed authenticator app.
    pub totp: bool,
    /// The number of passkeys that are not revoked.
    pub passkeys: i64,
    /// Whether the policy in force requires a second factor.
    pub demanded: bool,
}

pub async fn second_factors(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<SecondFactors, StoreError> {
    let sql = "SELECT EXISTS (SELECT FROM totp t WHERE t.person_id = $1 AND t.confirmed_at IS NOT NULL) AS totp,
                      (SELECT count(*) FROM passkey k WHERE k.person_id = $1 AND k.revoked_at IS NULL) AS passkeys,
                      policy_demands_factor() AS demanded";
    Ok(sqlx::query_as(sql).bind(person.0).fetch_one(connection).await?)
}

/// The confirmed authenticator app of a person.
pub async fn totp(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<Option<Totp>, StoreError> {
    let query = totp::Entity::find_by_id(person.0).filter(totp::Column::ConfirmedAt.is_not_null());
    read(connection, query).await
}

/// The authenticator app that this session set up and has not confirmed yet.
pub async fn set_up(
    connection: &mut PgConnection,
    person: PersonId,
    session: Uuid,
) -> Result<Option<Totp>, StoreError> {
    let query = totp::Entity::find_by_id(person.0)
        .filter(totp::Column::SessionId.eq(session))
        .filter(totp::Column::ConfirmedAt.is_null())
        .filter(Expr::cust("totp.created_at > now() - totp_setup_time()"));
    read(connection, query).await
}

async fn read(
    connection: &mut PgConnection,
    query: Select<totp::Entity>,
) -> Result<Option<Totp>, StoreError> {
    let query = query
        .select_only()
        .column(totp::Column::Secret)
        .expr(Expr::cust("floor(extract(epoch FROM clock_timestamp()))::bigint"));
    let row: Option<(Vec<u8>, i64)> = query.into_tuple().one(&orm(connection)).await?;
    let totp = |(secret, now): (Vec<u8>, i64)| {
        let secret = secret
            .try_into()
            .map_err(|_| StoreError::corrupt("totp.secret", "a secret must have 20 bytes"))?;
        Ok(Totp { secret, now: u64::try_from(now).unwrap_or_default() })
    };
    row.map(totp).transpose()
}

/// Begins the set-up of an authenticator app, replacing an unconfirmed one. `false`: the person has
/// a confirmed one.
pub async fn begin_totp(
    connection: &mut PgConnection,
    person: PersonId,
    secret: &[u8; SECRET_BYTES],
) -> Result<bool, StoreError> {
    totp::Entity::delete_many()
        .filter(totp::Column::PersonId.eq(person.0))
        .filter(totp::Column::ConfirmedAt.is_null())
        .exec(&orm(connection))
        .await?;
    let row = totp::ActiveModel {
        person_id: Set(person.0),
        secret: Set(secret.to_vec()),
        ..Default::default()
    };
    let insert = totp::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
    Ok(insert.exec_without_returning(&orm(connection)).await? > 0)
}

/// Confirms the set-up of this transaction's session with the time step of a verified code.
/// `false`: there is no set-up.
pub async fn confirm_totp(
    connection: &mut PgConnection,
    time_step: i64,
) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar("SELECT confirm_totp($1)").bind(time_step).fetch_one(connection).await?)
}

/// Accepts the time step of a verified code. `false`: the person has no authenticator app.
///
/// # Errors
///
/// The code was used before, or the database fails.
pub async fn accept_totp(
    connection: &mut PgConnection,
    time_step: i64,
) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar("SELECT present_totp($1)").bind(time_step).fetch_one(connection).await?)
}

/// Accepts a passkey whose signature was verified. `false`: it belongs to another person or is
/// revoked.
pub async fn present_passkey(
    connection: &mut PgConnection,
    passkey: PasskeyId,
) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar("SELECT present_passkey($1)")
        .bind(passkey.0)
        .fetch_one(connection)
        .await?)
}

/// Removes a person's authenticator app. `false`: they have none.
pub async fn remove_totp(
    connection: &mut PgConnection,
    person: PersonId,
) -> Result<bool, StoreError> {
    let removed = totp::Entity::delete_by_id(person.0).exec(&orm(connection)).await?;
    Ok(removed.rows_affected > 0)
}

/// Revokes all passkeys of a person and returns their number. `by` is `None` for the owner of the
/// database.
pub async fn revoke_passkeys(
    connection: &mut PgConnection,
    person: PersonId,
    by: Option<PersonId>,
) -> Result<u64, StoreError> {
    let revoked = passkey::Entity::update_many()
        .col_expr(passkey::Column::RevokedAt, Expr::current_timestamp())
        .col_expr(passkey::Column::RevokedBy, Expr::value(by.map(|by| by.0)))
        .filter(passkey::Column::PersonId.eq(person.0))
        .filter(passkey::Column::RevokedAt.is_null())
        .exec(&orm(connection))
        .await?;
    Ok(revoked.rows_affected)
}
