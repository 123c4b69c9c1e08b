//! A seeded mix of all faults while two people change the desired state. Then the faults end, and
//! the checker runs.
//!
//! The seed determines the order, targets, delays and durations of faults, and the changes. Each
//! kind of fault occurs once before any kind recurs. A fault that does not fit yet (no run to
//! cancel) is postponed. The test does not end before each kind has occurred. The results depend on
//! the machine: two runs with one seed have the same faults at different moments.
//!
//! `make chaos SEED=1 MINUTES=10`. Without a seed, it chooses and prints a random one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::checker::{Line, Violations, judge};
use crate::evidence::{gather, steps, watch as watch_over};
use crate::namespace::{self, Room};
use crate::rest::{Client, RequestFailure};
use crate::world::{
    DEPLOYMENTS, LEASE, Machine, NotificationBlock, Worker, World, approved, commit_named,
};

const NODES: usize = 6;
const WORKERS: usize = 3;
const SERVERS: usize = 2;
/// Maximum time until everything settles after the last fault.
const REST: Duration = Duration::from_secs(300);
/// Additional time beyond the requested duration, until each kind of fault has occurred.
const ALL_KINDS: Duration = Duration::from_secs(120);
/// Roles to bind. They also add the roles that they require.
const BOUND: [&str; 5] = ["top", "flaky", "aside", "spoke", "wipe"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    WorkerKilled,
    WorkerStopped,
    SameRun,
    ServerKilled,
    PostgresRestarted,
    PostgresGone,
    NodeGone,
    NodeCrashed,
    OtherHostKey,
    DiskFull,
    NotificationsLost,
    WrongClock,
    RunCanceled,
}

impl Fault {
    const ALL: [Self; 13] = [
        Self::WorkerKilled,
        Self::WorkerStopped,
        Self::SameRun,
        Self::ServerKilled,
        Self::PostgresRestarted,
        Self::PostgresGone,
        Self::NodeGone,
        Self::NodeCrashed,
        Self::OtherHostKey,
        Self::DiskFull,
        Self::NotificationsLost,
        Self::WrongClock,
        Self::RunCanceled,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::WorkerKilled => "worker killed",
            Self::WorkerStopped => "worker stopped beyond its lease",
            Self::SameRun => "two workers with the same run",
            Self::ServerKilled => "server killed during commits",
            Self::PostgresRestarted => "PostgreSQL restarted",
            Self::PostgresGone => "PostgreSQL down beyond a lease",
            Self::NodeGone => "node unreachable, then back",
            Self::NodeCrashed => "node without power, then back",
            Self::OtherHostKey => "wrong host key",
            Self::DiskFull => "disk full on the node",
            Self::NotificationsLost => "notifications lost",
            Self::WrongClock => "worker's clock off by an hour",
            Self::RunCanceled => "run canceled",
        })
    }
}

/// A fault in progress: its end and its kind.
struct ActiveFault {
    until: Instant,
    kind: FaultKind,
}

enum FaultKind {
    Worker(Worker),
    NoWorker { offset: i64 },
    NoServer { place: usize },
    NoPostgres,
    Node(usize),
    HostKey(usize),
    Disk(usize),
    NotificationBlock(NotificationBlock),
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Tally {
    faults: BTreeMap<Fault, usize>,
    changes: Changes,
}

/// The results of the people's changes.
#[derive(Debug, Default)]
struct Changes {
    /// The targets that commits returned.
    committed: Vec<i64>,
    /// Failed changes, by error.
    not: BTreeMap<String, usize>,
    /// Number of internal server errors among them. No fault excuses these.
    errors: usize,
}

impl Tally {
    /// Kinds that have not occurred yet.
    fn not_dealt(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| !self.faults.contains_key(fault)).collect()
    }
}

