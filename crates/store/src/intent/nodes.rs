//! Node records. A node without a document has no intent, so it is added and removed without a
//! review. Rows of removed nodes stay, so that an id never recurs.

use engine::ids::{DeploymentId, Fqdn, NodeId, PersonId};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// A node without a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareNode {
    pub id: NodeId,
    pub fqdn: Fqdn,
    pub deployment: DeploymentId,
    /// The connection in the form of a document (`engine::cluster::Connection`).
    pub connection: Option<Value>,
    pub hints: Value,
}

/// All nodes without a document, at most 100,000.
pub async fn undocumented_nodes(on: &mut PgConnection) -> Result<Vec<BareNode>, StoreError> {
    let rows: Vec<(Uuid, String, Uuid, Option<Value>, Value)> = sqlx::query_as(
        "SELECT id, fqdn, deployment_id, node_connection(transport, address, connection), hints \
         FROM node WHERE doc IS NULL AND removed_in IS NULL ORDER BY fqdn LIMIT 100000",
    )
    .fetch_all(on)
    .await?;
    let node = |(id, fqdn, deployment, connection, hints)| {
        let id: Uuid = id;
        let fqdn: String = fqdn;
        let fqdn = Fqdn::parse(&fqdn).map_err(|e| StoreError::corrupt(format!("node {id}"), e))?;
        Ok(BareNode {
            id: NodeId(id),
            fqdn,
            deployment: DeploymentId(deployment),
            connection,
            hints,
        })
    };
    rows.into_iter().map(node).collect()
}

/// A node record to insert.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Minted by the caller.
    pub id: NodeId,
    pub fqdn: Fqdn,
    /// The *system* deployment.
    pub deployment: DeploymentId,
    /// `local` or `ssh`.
    pub transport: &'static str,
    pub connection: Value,
    /// Only for `ssh`.
    pub addresses: Vec<String>,
    pub by: Option<PersonId>,
}

/// Serializes inserts of records until the transaction ends. Without it, two transactions that add
/// several nodes could deadlock on their unique names.
pub async fn lock_node_inserts(on: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(migrations::ROOT_LOCK).execute(on).await?;
    Ok(())
}

/// Inserts a node record. `false`: its name is taken. A guard rejects a folder that overlaps
/// another node's.
pub async fn insert_node(on: &mut PgConnection, node: &NewNode) -> Result<bool, StoreError> {
    let result = sqlx::query(
        "INSERT INTO node (id, fqdn, deployment_id, transport, connection, created_by, address) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT DO NOTHING",
    )
    .bind(node.id.0)
    .bind(node.fqdn.as_str())
    .bind(node.deployment.0)
    .bind(node.transport)
    .bind(&node.connection)
    .bind(node.by.map(|p| p.0))
    .bind(Value::from(node.addresses.clone()))
    .execute(on)
    .await?;
    Ok(result.rows_affected() == 1)
}

/// Removes the record of a node without a document and returns its name. `None`: there is no such
/// record, or its version differs.
pub async fn remove_node_record(
    on: &mut PgConnection,
    node: NodeId,
    version: Option<i32>,
) -> Result<Option<String>, StoreError> {
    let fqdn = sqlx::query_scalar(
        "UPDATE node SET removed_in = (SELECT number FROM head) \
         WHERE id = $1 AND doc IS NULL AND NOT phantom AND removed_in IS NULL AND version = coalesce($2, version) RETURNING fqdn",
    )
    .bind(node.0)
    .bind(version)
    .fetch_optional(&mut *on)
    .await?;
    Ok(fqdn)
}

/// The removed deployments and nodes among these ids.
pub async fn removed_ids(on: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
    let removed = sqlx::query_scalar(
        "SELECT id FROM deployment WHERE id = ANY($1) AND removed_in IS NOT NULL \
         UNION SELECT id FROM node WHERE id = ANY($1) AND removed_in IS NOT NULL",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(removed)
}
