//! Every write requires a credential that is still valid in the transaction that writes.

use api::views::board::BoardQuery;
use control::people::{Actor, ClientInfo, Permission};
use engine::gate::VerdictKind;
use std::time::Duration;

use crate::installation::Installation;

async fn signed_in(installation: &Installation) -> Actor {
    let link = installation
        .people
        .create_sign_in_link(None, installation.bo.person, Duration::from_secs(60))
        .await
        .unwrap();
    let begun =
        installation.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.unwrap();
    installation.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap()
}

#[tokio::test]
async fn expired_session_writes_nothing() {
    let installation = Installation::new().await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    for expired in [
        "UPDATE session SET idle_expires_at = now() WHERE person_id = $1",
        "UPDATE session SET expires_at = now() WHERE person_id = $1",
    ] {
        let bo = signed_in(&installation).await;
        sqlx::query(expired)
            .bind(bo.person.0)
            .execute(installation.database.owner())
            .await
            .unwrap();
        let before = installation.traces().await;
        let verdict =
            installation.control.give_verdict(&bo, id, VerdictKind::Approve, String::new()).await;
        let hold =
            installation.control.hold(&bo, installation.id("web").await, true, "why".into()).await;
        for refused in [verdict, hold] {
            assert_eq!(refused.unwrap_err().code, "signed_out", "{expired}");
        }
        assert_eq!(installation.traces().await, before);
    }
    let bo = signed_in(&installation).await;
    installation.control.give_verdict(&bo, id, VerdictKind::Approve, String::new()).await.unwrap();
}

#[tokio::test]
async fn actor_without_a_credential_only_reads() {
    let installation = Installation::new().await;
    let ada = installation.people.actor_by_name("ada").await.unwrap();
    assert!(ada.may(Permission::Operator));
    let web = installation.control.board(&ada, "web", BoardQuery::default()).await.unwrap().id;
    assert_eq!(installation.control.propose(&ada, web).await.unwrap_err().code, "signed_out");
}
