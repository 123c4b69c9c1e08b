//! Signed verdicts: the statement that a passkey signs, and the conditions for it to count.
//!
//! A session only proves that a client has a cookie. An attacker who controls the server sees every
//! user's cookie. A signature proves that a person used their own device. It covers the reviewed
//! change (documents, effects, base, policy, risks, authors), the verdict, the person and a nonce.
//! It is therefore valid for no other change and no second verdict.
//!
//! A passkey counts once the owner of the database, or another confirmed passkey, confirms it.
//! Otherwise, an attacker who controls the server could register a passkey in a reviewer's name.
//!
//! The module is pure. The caller passes the cryptography as a function ([`Verify`]). The server,
//! the worker and the offline verifier thus apply the same rules.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{Risk, VerdictKind};
use crate::canonical::{self, Hash};
use crate::ids::{BlueprintNumber, DeploymentId, PasskeyId, PersonId, ReviewId};

/// Maximum length of the chain of confirmations from a passkey to the owner.
pub const MAX_CONFIRMATIONS: usize = 32;

/// The parts of a review that a signature covers. It is read from the audited row, so the database,
/// the worker and an export agree on it. Columns added later are not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedReview {
    pub id: ReviewId,
    /// The hash of its documents, before and after.
    #[serde(deserialize_with = "hash")]
    pub change_hash: Hash,
    #[serde(deserialize_with = "hash")]
    pub effects_hash: Hash,
    /// The deployments that it was planned on, each with its newest target.
    pub base: BTreeMap<DeploymentId, BlueprintNumber>,
    /// The policy under which it was submitted.
    pub policy_number: i64,
    /// The policy that it sets, if it changes the policy.
    #[serde(default, deserialize_with = "optional_hash", skip_serializing_if = "Option::is_none")]
    pub new_policy_hash: Option<Hash>,
    pub epoch: i64,
    pub risk: BTreeSet<Risk>,
    /// Everyone who edited it.
    pub authors: BTreeSet<PersonId>,
}

/// The database writes bytes in JSON as `\x` and hexadecimal digits.
fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.strip_prefix("\\x").unwrap_or(&text).parse().map_err(serde::de::Error::custom)
}

fn optional_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Hash>, D::Error> {
    hash(deserializer).map(Some)
}

/// 16 random bytes that make each signature unique. Written as hexadecimal digits in text and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// Returns `None` unless there are exactly 16 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl std::fmt::Display for Nonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 32 hexadecimal digits")]
pub struct NonceError;

impl std::str::FromStr for Nonce {
    type Err = NonceError;
    fn from_str(text: &str) -> Result<Self, NonceError> {
        let pair = |pair: &[u8]| {
            let digits = std::str::from_utf8(pair)
                .ok()
                .filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()))?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        bytes
            .filter(|_| text.len() == 32)
            .and_then(|bytes| Self::from_bytes(&bytes))
            .ok_or(NonceError)
    }
}

impl Serialize for Nonce {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The statement that a passkey signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "statement")]
pub enum Statement {
    /// A verdict on a change.
    #[serde(rename = "gantry.verdict.v1")]
    Verdict { reviewed: SignedReview, verdict: VerdictKind, person: PersonId, nonce: Nonce },
    /// The confirmation of another passkey.
    #[serde(rename = "gantry.passkey.v1")]
    Confirmation {
        /// The passkey to confirm.
        passkey: PasskeyId,
        /// Its [`Passkey::digest`].
        digest: Hash,
        /// The person who confirms it.
        person: PersonId,
        nonce: Nonce,
    },
}

impl Statement {
    /// The WebAuthn challenge: the SHA-256 of the canonical JSON.
    ///
    /// # Errors
    /// A number that JSON cannot represent.
    pub fn challenge(&self) -> Result<Hash, serde_json::Error> {
        canonical::hash(self)
    }

    fn person(&self) -> PersonId {
        match self {
            Self::Verdict { person, .. } | Self::Confirmation { person, .. } => *person,
        }
    }
}

/// A browser's response to a signature request, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertion {
    /// The client data, as JSON.
    pub client_data: Vec<u8>,
    pub authenticator_data: Vec<u8>,
    /// The signature over the authenticator data and the SHA-256 of the client data.
    pub signature: Vec<u8>,
}

/// The confirmation of a passkey by the owner or another passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// The owner of the database, with `gantry admin`.
    Owner,
    Passkey {
        /// The passkey that signed the confirmation.
        by: PasskeyId,
        nonce: Nonce,
        assertion: Assertion,
    },
}

