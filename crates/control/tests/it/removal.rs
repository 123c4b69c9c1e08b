//! Removals, and the equality of rows and documents after random changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::deployments::StepsQuery;
use api::nodes::NodesQuery;
use api::pending::{PendingGroup, PendingQuery};
use api::reviews::ReviewStateFilter;
use api::runs::StepState;
use api::views::board::BoardRole;
use api::views::graph::GraphOptions;
use control::MissingVertex;
use control::people::{NewPerson, Permission};
use engine::anneal::{Limits, PendingReason};
use engine::cluster::{
    Blueprint, Connection, EdgeDoc, EdgeKind, NodeDoc, NoderoleDoc, NoderoleKey,
};
use engine::gate::{Policy, Risk};
use engine::ids::{
    BarclampName, BlueprintNumber, DeploymentId, DeploymentName, JigName, NodeId, RunId,
};
use engine::plan::{Edit, edit};
use serde_json::{Map, json};
use store::runs::RunEnd;
use store::workers::{NewWorker, WorkerId};
use uuid::Uuid;

use crate::arbitrary_blueprints::Line;
use crate::installation::{Installation, fqdn, role};

const LONG: Duration = Duration::from_secs(600);
const ROLES: [&str; 6] = ["base", "runtime", "app", "wipe", "still", "lonely"];

/// A deterministic pseudo-random generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A cluster with random bindings and removals, and a worker that acts at random.
struct RandomCluster {
    installation: Installation,
    line: Line,
    web: DeploymentId,
    nodes: Vec<NodeId>,
    worker: WorkerId,
    in_progress: Vec<RunId>,
    data: u64,
}

impl RandomCluster {
    async fn new() -> Self {
        let installation = Installation::new().await;
        let line = Line::of(&installation).await;
        let web = installation.id("web").await;
        let mut nodes = Vec::new();
        for n in 1..=4 {
            nodes.push(installation.node(n).await);
        }
        let worker = WorkerId(Uuid::new_v4());
        let hello = NewWorker {
            id: worker,
            name: "w".into(),
            capacity: 100,
            jigs: vec!["noop".into()],
            host: "here".into(),
            pid: 1,
            version: "0".into(),
        };
        store::workers::ensure_worker(installation.database.worker(), &hello, LONG).await.unwrap();
        store::workers::confirm_worker(installation.database.worker(), worker).await.unwrap();
        Self { installation, line, web, nodes, worker, in_progress: Vec::new(), data: 0 }
    }

