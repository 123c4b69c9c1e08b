//! Tests the annealer against a model: random graphs and random interleavings of all events. After
//! each event, independent code checks every invariant that the module promises.

#![expect(clippy::unwrap_used, reason = "a model that can't do its part fails its test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::anneal::{
    AdmissionView, BATCH, BudgetId, BudgetView, Cause, Change, Child, Committed,
    ConcurrencyGroupKey, ConcurrencyGroupLimit, DeploymentView, Event, Limits, Missing, NodeView,
    OpenRun, Outcome, Progress, Refused, RerunReason, Step, StepState, StepView, Stop, Timestamp,
    World, admit, apply, apply_each, awaited_steps, unmet_rules,
};
use engine::catalog::{ConcurrencyGroupMode, Join, JoinAfter, JoinNeed, Needs, OnError};
use engine::cluster::EdgeKind;
use engine::ids::{
    BlueprintNumber, ConcurrencyGroupName, DeploymentId, DeploymentName, JigName, NodeId,
    NoderoleId, StepId,
};
use proptest::prelude::*;
use uuid::Uuid;

const NODES: usize = 3;
const CONCURRENCY_GROUPS: [(&str, Option<u32>, ConcurrencyGroupMode); 3] = [
    ("free", None, ConcurrencyGroupMode::Rolling),
    ("one-by-one", Some(1), ConcurrencyGroupMode::Rolling),
    ("pairs", Some(2), ConcurrencyGroupMode::Chunk),
];
const LIMITS: Limits = Limits { running: 4, batch: 3 };
const BUDGET: BudgetId = BudgetId(1);

/// A generated step. Its `parents` are among the steps before it.
#[derive(Debug, Clone)]
struct Drawn {
    node: usize,
    concurrency_group: usize,
    parents: Vec<(usize, EdgeKind)>,
    need: JoinNeed,
    after: JoinAfter,
    destructive: bool,
    immediate: bool,
    needs: Needs,
    exclusive: bool,
    freezes: bool,
    budget: bool,
    retries: u32,
    late: bool,
}

#[derive(Debug, Clone)]
enum Op {
    Claim,
    Succeed(usize),
    Fail(usize, bool),
    Lose(usize),
    NeverStarted(usize),
    Cancel(usize),
    Retry(usize),
    Drift(usize),
    CheckFails(usize, bool),
    CheckPasses(usize),
    Commit(Vec<usize>),
    Skip(usize),
    Grow,
    NodeDown(usize),
    NodeUp(usize, bool),
    PendingReason,
}

fn drawn(index: usize) -> impl Strategy<Value = Drawn> {
    let kind = prop_oneof![5 => Just(EdgeKind::Hard), 2 => Just(EdgeKind::Soft), 2 => Just(EdgeKind::OrderOnly)];
    let parents = proptest::collection::btree_map(0..index.max(1), kind, 0..=index.min(4));
    let need = prop_oneof![4 => Just(JoinNeed::All), 1 => Just(JoinNeed::Any), 1 => (1..3u32).prop_map(JoinNeed::AtLeast)];
    let after = prop_oneof![4 => Just(JoinAfter::Success), 1 => Just(JoinAfter::End)];
    let needs = prop_oneof![6 => Just(Needs::Alive), 1 => Just(Needs::Any)];
    let flags = (
        proptest::bool::weighted(0.15),
        proptest::bool::weighted(0.25),
        proptest::bool::weighted(0.8),
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.3),
        proptest::bool::weighted(0.15),
    );
    (0..NODES, 0..CONCURRENCY_GROUPS.len(), parents, need, after, needs, 0..3u32, flags).prop_map(
        move |(
            node,
            concurrency_group,
            parents,
            need,
            after,
            needs,
            retries,
            (destructive, immediate, exclusive, freezes, budget, late),
        )| {
            let parents: Vec<_> =
                parents.into_iter().filter(|(parent, _)| *parent < index).collect();
            let counting =
                parents.iter().filter(|(_, kind)| *kind != EdgeKind::OrderOnly).count() as u32;
            let need = match need {
                JoinNeed::AtLeast(_) if counting == 0 => JoinNeed::All,
                JoinNeed::AtLeast(n) => JoinNeed::AtLeast(n.min(counting)),
                need => need,
            };
            Drawn {
                node,
                concurrency_group,
                parents,
                need,
                after,
                destructive,
                immediate,
                needs,
                exclusive,
                freezes,
                budget,
                retries,
                late,
            }
        },
    )
}

fn graph() -> impl Strategy<Value = Vec<Drawn>> {
    (2..13usize).prop_flat_map(|n| (0..n).map(drawn).collect::<Vec<_>>())
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0..64usize;
    prop_oneof![
        8 => Just(Op::Claim),
        8 => which.clone().prop_map(Op::Succeed),
        4 => (which.clone(), any::<bool>()).prop_map(|(n, retry)| Op::Fail(n, retry)),
        1 => which.clone().prop_map(Op::Lose),
        1 => which.clone().prop_map(Op::NeverStarted),
        1 => which.clone().prop_map(Op::Cancel),
        3 => which.clone().prop_map(Op::Retry),
        1 => which.clone().prop_map(Op::Drift),
        2 => (which.clone(), any::<bool>()).prop_map(|(n, rerun)| Op::CheckFails(n, rerun)),
        2 => which.clone().prop_map(Op::CheckPasses),
        2 => proptest::collection::vec(which.clone(), 1..4).prop_map(Op::Commit),
        1 => which.clone().prop_map(Op::Skip),
        1 => Just(Op::Grow),
        1 => (0..NODES).prop_map(Op::NodeDown),
        2 => (0..NODES, any::<bool>()).prop_map(|(n, resumes)| Op::NodeUp(n, resumes)),
        1 => Just(Op::PendingReason),
    ]
}

