//! Discussions: comments, threads, and the reviews that each person viewed.
//!
//! The text of a comment never changes. A thread is identified by its first comment, which is also
//! the row that is resolved and reopened. Writers hold the proposal's lock, as a commit does, so no
//! thread is opened between check and commit.

use engine::ids::{CommentId, PersonId, ProposalId, ReviewId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
    Select, Set,
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{comment, join, person, review, review_view};

/// The maximum number of comments per proposal.
pub const MAX_COMMENTS: i64 = 2_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentRow {
    pub id: CommentId,
    pub review: ReviewId,
    /// The thread of a reply. `None`: the comment opens a thread.
    pub thread: Option<CommentId>,
    /// The change that the thread is about.
    pub anchor: String,
    pub person: PersonId,
    pub name: String,
    pub body: String,
    pub at: OffsetDateTime,
    /// The name of the person who resolved the thread, and the time.
    pub resolved: Option<(String, OffsetDateTime)>,
}

/// The alias of the person who resolved a thread.
const RESOLVER: &str = "resolver";

#[derive(DerivePartialModel)]
#[sea_orm(entity = "comment::Entity")]
struct Row {
    id: i64,
    review_id: i64,
    thread_id: Option<i64>,
    anchor: String,
    person_id: Uuid,
    #[sea_orm(from_expr = "Expr::col((person::Entity, person::Column::Name))")]
    name: String,
    body: String,
    at: OffsetDateTime,
    #[sea_orm(from_expr = "Expr::col((RESOLVER, person::Column::Name))")]
    resolver: Option<String>,
    resolved_at: Option<OffsetDateTime>,
    #[sea_orm(from_expr = "Expr::col((review::Entity, review::Column::ProposalId))")]
    proposal_id: i64,
}

/// Comments with their people and proposals.
fn comment_query() -> Select<comment::Entity> {
    comment::Entity::find()
        .join(JoinType::InnerJoin, join(comment::Column::ReviewId, review::Column::Id))
        .join(JoinType::InnerJoin, join(comment::Column::PersonId, person::Column::Id))
        .join_as(
            JoinType::LeftJoin,
            join(comment::Column::ResolvedBy, person::Column::Id),
            RESOLVER,
        )
}

fn to_comment(row: Row) -> CommentRow {
    CommentRow {
        id: CommentId(row.id),
        review: ReviewId(row.review_id),
        thread: row.thread_id.map(CommentId),
        anchor: row.anchor,
        person: PersonId(row.person_id),
        name: row.name,
        body: row.body,
        at: row.at,
        resolved: row.resolver.zip(row.resolved_at),
    }
}

/// All comments on the reviews of a proposal, oldest first.
pub async fn comments(
    connection: &mut PgConnection,
    proposal: ProposalId,
) -> Result<Vec<CommentRow>, StoreError> {
    let rows = comment_query()
        .filter(review::Column::ProposalId.eq(proposal.0))
        .order_by_asc(comment::Column::Id)
        .limit(MAX_COMMENTS.unsigned_abs())
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    Ok(rows.into_iter().map(to_comment).collect())
}

/// The first comment of a thread, and its proposal. `None`: the comment does not open a thread.
pub async fn thread(
    connection: &mut PgConnection,
    id: CommentId,
) -> Result<Option<(CommentRow, ProposalId)>, StoreError> {
    let row: Option<Row> = comment_query()
        .filter(comment::Column::Id.eq(id.0))
        .filter(comment::Column::ThreadId.is_null())
        .into_partial_model()
        .one(&orm(connection))
        .await?;
    Ok(row.map(|row| {
        let proposal = ProposalId(row.proposal_id);
        (to_comment(row), proposal)
    }))
}

/// The people who opened the unresolved threads of a proposal.
pub async fn open_threads(
    connection: &mut PgConnection,
    proposal: ProposalId,
) -> Result<Vec<String>, StoreError> {
    let rows = comment::Entity::find()
        .join(JoinType::InnerJoin, join(comment::Column::ReviewId, review::Column::Id))
        .join(JoinType::InnerJoin, join(comment::Column::PersonId, person::Column::Id))
        .filter(review::Column::ProposalId.eq(proposal.0))
        .filter(comment::Column::ThreadId.is_null())
        .filter(comment::Column::ResolvedBy.is_null())
        .order_by_asc(comment::Column::Id)
        .limit(MAX_COMMENTS.unsigned_abs())
        .select_only()
        .column(person::Column::Name)
        .into_tuple()
        .all(&orm(connection))
        .await?;
    Ok(rows)
}

/// A comment to insert.
#[derive(Debug, Clone)]
pub struct NewComment<'a> {
    pub review: ReviewId,
    /// The thread of a reply. `None`: the comment opens a thread.
    pub thread: Option<CommentId>,
    /// The change that it is about. Empty in replies.
    pub anchor: &'a str,
    pub person: PersonId,
    pub body: &'a str,
}

