//! Applies each event in each state: the tables of the annealer's specification.

#![expect(clippy::unwrap_used, reason = "a test that can't set up its steps fails")]

use std::time::Duration;

use engine::anneal::{
    Cause, Change, Child, Committed, Event, InvariantViolation, LOSSES, Outcome, Progress, Refused,
    RerunReason, Step, StepState, Stop, World, apply,
};
use engine::catalog::{Join, JoinAfter, JoinNeed, Needs};
use engine::cluster::EdgeKind::{self, Hard, OrderOnly};
use engine::ids::{BlueprintNumber, NodeId, StepId};
use uuid::Uuid;

use StepState::{Active, Blocked, Error, Todo, Transition};

const NODE: NodeId = NodeId(Uuid::from_u128(1));
const NOW: BlueprintNumber = BlueprintNumber(7);

fn id(n: u128) -> StepId {
    StepId(Uuid::from_u128(n))
}

/// A step in this state at generation 7. An ACTIVE step has applied it, and a BLOCKED one waits for
/// one parent.
fn step(n: u128, state: StepState) -> Step {
    Step {
        id: id(n),
        node: NODE,
        rank: n as u32,
        join: Join::default(),
        destructive: false,
        immediate: false,
        skipped: false,
        needs: Needs::Alive,
        retries: 0,
        backoff: 10,
        progress: Progress {
            state,
            pending: u32::from(state == Blocked),
            applied: (state == Active).then_some(NOW),
            ..Progress::new(NOW, true)
        },
    }
}

/// A world of these steps and edges (parent, child, kind), all on one node.
fn world(steps: Vec<Step>, edges: &[(u128, u128, EdgeKind)]) -> World {
    let mut world = World::default();
    world.on_node.insert(NODE, steps.iter().map(|step| step.id).collect());
    for step in steps {
        let children = edges.iter().filter(|(parent, ..)| id(*parent) == step.id);
        let children =
            children.map(|(_, child, kind)| Child { step: id(*child), kind: *kind }).collect();
        world.add(step, children);
    }
    world
}

fn apply_to(world: &mut World, n: u128, event: Event) -> Result<Outcome, Refused> {
    match apply(world, &Change::Step { step: id(n), event }) {
        Ok(outcome) => {
            world.take(&outcome);
            Ok(outcome)
        }
        Err(Stop::Refused(refused)) => Err(refused),
        Err(other) => panic!("{other:?}"),
    }
}

/// Applies the event to a single step.
fn alone(step: Step, event: Event) -> Result<Step, Refused> {
    let id = step.id;
    let mut world = world(vec![step], &[]);
    apply_to(&mut world, 1, event).map(|_| world.steps.remove(&id).unwrap())
}

fn states(world: &World) -> Vec<(StepState, u32)> {
    world.steps.values().map(|step| (step.progress.state, step.progress.pending)).collect()
}

fn failed(retry: bool) -> Event {
    Event::Failed { generation: NOW, reason: "exit 1".into(), retry }
}