/// A registered passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passkey {
    pub id: PasskeyId,
    pub person: PersonId,
    /// The host name that it is bound to (WebAuthn: relying party ID).
    pub rp_id: String,
    /// The origin at which it was registered.
    pub origin: String,
    /// The public key and its properties, as JSON of the WebAuthn library.
    pub credential: Value,
    /// `None`: it does not count for signed verdicts yet.
    pub confirmation: Option<Confirmation>,
}

impl Passkey {
    /// The hash of the fields that never change.
    ///
    /// # Errors
    /// A number that JSON cannot represent.
    pub fn digest(&self) -> Result<Hash, serde_json::Error> {
        digest(self.person, &self.rp_id, &self.origin, &self.credential)
    }
}

/// Computes [`Passkey::digest`] from the fields.
///
/// # Errors
/// A number that JSON cannot represent.
pub fn digest(
    person: PersonId,
    rp_id: &str,
    origin: &str,
    credential: &Value,
) -> Result<Hash, serde_json::Error> {
    let parts = serde_json::json!({ "person": person, "rp_id": rp_id, "origin": origin, "credential": credential });
    canonical::hash(&parts)
}

/// The fingerprint that two people compare before one confirms the other's passkey: 80 bits in five
/// groups, `3f2a-91cc-...`.
pub fn fingerprint(digest: Hash) -> String {
    let digits = digest.to_string();
    let groups: Vec<&str> =
        (0..5).filter_map(|group| digits.get(4 * group..4 * group + 4)).collect();
    groups.join("-")
}

/// Why a signature does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The passkey does not exist.
    #[error("Passkey {0} is not registered")]
    Unknown(PasskeyId),
    /// The passkey belongs to another person.
    #[error("Passkey {0} belongs to another person")]
    OtherPerson(PasskeyId),
    /// Neither the owner nor another passkey confirmed it.
    #[error("Passkey {0} is not confirmed")]
    Unconfirmed(PasskeyId),
    /// Its confirmations do not lead to the owner.
    #[error("The confirmations of passkey {0} do not lead to a confirmation by the owner")]
    Circular(PasskeyId),
    /// The signature does not verify.
    #[error("The signature of passkey {passkey} is invalid: {reason}")]
    Invalid {
        passkey: PasskeyId,
        /// The library's message.
        reason: String,
    },
}

/// Verifies a passkey's assertion for a challenge. The error gives the reason.
pub type Verify<'v> = dyn Fn(&Passkey, Hash, &Assertion) -> Result<(), String> + Send + Sync + 'v;

/// Checks that a confirmed passkey of the person signed the statement.
///
/// # Errors
/// [`SignatureError`] with the reason.
pub fn check(
    statement: &Statement,
    by: PasskeyId,
    assertion: &Assertion,
    passkeys: &BTreeMap<PasskeyId, Passkey>,
    verify: &Verify<'_>,
) -> Result<(), SignatureError> {
    let passkey = passkeys.get(&by).ok_or(SignatureError::Unknown(by))?;
    if passkey.person != statement.person() {
        return Err(SignatureError::OtherPerson(by));
    }
    check_confirmed(passkey, passkeys, verify)?;
    check_signature(statement, passkey, assertion, verify)
}

/// The signature of a person's last verdict on a review.
#[derive(Debug, Clone, Copy)]
pub struct VerdictSignature<'s> {
    pub person: PersonId,
    pub verdict: VerdictKind,
    pub passkey: PasskeyId,
    pub nonce: Nonce,
    pub assertion: &'s Assertion,
}

/// Checks the signatures of the last verdicts on one review. The result omits people whose last
/// verdict has no signature.
pub fn check_verdicts<'s>(
    reviewed: &SignedReview,
    signatures: impl IntoIterator<Item = VerdictSignature<'s>>,
    passkeys: &BTreeMap<PasskeyId, Passkey>,
    verify: &Verify<'_>,
) -> BTreeMap<PersonId, Result<(), SignatureError>> {
    let checked = signatures.into_iter().map(|signed| {
        let statement = Statement::Verdict {
            reviewed: reviewed.clone(),
            verdict: signed.verdict,
            person: signed.person,
            nonce: signed.nonce,
        };
        (signed.person, check(&statement, signed.passkey, signed.assertion, passkeys, verify))
    });
    checked.collect()
}

/// Checks that the confirmations of a passkey lead to one by the owner.
///
/// # Errors
/// [`SignatureError`] with the reason.
pub fn check_confirmed(
    passkey: &Passkey,
    passkeys: &BTreeMap<PasskeyId, Passkey>,
    verify: &Verify<'_>,
) -> Result<(), SignatureError> {
    let mut confirmed = passkey;
    for _ in 0..MAX_CONFIRMATIONS {
        let (by, nonce, assertion) = match &confirmed.confirmation {
            None => return Err(SignatureError::Unconfirmed(confirmed.id)),
            Some(Confirmation::Owner) => return Ok(()),
            Some(Confirmation::Passkey { by, nonce, assertion }) => (by, *nonce, assertion),
        };
        let signer = passkeys.get(by).ok_or(SignatureError::Unknown(*by))?;
        let digest = confirmed.digest().map_err(|e| invalid(confirmed.id, e))?;
        let statement =
            Statement::Confirmation { passkey: confirmed.id, digest, person: signer.person, nonce };
        check_signature(&statement, signer, assertion, verify)?;
        confirmed = signer;
    }
    Err(SignatureError::Circular(passkey.id))
}

