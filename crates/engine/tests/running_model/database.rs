//! The transactions, each as one action: claim, lease, finish, reaper, commit, cancel, node down
//! and up. As in the store, [`engine::anneal`] decides the step's new state.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{
    AdmissionView, Change, Child, Committed, ConcurrencyGroupKey, ConcurrencyGroupLimit,
    DeploymentView, Event, Limits, NodeView, OpenRun, Outcome, RerunReason, Step, StepState,
    StepView, Stop, Timestamp, World, apply, unmet_rules,
};
use engine::catalog::{ConcurrencyGroupMode, Join, Needs, OnError};
use engine::cluster::EdgeKind;
use engine::ids::{
    BlueprintNumber, ConcurrencyGroupName, DeploymentId, DeploymentName, JigName, NodeId,
    NoderoleId, StepId,
};
use uuid::Uuid;

use super::state::{End, Guard, Owner, Protocol, Run, RunNo, State, StepRow};

/// The actor that ends a run. It determines which runs may be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ender {
    Worker(usize),
    Queue,
    Reaper,
    /// The reaper, for a run that it found queued.
    ReaperQueued,
}

fn step_id(index: usize) -> StepId {
    StepId(Uuid::from_u128(index as u128 + 1))
}

fn step_index(id: StepId) -> usize {
    usize::try_from(id.0.as_u128()).expect("steps of a model are few") - 1
}

/// Each step is the only action of its noderole.
fn noderole_id(index: usize) -> NoderoleId {
    NoderoleId(Uuid::from_u128(index as u128 + 1))
}

fn node_id(index: usize) -> NodeId {
    NodeId(Uuid::from_u128(100 + index as u128))
}

impl Protocol {
    pub fn has(&self, guard: Guard) -> bool {
        !self.without.contains(&guard)
    }

    fn rank(&self, step: usize) -> u32 {
        self.steps[step].parent.map_or(0, |parent| self.rank(parent) + 1)
    }

    fn world(&self, state: &State) -> World {
        let mut world = World::default();
        for (index, (spec, row)) in self.steps.iter().zip(&state.steps).enumerate() {
            let step = Step {
                id: step_id(index),
                node: node_id(spec.node),
                rank: self.rank(index),
                join: Join::default(),
                destructive: spec.destructive && self.has(Guard::Unrepeated),
                immediate: false,
                skipped: false,
                needs: Needs::Alive,
                retries: spec.retries,
                backoff: 0,
                progress: row.progress(),
            };
            let children =
                (0..self.steps.len()).filter(|child| self.steps[*child].parent == Some(index));
            let children = children
                .map(|child| Child { step: step_id(child), kind: EdgeKind::Hard })
                .collect();
            world.add(step, children);
            world.on_node.entry(node_id(spec.node)).or_default().push(step_id(index));
        }
        world
    }

    /// Lets the engine decide and writes the result. `None` if the change does not fit the step's
    /// state.
    fn change(&self, state: &mut State, change: &Change) -> Option<Outcome> {
        let outcome = match apply(&self.world(state), change) {
            Ok(outcome) => outcome,
            Err(Stop::Refused(_)) => return None,
            Err(other) => panic!("the change failed in the model: {other}"),
        };
        assert!(outcome.more.is_empty(), "a change of the model must fit in one batch");
        for delta in &outcome.deltas {
            state.steps[step_index(delta.step)] = StepRow::of(&delta.now);
        }
        Some(outcome)
    }

    fn event(&self, state: &mut State, step: usize, event: Event) -> bool {
        self.change(state, &Change::Step { step: step_id(step), event }).is_some()
    }

    pub fn first_commit(&self, state: &mut State) {
        let committed = (0..self.steps.len()).map(|index| {
            let parents = self.steps[index].parent.map(|parent| (step_id(parent), EdgeKind::Hard));
            Committed {
                step: step_id(index),
                rerun: None,
                parents: Some(parents.into_iter().collect()),
            }
        });
        self.change(state, &Change::Commit(committed.collect())).expect("a valid first commit");
    }

    fn concurrency_group() -> ConcurrencyGroupKey {
        let name = ConcurrencyGroupName::parse("app").expect("a name");
        ConcurrencyGroupKey { deployment: DeploymentId(Uuid::from_u128(1)), name }
    }

