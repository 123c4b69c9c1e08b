//! A small test cluster: *system*, two siblings, four nodes, three people.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Problem;
use api::nodes::NodesQuery;
use api::reviews::ReviewSummary;
use api::reviews::{ReviewStateFilter, ReviewsQuery};
use api::views::board::{Board, BoardQuery};
use control::people::{Actor, NewPerson, People, Permission};
use control::{CommitInput, Control, Demo, DemoDeployment};
use engine::gate::{Policy, VerdictKind};
use engine::ids::{
    BlueprintNumber, DeploymentId, DeploymentName, Fqdn, NodeId, NoderoleId, ProposalId, ReviewId,
    RoleName,
};
use engine::plan::{Edit, edit};
use store::workers::{NewWorker, WorkerId};
use store::{Connecting, Store};
use testdb::TestDatabase;
use uuid::Uuid;

pub const BARCLAMP: &str = "
barclamp: {name: stack, version: '1', description: For tests}
roles:
  - {name: base, jig: noop, flags: [implicit]}
  - {name: runtime, jig: noop, requires: [base]}
  - {name: app, jig: noop, requires: [runtime], template: {app: {port: 8080}}}
  - {name: wipe, jig: noop, flags: [destructive]}
  - {name: lonely, jig: noop, conflicts: [app]}
  - {name: still, jig: noop, on-change: keep}
  - {name: door, jig: noop, concurrency-group: {name: doors, max-running: 2, mode: chunk}}
";

pub struct Installation {
    pub database: TestDatabase,
    pub control: Control,
    pub people: People,
    pub ada: Actor,
    pub bo: Actor,
    pub cy: Actor,
}

impl Installation {
    pub async fn new() -> Self {
        Self::under(Policy { approvals: 1, by_risk: BTreeMap::new(), ..Policy::default() }).await
    }

    pub async fn under(policy: Policy) -> Self {
        // Attach log output to the failing test.
        let _ = tracing_subscriber::fmt().with_test_writer().with_env_filter("warn").try_init();
        let database = TestDatabase::new().await;
        // Like in a server: connections are reset after a dropped request.
        let how = Connecting {
            connections: 12,
            wait: Duration::from_secs(30),
            ..Connecting::to(database.app_url())
        };
        let store = Store::open(&how).unwrap();
        let owner = Store::over(database.owner().clone());
        let (control, people) =
            (Control::new(store.clone()), People::over(store).with_owner(owner));
        let files = [("stack/stack.yml".to_owned(), BARCLAMP.as_bytes().to_vec())].into();
        control.import_barclamps(None, &files).await.unwrap();
        let roles = ["app", "runtime", "wipe", "lonely", "still", "door"].map(role).to_vec();
        let deployment = |name: &str| DemoDeployment {
            name: DeploymentName::parse(name).unwrap(),
            roles: roles.clone(),
        };
        let demo = Demo {
            deployments: vec![deployment("web"), deployment("edge")],
            nodes: (1..=4).map(|n| (fqdn(n), format!("/srv/nodes/n{n}"))).collect(),
        };
        assert!(control.ensure_genesis(&policy, &demo).await.unwrap());
        assert!(!control.ensure_genesis(&policy, &demo).await.unwrap(), "genesis happens once");
        let mut actors = Vec::new();
        for name in ["ada", "bo", "cy"] {
            let new = NewPerson::human(name, [Permission::Operator, Permission::Reviewer]);
            people.create_person(None, &new).await.unwrap();
            actors.push(people.sign_in_as_owner(name).await.unwrap());
        }
        let [ada, bo, cy] = actors.try_into().unwrap();
        Self { database, control, people, ada, bo, cy }
    }

    pub async fn board(&self, deployment: &str) -> Board {
        self.control.board(&self.ada, deployment, BoardQuery::default()).await.unwrap()
    }

    pub async fn id(&self, deployment: &str) -> DeploymentId {
        self.board(deployment).await.id
    }

    pub async fn node(&self, n: usize) -> NodeId {
        let query = NodesQuery { filter: fqdn(n).to_string(), ..NodesQuery::default() };
        let page = self.control.find_nodes(&self.ada, &query).await.unwrap();
        page.nodes[0].id
    }

    pub async fn bind(&self, deployment: &str, n: usize, name: &str) -> Edit {
        Edit::Bind(edit::Bind {
            deployment: self.id(deployment).await,
            node: self.node(n).await,
            role: role(name),
        })
    }

    /// Opens or finds a proposal and appends edits; returns its version.
    pub async fn propose(
        &self,
        by: &Actor,
        deployment: &str,
        edits: Vec<Edit>,
    ) -> (ProposalId, i32) {
        let id = self.control.propose(by, self.id(deployment).await).await.unwrap();
        let version = self.board(deployment).await.proposal.unwrap().version;
        let version = self.control.edit(by, id, version, edits).await.unwrap();
        (id, version)
    }

