//! Importing barclamps: objects are added, nothing that runs changes. The same name and version with other content is refused.

use std::collections::BTreeMap;

use api::catalog::Findings;
use engine::Hash;
use engine::catalog::{Barclamp, Jig};
use engine::ids::{BarclampName, JigName, PersonId};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

use super::hash;
use crate::StoreError;

/// Most versions of barclamps that a catalog has. Who would import one more is refused, so that those who read them all read them all.
pub const MAX_BARCLAMPS: i64 = 10_000;

/// How far a database may be beyond that in which imports of the same moment did not wait for each other yet, and each counted for itself.
const OVERSHOOT: i64 = 1_000;

/// An imported version of a barclamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarclampRow {
    /// Which.
    pub name: BarclampName,
    /// Its version.
    pub version: String,
    /// Its content.
    pub hash: Hash,
    /// When it came.
    pub imported_at: OffsetDateTime,
    /// Who imported it; None: it is shipped.
    pub by: Option<String>,
}

/// What an import did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    /// It is new.
    Added,
    /// The same content was there.
    Known,
    /// Other content has this name and version.
    OtherContent(Hash),
    /// There are [`MAX_BARCLAMPS`] already.
    Full,
}

/// Lets one import through at a time, until its transaction ends: two that look at the same catalog would each be linked as if the other was
/// not there. It is the first thing that an import takes, and it takes neither CLAIM nor APPLY.
pub async fn lock_imports(on: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(migrations::IMPORT_LOCK)
        .execute(on)
        .await?;
    Ok(())
}

/// Adds a version of a barclamp and its jigs. Its objects are there already: those of an import are put once, for all its barclamps
/// ([`super::put_objects`]).
pub async fn import_barclamp(
    on: &mut PgConnection,
    barclamp: &Barclamp,
    content: Hash,
    by: Option<PersonId>,
) -> Result<ImportOutcome, StoreError> {
    let added = sqlx::query(
        "INSERT INTO barclamp (name, version, hash, imported_by) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    )
    .bind(barclamp.name.as_str())
    .bind(&barclamp.version)
    .bind(content.as_bytes().as_slice())
    .bind(by.map(|p| p.0))
    .execute(&mut *on)
    .await?
    .rows_affected();
    let (versions,): (i64,) =
        sqlx::query_as("SELECT count(*) FROM barclamp").fetch_one(&mut *on).await?;
    if added > 0 && versions > MAX_BARCLAMPS {
        return Ok(ImportOutcome::Full);
    }
    if added == 0 {
        let (found,): (Vec<u8>,) =
            sqlx::query_as("SELECT hash FROM barclamp WHERE name = $1 AND version = $2")
                .bind(barclamp.name.as_str())
                .bind(&barclamp.version)
                .fetch_one(&mut *on)
                .await?;
        let found = hash("barclamp", &found)?;
        return Ok(if found == content {
            ImportOutcome::Known
        } else {
            ImportOutcome::OtherContent(found)
        });
    }
    for (name, jig) in &barclamp.jigs {
        ensure_jig(on, name, jig).await?;
    }
    Ok(ImportOutcome::Added)
}

async fn ensure_jig(on: &mut PgConnection, name: &JigName, jig: &Jig) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO jig (name, class, description, client_role) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING",
    )
    .bind(name.as_str())
    .bind(jig.class.as_str())
    .bind(&jig.description)
    .bind(jig.client_role.as_ref().map(|r| r.as_str()))
    .execute(on)
    .await?;
    Ok(())
}

/// All imported versions, by name. Which of two is the newer one their numbers say ([`engine::catalog::version`]), and neither a
/// collation nor the time of their import does.
pub async fn barclamps(on: &mut PgConnection) -> Result<Vec<BarclampRow>, StoreError> {
    type Row = (String, String, Vec<u8>, OffsetDateTime, Option<String>);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT b.name, b.version, b.hash, b.imported_at, p.name FROM barclamp b LEFT JOIN person p ON p.id = b.imported_by \
         ORDER BY b.name, b.version LIMIT $1",
    )
    .bind(MAX_BARCLAMPS + OVERSHOOT + 1)
    .fetch_all(on)
    .await?;
    if i64::try_from(rows.len()).is_ok_and(|count| count > MAX_BARCLAMPS + OVERSHOOT) {
        return Err(StoreError::corrupt(
            "barclamp",
            format!("more than {MAX_BARCLAMPS} versions are there"),
        ));
    }
    let row = |(name, version, h, imported_at, by): Row| {
        let name = BarclampName::parse(&name).map_err(|e| StoreError::corrupt("barclamp", e))?;
        Ok(BarclampRow { name, version, hash: hash("barclamp", &h)?, imported_at, by })
    };
    rows.into_iter().map(row).collect()
}

