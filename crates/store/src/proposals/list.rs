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
    pub review: Option<ReviewId>,
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
        include_str!("statements/find_proposals.sql"),
        after_cursor = after_cursor,
        order_by = order_by,
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
        review,
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
            review: review.map(ReviewId),
        }
    };
    Ok(rows.into_iter().map(to_row).collect())
}