pub struct Outcome {
    tally: Tally,
    runs: i64,
    outcomes: Vec<(String, i64)>,
    steps: i64,
    /// Number of those that wait for a step on another node.
    between: usize,
    /// How often a destructive step has started.
    destroyed: usize,
    /// Number of targets that a commit returned but that don't exist.
    lost: usize,
    /// Whether all steps match the desired state.
    at_rest: bool,
    pub violations: Violations,
    took: Duration,
}

impl Outcome {
    /// Whether there is no violation, lost commit, unfinished step, missing fault or server error.
    fn is_good(&self) -> bool {
        let broken = self.violations.total() + self.lost + self.tally.changes.errors;
        broken == 0 && self.at_rest && self.tally.not_dealt().is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: usize = self.tally.faults.values().sum();
        writeln!(f, "{:<34} {}", "runs", self.runs)?;
        for (outcome, count) in &self.outcomes {
            writeln!(f, "    {outcome:<26} {count}")?;
        }
        writeln!(f, "{:<34} {}", "steps", self.steps)?;
        writeln!(f, "    {:<30} {}", "depend on another node", self.between)?;
        writeln!(f, "    {:<30} {}", "destructive runs started", self.destroyed)?;
        writeln!(f, "{:<34} {}", "changes committed", self.tally.changes.committed.len())?;
        for (text, count) in &self.tally.changes.not {
            writeln!(f, "    {text:<30} {count}")?;
        }
        writeln!(f, "    {:<30} {}", "lost", self.lost)?;
        writeln!(f, "{:<34} {faults}", "faults")?;
        for (fault, count) in &self.tally.faults {
            writeln!(f, "    {fault:<30} {count}")?;
        }
        for fault in self.tally.not_dealt() {
            writeln!(f, "    {fault:<30} never: the test had no opportunity")?;
        }
        writeln!(f, "{:<34} {}", "violations", self.violations.total())?;
        write!(f, "{}", self.violations)?;
        writeln!(f, "{:<34} {}", "all steps are done", if self.at_rest { "yes" } else { "no" })?;
        write!(f, "{:<30} {} s", "took", self.took.as_secs())
    }
}

struct Chaos {
    world: World,
    seeded: StdRng,
    tally: Tally,
    active_faults: Vec<ActiveFault>,
    /// Remaining faults of this round. Each kind occurs once before any kind recurs.
    ahead: Vec<Fault>,
    servers: watch::Sender<Vec<String>>,
}

/// Causes faults for this time, waits until everything settles, and runs the checker.
pub async fn chaos(seed: u64, lasts: Duration) -> Outcome {
    let begun = Instant::now();
    let mut chaos = Chaos::begin(seed).await;
    let (stop, stopped) = watch::channel(false);
    let changing = tokio::spawn(changing(Changing {
        seeded: StdRng::seed_from_u64(seed ^ 1),
        servers: chaos.servers.subscribe(),
        people: chaos.world.people.clone(),
        nodes: chaos.world.nodes.clone(),
        deployments: chaos.world.deployments.clone(),
        stopped,
    }));
    let end = Instant::now() + lasts;
    let at_last = end + ALL_KINDS;
    while Instant::now() < end || (Instant::now() < at_last && !chaos.tally.not_dealt().is_empty())
    {
        chaos.one_more().await;
    }
    let _ = stop.send(true);
    chaos.mend_all().await;
    chaos.tally.changes = changing.await.unwrap();
    let at_rest = chaos.rest().await;
    chaos.outcome(begun, at_rest).await
}

impl Chaos {
    async fn begin(seed: u64) -> Self {
        let mut world = World::of(NODES).await;
        world.nodes.iter().for_each(|node| namespace::small_disk(&node.root));
        watch_over(&world.admin).await;
        (0..SERVERS).for_each(|_| world.start_server());
        (0..WORKERS).for_each(|_| world.start_worker());
        let servers = watch::Sender::new(Vec::new());
        let chaos = Self {
            world,
            seeded: StdRng::seed_from_u64(seed),
            tally: Tally::default(),
            active_faults: Vec::new(),
            ahead: Vec::new(),
            servers,
        };
        chaos.tell_servers();
        chaos
    }