/// Ids whose order is unrelated to the order of the graph.
fn step_id(index: usize) -> StepId {
    StepId(Uuid::from_u128(((index as u128 + 1) * 37) % 101 + 1))
}

fn node_id(index: usize) -> NodeId {
    NodeId(Uuid::from_u128(1_000 + index as u128))
}

fn concurrency_group_key(index: usize) -> ConcurrencyGroupKey {
    ConcurrencyGroupKey {
        deployment: DeploymentId(Uuid::from_u128(1)),
        name: ConcurrencyGroupName::parse(CONCURRENCY_GROUPS[index].0).unwrap(),
    }
}

struct Run {
    generation: BlueprintNumber,
    node: NodeId,
    exclusive: bool,
}

/// A running cluster: simulates the database, the claim and the workers.
struct Cluster {
    drawn: Vec<Drawn>,
    born: BTreeSet<usize>,
    world: World,
    target: i64,
    now: i64,
    not_before: BTreeMap<StepId, i64>,
    since: BTreeMap<StepId, i64>,
    up: [bool; NODES],
    runs: BTreeMap<StepId, Run>,
    /// Destructive steps for which it is unknown whether they ran.
    uncertain: BTreeSet<StepId>,
    /// (step, generation) of every applied result of a destructive step.
    destroyed: BTreeSet<(StepId, BlueprintNumber)>,
}

impl Cluster {
    fn new(drawn: Vec<Drawn>) -> Self {
        let mut cluster = Self {
            born: BTreeSet::new(),
            world: World::default(),
            target: 1,
            now: 0,
            not_before: BTreeMap::new(),
            since: BTreeMap::new(),
            up: [true; NODES],
            runs: BTreeMap::new(),
            uncertain: BTreeSet::new(),
            destroyed: BTreeSet::new(),
            drawn,
        };
        cluster.world.on_node = (0..NODES).map(|node| (node_id(node), Vec::new())).collect();
        let early: Vec<usize> =
            (0..cluster.drawn.len()).filter(|i| !cluster.drawn[*i].late).collect();
        cluster.grow(&early);
        cluster
    }

    fn parents(&self, index: usize) -> Vec<(StepId, EdgeKind)> {
        let born =
            self.drawn[index].parents.iter().filter(|(parent, _)| self.born.contains(parent));
        born.map(|(parent, kind)| (step_id(*parent), *kind)).collect()
    }

    fn children(&self, index: usize) -> Vec<(usize, EdgeKind)> {
        let edges = |child: usize| {
            self.drawn[child]
                .parents
                .iter()
                .filter(|(p, _)| *p == index)
                .map(move |(_, k)| (child, *k))
        };
        self.born.iter().flat_map(|child| edges(*child)).collect()
    }

    /// A join may require more parents than exist while some are not created yet.
    fn join(&self, index: usize) -> Join {
        let counting =
            self.parents(index).iter().filter(|(_, kind)| *kind != EdgeKind::OrderOnly).count()
                as u32;
        let need = match self.drawn[index].need {
            JoinNeed::AtLeast(n) => JoinNeed::AtLeast(n.min(counting).max(1)),
            need => need,
        };
        let need = if counting == 0 { JoinNeed::All } else { need };
        Join { need, after: self.drawn[index].after }
    }

    fn rank(&self, index: usize) -> u32 {
        self.drawn[index]
            .parents
            .iter()
            .map(|(parent, _)| self.rank(*parent) + 1)
            .max()
            .unwrap_or(0)
    }

    /// A commit that creates steps, with their edges to and from existing steps.
    fn grow(&mut self, new: &[usize]) {
        self.target += 1;
        self.born.extend(new);
        for index in new {
            let drawn = &self.drawn[*index];
            let step = Step {
                id: step_id(*index),
                node: node_id(drawn.node),
                rank: self.rank(*index),
                join: Join::default(),
                destructive: drawn.destructive,
                immediate: drawn.immediate,
                skipped: false,
                needs: drawn.needs,
                retries: drawn.retries,
                backoff: 5,
                progress: Progress::new(BlueprintNumber(self.target), self.up[drawn.node]),
            };
            self.world.on_node.entry(step.node).or_default().push(step.id);
            self.world.steps.insert(step.id, step);
        }
        let mut changed: BTreeSet<usize> = new.iter().copied().collect();
        for index in new {
            changed.extend(self.children(*index).into_iter().map(|(child, _)| child));
        }
        for index in self.born.clone() {
            let children = self
                .children(index)
                .into_iter()
                .map(|(child, kind)| Child { step: step_id(child), kind });
            self.world.children.insert(step_id(index), children.collect());
        }
        let committed = changed.into_iter().map(|index| {
            let id = step_id(index);
            let join = self.join(index);
            self.world.steps.get_mut(&id).unwrap().join = join;
            Committed { step: id, rerun: None, parents: Some(self.parents(index)) }
        });
        let change = Change::Commit(committed.collect());
        self.change(&change).unwrap();
    }

    fn state(&self, id: StepId) -> StepState {
        self.world.steps[&id].progress.state
    }

    fn in_state(&self, state: StepState) -> Vec<StepId> {
        self.world.steps.values().filter(|s| s.progress.state == state).map(|s| s.id).collect()
    }

    fn pick(&self, state: StepState, n: usize) -> Option<StepId> {
        let steps = self.in_state(state);
        (!steps.is_empty()).then(|| steps[n % steps.len()])
    }

