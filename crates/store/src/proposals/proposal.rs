//! Proposals and their edits.
//!
//! Every change of the edits raises the proposal's version, and each request names the version that
//! it is based on. Undo and redo take the edits of one request together. Undone edits
//! stay and keep their numbers. Redo restores the first undone request after the last valid one,
//! unless another edit followed the undo.

use std::collections::BTreeMap;

use engine::ids::{DeploymentId, NodeId, PersonId, ProposalId, ReviewId};
use engine::plan::{Edit, NumberedEdit, Scope};
use sea_orm::sea_query::{Expr, ExprTrait as _, IntoCondition as _};
use sea_orm::{ColumnTrait, EntityTrait, JoinType, QueryFilter, QuerySelect};
use serde_json::Value;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{edit, equals_literal, join, proposal, review};

/// The maximum number of edits per proposal.
pub const MAX_EDITS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalRow {
    pub id: ProposalId,
    /// The deployment of the proposal. For a node-scoped proposal: the node's deployment when it
    /// was opened.
    pub deployment: DeploymentId,
    /// The name of that deployment, also after its removal. A node-scoped proposal outlives the
    /// deployment if its node moved away before.
    pub deployment_name: String,
    /// The only node that it may change, if it is node-scoped.
    pub node: Option<NodeId>,
    pub created_by: PersonId,
    pub title: String,
    /// `open`, `committed` or `discarded`.
    pub state: String,
    /// Rises with every change.
    pub version: i32,
}

impl ProposalRow {
    pub fn scope(&self) -> Scope {
        self.node.map_or(Scope::Deployment(self.deployment), Scope::Node)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditRow {
    /// The edit with its number.
    pub edit: NumberedEdit,
    pub actor: PersonId,
    pub actor_name: String,
    pub at: OffsetDateTime,
    /// The number of the first edit of the same request. Undo and redo take them together.
    pub request_seq: u32,
    pub undone: bool,
    /// Whether another edit followed the undo, so that redo skips this one.
    pub dropped: bool,
    /// The people who undid or redid it, in this order.
    pub touched_by: Vec<PersonId>,
    /// The names of these people.
    pub toggled_by_names: Vec<String>,
}

type Row = (i64, Uuid, String, Option<Uuid>, Uuid, String, String, i32);

/// Rows of removed deployments stay, so there is always a name. A submitted proposal has the title
/// of its newest review.
const COLUMNS: &str = "p.id, p.deployment_id, (SELECT d.name FROM deployment d WHERE d.id = p.deployment_id), p.node_id, \
    p.created_by, coalesce((SELECT s.title FROM review s WHERE s.proposal_id = p.id ORDER BY s.version DESC LIMIT 1), p.title), \
    p.state, p.version";

fn to_proposal(
    (id, deployment, deployment_name, node, created_by, title, state, version): Row,
) -> ProposalRow {
    let (deployment, node, created_by) =
        (DeploymentId(deployment), node.map(NodeId), PersonId(created_by));
    ProposalRow {
        id: ProposalId(id),
        deployment,
        deployment_name,
        node,
        created_by,
        title,
        state,
        version,
    }
}

pub async fn proposal(
    connection: &mut PgConnection,
    id: ProposalId,
) -> Result<Option<ProposalRow>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM proposal p WHERE p.id = $1");
    let row: Option<Row> =
        sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(id.0).fetch_optional(connection).await?;
    Ok(row.map(to_proposal))
}

/// Reads and locks a proposal, so that no other transaction can edit, review or commit it.
pub async fn lock_proposal(
    connection: &mut PgConnection,
    id: ProposalId,
) -> Result<Option<ProposalRow>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM proposal p WHERE p.id = $1 FOR UPDATE OF p");
    let row: Option<Row> =
        sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(id.0).fetch_optional(connection).await?;
    Ok(row.map(to_proposal))
}

/// The open personal proposal for a deployment.
pub async fn open_proposal(
    connection: &mut PgConnection,
    deployment: DeploymentId,
) -> Result<Option<ProposalRow>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM proposal p WHERE p.deployment_id = $1 AND p.state = 'open' AND p.kind = 'personal'"
    );
    let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(deployment.0)
        .fetch_optional(connection)
        .await?;
    Ok(row.map(to_proposal))
}

