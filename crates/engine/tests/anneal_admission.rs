//! Admission: each rule holds back exactly the right steps and reports it, and picks are ordered
//! and fair.

#![expect(clippy::unwrap_used, reason = "a test that can't set up its view fails")]

use std::collections::BTreeSet;

use engine::anneal::{
    AdmissionView, BudgetId, BudgetView, ClaimPlan, ConcurrencyGroupKey, ConcurrencyGroupLimit,
    DeploymentView, Limits, NodeView, OpenRun, Reason, StepState, StepView, Timestamp, admit,
    awaited_steps, unmet_rules,
};
use engine::catalog::{ConcurrencyGroupMode, Needs, OnError};
use engine::ids::{
    ConcurrencyGroupName, DeploymentId, DeploymentName, JigName, NodeId, NoderoleId, StepId,
};
use proptest::prelude::*;
use uuid::Uuid;

const LIMITS: Limits = Limits { running: 10, batch: 10 };

fn step_id(n: u128) -> StepId {
    StepId(Uuid::from_u128(n))
}

/// By default, each step is the only action of its noderole.
fn noderole_id(n: u128) -> NoderoleId {
    NoderoleId(Uuid::from_u128(300 + n))
}

fn node_id(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(100 + n))
}

fn deployment_id(n: u128) -> DeploymentId {
    DeploymentId(Uuid::from_u128(200 + n))
}

fn concurrency_group(deployment: u128, name: &str) -> ConcurrencyGroupKey {
    ConcurrencyGroupKey {
        deployment: deployment_id(deployment),
        name: ConcurrencyGroupName::parse(name).unwrap(),
    }
}

fn step(n: u128, node: u128) -> (StepId, StepView) {
    let view = StepView {
        noderole: noderole_id(n),
        node: node_id(node),
        concurrency_group: concurrency_group(1, "app"),
        jig: JigName::parse("script").unwrap(),
        state: StepState::Todo,
        pending: 0,
        priority: 0,
        ready_since: Timestamp(0),
        rank: 0,
        not_before: Timestamp(0),
        failures: 0,
        needs: Needs::Alive,
        exclusive: true,
        on_error: OnError::Descendants,
        budgets: BTreeSet::new(),
        needs_no_run: false,
        is_joined: true,
    };
    (step_id(n), view)
}

/// Deployments system (0) and its children web (1) and db (2), five healthy nodes, and these steps.
fn view(steps: impl IntoIterator<Item = (StepId, StepView)>) -> AdmissionView {
    let deployment = |n: u128, name: &str, parent: Option<u128>| {
        let name = DeploymentName::parse(name).unwrap();
        (
            deployment_id(n),
            DeploymentView { name, parent: parent.map(deployment_id), on_hold_by: None },
        )
    };
    let node = |n: u128| {
        let view = NodeView {
            name: format!("n{n}"),
            phantom: false,
            alive: true,
            available: true,
            confirmed: true,
        };
        (node_id(n), view)
    };
    let free = ConcurrencyGroupLimit { max_running: None, mode: ConcurrencyGroupMode::Rolling };
    AdmissionView {
        now: Timestamp(1_000_000_000),
        enabled: true,
        capacity: 100,
        draining: 0,
        deployments: [
            deployment(0, "system", None),
            deployment(1, "web", Some(0)),
            deployment(2, "db", Some(0)),
        ]
        .into(),
        concurrency_groups: [
            (concurrency_group(1, "app"), free),
            (concurrency_group(2, "app"), free),
        ]
        .into(),
        budgets: [(BudgetId(1), BudgetView { name: "quorum".into(), max_down: 1 })].into(),
        nodes: (1..=5).map(node).collect(),
        jigs: [(JigName::parse("script").unwrap(), true)].into(),
        unsupported_jigs: Default::default(),
        steps: steps.into_iter().collect(),
        awaited: Default::default(),
        open: Vec::new(),
    }
}

fn open(n: u128, node: u128) -> OpenRun {
    OpenRun {
        step: step_id(n),
        noderole: noderole_id(n),
        node: node_id(node),
        concurrency_group: concurrency_group(1, "app"),
        exclusive: true,
    }
}

fn reasons(view: &AdmissionView, n: u128) -> Vec<String> {
    unmet_rules(view, LIMITS, step_id(n)).iter().map(ToString::to_string).collect()
}

type ViewChange = fn(&mut AdmissionView);

fn the_step(view: &mut AdmissionView) -> &mut StepView {
    view.steps.get_mut(&step_id(1)).unwrap()
}

