//! WebAuthn for Gantry: registrations, second factors, and signatures of statements.
//!
//! The library (webauthn-rs) parses and verifies everything. This crate fixes the choices. User
//! verification is always required. The challenge of a signature is the hash of a
//! [`engine::gate::signature::Statement`], so an assertion proves that a person signed that
//! statement. The crate reads no clock and no database.
//!
//! A credential is stored as the library's JSON without nulls. The audit stores rows without nulls,
//! and a passkey's digest must be the same in both.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Hash;
use engine::gate::signature::{Assertion, Passkey};
use engine::ids::PersonId;
use serde_json::{Value, json};
use webauthn_rs::prelude::{
    CredentialID, Passkey as Credential, PasskeyAuthentication, PasskeyRegistration,
    PublicKeyCredential, RegisterPublicKeyCredential, Url, Webauthn, WebauthnBuilder,
};

/// Why a registration or a signature is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasskeyError {
    /// Passkeys require a host name.
    #[error(
        "Passkeys need a host name, but {0} has none. Open Gantry with its host name, such as \
         http://localhost"
    )]
    NoHostName(String),
    /// The browser's response is malformed.
    #[error("Invalid WebAuthn response: {0}")]
    Malformed(String),
    /// The library rejects the response.
    #[error("The passkey was rejected: {0}")]
    Rejected(String),
    /// A stored credential or state can't be read.
    #[error("A stored passkey cannot be read: {0}")]
    Corrupt(String),
}

/// The address at which users open Gantry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    /// The host name (WebAuthn: relying party ID).
    pub rp_id: String,
    /// Scheme, host and port.
    pub origin: String,
}

impl RelyingParty {
    /// Parses an address such as `https://gantry.example.com`.
    ///
    /// # Errors
    /// [`PasskeyError::NoHostName`] for addresses such as `http://127.0.0.1:7780`.
    pub fn of(origin: &str) -> Result<Self, PasskeyError> {
        let no_name = || PasskeyError::NoHostName(origin.to_owned());
        let url = Url::parse(origin).map_err(|_| no_name())?;
        let rp_id = url.domain().ok_or_else(no_name)?.to_owned();
        Ok(Self { rp_id, origin: url.origin().ascii_serialization() })
    }

    fn webauthn(&self) -> Result<Webauthn, PasskeyError> {
        let corrupt = |error: String| PasskeyError::Corrupt(format!("{}: {error}", self.origin));
        let origin = Url::parse(&self.origin).map_err(|error| corrupt(error.to_string()))?;
        let builder = WebauthnBuilder::new(&self.rp_id, &origin)
            .map_err(|error| corrupt(error.to_string()))?;
        builder.rp_name("Gantry").build().map_err(|error| corrupt(error.to_string()))
    }
}

/// A registered passkey that is not stored yet.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredCredential {
    /// The authenticator's id of the credential.
    pub credential_id: Vec<u8>,
    /// The public key and its properties, without nulls.
    pub credential: Value,
    pub counter: u32,
}

/// Starts a registration. Returns the options for the browser
/// (`PublicKeyCredentialCreationOptionsJSON`) and the state for [`register`]. An authenticator with
/// a credential in `registered` refuses to create another.
pub fn registration(
    relying_party: &RelyingParty,
    person: PersonId,
    name: &str,
    registered: &[Vec<u8>],
) -> Result<(Value, Value), PasskeyError> {
    let exclude: Vec<CredentialID> = registered.to_vec();
    let started =
        relying_party.webauthn()?.start_passkey_registration(person.0, name, name, Some(exclude));
    let (options, state) = started.map_err(|error| PasskeyError::Rejected(error.to_string()))?;
    let options = written(&options)?.get("publicKey").cloned().unwrap_or_default();
    Ok((options, written(&state)?))
}

