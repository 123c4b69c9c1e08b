//! The overview, workers, audit and search pages.

use api::JoinPhase;
use api::audit::{AuditEntry, AuditPage, AuditQuery, ChainQuery, ChainView};
use api::background_tasks::{
    BackgroundTaskView, BackgroundTasks, BackgroundTasksQuery, ProcessKind, ProcessView,
};
use api::listing::{Cursor, Order};
use api::overview::{
    DeploymentTally, FirstSteps, Hour, NodeTally, Overview, QueueTally, WorkerTally,
};
use api::reviews::ReviewCount;
use api::runs::{RunState, StateCounts};
use api::search::{Hit, HitKind, SearchQuery, SearchResults};
use api::workers::WorkerSort;
use api::workers::{Drain, WorkerPage, WorkerView, WorkersQuery};
use api::{Allowed, At, Problem};
use engine::Hash;
use engine::audit::Chain;
use engine::ids::{BarclampName, BlueprintNumber, PersonId, ReviewId, RunId};
use serde_json::json;
use uuid::Uuid;

use super::fake::{Actor, Fake, deployment, fqdn, node, role};
use super::serve::{get, get_with, post};

/// The data that the fake returns. Tests change it before they load a page.
#[derive(Clone)]
pub struct MonitoringData {
    pub overview: Overview,
    pub workers: Vec<WorkerView>,
    pub tasks: BackgroundTasks,
    pub entries: Vec<AuditEntry>,
    pub chain: ChainView,
    pub found: SearchResults,
    /// The error of the audit, if set.
    pub refused: Option<Problem>,
}

fn worker(n: u128, phase: JoinPhase, alive: bool) -> WorkerView {
    WorkerView {
        id: Uuid::from_u128(n),
        name: format!("w-{n}"),
        phase,
        alive,
        capacity: 4,
        drain: None,
        may_drain: if alive { Allowed::Yes } else { Allowed::no("The worker has ended.") },
        leased: if alive { 22 } else { 0 },
        runs: if alive { vec![RunId(1006), RunId(1005)] } else { Vec::new() },
        jigs: vec!["noop".into(), "script".into()],
        host: "h1".into(),
        pid: Some(4242),
        version: "0.1.0".into(),
        started: At(1_795_248_902_000),
        last_heartbeat: At(1_795_248_962_000),
        lease_until: At(1_795_248_992_000),
        reason: (phase == JoinPhase::None).then(|| "told to stop".into()),
    }
}

fn task(kind: ProcessKind, n: u128, name: &str) -> BackgroundTaskView {
    BackgroundTaskView {
        name: name.into(),
        purpose: format!("Does the work of {name}."),
        process: ProcessView {
            id: Uuid::from_u128(n),
            kind,
            name: format!("{}-{n}", kind.as_str()),
        },
        period_ms: 20_000,
        running: false,
        started: Some(At(1_795_248_962_000)),
        ended: Some(At(1_795_248_962_480)),
        duration_ms: Some(480),
        outcome: Some("Nothing to do.".into()),
        error: None,
        failures: 0,
        next: Some(At(1_795_248_982_000)),
    }
}

