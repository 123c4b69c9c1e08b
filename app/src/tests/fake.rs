//! Fixtures, and a fake of [`control`] that returns them: a small cluster with an example of
//! everything.
//!
//! It contains no logic of the real use cases. It returns the data that a test sets, so that tests
//! can render states that are hard to produce.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use api::JoinPhase;
use api::blueprints::BlueprintsQuery;
use api::blueprints::*;
use api::catalog::BarclampsQuery;
use api::catalog::*;
use api::catalog::{
    Findings, ImportPage, ImportReport, ImportedVersion, ImportsQuery, MAX_GRAPH_ROLES,
    ResolvedName, RoleEdge, RoleEdgeReason, RoleGraph, RoleGraphQuery, RolePage, RoleQuery,
    RoleSummary, RoleUse, RoleVersion, RoleVertex, RoleView, RolesQuery,
};
use api::deployments::DeploymentsQuery;
use api::deployments::*;
use api::listing::Cursor;
use api::nodes::NodesQuery;
use api::nodes::*;
use api::nodes::{
    AddedNodes, CreatedNodeToken, FactSource, HealthCheckPage, HealthCheckView, HealthChecksQuery,
    NodeChange, NodeConnection, NodeFacts, NodeNoderole, NodeNoderolePage, NodeNoderolesQuery,
    NodeStatus, NodeToken, NodeView, ReportView, SshView, TriedAddress,
};
use api::overview::PolicyView;
use api::pending::{PendingGroup, PendingPage, PendingQuery, PendingStep, Resolver};
use api::people::{Signature, SignatureRequest};
use api::proposals::*;
use api::reviews::*;
use api::reviews::{ReviewCount, ReviewPage, ReviewStateFilter, ReviewsQuery};
use api::runs::RunsQuery;
use api::runs::*;
use api::values::Provenance;
use api::values::{
    ResultLine, ResultPage, ResultsQuery, SetBy, ValueLayer, ValuePage, ValueView, ValuesQuery,
    ValuesView,
};
use api::views::board::*;
use api::views::frame::*;
use api::views::graph::*;
use api::views::node_proposal::*;
use api::{Allowed, At, Problem};
use control::people::Permission;
use control::{CommitInput, Imported, MissingVertex};
use engine::anneal::PendingReason;
use engine::blueprint::Anchor;
use engine::blueprint::difference::{
    DeploymentDifference, Difference, Mark, NodeDifference, NoderoleDifference, RoleDifference,
    Sides,
};
use engine::blueprint::impact::{
    Counted, Downstream, Impact, Loss, NoderoleRerun, Touched, Wave, WaveDependency, WaveGroup,
};
use engine::blueprint::projection::RerunCause;
use engine::blueprint::secret_uses::{SecretChange, SecretKind, SecretUseChange};
use engine::catalog::OnInput;
use engine::cluster::{EdgeKind, NoderoleKey};
use engine::data::secret::SecretRef;
use engine::data::{Change, ChangeKind};
use engine::gate::{GateResult, Policy, Risk, Rule, RuleResult, VerdictKind};
use engine::ids::*;
use engine::plan::drop_preview::{AddedRole, DropPreview, IllegalNode, RoleDropPreview};
use engine::plan::{Edit, Refusal, edit};
use passkeys::RelyingParty;
use serde_json::{Value, json};
use uuid::Uuid;

/// 2026-11-21 08:15:02 UTC.
pub const NOW: At = At(1_795_248_902_000);

fn ago(seconds: i64) -> At {
    At(now().0 - seconds * 1000)
}

fn now() -> At {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    At(i64::try_from(since.as_millis()).expect("a time in range"))
}

pub fn role(name: &str) -> RoleName {
    RoleName::parse(name).expect("a role's name")
}

pub fn deployment(name: &str) -> DeploymentName {
    DeploymentName::parse(name).expect("a deployment's name")
}

pub fn deployment_id(n: u128) -> DeploymentId {
    DeploymentId(Uuid::from_u128(0x1000 + n))
}

pub fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(0x2000 + n))
}

pub fn noderole(n: u128, name: &str) -> NoderoleId {
    NoderoleId::of(node(n), &role(name), 0)
}

pub fn fqdn(n: u128) -> String {
    format!("web-{n}.rack1.example.com")
}

/// The data that the fake returns. Tests change it before they load a page.
#[derive(Clone)]
pub struct World {
    pub signed_in: bool,
    pub permissions: Vec<String>,
    pub board: Board,
    pub drop_preview: DropPreview,
    pub reviews: Vec<ReviewSummary>,
    pub proposals: Vec<ProposalSummary>,
    /// Whether lists have a next page.
    pub long: bool,
    pub waiting: ReviewCount,
    pub waits: Vec<PendingGroup>,
    pub review: ReviewView,
    pub graph: GraphView,
    pub discussion: Discussion,
    pub since: ChangesSinceView,
    pub targets: BlueprintPage,
    pub comparison: Comparison,
    /// The rollout of every blueprint. `None`: one that is in progress.
    pub progress: Option<api::rollout::BlueprintProgress>,
    pub catalog: Vec<BarclampVersion>,
    pub roles: Vec<RoleSummary>,
    pub imports: Vec<ImportReport>,
    pub report: Option<engine::report::Report>,
    pub deployments: Vec<DeploymentSummary>,
    pub nodes: Vec<NodeSummary>,
    pub runs: Vec<RunSummary>,
    pub run: RunView,
    pub log: String,
    pub noderole: NoderoleView,
    pub machine: NodeView,
    pub results: Vec<ResultLine>,
    pub policy: PolicyView,
    pub node_proposal: NodeProposal,
    pub monitoring: super::overview::MonitoringData,
    pub people: Vec<api::people::PersonView>,
    pub factor: api::second_factor::SecondFactorPage,
    pub passkeys: Vec<api::people::PasskeyView>,
    /// The error that every read returns, if set.
    pub problem: Option<Problem>,
    pub opened: ViewedChanges,
    pub calls: Vec<String>,
}

/// The actor of a request. The real one can only be loaded from a database.
#[derive(Clone)]
pub struct Actor;

impl Actor {
    pub fn require(&self, _: Permission) -> Result<(), Problem> {
        Ok(())
    }
}

#[derive(Clone)]
pub struct Fake(pub Arc<Mutex<World>>);

impl Fake {
    pub fn new(change: impl FnOnce(&mut World)) -> Self {
        let mut world = World::default();
        change(&mut world);
        Self(Arc::new(Mutex::new(world)))
    }

    pub fn read<T>(&self, read: impl FnOnce(&World) -> T) -> Result<T, Problem> {
        let world = self.0.lock().expect("an unpoisoned lock");
        match (&world.problem, world.signed_in) {
            (Some(problem), _) => Err(problem.clone()),
            (None, false) => Err(Problem::signed_out()),
            (None, true) => Ok(read(&world)),
        }
    }

    pub fn record(&self, call: impl Into<String>) {
        self.0.lock().expect("an unpoisoned lock").calls.push(call.into());
    }
}

fn board_noderole(n: u128, name: &str, state: StepState) -> BoardNoderole {
    BoardNoderole {
        noderole: noderole(n, name),
        node: node(n),
        fqdn: fqdn(n),
        short: format!("web-{n}"),
        state,
        required_by: (state == StepState::Proposed && name != "app").then(|| "app".into()),
        changed: false,
        removed: false,
        runs_remove: false,
        stale: false,
        unchecked: false,
        alive: true,
        error: (state == StepState::Error).then(|| "exit 1 in 20-realm.sh: realm not found".into()),
    }
}

fn board_role(name: &str, traits: &[&str], noderoles: Vec<BoardNoderole>) -> BoardRole {
    BoardRole {
        role: role(name),
        description: format!("What {name} is for"),
        traits: traits.iter().map(|word| (*word).to_owned()).collect(),
        bindable: true,
        proposed: false,
        data: json!({ name: {"port": 8080, "workers": 4} }),
        data_by: None,
        defaults: json!({}),
        attribs: vec![AttribView {
            name: format!("{name}-port"),
            path: format!("/{name}/port"),
            description: "Where it listens".into(),
            schema: Some(json!({"type": "integer", "minimum": 1, "maximum": 65535})),
        }],
        noderoles,
        more: 0,
        omitted: StateCounts::default(),
    }
}

pub fn proposal(texts: &[&str]) -> ProposalView {
    let edits = texts.iter().zip(1..).map(|(text, seq)| EditView {
        seq,
        text: (*text).into(),
        actor: "ada".into(),
        at: ago(90),
        undone: false,
        touched_by: Vec::new(),
    });
    ProposalView {
        id: ProposalId(7),
        version: 3,
        title: String::new(),
        authors: vec!["ada".into()],
        makes_author: false,
        has_other_authors: false,
        edits: edits.collect(),
        undo: texts.last().map(|text| (*text).into()),
        redo: None,
        added: 14,
        removed: 0,
        reruns: 1,
        refused: Vec::new(),
        review: None,
        sent_back: None,
        not_restored: None,
        clashes: Vec::new(),
    }
}

/// A proposal on a node that has one role and gets another.
pub fn node_proposal() -> NodeProposal {
    let key = |name: &str| NoderoleKey::first(RoleName::parse(name).expect("a name"));
    let choice = |name: &str| NodeChoice {
        deployment: deployment_id(0),
        name: deployment("system"),
        role: RoleName::parse(name).expect("a name"),
    };
    NodeProposal {
        scope: ScopeView {
            deployment: deployment("system"),
            deployment_id: deployment_id(0),
            node: Some(ScopeNode { id: node(6), fqdn: fqdn(6) }),
        },
        proposal: proposal(&["bind web-6 to discovery"]),
        noderoles: vec![
            NodeRole {
                noderole: key("dns-client"),
                deployment: deployment("system"),
                proposed: false,
                runs_remove: false,
            },
            NodeRole {
                noderole: key("discovery"),
                deployment: deployment("system"),
                proposed: true,
                runs_remove: false,
            },
        ],
        choices: vec![choice("bootstrap"), choice("inventory")],
        may_edit: Allowed::Yes,
        cursor: 0,
    }
}