    /// Applies a change as the store does, checks the result, and settles the rest of a batch.
    fn change(&mut self, change: &Change) -> Result<(), Refused> {
        let outcome = match apply(&self.world, change) {
            Ok(outcome) => outcome,
            Err(Stop::Refused(refused)) => return Err(refused),
            Err(other) => panic!("{change:?}: {other:?}"),
        };
        assert_eq!(
            apply(&self.world, change).as_ref(),
            Ok(&outcome),
            "the same change must have the same outcome"
        );
        self.check_found_step_by_step(change, &outcome);
        let before = self.world.clone();
        self.world.take(&outcome);
        for delta in &outcome.deltas {
            if delta.was != delta.now.state {
                self.since.insert(delta.step, self.now);
            }
            if let Some(wait) = delta.not_before {
                self.not_before.insert(delta.step, self.now + wait.as_micros() as i64);
            }
        }
        for id in &outcome.outdated {
            let run = self.runs.remove(id);
            assert!(run.is_some(), "only open attempts are outdated");
            if self.world.steps[id].destructive {
                self.uncertain.insert(*id);
            }
        }
        self.check_reach(change, &before, &outcome);
        self.check_invariants();
        if !outcome.more.is_empty() {
            return self.change(&Change::Settle { steps: outcome.more });
        }
        Ok(())
    }

    /// Starts with the change alone and loads what the engine requests. The outcome must be the
    /// same, and only nearby steps may be loaded.
    fn check_found_step_by_step(&self, change: &Change, whole: &Outcome) {
        let mut near = World::default();
        let mut missing_rows = Missing::default();
        for _ in 0..=2 * self.world.steps.len() + 2 {
            match apply(&near, change) {
                Ok(found) => {
                    assert_eq!(&found, whole);
                    return self.check_cost(change, whole, &missing_rows);
                }
                Err(Stop::Missing(missing)) => {
                    assert!(!missing.is_empty());
                    let known = |id: &StepId| near.steps.contains_key(id);
                    assert!(
                        !missing.steps.iter().any(known),
                        "the change requested a step that was loaded already"
                    );
                    for id in &missing.steps {
                        near.steps.insert(*id, self.world.steps[id].clone());
                    }
                    for id in &missing.children_of {
                        let mut children = self.world.children[id].clone();
                        children.reverse();
                        assert!(
                            near.children.insert(*id, children).is_none(),
                            "the change requested children that were loaded already"
                        );
                    }
                    for node in &missing.by_node {
                        near.on_node.insert(
                            *node,
                            self.world.on_node.get(node).cloned().unwrap_or_default(),
                        );
                    }
                    missing_rows.steps.extend(missing.steps);
                    missing_rows.children_of.extend(missing.children_of);
                }
                Err(other) => panic!("{change:?}: {other:?}"),
            }
        }
        panic!("loading does not finish: {change:?}");
    }

    /// Checks that only steps of the change, children of moved steps, and blocked immediate steps
    /// below an error were requested.
    ///
    /// Does not apply to commits: before all parents are loaded, the first round may request one
    /// child too many.
    fn check_cost(&self, change: &Change, outcome: &Outcome, missing_rows: &Missing) {
        if matches!(change, Change::Commit(_)) {
            return;
        }
        let moved: BTreeSet<StepId> = outcome
            .deltas
            .iter()
            .filter(|d| d.was != d.now.state)
            .map(|delta| delta.step)
            .collect();
        let passes = |id: &StepId| {
            let step = &self.world.steps[id];
            moved.contains(id)
                || ((step.immediate || step.skipped) && step.progress.state == StepState::Blocked)
        };
        // While only some parents of a step are loaded, it may seem to move although it does not.
        let is_near = |id: &StepId| {
            let near = |(_, children): &(&StepId, &Vec<Child>)| {
                children.iter().any(|child| child.step == *id)
            };
            self.world.children.iter().filter(near).any(|(parent, _)| passes(parent))
        };
        for id in &missing_rows.children_of {
            assert!(
                passes(id) || is_near(id),
                "children of {id} were requested, although neither it nor a parent changed"
            );
        }
        let mut allowed = self.named(change);
        for id in &missing_rows.children_of {
            allowed.extend(self.world.children[id].iter().map(|child| child.step));
        }
        assert!(
            missing_rows.steps.is_subset(&allowed),
            "{change:?} requested steps outside of its reach"
        );
    }

    fn named(&self, change: &Change) -> BTreeSet<StepId> {
        match change {
            Change::Step { step, .. } => [*step].into(),
            Change::NodeDown { node } | Change::NodeUp { node, .. } => {
                self.world.on_node.get(node).into_iter().flatten().copied().collect()
            }
            Change::Settle { steps } => steps.iter().copied().collect(),
            Change::Commit(steps) => {
                let parents = steps
                    .iter()
                    .flat_map(|c| c.parents.iter().flatten().map(|(parent, _)| *parent));
                steps.iter().map(|c| c.step).chain(parents).collect()
            }
        }
    }

