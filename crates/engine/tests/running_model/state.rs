//! What the model knows: rows, workers, janitor, nodes; and what may go wrong how often.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{Cause, Progress, StepState};
use engine::ids::TargetNo;

/// A run's number, and its fencing token.
pub type RunNo = u8;

/// Something that the protocol rests on, and that a mutation takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The node refuses a token that is not higher than what it has seen for the step.
    StepToken,
    /// The node refuses an exclusive run whose token is not higher than that of the last exclusive one.
    NodeToken,
    /// The node ends what older attempts left running before it starts one.
    EndOlder,
    /// Asking a node about an attempt bars that attempt from starting later.
    Bar,
    /// The node's ledger refuses an older generation.
    LedgerGeneration,
    /// A finish applies only to an open run of this worker.
    OpenRun,
    /// A result is applied to the generation that its attempt was started for, not to the present one.
    RunGeneration,
    /// The janitor takes a destructive run for unstarted only when its node's ledger proves it.
    Proof,
    /// What the janitor found queued it takes for unstarted only while it is still queued.
    StillQueued,
    /// What can't be done again is not tried again by itself, however it ended.
    Unrepeated,
    /// The worker follows the run to its approval.
    Approval,
    /// A lease looks again whether the run may start.
    MayStart,
    /// One at a time claims.
    ClaimLock,
    /// Claims see which nodes are taken.
    Exclusive,
    /// Runs whose leases are over are ended.
    Janitor,
    /// What a worker leaves behind can be leased no more, but its lease ends.
    LeaseEnds,
}

/// A step of a protocol.
#[derive(Debug, Clone, Copy)]
pub struct StepSpec {
    pub node: usize,
    /// Whose success it waits for.
    pub parent: Option<usize>,
    pub destructive: bool,
    pub exclusive: bool,
    pub retries: u32,
}

/// One small world to explore.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub name: &'static str,
    pub steps: Vec<StepSpec>,
    pub nodes: usize,
    pub workers: usize,
    /// Most runs open in the one lane of all steps.
    pub lane: Option<u32>,
    pub faults: Faults,
    pub without: Vec<Guard>,
}

/// How often something may still happen that nobody plans for, or that a person does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A lease ends although somebody holds its run, or waits to.
    pub stalls: u8,
    /// A worker is killed; another one starts in its place.
    pub crashes: u8,
    /// The way to a node breaks.
    pub cuts: u8,
    /// A script ends with a failure.
    pub failures: u8,
    /// A node counts as dead although it may live.
    pub deaths: u8,
    /// A node starts again.
    pub reboots: u8,
    /// A commit changes a step.
    pub commits: u8,
    pub cancels: u8,
    pub retries: u8,
    pub pauses: u8,
    /// Somebody writes into the database past its guards: a target that nobody approved.
    pub unapproved: u8,
    /// The same: a step is put back to an older generation.
    pub backwards: u8,
}

/// A step's columns, without the words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StepRow {
    pub state: StepState,
    pub pending: u32,
    pub generation: u8,
    pub applied: Option<u8>,
    pub failures: u32,
    pub cause: Option<Cause>,
    pub node_up: bool,
}

impl StepRow {
    pub fn progress(&self) -> Progress {
        Progress {
            state: self.state,
            pending: self.pending,
            satisfied: 0,
            generation: TargetNo(self.generation.into()),
            applied: self.applied.map(|number| TargetNo(number.into())),
            failures: self.failures,
            cause: self.cause,
            error: None,
            node_up: self.node_up,
        }
    }

    pub fn of(progress: &Progress) -> Self {
        let small = |number: TargetNo| u8::try_from(number.0).expect("targets of a model are few");
        Self {
            state: progress.state,
            pending: progress.pending,
            generation: small(progress.generation),
            applied: progress.applied.map(small),
            failures: progress.failures,
            cause: progress.cause,
            node_up: progress.node_up,
        }
    }
}

/// Who has a run, by its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    Nobody,
    Worker(usize),
    /// A worker that was killed. Its place is taken by one with another name.
    Gone,
}

/// A row of `run`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    pub step: usize,
    pub generation: u8,
    pub owner: Owner,
    pub ended: bool,
    pub cancelled: bool,
    /// `lease_until` is over.
    pub expired: bool,
}

impl Run {
    pub fn queued(&self) -> bool {
        !self.ended && self.owner == Owner::Nobody
    }
}

/// How a run ended, as its worker says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    Succeeded,
    Failed,
    Lost,
    Unstarted,
    Cancelled,
}

/// Where a worker is with the run that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its row is ours; nothing is prepared.
    Leased,
    /// It was sent to the node, and is followed.
    Sent,
    /// The way to the node broke; it is looked for.
    Cut,
    /// It has ended on the node; how, and with what result, has to be fetched.
    Heard,
    /// It is over, and its finish has to be written.
    Over(End),
}

/// What a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    pub run: RunNo,
    pub phase: Phase,
}

/// What the janitor remembers of a run that it looked at; the world goes on meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    pub run: RunNo,
    pub step: usize,
    pub leased: bool,
    /// What the node said, once it was asked.
    pub never_started: Option<bool>,
}

/// What the wrapper is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    pub run: RunNo,
    pub step: usize,
    pub generation: u8,
}

/// A node's ledger of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// The highest token seen.
    pub attempt: RunNo,
    /// The last one that was started.
    pub started: RunNo,
    pub generation: u8,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// Calls of `run` that are on their way and may still arrive.
    pub coming: BTreeSet<Attempt>,
    pub processes: BTreeSet<Attempt>,
    /// How attempts ended that nobody has fetched.
    pub results: BTreeMap<RunNo, bool>,
    pub ledger: Vec<Ledger>,
    /// The token of the last exclusive run.
    pub exclusive: RunNo,
}

/// What is true whatever the programs believe: kept by the model alone, to judge by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Generations whose scripts ran to a good end, per step.
    pub done: Vec<BTreeSet<u8>>,
    /// Starts of destructive steps, per step and generation.
    pub starts: BTreeMap<(usize, u8), u8>,
    /// How often a person asked for one more.
    pub asked: BTreeMap<(usize, u8), u8>,
    /// The highest token started, per step.
    pub token: Vec<RunNo>,
    /// Targets that were approved.
    pub approved: BTreeSet<u8>,
    /// What went wrong in a transition and can't be seen in a state.
    pub wrong: Option<&'static str>,
    /// A result came late.
    pub late: bool,
    /// A node refused an attempt.
    pub refused: bool,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub steps: Vec<StepRow>,
    pub runs: BTreeMap<RunNo, Run>,
    pub next: RunNo,
    pub target: u8,
    pub enabled: bool,
    pub alive: Vec<bool>,
    pub workers: Vec<Option<Held>>,
    /// What claimers have read and not written yet. Only without the claim's lock.
    pub claims: [Option<usize>; 2],
    pub janitor: Option<Seen>,
    pub nodes: Vec<Node>,
    pub left: Faults,
    pub truth: Truth,
}

impl State {
    pub fn open(&self) -> impl Iterator<Item = (RunNo, &Run)> {
        self.runs.iter().filter(|(_, run)| !run.ended).map(|(number, run)| (*number, run))
    }

    pub fn held(&self, run: RunNo) -> bool {
        self.workers.iter().flatten().any(|held| held.run == run)
    }
}