    /// Like [`Self::propose`], with a request for each edit, so that undo takes back one at a time.
    pub async fn propose_each(
        &self,
        by: &Actor,
        deployment: &str,
        edits: Vec<Edit>,
    ) -> (ProposalId, i32) {
        let id = self.control.propose(by, self.id(deployment).await).await.unwrap();
        let mut version = self.board(deployment).await.proposal.unwrap().version;
        for edit in edits {
            version = self.control.edit(by, id, version, vec![edit]).await.unwrap();
        }
        (id, version)
    }

    /// Like [`Self::propose`], and submits the proposal.
    pub async fn submit(&self, by: &Actor, deployment: &str, edits: Vec<Edit>) -> ReviewId {
        let (id, version) = self.propose(by, deployment, edits).await;
        self.control.submit(by, id, version, "a change".into()).await.unwrap()
    }

    pub async fn approve(&self, by: &Actor, id: ReviewId) {
        self.control.give_verdict(by, id, VerdictKind::Approve, String::new()).await.unwrap();
    }

    /// Commits like the page does: with the typed name, if the change requires one.
    pub async fn commit(&self, by: &Actor, review: ReviewId) -> Result<BlueprintNumber, Problem> {
        let sql = "SELECT coalesce(n.fqdn, d.name) FROM review s JOIN proposal p ON p.id = s.proposal_id \
                   JOIN deployment d ON d.id = p.deployment_id LEFT JOIN node n ON n.id = p.node_id WHERE s.id = $1";
        let typed = sqlx::query_scalar(sql)
            .bind(review.0)
            .fetch_optional(self.database.owner())
            .await
            .unwrap();
        self.control.commit(by, CommitInput { review, typed, cancel: false }).await
    }

    /// A binding, from the proposal to the target.
    pub async fn bound(&self, deployment: &str, n: usize, name: &str) -> BlueprintNumber {
        let edit = self.bind(deployment, n, name).await;
        let id = self.submit(&self.ada, deployment, vec![edit]).await;
        self.approve(&self.bo, id).await;
        self.commit(&self.ada, id).await.unwrap()
    }

    pub async fn noderole(&self, n: usize, name: &str) -> NoderoleId {
        NoderoleId::of(self.node(n).await, &role(name), 0)
    }

    /// All pages of the list of reviews with one fate.
    pub async fn listed(&self, by: &Actor, fate: ReviewStateFilter) -> Vec<ReviewSummary> {
        let (mut all, mut query) =
            (Vec::new(), ReviewsQuery { state: fate, ..ReviewsQuery::default() });
        loop {
            let page = self.control.reviews(by, &query).await.unwrap();
            all.extend(page.reviews);
            match page.next {
                None => return all,
                next => query.before = next,
            }
        }
    }

    /// Role, node, state and generation of every step, by rank.
    pub async fn steps(&self) -> Vec<(String, String, String, i64)> {
        sqlx::query_as(
            "SELECT r.role, split_part(n.fqdn, '.', 1), s.state, s.generation FROM step s JOIN noderole r ON r.id = s.noderole_id \
             JOIN node n ON n.id = s.node_id ORDER BY n.fqdn, s.rank, r.role",
        )
        .fetch_all(self.database.owner())
        .await
        .unwrap()
    }

    /// A worker with capacity for ten noops.
    pub async fn worker(&self) -> WorkerId {
        let hello = NewWorker {
            id: WorkerId(Uuid::new_v4()),
            name: "w".into(),
            capacity: 10,
            jigs: vec!["noop".into()],
            host: "here".into(),
            pid: 1,
            version: "0".into(),
        };
        store::workers::ensure_worker(self.database.worker(), &hello, Duration::from_secs(600))
            .await
            .unwrap();
        store::workers::confirm_worker(self.database.worker(), hello.id).await.unwrap();
        hello.id
    }

    /// The number of targets.
    pub async fn targets(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM blueprint")
            .fetch_one(self.database.owner())
            .await
            .unwrap()
    }

    /// Waits until a query waits for a lock.
    pub async fn has_lock_waiter(&self) {
        self.so_many_wait(1).await;
    }

    /// Waits until this many connections wait for a lock.
    pub async fn so_many_wait(&self, many: i64) {
        let sql = "SELECT count(DISTINCT pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                   WHERE NOT l.granted AND a.datname = current_database()";
        for _ in 0..1000 {
            let waiting: i64 =
                sqlx::query_scalar(sql).fetch_one(self.database.owner()).await.unwrap();
            if waiting >= many {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no session waits for a lock");
    }

    /// Row counts that would reveal the effects of a refused command.
    pub async fn traces(&self) -> Vec<i64> {
        let mut traces = Vec::new();
        for table in [
            "blueprint",
            "edit",
            "review",
            "verdict",
            "noderole",
            "step",
            "edge",
            "node",
            "barclamp",
            "object",
        ] {
            let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
            traces.push(sqlx::query_scalar(query).fetch_one(self.database.owner()).await.unwrap());
        }
        traces
    }
}

pub fn role(name: &str) -> RoleName {
    RoleName::parse(name).unwrap()
}

pub fn fqdn(n: usize) -> Fqdn {
    Fqdn::parse(&format!("n{n}.house.example.com")).unwrap()
}

/// All source files of the crate.
pub fn sources() -> Vec<std::path::PathBuf> {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                files.push(entry);
            }
        }
    }
    files.sort();
    files
}
