//! Imports of barclamps. An import adds objects and changes nothing that runs. A stored name and
//! version with other content is refused.

use std::collections::BTreeMap;

use engine::Hash;
use engine::catalog::{Barclamp, Jig};
use engine::ids::{BarclampName, JigName, PersonId};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ColumnTrait, EntityTrait, JoinType, Order, PaginatorTrait as _, QueryFilter, QueryOrder,
    QuerySelect, Set,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::connect::hash;
use crate::connect::orm;
use crate::entity::{barclamp, import_report, jig, join, person};

/// The maximum number of barclamp versions in a catalog. Further imports are refused, so that
/// readers can load all of them.
pub const MAX_BARCLAMPS: u64 = 10_000;

/// An imported version of a barclamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarclampRow {
    pub name: BarclampName,
    pub version: String,
    /// The hash of its content.
    pub hash: Hash,
    pub imported_at: OffsetDateTime,
    /// The name of the importer. `None`: shipped with Gantry.
    pub by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    Added,
    /// The same content already exists.
    Unchanged,
    /// This name and version exist with other content.
    ContentDiffers(Hash),
    /// The catalog already has [`MAX_BARCLAMPS`] versions.
    Full,
}

/// Serializes imports until the transaction ends. Otherwise two imports could each be linked
/// against a catalog without the other. It is the first lock of an import, which takes neither
/// CLAIM nor APPLY.
pub async fn lock_imports(on: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::IMPORT_LOCK)
        .execute(on)
        .await?;
    Ok(())
}

/// Adds a version of a barclamp and its jigs. The caller has stored the objects, once for all
/// barclamps of the import ([`super::ensure_objects`]).
pub async fn import_barclamp(
    on: &mut PgConnection,
    barclamp: &Barclamp,
    content_hash: Hash,
    by: Option<PersonId>,
) -> Result<ImportOutcome, StoreError> {
    let row = barclamp::ActiveModel {
        name: Set(barclamp.name.as_str().to_owned()),
        version: Set(barclamp.version.clone()),
        hash: Set(content_hash.as_bytes().to_vec()),
        imported_by: Set(by.map(|person| person.0)),
        ..Default::default()
    };
    let insert =
        barclamp::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
    let added = insert.exec_without_returning(&orm(on)).await?;
    let versions = barclamp::Entity::find().count(&orm(on)).await?;
    if added > 0 && versions > MAX_BARCLAMPS {
        return Ok(ImportOutcome::Full);
    }
    if added == 0 {
        let key = (barclamp.name.as_str().to_owned(), barclamp.version.clone());
        let query = barclamp::Entity::find_by_id(key).select_only();
        let query = query.column(barclamp::Column::Hash).into_tuple();
        let stored: Option<Vec<u8>> = query.one(&orm(on)).await?;
        let stored = hash("barclamp", &stored.unwrap_or_default())?;
        return Ok(if stored == content_hash {
            ImportOutcome::Unchanged
        } else {
            ImportOutcome::ContentDiffers(stored)
        });
    }
    for (name, jig) in &barclamp.jigs {
        ensure_jig(on, name, jig).await?;
    }
    Ok(ImportOutcome::Added)
}

async fn ensure_jig(on: &mut PgConnection, name: &JigName, jig: &Jig) -> Result<(), StoreError> {
    let row = jig::ActiveModel {
        name: Set(name.as_str().to_owned()),
        class: Set(jig.class.as_str().to_owned()),
        description: Set(jig.description.clone()),
        client_role: Set(jig.client_role.as_ref().map(|role| role.as_str().to_owned())),
        ..Default::default()
    };
    let insert = jig::Entity::insert(row).on_conflict_do_nothing_on([jig::Column::Name]);
    insert.exec_without_returning(&orm(on)).await?;
    Ok(())
}

/// All imported versions, by name. To compare versions, use [`engine::catalog::version`], not the
/// collation or the time of import.
pub async fn barclamps(on: &mut PgConnection) -> Result<Vec<BarclampRow>, StoreError> {
    type Row = (String, String, Vec<u8>, OffsetDateTime, Option<String>);
    let rows: Vec<Row> = barclamp::Entity::find()
        .join(JoinType::LeftJoin, join(barclamp::Column::ImportedBy, person::Column::Id))
        .order_by_asc(barclamp::Column::Name)
        .order_by_asc(barclamp::Column::Version)
        .limit(MAX_BARCLAMPS + 1)
        .select_only()
        .columns([barclamp::Column::Name, barclamp::Column::Version])
        .columns([barclamp::Column::Hash, barclamp::Column::ImportedAt])
        .column_as(person::Column::Name, "by")
        .into_tuple()
        .all(&orm(on))
        .await?;
    if rows.len() as u64 > MAX_BARCLAMPS {
        return Err(StoreError::corrupt(
            "barclamp",
            format!("there are more than {MAX_BARCLAMPS} versions"),
        ));
    }
    let row = |(name, version, h, imported_at, by): Row| {
        let name = BarclampName::parse(&name).map_err(|e| StoreError::corrupt("barclamp", e))?;
        Ok(BarclampRow { name, version, hash: hash("barclamp", &h)?, imported_at, by })
    };
    rows.into_iter().map(row).collect()
}