    fn view(&self, state: &State) -> AdmissionView {
        let (jig, concurrency_group) =
            (JigName::parse("script").expect("a name"), Self::concurrency_group());
        let name = DeploymentName::parse("web").expect("a name");
        let step = |index: usize| {
            let (spec, row) = (&self.steps[index], &state.steps[index]);
            StepView {
                noderole: noderole_id(index),
                node: node_id(spec.node),
                concurrency_group: concurrency_group.clone(),
                jig: jig.clone(),
                state: row.state,
                pending: row.pending,
                priority: 0,
                ready_since: Timestamp(0),
                rank: self.rank(index),
                not_before: Timestamp(0),
                failures: row.failures,
                needs: Needs::Alive,
                exclusive: spec.exclusive,
                on_error: OnError::default(),
                budgets: BTreeSet::new(),
                needs_no_run: self.world(state).steps[&step_id(index)].needs_no_run(),
                is_joined: true,
            }
        };
        let node = |index: usize| NodeView {
            name: format!("n{index}"),
            phantom: false,
            alive: state.alive[index],
            available: true,
            confirmed: true,
        };
        let open = state.open().map(|(_, run)| OpenRun {
            step: step_id(run.step),
            noderole: noderole_id(run.step),
            node: node_id(self.steps[run.step].node),
            concurrency_group: concurrency_group.clone(),
            exclusive: self.steps[run.step].exclusive && self.has(Guard::Exclusive),
        });
        let limit = ConcurrencyGroupLimit {
            max_running: self.concurrency_group,
            mode: ConcurrencyGroupMode::Rolling,
        };
        AdmissionView {
            now: Timestamp(1),
            enabled: state.enabled,
            capacity: u32::try_from(self.workers).expect("workers of a model are few"),
            draining: 0,
            deployments: BTreeMap::from([(
                concurrency_group.deployment,
                DeploymentView { name, parent: None, on_hold_by: None },
            )]),
            open: open.collect(),
            concurrency_groups: BTreeMap::from([(concurrency_group.clone(), limit)]),
            budgets: BTreeMap::new(),
            awaited: BTreeMap::new(),
            nodes: (0..self.nodes).map(|index| (node_id(index), node(index))).collect(),
            jigs: BTreeMap::from([(jig.clone(), true)]),
            unsupported_jigs: BTreeSet::new(),
            steps: (0..self.steps.len()).map(|index| (step_id(index), step(index))).collect(),
        }
    }

    /// The steps that a claim may take first: all that admission passes. Safety must not depend on
    /// the order.
    pub fn admissible(&self, state: &State) -> Vec<usize> {
        let todo: Vec<usize> = (0..state.steps.len())
            .filter(|step| state.steps[*step].state == StepState::Todo)
            .collect();
        if todo.is_empty() {
            return todo;
        }
        let view = self.view(state);
        let limits = Limits { running: 10, batch: 10 };
        todo.into_iter()
            .filter(|step| unmet_rules(&view, limits, step_id(*step)).is_empty())
            .collect()
    }

    /// `UPDATE step ... WHERE state = 'todo'`, and the insertion of its run.
    pub fn claim(&self, state: &mut State, step: usize) {
        if state.steps[step].state != StepState::Todo || !self.event(state, step, Event::Started) {
            return;
        }
        let generation = state.steps[step].generation;
        let run = Run {
            step,
            generation,
            owner: Owner::Nobody,
            ended: false,
            canceled: false,
            expired: false,
        };
        state.runs.insert(state.next, run);
        state.next += 1;
        if let Some(parent) = self.steps[step].parent
            && state.steps[parent].state != StepState::Active
        {
            state.truth.wrong = Some("a step started before its parent was ACTIVE");
        }
    }

