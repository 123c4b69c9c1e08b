//! Signed checkpoints of the audit chain.
//!
//! The key is in a file outside of the database. A checkpoint is signed only if this key signed the
//! previous one and the chain still contains it. So a signature never confirms a chain that was
//! truncated or recomputed. [`engine::audit::checkpoint`] defines the signed message.
//!
//! Keys are PEM files in OpenSSL's format (`openssl genpkey -algorithm ed25519`). The public key is
//! an RFC 8410 `PUBLIC KEY`.

use std::fmt;

use api::Problem;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::audit::ChainDefect;
use engine::audit::checkpoint::{Checkpoint, Link};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Control;
use crate::problems::from_store;

/// The bytes before the key in an Ed25519 `PUBLIC KEY` (RFC 8410).
const PUBLIC_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// An error in a key file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// The file is not PEM with the expected label.
    #[error("The file has no PEM block {0:?}. Create a key with `gantry audit keygen`.")]
    NotPem(&'static str),
    /// The key is of another type.
    #[error("The file has no Ed25519 key. Create one with `gantry audit keygen`.")]
    NotEd25519,
    /// The system returns no random bytes.
    #[error("The system returned no random bytes for a key.")]
    NoRandomness,
}

/// A private Ed25519 key.
pub struct SigningKey(Ed25519KeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Parses a private key from PEM.
    pub fn read(pem: &str) -> Result<Self, KeyError> {
        let bytes = from_pem(pem, "PRIVATE KEY")?;
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(&bytes)
            .map(Self)
            .map_err(|_| KeyError::NotEd25519)
    }

    /// Generates a key and returns it as PEM.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub fn generate() -> Result<String, KeyError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| KeyError::NoRandomness)?;
        Ok(to_pem(document.as_ref(), "PRIVATE KEY"))
    }

    /// The public key of this key.
    pub fn verifying(&self) -> VerifyingKey {
        VerifyingKey(self.0.public_key().as_ref().to_vec())
    }

    /// The public key as PEM.
    pub fn public(&self) -> String {
        to_pem(&[&PUBLIC_PREFIX[..], self.0.public_key().as_ref()].concat(), "PUBLIC KEY")
    }

    pub fn sign(&self, link: Link) -> Result<Checkpoint, Problem> {
        let message = link.message().map_err(|_| Problem::internal())?;
        Ok(Checkpoint { link, signature: STANDARD.encode(self.0.sign(&message)) })
    }
}

/// A public Ed25519 key.
#[derive(Debug, Clone)]
pub struct VerifyingKey(Vec<u8>);

impl VerifyingKey {
    /// Parses a public key from PEM.
    pub fn read(pem: &str) -> Result<Self, KeyError> {
        let bytes = from_pem(pem, "PUBLIC KEY")?;
        let key = bytes
            .strip_prefix(&PUBLIC_PREFIX[..])
            .filter(|key| key.len() == 32)
            .ok_or(KeyError::NotEd25519)?;
        Ok(Self(key.to_vec()))
    }

    /// Whether this key signed the checkpoint.
    pub fn signed(&self, checkpoint: &Checkpoint) -> bool {
        let (Ok(message), Ok(signature)) =
            (checkpoint.link.message(), STANDARD.decode(&checkpoint.signature))
        else {
            return false;
        };
        UnparsedPublicKey::new(&ED25519, &self.0).verify(&message, &signature).is_ok()
    }
}

fn to_pem(bytes: &[u8], label: &str) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> =
        (0..text.len()).step_by(64).map(|from| &text[from..text.len().min(from + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn from_pem(text: &str, label: &'static str) -> Result<Vec<u8>, KeyError> {
    let not = || KeyError::NotPem(label);
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----")).ok_or_else(not)?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----")).ok_or_else(not)?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).map_err(|_| not())
}

