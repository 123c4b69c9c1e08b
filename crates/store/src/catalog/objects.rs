//! Content-addressed objects. Storing an existing object does nothing, because equal content is the
//! same object.

use std::collections::{BTreeMap, BTreeSet};

use engine::Hash;
use engine::canonical::{Object, ObjectKind};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use sqlx::{PgConnection, PgPool};

use crate::StoreError;
use crate::connect::{hash, orm};
use crate::entity::object;

/// Stores the objects that do not exist yet.
pub async fn ensure_objects(
    connection: &mut PgConnection,
    objects: &[Object],
) -> Result<(), StoreError> {
    let existing = known(connection, objects).await?;
    let new: Vec<&Object> =
        objects.iter().filter(|object| !existing.contains(&object.hash)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let hashes: Vec<&[u8]> = new.iter().map(|o| o.hash.as_bytes().as_slice()).collect();
    let kinds: Vec<&str> = new.iter().map(|o| o.kind.as_str()).collect();
    let bodies: Vec<&[u8]> = new.iter().map(|o| o.body.as_slice()).collect();
    sqlx::query(
        "INSERT INTO object (hash, kind, body) \
         SELECT DISTINCT ON (h) h, k, b FROM unnest($1::bytea[], $2::text[], $3::bytea[]) AS o (h, k, b) \
         ON CONFLICT (hash) DO NOTHING",
    )
    .bind(hashes)
    .bind(kinds)
    .bind(bodies)
    .execute(connection)
    .await?;
    Ok(())
}

/// The objects of these that are already stored. A root with 10,000 nodes has a megabyte. Without
/// this query, a commit would send it again and the database would hash it, although the review
/// already stored it.
async fn known(
    connection: &mut PgConnection,
    objects: &[Object],
) -> Result<BTreeSet<Hash>, StoreError> {
    let query = object::Entity::find()
        .filter(object::Column::Hash.eq_any(objects.iter().map(|object| bytes(&object.hash))))
        .select_only()
        .column(object::Column::Hash);
    let rows: Vec<Vec<u8>> = query.into_tuple().all(&orm(connection)).await?;
    rows.iter().map(|row| hash("object", row)).collect()
}

fn bytes(hash: &Hash) -> Vec<u8> {
    hash.as_bytes().to_vec()
}

/// The bytes of these objects. Unknown hashes are missing in the result.
pub async fn bodies(
    connection: &mut PgConnection,
    hashes: &[Hash],
) -> Result<BTreeMap<Hash, Vec<u8>>, StoreError> {
    let query = object::Entity::find()
        .filter(object::Column::Hash.eq_any(hashes.iter().map(bytes)))
        .select_only()
        .columns([object::Column::Hash, object::Column::Body]);
    let rows: Vec<(Vec<u8>, Vec<u8>)> = query.into_tuple().all(&orm(connection)).await?;
    rows.into_iter().map(|(h, body)| Ok((hash("object", &h)?, body))).collect()
}

/// The beginning of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptHead {
    /// The first bytes.
    pub body: Vec<u8>,
    /// The size of the whole script.
    pub bytes: u64,
}

/// The first `max_bytes` bytes of these scripts. Unknown hashes are missing in the result.
pub async fn script_heads(
    connection: &mut PgConnection,
    hashes: &[Hash],
    max_bytes: i32,
) -> Result<BTreeMap<Hash, ScriptHead>, StoreError> {
    let query = object::Entity::find()
        .filter(object::Column::Kind.eq(ObjectKind::Script.as_str()))
        .filter(object::Column::Hash.eq_any(hashes.iter().map(bytes)))
        .select_only()
        .column(object::Column::Hash)
        .expr(Expr::cust_with_values("substring(object.body FROM 1 FOR $1)", [max_bytes]))
        .expr(Expr::cust("octet_length(object.body)"));
    let rows: Vec<(Vec<u8>, Vec<u8>, i32)> = query.into_tuple().all(&orm(connection)).await?;
    let head = |(h, body, bytes): (Vec<u8>, Vec<u8>, i32)| {
        Ok((hash("object", &h)?, ScriptHead { body, bytes: u64::from(bytes.unsigned_abs()) }))
    };
    rows.into_iter().map(head).collect()
}

/// The catalog's objects (barclamps and roles, not scripts), except the known ones.
pub async fn catalog_objects(
    connection: &mut PgConnection,
    known: &[Hash],
) -> Result<Vec<Object>, StoreError> {
    let query = object::Entity::find()
        .filter(object::Column::Kind.is_in(["barclamp", "role"]))
        .filter(object::Column::Hash.ne_all(known.iter().map(bytes)))
        .select_only()
        .columns([object::Column::Hash, object::Column::Kind, object::Column::Body]);
    let rows: Vec<(Vec<u8>, String, Vec<u8>)> = query.into_tuple().all(&orm(connection)).await?;
    let object = |(h, kind, body): (Vec<u8>, String, Vec<u8>)| {
        let kind = if kind == "role" { ObjectKind::Role } else { ObjectKind::Barclamp };
        Ok(Object { hash: hash("object", &h)?, kind, body })
    };
    rows.into_iter().map(object).collect()
}

/// The bytes of an object.
pub async fn object_body(pool: &PgPool, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
    let mut connection = pool.acquire().await?;
    let query = object::Entity::find_by_id(bytes(&hash)).select_only();
    let query = query.column(object::Column::Body).into_tuple();
    Ok(query.one(&orm(&mut connection)).await?)
}
