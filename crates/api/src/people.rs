//! People, their permissions, sessions and tokens.
//!
//! Credentials (links, tokens, passwords) appear only in the response that creates them or in a
//! request, never in a list.

use std::fmt;

use engine::ids::{PasskeyId, PersonId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::At;
use crate::listing::{Cursor, KeyKind, Limit, Order, Paged, Sort, paged, sort};

/// A password. It is never written to logs.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Password(String);

impl<'de> Deserialize<'de> for Password {
    /// The default error quotes the value, which may be a password with a wrong JSON type.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("a password must be a string")),
        }
    }
}

impl Password {
    pub fn typed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Kind of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// A person.
    #[default]
    Human,
    /// A service account. It signs in with tokens only, and its verdicts never count.
    Service,
}

impl AccountKind {
    /// The name in the database and in queries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Service => "service",
        }
    }
}

/// A permission and its scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The permission.
    #[cfg_attr(feature = "schema", schemars(with = "crate::enumerations::Permission"))]
    pub permission: String,
    /// Name of a deployment. The permission includes its descendants. Absent: all deployments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
}

/// A person or a service account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonView {
    /// Id of the person.
    pub id: PersonId,
    /// Short name.
    pub name: String,
    /// Kind of the account.
    pub kind: AccountKind,
    /// Whether the account is disabled.
    pub disabled: bool,
    /// Permissions. Without any, the person can't see anything.
    pub grants: Vec<Grant>,
    /// Version of the permissions. A change names the version that it is based on.
    pub version: i32,
    /// Whether the person has a password.
    pub password: bool,
    /// Time of the last request with a session or a token, rounded to the minute, or null.
    pub last_seen: Option<At>,
    /// Time when the account was added.
    pub created: At,
}

/// A change of a person's access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessChangeView {
    /// Kind of the change.
    #[cfg_attr(feature = "schema", schemars(with = "crate::enumerations::AccessChangeKind"))]
    pub kind: String,
    /// The permission that was granted.
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::enumerations::Permission>"))]
    pub permission: Option<String>,
    /// The deployment that the permission is limited to. Absent: all deployments.
    pub deployment: Option<String>,
    /// The admin. Absent: the owner of the installation, with `gantry admin` or `gantry up`.
    pub by: Option<String>,
    /// Time of the change.
    pub at: At,
    /// The second admin who confirmed the change.
    pub confirmed_by: Option<String>,
    /// Time of the confirmation.
    pub confirmed_at: Option<At>,
}

/// A limit because of new access from an admin: neither person's approvals count yet on the changes
/// of the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessLimitView {
    /// Name of the admin.
    pub admin: String,
    /// Time when approvals count again. A confirmation by another admin ends the limit earlier.
    pub until: At,
}

/// A person with the changes of their access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonDetails {
    /// The person.
    #[serde(flatten)]
    pub person: PersonView,
    /// The latest 20 changes of their access, newest first.
    pub access_changes: Vec<AccessChangeView>,
    /// Admins with whom the person has such a limit.
    pub approvals_limited: Vec<AccessLimitView>,
    /// Passkeys that are not revoked, oldest first.
    #[serde(default)]
    pub passkeys: Vec<PasskeyView>,
}

/// A notice that an admin set or reset your sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessNotice {
    /// The admin whose link was used.
    pub by: String,
    /// Time when a password was set with the link.
    pub at: At,
}

/// A passkey of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PasskeyView {
    /// Id of the passkey.
    pub id: PasskeyId,
    /// Name of the passkey.
    pub name: String,
    /// Host name that the passkey works on.
    pub host: String,
    /// Five groups of four hexadecimal digits. Compare them with the person before you confirm the
    /// passkey.
    pub fingerprint: String,
    /// Whether it counts for signed verdicts.
    pub confirmed: bool,
    /// The person whose passkey confirmed it. Absent: not confirmed, or confirmed by the owner of
    /// the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<String>,
    /// Time when the passkey that confirmed it was revoked. This one still counts. Revoke it if
    /// another person may have used the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmer_revoked: Option<At>,
    /// Time of registration.
    pub created: At,
    /// Time of the last use.
    pub used: Option<At>,
}

