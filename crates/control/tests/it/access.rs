//! Access that an admin gives, used to bypass reviews: the attacks, the recovery, and ordinary
//! teams.

use std::time::Duration;

use api::Problem;
use api::people::{AccountKind, Grant, OneTimeLink, Password, PasswordRequest, PersonRequest};
use control::people::{Actor, ClientInfo, NewPerson, Permission};
use engine::gate::{Rule, VerdictKind};
use engine::ids::ReviewId;

use crate::installation::Installation;

impl Installation {
    /// Makes ada and cy admins, too.
    async fn admins(&mut self) {
        let sql =
            "UPDATE person SET permissions = permissions || '{admin}' WHERE name IN ('ada', 'cy')";
        sqlx::query(sql).execute(self.database.owner()).await.unwrap();
        self.ada = self.again("ada").await;
        self.cy = self.again("cy").await;
    }

    /// The person with their current permissions.
    async fn again(&self, name: &str) -> Actor {
        self.people.sign_in_as_owner(name).await.unwrap()
    }

    /// The session that a link starts, before a password is set.
    async fn first_visit(&self, link: &OneTimeLink) -> Actor {
        let token =
            link.link.strip_prefix("/sign-in#token=").expect("the token is in the fragment");
        let begun = self.people.sign_in(token, &ClientInfo::default(), None).await.unwrap();
        self.people.actor_of_session(begun.session.reveal()).await.unwrap().unwrap()
    }

    async fn with_password(&self, first: &Actor) -> Actor {
        let request = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
        let session = self.people.set_password(first, &request).await.unwrap();
        self.people.actor_of_session(session.reveal()).await.unwrap().unwrap()
    }

    async fn added(&self, by: &Actor, name: &str, permission: &str) -> Actor {
        let grants = vec![Grant { permission: permission.into(), deployment: None }];
        let request = PersonRequest { name: name.into(), kind: AccountKind::Human, grants };
        let made = self.people.add(by, &request).await.unwrap();
        self.with_password(&self.first_visit(&made.link.unwrap()).await).await
    }

    async fn submitted(&self) -> ReviewId {
        let edit = self.bind("web", 1, "app").await;
        self.submit(&self.ada, "web", vec![edit]).await
    }

    /// Simulates that this many hours have passed.
    pub async fn later(&self, hours: i32) {
        let sql = format!(
            "ALTER TABLE access_change DISABLE TRIGGER USER; ALTER TABLE review DISABLE TRIGGER USER;
             ALTER TABLE verdict DISABLE TRIGGER USER;
             UPDATE access_change SET at = at - interval '{hours} hours';
             UPDATE review SET created_at = created_at - interval '{hours} hours';
             UPDATE verdict SET at = at - interval '{hours} hours';
             ALTER TABLE access_change ENABLE TRIGGER USER; ALTER TABLE review ENABLE TRIGGER USER;
             ALTER TABLE verdict ENABLE TRIGGER USER"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(self.database.owner()).await.unwrap();
    }

    async fn approvals(&self, id: ReviewId) -> String {
        let gate = self.control.review(&self.cy, id).await.unwrap().gate;
        gate.rules.into_iter().find(|rule| rule.rule == Rule::Approvals).unwrap().text
    }
}

fn code<T: std::fmt::Debug>(refused: Result<T, Problem>) -> String {
    refused.expect_err("a refusal").code
}

#[tokio::test]
async fn admin_signed_in_as_reviewer_cannot_approve() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let id = installation.submitted().await;
    let link =
        installation.people.new_link(&installation.ada, installation.bo.person).await.unwrap();
    let as_bo = installation.first_visit(&link).await;
    assert_eq!(
        code(
            installation
                .control
                .give_verdict(&as_bo, id, VerdictKind::Approve, String::new())
                .await
        ),
        "password_needed"
    );
    assert_eq!(code(installation.control.review(&as_bo, id).await), "password_needed");
    assert_eq!(code(installation.people.end_other_sessions(&as_bo).await), "password_needed");
    assert!(installation.people.mine(&as_bo).await.unwrap().password_needed);
    let as_bo = installation.with_password(&as_bo).await;
    installation.approve(&as_bo, id).await;
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    let text = installation.approvals(id).await;
    assert!(text.contains("bo set a password with a sign-in link of ada at"), "{text}");
    assert!(text.contains("or when another admin confirms the access of bo"), "{text}");
    let review = installation.control.review(&installation.cy, id).await.unwrap();
    assert!(!review.verdicts[0].counts);

