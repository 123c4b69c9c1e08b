//! Facts about nodes, by source.
//!
//! Each source has one row with its latest facts. So a machine's own report never replaces the
//! facts that a role found. `node.facts` merges all of them for queries that do not depend on the
//! source. At the top level, a role's key takes precedence over the machine's. Both change
//! together, under the lock of the node's row.

use engine::ids::{NodeId, RunId, StepId};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::events::{Event, node_event};

/// The source of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactSource<'a> {
    /// The machine itself, with one of its tokens.
    Node(Uuid),
    /// A role, with one of its runs.
    Role(&'a str, RunId),
}

/// Stores the facts of a source, replacing its earlier ones.
pub async fn store_facts(
    connection: &mut PgConnection,
    node: NodeId,
    source: FactSource<'_>,
    facts: &Map<String, Value>,
) -> Result<(), StoreError> {
    // Serializes concurrent reports about the node.
    sqlx::query("SELECT FROM node WHERE id = $1 FOR UPDATE")
        .bind(node.0)
        .execute(&mut *connection)
        .await?;
    // Two statements, because the server has no privilege on runs, and a worker none on tokens.
    let facts = Value::Object(facts.clone());
    let statement = match source {
        FactSource::Node(token) => sqlx::query(
            "INSERT INTO node_fact (node_id, source, facts, token_id) VALUES ($1, 'node', $2, $3)
             ON CONFLICT (node_id, source) DO UPDATE SET facts = excluded.facts, at = now(), token_id = excluded.token_id",
        )
        .bind(node.0)
        .bind(facts)
        .bind(token),
        FactSource::Role(role, run) => sqlx::query(
            "INSERT INTO node_fact (node_id, source, facts, run_id) VALUES ($1, $4, $2, $3)
             ON CONFLICT (node_id, source) DO UPDATE SET facts = excluded.facts, at = now(), run_id = excluded.run_id",
        )
        .bind(node.0)
        .bind(facts)
        .bind(run.0)
        .bind(format!("role {role}")),
    };
    statement.execute(&mut *connection).await?;
    sqlx::query(
        "UPDATE node SET facts_at = now(), facts = coalesce((
           SELECT jsonb_object_agg(e.key, e.value ORDER BY f.source) FROM node_fact f, jsonb_each(f.facts) e
           WHERE f.node_id = $1), '{}')
         WHERE id = $1",
    )
    .bind(node.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Stores `facts` in a run's result as facts of its node, if its role has the flag. Returns the
/// events.
pub(crate) async fn store_returned_facts(
    transaction: &mut PgConnection,
    run: RunId,
    step: StepId,
    result: &Map<String, Value>,
) -> Result<Vec<Event>, StoreError> {
    // Most runs return no facts and need no query.
    let Some(facts) = result.get("facts").and_then(Value::as_object) else { return Ok(Vec::new()) };
    let row: Option<(Uuid, String, String)> = sqlx::query_as(
        // MATERIALIZED: only the role's body is parsed as JSON, with any join plan. Scripts are
        // objects too.
        "WITH role_body AS MATERIALIZED (
           SELECT n.id, n.fqdn, r.role, o.body FROM step s JOIN noderole r ON r.id = s.noderole_id
           JOIN node n ON n.id = s.node_id JOIN object o ON o.hash = r.role_hash WHERE s.id = $1)
         SELECT id, fqdn, role FROM role_body WHERE convert_from(body, 'UTF8')::jsonb @> '{\"flags\": {\"facts\": true}}'",
    )
    .bind(step.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some((node, fqdn, role)) = row else { return Ok(Vec::new()) };
    store_facts(transaction, NodeId(node), FactSource::Role(&role, run), facts).await?;
    Ok(vec![node_event(&fqdn)])
}
