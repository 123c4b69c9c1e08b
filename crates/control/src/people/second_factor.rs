//! The second factor at sign-in: an authenticator app (TOTP, RFC 6238) or a passkey.
//!
//! A person with a factor presents it in each session, and the policy can require one for everyone.
//! Until then the session is *pending*: it may only present a factor, or set up the first one. The
//! database enforces both (`guards/second_factor.sql`) and accepts each code once. This module
//! verifies codes and signatures. Failures count per address, like wrong passwords; wrong codes
//! count per name too. Passkeys are not limited per name, so a person with a stolen password cannot
//! lock the owner out.

use api::Problem;
use api::limits::PASSKEY_TIMEOUT_SECONDS;
use api::second_factor::{
    Code, FactorOptions, FactorRequest, SecondFactor, SecondFactorPage, TotpSetup,
};
use engine::Hash;
use engine::ids::PersonId;
use passkeys::{PasskeyError, RelyingParty};
use rand::TryRngCore as _;
use serde_json::{Value, json};
use sqlx::PgConnection;
use store::audit::append_audit;
use store::people::accounts::lock_people;
use store::people::second_factor::{SECRET_BYTES, Totp};
use time::OffsetDateTime;
use totp_rs::{Builder, Secret};

use super::actor::factor_needed;
use super::{Actor, ClientInfo, People, Session, failed, throttle, unknown_person};

/// Seconds per time step.
const STEP_SECONDS: u64 = 30;
/// Accepted time steps before and after the current one.
const MAX_SKEW_STEPS: u16 = 1;
/// Maximum size of a passkey response, in bytes of JSON.
const MAX_ANSWER_BYTES: usize = 32 * 1024;

impl People {
    /// The factors that the actor has set up, and whether one is needed now.
    pub async fn second_factor(&self, actor: &Actor) -> Result<SecondFactor, Problem> {
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let found = store::people::second_factor::second_factors(&mut connection, actor.person)
            .await
            .map_err(failed)?;
        Ok(SecondFactor {
            totp: found.totp,
            passkeys: u32::try_from(found.passkeys).unwrap_or(u32::MAX),
            required: found.demanded,
            needed: actor.needs_factor(),
        })
    }

    /// The actor's second factor, and the authenticator app that this session is setting up, for
    /// the page.
    ///
    /// # Errors
    /// If the actor uses a token.
    pub async fn factor_page(&self, actor: &Actor) -> Result<SecondFactorPage, Problem> {
        let session = require_enrollable_session(actor)?;
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let setup = store::people::second_factor::set_up(&mut connection, actor.person, session.id)
            .await
            .map_err(failed)?;
        drop(connection);
        let set_up = setup.map(|setup| totp_setup(&setup.secret, &actor.name));
        Ok(SecondFactorPage {
            person: actor.name.clone(),
            state: self.second_factor(actor).await?,
            set_up,
        })
    }

    /// Presents a second factor. From then on, the session has all permissions.
    ///
    /// # Errors
    /// `code_wrong`, `code_used` or `passkey_rejected` (403), `too_many_attempts` (429), and if the
    /// actor uses a token or has no such factor.
    pub async fn present_factor(
        &self,
        actor: &Actor,
        site: Option<&RelyingParty>,
        input: &FactorRequest,
        client: &ClientInfo,
    ) -> Result<(), Problem> {
        require_enrollable_session(actor)?;
        match (&input.code, &input.answer) {
            (Some(code), None) => {
                self.counted(actor, client, true, self.present_code(actor, code)).await
            }
            (None, Some(answer)) => {
                self.counted(actor, client, false, self.present_passkey(actor, site, answer)).await
            }
            _ => Err(Problem::invalid(
                "Send either a code (the six digits from your authenticator app) or an answer \
                 (from a passkey).",
            )),
        }
    }

