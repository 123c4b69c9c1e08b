//! The second factor at sign-in: an authenticator app (TOTP) or a passkey.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A code of an authenticator app. It is never written to logs.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Code(String);

impl<'de> Deserialize<'de> for Code {
    /// The error does not quote the value.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("a code must be a string")),
        }
    }
}

impl Code {
    pub fn entered(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The six digits without spaces, or `None` for any other form.
    pub fn digits(&self) -> Option<String> {
        if self.0.len() > 32 {
            return None;
        }
        let digits: String = self.0.chars().filter(|c| !c.is_whitespace()).collect();
        (digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(…)")
    }
}

/// Your second factor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecondFactor {
    /// Whether an authenticator app is set up.
    pub totp: bool,
    /// Number of passkeys that are not revoked.
    pub passkeys: u32,
    /// Whether the policy in force requires a second factor of everyone.
    pub required: bool,
    /// Whether this session must present a factor, or set up the first one, before anything else.
    pub needed: bool,
}

impl SecondFactor {
    pub fn any(&self) -> bool {
        self.totp || self.passkeys > 0
    }
}

/// A second factor to present: a code or the answer of a passkey.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FactorRequest {
    /// The six-digit code that the authenticator app shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The browser's answer to the options: `PublicKeyCredential.toJSON()` of
    /// `navigator.credentials.get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
}

/// A code that confirms an authenticator app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CodeRequest {
    /// The six-digit code that the authenticator app shows.
    pub code: Code,
}

/// Options for the browser to sign in with a passkey.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FactorOptions {
    /// For `PublicKeyCredential.parseRequestOptionsFromJSON`.
    pub options: Value,
}

/// The secret of an authenticator app, during its setup.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TotpSetup {
    /// The secret in base32, to enter manually.
    pub secret: String,
    /// The secret as an `otpauth://` URI for authenticator apps.
    pub uri: String,
}

impl fmt::Debug for TotpSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpSetup(…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondFactorPage {
    pub person: String,
    pub state: SecondFactor,
    /// The authenticator app that this session is setting up.
    pub set_up: Option<TotpSetup>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_six_digits() {
        for (text, digits) in [
            ("123456", Some("123456")),
            (" 123 456\n", Some("123456")),
            ("12345", None),
            ("12345a", None),
        ] {
            assert_eq!(Code::entered(text).digits().as_deref(), digits, "{text}");
        }
        assert_eq!(Code::entered(" ".repeat(40) + "123456").digits(), None);
        assert!(!format!("{:?}", Code::entered("123456")).contains("123"));
        let refused =
            serde_json::from_str::<CodeRequest>(r#"{"code": 123456}"#).expect_err("a refusal");
        assert!(!refused.to_string().contains("123456"), "{refused}");
        let refused = serde_json::from_str::<CodeRequest>("{}").expect_err("a refusal");
        assert!(refused.to_string().starts_with("missing field `code`"), "{refused}");
    }
}