    /// Binds exactly these noderoles, each with random parents among those named before it.
    async fn commit(&mut self, bindings: &[(usize, &'static str)], chance: &mut Chance) {
        let mut docs: BTreeMap<NodeId, NodeDoc> = BTreeMap::new();
        let mut placed: Vec<(NodeId, NoderoleKey, u32)> = Vec::new();
        for (node, name) in bindings {
            let (id, key) = (self.nodes[*node], NoderoleKey::first(role(name)));
            let mut parents: Vec<(EdgeDoc, u32)> = Vec::new();
            for (of, parent, rank) in &placed {
                if chance.one_in(3) {
                    let kind = [EdgeKind::Hard, EdgeKind::Soft, EdgeKind::OrderOnly]
                        [chance.below(3) as usize];
                    parents.push((EdgeDoc { parent: parent.id(*of), kind }, *rank));
                }
            }
            parents.sort();
            let rank = parents.iter().map(|(_, rank)| rank + 1).max().unwrap_or(0);
            if chance.one_in(5) {
                self.data += 1;
            }
            let noderole = NoderoleDoc {
                deployment: self.web,
                role: self.line.role(name),
                data: json!({"n": if chance.one_in(3) { self.data } else { 0 }}),
                reruns: 0,
                rank,
                parents: parents.into_iter().map(|(edge, _)| edge).collect(),
            };
            placed.push((id, key.clone(), rank));
            let doc = docs.entry(id).or_insert_with(|| empty_node(id, *node, self.web));
            doc.noderoles.insert(key, noderole);
        }
        let mut new: Blueprint = self.line.blueprint.clone();
        let mut objects = Vec::new();
        for (n, id) in self.nodes.iter().enumerate() {
            let exists = new.nodes.contains_key(id);
            match docs.remove(id) {
                Some(doc) => objects.push(new.insert_node(doc).unwrap()),
                None if exists => {
                    objects.push(new.insert_node(empty_node(*id, n, self.web)).unwrap())
                }
                None => {}
            }
        }
        self.line.put(&self.installation, &objects).await;
        self.line.commit(&self.installation, self.web, new).await;
    }

    /// Claims the runs that may start, leases some of them and finishes some of those, with success
    /// or failure.
    async fn work(&mut self, chance: &mut Chance) {
        store::runs::claim_runs(
            self.installation.database.worker(),
            Limits { running: 1 + chance.below(6) as u32, ..Limits::default() },
        )
        .await
        .unwrap();
        let limit = chance.below(4) as u32;
        let leased = store::runs::lease_runs(
            self.installation.database.worker(),
            self.worker,
            &["noop"],
            limit,
            LONG,
        )
        .await
        .unwrap();
        self.in_progress.extend(leased.iter().map(|l| l.run));
        let mut left = Vec::new();
        for run in std::mem::take(&mut self.in_progress) {
            if chance.one_in(2) {
                left.push(run);
                continue;
            }
            let end = match chance.below(4) {
                0 => RunEnd::failed("chance"),
                _ => RunEnd::Succeeded { result: Map::new(), output: json!({"a": 1}) },
            };
            store::runs::finish_run(self.installation.database.worker(), run, self.worker, &end)
                .await
                .unwrap();
        }
        self.in_progress = left;
    }

    async fn holds(&self, when: &str) {
        let verified = self.installation.control.verify().await.unwrap();
        assert!(verified.discrepancies.is_empty(), "{when}: {:#?}", verified.discrepancies);
        let odd: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM run r JOIN step s ON s.id = r.step_id
             WHERE r.ended_at IS NULL AND (s.state NOT IN ('transition', 'gone') OR (s.state = 'gone' AND r.state = 'queued'))",
        )
        .fetch_one(self.installation.database.owner())
        .await
        .unwrap();
        assert_eq!(odd, 0, "{when}: runs exist that no step waits for");
    }
}

fn empty_node(id: NodeId, n: usize, deployment: DeploymentId) -> NodeDoc {
    NodeDoc {
        id,
        fqdn: fqdn(n + 1),
        deployment,
        phantom: false,
        connection: Some(Connection::Local { root: format!("/srv/nodes/n{}", n + 1) }),
        hints: Map::new(),
        noderoles: BTreeMap::new(),
    }
}

#[tokio::test]
async fn rows_match_documents_after_random_commits() {
    for seed in [7, 1_234_567, 99_991] {
        let mut chance = Chance(seed);
        let mut play = RandomCluster::new().await;
        for round in 0..25 {
            let mut bindings = Vec::new();
            for name in ROLES {
                for node in 0..4 {
                    if chance.one_in(3) {
                        bindings.push((node, name));
                    }
                }
            }
            play.commit(&bindings, &mut chance).await;
            play.holds(&format!("seed {seed}, round {round}, committed")).await;
            for _ in 0..chance.below(4) {
                play.work(&mut chance).await;
            }
            play.holds(&format!("seed {seed}, round {round}, worked")).await;
        }
        play.commit(&[], &mut chance).await;
        let meant: i64 = sqlx::query_scalar("SELECT count(*) FROM step WHERE state <> 'gone'")
            .fetch_one(play.installation.database.owner())
            .await
            .unwrap();
        assert_eq!(meant, 0, "no noderole is desired");
    }
}

#[tokio::test]
async fn verify_finds_manual_changes() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
    let by_hand = [
        ("ALTER TABLE step DISABLE TRIGGER USER; UPDATE step SET retries = 9 WHERE rank = 0", 1),
        ("ALTER TABLE edge DISABLE TRIGGER USER; DELETE FROM edge", 2 + 2 + 1),
        (
            "ALTER TABLE noderole DISABLE TRIGGER USER; UPDATE noderole SET data = '{\"a\": 1}' WHERE role = 'app'",
            6,
        ),
    ];
    for (sql, found) in by_hand {
        sqlx::raw_sql(sql).execute(installation.database.owner()).await.unwrap();
        let discrepancies = installation.control.verify().await.unwrap().discrepancies;
        assert_eq!(discrepancies.len(), found, "{sql}: {discrepancies:#?}");
    }
}

#[tokio::test]
async fn run_of_removed_noderole_is_not_applied() {
    let mut chance = Chance(5);
    let mut play = RandomCluster::new().await;
    play.commit(&[(0, "base"), (1, "base")], &mut chance).await;
    let pool = play.installation.database.app().clone();
    store::runs::claim_runs(play.installation.database.worker(), Limits::default()).await.unwrap();
    let leased = store::runs::lease_runs(
        play.installation.database.worker(),
        play.worker,
        &["noop"],
        1,
        LONG,
    )
    .await
    .unwrap();
    let run = leased[0].run;
    play.commit(&[], &mut chance).await;
    let ends: Vec<(i64, Option<String>)> =
        sqlx::query_as("SELECT id, outcome FROM run ORDER BY id").fetch_all(&pool).await.unwrap();
    let queued = ends.iter().find(|(id, _)| *id != run.0).unwrap();
    assert_eq!(queued.1.as_deref(), Some("unstarted"), "a queued run ends as unstarted");
    assert_eq!(
        store::runs::renew_runs(play.installation.database.worker(), play.worker, &[run], LONG)
            .await
            .unwrap()
            .len(),
        1,
        "the active run continues"
    );
    play.commit(&[(0, "base"), (1, "base")], &mut chance).await;
    play.holds("bound again during a running attempt").await;
    let end = RunEnd::Succeeded {
        result: Map::from_iter([("a".to_owned(), json!(1))]),
        output: json!({"a": 1}),
    };
    store::runs::finish_run(play.installation.database.worker(), run, play.worker, &end)
        .await
        .unwrap();
    let steps: Vec<(String, i64, Option<serde_json::Value>)> =
        sqlx::query_as("SELECT state, applied_generation, output FROM step")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(
        steps,
        vec![("todo".to_owned(), 0, None); 2],
        "the result belongs to the removed noderole"
    );
    play.holds("ended").await;
}