/// The open personal proposals by deployment, each with the review of its present version, if any.
pub async fn drafts(
    connection: &mut PgConnection,
) -> Result<BTreeMap<DeploymentId, (ProposalId, Option<ReviewId>)>, StoreError> {
    let review_of_version =
        join(proposal::Column::Id, review::Column::ProposalId).on_condition(|proposal, review| {
            let version = Expr::col((proposal, proposal::Column::Version));
            version.eq(Expr::col((review, review::Column::Version))).into_condition()
        });
    let rows: Vec<(Uuid, i64, Option<i64>)> = proposal::Entity::find()
        .join(JoinType::LeftJoin, review_of_version)
        .filter(equals_literal(proposal::Column::State, "open"))
        .filter(equals_literal(proposal::Column::Kind, "personal"))
        .select_only()
        .columns([proposal::Column::DeploymentId, proposal::Column::Id])
        .column(review::Column::Id)
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let to_entry = |(deployment, id, review): (Uuid, i64, Option<i64>)| {
        (DeploymentId(deployment), (ProposalId(id), review.map(ReviewId)))
    };
    Ok(rows.into_iter().map(to_entry).collect())
}

// Two people may open a proposal at the same time, and a third may close it in between. So each of
// the following functions is one statement that either inserts the row or locks the existing one.
// The returned proposal stays open until the transaction ends.

/// Opens a proposal for a deployment unless one is open. Returns whether it is new.
pub async fn ensure_proposal(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    by: PersonId,
) -> Result<(ProposalId, bool), StoreError> {
    let (id, new): (i64, bool) = sqlx::query_as(
        "INSERT INTO proposal (deployment_id, created_by) VALUES ($1, $2) \
         ON CONFLICT (deployment_id) WHERE state = 'open' AND kind = 'personal' DO UPDATE SET version = proposal.version \
         RETURNING id, xmax = 0",
    )
    .bind(deployment.0)
    .bind(by.0)
    .fetch_one(connection)
    .await?;
    Ok((ProposalId(id), new))
}

/// Opens a proposal for a node of a deployment unless one is open. Returns whether it is new.
pub async fn ensure_node_proposal(
    connection: &mut PgConnection,
    deployment: DeploymentId,
    node: NodeId,
    by: PersonId,
) -> Result<(ProposalId, bool), StoreError> {
    let (id, new): (i64, bool) = sqlx::query_as(
        "INSERT INTO proposal (deployment_id, node_id, kind, created_by) VALUES ($1, $2, 'node_scoped', $3) \
         ON CONFLICT (node_id) WHERE state = 'open' AND kind = 'node_scoped' DO UPDATE SET version = proposal.version \
         RETURNING id, xmax = 0",
    )
    .bind(deployment.0)
    .bind(node.0)
    .bind(by.0)
    .fetch_one(connection)
    .await?;
    Ok((ProposalId(id), new))
}

/// The edits of a proposal in order, undone ones included.
pub async fn edits(
    connection: &mut PgConnection,
    id: ProposalId,
) -> Result<Vec<EditRow>, StoreError> {
    type Row = (i32, i32, Uuid, String, OffsetDateTime, Value, bool, bool, Vec<Uuid>, Vec<String>);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT e.seq, coalesce(e.request_seq, e.seq), e.actor, p.name, e.at, e.body, e.undone, e.dropped, e.touched_by, \
         ARRAY(SELECT t.name FROM unnest(e.touched_by) WITH ORDINALITY AS touch (id, n) JOIN person t ON t.id = touch.id ORDER BY touch.n) \
         FROM edit e JOIN person p ON p.id = e.actor \
         WHERE e.proposal_id = $1 ORDER BY e.seq LIMIT $2",
    )
    .bind(id.0)
    .bind(i64::try_from(MAX_EDITS).unwrap_or(i64::MAX))
    .fetch_all(connection)
    .await?;
    let row = |row: Row| {
        let (seq, request_seq, actor, actor_name, at, body, undone, dropped, touched_by, names) =
            row;
        Ok(EditRow {
            edit: numbered(id, seq, body)?,
            request_seq: request_seq.unsigned_abs(),
            actor: PersonId(actor),
            actor_name,
            at,
            undone,
            dropped,
            touched_by: touched_by.into_iter().map(PersonId).collect(),
            toggled_by_names: names,
        })
    };
    rows.into_iter().map(row).collect()
}

