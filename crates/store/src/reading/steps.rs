//! Steps by deployment and node: what boards and lists show.

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
    /// Whose.
    pub noderole_id: Uuid,
    /// Its state.
    pub state: String,
    /// Why it is in ERROR.
    pub error: Option<String>,
}

impl StepRow {
    /// Whose it is.
    pub fn noderole(&self) -> NoderoleId {
        NoderoleId(self.noderole_id)
    }
}

/// Steps that are drawn with a deployment: of noderoles bound there, and of everything on its nodes. At most 50,000, in no order: whoever
/// needs one for certain asks for it by id.
pub async fn steps_of(
    on: &mut PgConnection,
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
    .fetch_all(on)
    .await?)
}

/// The steps of these noderoles, as far as they are not gone.
pub async fn steps_by_noderole(
    on: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<StepRow>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as(
        "SELECT noderole_id, state, error FROM step WHERE noderole_id = ANY($1) AND action = 'run' AND state <> 'gone'",
    )
    .bind(ids)
    .fetch_all(on)
    .await?)
}

/// The states of these noderoles' steps.
pub async fn states_of(
    on: &mut PgConnection,
    noderoles: &[NoderoleId],
) -> Result<Vec<(NoderoleId, String)>, StoreError> {
    let ids: Vec<Uuid> = noderoles.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT noderole_id, state FROM step WHERE noderole_id = ANY($1) AND action = 'run'",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(rows.into_iter().map(|(id, state)| (NoderoleId(id), state)).collect())
}

/// How long the last successful run of each of these noderoles took, in milliseconds. Of a step that failed more than 20 times
/// since then nothing is told.
pub async fn durations_of(
    on: &mut PgConnection,
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
    .fetch_all(on)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, took)| (NoderoleId(id), u64::try_from(took).unwrap_or(0)))
        .collect())
}

/// How many steps of a deployment are in each state, and how many nodes it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeploymentCounts {
    /// Its nodes.
    pub nodes: i64,
    /// Its steps.
    pub steps: StateCounts,
}

/// Counts of every deployment that has steps or nodes.
pub async fn counts(
    on: &mut PgConnection,
) -> Result<Vec<(DeploymentId, DeploymentCounts)>, StoreError> {
    let rows: Vec<(Uuid, i64, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT d.id, (SELECT count(*) FROM node n WHERE n.deployment_id = d.id AND NOT n.phantom AND n.removed_in IS NULL), \
         count(*) FILTER (WHERE s.state = 'blocked'), count(*) FILTER (WHERE s.state = 'todo'), \
         count(*) FILTER (WHERE s.state = 'transition'), count(*) FILTER (WHERE s.state = 'active'), \
         count(*) FILTER (WHERE s.state = 'error') FROM deployment d \
         LEFT JOIN noderole r ON r.deployment_id = d.id LEFT JOIN step s ON s.noderole_id = r.id \
         WHERE d.removed_in IS NULL GROUP BY d.id",
    )
    .fetch_all(on)
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
    /// Its row.
    pub node: node::Model,
    /// The name of its deployment.
    pub deployment: String,
}

/// Which machines are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeFilter<'f> {
    /// Whose names contain this.
    pub name: &'f str,
    /// In this state.
    pub state: Option<NodeState>,
    /// That belong to this deployment.
    pub deployment: Option<DeploymentId>,
    /// In this order.
    pub order: Order<NodeSort>,
    /// Behind the one with these keys.
    pub behind: Option<&'f [Key]>,
}

/// How a machine is, from bad to good; the index on it has it word for word.
const HOW: &str = "(CASE WHEN NOT node.alive THEN 0 WHEN NOT node.available THEN 1 ELSE 2 END)";

/// The columns of a machine's keys.
fn node_keys(sort: NodeSort) -> &'static [&'static str] {
    match sort {
        NodeSort::Name => &["node.fqdn"],
        NodeSort::State => &[HOW, "node.fqdn"],
        NodeSort::Deployment => &["deployment.name", "node.fqdn"],
    }
}

