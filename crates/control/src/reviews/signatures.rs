//! Signatures of verdicts: the message that a reviewer's passkey signs, and verification.
//!
//! The server verifies each signature when it is given and again at each commit. The worker
//! verifies it before a run, because a compromised server would not.

use std::collections::{BTreeMap, BTreeSet};

use api::Problem;
use api::people::{Signature, SignatureRequest};
use engine::gate::signature::{Nonce, Statement, check};
use engine::gate::{Signing, VerdictKind};
use engine::ids::{PersonId, ReviewId};
use passkeys::RelyingParty;
use sqlx::PgConnection;
use store::reviews::VerdictRow;

use crate::Control;
use crate::people::Actor;
use crate::people::passkeys::{answered, nonce, random_nonce, rejected, usable};
use crate::problems::{from_store, no_review};

/// Only people can review, so tokens are refused.
pub(crate) fn require_no_token(actor: &Actor) -> Result<(), String> {
    match &actor.token {
        None => Ok(()),
        Some(_) => Err("Tokens cannot give a verdict. Sign in as a person to review.".into()),
    }
}

/// The verdicts with a valid signature, by id, each with the name of the passkey.
pub(crate) type Signed = BTreeMap<i64, String>;

/// The signatures of a submission.
pub(crate) struct ReviewSignatures {
    pub signed: Signed,
    /// `None` if the approvals need no signature.
    pub signing: Option<Signing>,
}

impl Control {
    /// Verifies the signatures of a submission's verdicts. `people`: all people whose verdict may
    /// count.
    pub(crate) async fn signatures(
        &self,
        on: &mut PgConnection,
        id: ReviewId,
        verdicts: &[VerdictRow],
        people: &[PersonId],
    ) -> Result<ReviewSignatures, Problem> {
        let demanded = !store::reviews::demanded(on, &[id]).await.map_err(from_store)?.is_empty();
        let signed = signed(on, id).await?;
        if !demanded {
            return Ok(ReviewSignatures { signed, signing: None });
        }
        let last: BTreeMap<PersonId, i64> =
            verdicts.iter().filter(|v| !v.void).map(|v| (v.person, v.id)).collect();
        let signers = last
            .into_iter()
            .filter(|(_, verdict)| signed.contains_key(verdict))
            .map(|(person, _)| person);
        let signing = Signing {
            signed: signers.collect(),
            able: store::people::passkeys::able(on, people).await.map_err(from_store)?,
        };
        Ok(ReviewSignatures { signed, signing: Some(signing) })
    }

    /// The message that the actor's browser signs for a verdict.
    ///
    /// # Errors
    /// If the actor uses a token or has no passkey for this site, or the review does not exist.
    pub async fn verdict_options(
        &self,
        actor: &Actor,
        site: &RelyingParty,
        id: ReviewId,
        kind: VerdictKind,
    ) -> Result<SignatureRequest, Problem> {
        require_no_token(actor)
            .map_err(|no| Problem { code: "not_a_reviewer".into(), ..Problem::forbidden(no) })?;
        actor.require(crate::people::Permission::Viewer)?;
        let mut connection = self.connection().await?;
        let reviewed = store::reviews::reviewed(&mut connection, id)
            .await
            .map_err(from_store)?
            .ok_or_else(|| no_review(id))?;
        let passkeys = usable(&mut connection, actor, site).await?;
        let nonce = random_nonce()?;
        let statement = Statement::Verdict { reviewed, verdict: kind, person: actor.person, nonce };
        let challenge = statement.challenge().map_err(|_| Problem::internal())?;
        Ok(SignatureRequest {
            nonce: nonce.to_string(),
            options: passkeys::request(site, challenge, &passkeys),
        })
    }
}

async fn signed(on: &mut PgConnection, id: ReviewId) -> Result<Signed, Problem> {
    let rows_of_review = store::reviews::signatures(on, &[id]).await.map_err(from_store)?;
    if rows_of_review.is_empty() {
        return Ok(Signed::new());
    }
    let reviewed =
        store::reviews::reviewed(on, id).await.map_err(from_store)?.ok_or_else(|| no_review(id))?;
    let used: BTreeSet<_> = rows_of_review.iter().map(|signature| signature.passkey).collect();
    let names = store::people::passkeys::names(on, &used).await.map_err(from_store)?;
    let keys =
        store::people::passkeys::load_with_confirmers(on, &used).await.map_err(from_store)?;
    let mut signed = Signed::new();
    for signature in rows_of_review {
        let (person, nonce) = (signature.person, signature.nonce);
        let statement = Statement::Verdict {
            reviewed: reviewed.clone(),
            verdict: signature.kind,
            person,
            nonce,
        };
        // A passkey that was revoked has no name here. Its signatures do not count for future
        // commits.
        let Some(name) = names.get(&signature.passkey) else { continue };
        match check(&statement, signature.passkey, &signature.assertion, &keys, &passkeys::verify) {
            Ok(()) => drop(signed.insert(signature.verdict, name.clone())),
            Err(error) => {
                tracing::warn!(
                    review = %id,
                    verdict = signature.verdict,
                    %error,
                    "a signature is not valid"
                )
            }
        }
    }
    Ok(signed)
}

/// Stores a signature with its verdict and returns the passkey's name.
///
/// # Errors
/// If the passkey is not the actor's, or the signature is invalid or was used before.
pub(crate) async fn sign(
    on: &mut PgConnection,
    actor: &Actor,
    (id, verdict, kind): (ReviewId, i64, VerdictKind),
    signature: &Signature,
) -> Result<String, Problem> {
    let nonce: Nonce = nonce(&signature.nonce)?;
    let (credential, assertion) =
        passkeys::assertion(&signature.answer).map_err(|error| rejected(&error))?;
    let passkey = answered(on, actor, &credential).await?;
    let reviewed =
        store::reviews::reviewed(on, id).await.map_err(from_store)?.ok_or_else(|| no_review(id))?;
    let statement = Statement::Verdict { reviewed, verdict: kind, person: actor.person, nonce };
    let challenge = statement.challenge().map_err(|_| Problem::internal())?;
    let counter = passkeys::verified(&passkey.passkey, challenge, &assertion)
        .map_err(|error| rejected(&error))?;
    crate::people::passkeys::record_use(on, &passkey, counter).await?;
    match store::reviews::insert_signature(on, verdict, passkey.passkey.id, nonce, &assertion)
        .await
        .map_err(from_store)?
    {
        true => Ok(passkey.name),
        false => {
            Err(Problem::conflict("signature_used", "This signature was already used. Sign again."))
        }
    }
}
