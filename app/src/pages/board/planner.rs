//! The planner in the page: what a drop would do is worked out here, by the engine's own code, while the nodes are still in the air.
//!
//! The server stays the judge. After each command its hash of the proposal's effects is compared with the one that was foretold here;
//! when they differ the page plans no more, says so, and asks the server for each lift, which is slower and always right.
//!
//! It is a piece of its own ([`crate::pages::part`]), loaded when there is a proposal that the reader may edit: the board works without it,
//! and knows it only as [`Planning`].
//!
//! What planning takes stands in the browser's own timeline (User Timing), for whoever profiles a slow board and for
//! `end2end/plan-speed.mjs`.

use std::fmt;
use std::sync::Arc;

use api::console::{Lift, PlannerView};
use engine::Hash;
use engine::ids::{DeploymentId, NodeId, ProposalId};
use engine::plan::lift::lift;
use engine::plan::{Edit, Grounded, NumberedEdit};
use leptos::wasm_split::{SplitLoaderError, wasm_split};

use crate::calls;

/// What one stamp names.
#[derive(Debug)]
pub(super) struct Stamped {
    stamp: String,
    ground: Grounded,
}

/// A proposal at a version, and everything that planning on it takes.
pub(super) trait Planning: fmt::Debug + Send + Sync {
    /// Its ground.
    fn ground(&self) -> &Arc<Stamped>;

    /// Whether it is about this version of this proposal.
    fn is_of(&self, proposal: ProposalId, version: i32) -> bool;

    /// Whether it is about this version.
    fn is_at(&self, version: i32) -> bool;

    /// What lifting these nodes allows.
    fn lift(&self, deployment: DeploymentId, nodes: &[NodeId]) -> Lift;

    /// The hash of what the proposal comes to with further edits. None where one of them uses a version that is not in use yet: the
    /// ground has no more than what is.
    fn effects_with(&self, edits: &[Edit]) -> Option<Hash>;

    /// What the server says that its edits come to.
    fn effects(&self) -> Hash;
}

/// Whoever plans.
pub(super) type Planner = Arc<dyn Planning>;

/// What asking for a planner came to; None: the proposal was closed meanwhile, and the board is about to hear of it.
pub(super) type Learned = Option<Result<Planner, Unusable>>;

/// Asks for what planning on the open proposal of a deployment takes. The ground may be the last one's: its stamp says whether anything is
/// new, and costs little. An error: the piece can't be loaded, or the server not be asked, and whoever wants to know asks the server later.
#[wasm_split(planner, fallible, wasm_split_path = ::leptos::wasm_split)]
pub(super) fn learn(
    deployment: DeploymentId,
    last: Option<Planner>,
) -> Result<Learning, SplitLoaderError> {
    Ok(Box::pin(async move {
        let known = last.as_ref().map(|last| last.ground().stamp.clone());
        let view = calls::planner(deployment, known).await.ok().flatten()?;
        Some(Planned::of(view, last.as_ref()).map(|planned| Arc::new(planned) as Planner))
    }))
}

/// On its way.
pub(super) type Learning = std::pin::Pin<Box<dyn Future<Output = Learned>>>;

#[derive(Debug)]
struct Planned {
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

impl Planned {
    /// Out of what the server sent; the ground may be the last one's.
    fn of(view: PlannerView, last: Option<&Planner>) -> Result<Self, Unusable> {
        let stamped = match view.ground {
            Some(sent) => {
                let ground = sent.open().map_err(|_| Unusable::Ground)?;
                Arc::new(Stamped { stamp: view.stamp, ground })
            }
            None => {
                let same = last.map(|last| last.ground()).filter(|last| last.stamp == view.stamp);
                Arc::clone(same.ok_or(Unusable::Ground)?)
            }
        };
        let planned = Self {
            stamped,
            proposal: view.proposal,
            version: view.version,
            edits: view.edits,
            next: view.next,
            effects: view.effects,
        };
        // Whoever comes to something else than the server must not tell people what a drop would do.
        match planned.effects_with(&[]) == Some(planned.effects) {
            true => Ok(planned),
            false => Err(Unusable::Differs),
        }
    }
}

impl Planning for Planned {
    fn ground(&self) -> &Arc<Stamped> {
        &self.stamped
    }

    fn is_of(&self, proposal: ProposalId, version: i32) -> bool {
        (self.proposal, self.version) == (proposal, version)
    }

    fn is_at(&self, version: i32) -> bool {
        self.version == version
    }

    fn lift(&self, deployment: DeploymentId, nodes: &[NodeId]) -> Lift {
        let Grounded { skeleton, catalog } = &self.stamped.ground;
        timed("gantry: lift", || lift(skeleton, catalog, &self.edits, self.next, deployment, nodes))
    }

    fn effects_with(&self, edits: &[Edit]) -> Option<Hash> {
        let new =
            (self.next..).zip(edits).map(|(seq, edit)| NumberedEdit { seq, edit: edit.clone() });
        let new: Vec<NumberedEdit> = new.collect();
        timed("gantry: plan", || self.stamped.ground.effects_with(&self.edits, &new)?.hash().ok())
    }

    fn effects(&self) -> Hash {
        self.effects
    }
}

/// Does it, and notes in the browser's timeline how long it took.
fn timed<T>(name: &str, what: impl FnOnce() -> T) -> T {
    let Some(timeline) = web_sys::window().and_then(|window| window.performance()) else {
        return what();
    };
    let marked = timeline.mark(name).is_ok();
    let done = what();
    if marked {
        // A timeline that is full or switched off is no reason to plan otherwise.
        let _ = timeline.measure_with_start_mark(name, name);
        timeline.clear_marks_with_mark_name(name);
    }
    done
}
