//! Steps by deployment and node, for boards and lists.

use api::console::{PAGE_SIZE, StateCounts};
use api::listing::{Key, NodeSort, NodeState, Order};
use engine::ids::{DeploymentId, NodeId, NoderoleId, StepId};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, SelectTwo};
use sqlx::PgConnection;
use uuid::Uuid;

use super::order::{behind, way};
use crate::entity::{deployment, node};
use crate::{Store, StoreError};

/// A step on a board.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StepRow {
    pub noderole_id: Uuid,
    pub state: String,
    /// The reason of an ERROR.
    pub error: Option<String>,
}

impl StepRow {
    pub fn noderole(&self) -> NoderoleId {
        NoderoleId(self.noderole_id)
    }
}

/// The steps on a deployment's board: those of noderoles bound in it, and all on its nodes. At most
/// 50,000, unordered. To get certain steps, query them by id.
pub async fn steps_of(
    connection: &mut PgConnection,
    deployment: DeploymentId,
) -> Result<Vec<StepRow>, StoreError> {
    Ok(sqlx::query_as(
        "SELECT s.noderole_id, s.state, s.error FROM step s JOIN noderole r ON r.id = s.noderole_id \
         WHERE r.deployment_id = $1 AND s.action = 'run' AND s.state <> 'gone' \
         UNION \
         SELECT s.noderole_id, s.state, s.error FROM node n JOIN step s ON s.node_id = n.id \
         WHERE n.deployment_id = $1 AND s.action = 'run' AND s.state <> 'gone' LIMIT 50000",
    )
    .bind(deployment.0)
    .fetch_all(connection)
    .await?)
}

/// The steps of these noderoles, without removed ones.
pub async fn steps_by_noderole(
    connection: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<StepRow>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as(
        "SELECT noderole_id, state, error FROM step WHERE noderole_id = ANY($1) AND action = 'run' AND state <> 'gone'",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?)
}

/// The states of these noderoles' steps.
pub async fn step_states(
    connection: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<(NoderoleId, String)>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT noderole_id, state FROM step WHERE noderole_id = ANY($1) AND action = 'run'",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(id, state)| (NoderoleId(id), state)).collect())
}

/// The duration in milliseconds of the last successful run of each noderole. Steps with more than
/// 20 failures since are omitted.
pub async fn run_durations(
    connection: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<(NoderoleId, u64)>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "SELECT s.noderole_id, (extract(epoch FROM took.ended_at - took.started_at) * 1000)::bigint FROM step s \
         CROSS JOIN LATERAL (SELECT started_at, ended_at FROM (SELECT id, started_at, ended_at, outcome FROM run \
         WHERE step_id = s.id ORDER BY id DESC LIMIT 20) last \
         WHERE outcome = 'succeeded' AND started_at IS NOT NULL ORDER BY id DESC LIMIT 1) took \
         WHERE s.noderole_id = ANY($1) AND s.action = 'run'",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, duration)| (NoderoleId(id), u64::try_from(duration).unwrap_or(0)))
        .collect())
}

/// The number of a deployment's steps by state, and of its nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeploymentCounts {
    pub nodes: i64,
    pub steps: StateCounts,
}

