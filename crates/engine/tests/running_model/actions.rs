//! The actors and their actions: workers, claimers, the reaper, nodes, people and faults. Each
//! performs one action at a time, in any order.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{Progress, StepState};
use engine::ids::BlueprintNumber;
use stateright::{Model, Property};

use super::database::Ender;
use super::state::{
    Attempt, End, Guard, LeasedRun, Ledger, Node, Owner, Phase, Protocol, ReaperView, RunNo, State,
    StepRow, Truth,
};

/// One action of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    // Workers and the queue
    Claim(usize),
    /// Without the claim's lock: a claimer reads now and writes later.
    ReadClaim(usize, usize),
    WriteClaim(usize),
    Lease(usize),
    /// Checks the chain of approvals and calls the wrapper.
    Send(usize),
    /// Learns that the run has ended, or that the node knows nothing of it.
    Hear(usize),
    /// Fetches the outcome and the result.
    Fetch(usize),
    /// Reconnects to the node, or asks it to end a run that it does not find. The flag says whether
    /// that request arrives.
    CheckNodeAgain(usize, bool),
    Renew(usize),
    /// Finds that it no longer owns the run, and ends it on the node. The flag says whether that
    /// request arrives.
    Release(usize, bool),
    StopCancelled(usize, bool),
    Finish(usize),
    EndCanceledQueued(RunNo),
    // Nodes
    Arrive(Attempt),
    ScriptEnds(Attempt),
    NodeUp(usize),
    // The reaper
    LeaseEnds(RunNo),
    ReaperFinds(RunNo),
    ReaperRequests(bool),
    ReaperEnds,
    // People
    Resume,
    Pause,
    Commit(usize),
    Cancel(RunNo),
    Retry(usize),
    // Faults
    Stall(RunNo),
    Crash(usize),
    CutLine(usize),
    ScriptFails(Attempt),
    NodeDown(usize),
    Reboot(usize),
    Unapproved(usize),
    Backwards(usize),
}

impl Action {
    /// Whether an actor will take this action sooner or later. All other actions may never happen.
    pub fn is_progress(self) -> bool {
        use Action::*;
        !matches!(
            self,
            Pause
                | Commit(_)
                | Cancel(_)
                | Retry(_)
                | Stall(_)
                | Crash(_)
                | CutLine(_)
                | ScriptFails(_)
                | NodeDown(_)
                | Reboot(_)
                | Unapproved(_)
                | Backwards(_)
                | CheckNodeAgain(_, false)
                | Release(_, false)
                | StopCancelled(_, false)
                | ReaperRequests(false)
        )
    }
}

impl Protocol {
    fn first(&self) -> State {
        let row = StepRow::of(&Progress::new(BlueprintNumber(1), true));
        let node = Node { ledger: vec![Ledger::default(); self.steps.len()], ..Node::default() };
        let truth = Truth {
            done: vec![BTreeSet::new(); self.steps.len()],
            token: vec![0; self.steps.len()],
            approved: BTreeSet::from([1]),
            ..Truth::default()
        };
        let mut state = State {
            steps: vec![row; self.steps.len()],
            runs: BTreeMap::new(),
            next: 1,
            target: 1,
            enabled: true,
            alive: vec![true; self.nodes],
            workers: vec![None; self.workers],
            claims: [None, None],
            reaper: None,
            nodes: vec![node; self.nodes],
            left: self.faults,
            truth,
        };
        self.first_commit(&mut state);
        state
    }

    fn node_of(&self, state: &State, run: RunNo) -> usize {
        self.steps[state.runs[&run].step].node
    }

    /// Whether the node has anything of a run to wait for.
    fn exists(&self, state: &State, run: RunNo) -> bool {
        let node = &state.nodes[self.node_of(state, run)];
        node.coming.iter().chain(&node.processes).any(|attempt| attempt.run == run)
    }

