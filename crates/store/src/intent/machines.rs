//! Changes of a machine's record: data about the machine, not its desired state.

use engine::ids::NodeId;
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;

/// A machine's record, locked until the transaction ends.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct MachineRow {
    pub fqdn: String,
    /// Rises with every change.
    pub version: i32,
    /// Whether the node has a document.
    pub meant: bool,
    /// `local` or `ssh`.
    pub transport: String,
    pub address: Value,
    pub connection: Value,
    pub description: String,
    /// Input for roles before their first run.
    pub hints: Value,
    pub macs: Vec<String>,
    pub serial: String,
    /// Whether the node has an open run.
    pub busy: bool,
}

/// Locks a machine's record. `None`: there is no such machine. To change its connection, the caller
/// must hold APPLY ([`super::lock_for_commit`]), so that no run is claimed at the same time.
pub async fn lock_node_record(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Option<MachineRow>, StoreError> {
    let row = sqlx::query_as(
        "SELECT fqdn, version, doc IS NOT NULL AS meant, transport, address, connection, description, hints, macs, serial,
           EXISTS (SELECT FROM run r WHERE r.node_id = n.id AND r.ended_at IS NULL) AS busy
         FROM node n WHERE id = $1 AND NOT phantom AND removed_in IS NULL FOR UPDATE",
    )
    .bind(node.0)
    .fetch_optional(on)
    .await?;
    Ok(row)
}

/// Writes a record and returns its new version. With `connection_changed`, the connection changes:
/// nothing starts before a new health check, and a check in progress no longer counts. The caller
/// holds the record's lock.
pub async fn update_node_record(
    on: &mut PgConnection,
    node: NodeId,
    record: &MachineRow,
    connection_changed: bool,
) -> Result<i32, StoreError> {
    let version = sqlx::query_scalar(
        "UPDATE node SET version = version + 1, description = $2, hints = $3, macs = $4, serial = $5 WHERE id = $1 RETURNING version",
    )
    .bind(node.0)
    .bind(&record.description)
    .bind(&record.hints)
    .bind(&record.macs)
    .bind(&record.serial)
    .fetch_one(&mut *on)
    .await?;
    if connection_changed {
        sqlx::query(
            "UPDATE node SET address = $2, connection = $3, health_checked_at = NULL, contradicting_checks = 0, connection_no = connection_no + 1 WHERE id = $1",
        )
        .bind(node.0)
        .bind(&record.address)
        .bind(&record.connection)
        .execute(on)
        .await?;
    }
    Ok(version)
}

/// Stores the MAC addresses and serial number of a new machine.
pub async fn set_hardware(
    on: &mut PgConnection,
    node: NodeId,
    macs: &[String],
    serial: &str,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE node SET macs = $2, serial = $3 WHERE id = $1")
        .bind(node.0)
        .bind(macs)
        .bind(serial)
        .execute(on)
        .await?;
    Ok(())
}