/// The result of each event on a plain step in each state; `None` if the event is refused.
#[test]
fn each_event_in_each_state_is_correct() {
    let rerun = |n| Event::Rerun { generation: BlueprintNumber(n), reason: RerunReason::Slice };
    let check = |rerun| Event::CheckFailed { reason: "down".into(), rerun };
    let table: [(Event, [Option<StepState>; 5]); 14] = [
        // from: BLOCKED, TODO, TRANSITION, ACTIVE, ERROR
        (Event::Started, [None, Some(Transition), None, None, None]),
        (Event::Succeeded { generation: NOW }, [None, None, Some(Active), None, None]),
        (Event::Succeeded { generation: BlueprintNumber(6) }, [None, None, Some(Todo), None, None]),
        (failed(false), [None, None, Some(Error), None, None]),
        (Event::Lost { generation: NOW }, [None, None, Some(Todo), None, None]),
        (Event::NeverStarted, [None, None, Some(Todo), None, None]),
        (Event::Canceled { by: "ada".into() }, [None, None, Some(Error), None, None]),
        (Event::Retry { reason: RerunReason::Retry }, [None, None, None, None, Some(Todo)]),
        (rerun(7), [Some(Blocked), Some(Todo), Some(Transition), Some(Todo), Some(Todo)]),
        (rerun(8), [Some(Blocked), Some(Todo), Some(Transition), Some(Todo), Some(Todo)]),
        (rerun(6), [None, None, None, None, None]),
        (check(true), [None, None, None, Some(Todo), None]),
        (check(false), [None, None, None, Some(Error), None]),
        (Event::CheckPassed, [None, None, None, None, None]),
    ];
    for (event, row) in table {
        for (state, expected) in StepState::ALL.into_iter().zip(row) {
            let found = alone(step(1, state), event.clone());
            assert_eq!(
                found.as_ref().ok().map(|step| step.progress.state),
                expected,
                "{state} {event:?}"
            );
            if let Err(Refused::State { .. }) = found {
                let reported = found.unwrap_err().to_string();
                assert!(
                    reported.contains(&state.to_string()) && reported.contains(": "),
                    "{reported}"
                );
            }
        }
    }
}

/// With a parent missing, every return leads to BLOCKED. A success still leads to ACTIVE.
#[test]
fn missing_parent_leads_to_blocked() {
    let missing = |state| {
        let mut step = step(1, state);
        step.progress.pending = 2;
        step.retries = 9;
        step
    };
    let after = |state, event| alone(missing(state), event).unwrap().progress;
    assert_eq!(after(Transition, Event::NeverStarted).state, Blocked);
    assert_eq!(after(Transition, failed(true)).state, Blocked);
    assert_eq!(after(Transition, Event::Lost { generation: NOW }).state, Blocked);
    assert_eq!(
        after(Transition, Event::Succeeded { generation: BlueprintNumber(6) }).state,
        Blocked
    );
    assert_eq!(after(Transition, Event::Succeeded { generation: NOW }).state, Active);
    assert_eq!(after(Error, Event::Retry { reason: RerunReason::Retry }).state, Blocked);
    assert_eq!(
        after(Active, Event::Rerun { generation: BlueprintNumber(8), reason: RerunReason::Slice })
            .state,
        Blocked
    );
    assert_eq!(
        after(Active, Event::Rerun { generation: BlueprintNumber(8), reason: RerunReason::Slice })
            .pending,
        2
    );
}

#[test]
fn success_applies_to_own_generation_only() {
    let mut running = step(1, Transition);
    running.progress.failures = 2;
    running.progress.error = Some("exit 1".into());
    running.progress.cause = Some(Cause::new(RerunReason::Drift));
    let done = alone(running.clone(), Event::Succeeded { generation: NOW }).unwrap().progress;
    assert_eq!((done.applied, done.failures, done.error, done.cause), (Some(NOW), 0, None, None));

    // A commit over the running step: the run continues, but its result is not applied.
    let mut world = world(vec![running], &[]);
    apply_to(
        &mut world,
        1,
        Event::Rerun { generation: BlueprintNumber(8), reason: RerunReason::Changed },
    )
    .unwrap();
    assert_eq!(world.steps[&id(1)].progress.state, Transition);
    assert_eq!(world.steps[&id(1)].progress.failures, 0);
    apply_to(&mut world, 1, Event::Succeeded { generation: NOW }).unwrap();
    let after = &world.steps[&id(1)].progress;
    assert_eq!((after.state, after.applied, after.generation), (Todo, None, BlueprintNumber(8)));
    assert_eq!(after.cause, Some(Cause::new(RerunReason::Changed)));
}

