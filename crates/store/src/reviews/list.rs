//! Lists of reviews.
//!
//! A page of a list takes a fixed number of statements, independent of its number of rows. A search
//! scans a window of rows and returns the start of the next window. This bounds the cost of a page.

use std::collections::BTreeSet;

use engine::gate::{LeftHold, Verdict, VerdictKind};
use engine::ids::{BlueprintNumber, DeploymentId, NodeId, PersonId, PolicyNumber, ReviewId};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::list::ColumnType;
use crate::{Key, Page, Sort, StoreError};

/// The number of reviews that one page of a search scans.
pub const WINDOW: i64 = 5_000;
/// The maximum number of open threads listed per review.
const MAX_THREADS: i64 = 100;

/// The facts that the gate needs about a review, as far as it needs no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactsRow {
    pub id: ReviewId,
    /// Whether its proposal is open and this review has its newest version.
    pub newest: bool,
    /// The blueprint that committed it.
    pub target: Option<BlueprintNumber>,
    /// Whether its proposal was discarded.
    pub discarded: bool,
    /// The policy in force when it was submitted.
    pub policy: PolicyNumber,
    /// The epoch when it was submitted.
    pub epoch: i64,
    /// The number of approvals that it needed then.
    pub approvals: i32,
    pub risks: Vec<String>,
    /// Everyone who edited it.
    pub authors: BTreeSet<PersonId>,
    /// All verdicts of people, oldest first.
    pub verdicts: Vec<Verdict>,
    /// People whose last verdict is signed, as recorded in the database. `None`: approvals need no
    /// signature.
    pub signed: Option<BTreeSet<PersonId>>,
    /// When it was submitted, in microseconds since 1970.
    pub submitted: i64,
    /// The people who opened the unresolved threads.
    pub threads: Vec<String>,
    /// As [`super::moved_base`].
    pub moved_base: Vec<(String, i64)>,
    /// As [`super::left_holds`].
    pub left_holds: Vec<LeftHold>,
}

#[derive(sqlx::FromRow)]
struct Facts {
    id: i64,
    newest: bool,
    target: Option<i64>,
    discarded: bool,
    policy_number: i64,
    epoch: i64,
    approvals_needed: i32,
    risk: Vec<String>,
    authors: Vec<Uuid>,
    reviewers: Vec<Uuid>,
    verdicts: Vec<String>,
    given_at: Vec<i64>,
    void: Vec<bool>,
    demanded: bool,
    signed: Vec<Uuid>,
    submitted: i64,
    threads: Vec<String>,
    moved: Json<Vec<(String, i64)>>,
    left_holds: Json<Vec<(String, String, String)>>,
}

const FACTS: &str = include_str!("statements/facts.sql");

fn to_review_facts(row: Facts) -> Result<FactsRow, StoreError> {
    let all = [VerdictKind::Approve, VerdictKind::RequestChanges, VerdictKind::Reject];
    let kind = |word: &String| {
        all.into_iter()
            .find(|k| k.as_str() == word)
            .ok_or_else(|| StoreError::corrupt("verdict.kind", word))
    };
    let kinds: Vec<VerdictKind> = row.verdicts.iter().map(kind).collect::<Result<_, _>>()?;
    let given = row.reviewers.into_iter().zip(kinds).zip(row.given_at).zip(row.void);
    let verdict =
        |(((person, kind), at), void)| Verdict { person: PersonId(person), kind, at, void };
    Ok(FactsRow {
        id: ReviewId(row.id),
        newest: row.newest,
        target: row.target.map(BlueprintNumber),
        discarded: row.discarded,
        policy: PolicyNumber(row.policy_number),
        epoch: row.epoch,
        approvals: row.approvals_needed,
        risks: row.risk,
        authors: row.authors.into_iter().map(PersonId).collect(),
        verdicts: given.map(verdict).collect(),
        signed: row.demanded.then(|| row.signed.into_iter().map(PersonId).collect()),
        submitted: row.submitted,
        threads: row.threads,
        moved_base: row.moved.0,
        left_holds: row
            .left_holds
            .0
            .into_iter()
            .map(|(moved, on_hold, by)| LeftHold { moved, on_hold, by })
            .collect(),
    })
}

/// The facts of the newest reviews of open proposals, newest first.
pub async fn open_review_facts(
    connection: &mut PgConnection,
    limit: i64,
) -> Result<Vec<FactsRow>, StoreError> {
    let query = format!(
        "{FACTS} FROM proposal p JOIN review s ON s.proposal_id = p.id AND s.version = p.version \
         LEFT JOIN blueprint t ON t.review_id = s.id WHERE p.state = 'open' ORDER BY s.id DESC LIMIT $1"
    );
    let query = sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(limit).bind(MAX_THREADS);
    let rows: Vec<Facts> = query.fetch_all(connection).await?;
    rows.into_iter().map(to_review_facts).collect()
}

/// The facts of these reviews, newest first.
pub async fn facts_of(
    connection: &mut PgConnection,
    ids: &[ReviewId],
) -> Result<Vec<FactsRow>, StoreError> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let query = format!(
        "{FACTS} FROM review s JOIN proposal p ON p.id = s.proposal_id LEFT JOIN blueprint t ON t.review_id = s.id \
         WHERE s.id = ANY($1) ORDER BY s.id DESC"
    );
    let query = sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(ids).bind(MAX_THREADS);
    let rows: Vec<Facts> = query.fetch_all(connection).await?;
    rows.into_iter().map(to_review_facts).collect()
}

