//! Sorted lists with cursors.
//!
//! The keys of a row are compared as one tuple, all in one direction. So an index serves an order
//! and its reverse. The last key of every order is unique.

use sea_orm::sea_query::{Expr, SimpleExpr};
use sea_orm::{EntityTrait, Order, QueryFilter, QueryOrder, QuerySelect, Select};
use time::OffsetDateTime;
use uuid::Uuid;

/// A sort key of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Text(String),
    /// A number, or a time in microseconds since 1970.
    Number(i64),
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Key {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// The precision of the database.
impl From<OffsetDateTime> for Key {
    fn from(at: OffsetDateTime) -> Self {
        Self::Number(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX))
    }
}

impl From<Uuid> for Key {
    fn from(id: Uuid) -> Self {
        Self::Text(id.to_string())
    }
}

/// The type of a column in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Text,
    Number,
    Time,
    Id,
}

/// A sort order of a list of `R`.
#[derive(Debug)]
pub struct Sort<R: 'static> {
    /// The columns with their types. An index needs exactly these expressions.
    pub(crate) columns: &'static [(&'static str, ColumnType)],
    /// The keys of a row in these columns.
    pub(crate) keys: fn(&R) -> Vec<Key>,
}

impl<R> Clone for Sort<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Sort<R> {}

impl<R> Sort<R> {
    /// The keys of a row.
    pub fn keys(&self, row: &R) -> Vec<Key> {
        (self.keys)(row)
    }
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page<R: 'static> {
    pub sort: Sort<R>,
    pub descending: bool,
    /// Only rows after these keys.
    pub after: Option<Vec<Key>>,
    /// The maximum number of rows.
    pub limit: u64,
}