#[test]
fn cause_during_run_triggers_next_run() {
    let mut world = world(vec![step(1, Transition), step(2, Blocked)], &[(1, 2, Hard)]);
    apply_to(&mut world, 1, Event::Rerun { generation: NOW, reason: RerunReason::Data }).unwrap();
    assert_eq!(
        world.steps[&id(1)].progress.cause,
        Some(Cause { reason: RerunReason::Data, again: true })
    );
    apply_to(&mut world, 1, Event::Succeeded { generation: NOW }).unwrap();
    let after = &world.steps[&id(1)].progress;
    assert_eq!(
        (after.state, after.applied, after.cause),
        (Todo, Some(NOW), Some(Cause::new(RerunReason::Data)))
    );
    assert_eq!(states(&world)[1], (Blocked, 1));
    apply_to(&mut world, 1, Event::Started).unwrap();
    apply_to(&mut world, 1, Event::Succeeded { generation: NOW }).unwrap();
    assert_eq!(states(&world), [(Active, 0), (Todo, 0)]);
}

#[test]
fn failures_are_retried_with_backoff_until_limit() {
    let mut one = step(1, Transition);
    one.retries = 2;
    let mut world = world(vec![one], &[]);
    for (failures, wait) in [(1, 10), (2, 20)] {
        let outcome = apply_to(&mut world, 1, failed(true)).unwrap();
        assert_eq!(outcome.deltas[0].not_before, Some(Duration::from_secs(wait)));
        let now = &world.steps[&id(1)].progress;
        assert_eq!(
            (now.state, now.failures, now.error.as_deref()),
            (Todo, failures, Some("exit 1"))
        );
        apply_to(&mut world, 1, Event::Started).unwrap();
    }
    apply_to(&mut world, 1, failed(true)).unwrap();
    let now = &world.steps[&id(1)].progress;
    assert_eq!((now.state, now.failures), (Error, 3));
    let outcome = apply_to(&mut world, 1, Event::Retry { reason: RerunReason::Retry }).unwrap();
    assert_eq!(
        outcome.deltas[0].not_before,
        Some(Duration::ZERO),
        "a retry by a person skips the backoff"
    );
    let now = &world.steps[&id(1)].progress;
    assert_eq!((now.state, now.failures, now.error.as_deref()), (Todo, 0, None));
}

#[test]
fn lost_runs_are_repeated_until_limit() {
    let mut world = world(vec![step(1, Transition)], &[]);
    for losses in 1..=LOSSES {
        apply_to(&mut world, 1, Event::Lost { generation: NOW }).unwrap();
        let now = &world.steps[&id(1)].progress;
        assert_eq!((now.state, now.failures), (Todo, losses));
        apply_to(&mut world, 1, Event::Started).unwrap();
    }
    apply_to(&mut world, 1, Event::Lost { generation: NOW }).unwrap();
    assert_eq!(states(&world), [(Error, 0)]);
    // A lost run of an older generation does not count.
    let stale = alone(step(1, Transition), Event::Lost { generation: BlueprintNumber(6) })
        .unwrap()
        .progress;
    assert_eq!((stale.state, stale.failures), (Todo, 0));
}

#[test]
fn permanent_failure_is_error_at_once() {
    let mut one = step(1, Transition);
    one.retries = 2;
    assert_eq!(alone(one.clone(), failed(false)).unwrap().progress.state, Error);
    // A failure of an older generation says nothing about the current one.
    let stale =
        Event::Failed { generation: BlueprintNumber(6), reason: "exit 1".into(), retry: false };
    let after = alone(one.clone(), stale).unwrap().progress;
    assert_eq!((after.state, after.failures), (Todo, 0));
    let never = alone(one, Event::NeverStarted).unwrap().progress;
    assert_eq!((never.state, never.failures), (Todo, 0));
}

