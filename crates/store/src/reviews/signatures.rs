//! Signatures of verdicts with passkeys.

use crate::StoreError;
use crate::connect::orm;
use crate::entity::{join, verdict, verdict_signature};
use crate::people::passkeys::parse_nonce;
use engine::gate::VerdictKind;
use engine::gate::signature::{Assertion, Nonce, SignedReview, VerdictSignature};
use engine::ids::{PasskeyId, PersonId, ReviewId};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ColumnTrait, DerivePartialModel, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect,
    Set,
};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The signature of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureRow {
    pub review: ReviewId,
    pub verdict: i64,
    /// The person who gave the verdict.
    pub person: PersonId,
    pub kind: VerdictKind,
    pub passkey: PasskeyId,
    /// The nonce in the signed statement.
    pub nonce: Nonce,
    pub assertion: Assertion,
}

impl SignatureRow {
    /// The input of [`engine::gate::signature::check_verdicts`].
    pub fn signed(&self) -> VerdictSignature<'_> {
        VerdictSignature {
            person: self.person,
            verdict: self.kind,
            passkey: self.passkey,
            nonce: self.nonce,
            assertion: &self.assertion,
        }
    }
}

/// Inserts the signature of a verdict. `false`: this signature was already used.
pub async fn insert_signature(
    connection: &mut PgConnection,
    verdict: i64,
    passkey: PasskeyId,
    nonce: Nonce,
    assertion: &Assertion,
) -> Result<bool, StoreError> {
    let row = verdict_signature::ActiveModel {
        verdict_id: Set(verdict),
        passkey_id: Set(passkey.0),
        nonce: Set(nonce.0.to_vec()),
        client_data: Set(assertion.client_data.clone()),
        authenticator_data: Set(assertion.authenticator_data.clone()),
        signature: Set(assertion.signature.clone()),
        ..Default::default()
    };
    let used = OnConflict::column(verdict_signature::Column::Message).do_nothing().to_owned();
    let query = verdict_signature::Entity::insert(row).on_conflict(used);
    Ok(query.exec_without_returning(&orm(connection)).await? > 0)
}

/// The reviews in a list whose approvals must be signed, each with the parts that a signature
/// covers.
pub async fn demanded(
    connection: &mut PgConnection,
    reviews: &[ReviewId],
) -> Result<BTreeMap<ReviewId, SignedReview>, StoreError> {
    let ids: Vec<i64> = reviews.iter().map(|id| id.0).collect();
    let sql = "SELECT s.id, audit_review(s) FROM review s JOIN signature_demand g ON g.review_id = s.id \
               WHERE s.id = ANY($1)";
    let rows: Vec<(i64, Value)> = sqlx::query_as(sql).bind(ids).fetch_all(connection).await?;
    rows.into_iter().map(|(id, json)| Ok((ReviewId(id), parse_signed_review(json)?))).collect()
}

/// The parts of a review that a signature covers. `None`: there is no such review.
pub async fn reviewed(
    connection: &mut PgConnection,
    review: ReviewId,
) -> Result<Option<SignedReview>, StoreError> {
    let sql = "SELECT audit_review(s) FROM review s WHERE s.id = $1";
    let json: Option<Value> =
        sqlx::query_scalar(sql).bind(review.0).fetch_optional(connection).await?;
    json.map(parse_signed_review).transpose()
}

fn parse_signed_review(json: Value) -> Result<SignedReview, StoreError> {
    serde_json::from_value(json).map_err(|error| StoreError::corrupt("review", error))
}

/// The signatures of verdicts on these reviews, ordered by verdict. They include signatures with
/// passkeys that were revoked later.
pub async fn signatures(
    connection: &mut PgConnection,
    reviews: &[ReviewId],
) -> Result<Vec<SignatureRow>, StoreError> {
    #[derive(DerivePartialModel)]
    #[sea_orm(entity = "verdict_signature::Entity")]
    struct Raw {
        #[sea_orm(from_expr = "Expr::col((verdict::Entity, verdict::Column::ReviewId))")]
        review_id: i64,
        verdict_id: i64,
        #[sea_orm(from_expr = "Expr::col((verdict::Entity, verdict::Column::PersonId))")]
        person_id: Uuid,
        #[sea_orm(from_expr = "Expr::col((verdict::Entity, verdict::Column::Kind))")]
        kind: String,
        passkey_id: Uuid,
        nonce: Vec<u8>,
        client_data: Vec<u8>,
        authenticator_data: Vec<u8>,
        signature: Vec<u8>,
    }
    let rows: Vec<Raw> = verdict_signature::Entity::find()
        .join(JoinType::InnerJoin, join(verdict_signature::Column::VerdictId, verdict::Column::Id))
        .filter(verdict::Column::ReviewId.eq_any(reviews.iter().map(|id| id.0)))
        .filter(verdict::Column::PersonId.is_not_null())
        .order_by_asc(verdict::Column::Id)
        .into_partial_model()
        .all(&orm(connection))
        .await?;
    let row = |raw: Raw| {
        let kind = [VerdictKind::Approve, VerdictKind::RequestChanges, VerdictKind::Reject];
        let kind = kind.into_iter().find(|kind| kind.as_str() == raw.kind);
        Ok(SignatureRow {
            review: ReviewId(raw.review_id),
            verdict: raw.verdict_id,
            person: PersonId(raw.person_id),
            kind: kind.ok_or_else(|| StoreError::corrupt("verdict.kind", raw.kind))?,
            passkey: PasskeyId(raw.passkey_id),
            nonce: parse_nonce("verdict_signature.nonce", &raw.nonce)?,
            assertion: Assertion {
                client_data: raw.client_data,
                authenticator_data: raw.authenticator_data,
                signature: raw.signature,
            },
        })
    };
    rows.into_iter().map(row).collect()
}