impl Default for MonitoringData {
    fn default() -> Self {
        let entry = |id, name: Option<&str>, action: &str, detail| AuditEntry {
            id,
            at: At(1_795_248_902_000),
            actor: name.map(|_| PersonId(Uuid::from_u128(1))),
            name: name.map(str::to_owned),
            action: action.into(),
            subject: "128".into(),
            detail,
            source: api::audit::AuditSource::Application,
            sealed: (id < 2).then_some(id),
        };
        let hash = Hash::of_bytes(b"the end");
        Self {
            overview: Overview {
                blueprint: BlueprintNumber(127),
                enabled: true,
                deployments: DeploymentTally { all: 3, on_hold: 1, proposed: 1 },
                nodes: NodeTally { all: 7, dead: 1, maintenance: 2 },
                steps: StateCounts {
                    blocked: 41,
                    todo: 5,
                    transition: 3,
                    active: 1800,
                    error: 1,
                    stale: 2,
                    unchecked: 0,
                },
                stuck: Vec::new(),
                reviews: ReviewCount { count: 2, more: false },
                open_reviews: 4,
                rollouts: Vec::new(),
                commits: Vec::new(),
                queue: QueueTally { queued: 6, running: 3, oldest: Some(At(1_795_248_902_000)) },
                workers: WorkerTally { alive: 2, capacity: 8 },
                hours: (0..24)
                    .map(|n| Hour { from: At(n * 3_600_000), runs: n, failed: i64::from(n == 7) })
                    .collect(),
                first_steps: None,
            },
            workers: vec![
                worker(7, JoinPhase::Confirmed, true),
                worker(8, JoinPhase::Confirmed, false),
                worker(9, JoinPhase::None, false),
            ],
            tasks: BackgroundTasks {
                background_tasks: vec![
                    BackgroundTaskView {
                        outcome: None,
                        error: Some("Cannot seal the audit.".into()),
                        failures: 3,
                        ..task(ProcessKind::Worker, 9, "seal-audit")
                    },
                    task(ProcessKind::Server, 3, "replan-reviews"),
                ],
                more: false,
            },
            entries: vec![
                entry(2, Some("ada"), "review.commit", json!({"reason": "<fine>"})),
                entry(1, None, "genesis", json!({})),
            ],
            chain: ChainView {
                chain: Chain { last: 10_000, hash, ..Chain::default() },
                broken: None,
                next: Some(10_000),
                end: 12_345,
                hash,
                unsealed: 2,
            },
            found: SearchResults {
                hits: vec![
                    Hit::Deployment { id: super::fake::deployment_id(1), name: deployment("web") },
                    Hit::Node { id: node(1), fqdn: fqdn(1), deployment: deployment("web") },
                    Hit::Role {
                        role: role("app"),
                        barclamp: BarclampName::parse("installation").expect("a name"),
                    },
                    Hit::Run {
                        id: RunId(1006),
                        role: role("app"),
                        fqdn: fqdn(2),
                        state: RunState::Running,
                    },
                    Hit::Review {
                        id: ReviewId(128),
                        title: "More <web>".into(),
                        deployment: "web".into(),
                    },
                    Hit::Person {
                        id: PersonId(Uuid::from_u128(1)),
                        name: "webster".into(),
                        service: false,
                    },
                ],
                more: vec![HitKind::Node],
            },
            refused: None,
        }
    }
}

impl MonitoringData {
    fn unless_refused<T>(&self, reported: T) -> Result<T, Problem> {
        self.refused.clone().map_or(Ok(reported), Err)
    }
}

impl Fake {
    pub async fn overview(&self, _: &Actor) -> Result<Overview, Problem> {
        self.read(|world| Overview {
            stuck: world.waits.clone(),
            commits: world.targets.blueprints.clone(),
            ..world.monitoring.overview.clone()
        })
    }

    pub async fn workers(&self, _: &Actor, query: &WorkersQuery) -> Result<WorkerPage, Problem> {
        self.record(format!("workers {}", serde_json::to_string(&query).expect("JSON")));
        self.read(|world| WorkerPage {
            workers: world.monitoring.workers.clone(),
            next: world.long.then(|| Cursor::from("name~-w-9".to_owned())),
        })
    }

    pub async fn drain(
        &self,
        _: &Actor,
        worker: &str,
        drain: bool,
        reason: String,
    ) -> Result<(), Problem> {
        self.record(format!("drain {worker} {drain} {reason}"));
        Ok(())
    }
    pub async fn worker(&self, _: &Actor, id: Uuid) -> Result<WorkerView, Problem> {
        let found = self.read(|world| {
            world.monitoring.workers.iter().find(|worker| worker.id == id).cloned()
        })?;
        found.ok_or_else(|| Problem::not_found("This worker does not exist."))
    }