    /// Checks that the change names each changed step or a parent moved. Results and ACTIVE states
    /// are lost only by the rules.
    fn check_reach(&self, change: &Change, before: &World, outcome: &Outcome) {
        let named = self.named(change);
        let changed: Vec<_> = outcome.deltas.iter().map(|d| (d.rank, d.step)).collect();
        assert!(changed.is_sorted() && changed.windows(2).all(|pair| pair[0] != pair[1]));
        let moved: BTreeSet<StepId> =
            outcome.deltas.iter().filter(|d| d.was != d.now.state).map(|d| d.step).collect();
        let parents: BTreeMap<StepId, Vec<(StepId, EdgeKind)>> =
            self.born.iter().map(|index| (step_id(*index), self.parents(*index))).collect();
        let erred = moved.iter().any(|id| self.state(*id) == StepState::Error);
        for delta in &outcome.deltas {
            let (was, is) = (&before.steps[&delta.step], &self.world.steps[&delta.step]);
            if named.contains(&delta.step) {
                continue;
            }
            let passes = |id: &StepId| {
                let step = &self.world.steps[id];
                moved.contains(id)
                    || (erred && step.is_immediate() && step.progress.state == StepState::Blocked)
            };
            let near = parents[&delta.step].iter().any(|(parent, _)| passes(parent));
            assert!(near, "{change:?} changed step {}, which is out of reach", delta.step);
            assert_eq!(was.progress.generation, is.progress.generation);
            assert_eq!(was.progress.failures, is.progress.failures);
            let immediate = was.immediate || was.skipped;
            match (was.progress.state, is.progress.state) {
                (StepState::Transition, now) => {
                    assert_eq!(
                        now,
                        StepState::Transition,
                        "a change of other steps must not change a running step"
                    )
                }
                (StepState::Error, now) => assert_eq!(now, StepState::Error),
                (StepState::Active, StepState::Active) => {}
                (StepState::Active, now) => {
                    assert_eq!(now, StepState::Blocked);
                    assert!(
                        immediate || erred,
                        "{change:?}: an ACTIVE step changed without a failure"
                    );
                    assert!(!is.is_final());
                    assert_eq!(
                        was.progress.applied, is.progress.applied,
                        "the change must retain the result"
                    );
                }
                (_, StepState::Active) => {
                    assert!(
                        immediate
                            || (was.progress.applied == Some(was.progress.generation)
                                && was.progress.cause.is_none())
                    );
                }
                _ => {}
            }
        }
        if erred {
            self.check_ripple(&moved);
        }
    }

    /// Checks each hop below an error: no step is ACTIVE whose join the error breaks.
    fn check_ripple(&self, moved: &BTreeSet<StepId>) {
        let mut broken: Vec<StepId> =
            moved.iter().copied().filter(|id| self.state(*id) == StepState::Error).collect();
        while let Some(parent) = broken.pop() {
            for child in &self.world.children[&parent] {
                let step = &self.world.steps[&child.step];
                let after_end =
                    step.join.after == JoinAfter::End && self.state(parent) == StepState::Error;
                if child.kind == EdgeKind::OrderOnly || after_end || self.holds(step) {
                    continue;
                }
                match step.progress.state {
                    StepState::Active => {
                        assert!(step.is_final(), "{} is ACTIVE below a failed step", step.id)
                    }
                    StepState::Todo => panic!("{} is TODO below a failed step", step.id),
                    StepState::Blocked if moved.contains(&step.id) || step.is_immediate() => {
                        broken.push(step.id)
                    }
                    _ => {}
                }
            }
        }
    }

    /// Evaluates the join from the states of all parents, by the architecture and not by the
    /// counters.
    fn holds(&self, step: &Step) -> bool {
        let index = self.born.iter().find(|index| step_id(**index) == step.id).unwrap();
        let parents = self.parents(*index);
        let waits =
            parents.iter().filter(|(_, kind)| *kind == EdgeKind::OrderOnly).any(|(parent, _)| {
                let parent = &self.world.steps[parent];
                !parent.skipped
                    && !matches!(parent.progress.state, StepState::Active | StepState::Error)
            });
        let counting: Vec<bool> = parents
            .iter()
            .filter(|(_, kind)| *kind != EdgeKind::OrderOnly)
            .map(|(parent, _)| match self.state(*parent) {
                StepState::Active => true,
                StepState::Error => step.join.after == JoinAfter::End,
                _ => false,
            })
            .collect();
        let good = counting.iter().filter(|good| **good).count();
        let enough = match step.join.need {
            JoinNeed::All => good == counting.len(),
            JoinNeed::Any => counting.is_empty() || good > 0,
            JoinNeed::AtLeast(n) => good >= n as usize,
        };
        enough && !waits
    }

    /// Number of parents that must change, one at a time, until the join is satisfied.
    fn recount(&self, step: &Step) -> usize {
        let index = self.born.iter().find(|index| step_id(**index) == step.id).unwrap();
        let (mut counting, mut good, mut ahead) = (0usize, 0usize, 0usize);
        for (parent, kind) in self.parents(*index) {
            let parent = &self.world.steps[&parent];
            let active = parent.progress.state == StepState::Active;
            let error = parent.progress.state == StepState::Error;
            if kind == EdgeKind::OrderOnly {
                ahead += usize::from(!(active || error || parent.skipped));
            } else {
                counting += 1;
                good += usize::from(active || (error && step.join.after == JoinAfter::End));
            }
        }
        let needed = match step.join.need {
            JoinNeed::All => counting,
            JoinNeed::Any => counting.min(1),
            JoinNeed::AtLeast(n) => n as usize,
        };
        needed.saturating_sub(good) + ahead
    }

