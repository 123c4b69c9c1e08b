//! Passkeys: people register and revoke their own, and confirm them with another one.
//!
//! A passkey is a second factor from its registration on. It counts for signed verdicts once it is
//! confirmed. The owner of the database, another passkey of its person, or an admin's passkey can
//! confirm it; the admin first compares the fingerprint with the person. See
//! [`engine::gate::signature`].

use api::Problem;
use api::limits::PASSKEY_NAME;
use api::people::{PasskeyOptions, PasskeyRequest, PasskeyView, Signature, SignatureRequest};
use engine::gate::signature::{Nonce, Statement, check_confirmed, fingerprint};
use engine::ids::{PasskeyId, PersonId};
use passkeys::{PasskeyError, RelyingParty};
use rand::TryRngCore as _;
use serde_json::json;
use sqlx::PgConnection;
use store::audit::append_audit;
use store::people::accounts::lock_people;
use store::people::passkeys::{NewPasskey, PasskeyRow};

use super::second_factor::{require_enrollable_session, require_factor_unless_none};
use super::{Actor, People, Permission, Session, failed};
use crate::text;
use crate::text::at;

impl People {
    /// The options for the browser to create a passkey.
    ///
    /// # Errors
    /// If the actor uses a token, or the site has no host name.
    pub async fn passkey_options(
        &self,
        actor: &Actor,
        site: &RelyingParty,
    ) -> Result<PasskeyOptions, Problem> {
        let session = require_enrollable_session(actor)?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = &actor.revalidate(&mut transaction).await?;
        require_factor_unless_none(&mut transaction, actor).await?;
        let registered = store::people::passkeys::list_passkeys(&mut transaction, actor.person)
            .await
            .map_err(failed)?;
        let registered: Vec<Vec<u8>> =
            registered.into_iter().map(|row| row.credential_id).collect();
        let begun = passkeys::registration(site, actor.person, &actor.name, &registered);
        let (options, state) = begun.map_err(|error| rejected(&error))?;
        let state = json!({ "registration": state });
        store::people::passkeys::begin_ceremony(&mut transaction, session.id, &state)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(PasskeyOptions { options })
    }