    pub async fn background_tasks(
        &self,
        _: &Actor,
        _: &BackgroundTasksQuery,
    ) -> Result<BackgroundTasks, Problem> {
        self.read(|world| world.monitoring.tasks.clone())
    }

    pub async fn audit(&self, _: &Actor, query: &AuditQuery) -> Result<AuditPage, Problem> {
        self.record(format!("audit {}", serde_json::to_string(&query).expect("JSON")));
        self.read(|world| {
            let entries = world.monitoring.entries.clone();
            world.monitoring.unless_refused(AuditPage {
                entries,
                next: world.long.then(|| Cursor::from("1".to_owned())),
            })
        })?
    }

    pub async fn audit_chain(&self, _: &Actor, query: ChainQuery) -> Result<ChainView, Problem> {
        self.record(format!("chain {}", query.after));
        self.read(|world| world.monitoring.unless_refused(world.monitoring.chain.clone()))?
    }

    pub async fn search(&self, _: &Actor, query: &SearchQuery) -> Result<SearchResults, Problem> {
        self.record(format!("search {}", query.q));
        self.read(|world| world.monitoring.found.clone())
    }
}

fn recorded(fake: &Fake) -> Vec<String> {
    fake.0.lock().expect("an unpoisoned lock").calls.clone()
}

#[tokio::test]
async fn workers_page_shows_background_tasks() {
    let page = get(&Fake::new(|_| {}), "/workers").await;
    let failing = page.body.find("seal-audit").expect("the failing task");
    assert!(failing < page.body.find("replan-reviews").expect("the other task"));
    page.assert_contains(&[
        "Background tasks",
        "Does the work of seal-audit.",
        "failed 3 times",
        "Cannot seal the audit.",
        "data-label=\"Every\"",
        "20 s",
        "480 ms",
        "Nothing to do.",
        "href=\"/workers/00000000-0000-0000-0000-000000000009\">worker-9",
        "gantry background-task list",
        "/api/v1/background-tasks",
    ]);
    page.assert_lacks(&["More tasks exist"]);
    let more = Fake::new(|world| world.monitoring.tasks.more = true);
    get(&more, "/workers")
        .await
        .assert_contains(&["More tasks exist. Failing tasks are listed first."]);
    let none = Fake::new(|world| world.monitoring.tasks = BackgroundTasks::default());
    get(&none, "/workers").await.assert_contains(&["No background tasks yet."]);
}

#[tokio::test]
async fn overview_shows_health_and_links() {
    let page = get(&Fake::new(|_| {}), "/").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Overview · Gantry</title>",
        "1 step failed, 2 steps have changed input, 1 node is dead, 1 deployment is on hold",
        "href=\"/pending?reason=failed\" data-state=\"error\"",
        "href=\"/runs?state=running\" data-state=\"transition\"",
        "href=\"/deployments\" data-state=\"active\"",
        ">1800<",
        "href=\"/pending?reason=dependency_failed\"",
        "10000+",
        "href=\"/reviews?involvement=for_me\"",
        "href=\"/deployments?state=proposed\"",
        "href=\"/deployments?state=on_hold\"",
        "href=\"/nodes?state=dead\"",
        "href=\"/nodes?state=maintenance\"",
        "href=\"/reviews/128\"",
        "Three more application nodes",
        "href=\"/workers?alive=true\"",
        "href=\"/runs?state=queued\"",
        "the oldest for",
        "276 runs in the last 24 hours, 1 failed or lost. Most per hour: 23",
        "class=\"failed\"",
    ]);
    page.assert_lacks(&["no problems", "Get started", "First steps", "style=\""]);
}

