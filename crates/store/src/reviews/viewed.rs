//! The changes of a proposal that each person has opened.

use engine::Hash;
use engine::blueprint::Anchor;
use engine::ids::{DeploymentId, NodeId, PersonId, ProposalId};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::{hash, orm};
use crate::entity::viewed_change;

/// The maximum number of entries read or written at once.
pub const MAX_VIEWED: usize = 50_000;

/// The policy, deployments and nodes whose change a person opened last, with the hash of that
/// change.
pub async fn opened(
    connection: &mut PgConnection,
    person: PersonId,
    proposal: ProposalId,
) -> Result<Vec<(Anchor, Hash)>, StoreError> {
    let rows: Vec<(String, Uuid, Vec<u8>)> = viewed_change::Entity::find()
        .filter(viewed_change::Column::PersonId.eq(person.0))
        .filter(viewed_change::Column::ProposalId.eq(proposal.0))
        .limit(MAX_VIEWED as u64)
        .select_only()
        .columns([
            viewed_change::Column::Kind,
            viewed_change::Column::DocumentId,
            viewed_change::Column::Content,
        ])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let to_change = |(kind, id, content): (String, Uuid, Vec<u8>)| {
        let anchor = match kind.as_str() {
            "policy" => Anchor::Policy(None),
            "deployment" => Anchor::Deployment(DeploymentId(id)),
            _ => Anchor::Node(NodeId(id)),
        };
        Ok((anchor, hash("viewed_change.content", &content)?))
    };
    rows.into_iter().map(to_change).collect()
}

/// Records that a person opened these changes. Anchors below a document are ignored.
pub async fn ensure_changes_viewed(
    connection: &mut PgConnection,
    person: PersonId,
    proposal: ProposalId,
    changes: &[(Anchor, Hash)],
) -> Result<(), StoreError> {
    let (mut kinds, mut ids, mut content_hashes) = (Vec::new(), Vec::new(), Vec::new());
    for (anchor, content) in changes.iter().take(MAX_VIEWED) {
        let (kind, id) = match anchor {
            // There is only one policy.
            Anchor::Policy(None) => ("policy", Uuid::nil()),
            Anchor::Deployment(id) => ("deployment", id.0),
            Anchor::Node(id) => ("node", id.0),
            _ => continue,
        };
        kinds.push(kind);
        ids.push(id);
        content_hashes.push(content.as_bytes().to_vec());
    }
    sqlx::query(
        "INSERT INTO viewed_change (person_id, proposal_id, kind, document_id, content) \
         SELECT $1, $2, kind, id, content FROM unnest($3::text[], $4::uuid[], $5::bytea[]) AS new (kind, id, content) ORDER BY kind, id \
         ON CONFLICT (person_id, proposal_id, kind, document_id) DO UPDATE SET content = excluded.content, at = now() \
         WHERE viewed_change.content <> excluded.content",
    )
    .bind(person.0)
    .bind(proposal.0)
    .bind(kinds)
    .bind(ids)
    .bind(content_hashes)
    .execute(connection)
    .await?;
    Ok(())
}