fn the_node(view: &mut AdmissionView) -> &mut NodeView {
    view.nodes.get_mut(&node_id(1)).unwrap()
}

fn other(view: &mut AdmissionView, change: fn(&mut StepView)) {
    let (id, mut other) = step(2, 1);
    change(&mut other);
    view.steps.insert(id, other);
}

/// Tests every rule alone: the step is admitted without it, and pending with it, for this reason.
#[test]
fn every_rule_applies_and_is_reported() {
    let rules: [(ViewChange, &str); 24] = [
        (|v| v.enabled = false, "Execution is off. An operator must turn it on"),
        (
            |v| v.capacity = 0,
            "No worker is running, or all are draining (0 runs open, 10 allowed). Start one with \
             `gantry worker`",
        ),
        (
            |v| {
                v.capacity = 1;
                v.open.push(open(9, 5));
            },
            "The run limit is reached: 1 run is open. The limit is 10, and the workers can run 1",
        ),
        (
            |v| {
                (v.capacity, v.draining) = (1, 1);
                v.open.extend([open(8, 4), open(9, 5)]);
            },
            "The run limit is reached: 2 runs are open, 1 of them on draining workers. The limit \
             is 10, and the workers can run 1",
        ),
        (
            |v| {
                the_step(v).state = StepState::Blocked;
                the_step(v).pending = 2;
            },
            "Waits for 2 parents",
        ),
        (|v| the_step(v).state = StepState::Transition, "A run of this step is open"),
        (
            |v| the_step(v).state = StepState::Error,
            "The step failed: look at its last run, then retry it",
        ),
        (
            |v| the_step(v).state = StepState::Active,
            "The step is ACTIVE, so there is nothing to \
                                                     start",
        ),
        (|v| the_step(v).needs_no_run = true, "The step needs no run and becomes active by itself"),
        (
            |v| {
                the_step(v).failures = 3;
                the_step(v).not_before = Timestamp(1_004_000_001);
            },
            "The step failed 3 times. It runs again in 5 s, or immediately with a retry",
        ),
        (
            |v| v.jigs.values_mut().for_each(|active| *active = false),
            "Jig script is turned off. Propose to turn it on",
        ),
        (
            |v| v.deployments.get_mut(&deployment_id(0)).unwrap().on_hold_by = Some("ada".into()),
            "Deployment system was put on hold by ada",
        ),
        (|v| the_node(v).available = false, "Node n1 is in maintenance. End the maintenance"),
        (|v| the_node(v).alive = false, "Node n1 does not answer"),
        (
            |v| the_step(v).needs = Needs::Dead,
            "Node n1 is up, but this step runs only for a dead node",
        ),
        (
            |v| the_node(v).confirmed = false,
            "Node n1 has not joined yet. A worker must reach it first",
        ),
        (
            |v| {
                other(v, |other| {
                    other.state = StepState::Error;
                    other.on_error = OnError::Node;
                });
            },
            "Node n1 is blocked by the error of step 00000000-0000-0000-0000-000000000002. Retry \
             or change that step",
        ),
        (
            |v| v.open.push(open(9, 1)),
            "Waits for node n1: step 00000000-0000-0000-0000-000000000009 runs there",
        ),
        (
            |v| v.open.push(OpenRun { noderole: noderole_id(1), exclusive: false, ..open(9, 1) }),
            "Waits for another action of this noderole: step \
             00000000-0000-0000-0000-000000000009 runs",
        ),
        (
            |v| {
                v.concurrency_groups.get_mut(&concurrency_group(1, "app")).unwrap().max_running =
                    Some(2);
                v.open.extend([open(8, 4), open(9, 5)]);
            },
            "Concurrency group web/app is full: 2 of 2 runs are open",
        ),
        (
            |v| {
                v.concurrency_groups.insert(
                    concurrency_group(1, "app"),
                    ConcurrencyGroupLimit {
                        max_running: Some(2),
                        mode: ConcurrencyGroupMode::Chunk,
                    },
                );
                v.open.push(open(9, 5));
            },
            "Waits for the current chunk of concurrency group web/app: 1 still running",
        ),
        (
            |v| {
                the_step(v).budgets.insert(BudgetId(1));
                other(v, |other| {
                    other.budgets.insert(BudgetId(1));
                    other.node = node_id(2);
                    other.failures = 1;
                });
            },
            "Disruption budget quorum is exhausted: 1 is down, and the limit is 1 node",
        ),
        (
            |v| v.concurrency_groups.clear(),
            "Unknown concurrency group web/app. Restore it from a backup, or report a bug",
        ),
        (
            |v| the_step(v).is_joined = false,
            "The step is TODO, but a parent is not done: its stored count is wrong. Run `gantry \
             verify`, then restore the step from a backup",
        ),
    ];
    assert_eq!(admit(&view([step(1, 1)]), LIMITS), [step_id(1)]);
    for (spoil, words) in rules {
        let mut view = view([step(1, 1)]);
        spoil(&mut view);
        assert_eq!(reasons(&view, 1), [words]);
        assert!(!admit(&view, LIMITS).contains(&step_id(1)), "{words}");
    }
}