/// Finishes a registration with the browser's response (`PublicKeyCredential.toJSON()`).
pub fn register(
    relying_party: &RelyingParty,
    state: &Value,
    answer: &Value,
) -> Result<RegisteredCredential, PasskeyError> {
    let state: PasskeyRegistration = serde_json::from_value(state.clone())
        .map_err(|error| PasskeyError::Corrupt(error.to_string()))?;
    let answer: RegisterPublicKeyCredential = serde_json::from_value(answer.clone())
        .map_err(|error| PasskeyError::Malformed(error.to_string()))?;
    let made = relying_party.webauthn()?.finish_passkey_registration(&answer, &state);
    let made = made.map_err(|error| PasskeyError::Rejected(error.to_string()))?;
    let credential = without_nulls(written(&made)?);
    let counter = credential.pointer("/cred/counter").and_then(Value::as_u64).unwrap_or_default();
    Ok(RegisteredCredential {
        credential_id: made.cred_id().as_slice().to_vec(),
        counter: u32::try_from(counter).unwrap_or(u32::MAX),
        credential,
    })
}

/// Returns the options for the browser (`PublicKeyCredentialRequestOptionsJSON`) to sign a
/// challenge with one of these credentials.
pub fn request(relying_party: &RelyingParty, challenge: Hash, credential_ids: &[Vec<u8>]) -> Value {
    let allowed = credential_ids
        .iter()
        .map(|id| json!({ "type": "public-key", "id": URL_SAFE_NO_PAD.encode(id) }));
    json!({
        "challenge": URL_SAFE_NO_PAD.encode(challenge.as_bytes()),
        "rpId": relying_party.rp_id,
        "allowCredentials": allowed.collect::<Vec<_>>(),
        "userVerification": "required",
        "timeout": 300_000,
    })
}

/// Parses a browser's response to [`request`] (`PublicKeyCredential.toJSON()`): the credential's id
/// and the signature.
///
/// # Errors
/// [`PasskeyError::Malformed`].
pub fn assertion(answer: &Value) -> Result<(Vec<u8>, Assertion), PasskeyError> {
    let answer: PublicKeyCredential = serde_json::from_value(answer.clone())
        .map_err(|error| PasskeyError::Malformed(error.to_string()))?;
    let assertion = Assertion {
        client_data: answer.response.client_data_json,
        authenticator_data: answer.response.authenticator_data,
        signature: answer.response.signature,
    };
    Ok((answer.raw_id, assertion))
}

/// Verifies that a passkey signed a challenge with user verification. Returns the authenticator's
/// counter.
pub fn verified(
    passkey: &Passkey,
    challenge: Hash,
    assertion: &Assertion,
) -> Result<u32, PasskeyError> {
    let relying_party =
        RelyingParty { rp_id: passkey.rp_id.clone(), origin: passkey.origin.clone() };
    let corrupt = |error: serde_json::Error| PasskeyError::Corrupt(error.to_string());
    let credential: Credential =
        serde_json::from_value(passkey.credential.clone()).map_err(corrupt)?;
    let id = URL_SAFE_NO_PAD.encode(credential.cred_id());
    let state: PasskeyAuthentication = serde_json::from_value(json!({ "ast": {
        "credentials": [passkey.credential.get("cred")],
        "policy": "required",
        "challenge": URL_SAFE_NO_PAD.encode(challenge.as_bytes()),
        "appid": null,
        "allow_backup_eligible_upgrade": true,
    }}))
    .map_err(corrupt)?;
    let answer: PublicKeyCredential = serde_json::from_value(json!({
        "id": id,
        "rawId": id,
        "type": "public-key",
        "response": {
            "clientDataJSON": URL_SAFE_NO_PAD.encode(&assertion.client_data),
            "authenticatorData": URL_SAFE_NO_PAD.encode(&assertion.authenticator_data),
            "signature": URL_SAFE_NO_PAD.encode(&assertion.signature),
            "userHandle": null,
        },
    }))
    .map_err(corrupt)?;
    let result = relying_party.webauthn()?.finish_passkey_authentication(&answer, &state);
    result.map(|result| result.counter()).map_err(|error| PasskeyError::Rejected(error.to_string()))
}

