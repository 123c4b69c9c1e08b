//! Random undo and redo, compared with a model. Active edits are a stack, and undone edits are a
//! second stack until the next edit.

use engine::plan::{Edit, edit};
use serde_json::{Value, json};

use crate::installation::{Installation, role};

/// A deterministic pseudo-random generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

async fn counting(installation: &Installation) -> Vec<i32> {
    sqlx::query_scalar("SELECT seq FROM edit WHERE NOT undone ORDER BY seq")
        .fetch_all(installation.database.owner())
        .await
        .unwrap()
}

async fn details(installation: &Installation, action: &str) -> Vec<Value> {
    sqlx::query_scalar("SELECT detail FROM audit WHERE action = $1 ORDER BY id")
        .bind(action)
        .fetch_all(installation.database.owner())
        .await
        .unwrap()
}

#[tokio::test]
async fn undo_and_redo_are_audited_with_edits() {
    let installation = Installation::new().await;
    let edits =
        vec![installation.bind("web", 1, "app").await, installation.bind("web", 2, "app").await];
    let (proposal, version) = installation.propose_each(&installation.ada, "web", edits).await;
    let version = installation.control.undo(&installation.ada, proposal, version).await.unwrap();
    let version = installation.control.undo(&installation.bo, proposal, version).await.unwrap();
    installation.control.redo(&installation.cy, proposal, version).await.unwrap();
    let text = |number: u32, text: &str| json!({"edits": [text], "number": number});
    let undone = [text(2, "bind n2 to app in web"), text(1, "bind n1 to app in web")];
    assert_eq!(details(&installation, "proposal.undo").await, undone);
    assert_eq!(details(&installation, "proposal.redo").await, [text(1, "bind n1 to app in web")]);
}

/// A drop of many nodes is one step of undo, named as a whole.
#[tokio::test]
async fn edits_of_one_request_are_undone_together() {
    let installation = Installation::new().await;
    let bind = async |n: usize| installation.bind("web", n, "app").await;
    let edits = vec![bind(1).await, bind(2).await];
    let (proposal, version) = installation.propose(&installation.ada, "web", edits).await;
    let (control, ada) = (&installation.control, &installation.ada);
    let version = control.edit(ada, proposal, version, vec![bind(3).await]).await.unwrap();
    let texts = async || {
        let open = control.proposal(ada, proposal).await.unwrap().1;
        (open.undo, open.redo)
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(texts().await, (text("bind n3 to app"), None));
    let version = control.undo(ada, proposal, version).await.unwrap();
    assert_eq!(texts().await, (text("bind 2 nodes to app"), text("bind n3 to app")));
    let version = control.undo(ada, proposal, version).await.unwrap();
    assert_eq!(counting(&installation).await, Vec::<i32>::new());
    assert_eq!(texts().await, (None, text("bind 2 nodes to app")));
    let version = control.redo(ada, proposal, version).await.unwrap();
    assert_eq!(counting(&installation).await, [1, 2]);
    control.redo(ada, proposal, version).await.unwrap();
    assert_eq!(counting(&installation).await, [1, 2, 3]);
    let message = &details(&installation, "proposal.redo").await[0];
    let both = json!({"edits": ["bind n1 to app in web", "bind n2 to app in web"], "number": 1});
    assert_eq!(*message, both);
}

#[tokio::test]
async fn undo_and_redo_match_the_model() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let proposal = installation.control.propose(&installation.ada, web).await.unwrap();
    let mut chance = Chance(0x5eed);
    let (mut version, mut next) = (0, 1);
    // Each entry has the edits of one request.
    let (mut done, mut undone): (Vec<Vec<i32>>, Vec<Vec<i32>>) = (Vec::new(), Vec::new());
    for step in 0..80 {
        let by = [&installation.ada, &installation.bo][step % 2];
        match chance.below(5) {
            0 | 1 => {
                let edit = |n| {
                    Edit::SetRoleData(edit::SetRoleData {
                        deployment: web,
                        role: role("app"),
                        data: json!({"step": step, "n": n}),
                    })
                };
                let count = i32::try_from(step % 3).unwrap() + 1;
                let edits = (0..count).map(edit).collect();
                version = installation.control.edit(by, proposal, version, edits).await.unwrap();
                done.push((next..next + count).collect());
                undone.clear();
                next += count;
            }
            2 | 3 => match (installation.control.undo(by, proposal, version).await, done.pop()) {
                (Ok(new), Some(last)) => {
                    version = new;
                    undone.push(last);
                }
                (Err(refused), None) => assert_eq!(refused.code, "nothing_to_do"),
                (answer, model) => {
                    panic!("step {step}: got {answer:?}, the model expects {model:?}")
                }
            },
            _ => match (installation.control.redo(by, proposal, version).await, undone.pop()) {
                (Ok(new), Some(last)) => {
                    version = new;
                    done.push(last);
                }
                (Err(refused), None) => assert_eq!(refused.code, "nothing_to_do"),
                (answer, model) => {
                    panic!("step {step}: got {answer:?}, the model expects {model:?}")
                }
            },
        }
        assert_eq!(counting(&installation).await, done.concat(), "step {step}");
    }
    assert!(next > 20, "only {next} edits were made");
    while !done.is_empty() {
        version = installation.control.undo(&installation.ada, proposal, version).await.unwrap();
        done.pop();
    }
    let empty = installation
        .control
        .submit(&installation.ada, proposal, version, "nothing".into())
        .await
        .unwrap_err();
    assert_eq!(empty.code, "empty", "undoing everything leaves an empty proposal");
}