#[test]
fn rules_ignore_unrelated_conditions() {
    let mut phantom = view([step(1, 1)]);
    *the_node(&mut phantom) = NodeView {
        name: "web".into(),
        phantom: true,
        alive: true,
        available: true,
        confirmed: false,
    };
    assert_eq!(reasons(&phantom, 1), [""; 0], "a phantom node does not need to join");

    let mut dead = view([step(1, 1)]);
    the_node(&mut dead).alive = false;
    the_node(&mut dead).confirmed = false;
    for (needs, may) in [(Needs::Alive, false), (Needs::Any, true), (Needs::Dead, true)] {
        the_step(&mut dead).needs = needs;
        assert_eq!(unmet_rules(&dead, LIMITS, step_id(1)).is_empty(), may, "{needs:?}");
    }

    let mut shared = view([step(1, 1)]);
    the_step(&mut shared).exclusive = false;
    shared.open.push(open(9, 1));
    assert_eq!(reasons(&shared, 1), [""; 0], "only exclusive steps block each other");

    // Another step already counts the node against the disruption budget, which counts it once.
    let mut budget = view([step(1, 1)]);
    the_step(&mut budget).budgets.insert(BudgetId(1));
    other(&mut budget, |other| {
        other.budgets.insert(BudgetId(1));
        other.state = StepState::Error;
    });
    assert_eq!(reasons(&budget, 1), [""; 0]);

    // A step's own error does not freeze it on a retry. An error of a step without that policy
    // freezes nothing.
    let mut error = view([step(1, 1)]);
    other(&mut error, |other| other.state = StepState::Error);
    assert_eq!(reasons(&error, 1), [""; 0]);
    assert_eq!(
        reasons(&error, 7),
        ["Unknown step 00000000-0000-0000-0000-000000000007. Restore it from a backup, or \
             report a bug"]
    );
}

#[test]
fn order_uses_priority_turn_ready_rank_id() {
    let mut steps: Vec<_> = (1..=5).map(|n| step(n, n)).collect();
    steps[4].1.priority = 1;
    steps[3].1.ready_since = Timestamp(-1);
    steps[3].1.rank = 9;
    steps[0].1.rank = 1;
    let picks = admit(&view(steps), LIMITS);
    assert_eq!(picks, [5, 4, 2, 3, 1].map(step_id));
}

#[test]
fn deployments_take_turns() {
    let mut steps: Vec<_> = (1..=5).map(|n| step(n, n)).collect();
    for (_, step) in &mut steps[3..] {
        step.concurrency_group = concurrency_group(2, "app");
        step.ready_since = Timestamp(5);
    }
    let mut view = view(steps);
    assert_eq!(admit(&view, Limits { running: 10, batch: 4 }), [1, 4, 2, 5].map(step_id));
    // Open runs count.
    view.open.extend([8, 9].map(|n| OpenRun { exclusive: false, ..open(n, 1) }));
    assert_eq!(admit(&view, Limits { running: 10, batch: 4 }), [4, 5, 1, 2].map(step_id));
}

#[test]
fn chunk_starts_together_and_waits_for_end() {
    let mut view = view((1..=5).map(|n| step(n, n)));
    view.concurrency_groups.insert(
        concurrency_group(1, "app"),
        ConcurrencyGroupLimit { max_running: Some(3), mode: ConcurrencyGroupMode::Chunk },
    );
    assert_eq!(admit(&view, LIMITS), [1, 2, 3].map(step_id));
    view.open.push(open(1, 1));
    view.steps.remove(&step_id(1));
    assert_eq!(admit(&view, LIMITS), []);
}