impl Control {
    /// Creates the next checkpoint, if the chain has grown since the previous one.
    ///
    /// # Errors
    /// If another key signed the previous checkpoint, or the chain does not contain it.
    pub async fn checkpoint(
        &self,
        key: &SigningKey,
        last: Option<&Checkpoint>,
    ) -> Result<Option<Checkpoint>, Problem> {
        if last.is_some_and(|last| !key.verifying().signed(last)) {
            return Err(Problem::conflict(
                "checkpoint_not_signed",
                "The last checkpoint has no valid signature by audit_key: another key signed it, \
                 or it was altered. No more checkpoints are signed. If you changed the key, set \
                 audit_checkpoints to a new file or URL. Otherwise verify an export against the \
                 checkpoints: gantry audit verify EXPORT --checkpoints FILE --key PUBLIC.",
            ));
        }
        let mut connection = self.connection().await?;
        let end = store::audit::last_seal(&mut connection).await.map_err(from_store)?;
        let first = store::audit::seal_at(&mut connection, 1).await.map_err(from_store)?;
        if let Some(Checkpoint { link, .. }) = last {
            let seq = i64::try_from(link.seq).unwrap_or(i64::MAX);
            let found = store::audit::seal_at(&mut connection, seq)
                .await
                .map_err(from_store)?
                .map(|(_, hash)| hash);
            if found != Some(link.hash) {
                let ends = end.map_or(0, |(seq, _)| seq.unsigned_abs());
                let broken = match found {
                    Some(found) => {
                        ChainDefect::Recomputed { seq: link.seq, expected: link.hash, found }
                    }
                    None => {
                        ChainDefect::MissingTail { from: (ends + 1).min(link.seq), to: link.seq }
                    }
                };
                return Err(Problem::conflict(
                    "audit_changed",
                    format!(
                        "The audit in the database differs from the last checkpoint: {broken}. No \
                         more checkpoints are signed. If you restored a backup, set \
                         audit_checkpoints to a new file or URL. Otherwise verify an export \
                         against the checkpoints: gantry audit verify EXPORT --checkpoints FILE \
                         --key PUBLIC."
                    ),
                ));
            }
        }
        let (Some((seq, hash)), Some((_, installation))) = (end, first) else { return Ok(None) };
        let seq = seq.unsigned_abs();
        if last.is_some_and(|last| last.link.seq >= seq) {
            return Ok(None);
        }
        let epoch = store::audit::epoch(&mut connection).await.map_err(from_store)?;
        let at = OffsetDateTime::now_utc().format(&Rfc3339).map_err(|_| Problem::internal())?;
        key.sign(Link { seq, hash, installation, epoch, at }).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use engine::Hash;

    use crate::audit::checkpoints::*;

    fn link(seq: u64) -> Link {
        let hash = Hash::of_bytes(b"a link");
        Link { seq, hash, installation: hash, epoch: 1, at: "2026-01-01T00:00:00Z".into() }
    }

    #[test]
    fn signature_covers_each_field() {
        let key = SigningKey::read(&SigningKey::generate().unwrap()).unwrap();
        let public = VerifyingKey::read(&key.public()).unwrap();
        let signed = key.sign(link(7)).unwrap();
        assert!(public.signed(&signed));
        let other = Hash::of_bytes(b"another");
        let altered = [
            Link { seq: 8, ..link(7) },
            Link { hash: other, ..link(7) },
            Link { installation: other, ..link(7) },
            Link { epoch: 2, ..link(7) },
            Link { at: String::new(), ..link(7) },
        ];
        for link in altered {
            assert!(!public.signed(&Checkpoint { link, ..signed.clone() }));
        }
        assert!(key.verifying().signed(&signed));
        let stranger = SigningKey::read(&SigningKey::generate().unwrap()).unwrap();
        assert!(!VerifyingKey::read(&stranger.public()).unwrap().signed(&signed));
    }

    #[test]
    fn openssl_keys_are_read() {
        // openssl genpkey -algorithm ed25519; openssl pkey -pubout
        let private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIFpNR5z8gUZkeZQOmxy885AEpKthC6oRbbUwNwkYZUXM\n-----END PRIVATE KEY-----\n";
        let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJtVTqkwbqQdpyPTuoF57yRDAjHvQtIUkfCIcyN7Z9x0=\n-----END PUBLIC KEY-----\n";
        let key = SigningKey::read(private).unwrap();
        assert_eq!(key.public(), public);
        assert!(VerifyingKey::read(public).unwrap().signed(&key.sign(link(1)).unwrap()));
    }

    #[test]
    fn other_files_are_rejected() {
        let key = SigningKey::generate().unwrap();
        let public = SigningKey::read(&key).unwrap().public();
        assert_eq!(SigningKey::read(&public).err(), Some(KeyError::NotPem("PRIVATE KEY")));
        assert_eq!(VerifyingKey::read(&key).err(), Some(KeyError::NotPem("PUBLIC KEY")));
        let other = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
        assert_eq!(VerifyingKey::read(other).err(), Some(KeyError::NotEd25519));
    }
}