#[tokio::test]
async fn new_installation_overview_shows_first_actions() {
    let fake = Fake::new(|world| {
        let overview = &mut world.monitoring.overview;
        overview.nodes = NodeTally::default();
        overview.steps = StateCounts::default();
        overview.hours.clear();
        world.waits.clear();
    });
    let page = get(&fake, "/").await;
    page.assert_contains(&[
        "Get started",
        "Add a node",
        "Import a barclamp",
        "Propose a change",
        "No pending steps",
    ]);
    page.assert_lacks(&["<rect"]);
}

#[tokio::test]
async fn first_steps_follow_events_and_can_be_hidden() {
    let with = |steps: FirstSteps| {
        Fake::new(move |world| world.monitoring.overview.first_steps = Some(steps))
    };
    let some = FirstSteps {
        edited: true,
        submitted: true,
        deployment: Some(deployment("web")),
        review: Some(ReviewId(128)),
        ..FirstSteps::default()
    };
    let page = get(&with(some.clone()), "/").await;
    page.assert_contains(&[
        "First steps",
        "2 of 5 done",
        "Drag a node onto a role",
        "Check what Gantry adds",
        "the page explains why you cannot",
        "Watch the run, break it and retry it",
        "Hide first steps",
        "action=\"/call/hide-first-steps\"",
    ]);
    let next = page
        .body
        .split("<li")
        .find(|line| line.contains("aria-current=\"step\""))
        .expect("the next step");
    assert!(
        next.contains("href=\"/reviews/128\"") && next.contains("Get or give an approval"),
        "{next}"
    );

    let hidden = get_with(&with(some), "/", &[("cookie", "gantry_first_steps=hidden")]).await;
    hidden.assert_contains(&["Show first steps", "name=\"show\" value=\"true\""]);
    hidden.assert_lacks(&["2 of 5 done"]);
    let put = post(&with(FirstSteps::default()), "/call/hide-first-steps", "").await;
    assert_eq!((put.status, put.location.as_deref()), (302, Some("/")));

    let done = FirstSteps {
        edited: true,
        submitted: true,
        reviewed: true,
        committed: true,
        run_ended: true,
        retried: true,
        ..FirstSteps::default()
    };
    get(&with(done), "/").await.assert_lacks(&["irst steps"]);
}

#[tokio::test]
async fn worker_list_matches_its_address() {
    let fake = Fake::new(|world| world.long = true);
    let page = get(&fake, "/workers?filter=w&alive=true&phase=confirmed&sort=name").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Workers · Gantry</title>",
        "href=\"/workers/00000000-0000-0000-0000-000000000007\"",
        "22 of 4",
        "href=\"/runs/1006\"",
        "and 20 more",
        "noop, script",
        "no contact",
        "left",
        "value=\"name\" selected",
        "/workers?filter=w&amp;alive=true&amp;phase=confirmed&amp;sort=name&amp;before=name~-w-9",
    ]);
    let query = WorkersQuery {
        alive: Some(true),
        draining: None,
        phase: Some(JoinPhase::Confirmed),
        filter: "w".into(),
        sort: Order::ascending(WorkerSort::Name),
        limit: None,
        before: None,
    };
    assert!(
        recorded(&fake)
            .contains(&format!("workers {}", serde_json::to_string(&query).expect("JSON"))),
        "{:?}",
        recorded(&fake)
    );

    let none = |world: &mut super::fake::World| world.monitoring.workers.clear();
    get(&Fake::new(none), "/workers").await.assert_contains(&["No workers yet", "gantry worker"]);
    get(&Fake::new(none), "/workers?phase=nack")
        .await
        .assert_contains(&["No worker matches", "join phase is “nack”"]);
}