#[tokio::test]
async fn expunged_node_ends_all_its_noderoles() {
    let mut chance = Chance(5);
    let mut play = RandomCluster::new().await;
    play.commit(&[(0, "base"), (1, "base")], &mut chance).await;
    store::runs::claim_runs(play.installation.database.worker(), Limits::default()).await.unwrap();
    let leased = store::runs::lease_runs(
        play.installation.database.worker(),
        play.worker,
        &["noop"],
        9,
        LONG,
    )
    .await
    .unwrap();
    assert_eq!(leased.len(), 2);
    let mut new = play.line.blueprint.clone();
    new.nodes.remove(&play.nodes[0]);
    play.line.commit(&play.installation, play.web, new).await;
    play.holds("given up").await;
    let runs: Vec<RunId> = leased.iter().map(|l| l.run).collect();
    let still =
        store::runs::renew_runs(play.installation.database.worker(), play.worker, &runs, LONG)
            .await
            .unwrap();
    assert_eq!(still.len(), 1, "the worker is notified that one run ended");
    let page = play
        .installation
        .control
        .find_nodes(&play.installation.ada, &NodesQuery::default())
        .await
        .unwrap();
    assert!(page.nodes.iter().all(|n| n.id != play.nodes[0]));
    let again = play
        .installation
        .control
        .add_node(
            &play.installation.ada,
            api::nodes::NodeRequest::named(fqdn(1).to_string(), "/srv/elsewhere/n1"),
        )
        .await;
    assert_ne!(again.unwrap(), play.nodes[0], "the name can be used again, and the id cannot");
    let gone = NoderoleKey::first(role("base")).id(play.nodes[0]);
    let refused =
        play.installation.control.noderole(&play.installation.ada, gone).await.unwrap_err();
    assert!(
        refused.status == 404 && refused.detail.contains("removed by blueprint 3"),
        "{}",
        refused.detail
    );
    let refused = play
        .installation
        .control
        .retry(&play.installation.ada, gone, "why not".into())
        .await
        .unwrap_err();
    let text = "Noderole base on n1.house.example.com was removed. To use it again, bind it with a proposal.";
    assert_eq!((refused.status, refused.detail.as_str()), (409, text));
}

#[tokio::test]
async fn only_commits_remove_steps_and_noderoles() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    for sql in
        ["UPDATE step SET state = 'gone', pending = 0", "UPDATE noderole SET disposition = 'gone'"]
    {
        let refused = sqlx::query(sql).execute(installation.database.app()).await.unwrap_err();
        assert_eq!(
            refused.as_database_error().and_then(|e| e.code()).as_deref(),
            Some("GY002"),
            "{sql}"
        );
    }
}

async fn passes(
    installation: &Installation,
    deployment: &str,
    edits: Vec<Edit>,
) -> BlueprintNumber {
    let id = installation.submit(&installation.ada, deployment, edits).await;
    installation.approve(&installation.bo, id).await;
    let number = installation.commit(&installation.ada, id).await.unwrap();
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
    number
}

