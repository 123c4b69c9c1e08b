//! Changes of what people say of a machine: of its record, not of what is meant for it.

use engine::ids::NodeId;
use serde_json::Value;
use sqlx::PgConnection;

use crate::StoreError;

/// What a record says, locked until the transaction ends.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct MachineRow {
    /// Its name.
    pub fqdn: String,
    /// Raised by every change.
    pub version: i32,
    /// Whether a document speaks of it.
    pub meant: bool,
    /// `local` or `ssh`.
    pub transport: String,
    /// Where it is reached.
    pub address: Value,
    /// How.
    pub connection: Value,
    /// What people say of it.
    pub description: String,
    /// What its roles may want to know before their first run.
    pub hints: Value,
    /// Of its network cards.
    pub macs: Vec<String>,
    /// Its serial number.
    pub serial: String,
    /// Whether a run is open on it.
    pub busy: bool,
}

/// Locks a machine's record. Whoever changes how it is reached has taken APPLY before ([`super::lock_for_commit`]), so that no run
/// comes in meanwhile. None: there is no such machine.
pub async fn lock_machine(
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

/// Writes a record; gives its new version. One that is reached otherwise than before has yet to let somebody in: until then nothing
/// starts there, and a look that is under way the old way says nothing about it. The caller holds its lock.
pub async fn write_machine(
    on: &mut PgConnection,
    node: NodeId,
    record: &MachineRow,
    other_way: bool,
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
    if other_way {
        sqlx::query(
            "UPDATE node SET address = $2, connection = $3, looked_at = NULL, look_against = 0, way_no = way_no + 1 WHERE id = $1",
        )
        .bind(node.0)
        .bind(&record.address)
        .bind(&record.connection)
        .execute(on)
        .await?;
    }
    Ok(version)
}

/// Notes a new machine's hardware, as it was given.
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
