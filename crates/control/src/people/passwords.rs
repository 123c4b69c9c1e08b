//! Passwords: requirements, storage and verification.
//!
//! Passwords can be guessed, offline too if the database leaks. Argon2id makes each guess cost
//! [`MEMORY_KIB`] of memory and [`ITERATIONS`] passes (OWASP recommends 19 MiB and 2). The server
//! pays the same cost. Therefore hashing runs on blocking threads, [`AT_ONCE`] at a time. At most
//! [`WAITING`] requests run or wait; further ones are refused. So a flood of sign-ins does not slow
//! down other requests.
//!
//! The database stores the SHA-256 of the Argon2id output and starts a session only for the output
//! itself ([`Proof`]). So read access to the database is not enough to sign in.
//!
//! The requirements follow NIST SP 800-63B: a minimum length, and no common password. There are no
//! rules about character classes, because people answer them with `Password1!`.
//!
//! An unknown name is verified against a random password, so that it takes as long as an existing
//! name.

use std::sync::{Arc, OnceLock};

use api::people::Password;
use api::{Problem, limits};
use argon2::password_hash::PasswordHasher as _;
use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Params, Version};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::Token;
use crate::compute::on_blocking_thread;

/// Memory per hash, in KiB.
const MEMORY_KIB: u32 = 32 * 1024;
/// Passes over the memory.
const ITERATIONS: u32 = 3;
/// Passwords that are hashed in parallel.
pub(super) const AT_ONCE: usize = 2;
/// Passwords that are hashed or wait for it.
pub(super) const WAITING: usize = 32;

/// Common passwords of at least the minimum length. Case, repetition, and digits or punctuation at
/// the ends are ignored in the comparison.
const COMMON_PASSWORDS: &str = include_str!("common_passwords.txt");

/// Checks the requirements for a new password.
///
/// # Errors
/// The violated requirement, without the password itself.
pub(super) fn check(password: &Password, name: &str) -> Result<(), Problem> {
    let text = password.reveal();
    let length = text.chars().take(limits::MAX_PASSWORD + 1).count();
    let refused =
        |detail: &str| Err(Problem { code: "weak_password".into(), ..Problem::invalid(detail) });
    if !(limits::MIN_PASSWORD..=limits::MAX_PASSWORD).contains(&length) {
        return Err(Problem::invalid(format!(
            "The password must have {} to {} characters. Several unrelated words are easy to \
             remember.",
            limits::MIN_PASSWORD,
            limits::MAX_PASSWORD
        )));
    }
    let lower = text.to_lowercase();
    let characters: std::collections::BTreeSet<char> = lower.chars().collect();
    if characters.len() < 5 || is_sequence(&lower) {
        return refused(
            "The password repeats a few characters or is a sequence, so it is easy to guess. \
             Choose another one.",
        );
    }
    let name = name.split('@').next().unwrap_or_default();
    if name.chars().count() >= 3
        && lower.replace(name, "").chars().count() < limits::MIN_PASSWORD / 2
    {
        return refused("The password contains little more than your name. Choose another one.");
    }
    let letters = lower.trim_matches(|c: char| !c.is_alphabetic() && c != '@');
    if COMMON_PASSWORDS
        .lines()
        .any(|common| [lower.as_str(), letters, repeated_unit(letters)].contains(&common))
    {
        return refused("The password is too common. Choose another one.");
    }
    Ok(())
}

/// Whether the characters are consecutive: `123456789012`, `zyxwvutsrqpo`.
fn is_sequence(text: &str) -> bool {
    let codes: Vec<u32> = text.chars().map(u32::from).collect();
    let follow = |step: i64| {
        let next = |pair: &&[u32]| {
            let difference = i64::from(pair[1]) - i64::from(pair[0]);
            // Digits wrap around between 9 and 0.
            difference == step || difference.abs() == 9
        };
        codes.windows(2).filter(next).count()
    };
    [1, -1].into_iter().any(|step| follow(step) + 2 >= codes.len())
}

/// The repeated unit of a text: `lalala` is `la`.
fn repeated_unit(text: &str) -> &str {
    let lengths =
        (1..=text.len() / 2).filter(|n| text.len().is_multiple_of(*n) && text.is_char_boundary(*n));
    lengths
        .map(|n| &text[..n])
        .find(|part| part.repeat(text.len() / part.len()) == text)
        .unwrap_or(text)
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, ITERATIONS, 1, None).unwrap_or(Params::DEFAULT);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// The Argon2id output. It can be computed from the password, but not from the database.
pub(super) struct Proof(pub(super) [u8; 32]);

/// Hashes and verifies passwords with a concurrency limit.
#[derive(Debug, Clone)]
pub(super) struct Hasher {
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// The stored hash for names that do not exist or have no password.
    dummy_hash: Arc<OnceLock<String>>,
}

impl Default for Hasher {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            dummy_hash: Arc::default(),
        }
    }
}

impl Hasher {
    /// The stored form of a password: a PHC string with its own salt. Its hash part is the SHA-256
    /// of the Argon2id output.
    pub(super) async fn hash(&self, password: Password) -> Result<String, Problem> {
        self.work(move || hashed(password.reveal())).await?
    }

