//! Signed verdicts: the gate's requirements, and valid signatures.

use api::Problem;
use api::people::{PasskeyRequest, PasskeyView, Signature};
use authenticator::Authenticator;
use control::people::Actor;
use engine::gate::{Policy, SignedRule, VerdictKind};
use engine::ids::{PasskeyId, ReviewId};
use engine::plan::{Edit, edit};
use passkeys::RelyingParty;

use crate::installation::Installation;

fn site() -> RelyingParty {
    RelyingParty::of("https://gantry.example").unwrap()
}

fn demanding() -> Policy {
    Policy { signed: [SignedRule::default()].into(), ..Policy::default() }
}

impl Installation {
    async fn passkey(&self, actor: &Actor, key: &Authenticator) -> PasskeyId {
        let options = self.people.passkey_options(actor, &site()).await.unwrap().options;
        let answer = key.create(&site().origin, &options);
        let request = PasskeyRequest { name: "Laptop".into(), answer };
        self.people.register_passkey(actor, &site(), &request).await.unwrap().id
    }

    async fn confirmed(&self, actor: &Actor, key: &Authenticator) -> PasskeyId {
        let id = self.passkey(actor, key).await;
        let mut owner = self.database.owner().acquire().await.unwrap();
        assert!(store::people::passkeys::confirm_as_owner(&mut owner, id).await.unwrap());
        id
    }

    async fn signature(&self, actor: &Actor, id: ReviewId, key: &Authenticator) -> Signature {
        let requested =
            self.control.verdict_options(actor, &site(), id, VerdictKind::Approve).await.unwrap();
        Signature { nonce: requested.nonce, answer: key.get(&site().origin, &requested.options) }
    }

    async fn sign(
        &self,
        actor: &Actor,
        id: ReviewId,
        signature: &Signature,
    ) -> Result<(), Problem> {
        let signature = Some(signature.clone());
        self.control
            .add_signed_verdict(actor, id, VerdictKind::Approve, String::new(), signature)
            .await
    }
}

fn code<T: std::fmt::Debug>(refused: Result<T, Problem>) -> String {
    refused.expect_err("a refusal").code
}

#[tokio::test]
async fn required_signature_excludes_unsigned_approval() {
    let installation = Installation::under(demanding()).await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, id).await;
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert!(review.signature_needed && !review.may_sign);
    assert_eq!(review.verdicts[0].signed, None);

    let key = Authenticator::new();
    installation.confirmed(&installation.bo, &key).await;
    let signature = installation.signature(&installation.bo, id, &key).await;
    installation.sign(&installation.bo, id, &signature).await.unwrap();
    assert_eq!(code(installation.sign(&installation.bo, id, &signature).await), "signature_used");
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert!(review.signature_needed && review.may_sign);
    assert_eq!(review.verdicts[0].signed.as_deref(), Some("Laptop"));
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn revoked_passkey_no_longer_counts() {
    let installation = Installation::under(demanding()).await;
    let key = Authenticator::new();
    let passkey = installation.confirmed(&installation.bo, &key).await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let signature = installation.signature(&installation.bo, id, &key).await;
    installation.sign(&installation.bo, id, &signature).await.unwrap();
    assert!(installation.control.review(&installation.ada, id).await.unwrap().gate.is_open());
    installation.people.revoke_passkey(&installation.bo, passkey).await.unwrap();
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    assert!(!installation.control.review(&installation.bo, id).await.unwrap().may_sign);
}

#[tokio::test]
async fn signature_policy_needs_a_signed_approval_itself() {
    let installation = Installation::new().await;
    let id = installation
        .submit(
            &installation.ada,
            "web",
            vec![Edit::SetPolicy(edit::SetPolicy { policy: demanding() })],
        )
        .await;
    installation.approve(&installation.bo, id).await;
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    let key = Authenticator::new();
    installation.confirmed(&installation.bo, &key).await;
    let signature = installation.signature(&installation.bo, id, &key).await;
    installation.sign(&installation.bo, id, &signature).await.unwrap();
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn own_confirmed_passkey_confirms_another() {
    let installation = Installation::new().await;
    let (first, second) = (Authenticator::new(), Authenticator::new());
    let unconfirmed = installation.passkey(&installation.bo, &second).await;
    assert_eq!(
        code(
            installation.people.confirmation_options(&installation.bo, &site(), unconfirmed).await
        ),
        "no_passkey"
    );
    installation.confirmed(&installation.bo, &first).await;
    let requested = installation
        .people
        .confirmation_options(&installation.bo, &site(), unconfirmed)
        .await
        .unwrap();
    assert_eq!(
        code(
            installation.people.confirmation_options(&installation.cy, &site(), unconfirmed).await
        ),
        "not_found"
    );
    let by_itself = second.get(&site().origin, &requested.options);
    let signature = Signature { nonce: requested.nonce.clone(), answer: by_itself };
    assert_eq!(
        code(installation.people.confirm_passkey(&installation.bo, unconfirmed, &signature).await),
        "passkey_not_confirmed"
    );
    let signature =
        Signature { nonce: requested.nonce, answer: first.get(&site().origin, &requested.options) };
    let view = installation
        .people
        .confirm_passkey(&installation.bo, unconfirmed, &signature)
        .await
        .unwrap();
    assert_eq!((view.confirmed, view.confirmed_by.as_deref()), (true, Some("bo")));

    // A revoked passkey leaves its confirmation, and the list says so.
    let mine = async || installation.people.mine(&installation.bo).await.unwrap().passkeys;
    let of_second = |passkeys: Vec<PasskeyView>| {
        passkeys.into_iter().find(|passkey| passkey.id == unconfirmed).unwrap()
    };
    assert_eq!(of_second(mine().await).confirmer_revoked, None);
    let first = mine().await.into_iter().find(|passkey| passkey.id != unconfirmed).unwrap().id;
    installation.people.revoke_passkey(&installation.bo, first).await.unwrap();
    let second = of_second(mine().await);
    assert!(second.confirmed && second.confirmer_revoked.is_some(), "{second:?}");
}
