//! Replanning: the effect of a commit on other reviews with the same base.

use api::reviews::ReviewState;
use api::reviews::ReviewStateFilter;
use engine::cluster::NoderoleKey;
use engine::gate::{Rule, VerdictKind};
use engine::ids::{BlueprintNumber, ProposalId, ReviewId};
use engine::plan::{Edit, edit};
use serde_json::{Value, json};

use crate::installation::{Installation, role};

impl Installation {
    /// Commits edits by cy that move the base of the deployment's open reviews. Only one personal
    /// proposal can be open on it, so this one is of another kind.
    pub async fn moved_by(&self, deployment: &str, edits: Vec<Edit>) -> BlueprintNumber {
        let id = self.submitted_in_other_proposal(deployment, edits).await;
        self.commit(&self.cy, id).await.unwrap()
    }

    /// Like [`Self::moved_by`], approved but not committed.
    pub async fn submitted_in_other_proposal(
        &self,
        deployment: &str,
        edits: Vec<Edit>,
    ) -> ReviewId {
        let sql = "INSERT INTO proposal (deployment_id, kind, created_by) VALUES ($1, 'autopilot', $2) RETURNING id";
        let query =
            sqlx::query_scalar(sql).bind(self.id(deployment).await.0).bind(self.cy.person.0);
        let other = ProposalId(query.fetch_one(self.database.owner()).await.unwrap());
        let version = self.control.edit(&self.cy, other, 0, edits).await.unwrap();
        let id =
            self.control.submit(&self.cy, other, version, "another change".into()).await.unwrap();
        self.approve(&self.bo, id).await;
        id
    }

    pub async fn data_edit(&self, deployment: &str, data: Value) -> Edit {
        Edit::SetRoleData(edit::SetRoleData {
            deployment: self.id(deployment).await,
            role: role("app"),
            data,
        })
    }
}

#[tokio::test]
async fn moved_base_is_replanned_with_equal_effect() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 3, "still").await;
    let edit = installation.data_edit("web", json!({"a": 1})).await;
    let old = installation.submit(&installation.ada, "web", vec![edit]).await;
    installation.approve(&installation.bo, old).await;
    let edit = installation.bind("web", 2, "still").await;
    let target = installation.moved_by("web", vec![edit]).await;

    let was = installation.control.review(&installation.bo, old).await.unwrap();
    let became = was.replaced_by.unwrap();
    let new = became.after.unwrap();
    assert_eq!(
        (was.state, became.blueprint, became.same_effect),
        (ReviewState::Replaced, target, true)
    );
    assert_eq!(
        (became.moved, became.voided_verdicts),
        (vec![format!("web (blueprint {target})")], vec!["bo (approved)".into()])
    );
    let is = installation.control.review(&installation.bo, new).await.unwrap();
    assert_eq!(
        (is.state, is.authors.as_slice()),
        (ReviewState::Waiting, ["ada".to_owned()].as_slice())
    );
    assert_eq!(
        (is.title.as_str(), is.verdicts.len(), is.replaces.unwrap().before),
        ("a change", 0, old)
    );
    assert_eq!(installation.board("web").await.proposal.unwrap().review, Some(new));

    let refused = installation.commit(&installation.ada, old).await.unwrap_err();
    assert_eq!(refused.code, "not_newest", "the void review stays void");
    let refused = installation
        .control
        .give_verdict(&installation.bo, old, VerdictKind::Approve, String::new())
        .await
        .unwrap_err();
    assert_eq!(refused.code, "not_newest");
    let refused = installation.commit(&installation.ada, new).await.unwrap_err();
    assert_eq!(refused.code, "not_approved", "bo approved the replaced review");
    // The person who moved the base is not an author of the replanned proposal.
    installation.approve(&installation.cy, new).await;
    installation.commit(&installation.ada, new).await.unwrap();
}

