//! People, what they may, their sessions and their tokens.
//!
//! What lets somebody in (a link, a token, a password) is in an answer once, when it is made, or in a request; never in a list.

use std::fmt;

use engine::ids::{PasskeyId, PersonId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::At;
use crate::listing::{Cursor, Kind, Order, PersonSort, Sort, sort};

/// A password on its way to where it is checked. It never shows in logs.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Password(String);

impl<'de> Deserialize<'de> for Password {
    /// What is no text is refused without a word of it: the usual refusal quotes what was sent.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)
            .map(Self)
            .map_err(|_| D::Error::custom("a password is a text"))
    }
}

impl Password {
    /// What somebody typed.
    pub fn typed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// What an account stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// Somebody who can be asked.
    #[default]
    Human,
    /// A program: it has tokens only, and its verdicts never count.
    Service,
}

impl AccountKind {
    /// The word in the database and in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Service => "service",
        }
    }
}

/// A permission and where it counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// `viewer`, `operator`, `reviewer` or `admin`.
    pub permission: String,
    /// In this deployment, by name, and in all below it. Absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
}

/// A person, or a service account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonView {
    /// Who.
    pub id: PersonId,
    /// Short name.
    pub name: String,
    /// What the account stands for.
    pub kind: AccountKind,
    /// Whether they are kept out.
    pub disabled: bool,
    /// What they may. Empty: nothing, not even look.
    pub grants: Vec<Grant>,
    /// The version of what they may: a change is made on one.
    pub version: i32,
    /// Whether they have a password.
    pub password: bool,
    /// When they were last here, in a session or by a token, to the minute. Nothing: never.
    pub seen: Option<At>,
    /// Since when they are known.
    pub created: At,
}

/// A change of a person's access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessChangeView {
    /// `created`, `granted`, `enabled`, `link` or `reset`.
    pub kind: String,
    /// The permission that was granted.
    pub permission: Option<String>,
    /// The deployment where it was granted. Absent: everywhere.
    pub deployment: Option<String>,
    /// The admin. Absent: the owner of the installation, with `gantry admin` or `gantry up`.
    pub by: Option<String>,
    /// When.
    pub at: At,
    /// The second admin who confirmed it.
    pub confirmed_by: Option<String>,
    /// When that was.
    pub confirmed_at: Option<At>,
}

/// An admin on whose changes a person's approvals do not count yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessLimitView {
    /// The admin, by name.
    pub admin: String,
    /// When approvals count again, unless another admin confirms the access before.
    pub until: At,
}

/// A person with the changes of their access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonDetails {
    /// The person.
    #[serde(flatten)]
    pub person: PersonView,
    /// The newest 20 changes of their access, newest first.
    pub access_changes: Vec<AccessChangeView>,
    /// Admins on whose changes their approvals do not count yet.
    pub approvals_limited: Vec<AccessLimitView>,
    /// Their passkeys that are not revoked, oldest first.
    #[serde(default)]
    pub passkeys: Vec<PasskeyView>,
}

/// Another person set or reset one's sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessNotice {
    /// The admin whose link was used.
    pub by: String,
    /// When a password was set with it.
    pub at: At,
}

/// A passkey of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PasskeyView {
    /// Its id.
    pub id: PasskeyId,
    /// The person's name for it.
    pub name: String,
    /// The host name that it works on.
    pub host: String,
    /// Five groups of four hexadecimal digits. Compare them with the person before you confirm the passkey.
    pub fingerprint: String,
    /// Whether it counts for signed verdicts.
    pub confirmed: bool,
    /// The person whose passkey confirmed it. Absent: nobody yet, or the owner of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<String>,
    /// When it was registered.
    pub created: At,
    /// When it was last used.
    pub used: Option<At>,
}

/// A passkey to register.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PasskeyWish {
    /// A name for it, such as the device's; at most 64 characters.
    pub name: String,
    /// The browser's answer to the options: `PublicKeyCredential.toJSON()` of `navigator.credentials.create`.
    pub answer: Value,
}

/// Options for the browser, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PasskeyOptions {
    /// For `PublicKeyCredential.parseCreationOptionsFromJSON` or `parseRequestOptionsFromJSON`.
    pub options: Value,
}

/// What the browser signs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignatureRequest {
    /// 32 hexadecimal digits that go back with the answer.
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

/// Which people a list should have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PeopleWanted {
    /// In their names.
    #[serde(default)]
    pub filter: String,
    /// Of this kind only.
    #[serde(default)]
    pub kind: Option<AccountKind>,
    /// Only those who are kept out, or who are not.
    #[serde(default)]
    pub disabled: Option<bool>,
    /// In this order.
    #[serde(default)]
    pub sort: Order<PersonSort>,
    /// Where the page before said that the next one begins.
    #[serde(default)]
    pub after: Option<Cursor>,
}

/// A page of a list of people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonPage {
    /// Of this page.
    pub people: Vec<PersonView>,
    /// Where the next page begins; None: there is none.
    pub next: Option<Cursor>,
}

/// Somebody to be added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PersonWish {
    /// Short name: lower case letters, digits, `.`, `_`, `@`, `-`; unique for ever.
    pub name: String,
    /// What the account stands for.
    #[serde(default)]
    pub kind: AccountKind,
    /// What they may.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// What somebody may from now on, in the place of all that they might before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantsWish {
    /// All of it.
    pub grants: Vec<Grant>,
}

