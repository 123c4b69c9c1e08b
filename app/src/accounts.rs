//! The server's side of the settings pages, as one trait. See [`crate::console`].

use api::Problem;
use api::people::{
    CreatedPerson, CreatedToken, Ended, Grant, MyAccount, OneTimeLink, PasskeyOptions,
    PasskeyRequest, PasskeyView, PasswordRequest, PeopleWanted, PersonDetails, PersonPage,
    PersonRequest, PersonView, Signature, SignatureRequest, TokenRequest, TokenView,
};
use api::second_factor::{FactorOptions, SecondFactorPage};
use async_trait::async_trait;
use engine::ids::{PasskeyId, PersonId};
use serde_json::Value;
use uuid::Uuid;

/// The accounts, bound to the signed-in user.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// The account and the tokens of the signed-in user.
    async fn mine(&self) -> Result<(MyAccount, Vec<TokenView>), Problem>;
    async fn list(&self, query: PeopleWanted) -> Result<PersonPage, Problem>;
    /// A person, with the history of their access and their tokens.
    async fn one(&self, id: PersonId) -> Result<(PersonDetails, Vec<TokenView>), Problem>;
    async fn add(&self, input: PersonRequest) -> Result<CreatedPerson, Problem>;
    /// Replaces a person's grants. Fails if the person is no longer at `version`.
    async fn change_grants(
        &self,
        id: PersonId,
        version: i32,
        grants: Vec<Grant>,
    ) -> Result<PersonView, Problem>;
    /// Disables or re-enables an account.
    async fn set_disabled(&self, id: PersonId, disabled: bool) -> Result<(), Problem>;
    async fn confirm(&self, id: PersonId) -> Result<PersonDetails, Problem>;
    /// The options for `navigator.credentials.create`.
    async fn passkey_options(&self) -> Result<PasskeyOptions, Problem>;
    async fn register_passkey(&self, input: PasskeyRequest) -> Result<PasskeyView, Problem>;
    /// Revokes a passkey: your own or, as an admin, another person's.
    async fn revoke_passkey(&self, id: PasskeyId) -> Result<(), Problem>;
    /// The challenge that the browser signs to confirm a passkey.
    async fn confirmation_options(&self, id: PasskeyId) -> Result<SignatureRequest, Problem>;
    /// Confirms a passkey with a signature by another passkey of the signed-in user.
    async fn confirm_passkey(
        &self,
        id: PasskeyId,
        signature: Signature,
    ) -> Result<PasskeyView, Problem>;
    /// Dismisses the notices about resets of your second factor.
    async fn dismiss_notices(&self) -> Result<(), Problem>;
    /// Creates a single-use link with which a person signs in and sets a password.
    async fn new_link(&self, id: PersonId) -> Result<OneTimeLink, Problem>;
    /// Sets your own password. The current session continues under a new cookie.
    async fn set_password(&self, input: PasswordRequest) -> Result<(), Problem>;
    async fn second_factor(&self) -> Result<SecondFactorPage, Problem>;
    /// The options for `navigator.credentials.get`.
    async fn factor_options(&self) -> Result<FactorOptions, Problem>;
    async fn present_passkey(&self, answer: Value) -> Result<(), Problem>;
    async fn reset_factor(&self, id: PersonId) -> Result<(), Problem>;
    /// Ends one of your own sessions.
    async fn end_session(&self, session: Uuid) -> Result<(), Problem>;
    /// Ends all of your own sessions except the current one.
    async fn end_other_sessions(&self) -> Result<Ended, Problem>;
    async fn make_token(&self, input: TokenRequest) -> Result<CreatedToken, Problem>;
    async fn revoke_token(&self, token: Uuid) -> Result<(), Problem>;
}