#[tokio::test]
async fn deployment_is_unbound_then_removed() {
    let installation = Installation::new().await;
    installation.bound("web", 1, "app").await;
    let (web, n1) = (installation.id("web").await, installation.node(1).await);
    let unbind = |name: &str, with_dependents| {
        Edit::Unbind(edit::Unbind {
            node: n1,
            noderole: NoderoleKey::first(role(name)),
            with_dependents,
        })
    };
    let (proposal, version) =
        installation.propose(&installation.ada, "web", vec![unbind("runtime", true)]).await;
    let board = installation.board("web").await;
    let going: Vec<&str> = board.groups[0]
        .roles
        .iter()
        .filter(|r| r.noderoles.iter().any(|c| c.removed))
        .map(|r| r.role.as_str())
        .collect();
    assert_eq!((going, board.proposal.unwrap().removed), (vec!["app", "runtime"], 2));
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "no more app".into())
        .await
        .unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    let stays = "Nothing is run on the node for: app on n1 and runtime on n1. Their files and services \
         stay on it.";
    assert_eq!(review.summary, ["Removes app from n1.", "Removes runtime from n1.", stays]);
    let listed = installation.listed(&installation.bo, ReviewStateFilter::Open).await;
    assert_eq!(listed[0].summary, "Removes app from n1. And 1 more change.");
    assert_eq!(review.risks, [Risk::Removal]);
    installation.approve(&installation.bo, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let left: Vec<String> = installation
        .steps()
        .await
        .into_iter()
        .map(|(name, _, state, _)| format!("{name} {state}"))
        .collect();
    assert_eq!(left, ["base todo", "runtime gone", "app gone"]);
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);

    passes(&installation, "web", vec![installation.bind("web", 1, "app").await]).await;
    let states: Vec<String> =
        installation.steps().await.into_iter().map(|(_, _, state, _)| state).collect();
    assert_eq!(
        states,
        ["todo", "blocked", "blocked"],
        "a noderole that is bound again starts over"
    );

    let reason = "burnt".to_owned();
    passes(&installation, "web", vec![Edit::ExpungeNode(edit::ExpungeNode { node: n1, reason })])
        .await;
    passes(
        &installation,
        "web",
        vec![Edit::RemoveRole(edit::RemoveRole { deployment: web, role: role("lonely") })],
    )
    .await;
    let below = DeploymentId(Uuid::new_v4());
    let create = Edit::CreateDeployment(edit::CreateDeployment {
        id: below,
        phantom: NodeId(Uuid::new_v4()),
        name: DeploymentName::parse("below").unwrap(),
        parent: web,
    });
    passes(&installation, "web", vec![create]).await;
    installation.control.propose(&installation.cy, below).await.unwrap();
    let nested = installation
        .submit(
            &installation.ada,
            "web",
            vec![Edit::RemoveDeployment(edit::RemoveDeployment { deployment: below })],
        )
        .await;
    let review = installation.control.review(&installation.bo, nested).await.unwrap();
    assert!(
        review.summary.contains(&"Removes deployment below.".to_owned()),
        "{:?}",
        review.summary
    );
    installation.approve(&installation.bo, nested).await;
    installation.commit(&installation.ada, nested).await.unwrap();
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
    assert_eq!(
        installation
            .control
            .board(&installation.ada, "below", api::views::board::BoardQuery::default())
            .await
            .unwrap_err()
            .status,
        404
    );
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM proposal WHERE state = 'open'")
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert_eq!(open, 0, "the proposal on it was closed");
    let whole = installation
        .submit(
            &installation.ada,
            "web",
            vec![Edit::RemoveDeployment(edit::RemoveDeployment { deployment: web })],
        )
        .await;
    installation.approve(&installation.bo, whole).await;
    installation.commit(&installation.ada, whole).await.unwrap();
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
    let shown = installation.listed(&installation.ada, ReviewStateFilter::Any).await;
    for old in &shown {
        installation
            .control
            .review_graph(
                &installation.ada,
                old.review,
                &GraphOptions::default(),
                MissingVertex::Note,
            )
            .await
            .unwrap();
    }
    assert_eq!(
        shown.iter().find(|r| r.review == whole).unwrap().deployment.as_str(),
        "web",
        "its reviews keep the deployment's name"
    );
}

#[tokio::test]
async fn policy_change_satisfies_old_and_new_policy() {
    let installation = Installation::new().await;
    let waiting = installation
        .submit(&installation.ada, "edge", vec![installation.bind("edge", 2, "app").await])
        .await;
    installation.approve(&installation.bo, waiting).await;
    let policy = Policy { approvals: 2, by_risk: BTreeMap::new(), ..Policy::default() };
    let id = installation
        .submit(&installation.ada, "web", vec![Edit::SetPolicy(edit::SetPolicy { policy })])
        .await;
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    assert_eq!(review.gate.needed, 2, "both the old and the new policy are satisfied");
    assert!(review.summary[0].contains("2 approvals for every change"), "{:?}", review.summary);
    installation.approve(&installation.bo, id).await;
    assert_eq!(installation.commit(&installation.ada, id).await.unwrap_err().code, "not_approved");
    installation.approve(&installation.cy, id).await;
    installation.commit(&installation.ada, id).await.unwrap();
    let weaker = Policy { approvals: 1, by_risk: BTreeMap::new(), ..Policy::default() };
    let back = installation
        .submit(&installation.ada, "web", vec![Edit::SetPolicy(edit::SetPolicy { policy: weaker })])
        .await;
    assert_eq!(
        installation.control.review(&installation.bo, back).await.unwrap().gate.needed,
        2,
        "the old policy requires two approvals"
    );
    let draft = installation.board("web").await.proposal.unwrap();
    installation.control.discard(&installation.ada, draft.id, draft.version).await.unwrap();
    assert_eq!(
        installation.commit(&installation.ada, waiting).await.unwrap_err().code,
        "policy_moved"
    );
    let next = installation
        .submit(&installation.ada, "web", vec![installation.bind("web", 1, "app").await])
        .await;
    installation.approve(&installation.bo, next).await;
    assert_eq!(
        installation.commit(&installation.ada, next).await.unwrap_err().code,
        "not_approved"
    );
    installation.approve(&installation.cy, next).await;
    installation.commit(&installation.ada, next).await.unwrap();
    assert_eq!(installation.control.verify().await.unwrap().discrepancies, []);
}