/// A one-time sign-in, shown this once: whoever opens it is that person.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkMade {
    /// Where it leads, from this server's address on.
    pub link: String,
    /// Until when it holds, in minutes from now.
    pub minutes: u64,
}

impl fmt::Debug for LinkMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkMade").field("minutes", &self.minutes).finish_non_exhaustive()
    }
}

/// Somebody who was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonMade {
    /// Who.
    pub id: PersonId,
    /// How they come in the first time; None for a service account, which has tokens.
    pub link: Option<LinkMade>,
}

/// A session of one's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionView {
    /// By which it is ended. It lets nobody in.
    pub id: Uuid,
    /// Whether it is the one that asks.
    pub this: bool,
    /// Since when.
    pub since: At,
    /// When it was last used, to the minute.
    pub seen: At,
    /// When it ends at the latest.
    pub expires: At,
    /// What the client calls itself.
    pub agent: String,
    /// Where it came from.
    pub address: String,
}

sort! {
    /// What sessions are sorted by.
    SessionSort, Order::falling(Self::Since), {
        /// When they began.
        Since "since" [Number, Text],
        /// When they were last used.
        Seen "seen" [Number, Text],
    }
}

/// Which of one's own sessions a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionsWanted {
    /// In this order.
    pub sort: Order<SessionSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of one's own sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionPage {
    /// Of this page.
    pub sessions: Vec<SessionView>,
    /// Where the next page begins; None: there is none.
    pub next: Option<Cursor>,
}

/// Who asks, and how they came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MyAccount {
    /// Who, and what they may.
    pub person: PersonView,
    /// What this request may: less than the person when it came by a token.
    pub permissions: Vec<String>,
    /// The token that it came by.
    pub token: Option<Uuid>,
    /// Whether setting a password asks for the old one.
    pub asks_old: bool,
    /// Their sessions, newest first.
    pub sessions: Vec<SessionView>,
    /// Resets of their sign-in by admins that they have not dismissed, newest first.
    #[serde(default)]
    pub notices: Vec<AccessNotice>,
    /// Their passkeys that are not revoked, oldest first.
    #[serde(default)]
    pub passkeys: Vec<PasskeyView>,
    /// Whether this session may do nothing before a password is set, because it began with an admin's link.
    #[serde(default)]
    pub password_needed: bool,
    /// Their second factor.
    #[serde(default)]
    pub second_factor: crate::second_factor::SecondFactor,
}

/// A password to be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PasswordWish {
    /// The one before, where there is one.
    #[serde(default)]
    pub old: Option<Password>,
    /// The new one.
    pub new: Password,
}

/// How many sessions ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    /// So many.
    pub sessions: u64,
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenWish {
    /// What it is for.
    pub name: String,
    /// For how many days it holds.
    #[serde(default = "usual_days")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::limits::API_TOKEN_DAYS)))]
    pub days: u32,
    /// What it may at most: some of what its person may, and never `reviewer`.
    pub scopes: Vec<String>,
    /// Only in this deployment, by name, and in all below it; not with `admin`. Absent: wherever its person may.
    #[serde(default)]
    pub deployment: Option<String>,
    /// The service account that it is for. Absent: oneself.
    #[serde(default)]
    pub person: Option<PersonId>,
}

/// How long a token holds unless its maker says otherwise.
pub fn usual_days() -> u32 {
    crate::limits::USUAL_TOKEN_DAYS
}

/// A token that was made, shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenMade {
    /// By which it is taken back.
    pub id: Uuid,
    /// What a program sends: `Authorization: Bearer gantry_...`.
    pub token: String,
    /// Until when it holds.
    pub expires: At,
}

impl fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenMade")
            .field("id", &self.id)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenView {
    /// Which.
    pub id: Uuid,
    /// Whose, by name.
    pub person: String,
    /// What its maker calls it.
    pub name: String,
    /// What it may at most.
    pub scopes: Vec<String>,
    /// Where it may at most; None: wherever its person may.
    pub deployment: Option<String>,
    /// Who made it.
    pub by: Option<String>,
    /// When.
    pub created: At,
    /// Until when.
    pub expires: At,
    /// When it was last used, to the minute.
    pub used: Option<At>,
    /// Since when it is taken back.
    pub revoked: Option<At>,
    /// Whether it holds.
    pub holds: bool,
}

sort! {
    /// What tokens are sorted by.
    TokenSort, Order::falling(Self::Holds), {
        /// Whether they hold, and then when they were made.
        Holds "holds" [Number, Number, Text],
        /// When they were made.
        Made "made" [Number, Text],
        /// What their makers call them.
        Name "name" [Text, Text],
    }
}

/// Which tokens a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TokensWanted {
    /// Absent: one's own. Others' takes an admin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person: Option<PersonId>,
    /// Only those that hold (`true`), or only those that do not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// In this order.
    pub sort: Order<TokenSort>,
    /// Where the page before said that the next one begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Cursor>,
}

/// A page of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenPage {
    /// Of this page.
    pub tokens: Vec<TokenView>,
    /// Where the next page begins; None: there is none.
    pub next: Option<Cursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lets_somebody_in_is_not_printed() {
        let link = LinkMade { link: "/sign-in#token=hush".into(), minutes: 15 };
        let token = TokenMade { id: Uuid::nil(), token: "hush".into(), expires: At(0) };
        let password =
            PasswordWish { old: Some(Password::typed("hush")), new: Password::typed("hush") };
        let printed = format!("{link:?} {token:?} {password:?}");
        assert!(!printed.contains("hush"), "{printed}");
    }
}
