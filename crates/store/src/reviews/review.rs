//! Reviews (table `review`) and verdicts. Both are append-only; guards in the database reject
//! other changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::Hash;
use engine::blueprint::DocumentChange;
use engine::gate::{Risk, VerdictKind};
use engine::ids::{
    BlueprintNumber, DeploymentId, NodeId, PersonId, PolicyNumber, ProposalId, ReviewId,
};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
    Set,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::audit::add_token;
use crate::connect::hash;
use crate::connect::orm;
use crate::entity::{
    blueprint, join, person, review, review_author, review_base, review_document, verdict,
};

/// The time during which an equal refusal of the same person is not recorded again.
pub const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// A review to insert.
#[derive(Debug, Clone)]
pub struct NewReview {
    pub proposal: ProposalId,
    /// The version of the proposal.
    pub version: i32,
    pub title: String,
    /// The hash of the list of documents.
    pub change: Hash,
    /// The hash of the effects.
    pub effects: Hash,
    /// The policy in force.
    pub policy: PolicyNumber,
    /// The policy that the review puts in force, whose object is stored.
    pub new_policy: Option<Hash>,
    /// The number of approvals that it needs.
    pub approvals: u32,
    /// The current epoch.
    pub epoch: i64,
    /// The root as planned.
    pub root: Hash,
    /// The summary that pages show without planning again.
    pub summary: Value,
    pub risks: BTreeSet<Risk>,
    /// The person who submits it.
    pub by: PersonId,
    /// The blueprints on which the plan is based.
    pub base: BTreeMap<DeploymentId, BlueprintNumber>,
    /// Everyone who edited it.
    pub authors: BTreeSet<PersonId>,
    /// The documents that it changes.
    pub documents: Vec<DocumentChange>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReviewRow {
    pub id: ReviewId,
    pub proposal: ProposalId,
    /// The version of the proposal.
    pub version: i32,
    pub title: String,
    /// The hash of the list of documents.
    pub change: Hash,
    /// The hash of the effects.
    pub effects: Hash,
    /// The policy in force when it was submitted.
    pub policy: PolicyNumber,
    /// The number of approvals that it needed then.
    pub approvals: i32,
    /// The epoch when it was submitted.
    pub epoch: i64,
    /// The root as planned.
    pub root: Hash,
    /// The summary for pages.
    pub summary: Value,
    pub risks: Vec<String>,
    /// The policy that it puts in force.
    pub new_policy: Option<Hash>,
    /// The person who submitted it.
    pub by: PersonId,
    /// When it was submitted.
    pub at: OffsetDateTime,
    /// The blueprint that committed it.
    pub target: Option<BlueprintNumber>,
}

/// Inserts a review with all its parts.
pub async fn insert_review(
    connection: &mut PgConnection,
    new: &NewReview,
) -> Result<ReviewId, StoreError> {
    let approvals = i32::try_from(new.approvals)
        .map_err(|e| StoreError::corrupt("review.approvals_needed", e))?;
    let row = review::ActiveModel {
        proposal_id: Set(new.proposal.0),
        version: Set(new.version),
        title: Set(new.title.clone()),
        change_hash: Set(new.change.as_bytes().to_vec()),
        effects_hash: Set(new.effects.as_bytes().to_vec()),
        policy_number: Set(new.policy.0),
        new_policy_hash: Set(new.new_policy.map(|hash| hash.as_bytes().to_vec())),
        approvals_needed: Set(approvals),
        epoch: Set(new.epoch),
        root_hash: Set(new.root.as_bytes().to_vec()),
        summary: Set(new.summary.clone()),
        risk: Set(new.risks.iter().map(|risk| risk.as_str().to_owned()).collect()),
        created_by: Set(new.by.0),
        ..Default::default()
    };
    let inserted = review::Entity::insert(row).exec(&orm(connection)).await?;
    let id = inserted.last_insert_id;
    insert_review_parts(connection, id, new).await?;
    Ok(ReviewId(id))
}

async fn insert_review_parts(
    connection: &mut PgConnection,
    id: i64,
    new: &NewReview,
) -> Result<(), StoreError> {
    let (deployments, blueprints): (Vec<Uuid>, Vec<i64>) =
        new.base.iter().map(|(d, t)| (d.0, t.0)).unzip();
    sqlx::query(
        "INSERT INTO review_base (review_id, deployment_id, head_no) \
         SELECT $1, d, n FROM unnest($2::uuid[], $3::bigint[]) AS base (d, n)",
    )
    .bind(id)
    .bind(deployments)
    .bind(blueprints)
    .execute(&mut *connection)
    .await?;
    let authors: Vec<Uuid> = new.authors.iter().map(|p| p.0).collect();
    sqlx::query("INSERT INTO review_author (review_id, person_id) SELECT $1, p FROM unnest($2::uuid[]) AS p")
        .bind(id)
        .bind(authors)
        .execute(&mut *connection)
        .await?;
    let (mut kinds, mut ids, mut old_hashes, mut new_hashes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for change in &new.documents {
        let (kind, document_id, old, new_hash) = match change {
            DocumentChange::Deployment { id, old, new } => ("deployment", id.0, old, new),
            DocumentChange::Node { id, old, new } => ("node", id.0, old, new),
        };
        kinds.push(kind);
        ids.push(document_id);
        old_hashes.push(old.map(|h| h.as_bytes().to_vec()));
        new_hashes.push(new_hash.map(|h| h.as_bytes().to_vec()));
    }
    sqlx::query(
        "INSERT INTO review_document (review_id, kind, id, old_hash, new_hash) \
         SELECT $1, k, i, o, n FROM unnest($2::text[], $3::uuid[], $4::bytea[], $5::bytea[]) AS doc (k, i, o, n)",
    )
    .bind(id)
    .bind(kinds)
    .bind(ids)
    .bind(old_hashes)
    .bind(new_hashes)
    .execute(connection)
    .await?;
    Ok(())
}

#[derive(DerivePartialModel)]
#[sea_orm(entity = "review::Entity")]
struct Row {
    id: i64,
    proposal_id: i64,
    version: i32,
    title: String,
    change_hash: Vec<u8>,
    effects_hash: Vec<u8>,
    policy_number: i64,
    approvals_needed: i32,
    epoch: i64,
    root_hash: Vec<u8>,
    summary: Value,
    risk: Vec<String>,
    new_policy_hash: Option<Vec<u8>>,
    created_by: Uuid,
    created_at: OffsetDateTime,
    #[sea_orm(from_expr = "Expr::col((blueprint::Entity, blueprint::Column::Number))")]
    target: Option<i64>,
}

fn to_review(row: Row) -> Result<ReviewRow, StoreError> {
    Ok(ReviewRow {
        id: ReviewId(row.id),
        proposal: ProposalId(row.proposal_id),
        version: row.version,
        title: row.title,
        change: hash("review.change_hash", &row.change_hash)?,
        effects: hash("review.effects_hash", &row.effects_hash)?,
        policy: PolicyNumber(row.policy_number),
        approvals: row.approvals_needed,
        epoch: row.epoch,
        root: hash("review.root_hash", &row.root_hash)?,
        summary: row.summary,
        risks: row.risk,
        new_policy: row.new_policy_hash.map(|h| hash("review.new_policy_hash", &h)).transpose()?,
        by: PersonId(row.created_by),
        at: row.created_at,
        target: row.target.map(BlueprintNumber),
    })
}

pub async fn find_review(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Option<ReviewRow>, StoreError> {
    let row: Option<Row> = review::Entity::find_by_id(id.0)
        .join(JoinType::LeftJoin, join(review::Column::Id, blueprint::Column::ReviewId))
        .into_partial_model()
        .one(&orm(connection))
        .await?;
    row.map(to_review).transpose()
}

/// The review of a proposal's version, if it was submitted.
pub async fn review_of_version(
    connection: &mut PgConnection,
    proposal: ProposalId,
    version: i32,
) -> Result<Option<ReviewId>, StoreError> {
    let query = review::Entity::find()
        .filter(review::Column::ProposalId.eq(proposal.0))
        .filter(review::Column::Version.eq(version))
        .select_only()
        .column(review::Column::Id);
    Ok(query.into_tuple().one(&orm(connection)).await?.map(ReviewId))
}

/// The blueprints on which the plan of a review is based.
pub async fn base(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<BTreeMap<DeploymentId, BlueprintNumber>, StoreError> {
    let query = review_base::Entity::find()
        .filter(review_base::Column::ReviewId.eq(id.0))
        .select_only()
        .columns([review_base::Column::DeploymentId, review_base::Column::HeadNo]);
    let rows: Vec<(Uuid, i64)> = query.into_tuple().all(&orm(connection)).await?;
    Ok(rows.into_iter().map(|(d, n)| (DeploymentId(d), BlueprintNumber(n))).collect())
}

/// The documents that a review changes, deployments first, each kind ordered by id.
pub async fn documents(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<DocumentChange>, StoreError> {
    type Row = (String, Uuid, Option<Vec<u8>>, Option<Vec<u8>>);
    let rows: Vec<Row> = review_document::Entity::find()
        .filter(review_document::Column::ReviewId.eq(id.0))
        .order_by_asc(review_document::Column::Kind)
        .order_by_asc(review_document::Column::Id)
        .select_only()
        .columns([
            review_document::Column::Kind,
            review_document::Column::Id,
            review_document::Column::OldHash,
            review_document::Column::NewHash,
        ])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    let read = |bytes: Option<Vec<u8>>| bytes.map(|b| hash("review_document", &b)).transpose();
    let change = |(kind, id, old, new): Row| {
        let (old, new) = (read(old)?, read(new)?);
        Ok(match kind.as_str() {
            "deployment" => DocumentChange::Deployment { id: DeploymentId(id), old, new },
            _ => DocumentChange::Node { id: NodeId(id), old, new },
        })
    };
    rows.into_iter().map(change).collect()
}

/// A person in a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    pub id: PersonId,
    pub name: String,
    /// Whether they are human, enabled and have the reviewer permission now.
    pub reviewer: bool,
}

fn to_person((id, name, reviewer): (Uuid, String, bool)) -> PersonRow {
    PersonRow { id: PersonId(id), name, reviewer }
}

/// Everyone who edited a review.
pub async fn authors(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<PersonRow>, StoreError> {
    let rows: Vec<(Uuid, String)> = review_author::Entity::find()
        .join(JoinType::InnerJoin, join(review_author::Column::PersonId, person::Column::Id))
        .filter(review_author::Column::ReviewId.eq(id.0))
        .order_by_asc(person::Column::Name)
        .select_only()
        .columns([person::Column::Id, person::Column::Name])
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(rows.into_iter().map(|(id, name)| to_person((id, name, false))).collect())
}

/// A person with one of the permissions in at least a part of the tree.
const HAS_PERMISSION_ANYWHERE: &str = "(p.permissions && $1 OR EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = p.id AND g.permission = ANY ($1)))";

/// Everyone who may review anywhere in the tree now, at most 1,000.
pub async fn reviewers(connection: &mut PgConnection) -> Result<Vec<PersonId>, StoreError> {
    let sql = format!(
        "SELECT p.id FROM person p WHERE p.kind = 'human' AND NOT p.disabled AND {HAS_PERMISSION_ANYWHERE} ORDER BY p.name LIMIT 1000"
    );
    let ids: Vec<Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(&["reviewer"][..])
        .fetch_all(connection)
        .await?;
    Ok(ids.into_iter().map(PersonId).collect())
}

/// Everyone who may review all deployments that a review touches now, at most 1,000.
pub async fn eligible_reviewers(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<PersonRow>, StoreError> {
    // `touched_by` is evaluated once, and only if a scoped grant requires it.
    let sql = format!(
        "SELECT p.id, p.name, true FROM person p WHERE p.kind = 'human' AND NOT p.disabled AND {HAS_PERMISSION_ANYWHERE}
           AND CASE WHEN p.permissions && $1 THEN true ELSE has_permission_in(p, $1, (SELECT touched_by($2))) END
         ORDER BY p.name LIMIT 1000"
    );
    let rows: Vec<(Uuid, String, bool)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(&["reviewer"][..])
        .bind(id.0)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(to_person).collect())
}

/// Everyone who may edit, review or administer all deployments that a review touches now. Returns
/// names and the permissions, at most 1,000 people.
pub async fn able(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<(String, Vec<String>)>, StoreError> {
    let sql = format!(
        "SELECT p.name, CASE WHEN EXISTS (SELECT FROM scoped_grant g WHERE g.person_id = p.id)
           THEN ARRAY(SELECT w FROM unnest($1::text[]) AS w WHERE has_permission_in(p, ARRAY[w], (SELECT touched_by($2)))) ELSE p.permissions END
         FROM person p WHERE p.kind = 'human' AND NOT p.disabled AND {HAS_PERMISSION_ANYWHERE} ORDER BY p.name LIMIT 1000"
    );
    let able = sqlx::query_as(sqlx::AssertSqlSafe(sql));
    Ok(able.bind(&["operator", "reviewer", "admin"][..]).bind(id.0).fetch_all(connection).await?)
}

/// The deployments that a review touches. A person needs the permission in all of them to submit,
/// review or commit it.
pub async fn touched(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<BTreeSet<DeploymentId>, StoreError> {
    let touched: Vec<Uuid> =
        sqlx::query_scalar("SELECT touched_by($1)").bind(id.0).fetch_one(connection).await?;
    Ok(touched.into_iter().map(DeploymentId).collect())
}

/// The deployments that each of these reviews touches.
pub async fn affected_deployments_by_review(
    connection: &mut PgConnection,
    ids: &[ReviewId],
) -> Result<BTreeMap<ReviewId, BTreeSet<DeploymentId>>, StoreError> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows: Vec<(i64, Vec<Uuid>)> =
        sqlx::query_as("SELECT s, touched_by(s) FROM unnest($1::bigint[]) AS s")
            .bind(ids)
            .fetch_all(connection)
            .await?;
    Ok(rows
        .into_iter()
        .map(|(id, places)| (ReviewId(id), places.into_iter().map(DeploymentId).collect()))
        .collect())
}

/// The present state of these people, and whether they may review all deployments that a review
/// touches. With `lock`, their permissions cannot change until the transaction ends, so that a
/// commit counts consistent verdicts.
pub async fn people(
    connection: &mut PgConnection,
    ids: &[PersonId],
    review: ReviewId,
    lock: bool,
) -> Result<Vec<PersonRow>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|p| p.0).collect();
    if lock {
        // The lock needs its own statement, so that the next statement sees the changes of the
        // transaction that it waited for.
        sqlx::query("SELECT FROM person WHERE id = ANY($1) ORDER BY id FOR SHARE")
            .bind(&ids)
            .execute(&mut *connection)
            .await?;
    }
    let rows: Vec<(Uuid, String, bool)> = sqlx::query_as(
        "SELECT p.id, p.name, p.kind = 'human' AND NOT p.disabled
           AND CASE WHEN p.permissions && $2 THEN true ELSE has_permission_in(p, $2, (SELECT touched_by($3))) END
         FROM person p WHERE p.id = ANY($1) ORDER BY p.id",
    )
    .bind(ids)
    .bind(&["reviewer"][..])
    .bind(review.0)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(to_person).collect())
}

/// A person in a list of reviews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewerRow {
    pub id: PersonId,
    pub name: String,
    /// Whether they are human, enabled and may review everywhere.
    pub everywhere: bool,
    /// The other deployments where they may review.
    pub inside: BTreeSet<DeploymentId>,
}

/// The present state of these people, and where they may review.
pub async fn review_rights(
    connection: &mut PgConnection,
    ids: &[PersonId],
) -> Result<Vec<ReviewerRow>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|p| p.0).collect();
    let rows: Vec<(Uuid, String, bool, Vec<Uuid>)> = sqlx::query_as(
        "SELECT p.id, p.name, p.kind = 'human' AND NOT p.disabled AND 'reviewer' = ANY (p.permissions),
           CASE WHEN p.kind = 'human' AND NOT p.disabled
             THEN ARRAY(SELECT c.deployment_id FROM granted_deployments(p.id) c WHERE c.permission = 'reviewer') ELSE '{}' END
         FROM person p WHERE p.id = ANY($1) ORDER BY p.id",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let row = |(id, name, everywhere, inside): (Uuid, String, bool, Vec<Uuid>)| ReviewerRow {
        id: PersonId(id),
        name,
        everywhere,
        inside: inside.into_iter().map(DeploymentId).collect(),
    };
    Ok(rows.into_iter().map(row).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictRow {
    pub id: i64,
    pub person: PersonId,
    pub name: String,
    pub kind: VerdictKind,
    pub reason: String,
    pub at: OffsetDateTime,
    /// Whether the account was disabled since, which voids the verdict.
    pub void: bool,
}

/// All verdicts of people, oldest first.
pub async fn verdicts(
    connection: &mut PgConnection,
    id: ReviewId,
) -> Result<Vec<VerdictRow>, StoreError> {
    #[derive(DerivePartialModel)]
    #[sea_orm(entity = "verdict::Entity")]
    struct Row {
        id: i64,
        person_id: Uuid,
        #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
        name: String,
        kind: String,
        reason: String,
        at: OffsetDateTime,
        #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::VerdictsVoidTo))")]
        void_to: i64,
    }
    let rows: Vec<Row> = verdict::Entity::find()
        .join(JoinType::InnerJoin, join(verdict::Column::PersonId, person::Column::Id))
        .filter(verdict::Column::ReviewId.eq(id.0))
        .order_by_asc(verdict::Column::Id)
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    let verdict = |row: Row| {
        let all = [VerdictKind::Approve, VerdictKind::RequestChanges, VerdictKind::Reject];
        let known = all.into_iter().find(|kind| kind.as_str() == row.kind);
        Ok(VerdictRow {
            id: row.id,
            person: PersonId(row.person_id),
            name: row.name,
            kind: known.ok_or_else(|| StoreError::corrupt("verdict.kind", row.kind))?,
            reason: row.reason,
            at: row.at,
            void: row.id <= row.void_to,
        })
    };
    rows.into_iter().map(verdict).collect()
}

/// Adds a verdict and returns its id. The caller holds the proposal's lock.
pub async fn insert_verdict(
    connection: &mut PgConnection,
    id: ReviewId,
    person: PersonId,
    kind: VerdictKind,
    reason: &str,
) -> Result<i64, StoreError> {
    let row = verdict::ActiveModel {
        review_id: Set(id.0),
        person_id: Set(Some(person.0)),
        kind: Set(kind.as_str().to_owned()),
        reason: Set(reason.to_owned()),
        ..Default::default()
    };
    let inserted = verdict::Entity::insert(row).exec(&orm(connection)).await?;
    Ok(inserted.last_insert_id)
}

/// Records that a person was refused an action on a review. It records nothing if the review does
/// not exist, or if an equal refusal was recorded within [`REFUSAL_INTERVAL`]. The audit is
/// permanent, and even a person without permissions can cause any number of refusals.
///
/// The check reads the rows, so it works across all servers. Concurrent requests may each record a
/// refusal. The index `audit_at` limits the scan to that time span.
pub async fn append_refusal(
    connection: &mut PgConnection,
    actor: PersonId,
    action: &str,
    id: ReviewId,
    code: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO audit (actor, action, subject, detail) \
         SELECT $1, $2, s.id::text, $4 FROM review s WHERE s.id = $3 AND NOT EXISTS ( \
           SELECT FROM audit a WHERE a.at > now() - make_interval(secs => $5) \
             AND a.actor = $1 AND a.action = $2 AND a.subject = s.id::text AND a.detail = $4)",
    )
    .bind(actor.0)
    .bind(action)
    .bind(id.0)
    .bind(add_token(json!({"refused": code})))
    .bind(REFUSAL_INTERVAL.as_secs_f64())
    .execute(connection)
    .await?;
    Ok(())
}