    fn tell_servers(&self) {
        let addresses = self.world.servers.iter().map(|server| server.address.clone()).collect();
        self.servers.send_replace(addresses);
    }

    /// Waits, ends faults that are due, then causes a fault. Sometimes retries steps in ERROR.
    async fn one_more(&mut self) {
        let due = Instant::now() + Duration::from_millis(self.seeded.random_range(300..3_500));
        if self.seeded.random_bool(0.25) {
            // A request that timed out may have been executed all the same.
            let _ = tokio::time::timeout_at(due.into(), self.retry_errors()).await;
        }
        while Instant::now() < due {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.repair_due(Instant::now()).await;
        }
        if self.ahead.is_empty() {
            self.ahead = Fault::ALL.to_vec();
            self.ahead.shuffle(&mut self.seeded);
        }
        let Some(fault) = self.ahead.pop() else { return };
        if self.break_by(fault).await {
            *self.tally.faults.entry(fault).or_default() += 1;
        } else {
            self.ahead.insert(0, fault);
        }
    }

    /// Returns false if the fault does not fit, because too many of its kind are in progress.
    async fn break_by(&mut self, fault: Fault) -> bool {
        let short = LEASE / 2 + Duration::from_millis(self.seeded.random_range(0..4_000));
        let long = LEASE + Duration::from_millis(self.seeded.random_range(1_000..6_000));
        let soon = Instant::now() + short;
        let later = Instant::now() + long;
        match fault {
            Fault::WorkerKilled | Fault::WrongClock => {
                let offset = [-3_600, 3_600][self.seeded.random_range(0..2)];
                let offset = if fault == Fault::WrongClock { offset } else { 0 };
                let Some(worker) = self.a_worker() else { return false };
                drop(worker);
                self.active_faults
                    .push(ActiveFault { until: soon, kind: FaultKind::NoWorker { offset } });
            }
            Fault::WorkerStopped => {
                let Some(worker) = self.a_worker() else { return false };
                worker.signal(Signal::SIGSTOP);
                self.active_faults
                    .push(ActiveFault { until: later, kind: FaultKind::Worker(worker) });
            }
            Fault::SameRun => return self.same_run().await,
            Fault::ServerKilled => return self.kill_server(soon),
            Fault::PostgresRestarted | Fault::PostgresGone => {
                if self.without_postgres() {
                    return false;
                }
                let gone = fault == Fault::PostgresGone;
                self.world.end_postgres(if gone { Signal::SIGQUIT } else { Signal::SIGINT });
                let until = if gone { later } else { Instant::now() };
                self.active_faults.push(ActiveFault { until, kind: FaultKind::NoPostgres });
            }
            Fault::NodeGone | Fault::NodeCrashed | Fault::OtherHostKey | Fault::DiskFull => {
                return self.break_node(fault, if fault == Fault::NodeGone { soon } else { later });
            }
            Fault::NotificationsLost => {
                let kind = FaultKind::NotificationBlock(self.world.block_notifications().await);
                self.active_faults.push(ActiveFault { until: later, kind });
            }
            Fault::RunCanceled => return self.cancel().await,
        }
        true
    }

    /// Picks a worker, unless it is the last one.
    fn a_worker(&mut self) -> Option<Worker> {
        if self.world.workers.len() < 2 {
            return None;
        }
        let place = self.seeded.random_range(0..self.world.workers.len());
        Some(self.world.workers.remove(place))
    }

    fn without_postgres(&self) -> bool {
        self.active_faults.iter().any(|fault| matches!(fault.kind, FaultKind::NoPostgres))
    }