#[tokio::test]
async fn replan_with_other_documents_is_sent_back() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let edit = installation.data_edit("web", json!({"a": 1})).await;
    let old = installation.submit(&installation.ada, "web", vec![edit]).await;
    let edit = installation.data_edit("web", json!({"a": 2, "b": 3})).await;
    let target = installation.moved_by("web", vec![edit]).await;
    let was = installation.control.review(&installation.bo, old).await.unwrap();
    let became = was.replaced_by.unwrap();
    assert_eq!((was.state, became.after, became.refused.len()), (ReviewState::SentBack, None, 1));
    let finding = &became.refused[0];
    assert!(
        finding.at == "web" && finding.detail.contains("differently than submitted"),
        "{finding:?}"
    );

    let open = installation.board("web").await.proposal.unwrap();
    assert_eq!((open.title.as_str(), open.review), ("a change", None));
    assert_eq!(open.sent_back.map(|back| back.before), Some(old));
    let new = installation
        .control
        .submit(&installation.ada, open.id, open.version, "the same again".into())
        .await
        .unwrap();
    let came = installation.control.review(&installation.bo, new).await.unwrap().replaces.unwrap();
    assert_eq!(
        (came.before, came.after, came.blueprint, came.same_effect),
        (old, Some(new), target, false)
    );
    let paths = |d: &engine::blueprint::Difference| {
        let data = d.deployments.iter().flat_map(|d| &d.roles).flat_map(|r| &r.data);
        data.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(paths(&came.effect_changes.before), ["/a: added 1"]);
    assert_eq!(paths(&came.effect_changes.after), ["/a: 2 -> 1", "/b: removed 3"]);
}

#[tokio::test]
async fn replan_with_refused_edits_is_sent_back() {
    let installation = Installation::new().await;
    let (one, two) =
        (installation.bind("web", 1, "app").await, installation.bind("edge", 1, "app").await);
    let web = installation.submit(&installation.ada, "web", vec![one]).await;
    let edge = installation.submit(&installation.ada, "edge", vec![two]).await;
    installation.approve(&installation.bo, web).await;
    installation.approve(&installation.bo, edge).await;
    installation.commit(&installation.cy, web).await.unwrap();

    let was = installation.control.review(&installation.bo, edge).await.unwrap();
    let became = was.replaced_by.unwrap();
    assert_eq!((was.state, became.after), (ReviewState::SentBack, None));
    assert!(
        became.refused[0].at == "edit 1, by ada"
            && became.refused[0].detail.contains("belongs to web"),
        "{became:?}"
    );
    let listed = installation.listed(&installation.bo, ReviewStateFilter::Any).await;
    assert_eq!(listed.iter().find(|r| r.review == edge).unwrap().state, ReviewState::SentBack);
    let open = installation.board("edge").await.proposal.unwrap();
    assert_eq!((open.review, open.sent_back.map(|back| back.before)), (None, Some(edge)));

    let version =
        installation.control.undo(&installation.ada, open.id, open.version).await.unwrap();
    let edit = installation.bind("edge", 2, "app").await;
    let version =
        installation.control.edit(&installation.ada, open.id, version, vec![edit]).await.unwrap();
    assert_eq!(
        installation.board("edge").await.proposal.unwrap().sent_back,
        None,
        "an edited proposal is no longer marked as sent back"
    );
    let again = installation
        .control
        .submit(&installation.ada, open.id, version, "n2 instead".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, again).await;
    installation.commit(&installation.ada, again).await.unwrap();
}

#[tokio::test]
async fn replan_without_remaining_changes_is_sent_back() {
    let installation = Installation::new().await;
    let edit = installation.data_edit("web", json!({"a": 1})).await;
    let old = installation.submit(&installation.ada, "web", vec![edit.clone()]).await;
    installation.moved_by("web", vec![edit]).await;
    let became =
        installation.control.review(&installation.bo, old).await.unwrap().replaced_by.unwrap();
    assert!(
        became.after.is_none() && became.refused[0].detail.contains("changes nothing"),
        "{became:?}"
    );
}