    fn worker_actions(&self, state: &State, worker: usize, actions: &mut Vec<Action>) {
        let Some(LeasedRun { run, phase }) = state.workers[worker] else {
            if state.open().any(|(_, run)| run.queued()) {
                actions.push(Action::Lease(worker));
            }
            return;
        };
        let row = &state.runs[&run];
        let ours = !row.ended && row.owner == Owner::Worker(worker);
        match phase {
            Phase::Leased => actions.push(Action::Send(worker)),
            Phase::Sent => {
                if !self.exists(state, run) {
                    actions.push(Action::Hear(worker));
                }
                if state.left.cuts > 0 {
                    actions.push(Action::CutLine(worker));
                }
            }
            Phase::Cut => {
                actions.push(Action::CheckNodeAgain(worker, true));
                if state.left.cuts > 0 && !self.is_found(state, run) {
                    actions.push(Action::CheckNodeAgain(worker, false));
                }
            }
            Phase::Fetching => {
                actions.push(Action::Fetch(worker));
                if state.left.cuts > 0 {
                    actions.push(Action::CutLine(worker));
                }
            }
            Phase::Finishing(_) => actions.push(Action::Finish(worker)),
        }
        if matches!(phase, Phase::Sent | Phase::Cut) {
            let reached = [true, false].into_iter().take(if state.left.cuts > 0 { 2 } else { 1 });
            for reached in reached {
                if !ours || row.expired {
                    actions.push(Action::Release(worker, reached));
                }
                if ours && row.canceled {
                    actions.push(Action::StopCancelled(worker, reached));
                }
            }
        }
        if ours && row.expired {
            actions.push(Action::Renew(worker));
        }
        if state.left.crashes > 0 {
            actions.push(Action::Crash(worker));
        }
    }