fn tray(n: u128) -> TrayNode {
    TrayNode {
        node: node(n),
        fqdn: fqdn(n),
        short: format!("web-{n}"),
        deployment: deployment(if n.is_multiple_of(2) { "system" } else { "web" }),
        alive: n != 9,
        noderoles: 2,
    }
}

fn board() -> Board {
    use StepState::*;
    let own = vec![
        BoardRole {
            bindable: true,
            ..board_role(
                "app-ready",
                &["milestone", "noop"],
                vec![board_noderole(1, "app-ready", Active)],
            )
        },
        board_role(
            "app",
            &["script", "one at a time"],
            vec![
                board_noderole(1, "app", Active),
                board_noderole(2, "app", Transition),
                board_noderole(3, "app", Todo),
            ],
        ),
        board_role(
            "store",
            &["script", "parallel 2", "destructive"],
            vec![board_noderole(1, "store", Active), board_noderole(2, "store", Active)],
        ),
        board_role(
            "runtime",
            &["implicit", "script"],
            vec![
                board_noderole(1, "runtime", Active),
                board_noderole(2, "runtime", Active),
                board_noderole(3, "runtime", Active),
            ],
        ),
        board_role(
            "gateway",
            &["script"],
            vec![board_noderole(4, "gateway", Error), board_noderole(5, "gateway", Blocked)],
        ),
    ];
    let network = ["dns-client", "ntp-client"].map(|name| BoardRole {
        bindable: false,
        more: 41,
        ..board_role(
            name,
            &["implicit", "script"],
            (1..6).map(|n| board_noderole(n, name, Active)).collect(),
        )
    });
    Board {
        id: deployment_id(1),
        name: deployment("web"),
        ancestors: vec![deployment("system")],
        system: false,
        on_hold_by: None,
        hold: None,
        priority: 0,
        blueprint: BlueprintNumber(127),
        proposal: None,
        groups: vec![
            BoardGroup {
                barclamp: BarclampName::parse("demo").expect("name"),
                of_ancestor: None,
                roles: own,
            },
            BoardGroup {
                barclamp: BarclampName::parse("network").expect("name"),
                of_ancestor: Some(deployment("system")),
                roles: network.into(),
            },
        ],
        omitted: StateCounts::default(),
        tray: (6..16).map(tray).collect(),
        tray_more: 2,
        versions: vec![],
        own_versions: vec![],
        destinations: vec![],
        jigs: vec![],
        policy: None,
        choices: vec![RoleChoice {
            role: role("cache"),
            barclamp: BarclampName::parse("demo").expect("name"),
            description: "Keeps what is asked for often".into(),
            milestone: false,
        }],
        may_propose: Allowed::Yes,
        cursor: 900,
    }
}

/// The board of a deployment in state PROPOSED.
pub fn proposed_board() -> Board {
    let mut board = board();
    board.proposal =
        Some(proposal(&["add role cache to web", "bind web-5 to app", "bind web-6 to app"]));
    let roles = &mut board.groups[0].roles;
    roles[1].noderoles.push(board_noderole(6, "app", StepState::Proposed));
    roles[3].noderoles.push(board_noderole(6, "runtime", StepState::Proposed));
    roles[2].noderoles[0].changed = true;
    let cache = BoardRole { proposed: true, ..board_role("cache", &["script"], Vec::new()) };
    roles.push(cache);
    board
}

/// A node with an SSH connection and noderoles.
pub fn machine() -> NodeView {
    let carried = |name: &str, state| NodeNoderole {
        id: noderole(1, name),
        role: role(name),
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        state,
        since: ago(60),
        error: None,
    };
    let of = |address: &str, text: &str| TriedAddress {
        address: address.into(),
        reached: text.is_empty(),
        error: text.into(),
    };
    let tried = |reached| match reached {
        true => vec![of("10.0.3.7", "")],
        false => vec![
            of("10.0.3.7", "connection refused"),
            of("web-1.mgmt.example.com", "no answer within 5 seconds"),
        ],
    };
    let check = |seconds, reached: bool, text: &str| HealthCheckView {
        at: ago(seconds),
        reached,
        address: if reached { "10.0.3.7".into() } else { String::new() },
        message: text.into(),
        tried: tried(reached),
        duration_ms: 12,
        by: "worker@here".into(),
    };
    NodeView {
        id: node(1),
        fqdn: fqdn(1),
        version: 3,
        description: "By the door".into(),
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        record_only: false,
        status: NodeStatus {
            alive: true,
            alive_since: Some(ago(3600)),
            last_seen: Some(ago(4)),
            contradicting: 0,
            threshold: 3,
            maintenance: None,
            joined: JoinPhase::Confirmed,
            joined_since: Some(ago(3600)),
            boot_id: Some("8f14e45f".into()),
            bootenv: Some("local".into()),
        },
        connection: NodeConnection {
            transport: "ssh".into(),
            root: "/".into(),
            ssh: Some(SshView {
                addresses: vec!["10.0.3.7".into(), "web-1.mgmt.example.com".into()],
                port: 22,
                user: "root".into(),
                key: "deploy/ssh".into(),
                key_version: 1,
                host_key: "ssh-ed25519 AAAAC3NzaC1l".into(),
                fingerprint: "SHA256:+DiY3wvvV6TuJJhbpZisF".into(),
            }),
        },
        macs: vec!["00:25:90:aa:00:01".into()],
        serial: "CN-1".into(),
        hints: json!({"rack": 7}),
        added_by: Some("ada".into()),
        added: ago(86_400),
        health_checks: vec![check(4, true, ""), check(14, false, "10.0.3.7: connection refused")],
        noderoles: vec![
            carried("runtime", StepState::Active),
            carried("app", StepState::Transition),
        ],
        more_noderoles: false,
        runs: vec![run(41, "app", 1, RunState::Running)],
        facts: vec![NodeFacts {
            source: FactSource::Role,
            role: Some(role("facts")),
            facts: json!({"cpu": {"cores": 4}}),
            at: ago(60),
            run: Some(RunId(40)),
        }],
        reports: vec![ReportView {
            at: ago(120),
            kind: "startup".into(),
            value: "8f14e45f".into(),
            token: "its unit".into(),
            address: "10.0.3.7".into(),
        }],
        tokens: vec![NodeToken {
            id: Uuid::from_u128(7),
            name: "its unit".into(),
            by: Some("ada".into()),
            created: ago(7200),
            expires: At(now().0 + 86_400_000),
            used: None,
            revoked: None,
            valid: true,
        }],
        may_change: Allowed::Yes,
        cursor: 900,
    }
}

fn drop_preview() -> DropPreview {
    let of = |name: &str, legal: Vec<NodeId>, illegal: Vec<IllegalNode>| RoleDropPreview {
        role: role(name),
        legal,
        illegal,
        unknown: Vec::new(),
        also_added: vec![AddedRole {
            role: role("runtime"),
            nodes: vec!["web-7".into()],
            count: 1,
            reason: "required by app".into(),
        }],
        moves: vec!["web-7 moves from system to web".into()],
        added: 3,
        wave: Some((3, 4)),
    };
    let no = |reason: &str| {
        vec![IllegalNode { node: node(7), short: "web-7".into(), reason: reason.into() }]
    };
    DropPreview {
        roles: vec![
            of("app-ready", vec![node(7)], vec![]),
            of("app", vec![node(7)], vec![]),
            of(
                "store",
                vec![node(7)],
                no("it carries gateway, which conflicts with store on one node"),
            ),
            of("runtime", vec![node(7)], vec![]),
            of("gateway", vec![], no("full: at most 2 in this deployment")),
            of("cache", vec![node(7)], vec![]),
        ],
    }
}

fn run(id: i64, name: &str, n: u128, state: RunState) -> RunSummary {
    let open = matches!(state, RunState::Queued | RunState::Running);
    RunSummary {
        id: RunId(id),
        noderole: noderole(n, name),
        role: role(name),
        action: ActionName::run(),
        node: node(n),
        fqdn: fqdn(n),
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        state,
        cause: (id % 3 == 0).then(|| "data changed".into()),
        blueprint: BlueprintNumber(127),
        worker: (state != RunState::Queued).then(|| "w-2".into()),
        worker_id: (state != RunState::Queued).then(|| Uuid::from_u128(2)),
        queued: ago(400 - id),
        started: (state != RunState::Queued).then(|| ago(380 - id)),
        ended: (!open).then(|| ago(300 - id)),
        error: (state == RunState::Failed).then(|| "exit 1 in 20-realm.sh: realm not found".into()),
    }
}

fn result(run: i64) -> ResultLine {
    ResultLine {
        run: RunId(run),
        noderole: noderole(1, "app"),
        role: "app".into(),
        action: "run".into(),
        outcome: "failed".into(),
        blueprint: BlueprintNumber(127),
        at: ago(60),
        result: format!("{{\"volume\":\"v-{run}\"}}"),
        bytes: 17,
    }
}

