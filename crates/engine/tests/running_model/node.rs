//! The wrapper on the node. Each command decides under the node's lock, so each is one action.

use super::state::{Attempt, Guard, Protocol, RunNo, State};

impl Protocol {
    fn refuses(&self, state: &State, attempt: Attempt) -> bool {
        let spec = &self.steps[attempt.step];
        let node = &state.nodes[spec.node];
        let ledger = node.ledger[attempt.step];
        (self.has(Guard::StepToken) && attempt.run <= ledger.attempt)
            || (self.has(Guard::LedgerGeneration) && attempt.generation < ledger.generation)
            || (self.has(Guard::NodeToken) && spec.exclusive && attempt.run <= node.exclusive)
    }

    /// `run`: checks the token, ends older attempts, writes the ledger, and starts the script.
    pub fn start(&self, state: &mut State, attempt: Attempt) {
        let spec = self.steps[attempt.step];
        let refuses = self.refuses(state, attempt);
        let node = &mut state.nodes[spec.node];
        node.coming.remove(&attempt);
        if refuses {
            state.truth.refused = true;
            return;
        }
        if self.has(Guard::EndOlder) {
            let specs = &self.steps;
            let stays = |other: &Attempt| {
                other.step != attempt.step && !(spec.exclusive && specs[other.step].exclusive)
            };
            node.processes.retain(stays);
            // Their outcomes are deleted together with their folders.
            let runs = &state.runs;
            let of = |run: RunNo| {
                runs.get(&run).map(|row| Attempt {
                    run,
                    step: row.step,
                    generation: row.generation,
                })
            };
            node.results.retain(|run, _| of(*run).is_some_and(|other| stays(&other)));
        }
        if spec.exclusive {
            node.exclusive = attempt.run;
        }
        let ledger = &mut node.ledger[attempt.step];
        ledger.attempt = attempt.run;
        ledger.started = attempt.run;
        ledger.generation = attempt.generation;
        node.processes.insert(attempt);
        self.judge_start(state, attempt);
    }

    fn judge_start(&self, state: &mut State, attempt: Attempt) {
        let spec = &self.steps[attempt.step];
        let truth = &mut state.truth;
        if spec.destructive {
            *truth.starts.entry((attempt.step, attempt.generation)).or_default() += 1;
        }
        if !truth.approved.contains(&attempt.generation) {
            truth.wrong = Some("an unapproved script ran");
        }
        let same =
            |step: usize| step == attempt.step || (spec.exclusive && self.steps[step].exclusive);
        let newest =
            (0..self.steps.len()).filter(|step| same(*step) && self.steps[*step].node == spec.node);
        if newest.map(|step| truth.token[step]).max() > Some(attempt.run) {
            truth.wrong = Some("an outdated attempt started after a newer one");
        }
        truth.token[attempt.step] = truth.token[attempt.step].max(attempt.run);
        if let Some(parent) = spec.parent
            && truth.done[parent].is_empty()
        {
            truth.wrong = Some("a script ran before that of its parent");
        }
    }

    /// A script ends by itself.
    pub fn script_ends(&self, state: &mut State, attempt: Attempt, well: bool) {
        let node = &mut state.nodes[self.steps[attempt.step].node];
        node.processes.remove(&attempt);
        node.results.insert(attempt.run, well);
        if well {
            let done = &mut state.truth.done[attempt.step];
            if done.last() > Some(&attempt.generation) {
                state.truth.wrong = Some("an older generation ran after a newer one");
            }
            done.insert(attempt.generation);
        }
    }

    /// `end`: bars the attempt, ends it if it runs, and returns whether the ledger proves that it
    /// never started.
    pub fn end_on_node(&self, state: &mut State, step: usize, run: RunNo) -> bool {
        let bars = self.has(Guard::Bar);
        let node = &mut state.nodes[self.steps[step].node];
        let ledger = &mut node.ledger[step];
        if bars {
            ledger.attempt = ledger.attempt.max(run);
        }
        let (started, later) = (ledger.started == run, ledger.started > run);
        if started {
            node.processes.retain(|attempt| attempt.run != run);
        }
        !started && !later
    }

    /// Drops calls that would be refused at any time and results that no worker will fetch, to
    /// merge equal states.
    pub fn forget(&self, state: &mut State) {
        for node in 0..self.nodes {
            let refused: Vec<Attempt> = state.nodes[node]
                .coming
                .iter()
                .copied()
                .filter(|attempt| self.refuses(state, *attempt))
                .collect();
            for attempt in refused {
                state.nodes[node].coming.remove(&attempt);
                state.truth.refused = true;
            }
            let leased: Vec<RunNo> =
                state.workers.iter().flatten().map(|leased| leased.run).collect();
            state.nodes[node].results.retain(|run, _| leased.contains(run));
        }
        let leased: Vec<RunNo> = state.workers.iter().flatten().map(|leased| leased.run).collect();
        state.runs.retain(|number, run| !run.ended || leased.contains(number));
    }
}
