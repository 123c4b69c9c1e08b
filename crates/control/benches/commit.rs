//! Benchmark: the commit of one node's change among 200,000 steps, on a real PostgreSQL (`cargo
//! bench -p control --bench commit`).
//!
//! All changes go through the use cases. One proposal binds 10,000 nodes to 20 roles each. Then
//! each change re-runs the twenty noderoles of one node. The measured time is the whole commit:
//! planning, lint, locks, gate and transaction. `GANTRY_BENCH_NODES` sets a smaller size.

#![expect(clippy::unwrap_used, reason = "a benchmark that panics has failed")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::people::{Actor, NewPerson, People, Permission};
use control::{Control, Demo, DemoDeployment};
use engine::cluster::NoderoleKey;
use engine::gate::{Policy, VerdictKind};
use engine::ids::{DeploymentId, DeploymentName, Fqdn, NodeId, ProposalId, ReviewId, RoleName};
use engine::plan::{Edit, edit};
use store::Store;
use testdb::TestDatabase;

const ROLES: usize = 20;
const GOAL: Duration = Duration::from_millis(50);
const CHANGES: usize = 12;
/// Warm-up commits. On a new connection, the first one prepares the statements of the commit and
/// its guards.
const WARM: usize = 8;

struct Installation {
    database: TestDatabase,
    control: Control,
    ada: Actor,
    bo: Actor,
    web: DeploymentId,
    nodes: Vec<NodeId>,
}

fn role(n: usize) -> RoleName {
    RoleName::parse(&format!("r{n}")).unwrap()
}

impl Installation {
    async fn new(nodes: usize) -> Self {
        let database = TestDatabase::new().await;
        let store = Store::over(database.app().clone());
        let (control, people) = (
            Control::new(store.clone()),
            People::over(store).with_owner(Store::over(database.owner().clone())),
        );
        let roles = (0..ROLES).map(|n| match n {
            0 => "  - {name: r0, jig: noop, flags: [implicit]}\n".to_owned(),
            n => format!(
                "  - {{name: r{n}, jig: noop, flags: [implicit], requires: [r{}]}}\n",
                n - 1
            ),
        });
        let file = format!(
            "barclamp: {{name: bench, version: '1', description: x}}\nroles:\n{}",
            roles.collect::<String>()
        );
        let files = BTreeMap::from([("bench/bench.yml".to_owned(), file.into_bytes())]);
        control.import_barclamps(None, &files).await.unwrap();
        let web = DemoDeployment {
            name: DeploymentName::parse("web").unwrap(),
            roles: vec![role(ROLES - 1)],
        };
        let fqdn = |n: usize| {
            (Fqdn::parse(&format!("n{n}.bench.example.com")).unwrap(), format!("/srv/n{n}"))
        };
        let demo = Demo { deployments: vec![web], nodes: (0..nodes).map(fqdn).collect() };
        let policy = Policy { approvals: 1, by_risk: BTreeMap::new(), ..Policy::default() };
        control.ensure_genesis(&policy, &demo).await.unwrap();
        let mut actors = Vec::new();
        for name in ["ada", "bo"] {
            let new = NewPerson::human(name, [Permission::Operator, Permission::Reviewer]);
            people.create_person(None, &new).await.unwrap();
            actors.push(people.sign_in_as_owner(name).await.unwrap());
        }
        let [ada, bo] = actors.try_into().unwrap();
        let web =
            control.board(&ada, "web", api::views::board::BoardQuery::default()).await.unwrap().id;
        let ids: Vec<(uuid::Uuid,)> =
            sqlx::query_as("SELECT id FROM node WHERE NOT phantom ORDER BY fqdn")
                .fetch_all(database.owner())
                .await
                .unwrap();
        let nodes = ids.into_iter().map(|(id,)| NodeId(id)).collect();
        Self { database, control, ada, bo, web, nodes }
    }

    async fn approved(&self, edits: Vec<Edit>) -> ReviewId {
        let (control, ada) = (&self.control, &self.ada);
        let id: ProposalId = control.propose(ada, self.web).await.unwrap();
        let (mut version,): (i32,) = sqlx::query_as("SELECT version FROM proposal WHERE id = $1")
            .bind(id.0)
            .fetch_one(self.database.owner())
            .await
            .unwrap();
        for some in edits.chunks(1_000) {
            version = control.edit(ada, id, version, some.to_vec()).await.unwrap();
        }
        let review = control.submit(ada, id, version, "a change".into()).await.unwrap();
        control.give_verdict(&self.bo, review, VerdictKind::Approve, String::new()).await.unwrap();
        review
    }
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` also runs this; there is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let nodes =
        std::env::var("GANTRY_BENCH_NODES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let installation = Installation::new(nodes).await;
    let began = Instant::now();
    let all = installation.nodes.iter().map(|node| {
        Edit::Bind(edit::Bind { deployment: installation.web, node: *node, role: role(ROLES - 1) })
    });
    let all = installation.approved(all.collect()).await;
    println!("planned and submitted {} noderoles in {:.1?}", nodes * ROLES, began.elapsed());
    let began = Instant::now();
    installation.control.commit(&installation.ada, all).await.unwrap();
    println!("committed them in {:.1?}", began.elapsed());
    sqlx::query("ANALYZE").execute(installation.database.owner()).await.unwrap();

    let mut took = Vec::new();
    for n in 0..WARM + CHANGES {
        let again = |r: usize| {
            Edit::Rerun(edit::Rerun {
                node: installation.nodes[n * 7 % nodes],
                noderole: NoderoleKey::first(role(r)),
                reason: "measured".into(),
            })
        };
        let review = installation.approved((0..ROLES).map(again).collect()).await;
        let began = Instant::now();
        installation.control.commit(&installation.ada, review).await.unwrap();
        took.push(began.elapsed());
    }
    let first = took.drain(..WARM).max().unwrap();
    took.sort();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    let word = if median <= GOAL { "within" } else { "ABOVE" };
    println!(
        "commit of one node's change among {} steps: median {median:.1?}, slowest {slowest:.1?}; goal {GOAL:.0?}: {word}; \
         slowest of the first {WARM} {first:.1?}",
        nodes * ROLES
    );
}