    /// The proof that the password matches the stored one, or `None`. It takes as long if none is
    /// stored.
    pub(super) async fn verify(
        &self,
        password: Password,
        stored: Option<String>,
    ) -> Result<Option<Proof>, Problem> {
        let dummy_hash = Arc::clone(&self.dummy_hash);
        self.work(move || {
            let dummy = match dummy_hash.get() {
                Some(dummy) => dummy,
                None => {
                    let made = hashed(Token::random()?.reveal())?;
                    dummy_hash.get_or_init(|| made)
                }
            };
            let (proof, matches) = output(password.reveal(), stored.as_deref().unwrap_or(dummy))
                .map_err(|error| {
                    tracing::error!(%error, "a stored password hash is invalid");
                    Problem::internal()
                })?;
            Ok((matches && stored.is_some()).then_some(proof))
        })
        .await?
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let busy = || {
            Problem::unavailable(
                "Too many people are signing in at the moment. Try again in a few seconds.",
            )
        };
        let _task = self.waiting.try_acquire().map_err(|_| busy())?;
        let permit = Arc::clone(&self.places).acquire_owned().await.map_err(|_| busy())?;
        // The permit stays taken until the work ends, even if the client disconnects.
        on_blocking_thread(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
    }
}

fn hashed(password: &str) -> Result<String, Problem> {
    let hash = || {
        let mut hash = argon2().hash_password(password.as_bytes())?;
        let output = hash.hash.ok_or(argon2::password_hash::Error::Internal)?;
        hash.hash = Some(Output::new(&Sha256::digest(output.as_bytes()))?);
        Ok::<_, argon2::password_hash::Error>(hash.to_string())
    };
    hash().map_err(|error| {
        tracing::error!(%error, "cannot hash a password");
        Problem::internal()
    })
}

/// The Argon2id output of a password with the salt and cost of a stored one, and whether they
/// match.
fn output(password: &str, stored: &str) -> Result<(Proof, bool), argon2::password_hash::Error> {
    let stored = PasswordHash::new(stored)?;
    let (Some(salt), Some(expected)) = (&stored.salt, &stored.hash) else {
        return Err(argon2::password_hash::Error::Internal);
    };
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::try_from(&stored)?);
    let mut proof = [0; 32];
    argon2.hash_password_into(password.as_bytes(), salt.as_ref(), &mut proof)?;
    // `Output` compares in constant time.
    let matches = Output::new(&Sha256::digest(proof))? == *expected;
    Ok((Proof(proof), matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_passwords_are_rejected() {
        let name = "ada.lovelace@example.com";
        let refused =
            |text: &str| check(&Password::typed(text), name).err().map(|problem| problem.code);
        for weak in [
            "password1234",
            "Password1234!",
            "PASSWORDPASSWORD",
            "123456789012",
            "098765432109",
            "aaaaaaaaaaaa",
            "121212121212",
            "qwertyuiop12",
            "abcdefghijkl",
            "ada.lovelace",
            "ada.lovelace1!",
            "Administrator!",
            "correcthorsebatterystaple",
        ] {
            assert_eq!(refused(weak).as_deref(), Some("weak_password"), "{weak}");
        }
        for (length, code) in [(11, Some("invalid")), (1025, Some("invalid")), (1024, None)] {
            let text: String = "lots of äther, 4 words! ".chars().cycle().take(length).collect();
            assert_eq!(refused(&text).as_deref(), code, "a password of {length} characters");
        }
        for good in
            ["vague otter lamp", "correct horse battery", "пароль-не-самый-частый", "7f!kQ0z-Lm2w"]
        {
            assert_eq!(refused(good), None, "{good}");
        }
        let answer = check(&Password::typed("password1234"), name).expect_err("a refusal");
        assert!(!answer.detail.contains("1234"), "{answer:?}");
    }

    #[tokio::test]
    async fn password_is_stored_as_salted_argon2id() {
        let hasher = Hasher::default();
        let stored = hasher.hash(Password::typed("vague otter lamp")).await.expect("a hash");
        assert!(stored.starts_with("$argon2id$v=19$m=32768,t=3,p=1$"), "{stored}");
        assert_ne!(
            hasher.hash(Password::typed("vague otter lamp")).await.expect("a hash"),
            stored,
            "each hash has its own salt"
        );
        let is = async |text: &str, stored: Option<&String>| {
            hasher
                .verify(Password::typed(text), stored.cloned())
                .await
                .expect("an answer")
                .is_some()
        };
        assert!(is("vague otter lamp", Some(&stored)).await);
        assert!(!is("vague otter lamb", Some(&stored)).await);
        assert!(!is("", Some(&stored)).await && !is("", None).await);
        assert!(
            hasher
                .dummy_hash
                .get()
                .is_some_and(|dummy| dummy.starts_with("$argon2id$v=19$m=32768,t=3,p=1$"))
        );
    }

    #[tokio::test]
    async fn excess_hash_requests_are_rejected() {
        let hasher = Hasher::default();
        let permits =
            hasher.waiting.clone().try_acquire_many_owned(WAITING as u32).expect("free permits");
        assert_eq!(hasher.hash(Password::typed("x")).await.expect_err("a refusal").status, 503);
        drop(permits);
        assert!(hasher.hash(Password::typed("x")).await.is_ok());
    }
}