#[test]
fn destructive_step_is_not_repeated_automatically() {
    let make = |state| Step { destructive: true, retries: 5, ..step(1, state) };
    for generation in [NOW, BlueprintNumber(6)] {
        assert_eq!(
            alone(make(Transition), Event::Lost { generation }).unwrap().progress.state,
            Error
        );
    }
    let half_way = Event::Failed { generation: NOW, reason: "the line broke".into(), retry: true };
    assert_eq!(alone(make(Transition), half_way).unwrap().progress.state, Error);
    assert_eq!(
        alone(make(Transition), Event::NeverStarted).unwrap().progress.state,
        Todo,
        "the ledger proves that it did not start"
    );
    let drift = Event::Rerun { generation: NOW, reason: RerunReason::Drift };
    assert!(matches!(alone(make(Active), drift.clone()), Err(Refused::AlreadyApplied { .. })));
    assert!(matches!(alone(make(Error), drift.clone()), Err(Refused::Unrequested { .. })));
    assert_eq!(
        alone(make(Error), Event::Retry { reason: RerunReason::Retry }).unwrap().progress.state,
        Todo
    );
    for state in [Active, Error] {
        let again = Event::Rerun { generation: BlueprintNumber(8), reason: RerunReason::Slice };
        assert_eq!(
            alone(make(state), again).unwrap().progress.state,
            Todo,
            "a review decided that the step runs again"
        );
    }
    // Drift during a run does not cause a second run. A parent's re-run does not move the step in
    // the queue.
    let mut one = make(Transition);
    one.progress.pending = 1;
    let mut world = world(vec![one], &[]);
    apply_to(&mut world, 1, drift).unwrap();
    apply_to(&mut world, 1, Event::Succeeded { generation: NOW }).unwrap();
    assert_eq!(states(&world), [(Active, 1)]);
}

#[test]
fn commit_reruns_destructive_step() {
    for written in [NOW, BlueprintNumber(8)] {
        for state in [Active, Error] {
            let mut one = Step { destructive: true, ..step(1, state) };
            one.progress.generation = written;
            let mut world = world(vec![one], &[]);
            let rerun = Some((BlueprintNumber(8), RerunReason::Slice));
            let outcome = apply(
                &world,
                &Change::Commit(vec![Committed { step: id(1), rerun, parents: None }]),
            )
            .unwrap();
            world.take(&outcome);
            assert_eq!(world.steps[&id(1)].progress.state, Todo);
            assert_eq!(world.steps[&id(1)].progress.generation, BlueprintNumber(8));
        }
    }
}

#[test]
fn error_blocks_descendants_and_retry_restores_results() {
    // 1 -> 2 -> 3 -> 4, where 1 runs again. Step 5 also waits for 2 and never ran.
    let mut first = step(1, Transition);
    first.progress.cause = Some(Cause::new(RerunReason::Drift));
    let mut second = step(2, Active);
    second.progress.pending = 1;
    let edges = [(1, 2, Hard), (2, 3, Hard), (3, 4, Hard), (2, 5, Hard)];
    let mut world =
        world(vec![first, second, step(3, Active), step(4, Active), step(5, Todo)], &edges);

    apply_to(&mut world, 1, failed(true)).unwrap();
    assert_eq!(
        states(&world),
        [(Error, 0), (Blocked, 1), (Blocked, 1), (Blocked, 1), (Blocked, 1)]
    );
    assert!(world.steps.values().skip(1).take(3).all(|s| s.progress.applied == Some(NOW)));

    // Meanwhile, a user re-runs step 3.
    apply_to(&mut world, 3, Event::Rerun { generation: NOW, reason: RerunReason::Slice }).unwrap();
    apply_to(&mut world, 1, Event::Retry { reason: RerunReason::Retry }).unwrap();
    apply_to(&mut world, 1, Event::Started).unwrap();
    apply_to(&mut world, 1, Event::Succeeded { generation: NOW }).unwrap();
    assert_eq!(states(&world), [(Active, 0), (Active, 0), (Todo, 0), (Blocked, 1), (Todo, 0)]);
    apply_to(&mut world, 3, Event::Started).unwrap();
    apply_to(&mut world, 3, Event::Succeeded { generation: NOW }).unwrap();
    assert_eq!(states(&world)[3], (Active, 0), "step 4 kept its result");
}