    /// Counts a wrong code or signature like a wrong password.
    async fn counted<T>(
        &self,
        actor: &Actor,
        client: &ClientInfo,
        counts_name: bool,
        attempt: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let network = throttle::network(client.address);
        // The key cannot clash with a name, because names have no spaces. A correct password does
        // not reset this count.
        let name = format!("{} code", actor.name);
        self.attempts.take(network).map_err(super::too_many_from_address)?;
        if counts_name && let Err(wait) = self.names.take(name.clone()) {
            self.attempts.release(&network);
            return Err(too_many_codes(wait));
        }
        let result = attempt.await;
        let is_guess = |problem: &Problem| {
            matches!(problem.code.as_str(), "code_wrong" | "code_used" | "passkey_rejected")
        };
        match &result {
            Err(problem) if is_guess(problem) => {
                tracing::warn!(
                    address = ?client.address,
                    code = problem.code,
                    "a second factor was rejected"
                );
            }
            Ok(_) => {
                self.attempts.release(&network);
                self.names.forget(&name);
            }
            Err(_) => {
                self.attempts.release(&network);
                if counts_name {
                    self.names.release(&name);
                }
            }
        }
        result
    }

    async fn present_code(&self, actor: &Actor, code: &Code) -> Result<(), Problem> {
        let digits = validated_code(code)?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        // A parallel attempt in the same session waits here.
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let totp = store::people::second_factor::totp(&mut transaction, actor.person)
            .await
            .map_err(failed)?
            .ok_or_else(no_totp)?;
        let step = time_step(&totp, &digits)?;
        if !store::people::second_factor::accept_totp(&mut transaction, step)
            .await
            .map_err(failed)?
        {
            return Err(no_totp());
        }
        noted(&mut transaction, &actor, "factor.present", json!({ "by": "totp" })).await?;
        transaction.commit().await.map_err(failed)
    }

    /// The options for the browser to present one of the actor's passkeys.
    ///
    /// # Errors
    /// If the actor uses a token, or has no passkey for this site.
    pub async fn factor_options(
        &self,
        actor: &Actor,
        site: &RelyingParty,
    ) -> Result<FactorOptions, Problem> {
        let session = require_enrollable_session(actor)?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let registered = store::people::passkeys::list_passkeys(&mut transaction, actor.person)
            .await
            .map_err(failed)?;
        let on_site = registered.into_iter().filter(|row| row.passkey.rp_id == site.rp_id);
        let ids: Vec<Vec<u8>> = on_site.map(|row| row.credential_id).collect();
        if ids.is_empty() {
            return Err(Problem::conflict(
                "no_passkey",
                format!(
                    "You have no passkey for {}. Use your authenticator app, or ask an admin to \
                     reset your second factor.",
                    site.rp_id
                ),
            ));
        }
        let mut random = [0; 32];
        fill_random(&mut random)?;
        let challenge = Hash::from_bytes(&random).ok_or_else(Problem::internal)?;
        let state = json!({ "second_factor": { "challenge": challenge, "at": OffsetDateTime::now_utc().unix_timestamp() } });
        store::people::passkeys::begin_ceremony(&mut transaction, session.id, &state)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(FactorOptions { options: passkeys::request(site, challenge, &ids) })
    }