    fn check_invariants(&self) {
        for step in self.world.steps.values() {
            let Progress { state, pending, applied, generation, cause, .. } = &step.progress;
            assert_eq!(
                *pending as usize,
                self.recount(step),
                "wrong pending count of {} ({state})",
                step.id
            );
            assert_eq!(*pending == 0, self.holds(step));
            match state {
                StepState::Todo => assert_eq!(*pending, 0),
                StepState::Blocked => {
                    assert!(*pending > 0, "{} is BLOCKED without missing parents", step.id)
                }
                StepState::Active => {
                    assert_eq!(
                        *applied,
                        Some(*generation),
                        "an ACTIVE step must have the result of its generation"
                    );
                    assert_eq!(*cause, None);
                    assert!(!step.is_immediate() || *pending == 0);
                }
                StepState::Transition | StepState::Error => {}
            }
            if step.destructive && matches!(state, StepState::Todo | StepState::Transition) {
                assert_ne!(*applied, Some(*generation));
            }
            let again = cause.is_some_and(|cause| cause.again);
            assert!(
                !again || *state == StepState::Transition,
                "only a step with an open attempt can be due again after it"
            );
            assert!(applied.is_none_or(|applied| applied <= *generation));
            assert_eq!(self.runs.contains_key(&step.id), *state == StepState::Transition);
        }
        for node in 0..NODES {
            let exclusive =
                self.runs.values().filter(|run| run.node == node_id(node) && run.exclusive).count();
            assert!(exclusive <= 1, "{exclusive} exclusive runs are open on one node");
        }
        assert!(self.runs.len() <= LIMITS.running as usize);
    }

    fn view(&self) -> AdmissionView {
        let deployment = DeploymentId(Uuid::from_u128(1));
        let steps = self.born.iter().map(|index| {
            let (id, drawn) = (step_id(*index), &self.drawn[*index]);
            let step = &self.world.steps[&id];
            let view = StepView {
                noderole: NoderoleId(id.0),
                node: step.node,
                concurrency_group: concurrency_group_key(drawn.concurrency_group),
                jig: JigName::parse("test").unwrap(),
                state: step.progress.state,
                pending: step.progress.pending,
                priority: 0,
                ready_since: Timestamp(self.since.get(&id).copied().unwrap_or(0)),
                rank: step.rank,
                not_before: Timestamp(self.not_before.get(&id).copied().unwrap_or(i64::MIN)),
                failures: step.progress.failures,
                needs: step.needs,
                exclusive: drawn.exclusive,
                on_error: if drawn.freezes { OnError::Node } else { OnError::Descendants },
                budgets: drawn.budget.then_some(BUDGET).into_iter().collect(),
                needs_no_run: step.needs_no_run(),
                is_joined: true,
            };
            (id, view)
        });
        let node = |n: usize| NodeView {
            name: format!("n{n}"),
            phantom: false,
            alive: self.up[n],
            available: true,
            confirmed: true,
        };
        let concurrency_groups =
            CONCURRENCY_GROUPS.iter().enumerate().map(|(n, (_, max, mode))| {
                (concurrency_group_key(n), ConcurrencyGroupLimit { max_running: *max, mode: *mode })
            });
        let open = self.runs.iter().map(|(step, run)| OpenRun {
            step: *step,
            noderole: NoderoleId(step.0),
            node: run.node,
            concurrency_group: concurrency_group_key(
                self.drawn[*self.born.iter().find(|i| step_id(**i) == *step).unwrap()]
                    .concurrency_group,
            ),
            exclusive: run.exclusive,
        });
        let web = DeploymentView {
            name: DeploymentName::parse("web").unwrap(),
            parent: None,
            on_hold_by: None,
        };
        let steps: BTreeMap<StepId, StepView> = steps.collect();
        let parents = self.born.iter().map(|index| {
            let parents = self.parents(*index).into_iter().map(|(parent, _)| parent);
            (step_id(*index), parents.collect())
        });
        AdmissionView {
            now: Timestamp(self.now),
            enabled: true,
            capacity: 100,
            draining: 0,
            deployments: [(deployment, web)].into(),
            concurrency_groups: concurrency_groups.collect(),
            budgets: [(BUDGET, BudgetView { name: "quorum".into(), max_down: 2 })].into(),
            nodes: (0..NODES).map(|n| (node_id(n), node(n))).collect(),
            jigs: [(JigName::parse("test").unwrap(), true)].into(),
            unsupported_jigs: Default::default(),
            awaited: awaited_steps(&steps, &parents.collect()),
            steps,
            open: open.collect(),
        }
    }

    fn claim(&mut self) -> usize {
        let view = self.view();
        let picks = admit(&view, LIMITS);
        assert_eq!(picks, admit(&view, LIMITS));
        assert!(picks.len() <= LIMITS.batch as usize);
        if let Some(first) = picks.first() {
            assert_eq!(
                unmet_rules(&view, LIMITS, *first),
                [],
                "the first claimed step must have no pending reason"
            );
        } else {
            for step in self.in_state(StepState::Todo) {
                assert_ne!(
                    unmet_rules(&view, LIMITS, step),
                    [],
                    "{step} was not claimed and has no pending reason"
                );
            }
        }
        for id in &picks {
            let step = &self.world.steps[id];
            assert!(self.holds(step), "{id} starts before its join is satisfied");
            assert!(!step.is_immediate());
            assert!(
                !self.uncertain.contains(id),
                "{id} runs again although its first run may have finished"
            );
            assert!(
                !self.destroyed.contains(&(*id, step.progress.generation)),
                "{id} runs twice at one generation"
            );
            assert!(step.needs != Needs::Alive || step.progress.node_up);
            let index = *self.born.iter().find(|i| step_id(**i) == *id).unwrap();
            let run = Run {
                generation: step.progress.generation,
                node: step.node,
                exclusive: self.drawn[index].exclusive,
            };
            self.runs.insert(*id, run);
            self.change(&Change::Step { step: *id, event: Event::Started }).unwrap();
        }
        self.check_limits();
        picks.len()
    }