#[tokio::test]
async fn jig_is_switched_only_by_review() {
    let installation = Installation::new().await;
    let files = [("own/own.yml".to_owned(), OWN_JIG.as_bytes().to_vec())].into();
    installation.control.import_barclamps(Some(&installation.ada), &files).await.unwrap();
    let version = Line::of(&installation)
        .await
        .catalog
        .barclamps()
        .find(|(_, b)| b.name.as_str() == "own")
        .unwrap()
        .0;
    let web = installation.id("web").await;
    let own = BarclampName::parse("own").unwrap();
    let (jig, off) = (JigName::parse("own-jig").unwrap(), false);
    let used = Edit::UseBarclamp(edit::UseBarclamp { deployment: web, barclamp: own, version });
    passes(
        &installation,
        "web",
        vec![used, Edit::ActivateJig(edit::ActivateJig { jig, active: off })],
    )
    .await;
    let active: bool = sqlx::query_scalar("SELECT active FROM jig WHERE name = 'own-jig'")
        .fetch_one(installation.database.owner())
        .await
        .unwrap();
    assert!(!active);
    let by_hand = sqlx::query("UPDATE jig SET active = true")
        .execute(installation.database.app())
        .await
        .unwrap_err();
    assert_eq!(by_hand.as_database_error().and_then(|e| e.code()).as_deref(), Some("GY002"));
}

const OWN_JIG: &str = "
barclamp: {name: own, version: '1', description: For tests}
jigs:
  - {name: own-jig, class: noop}
roles:
  - {name: ours, jig: own-jig}
";