    fn claim_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.has(Guard::ClaimLock) {
            actions.extend(self.admissible(state).into_iter().map(Action::Claim));
            return;
        }
        // Two claimers that skip each other's locked rows. Skipping locked rows alone does not
        // protect limits.
        for claimer in 0..state.claims.len() {
            let other = state.claims[1 - claimer];
            match state.claims[claimer] {
                Some(_) => actions.push(Action::WriteClaim(claimer)),
                None => {
                    let free =
                        self.admissible(state).into_iter().filter(|step| Some(*step) != other);
                    actions.extend(free.map(|step| Action::ReadClaim(claimer, step)));
                }
            }
        }
    }

    fn node_actions(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let left = &state.left;
        actions.extend(state.nodes[node].coming.iter().map(|attempt| Action::Arrive(*attempt)));
        for attempt in &state.nodes[node].processes {
            actions.push(Action::ScriptEnds(*attempt));
            if left.failures > 0 {
                actions.push(Action::ScriptFails(*attempt));
            }
        }
        if !state.alive[node] {
            actions.push(Action::NodeUp(node));
        } else if left.deaths > 0 {
            actions.push(Action::NodeDown(node));
        }
        if left.reboots > 0 {
            actions.push(Action::Reboot(node));
        }
    }

    fn reaper_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !self.has(Guard::Reaper) {
            return;
        }
        match state.reaper {
            Some(seen) if seen.never_started.is_none() => {
                actions.push(Action::ReaperRequests(true));
                if state.left.cuts > 0 {
                    actions.push(Action::ReaperRequests(false));
                }
            }
            Some(_) => actions.push(Action::ReaperEnds),
            None => {
                let overdue = state.open().filter(|(_, run)| run.expired);
                actions.extend(overdue.map(|(number, _)| Action::ReaperFinds(number)));
            }
        }
    }

    fn run_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, run) in state.open() {
            let waited_for = run.queued() || state.is_leased(number);
            if !run.expired && !waited_for && self.has(Guard::LeaseEnds) {
                actions.push(Action::LeaseEnds(number));
            }
            if !run.expired && waited_for && state.left.stalls > 0 {
                actions.push(Action::Stall(number));
            }
            if !run.canceled && state.left.cancels > 0 {
                actions.push(Action::Cancel(number));
            }
            if run.canceled && run.queued() {
                actions.push(Action::EndCanceledQueued(number));
            }
        }
    }

    fn people_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.enabled {
            actions.push(Action::Resume);
        } else if state.left.pauses > 0 {
            actions.push(Action::Pause);
        }
        for (index, row) in state.steps.iter().enumerate() {
            if state.left.commits > 0 {
                actions.push(Action::Commit(index));
            }
            if state.left.retries > 0 && row.state == StepState::Error {
                actions.push(Action::Retry(index));
            }
            if state.left.unapproved > 0 {
                actions.push(Action::Unapproved(index));
            }
            if state.left.backwards > 0 && row.state == StepState::Active && row.generation > 1 {
                actions.push(Action::Backwards(index));
            }
        }
    }

    fn worker_acts(&self, state: &mut State, worker: usize, action: Action) {
        let Some(LeasedRun { run, phase }) = state.workers[worker] else { return };
        let row = state.runs[&run].clone();
        let mut now = |phase| state.workers[worker] = Some(LeasedRun { run, phase });
        match action {
            Action::Send(_) => self.send(state, worker, run),
            Action::Hear(_) => {
                let node = &state.nodes[self.node_of(state, run)];
                // A run without a result was refused, ended by another actor, or lost its
                // supervisor.
                let has_result = node.results.contains_key(&run);
                let phase =
                    if has_result { Phase::Fetching } else { Phase::Finishing(End::Failed) };
                state.workers[worker] = Some(LeasedRun { run, phase });
            }
            Action::Fetch(_) => {
                let node = self.node_of(state, run);
                let end = match state.nodes[node].results.remove(&run) {
                    Some(true) => End::Succeeded,
                    // The script failed, or a newer attempt has deleted the outcome.
                    Some(false) | None => End::Failed,
                };
                state.workers[worker] = Some(LeasedRun { run, phase: Phase::Finishing(end) });
            }
            Action::CutLine(_) => {
                now(match phase {
                    // The fetch is not repeated: whether the script succeeded is unknown.
                    Phase::Fetching => Phase::Finishing(End::Failed),
                    _ => Phase::Cut,
                });
                state.left.cuts -= 1;
            }
            Action::CheckNodeAgain(_, reached) => self.check_again(state, worker, run, reached),
            Action::Release(_, reached) => {
                state.workers[worker] = None;
                self.try_end(state, row.step, run, reached);
            }
            Action::StopCancelled(_, reached) => {
                now(Phase::Finishing(End::Canceled));
                self.try_end(state, row.step, run, reached);
            }
            Action::Finish(_) => {
                let Phase::Finishing(end) = phase else { return };
                let applied = self.end_run(state, run, Ender::Worker(worker), end);
                state.truth.late |= !applied;
                state.workers[worker] = None;
            }
            Action::Crash(_) => {
                state.workers[worker] = None;
                state.left.crashes -= 1;
                for run in state.runs.values_mut().filter(|run| run.owner == Owner::Worker(worker))
                {
                    run.owner = Owner::Gone;
                }
            }
            _ => {}
        }
    }

    /// From the row to the wrapper, with all checks in between.
    fn send(&self, state: &mut State, worker: usize, run: RunNo) {
        let row = state.runs[&run].clone();
        if row.ended || row.owner != Owner::Worker(worker) {
            state.workers[worker] = None;
            return;
        }
        if self.has(Guard::Approval) && !state.truth.approved.contains(&row.generation) {
            state.workers[worker] = Some(LeasedRun { run, phase: Phase::Finishing(End::Failed) });
            return;
        }
        let node = self.steps[row.step].node;
        state.nodes[node].coming.insert(Attempt {
            run,
            step: row.step,
            generation: row.generation,
        });
        state.workers[worker] = Some(LeasedRun { run, phase: Phase::Sent });
    }

    /// Whether the node has something of a run to follow or to fetch.
    fn is_found(&self, state: &State, run: RunNo) -> bool {
        let node = &state.nodes[self.node_of(state, run)];
        node.processes.iter().any(|attempt| attempt.run == run) || node.results.contains_key(&run)
    }

    fn check_again(&self, state: &mut State, worker: usize, run: RunNo, reached: bool) {
        let phase = if self.is_found(state, run) {
            Phase::Sent
        } else {
            // The call may still be in transit and must not start later. If the request does not
            // reach the node, it still may.
            self.try_end(state, state.runs[&run].step, run, reached);
            Phase::Finishing(End::Failed)
        };
        state.workers[worker] = Some(LeasedRun { run, phase });
    }

    fn try_end(&self, state: &mut State, step: usize, run: RunNo, reached: bool) -> Option<bool> {
        if reached {
            return Some(self.end_on_node(state, step, run));
        }
        state.left.cuts -= 1;
        None
    }

    fn reaper_acts(&self, state: &mut State, action: Action) {
        match (action, state.reaper) {
            (Action::ReaperFinds(number), _) => {
                let run = &state.runs[&number];
                let leased = !run.queued();
                // The reaper asks the node only about destructive runs.
                let ask = leased && self.steps[run.step].destructive;
                let never_started = match (ask, self.has(Guard::Proof)) {
                    (false, _) => Some(!leased),
                    (true, true) => None,
                    (true, false) => Some(true),
                };
                state.reaper =
                    Some(ReaperView { run: number, step: run.step, leased, never_started });
            }
            (Action::ReaperRequests(reached), Some(seen)) => {
                let text = self.try_end(state, seen.step, seen.run, reached);
                state.reaper = Some(ReaperView { never_started: Some(text == Some(true)), ..seen });
            }
            (Action::ReaperEnds, Some(seen)) => {
                state.reaper = None;
                let end = if seen.never_started == Some(true) { End::Unstarted } else { End::Lost };
                let ender = if seen.leased { Ender::Reaper } else { Ender::ReaperQueued };
                self.end_run(state, seen.run, ender, end);
            }
            _ => {}
        }
    }

    fn person_acts(&self, state: &mut State, action: Action) {
        match action {
            Action::Pause => {
                state.enabled = false;
                state.left.pauses -= 1;
            }
            Action::Resume => state.enabled = true,
            Action::Commit(step) => {
                self.commit(state, step);
                state.left.commits -= 1;
            }
            Action::Cancel(run) => {
                self.cancel(state, run);
                state.left.cancels -= 1;
            }
            Action::Retry(step) => {
                self.retry(state, step);
                state.left.retries -= 1;
            }
            Action::Unapproved(step) => {
                self.tamper(state, step);
                state.left.unapproved -= 1;
            }
            Action::Backwards(step) => {
                let row = &mut state.steps[step];
                (row.state, row.generation, row.applied) = (StepState::Todo, 1, None);
                state.left.backwards -= 1;
            }
            _ => {}
        }
    }

    fn node_acts(&self, state: &mut State, action: Action) {
        match action {
            Action::Arrive(attempt) => self.start(state, attempt),
            Action::ScriptEnds(attempt) => self.script_ends(state, attempt, true),
            Action::ScriptFails(attempt) => {
                self.script_ends(state, attempt, false);
                state.left.failures -= 1;
            }
            Action::NodeDown(node) => {
                self.node_down(state, node);
                state.left.deaths -= 1;
            }
            Action::NodeUp(node) => self.node_up(state, node),
            Action::Reboot(node) => {
                state.nodes[node].processes.clear();
                state.left.reboots -= 1;
            }
            _ => {}
        }
    }

    fn database_acts(&self, state: &mut State, action: Action) {
        match action {
            Action::Claim(step) => self.claim(state, step),
            Action::ReadClaim(claimer, step) => state.claims[claimer] = Some(step),
            Action::WriteClaim(claimer) => {
                if let Some(step) = state.claims[claimer].take() {
                    self.claim(state, step);
                }
            }
            Action::Lease(worker) => self.lease(state, worker),
            Action::EndCanceledQueued(run) => {
                self.end_run(state, run, Ender::Queue, End::Canceled);
            }
            Action::LeaseEnds(run) | Action::Stall(run) => {
                state.runs.entry(run).and_modify(|run| run.expired = true);
                state.left.stalls -= u8::from(matches!(action, Action::Stall(_)));
            }
            Action::Renew(worker) => {
                if let Some(lease) = state.workers[worker] {
                    state.runs.entry(lease.run).and_modify(|run| run.expired = false);
                }
            }
            _ => {}
        }
    }

    /// Every step is done, or has failed and is reported.
    pub fn settled(&self, state: &State) -> bool {
        let waits_below_an_error = |index: usize| {
            let parent = self.steps[index].parent;
            parent.is_some_and(|parent| {
                matches!(state.steps[parent].state, StepState::Error | StepState::Blocked)
            })
        };
        state.open().next().is_none()
            && state.steps.iter().enumerate().all(|(index, row)| match row.state {
                StepState::Active | StepState::Error => true,
                StepState::Blocked => waits_below_an_error(index),
                StepState::Todo | StepState::Transition => false,
            })
    }

    fn one_on_each_node(&self, state: &State) -> bool {
        state.nodes.iter().all(|node| {
            node.processes.iter().filter(|attempt| self.steps[attempt.step].exclusive).count() <= 1
        })
    }

    fn one_open(&self, state: &State) -> bool {
        let open_of = |step: usize| state.open().filter(|(_, run)| run.step == step).count();
        let exclusive_on = |node: usize| {
            state
                .open()
                .filter(|(_, run)| {
                    self.steps[run.step].node == node && self.steps[run.step].exclusive
                })
                .count()
        };
        let agrees = |step: usize| {
            open_of(step) == usize::from(state.steps[step].state == StepState::Transition)
        };
        (0..self.steps.len()).all(agrees) && (0..self.nodes).all(|node| exclusive_on(node) <= 1)
    }

    fn within_the_group(&self, state: &State) -> bool {
        self.concurrency_group.is_none_or(|most| state.open().count() <= most as usize)
    }

    fn destroyed_once(&self, state: &State) -> bool {
        let requests = |key| state.truth.requested.get(key).copied().unwrap_or(0);
        state.truth.starts.iter().all(|(key, starts)| *starts <= 1 + requests(key))
    }

    fn applied_is_done(&self, state: &State) -> bool {
        state
            .steps
            .iter()
            .zip(&state.truth.done)
            .all(|(row, done)| row.applied.is_none_or(|applied| done.contains(&applied)))
    }
}