#[tokio::test]
async fn draining_worker_is_shown_and_can_resume() {
    let path = "/workers/00000000-0000-0000-0000-000000000007";
    let id = "00000000-0000-0000-0000-000000000007";
    let page = get(&Fake::new(|_| {}), path).await;
    page.assert_contains(&[
        "Drain worker",
        "Reason for the drain",
        "gantry worker drain",
        "/drain\"",
    ]);
    page.assert_lacks(&["draining", "Resume worker"]);
    let draining = |drained: bool| {
        Fake::new(move |world| {
            let worker = &mut world.monitoring.workers[0];
            worker.leased = if drained { 0 } else { 22 };
            worker.drain = Some(Drain {
                by: "ada".into(),
                since: At(1_795_248_962_000),
                reason: "a new <kernel>".into(),
                drained,
            });
        })
    };
    let page = get(&draining(false), path).await;
    page.assert_contains(&[
        "draining, 22 runs",
        "Draining, set by ada: a new &lt;kernel&gt;. It finishes 22 runs and takes no further \
         ones.",
        "Resume worker",
        &format!("gantry worker resume {id} --reason WHY"),
    ]);
    get(&draining(false), "/workers").await.assert_contains(&["draining, 22 runs"]);
    let page = get(&draining(true), path).await;
    page.assert_contains(&["drained", "It has no runs left, so you can stop it."]);
    get(&draining(true), "/workers").await.assert_contains(&["drained"]);
    // A worker that has ended has no form.
    let ended = get(&Fake::new(|_| {}), "/workers/00000000-0000-0000-0000-000000000009").await;
    ended.assert_contains(&["The worker has ended."]);
    ended.assert_lacks(&["Drain worker"]);

    let fake = Fake::new(|_| {});
    let form = format!("worker={id}&drain=true&reason=a+new+kernel");
    assert_eq!(post(&fake, "/call/drain-worker", &form).await.status, 302);
    assert_eq!(recorded(&fake), [format!("drain {id} true a new kernel")]);
}

#[tokio::test]
async fn worker_page_shows_worker() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/workers/00000000-0000-0000-0000-000000000009").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&["Worker w-9", "told to stop", "4242", "left"]);
    for missing in ["/workers/x", "/workers/00000000-0000-0000-0000-000000000001"] {
        let page = get(&fake, missing).await;
        assert_eq!(page.status, 404, "{missing}");
    }
}

#[tokio::test]
async fn audit_filters_by_address_and_expands_entries() {
    let fake = Fake::new(|world| world.long = true);
    let page = get(&fake, "/audit?actor=ada&action=review.commit&since=2026-11-21T08:15:02").await;
    assert_eq!(page.status, 200);
    page.assert_contains(&[
        "<title>Audit · Gantry</title>",
        "<details",
        "&lt;fine&gt;",
        "not yet",
        "the application",
        "value=\"ada\"",
        "value=\"2026-11-21T08:15:02\"",
        "href=\"/audit?actor=gantry&amp;action=review.commit&amp;since=2026-11-21T08%3A15%3A02\"",
        "href=\"/audit?actor=ada&amp;action=review.commit&amp;since=2026-11-21T08%3A15%3A02&amp;before=1\"",
        "href=\"/api/v1/audit/export\"",
        "gantry audit verify",
        "&amp;check=0\"",
    ]);
    page.assert_lacks(&["The chain is valid", "any</option>"]);
    assert!(
        recorded(&fake).iter().any(|text| text.contains("\"since\":\"2026-11-21T08:15:02.000Z\"")),
        "{:?}",
        recorded(&fake)
    );

    let wrong = get(&fake, "/audit?since=yesterday&actor=ada").await;
    assert_eq!(wrong.status, 400);
    wrong.assert_contains(&[
        "is not a date",
        "id=\"audit-actor\"",
        "value=\"ada\"",
        "Clear filter",
    ]);
    let none = Fake::new(|world| world.monitoring.entries.clear());
    get(&none, "/audit?actor=bo").await.assert_contains(&[
        "No entry matches",
        "Show all ",
        "actor is “bo”",
    ]);
    get(&none, "/audit").await.assert_contains(&["No entries yet"]);
}

