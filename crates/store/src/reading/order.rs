//! Sorted lists with cursors.
//!
//! The keys of a row are compared as one tuple, all in one direction. So an index serves an order
//! and its reverse.

use api::listing::Key;
use sea_orm::sea_query::{Expr, SimpleExpr};

/// The rows after these keys, for columns in the order of the keys.
pub(super) fn behind(columns: &[&str], descending: bool, keys: &[Key]) -> SimpleExpr {
    let placeholders: Vec<String> = (1..=keys.len()).map(|n| format!("${n}")).collect();
    let sign = if descending { "<" } else { ">" };
    let text = format!("({}) {sign} ({})", columns.join(", "), placeholders.join(", "));
    let values: Vec<sea_orm::Value> = keys.iter().map(value).collect();
    Expr::cust_with_values(text, values)
}

fn value(key: &Key) -> sea_orm::Value {
    match key {
        Key::Text(text) => text.clone().into(),
        Key::Number(number) => (*number).into(),
    }
}

pub(super) fn way(descending: bool) -> sea_orm::Order {
    if descending { sea_orm::Order::Desc } else { sea_orm::Order::Asc }
}

#[cfg(test)]
mod tests {
    use api::listing::{Cursor, NodeSort, Order, RunSort, Sort};
    use sea_orm::{DbBackend, QueryTrait};
    use serde_json::Value;
    use testdb::TestDatabase;

    use super::*;
    use crate::reading::runs::run_query;
    use crate::reading::steps::node_query;
    use crate::reading::{NodeFilter, RunFilter};

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

    fn orders<S: Sort>() -> Vec<Order<S>> {
        Order::<S>::words().map(|word| word.parse().unwrap()).collect()
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
        for order in orders::<NodeSort>() {
            let keys = match order.by {
                NodeSort::Name => vec![Key::from("x5.rack.example.com")],
                NodeSort::State => vec![Key::from(1), Key::from("x5.rack.example.com")],
                NodeSort::Deployment => vec![Key::from("d5"), Key::from("x5.rack.example.com")],
            };
            assert_eq!(Cursor::behind(order, &keys).keys(order).unwrap(), keys);
            for behind in [None, Some(keys.as_slice())] {
                let sql = node_query(NodeFilter { order, behind, ..NodeFilter::default() })
                    .build(DbBackend::Postgres);
                let rows = rows_read_by(&db, &sql.to_string()).await;
                let most = if order.by == NodeSort::Deployment { 2_500.0 } else { 200.0 };
                assert!(rows <= most, "{order} reads {rows} rows: {sql}");
            }
        }
        for order in orders::<RunSort>() {
            let keys = match order.by {
                RunSort::Queued => vec![Key::from(10_000)],
                RunSort::State => vec![Key::from("lost"), Key::from(10_000)],
                RunSort::Durations => vec![Key::from(250_000_000), Key::from(10_000)],
            };
            for behind in [None, Some(keys.as_slice())] {
                let sql = run_query(RunFilter { order, behind, ..RunFilter::default() })
                    .build(DbBackend::Postgres);
                let rows = rows_read_by(&db, &sql.to_string()).await;
                assert!(rows <= 200.0, "{order} reads {rows} rows: {sql}");
                // One of 200 workers, in any order: reads its runs only.
                let worker = Some(uuid::Uuid::from_u128(7));
                let sql = run_query(RunFilter { worker, order, behind, ..RunFilter::default() });
                let sql = sql.build(DbBackend::Postgres);
                let rows = rows_read_by(&db, &sql.to_string()).await;
                assert!(rows <= 200.0, "{order} of a worker reads {rows} rows: {sql}");
            }
        }
    }
}
