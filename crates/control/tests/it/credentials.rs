//! Every write requires a credential that is still valid in the transaction that writes.

use control::people::{Actor, ClientInfo, Permission};
use engine::gate::VerdictKind;
use std::time::Duration;

use crate::house::House;

async fn signed_in(house: &House) -> Actor {
    let link = house
        .people
        .create_sign_in_link(None, house.bo.person, Duration::from_secs(60))
        .await
        .unwrap();
    let begun = house.people.sign_in(link.reveal(), &ClientInfo::default(), None).await.unwrap();
    house.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap()
}

#[tokio::test]
async fn expired_session_writes_nothing() {
    let house = House::new().await;
    let edit = house.bind("web", 1, "app").await;
    let id = house.submit(&house.ada, "web", vec![edit]).await;
    for expired in [
        "UPDATE session SET idle_expires_at = now() WHERE person_id = $1",
        "UPDATE session SET expires_at = now() WHERE person_id = $1",
    ] {
        let bo = signed_in(&house).await;
        sqlx::query(expired).bind(bo.person.0).execute(house.database.owner()).await.unwrap();
        let before = house.traces().await;
        let verdict = house.control.judge(&bo, id, VerdictKind::Approve, String::new()).await;
        let hold = house.control.hold(&bo, house.id("web").await, true, "why".into()).await;
        for refused in [verdict, hold] {
            assert_eq!(refused.unwrap_err().code, "signed_out", "{expired}");
        }
        assert_eq!(house.traces().await, before);
    }
    let bo = signed_in(&house).await;
    house.control.judge(&bo, id, VerdictKind::Approve, String::new()).await.unwrap();
}

#[tokio::test]
async fn actor_without_a_credential_only_reads() {
    let house = House::new().await;
    let ada = house.people.actor_by_name("ada").await.unwrap();
    assert!(ada.may(Permission::Operator));
    let web = house.control.board(&ada, "web").await.unwrap().id;
    assert_eq!(house.control.propose(&ada, web).await.unwrap_err().code, "signed_out");
}