/// The report of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportRow<R> {
    pub id: i64,
    pub at: OffsetDateTime,
    /// The name of the importer. `None`: Gantry itself.
    pub by: Option<String>,
    pub report: R,
}

/// The number of reports that are stored per barclamp.
pub const MAX_STORED_REPORTS: i64 = 100;
/// The maximum number of reports that one import deletes. Each import adds one, so a few are
/// enough, and a backlog shrinks step by step.
const REPORT_DELETE_BATCH: i64 = 100;

/// Stores the report of an import. Deletes reports for which each of their barclamps has
/// [`MAX_STORED_REPORTS`] newer ones.
///
/// One pass ranks all reports and reads each once, so the cost does not depend on the number of
/// imported barclamps.
pub async fn append_import_report(
    on: &mut PgConnection,
    by: Option<PersonId>,
    report: &impl Serialize,
) -> Result<(), StoreError> {
    let report =
        serde_json::to_value(report).map_err(|e| StoreError::corrupt("import_report", e))?;
    let row = import_report::ActiveModel {
        by: Set(by.map(|person| person.0)),
        report: Set(report),
        ..Default::default()
    };
    import_report::Entity::insert(row).exec_without_returning(&orm(on)).await?;
    sqlx::query(
        "DELETE FROM import_report WHERE id IN ( \
           SELECT id FROM ( \
             SELECT i.id, row_number() OVER (PARTITION BY name ORDER BY i.id DESC) AS place \
             FROM import_report i CROSS JOIN LATERAL jsonb_path_query(i.report, '$.barclamps[*].name') AS b (name)) AS placed \
           GROUP BY id HAVING min(place) > $1 ORDER BY id LIMIT $2)",
    )
    .bind(MAX_STORED_REPORTS)
    .bind(REPORT_DELETE_BATCH)
    .execute(on)
    .await?;
    Ok(())
}

/// Reports of imports, oldest or newest first, optionally of one barclamp and after a cursor.
pub async fn import_reports<R: DeserializeOwned>(
    on: &mut PgConnection,
    barclamp: Option<&str>,
    descending: bool,
    after: Option<i64>,
    limit: u64,
) -> Result<Vec<ImportRow<R>>, StoreError> {
    let id = import_report::Column::Id;
    let direction = if descending { Order::Desc } else { Order::Asc };
    let mut query = import_report::Entity::find()
        .join(JoinType::LeftJoin, join(import_report::Column::By, person::Column::Id))
        .order_by(id, direction)
        .limit(limit)
        .select_only()
        .columns([id, import_report::Column::At])
        .column(person::Column::Name)
        .column(import_report::Column::Report);
    if let Some(after) = after {
        query = query.filter(if descending { id.lt(after) } else { id.gt(after) });
    }
    if let Some(name) = barclamp {
        let names_it = "import_report.report -> 'barclamps' @> $1";
        let value = serde_json::json!([{"name": name}]);
        query = query.filter(Expr::cust_with_values(names_it, [value]));
    }
    let rows: Vec<(i64, OffsetDateTime, Option<String>, Value)> =
        query.into_tuple().all(&orm(on)).await?;
    let row = |(id, at, by, report)| {
        let report =
            serde_json::from_value(report).map_err(|e| StoreError::corrupt("import_report", e))?;
        Ok(ImportRow { id, at, by, report })
    };
    rows.into_iter().map(row).collect()
}

/// All jigs, and whether each is active. There are few.
pub async fn jigs(on: &mut PgConnection) -> Result<BTreeMap<JigName, bool>, StoreError> {
    let query = jig::Entity::find().select_only().columns([jig::Column::Name, jig::Column::Active]);
    let rows: Vec<(String, bool)> = query.into_tuple().all(&orm(on)).await?;
    let jig = |(name, active): (String, bool)| {
        Ok((JigName::parse(&name).map_err(|e| StoreError::corrupt("jig", e))?, active))
    };
    rows.into_iter().map(jig).collect()
}

#[cfg(test)]
mod tests {
    use testdb::TestDatabase;

    use super::*;

    #[tokio::test]
    async fn newest_reports_per_barclamp_are_stored() {
        let database = TestDatabase::new().await;
        let mut on = database.app().acquire().await.expect("a connection");
        let of = |names: &[&str]| {
            let brought = names.iter().map(
                |name| serde_json::json!({"name": name, "version": "1", "hash": Hash::of_bytes(b"x"), "new": true}),
            );
            serde_json::json!({"barclamps": brought.collect::<Vec<_>>()})
        };
        append_import_report(&mut on, None, &of(&["often", "once"]))
            .await
            .expect("a stored report");
        for _ in 0..=MAX_STORED_REPORTS {
            append_import_report(&mut on, None, &of(&["often"])).await.expect("a stored report");
        }
        let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM import_report ORDER BY id")
            .fetch_all(&mut *on)
            .await
            .expect("reports");
        assert_eq!(ids.len() as i64, MAX_STORED_REPORTS + 1);
        assert_eq!(
            ids[..2],
            [1, 3],
            "the oldest versions are deleted, except the only version of a barclamp"
        );
    }
}