/// What came of an import, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportRow {
    /// Which.
    pub id: i64,
    /// When.
    pub at: OffsetDateTime,
    /// Who imported; None: Gantry itself.
    pub by: Option<String>,
    /// What came of it.
    pub report: Findings,
}

/// Reports of imports that are kept of each barclamp, the newest.
pub const KEPT_IMPORTS: i64 = 100;
/// Reports that one import forgets at most: one comes, so few go, and more where there are more from before.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// Keeps what came of an import, and forgets what came of old ones: of those that have [`KEPT_IMPORTS`] newer ones of each of their barclamps.
///
/// All reports are ranked in one pass, each of which is read once: an import of a thousand barclamps costs what one of a single one does.
pub async fn keep_import(
    on: &mut PgConnection,
    by: Option<PersonId>,
    report: &Findings,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO import_report (by, report) VALUES ($1, $2)")
        .bind(by.map(|person| person.0))
        .bind(Json(report))
        .execute(&mut *on)
        .await?;
    sqlx::query(
        "DELETE FROM import_report WHERE id IN ( \
           SELECT id FROM ( \
             SELECT i.id, row_number() OVER (PARTITION BY name ORDER BY i.id DESC) AS place \
             FROM import_report i CROSS JOIN LATERAL jsonb_path_query(i.report, '$.barclamps[*].name') AS b (name)) AS placed \
           GROUP BY id HAVING min(place) > $1 ORDER BY id LIMIT $2)",
    )
    .bind(KEPT_IMPORTS)
    .bind(FORGOTTEN_AT_ONCE)
    .execute(on)
    .await?;
    Ok(())
}

/// Imports in the order in which they were, or from the last; behind one, with a version of a barclamp; at most so many.
pub async fn import_reports(
    on: &mut PgConnection,
    barclamp: Option<&str>,
    falling: bool,
    behind: Option<i64>,
    limit: i64,
) -> Result<Vec<ImportRow>, StoreError> {
    type Row = (i64, OffsetDateTime, Option<String>, Json<Findings>);
    let (sign, way) = if falling { ("<", "DESC") } else { (">", "ASC") };
    let query = format!(
        "SELECT i.id, i.at, p.name, i.report FROM import_report i LEFT JOIN person p ON p.id = i.by \
         WHERE ($1::bigint IS NULL OR i.id {sign} $1) AND ($2::jsonb IS NULL OR i.report->'barclamps' @> $2) \
         ORDER BY i.id {way} LIMIT $3"
    );
    let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(behind)
        .bind(barclamp.map(|name| serde_json::json!([{"name": name}])))
        .bind(limit)
        .fetch_all(on)
        .await?;
    let row = |(id, at, by, Json(report)): Row| ImportRow { id, at, by, report };
    Ok(rows.into_iter().map(row).collect())
}

/// Whether each jig is active. There are few.
pub async fn jigs(on: &mut PgConnection) -> Result<BTreeMap<JigName, bool>, StoreError> {
    let rows: Vec<(String, bool)> =
        sqlx::query_as("SELECT name, active FROM jig").fetch_all(on).await?;
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
    async fn of_each_barclamp_the_newest_reports_are_kept() {
        let database = TestDatabase::new().await;
        let mut on = database.app().acquire().await.expect("a connection");
        let of = |names: &[&str]| -> Findings {
            let brought = names.iter().map(
                |name| serde_json::json!({"name": name, "version": "1", "hash": Hash::of_bytes(b"x"), "new": true}),
            );
            serde_json::from_value(serde_json::json!({"barclamps": brought.collect::<Vec<_>>()}))
                .expect("a report")
        };
        keep_import(&mut on, None, &of(&["often", "once"])).await.expect("kept");
        for _ in 0..=KEPT_IMPORTS {
            keep_import(&mut on, None, &of(&["often"])).await.expect("kept");
        }
        let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM import_report ORDER BY id")
            .fetch_all(&mut *on)
            .await
            .expect("reports");
        assert_eq!(ids.len() as i64, KEPT_IMPORTS + 1);
        assert_eq!(
            ids[..2],
            [1, 3],
            "the only one of a barclamp stays, and of the others the oldest went"
        );
    }
}
