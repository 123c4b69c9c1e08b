//! Lists of proposals.

use crate::list::ColumnType;
use crate::proposals::ProposalRow;
use crate::{Key, Page, Sort, StoreError};
use engine::ids::{DeploymentId, NodeId, PersonId, ProposalId, ReviewId};
use sqlx::PgConnection;
use uuid::Uuid;

/// A search for open proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FindProposals {
    /// Only proposals that this person opened or edited.
    pub by: Option<PersonId>,
    /// Only proposals whose present version is not submitted.
    pub drafts: bool,
    /// Only proposals for this deployment, or for a node in it when the proposal was opened.
    pub deployment: Option<DeploymentId>,
    /// Only proposals with this text in the name of the deployment or node, ignoring case.
    pub text: Option<String>,
}

/// An open proposal in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalLine {
    pub proposal: ProposalRow,
    /// The number of edits, without undone ones.
    pub edits: usize,
    /// The names of people who edited it.
    pub authors: Vec<String>,
    /// The review of the present version, if it was submitted.
    pub submission: Option<ReviewId>,
}

impl ProposalLine {
    pub const BY_ID: Sort<Self> = Sort {
        columns: &[("p.id", ColumnType::Number)],
        keys: |row| vec![row.proposal.id.0.into()],
    };
    pub const BY_DEPLOYMENT: Sort<Self> = Sort {
        columns: &[("d.name", ColumnType::Text), ("p.id", ColumnType::Number)],
        keys: |row| vec![row.proposal.deployment_name.as_str().into(), row.proposal.id.0.into()],
    };
}

/// A page of open proposals. There are at most as many as deployments and nodes. Edits are counted,
/// not read.
pub async fn find_proposals(
    connection: &mut PgConnection,
    find: &FindProposals,
    page: &Page<ProposalLine>,
) -> Result<Vec<ProposalLine>, StoreError> {
    let (name, id) = match page.after.as_deref() {
        Some([Key::Text(name), Key::Number(id)]) => (Some(name.as_str()), Some(*id)),
        Some([Key::Number(id)]) => (None, Some(*id)),
        _ => (None, None),
    };
    let placeholders = if name.is_some() { &["$6", "$1"][..] } else { &["$1"] };
    let (after_cursor, order_by) = (page.compared(placeholders), page.order_by());
    type Row =
        (i64, Uuid, String, Option<Uuid>, Uuid, String, String, i32, i64, Vec<String>, Option<i64>);
    let query = format!(
        "SELECT p.id, p.deployment_id, d.name, p.node_id, p.created_by, p.title, p.state, p.version, \
         (SELECT count(*) FROM edit e WHERE e.proposal_id = p.id AND NOT e.undone), \
         ARRAY(SELECT DISTINCT w.name FROM edit e JOIN person w ON w.id = e.actor WHERE e.proposal_id = p.id ORDER BY w.name), s.id \
         FROM proposal p JOIN deployment d ON d.id = p.deployment_id LEFT JOIN node n ON n.id = p.node_id \
         LEFT JOIN review s ON s.proposal_id = p.id AND s.version = p.version \
         WHERE p.state = 'open' AND {after_cursor} AND ($2::uuid IS NULL OR p.deployment_id = $2) \
         AND ($3::uuid IS NULL OR p.created_by = $3 OR EXISTS (SELECT FROM edit e WHERE e.proposal_id = p.id AND e.actor = $3)) \
         AND NOT ($4 AND s.id IS NOT NULL) \
         AND ($5::text IS NULL OR position(lower($5) IN lower(d.name)) > 0 OR position(lower($5) IN lower(n.fqdn)) > 0) \
         ORDER BY {order_by} LIMIT $7"
    );
    let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(id)
        .bind(find.deployment.map(|deployment| deployment.0))
        .bind(find.by.map(|by| by.0))
        .bind(find.drafts)
        .bind(find.text.as_deref())
        .bind(name)
        .bind(i64::try_from(page.limit).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    let to_row = |(
        id,
        deployment,
        deployment_name,
        node,
        by,
        title,
        state,
        version,
        edits,
        authors,
        submission,
    ): Row| {
        let proposal = ProposalRow {
            id: ProposalId(id),
            deployment: DeploymentId(deployment),
            deployment_name,
            node: node.map(NodeId),
            created_by: PersonId(by),
            title,
            state,
            version,
        };
        ProposalLine {
            proposal,
            edits: usize::try_from(edits).unwrap_or_default(),
            authors,
            submission: submission.map(ReviewId),
        }
    };
    Ok(rows.into_iter().map(to_row).collect())
}
