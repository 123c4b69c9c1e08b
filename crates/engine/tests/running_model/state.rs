//! The state of the model: rows, workers, reaper and nodes, and the remaining number of faults.

use std::collections::{BTreeMap, BTreeSet};

use engine::anneal::{Cause, Progress, StepState};
use engine::ids::BlueprintNumber;

/// A run's number, which is also its fencing token.
pub type RunNo = u8;

/// A guard that the protocol depends on, and that a mutation removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The node refuses a token that is not higher than the last one for the step.
    StepToken,
    /// The node refuses an exclusive run whose token is not higher than that of the last exclusive
    /// one.
    NodeToken,
    /// The node ends older attempts before it starts one.
    EndOlder,
    /// A query about an attempt bars that attempt from starting later.
    Bar,
    /// The node's ledger refuses an older generation.
    LedgerGeneration,
    /// A finish applies only to an open run of this worker.
    OpenRun,
    /// A result applies to the generation of its attempt, not to the current one.
    RunGeneration,
    /// The reaper treats a destructive run as unstarted only if the node's ledger proves it.
    Proof,
    /// The reaper treats a run that it found queued as unstarted only while it is still queued.
    StillQueued,
    /// A step that cannot be repeated is never retried automatically.
    Unrepeated,
    /// The worker verifies the run's chain to its approval.
    Approval,
    /// A lease checks again whether the run may start.
    MayStart,
    /// Only one claimer claims at a time.
    ClaimLock,
    /// Claims see which nodes are in use.
    Exclusive,
    /// The reaper ends runs whose leases are over.
    Reaper,
    /// The lease of an abandoned run ends, so that the reaper can end the run.
    LeaseEnds,
}

/// A step of a protocol.
#[derive(Debug, Clone, Copy)]
pub struct StepSpec {
    pub node: usize,
    /// The step whose success it waits for.
    pub parent: Option<usize>,
    pub destructive: bool,
    pub exclusive: bool,
    pub retries: u32,
}

/// A small world to explore.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub name: &'static str,
    pub steps: Vec<StepSpec>,
    pub nodes: usize,
    pub workers: usize,
    /// Maximum number of open runs in the concurrency group that all steps share.
    pub concurrency_group: Option<u32>,
    pub faults: Faults,
    pub without: Vec<Guard>,
}

/// The remaining number of each fault and each action of people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A lease ends although a worker holds its run or waits for it.
    pub stalls: u8,
    /// A worker is killed, and another one starts.
    pub crashes: u8,
    /// The connection to a node breaks.
    pub cuts: u8,
    /// A script fails.
    pub failures: u8,
    /// A node counts as dead although it may be alive.
    pub deaths: u8,
    /// A node restarts.
    pub reboots: u8,
    /// A commit changes a step.
    pub commits: u8,
    pub cancels: u8,
    pub retries: u8,
    pub pauses: u8,
    /// A write past the database's guards adds a target that no one approved.
    pub unapproved: u8,
    /// A write past the database's guards sets a step to an older generation.
    pub backwards: u8,
}

/// A step's columns, without texts.
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
            generation: BlueprintNumber(self.generation.into()),
            applied: self.applied.map(|number| BlueprintNumber(number.into())),
            failures: self.failures,
            cause: self.cause,
            error: None,
            node_up: self.node_up,
        }
    }

    pub fn of(progress: &Progress) -> Self {
        let small =
            |number: BlueprintNumber| u8::try_from(number.0).expect("targets of a model are few");
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

/// The owner of a run, by its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    Nobody,
    Worker(usize),
    /// A killed worker. A worker with another name replaces it.
    Gone,
}

/// A row of `run`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    pub step: usize,
    pub generation: u8,
    pub owner: Owner,
    pub ended: bool,
    pub canceled: bool,
    /// Whether `lease_until` has passed.
    pub expired: bool,
}

impl Run {
    pub fn queued(&self) -> bool {
        !self.ended && self.owner == Owner::Nobody
    }
}

/// The end of a run, as its worker reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    Succeeded,
    Failed,
    Lost,
    Unstarted,
    Canceled,
}

/// A worker's progress with its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has leased the row; nothing is prepared.
    Leased,
    /// It has sent the run to the node and follows it.
    Sent,
    /// The connection to the node broke; it reconnects.
    Cut,
    /// The run has ended on the node; its outcome and result must be fetched.
    Fetching,
    /// The run is over, and its finish must be written.
    Finishing(End),
}

/// The run that a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeasedRun {
    pub run: RunNo,
    pub phase: Phase,
}

/// The reaper's view of a run. The run may have changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReaperView {
    pub run: RunNo,
    pub step: usize,
    pub leased: bool,
    /// The node's answer, once the reaper has asked.
    pub never_started: Option<bool>,
}

/// The arguments of the wrapper.
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
    /// The token of the last start.
    pub started: RunNo,
    pub generation: u8,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// Calls of `run` in transit, which may still arrive.
    pub coming: BTreeSet<Attempt>,
    pub processes: BTreeSet<Attempt>,
    /// Outcomes of attempts that no worker has fetched.
    pub results: BTreeMap<RunNo, bool>,
    pub ledger: Vec<Ledger>,
    /// The token of the last exclusive run.
    pub exclusive: RunNo,
}

/// The actual events, which only the model knows. The properties compare the programs' view with
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Generations whose scripts succeeded, per step.
    pub done: Vec<BTreeSet<u8>>,
    /// Starts of destructive steps, per step and generation.
    pub starts: BTreeMap<(usize, u8), u8>,
    /// Number of re-runs that a user requested, per step and generation.
    pub requested: BTreeMap<(usize, u8), u8>,
    /// The highest token started, per step.
    pub token: Vec<RunNo>,
    /// Approved targets.
    pub approved: BTreeSet<u8>,
    /// A violation in a transition that no state shows.
    pub wrong: Option<&'static str>,
    /// A result arrived late.
    pub late: bool,
    /// A node refused an attempt.
    pub refused: bool,
}

/// The complete state at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub steps: Vec<StepRow>,
    pub runs: BTreeMap<RunNo, Run>,
    pub next: RunNo,
    pub target: u8,
    pub enabled: bool,
    pub alive: Vec<bool>,
    pub workers: Vec<Option<LeasedRun>>,
    /// The steps that claimers have read and not yet written. Used only without the claim's lock.
    pub claims: [Option<usize>; 2],
    pub reaper: Option<ReaperView>,
    pub nodes: Vec<Node>,
    pub left: Faults,
    pub truth: Truth,
}

impl State {
    pub fn open(&self) -> impl Iterator<Item = (RunNo, &Run)> {
        self.runs.iter().filter(|(_, run)| !run.ended).map(|(number, run)| (*number, run))
    }

    pub fn is_leased(&self, run: RunNo) -> bool {
        self.workers.iter().flatten().any(|lease| lease.run == run)
    }
}
