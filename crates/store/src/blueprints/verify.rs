//! Checks that the rows match the documents.
//!
//! Documents are the source of truth for intent, and rows are their projection. This module
//! rebuilds the projection from the current root and compares it with every row in force. It also
//! recounts `pending`. It changes nothing: a difference is a bug in Gantry or a manual change of
//! the database, and needs an investigation.
//!
//! It also checks approvals: each blueprint has the approvals that its policy required, and the
//! audit contains equal entries for the rows that prove it.
//!
//! It does not compare what it cannot rebuild: progress (states, outputs, generations) and history
//! (removed nodes, deployments and noderoles with their removal steps, unused concurrency groups).

use std::collections::BTreeMap;

use engine::blueprint::Projection;
use engine::cluster::Blueprint;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::commit::{inactive_jigs, intent_columns};
use crate::StoreError;

/// The maximum number of discrepancies in a report.
const TOLD: usize = 100;

/// A row that does not match the documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Discrepancy {
    /// Kind and key, such as `step 0198...`.
    pub what: String,
    /// The value from the documents. `None`: the row should not exist.
    pub meant: Option<Value>,
    /// The value in the row. `None`: the row is missing.
    pub found: Option<Value>,
}

/// Rows that do not match the whole blueprint, at most 100. `projection` is its difference to an
/// empty blueprint.
pub async fn discrepancies(
    on: &mut PgConnection,
    blueprint: &Blueprint,
    projection: &Projection,
) -> Result<Vec<Discrepancy>, StoreError> {
    let mut found = Vec::new();
    compare(
        "deployment",
        expected_deployments(blueprint),
        rows(on, DEPLOYMENT_QUERY).await?,
        &mut found,
    );
    compare("node", expected_nodes(blueprint), node_rows(on, blueprint).await?, &mut found);
    compare("noderole", expected_noderoles(blueprint), rows(on, NODEROLE_QUERY).await?, &mut found);
    compare("step", expected_steps(projection), rows(on, STEP_QUERY).await?, &mut found);
    let jigs: Vec<(String, bool)> =
        sqlx::query_as("SELECT name, active FROM jig WHERE active = (name = ANY($1))")
            .bind(inactive_jigs(blueprint))
            .fetch_all(&mut *on)
            .await?;
    found.extend(jigs.into_iter().map(|(name, active)| Discrepancy {
        what: format!("jig {name}"),
        meant: Some(json!({"active": !active})),
        found: Some(json!({"active": active})),
    }));
    let wrong_counts: Vec<(Uuid, Value)> =
        sqlx::query_as(WRONG_COUNT_QUERY).fetch_all(&mut *on).await?;
    compare("counts of step", BTreeMap::new(), wrong_counts.into_iter().collect(), &mut found);
    found.truncate(TOLD);
    Ok(found)
}

/// Finds blueprints without the approvals that their policies required, rows without an equal audit
/// entry, and audit entries without their row. At most 100.
pub async fn unproven_rows(on: &mut PgConnection) -> Result<Vec<Discrepancy>, StoreError> {
    let mut found: Vec<Discrepancy> = Vec::new();
    let missing: Vec<(i64, i32, i64)> =
        sqlx::query_as(MISSING_APPROVALS).bind(TOLD as i64).fetch_all(&mut *on).await?;
    found.extend(missing.into_iter().map(|(number, required, there)| Discrepancy {
        what: format!("approvals of blueprint {number}"),
        meant: Some(json!(required)),
        found: Some(json!(there)),
    }));
    let rows: Vec<(String, Value)> =
        sqlx::query_as(ROWS_WITHOUT_ENTRY).bind(TOLD as i64).fetch_all(&mut *on).await?;
    found.extend(rows.into_iter().map(|(what, row)| Discrepancy {
        what: format!("{what}: the audit has no entry with these values"),
        meant: None,
        found: Some(row),
    }));
    let entries: Vec<(String, Value)> =
        sqlx::query_as(ENTRIES_WITHOUT_ROW).bind(TOLD as i64).fetch_all(&mut *on).await?;
    found.extend(entries.into_iter().map(|(what, row)| Discrepancy {
        what: format!("{what}: the row is missing, but the audit has an entry"),
        meant: Some(row),
        found: None,
    }));
    found.truncate(TOLD);
    Ok(found)
}

/// Blueprints whose reviews have fewer audited approvals by non-authors than the policy required.
const MISSING_APPROVALS: &str = include_str!("statements/missing_approvals.sql");

