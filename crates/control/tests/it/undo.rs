//! Random undo and redo, compared with a model. Active edits are a stack, and undone edits are a
//! second stack until the next edit.

use engine::plan::{Edit, edit};
use serde_json::{Value, json};

use crate::house::{House, role};

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

async fn counting(house: &House) -> Vec<i32> {
    sqlx::query_scalar("SELECT seq FROM edit WHERE NOT undone ORDER BY seq")
        .fetch_all(house.database.owner())
        .await
        .unwrap()
}

async fn details(house: &House, action: &str) -> Vec<Value> {
    sqlx::query_scalar("SELECT detail FROM audit WHERE action = $1 ORDER BY id")
        .bind(action)
        .fetch_all(house.database.owner())
        .await
        .unwrap()
}

#[tokio::test]
async fn undo_and_redo_are_audited_with_edits() {
    let house = House::new().await;
    let edits = vec![house.bind("web", 1, "app").await, house.bind("web", 2, "app").await];
    let (proposal, version) = house.propose(&house.ada, "web", edits).await;
    let version = house.control.undo(&house.ada, proposal, version).await.unwrap();
    let version = house.control.undo(&house.bo, proposal, version).await.unwrap();
    house.control.redo(&house.cy, proposal, version).await.unwrap();
    let said = |number: u32, what: &str| json!({"edits": [what], "number": number});
    let undone = [said(2, "bind n2 to app in web"), said(1, "bind n1 to app in web")];
    assert_eq!(details(&house, "proposal.undo").await, undone);
    assert_eq!(details(&house, "proposal.redo").await, [said(1, "bind n1 to app in web")]);
}

#[tokio::test]
async fn undo_and_redo_match_the_model() {
    let house = House::new().await;
    let web = house.id("web").await;
    let proposal = house.control.propose(&house.ada, web).await.unwrap();
    let mut chance = Chance(0x5eed);
    let (mut version, mut next) = (0, 1);
    let (mut done, mut undone): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
    for step in 0..80 {
        let by = [&house.ada, &house.bo][step % 2];
        match chance.below(5) {
            0 | 1 => {
                let edit = Edit::SetRoleData(edit::SetRoleData {
                    deployment: web,
                    role: role("app"),
                    data: json!({"step": step}),
                });
                version = house.control.edit(by, proposal, version, vec![edit]).await.unwrap();
                done.push(next);
                undone.clear();
                next += 1;
            }
            2 | 3 => match (house.control.undo(by, proposal, version).await, done.pop()) {
                (Ok(new), Some(last)) => {
                    version = new;
                    undone.push(last);
                }
                (Err(refused), None) => assert_eq!(refused.code, "nothing_to_do"),
                (answer, model) => panic!("step {step}: {answer:?}, and the model says {model:?}"),
            },
            _ => match (house.control.redo(by, proposal, version).await, undone.pop()) {
                (Ok(new), Some(last)) => {
                    version = new;
                    done.push(last);
                }
                (Err(refused), None) => assert_eq!(refused.code, "nothing_to_do"),
                (answer, model) => panic!("step {step}: {answer:?}, and the model says {model:?}"),
            },
        }
        assert_eq!(counting(&house).await, done, "step {step}");
    }
    assert!(next > 20, "enough was edited: {next}");
    while !done.is_empty() {
        version = house.control.undo(&house.ada, proposal, version).await.unwrap();
        done.pop();
    }
    let empty =
        house.control.submit(&house.ada, proposal, version, "nothing".into()).await.unwrap_err();
    assert_eq!(empty.code, "empty", "undoing everything leaves no difference");
}

#[tokio::test]
async fn undoing_person_is_warned_and_becomes_author() {
    let house = House::new().await;
    let (proposal, version) =
        house.propose(&house.ada, "web", vec![house.bind("web", 1, "app").await]).await;
    let open = async |by| house.control.proposal(by, proposal).await.unwrap().1;
    assert!(!open(&house.ada).await.would_join, "she wrote it");
    assert!(open(&house.bo).await.would_join, "he could approve it so far");
    assert!(
        !open(&house.ada).await.of_others && open(&house.bo).await.of_others,
        "it is hers alone"
    );
    let version = house.control.undo(&house.bo, proposal, version).await.unwrap();
    let version = house.control.redo(&house.cy, proposal, version).await.unwrap();

    assert!(open(&house.ada).await.of_others, "others touched her edit");

    let now = open(&house.bo).await;
    assert!(!now.would_join, "he is one now");
    assert_eq!(now.authors, ["ada", "bo", "cy"]);
    assert_eq!(now.edits[0].touched_by, ["bo", "cy"]);
    let id = house.control.submit(&house.ada, proposal, version, "one".into()).await.unwrap();
    let review = house.control.review(&house.bo, id).await.unwrap();
    assert_eq!(review.authors, now.authors, "the board names whom the gate refuses");
    assert!(review.may_judge.is_err());
}

#[tokio::test]
async fn proposal_opened_by_another_belongs_to_others() {
    let house = House::new().await;
    let web = house.id("web").await;
    let proposal = house.control.propose(&house.bo, web).await.unwrap();
    let bind = house.bind("web", 1, "app").await;
    let edited = house.control.edit(&house.ada, proposal, 0, vec![bind]).await.unwrap();
    let open = async |by| house.control.proposal(by, proposal).await.unwrap().1;
    assert_eq!(open(&house.ada).await.authors, ["ada"]);
    assert!(open(&house.ada).await.of_others, "bo opened it");
    assert!(open(&house.bo).await.of_others, "ada wrote in it");
    house.control.undo(&house.ada, proposal, edited).await.unwrap();
    assert!(open(&house.bo).await.of_others, "what was taken back may be brought again");
}