fn values(id: NoderoleId, run: Option<RunId>) -> ValuesView {
    let value = |path: &str, value: &str, layer: ValueLayer| ValueView {
        path: path.into(),
        value: value.into(),
        layer,
        source: format!("{} of gateway on {}", layer.label(), fqdn(4)),
        noderole: Some(id),
        run: (layer == ValueLayer::Output).then_some(RunId(1001)),
        edit: (layer == ValueLayer::User).then(|| SetBy {
            proposal: ProposalId(6),
            seq: 2,
            by: "ada".into(),
            at: ago(5000),
            blueprint: BlueprintNumber(120),
        }),
    };
    let values = vec![
        value("/app/key", "(secret)", ValueLayer::User),
        value("/app/pid", "4242", ValueLayer::Output),
    ];
    let page = ValuePage { values, all: 412, matching: 2, next: Some("/app/pid".into()) };
    let surroundings = run.map(|_| json!({"results": [{"run": 1000, "outcome": "failed"}]}));
    let name = format!("gateway on {}", fqdn(4));
    ValuesView {
        name,
        noderole: id,
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        run,
        page,
        surroundings,
    }
}

fn provenance() -> Vec<Provenance> {
    let of = |path: &str, value: &str, source: &str| Provenance {
        path: path.into(),
        value: value.into(),
        source: source.into(),
    };
    vec![
        of("/app/port", "8080", "deployment role"),
        of("/app/workers", "4", "role template"),
        of("/app/key", "(secret)", "user"),
    ]
}

/// A difference of a noderole without details.
pub fn noderole_difference(n: u128, name: &str, mark: Mark) -> NoderoleDifference {
    NoderoleDifference {
        id: noderole(n, name),
        noderole: NoderoleKey::first(role(name)),
        deployment: deployment_id(1),
        mark,
        content: false,
        contents: None,
        bound: None,
        rerun: false,
        reruns: None,
        rank: None,
        rewired: false,
        edges: Vec::new(),
        data: Vec::new(),
    }
}

/// A node that differs only in its noderoles.
pub fn changed_node(n: u128, noderoles: Vec<NoderoleDifference>) -> NodeDifference {
    NodeDifference {
        id: node(n),
        fqdn: Fqdn::parse(&fqdn(n)).expect("a name"),
        mark: Mark::Changed,
        renamed: None,
        phantom: None,
        moved: None,
        connection: None,
        hints: Vec::new(),
        noderoles,
        unchanged: 1,
    }
}

fn difference() -> Difference {
    let added = |n: u128, name: &str, data: Vec<Change>| NoderoleDifference {
        data,
        ..noderole_difference(n, name, Mark::Added)
    };
    let on = |n: u128| NodeDifference {
        moved: Some(Sides { old: Some(deployment_id(0)), new: Some(deployment_id(1)) }),
        unchanged: 2,
        ..changed_node(
            n,
            vec![
                added(n, "app", vec![]),
                added(n, "runtime", vec![]),
                added(n, "dns-client", vec![]),
            ],
        )
    };
    let again = NodeDifference {
        moved: None,
        noderoles: vec![NoderoleDifference {
            mark: Mark::Changed,
            rerun: true,
            ..added(1, "store", vec![])
        }],
        unchanged: 42,
        ..on(1)
    };
    let value = |path: &str, old: Value, new: Value| Change {
        path: path.into(),
        kind: ChangeKind::Changed,
        old: Some(old),
        new: Some(new),
        secret: false,
    };
    let key = |version: i64| Some(json!(format!("(secret app/key version {version})")));
    let secret = Change {
        path: "/app/key".into(),
        kind: ChangeKind::Changed,
        old: key(4),
        new: key(5),
        secret: true,
    };
    Difference {
        deployments: vec![DeploymentDifference {
            id: deployment_id(1),
            name: deployment("web"),
            mark: Mark::Changed,
            renamed: None,
            parent: None,
            phantom: None,
            inactive_jigs: vec![],
            barclamps: vec![],
            roles: vec![
                RoleDifference {
                    role: role("app"),
                    mark: Mark::Changed,
                    content: false,
                    contents: None,
                    data: vec![
                        value("/app/network", json!("10.0.0.0/24"), json!("10.8.0.0/22")),
                        secret,
                    ],
                },
                RoleDifference {
                    role: role("cache"),
                    mark: Mark::Added,
                    content: true,
                    contents: None,
                    data: vec![],
                },
            ],
        }],
        nodes: vec![again, on(6), on(7), on(8)],
        unchanged: 58,
        policy: None,
    }
}

pub fn gate(approvals: u32, needed: u32) -> GateResult {
    let rule = |rule, passes, text: &str| RuleResult { rule, passes, text: text.into() };
    GateResult {
        rules: vec![
            rule(Rule::Newest, true, "Newest version of an open proposal"),
            rule(Rule::Resolved, true, "Every edit takes effect"),
            rule(Rule::Base, true, "Base unchanged since planning"),
            rule(Rule::Epoch, true, "Submitted since the last restore"),
            rule(Rule::Policy, true, "Policy 12 is in force"),
            rule(
                Rule::Approvals,
                approvals >= needed,
                &format!("{approvals} of {needed} approvals. Can act: bo, dee"),
            ),
            rule(Rule::Objections, true, "No objections"),
        ],
        approvals,
        needed,
        can_approve: vec!["bo".into(), "dee".into()],
    }
}

fn touched(n: u128, name: &str) -> Touched {
    let fqdn = Fqdn::parse(&fqdn(n)).expect("a name");
    Touched {
        noderole: NoderoleKey::first(role(name)),
        fqdn,
        deployment: deployment("web"),
        id: noderole(n, name),
    }
}

fn wave(number: u32, roles: &[(&str, usize, Option<u32>)]) -> Wave {
    let group = |(name, nodes, at_once): &(&str, usize, Option<u32>)| WaveGroup {
        action: ActionName::run(),
        role: role(name),
        deployment: deployment("web"),
        nodes: *nodes,
        at_once: *at_once,
        in_chunks: false,
        immediate: false,
        destructive: *name == "store",
        first: vec![Fqdn::parse(&fqdn(6)).expect("a name")],
        after: Counted::default(),
        queued: 0,
    };
    let groups: Vec<WaveGroup> = roles.iter().map(group).collect();
    Wave { number, runs: groups.iter().map(|g| g.nodes).sum(), immediate: 0, groups }
}

pub fn consequences() -> Impact {
    let all = |list: Vec<Touched>| Counted { count: list.len(), first: list };
    let restart = NoderoleRerun {
        touched: touched(1, "store"),
        cause: RerunCause::Requested,
        reason: Some("the disk was replaced".into()),
        in_use: Some(true),
    };
    let mut last = wave(3, &[("app", 3, Some(1))]);
    last.groups[0].after = Counted {
        count: 30,
        first: vec![WaveDependency {
            wave: 2,
            role: role("runtime"),
            deployment: deployment("web"),
        }],
    };
    Impact {
        nodes: 4,
        undone: Counted::default(),
        left_in_place: Counted::default(),
        retained: Counted::default(),
        starts: all([6, 7, 8]
            .iter()
            .flat_map(|n| ["dns-client", "runtime", "app"].map(|r| touched(*n, r)))
            .collect()),
        restarts: Counted { count: 1, first: vec![restart] },
        interrupted: Some(1),
        lost: Counted {
            count: 1,
            first: vec![Loss::Data { of: "app in web".into(), paths: vec!["/old".into()] }],
        },
        lost_in_use: Some(0),
        irreversible: all(vec![touched(1, "store")]),
        downstream: vec![Downstream {
            on_input: OnInput::Rerun,
            deployment: deployment("web"),
            noderoles: Counted {
                count: 1_204,
                first: vec![touched(1, "cache"), touched(2, "cache")],
            },
            in_use: Some(900),
        }],
        waves: vec![
            wave(1, &[("dns-client", 3, None)]),
            wave(2, &[("runtime", 3, None), ("store", 1, None)]),
            last,
        ],
        more_waves: 7,
        secrets: vec![secret_change()],
        risks: [Risk::Destructive, Risk::Rerun, Risk::Secret].into(),
    }
}

fn secret_change() -> SecretChange {
    let secret = |version| SecretRef { name: "app/key".into(), version };
    SecretChange {
        change: SecretUseChange::Replaced,
        secret: secret(5),
        was: Some(secret(4)),
        kind: SecretKind::Data,
        deployment: deployment("web"),
        role: Some(role("app")),
        inherited: false,
        nodes: Counted {
            count: 30,
            first: [1, 2].map(|n| Fqdn::parse(&fqdn(n)).expect("a name")).to_vec(),
        },
    }
}