    fn check_limits(&self) {
        for (concurrency_group, (_, max, _)) in CONCURRENCY_GROUPS.iter().enumerate() {
            let running = self.born.iter().filter(|i| {
                self.drawn[**i].concurrency_group == concurrency_group
                    && self.runs.contains_key(&step_id(**i))
            });
            let running = running.count();
            assert!(
                max.is_none_or(|max| running <= max as usize),
                "concurrency group {concurrency_group} exceeds its limit"
            );
        }
    }

    fn end(&mut self, step: StepId, event: impl FnOnce(BlueprintNumber) -> Event) {
        let Some(run) = self.runs.remove(&step) else { return };
        let event = event(run.generation);
        let applied = matches!(event, Event::Succeeded { generation } if generation == self.world.steps[&step].progress.generation);
        if self.world.steps[&step].destructive {
            if applied {
                assert!(
                    self.destroyed.insert((step, run.generation)),
                    "a destructive step was applied twice at one generation"
                );
            }
            if matches!(event, Event::Lost { .. }) {
                self.uncertain.insert(step);
            }
        }
        self.change(&Change::Step { step, event }).unwrap();
        if applied {
            assert_eq!(self.world.steps[&step].progress.applied, Some(run.generation));
        }
    }

    /// A user confirms that the step may run (again).
    fn answered(&mut self, step: StepId) {
        self.uncertain.remove(&step);
    }

    fn commit(&mut self, picks: &[usize]) {
        self.target += 1;
        let all: Vec<StepId> = self.world.steps.keys().copied().collect();
        let steps: BTreeSet<StepId> = picks.iter().map(|n| all[n % all.len()]).collect();
        for step in &steps {
            // A run that is open when its step changes continues, and its result is no more
            // uncertain than others.
            self.answered(*step);
        }
        let rerun = Some((BlueprintNumber(self.target), RerunReason::Slice));
        if picks[0].is_multiple_of(2) {
            // Like a database that first writes all intent.
            for step in &steps {
                self.world.steps.get_mut(step).unwrap().progress.generation =
                    BlueprintNumber(self.target);
            }
        }
        let change = Change::Commit(
            steps.iter().map(|step| Committed { step: *step, rerun, parents: None }).collect(),
        );
        let before: Vec<Step> = self.world.steps.values().cloned().collect();
        self.change(&change).unwrap();
        for step in before.iter().filter(|step| !steps.contains(&step.id)) {
            if step.progress.state == StepState::Active && !step.is_immediate() {
                assert_eq!(
                    self.state(step.id),
                    StepState::Active,
                    "children of a step that runs again must stay ACTIVE"
                );
            }
        }
        let older = Change::Step {
            step: *steps.first().unwrap(),
            event: Event::Rerun { generation: BlueprintNumber(1), reason: RerunReason::Slice },
        };
        assert!(matches!(self.change(&older), Err(Refused::StaleGeneration { .. })));
    }

    fn skip(&mut self, pick: usize) {
        let indexes: Vec<usize> = self.born.iter().copied().collect();
        let index = indexes[pick % indexes.len()];
        let id = step_id(index);
        self.target += 1;
        self.answered(id);
        let step = self.world.steps.get_mut(&id).unwrap();
        step.skipped = !step.skipped;
        let mut committed = vec![Committed {
            step: id,
            rerun: Some((BlueprintNumber(self.target), RerunReason::Changed)),
            parents: None,
        }];
        for (child, kind) in self.children(index) {
            if kind == EdgeKind::OrderOnly {
                committed.push(Committed {
                    step: step_id(child),
                    rerun: None,
                    parents: Some(self.parents(child)),
                });
            }
        }
        self.change(&Change::Commit(committed)).unwrap();
    }

    fn drift(&mut self, step: StepId) {
        let generation = self.world.steps[&step].progress.generation;
        let done = self.world.steps[&step].is_final();
        let event = Event::Rerun { generation, reason: RerunReason::Drift };
        match self.change(&Change::Step { step, event }) {
            Ok(()) => assert!(!done),
            Err(Refused::AlreadyApplied { .. }) => assert!(done),
            Err(Refused::Unrequested { .. }) => assert_eq!(self.state(step), StepState::Error),
            Err(other) => panic!("{other}"),
        }
    }

    /// A failed check re-runs an ACTIVE step with a result, or makes it ERROR. It never repeats a
    /// destructive one.
    fn check_fails(&mut self, step: StepId, rerun: bool) {
        let before = self.world.steps[&step].clone();
        let event = Event::CheckFailed { reason: "the service is down".into(), rerun };
        let checked = before.progress.state == StepState::Active && !before.is_immediate();
        match self.change(&Change::Step { step, event }) {
            Err(Refused::State { .. }) => return assert!(!checked),
            other => other.unwrap(),
        }
        assert!(checked);
        let after = &self.world.steps[&step];
        assert_eq!(after.progress.generation, before.progress.generation);
        assert_eq!(after.progress.applied, before.progress.applied);
        if rerun && !before.destructive {
            assert_eq!(after.progress.cause, Some(Cause::new(RerunReason::Check)));
            assert!(matches!(after.progress.state, StepState::Todo | StepState::Blocked));
        } else {
            assert!(after.is_check_failed());
            assert_eq!(after.progress.error.as_deref(), Some("the service is down"));
        }
    }