fn numbered(proposal: ProposalId, seq: i32, body: Value) -> Result<NumberedEdit, StoreError> {
    let corrupt =
        |reason: String| StoreError::corrupt(format!("edit {seq} of proposal {proposal}"), reason);
    let edit: Edit = serde_json::from_value(body).map_err(|e| corrupt(e.to_string()))?;
    let seq = u32::try_from(seq).map_err(|e| corrupt(e.to_string()))?;
    Ok(NumberedEdit { seq, edit })
}

/// Raises the version. `None`: the proposal is closed, or its version is not the expected one.
pub async fn increment_version(
    connection: &mut PgConnection,
    id: ProposalId,
    version: i32,
) -> Result<Option<i32>, StoreError> {
    let raised = proposal::Entity::update_many()
        .col_expr(proposal::Column::Version, Expr::col(proposal::Column::Version).add(1))
        .col_expr(proposal::Column::UpdatedAt, Expr::current_timestamp())
        .filter(proposal::Column::Id.eq(id.0))
        .filter(proposal::Column::Version.eq(version))
        .filter(proposal::Column::State.eq("open"))
        .exec(&orm(connection))
        .await?;
    Ok((raised.rows_affected == 1).then(|| version + 1))
}

/// Appends edits and returns the new version. `None`: the proposal is not open at this version.
pub async fn append_edits(
    connection: &mut PgConnection,
    id: ProposalId,
    version: i32,
    by: PersonId,
    edits: &[Edit],
) -> Result<Option<i32>, StoreError> {
    let Some(version) = increment_version(connection, id, version).await? else { return Ok(None) };
    let bodies = edits.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let bodies = bodies.map_err(|e| StoreError::corrupt(format!("edit of proposal {id}"), e))?;
    edit::Entity::update_many()
        .col_expr(edit::Column::Dropped, Expr::value(true))
        .filter(edit::Column::ProposalId.eq(id.0))
        .filter(edit::Column::Undone.eq(true))
        .filter(edit::Column::Dropped.eq(false))
        .exec(&orm(connection))
        .await?;
    sqlx::query(
        "INSERT INTO edit (proposal_id, seq, actor, body, request_seq) \
         SELECT $1, last.seq + n, $2, body, CASE WHEN n > 1 THEN last.seq + 1 END \
         FROM unnest($3::jsonb[]) WITH ORDINALITY AS new (body, n), \
           (SELECT coalesce(max(seq), 0) AS seq FROM edit WHERE proposal_id = $1) AS last",
    )
    .bind(id.0)
    .bind(by.0)
    .bind(bodies)
    .execute(connection)
    .await?;
    Ok(Some(version))
}

pub async fn set_title(
    connection: &mut PgConnection,
    id: ProposalId,
    title: &str,
) -> Result<(), StoreError> {
    proposal::Entity::update_many()
        .col_expr(proposal::Column::Title, Expr::value(title))
        .col_expr(proposal::Column::UpdatedAt, Expr::current_timestamp())
        .filter(proposal::Column::Id.eq(id.0))
        .filter(proposal::Column::State.eq("open"))
        .exec(&orm(connection))
        .await?;
    Ok(())
}

/// The result of an undo or redo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoResult {
    To {
        /// The new version of the proposal.
        version: i32,
        /// The undone or redone edits of one request, in order.
        edits: Vec<NumberedEdit>,
    },
    /// There is no edit to undo or redo.
    Nothing,
    /// The proposal is not open at this version.
    VersionConflict,
}

fn to_undo_result(
    proposal: ProposalId,
    version: i32,
    mut rows: Vec<(i32, Value)>,
) -> Result<UndoResult, StoreError> {
    if rows.is_empty() {
        return Ok(UndoResult::Nothing);
    }
    rows.sort_by_key(|(seq, _)| *seq);
    let edits = rows.into_iter().map(|(seq, body)| numbered(proposal, seq, body));
    Ok(UndoResult::To { version, edits: edits.collect::<Result<_, _>>()? })
}

