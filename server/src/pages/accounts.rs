//! Implements [`Accounts`] for the settings pages, bound to the client of the request.

use api::Problem;
use api::people::{
    Ended, Grant, LinkMade, MyAccount, PasskeyOptions, PasskeyView, PasskeyWish, PasswordWish,
    PeopleWanted, PersonDetails, PersonMade, PersonPage, PersonView, PersonWish, Signature,
    SignatureRequest, TokenMade, TokenView, TokenWish,
};
use api::second_factor::{FactorOptions, FactorWish, SecondFactorPage};
use app::accounts::Accounts;
use async_trait::async_trait;
use axum::http::{HeaderValue, header};
use control::people::{Permission, SeenPerson};
use engine::ids::{PasskeyId, PersonId};
use serde_json::Value;
use uuid::Uuid;

use crate::http::session;
use crate::pages::bound::Bound;

#[async_trait]
impl Accounts for Bound {
    async fn mine(&self) -> Result<(MyAccount, Vec<TokenView>), Problem> {
        let actor = self.actor()?;
        Ok((self.people.mine(actor).await?, self.people.tokens(actor, None).await?))
    }

    async fn list(&self, wanted: PeopleWanted) -> Result<PersonPage, Problem> {
        self.people.list(self.actor()?, &wanted).await
    }

    async fn one(&self, id: PersonId) -> Result<(PersonDetails, Vec<TokenView>), Problem> {
        let actor = self.actor()?;
        // The page requires an admin, also for the admin's own account.
        actor.require(Permission::Admin)?;
        let person = self.people.details(actor, id).await?;
        Ok((person, self.people.tokens(actor, Some(id)).await?))
    }

    async fn add(&self, wish: PersonWish) -> Result<PersonMade, Problem> {
        self.people.add(self.actor()?, &wish).await
    }

    async fn change_grants(
        &self,
        id: PersonId,
        version: i32,
        grants: Vec<Grant>,
    ) -> Result<PersonView, Problem> {
        let seen = SeenPerson { person: id, version: Some(version) };
        self.people.change_grants(self.actor()?, seen, &grants).await
    }

    async fn set_disabled(&self, id: PersonId, disabled: bool) -> Result<(), Problem> {
        self.people.set_disabled(self.actor()?, id, disabled).await
    }

    async fn confirm(&self, id: PersonId) -> Result<PersonDetails, Problem> {
        self.people.confirm(self.actor()?, id).await
    }

    async fn passkey_options(&self) -> Result<PasskeyOptions, Problem> {
        self.people.passkey_options(self.actor()?, &self.site()?).await
    }

    async fn register_passkey(&self, wish: PasskeyWish) -> Result<PasskeyView, Problem> {
        self.people.register_passkey(self.actor()?, &self.site()?, &wish).await
    }

    async fn revoke_passkey(&self, id: PasskeyId) -> Result<(), Problem> {
        self.people.revoke_passkey(self.actor()?, id).await
    }

    async fn confirmation_options(&self, id: PasskeyId) -> Result<SignatureRequest, Problem> {
        self.people.confirmation_options(self.actor()?, &self.site()?, id).await
    }

    async fn confirm_passkey(
        &self,
        id: PasskeyId,
        signature: Signature,
    ) -> Result<PasskeyView, Problem> {
        self.people.confirm_passkey(self.actor()?, id, &signature).await
    }

    async fn dismiss_notices(&self) -> Result<(), Problem> {
        self.people.dismiss_notices(self.actor()?).await
    }

    async fn new_link(&self, id: PersonId) -> Result<LinkMade, Problem> {
        self.people.new_link(self.actor()?, id).await
    }

    async fn set_password(&self, wish: PasswordWish) -> Result<(), Problem> {
        let session = self.people.set_password(self.actor()?, &wish).await?;
        if let Ok(cookie) =
            HeaderValue::from_str(&session::begin(&self.address, &session).to_string())
        {
            self.answer.append_header(header::SET_COOKIE, cookie);
        }
        Ok(())
    }

    async fn second_factor(&self) -> Result<SecondFactorPage, Problem> {
        self.people.factor_page(self.actor()?).await
    }

    async fn factor_options(&self) -> Result<FactorOptions, Problem> {
        self.people.factor_options(self.actor()?, &self.site()?).await
    }

    async fn present_passkey(&self, answer: Value) -> Result<(), Problem> {
        let wish = FactorWish { code: None, answer: Some(answer) };
        self.people.present_factor(self.actor()?, Some(&self.site()?), &wish, &self.visitor).await
    }

    async fn reset_factor(&self, id: PersonId) -> Result<(), Problem> {
        self.people.reset_factor(Some(self.actor()?), id).await
    }

    async fn end_session(&self, session: Uuid) -> Result<(), Problem> {
        self.people.end_session(self.actor()?, session).await
    }

    async fn end_other_sessions(&self) -> Result<Ended, Problem> {
        self.people.end_other_sessions(self.actor()?).await
    }

    async fn make_token(&self, wish: TokenWish) -> Result<TokenMade, Problem> {
        self.people.make_token(self.actor()?, &wish).await
    }

    async fn revoke_token(&self, token: Uuid) -> Result<(), Problem> {
        self.people.revoke_token(self.actor()?, token).await
    }
}