#[tokio::test]
async fn undoing_person_is_warned_and_becomes_author() {
    let installation = Installation::new().await;
    let (proposal, version) = installation
        .propose(&installation.ada, "web", vec![installation.bind("web", 1, "app").await])
        .await;
    let open = async |by| installation.control.proposal(by, proposal).await.unwrap().1;
    assert!(!open(&installation.ada).await.makes_author, "ada is already an author");
    assert!(open(&installation.bo).await.makes_author, "bo could have approved until now");
    assert!(
        !open(&installation.ada).await.has_other_authors
            && open(&installation.bo).await.has_other_authors,
        "only ada has edited the proposal"
    );
    let version = installation.control.undo(&installation.bo, proposal, version).await.unwrap();
    let version = installation.control.redo(&installation.cy, proposal, version).await.unwrap();

    assert!(open(&installation.ada).await.has_other_authors, "bo has edited ada's proposal");

    let now = open(&installation.bo).await;
    assert!(!now.makes_author, "bo is an author already");
    assert_eq!(now.authors, ["ada", "bo", "cy"]);
    assert_eq!(now.edits[0].touched_by, ["bo", "cy"]);
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "one".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.authors, now.authors, "the board names the authors whom the gate rejects");
    assert!(!review.may_review.is_allowed());
}

#[tokio::test]
async fn proposal_opened_by_another_belongs_to_others() {
    let installation = Installation::new().await;
    let web = installation.id("web").await;
    let proposal = installation.control.propose(&installation.bo, web).await.unwrap();
    let bind = installation.bind("web", 1, "app").await;
    let edited =
        installation.control.edit(&installation.ada, proposal, 0, vec![bind]).await.unwrap();
    let open = async |by| installation.control.proposal(by, proposal).await.unwrap().1;
    assert_eq!(open(&installation.ada).await.authors, ["ada"]);
    assert!(open(&installation.ada).await.has_other_authors, "bo opened the proposal");
    assert!(open(&installation.bo).await.has_other_authors, "ada edited the proposal");
    installation.control.undo(&installation.ada, proposal, edited).await.unwrap();
    assert!(open(&installation.bo).await.has_other_authors, "ada's undone edits can be redone");
}