pub const ONE_ON_EACH_NODE: &str = "no two exclusive scripts run on a node at once";
pub const ONE_OPEN: &str =
    "a step in TRANSITION has one open run, others none, and a node one exclusive one";
pub const CONCURRENCY_GROUP: &str = "a concurrency group never has more runs than its limit";
pub const APPLIED_IS_DONE: &str = "what counts as applied has run on the node, at that generation";
pub const DESTROYED_ONCE: &str =
    "a destructive step starts once for each generation, unless a person asks again";
pub const NOTHING_WRONG: &str =
    "no outdated, unapproved or unordered start; nothing goes back; nothing starts in a pause";

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // Ignores everything after a fault was detected.
        if state.truth.wrong.is_some() {
            return;
        }
        self.claim_actions(state, actions);
        (0..self.workers).for_each(|worker| self.worker_actions(state, worker, actions));
        (0..self.nodes).for_each(|node| self.node_actions(state, node, actions));
        self.run_actions(state, actions);
        self.reaper_actions(state, actions);
        self.people_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        use Action::*;
        let mut state = last.clone();
        match action {
            Claim(_) | ReadClaim(..) | WriteClaim(_) | Lease(_) | EndCanceledQueued(_)
            | LeaseEnds(_) | Stall(_) | Renew(_) => self.database_acts(&mut state, action),
            Send(worker)
            | Hear(worker)
            | Fetch(worker)
            | CheckNodeAgain(worker, _)
            | Release(worker, _)
            | StopCancelled(worker, _)
            | Finish(worker)
            | Crash(worker)
            | CutLine(worker) => self.worker_acts(&mut state, worker, action),
            Arrive(_) | ScriptEnds(_) | ScriptFails(_) | NodeDown(_) | NodeUp(_) | Reboot(_) => {
                self.node_acts(&mut state, action);
            }
            ReaperFinds(_) | ReaperRequests(_) | ReaperEnds => self.reaper_acts(&mut state, action),
            Resume | Pause | Commit(_) | Cancel(_) | Retry(_) | Unapproved(_) | Backwards(_) => {
                self.person_acts(&mut state, action);
            }
        }
        let falls = last.steps.iter().zip(&state.steps).any(|(was, is)| is.applied < was.applied);
        if falls && !matches!(action, Backwards(_)) {
            state.truth.wrong = Some("the applied generation went down");
        }
        self.forget(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_ON_EACH_NODE, Self::one_on_each_node),
            Property::always(ONE_OPEN, Self::one_open),
            Property::always(CONCURRENCY_GROUP, Self::within_the_group),
            Property::always(APPLIED_IS_DONE, Self::applied_is_done),
            Property::always(DESTROYED_ONCE, Self::destroyed_once),
            Property::always(NOTHING_WRONG, |_, state: &State| state.truth.wrong.is_none()),
        ]
    }
}