impl<R> Page<R> {
    /// The order as a part of a statement.
    pub(crate) fn order_by(&self) -> String {
        let direction = if self.descending { "DESC" } else { "ASC" };
        let columns = self.sort.columns.iter().map(|(name, _)| format!("{name} {direction}"));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// The condition for rows after the keys, which are bound to these placeholders.
    pub(crate) fn compared(&self, placeholders: &[&str]) -> String {
        if self.after.is_none() {
            return "true".to_owned();
        }
        let columns: Vec<&str> = self.sort.columns.iter().map(|(name, _)| *name).collect();
        let Some(placeholders) = placeholders.get(..columns.len()) else {
            return "false".to_owned();
        };
        let sign = if self.descending { "<" } else { ">" };
        format!("({}) {sign} ({})", columns.join(", "), placeholders.join(", "))
    }

    /// Adds the order, the condition and the limit to a query.
    pub(crate) fn of<E: EntityTrait>(&self, query: Select<E>) -> Select<E> {
        let direction = if self.descending { Order::Desc } else { Order::Asc };
        let mut query = query.limit(self.limit);
        for (name, _) in self.sort.columns {
            query = query.order_by(Expr::cust(*name), direction.clone());
        }
        match self.condition() {
            Some(condition) => query.filter(condition),
            None => query,
        }
    }

    /// The condition for rows after the keys. No row is after keys that no row can have.
    fn condition(&self) -> Option<SimpleExpr> {
        let keys = self.after.as_ref()?;
        let values = keys.iter().zip(self.sort.columns).map(|(key, (_, kind))| value(key, *kind));
        let values: Option<Vec<sea_orm::Value>> = values.collect();
        let Some(values) = values.filter(|values| values.len() == self.sort.columns.len()) else {
            return Some(Expr::cust("false"));
        };
        Some(Expr::cust_with_values(self.compared(&["$1", "$2", "$3"]), values))
    }
}

fn value(key: &Key, kind: ColumnType) -> Option<sea_orm::Value> {
    match (key, kind) {
        (Key::Text(text), ColumnType::Text) => Some(text.clone().into()),
        (Key::Text(text), ColumnType::Id) => text.parse::<Uuid>().ok().map(Into::into),
        (Key::Number(number), ColumnType::Number) => Some((*number).into()),
        (Key::Number(micros), ColumnType::Time) => {
            let nanos = i128::from(*micros) * 1_000;
            OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().map(Into::into)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sea_orm::{DbBackend, QueryTrait};
    use serde_json::Value;
    use testdb::TestDatabase;

    use super::*;
    use crate::nodes::{NodeFilter, NodeRow, node_query};
    use crate::runs::{RunFilter, RunRow, run_query};

    /// The largest number of rows that a node of the query plan reads, over all its loops.
    fn most(plan: &Value) -> f64 {
        let number = |name: &str| plan[name].as_f64().unwrap_or_default();
        let parts = plan["Plans"].as_array().into_iter().flatten().map(most);
        let rows_read = number("Actual Rows") + number("Rows Removed by Filter");
        parts.fold(rows_read * number("Actual Loops").max(1.0), f64::max)
    }

    async fn rows_read_by(db: &TestDatabase, sql: &str) -> f64 {
        let explained = sqlx::AssertSqlSafe(format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}"));
        let plan: Value = sqlx::query_scalar(explained).fetch_one(db.owner()).await.unwrap();
        most(&plan[0]["Plan"])
    }

    /// The first page and a later one of these orders and their reverses.
    fn pages<R>(orders: Vec<(Sort<R>, Vec<Key>)>) -> Vec<Page<R>> {
        let page = |(sort, keys): (Sort<R>, Vec<Key>)| {
            [(false, None), (true, None), (false, Some(keys.clone())), (true, Some(keys))]
                .map(|(descending, after)| Page { sort, descending, after, limit: 51 })
        };
        orders.into_iter().flat_map(page).collect()
    }

    /// A page reads about as many of 20,000 rows as it shows, at any position of every order. In
    /// the order by deployment, it reads the rows of one deployment.
    #[tokio::test]
    async fn page_in_any_order_reads_few_rows() {
        let db = TestDatabase::new().await;
        let sqls = [
            // Only the rows that lists read, without their references. No other test uses this
            // database.
            "DO $$ DECLARE c record; BEGIN \
               FOR c IN SELECT conrelid::regclass AS of, conname FROM pg_constraint WHERE contype = 'f' \
                 AND conrelid IN ('deployment'::regclass, 'node'::regclass, 'run'::regclass) \
               LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.of, c.conname); END LOOP; END $$",
            "ALTER TABLE deployment DISABLE TRIGGER USER",
            "ALTER TABLE node DISABLE TRIGGER USER",
            "ALTER TABLE run DISABLE TRIGGER USER",
            "INSERT INTO deployment (id, parent, name, phantom, doc, head_no) \
             SELECT gen_random_uuid(), gen_random_uuid(), 'd' || n, gen_random_uuid(), sha256(''), 0 FROM generate_series(1, 20) n",
            "INSERT INTO node (fqdn, deployment_id, transport, alive, available) \
             SELECT 'x' || n || '.rack.example.com', d.id, 'ssh', n % 2 = 0, n % 3 > 0 FROM generate_series(1, 20000) n \
             JOIN deployment d ON d.name = 'd' || (1 + n % 20)",
            "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, blueprint_number, epoch, content_hash, exclusive, state, outcome, worker_id, \
               started_at, ended_at, lease_until) \
             SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 1, 1, sha256(''), false, 'ended', \
               (ARRAY['succeeded', 'failed', 'lost'])[1 + n % 3], lpad((n % 200)::text, 32, '0')::uuid, now(), now() + make_interval(secs => n % 500), now() \
             FROM generate_series(1, 20000) n",
            "ANALYZE node, run, deployment",
        ];
        let mut owner = db.owner().acquire().await.unwrap();
        for sql in sqls {
            sqlx::query(sql).execute(&mut *owner).await.unwrap();
        }
        drop(owner);
        let node = || Key::from("x5.rack.example.com");
        let orders = vec![
            (NodeRow::BY_NAME, vec![node()]),
            (NodeRow::BY_STATE, vec![Key::from(1), node()]),
            (NodeRow::BY_DEPLOYMENT, vec![Key::from("d5"), node()]),
        ];
        for page in pages(orders) {
            let sql = node_query(NodeFilter::default(), &page).build(DbBackend::Postgres);
            let rows = rows_read_by(&db, &sql.to_string()).await;
            let is_by_deployment = page.sort.columns == NodeRow::BY_DEPLOYMENT.columns;
            let most = if is_by_deployment { 2_500.0 } else { 200.0 };
            assert!(rows <= most, "{page:?} reads {rows} rows: {sql}");
        }
        let orders = vec![
            (RunRow::BY_ID, vec![Key::from(10_000)]),
            (RunRow::BY_STATE, vec![Key::from("lost"), Key::from(10_000)]),
            (RunRow::BY_DURATION, vec![Key::from(250_000_000), Key::from(10_000)]),
        ];
        for page in pages(orders) {
            let sql = run_query(RunFilter::default(), &page).build(DbBackend::Postgres);
            let rows = rows_read_by(&db, &sql.to_string()).await;
            assert!(rows <= 200.0, "{page:?} reads {rows} rows: {sql}");
            // One of 200 workers, in any order: reads its runs only.
            let worker = Some(Uuid::from_u128(7));
            let sql = run_query(RunFilter { worker, ..RunFilter::default() }, &page);
            let sql = sql.build(DbBackend::Postgres);
            let rows = rows_read_by(&db, &sql.to_string()).await;
            assert!(rows <= 200.0, "{page:?} of a worker reads {rows} rows: {sql}");
        }
    }

    /// Keys of another type or number come from no row of the list.
    #[test]
    fn invalid_keys_match_no_row() {
        let page = |after| Page { sort: NodeRow::BY_STATE, descending: false, after, limit: 1 };
        let sql = |after| {
            let query = node_query(NodeFilter::default(), &page(after));
            query.build(DbBackend::Postgres).to_string()
        };
        assert!(!sql(None).contains("(false)"), "{}", sql(None));
        for keys in [vec![], vec![Key::from(1)], vec![Key::from("1"), Key::from("x")]] {
            let sql = sql(Some(keys));
            assert!(sql.contains("WHERE (false) AND"), "{sql}");
        }
    }
}