/// A passkey to register.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PasskeyRequest {
    /// Name, for example the device's, at most 64 characters.
    pub name: String,
    /// The browser's answer to the options: `PublicKeyCredential.toJSON()` of
    /// `navigator.credentials.create`.
    pub answer: Value,
}

/// Options for the browser, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PasskeyOptions {
    /// For `PublicKeyCredential.parseCreationOptionsFromJSON` or `parseRequestOptionsFromJSON`.
    pub options: Value,
}

/// A request for the browser to sign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignatureRequest {
    /// 32 hexadecimal digits to return with the answer.
    pub nonce: String,
    /// For `PublicKeyCredential.parseRequestOptionsFromJSON`.
    pub options: Value,
}

/// A signature with a passkey.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The nonce of the request.
    pub nonce: String,
    /// The browser's answer: `PublicKeyCredential.toJSON()` of `navigator.credentials.get`.
    pub answer: Value,
}

/// Filters of the list of people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PeopleQuery {
    /// Part of the name. Empty matches all.
    #[serde(default)]
    pub filter: String,
    /// Kind of the account.
    #[serde(default)]
    pub kind: Option<AccountKind>,
    /// Only disabled (`true`) or only enabled (`false`) accounts.
    #[serde(default)]
    pub disabled: Option<bool>,
    /// Sort order. Default: by name.
    #[serde(default)]
    pub sort: Order<PersonSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(default)]
    pub after: Option<Cursor>,
}

/// A page of the list of people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonPage {
    /// The people of this page.
    pub people: Vec<PersonView>,
    /// Cursor of the next page (`after`), or null on the last page.
    pub next: Option<Cursor>,
}

/// A person or service account to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PersonRequest {
    /// Short name: lower case letters, digits, `.`, `_`, `@`, `-`. Names are never reused.
    pub name: String,
    /// Kind of the account.
    #[serde(default)]
    pub kind: AccountKind,
    /// Permissions.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// New permissions of a person. They replace all existing ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantsRequest {
    /// All permissions.
    pub grants: Vec<Grant>,
}

/// A one-time sign-in link, shown only once. It signs in anyone who opens it as this person.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneTimeLink {
    /// Path and query, relative to the server's address.
    pub link: String,
    /// Lifetime in minutes.
    pub minutes: u64,
}

impl fmt::Debug for OneTimeLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneTimeLink").field("minutes", &self.minutes).finish_non_exhaustive()
    }
}

/// A person who was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreatedPerson {
    /// Id of the person.
    pub id: PersonId,
    /// Name of the person.
    pub name: String,
    /// The first sign-in link, or null for a service account.
    pub link: Option<OneTimeLink>,
}

/// One of your sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionView {
    /// Id to end the session with. It is no credential.
    pub id: Uuid,
    /// Whether this is the session of the request.
    pub current: bool,
    /// Start of the session.
    pub since: At,
    /// Time of the last use, rounded to the minute.
    pub last_seen: At,
    /// Latest end of the session.
    pub expires: At,
    /// The client's user agent.
    pub agent: String,
    /// Address of the sign-in.
    pub address: String,
}

sort! {
    SessionSort, Order::descending(Self::Since), {
        /// Start of the session.
        Since "since" [Number, Text],
        /// Time of the last use.
        LastSeen "last_seen" [Number, Text],
    }
}

/// Filters of the list of your sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionsQuery {
    /// Sort order. Default: newest first.
    pub sort: Order<SessionSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of your sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionPage {
    /// The sessions of this page.
    pub sessions: Vec<SessionView>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

/// Your account and the authentication of this request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MyAccount {
    /// The person and their permissions.
    pub person: PersonView,
    /// Permissions of this request. A token can have fewer than its person.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::enumerations::Permission>"))]
    pub permissions: Vec<String>,
    /// Id of the token that authenticated the request.
    pub token: Option<Uuid>,
    /// Whether you need the current password to set a new one.
    pub requires_old_password: bool,
    /// Your sessions, newest first.
    pub sessions: Vec<SessionView>,
    /// Resets of your sign-in by admins that you have not dismissed, newest first.
    #[serde(default)]
    pub notices: Vec<AccessNotice>,
    /// Your passkeys that are not revoked, oldest first.
    #[serde(default)]
    pub passkeys: Vec<PasskeyView>,
    /// Whether you must set a password before anything else, because the session began with an
    /// admin's link.
    #[serde(default)]
    pub password_needed: bool,
    /// Your second factor.
    #[serde(default)]
    pub second_factor: crate::second_factor::SecondFactor,
}

