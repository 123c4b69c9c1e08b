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
use engine::blueprint::projection::StepIntent;
use engine::cluster::Blueprint;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::commit::{concurrency_mode_name, inactive_jigs};
use crate::StoreError;
use crate::entity::{Columns, NoderoleIntent, step_columns};

/// The maximum number of discrepancies in a report.
const MAX_REPORTED: usize = 100;

/// A row that does not match the documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Discrepancy {
    /// Kind and key, such as `step 0198...`.
    pub row: String,
    /// The value from the documents. `None`: the row should not exist.
    pub expected: Option<Value>,
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
    compare("node", expected_nodes(blueprint), rows(on, NODE_QUERY).await?, &mut found);
    found.extend(wrong_noderoles(on, blueprint).await?);
    found.extend(wrong_steps(on, projection).await?);
    let jigs: Vec<(String, bool)> =
        sqlx::query_as("SELECT name, active FROM jig WHERE active = (name = ANY($1))")
            .bind(inactive_jigs(blueprint))
            .fetch_all(&mut *on)
            .await?;
    found.extend(jigs.into_iter().map(|(name, active)| Discrepancy {
        row: format!("jig {name}"),
        expected: Some(json!({"active": !active})),
        found: Some(json!({"active": active})),
    }));
    let wrong_counts: Vec<(Uuid, Value)> =
        sqlx::query_as(WRONG_COUNT_QUERY).fetch_all(&mut *on).await?;
    compare("counts of step", BTreeMap::new(), wrong_counts.into_iter().collect(), &mut found);
    found.truncate(MAX_REPORTED);
    Ok(found)
}