    // bo and everyone who views the account are notified.
    let mine = installation.people.mine(&as_bo).await.unwrap();
    assert_eq!(mine.notices.iter().map(|notice| notice.by.as_str()).collect::<Vec<_>>(), ["ada"]);
    assert_eq!(installation.control.frame(&as_bo).await.unwrap().reset.unwrap().by, "ada");
    installation.people.dismiss_notices(&as_bo).await.unwrap();
    assert!(installation.people.mine(&as_bo).await.unwrap().notices.is_empty());
    let details =
        installation.people.details(&installation.cy, installation.bo.person).await.unwrap();
    let kinds: Vec<&str> =
        details.access_changes.iter().map(|change| change.kind.as_str()).collect();
    assert_eq!(kinds, ["reset", "link", "created"]);
    assert_eq!(
        details.approvals_limited.iter().map(|limit| limit.admin.as_str()).collect::<Vec<_>>(),
        ["ada"]
    );

    // A second admin ends the cooling period at once; neither ada nor bo can.
    assert_eq!(
        code(installation.people.confirm(&installation.ada, installation.bo.person).await),
        "may_not_confirm"
    );
    assert_eq!(
        code(installation.people.confirm(&as_bo, installation.bo.person).await),
        "forbidden"
    );
    assert_eq!(
        code(installation.people.confirm(&installation.cy, installation.cy.person).await),
        "own_account"
    );
    let confirmed =
        installation.people.confirm(&installation.cy, installation.bo.person).await.unwrap();
    assert!(confirmed.approvals_limited.is_empty());
    assert_eq!(confirmed.access_changes[0].confirmed_by.as_deref(), Some("cy"));
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn reviewer_made_after_submission_never_approves_it() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let id = installation.submitted().await;
    let dan = installation.added(&installation.ada, "dan", "reviewer").await;
    installation.people.confirm(&installation.cy, dan.person).await.unwrap();
    installation.later(48).await;
    installation.approve(&dan, id).await;
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    let text = installation.approvals(id).await;
    assert!(text.contains("Approvals by dan never count here: ada "), "{text}");
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn admin_cannot_approve_own_change_with_new_accounts() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let oli = installation.added(&installation.ada, "oli", "operator").await;
    let ria = installation.added(&installation.ada, "ria", "reviewer").await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&oli, "web", vec![edit]).await;
    installation.approve(&ria, id).await;
    assert_eq!(code(installation.commit(&oli, id).await), "not_approved");
    let text = installation.approvals(id).await;
    assert!(text.contains("Approvals by ria count from ") && text.contains(" of oli"), "{text}");
    let lists = installation.control.review(&installation.cy, id).await.unwrap();
    assert!(!lists.verdicts[0].counts);
    installation.people.confirm(&installation.cy, oli.person).await.unwrap();
    installation.commit(&oli, id).await.unwrap();
}

#[tokio::test]
async fn reviewer_cannot_approve_own_linked_account() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let link =
        installation.people.new_link(&installation.cy, installation.ada.person).await.unwrap();
    let as_ada = installation.with_password(&installation.first_visit(&link).await).await;
    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&as_ada, "web", vec![edit]).await;
    installation.approve(&installation.cy, id).await;
    assert_eq!(code(installation.commit(&as_ada, id).await), "not_approved");
    let text = installation.approvals(id).await;
    let reason = "Approvals by cy do not count here: ada set a password with a sign-in link of cy";
    assert!(text.contains(reason), "{text}");
    assert!(text.contains("another admin can confirm the access of ada"), "{text}");
    installation.approve(&installation.bo, id).await;
    installation.commit(&as_ada, id).await.unwrap();
}