fn review() -> ReviewView {
    ReviewView {
        review: ReviewId(128),
        proposal: ProposalId(7),
        version: 3,
        title: "Three more application nodes, and a cache".into(),
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        node: None,
        fqdn: None,
        state: ReviewState::Waiting,
        change_hash: "9f3c1a7e00112233445566778899aabbccddeeff00112233445566778899aabb".into(),
        effects_hash: "e7".repeat(32),
        parent: BlueprintNumber(127),
        blueprint: None,
        at: ago(240),
        authors: vec!["ada".into()],
        summary: vec![
            "Wipes the data of store on web-1 and fills it again.".into(),
            "Adds app, runtime and dns-client on 3 nodes (web-6, web-7, web-8), one at a \
             time."
                .into(),
            "Nothing is removed. 4 noderoles downstream wait meanwhile.".into(),
        ],
        always_shown: 1,
        requested: vec![
            "Adds app on web-6, web-7 and web-8.".into(),
            "Also adds 6 noderoles: dns-client and runtime.".into(),
            "Nothing is removed.".into(),
        ],
        risks: vec![Risk::Destructive, Risk::Rerun, Risk::Secret],
        difference: difference(),
        more: 0,
        next: None,
        required_by: [6, 7, 8]
            .into_iter()
            .map(|n| (noderole(n, "runtime"), "required by app".to_owned()))
            .collect(),
        deployments: [
            (deployment_id(0), deployment("system")),
            (deployment_id(1), deployment("web")),
        ]
        .into(),
        noderoles: Default::default(),
        contents: Vec::new(),
        pins: Vec::new(),
        role_values: Vec::new(),
        more_role_values: 0,
        hidden_characters: Default::default(),
        not_restored: None,
        clashes: Vec::new(),
        waves: vec![
            WaveView { number: 1, items: vec!["dns-client on 3 nodes".into()], noderoles: 3 },
            WaveView {
                number: 2,
                items: vec!["runtime on 3 nodes".into(), "store on web-1".into()],
                noderoles: 4,
            },
            WaveView {
                number: 3,
                items: vec!["app on 3 nodes, one at a time".into()],
                noderoles: 3,
            },
        ],
        impact: consequences(),
        checks: Vec::new(),
        current: true,
        pending_reasons: vec![
            "Deployment web is on hold by cy (a move). You can commit this \
            review, and its steps start when the hold ends."
                .into(),
        ],
        gate: gate(1, 2),
        verdicts: vec![
            VerdictView {
                person: "cy".into(),
                kind: VerdictKind::Approve,
                reason: "Looked at the network with the site.".into(),
                at: ago(60),
                counts: true,
                own: false,
                signed: None,
            },
            VerdictView {
                person: "cy".into(),
                kind: VerdictKind::RequestChanges,
                reason: "Which network?".into(),
                at: ago(200),
                counts: false,
                own: false,
                signed: None,
            },
        ],
        signature_needed: false,
        may_sign: false,
        may_review: Allowed::no("You wrote part of this change, so another person must review it"),
        may_commit: Allowed::no("1 of 2 approvals. Can act: bo, dee"),
        type_to_commit: Some("web".into()),
        replaces: None,
        replaced_by: None,
    }
}

/// A failed step, its dependents, and a full concurrency group.
fn waits() -> Vec<PendingGroup> {
    let group = |reason: PendingReason, count, more, steps| PendingGroup {
        reason,
        heading: reason.heading().into(),
        resolution: reason.frees().into(),
        count: Some(count),
        more,
        steps,
    };
    let step = |n: u128, name: &str, state, reason: &str, freed_by| PendingStep {
        noderole: noderole(n, name),
        role: role(name),
        action: ActionName::run(),
        node: node(n),
        fqdn: fqdn(n),
        deployment: deployment("web"),
        deployment_id: deployment_id(1),
        state,
        since: ago(700),
        reasons: vec![reason.into()],
        resolved_by: freed_by,
    };
    let failed = NoderoleRef {
        id: noderole(4, "app"),
        role: role("app"),
        node: node(4),
        fqdn: fqdn(4),
        state: StepState::Error,
    };
    vec![
        group(
            PendingReason::Failed,
            1,
            false,
            vec![step(
                4,
                "app",
                StepState::Error,
                "exit 1 in 20-realm.sh",
                vec![Resolver::Run { run: RunId(12) }],
            )],
        ),
        group(
            PendingReason::DependencyFailed,
            10_000,
            true,
            vec![step(
                4,
                "proxy",
                StepState::Blocked,
                "Waits for 1 parent: app on web-4 (ERROR).",
                vec![Resolver::Step { noderole: failed }],
            )],
        ),
        group(
            PendingReason::OnHold,
            1,
            false,
            vec![step(
                5,
                "app",
                StepState::Todo,
                "Deployment web was put on hold by ada.",
                vec![
                    Resolver::Deployment { id: deployment_id(1), name: deployment("web") },
                    Resolver::Node { node: node(5), fqdn: fqdn(5) },
                ],
            )],
        ),
    ]
}

impl Default for World {
    fn default() -> Self {
        let summary = |n: u128, name: &str, depth, steps| DeploymentSummary {
            id: deployment_id(n),
            name: deployment(name),
            depth,
            nodes: 12,
            steps,
            proposal: (n == 1).then_some(ProposalId(7)),
            review: (n == 2).then_some(ReviewId(128)),
            blueprint: BlueprintNumber(120 + i64::try_from(n).expect("a small number")),
        };
        let some = StateCounts {
            blocked: 1,
            todo: 1,
            transition: 1,
            active: 18,
            error: 1,
            ..StateCounts::default()
        };
        let all_active = StateCounts { active: 24, ..StateCounts::default() };
        let states = [
            RunState::Running,
            RunState::Queued,
            RunState::Failed,
            RunState::Succeeded,
            RunState::Lost,
            RunState::Canceled,
        ];
        let runs: Vec<_> =
            states.into_iter().zip(0..).map(|(state, n)| run(1006 - n, "app", 2, state)).collect();
        let noderole_ref = |n: u128, name: &str, state| NoderoleRef {
            id: noderole(n, name),
            role: role(name),
            node: node(n),
            fqdn: fqdn(n),
            state,
        };
        Self {
            signed_in: true,
            permissions: vec!["operator".into()],
            board: board(),
            drop_preview: drop_preview(),
            reviews: vec![
                ReviewSummary {
                    node: None,
                    fqdn: None,
                    review: ReviewId(128),
                    title: "Three more application nodes, and a cache".into(),
                    deployment: deployment("web"),
                    deployment_id: deployment_id(1),
                    authors: vec!["ada".into()],
                    at: ago(240),
                    summary: "9 added, 1 changed, 1 run again".into(),
                    state: ReviewState::Waiting,
                    approvals: ApprovalCount { valid: 1, required: 2 },
                },
                ReviewSummary {
                    node: None,
                    fqdn: None,
                    review: ReviewId(121),
                    title: "Gateways".into(),
                    deployment: deployment("storage"),
                    deployment_id: deployment_id(2),
                    authors: vec!["cy".into()],
                    at: ago(90_000),
                    summary: "2 added".into(),
                    state: ReviewState::Committed,
                    approvals: ApprovalCount { valid: 1, required: 1 },
                },
            ],
            proposals: vec![
                ProposalSummary {
                    id: ProposalId(19),
                    scope: ScopeView {
                        deployment: deployment("system"),
                        deployment_id: deployment_id(0),
                        node: Some(ScopeNode { id: NodeId(Uuid::from_u128(7)), fqdn: fqdn(7) }),
                    },
                    version: 3,
                    authors: vec!["ada".into(), "cy".into()],
                    edits: 2,
                    review: None,
                },
                ProposalSummary {
                    id: ProposalId(17),
                    scope: ScopeView {
                        deployment: deployment("web"),
                        deployment_id: deployment_id(1),
                        node: None,
                    },
                    version: 9,
                    authors: vec!["ada".into()],
                    edits: 1,
                    review: None,
                },
            ],
            long: false,
            waiting: ReviewCount { count: 2, more: false },
            waits: waits(),
            review: review(),
            graph: graph(),
            discussion: discussion(),
            targets: BlueprintPage {
                blueprints: line(),
                next: None,
                head: BlueprintNumber(3),
                removed_in: None,
            },
            progress: None,
            comparison: comparison(),
            catalog: catalog(),
            roles: roles(),
            imports: imports(),
            report: Some(report()),
            since: ChangesSinceView {
                review: ReviewId(128),
                before: None,
                same_effect: false,
                difference: Difference::default(),
                noderoles: Default::default(),
                contents: Vec::new(),
                pins: Vec::new(),
                more: 0,
                next: None,
            },
            deployments: vec![
                summary(0, "system", 0, all_active),
                summary(1, "web", 1, some),
                summary(2, "storage", 1, StateCounts::default()),
            ],
            nodes: (1..8)
                .map(|n| NodeSummary {
                    id: node(n),
                    fqdn: fqdn(n),
                    deployment: deployment("web"),
                    deployment_id: deployment_id(1),
                    alive: n != 5,
                    available: n != 4,
                    transport: "local".into(),
                    error: None,
                    steps: some,
                    record_only: false,
                })
                .collect(),
            run: RunView {
                run: runs[0].clone(),
                input: json!(
                    {
                        "app": {
                            "port": 8080,
                            "workers": 4,
                            "key": {"$secret": "app/key", "version": 4}
                        }
                    }
                ),
                provenance: provenance(),
                values: 3,
                result: None,
                result_expired: false,
                output: Some(json!({"app": {"pid": 4242}})),
                attempts: runs[..2].to_vec(),
                review: Some(ReviewId(121)),
                may_cancel: Allowed::Yes,
                log_bytes: 60,
                cursor: 900,
                limits: vec![RunLimit {
                    name: "Retries".into(),
                    value: "2, the first after 5 s".into(),
                }],
            },
            log: (1..60).map(|n| format!("step {n} of 60: writing /etc/app/{n}.conf\n")).collect(),
            runs,
            machine: machine(),
            results: vec![result(42), result(41)],
            policy: policy(),
            noderole: NoderoleView {
                stale: false,
                id: noderole(4, "gateway"),
                role: role("gateway"),
                description: "Lets the outside in".into(),
                node: node(4),
                fqdn: fqdn(4),
                deployment: deployment("web"),
                deployment_id: deployment_id(1),
                state: StepState::Error,
                since: ago(840),
                reasons: vec![
                    "Its last run failed. Retry it, or change its data in a proposal.".into(),
                ],
                error: Some("exit 1 in 20-realm.sh: realm not found".into()),
                generation: BlueprintNumber(127),
                applied: Some(BlueprintNumber(120)),
                role_hash: "4be1c0de".into(),
                layers: vec![
                    DataLayer {
                        source: ValueLayer::Template,
                        value: json!({"app": {"workers": 4}}),
                    },
                    DataLayer {
                        source: ValueLayer::DeploymentRole,
                        value: json!({"app": {"port": 8080}}),
                    },
                ],
                merged: json!({"app": {"port": 8080, "workers": 4}}),
                provenance: provenance(),
                values: 3,
                output: json!({}),
                attribs: vec![AttribView {
                    name: "app-port".into(),
                    path: "/app/port".into(),
                    description: "Where it listens".into(),
                    schema: Some(json!({"type": "integer", "minimum": 1, "maximum": 65535})),
                }],
                parents: vec![noderole_ref(4, "runtime", StepState::Active)],
                children: vec![noderole_ref(5, "gateway", StepState::Blocked)],
                runs: vec![run(1004, "gateway", 4, RunState::Failed)],
                may_retry: Allowed::Yes,
                limits: vec![RunLimit { name: "Time limit".into(), value: "60 s".into() }],
                check: None,
                may_propose: Allowed::Yes,
                may_edit: EditableDraft::Yes(NoderoleDraft {
                    proposal: ProposalId(7),
                    version: 3,
                    makes_author: false,
                    data: json!({}),
                    data_by: None,
                    defaults: json!({"app": {"port": 8080}}),
                    rerun: false,
                }),
            },
            node_proposal: node_proposal(),
            monitoring: super::overview::MonitoringData::default(),
            people: super::accounts::some(),
            factor: super::accounts::factor(),
            passkeys: super::accounts::passkeys(),
            problem: None,
            opened: ViewedChanges::default(),
            calls: Vec::new(),
        }
    }
}