#[test]
fn error_ripple_skips_running_and_destructive_steps() {
    let below = |state| {
        let mut below = step(2, state);
        below.progress.pending = 1;
        below
    };
    let edges = [(1, 2, Hard), (2, 3, Hard)];
    let mut done = below(Active);
    done.destructive = true;
    for (child, grandchild) in [(below(Transition), step(3, Blocked)), (done, step(3, Active))] {
        let mut world = world(vec![step(1, Transition), child, grandchild], &edges);
        let before = states(&world);
        apply_to(&mut world, 1, failed(true)).unwrap();
        assert_eq!(states(&world)[1..], before[1..]);
    }
}

#[test]
fn error_frees_order_only_and_after_end_children() {
    let mut after_end = step(2, Blocked);
    after_end.join = Join { need: JoinNeed::All, after: JoinAfter::End };
    let edges = [(1, 2, Hard), (1, 3, OrderOnly)];
    let mut world = world(vec![step(1, Transition), after_end, step(3, Blocked)], &edges);
    apply_to(&mut world, 1, failed(true)).unwrap();
    assert_eq!(states(&world), [(Error, 0), (Todo, 0), (Todo, 0)]);
    apply_to(&mut world, 1, Event::Retry { reason: RerunReason::Retry }).unwrap();
    assert_eq!(states(&world), [(Todo, 0), (Blocked, 1), (Blocked, 1)]);
}

#[test]
fn any_and_at_least_joins_count_parents() {
    let join = |n, need, satisfied, pending, state| {
        let mut step = step(n, state);
        step.join = Join { need, after: JoinAfter::Success };
        step.progress.satisfied = satisfied;
        step.progress.pending = pending;
        step
    };
    let any = join(4, JoinNeed::Any, 0, 1, Blocked);
    let two = join(5, JoinNeed::AtLeast(2), 0, 2, Blocked);
    let parents = [step(1, Transition), step(2, Transition), step(3, Transition)];
    let edges: Vec<_> = (1..=3).flat_map(|parent| [(parent, 4, Hard), (parent, 5, Hard)]).collect();
    let mut world = world(parents.into_iter().chain([any, two]).collect(), &edges);
    let below = |world: &World| states(world)[3..].to_vec();
    let succeed =
        |world: &mut World, n| apply_to(world, n, Event::Succeeded { generation: NOW }).unwrap();
    let rerun = |world: &mut World, n| {
        apply_to(world, n, Event::Rerun { generation: NOW, reason: RerunReason::Drift }).unwrap()
    };
    succeed(&mut world, 1);
    assert_eq!(below(&world), [(Todo, 0), (Blocked, 1)]);
    succeed(&mut world, 2);
    assert_eq!(below(&world), [(Todo, 0), (Todo, 0)]);
    succeed(&mut world, 3);
    rerun(&mut world, 1);
    assert_eq!(below(&world), [(Todo, 0), (Todo, 0)], "the join still has enough parents");
    rerun(&mut world, 2);
    assert_eq!(below(&world), [(Todo, 0), (Blocked, 1)]);
    rerun(&mut world, 3);
    assert_eq!(below(&world), [(Blocked, 1), (Blocked, 2)]);
}

#[test]
fn rerun_blocks_waiting_but_not_active_children() {
    let edges = [(1, 2, Hard), (1, 3, Hard), (1, 4, Hard)];
    let mut world =
        world(vec![step(1, Active), step(2, Active), step(3, Todo), step(4, Transition)], &edges);
    apply_to(
        &mut world,
        1,
        Event::Rerun { generation: BlueprintNumber(8), reason: RerunReason::Slice },
    )
    .unwrap();
    assert_eq!(states(&world), [(Todo, 0), (Active, 1), (Blocked, 1), (Transition, 1)]);
    apply_to(&mut world, 1, Event::Started).unwrap();
    apply_to(&mut world, 1, Event::Succeeded { generation: BlueprintNumber(8) }).unwrap();
    assert_eq!(states(&world), [(Active, 0), (Active, 0), (Todo, 0), (Transition, 0)]);
}

