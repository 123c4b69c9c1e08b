//! Node records. A node without a document has no intent, so it is added and removed without a
//! review. Rows of removed nodes stay, so that an id never recurs.

use engine::ids::{DeploymentId, Fqdn, NodeId, PersonId};
use sea_orm::sea_query::{Expr, ExprTrait as _, OnConflict};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Set};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::node;

/// A node without a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndocumentedNodeRow {
    pub id: NodeId,
    pub fqdn: Fqdn,
    pub deployment: DeploymentId,
    /// The connection in the form of a document (`engine::cluster::Connection`).
    pub connection: Option<Value>,
    pub hints: Value,
}

/// All nodes without a document, at most 100,000.
pub async fn undocumented_nodes(
    on: &mut PgConnection,
) -> Result<Vec<UndocumentedNodeRow>, StoreError> {
    let query = node::Entity::find()
        .filter(node::Column::Doc.is_null())
        .filter(node::Column::RemovedIn.is_null())
        .order_by_asc(node::Column::Fqdn)
        .limit(100_000)
        .select_only()
        .columns([node::Column::Id, node::Column::Fqdn, node::Column::DeploymentId])
        .expr(Expr::cust("node_connection(node.transport, node.address, node.connection)"))
        .column(node::Column::Hints);
    let rows: Vec<(Uuid, String, Uuid, Option<Value>, Value)> =
        query.into_tuple().all(&orm(on)).await?;
    let node = |(id, fqdn, deployment, connection, hints): (Uuid, String, _, _, _)| {
        let fqdn = Fqdn::parse(&fqdn).map_err(|e| StoreError::corrupt(format!("node {id}"), e))?;
        Ok(UndocumentedNodeRow {
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
    let row = node::ActiveModel {
        id: Set(node.id.0),
        fqdn: Set(node.fqdn.as_str().to_owned()),
        deployment_id: Set(node.deployment.0),
        transport: Set(node.transport.to_owned()),
        connection: Set(node.connection.clone()),
        created_by: Set(node.by.map(|person| person.0)),
        address: Set(Value::from(node.addresses.clone())),
        ..Default::default()
    };
    let insert = node::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
    Ok(insert.exec_without_returning(&orm(on)).await? == 1)
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

/// A machine's record, locked until the transaction ends.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct NodeRecord {
    pub fqdn: String,
    /// Rises with every change.
    pub version: i32,
    /// Whether the node has a document.
    pub in_blueprint: bool,
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
/// must hold APPLY ([`crate::blueprints::lock_for_commit`]), so that no run is claimed at the same
/// time.
pub async fn lock_node_record(
    on: &mut PgConnection,
    node: NodeId,
) -> Result<Option<NodeRecord>, StoreError> {
    let row = sqlx::query_as(
        "SELECT fqdn, version, doc IS NOT NULL AS in_blueprint, transport, address, connection, description, hints, macs, serial,
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
    record: &NodeRecord,
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
        let next = node::Column::ConnectionNo.into_expr().add(1);
        node::Entity::update_many()
            .col_expr(node::Column::Address, Expr::value(record.address.clone()))
            .col_expr(node::Column::Connection, Expr::value(record.connection.clone()))
            .col_expr(node::Column::HealthCheckedAt, Expr::cust("NULL"))
            .col_expr(node::Column::ContradictingChecks, Expr::value(0))
            .col_expr(node::Column::ConnectionNo, next)
            .filter(node::Column::Id.eq(node.0))
            .exec(&orm(on))
            .await?;
    }
    Ok(version)
}

/// Stores the MAC addresses and serial number of a new machine.
pub async fn set_hardware(
    on: &mut PgConnection,
    id: NodeId,
    macs: &[String],
    serial: &str,
) -> Result<(), StoreError> {
    node::Entity::update_many()
        .col_expr(node::Column::Macs, Expr::value(macs.to_vec()))
        .col_expr(node::Column::Serial, Expr::value(serial))
        .filter(node::Column::Id.eq(id.0))
        .exec(&orm(on))
        .await?;
    Ok(())
}