#[tokio::test]
async fn audit_chain_is_verified_in_parts() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/audit?check=0").await;
    let hash = Hash::of_bytes(b"the end");
    page.assert_contains(&[
        "The chain is valid up to entry 10000 of 12345",
        "Verify up to ",
        &format!("/audit?check=10000&amp;link={hash}"),
        "not sealed yet",
    ]);
    assert!(recorded(&fake).contains(&"chain 0".to_owned()));

    let other = get(&fake, "/audit?check=10000&link=0000").await;
    other.assert_contains(&[
        "The chain is broken",
        "differs from the last link of the part before it",
    ]);
    let broken = Fake::new(|world| {
        let chain = &mut world.monitoring.chain;
        (chain.broken, chain.next) = (Some("entry 10001 is missing".into()), None);
    });
    get(&broken, "/audit?check=0")
        .await
        .assert_contains(&["The chain is broken", "entry 10001 is missing"]);
    let whole = Fake::new(|world| world.monitoring.chain.next = None);
    get(&whole, "/audit?check=0")
        .await
        .assert_contains(&["The chain is valid up to its end at entry 12345", &hash.to_string()]);
}

#[tokio::test]
async fn audit_refusal_names_permission_and_admins() {
    let text =
        "ada has none of the permissions operator, reviewer, admin; an admin can give one: root.";
    let fake = Fake::new(|world| world.monitoring.refused = Some(Problem::forbidden(text)));
    let page = get(&fake, "/audit").await;
    assert_eq!(page.status, 403);
    page.assert_contains(&["data-status=\"403\"", "Not allowed", text]);
    page.assert_lacks(&["Verify the chain", "Export sealed entries"]);
}

#[tokio::test]
async fn search_groups_hits_by_kind() {
    let fake = Fake::new(|_| {});
    let page = get(&fake, "/search?q=work").await;
    assert_eq!(page.status, 200);
    let webster = "href=\"/settings/people/webster\"";
    page.assert_contains(&[
        "<title>Search · Gantry</title>",
        "value=\"work\"",
        "href=\"/deployments/web\"",
        &format!("href=\"/nodes/{}\"", fqdn(1)),
        "href=\"/catalog/roles/app?barclamp=installation\"",
        "href=\"/runs/1006\"",
        "href=\"/reviews/128\"",
        "More &lt;web&gt;",
        webster,
        "There are more",
        ">Pages<",
    ]);
    page.assert_lacks(&["Propose changes on web"]);
    assert!(recorded(&fake).contains(&"search work".to_owned()));

    let asked_nothing = Fake::new(|_| {});
    get(&asked_nothing, "/search").await.assert_contains(&["aria-label=\"Pages\"", "Blueprints"]);
    assert!(!recorded(&asked_nothing).iter().any(|text| text.starts_with("search")));
    let none = Fake::new(|world| world.monitoring.found = SearchResults::default());
    get(&none, "/search?q=zzz").await.assert_contains(&["No results"]);
    let same = get(&Fake::new(|_| {}), "/search?q=it's").await;
    same.assert_contains(&["gantry search 'it'", "/api/v1/search?q=it%27s"]);
    let away = Fake::new(|world| {
        world.problem = Some(Problem::unavailable("The database does not answer."))
    });
    let away = get(&away, "/search?q=web").await;
    assert_eq!((away.status, away.body.matches("<h1").count()), (503, 1));
    away.assert_contains(&["value=\"web\"", "New search"]);
}

#[tokio::test]
async fn palette_is_a_link_without_javascript() {
    let page = get(&Fake::new(|_| {}), "/nodes").await;
    page.assert_contains(&[
        "href=\"/search\"",
        "aria-keyshortcuts=\"Control+K Meta+K\"",
        "role=\"combobox\"",
        "aria-controls=\"palette-list\"",
        "aria-activedescendant",
        "id=\"palette-list\" role=\"listbox\"",
    ]);
    // The list is created when the palette opens, so that a closed one adds nothing to each page.
    page.assert_lacks(&["id=\"palette-0\"", "Theme: dark"]);
}