    fn break_node(&mut self, fault: Fault, until: Instant) -> bool {
        let broken: BTreeSet<usize> =
            self.active_faults.iter().filter_map(|fault| fault.kind.node()).collect();
        let whole: Vec<usize> = (0..NODES).filter(|node| !broken.contains(node)).collect();
        if whole.len() <= NODES / 2 {
            return false;
        }
        let Some(node) = whole.choose(&mut self.seeded).copied() else { return false };
        let kind = match fault {
            Fault::OtherHostKey => {
                self.world.other_host_key(node, true);
                FaultKind::HostKey(node)
            }
            Fault::DiskFull => {
                self.world.fill_disk(node, true);
                FaultKind::Disk(node)
            }
            Fault::NodeCrashed => {
                self.world.crash(node);
                FaultKind::Node(node)
            }
            _ => {
                self.world.testbed.node(node).stop();
                FaultKind::Node(node)
            }
        };
        self.active_faults.push(ActiveFault { until, kind });
        true
    }

    fn kill_server(&mut self, until: Instant) -> bool {
        if self.world.servers.len() < 2 {
            return false;
        }
        let place = self.seeded.random_range(0..self.world.servers.len());
        self.world.servers.remove(place);
        self.tell_servers();
        self.active_faults.push(ActiveFault { until, kind: FaultKind::NoServer { place } });
        true
    }

    /// Queues a leased run again.
    async fn same_run(&mut self) -> bool {
        if self.without_postgres() {
            return false;
        }
        let doubled = sqlx::query(
            "UPDATE run SET state = 'queued', worker_id = NULL, started_at = NULL
             WHERE id = (SELECT id FROM run WHERE state = 'running' ORDER BY id DESC LIMIT 1) AND
             state = 'running'",
        );
        let doubled = doubled.execute(&self.world.admin).await;
        doubled.is_ok_and(|done| done.rows_affected() > 0)
    }

    async fn cancel(&mut self) -> bool {
        let Some(server) = self.world.servers.first() else { return false };
        let ada = Client { server: server.address.clone(), cookie: self.world.people[0].clone() };
        let Ok(runs) = ada.get("/runs?state=running").await else { return false };
        let Some(run) = runs["runs"][0]["id"].as_i64() else { return false };
        ada.post(&format!("/runs/{run}/cancel"), json!({})).await.is_ok()
    }

    async fn mend_all(&mut self) {
        self.repair_due(Instant::now() + Duration::from_secs(3_600)).await;
    }

    async fn repair_due(&mut self, now: Instant) {
        let (due, left): (Vec<ActiveFault>, _) = std::mem::take(&mut self.active_faults)
            .into_iter()
            .partition(|fault| fault.until <= now);
        self.active_faults = left;
        // PostgreSQL first, because other processes need it to start.
        let (first, then): (Vec<ActiveFault>, Vec<ActiveFault>) =
            due.into_iter().partition(|b| matches!(b.kind, FaultKind::NoPostgres));
        for ActiveFault { kind, .. } in first.into_iter().chain(then) {
            self.mend_one(kind).await;
        }
    }

