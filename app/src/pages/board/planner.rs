//! The planner in the page: what a drop would do is worked out here, by the engine's own code, while the nodes are still in the air.
//!
//! The server stays the judge. After each command its hash of the proposal's effects is compared with the one that was foretold here;
//! when they differ the page plans no more, says so, and asks the server for each lift, which is slower and always right.
//!
//! What planning takes stands in the browser's own timeline (User Timing), for whoever profiles a slow board and for
//! `end2end/plan-speed.mjs`.

use api::console::{Lift, PlannerView};
use engine::Hash;
use engine::ids::{DeploymentId, NodeId, ProposalId};
use engine::plan::lift::lift;
use engine::plan::{Edit, Grounded, NumberedEdit};
use std::sync::Arc;

/// What one stamp names.
#[derive(Debug)]
struct Stamped {
    stamp: String,
    ground: Grounded,
}

/// A proposal at a version, and everything that planning on it takes.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    stamped: Arc<Stamped>,
    proposal: ProposalId,
    version: i32,
    edits: Vec<NumberedEdit>,
    next: u32,
    /// What the server says that the edits come to.
    effects: Hash,
}

/// Why what the server sent can't be planned with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The ground is missing or not whole: it has to be sent again.
    Ground,
    /// The same edits come to something else here than in the server.
    Differs,
}

impl Planner {
    /// Out of what the server sent; the ground may be the last one's.
    pub(super) fn of(view: PlannerView, last: Option<&Self>) -> Result<Self, Unusable> {
        let stamped = match view.ground {
            Some(sent) => {
                let ground = sent.open().map_err(|_| Unusable::Ground)?;
                Arc::new(Stamped { stamp: view.stamp, ground })
            }
            None => {
                let same = last.filter(|last| last.stamped.stamp == view.stamp);
                Arc::clone(&same.ok_or(Unusable::Ground)?.stamped)
            }
        };
        let planner = Self {
            stamped,
            proposal: view.proposal,
            version: view.version,
            edits: view.edits,
            next: view.next,
            effects: view.effects,
        };
        // Whoever comes to something else than the server must not tell people what a drop would do.
        match planner.effects_with(&[]) == Some(planner.effects) {
            true => Ok(planner),
            false => Err(Unusable::Differs),
        }
    }

    /// The stamp of its ground.
    pub(super) fn stamp(&self) -> String {
        self.stamped.stamp.clone()
    }

    /// Whether it is about this version of this proposal.
    pub(super) fn is_of(&self, proposal: ProposalId, version: i32) -> bool {
        (self.proposal, self.version) == (proposal, version)
    }

    /// Whether it is about this version.
    pub(super) fn is_at(&self, version: i32) -> bool {
        self.version == version
    }

    /// What lifting these nodes allows.
    pub(super) fn lift(&self, deployment: DeploymentId, nodes: &[NodeId]) -> Lift {
        let Grounded { skeleton, catalog } = &self.stamped.ground;
        timed("gantry: lift", || lift(skeleton, catalog, &self.edits, self.next, deployment, nodes))
    }

    /// The hash of what the proposal comes to with further edits. None where one of them uses a version that is not in use yet: the
    /// ground has no more than what is.
    pub(super) fn effects_with(&self, edits: &[Edit]) -> Option<Hash> {
        let new = (self.next..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() });
        let new: Vec<NumberedEdit> = new.collect();
        timed("gantry: plan", || self.stamped.ground.effects_with(&self.edits, &new)?.hash().ok())
    }

    /// What the server says that its edits come to.
    pub(super) fn effects(&self) -> Hash {
        self.effects
    }
}

/// Does it, and notes in the browser's timeline how long it took.
fn timed<T>(name: &str, what: impl FnOnce() -> T) -> T {
    let Some(timeline) = web_sys::window().and_then(|window| window.performance()) else { return what() };
    let marked = timeline.mark(name).is_ok();
    let done = what();
    if marked {
        // A timeline that is full or switched off is no reason to plan otherwise.
        let _ = timeline.measure_with_start_mark(name, name);
        timeline.clear_marks_with_mark_name(name);
    }
    done
}