/// Two groups with a barrier between them, both re-run. The second waits for the first as it would
/// without the barrier.
#[test]
fn barrier_propagates_reruns_and_errors() {
    let barrier = || Step { immediate: true, ..step(2, Active) };
    let edges = [(1, 2, Hard), (2, 3, Hard), (3, 4, Hard)];
    let rerun = || Event::Rerun { generation: BlueprintNumber(8), reason: RerunReason::Slice };
    for order in [[1, 3], [3, 1]] {
        let mut world =
            world(vec![step(1, Active), barrier(), step(3, Active), step(4, Active)], &edges);
        for n in order {
            apply_to(&mut world, n, rerun()).unwrap();
        }
        assert_eq!(states(&world), [(Todo, 0), (Blocked, 1), (Blocked, 1), (Active, 1)]);
        apply_to(&mut world, 1, Event::Started).unwrap();
        let succeeded = Event::Succeeded { generation: BlueprintNumber(8) };
        apply_to(&mut world, 1, succeeded.clone()).unwrap();
        assert_eq!(states(&world), [(Active, 0), (Active, 0), (Todo, 0), (Active, 1)]);
    }
    // An error above the barrier also reaches the steps below it that stayed ACTIVE.
    let mut world =
        world(vec![step(1, Active), barrier(), step(3, Active), step(4, Active)], &edges);
    apply_to(&mut world, 1, rerun()).unwrap();
    assert_eq!(states(&world)[2..], [(Active, 1), (Active, 0)]);
    apply_to(&mut world, 1, Event::Started).unwrap();
    apply_to(&mut world, 1, Event::Canceled { by: "ada".into() }).unwrap();
    assert_eq!(states(&world), [(Error, 0), (Blocked, 1), (Blocked, 1), (Blocked, 1)]);
    assert_eq!(world.steps[&id(1)].progress.error.as_deref(), Some("canceled by ada"));
}

#[test]
fn node_down_and_up_in_each_state() {
    // (destructive, needs, immediate) and the new state for each of: BLOCKED TODO TRANSITION ACTIVE
    // ERROR
    let table = [
        ((false, Needs::Alive, false), [Blocked, Todo, Todo, Todo, Todo]),
        ((true, Needs::Alive, false), [Blocked, Todo, Error, Active, Error]),
        ((false, Needs::Any, false), [Blocked, Todo, Transition, Active, Error]),
        ((false, Needs::Dead, false), [Blocked, Todo, Transition, Active, Error]),
    ];
    for ((destructive, needs, immediate), row) in table {
        for (state, expected) in StepState::ALL.into_iter().zip(row) {
            let mut world =
                world(vec![Step { destructive, needs, immediate, ..step(1, state) }], &[]);
            let down = apply(&world, &Change::NodeDown { node: NODE }).unwrap();
            world.take(&down);
            let now = &world.steps[&id(1)].progress;
            assert_eq!(
                now.state, expected,
                "a step in state {state}, destructive {destructive}, needs {needs:?}"
            );
            assert!(!now.node_up);
            let ended = state == Transition && needs == Needs::Alive;
            assert_eq!(down.outdated, if ended { vec![id(1)] } else { vec![] });
            assert_eq!(
                now.failures, 0,
                "the death of a node does not count as a failure of the step"
            );

            let up = apply(&world, &Change::NodeUp { node: NODE, resumed: [].into() }).unwrap();
            world.take(&up);
            let now = &world.steps[&id(1)].progress;
            assert_eq!(
                now.state, expected,
                "the return of the node alone does not change the step"
            );
            assert!(now.node_up);
        }
    }
}