fn line() -> Vec<BlueprintSummary> {
    let target = |number: i64, kind, title: &str| BlueprintSummary {
        number: BlueprintNumber(number),
        kind,
        root: format!("{number:064x}"),
        enabled: kind != BlueprintKind::Switch,
        at: ago(60 * (4 - number)),
        by: (kind != BlueprintKind::Genesis).then(|| "cy".to_owned()),
        review: (kind == BlueprintKind::Change).then_some(ReviewId(128)),
        title: title.into(),
        deployment: (kind == BlueprintKind::Change).then(|| "web".to_owned()),
        deployment_id: (kind == BlueprintKind::Change).then(|| deployment_id(1)),
        authors: if kind == BlueprintKind::Change {
            vec!["ada".into(), "eve".into()]
        } else {
            vec![]
        },
        approved_by: if kind == BlueprintKind::Change { vec!["bo".into()] } else { vec![] },
    };
    vec![
        target(3, BlueprintKind::Switch, "Execution off: a storm"),
        target(2, BlueprintKind::Change, "Three more application nodes"),
        target(1, BlueprintKind::Genesis, "Genesis"),
    ]
}

fn report() -> engine::report::Report {
    let skeleton = engine::cluster::Skeleton::default();
    let catalog = engine::catalog::Catalog::default();
    let effects = engine::plan::resolve(&skeleton, &catalog, &[]);
    engine::report::report(&skeleton, &catalog, &[], &effects, Some(&[]))
}

fn roles() -> Vec<RoleSummary> {
    let role = |name: &str, requires: usize| RoleSummary {
        name: role(name),
        barclamp: BarclampName::parse("demo").expect("a name"),
        version: "2".into(),
        description: format!("The {name} of the demo"),
        jig: JigName::parse("noop").expect("a name"),
        flags: if name == "base" { vec!["implicit".into()] } else { vec![] },
        requires,
        deployments: 1,
        noderoles: 3,
    };
    vec![role("app", 1), role("base", 0)]
}

fn role_view() -> RoleView {
    let role: engine::catalog::Role = serde_json::from_value(serde_json::json!({
        "name": "app", "barclamp": "demo", "jig": "noop", "jig_class": "noop",
        "description": "The app of the demo",
        "flags": {"cluster": true}, "requires": ["base"], "provides": [], "conflicts": ["other"],
        "preceeds": [], "wants": [],
        "template": {"app": {"port": 8080}}, "attribs": [], "run": {},
        "scripts": [{"name": "10-start", "hash": "5f".repeat(32)}], "metadata": null,
    }))
    .expect("a role");
    RoleView {
        role,
        hash: engine::Hash::of_bytes(b"app"),
        version: "2".into(),
        flags: vec!["cluster".into()],
        requires: vec![ResolvedName { name: self::role("base"), by: vec![self::role("base")] }],
        wants: vec![],
        required_by: vec![],
        also_defined_in: vec![],
        versions: vec![RoleVersion {
            version: "2".into(),
            same: true,
            used_by: vec![deployment("web")],
        }],
        bound: vec![RoleUse {
            deployment: deployment("web"),
            deployment_id: deployment_id(1),
            noderoles: 3,
        }],
    }
}

fn imports() -> Vec<ImportReport> {
    let name = BarclampName::parse("demo").expect("a name");
    let brought = ImportedVersion {
        name,
        version: "2".into(),
        hash: engine::Hash::of_bytes(b"demo"),
        new: true,
    };
    let report = Findings {
        barclamps: vec![brought],
        removed_parts: vec!["Barclamp demo 2 no longer has: role still".into()],
        findings: (1..=7).map(|line| format!("demo.yml:{line}:1: note: odd")).collect(),
        omitted: 3,
    };
    vec![ImportReport { id: 1, at: ago(60), by: Some("cy".into()), report }]
}

fn catalog() -> Vec<BarclampVersion> {
    let version = |version: &str, before: Option<&str>, removed_parts: &[&str]| BarclampVersion {
        barclamp: BarclampName::parse("demo").expect("a name"),
        version: version.into(),
        hash: format!("{version:0>64}"),
        description: "For tests".into(),
        roles: 7,
        imported: ago(60),
        by: before.map(|_| "cy".into()),
        used_by: before.iter().map(|_| deployment("web")).collect(),
        previous: before.map(Into::into),
        removed_parts: removed_parts.iter().map(|line| (*line).to_owned()).collect(),
        hidden_characters: Default::default(),
    };
    vec![
        version("3", Some("2"), &["role cache"]),
        version("2", Some("1"), &[]),
        version("1", None, &[]),
    ]
}

/// Two approvals for irreversible changes, one for all others.
fn policy() -> PolicyView {
    let by_risk = [(Risk::Destructive, 2), (Risk::Move, 1)].into();
    let (number, target) = (PolicyNumber(3), BlueprintNumber(40));
    PolicyView {
        number,
        policy: Policy { approvals: 1, by_risk, ..Policy::default() },
        since: ago(3600),
        by: Some("bo".into()),
        blueprint: target,
    }
}

fn comparison() -> Comparison {
    let side = |n: i64| Side {
        blueprint: Some(BlueprintNumber(n)),
        review: None,
        root: Some(format!("{n:064x}")),
    };
    let names = [(deployment_id(0), deployment("system")), (deployment_id(1), deployment("web"))];
    Comparison {
        from: side(1),
        to: side(2),
        deployment: None,
        note: None,
        difference: difference(),
        more: 0,
        next: None,
        contents: Vec::new(),
        pins: Vec::new(),
        role_values: Vec::new(),
        more_role_values: 0,
        hidden_characters: Default::default(),
        names: engine::blueprint::text::Names { deployments: names.into(), ..Default::default() },
        impact: Impact::default(),
    }
}

fn discussion() -> Discussion {
    let thread =
        |n: i64, anchor: Anchor, about: &str, resolved: Option<ThreadResolution>| ThreadView {
            id: CommentId(n),
            review: ReviewId(128),
            anchor,
            subject: about.into(),
            current: true,
            comments: vec![CommentView {
                id: CommentId(n),
                person: "bo".into(),
                body: "Why this port?".into(),
                at: ago(60),
            }],
            resolved,
            may_resolve: Allowed::no("whoever opened this thread resolves it"),
        };
    Discussion {
        review: ReviewId(128),
        threads: vec![
            thread(1, Anchor::Role(deployment_id(1), role("app"), None), "app in web", None),
            thread(
                2,
                Anchor::Whole,
                "the whole change",
                Some(ThreadResolution { by: "bo".into(), at: ago(30) }),
            ),
        ],
        open: 1,
        may_write: Allowed::Yes,
    }
}

/// `runtime` before `app`, whose noderoles are expanded.
fn graph() -> GraphView {
    let group = |name: &str, appearances: &[(Appearance, usize)]| GraphVertex {
        key: format!("web:{name}"),
        role: role(name),
        deployment: deployment("web"),
        noderole: None,
        members: appearances.iter().map(|(_, n)| n).sum(),
        appearances: appearances
            .iter()
            .map(|&(appearance, count)| AppearanceCount { appearance, count })
            .collect(),
        waves: Some(match name {
            "app" => WaveRange { first: 3, last: 3 },
            _ => WaveRange { first: 1, last: 2 },
        }),
        on_path: 0,
    };
    let one = |n: u128, state| GraphVertex {
        key: noderole(n, "app").to_string(),
        noderole: Some(GraphNoderole {
            id: noderole(n, "app"),
            short: format!("web-{n}"),
            fqdn: fqdn(n),
            has_page: true,
        }),
        ..group("app", &[(Appearance::State(state), 1)])
    };
    let edge = |from, to, count| GraphEdge {
        from,
        to,
        count,
        kind: EdgeKind::Hard,
        on_path: 0,
        added: 0,
        removed: 0,
    };
    GraphView {
        deployment: Some(deployment("web")),
        deployment_id: Some(deployment_id(1)),
        blueprint: None,
        vertices: vec![
            one(1, StepState::Active),
            one(2, StepState::Error),
            group(
                "runtime",
                &[
                    (Appearance::State(StepState::Active), 3),
                    (Appearance::State(StepState::Blocked), 1),
                ],
            ),
        ],
        edges: vec![edge(2, 0, 1), edge(2, 1, 3)],
        noderoles: 6,
        total_edges: 4,
        waves: 3,
        cut: None,
        marked_path: None,
        cursor: 900,
    }
}