/// The counts of every deployment with steps or nodes.
pub async fn counts(
    connection: &mut PgConnection,
) -> Result<Vec<(DeploymentId, DeploymentCounts)>, StoreError> {
    let rows: Vec<(Uuid, i64, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT d.id, (SELECT count(*) FROM node n WHERE n.deployment_id = d.id AND NOT n.phantom AND n.removed_in IS NULL), \
         count(*) FILTER (WHERE s.state = 'blocked'), count(*) FILTER (WHERE s.state = 'todo'), \
         count(*) FILTER (WHERE s.state = 'transition'), count(*) FILTER (WHERE s.state = 'active' AND s.action = 'run'), \
         count(*) FILTER (WHERE s.state = 'error') FROM deployment d \
         LEFT JOIN noderole r ON r.deployment_id = d.id LEFT JOIN step s ON s.noderole_id = r.id \
         WHERE d.removed_in IS NULL GROUP BY d.id",
    )
    .fetch_all(connection)
    .await?;
    let row = |(id, nodes, blocked, todo, transition, active, error)| {
        let steps = StateCounts { blocked, todo, transition, active, error };
        (DeploymentId(id), DeploymentCounts { nodes, steps })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// A node in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRow {
    pub node: node::Model,
    /// The name of its deployment.
    pub deployment: String,
}

/// A filter for nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeFilter<'f> {
    /// Text in the name.
    pub name: &'f str,
    pub state: Option<NodeState>,
    pub deployment: Option<DeploymentId>,
    pub order: Order<NodeSort>,
    /// Only nodes after these keys.
    pub behind: Option<&'f [Key]>,
}

/// The state of a node, from bad to good. The index needs exactly this expression.
const STATE_EXPRESSION: &str =
    "(CASE WHEN NOT node.alive THEN 0 WHEN NOT node.available THEN 1 ELSE 2 END)";

/// The columns of a node's sort keys.
fn node_keys(sort: NodeSort) -> &'static [&'static str] {
    match sort {
        NodeSort::Name => &["node.fqdn"],
        NodeSort::State => &[STATE_EXPRESSION, "node.fqdn"],
        NodeSort::Deployment => &["deployment.name", "node.fqdn"],
    }
}

impl NodeRow {
    /// The sort keys of this node.
    pub fn keys(&self, sort: NodeSort) -> Vec<Key> {
        let name = Key::from(self.node.fqdn.as_str());
        match sort {
            NodeSort::Name => vec![name],
            NodeSort::State => {
                let how = if !self.node.alive { 0 } else { 1 + i64::from(self.node.available) };
                vec![Key::from(how), name]
            }
            NodeSort::Deployment => vec![Key::from(self.deployment.as_str()), name],
        }
    }
}

/// Nodes in an order, one more than a page.
pub async fn nodes(store: &Store, filter: NodeFilter<'_>) -> Result<Vec<NodeRow>, StoreError> {
    let rows = node_query(filter).all(store.orm()).await?;
    let row = |(node, deployment): (node::Model, Option<deployment::Model>)| NodeRow {
        node,
        deployment: deployment.map(|d| d.name).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(row).collect())
}

pub(super) fn node_query(filter: NodeFilter<'_>) -> SelectTwo<node::Entity, deployment::Entity> {
    let mut query = node::Entity::find()
        .filter(node::Column::Phantom.eq(false))
        .filter(node::Column::RemovedIn.is_null())
        .limit(PAGE_SIZE as u64 + 1);
    if !filter.name.is_empty() {
        // `position` instead of LIKE, because search texts are not patterns.
        query =
            query.filter(Expr::cust_with_values("position($1 IN node.fqdn) > 0", [filter.name]));
    }
    if let Some(deployment) = filter.deployment {
        query = query.filter(node::Column::DeploymentId.eq(deployment.0));
    }
    query = match filter.state {
        None => query,
        Some(NodeState::Alive) => query.filter(Expr::cust("node.alive")),
        Some(NodeState::Dead) => query.filter(Expr::cust("NOT node.alive")),
        Some(NodeState::Unavailable) => query.filter(Expr::cust("NOT node.available")),
        Some(NodeState::Record) => query.filter(Expr::cust("node.doc IS NULL")),
    };
    let (keys, descending) = (node_keys(filter.order.by), filter.order.descending);
    for key in keys {
        query = query.order_by(Expr::cust(*key), way(descending));
    }
    if let Some(cursor) = filter.behind {
        query = query.filter(behind(keys, descending, cursor));
        // Skips deployments before the cursor.
        if let (NodeSort::Deployment, [Key::Text(name), ..]) = (filter.order.by, cursor) {
            let from = if descending {
                deployment::Column::Name.lte(name)
            } else {
                deployment::Column::Name.gte(name)
            };
            query = query.filter(from);
        }
    }
    if filter.order.by == NodeSort::Deployment {
        // Always true, but it lets PostgreSQL start with the names of deployments.
        query = query
            .filter(deployment::Column::Name.is_not_null())
            .filter(Expr::cust("deployment.removed_in IS NULL"));
    }
    query.find_also_related(deployment::Entity)
}