#[tokio::test]
async fn admin_created_by_author_cannot_confirm() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let eva = installation.added(&installation.ada, "eva", "admin").await;
    let dan = installation.added(&eva, "dan", "reviewer").await;
    let link =
        installation.people.new_link(&installation.ada, installation.bo.person).await.unwrap();
    let bo = installation.with_password(&installation.first_visit(&link).await).await;
    for person in [dan.person, bo.person] {
        assert_eq!(code(installation.people.confirm(&eva, person).await), "may_not_confirm");
    }
    let id = installation.submitted().await;
    installation.approve(&dan, id).await;
    installation.approve(&bo, id).await;
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    installation.people.confirm(&installation.cy, eva.person).await.unwrap();
    installation.commit(&installation.ada, id).await.unwrap();
}

#[tokio::test]
async fn team_of_two_can_approve_after_cooling_period() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let dan = installation.added(&installation.ada, "dan", "reviewer").await;
    let first = installation.submitted().await;
    installation.approve(&dan, first).await;
    assert_eq!(code(installation.commit(&installation.ada, first).await), "not_approved");
    installation.later(24).await;
    assert_eq!(
        code(installation.commit(&installation.ada, first).await),
        "not_approved",
        "the approval was given before the cooling period ended"
    );
    installation.approve(&dan, first).await;
    installation.commit(&installation.ada, first).await.unwrap();
}

/// The first admin has no password yet, and no other admin could create a link.
#[tokio::test]
async fn first_admin_with_new_permissions_keeps_access() {
    let installation = Installation::new().await;
    let people = &installation.people;
    let new = NewPerson::human("root", [Permission::Viewer, Permission::Admin]);
    let root = people.create_person(None, &new).await.unwrap();
    let sign_in = async || {
        let link = people.create_first_link(root, Duration::from_secs(60)).await.unwrap();
        people.sign_in(link.reveal(), &ClientInfo::default(), None).await.unwrap().session
    };
    let (other, session) = (sign_in().await, sign_in().await);
    let actor = async || people.actor_of_session(session.reveal()).await.unwrap();
    let first = actor().await.unwrap();
    let grants = ["admin", "operator", "reviewer"]
        .map(|permission| Grant { permission: permission.into(), deployment: None });
    people.change_grants(&first, root, &grants).await.unwrap();
    let first = actor().await.expect("a valid session");
    assert!(people.actor_of_session(other.reveal()).await.unwrap().is_none(), "other sessions end");

    let edit = installation.bind("web", 1, "app").await;
    let id = installation.submit(&installation.ada, "web", vec![edit]).await;
    let approved =
        installation.control.give_verdict(&first, id, VerdictKind::Approve, String::new());
    approved.await.unwrap();
    installation.commit(&first, id).await.unwrap();
    let details = people.details(&first, root).await.unwrap();
    assert!(details.approvals_limited.is_empty(), "{details:?}");
    people.change_grants(&first, installation.bo.person, &grants[1..]).await.unwrap();
    let password = PasswordRequest { old: None, new: Password::typed("vague otter lamp") };
    people.set_password(&first, &password).await.unwrap();
}

#[tokio::test]
async fn objection_of_a_fresh_reviewer_counts() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let dan = installation.added(&installation.ada, "dan", "reviewer").await;
    let id = installation.submitted().await;
    installation.control.give_verdict(&dan, id, VerdictKind::Reject, "no".into()).await.unwrap();
    installation.approve(&installation.bo, id).await;
    let refused = installation.commit(&installation.ada, id).await.unwrap_err();
    assert!(refused.detail.contains("the change was rejected, by dan"), "{refused:?}");
}

#[tokio::test]
async fn verdict_before_disabling_stays_void() {
    let mut installation = Installation::new().await;
    installation.admins().await;
    let id = installation.submitted().await;
    installation.approve(&installation.bo, id).await;
    installation.people.set_disabled(&installation.cy, installation.bo.person, true).await.unwrap();
    installation
        .people
        .set_disabled(&installation.cy, installation.bo.person, false)
        .await
        .unwrap();
    assert_eq!(code(installation.commit(&installation.ada, id).await), "not_approved");
    assert!(!installation.control.review(&installation.cy, id).await.unwrap().verdicts[0].counts);
    let text = installation.approvals(id).await;
    assert!(text.contains("bo approved it before the account was disabled"), "{text}");
    let bo = installation.again("bo").await;
    installation.approve(&bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
}