/// Undoes the edits of the last request. The person is recorded with them, because an undo shapes
/// the change.
pub async fn undo_edit(
    connection: &mut PgConnection,
    id: ProposalId,
    version: i32,
    by: PersonId,
) -> Result<UndoResult, StoreError> {
    let Some(version) = increment_version(connection, id, version).await? else {
        return Ok(UndoResult::VersionConflict);
    };
    let edits = sqlx::query_as(
        "WITH last AS (SELECT coalesce(request_seq, seq) AS request_seq FROM edit \
           WHERE proposal_id = $1 AND NOT undone ORDER BY seq DESC LIMIT 1) \
         UPDATE edit e SET undone = true, touched_by = touched_by || $2::uuid FROM last \
         WHERE e.proposal_id = $1 AND NOT e.undone AND coalesce(e.request_seq, e.seq) = last.request_seq \
         RETURNING e.seq, e.body",
    )
    .bind(id.0)
    .bind(by.0)
    .fetch_all(connection)
    .await?;
    to_undo_result(id, version, edits)
}

/// Redoes the edits of the first undone request after the last valid edit. The person is recorded,
/// as for undo.
pub async fn redo_edit(
    connection: &mut PgConnection,
    id: ProposalId,
    version: i32,
    by: PersonId,
) -> Result<UndoResult, StoreError> {
    let Some(version) = increment_version(connection, id, version).await? else {
        return Ok(UndoResult::VersionConflict);
    };
    let edits = sqlx::query_as(
        "WITH next AS (SELECT coalesce(request_seq, seq) AS request_seq FROM edit \
           WHERE proposal_id = $1 AND NOT dropped \
             AND seq > (SELECT coalesce(max(seq), 0) FROM edit WHERE proposal_id = $1 AND NOT undone) \
           ORDER BY seq LIMIT 1) \
         UPDATE edit e SET undone = false, touched_by = touched_by || $2::uuid FROM next \
         WHERE e.proposal_id = $1 AND e.undone AND NOT e.dropped \
           AND coalesce(e.request_seq, e.seq) = next.request_seq \
         RETURNING e.seq, e.body",
    )
    .bind(id.0)
    .bind(by.0)
    .fetch_all(connection)
    .await?;
    to_undo_result(id, version, edits)
}

/// Closes a proposal without effect. `false`: it is not open at this version.
pub async fn discard_proposal(
    connection: &mut PgConnection,
    id: ProposalId,
    version: i32,
) -> Result<bool, StoreError> {
    let discarded = proposal::Entity::update_many()
        .col_expr(proposal::Column::State, Expr::value("discarded"))
        .col_expr(proposal::Column::ClosedAt, Expr::current_timestamp())
        .col_expr(proposal::Column::UpdatedAt, Expr::current_timestamp())
        .filter(proposal::Column::Id.eq(id.0))
        .filter(proposal::Column::Version.eq(version))
        .filter(proposal::Column::State.eq("open"))
        .exec(&orm(connection))
        .await?;
    Ok(discarded.rows_affected == 1)
}

/// Closes every open proposal for these removed deployments and nodes, except the one that removes
/// them. Returns the closed ones.
pub async fn discard_proposals_on(
    connection: &mut PgConnection,
    deployments: &[DeploymentId],
    nodes: &[NodeId],
    except: Option<ProposalId>,
) -> Result<Vec<ProposalRow>, StoreError> {
    let query = format!(
        "UPDATE proposal p SET state = 'discarded', closed_at = now(), updated_at = now() \
         WHERE (p.kind <> 'node_scoped' AND p.deployment_id = ANY($1) OR p.node_id = ANY($2)) AND p.state = 'open' AND p.id IS DISTINCT FROM $3 \
         RETURNING {COLUMNS}"
    );
    let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(deployments.iter().map(|d| d.0).collect::<Vec<_>>())
        .bind(nodes.iter().map(|n| n.0).collect::<Vec<_>>())
        .bind(except.map(|id| id.0))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(to_proposal).collect())
}