    /// Registers the passkey that the browser created.
    ///
    /// # Errors
    /// If there were no options before, the response does not match them, or the passkey is already
    /// registered.
    pub async fn register_passkey(
        &self,
        actor: &Actor,
        site: &RelyingParty,
        input: &PasskeyRequest,
    ) -> Result<PasskeyView, Problem> {
        let session = require_enrollable_session(actor)?;
        let name = text::plain(&input.name)?;
        if name.is_empty() || name.chars().count() > PASSKEY_NAME {
            return Err(Problem::invalid(format!(
                "The name of a passkey must have 1 to {PASSKEY_NAME} characters."
            )));
        }
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        lock_people(&mut transaction, &[actor.person]).await.map_err(failed)?;
        let actor = &actor.revalidate(&mut transaction).await?;
        require_factor_unless_none(&mut transaction, actor).await?;
        let state = store::people::passkeys::consume_ceremony(&mut transaction, session.id)
            .await
            .map_err(failed)?;
        let state =
            state.as_ref().and_then(|state| state.get("registration")).ok_or_else(not_begun)?;
        let registered_key =
            passkeys::register(site, state, &input.answer).map_err(|error| rejected(&error))?;
        let new = NewPasskey {
            person: actor.person,
            name: name.to_owned(),
            rp_id: site.rp_id.clone(),
            origin: site.origin.clone(),
            credential_id: registered_key.credential_id,
            credential: registered_key.credential,
            counter: registered_key.counter,
        };
        let id = store::people::passkeys::insert(&mut transaction, &new).await.map_err(failed)?;
        let id = id.ok_or_else(|| {
            Problem::conflict(
                "passkey_registered",
                "This passkey is already registered. Use another one.",
            )
        })?;
        let row = store::people::passkeys::one(&mut transaction, id)
            .await
            .map_err(failed)?
            .ok_or_else(Problem::internal)?;
        let view = view(row)?;
        let detail = json!({ "name": name, "fingerprint": view.fingerprint });
        append_audit(
            &mut transaction,
            Some(actor.person),
            "passkey.register",
            &id.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(view)
    }

    /// Revokes a passkey: the actor's own, or as an admin another person's.
    ///
    /// # Errors
    /// If there is no such passkey, or it belongs to another person and the actor is not an admin.
    pub async fn revoke_passkey(&self, actor: &Actor, id: PasskeyId) -> Result<(), Problem> {
        require_session(actor)?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let actor = &actor.revalidate(&mut transaction).await?;
        let row = find_passkey(&mut transaction, actor, id).await?;
        if store::people::passkeys::revoke(&mut transaction, id, actor.person)
            .await
            .map_err(failed)?
        {
            let detail = json!({ "name": row.name, "person": row.passkey.person });
            append_audit(
                &mut transaction,
                Some(actor.person),
                "passkey.revoke",
                &id.to_string(),
                &detail,
            )
            .await
            .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// The request for the actor's browser to sign the confirmation of a passkey.
    ///
    /// # Errors
    /// If there is no such passkey, it is already confirmed, or the actor has no confirmed passkey
    /// for this site.
    pub async fn confirmation_options(
        &self,
        actor: &Actor,
        site: &RelyingParty,
        id: PasskeyId,
    ) -> Result<SignatureRequest, Problem> {
        require_session(actor)?;
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        let row = find_passkey(&mut connection, actor, id).await?;
        unconfirmed(&row)?;
        let passkeys = usable(&mut connection, actor, site).await?;
        let nonce = random_nonce()?;
        let challenge =
            statement(&row, actor, nonce)?.challenge().map_err(|_| Problem::internal())?;
        Ok(SignatureRequest {
            nonce: nonce.to_string(),
            options: passkeys::request(site, challenge, &passkeys),
        })
    }

    /// Confirms a passkey with a signature of the actor's passkey.
    ///
    /// # Errors
    /// As [`People::confirmation_options`], and if the signature is invalid.
    pub async fn confirm_passkey(
        &self,
        actor: &Actor,
        id: PasskeyId,
        signature: &Signature,
    ) -> Result<PasskeyView, Problem> {
        require_session(actor)?;
        let nonce = nonce(&signature.nonce)?;
        let (credential, assertion) =
            passkeys::assertion(&signature.answer).map_err(|error| rejected(&error))?;
        let mut transaction = self.store.pool().begin().await.map_err(failed)?;
        let actor = &actor.revalidate(&mut transaction).await?;
        let row = find_passkey(&mut transaction, actor, id).await?;
        unconfirmed(&row)?;
        let signer = answered(&mut transaction, actor, &credential).await?;
        let chain = store::people::passkeys::load_with_confirmers(
            &mut transaction,
            &[signer.passkey.id].into(),
        )
        .await
        .map_err(failed)?;
        check_confirmed(&signer.passkey, &chain, &passkeys::verify).map_err(|error| {
            Problem::conflict("passkey_not_confirmed", format!("{error}. Use a confirmed passkey."))
        })?;
        let challenge =
            statement(&row, actor, nonce)?.challenge().map_err(|_| Problem::internal())?;
        let counter = passkeys::verified(&signer.passkey, challenge, &assertion)
            .map_err(|error| rejected(&error))?;
        record_use(&mut transaction, &signer, counter).await?;
        store::people::passkeys::confirm(
            &mut transaction,
            id,
            signer.passkey.id,
            nonce,
            &assertion,
        )
        .await
        .map_err(failed)?;
        let detail = json!({ "name": row.name, "person": row.passkey.person, "by_passkey": signer.passkey.id });
        append_audit(
            &mut transaction,
            Some(actor.person),
            "passkey.confirm",
            &id.to_string(),
            &detail,
        )
        .await
        .map_err(failed)?;
        let row = store::people::passkeys::one(&mut transaction, id)
            .await
            .map_err(failed)?
            .ok_or_else(Problem::internal)?;
        transaction.commit().await.map_err(failed)?;
        view(row)
    }
}

impl People {
    /// The valid passkeys of a person, for the owner of the database.
    pub async fn list_passkeys(&self, person: PersonId) -> Result<Vec<PasskeyView>, Problem> {
        let mut connection = self.store.pool().acquire().await.map_err(failed)?;
        views(&mut connection, person).await
    }

    /// Confirms the passkey of a person with the given fingerprint, over a connection of the
    /// database owner.
    ///
    /// # Errors
    /// If the person has no such passkey, or it is already confirmed.
    pub async fn confirm_passkey_as_owner(
        &self,
        person: PersonId,
        text: &str,
    ) -> Result<PasskeyView, Problem> {
        let mut transaction = self.begin_as(None).await?;
        let all = store::people::passkeys::list_passkeys(&mut transaction, person)
            .await
            .map_err(failed)?;
        let requested = text.trim().to_lowercase();
        let mut found = None;
        for row in all {
            if fingerprint(store::people::passkeys::digest(&row).map_err(failed)?) == requested {
                found = Some(row);
            }
        }
        let row = found.ok_or_else(|| {
            Problem::not_found(format!(
                "This person has no passkey with the fingerprint {text:?}. List them with \
                 --passkeys."
            ))
        })?;
        unconfirmed(&row)?;
        let id = row.passkey.id;
        store::people::passkeys::confirm_as_owner(&mut transaction, id).await.map_err(failed)?;
        let detail = json!({ "name": row.name, "person": person, "by": "owner" });
        append_audit(&mut transaction, None, "passkey.confirm", &id.to_string(), &detail)
            .await
            .map_err(failed)?;
        let row = store::people::passkeys::one(&mut transaction, id)
            .await
            .map_err(failed)?
            .ok_or_else(Problem::internal)?;
        transaction.commit().await.map_err(failed)?;
        view(row)
    }
}

/// A person's passkeys that are not revoked.
pub(super) async fn views(
    on: &mut PgConnection,
    person: PersonId,
) -> Result<Vec<PasskeyView>, Problem> {
    store::people::passkeys::list_passkeys(on, person)
        .await
        .map_err(failed)?
        .into_iter()
        .map(view)
        .collect()
}

fn view(row: PasskeyRow) -> Result<PasskeyView, Problem> {
    let digest = store::people::passkeys::digest(&row).map_err(failed)?;
    Ok(PasskeyView {
        id: row.passkey.id,
        name: row.name,
        host: row.passkey.rp_id,
        fingerprint: fingerprint(digest),
        confirmed: row.passkey.confirmation.is_some(),
        confirmed_by: row.confirmed_by,
        confirmer_revoked: row.confirmer_revoked_at.map(at),
        created: at(row.created_at),
        used: row.last_used_at.map(at),
    })
}

fn require_session(actor: &Actor) -> Result<&Session, Problem> {
    actor.require_in_person()?;
    actor.session.as_ref().ok_or_else(Problem::signed_out)
}

fn not_begun() -> Problem {
    Problem::conflict(
        "passkey_not_begun",
        "This session has not started a registration, or has already used it. Start again.",
    )
}

/// A passkey that the actor may see: their own, or any as an admin.
async fn find_passkey(
    on: &mut PgConnection,
    actor: &Actor,
    id: PasskeyId,
) -> Result<PasskeyRow, Problem> {
    let row = store::people::passkeys::one(on, id)
        .await
        .map_err(failed)?
        .filter(|row| row.revoked_at.is_none());
    let may = |row: &PasskeyRow| row.passkey.person == actor.person || actor.may(Permission::Admin);
    row.filter(may).ok_or_else(|| {
        Problem::not_found(format!(
            "You have no passkey {id}. Only admins can see the passkeys of other people."
        ))
    })
}

fn unconfirmed(row: &PasskeyRow) -> Result<(), Problem> {
    match row.passkey.confirmation {
        None => Ok(()),
        Some(_) => {
            Err(Problem::conflict("passkey_confirmed", "This passkey is already confirmed."))
        }
    }
}

fn statement(row: &PasskeyRow, actor: &Actor, nonce: Nonce) -> Result<Statement, Problem> {
    let digest = store::people::passkeys::digest(row).map_err(failed)?;
    Ok(Statement::Confirmation { passkey: row.passkey.id, digest, person: actor.person, nonce })
}

/// The ids of the actor's confirmed passkeys that work on this site.
pub(crate) async fn usable(
    on: &mut PgConnection,
    actor: &Actor,
    site: &RelyingParty,
) -> Result<Vec<Vec<u8>>, Problem> {
    let all = store::people::passkeys::list_passkeys(on, actor.person).await.map_err(failed)?;
    let (confirmed, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|row| row.passkey.confirmation.is_some());
    let on_site = confirmed.iter().filter(|row| row.passkey.origin == site.origin);
    let ids: Vec<Vec<u8>> = on_site.map(|row| row.credential_id.clone()).collect();
    if !ids.is_empty() {
        return Ok(ids);
    }
    let detail = match (confirmed.first(), others.is_empty()) {
        (Some(row), _) => format!(
            "Your passkeys work at {}, but this is {}. Open Gantry there, or register a passkey \
             here.",
            row.passkey.origin, site.origin
        ),
        (None, true) => "You have no passkey. Register one in My account.".to_owned(),
        (None, false) => {
            "None of your passkeys is confirmed. Ask an admin to compare its fingerprint and \
             confirm it."
                .to_owned()
        }
    };
    Err(Problem::conflict("no_passkey", detail))
}

/// The actor's passkey that the browser used.
pub(crate) async fn answered(
    on: &mut PgConnection,
    actor: &Actor,
    credential: &[u8],
) -> Result<PasskeyRow, Problem> {
    let all = store::people::passkeys::list_passkeys(on, actor.person).await.map_err(failed)?;
    all.into_iter().find(|row| row.credential_id == credential).ok_or_else(|| Problem {
        code: "passkey_unknown".into(),
        ..Problem::forbidden("This passkey is not one of yours. Use another one.")
    })
}

/// Records a use of a passkey.
///
/// # Errors
/// If the authenticator's counter decreased, which indicates a cloned authenticator.
pub(crate) async fn record_use(
    on: &mut PgConnection,
    passkey: &PasskeyRow,
    counter: u32,
) -> Result<(), Problem> {
    if store::people::passkeys::record_use(on, passkey.passkey.id, counter).await.map_err(failed)? {
        return Ok(());
    }
    let text = format!(
        "The counter of passkey {} decreased, so the passkey may have been copied. Revoke it and \
         register another one.",
        passkey.name
    );
    Err(Problem { code: "passkey_copied".into(), ..Problem::forbidden(text) })
}

pub(crate) fn rejected(error: &PasskeyError) -> Problem {
    match error {
        PasskeyError::Corrupt(_) => {
            tracing::error!(%error, "a passkey cannot be used");
            Problem::internal()
        }
        PasskeyError::NoHostName(_) => Problem::conflict("no_host_name", format!("{error}.")),
        PasskeyError::Malformed(_) | PasskeyError::Rejected(_) => Problem {
            code: "passkey_rejected".into(),
            ..Problem::invalid(format!("{}. Try again.", text::capitalize(&error.to_string())))
        },
    }
}

pub(crate) fn nonce(text: &str) -> Result<Nonce, Problem> {
    text.parse().map_err(|error| {
        Problem::invalid(format!("nonce: {error}. Send the nonce from the options."))
    })
}

pub(crate) fn random_nonce() -> Result<Nonce, Problem> {
    let mut bytes = [0; 16];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(|reason| {
        tracing::error!(%reason, "the system returned no random numbers");
        Problem::internal()
    })?;
    Ok(Nonce(bytes))
}