fn known(deployment: Option<&str>) -> Result<(), Problem> {
    let missing = || Problem::not_found("Deployment nowhere does not exist.");
    if deployment == Some("nowhere") { Err(missing()) } else { Ok(()) }
}

/// A refusal of one of the edits of [`proposal`].
pub fn refusal() -> Refusal {
    Refusal {
        edit: 2,
        code: "sibling".into(),
        reason: "web-5 belongs to storage, which stands beside web: move it first".into(),
    }
}

/// The number in a cursor of the default order.
fn number_in(place: Option<&Cursor>) -> Option<i64> {
    place.and_then(|place| place.as_str().parse().ok())
}

impl Fake {
    pub async fn frame(&self, _: &Actor) -> Result<Frame, Problem> {
        let world = self.0.lock().expect("an unpoisoned lock");
        let me = Me {
            id: PersonId(Uuid::from_u128(1)),
            name: "ada".into(),
            permissions: world.permissions.clone(),
            session: Some(Uuid::from_u128(7)),
        };
        Ok(Frame {
            me,
            pending_reviews: world.waiting,
            execution: Some(true),
            cursor: Some(900),
            reset: None,
        })
    }
    pub async fn policy_in_force(&self, _: &Actor) -> Result<PolicyView, Problem> {
        self.read(|world| world.policy.clone())
    }
    pub async fn find_deployments(
        &self,
        _: &Actor,
        query: &DeploymentsQuery,
    ) -> Result<DeploymentPage, Problem> {
        self.record(format!("deployments {}", serde_json::to_string(&query).expect("JSON")));
        self.read(|world| {
            let fits =
                |deployment: &&DeploymentSummary| deployment.name.as_str().contains(&query.filter);
            let mut deployments: Vec<DeploymentSummary> =
                world.deployments.iter().filter(fits).cloned().collect();
            if query.sort.descending {
                deployments.reverse();
            }
            DeploymentPage {
                deployments,
                next: world.long.then(|| Cursor::from("system web".to_owned())),
            }
        })
    }
    pub async fn board(&self, _: &Actor, name: &str, query: BoardQuery) -> Result<Board, Problem> {
        if query.not_active {
            self.record(format!("board {name}, not active"));
        }
        let board = self.read(|world| world.board.clone())?;
        match board.name.as_str() == name {
            true => Ok(board),
            false => Err(Problem::not_found(format!("Deployment {name} does not exist."))),
        }
    }
    pub async fn role_noderoles(
        &self,
        _: &Actor,
        _: &str,
        _: Option<&str>,
        role: &RoleName,
    ) -> Result<RoleNoderoles, Problem> {
        let roles = self.read(|world| {
            world.board.groups.iter().flat_map(|group| group.roles.clone()).collect::<Vec<_>>()
        })?;
        let noderoles = roles
            .into_iter()
            .find(|found| found.role == *role)
            .map(|found| found.noderoles)
            .unwrap_or_default();
        Ok(RoleNoderoles { noderoles, more: 0 })
    }
    pub async fn find_tray_nodes(
        &self,
        _: &Actor,
        _: &str,
        text: &str,
        show: TrayFilter,
    ) -> Result<TrayNodes, Problem> {
        let mut nodes = self.read(|world| world.board.tray.clone())?;
        nodes.retain(|node| show.fits(node, text));
        Ok(TrayNodes { nodes, more: 0 })
    }
    pub async fn preview_drop(
        &self,
        _: &Actor,
        _: DeploymentId,
        nodes: Vec<NodeId>,
    ) -> Result<DropPreview, Problem> {
        self.record(format!("preview_drop {}", nodes.len()));
        self.read(|world| world.drop_preview.clone())
    }
    pub async fn noderole(&self, _: &Actor, id: NoderoleId) -> Result<NoderoleView, Problem> {
        self.read(|world| NoderoleView { id, ..world.noderole.clone() })
    }
    pub async fn noderole_values(
        &self,
        _: &Actor,
        id: NoderoleId,
        query: &ValuesQuery,
    ) -> Result<ValuesView, Problem> {
        self.record(format!("values {}", serde_json::to_string(&query).expect("JSON")));
        self.read(|_| values(id, None))
    }
    pub async fn run_values(
        &self,
        _: &Actor,
        id: RunId,
        _: &ValuesQuery,
    ) -> Result<ValuesView, Problem> {
        self.read(|_| values(noderole(4, "gateway"), Some(id)))
    }
    pub async fn find_nodes(&self, _: &Actor, query: &NodesQuery) -> Result<NodePage, Problem> {
        let fits = |node: &&NodeSummary| node.fqdn.contains(&query.filter);
        self.read(|world| {
            let mut nodes: Vec<NodeSummary> = world.nodes.iter().filter(fits).cloned().collect();
            nodes.sort_by(|a, b| a.fqdn.cmp(&b.fqdn));
            if query.sort.descending {
                nodes.reverse();
            }
            let next =
                nodes.last().filter(|_| world.long).map(|last| Cursor::from(last.fqdn.clone()));
            NodePage { nodes, next }
        })
    }
    pub async fn find_runs(&self, _: &Actor, query: &RunsQuery) -> Result<RunPage, Problem> {
        let word = |run: &RunSummary| {
            serde_json::to_value(run.state)
                .expect("a string")
                .as_str()
                .expect("a string")
                .to_owned()
        };
        let fits = |run: &&RunSummary| query.state.is_empty() || word(run) == query.state;
        self.read(|world| RunPage {
            runs: world.runs.iter().filter(fits).cloned().collect(),
            next: (!world.runs.is_empty()).then(|| Cursor::from("1000".to_owned())),
        })
    }
    pub async fn pending(&self, _: &Actor, query: &PendingQuery) -> Result<PendingPage, Problem> {
        let fits = |group: &&PendingGroup| {
            query.reason.is_empty() || query.reason == group.reason.as_str()
        };
        self.read(|world| PendingPage {
            groups: world.waits.iter().filter(fits).cloned().collect(),
            next: (!query.reason.is_empty() && world.long)
                .then(|| Cursor::from(format!("{}~-7~-{}", query.sort, Uuid::from_u128(7)))),
        })
    }
    pub async fn run(&self, _: &Actor, _: RunId) -> Result<RunView, Problem> {
        self.read(|world| world.run.clone())
    }
    pub async fn log(&self, _: &Actor, _: RunId, offset: i64) -> Result<LogPart, Problem> {
        self.read(|world| {
            let end = i64::try_from(world.log.len()).expect("a small number");
            let offset = if offset < 0 { (end + offset).max(0) } else { offset.min(end) };
            let text = world.log[usize::try_from(offset).expect("a small number")..].to_owned();
            let pieces = if text.is_empty() {
                vec![]
            } else {
                vec![LogPiece { offset, bytes: text.len() as i64, at: ago(100), text }]
            };
            LogPart { pieces, next: end, complete: world.run.run.ended.is_some() }
        })
    }
    pub async fn search_log(
        &self,
        _: &Actor,
        _: RunId,
        text: &str,
        _: bool,
        _: &str,
    ) -> Result<LogSearchResult, Problem> {
        self.read(|world| {
            let length = i64::try_from(world.log.len()).expect("a small number");
            let lines = world.log.lines().enumerate().filter(|(_, line)| line.contains(text));
            let hits = lines.map(|(n, line)| LogHit {
                offset: 0,
                line: n as i64 + 1,
                text: line.to_owned(),
            });
            LogSearchResult {
                hits: hits.collect(),
                next: String::new(),
                searched: length,
                length,
                more: false,
            }
        })
    }
    pub async fn reviews(&self, _: &Actor, query: &ReviewsQuery) -> Result<ReviewPage, Problem> {
        let settled = [ReviewState::Committed, ReviewState::Discarded, ReviewState::Replaced];
        let fits = |review: &&ReviewSummary| match query.state {
            ReviewStateFilter::Open => !settled.contains(&review.state),
            ReviewStateFilter::Committed => review.state == ReviewState::Committed,
            ReviewStateFilter::Discarded => review.state == ReviewState::Discarded,
            ReviewStateFilter::Any => true,
        };
        let titled = |review: &&ReviewSummary| review.title.contains(&query.filter);
        self.read(|world| {
            let reviews: Vec<ReviewSummary> =
                world.reviews.iter().filter(fits).filter(titled).cloned().collect();
            ReviewPage {
                next: reviews
                    .last()
                    .map(|last| Cursor::from(last.review.to_string()))
                    .filter(|_| world.long),
                reviews,
            }
        })
    }
    pub async fn proposals(
        &self,
        _: &Actor,
        query: &ProposalsQuery,
    ) -> Result<ProposalPage, Problem> {
        self.record(format!("proposals {}", serde_json::to_string(&query).expect("JSON")));
        self.read(|world| ProposalPage { proposals: world.proposals.clone(), next: None })
    }
    pub async fn planner(
        &self,
        _: &Actor,
        _: DeploymentId,
        _: Option<&str>,
    ) -> Result<Option<PlannerView>, Problem> {
        Err(Problem::not_found("This console plans nothing."))
    }