    /// A check that passes again returns the step to its result, without a run.
    fn check_passes(&mut self, step: StepId) {
        let before = self.world.steps[&step].clone();
        match self.change(&Change::Step { step, event: Event::CheckPassed }) {
            Err(Refused::State { .. }) => return assert!(!before.is_check_failed()),
            other => other.unwrap(),
        }
        assert!(before.is_check_failed());
        let after = &self.world.steps[&step];
        let expected =
            if after.progress.pending == 0 { StepState::Active } else { StepState::Blocked };
        assert_eq!((after.progress.state, after.progress.error.clone()), (expected, None));
        assert_eq!(after.progress.applied, before.progress.applied);
    }

    fn node_down(&mut self, node: usize) {
        self.up[node] = false;
        self.change(&Change::NodeDown { node: node_id(node) }).unwrap();
        for step in self.world.steps.values().filter(|s| s.node == node_id(node)) {
            assert!(!step.progress.node_up);
            if step.needs != Needs::Alive || step.is_immediate() {
                continue;
            }
            match step.progress.state {
                StepState::Transition => panic!("an attempt is still open on a dead node"),
                StepState::Active => assert!(step.is_final()),
                StepState::Error => assert!(step.destructive),
                StepState::Todo => {
                    assert!(!step.needs_no_run(), "an ACTIVE step on a dead node still counts")
                }
                StepState::Blocked => {}
            }
        }
    }

    fn node_up(&mut self, node: usize, resumes: bool) {
        self.up[node] = true;
        let away = self.world.steps.values().filter(|s| {
            s.node == node_id(node) && s.progress.cause == Some(Cause::new(RerunReason::NodeAway))
        });
        let away: BTreeSet<StepId> = away.map(|s| s.id).collect();
        let resumed = if resumes { away.clone() } else { BTreeSet::new() };
        self.change(&Change::NodeUp { node: node_id(node), resumed }).unwrap();
        for id in away {
            let step = &self.world.steps[&id];
            assert!(step.is_applied());
            assert_eq!(
                step.progress.cause.is_none(),
                resumes,
                "the step must either run again or keep its result"
            );
        }
        assert!(
            self.world
                .steps
                .values()
                .filter(|s| s.node == node_id(node))
                .all(|s| s.progress.node_up)
        );
    }

    fn retry(&mut self, step: StepId) {
        self.answered(step);
        self.change(&Change::Step { step, event: Event::Retry { reason: RerunReason::Retry } })
            .unwrap();
        assert_ne!(self.state(step), StepState::Error);
    }

    fn perform(&mut self, op: &Op) {
        let running = |n: &usize| self.pick(StepState::Transition, *n);
        match op {
            Op::Claim => drop(self.claim()),
            Op::Succeed(n) => running(n)
                .into_iter()
                .for_each(|s| self.end(s, |generation| Event::Succeeded { generation })),
            Op::Fail(n, retry) => running(n).into_iter().for_each(|s| {
                let retry = *retry;
                self.end(s, |generation| Event::Failed {
                    generation,
                    reason: "exit 1".into(),
                    retry,
                });
            }),
            Op::Lose(n) => running(n)
                .into_iter()
                .for_each(|s| self.end(s, |generation| Event::Lost { generation })),
            Op::NeverStarted(n) => {
                running(n).into_iter().for_each(|s| self.end(s, |_| Event::NeverStarted))
            }
            Op::Cancel(n) => running(n)
                .into_iter()
                .for_each(|s| self.end(s, |_| Event::Canceled { by: "ada".into() })),
            Op::Retry(n) => self.pick(StepState::Error, *n).into_iter().for_each(|s| self.retry(s)),
            Op::Drift(n) => {
                let all: Vec<StepId> = self.world.steps.keys().copied().collect();
                if !all.is_empty() {
                    self.drift(all[n % all.len()]);
                }
            }
            Op::CheckFails(n, rerun) => self
                .pick(StepState::Active, *n)
                .into_iter()
                .for_each(|s| self.check_fails(s, *rerun)),
            Op::CheckPasses(n) => {
                self.pick(StepState::Error, *n).into_iter().for_each(|s| self.check_passes(s))
            }
            Op::Commit(picks) if !self.born.is_empty() => self.commit(picks),
            Op::Skip(n) if !self.born.is_empty() => self.skip(*n),
            Op::Commit(_) | Op::Skip(_) => {}
            Op::Grow => {
                let next = (0..self.drawn.len()).find(|index| !self.born.contains(index));
                next.into_iter().for_each(|index| self.grow(&[index]));
            }
            Op::NodeDown(n) => self.node_down(*n),
            Op::NodeUp(n, resumes) => self.node_up(*n, *resumes),
            Op::PendingReason => self.now += Duration::from_secs(7).as_micros() as i64,
        }
    }

    /// Stops all faults: nodes are back, users retry, and every run succeeds.
    fn heal(&mut self) {
        (0..NODES).for_each(|node| self.node_up(node, false));
        for _ in 0..20 * self.world.steps.len() + 20 {
            for step in self.in_state(StepState::Error) {
                self.retry(step);
            }
            let claimed = self.claim();
            let open: Vec<StepId> = self.runs.keys().copied().collect();
            if claimed == 0 && open.is_empty() {
                if self.world.steps.values().all(Step::is_converged) {
                    return;
                }
                self.now += Duration::from_secs(3600).as_micros() as i64;
            }
            for step in open {
                self.end(step, |generation| Event::Succeeded { generation });
            }
        }
        let view = self.view();
        for step in self.world.steps.values().filter(|step| !step.is_converged()) {
            let reasons = unmet_rules(&view, LIMITS, step.id);
            println!(
                "{} {} pending {}: {reasons:?}",
                step.id, step.progress.state, step.progress.pending
            );
        }
        panic!("the steps did not converge");
    }
}

