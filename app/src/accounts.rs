//! What the pages of the settings ask of the server, as [`crate::console`] says it of the others.

use api::Problem;
use api::people::{
    Ended, Grant, LinkMade, MyAccount, PasskeyOptions, PasskeyView, PasskeyWish, PasswordWish,
    PeopleWanted, PersonDetails, PersonMade, PersonPage, PersonView, PersonWish, Signature,
    SignatureRequest, TokenMade, TokenView, TokenWish,
};
use api::second_factor::{FactorOptions, FactorPage};
use async_trait::async_trait;
use engine::ids::{PasskeyId, PersonId};
use serde_json::Value;
use uuid::Uuid;

/// Accounts, as whoever sent the request.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// One's own, with one's tokens.
    async fn mine(&self) -> Result<(MyAccount, Vec<TokenView>), Problem>;
    /// A page of the list of people.
    async fn list(&self, wanted: PeopleWanted) -> Result<PersonPage, Problem>;
    /// One person, with the changes of their access and their tokens.
    async fn one(&self, id: PersonId) -> Result<(PersonDetails, Vec<TokenView>), Problem>;
    /// Adds a person or a service account.
    async fn add(&self, wish: PersonWish) -> Result<PersonMade, Problem>;
    /// Says what somebody may from now on, who looked at this version of it.
    async fn change_grants(
        &self,
        id: PersonId,
        version: i32,
        grants: Vec<Grant>,
    ) -> Result<PersonView, Problem>;
    /// Keeps somebody out, or lets them in again.
    async fn set_disabled(&self, id: PersonId, disabled: bool) -> Result<(), Problem>;
    /// Confirms a person's access as a second admin.
    async fn confirm(&self, id: PersonId) -> Result<PersonDetails, Problem>;
    /// The options for the browser to make a passkey.
    async fn passkey_options(&self) -> Result<PasskeyOptions, Problem>;
    /// Registers the passkey that the browser made.
    async fn register_passkey(&self, wish: PasskeyWish) -> Result<PasskeyView, Problem>;
    /// Revokes a passkey of one's own, or as an admin of another person.
    async fn revoke_passkey(&self, id: PasskeyId) -> Result<(), Problem>;
    /// What the browser signs to confirm a passkey.
    async fn confirmation_options(&self, id: PasskeyId) -> Result<SignatureRequest, Problem>;
    /// Confirms a passkey with a signature of one's own.
    async fn confirm_passkey(
        &self,
        id: PasskeyId,
        signature: Signature,
    ) -> Result<PasskeyView, Problem>;
    /// Dismisses one's notices of resets.
    async fn dismiss_notices(&self) -> Result<(), Problem>;
    /// Makes a link by which somebody comes in once and sets a password.
    async fn new_link(&self, id: PersonId) -> Result<LinkMade, Problem>;
    /// Sets one's own password; this session goes on, by another cookie.
    async fn set_password(&self, wish: PasswordWish) -> Result<(), Problem>;
    /// The page of the second factor.
    async fn second_factor(&self) -> Result<FactorPage, Problem>;
    /// Options for the browser to present a passkey.
    async fn factor_options(&self) -> Result<FactorOptions, Problem>;
    /// Presents a passkey as the second factor.
    async fn present_passkey(&self, answer: Value) -> Result<(), Problem>;
    /// Resets the second factor of another person.
    async fn reset_factor(&self, id: PersonId) -> Result<(), Problem>;
    /// Ends one of one's own sessions.
    async fn end_session(&self, session: Uuid) -> Result<(), Problem>;
    /// Ends all of one's own sessions but this one.
    async fn end_other_sessions(&self) -> Result<Ended, Problem>;
    /// Makes a token.
    async fn make_token(&self, wish: TokenWish) -> Result<TokenMade, Problem>;
    /// Takes a token back.
    async fn revoke_token(&self, token: Uuid) -> Result<(), Problem>;
}