    pub async fn discussion(&self, _: &Actor, _: ReviewId) -> Result<Discussion, Problem> {
        self.read(|world| world.discussion.clone())
    }

    pub async fn changes_since_view(
        &self,
        _: &Actor,
        _: ReviewId,
    ) -> Result<ChangesSinceView, Problem> {
        self.read(|world| world.since.clone())
    }

    pub async fn viewed_changes(&self, _: &Actor, _: ReviewId) -> Result<ViewedChanges, Problem> {
        self.read(|world| world.opened.clone())
    }

    pub async fn mark_viewed(
        &self,
        _: &Actor,
        id: ReviewId,
        anchors: Vec<Anchor>,
    ) -> Result<ViewedChanges, Problem> {
        let anchors: Vec<String> = anchors.iter().map(ToString::to_string).collect();
        self.record(format!("opened {id} {}", anchors.join(" ")));
        self.read(|world| world.opened.clone())
    }

    pub async fn targets(
        &self,
        _: &Actor,
        query: &BlueprintsQuery,
    ) -> Result<BlueprintPage, Problem> {
        self.record(format!("targets {}", serde_json::to_string(&query).expect("JSON")));
        known(Some(query.deployment.as_str()).filter(|name| !name.is_empty()))?;
        self.read(|world| world.targets.clone())
    }
    pub async fn compare(
        &self,
        _: &Actor,
        from: Point,
        to: Point,
        deployment: Option<&str>,
    ) -> Result<Comparison, Problem> {
        known(deployment)?;
        match [from, to].contains(&Point::Number(BlueprintNumber(9))) {
            true => {
                Err(Problem::not_found("Blueprint 9 does not exist. Use a number from 1 to 3."))
            }
            false => self.read(|world| world.comparison.clone()),
        }
    }
    pub async fn record_view(&self, _: &Actor, id: ReviewId) -> Result<(), Problem> {
        self.record(format!("view {id}"));
        Ok(())
    }

    pub async fn open_thread(
        &self,
        _: &Actor,
        id: ReviewId,
        anchor: Anchor,
        body: String,
    ) -> Result<CommentId, Problem> {
        self.record(format!("open {id} {anchor} {body}"));
        Ok(CommentId(1))
    }

    pub async fn reply(
        &self,
        _: &Actor,
        thread: CommentId,
        body: String,
    ) -> Result<CommentId, Problem> {
        self.record(format!("reply {thread} {body}"));
        Ok(CommentId(2))
    }

    pub async fn resolve_thread(
        &self,
        _: &Actor,
        thread: CommentId,
        resolved: bool,
    ) -> Result<(), Problem> {
        self.record(format!("resolve {thread} {resolved}"));
        Ok(())
    }

    pub async fn graph(
        &self,
        _: &Actor,
        _: &str,
        _: &GraphOptions,
        _: MissingVertex,
    ) -> Result<GraphView, Problem> {
        self.read(|world| world.graph.clone())
    }

    pub async fn cluster_graph(
        &self,
        _: &Actor,
        _: &GraphOptions,
        _: MissingVertex,
    ) -> Result<GraphView, Problem> {
        let whole = |world: &World| GraphView {
            deployment: None,
            deployment_id: None,
            ..world.graph.clone()
        };
        self.read(whole)
    }

    pub async fn review_graph(
        &self,
        _: &Actor,
        _: ReviewId,
        _: &GraphOptions,
        _: MissingVertex,
    ) -> Result<GraphView, Problem> {
        self.read(|world| world.graph.clone())
    }

    pub async fn review(&self, _: &Actor, _: ReviewId) -> Result<ReviewView, Problem> {
        self.read(|world| world.review.clone())
    }

    pub async fn propose(&self, _: &Actor, _: DeploymentId) -> Result<ProposalId, Problem> {
        self.record("propose");
        self.0.lock().expect("an unpoisoned lock").board = proposed_board();
        Ok(ProposalId(7))
    }
    pub async fn propose_by_name(
        &self,
        _: &Actor,
        deployment: &str,
    ) -> Result<ProposalId, Problem> {
        self.record(format!("propose {deployment}"));
        self.read(|_| ProposalId(7))
    }
    pub async fn restore(
        &self,
        _: &Actor,
        deployment: &str,
        target: BlueprintNumber,
        partial: bool,
    ) -> Result<Restored, Problem> {
        self.record(format!("restore {deployment} {target} {partial}"));
        let mut problem = Problem::conflict(
            "not_restorable",
            "One thing of web at blueprint 1 can't be brought back.",
        );
        problem.errors = vec![api::problem::Finding {
            at: "app on n9".into(),
            detail: "the node was given up".into(),
        }];
        match partial {
            true => Ok(Restored { proposal: ProposalId(7), version: 1, edits: 2, missing: vec![] }),
            false => Err(problem),
        }
    }
    pub async fn propose_on_node(&self, _: &Actor, _: NodeId) -> Result<ProposalId, Problem> {
        self.record("propose_on_node");
        Ok(ProposalId(9))
    }

    pub async fn node_proposal(&self, _: &Actor, _: ProposalId) -> Result<NodeProposal, Problem> {
        self.record("node_proposal");
        self.read(|world| world.node_proposal.clone())
    }

    pub async fn proposed_noderole(
        &self,
        _: &Actor,
        _: ProposalId,
        _: NodeId,
        _: &NoderoleKey,
    ) -> Result<ProposedNoderole, Problem> {
        self.read(|_| ProposedNoderole {
            version: 1,
            data: json!({}),
            data_by: None,
            defaults: json!({}),
            attribs: vec![],
            proposed: false,
            rerun: false,
        })
    }