#[test]
fn dead_node_resets_only_own_steps() {
    // 1 -> 2 (immediate) -> 3 on the node; 4 and 5 are children of 3 elsewhere.
    let elsewhere = |n, state| Step { node: NodeId(Uuid::from_u128(2)), ..step(n, state) };
    let edges = [(1, 2, Hard), (2, 3, Hard), (3, 4, Hard), (3, 5, Hard)];
    let steps = vec![
        step(1, Active),
        Step { immediate: true, ..step(2, Active) },
        step(3, Active),
        elsewhere(4, Active),
        elsewhere(5, Todo),
    ];
    let mut world = world(steps, &edges);
    world.on_node.insert(NODE, vec![id(3), id(1), id(2)]);
    let down = apply(&world, &Change::NodeDown { node: NODE }).unwrap();
    world.take(&down);
    assert_eq!(states(&world), [(Todo, 0), (Blocked, 1), (Blocked, 1), (Active, 1), (Blocked, 1)]);
    assert_eq!(
        world.steps[&id(3)].progress.cause,
        Some(Cause::new(RerunReason::NodeAway)),
        "the result does not count while the node is away"
    );
    assert_eq!(
        down.deltas.iter().map(|d| d.step).collect::<Vec<_>>(),
        (1..=5).map(id).collect::<Vec<_>>()
    );
}

#[test]
fn retained_result_on_dead_node_is_not_restored() {
    let mut stored = step(1, Blocked);
    stored.progress.applied = Some(NOW);
    let mut world = world(vec![stored], &[]);
    let down = apply(&world, &Change::NodeDown { node: NODE }).unwrap();
    world.take(&down);
    assert_eq!(world.steps[&id(1)].progress.cause, Some(Cause::new(RerunReason::NodeAway)));
}

#[test]
fn returned_node_resumes_or_reruns_steps() {
    let edges = [(1, 2, Hard), (2, 3, Hard), (3, 4, Hard)];
    for resumes in [true, false] {
        let mut failed = step(4, Error);
        failed.progress.applied = Some(NOW);
        let steps = vec![
            step(1, Active),
            Step { immediate: true, ..step(2, Active) },
            step(3, Active),
            failed,
        ];
        let mut world = world(steps, &edges);
        world.on_node.insert(NODE, (1..=4).map(id).collect());
        let down = apply(&world, &Change::NodeDown { node: NODE }).unwrap();
        world.take(&down);
        assert_eq!(states(&world), [(Todo, 0), (Blocked, 1), (Blocked, 1), (Blocked, 1)]);
        let resumed = if resumes { [id(1), id(3)].into() } else { [].into() };
        let up = apply(&world, &Change::NodeUp { node: NODE, resumed }).unwrap();
        world.take(&up);
        let expected = match resumes {
            true => [(Active, 0), (Active, 0), (Active, 0), (Todo, 0)],
            false => [(Todo, 0), (Blocked, 1), (Blocked, 1), (Blocked, 1)],
        };
        assert_eq!(states(&world), expected);
        let again = Some(Cause::new(RerunReason::NodeBack));
        assert_eq!(world.steps[&id(4)].progress.cause, again, "a failed step runs again");
        assert_eq!(world.steps[&id(3)].progress.cause, if resumes { None } else { again });
    }
}

#[test]
fn commit_places_new_steps_in_one_pass() {
    // Step 1 exists and is ACTIVE. New: 2 (skipped), 3 (immediate), 4, 5, and an edge from 2 to 6
    // (TODO).
    let fresh = |n| Step { progress: Progress::new(BlueprintNumber(8), true), ..step(n, Blocked) };
    let steps = vec![
        step(1, Active),
        Step { skipped: true, ..fresh(2) },
        Step { immediate: true, ..fresh(3) },
        fresh(4),
        fresh(5),
        step(6, Todo),
    ];
    let edges = [(1, 2, Hard), (2, 3, Hard), (3, 4, Hard), (4, 5, Hard), (4, 6, Hard)];
    let mut world = world(steps, &edges);
    let parents = |n| {
        Some(
            edges
                .iter()
                .filter(|(_, child, _)| *child == n)
                .map(|(p, _, kind)| (id(*p), *kind))
                .collect(),
        )
    };
    let committed =
        [6, 5, 4, 3, 2].map(|n| Committed { step: id(n), rerun: None, parents: parents(n) });
    let outcome = apply(&world, &Change::Commit(committed.to_vec())).unwrap();
    world.take(&outcome);
    assert_eq!(
        states(&world),
        [(Active, 0), (Active, 0), (Active, 0), (Todo, 0), (Blocked, 1), (Blocked, 1)]
    );
    assert_eq!(world.steps[&id(3)].progress.applied, Some(BlueprintNumber(8)));
}