/// `PROPTEST_CASES` overrides the number of cases.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(256);
    ProptestConfig {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_events_preserve_invariants_and_converge(
        steps in graph(),
        ops in proptest::collection::vec(op(), 0..70),
    ) {
        let mut cluster = Cluster::new(steps);
        for op in &ops {
            cluster.perform(op);
        }
        cluster.heal();
        for step in cluster.world.steps.values() {
            prop_assert_eq!(step.progress.pending, 0);
        }
    }

    #[test]
    fn every_step_runs_once_without_failures(steps in graph()) {
        let mut cluster = Cluster::new(steps);
        let mut runs: BTreeMap<StepId, usize> = BTreeMap::new();
        loop {
            cluster.claim();
            let open: Vec<StepId> = cluster.runs.keys().copied().collect();
            let Some(step) = open.first().copied() else { break };
            *runs.entry(step).or_default() += 1;
            cluster.end(step, |generation| Event::Succeeded { generation });
        }
        for step in cluster.world.steps.values() {
            prop_assert!(step.is_converged(), "{} is {}", step.id, step.progress.state);
            prop_assert_eq!(runs.get(&step.id).copied().unwrap_or(0), usize::from(!step.immediate));
        }
    }
}

proptest! {
    #![proptest_config(config())]

    /// Several ends in one transaction equal the same ends one after the other. If one is refused,
    /// none is applied.
    #[test]
    fn batched_ends_equal_sequential_ends(
        steps in graph(),
        ops in proptest::collection::vec(op(), 0..50),
        fails in proptest::collection::vec(any::<bool>(), 8),
    ) {
        let mut cluster = Cluster::new(steps);
        for op in &ops {
            cluster.perform(op);
        }
        cluster.claim();
        let mut changes: Vec<Change> = Vec::new();
        for (step, fails) in cluster.in_state(StepState::Transition).into_iter().zip(fails.iter().cycle()) {
            let generation = cluster.world.steps[&step].progress.generation;
            let event = match fails {
                true => Event::Failed { generation, reason: "drawn".into(), retry: false },
                false => Event::Succeeded { generation },
            };
            // The second event is too late for a step that no longer waits for any parent.
            changes.extend([Change::Step { step, event: event.clone() }, Change::Step { step, event }]);
        }
        let (together, refused) = apply_each(&cluster.world, &changes).unwrap();
        let mut alone = cluster.world.clone();
        for (place, change) in changes.iter().enumerate() {
            match apply(&alone, change) {
                Ok(outcome) => {
                    prop_assert!(!refused.contains_key(&place));
                    alone.take(&outcome);
                }
                Err(Stop::Refused(reason)) => prop_assert_eq!(refused.get(&place), Some(&reason)),
                Err(other) => panic!("{other:?}"),
            }
        }
        let mut both = cluster.world.clone();
        both.take(&together);
        prop_assert_eq!(&both.steps, &alone.steps);
        for delta in &together.deltas {
            prop_assert_eq!(delta.was, cluster.world.steps[&delta.step].progress.state);
        }
        prop_assert!(together.deltas.is_sorted_by_key(|delta| (delta.rank, delta.step)));
    }
}

/// A barrier over more immediate steps than one batch settles. Each call is bounded, intermediate
/// counts are correct, and the result is the same.
#[test]
fn settling_is_bounded_and_resumable() {
    let wide = BATCH + BATCH / 2;
    let id = |n: usize| StepId(Uuid::from_u128(n as u128 + 1));
    let node = node_id(0);
    let make = |n: usize, rank: u32, immediate: bool, state: StepState, pending: u32| Step {
        id: id(n),
        node,
        rank,
        join: Join::default(),
        destructive: false,
        immediate,
        skipped: false,
        needs: Needs::Alive,
        retries: 0,
        backoff: 0,
        progress: Progress { state, pending, ..Progress::new(BlueprintNumber(1), true) },
    };
    let child = |n: usize| Child { step: id(n), kind: EdgeKind::Hard };
    let last = wide + 1;
    let mut world = World::default();
    world.add(make(0, 0, false, StepState::Transition, 0), (1..=wide).map(child).collect());
    for n in 1..=wide {
        world.add(make(n, 1, true, StepState::Blocked, 1), vec![child(last)]);
    }
    world.add(make(last, 2, false, StepState::Blocked, wide as u32), Vec::new());

    let event = Event::Succeeded { generation: BlueprintNumber(1) };
    let first = apply(&world, &Change::Step { step: id(0), event }).unwrap();
    world.take(&first);
    let active = |world: &World| {
        world.steps.values().filter(|s| s.progress.state == StepState::Active).count()
    };
    assert_eq!(active(&world), 1 + BATCH);
    assert_eq!(first.more.len(), wide - BATCH);
    assert!(
        first.more.iter().all(|id| world.steps[id].progress.state == StepState::Todo
            && world.steps[id].needs_no_run())
    );
    assert_eq!(world.steps[&id(last)].progress.pending as usize, wide - BATCH);
    assert_eq!(world.steps[&id(last)].progress.state, StepState::Blocked);
    let started = apply(&world, &Change::Step { step: first.more[0], event: Event::Started });
    assert_eq!(started, Err(Stop::Refused(Refused::NoRunNeeded { step: first.more[0] })));

    let second = apply(&world, &Change::Settle { steps: first.more.clone() }).unwrap();
    world.take(&second);
    assert!(second.more.is_empty());
    assert_eq!(world.steps[&id(last)].progress.state, StepState::Todo);
    let again = apply(&world, &Change::Settle { steps: first.more }).unwrap();
    assert_eq!(again, Outcome::default(), "settling a settled graph must change nothing");
}