fn check_signature(
    statement: &Statement,
    passkey: &Passkey,
    assertion: &Assertion,
    verify: &Verify<'_>,
) -> Result<(), SignatureError> {
    let challenge = statement.challenge().map_err(|e| invalid(passkey.id, e))?;
    verify(passkey, challenge, assertion)
        .map_err(|reason| SignatureError::Invalid { passkey: passkey.id, reason })
}

fn invalid(passkey: PasskeyId, error: serde_json::Error) -> SignatureError {
    SignatureError::Invalid { passkey, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn passkey(n: u128, person: u128, confirmation: Option<Confirmation>) -> Passkey {
        Passkey {
            id: PasskeyId(Uuid::from_u128(n)),
            person: PersonId(Uuid::from_u128(person)),
            rp_id: "localhost".into(),
            origin: "http://localhost:7780".into(),
            credential: json!({ "key": n.to_string() }),
            confirmation,
        }
    }

    /// A toy signature: the passkey's id and the challenge.
    fn sign(passkey: &Passkey, challenge: Hash) -> Assertion {
        let signature = format!("{} {challenge}", passkey.id).into_bytes();
        Assertion { client_data: Vec::new(), authenticator_data: Vec::new(), signature }
    }

    fn verify(passkey: &Passkey, challenge: Hash, assertion: &Assertion) -> Result<(), String> {
        (*assertion == sign(passkey, challenge))
            .then_some(())
            .ok_or_else(|| "wrong signature".to_owned())
    }

    fn confirmed(n: u128, person: u128, by: &Passkey) -> Passkey {
        let mut made = passkey(n, person, None);
        let nonce = Nonce([1; 16]);
        let statement = Statement::Confirmation {
            passkey: made.id,
            digest: made.digest().unwrap(),
            person: by.person,
            nonce,
        };
        let assertion = sign(by, statement.challenge().unwrap());
        made.confirmation = Some(Confirmation::Passkey { by: by.id, nonce, assertion });
        made
    }

    fn statement(person: u128) -> Statement {
        let image = json!({
            "id": 7, "change_hash": format!("\\x{}", "ab".repeat(32)), "effects_hash": format!("\\x{}", "cd".repeat(32)),
            "base": { Uuid::from_u128(5).to_string(): 3 }, "policy_number": 1, "epoch": 1, "risk": ["removal"],
            "authors": [Uuid::from_u128(1)], "title": "not covered"
        });
        Statement::Verdict {
            reviewed: serde_json::from_value(image).unwrap(),
            verdict: VerdictKind::Approve,
            person: PersonId(Uuid::from_u128(person)),
            nonce: Nonce([7; 16]),
        }
    }

    fn of(passkeys: &[&Passkey]) -> BTreeMap<PasskeyId, Passkey> {
        passkeys.iter().map(|passkey| (passkey.id, (*passkey).clone())).collect()
    }

    #[test]
    fn signature_counts_with_chain_to_owner() {
        let root = passkey(1, 1, Some(Confirmation::Owner));
        let second = confirmed(2, 2, &root);
        let third = confirmed(3, 2, &second);
        let all = of(&[&root, &second, &third]);
        let statement = statement(2);
        let challenge = statement.challenge().unwrap();
        for by in [&second, &third] {
            assert_eq!(check(&statement, by.id, &sign(by, challenge), &all, &verify), Ok(()));
        }
        assert_eq!(
            check(&statement, root.id, &sign(&root, challenge), &all, &verify),
            Err(SignatureError::OtherPerson(root.id))
        );
        let without_root = of(&[&second, &third]);
        assert_eq!(
            check(&statement, third.id, &sign(&third, challenge), &without_root, &verify),
            Err(SignatureError::Unknown(root.id))
        );
    }

    #[test]
    fn signature_is_checked_for_its_person() {
        let root = passkey(1, 1, Some(Confirmation::Owner));
        let second = confirmed(2, 2, &root);
        let all = of(&[&root, &second]);
        let Statement::Verdict { reviewed, nonce, .. } = statement(1) else {
            panic!("expected a verdict")
        };
        let assertion = sign(&root, statement(1).challenge().unwrap());
        let signed = |person: u128, passkey: &Passkey| VerdictSignature {
            person: PersonId(Uuid::from_u128(person)),
            verdict: VerdictKind::Approve,
            passkey: passkey.id,
            nonce,
            assertion: &assertion,
        };
        let checked = check_verdicts(
            &reviewed,
            [signed(1, &root), signed(2, &second), signed(3, &root)],
            &all,
            &verify,
        );
        let of = |person: u128| checked.get(&PersonId(Uuid::from_u128(person))).unwrap();
        assert_eq!(*of(1), Ok(()));
        assert!(matches!(of(2), Err(SignatureError::Invalid { .. })), "{checked:?}");
        assert_eq!(*of(3), Err(SignatureError::OtherPerson(root.id)));
        let rejects = VerdictSignature { verdict: VerdictKind::Reject, ..signed(1, &root) };
        assert!(
            check_verdicts(&reviewed, [rejects], &all, &verify)
                .into_values()
                .all(|checked| checked.is_err())
        );
    }

    #[test]
    fn unconfirmed_and_circular_passkeys_are_rejected() {
        let statement = statement(2);
        let challenge = statement.challenge().unwrap();
        let unconfirmed = passkey(2, 2, None);
        let rejected = check(
            &statement,
            unconfirmed.id,
            &sign(&unconfirmed, challenge),
            &of(&[&unconfirmed]),
            &verify,
        );
        assert_eq!(rejected, Err(SignatureError::Unconfirmed(unconfirmed.id)));
        let (left, right) =
            (confirmed(2, 2, &passkey(3, 2, None)), confirmed(3, 2, &passkey(2, 2, None)));
        let rejected =
            check(&statement, left.id, &sign(&left, challenge), &of(&[&left, &right]), &verify);
        assert_eq!(rejected, Err(SignatureError::Circular(left.id)));
    }

    #[test]
    fn confirmation_of_replaced_key_is_rejected() {
        let root = passkey(1, 1, Some(Confirmation::Owner));
        let mut second = confirmed(2, 2, &root);
        second.credential = json!({ "key": "another" });
        let statement = statement(2);
        let signed = sign(&second, statement.challenge().unwrap());
        let rejected = check(&statement, second.id, &signed, &of(&[&root, &second]), &verify);
        assert!(
            matches!(rejected, Err(SignatureError::Invalid { passkey, .. }) if passkey == root.id),
            "{rejected:?}"
        );
    }

    #[test]
    fn challenge_depends_on_every_part() {
        let first = statement(2);
        let Statement::Verdict { reviewed, verdict, person, nonce } = first.clone() else {
            panic!("expected a verdict")
        };
        let of = |reviewed: SignedReview| Statement::Verdict { reviewed, verdict, person, nonce };
        let other = Hash::of_bytes(b"other");
        let changed = [
            of(SignedReview { id: ReviewId(8), ..reviewed.clone() }),
            of(SignedReview { change_hash: other, ..reviewed.clone() }),
            of(SignedReview { effects_hash: other, ..reviewed.clone() }),
            of(SignedReview { base: BTreeMap::new(), ..reviewed.clone() }),
            of(SignedReview { policy_number: 2, ..reviewed.clone() }),
            of(SignedReview { new_policy_hash: Some(other), ..reviewed.clone() }),
            of(SignedReview { epoch: 2, ..reviewed.clone() }),
            of(SignedReview { risk: BTreeSet::new(), ..reviewed.clone() }),
            of(SignedReview { authors: BTreeSet::new(), ..reviewed.clone() }),
            Statement::Verdict {
                reviewed: reviewed.clone(),
                verdict: VerdictKind::Reject,
                person,
                nonce,
            },
            Statement::Verdict {
                reviewed: reviewed.clone(),
                verdict,
                person: PersonId(Uuid::nil()),
                nonce,
            },
            Statement::Verdict { reviewed, verdict, person, nonce: Nonce([8; 16]) },
        ];
        let challenges: BTreeSet<Hash> = changed
            .iter()
            .chain([&first])
            .map(|statement| statement.challenge().unwrap())
            .collect();
        assert_eq!(challenges.len(), changed.len() + 1);
    }

    #[test]
    fn nonce_is_32_hexadecimal_digits() {
        let nonce = Nonce([0xab; 16]);
        assert_eq!(nonce.to_string().parse(), Ok(nonce));
        for wrong in ["", "ab", &"ab".repeat(17), &"+a".repeat(16), &"\u{e4}".repeat(16)] {
            assert_eq!(wrong.parse::<Nonce>(), Err(NonceError), "{wrong:?}");
        }
    }

    #[test]
    fn fingerprint_has_five_groups() {
        assert_eq!(fingerprint(Hash::of_bytes(b"")), "e3b0-c442-98fc-1c14-9afb");
    }
}