#[tokio::test]
async fn board_shows_states_among_many_steps() {
    let installation = Installation::new().await;
    for n in 1..=4 {
        installation.bound("web", n, "app").await;
    }
    // Noderoles that were bound once and then removed: more rows than a board may read.
    let crowd = [
        // Only the speed of this test depends on these constraints.
        "DO $$ DECLARE c record; BEGIN FOR c IN SELECT conname, conrelid::regclass AS t FROM pg_constraint \
         WHERE contype = 'f' AND conrelid IN ('step'::regclass, 'noderole'::regclass) LOOP \
         EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$",
        "ALTER TABLE step DISABLE TRIGGER USER",
        "ALTER TABLE noderole DISABLE TRIGGER USER",
        "INSERT INTO noderole (id, node_id, role, instance, deployment_id, role_hash) \
         SELECT gen_random_uuid(), r.node_id, r.role, n, r.deployment_id, r.role_hash \
         FROM noderole r, generate_series(1, 30000) n WHERE r.role = 'app'",
        "INSERT INTO step (id, noderole_id, node_id, concurrency_group_id, rank, jig, generation, content_hash, state) \
         SELECT r.id, r.id, r.node_id, s.concurrency_group_id, s.rank, s.jig, 1, s.content_hash, 'gone' \
         FROM noderole r, (SELECT concurrency_group_id, rank, jig, content_hash FROM step ORDER BY id LIMIT 1) s WHERE r.instance > 0",
        "UPDATE step SET state = 'error', error = 'no space left', pending = 0 FROM noderole r \
         WHERE r.id = noderole_id AND r.instance = 0 AND r.role = 'app'",
        "UPDATE step SET state = 'active', pending = 0, applied_generation = generation FROM noderole r \
         WHERE r.id = noderole_id AND r.instance = 0 AND r.role <> 'app'",
    ];
    let mut transaction = installation.database.owner().begin().await.unwrap();
    for sql in crowd {
        sqlx::query(sql).execute(&mut *transaction).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let board = installation.board("web").await;
    let chips = board.groups.iter().flat_map(|group| &group.roles).flat_map(|role| {
        role.noderoles.iter().map(|chip| (role.role.to_string(), chip.state, chip.error.clone()))
    });
    let listed: BTreeSet<(String, StepState, Option<String>)> = chips.collect();
    let error = Some("no space left".to_owned());
    let expected = [
        ("app".to_owned(), StepState::Error, error.clone()),
        ("base".to_owned(), StepState::Active, None),
        ("runtime".to_owned(), StepState::Active, None),
    ];
    assert_eq!(listed, expected.into());
    let carriers = installation
        .control
        .role_noderoles(&installation.ada, "web", None, &role("app"))
        .await
        .unwrap();
    let listed: Vec<_> =
        carriers.noderoles.iter().map(|chip| (chip.state, chip.error.clone())).collect();
    assert_eq!(listed, vec![(StepState::Error, error); 4]);
}

#[tokio::test]
async fn unsatisfiable_policy_is_rejected() {
    let installation = Installation::new().await;
    let policy = |approvals| {
        Edit::SetPolicy(edit::SetPolicy {
            policy: Policy { approvals, by_risk: BTreeMap::new(), ..Policy::default() },
        })
    };
    let (proposal, version) = installation.propose(&installation.ada, "web", vec![policy(3)]).await;
    let refused = installation
        .control
        .submit(&installation.ada, proposal, version, "more eyes".into())
        .await
        .unwrap_err();
    assert_eq!(refused.code, "lint");
    let detail = "policy-unmet: The policy would require 3 approvals for every change, but only 2 \
                  people may review without being an author: this change could never be \
                  committed. Require fewer approvals, or give more people the reviewer permission \
                  first.";
    assert_eq!(
        refused.errors.iter().map(|error| error.detail.as_str()).collect::<Vec<_>>(),
        [detail]
    );
    let version = installation
        .control
        .edit(&installation.ada, proposal, version, vec![policy(2)])
        .await
        .unwrap();
    let id = installation
        .control
        .submit(&installation.ada, proposal, version, "more eyes".into())
        .await
        .unwrap();
    installation.approve(&installation.bo, id).await;
    installation.approve(&installation.cy, id).await;
    assert_eq!(installation.control.review(&installation.ada, id).await.unwrap().checks, vec![]);

    // Both the page and the commit read the current reviewers.
    let admin = NewPerson::human("root", [Permission::Admin]);
    installation.people.create_person(None, &admin).await.unwrap();
    let admin = installation.people.sign_in_as_owner("root").await.unwrap();
    installation.people.disable(Some(&admin), installation.cy.person).await.unwrap();
    let review = installation.control.review(&installation.bo, id).await.unwrap();
    let reported = review.checks.iter().map(|finding| finding.problem.as_str()).collect::<Vec<_>>();
    let expected = "The policy would require 2 approvals for every change, but only 1 person may \
                review without being an author: this change could never be committed";
    assert_eq!(reported, [expected]);
    let problem = installation.commit(&installation.ada, id).await.unwrap_err();
    assert!(problem.code == "lint" && problem.detail.contains(expected), "{problem:?}");
}

const TOOLS: &str = "
barclamp: {name: tools, version: '1'}
roles:
  - {name: tool, jig: test, actions: [run, remove]}
  - {name: plain, jig: test, requires: [tool]}
  - {name: plug, jig: test, requires: [plain], actions: [run, remove]}
  - {name: side, jig: test, exclusive: false, actions: [run, remove]}
";

/// A deployment *web* with the roles of `tools`, and a worker for them.
struct Tools {
    installation: Installation,
    worker: WorkerId,
}

impl Tools {
    async fn new() -> Self {
        let installation = Installation::new().await;
        let files = [("tools/tools.yml".to_owned(), TOOLS.as_bytes().to_vec())].into();
        let version =
            installation.control.import_barclamps(None, &files).await.unwrap().barclamps[0].hash;
        let barclamp = BarclampName::parse("tools").unwrap();
        let web = installation.id("web").await;
        let add = |name: &str| Edit::AddRole(edit::AddRole { deployment: web, role: role(name) });
        let edits = vec![
            Edit::UseBarclamp(edit::UseBarclamp { deployment: web, barclamp, version }),
            add("tool"),
            add("plain"),
            add("plug"),
            add("side"),
        ];
        let worker = WorkerId(Uuid::new_v4());
        let hello = NewWorker {
            id: worker,
            name: "tester".into(),
            capacity: 10,
            jigs: vec!["test".into()],
            host: "here".into(),
            pid: 1,
            version: "0".into(),
        };
        store::workers::ensure_worker(installation.database.worker(), &hello, LONG).await.unwrap();
        store::workers::confirm_worker(installation.database.worker(), worker).await.unwrap();
        let tools = Self { installation, worker };
        tools.commits(edits).await;
        tools
    }

    /// Reviews and commits edits with the server's database role.
    async fn commits(&self, edits: Vec<Edit>) -> BlueprintNumber {
        let id = self.installation.submit(&self.installation.ada, "web", edits).await;
        self.installation.approve(&self.installation.bo, id).await;
        self.installation.commit(&self.installation.ada, id).await.unwrap()
    }

    async fn unbind(&self, name: &str) -> Edit {
        let (node, noderole) = (self.installation.node(1).await, NoderoleKey::first(role(name)));
        Edit::Unbind(edit::Unbind { node, noderole, with_dependents: true })
    }

    /// Runs the steps that may start, one by one, and returns their roles and actions.
    async fn runs(&self, end: &RunEnd) -> Vec<String> {
        let pool = self.installation.database.worker();
        let mut ran = Vec::new();
        loop {
            store::runs::claim_runs(pool, Limits::default()).await.unwrap();
            let leased =
                store::runs::lease_runs(pool, self.worker, &["test"], 1, LONG).await.unwrap();
            let Some(run) = leased.first().map(|leased| leased.run) else { return ran };
            store::runs::finish_run(pool, run, self.worker, end).await.unwrap();
            let role: String = sqlx::query_scalar(
                "SELECT s.action || ' ' || n.role FROM run r JOIN step s ON s.id = r.step_id
                 JOIN noderole n ON n.id = s.noderole_id WHERE r.id = $1",
            )
            .bind(run.0)
            .fetch_one(self.installation.database.owner())
            .await
            .unwrap();
            ran.push(role);
        }
    }

    /// The states of the removal steps, by role.
    async fn removals(&self) -> Vec<(String, String)> {
        sqlx::query_as(
            "SELECT n.role, s.state FROM step s JOIN noderole n ON n.id = s.noderole_id
             WHERE s.action = 'remove' ORDER BY n.role",
        )
        .fetch_all(self.installation.database.owner())
        .await
        .unwrap()
    }

    async fn holds(&self, when: &str) {
        let verified = self.installation.control.verify().await.unwrap();
        assert!(verified.discrepancies.is_empty(), "{when}: {:#?}", verified.discrepancies);
    }
}

fn states(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(role, state)| ((*role).to_owned(), (*state).to_owned())).collect()
}