    /// Leases the oldest queued run to this worker, or ends it unstarted if it may no longer start.
    pub fn lease(&self, state: &mut State, worker: usize) {
        let Some((number, run)) = state.open().find(|(_, run)| run.queued()) else { return };
        let row = &state.steps[run.step];
        let may_start = state.enabled
            && row.state == StepState::Transition
            && row.generation == run.generation
            && !run.canceled;
        if !may_start && self.has(Guard::MayStart) {
            self.end_run(state, number, Ender::Queue, End::Unstarted);
            return;
        }
        if !state.enabled {
            state.truth.wrong = Some("a run started although execution is paused");
        }
        if let Some(run) = state.runs.get_mut(&number) {
            run.owner = Owner::Worker(worker);
            run.expired = false;
        }
        state.workers[worker] =
            Some(super::state::LeasedRun { run: number, phase: super::state::Phase::Leased });
    }

    /// Ends a run and moves its step. Returns false if the run is over already, so its result is
    /// late.
    pub fn end_run(&self, state: &mut State, number: RunNo, ender: Ender, end: End) -> bool {
        let Some(run) = state.runs.get(&number).cloned() else { return false };
        let fits = match ender {
            Ender::Worker(worker) => {
                !self.has(Guard::OpenRun) || (!run.ended && run.owner == Owner::Worker(worker))
            }
            Ender::Queue => run.queued(),
            Ender::Reaper => !run.ended && run.expired,
            Ender::ReaperQueued => {
                !run.ended && run.expired && (run.queued() || !self.has(Guard::StillQueued))
            }
        };
        if !fits {
            return false;
        }
        let end = if run.canceled && end != End::Succeeded { End::Canceled } else { end };
        let generation = match self.has(Guard::RunGeneration) {
            true => run.generation,
            false => state.steps[run.step].generation,
        };
        let generation = BlueprintNumber(generation.into());
        let event = match end {
            End::Succeeded => Event::Succeeded { generation },
            End::Failed => Event::Failed { generation, reason: String::new(), retry: true },
            End::Lost => Event::Lost { generation },
            End::Unstarted => Event::NeverStarted,
            End::Canceled => Event::Canceled { by: String::new() },
        };
        if let Some(run) = state.runs.get_mut(&number) {
            run.ended = true;
        }
        // If the step no longer waits for this run, only the run ends.
        self.event(state, run.step, event);
        true
    }

    /// A commit that changes one step.
    pub fn commit(&self, state: &mut State, step: usize) {
        state.target += 1;
        state.truth.approved.insert(state.target);
        self.raise(state, step);
    }

    /// The same without an approval, past every guard.
    pub fn tamper(&self, state: &mut State, step: usize) {
        state.target += 1;
        self.raise(state, step);
    }

    fn raise(&self, state: &mut State, step: usize) {
        let rerun = Some((BlueprintNumber(state.target.into()), RerunReason::Changed));
        let committed = Committed { step: step_id(step), rerun, parents: None };
        self.change(state, &Change::Commit(vec![committed])).expect("a valid newer generation");
    }

    pub fn cancel(&self, state: &mut State, number: RunNo) {
        if let Some(run) = state.runs.get_mut(&number) {
            run.canceled = true;
        }
    }

    /// A user's retry.
    pub fn retry(&self, state: &mut State, step: usize) {
        if self.event(state, step, Event::Retry { reason: RerunReason::Retry }) {
            let generation = state.steps[step].generation;
            *state.truth.requested.entry((step, generation)).or_default() += 1;
        }
    }

    pub fn node_down(&self, state: &mut State, node: usize) {
        let queued: Vec<(RunNo, usize)> = state
            .open()
            .filter(|(_, run)| run.queued() && self.steps[run.step].node == node)
            .map(|(n, r)| (n, r.step))
            .collect();
        for (number, step) in queued {
            state.runs.entry(number).and_modify(|run| run.ended = true);
            self.event(state, step, Event::NeverStarted);
        }
        let outcome = self
            .change(state, &Change::NodeDown { node: node_id(node) })
            .expect("a node that dies");
        state.alive[node] = false;
        let outdated: Vec<usize> = outcome.outdated.into_iter().map(step_index).collect();
        for run in state.runs.values_mut().filter(|run| outdated.contains(&run.step)) {
            run.ended = true;
        }
    }

    pub fn node_up(&self, state: &mut State, node: usize) {
        self.change(state, &Change::NodeUp { node: node_id(node), resumed: [].into() })
            .expect("a node that returns");
        state.alive[node] = true;
    }
}