    async fn present_passkey(
        &self,
        actor: &Actor,
        site: Option<&RelyingParty>,
        answer: &Value,
    ) -> Result<(), Problem> {
        let session = require_enrollable_session(actor)?;
        if answer.to_string().len() > MAX_ANSWER_BYTES {
            return Err(Problem::invalid(format!(
                "answer: must have at most {MAX_ANSWER_BYTES} bytes of JSON."
            )));
        }
        let (credential, assertion) =
            passkeys::assertion(answer).map_err(|error| rejected(&error))?;
        // A challenge can be used once, even if the response is wrong.
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let state = store::people::passkeys::consume_ceremony(&mut connection, session.id)
            .await
            .map_err(failed)?;
        drop(connection);
        let challenge = state.as_ref().and_then(open_challenge).ok_or_else(|| {
            Problem::conflict(
                "no_passkey_request",
                format!(
                    "This session has no passkey request, or it is older than {} minutes. Try \
                     again.",
                    PASSKEY_TIMEOUT_SECONDS / 60
                ),
            )
        })?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        // A parallel attempt in the same session waits here.
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        let registered = store::people::passkeys::list_passkeys(&mut transaction, actor.person)
            .await
            .map_err(failed)?;
        let row = registered.into_iter().find(|row| row.credential_id == credential);
        let row = row
            .filter(|row| site.is_none_or(|site| row.passkey.rp_id == site.rp_id))
            .ok_or_else(unknown_passkey)?;
        let counter = passkeys::verified(&row.passkey, challenge, &assertion)
            .map_err(|error| rejected(&error))?;
        if !store::people::passkeys::record_use(&mut transaction, row.passkey.id, counter)
            .await
            .map_err(failed)?
        {
            return Err(Problem {
                code: "passkey_rejected".into(),
                ..Problem::forbidden(
                    "The passkey was rejected: its counter is lower than at its last use, so it \
                     may have been copied. Sign in with another factor and revoke it.",
                )
            });
        }
        if !store::people::second_factor::present_passkey(&mut transaction, row.passkey.id)
            .await
            .map_err(failed)?
        {
            return Err(unknown_passkey());
        }
        noted(
            &mut transaction,
            &actor,
            "factor.present",
            json!({ "by": "passkey", "passkey": row.passkey.id }),
        )
        .await?;
        transaction.commit().await.map_err(failed)
    }

    /// Starts the setup of an authenticator app. The secret is returned here, and on this session's
    /// page until it is confirmed.
    ///
    /// # Errors
    /// If the person has an authenticator app, the session lacks another factor, or the actor uses
    /// a token.
    pub async fn start_totp(&self, actor: &Actor) -> Result<TotpSetup, Problem> {
        require_enrollable_session(actor)?;
        let mut secret = [0; SECRET_BYTES];
        fill_random(&mut secret)?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        require_factor_unless_none(&mut transaction, &actor).await?;
        if !store::people::second_factor::begin_totp(&mut transaction, actor.person, &secret)
            .await
            .map_err(failed)?
        {
            return Err(Problem::conflict(
                "totp_set",
                "You already have an authenticator app. Remove it in My account before you set up \
                 another one.",
            ));
        }
        transaction.commit().await.map_err(failed)?;
        Ok(totp_setup(&secret, &actor.name))
    }

    /// Confirms the authenticator app that this session set up. It counts as presented in this
    /// session.
    ///
    /// # Errors
    /// As [`People::present_factor`], and `no_totp` (409) if this session did not start a setup
    /// within the last minutes.
    pub async fn confirm_totp(
        &self,
        actor: &Actor,
        code: &Code,
        client: &ClientInfo,
    ) -> Result<(), Problem> {
        require_enrollable_session(actor)?;
        self.counted(actor, client, true, self.confirm_code(actor, code)).await
    }

    async fn confirm_code(&self, actor: &Actor, code: &Code) -> Result<(), Problem> {
        let session = require_enrollable_session(actor)?;
        let digits = validated_code(code)?;
        let not_begun = || {
            Problem::conflict(
                "no_totp",
                format!(
                    "This session has not started to set up an authenticator app in the last {} \
                     minutes. Start again.",
                    api::limits::TOTP_SETUP_MINUTES
                ),
            )
        };
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        require_factor_unless_none(&mut transaction, &actor).await?;
        let setup =
            store::people::second_factor::set_up(&mut transaction, actor.person, session.id)
                .await
                .map_err(failed)?;
        let step = time_step(&setup.ok_or_else(not_begun)?, &digits)?;
        if !store::people::second_factor::confirm_totp(&mut transaction, step)
            .await
            .map_err(failed)?
        {
            return Err(not_begun());
        }
        noted(&mut transaction, &actor, "totp.confirm", json!({})).await?;
        transaction.commit().await.map_err(failed)
    }