/// [`verified`] as [`engine::gate::signature::Verify`].
///
/// # Errors
/// The message of [`PasskeyError`].
pub fn verify(passkey: &Passkey, challenge: Hash, assertion: &Assertion) -> Result<(), String> {
    verified(passkey, challenge, assertion).map(|_| ()).map_err(|error| error.to_string())
}

fn written(value: &impl serde::Serialize) -> Result<Value, PasskeyError> {
    serde_json::to_value(value).map_err(|error| PasskeyError::Corrupt(error.to_string()))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k, without_nulls(v)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use authenticator::Authenticator;
    use engine::ids::PasskeyId;
    use uuid::Uuid;

    const ORIGIN: &str = "http://localhost:7780";

    fn registered(authenticator: &Authenticator) -> Passkey {
        let relying_party = RelyingParty::of(ORIGIN).unwrap();
        let person = PersonId(Uuid::from_u128(1));
        let (options, state) = registration(&relying_party, person, "bo", &[]).unwrap();
        let made =
            register(&relying_party, &state, &authenticator.create(ORIGIN, &options)).unwrap();
        Passkey {
            id: PasskeyId(Uuid::from_u128(2)),
            person,
            rp_id: relying_party.rp_id,
            origin: relying_party.origin,
            credential: made.credential,
            confirmation: None,
        }
    }

    #[test]
    fn registered_passkey_signs_one_challenge() {
        let authenticator = Authenticator::new();
        let passkey = registered(&authenticator);
        let (challenge, relying_party) =
            (Hash::of_bytes(b"statement"), RelyingParty::of(ORIGIN).unwrap());
        let options = request(&relying_party, challenge, &[authenticator.credential_id().to_vec()]);
        let (id, signed) = assertion(&authenticator.get(ORIGIN, &options)).unwrap();
        assert_eq!(id, authenticator.credential_id());
        assert_eq!(verified(&passkey, challenge, &signed), Ok(0));
        assert!(verified(&passkey, Hash::of_bytes(b"another"), &signed).is_err());
        let other_origin = Passkey { origin: "http://localhost:7781".into(), ..passkey.clone() };
        assert!(verified(&other_origin, challenge, &signed).is_err());
        let mut forged = signed.clone();
        *forged.signature.last_mut().unwrap() ^= 1;
        assert!(verified(&passkey, challenge, &forged).is_err());
        assert!(verified(&registered(&Authenticator::new()), challenge, &signed).is_err());
    }

    #[test]
    fn signature_without_user_verification_is_rejected() {
        let authenticator = Authenticator::new();
        let passkey = registered(&authenticator);
        let challenge = Hash::of_bytes(b"statement");
        let options = request(&RelyingParty::of(ORIGIN).unwrap(), challenge, &[]);
        let (_, signed) =
            assertion(&authenticator.without_verification().get(ORIGIN, &options)).unwrap();
        let rejected = verified(&passkey, challenge, &signed).unwrap_err();
        assert!(matches!(rejected, PasskeyError::Rejected(_)), "{rejected}");
    }

    #[test]
    fn address_without_host_name_is_rejected() {
        for origin in ["http://127.0.0.1:7780", "http://[::1]:7780", "not an address"] {
            assert!(
                matches!(RelyingParty::of(origin), Err(PasskeyError::NoHostName(_))),
                "{origin}"
            );
        }
        assert_eq!(
            RelyingParty::of("https://gantry.example.com/").unwrap().origin,
            "https://gantry.example.com"
        );
    }

    #[test]
    fn malformed_answers_are_rejected() {
        let relying_party = RelyingParty::of(ORIGIN).unwrap();
        let (_, state) = registration(&relying_party, PersonId(Uuid::nil()), "bo", &[]).unwrap();
        for answer in [
            json!(null),
            json!({}),
            json!({ "id": "x", "rawId": "x", "type": "public-key", "response": {} }),
        ] {
            assert!(
                matches!(
                    register(&relying_party, &state, &answer),
                    Err(PasskeyError::Malformed(_))
                ),
                "{answer}"
            );
            assert!(matches!(assertion(&answer), Err(PasskeyError::Malformed(_))), "{answer}");
        }
    }
}
