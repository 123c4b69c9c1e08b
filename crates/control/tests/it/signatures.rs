//! Signed verdicts: the gate's requirements, and valid signatures.

use api::Problem;
use api::people::{PasskeyRequest, Signature};
use authenticator::Authenticator;
use control::people::Actor;
use engine::gate::{Policy, SignedRule, VerdictKind};
use engine::ids::{PasskeyId, ReviewId};
use engine::plan::{Edit, edit};
use passkeys::RelyingParty;

use crate::house::House;

fn site() -> RelyingParty {
    RelyingParty::of("https://gantry.example").unwrap()
}

fn demanding() -> Policy {
    Policy { signed: [SignedRule::default()].into(), ..Policy::default() }
}

impl House {
    async fn passkey(&self, actor: &Actor, key: &Authenticator) -> PasskeyId {
        let options = self.people.passkey_options(actor, &site()).await.unwrap().options;
        let answer = key.create(&site().origin, &options);
        let wish = PasskeyRequest { name: "Laptop".into(), answer };
        self.people.register_passkey(actor, &site(), &wish).await.unwrap().id
    }

    async fn confirmed(&self, actor: &Actor, key: &Authenticator) -> PasskeyId {
        let id = self.passkey(actor, key).await;
        let mut owner = self.database.owner().acquire().await.unwrap();
        assert!(store::people::passkeys::confirm_as_owner(&mut owner, id).await.unwrap());
        id
    }

    async fn signature(&self, actor: &Actor, id: ReviewId, key: &Authenticator) -> Signature {
        let asked =
            self.control.verdict_options(actor, &site(), id, VerdictKind::Approve).await.unwrap();
        Signature { nonce: asked.nonce, answer: key.get(&site().origin, &asked.options) }
    }

    async fn sign(
        &self,
        actor: &Actor,
        id: ReviewId,
        signature: &Signature,
    ) -> Result<(), Problem> {
        let signature = Some(signature.clone());
        self.control
            .give_signed_verdict(actor, id, VerdictKind::Approve, String::new(), signature)
            .await
    }
}

fn code<T: std::fmt::Debug>(refused: Result<T, Problem>) -> String {
    refused.expect_err("a refusal").code
}

#[tokio::test]
async fn required_signature_excludes_unsigned_approval() {
    let house = House::under(demanding()).await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    house.approve(&house.bo, id).await;
    assert_eq!(code(house.commit(&house.ada, id).await), "not_approved");
    let review = house.control.review(&house.bo, id).await.unwrap();
    assert!(review.signature_needed && !review.may_sign);
    assert_eq!(review.verdicts[0].signed, None);

    let key = Authenticator::new();
    house.confirmed(&house.bo, &key).await;
    let signature = house.signature(&house.bo, id, &key).await;
    house.sign(&house.bo, id, &signature).await.unwrap();
    assert_eq!(code(house.sign(&house.bo, id, &signature).await), "signature_used");
    let review = house.control.review(&house.bo, id).await.unwrap();
    assert!(review.signature_needed && review.may_sign);
    assert_eq!(review.verdicts[0].signed.as_deref(), Some("Laptop"));
    house.commit(&house.ada, id).await.unwrap();
}

#[tokio::test]
async fn revoked_passkey_no_longer_counts() {
    let house = House::under(demanding()).await;
    let key = Authenticator::new();
    let passkey = house.confirmed(&house.bo, &key).await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    let signature = house.signature(&house.bo, id, &key).await;
    house.sign(&house.bo, id, &signature).await.unwrap();
    assert!(house.control.review(&house.ada, id).await.unwrap().gate.is_open());
    house.people.revoke_passkey(&house.bo, passkey).await.unwrap();
    assert_eq!(code(house.commit(&house.ada, id).await), "not_approved");
    assert!(!house.control.review(&house.bo, id).await.unwrap().may_sign);
}

#[tokio::test]
async fn signature_policy_needs_a_signed_approval_itself() {
    let house = House::new().await;
    let id = house
        .submit(&house.ada, "web", vec![Edit::SetPolicy(edit::SetPolicy { policy: demanding() })])
        .await;
    house.approve(&house.bo, id).await;
    assert_eq!(code(house.commit(&house.ada, id).await), "not_approved");
    let key = Authenticator::new();
    house.confirmed(&house.bo, &key).await;
    let signature = house.signature(&house.bo, id, &key).await;
    house.sign(&house.bo, id, &signature).await.unwrap();
    house.commit(&house.ada, id).await.unwrap();
}

#[tokio::test]
async fn own_confirmed_passkey_confirms_another() {
    let house = House::new().await;
    let (first, second) = (Authenticator::new(), Authenticator::new());
    let unconfirmed = house.passkey(&house.bo, &second).await;
    assert_eq!(
        code(house.people.confirmation_options(&house.bo, &site(), unconfirmed).await),
        "no_passkey"
    );
    house.confirmed(&house.bo, &first).await;
    let asked = house.people.confirmation_options(&house.bo, &site(), unconfirmed).await.unwrap();
    assert_eq!(
        code(house.people.confirmation_options(&house.cy, &site(), unconfirmed).await),
        "not_found"
    );
    let by_itself = second.get(&site().origin, &asked.options);
    let signature = Signature { nonce: asked.nonce.clone(), answer: by_itself };
    assert_eq!(
        code(house.people.confirm_passkey(&house.bo, unconfirmed, &signature).await),
        "passkey_not_confirmed"
    );
    let signature =
        Signature { nonce: asked.nonce, answer: first.get(&site().origin, &asked.options) };
    let view = house.people.confirm_passkey(&house.bo, unconfirmed, &signature).await.unwrap();
    assert_eq!((view.confirmed, view.confirmed_by.as_deref()), (true, Some("bo")));
}
