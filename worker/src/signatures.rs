//! Verifies the signed approvals of the target history.
//!
//! A target contains the documents of all targets before it. So a run starts only if every target
//! up to its own has the signed approvals that its policy required. Otherwise a forged target below
//! an honest one could add its data, or a policy without signatures.
//!
//! A signature covers the hash of the change. The worker computes that hash from the documents of
//! the submission. Otherwise an attacker with the server's role could get one change signed and list
//! the documents of another.
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
use store::running::{self, Approval, SignedTarget};
use store::{StoreError, intent, passkeys as rows};
use tokio::sync::Mutex;

use crate::objects::Objects;
use crate::prepare::{Refusal, required_approvals};

/// Targets verified in one round of queries.
const BATCH: i64 = 200;

/// The targets that this worker has verified.
pub(crate) struct SignatureVerifier {
    pool: PgPool,
    objects: Arc<Objects>,
    /// The epoch, and the last verified target of the history.
    verified: Mutex<(i64, BlueprintNumber)>,
    /// A copy of `verified` for readers that must not wait; 0 while the epoch is unknown.
    fast: (AtomicI64, AtomicI64),
}

impl SignatureVerifier {
    pub(crate) fn of(pool: PgPool, objects: Arc<Objects>) -> Self {
        let verified = Mutex::new((0, BlueprintNumber(0)));
        Self { pool, objects, verified, fast: (AtomicI64::new(0), AtomicI64::new(0)) }
    }

    /// Verifies the target history up to `to`.
    ///
    /// # Errors
    /// The first target that lacks signed approvals, or a database error.
    pub(crate) async fn check(&self, epoch: i64, to: BlueprintNumber) -> Result<(), Refusal> {
        if self.fast.0.load(Ordering::Acquire) == epoch
            && self.fast.1.load(Ordering::Acquire) >= to.0
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
        while verified.1 < to {
            let targets = running::signed_blueprints(&self.pool, verified.1, to, BATCH).await?;
            self.check_all(&targets).await?;
            let full = i64::try_from(targets.len()).is_ok_and(|count| count == BATCH);
            verified.1 = targets.last().filter(|_| full).map_or(to, |target| target.number);
            self.fast.1.store(verified.1.0, Ordering::Release);
        }
        Ok(())
    }

    async fn check_all(&self, targets: &[SignedTarget]) -> Result<(), Refusal> {
        if targets.is_empty() {
            return Ok(());
        }
        let submissions: Vec<ReviewId> = targets.iter().map(|target| target.submission).collect();
        let mut connection = self.pool.acquire().await.map_err(StoreError::from)?;
        let reviewed = rows::demanded(&mut connection, &submissions).await?;
        let given = rows::signatures(&mut connection, &submissions).await?;
        let used = given.iter().map(|signature| signature.passkey).collect();
        let passkeys = rows::load_with_confirmers(&mut connection, &used).await?;
        for target in targets {
            let documents = intent::documents(&mut connection, target.submission).await?;
            let hash = change_hash(&documents)
                .map_err(|error| StoreError::corrupt("submission_document", error))?;
            if reviewed.get(&target.submission).is_some_and(|reviewed| reviewed.change_hash != hash)
            {
                return Err(refused(
                    target,
                    "the hash of its documents differs from the signed change",
                ));
            }
        }
        drop(connection);
        let numbers: BTreeSet<BlueprintNumber> =
            targets.iter().map(|target| target.number).collect();
        let approvals = running::approvals(&self.pool, &numbers).await?;
        for target in targets {
            let of_it = |approval: &&Approval| approval.kind == "change";
            let (Some(approval), Some(reviewed)) =
                (approvals.get(&target.number).filter(of_it), reviewed.get(&target.submission))
            else {
                return Err(refused(target, "its submission is missing"));
            };
            let needed = required_approvals(&self.objects, approval).await?;
            let counted =
                given.iter().filter(|signature| target.approving.contains(&signature.verdict));
            let checked = check_verdicts(
                reviewed,
                counted.map(|signature| signature.signed()),
                &passkeys,
                &::passkeys::verify,
            );
            let valid = checked.values().filter(|checked| checked.is_ok()).count();
            if u32::try_from(valid).unwrap_or(u32::MAX) >= needed && approval.objecting == 0 {
                continue;
            }
            let wrong = checked.iter().filter_map(|(person, checked)| {
                checked
                    .as_ref()
                    .err()
                    .map(|error| format!("; approval of person {person}: {error}"))
            });
            let why = format!(
                "it has {valid} of {} that the policy requires{}",
                many(i64::from(needed), "signed approval"),
                wrong.collect::<String>()
            );
            return Err(refused(target, &why));
        }
        Ok(())
    }
}

fn refused(target: &SignedTarget, why: &str) -> Refusal {
    Refusal::Chain(format!(
        "Target {} (submission {}) must not run: {why}. Nothing runs on it or on later targets. \
         Find out who committed it (`gantry audit list`), and restore a backup from before it (see \
         docs/operating.md).",
        target.number, target.submission
    ))
}