#[test]
fn inconsistent_world_is_reported() {
    let mut low = step(2, Blocked);
    low.rank = 1;
    let mut flat = world(vec![step(1, Transition), low], &[(1, 2, Hard)]);
    let succeeded = Event::Succeeded { generation: NOW };
    let change = Change::Step { step: id(1), event: succeeded };
    assert_eq!(
        apply(&flat, &change),
        Err(Stop::InvariantViolation(InvariantViolation::Rank { parent: id(1), child: id(2) }))
    );
    let child = flat.steps.get_mut(&id(2)).unwrap();
    child.rank = 2;
    child.progress.pending = 0;
    assert_eq!(
        apply(&flat, &change),
        Err(Stop::InvariantViolation(InvariantViolation::Count { step: id(2) }))
    );
}

#[test]
fn failed_check_blocks_dependents_until_it_passes() {
    let make = |n, state| step(n, state);
    let mut barrier = make(2, Active);
    barrier.immediate = true;
    let mut world =
        world(vec![make(1, Active), barrier, make(3, Active)], &[(1, 2, Hard), (2, 3, Hard)]);
    let failed = Event::CheckFailed { reason: "down".into(), rerun: false };
    apply_to(&mut world, 1, failed).unwrap();
    assert_eq!(states(&world), [(Error, 0), (Blocked, 1), (Blocked, 1)]);
    assert!(world.steps[&id(1)].is_check_failed());
    assert_eq!(apply_to(&mut world, 2, Event::CheckPassed).unwrap_err().step(), id(2));
    apply_to(&mut world, 1, Event::CheckPassed).unwrap();
    assert_eq!(states(&world), [(Active, 0), (Active, 0), (Active, 0)]);
    assert!(world.steps.values().all(Step::is_converged), "no step must run");
}

#[test]
fn failed_run_is_not_a_failed_check() {
    let mut again = step(1, Transition);
    again.progress.applied = Some(NOW);
    let failed = alone(again, failed(false)).unwrap();
    assert_eq!(failed.progress.state, Error);
    assert!(!failed.is_check_failed());
    assert!(alone(failed, Event::CheckPassed).is_err());
}

#[test]
fn destructive_step_never_runs_again_for_a_check() {
    let mut wipe = step(1, Active);
    wipe.destructive = true;
    let failed = Event::CheckFailed { reason: "down".into(), rerun: true };
    let wipe = alone(wipe, failed).unwrap();
    assert_eq!(wipe.progress.state, Error);
    let retried = alone(wipe, Event::Retry { reason: RerunReason::Retry }).unwrap();
    assert_eq!(retried.progress.state, Active, "a retry only ends the ERROR");
}

/// The result of a step that its check made ERROR is as valid as before, so a node that returns
/// without a restart resumes it.
#[test]
fn resumed_node_keeps_step_after_failed_check() {
    let mut world = world(vec![step(1, Active)], &[]);
    apply_to(&mut world, 1, Event::CheckFailed { reason: "down".into(), rerun: false }).unwrap();
    for change in
        [Change::NodeDown { node: NODE }, Change::NodeUp { node: NODE, resumed: [id(1)].into() }]
    {
        let outcome = apply(&world, &change).unwrap();
        world.take(&outcome);
    }
    assert_eq!(states(&world), [(Active, 0)]);
}
