//! A software authenticator for tests: one ES256 key that responds like a browser.
//!
//! Formats: WebAuthn Level 3, sections 5.8.1 (client data), 6.1 (authenticator data) and 6.5.4
//! (attestation object, format `none`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Hash;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const ATTESTED_CREDENTIAL_DATA: u8 = 0x40;

/// A key with its credential id. Its counter is always 0, like that of synced passkeys.
#[derive(Debug)]
pub struct Authenticator {
    key: EcdsaKeyPair,
    id: Vec<u8>,
    verifies: bool,
}

impl Default for Authenticator {
    fn default() -> Self {
        Self::new()
    }
}

impl Authenticator {
    /// Creates an authenticator with a new key.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[expect(clippy::unwrap_used, reason = "it is for tests")]
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random)
                .unwrap();
        let id = Hash::of_bytes(key.public_key().as_ref()).as_bytes().to_vec();
        Self { key, id, verifies: true }
    }

    /// Disables user verification.
    #[must_use]
    pub fn without_verification(self) -> Self {
        Self { verifies: false, ..self }
    }

    pub fn credential_id(&self) -> &[u8] {
        &self.id
    }

    fn flags(&self) -> u8 {
        USER_PRESENT | if self.verifies { USER_VERIFIED } else { 0 }
    }

    fn client_data(kind: &str, origin: &str, options: &Value) -> Vec<u8> {
        json!(
            {
                "type": kind, "challenge": options["challenge"], "origin": origin,
                "crossOrigin": false
            }
        )
        .to_string()
        .into_bytes()
    }

    /// Responds to `navigator.credentials.create` with these options.
    pub fn create(&self, origin: &str, options: &Value) -> Value {
        let rp_id = options["rp"]["id"].as_str().unwrap_or_default();
        let mut auth_data = authenticator_data(rp_id, self.flags() | ATTESTED_CREDENTIAL_DATA);
        auth_data.extend([0; 16]);
        auth_data.extend(u16::try_from(self.id.len()).unwrap_or_default().to_be_bytes());
        auth_data.extend(&self.id);
        auth_data.extend(self.cose_key());
        // {"fmt": "none", "attStmt": {}, "authData": data} in CBOR.
        let mut attestation = vec![0xa3, 0x63];
        attestation.extend(b"fmt\x64none\x67attStmt\xa0\x68authData\x59");
        attestation.extend(u16::try_from(auth_data.len()).unwrap_or_default().to_be_bytes());
        attestation.extend(auth_data);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "id": encode(&self.id), "rawId": encode(&self.id), "type": "public-key",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": encode(&Self::client_data("webauthn.create", origin, options)),
                "attestationObject": encode(&attestation), "transports": ["internal"],
            },
        })
    }

    /// Responds to `navigator.credentials.get` with these options.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[expect(clippy::unwrap_used, reason = "it is for tests")]
    pub fn get(&self, origin: &str, options: &Value) -> Value {
        let client_data = Self::client_data("webauthn.get", origin, options);
        let auth_data =
            authenticator_data(options["rpId"].as_str().unwrap_or_default(), self.flags());
        let message = [auth_data.as_slice(), Hash::of_bytes(&client_data).as_bytes()].concat();
        let signature = self.key.sign(&SystemRandom::new(), &message).unwrap();
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "id": encode(&self.id), "rawId": encode(&self.id), "type": "public-key",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": encode(&client_data), "authenticatorData": encode(&auth_data),
                "signature": encode(signature.as_ref()), "userHandle": null,
            },
        })
    }

    /// The public key as COSE: {1: 2, 3: -7, -1: 1, -2: x, -3: y} in CBOR.
    fn cose_key(&self) -> Vec<u8> {
        let point = self.key.public_key().as_ref();
        let (x, y) = point.get(1..65).unwrap_or(&[0; 64]).split_at(32);
        let mut key = vec![0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20];
        key.extend(x);
        key.extend([0x22, 0x58, 0x20]);
        key.extend(y);
        key
    }
}

fn authenticator_data(rp_id: &str, flags: u8) -> Vec<u8> {
    let mut auth_data = Hash::of_bytes(rp_id.as_bytes()).as_bytes().to_vec();
    auth_data.push(flags);
    auth_data.extend([0; 4]);
    auth_data
}