/// The text columns of a review in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRow {
    pub id: ReviewId,
    pub title: String,
    /// The name of the deployment when it was submitted.
    pub deployment: String,
    pub deployment_id: DeploymentId,
    /// The only node that it may change, with its name.
    pub node: Option<(NodeId, String)>,
    /// The names of its authors.
    pub authors: Vec<String>,
    /// When it was submitted.
    pub at: OffsetDateTime,
    /// The most severe effect and the number of other effects.
    pub summary: String,
    /// Whether its base changed and its edits cannot be replanned, so that it is back with its
    /// authors.
    pub sent_back: bool,
}

/// The text columns of these reviews, newest first.
pub async fn lines_of(
    connection: &mut PgConnection,
    ids: &[ReviewId],
) -> Result<Vec<LineRow>, StoreError> {
    type Row = (
        i64,
        String,
        String,
        Uuid,
        Option<Uuid>,
        Option<String>,
        Vec<String>,
        OffsetDateTime,
        String,
        bool,
    );
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let rows: Vec<Row> = sqlx::query_as(include_str!("statements/lines.sql"))
        .bind(ids)
        .fetch_all(connection)
        .await?;
    let to_row =
        |(id, title, deployment, place, node, fqdn, authors, at, summary, sent_back): Row| {
            LineRow {
                id: ReviewId(id),
                title,
                deployment,
                deployment_id: DeploymentId(place),
                node: node.map(NodeId).zip(fqdn),
                authors,
                at,
                summary,
                sent_back,
            }
        };
    Ok(rows.into_iter().map(to_row).collect())
}

/// The outcome of a review, as a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewOutcome {
    /// The newest reviews of open proposals.
    Open,
    /// Committed.
    Target,
    /// Their proposals were discarded.
    Discarded,
    /// No filter.
    Anything,
}

/// A search for reviews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Find<'f> {
    pub outcome: ReviewOutcome,
    /// Only reviews with this author.
    pub author: Option<PersonId>,
    /// Only reviews of this deployment, or of a node in it when the proposal was opened.
    pub deployment: Option<DeploymentId>,
    /// Only reviews with this text in the title.
    pub text: Option<&'f str>,
}

/// A review in a search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub id: i64,
    pub title: String,
}

impl Hit {
    pub const BY_ID: Sort<Self> =
        Sort { columns: &[("s.id", ColumnType::Number)], keys: |hit| vec![hit.id.into()] };
    pub const BY_TITLE: Sort<Self> = Sort {
        columns: &[("s.title", ColumnType::Text), ("s.id", ColumnType::Number)],
        keys: |hit| vec![hit.title.as_str().into(), hit.id.into()],
    };
}

/// A page of search results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewHits {
    /// In the requested order.
    pub hits: Vec<Hit>,
    /// The last row scanned, as the cursor of the next page. `None`: there are no more.
    pub next: Option<Hit>,
}

/// A page of reviews in an order. A search for open reviews covers all of them. Other searches
/// cover a window after the cursor.
pub async fn find_reviews(
    connection: &mut PgConnection,
    find: &Find<'_>,
    page: &Page<Hit>,
) -> Result<ReviewHits, StoreError> {
    let (window, state_filter, outcome_filter) = match find.outcome {
        ReviewOutcome::Open => (i64::MAX, "p.state = 'open' AND p.version = s.version AND", "true"),
        ReviewOutcome::Target => {
            (WINDOW, "", "EXISTS (SELECT FROM blueprint t WHERE t.review_id = s.id)")
        }
        ReviewOutcome::Discarded => (WINDOW, "", "s.state = 'discarded'"),
        ReviewOutcome::Anything => (WINDOW, "", "true"),
    };
    let author = find.author.map_or(
        "",
        |_| "EXISTS (SELECT FROM review_author a WHERE a.person_id = $3 AND a.review_id = s.id) AND",
    );
    let deployment = find.deployment.map_or("", |_| "p.deployment_id = $4 AND");
    let (title, id) = match page.after.as_deref() {
        Some([Key::Text(title), Key::Number(id)]) => (Some(title.as_str()), Some(*id)),
        Some([Key::Number(id)]) => (None, Some(*id)),
        _ => (None, None),
    };
    let placeholders = if title.is_some() { &["$7", "$1"][..] } else { &["$1"] };
    let (compared, order_by) = (page.compared(placeholders), page.order_by());
    let query = format!(
        include_str!("statements/find_reviews.sql"),
        state_filter = state_filter,
        author = author,
        deployment = deployment,
        compared = compared,
        order_by = order_by,
        outcome_filter = outcome_filter,
    );
    // Escapes wildcards, because search texts are not patterns.
    let text = find.text.map(|text| {
        format!("%{}%", text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_"))
    });
    type Row = (Vec<i64>, Vec<String>, i64, Option<i64>, Option<String>);
    let (ids, titles, scanned, last, last_title): Row = sqlx::query_as(sqlx::AssertSqlSafe(query))
        .bind(id)
        .bind(window)
        .bind(find.author.map(|author| author.0))
        .bind(find.deployment.map(|deployment| deployment.0))
        .bind(text)
        .bind(i64::try_from(page.limit).unwrap_or(i64::MAX).saturating_add(1))
        .bind(title)
        .fetch_one(connection)
        .await?;
    let mut hits: Vec<Hit> =
        ids.into_iter().zip(titles).map(|(id, title)| Hit { id, title }).collect();
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let has_more = hits.len() > limit;
    hits.truncate(limit);
    let next = match has_more {
        true => hits.last().cloned(),
        false => {
            last.zip(last_title).filter(|_| scanned >= window).map(|(id, title)| Hit { id, title })
        }
    };
    Ok(ReviewHits { hits, next })
}