#[tokio::test]
async fn edit_made_by_another_commit_is_not_summarized() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let made = installation.data_edit("web", json!({"a": 1})).await;
    let own = Edit::SetNoderoleData(edit::SetNoderoleData {
        node: installation.node(1).await,
        noderole: NoderoleKey::first(role("app")),
        data: json!({"b": 2}),
    });
    let old = installation.submit(&installation.ada, "web", vec![made.clone(), own]).await;
    let summary = installation.control.review(&installation.bo, old).await.unwrap().summary;
    assert!(summary.iter().any(|line| line == "Sets the data of app in web."), "{summary:?}");
    installation.moved_by("web", vec![made]).await;
    let open = installation.board("web").await.proposal.unwrap();
    let new = installation
        .control
        .submit(&installation.ada, open.id, open.version, open.title)
        .await
        .unwrap();
    let summary = installation.control.review(&installation.bo, new).await.unwrap().summary;
    assert!(!summary.iter().any(|line| line.starts_with("Sets the data of app in")), "{summary:?}");
    assert!(
        summary.iter().any(|line| line.starts_with("Sets the data of app on n1")),
        "{summary:?}"
    );
}

#[tokio::test]
async fn crash_after_commit_is_replanned_by_sweep() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    installation.bound("web", 3, "still").await;
    let edit = installation.data_edit("web", json!({"a": 1})).await;
    let old = installation.submit(&installation.ada, "web", vec![edit]).await;
    let edit = installation.bind("web", 2, "still").await;
    let other = installation.submitted_in_other_proposal("web", vec![edit]).await;
    // Replanning waits for this lock; the commit does not.
    let mut holding = installation.database.app().begin().await.unwrap();
    let sql = "SELECT 1 FROM proposal p JOIN review s ON s.proposal_id = p.id WHERE s.id = $1 FOR UPDATE OF p";
    sqlx::query(sql).bind(old.0).execute(&mut *holding).await.unwrap();
    {
        let commit = installation.commit(&installation.cy, other);
        let dies = async {
            while installation.targets().await < 4 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            installation.has_lock_waiter().await;
        };
        tokio::select! {
            done = commit => panic!("the commit must wait: {done:?}"),
            () = dies => {}
        }
    }
    holding.rollback().await.unwrap();
    let stale = installation.control.review(&installation.bo, old).await.unwrap();
    assert_eq!((stale.state, stale.replaced_by), (ReviewState::Stale, None));
    let base = stale.gate.rules.iter().find(|rule| rule.rule == Rule::Base).unwrap();
    let target = installation.targets().await;
    assert_eq!(
        base.text,
        format!(
            "Planned on an older state: web (blueprint {target}) changed since. An author must submit it \
             again. Can act: ada"
        ),
        "cy can edit but is not an author"
    );
    let (one, two) =
        tokio::join!(installation.control.replan_stale(), installation.control.replan_stale());
    assert_eq!(one.unwrap() + two.unwrap(), 1, "two parallel sweeps replan the review once");
    assert_eq!(installation.control.replan_stale().await.unwrap(), 0);
    assert!(
        installation
            .control
            .review(&installation.bo, old)
            .await
            .unwrap()
            .replaced_by
            .unwrap()
            .after
            .is_some()
    );
}

#[tokio::test]
async fn sibling_reviews_are_not_replanned() {
    let installation = Installation::new().await;
    let edit = installation.data_edit("edge", json!({"a": 1})).await;
    let edge = installation.submit(&installation.ada, "edge", vec![edit]).await;
    installation.approve(&installation.bo, edge).await;
    installation.bound("web", 1, "app").await;
    assert_eq!(
        installation.control.review(&installation.bo, edge).await.unwrap().replaced_by,
        None
    );
    installation.commit(&installation.ada, edge).await.unwrap();
}