    /// Removes the actor's authenticator app. If the policy requires a second factor and this was
    /// the last one, the session needs a new one at once.
    ///
    /// # Errors
    /// If the session lacks its second factor, or the actor uses a token.
    pub async fn remove_totp(&self, actor: &Actor) -> Result<(), Problem> {
        actor.require_in_person()?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = actor.revalidate(&mut transaction).await?;
        actor.require_in_person()?;
        if store::people::second_factor::remove_totp(&mut transaction, actor.person)
            .await
            .map_err(failed)?
        {
            noted(&mut transaction, &actor, "totp.remove", json!({})).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Removes the authenticator app of a person who lost it, revokes their passkeys and ends their
    /// sessions. `by` is `None` for the owner of the database.
    ///
    /// # Errors
    /// If the person does not exist or is the actor, or the actor is not an admin.
    pub async fn reset_factor(&self, by: Option<&Actor>, id: PersonId) -> Result<(), Problem> {
        let (mut transaction, name) = match by {
            Some(actor) => {
                actor.require_in_person()?;
                let (transaction, actor, row) = self.begin_change(actor, id.into()).await?;
                if actor.person == id {
                    return Err(Problem::conflict(
                        "own_account",
                        "You cannot reset your own second factor. Remove your authenticator app \
                         and passkeys in My account, or ask another admin.",
                    ));
                }
                (transaction, row.name)
            }
            None => {
                let row = store::people::person(self.store.pool(), id)
                    .await
                    .map_err(failed)?
                    .ok_or_else(|| unknown_person(id))?;
                let mut transaction = self.begin_as(None).await?;
                lock_people(&mut transaction, &[id]).await.map_err(failed)?;
                (transaction, row.name)
            }
        };
        let totp = store::people::second_factor::remove_totp(&mut transaction, id)
            .await
            .map_err(failed)?;
        let by = super::id_of(by);
        let passkeys = store::people::second_factor::revoke_passkeys(&mut transaction, id, by)
            .await
            .map_err(failed)?;
        let sessions =
            store::people::end_all_sessions(&mut transaction, id, None).await.map_err(failed)?;
        let detail =
            json!({ "name": name, "totp": totp, "passkeys": passkeys, "sessions": sessions });
        append_audit(&mut transaction, by, "person.reset_factor", &id.to_string(), &detail)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }
}

pub(super) fn require_enrollable_session(actor: &Actor) -> Result<&Session, Problem> {
    actor.require_enrollable()?;
    actor.session.as_ref().ok_or_else(Problem::signed_out)
}

/// Refuses a session that lacks its factor, unless its person has none yet.
pub(super) async fn require_factor_unless_none(
    on: &mut PgConnection,
    actor: &Actor,
) -> Result<(), Problem> {
    let found =
        store::people::second_factor::second_factors(on, actor.person).await.map_err(failed)?;
    match actor.needs_factor() && (found.totp || found.passkeys > 0) {
        true => Err(factor_needed()),
        false => Ok(()),
    }
}

async fn noted(
    on: &mut PgConnection,
    actor: &Actor,
    action: &str,
    detail: Value,
) -> Result<(), Problem> {
    append_audit(on, Some(actor.person), action, &actor.person.to_string(), &detail)
        .await
        .map_err(failed)
}

fn validated_code(code: &Code) -> Result<String, Problem> {
    code.digits().ok_or_else(|| {
        Problem::invalid("code: enter the six digits that your authenticator app shows.")
    })
}

/// The time step of a code.
fn time_step(totp: &Totp, digits: &str) -> Result<i64, Problem> {
    let app = Builder::new()
        .with_secret(Secret::new_stack(totp.secret))
        .with_skew(MAX_SKEW_STEPS)
        .with_step_duration(STEP_SECONDS)
        .build();
    let app = app.map_err(|_| Problem::internal())?;
    let step = app.check(digits, totp.now).and_then(|step| i64::try_from(step).ok());
    step.ok_or_else(|| Problem {
        code: "code_wrong".into(),
        ..Problem::forbidden(
            "The code is wrong or too old. Enter the code that your authenticator app shows now. \
             Check the clock of its device.",
        )
    })
}

fn totp_setup(secret: &[u8; SECRET_BYTES], name: &str) -> TotpSetup {
    let secret = Secret::new_stack(*secret).to_base32();
    // Names consist of lower case letters, digits, '.', '_', '@' and '-', so only '@' needs
    // encoding.
    let label = name.replace('@', "%40");
    let uri = format!(
        "otpauth://totp/Gantry:{label}?secret={secret}&issuer=Gantry&algorithm=SHA1&digits=6&period={STEP_SECONDS}"
    );
    TotpSetup { secret, uri }
}

fn fill_random(bytes: &mut [u8]) -> Result<(), Problem> {
    rand::rngs::OsRng.try_fill_bytes(bytes).map_err(|reason| {
        tracing::error!(%reason, "the system returned no random numbers");
        Problem::internal()
    })
}

/// The challenge of a passkey request, unless it has expired.
fn open_challenge(state: &Value) -> Option<Hash> {
    let request = state.get("second_factor")?;
    let age = OffsetDateTime::now_utc().unix_timestamp() - request.get("at")?.as_i64()?;
    let in_time = u64::try_from(age.max(0)).is_ok_and(|age| age <= PASSKEY_TIMEOUT_SECONDS);
    in_time.then(|| serde_json::from_value(request.get("challenge")?.clone()).ok()).flatten()
}

fn rejected(error: &PasskeyError) -> Problem {
    match error {
        PasskeyError::Malformed(_) => Problem::invalid(format!("answer: {error}.")),
        PasskeyError::Corrupt(_) => {
            tracing::error!(%error, "a passkey cannot be verified");
            Problem::internal()
        }
        _ => Problem {
            code: "passkey_rejected".into(),
            ..Problem::forbidden(format!("{error}. Try again, or use your authenticator app."))
        },
    }
}

fn unknown_passkey() -> Problem {
    Problem {
        code: "passkey_rejected".into(),
        ..Problem::forbidden(
            "This passkey is not registered for you here, or is revoked. Use another one, or your \
             authenticator app.",
        )
    }
}

fn no_totp() -> Problem {
    Problem::conflict(
        "no_totp",
        "You have no authenticator app. Use a passkey, or set up an authenticator app at \
         /second-factor.",
    )
}

fn too_many_codes(wait: std::time::Duration) -> Problem {
    let detail = format!(
        "Too many wrong codes for this account. Try again in {}, or use a passkey.",
        super::minutes(wait)
    );
    super::too_many_attempts(detail, wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_neighboring_steps_is_accepted() {
        // RFC 6238, appendix B.
        let totp = |now| Totp { secret: *b"12345678901234567890", now };
        assert_eq!(time_step(&totp(59), "287082"), Ok(1));
        assert_eq!(time_step(&totp(1_111_111_109), "081804"), Ok(37_037_036));
        for (now, is_right) in [(0, true), (89, true), (90, false)] {
            assert_eq!(time_step(&totp(now), "287082").is_ok(), is_right, "{now}");
        }
        assert_eq!(time_step(&totp(59), "287083").expect_err("a refusal").code, "code_wrong");
        assert!(
            !format!("{:?}", totp(1)).contains("49"),
            "debug output must not contain the secret"
        );
    }

    #[test]
    fn set_up_has_the_secret_and_the_uri() {
        let made = totp_setup(b"12345678901234567890", "ada@example.com");
        assert_eq!(made.secret, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        let uri = "otpauth://totp/Gantry:ada%40example.com?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Gantry&algorithm=SHA1&digits=6&period=30";
        assert_eq!(made.uri, uri);
        assert!(!format!("{made:?}").contains("GEZ"));
    }

    #[test]
    fn passkey_request_expires() {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let request =
            |at: i64| json!({ "second_factor": { "challenge": Hash::of_bytes(b"x"), "at": at } });
        assert_eq!(open_challenge(&request(now)), Some(Hash::of_bytes(b"x")));
        assert_eq!(open_challenge(&request(now - 302)), None);
        assert_eq!(open_challenge(&json!({ "registration": {} })), None);
    }
}