/// The steps of these nodes by state.
pub async fn node_step_counts(
    connection: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<(NodeId, StateCounts)>, StoreError> {
    let ids: Vec<Uuid> = nodes.iter().map(|n| n.0).collect();
    let rows: Vec<(Uuid, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT node_id, count(*) FILTER (WHERE state = 'blocked'), count(*) FILTER (WHERE state = 'todo'), \
         count(*) FILTER (WHERE state = 'transition'), count(*) FILTER (WHERE state = 'active' AND action = 'run'), \
         count(*) FILTER (WHERE state = 'error') FROM step WHERE node_id = ANY($1) GROUP BY node_id",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let row = |(id, blocked, todo, transition, active, error)| {
        (NodeId(id), StateCounts { blocked, todo, transition, active, error })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// The nodes of these that failed their last health check, with the error.
pub async fn unreached(
    connection: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<(NodeId, String)>, StoreError> {
    let ids: Vec<Uuid> = nodes.iter().map(|n| n.0).collect();
    let rows: Vec<(Uuid, bool, String)> = sqlx::query_as(
        "SELECT n.id, l.reached, l.detail FROM unnest($1::uuid[]) n (id), \
         LATERAL (SELECT reached, detail FROM health_check WHERE node_id = n.id ORDER BY at DESC LIMIT 1) l",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().filter(|row| !row.1).map(|(id, _, detail)| (NodeId(id), detail)).collect())
}

/// Whether each node is alive.
pub async fn node_liveness(
    connection: &mut PgConnection,
) -> Result<Vec<(NodeId, bool)>, StoreError> {
    let rows: Vec<(Uuid, bool)> =
        sqlx::query_as("SELECT id, alive FROM node WHERE removed_in IS NULL LIMIT 100000")
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().map(|(id, alive)| (NodeId(id), alive)).collect())
}

/// `role on node` for each of these steps.
pub async fn step_names(
    connection: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<(StepId, String)>, StoreError> {
    let ids: Vec<Uuid> = steps.iter().map(|s| s.0).collect();
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT s.id, r.role || ' on ' || split_part(n.fqdn, '.', 1) FROM step s JOIN noderole r ON r.id = s.noderole_id \
         JOIN node n ON n.id = s.node_id WHERE s.id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(id, name)| (StepId(id), name)).collect())
}

/// The maximum number of local nodes below a folder.
pub const MAX_LOCAL_NODES: i64 = 10_000;

/// The local nodes below a folder with their connections, at most [`MAX_LOCAL_NODES`], and whether
/// there are more.
pub async fn local_nodes(
    connection: &mut PgConnection,
    folder: &str,
) -> Result<(Vec<(String, serde_json::Value)>, bool), StoreError> {
    let folder = folder.trim_end_matches('/');
    let mut rows: Vec<(String, serde_json::Value)> = sqlx::query_as(
        "SELECT fqdn, jsonb_build_object('transport', transport) || connection FROM node \
         WHERE root >= $1 COLLATE \"C\" AND root < $2 COLLATE \"C\" AND removed_in IS NULL ORDER BY root LIMIT $3",
    )
    .bind(format!("{folder}/"))
    // `0` follows `/` in ASCII, so everything below the folder is a range.
    .bind(format!("{folder}0"))
    .bind(MAX_LOCAL_NODES + 1)
    .fetch_all(connection)
    .await?;
    let most = usize::try_from(MAX_LOCAL_NODES).unwrap_or(usize::MAX);
    let has_more = rows.len() > most;
    rows.truncate(most);
    Ok((rows, has_more))
}