    async fn mend_one(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Worker(worker) => {
                worker.signal(Signal::SIGCONT);
                self.world.workers.push(worker);
            }
            FaultKind::NoWorker { offset } => self.world.start_worker_at(offset),
            FaultKind::NoServer { place } => {
                if !self.world.try_server() {
                    let until = Instant::now() + Duration::from_secs(1);
                    self.active_faults
                        .push(ActiveFault { until, kind: FaultKind::NoServer { place } });
                    return;
                }
                let last = self.world.servers.len() - 1;
                self.world.servers.swap(place.min(last), last);
                self.tell_servers();
            }
            FaultKind::NoPostgres => {
                self.world.postgres.ensure_running().await.unwrap();
            }
            FaultKind::Node(node) => self.world.testbed.node(node).restart().unwrap(),
            FaultKind::HostKey(node) => self.world.other_host_key(node, false),
            FaultKind::Disk(node) => self.world.fill_disk(node, false),
            FaultKind::NotificationBlock(deaf) => {
                deaf.stop().await;
            }
        }
    }

    /// Waits until nothing changes any more. Retries steps in ERROR, as a person would. Returns
    /// false if it does not settle.
    async fn rest(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            let steps = steps(&self.world.admin).await.unwrap_or_default();
            if !steps.is_empty() && steps.iter().all(|step| step.state == "active") {
                return true;
            }
            if begun.elapsed() > REST {
                return false;
            }
            self.retry_errors().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn retry_errors(&self) {
        let failed: Result<Vec<String>, _> = sqlx::query_scalar(
            "SELECT noderole_id::text FROM step WHERE state = 'error' AND error <> ''",
        )
        .fetch_all(&self.world.admin)
        .await;
        for noderole in failed.unwrap_or_default() {
            let path = format!("/noderoles/{noderole}/retry");
            // Refused if the step's state has changed.
            let _ = self.world.ada().post(&path, json!({"reason": "the fault is mended"})).await;
        }
    }

    async fn outcome(self, begun: Instant, at_rest: bool) -> Outcome {
        let evidence = gather(&self.world).await;
        let violations = judge(&evidence);
        let begun_of = |line: &Line| matches!(line, Line::Start { role, .. } if role == "wipe");
        let outcomes = sqlx::query_as(
            "SELECT coalesce(outcome, state), count(*) FROM run GROUP BY 1 ORDER BY 2 DESC",
        );
        for line in self.world.errors() {
            println!("{line}");
        }
        let answered = &self.tally.changes.committed;
        let stored: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM blueprint WHERE number = ANY($1) AND kind = 'change'",
        )
        .bind(answered)
        .fetch_one(&self.world.admin)
        .await
        .unwrap();
        let lost = answered.len() - usize::try_from(stored).unwrap();
        if violations.total() > 0 || !at_rest {
            eprintln!("{}\n{}", self.world.picture().await, self.world.logs());
        }
        Outcome {
            runs: self.world.count("run").await,
            outcomes: outcomes.fetch_all(&self.world.admin).await.unwrap(),
            steps: self.world.count("step").await,
            between: evidence.edges.iter().filter(|edge| edge.node != edge.parent_node).count(),
            destroyed: evidence.journals.values().flatten().filter(|line| begun_of(line)).count(),
            lost,
            at_rest,
            tally: self.tally,
            violations,
            took: begun.elapsed(),
        }
    }
}

impl FaultKind {
    fn node(&self) -> Option<usize> {
        match self {
            Self::Node(node) | Self::HostKey(node) | Self::Disk(node) => Some(*node),
            _ => None,
        }
    }
}

/// Two people who keep changing the desired state, via any server that answers.
struct Changing {
    seeded: StdRng,
    servers: watch::Receiver<Vec<String>>,
    people: [String; 2],
    nodes: Vec<Machine>,
    deployments: BTreeMap<&'static str, String>,
    stopped: watch::Receiver<bool>,
}

/// Runs until it is stopped.
async fn changing(mut changing: Changing) -> Changes {
    let mut changes = Changes::default();
    let mut bound = BTreeSet::new();
    let mut numbers = 0;
    while !*changing.stopped.borrow() {
        numbers += 1;
        let deployment = *DEPLOYMENTS.choose(&mut changing.seeded).unwrap();
        let (edits, binds, touched) = changing.edits(deployment, &bound, numbers);
        match changing.change(deployment, edits).await {
            Ok(target) => {
                changes.committed.push(target);
                bound.extend(binds);
            }
            Err(failure) => {
                // If a commit's response was lost, the next error shows whether it was committed.
                if matches!(failure, RequestFailure::Refused(422, _)) {
                    bound.extend(binds);
                    bound.retain(|it| !touched.contains(it));
                }
                changes.errors += usize::from(matches!(failure, RequestFailure::Refused(500, _)));
                let text = match failure {
                    RequestFailure::NoResponse(_) => "without an answer".to_owned(),
                    refused => refused.to_string(),
                };
                *changes.not.entry(text).or_default() += 1;
            }
        }
        let pause = Duration::from_millis(changing.seeded.random_range(100..1_500));
        tokio::time::sleep(pause).await;
    }
    changes
}