/// A failed step that is BLOCKED may wait for a step on a node of the same budget.
#[test]
fn awaited_step_may_exceed_a_stuck_budget() {
    // Step 1 failed. It waits for step 4, and that for steps 2 and 3.
    let mut view = view((1..=5).map(|n| step(n, n)));
    for step in view.steps.values_mut() {
        step.budgets.insert(BudgetId(1));
    }
    for n in [1, 4] {
        view.steps.get_mut(&step_id(n)).unwrap().state = StepState::Blocked;
    }
    view.steps.get_mut(&step_id(1)).unwrap().failures = 1;
    let parents = [(1, vec![4]), (4, vec![2, 3])];
    let parents = parents.map(|(n, of)| (step_id(n), of.into_iter().map(step_id).collect()));
    view.awaited = awaited_steps(&view.steps, &parents.into());
    assert_eq!(view.awaited, [(BudgetId(1), [step_id(2), step_id(3)].into())].into());
    assert_eq!(
        admit(&view, LIMITS),
        [step_id(2)],
        "one awaited step may exceed the budget, and no other step"
    );

    let (id, on_same_node) = step(6, 1);
    view.steps.insert(id, on_same_node);
    assert_eq!(
        admit(&view, LIMITS),
        [2, 6].map(step_id),
        "steps outside of the budget don't count"
    );
    view.steps.get_mut(&id).unwrap().budgets.insert(BudgetId(1));
    assert_eq!(admit(&view, LIMITS), [step_id(6)], "a step of the down node can start");

    view.steps.remove(&id);
    view.steps.get_mut(&step_id(5)).unwrap().state = StepState::Transition;
    assert_eq!(admit(&view, LIMITS), [], "a step of another down node runs");
    view.steps.get_mut(&step_id(5)).unwrap().state = StepState::Todo;
    view.nodes.get_mut(&node_id(1)).unwrap().alive = false;
    assert_eq!(admit(&view, LIMITS), [], "no step waits for the dead node");
}