/// Appends a comment. The caller holds the proposal's lock.
pub async fn append_comment(
    connection: &mut PgConnection,
    new: &NewComment<'_>,
) -> Result<CommentId, StoreError> {
    let row = comment::ActiveModel {
        review_id: Set(new.review.0),
        thread_id: Set(new.thread.map(|thread| thread.0)),
        anchor: Set(new.anchor.to_owned()),
        person_id: Set(new.person.0),
        body: Set(new.body.to_owned()),
        ..Default::default()
    };
    let inserted = comment::Entity::insert(row).exec(&orm(connection)).await?;
    Ok(CommentId(inserted.last_insert_id))
}

/// Resolves a thread, or reopens it with `None`. `false`: nothing changed. The caller holds the
/// proposal's lock.
pub async fn set_resolved(
    connection: &mut PgConnection,
    thread: CommentId,
    by: Option<PersonId>,
) -> Result<bool, StoreError> {
    let mut query = comment::Entity::update_many()
        .col_expr(comment::Column::ResolvedBy, Expr::value(by.map(|person| person.0)))
        .filter(comment::Column::Id.eq(thread.0))
        .filter(comment::Column::ThreadId.is_null());
    query = match by {
        Some(_) => query
            .col_expr(comment::Column::ResolvedAt, Expr::current_timestamp())
            .filter(comment::Column::ResolvedBy.is_null()),
        None => query
            .col_expr(comment::Column::ResolvedAt, Expr::cust("NULL"))
            .filter(comment::Column::ResolvedBy.is_not_null()),
    };
    Ok(query.exec(&orm(connection)).await?.rows_affected == 1)
}

/// The reviews of a proposal that a person viewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewedReviews {
    /// The newest viewed review.
    pub review: ReviewId,
    /// The review that they viewed before.
    pub before: Option<ReviewId>,
}

pub async fn viewed_reviews(
    connection: &mut PgConnection,
    person: PersonId,
    proposal: ProposalId,
) -> Result<Option<ViewedReviews>, StoreError> {
    let query = review_view::Entity::find_by_id((person.0, proposal.0))
        .select_only()
        .columns([review_view::Column::ReviewId, review_view::Column::BeforeId]);
    let row: Option<(i64, Option<i64>)> = query.into_tuple().one(&orm(connection)).await?;
    Ok(row.map(|(review, before)| ViewedReviews {
        review: ReviewId(review),
        before: before.map(ReviewId),
    }))
}

/// Records that a person viewed a review. Viewing an older one changes nothing.
pub async fn ensure_viewed(
    connection: &mut PgConnection,
    person: PersonId,
    proposal: ProposalId,
    review: ReviewId,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO review_view (person_id, proposal_id, review_id) VALUES ($1, $2, $3) \
         ON CONFLICT (person_id, proposal_id) DO UPDATE SET before_id = review_view.review_id, review_id = $3, at = now() \
         WHERE review_view.review_id < $3",
    )
    .bind(person.0)
    .bind(proposal.0)
    .bind(review.0)
    .execute(connection)
    .await?;
    Ok(())
}