#[tokio::test]
async fn committed_removal_runs_before_noderole_is_deleted() {
    let tools = Tools::new().await;
    let installation = &tools.installation;
    tools.commits(vec![installation.bind("web", 1, "plug").await]).await;
    let succeeded = RunEnd::Succeeded { result: Map::new(), output: json!({}) };
    assert_eq!(tools.runs(&succeeded).await, ["run tool", "run plain", "run plug"]);
    tools.commits(vec![tools.unbind("tool").await]).await;
    assert_eq!(tools.removals().await, states(&[("plug", "todo"), ("tool", "blocked")]));
    tools.holds("unbound").await;
    let plug = installation.noderole(1, "plug").await;
    let refused = installation.control.noderole(&installation.ada, plug).await.unwrap_err();
    assert!(refused.detail.contains("Its action remove has not ended yet"), "{}", refused.detail);

    assert_eq!(tools.runs(&RunEnd::failed("disk is busy")).await, ["remove plug"]);
    assert_eq!(tools.removals().await, states(&[("plug", "error"), ("tool", "blocked")]));
    let refused = installation.control.noderole(&installation.ada, plug).await.unwrap_err();
    assert!(refused.detail.contains("Its action remove failed"), "{}", refused.detail);
    installation.control.retry(&installation.ada, plug, "freed the disk".into()).await.unwrap();
    assert_eq!(tools.runs(&succeeded).await, ["remove plug", "remove tool"]);
    assert_eq!(tools.removals().await, states(&[("plug", "active"), ("tool", "active")]));
    let query = StepsQuery::default();
    let page = installation.control.find_steps(&installation.ada, &query).await.unwrap();
    let listed: Vec<String> =
        page.steps.iter().map(|step| format!("{} {}", step.action, step.noderole)).collect();
    assert_eq!(listed, [""; 0], "the list has no noderoles that are gone");
    tools.holds("removed").await;

    tools.commits(vec![installation.bind("web", 1, "tool").await]).await;
    assert_eq!(tools.removals().await, states(&[("plug", "active"), ("tool", "gone")]));
    tools.holds("bound again").await;
}

#[tokio::test]
async fn board_shows_which_removals_run() {
    let tools = Tools::new().await;
    let installation = &tools.installation;
    tools.commits(vec![installation.bind("web", 1, "plug").await]).await;
    // The role, whether the proposal removes it, and whether `remove` runs.
    let marks = async || -> Vec<(String, bool, bool)> {
        let board = installation.board("web").await;
        let roles = board.groups.iter().flat_map(|group| &group.roles);
        let mark = |role: &BoardRole| {
            let noderole = role.noderoles.first()?;
            Some((role.role.to_string(), noderole.removed, noderole.runs_remove))
        };
        let mut all: Vec<_> = roles.filter_map(mark).collect();
        all.sort();
        all
    };
    let of = |going: bool, runs: [bool; 3]| {
        let names = ["plain", "plug", "tool"].into_iter().zip(runs);
        names.map(|(name, runs)| (name.to_owned(), going, runs)).collect::<Vec<_>>()
    };
    assert_eq!(marks().await, of(false, [false, true, true]));

    let n1 = installation.node(1).await;
    let proposal = installation.control.propose_on_node(&installation.ada, n1).await.unwrap();
    let view = installation.control.node_proposal(&installation.ada, proposal).await.unwrap();
    let roles = view.noderoles.iter();
    let roles: BTreeMap<_, _> =
        roles.map(|role| (role.noderole.to_string(), role.runs_remove)).collect();
    assert_eq!((roles["plug"], roles["plain"]), (true, false));
    let version = view.proposal.version;
    installation.control.discard(&installation.ada, proposal, version).await.unwrap();

    let edits = vec![tools.unbind("tool").await];
    let (proposal, version) = installation.propose(&installation.ada, "web", edits).await;
    assert_eq!(marks().await, of(true, [false, true, true]));
    // Nothing runs on an expunged node.
    let expunge = edit::ExpungeNode { node: n1, reason: "its board burnt".into() };
    installation.control.undo(&installation.ada, proposal, version).await.unwrap();
    installation.propose(&installation.ada, "web", vec![Edit::ExpungeNode(expunge)]).await;
    assert_eq!(marks().await, of(true, [false, false, false]));
}

