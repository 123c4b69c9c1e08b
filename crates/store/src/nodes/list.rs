//! Lists of nodes.

use engine::ids::{DeploymentId, NodeId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QuerySelect, Select,
};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::connect::orm;
use crate::entity::{deployment, join, node};
use crate::list::ColumnType;
use crate::runs::{STATE_COUNTS, StateCounts};
use crate::{Key, Page, Sort, Store, StoreError};

/// The columns of a node that lists show.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "node::Entity")]
pub struct NodeModel {
    pub id: Uuid,
    pub fqdn: String,
    pub deployment_id: Uuid,
    /// Whether it is the phantom node of a deployment.
    pub phantom: bool,
    pub alive: bool,
    /// `false` in maintenance.
    pub available: bool,
    /// `none`, `local` or `ssh`.
    pub transport: String,
    /// The blueprint that removed it.
    pub removed_in: Option<i64>,
}

/// A node in a list.
#[derive(Debug, Clone, PartialEq, DerivePartialModel)]
#[sea_orm(entity = "node::Entity")]
pub struct NodeRow {
    #[sea_orm(nested)]
    pub node: NodeModel,
    /// The name of its deployment.
    #[sea_orm(from_expr = "Expr::cust(DEPLOYMENT_NAME)")]
    pub deployment: String,
}

/// A filter for nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeFilter<'f> {
    /// Text in the name.
    pub name: &'f str,
    pub alive: Option<bool>,
    /// `false`: in maintenance.
    pub available: Option<bool>,
    /// Whether it is in the blueprint.
    pub documented: Option<bool>,
    pub deployment: Option<DeploymentId>,
}

/// The state of a node, from bad to good. The index needs exactly this expression.
const STATE_EXPRESSION: &str =
    "(CASE WHEN NOT node.alive THEN 0 WHEN NOT node.available THEN 1 ELSE 2 END)";
const DEPLOYMENT_NAME: &str = "deployment.name";

impl NodeRow {
    pub const BY_NAME: Sort<Self> = Sort {
        columns: &[("node.fqdn", ColumnType::Text)],
        keys: |row| vec![Key::from(row.node.fqdn.as_str())],
    };
    pub const BY_STATE: Sort<Self> = Sort {
        columns: &[(STATE_EXPRESSION, ColumnType::Number), ("node.fqdn", ColumnType::Text)],
        keys: |row| {
            let state = if !row.node.alive { 0 } else { 1 + i64::from(row.node.available) };
            vec![Key::from(state), Key::from(row.node.fqdn.as_str())]
        },
    };
    pub const BY_DEPLOYMENT: Sort<Self> = Sort {
        columns: &[(DEPLOYMENT_NAME, ColumnType::Text), ("node.fqdn", ColumnType::Text)],
        keys: |row| vec![Key::from(row.deployment.as_str()), Key::from(row.node.fqdn.as_str())],
    };
}

/// A page of nodes.
pub async fn nodes(
    store: &Store,
    filter: NodeFilter<'_>,
    page: &Page<NodeRow>,
) -> Result<Vec<NodeRow>, StoreError> {
    Ok(node_query(filter, page).into_partial_model().all(store.orm()).await?)
}

pub(crate) fn node_query(filter: NodeFilter<'_>, page: &Page<NodeRow>) -> Select<node::Entity> {
    let mut query = page
        .of(node::Entity::find())
        .filter(node::Column::Phantom.eq(false))
        .filter(node::Column::RemovedIn.is_null());
    if !filter.name.is_empty() {
        // `position` instead of LIKE, because search texts are not patterns.
        query =
            query.filter(Expr::cust_with_values("position($1 IN node.fqdn) > 0", [filter.name]));
    }
    if let Some(deployment) = filter.deployment {
        query = query.filter(node::Column::DeploymentId.eq(deployment.0));
    }
    // The indexes need these expressions, without a parameter.
    query = match filter.alive {
        None => query,
        Some(true) => query.filter(Expr::cust("node.alive")),
        Some(false) => query.filter(Expr::cust("NOT node.alive")),
    };
    query = match filter.available {
        None => query,
        Some(true) => query.filter(Expr::cust("node.available")),
        Some(false) => query.filter(Expr::cust("NOT node.available")),
    };
    query = match filter.documented {
        None => query,
        Some(true) => query.filter(node::Column::Doc.is_not_null()),
        Some(false) => query.filter(node::Column::Doc.is_null()),
    };
    if page.sort.columns[0].0 == DEPLOYMENT_NAME {
        // Skips deployments before the cursor.
        if let Some([Key::Text(name), ..]) = page.after.as_deref() {
            let from = if page.descending {
                deployment::Column::Name.lte(name)
            } else {
                deployment::Column::Name.gte(name)
            };
            query = query.filter(from);
        }
        // Always true, but it lets PostgreSQL start with the names of deployments.
        query = query
            .filter(deployment::Column::Name.is_not_null())
            .filter(deployment::Column::RemovedIn.is_null());
    }
    query.join(JoinType::LeftJoin, join(node::Column::DeploymentId, deployment::Column::Id))
}

#[derive(sqlx::FromRow)]
struct NodeStepsRow {
    node_id: Uuid,
    #[sqlx(flatten)]
    steps: StateCounts,
}

/// The steps of these nodes by state.
pub async fn node_step_counts(
    connection: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<(NodeId, StateCounts)>, StoreError> {
    let ids: Vec<Uuid> = nodes.iter().map(|n| n.0).collect();
    let sql = format!(
        "SELECT s.node_id, {STATE_COUNTS} \
         FROM step s LEFT JOIN role_check c ON c.step_id = s.id AND c.passes_until <= now() \
         WHERE s.node_id = ANY($1) GROUP BY s.node_id"
    );
    let rows: Vec<NodeStepsRow> =
        sqlx::query_as(AssertSqlSafe(sql)).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|row| (NodeId(row.node_id), row.steps)).collect())
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
    let query = node::Entity::find()
        .filter(node::Column::RemovedIn.is_null())
        .limit(100_000)
        .select_only()
        .columns([node::Column::Id, node::Column::Alive]);
    let rows: Vec<(Uuid, bool)> = query.into_tuple().all(&orm(connection)).await?;
    Ok(rows.into_iter().map(|(id, alive)| (NodeId(id), alive)).collect())
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