    pub async fn edit(
        &self,
        _: &Actor,
        _: ProposalId,
        version: i32,
        edits: Vec<Edit>,
    ) -> Result<i32, Problem> {
        self.record(format!("edit {}", serde_json::to_string(&edits).expect("JSON")));
        let mut world = self.0.lock().expect("an unpoisoned lock");
        for edit in edits {
            let Edit::Bind(edit::Bind { node, role, .. }) = edit else { continue };
            let bound = world.board.tray.iter().find(|tray| tray.node == node).cloned();
            let roles = &mut world.board.groups[0].roles;
            if let (Some(bound), Some(row)) = (bound, roles.iter_mut().find(|row| row.role == role))
            {
                let id = NoderoleId::of(node, &role, 0);
                let like = board_noderole(6, role.as_str(), StepState::Proposed);
                row.noderoles.push(BoardNoderole {
                    noderole: id,
                    node,
                    fqdn: bound.fqdn,
                    short: bound.short.clone(),
                    ..like
                });
                let text = format!("bind {} to {role}", bound.short);
                if let Some(proposal) = &mut world.board.proposal {
                    let seq = u32::try_from(proposal.edits.len() + 1).expect("a small number");
                    proposal.edits.push(EditView {
                        seq,
                        text: text.clone(),
                        actor: "ada".into(),
                        at: now(),
                        undone: false,
                        touched_by: Vec::new(),
                    });
                    proposal.undo = Some(text);
                    proposal.version = version + 1;
                }
            }
        }
        Ok(version + 1)
    }
    pub async fn preview_edits(
        &self,
        _: &Actor,
        _: ProposalId,
        _: Vec<Edit>,
    ) -> Result<EditsPreview, Problem> {
        self.read(|_| EditsPreview { refused: vec![], lines: vec!["Nothing is removed.".into()] })
    }
    pub async fn find_barclamps(
        &self,
        _: &Actor,
        query: &BarclampsQuery,
    ) -> Result<CatalogPage, Problem> {
        let after = query.after.as_ref().map(|place| place.to_string());
        self.read(|world| -> Result<CatalogPage, Problem> {
            let all = &world.catalog;
            let place =
                |hash: String| all.iter().position(|v| v.hash == hash).map(|place| 1 + place);
            let begin = after
                .map_or(Some(0), place)
                .ok_or_else(|| Problem::invalid("No version has that content."))?;
            let most = if world.long { 1 } else { all.len() };
            let versions: Vec<BarclampVersion> =
                all.iter().skip(begin).take(most).cloned().collect();
            let next = versions
                .last()
                .filter(|_| begin + versions.len() < all.len())
                .map(|v| Cursor::from(v.hash.clone()));
            Ok(CatalogPage { versions, next })
        })?
    }
    pub async fn roles(&self, _: &Actor, query: &RolesQuery) -> Result<RolePage, Problem> {
        self.read(|world| {
            let fits = |role: &&RoleSummary| role.name.as_str().contains(&query.filter);
            let mut roles: Vec<RoleSummary> = world.roles.iter().filter(fits).cloned().collect();
            if query.sort.descending {
                roles.reverse();
            }
            RolePage {
                count: roles.len(),
                roles,
                next: world.long.then(|| Cursor::from("name~-app~-demo".to_owned())),
            }
        })
    }
    pub async fn role(&self, _: &Actor, name: &str, _: &RoleQuery) -> Result<RoleView, Problem> {
        match name {
            "app" => self.read(|_| role_view()),
            _ => Err(Problem::not_found(format!("There is no role {name}."))),
        }
    }
    pub async fn role_graph(&self, _: &Actor, _: &RoleGraphQuery) -> Result<RoleGraph, Problem> {
        self.read(|world| {
            let vertex = |role: &RoleSummary| RoleVertex {
                name: role.name.clone(),
                barclamp: role.barclamp.clone(),
                flags: role.flags.clone(),
            };
            let roles: Vec<RoleVertex> = world.roles.iter().map(vertex).collect();
            let count = if world.long { MAX_GRAPH_ROLES + 1 } else { roles.len() };
            match (world.long, roles.len()) {
                (true, _) | (_, 0) => RoleGraph { count, ..RoleGraph::default() },
                _ => RoleGraph {
                    roles,
                    edges: vec![RoleEdge { from: 1, to: 0, reason: RoleEdgeReason::Requires }],
                    count,
                },
            }
        })
    }
    pub async fn imports(&self, _: &Actor, _: &ImportsQuery) -> Result<ImportPage, Problem> {
        self.read(|world| ImportPage { imports: world.imports.clone(), next: None })
    }
    pub async fn import_barclamps(
        &self,
        _: Option<&Actor>,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Imported, Problem> {
        let paths: Vec<&str> = files.keys().map(String::as_str).collect();
        self.record(format!("import {}", paths.join(" ")));
        Ok(Imported {
            barclamps: vec![ImportedVersion {
                name: BarclampName::parse("demo").expect("a name"),
                version: "2".into(),
                hash: engine::Hash::of_bytes(b"demo"),
                new: true,
            }],
            findings: Vec::new(),
            removed_parts: vec!["Barclamp demo 2 no longer has: role app".into()],
        })
    }
    pub async fn undo(&self, _: &Actor, _: ProposalId, version: i32) -> Result<i32, Problem> {
        self.record("undo");
        Ok(version + 1)
    }
    pub async fn redo(&self, _: &Actor, _: ProposalId, version: i32) -> Result<i32, Problem> {
        self.record("redo");
        Ok(version + 1)
    }
    pub async fn discard(&self, _: &Actor, _: ProposalId, _: i32) -> Result<(), Problem> {
        self.record("discard");
        self.0.lock().expect("an unpoisoned lock").board = board();
        Ok(())
    }
    pub async fn submit(
        &self,
        _: &Actor,
        _: ProposalId,
        _: i32,
        title: String,
    ) -> Result<ReviewId, Problem> {
        self.record(format!("submit {title}"));
        Ok(ReviewId(128))
    }
    pub async fn verdict_options(
        &self,
        _: &Actor,
        _: &RelyingParty,
        _: ReviewId,
        _: VerdictKind,
    ) -> Result<SignatureRequest, Problem> {
        Err(Problem::internal())
    }
    pub async fn add_signed_verdict(
        &self,
        _: &Actor,
        _: ReviewId,
        _: VerdictKind,
        _: String,
        _: Option<Signature>,
    ) -> Result<(), Problem> {
        Err(Problem::internal())
    }
    pub async fn give_verdict(
        &self,
        _: &Actor,
        _: ReviewId,
        kind: VerdictKind,
        reason: String,
    ) -> Result<(), Problem> {
        self.record(format!("give_verdict {} {reason}", kind.as_str()));
        Err(Problem::forbidden("You wrote part of this change, so another person must review it."))
    }
    pub async fn commit(&self, _: &Actor, commit: CommitInput) -> Result<BlueprintNumber, Problem> {
        self.record(if commit.cancel { "commit and cancel" } else { "commit" });
        Ok(BlueprintNumber(128))
    }
    pub async fn retry(&self, _: &Actor, _: NoderoleId, reason: String) -> Result<(), Problem> {
        self.record(format!("retry {reason}"));
        Ok(())
    }
    pub async fn cancel(&self, _: &Actor, _: RunId) -> Result<(), Problem> {
        self.record("cancel");
        Ok(())
    }
    pub async fn reviewed_noderole(
        &self,
        _: &Actor,
        _: ReviewId,
        _: NodeId,
        key: &NoderoleKey,
    ) -> Result<ReviewedNoderole, Problem> {
        self.read(|_| ReviewedNoderole {
            role: key.role.clone(),
            values: Vec::new(),
            all: 0,
            check: None,
            scripts: Vec::new(),
            more_scripts: 0,
        })
    }
    pub async fn review_report(
        &self,
        _: &Actor,
        _: ReviewId,
    ) -> Result<Option<engine::report::Report>, Problem> {
        self.read(|world| world.report.clone())
    }
    pub async fn node(&self, _: &Actor, name: &str) -> Result<NodeView, Problem> {
        let found = self.read(|world| world.machine.clone())?;
        match name == found.fqdn || name == found.id.to_string() {
            true => Ok(found),
            false => Err(Problem::not_found(format!("Node {name} does not exist."))),
        }
    }
    pub async fn node_health_checks(
        &self,
        actor: &Actor,
        name: &str,
        query: &HealthChecksQuery,
    ) -> Result<HealthCheckPage, Problem> {
        let found = self.node(actor, name).await?;
        let before = number_in(query.before.as_ref());
        let fits = |check: &HealthCheckView| {
            before.is_none_or(|before| check.at.0 < before)
                && query.reached.is_none_or(|reached| check.reached == reached)
                && check.message.contains(&query.filter)
        };
        let mut checks = found.health_checks.into_iter().filter(fits);
        let page: Vec<HealthCheckView> = checks.by_ref().take(1).collect();
        let next = checks.next().and(page.last().map(|check| Cursor::from(check.at.0.to_string())));
        Ok(HealthCheckPage { health_checks: page, next })
    }
    pub async fn node_results(
        &self,
        actor: &Actor,
        name: &str,
        query: &ResultsQuery,
    ) -> Result<ResultPage, Problem> {
        self.node(actor, name).await?;
        self.read(|world| {
            let all = world.results.len();
            let before = number_in(query.before.as_ref());
            let fits = |line: &&ResultLine| {
                before.is_none_or(|before| line.run.0 < before)
                    && query.outcome.is_none_or(|outcome| line.outcome == outcome.as_str())
                    && (query.role.is_empty() || line.role == query.role)
            };
            let mut lines = world.results.iter().filter(fits).cloned();
            let results: Vec<ResultLine> = lines.by_ref().take(1).collect();
            let next =
                lines.next().and(results.last().map(|line| Cursor::from(line.run.to_string())));
            ResultPage { results, all, next }
        })
    }
    pub async fn node_noderoles(
        &self,
        actor: &Actor,
        name: &str,
        query: &NodeNoderolesQuery,
    ) -> Result<NodeNoderolePage, Problem> {
        let found = self.node(actor, name).await?;
        let fits = |carried: &NodeNoderole| {
            query.after.is_none()
                && query.state.is_none_or(|state| carried.state == state)
                && (query.role.is_empty() || carried.role.as_str() == query.role)
        };
        Ok(NodeNoderolePage {
            noderoles: found.noderoles.into_iter().filter(fits).collect(),
            next: None,
        })
    }
    pub async fn change_node(
        &self,
        _: &Actor,
        _: NodeId,
        version: i32,
        change: NodeChange,
    ) -> Result<i32, Problem> {
        self.record(format!(
            "change node {version} {}",
            serde_json::to_string(&change).expect("JSON")
        ));
        Ok(version + 1)
    }
    pub async fn set_maintenance(
        &self,
        _: &Actor,
        _: NodeId,
        maintenance: bool,
        reason: String,
    ) -> Result<(), Problem> {
        self.record(format!("maintenance {maintenance} {reason}"));
        Ok(())
    }
    pub async fn create_node_token(
        &self,
        _: &Actor,
        _: NodeId,
        name: String,
        days: u32,
    ) -> Result<CreatedNodeToken, Problem> {
        self.record(format!("mint {name} {days}"));
        Ok(CreatedNodeToken { id: Uuid::from_u128(7), token: "0123abcd".into(), expires: now() })
    }
    pub async fn revoke_node_token(
        &self,
        _: &Actor,
        _: NodeId,
        token: Uuid,
    ) -> Result<(), Problem> {
        self.record(format!("revoke {token}"));
        Ok(())
    }
    pub async fn delete_node(
        &self,
        _: &Actor,
        node: NodeId,
        _: Option<i32>,
    ) -> Result<(), Problem> {
        self.record(format!("take out {node}"));
        Ok(())
    }
    pub async fn add_node(&self, _: &Actor, request: NodeRequest) -> Result<NodeId, Problem> {
        let NodeRequest { fqdn, root, .. } = request;
        self.record(format!("add {fqdn} {root}"));
        Err(Problem::conflict(
            "duplicate_node",
            format!("{fqdn} is here already: choose another name."),
        ))
    }
    pub async fn add_nodes(&self, _: &Actor, text: &str) -> Result<AddedNodes, Problem> {
        self.record(format!("add many {text:?}"));
        let errors = text.lines().enumerate().map(|(at, line)| {
            let detail = format!("Node {line} already exists.");
            api::problem::Finding { at: format!("line {}", at + 1), detail }
        });
        Err(Problem {
            errors: errors.collect(),
            ..Problem::conflict("nodes_refused", "No node was added.")
        })
    }
    pub async fn hold(
        &self,
        _: &Actor,
        _: DeploymentId,
        on_hold: bool,
        reason: String,
    ) -> Result<(), Problem> {
        self.record(format!("hold {on_hold} {reason}"));
        Ok(())
    }
    pub async fn set_priority(
        &self,
        _: &Actor,
        _: DeploymentId,
        priority: i32,
        reason: String,
    ) -> Result<(), Problem> {
        self.record(format!("priority {priority} {reason}"));
        Ok(())
    }
    pub async fn switch(
        &self,
        _: &Actor,
        enabled: bool,
        reason: String,
    ) -> Result<BlueprintNumber, Problem> {
        self.record(format!("switch {enabled} {reason}"));
        Ok(BlueprintNumber(129))
    }
    pub async fn sign_out(&self, _: &Actor) -> Result<(), Problem> {
        self.record("sign out");
        Ok(())
    }
    pub async fn add_admin_contacts(&self, problem: Problem) -> Problem {
        problem
    }
}