fn any_view() -> impl Strategy<Value = AdmissionView> {
    let any_step = (
        (
            1..=5u128,
            1..=8u128,
            1..=2u128,
            any::<bool>(),
            proptest::bool::weighted(0.8),
            proptest::bool::weighted(0.1),
        ),
        (
            0..2i32,
            0..3i64,
            0..3u32,
            0..2u32,
            proptest::collection::btree_set((1..=2i64).prop_map(BudgetId), 0..=2),
        ),
        prop_oneof![
            6 => Just(StepState::Todo),
            1 => Just(StepState::Transition),
            1 => Just(StepState::Error),
            2 => Just(StepState::Blocked),
        ],
        prop_oneof![8 => Just(Needs::Alive), 1 => Just(Needs::Any), 1 => Just(Needs::Dead)],
    );
    let steps = proptest::collection::vec(any_step, 1..14);
    let nodes = proptest::collection::vec(
        (proptest::bool::weighted(0.85), proptest::bool::weighted(0.95)),
        5,
    );
    let concurrency_groups =
        proptest::collection::vec((proptest::option::of(1..4u32), any::<bool>()), 4);
    (steps, nodes, concurrency_groups, 1..3u32, (1..8u32, 0..3u32)).prop_map(
        |(steps, nodes, concurrency_groups, max_down, (capacity, draining))| {
            let mut view = view([]);
            view.capacity = capacity;
            for ((alive, available), node) in nodes.into_iter().zip(view.nodes.values_mut()) {
                (node.alive, node.available) = (alive, available);
            }
            for (n, (max_running, chunk)) in concurrency_groups.into_iter().enumerate() {
                let mode =
                    if chunk { ConcurrencyGroupMode::Chunk } else { ConcurrencyGroupMode::Rolling };
                view.concurrency_groups.insert(
                    concurrency_group(1 + n as u128 % 2, ["app", "other"][n / 2]),
                    ConcurrencyGroupLimit { max_running, mode },
                );
            }
            for budget in [1, 2] {
                view.budgets
                    .insert(BudgetId(budget), BudgetView { name: format!("b{budget}"), max_down });
            }
            for (
                n,
                (
                    (node, noderole, deployment, app, exclusive, freezes),
                    (priority, since, rank, failures, budgets),
                    state,
                    needs,
                ),
            ) in steps.into_iter().enumerate()
            {
                let (id, mut step) = step(n as u128 + 1, node);
                step.noderole = noderole_id(10 * node + noderole);
                step.concurrency_group =
                    concurrency_group(deployment, if app { "app" } else { "other" });
                (step.exclusive, step.priority, step.ready_since, step.rank) =
                    (exclusive, priority, Timestamp(since), rank);
                (step.failures, step.budgets, step.state, step.needs) =
                    (failures, budgets, state, needs);
                step.on_error = if freezes { OnError::Node } else { OnError::Descendants };
                if state == StepState::Transition {
                    view.open.push(OpenRun {
                        step: id,
                        noderole: step.noderole,
                        node: step.node,
                        concurrency_group: step.concurrency_group.clone(),
                        exclusive,
                    });
                }
                view.steps.insert(id, step);
            }
            let awaited = |budget| {
                (
                    BudgetId(budget),
                    view.steps.keys().copied().filter(|id| id.0.as_u128() % 3 == 0).collect(),
                )
            };
            view.awaited = [1, 2].map(awaited).into();
            let open = u32::try_from(view.open.len()).unwrap_or(u32::MAX);
            view.draining = draining.min(open);
            view
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Counts the limits over open runs and picks, and checks that no admissible step is left.
    #[test]
    fn picks_respect_limits_and_are_complete(view in any_view(), running in 1..8u32) {
        let limits = Limits { running, batch: 100 };
        let picks = admit(&view, limits);
        let mut taken = ClaimPlan::new(&view, limits);
        for pick in &picks {
            prop_assert_eq!(taken.take(*pick), Ok(()));
        }
        for (id, _) in view.steps.iter().filter(|(id, s)| s.state == StepState::Todo && !picks.contains(id)) {
            prop_assert!(!taken.reasons(*id).is_empty(), "{} was left, and may start", id);
        }

        let runs = |(id, step): &(&StepId, &StepView)| step.state == StepState::Transition || picks.contains(id);
        let after: Vec<(&StepId, &StepView)> = view.steps.iter().filter(runs).collect();
        if !picks.is_empty() {
            prop_assert!(after.len() <= running.min(view.capacity + view.draining) as usize);
        }
        for pick in &picks {
            let step = &view.steps[pick];
            let on_node = after.iter().filter(|(_, s)| s.node == step.node && s.exclusive).count();
            prop_assert!(!step.exclusive || on_node == 1);
            prop_assert_eq!(after.iter().filter(|(_, s)| s.noderole == step.noderole).count(), 1);
            let node = &view.nodes[&step.node];
            prop_assert!(node.available);
            let fits = match step.needs {
                Needs::Alive => node.alive,
                Needs::Any => true,
                Needs::Dead => !node.alive,
            };
            prop_assert!(fits);
            let freezes = |s: &StepView| s.state == StepState::Error && s.on_error == OnError::Node;
            prop_assert!(!view.steps.values().any(|s| s.node == step.node && freezes(s)));
            let concurrency_group = &view.concurrency_groups[&step.concurrency_group];
            let in_group = after.iter().filter(|(_, s)| s.concurrency_group == step.concurrency_group).count();
            prop_assert!(concurrency_group.max_running.is_none_or(|max| in_group <= max as usize));
            prop_assert!(concurrency_group.mode == ConcurrencyGroupMode::Rolling || !view.open.iter().any(|run| run.concurrency_group == step.concurrency_group));
            for budget in &step.budgets {
                let in_budget = || view.steps.iter().filter(|(_, s)| s.budgets.contains(budget));
                let fails = |s: &StepView| matches!(s.state, StepState::Transition | StepState::Error) || !view.nodes[&s.node].alive;
                let before: BTreeSet<NodeId> = in_budget().filter(|(_, s)| fails(s) || s.failures > 0).map(|(_, s)| s.node).collect();
                let moves = |s: &StepView| before.contains(&s.node) && (fails(s) || s.state == StepState::Todo);
                let stuck = !before.is_empty() && !in_budget().any(|(_, s)| moves(s));
                let mut now = before.clone();
                now.extend(in_budget().filter(|(id, _)| picks.contains(id)).map(|(_, s)| s.node));
                let max_down = view.budgets[budget].max_down as usize;
                let may_exceed = stuck && now.len() == before.len() + 1
                    && view.awaited.get(budget).is_some_and(|awaited| picks.iter().any(|pick| awaited.contains(pick)));
                prop_assert!(before.contains(&step.node) || now.len() <= max_down || may_exceed);
            }
        }
        // A step of higher priority is passed over only for a reason that existed before any lower
        // pick.
        let mut taken = ClaimPlan::new(&view, limits);
        for pick in &picks {
            for (id, step) in view.steps.iter().filter(|(id, _)| !picks.contains(id)) {
                prop_assert!(step.priority <= view.steps[pick].priority || !taken.reasons(*id).is_empty());
            }
            prop_assert_eq!(taken.take(*pick), Ok(()));
        }
        if picks.is_empty() {
            for id in view.steps.keys() {
                prop_assert_ne!(unmet_rules(&view, limits, *id), Vec::<Reason>::new());
            }
        }
    }
}