impl NodeRow {
    /// Its keys in a list that is sorted by this.
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

/// Machines in an order; one more than a page.
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
        // Nobody searches by patterns: what stands for anything in one stands for itself.
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
    let (keys, falling) = (node_keys(filter.order.by), filter.order.falling);
    for key in keys {
        query = query.order_by(Expr::cust(*key), way(falling));
    }
    if let Some(last) = filter.behind {
        query = query.filter(behind(keys, falling, last));
        // Deployments before that one need not be looked at.
        if let (NodeSort::Deployment, [Key::Text(name), ..]) = (filter.order.by, last) {
            let from = if falling {
                deployment::Column::Name.lte(name)
            } else {
                deployment::Column::Name.gte(name)
            };
            query = query.filter(from);
        }
    }
    if filter.order.by == NodeSort::Deployment {
        // Every machine has one; said so, the names may lead to the machines.
        query = query
            .filter(deployment::Column::Name.is_not_null())
            .filter(Expr::cust("deployment.removed_in IS NULL"));
    }
    query.find_also_related(deployment::Entity)
}

/// How many steps of these nodes are in each state.
pub async fn node_counts(
    on: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<(NodeId, StateCounts)>, StoreError> {
    let ids: Vec<Uuid> = nodes.iter().map(|n| n.0).collect();
    let rows: Vec<(Uuid, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT node_id, count(*) FILTER (WHERE state = 'blocked'), count(*) FILTER (WHERE state = 'todo'), \
         count(*) FILTER (WHERE state = 'transition'), count(*) FILTER (WHERE state = 'active'), \
         count(*) FILTER (WHERE state = 'error') FROM step WHERE node_id = ANY($1) GROUP BY node_id",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    let row = |(id, blocked, todo, transition, active, error)| {
        (NodeId(id), StateCounts { blocked, todo, transition, active, error })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Of these nodes those that were not reached when somebody looked last, each with the reason.
pub async fn unreached(
    on: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<(NodeId, String)>, StoreError> {
    let ids: Vec<Uuid> = nodes.iter().map(|n| n.0).collect();
    let rows: Vec<(Uuid, bool, String)> = sqlx::query_as(
        "SELECT n.id, l.reached, l.said FROM unnest($1) n (id), \
         LATERAL (SELECT reached, said FROM node_look WHERE node_id = n.id ORDER BY at DESC LIMIT 1) l",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(rows.into_iter().filter(|row| !row.1).map(|(id, _, said)| (NodeId(id), said)).collect())
}

/// Whether each node is alive.
pub async fn alive_nodes(on: &mut PgConnection) -> Result<Vec<(NodeId, bool)>, StoreError> {
    let rows: Vec<(Uuid, bool)> =
        sqlx::query_as("SELECT id, alive FROM node WHERE removed_in IS NULL LIMIT 100000")
            .fetch_all(on)
            .await?;
    Ok(rows.into_iter().map(|(id, alive)| (NodeId(id), alive)).collect())
}

/// `role on node` of these steps.
pub async fn step_names(
    on: &mut PgConnection,
    steps: &[StepId],
) -> Result<Vec<(StepId, String)>, StoreError> {
    let ids: Vec<Uuid> = steps.iter().map(|s| s.0).collect();
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT s.id, r.role || ' on ' || split_part(n.fqdn, '.', 1) FROM step s JOIN noderole r ON r.id = s.noderole_id \
         JOIN node n ON n.id = s.node_id WHERE s.id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(on)
    .await?;
    Ok(rows.into_iter().map(|(id, name)| (StepId(id), name)).collect())
}

/// Most nodes of one folder.
pub const MAX_LOCAL: i64 = 10_000;

/// Nodes that are folders below this one, with how to reach them; at most [`MAX_LOCAL`], and whether there are more.
pub async fn local_nodes(
    on: &mut PgConnection,
    below: &str,
) -> Result<(Vec<(String, serde_json::Value)>, bool), StoreError> {
    let below = below.trim_end_matches('/');
    let mut rows: Vec<(String, serde_json::Value)> = sqlx::query_as(
        "SELECT fqdn, jsonb_build_object('transport', transport) || connection FROM node \
         WHERE root >= $1 COLLATE \"C\" AND root < $2 COLLATE \"C\" AND removed_in IS NULL ORDER BY root LIMIT $3",
    )
    .bind(format!("{below}/"))
    // The sign behind the slash: what lies below the folder is a range.
    .bind(format!("{below}0"))
    .bind(MAX_LOCAL + 1)
    .fetch_all(on)
    .await?;
    let most = usize::try_from(MAX_LOCAL).unwrap_or(usize::MAX);
    let more = rows.len() > most;
    rows.truncate(most);
    Ok((rows, more))
}