type Bound = BTreeSet<(usize, &'static str)>;

impl Changing {
    /// One to three edits of a deployment that bind roles or re-run steps.
    fn edits(
        &mut self,
        deployment: &str,
        bound: &Bound,
        number: u32,
    ) -> (Vec<Value>, Bound, Bound) {
        let (mut binds, mut changes) = (Vec::new(), Vec::new());
        let (mut bind, mut touched) = (BTreeSet::new(), BTreeSet::new());
        let nodes: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].deployment == deployment).collect();
        for _ in 0..self.seeded.random_range(1..=3) {
            let node = *nodes.choose(&mut self.seeded).unwrap();
            let role = *BOUND.choose(&mut self.seeded).unwrap();
            let id = &self.nodes[node].id;
            if !bound.contains(&(node, role)) {
                let deployment = &self.deployments[deployment];
                if bind.insert((node, role)) {
                    binds.push(
                        json!({"edit": "bind", "deployment": deployment, "node": id, "role": role}),
                    );
                }
                continue;
            }
            touched.insert((node, role));
            // Roles closer to the root re-run more steps.
            let role = if self.seeded.random_bool(0.3) { "base" } else { role };
            // Changed data alone must not repeat a destructive step: lint requires a reason.
            changes.push(if role != "wipe" && self.seeded.random_bool(0.5) {
                let data = json!({role: {"n": number}});
                json!({"edit": "set_noderole_data", "node": id, "noderole": role, "data": data})
            } else {
                json!({"edit": "rerun", "node": id, "noderole": role, "reason": "once more"})
            });
        }
        if binds.is_empty() { (changes, bind, touched) } else { (binds, bind, BTreeSet::new()) }
    }

    async fn change(&mut self, deployment: &str, edits: Vec<Value>) -> Result<i64, RequestFailure> {
        let servers = self.servers.borrow().clone();
        let Some(server) = servers.choose(&mut self.seeded).cloned() else {
            return Err(RequestFailure::NoResponse("no server".to_owned()));
        };
        let [ada, bo] = self.people.clone().map(|cookie| Client { server: server.clone(), cookie });
        let review = approved(&ada, &bo, deployment, edits).await?;
        commit_named(&ada, review, deployment).await
    }
}

fn run(seed: u64, lasts: Duration) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = runtime.block_on(chaos(seed, lasts));
    println!("{outcome}");
    outcome
}

fn repeated(seed: u64, minutes: f64) -> String {
    format!("the same faults again: make chaos SEED={seed} MINUTES={minutes}")
}

/// The short version, in every test run.
#[test]
fn one_minute_of_chaos_violates_nothing() {
    const SEED: u64 = 4;
    if !namespace::entered("chaos::one_minute_of_chaos_violates_nothing", Room::best()) {
        return;
    }
    let outcome = run(SEED, Duration::from_secs(45));
    assert!(outcome.runs > 0 && outcome.tally.not_dealt().is_empty(), "{outcome}");
    assert!(outcome.is_good(), "{outcome}\n{}", repeated(SEED, 1.0));
}

/// `make chaos`.
#[test]
#[ignore = "runs as long as requested: make chaos SEED=1 MINUTES=10"]
fn chaos_of_a_seed() {
    let number = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let seed = number("SEED")
        .map_or_else(rand::random::<u32>, |text| text.parse().expect("SEED is a number"));
    let minutes: f64 =
        number("MINUTES").map_or(10.0, |text| text.parse().expect("MINUTES is a number"));
    // The process inside the namespace has the same seed, so print it only once.
    if !namespace::is_inside() {
        println!("SEED={seed} MINUTES={minutes}");
        let ended =
            namespace::enter("chaos::chaos_of_a_seed", Room::best(), &[("SEED", seed.to_string())]);
        assert!(ended, "{}", repeated(seed.into(), minutes));
        return;
    }
    let outcome = run(seed.into(), Duration::from_secs_f64(minutes * 60.0));
    println!("{}", repeated(seed.into(), minutes));
    assert!(outcome.is_good(), "{}", repeated(seed.into(), minutes));
}