/// Rows without an audit entry, or with different values.
const ROWS_WITHOUT_ENTRY: &str = include_str!("statements/rows_without_entry.sql");

/// Audit entries whose row is missing.
const ENTRIES_WITHOUT_ROW: &str = include_str!("statements/entries_without_row.sql");

type Rows = BTreeMap<Uuid, Value>;

async fn rows(on: &mut PgConnection, query: &'static str) -> Result<Rows, StoreError> {
    let rows: Vec<(Uuid, Value)> = sqlx::query_as(query).fetch_all(on).await?;
    Ok(rows.into_iter().collect())
}

fn compare(what: &str, meant: Rows, mut there: Rows, found: &mut Vec<Discrepancy>) {
    for (id, meant) in meant {
        let row = there.remove(&id);
        if row.as_ref() != Some(&meant) {
            found.push(Discrepancy {
                what: format!("{what} {id}"),
                meant: Some(meant),
                found: row,
            });
        }
    }
    let unexpected = there.into_iter().map(|(id, row)| Discrepancy {
        what: format!("{what} {id}"),
        meant: None,
        found: Some(row),
    });
    found.extend(unexpected.take(TOLD));
}

const DEPLOYMENT_QUERY: &str = "SELECT id, jsonb_build_object('parent', parent, 'name', name, 'system', system, 'phantom', phantom, \
    'doc', encode(doc, 'hex')) FROM deployment WHERE removed_in IS NULL";

fn expected_deployments(blueprint: &Blueprint) -> Rows {
    let row = |stored: &engine::cluster::document::Stored<engine::cluster::DeploymentDoc>| {
        let doc = &stored.doc;
        json!({"parent": doc.parent, "name": doc.name, "system": doc.parent.is_none(), "phantom": doc.phantom,
               "doc": stored.hash.to_string()})
    };
    blueprint.deployments.iter().map(|(id, stored)| (id.0, row(stored))).collect()
}

const NODE_QUERY: &str = "SELECT id, jsonb_build_object('fqdn', fqdn, 'deployment', deployment_id, 'phantom', phantom, \
    'doc', encode(doc, 'hex'), 'connection', node_connection(transport, address, connection), 'hints', hints) \
    FROM node WHERE removed_in IS NULL AND doc IS NOT NULL";

/// Older documents do not contain the connection, so it is not compared for them.
async fn node_rows(on: &mut PgConnection, blueprint: &Blueprint) -> Result<Rows, StoreError> {
    let mut rows = rows(on, NODE_QUERY).await?;
    for (id, stored) in blueprint.nodes.iter().filter(|(_, stored)| stored.doc.connection.is_none())
    {
        if let Some(row) = rows.get_mut(&id.0) {
            (row["connection"], row["hints"]) = (Value::Null, json!(stored.doc.hints));
        }
    }
    Ok(rows)
}

fn expected_nodes(blueprint: &Blueprint) -> Rows {
    let row = |stored: &engine::cluster::document::Stored<engine::cluster::NodeDoc>| {
        let doc = &stored.doc;
        json!({"fqdn": doc.fqdn, "deployment": doc.deployment, "phantom": doc.phantom, "doc": stored.hash.to_string(),
               "connection": doc.connection, "hints": doc.hints})
    };
    blueprint.nodes.iter().map(|(id, stored)| (id.0, row(stored))).collect()
}

const NODEROLE_QUERY: &str = "SELECT id, jsonb_build_object('node', node_id, 'role', role, 'instance', instance, \
    'deployment', deployment_id, 'content', encode(role_hash, 'hex'), 'data', data, 'doc', doc) \
    FROM noderole WHERE disposition = 'in_service'";

fn expected_noderoles(blueprint: &Blueprint) -> Rows {
    let mut rows = Rows::new();
    for (node, stored) in &blueprint.nodes {
        for (key, noderole) in &stored.doc.noderoles {
            let row = json!({"node": node, "role": key.role, "instance": key.instance, "deployment": noderole.deployment,
                "content": noderole.role.to_string(), "data": noderole.data,
                "doc": {"rank": noderole.rank, "reruns": noderole.reruns}});
            rows.insert(key.id(*node).0, row);
        }
    }
    rows
}

const STEP_QUERY: &str = include_str!("statements/projected_steps.sql");

fn expected_steps(projection: &Projection) -> Rows {
    projection.steps.iter().map(|step| (step.id.0, intent_columns(step))).collect()
}

/// Steps whose stored parent counts are wrong, and steps that are wrongly gone or wrongly not gone.
const WRONG_COUNT_QUERY: &str = include_str!("statements/wrong_count_query.sql");