/// Finds blueprints without the approvals that their policies required, rows without an equal audit
/// entry, and audit entries without their row. At most 100.
pub async fn unproven_rows(on: &mut PgConnection) -> Result<Vec<Discrepancy>, StoreError> {
    let mut found: Vec<Discrepancy> = Vec::new();
    let missing: Vec<(i64, i32, i64)> =
        sqlx::query_as(MISSING_APPROVALS).bind(MAX_REPORTED as i64).fetch_all(&mut *on).await?;
    found.extend(missing.into_iter().map(|(number, required, counted)| Discrepancy {
        row: format!("approvals of blueprint {number}"),
        expected: Some(json!(required)),
        found: Some(json!(counted)),
    }));
    let rows: Vec<(String, Value)> =
        sqlx::query_as(ROWS_WITHOUT_ENTRY).bind(MAX_REPORTED as i64).fetch_all(&mut *on).await?;
    found.extend(rows.into_iter().map(|(row_name, row)| Discrepancy {
        row: format!("{row_name}: the audit has no entry with these values"),
        expected: None,
        found: Some(row),
    }));
    let entries: Vec<(String, Value)> =
        sqlx::query_as(ENTRIES_WITHOUT_ROW).bind(MAX_REPORTED as i64).fetch_all(&mut *on).await?;
    found.extend(entries.into_iter().map(|(row_name, row)| Discrepancy {
        row: format!("{row_name}: the row is missing, but the audit has an entry"),
        expected: Some(row),
        found: None,
    }));
    found.truncate(MAX_REPORTED);
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

fn compare(kind: &str, expected: Rows, mut actual: Rows, found: &mut Vec<Discrepancy>) {
    for (id, expected) in expected {
        let row = actual.remove(&id);
        if row.as_ref() != Some(&expected) {
            found.push(Discrepancy {
                row: format!("{kind} {id}"),
                expected: Some(expected),
                found: row,
            });
        }
    }
    let unexpected = actual.into_iter().map(|(id, row)| Discrepancy {
        row: format!("{kind} {id}"),
        expected: None,
        found: Some(row),
    });
    found.extend(unexpected.take(MAX_REPORTED));
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

fn expected_nodes(blueprint: &Blueprint) -> Rows {
    let row = |stored: &engine::cluster::document::Stored<engine::cluster::NodeDoc>| {
        let doc = &stored.doc;
        json!({"fqdn": doc.fqdn, "deployment": doc.deployment, "phantom": doc.phantom, "doc": stored.hash.to_string(),
               "connection": doc.connection, "hints": doc.hints})
    };
    blueprint.nodes.iter().map(|(id, stored)| (id.0, row(stored))).collect()
}

async fn wrong_noderoles(
    on: &mut PgConnection,
    blueprint: &Blueprint,
) -> Result<Vec<Discrepancy>, StoreError> {
    let noderoles: Vec<NoderoleIntent<'_>> = blueprint
        .nodes
        .iter()
        .flat_map(|(node, stored)| {
            let noderoles = stored.doc.noderoles.iter();
            noderoles.map(|(key, doc)| NoderoleIntent { node: *node, key, doc })
        })
        .collect();
    let columns = NoderoleIntent::columns(&noderoles);
    let names = columns.names("");
    let found = format!("SELECT {names} FROM noderole WHERE disposition = 'in_service'");
    differences(on, "noderole", columns, "", &found).await
}

/// The values of a step that are in other tables: its concurrency group and its edges.
const STEP_RELATIONS: &str = "l.deployment_id, l.name AS concurrency_group, l.max_running, l.mode, \
    coalesce((SELECT jsonb_object_agg(e.parent, e.kind) FROM edge e WHERE e.child = s.id), '{}') AS parents";

async fn wrong_steps(
    on: &mut PgConnection,
    projection: &Projection,
) -> Result<Vec<Discrepancy>, StoreError> {
    let steps: Vec<&StepIntent> = projection.steps.iter().collect();
    let parents = |step: &StepIntent| -> Value {
        let parents = step.parents.iter();
        parents.map(|(parent, kind)| (parent.to_string(), json!(kind.as_str()))).collect()
    };
    let columns = step_columns(&steps)
        .value("max_running", |s| s.concurrency_group.max_running.map(u32::cast_signed))
        .value("mode", |s| concurrency_mode_name(s.concurrency_group.mode))
        .value("parents", |s| parents(s));
    let step_values = columns.names("s.");
    let found = format!(
        "SELECT {step_values}, {STEP_RELATIONS} FROM step s JOIN concurrency_group l ON l.id = s.concurrency_group_id \
         WHERE s.state <> 'gone' AND s.action = 'run'"
    );
    let relations = ", d.deployment_id, d.concurrency_group, d.max_running, d.mode, d.parents";
    differences(on, "step", columns, relations, &found).await
}

/// The rows that differ from the documents. `found` selects the columns and then the relations.
async fn differences<R>(
    on: &mut PgConnection,
    kind: &str,
    columns: Columns<'_, R>,
    relations: &str,
    found: &str,
) -> Result<Vec<Discrepancy>, StoreError> {
    let (values, rows, limit) = (columns.names("d."), columns.rows(), MAX_REPORTED);
    let query = format!(
        "SELECT id, to_jsonb(d) - 'id', to_jsonb(s) - 'id' FROM (SELECT {values}{relations} FROM {rows}) d \
         FULL JOIN ({found}) s USING (id) WHERE d IS DISTINCT FROM s ORDER BY id LIMIT {limit}"
    );
    let rows: Vec<(Uuid, Option<Value>, Option<Value>)> =
        sqlx::query_as_with(sqlx::AssertSqlSafe(query), columns.arguments()?).fetch_all(on).await?;
    let discrepancy =
        |(id, expected, found)| Discrepancy { row: format!("{kind} {id}"), expected, found };
    Ok(rows.into_iter().map(discrepancy).collect())
}

/// Steps whose stored parent counts are wrong, and steps that are wrongly gone or wrongly not gone.
const WRONG_COUNT_QUERY: &str = include_str!("statements/wrong_count_query.sql");
