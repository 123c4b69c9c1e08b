//! Node records. A node without a document has no intent: it comes and goes without a review. Rows of those that went stay, so that
//! an id never comes back.

use engine::ids::{DeploymentId, Fqdn, NodeId, PersonId};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// A node that no document speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareNode {
    /// Which.
    pub id: NodeId,
    /// Its name.
    pub fqdn: Fqdn,
    /// Where it waits.
    pub deployment: DeploymentId,
    /// How it is reached, as a document has it (`engine::cluster::Connection`).
    pub connection: Option<Value>,
    /// Its hints.
    pub hints: Value,
}

/// All nodes that no document speaks of; at most 100,000.
pub async fn bare_nodes(on: &mut PgConnection) -> Result<Vec<BareNode>, StoreError> {
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

/// A node record to be made.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Minted by the caller.
    pub id: NodeId,
    /// Its name.
    pub fqdn: Fqdn,
    /// Where it waits: *system*.
    pub deployment: DeploymentId,
    /// `local` or `ssh`.
    pub transport: &'static str,
    /// How a worker reaches it.
    pub connection: Value,
    /// Where; of a machine that is reached over a network.
    pub addresses: Vec<String>,
    /// Who made it.
    pub by: Option<PersonId>,
}

/// Has whoever else adds a record wait until this transaction ends, before either of them has a name: who adds several would otherwise wait
/// for the name of one who waits for them.
pub async fn lock_records(on: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(migrations::ROOT_LOCK).execute(on).await?;
    Ok(())
}

/// Makes a node record; `false`: its name is taken. A guard refuses a folder that lies in another node's, or has one in it.
pub async fn insert_node(on: &mut PgConnection, node: &NewNode) -> Result<bool, StoreError> {
    let done = sqlx::query(
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
    Ok(done.rows_affected() == 1)
}

/// Takes the record of a node out that no document speaks of; its name, or None when there is no such record (any more), or none of that
/// version.
pub async fn take_out_record(
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

/// Those of these ids that were a deployment or a node once, and are none any more.
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