#[tokio::test]
async fn replan_records_are_immutable() {
    let installation = Installation::new().await;
    let edit = installation.data_edit("web", json!({"a": 1})).await;
    let old = installation.submit(&installation.ada, "web", vec![edit]).await;
    let edit = installation.bind("web", 2, "app").await;
    installation.moved_by("web", vec![edit]).await;
    for sql in ["UPDATE replan SET moved = '{}'", "DELETE FROM replan", "TRUNCATE replan"] {
        assert!(sqlx::query(sql).execute(installation.database.owner()).await.is_err(), "{sql}");
    }
    let sql = "INSERT INTO replan (before_id, proposal_id, version, blueprint_number, refused)
               SELECT id, proposal_id, 9, 1, '[{}]' FROM review WHERE id <> $1 LIMIT 1";
    assert!(
        sqlx::query(sql).bind(old.0).execute(installation.database.app()).await.is_err(),
        "the server must not change the version of the proposal"
    );
}

#[tokio::test]
async fn rejected_submission_suggests_one_solution() {
    let installation = Installation::new().await;
    let (web, n1) = (installation.id("web").await, installation.node(1).await);
    let member = Edit::MoveNode(edit::MoveNode { node: n1, deployment: web });
    installation.moved_by("web", vec![member]).await;
    let edits = vec![installation.bind("web", 1, "app").await];
    let (id, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let expunged = Edit::ExpungeNode(edit::ExpungeNode { node: n1, reason: "burnt".into() });
    installation.moved_by("web", vec![expunged]).await;
    let submitted = installation.control.submit(&installation.ada, id, version, "late".into());
    let refused = submitted.await.unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "edit_refused"));
    assert!(
        refused.detail.ends_with("Resolve this or undo the edit, then submit.")
            && !refused.detail.contains("iscard"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn edits_now_out_of_scope_are_rejected() {
    let installation = Installation::new().await;
    let (web, edge, n1) =
        (installation.id("web").await, installation.id("edge").await, installation.node(1).await);
    installation
        .moved_by("web", vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: web })])
        .await;
    let edits = vec![
        installation.bind("web", 2, "app").await,
        Edit::ExpungeNode(edit::ExpungeNode { node: n1, reason: "burnt".into() }),
    ];
    let (id, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let old = installation
        .control
        .submit(&installation.ada, id, version, "a change".into())
        .await
        .unwrap();
    installation
        .moved_by("edge", vec![Edit::MoveNode(edit::MoveNode { node: n1, deployment: edge })])
        .await;

    // The edits could be planned, because n1 exists. But the plan would write edge, which is
    // outside of web's base.
    let became =
        installation.control.review(&installation.bo, old).await.unwrap().replaced_by.unwrap();
    assert_eq!((became.after, became.refused.len()), (None, 1), "{became:?}");
    let finding = &became.refused[0];
    assert_eq!(finding.at, "edit 2, by ada");
    assert!(
        finding.detail.contains("n1")
            && finding.detail.contains("This proposal is only for deployment web"),
        "{finding:?}"
    );

    let open = installation.board("web").await.proposal.unwrap();
    let title = "give it up".to_owned();
    let refused = installation
        .control
        .submit(&installation.ada, open.id, open.version, title.clone())
        .await
        .unwrap_err();
    assert_eq!((refused.status, refused.code.as_str()), (409, "edit_out_of_scope"));
    assert!(
        refused.detail.starts_with("Edit 2 (") && refused.detail.ends_with("Undo it, then submit."),
        "{refused:?}"
    );
    let version =
        installation.control.undo(&installation.ada, open.id, open.version).await.unwrap();
    let again =
        installation.control.submit(&installation.ada, open.id, version, title).await.unwrap();
    installation.approve(&installation.bo, again).await;
    installation.commit(&installation.ada, again).await.unwrap();
}
