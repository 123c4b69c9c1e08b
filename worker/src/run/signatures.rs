//! Verifies the signed approvals of the target history.
//!
//! A target contains the documents of all targets before it. So a run starts only if every target
//! up to its own has the signed approvals that its policy required. Otherwise a forged target below
//! an honest one could add its data, or a policy without signatures.
//!
//! A signature covers the hash of the change. The worker computes that hash from the documents of
//! the submission. Otherwise an attacker with the server's role could get one change signed and
//! list the documents of another.
//!
//! The database's triggers count signatures but can't verify them. This check stops an attacker who
//! has the server's database role and the sessions of all users of that server. They can commit a
//! target with invented signatures, but no worker executes it.
//!
//! Each worker process verifies each target once per epoch. A new target that requires no
//! signatures costs one indexed query.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engine::blueprint::change_hash;
use engine::counting::many;
use engine::gate::signature::check_verdicts;
use engine::ids::{BlueprintNumber, ReviewId};
use sqlx::PgPool;
use store::StoreError;
use store::runs::{Approval, SignedBlueprint};
use tokio::sync::Mutex;

use super::approvals::required_approvals;
use super::refusal::Refusal;
use crate::database::objects::Objects;

/// Targets verified in one round of queries.
const BATCH: i64 = 200;

/// The targets that this worker has verified.
pub(super) struct SignatureVerifier {
    pool: PgPool,
    objects: Arc<Objects>,
    /// The epoch, and the last verified target of the history.
    verified: Mutex<(i64, BlueprintNumber)>,
    /// A copy of `verified` for readers that must not wait; 0 while the epoch is unknown.
    fast: (AtomicI64, AtomicI64),
}

impl SignatureVerifier {
    pub(super) fn of(pool: PgPool, objects: Arc<Objects>) -> Self {
        let verified = Mutex::new((0, BlueprintNumber(0)));
        Self { pool, objects, verified, fast: (AtomicI64::new(0), AtomicI64::new(0)) }
    }

    /// Verifies the target history up to `to`.
    ///
    /// # Errors
    /// The first target that lacks signed approvals, or a database error.
    pub(super) async fn check(&self, epoch: i64, up_to: BlueprintNumber) -> Result<(), Refusal> {
        if self.fast.0.load(Ordering::Acquire) == epoch
            && self.fast.1.load(Ordering::Acquire) >= up_to.0
        {
            return Ok(());
        }
        let mut verified = self.verified.lock().await;
        // After a restore, the same numbers may belong to other targets.
        if verified.0 != epoch {
            *verified = (epoch, BlueprintNumber(0));
            self.fast.1.store(0, Ordering::Release);
            self.fast.0.store(epoch, Ordering::Release);
        }
        while verified.1 < up_to {
            let blueprints =
                store::runs::signed_blueprints(&self.pool, verified.1, up_to, BATCH).await?;
            self.check_all(&blueprints).await?;
            let is_full = i64::try_from(blueprints.len()).is_ok_and(|count| count == BATCH);
            verified.1 =
                blueprints.last().filter(|_| is_full).map_or(up_to, |target| target.number);
            self.fast.1.store(verified.1.0, Ordering::Release);
        }
        Ok(())
    }

    async fn check_all(&self, blueprints: &[SignedBlueprint]) -> Result<(), Refusal> {
        if blueprints.is_empty() {
            return Ok(());
        }
        let reviews: Vec<ReviewId> = blueprints.iter().map(|target| target.review).collect();
        let mut connection = self.pool.acquire().await.map_err(StoreError::from)?;
        let signed_reviews = store::reviews::demanded(&mut connection, &reviews).await?;
        let given = store::reviews::signatures(&mut connection, &reviews).await?;
        let passkey_ids = given.iter().map(|signature| signature.passkey).collect();
        let passkeys =
            store::people::passkeys::load_with_confirmers(&mut connection, &passkey_ids).await?;
        for target in blueprints {
            let documents = store::reviews::documents(&mut connection, target.review).await?;
            let hash = change_hash(&documents)
                .map_err(|error| StoreError::corrupt("review_document", error))?;
            if signed_reviews
                .get(&target.review)
                .is_some_and(|signed_reviews| signed_reviews.change_hash != hash)
            {
                return Err(refused(
                    target,
                    "the hash of its documents differs from the signed change",
                ));
            }
        }
        drop(connection);
        let numbers: BTreeSet<BlueprintNumber> =
            blueprints.iter().map(|target| target.number).collect();
        let approvals = store::runs::approvals(&self.pool, &numbers).await?;
        for target in blueprints {
            let is_change = |approval: &&Approval| approval.kind == "change";
            let (Some(approval), Some(signed_reviews)) = (
                approvals.get(&target.number).filter(is_change),
                signed_reviews.get(&target.review),
            ) else {
                return Err(refused(target, "its review is missing"));
            };
            let needed = required_approvals(&self.objects, approval).await?;
            let eligible =
                given.iter().filter(|signature| target.approving.contains(&signature.verdict));
            let results = check_verdicts(
                signed_reviews,
                eligible.map(|signature| signature.signed()),
                &passkeys,
                &::passkeys::verify,
            );
            let valid_count = results.values().filter(|results| results.is_ok()).count();
            if u32::try_from(valid_count).unwrap_or(u32::MAX) >= needed {
                continue;
            }
            let errors = results.iter().filter_map(|(person, results)| {
                results
                    .as_ref()
                    .err()
                    .map(|error| format!("; approval of person {person}: {error}"))
            });
            let reason = format!(
                "it has {valid_count} of {} that the policy requires{}",
                many(i64::from(needed), "signed approval"),
                errors.collect::<String>()
            );
            return Err(refused(target, &reason));
        }
        Ok(())
    }
}

fn refused(target: &SignedBlueprint, reason: &str) -> Refusal {
    Refusal::Chain(format!(
        "Blueprint {} (review {}) must not run: {reason}. Nothing runs on it or on later \
         blueprints. Find out who committed it (`gantry audit list`), and restore a backup from \
         before it (see docs/operating.md).",
        target.number, target.review
    ))
}