#[tokio::test]
async fn node_that_returns_repeats_no_removal() {
    let tools = Tools::new().await;
    tools.commits(vec![tools.installation.bind("web", 1, "tool").await]).await;
    let succeeded = RunEnd::Succeeded { result: Map::new(), output: json!({}) };
    tools.runs(&succeeded).await;
    tools.commits(vec![tools.unbind("tool").await]).await;
    assert_eq!(tools.runs(&succeeded).await, ["remove tool"]);
    let (owner, node) = (tools.installation.database.owner(), tools.installation.node(1).await);
    for alive in [false, true] {
        store::runs::set_node_alive(owner, node, alive).await.unwrap();
    }
    assert_eq!(tools.removals().await, states(&[("tool", "active")]));
    assert_eq!(tools.runs(&succeeded).await, Vec::<String>::new());
    tools.holds("removed").await;
}

#[tokio::test]
async fn new_removal_waits_for_unfinished_removal_of_child() {
    let tools = Tools::new().await;
    tools.commits(vec![tools.installation.bind("web", 1, "plug").await]).await;
    let succeeded = RunEnd::Succeeded { result: Map::new(), output: json!({}) };
    tools.runs(&succeeded).await;
    tools.commits(vec![tools.unbind("plain").await]).await;
    tools.runs(&RunEnd::failed("disk is busy")).await;
    tools.commits(vec![tools.unbind("tool").await]).await;
    assert_eq!(tools.removals().await, states(&[("plug", "error"), ("tool", "blocked")]));
    tools.holds("two commits").await;
    // Binding the child again binds its parents too, so nothing is removed any more.
    tools.commits(vec![tools.installation.bind("web", 1, "plug").await]).await;
    assert_eq!(tools.removals().await, states(&[("plug", "gone"), ("tool", "gone")]));
    tools.holds("bound again").await;
}

#[tokio::test]
async fn bound_again_step_waits_for_open_removal() {
    let tools = Tools::new().await;
    let installation = &tools.installation;
    tools.commits(vec![installation.bind("web", 1, "side").await]).await;
    let succeeded = RunEnd::Succeeded { result: Map::new(), output: json!({}) };
    assert_eq!(tools.runs(&succeeded).await, ["run side"]);
    tools.commits(vec![tools.unbind("side").await]).await;
    let pool = installation.database.worker();
    assert_eq!(store::runs::claim_runs(pool, Limits::default()).await.unwrap().runs.len(), 1);
    let leased = store::runs::lease_runs(pool, tools.worker, &["test"], 1, LONG).await.unwrap();
    assert_eq!(leased.len(), 1);

    tools.commits(vec![installation.bind("web", 1, "side").await]).await;
    assert_eq!(store::runs::claim_runs(pool, Limits::default()).await.unwrap().runs, []);
    let page =
        installation.control.pending(&installation.ada, &PendingQuery::default()).await.unwrap();
    let reasons = |group: &PendingGroup| (group.reason, group.steps[0].reasons.clone());
    let text = "Waits for another action of this noderole, which is running.";
    assert_eq!(
        page.groups.iter().map(reasons).collect::<Vec<_>>(),
        [(PendingReason::OtherAction, vec![text.to_owned()])]
    );
    store::runs::finish_run(pool, leased[0].run, tools.worker, &succeeded).await.unwrap();
    assert_eq!(tools.runs(&succeeded).await, ["run side"]);
}

#[tokio::test]
async fn commit_with_other_removal_steps_is_rejected() {
    let tools = Tools::new().await;
    let installation = &tools.installation;
    tools.commits(vec![installation.bind("web", 1, "tool").await]).await;
    let succeeded = RunEnd::Succeeded { result: Map::new(), output: json!({}) };
    tools.runs(&succeeded).await;
    // A removal step outside of a commit.
    let insert = "INSERT INTO step (id, noderole_id, node_id, action, concurrency_group_id, rank, jig, generation, content_hash, state) \
        SELECT gen_random_uuid(), noderole_id, node_id, 'remove', concurrency_group_id, 0, jig, generation, content_hash, 'todo' \
        FROM step WHERE action = 'run'";
    let refused = sqlx::query(insert).execute(installation.database.app()).await.unwrap_err();
    let code =
        |e: &sqlx::Error| e.as_database_error().and_then(|e| e.code()).map(|c| c.into_owned());
    assert_eq!(code(&refused).as_deref(), Some("GY002"));
    // The run of a removal step whose noderole is bound.
    let run = "INSERT INTO run (step_id, node_id, concurrency_group_id, generation, content_hash, blueprint_number, epoch, exclusive, lease_until) \
        SELECT s.id, s.node_id, s.concurrency_group_id, s.generation, s.content_hash, h.number, h.epoch, s.exclusive, now() \
        FROM moved s CROSS JOIN head h";
    let owner = installation.database.owner();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "ALTER TABLE step DISABLE TRIGGER USER; {insert}; ALTER TABLE step ENABLE TRIGGER USER"
    )))
    .execute(owner)
    .await
    .unwrap();
    let claim = format!(
        "WITH moved AS (UPDATE step SET state = 'transition' WHERE action = 'remove' RETURNING *) {run}"
    );
    let refused = sqlx::query(sqlx::AssertSqlSafe(claim))
        .execute(installation.database.worker())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("its noderole is bound"), "{refused}");
}