/// A new password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PasswordRequest {
    /// The current password, if there is one.
    #[serde(default)]
    pub old: Option<Password>,
    /// The new password.
    pub new: Password,
}

/// Result of ending sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedSessions {
    /// Number of sessions that ended.
    pub sessions: u64,
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Name of the token, for people.
    pub name: String,
    /// Lifetime in days.
    #[serde(default = "default_days")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::limits::API_TOKEN_DAYS)))]
    pub days: u32,
    /// Permissions of the token: a subset of its person's permissions, without `reviewer`.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::enumerations::TokenScope>"))]
    pub scopes: Vec<String>,
    /// Name of a deployment. The token is limited to it and its descendants. Not allowed with
    /// `admin`. Absent: all deployments of its person.
    #[serde(default)]
    pub deployment: Option<String>,
    /// Id of the service account that gets the token. Absent: yourself.
    #[serde(default)]
    pub person: Option<PersonId>,
}

/// Default lifetime of a token.
pub fn default_days() -> u32 {
    crate::limits::DEFAULT_TOKEN_DAYS
}

/// A new token. Its secret value is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreatedToken {
    /// Id to revoke the token with.
    pub id: Uuid,
    /// The secret value, for the header `Authorization: Bearer gantry_...`.
    pub token: String,
    /// Time of expiry.
    pub expires: At,
}

impl fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedToken")
            .field("id", &self.id)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// A token, without its secret value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenView {
    /// Id of the token.
    pub id: Uuid,
    /// Name of the person who owns it.
    pub person: String,
    /// Name of the token.
    pub name: String,
    /// Permissions of the token.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::enumerations::TokenScope>"))]
    pub scopes: Vec<String>,
    /// The deployment that the token is limited to, or null for all deployments of its person.
    pub deployment: Option<String>,
    /// The person who created it.
    pub by: Option<String>,
    /// Time of creation.
    pub created: At,
    /// Time of expiry.
    pub expires: At,
    /// Time of the last use, rounded to the minute.
    pub used: Option<At>,
    /// Time when the token was revoked.
    pub revoked: Option<At>,
    /// Whether the token is valid.
    pub valid: bool,
}

sort! {
    TokenSort, Order::descending(Self::Valid), {
        /// Valid tokens first, then by time of creation.
        Valid "valid" [Number, Number, Text],
        /// Time of creation.
        Created "created" [Number, Text],
        Name "name" [Text, Text],
    }
}

/// Filters of the list of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TokensQuery {
    /// Name or id of the owner. Empty: your own tokens. Only admins can list the tokens of others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub person: String,
    /// Only valid (`true`) or only invalid (`false`) tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// Sort order. Default: valid tokens first.
    pub sort: Order<TokenSort>,
    /// Maximum number of items on the page, from 1 to 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Cursor: the `next` value of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenPage {
    /// The tokens of this page.
    pub tokens: Vec<TokenView>,
    /// Cursor of the next page (`before`), or null on the last page.
    pub next: Option<Cursor>,
}

sort! {
    PersonSort, Order::ascending(Self::Name), {
        Name "name" [Text],
    }
}

paged! {
    PersonPage: people of PersonView,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_credentials() {
        let link = OneTimeLink { link: "/sign-in#token=hush".into(), minutes: 15 };
        let token = CreatedToken { id: Uuid::nil(), token: "hush".into(), expires: At(0) };
        let password =
            PasswordRequest { old: Some(Password::typed("hush")), new: Password::typed("hush") };
        let printed = format!("{link:?} {token:?} {password:?}");
        assert!(!printed.contains("hush"), "{printed}");
    }
}
